// sq-quant.h - from float to INT8, offline: what calibration observes, how scales are chosen, how weights are rounded.
//
// Linked into sq-convert only. Shapes: a linear layer is Y = X W' + b, X [rows][k], W [n][k] row-major. Quantised values: real = scale * (q - zero).
#ifndef SQ_QUANT_H
#define SQ_QUANT_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "sq-kernels.h"

namespace sq {

// 64-byte aligned zeros, as kernels want them.
template <class T> class aligned {
  public:
    aligned() = default;
    explicit aligned(size_t n) {
        void *p = nullptr;
        if (posix_memalign(&p, 64, std::max<size_t>(n, 1) * sizeof(T)) != 0) throw std::bad_alloc();
        memset(p, 0, n * sizeof(T));
        p_.reset(static_cast<T *>(p));
    }
    T *get() const { return p_.get(); }

  private:
    struct free_deleter {
        void operator()(void *p) const { free(p); }
    };
    std::unique_ptr<T, free_deleter> p_;
};

// A copy whose length is rounded up to 16
template <class T> aligned<T> padded(const std::vector<T> &v) {
    aligned<T> out(round_up(v.size(), 16));
    std::copy(v.begin(), v.end(), out.get());
    return out;
}

// Calls body(i) for i of 0 .. n-1, on all cores; what is thrown by one of them comes out of here (out of an OpenMP loop it would end the process).
void parallel_for(size_t n, const std::function<void(size_t)> &body);

// What calibration keeps of one layer's input: each channel's range over all rows, and a bounded sample of rows.
class observer {
  public:
    observer() = default;
    observer(size_t k, size_t max_rows) : k_(k), max_rows_(max_rows), lo_(k), hi_(k) {}

    // x: f32 [rows][k], rows `stride` floats apart. With `keep` the rows stay in the sample whatever follows, and each counts KEPT_WEIGHT times.
    void see(const float *x, size_t rows, size_t stride, bool keep);
    static constexpr size_t KEPT_WEIGHT = 5;

    size_t k() const { return k_; }
    const std::vector<float> &lo() const { return lo_; } // [k] lowest value, 0 included
    const std::vector<float> &hi() const { return hi_; } // [k] highest value, 0 included
    size_t n_rows() const { return k_ ? rows_.size() / k_ : 0; }
    const float *row(size_t i) const { return &rows_[i * k_]; }

  private:
    size_t k_ = 0, max_rows_ = 0, n_seen_ = 0, n_kept_ = 0;
    uint64_t random_ = 0x9E3779B97F4A7C15u; // any odd seed: the same texts give the same sample
    std::vector<float> lo_, hi_, rows_;
};

struct float_linear {
    uint32_t n = 0, k = 0;
    std::vector<float> w;    // [n][k]
    std::vector<float> bias; // [n]
};

// A layer as the file stores it, unpadded and unpacked.
struct int8_linear {
    uint32_t n = 0, k = 0;
    bool is_dynamic = false;
    std::vector<int8_t> w;     // [n][k]
    std::vector<float> scale;  // [n] static: as * ws; dynamic: ws
    std::vector<float> bias;   // [n] static: b - as * ws * zero * comp; dynamic: b
    std::vector<int32_t> comp; // [n] sum over k of w
    std::vector<float> mul;    // [k] static: 1 / (s * as); dynamic: 1 / s
    int32_t zero = 0;          // static
    float step = 0;            // static: as
};

// The same weights with activation scales found for each row.
int8_linear as_dynamic(int8_linear l);

// SmoothQuant's factors: s[j] = max|X_j|^strength / max|W_j|^(1 - strength), kept in [1e-4, 1e4]
// (Xiao et al. 2022, equation 4). strength < 0 means no smoothing: all ones.
std::vector<float> smoothing(const observer &seen, const float_linear &l, float strength);

// Factors that balance the two rounding errors of a layer, channel by channel. With activations rounded in steps of 1 after the division and row n of W in steps of
// ws[n], channel j adds s[j]^2 sum_n W[n][j]^2 / 12 from its activations and sum_n ws[n]^2 E[X_j^2] / (12 s[j]^2) from its weights, which is least at
//     s[j] = (sum_n ws[n]^2 * E[X_j^2] / sum_n W[n][j]^2)^(1/4)
// but s[j] must be at least sides * max|X_j| / 255 for the channel to fit (sides: 1 for one-sided input, 2 for symmetric). ws depends on s, so this is iterated.
// `weight` multiplies the balance: above 1 it favours the weights. Returned with a geometric mean of 1, kept in [1e-4, 1e4].
std::vector<float> balanced_smoothing(const observer &seen, const float_linear &l, float sides, float weight);

// Mean and covariance of a layer's input. Memory: k^2 floats.
class moments {
  public:
    moments() = default;
    moments(const kernels &k, size_t n_columns);

