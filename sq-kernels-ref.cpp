// sq-kernels-ref.cpp - the plain C++ table: what every kernel means, and the fallback for CPUs without a table of their own.
//
// Vectors of 16 lanes are arrays, each operation is one loop. sq-kernels-inl.h says what the operations are and builds the kernels from them.
#include "sq-kernels.h"

#include <math.h>
#include <string.h>

// Nothing here may fuse a multiplication and an addition unless it says fma, whatever the command line says.
#if defined(__clang__)
#  pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#  pragma GCC optimize("fp-contract=off")
#endif

namespace sq {
namespace plain {
namespace {

#define SQ_INLINE inline

struct vf {
    float at[16];
};
struct vi {
    int32_t at[16];
};

template <class V, class Lane> inline V each(Lane lane) {
    V v;
    for (size_t i = 0; i < 16; i++)
        v.at[i] = lane(i);
    return v;
}

inline vf load_n(const float *p, size_t n) {
    return each<vf>([=](size_t i) { return i < n ? p[i] : 0.0f; });
}

inline void store_n(float *p, size_t n, vf v) {
    memcpy(p, v.at, n * sizeof *p);
}

inline vf load(const float *p) { return load_n(p, 16); }
inline vf loadu(const float *p) { return load_n(p, 16); }
inline void store(float *p, vf v) { store_n(p, 16, v); }
inline void storeu(float *p, vf v) { store_n(p, 16, v); }
inline void lanes(vf v, float *p) { store_n(p, 16, v); }
inline vf splat(float a) { return each<vf>([=](size_t) { return a; }); }
inline vf add(vf a, vf b) { return each<vf>([&](size_t i) { return a.at[i] + b.at[i]; }); }
inline vf sub(vf a, vf b) { return each<vf>([&](size_t i) { return a.at[i] - b.at[i]; }); }
inline vf mul(vf a, vf b) { return each<vf>([&](size_t i) { return a.at[i] * b.at[i]; }); }
inline vf div(vf a, vf b) { return each<vf>([&](size_t i) { return a.at[i] / b.at[i]; }); }
inline vf fma(vf a, vf b, vf c) { return each<vf>([&](size_t i) { return fmaf(a.at[i], b.at[i], c.at[i]); }); }
inline vf fnma(vf a, vf b, vf c) { return each<vf>([&](size_t i) { return fmaf(-a.at[i], b.at[i], c.at[i]); }); }
inline vf min(vf a, vf b) { return each<vf>([&](size_t i) { return a.at[i] < b.at[i] ? a.at[i] : b.at[i]; }); }
inline vf max(vf a, vf b) { return each<vf>([&](size_t i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; }); }
inline vf abs(vf a) { return each<vf>([&](size_t i) { return fabsf(a.at[i]); }); }
inline vf copysign(vf a, vf sign) { return each<vf>([&](size_t i) { return copysignf(a.at[i], sign.at[i]); }); }
inline vf low_abs(vf a, vf c) { return min(abs(a), c); }
inline vf first_n(vf v, size_t n, vf fill) { return each<vf>([&](size_t i) { return i < n ? v.at[i] : fill.at[i]; }); }

// Bounds are 2^31, exact as floats; NaN fails both comparisons.
inline vi to_int(vf a) {
    return each<vi>([&](size_t i) { return a.at[i] >= -2147483648.0f && a.at[i] < 2147483648.0f ? (int32_t)lrintf(a.at[i]) : INT32_MIN; });
}

// 2^n by its bits; any power will do for a NaN
inline vf ldexp(vf a, vf n) {
    const vi exponent = to_int(n);
    return each<vf>([&](size_t i) {
        const uint32_t bits = ((uint32_t)exponent.at[i] + 127) << 23;
        float power;
        memcpy(&power, &bits, sizeof power);
        return a.at[i] * power;
    });
}

inline vf to_float(vi a) { return each<vf>([&](size_t i) { return (float)a.at[i]; }); }
inline vi splat_i(int32_t a) { return each<vi>([=](size_t) { return a; }); }
inline vi load_i(const int32_t *p) { return each<vi>([=](size_t i) { return p[i]; }); }
inline vi load_s8(const int8_t *p) { return each<vi>([=](size_t i) { return p[i]; }); }

inline vi add_i(vi a, vi b) { return each<vi>([&](size_t i) { return (int32_t)((uint32_t)a.at[i] + (uint32_t)b.at[i]); }); }
inline vi sub_i(vi a, vi b) { return each<vi>([&](size_t i) { return (int32_t)((uint32_t)a.at[i] - (uint32_t)b.at[i]); }); }
inline vi max_i(vi a, vi b) { return each<vi>([&](size_t i) { return a.at[i] > b.at[i] ? a.at[i] : b.at[i]; }); }
inline vi low_byte(vi a) { return each<vi>([&](size_t i) { return a.at[i] & 255; }); }
inline vi high_byte(vi a) { return each<vi>([&](size_t i) { return a.at[i] >> 8; }); }
inline vi first_n(vi v, size_t n, vi fill) { return each<vi>([&](size_t i) { return i < n ? v.at[i] : fill.at[i]; }); }

inline int32_t sum_i(vi a) {
    uint32_t sum = 0; // as add_i: it may wrap
    for (int32_t lane : a.at)
        sum += (uint32_t)lane;
    return (int32_t)sum;
}

inline int32_t highest_i(vi a) {
    int32_t high = a.at[0];
    for (int32_t lane : a.at)
        high = lane > high ? lane : high;
    return high;
}

inline vi sub_mul_i(vi a, vi b, vi c) {
    return each<vi>([&](size_t i) { return (int32_t)((uint32_t)a.at[i] - (uint32_t)b.at[i] * (uint32_t)c.at[i]); });
}

inline void store_u8(uint8_t *p, vi v, int32_t zero) {
    for (size_t i = 0; i < 16; i++)
        p[i] = (uint8_t)(v.at[i] < -zero ? 0 : v.at[i] + zero);
}

inline void store_u8x4(uint8_t *p, vi v0, vi v1, vi v2, vi v3, int32_t zero) {
    store_u8(p, v0, zero);
    store_u8(p + 16, v1, zero);
    store_u8(p + 32, v2, zero);
    store_u8(p + 48, v3, zero);
}

inline void store_4x16(uint8_t *p, const uint8_t *r0, const uint8_t *r1, const uint8_t *r2, const uint8_t *r3) {
    const uint8_t *const rows[] = {r0, r1, r2, r3};
    for (size_t c = 0; c < 16; c++)
        for (size_t j = 0; j < 4; j++)
            p[4 * c + j] = rows[j][c] ^ 0x80;
}

constexpr size_t INT_ROWS = 4, INT_PANELS = 1, F32_ROWS = 4, F32_PANELS = 1;

// X and W: uint8_t and int8_t, one each
template <class X, class W>
void tile_of(size_t rows, size_t, const uint8_t *bytes, size_t x_stride, const int8_t *weights, size_t k, int32_t *out, size_t out_stride, const int8_t *, size_t) {
    const X *x = (const X *)bytes;
    const W *w = (const W *)weights;
    for (size_t r = 0; r < rows; r++, x += x_stride, out += out_stride) {
        int32_t acc[16] = {0};
        for (size_t i = 0; i < k; i += 4)
            for (size_t n = 0; n < 16; n++)
                for (size_t j = 0; j < 4; j++)
                    acc[n] += x[i + j] * w[16 * i + 4 * n + j];
        memcpy(out, acc, sizeof acc);
    }
}

constexpr int_tile tile_u8s8 = tile_of<uint8_t, int8_t>, tile_s8u8 = tile_of<int8_t, uint8_t>;

void tile_f32(size_t rows, size_t, const float *x, size_t x_stride, const float *w, size_t k, float *out, size_t out_stride, const float *, size_t) {
    for (size_t r = 0; r < rows; r++, x += x_stride, out += out_stride) {
        vf acc = splat(0.0f);
        for (size_t i = 0; i < k; i++)
            acc = fma(splat(x[i]), load(w + 16 * i), acc);
        store(out, acc);
    }
}

#include "sq-kernels-inl.h"

constexpr kernels table = make_table("plain", 0);

} // namespace
} // namespace plain

const kernels *kernels_plain() { return &plain::table; }

} // namespace sq

#undef SQ_INLINE
