// test-amx.cpp - the AMX emulator (amx-emu.h): every form of every instruction against plain C++ written here from the Intel SDM, its faults, its speed, and where
// the CPU has AMX the same random programs on silicon.
#include <float.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

#if defined(__x86_64__) && defined(__linux__)

#include "../sq-cpu.h"
#include "amx-code.h"
#include "amx-emu.h"

using namespace amx_code;

namespace {

std::mt19937 rng(1);
int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); }

void fill(void *p, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) ((uint8_t *)p)[i] = (uint8_t)pick(0, 255);
}

// ---- addressing forms ----

// A stack may lie here for a moment, when RSP is a base: signal frames then go below the middle.
constexpr size_t ARENA = 1 << 20;
alignas(64) uint8_t arena[ARENA];
uint8_t *const middle = arena + ARENA / 2;
uint8_t *low; // memory that a displacement of 32 bits reaches alone

extern "C" {
uint64_t amx_test_base, amx_test_index;
}

// xchg with memory at RIP + displacement gives any register a value for one instruction, RSP and RBP included, and needs no other register.
#define WITH_REGISTERS(BASE, INDEX, CODE) \
    __asm__ volatile("xchgq %%" BASE ", amx_test_base(%%rip)\n\txchgq %%" INDEX ", amx_test_index(%%rip)\n\t" CODE "\n\t" \
                     "xchgq %%" INDEX ", amx_test_index(%%rip)\n\txchgq %%" BASE ", amx_test_base(%%rip)" ::: "memory")

// A form of TILELOADD, TILELOADDT1 and TILESTORED: base + displacement is the first row, index * scale the stride. Forms without an index have stride 0.
struct form {
    const char *text;
    void (*load)(), (*load_t1)(), (*store)(); // of tmm5
    bool has_base, has_index;
    int scale, displacement;
};

#define FORM(BASE, INDEX, OPERAND, HAS_BASE, HAS_INDEX, SCALE, DISPLACEMENT) \
    {OPERAND, [] { WITH_REGISTERS(BASE, INDEX, "tileloadd " OPERAND ", %%tmm5"); }, [] { WITH_REGISTERS(BASE, INDEX, "tileloaddt1 " OPERAND ", %%tmm5"); }, \
     [] { WITH_REGISTERS(BASE, INDEX, "tilestored %%tmm5, " OPERAND); }, HAS_BASE, HAS_INDEX, SCALE, DISPLACEMENT}
#define BASED(BASE, INDEX) \
    FORM(BASE, INDEX, "(%%" BASE ",%%" INDEX ",1)", true, true, 1, 0), FORM(BASE, INDEX, "-0x40(%%" BASE ",%%" INDEX ",2)", true, true, 2, -0x40), \
        FORM(BASE, INDEX, "0x1240(%%" BASE ",%%" INDEX ",4)", true, true, 4, 0x1240), FORM(BASE, INDEX, "(%%" BASE ")", true, false, 1, 0), \
        FORM(BASE, INDEX, "0x40(%%" BASE ")", true, false, 1, 0x40), FORM(BASE, INDEX, "-0x1240(%%" BASE ")", true, false, 1, -0x1240)
#define INDEXED(BASE, INDEX) \
    FORM(BASE, INDEX, "(%%" BASE ",%%" INDEX ",8)", true, true, 8, 0), FORM(BASE, INDEX, "0x20001000(,%%" INDEX ",1)", false, true, 1, 0x1000), \
        FORM(BASE, INDEX, "0x20001000(,%%" INDEX ",8)", false, true, 8, 0x1000)

constexpr uintptr_t LOW = 0x20000000;

const form FORMS[] = {
    BASED("rax", "rcx"),   BASED("rcx", "rdx"),   BASED("rdx", "rbx"),   BASED("rbx", "rbp"),   BASED("rsp", "rsi"),   BASED("rbp", "rdi"),
    BASED("rsi", "r8"),    BASED("rdi", "r9"),    BASED("r8", "r10"),    BASED("r9", "r11"),    BASED("r10", "r12"),   BASED("r11", "r13"),
    BASED("r12", "r14"),   BASED("r13", "r15"),   BASED("r14", "rax"),   BASED("r15", "rcx"),   INDEXED("rsi", "rax"), INDEXED("rsi", "rcx"),
    INDEXED("rsi", "rdx"), INDEXED("rsi", "rbx"), INDEXED("rsi", "rbp"), INDEXED("rdi", "rsi"), INDEXED("rsi", "rdi"), INDEXED("r13", "r8"),
    INDEXED("r12", "r9"),  INDEXED("rbp", "r10"), INDEXED("rsp", "r11"), INDEXED("rsp", "r12"), INDEXED("r12", "r13"), INDEXED("r13", "r14"),
    INDEXED("rbp", "r15"), FORM("rax", "rcx", "0x20001000", false, false, 1, 0x1000),
};

