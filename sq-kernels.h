// sq-kernels.h - the table of compute kernels and its contract.
//
// Every instruction set fills one `kernels` table. The plain C++ table (sq-kernels-ref.cpp) defines the meaning: every other table gives the same bits.
// That is possible because
//   - integer products are exact: u8 x s8 summed in s32, |sum| <= 255 * 127 * K < 2^31 for K < 66,000;
//   - float steps are elementwise, or sequential over one index, or reduced in the fixed orders given at `reduce` and `row_sum` in sq-kernels-inl.h,
//     by explicit fused multiply-adds, correctly rounded division and square root.
//
// Conventions
//   Padding   Float rows have a stride that is a multiple of 16 floats, u8 rows of 64 bytes. Columns from n up to the next multiple of 16 are 0.0f in float
//             rows, in and out: kernels may read and write them, and keep them 0 (weights, scales, biases and gammas are zero there).
//             u8 columns from K up to the next multiple of 64 meet zero weights, so their value is irrelevant (but defined memory).
//   Aligned   All base pointers are 64-byte aligned, and so are rows.
//   Aliasing  Outputs alias no input unless a parameter says so.
//   Panels    s8 weights  w[N/16][K/4][16][4]: 16 output columns side by side, K in groups of four; K padded to 64, N to 16 with zeros.
//             f32 weights w[N/16][K][16].
//   Quantised real = scale * (q - zero).
// Kernels touch no global state, allocate nothing and never fail; the caller has checked every size.
#ifndef SQ_KERNELS_H
#define SQ_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__)
#  error "sq counts on IEEE arithmetic, NaN included: compile it without -ffast-math"
#endif

