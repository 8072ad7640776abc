// sq-quant.cpp - choosing scales and rounding weights; see sq-quant.h for the terms.
#include "sq-quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

namespace sq {

namespace {

constexpr float MAX_S = 1e4f, MIN_S = 1e-4f;   // bounds of a smoothing factor
constexpr float TINY = 1e-5f;                  // stands for the maximum of a channel that is always zero
constexpr float STRENGTHS[] = {0.0f, 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.9f, 1.0f};
constexpr float WEIGHTS[] = {0.35f, 0.5f, 0.7f, 1.0f, 1.4f}; // of balanced smoothing

struct free_deleter {
    void operator()(void *p) const { free(p); }
};

// 64-byte aligned zeros, as kernels want them.
template <class T> class aligned {
  public:
    explicit aligned(size_t n) {
        void *p = nullptr;
        if (posix_memalign(&p, 64, std::max<size_t>(n, 1) * sizeof(T)) != 0) throw std::bad_alloc();
        memset(p, 0, n * sizeof(T));
        p_.reset(static_cast<T *>(p));
    }
    T *get() const { return p_.get(); }

  private:
    std::unique_ptr<T, free_deleter> p_;
};

template <class T> aligned<T> padded(const std::vector<T> &v) {
    aligned<T> out(round_up(v.size(), 16));
    std::copy(v.begin(), v.end(), out.get());
    return out;
}

} // namespace

void observer::see(const float *x, size_t rows, size_t stride, bool keep) {
    for (size_t r = 0; r < rows; r++, x += stride) {
        for (size_t j = 0; j < k_; j++) {
            lo_[j] = std::min(lo_[j], x[j]);
            hi_[j] = std::max(hi_[j], x[j]);
        }
        if (keep) {
            for (size_t i = 0; i < KEPT_WEIGHT; i++) rows_.insert(rows_.begin(), x, x + k_);
            n_kept_ += KEPT_WEIGHT;
            continue;
        }
        // Reservoir sampling (Vitter's algorithm R): each row seen so far is in the sample with the same probability.
        n_seen_++;
        if (n_rows() < n_kept_ + max_rows_) {
            rows_.insert(rows_.end(), x, x + k_);
            continue;
        }
        random_ = random_ * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator
        const size_t at = (random_ >> 33) % n_seen_;
        if (at < max_rows_) std::copy(x, x + k_, rows_.begin() + static_cast<ptrdiff_t>((n_kept_ + at) * k_));
    }
}

void observer::divide(const std::vector<float> &s) {
    for (size_t j = 0; j < k_; j++) lo_[j] /= s[j], hi_[j] /= s[j];
    for (size_t i = 0; i < rows_.size(); i++) rows_[i] /= s[i % k_];
}

std::vector<float> smoothing(const observer &seen, const float_linear &l, float strength) {
    std::vector<float> s(l.k, 1.0f);
    if (strength < 0) return s;
    std::vector<float> w_max(l.k, 0.0f);
    for (size_t n = 0; n < l.n; n++)
        for (size_t j = 0; j < l.k; j++) w_max[j] = std::max(w_max[j], fabsf(l.w[n * l.k + j]));
    for (size_t j = 0; j < l.k; j++) {
        const float x_max = std::max(TINY, std::max(-seen.lo()[j], seen.hi()[j]));
        const double factor = pow(x_max, strength) / pow(std::max(TINY, w_max[j]), 1 - strength);
        s[j] = static_cast<float>(std::clamp<double>(factor, MIN_S, MAX_S));
    }
    return s;
}

std::vector<float> balanced_smoothing(const observer &seen, const float_linear &l, float sides, float weight) {
    std::vector<double> w_squares(l.k, 1e-20), x_squares(l.k, 1e-20), s(l.k), least(l.k);
    for (size_t i = 0; i < l.w.size(); i++) w_squares[i % l.k] += static_cast<double>(l.w[i]) * l.w[i];
    for (size_t r = 0; r < seen.n_rows(); r++)
        for (size_t j = 0; j < l.k; j++) x_squares[j] += static_cast<double>(seen.row(r)[j]) * seen.row(r)[j] / static_cast<double>(seen.n_rows());
    for (size_t j = 0; j < l.k; j++) s[j] = least[j] = static_cast<double>(sides) / 255 * std::max(TINY, std::max(seen.hi()[j], -seen.lo()[j]));
    constexpr int ITERATIONS = 8; // the factors then move by less than a percent
    for (int i = 0; i < ITERATIONS; i++) {
        double ws_squares = 0;
        for (size_t n = 0; n < l.n; n++) {
            double most = 0;
            for (size_t j = 0; j < l.k; j++) most = std::max(most, fabs(l.w[n * l.k + j]) * s[j]);
            ws_squares += most * most / (127 * 127);
        }
        for (size_t j = 0; j < l.k; j++) s[j] = std::max(least[j], static_cast<double>(weight) * sqrt(sqrt(ws_squares * x_squares[j] / w_squares[j])));
    }
    double log_mean = 0;
    for (double v : s) log_mean += log(v) / static_cast<double>(l.k);
    std::vector<float> out(l.k);
    for (size_t j = 0; j < l.k; j++) out[j] = static_cast<float>(std::clamp<double>(s[j] / exp(log_mean), MIN_S, MAX_S));
    return out;
}

namespace {

// Rounds W with its columns multiplied by s; one scale per output row.
void round_weights(const float_linear &l, const std::vector<float> &s, int8_linear *q, std::vector<float> *weight_scale) {
    std::vector<float> row(l.k);
    for (size_t n = 0; n < l.n; n++) {
        for (size_t j = 0; j < l.k; j++) row[j] = l.w[n * l.k + j] * s[j];
        (*weight_scale)[n] = quantize_row(row.data(), l.k, &q->w[n * l.k]);
        int32_t sum = 0;
        for (size_t j = 0; j < l.k; j++) sum += q->w[n * l.k + j];
        q->comp[n] = sum;
    }
}

} // namespace

int8_linear quantize(const float_linear &l, const observer &seen, const std::vector<float> &s, bool is_dynamic, bool fold_input) {
    int8_linear q;
    q.n = l.n;
    q.k = l.k;
    q.is_dynamic = is_dynamic;
    q.w.resize(l.w.size());
    q.comp.resize(l.n);
    q.mul.resize(l.k);
    std::vector<float> ws(l.n);
    round_weights(l, s, &q, &ws);
    const std::vector<float> ones(l.k, 1.0f), &divisor = fold_input ? ones : s;
    if (is_dynamic) {
        q.scale = ws;
        q.bias = l.bias;
        for (size_t j = 0; j < l.k; j++) q.mul[j] = 1 / divisor[j];
        return q;
    }
    float lo = 0, hi = 0; // of the smoothed input
    for (size_t j = 0; j < l.k; j++) {
        lo = std::min(lo, seen.lo()[j] / divisor[j]);
        hi = std::max(hi, seen.hi()[j] / divisor[j]);
    }
    const float as = hi - lo > 1e-30f ? (hi - lo) / 255 : 1;
    q.zero = static_cast<int32_t>(std::clamp(nearbyintf(-lo / as), 0.0f, 255.0f));
    q.scale.resize(l.n);
    q.bias.resize(l.n);
    for (size_t n = 0; n < l.n; n++) {
        q.scale[n] = as * ws[n];
        q.bias[n] = static_cast<float>(l.bias[n] - static_cast<double>(q.scale[n]) * q.zero * q.comp[n]);
    }
    for (size_t j = 0; j < l.k; j++) q.mul[j] = 1 / (divisor[j] * as);
    return q;
}

namespace {

// The INT8 layer's output on the sampled rows, f32 [rows][n rounded up to 16].
aligned<float> run(const kernels &k, const int8_linear &q, const observer &seen) {
    const size_t rows = seen.n_rows(), depth = round_up(q.k, 64), columns = round_up(q.n, 16);
    aligned<float> x(round_up(q.k, 16)), y(rows * columns), row_scale(rows);
    aligned<int32_t> row_zero(rows);
    aligned<uint8_t> qx(rows * depth);
    const aligned<float> mul = padded(q.mul), scale = padded(q.scale), bias = padded(q.bias);
    const aligned<int32_t> comp = padded(q.comp);
    aligned<int8_t> w(columns * depth);
    pack_s8(q.w.data(), q.n, q.k, w.get());
    for (size_t r = 0; r < rows; r++) {
        std::copy(seen.row(r), seen.row(r) + q.k, x.get());
        if (q.is_dynamic) k.quant_dynamic(x.get(), mul.get(), q.k, qx.get() + r * depth, &row_scale.get()[r], &row_zero.get()[r]);
        else k.quant_static(x.get(), mul.get(), q.zero, q.k, qx.get() + r * depth);
    }
    gemm_args g{};
    g.x = qx.get();
    g.x_stride = depth;
    g.w = w.get();
    g.m = rows;
    g.n_panels = columns / 16;
    g.k = depth;
    g.scale = scale.get();
    g.bias = bias.get();
    g.comp = q.is_dynamic ? comp.get() : nullptr;
    g.row_scale = q.is_dynamic ? row_scale.get() : nullptr;
    g.row_zero = q.is_dynamic ? row_zero.get() : nullptr;
    g.out = y.get();
    g.out_stride = columns;
    if (k.thread_begin) k.thread_begin();
    k.gemm_u8s8(&g);
    if (k.thread_end) k.thread_end();
    return y;
}

// The float layer's output on the sampled rows, f32 [rows][n rounded up to 16].
aligned<float> run_float(const kernels &k, const float_linear &l, const observer &seen) {
    const size_t rows = seen.n_rows(), columns = round_up(l.n, 16), stride = round_up(l.k, 16);
    aligned<float> x(rows * stride), y(rows * columns), w(columns * l.k);
    const aligned<float> bias = padded(l.bias);
    for (size_t r = 0; r < rows; r++) std::copy(seen.row(r), seen.row(r) + l.k, x.get() + r * stride);
    pack_f32(l.w.data(), l.n, l.k, w.get());
    gemm_args g{};
    g.x = x.get();
    g.x_stride = stride;
    g.w = w.get();
    g.m = rows;
    g.n_panels = columns / 16;
    g.k = l.k;
    g.bias = bias.get();
    g.out = y.get();
    g.out_stride = columns;
    k.gemm_f32(&g);
    return y;
}

constexpr double FLOOR = 0.1; // of the mean energy is added to each row's, so that rows of next to no output do not decide

// See `choice`; y is the float layer's output, shared by all candidates of a search.
double error_against(const float *y, const float *z, size_t rows, size_t n, size_t columns) {
    std::vector<double> mean(n, 0.0), lost(rows, 0.0), own(rows, 0.0);
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < n; j++) mean[j] += y[r * columns + j] / static_cast<double>(rows);
    double all = 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < n; j++) {
            const double d = static_cast<double>(z[r * columns + j]) - y[r * columns + j], v = y[r * columns + j] - mean[j];
            lost[r] += d * d;
            own[r] += v * v;
        }
        all += own[r] / static_cast<double>(rows);
    }
    double sum = 0;
    for (size_t r = 0; r < rows; r++) sum += lost[r] / (own[r] + FLOOR * all) / static_cast<double>(rows);
    return all > 0 ? sqrt(sum) : 0;
}

