// examples/cli-run.cpp - what runs models: loading, contexts, and texts in chunks. The commands that use it are in files of their own.
#include <string.h>

#include <algorithm>

#include "cli-common.h"

namespace cli {

constexpr size_t CHUNK_BYTES = 1 << 20;     // text that runs in one call at most, unless one row is longer
constexpr uint32_t BATCH_TOKENS = 128;      // room in the context for a row of --batch, on average
constexpr uint32_t MAX_BATCH_TOKENS = 16384;

// ---- the model ----

model_ptr load_model(const options &o) {
    sq_model_params params;
    sq_model_params_init(&params, sizeof params);
    params.verify = o.verify;
    params.copy = o.copy;
    params.huge_pages = o.huge_pages;
    params.isa = o.isa.empty() ? nullptr : o.isa.c_str();
    sq_model *model = nullptr;
    char err[512] = "";
    const int32_t status = sq_model_load(o.model.c_str(), &params, &model, err, sizeof err);
    if (status != SQ_OK) {
        if (strstr(err, o.model.c_str())) fail("%s", err);
        fail("%s: %s", o.model.c_str(), *err ? err : sq_status_string(status));
    }
    return model_ptr(model);
}

sq_model_info model_info(const sq_model *model) {
    sq_model_info info = {};
    info.size = sizeof info;
    const int32_t status = sq_model_get_info(model, &info);
    if (status != SQ_OK) fail("%s", sq_status_string(status));
    return info;
}

std::string_view label_name(const sq_model *model, uint32_t i) {
    size_t n = 0;
    const char *name = sq_model_label(model, i, &n);
    return name ? std::string_view(name, n) : std::string_view("?");
}

std::string_view token_text(const sq_model *model, int32_t id) {
    size_t n = 0;
    const char *text = sq_token_text(model, id, &n);
    return text ? std::string_view(text, n) : std::string_view("?");
}

size_t longest_allowed(const options &o, const sq_model_info &info) {
    if (o.max_tokens > info.max_positions)
        fail("%u tokens are asked for, but the model's position table ends at %u tokens", unsigned{o.max_tokens}, unsigned{info.max_positions});
    return o.max_tokens ? o.max_tokens : info.max_tokens;
}

void fail_too_long(const std::string &place, size_t n_tokens, size_t max_tokens) {
    fail("%s: %zu tokens, but at most %zu are allowed; --truncate cuts longer texts", place.c_str(), n_tokens, max_tokens);
}

ctx_ptr create_ctx(sq_model *model, const sq_ctx_params &params) {
    sq_ctx *ctx = nullptr;
    char err[512] = "";
    const int32_t status = sq_ctx_create(model, &params, &ctx, err, sizeof err);
    if (status != SQ_OK) fail("%s", *err ? err : sq_status_string(status));
    return ctx_ptr(ctx);
}

std::string read_tuning(const options &o) { return o.tuning.empty() ? "" : read_file(o.tuning); }

static ctx_ptr make_ctx(const options &o, sq_model *model, const sq_model_info &info, uint32_t max_len) {
    sq_ctx_params params;
    sq_ctx_params_init(&params, sizeof params);
    params.n_threads = o.threads;
    const std::string tuning = read_tuning(o);
    params.tuning = tuning.c_str();
    params.max_seqs = o.batch ? o.batch : DEFAULT_BATCH;
    const uint32_t room = std::max({512u, info.max_tokens, max_len}); // 512: sq.h's own default
    params.max_tokens = std::max(room, std::min(o.batch, MAX_BATCH_TOKENS / BATCH_TOKENS) * BATCH_TOKENS);
    return create_ctx(model, params);
}

session::session(const options &o)
    : model(load_model(o)), info(model_info(model.get())), max_len(static_cast<uint32_t>(longest_allowed(o, info))), truncate(o.truncate),
      specials_as_text(o.specials_as_text), ctx(make_ctx(o, model.get(), info, max_len)) {}

text_length session::measure(const row &r) const {
    sq_tokenize_params p;
    sq_tokenize_params_init(&p, sizeof p);
    p.max_len = max_len;
    p.specials_as_text = specials_as_text;
    const auto count = [&](size_t *n) {
        const char *b = r.is_pair ? r.b.data() : nullptr;
        return sq_tokenize(model.get(), r.a.data(), r.a.size(), b, r.b.size(), &p, nullptr, nullptr, nullptr, nullptr, SIZE_MAX, n);
    };
    text_length length = {0, false};
    int32_t status = count(&length.n_tokens);
    if (status == SQ_E_LIMIT) {
        length.truncated = true;
        p.truncate = truncate;
        if (truncate) status = count(&length.n_tokens);
    }
    if (status != SQ_OK && status != SQ_E_LIMIT) fail("%s", sq_status_string(status));
    return length;
}

void session::check(int32_t status) const {
    if (status == SQ_OK) return;
    const char *why = sq_ctx_error(ctx.get());
    fail("%s", *why ? why : sq_status_string(status));
}

std::string session::note(const row &r) const {
    const text_length length = measure(r);
    return length.truncated ? formatted(" (cut to %zu tokens)", length.n_tokens) : "";
}

void session::fail_text(const std::string &place, const row &r, int32_t status) const {
    const std::string why = sq_ctx_error(ctx.get());
    if (status == SQ_E_LIMIT) {
        const text_length length = measure(r);
        if (length.n_tokens > max_len) fail_too_long(place, length.n_tokens, max_len);
    }
    fail("%s: %s", place.c_str(), why.empty() ? sq_status_string(status) : why.c_str());
}

// ---- texts in chunks ----

namespace {

class chunk_runner {
  public:
    chunk_runner(const session &s, const row_source &rows, output *out, text_task *task) : s_(s), rows_(rows), out_(out), task_(task) {}

