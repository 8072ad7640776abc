// sq-tok-text.cpp - Unicode, normalization and splitting into words, as HF tokenizers 0.23 does them. The interface is sq-tok-text.h.
#include "sq-tok-text.h"

#include <string.h>

#include <algorithm>

namespace sq {

namespace {

struct unicode_record {
    uint16_t flags;          // UC_*
    uint8_t combining_class;
    uint8_t n_decomposed;    // code points of the canonical decomposition, 0: none
    uint16_t decomposed;     // where it starts in DECOMPOSED
    int32_t lower;           // difference to the lower-case letter
};

#include "sq-unicode.inc"

constexpr uint32_t BAR = 0x2581; // SentencePiece's visible space
constexpr uint8_t BAR_UTF8[3] = {0xE2, 0x96, 0x81};
constexpr uint32_t DOT_ABOVE = 0x307; // lower case of U+0130 is i with this (Unicode, SpecialCasing.txt), the one letter that becomes two

// Hangul syllables decompose by arithmetic (Unicode 15, section 3.12).
constexpr uint32_t HANGUL_S = 0xAC00, HANGUL_L = 0x1100, HANGUL_V = 0x1161, HANGUL_T = 0x11A7;
constexpr uint32_t HANGUL_N_T = 28, HANGUL_N_VT = 21 * HANGUL_N_T, HANGUL_N_S = 19 * HANGUL_N_VT;

const unicode_record &record(uint32_t c) { return RECORDS[STAGE2[STAGE1[c / 128] * 128 + c % 128]]; }

bool is_hangul_syllable(uint32_t c) { return c - HANGUL_S < HANGUL_N_S; }

// What steps look for: TRAIT_* beside the flags of the records.
constexpr uint32_t TRAIT_NFD = 1u << 16, TRAIT_LOWER = 1u << 17, TRAIT_UNKNOWN = ~0u;

uint32_t traits(uint32_t c) {
    const unicode_record &u = record(c);
    const bool nfd = u.n_decomposed || u.combining_class || is_hangul_syllable(c);
    return u.flags | (nfd ? TRAIT_NFD : 0) | (u.lower || u.flags & UC_LOWER_DOT ? TRAIT_LOWER : 0);
}

// The step changes nothing unless the text has a character with one of these traits; TRAIT_UNKNOWN: it may change any text.
uint32_t traits_changed_by(normalizer step) {
    switch (step) {
    case normalizer::clean: return UC_DROP | UC_SPACE;
    case normalizer::han: return UC_HAN;
    case normalizer::nfd: return TRAIT_NFD;
    case normalizer::strip_mn: return UC_MN;
    case normalizer::strip_marks: return UC_MARK;
    case normalizer::lower: return TRAIT_LOWER;
    default: return TRAIT_UNKNOWN;
    }
}

struct character {
    uint32_t c;
    uint32_t start;
};

// Reads the characters of a normalized text, which is well-formed: it is made of append_original and put.
struct reader {
    const text &t;
    size_t at = 0, end;
    explicit reader(const text &in) : t(in), end(in.n) {}
    reader(const text &in, size_t first, size_t past) : t(in), at(first), end(past) {}
    bool next(character *x) {
        if (at >= end) return false;
        x->start = t.starts[at];
        at += utf8_decode_sound(&t.bytes[at], &x->c);
        return true;
    }
};

void clean(const text &in, text *out) {
    character x;
    for (reader r(in); r.next(&x);) {
        const uint16_t flags = record(x.c).flags;
        if (flags & UC_DROP) continue;
        out->put(flags & UC_SPACE ? ' ' : x.c, x.start);
    }
}

void separate_han(const text &in, text *out) {
    character x;
    for (reader r(in); r.next(&x);) {
        const bool is_han = record(x.c).flags & UC_HAN;
        if (is_han) out->put(' ', x.start);
        out->put(x.c, x.start);
        if (is_han) out->put(' ', x.start);
    }
}

void drop(const text &in, uint16_t flag, text *out) {
    character x;
    for (reader r(in); r.next(&x);)
        if (!(record(x.c).flags & flag)) out->put(x.c, x.start);
}

void lower(const text &in, text *out) {
    character x;
    for (reader r(in); r.next(&x);) {
        const unicode_record &u = record(x.c);
        out->put(x.c + static_cast<uint32_t>(u.lower), x.start);
        if (u.flags & UC_LOWER_DOT) out->put(DOT_ABOVE, x.start);
    }
}

// Marks that follow one another go into canonical order. HF then hands out places by position, not by character: what was the first of its decomposition takes
// the next original character's place, what was added takes the place handed out last.
void flush_run(normalize_scratch *s, text *out) {
    using mark = normalize_scratch::mark;
    const auto by_class = [](const mark &a, const mark &b) { return a.combining_class < b.combining_class; };
    if (!std::is_sorted(s->run.begin(), s->run.end(), by_class)) std::stable_sort(s->run.begin(), s->run.end(), by_class);
    size_t n_places = 0;
    for (const mark &m : s->run) {
        if (!m.added) s->place = s->run_starts[n_places++];
        out->put(m.c, s->place);
    }
    s->run.clear();
    s->run_starts.clear();
}

void decompose(const text &in, normalize_scratch *s, text *out) {
    bool added = false;
    uint32_t start = 0;
    const auto push = [&](uint32_t c, uint8_t combining_class) {
        if (combining_class == 0) { // stays where it is
            if (!s->run.empty()) flush_run(s, out);
            if (!added) s->place = start;
            out->put(c, s->place);
        } else {
            s->run.push_back({c, combining_class, added});
            if (!added) s->run_starts.push_back(start);
        }
        added = true;
    };
    character x;
    for (reader r(in); r.next(&x);) {
        const unicode_record &u = record(x.c);
        added = false;
        start = x.start;
        if (u.n_decomposed) {
            for (size_t i = 0; i < u.n_decomposed; i++) push(DECOMPOSED[u.decomposed + i], record(DECOMPOSED[u.decomposed + i]).combining_class);
        } else if (is_hangul_syllable(x.c)) {
            const uint32_t i = x.c - HANGUL_S;
            push(HANGUL_L + i / HANGUL_N_VT, 0);
            push(HANGUL_V + i % HANGUL_N_VT / HANGUL_N_T, 0);
            if (i % HANGUL_N_T) push(HANGUL_T + i % HANGUL_N_T, 0);
        } else {
            push(x.c, u.combining_class);
        }
    }
    flush_run(s, out);
}

void strip(const text &in, bool left, text *out) {
    size_t begin = 0, end = 0;
    bool seen = false;
    character x;
    for (reader r(in); r.next(&x);) {
        if (is_space(x.c)) continue;
        size_t length = 1; // of x
        while (length < 4 && r.at > length && (in.bytes[r.at - length] & 0xC0) == 0x80) length++;
        if (!seen) begin = r.at - length;
        seen = true;
        end = r.at;
    }
    if (!left) begin = 0;
    else end = seen ? in.n : begin = in.n;
    for (size_t i = begin; i < end; i++) out->put_bytes(&in.bytes[i], 1, in.starts[i]);
}

// Replaces two or more spaces by one character, which takes the last one's place.
void squeeze(const text &in, uint32_t by, text *out) {
    for (size_t i = 0; i < in.n;) {
        size_t past = i;
        while (past < in.n && in.bytes[past] == ' ') past++;
        if (past - i >= 2) {
            out->put(by, in.starts[past - 1]);
            i = past;
        } else {
            out->put_bytes(&in.bytes[i], 1, in.starts[i]);
            i++;
        }
    }
}

// ---- Precompiled ----

// Extended grapheme clusters (UAX 29) one after the other.
class graphemes {
  public:
    // Whether a cluster boundary lies before c, the next character of the text.
    bool breaks_before(uint32_t c) {
        const uint16_t flags = record(c).flags;
        const unsigned gcb = flags >> UC_GCB_SHIFT & UC_GCB_MASK, incb = flags >> UC_INCB_SHIFT & UC_INCB_MASK;
        const bool pict = flags & UC_PICT;
        const bool broken = is_boundary(gcb, incb, pict);
        n_ri_ = gcb == GCB_RI ? n_ri_ + 1 : 0;
        if (pict) emoji_ = emoji::pict;
        else if (emoji_ == emoji::pict && gcb == GCB_EXTEND) emoji_ = emoji::pict;
        else emoji_ = emoji_ == emoji::pict && gcb == GCB_ZWJ ? emoji::joined : emoji::none;
        if (incb == INCB_CONSONANT) conjunct_ = conjunct::consonant;
        else if (incb == INCB_LINKER && conjunct_ != conjunct::none) conjunct_ = conjunct::linked;
        else if (incb != INCB_EXTEND) conjunct_ = conjunct::none;
        previous_ = gcb;
        any_ = true;
        return broken;
    }

