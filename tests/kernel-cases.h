// tests/kernel-cases.h - for tests of the kernel tables: random arguments of every kernel in guarded memory, and whether two tables make the same of them.
//
// All buffers end where an inaccessible page begins, so that an access past the end is a crash. Bounds are derived from U = 2^-24, the relative error of one
// rounding.
#ifndef SQ_TESTS_KERNEL_CASES_H
#define SQ_TESTS_KERNEL_CASES_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <random>

#include "../sq-kernels.h"

namespace kernel_cases {

using namespace sq;

constexpr double U = 1.0 / (1 << 24);
constexpr float NOT = std::numeric_limits<float>::quiet_NaN();

// n elements, 64-byte aligned, with inaccessible pages before the first page and after the last byte (n rounded up to 64 bytes).
template <class T> class guarded {
public:
    explicit guarded(size_t n_, T fill = T()) : n(n_) {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = round_up(n * sizeof(T), 64), body = round_up(bytes, page);
        size = body + 2 * page;
        base = (char *)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED)
            abort();
        mprotect(base, page, PROT_NONE);
        mprotect(base + page + body, page, PROT_NONE);
        p = (T *)(base + page + body - bytes);
        std::fill(p, p + n, fill);
    }
    ~guarded() { munmap(base, size); }
    guarded(const guarded &) = delete;
    guarded &operator=(const guarded &) = delete;
    T &operator[](size_t i) { return p[i]; }
    T *get() { return p; }
    size_t n;

private:
    char *base;
    size_t size;
    T *p;
};

inline std::mt19937 rng(1);

inline int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); }
inline float real(float lo, float hi) { return std::uniform_real_distribution<float>(lo, hi)(rng); }

// Equal bits, or both NaN (whose sign and payload depend on the order of operands)
inline bool same(guarded<float> &a, guarded<float> &b) {
    for (size_t i = 0; i < a.n; i++)
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(a[i] != a[i] && b[i] != b[i]))
            return false;
    return true;
}

inline bool same(guarded<uint8_t> &a, guarded<uint8_t> &b) { return memcmp(a.get(), b.get(), a.n) == 0; }

inline double gelu_erf(double x) { return 0.5 * x * erfc(-x / sqrt(2.0)); }
inline double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

inline double activated(activation act, double x) {
    switch (act) {
    case ACT_GELU_ERF: return gelu_erf(x);
    case ACT_GELU_TANH: return gelu_tanh(x);
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_TANH: return tanh(x);
    default: return x;
    }
}

// Stated in sq-kernels-inl.h; the slope of every activation is below 1.2
inline double activation_error(activation act) { return act == ACT_GELU_ERF ? 3e-6 : act == ACT_GELU_TANH ? 5e-6 : act == ACT_TANH ? 5e-7 : 0; }

// ---- linear layers ----

// One random layer with everything that gemm_args can point to
struct layer {
    size_t m, n_panels, k, x_stride, out_stride;
    bool is_float, extreme, mul_folded = false;
    uint32_t tile = 0; // of a table that has so many
    guarded<uint8_t> x;
    guarded<int8_t> w;
    guarded<float> xf, wf, scale, bias, row_scale, residual, out_mul;
    guarded<int32_t> comp, row_zero;

    layer(size_t m_, size_t n_panels_, size_t k_, bool is_float_, bool extreme_)
        : m(m_), n_panels(n_panels_), k(k_), x_stride(is_float_ ? round_up(k_, 16) : k_ + (m_ % 2 ? 64 : 0)), out_stride(round_up(16 * n_panels_, 64)),
          is_float(is_float_), extreme(extreme_), x(is_float ? 0 : (m - 1) * x_stride + k), w(is_float ? 0 : 16 * n_panels * k),
          xf(is_float ? m * x_stride : 0), wf(is_float ? 16 * n_panels * k : 0), scale(16 * n_panels), bias(16 * n_panels), row_scale(m),
          residual(m * out_stride), out_mul(16 * n_panels), comp(16 * n_panels), row_zero(m) {
        for (size_t i = 0; i < x.n; i++)
            x[i] = (uint8_t)(extreme ? 255 : pick(0, 255));
        for (size_t i = 0; i < w.n; i++)
            w[i] = (int8_t)(extreme ? (i / 4 % 2 ? 127 : -127) : pick(-127, 127));
        for (size_t i = 0; i < xf.n; i++)
            xf[i] = real(-2, 2);
        for (size_t i = 0; i < wf.n; i++)
            wf[i] = real(-0.3f, 0.3f);
        for (size_t n = 0; n < 16 * n_panels; n++) {
            scale[n] = real(1e-5f, 4e-5f) * (m % 2 ? 50.0f : 1.0f);
            bias[n] = real(-3, 3);
            out_mul[n] = real(5, 40);
            for (size_t i = 0; i < k && !is_float; i++)
                comp[n] += weight(n, i);
        }
        for (size_t t = 0; t < m; t++) {
            row_scale[t] = real(0.5f, 2);
            row_zero[t] = extreme ? 255 : pick(0, 255);
        }
        for (size_t i = 0; i < residual.n; i++)
            residual[i] = real(-4, 4);
    }

