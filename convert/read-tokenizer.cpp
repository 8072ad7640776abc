// convert/read-tokenizer.cpp - reads each kind of tokenizer file into one description and writes that. See read-tokenizer.h.
//
// What the files mean follows HF tokenizers 0.23 (the from-JSON code of each component) and, where there is no tokenizer.json, what transformers makes of the
// older files (convert_slow_tokenizer.py: BertConverter, XLMRobertaConverter).
#include "read-tokenizer.h"

#include <math.h>
#include <string.h>

#include <charconv>
#include <unordered_map>

#include "../sq-tok-file.h"
#include "../sq-tok-text.h"
#include "build-trie.h"
#include "json.h"
#include "source-file.h"

namespace sq {

namespace {

constexpr size_t MAX_JSON_BYTES = size_t(256) << 20; // XLM-R's tokenizer.json has 17 MB
constexpr const char *BAR = "\xE2\x96\x81";          // U+2581, SentencePiece's visible space
constexpr uint32_t KIND_A = 0, KIND_B = 1, KIND_SPECIAL = 2;

struct added {
    std::string content;
    uint32_t id, flags;
};

struct template_piece {
    uint32_t kind, id, type;
};

struct description {
    bool is_unigram = false;
    std::vector<std::string> entries; // by id; "" where there is none
    std::vector<bool> in_model;       // by id: an entry that the model itself may find in a text
    std::vector<double> scores;       // by id, Unigram
    uint32_t unknown = 0;
    std::string prefix = "##";
    uint32_t max_word_chars = 100;
    std::vector<normalizer> steps;
    splitter how = splitter::none;
    std::string charsmap;             // precompiled_charsmap; "": none
    std::vector<added> added_tokens;
    std::vector<template_piece> single, pair;
};

using table = std::unordered_map<std::string, uint32_t>;

// Collects a description; the first failure wins and turns what follows into no-ops.
class reader {
  public:
    reader(const std::string &folder, uint32_t vocab, message *why) : folder_(folder), vocab_(vocab), why_(why) {}
    int read(description *out);

  private:
    bool ok() const { return status_ == SQ_OK; }
    void refuse(const std::string &sentence) {
        if (ok()) status_ = fail(why_, SQ_E_FORMAT, "%s: %s", file_.c_str(), sentence.c_str());
    }
    void refuse_step(const char *part, const json::value &v) { refuse(std::string(part) + " " + printable(type_of(v)) + " is not supported"); }

    static std::string type_of(const json::value &v) {
        const json::value *t = v.find("type");
        return t && t->is_string() ? t->text : "without a type";
    }
    bool flag(const json::value &v, const char *key, bool fallback);
    std::string string(const json::value &v, const char *key, const char *fallback);
    uint32_t number(const json::value *v, uint32_t hi, const char *what);
    uint32_t id_of(const std::string &token, const char *what);
    bool add_entry(std::string bytes, uint64_t id, bool in_model);
    void add_step(normalizer step) { d_->steps.push_back(step); }
    void add_charsmap(std::string map);
    void add_token(const std::string &content, uint32_t flags);
    void bert_steps(bool clean, bool han, bool strip, bool lower);
    void bert_template(uint32_t cls, uint32_t sep);
    void roberta_template(uint32_t cls, uint32_t sep);

    void tokenizer_json();
    void json_model(const json::value &v);
    void json_wordpiece(const json::value &v);
    void json_unigram(const json::value &v);
    void json_normalizer(const json::value &v);
    void json_splitter(const json::value &v);
    void json_metaspace(const json::value &v, bool by_words);
    void json_template(const json::value &v);
    void json_pieces(const json::value &v, const char *key, std::vector<template_piece> *out);
    void json_added(const json::value &v);
    uint32_t json_flags(const json::value &v, bool special);

    void vocab_txt();
    void vocab_lines();
    void named_specials(const json::value &config, const json::value &map);
    void sentencepiece_model();
    void sentencepiece_pieces(const uint8_t *p, const uint8_t *end);
    void read_config(const char *name, json::value *out);

