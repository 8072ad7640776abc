// convert/budget.h - keeps an accuracy budget: layers in dearer forms, those that gain most first, until the held-back texts agree well enough with the float model.
#ifndef SQ_CONVERT_BUDGET_H
#define SQ_CONVERT_BUDGET_H

#include <vector>

#include "agreement.h"
#include "quantize.h"

namespace sq {

// What the mean over the held-back texts must reach; 0: no such demand.
struct budget {
    double cos = 0; // of vectors, at least
    double kl = 0;  // of logits, at most

    bool is_wanted() const { return cos > 0 || kl > 0; }
    bool is_kept(const agreement &a) const { return (cos == 0 || a.cos_mean >= cos) && (kl == 0 || a.kl_mean <= kl); }
};

// A step that the budget asked for: a linear layer or attention in a dearer form, and what the held-back texts then say.
struct budget_step {
    uint32_t layer;
    const char *part; // of ROLE_NAMES, or "attention"
    const char *form; // "dynamic" or "float"; attention: "float"
    agreement after;
};

// The INT8 model whose forms are to be chosen: its layers as they were quantised, and the network that holds them.
struct quantized_model {
    const float_model *source;
    network *net;
    std::vector<int8_layer> *layers;
    std::vector<layer_report> *reports; // four for each layer, by linear_role
    std::vector<attention_report> *attention;
    const calibration_texts *texts;
    const held_back_answers *in_floats;
};

// First static layers become dynamic, then attention goes back to f32, then linear layers do. Of one kind, which comes first is measured: the gain of each by itself.
// `now`: the agreement so far, then that with the steps. Returns SQ_OK, or an error with its reason, also if all layers in f32 are not enough: the word embeddings
// stay in s8.
int keep_budget(const budget &wanted, const quantized_model &m, agreement *now, std::vector<budget_step> *steps, message *why);

} // namespace sq

#endif
