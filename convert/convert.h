// convert/convert.h - the whole conversion: checkpoint folder in, model file out.
#ifndef SQ_CONVERT_CONVERT_H
#define SQ_CONVERT_CONVERT_H

#include <string>
#include <vector>

#include "agreement.h"
#include "budget.h"
#include "quantize.h"

namespace sq {

// Called now and then with the share of the work that is done, 0 to 1.
using progress = void (*)(const char *what, double share);

struct convert_options {
    std::string checkpoint;              // folder; or, if synthetic, the name of a shape (synthetic.h)
    bool synthetic = false;
    std::string output;                  // file; written beside it and renamed
    quant_mode mode = quant_mode::static_scales;
    std::string calibration_file;        // one text a line; empty: the built-in texts
    sq::budget budget;                   // of an INT8 model
    progress report = nullptr;           // null: no progress
};

struct convert_result {
    std::string description;          // "BERT, 6 layers, 384 wide, ..."
    std::string calibration_source;   // "built-in", or the CRC-32 of the file of texts
    uint32_t n_texts = 0, n_tokens = 0; // observed by calibration
    agreement before_budget, result;  // on held-back texts; equal without a budget
    std::vector<budget_step> steps;   // in order
    std::vector<layer_report> layers; // empty for a float model
    std::vector<attention_report> attention; // by layer; empty for a float model
};

// What a conversion reads: no output may take the place of one of these.
std::vector<std::string> input_files(const convert_options &options);

// Returns SQ_OK, or an error with its reason; then no output file exists (an older one of that name stays).
int convert(const convert_options &options, convert_result *result, message *why);

} // namespace sq

#endif
