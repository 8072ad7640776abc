// sq-tune.h - how the forward pass shares a layer's products out: candidates are tried on the layers of the first calls, and the fastest is kept.
//
// A plan never changes a bit of the result, so trying costs nothing but the time by which a candidate is slower than the best, in 5 to 13 passes for each range of
// token counts that a context meets. In every pass the layers take turns with the candidates, so that after as many passes as there are candidates each has run each
// layer once: layers differ in form.
#ifndef SQ_TUNE_H
#define SQ_TUNE_H

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "sq-kernels.h"
#include "sq-model.h"

namespace sq {

// Threads share a layer's products by panels: each takes its columns of every row, and all wait for one another after each product. Or by rows: each thread takes
// its rows through all products of the layer, block_rows at a time, and they meet around attention only; every thread then reads all weights.
struct plan {
    bool by_rows;
    uint32_t block_rows; // by rows: at most so many at a time
    uint32_t tile;       // of gemm_args
};

constexpr uint32_t MAX_BLOCK_ROWS = 128;

class tuner {
  public:
    // n_tiles: of the kernel table
    void init(uint32_t n_threads, uint32_t n_tiles, bool enabled);

    // Takes over what `text` says about contexts of this kind (`key`). Lines about others are left aside. SQ_OK or SQ_E_FORMAT.
    int load(const char *text, const std::string &key, message *why);

    // What is known, in the form that load takes.
    std::string save(const std::string &key) const;

    // The plan of one layer of a pass over T tokens. Any thread; it stays the same until `finish`.
    plan choose(size_t T, uint32_t layer) const;

    // After a pass that was not cancelled: layer_ns [n_layers] is how long each layer took. One thread at a time.
    void finish(size_t T, const std::vector<uint64_t> &layer_ns);

    // Whether the plan for T tokens is still to be found. It stays the same until `finish`.
    bool is_learning(size_t T) const;

  private:
    struct range { // of token counts
        std::vector<uint64_t> cycle, best; // [candidates] time of all layers, in this cycle so far and in the best cycle
        uint32_t n_passes = 0;
        int32_t chosen = -1;
    };
    const plan &fallback(size_t T) const;
    std::vector<plan> candidates_;
    std::vector<range> ranges_;
    bool enabled_ = false;
    uint32_t n_threads_ = 1;
};

} // namespace sq

#endif
