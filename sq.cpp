// sq.cpp - the C API's entries for library, models, contexts and batches, then the forward pass, read from top to bottom.
//
// A batch is token sequences laid end to end without padding; `forward` runs it on the context's workers. The entries that take texts and make batches of them
// are in sq-tasks.cpp. Every step of the forward pass is split over the threads by rows, by panels of 16 columns, or by (sequence, head), and ends in a
// barrier. The arithmetic of the steps is the kernel table's (sq-kernels.h).
#include "sq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "sq-cpu.h"
#include "sq-ctx.h"
#include "sq-kernels.h"

using namespace sq;

namespace {

int32_t load(const model_source &source, const sq_model_params *params, sq_model **model, char *err, size_t err_cap) {
    message why{};
    if (model) *model = nullptr;
    int32_t status = guarded([&]() -> int32_t {
        if (!model) return fail(&why, SQ_E_ARG, "no place for the model: the argument is null");
        sq_model_params p;
        if (int s = take(params, &p, &why)) return s;
        return model_open(source, p, model, &why);
    });
    if (status != SQ_OK && !why.text[0]) fail(&why, status, "%s", sq_status_string(status));
    copy_message(why, err, err_cap);
    return status;
}

// ---- scratch ----

size_t u8_stride(size_t k) {
    // Rows at a multiple of 1024 bytes fall into few sets of the L1 cache (64 sets of 64 bytes: a stride of 4096 would use one).
    size_t stride = round_up(k, 64);
    return stride % 1024 == 0 ? stride + 64 : stride;
}

// Lays the arrays out twice: with a null base to learn the size, then for real.
size_t lay_out(sq_ctx *c, uint8_t *base) {
    const architecture &a = c->model->arch;
    scratch &m = c->mem;
    const size_t T = c->max_tokens;
    size_t at = 0;
    auto take_bytes = [&](size_t n) {
        uint8_t *p = base ? base + at : nullptr;
        at += round_up(n, 64);
        return p;
    };
    auto floats = [&](size_t n) { return reinterpret_cast<float *>(take_bytes(n * sizeof(float))); };
    const head &h = c->model->head;
    m.x_stride = round_up(a.width, 16);
    m.pooled_stride = m.x_stride;
    for (const dense_layer &d : c->model->dense) m.pooled_stride = std::max(m.pooled_stride, round_up(d.weights.n, 16));
    m.logit_stride = round_up(h.n_labels, 16);
    m.wide_stride = round_up(std::max<size_t>(3 * static_cast<size_t>(a.width), a.ffn), 16);
    m.q_stride = u8_stride(a.width);
    m.q_wide_stride = u8_stride(std::max<size_t>(3 * static_cast<size_t>(a.width), a.ffn));
    const size_t longest = std::min<size_t>(T, a.n_positions);
    m.attention_bytes = round_up(std::max(attention_scratch(longest, a.head_width) * sizeof(float), attention_s8_scratch(longest, a.head_width)), 64);
    m.x = floats(T * m.x_stride);
    m.y = floats(T * m.x_stride);
    m.wide = floats(T * m.wide_stride);
    m.q = take_bytes(T * m.q_stride);
    m.q_wide = take_bytes(T * m.q_wide_stride);
    m.row_scale = floats(T);
    m.row_zero = reinterpret_cast<int32_t *>(floats(T));
    for (float *&pooled : m.pooled) pooled = floats(c->max_seqs * m.pooled_stride);
    m.logits = floats((h.kind == SQ_HEAD_CLASSIFY ? c->max_seqs : T) * m.logit_stride);
    m.ffn_block = floats(c->threads->count() * MAX_BLOCK_ROWS * m.wide_stride);
    m.attention = take_bytes(c->threads->count() * m.attention_bytes);
    m.position_of = reinterpret_cast<uint32_t *>(floats(T));
    return at;
}

int allocate(sq_ctx *c) {
    const size_t n = lay_out(c, nullptr);
    // Zeros that become resident when they are touched: short texts in a context made for long ones need little.
    void *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return fail(&c->error, SQ_E_MEM, "out of memory: %zu bytes of scratch for %u tokens", n, c->max_tokens);
    c->mem.n_bytes = n;
    c->mem.block = std::unique_ptr<void, unmapper>(p, unmapper{n});
    lay_out(c, static_cast<uint8_t *>(p));
    return SQ_OK;
}

int check_batch(sq_ctx *c, const sq_batch &batch);

} // namespace

// ---- library ----

int32_t sq_abi_version(void) { return SQ_ABI_VERSION; }

#define SQ_TEXT_OF(x) #x
#define SQ_VERSION_TEXT(major, minor, patch) SQ_TEXT_OF(major) "." SQ_TEXT_OF(minor) "." SQ_TEXT_OF(patch)
const char *sq_version_string(void) { return SQ_VERSION_TEXT(SQ_VERSION_MAJOR, SQ_VERSION_MINOR, SQ_VERSION_PATCH); }

const char *sq_status_string(int32_t status) {
    switch (status) {
    case SQ_OK: return "ok";
    case SQ_E_ARG: return "bad argument";
    case SQ_E_IO: return "input or output error";
    case SQ_E_FORMAT: return "damaged or foreign model file";
    case SQ_E_VERSION: return "newer than this version of sq";
    case SQ_E_CPU: return "instruction set not available";
    case SQ_E_MEM: return "out of memory";
    case SQ_E_SPACE: return "buffer too small";
    case SQ_E_LIMIT: return "input too long";
    case SQ_E_TASK: return "the model has no head for this task";
    case SQ_E_INTERNAL: return "internal error";
    case SQ_E_BUSY: return "context in use, or made before fork";
    case SQ_E_NUMERIC: return "a result is not a number";
    case SQ_E_CANCEL: return "cancelled";
    default: return "unknown status";
    }
}

