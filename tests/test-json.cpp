// tests/test-json.cpp - convert/json.h: what it accepts, what it refuses and where, what it writes. Expected values by Python 3.11's json and by RFC 8259.
#include <stdint.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "../convert/json.h"
#include "check.h"

using namespace sq;

static bool reads(const std::string &text, json::value *out) { return json::parse(text.data(), text.size(), out, nullptr); }

static std::string refusal(const std::string &text) {
    json::value v;
    std::string error;
    CHECK(!json::parse(text.data(), text.size(), &v, &error));
    CHECK(v.is_null());
    return error;
}

static std::string text_of(const std::string &text) {
    json::value v;
    CHECK(reads(text, &v) && v.is_string());
    return v.text;
}

static void test_values() {
    json::value v;
    CHECK(reads(" {\"a\": [1, -2.5, true, false, null, \"x\"], \"b\": {}, \"\": [] }\r\n\t", &v) && v.is_object());
    CHECK_EQ(v.members.size(), size_t(3));
    CHECK_EQ(v.members[0].key, "a");
    CHECK_EQ(v.members[2].key, "");
    const json::value *a = v.find("a");
    if (!CHECK(a && a->is_array() && a->items.size() == 6)) return;
    CHECK(a->items[0].is_integer && a->items[0].integer == 1 && a->items[0].number == 1);
    CHECK(!a->items[1].is_integer && a->items[1].number == -2.5);
    CHECK(a->items[2].is_bool() && a->items[2].boolean);
    CHECK(a->items[3].is_bool() && !a->items[3].boolean);
    CHECK(a->items[4].is_null());
    CHECK(a->items[5].is_string() && a->items[5].text == "x");
    CHECK(v.find("b") && v.find("b")->is_object() && v.find("b")->members.empty());
    CHECK(!v.find("c") && !a->find("a"));
}

static void test_repeated_keys() {
    json::value v;
    CHECK(reads("{\"k\":1,\"a\":2,\"k\":3,\"b\":4,\"a\":5,\"k\":6}", &v));
    if (!CHECK_EQ(v.members.size(), size_t(3))) return;
    CHECK(v.members[0].key == "k" && v.members[0].item.integer == 6);
    CHECK(v.members[1].key == "a" && v.members[1].item.integer == 5);
    CHECK(v.members[2].key == "b" && v.members[2].item.integer == 4);
}

static void test_numbers() {
    struct {
        const char *text;
        bool is_integer;
        int64_t integer;
        double number;
    } const cases[] = {
        {"0", true, 0, 0.0},
        {"-0", true, 0, -0.0},
        {"9223372036854775807", true, INT64_MAX, 9223372036854775807.0},
        {"-9223372036854775808", true, INT64_MIN, -9223372036854775808.0},
        {"9223372036854775808", false, 0, 9223372036854775808.0},
        {"1000000000000000019884624838656", false, 0, 1e30}, // what transformers writes for "no limit"
        {"1e2", false, 0, 100},
        {"1E+2", false, 0, 100},
        {"0.1", false, 0, 0.1},
        {"1e-12", false, 0, 1e-12},
        {"5e-324", false, 0, 5e-324},
        {"1.7976931348623157e308", false, 0, std::numeric_limits<double>::max()},
        {"1e-400", false, 0, 0},
        {"-1e-400", false, 0, -0.0},
        {"0e99999999999999999999", false, 0, 0},
        {"1e-99999999999999999999", false, 0, 0},
        {"0.00000000000000000001e-310", false, 0, 0},
    };
    for (const auto &c : cases) {
        json::value v;
        CHECK(reads(c.text, &v) && v.is_number());
        CHECK_EQ(v.is_integer, c.is_integer);
        if (c.is_integer) CHECK_EQ(v.integer, c.integer);
        CHECK_EQ(v.number, c.number);
        CHECK_EQ(std::signbit(v.number), std::signbit(c.number));
    }
    const std::string zeros(400, '0');
    json::value v;
    CHECK(reads("0." + zeros + "1", &v) && v.number == 0);
    CHECK(reads("0." + zeros + "1e400", &v) && v.number == 0.1);
    CHECK(reads("1" + zeros + "e-400", &v) && v.number == 1);
}