    std::string folder_, file_;
    uint32_t vocab_;
    message *why_;
    int status_ = SQ_OK;
    description *d_ = nullptr;
    table ids_; // of the entries that the model has
};

// ---- small parts ----

bool reader::flag(const json::value &v, const char *key, bool fallback) {
    const json::value *f = v.find(key);
    if (!f || f->is_null()) return fallback;
    if (!f->is_bool()) refuse(std::string("'") + key + "' is neither true nor false");
    return f->boolean;
}

std::string reader::string(const json::value &v, const char *key, const char *fallback) {
    const json::value *s = v.find(key);
    if (!s && fallback) return fallback;
    if (!s || !s->is_string()) {
        refuse(std::string("'") + key + "' is missing or no string");
        return "";
    }
    return s->text;
}

uint32_t reader::number(const json::value *v, uint32_t hi, const char *what) {
    if (v && v->is_integer && v->integer >= 0 && v->integer <= int64_t(hi)) return uint32_t(v->integer);
    refuse(std::string(what) + " is missing or out of range");
    return 0;
}

uint32_t reader::id_of(const std::string &token, const char *what) {
    const auto at = ids_.find(token);
    if (at != ids_.end()) return at->second;
    refuse(std::string(what) + " '" + printable(token) + "' is not in the vocabulary");
    return 0;
}

bool reader::add_entry(std::string bytes, uint64_t id, bool in_model) {
    if (id >= vocab_) refuse("token '" + printable(bytes) + "' has an id beyond the embedding table of " + std::to_string(vocab_) + " rows");
    else if (bytes.find('\0') != std::string::npos) refuse("token " + std::to_string(id) + " contains a NUL character");
    if (!ok()) return false;
    if (id >= d_->entries.size()) {
        d_->entries.resize(id + 1);
        d_->in_model.resize(id + 1);
    }
    if (in_model) ids_[bytes] = uint32_t(id);
    d_->in_model[id] = in_model;
    d_->entries[id] = std::move(bytes);
    return true;
}

// As HF's AddedVocabulary::add_tokens: a token that the model has keeps its id, another one gets the next free id.
void reader::add_token(const std::string &content, uint32_t flags) {
    if (content.empty()) return;
    if (content.size() > ADDED_MAX_BYTES) return refuse("the added token '" + printable(content) + "' is longer than " + std::to_string(ADDED_MAX_BYTES) + " bytes");
    for (added &a : d_->added_tokens)
        if (a.content == content) {
            a.flags = flags;
            return;
        }
    const auto at = ids_.find(content);
    const uint32_t id = at != ids_.end() ? at->second : uint32_t(d_->entries.size());
    if (at == ids_.end() && !add_entry(content, id, false)) return;
    d_->added_tokens.push_back({content, id, flags});
}

void reader::add_charsmap(std::string map) {
    if (map.empty()) return; // as sentencepiece writes for the identity
    uint32_t n_trie = 0;
    if (map.size() >= 4) memcpy(&n_trie, map.data(), 4);
    if (map.size() < 8 || n_trie % 4 != 0 || n_trie == 0 || n_trie > map.size() - 4) return refuse("the precompiled_charsmap is damaged");
    if (!d_->charsmap.empty()) return refuse("two precompiled_charsmaps are not supported");
    d_->charsmap = std::move(map);
    add_step(normalizer::charsmap);
}

void reader::bert_steps(bool clean, bool han, bool strip, bool lower) {
    if (clean) add_step(normalizer::clean);
    if (han) add_step(normalizer::han);
    if (strip) add_step(normalizer::nfd);
    if (strip) add_step(normalizer::strip_mn);
    if (lower) add_step(normalizer::lower);
}

void reader::bert_template(uint32_t cls, uint32_t sep) {
    d_->single = {{KIND_SPECIAL, cls, 0}, {KIND_A, 0, 0}, {KIND_SPECIAL, sep, 0}};
    d_->pair = {{KIND_SPECIAL, cls, 0}, {KIND_A, 0, 0}, {KIND_SPECIAL, sep, 0}, {KIND_B, 0, 1}, {KIND_SPECIAL, sep, 1}};
}

void reader::roberta_template(uint32_t cls, uint32_t sep) {
    d_->single = {{KIND_SPECIAL, cls, 0}, {KIND_A, 0, 0}, {KIND_SPECIAL, sep, 0}};
    d_->pair = {{KIND_SPECIAL, cls, 0}, {KIND_A, 0, 0}, {KIND_SPECIAL, sep, 0}, {KIND_SPECIAL, sep, 0}, {KIND_B, 0, 0}, {KIND_SPECIAL, sep, 0}};
}

// ---- tokenizer.json ----

void reader::tokenizer_json() {
    json::value root;
    status_ = read_json(folder_, file_, MAX_JSON_BYTES, &root, why_);
    if (!ok()) return;
    static const json::value NOTHING;
    const auto part = [&](const char *key) -> const json::value & {
        const json::value *v = root.find(key);
        return v ? *v : NOTHING;
    };
    json_model(part("model"));
    if (!part("normalizer").is_null()) json_normalizer(part("normalizer"));
    json_splitter(part("pre_tokenizer"));
    json_template(part("post_processor"));
    json_added(part("added_tokens"));
}

void reader::json_model(const json::value &v) {
    std::string type = string(v, "type", "");
    const json::value *entries = v.find("vocab");
    if (type.empty() && entries) type = entries->is_array() ? "Unigram" : v.find("continuing_subword_prefix") ? "WordPiece" : "without a type"; // early files
    if (type == "WordPiece") json_wordpiece(v);
    else if (type == "Unigram") json_unigram(v);
    else refuse("the model " + printable(type) + " is not supported");
}

void reader::json_wordpiece(const json::value &v) {
    const json::value *entries = v.find("vocab");
    if (!entries || !entries->is_object() || entries->members.empty()) return refuse("the vocabulary is missing");
    std::vector<bool> taken(vocab_);
    for (const json::member &m : entries->members) {
        const uint32_t id = number(&m.item, UINT32_MAX, "an id of the vocabulary");
        if (!ok() || !add_entry(m.key, id, true)) return;
        if (taken[id]) return refuse("id " + std::to_string(id) + " stands for two tokens");
        taken[id] = true;
    }
    d_->prefix = string(v, "continuing_subword_prefix", "##");
    d_->unknown = id_of(string(v, "unk_token", "[UNK]"), "the unknown token");
    const json::value *most = v.find("max_input_chars_per_word");
    d_->max_word_chars = most ? number(most, UINT32_MAX, "'max_input_chars_per_word'") : 100;
}

// The double that serde_json (without its feature float_roundtrip, as in HF tokenizers) reads where the nearest one is v: digits as an integer, rounded, times
// or over a power of ten, rounded again. Writers print the shortest digits that mean v, so these are the file's.
double as_serde_reads(double v) {
    char text[40];
    const std::to_chars_result r = std::to_chars(text, text + sizeof text, fabs(v), std::chars_format::scientific);
    uint64_t digits = 0;
    int exponent = 0;
    const char *p = text;
    for (bool fraction = false; p < r.ptr && *p != 'e'; p++) {
        if (*p == '.') fraction = true;
        else digits = digits * 10 + uint64_t(*p - '0');
        if (fraction && *p != '.') exponent--;
    }
    int written = 0;
    if (p < r.ptr) std::from_chars(p[1] == '+' ? p + 2 : p + 1, r.ptr, written);
    exponent += written;
    if (exponent < -22 || exponent > 22) return v; // no score is that small or large, and 10^22 is the last power that a double holds exactly
    double power = 1;
    for (int i = 0; i < abs(exponent); i++) power *= 10;
    const double x = exponent < 0 ? double(digits) / power : double(digits) * power;
    return v < 0 ? -x : x;
}

void reader::json_unigram(const json::value &v) {
    const json::value *entries = v.find("vocab");
    if (!entries || !entries->is_array() || entries->items.empty()) return refuse("the vocabulary is missing");
    if (flag(v, "byte_fallback", false)) return refuse("a Unigram model with byte_fallback is not supported");
    d_->is_unigram = true;
    for (const json::value &entry : entries->items) {
        if (entry.items.size() != 2 || !entry.items[0].is_string() || !entry.items[1].is_number())
            return refuse("an entry of the vocabulary is no pair of text and score");
        if (!(fabs(entry.items[1].number) <= 1e30)) return refuse("a score is out of range");
        if (!add_entry(entry.items[0].text, d_->scores.size(), true)) return;
        d_->scores.push_back(as_serde_reads(entry.items[1].number));
    }
    d_->unknown = number(v.find("unk_id"), uint32_t(d_->scores.size()) - 1, "'unk_id'");
}

bool decode_base64(const std::string &text, std::string *out) {
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = text.size();
    if (n % 4 != 0) return false;
    while (n > 0 && text.size() - n < 2 && text[n - 1] == '=') n--;
    uint32_t bits = 0;
    int n_bits = 0;
    for (size_t i = 0; i < n; i++) {
        const char *at = text[i] ? strchr(DIGITS, text[i]) : nullptr;
        if (!at) return false;
        bits = bits << 6 | uint32_t(at - DIGITS);
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        out->push_back(char(bits >> n_bits & 0xFF));
    }
    return true;
}

void reader::json_normalizer(const json::value &v) {
    const std::string type = type_of(v);
    if (type == "Sequence") {
        const json::value *list = v.find("normalizers");
        if (!list || !list->is_array()) return refuse("a normalizer Sequence has no list");
        for (const json::value &one : list->items) json_normalizer(one);
    } else if (type == "BertNormalizer") {
        const bool lower = flag(v, "lowercase", true);
        bert_steps(flag(v, "clean_text", true), flag(v, "handle_chinese_chars", true), flag(v, "strip_accents", lower), lower);
    } else if (type == "Lowercase") {
        add_step(normalizer::lower);
    } else if (type == "NFD") {
        add_step(normalizer::nfd);
    } else if (type == "StripAccents") {
        add_step(normalizer::strip_marks);
    } else if (type == "Strip") {
        if (flag(v, "strip_left", false)) add_step(normalizer::strip_left);
        if (flag(v, "strip_right", false)) add_step(normalizer::strip_right);
    } else if (type == "Precompiled") {
        std::string map;
        const json::value *text = v.find("precompiled_charsmap"); // null: empty
        if (text && !text->is_null() && (!text->is_string() || !decode_base64(text->text, &map))) return refuse("the precompiled_charsmap is no base64 text");
        add_charsmap(std::move(map));
    } else if (type == "Replace") {
        const json::value *pattern = v.find("pattern"), *regex = pattern ? pattern->find("Regex") : nullptr;
        const std::string content = string(v, "content", nullptr);
        if (!regex || regex->text != " {2,}" || (content != " " && content != BAR))
            return refuse("a normalizer Replace other than of ' {2,}' by a space or U+2581 is not supported");
        add_step(content == " " ? normalizer::squeeze : normalizer::squeeze_to_bar);
    } else {
        refuse_step("the normalizer", v);
    }
}

void reader::json_splitter(const json::value &v) {
    if (v.is_null()) return;
    const std::string type = type_of(v);
    if (type == "BertPreTokenizer") {
        d_->how = splitter::bert;
    } else if (type == "WhitespaceSplit") {
        d_->how = splitter::white_space;
    } else if (type == "Metaspace") {
        json_metaspace(v, false);
    } else if (type == "Sequence") {
        const json::value *list = v.find("pretokenizers");
        const size_t n = list && list->is_array() ? list->items.size() : 0;
        if (n == 1) json_splitter(list->items[0]);
        else if (n == 2 && type_of(list->items[0]) == "WhitespaceSplit" && type_of(list->items[1]) == "Metaspace") json_metaspace(list->items[1], true);
        else refuse("a pre_tokenizer Sequence other than WhitespaceSplit, Metaspace is not supported");
    } else {
        refuse_step("the pre_tokenizer", v);
    }
}

void reader::json_metaspace(const json::value &v, bool by_words) {
    if (string(v, "replacement", nullptr) != BAR) return refuse("a Metaspace with a replacement other than U+2581 is not supported");
    if (!flag(v, "split", true)) return refuse("a Metaspace with split = false is not supported");
    const std::string scheme = string(v, "prepend_scheme", "always");
    const bool never = !flag(v, "add_prefix_space", true);
    if (scheme == "never" || (never && !v.find("prepend_scheme"))) d_->how = by_words ? splitter::words_bar_never : splitter::bar_never;
    else if (never) refuse("add_prefix_space does not match prepend_scheme");
    else if (scheme == "always") d_->how = by_words ? splitter::words_bar_always : splitter::bar_always;
    else if (scheme == "first") d_->how = by_words ? splitter::words_bar_first : splitter::bar_first;
    else refuse("the prepend_scheme '" + printable(scheme) + "' is unknown");
}

void reader::json_template(const json::value &v) {
    const std::string type = v.is_null() ? "" : type_of(v);
    if (type.empty()) {
        d_->single = {{KIND_A, 0, 0}};
        d_->pair = {{KIND_A, 0, 0}, {KIND_B, 0, 1}};
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        const auto special = [&](const char *key) {
            const json::value *p = v.find(key);
            return number(p && p->items.size() == 2 ? &p->items[1] : nullptr, vocab_ - 1, key);
        };
        if (type == "BertProcessing") return bert_template(special("cls"), special("sep"));
        if (flag(v, "trim_offsets", true)) return refuse("a RobertaProcessing with trim_offsets is not supported");
        roberta_template(special("cls"), special("sep"));
    } else if (type == "TemplateProcessing") {
        json_pieces(v, "single", &d_->single);
        json_pieces(v, "pair", &d_->pair);
    } else {
        refuse_step("the post_processor", v);
    }
}

void reader::json_pieces(const json::value &v, const char *key, std::vector<template_piece> *out) {
    const json::value *list = v.find(key), *specials = v.find("special_tokens");
    if (!list || !list->is_array()) return refuse(std::string("the template '") + key + "' is missing");
    size_t n_texts[2] = {0, 0};
    for (const json::value &item : list->items) {
        const json::value *text = item.find("Sequence"), *special = item.find("SpecialToken"), *piece = text ? text : special;
        if (!piece) return refuse(std::string("the template '") + key + "' has a piece of unknown kind");
        const uint32_t type = number(piece->find("type_id"), INT32_MAX, "a template's type_id");
        const std::string id = string(*piece, "id", nullptr);
        if (text) {
            const uint32_t kind = id == "A" ? KIND_A : KIND_B;
            n_texts[kind]++;
            out->push_back({kind, 0, type});
            continue;
        }
        const json::value *token = specials ? specials->find(id) : nullptr, *ids = token ? token->find("ids") : nullptr;
        if (!ids || !ids->is_array()) return refuse("the template's special token '" + printable(id) + "' has no ids");
        for (const json::value &one : ids->items) out->push_back({KIND_SPECIAL, number(&one, vocab_ - 1, "an id of a template"), type});
    }
    if (n_texts[0] != 1 || n_texts[1] != (key[0] == 'p')) refuse(std::string("the template '") + key + "' does not use each text once");
}

uint32_t reader::json_flags(const json::value &v, bool special) {
    uint32_t flags = flag(v, "special", special) ? ADDED_SPECIAL : 0;
    if (flag(v, "normalized", !flags)) flags |= ADDED_NORMALIZED;
    if (flag(v, "single_word", false)) flags |= ADDED_SINGLE_WORD;
    if (flag(v, "lstrip", false)) flags |= ADDED_LSTRIP;
    if (flag(v, "rstrip", false)) flags |= ADDED_RSTRIP;
    return flags;
}

void reader::json_added(const json::value &v) {
    for (const json::value &item : v.items) {
        const std::string content = string(item, "content", nullptr);
        const uint32_t id = number(item.find("id"), UINT32_MAX, "an added token's id");
        add_token(content, json_flags(item, false));
        if (!ok()) return;
        if (!d_->added_tokens.empty() && d_->added_tokens.back().content == content && d_->added_tokens.back().id != id)
            return refuse("the added token '" + printable(content) + "' has id " + std::to_string(id) + ", but HF tokenizers would give it " +
                          std::to_string(d_->added_tokens.back().id));
    }
}

// ---- vocab.txt ----

void reader::read_config(const char *name, json::value *out) {
    if (!ok() || !has_file(folder_, name)) return;
    status_ = read_json(folder_, name, MAX_JSON_BYTES, out, why_);
    if (ok() && !out->is_object()) status_ = fail(why_, SQ_E_FORMAT, "%s is no JSON object", name);
}

void reader::vocab_lines() {
    source_file source;
    status_ = source.open(folder_, file_, why_);
    const uint8_t *p = source.data(), *const end = p + source.size();
    for (uint32_t id = 0; ok() && p < end; id++) {
        const uint8_t *line_end = p;
        while (line_end < end && *line_end != '\n') {
            uint32_t c;
            const size_t n = utf8_decode(line_end, end, &c);
            const bool is_written = n == 3 && memcmp(line_end, "\xEF\xBF\xBD", 3) == 0;
            if (c == 0xFFFD && !is_written) return refuse("line " + std::to_string(id + 1) + " is not UTF-8");
            line_end += n;
        }
        const uint8_t *past = line_end;
        if (past > p && past[-1] == '\r') past--;
        add_entry(std::string(p, past), id, true);
        p = line_end + 1;
    }
}

// The five named tokens and what else the settings list, each as text or as an AddedToken object.
void reader::named_specials(const json::value &config, const json::value &map) {
    const char *const names[][2] = {{"unk_token", "[UNK]"}, {"sep_token", "[SEP]"}, {"pad_token", "[PAD]"}, {"cls_token", "[CLS]"}, {"mask_token", "[MASK]"}};
    uint32_t cls = 0, sep = 0;
    for (const auto &name : names) {
        const json::value *v = map.find(name[0]) ? map.find(name[0]) : config.find(name[0]);
        const std::string content = !v || v->is_null() ? name[1] : v->is_string() ? v->text : string(*v, "content", nullptr);
        const bool optional = name[0][0] == 'p' || name[0][0] == 'm';
        if (!ok() || (optional && ids_.find(content) == ids_.end())) continue;
        const uint32_t id = id_of(content, name[0]);
        if (name[0][0] == 'u') d_->unknown = id;
        if (name[0][0] == 's') sep = id;
        if (name[0][0] == 'c') cls = id;
        add_token(content, v && v->is_object() ? json_flags(*v, true) | ADDED_SPECIAL : ADDED_SPECIAL);
    }
    bert_template(cls, sep);
    if (const json::value *more = config.find("added_tokens_decoder"))
        for (const json::member &m : more->members)
            if (ok()) add_token(string(m.item, "content", nullptr), json_flags(m.item, false));
}

void reader::vocab_txt() {
    json::value config, map;
    read_config("tokenizer_config.json", &config);
    read_config("special_tokens_map.json", &map);
    if (ok()) vocab_lines();
    if (!ok()) return;
    if (d_->entries.empty()) return refuse("the vocabulary is empty");
    const json::value *never = config.find("never_split"), *more = config.find("additional_special_tokens");
    if (!flag(config, "do_basic_tokenize", true) || (never && !never->items.empty()) || (more && !more->items.empty()) || has_file(folder_, "added_tokens.json"))
        return refuse("do_basic_tokenize, never_split, additional_special_tokens and added_tokens.json need a tokenizer.json, which transformers' save_pretrained writes");
    const bool lower = flag(config, "do_lower_case", true);
    bert_steps(true, flag(config, "tokenize_chinese_chars", true), flag(config, "strip_accents", lower), lower);
    d_->how = splitter::bert;
    named_specials(config, map);
}

// ---- sentencepiece.bpe.model ----

// A protocol buffer's fields, one after the other.
struct fields {
    const uint8_t *p, *end;
    uint32_t number = 0;
    uint64_t value = 0;                          // of a varint or of a fixed-width field
    const uint8_t *bytes = nullptr;              // of a length-delimited field
    size_t n_bytes = 0;
    bool damaged = false;

