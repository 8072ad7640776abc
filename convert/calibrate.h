// convert/calibrate.h - runs texts through the library's own forward pass and observes what each linear layer and each attention reads.
#ifndef SQ_CONVERT_CALIBRATE_H
#define SQ_CONVERT_CALIBRATE_H

#include <array>
#include <string>
#include <vector>

#include "../sq-model.h"
#include "../sq-quant.h"

namespace sq {

enum linear_role : uint32_t { QKV = 0, OUT = 1, UP = 2, DOWN = 3 };
constexpr std::array<const char *, 4> ROLE_NAMES = {"qkv", "out", "up", "down"}; // also the tap's names

struct calibration {
    std::vector<std::array<observer, 4>> layers; // by linear_role
    std::vector<attention_observer> attention;   // by layer
    uint32_t n_texts = 0, n_tokens = 0;
};

// Called after every batch with the share of texts that are done, 0 to 1.
using progress = void (*)(const char *what, double share);

// Texts longer than the model takes are cut. For models whose head takes pairs, every other text is run as a pair with the one before it. The rows of the first n_kept texts stay in the samples (observer::see). Returns SQ_OK or an error with its reason.
int calibrate(sq_model *model, const std::vector<std::string> &texts, size_t n_kept, progress report, calibration *out, message *why);

} // namespace sq

#endif