  private:
    bool is_boundary(unsigned gcb, unsigned incb, bool pict) const {
        if (!any_) return true;
        if (previous_ == GCB_CR && gcb == GCB_LF) return false;
        const auto is_control = [](unsigned x) { return x == GCB_CR || x == GCB_LF || x == GCB_CONTROL; };
        if (is_control(previous_) || is_control(gcb)) return true;
        if (previous_ == GCB_L && (gcb == GCB_L || gcb == GCB_V || gcb == GCB_LV || gcb == GCB_LVT)) return false;
        if ((previous_ == GCB_LV || previous_ == GCB_V) && (gcb == GCB_V || gcb == GCB_T)) return false;
        if ((previous_ == GCB_LVT || previous_ == GCB_T) && gcb == GCB_T) return false;
        if (gcb == GCB_EXTEND || gcb == GCB_ZWJ || gcb == GCB_SPACING || previous_ == GCB_PREPEND) return false;
        if (conjunct_ == conjunct::linked && incb == INCB_CONSONANT) return false;
        if (emoji_ == emoji::joined && pict) return false;
        return !(previous_ == GCB_RI && gcb == GCB_RI && n_ri_ % 2 == 1);
    }

    enum class emoji : uint8_t { none, pict, joined };            // rule GB11: a pictograph, extenders, a zero-width joiner
    enum class conjunct : uint8_t { none, consonant, linked };    // rule GB9c
    bool any_ = false;
    unsigned previous_ = 0;
    size_t n_ri_ = 0; // regional indicators just before
    emoji emoji_ = emoji::none;
    conjunct conjunct_ = conjunct::none;
};

// What HF's NormalizedString::transform does with a list of (character, change): change 0 takes the next old character's place, -n also skips n more,
// 1 takes the place of the old character before. The last item stays open, because a removal is added to it.
class rewriter {
  public:
    rewriter(const text &in, text *out) : old_(in), out_(out) {}
    ~rewriter() { flush(); }
    rewriter(const rewriter &) = delete;
    rewriter &operator=(const rewriter &) = delete;