constexpr size_t N = 1024; // bytes of a tile

void test_form(const form &f) {
    uint8_t *const first = (f.has_base ? middle : low) + f.displacement;
    const ptrdiff_t stride = f.has_index ? 64 * f.scale : 0;
    alignas(64) uint8_t expected[N], got[N];
    for (int times = 0; times < 2; times++) {
        fill(first, 16 * 64 * 8);
        for (size_t r = 0; r < 16; r++) memcpy(expected + 64 * r, first + (ptrdiff_t)r * stride, 64);
        amx_test_base = (uint64_t)middle;
        amx_test_index = 64;
        ZERO[5]();
        (times == 0 ? f.load : f.load_t1)();
        STORE[5](got, 64);
        if (!CHECK(memcmp(got, expected, N) == 0)) printf("  load %s\n", f.text);
    }
    fill(expected, N);
    LOAD[5](expected, 64);
    f.store();
    const size_t r0 = stride ? 0 : 15; // without a stride all rows go to one place, the last one stays
    bool equal = true;
    for (size_t r = r0; r < 16; r++) equal = equal && memcmp(first + (ptrdiff_t)r * stride, expected + 64 * r, 64) == 0;
    if (!CHECK(equal)) printf("  store %s\n", f.text);
}

void test_forms() {
    low = (uint8_t *)mmap((void *)LOW, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    load_config(uniform(16, 64));
    for (const form &f : FORMS) {
        if (!f.has_base && low != (uint8_t *)LOW) continue; // a sanitizer's
        test_form(f);
    }
    if (low == (uint8_t *)LOW) munmap(low, 1 << 16);
    else SKIP("no memory below 2 GB: operands without a base");
}

// A negative stride, an odd one, and rows of an odd number of bytes, for each register.
void test_strides() {
    for (ptrdiff_t stride : {-64, 37, -101, 1, 4096}) {
        const config c = uniform((uint8_t)pick(1, 16), (uint16_t)pick(1, 64));
        load_config(c);
        for (size_t tmm = 0; tmm < 8; tmm++) {
            std::vector<uint8_t> got(ARENA, 77), expected(ARENA, 77);
            fill(middle - 8192, 1 << 17);
            (tmm % 2 ? LOAD : LOAD_T1)[tmm](middle, stride);
            STORE[tmm](got.data() + ARENA / 2, 67);
            for (size_t r = 0; r < c.rows[0]; r++) memcpy(expected.data() + ARENA / 2 + 67 * r, middle + (ptrdiff_t)r * stride, c.row_bytes[0]);
            CHECK(got == expected);
        }
    }
}

// ---- configuration ----

alignas(64) config file_config, file_out; // reached by RIP

#define CONFIG_FORM(BASE) \
    [] { WITH_REGISTERS(BASE, "r8", "tilezero %%tmm0\n\tldtilecfg 0x40(%%" BASE ")\n\tsttilecfg -0x1240(%%" BASE ")"); }, \
        [] { WITH_REGISTERS(BASE, "r8", "tilezero %%tmm0\n\tldtilecfg 0x38(%%" BASE ",%%r8,8)\n\tsttilecfg -0x1241(%%" BASE ",%%r8,1)"); }

// Behind TILEZERO, which traps everywhere, the emulator executes these on every machine; it takes less than 1 row for the configuration to be seen.
void test_config_forms() {
    static void (*const FORMS_OF_CONFIG[])() = {CONFIG_FORM("rax"), CONFIG_FORM("rcx"), CONFIG_FORM("rdx"), CONFIG_FORM("rbx"), CONFIG_FORM("rsp"), CONFIG_FORM("rbp"),
                                                CONFIG_FORM("rsi"), CONFIG_FORM("rdi"), CONFIG_FORM("r9"),  CONFIG_FORM("r10"), CONFIG_FORM("r11"), CONFIG_FORM("r12"),
                                                CONFIG_FORM("r13"), CONFIG_FORM("r14"), CONFIG_FORM("r15")};
    for (auto f : FORMS_OF_CONFIG) {
        load_config(uniform(3, 12));
        config c = uniform((uint8_t)pick(1, 16), (uint16_t)pick(1, 64)), got;
        c.start_row = (uint8_t)pick(0, 255);
        memcpy(middle + 0x40, &c, sizeof c);
        amx_test_base = (uint64_t)middle;
        amx_test_index = 1;
        f();
        memcpy(&got, middle - 0x1240, sizeof got);
        CHECK(memcmp(&got, &c, sizeof c) == 0);
    }
    file_config = uniform(7, 20);
    load_config(uniform(16, 64));
    __asm__ volatile("tilezero %%tmm0\n\tldtilecfg %1\n\tsttilecfg %0" : "=m"(file_out) : "m"(file_config));
    CHECK(memcmp(&file_config, &file_out, sizeof file_out) == 0);
    __asm__ volatile("tilezero %%tmm0\n\ttilerelease\n\tsttilecfg %0" : "=m"(file_out));
    CHECK(memcmp(&file_out, &(const config &)config(), sizeof file_out) == 0);
}

bool is_zero(const uint8_t *p, size_t n) { return std::all_of(p, p + n, [](uint8_t b) { return b == 0; }); }

// LDTILECFG clears all tiles, be the configuration the same; start_row spares the rows before it and is 0 after the instruction.
void test_config_effects() {
    alignas(64) uint8_t x[N], got[N];
    fill(x, N);
    config c = uniform(16, 64), seen;
    load_config(c);
    store_config(&seen); // at this point the CPU's own, where it has AMX
    CHECK(memcmp(&seen, &c, sizeof c) == 0);
    for (bool directly : {false, true}) {
        LOAD[2](x, 64);
        if (directly) __asm__ volatile("tilezero %%tmm0\n\tldtilecfg %0" ::"m"(c));
        else load_config(c);
        STORE[2](got, 64);
        CHECK(is_zero(got, N));
    }
    c.start_row = 5;
    load_config(c);
    LOAD[2](x, 64);
    STORE[2](got, 64);
    CHECK(is_zero(got, 5 * 64) && memcmp(got + 5 * 64, x + 5 * 64, N - 5 * 64) == 0);
    load_config(c);
    memset(got, 77, N);
    STORE[2](got, 64);
    CHECK(std::count(got, got + 5 * 64, 77) == 5 * 64 && is_zero(got + 5 * 64, N - 5 * 64));
    __asm__ volatile("tilezero %%tmm0\n\tsttilecfg %0" : "=m"(file_out));
    CHECK_EQ(file_out.start_row, 0);
}

// ---- products ----

// Tiles c: m x n sums, x: m x k groups of four bytes, w: k x n groups, each row 64 bytes apart.
struct operands {
    size_t m, n, k;
    alignas(64) uint8_t c[N], x[N], w[N];
};

int byte_of(uint8_t b, bool is_signed) { return is_signed ? (int8_t)b : b; }

void expected_integers(product_kind kind, operands &o) {
    const bool x_signed = kind == SSD || kind == SUD, w_signed = kind == SSD || kind == USD;
    for (size_t i = 0; i < o.m; i++)
        for (size_t n = 0; n < o.n; n++) {
            uint32_t sum;
            memcpy(&sum, o.c + 64 * i + 4 * n, 4);
            for (size_t j = 0; j < 4 * o.k; j++)
                sum += (uint32_t)(byte_of(o.x[64 * i + j], x_signed) * byte_of(o.w[64 * (j / 4) + 4 * n + j % 4], w_signed));
            memcpy(o.c + 64 * i + 4 * n, &sum, 4);
        }
}

float flushed(float x) { return fabsf(x) < FLT_MIN ? copysignf(0, x) : x; }
float bf16_at(const uint8_t *p) {
    const uint32_t bits = (uint32_t)(p[0] | p[1] << 8) << 16;
    float x;
    memcpy(&x, &bits, 4);
    return flushed(x);
}

void expected_floats(operands &o) {
    for (size_t i = 0; i < o.m; i++)
        for (size_t n = 0; n < o.n; n++) {
            float sum[2] = {0, 0}, before;
            for (size_t j = 0; j < o.k; j++)
                for (size_t half = 0; half < 2; half++)
                    sum[half] = flushed(fmaf(bf16_at(o.x + 64 * i + 4 * j + 2 * half), bf16_at(o.w + 64 * j + 4 * n + 2 * half), sum[half]));
            memcpy(&before, o.c + 64 * i + 4 * n, 4);
            before = flushed(flushed(before) + flushed(sum[0] + sum[1]));
            memcpy(o.c + 64 * i + 4 * n, &before, 4);
        }
}

// Random bytes; for BF16 numbers of every size, denormals, zeros, infinities and NaN, the last two rarely.
void fill_operand(product_kind kind, uint8_t *p, size_t size_of_number) {
    fill(p, N);
    for (size_t i = 0; kind == BF16 && i < N; i += size_of_number) {
        uint8_t *high = p + i + size_of_number - 2; // sign, 8 bits of exponent, 7 bits
        const int what = pick(0, 999), exponent = what == 0 ? 255 : what < 30 ? 0 : what < 60 ? pick(1, 254) : pick(110, 140);
        high[0] = (uint8_t)((high[0] & 0x7F) | exponent << 7);
        high[1] = (uint8_t)((high[1] & 0x80) | exponent >> 1);
        if (what == 0 && pick(0, 1)) memset(p + i, 0, size_of_number - 2), high[0] &= 0x80;
    }
}

void random_operands(product_kind kind, operands *o) {
    o->m = (size_t)pick(1, 16);
    o->n = (size_t)pick(1, 16);
    o->k = (size_t)pick(1, 16);
    fill_operand(kind, o->c, 4);
    fill_operand(kind, o->x, 2);
    fill_operand(kind, o->w, 2);
}

void configure_product(const operands &o, int c, int x, int w) {
    config cfg = uniform(1, 4);
    const size_t shapes[3][3] = {{(size_t)c, o.m, o.n}, {(size_t)x, o.m, o.k}, {(size_t)w, o.k, o.n}};
    for (auto &s : shapes) cfg.rows[s[0]] = (uint8_t)s[1], cfg.row_bytes[s[0]] = (uint16_t)(4 * s[2]);
    load_config(cfg);
}

// Equal in the m x n sums, and untouched beside them. Of NaN neither sign nor payload is compared.
bool same_sums(product_kind kind, const operands &o, const uint8_t *got) {
    for (size_t i = 0; i < N; i += 4) {
        float a, b;
        memcpy(&a, o.c + i, 4);
        memcpy(&b, got + i, 4);
        if (memcmp(&a, &b, 4) != 0 && !(kind == BF16 && a != a && b != b)) return false;
    }
    return true;
}

void test_product(product_kind kind, int c, int x, int w) {
    operands o;
    random_operands(kind, &o);
    configure_product(o, c, x, w);
    LOAD[c](o.c, 64);
    LOAD[x](o.x, 64);
    LOAD[w](o.w, 64);
    multiply(kind, c, x, w);
    alignas(64) uint8_t got[N];
    memcpy(got, o.c, N);
    STORE[c](got, 64);
    if (kind == BF16) expected_floats(o);
    else expected_integers(kind, o);
    if (!CHECK(same_sums(kind, o, got))) printf("  kind %d of tiles %d %d %d, %zu x %zu x %zu\n", kind, c, x, w, o.m, o.n, o.k);
}

void test_products() {
    for (int kind = SSD; kind < N_PRODUCT_KINDS; kind++)
        for (int registers = 0; registers < 512; registers++) {
            const int c = registers / 64, x = registers / 8 % 8, w = registers % 8;
            if (c != x && c != w && x != w) test_product((product_kind)kind, c, x, w);
        }
}

// ---- faults ----

sigjmp_buf escape;
const char *fault_name, *fault_why; // null if none

void on_fault(void *, const char *instruction_name, const char *why) {
    fault_name = instruction_name;
    fault_why = why;
    siglongjmp(escape, 1);
}

// The fault's name and reason begin like this; "": there is none.
template <class Work> void expect_fault(const char *begins, Work work) {
    fault_name = fault_why = nullptr;
    amx_emu::catch_faults(on_fault, nullptr);
    if (sigsetjmp(escape, 1) == 0) work();
    amx_emu::catch_faults(nullptr, nullptr);
    const std::string fault = fault_name ? std::string(fault_name) + ": " + fault_why : "";
    if (!CHECK(*begins ? fault.compare(0, strlen(begins), begins) == 0 : fault.empty())) printf("  \"%s\" instead of \"%s\"\n", fault.c_str(), begins);
}

// A configuration with one field changed. LDTILECFG follows a trapping instruction: the emulator sees it on every machine.
template <class Change> void expect_bad_config(Change change) {
    config c = uniform(16, 64);
    load_config(c);
    change(c);
    expect_fault("LDTILECFG: #GP", [&] { __asm__ volatile("tilezero %%tmm0\n\tldtilecfg %0" ::"m"(c)); });
}

void test_bad_configs() {
    expect_bad_config([](config &c) { c.palette = 2; });
    expect_bad_config([](config &c) { c.palette = 255; });
    for (int i = 0; i < 14; i++) expect_bad_config([&](config &c) { c.reserved[i] = 1; });
    for (int i = 0; i < 8; i++) {
        expect_bad_config([&](config &c) { c.row_bytes[i] = 65; });
        expect_bad_config([&](config &c) { c.row_bytes[i] = 0x140; });
        expect_bad_config([&](config &c) { c.rows[i] = 17; });
        expect_bad_config([&](config &c) { c.rows[i] = 0; });
        expect_bad_config([&](config &c) { c.row_bytes[i] = 0; });
        expect_bad_config([&](config &c) { c.more_rows[i] = 1; });
        expect_bad_config([&](config &c) { c.more_row_bytes[i] = 0x100; });
    }
    config junk = uniform(200, 200); // palette 0 configures nothing, whatever follows
    junk.palette = 0;
    load_config(uniform(16, 64));
    expect_fault("TILEZERO: #UD: no tiles", [&] { __asm__ volatile("tilezero %%tmm0\n\tldtilecfg %0\n\ttilezero %%tmm0" ::"m"(junk)); });
}

// Each instruction that uses tiles, on tmm1, tmm2 and tmm3
void (*const USES[])() = {[] { ZERO[1](); }, [] { LOAD[1](middle, 64); }, [] { LOAD_T1[1](middle, 64); }, [] { STORE[1](middle, 64); },
                          [] { multiply(SSD, 1, 2, 3); }, [] { multiply(SUD, 1, 2, 3); }, [] { multiply(USD, 1, 2, 3); },
                          [] { multiply(UUD, 1, 2, 3); }, [] { multiply(BF16, 1, 2, 3); }};
const char *const USE_NAMES[] = {"TILEZERO", "TILELOADD", "TILELOADDT1", "TILESTORED", "TDPBSSD", "TDPBSUD", "TDPBUSD", "TDPBUUD", "TDPBF16PS"};
constexpr size_t FIRST_PRODUCT = 4, N_USES = 9;

void test_unconfigured() {
    for (size_t i = 0; i < N_USES; i++) {
        const std::string name = USE_NAMES[i];
        release();
        expect_fault((name + ": #UD: no tiles").c_str(), USES[i]);
        config c = uniform(16, 64);
        load_config(c);
        ZERO[0]();
        release(); // by the CPU itself, where it has AMX
        expect_fault((name + ": #UD: no tiles").c_str(), USES[i]);
        for (int tmm = 1; tmm <= (i < FIRST_PRODUCT ? 1 : 3); tmm++) {
            config without = c;
            without.rows[tmm] = 0;
            without.row_bytes[tmm] = 0;
            load_config(without);
            expect_fault((name + ": #UD: the tile").c_str(), USES[i]);
        }
    }
    config c = uniform(16, 64);
    c.start_row = 16;
    for (size_t i = 1; i < FIRST_PRODUCT; i++) {
        load_config(c);
        expect_fault((std::string(USE_NAMES[i]) + ": #UD: start_row").c_str(), USES[i]);
    }
}

void test_mismatched() {
    for (size_t i = FIRST_PRODUCT; i < N_USES; i++)
        for (int tmm = 1; tmm <= 3; tmm++)
            for (bool rows : {false, true}) {
                config c = uniform(16, 64);
                if (rows) c.rows[tmm] = 15;
                else c.row_bytes[tmm] = 60;
                load_config(c);
                if (rows && tmm == 3) expect_fault((std::string(USE_NAMES[i]) + ": #UD: columns").c_str(), USES[i]);
                else expect_fault((std::string(USE_NAMES[i]) + ": #UD: ").c_str(), USES[i]);
                c = uniform(16, 64);
                c.row_bytes[tmm] = 62;
                load_config(c);
                expect_fault((std::string(USE_NAMES[i]) + ": #UD: bytes").c_str(), USES[i]);
            }
}

#define BYTES(LIST) [] { __asm__ volatile(".byte " LIST ::"a"(middle), "d"(64L) : "memory"); }

// Encodings that the assembler does not make. Valid: C4 E2 7B 49 C0 TILEZERO tmm0; C4 E2 71 5E C2 TDPBUSD tmm0, tmm2, tmm1; C4 E2 7B 4B 04 10 TILELOADD tmm0, [RAX+RDX].
void test_encodings() {
    struct {
        const char *fault;
        void (*work)();
    } cases[] = {
        {"TILEZERO: #UD", BYTES("0xc4,0xe2,0x7b,0x49,0xc1")},       {"TILEZERO: #UD", BYTES("0xc4,0x62,0x7b,0x49,0xc0")},
        {"TILEZERO: #UD", BYTES("0xc4,0xe2,0x73,0x49,0xc0")},       {"TILEZERO: #UD", BYTES("0xc4,0xe2,0xfb,0x49,0xc0")},
        {"TILEZERO: #UD", BYTES("0xc4,0xe2,0x7f,0x49,0xc0")},       {"TDPBUSD: #UD", BYTES("0xc4,0xc2,0x71,0x5e,0xc2")},
        {"TDPBUSD: #UD", BYTES("0xc4,0x62,0x71,0x5e,0xc2")},        {"TDPBUSD: #UD", BYTES("0xc4,0xe2,0x31,0x5e,0xc2")},
        {"TDPBUSD: #UD: the same", BYTES("0xc4,0xe2,0x79,0x5e,0xc2")}, {"TDPBUSD: #UD: the same", BYTES("0xc4,0xe2,0x69,0x5e,0xc2")},
        {"TDPBUSD: #UD: the same", BYTES("0xc4,0xe2,0x71,0x5e,0xc0")}, {"TILERELEASE: #UD", BYTES("0xc4,0xe2,0x78,0x49,0xc8")},
        {"TILERELEASE: #UD", BYTES("0xc4,0xe2,0x70,0x49,0xc0")},    {"LDTILECFG: #UD", BYTES("0xc4,0xe2,0x78,0x49,0x08")},
        {"STTILECFG: #UD", BYTES("0xc4,0xe2,0x79,0x49,0x08")},      {"TILELOADD: #UD", BYTES("0xc4,0xe2,0x7b,0x4b,0x00")},
        {"TILELOADD: #UD", BYTES("0xc4,0xe2,0x7b,0x4b,0x05,0,0,0,0")}, {"TILELOADD: #UD", BYTES("0xc4,0x62,0x7b,0x4b,0x04,0x10")},
        {"TILELOADD: an address", BYTES("0x67,0xc4,0xe2,0x7b,0x4b,0x04,0x10")}, {"TILELOADD: an FS", BYTES("0x64,0xc4,0xe2,0x7b,0x4b,0x04,0x10")},
        {"TILESTORED: an FS", BYTES("0x65,0xc4,0xe2,0x7a,0x4b,0x04,0x10")},
        {"", BYTES("0xc4,0x82,0x7b,0x49,0xc0")},  // X and B name no register here
        {"", BYTES("0xc4,0xa2,0x71,0x5e,0xc2")},  {"", BYTES("0x3e,0xc4,0xe2,0x7b,0x4b,0x04,0x10")}, {"", BYTES("0x67,0xc4,0xe2,0x7b,0x49,0xc0")},
        {"", BYTES("0xc4,0x02,0x78,0x49,0xc0")}, // TILERELEASE
    };
    for (const auto &c : cases) {
        load_config(uniform(16, 64));
        ZERO[0]();
        expect_fault(c.fault, c.work);
    }
}

// What is not an AMX instruction belongs to whom it belonged before; without a hook a fault kills.
volatile sig_atomic_t n_others;
void on_other(int, siginfo_t *, void *) {
    n_others = n_others + 1;
    siglongjmp(escape, 1);
}

void test_others() {
    amx_emu::uninstall();
    struct sigaction a = {}, old;
    a.sa_sigaction = on_other;
    a.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &a, &old);
    CHECK(amx_emu::install());
    if (sigsetjmp(escape, 1) == 0) __asm__ volatile("ud2");
    CHECK_EQ(n_others, 1);
    amx_emu::uninstall();
    sigaction(SIGILL, &old, nullptr);
    CHECK(amx_emu::install());
    const pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        release();
        ZERO[0]();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGILL);
}

