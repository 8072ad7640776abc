// amx-count.cpp - what the AMX table's linear layers issue and move, counted rather than timed, so that any CPU with AVX512-VNNI will do; and what a core could reach
// at the documented rates of the instructions. CSV.
//
//     amx-count [ROWS...]
//
// The kernel's real code runs under amx-emu; single-stepping a part of each layer counts the vector instructions of its epilogue. Per tile product:
//   over_min       tile products over 2 M N K / 32768, N and K rounded up to 16 and 64; the rows' last tile makes at least ceil(M / 16) 16 / M of it
//   loads, stores  of tiles; level1, level2, beyond: bytes that those take from the first-level cache, and bring into it and into the second (caches of Sapphire Rapids, LRU)
//   vectors        VEX and EVEX instructions of the epilogue
//   *_cycles       the same at the rates below; bound is the largest of these, set_by its name: all of them can go on at once
//   share          of TDPBUSD's rate at that bound, with weights in the private cache; sustained: with what the second-level cache sustains
//   stream         bytes of weights a cycle at that bound: with less bandwidth from memory, the stream of weights sets the bound (GB/s: times the GHz)
// Exit code 1 if products, loads, or the share of a BERT-large layer miss their bounds. On a CPU that has AMX the rates are measured beside the documented ones.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../../sq-cpu.h"
#include "../amx-emu.h"
#include "../single-step.h"
#include "measure.h"
#include "report.h"

using namespace sq;

namespace {

// ---- rates, in cycles ----

// Intel 64 and IA-32 Architectures Optimization Reference Manual (248966): chapter on AMX, table of throughputs, for the tiles; the sections on the microarchitectures for
// the second-level cache, 64 bytes a cycle at its peak and 48 sustained (Ice Lake's figure; measured below), and for the two ports of 512-bit vector instructions.
constexpr double PRODUCT_CYCLES = 16, LOAD_CYCLES = 8, STORE_CYCLES = 16, LEVEL2_BYTES_A_CYCLE = 64, LEVEL2_SUSTAINED = 48, VECTORS_A_CYCLE = 2;

// ---- caches ----

// Least recently used lines go first. Addresses are taken as they are: virtual.
class cache {
  public:
    cache(size_t n_bytes, size_t ways) : ways_(ways), n_sets_(n_bytes / 64 / ways), lines_(n_sets_ * ways, 0) {}
    // Whether the line was there; it is afterwards. Allocates nothing: called within a signal handler.
    bool touch(uintptr_t line) {
        uintptr_t *set = &lines_[line % n_sets_ * ways_], *at = std::find(set, set + ways_, line);
        const bool hit = at != set + ways_;
        std::rotate(set, hit ? at : at - 1, hit ? at + 1 : at);
        *set = line;
        return hit;
    }

