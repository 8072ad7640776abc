// single-step.cpp - see single-step.h. Prefixes and opcodes are from the Intel SDM, volume 2, chapter 2.
#include "single-step.h"

#if defined(__x86_64__) && defined(__linux__)

#include <signal.h>
#include <string.h>
#include <ucontext.h>

extern "C" const char __executable_start, etext; // by the linker: the program's own first byte and the end of its text

namespace single_step {
namespace {

constexpr greg_t TRAP_FLAG = 0x100; // EFLAGS.TF

counts found;
struct sigaction before;
volatile sig_atomic_t stopping;

// With TF set, an instruction has just been executed and RIP is at the next.
void on_sigtrap(int, siginfo_t *, void *context) {
    ucontext_t *u = (ucontext_t *)context;
    if (stopping) u->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    else see((const void *)u->uc_mcontext.gregs[REG_RIP]);
}

// The opcodes of map 0F with a VEX prefix that are mask instructions: 41 .. 4B, 90 .. 93, 98, 99; KSHIFT is 30 .. 33 of map 0F3A.
bool is_mask_opcode(unsigned map, uint8_t opcode) {
    if (map == 1) return (opcode >= 0x41 && opcode <= 0x4B) || (opcode >= 0x90 && opcode <= 0x93) || opcode == 0x98 || opcode == 0x99;
    return map == 3 && opcode >= 0x30 && opcode <= 0x33;
}

// 49, 4B: configuration, loads and stores; 5C, 5E, 6C: products. All with VEX.128.0F38.W0.
bool is_amx_opcode(unsigned map, uint8_t opcode) {
    return map == 2 && (opcode == 0x49 || opcode == 0x4B || opcode == 0x5C || opcode == 0x5E || opcode == 0x6C);
}

} // namespace

kind classify(const uint8_t *p) {
    while (*p == 0x66 || *p == 0x67 || *p == 0xF2 || *p == 0xF3 || *p == 0xF0 || *p == 0x2E || *p == 0x36 || *p == 0x3E || *p == 0x26 || *p == 0x64 || *p == 0x65)
        p++;
    if (*p == 0x62) return EVEX; // in 64-bit mode C4, C5 and 62 are nothing else, and no REX prefix precedes them
    if (*p != 0xC4 && *p != 0xC5) return OTHER;
    const bool is_long = *p == 0xC4;
    const unsigned map = is_long ? p[1] & 0x1F : 1;
    const uint8_t opcode = is_long ? p[3] : p[2];
    const bool l_is_0 = !(p[is_long ? 2 : 1] & 4);
    if (is_amx_opcode(map, opcode) && l_is_0 && !(p[2] & 0x80)) return AMX;
    return is_mask_opcode(map, opcode) ? MASK : VEX;
}

void see(const void *code) {
    const kind k = classify((const uint8_t *)code);
    const bool own = code >= &__executable_start && code < &etext;
    found.n[own ? 0 : 1][k]++;
    if (own && !found.first[k]) found.first[k] = code;
}

void begin() {
    found = {};
    stopping = 0;
    struct sigaction a = {};
    a.sa_sigaction = on_sigtrap;
    a.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &a, &before);
    __asm__ volatile("lea -128(%%rsp), %%rsp; pushfq; orq $0x100, (%%rsp); popfq; lea 128(%%rsp), %%rsp" ::: "memory", "cc"); // below the red zone
}

counts end() {
    stopping = 1; // the next trap clears TF
    __asm__ volatile("nop");
    sigaction(SIGTRAP, &before, nullptr);
    return found;
}

} // namespace single_step

#endif
