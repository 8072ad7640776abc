// convert/report-json.cpp - the report as JSON; report.h says what the fields mean.
#include <initializer_list>
#include <utility>

#include "json.h"
#include "report-channels.h"
#include "report.h"

namespace sq {

namespace {

// ---- JSON text of values ----

std::string text(const std::string &bytes) {
    std::string out;
    json::append_string(&out, bytes);
    return out;
}

template <class T> std::string number(T x) {
    std::string out;
    json::append_number(&out, x);
    return out;
}

std::string joined(const std::vector<std::string> &values, const char *between) {
    std::string out;
    for (const std::string &v : values) out += (&v == &values[0] ? "" : between) + v;
    return out;
}

std::string object(std::initializer_list<std::pair<const char *, std::string>> members, const char *between = ", ") {
    std::vector<std::string> all;
    for (const auto &[key, value] : members) all.push_back(text(key) + ": " + value);
    return "{" + joined(all, between) + "}";
}

// Each on its own line
std::string array(const std::vector<std::string> &values) { return values.empty() ? "[]" : "[\n  " + joined(values, ",\n  ") + "]"; }

std::string numbers(const std::vector<float> &x) {
    std::vector<std::string> all;
    for (float v : x) all.push_back(number(v));
    return "[" + joined(all, ",") + "]";
}

// ---- parts of the report ----

std::string calibration_of(const convert_options &options, const convert_result &r) {
    if (r.layers.empty()) return "null";
    const bool is_file = !options.calibration_file.empty();
    return object({{"source", text(is_file ? options.calibration_file : "built-in")},
                   {"crc32", is_file && !r.calibration_source.empty() ? text(r.calibration_source) : "null"},
                   {"texts", number(r.n_texts)},
                   {"tokens", number(r.n_tokens)}});
}

std::string budget_of(const budget &b) {
    if (!b.is_wanted()) return "null";
    return object({{"cosine", b.cos > 0 ? number(b.cos) : "null"}, {"kl", b.kl > 0 ? number(b.kl) : "null"}});
}

std::string held_back(const agreement &a) {
    if (a.n_texts == 0) return "null";
    return object({{"texts", number(a.n_texts)},
                   {"cosine_lowest", number(a.cos_lowest)},
                   {"cosine_mean", number(a.cos_mean)},
                   {"kl_mean", a.has_logits ? number(a.kl_mean) : "null"},
                   {"kl_highest", a.has_logits ? number(a.kl_highest) : "null"}});
}

std::string summary(const magnitudes &m) { return object({{"median", number(m.median)}, {"outliers", number(m.n_outliers)}}); }

std::string linear_layer(const layer_report &l) {
    const channel_figures f = channels_of(l);
    std::vector<std::string> largest;
    for (const channel &c : f.largest) largest.push_back(number(c.index));
    return object({{"layer", number(l.layer)},
                   {"part", text(ROLE_NAMES[l.role])},
                   {"form", text(form_of(l))},
                   {"smoothing", text(l.chosen.smoothing)},
                   {"clip", number(l.chosen.clip)},
                   {"error_without_smoothing", number(l.chosen.plain_error)},
                   {"error", number(l.chosen.error)},
                   {"before", summary(f.before)},
                   {"after", f.has_after ? summary(f.after) : "null"},
                   {"largest", "[" + joined(largest, ",") + "]"},
                   {"channels", object({{"lo", numbers(l.lo)}, {"hi", numbers(l.hi)}, {"factor", numbers(l.chosen.s)}})}});
}

} // namespace

std::string report_json(const convert_options &options, const convert_result &r) {
    std::vector<std::string> steps, attention, linear;
    for (const budget_step &s : r.steps)
        steps.push_back(object({{"layer", number(s.layer)}, {"part", text(s.part)}, {"form", text(s.form)}, {"held_back", held_back(s.after)}}));
    for (size_t i = 0; i < r.attention.size(); i++)
        attention.push_back(object({{"layer", number(i)}, {"form", text(r.attention[i].weights)}, {"clip", number(r.attention[i].clip)}, {"error", number(r.attention[i].error)}}));
    for (const layer_report &l : r.layers) linear.push_back(linear_layer(l));
    return object({{"sq", text(sq_version_string())},
                   {"checkpoint", text(options.checkpoint)},
                   {"synthetic", options.synthetic ? "true" : "false"},
                   {"model", text(r.description)},
                   {"output", text(options.output)},
                   {"mode", text(mode_of(options))},
                   {"calibration", calibration_of(options, r)},
                   {"held_back", held_back(r.result)},
                   {"budget", budget_of(options.budget)},
                   {"before_budget", held_back(r.before_budget)},
                   {"budget_steps", array(steps)},
                   {"attention", array(attention)},
                   {"linear_layers", array(linear)}},
                  ",\n") +
           "\n";
}

} // namespace sq
