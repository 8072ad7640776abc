// convert/report-charts.cpp - see report-charts.h. All lengths in pixels of a picture's own coordinates.
#include "report-charts.h"

#include <math.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "markup.h"
#include "report.h"

namespace sq {

namespace {

using namespace markup;

// Told apart by shape and by colours that are distinct for the colour-blind too (Okabe and Ito's palette).
constexpr const char *GREY = "#767676", *BLUE = "#0072b2", *ORANGE = "#b34700", *GREEN = "#00795a", *RULE = "#dddddd";

// A logarithmic scale from values [lo, hi] to places [from, to]; values outside go to its ends.
struct log_scale {
    double lo, hi, from, to;
    double at(double value) const {
        const double inside = std::clamp(value, lo, hi);
        return from + (log(inside) - log(lo)) / (log(hi) - log(lo)) * (to - from);
    }
};

// The largest of ..., 0.5, 1, 2, 5, 10, ... that is not above x > 0, and the smallest that is not below
double tick_below(double x) {
    const double decade = pow(10, floor(log10(x)));
    for (double step : {5.0, 2.0})
        if (decade * step <= x) return decade * step;
    return decade;
}
double tick_above(double x) { return 1 / tick_below(1 / x); }

// 1, 2, 5, 10, ... within the scale; if it has more than two decades 1, 10, ...
std::vector<double> ticks(const log_scale &s) {
    const bool all = s.hi / s.lo < 110;
    std::vector<double> out;
    for (double decade = pow(10, floor(log10(s.lo))); decade <= s.hi * 1.001; decade *= 10)
        for (double step : {1.0, 2.0, 5.0})
            if ((all || step == 1) && decade * step >= s.lo * 0.999 && decade * step <= s.hi * 1.001) out.push_back(decade * step);
    return out;
}

std::string short_number(double x) {
    char text[40];
    snprintf(text, sizeof text, "%g", x);
    return text;
}

std::string line(double x1, double y1, double x2, double y2, const char *colour) {
    return empty_tag("line", {{"x1", place(x1)}, {"y1", place(y1)}, {"x2", place(x2)}, {"y2", place(y2)}, {"stroke", colour}});
}

std::string label(double x, double y, const char *anchor, const std::string &text) {
    return tag("text", {{"x", place(x)}, {"y", place(y)}, {"text-anchor", anchor}}, escaped(text));
}

// A picture with what it shows; id: unique in the page.
std::string picture(double width, double height, const std::string &id, const std::string &title, const std::string &description, const std::string &content) {
    const std::string box = "0 0 " + place(width) + " " + place(height);
    return tag("svg", {{"viewBox", box}, {"role", "img"}, {"aria-labelledby", id + "-title " + id + "-desc"}},
                   tag("title", {{"id", id + "-title"}}, escaped(title)) + tag("desc", {{"id", id + "-desc"}}, escaped(description)) + content);
}

// ---- errors by layer ----

enum mark { PLAIN, STATIC, DYNAMIC, IN_FLOAT };

std::string mark_at(mark m, double x, double y) {
    const auto at = [&](double dx, double dy) { return place(x + dx) + "," + place(y + dy) + " "; };
    switch (m) {
    case PLAIN: return empty_tag("circle", {{"cx", place(x)}, {"cy", place(y)}, {"r", "3"}, {"fill", "white"}, {"stroke", GREY}});
    case STATIC: return empty_tag("circle", {{"cx", place(x)}, {"cy", place(y)}, {"r", "3.5"}, {"fill", BLUE}});
    case DYNAMIC: return empty_tag("polygon", {{"points", at(0, -5) + at(5, 0) + at(0, 5) + at(-5, 0)}, {"fill", ORANGE}});
    default: return empty_tag("polygon", {{"points", at(-4, -4) + at(4, -4) + at(4, 4) + at(-4, 4)}, {"fill", "white"}, {"stroke", GREEN}, {"stroke-width", "2"}});
    }
}

// One of the panels of the chart, three in a row
constexpr double PANEL_WIDTH = 310, PANEL_HEIGHT = 210, PANEL_LEFT = 46, PANEL_TOP = 28, PANEL_RIGHT = 10, PANEL_BOTTOM = 36;
constexpr size_t PANELS_IN_ROW = 3;

class panel {
  public:
    panel(size_t index, size_t n_layers, double lo, double hi)
        : x0_(static_cast<double>(index % PANELS_IN_ROW) * PANEL_WIDTH), y0_(static_cast<double>(index / PANELS_IN_ROW) * PANEL_HEIGHT), n_layers_(n_layers),
          y_{lo, hi, y0_ + PANEL_HEIGHT - PANEL_BOTTOM, y0_ + PANEL_TOP} {}