struct candidate {
    std::string smoothing;
    std::vector<float> s;
    double error;
};

std::string named(const char *what, float value) {
    char text[32];
    snprintf(text, sizeof text, "%s %.1f", what, static_cast<double>(value));
    return text;
}

std::vector<candidate> candidates(const observer &seen, const float_linear &l) {
    std::vector<candidate> all;
    all.push_back({"none", smoothing(seen, l, -1), 0});
    if (seen.n_rows() == 0) return all;
    for (float strength : STRENGTHS) all.push_back({named("strength", strength), smoothing(seen, l, strength), 0});
    for (float sides : {1.0f, 2.0f})
        for (float weight : WEIGHTS) all.push_back({named("balance", weight), balanced_smoothing(seen, l, sides, weight), 0});
    return all;
}

} // namespace

choice search(const kernels &k, const float_linear &l, const observer &seen, bool is_dynamic) {
    std::vector<candidate> all = candidates(seen, l);
    const aligned<float> y = run_float(k, l, seen);
    const int n = seen.n_rows() == 0 ? 0 : static_cast<int>(all.size());
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++) {
        candidate &c = all[static_cast<size_t>(i)];
        const aligned<float> z = run(k, quantize(l, seen, c.s, is_dynamic, false), seen);
        c.error = error_against(y.get(), z.get(), seen.n_rows(), l.n, round_up(l.n, 16));
    }
    const auto best = std::min_element(all.begin(), all.end(), [](const candidate &p, const candidate &q) { return p.error < q.error; });
    return {best->smoothing, is_dynamic, all[0].error, best->error, std::move(best->s)};
}

