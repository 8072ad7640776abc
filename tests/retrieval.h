// tests/retrieval.h - for test-accuracy: search with INT8 vectors finds what search with float vectors finds, over 500 passages (tests/data/retrieval).
//
// The passages cover some twenty fields; many come in groups on one matter, and sixty are in other languages than English. One passage answers each of queries.txt,
// beside others that come near; each of broad.txt asks for what several passages say, so that the first of them may lead by less than INT8's rounding. Whether a
// passage is right does not matter here, only what float finds.
#ifndef SQ_TESTS_RETRIEVAL_H
#define SQ_TESTS_RETRIEVAL_H

#include <set>

#include "models.h"
#include "texts.h"

namespace retrieval {

constexpr size_t N_PASSAGES = 500, N_QUERIES = 50; // of either kind
constexpr int LEAST_SAME = 49;                     // of queries.txt: those whose first passage is float's
constexpr double MOST_LOST = 0.01;                 // where it is not: how far it may be behind, by float's cosines

// What the model was trained to read before each text
struct text_prefixes {
    const char *query, *passage;
};

struct text_file {
    std::string name;
    std::vector<std::string> lines;
};

inline text_file read_texts(const std::string &name, size_t n_lines) {
    text_file file{name, {}};
    std::ifstream in("tests/data/retrieval/" + name);
    for (std::string line; std::getline(in, line);) file.lines.push_back(line);
    CHECK_EQ(file.lines.size(), n_lines);
    CHECK_EQ(std::set<std::string>(file.lines.begin(), file.lines.end()).size(), n_lines);
    return file;
}

// f32 [texts][width]
inline std::vector<float> vectors(const model_handle &m, const ctx_handle &c, const std::vector<std::string> &texts, const char *prefix) {
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
inline std::vector<scores> search(const std::string &bytes, const text_prefixes &prefixes, const std::vector<text_file> &queries, const text_file &passages) {
    const model_handle m = load(bytes);
    if (!m) return {};
    const ctx_handle c = context(m, 2);
    const size_t width = m->arch.width;
    const std::vector<float> p = vectors(m, c, passages.lines, prefixes.passage);
    std::vector<scores> out;
    for (const text_file &file : queries) {
        const std::vector<float> q = vectors(m, c, file.lines, prefixes.query);
        scores table(file.lines.size());
        for (size_t i = 0; i < file.lines.size(); i++)
            for (size_t j = 0; j < passages.lines.size(); j++) table[i].push_back(cosine(&q[i * width], &p[j * width], width));
        out.push_back(std::move(table));
    }
    return out;
}

// Returns how many queries have float's first passage.
inline int compare(const text_file &queries, const scores &as_float, const scores &as_int8) {
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

// What the float model of a checkpoint finds, to compare with
class comparison {
  public:
    comparison(const std::string &as_float, const text_prefixes &prefixes) : prefixes_(prefixes), expected_(search(as_float, prefixes, queries_, passages_)) {}

    void test(const std::string &name, const char *mode, const std::string &as_int8) const {
        const std::vector<scores> got = search(as_int8, prefixes_, queries_, passages_);
        if (!CHECK_EQ(expected_.size(), queries_.size()) || !CHECK_EQ(got.size(), queries_.size())) return;
        for (size_t i = 0; i < queries_.size(); i++) {
            const int n_same = compare(queries_[i], expected_[i], got[i]);
            printf("%-18s %-8s %d of %zu first passages as in float, %s\n", name.c_str(), mode, n_same, queries_[i].lines.size(), queries_[i].name.c_str());
            if (queries_[i].name == "queries.txt") CHECK(n_same >= LEAST_SAME);
        }
    }

  private:
    const text_prefixes prefixes_;
    const text_file passages_ = read_texts("passages.txt", N_PASSAGES);
    const std::vector<text_file> queries_ = {read_texts("queries.txt", N_QUERIES), read_texts("broad.txt", N_QUERIES)};
    const std::vector<scores> expected_; // by file of queries
};

} // namespace retrieval

#endif
