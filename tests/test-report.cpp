// tests/test-report.cpp - the reports of a conversion: JSON holds the result's numbers, the page shows them and is harmless and small, and bad places for them are
// refused.
#include <math.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "../convert/json.h"
#include "../convert/markup.h"
#include "../convert/report-channels.h"
#include "../convert/report.h"
#include "check.h"
#include "scratch.h"

using namespace sq;

// Largest magnitudes 1, 2, 2, 3, 24 before and 1, 2, 2, 3, 6 after smoothing: the median is 2, and channel 3 reaches 12 medians, then 3.
static layer_report layer_with_outlier(uint32_t layer, linear_role role) {
    layer_report l;
    l.layer = layer;
    l.role = role;
    l.lo = {-1, 0, -2, -24, 0};
    l.hi = {0.5f, 2, 1, 3, 3};
    l.chosen.s = {1, 1, 1, 4, 1};
    l.chosen.smoothing = "strength 0.7";
    l.chosen.clip = 0.875f;
    l.chosen.plain_error = 0.25 + role;
    l.chosen.error = 0.0123 + layer;
    return l;
}

static convert_result small_result() {
    convert_result r;
    r.description = "BERT, 2 layers, 5 wide, 1 heads, vocabulary of 9";
    r.calibration_source = "0badcafe";
    r.n_texts = 7, r.n_tokens = 91;
    r.before_budget = {3, 0.91, 0.95, true, 0.5, 0.75};
    r.result = {3, 0.9934, 0.9977, true, 0.001, 0.002};
    r.steps = {{1, "attention", "float", {3, 0.915, 0.955, true, 0.5, 0.7}}, {1, "down", "float", {3, 0.92, 0.96, true, 0.25, 0.5}}};
    for (uint32_t layer : {0u, 1u})
        for (linear_role role : {QKV, OUT, UP, DOWN}) r.layers.push_back(layer_with_outlier(layer, role));
    r.layers[1].chosen.is_dynamic = true;
    r.layers[7].is_float = true;
    r.attention = {{"8 bits", 0.75f, 0.0078}, {"f32", 1, 0.21}};
    return r;
}

static const std::string HOSTILE = "models/\"<script>alert(1)</script>&\xff\xc3(\x01'";

static convert_options small_options() {
    convert_options o;
    o.checkpoint = HOSTILE;
    o.output = "out.sq";
    o.calibration_file = "texts.txt";
    o.budget.cos = 0.996;
    return o;
}

static bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

// ---- JSON ----

static json::value parsed(const std::string &text) {
    json::value v;
    std::string error;
    if (!CHECK(json::parse(text.data(), text.size(), &v, &error))) fprintf(stderr, "  %s\n", error.c_str());
    return v;
}

// The member at a path of keys; a null value after a failed check.
static const json::value &at(const json::value &v, std::initializer_list<const char *> keys) {
    static const json::value NONE;
    const json::value *p = &v;
    for (const char *key : keys)
        if (p) p = p->find(key);
    return CHECK(p) ? *p : NONE;
}

static void check_agreement(const json::value &v, const agreement &a) {
    CHECK_EQ(at(v, {"texts"}).integer, a.n_texts);
    CHECK_EQ(at(v, {"cosine_lowest"}).number, a.cos_lowest);
    CHECK_EQ(at(v, {"cosine_mean"}).number, a.cos_mean);
    CHECK_EQ(at(v, {"kl_mean"}).number, a.kl_mean);
    CHECK_EQ(at(v, {"kl_highest"}).number, a.kl_highest);
}

static void check_floats(const json::value &v, const std::vector<float> &expected) {
    if (!CHECK_EQ(v.items.size(), expected.size())) return;
    for (size_t i = 0; i < expected.size(); i++) CHECK_EQ(static_cast<float>(v.items[i].number), expected[i]);
}