    void axes(const std::string &title) {
        out_ += tag("text", {{"x", place(left())}, {"y", place(y0_ + 16)}, {"font-weight", "bold"}}, escaped(title));
        for (double tick : ticks(y_))
            out_ += line(left(), y_.at(tick), right(), y_.at(tick), RULE) + label(left() - 5, y_.at(tick) + 4, "end", short_number(100 * tick) + " %");
        const size_t step = (n_layers_ + 11) / 12; // a dozen numbers fit
        for (size_t i = 0; i < n_layers_; i += step) out_ += label(x(i), y_.from + 16, "middle", std::to_string(i));
        out_ += label((left() + right()) / 2, y_.from + 30, "middle", "layer");
    }
    void error(size_t layer, double plain, double chosen, mark m) {
        if (std::isfinite(plain) && std::isfinite(chosen)) out_ += line(x(layer), y_.at(plain), x(layer), y_.at(chosen), GREY);
        if (std::isfinite(plain)) out_ += mark_at(PLAIN, x(layer), y_.at(plain));
        if (std::isfinite(chosen)) out_ += mark_at(m, x(layer), y_.at(chosen));
    }
    void legend() {
        const std::pair<mark, const char *> entries[] = {{PLAIN, "without smoothing"}, {STATIC, "as chosen, static scales"}, {DYNAMIC, "as chosen, dynamic scales"},
                                                         {IN_FLOAT, "left in float: what INT8 would give"}};
        double y = y0_ + PANEL_TOP + 20;
        for (const auto &[m, text] : entries) {
            out_ += mark_at(m, left() + 6, y - 4) + label(left() + 20, y, "start", text);
            y += 24;
        }
    }
    const std::string &text() const { return out_; }

  private:
    double left() const { return x0_ + PANEL_LEFT; }
    double right() const { return x0_ + PANEL_WIDTH - PANEL_RIGHT; }
    double x(size_t layer) const { return left() + (static_cast<double>(layer) + 0.5) / static_cast<double>(n_layers_) * (right() - left()); }

