// test-accuracy.cpp - real checkpoints against Hugging Face: float, dynamic and static INT8, as one table.
//
// Needs SQ_SHARED (reference outputs: data/golden, data/calibrate.txt; default ../shared) and SQ_MODELS (checkpoint folders); without them it says SKIP.
#include <time.h>

#include "models.h"
#include "retrieval.h"

namespace {

struct subject {
    const char *checkpoint;
    double dynamic_lowest, dynamic_mean, static_lowest, static_mean; // cosines of pooled vectors to float32
    const retrieval::text_prefixes *prefixes;                        // null: not for search
};

constexpr retrieval::text_prefixes PLAIN = {"", ""}, E5 = {"query: ", "passage: "};

// TorchAO's SmoothQuant, dynamic, gives 0.9917 and 0.9987 on minilm's texts, 0.9989 and 0.9997 on e5's; OpenVINO, static, 0.9908 and 0.9966, 0.9917 and 0.9976.
// Checkpoints whose reference is logits have no such bounds.
const subject SUBJECTS[] = {
    {"minilm", 0.997, 0.9992, 0.994, 0.998, &PLAIN}, {"e5", 0.9993, 0.9997, 0.9985, 0.9995, &E5}, {"reranker", 0, 0, 0, 0, nullptr}, {"categorium-en", 0, 0, 0, 0, nullptr}};

// The weights of minilm and e5 under the names of other architectures: nothing new to quantise.
const char *const TWINS[] = {"minilm-distilbert", "e5-xlmr"};

// Rows of one query, or a row's own labels, compared where float's margin exceeds this.
constexpr float MARGIN = 0.2f;

std::string shared_folder() {
    const char *folder = getenv("SQ_SHARED");
    return folder ? folder : "../shared";
}

double milliseconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

// What the model gives for each row: pooled vectors, or logits where the reference has logits. The tokenizer must give the reference's ids.
std::vector<std::vector<float>> answers(const std::string &bytes, const std::vector<golden_row> &rows) {
    const model_handle m = load(bytes);
    const ctx_handle c = context(m, 2);
    std::vector<std::vector<float>> out;
    std::vector<int32_t> ids(1024);
    sq_tokenize_params cut{sizeof cut, 512, 1, 0}; // the references are cut to 512 tokens, whatever the checkpoint's own limit
    for (const golden_row &r : rows) {
        size_t n = 0;
        CHECK_EQ(sq_tokenize(m.get(), r.a.data(), r.a.size(), r.has_b ? r.b.data() : nullptr, r.b.size(), &cut, ids.data(), nullptr, nullptr, nullptr, ids.size(), &n),
                 SQ_OK);
        CHECK(std::vector<int32_t>(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n)) == r.ids);
        batch_builder b;
        b.add(r);
        out.push_back(r.logits.empty() ? run(c, b, SQ_POOLED, m->arch.width) : run(c, b, SQ_LOGITS, m->head.n_labels));
    }
    return out;
}

// Float mode: pooled vectors within 1e-4 of their largest entry, logits within 1e-3.
void test_float(const std::string &name, const std::string &bytes, const std::vector<golden_row> &rows) {
    const std::vector<std::vector<float>> got = answers(bytes, rows);
    const bool is_logits = !rows[0].logits.empty();
    float worst = 0;
    for (size_t i = 0; i < rows.size(); i++) {
        const std::vector<float> &expected = is_logits ? rows[i].logits : rows[i].pooled;
        if (!CHECK_EQ(got[i].size(), expected.size())) return;
        const float unit = is_logits ? 1 : largest(expected);
        for (size_t j = 0; j < got[i].size(); j++) worst = std::max(worst, fabsf(got[i][j] - expected[j]) / unit);
    }
    printf("%-18s %-8s %10.1e %s, %5.1f MB\n", name.c_str(), "float", static_cast<double>(worst), is_logits ? "absolute" : "of the largest entry",
           static_cast<double>(bytes.size()) / 1e6);
    CHECK(worst < (is_logits ? 1e-3f : 1e-4f));
}

void test_vectors(const std::string &name, sq::quant_mode mode, const std::string &bytes, const std::vector<golden_row> &rows, double lowest_allowed,
                  double mean_allowed) {
    const std::vector<std::vector<float>> got = answers(bytes, rows);
    double lowest = 1, sum = 0;
    for (size_t i = 0; i < rows.size(); i++) {
        if (!CHECK_EQ(got[i].size(), rows[i].pooled.size())) return;
        const double cos = cosine(got[i].data(), rows[i].pooled.data(), got[i].size());
        lowest = std::min(lowest, cos);
        sum += cos;
    }
    const double mean = sum / static_cast<double>(rows.size());
    printf("%-18s %-8s cosine lowest %.4f, mean %.4f, %5.1f MB\n", name.c_str(), mode_name(mode), lowest, mean, static_cast<double>(bytes.size()) / 1e6);
    CHECK(lowest >= lowest_allowed);
    CHECK(mean >= mean_allowed);
}

