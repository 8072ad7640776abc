// tests/amx-decode.h - the machine code of AMX instructions, as fields. What they do is amx-emu.h's matter.
//
// Source: Intel SDM volume 2, chapter 2 (VEX, ModRM, SIB) and the instruction pages of LDTILECFG, STTILECFG, TILE* and TDP*.
#ifndef SQ_TESTS_AMX_DECODE_H
#define SQ_TESTS_AMX_DECODE_H

#include <stdint.h>

namespace amx_emu {

enum class op : uint8_t {
    ldtilecfg, sttilecfg, tilerelease, tilezero, tileloadd, tileloaddt1, tilestored, tdpbssd, tdpbsud, tdpbusd, tdpbuud, tdpbf16ps
};

const char *name(op what); // in capitals, as in the SDM

constexpr int8_t NO_REGISTER = -1, RIP = 16; // beside the numbers 0..15 of general registers: RAX RCX RDX RBX RSP RBP RSI RDI R8 .. R15

struct instruction {
    op what;
    uint8_t n_bytes;
    uint8_t tmm, tmm2, tmm3; // tile registers 0..7 in the SDM's order of operands: TDP* tmm, tmm2, tmm3; of others tmm only
    int8_t base, index;      // of a memory operand, a register's number, NO_REGISTER or RIP (of the next instruction)
    uint8_t shift;           // of the index: 0..3
    int32_t displacement;
};

enum class decoded {
    other,       // not an AMX instruction of these
    valid,
    undefined,   // an opcode of these, with fields that make it #UD on every CPU
    unsupported, // valid, but with a prefix that this decoder does not follow
};

// Reads no more bytes than it needs: what follows the instruction may be inaccessible. *why receives null or, of what is undefined or
// unsupported, the reason (static storage); of *out then only `what` is set.
decoded decode(const uint8_t *code, instruction *out, const char **why);

} // namespace amx_emu

#endif
