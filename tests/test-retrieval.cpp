// test-retrieval.cpp - search with INT8 vectors finds what search with float vectors finds, over 500 passages (tests/data/retrieval).
//
// The passages cover some twenty fields; many come in groups on one matter, and sixty are in other languages than English. One passage answers each of queries.txt,
// beside others that come near; each of broad.txt asks for what several passages say, so that the first of them may lead by less than INT8's rounding. Whether a
// passage is right does not matter here, only what float finds.
// Needs SQ_SHARED (data/calibrate.txt; default ../shared) and SQ_MODELS (checkpoint folders); without them it says SKIP.
#include <set>

#include "models.h"
#include "texts.h"

namespace {

constexpr size_t N_PASSAGES = 500, N_QUERIES = 50; // of either kind
constexpr int LEAST_SAME = 49;                     // of queries.txt: those whose first passage is float's
constexpr double MOST_LOST = 0.01;                 // where it is not: how far it may be behind, by float's cosines

struct subject {
    const char *checkpoint, *query_prefix, *passage_prefix; // the prefixes are what the model was trained with
};
const subject SUBJECTS[] = {
    {"minilm", "", ""}, {"minilm-distilbert", "", ""}, {"e5", "query: ", "passage: "}, {"e5-xlmr", "query: ", "passage: "}};

struct text_file {
    std::string name;
    std::vector<std::string> lines;
};

text_file read_texts(const std::string &name, size_t n_lines) {
    text_file file{name, {}};
    std::ifstream in("tests/data/retrieval/" + name);
    for (std::string line; std::getline(in, line);) file.lines.push_back(line);
    CHECK_EQ(file.lines.size(), n_lines);
    CHECK_EQ(std::set<std::string>(file.lines.begin(), file.lines.end()).size(), n_lines);
    return file;
}

// f32 [texts][width]
std::vector<float> vectors(const model_handle &m, const ctx_handle &c, const std::vector<std::string> &texts, const char *prefix) {
    text_list list;
    for (const std::string &text : texts) list.add(prefix + text);
    const sq_texts batch = list.texts(false);
    std::vector<float> out(texts.size() * m->arch.width);
    size_t n = 0;
    CHECK_EQ(sq_embed(c.get(), &batch, nullptr, out.data(), out.size(), &n), SQ_OK);
    CHECK_EQ(n, out.size());
    return out;
}

using scores = std::vector<std::vector<double>>; // cosines: [queries][passages]

// One table for each file of queries.
std::vector<scores> search(const std::string &bytes, const subject &s, const std::vector<text_file> &queries, const text_file &passages) {
    const model_handle m = load(bytes);
    if (!m) return {};
    const ctx_handle c = context(m, 2);
    const size_t width = m->arch.width;
    const std::vector<float> p = vectors(m, c, passages.lines, s.passage_prefix);
    std::vector<scores> out;
    for (const text_file &file : queries) {
        const std::vector<float> q = vectors(m, c, file.lines, s.query_prefix);
        scores table(file.lines.size());
        for (size_t i = 0; i < file.lines.size(); i++)
            for (size_t j = 0; j < passages.lines.size(); j++) table[i].push_back(cosine(&q[i * width], &p[j * width], width));
        out.push_back(std::move(table));
    }
    return out;
}

// Returns how many queries have float's first passage.
int compare(const text_file &queries, const scores &as_float, const scores &as_int8) {
    int n_same = 0;
    const auto first = [](const std::vector<double> &row) { return std::max_element(row.begin(), row.end()) - row.begin(); };
    for (size_t i = 0; i < queries.lines.size(); i++) {
        const size_t expected = static_cast<size_t>(first(as_float[i])), got = static_cast<size_t>(first(as_int8[i]));
        const double lost = as_float[i][expected] - as_float[i][got];
        n_same += got == expected;
        if (got != expected) printf("  '%s': another first, which float has behind by %.4f\n", queries.lines[i].c_str(), lost);
        CHECK(lost <= MOST_LOST);
    }
    return n_same;
}

void test(const subject &s, const std::string &checkpoint, const std::string &calibration, const std::vector<text_file> &queries, const text_file &passages) {
    const std::vector<scores> as_float = search(converted(checkpoint, sq::quant_mode::none), s, queries, passages);
    for (sq::quant_mode mode : {sq::quant_mode::dynamic_scales, sq::quant_mode::static_scales}) {
        const std::vector<scores> as_int8 = search(converted(checkpoint, mode, calibration), s, queries, passages);
        if (!CHECK_EQ(as_float.size(), queries.size()) || !CHECK_EQ(as_int8.size(), queries.size())) return;
        for (size_t i = 0; i < queries.size(); i++) {
            const int n_same = compare(queries[i], as_float[i], as_int8[i]);
            printf("%-18s %-8s %-11s %d of %zu first passages as in float\n", s.checkpoint, mode_name(mode), queries[i].name.c_str(), n_same, queries[i].lines.size());
            if (queries[i].name == "queries.txt") CHECK(n_same >= LEAST_SAME);
        }
    }
}

} // namespace

int main() {
    const text_file passages = read_texts("passages.txt", N_PASSAGES);
    const std::vector<text_file> queries = {read_texts("queries.txt", N_QUERIES), read_texts("broad.txt", N_QUERIES)};
    const char *models = getenv("SQ_MODELS"), *shared_or_null = getenv("SQ_SHARED");
    const std::string calibration = std::string(shared_or_null ? shared_or_null : "../shared") + "/data/calibrate.txt";
    for (const subject &s : SUBJECTS) {
        const std::string checkpoint = (models ? models : "") + std::string("/") + s.checkpoint;
        if (models && access(calibration.c_str(), R_OK) == 0 && access((checkpoint + "/config.json").c_str(), R_OK) == 0)
            test(s, checkpoint, calibration, queries, passages);
        else SKIP("no calibration texts (SQ_SHARED) or no real checkpoints (SQ_MODELS)");
    }
    return check_summary("test-retrieval");
}