    void add(uint32_t c, long change) {
        flush();
        c_ = c;
        change_ = change;
        open_ = true;
    }
    // Removed characters at the very beginning leave no trace, as in HF: what follows is then aligned that many characters too early.
    void remove(long n) {
        if (open_) change_ -= n;
        else lost_beginning_ = true;
    }
    bool lost_beginning() const { return lost_beginning_; }

  private:
    void flush() {
        if (!open_) return;
        character x;
        if (change_ <= 0 && old_.next(&x)) place_ = x.start;
        out_->put(c_, place_);
        for (long i = change_; i < 0 && old_.next(&x); i++) place_ = x.start;
        open_ = false;
    }

    reader old_;
    text *out_;
    bool open_ = false, lost_beginning_ = false;
    uint32_t c_ = 0;
    long change_ = 0;
    uint32_t place_ = 0;
};

size_t count_characters(const uint8_t *p, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += (p[i] & 0xC0) != 0x80;
    return count;
}

void replace(rewriter *to, size_t n_old, const uint8_t *p, size_t n) {
    const size_t n_new = count_characters(p, n);
    uint32_t c;
    size_t i = 0;
    for (const uint8_t *end = p + n; p < end; i++) {
        p += utf8_decode(p, end, &c);
        to->add(c, n_new > n_old && i >= n_old ? 1 : 0);
    }
    if (n_new < n_old) to->remove(static_cast<long>(n_old - n_new));
}

// HF Precompiled: a grapheme of fewer than 6 bytes is replaced as a whole when any key begins it; in all others each character by itself.
constexpr size_t SHORT_GRAPHEME = 6;

bool apply_charsmap(const charsmap_view &map, const text &in, bool *lost_beginning, text *out) {
    rewriter to(in, out);
    graphemes g;
    bool damaged = false;
    const auto one = [&](const uint8_t *p, size_t n, size_t n_old) {
        const uint8_t *by;
        size_t n_by;
        if (!map.find(p, n, &by, &n_by, &damaged)) return false;
        replace(&to, n_old, by, n_by);
        return true;
    };
    const uint8_t *p = in.bytes.data(), *const end = p + in.n;
    uint32_t c = 0, next; // the characters at p and at past
    size_t length = p < end ? utf8_decode_sound(p, &c) : 0, n_next = 0;
    g.breaks_before(c);
    while (p < end && !damaged) {
        const uint8_t *past = p + length;
        size_t n_chars = 1;
        for (; past < end; past += n_next, n_chars++) {
            n_next = utf8_decode_sound(past, &next);
            if (g.breaks_before(next)) break;
        }
        const size_t n = size_t(past - p);
        if (n_chars == 1 || n >= SHORT_GRAPHEME || !one(p, n, n_chars)) {
            for (; p < past && !damaged; p += length) {
                length = utf8_decode_sound(p, &c);
                if (!one(p, length, 1)) to.add(c, 0);
            }
        }
        p = past;
        c = next;
        length = n_next;
    }
    *lost_beginning = to.lost_beginning();
    return !damaged;
}

} // namespace

bool charsmap_view::find(const uint8_t *p, size_t n, const uint8_t **to, size_t *n_to, bool *damaged) const {
    // darts-clone units: bits 0-7 label and bit 31 "is a value"; bit 8: has a value; bits 10-31 offset, shifted by 8 more if bit 9 is set.
    const auto offset = [](uint32_t unit) { return size_t(unit >> 10) << ((unit & 1u << 9) >> 6); };
    if (n_units == 0) return false;
    size_t at = offset(units[0]);
    for (size_t i = 0; i < n && p[i] != 0; i++) {
        at ^= p[i];
        const uint32_t unit = at < n_units ? units[at] : 0;
        if ((unit & (1u << 31 | 0xFF)) != p[i]) return false;
        at ^= offset(unit);
        if (!(unit >> 8 & 1)) continue;
        const size_t first = at < n_units ? units[at] & ~(1u << 31) : SIZE_MAX;
        size_t past = first;
        while (past < n_bytes && past - first <= MAX_REPLACEMENT && replacements[past] != 0) past++;
        if (first > n_bytes || past - first > MAX_REPLACEMENT) {
            *damaged = true;
            return false;
        }
        *to = replacements + first;
        *n_to = past - first;
        return true;
    }
    return false;
}

size_t utf8_decode(const uint8_t *p, const uint8_t *end, uint32_t *c) {
    const uint8_t lead = p[0];
    if (lead < 0x80) {
        *c = lead;
        return 1;
    }
    *c = 0xFFFD;
    if (lead < 0xC2 || lead > 0xF4) return 1;
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    // The second byte's range keeps out overlong forms (E0, F0), surrogates (ED) and what lies above U+10FFFF (F4).
    const uint8_t lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    uint32_t value = lead & (0x7F >> length);
    for (size_t i = 1; i < length; i++) {
        if (p + i >= end) return i;
        if (i == 1 ? p[i] < lo || p[i] > hi : (p[i] & 0xC0) != 0x80) return i;
        value = value << 6 | (p[i] & 0x3F);
    }
    *c = value;
    return length;
}

bool is_space(uint32_t c) { return record(c).flags & UC_SPACE; }
bool is_punctuation(uint32_t c) { return record(c).flags & UC_PUNCT; }
bool is_word_char(uint32_t c) { return record(c).flags & UC_WORD; }

void append_original(const uint8_t *p, size_t begin, size_t end, text *t) {
    t->make_room(end - begin);
    for (size_t i = begin; i < end;) {
        uint32_t c;
        const size_t length = utf8_decode(p + i, p + end, &c);
        t->put(c, static_cast<uint32_t>(i));
        t->traits |= traits(c);
        i += length;
    }
}

bool normalize(const std::vector<normalizer> &steps, const charsmap_view &map, text *t, normalize_scratch *scratch) {
    text *const other = &scratch->other;
    for (const normalizer step : steps) {
        const uint32_t changed = traits_changed_by(step);
        if (changed != TRAIT_UNKNOWN && !(t->traits & changed)) continue;
        const bool may_make_new = step != normalizer::clean && step != normalizer::han; // characters, that is, other than spaces
        other->clear();
        other->traits = may_make_new ? TRAIT_UNKNOWN : t->traits;
        switch (step) {
        case normalizer::clean: clean(*t, other); break;
        case normalizer::han: separate_han(*t, other); break;
        case normalizer::nfd: decompose(*t, scratch, other); break;
        case normalizer::strip_mn: drop(*t, UC_MN, other); break;
        case normalizer::strip_marks: drop(*t, UC_MARK, other); break;
        case normalizer::lower: lower(*t, other); break;
        case normalizer::charsmap:
            if (!apply_charsmap(map, *t, &scratch->lost_beginning, other)) return false;
            break;
        case normalizer::strip_left: strip(*t, true, other); break;
        case normalizer::strip_right: strip(*t, false, other); break;
        case normalizer::squeeze: squeeze(*t, ' ', other); break;
        case normalizer::squeeze_to_bar: squeeze(*t, BAR, other); break;
        }
        std::swap(*t, *other);
    }
    return true;
}

// ---- words ----

namespace {

void split_bert(const text &t, size_t begin, size_t end, bool at_punctuation, std::vector<size_t> *ends) {
    size_t word = begin; // where the open word begins
    const auto close = [&](size_t at) {
        if (at > word) {
            ends->push_back(word);
            ends->push_back(at);
        }
    };
    character x;
    size_t at = begin;
    for (reader r(t, begin, end); r.next(&x); at = r.at) {
        const uint16_t flags = record(x.c).flags;
        if (flags & UC_SPACE) {
            close(at);
            word = r.at;
        } else if (at_punctuation && flags & UC_PUNCT) {
            close(at);
            word = at;
            close(r.at);
            word = r.at;
        }
    }
    close(end);
}

void split_bars(const text &t, size_t begin, size_t end, splitter how, text *own, std::vector<size_t> *ends) {
    const bool bar_first = end - begin >= 3 && memcmp(&t.bytes[begin], BAR_UTF8, 3) == 0;
    const bool prepend = how == splitter::bar_always || (how == splitter::bar_first && t.starts[begin] == 0);
    size_t word = own->n;
    if (prepend && !bar_first && t.bytes[begin] != ' ') own->put(BAR, t.starts[begin]);
    for (size_t i = begin; i < end; i++) {
        const bool is_bar = end - i >= 3 && memcmp(&t.bytes[i], BAR_UTF8, 3) == 0;
        if ((t.bytes[i] == ' ' || is_bar) && own->n > word) {
            ends->push_back(word);
            ends->push_back(own->n);
            word = own->n;
        }
        if (t.bytes[i] == ' ') own->put(BAR, t.starts[i]);
        else own->put_bytes(&t.bytes[i], 1, t.starts[i]);
    }
    ends->push_back(word);
    ends->push_back(own->n);
}

} // namespace

void split(splitter how, const text &t, size_t begin, size_t end, text *own, const text **of, std::vector<size_t> *ends) {
    ends->clear();
    *of = &t;
    if (begin >= end) return;
    switch (how) {
    case splitter::none: *ends = {begin, end}; return;
    case splitter::bert: split_bert(t, begin, end, true, ends); return;
    case splitter::white_space: split_bert(t, begin, end, false, ends); return;
    default: break;
    }
    own->clear();
    *of = own;
    if (how < splitter::words_bar_always) return split_bars(t, begin, end, how, own, ends);
    const auto inner = static_cast<splitter>(static_cast<int>(how) - static_cast<int>(splitter::words_bar_always) + static_cast<int>(splitter::bar_always));
    std::vector<size_t> words;
    split_bert(t, begin, end, false, &words);
    for (size_t i = 0; i < words.size(); i += 2) split_bars(t, words[i], words[i + 1], inner, own, ends);
}

} // namespace sq
