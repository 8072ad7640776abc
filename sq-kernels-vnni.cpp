// sq-kernels-vnni.cpp - the AVX512-VNNI table: vectors are one ZMM register, integer products VPDPBUSD.
#include "sq-kernels.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized" // GCC 12 warns about its own _mm512_undefined_ps (bug 105593)
#endif
#include <immintrin.h>
#include <math.h>
#include <utility>

// A target region rather than a command-line flag: inline functions of shared headers then stay what they are elsewhere. Contraction is off because GCC fuses
// even the multiplications and additions of intrinsics; clang never fuses those, nor anything across statements.
#if defined(__clang__)
#  pragma STDC FP_CONTRACT OFF
#  pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni"))), apply_to = function)
#else
#  pragma GCC push_options
#  pragma GCC optimize("fp-contract=off")
#  pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#endif

namespace sq {
namespace avx512vnni {
namespace {

#define SQ_INLINE inline __attribute__((always_inline))

typedef __m512 vf;
typedef __m512i vi;

inline __mmask16 first(size_t n) { return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xffff); }

inline vf load(const float *p) { return _mm512_load_ps(p); }
inline vf loadu(const float *p) { return _mm512_loadu_ps(p); }
inline vf load_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline void store(float *p, vf v) { _mm512_store_ps(p, v); }
inline void storeu(float *p, vf v) { _mm512_storeu_ps(p, v); }
inline void store_n(float *p, size_t n, vf v) { _mm512_mask_storeu_ps(p, first(n), v); }
inline void lanes(vf v, float *p) { _mm512_store_ps(p, v); }
inline vf splat(float a) { return _mm512_set1_ps(a); }
inline vf add(vf a, vf b) { return _mm512_add_ps(a, b); }
inline vf sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
inline vf mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
inline vf div(vf a, vf b) { return _mm512_div_ps(a, b); }
inline vf fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
inline vf fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
inline vf min(vf a, vf b) { return _mm512_min_ps(a, b); }
inline vf max(vf a, vf b) { return _mm512_max_ps(a, b); }
inline vf abs(vf a) { return _mm512_abs_ps(a); }
inline vf copysign(vf a, vf sign) { return _mm512_or_ps(a, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f))); } // a >= 0
inline vf low_abs(vf a, vf c) { return _mm512_range_ps(a, c, 10); } // 10: the smaller magnitude, sign cleared; the other operand for NaN
inline vf ldexp(vf a, vf n) { return _mm512_scalef_ps(a, n); }
inline vf first_n(vf v, size_t n, vf fill) { return _mm512_mask_mov_ps(fill, first(n), v); }
inline vi to_int(vf a) { return _mm512_cvtps_epi32(a); }
inline vf to_float(vi a) { return _mm512_cvtepi32_ps(a); }
inline vi splat_i(int32_t a) { return _mm512_set1_epi32(a); }
inline vi load_i(const int32_t *p) { return _mm512_load_si512(p); }
inline vi load_s8(const int8_t *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
inline vi add_i(vi a, vi b) { return _mm512_add_epi32(a, b); }
inline vi sub_i(vi a, vi b) { return _mm512_sub_epi32(a, b); }
inline vi max_i(vi a, vi b) { return _mm512_max_epi32(a, b); }
// Not _mm512_reduce_add_epi32, whose last addition is one of signed integers: a model file that is overwritten while it is mapped makes sums of any size.
inline int32_t sum_i(vi a) {
    const __m256i of_8 = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(of_8), _mm256_extracti128_si256(of_8, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1))));
}
inline int32_t highest_i(vi a) { return _mm512_reduce_max_epi32(a); }
inline vi low_byte(vi a) { return _mm512_and_si512(a, _mm512_set1_epi32(255)); }
inline vi high_byte(vi a) { return _mm512_srli_epi32(a, 8); }
inline vi first_n(vi v, size_t n, vi fill) { return _mm512_mask_mov_epi32(fill, first(n), v); }
inline vi sub_mul_i(vi a, vi b, vi c) { return _mm512_sub_epi32(a, _mm512_mullo_epi32(b, c)); }