// ---- random programs, on silicon and on several threads ----

constexpr size_t N_SUMS = 3, N_FACTORS = 3; // tiles 0-2 are sums, 3-5 first factors, 6 and 7 second ones, in the order of a random permutation

// Runs a program that `seed` determines and stores all tiles into out [8][N].
void run_program(uint32_t seed, bool floats, uint8_t *out) {
    std::mt19937 random(seed);
    auto choose = [&](int n) { return (int)(random() % (uint32_t)n); };
    int role[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int i = 7; i > 0; i--) std::swap(role[i], role[choose(i + 1)]);
    const int m = 1 + choose(16), n = 1 + choose(16), k = 1 + choose(16);
    config c = uniform(1, 4);
    for (size_t i = 0; i < 8; i++) {
        c.rows[role[i]] = (uint8_t)(i < N_SUMS + N_FACTORS ? m : k);
        c.row_bytes[role[i]] = (uint16_t)(4 * (i < N_SUMS ? n : i < N_SUMS + N_FACTORS ? k : n));
    }
    load_config(c);
    alignas(64) uint8_t memory[2 * N];
    for (int step = 0; step < 40; step++) {
        const int i = choose(8), tmm = role[i], what = choose(10);
        if (what == 0) ZERO[tmm]();
        else if (what == 1) STORE[tmm](out + N * (size_t)tmm, 64);
        else if (what < 6) {
            for (uint8_t &b : memory) b = (uint8_t)random();
            for (size_t b = 1; floats && b < sizeof memory; b += 2) // mostly of moderate exponents
                if (choose(200) != 0) memory[b] = (uint8_t)((memory[b] & 0x80) | (0x38 + choose(12)));
            (what == 2 ? LOAD_T1 : LOAD)[tmm](memory, 64 + choose(64));
        } else {
            const int sums = role[choose(N_SUMS)], first = role[N_SUMS + (size_t)choose(N_FACTORS)], second = role[N_SUMS + N_FACTORS + (size_t)choose(2)];
            multiply(floats ? BF16 : (product_kind)choose(BF16), sums, first, second);
        }
    }
    for (size_t tmm = 0; tmm < 8; tmm++) STORE[tmm](out + N * tmm, 64);
    release();
}

