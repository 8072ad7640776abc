// fuzz-tok.cpp - any bytes as texts for the small tokenizers of tests/data/tok: tokens must lie in the text and in the vocabulary, and cutting must only cut.
//
// First byte: which tokenizer, whether special tokens are text, whether there is a second text (what follows the first 0xFF), the limit. It runs in the
// repository's top folder.
#include <stdlib.h>

#include <string>

#include "../tok.h"

namespace {

void require(bool condition) {
    if (!condition) abort();
}

void check(const sq::encoding &e, size_t n_a, size_t n_b) {
    require(e.types.size() == e.ids.size() && e.sources.size() == e.ids.size() && e.spans.size() == 2 * e.ids.size());
    for (size_t i = 0; i < e.ids.size(); i++) {
        const uint32_t first = e.spans[2 * i], past = e.spans[2 * i + 1];
        require(e.ids[i] >= 0 && e.sources[i] >= -1 && e.sources[i] <= 1);
        require(first <= past && past <= (e.sources[i] == 0 ? n_a : e.sources[i] == 1 ? n_b : 0));
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const char *const NAMES[] = {"bert-uncased", "bert-cased", "bert-odd", "bert-unclean", "unigram", "unigram-words", "unigram-first", "unigram-never"};
    static tok_model *const models = [] {
        tok_model *m = new tok_model[8];
        for (size_t i = 0; i < 8; i++) require(m[i].read(std::string("tests/data/tok/") + NAMES[i]) == SQ_OK);
        return m;
    }();
    if (n_bytes == 0) return 0;
    const unsigned choice = data[0];
    std::string a(data + 1, data + n_bytes), b;
    const size_t cut = choice & 16 ? a.find('\xFF') : std::string::npos;
    if (cut != std::string::npos) {
        b = a.substr(cut + 1);
        a.resize(cut);
    }
    sq::encode_options options;
    options.specials_as_text = choice & 8;
    sq::encoding whole, part;
    const tok_model &m = models[choice & 7];
    const std::string *second = cut != std::string::npos ? &b : nullptr;
    require(m.encode(a, second, options, &whole) == SQ_OK);
    check(whole, a.size(), b.size());
    require(whole.full_len == whole.ids.size());
    options.max_len = 4 + (choice >> 5);
    options.truncate = true;
    require(m.encode(a, second, options, &part) == SQ_OK);
    check(part, a.size(), b.size());
    require(part.full_len == whole.full_len && part.ids.size() == std::min(whole.ids.size(), options.max_len));
    return 0;
}