inline void store_u8(uint8_t *p, vi v, int32_t zero) {
    v = _mm512_max_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(zero)), _mm512_setzero_si512());
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(v));
}

// The saturating packs interleave the four vectors by 128-bit lanes; the permutation undoes that. Negative values saturate to 0 in the second.
inline void store_u8x4(uint8_t *p, vi v0, vi v1, vi v2, vi v3, int32_t zero) {
    const vi z = _mm512_set1_epi16((int16_t)zero), order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const vi a = _mm512_adds_epi16(_mm512_packs_epi32(v0, v1), z), b = _mm512_adds_epi16(_mm512_packs_epi32(v2, v3), z);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b)));
}

inline void store_4x16(uint8_t *p, const uint8_t *r0, const uint8_t *r1, const uint8_t *r2, const uint8_t *r3) {
    const __m128i a = _mm_loadu_si128((const __m128i *)r0), b = _mm_loadu_si128((const __m128i *)r1);
    const __m128i c = _mm_loadu_si128((const __m128i *)r2), d = _mm_loadu_si128((const __m128i *)r3);
    const __m128i ab0 = _mm_unpacklo_epi8(a, b), ab1 = _mm_unpackhi_epi8(a, b), cd0 = _mm_unpacklo_epi8(c, d), cd1 = _mm_unpackhi_epi8(c, d);
    const __m256i low = _mm256_set_m128i(_mm_unpackhi_epi16(ab0, cd0), _mm_unpacklo_epi16(ab0, cd0));
    const __m256i high = _mm256_set_m128i(_mm_unpackhi_epi16(ab1, cd1), _mm_unpacklo_epi16(ab1, cd1));
    const vi all = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    _mm512_store_si512(p, _mm512_xor_si512(all, _mm512_set1_epi8(-128)));
}

// 24 accumulators, 2 or 4 weight registers, 1 or 2 broadcasts fit 32 registers; 4 panels give whole 64-byte rows of u8 output. Integer tiles of more than 6 rows
// take their panels in pairs, WIDE_PANELS at a time: 12 x 2 reads half the weights of 6 x 4, which matters since a group of 4 panels does not stay in the first-level
// cache for K > 768.
constexpr size_t INT_ROWS = 12, INT_PANELS = 4, WIDE_ROWS = 6, WIDE_PANELS = 2, F32_ROWS = 6, F32_PANELS = 4;

// acc += sums of four products u8 x s8, whichever of the two is x. An asm statement, because GCC 12 emits two register copies for the intrinsic.
SQ_INLINE void multiply_add(vi &acc, vi u, vi s) { __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s)); }
SQ_INLINE void product(vi &acc, vi x, vi w, const uint8_t *) { multiply_add(acc, x, w); }
SQ_INLINE void product(vi &acc, vi x, vi w, const int8_t *) { multiply_add(acc, w, x); }
SQ_INLINE void product(vf &acc, vf x, vf w, const float *) { acc = _mm512_fmadd_ps(x, w, acc); }
SQ_INLINE vi broadcast_four(const void *x) {
    int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}
SQ_INLINE vi broadcast(const uint8_t *x) { return broadcast_four(x); }
SQ_INLINE vi broadcast(const int8_t *x) { return broadcast_four(x); }
SQ_INLINE vf broadcast(const float *x) { return _mm512_set1_ps(*x); }
SQ_INLINE vi load_w(const int8_t *w) { return _mm512_load_si512(w); }
SQ_INLINE vf load_w(const float *w) { return _mm512_load_ps(w); }
SQ_INLINE void prefetch(const int8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }

// Weights come from the second-level cache; so many bytes ahead they are asked for, 1 KiB or more: the four or two streams of a tile hit the first level in part,
// and the hardware's prefetcher then misses the rest.
constexpr size_t NEAR_BYTES = 1024;
SQ_INLINE void prefetch_near(const int8_t *w) { _mm_prefetch((const char *)w + NEAR_BYTES, _MM_HINT_T0); }
SQ_INLINE void prefetch_near(const float *) {}
SQ_INLINE void store_acc(int32_t *p, vi v) { _mm512_store_si512(p, v); }
SQ_INLINE void store_acc(float *p, vf v) { _mm512_store_ps(p, v); }

