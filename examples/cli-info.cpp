// examples/cli-info.cpp - `sq info`: what a model file holds and how this machine runs it.
#include <stdio.h>
#include <string.h>

#include <map>

#include "cli-common.h"

namespace cli {

constexpr size_t MAX_VALUE_BYTES = 200; // longer metadata, such as the vocabulary, is told by its size

static const char *pooling_name(uint32_t pooling) {
    switch (pooling) {
    case SQ_POOL_MEAN: return "mean of all tokens";
    case SQ_POOL_CLS: return "first token";
    case SQ_POOL_MAX: return "highest value over all tokens";
    default: return "not stated (mean is taken)";
    }
}

static const char *quant_name(uint32_t quant) {
    switch (quant) {
    case SQ_QUANT_FLOAT: return "float";
    case SQ_QUANT_STATIC: return "INT8, activation scales from calibration";
    case SQ_QUANT_DYNAMIC: return "INT8, activation scales per token";
    default: return "unknown";
    }
}

// "classify: negative, positive"
static std::string head_text(const sq_model *model, const sq_model_info &info) {
    if (info.head == SQ_HEAD_NONE) return "none: vectors only";
    if (info.head == SQ_HEAD_ANSWER) return "answer";
    std::string text = info.head == SQ_HEAD_TAG ? "tag: " : info.multi_label ? "classify, labels are independent: " : "classify: ";
    for (uint32_t i = 0; i < info.n_labels; i++) text += (i ? ", " : "") + printable(label_name(model, i), 60);
    return printable(text, MAX_VALUE_BYTES);
}

static void print_line(output *out, const char *key, const std::string &value) { out->write(pad_right(key, 17) + value + "\n"); }

static std::string meta(const sq_model *model, const char *key) {
    std::string value(MAX_VALUE_BYTES, '\0');
    size_t n = 0;
    const int32_t status = sq_model_meta(model, key, &value[0], value.size(), &n);
    if (status == SQ_OK) return printable(value.substr(0, n), MAX_VALUE_BYTES);
    if (status == SQ_E_SPACE) return "(" + std::to_string(n) + " bytes)";
    fail("metadata %s: %s", key, sq_status_string(status));
}

static bool is_of_layer(const char *key) { return strncmp(key, "layer.", 6) == 0; }

static bool ends_with(const std::string &text, const std::string &tail) {
    return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

// What a file's layers are made of, from the entries layer.I.PART.form
struct layer_mix {
    std::map<std::string, size_t> linear, attention; // how many have each form
    double products = 0, f32_products = 0;           // multiply-adds for a token, of all linear layers and of those in f32

    explicit layer_mix(const sq_model *model) {
        const sq_model_info i = model_info(model);
        const double width = i.width, ffn = i.ffn_width;
        const std::map<std::string, double> sizes = {{".qkv.form", 3 * width * width}, {".out.form", width * width}, {".up.form", width * ffn}, {".down.form", width * ffn}};
        const char *key;
        for (uint32_t k = 0; (key = sq_model_meta_key(model, k)) != nullptr; k++) {
            if (!is_of_layer(key)) continue;
            if (ends_with(key, ".attention.form")) attention[meta(model, key)]++;
            for (const auto &[tail, size] : sizes) {
                if (!ends_with(key, tail)) continue;
                const std::string form = meta(model, key);
                linear[form]++;
                products += size;
                if (form == "f32") f32_products += size;
            }
        }
    }
};

// "22 static, 2 f32"
static std::string counted(const std::map<std::string, size_t> &forms) {
    std::string text;
    for (const auto &[form, n] : forms) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + form;
    return text;
}

// How many times as many multiply-adds the instruction set does in INT8 as in f32, at its peak: VPDPBUSD 64 where an FMA of as many bits does 16, TDPBUSD 16,384 in 16 cycles
// where two FMAs a cycle do 512; VPMADDWD twice an FMA's.
static double int8_advantage(const std::string &isa) { return isa == "amx" ? 32 : isa == "plain" ? 1 : isa == "avx2" ? 2 : 4; }

// What the layers in f32 cost an INT8 model
static std::string f32_cost(const layer_mix &mix, const std::string &isa) {
    char text[160];
    const double share = mix.f32_products / mix.products;
    snprintf(text, sizeof text, "%.1f MB more than in INT8; linear layers take about %.1f times as long (%s, by peak rates)", 3 * mix.f32_products / 1e6,
             1 - share + share * int8_advantage(isa), isa.c_str());
    return text;
}

static void print_meta(output *out, const sq_model *model) {
    out->write("metadata\n");
    const char *key;
    for (uint32_t i = 0; (key = sq_model_meta_key(model, i)) != nullptr; i++)
        if (!is_of_layer(key)) out->write("  " + pad_right(printable(key, 60), 28) + " " + meta(model, key) + "\n");
}

static std::string why_no_better(const sq_model *model) {
    const std::string why = sq_isa_reason(model);
    return why.empty() ? "" : " (" + why + ")";
}

void run_info(const options &o) {
    const model_ptr model = load_model(o);
    const sq_model_info i = model_info(model.get());
    output out("");
    print_line(&out, "file", o.model + (o.verify ? " (checksums are right)" : ""));
    print_line(&out, "bytes", std::to_string(i.file_bytes));
    print_line(&out, "parameters", std::to_string(i.n_params));
    print_line(&out, "layers", std::to_string(i.n_layers));
    print_line(&out, "width", std::to_string(i.width) + ", " + std::to_string(i.n_heads) + " heads, feed-forward " + std::to_string(i.ffn_width));
    print_line(&out, "vocabulary", std::to_string(i.vocab_size) + " tokens, " + std::to_string(i.n_types) + " segments");
    print_line(&out, "longest text", std::to_string(i.max_tokens) + " tokens (position table: " + std::to_string(i.max_positions) + ")");
    print_line(&out, "pooling", pooling_name(i.pooling));
    print_line(&out, "vectors", std::to_string(i.embed_width) + " numbers, " + (i.normalize ? "scaled to length 1" : "not scaled"));
    print_line(&out, "head", head_text(model.get(), i));
    const layer_mix mix(model.get());
    print_line(&out, "linear layers", std::string(quant_name(i.quant)) + " (" + counted(mix.linear) + ")");
    if (!mix.attention.empty()) print_line(&out, "attention", counted(mix.attention));
    if (i.quant != SQ_QUANT_FLOAT && mix.f32_products > 0) print_line(&out, "layers in f32", f32_cost(mix, sq_isa_string(model.get())));
    print_line(&out, "instruction set", std::string(sq_isa_string(model.get())) + why_no_better(model.get()));
    print_meta(&out, model.get());
    out.commit();
}

} // namespace cli
