// convert/float-model.h - a checkpoint seen as the layers of sq's one forward pass, in f32.
//
// Here end the differences between checkpoints: names, stacking of query, key and value, the scale of the query, position offsets.
#ifndef SQ_CONVERT_FLOAT_MODEL_H
#define SQ_CONVERT_FLOAT_MODEL_H

#include <array>
#include <string>
#include <vector>

#include "../sq-quant.h"
#include "names.h"
#include "read-checkpoint.h"
#include "read-config.h"
#include "writer.h"

namespace sq {

enum linear_role : uint32_t { QKV = 0, OUT = 1, UP = 2, DOWN = 3 };
constexpr std::array<const char *, 4> ROLE_NAMES = {"qkv", "out", "up", "down"}; // also the tap's names

class float_model {
  public:
    virtual ~float_model() = default;

    virtual int open(const std::string &folder, message *why);

    const model_config &config() const { return config_; }

    // One linear layer; QKV stacks query (times 1 / sqrt(head width), weights and bias), key and value.
    int linear_layer(uint32_t layer, linear_role role, float_linear *out, message *why) const;

    // A layer's LayerNorm, "out_norm" or "down_norm": gamma and beta [width].
    int norm_layer(uint32_t layer, const char *name, std::vector<float> *gamma, std::vector<float> *beta, message *why) const;

    // Everything but the encoder's linear layers: metadata, embedding tables (words as s8 or f32), LayerNorms, head, Dense modules, tokenizer. The model written has
    // the first n_layers layers of the encoder.
    int write_rest(bool words_s8, uint32_t n_layers, const char *quant, writer *out, message *why) const;

  protected:
    // The values of the tensor that plays a role (names.h).
    virtual int read(const std::string &role, std::vector<float> *out, message *why) const;
    virtual int write_tokenizer(writer *out, message *why) const;

    std::string folder_;
    model_config config_;

  private:
    int write_embeddings(bool words_s8, writer *out, message *why) const;
    int write_norm(const std::string &name, writer *out, message *why) const;
    int write_plain(const std::string &role, uint32_t n, writer *out, message *why) const;
    int write_head(writer *out, message *why) const;
    int write_dense(writer *out, message *why) const;
    void write_metadata(uint32_t n_layers, const char *quant, writer *out) const;

    checkpoint weights_;
    tensor_names names_;
};

// Appends a layer's entries, "layer.I.ROLE.*".
void write_linear(uint32_t layer, linear_role role, const float_linear &l, writer *out);
void write_linear(uint32_t layer, linear_role role, const int8_linear &l, writer *out);
// "layer.I.attention.*"
void write_attention(uint32_t layer, const int8_attention &a, writer *out);

} // namespace sq

#endif