// ---- attention ----

void attention_observer::see(const float *x, size_t rows, size_t stride) {
    const size_t columns = 3 * width_;
    for (size_t r = 0; r < rows; r++)
        for (size_t j = 0; j < columns; j++) {
            lo_[j] = std::min(lo_[j], x[r * stride + j]);
            hi_[j] = std::max(hi_[j], x[r * stride + j]);
        }
    if (starts_.back() + rows > max_rows_) return;
    for (size_t r = 0; r < rows; r++) rows_.insert(rows_.end(), x + r * stride, x + r * stride + columns);
    starts_.push_back(starts_.back() + rows);
}

void attention_observer::divide_values(const std::vector<float> &s) {
    const size_t columns = 3 * width_;
    for (size_t j = 0; j < width_; j++) lo_[2 * width_ + j] /= s[j], hi_[2 * width_ + j] /= s[j];
    for (size_t i = 0; i < rows_.size(); i++)
        if (i % columns >= 2 * width_) rows_[i] /= s[i % columns - 2 * width_];
}

namespace {

constexpr float S8_MOST = 127;
constexpr float CLIPS[] = {1.0f, 0.85f, 0.7f, 0.55f, 0.4f}; // of queries and keys

int8_attention attention_steps(const attention_observer &seen, size_t n_heads, bool is_fine, float clip) {
    const size_t width = seen.width(), d = width / n_heads;
    int8_attention a;
    a.is_fine = is_fine;
    a.clip = clip;
    a.step.resize(3 * width);
    a.center.resize(3 * width);
    std::vector<float> most(3 * width);
    for (size_t c = 0; c < 3 * width; c++) {
        if (c / width == 1) a.center[c] = (seen.lo()[c] + seen.hi()[c]) / 2;
        most[c] = std::max(TINY, std::max(seen.hi()[c] - a.center[c], a.center[c] - seen.lo()[c]));
    }
    for (size_t h = 0; h < n_heads; h++) {
        const float *q = &most[h * d], *k = q + width;
        float g = 0;
        for (size_t c = 0; c < d; c++) g = std::max(g, clip * sqrtf(q[c] * k[c]) / S8_MOST);
        for (size_t c = 0; c < d; c++) {
            const float balance = std::clamp(sqrtf(q[c] / k[c]), MIN_S, MAX_S);
            a.step[h * d + c] = g * balance;
            a.step[width + h * d + c] = g / balance;
        }
        a.scale.push_back(g * g);
    }
    for (size_t c = 2 * width; c < 3 * width; c++) a.mul.push_back(a.step[c] = most[c] / S8_MOST);
    return a;
}

// The observed rows, aligned: f32 [rows][3 * width]
aligned<float> observed_rows(const attention_observer &seen) {
    const size_t n = seen.start(seen.n_seqs()) * 3 * seen.width();
    aligned<float> x(n);
    std::copy(seen.row(0), seen.row(0) + n, x.get());
    return x;
}

// Calls each(first row, rows, first column of the head) for every head of every observed sequence.
template <class Each> void for_heads(const attention_observer &seen, size_t n_heads, Each each) {
    for (size_t seq = 0; seq < seen.n_seqs(); seq++)
        for (size_t h = 0; h < n_heads; h++) each(seen.start(seq), seen.start(seq + 1) - seen.start(seq), h * (seen.width() / n_heads));
}

// Attention in f32: [rows][width]
aligned<float> attend_f32(const kernels &k, const attention_observer &seen, size_t n_heads) {
    const size_t width = seen.width(), d = width / n_heads, stride = 3 * width;
    const aligned<float> x = observed_rows(seen);
    aligned<float> y(seen.start(seen.n_seqs()) * width);
    for_heads(seen, n_heads, [&](size_t start, size_t s, size_t column) {
        aligned<float> scratch(attention_scratch(s, d));
        const float *q = x.get() + start * stride + column;
        const attention_args a{q, q + width, q + 2 * width, stride, s, d, 0, s, scratch.get(), y.get() + start * width + column, width};
        k.attention(&a);
    });
    return y;
}

// Attention in integers: f32 [rows][width]
aligned<float> attend_s8(const kernels &k, const attention_observer &seen, size_t n_heads, const int8_attention &a) {
    const size_t width = seen.width(), d = width / n_heads, stride = 3 * width, rows = seen.start(seen.n_seqs());
    aligned<float> y(rows * width);
    const aligned<float> mul = padded(a.mul);
    aligned<uint8_t> x(rows * stride);
    for (size_t i = 0; i < rows * stride; i++) {
        const size_t c = i % stride;
        x.get()[i] = static_cast<uint8_t>(std::clamp(nearbyintf((seen.row(0)[i] - a.center[c]) / a.step[c]) + S8_ZERO, 0.0f, 255.0f));
    }
    if (k.thread_begin) k.thread_begin();
    for_heads(seen, n_heads, [&](size_t start, size_t s, size_t column) {
        aligned<uint8_t> scratch(attention_s8_scratch(s, d));
        const uint8_t *q = x.get() + start * stride + column;
        const attention_s8_args args{q, q + width, q + 2 * width, stride, s, d, 0, s, a.is_fine, a.scale[column / d] * LOG2_E, mul.get() + column, scratch.get(),
                                     y.get() + start * width + column, width, false, 0};
        k.attention_s8(&args);
    });
    if (k.thread_end) k.thread_end();
    return y;
}

// The clip that loses least; exact: what attend_f32 gives
int8_attention best_clip(const kernels &k, const attention_observer &seen, size_t n_heads, bool is_fine, const float *exact) {
    std::array<int8_attention, std::size(CLIPS)> all;
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < all.size(); i++) {
        all[i] = attention_steps(seen, n_heads, is_fine, CLIPS[i]);
        const aligned<float> y = attend_s8(k, seen, n_heads, all[i]);
        all[i].error = error_against(exact, y.get(), seen.start(seen.n_seqs()), seen.width(), seen.width());
    }
    return *std::min_element(all.begin(), all.end(), [](const int8_attention &p, const int8_attention &q) { return p.error < q.error; });
}

} // namespace

