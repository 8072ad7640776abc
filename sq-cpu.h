// sq-cpu.h - which kernel tables this CPU and operating system can run, and which one to use.
#ifndef SQ_CPU_H
#define SQ_CPU_H

#include "sq-kernels.h"
#include "sq-tok.h" // message

namespace sq {

// cpu_feature bits of this machine: what CPUID offers and the operating system saves. CPU_AMX does not yet mean that the process may use tile data.
// Any thread; found once, by the first call.
uint32_t cpu_features();

// Why this machine cannot run a table, or null if it can. For AMX this asks the operating system for permission to use tile data, which lasts as long as the
// process; nothing else does. Static storage.
const char *why_not(const kernels *table);

// The best table, or the lower of the two named by isa and the environment variable SQ_ISA, where given (null and "" count as not given). *why_no_better (may be null)
// says why the library's best was not taken, "" if it was; static storage.
// SQ_E_CPU with the cause in *why (may be null) if a name is unknown or its table cannot run here; the other outputs are then untouched.
int choose_kernels(const char *isa, const kernels **chosen, const char **why_no_better, message *why);

} // namespace sq

#endif