    double x0_, y0_;
    size_t n_layers_;
    log_scale y_;
    std::string out_;
};

// Over all errors that the chart shows, to the next ticks; at least from 1 % to 2 %
std::pair<double, double> range_of_errors(const convert_result &r) {
    constexpr double LEAST = 1e-5; // less goes to the edge
    double lo = 0.01, hi = 0.02;
    const auto include = [&](double error) {
        if (!std::isfinite(error) || error <= 0) return;
        lo = std::min(lo, std::max(LEAST, error));
        hi = std::max(hi, error);
    };
    for (const layer_report &l : r.layers) include(l.chosen.plain_error), include(l.chosen.error);
    for (const attention_report &a : r.attention) include(a.error);
    return {tick_below(lo * 0.95), tick_above(hi * 1.05)}; // no mark on the edge
}

// ---- channels of a linear layer ----

constexpr double STRIP_WIDTH = 440, STRIP_HEIGHT = 140, STRIP_LEFT = 44, STRIP_RIGHT = 10, STRIP_TOP = 8, STRIP_BOTTOM = 34;
constexpr double STRIP_POINTS = 60; // of a curve, at most
constexpr double STRIP_LEAST = 0.1; // bottom of the scale, in medians

std::string curve(const magnitudes &m, const log_scale &x, const log_scale &y, const char *colour, const char *dashes) {
    std::string points;
    size_t last = 0; // rank from 1
    for (double i = 0; i <= STRIP_POINTS; i++) {
        const size_t rank = static_cast<size_t>(lround(pow(x.hi, i / STRIP_POINTS)));
        if (rank == last || rank > m.sorted.size()) continue;
        last = rank;
        points += place(x.at(static_cast<double>(rank))) + "," + place(y.at(m.ratio(m.sorted[rank - 1]))) + " ";
    }
    return empty_tag("polyline", {{"points", points}, {"fill", "none"}, {"stroke", colour}, {"stroke-width", "2"}, {"stroke-dasharray", dashes}});
}

} // namespace

std::string error_chart(const convert_result &r) {
    static const char *const TITLES[] = {"qkv (queries, keys, values)", "out (attention output)", "up (feed-forward)", "down (feed-forward)"};
    const auto [lo, hi] = range_of_errors(r);
    const size_t n_layers = std::max<size_t>(1, r.attention.size());
    std::string content;
    for (linear_role role : {QKV, OUT, UP, DOWN}) {
        panel p(role, n_layers, lo, hi);
        p.axes(TITLES[role]);
        for (const layer_report &l : r.layers)
            if (l.role == role) p.error(l.layer, l.chosen.plain_error, l.chosen.error, l.is_float ? IN_FLOAT : l.chosen.is_dynamic ? DYNAMIC : STATIC);
        content += p.text();
    }
    panel attention(4, n_layers, lo, hi), legend(5, n_layers, lo, hi);
    attention.axes("attention in integers");
    for (size_t i = 0; i < r.attention.size(); i++) {
        const bool is_float = !strcmp(r.attention[i].weights, "f32");
        if (!is_float || r.attention[i].error > 0) attention.error(i, NAN, r.attention[i].error, is_float ? IN_FLOAT : STATIC);
    }
    legend.legend();
    return picture(PANELS_IN_ROW * PANEL_WIDTH, 2 * PANEL_HEIGHT, "errors", "Relative error of each layer",
                   "A panel for each kind of linear layer and one for attention, transformer layers from left to right, errors upwards on a logarithmic scale. "
                   "The table below has all numbers.",
                   content + attention.text() + legend.text());
}

std::string channel_strip(const channel_figures &f, double most, const std::string &name) {
    const double k = static_cast<double>(f.before.sorted.size());
    const log_scale x{1, std::max(2.0, k), STRIP_LEFT, STRIP_WIDTH - STRIP_RIGHT}, y{STRIP_LEAST, most, STRIP_HEIGHT - STRIP_BOTTOM, STRIP_TOP};
    std::string content;
    for (double tick : ticks(y)) content += line(x.from, y.at(tick), x.to, y.at(tick), RULE) + label(x.from - 5, y.at(tick) + 4, "end", short_number(tick) + "x");
    for (double tick : ticks({1, x.hi, 0, 1})) content += label(x.at(tick), y.from + 13, "middle", short_number(tick));
    content += label((x.from + x.to) / 2, y.from + 28, "middle", "rank of the channel");
    content += line(x.from, y.at(OUTLIER_RATIO), x.to, y.at(OUTLIER_RATIO), ORANGE) + label(x.to, y.at(OUTLIER_RATIO) - 4, "end", "outliers");
    content += curve(f.before, x, y, GREY, "5 3");
    if (f.has_after) content += curve(f.after, x, y, BLUE, "none");
    std::string id = name;
    std::replace(id.begin(), id.end(), ' ', '-');
    return picture(STRIP_WIDTH, STRIP_HEIGHT, id, "Channels of " + name,
                   "Largest magnitude of each input channel over that of the median channel, largest channel left, both axes logarithmic: dashed before smoothing, "
                   "solid after; above the thin line a channel is an outlier.",
                   content);
}

} // namespace sq
