// convert/network.h - a model in memory whose layers can be exchanged: what calibration runs, and what the result is judged by.
//
// It is the library's own model and forward pass (SQ_TAPS); embeddings, LayerNorms and head are those of the file that will be written.
#ifndef SQ_CONVERT_NETWORK_H
#define SQ_CONVERT_NETWORK_H

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "calibration-texts.h"
#include "float-model.h"
#include "writer.h"

namespace sq {

class network {
  public:
    // Opens it with word embeddings in s8 or f32. The linear layers must be set before they run. Returns SQ_OK or an error, as the others.
    int open(const float_model &source, bool words_s8, message *why);

    const sq_model &model() const { return *model_; }
    const kernels &table() const { return *model_->kernels; }

    void set(uint32_t layer, linear_role role, const float_linear &l);
    void set(uint32_t layer, linear_role role, const int8_linear &l);
    void set_attention(uint32_t layer, const int8_attention &a);

    // Reports the tensors of the following runs; a null function ends that.
    void watch(sq_tap tap) { sq_ctx_set_tap(ctx_.get(), tap); }

    // Runs a part of the encoder (sq-model.h). kind: SQ_HIDDEN, SQ_POOLED or SQ_LOGITS, as sq_forward gives them.
    int run(const text_batch &batch, sq_part part, int32_t kind, std::vector<float> *out, message *why);

  private:
    // A linear layer's arrays, padded and packed as in a file
    struct packed {
        aligned<float> w_f32, bias, scale, mul;
        aligned<int8_t> w_s8;
        aligned<int32_t> comp;
    };
    struct packed_attention {
        aligned<float> scale, mul;
    };
    struct model_deleter {
        void operator()(sq_model *m) const { sq_model_free(m); }
    };
    struct ctx_deleter {
        void operator()(sq_ctx *c) const { sq_ctx_free(c); }
    };

    int add_norms(const float_model &source, message *why);
    linear &at(uint32_t layer, linear_role role);

    aligned_image image_;
    std::vector<aligned<float>> norms_;
    std::vector<std::array<packed, 4>> layers_;
    std::vector<packed_attention> attention_;
    std::unique_ptr<sq_model, model_deleter> model_;
    std::unique_ptr<sq_ctx, ctx_deleter> ctx_;
};

} // namespace sq

#endif
