// sq-tok.cpp - text to token ids. Read `tokenizer::encode` from the bottom up: special tokens are cut out of the text, the rest is normalized and split into
// words (sq-tok-text.cpp), WordPiece or Unigram turns words into ids, a template puts special tokens around them.
//
// Texts of ASCII words, the common case, go a shorter way through the same rules: encode_words for WordPiece, encode_bars for Unigram.
#include "sq-tok.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <memory>

#include "sq-model.h"
#include "sq-tok-text.h"
#include "sq-tok-file.h"

namespace sq {

namespace {

constexpr uint32_t NO_ID = UINT32_MAX;

// A special or other added token, matched in the text before (or, if normalized, after) normalization.
struct added_token {
    std::string bytes; // what is matched
    uint32_t id;
    uint32_t flags;    // ADDED_*
};

// Added tokens in the order of their bytes, so that those with a common beginning lie side by side.
struct added_set {
    std::vector<added_token> tokens;
    uint32_t first[257] = {}; // tokens[first[b], first[b + 1]) begin with byte b
    bool begins[256] = {};    // whether there is one

    void finish() {
        std::sort(tokens.begin(), tokens.end(), [](const added_token &a, const added_token &b) { return a.bytes < b.bytes; });
        for (const added_token &t : tokens) {
            first[uint8_t(t.bytes[0]) + 1]++;
            begins[uint8_t(t.bytes[0])] = true;
        }
        for (size_t b = 0; b < 256; b++) first[b + 1] += first[b];
    }

    // The longest token that begins p[at..n), or null.
    const added_token *longest(const uint8_t *p, size_t n, size_t at) const {
        const added_token *found = nullptr;
        size_t lo = first[p[at]], hi = first[p[at] + 1];
        for (size_t depth = 1; lo < hi; depth++) {
            if (tokens[lo].bytes.size() == depth) found = &tokens[lo++];
            if (at + depth >= n) break;
            const uint8_t next = p[at + depth];
            const auto below = [&](const added_token &t, unsigned b) { return uint8_t(t.bytes[depth]) < b; };
            const auto begin = tokens.begin();
            hi = size_t(std::lower_bound(begin + long(lo), begin + long(hi), next + 1u, below) - begin);
            lo = size_t(std::lower_bound(begin + long(lo), begin + long(hi), next, below) - begin);
        }
        return found;
    }
};

enum class ascii : uint8_t { slow, space, word, punctuation };

struct template_piece {
    uint32_t kind; // 0: the text a, 1: the text b, 2: the special token id
    uint32_t id, type;
};

struct span {
    uint32_t first, past;
};

// The tokens of one text.
struct token_list {
    std::vector<uint32_t> ids;
    std::vector<span> spans;

    void add(uint32_t id, size_t first, size_t past) {
        ids.push_back(id);
        spans.push_back({uint32_t(first), uint32_t(past)});
    }
};

// Units of sq-tok-file.h, which may lie in a mapped file.
struct trie_view {
    const uint32_t *units = nullptr; // [n]
    uint32_t n = 0;

    // The unit below `base` that is labelled with this byte; 0 if there is none.
    uint32_t child(uint32_t base, uint8_t label) const {
        const uint32_t at = base ^ label, unit = at < n ? units[at] : 0;
        return (unit & 0xFF) == label ? unit : 0; // an unused unit is 0
    }
};

// The best way to reach a byte of a word.
struct arrival {
    double score;
    uint32_t from; // NO_ID: not reached
    uint32_t id;
};

struct encode_scratch {
    text normal, own;
    normalize_scratch steps;
    std::vector<size_t> words;
    std::vector<uint8_t> folded;
    std::vector<arrival> arrivals;
    std::vector<arrival> path;
};

} // namespace

struct tokenizer::settings {
    bool is_unigram = false;
    uint32_t n_vocab = 0;
    const uint8_t *vocab_text = nullptr;     // [n_vocab_text] entries end to end
    uint32_t n_vocab_text = 0;
    const uint32_t *vocab_starts = nullptr;  // [n_vocab + 1]
    trie_view trie;
    uint32_t roots[3] = {};                  // units of the two sets, by set; 0: an empty set
    const uint8_t *alone = nullptr;          // [n_vocab] bits, Unigram: the model keeps this entry's text in one piece
    const uint8_t *pairs = nullptr;          // [256][256] bits, Unigram: some entry has these two bytes side by side
    const float *scores32 = nullptr;         // [n_vocab] Unigram: log probabilities, or
    const uint32_t *scores64 = nullptr;      // [n_vocab][2] low and high words of doubles
    double unknown_score = 0;
    uint32_t unknown = 0;
    size_t n_prefix = 0;                     // WordPiece: bytes of the prefix of continuing entries
    uint32_t max_word_chars = 0;
    std::vector<normalizer> steps;
    splitter how = splitter::none;
    charsmap_view charsmap;
    added_set raw, normalized;               // by when they are matched
    std::vector<uint8_t> is_special;         // [n_vocab] added tokens with ADDED_SPECIAL
    std::vector<template_piece> single, pair;