const char *sq_isa_best(void) {
    size_t n = 0;
    const kernels *const *table = all_kernels(&n); // best first, and the last runs everywhere
    while (n > 1 && why_not(*table)) table++, n--;
    return (*table)->name;
}

// ---- model ----

void sq_model_params_init(sq_model_params *params, size_t size) { init(params, size); }

int32_t sq_model_load(const char *path, const sq_model_params *params, sq_model **model, char *err, size_t err_cap) {
    model_source source;
    source.path = path ? path : "";
    return load(source, params, model, err, err_cap);
}

int32_t sq_model_load_fd(int32_t fd, const sq_model_params *params, sq_model **model, char *err, size_t err_cap) {
    model_source source;
    source.fd = fd;
    return load(source, params, model, err, err_cap);
}

int32_t sq_model_load_memory(const void *data, size_t n_bytes, const sq_model_params *params, sq_model **model, char *err, size_t err_cap) {
    model_source source;
    source.data = data ? data : "";
    source.n_bytes = data ? n_bytes : 0;
    return load(source, params, model, err, err_cap);
}

void sq_model_free(sq_model *model) {
    if (model) model_release(model);
}

int32_t sq_model_get_info(const sq_model *model, sq_model_info *info) {
    if (!model || !info) return SQ_E_ARG;
    const architecture &a = model->arch;
    sq_model_info i{};
    i.n_layers = a.n_layers;
    i.width = a.width;
    i.n_heads = a.n_heads;
    i.ffn_width = a.ffn;
    i.vocab_size = a.vocab;
    i.n_types = a.n_types;
    i.max_tokens = a.max_tokens;
    i.max_positions = a.n_positions;
    i.pooling = a.pooling;
    i.normalize = a.normalize;
    i.quant = a.quant;
    i.head = model->head.kind;
    i.n_labels = model->head.n_labels;
    i.multi_label = model->head.multi_label;
    i.embed_width = model->dense.empty() ? a.width : model->dense.back().weights.n;
    i.file_bytes = model->file.n_bytes;
    i.n_params = model->n_params;
    return give(i, info);
}

const char *sq_model_label(const sq_model *model, uint32_t i, size_t *n) {
    if (!model || i >= model->head.labels.size()) return nullptr;
    if (n) *n = model->head.labels[i].size();
    return model->head.labels[i].c_str();
}

const char *sq_isa_string(const sq_model *model) { return model ? model->kernels->name : nullptr; }

const char *sq_isa_reason(const sq_model *model) { return model ? model->isa_reason : nullptr; }

const char *sq_model_meta_key(const sq_model *model, uint32_t i) { return model && i < model->file.meta.size() ? model->file.meta[i].key.c_str() : nullptr; }

int32_t sq_model_meta(const sq_model *model, const char *key, char *out, size_t cap, size_t *n) {
    if (!model || !key || !n || (!out && cap)) return SQ_E_ARG;
    return guarded([&]() -> int32_t {
        const meta_entry *e = model->file.find_meta(key);
        if (!e) return SQ_E_ARG;
        std::string text;
        char number[32];
        if (e->type == META_U32) text.assign(number, static_cast<size_t>(snprintf(number, sizeof number, "%u", e->u32)));
        if (e->type == META_F32) text.assign(number, static_cast<size_t>(snprintf(number, sizeof number, "%.9g", static_cast<double>(e->f32))));
        if (e->type == META_STRING) text = e->strings[0];
        if (e->type == META_STRINGS)
            for (const std::string &s : e->strings) text += s + "\n";
        *n = text.size();
        if (text.size() > cap) return SQ_E_SPACE;
        std::copy(text.begin(), text.end(), out);
        return SQ_OK;
    });
}

// ---- text ----

void sq_tokenize_params_init(sq_tokenize_params *params, size_t size) { init(params, size); }

int32_t sq_tokenize(const sq_model *model, const char *a, size_t n_a, const char *b, size_t n_b, const sq_tokenize_params *params, int32_t *ids, int32_t *types,
                    uint32_t *spans, int32_t *sources, size_t cap, size_t *n) {
    if (!model || !n || (!a && n_a) || (!b && n_b)) return SQ_E_ARG;
    return guarded([&]() -> int32_t {
        sq_tokenize_params p;
        if (int status = take(params, &p, nullptr)) return status;
        encoding e;
        int status = model->tok.encode(a, n_a, b, n_b, options_for(model->arch, p.max_len, p.truncate, p.specials_as_text), &e, nullptr);
        *n = status == SQ_E_LIMIT ? e.full_len : e.ids.size();
        if (status != SQ_OK) return status;
        if (e.ids.size() > cap) return SQ_E_SPACE;
        if (ids) std::copy(e.ids.begin(), e.ids.end(), ids);
        if (types) std::copy(e.types.begin(), e.types.end(), types);
        if (spans) std::copy(e.spans.begin(), e.spans.end(), spans);
        if (sources) std::copy(e.sources.begin(), e.sources.end(), sources);
        return SQ_OK;
    });
}

const char *sq_token_text(const sq_model *model, int32_t id, size_t *n) { return model && n ? model->tok.token_text(id, n) : nullptr; }

// ---- context ----

void sq_ctx_params_init(sq_ctx_params *params, size_t size) { init(params, size); }