namespace sq {

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

enum activation : uint32_t { ACT_NONE = 0, ACT_GELU_ERF = 1, ACT_GELU_TANH = 2, ACT_RELU = 3, ACT_TANH = 4 };

// A linear layer's product over a block of rows and panels, with everything that follows it:
//     acc[t][n] = sum_k x[t][k] * w[n][k]                     integer form: minus row_zero[t] * comp[n] when row_zero is given
//     y = fma(float(acc), scale, bias[n])                     scale = scale[n], or row_scale[t] * scale[n] (one rounded product) when row_scale is given
//     y = acc + bias[n]                                       float form: acc = fma(x, w, acc) from 0 in rising k, then one addition
//     y = activation(y);  y = y + residual[t][n]              each where asked for, in this order
//     out f32: y;  out u8: clamp(rne(y * out_mul[n]) + out_zero, 0, 255), without out_mul clamp(rne(y) + out_zero, 0, 255)
struct gemm_args {
    const void *x;           // u8 [m][k] or f32 [m][k]
    size_t x_stride;         // in elements
    const void *w;           // first of n_panels panels, s8 or f32
    size_t m;                // rows, >= 1, any number
    size_t n_panels;         // panels of 16 columns, >= 1
    size_t k;                // s8: K rounded up to 64; f32: K
    const float *scale;      // [16 * n_panels]; integer form only. Static: activation scale times weight scale; dynamic: weight scale
    const float *bias;       // [16 * n_panels]. Static: b - scale * zero * comp; otherwise b
    const int32_t *comp;     // [16 * n_panels] sum over k of w; integer dynamic form only
    const float *row_scale;  // [m] activation scale per row, or null (static, float)
    const int32_t *row_zero; // [m] activation zero point per row, 0..255; null exactly when row_scale is
    activation act;
    const float *residual;   // f32 [m] rows with out_stride, or null; may be the same memory as out
    void *out;               // f32 or u8 [m][16 * n_panels]
    size_t out_stride;       // in elements
    bool out_u8;
    const float *out_mul;    // [16 * n_panels] quantise multiplier 1 / (smoothing * scale) of a u8 output, or null where scale and bias hold it
    int32_t out_zero;        // zero point of the u8 output, 0..255
    uint32_t tile;           // 0 .. n_tiles-1 of the table: which tile shape u8s8 uses; the result is the same
};

// softmax(q k') v for one head of one sequence, all f32; 1/sqrt(head width) is already in q.
// score[i][j] = sum over c of q[i][c] * k[j][c], fma in rising c from 0;  e = exp(score - max_j score);  sum by 16 lanes over j, then `reduce`;
// out[i][c] = (sum over j of e[j] * v[j][c], fma in rising j from 0) * (1 / sum), the inverse rounded once.
struct attention_args {
    const float *q, *k, *v;  // f32 [s][stride], the head's first column (only 4-byte aligned)
    size_t stride;
    size_t s;                // tokens of the sequence, >= 1
    size_t d;                // head width, >= 1
    size_t first, past;      // the rows i to compute, first < past <= s
    float *scratch;          // attention_scratch(s, d) floats, 64-byte aligned
    float *out;              // f32 [s][out_stride], the head's first column; exactly d columns of rows first .. past-1 are written
    size_t out_stride;
};

// Floats of scratch that `attention` needs for s tokens and head width d: k transposed and v in 16-column blocks, and up to 16 rows of scores.
constexpr size_t attention_scratch(size_t s, size_t d) { return round_up(s, 16) * (2 * round_up(d, 16) + 16); }

// The same in integers. q, k, v are quantised by fixed steps: s8 values, stored as u8 with 128 added. With 1/sqrt(head width) in q,
//     score[i][j] = sum over c of (q[i][c] - 128) * k[j][c], exact: |score| <= 128 * 255 * d < 2^30. That k keeps its 128 adds 128 * sum(q[i]) to all scores of a
//                   row, which softmax does not notice.
//     e[i][j] = rne(255 * 2^x), x = (score[i][j] - max_j score[i][j]) * factor, by `exp2_int` in sq-kernels-inl.h
//     y[i][c] = float(sum over j of e[i][j] * (v[j][c] - 128)) * (1 / float(sum over j of e[i][j])) * mul[c], each product rounded once; the integers are exact
// With `fine`, e = rne(65535 * 2^x): small weights beside a large one keep their digits. The sums with its high and low bytes are separate products, joined as
// fma(float(high), 256, float(low)).
//     out f32: y;  out u8: clamp(rne(y) + out_zero, 0, 255)
struct attention_s8_args {
    const uint8_t *q, *k, *v; // u8 [s][stride], the head's first column, 16-byte aligned
    size_t stride;
    size_t s;                 // tokens of the sequence, 1 .. 2^15 (65535 * s < 2^31)
    size_t d;                 // head width, a multiple of 16, at most 2^15
    size_t first, past;       // the rows i to compute, first < past <= s
    bool fine;
    float factor;             // step of q * step of k * log2(e), 0 .. 2
    const float *mul;         // [d] step of v, for u8 output over the step of out
    uint8_t *scratch;         // attention_s8_scratch(s, d) bytes, 64-byte aligned
    void *out;                // f32 or u8 [s][out_stride], the head's first column; exactly d columns of rows first .. past-1 are written
    size_t out_stride;
    bool out_u8;
    int32_t out_zero;
};

constexpr int32_t S8_ZERO = 128;           // what is added to s8 values that are kept as u8
constexpr float LOG2_E = 1.44269504f;      // e^x = 2^(x log2(e))
constexpr uint32_t MAX_S8_TOKENS = 1 << 15; // the limit of attention_s8_args::s

// Whether attention_s8 takes heads of this width and sequences of so many tokens.
constexpr bool attention_s8_fits(size_t head_width, size_t n_tokens) { return head_width % 16 == 0 && n_tokens <= MAX_S8_TOKENS; }

constexpr size_t ATTENTION_S8_ROWS = 32; // of scores at a time, at most

// Bytes of scratch that `attention_s8` needs: keys and values in panels, then a block of rows of q, of e, and of scores or weighted sums of values.
constexpr size_t attention_s8_scratch(size_t s, size_t d) {
    const size_t s64 = round_up(s, 64), d64 = round_up(d, 64);
    return 2 * s64 * d64 + ATTENTION_S8_ROWS * (d64 + 2 * s64 + 4 * (s64 > 2 * d64 ? s64 : 2 * d64));
}

// What a table needs of the CPU; sq-cpu.cpp finds the bits.
enum cpu_feature : uint32_t {
    CPU_AVX2 = 1u << 0,       // AVX2, FMA, F16C, and the kernel saves YMM
    CPU_AVXVNNI = 1u << 1,    // VPDPBUSD on YMM (VEX form)
    CPU_AVX512 = 1u << 2,     // F, BW, DQ, VL, and the kernel saves ZMM and masks
    CPU_AVX512VNNI = 1u << 3,
    CPU_AMX = 1u << 4,        // AMX-TILE and AMX-INT8, and the kernel granted tile data
};

struct kernels {
    const char *name; // as in sq_isa_best
    uint32_t needs;   // cpu_feature bits
    uint32_t n_tiles; // tile shapes to choose from by gemm_args.tile

