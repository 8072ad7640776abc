// gemm.cpp - speed of the INT8 linear layer on one thread, for the shapes of BERT models, as CSV.
//
//     gemm [ISA [ROWS...]]
//
// peak is a loop of independent VPDPBUSD on ZMM registers, with the amx table of TDPBUSD, timed right before and right after each call. share is gop_s / peak over the calls whose two
// peaks agree within 2 %, so that changes of frequency drop out: the median, and the ninth decile for a machine where neighbours disturb. warm: the same
// weights again; cold: copies of them in turn, 128 MiB together. Integer operations: a multiply-add counts as two.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../../sq-cpu.h"
#include "../../sq.h"
#include "measure.h"
#include "report.h"

#if defined(__x86_64__)
#include <immintrin.h>

// 24 independent accumulators, twice what hides the latency of 5 cycles at 2 instructions a cycle
__attribute__((target("avx512f"), noinline)) static void peak_loop(size_t n) {
    __m512i x = _mm512_set1_epi32(1);
    for (size_t i = 0; i < n; i++)
        __asm__ volatile("vpdpbusd %0, %0, %%zmm1\n vpdpbusd %0, %0, %%zmm2\n vpdpbusd %0, %0, %%zmm3\n vpdpbusd %0, %0, %%zmm4\n"
                         "vpdpbusd %0, %0, %%zmm5\n vpdpbusd %0, %0, %%zmm6\n vpdpbusd %0, %0, %%zmm7\n vpdpbusd %0, %0, %%zmm8\n"
                         "vpdpbusd %0, %0, %%zmm9\n vpdpbusd %0, %0, %%zmm10\n vpdpbusd %0, %0, %%zmm11\n vpdpbusd %0, %0, %%zmm12\n"
                         "vpdpbusd %0, %0, %%zmm13\n vpdpbusd %0, %0, %%zmm14\n vpdpbusd %0, %0, %%zmm15\n vpdpbusd %0, %0, %%zmm16\n"
                         "vpdpbusd %0, %0, %%zmm17\n vpdpbusd %0, %0, %%zmm18\n vpdpbusd %0, %0, %%zmm19\n vpdpbusd %0, %0, %%zmm20\n"
                         "vpdpbusd %0, %0, %%zmm21\n vpdpbusd %0, %0, %%zmm22\n vpdpbusd %0, %0, %%zmm23\n vpdpbusd %0, %0, %%zmm24\n"
                         :
                         : "v"(x)
                         : "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
                           "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24");
}

static void amx_peak_loop(size_t n) {
    for (size_t i = 0; i < n; i++) four_tile_products();
}
#else
static void peak_loop(size_t) {}
static void amx_peak_loop(size_t) {}
#endif

using namespace sq;

namespace {

// Gop/s of TDPBUSD if the table has tiles, else of VPDPBUSD, 0 where there is none
double peak(const kernels *table) {
    if (!(cpu_features() & CPU_AVX512VNNI)) return 0;
    const bool tiles = table->needs & CPU_AMX;
    const size_t n = tiles ? 600 : 3000; // some 15 microseconds
    const double start = now();
    (tiles ? amx_peak_loop : peak_loop)(n);
    return (double)n * (tiles ? 4 * 32768 : 24 * 128) / (now() - start) * 1e-9;
}

struct shape {
    const char *name;
    size_t n, k;
    activation act;
    bool residual, to_u8, dynamic;
};

double quantile(std::vector<double> v, double q) {
    if (v.empty()) return 0;
    std::sort(v.begin(), v.end());
    return v[(size_t)(q * (double)(v.size() - 1))];
}

void measure(const kernels *table, const shape &s, size_t m, bool cold) {
    const size_t x_stride = s.k % 1024 ? s.k : s.k + 64, copies = cold ? 1 + (128u << 20) / (s.n * s.k) : 1;
    auto x = filled<uint8_t>(m * x_stride, 3);
    auto w = filled<int8_t>(copies * s.n * s.k, 2);
    auto scale = filled<float>(s.n, 1e-3f), bias = filled<float>(s.n, 0.1f), row_scale = filled<float>(m, 1), residual = filled<float>(m * s.n, 1);
    auto comp = filled<int32_t>(s.n, 2 * (int32_t)s.k), row_zero = filled<int32_t>(m, 3);
    auto out = filled<float>(m * s.n, 0);
    gemm_args g{};
    g.x = x.get();
    g.x_stride = x_stride;
    g.m = m;
    g.n_panels = s.n / 16;
    g.k = s.k;
    g.scale = g.out_mul = scale.get();
    if (!s.to_u8) g.out_mul = nullptr;
    g.out_u8 = s.to_u8;
    g.bias = bias.get();
    if (s.dynamic) {
        g.comp = comp.get();
        g.row_scale = row_scale.get();
        g.row_zero = row_zero.get();
    }
    g.act = s.act;
    g.residual = s.residual ? residual.get() : nullptr;
    g.out = out.get();
    g.out_stride = s.n;
    const double ops = 2.0 * (double)m * (double)s.n * (double)s.k;
    std::vector<double> rates, shares;
    double before = peak(table), best_peak = before, end = now() + 0.4;
    for (size_t i = 0; now() < end || i < 20; i++) {
        g.w = w.get() + i % copies * s.n * s.k;
        const double start = now();
        table->gemm_u8s8(&g);
        rates.push_back(ops / (now() - start) * 1e-9);
        const double after = peak(table);
        if (std::max(before, after) < 1.02 * std::min(before, after)) shares.push_back(2 * rates.back() / (before + after));
        best_peak = std::max(best_peak, before = after);
    }
    printf("%s,%s,%zu,%zu,%zu,%s,%.0f,%.0f,%.0f,%.3f,%.3f\n", table->name, s.name, m, s.n, s.k, cold ? "cold" : "warm", quantile(rates, 1),
           quantile(rates, 0.5), best_peak, quantile(shares, 0.5), quantile(shares, 0.9));
    fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
    const kernels *table = nullptr;
    message why;
    if (choose_kernels(argc > 1 ? argv[1] : nullptr, &table, nullptr, &why) != SQ_OK) {
        fprintf(stderr, "%s\n", why.text);
        return 2;
    }
    std::vector<size_t> rows = {1, 8, 16, 32, 128, 384};
    if (argc > 2) rows.clear();
    for (int i = 2; i < argc; i++) rows.push_back((size_t)atol(argv[i]));
    const shape shapes[] = {
        {"large-qkv", 3072, 1024, ACT_NONE, false, false, false},  {"large-out", 1024, 1024, ACT_NONE, true, false, false},
        {"large-up", 4096, 1024, ACT_GELU_ERF, false, true, false}, {"large-down", 1024, 4096, ACT_NONE, true, false, false},
        {"base-up", 3072, 768, ACT_GELU_ERF, false, true, false},   {"base-down", 768, 3072, ACT_NONE, true, false, false},
        {"mini-qkv", 1152, 384, ACT_NONE, false, false, false},     {"mini-up", 1536, 384, ACT_GELU_ERF, false, true, false},
        {"mini-up-dyn", 1536, 384, ACT_GELU_ERF, false, false, true}, {"mini-down", 384, 1536, ACT_NONE, true, false, false},
    };
    print_machine(table->name, 1);
    printf("isa,layer,m,n,k,weights,best_gop_s,median_gop_s,best_peak,share,share_p90\n");
    if (table->thread_begin) table->thread_begin();
    for (const shape &s : shapes)
        for (bool cold : {false, true})
            for (size_t m : rows) measure(table, s, m, cold);
    if (table->thread_end) table->thread_end();
    return 0;
}
