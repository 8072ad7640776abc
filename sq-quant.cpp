// sq-quant.cpp - choosing scales and rounding weights; see sq-quant.h for the terms.
#include "sq-quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace sq {

namespace {

constexpr float MAX_S = 1e4f, MIN_S = 1e-4f;   // bounds of a smoothing factor
constexpr float TINY = 1e-5f;                  // stands for the maximum of a channel that is always zero
constexpr float STRENGTHS[] = {0.0f, 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.9f, 1.0f};
constexpr float RANGE_CLIPS[] = {1.0f, 0.95f, 0.9f}; // below that bert-squad, static, changed 10.7 % instead of 8 % of 487 answers: contexts are longer than what calibration samples
constexpr float WEIGHT_CLIPS[] = {1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.7f};
constexpr float WEIGHTS[] = {0.35f, 0.5f, 0.7f, 1.0f, 1.4f}; // of balanced smoothing

} // namespace

void parallel_for(size_t n, const std::function<void(size_t)> &body) {
    std::exception_ptr failure;
    std::mutex guard; // an OpenMP runtime may need memory for a critical section, and end the program when there is none
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < static_cast<int64_t>(n); i++) {
        try {
            body(static_cast<size_t>(i));
        } catch (...) {
            const std::lock_guard<std::mutex> lock(guard);
            failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

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
    for (size_t n = 0; n < l.n; n++)
        for (size_t j = 0; j < l.k; j++) w_squares[j] += static_cast<double>(l.w[n * l.k + j]) * l.w[n * l.k + j];
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

// Weights in steps of a scale per output row
struct rounded {
    std::vector<int8_t> w;    // [n][k]
    std::vector<float> scale; // [n]
};

// [n][k] weights with their columns multiplied by s
std::vector<float> smoothed(const float_linear &l, const std::vector<float> &s) {
    std::vector<float> w(l.w.size());
    for (size_t n = 0; n < l.n; n++)
        for (size_t j = 0; j < l.k; j++) w[n * l.k + j] = l.w[n * l.k + j] * s[j];
    return w;
}

rounded round_one_by_one(const std::vector<float> &w, size_t n, size_t k) {
    rounded r{std::vector<int8_t>(w.size()), std::vector<float>(n)};
    for (size_t i = 0; i < n; i++) r.scale[i] = quantize_row(&w[i * k], k, &r.w[i * k]);
    return r;
}

// A static layer's steps and zero point for the observed range, kept to `clip` of it
struct input_range {
    float step;
    int32_t zero;
};
input_range range_of(const observer &seen, const std::vector<float> &divisor, float clip) {
    float lo = 0, hi = 0;
    for (size_t j = 0; j < divisor.size(); j++) {
        lo = std::min(lo, seen.lo()[j] / divisor[j]);
        hi = std::max(hi, seen.hi()[j] / divisor[j]);
    }
    lo *= clip, hi *= clip;
    const float step = hi - lo > 1e-30f ? (hi - lo) / 255 : 1;
    return {step, static_cast<int32_t>(std::clamp(nearbyintf(-lo / step), 0.0f, 255.0f))};
}

// bias [n]: of the layer in floats. divisor [k]: what the quantise step divides by
int8_linear assemble(const float_linear &l, rounded r, const std::vector<float> &bias, const std::vector<float> &divisor, bool is_dynamic, input_range range) {
    int8_linear q;
    q.n = l.n;
    q.k = l.k;
    q.is_dynamic = is_dynamic;
    q.w = std::move(r.w);
    q.scale = std::move(r.scale);
    q.bias = bias;
    q.comp.resize(l.n);
    for (size_t n = 0; n < l.n; n++)
        for (size_t j = 0; j < l.k; j++) q.comp[n] += q.w[n * l.k + j];
    q.mul.resize(l.k);
    const float step = is_dynamic ? 1 : range.step;
    for (size_t j = 0; j < l.k; j++) q.mul[j] = 1 / (divisor[j] * step);
    if (is_dynamic) return q;
    q.step = range.step;
    q.zero = range.zero;
    for (size_t n = 0; n < l.n; n++) {
        q.scale[n] *= step;
        q.bias[n] = static_cast<float>(q.bias[n] - static_cast<double>(q.scale[n]) * q.zero * q.comp[n]);
    }
    return q;
}

} // namespace

int8_linear as_dynamic(int8_linear l) {
    if (l.is_dynamic) return l;
    for (size_t n = 0; n < l.n; n++) {
        l.bias[n] = static_cast<float>(l.bias[n] + static_cast<double>(l.scale[n]) * l.zero * l.comp[n]);
        l.scale[n] /= l.step;
    }
    for (float &m : l.mul) m *= l.step;
    l.is_dynamic = true;
    l.zero = 0;
    return l;
}

namespace {

int8_linear quantize_plainly(const float_linear &l, const observer &seen, const std::vector<float> &s, bool is_dynamic, float clip) {
    return assemble(l, round_one_by_one(smoothed(l, s), l.n, l.k), l.bias, s, is_dynamic, range_of(seen, s, clip));
}

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
    float clip;
    double error;
};

std::string named(const char *what, float value) {
    char text[32];
    snprintf(text, sizeof text, "%s %.1f", what, static_cast<double>(value));
    return text;
}

std::vector<candidate> candidates(const observer &seen, const float_linear &l) {
    if (seen.n_rows() == 0) return {{"none", smoothing(seen, l, -1), 1, 0}};
    constexpr size_t N_STRENGTHS = std::size(STRENGTHS), N_WEIGHTS = std::size(WEIGHTS);
    std::vector<candidate> all(1 + N_STRENGTHS + 2 * N_WEIGHTS);
    parallel_for(all.size(), [&](size_t i) {
        if (i == 0) all[i] = {"none", smoothing(seen, l, -1), 1, 0};
        else if (i <= N_STRENGTHS) all[i] = {named("strength", STRENGTHS[i - 1]), smoothing(seen, l, STRENGTHS[i - 1]), 1, 0};
        else {
            const size_t at = i - 1 - N_STRENGTHS;
            const float sides = at < N_WEIGHTS ? 1 : 2, weight = WEIGHTS[at % N_WEIGHTS];
            all[i] = {named("balance", weight), balanced_smoothing(seen, l, sides, weight), 1, 0};
        }
    });
    return all;
}

// The candidate that loses least; y: the float layer's output on the sampled rows
candidate best_of(std::vector<candidate> all, const kernels &k, const float_linear &l, const observer &seen, bool is_dynamic, const float *y, double *first_error) {
    parallel_for(seen.n_rows() == 0 ? 0 : all.size(), [&](size_t i) {
        candidate &c = all[i];
        const aligned<float> z = run(k, quantize_plainly(l, seen, c.s, is_dynamic, c.clip), seen);
        c.error = error_against(y, z.get(), seen.n_rows(), l.n, round_up(l.n, 16));
    });
    if (first_error) *first_error = all[0].error;
    return *std::min_element(all.begin(), all.end(), [](const candidate &p, const candidate &q) { return p.error < q.error; });
}

} // namespace