    void (*gemm_u8s8)(const gemm_args *);
    void (*gemm_f32)(const gemm_args *);
    void (*attention)(const attention_args *);
    void (*attention_s8)(const attention_s8_args *);

    // out[i] = word[i] * scale + add[i], i < n (rounded up to 16): a row of an s8 table, fma. `add` is position plus type.
    void (*embed_s8)(const int8_t *word, float scale, const float *add, size_t n, float *out);
    // out[i] = a[i] + b[i]; out may be a or b.
    void (*add)(const float *a, const float *b, size_t n, float *out);
    // out[i] = x[i] * factor; out may be x.
    void (*scale)(const float *x, float factor, size_t n, float *out);
    // LayerNorm: mean and variance (mean of squared differences, fma) over n columns, each by `row_sum`; out = fma((x - mean) / sqrt(var + eps), gamma, beta),
    // where the division is by multiplication with 1 / sqrt (root and inverse each correctly rounded). out may be x.
    void (*norm)(const float *x, const float *gamma, const float *beta, float eps, size_t n, float *out);
    // Quantises a row with a known zero point: q[i] = clamp(rne(x[i] * mul[i]) + zero, 0, 255). Writes n rounded up to 16 bytes.
    void (*quant_static)(const float *x, const float *mul, int32_t zero, size_t n, uint8_t *q);
    // Quantises a row by its own range: v = x * mul; lo, hi = lowest and highest v, 0 included; scale = (hi - lo) / 255, zero = rne(-lo * (255 / (hi - lo)));
    // q = clamp(rne(v * (255 / (hi - lo))) + zero, 0, 255). hi - lo below 1e-30 gives scale 1 and zero 0.
    // NaN in v counts as 0 for the range and becomes q = 0; an infinite range gives an infinite or NaN scale to the next product, which then is not finite.
    void (*quant_dynamic)(const float *x, const float *mul, size_t n, uint8_t *q, float *scale, int32_t *zero);
    // sum of x[i] * x[i], fma, by `row_sum`
    float (*sum_squares)(const float *x, size_t n);

    // Called by each thread before its first and after its last kernel of a forward pass (AMX: tile configuration); may be null.
    void (*thread_begin)(void);
    void (*thread_end)(void);
};

// Every table compiled in, best first; the last is plain. *n_tables receives the count. Which of them this CPU can run is sq-cpu's matter.
const kernels *const *all_kernels(size_t *n_tables);

const kernels *kernels_plain();
// out[r][16 p + lane] = sum over i of x[r][i] * w[p][i][lane] for 1..rows rows and 1..panels panels, which lie 16 * k weights apart. out: 64-byte aligned,
// out_stride a multiple of 16 and at least 16 * panels. ahead: n_lines cache lines that will be wanted soon, to prefetch meanwhile (a little more does no harm).
// The float form sums by fma in rising i from 0; its x need be aligned to 4 bytes only.
// `attention_s8` uses the integer form both ways: with x u8 and w s8, and with x s8 and w u8 behind the same pointer types.
using int_tile = void (*)(size_t rows, size_t panels, const uint8_t *x, size_t x_stride, const int8_t *w, size_t k, int32_t *out, size_t out_stride,
                          const int8_t *ahead, size_t n_lines);

// The two integer forms of a table, with at most so many panels. k of both must be a multiple of k_step, which divides 64.
struct int_tiles {
    size_t (*block_rows)(size_t left); // how many of the rows that are left to take next, at most ATTENTION_S8_ROWS
    size_t panels, k_step;
    int_tile u8s8, s8u8;
};

#if defined(__x86_64__)
// What follows the product in gemm_u8s8 of the AVX512-VNNI table: sums acc [rows][acc_stride], 64-byte aligned, of 1 to 4 panels become rows row .. of columns col .. of the output.
using s32_epilogue = void (*)(const gemm_args *g, const int32_t *acc, size_t acc_stride, size_t row, size_t rows, size_t col, size_t panels);
s32_epilogue epilogue_avx512(activation act);
// attention_s8 of the AVX512-VNNI table with other tiles.
void attention_s8_avx512(const attention_s8_args *a, const int_tiles &tiles);

const kernels *kernels_avx2();
const kernels *kernels_avxvnni();
const kernels *kernels_avx512vnni();
const kernels *kernels_amx();
#endif

} // namespace sq

#endif
