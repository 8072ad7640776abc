// sq-quant-round.cpp - rounding the weights of a row together, so that their errors cancel on real inputs; see `weight_metric` in sq-quant.h.
//
// With e = v - q the errors of rounding a row v, and C the covariance of the inputs, the layer's output is off by e C e' in the mean square; the mean of what it is off by
// goes into the bias. With C = L L' (L lower triangular) that is the sum over j of
//     (L[j][j] e[j] + sum over i > j of L[i][j] e[i])^2,
// so, once the weights behind j are rounded, q[j] = rne(v[j] + sum over i > j of L[i][j] e[i] / L[j][j]) makes its term least: Babai's nearest plane (1986), which is also
// what GPTQ does (Frantar et al. 2022), column after column. The inputs that vary most come first, while the others can still make good for them.
//
// Rejected: weights that also take out what the layers before have lost, by regression of the float model's input on the real one. On texts that it had not seen it made
// MiniLM worse: 1 - cosine rose from 0.00077 to 0.0009, with 10,000 rows of calibration for at most 1,536 columns.
//
// All O(k^3) and O(n k^2) work is done by the kernels' f32 product, whose bits are the same on every CPU and for any number of threads.
#include "sq-quant.h"

#include <math.h>
#include <string.h>

#include <algorithm>
#include <numeric>

namespace sq {

namespace {

constexpr size_t BLOCK = 64;        // columns that are factored, and rounded, at a time: 4 panels
constexpr size_t CHUNK_ROWS = 256;  // input rows that are added to the moments at a time
constexpr size_t WEIGHT_ROWS = 32;  // rows of weights that one thread rounds at a time
constexpr double DAMPING = 0.01;    // of the mean variance is added to each, as in GPTQ: calibration saw only some of all inputs

// out [m][16 * panels] += x [m][k] w, by one thread; rows of out are `stride` floats apart
void add_product(const kernels &k, const float *x, size_t x_stride, const float *w, size_t m, size_t panels, size_t depth, float *out, size_t stride) {
    static const aligned<float> zeros(BLOCK);
    gemm_args g{};
    g.x = x;
    g.x_stride = x_stride;
    g.w = w;
    g.m = m;
    g.n_panels = panels;
    g.k = depth;
    g.bias = zeros.get();
    g.residual = out;
    g.out = out;
    g.out_stride = stride;
    k.gemm_f32(&g);
}

// Rows first .. past-1 of a [.][stride] in panels: out [BLOCK / 16][past - first][16] of columns c .. c + BLOCK - 1
void pack_block(const float *a, size_t stride, size_t first, size_t past, size_t c, float *out) {
    for (size_t p = 0; p < BLOCK / 16; p++)
        for (size_t i = first; i < past; i++, out += 16) memcpy(out, a + i * stride + c + 16 * p, 16 * sizeof(float));
}

} // namespace

moments::moments(const kernels &k, size_t n_columns)
    : k_(&k), n_columns_(n_columns), stride_(round_up(n_columns, BLOCK)), mean_(n_columns), products_(stride_ * stride_), waiting_(CHUNK_ROWS * stride_) {}

void moments::add(const float *x, size_t rows, size_t x_stride) {
    for (size_t r = 0; r < rows; r++, x += x_stride) {
        memcpy(waiting_.get() + n_waiting_ * stride_, x, n_columns_ * sizeof(float));
        for (size_t j = 0; j < n_columns_; j++) mean_[j] += static_cast<double>(x[j]);
        n_rows_++;
        if (++n_waiting_ == CHUNK_ROWS) add_waiting();
    }
}

// products_ += X' X for the waiting rows, lower triangle, block of columns by block of columns
void moments::add_waiting() {
    if (n_waiting_ == 0) return;
    const size_t rows = n_waiting_, turned_stride = round_up(rows, 16);
    aligned<float> turned(stride_ * turned_stride);
    parallel_for(stride_ / BLOCK, [&](size_t b) {
        for (size_t j = b * BLOCK; j < (b + 1) * BLOCK; j++)
            for (size_t r = 0; r < rows; r++) turned.get()[j * turned_stride + r] = waiting_.get()[r * stride_ + j];
    });
    parallel_for(stride_ / BLOCK, [&](size_t b) {
        const size_t c = b * BLOCK;
        aligned<float> panels(rows * BLOCK);
        pack_block(waiting_.get(), stride_, 0, rows, c, panels.get());
        add_product(*k_, turned.get() + c * turned_stride, turned_stride, panels.get(), stride_ - c, BLOCK / 16, rows, products_.get() + c * stride_ + c, stride_);
    });
    n_waiting_ = 0;
}

void moments::finish() {
    add_waiting();
    for (size_t j = 0; j < n_columns_ && n_rows_; j++) mean_[j] /= static_cast<double>(n_rows_);
}

double moments::covariance(size_t a, size_t b) const {
    const double sum = static_cast<double>(products_.get()[std::max(a, b) * stride_ + std::min(a, b)]);
    return sum / static_cast<double>(n_rows_) - mean_[a] * mean_[b];
}

// ---- the factor ----

namespace {

// One block of the lower triangle, a [.][stride] at its diagonal, in double
void factor_diagonal(float *a, size_t stride) {
    std::vector<double> l(BLOCK * BLOCK);
    for (size_t j = 0; j < BLOCK; j++)
        for (size_t i = j; i < BLOCK; i++) {
            double v = static_cast<double>(a[i * stride + j]);
            for (size_t t = 0; t < j; t++) v -= l[i * BLOCK + t] * l[j * BLOCK + t];
            // A pivot that rounding has made too small: the damping keeps the true one above this
            l[i * BLOCK + j] = i == j ? sqrt(std::max(v, 1e-6 * static_cast<double>(a[j * stride + j]) + 1e-30)) : v / l[j * BLOCK + j];
        }
    for (size_t i = 0; i < BLOCK; i++)
        for (size_t j = 0; j <= i; j++) a[i * stride + j] = static_cast<float>(l[i * BLOCK + j]);
}

// A row below the factored block l: x L' = row
void solve_row(const float *l, size_t stride, float *row) {
    for (size_t j = 0; j < BLOCK; j++) {
        float v = row[j];
        for (size_t t = 0; t < j; t++) v -= row[t] * l[j * stride + t];
        row[j] = v / l[j * stride + j];
    }
}

// Cholesky's factor in place of the lower triangle of a [size][size], size a multiple of BLOCK
void factor(const kernels &k, float *a, size_t size) {
    aligned<float> negative(size * BLOCK);
    for (size_t c = 0; c < size; c += BLOCK) {
        float *diagonal = a + c * size + c;
        factor_diagonal(diagonal, size);
        const size_t below = c + BLOCK;
        parallel_for((size - below) / BLOCK, [&](size_t b) {
            for (size_t row = b * BLOCK; row < (b + 1) * BLOCK; row++) {
                float *x = a + (below + row) * size + c, *out = negative.get() + row * BLOCK;
                solve_row(diagonal, size, x);
                for (size_t j = 0; j < BLOCK; j++) out[j] = -x[j];
            }
        });
        parallel_for((size - below) / BLOCK, [&](size_t b) {
            const size_t first = b * BLOCK, at = below + first;
            aligned<float> panels(BLOCK * BLOCK);
            for (size_t j = 0; j < BLOCK; j++)
                for (size_t t = 0; t < BLOCK; t++) panels.get()[j / 16 * 16 * BLOCK + t * 16 + j % 16] = a[(at + j) * size + c + t];
            add_product(k, negative.get() + first * BLOCK, BLOCK, panels.get(), size - at, BLOCK / 16, BLOCK, a + at * size + at, size);
        });
    }
}

} // namespace

weight_metric::weight_metric(const kernels &k, const moments &m, const std::vector<float> &s, const std::vector<float> &noise)
    : k_(k), n_columns_(s.size()), size_(round_up(s.size(), BLOCK)), order_(s.size()), variance_(s.size()), factor_(size_ * size_), panels_(size_ * size_),
      inverse_(size_) {
    for (size_t j = 0; j < n_columns_; j++)
        variance_[j] = std::max(0.0, m.covariance(j, j)) / (static_cast<double>(s[j]) * static_cast<double>(s[j])) + static_cast<double>(noise[j]);
    std::iota(order_.begin(), order_.end(), 0u);
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return variance_[a] < variance_[b]; }); // the last is rounded first
    const double mean_variance = std::accumulate(variance_.begin(), variance_.end(), 1e-20) / static_cast<double>(n_columns_);
    parallel_for(size_, [&](size_t i) {
        float *out = factor_.get() + i * size_;
        for (size_t j = 0; j < i && i < n_columns_; j++)
            out[j] = static_cast<float>(m.covariance(order_[i], order_[j]) / (static_cast<double>(s[order_[i]]) * static_cast<double>(s[order_[j]])));
        out[i] = i < n_columns_ ? static_cast<float>(variance_[order_[i]] + DAMPING * mean_variance) : 1;
    });
    factor(k, factor_.get(), size_);
    for (size_t i = 0; i < size_; i++) inverse_[i] = 1 / factor_.get()[i * size_ + i];
    for (size_t c = 0; c < size_; c += BLOCK) pack_block(factor_.get(), size_, 0, size_, c, panels_.get() + c * size_);
}

