// convert/report-html.cpp - the report as one page of HTML: what was converted, how near it comes to the float model, and layer by layer why.
#include <stdio.h>

#include <algorithm>
#include <cmath>

#include "markup.h"
#include "report-channels.h"
#include "report-charts.h"
#include "report.h"

namespace sq {

namespace {

using namespace markup;

// No load can be caused by the page, even by one that escaping let through.
const char POLICY[] = "default-src 'none'; style-src 'unsafe-inline'";

const char STYLE[] =
    "body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:960px;margin:2em auto;padding:0 1em}"
    "h1{font-size:1.7em;line-height:1.2;overflow-wrap:anywhere}h2{font-size:1.25em;margin:2em 0 .4em;border-bottom:1px solid #ccc}"
    "h3{font-size:1em;margin:1.6em 0 .4em}h4{font-size:.9em;margin:0}p{margin:.5em 0;max-width:46em}.lead{font-size:1.1em}"
    "table{border-collapse:collapse;font-size:.87em;font-variant-numeric:tabular-nums}"
    "th,td{padding:.15em .7em;text-align:left;vertical-align:top}td{overflow-wrap:anywhere}thead th{border-bottom:1px solid #888;vertical-align:bottom}"
    "tbody{border-bottom:1px solid #ddd}td.n,th.n{text-align:right;white-space:nowrap}th{font-weight:600}caption{text-align:left;color:#555}"
    ".worse{color:#b34700;font-weight:600}.note{color:#555;font-size:.9em}"
    "svg{display:block;width:100%;height:auto;font:11px system-ui,sans-serif;fill:#333}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(400px,1fr));gap:1.2em 2em}.card{min-width:0}"
    ".card .note{margin:.3em 0}.card table{width:100%}.card th,.card td{padding:.05em .3em}"
    "@media print{body{margin:0;max-width:none;font-size:10pt}.card,svg,tbody{break-inside:avoid}h2,h3{break-after:avoid}*{print-color-adjust:exact}}";

std::string percent(double x) { return fixed(100 * x, 3) + (std::isfinite(x) ? " %" : ""); }
std::string plural(size_t n, const std::string &what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }
// Activations are of any magnitude.
std::string four_digits(double x) {
    char text[40];
    snprintf(text, sizeof text, "%.4g", x);
    return std::isfinite(x) ? text : "n/a";
}

std::string times(double x) { return fixed(x, 1) + (std::isfinite(x) ? "x" : ""); }

// ---- tables ----

std::string header(const std::string &text) { return tag("th", {{"scope", "row"}}, escaped(text)); }
std::string cell(const std::string &text) { return tag("td", escaped(text)); }
std::string figure(const std::string &text, bool is_worse = false) { return tag("td", {{"class", is_worse ? "n worse" : "n"}}, escaped(text)); }
std::string row(const std::string &cells) { return tag("tr", cells) + "\n"; }

// Titles of columns, the first n_texts of texts, the others of numbers
std::string head_row(size_t n_texts, std::initializer_list<const char *> titles) {
    std::string cells;
    for (const char *const *t = titles.begin(); t != titles.end(); t++)
        cells += tag("th", {{"scope", "col"}, {"class", static_cast<size_t>(t - titles.begin()) < n_texts ? "t" : "n"}}, escaped(*t));
    return tag("thead", row(cells));
}

std::string paragraph(const std::string &text) { return tag("p", escaped(text)) + "\n"; }
std::string note(const std::string &text) { return tag("p", {{"class", "note"}}, escaped(text)) + "\n"; }
std::string heading(const std::string &text) { return tag("h2", escaped(text)) + "\n"; }

// ---- what was converted ----

// The last part of the folder's path
std::string name_of(const convert_options &options) {
    std::string path = options.checkpoint;
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    const std::string last = path.substr(path.rfind('/') + 1);
    return last.empty() ? path : last;
}

std::string title_of(const convert_options &options) { return name_of(options) + ": " + mode_of(options) + (options.mode == quant_mode::none ? "" : " INT8"); }

std::string calibration_text(const convert_options &options, const convert_result &r) {
    const std::string counts = plural(r.n_texts, "text") + ", " + plural(r.n_tokens, "token") + ", ";
    if (options.calibration_file.empty()) return counts + "of the built-in set (texts of your own, by --calibrate, give better scales)";
    return counts + "of " + options.calibration_file + (r.calibration_source.empty() ? "" : " (CRC-32 " + r.calibration_source + ")");
}

std::string budget_text(const budget &b) {
    const std::string cos = b.cos > 0 ? "mean cosine of at least " + four_digits(b.cos) : "", kl = b.kl > 0 ? "mean KL of at most " + four_digits(b.kl) + " nats" : "";
    return cos + (cos.empty() || kl.empty() ? "" : ", ") + kl;
}

const char *meaning_of(quant_mode mode) {
    switch (mode) {
    case quant_mode::static_scales: return "static: INT8, activation scales fixed by calibration behind a LayerNorm, found for each token elsewhere";
    case quant_mode::fast: return "fast: INT8, activation scales fixed by calibration nearly everywhere";
    case quant_mode::dynamic_scales: return "dynamic: INT8, activation scales found for each token";
    case quant_mode::none: break;
    }
    return "float: not quantised";
}

std::string conversion(const convert_options &options, const convert_result &r) {
    std::string rows = row(header("Checkpoint") + cell(options.checkpoint + (options.synthetic ? " (random weights)" : "")));
    rows += row(header("Model") + cell(r.description)) + row(header("Mode") + cell(meaning_of(options.mode)));
    if (!r.layers.empty()) rows += row(header("Calibrated on") + cell(calibration_text(options, r)));
    if (options.budget.is_wanted()) rows += row(header("Budget") + cell(budget_text(options.budget)));
    rows += row(header("Model file") + cell(options.output)) + row(header("Converter") + cell(std::string("sq ") + sq_version_string()));
    return tag("table", tag("tbody", rows)) + "\n";
}

// ---- agreement ----

// Cosines, and divergences if the model has a head
std::string figures_of(const agreement &a, bool has_head) {
    return figure(fixed(a.cos_lowest, 5)) + figure(fixed(a.cos_mean, 5)) + (has_head ? figure(four_digits(a.kl_mean)) + figure(four_digits(a.kl_highest)) : "");
}

std::string agreement_part(const convert_result &r) {
    std::string out = heading("Agreement with the float model");
    if (r.result.n_texts == 0) return out + paragraph("Nothing was held back: no text is left that calibration has not seen, so the agreement was not measured.");
    const bool has_head = r.result.has_logits;
    out += paragraph("On " + plural(r.result.n_texts, "text") + " that calibration has not seen: the cosine of the final vectors to the float model's" +
                     (has_head ? ", and the divergence of its probabilities from the INT8 model's (Kullback-Leibler, nats)." : "."));
    std::string rows;
    if (!r.steps.empty()) rows += row(header("before the budget's steps") + figures_of(r.before_budget, has_head));
    for (const budget_step &s : r.steps)
        rows += row(header("layer " + std::to_string(s.layer) + " " + s.part + " made " + s.form) + figures_of(s.after, has_head));
    rows += row(header("the model file") + figures_of(r.result, has_head));
    const std::string head = has_head ? head_row(1, {"", "lowest cosine", "mean cosine", "mean KL", "highest KL"}) : head_row(1, {"", "lowest cosine", "mean cosine"});
    return out + tag("table", head + tag("tbody", rows)) + "\n";
}

// ---- errors ----

// first: the cell that all rows of the layer share
std::string attention_row(const convert_result &r, size_t layer, const std::string &first) {
    const attention_report &a = r.attention[layer];
    const std::string form = a.weights;
    const bool is_tried = form != "f32" || a.error > 0; // heads can be too wide for integers
    return row(first + cell("attention") + cell(form == "f32" ? "float" : "integers, weights of " + form) + cell("") + figure(is_tried ? fixed(a.clip, 2) : "-") +
               figure("-") + figure(is_tried ? percent(a.error) : "-"));
}

std::string errors_part(const convert_result &r) {
    std::string out = heading("Error of each layer") +
                      paragraph("Relative error of a layer's output on a sample of calibration rows, each layer by itself, its input as the quantised layers before it give it. "
                                "Smoothing divides each input channel by a factor and multiplies the weights by it; clip is the part of the observed range that is kept, the "
                                "rest saturates.") +
                      error_chart(r) + "\n";
    std::string bodies;
    for (size_t i = 0; i < r.attention.size(); i++) {
        std::vector<const layer_report *> linear;
        for (const layer_report &l : r.layers)
            if (l.layer == i) linear.push_back(&l);
        const std::string first = tag("th", {{"scope", "rowgroup"}, {"rowspan", std::to_string(linear.size() + 1)}}, std::to_string(i));
        std::string rows = attention_row(r, i, first);
        for (const layer_report *l : linear)
            rows += row(cell(ROLE_NAMES[l->role]) + cell(form_of(*l)) + cell(l->chosen.smoothing) + figure(l->chosen.is_dynamic ? "-" : fixed(l->chosen.clip, 2)) +
                        figure(percent(l->chosen.plain_error)) + figure(percent(l->chosen.error)));
        bodies += tag("tbody", rows);
    }
    return out + tag("table", head_row(4, {"layer", "part", "form", "smoothing", "clip", "error without smoothing", "error"}) + bodies) + "\n" +
           note("Parts left in float have no error: what is shown is what INT8 would give.");
}

// ---- channels ----

double largest_ratio(const magnitudes &m) { return m.sorted.empty() ? 0 : m.ratio(m.sorted[0]); }

// The top of one scale for all strips
double top_of_strips(const std::vector<channel_figures> &all) {
    double most = 2 * OUTLIER_RATIO;
    for (const channel_figures &f : all)
        for (double ratio : {largest_ratio(f.before), f.has_after ? largest_ratio(f.after) : 0})
            if (std::isfinite(ratio)) most = std::max(most, ratio);
    return most;
}

std::string channel_table(const channel_figures &f) {
    const auto ratio = [](const magnitudes &m, double x) { return figure(times(m.ratio(x)), m.ratio(x) > OUTLIER_RATIO); };
    std::string rows;
    for (const channel &c : f.largest) {
        std::string cells = header(std::to_string(c.index)) + figure(four_digits(static_cast<double>(c.lo))) + figure(four_digits(static_cast<double>(c.hi)));
        cells += ratio(f.before, c.before);
        if (f.has_after) cells += figure(four_digits(static_cast<double>(c.factor))) + ratio(f.after, c.after);
        rows += row(cells);
    }
    const std::string head = f.has_after ? head_row(1, {"channel", "lowest", "highest", "of median", "factor", "then of median"})
                                         : head_row(1, {"channel", "lowest", "highest", "of median"});
    return tag("table", head + tag("tbody", rows));
}

std::string channel_card(const layer_report &l, const channel_figures &f, double most) {
    const std::string part = ROLE_NAMES[l.role];
    const std::string after = f.has_after ? "; after smoothing up to " + four_digits(f.after.median) + ", " + plural(f.after.n_outliers, "outlier") + "."
                                          : ". Its heads change their bases before smoothing: the channels afterwards are others.";
    return tag("div", {{"class", "card"}},
               tag("h4", escaped(part + " (" + plural(f.before.sorted.size(), "channel") + ", " + l.chosen.smoothing + ")")) +
                   channel_strip(f, most, "layer " + std::to_string(l.layer) + " " + part) +
                   note("Median channel up to " + four_digits(f.before.median) + ", " + plural(f.before.n_outliers, "outlier") + after) + channel_table(f)) +
           "\n";
}

std::string channels_part(const convert_result &r) {
    std::vector<channel_figures> all;
    for (const layer_report &l : r.layers) all.push_back(channels_of(l));
    const double most = top_of_strips(all);
    std::string out = heading("Activations and their outlier channels") +
                      paragraph("The input channels of each linear layer by their largest magnitude on the calibration texts, as multiples of the median channel's, from the "
                                "largest (left) to the smallest: dashed before smoothing, solid after. All channels share one scale of 255 steps, so what a few large ones take "
                                "is lost to the others. Above the thin line, 6 times the median, a channel counts as an outlier. The tables list the largest channels before smoothing.");
    for (size_t at = 0; at < r.layers.size();) {
        const uint32_t layer = r.layers[at].layer;
        std::string cards;
        for (; at < r.layers.size() && r.layers[at].layer == layer; at++) cards += channel_card(r.layers[at], all[at], most);
        out += tag("h3", "Layer " + std::to_string(layer)) + "\n" + tag("div", {{"class", "cards"}}, cards) + "\n";
    }
    return out;
}

// ---- the whole ----

std::string summary(const convert_result &r) {
    if (r.layers.empty()) return "The layers are in float, as they are in the checkpoint: nothing was quantised, so there is no error to show.";
    size_t n_float = 0, n_dynamic = 0;
    const layer_report *worst = nullptr;
    for (const layer_report &l : r.layers) {
        n_float += l.is_float;
        n_dynamic += !l.is_float && l.chosen.is_dynamic;
        if (!l.is_float && (!worst || l.chosen.error > worst->chosen.error)) worst = &l;
    }
    const size_t n_static = r.layers.size() - n_dynamic - n_float;
    std::string out = "Of " + plural(r.layers.size(), "linear layer") + " " + std::to_string(n_static) + " are static INT8, " + std::to_string(n_dynamic) + " dynamic INT8 and " +
                      std::to_string(n_float) + " float.";
    if (worst) out += " The largest error of one is " + percent(worst->chosen.error) + " (layer " + std::to_string(worst->layer) + " " + ROLE_NAMES[worst->role] + ").";
    if (r.result.n_texts > 0)
        out += " On texts that calibration has not seen, vectors have a cosine of " + fixed(r.result.cos_mean, 5) + " to the float model's (mean; lowest: " +
               fixed(r.result.cos_lowest, 5) + ").";
    return out;
}

} // namespace

std::string report_html(const convert_options &options, const convert_result &r) {
    const std::string title = title_of(options);
    std::string body = tag("h1", escaped(title)) + "\n" + tag("p", {{"class", "lead"}}, escaped(summary(r))) + "\n" + conversion(options, r);
    if (!r.layers.empty()) body += agreement_part(r) + errors_part(r) + channels_part(r);
    const std::string head = empty_tag("meta", {{"charset", "utf-8"}}) + empty_tag("meta", {{"http-equiv", "Content-Security-Policy"}, {"content", POLICY}}) +
                             empty_tag("meta", {{"name", "viewport"}, {"content", "width=device-width"}}) + tag("title", escaped(title)) + tag("style", STYLE);
    return "<!DOCTYPE html>\n" + tag("html", {{"lang", "en"}}, tag("head", head) + "\n" + tag("body", body)) + "\n";
}

} // namespace sq
