// examples/cli-embed.cpp - `sq embed`: rows go to the library in chunks, vectors come out as text, JSON lines or a NumPy file.
//
// Memory is bounded by the chunk and the longest row, except for texts given as arguments, which are compared with each other.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include <algorithm>

#include "../convert/json.h"
#include "cli-common.h"

namespace cli {

namespace json = sq::json;

constexpr size_t CHUNK_BYTES = 1 << 20;     // text that runs in one call at most, unless one row is longer
constexpr uint32_t BATCH_TOKENS = 128;      // room in the context for a row of --batch, on average
constexpr uint32_t MAX_BATCH_TOKENS = 16384;
constexpr size_t NPY_HEADER_BYTES = 128;    // a multiple of 64, as the format asks; fits any count
constexpr size_t TABLE_TEXTS = 16;          // texts up to which the similarity table fits a terminal

// ---- where vectors go ----

class vector_sink {
  public:
    virtual ~vector_sink() = default;
    virtual void take(const row &r, const float *x, size_t n) = 0; // x [n]
    virtual void chunk_done() {}
    virtual void finish() {}
};

class jsonl_sink : public vector_sink {
  public:
    explicit jsonl_sink(output *out) : out_(out) {}

    void take(const row &, const float *x, size_t n) override {
        line_ = "{\"embedding\":[";
        for (size_t i = 0; i < n; i++) {
            if (i) line_ += ',';
            json::append_number(&line_, x[i]);
        }
        line_ += "]}\n";
        out_->write(line_);
    }
    void chunk_done() override { out_->flush(); }

  private:
    output *out_;
    std::string line_;
};

// A .npy file, format 1.0. Its header holds the count, which is known last, so the numbers wait in an unnamed temporary file.
class npy_sink : public vector_sink {
  public:
    npy_sink(output *out, size_t width) : out_(out), width_(width), spool_(tmpfile()) {
        if (!spool_) fail("cannot create a temporary file: %s", strerror(errno));
    }
    ~npy_sink() override { fclose(spool_); }
    npy_sink(const npy_sink &) = delete;
    npy_sink &operator=(const npy_sink &) = delete;

    void take(const row &, const float *x, size_t n) override {
        if (fwrite(x, sizeof *x, n, spool_) != n) fail("cannot write a temporary file: %s", strerror(errno));
        n_rows_++;
    }
    void finish() override {
        out_->write(header());
        if (fflush(spool_) != 0 || fseek(spool_, 0, SEEK_SET) != 0) fail("cannot write a temporary file: %s", strerror(errno));
        std::vector<char> block(1 << 16);
        size_t n;
        while ((n = fread(block.data(), 1, block.size(), spool_)) > 0) out_->write(std::string_view(block.data(), n));
        if (ferror(spool_)) fail("cannot read a temporary file: %s", strerror(errno));
    }

  private:
    output *out_;
    size_t width_, n_rows_ = 0;
    FILE *spool_;

    std::string header() const {
        std::string h("\x93NUMPY\x01\x00", 8);
        h += static_cast<char>(NPY_HEADER_BYTES - 10);
        h += '\0';
        h += "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(n_rows_) + ", " + std::to_string(width_) + "), }";
        h.append(NPY_HEADER_BYTES - 1 - h.size(), ' ');
        return h + '\n';
    }
};

