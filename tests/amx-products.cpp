// amx-products.cpp - see amx-products.h. The order of TDPBF16PS's additions is from its page in the Intel SDM, volume 2.
#include "amx-products.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#  pragma GCC diagnostic ignored "-Wmaybe-uninitialized" // GCC 12 warns about its own _mm512_undefined_ps (bug 105593)
#endif
#include <immintrin.h>
#include <string.h>

// A target region, as in sq-kernels-vnni.cpp
#if defined(__clang__)
#  pragma clang attribute push(__attribute__((target("avx512f,avx512bw"))), apply_to = function)
#else
#  pragma GCC push_options
#  pragma GCC target("avx512f,avx512bw")
#endif

namespace amx_emu {
namespace {

int32_t group(const uint8_t *p) {
    int32_t four;
    memcpy(&four, p, sizeof four);
    return four;
}

// The even and the odd bytes of each group of four, as pairs of s16
template <bool SIGNED> __m512i even_bytes(__m512i v) {
    return SIGNED ? _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8) : _mm512_and_si512(v, _mm512_set1_epi16(255));
}
template <bool SIGNED> __m512i odd_bytes(__m512i v) { return SIGNED ? _mm512_srai_epi16(v, 8) : _mm512_srli_epi16(v, 8); }

__m512 low_half(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
__m512 high_half(__m512i pairs) { return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int32_t)0xFFFF0000))); }

// Not inlined, so that no operation moves out of where multiply_bf16 has set MXCSR.
__attribute__((noinline)) void multiply_bf16_rows(tile *c, const tile &x, const tile &w, size_t rows, size_t n_groups) {
    for (size_t i = 0; i < rows; i++) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        for (size_t j = 0; j < n_groups; j++) {
            const __m512i a = _mm512_set1_epi32(group(x.row[i] + 4 * j)), b = _mm512_load_si512(w.row[j]);
            even = _mm512_fmadd_ps(low_half(a), low_half(b), even);
            odd = _mm512_fmadd_ps(high_half(a), high_half(b), odd);
        }
        _mm512_store_ps(c->row[i], _mm512_add_ps(_mm512_load_ps(c->row[i]), _mm512_add_ps(even, odd)));
    }
}

} // namespace

template <bool X_SIGNED, bool W_SIGNED> void multiply_bytes(tile *c, const tile &x, const tile &w, size_t rows, size_t n_groups) {
    __m512i even[16], odd[16]; // of w
    for (size_t j = 0; j < n_groups; j++) {
        const __m512i groups = _mm512_load_si512(w.row[j]);
        even[j] = even_bytes<W_SIGNED>(groups);
        odd[j] = odd_bytes<W_SIGNED>(groups);
    }
    for (size_t i = 0; i < rows; i++) {
        __m512i sum = _mm512_load_si512(c->row[i]);
        for (size_t j = 0; j < n_groups; j++) { // a pair's sum is at most 2 * 255 * 255
            const __m512i four = _mm512_set1_epi32(group(x.row[i] + 4 * j));
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(even_bytes<X_SIGNED>(four), even[j]));
            sum = _mm512_add_epi32(sum, _mm512_madd_epi16(odd_bytes<X_SIGNED>(four), odd[j]));
        }
        _mm512_store_si512(c->row[i], sum);
    }
}

template void multiply_bytes<true, true>(tile *, const tile &, const tile &, size_t, size_t);
template void multiply_bytes<true, false>(tile *, const tile &, const tile &, size_t, size_t);
template void multiply_bytes<false, true>(tile *, const tile &, const tile &, size_t, size_t);
template void multiply_bytes<false, false>(tile *, const tile &, const tile &, size_t, size_t);

void multiply_bf16(tile *c, const tile &x, const tile &w, size_t rows, size_t n_groups) {
    constexpr unsigned FLUSH_NEAREST_MASKED = 0x9FC0; // MXCSR: FTZ, all exceptions masked, RNE, DAZ
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(FLUSH_NEAREST_MASKED);
    multiply_bf16_rows(c, x, w, rows, n_groups);
    _mm_setcsr(saved);
}

} // namespace amx_emu

#if defined(__clang__)
#  pragma clang attribute pop
#else
#  pragma GCC pop_options
#endif
#endif