namespace {

constexpr uint32_t MAX_THREADS = 1024;
constexpr uint32_t MAX_CTX_TOKENS = 1 << 20;

constexpr uint32_t MAX_SPIN_US = 1000000;
// Longer than the gap between two calls of a busy caller, shorter than anybody notices on an idle machine.
constexpr uint32_t DEFAULT_SPIN_US = 50;

int create_workers(const sq_ctx_params &p, sq_ctx *c) {
    if (p.spin_us > MAX_SPIN_US) return fail(&c->error, SQ_E_LIMIT, "spin_us is %u; at most %u is possible", p.spin_us, MAX_SPIN_US);
    if (p.cpus && p.n_threads == 0) return fail(&c->error, SQ_E_ARG, "cpus is given without n_threads");
    std::vector<int32_t> cpus;
    if (p.cpus) cpus.assign(p.cpus, p.cpus + p.n_threads);
    for (size_t t = 1; t < cpus.size(); t++)
        if (cpus[t] != -1 && !may_run_on(cpus[t])) return fail(&c->error, SQ_E_ARG, "cpus[%zu] is %d, a processor that this process may not use", t, cpus[t]);
    c->threads.reset(new workers(p.n_threads ? p.n_threads : default_threads(), std::move(cpus), p.spin_us ? p.spin_us : DEFAULT_SPIN_US));
    return SQ_OK;
}

// Instruction set, threads, shapes and forms: plans of one context serve every other with the same.
std::string tuning_key(const sq_model &m, uint32_t n_threads) {
    const architecture &a = m.arch;
    char key[96];
    snprintf(key, sizeof key, "sq-1 %s t%u d%u f%u h%u q%u", m.kernels->name, n_threads, a.width, a.ffn, a.n_heads, a.quant);
    return key;
}

int create(sq_model *model, const sq_ctx_params *params, sq_ctx *c) {
    sq_ctx_params p;
    if (int status = take(params, &p, &c->error)) return status;
    if (p.n_threads > MAX_THREADS) return fail(&c->error, SQ_E_LIMIT, "%u threads; at most %u are possible", p.n_threads, MAX_THREADS);
    if (p.max_tokens > MAX_CTX_TOKENS || p.max_seqs > MAX_CTX_TOKENS)
        return fail(&c->error, SQ_E_LIMIT, "max_tokens and max_seqs can be at most %u", MAX_CTX_TOKENS);
    c->max_tokens = p.max_tokens ? p.max_tokens : std::clamp(model->arch.max_tokens, 512u, 8192u);
    c->max_seqs = p.max_seqs ? p.max_seqs : 64;
    c->process = getpid();
    if (int status = create_workers(p, c)) return status;
    model_hold(model);
    c->model = model;
    c->n_taken.reset(new std::atomic<uint64_t>[model->arch.n_layers]);
    c->layer_ns.resize(model->arch.n_layers);
    c->tuning_key = tuning_key(*model, c->threads->count());
    c->tuning.init(c->threads->count(), model->kernels->n_tiles, !p.no_tuning);
    if (p.tuning)
        if (int status = c->tuning.load(p.tuning, c->tuning_key, &c->error)) return status;
    if (int status = allocate(c)) return status;
    if (!c->threads->start()) return fail(&c->error, SQ_E_MEM, "cannot start %u threads", c->threads->count());
    return SQ_OK;
}

} // namespace

int32_t sq_ctx_create(sq_model *model, const sq_ctx_params *params, sq_ctx **ctx, char *err, size_t err_cap) {
    if (ctx) *ctx = nullptr;
    const auto refuse = [&](int32_t status, const char *sentence) {
        message why;
        fail(&why, status, "%s", sentence);
        copy_message(why, err, err_cap);
        return status;
    };
    if (!model || !ctx) return refuse(SQ_E_ARG, "no model, or no place for the context: an argument is null");
    sq_ctx *c = new (std::nothrow) sq_ctx;
    if (!c) return refuse(SQ_E_MEM, sq_status_string(SQ_E_MEM));
    int32_t status = guarded([&] { return create(model, params, c); });
    if (status == SQ_OK) {
        *ctx = c;
        return status;
    }
    if (!c->error.text[0]) fail(&c->error, status, "%s", sq_status_string(status));
    copy_message(c->error, err, err_cap);
    sq_ctx_free(c);
    return status;
}

void sq_ctx_free(sq_ctx *ctx) {
    if (!ctx) return;
    // The threads of a context that came through fork() do not exist in the child; joining them would wait for ever, so their handles are abandoned.
    if (ctx->process != getpid()) (void)ctx->threads.release();
    if (ctx->model) model_release(ctx->model);
    delete ctx;
}

int32_t sq_ctx_tuning(const sq_ctx *ctx, char *out, size_t cap, size_t *n) {
    if (!ctx || !n || (!out && cap)) return SQ_E_ARG;
    return guarded([&]() -> int32_t {
        const std::string text = ctx->tuning.save(ctx->tuning_key);
        *n = text.size();
        if (text.size() > cap) return SQ_E_SPACE;
        std::copy(text.begin(), text.end(), out);
        return SQ_OK;
    });
}

const char *sq_ctx_error(const sq_ctx *ctx) { return ctx ? ctx->error.text : ""; }

void sq_ctx_cancel(sq_ctx *ctx) {
    uint32_t running = RUNNING;
    if (ctx) ctx->state.compare_exchange_strong(running, CANCELLING);
}

int32_t sq_ctx_stats(const sq_ctx *ctx, sq_stats *stats) {
    if (!ctx || !stats) return SQ_E_ARG;
    sq_stats s = ctx->stats;
    s.n_threads = ctx->threads->count();
    s.scratch_bytes = ctx->mem.n_bytes;
    return give(s, stats);
}

