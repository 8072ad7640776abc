// examples/cli-roofline.h - the roofline model (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785) of an encoder's products, in the form of
// arXiv 2608.18182, and its picture. Arithmetic only: what was measured comes from cli-profile.cpp.
#ifndef SQ_EXAMPLES_CLI_ROOFLINE_H
#define SQ_EXAMPLES_CLI_ROOFLINE_H

#include <string>
#include <vector>

namespace cli {

// What the machine can do at most, with the threads that were measured. 0: not known.
struct roofs {
    double int8_ops = 0, float_ops = 0;           // operations a second of products of bytes, and of float32
    double memory_bytes = 0, llc_bytes = 0;       // bytes a second read from memory, and from the last-level cache
    bool weights_fit = false;                     // the model's file is not larger than the last-level cache
};

// A product Y = X W' of M rows, K inputs, N outputs.
struct product {
    double ops = 0;             // 2 M N K; a multiply-add counts as two
    double x = 0, w = 0, y = 0; // bytes: E_in M K, E_in K N, E_out M N
    bool is_int8 = false;

    double bytes() const { return x + w + y; }
    double intensity() const { return ops / bytes(); } // operations a byte
};

product linear_product(double m, double n, double k, bool is_int8, bool has_u8_output);

// Scores and weighted values of sequences of S tokens, M tokens together, width D: 4 M S D operations on q, k, v and the result, each float32 [M][D].
product attention_product(double m, double s, double d);

// P: operations a second that the roofs allow, 0 where the peak is not known.
double bound_of(const product &p, const roofs &r);

// Several products as one: sum(F), sum of bytes, and sum(F) / sum(F / P).
struct product_sum {
    double ops = 0, bytes = 0, seconds = 0; // seconds at the bounds
    size_t n_int8 = 0, n = 0;
    bool is_bound = true; // every bound is known

    void add(const product &p, const roofs &r);
    void add(const product_sum &other);
    double intensity() const { return bytes > 0 ? ops / bytes : 0; }
    double bound() const { return is_bound && seconds > 0 ? ops / seconds : 0; }
};

// A dot of the picture.
struct roofline_dot {
    std::string name;
    double intensity, ops_per_s;
};

// The picture as SVG: axes with logarithmic scales, the roofs, the dots. Text is escaped.
std::string draw_roofline(const std::string &title, const std::string &subtitle, const roofs &r, const std::vector<roofline_dot> &dots);

} // namespace cli

#endif