constexpr size_t N_PROGRAMS = CHECK_SANITIZED ? 60 : 400, PROGRAM_BYTES = 8 * N;

void run_programs(uint8_t *out) {
    for (size_t i = 0; i < N_PROGRAMS; i++) run_program((uint32_t)i, i % 2 == 1, out + i * PROGRAM_BYTES);
}

// Equal bits; sums of TDPBF16PS may be different NaN.
bool same_tiles(const uint8_t *a, const uint8_t *b, bool floats) {
    for (size_t i = 0; i < PROGRAM_BYTES; i += 4) {
        float x, y;
        memcpy(&x, a + i, 4);
        memcpy(&y, b + i, 4);
        if (memcmp(&x, &y, 4) != 0 && !(floats && x != x && y != y)) return false;
    }
    return true;
}

// A child that asks for tile data runs the programs on silicon.
void test_silicon(const uint8_t *emulated) {
    if (!(sq::cpu_features() & sq::CPU_AMX)) return (void)SKIP("this CPU lacks AMX: nothing is compared with silicon");
    const size_t n_bytes = N_PROGRAMS * PROGRAM_BYTES;
    uint8_t *const native = (uint8_t *)mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    constexpr int REFUSED = 3, NOT_NATIVE = 4;
    const pid_t child = fork();
    if (child == 0) {
        amx_emu::uninstall();
        constexpr long REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18; // arch_prctl, as in sq-cpu.cpp
        if (syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) != 0) _exit(REFUSED);
        if (amx_emu::install()) _exit(NOT_NATIVE);
        run_programs(native);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == REFUSED) SKIP("the operating system refused AMX tile data");
    else if (CHECK_EQ(WEXITSTATUS(status), 0))
        for (size_t i = 0; i < N_PROGRAMS; i++)
            if (!CHECK(same_tiles(native + i * PROGRAM_BYTES, emulated + i * PROGRAM_BYTES, i % 2 == 1))) printf("  program %zu differs from silicon\n", i);
    munmap(native, n_bytes);
}

