// tests/bootstrap.h - intervals of a statistic over rows, by drawing rows with replacement: percentile intervals (Efron and Tibshirani 1993, chapter 13).
//
// A difference of two contenders on the same rows is paired: a statistic that takes both from the rows drawn, so that what makes a row hard cancels.
#ifndef SQ_TESTS_BOOTSTRAP_H
#define SQ_TESTS_BOOTSTRAP_H

#include <stdint.h>

#include <algorithm>
#include <random>
#include <vector>

struct interval {
    double low, high;
};

// Another seed moves a bound by sqrt(0.025 * 0.975 / 10000) / 0.0584 = 2.7 % of a standard error (0.0584: the normal density at its 2.5 % point).
constexpr uint32_t RESAMPLES = 10000, OUTSIDE = RESAMPLES / 40; // 2.5 % at each end

// The 95 % interval of statistic(rows), where rows are n_rows indices below n_rows: a double for a const std::vector<uint32_t> &. The same draws in every call.
template <class F> interval bootstrap(uint32_t n_rows, const F &statistic) {
    std::mt19937_64 random(1);
    std::vector<uint32_t> rows(n_rows);
    std::vector<double> values(RESAMPLES);
    for (double &v : values) {
        for (uint32_t &r : rows) r = static_cast<uint32_t>(random() % n_rows); // std::uniform_int_distribution differs between libraries
        v = statistic(rows);
    }
    std::sort(values.begin(), values.end());
    return {values[OUTSIDE], values[RESAMPLES - 1 - OUTSIDE]};
}

#endif
