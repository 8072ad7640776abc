// examples/cli-roofline.cpp - see cli-roofline.h: first the formulas, then the picture.
#include "cli-roofline.h"

#include <math.h>

#include <algorithm>

#include "cli-common.h"

namespace cli {

// ---- formulas ----

product linear_product(double m, double n, double k, bool is_int8, bool has_u8_output) {
    const double in = is_int8 ? 1 : 4, out = has_u8_output ? 1 : 4;
    product p;
    p.ops = 2 * m * n * k;
    p.x = in * m * k;
    p.w = in * k * n;
    p.y = out * m * n;
    p.is_int8 = is_int8;
    return p;
}

product attention_product(double m, double s, double d) {
    product p;
    p.ops = 4 * m * s * d;
    p.x = 3 * 4 * m * d;
    p.y = 4 * m * d;
    return p;
}

// Bytes a second. Weights that fit the last-level cache stay there from call to call; inputs and outputs count as the memory's, as in the paper. Attention has
// no weights; what it reads was written a moment before, by the product before it.
static double bandwidth_of(const product &p, const roofs &r) {
    if (!r.weights_fit || r.llc_bytes <= 0) return r.memory_bytes;
    if (p.w <= 0) return r.llc_bytes;
    return p.bytes() / ((p.x + p.y) / r.memory_bytes + p.w / r.llc_bytes);
}

double bound_of(const product &p, const roofs &r) {
    const double peak = p.is_int8 ? r.int8_ops : r.float_ops;
    return peak > 0 ? std::min(peak, bandwidth_of(p, r) * p.intensity()) : 0;
}

void product_sum::add(const product &p, const roofs &r) {
    const double bound = bound_of(p, r);
    ops += p.ops;
    bytes += p.bytes();
    is_bound &= bound > 0;
    if (bound > 0) seconds += p.ops / bound;
    n_int8 += p.is_int8;
    n++;
}

void product_sum::add(const product_sum &other) {
    ops += other.ops;
    bytes += other.bytes;
    seconds += other.seconds;
    is_bound &= other.is_bound;
    n_int8 += other.n_int8;
    n += other.n;
}

// ---- the picture ----

namespace {

constexpr double WIDTH = 860, HEIGHT = 560, LEFT = 80, RIGHT = 30, TOP = 70, BOTTOM = 60; // pixels
constexpr double LABEL_HEIGHT = 15, LABEL_WIDTH = 110;
const char *const DOT_COLOURS[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e"};

std::string escaped(const std::string &text) {
    std::string out;
    for (char c : printable(text, 200)) {
        if (c == '&') out += "&amp;";
        else if (c == '<') out += "&lt;";
        else if (c == '>') out += "&gt;";
        else if (c == '"') out += "&quot;";
        else out += c;
    }
    return out;
}

// "50 M", "1.2 G", "4 T"
std::string with_prefix(double x) {
    const char *const prefixes[] = {"", " k", " M", " G", " T", " P"};
    size_t i = 0;
    while (x >= 999.5 && i + 1 < sizeof prefixes / sizeof *prefixes) x /= 1000, i++;
    return formatted("%.3g%s", x, prefixes[i]);
}

class chart {
  public:
    chart(const roofs &r, const std::vector<roofline_dot> &dots) : r_(r), dots_(dots) {
        double x_least = 1, x_most = 100, y_least = 1e12, y_most = 1e9;
        for (const roofline_dot &d : dots) {
            x_least = std::min(x_least, d.intensity), x_most = std::max(x_most, d.intensity);
            y_least = std::min(y_least, d.ops_per_s), y_most = std::max(y_most, d.ops_per_s);
        }
        y_most = std::max({y_most, r.int8_ops, r.float_ops});
        if (top_peak() <= 0) y_most = std::max(y_most, 10 * std::max(r.memory_bytes, r.llc_bytes)); // a decade of the slopes shows
        if (r.memory_bytes > 0) x_most = std::max(x_most, top_peak() / r.memory_bytes); // where the memory's roof ends
        x_first_ = floor(log10(x_least)), x_past_ = ceil(log10(x_most * 1.5));
        y_first_ = floor(log10(y_least * 0.9)), y_past_ = ceil(log10(y_most * 1.1));
    }

    std::string draw(const std::string &title, const std::string &subtitle) {
        out_ = formatted("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
                         "font-family=\"sans-serif\" font-size=\"12\">\n",
                         WIDTH, HEIGHT, WIDTH, HEIGHT);
        out_ += formatted("<rect width=\"%.0f\" height=\"%.0f\" fill=\"white\"/>\n", WIDTH, HEIGHT);
        text(WIDTH / 2, 26, "middle", title, " font-size=\"16\"");
        text(WIDTH / 2, 46, "middle", subtitle, " fill=\"#555\"");
        draw_axes();
        draw_slope(r_.memory_bytes, "memory", "#8c564b");
        draw_slope(r_.llc_bytes, "last-level cache", "#17becf");
        draw_peak(r_.int8_ops, "INT8 peak");
        draw_peak(r_.float_ops, "float32 peak");
        draw_dots();
        return out_ + "</svg>\n";
    }

  private:
    const roofs &r_;
    const std::vector<roofline_dot> &dots_;
    double x_first_, x_past_, y_first_, y_past_; // decades
    std::string out_;

    double top_peak() const { return std::max(r_.int8_ops, r_.float_ops); }
    double x_of(double intensity) const { return LEFT + (log10(intensity) - x_first_) / (x_past_ - x_first_) * (WIDTH - LEFT - RIGHT); }
    double y_of(double ops) const { return HEIGHT - BOTTOM - (log10(ops) - y_first_) / (y_past_ - y_first_) * (HEIGHT - TOP - BOTTOM); }

    void text(double x, double y, const char *anchor, const std::string &what, const std::string &attributes = "") {
        out_ += formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", x, y, anchor) + attributes + ">" + escaped(what) + "</text>\n";
    }
    void line(double x1, double y1, double x2, double y2, const char *colour, double width) {
        out_ += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n", x1, y1, x2, y2, colour, width);
    }

    void draw_axes() {
        for (double d = x_first_; d <= x_past_; d++) {
            const double x = x_of(pow(10, d));
            line(x, TOP, x, HEIGHT - BOTTOM, "#ddd", 1);
            text(x, HEIGHT - BOTTOM + 18, "middle", formatted("%g", pow(10, d)));
        }
        for (double d = y_first_; d <= y_past_; d++) {
            const double y = y_of(pow(10, d));
            line(LEFT, y, WIDTH - RIGHT, y, "#ddd", 1);
            text(LEFT - 8, y + 4, "end", with_prefix(pow(10, d)));
        }
        line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "black", 1.5);
        line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "black", 1.5);
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, "middle", "arithmetic intensity, operations a byte");
        const double middle = (TOP + HEIGHT - BOTTOM) / 2;
        text(20, middle, "middle", "operations a second", formatted(" transform=\"rotate(-90 20 %.1f)\"", middle));
    }

