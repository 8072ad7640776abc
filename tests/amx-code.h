// tests/amx-code.h - AMX instructions as functions, for tests that choose registers at run time. Each function is one instruction, so that the emulator sees it alone.
#ifndef SQ_TESTS_AMX_CODE_H
#define SQ_TESTS_AMX_CODE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <array>
#include <utility>

namespace amx_code {

// Intel SDM volume 1, table 18-4
struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[8], more_row_bytes[8];
    uint8_t rows[8], more_rows[8];
};

inline config uniform(uint8_t rows, uint16_t row_bytes) {
    config c = {};
    c.palette = 1;
    for (int i = 0; i < 8; i++) c.rows[i] = rows, c.row_bytes[i] = row_bytes;
    return c;
}

inline void load_config(const config &c) { __asm__ volatile("ldtilecfg %0\n\tnop" ::"m"(c)); }
inline void store_config(config *c) { __asm__ volatile("sttilecfg %0\n\tnop" : "=m"(*c)); }
inline void release() { __asm__ volatile("tilerelease\n\tnop"); }

template <int T> void load(const void *p, ptrdiff_t stride) { __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2\n\tnop" ::"r"(p), "r"(stride), "i"(T) : "memory"); }
template <int T> void load_t1(const void *p, ptrdiff_t stride) { __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2\n\tnop" ::"r"(p), "r"(stride), "i"(T) : "memory"); }
template <int T> void store(void *p, ptrdiff_t stride) { __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)\n\tnop" ::"r"(p), "r"(stride), "i"(T) : "memory"); }
template <int T> void zero() { __asm__ volatile("tilezero %%tmm%c0\n\tnop" ::"i"(T)); }

enum product_kind { SSD, SUD, USD, UUD, BF16, N_PRODUCT_KINDS };

// P: ((kind * 8 + c) * 8 + x) * 8 + w: tile c += x * w
template <int P> void product() {
    constexpr int kind = P / 512, c = P / 64 % 8, x = P / 8 % 8, w = P % 8;
    if constexpr (c == x || c == w || x == w) return; // no such instruction
    else if constexpr (kind == SSD) __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0\n\tnop" ::"i"(c), "i"(x), "i"(w));
    else if constexpr (kind == SUD) __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0\n\tnop" ::"i"(c), "i"(x), "i"(w));
    else if constexpr (kind == USD) __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0\n\tnop" ::"i"(c), "i"(x), "i"(w));
    else if constexpr (kind == UUD) __asm__ volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0\n\tnop" ::"i"(c), "i"(x), "i"(w));
    else __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0\n\tnop" ::"i"(c), "i"(x), "i"(w));
}

template <size_t... P> constexpr std::array<void (*)(), sizeof...(P)> all_products(std::index_sequence<P...>) { return {product<(int)P>...}; }

// By register
constexpr void (*LOAD[8])(const void *, ptrdiff_t) = {load<0>, load<1>, load<2>, load<3>, load<4>, load<5>, load<6>, load<7>};
constexpr void (*LOAD_T1[8])(const void *, ptrdiff_t) = {load_t1<0>, load_t1<1>, load_t1<2>, load_t1<3>, load_t1<4>, load_t1<5>, load_t1<6>, load_t1<7>};
constexpr void (*STORE[8])(void *, ptrdiff_t) = {store<0>, store<1>, store<2>, store<3>, store<4>, store<5>, store<6>, store<7>};
constexpr void (*ZERO[8])() = {zero<0>, zero<1>, zero<2>, zero<3>, zero<4>, zero<5>, zero<6>, zero<7>};

inline void multiply(product_kind kind, int c, int x, int w) {
    static constexpr auto table = all_products(std::make_index_sequence<N_PRODUCT_KINDS * 512>());
    table[(size_t)(((kind * 8 + c) * 8 + x) * 8 + w)]();
}

} // namespace amx_code

#endif
