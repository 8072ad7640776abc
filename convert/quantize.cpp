// convert/quantize.cpp - see quantize.h.
#include "quantize.h"

#include <algorithm>
#include <utility>

namespace sq {

namespace {

// Rows of a layer's input that the search sees.
constexpr size_t SAMPLE_ROWS = 256;
// Rows of whole sequences that integer attention is judged on.
constexpr size_t ATTENTION_ROWS = 512;
// Rows that the moments of heads are taken from; of BERT-large 25 MB.
constexpr size_t BASIS_ROWS = 2048;

// A layer with fixed scales whose error passes this, where scales for each token would leave at most two thirds of it, gets those: a few activations then need a range in
// which the others drown.
constexpr double STATIC_ERROR_LIMIT = 0.025, DYNAMIC_GAIN = 2.0 / 3;

// Behind a LayerNorm all tokens are of one size. Attention outputs and what the activation function gives are not, and one step for all loses much there.
bool is_dynamic_from_the_start(quant_mode mode, linear_role role) {
    return mode == quant_mode::dynamic_scales || (mode == quant_mode::static_scales && (role == OUT || role == DOWN));
}

choice choose(const kernels &k, quant_mode mode, linear_role role, const float_linear &l, const observer &seen) {
    const bool is_dynamic = is_dynamic_from_the_start(mode, role);
    choice c = search(k, l, seen, is_dynamic);
    if (is_dynamic || c.error <= STATIC_ERROR_LIMIT) return c;
    choice d = search(k, l, seen, true);
    return d.error <= DYNAMIC_GAIN * c.error ? d : c;
}

// Attention is done in integers while its output is off by no more than INTEGERS_LIMIT, and with softmax weights of 8 bits while it is off by no more than
// BYTES_LIMIT (relative errors). What is off is a part of a sum with the residual, which is several times as large: MiniLM's 3 % move a sentence vector's cosine by
// 0.0003, and the 5 to 10 % of a random BERT-large with outlier channels leave the cosine of its hidden states above 0.9999. Answers to questions are more sensitive:
// two of bert-squad's six layers have 1.3 and 1.9 % with weights of 8 bits, and then 6.9 % of 987 answers change, 4.8 % with 16 (make eval). Mode fast, which gives
// accuracy for time, allows itself more.
constexpr double INTEGERS_LIMIT = 0.15, BYTES_LIMIT = 0.008, FAST_BYTES_LIMIT = 0.02;

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

int8_linear final_projection(const int8_layer &l) {
    int8_linear qkv = l.linear[QKV];
    if (l.attention.is_s8) fold_steps(l.attention, &qkv);
    return qkv;
}

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
    net->set_attention(i, final_attention(l));
    return for_each_linear(source, i, l, why, [&](linear_role role, const auto &linear) { net->set(i, role, linear); });
}

void layer_quantizer::see_range(linear_role role, const observer &seen) {
    reports_[role].lo = seen.lo();
    reports_[role].hi = seen.hi();
}

int layer_quantizer::load(message *why) {
    for (linear_role role : {QKV, OUT, UP, DOWN}) {
        if (int status = source_.linear_layer(layer_, role, &linear_[role], why)) return status;
        net_.set(layer_, role, linear_[role]);
        reports_[role] = layer_report();
        reports_[role].layer = layer_;
        reports_[role].role = role;
    }
    net_.set_attention(layer_, int8_attention());
    return SQ_OK;
}

// Before that, what rounding the output layer plainly would lose: afterwards outlier channels of values are gone.
int layer_quantizer::change_heads(message *why) {
    const size_t width = source_.config().width;
    attention_observer seen(width, BASIS_ROWS);
    layer_input context{observer(width, SAMPLE_ROWS), moments(), {}};
    observation wanted;
    wanted.inputs[OUT] = &context;
    wanted.attention = &seen;
    if (int status = texts_.observe(layer_, wanted, why)) return status;
    plain_out_error_ = plain_error(net_.table(), linear_[OUT], context.seen, is_dynamic_from_the_start(mode_, OUT));
    see_range(OUT, context.seen);
    out_->bases = choose_head_bases(seen, linear_[OUT], source_.config().n_heads);
    change_bases(out_->bases, &linear_[QKV], &linear_[OUT]);
    for (linear_role role : {QKV, OUT}) net_.set(layer_, role, linear_[role]);
    return SQ_OK;
}

// Chooses the form of attention.
attention_report layer_quantizer::choose_attention(const attention_observer &seen) {
    const model_config &c = source_.config();
    const double bytes_limit = mode_ == quant_mode::fast ? FAST_BYTES_LIMIT : BYTES_LIMIT;
    int8_attention &a = out_->attention = int8_attention();
    if (attention_s8_fits(c.width / c.n_heads, c.n_positions)) {
        a = quantize_attention(net_.table(), seen, c.n_heads, bytes_limit);
        a.is_s8 = a.error <= INTEGERS_LIMIT && *std::max_element(a.scale.begin(), a.scale.end()) <= 1;
    }
    return {!a.is_s8 ? "f32" : a.is_fine ? "16 bits" : "8 bits", a.clip, a.error};
}

// QKV and attention. The smoothing of the output layer comes first, since it changes the value projection.
int layer_quantizer::quantize_projection(attention_report *report, message *why) {
    const size_t width = source_.config().width;
    layer_input qkv{observer(width, SAMPLE_ROWS), moments(net_.table(), width), {}}, context{observer(width, SAMPLE_ROWS), moments(), {}};
    attention_observer seen(width, ATTENTION_ROWS);
    observation wanted;
    wanted.inputs[QKV] = &qkv;
    wanted.inputs[OUT] = &context;
    wanted.attention = &seen;
    if (int status = texts_.observe(layer_, wanted, why)) return status;

    choice &out = reports_[OUT].chosen = choose(net_.table(), mode_, OUT, linear_[OUT], context.seen);
    out.plain_error = plain_out_error_;
    out_->value_divisor = out.s;
    divide_values(out.s, &linear_[QKV]);
    seen.divide_values(out.s);
    for (size_t j = 0; j < width; j++) float_means_[OUT][j] /= static_cast<double>(out.s[j]);

    reports_[QKV].chosen = choose(net_.table(), mode_, QKV, linear_[QKV], qkv.seen);
    see_range(QKV, qkv.seen);
    qkv.float_mean = float_means_[QKV];
    out_->linear[QKV] = sq::quantize(net_.table(), linear_[QKV], qkv, reports_[QKV].chosen, false);
    *report = choose_attention(seen);
    net_.set(layer_, QKV, final_projection(*out_));
    net_.set_attention(layer_, out_->attention);
    return SQ_OK;
}

// OUT, UP or DOWN, whose input the layers before it, quantised already, now really give.
int layer_quantizer::quantize_next(linear_role role, message *why) {
    const float_linear &l = linear_[role];
    layer_input in{observer(l.k, SAMPLE_ROWS), moments(net_.table(), l.k), float_means_[role]};
    observation wanted;
    wanted.inputs[role] = &in;
    if (int status = texts_.observe(layer_, wanted, why)) return status;
    if (role != OUT) {
        reports_[role].chosen = choose(net_.table(), mode_, role, l, in.seen);
        see_range(role, in.seen);
    }
    out_->linear[role] = sq::quantize(net_.table(), l, in, reports_[role].chosen, role == OUT);
    net_.set(layer_, role, out_->linear[role]);
    if (role == OUT) net_.set_attention(layer_, final_attention(*out_));
    return SQ_OK;
}

int layer_quantizer::quantize(uint32_t layer, int8_layer *out, std::vector<layer_report> *linears, attention_report *attention, message *why) {
    layer_ = layer;
    out_ = out;
    if (int status = load(why)) return status;
    if (int status = change_heads(why)) return status;
    if (int status = texts_.advance_float(layer, &float_means_, why)) return status;
    if (int status = quantize_projection(attention, why)) return status;
    for (linear_role role : {OUT, UP, DOWN})
        if (int status = quantize_next(role, why)) return status;
    for (layer_report &r : reports_) linears->push_back(std::move(r));
    return texts_.advance_real(layer, why);
}

} // namespace sq