    // The line y = B x, up to the highest peak or the frame.
    void draw_slope(double bytes_per_s, const char *name, const char *colour) {
        if (bytes_per_s <= 0) return;
        const double top = top_peak() > 0 ? top_peak() : pow(10, y_past_);
        const double from = std::max(pow(10, x_first_), pow(10, y_first_) / bytes_per_s), to = std::min(pow(10, x_past_), top / bytes_per_s);
        if (from >= to) return;
        const double x1 = x_of(from), y1 = y_of(from * bytes_per_s), x2 = x_of(to), y2 = y_of(to * bytes_per_s);
        line(x1, y1, x2, y2, colour, 2);
        const double x = x1 + 0.35 * (x2 - x1), y = y1 + 0.35 * (y2 - y1) - 6, angle = atan2(y2 - y1, x2 - x1) * 180 / M_PI;
        text(x, y, "middle", formatted("%s %sB/s", name, with_prefix(bytes_per_s).c_str()),
             formatted(" fill=\"%s\" transform=\"rotate(%.1f %.1f %.1f)\"", colour, angle, x, y));
    }

    // The flat roof, from where the fastest slope meets it.
    void draw_peak(double ops, const char *name) {
        if (ops <= 0) return;
        const double fastest = std::max(r_.memory_bytes, r_.llc_bytes);
        const double from = fastest > 0 ? std::clamp(ops / fastest, pow(10, x_first_), pow(10, x_past_)) : pow(10, x_first_);
        line(x_of(from), y_of(ops), WIDTH - RIGHT, y_of(ops), "black", 2);
        text(WIDTH - RIGHT, y_of(ops) - 6, "end", formatted("%s %sop/s", name, with_prefix(ops).c_str()));
    }

    // Labels stand at the right of their dots, moved down where another label or a dot stands already.
    void draw_dots() {
        std::vector<size_t> order;
        for (size_t i = 0; i < dots_.size(); i++)
            if (dots_[i].intensity > 0 && dots_[i].ops_per_s > 0) order.push_back(i);
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return dots_[a].ops_per_s > dots_[b].ops_per_s; });
        std::vector<std::pair<double, double>> taken;
        std::string dots;
        for (size_t i : order) {
            const double x = x_of(dots_[i].intensity), y = y_of(dots_[i].ops_per_s);
            const char *colour = DOT_COLOURS[i % (sizeof DOT_COLOURS / sizeof *DOT_COLOURS)];
            double label_y = y + 4;
            for (size_t other : order) { // a dot where the label would begin
                const double dx = x_of(dots_[other].intensity) - x, dy = y_of(dots_[other].ops_per_s) - y;
                if (other != i && dx > 0 && dx < LABEL_WIDTH && fabs(dy) < LABEL_HEIGHT) label_y = std::max(label_y, y + dy + LABEL_HEIGHT + 4);
            }
            for (const auto &[other_x, other_y] : taken)
                if (fabs(other_x - x) < LABEL_WIDTH && label_y < other_y + LABEL_HEIGHT && label_y > other_y - LABEL_HEIGHT) label_y = other_y + LABEL_HEIGHT;
            taken.push_back({x, label_y});
            if (label_y > y + 5) line(x, y, x + 12, label_y - 4, colour, 1);
            dots += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"%s\"/>\n", x, y, colour);
            text(x + 14, label_y, "start", dots_[i].name + " " + with_prefix(dots_[i].ops_per_s),
                 formatted(" fill=\"%s\" stroke=\"white\" stroke-width=\"3\" paint-order=\"stroke\"", colour));
        }
        out_ += dots; // above all labels
    }
};

} // namespace

std::string draw_roofline(const std::string &title, const std::string &subtitle, const roofs &r, const std::vector<roofline_dot> &dots) {
    return chart(r, dots).draw(title, subtitle);
}

} // namespace cli