static void check_linear(const json::value &v, const layer_report &l, const char *part, const char *form) {
    CHECK_EQ(at(v, {"layer"}).integer, l.layer);
    CHECK_EQ(at(v, {"part"}).text, part);
    CHECK_EQ(at(v, {"form"}).text, form);
    CHECK_EQ(at(v, {"smoothing"}).text, l.chosen.smoothing);
    CHECK_EQ(static_cast<float>(at(v, {"clip"}).number), l.chosen.clip);
    CHECK_EQ(at(v, {"error_without_smoothing"}).number, l.chosen.plain_error);
    CHECK_EQ(at(v, {"error"}).number, l.chosen.error);
    CHECK_EQ(at(v, {"before", "median"}).number, 2);
    CHECK_EQ(at(v, {"before", "outliers"}).integer, 1);
    CHECK_EQ(at(v, {"after"}).is_null(), l.role == OUT);
    if (l.role != OUT) {
        CHECK_EQ(at(v, {"after", "median"}).number, 2);
        CHECK_EQ(at(v, {"after", "outliers"}).integer, 0);
    }
    check_floats(at(v, {"largest"}), {3, 4, 1, 2, 0});
    check_floats(at(v, {"channels", "lo"}), l.lo);
    check_floats(at(v, {"channels", "hi"}), l.hi);
    check_floats(at(v, {"channels", "factor"}), l.chosen.s);
}

static void test_json() {
    const convert_result r = small_result();
    const json::value v = parsed(report_json(small_options(), r));
    CHECK_EQ(at(v, {"checkpoint"}).text, "models/\"<script>alert(1)</script>&\xEF\xBF\xBD\xEF\xBF\xBD(\x01'");
    CHECK_EQ(at(v, {"model"}).text, r.description);
    CHECK_EQ(at(v, {"mode"}).text, "static");
    CHECK_EQ(at(v, {"calibration", "source"}).text, "texts.txt");
    CHECK_EQ(at(v, {"calibration", "crc32"}).text, "0badcafe");
    CHECK_EQ(at(v, {"calibration", "texts"}).integer, 7);
    CHECK_EQ(at(v, {"calibration", "tokens"}).integer, 91);
    check_agreement(at(v, {"held_back"}), r.result);
    CHECK_EQ(at(v, {"budget", "cosine"}).number, 0.996);
    CHECK(at(v, {"budget", "kl"}).is_null());
    check_agreement(at(v, {"before_budget"}), r.before_budget);
    if (CHECK_EQ(at(v, {"budget_steps"}).items.size(), 2)) {
        CHECK_EQ(at(at(v, {"budget_steps"}).items[0], {"part"}).text, "attention");
        const json::value &step = at(v, {"budget_steps"}).items[1];
        CHECK_EQ(at(step, {"layer"}).integer, 1);
        CHECK_EQ(at(step, {"part"}).text, "down");
        CHECK_EQ(at(step, {"form"}).text, "float");
        check_agreement(at(step, {"held_back"}), r.steps[1].after);
    }
    if (CHECK_EQ(at(v, {"attention"}).items.size(), 2)) {
        CHECK_EQ(at(at(v, {"attention"}).items[0], {"form"}).text, "8 bits");
        CHECK_EQ(at(at(v, {"attention"}).items[0], {"clip"}).number, 0.75);
        CHECK_EQ(at(at(v, {"attention"}).items[1], {"layer"}).integer, 1);
        CHECK_EQ(at(at(v, {"attention"}).items[1], {"error"}).number, 0.21);
    }
    const std::vector<json::value> &linear = at(v, {"linear_layers"}).items;
    if (!CHECK_EQ(linear.size(), 8)) return;
    check_linear(linear[0], r.layers[0], "qkv", "static");
    check_linear(linear[1], r.layers[1], "out", "dynamic");
    check_linear(linear[7], r.layers[7], "down", "float");
}

static bool is_all_finite(const json::value &v) {
    bool good = !v.is_number() || isfinite(v.number);
    for (const json::value &item : v.items) good = good && is_all_finite(item);
    for (const json::member &m : v.members) good = good && is_all_finite(m.item);
    return good;
}

