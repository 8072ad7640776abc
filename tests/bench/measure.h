// tests/bench/measure.h - what benchmarks of kernels measure with: a clock, memory for operands, the tile multiplier at full rate.
#ifndef SQ_TESTS_BENCH_MEASURE_H
#define SQ_TESTS_BENCH_MEASURE_H

#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <memory>

#include "../../sq-kernels.h"

// Seconds since some moment
inline double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct free_deleter {
    void operator()(void *p) const { free(p); }
};
template <class T> using buffer = std::unique_ptr<T[], free_deleter>;

// n elements from the beginning of a page, all touched
template <class T> buffer<T> filled(size_t n, T fill) {
    T *p = static_cast<T *>(aligned_alloc(4096, sq::round_up(n * sizeof(T), 4096)));
    if (!p) abort();
    std::fill(p, p + n, fill);
    return buffer<T>(p);
}

#if defined(__x86_64__)
// Four independent TDPBUSD, enough to hide the latency of 52 cycles at 16 each; the tiles are configured already.
inline void four_tile_products() {
    __asm__ volatile("tdpbusd %tmm6, %tmm4, %tmm0\n tdpbusd %tmm6, %tmm5, %tmm1\n tdpbusd %tmm7, %tmm4, %tmm2\n tdpbusd %tmm7, %tmm5, %tmm3");
}
#endif

#endif
