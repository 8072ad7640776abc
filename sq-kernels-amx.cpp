// sq-kernels-amx.cpp - the AMX table: AVX512-VNNI's, with the integer products done on tiles, by TDPBUSD, and TDPBSUD for the scores of attention. The packing is the same: a 1 KiB block of a panel,
// [16 groups of K][16 columns][4], is one tile; 16 rows of 64 u8 activations are another; 16 rows of 16 sums a third.
//
// Tile instructions are asm statements: of GCC 12's intrinsics, _tile_loadd does not say that it reads memory and _tile_loadconfig names 8 of its 64 bytes, so
// that the compiler may drop or move stores before them. No compiler uses tile registers on its own, hence none is named as clobbered.
#include "sq-kernels.h"

#if defined(__x86_64__)

namespace sq {
namespace amx {
namespace {

// Intel SDM volume 1, table 18-4 (palette 1): bytes per row and rows of each of eight tile registers.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[8], more_row_bytes[8];
    uint8_t rows[8], more_rows[8];
};
static_assert(sizeof(tile_config) == 64, "as LDTILECFG reads it");

// Registers 0-3 are sums and 4, 5 activations, all with n_rows rows; 6, 7 are weights with 16 groups of K. Loading a configuration clears all registers.
void configure(size_t n_rows) {
    tile_config c = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {}, {}, {}};
    for (size_t i = 0; i < 8; i++) c.rows[i] = (uint8_t)(i < 6 ? n_rows : 16);
    __asm__ volatile("ldtilecfg %0" ::"m"(c));
}

void thread_begin() { configure(16); }
void thread_end() { __asm__ volatile("tilerelease"); }

#define SQ_INLINE inline __attribute__((always_inline))

template <int REGISTER> SQ_INLINE void zero() { __asm__ volatile("tilezero %%tmm%c0" ::"i"(REGISTER)); }
template <int REGISTER> SQ_INLINE void load(const void *p, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(REGISTER) : "memory");
}
template <int REGISTER> SQ_INLINE void store(int32_t *p, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride * sizeof *p), "i"(REGISTER) : "memory");
}
// U8_S8: x unsigned and w signed; otherwise the other way round
template <bool U8_S8, int ACC, int X, int W> SQ_INLINE void multiply_add() {
    if (U8_S8) __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(ACC), "i"(X), "i"(W));
    else __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(ACC), "i"(X), "i"(W));
}

// Brings weights into the second-level cache.
SQ_INLINE void prefetch(const int8_t *w, size_t n_lines) {
    for (; n_lines > 0; n_lines--, w += 64) __builtin_prefetch(w, 0, 2);
}

// Sums of one or two tiles of rows (at x and x2) times one or two panels. n_ahead: cache lines to prefetch for every 64 of K.
template <bool U8_S8, bool TWO_ROWS, bool TWO_PANELS>
void block(const uint8_t *x, const uint8_t *x2, size_t x_stride, const int8_t *w, size_t k, int32_t *out, int32_t *out2, size_t out_stride,
           const int8_t *ahead, size_t n_ahead) {
    zero<0>();
    zero<1>();
    zero<2>();
    zero<3>();
    for (size_t i = 0; i < k; i += 64, w += 1024) {
        load<4>(x + i, x_stride);
        load<6>(w, 64);
        multiply_add<U8_S8, 0, 4, 6>();
        if (TWO_ROWS) {
            load<5>(x2 + i, x_stride);
            multiply_add<U8_S8, 2, 5, 6>();
        }
        if (TWO_PANELS) {
            load<7>(w + 16 * k, 64);
            multiply_add<U8_S8, 1, 4, 7>();
        }
        if (TWO_ROWS && TWO_PANELS) multiply_add<U8_S8, 3, 5, 7>();
        prefetch(ahead, n_ahead);
        ahead += 64 * n_ahead;
    }
    store<0>(out, out_stride);
    if (TWO_PANELS) store<1>(out + 16, out_stride);
    if (TWO_ROWS) store<2>(out2, out_stride);
    if (TWO_ROWS && TWO_PANELS) store<3>(out2 + 16, out_stride);
}

// An int_tile of 16 to 32 rows, or of as many as configured. The second tile of rows ends at the last row and so may repeat rows of the first: that costs less
// than another configuration.
template <bool U8_S8, bool TWO_ROWS>
void tile_rows(size_t rows, size_t panels, const uint8_t *x, size_t x_stride, const int8_t *w, size_t k, int32_t *out, size_t out_stride, const int8_t *ahead,
               size_t n_lines) {
    const size_t n_steps = (panels + 1) / 2 * (k / 64), n_ahead = (n_lines + n_steps - 1) / n_steps;
    const uint8_t *x2 = TWO_ROWS ? x + (rows - 16) * x_stride : nullptr;
    for (size_t p = 0; p < panels; p += 2, ahead += n_ahead * k) {
        int32_t *to = out + 16 * p, *to2 = TWO_ROWS ? to + (rows - 16) * out_stride : nullptr;
        (p + 1 < panels ? block<U8_S8, TWO_ROWS, true> : block<U8_S8, TWO_ROWS, false>)(x, x2, x_stride, w + 16 * k * p, k, to, to2, out_stride, ahead, n_ahead);
    }
}

template <bool U8_S8>
void tile(size_t rows, size_t panels, const uint8_t *x, size_t x_stride, const int8_t *w, size_t k, int32_t *out, size_t out_stride, const int8_t *ahead,
          size_t n_lines) {
    (rows > 16 ? tile_rows<U8_S8, true> : tile_rows<U8_S8, false>)(rows, panels, x, x_stride, w, k, out, out_stride, ahead, n_lines);
}

// Between calls, tiles are configured for 16 rows. Every tile of a layer with 16 rows or more has 16 to 32: `parts` makes them nearly equal.
void gemm_u8s8(const gemm_args *g) {
    alignas(64) int32_t acc[32 * 64];
    if (g->m >= 16) return gemm_u8s8_avx512(g, 32, 4, tile<true>, acc);
    configure(g->m);
    gemm_u8s8_avx512(g, 16, 4, tile_rows<true, false>, acc);
    configure(16);
}

void attention_s8(const attention_s8_args *a) {
    const size_t rows = a->past - a->first;
    if (rows >= 16) return attention_s8_avx512(a, {32, 4, 64, tile<true>, tile<false>});
    configure(rows);
    attention_s8_avx512(a, {16, 4, 64, tile_rows<true, false>, tile_rows<false, false>});
    configure(16);
}

} // namespace
} // namespace amx

const kernels *kernels_amx() {
    static const kernels table = [] {
        kernels k = *kernels_avx512vnni();
        k.name = "amx";
        k.needs |= CPU_AMX;
        k.gemm_u8s8 = amx::gemm_u8s8;
        k.attention_s8 = amx::attention_s8;
        k.n_tiles = 1;
        k.thread_begin = amx::thread_begin;
        k.thread_end = amx::thread_end;
        return k;
    }();
    return &table;
}

} // namespace sq
#endif
