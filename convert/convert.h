// convert/convert.h - the whole conversion: checkpoint folder in, model file out.
#ifndef SQ_CONVERT_CONVERT_H
#define SQ_CONVERT_CONVERT_H

#include <string>
#include <vector>

#include "../sq-quant.h"
#include "calibrate.h"

namespace sq {

enum class quant_mode { static_scales, dynamic_scales, none };

struct convert_options {
    std::string checkpoint;              // folder; or, if synthetic, the name of a shape (synthetic.h)
    bool synthetic = false;
    std::string output;                  // file; written beside it and renamed
    quant_mode mode = quant_mode::static_scales;
    std::string calibration_file;        // one text a line; empty: the built-in texts
    progress report = nullptr;           // null: no progress
};

// What became of one linear layer.
struct layer_report {
    uint32_t layer;
    linear_role role;
    choice chosen; // errors are relative, on a sample of the calibration rows
};

struct attention_report {
    const char *weights; // of softmax: "8 bits", "16 bits", or "f32": all of attention in f32
    float clip;   // as in int8_attention
    double error; // relative, of integer attention's output on calibration texts
};

struct convert_result {
    std::string description;          // "BERT, 6 layers, 384 wide, ..."
    uint32_t n_texts = 0, n_tokens = 0; // of calibration
    std::vector<layer_report> layers; // empty for a float model
    std::vector<attention_report> attention; // by layer; empty for a float model
};

// Returns SQ_OK, or an error with its reason; then no output file exists (an older one of that name stays).
int convert(const convert_options &options, convert_result *result, message *why);

} // namespace sq

#endif
