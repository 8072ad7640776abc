// examples/cli-info.cpp - `sq info`: what a model file holds and how this machine runs it.
#include "cli-common.h"

namespace cli {

constexpr size_t MAX_VALUE_BYTES = 200; // longer metadata, such as the vocabulary, is told by its size

static const char *pooling_name(uint32_t pooling) {
    switch (pooling) {
    case SQ_POOL_MEAN: return "mean of all tokens";
    case SQ_POOL_CLS: return "first token";
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

static void print_line(output *out, const char *key, const std::string &value) { out->write(pad_right(key, 17) + value + "\n"); }

static void print_meta(output *out, const sq_model *model) {
    out->write("metadata\n");
    const char *key;
    for (uint32_t i = 0; (key = sq_model_meta_key(model, i)) != nullptr; i++) {
        std::string value(MAX_VALUE_BYTES, '\0');
        size_t n = 0;
        const int32_t status = sq_model_meta(model, key, &value[0], value.size(), &n);
        if (status == SQ_OK) value = printable(value.substr(0, n), MAX_VALUE_BYTES);
        else if (status == SQ_E_SPACE) value = "(" + std::to_string(n) + " bytes)";
        else fail("metadata %s: %s", key, sq_status_string(status));
        out->write("  " + pad_right(printable(key, 60), 28) + " " + value + "\n");
    }
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
    print_line(&out, "vectors", i.normalize ? "scaled to length 1" : "not scaled");
    print_line(&out, "linear layers", quant_name(i.quant));
    print_line(&out, "instruction set", std::string(sq_isa_string(model.get())) + " (this CPU's best: " + sq_isa_best() + ")");
    print_meta(&out, model.get());
    out.commit();
}

} // namespace cli
