// convert/json.h - JSON (RFC 8259): a strict parser into a tree of values, and the pieces of a writer. Header-only; throws nothing but std::bad_alloc.
//
// Strict means: one value and nothing after it, no comments, no trailing commas, no NaN, no byte order mark, strings of valid UTF-8. Hugging Face's own reader of
// tokenizer.json (serde_json) is as strict. Lone surrogates in \u escapes are refused, as there: they have no UTF-8 form.
#ifndef SQ_CONVERT_JSON_H
#define SQ_CONVERT_JSON_H

#include <stddef.h>
#include <stdint.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace sq {
namespace json {

// Nesting of arrays and objects that the parser follows; each level costs it one stack frame. Checkpoint files stay below 10.
constexpr size_t MAX_DEPTH = 128;

enum class kind : uint8_t { null, boolean, number, string, array, object };

struct member;

struct value {
    kind type = kind::null;
    bool boolean = false;
    bool is_integer = false;     // a number written without fraction and exponent that fits int64_t; then `integer` is exact
    int64_t integer = 0;
    double number = 0;           // every number, rounded to nearest
    std::string text;            // a string's bytes; NUL is possible
    std::vector<value> items;    // an array's elements
    std::vector<member> members; // an object's members in file order, keys unique: a repeated key keeps its first place and its last value, as in Python

    bool is_null() const { return type == kind::null; }
    bool is_bool() const { return type == kind::boolean; }
    bool is_number() const { return type == kind::number; }
    bool is_string() const { return type == kind::string; }
    bool is_array() const { return type == kind::array; }
    bool is_object() const { return type == kind::object; }

    // The member of that key; null when there is none or this is no object. Looks at one member after the other: walk `members` to visit many.
    const value *find(std::string_view key) const;
};

struct member {
    std::string key;
    value item;
};

inline const value *value::find(std::string_view key) const {
    for (const member &m : members)
        if (m.key == key) return &m.item;
    return nullptr;
}

// Length of the UTF-8 sequence at p (p < end). *valid tells whether it is well-formed (Unicode 15, table 3-7); if not, the length is that of the maximal subpart,
// which counts as one U+FFFD.
inline size_t utf8_step(const char *p, const char *end, bool *valid) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(p[i]); };
    const unsigned char c = byte(0);
    *valid = true;
    if (c < 0x80) return 1;
    *valid = false;
    if (c < 0xC2 || c > 0xF4) return 1;
    const size_t n = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    // The second byte's range keeps out overlong forms (E0, F0), surrogates (ED) and what lies above U+10FFFF (F4).
    const unsigned char lo = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
    const unsigned char hi = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < n; i++) {
        if (p + i >= end) return i;
        if (i == 1 ? byte(i) < lo || byte(i) > hi : (byte(i) & 0xC0) != 0x80) return i;
    }
    *valid = true;
    return n;
}

