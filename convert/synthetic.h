// convert/synthetic.h - random models of well-known shapes, so that anyone can measure speed without weights.
#ifndef SQ_CONVERT_SYNTHETIC_H
#define SQ_CONVERT_SYNTHETIC_H

#include <string>
#include <vector>

#include "float-model.h"

namespace sq {

// Weights are random with a fixed seed; a few channels of every LayerNorm are eight times the others, as in trained models. The vocabulary has letters, digits, marks
// and some words, whatever the size of the word table.
class synthetic_model : public float_model {
  public:
    // shape: "bert-large", "bert-base", "distilbert", "xlm-r-base" or "minilm".
    int open(const std::string &shape, message *why) override;

  protected:
    int read(const std::string &role, std::vector<float> *out, message *why) const override;
    int write_tokenizer(writer *out, message *why) const override;
};

} // namespace sq

#endif
