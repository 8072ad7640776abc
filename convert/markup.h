// convert/markup.h - text of HTML and SVG elements, well-formed as XML too: escaped text, quoted attributes, closed tags.
#ifndef SQ_CONVERT_MARKUP_H
#define SQ_CONVERT_MARKUP_H

#include <stdio.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "json.h"

namespace sq {
namespace markup {

// Any bytes as text of an element or an attribute. Invalid UTF-8 and what XML forbids (control characters, U+FFFE, U+FFFF) become U+FFFD.
inline std::string escaped(std::string_view text) {
    std::string out;
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
        bool valid;
        const size_t n = json::utf8_step(p, end, &valid);
        const std::string_view c(p, n);
        const auto byte = [&](size_t i) { return static_cast<unsigned char>(c[i]); };
        const bool is_control = byte(0) < 0x20 || byte(0) == 0x7F || (byte(0) == 0xC2 && n == 2 && byte(1) < 0xA0);
        if (!valid || is_control || c == "\xEF\xBF\xBE" || c == "\xEF\xBF\xBF") out += "\xEF\xBF\xBD";
        else if (c == "&") out += "&amp;";
        else if (c == "<") out += "&lt;";
        else if (c == ">") out += "&gt;";
        else if (c == "\"") out += "&quot;";
        else out += c;
        p += n;
    }
    return out;
}

// With so many digits after the point; "n/a" if it is not finite
inline std::string fixed(double x, int digits) {
    if (!(x - x == 0)) return "n/a";
    char text[400]; // the largest double has 309 digits before the point
    snprintf(text, sizeof text, "%.*f", digits, x);
    return text;
}

// A coordinate of a picture
inline std::string place(double x) { return fixed(x, 1); }

struct attribute {
    const char *name;
    std::string value; // as it is, not yet escaped
};
using attributes = std::initializer_list<attribute>;

inline std::string tag_start(const char *name, attributes list) {
    std::string out = std::string("<") + name;
    for (const attribute &a : list) out += std::string(" ") + a.name + "=\"" + escaped(a.value) + "\"";
    return out;
}

// content is markup: other elements, or `escaped` text.
inline std::string tag(const char *name, attributes list, const std::string &content) { return tag_start(name, list) + ">" + content + "</" + name + ">"; }
inline std::string tag(const char *name, const std::string &content) { return tag(name, {}, content); }
inline std::string empty_tag(const char *name, attributes list) { return tag_start(name, list) + "/>"; }

} // namespace markup
} // namespace sq

#endif