    // x: f32 [rows][n_columns], rows x_stride floats apart. After the last rows `finish`, before the rest.
    void add(const float *x, size_t rows, size_t x_stride);
    void finish();

    bool is_wanted() const { return k_ != nullptr; } // false for a default-made one
    size_t n_rows() const { return n_rows_; }
    const std::vector<double> &mean() const { return mean_; } // [n_columns]
    double covariance(size_t a, size_t b) const;

  private:
    void add_waiting();

    const kernels *k_ = nullptr;
    size_t n_columns_ = 0, stride_ = 0, n_rows_ = 0, n_waiting_ = 0;
    std::vector<double> mean_; // sums until `finish`
    aligned<float> products_;  // [stride][stride] sums of products, lower triangle
    aligned<float> waiting_;   // rows, some of which are added together
};

// What a layer's output loses by errors e [k] of a row of its weights: e C e', C the covariance of its input; see sq-quant-round.cpp.
class weight_metric {
  public:
    // The input's channels are divided by s [k], and have variances `noise` [k] more, from their own rounding.
    weight_metric(const kernels &k, const moments &m, const std::vector<float> &s, const std::vector<float> &noise);

    const std::vector<double> &variance() const { return variance_; } // [k] diagonal of C

    // Rounds each row of w f32 [rows][k], in steps of 1, to integers of -127 .. 127 for which the loss is small; q [rows][k].
    void round(const float *w, size_t rows, int8_t *q) const;

  private:
    void round_block(size_t c, size_t rows, const float *v, const float *sums, float *errors, int8_t *q) const;

    const kernels &k_;
    size_t n_columns_, size_;      // size: rounded up to whole blocks
    std::vector<uint32_t> order_;  // [k] the column at each place of the factor
    std::vector<double> variance_;
    aligned<float> factor_;        // [size][size], lower triangle
    aligned<float> panels_;        // the same [size / 16][size][16]
    std::vector<float> inverse_;   // [size] of its diagonal
};

// What a search minimises, the relative error of the INT8 layer on the sampled rows, computed with the kernels that will run: the root of the mean over rows of
//     |y' - y|^2 / (|y - m|^2 + a tenth of the mean of that over rows),    m the mean of y over rows.
// Row by row, because what follows is a LayerNorm of each row: a row of small activations beside rows of large ones must not drown.
struct choice {
    std::string smoothing;   // "none", "strength 0.7", "balance 1.0"
    bool is_dynamic = false;
    float clip = 1;          // static: how much of the observed range is kept; the rest saturates
    double plain_error = 0;  // without smoothing
    double error = 0;        // with the choice
    std::vector<float> s;    // [k] smoothing factors of the choice
};

// Tries no smoothing, strengths from 0 to 1 and balanced factors, for a static layer then parts of the range, and keeps what loses least on the sampled rows.
choice search(const kernels &k, const float_linear &l, const observer &seen, bool is_dynamic);

// The relative error, as in `choice`, without smoothing or clipping, weights rounded one by one.
double plain_error(const kernels &k, const float_linear &l, const observer &seen, bool is_dynamic);

// What is known of a layer's input.
struct layer_input {
    observer seen;
    moments real;                   // as the layers before, quantised already, really give it
    std::vector<double> float_mean; // [k] as the float model has it
};

// Quantises a layer as chosen, its weights rounded together (without moments: one by one). The bias makes good for the
// mean of what is lost, here and in the layers before: with u the mean inputs,
//     bias = b + W u_float - W' u_real.
// A static layer's range is the lowest to the highest value observed, times the clip. fold_input: the division by s already happened in the layer before, so the input
// is taken as it comes and only W is multiplied.
int8_linear quantize(const kernels &k, const float_linear &l, const layer_input &in, const choice &c, bool fold_input);

// ---- attention in integers ----

// What calibration keeps of one layer's queries, keys and values: each column's range, and whole sequences up to max_rows rows.
class attention_observer {
  public:
    attention_observer() = default;
    attention_observer(size_t width, size_t max_rows) : width_(width), max_rows_(max_rows), lo_(3 * width, INFINITY), hi_(3 * width, -INFINITY), starts_(1) {}

