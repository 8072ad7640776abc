// test-kernels.cpp - the kernel tables: plain against double and 64-bit integer arithmetic written here, every other table against plain, bit for bit.
// With --emulate-amx: the AMX table alone against plain, its tile instructions emulated (amx-emu.h), so that it needs AVX512-VNNI only.
// kernel-cases.h has the arguments and the comparison, which fuzz/fuzz-kernels.cpp shares.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "../sq-cpu.h"
#include "../sq-kernels.h"
#include "../sq.h"
#include "amx-emu.h"
#include "check.h"
#include "kernel-cases.h"

using namespace sq;
using namespace kernel_cases;

namespace {

// The larger of two errors, NaN being the largest
double worse(double a, double b) { return b <= a ? a : b; }

// ---- linear layers ----

// The plain table against double arithmetic
void check_layer(layer &l, activation act, bool with_residual, bool to_u8, bool dynamic) {
    guarded<float> y(l.m * l.out_stride);
    guarded<uint8_t> q(l.m * l.out_stride);
    const gemm_args g = l.args(act, with_residual, to_u8, dynamic, to_u8 ? (void *)q.get() : y.get());
    run(kernels_plain(), g, l.is_float);
    double worst = 0; // in units of the bound
    for (size_t t = 0; t < l.m; t++)
        for (size_t n = 0; n < 16 * l.n_panels; n++) {
            double bound, want = l.expected(g, t, n, &bound), got;
            if (to_u8) {
                const double m = g.out_mul ? g.out_mul[n] : 1;
                bound = 0.5 + bound * m + U * fabs(want * m);
                want = std::min(std::max(want * m + g.out_zero, 0.0), 255.0);
                got = q[t * l.out_stride + n];
            } else {
                got = y[t * l.out_stride + n];
            }
            worst = worse(worst, fabs(got - want) / bound);
        }
    CHECK_NEAR(worst, 0, 1);
}

void compare_layer(const kernels *table, layer &l, activation act, bool with_residual, bool to_u8, bool dynamic) {
    for (l.tile = 0; l.tile < table->n_tiles; l.tile++)
        if (!CHECK(same_layer(table, l, act, with_residual, to_u8, dynamic)))
            printf("  %s: m %zu panels %zu k %zu float %d act %u residual %d u8 %d dynamic %d tile %u\n", table->name, l.m, l.n_panels, l.k, l.is_float, act,
                   with_residual, to_u8, dynamic, l.tile);
    l.tile = 0;
}

template <class Each> void every_form(bool is_float, Each each) {
    for (uint32_t act = ACT_NONE; act <= ACT_TANH; act++)
        for (int form = 0; form < (is_float ? 4 : 8); form++)
            each((activation)act, (form & 1) != 0, (form & 2) != 0, (form & 4) != 0);
}

void test_layers() {
    for (size_t m : {1, 2, 3, 7, 19})
        for (bool is_float : {false, true}) {
            layer l(m, 1 + m % 3, is_float ? 40 + m : 64 * (1 + m % 3), is_float, false);
            every_form(is_float, [&](activation a, bool r, bool u, bool d) { check_layer(l, a, r, u, d); });
            l.mul_folded = true;
            check_layer(l, ACT_NONE, false, true, !is_float);
        }
}

// Every remainder of rows, panels and K, in every form
void compare_layers(const std::vector<const kernels *> &others, bool is_float) {
    for (size_t m = 1; m <= 70; m += CHECK_SANITIZED ? 9 : 1)
        for (const kernels *table : others) {
            const size_t K = (size_t)pick(1, is_float ? 130 : 320);
            layer l(m, (size_t)pick(1, 11), is_float ? K : round_up(K, 64), is_float, m % 10 == 0);
            if (!is_float)
                l.pad_from(K);
            every_form(is_float, [&](activation a, bool r, bool u, bool d) { compare_layer(table, l, a, r, u, d); });
            l.mul_folded = true;
            compare_layer(table, l, ACT_NONE, false, true, !is_float);
        }
}

// N or K or both up to 4096, and more rows than one block of 512 KiB
void compare_large(const std::vector<const kernels *> &others) {
    const size_t shapes[][3] = {{1, 4096, 4096}, {16, 4096, 252}, {17, 4080, 64}, {31, 16, 4096}, {33, 32, 4092}, {48, 48, 1000}, {70, 1040, 128}, {300, 32, 4096}}; // M, N, K
    for (auto &shape : shapes) {
        if (CHECK_SANITIZED && shape[0] * shape[1] * shape[2] > (4u << 20))
            continue;
        layer l(shape[0], shape[1] / 16, round_up(shape[2], 64), false, shape[0] == 300);
        l.pad_from(shape[2]);
        for (const kernels *table : others) {
            compare_layer(table, l, ACT_NONE, false, false, false);
            compare_layer(table, l, ACT_GELU_ERF, true, true, true);
        }
    }
}

// Products as large as they get, with scale 1: the integer itself, rounded once
void test_extremes() {
    const size_t k = 65984; // the largest multiple of 64 below 66,000
    layer l(2, 1, k, false, true);
    std::fill(l.scale.get(), l.scale.get() + 16, 1.0f);
    std::fill(l.bias.get(), l.bias.get() + 16, 0.0f);
    guarded<float> y(2 * l.out_stride);
    run(kernels_plain(), l.args(ACT_NONE, false, false, false, y.get()), false);
    for (size_t n = 0; n < 16; n++)
        CHECK_EQ(y[n], (float)((n % 2 ? 127.0 : -127.0) * 255 * (double)k));
}

// Residual and output may be the same memory
void test_in_place(const std::vector<const kernels *> &tables) {
    layer l(9, 5, 128, false, false);
    for (const kernels *table : tables) {
        guarded<float> y(l.m * l.out_stride), z(l.m * l.out_stride);
        run(table, l.args(ACT_NONE, true, false, false, y.get()), false);
        gemm_args g = l.args(ACT_NONE, true, false, false, z.get());
        std::copy(l.residual.get(), l.residual.get() + l.residual.n, z.get());
        g.residual = z.get();
        run(table, g, false);
        bool equal = true;
        for (size_t t = 0; t < l.m; t++)
            equal = equal && memcmp(&y[t * l.out_stride], &z[t * l.out_stride], 64 * l.n_panels) == 0;
        CHECK(equal);
    }
}

// ---- functions ----

// act(x) for many x: a float layer with K = 1, weight 1, bias 0
void apply(const kernels *table, activation act, guarded<float> &x, guarded<float> &y) {
    guarded<float> w(16, 1.0f), bias(16, 0.0f), out(x.n * 16);
    guarded<float> rows(x.n * 16);
    for (size_t i = 0; i < x.n; i++)
        rows[16 * i] = x[i];
    gemm_args g{};
    g.x = rows.get();
    g.x_stride = g.out_stride = 16;
    g.w = w.get();
    g.m = x.n;
    g.n_panels = g.k = 1;
    g.bias = bias.get();
    g.act = act;
    g.out = out.get();
    table->gemm_f32(&g);
    for (size_t i = 0; i < x.n; i++)
        y[i] = out[16 * i];
}

void test_activations(const std::vector<const kernels *> &tables) {
    std::vector<float> points = {0.0f, 1e-30f, 1e-10f, 20, 88, 1e4f, 1e30f, 3e38f};
    for (int i = 1; i <= 40000; i++)
        points.push_back((float)i / 4000);
    guarded<float> x(2 * points.size()), y(x.n);
    for (size_t i = 0; i < points.size(); i++) {
        x[2 * i] = points[i];
        x[2 * i + 1] = -points[i];
    }
    for (activation act : {ACT_GELU_ERF, ACT_GELU_TANH, ACT_RELU, ACT_TANH})
        for (const kernels *table : tables) {
            apply(table, act, x, y);
            double worst = 0;
            for (size_t i = 0; i < x.n; i++) {
                const double want = act == ACT_GELU_TANH && fabs(x[i]) > 100 ? std::max(x[i], 0.0f) : activated(act, x[i]);
                worst = worse(worst, fabs(y[i] - want) / (activation_error(act) + U * fabs(want) + 1e-300));
            }
            CHECK_NEAR(worst, 0, 1);
            CHECK_EQ(x[13], -1e30f);
            CHECK_NEAR(y[13], act == ACT_TANH ? -1 : 0, 1.3e-6);
            CHECK(y[0] == 0);
        }
    guarded<float> odd(3), z(3);
    odd[0] = NOT;
    odd[1] = INFINITY;
    odd[2] = -INFINITY;
    for (activation act : {ACT_NONE, ACT_GELU_ERF, ACT_GELU_TANH, ACT_RELU, ACT_TANH})
        for (const kernels *table : tables) {
            apply(table, act, odd, z);
            CHECK(z[0] != z[0]);
            CHECK_EQ(z[1], act == ACT_TANH ? 1.0f : INFINITY);
            CHECK_NEAR(act == ACT_NONE ? 0 : z[2], act == ACT_TANH ? -1 : 0, 1.3e-6);
        }
}

// e^-t by an attention over two keys with scores 0 and -t and values 0 and 1: e / (1 + e)
void test_exp(const std::vector<const kernels *> &tables) {
    guarded<float> q(2, 1.0f), k(2), v(2), out(2), scratch(attention_scratch(2, 1));
    v[1] = 1;
    for (const kernels *table : tables) {
        double worst = 0;
        for (float t = 0; t < 110; t += 0.0131f) {
            k[1] = -t;
            attention_args a{q.get(), k.get(), v.get(), 1, 2, 1, 0, 2, scratch.get(), out.get(), 1};
            table->attention(&a);
            const double e = exp(-(double)std::min(t, 87.0f));
            worst = worse(worst, fabs(out[0] / (e / (1 + e)) - 1));
        }
        CHECK_NEAR(worst, 0, 2e-7 + 3 * U); // exp; the sum, its inverse, the product
    }
}

// ---- attention ----

void check_attention(heads &h) {
    guarded<float> out((h.s - 1) * h.out_stride + h.d, 7);
    h.run(kernels_plain(), out.get());
    double worst = 0;
    for (size_t i = 0; i < h.s; i++) {
        std::vector<double> e(h.s);
        double sum = 0, error = 0, high = -INFINITY;
        for (size_t j = 0; j < h.s; j++) {
            double size = 0;
            for (size_t c = 0; c < h.d; c++) {
                e[j] += (double)h.q[i * h.stride + c] * h.k[j * h.stride + c];
                size += fabs(h.q[i * h.stride + c] * h.k[j * h.stride + c]);
            }
            error = std::max(error, U * ((double)h.d * size + fabs(e[j])));
            high = std::max(high, e[j]);
        }
        for (double &x : e)
            sum += x = exp(x - high);
        for (size_t c = 0; c < h.d; c++) {
            double y = 0, size = 0;
            for (size_t j = 0; j < h.s; j++) {
                y += e[j] / sum * h.v[j * h.stride + c];
                size += e[j] / sum * fabs(h.v[j * h.stride + c]);
            }
            // each weight is off by its score and the highest one, exp, and so is the sum; then s additions in the sum and s in the product
            const double bound = 1.1 * size * (2 * (2 * error + 2e-7) + U * (2 * (double)h.s + 4));
            worst = worse(worst, fabs(out[i * h.out_stride + c] - y) / bound);
        }
    }
    CHECK_NEAR(worst, 0, 1);
}

void test_attention(const std::vector<const kernels *> &others) {
    const size_t shapes[][2] = {{1, 1}, {2, 32}, {15, 64}, {16, 64}, {17, 20}, {33, 80}, {64, 7}, {100, 32}, {131, 64}};
    for (auto &shape : shapes) {
        heads h(shape[0], shape[1]);
        check_attention(h);
        for (const kernels *table : others)
            CHECK(same_attention(table, h));
    }
}

// Rows in parts are the rows of the whole.
void test_attention_parts(const std::vector<const kernels *> &tables) {
    heads h(40, 32);
    guarded<float> whole((h.s - 1) * h.out_stride + h.d, 7), parts(whole.n, 7);
    for (const kernels *table : tables) {
        h.run(table, whole.get());
        for (size_t first : {0, 7, 24}) {
            const size_t past = first == 0 ? 7 : first == 7 ? 24 : 40;
            attention_args a{h.q.get(), h.k.get(), h.v.get(), h.stride, h.s, h.d, first, past, h.scratch.get(), parts.get(), h.out_stride};
            table->attention(&a);
        }
        CHECK(same(whole, parts));
    }
}

// ---- attention in integers ----

// Plain against integers of 64 bits and exp2 in double. An e may be off by 1.01e-4 of itself before it is rounded, which bounds the rest.
void check_attention_s8(heads_s8 &h) {
    guarded<float> out((h.s - 1) * h.out_stride + round_up(h.d, 16), 7);
    guarded<uint8_t> q(out.n, 7);
    h.run(kernels_plain(), 0, h.s, false, out.get());
    h.run(kernels_plain(), 0, h.s, true, q.get());
    double worst = 0, worst_u8 = 0;
    for (size_t i = 0; i < h.s; i++) {
        std::vector<int64_t> score(h.s);
        for (size_t j = 0; j < h.s; j++)
            for (size_t c = 0; c < h.d; c++)
                score[j] += ((int64_t)h.q[i * h.stride + c] - 128) * ((int64_t)h.k[j * h.stride + c] - 128);
        const int64_t high = *std::max_element(score.begin(), score.end());
        std::vector<double> e(h.s), doubt(h.s);
        double sum = 0, sum_doubt = 0;
        for (size_t j = 0; j < h.s; j++) {
            const double exact = (h.fine ? 65535 : 255) * exp2((double)(score[j] - high) * h.factor), off = exact * 1.02e-4;
            e[j] = nearbyint(exact);
            doubt[j] = score[j] == high ? 0 : std::max(nearbyint(exact + off) - e[j], e[j] - nearbyint(exact - off));
            sum += e[j];
            sum_doubt += doubt[j];
        }
        for (size_t c = 0; c < h.d; c++) {
            double y = 0, error = 0;
            for (size_t j = 0; j < h.s; j++) {
                y += e[j] * (h.v[j * h.stride + c] - 128.0);
                error += doubt[j] * 128;
            }
            const double want = y / sum * h.mul[c];
            const double bound = (error + fabs(y) / sum * sum_doubt) / (sum - sum_doubt) * h.mul[c] + 5 * U * fabs(want) + 1e-12;
            worst = worse(worst, fabs(out[i * h.out_stride + c] - want) / bound);
            worst_u8 = worse(worst_u8, fabs(q[i * h.out_stride + c] - std::min(std::max(want + 101, 0.0), 255.0)) / (0.5 + bound));
        }
    }
    CHECK_NEAR(worst, 0, 1);
    CHECK_NEAR(worst_u8, 0, 1);
}

void compare_attention_s8(const kernels *table, heads_s8 &h) {
    if (!CHECK(same_attention_s8(table, h)))
        printf("  %s: s %zu d %zu fine %d factor %g\n", table->name, h.s, h.d, h.fine, (double)h.factor);
}

void test_attention_s8(const std::vector<const kernels *> &others) {
    const size_t shapes[][2] = {{1, 16}, {2, 32}, {3, 64}, {15, 64}, {16, 48}, {17, 64}, {33, 80}, {64, 32}, {65, 64}, {100, 32}, {131, 64}, {257, 128}, {300, 16}};
    for (auto &shape : shapes)
        for (float factor : {1e-4f, 2e-3f, 0.0f, 2.0f}) {
            heads_s8 h(shape[0], shape[1], factor, factor == 2.0f);
            for (bool fine : {false, true}) {
                h.fine = fine;
                check_attention_s8(h);
                for (const kernels *table : others)
                    compare_attention_s8(table, h);
            }
        }
}

// ---- rows ----

void check_norm(rows &r) {
    guarded<float> y(r.n16);
    kernels_plain()->norm(r.x.get(), r.gamma.get(), r.beta.get(), 1e-12f, r.n, y.get());
    double mean = 0, var = 0, size = 0, worst = 0;
    for (size_t i = 0; i < r.n; i++) {
        mean += r.x[i] / (double)r.n;
        size = std::max(size, (double)fabsf(r.x[i]));
    }
    for (size_t i = 0; i < r.n; i++)
        var += (r.x[i] - mean) * (r.x[i] - mean) / (double)r.n;
    // a lane adds up n / 64 + 8 terms; the mean's error moves every difference, the variance's is relative
    const double steps = (double)r.n / 64 + 10, mean_error = U * steps * size, relative = U * (steps + 6);
    for (size_t i = 0; i < r.n; i++) {
        const double z = (r.x[i] - mean) / sqrt(var + 1e-12), want = z * r.gamma[i] + r.beta[i];
        const double shift = 2 * mean_error / sqrt(var + 1e-12), bound = fabs(r.gamma[i]) * (fabs(z) * (2 * relative + shift) + shift) + U * fabs(want);
        worst = worse(worst, fabs(y[i] - want) / bound);
    }
    CHECK(r.n == 1 || worst <= 1);
    for (size_t i = r.n; i < r.n16; i++)
        CHECK(y[i] == 0);
}

void check_quant(rows &r) {
    guarded<uint8_t> q(r.n16);
    kernels_plain()->quant_static(r.x.get(), r.mul.get(), 77, r.n, q.get());
    bool right = true;
    for (size_t i = 0; i < r.n; i++) // the product is rounded once, ties go to even
        right = right && q[i] == std::min(std::max((int)nearbyint(r.x[i] * r.mul[i]) + 77, 0), 255);
    CHECK(right);
    float scale;
    int32_t zero;
    kernels_plain()->quant_dynamic(r.x.get(), r.mul.get(), r.n, q.get(), &scale, &zero);
    double lo = 0, hi = 0, worst = 0;
    for (size_t i = 0; i < r.n; i++) {
        lo = std::min(lo, (double)r.x[i] * r.mul[i]);
        hi = std::max(hi, (double)r.x[i] * r.mul[i]);
    }
    CHECK_NEAR(scale, (hi - lo) / 255, 3 * U * scale);
    CHECK_NEAR(zero, -lo / scale, 0.5 + 255 * 4 * U);
    for (size_t i = 0; i < r.n; i++)
        worst = worse(worst, fabs(scale * (q[i] - zero) - (double)r.x[i] * r.mul[i]) / scale);
    CHECK_NEAR(worst, 0, 1 + 1e-4); // half a step, and up to half a step at an end where the rounded zero point cuts off
}

void test_rows(const std::vector<const kernels *> &others) {
    for (size_t n : {1, 2, 15, 16, 17, 31, 48, 63, 64, 65, 127, 200, 312, 384, 768, 1000, 1024, 4096})
        for (int odd = 0; odd < 4; odd++) {
            rows r(n);
            if (odd == 0) {
                check_norm(r);
                check_quant(r);
            }
            if (odd == 1)
                r.x[n / 2] = NOT;
            if (odd == 2)
                r.x[n / 3] = -INFINITY;
            if (odd == 3) // flat
                std::fill(r.x.get(), r.x.get() + n, 0.0f);
            for (const kernels *table : others)
                CHECK(same_rows(table, r));
        }
}

void test_row_values() {
    rows r(40);
    guarded<float> y(r.n16);
    double want = 0;
    for (size_t i = 0; i < r.n; i++)
        want += (double)r.x[i] * r.x[i];
    CHECK_NEAR(kernels_plain()->sum_squares(r.x.get(), r.n), want, 12 * U * want);
    kernels_plain()->embed_s8(r.word.get(), 0.25f, r.x.get(), r.n, y.get());
    for (size_t i = 0; i < r.n; i++)
        CHECK_EQ(y[i], (float)(r.word[i] * 0.25 + (double)r.x[i]));
    r.x[3] = NOT;
    r.x[4] = 1e30f;
    r.x[5] = -1e30f;
    guarded<uint8_t> q(r.n16);
    kernels_plain()->quant_static(r.x.get(), r.mul.get(), 9, r.n, q.get());
    CHECK_EQ(q[3], 0);
    CHECK_EQ(q[4], 255);
    CHECK_EQ(q[5], 0);
}

// ---- choice ----

void test_choice() {
    size_t n_tables;
    const kernels *const *tables = all_kernels(&n_tables);
    const kernels *k = nullptr;
    const char *reason = nullptr;
    message why;
    unsetenv("SQ_ISA");
    CHECK_EQ(choose_kernels(nullptr, &k, &reason, &why), SQ_OK);
    CHECK(k && !why_not(k));
    CHECK_EQ(reason, k == tables[0] ? "" : why_not(tables[0]));
    for (size_t i = 0; i < n_tables; i++) {
        const int status = choose_kernels(tables[i]->name, &k, &reason, &why);
        CHECK_EQ(status, why_not(tables[i]) ? SQ_E_CPU : SQ_OK);
        if (status) continue;
        CHECK(k == tables[i]);
        CHECK_EQ(reason, i == 0 ? "" : "sq_model_params.isa asks for it");
    }
    CHECK_EQ(choose_kernels("sse9", &k, nullptr, &why), SQ_E_CPU);
    CHECK(strstr(why.text, "sse9") != nullptr);
    setenv("SQ_ISA", "plain", 1);
    CHECK_EQ(choose_kernels(nullptr, &k, &reason, nullptr), SQ_OK);
    CHECK_EQ(k->name, "plain");
    CHECK_EQ(reason, "SQ_ISA asks for it");
    setenv("SQ_ISA", tables[0]->name, 1);
    CHECK_EQ(choose_kernels("plain", &k, &reason, nullptr), SQ_OK);
    CHECK_EQ(k->name, "plain");
    CHECK_EQ(reason, "sq_model_params.isa asks for it");
    setenv("SQ_ISA", "bogus", 1);
    CHECK_EQ(choose_kernels("plain", &k, nullptr, nullptr), SQ_E_CPU);
    unsetenv("SQ_ISA");
}

// The kernel refuses tile data while an alternate signal stack is too small for a frame that holds it (Linux, Documentation/x86/xstate.rst): the next table is taken
// then, and the reason is told. In a child, before this process has permission, which children inherit.
void test_refusal() {
    if (!(cpu_features() & CPU_AMX)) return SKIP("refused permission for tile data: no AMX here");
    const pid_t child = fork();
    if (child == 0) {
        static char small[4096];
        unsetenv("SQ_ISA");
        stack_t stack{};
        stack.ss_sp = small;
        stack.ss_size = sizeof small;
        const kernels *k = nullptr;
        const char *reason = "";
        const bool right = sigaltstack(&stack, nullptr) == 0 && choose_kernels(nullptr, &k, &reason, nullptr) == SQ_OK && strcmp(k->name, "avx512vnni") == 0 &&
                           strcmp(reason, "the operating system refused AMX tile data") == 0;
        _exit(right ? 0 : 1);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

// ---- emulation ----

#if defined(__x86_64__) && defined(__linux__)
// No tile product in excess: ceil(M / 16) tiles of rows for each panel and 64 of K; one tile load each where rows come in pairs of tiles, at most 1.34 elsewhere.
void test_tile_counts() {
    for (size_t m = 1; m <= 70; m++) {
        layer l(m, 8, 256, false, false);
        guarded<float> y(m * l.out_stride);
        amx_emu::thread_counts() = {};
        run(kernels_amx(), l.args(ACT_NONE, false, false, false, y.get()), false);
        const amx_emu::counts n = amx_emu::thread_counts();
        CHECK_EQ(n.products, (uint64_t)((m + 15) / 16 * 8 * 256 / 64));
        CHECK(100 * n.loads <= (m % 32 == 0 ? 100 : 134) * n.products);
        CHECK(n.configs <= 3);
    }
}

// The AMX table where nothing but AVX512-VNNI is sure: what differs between the two.
int test_emulated_amx() {
    const char *const summary = "test-kernels --emulate-amx";
    if (const char *reason = why_not(kernels_avx512vnni())) {
        SKIP((std::string("amx emulated: ") + reason).c_str());
        return check_summary(summary);
    }
    if (!CHECK(amx_emu::install()))
        return check_summary(summary);
    const std::vector<const kernels *> amx = {kernels_amx()};
    test_tile_counts();
    amx_emu::thread_counts() = {};
    compare_layers(amx, false);
    compare_large(amx);
    test_in_place(amx);
    test_attention_s8(amx);
    printf("%llu tile products\n", (unsigned long long)amx_emu::thread_counts().products);
    CHECK(amx_emu::thread_counts().products > 0);
    return check_summary(summary);
}
#else
int test_emulated_amx() {
    SKIP("amx emulated: the emulator is for x86-64 Linux");
    return check_summary("test-kernels --emulate-amx");
}
#endif

} // namespace

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--emulate-amx") == 0)
        return test_emulated_amx();
    test_refusal();
    size_t n_tables;
    const kernels *const *all = all_kernels(&n_tables);
    std::vector<const kernels *> others, tables;
    for (size_t i = 0; i < n_tables; i++) {
        if (const char *reason = why_not(all[i])) {
            SKIP((std::string(all[i]->name) + ": " + reason).c_str());
            continue;
        }
        tables.push_back(all[i]);
        if (all[i] != kernels_plain())
            others.push_back(all[i]);
    }
    test_choice();
    test_activations(tables);
    test_exp(tables);
    test_extremes();
    test_layers();
    compare_layers(others, false);
    compare_layers(others, true);
    compare_large(others);
    test_in_place(tables);
    test_attention(others);
    test_attention_parts(tables);
    test_attention_s8(others);
    test_row_values();
    test_rows(others);
    return check_summary("test-kernels");
}
