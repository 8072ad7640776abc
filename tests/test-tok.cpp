// tests/test-tok.cpp - tokenizers against Hugging Face tokenizers 0.23.3 (ids, segment ids, byte spans), limits, damaged data, refused settings.
//
// Right answers: tests/data/tok (made by tests/make-tok-golden.py), data/tokenize of SQ_SHARED with the checkpoints of SQ_MODELS, and the cases of field.md.
// `test-tok FOLDER` answers requests on standard input instead, for tests/sweep-tok.py.
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "../convert/json.h"
#include "../sq-tok-text.h"
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
        fprintf(stderr, "  text %s %s\n  ids  %s\n  not  %s\n  spans%s\n  not  %s\n", shown(a).c_str(), b && b->is_string() ? shown(b->text).c_str() : "",
                listed(ids).c_str(), listed(e.ids).c_str(), listed(spans).c_str(), listed(e.spans).c_str());
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
    for (const char *name : {"bert-uncased", "bert-cased", "bert-odd", "bert-unclean", "bert-vocab-txt", "unigram", "unigram-words", "unigram-first",
                             "unigram-never", "sentencepiece"}) {
        const std::string folder = std::string(DATA) + name;
        tok_model m;
        if (!CHECK_EQ(m.read(folder), SQ_OK)) fprintf(stderr, "  %s\n", m.why.text);
        else check_rows(m, folder + "/golden.jsonl");
    }
}

static const std::map<std::string, std::vector<normalizer>> STEPS = {
    {"clean", {normalizer::clean}}, {"han", {normalizer::han}}, {"nfd", {normalizer::nfd}}, {"strip", {normalizer::nfd, normalizer::strip_mn}},
    {"marks", {normalizer::strip_marks}}, {"lower", {normalizer::lower}}, {"charsmap", {normalizer::charsmap}},
};

// Every code point through every step; characters.txt holds CRC-32s by blocks of 4,096.
static void test_characters() {
    tok_model m;
    if (!CHECK_EQ(m.read(std::string(DATA) + "unigram"), SQ_OK)) return;
    const tensor_entry *units = m.file.find_tensor("tok.charsmap.trie"), *replacements = m.file.find_tensor("tok.charsmap.text");
    if (!CHECK(units && replacements)) return;
    const charsmap_view map{static_cast<const uint32_t *>(units->data), units->cols, static_cast<const uint8_t *>(replacements->data), replacements->cols};
    std::ifstream in(std::string(DATA) + "characters.txt");
    std::string line, name;
    std::getline(in, line);
    uint32_t first, expected;
    size_t n_blocks = 0;
    for (; in >> name >> std::hex >> first >> expected; n_blocks++) {
        const std::vector<normalizer> steps = name == "words" ? std::vector<normalizer>{} : STEPS.at(name);
        uint32_t crc = 0;
        text t, own;
        normalize_scratch x;
        std::vector<size_t> words;
        for (uint32_t c = first; c < first + 4096; c++) {
            if ((c >= 0xD800 && c < 0xE000) || (c >= 0x30000 && c % 64)) continue;
            uint8_t bytes[4];
            const std::string s(bytes, bytes + utf8_encode(c, bytes)), dots = "\xCC\x81\xCC\xA3 ", mark = "\xC2\xA9\xCC\x81";
            const std::string in_words = "a" + s + "a", among = "a" + s + "b" + s + dots + s + mark + s + "\xE2\x80\x8D" + mark, &all = steps.empty() ? in_words : among;
            t.clear();
            append_original(reinterpret_cast<const uint8_t *>(all.data()), 0, all.size(), &t);
            CHECK(normalize(steps, map, &t, &x));
            const text *of;
            split(splitter::bert, t, 0, t.n, &own, &of, &words);
            const uint8_t n_words = uint8_t(words.size() / 2);
            crc = steps.empty() ? crc32(crc, &n_words, 1) : crc32(crc, t.bytes.data(), t.n);
        }
        if (!CHECK_EQ(crc, expected)) fprintf(stderr, "  step %s, block %x\n", name.c_str(), first);
    }
    CHECK_EQ(n_blocks, size_t(8 * 272));
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

// ---- cases of field.md, on the uncased BERT vocabulary ----

using ints = std::vector<int32_t>;

static encoding encode(const tok_model &m, const std::string &a, const encode_options &options = {}, const std::string *b = nullptr) {
    encoding e;
    CHECK_EQ(m.encode(a, b, options, &e), SQ_OK);
    return e;
}

// ids without the first and the last token; spans of those, flat, unless empty.
static void check_case(const tok_model &m, const std::string &text, const ints &ids, const std::vector<uint32_t> &spans = {}) {
    const encoding e = encode(m, text);
    if (!CHECK(e.ids.size() == ids.size() + 2 && e.ids.front() == 101 && e.ids.back() == 102)) return;
    CHECK(std::equal(ids.begin(), ids.end(), e.ids.begin() + 1));
    if (!spans.empty()) CHECK(std::equal(spans.begin(), spans.end(), e.spans.begin() + 2));
}

static std::string repeat(const std::string &s, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; i++) out += s;
    return out;
}