inline void append_utf8(std::string *out, uint32_t c) {
    const auto put = [&](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
    if (c < 0x80) {
        put(c);
    } else if (c < 0x800) {
        put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
    } else {
        put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
    }
}

// ---- parsing ----

class parser {
  public:
    parser(const char *text, size_t n_bytes) : begin_(text), p_(text), end_(text + n_bytes) {}

    bool document(value *out) {
        skip_space();
        if (!any(out, 0)) return false;
        skip_space();
        return p_ == end_ || refuse("something follows the value");
    }

    // "line 3, column 14: a comma or ] is missing"; lines and columns count from 1, columns in bytes.
    std::string explain() const {
        size_t line = 1, column = 1;
        for (const char *q = begin_; q < p_; q++) {
            column = *q == '\n' ? 1 : column + 1;
            line += *q == '\n';
        }
        return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + why_;
    }

  private:
    const char *begin_, *p_, *end_;
    const char *why_ = "";

    bool refuse(const char *why) {
        why_ = why;
        return false;
    }

    void skip_space() {
        while (p_ < end_ && (*p_ == ' ' || *p_ == '\n' || *p_ == '\r' || *p_ == '\t')) p_++;
    }

    bool next_is(char c) {
        if (p_ == end_ || *p_ != c) return false;
        p_++;
        return true;
    }

    bool is_digit() const { return p_ < end_ && *p_ >= '0' && *p_ <= '9'; }

    bool any(value *out, size_t depth) {
        if (p_ == end_) return refuse("the text ends where a value should be");
        switch (*p_) {
        case '{': return object(out, depth);
        case '[': return array(out, depth);
        case '"':
            out->type = kind::string;
            return string(&out->text);
        case 't':
            out->type = kind::boolean;
            out->boolean = true;
            return word("true");
        case 'f': out->type = kind::boolean; return word("false");
        case 'n': return word("null");
        default: return number(out);
        }
    }

    bool word(std::string_view expected) {
        if (static_cast<size_t>(end_ - p_) < expected.size() || std::string_view(p_, expected.size()) != expected) return refuse("no JSON value starts so");
        p_ += expected.size();
        return true;
    }

    bool array(value *out, size_t depth) {
        if (depth == MAX_DEPTH) return refuse("nested too deeply");
        out->type = kind::array;
        p_++;
        skip_space();
        if (next_is(']')) return true;
        for (;;) {
            out->items.emplace_back();
            skip_space();
            if (!any(&out->items.back(), depth + 1)) return false;
            skip_space();
            if (next_is(']')) return true;
            if (!next_is(',')) return refuse("a comma or ] is missing");
        }
    }

    bool object(value *out, size_t depth) {
        if (depth == MAX_DEPTH) return refuse("nested too deeply");
        out->type = kind::object;
        p_++;
        skip_space();
        if (next_is('}')) return true;
        for (;;) {
            out->members.emplace_back();
            member &m = out->members.back();
            skip_space();
            if (p_ == end_ || *p_ != '"') return refuse("a key in quotes is missing");
            if (!string(&m.key)) return false;
            skip_space();
            if (!next_is(':')) return refuse("a colon is missing");
            skip_space();
            if (!any(&m.item, depth + 1)) return false;
            skip_space();
            if (next_is('}')) break;
            if (!next_is(',')) return refuse("a comma or } is missing");
        }
        unite_keys(&out->members);
        return true;
    }

    // Sorting rather than hashing: no set of keys makes it slow.
    static void unite_keys(std::vector<member> *members) {
        const size_t n = members->size();
        if (n < 2) return;
        std::vector<size_t> order(n);
        for (size_t i = 0; i < n; i++) order[i] = i;
        const auto before = [&](size_t a, size_t b) {
            const int c = (*members)[a].key.compare((*members)[b].key);
            return c != 0 ? c < 0 : a < b;
        };
        std::sort(order.begin(), order.end(), before);
        std::vector<bool> is_repeat(n, false);
        bool any_repeat = false;
        for (size_t i = 0, first = 0; i < n; i++) {
            if (i == first || (*members)[order[i]].key != (*members)[order[first]].key) {
                first = i;
                continue;
            }
            (*members)[order[first]].item = std::move((*members)[order[i]].item);
            is_repeat[order[i]] = any_repeat = true;
        }
        if (!any_repeat) return;
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            if (is_repeat[i]) continue;
            if (kept != i) (*members)[kept] = std::move((*members)[i]);
            kept++;
        }
        members->resize(kept);
    }

    bool string(std::string *out) {
        p_++;
        for (;;) {
            const char *run = p_;
            while (p_ < end_ && static_cast<unsigned char>(*p_) >= 0x20 && *p_ != '"' && *p_ != '\\') {
                bool valid;
                const size_t n = utf8_step(p_, end_, &valid);
                if (!valid) return refuse("the string is not valid UTF-8");
                p_ += n;
            }
            out->append(run, p_);
            if (p_ == end_) return refuse("the text ends inside a string");
            if (next_is('"')) return true;
            if (!next_is('\\')) return refuse("a control character in a string must be escaped");
            if (!escape(out)) return false;
        }
    }

    bool escape(std::string *out) {
        if (p_ == end_) return refuse("the text ends inside a string");
        switch (*p_++) {
        case '"': out->push_back('"'); return true;
        case '\\': out->push_back('\\'); return true;
        case '/': out->push_back('/'); return true;
        case 'b': out->push_back('\b'); return true;
        case 'f': out->push_back('\f'); return true;
        case 'n': out->push_back('\n'); return true;
        case 'r': out->push_back('\r'); return true;
        case 't': out->push_back('\t'); return true;
        case 'u': break;
        default: return refuse("unknown escape in a string");
        }
        uint32_t c, low;
        if (!four_hex(&c)) return false;
        if (c >= 0xD800 && c <= 0xDFFF) {
            if (c >= 0xDC00 || !next_is('\\') || !next_is('u')) return refuse("half of a surrogate pair in a string");
            if (!four_hex(&low)) return false;
            if (low < 0xDC00 || low > 0xDFFF) return refuse("half of a surrogate pair in a string");
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
        }
        append_utf8(out, c);
        return true;
    }

    bool four_hex(uint32_t *out) {
        uint32_t c = 0;
        if (end_ - p_ < 4) return refuse("four hexadecimal digits must follow \\u");
        const std::from_chars_result r = std::from_chars(p_, p_ + 4, c, 16);
        if (r.ec != std::errc() || r.ptr != p_ + 4) return refuse("four hexadecimal digits must follow \\u");
        p_ += 4;
        *out = c;
        return true;
    }

    bool number(value *out) {
        const char *start = p_;
        next_is('-');
        if (!is_digit()) return refuse(p_ == start ? "no JSON value starts so" : "a digit is missing");
        const char *whole = p_;
        if (!next_is('0')) skip_digits();
        if (is_digit()) return refuse("a number may not start with a zero");
        const char *whole_end = p_;
        if (next_is('.')) {
            if (!is_digit()) return refuse("a digit is missing");
            skip_digits();
        }
        const char *mantissa_end = p_;
        if (p_ < end_ && (*p_ == 'e' || *p_ == 'E')) {
            p_++;
            if (!next_is('-')) next_is('+');
            if (!is_digit()) return refuse("a digit is missing");
            skip_digits();
        }
        out->type = kind::number;
        out->is_integer = p_ == whole_end && std::from_chars(start, p_, out->integer).ec == std::errc();
        if (std::from_chars(start, p_, out->number).ec == std::errc()) return true;
        if (is_above_one(whole, whole_end, mantissa_end)) return refuse("a number is too large");
        out->number = *start == '-' ? -0.0 : 0.0;
        return true;
    }

    void skip_digits() {
        while (is_digit()) p_++;
    }

    // For a number that from_chars finds out of range (above 1e308, or not zero and below 1e-323): which of the two. The number ends at p_.
    bool is_above_one(const char *whole, const char *whole_end, const char *mantissa_end) const {
        int64_t exponent = 0;
        if (mantissa_end < p_) {
            const char *digits = mantissa_end + 1;
            if (*digits == '+') digits++;
            if (std::from_chars(digits, p_, exponent).ec != std::errc()) return *digits != '-';
        }
        int64_t leading = whole_end - whole; // digits before the point, or minus the zeros behind it
        if (*whole == '0') {
            const char *q = whole_end + 1;
            for (leading = 0; q < mantissa_end && *q == '0'; q++) leading--;
        }
        return exponent > -leading;
    }
};