static double cosine(const std::vector<float> &a, const std::vector<float> &b) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); i++) {
        ab += double{a[i]} * b[i];
        aa += double{a[i]} * a[i];
        bb += double{b[i]} * b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

class text_sink : public vector_sink {
  public:
    explicit text_sink(output *out) : out_(out) {}

    void take(const row &r, const float *x, size_t n) override {
        texts_.push_back(printable(r.a, 60));
        vectors_.emplace_back(x, x + n);
    }
    void finish() override {
        for (size_t i = 0; i < texts_.size(); i++) print_vector(i);
        if (texts_.size() < 2) return;
        if (texts_.size() <= TABLE_TEXTS) print_table();
        print_nearest();
    }

  private:
    output *out_;
    std::vector<std::string> texts_;
    std::vector<std::vector<float>> vectors_;

    void print(const char *format, ...) __attribute__((format(printf, 2, 3))) {
        char text[512];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        out_->write(text);
    }
    void print_vector(size_t i) {
        const std::vector<float> &v = vectors_[i];
        print("%3zu  [", i + 1);
        for (size_t j = 0; j < std::min<size_t>(v.size(), 4); j++) print("%s%.4f", j ? ", " : "", double{v[j]});
        print("%s] %zu numbers   %s\n", v.size() > 4 ? ", ..." : "", v.size(), texts_[i].c_str());
    }
    void print_table() {
        print("\ncosine similarity\n   ");
        for (size_t j = 0; j < texts_.size(); j++) print("%7zu", j + 1);
        for (size_t i = 0; i < texts_.size(); i++) {
            print("\n%3zu", i + 1);
            for (size_t j = 0; j < texts_.size(); j++) print("%7.3f", cosine(vectors_[i], vectors_[j]));
        }
        print("\n");
    }
    void print_nearest() {
        print("\nnearest to each\n");
        for (size_t i = 0; i < texts_.size(); i++) {
            size_t best = i == 0 ? 1 : 0;
            for (size_t j = 0; j < texts_.size(); j++)
                if (j != i && cosine(vectors_[i], vectors_[j]) > cosine(vectors_[i], vectors_[best])) best = j;
            print("%7.3f  %s  ->  %s\n", cosine(vectors_[i], vectors_[best]), pad_right(texts_[i], longest()).c_str(), texts_[best].c_str());
        }
    }
    size_t longest() const {
        size_t n = 0;
        for (const std::string &t : texts_) n = std::max(n, count_chars(t));
        return n;
    }
};

static std::unique_ptr<vector_sink> make_sink(const options &o, output *out, size_t width) {
    if (o.format == FORMAT_JSONL) return std::make_unique<jsonl_sink>(out);
    if (o.format == FORMAT_TEXT) return std::make_unique<text_sink>(out);
    if (out->is_terminal()) fail_usage("--format npy writes bytes that are not for a terminal: add -o FILE");
    return std::make_unique<npy_sink>(out, width);
}

// ---- running ----

class embedder {
  public:
    embedder(const options &o, row_source *rows, vector_sink *sink, sq_model *model)
        : rows_(rows), sink_(sink), model_(model), info_(model_info(model)), max_len_(longest_allowed(o, info_)), width_(o.dimensions ? o.dimensions : info_.embed_width) {
        sq_embed_params_init(&params_, sizeof params_);
        params_.pooling = o.pooling;
        params_.normalize = o.normalize;
        params_.dimensions = o.dimensions;
        params_.max_len = static_cast<uint32_t>(max_len_);
        params_.truncate = o.truncate;
        params_.specials_as_text = o.specials_as_text;

        sq_ctx_params params;
        sq_ctx_params_init(&params, sizeof params);
        params.n_threads = o.threads;
        params.max_seqs = o.batch ? o.batch : DEFAULT_BATCH;
        const uint32_t room = std::max({512u, info_.max_tokens, params_.max_len}); // 512: sq.h's own default
        params.max_tokens = std::max(room, std::min(o.batch, MAX_BATCH_TOKENS / BATCH_TOKENS) * BATCH_TOKENS);
        sq_ctx *ctx = nullptr;
        char err[512] = "";
        const int32_t status = sq_ctx_create(model, &params, &ctx, err, sizeof err);
        if (status != SQ_OK) fail("%s", *err ? err : sq_status_string(status));
        ctx_.reset(ctx);
    }

    // Embeds rows, which are all single or all pairs, and hands their vectors on, up to the first that fails.
    void run(const std::vector<row> &chunk) {
        int32_t status = embed(chunk.data(), chunk.size());
        if (status == SQ_OK) return give(chunk.data(), chunk.size());
        for (const row &r : chunk) { // which row was it?
            status = embed(&r, 1);
            if (status != SQ_OK) fail_row(r, status);
            give(&r, 1);
        }
    }

  private:
    row_source *rows_;
    vector_sink *sink_;
    sq_model *model_;
    sq_model_info info_;
    size_t max_len_, width_;
    sq_embed_params params_;
    ctx_ptr ctx_;
    std::string a_, b_;
    std::vector<size_t> a_starts_, b_starts_;
    std::vector<float> vectors_; // [rows][width_]

    int32_t embed(const row *r, size_t n) {
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
        vectors_.resize(n * width_);
        size_t n_out = 0;
        return sq_embed(ctx_.get(), &texts, &params_, vectors_.data(), vectors_.size(), &n_out);
    }

    void give(const row *r, size_t n) {
        for (size_t i = 0; i < n; i++) sink_->take(r[i], &vectors_[i * width_], width_);
        sink_->chunk_done();
    }

    [[noreturn]] void fail_row(const row &r, int32_t status) {
        const std::string why = sq_ctx_error(ctx_.get());
        if (status == SQ_E_LIMIT) {
            sq_tokenize_params p;
            sq_tokenize_params_init(&p, sizeof p);
            p.max_len = params_.max_len;
            p.specials_as_text = params_.specials_as_text;
            size_t n = 0;
            status = sq_tokenize(model_, r.a.data(), r.a.size(), r.is_pair ? r.b.data() : nullptr, r.b.size(), &p, nullptr, nullptr, nullptr, nullptr, 0, &n);
            if (status == SQ_E_LIMIT && n > max_len_) fail_too_long(*rows_, r.number, n, max_len_);
        }
        fail("%s: %s", rows_->place(r.number).c_str(), why.empty() ? sq_status_string(status) : why.c_str());
    }
};

void run_embed(const options &o) {
    row_source rows(o);
    const model_ptr model = load_model(o);
    output out(o.output);
    const uint32_t width = model_info(model.get()).embed_width;
    if (o.dimensions > width) fail("--dimensions %u: the model's vectors have %u", static_cast<unsigned>(o.dimensions), static_cast<unsigned>(width));
    const std::unique_ptr<vector_sink> sink = make_sink(o, &out, o.dimensions ? o.dimensions : width);
    embedder e(o, &rows, sink.get(), model.get());
    progress shown(out);

    const size_t batch = o.batch ? o.batch : DEFAULT_BATCH;
    std::vector<row> chunk;
    size_t n_bytes = 0, n_done = 0;
    const auto run_chunk = [&] {
        if (!chunk.empty()) e.run(chunk);
        n_done += chunk.size();
        chunk.clear();
        n_bytes = 0;
        shown.show(n_done);
    };
    for (row r;;) {
        bool more;
        try {
            more = rows.next(&r);
        } catch (const failure &) {
            run_chunk(); // what came before the bad line is answered
            throw;
        }
        if (!more) break;
        if (!chunk.empty() && chunk[0].is_pair != r.is_pair) run_chunk();
        n_bytes += r.a.size() + r.b.size();
        chunk.push_back(std::move(r));
        if (chunk.size() == batch || n_bytes >= CHUNK_BYTES || rows.would_wait()) run_chunk();
    }
    run_chunk();
    sink->finish();
    out.commit();
}

} // namespace cli