#ifdef SQ_TAPS
void sq_ctx_set_tap(sq_ctx *ctx, sq_tap tap) { ctx->tap = tap; }
void sq_ctx_set_part(sq_ctx *ctx, sq_part part) { ctx->part = part; }
#endif

// ---- compute ----

namespace {

// Copies rows of `width` floats, `stride` apart in scratch, to the caller, refusing NaN.
int copy_rows(sq_ctx *c, const float *from, size_t stride, size_t width, size_t n_rows, float *out) {
    for (size_t r = 0; r < n_rows; r++) memcpy(out + r * width, from + r * stride, width * sizeof(float));
    return check_finite(c, out, n_rows * width);
}

} // namespace

int32_t sq_forward(sq_ctx *ctx, const sq_batch *batch, int32_t kind, float *out, size_t cap, size_t *n) {
    return call(ctx, [&]() -> int32_t {
        message *why = &ctx->error;
        const scratch &m = ctx->mem;
        const head &h = ctx->model->head;
        if (!batch || !n || (!out && cap)) return fail(why, SQ_E_ARG, "batch, n or out is null");
        if (kind < SQ_HIDDEN || kind > SQ_LOGITS) return fail(why, SQ_E_ARG, "unknown kind %d", kind);
        if (kind == SQ_LOGITS && h.kind == SQ_HEAD_NONE) return fail(why, SQ_E_TASK, "the model has no head: it gives hidden states and pooled vectors");
        sq_batch b;
        if (int status = take(batch, &b, why)) return status;
        if (int status = check_batch(ctx, b)) return status;
        const bool by_token = kind == SQ_HIDDEN || (kind == SQ_LOGITS && h.kind != SQ_HEAD_CLASSIFY);
        const size_t n_rows = b.n_seqs == 0 ? 0 : by_token ? b.starts[b.n_seqs] : b.n_seqs, width = kind == SQ_LOGITS ? h.n_labels : ctx->model->arch.width;
        if (int status = needs_space(ctx, n_rows * width, cap, n)) return status;
        if (b.n_seqs == 0) return SQ_OK;
        const result what = kind == SQ_HIDDEN ? result::hidden : kind == SQ_POOLED ? result::pooled : result::logits;
        if (int status = forward(ctx, b, what, ctx->model->arch.pooling)) return status;
        if (kind == SQ_HIDDEN) return copy_rows(ctx, m.x, m.x_stride, width, n_rows, out);
        if (kind == SQ_POOLED) return copy_rows(ctx, m.pooled[0], m.pooled_stride, width, n_rows, out);
        return copy_rows(ctx, m.logits, m.logit_stride, width, n_rows, out);
    });
}

namespace {

// ---- batches ----

int check_batch(sq_ctx *c, const sq_batch &b) {
    const architecture &a = c->model->arch;
    message *why = &c->error;
    if (b.n_seqs == 0) return SQ_OK;
    if (!b.ids || !b.starts) return fail(why, SQ_E_ARG, "the batch has sequences but no ids or no starts");
    if (b.n_seqs > c->max_seqs) return fail(why, SQ_E_LIMIT, "%u sequences; the context was made for %u", b.n_seqs, c->max_seqs);
    if (b.starts[0] != 0) return fail(why, SQ_E_ARG, "starts[0] is %u and must be 0", b.starts[0]);
    for (uint32_t s = 0; s < b.n_seqs; s++) {
        if (b.starts[s + 1] <= b.starts[s]) return fail(why, SQ_E_ARG, "starts[%u] does not rise: sequence %u would be empty", s + 1, s);
        const uint32_t len = b.starts[s + 1] - b.starts[s];
        if (len > a.n_positions) return fail(why, SQ_E_LIMIT, "sequence %u has %u tokens; the model takes %u", s, len, a.n_positions);
    }
    const uint32_t T = b.starts[b.n_seqs];
    if (T > c->max_tokens) return fail(why, SQ_E_LIMIT, "%u tokens; the context was made for %u", T, c->max_tokens);
    const uint32_t n_types = std::max(1u, a.n_types);
    for (uint32_t t = 0; t < T; t++) {
        if (static_cast<uint32_t>(b.ids[t]) >= a.vocab) return fail(why, SQ_E_ARG, "ids[%u] is %d, outside the vocabulary of %u", t, b.ids[t], a.vocab);
        if (b.types && static_cast<uint32_t>(b.types[t]) >= n_types) return fail(why, SQ_E_ARG, "types[%u] is %d; the model has %u", t, b.types[t], n_types);
    }
    return SQ_OK;
}

// ---- the forward pass ----

// Whether a tap is set, which makes plans impossible to try.
bool watched(const sq_ctx *c) {
#ifdef SQ_TAPS
    return c->tap.see != nullptr;
#else
    (void)c;
    return false;
#endif
}

// One forward pass over T tokens of n_seqs sequences. Every thread runs `all` with its own number; `step` parts the steps.
struct pass {
    sq_ctx *c;
    const sq_batch *batch;
    uint32_t T;
    result what;
    uint32_t pooling;  // SQ_POOL_*
    uint32_t first_layer, past_layer; // what runs of the encoder,
    const float *entry;               // from these hidden states on, f32 [T][width]; null: from the embeddings
    bool stop = false; // written by thread 0 between two barriers
    uint64_t last_ns = 0;
    bool tap_failed = false; // for want of memory; thread 0's

    const sq_model &model() const { return *c->model; }
    const architecture &arch() const { return c->model->arch; }
    const kernels &k() const { return *c->model->kernels; }