    bool varint(uint64_t *out) {
        *out = 0;
        for (unsigned shift = 0; p < end && shift < 64; shift += 7) {
            *out |= uint64_t(*p & 0x7F) << shift;
            if (!(*p++ & 0x80)) return true;
        }
        return false;
    }
    bool next() {
        uint64_t tag = 0, n = 0;
        if (p >= end) return false;
        damaged = !varint(&tag);
        const unsigned wire = tag & 7;
        number = uint32_t(tag >> 3);
        if (wire == 0) damaged |= !varint(&value);
        else if (wire == 2) damaged |= !varint(&n);
        else if (wire == 1 || wire == 5) n = wire == 1 ? 8 : 4;
        else damaged = true;
        damaged |= n > size_t(end - p);
        if (damaged) return false;
        bytes = p;
        n_bytes = size_t(n);
        if (wire != 0) value = 0;
        if (wire == 1 || wire == 5) memcpy(&value, p, n_bytes);
        p += n;
        return true;
    }
};

// sentencepiece_model.proto: ModelProto.pieces = 1 {piece = 1, score = 2, type = 3}, trainer_spec = 2 {model_type = 3}, normalizer_spec = 3 {precompiled_charsmap = 2}.
void reader::sentencepiece_pieces(const uint8_t *p, const uint8_t *end) {
    const char *const CONTROL[] = {"<unk>", "<s>", "</s>"};
    size_t n = 0;
    fields f{p, end};
    while (ok() && f.next()) {
        if (f.number != 1) continue;
        std::string piece;
        float score = 0;
        uint64_t type = 1; // NORMAL
        fields g{f.bytes, f.bytes + f.n_bytes};
        while (g.next()) {
            const uint32_t low = uint32_t(g.value);
            if (g.number == 1) piece.assign(g.bytes, g.bytes + g.n_bytes);
            if (g.number == 2) memcpy(&score, &low, 4);
            if (g.number == 3) type = g.value;
        }
        if (g.damaged || !(fabsf(score) <= 1e30f)) return refuse("piece " + std::to_string(n) + " is damaged");
        if (n < 3 && piece != CONTROL[n]) return refuse("the first pieces are not <unk>, <s>, </s>, as in XLM-RoBERTa");
        if (n >= 3 && type != 1) return refuse("piece '" + printable(piece) + "' is of a type that XLM-RoBERTa does not have");
        if (n >= 3) {
            if (!add_entry(piece, n + 1, true)) return;
            d_->scores.push_back(score);
        }
        n++;
    }
    if (f.damaged || n < 4) refuse("this is no sentencepiece model");
}

void reader::sentencepiece_model() {
    json::value config;
    read_config("tokenizer_config.json", &config);
    source_file source;
    if (ok()) status_ = source.open(folder_, file_, why_);
    if (!ok()) return;
    const std::string kind = string(config, "tokenizer_class", "XLMRobertaTokenizer");
    if (kind != "XLMRobertaTokenizer" && kind != "XLMRobertaTokenizerFast")
        return refuse("without tokenizer.json only XLMRobertaTokenizer is supported, not " + printable(kind));
    d_->is_unigram = true;
    const char *const FIRST[] = {"<s>", "<pad>", "</s>", "<unk>"}; // fairseq's order: pieces follow one place later than in the file
    for (uint32_t id = 0; id < 4; id++) {
        add_entry(FIRST[id], id, true);
        d_->scores.push_back(0);
    }
    sentencepiece_pieces(source.data(), source.data() + source.size());
    fields f{source.data(), source.data() + source.size()};
    while (ok() && f.next()) {
        fields g{f.bytes, f.bytes + f.n_bytes};
        while ((f.number == 2 || f.number == 3) && g.next()) {
            if (f.number == 2 && g.number == 3 && g.value != 1) refuse("the sentencepiece model is not of type UNIGRAM");
            if (f.number == 3 && g.number == 2) add_charsmap(std::string(g.bytes, g.bytes + g.n_bytes));
        }
        if (g.damaged) refuse("the sentencepiece model is damaged");
    }
    if (ok()) add_entry("<mask>", d_->scores.size(), true);
    d_->scores.push_back(0);
    d_->unknown = 3;
    add_step(normalizer::strip_right);
    add_step(normalizer::squeeze_to_bar);
    d_->how = splitter::bar_always;
    for (const char *token : FIRST) add_token(token, ADDED_SPECIAL);
    add_token("<mask>", ADDED_SPECIAL | ADDED_LSTRIP);
    roberta_template(0, 2);
}

int reader::read(description *out) {
    d_ = out;
    if (has_file(folder_, file_ = "tokenizer.json")) tokenizer_json();
    else if (has_file(folder_, file_ = "sentencepiece.bpe.model")) sentencepiece_model();
    else if (has_file(folder_, file_ = "vocab.txt")) vocab_txt();
    else status_ = fail(why_, SQ_E_FORMAT, "the folder has none of tokenizer.json, sentencepiece.bpe.model and vocab.txt");
    return status_;
}

// ---- writing ----

void write_vocabulary(const description &d, writer *out) {
    std::string text;
    std::vector<uint32_t> starts{0};
    for (const std::string &entry : d.entries) {
        text += entry;
        starts.push_back(uint32_t(text.size()));
    }
    out->rows("tok.vocab.text", DT_U8, text.data(), 1, uint32_t(text.size()));
    out->rows("tok.vocab.starts", DT_U32, starts.data(), 1, uint32_t(starts.size()));
}

int write_trie(const description &d, writer *out, message *why) {
    std::vector<trie_key> whole, continuing;
    for (uint32_t id = 0; id < d.entries.size(); id++) {
        const std::string_view bytes = d.entries[id];
        if (!d.in_model[id] || bytes.empty()) continue;
        whole.push_back({bytes, id});
        if (!d.is_unigram && bytes.size() > d.prefix.size() && bytes.substr(0, d.prefix.size()) == d.prefix) continuing.push_back({bytes.substr(d.prefix.size()), id});
    }
    const std::vector<uint32_t> trie = build_trie(whole, continuing);
    if (trie.empty() || d.entries.size() > TRIE_MAX_VALUE) return fail(why, SQ_E_FORMAT, "the vocabulary is too large");
    out->rows("tok.trie", DT_U32, trie.data(), 1, uint32_t(trie.size()));
    return SQ_OK;
}

// As floats where that loses nothing.
void write_scores(const std::vector<double> &scores, writer *out) {
    std::vector<float> narrow;
    std::vector<uint32_t> wide;
    bool exact = true;
    for (const double score : scores) {
        uint64_t bits;
        memcpy(&bits, &score, sizeof bits);
        wide.push_back(uint32_t(bits));
        wide.push_back(uint32_t(bits >> 32));
        narrow.push_back(float(score));
        exact &= double(narrow.back()) == score;
    }
    if (exact) out->rows("tok.scores", DT_F32, narrow.data(), 1, uint32_t(narrow.size()));
    else out->rows("tok.scores", DT_U32, wide.data(), 1, uint32_t(wide.size()));
}

// Which bytes stand side by side in the entries: the tokenizer cuts words where none do.
void write_pairs(const description &d, writer *out) {
    std::vector<uint8_t> bits(256 * 256 / 8);
    for (size_t id = 0; id < d.entries.size(); id++)
        for (size_t i = 1; d.in_model[id] && i < d.entries[id].size(); i++) {
            const uint8_t a = uint8_t(d.entries[id][i - 1]), b = uint8_t(d.entries[id][i]);
            bits[a * 32u + b / 8u] |= uint8_t(1u << b % 8);
        }
    out->rows("tok.pairs", DT_U8, bits.data(), 1, uint32_t(bits.size()));
}

void write_words(const char *name, const std::vector<uint32_t> &words, writer *out) {
    if (!words.empty()) out->rows(name, DT_U32, words.data(), 1, uint32_t(words.size()));
}

int write(description *d, const std::vector<uint8_t> &alone, writer *out, message *why) {
    size_t n_bytes = 0;
    for (const std::string &entry : d->entries) n_bytes += entry.size();
    if (n_bytes >= INT32_MAX) return fail(why, SQ_E_FORMAT, "the vocabulary is too large");
    if (d->is_unigram) d->scores.resize(d->entries.size(), d->scores[0]); // tokens added behind the model's: never found by it
    out->meta_string("tok.model", d->is_unigram ? "unigram" : "wordpiece");
    out->meta_u32("tok.unknown", d->unknown);
    if (!d->is_unigram) {
        out->meta_string("tok.prefix", d->prefix);
        out->meta_u32("tok.max-word-chars", d->max_word_chars);
    }
    std::vector<std::string> names;
    for (const normalizer step : d->steps) names.push_back(NORMALIZERS[static_cast<size_t>(step)]);
    out->meta_strings("tok.normalizer", names);
    out->meta_string("tok.splitter", SPLITTERS[static_cast<size_t>(d->how)]);
    write_vocabulary(*d, out);
    const int status = write_trie(*d, out, why);
    if (status != SQ_OK) return status;
    if (d->is_unigram) {
        write_scores(d->scores, out);
        write_pairs(*d, out);
    }
    if (!alone.empty()) out->rows("tok.alone", DT_U8, alone.data(), 1, uint32_t(alone.size()));
    std::vector<uint32_t> words;
    for (const added &a : d->added_tokens) words.insert(words.end(), {a.id, a.flags});
    write_words("tok.added", words, out);
    for (const auto &order : {std::make_pair("tok.single", &d->single), std::make_pair("tok.pair", &d->pair)}) {
        words.clear();
        for (const template_piece &p : *order.second) words.insert(words.end(), {p.kind, p.id, p.type});
        write_words(order.first, words, out);
    }
    if (!d->charsmap.empty()) {
        uint32_t n_trie;
        memcpy(&n_trie, d->charsmap.data(), 4);
        words.resize(n_trie / 4);
        memcpy(words.data(), d->charsmap.data() + 4, n_trie);
        write_words("tok.charsmap.trie", words, out);
        const std::string text = d->charsmap.substr(4 + n_trie);
        if (!text.empty()) out->rows("tok.charsmap.text", DT_U8, text.data(), 1, uint32_t(text.size()));
    }
    return SQ_OK;
}

} // namespace

int read_tokenizer(const std::string &folder, uint32_t vocab, uint32_t n_types, writer *out, message *why) {
    description d;
    std::vector<uint8_t> alone;
    int status = reader(folder, vocab, why).read(&d);
    for (std::vector<template_piece> *pieces : {&d.single, &d.pair})
        for (template_piece &p : *pieces) p.type = n_types == 1 ? 0 : p.type;
    if (status == SQ_OK && d.is_unigram) { // the finished model says which of its entries stay whole
        writer first;
        file_view file;
        tokenizer model;
        status = write(&d, {}, &first, why);
        const aligned_image image = first.take_image();
        if (status == SQ_OK) status = file.open(image.data(), image.size(), why);
        if (status == SQ_OK) status = model.open(file, vocab, 0, why);
        if (status == SQ_OK) alone = model.find_alone();
    }
    return status == SQ_OK ? write(&d, alone, out, why) : status;
}

} // namespace sq
