// sq-ctx.h - a context from the inside, what every entry function does at the API's boundary, and the entry to the forward pass.
//
// sq.cpp has the library's, models', contexts' entries and the forward pass; sq-tasks.cpp the entries that take texts and give answers.
#ifndef SQ_CTX_H
#define SQ_CTX_H

#include <fenv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "sq-model.h"
#include "sq-threads.h"
#include "sq-tok.h"
#include "sq-tune.h"
#include "sq.h"

namespace sq {

enum ctx_state : uint32_t { IDLE = 0, RUNNING = 1, CANCELLING = 2 };

struct unmapper {
    size_t n_bytes = 0;
    void operator()(void *p) const { munmap(p, n_bytes); }
};

// Scratch of a context. T is max_tokens; every row is padded as sq-kernels.h says.
struct scratch {
    std::unique_ptr<void, unmapper> block; // holds all of the following
    size_t n_bytes;
    float *x;              // f32 [T][x_stride] hidden states
    float *y;              // f32 [T][x_stride] attention output; a classification head's first layer
    float *wide;           // f32 [T][wide_stride] q, k, v side by side; then FFN activations
    uint8_t *q;            // u8 [T][q_stride] quantised input of a linear layer of width D
    uint8_t *q_wide;       // u8 [T][q_wide_stride] q, k, v side by side for attention in integers; then quantised input of FFN-down
    float *row_scale;      // f32 [T]
    int32_t *row_zero;     // s32 [T]
    float *pooled[2];      // f32 [max_seqs][pooled_stride]; Dense modules read one and write the other
    float *logits;         // f32 [max_seqs or T][logit_stride], if the model has a head
    float *ffn_block;      // f32 [n_threads][MAX_BLOCK_ROWS][wide_stride] FFN activations of a thread's block of rows
    uint8_t *attention;    // [n_threads][attention_bytes]
    uint32_t *position_of; // u32 [T] row of the position table for each token
    size_t x_stride, wide_stride, q_stride, q_wide_stride, pooled_stride, logit_stride, attention_bytes;
};

} // namespace sq

struct sq_ctx {
    sq_model *model = nullptr;
    std::unique_ptr<sq::workers> threads;
    uint32_t max_tokens = 0, max_seqs = 0;
    pid_t process = 0;
    std::atomic<uint32_t> state{sq::IDLE};
    sq::message error{};
    sq::scratch mem{};
    sq_stats stats{};
    sq::tuner tuning;
    std::string tuning_key;                             // of this kind of context: what a plan depends on
    std::vector<uint64_t> layer_ns;                     // [n_layers] time of each layer in this pass
    std::unique_ptr<std::atomic<uint64_t>[]> n_taken; // [n_layers] pieces of a layer's attention that threads have taken in this pass

    // What the entries for texts reuse from call to call.
    sq::encoding text;
    std::vector<int32_t> ids, types;
    std::vector<uint32_t> starts;

#ifdef SQ_TAPS
    sq_tap tap{nullptr, nullptr};
    sq_part part{0, UINT32_MAX, nullptr};
#endif
};