double plain_error(const kernels &k, const float_linear &l, const observer &seen, bool is_dynamic) {
    const aligned<float> y = run_float(k, l, seen);
    double error = 0;
    best_of({{"none", smoothing(seen, l, -1), 1, 0}}, k, l, seen, is_dynamic, y.get(), &error);
    return error;
}

choice search(const kernels &k, const float_linear &l, const observer &seen, bool is_dynamic) {
    choice c;
    const aligned<float> y = run_float(k, l, seen);
    candidate best = best_of(candidates(seen, l), k, l, seen, is_dynamic, y.get(), &c.plain_error);
    if (!is_dynamic) {
        std::vector<candidate> clipped;
        for (float clip : RANGE_CLIPS) clipped.push_back({best.smoothing, best.s, clip, best.error});
        best = best_of(clipped, k, l, seen, false, y.get(), nullptr);
    }
    c.smoothing = best.smoothing;
    c.is_dynamic = is_dynamic;
    c.clip = best.clip;
    c.error = best.error;
    c.s = std::move(best.s);
    return c;
}

namespace {

// [k] mean squared rounding error of the divided input's channels: a twelfth of the squared step, which for a dynamic layer is each row's own.
std::vector<float> input_noise(const observer &seen, const std::vector<float> &divisor, bool is_dynamic, float step) {
    double squares = static_cast<double>(step) * static_cast<double>(step);
    if (is_dynamic) {
        squares = 0;
        for (size_t r = 0; r < seen.n_rows(); r++) {
            float lo = 0, hi = 0;
            for (size_t j = 0; j < seen.k(); j++) lo = std::min(lo, seen.row(r)[j] / divisor[j]), hi = std::max(hi, seen.row(r)[j] / divisor[j]);
            squares += pow(static_cast<double>(hi - lo) / 255, 2) / static_cast<double>(seen.n_rows());
        }
    }
    return std::vector<float>(seen.k(), static_cast<float>(squares / 12));
}

// The step for a row of weights that loses least when its entries are rounded one by one and those beyond 127 steps saturate; variance [k] of their inputs.
float row_step(const float *w, size_t k, const std::vector<double> &variance) {
    float most = 0;
    for (size_t j = 0; j < k; j++) most = std::max(most, fabsf(w[j]));
    float best = most / 127;
    if (!(best >= 1e-37f)) return 0; // as quantize_row
    double least = HUGE_VAL;
    for (float clip : WEIGHT_CLIPS) {
        const float step = most * clip / 127;
        double lost = 0;
        for (size_t j = 0; j < k; j++) {
            const double e = static_cast<double>(w[j]) - static_cast<double>(step * std::clamp(nearbyintf(w[j] / step), -127.0f, 127.0f));
            lost += e * e * variance[j];
        }
        if (lost < least) least = lost, best = step;
    }
    return best;
}

// w [n][k], smoothed
rounded round_together(std::vector<float> w, size_t n, size_t k, const weight_metric &metric) {
    rounded r{std::vector<int8_t>(w.size()), std::vector<float>(n)};
    parallel_for(n, [&](size_t row) {
        r.scale[row] = row_step(&w[row * k], k, metric.variance());
        for (size_t j = 0; j < k; j++) w[row * k + j] = r.scale[row] > 0 ? w[row * k + j] / r.scale[row] : 0;
    });
    metric.round(w.data(), n, r.w.data());
    return r;
}

// See `quantize` in sq-quant.h; w [n][k] smoothed.
std::vector<float> corrected_bias(const float_linear &l, const std::vector<float> &w, const rounded &r, const layer_input &in, const std::vector<float> &divisor) {
    std::vector<float> bias(l.n);
    for (size_t n = 0; n < l.n; n++) {
        double v = static_cast<double>(l.bias[n]);
        for (size_t j = 0; j < l.k; j++) {
            const double float_weight = static_cast<double>(w[n * l.k + j]), weight = static_cast<double>(r.scale[n]) * r.w[n * l.k + j];
            v += (float_weight * in.float_mean[j] - weight * in.real.mean()[j]) / static_cast<double>(divisor[j]);
        }
        bias[n] = static_cast<float>(v);
    }
    return bias;
}

} // namespace

