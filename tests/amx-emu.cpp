// amx-emu.cpp - the state of a thread's tile registers, what each instruction does to it, and the signal handler.
//
// Sources: Intel SDM volume 1, chapter 18 (tiles, palettes, start_row) and volume 2, the pages of the instructions: operation and exceptions. Where these leave
// room, Emerald Rapids decides, which test-amx compares with: LDTILECFG of palette 0 ignores the other bytes; TILELOADD and TILESTORED with a start_row beyond the
// tile's rows are #UD, TILEZERO and TDP* ignore it.
//
// Two kinds of machines. Without AMX every instruction raises SIGILL. With AMX, in a process without permission for tile data (XFD is set), those that touch tile
// data do; LDTILECFG, STTILECFG and TILERELEASE do not, and act on the CPU's own configuration. Linux saves that in the signal frame and gives it back from there, so
// the handler finds it in the frame. It leaves a mark in its place, to notice that LDTILECFG has cleared the tiles since, be it with an equal configuration, or that
// TILERELEASE has: a configuration that no program loads, with a start_row but not one tile. With it tile instructions are #UD, which Linux turns into a signal
// in two thirds of the time that it takes for XFD's #NM. So on such a machine STTILECFG stores the mark once an instruction has been emulated, unless it follows one
// directly and is emulated itself.
//
// What is not emulated: a fault in the middle of TILELOADD leaves no start_row behind, since it is the handler that faults; and address-size, FS and GS prefixes are
// reported as faults.
#include "amx-emu.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <initializer_list>

#include "amx-products.h"

