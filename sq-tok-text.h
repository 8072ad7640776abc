// sq-tok-text.h - a text on its way to tokens: its normalized bytes, the place in the original that each came from, and the steps that rewrite them.
//
// Internal to sq-tok*.cpp and the converter. The steps follow HF tokenizers 0.23 (normalizers/*.rs, pre_tokenizers/*.rs, tokenizer/normalizer.rs), spans
// included: there, every byte of a normalized text is aligned with exactly one character of the original, so its first byte is all we need to keep.
#ifndef SQ_TOK_TEXT_H
#define SQ_TOK_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

namespace sq {

// Length of the UTF-8 sequence at p (p < end), and its code point; an ill-formed one counts as U+FFFD with the length of its maximal subpart
// (Unicode 15, section 3.9, table 3-7).
size_t utf8_decode(const uint8_t *p, const uint8_t *end, uint32_t *c);

// The same where p holds well-formed text, as normalized texts are.
inline size_t utf8_length(uint8_t lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }
inline size_t utf8_decode_sound(const uint8_t *p, uint32_t *c) {
    if (p[0] < 0x80) return *c = p[0], 1;
    if (p[0] < 0xE0) return *c = (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2;
    if (p[0] < 0xF0) return *c = (p[0] & 0xFu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3;
    return *c = (p[0] & 7u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu), 4;
}

// Writes c (at most U+10FFFF) to p[0..3]; returns the length.
inline size_t utf8_encode(uint32_t c, uint8_t *p) {
    if (c < 0x80) return p[0] = uint8_t(c), 1;
    const auto tail = [c](unsigned shift) { return uint8_t(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x800) return p[0] = uint8_t(0xC0 | c >> 6), p[1] = tail(0), 2;
    if (c < 0x10000) return p[0] = uint8_t(0xE0 | c >> 12), p[1] = tail(6), p[2] = tail(0), 3;
    return p[0] = uint8_t(0xF0 | c >> 18), p[1] = tail(12), p[2] = tail(6), p[3] = tail(0), 4;
}

bool is_space(uint32_t c);     // white space of Rust's char
bool is_word_char(uint32_t c); // \w of Rust's regex
bool is_punctuation(uint32_t c);

// bytes[i] came from the original's character that begins at starts[i]. The vectors are kept larger than n, so that writing is a bounds check and a store.
struct text {
    std::vector<uint8_t> bytes;
    std::vector<uint32_t> starts;
    size_t n = 0;
    uint32_t traits = 0; // union of what its characters may have that steps look for, so that steps without work are left out

    void clear() {
        n = 0;
        traits = 0;
    }
    void make_room(size_t n_more) {
        if (bytes.size() - n >= n_more) return;
        const size_t size = (n + n_more) * 2 + 64;
        bytes.resize(size);
        starts.resize(size);
    }
    void put(uint32_t c, uint32_t start) {
        make_room(4);
        const size_t length = utf8_encode(c, &bytes[n]);
        for (size_t i = 0; i < length; i++) starts[n + i] = start;
        n += length;
    }
    void put_bytes(const uint8_t *p, size_t length, uint32_t start) {
        make_room(length);
        for (size_t i = 0; i < length; i++) {
            bytes[n + i] = p[i];
            starts[n + i] = start;
        }
        n += length;
    }
};

// One step of normalization. The names, as they stand in model files, are in NORMALIZERS below.
enum class normalizer : uint8_t {
    clean,          // BertNormalizer clean_text: NUL, U+FFFD and control characters vanish, white space becomes a space
    han,            // BertNormalizer handle_chinese_chars: spaces around ideographs
    nfd,            // canonical decomposition
    strip_mn,       // BertNormalizer strip_accents, after nfd: nonspacing marks vanish
    strip_marks,    // StripAccents: all marks vanish
    lower,          // Lowercase
    charsmap,       // Precompiled
    strip_left,     // Strip: white space at the beginning
    strip_right,    // Strip: white space at the end
    squeeze,        // Replace " {2,}" by " "
    squeeze_to_bar, // Replace " {2,}" by U+2581
};
constexpr const char *NORMALIZERS[] = {"clean",    "han",        "nfd",         "strip-mn", "strip-marks",   "lower",
                                       "charsmap", "strip-left", "strip-right", "squeeze",  "squeeze-to-bar"};

// SentencePiece's precompiled_charsmap: a double array (darts-clone units) over UTF-8, whose values are offsets of NUL-terminated replacements.
// Both parts may lie in a mapped file: every step is checked.
struct charsmap_view {
    const uint32_t *units = nullptr; // [n_units]
    size_t n_units = 0;
    const uint8_t *replacements = nullptr; // [n_bytes]
    size_t n_bytes = 0;

    static constexpr size_t MAX_REPLACEMENT = 1024; // bytes; a longer one is damage (the longest in nmt_nfkc_cf has 33)

    // The replacement for the shortest key that begins p[0..n): true and *to, *n_to. False: none. *damaged is set when the data makes no sense.
    bool find(const uint8_t *p, size_t n, const uint8_t **to, size_t *n_to, bool *damaged) const;
};

// Memory that steps reuse; one per call of encode.
struct normalize_scratch {
    struct mark {
        uint32_t c;
        uint8_t combining_class;
        bool added; // not the first of its decomposition
    };
    text other;
    std::vector<mark> run;
    std::vector<uint32_t> run_starts; // places of the characters that began the decompositions in run
    uint32_t place = 0;               // the last one handed out
    bool lost_beginning = false;      // set by the last charsmap step: it removed the text's first character, which HF forgets to count
};

// Appends p[begin, end) of an original text; ill-formed sequences become U+FFFD.
void append_original(const uint8_t *p, size_t begin, size_t end, text *t);

// Applies the steps to *t. False: the charsmap is damaged.
bool normalize(const std::vector<normalizer> &steps, const charsmap_view &map, text *t, normalize_scratch *scratch);

// How a normalized text falls into words.
enum class splitter : uint8_t {
    none,            // one word
    bert,            // BertPreTokenizer: at white space, and around each punctuation character
    white_space,     // WhitespaceSplit
    bar_always,      // Metaspace: U+2581 for each space, one more in front where there is none; each begins a word
    bar_first,       //   in front of what begins the original text only
    bar_never,       //   without one in front
    words_bar_always, // WhitespaceSplit, then Metaspace on each word
    words_bar_first,
    words_bar_never,
};
constexpr const char *SPLITTERS[] = {"none",        "bert",        "white-space",       "metaspace-always", "metaspace-first", "metaspace-never",
                                     "white-space metaspace-always", "white-space metaspace-first", "white-space metaspace-never"};

// Splits t[begin, end) into words. The words' bytes are *of, which is either &t or *own (when characters had to be inserted); ends holds begin and end of each word.
void split(splitter how, const text &t, size_t begin, size_t end, text *own, const text **of, std::vector<size_t> *ends);

} // namespace sq

#endif