    // This thread's share of n items, as [first, past).
    struct share {
        size_t first, past;
    };
    share split(size_t n, uint32_t thread) const {
        const size_t count = c->threads->count();
        return {(n * thread + count - 1) / count, (n * (thread + 1) + count - 1) / count}; // rounded up: thread 0, which books, always has something
    }

    // The rows that a step treats. Shared: all of them, and the threads part the panels or the rows among them. Own: this thread's, from first to last step of a
    // layer; no other thread touches them meanwhile.
    struct rows {
        size_t first, past;
        bool own;
        size_t count() const { return past - first; }
    };

    // Runs part of a layer as its plan says: once on all rows, or on block after block of the thread's own.
    template <class Part> void for_rows(uint32_t thread, const plan &p, Part part) {
        if (!p.by_rows) return part(rows{0, T, false});
        const share mine = split(T, thread);
        const size_t n = mine.past - mine.first, count = (n + p.block_rows - 1) / p.block_rows;
        for (size_t i = 0; i < count; i++) part(rows{mine.first + n * i / count, mine.first + n * (i + 1) / count, true});
    }

    // Those of r that this thread treats in a step that goes row by row
    share part_of(const rows &r, uint32_t thread) const {
        if (r.own) return {r.first, r.past};
        return split(T, thread);
    }

    // Ends a step on rows r. ops: of the whole layer's step.
    void step(uint32_t thread, uint32_t op, const rows &r, size_t ops = 0) {
        if (!r.own) c->threads->barrier();
        if (thread == 0) book(op, r.first == 0 ? ops : 0); // once, where there are several blocks
    }

    // Ends a step: all threads have finished it.
    void step(uint32_t thread, uint32_t op, size_t ops = 0) {
        c->threads->barrier();
        if (thread == 0) book(op, ops);
    }

    // Books the time since the last step; thread 0 only.
    void book(uint32_t op, size_t ops) {
        const uint64_t now = now_ns();
        c->stats.ns[op] += now - last_ns;
        c->stats.ops[op] += ops;
        last_ns = now;
    }

#ifdef SQ_TAPS
    // What a tap throws must not leave the pass: the other threads are still in it.
    void see(uint32_t thread, const char *name, uint32_t l, const float *x, size_t cols, size_t stride) {
        if (!c->tap.see) return;
        try {
            if (thread == 0 && !tap_failed) c->tap.see(c->tap.user, name, l, x, T, cols, stride);
        } catch (const std::bad_alloc &) {
            tap_failed = true;
        }
        c->threads->barrier();
    }
#else
    void see(uint32_t, const char *, uint32_t, const float *, size_t, size_t) {}
#endif

    // x' of one row for the layer that reads it; nothing to do for a float layer.
    void quantize(const linear &l, const float *x, size_t row, uint8_t *q) {
        if (!l.is_s8) return;
        if (l.is_dynamic) k().quant_dynamic(x, l.mul, l.k, q, &c->mem.row_scale[row], &c->mem.row_zero[row]);
        else k().quant_static(x, l.mul, l.zero, l.k, q);
    }

    // x: word + position + type rows, LayerNorm; quantised for the first layer.
    void embed(uint32_t thread) {
        const sq_model &m = model();
        const scratch &s = c->mem;
        const share mine = split(T, thread);
        for (size_t t = mine.first; t < mine.past; t++) {
            float *x = s.x + t * s.x_stride, *sum = s.y + t * s.x_stride;
            const size_t id = static_cast<size_t>(batch->ids[t]), type = batch->types ? static_cast<size_t>(batch->types[t]) : 0;
            const float *added = m.positions + s.position_of[t] * s.x_stride;
            if (m.types) {
                k().add(added, m.types + type * s.x_stride, s.x_stride, sum);
                added = sum;
            }
            if (m.words.f32) k().add(m.words.f32 + id * s.x_stride, added, s.x_stride, x);
            else k().embed_s8(m.words.s8 + id * s.x_stride, m.words.scale[id], added, s.x_stride, x);
            normalize(m.embed_norm, t, &m.layers[0].qkv);
        }
        step(thread, SQ_OP_EMBED);
    }

    // x: given hidden states, quantised for the first layer that runs.
    void enter(uint32_t thread) {
        const scratch &s = c->mem;
        const share mine = split(T, thread);
        for (size_t t = mine.first; t < mine.past; t++) {
            float *x = s.x + t * s.x_stride;
            memcpy(x, entry + t * arch().width, arch().width * sizeof(float));
            if (first_layer < past_layer) quantize(model().layers[first_layer].qkv, x, t, s.q + t * s.q_stride);
        }
        step(thread, SQ_OP_EMBED);
    }

    // x[row] = LayerNorm(x[row]), quantised for `next` if there is one.
    void normalize(const norm &n, size_t row, const linear *next) {
        const scratch &s = c->mem;
        float *x = s.x + row * s.x_stride;
        k().norm(x, n.gamma, n.beta, arch().norm_eps, arch().width, x);
        if (next) quantize(*next, x, row, s.q + row * s.q_stride);
    }

    void normalize_rows(uint32_t thread, const rows &r, const norm &n, const linear *next) {
        const share mine = part_of(r, thread);
        for (size_t t = mine.first; t < mine.past; t++) normalize(n, t, next);
        step(thread, SQ_OP_NORM, r);
    }

    // x and q: of the first row of r
    void quantize_rows(uint32_t thread, const rows &r, const linear &l, const float *x, size_t x_stride, uint8_t *q, size_t q_stride) {
        const share mine = part_of(r, thread);
        for (size_t t = mine.first; t < mine.past; t++) quantize(l, x + (t - r.first) * x_stride, t, q + (t - r.first) * q_stride);
        step(thread, SQ_OP_QUANT, r);
    }

