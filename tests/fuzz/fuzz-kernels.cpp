// tests/fuzz/fuzz-kernels.cpp - any arguments through every kernel: each table that this CPU can run must give the bits of the plain one.
//
// Byte 0: the kernel. Then shape, form and the seed of random contents, then what to change in them: an array, a place, a value. Sizes are small, so that
// remainders of all kinds meet at hundreds of inputs a second; test-kernels has the large ones.
#include <iterator>
#include <vector>

#include "../../sq-cpu.h"
#include "../kernel-cases.h"
#include "require.h"

using namespace kernel_cases;

namespace {

const std::vector<const kernels *> &others() {
    static const std::vector<const kernels *> tables = [] {
        size_t n = 0;
        const kernels *const *all = all_kernels(&n);
        std::vector<const kernels *> runnable;
        for (size_t i = 0; i + 1 < n; i++) // the last is plain
            if (!why_not(all[i])) runnable.push_back(all[i]);
        return runnable;
    }();
    return tables;
}

// 1 .. most, mostly up to 20
size_t size_up_to(size_t most, input_bytes *in) {
    const size_t v = in->byte();
    return 1 + (v < 224 ? v % 20 : v * 97 % most);
}

// A float of any kind; with `finite`, one that a model file may hold.
float any_float(input_bytes *in, bool finite) {
    static const float SPECIAL[] = {0, -0.0f, 1, -1, 0.5f, 1.5f, 2.5f, 1e-45f, -1e-40f, 1.1754944e-38f, 1e30f, -1e30f, 3e38f, -3.4e38f, INFINITY, -INFINITY, NOT};
    constexpr size_t N_FINITE = std::size(SPECIAL) - 3;
    return SPECIAL[in->byte() % (finite ? N_FINITE : std::size(SPECIAL))];
}

template <class T> T &place(guarded<T> &array, input_bytes *in) { return array[in->word() % array.n]; }

void change(layer &l, input_bytes *in) {
    switch (in->byte() % 7) {
    case 0: (l.is_float ? place(l.xf, in) = any_float(in, false) : place(l.x, in) = static_cast<uint8_t>(in->byte())); break;
    case 1: (l.is_float ? place(l.wf, in) = any_float(in, true) : place(l.w, in) = static_cast<int8_t>(std::max<int>(static_cast<int8_t>(in->byte()), -127))); break;
    case 2: place(l.scale, in) = any_float(in, true); break;
    case 3: place(l.bias, in) = any_float(in, true); break;
    case 4: place(l.row_scale, in) = any_float(in, false); break; // of a row whose range is not finite
    case 5: place(l.residual, in) = any_float(in, false); break;
    default: place(l.out_mul, in) = any_float(in, true); break;
    }
}

void linear_layer(bool is_float, input_bytes *in) {
    const size_t m = size_up_to(70, in), panels = 1 + in->byte() % 6, K = size_up_to(300, in);
    const unsigned form = in->byte();
    const activation act = static_cast<activation>(in->byte() % (ACT_TANH + 1));
    rng.seed(in->word());
    layer l(m, panels, is_float ? K : round_up(K, 64), is_float, form & 8);
    if (!is_float) l.pad_from(K);
    l.tile = form >> 4 & 1;
    l.mul_folded = form & 32;
    while (in->left() >= 3) change(l, in);
    for (const kernels *table : others()) REQUIRE(same_layer(table, l, act, form & 1, form & 2, !is_float && form & 4));
}

void attention(input_bytes *in) {
    const size_t s = size_up_to(100, in), d = size_up_to(80, in);
    rng.seed(in->word());
    heads h(s, d);
    while (in->left() >= 3) {
        guarded<float> *const arrays[] = {&h.q, &h.k, &h.v};
        guarded<float> &array = *arrays[in->byte() % 3];
        place(array, in) = any_float(in, true);
    }
    for (const kernels *table : others()) REQUIRE(same_attention(table, h));
}

void attention_s8(input_bytes *in) {
    static const float FACTORS[] = {0, 1e-5f, 1e-4f, 1e-3f, 0.01f, 0.3f, 1, 2};
    const size_t s = size_up_to(140, in), d = 16 * (1 + in->byte() % 5);
    const unsigned form = in->byte();
    rng.seed(in->word());
    heads_s8 h(s, d, FACTORS[form & 7], form & 8);
    h.fine = form & 16;
    while (in->left() >= 3) {
        guarded<uint8_t> *const arrays[] = {&h.q, &h.k, &h.v};
        guarded<uint8_t> &array = *arrays[in->byte() % 3];
        place(array, in) = static_cast<uint8_t>(in->byte());
    }
    for (const kernels *table : others()) REQUIRE(same_attention_s8(table, h));
}

void row_operations(input_bytes *in) {
    const size_t n = size_up_to(1100, in);
    rng.seed(in->word());
    rows r(n);
    while (in->left() >= 3) {
        guarded<float> *const arrays[] = {&r.x, &r.gamma, &r.beta, &r.mul};
        const unsigned which = in->byte() % 4;
        (*arrays[which])[in->word() % n] = any_float(in, which != 0);
    }
    for (const kernels *table : others()) REQUIRE(same_rows(table, r));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    input_bytes in(data, n_bytes);
    switch (in.byte() % 5) {
    case 0: linear_layer(false, &in); break;
    case 1: linear_layer(true, &in); break;
    case 2: attention(&in); break;
    case 3: attention_s8(&in); break;
    default: row_operations(&in); break;
    }
    return 0;
}