// The tile R x P is unrolled by pack expansion, never by loops: compilers then keep acc[] in registers.
template <class V, class X, size_t... P> SQ_INLINE void row_step(V *acc, V x, const V *w, const X *kind, std::index_sequence<P...>) {
    (product(acc[P], x, w[P], kind), ...);
}

// Rows of x, three to a pointer: a pointer or an offset for each of 12 rows is more than there are registers, and compilers then keep some in vector registers, whose
// way back takes a multiplier's port.
template <class X, size_t R> struct row_pointers {
    const X *base[(R + 2) / 3];
    size_t stride;
    SQ_INLINE row_pointers(const X *x, size_t x_stride) : stride(x_stride) {
        for (const X *&b : base) {
            b = x;
            x += 3 * x_stride;
            keep_in_register(b);
        }
    }
    SQ_INLINE const X *at(size_t row, size_t i) const { return base[row / 3] + row % 3 * stride + i; }
    SQ_INLINE void advance(size_t n) {
        for (const X *&b : base) {
            b += n;
            keep_in_register(b);
        }
    }

  private:
    // Nor derived from another, nor moved by vector additions
    static SQ_INLINE void keep_in_register(const X *&p) { __asm__("" : "+r"(p)); }
};

// One group of K (four u8 or one float) of every row and panel, the i-th from where x and w stand
template <class V, class X, size_t ROWS, class W, size_t... R, size_t... P>
SQ_INLINE void step(V *acc, const row_pointers<X, ROWS> &x, size_t i, const W *w, size_t w_stride, std::index_sequence<R...>, std::index_sequence<P...> panels) {
    const V v[] = {load_w(w + P * w_stride)...};
    (prefetch_near(w + P * w_stride), ...);
    (row_step(acc + R * sizeof...(P), broadcast(x.at(R, i)), v, (const X *)nullptr, panels), ...);
}

template <class V, class Acc, size_t... P> SQ_INLINE void store_row(const V *acc, Acc *out, std::index_sequence<P...>) {
    (store_acc(out + 16 * P, acc[P]), ...);
}

template <class V, class Acc, size_t... R, size_t... P>
SQ_INLINE void store_rows(const V *acc, Acc *out, size_t out_stride, std::index_sequence<R...>, std::index_sequence<P...> panels) {
    (store_row(acc + R * sizeof...(P), out + R * out_stride, panels), ...);
}

template <class V, size_t... I> SQ_INLINE void clear(V *acc, std::index_sequence<I...>) { ((acc[I] = V{}), ...); }

// X: uint8_t for x u8 and w s8, int8_t for x s8 and w u8. n_ahead: cache lines to prefetch for every 16 of K.
template <class X, size_t R, size_t P>
void int_tile_of(const uint8_t *bytes, size_t x_stride, const int8_t *w, size_t k, int32_t *out, size_t out_stride, const int8_t *ahead, size_t n_ahead) {
    row_pointers<X, R> x((const X *)bytes, x_stride);
    const auto rows = std::make_index_sequence<R>();
    const auto panels = std::make_index_sequence<P>();
    vi acc[R * P];
    clear(acc, std::make_index_sequence<R * P>());
    for (size_t i = k / 16; i > 0; i--, x.advance(16), w += 256) { // four groups of four
        step(acc, x, 0, w, 16 * k, rows, panels);
        step(acc, x, 4, w + 64, 16 * k, rows, panels);
        for (size_t line = n_ahead; line > 0; line--, ahead += 64)
            prefetch(ahead);
        step(acc, x, 8, w + 128, 16 * k, rows, panels);
        step(acc, x, 12, w + 192, 16 * k, rows, panels);
    }
    store_rows(acc, out, out_stride, rows, panels);
}

template <size_t R, size_t P> void f32_tile_of(const float *x, size_t x_stride, const float *w, size_t k, float *out, size_t out_stride) {
    const auto rows = std::make_index_sequence<R>();
    const auto panels = std::make_index_sequence<P>();
    vf acc[R * P];
    clear(acc, std::make_index_sequence<R * P>());
    row_pointers<float, R> at(x, x_stride);
    for (size_t i = k; i > 0; i--, at.advance(1), w += 16)
        step(acc, at, 0, w, 16 * k, rows, panels);
    store_rows(acc, out, out_stride, rows, panels);
}