// Parses n_bytes of text. On failure returns false, *error (if not null) says where and why, and *out is null. Memory stays below a few hundred bytes for each
// byte of text.
inline bool parse(const char *text, size_t n_bytes, value *out, std::string *error) {
    *out = value();
    parser p(text, n_bytes);
    if (p.document(out)) return true;
    *out = value();
    if (error) *error = p.explain();
    return false;
}

// ---- writing ----

// Appends text as a JSON string with its quotes. Each invalid UTF-8 sequence becomes U+FFFD.
inline void append_string(std::string *out, std::string_view text) {
    static const char HEX[] = "0123456789abcdef";
    const char *p = text.data(), *end = p + text.size();
    out->push_back('"');
    while (p < end) {
        bool valid;
        const size_t n = utf8_step(p, end, &valid);
        const unsigned char c = static_cast<unsigned char>(*p);
        if (!valid) {
            append_utf8(out, 0xFFFD);
        } else if (c == '"' || c == '\\') {
            out->push_back('\\');
            out->push_back(*p);
        } else if (c == '\n') {
            out->append("\\n");
        } else if (c < 0x20 || c == 0x7F) {
            out->append("\\u00");
            out->push_back(HEX[c >> 4]);
            out->push_back(HEX[c & 15]);
        } else {
            out->append(p, n);
        }
        p += n;
    }
    out->push_back('"');
}

// Appends a number in the shortest form that reads back as the same float, double or integer. JSON has no NaN and no infinity: they become null.
template <class number> void append_number(std::string *out, number x) {
    if (!(x - x == 0)) {
        out->append("null");
        return;
    }
    char text[40];
    const std::to_chars_result r = std::to_chars(text, text + sizeof text, x);
    out->append(text, r.ptr);
}

} // namespace json
} // namespace sq

#endif
