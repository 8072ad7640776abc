// convert/calibrate.h - the calibration texts on their way through the encoder, layer by layer: as the float model has them, and as the layers that are quantised
// already really give them.
#ifndef SQ_CONVERT_CALIBRATE_H
#define SQ_CONVERT_CALIBRATE_H

#include <array>
#include <string>
#include <vector>

#include "../sq-quant.h"
#include "calibration-texts.h"
#include "float-model.h"
#include "hidden-states.h"
#include "network.h"

namespace sq {

// What a run over the texts collects of one layer; null: not of this.
struct observation {
    std::array<layer_input *, 4> inputs{}; // by linear_role; ranges and rows, and moments if these are set up
    attention_observer *attention = nullptr;
};

// Both hold the hidden states that the next layer reads.
class calibration {
  public:
    // Embeds the texts twice: in f32, and by `real`, as the file will have it. Both must outlive this. Returns SQ_OK or an error, as the others.
    int start(const float_model &source, network *real, const calibration_texts *texts, message *why);

    // The float model's hidden states go through a layer of `real`, which must be set as the float model's; means [role][k]: of the inputs of its linear layers.
    int advance_float(uint32_t layer, std::array<std::vector<double>, 4> *means, message *why);
    // The real hidden states are run through a layer as it is set, and stay where they are.
    int observe(uint32_t layer, const observation &wanted, message *why);
    int advance_real(uint32_t layer, message *why);

    // After the last layer: what the float model gives for the texts that are held back, batch by batch; kind as in sq_forward.
    int held_back(int32_t kind, std::vector<std::vector<float>> *out, message *why);

  private:
    int advance(uint32_t layer, size_t batch, hidden_states *states, message *why);
    int observe_batch(uint32_t layer, size_t batch, const observation &wanted, message *why);

    network *real_ = nullptr;
    const calibration_texts *texts_ = nullptr;
    std::vector<size_t> first_row_; // of each batch
    hidden_states float_states_, real_states_;
};

} // namespace sq

#endif