  private:
    size_t ways_, n_sets_;
    std::vector<uintptr_t> lines_; // [n_sets][ways], latest first
};

struct traffic {
    cache level1{48 * 1024, 12}, level2{2 * 1024 * 1024, 16};
    uint64_t n_bytes = 0, n_missed1 = 0, n_missed2 = 0;
};

void see(void *user, amx_emu::op, const void *address, ptrdiff_t stride, size_t rows, size_t row_bytes) {
    if (!address) return;
    traffic *t = static_cast<traffic *>(user);
    for (size_t r = 0; r < rows; r++) {
        const uintptr_t line = (reinterpret_cast<uintptr_t>(address) + r * static_cast<size_t>(stride)) / 64;
        t->n_bytes += row_bytes;
        if (t->level1.touch(line)) continue;
        t->n_missed1 += 64;
        if (!t->level2.touch(line)) t->n_missed2 += 64;
    }
}

// ---- layers ----

struct shape {
    const char *model, *layer;
    size_t n, k;
    activation act;
    bool residual, to_u8;
};

// A static layer of zeros; how many instructions it takes depends on its shape only.
struct layer {
    buffer<uint8_t> x;
    buffer<int8_t> w;
    buffer<float> scale, out;
    gemm_args g{};
    layer(const shape &s, size_t m, size_t n)
        : x(filled<uint8_t>(m * (s.k + 64), 0)), w(filled<int8_t>(n * s.k, 0)), scale(filled<float>(n, 0)), out(filled<float>(m * n, 0)) {
        g.x = x.get();
        g.x_stride = s.k + 64;
        g.m = m;
        g.k = s.k;
        g.w = w.get();
        g.n_panels = n / 16;
        g.scale = g.bias = scale.get();
        g.act = s.act;
        g.residual = s.residual ? out.get() : nullptr;
        g.out = out.get();
        g.out_stride = n;
        g.out_u8 = s.to_u8;
    }
};

amx_emu::counts run(const gemm_args &g) {
    const kernels *table = kernels_amx();
    amx_emu::thread_counts() = {};
    table->thread_begin();
    table->gemm_u8s8(&g);
    table->thread_end();
    return amx_emu::thread_counts();
}

// Vector instructions per tile product, from at most 64 rows and 128 columns: of the same kind in all of the layer
double vectors_of(const shape &s, size_t m) {
    layer part(s, std::min<size_t>(m, 64), std::min<size_t>(s.n, 128));
    amx_emu::watch_next(single_step::see);
    amx_emu::counts issued{};
    const single_step::counts steps = single_step::run([&] { issued = run(part.g); });
    amx_emu::watch_next(nullptr);
    return static_cast<double>(steps.n[0][single_step::EVEX] + steps.n[0][single_step::VEX]) / static_cast<double>(issued.products);
}

struct bound {
    double tdp = 0, cycles = 0, sustained = 0; // of the whole layer
    bool holds = true;
};

bound count(const shape &s, size_t m) {
    layer l(s, m, s.n);
    traffic moved;
    amx_emu::observe(see, &moved);
    run(l.g); // brings what fits into the caches
    moved.n_bytes = moved.n_missed1 = moved.n_missed2 = 0;
    const amx_emu::counts issued = run(l.g);
    amx_emu::observe(nullptr, nullptr);

    const double n = static_cast<double>(issued.products), least = 2.0 * static_cast<double>(m) * static_cast<double>(s.n) * static_cast<double>(s.k) / 32768;
    const double loads = static_cast<double>(issued.loads) / n, stores = static_cast<double>(issued.stores) / n, vectors = vectors_of(s, m);
    const double level2 = static_cast<double>(moved.n_missed1) / n;
    const struct {
        const char *name;
        double cycles;
    } resources[] = {{"TDPBUSD", PRODUCT_CYCLES},
                     {"TILELOADD", loads * LOAD_CYCLES},
                     {"TILESTORED", stores * STORE_CYCLES},
                     {"level 2", level2 / LEVEL2_BYTES_A_CYCLE},
                     {"vectors", vectors / VECTORS_A_CYCLE}};
    const auto *slowest = std::max_element(std::begin(resources), std::end(resources), [](const auto &a, const auto &b) { return a.cycles < b.cycles; });
    const double stream = static_cast<double>(s.n * s.k) / (n * slowest->cycles), sustained = std::max(slowest->cycles, level2 / LEVEL2_SUSTAINED);
    printf("%s,%s,%zu,%zu,%zu,%.0f,%.3f,%.3f,%.3f,%.0f,%.0f,%.0f,%.1f", s.model, s.layer, m, s.n, s.k, n, n / least, loads, stores,
           static_cast<double>(moved.n_bytes) / n, level2, static_cast<double>(moved.n_missed2) / n, vectors);
    for (const auto &r : resources) printf(",%.2f", r.cycles);
    printf(",%.2f,%s,%.3f,%.3f,%.2f\n", slowest->cycles, slowest->name, PRODUCT_CYCLES / slowest->cycles, PRODUCT_CYCLES / sustained, stream);
    fflush(stdout);
    const double allowed = 1.02 * static_cast<double>(round_up(m, 16)) / static_cast<double>(m), allowed_loads = m % 32 == 0 ? 1.0 : 1.34;
    return {n * PRODUCT_CYCLES, n * slowest->cycles, n * sustained, n / least <= allowed && loads <= allowed_loads};
}

// ---- silicon ----

// Seconds of n rounds, each of four instructions
template <class Round> double seconds(size_t n, Round round) {
    const double start = now();
    for (size_t i = 0; i < n; i++) round(i);
    return now() - start;
}

// Cycles an instruction, TDPBUSD's 16 being the clock: median and quartiles over runs, each beside its own TDPBUSD. A vector of 64 bytes: 64 / cycles a cycle
template <class Round> void print_measured(const char *what, Round round) {
    const auto product = [](size_t) { four_tile_products(); };
    const size_t n = 4000;
    std::vector<double> ratios;
    for (int i = 0; i < 101; i++) ratios.push_back(PRODUCT_CYCLES * seconds(n, round) / seconds(n, product));
    std::sort(ratios.begin(), ratios.end());
    printf("# measured: %s %.2f cycles (quartiles %.2f, %.2f), where TDPBUSD takes 16\n", what, ratios[50], ratios[25], ratios[75]);
    fflush(stdout);
}

// In a child, since emulation ends where permission for tiles begins.
void measure_rates() {
    if (!(cpu_features() & CPU_AMX)) return;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        if (why_not(kernels_amx())) _exit(0);
        kernels_amx()->thread_begin();
        const buffer<uint8_t> memory = filled<uint8_t>(512 * 1024, 0);
        uint8_t *p = memory.get();
        const auto loads = [p](size_t span) {
            return [p, span](size_t i) {
                __asm__ volatile("tileloadd (%0,%1,1), %%tmm0\n tileloadd 1024(%0,%1,1), %%tmm1\n tileloadd 2048(%0,%1,1), %%tmm2\n tileloadd 3072(%0,%1,1), %%tmm3" ::"r"(
                                     p + i * 4096 % span),
                                 "r"((size_t)64));
            };
        };
        print_measured("TILELOADD from the first-level cache", loads(4096));
        print_measured("TILELOADD from the second-level cache", loads(512 * 1024));
        print_measured("a vector from the second-level cache", [p](size_t i) {
            __asm__ volatile("vmovdqa64 (%0), %%zmm16\n vmovdqa64 64(%0), %%zmm17\n vmovdqa64 128(%0), %%zmm18\n vmovdqa64 192(%0), %%zmm19" ::"r"(p + i * 256 % (512 * 1024)));
        });
        print_measured("TILESTORED", [p](size_t) {
            __asm__ volatile("tilestored %%tmm0, (%0,%1,1)\n tilestored %%tmm1, 64(%0,%1,1)\n tilestored %%tmm2, 128(%0,%1,1)\n tilestored %%tmm3, 192(%0,%1,1)" ::"r"(p),
                             "r"((size_t)256)
                             : "memory");
        });
        kernels_amx()->thread_end();
        _exit(0);
    }
    waitpid(child, nullptr, 0);
}

} // namespace

