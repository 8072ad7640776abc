// sq-cpu.cpp - CPUID, XCR0, AMX permission, and the choice among the kernel tables.
//
// Bits are from the Intel SDM, volume 1 chapter 13 (XCR0) and volume 2 CPUID; AMX permission is from the Linux kernel, Documentation/x86/xstate.rst.
#include "sq-cpu.h"

#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "sq.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace sq {
namespace {

#if defined(__x86_64__)

struct cpuid_words {
    uint32_t a = 0, b = 0, c = 0, d = 0;
    cpuid_words(uint32_t leaf, uint32_t subleaf) { __get_cpuid_count(leaf, subleaf, &a, &b, &c, &d); }
};

// Extended control register 0: the register state that the operating system saves.
uint64_t xcr0() {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

constexpr bool has(uint64_t word, uint64_t bits) { return (word & bits) == bits; }
constexpr uint32_t bit(int n) { return 1u << n; }

uint32_t find_features() {
    const cpuid_words basic(1, 0), seven(7, 0), seven1(7, 1);
    if (!has(basic.c, bit(27))) // OSXSAVE
        return 0;
    const uint64_t saved = xcr0();
    uint32_t found = 0;
    if (has(saved, 0x6) && has(basic.c, bit(12) | bit(28) | bit(29)) && has(seven.b, bit(5))) { // XMM, YMM; FMA, AVX, F16C; AVX2
        found |= CPU_AVX2;
        if (has(seven1.a, bit(4)))
            found |= CPU_AVXVNNI;
    }
    if (has(saved, 0xe6) && has(seven.b, bit(16) | bit(17) | bit(30) | bit(31))) { // also opmask and both halves of ZMM; F, DQ, BW, VL
        found |= CPU_AVX512;
        if (has(seven.c, bit(11)))
            found |= CPU_AVX512VNNI;
    }
    if (has(saved, 0x60000) && has(seven.d, bit(24) | bit(25))) // TILECFG, TILEDATA; AMX-TILE, AMX-INT8
        found |= CPU_AMX;
    return found;
}

#else

uint32_t find_features() { return 0; }

#endif

// Linux gives tile data (8 KiB more in every signal frame) only to processes that ask. Asked once; the answer stands.
bool tile_data_granted() {
#if defined(__x86_64__) && defined(__linux__)
    static const bool granted = [] {
        const long req_xcomp_perm = 0x1023, tile_data = 18; // ARCH_REQ_XCOMP_PERM, bit of XCR0
        return syscall(SYS_arch_prctl, req_xcomp_perm, tile_data) == 0;
    }();
    return granted;
#else
    return false;
#endif
}

// Position of the table with this name, best first; n_tables if there is none
size_t find_table(const char *name) {
    size_t n_tables;
    const kernels *const *tables = all_kernels(&n_tables);
    size_t i = 0;
    while (i < n_tables && strcmp(tables[i]->name, name) != 0)
        i++;
    return i;
}

} // namespace

const kernels *const *all_kernels(size_t *n_tables) {
    static const kernels *const tables[] = {
#if defined(__x86_64__)
        kernels_amx(), kernels_avx512vnni(), kernels_avxvnni(), kernels_avx2(),
#endif
        kernels_plain(),
    };
    *n_tables = sizeof tables / sizeof tables[0];
    return tables;
}

uint32_t cpu_features() {
    constexpr uint32_t known = 1u << 31;
    static std::atomic<uint32_t> cache{0};
    uint32_t features = cache.load(std::memory_order_relaxed);
    if (!features) {
        features = find_features() | known; // two threads may do this at once and find the same
        cache.store(features, std::memory_order_relaxed);
    }
    return features & ~known;
}

const char *why_not(const kernels *table) {
    const uint32_t lacking = table->needs & ~cpu_features();
    if (lacking & CPU_AVX2)
        return "this CPU or operating system lacks AVX2 or FMA";
    if (lacking & CPU_AVXVNNI)
        return "this CPU lacks AVX-VNNI";
    if (lacking & CPU_AVX512)
        return "this CPU or operating system lacks AVX-512 F, BW, DQ or VL";
    if (lacking & CPU_AVX512VNNI)
        return "this CPU lacks AVX512-VNNI";
    if (lacking & CPU_AMX)
        return "this CPU or operating system lacks AMX-INT8";
    if ((table->needs & CPU_AMX) && !tile_data_granted())
        return "the operating system refused AMX tile data";
    return nullptr;
}

int choose_kernels(const char *isa, const kernels **chosen, const char **why_no_better, message *why) {
    size_t n_tables, wanted = 0;
    const kernels *const *tables = all_kernels(&n_tables);
    const char *limit = nullptr; // what names the table
    const struct {
        const char *name, *means;
    } names[] = {{isa, "sq_model_params.isa asks for it"}, {getenv("SQ_ISA"), "SQ_ISA asks for it"}};
    for (const auto &n : names) {
        if (!n.name || !*n.name) continue;
        const size_t i = find_table(n.name);
        if (i == n_tables) return fail(why, SQ_E_CPU, "unknown instruction set \"%.40s\"", n.name);
        if (!limit || i > wanted) limit = n.means;
        wanted = i > wanted ? i : wanted;
    }
    while (!limit && why_not(tables[wanted])) wanted++; // ends at plain, which needs nothing
    if (const char *lacking = why_not(tables[wanted])) return fail(why, SQ_E_CPU, "instruction set \"%s\": %s", tables[wanted]->name, lacking);
    *chosen = tables[wanted];
    if (why_no_better) *why_no_better = wanted == 0 ? "" : limit ? limit : why_not(tables[0]);
    return SQ_OK;
}

} // namespace sq
