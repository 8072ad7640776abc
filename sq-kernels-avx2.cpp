// sq-kernels-avx2.cpp - the AVX2 table and the AVX-VNNI table: vectors are two YMM registers. The two differ in the integer tile only.
#include "sq-kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <utility>

// Regions and contraction: see sq-kernels-vnni.cpp. AVX-VNNI has no region: VPDPBUSD comes from an asm statement, and in a region with avxvnni clang 14 turned
// multiplications and additions of the AVX2 tile into VPDPWSSD.
#if defined(__clang__)
#  pragma STDC FP_CONTRACT OFF
#  pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#  pragma GCC push_options
#  pragma GCC optimize("fp-contract=off")
#  pragma GCC target("avx2,fma")
#endif

namespace sq {
namespace avx2 {
namespace {

#define SQ_INLINE inline __attribute__((always_inline))

struct vf {
    __m256 l, h;
};
struct vi {
    __m256i l, h;
};

// All ones in the lanes below n
SQ_INLINE vi first(size_t n) {
    const __m256i limit = _mm256_set1_epi32(n < 16 ? (int32_t)n : 16);
    return {_mm256_cmpgt_epi32(limit, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), _mm256_cmpgt_epi32(limit, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

SQ_INLINE vf load(const float *p) { return {_mm256_load_ps(p), _mm256_load_ps(p + 8)}; }
SQ_INLINE vf loadu(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
SQ_INLINE vf load_n(const float *p, size_t n) {
    const vi m = first(n);
    return {_mm256_maskload_ps(p, m.l), _mm256_maskload_ps(p + 8, m.h)};
}
SQ_INLINE void store(float *p, vf v) {
    _mm256_store_ps(p, v.l);
    _mm256_store_ps(p + 8, v.h);
}
SQ_INLINE void storeu(float *p, vf v) {
    _mm256_storeu_ps(p, v.l);
    _mm256_storeu_ps(p + 8, v.h);
}
SQ_INLINE void store_n(float *p, size_t n, vf v) {
    const vi m = first(n);
    _mm256_maskstore_ps(p, m.l, v.l);
    _mm256_maskstore_ps(p + 8, m.h, v.h);
}
SQ_INLINE void lanes(vf v, float *p) { store(p, v); }
SQ_INLINE vf splat(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
SQ_INLINE vf add(vf a, vf b) { return {_mm256_add_ps(a.l, b.l), _mm256_add_ps(a.h, b.h)}; }
SQ_INLINE vf sub(vf a, vf b) { return {_mm256_sub_ps(a.l, b.l), _mm256_sub_ps(a.h, b.h)}; }
SQ_INLINE vf mul(vf a, vf b) { return {_mm256_mul_ps(a.l, b.l), _mm256_mul_ps(a.h, b.h)}; }
SQ_INLINE vf div(vf a, vf b) { return {_mm256_div_ps(a.l, b.l), _mm256_div_ps(a.h, b.h)}; }
SQ_INLINE vf fma(vf a, vf b, vf c) { return {_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)}; }
SQ_INLINE vf fnma(vf a, vf b, vf c) { return {_mm256_fnmadd_ps(a.l, b.l, c.l), _mm256_fnmadd_ps(a.h, b.h, c.h)}; }
SQ_INLINE vf min(vf a, vf b) { return {_mm256_min_ps(a.l, b.l), _mm256_min_ps(a.h, b.h)}; }
SQ_INLINE vf max(vf a, vf b) { return {_mm256_max_ps(a.l, b.l), _mm256_max_ps(a.h, b.h)}; }
SQ_INLINE vf and_not(vf a, vf b) { return {_mm256_andnot_ps(a.l, b.l), _mm256_andnot_ps(a.h, b.h)}; } // b & ~a
SQ_INLINE vf abs(vf a) { return and_not(splat(-0.0f), a); }
SQ_INLINE vf copysign(vf a, vf sign) { // a >= 0
    const vf s = and_not(abs(sign), sign);
    return {_mm256_or_ps(a.l, s.l), _mm256_or_ps(a.h, s.h)};
}
SQ_INLINE vf low_abs(vf a, vf c) { return min(abs(a), c); }
SQ_INLINE vf first_n(vf v, size_t n, vf fill) {
    const vi m = first(n);
    return {_mm256_blendv_ps(fill.l, v.l, _mm256_castsi256_ps(m.l)), _mm256_blendv_ps(fill.h, v.h, _mm256_castsi256_ps(m.h))};
}
SQ_INLINE vi to_int(vf a) { return {_mm256_cvtps_epi32(a.l), _mm256_cvtps_epi32(a.h)}; }
SQ_INLINE vf to_float(vi a) { return {_mm256_cvtepi32_ps(a.l), _mm256_cvtepi32_ps(a.h)}; }
SQ_INLINE vi splat_i(int32_t a) { return {_mm256_set1_epi32(a), _mm256_set1_epi32(a)}; }
SQ_INLINE vi load_i(const int32_t *p) { return {_mm256_load_si256((const __m256i *)p), _mm256_load_si256((const __m256i *)(p + 8))}; }
SQ_INLINE vi load_s8(const int8_t *p) {
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)), _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + 8)))};
}
SQ_INLINE vi add_i(vi a, vi b) { return {_mm256_add_epi32(a.l, b.l), _mm256_add_epi32(a.h, b.h)}; }
SQ_INLINE vi sub_i(vi a, vi b) { return {_mm256_sub_epi32(a.l, b.l), _mm256_sub_epi32(a.h, b.h)}; }
SQ_INLINE vi max_i(vi a, vi b) { return {_mm256_max_epi32(a.l, b.l), _mm256_max_epi32(a.h, b.h)}; }
SQ_INLINE vi low_byte(vi a) { return {_mm256_and_si256(a.l, _mm256_set1_epi32(255)), _mm256_and_si256(a.h, _mm256_set1_epi32(255))}; }
SQ_INLINE vi high_byte(vi a) { return {_mm256_srli_epi32(a.l, 8), _mm256_srli_epi32(a.h, 8)}; }
SQ_INLINE vi first_n(vi v, size_t n, vi fill) {
    const vi m = first(n);
    return {_mm256_blendv_epi8(fill.l, v.l, m.l), _mm256_blendv_epi8(fill.h, v.h, m.h)};
}
SQ_INLINE int32_t sum_i(vi a) {
    const __m256i of_8 = _mm256_add_epi32(a.l, a.h);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(of_8), _mm256_extracti128_si256(of_8, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1))));
}
SQ_INLINE int32_t highest_i(vi a) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(_mm256_max_epi32(a.l, a.h)), _mm256_extracti128_si256(_mm256_max_epi32(a.l, a.h), 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(1, 0, 3, 2)));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, _MM_SHUFFLE(2, 3, 0, 1))));
}
SQ_INLINE vi sub_mul_i(vi a, vi b, vi c) {
    return {_mm256_sub_epi32(a.l, _mm256_mullo_epi32(b.l, c.l)), _mm256_sub_epi32(a.h, _mm256_mullo_epi32(b.h, c.h))};
}