// Channels that are always 0, errors that are not finite, no channels at all
static void test_odd_numbers() {
    convert_result r = small_result();
    r.layers[0].chosen.error = NAN;
    r.layers[0].chosen.plain_error = HUGE_VAL;
    r.layers[1].chosen.error = r.layers[1].chosen.plain_error = 0;
    r.layers[2].lo = r.layers[2].hi = {0, 0, 0, 0, 1};
    r.layers[3].lo = r.layers[3].hi = r.layers[3].chosen.s = {};
    r.layers[4].hi[0] = std::numeric_limits<float>::infinity();
    r.attention[0].error = NAN;
    r.result = agreement();
    const std::string text = report_json(small_options(), r);
    const json::value v = parsed(text);
    CHECK(is_all_finite(v));
    CHECK(at(v, {"held_back"}).is_null());
    CHECK(at(at(v, {"linear_layers"}).items[0], {"error"}).is_null());
    CHECK_EQ(at(at(v, {"linear_layers"}).items[2], {"before", "outliers"}).integer, 1); // beside a median of 0
    CHECK_EQ(at(at(v, {"linear_layers"}).items[3], {"before", "median"}).number, 0);
    const std::string page = report_html(small_options(), r);
    for (const char *bad : {"nan", "inf%", ">inf", "inf,", ",inf", "\"inf"}) CHECK(!has(page, bad));
    CHECK(has(page, "Nothing was held back"));
}

// ---- the page ----

static void check_harmless(const std::string &page) {
    for (const char *bad : {"<script", "http:", "https:", "src=", "href=", "url(", "@import", "\xff"}) CHECK(!has(page, bad));
    bool is_utf8 = true;
    for (const char *p = page.data(), *end = p + page.size(); p < end && is_utf8;) p += json::utf8_step(p, end, &is_utf8);
    CHECK(is_utf8);
}

static void test_page() {
    const std::string page = report_html(small_options(), small_result());
    check_harmless(page);
    CHECK(has(page, "&lt;script&gt;alert(1)&lt;/script&gt;&amp;\xEF\xBF\xBD\xEF\xBF\xBD(\xEF\xBF\xBD'"));
    for (const char *expected : {"BERT, 2 layers, 5 wide", "7 texts, 91 tokens, of texts.txt (CRC-32 0badcafe)", "mean cosine of at least 0.996",
                                 "before the budget's steps", "layer 1 attention made float", "layer 1 down made float", "0.99340", "0.99770", "0.001", "Of 8 linear layers 6 are static INT8, 1 dynamic INT8 and 1 float.", "101.230 % (layer 1 qkv)"})
        if (!CHECK(has(page, expected))) fprintf(stderr, "  %s\n", expected);
    // Layer 0's qkv and attention in the table of errors, its outlier among the channels
    CHECK(has(page, "<td>strength 0.7</td><td class=\"n\">0.88</td><td class=\"n\">25.000 %</td><td class=\"n\">1.230 %</td>"));
    CHECK(has(page, "<td>integers, weights of 8 bits</td><td></td><td class=\"n\">0.75</td><td class=\"n\">-</td><td class=\"n\">0.780 %</td>"));
    CHECK(has(page, "<th scope=\"row\">3</th><td class=\"n\">-24</td><td class=\"n\">3</td><td class=\"n worse\">12.0x</td><td class=\"n\">4</td><td class=\"n\">3.0x</td>"));
    CHECK(has(page, "Median channel up to 2, 1 outlier; after smoothing up to 2, 0 outliers."));
}

static void test_float() {
    convert_options o = small_options();
    o.mode = quant_mode::none;
    convert_result r;
    r.description = "BERT";
    const std::string page = report_html(o, r);
    check_harmless(page);
    CHECK(has(page, "nothing was quantised"));
    CHECK(!has(page, "<svg"));
    const json::value v = parsed(report_json(o, r));
    CHECK_EQ(at(v, {"mode"}).text, "float");
    CHECK(at(v, {"calibration"}).is_null());
    CHECK(at(v, {"linear_layers"}).items.empty());
}