template <class X, size_t P, size_t... R> struct int_tile_table {
    static constexpr decltype(&int_tile_of<X, 1, P>) tiles[] = {int_tile_of<X, R + 1, P>...};
};
template <class X, size_t P, size_t... R> int_tile_table<X, P, R...> int_tiles_of(std::index_sequence<R...>);
template <class X, size_t P, size_t ROWS> using int_tiles_up_to = decltype(int_tiles_of<X, P>(std::make_index_sequence<ROWS>()));

template <class X>
void int_tile_any(size_t rows, size_t panels, const uint8_t *x, size_t x_stride, const int8_t *w, size_t k, int32_t *out, size_t out_stride, const int8_t *ahead,
                  size_t n_lines) {
    const size_t wide = rows > WIDE_ROWS ? WIDE_PANELS : INT_PANELS, n_calls = (panels + wide - 1) / wide, n_ahead = (n_lines + n_calls * k / 16 - 1) / (n_calls * k / 16);
    for (size_t p = 0; p < panels; p += wide, ahead += n_ahead * 4 * k) {
        const auto run = [=](auto tile) { tile(x, x_stride, w + p * 16 * k, k, out + 16 * p, out_stride, ahead, n_ahead); };
        switch (panels - p < wide ? panels - p : wide) {
        case 1: run(int_tiles_up_to<X, 1, INT_ROWS>::tiles[rows - 1]); break;
        case 2: run(int_tiles_up_to<X, 2, INT_ROWS>::tiles[rows - 1]); break;
        case 3: run(int_tiles_up_to<X, 3, WIDE_ROWS>::tiles[rows - 1]); break;
        default: run(int_tiles_up_to<X, 4, WIDE_ROWS>::tiles[rows - 1]);
        }
    }
}
constexpr int_tile tile_u8s8 = int_tile_any<uint8_t>, tile_s8u8 = int_tile_any<int8_t>;

template <size_t... R> struct f32_tile_table {
    using tile = void (*)(const float *, size_t, const float *, size_t, float *, size_t);
    static constexpr tile tiles[sizeof...(R)][F32_PANELS] = {{f32_tile_of<R + 1, 1>, f32_tile_of<R + 1, 2>, f32_tile_of<R + 1, 3>, f32_tile_of<R + 1, 4>}...};
};
template <size_t... R> f32_tile_table<R...> all_f32_tiles(std::index_sequence<R...>);

void tile_f32(size_t rows, size_t panels, const float *x, size_t x_stride, const float *w, size_t k, float *out, size_t out_stride, const float *, size_t) {
    decltype(all_f32_tiles(std::make_index_sequence<F32_ROWS>()))::tiles[rows - 1][panels - 1](x, x_stride, w, k, out, out_stride);
}

#include "sq-kernels-inl.h"

// Tile 0: 12 x 2. Tile 1: 6 x 4.
void gemm_u8s8_tiled(const gemm_args *g) {
    alignas(64) int32_t acc[INT_ROWS * INT_PANELS * 16];
    gemm(g, (const uint8_t *)g->x, (const int8_t *)g->w, g->tile == 0 ? INT_ROWS : WIDE_ROWS, INT_PANELS, tile_u8s8, acc);
}

constexpr kernels with_tiles(kernels k) {
    k.gemm_u8s8 = gemm_u8s8_tiled;
    k.n_tiles = 2;
    return k;
}

constexpr kernels table = with_tiles(make_table("avx512vnni", CPU_AVX2 | CPU_AVX512 | CPU_AVX512VNNI));

} // namespace
} // namespace avx512vnni

const kernels *kernels_avx512vnni() { return &avx512vnni::table; }

s32_epilogue epilogue_avx512(activation act) { return avx512vnni::finish_for<int32_t>(act); }

void attention_s8_avx512(const attention_s8_args *a, const int_tiles &tiles) { avx512vnni::attention_s8_by(a, tiles); }

} // namespace sq

#undef SQ_INLINE

#if defined(__clang__)
#  pragma clang attribute pop
#else
#  pragma GCC pop_options
#endif
#endif
