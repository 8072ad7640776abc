// convert/convert.cpp - the order of a conversion: float model in memory, calibration, then one layer after the other quantised and written.
#include "convert.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "float-model.h"
#include "source-file.h"
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

// Quantises layer by layer. The network then is the INT8 model.
int quantize_layers(const float_model &source, const convert_options &options, progress report, network *net, calibration_texts *texts, std::vector<int8_layer> *layers,
                    convert_result *result, message *why) {
    if (int status = net->open(source, true, why)) return status;
    if (int status = read_calibration_texts(options.calibration_file, net->model(), texts, why)) return status;
    calibration run;
    if (int status = run.start(source, net, texts, why)) return status;
    layer_quantizer quantizer(source, net, &run, options.mode == quant_mode::dynamic_scales);
    layers->resize(source.config().n_layers);
    for (uint32_t i = 0; i < layers->size(); i++) {
        attention_report attention;
        if (int status = quantizer.quantize(i, &(*layers)[i], &result->layers, &attention, why)) return status;
        result->attention.push_back(attention);
        report("quantising", (i + 1.0) / static_cast<double>(layers->size()));
    }
    return SQ_OK;
}

void write_layer(uint32_t i, const int8_layer &l, writer *out) {
    write_attention(i, with_output(l.attention, l.linear[OUT]), out);
    for (linear_role role : {QKV, OUT, UP, DOWN}) write_linear(i, role, l.linear[role], out);
}

int write_int8(const float_model &source, const convert_options &options, progress report, writer *out, convert_result *result, message *why) {
    calibration_texts texts;
    std::vector<int8_layer> layers;
    {
        network net;
        if (int status = quantize_layers(source, options, report, &net, &texts, &layers, result, why)) return status;
    }
    result->n_texts = texts.n_texts;
    result->n_tokens = texts.n_tokens;
    if (int status = source.write_rest(true, source.config().n_layers, options.mode == quant_mode::dynamic_scales ? "dynamic" : "static", out, why)) return status;
    out->meta_string("calibration.source", texts.source);
    out->meta_u32("calibration.texts", texts.n_texts);
    out->meta_u32("calibration.tokens", texts.n_tokens);
    for (uint32_t i = 0; i < layers.size(); i++) write_layer(i, layers[i], out);
    return SQ_OK;
}

// Before hours of work rather than after: the output can be created, and is none of the files that are read.
int check_output(const convert_options &options, message *why) {
    struct stat out, in;
    const size_t slash = options.output.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : options.output.substr(0, slash + 1);
    if (access(folder.c_str(), W_OK | X_OK) != 0) return fail(why, SQ_E_IO, "cannot create %s: %s", options.output.c_str(), strerror(errno));
    if (stat(options.output.c_str(), &out) != 0) return SQ_OK;
    if (S_ISDIR(out.st_mode)) return fail(why, SQ_E_IO, "cannot create %s: it is a folder", options.output.c_str());
    std::vector<std::string> inputs(1, options.calibration_file);
    if (DIR *d = opendir(options.checkpoint.c_str())) {
        while (const dirent *entry = readdir(d)) inputs.push_back(options.checkpoint + "/" + entry->d_name);
        closedir(d);
    }
    for (const std::string &path : inputs)
        if (stat(path.c_str(), &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return fail(why, SQ_E_ARG, "the output %s is one of the files to read", options.output.c_str());
    return SQ_OK;
}

} // namespace

int convert(const convert_options &options, convert_result *result, message *why) {
    if (int status = check_output(options, why)) return status;
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