// Multiplies by the float whose exponent field is n + 127.
SQ_INLINE __m256 ldexp_half(__m256 a, __m256 n) {
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(power));
}
SQ_INLINE vf ldexp(vf a, vf n) { return {ldexp_half(a.l, n.l), ldexp_half(a.h, n.h)}; }

SQ_INLINE void store_u8(uint8_t *p, vi v, int32_t zero) {
    const __m256i mixed = _mm256_adds_epi16(_mm256_packs_epi32(v.l, v.h), _mm256_set1_epi16((int16_t)zero)); // l0-3 h0-3 l4-7 h4-7
    const __m256i ordered = _mm256_permute4x64_epi64(mixed, _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}
SQ_INLINE void store_u8x4(uint8_t *p, vi v0, vi v1, vi v2, vi v3, int32_t zero) {
    store_u8(p, v0, zero);
    store_u8(p + 16, v1, zero);
    store_u8(p + 32, v2, zero);
    store_u8(p + 48, v3, zero);
}

SQ_INLINE void store_4x16(uint8_t *p, const uint8_t *r0, const uint8_t *r1, const uint8_t *r2, const uint8_t *r3) {
    const __m128i a = _mm_loadu_si128((const __m128i *)r0), b = _mm_loadu_si128((const __m128i *)r1);
    const __m128i c = _mm_loadu_si128((const __m128i *)r2), d = _mm_loadu_si128((const __m128i *)r3);
    const __m128i ab0 = _mm_unpacklo_epi8(a, b), ab1 = _mm_unpackhi_epi8(a, b), cd0 = _mm_unpacklo_epi8(c, d), cd1 = _mm_unpackhi_epi8(c, d);
    const __m128i sign = _mm_set1_epi8(-128);
    _mm_store_si128((__m128i *)p, _mm_xor_si128(_mm_unpacklo_epi16(ab0, cd0), sign));
    _mm_store_si128((__m128i *)(p + 16), _mm_xor_si128(_mm_unpackhi_epi16(ab0, cd0), sign));
    _mm_store_si128((__m128i *)(p + 32), _mm_xor_si128(_mm_unpacklo_epi16(ab1, cd1), sign));
    _mm_store_si128((__m128i *)(p + 48), _mm_xor_si128(_mm_unpackhi_epi16(ab1, cd1), sign));
}

// 3 rows x 4 halves of panels: 12 accumulators, 3 broadcasts and 1 weight vector fill the 16 registers. The AVX2 integer tile needs four accumulators and a
// product for each row and panel: 2 rows x 1 panel.
constexpr size_t INT_ROWS = 2, INT_PANELS = 1, F32_ROWS = 3, F32_PANELS = 2, VNNI_ROWS = 3, VNNI_PANELS = 2;

SQ_INLINE int32_t four_bytes(const void *x) {
    int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    return four;
}

// ---- f32 and VPDPBUSD: half panels of 8 columns ----

SQ_INLINE void vpdpbusd(__m256i &acc, __m256i u, __m256i s) { __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(u), "x"(s)); }
SQ_INLINE void product(__m256 &acc, __m256 x, __m256 w, const float *) { acc = _mm256_fmadd_ps(x, w, acc); }
SQ_INLINE void product(__m256i &acc, __m256i x, __m256i w, const uint8_t *) { vpdpbusd(acc, x, w); }
SQ_INLINE void product(__m256i &acc, __m256i x, __m256i w, const int8_t *) { vpdpbusd(acc, w, x); }
SQ_INLINE __m256 broadcast(const float *x) { return _mm256_set1_ps(*x); }
SQ_INLINE __m256i broadcast(const uint8_t *x) { return _mm256_set1_epi32(four_bytes(x)); }
SQ_INLINE __m256i broadcast(const int8_t *x) { return _mm256_set1_epi32(four_bytes(x)); }
SQ_INLINE __m256 load_w(const float *w) { return _mm256_load_ps(w); }
SQ_INLINE __m256i load_w(const int8_t *w) { return _mm256_load_si256((const __m256i *)w); }
SQ_INLINE void store_acc(float *p, __m256 v) { _mm256_store_ps(p, v); }
SQ_INLINE void store_acc(int32_t *p, __m256i v) { _mm256_store_si256((__m256i *)p, v); }