static void test_field_cases() {
    const std::string folder = checkpoint("minilm");
    tok_model m;
    if (folder.empty() || !CHECK_EQ(m.read(folder), SQ_OK)) return;
    check_case(m, "Kant\xC5\x8D", {26044, 2080}, {0, 4, 4, 6});
    check_case(m, "l\xC7\x9Cshi", {16299, 2072});
    check_case(m, "e\xCC\x81" "cole", {12431}, {0, 7});
    check_case(m, "Stra\xC3\x9F" "e \xC4\xB0stanbul \xEF\xAC\x81 \xC2\xBD", {2358, 27807, 9960, 1984, 1092});
    check_case(m, "\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4", {1469, 30006, 30021, 29991, 30014, 30020, 29999, 30008}, {0, 3, 0, 3, 0, 3, 3, 6, 3, 6, 3, 6, 6, 9, 6, 9});
    check_case(m, repeat("\xF0\x9F\x92\xA9", 3), {100}, {0, 12});
    check_case(m, "vote\xE2\x99\xA1\xE2\x99\xA1", {100}, {0, 10});
    check_case(m, std::string("x\0y\xEF\xBF\xBDz", 7), {1060, 2100, 2480}, {0, 1, 2, 3, 6, 7}); // NUL is data
    check_case(m, "a\xE2\x80\x8B" "b", {11113});
    check_case(m, "hello\xE2\x80\xA8world\xC2\x85x", {7592, 2088, 2595});
    check_case(m, "$100^2`~", {1002, 2531, 1034, 1016, 1036, 1066});
    check_case(m, "[SEP] hi [MASK] </s>", {102, 7632, 103, 1026, 1013, 1055, 1028});
    check_case(m, "", {});
    check_case(m, "   ", {});
    CHECK_EQ(encode(m, repeat("a", 100)).ids.size(), size_t(52));
    check_case(m, repeat("a", 101), {100}, {0, 101});
    CHECK_EQ(encode(m, repeat("\xC3\xA9", 100)).ids.size(), size_t(52));
    check_case(m, repeat("\xC3\xA9", 101), {100});
    CHECK_EQ(encode(m, repeat("e\xCC\x81", 100)).ids.size(), size_t(52));
    check_case(m, repeat("e\xCC\x81", 101), {100}, {0, 301}); // HF's span ends before the last accent
    const std::string b = "about 100 people";
    const encoding pair = encode(m, "how many", {}, &b);
    CHECK((pair.ids == ints{101, 2129, 2116, 102, 2055, 2531, 2111, 102}));
    CHECK((pair.types == ints{0, 0, 0, 0, 1, 1, 1, 1}));
    CHECK((pair.sources == ints{-1, 0, 0, -1, 1, 1, 1, -1}));
    encode_options plain;
    plain.specials_as_text = true;
    CHECK((encode(m, "[SEP]", plain).ids == ints{101, 1031, 19802, 1033, 102}));
    CHECK_EQ(encode(m, repeat("word ", 511)).ids.size(), size_t(513));
}