    // Makes it a layer of K < k inputs, padded as sq-kernels.h says: weights are 0, and x is anything
    void pad_from(size_t K) {
        for (size_t n = 0; n < 16 * n_panels; n++)
            for (size_t i = K; i < k; i++) {
                comp[n] -= weight(n, i);
                w[place(n, i)] = 0;
            }
    }

    size_t place(size_t n, size_t i) const { return n / 16 * 16 * k + i / 4 * 64 + n % 16 * 4 + i % 4; }
    int weight(size_t n, size_t i) { return w[place(n, i)]; }

    gemm_args args(activation act, bool with_residual, bool to_u8, bool dynamic, void *out) {
        gemm_args g{};
        g.x = is_float ? (const void *)xf.get() : x.get();
        g.w = is_float ? (const void *)wf.get() : w.get();
        g.x_stride = x_stride;
        g.m = m;
        g.n_panels = n_panels;
        g.k = k;
        g.scale = is_float ? nullptr : scale.get();
        g.bias = bias.get();
        g.comp = dynamic ? comp.get() : nullptr;
        g.row_scale = dynamic ? row_scale.get() : nullptr;
        g.row_zero = dynamic ? row_zero.get() : nullptr;
        g.act = act;
        g.tile = tile;
        g.residual = with_residual ? residual.get() : nullptr;
        g.out = out;
        g.out_stride = out_stride;
        g.out_u8 = to_u8;
        g.out_mul = to_u8 && !mul_folded ? out_mul.get() : nullptr;
        g.out_zero = to_u8 ? (int32_t)(m * 37 % 256) : 0;
        return g;
    }

    // y before quantising, in double, and how far a correct kernel may be from it
    double expected(const gemm_args &g, size_t t, size_t n, double *bound) {
        double y, size = 0;
        if (is_float) {
            y = g.bias[n];
            for (size_t i = 0; i < k; i++) {
                const double term = (double)xf[t * x_stride + i] * wf[n / 16 * 16 * k + 16 * i + n % 16];
                y += term;
                size += fabs(term);
            }
            *bound = U * ((double)(k + 1) * size + fabs(y)); // every partial sum is below size
        } else {
            int64_t acc = 0;
            for (size_t i = 0; i < k; i++)
                acc += x[t * x_stride + i] * weight(n, i);
            if (g.row_zero)
                acc -= (int64_t)g.row_zero[t] * comp[n];
            const double product = (double)acc * g.scale[n] * (g.row_scale ? g.row_scale[t] : 1.0f);
            y = product + g.bias[n];
            *bound = 1.01 * U * (2 * fabs(product) + fabs(y)); // float(acc), the product of scales, the sum
        }
        y = activated(g.act, y);
        *bound = 1.2 * *bound + activation_error(g.act) + 4 * U * fabs(y);
        if (g.residual) {
            y += g.residual[t * out_stride + n];
            *bound += U * fabs(y);
        }
        return y;
    }
};

inline void run(const kernels *table, gemm_args g, bool is_float) {
    g.tile %= table->n_tiles;
    if (table->thread_begin)
        table->thread_begin();
    (is_float ? table->gemm_f32 : table->gemm_u8s8)(&g);
    if (table->thread_end)
        table->thread_end();
}

// Whether another table gives plain's bits in the whole buffer, also beside the columns
inline bool same_layer(const kernels *table, layer &l, activation act, bool with_residual, bool to_u8, bool dynamic) {
    guarded<float> y0(l.m * l.out_stride, 7), y1(l.m * l.out_stride, 7);
    guarded<uint8_t> q0(l.m * l.out_stride, 7), q1(l.m * l.out_stride, 7);
    run(kernels_plain(), l.args(act, with_residual, to_u8, dynamic, to_u8 ? (void *)q0.get() : y0.get()), l.is_float);
    run(table, l.args(act, with_residual, to_u8, dynamic, to_u8 ? (void *)q1.get() : y1.get()), l.is_float);
    return same(y0, y1) && same(q0, q1);
}

// ---- attention ----

struct heads {
    size_t s, d, stride, out_stride;
    guarded<float> q, k, v, scratch;
    // The last head of rows with an odd stride: every read past d would show
    heads(size_t s_, size_t d_)
        : s(s_), d(d_), stride(d_ + 16), out_stride(d_ + 3), q((s - 1) * stride + d), k(q.n), v(q.n), scratch(attention_scratch(s, d)) {
        for (size_t i = 0; i < q.n; i++) {
            q[i] = real(-1, 1);
            k[i] = real(-1, 1);
            v[i] = real(-1, 1);
        }
    }
    void run(const kernels *table, float *out) {
        std::fill(scratch.get(), scratch.get() + scratch.n, NOT);
        attention_args a{q.get(), k.get(), v.get(), stride, s, d, 0, s, scratch.get(), out, out_stride};
        table->attention(&a);
    }
};