void test_threads(const std::vector<uint8_t> &expected) {
    std::vector<std::vector<uint8_t>> got(4, std::vector<uint8_t>(expected.size()));
    std::vector<std::thread> threads;
    for (auto &g : got) threads.emplace_back([&g] { run_programs(g.data()); });
    for (std::thread &t : threads) t.join();
    for (auto &g : got)
        for (size_t i = 0; i < N_PROGRAMS; i++) CHECK(same_tiles(g.data() + i * PROGRAM_BYTES, expected.data() + i * PROGRAM_BYTES, i % 2 == 1));
}

// ---- counts and speed ----

void test_counts() {
    struct seen {
        amx_emu::op what[10];
        size_t n = 0;
        size_t rows = 0, row_bytes = 0;
        const void *address = nullptr;
        ptrdiff_t stride = 0;
    } s;
    const amx_emu::observer collect = [](void *user, amx_emu::op what, const void *address, ptrdiff_t stride, size_t rows, size_t row_bytes) {
        seen &to = *(seen *)user;
        to.what[to.n++ % 10] = what;
        to.rows += rows;
        to.row_bytes += row_bytes;
        if (address) to.address = address, to.stride = stride;
    };
    amx_emu::thread_counts() = {};
    load_config(uniform(8, 32));
    amx_emu::observe(collect, &s);
    ZERO[0]();
    LOAD[1](middle, 64);
    LOAD_T1[2](middle, 96);
    multiply(UUD, 0, 1, 2);
    STORE[0](middle, 128);
    amx_emu::observe(nullptr, nullptr);
    const amx_emu::counts &n = amx_emu::thread_counts();
    CHECK(n.products == 1 && n.loads == 2 && n.stores == 1 && n.zeros == 1 && n.configs == 1);
    const amx_emu::op expected[] = {amx_emu::op::tileloadd, amx_emu::op::tileloaddt1, amx_emu::op::tdpbuud, amx_emu::op::tilestored};
    CHECK(s.n == 4 && std::equal(expected, expected + 4, s.what));
    CHECK(s.rows == 4 * 8 && s.row_bytes == 4 * 32 && s.address == middle && s.stride == 128);
}

