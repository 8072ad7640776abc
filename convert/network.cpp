// convert/network.cpp - see network.h.
#include "network.h"

#include <string.h>

#include <algorithm>

namespace sq {

// The image has one encoder layer, so that it is a whole model, and the others are added to it: of a large model no more than the layers that are set are in memory.
int network::open(const float_model &source, bool words_s8, message *why) {
    writer w;
    if (int status = source.write_rest(words_s8, 1, "float", &w, why)) return status;
    float_linear l;
    for (linear_role role : {QKV, OUT, UP, DOWN}) {
        if (int status = source.linear_layer(0, role, &l, why)) return status;
        write_linear(0, role, l, &w);
    }
    image_ = w.take_image();
    sq_model_params params{};
    params.size = sizeof params;
    sq_model *raw = nullptr;
    if (int status = sq_model_load_memory(image_.data(), image_.size(), &params, &raw, why->text, sizeof why->text)) return status;
    model_.reset(raw);
    if (int status = add_norms(source, why)) return status;
    sq_ctx *ctx = nullptr;
    if (int status = sq_ctx_create(raw, nullptr, &ctx, why->text, sizeof why->text)) return status;
    ctx_.reset(ctx);
    return SQ_OK;
}

int network::add_norms(const float_model &source, message *why) {
    const uint32_t n = source.config().n_layers;
    layers_.resize(n);
    attention_.resize(n);
    model_->layers.resize(n);
    model_->arch.n_layers = n;
    std::vector<float> gamma, beta;
    for (uint32_t i = 0; i < n; i++)
        for (const char *name : {"out_norm", "down_norm"}) {
            if (int status = source.norm_layer(i, name, &gamma, &beta, why)) return status;
            norms_.push_back(padded(gamma));
            norms_.push_back(padded(beta));
            (strcmp(name, "out_norm") == 0 ? model_->layers[i].out_norm : model_->layers[i].down_norm) = {norms_[norms_.size() - 2].get(), norms_.back().get()};
        }
    return SQ_OK;
}

linear &network::at(uint32_t layer, linear_role role) {
    sq::layer &l = model_->layers[layer];
    return role == QKV ? l.qkv : role == OUT ? l.out : role == UP ? l.up : l.down;
}

void network::set(uint32_t layer, linear_role role, const float_linear &l) {
    packed p;
    p.w_f32 = aligned<float>(round_up(l.n, 16) * l.k);
    pack_f32(l.w.data(), l.n, l.k, p.w_f32.get());
    p.bias = padded(l.bias);
    linear &view = at(layer, role) = linear();
    view.n = l.n;
    view.k = l.k;
    view.w = p.w_f32.get();
    view.bias = p.bias.get();
    layers_[layer][role] = std::move(p);
}

void network::set(uint32_t layer, linear_role role, const int8_linear &l) {
    packed p;
    p.w_s8 = aligned<int8_t>(round_up(l.n, 16) * round_up(l.k, 64));
    pack_s8(l.w.data(), l.n, l.k, p.w_s8.get());
    p.bias = padded(l.bias);
    p.scale = padded(l.scale);
    p.comp = padded(l.comp);
    p.mul = padded(l.mul);
    linear &view = at(layer, role) = linear();
    view.n = l.n;
    view.k = l.k;
    view.is_s8 = true;
    view.is_dynamic = l.is_dynamic;
    view.w = p.w_s8.get();
    view.bias = p.bias.get();
    view.scale = p.scale.get();
    view.comp = l.is_dynamic ? p.comp.get() : nullptr;
    view.mul = p.mul.get();
    view.zero = l.zero;
    layers_[layer][role] = std::move(p);
}

void network::set_attention(uint32_t layer, const int8_attention &a) {
    attention_[layer] = {padded(a.scale), padded(a.mul)};
    model_->layers[layer].attention = {a.is_s8, a.is_fine, attention_[layer].scale.get(), attention_[layer].mul.get()};
}

int network::run(const text_batch &batch, sq_part part, int32_t kind, std::vector<float> *out, message *why) {
    const sq_batch b{sizeof b, static_cast<uint32_t>(batch.starts.size()) - 1, batch.ids.data(), batch.types.data(), batch.starts.data()};
    const architecture &a = model_->arch;
    const bool by_sequence = kind == SQ_POOLED || (kind == SQ_LOGITS && model_->head.kind == SQ_HEAD_CLASSIFY);
    out->resize((by_sequence ? b.n_seqs : batch.n_tokens()) * (kind == SQ_LOGITS ? model_->head.n_labels : a.width));
    sq_ctx_set_part(ctx_.get(), part);
    size_t n = 0;
    const int status = sq_forward(ctx_.get(), &b, kind, out->data(), out->size(), &n);
    return status == SQ_OK ? status : fail(why, status, "calibration: %s", sq_ctx_error(ctx_.get()));
}

} // namespace sq
