// test-forward.cpp - the forward pass: every layer against Hugging Face in float, INT8 near it, and the same bits whatever the threads, the batch mates, their
// order and the instruction set.
#include "models.h"
#include "scratch.h"

namespace {

const char *const CHECKPOINTS[] = {"tests/golden/bert-64", "tests/golden/bert-40"};

// ---- float against the reference, layer by layer ----

struct collected {
    std::vector<std::vector<float>> hidden; // [layers + 1][tokens * width]
};

void collect(void *user, const char *name, uint32_t, const float *x, size_t rows, size_t cols, size_t stride) {
    const std::string what = name;
    if (what != "embed" && what != "hidden") return;
    std::vector<float> dense;
    for (size_t r = 0; r < rows; r++) dense.insert(dense.end(), x + r * stride, x + r * stride + cols);
    static_cast<collected *>(user)->hidden.push_back(std::move(dense));
}

void test_layers(const std::string &checkpoint) {
    const model_handle m = load(converted(checkpoint, sq::quant_mode::none));
    if (!m) return;
    const ctx_handle c = context(m, 2);
    for (const golden_row &r : read_golden(checkpoint + "/expected.jsonl")) {
        collected got;
        sq_ctx_set_tap(c.get(), {collect, &got});
        batch_builder b;
        b.add(r);
        run(c, b, SQ_HIDDEN, m->arch.width);
        if (!CHECK_EQ(got.hidden.size(), r.hidden.size())) continue;
        for (size_t l = 0; l < r.hidden.size(); l++) {
            const float bound = 2e-5f * largest(r.hidden[l]);
            if (!CHECK_EQ(got.hidden[l].size(), r.hidden[l].size())) continue;
            for (size_t i = 0; i < r.hidden[l].size(); i++) CHECK_NEAR(got.hidden[l][i], r.hidden[l][i], bound);
        }
    }
    sq_ctx_set_tap(c.get(), {nullptr, nullptr});
}

// The tokenizer that came with the checkpoint gives the reference's ids and types.
void test_tokens(const std::string &checkpoint) {
    const model_handle m = load(converted(checkpoint, sq::quant_mode::none));
    if (!m) return;
    for (const golden_row &r : read_golden(checkpoint + "/expected.jsonl")) {
        std::vector<int32_t> ids(256), types(256);
        size_t n = 0;
        CHECK_EQ(sq_tokenize(m.get(), r.a.data(), r.a.size(), r.has_b ? r.b.data() : nullptr, r.b.size(), nullptr, ids.data(), types.data(), nullptr, nullptr, 256, &n),
                 SQ_OK);
        ids.resize(n);
        types.resize(n);
        CHECK(ids == r.ids);
        CHECK(types == r.types);
    }
}

// ---- INT8 near float ----

// Pooled vectors, calibrated on the texts themselves, so that what remains is rounding. A numpy simulation of the same arithmetic (per-row scales and strength 0.5
// to 0.6; one scale and strength 0.5 to 0.7) gives cosines of at least 0.9998 and 0.9995 on these checkpoints; a fault in the arithmetic costs far more.
void test_int8(const std::string &checkpoint, sq::quant_mode mode, double lowest_allowed) {
    const std::vector<golden_row> rows = read_golden(checkpoint + "/expected.jsonl");
    const std::string texts = "/tmp/sq-test-" + std::to_string(getpid()) + ".txt";
    std::ofstream out(texts);
    for (const golden_row &r : rows) out << r.a << "\n" << r.b << "\n";
    out.close();
    const model_handle m = load(converted(checkpoint, mode, texts));
    unlink(texts.c_str());
    if (!m) return;
    const ctx_handle c = context(m);
    const uint32_t D = m->arch.width;
    double lowest = 1;
    for (const golden_row &r : rows) {
        if (r.has_b) continue; // calibration saw its halves apart
        batch_builder b;
        b.add(r);
        const std::vector<float> x = run(c, b, SQ_POOLED, D);
        if (x.empty()) return;
        std::vector<float> mean(D, 0.0f);
        for (size_t i = 0; i < r.hidden.back().size(); i++) mean[i % D] += r.hidden.back()[i] / static_cast<float>(r.ids.size());
        lowest = std::min(lowest, cosine(x.data(), mean.data(), D));
    }
    printf("%s %s: lowest cosine to float %.5f\n", checkpoint.c_str(), mode_name(mode), lowest);
    CHECK(lowest >= lowest_allowed);
}

// ---- the same bits ----

std::vector<const char *> isas() {
    std::vector<const char *> names;
    for (const char *name : {"plain", "avx2", "avxvnni", "avx512vnni", "amx"}) {
        sq_model_params p{};
        p.size = sizeof p;
        p.isa = name;
        const sq::kernels *k = nullptr;
        if (sq::choose_kernels(name, &k, nullptr, nullptr) == SQ_OK && std::string(k->name) == name) names.push_back(name);
    }
    return names;
}

// Each text alone, in one thread, on the plain table.
std::vector<std::vector<float>> alone(const std::string &bytes, const std::vector<golden_row> &rows) {
    const model_handle m = load(bytes, "plain");
    const ctx_handle c = context(m);
    std::vector<std::vector<float>> out;
    for (const golden_row &r : rows) {
        batch_builder b;
        b.add(r);
        out.push_back(run(c, b, SQ_HIDDEN, m->arch.width));
    }
    return out;
}

void test_same_bits(const std::string &checkpoint, sq::quant_mode mode) {
    const std::string bytes = converted(checkpoint, mode);
    if (bytes.empty()) return;
    const std::vector<golden_row> rows = read_golden(checkpoint + "/expected.jsonl");
    const std::vector<std::vector<float>> expected = alone(bytes, rows);
    std::vector<size_t> order(rows.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    for (const char *isa : isas()) {
        const model_handle m = load(bytes, isa);
        CHECK_EQ(sq_isa_string(m.get()), isa);
        for (uint32_t n_threads = 1; n_threads <= 4; n_threads++) {
            const ctx_handle c = context(m, n_threads);
            std::rotate(order.begin(), order.begin() + 1, order.end());
            batch_builder b;
            std::vector<float> all;
            for (size_t i : order) b.add(rows[i]), all.insert(all.end(), expected[i].begin(), expected[i].end());
            const std::vector<float> got = run(c, b, SQ_HIDDEN, m->arch.width);
            CHECK(got.size() == all.size() && memcmp(got.data(), all.data(), all.size() * sizeof(float)) == 0);
        }
    }
}

// A file of format version 1, written by sq 0.1.0 from tests/golden/bert-40 (static), still gives what it gave: vectors near the reference's.
void test_version_1() {
    std::ifstream in("tests/data/version-1.sq", std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    const model_handle m = load(bytes.str());
    if (!m) return;
    const ctx_handle c = context(m);
    const uint32_t D = m->arch.width;
    for (const golden_row &r : read_golden("tests/golden/bert-40/expected.jsonl")) {
        batch_builder b;
        b.add(r);
        const std::vector<float> x = run(c, b, SQ_HIDDEN, D);
        if (CHECK_EQ(x.size(), r.hidden.back().size())) CHECK(cosine(x.data(), r.hidden.back().data(), static_cast<uint32_t>(x.size())) > 0.99);
    }
}

// ---- plans ----

constexpr int PASSES = 16; // a range of lengths is decided after 13

// A batch of T tokens in sequences of up to 50.
batch_builder tokens(const model_handle &m, uint32_t T) {
    batch_builder b;
    for (uint32_t t = 0; t < T;) {
        golden_row r;
        for (uint32_t n = std::min(1 + (T + 7 * t) % 50, T - t); n > 0; n--, t++) r.ids.push_back(static_cast<int32_t>((t * 31 + 5) % m->arch.vocab));
        r.types.assign(r.ids.size(), 0);
        b.add(r);
    }
    return b;
}

std::string tuning_of(const ctx_handle &c) {
    size_t n = 0;
    std::string text;
    if (sq_ctx_tuning(c.get(), nullptr, 0, &n) == SQ_E_SPACE) text.resize(n);
    CHECK_EQ(sq_ctx_tuning(c.get(), &text[0], text.size(), &n), SQ_OK);
    CHECK_EQ(n, text.size());
    return text;
}

int32_t create(const model_handle &m, uint32_t n_threads, uint32_t no_tuning, const std::string &tuning, ctx_handle *out, char (&err)[256]) {
    sq_ctx_params p{};
    p.size = sizeof p;
    p.n_threads = n_threads;
    p.no_tuning = no_tuning;
    p.tuning = tuning.c_str();
    sq_ctx *c = nullptr;
    err[0] = 0;
    const int32_t status = sq_ctx_create(m.get(), &p, &c, err, sizeof err);
    out->reset(c);
    return status;
}

// While plans are tried, when one is chosen, without trying, and with what another context found: always the same bits.
void test_plans(const std::string &checkpoint, sq::quant_mode mode) {
    const model_handle m = load(converted(checkpoint, mode));
    if (!m) return;
    const uint32_t D = m->arch.width;
    char err[256];
    for (uint32_t n_threads = 1; n_threads <= 4; n_threads += CHECK_SANITIZED ? 2 : 1) {
        ctx_handle c, fixed, told;
        CHECK_EQ(create(m, n_threads, 0, "", &c, err), SQ_OK);
        CHECK_EQ(create(m, n_threads, 1, "", &fixed, err), SQ_OK);
        for (uint32_t T : {1u, 3u, 17u, 70u, 300u}) {
            const batch_builder b = tokens(m, T);
            const std::vector<float> expected = run(fixed, b, SQ_HIDDEN, D);
            for (int pass = 0; pass < PASSES; pass++) CHECK(run(c, b, SQ_HIDDEN, D) == expected);
        }
        CHECK(tuning_of(fixed).empty());
        const std::string text = tuning_of(c);
        CHECK_EQ(std::count(text.begin(), text.end(), '\n'), 4); // up to 8, 32, 128 and 512 tokens
        CHECK_EQ(create(m, n_threads, 1, "\n" + text + "\nanother kind\t8 rows 64 0\n", &told, err), SQ_OK);
        CHECK_EQ(tuning_of(told), text);
        for (uint32_t T : {1u, 70u, 300u}) CHECK(run(told, tokens(m, T), SQ_HIDDEN, D) == run(fixed, tokens(m, T), SQ_HIDDEN, D));
    }
}

// Damaged texts of tuning are refused, with a reason.
void test_bad_tuning() {
    const model_handle m = load(converted("tests/golden/bert-64", sq::quant_mode::static_scales));
    if (!m) return;
    ctx_handle c;
    char err[256];
    CHECK_EQ(create(m, 2, 0, "", &c, err), SQ_OK);
    for (int pass = 0; pass < PASSES; pass++) run(c, tokens(m, 8), SQ_HIDDEN, m->arch.width);
    const std::string good = tuning_of(c), key = good.substr(0, good.find('\t'));
    for (const char *tail : {"\t9 rows 64 0\n", "\t8 rows 4294967360 0\n", "\t+8 rows 064 0\n", "\t8 rows 64\n", "\t8 rows 64 0 1\n", "\t8 rows 64 99\n", "\t8 rows 65 0\n", "\t8 cols 64 0\n", "\t0 rows 64 0\n", "\t-8 rows 64 0\n",
                             "\t99999999999999999999999 rows 64 0\n", " 8 rows 64 0\n", "\t8 panelspanels 0 0\n"}) {
        CHECK_EQ(create(m, 2, 0, key + tail, &c, err), SQ_E_FORMAT);
        CHECK(!c && strstr(err, "tuning") != nullptr);
    }
    size_t n = 0;
    CHECK_EQ(sq_ctx_tuning(nullptr, nullptr, 0, &n), SQ_E_ARG);
}

// XLM-RoBERTa has one row of segments, and never receives segments, whatever its tokenizer's template says.
void test_one_segment() {
    const scratch folder;
    for (const auto &entry : std::filesystem::directory_iterator("tests/golden/xlmr-48")) {
        std::ifstream in(entry.path(), std::ios::binary);
        std::stringstream bytes;
        bytes << in.rdbuf();
        std::string text = bytes.str();
        const size_t b = text.find("\"id\": \"B\""), type = b == std::string::npos ? b : text.find("\"type_id\": 0", b);
        if (entry.path().filename() == "tokenizer.json" && CHECK(type != std::string::npos)) text[type + strlen("\"type_id\": ")] = '1';
        folder.put(entry.path().filename().string(), text);
    }
    const model_handle m = load(converted(folder.path, sq::quant_mode::none));
    int32_t types[64];
    size_t n = 0;
    CHECK(m && sq_tokenize(m.get(), "one", 3, "two", 3, nullptr, nullptr, types, nullptr, nullptr, 64, &n) == SQ_OK);
    CHECK(n > 4 && std::count(types, types + n, 0) == static_cast<int64_t>(n));
}

// Pooled vectors are the mean, computed here in double, and the first row.
void test_pooling() {
    const std::string bytes = converted("tests/golden/bert-64", sq::quant_mode::none);
    const model_handle m = load(bytes);
    if (!m) return;
    const ctx_handle c = context(m, 3);
    const uint32_t D = m->arch.width;
    batch_builder b;
    std::string text;
    std::vector<size_t> text_starts{0};
    for (const golden_row &r : read_golden("tests/golden/bert-64/expected.jsonl")) {
        if (r.has_b) continue;
        b.add(r);
        text += r.a;
        text_starts.push_back(text.size());
    }
    const uint32_t n = static_cast<uint32_t>(text_starts.size()) - 1;
    const std::vector<float> x = run(c, b, SQ_HIDDEN, D), pooled = run(c, b, SQ_POOLED, D);
    const sq_texts texts{sizeof(sq_texts), n, text.data(), text_starts.data(), nullptr, nullptr};
    sq_embed_params p{};
    p.size = sizeof p;
    p.pooling = SQ_POOL_CLS;
    p.normalize = SQ_NORMALIZE_YES;
    p.dimensions = 20;
    std::vector<float> cls(n * 20);
    size_t got = 0;
    CHECK_EQ(sq_embed(c.get(), &texts, &p, cls.data(), cls.size(), &got), SQ_OK);
    CHECK_EQ(got, cls.size());
    for (uint32_t s = 0; s < n; s++) {
        double squares = 0;
        for (uint32_t j = 0; j < 20; j++) squares += pow(x[b.starts[s] * D + j], 2);
        for (uint32_t j = 0; j < 20; j++) CHECK_NEAR(cls[s * 20 + j], x[b.starts[s] * D + j] / sqrt(squares), 1e-6);
        for (uint32_t j = 0; j < D; j++) {
            double sum = 0;
            for (uint32_t t = b.starts[s]; t < b.starts[s + 1]; t++) sum += x[t * D + j];
            CHECK_NEAR(pooled[s * D + j], sum / (b.starts[s + 1] - b.starts[s]), 1e-5);
        }
    }
}

} // namespace

int main() {
    for (const char *checkpoint : CHECKPOINTS) {
        test_layers(checkpoint);
        test_tokens(checkpoint);
        test_int8(checkpoint, sq::quant_mode::dynamic_scales, 0.9995);
        for (sq::quant_mode mode : {sq::quant_mode::static_scales, sq::quant_mode::fast}) test_int8(checkpoint, mode, 0.998);
        for (sq::quant_mode mode : ALL_MODES) test_same_bits(checkpoint, mode);
    }
    test_pooling();
    test_version_1();
    for (const char *checkpoint : {"tests/golden/bert-64", "tests/golden/bert-40"})
        for (sq::quant_mode mode : ALL_MODES) test_plans(checkpoint, mode);
    test_bad_tuning();
    test_one_segment();
    return check_summary("test-forward");
}
