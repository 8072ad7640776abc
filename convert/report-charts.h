// convert/report-charts.h - the pictures of a report, as SVG elements for a page of HTML. Their title says what is shown, their desc how to read it.
#ifndef SQ_CONVERT_REPORT_CHARTS_H
#define SQ_CONVERT_REPORT_CHARTS_H

#include <string>

#include "convert.h"
#include "report-channels.h"

namespace sq {

// The error of each linear layer before and after smoothing, and of attention, a panel each: layers from left to right, errors on one logarithmic scale.
std::string error_chart(const convert_result &r);

// Channels by rank, each as so many times the median one, before and after smoothing; both axes logarithmic, so that few outliers among thousands can be seen.
// most: the top of the scale, one for all strips of a page. name: a title, and unique in the page.
std::string channel_strip(const channel_figures &f, double most, const std::string &name);

} // namespace sq

#endif