// ---- limits, ill-formed text, tokens of the vocabulary ----

static void test_limits(const tok_model &m) {
    encode_options o;
    encoding e;
    const std::string b = "about the people";
    o.max_len = 6;
    CHECK_EQ(m.encode("a b c d e f", nullptr, o, &e), SQ_E_LIMIT);
    CHECK_EQ(e.full_len, size_t(8));
    o.truncate = true;
    CHECK_EQ(m.encode("a b c d e f", nullptr, o, &e), SQ_OK);
    CHECK(e.ids.size() == 6 && e.full_len == 8);
    CHECK_EQ(m.encode("a", &b, o, &e), SQ_OK);
    CHECK(e.ids.size() == 6 && e.full_len == 7);
    o.max_len = 3;
    CHECK_EQ(m.encode("a", &b, o, &e), SQ_OK); // nothing but special tokens
    CHECK_EQ(e.ids.size(), size_t(3));
    for (const int32_t source : e.sources) CHECK_EQ(source, -1);
    o.max_len = 2;
    CHECK_EQ(m.encode("a", &b, o, &e), SQ_E_LIMIT);
    o = {};
    CHECK_EQ(m.tok.encode(nullptr, 0, nullptr, 0, o, &e, nullptr), SQ_OK);
    CHECK_EQ(e.ids.size(), size_t(2));
    CHECK_EQ(m.tok.encode(nullptr, 0, "", 0, o, &e, nullptr), SQ_OK); // a pair of empty texts
    CHECK_EQ(e.ids.size(), size_t(3));

    size_t n = 0;
    const char *text = m.tok.token_text(3, &n);
    CHECK(text && std::string(text, n) == "[SEP]");
    CHECK(!m.tok.token_text(-1, &n) && !m.tok.token_text(INT32_MAX, &n));
}

// Each maximal ill-formed subpart counts as U+FFFD: the same tokens as for the text with U+FFFD, spans over the bytes that are there (Unicode 15, table 3-8).
static void test_ill_formed() {
    const struct {
        const char *bytes;
        std::vector<size_t> lengths; // of its subparts
    } CASES[] = {{"\xFF", {1}}, {"\x80\xBF", {1, 1}}, {"\xC3", {1}}, {"\xC0\xAF", {1, 1}}, {"\xE0\x80\xBF", {1, 1, 1}}, {"\xE2\x82", {2}}, {"\xED\xA0\x80", {1, 1, 1}},
                 {"\xF0\x9F\x98", {3}}, {"\xF0\x80\x80\x80", {1, 1, 1, 1}}, {"\xF4\x91\x92\x93", {1, 1, 1, 1}}, {"\xF1\x80\x80\xE1\x80\xC2", {3, 2, 1}}, {"\xFD\xBF", {1, 1}}};
    for (const char *name : {"bert-unclean", "unigram-never", "unigram"}) {
        tok_model m;
        if (!CHECK_EQ(m.read(std::string(DATA) + name), SQ_OK)) continue;
        for (const auto &c : CASES) {
            const std::string before = "hello ", after = " a";
            std::string replaced = before;
            std::vector<size_t> to; // byte of the replaced text -> byte of the ill-formed one
            for (size_t i = 0; i < before.size(); i++) to.push_back(i);
            size_t at = before.size();
            for (const size_t length : c.lengths) {
                replaced += "\xEF\xBF\xBD";
                for (int i = 0; i < 3; i++) to.push_back(at);
                at += length;
            }
            for (size_t i = 0; i <= after.size(); i++) to.push_back(at + i);
            const encoding e = encode(m, before + c.bytes + after), r = encode(m, replaced + after);
            if (!CHECK(e.ids == r.ids)) continue;
            for (size_t i = 0; i < r.spans.size(); i++) CHECK_EQ(size_t(e.spans[i]), r.sources[i / 2] < 0 ? 0 : to[r.spans[i]]);
        }
    }
}

