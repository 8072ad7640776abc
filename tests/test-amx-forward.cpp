// test-amx-forward.cpp - whole forward passes on the AMX table, its tile instructions emulated (amx-emu.h), give the plain table's bits. Needs AVX512-VNNI only.
//
// Nothing here may ask for permission to use tile data, which would end emulation on a CPU with AMX: SQ_ISA keeps the library from looking at the AMX table, and
// the tests set the table past that choice.
#include "models.h"

#if defined(__x86_64__) && defined(__linux__)

#include "amx-emu.h"
#include "texts.h"

namespace {

void use_amx(const model_handle &m) { m->kernels = sq::kernels_amx(); }

// ---- tiny models ----

// All rows in one batch, and each in its own, while plans are tried.
void test_tiny(const std::string &checkpoint, sq::quant_mode mode) {
    const std::string bytes = converted(checkpoint, mode);
    const model_handle plain = load(bytes, "plain"), amx = load(bytes);
    if (!plain || !amx) return;
    use_amx(amx);
    const uint32_t D = plain->arch.width;
    std::vector<batch_builder> batches(1);
    for (const golden_row &r : read_golden(checkpoint + "/expected.jsonl")) {
        batches[0].add(r);
        batches.emplace_back();
        batches.back().add(r);
    }
    const ctx_handle reference = context(plain);
    std::vector<std::vector<float>> expected;
    for (const batch_builder &b : batches) expected.push_back(run(reference, b, SQ_HIDDEN, D));
    for (uint32_t n_threads = 1; n_threads <= 4; n_threads++) {
        const ctx_handle c = context(amx, n_threads);
        for (int pass = 0; pass < 3; pass++)
            for (size_t i = 0; i < batches.size(); i++) CHECK(run(c, batches[i], SQ_HIDDEN, D) == expected[i]);
    }
}

// ---- a real model ----

const char *const SENTENCES[] = {"The quick brown fox jumps over the lazy dog.", "",
                                 "Matrix products of small integers are exact, and so every instruction set gives the same bits, layer by layer, token by token.",
                                 "Wie sp\xC3\xA4t ist es?", "one"};

std::vector<float> embed(const ctx_handle &c, uint32_t width) {
    text_list list;
    for (const char *s : SENTENCES) list.add(s);
    const sq_texts texts = list.texts(false);
    std::vector<float> out(texts.n_texts * width);
    size_t n = 0;
    CHECK_EQ(sq_embed(c.get(), &texts, nullptr, out.data(), out.size(), &n), SQ_OK);
    CHECK_EQ(n, out.size());
    return out;
}

void test_minilm(const std::string &checkpoint, sq::quant_mode mode) {
    const std::string bytes = converted(checkpoint, mode);
    const model_handle plain = load(bytes, "plain"), vnni = load(bytes), amx = load(bytes);
    if (!plain || !vnni || !amx) return;
    CHECK_EQ(sq_isa_string(vnni.get()), "avx512vnni");
    use_amx(amx);
    const std::vector<float> expected = embed(context(plain, 2), plain->arch.width);
    CHECK(embed(context(vnni, 2), plain->arch.width) == expected);
    for (uint32_t n_threads : {1u, 2u}) CHECK(embed(context(amx, n_threads), plain->arch.width) == expected);
}

} // namespace

int main() {
    setenv("SQ_ISA", "avx512vnni", 1);
    if (const char *reason = sq::why_not(sq::kernels_avx512vnni())) {
        SKIP(reason);
        return check_summary("test-amx-forward");
    }
    if (!CHECK(amx_emu::install())) return check_summary("test-amx-forward");
    for (const char *checkpoint : {"tests/golden/bert-64", "tests/golden/bert-40"})
        for (sq::quant_mode mode : {sq::quant_mode::static_scales, sq::quant_mode::dynamic_scales}) test_tiny(checkpoint, mode);
    const char *models = getenv("SQ_MODELS");
    const std::string minilm = (models ? models : "") + std::string("/minilm");
    if (!models || access((minilm + "/config.json").c_str(), R_OK) != 0) SKIP("no real checkpoint (SQ_MODELS)");
    else
        for (sq::quant_mode mode : {sq::quant_mode::static_scales, sq::quant_mode::dynamic_scales}) test_minilm(minilm, mode);
    printf("%llu tile products on the first thread\n", (unsigned long long)amx_emu::thread_counts().products);
    CHECK(amx_emu::thread_counts().products > 0);
    return check_summary("test-amx-forward");
}

#else

int main() {
    SKIP("the AMX emulator is for x86-64 Linux");
    return check_summary("test-amx-forward");
}

#endif