    // x: f32 [rows][3 * width] of one sequence, rows `stride` floats apart: queries (times 1 / sqrt(head width)), keys, values.
    void see(const float *x, size_t rows, size_t stride);

    size_t width() const { return width_; }
    const std::vector<float> &lo() const { return lo_; } // [3 * width]
    const std::vector<float> &hi() const { return hi_; } // [3 * width]
    size_t n_seqs() const { return starts_.size() - 1; }
    size_t start(size_t seq) const { return starts_[seq]; }
    const float *row(size_t i) const { return &rows_[i * 3 * width_]; }

    // Divides the values' channel j of everything seen by s[j], s [width]: what calibration would have seen, had their producer been scaled.
    void divide_values(const std::vector<float> &s);

  private:
    size_t width_ = 0, max_rows_ = 0;
    std::vector<float> lo_, hi_, rows_;
    std::vector<size_t> starts_;
};

// A change of basis within each head, which leaves the float layer's answers as they are.
struct head_bases {
    size_t d; // head width
    std::vector<std::vector<double>> query, key, value; // [heads][d * d] row-major: what the head's queries, keys and values are multiplied by, from the left
    std::vector<std::vector<double>> out;               // likewise each row of its columns of the output layer
};

// Bases in which rounding loses least; the derivation is in sq-quant-heads.cpp.
head_bases choose_head_bases(const attention_observer &seen, const float_linear &out, size_t n_heads);

// Changes the QKV layer's rows, and the output layer's columns back.
void change_bases(const head_bases &bases, float_linear *qkv, float_linear *out);

// Attention as the file stores it. `step` and `center` go into scale and bias of the QKV layer, whose outputs become (x - center) / step.
struct int8_attention {
    bool is_s8 = false;
    bool is_fine = false;            // softmax weights of 16 bits
    std::vector<float> step, center; // [3 * width] of queries, keys, values; center is 0 but for keys
    std::vector<float> scale;        // [heads] step of a score
    std::vector<float> mul;          // [width] step of a value
    float clip = 1;                  // how much of their range queries and keys keep; the rest saturates
    double error = 0;                // of the output, as `choice` has it, on the observed sequences
};

// Steps for integer attention, and its error against f32.
// Keys may be shifted by any vector: that adds the same to all scores of a query, which softmax cancels. So each channel's range is centered at 0.
// For channel c of a head with largest magnitudes a[c] of the queries and b[c] of the keys, the steps are g sqrt(a / b) and g sqrt(b / a): their product is g * g
// for all channels, as a score's step must be, and the rounding errors that the two add to a score, proportional to b^2 step_q^2 + a^2 step_k^2, are least.
// g = clip * max over c of sqrt(a b) / 127; clip = 1 makes the largest value fit, and the one of a few that loses least is taken. Values have a step each, max / 127.
// Softmax weights have 8 bits, or 16 where the error with 8 is above bytes_limit.
int8_attention quantize_attention(const kernels &k, const attention_observer &seen, size_t n_heads, double bytes_limit);

// Makes the QKV layer's outputs (x - center) / step.
void fold_steps(const int8_attention &a, int8_linear *qkv);

// Lays W [n][k], row-major, in panels (format.md): s8 [n/16][k/4][16][4], k padded to 64; f32 [n/16][k][16]; n padded to 16. The padding of `out` must be zero already.
void pack_s8(const int8_t *w, size_t n, size_t k, int8_t *out);
void pack_f32(const float *w, size_t n, size_t k, float *out);

// A row of an embedding table as s8: returns the scale, max|row| / 127, and writes n values; an all-zero row gives 0.
float quantize_row(const float *row, size_t n, int8_t *q);

} // namespace sq

#endif
