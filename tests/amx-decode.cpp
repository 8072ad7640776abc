// amx-decode.cpp - from bytes to an instruction: prefixes, VEX, opcode, ModRM, SIB, displacement.
#include "amx-decode.h"

#include <string.h>

namespace amx_emu {
namespace {

// The three bytes of a VEX prefix: C4, R X B m-mmmm, W vvvv L pp; R, X, B and vvvv are inverted. AMX is in map 0F38, which the two-byte form C5 cannot name.
struct vex {
    bool r, x, b, w, l; // r, x, b: true extends the field by 8
    uint8_t vvvv, pp;
};

constexpr uint8_t NP = 0, P66 = 1, PF3 = 2, PF2 = 3; // vex::pp

enum class form : uint8_t { memory, sib, no_operand, one_tile, three_tiles };

struct row {
    uint8_t opcode, pp;
    bool is_memory;
    form operands;
    op what;
};

constexpr row TABLE[] = {
    {0x49, NP, true, form::memory, op::ldtilecfg},        {0x49, P66, true, form::memory, op::sttilecfg},
    {0x49, NP, false, form::no_operand, op::tilerelease}, {0x49, PF2, false, form::one_tile, op::tilezero},
    {0x4B, PF2, true, form::sib, op::tileloadd},          {0x4B, P66, true, form::sib, op::tileloaddt1},
    {0x4B, PF3, true, form::sib, op::tilestored},         {0x5C, PF3, false, form::three_tiles, op::tdpbf16ps},
    {0x5E, PF2, false, form::three_tiles, op::tdpbssd},   {0x5E, PF3, false, form::three_tiles, op::tdpbsud},
    {0x5E, P66, false, form::three_tiles, op::tdpbusd},   {0x5E, NP, false, form::three_tiles, op::tdpbuud},
};

const row *find(uint8_t opcode, uint8_t pp, bool is_memory) {
    for (const row &r : TABLE)
        if (r.opcode == opcode && r.pp == pp && r.is_memory == is_memory) return &r;
    return nullptr;
}

bool is_opcode(uint8_t opcode) { return opcode == 0x49 || opcode == 0x4B || opcode == 0x5C || opcode == 0x5E; }

// Why the fields beside the memory operand make it #UD, or null. Registers above tmm7 do not exist; a field that names nothing must be as the page has it (vvvv
// 1111b, reg 000b of LDTILECFG). The X and B bits of a field that is no register, and R of LDTILECFG and TILERELEASE, are ignored (seen on Emerald Rapids).
const char *undefined_fields(form operands, const vex &v, uint8_t modrm) {
    const uint8_t reg = modrm >> 3 & 7, rm = modrm & 7;
    if (v.w) return "#UD: VEX.W is 1";
    if (v.l) return "#UD: VEX.L is 1";
    if (operands != form::three_tiles && v.vvvv != 0) return "#UD: VEX.vvvv is not 1111b";
    if ((operands == form::memory || operands == form::no_operand) && reg != 0) return "#UD: ModRM.reg is not 000b";
    if ((operands == form::no_operand || operands == form::one_tile) && rm != 0) return "#UD: ModRM.rm is not 000b";
    if (operands == form::sib && rm != 4) return "#UD: no SIB byte";
    if ((operands == form::sib || operands == form::one_tile || operands == form::three_tiles) && v.r) return "#UD: a tile register above 7 in ModRM.reg";
    if (operands == form::three_tiles && v.b) return "#UD: a tile register above 7 in ModRM.rm";
    if (operands == form::three_tiles && v.vvvv > 7) return "#UD: a tile register above 7 in VEX.vvvv";
    return nullptr;
}

int32_t read_i32(const uint8_t *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

// ModRM's memory forms of 64-bit mode. p is behind the ModRM byte; returns where the operand ends.
const uint8_t *decode_memory(const uint8_t *p, const vex &v, uint8_t modrm, instruction *out) {
    const uint8_t mod = modrm >> 6;
    uint8_t base = modrm & 7;
    const bool has_sib = base == 4;
    out->index = NO_REGISTER;
    out->shift = 0;
    out->displacement = 0;
    if (has_sib) {
        const uint8_t sib = *p++, index = (uint8_t)((sib >> 3 & 7) + 8 * v.x);
        if (index != 4) out->index = (int8_t)index; // RSP cannot be an index; R12 can
        out->shift = sib >> 6;
        base = sib & 7;
    }
    out->base = (int8_t)(base + 8 * v.b);
    if (mod == 0 && base == 5) { // RBP and R13 always have a displacement: without one it means 32 bits and no base
        out->base = has_sib ? NO_REGISTER : RIP;
        out->displacement = read_i32(p);
        return p + 4;
    }
    if (mod == 1) out->displacement = (int8_t)*p++;
    if (mod == 2) out->displacement = read_i32(p), p += 4;
    return p;
}

} // namespace

const char *name(op what) {
    static const char *const names[] = {"LDTILECFG", "STTILECFG", "TILERELEASE", "TILEZERO", "TILELOADD", "TILELOADDT1",
                                        "TILESTORED", "TDPBSSD", "TDPBSUD", "TDPBUSD", "TDPBUUD", "TDPBF16PS"};
    return names[(int)what];
}

decoded decode(const uint8_t *code, instruction *out, const char **why) {
    const uint8_t *p = code;
    bool address32 = false, segment = false;
    *why = nullptr;
    for (;; p++) { // the segment prefixes of ES, CS, SS and DS mean nothing; those that make a VEX prefix #UD (66 F2 F3 F0 REX) end up as `other`
        if (*p == 0x67) address32 = true;
        else if (*p == 0x64 || *p == 0x65) segment = true;
        else if (*p != 0x26 && *p != 0x2E && *p != 0x36 && *p != 0x3E) break;
    }
    if (p[0] != 0xC4 || (p[1] & 0x1F) != 2 || !is_opcode(p[3])) return decoded::other;
    const vex v = {!(p[1] & 0x80), !(p[1] & 0x40), !(p[1] & 0x20), (p[2] & 0x80) != 0, (p[2] & 4) != 0, (uint8_t)(~p[2] >> 3 & 15), (uint8_t)(p[2] & 3)};
    const uint8_t modrm = p[4];
    const bool is_memory = modrm < 0xC0;
    const row *r = find(p[3], v.pp, is_memory);
    if (!r) return decoded::other;
    out->what = r->what;
    *why = undefined_fields(r->operands, v, modrm);
    if (*why) return decoded::undefined;
    if (is_memory && (address32 || segment)) {
        *why = address32 ? "an address-size prefix" : "an FS or GS prefix";
        return decoded::unsupported;
    }
    out->tmm = modrm >> 3 & 7;
    out->tmm2 = modrm & 7;
    out->tmm3 = v.vvvv & 7;
    p += 5;
    if (is_memory) p = decode_memory(p, v, modrm, out);
    out->n_bytes = (uint8_t)(p - code);
    return decoded::valid;
}

} // namespace amx_emu
