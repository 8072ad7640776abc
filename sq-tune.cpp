// sq-tune.cpp - see sq-tune.h.
#include "sq-tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

namespace sq {

namespace {

constexpr uint32_t TRIES = 3;     // of each candidate: the least time counts, since a neighbour's noise only adds
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
    empty.best_ns.assign(candidates_.size(), UINT64_MAX);
    empty.tries.assign(candidates_.size(), 0);
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
    // Layers take turns, beginning with the candidate that was tried least.
    const size_t first = static_cast<size_t>(std::min_element(r.tries.begin(), r.tries.end()) - r.tries.begin());
    return candidates_[(first + layer) % candidates_.size()];
}

bool tuner::is_learning(size_t T) const { return enabled_ && ranges_[range_of(T)].chosen < 0; }

void tuner::finish(size_t T, const std::vector<uint64_t> &layer_ns) {
    range &r = ranges_[range_of(T)];
    const size_t first = static_cast<size_t>(std::min_element(r.tries.begin(), r.tries.end()) - r.tries.begin());
    for (size_t i = 0; i < layer_ns.size(); i++) {
        const size_t at = (first + i) % candidates_.size();
        r.best_ns[at] = std::min(r.best_ns[at], layer_ns[i] * 1024 / T);
        r.tries[at]++;
    }
    if (*std::min_element(r.tries.begin(), r.tries.end()) < TRIES) return;
    r.chosen = static_cast<int32_t>(std::min_element(r.best_ns.begin(), r.best_ns.end()) - r.best_ns.begin());
}

// ---- text ----

// A line for each range that is decided: KEY, a tab, most tokens, "rows" or "panels", rows of a block, tile.
std::string tuner::save(const std::string &key) const {
    std::string text;
    for (size_t i = 0; i < ranges_.size(); i++) {
        if (ranges_[i].chosen < 0) continue;
        const plan &p = candidates_[static_cast<size_t>(ranges_[i].chosen)];
        char line[96];
        snprintf(line, sizeof line, "\t%zu %s %" PRIu32 " %" PRIu32 "\n", size_t{8} << i, p.by_rows ? "rows" : "panels", p.block_rows, p.tile);
        text += key + line;
    }
    return text;
}

int tuner::load(const char *text, const std::string &key, message *why) {
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        const std::string one(line, end ? static_cast<size_t>(end - line) : strlen(line));
        line = end ? end + 1 : line + one.size();
        const size_t tab = one.find('\t');
        if (tab == std::string::npos) return fail(why, SQ_E_FORMAT, "the tuning has a line without a tab: '%.64s'", one.c_str());
        if (one.compare(0, tab, key) != 0) continue;
        size_t most = 0;
        char how[8] = "";
        plan p{};
        int past = -1;
        const bool read = sscanf(one.c_str() + tab, "%zu %7s %" SCNu32 " %" SCNu32 "%n", &most, how, &p.block_rows, &p.tile, &past) == 4;
        p.by_rows = strcmp(how, "rows") == 0;
        const auto same = std::find_if(candidates_.begin(), candidates_.end(),
                                       [&](const plan &q) { return q.by_rows == p.by_rows && q.block_rows == p.block_rows && q.tile == p.tile; });
        if (!read || one.size() != tab + static_cast<size_t>(past) || (!p.by_rows && strcmp(how, "panels") != 0) || same == candidates_.end() || most != size_t{8} << range_of(most))
            return fail(why, SQ_E_FORMAT, "the tuning has an impossible plan: '%.64s'", one.c_str() + tab + 1);
        ranges_[range_of(most)].chosen = static_cast<int32_t>(same - candidates_.begin());
    }
    return SQ_OK;
}

} // namespace sq
