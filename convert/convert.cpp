// convert/convert.cpp - the order of a conversion: float model in memory, calibration, then one layer after the other quantised and written.
#include "convert.h"

#include <stdio.h>

#include <memory>

#include "float-model.h"
#include "output-file.h"
#include "synthetic.h"

namespace sq {

namespace {

void no_progress(const char *, double) {}

std::string describe(const model_config &c) {
    char text[160];
    snprintf(text, sizeof text, "%s, %u layers, %u wide, %u heads, vocabulary of %u", c.model_type.c_str(), c.n_layers, c.width, c.n_heads, c.vocab);
    return text;
}

// A float model file: all layers as they are.
int write_float(const float_model &source, writer *out, message *why) {
    if (int status = source.write_rest(false, source.config().n_layers, "float", out, why)) return status;
    float_linear l;
    for (uint32_t i = 0; i < source.config().n_layers; i++)
        for (linear_role role : {QKV, OUT, UP, DOWN}) {
            if (int status = source.linear_layer(i, role, &l, why)) return status;
            write_linear(i, role, l, out);
        }
    return SQ_OK;
}

constexpr uint32_t LEAST_HELD_BACK = 8; // texts, for a mean that says something

int check_budget(const budget &wanted, const calibration_texts &texts, const sq_model &model, message *why) {
    if (!wanted.is_wanted()) return SQ_OK;
    if (wanted.kl > 0 && model.head.kind == SQ_HEAD_NONE) return fail(why, SQ_E_ARG, "a budget of kl needs a model with a head; this one gives vectors: use cos");
    if (texts.n_held_back < LEAST_HELD_BACK)
        return fail(why, SQ_E_ARG, "a budget needs at least 64 calibration texts, since one of eight is held back to measure it; a head that answers takes two for each");
    return SQ_OK;
}

// Quantises layer by layer, then takes the steps that the budget asks for.
int quantize_layers(const float_model &source, const convert_options &options, progress report, calibration_texts *texts, std::vector<int8_layer> *layers,
                    convert_result *result, message *why) {
    network net;
    if (int status = net.open(source, true, why)) return status;
    if (int status = read_calibration_texts(options.calibration_file, net.model(), texts, why)) return status;
    if (int status = check_budget(options.budget, *texts, net.model(), why)) return status;
    calibration run;
    if (int status = run.start(source, &net, texts, why)) return status;
    layer_quantizer quantizer(source, &net, &run, options.mode);
    layers->resize(source.config().n_layers);
    for (uint32_t i = 0; i < layers->size(); i++) {
        attention_report attention;
        if (int status = quantizer.quantize(i, &(*layers)[i], &result->layers, &attention, why)) return status;
        result->attention.push_back(attention);
        report("quantising", (i + 1.0) / static_cast<double>(layers->size()));
    }
    held_back_answers in_floats;
    if (int status = float_answers(&run, net.model(), &in_floats, why)) return status;
    if (int status = measure(&net, *texts, in_floats, &result->before_budget, why)) return status;
    result->result = result->before_budget;
    if (!options.budget.is_wanted()) return SQ_OK;
    return keep_budget(options.budget, {&source, &net, layers, &result->layers, &result->attention, texts, &in_floats}, &result->result, &result->steps, why);
}

int write_layer(const float_model &source, uint32_t i, const int8_layer &l, writer *out, message *why) {
    write_attention(i, final_attention(l), out);
    return for_each_linear(source, i, l, why, [&](linear_role role, const auto &linear) { write_linear(i, role, linear, out); });
}

int write_int8(const float_model &source, const convert_options &options, progress report, writer *out, convert_result *result, message *why) {
    calibration_texts texts;
    std::vector<int8_layer> layers;
    if (int status = quantize_layers(source, options, report, &texts, &layers, result, why)) return status;
    result->calibration_source = texts.source;
    result->n_texts = texts.n_texts;
    result->n_tokens = texts.n_tokens;
    if (int status = source.write_rest(true, source.config().n_layers, options.mode == quant_mode::dynamic_scales ? "dynamic" : "static", out, why)) return status;
    out->meta_string("calibration.source", texts.source);
    out->meta_u32("calibration.texts", texts.n_texts);
    out->meta_u32("calibration.tokens", texts.n_tokens);
    if (result->result.n_texts > 0) {
        out->meta_u32("agreement.texts", result->result.n_texts);
        out->meta_f32("agreement.cos", static_cast<float>(result->result.cos_mean));
        if (result->result.has_logits) out->meta_f32("agreement.kl", static_cast<float>(result->result.kl_mean));
    }
    for (uint32_t i = 0; i < layers.size(); i++)
        if (int status = write_layer(source, i, layers[i], out, why)) return status;
    return SQ_OK;
}

} // namespace

std::vector<std::string> input_files(const convert_options &options) {
    std::vector<std::string> inputs;
    if (!options.synthetic) inputs = files_in(options.checkpoint);
    if (!options.calibration_file.empty()) inputs.push_back(options.calibration_file);
    return inputs;
}

int convert(const convert_options &options, convert_result *result, message *why) {
    if (int status = check_output_file(options.output, input_files(options), why)) return status;
    const std::unique_ptr<float_model> model(options.synthetic ? new synthetic_model : new float_model);
    const float_model &source = *model;
    if (int status = model->open(options.checkpoint, why)) return status;
    result->description = describe(source.config());
    const progress report = options.report ? options.report : no_progress;
    writer out;
    int status = options.mode == quant_mode::none ? write_float(source, &out, why) : write_int8(source, options, report, &out, result, why);
    if (status != SQ_OK) return status;
    return out.save(options.output, why);
}

} // namespace sq
