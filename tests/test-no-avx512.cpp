// test-no-avx512.cpp - a lowered instruction set is obeyed: loading a model, tokenizing and embedding are executed one instruction at a time, and none of them in
// this program's own text, which holds the library, is of AVX-512 or AMX; for the plain table nor of AVX. (libc picks its own copies of memcpy and the like.)
//
// That the same check fails where AVX-512 and AMX are executed is part of the test.
#include "models.h"

#if defined(__x86_64__) && defined(__linux__) && !CHECK_SANITIZED

#include "amx-code.h"
#include "amx-emu.h"
#include "single-step.h"
#include "texts.h"

extern "C" const char __executable_start; // by the linker

namespace {

void print(const char *what, const single_step::counts &n) {
    static const char *const names[] = {"other", "VEX", "mask", "EVEX", "AMX"};
    printf("%-22s", what);
    for (int k = 0; k < single_step::N_KINDS; k++) printf("  %s %llu + %llu", names[k], (unsigned long long)n.n[0][k], (unsigned long long)n.n[1][k]);
    printf("  (in the program + elsewhere)\n");
}

bool can_run(const char *isa) {
    const sq::kernels *k = nullptr;
    setenv("SQ_ISA", isa, 1);
    if (sq::choose_kernels(nullptr, &k, nullptr, nullptr) == SQ_OK) return true;
    SKIP((std::string("this CPU cannot run ") + isa).c_str());
    return false;
}

void expect_none(const single_step::counts &n, single_step::kind k) {
    if (!CHECK_EQ(n.n[0][k], 0u)) printf("  the first one at offset 0x%zx of the program\n", (size_t)((const char *)n.first[k] - &__executable_start));
}

void expect_no_avx512(const single_step::counts &n) {
    for (single_step::kind k : {single_step::EVEX, single_step::MASK, single_step::AMX}) expect_none(n, k);
}

// One thread, since others are not seen
single_step::counts step_embedding(const char *what, const model_handle &m) {
    const ctx_handle c = context(m);
    text_list list;
    list.add("the dog");
    const sq_texts texts = list.texts(false);
    std::vector<float> out(m->arch.width);
    size_t n_floats = 0;
    int status = SQ_E_ARG;
    const single_step::counts n = single_step::run([&] { status = sq_embed(c.get(), &texts, nullptr, out.data(), out.size(), &n_floats); });
    CHECK_EQ(status, SQ_OK);
    print(what, n);
    return n;
}

// Without the checksums, which take longer than all else.
void test_loading(const std::string &bytes) {
    sq_model_params p{};
    p.size = sizeof p;
    p.copy = 1;
    sq_model *m = nullptr;
    int status = SQ_E_ARG;
    const single_step::counts n = single_step::run([&] { status = sq_model_load_memory(bytes.data(), bytes.size(), &p, &m, nullptr, 0); });
    CHECK_EQ(status, SQ_OK);
    sq_model_free(m);
    print("load", n);
    expect_no_avx512(n);
}

void test_avx2() {
    if (!can_run("avx2")) return;
    for (sq::quant_mode mode : ALL_MODES) {
        const std::string bytes = converted("tests/golden/bert-64", mode);
        if (mode == sq::quant_mode::static_scales) test_loading(bytes);
        const single_step::counts n = step_embedding((std::string("avx2 ") + mode_name(mode)).c_str(), load(bytes));
        expect_no_avx512(n);
        CHECK(n.n[0][single_step::VEX] > 1000);
    }
}

void test_others() {
    const std::string bytes = converted("tests/golden/bert-64", sq::quant_mode::static_scales);
    if (can_run("avxvnni")) {
        const single_step::counts n = step_embedding("avxvnni", load(bytes));
        expect_no_avx512(n);
        CHECK(n.n[0][single_step::VEX] > 1000);
    }
    if (can_run("avx512vnni")) CHECK(step_embedding("avx512vnni", load(bytes)).n[0][single_step::EVEX] > 1000);
}

// One token: plain takes a million instructions for it.
void test_plain() {
    if (!can_run("plain")) return;
    const model_handle m = load(converted("tests/golden/bert-40", sq::quant_mode::static_scales));
    const ctx_handle c = context(m);
    batch_builder b;
    golden_row r;
    r.ids = r.types = {1};
    r.types[0] = 0;
    b.add(r);
    const single_step::counts n = single_step::run([&] { run(c, b, SQ_POOLED, m->arch.width); });
    print("plain", n);
    CHECK(n.n[0][single_step::OTHER] > 100000);
    expect_no_avx512(n);
#ifndef __AVX__ // by the builder's own flags
    expect_none(n, single_step::VEX);
#endif
}

// ---- the counter itself ----

// Not inlined, so that two stretches of code differ in themselves only.
__attribute__((noinline)) single_step::counts step(void (*code)()) { return single_step::run(code); }

void test_counts() {
    const auto one = step([] { __asm__ volatile("nop"); });
    const auto four = step([] { __asm__ volatile("nop\n\taddps %%xmm0, %%xmm0\n\tnop\n\t.byte 0x66, 0x90" ::: "xmm0"); });
    CHECK_EQ(four.n[0][single_step::OTHER] - one.n[0][single_step::OTHER], 3u);
    CHECK_EQ(four.n[0][single_step::VEX] + four.n[0][single_step::EVEX], 0u);
    if (!can_run("avx512vnni")) return;
    const auto vectors = single_step::run([] {
        __asm__ volatile("vaddps %%ymm0, %%ymm0, %%ymm0\n\tvpaddd %%zmm16, %%zmm16, %%zmm16\n\tkmovw %%k1, %%k1\n\tvpdpbusd %%zmm16, %%zmm0, %%zmm0" ::: "xmm0");
    });
    CHECK_EQ(vectors.n[0][single_step::VEX], 1u);
    CHECK_EQ(vectors.n[0][single_step::MASK], 1u);
    CHECK_EQ(vectors.n[0][single_step::EVEX], 2u);
}

// With emulation each instruction is seen once, be it executed by the CPU, or by the emulator alone or directly behind another.
void test_counts_of_amx() {
    if (!can_run("avx512vnni") || !amx_emu::install()) return (void)SKIP("AMX instructions are not counted: no AVX512-VNNI");
    amx_emu::watch_next(single_step::see);
    alignas(64) static uint8_t memory[1024];
    const amx_code::config c = amx_code::uniform(16, 64);
    const auto nothing = single_step::run([] {}), n = single_step::run([&] {
        __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm0\n\ttileloadd (%1,%2,1), %%tmm1\n\tnop\n\tvpaddd %%zmm16, %%zmm16, %%zmm16\n\t"
                         "tileloadd (%1,%2,1), %%tmm2\n\ttdpbusd %%tmm2, %%tmm1, %%tmm0\n\tvpaddd %%ymm0, %%ymm0, %%ymm0\n\ttilestored %%tmm0, (%1,%2,1)\n\ttilerelease"
                         ::"m"(c), "r"(memory), "r"(64L) : "memory", "xmm0");
    });
    amx_emu::watch_next(nullptr);
    amx_emu::uninstall();
    CHECK_EQ(n.n[0][single_step::AMX], 7u);
    CHECK_EQ(n.n[0][single_step::EVEX], 1u);
    CHECK_EQ(n.n[0][single_step::VEX], 1u);
    CHECK(n.n[0][single_step::OTHER] > nothing.n[0][single_step::OTHER] && n.n[0][single_step::OTHER] < nothing.n[0][single_step::OTHER] + 10);
}

} // namespace

int main() {
    test_counts();
    test_counts_of_amx();
    test_avx2();
    test_others();
    test_plain();
    return check_summary("test-no-avx512");
}

#else

int main() {
    SKIP("executing single instructions is for x86-64 Linux, and not for sanitizer builds");
    return check_summary("test-no-avx512");
}

#endif
