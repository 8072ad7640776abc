// convert/report-channels.cpp - see report-channels.h.
#include "report-channels.h"

#include <math.h>

#include <algorithm>
#include <functional>

namespace sq {

namespace {

magnitudes summarised(std::vector<double> of_channels) {
    magnitudes m;
    m.sorted = std::move(of_channels);
    std::sort(m.sorted.begin(), m.sorted.end(), std::greater<double>());
    const size_t k = m.sorted.size();
    if (k > 0) m.median = (m.sorted[(k - 1) / 2] + m.sorted[k / 2]) / 2;
    const auto first_other = std::find_if(m.sorted.begin(), m.sorted.end(), [&](double x) { return m.ratio(x) <= OUTLIER_RATIO; });
    m.n_outliers = static_cast<size_t>(first_other - m.sorted.begin());
    return m;
}

} // namespace

double magnitudes::ratio(double magnitude) const { return magnitude > 0 ? magnitude / median : 0; }

channel_figures channels_of(const layer_report &l) {
    std::vector<channel> all(l.lo.size());
    std::vector<double> before, after;
    for (size_t j = 0; j < all.size(); j++) {
        const float factor = j < l.chosen.s.size() ? l.chosen.s[j] : 1;
        const double reach = std::max(fabs(static_cast<double>(l.lo[j])), fabs(static_cast<double>(l.hi[j])));
        all[j] = {static_cast<uint32_t>(j), l.lo[j], l.hi[j], factor, reach, reach / static_cast<double>(factor)};
        before.push_back(all[j].before);
        after.push_back(all[j].after);
    }
    channel_figures f{summarised(std::move(before)), summarised(std::move(after)), {}, l.role != OUT};
    std::stable_sort(all.begin(), all.end(), [](const channel &a, const channel &b) { return a.before > b.before; });
    all.resize(std::min(all.size(), N_LARGEST));
    f.largest = std::move(all);
    return f;
}

} // namespace sq