// Tiles are unrolled by pack expansion, never by loops: compilers then keep acc[] in registers. One half panel against all rows; acc [rows][HALVES]
template <size_t HALVES, class V, class X, size_t... R> SQ_INLINE void half_step(V *acc, const V *x, V w, const X *kind, std::index_sequence<R...>) {
    (product(acc[R * HALVES], x[R], w, kind), ...);
}

template <class V, class Acc, size_t... I> SQ_INLINE void store_row(const V *acc, Acc *out, std::index_sequence<I...>) {
    (store_acc(out + 8 * I, acc[I]), ...);
}
template <class V, size_t... I> SQ_INLINE void clear(V *acc, std::index_sequence<I...>) { ((acc[I] = V{}), ...); }

template <size_t GROUP, class V, class X, class W, class Acc, size_t... R, size_t... H>
SQ_INLINE void tile_of(const X *x, size_t x_stride, const W *w, size_t k, Acc *out, size_t out_stride, std::index_sequence<R...> rows,
                       std::index_sequence<H...> halves) {
    constexpr size_t HALVES = sizeof...(H);
    V acc[sizeof...(R) * HALVES];
    clear(acc, std::make_index_sequence<sizeof...(R) * HALVES>());
    for (size_t i = k / GROUP; i > 0; i--, x += GROUP, w += 16 * GROUP) {
        const V v[] = {broadcast(x + R * x_stride)...};
        (half_step<HALVES>(acc + H, v, load_w(w + H / 2 * 16 * k + H % 2 * 8 * GROUP), x, rows), ...);
    }
    (store_row(acc + R * HALVES, out + R * out_stride, halves), ...);
}

template <size_t GROUP, class V, size_t R, size_t P, class X, class W, class Acc>
void tile_sized(const X *x, size_t x_stride, const W *w, size_t k, Acc *out, size_t out_stride) {
    tile_of<GROUP, V>(x, x_stride, w, k, out, out_stride, std::make_index_sequence<R>(), std::make_index_sequence<2 * P>());
}

template <size_t GROUP, class V, class X, class W, class Acc>
void tile_any(size_t rows, size_t panels, const X *x, size_t x_stride, const W *w, size_t k, Acc *out, size_t out_stride, const W *, size_t) {
    static constexpr void (*tiles[3][2])(const X *, size_t, const W *, size_t, Acc *, size_t) = {
        {tile_sized<GROUP, V, 1, 1>, tile_sized<GROUP, V, 1, 2>},
        {tile_sized<GROUP, V, 2, 1>, tile_sized<GROUP, V, 2, 2>},
        {tile_sized<GROUP, V, 3, 1>, tile_sized<GROUP, V, 3, 2>},
    };
    tiles[rows - 1][panels - 1](x, x_stride, w, k, out, out_stride);
}