    // The rows are all single or all pairs.
    void run(const std::vector<row> &chunk) {
        if (chunk.empty()) return;
        if (call(chunk.data(), chunk.size()) == SQ_OK) {
            task_->give(chunk.data(), chunk.size());
        } else {
            for (const row &r : chunk) { // which row was it?
                const int32_t status = call(&r, 1);
                if (status != SQ_OK) {
                    out_->flush();
                    s_.fail_text(rows_.place(r.number), r, status);
                }
                task_->give(&r, 1);
            }
        }
        out_->flush();
    }

  private:
    const session &s_;
    const row_source &rows_;
    output *out_;
    text_task *task_;
    std::string a_, b_;
    std::vector<size_t> a_starts_, b_starts_;

    int32_t call(const row *r, size_t n) {
        a_.clear(), b_.clear();
        a_starts_.assign(1, 0), b_starts_.assign(1, 0);
        for (size_t i = 0; i < n; i++) {
            a_ += r[i].a, b_ += r[i].b;
            a_starts_.push_back(a_.size()), b_starts_.push_back(b_.size());
        }
        sq_texts texts = {};
        texts.size = sizeof texts;
        texts.n_texts = static_cast<uint32_t>(n);
        texts.a = a_.data();
        texts.a_starts = a_starts_.data();
        if (r->is_pair) texts.b = b_.data(), texts.b_starts = b_starts_.data();
        return task_->run(texts);
    }
};

} // namespace

void run_texts(const options &o, const session &s, row_source *rows, output *out, text_task *task) {
    sq_texts none = {};
    none.size = sizeof none;
    s.check(task->run(none)); // a task that the model lacks is refused before anything is read
    chunk_runner runner(s, *rows, out, task);
    progress shown(*out, "texts");
    const size_t batch = o.batch ? o.batch : DEFAULT_BATCH;
    std::vector<row> chunk;
    size_t n_bytes = 0, n_done = 0;
    const auto run_chunk = [&] {
        runner.run(chunk);
        n_done += chunk.size();
        chunk.clear();
        n_bytes = 0;
        shown.show(n_done);
    };
    for (row r;;) {
        bool more;
        try {
            more = rows->next(&r);
        } catch (const failure &) {
            run_chunk(); // what came before the bad line is answered
            throw;
        }
        if (!more) break;
        if (!chunk.empty() && chunk[0].is_pair != r.is_pair) run_chunk();
        n_bytes += r.a.size() + r.b.size();
        chunk.push_back(std::move(r));
        if (chunk.size() == batch || n_bytes >= CHUNK_BYTES || rows->would_wait()) run_chunk();
    }
    run_chunk();
}

} // namespace cli