    // The product of a linear layer on rows r: input f32 [][x_stride] or u8 [][q_stride] from their first row on, and what the caller has set in `g`: output and
    // epilogue, from the same row. Of shared rows each thread takes whole panels: it reads only its part of the weights.
    void product(uint32_t thread, uint32_t op, const linear &l, const rows &r, const float *x, size_t x_stride, const uint8_t *q, size_t q_stride, gemm_args g) {
        const size_t n_panels = round_up(l.n, 16) / 16;
        const share panels = r.own ? share{0, n_panels} : split(n_panels, thread);
        const size_t column = panels.first * 16, depth = l.is_s8 ? round_up(l.k, 64) : l.k;
        if (panels.first < panels.past) {
            g.x = l.is_s8 ? static_cast<const void *>(q) : x;
            g.x_stride = l.is_s8 ? q_stride : x_stride;
            g.w = static_cast<const uint8_t *>(l.w) + column * depth * (l.is_s8 ? 1 : sizeof(float));
            g.m = r.count();
            g.n_panels = panels.past - panels.first;
            g.k = depth;
            g.bias = l.bias + column;
            g.scale = l.is_s8 ? l.scale + column : nullptr;
            g.comp = l.is_dynamic ? l.comp + column : nullptr;
            g.row_scale = l.is_dynamic ? c->mem.row_scale + r.first : nullptr;
            g.row_zero = l.is_dynamic ? c->mem.row_zero + r.first : nullptr;
            if (g.residual) g.residual += column;
            if (g.out_mul) g.out_mul += column;
            g.out = static_cast<uint8_t *>(g.out) + column * (g.out_u8 ? 1 : sizeof(float));
            (l.is_s8 ? k().gemm_u8s8 : k().gemm_f32)(&g);
        }
        step(thread, op, r, 2 * (r.own ? T : r.count()) * l.n * l.k);
    }

    // Attention is shared out in pieces, a head of one sequence each, or some of its rows where there would be too few pieces for all threads. Pieces differ in
    // size as sequences differ in length, so each thread takes the next one when it is done with its last.
    size_t row_parts() const {
        constexpr size_t PIECES_PER_THREAD = 4, MOST_PARTS = 8; // every part packs the keys and values again, which costs some 16 rows' time
        const size_t heads = static_cast<size_t>(batch->n_seqs) * arch().n_heads, threads = c->threads->count();
        return threads == 1 ? 1 : std::min(MOST_PARTS, (PIECES_PER_THREAD * threads + heads - 1) / heads);
    }

    // softmax(q k') v for every sequence and head. In f32: from `wide`, where a row holds q, k and v side by side, to y. In integers: from q_wide to y, or for a
    // static output layer to q.
    void attention(uint32_t thread, uint32_t i) {
        const sq::layer &l = model().layers[i];
        const uint64_t parts = row_parts(), n = batch->n_seqs * parts * arch().n_heads;
        for (uint64_t taken; (taken = c->n_taken[i].fetch_add(1, std::memory_order_relaxed)) < n;) {
            const size_t seq = taken / parts / arch().n_heads, start = batch->starts[seq], s = batch->starts[seq + 1] - start, part = taken % parts;
            const piece p{taken / parts % arch().n_heads, start, s, s * part / parts, s * (part + 1) / parts};
            if (p.first == p.past) continue;
            if (l.attention.is_s8) attend_s8(thread, l, p);
            else attend_f32(thread, p);
        }
        size_t ops = 0;
        for (uint32_t seq = 0; thread == 0 && seq < batch->n_seqs; seq++) {
            const size_t len = batch->starts[seq + 1] - batch->starts[seq];
            ops += 4 * len * len * arch().width;
        }
        step(thread, SQ_OP_ATTENTION, ops);
    }

    // One head's rows first .. past-1 of the s tokens from `start` on
    struct piece {
        size_t head, start, s, first, past;
    };

    // What both forms of attention want to know of a piece; qkv: rows of q, k and v side by side
    template <class Args, class X> void describe(const piece &p, const X *qkv, size_t stride, Args *g) const {
        g->q = qkv + p.start * stride + p.head * arch().head_width;
        g->k = g->q + arch().width;
        g->v = g->k + arch().width;
        g->stride = stride;
        g->s = p.s;
        g->d = arch().head_width;
        g->first = p.first;
        g->past = p.past;
    }

    void attend_f32(uint32_t thread, const piece &p) {
        const scratch &m = c->mem;
        attention_args g{};
        describe(p, m.wide, m.wide_stride, &g);
        g.scratch = reinterpret_cast<float *>(m.attention + thread * m.attention_bytes);
        g.out = m.y + p.start * m.x_stride + p.head * arch().head_width;
        g.out_stride = m.x_stride;
        k().attention(&g);
    }

    void attend_s8(uint32_t thread, const sq::layer &l, const piece &p) {
        const scratch &m = c->mem;
        const size_t column = p.head * arch().head_width;
        attention_s8_args g{};
        describe(p, m.q_wide, m.q_wide_stride, &g);
        g.fine = l.attention.is_fine;
        g.factor = l.attention.scale[p.head] * LOG2_E;
        g.mul = l.attention.mul + column;
        g.scratch = m.attention + thread * m.attention_bytes;
        g.out_u8 = writes_out_input(l);
        g.out = g.out_u8 ? static_cast<void *>(m.q + p.start * m.q_stride + column) : m.y + p.start * m.x_stride + column;
        g.out_stride = g.out_u8 ? m.q_stride : m.x_stride;
        g.out_zero = l.out.zero;
        k().attention_s8(&g);
    }