constexpr auto tile_f32 = tile_any<1, __m256, float, float, float>;
constexpr auto tile_vnni = tile_any<4, __m256i, uint8_t, int8_t, int32_t>;

void tile_vnni_s8u8(size_t rows, size_t panels, const uint8_t *x, size_t x_stride, const int8_t *w, size_t k, int32_t *out, size_t out_stride, const int8_t *ahead,
                      size_t n_lines) {
    tile_any<4, __m256i, int8_t, int8_t, int32_t>(rows, panels, (const int8_t *)x, x_stride, w, k, out, out_stride, ahead, n_lines);
}

// ---- u8 x s8 without VNNI ----

// Four columns times four of K as 16-bit integers: VPMADDWD adds products in pairs, exactly (VPMADDUBSW would saturate: 2 * 255 * 127 > 32767). A register then
// holds two partial sums for each of four columns, [c][2].
SQ_INLINE __m256i widen(__m128i x, const int8_t *) { return _mm256_cvtepi8_epi16(x); }
SQ_INLINE __m256i widen(__m128i x, const uint8_t *) { return _mm256_cvtepu8_epi16(x); }
template <class W> SQ_INLINE __m256i load_wide(const W *w) { return widen(_mm_load_si128((const __m128i *)w), w); }

template <size_t... Q> SQ_INLINE void madd_row(__m256i *acc, __m256i x, const __m256i *w, std::index_sequence<Q...>) {
    ((acc[Q] = _mm256_add_epi32(acc[Q], _mm256_madd_epi16(x, w[Q]))), ...);
}

SQ_INLINE void store_madd_row(const __m256i *acc, int32_t *out) { // the sums of a pair of registers come as columns 0 1 4 5 | 2 3 6 7
    store_acc(out, _mm256_permute4x64_epi64(_mm256_hadd_epi32(acc[0], acc[1]), _MM_SHUFFLE(3, 1, 2, 0)));
    store_acc(out + 8, _mm256_permute4x64_epi64(_mm256_hadd_epi32(acc[2], acc[3]), _MM_SHUFFLE(3, 1, 2, 0)));
}

template <class X, class W, size_t... R>
void tile_madd(const X *x, size_t x_stride, const W *w, size_t k, int32_t *out, size_t out_stride, std::index_sequence<R...>) {
    __m256i acc[sizeof...(R) * 4];
    clear(acc, std::make_index_sequence<sizeof...(R) * 4>());
    for (size_t i = 0; i < k; i += 4, w += 64) {
        const __m256i v[] = {load_wide(w), load_wide(w + 16), load_wide(w + 32), load_wide(w + 48)};
        (madd_row(acc + 4 * R, widen(_mm_set1_epi32(four_bytes(x + R * x_stride + i)), x), v, std::make_index_sequence<4>()), ...);
    }
    (store_madd_row(acc + 4 * R, out + R * out_stride), ...);
}

template <class X, class W>
void tile_wide(size_t rows, size_t, const uint8_t *x, size_t x_stride, const int8_t *w, size_t k, int32_t *out, size_t out_stride, const int8_t *, size_t) {
    if (rows == 1)
        tile_madd((const X *)x, x_stride, (const W *)w, k, out, out_stride, std::make_index_sequence<1>());
    else
        tile_madd((const X *)x, x_stride, (const W *)w, k, out, out_stride, std::make_index_sequence<2>());
}
constexpr int_tile tile_u8s8 = tile_wide<uint8_t, int8_t>, tile_s8u8 = tile_wide<int8_t, uint8_t>;

#include "sq-kernels-inl.h"

void gemm_vnni(const gemm_args *g) {
    alignas(64) int32_t acc[VNNI_ROWS * VNNI_PANELS * 16];
    gemm(g, (const uint8_t *)g->x, (const int8_t *)g->w, VNNI_ROWS, VNNI_PANELS, tile_vnni, acc);
}

void attention_s8_vnni(const attention_s8_args *a) { attention_s8_by(a, {equal_blocks<VNNI_ROWS>, VNNI_PANELS, 16, tile_vnni, tile_vnni_s8u8}); }

constexpr kernels with_vnni(kernels k) {
    k.name = "avxvnni";
    k.needs |= CPU_AVXVNNI;
    k.gemm_u8s8 = gemm_vnni;
    k.attention_s8 = attention_s8_vnni;
    return k;
}

constexpr kernels table = make_table("avx2", CPU_AVX2), vnni_table = with_vnni(table);

} // namespace
} // namespace avx2

const kernels *kernels_avx2() { return &avx2::table; }
const kernels *kernels_avxvnni() { return &avx2::vnni_table; }

} // namespace sq

#undef SQ_INLINE

#if defined(__clang__)
#  pragma clang attribute pop
#else
#  pragma GCC pop_options
#endif
#endif