    bool is_fast = false;                    // ASCII words may go the short way
    ascii classes[256] = {};                 // slow for all bytes >= 0x80
    uint8_t fold[128] = {};                  // what an ASCII character is normalized to
    uint32_t punctuation_ids[128] = {};

    // ---- vocabulary ----

    // An entry's bytes; false if the mapped offsets are damaged.
    bool entry(uint32_t id, const uint8_t **p, size_t *n) const {
        if (id >= n_vocab) return false;
        const uint32_t first = vocab_starts[id], past = vocab_starts[id + 1];
        if (first > past || past > n_vocab_text) return false;
        *p = vocab_text + first;
        *n = past - first;
        return true;
    }

    double score_of(uint32_t id) const {
        if (scores32) return scores32[id];
        double value;
        memcpy(&value, scores64 + 2 * size_t(id), sizeof value); // files and machine are little-endian
        return value;
    }

    // Whether w[0..n) begins with the leaf's entry less its first `skip` bytes, given that depth bytes are the same. *damaged: the entry makes no sense.
    bool leaf_matches(uint32_t id, size_t skip, const uint8_t *w, size_t n, size_t depth, size_t *length, bool *damaged) const {
        const uint8_t *p;
        size_t n_entry;
        if (!entry(id, &p, &n_entry) || n_entry < skip + depth) {
            *damaged = true;
            return false;
        }
        *length = n_entry - skip;
        if (*length > n) return false;
        for (size_t i = depth; i < *length; i++) // a few bytes at most, and different at the first mostly: memcmp would cost more
            if (p[skip + i] != w[i]) return false;
        return true;
    }

    // Calls see(length, id) for each entry of a set that begins w[0..n), shorter ones first. False if the mapped data is damaged.
    template <class See> bool walk(uint8_t set, const uint8_t *w, size_t n, See see) const {
        const trie_view units = trie;
        uint32_t unit = roots[set];
        for (size_t depth = 0; unit != 0; depth++) {
            const uint32_t value = trie_value(unit);
            if (trie_kind(unit) == TRIE_LEAF) {
                bool damaged = false;
                size_t length = 0;
                if (leaf_matches(value, set == SET_CONTINUING ? n_prefix : 0, w, n, depth, &length, &damaged)) see(length, value);
                return !damaged;
            }
            if (trie_kind(unit) == TRIE_TERMINAL) {
                const uint32_t leaf = units.child(value, 0);
                if (trie_kind(leaf) != TRIE_LEAF || trie_value(leaf) >= n_vocab) return false;
                see(depth, trie_value(leaf));
            }
            if (depth >= n || w[depth] == 0) break;
            unit = units.child(value, w[depth]);
        }
        return true;
    }

    // The id of the entry w[0..n), or NO_ID (also when the mapped data is damaged).
    uint32_t find(const uint8_t *w, size_t n) const {
        uint32_t unit = roots[SET_WHOLE];
        size_t depth = 0;
        for (; trie_kind(unit) == TRIE_INNER || trie_kind(unit) == TRIE_TERMINAL; depth++) {
            if (depth == n) {
                const uint32_t leaf = trie_kind(unit) == TRIE_TERMINAL ? trie.child(trie_value(unit), 0) : 0;
                return trie_kind(leaf) == TRIE_LEAF && trie_value(leaf) < n_vocab ? trie_value(leaf) : NO_ID;
            }
            if (w[depth] == 0) return NO_ID;
            unit = trie.child(trie_value(unit), w[depth]);
        }
        bool damaged = false;
        size_t length = 0;
        return unit && leaf_matches(trie_value(unit), 0, w, n, depth, &length, &damaged) && length == n ? trie_value(unit) : NO_ID;
    }

    template <class Place> bool wordpiece(const uint8_t *w, size_t n, size_t n_chars, bool as_text, Place place, token_list *out) const;
    bool viterbi(const uint8_t *w, size_t begin, size_t end, bool as_text, double *score, encode_scratch *x) const;
    template <class Place> bool unigram(const uint8_t *w, size_t n, bool as_text, Place place, encode_scratch *x, token_list *out) const;

