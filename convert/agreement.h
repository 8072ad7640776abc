// convert/agreement.h - how near the INT8 model's answers come to the float model's, on texts that calibration has not seen.
#ifndef SQ_CONVERT_AGREEMENT_H
#define SQ_CONVERT_AGREEMENT_H

#include <vector>

#include "calibrate.h"

namespace sq {

struct agreement {
    uint32_t n_texts = 0; // 0: nothing was held back, the rest says nothing
    double cos_lowest = 1, cos_mean = 1; // of pooled vectors, by text
    bool has_logits = false;
    // Divergence of the float model's probabilities from the INT8 model's, sum of p log(p / q) in nats: of a text's labels, or the mean over its tokens' labels or, for a
    // head that answers, its start and its end. One label alone, or labels that do not exclude each other: of yes and no, the mean over labels.
    double kl_mean = 0, kl_highest = 0;
};

// The float model's answers to the held-back texts, once calibration has passed the last layer.
struct held_back_answers {
    std::vector<std::vector<float>> vectors, logits; // by batch; logits only if the model has a head
};
int float_answers(calibration *texts, const sq_model &model, held_back_answers *out, message *why);

// Runs the network, as it is set now, over the held-back texts. Returns SQ_OK or an error.
int measure(network *net, const calibration_texts &texts, const held_back_answers &in_floats, agreement *out, message *why);

} // namespace sq

#endif
