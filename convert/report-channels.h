// convert/report-channels.h - what a report says about the channels of a linear layer's input: how far each reaches, before and after smoothing, and which stand out.
#ifndef SQ_CONVERT_REPORT_CHANNELS_H
#define SQ_CONVERT_REPORT_CHANNELS_H

#include <stdint.h>

#include <vector>

#include "quantize.h"

namespace sq {

// A channel is an outlier if its largest magnitude is above so many times that of the median channel: without smoothing that one has 42 steps of 255 left, or fewer.
constexpr double OUTLIER_RATIO = 6;

// The largest magnitude of each channel
struct magnitudes {
    std::vector<double> sorted; // [k] largest first
    double median = 0;
    size_t n_outliers = 0;

    // In medians; infinite beside a median of 0, 0 for a channel that is always 0.
    double ratio(double magnitude) const;
};

struct channel {
    uint32_t index;
    float lo, hi;         // before smoothing
    float factor;         // smoothing divides by it
    double before, after; // smoothing: largest magnitude
};

struct channel_figures {
    magnitudes before, after;     // smoothing
    std::vector<channel> largest; // before smoothing, largest first: up to N_LARGEST
    // False for the attention output: its heads change their bases before smoothing, so each channel afterwards is a sum of several, and its factor is not one of a
    // channel before. Then `after` and what is after in `largest` say nothing.
    bool has_after = true;
};
constexpr size_t N_LARGEST = 5;

channel_figures channels_of(const layer_report &l);

} // namespace sq

#endif
