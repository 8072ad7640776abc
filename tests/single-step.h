// tests/single-step.h - executes a stretch of code one instruction at a time and counts what kind of instructions it is made of.
//
//     single_step::counts n = single_step::run([&] { table->gemm_u8s8(&g); });
//
// The CPU's trap flag raises SIGTRAP after every instruction of the calling thread; other threads, and code within signal handlers, are not seen. About 500,000
// instructions a second. With amx_emu::watch_next(single_step::see) it also sees the instructions that follow emulated ones.
#ifndef SQ_TESTS_SINGLE_STEP_H
#define SQ_TESTS_SINGLE_STEP_H

#include <stddef.h>
#include <stdint.h>

namespace single_step {

// Kinds by the encoding. AVX-512's mask instructions (KMOV, KORTEST, ...) are VEX encoded, but AVX-512's all the same.
enum kind { OTHER, VEX, MASK, EVEX, AMX, N_KINDS };

kind classify(const uint8_t *code);

// Of instructions in the program's own text, [0] and in other mappings (libc, libm), [1]; first[k]: the address of the first one of kind k in its own text.
struct counts {
    uint64_t n[2][N_KINDS];
    const void *first[N_KINDS];
};

// Counts an instruction that is about to be executed; during `run` only. For amx_emu::watch_next.
void see(const void *code);

void begin();
counts end();

template <class Work> counts run(Work work) {
    begin();
    work();
    return end();
}

} // namespace single_step

#endif
