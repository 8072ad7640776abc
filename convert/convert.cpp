// convert/convert.cpp - the order of a conversion: float model in memory, calibration, then one layer after the other quantised and written.
#include "convert.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <utility>

#include "../sq-cpu.h"
#include "float-model.h"
#include "source-file.h"
#include "synthetic.h"

namespace sq {

namespace {

const char *const BUILT_IN_TEXTS[] = {
#include "calibration-texts.inc"
};

struct model_deleter {
    void operator()(sq_model *m) const { sq_model_free(m); }
};
using model_handle = std::unique_ptr<sq_model, model_deleter>;

void no_progress(const char *, double) {}

// Short input is rare in files of texts and common in use, and the special tokens' activations are largest beside few words: these belong to every calibration.
const char *const SHORTEST_TEXTS[] = {"", "?", "no"};

// Non-empty lines of the file; *crc is the file's checksum.
int read_texts(const std::string &path, std::vector<std::string> *texts, uint32_t *crc, message *why) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    source_file file;
    if (int status = file.open(folder, path.substr(slash == std::string::npos ? 0 : slash + 1), why)) return status;
    const char *p = reinterpret_cast<const char *>(file.data()), *end = p + file.size();
    *crc = file.crc();
    while (p < end) {
        const char *eol = static_cast<const char *>(memchr(p, '\n', static_cast<size_t>(end - p)));
        const char *past = eol ? eol : end;
        if (past > p && past[-1] == '\r') past--;
        if (past > p) texts->emplace_back(p, past);
        p = eol ? eol + 1 : end;
    }
    return texts->empty() ? fail(why, SQ_E_FORMAT, "%s has no text to calibrate on", path.c_str()) : SQ_OK;
}

std::string describe(const model_config &c) {
    char text[160];
    snprintf(text, sizeof text, "%s, %u layers, %u wide, %u heads, vocabulary of %u", c.model_type.c_str(), c.n_layers, c.width, c.n_heads, c.vocab);
    return text;
}

// A float model file: all layers as they are.
int write_float(const float_model &source, writer *out, message *why) {
    if (int status = source.write_rest(false, "float", out, why)) return status;
    float_linear l;
    for (uint32_t i = 0; i < source.config().n_layers; i++)
        for (linear_role role : {QKV, OUT, UP, DOWN}) {
            if (int status = source.linear_layer(i, role, &l, why)) return status;
            write_linear(i, role, l, out);
        }
    return SQ_OK;
}

// Observes the float model's own forward pass over the calibration texts.
int observe(const float_model &source, const std::vector<std::string> &texts, progress report, calibration *seen, message *why) {
    sq_model_params params{};
    params.size = sizeof params;
    aligned_image image;
    {
        writer w;
        if (int status = write_float(source, &w, why)) return status;
        image = w.take_image();
    }
    sq_model *raw = nullptr;
    if (int status = sq_model_load_memory(image.data(), image.size(), &params, &raw, why->text, sizeof why->text)) return status;
    const model_handle model(raw);
    return calibrate(model.get(), texts, std::size(SHORTEST_TEXTS), report, seen, why);
}

// Divides the value projection's rows and bias by s, so that the attention output arrives divided.
void divide_values(const std::vector<float> &s, float_linear *qkv) {
    const size_t width = s.size();
    for (size_t row = 0; row < width; row++) {
        float *w = &qkv->w[(2 * width + row) * qkv->k];
        for (size_t j = 0; j < qkv->k; j++) w[j] /= s[row];
        qkv->bias[2 * width + row] /= s[row];
    }
}

// A static layer whose error passes this, where per-row scales would leave at most two thirds of it, becomes dynamic: a few activations then need a range in which
// the others drown. In all-MiniLM-L6-v2 these are two of the six FFN-down layers; with them static the lowest cosine of 32 sentence vectors is 0.9925, so 0.9958.
constexpr double STATIC_ERROR_LIMIT = 0.025, DYNAMIC_GAIN = 2.0 / 3;

choice choose(const kernels &k, const float_linear &l, const observer &seen, bool is_dynamic) {
    choice c = search(k, l, seen, is_dynamic);
    if (is_dynamic || c.error <= STATIC_ERROR_LIMIT) return c;
    choice d = search(k, l, seen, true);
    return d.error <= DYNAMIC_GAIN * c.error ? d : c;
}

// Attention is done in integers while its output is off by no more than `fine`, and with weights of 8 bits while it is off by no more than `coarse`. What is off is a
// part of a sum with the residual, which is several times as large: MiniLM's 3 % move a sentence vector's cosine by 0.0003, bert-squad's 1 to 2 % change 2 % of 500
// answers (make eval), and the 5 to 10 % of a random BERT-large with outlier channels leave the cosine of its hidden states above 0.9999.
struct attention_limits {
    double coarse, fine;
};
constexpr attention_limits STATIC_ATTENTION = {0.02, 0.15}, DYNAMIC_ATTENTION = {0.008, 0.15};

// Chooses the form of attention and fits the layers around it: QKV then gives rounded steps, and attention writes what a static output layer reads.
int8_attention choose_attention(const kernels &k, const attention_observer &seen, const model_config &config, const attention_limits &limits, int8_linear *qkv,
                                const int8_linear &out) {
    if (!attention_s8_fits(seen.width() / config.n_heads, config.n_positions)) return {};
    int8_attention a = quantize_attention(k, seen, config.n_heads, limits.coarse);
    a.is_s8 = a.error <= limits.fine && *std::max_element(a.scale.begin(), a.scale.end()) <= 1;
    if (!a.is_s8) return a;
    fold_steps(a, qkv);
    for (size_t c = 0; c < a.mul.size() && !out.is_dynamic; c++) a.mul[c] *= out.mul[c];
    return a;
}

// Chooses and writes the four linear layers of one transformer layer. The attention output comes first, since its smoothing changes the value projection.
int quantize_layer(const float_model &source, uint32_t i, const kernels &k, bool is_dynamic, calibration *seen, writer *out, convert_result *result,
                   message *why) {
    std::vector<float> value_divisor;
    std::array<int8_linear, 4> q;
    std::array<choice, 4> chosen;
    for (linear_role role : {OUT, QKV, UP, DOWN}) {
        float_linear l;
        observer &input = seen->layers[i][role];
        if (int status = source.linear_layer(i, role, &l, why)) return status;
        if (role == QKV) divide_values(value_divisor, &l);
        chosen[role] = choose(k, l, input, is_dynamic);
        const bool folded = role == OUT;
        if (folded) {
            value_divisor = chosen[role].s;
            input.divide(value_divisor);
            seen->attention[i].divide_values(value_divisor);
        }
        q[role] = quantize(l, input, chosen[role].s, chosen[role].is_dynamic, folded);
    }
    const attention_limits &limits = is_dynamic ? DYNAMIC_ATTENTION : STATIC_ATTENTION;
    const int8_attention attention = choose_attention(k, seen->attention[i], source.config(), limits, &q[QKV], q[OUT]);
    write_attention(i, attention, out);
    result->attention.push_back({!attention.is_s8 ? "f32" : attention.is_fine ? "16 bits" : "8 bits", attention.clip, attention.error});
    for (linear_role role : {QKV, OUT, UP, DOWN}) {
        write_linear(i, role, q[role], out);
        result->layers.push_back({i, role, std::move(chosen[role])});
    }
    return SQ_OK;
}

int write_int8(const float_model &source, const convert_options &options, progress report, writer *out, convert_result *result, message *why) {
    std::vector<std::string> texts;
    uint32_t crc = 0;
    if (options.calibration_file.empty()) texts.assign(std::begin(BUILT_IN_TEXTS), std::end(BUILT_IN_TEXTS));
    else if (int status = read_texts(options.calibration_file, &texts, &crc, why)) return status;
    texts.insert(texts.begin(), std::begin(SHORTEST_TEXTS), std::end(SHORTEST_TEXTS));
    calibration seen;
    if (int status = observe(source, texts, report, &seen, why)) return status;
    result->n_texts = seen.n_texts;
    result->n_tokens = seen.n_tokens;

    const bool is_dynamic = options.mode == quant_mode::dynamic_scales;
    const kernels *k = nullptr;
    if (int status = choose_kernels(nullptr, &k, nullptr, why)) return status;
    if (int status = source.write_rest(true, is_dynamic ? "dynamic" : "static", out, why)) return status;
    char crc_text[16];
    snprintf(crc_text, sizeof crc_text, "%08x", crc);
    out->meta_string("calibration.source", options.calibration_file.empty() ? "built-in" : crc_text);
    out->meta_u32("calibration.texts", seen.n_texts);
    out->meta_u32("calibration.tokens", seen.n_tokens);
    const uint32_t n = source.config().n_layers;
    for (uint32_t i = 0; i < n; i++) {
        if (int status = quantize_layer(source, i, *k, is_dynamic, &seen, out, result, why)) return status;
        report("quantising", (i + 1.0) / n);
    }
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
