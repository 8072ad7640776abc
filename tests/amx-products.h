// tests/amx-products.h - the arithmetic of TDP*: tiles in memory in, a tile out. For CPUs with AVX-512 F and BW, which every CPU that runs the AMX table has.
#ifndef SQ_TESTS_AMX_PRODUCTS_H
#define SQ_TESTS_AMX_PRODUCTS_H

#include <stddef.h>
#include <stdint.h>

namespace amx_emu {

// A tile register's 16 rows of 64 bytes; what lies beyond its configured rows and columns is 0.
struct alignas(64) tile {
    uint8_t row[16][64];
};

// c[i][n] += sum over j < n_groups and b < 4 of x[i][4 j + b] * w[j][4 n + b] for i < rows and all 16 columns n, modulo 2^32. X_SIGNED, W_SIGNED: x and w are
// s8, otherwise u8.
template <bool X_SIGNED, bool W_SIGNED> void multiply_bytes(tile *c, const tile &x, const tile &w, size_t rows, size_t n_groups);

// TDPBF16PS: c[i][n] += even + odd, where even and odd are sums by fused multiply-add over rising j of the first and the second half of pair j of x[i] and pair n
// of w[j]. Rounds to nearest even; denormals, in and out, are 0; MXCSR is neither consulted nor changed.
void multiply_bf16(tile *c, const tile &x, const tile &w, size_t rows, size_t n_groups);

} // namespace amx_emu

#endif