namespace sq {

// ---- the forward pass (sq.cpp) ----

// What a pass leaves in the scratch.
enum class result {
    hidden,   // mem.x
    pooled,   // mem.pooled[0]
    embedded, // pooled, then through the checkpoint's Dense modules: mem.pooled[number of modules % 2]
    logits,   // mem.logits: a row for each sequence (classify) or token (answer, tag)
};

// Runs the network over a batch that is known to be valid. pooling: SQ_POOL_*, for pooled and embedded. Returns SQ_OK, SQ_E_CANCEL or SQ_E_NUMERIC.
int forward(sq_ctx *c, const sq_batch &batch, result what, uint32_t pooling);

// ---- the boundary ----

// Runs the body of an entry function; nothing is thrown past it.
template <class body> int32_t guarded(body f) noexcept {
    try {
        return f();
    } catch (const std::bad_alloc &) {
        return SQ_E_MEM;
    } catch (...) {
        return SQ_E_INTERNAL;
    }
}

// ---- structs that begin with their size ----

// More than any of them will have: a larger size is a field that nobody has set, and is not followed through memory.
constexpr size_t MOST_STRUCT_BYTES = 4096;

// Whether n bytes of a struct end inside a field. All fields have 4 bytes but the wide ones, which are named.
template <class sized, class... field> bool ends_inside(size_t n, field sized::*...wide) {
    const sized s{};
    const auto inside = [&](const auto &f) {
        const size_t at = static_cast<size_t>(reinterpret_cast<const char *>(&f) - reinterpret_cast<const char *>(&s));
        return n > at && n < at + sizeof f;
    };
    return n % 4 != 0 || (inside(s.*wide) || ...);
}

// The same for each struct of sq.h; the argument only tells which.
template <class sized> bool cuts_field(const sized *, size_t n) {
    static_assert(alignof(sized) == 4, "a struct with wide fields names them below");
    return n % 4 != 0;
}
inline bool cuts_field(const sq_model_params *, size_t n) { return ends_inside(n, &sq_model_params::isa); }
inline bool cuts_field(const sq_model_info *, size_t n) { return ends_inside(n, &sq_model_info::file_bytes, &sq_model_info::n_params); }
inline bool cuts_field(const sq_ctx_params *, size_t n) { return ends_inside(n, &sq_ctx_params::cpus, &sq_ctx_params::tuning); }
inline bool cuts_field(const sq_stats *, size_t n) {
    return ends_inside(n, &sq_stats::n_forward, &sq_stats::n_tokens, &sq_stats::scratch_bytes, &sq_stats::ns, &sq_stats::ops);
}
inline bool cuts_field(const sq_batch *, size_t n) { return ends_inside(n, &sq_batch::ids, &sq_batch::types, &sq_batch::starts); }
inline bool cuts_field(const sq_texts *, size_t n) { return ends_inside(n, &sq_texts::a, &sq_texts::a_starts, &sq_texts::b, &sq_texts::b_starts); }

// Whether a caller's size can be that of this version of the struct, an older or a newer one.
template <class sized> bool is_sized(const sized *s) {
    const size_t n = s->size;
    return n >= sizeof s->size && n <= MOST_STRUCT_BYTES && (n >= sizeof *s || !cuts_field(s, n));
}

// Copies a caller's sized struct into *out: missing tail fields become 0, which every struct defines as its default.
template <class params> int take(const params *given, params *out, message *why) {
    memset(static_cast<void *>(out), 0, sizeof *out);
    out->size = sizeof *out;
    if (!given) return SQ_OK;
    if (!is_sized(given)) return fail(why, SQ_E_ARG, "a parameter struct has size %u: set its size field", given->size);
    const size_t n = given->size;
    const uint8_t *bytes = reinterpret_cast<const uint8_t *>(given);
    for (size_t i = sizeof *out; i < n; i++)
        if (bytes[i]) return fail(why, SQ_E_VERSION, "a parameter struct has fields that this version of sq does not know");
    memcpy(static_cast<void *>(out), given, std::min(n, sizeof *out));
    out->size = sizeof *out;
    return SQ_OK;
}

// Fills a caller's sized struct from *from, as far as it reaches; unknown tail fields become 0.
template <class answer> int give(const answer &from, answer *out) {
    if (!is_sized(out)) return SQ_E_ARG;
    const size_t n = out->size;
    uint8_t *bytes = reinterpret_cast<uint8_t *>(out);
    memcpy(bytes, &from, std::min(n, sizeof from));
    if (n > sizeof from) memset(bytes + sizeof from, 0, n - sizeof from);
    out->size = static_cast<uint32_t>(n);
    return SQ_OK;
}

template <class params> void init(params *p, size_t size) {
    if (!p || size < sizeof p->size || size > MOST_STRUCT_BYTES) return;
    memset(static_cast<void *>(p), 0, size);
    p->size = static_cast<uint32_t>(size);
}

// ---- a call ----

inline void copy_message(const message &from, char *to, size_t cap) {
    if (to && cap) snprintf(to, cap, "%s", from.text);
}

// Holds a context for the length of one call: refuses a second caller and a forked child, and gives the thread the float environment that results are
// defined in (round to nearest, no flushing of denormals, no traps).
class call_guard {
  public:
    explicit call_guard(sq_ctx *ctx) : ctx_(ctx) {
        uint32_t idle = IDLE;
        if (!ctx || ctx->process != getpid() || !ctx->state.compare_exchange_strong(idle, RUNNING)) return;
        held_ = true;
        ctx->error.text[0] = 0;
        fegetenv(&environment_);
        fesetenv(FE_DFL_ENV);
    }
    call_guard(const call_guard &) = delete;
    call_guard &operator=(const call_guard &) = delete;
    ~call_guard() {
        if (!held_) return;
        fesetenv(&environment_);
        ctx_->state.store(IDLE);
    }
    bool held() const { return held_; }

  private:
    sq_ctx *ctx_;
    bool held_ = false;
    fenv_t environment_;
};

template <class body> int32_t call(sq_ctx *ctx, body f) {
    if (!ctx) return SQ_E_ARG;
    call_guard guard(ctx);
    if (!guard.held()) return SQ_E_BUSY;
    int32_t status = guarded(f);
    if (status != SQ_OK && !ctx->error.text[0]) fail(&ctx->error, status, "%s", sq_status_string(status));
    return status;
}

inline int needs_space(sq_ctx *c, size_t need, size_t cap, size_t *n) {
    *n = need;
    return need > cap ? fail(&c->error, SQ_E_SPACE, "the buffer holds %zu elements and %zu are needed", cap, need) : SQ_OK;
}

inline int check_finite(sq_ctx *c, const float *x, size_t n) {
    uint32_t any = 0; // no early exit: compilers then use vectors
    for (size_t i = 0; i < n; i++) any |= !(x[i] - x[i] == 0);
    return any ? fail(&c->error, SQ_E_NUMERIC, "the result holds a value that is not finite") : SQ_OK;
}

inline encode_options options_for(const architecture &a, uint32_t max_len, uint32_t truncate, uint32_t specials_as_text) {
    encode_options o;
    o.max_len = max_len == 0 ? a.max_tokens : max_len == UINT32_MAX ? SIZE_MAX : max_len;
    o.truncate = truncate != 0;
    o.specials_as_text = specials_as_text != 0;
    return o;
}

} // namespace sq

#endif