    bool encode_normal(const uint8_t *p, size_t begin, size_t end, size_t n, bool as_text, encode_scratch *x, token_list *out) const;
    bool encode_words(const uint8_t *p, size_t begin, size_t end, size_t n, bool as_text, encode_scratch *x, token_list *out) const;
    bool encode_bars(const uint8_t *p, size_t begin, size_t end, size_t n, bool as_text, encode_scratch *x, token_list *out) const;
    bool encode_part(const uint8_t *p, size_t begin, size_t end, size_t n, bool as_text, encode_scratch *x, token_list *out) const;
    bool encode_text(const uint8_t *p, size_t n, bool as_text, encode_scratch *x, token_list *out) const;

    bool set_up_fast();
};

namespace {

size_t count_chars(const uint8_t *p, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += (p[i] & 0xC0) != 0x80;
    return count;
}

// Where the character before p[at] begins; at > 0.
size_t step_back(const uint8_t *p, size_t at, uint32_t *c) {
    for (size_t back = std::min<size_t>(at, 4); back > 1; back--)
        if (utf8_decode(p + at - back, p + at, c) == back && *c != 0xFFFD) return at - back;
    utf8_decode(p + at - 1, p + at, c);
    return at - 1;
}

bool is_whole_word(const uint8_t *p, size_t begin, size_t end, size_t n) {
    uint32_t c;
    if (begin > 0) {
        step_back(p, begin, &c);
        if (is_word_char(c)) return false;
    }
    if (end == n) return true;
    utf8_decode(p + end, p + n, &c);
    return !is_word_char(c);
}

// HF AddedVocabulary::find_matches: calls between(begin, end) for the stretches of p[0..n) outside of added tokens, and token(id, begin, end) for those, in
// their order. Both return false to stop.
template <class Between, class Token> bool cut(const added_set &set, const uint8_t *p, size_t n, bool as_text, Between between, Token token) {
    size_t done = 0;
    for (size_t at = 0; at < n && !set.tokens.empty();) {
        while (at < n && !set.begins[p[at]]) at++;
        const added_token *t = at < n ? set.longest(p, n, at) : nullptr;
        if (!t) {
            at++;
            continue;
        }
        size_t begin = at, end = at + t->bytes.size();
        at = end;
        if (as_text && t->flags & ADDED_SPECIAL) continue;
        if (t->flags & ADDED_SINGLE_WORD && !is_whole_word(p, begin, end, n)) continue;
        uint32_t c;
        if (t->flags & ADDED_LSTRIP) {
            while (begin > done) {
                const size_t before = step_back(p, begin, &c);
                if (!is_space(c) || before < done) break;
                begin = before;
            }
            begin = std::max(begin, done);
        }
        if (t->flags & ADDED_RSTRIP) {
            while (end < n) {
                const size_t length = utf8_decode(p + end, p + n, &c);
                if (!is_space(c)) break;
                end += length;
            }
        }
        if (done < begin && !between(done, begin)) return false;
        if (!token(t->id, begin, end)) return false;
        done = end;
    }
    return done >= n || between(done, n);
}

// Maps bytes of a normalized word to the original.
struct normal_place {
    const text &t;
    size_t begin; // of the word in t
    const uint8_t *original;
    size_t n_original;
    span operator()(size_t first, size_t past) const {
        const uint32_t last = t.starts[begin + past - 1];
        uint32_t c;
        return {t.starts[begin + first], uint32_t(last + utf8_decode(original + last, original + n_original, &c))};
    }
};

// A word of ASCII characters that stands in the original at `begin`.
struct ascii_place {
    size_t begin;
    span operator()(size_t first, size_t past) const { return {uint32_t(begin + first), uint32_t(begin + past)}; }
};

// The same behind U+2581, which takes the place of the space before it or of the word's first character.
struct bar_place {
    size_t bar, begin;
    span operator()(size_t first, size_t past) const {
        return {uint32_t(first < 3 ? bar : begin + first - 3), uint32_t(past <= 3 ? bar + 1 : begin + past - 3)};
    }
};

} // namespace

// ---- models ----

// HF WordPiece: the longest entry from the left, again and again; a word of which any part is in no entry, or that is too long, is one unknown token.
template <class Place>
bool tokenizer::settings::wordpiece(const uint8_t *w, size_t n, size_t n_chars, bool as_text, Place place, token_list *out) const {
    const size_t n_before = out->ids.size();
    bool known = n_chars <= max_word_chars;
    for (size_t at = 0; known && at < n;) {
        uint32_t best = NO_ID;
        size_t length = 0;
        const bool sound = walk(at ? SET_CONTINUING : SET_WHOLE, w + at, n - at, [&](size_t l, uint32_t id) {
            if (as_text && is_special[id]) return;
            best = id;
            length = l;
        });
        if (!sound) return false;
        known = best != NO_ID && length > 0;
        if (!known) break;
        const span at_text = place(at, at + length);
        out->add(best, at_text.first, at_text.past);
        at += length;
    }
    if (known) return true;
    out->ids.resize(n_before);
    out->spans.resize(n_before);
    const span at_text = place(0, n);
    out->add(unknown, at_text.first, at_text.past);
    return true;
}

// HF Unigram::encode_optimized: Viterbi over bytes, the first of equally good ways wins. Appends the pieces of w[begin, end), which is reached with `*score`.
bool tokenizer::settings::viterbi(const uint8_t *w, size_t begin, size_t end, bool as_text, double *score, encode_scratch *x) const {
    const size_t n = end - begin;
    w += begin;
    x->arrivals.assign(n + 1, {0, NO_ID, 0});
    arrival *const best = x->arrivals.data();
    best[0].score = *score;
    const auto offer = [best](size_t from, size_t length, double score_here, uint32_t id) {
        arrival &to = best[from + length];
        const double total = score_here + best[from].score;
        if (to.from == NO_ID || total > to.score) to = {total, uint32_t(from), id};
    };
    for (size_t at = 0; at < n;) {
        const size_t n_char = std::min(utf8_length(w[at]), n - at);
        bool has_single = false;
        const bool sound = walk(SET_WHOLE, w + at, n - at, [&](size_t length, uint32_t id) {
            if (as_text && is_special[id]) return;
            offer(at, length, score_of(id), id);
            has_single |= length == n_char;
        });
        if (!sound) return false;
        if (!has_single) offer(at, n_char, unknown_score, unknown);
        at += n_char;
    }
    *score = best[n].score;
    const size_t n_before = x->path.size();
    for (size_t at = n; at > 0; at = best[at].from) {
        if (best[at].from >= at) return false; // an entry that ends inside a character
        x->path.push_back({0, uint32_t(begin + best[at].from), best[at].id});
    }
    std::reverse(x->path.begin() + long(n_before), x->path.end());
    return true;
}

// HF Unigram::tokenize of one word. Where no entry has two neighbouring bytes side by side, every way goes through between them: the parts are solved one by
// one, and their sums are the same as those of the whole, digit for digit.
template <class Place> bool tokenizer::settings::unigram(const uint8_t *w, size_t n, bool as_text, Place place, encode_scratch *x, token_list *out) const {
    std::vector<arrival> &path = x->path;
    path.clear();
    double score = 0;
    size_t begin = 0;
    const auto stays_whole = [&](size_t length) { // and is all of the way so far
        const uint32_t id = alone && !as_text ? find(w, length) : NO_ID;
        if (id == NO_ID || !(alone[id / 8] >> id % 8 & 1)) return false;
        path.push_back({0, 0, id});
        score = score_of(id);
        return true;
    };
    for (size_t i = stays_whole(n) ? n + 1 : 1; i <= n; i++) {
        const bool inside = i < n && (!pairs || (w[i] & 0xC0) == 0x80 || pairs[w[i - 1] * 32 + w[i] / 8] >> w[i] % 8 & 1);
        if (inside) continue;
        if ((begin > 0 || i == n || !stays_whole(i)) && !viterbi(w, begin, i, as_text, &score, x)) return false;
        begin = i;
    }
    for (size_t i = 0; i < path.size(); i++) {
        const size_t first = path[i].from;
        uint32_t id = path[i].id;
        while (id == unknown && i + 1 < path.size() && path[i + 1].id == unknown) i++; // neighbouring unknowns are one
        const size_t past = i + 1 < path.size() ? path[i + 1].from : n;
        if (id == unknown) {
            id = find(w + first, past - first); // HF looks the joined characters up once more
            if (id == NO_ID || (as_text && is_special[id])) id = unknown;
        }
        const span at_text = place(first, past);
        out->add(id, at_text.first, at_text.past);
    }
    return true;
}

// ---- from text to words ----

// The whole of the rules, for p[begin, end) of a text of n bytes.
bool tokenizer::settings::encode_normal(const uint8_t *p, size_t begin, size_t end, size_t n, bool as_text, encode_scratch *x, token_list *out) const {
    text &t = x->normal;
    t.clear();
    append_original(p, begin, end, &t);
    if (!normalize(steps, charsmap, &t, &x->steps)) return false;
    const auto words = [&](size_t first, size_t past) {
        const text *of;
        split(how, t, first, past, &x->own, &of, &x->words);
        for (size_t i = 0; i < x->words.size(); i += 2) {
            const uint8_t *w = &of->bytes[x->words[i]];
            const size_t length = x->words[i + 1] - x->words[i];
            const normal_place place{*of, x->words[i], p, n};
            const bool sound = is_unigram ? unigram(w, length, as_text, place, x, out) : wordpiece(w, length, count_chars(w, length), as_text, place, out);
            if (!sound) return false;
        }
        return true;
    };
    return cut(normalized, t.bytes.data(), t.n, as_text, words, [&](uint32_t id, size_t first, size_t past) {
        const span at_text = normal_place{t, 0, p, n}(first, past);
        out->add(id, at_text.first, at_text.past);
        return true;
    });
}

// WordPiece over BertPreTokenizer: ASCII words and punctuation at once; anything else by the whole rules, up to the next ASCII space: normalization and
// splitting never reach across one.
bool tokenizer::settings::encode_words(const uint8_t *p, size_t begin, size_t end, size_t n, bool as_text, encode_scratch *x, token_list *out) const {
    for (size_t at = begin; at < end;) {
        const ascii kind = classes[p[at]];
        if (kind == ascii::space) {
            at++;
            continue;
        }
        if (kind == ascii::punctuation) {
            const uint32_t id = punctuation_ids[p[at]];
            out->add(as_text && is_special[id] ? unknown : id, at, at + 1);
            at++;
            continue;
        }
        size_t past = at;
        while (past < end && classes[p[past]] == ascii::word) past++;
        if (past < end && classes[p[past]] == ascii::slow) {
            while (past < end && classes[p[past]] != ascii::space) past++;
            if (!encode_normal(p, at, past, n, as_text, x, out)) return false;
        } else {
            const size_t length = past - at;
            if (x->folded.size() < length) x->folded.resize(length);
            for (size_t i = 0; i < length; i++) x->folded[i] = fold[p[at + i]];
            if (!wordpiece(x->folded.data(), length, length, as_text, ascii_place{at}, out)) return false;
        }
        at = past;
    }
    return true;
}

// Unigram over Metaspace: ASCII words behind single spaces at once; anything else by the whole rules, up to the next single space between plain characters.
bool tokenizer::settings::encode_bars(const uint8_t *p, size_t begin, size_t end, size_t n, bool as_text, encode_scratch *x, token_list *out) const {
    const auto plain = [&](size_t i) { return classes[p[i]] == ascii::word; };
    const bool by_words = how == splitter::words_bar_always;
    for (size_t at = begin; at < end;) {
        const size_t word = at + (p[at] == ' ');
        size_t past = word;
        while (past < end && plain(past)) past++;
        if (past > word && (past == end || (p[past] == ' ' && past + 1 < end && plain(past + 1)))) {
            const size_t length = past - word;
            if (x->folded.size() < length + 3) x->folded.resize(length + 3);
            memcpy(&x->folded[0], "\xE2\x96\x81", 3);
            memcpy(&x->folded[3], p + word, length);
            if (!unigram(x->folded.data(), length + 3, as_text, bar_place{by_words ? word : at, word}, x, out)) return false;
            at = past;
            continue;
        }
        past = std::max(past, at + 1);
        while (past < end && !(p[past] == ' ' && plain(past - 1) && past + 1 < end && plain(past + 1))) past++;
        const size_t n_before = out->ids.size();
        if (!encode_normal(p, at, past, n, as_text, x, out)) return false;
        if (x->steps.lost_beginning && past < end) { // HF then shifts the spans of the whole part
            out->ids.resize(n_before);
            out->spans.resize(n_before);
            return encode_normal(p, at, end, n, as_text, x, out);
        }
        at = past;
    }
    return true;
}

bool tokenizer::settings::encode_part(const uint8_t *p, size_t begin, size_t end, size_t n, bool as_text, encode_scratch *x, token_list *out) const {
    if (!is_fast) return encode_normal(p, begin, end, n, as_text, x, out);
    return is_unigram ? encode_bars(p, begin, end, n, as_text, x, out) : encode_words(p, begin, end, n, as_text, x, out);
}

bool tokenizer::settings::encode_text(const uint8_t *p, size_t n, bool as_text, encode_scratch *x, token_list *out) const {
    out->ids.reserve(n / 4 + 8);
    out->spans.reserve(n / 4 + 8);
    return cut(
        raw, p, n, as_text, [&](size_t begin, size_t end) { return encode_part(p, begin, end, n, as_text, x, out); },
        [&](uint32_t id, size_t begin, size_t end) {
            out->add(id, begin, end);
            return true;
        });
}

namespace {

// HF truncate_encodings, LongestFirst, for two texts and room for `room` tokens of both. Of equally long ones, and where an odd token is left, b keeps more.
void truncate_pair(size_t room, size_t *n_a, size_t *n_b) {
    if (*n_a + *n_b <= room) return;
    const bool swapped = *n_a > *n_b;
    size_t shorter = std::min(*n_a, *n_b), longer = shorter;
    if (shorter <= room) longer = std::max(shorter, room - shorter);
    if (shorter + longer > room) {
        shorter = room / 2;
        longer = shorter + room % 2;
    }
    *n_a = swapped ? longer : shorter;
    *n_b = swapped ? shorter : longer;
}

void append(const template_piece &p, const token_list &tokens, size_t n, encoding *out) {
    const size_t n_added = p.kind == 2 ? 1 : n;
    if (p.kind == 2) {
        out->ids.push_back(int32_t(p.id));
        out->spans.insert(out->spans.end(), 2, 0);
    } else {
        out->ids.insert(out->ids.end(), tokens.ids.begin(), tokens.ids.begin() + long(n));
        for (size_t i = 0; i < n; i++) {
            out->spans.push_back(tokens.spans[i].first);
            out->spans.push_back(tokens.spans[i].past);
        }
    }
    out->types.insert(out->types.end(), n_added, int32_t(p.type));
    out->sources.insert(out->sources.end(), n_added, p.kind == 2 ? -1 : int32_t(p.kind));
}

} // namespace

int tokenizer::encode(const char *a, size_t n_a, const char *b, size_t n_b, const encode_options &options, encoding *out, message *why) const {
    if (n_a > INT32_MAX || n_b > INT32_MAX) return fail(why, SQ_E_LIMIT, "a text has 2 GiB or more");
    encode_scratch x;
    token_list tokens[2];
    if (!s->encode_text(reinterpret_cast<const uint8_t *>(a), n_a, options.specials_as_text, &x, &tokens[0]) ||
        (b && !s->encode_text(reinterpret_cast<const uint8_t *>(b), n_b, options.specials_as_text, &x, &tokens[1])))
        return fail(why, SQ_E_FORMAT, "the tokenizer's data in the model file is damaged");

    const std::vector<template_piece> &order = b ? s->pair : s->single;
    size_t n_special = 0, n[2] = {tokens[0].ids.size(), tokens[1].ids.size()};
    for (const template_piece &p : order) n_special += p.kind == 2;
    out->full_len = n[0] + n[1] + n_special;
    if (out->full_len > options.max_len) {
        if (!options.truncate || n_special > options.max_len)
            return fail(why, SQ_E_LIMIT, "the text has %zu tokens, the limit is %zu", out->full_len, options.max_len);
        const size_t room = options.max_len - n_special;
        if (b) truncate_pair(room, &n[0], &n[1]);
        else n[0] = room;
    }
    out->ids.clear();
    out->types.clear();
    out->sources.clear();
    out->spans.clear();
    for (const template_piece &p : order) append(p, tokens[p.kind & 1], n[p.kind & 1], out);
    return SQ_OK;
}

const char *tokenizer::token_text(int32_t id, size_t *n) const {
    const uint8_t *p;
    if (id < 0 || !s->entry(uint32_t(id), &p, n)) return nullptr;
    return reinterpret_cast<const char *>(p);
}

std::vector<uint8_t> tokenizer::find_alone() const {
    std::vector<uint8_t> bits((s->n_vocab + 7) / 8);
    encode_scratch x;
    token_list tokens;
    for (uint32_t id = 0; id < s->n_vocab; id++) {
        const uint8_t *p;
        size_t n;
        if (!s->entry(id, &p, &n) || n == 0) continue;
        tokens.ids.clear();
        tokens.spans.clear();
        if (s->unigram(p, n, false, ascii_place{0}, &x, &tokens) && tokens.ids.size() == 1 && tokens.ids[0] == id) bits[id / 8] |= uint8_t(1u << id % 8);
    }
    return bits;
}

// ---- opening ----

namespace {

// Reads the entries of a model file; the first failure wins and turns what follows into no-ops.
struct opener {
    const file_view &file;
    message *why;
    int status = SQ_OK;