// One logit: each query's documents in float's order; several: float's label; both where float's margin exceeds MARGIN.
void test_logits(const std::string &name, sq::quant_mode mode, const std::string &bytes, const std::vector<golden_row> &rows) {
    const std::vector<std::vector<float>> got = answers(bytes, rows);
    int n_compared = 0, n_same = 0;
    auto compare = [&](float float_margin, float margin) {
        if (float_margin <= MARGIN) return;
        n_compared++;
        n_same += margin > 0;
    };
    for (size_t i = 0; i < rows.size(); i++) {
        if (!CHECK_EQ(got[i].size(), rows[i].logits.size())) return;
        const std::vector<float> &expected = rows[i].logits;
        const size_t best = static_cast<size_t>(std::max_element(expected.begin(), expected.end()) - expected.begin());
        for (size_t j = 0; j < expected.size(); j++)
            if (j != best) compare(expected[best] - expected[j], got[i][best] - got[i][j]);
        for (size_t k = 0; expected.size() == 1 && k < rows.size(); k++)
            if (rows[k].a == rows[i].a) compare(expected[0] - rows[k].logits[0], got[i][0] - got[k][0]);
    }
    printf("%-18s %-8s %d of %d comparisons as in float, %5.1f MB\n", name.c_str(), mode_name(mode), n_same, n_compared, static_cast<double>(bytes.size()) / 1e6);
    CHECK(n_compared > 0);
    CHECK_EQ(n_same, n_compared);
}

// The whole forward pass on every instruction set gives the plain table's bits.
void test_same_bits(const std::string &bytes, const golden_row &row) {
    std::vector<float> expected;
    for (const char *isa : {"plain", "avx2", "avxvnni", "avx512vnni", "amx"}) {
        const sq::kernels *k = nullptr;
        if (sq::choose_kernels(isa, &k, nullptr, nullptr) != SQ_OK) continue;
        const model_handle m = load(bytes, isa);
        batch_builder b;
        b.add(row);
        const std::vector<float> got = run(context(m, 2), b, SQ_HIDDEN, m->arch.width);
        if (expected.empty()) expected = got;
        CHECK(got == expected);
    }
}

// MiniLM is below 25 MB and loads in below 20 ms.
void test_size_and_load(const std::string &bytes) {
    CHECK(bytes.size() < 25000000);
    const std::string path = "/tmp/sq-test-load-" + std::to_string(getpid()) + ".sq";
    std::ofstream(path, std::ios::binary) << bytes;
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        sq_model *m = nullptr;
        const double start = milliseconds();
        CHECK_EQ(sq_model_load(path.c_str(), nullptr, &m, nullptr, 0), SQ_OK);
        best = std::min(best, milliseconds() - start);
        sq_model_free(m);
    }
    unlink(path.c_str());
    printf("%-18s loads in %.2f ms (best of 5)\n", "minilm static", best);
    CHECK(best < 20);
}

struct reference {
    std::string checkpoint; // its folder
    std::vector<golden_row> rows;
};

// Says SKIP where the checkpoint or what is expected of it is not here.
bool find(const std::string &name, reference *out) {
    const char *models = getenv("SQ_MODELS");
    const std::string golden = shared_folder() + "/data/golden/" + name + ".jsonl";
    out->checkpoint = (models ? models : "") + ("/" + name);
    const bool is_here = models && access(golden.c_str(), R_OK) == 0 && access((out->checkpoint + "/config.json").c_str(), R_OK) == 0;
    if (is_here) out->rows = read_golden(golden);
    else SKIP("no reference outputs (SQ_SHARED) or no real checkpoints (SQ_MODELS)");
    return is_here;
}

// found: null if the checkpoint is not for search
void test_int8(const subject &s, sq::quant_mode mode, const std::string &bytes, const std::vector<golden_row> &rows, const retrieval::comparison *found) {
    const bool is_static = mode == sq::quant_mode::static_scales;
    if (!rows[0].logits.empty()) test_logits(s.checkpoint, mode, bytes, rows);
    else test_vectors(s.checkpoint, mode, bytes, rows, is_static ? s.static_lowest : s.dynamic_lowest, is_static ? s.static_mean : s.dynamic_mean);
    if (found) found->test(s.checkpoint, mode_name(mode), bytes);
    test_same_bits(bytes, rows[0]);
    if (is_static && std::string(s.checkpoint) == "minilm") test_size_and_load(bytes);
}

} // namespace

int main() {
    reference r;
    for (const subject &s : SUBJECTS) {
        if (!find(s.checkpoint, &r)) continue;
        const std::string as_float = converted(r.checkpoint, sq::quant_mode::none);
        if (as_float.empty()) continue;
        test_float(s.checkpoint, as_float, r.rows);
        test_same_bits(as_float, r.rows[0]);
        const std::unique_ptr<const retrieval::comparison> found(s.prefixes ? new retrieval::comparison(as_float, *s.prefixes) : nullptr);
        for (sq::quant_mode mode : {sq::quant_mode::dynamic_scales, sq::quant_mode::static_scales}) {
            const std::string bytes = converted(r.checkpoint, mode, shared_folder() + "/data/calibrate.txt");
            if (!bytes.empty()) test_int8(s, mode, bytes, r.rows, found.get());
        }
    }
    for (const char *name : TWINS) {
        if (!find(name, &r)) continue;
        const std::string as_float = converted(r.checkpoint, sq::quant_mode::none);
        if (!as_float.empty()) test_float(name, as_float, r.rows);
    }
    return check_summary("test-accuracy");
}
