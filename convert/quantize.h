// convert/quantize.h - one transformer layer after the other: its forms are chosen, its weights rounded, on the activations that the layers before it really give.
#ifndef SQ_CONVERT_QUANTIZE_H
#define SQ_CONVERT_QUANTIZE_H

#include <algorithm>
#include <array>
#include <vector>

#include "../sq-quant.h"
#include "calibrate.h"
#include "network.h"

namespace sq {

// Where a layer's activation scales come from. static_scales: calibration, for layers behind a LayerNorm; the others find them for each token. fast: calibration, for all but
// layers that lose much by it. dynamic_scales: each token. none: the model stays in f32.
enum class quant_mode { static_scales, fast, dynamic_scales, none };

// What became of one linear layer.
struct layer_report {
    uint32_t layer;
    linear_role role;
    choice chosen;             // errors are relative, on a sample of the calibration rows
    bool is_float = false;     // left in f32 by the budget
    std::vector<float> lo, hi; // [k] range of each input channel, before smoothing
};

struct attention_report {
    const char *weights; // of softmax: "8 bits", "16 bits", or "f32": all of attention in f32
    float clip;          // as in int8_attention
    double error;        // relative, of integer attention's output on calibration texts
};

// A transformer layer as it is quantised, before its linear layers' forms are final.
struct int8_layer {
    std::array<int8_linear, 4> linear; // QKV: gives queries, keys and values as they are, not in steps
    std::array<bool, 4> is_f32{};     // which of them stay in f32 instead
    int8_attention attention;         // mul: steps of values
    head_bases bases;                 // of the checkpoint's heads
    std::vector<float> value_divisor; // [width] what the value projection is divided by: smoothing factors of the output layer
};

// The QKV layer as it is in the end: for integer attention it gives steps.
int8_linear final_projection(const int8_layer &l);

// Attention as the layer has it in the end: with a static output layer it writes what that reads, and queries, keys and values in f32 need it in f32.
int8_attention final_attention(const int8_layer &l);

// The checkpoint's linear layers [4] in the layer's bases and with its divided values. Returns SQ_OK or an error.
int float_linears(const float_model &source, uint32_t i, const int8_layer &l, std::array<float_linear, 4> *out, message *why);

// Calls take(role, linear) for each linear layer in the form that it has in the end, int8_linear or float_linear. Returns SQ_OK or an error.
template <class function> int for_each_linear(const float_model &source, uint32_t i, const int8_layer &l, message *why, function take) {
    std::array<float_linear, 4> in_floats;
    if (std::find(l.is_f32.begin(), l.is_f32.end(), true) != l.is_f32.end())
        if (int status = float_linears(source, i, l, &in_floats, why)) return status;
    for (linear_role role : {QKV, OUT, UP, DOWN}) {
        if (l.is_f32[role]) take(role, in_floats[role]);
        else if (role == QKV) take(role, final_projection(l));
        else take(role, l.linear[role]);
    }
    return SQ_OK;
}

// Makes layer i of the network what l says.
int set_layer(const float_model &source, uint32_t i, const int8_layer &l, network *net, message *why);

// Quantises layers 0, 1, ... of the network and moves the calibration texts on.
class layer_quantizer {
  public:
    layer_quantizer(const float_model &source, network *net, calibration *texts, quant_mode mode) : source_(source), net_(*net), texts_(*texts), mode_(mode) {}

    // Appends four reports of linear layers. Returns SQ_OK or an error.
    int quantize(uint32_t layer, int8_layer *out, std::vector<layer_report> *linears, attention_report *attention, message *why);

  private:
    // Steps of `quantize`, in this order; they work on what follows.
    int load(message *why);
    int change_heads(message *why);
    int quantize_projection(attention_report *report, message *why);
    int quantize_next(linear_role role, message *why);

    attention_report choose_attention(const attention_observer &seen);
    void see_range(linear_role role, const observer &seen);

    const float_model &source_;
    network &net_;
    calibration &texts_;
    const quant_mode mode_;

    uint32_t layer_ = 0;
    int8_layer *out_ = nullptr;
    std::array<float_linear, 4> linear_; // in the layer's bases and, once that is known, with divided values
    std::array<std::vector<double>, 4> float_means_; // of their inputs in the float model
    std::array<layer_report, 4> reports_;
    double plain_out_error_ = 0;
};

} // namespace sq

#endif