// ---- rounding ----

// Columns c .. of some rows; sums [rows][BLOCK]: over the errors behind these columns
void weight_metric::round_block(size_t c, size_t rows, const float *v, const float *sums, float *errors, int8_t *q) const {
    for (size_t r = 0; r < rows; r++) {
        float *e = errors + r * size_;
        for (size_t j = std::min(c + BLOCK, n_columns_); j-- > c;) {
            float sum = sums[r * BLOCK + j - c];
            for (size_t i = j + 1; i < std::min(c + BLOCK, n_columns_); i++) sum += factor_.get()[i * size_ + j] * e[i];
            const float x = v[r * size_ + j];
            const float rounded = std::clamp(nearbyintf(x + sum * inverse_[j]), -127.0f, 127.0f);
            e[j] = x - rounded;
            q[r * n_columns_ + order_[j]] = static_cast<int8_t>(rounded);
        }
    }
}

void weight_metric::round(const float *w, size_t rows, int8_t *q) const {
    parallel_for((rows + WEIGHT_ROWS - 1) / WEIGHT_ROWS, [&](size_t chunk) {
        const size_t first = chunk * WEIGHT_ROWS, n = std::min(WEIGHT_ROWS, rows - first);
        aligned<float> v(n * size_), errors(n * size_), sums(n * BLOCK);
        for (size_t r = 0; r < n; r++)
            for (size_t j = 0; j < n_columns_; j++) v.get()[r * size_ + j] = w[(first + r) * n_columns_ + order_[j]];
        for (size_t c = size_; c > 0;) {
            c -= BLOCK;
            memset(sums.get(), 0, n * BLOCK * sizeof(float));
            const size_t behind = c + BLOCK;
            for (size_t p = 0; behind < size_ && p < BLOCK; p += 16)
                add_product(k_, errors.get() + behind, size_, panels_.get() + (c + p) * size_ + behind * 16, n, 1, size_ - behind, sums.get() + p, BLOCK);
            round_block(c, n, v.get(), sums.get(), errors.get(), q + first * n_columns_);
        }
    });
}

} // namespace sq
