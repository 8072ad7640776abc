// convert/float-model.cpp - see float-model.h.
#include "float-model.h"

#include <math.h>
#include <stdio.h>

#include "read-tokenizer.h"

namespace sq {

int float_model::open(const std::string &folder, message *why) {
    folder_ = folder;
    if (int status = read_config(folder, &config_, why)) return status;
    if (int status = weights_.open(config_.folder, why)) return status;
    return names_.open(weights_, config_, why);
}

int float_model::read(const std::string &role, std::vector<float> *out, message *why) const {
    const source_tensor *t = names_.find(role);
    if (!t) return fail(why, SQ_E_INTERNAL, "the checkpoint has no tensor for %s", role.c_str());
    out->resize(t->n_elements);
    return read_f32(*t, out->data(), why);
}

int float_model::linear_layer(uint32_t layer, linear_role role, float_linear *out, message *why) const {
    const std::string prefix = "layer." + std::to_string(layer) + ".";
    out->k = role == DOWN ? config_.ffn : config_.width;
    out->n = role == QKV ? 3 * config_.width : role == UP ? config_.ffn : config_.width;
    if (role != QKV) {
        const std::string name = prefix + ROLE_NAMES[role];
        if (int status = read(name + ".weight", &out->w, why)) return status;
        return read(name + ".bias", &out->bias, why);
    }
    out->w.clear();
    out->bias.clear();
    std::vector<float> w, bias;
    for (const char *part : {"query", "key", "value"}) {
        if (int status = read(prefix + part + ".weight", &w, why)) return status;
        if (int status = read(prefix + part + ".bias", &bias, why)) return status;
        out->w.insert(out->w.end(), w.begin(), w.end());
        out->bias.insert(out->bias.end(), bias.begin(), bias.end());
    }
    // softmax(q k' / sqrt(head width)): the division goes into the query.
    const size_t D = config_.width;
    const float scale = static_cast<float>(1 / sqrt(static_cast<double>(D) / config_.n_heads));
    for (size_t i = 0; i < D * D; i++) out->w[i] *= scale;
    for (size_t i = 0; i < D; i++) out->bias[i] *= scale;
    return SQ_OK;
}

int float_model::norm_layer(uint32_t layer, const char *name, std::vector<float> *gamma, std::vector<float> *beta, message *why) const {
    const std::string role = "layer." + std::to_string(layer) + "." + name;
    if (int status = read(role + ".gamma", gamma, why)) return status;
    return read(role + ".beta", beta, why);
}

namespace {

const char *activation_name(activation act) {
    switch (act) {
    case ACT_GELU_ERF: return "gelu";
    case ACT_GELU_TANH: return "gelu_tanh";
    case ACT_RELU: return "relu";
    case ACT_TANH: return "tanh";
    default: return "none";
    }
}

void write_plain(const std::string &name, const float *w, const float *bias, uint32_t n, uint32_t k, writer *out) {
    out->meta_string(name + ".form", "f32");
    out->panels_f32(name + ".weight", w, n, k);
    out->rows(name + ".bias", DT_F32, bias, 1, n);
}

} // namespace

void float_model::write_metadata(uint32_t n_layers, const char *quant, writer *out) const {
    const model_config &c = config_;
    const size_t end = folder_.find_last_not_of('/') + 1, start = folder_.rfind('/', end ? end - 1 : 0) + 1;
    out->meta_string("general.name", folder_.substr(start, end - start));
    if (!c.license.empty()) out->meta_string("general.license", c.license);
    out->meta_string("general.converter", std::string("sq-convert ") + sq_version_string());
    for (const source_file &f : weights_.files()) {
        char crc[16];
        snprintf(crc, sizeof crc, "%08x", f.crc());
        std::string key = "source." + f.name().substr(0, 200); // keys are printable ASCII without spaces, file names need not be
        for (char &ch : key)
            if (ch <= ' ' || ch > '~') ch = '_';
        out->meta_string(key, crc);
    }
    out->meta_string("model.architecture", c.model_type);
    out->meta_u32("model.layers", n_layers);
    out->meta_u32("model.width", c.width);
    out->meta_u32("model.heads", c.n_heads);
    out->meta_u32("model.ffn", c.ffn);
    out->meta_u32("model.vocab", c.vocab);
    out->meta_u32("model.positions", c.n_positions);
    out->meta_u32("model.position_offset", c.position_offset);
    out->meta_u32("model.types", c.n_types);
    out->meta_u32("model.max_tokens", c.max_tokens);
    out->meta_f32("model.norm_eps", c.norm_eps);
    out->meta_string("model.activation", activation_name(c.act));
    out->meta_string("model.pooling", c.pooling == SQ_POOL_MEAN ? "mean" : c.pooling == SQ_POOL_CLS ? "cls" : c.pooling == SQ_POOL_MAX ? "max" : "none");
    out->meta_u32("model.normalize", c.normalize);
    out->meta_string("model.quant", quant);
}

int float_model::write_embeddings(bool words_s8, writer *out, message *why) const {
    const model_config &c = config_;
    std::vector<float> x;
    if (int status = read("embed.words", &x, why)) return status;
    if (words_s8) {
        std::vector<int8_t> q(x.size());
        std::vector<float> scale(c.vocab);
        for (size_t row = 0; row < c.vocab; row++) scale[row] = quantize_row(&x[row * c.width], c.width, &q[row * c.width]);
        out->rows("embed.words", DT_S8, q.data(), c.vocab, c.width);
        out->rows("embed.words.scale", DT_F32, scale.data(), 1, c.vocab);
    } else {
        out->rows("embed.words", DT_F32, x.data(), c.vocab, c.width);
    }
    const uint32_t n_rows = c.position_offset + c.n_positions;
    if (int status = read("embed.positions", &x, why)) return status;
    out->rows("embed.positions", DT_F32, x.data(), n_rows, c.width);
    if (c.n_types == 0) return SQ_OK;
    if (int status = read("embed.types", &x, why)) return status;
    out->rows("embed.types", DT_F32, x.data(), c.n_types, c.width);
    return SQ_OK;
}

int float_model::write_norm(const std::string &name, writer *out, message *why) const {
    std::vector<float> x;
    for (const char *part : {".gamma", ".beta"}) {
        if (int status = read(name + part, &x, why)) return status;
        out->rows(name + part, DT_F32, x.data(), 1, config_.width);
    }
    return SQ_OK;
}

// A layer of the head, n x width.
int float_model::write_plain(const std::string &role, uint32_t n, writer *out, message *why) const {
    std::vector<float> w, bias;
    if (int status = read(role + ".weight", &w, why)) return status;
    if (int status = read(role + ".bias", &bias, why)) return status;
    sq::write_plain(role, w.data(), bias.data(), n, config_.width, out);
    return SQ_OK;
}

int float_model::write_head(writer *out, message *why) const {
    const model_config &c = config_;
    if (c.head == head_kind::none) return SQ_OK;
    const uint32_t n_labels = c.head == head_kind::answer ? 2 : static_cast<uint32_t>(c.labels.size());
    const bool has_dense = c.head == head_kind::classify;
    out->meta_string("head.kind", has_dense ? "classify" : c.head == head_kind::answer ? "answer" : "tag");
    out->meta_u32("head.n_labels", n_labels);
    out->meta_u32("head.multi_label", c.problem_type == "multi_label_classification");
    if (c.head != head_kind::answer) out->meta_strings("head.labels", c.labels);
    out->meta_u32("head.has_dense", has_dense);
    if (has_dense) {
        out->meta_string("head.activation", activation_name(c.head_act));
        if (int status = write_plain("head.dense", c.width, out, why)) return status;
    }
    return write_plain("head.out", n_labels, out, why);
}

int float_model::write_dense(writer *out, message *why) const {
    out->meta_u32("dense.count", static_cast<uint32_t>(config_.dense.size()));
    for (size_t i = 0; i < config_.dense.size(); i++) {
        const dense_module &d = config_.dense[i];
        const std::string name = "dense." + std::to_string(i);
        checkpoint weights;
        if (int status = weights.open(d.folder, why)) return status;
        const source_tensor *w = weights.find("linear.weight"), *b = weights.find("linear.bias");
        if (!w || w->shape != std::vector<uint64_t>{d.out, d.in} || (d.has_bias && (!b || b->shape != std::vector<uint64_t>{d.out})))
            return fail(why, SQ_E_FORMAT, "%s: linear.weight [%u, %u] or linear.bias [%u] is missing or misshapen", d.folder.c_str(), d.out, d.in, d.out);
        std::vector<float> values(w->n_elements), bias(d.out, 0.0f);
        if (int status = read_f32(*w, values.data(), why)) return status;
        if (d.has_bias)
            if (int status = read_f32(*b, bias.data(), why)) return status;
        out->meta_string(name + ".activation", activation_name(d.act));
        out->meta_u32(name + ".width", d.out);
        sq::write_plain(name, values.data(), bias.data(), d.out, d.in, out);
    }
    return SQ_OK;
}

int float_model::write_rest(bool words_s8, uint32_t n_layers, const char *quant, writer *out, message *why) const {
    write_metadata(n_layers, quant, out);
    if (int status = write_embeddings(words_s8, out, why)) return status;
    if (int status = write_norm("embed.norm", out, why)) return status;
    for (uint32_t i = 0; i < n_layers; i++) {
        const std::string p = "layer." + std::to_string(i) + ".";
        for (const char *norm : {"out_norm", "down_norm"})
            if (int status = write_norm(p + norm, out, why)) return status;
    }
    if (int status = write_head(out, why)) return status;
    if (int status = write_dense(out, why)) return status;
    return write_tokenizer(out, why);
}

int float_model::write_tokenizer(writer *out, message *why) const { return read_tokenizer(config_.folder, config_.vocab, config_.n_types, out, why); }

void write_linear(uint32_t layer, linear_role role, const float_linear &l, writer *out) {
    const std::string p = "layer." + std::to_string(layer) + "." + ROLE_NAMES[role];
    write_plain(p, l.w.data(), l.bias.data(), l.n, l.k, out);
}

void write_linear(uint32_t layer, linear_role role, const int8_linear &l, writer *out) {
    const std::string p = "layer." + std::to_string(layer) + "." + ROLE_NAMES[role];
    out->meta_string(p + ".form", l.is_dynamic ? "dynamic" : "static");
    out->panels_s8(p + ".weight", l.w.data(), l.n, l.k);
    out->rows(p + ".bias", DT_F32, l.bias.data(), 1, l.n);
    out->rows(p + ".scale", DT_F32, l.scale.data(), 1, l.n);
    out->rows(p + ".mul", DT_F32, l.mul.data(), 1, l.k);
    if (l.is_dynamic) out->rows(p + ".comp", DT_I32, l.comp.data(), 1, l.n);
    else out->meta_u32(p + ".zero", static_cast<uint32_t>(l.zero));
}

void write_attention(uint32_t layer, const int8_attention &a, writer *out) {
    const std::string p = "layer." + std::to_string(layer) + ".attention";
    out->meta_string(p + ".form", !a.is_s8 ? "f32" : a.is_fine ? "s8-fine" : "s8");
    if (!a.is_s8) return;
    out->rows(p + ".scale", DT_F32, a.scale.data(), 1, static_cast<uint32_t>(a.scale.size()));
    out->rows(p + ".mul", DT_F32, a.mul.data(), 1, static_cast<uint32_t>(a.mul.size()));
}

} // namespace sq
