// convert/calibration-texts.h - the texts that calibration runs: read or built in, tokenized as the model will see them, parted into those that are observed and those
// that are held back to judge the result.
#ifndef SQ_CONVERT_CALIBRATION_TEXTS_H
#define SQ_CONVERT_CALIBRATION_TEXTS_H

#include <string>
#include <vector>

#include "../sq-model.h"

namespace sq {

// Sequences that run together.
struct text_batch {
    std::vector<int32_t> ids, types;
    std::vector<uint32_t> starts{0};
    bool keep = false;         // very short texts, whose rows stay in every sample (observer::see)
    bool is_held_back = false; // not observed

    size_t n_tokens() const { return ids.size(); }
};

struct calibration_texts {
    std::vector<text_batch> batches;
    std::string source; // "built-in", or the CRC-32 of the file
    uint32_t n_texts = 0, n_tokens = 0, n_held_back = 0; // texts and tokens: observed
};

// Reads the file, or takes the built-in texts if path is empty. Texts longer than the model takes are cut. For a head that classifies, every other text is run as a
// pair with the one before it; for one that answers, every two texts are the passage of a question. Every eighth sequence is held back. Returns SQ_OK or an error.
int read_calibration_texts(const std::string &path, const sq_model &model, calibration_texts *out, message *why);

} // namespace sq

#endif