// BERT-large's shape: every curve and every number of the largest channels differ.
static void test_size() {
    constexpr size_t MOST_BYTES = 1 << 20;
    convert_result r = small_result();
    r.layers.clear();
    r.attention.assign(24, r.attention[0]);
    uint64_t random = 1;
    for (uint32_t layer = 0; layer < 24; layer++)
        for (linear_role role : {QKV, OUT, UP, DOWN}) {
            layer_report l = layer_with_outlier(layer, role);
            const size_t k = role == DOWN ? 4096 : 1024;
            l.lo.resize(k), l.hi.resize(k), l.chosen.s.resize(k);
            for (size_t j = 0; j < k; j++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                const float x = static_cast<float>(random >> 40) / 16777216;
                l.lo[j] = -1 / (x + 1e-3f), l.hi[j] = x * 3, l.chosen.s[j] = 0.1f + x;
            }
            r.layers.push_back(l);
        }
    const size_t size = report_html(small_options(), r).size();
    if (!CHECK(size < MOST_BYTES)) fprintf(stderr, "  %zu bytes\n", size);
}

static void test_escaping() {
    CHECK_EQ(markup::escaped("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c'");
    CHECK_EQ(markup::escaped("\xC3\xA4\xE5\xA4\xA7\xF0\x9F\x98\x80"), "\xC3\xA4\xE5\xA4\xA7\xF0\x9F\x98\x80");
    const std::string replaced = "\xEF\xBF\xBD";
    for (const char *bad : {"\x01", "\x1b", "\x7f", "\xC2\x85", "\xff", "\xED\xA0\x80", "\xEF\xBF\xBE", "\xC3"}) CHECK_EQ(markup::escaped(bad).compare(0, 3, replaced), 0);
    CHECK_EQ(markup::escaped(std::string(1, '\0')), replaced);
}

// ---- where reports go ----

static void test_places() {
    scratch s;
    s.put("checkpoint/config.json", "{}");
    s.put("texts.txt", "a");
    s.put("old.sq", "old");
    CHECK_EQ(symlink((s.path + "/texts.txt").c_str(), (s.path + "/link").c_str()), 0);
    convert_options o = small_options();
    o.checkpoint = s.path + "/checkpoint";
    o.calibration_file = s.path + "/texts.txt";
    o.output = s.path + "/new.sq";
    message why;
    const auto status = [&](std::vector<std::string> names) {
        for (std::string &name : names) name = s.path + "/" + name;
        return check_reports(names, o, &why);
    };
    CHECK_EQ(status({}), SQ_OK);
    CHECK_EQ(status({"r.html", "r.json"}), SQ_OK);
    CHECK_EQ(status({"r.html", "checkpoint/../r.html"}), SQ_E_ARG);
    CHECK_EQ(status({"new.sq"}), SQ_E_ARG);
    CHECK_EQ(status({"texts.txt"}), SQ_E_ARG);
    CHECK_EQ(status({"link"}), SQ_E_ARG);
    CHECK_EQ(status({"checkpoint/config.json"}), SQ_E_ARG);
    CHECK_EQ(status({"checkpoint"}), SQ_E_IO);
    CHECK_EQ(status({"missing/r.html"}), SQ_E_IO);
    CHECK(has(why.text, "missing/r.html"));
    CHECK_EQ(status({std::string(255, 'x')}), SQ_E_IO); // the temporary name beside it would be too long
    o.output = s.path + "/old.sq";
    CHECK_EQ(status({"old.sq"}), SQ_E_ARG);
    CHECK_EQ(check_reports({"/dev/null", "/dev/null"}, o, &why), SQ_OK);

    // Checked places stay as they were; written ones are whole.
    size_t n_files = 0;
    for (const std::string &path : files_in(s.path)) n_files += path.find("/.") == std::string::npos;
    CHECK_EQ(n_files, 4);
    s.put("r.json", "old");
    CHECK_EQ(write_report(s.path + "/r.json", o, small_result(), &why), SQ_OK);
    std::ifstream in(s.path + "/r.json");
    const std::string written((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    CHECK_EQ(written, report_json(o, small_result()));
    CHECK_EQ(write_report("/dev/full", o, small_result(), &why), SQ_E_IO);
}

int main() {
    test_json();
    test_odd_numbers();
    test_page();
    test_float();
    test_size();
    test_escaping();
    test_places();
    return check_summary("test-report");
}