int8_attention quantize_attention(const kernels &k, const attention_observer &seen, size_t n_heads, double coarse) {
    if (seen.n_seqs() == 0) return attention_steps(seen, n_heads, false, 1);
    const aligned<float> exact = attend_f32(k, seen, n_heads);
    const int8_attention a = best_clip(k, seen, n_heads, false, exact.get());
    return a.error <= coarse ? a : best_clip(k, seen, n_heads, true, exact.get());
}

void fold_steps(const int8_attention &a, int8_linear *qkv) {
    for (size_t n = 0; n < qkv->n; n++) {
        qkv->scale[n] /= a.step[n];
        qkv->bias[n] = (qkv->bias[n] - a.center[n]) / a.step[n];
    }
}

void pack_s8(const int8_t *w, size_t n, size_t k, int8_t *out) {
    const size_t k_padded = round_up(k, 64);
    for (size_t row = 0; row < n; row++)
        for (size_t j = 0; j < k; j++) out[row / 16 * 16 * k_padded + j / 4 * 64 + row % 16 * 4 + j % 4] = w[row * k + j];
}

void pack_f32(const float *w, size_t n, size_t k, float *out) {
    for (size_t row = 0; row < n; row++)
        for (size_t j = 0; j < k; j++) out[row / 16 * 16 * k + j * 16 + row % 16] = w[row * k + j];
}

float quantize_row(const float *row, size_t n, int8_t *q) {
    float most = 0;
    for (size_t j = 0; j < n; j++) most = std::max(most, fabsf(row[j]));
    const float scale = most / 127;
    if (!(scale >= 1e-37f)) { // below this, 1 / scale overflows; such weights are as good as zero
        std::fill(q, q + n, static_cast<int8_t>(0));
        return 0;
    }
    for (size_t j = 0; j < n; j++) q[j] = static_cast<int8_t>(std::clamp(nearbyintf(row[j] / scale), -127.0f, 127.0f));
    return scale;
}

} // namespace sq
