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

void load_and_embed(const std::string &bytes, std::vector<float> *out) {
    sq_model *m = nullptr;
    sq_ctx *c = nullptr;
    sq_model_params mp{};
    mp.size = sizeof mp;
    sq_ctx_params cp{};
    cp.size = sizeof cp;
    cp.n_threads = 1; // other threads are not seen
    text_list list;
    list.add("the dog sleeps");
    list.add("A cat sleeps, and so do all of the others in this rather long sentence.");
    const sq_texts texts = list.texts(false);
    size_t n = 0;
    if (sq_model_load_memory(bytes.data(), bytes.size(), &mp, &m, nullptr, 0) == SQ_OK && sq_ctx_create(m, &cp, &c, nullptr, 0) == SQ_OK)
        sq_embed(c, &texts, nullptr, out->data(), out->size(), &n);
    out->resize(n);
    sq_ctx_free(c);
    sq_model_free(m);
}

// What the library executes with SQ_ISA = isa; *vectors receives its answer.
single_step::counts count(const char *isa, const std::string &bytes, std::vector<float> *vectors) {
    setenv("SQ_ISA", isa, 1);
    vectors->assign(1024, 0);
    const single_step::counts n = single_step::run([&] { load_and_embed(bytes, vectors); });
    printf("%-11s", isa);
    static const char *const names[] = {"other", "VEX", "mask", "EVEX", "AMX"};
    for (int k = 0; k < single_step::N_KINDS; k++) printf("  %s %llu + %llu", names[k], (unsigned long long)n.n[0][k], (unsigned long long)n.n[1][k]);
    printf("  (in the program + elsewhere)\n");
    return n;
}

bool can_run(const char *isa) {
    const sq::kernels *k = nullptr;
    setenv("SQ_ISA", isa, 1);
    return sq::choose_kernels(nullptr, &k, nullptr) == SQ_OK;
}

void expect_none(const single_step::counts &n, single_step::kind k) {
    if (!CHECK_EQ(n.n[0][k], 0)) printf("  the first one at offset 0x%zx of the program\n", (size_t)((const char *)n.first[k] - &__executable_start));
}

void test_isas(sq::quant_mode mode) {
    const std::string bytes = converted("tests/golden/bert-64", mode);
    std::vector<float> expected, got;
    for (const char *isa : {"plain", "avx2", "avxvnni", "avx512vnni"}) {
        if (!can_run(isa)) {
            SKIP((std::string("this CPU cannot run ") + isa).c_str());
            continue;
        }
        const bool is_plain = strcmp(isa, "plain") == 0;
        const single_step::counts n = count(isa, bytes, is_plain ? &expected : &got);
        CHECK(!expected.empty() && (is_plain || got == expected));
        if (strcmp(isa, "avx512vnni") == 0) {
            CHECK(n.n[0][single_step::EVEX] > 1000);
            continue;
        }
        for (single_step::kind k : {single_step::EVEX, single_step::MASK, single_step::AMX}) expect_none(n, k);
        if (!is_plain) CHECK(n.n[0][single_step::VEX] > 1000);
#ifndef __AVX__ // by the builder's own flags
        else expect_none(n, single_step::VEX);
#endif
    }
}

// ---- the counter itself ----

void known_code() {
    __asm__ volatile("addps %%xmm0, %%xmm0\n\tnop\n\t.byte 0x66, 0x90" ::: "xmm0");
}

void known_vectors() {
    __asm__ volatile("vaddps %%ymm0, %%ymm0, %%ymm0\n\tvpaddd %%zmm16, %%zmm16, %%zmm16\n\tkmovw %%k1, %%k1\n\tvpdpbusd (%0), %%zmm0, %%zmm0" ::"r"(known_code) : "memory", "xmm0");
}

void test_counts() {
    const auto nothing = single_step::run([] {}), plain = single_step::run([] { known_code(); });
    CHECK_EQ(plain.n[0][single_step::OTHER] - nothing.n[0][single_step::OTHER], 3u);
    CHECK_EQ(plain.n[0][single_step::VEX] + plain.n[0][single_step::EVEX], 0u);
    if (!can_run("avx512vnni")) return;
    const auto vectors = single_step::run([] { known_vectors(); });
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
    for (sq::quant_mode mode : {sq::quant_mode::static_scales, sq::quant_mode::dynamic_scales, sq::quant_mode::none}) test_isas(mode);
    test_counts();
    test_counts_of_amx();
    return check_summary("test-no-avx512");
}

#else

int main() {
    SKIP("executing single instructions is for x86-64 Linux, and not for sanitizer builds");
    return check_summary("test-no-avx512");
}

#endif
