// tests/amx-emu.h - runs AMX instructions on CPUs without AMX: a SIGILL handler that does what they would do.
//
//     if (!amx_emu::install()) SKIP(...);
//     ... any code with LDTILECFG, STTILECFG, TILE* and TDP*, on any threads ...
//     amx_emu::uninstall();
//
// On a CPU with AMX it works as well, as long as the process has not asked Linux for tile data (sq::why_not and sq::choose_kernels ask when they meet the AMX
// table: set SQ_ISA=avx512vnni before models are loaded). amx-emu.cpp says how, and what then is different. Needs AVX-512 F and BW; x86-64 Linux only.
#ifndef SQ_TESTS_AMX_EMU_H
#define SQ_TESTS_AMX_EMU_H

#include <stddef.h>
#include <stdint.h>

#include "amx-decode.h"

namespace amx_emu {

// False, with no handler installed, if the CPU lacks AVX-512 F or BW or the process may use tile data, so that nothing would trap. Not while other threads run AMX code.
bool install();
void uninstall();

// What this thread has executed since it began, or since its caller has set this to zeros. On a CPU with AMX a configuration is counted when the first other
// instruction uses it, and TILERELEASE not at all.
struct counts {
    uint64_t products, loads, stores, zeros, configs, releases;
};
counts &thread_counts();

// How many signals this thread has taken for that: instructions that follow each other directly share one.
uint64_t &thread_signals();

// Called for each TILELOADD, TILELOADDT1, TILESTORED, with its memory: `rows` rows of row_bytes from `address`, stride bytes apart; and for each TDP*, with
// a null address, the rows and the bytes a row of its result. Within a signal handler, on the thread that executes the instruction. Null for none.
using observer = void (*)(void *user, op what, const void *address, ptrdiff_t stride, size_t rows, size_t row_bytes);
void observe(observer o, void *user);

// Called after each emulated instruction with the address of the next, which no debug trap of single-stepping reports. Null for none.
void watch_next(void (*watcher)(const void *next));

// Called where the CPU would raise #UD or #GP, with which `why` begins; both texts have static storage. The hook must leave by siglongjmp. Without a hook (null),
// or when it returns, a line goes to stderr and SIGILL kills the process.
using fault_hook = void (*)(void *user, const char *instruction_name, const char *why);
void catch_faults(fault_hook h, void *user);

} // namespace amx_emu

#endif