// A megabyte without a space, and one of single characters, take time in proportion: about as many bytes a second as a tenth of it.
static void test_linear() {
    for (const char *name : {"bert-uncased", "bert-unclean", "unigram", "unigram-never"}) {
        tok_model m;
        if (!CHECK_EQ(m.read(std::string(DATA) + name), SQ_OK)) continue;
        for (const char *part : {"a", "\xC3\xA9", "\xCC\x81", "e\xCC\x81\xCC\xA3", "[SEP", " ", "\xF0\x9F\x87\xA9", "\xE2\x96\x81", "a,"}) {
            double seconds[2];
            for (int i = 0; i < 2; i++) {
                const std::string text = repeat(part, (i ? 1000000 : 100000) / strlen(part));
                const auto start = std::chrono::steady_clock::now();
                encode(m, text);
                seconds[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            }
            CHECK(seconds[1] < 40 * seconds[0] + 1); // a quadratic step would take 100 times as long, and minutes
        }
    }
}

// ---- damaged files ----

// Any word of the tokenizer's data may be anything: opening refuses it or encoding copes. What must not happen, a sanitizer or a crash shows.
static void test_damaged() {
    std::mt19937 rng(1);
    const std::string text = "Hello world, na\xC3\xAFve caf\xC3\xA9 [SEP] <mask> \xE4\xBD\xA0\xE5\xA5\xBD playing\x10 \xEF\xBC\xA1 unhappiness tables zzz";
    for (const char *name : {"bert-uncased", "unigram"}) {
        tok_model m;
        if (!CHECK_EQ(m.read(std::string(DATA) + name), SQ_OK)) continue;
        size_t n_refused = 0, n_coped = 0, n_found_out = 0;
        for (int round = 0; round < 3000; round++) {
            aligned_image copy(m.image.size());
            memcpy(copy.data(), m.image.data(), m.image.size());
            const tensor_entry &t = m.file.tensors[rng() % m.file.tensors.size()];
            const int n_changes = 1 << rng() % 8;
            for (int i = 0; i < n_changes; i++) {
                uint8_t *const at = copy.data() + t.offset + rng() % t.n_bytes / 4 * 4;
                const uint32_t values[] = {uint32_t(rng()), 0, UINT32_MAX, uint32_t(rng() % 4096)};
                memcpy(at, &values[rng() % 4], 4);
            }
            file_view file;
            tokenizer tok;
            if (!CHECK_EQ(file.open(copy.data(), copy.size(), nullptr), SQ_OK)) break; // tensors have checksums of their own, verified on request
            const int opened = tok.open(file, 5000, 2, nullptr);
            n_refused += opened != SQ_OK;
            if (opened != SQ_OK) continue;
            encoding e;
            encode_options o;
            o.specials_as_text = round & 1;
            const int status = tok.encode(text.data(), text.size(), "b", 1, o, &e, nullptr);
            n_coped += status == SQ_OK;
            n_found_out += status == SQ_E_FORMAT;
            CHECK(status == SQ_OK || status == SQ_E_FORMAT);
            for (size_t i = 0; i < e.ids.size(); i++) CHECK(e.spans[2 * i] <= e.spans[2 * i + 1] && e.spans[2 * i + 1] <= text.size());
            size_t n;
            for (int32_t id = 0; id < 300; id++) tok.token_text(id, &n);
        }
        printf("damaged %s: %zu refused, %zu coped with, %zu found out while encoding\n", name, n_refused, n_coped, n_found_out);
        CHECK(n_refused > 0 && n_coped > 0);
    }
}

// ---- settings ----

static std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
}

