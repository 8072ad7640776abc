// convert/report.h - what a conversion did, for people (one HTML page) and for programs (JSON): the same numbers, all from convert_options and convert_result.
//
// The page needs nothing but itself: no scripts, no fonts, no pictures from elsewhere. Its tables have every number that its pictures show.
//
// The JSON is one object. Errors are relative (0.01 is 1 %), as sq-quant.h defines them; a number that is not finite is null.
//
//     "sq"               version of the converter
//     "checkpoint"       the folder, or the name of the shape if "synthetic" is true (invalid UTF-8 replaced, here and in "output")
//     "model"            "BERT, 6 layers, 384 wide, ..."
//     "output"           the model file
//     "mode"             "static", "fast", "dynamic" or "float"
//     "calibration"      null for float; {"source": "built-in" or the file, "crc32": of the file or null, "texts", "tokens": observed}
//     "held_back"        null if no text was held back; {"texts", "cosine_lowest", "cosine_mean": of final vectors to the float model's, "kl_mean", "kl_highest": of
//                        its probabilities, nats; null without a head}
//     "budget"           null, or what the means were to reach: {"cosine", "kl"}, null if not demanded
//     "before_budget"    the same, before the budget's steps
//     "budget_steps"     in order: {"layer", "part": of the linear layers, or "attention", "form": what it became, "held_back": then, as above}
//     "attention"        by layer: {"layer", "form": "8 bits", "16 bits" (weights of softmax) or "f32", "clip", "error": of integer attention, even if it is f32}
//     "linear_layers"    {"layer", "part": "qkv", "out", "up" or "down", "form": "static", "dynamic" or "float", "smoothing", "clip": part of the observed range that is
//                        kept, "error_without_smoothing", "error": in INT8, even if the budget left the layer in float, "before" and "after" smoothing: {"median":
//                        largest magnitude of the median channel, "outliers": number of channels above 6 times that}, "largest": up to 5 channels, by magnitude before smoothing,
//                        "channels": {"lo", "hi": before smoothing, "factor": smoothing divides by it}, an array each, by channel}. The heads change their bases before
//                        "out" is smoothed: its "after" is null, and its factors are those of the changed channels
#ifndef SQ_CONVERT_REPORT_H
#define SQ_CONVERT_REPORT_H

#include <string>
#include <vector>

#include "convert.h"

namespace sq {

std::string report_html(const convert_options &options, const convert_result &result);
std::string report_json(const convert_options &options, const convert_result &result);

// Before the conversion: each can be created, and is no other one, none of the files to read, not the model file. Returns SQ_OK or an error, as the others.
int check_reports(const std::vector<std::string> &paths, const convert_options &options, message *why);

// JSON if the name ends in .json, otherwise HTML.
int write_report(const std::string &path, const convert_options &options, const convert_result &result, message *why);

// ---- what both say in the same words ----

const char *mode_of(const convert_options &options); // "static", "fast", "dynamic", "float"
const char *form_of(const layer_report &l);          // "static", "dynamic", "float"

} // namespace sq

#endif