int8_linear quantize(const kernels &k, const float_linear &l, const layer_input &in, const choice &c, bool fold_input) {
    const std::vector<float> ones(l.k, 1.0f), &divisor = fold_input ? ones : c.s;
    const input_range range = range_of(in.seen, divisor, c.clip);
    const std::vector<float> w = smoothed(l, c.s);
    if (in.real.n_rows() == 0) return assemble(l, round_one_by_one(w, l.n, l.k), l.bias, divisor, c.is_dynamic, range);
    rounded r = round_together(w, l.n, l.k, weight_metric(k, in.real, divisor, input_noise(in.seen, divisor, c.is_dynamic, range.step)));
    const std::vector<float> bias = corrected_bias(l, w, r, in, divisor);
    return assemble(l, std::move(r), bias, divisor, c.is_dynamic, range);
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
    parallel_for(all.size(), [&](size_t i) {
        all[i] = attention_steps(seen, n_heads, is_fine, CLIPS[i]);
        const aligned<float> y = attend_s8(k, seen, n_heads, all[i]);
        all[i].error = error_against(exact, y.get(), seen.start(seen.n_seqs()), seen.width(), seen.width());
    });
    return *std::min_element(all.begin(), all.end(), [](const int8_attention &p, const int8_attention &q) { return p.error < q.error; });
}

} // namespace

int8_attention quantize_attention(const kernels &k, const attention_observer &seen, size_t n_heads, double bytes_limit) {
    if (seen.n_seqs() == 0) return attention_steps(seen, n_heads, false, 1);
    const aligned<float> exact = attend_f32(k, seen, n_heads);
    const int8_attention a = best_clip(k, seen, n_heads, false, exact.get());
    return a.error <= bytes_limit ? a : best_clip(k, seen, n_heads, true, exact.get());
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