double thread_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

template <class Work> double seconds_of(Work work) {
    const double start = thread_seconds();
    work();
    return thread_seconds() - start;
}

void skip_ud2(int, siginfo_t *, void *context) { ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; }

constexpr int TIMED = 200; // products or signals

// Products of full tiles with both of their loads: three instructions in two signals
void multiply_often() {
    for (int i = 0; i < TIMED; i++) {
        LOAD[1](middle, 64);
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm2\n\ttdpbusd %%tmm2, %%tmm1, %%tmm0" ::"r"(middle), "r"(64L) : "memory");
    }
}

// Signals that do nothing
void signal_often() {
    struct sigaction a = {}, emulator;
    a.sa_sigaction = skip_ud2;
    a.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &a, &emulator);
    for (int i = 0; i < TIMED; i++) __asm__ volatile("ud2");
    sigaction(SIGILL, &emulator, nullptr);
}

// 100,000 products a second, 10 us each, where a signal takes 3.5 us: what the emulator itself may take are the other 3 us, on any machine. The fastest of many short runs
// of both in turn, since other processes share the core.
void test_speed() {
    load_config(uniform(16, 64));
    ZERO[0]();
    double product = 1e9, signal = 1e9;
    for (int run = 0; run < (CHECK_SANITIZED ? 10 : 500); run++) {
        product = std::min(product, seconds_of(multiply_often) / TIMED);
        signal = std::min(signal, seconds_of(signal_often) / TIMED);
    }
    printf("%.0f tile products a second; %.2f us each, of which two signals of %.2f us\n", 1 / product, product * 1e6, signal * 1e6);
    if (CHECK_SANITIZED) SKIP("the emulator's speed: a sanitizer build");
    else CHECK(product - 2 * signal <= 3e-6);
}

} // namespace

int main() {
    if (!(sq::cpu_features() & sq::CPU_AVX512VNNI) || !amx_emu::install()) {
        SKIP("this CPU lacks AVX512-VNNI, which the AMX table needs");
        return check_summary("test-amx");
    }
    test_forms();
    test_strides();
    test_config_forms();
    test_config_effects();
    test_products();
    test_bad_configs();
    test_unconfigured();
    test_mismatched();
    test_encodings();
    test_others();
    std::vector<uint8_t> emulated(N_PROGRAMS * PROGRAM_BYTES);
    run_programs(emulated.data());
    test_silicon(emulated.data());
    test_threads(emulated);
    test_counts();
    test_speed();
    return check_summary("test-amx");
}

#else

int main() {
    SKIP("the AMX emulator is for x86-64 Linux");
    return check_summary("test-amx");
}

#endif
