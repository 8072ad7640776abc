// tests/fuzz/tok-tables.h - for the fuzz targets of both tokenizers: any text through small good tokenizers, and through ones whose tables are damaged.
//
// Byte 0: bits 0-1 which tokenizer, bit 2 damage, bit 3 special tokens are text, bit 4 a second text (what follows the first 0xFF), bits 5-7 the limit.
// With damage, byte 1: bit 7 whether it comes after the tables were looked at, as a writer to a mapped file may do; bits 0-3 how many edits follow, each of a
// table, a 16-bit place (of 256 in all, taken evenly from the table's bytes, or one of its first) and a new byte. The rest is text.
#ifndef SQ_TESTS_FUZZ_TOK_TABLES_H
#define SQ_TESTS_FUZZ_TOK_TABLES_H

#include <string.h>

#include <algorithm>
#include <vector>

#include "../tok.h"
#include "require.h"

constexpr size_t N_TOKENIZERS = 4; // names of folders in tests/data/tok
constexpr uint32_t TOK_VOCAB = 1u << 20;

// A good tokenizer, and a copy to damage.
struct damaged_tokenizer {
    std::vector<uint8_t> good;
    sq::aligned_image image;

    void keep(const tok_model &m) {
        good.assign(m.image.data(), m.image.data() + m.image.size());
        image = sq::aligned_image(good.size());
    }

    // Applies the edits of the input to the tables of `file`, which lie in `image`.
    void edit(const sq::file_view &file, input_bytes *in, unsigned n_edits) {
        for (unsigned i = 0; i < n_edits; i++) {
            const sq::tensor_entry &t = file.tensors[in->byte() % file.tensors.size()];
            const size_t place = in->word(), at = place & 0x8000 ? (place & 0x7FFF) * t.n_bytes >> 15 : place;
            image.data()[t.offset + std::min<size_t>(at, t.n_bytes - 1)] = static_cast<uint8_t>(in->byte());
        }
    }
};

inline void require_tokens(const sq::encoding &e, size_t n_a, size_t n_b) {
    REQUIRE(e.types.size() == e.ids.size() && e.sources.size() == e.ids.size() && e.spans.size() == 2 * e.ids.size());
    for (size_t i = 0; i < e.ids.size(); i++) {
        const uint32_t first = e.spans[2 * i], past = e.spans[2 * i + 1];
        REQUIRE(e.ids[i] >= 0 && static_cast<uint32_t>(e.ids[i]) < TOK_VOCAB && e.sources[i] >= -1 && e.sources[i] <= 1);
        REQUIRE(first <= past && past <= (e.sources[i] == 0 ? n_a : e.sources[i] == 1 ? n_b : 0));
    }
}

// Whole and cut: cutting must only cut. A damaged tokenizer may refuse, and may do so of one and not of the other.
inline void encode_both_ways(const sq::tokenizer &tok, unsigned choice, std::string a, bool is_damaged) {
    const size_t cut = choice & 16 ? a.find('\xFF') : std::string::npos;
    std::string b;
    if (cut != std::string::npos) {
        b = a.substr(cut + 1);
        a.resize(cut);
    }
    const char *second = cut != std::string::npos ? b.data() : nullptr;
    sq::encode_options options;
    options.specials_as_text = choice & 8;
    sq::encoding whole, part;
    const auto encode = [&](sq::encoding *out) {
        const int status = tok.encode(a.data(), a.size(), second, b.size(), options, out, nullptr);
        REQUIRE(status == SQ_OK || (is_damaged && status == SQ_E_FORMAT));
        if (status == SQ_OK) require_tokens(*out, a.size(), b.size());
        return status == SQ_OK;
    };
    const bool has_whole = encode(&whole);
    if (has_whole) REQUIRE(whole.full_len == whole.ids.size());
    options.max_len = 4 + (choice >> 5);
    options.truncate = true;
    const bool has_part = encode(&part);
    if (has_whole && has_part) REQUIRE(part.full_len == whole.full_len && part.ids.size() == std::min(whole.ids.size(), options.max_len));
}

inline void fuzz_tokenizers(const char *const (&names)[N_TOKENIZERS], const uint8_t *data, size_t n_bytes) {
    static tok_model *const models = [&] {
        tok_model *m = new tok_model[N_TOKENIZERS];
        for (size_t i = 0; i < N_TOKENIZERS; i++) REQUIRE(m[i].read(std::string("tests/data/tok/") + names[i], TOK_VOCAB) == SQ_OK);
        return m;
    }();
    static damaged_tokenizer *const copies = [] {
        damaged_tokenizer *d = new damaged_tokenizer[N_TOKENIZERS];
        for (size_t i = 0; i < N_TOKENIZERS; i++) d[i].keep(models[i]);
        return d;
    }();
    input_bytes in(data, n_bytes);
    const unsigned choice = in.byte(), which = choice % N_TOKENIZERS;
    if (!(choice & 4)) return encode_both_ways(models[which].tok, choice, in.rest(), false);

    damaged_tokenizer &d = copies[which];
    const unsigned damage = in.byte();
    memcpy(d.image.data(), d.good.data(), d.good.size());
    sq::file_view file;
    sq::tokenizer tok;
    sq::message why{};
    REQUIRE(file.open(d.image.data(), d.image.size(), &why) == SQ_OK); // its checksum is not that of the tables' contents
    const bool is_late = damage & 0x80;
    if (!is_late) d.edit(file, &in, damage & 15);
    const int status = tok.open(file, TOK_VOCAB, 0, &why);
    require_reason(status, why);
    if (status != SQ_OK) return;
    if (is_late) d.edit(file, &in, damage & 15);
    encode_both_ways(tok, choice, in.rest(), true);
    size_t n = 0;
    for (int32_t id = -1; id < 1000; id++) tok.token_text(id, &n);
}

#endif