// The tokenizer.json of bert-uncased with one piece of text replaced must be refused, by a sentence with this in it.
static void check_refused(const std::string &json, const char *from, const char *to, const char *reason) {
    const size_t at = json.find(from);
    if (!CHECK(at != std::string::npos)) return;
    scratch folder;
    folder.put("tokenizer.json", std::string(json).replace(at, strlen(from), to));
    tok_model m;
    CHECK_EQ(m.read(folder.path), SQ_E_FORMAT);
    if (!CHECK(std::string(m.why.text).find(reason) != std::string::npos)) fprintf(stderr, "  %s: %s\n", reason, m.why.text);
}

static void test_refused() {
    const std::string bert = read_file(std::string(DATA) + "bert-uncased/tokenizer.json"), unigram = read_file(std::string(DATA) + "unigram/tokenizer.json");
    check_refused(bert, "\"BertNormalizer\"", "\"NFKC\"", "NFKC");
    check_refused(bert, "\"BertPreTokenizer\"", "\"ByteLevel\"", "ByteLevel");
    check_refused(bert, "\"WordPiece\"", "\"BPE\"", "BPE");
    check_refused(bert, "\"TemplateProcessing\"", "\"ByteLevel\"", "ByteLevel");
    check_refused(bert, "\"clean_text\":true", "\"clean_text\":1", "clean_text");
    check_refused(bert, "\"unk_token\":\"[UNK]\"", "\"unk_token\":\"?!\"", "?!");
    check_refused(bert, "{\"id\":1,", "{\"id\":7,", "id 7");
    check_refused(bert, "\"ids\":[2]", "\"ids\":[99999999]", "id of a template");
    check_refused(unigram, "\"byte_fallback\":false", "\"byte_fallback\":true", "byte_fallback");
    check_refused(unigram, "\"unk_id\":3", "\"unk_id\":null", "unk_id");
    check_refused(unigram, "{\"Regex\":\" {2,}\"}", "{\"String\":\"a\"}", "Replace");
    check_refused(unigram, "\"precompiled_charsmap\":\"", "\"precompiled_charsmap\":\"AA", "base64");
    check_refused(unigram, "\"split\":true", "\"split\":false", "split");
    tok_model m;
    CHECK_EQ(m.read(std::string(DATA) + "bert-uncased", 100), SQ_E_FORMAT); // more tokens than rows
    CHECK_EQ(m.read(std::string(DATA) + "absent"), SQ_E_FORMAT);
    scratch broken;
    broken.put("tokenizer.json", "{");
    CHECK_EQ(m.read(broken.path), SQ_E_FORMAT);
    scratch model;
    model.put("sentencepiece.bpe.model", std::string("\x0A\xFF\xFF\xFF\xFF\x0F", 6));
    CHECK_EQ(m.read(model.path), SQ_E_FORMAT);
    scratch txt;
    txt.put("vocab.txt", "[UNK]\n[CLS]\n[SEP]\n\xFF\n");
    CHECK_EQ(m.read(txt.path), SQ_E_FORMAT);
}

// An empty charsmap is the identity (tokenizers #1307).
static void test_empty_charsmap() {
    std::string json = read_file(std::string(DATA) + "unigram/tokenizer.json");
    const std::string key = "\"precompiled_charsmap\":\"";
    const size_t first = json.find(key) + key.size();
    json.erase(first, json.find('"', first) - first);
    scratch folder;
    folder.put("tokenizer.json", json);
    tok_model m;
    if (!CHECK_EQ(m.read(folder.path), SQ_OK)) return;
    const encoding e = encode(m, "hello \xEF\xBC\xA1");
    CHECK_EQ(e.ids.size(), size_t(5)); // with a bar of its own and an unknown: nothing made an A of U+FF21
    CHECK_EQ(e.ids[3], 3);
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
    test_characters();
    test_shared();
    test_field_cases();
    tok_model m;
    if (CHECK_EQ(m.read(std::string(DATA) + "bert-uncased"), SQ_OK)) test_limits(m);
    test_ill_formed();
    test_linear();
    test_damaged();
    test_refused();
    test_empty_charsmap();
    return check_summary("test-tok");
}