int main(int argc, char **argv) {
    measure_rates();
    if (why_not(kernels_avx512vnni()) || !amx_emu::install()) {
        fprintf(stderr, "amx-count needs a CPU with AVX512-VNNI\n");
        return 2;
    }
    const shape shapes[] = {
        {"bert-large", "qkv", 3072, 1024, ACT_NONE, false, true}, {"bert-large", "out", 1024, 1024, ACT_NONE, true, false},
        {"bert-large", "up", 4096, 1024, ACT_GELU_ERF, false, true}, {"bert-large", "down", 1024, 4096, ACT_NONE, true, false},
        {"bert-base", "qkv", 2304, 768, ACT_NONE, false, true}, {"bert-base", "out", 768, 768, ACT_NONE, true, false},
        {"bert-base", "up", 3072, 768, ACT_GELU_ERF, false, true}, {"bert-base", "down", 768, 3072, ACT_NONE, true, false},
        {"minilm", "qkv", 1152, 384, ACT_NONE, false, true}, {"minilm", "out", 384, 384, ACT_NONE, true, false},
        {"minilm", "up", 1536, 384, ACT_GELU_ERF, false, true}, {"minilm", "down", 384, 1536, ACT_NONE, true, false},
    };
    std::vector<size_t> rows = {8, 16, 20, 128, 384};
    if (argc > 1) rows.clear();
    for (int i = 1; i < argc; i++) rows.push_back(std::max<size_t>(1, static_cast<size_t>(atol(argv[i]))));
    print_machine("amx, emulated", 1);
    printf("model,layer,m,n,k,products,over_min,loads,stores,level1,level2,beyond,vectors,TDPBUSD_cycles,TILELOADD_cycles,TILESTORED_cycles,level2_cycles,vector_cycles,"
           "bound,set_by,share,sustained,stream\n");
    bool all_hold = true;
    for (size_t m : rows) {
        bound large;
        for (const shape &s : shapes) {
            const bound b = count(s, m);
            all_hold = all_hold && b.holds;
            if (strcmp(s.model, "bert-large") == 0) large.tdp += b.tdp, large.cycles += b.cycles, large.sustained += b.sustained;
        }
        const double share = large.tdp / large.cycles;
        printf("# BERT-large's four layers, %zu rows: %.3f of TDPBUSD's rate, %.3f at the second-level cache's sustained rate\n", m, share, large.tdp / large.sustained);
        if (m >= 128) all_hold = all_hold && share >= 0.9;
    }
    return all_hold ? 0 : 1;
}
