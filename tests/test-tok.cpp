// tests/test-tok.cpp - tokenizers against Hugging Face tokenizers 0.23.3 (ids, segment ids, byte spans), limits, damaged data, refused settings.
//
// Right answers: tests/data/tok (made by tests/make-tok-golden.py), data/tokenize of SQ_SHARED with the checkpoints of SQ_MODELS, and the cases of field.md.
// `test-tok FOLDER` answers requests on standard input instead, for tests/sweep-tok.py.
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "../convert/json.h"
#include "check.h"
#include "scratch.h"
#include "tok.h"

using namespace sq;

static const char *const DATA = "tests/data/tok/";

// ---- goldens ----

static std::vector<uint32_t> numbers(const json::value *v) {
    std::vector<uint32_t> out;
    if (!v) return out;
    for (const json::value &item : v->items) {
        if (item.is_array())
            for (const json::value &one : item.items) out.push_back(uint32_t(one.integer));
        else out.push_back(uint32_t(item.integer));
    }
    return out;
}

static bool same(const std::vector<uint32_t> &expected, const std::vector<int32_t> &got) {
    return std::equal(expected.begin(), expected.end(), got.begin(), got.end(), [](uint32_t e, int32_t g) { return int32_t(e) == g; });
}

static std::string shown(const std::string &text) {
    std::string out;
    json::append_string(&out, text.substr(0, 300));
    return out;
}

template <class T> static std::string listed(const std::vector<T> &v) {
    std::string out;
    for (size_t i = 0; i < v.size() && i < 60; i++) out += " " + std::to_string(v[i]);
    return out;
}

// A row: {"a", "b", "ids", "types", "spans"} and options {"max", "plain"}.
static bool check_row(const tok_model &m, const json::value &row) {
    const json::value *b = row.find("b"), *max = row.find("max"), *plain = row.find("plain");
    encode_options options;
    if (max) options.max_len = size_t(max->integer);
    options.truncate = max != nullptr;
    options.specials_as_text = plain && plain->boolean;
    encoding e;
    const std::string &a = row.find("a")->text;
    const int status = m.encode(a, b && b->is_string() ? &b->text : nullptr, options, &e);
    const std::vector<uint32_t> ids = numbers(row.find("ids")), types = numbers(row.find("types")), spans = numbers(row.find("spans"));
    const bool right = status == SQ_OK && same(ids, e.ids) && same(types, e.types) && spans == e.spans && e.sources.size() == e.ids.size();
    if (!CHECK(right) && check_n_failed <= 8)
        fprintf(stderr, "  text %s %s\n  ids  %s\n  not  %s\n  spans%s\n  not  %s\n", shown(a).c_str(), b && b->is_string() ? shown(b->text).c_str() : "", listed(ids).c_str(),
                listed(e.ids).c_str(), listed(spans).c_str(), listed(e.spans).c_str());
    return right;
}

static void check_rows(const tok_model &m, const std::string &path) {
    std::ifstream in(path);
    size_t n = 0, n_right = 0;
    for (std::string line; std::getline(in, line);) {
        json::value row;
        if (!CHECK(json::parse(line.data(), line.size(), &row, nullptr))) continue;
        if (!row.find("ids")) continue; // the header
        n++;
        n_right += check_row(m, row);
    }
    CHECK(n > 0);
    printf("%s: %zu of %zu rows\n", path.c_str(), n_right, n);
}

static void test_committed() {
    for (const char *name : {"bert-uncased", "bert-cased", "bert-odd", "bert-unclean", "bert-vocab-txt", "unigram", "unigram-words", "unigram-first", "unigram-never", "sentencepiece"}) {
        const std::string folder = std::string(DATA) + name;
        tok_model m;
        if (!CHECK_EQ(m.read(folder), SQ_OK)) fprintf(stderr, "  %s\n", m.why.text);
        else check_rows(m, folder + "/golden.jsonl");
    }
}

static std::string models() { return getenv("SQ_MODELS") ? getenv("SQ_MODELS") : ""; }

// The folder of a real checkpoint, "" (and SKIP) where it is not at hand.
static std::string checkpoint(const char *name) {
    const std::string folder = models() + "/" + name;
    if (!models().empty() && access(folder.c_str(), R_OK) == 0) return folder;
    printf("SKIP checkpoint %s: not in SQ_MODELS\n", name);
    SKIP("a real checkpoint is absent");
    return "";
}

static void test_shared() {
    const std::string shared = getenv("SQ_SHARED") ? getenv("SQ_SHARED") : "../shared";
    const char *const pairs[][2] = {{"bert-uncased", "minilm"}, {"bert-cased-zh", "bert-zh"}, {"xlmr", "e5"}};
    for (const auto &pair : pairs) {
        const std::string golden = shared + "/data/tokenize/" + pair[0] + ".jsonl";
        if (access(golden.c_str(), R_OK) != 0) {
            SKIP("no data/tokenize in SQ_SHARED");
            continue;
        }
        const std::string folder = checkpoint(pair[1]);
        if (folder.empty()) continue;
        tok_model m;
        if (CHECK_EQ(m.read(folder), SQ_OK)) check_rows(m, golden);
        else fprintf(stderr, "  %s\n", m.why.text);
    }
}

// Requests of native u32 words {max_len, flags: 1 truncate, 2 specials as text, 4 has b; n_a, n_b} and the texts; answers {status, n, n x {id, type, first, past}}.
static int serve(const char *folder) {
    tok_model m;
    if (m.read(folder, 1u << 22) != SQ_OK) {
        fprintf(stderr, "%s\n", m.why.text);
        return 1;
    }
    encoding e;
    for (uint32_t head[4]; fread(head, sizeof head, 1, stdin) == 1;) {
        std::string a(head[2], 0), b(head[3], 0);
        if (fread(&a[0], 1, a.size(), stdin) != a.size() || fread(&b[0], 1, b.size(), stdin) != b.size()) return 1;
        encode_options options;
        options.max_len = head[0] == UINT32_MAX ? SIZE_MAX : head[0];
        options.truncate = head[1] & 1;
        options.specials_as_text = head[1] & 2;
        const int status = m.encode(a, head[1] & 4 ? &b : nullptr, options, &e);
        std::vector<uint32_t> answer{uint32_t(status), status == SQ_OK ? uint32_t(e.ids.size()) : 0};
        for (size_t i = 0; i < answer[1]; i++) answer.insert(answer.end(), {uint32_t(e.ids[i]), uint32_t(e.types[i]), e.spans[2 * i], e.spans[2 * i + 1]});
        fwrite(answer.data(), 4, answer.size(), stdout);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2) return serve(argv[1]);
    test_committed();
    test_shared();
    return check_summary("test-tok");
}
