// tests/fuzz/fuzz-json.cpp - any bytes through the JSON parser; what it accepts is written again and must read back as the same tree.
#include <stdlib.h>

#include <cmath>
#include <string>

#include "../../convert/json.h"

using namespace sq;

static void write(const json::value &v, std::string *out) {
    switch (v.type) {
    case json::kind::null: *out += "null"; break;
    case json::kind::boolean: *out += v.boolean ? "true" : "false"; break;
    case json::kind::number: // "-0" is an integer whose sign only `number` has
        v.is_integer && (v.integer != 0 || !std::signbit(v.number)) ? json::append_number(out, v.integer) : json::append_number(out, v.number);
        break;
    case json::kind::string: json::append_string(out, v.text); break;
    case json::kind::array:
        *out += '[';
        for (const json::value &item : v.items) {
            if (&item != &v.items[0]) *out += ',';
            write(item, out);
        }
        *out += ']';
        break;
    case json::kind::object:
        *out += '{';
        for (const json::member &m : v.members) {
            if (&m != &v.members[0]) *out += ',';
            json::append_string(out, m.key);
            *out += ':';
            write(m.item, out);
        }
        *out += '}';
        break;
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    json::value v;
    std::string error;
    if (!json::parse(reinterpret_cast<const char *>(data), n_bytes, &v, &error)) {
        if (error.empty()) abort();
        return 0;
    }
    std::string once, twice;
    write(v, &once);
    if (!json::parse(once.data(), once.size(), &v, &error)) abort();
    write(v, &twice);
    if (once != twice) abort();
    return 0;
}
