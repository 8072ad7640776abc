// examples/cli-info.cpp - `sq info`: what a model file holds and how this machine runs it.
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

// "22 static, 2 f32": the form of each linear layer, from the entries layer.I.LINEAR.form.
static std::string layer_forms(const sq_model *model) {
    std::map<std::string, size_t> counts;
    const char *key;
    for (uint32_t i = 0; (key = sq_model_meta_key(model, i)) != nullptr; i++) {
        const char *last = strrchr(key, '.');
        if (is_of_layer(key) && strcmp(last, ".form") == 0) counts[meta(model, key)]++;
    }
    std::string text;
    for (const auto &[form, n] : counts) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + form;
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
    print_line(&out, "linear layers", std::string(quant_name(i.quant)) + " (" + layer_forms(model.get()) + ")");
    print_line(&out, "instruction set", std::string(sq_isa_string(model.get())) + why_no_better(model.get()));
    print_meta(&out, model.get());
    out.commit();
}

} // namespace cli
