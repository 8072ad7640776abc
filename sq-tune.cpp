// sq-tune.cpp - see sq-tune.h.
#include "sq-tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

namespace sq {

namespace {

constexpr uint32_t COLD_PASSES = 1; // of each range, not counted: caches and pages are filled
constexpr uint32_t CYCLES = 2;      // in each, every candidate runs every layer; the better one counts, since a neighbour's noise only adds
constexpr size_t LEAST_ROWS = 16;   // below, a layer's time is that of reading its weights, whatever the number of tokens
constexpr size_t N_RANGES = 24;   // token counts up to 8, 16, 32, ... 2^26
constexpr size_t ROWS_EACH = 32;  // with so many rows for each thread, sharing by rows is the fallback: then weights are read often enough from each cache

size_t range_of(size_t T) {
    size_t i = 0;
    while (i + 1 < N_RANGES && T > (size_t{8} << i)) i++;
    return i;
}

} // namespace

void tuner::init(uint32_t n_threads, uint32_t n_tiles, bool enabled) {
    enabled_ = enabled;
    n_threads_ = n_threads;
    for (uint32_t tile = 0; tile < n_tiles; tile++) {
        if (n_threads > 1) candidates_.push_back({false, 0, tile}); // one thread has all panels either way
        candidates_.push_back({true, MAX_BLOCK_ROWS / 2, tile});
        candidates_.push_back({true, MAX_BLOCK_ROWS, tile});
    }
    range empty;
    empty.cycle.assign(candidates_.size(), 0);
    empty.best.assign(candidates_.size(), UINT64_MAX);
    ranges_.assign(N_RANGES, empty);
}

// The first candidate of its kind
const plan &tuner::fallback(size_t T) const {
    const bool by_rows = T >= ROWS_EACH * n_threads_ || n_threads_ == 1;
    return *std::find_if(candidates_.begin(), candidates_.end(), [=](const plan &p) { return p.by_rows == by_rows; });
}

plan tuner::choose(size_t T, uint32_t layer) const {
    const range &r = ranges_[range_of(T)];
    if (r.chosen >= 0) return candidates_[static_cast<size_t>(r.chosen)];
    if (!enabled_) return fallback(T);
    return candidates_[(r.n_passes + layer) % candidates_.size()];
}

bool tuner::is_learning(size_t T) const { return enabled_ && ranges_[range_of(T)].chosen < 0; }

void tuner::finish(size_t T, const std::vector<uint64_t> &layer_ns) {
    range &r = ranges_[range_of(T)];
    const size_t n = candidates_.size();
    for (size_t i = 0; i < layer_ns.size() && r.n_passes >= COLD_PASSES; i++) r.cycle[(r.n_passes + i) % n] += layer_ns[i] * 1024 / std::max(T, LEAST_ROWS);
    r.n_passes++;
    if (r.n_passes <= COLD_PASSES || (r.n_passes - COLD_PASSES) % n != 0) return;
    for (size_t i = 0; i < n; i++) r.best[i] = std::min(r.best[i], r.cycle[i]);
    r.cycle.assign(n, 0);
    if ((r.n_passes - COLD_PASSES) / n == CYCLES) r.chosen = static_cast<int32_t>(std::min_element(r.best.begin(), r.best.end()) - r.best.begin());
}

// ---- text ----

namespace {

// The line of a plan, behind its key: a tab, most tokens, "rows" or "panels", rows of a block, tile.
std::string line_of(size_t most, const plan &p) {
    char line[96];
    snprintf(line, sizeof line, "\t%zu %s %" PRIu32 " %" PRIu32, most, p.by_rows ? "rows" : "panels", p.block_rows, p.tile);
    return line;
}

} // namespace

// A line for each range that is decided
std::string tuner::save(const std::string &key) const {
    std::string text;
    for (size_t i = 0; i < ranges_.size(); i++)
        if (ranges_[i].chosen >= 0) text += key + line_of(size_t{8} << i, candidates_[static_cast<size_t>(ranges_[i].chosen)]) + "\n";
    return text;
}

int tuner::load(const char *text, const std::string &key, message *why) {
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        const std::string one(line, end ? static_cast<size_t>(end - line) : strlen(line));
        line = end ? end + 1 : line + one.size();
        const size_t tab = one.find('\t');
        if (tab == std::string::npos && !one.empty()) return fail(why, SQ_E_FORMAT, "the tuning has a line without a tab: '%.64s'", one.c_str());
        if (one.empty() || one.compare(0, tab, key) != 0) continue;
        bool known = false;
        for (size_t i = 0; i < ranges_.size(); i++)
            for (size_t j = 0; j < candidates_.size(); j++) {
                if (one.compare(tab, std::string::npos, line_of(size_t{8} << i, candidates_[j])) != 0) continue;
                ranges_[i].chosen = static_cast<int32_t>(j);
                known = true;
            }
        if (!known) return fail(why, SQ_E_FORMAT, "the tuning has an impossible plan: '%.64s'", one.c_str() + tab + 1);
    }
    return SQ_OK;
}

} // namespace sq