inline bool same_attention(const kernels *table, heads &h) {
    guarded<float> a((h.s - 1) * h.out_stride + h.d, 7), b(a.n, 7);
    h.run(kernels_plain(), a.get());
    h.run(table, b.get());
    return same(a, b);
}

struct heads_s8 {
    size_t s, d, stride, out_stride;
    bool fine = false;
    float factor;
    guarded<uint8_t> q, k, v, scratch;
    guarded<float> mul;
    heads_s8(size_t s_, size_t d_, float factor_, bool extreme)
        : s(s_), d(d_), stride(d_ + 16), out_stride(d_ + 64), factor(factor_), q((s - 1) * stride + d), k(q.n), v(q.n), scratch(attention_s8_scratch(s, d)), mul(d) {
        for (size_t i = 0; i < q.n; i++) {
            q[i] = (uint8_t)(extreme ? pick(0, 1) * 255 : pick(0, 255));
            k[i] = (uint8_t)(extreme ? pick(0, 1) * 255 : pick(0, 255));
            v[i] = (uint8_t)(extreme ? 255 * (i & 1) : pick(0, 255));
        }
        for (size_t c = 0; c < d; c++)
            mul[c] = real(0.005f, 0.05f);
    }
    void run(const kernels *table, size_t first, size_t past, bool out_u8, void *out) {
        std::fill(scratch.get(), scratch.get() + scratch.n, (uint8_t)0xA5);
        if (table->thread_begin)
            table->thread_begin();
        const attention_s8_args a{q.get(), k.get(), v.get(), stride, s, d, first, past, fine, factor, mul.get(), scratch.get(), out, out_stride, out_u8, 101};
        table->attention_s8(&a);
        if (table->thread_end)
            table->thread_end();
    }
};

// Whether another table gives plain's bits, in both forms of output and with the rows in two parts
inline bool same_attention_s8(const kernels *table, heads_s8 &h) {
    const size_t n = (h.s - 1) * h.out_stride + h.d, cut = h.s / 3;
    guarded<float> y0(n, 7), y1(n, 7), parts(n, 7);
    guarded<uint8_t> q0(n, 7), q1(n, 7);
    h.run(kernels_plain(), 0, h.s, false, y0.get());
    h.run(kernels_plain(), 0, h.s, true, q0.get());
    h.run(table, 0, h.s, false, y1.get());
    h.run(table, 0, h.s, true, q1.get());
    if (cut > 0)
        h.run(table, 0, cut, false, parts.get());
    h.run(table, cut, h.s, false, parts.get());
    return same(y0, y1) && same(q0, q1) && same(y0, parts);
}

// ---- rows ----

struct rows {
    size_t n, n16;
    guarded<float> x, gamma, beta, mul;
    guarded<int8_t> word;
    explicit rows(size_t n_) : n(n_), n16(round_up(n_, 16)), x(n16), gamma(n16), beta(n16), mul(n16), word(n16) {
        for (size_t i = 0; i < n; i++) {
            x[i] = real(-3, 5);
            gamma[i] = real(-2, 2);
            beta[i] = real(-1, 1);
            mul[i] = real(10, 30);
            word[i] = (int8_t)pick(-127, 127);
        }
    }
};

// Everything that writes rows, from one table: results side by side
struct row_results {
    guarded<float> f;
    guarded<uint8_t> q;
    row_results(const kernels *k, rows &r) : f(5 * r.n16 + 4, 7), q(3 * round_up(r.n16, 64), 7) {
        float *out = f.get();
        const size_t q_stride = round_up(r.n16, 64);
        int32_t zero;
        k->embed_s8(r.word.get(), 0.037f, r.x.get(), r.n, out);
        k->add(r.x.get(), r.beta.get(), r.n, out + r.n16);
        k->scale(r.x.get(), 1.7f, r.n, out + 2 * r.n16);
        k->norm(r.x.get(), r.gamma.get(), r.beta.get(), 1e-5f, r.n, out + 3 * r.n16);
        std::copy(r.x.get(), r.x.get() + r.n16, out + 4 * r.n16);
        k->norm(out + 4 * r.n16, r.gamma.get(), r.beta.get(), 1e-12f, r.n, out + 4 * r.n16);
        f[5 * r.n16] = k->sum_squares(r.x.get(), r.n);
        k->quant_static(r.x.get(), r.mul.get(), 77, r.n, q.get());
        k->quant_dynamic(r.x.get(), r.mul.get(), r.n, q.get() + q_stride, &f[5 * r.n16 + 1], &zero);
        f[5 * r.n16 + 2] = (float)zero;
        k->quant_dynamic(r.x.get(), r.gamma.get(), r.n, q.get() + 2 * q_stride, &f[5 * r.n16 + 3], &zero);
    }
};

inline bool same_rows(const kernels *table, rows &r) {
    row_results plain(kernels_plain(), r), other(table, r);
    return same(plain.f, other.f) && same(plain.q, other.q);
}

} // namespace kernel_cases

#endif