    // True where attention quantises for the output layer as it writes.
    static bool writes_out_input(const sq::layer &l) { return l.attention.is_s8 && l.out.is_s8 && !l.out.is_dynamic; }

    // x: one transformer layer. On entry x is f32, and q holds it quantised for the QKV layer; on exit both hold the same for the next layer. Only attention looks
    // beyond a row.
    void layer(uint32_t thread, uint32_t i) {
        const scratch &s = c->mem;
        const sq::layer &l = model().layers[i];
        const plan p = plan_of(i);
        if (!p.by_rows && i > 0 && plan_of(i - 1).by_rows) c->threads->barrier(); // others may still be at their rows of the last layer

        see(thread, "qkv", i, s.x, arch().width, s.x_stride);
        for_rows(thread, p, [&](const rows &r) { project(thread, p, l, r); });
        if (p.by_rows) c->threads->barrier();
        if (!l.attention.is_s8) see(thread, "attention", i, s.wide, 3 * arch().width, s.wide_stride);
        if (thread == 0) stop = c->state.load(std::memory_order_relaxed) == CANCELLING; // the barrier that follows shows it to the others
        attention(thread, i);
        if (!writes_out_input(l)) see(thread, "out", i, s.y, arch().width, s.x_stride);
        for_rows(thread, p, [&](const rows &r) {
            attention_output(thread, p, l, r);
            see(thread, "up", i, s.x, arch().width, s.x_stride);
            feed_forward(thread, p, i, r);
        });
        see(thread, "hidden", i, s.x, arch().width, s.x_stride);
    }

    // Shared rows while somebody watches: he wants to see whole tensors.
    plan plan_of(uint32_t i) const {
        return watched(c) ? plan{false, 0, 0} : c->tuning.choose(T, i);
    }

    // q, k and v side by side: f32 in `wide`, or for attention in integers u8 in q_wide.
    void project(uint32_t thread, const plan &p, const sq::layer &l, const rows &r) {
        const scratch &s = c->mem;
        gemm_args qkv{};
        qkv.tile = p.tile;
        qkv.out_u8 = l.attention.is_s8;
        qkv.out = qkv.out_u8 ? static_cast<void *>(s.q_wide + r.first * s.q_wide_stride) : s.wide + r.first * s.wide_stride;
        qkv.out_stride = qkv.out_u8 ? s.q_wide_stride : s.wide_stride;
        qkv.out_zero = S8_ZERO;
        product(thread, SQ_OP_QKV, l.qkv, r, s.x + r.first * s.x_stride, s.x_stride, s.q + r.first * s.q_stride, s.q_stride, qkv);
    }

    // x = LayerNorm(x + out(attention))
    void attention_output(uint32_t thread, const plan &p, const sq::layer &l, const rows &r) {
        const scratch &s = c->mem;
        float *x = s.x + r.first * s.x_stride, *y = s.y + r.first * s.x_stride;
        uint8_t *q = s.q + r.first * s.q_stride;
        if (l.out.is_s8 && !writes_out_input(l)) quantize_rows(thread, r, l.out, y, s.x_stride, q, s.q_stride);
        gemm_args out{};
        out.tile = p.tile;
        out.residual = x;
        out.out = x;
        out.out_stride = s.x_stride;
        product(thread, SQ_OP_OUT, l.out, r, y, s.x_stride, q, s.q_stride, out);
        normalize_rows(thread, r, l.out_norm, &l.up);
    }

    // x = LayerNorm(x + down(activation(up(x)))). With a static down layer the activations are quantised as they are made; else a thread with rows of its own
    // keeps them in a block that stays in its cache.
    void feed_forward(uint32_t thread, const plan &p, uint32_t i, const rows &r) {
        const scratch &s = c->mem;
        const sq::layer &l = model().layers[i];
        const linear *next = i + 1 < past_layer ? &model().layers[i + 1].qkv : nullptr;
        const bool fused = l.down.is_s8 && !l.down.is_dynamic;
        float *x = s.x + r.first * s.x_stride, *wide = r.own ? s.ffn_block + thread * MAX_BLOCK_ROWS * s.wide_stride : s.wide;
        uint8_t *q_wide = s.q_wide + r.first * s.q_wide_stride;
        gemm_args up{};
        up.tile = p.tile;
        up.act = arch().act;
        up.out_u8 = fused;
        up.out = fused ? static_cast<void *>(q_wide) : wide;
        up.out_stride = fused ? s.q_wide_stride : s.wide_stride;
        up.out_mul = fused ? l.down.mul : nullptr;
        up.out_zero = l.down.zero;
        product(thread, SQ_OP_UP, l.up, r, x, s.x_stride, s.q + r.first * s.q_stride, s.q_stride, up);
        if (!fused) see(thread, "down", i, s.wide, arch().ffn, s.wide_stride);

        if (l.down.is_dynamic) quantize_rows(thread, r, l.down, wide, s.wide_stride, q_wide, s.q_wide_stride);
        gemm_args down{};
        down.tile = p.tile;
        down.residual = x;
        down.out = x;
        down.out_stride = s.x_stride;
        product(thread, SQ_OP_DOWN, l.down, r, wide, s.wide_stride, q_wide, s.q_wide_stride, down);
        normalize_rows(thread, r, l.down_norm, next);
    }

