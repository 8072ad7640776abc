// convert/quantize.cpp - see quantize.h.
#include "quantize.h"

#include <math.h>

#include <algorithm>
#include <utility>

namespace sq {

namespace {

// Rows of a layer's input that the search sees.
constexpr size_t SAMPLE_ROWS = 256;
// Rows of whole sequences that integer attention is judged on.
constexpr size_t ATTENTION_ROWS = 512;

// A static layer whose error passes this, where per-row scales would leave at most two thirds of it, becomes dynamic: a few activations then need a range in which
// the others drown.
const double STATIC_ERROR_LIMIT = getenv("X_LIM") ? atof(getenv("X_LIM")) : 0.025, DYNAMIC_GAIN = getenv("X_GAIN") ? atof(getenv("X_GAIN")) : 2.0 / 3;

choice choose(const kernels &k, const float_linear &l, const observer &seen, bool is_dynamic, linear_role role) {
    choice c = search(k, l, seen, is_dynamic);
    const bool cheap = getenv("X_CHEAP") && (role == QKV || role == UP);
    if (is_dynamic || (c.error <= STATIC_ERROR_LIMIT && !cheap)) return c;
    choice d = search(k, l, seen, true);
    return d.error <= (cheap ? atof(getenv("X_CHEAP")) : DYNAMIC_GAIN) * c.error ? d : c;
}

// Attention is done in integers while its output is off by no more than `fine`, and with weights of 8 bits while it is off by no more than `coarse`. What is off is a
// part of a sum with the residual, which is several times as large: MiniLM's 3 % move a sentence vector's cosine by 0.0003, bert-squad's 1 to 2 % change 2 % of 500
// answers (make eval), and the 5 to 10 % of a random BERT-large with outlier channels leave the cosine of its hidden states above 0.9999.
struct attention_limits {
    double coarse, fine;
};
constexpr attention_limits STATIC_ATTENTION = {0.02, 0.15}, DYNAMIC_ATTENTION = {0.008, 0.15};

// Divides the value projection's rows and bias by s, so that the attention output arrives divided.
void divide_values(const std::vector<float> &s, float_linear *qkv) {
    const size_t width = s.size();
    for (size_t row = 0; row < width; row++) {
        float *w = &qkv->w[(2 * width + row) * qkv->k];
        for (size_t j = 0; j < qkv->k; j++) w[j] /= s[row];
        qkv->bias[2 * width + row] /= s[row];
    }
}

} // namespace

int8_attention final_attention(const int8_layer &l) {
    int8_attention a = l.attention;
    if (l.is_f32[QKV]) a.is_s8 = false;
    const int8_linear &out = l.linear[OUT];
    for (size_t c = 0; c < a.mul.size() && !out.is_dynamic && !l.is_f32[OUT]; c++) a.mul[c] *= out.mul[c];
    return a;
}

int float_linears(const float_model &source, uint32_t i, const int8_layer &l, std::array<float_linear, 4> *out, message *why) {
    for (linear_role role : {QKV, OUT, UP, DOWN})
        if (int status = source.linear_layer(i, role, &(*out)[role], why)) return status;
    change_bases(l.bases, &(*out)[QKV], &(*out)[OUT]);
    divide_values(l.value_divisor, &(*out)[QKV]);
    std::vector<float> &w = (*out)[OUT].w;
    for (size_t j = 0; j < w.size(); j++) w[j] *= l.value_divisor[j % l.value_divisor.size()];
    return SQ_OK;
}

int set_layer(const float_model &source, uint32_t i, const int8_layer &l, network *net, message *why) {
    std::array<float_linear, 4> in_floats;
    if (std::find(l.is_f32.begin(), l.is_f32.end(), true) != l.is_f32.end())
        if (int status = float_linears(source, i, l, &in_floats, why)) return status;
    for (linear_role role : {QKV, OUT, UP, DOWN}) {
        if (l.is_f32[role]) net->set(i, role, in_floats[role]);
        else net->set(i, role, l.linear[role]);
    }
    net->set_attention(i, final_attention(l));
    return SQ_OK;
}

layer_input layer_quantizer::empty_input(size_t k, bool with_moments) const {
    return {observer(k, SAMPLE_ROWS), with_moments ? moments(net_.table(), k) : moments(), {}};
}

// Chooses the form of attention; QKV then gives rounded steps.
int layer_quantizer::choose_attention(uint32_t i, attention_observer *seen, int8_layer *out, attention_report *report) const {
    const model_config &c = source_.config();
    const attention_limits &limits = is_dynamic_ ? DYNAMIC_ATTENTION : STATIC_ATTENTION;
    out->attention = int8_attention();
    if (attention_s8_fits(c.width / c.n_heads, c.n_positions) && !getenv("X_ATT")) {
        out->attention = quantize_attention(net_.table(), *seen, c.n_heads, limits.coarse);
        int8_attention &a = out->attention;
        a.is_s8 = a.error <= limits.fine && *std::max_element(a.scale.begin(), a.scale.end()) <= 1;
        if (a.is_s8) fold_steps(a, &out->linear[QKV]);
    }
    const int8_attention &a = out->attention;
    *report = {!a.is_s8 ? "f32" : a.is_fine ? "16 bits" : "8 bits", a.clip, a.error};
    net_.set(i, QKV, out->linear[QKV]);
    net_.set_attention(i, a);
    return SQ_OK;
}

// A layer whose input the layers before it, quantised already, now really give.
int layer_quantizer::quantize_next(uint32_t i, linear_role role, const float_linear &l, std::vector<double> float_mean, int8_layer *out, layer_report *report,
                                   message *why) {
    layer_input in = empty_input(l.k, !getenv("X_NOGPTQ"));
    observation wanted;
    wanted.inputs[role] = &in;
    if (int status = texts_.observe(i, wanted, why)) return status;
    in.float_mean = std::move(float_mean);
    if (role != OUT) report->chosen = choose(net_.table(), l, in.seen, is_dynamic_, role);
    report->lo = in.seen.lo();
    report->hi = in.seen.hi();
    out->linear[role] = sq::quantize(net_.table(), l, in, report->chosen, role == OUT);
    net_.set(i, role, out->linear[role]);
    return SQ_OK;
}

int layer_quantizer::quantize(uint32_t i, int8_layer *out, std::vector<layer_report> *linears, attention_report *attention, message *why) {
    std::array<float_linear, 4> l;
    std::array<layer_report, 4> reports;
    for (linear_role role : {QKV, OUT, UP, DOWN}) {
        if (int status = source_.linear_layer(i, role, &l[role], why)) return status;
        net_.set(i, role, l[role]);
        reports[role].layer = i;
        reports[role].role = role;
    }
    net_.set_attention(i, int8_attention());
    attention_observer plain(source_.config().width, ATTENTION_ROWS);
    if (int status = texts_.observe(i, {{}, &plain}, why)) return status;
    out->bases = choose_head_bases(plain, source_.config().n_heads);
    change_bases(out->bases, &l[QKV], &l[OUT]);
    net_.set(i, QKV, l[QKV]);
    net_.set(i, OUT, l[OUT]);
    std::array<std::vector<double>, 4> float_means;
    if (int status = texts_.advance_float(i, &float_means, why)) return status;

    // The attention output comes first, since its smoothing changes the value projection.
    layer_input qkv = empty_input(l[QKV].k, !getenv("X_NOGPTQ")), context = empty_input(l[OUT].k, false);
    attention_observer seen(source_.config().width, ATTENTION_ROWS);
    if (int status = texts_.observe(i, {{&qkv, &context, nullptr, nullptr}, &seen}, why)) return status;
    reports[OUT].chosen = choose(net_.table(), l[OUT], context.seen, is_dynamic_, OUT);
    out->value_divisor = reports[OUT].chosen.s;
    divide_values(out->value_divisor, &l[QKV]);
    seen.divide_values(out->value_divisor);
    for (size_t j = 0; j < out->value_divisor.size(); j++) float_means[OUT][j] /= static_cast<double>(out->value_divisor[j]);

    reports[QKV].chosen = choose(net_.table(), l[QKV], qkv.seen, is_dynamic_, QKV);
    reports[QKV].lo = qkv.seen.lo();
    reports[QKV].hi = qkv.seen.hi();
    qkv.float_mean = std::move(float_means[QKV]);
    out->linear[QKV] = sq::quantize(net_.table(), l[QKV], qkv, reports[QKV].chosen, false);
    choose_attention(i, &seen, out, attention);
    qkv = layer_input();

    for (linear_role role : {OUT, UP, DOWN}) {
        if (int status = quantize_next(i, role, l[role], std::move(float_means[role]), out, &reports[role], why)) return status;
        if (role == OUT) net_.set_attention(i, final_attention(*out));
    }
    for (layer_report &r : reports) linears->push_back(std::move(r));
    return texts_.advance_real(i, why);
}

} // namespace sq