    bool ok() const { return status == SQ_OK; }
    __attribute__((format(printf, 2, 3))) void refuse(const char *format, ...) {
        if (!ok()) return;
        char sentence[sizeof why->text];
        va_list args;
        va_start(args, format);
        vsnprintf(sentence, sizeof sentence, format, args);
        va_end(args);
        status = fail(why, SQ_E_FORMAT, "%s", sentence);
    }

    uint32_t number(const char *key, uint32_t hi) {
        uint32_t value = 0;
        if (ok()) status = file.need_u32(key, 0, hi, &value, why);
        return value;
    }

    // A tensor of one row; where it is absent, null and *n = 0.
    const void *row(const char *name, dtype type, uint32_t *n) {
        const tensor_entry *t = ok() ? file.find_tensor(name) : nullptr;
        *n = 0;
        if (!t) return nullptr;
        if (t->type != type || t->order != LAYOUT_ROWS || t->rows != 1) refuse("tensor '%s' is not one row of the right type", name);
        if (!ok()) return nullptr;
        *n = t->cols;
        return t->data;
    }
    const uint32_t *words(const char *name, uint32_t *n) { return static_cast<const uint32_t *>(row(name, DT_U32, n)); }
    const uint8_t *bytes(const char *name, uint32_t *n) { return static_cast<const uint8_t *>(row(name, DT_U8, n)); }