static void test_strings() {
    CHECK_EQ(text_of("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""), "\"\\/\b\f\n\r\t");
    CHECK_EQ(text_of("\"\\u0041\\u00e9\\u20AC\""), "A\xC3\xA9\xE2\x82\xAC");
    CHECK_EQ(text_of("\"\\ud83d\\ude42\""), "\xF0\x9F\x99\x82");
    CHECK_EQ(text_of("\"\\uDBFF\\uDFFF\""), "\xF4\x8F\xBF\xBF");
    CHECK_EQ(text_of("\"a\\u0000b\""), std::string("a\0b", 3));
    CHECK_EQ(text_of("\"\x7F\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\""), "\x7F\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80");
}

static void test_refusals() {
    struct {
        const char *text, *error;
    } const cases[] = {
        {"", "line 1, column 1: the text ends where a value should be"},
        {" \n ", "line 2, column 2: the text ends"},
        {"[1,]", "column 4: no JSON value starts so"},
        {"[1 2]", "column 4: a comma or ] is missing"},
        {"[", "the text ends"},
        {"[1", "a comma or ]"},
        {"{\"a\":1,}", "column 8: a key in quotes"},
        {"{a:1}", "a key in quotes"},
        {"{\"a\" 1}", "a colon"},
        {"{\"a\":1 \"b\":2}", "a comma or }"},
        {"{\n\"a\":\n tru}", "line 3, column 2: no JSON value starts so"},
        {"nul", "no JSON value starts so"},
        {"NaN", "no JSON value starts so"},
        {"Infinity", "no JSON value starts so"},
        {"-Infinity", "a digit is missing"},
        {"+1", "no JSON value starts so"},
        {"01", "a number may not start with a zero"},
        {"-01", "a number may not start with a zero"},
        {".5", "no JSON value starts so"},
        {"1.", "a digit is missing"},
        {"1.e5", "a digit is missing"},
        {"1e", "a digit is missing"},
        {"1e+", "a digit is missing"},
        {"1e400", "a number is too large"},
        {"-0.1e99999999999999999999", "a number is too large"},
        {"1 2", "column 3: something follows the value"},
        {"{} // note", "something follows the value"},
        {"'a'", "no JSON value starts so"},
        {"\"a", "the text ends inside a string"},
        {"\"a\\", "the text ends inside a string"},
        {"\"a\nb\"", "column 3: a control character"},
        {"\"\\x41\"", "unknown escape"},
        {"\"\\u12\"", "four hexadecimal digits"},
        {"\"\\u-123\"", "four hexadecimal digits"},
        {"\"\\u+123\"", "four hexadecimal digits"},
        {"\"\\u12g4\"", "four hexadecimal digits"},
        {"\"\\ud83d\"", "half of a surrogate pair"},
        {"\"\\ude42\"", "half of a surrogate pair"},
        {"\"\\ud83d\\u0041\"", "half of a surrogate pair"},
        {"\"\xFF\"", "not valid UTF-8"},
        {"\"\x80\"", "not valid UTF-8"},
        {"\"\xC0\x80\"", "not valid UTF-8"},
        {"\"\xC1\xBF\"", "not valid UTF-8"},
        {"\"\xE0\x9F\xBF\"", "not valid UTF-8"},
        {"\"\xED\xA0\x80\"", "not valid UTF-8"},
        {"\"\xF0\x8F\xBF\xBF\"", "not valid UTF-8"},
        {"\"\xF4\x90\x80\x80\"", "not valid UTF-8"},
        {"\"\xE2\x82\"", "not valid UTF-8"},
        {"\xEF\xBB\xBF{}", "line 1, column 1: no JSON value starts so"}, // byte order mark
    };
    for (const auto &c : cases) {
        const std::string error = refusal(c.text);
        if (!CHECK(error.find(c.error) != std::string::npos)) fprintf(stderr, "  %s: %s\n", c.text, error.c_str());
    }
    CHECK(!refusal(std::string("[1,\0 2]", 7)).empty());
}

static void test_depth() {
    const auto nested = [](size_t depth, const char *open, const char *close) {
        std::string text;
        for (size_t i = 0; i < depth; i++) text += open;
        text += "1";
        for (size_t i = 0; i < depth; i++) text += close;
        return text;
    };
    json::value v;
    CHECK(reads(nested(json::MAX_DEPTH, "[", "]"), &v));
    CHECK(reads(nested(json::MAX_DEPTH, "{\"a\":", "}"), &v));
    CHECK(refusal(nested(json::MAX_DEPTH + 1, "[", "]")).find("nested too deeply") != std::string::npos);
    CHECK(refusal(nested(1000000, "{\"a\":[", "]}")).find("nested too deeply") != std::string::npos);
}

// Every prefix of a good text is refused, from a buffer of just that size, so that a sanitizer sees reads past its end.
static void test_truncation() {
    const std::string text = "{\"a\\u00e9\xC3\xA9\": [1.5e-3, true, false, null, \"\\ud83d\\ude42\"], \"b\": {\"c\": -12}}";
    json::value v;
    CHECK(reads(text, &v));
    for (size_t n = 0; n < text.size(); n++) {
        const std::vector<char> exact(text.begin(), text.begin() + static_cast<ptrdiff_t>(n));
        CHECK(!json::parse(exact.data(), exact.size(), &v, nullptr));
    }
}

static void test_writing() {
    std::string out;
    json::append_string(&out, std::string("q\" b\\ n\n t\t z\0 \x7F e\xC3\xA9", 20));
    CHECK_EQ(out, "\"q\\\" b\\\\ n\\n t\\u0009 z\\u0000 \\u007f e\xC3\xA9\"");
    // Maximal subparts: E2 82 is one, each of C0 80 is one, F0 9F 99 is one.
    out.clear();
    json::append_string(&out, "a\xE2\x82" "b\xC0\x80" "c\xF0\x9F\x99");
    CHECK_EQ(out, "\"a\xEF\xBF\xBD" "b\xEF\xBF\xBD\xEF\xBF\xBD" "c\xEF\xBF\xBD\"");
    const auto number = [](auto x) {
        std::string s;
        json::append_number(&s, x);
        return s;
    };
    CHECK_EQ(number(0.1f), "0.1");
    CHECK_EQ(number(1.0f / 3), "0.33333334");
    CHECK_EQ(number(1.0 / 3), "0.3333333333333333");
    CHECK_EQ(number(1e-12), "1e-12");
    CHECK_EQ(number(int64_t(-5)), "-5");
    CHECK_EQ(number(UINT64_MAX), "18446744073709551615");
    CHECK_EQ(number(std::numeric_limits<float>::quiet_NaN()), "null");
    CHECK_EQ(number(-std::numeric_limits<double>::infinity()), "null");
    json::value v;
    CHECK(reads(number(3.4028235e38f), &v) && static_cast<float>(v.number) == 3.4028235e38f);
}

// A text like the vocabulary of XLM-R, 10 MB. No bound on the time: printed for people.
static void test_large() {
    std::string text = "{\"vocab\":[";
    const size_t n = 300000;
    for (size_t i = 0; i < n; i++) text += (i ? ",[\"\xE2\x96\x81token" : "[\"\xE2\x96\x81token") + std::to_string(i) + "\",-" + std::to_string(i % 17) + ".0123]";
    text += "]}";
    const auto t0 = std::chrono::steady_clock::now();
    json::value v;
    CHECK(reads(text, &v));
    printf("%zu bytes in %.3f s\n", text.size(), std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
    const json::value *vocab = v.find("vocab");
    CHECK(vocab && vocab->items.size() == n && vocab->items[n - 1].items[0].text == "\xE2\x96\x81token299999");
}

int main() {
    test_values();
    test_repeated_keys();
    test_numbers();
    test_strings();
    test_refusals();
    test_depth();
    test_truncation();
    test_writing();
    test_large();
    return check_summary("test-json");
}