    // pooled[0]: the mean or the maximum of a sequence's rows, or its first row.
    void pool(uint32_t thread, uint32_t how) {
        const scratch &s = c->mem;
        const share seqs = split(batch->n_seqs, thread);
        for (size_t seq = seqs.first; seq < seqs.past; seq++) {
            const size_t first = batch->starts[seq], past = batch->starts[seq + 1];
            float *v = s.pooled[0] + seq * s.pooled_stride;
            memcpy(v, s.x + first * s.x_stride, s.x_stride * sizeof(float));
            for (size_t t = first + 1; how != SQ_POOL_CLS && t < past; t++) {
                const float *x = s.x + t * s.x_stride;
                if (how != SQ_POOL_MAX) k().add(v, x, s.x_stride, v);
                else for (size_t j = 0; j < s.x_stride; j++) v[j] = v[j] < x[j] ? x[j] : v[j];
            }
            if (how != SQ_POOL_CLS && how != SQ_POOL_MAX) k().scale(v, 1 / static_cast<float>(past - first), s.x_stride, v);
        }
        step(thread, SQ_OP_HEAD);
    }

    // A float linear layer of a head: from rows of x to rows of out.
    void head_layer(uint32_t thread, const linear &l, activation act, size_t n, const float *x, size_t x_stride, float *out, size_t out_stride) {
        gemm_args g{};
        g.act = act;
        g.out = out;
        g.out_stride = out_stride;
        product(thread, SQ_OP_HEAD, l, {0, n, false}, x, x_stride, nullptr, 0, g);
    }

    // pooled vectors through the Dense modules, to and fro between the two buffers.
    void dense_modules(uint32_t thread) {
        const scratch &s = c->mem;
        for (size_t i = 0; i < model().dense.size(); i++) {
            const dense_layer &d = model().dense[i];
            head_layer(thread, d.weights, d.act, batch->n_seqs, s.pooled[i % 2], s.pooled_stride, s.pooled[1 - i % 2], s.pooled_stride);
        }
    }

    void logits(uint32_t thread) {
        const scratch &s = c->mem;
        const head &h = model().head;
        if (h.kind != SQ_HEAD_CLASSIFY) return head_layer(thread, h.out, ACT_NONE, T, s.x, s.x_stride, s.logits, s.logit_stride);
        pool(thread, SQ_POOL_CLS);
        const float *first = s.pooled[0];
        size_t stride = s.pooled_stride;
        if (h.has_dense) {
            head_layer(thread, h.dense, h.act, batch->n_seqs, first, stride, s.y, s.x_stride);
            first = s.y;
            stride = s.x_stride;
        }
        head_layer(thread, h.out, ACT_NONE, batch->n_seqs, first, stride, s.logits, s.logit_stride);
    }

    void all(uint32_t thread) {
        if (k().thread_begin) k().thread_begin();
        if (entry) enter(thread);
        else embed(thread);
        see(thread, "embed", 0, c->mem.x, arch().width, c->mem.x_stride);
        uint64_t start = thread == 0 ? last_ns : 0;
        for (uint32_t i = first_layer; i < past_layer && !stop; i++) {
            layer(thread, i);
            if (c->tuning.is_learning(T) && plan_of(i).by_rows) step(thread, SQ_OP_NORM); // a layer's time is that of its slowest thread
            if (thread == 0) c->layer_ns[i] = last_ns - start, start = last_ns;
        }
        c->threads->barrier(); // with rows of their own, threads have not waited for one another
        if (!stop && (what == result::pooled || what == result::embedded)) pool(thread, pooling);
        if (!stop && what == result::embedded) dense_modules(thread);
        if (!stop && what == result::logits) logits(thread);
        if (k().thread_end) k().thread_end();
    }
};

// Rows of the position table: the index within a sequence; with RoBERTa's offset, pad tokens read row pad id and the others are counted from there
// (transformers, create_position_ids_from_input_ids).
void find_positions(sq_ctx *c, const sq_batch &batch) {
    const uint32_t offset = c->model->arch.position_offset;
    const int32_t pad = static_cast<int32_t>(offset) - 1;
    for (uint32_t s = 0; s < batch.n_seqs; s++) {
        uint32_t next = offset;
        for (uint32_t t = batch.starts[s]; t < batch.starts[s + 1]; t++) c->mem.position_of[t] = offset && batch.ids[t] == pad ? offset - 1 : next++;
    }
}

} // namespace

int sq::forward(sq_ctx *c, const sq_batch &batch, result what, uint32_t pooling) {
    pass p{c, &batch, batch.starts[batch.n_seqs], what, pooling, 0, c->model->arch.n_layers, nullptr};
#ifdef SQ_TAPS
    p.first_layer = c->part.first;
    p.past_layer = std::min(c->part.past, p.past_layer);
    p.entry = c->part.x;
#endif
    find_positions(c, batch);
    for (uint32_t i = 0; i < c->model->arch.n_layers; i++) c->n_taken[i].store(0, std::memory_order_relaxed);
    p.last_ns = now_ns();
    c->threads->run([](void *arg, uint32_t thread) { static_cast<pass *>(arg)->all(thread); }, &p);
    c->stats.n_forward++;
    c->stats.n_tokens += p.T;
    if (p.stop) return fail(&c->error, SQ_E_CANCEL, "cancelled");
    if (p.tap_failed) return fail(&c->error, SQ_E_MEM, "%s", sq_status_string(SQ_E_MEM));
    if (c->tuning.is_learning(p.T) && !watched(c)) c->tuning.finish(p.T, c->layer_ns);
    // Quantising, ReLU and maxima can lose a NaN on the way to an answer; in the hidden states it always arrives, through the residual sums.
    return check_finite(c, c->mem.x, p.T * c->mem.x_stride);
}