    // The place of the name in the list.
    template <size_t N> uint8_t choice(const std::string &name, const char *const (&names)[N]) {
        for (size_t i = 0; i < N; i++)
            if (name == names[i]) return uint8_t(i);
        refuse("the tokenizer step '%.64s' is unknown", name.c_str());
        return 0;
    }
};

} // namespace

static void open_vocabulary(opener *o, tokenizer::settings *s, uint32_t vocab) {
    uint32_t n;
    s->vocab_text = o->bytes("tok.vocab.text", &s->n_vocab_text);
    s->vocab_starts = o->words("tok.vocab.starts", &n);
    if (n < 2 || n - 1 > vocab) o->refuse("the tokenizer has %u entries, the embedding table %u", n ? n - 1 : 0, vocab);
    if (!o->ok()) return;
    s->n_vocab = n - 1;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (s->vocab_starts[i] > s->vocab_starts[i + 1]) o->refuse("the offsets of the vocabulary fall at entry %u", i);
    if (s->vocab_starts[s->n_vocab] > s->n_vocab_text) o->refuse("the vocabulary runs past its end");
    s->trie.units = o->words("tok.trie", &s->trie.n);
    if (s->trie.n == 0) return o->refuse("the vocabulary's trie is missing");
    for (const uint8_t set : {SET_WHOLE, SET_CONTINUING}) s->roots[set] = s->trie.child(trie_value(s->trie.units[0]), set);
    s->unknown = o->number("tok.unknown", s->n_vocab - 1);
}

static void open_model(opener *o, tokenizer::settings *s) {
    const std::string *name = nullptr;
    if (o->ok()) o->status = o->file.need_string("tok.model", &name, o->why);
    if (!o->ok()) return;
    s->is_unigram = *name == "unigram";
    if (*name == "wordpiece") {
        const std::string *prefix = nullptr;
        o->status = o->file.need_string("tok.prefix", &prefix, o->why);
        if (prefix) s->n_prefix = prefix->size();
        s->max_word_chars = o->number("tok.max-word-chars", UINT32_MAX);
    } else if (s->is_unigram) {
        const tensor_entry *t = o->file.find_tensor("tok.scores");
        uint32_t n = 0, n_words = 0;
        if (t && t->type == DT_F32) s->scores32 = static_cast<const float *>(o->row("tok.scores", DT_F32, &n));
        else s->scores64 = o->words("tok.scores", &n_words);
        if (!(s->scores32 && n == s->n_vocab) && !(s->scores64 && n_words / 2 == s->n_vocab && n_words % 2 == 0)) o->refuse("the vocabulary's scores are missing");
        if (!o->ok()) return;
        double lowest = s->score_of(0);
        for (uint32_t i = 0; i < s->n_vocab; i++) {
            if (!(s->score_of(i) >= -1e30 && s->score_of(i) <= 1e30)) return o->refuse("the score of entry %u is not finite", i);
            lowest = std::min(lowest, s->score_of(i));
        }
        uint32_t n_alone, n_pairs;
        s->alone = o->bytes("tok.alone", &n_alone);
        if (s->alone && n_alone != (s->n_vocab + 7) / 8) o->refuse("tensor 'tok.alone' has a wrong length");
        s->pairs = o->bytes("tok.pairs", &n_pairs);
        if (s->pairs && n_pairs != 256 * 256 / 8) o->refuse("tensor 'tok.pairs' has a wrong length");
        s->unknown_score = lowest - 10; // HF tokenizers 0.23, models/unigram/model.rs, K_UNK_PENALTY
    } else {
        o->refuse("the tokenizer model '%.64s' is unknown", name->c_str());
    }
}

static void open_steps(opener *o, tokenizer::settings *s) {
    const meta_entry *steps = o->file.find_meta("tok.normalizer");
    if (steps && steps->type != META_STRINGS) o->refuse("metadata 'tok.normalizer' is no list");
    if (steps && o->ok())
        for (const std::string &name : steps->strings) s->steps.push_back(static_cast<normalizer>(o->choice(name, NORMALIZERS)));
    const std::string *how = nullptr;
    if (o->ok()) o->status = o->file.need_string("tok.splitter", &how, o->why);
    if (o->ok()) s->how = static_cast<splitter>(o->choice(*how, SPLITTERS));
    uint32_t n_units, n_bytes;
    s->charsmap.units = o->words("tok.charsmap.trie", &n_units);
    s->charsmap.replacements = o->bytes("tok.charsmap.text", &n_bytes);
    s->charsmap.n_units = n_units;
    s->charsmap.n_bytes = n_bytes;
}

static void open_template(opener *o, const char *name, const tokenizer::settings &s, uint32_t n_types, bool is_pair, std::vector<template_piece> *out) {
    uint32_t n;
    const uint32_t *words = o->words(name, &n);
    if (n == 0 || n % 3 != 0 || n > 300) o->refuse("the template '%s' is missing or damaged", name);
    if (!o->ok()) return;
    size_t n_texts[2] = {0, 0};
    for (uint32_t i = 0; i < n; i += 3) {
        const template_piece p{words[i], words[i + 1], words[i + 2]};
        if (p.kind > 2 || (p.kind == 2 && p.id >= s.n_vocab) || p.type > INT32_MAX) return o->refuse("the template '%s' is damaged", name);
        if (n_types && p.type >= n_types) return o->refuse("the template '%s' has segments beyond those of the model", name);
        if (p.kind < 2) n_texts[p.kind]++;
        out->push_back(p);
    }
    if (n_texts[0] != 1 || n_texts[1] != is_pair) o->refuse("the template '%s' does not use each text once", name);
}

static void open_added(opener *o, tokenizer::settings *s) {
    uint32_t n;
    const uint32_t *words = o->words("tok.added", &n);
    if (!o->ok()) return;
    s->is_special.assign(s->n_vocab, 0);
    normalize_scratch x;
    for (uint32_t i = 0; i + 1 < n; i += 2) {
        const uint32_t id = words[i], flags = words[i + 1];
        const uint8_t *p;
        size_t length;
        if (!s->entry(id, &p, &length) || length == 0 || length > ADDED_MAX_BYTES) return o->refuse("added token %u is damaged", i / 2);
        if (flags & ADDED_SPECIAL) s->is_special[id] = 1;
        text t;
        append_original(p, 0, length, &t);
        const bool is_normalized = flags & ADDED_NORMALIZED;
        if (is_normalized && !normalize(s->steps, s->charsmap, &t, &x)) return o->refuse("the charsmap is damaged");
        if (t.n == 0) continue;
        (is_normalized ? s->normalized : s->raw).tokens.push_back({std::string(t.bytes.begin(), t.bytes.begin() + long(t.n)), id, flags});
    }
    s->raw.finish();
    s->normalized.finish();
}

// Sorts ASCII characters by what the rules make of each alone, if the rules are such that ASCII characters never act on one another.
bool tokenizer::settings::set_up_fast() {
    using N = normalizer;
    const auto among = [&](std::initializer_list<N> allowed) {
        return std::all_of(steps.begin(), steps.end(), [&](N step) { return std::find(allowed.begin(), allowed.end(), step) != allowed.end(); });
    };
    is_fast = normalized.tokens.empty();
    if (is_unigram) {
        is_fast &= how == splitter::bar_always || how == splitter::words_bar_always;
        is_fast &= among({N::charsmap, N::squeeze, N::squeeze_to_bar, N::strip_right});
    } else {
        is_fast &= how == splitter::bert && among({N::clean, N::han, N::nfd, N::strip_mn, N::strip_marks, N::lower});
    }
    if (!is_fast) return true;
    normalize_scratch x;
    for (uint8_t c = 0; c < 128; c++) {
        text t;
        append_original(&c, 0, 1, &t);
        if (!normalize(steps, charsmap, &t, &x)) return false;
        if (t.n != 1) continue;
        fold[c] = t.bytes[0];
        if (is_unigram) {
            if (c > ' ' && c < 0x7F && fold[c] == c) classes[c] = ascii::word;
            continue;
        }
        classes[c] = is_space(fold[c]) ? ascii::space : is_punctuation(fold[c]) ? ascii::punctuation : ascii::word;
        const uint32_t id = find(&fold[c], 1);
        punctuation_ids[c] = id == NO_ID || max_word_chars == 0 ? unknown : id;
    }
    return true;
}

tokenizer::~tokenizer() { delete s; }

int tokenizer::open(const file_view &file, uint32_t vocab, uint32_t n_types, message *why) {
    std::unique_ptr<settings> fresh(new settings);
    opener o{file, why};
    open_vocabulary(&o, fresh.get(), vocab);
    open_model(&o, fresh.get());
    open_steps(&o, fresh.get());
    open_template(&o, "tok.single", *fresh, n_types, false, &fresh->single);
    open_template(&o, "tok.pair", *fresh, n_types, true, &fresh->pair);
    open_added(&o, fresh.get());
    if (!o.ok()) return o.status;
    if (!fresh->set_up_fast()) return fail(why, SQ_E_FORMAT, "the charsmap is damaged");
    delete s;
    s = fresh.release();
    return SQ_OK;
}

} // namespace sq
