// examples/cli-tune.cpp - `sq tune`: lets a context find the fastest plan for each range of lengths, and saves what it found for --tuning.
#include <algorithm>

#include "cli-measure.h"

namespace cli {

namespace {

constexpr uint32_t SHORTEST_RANGE = 8;   // ranges end at 8, 16, 32, ... tokens (sq_ctx_tuning)
constexpr uint32_t DEFAULT_LONGEST = 512;
constexpr int MOST_PASSES = 100;         // a range is decided after a handful; a model of one layer with many candidates needs some more

std::vector<uint32_t> lengths_to_tune(const options &o, const sq_model_info &info) {
    if (!o.lengths.empty()) return o.lengths;
    std::vector<uint32_t> lengths;
    for (uint32_t n = SHORTEST_RANGE; n <= std::min(info.max_positions, DEFAULT_LONGEST); n *= 2) lengths.push_back(n);
    if (lengths.empty()) lengths.push_back(info.max_positions);
    return lengths;
}

std::string tuning_of(const sq_ctx *ctx) {
    std::string text;
    size_t n = 0;
    int32_t status = sq_ctx_tuning(ctx, nullptr, 0, &n);
    if (status == SQ_E_SPACE) {
        text.resize(n);
        status = sq_ctx_tuning(ctx, &text[0], n, &n);
    }
    if (status != SQ_OK) fail("%s", sq_status_string(status));
    return text;
}

} // namespace

void run_tune(const options &o) {
    const model_ptr model = load_model(o);
    const sq_model_info info = model_info(model.get());
    // Lines of other models, thread counts and instruction sets stay; those of this kind that are found again come later and so win.
    std::string text = o.tuning.empty() ? "" : read_file(o.tuning);
    for (uint32_t length : lengths_to_tune(o, info)) {
        workload load(info, length, o.batch ? o.batch : 1);
        const ctx_ptr ctx = make_measuring_ctx("", model.get(), load, o.threads, {}, {});
        std::string found;
        for (int i = 0; i < MOST_PASSES && found.empty(); i++) {
            load.run(ctx.get());
            found = tuning_of(ctx.get());
        }
        if (found.empty()) fail("%zu tokens: no plan was found in %d passes", load.tokens(), MOST_PASSES);
        text += found;
    }
    output out(o.output);
    out.write(text);
    out.commit();
}

} // namespace cli