namespace amx_emu {
namespace {

// As LDTILECFG reads it and the XSAVE area has it; palette 0 means that nothing is configured.
struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[8], more_row_bytes[8];
    uint8_t rows[8], more_rows[8];
};
static_assert(sizeof(config) == 64, "SDM volume 1, table 18-4");

struct thread_state {
    config cfg;
    tile tiles[8];
    counts n;
    uint64_t signals;
};

// Initial-exec: reached without a call, which might allocate, so that a signal handler may use it.
__attribute__((tls_model("initial-exec"))) thread_local thread_state state;

constexpr config TAKEN = {1, 0xE5, {}, {}, {}, {}, {}}; // the mark in the place of a configuration, see above

observer the_observer;
void *observer_user;
void (*the_watcher)(const void *next);
fault_hook the_fault_hook;
void *fault_user;
struct sigaction before;  // of install
size_t tilecfg_offset;    // of the configuration in a frame's XSAVE area; 0: this CPU or kernel has none

// ---- what instructions do; each returns null or why it faults ----

void clear_tiles() { memset(state.tiles, 0, sizeof state.tiles); }

void release() {
    state.cfg = {};
    clear_tiles();
}

template <class T> bool all_zero(const T &bytes) {
    for (auto b : bytes)
        if (b != 0) return false;
    return true;
}

const char *why_invalid(const config &c) {
    if (c.palette > 1) return "#GP: palette above 1";
    if (c.palette == 0) return nullptr;
    if (!all_zero(c.reserved)) return "#GP: bytes 2 to 15 are not 0";
    if (!all_zero(c.more_row_bytes) || !all_zero(c.more_rows)) return "#GP: registers beyond tmm7 are not 0";
    for (int i = 0; i < 8; i++) {
        if (c.row_bytes[i] > 64) return "#GP: more than 64 bytes a row";
        if (c.rows[i] > 16) return "#GP: more than 16 rows";
        if ((c.rows[i] == 0) != (c.row_bytes[i] == 0)) return "#GP: rows without bytes, or bytes without rows";
    }
    return nullptr;
}

// A valid configuration clears all tiles.
void configure(const config &c) {
    release();
    if (c.palette != 0) state.cfg = c;
    state.n.configs++;
}

const char *load_config(const void *p) {
    config c;
    memcpy(&c, p, sizeof c);
    if (const char *why = why_invalid(c)) return why;
    configure(c);
    return nullptr;
}

const char *why_unusable(uint8_t tmm) {
    if (state.cfg.palette == 0) return "#UD: no tiles are configured";
    return state.cfg.rows[tmm] == 0 ? "#UD: the tile is not configured" : nullptr;
}

const char *zero(uint8_t tmm) {
    if (const char *why = why_unusable(tmm)) return why;
    state.tiles[tmm] = {};
    state.cfg.start_row = 0;
    state.n.zeros++;
    return nullptr;
}

// Loads or stores a tile from start_row on. Rows before it keep what they have; bytes and rows beyond the configured ones become 0 by a load.
const char *transfer(const instruction &i, uint8_t *memory, ptrdiff_t stride) {
    if (const char *why = why_unusable(i.tmm)) return why;
    const size_t rows = state.cfg.rows[i.tmm], n_bytes = state.cfg.row_bytes[i.tmm];
    if (state.cfg.start_row >= rows) return "#UD: start_row is beyond the tile's rows";
    if (the_observer) the_observer(observer_user, i.what, memory, stride, rows, n_bytes);
    for (size_t r = state.cfg.start_row; r < 16; r++) {
        uint8_t *row = state.tiles[i.tmm].row[r], *outside = memory + (ptrdiff_t)r * stride;
        if (i.what == op::tilestored) {
            if (r < rows) memcpy(outside, row, n_bytes);
            continue;
        }
        memset(row, 0, 64);
        if (r < rows) memcpy(row, outside, n_bytes);
    }
    state.cfg.start_row = 0;
    (i.what == op::tilestored ? state.n.stores : state.n.loads)++;
    return nullptr;
}

// Tile tmm has rows x columns sums, tmm2 rows x groups of 4 bytes, tmm3 groups x columns.
const char *why_no_product(const instruction &i) {
    const config &c = state.cfg;
    if (i.tmm == i.tmm2 || i.tmm == i.tmm3 || i.tmm2 == i.tmm3) return "#UD: the same tile twice";
    for (uint8_t tmm : {i.tmm, i.tmm2, i.tmm3}) {
        if (const char *why = why_unusable(tmm)) return why;
        if (c.row_bytes[tmm] % 4 != 0) return "#UD: bytes a row are no multiple of 4";
    }
    if (c.rows[i.tmm] != c.rows[i.tmm2]) return "#UD: result and first factor differ in rows";
    if (c.row_bytes[i.tmm] != c.row_bytes[i.tmm3]) return "#UD: result and second factor differ in columns";
    if (c.row_bytes[i.tmm2] / 4 != c.rows[i.tmm3]) return "#UD: columns of the first factor are not rows of the second";
    return nullptr;
}

const char *product(const instruction &i) {
    if (const char *why = why_no_product(i)) return why;
    const size_t rows = state.cfg.rows[i.tmm], n_bytes = state.cfg.row_bytes[i.tmm], n_groups = state.cfg.rows[i.tmm3];
    if (the_observer) the_observer(observer_user, i.what, nullptr, 0, rows, n_bytes);
    const tile &x = state.tiles[i.tmm2], &w = state.tiles[i.tmm3];
    const auto multiply = i.what == op::tdpbssd   ? multiply_bytes<true, true>
                          : i.what == op::tdpbsud ? multiply_bytes<true, false>
                          : i.what == op::tdpbusd ? multiply_bytes<false, true>
                          : i.what == op::tdpbuud ? multiply_bytes<false, false>
                                                  : multiply_bf16;
    tile &out = state.tiles[i.tmm];
    multiply(&out, x, w, rows, n_groups);
    for (size_t r = 0; r < rows; r++) memset(out.row[r] + n_bytes, 0, 64 - n_bytes); // TDPBF16PS: infinity times 0 beside the columns
    state.cfg.start_row = 0;
    state.n.products++;
    return nullptr;
}

// ---- operands ----

// RIP is that of the next instruction.
uint64_t general_register(const ucontext_t *u, int8_t number, uint64_t rip) {
    static const int places[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                 REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    if (number == NO_REGISTER) return 0;
    return number == RIP ? rip : (uint64_t)u->uc_mcontext.gregs[places[number]];
}

const char *execute(const instruction &i, const ucontext_t *u) {
    const bool has_memory = i.what <= op::sttilecfg || (i.what >= op::tileloadd && i.what <= op::tilestored);
    uint64_t base = 0, index = 0;
    if (has_memory) {
        base = general_register(u, i.base, (uint64_t)u->uc_mcontext.gregs[REG_RIP] + i.n_bytes) + (uint64_t)(int64_t)i.displacement;
        index = general_register(u, i.index, 0) << i.shift;
    }
    switch (i.what) {
    case op::ldtilecfg: return load_config((const void *)(base + index));
    case op::sttilecfg: memcpy((void *)(base + index), &state.cfg, sizeof state.cfg); return nullptr;
    case op::tilerelease: release(), state.n.releases++; return nullptr;
    case op::tilezero: return zero(i.tmm);
    case op::tileloadd:
    case op::tileloaddt1:
    case op::tilestored: return transfer(i, (uint8_t *)base, (ptrdiff_t)index);
    default: return product(i);
    }
}

// ---- the CPU's own configuration, in the signal frame ----

// Linux, arch/x86/include/uapi/asm/sigcontext.h: fpregs points to an XSAVE area in standard form if sw_reserved (offset 464) begins with FP_XSTATE_MAGIC1 and then has
// the saved components at offset 472; the header's XSTATE_BV at 512 tells which of them are not in their initial state.
constexpr size_t SW_RESERVED = 464, SW_FEATURES = 472, XSTATE_BV = 512;
constexpr uint32_t MAGIC1 = 0x46505853;
constexpr uint64_t TILECFG_BIT = 1u << 17;

template <class T> T read(const uint8_t *p) {
    T x;
    memcpy(&x, p, sizeof x);
    return x;
}

// The frame's XSAVE area, or null if it has no configuration.
uint8_t *saved_area(const ucontext_t *u) {
    uint8_t *area = (uint8_t *)u->uc_mcontext.fpregs;
    const bool has_config = tilecfg_offset != 0 && area && read<uint32_t>(area + SW_RESERVED) == MAGIC1 && (read<uint64_t>(area + SW_FEATURES) & TILECFG_BIT);
    return has_config ? area : nullptr;
}

// Catches up with what LDTILECFG and TILERELEASE have done natively since the last signal.
void take_configuration(const uint8_t *area) {
    config c = {};
    if (read<uint64_t>(area + XSTATE_BV) & TILECFG_BIT) memcpy(&c, area + tilecfg_offset, sizeof c);
    if (c.palette == 0) return release();
    if (memcmp(&c, &TAKEN, sizeof c) != 0) configure(c);
}

void leave_mark(uint8_t *area) {
    uint64_t in_use = read<uint64_t>(area + XSTATE_BV);
    const bool configured = state.cfg.palette != 0;
    in_use = configured ? in_use | TILECFG_BIT : in_use & ~TILECFG_BIT;
    memcpy(area + XSTATE_BV, &in_use, sizeof in_use);
    if (configured) memcpy(area + tilecfg_offset, &TAKEN, sizeof TAKEN);
}

// ---- the handler ----

void print(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return; // nobody is left to tell
}

void report_fault(op what, const char *why) {
    if (the_fault_hook) the_fault_hook(fault_user, name(what), why);
    print("amx-emu: ");
    print(name(what));
    print(": ");
    print(why);
    print("\n");
    signal(SIGILL, SIG_DFL); // the instruction raises it again
}

// Not ours: what would have happened without the emulator.
void pass_on(int number, siginfo_t *info, void *context) {
    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) before.sa_handler(number);
    else signal(SIGILL, SIG_DFL);
}

// Runs the instruction at RIP and all that follow it directly, since a signal costs more than most of them. Returns why the last one, *i, faults, or null.
const char *run(ucontext_t *u, instruction *i) {
    greg_t &rip = u->uc_mcontext.gregs[REG_RIP];
    const char *why;
    while (decode((const uint8_t *)rip, i, &why) == decoded::valid) {
        why = execute(*i, u);
        if (why) break;
        rip += i->n_bytes;
        if (the_watcher) the_watcher((const void *)rip);
    }
    return why;
}

void on_sigill(int number, siginfo_t *info, void *context) {
    ucontext_t *u = (ucontext_t *)context;
    instruction i;
    const char *why;
    if (decode((const uint8_t *)u->uc_mcontext.gregs[REG_RIP], &i, &why) == decoded::other) return pass_on(number, info, context);
    uint8_t *area = saved_area(u);
    if (area) take_configuration(area);
    state.signals++;
    why = run(u, &i);
    if (area) leave_mark(area);
    if (why) report_fault(i.what, why);
}

bool may_use_tile_data() {
    constexpr long GET_XCOMP_PERM = 0x1022; // arch_prctl; Linux, Documentation/arch/x86/xstate.rst
    constexpr uint64_t TILE_DATA_BIT = 1u << 18;
    uint64_t granted = 0;
    return syscall(SYS_arch_prctl, GET_XCOMP_PERM, &granted) == 0 && (granted & TILE_DATA_BIT);
}

bool can_multiply() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"); }

} // namespace

bool install() {
    if (may_use_tile_data() || !can_multiply()) return false;
    uint32_t size = 0, offset = 0, c, d;
    if (__get_cpuid_count(0xD, 17, &size, &offset, &c, &d) && size == sizeof(config)) tilecfg_offset = offset; // XSAVE component 17, TILECFG
    struct sigaction a = {};
    a.sa_sigaction = on_sigill;
    a.sa_flags = SA_SIGINFO | SA_NODEFER; // a hook may leave by longjmp
    return sigaction(SIGILL, &a, &before) == 0;
}

void uninstall() { sigaction(SIGILL, &before, nullptr); }

counts &thread_counts() { return state.n; }
uint64_t &thread_signals() { return state.signals; }

void observe(observer o, void *user) {
    the_observer = o;
    observer_user = user;
}

void watch_next(void (*watcher)(const void *next)) { the_watcher = watcher; }

void catch_faults(fault_hook h, void *user) {
    the_fault_hook = h;
    fault_user = user;
}

} // namespace amx_emu

#endif
