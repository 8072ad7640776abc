// examples/cli-embed.cpp - `sq embed`: vectors of texts, or of every token, as text, JSON lines or a NumPy file.
//
// Memory is bounded by the chunk and the longest row, except for texts given as arguments, which are compared with each other.
#include <errno.h>
#include <math.h>
#include <string.h>

#include <algorithm>

#include "../convert/json.h"
#include "cli-common.h"

namespace cli {

namespace json = sq::json;

constexpr size_t NPY_HEADER_BYTES = 128;    // a multiple of 64, as the format asks; fits any count
constexpr size_t TABLE_TEXTS = 16;          // texts up to which the similarity table fits a terminal

// ---- where vectors go ----

class vector_sink {
  public:
    virtual ~vector_sink() = default;
    virtual void take(const row &r, const float *x, size_t n) = 0; // x [n]
    virtual void finish() {}
};

// The value of an IEEE 754 binary16 number.
static float float_of_half(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float whole = static_cast<float>(exponent ? 1024 + fraction : fraction); // in units of the last place, which is 2^-24 for exponents 0 and 1
    const float magnitude = exponent == 31 ? HUGE_VALF : ldexpf(whole, std::max(exponent, 1) - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

// A vector as a vector store takes it.
struct packed_vector {
    std::vector<float> f32;
    std::vector<uint16_t> f16;
    std::vector<int8_t> s8;
    std::vector<uint8_t> bits;
    float scale = 0; // of s8

    void pack(number_type type, const float *x, size_t n) {
        switch (type) {
        case TYPE_F32: f32.assign(x, x + n); break;
        case TYPE_F16: f16.resize(n), sq_to_f16(x, n, f16.data()); break;
        case TYPE_S8: s8.resize(n), scale = sq_to_s8(x, n, s8.data()); break;
        case TYPE_BITS: bits.resize((n + 7) / 8), sq_to_bits(x, n, bits.data()); break;
        }
    }
};

template <class number> static void append_integers(std::string *out, const std::vector<number> &list) {
    *out += '[';
    for (size_t i = 0; i < list.size(); i++) {
        if (i) *out += ',';
        json::append_number(out, int{list[i]});
    }
    *out += ']';
}

class jsonl_sink : public vector_sink {
  public:
    jsonl_sink(const session &s, number_type type, output *out) : s_(s), type_(type), out_(out) {}

    void take(const row &r, const float *x, size_t n) override {
        v_.pack(type_, x, n);
        line_ = "{\"embedding\":";
        if (type_ == TYPE_F16) {
            v_.f32.resize(n);
            std::transform(v_.f16.begin(), v_.f16.end(), v_.f32.begin(), float_of_half);
        }
        if (type_ == TYPE_S8) append_integers(&line_, v_.s8);
        else if (type_ == TYPE_BITS) append_integers(&line_, v_.bits);
        else append_numbers(&line_, v_.f32.data(), n);
        if (type_ == TYPE_S8) {
            line_ += ",\"scale\":";
            json::append_number(&line_, v_.scale);
        }
        const text_length length = s_.measure(r);
        line_ += ",\"tokens\":" + std::to_string(length.n_tokens);
        append_truncated(&line_, length.truncated);
        line_ += "}\n";
        out_->write(line_);
    }

  private:
    const session &s_;
    number_type type_;
    output *out_;
    packed_vector v_;
    std::string line_;
};

// A .npy file, format 1.0. Its header holds the count, which is known last, so the numbers wait in an unnamed temporary file. Scales of s8 vectors are left
// out: similarities by angle do not need them.
class npy_sink : public vector_sink {
  public:
    npy_sink(output *out, number_type type, size_t width)
        : out_(out), type_(type), width_(type == TYPE_BITS ? (width + 7) / 8 : width), spool_(tmpfile()) {
        if (!spool_) fail("cannot create a temporary file: %s", strerror(errno));
    }
    ~npy_sink() override { fclose(spool_); }
    npy_sink(const npy_sink &) = delete;
    npy_sink &operator=(const npy_sink &) = delete;

    void take(const row &, const float *x, size_t n) override {
        v_.pack(type_, x, n);
        switch (type_) {
        case TYPE_F32: put(v_.f32); break;
        case TYPE_F16: put(v_.f16); break;
        case TYPE_S8: put(v_.s8); break;
        case TYPE_BITS: put(v_.bits); break;
        }
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
    number_type type_;
    size_t width_, n_rows_ = 0; // width: numbers in a row of the file
    FILE *spool_;
    packed_vector v_;

    template <class number> void put(const std::vector<number> &list) {
        if (fwrite(list.data(), sizeof(number), list.size(), spool_) != list.size()) fail("cannot write a temporary file: %s", strerror(errno));
    }

    std::string header() const {
        std::string h("\x93NUMPY\x01\x00", 8);
        h += static_cast<char>(NPY_HEADER_BYTES - 10);
        h += '\0';
        static const char *const NAMES[] = {"<f4", "<f2", "|i1", "|u1"}; // by number_type
        h += std::string("{'descr': '") + NAMES[type_] + "', 'fortran_order': False, 'shape': (";
        h += std::to_string(n_rows_) + ", " + std::to_string(width_) + "), }";
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
    text_sink(const session &s, output *out) : s_(s), out_(out) {}

    void take(const row &r, const float *x, size_t n) override {
        texts_.push_back(printable(r.a, 60) + s_.note(r));
        vectors_.emplace_back(x, x + n);
    }
    void finish() override {
        for (size_t i = 0; i < texts_.size(); i++) print_vector(i);
        if (texts_.size() < 2) return;
        if (texts_.size() <= TABLE_TEXTS) print_table();
        print_nearest();
    }

  private:
    const session &s_;
    output *out_;
    std::vector<std::string> texts_;
    std::vector<std::vector<float>> vectors_;

    void print_vector(size_t i) {
        const std::vector<float> &v = vectors_[i];
        out_->write(formatted("%3zu  [", i + 1));
        for (size_t j = 0; j < std::min<size_t>(v.size(), 4); j++) out_->write(formatted("%s%.4f", j ? ", " : "", double{v[j]}));
        out_->write(formatted("%s] %zu numbers   %s\n", v.size() > 4 ? ", ..." : "", v.size(), texts_[i].c_str()));
    }
    void print_table() {
        out_->write("\ncosine similarity\n   ");
        for (size_t j = 0; j < texts_.size(); j++) out_->write(formatted("%7zu", j + 1));
        for (size_t i = 0; i < texts_.size(); i++) {
            out_->write(formatted("\n%3zu", i + 1));
            for (size_t j = 0; j < texts_.size(); j++) out_->write(formatted("%7.3f", cosine(vectors_[i], vectors_[j])));
        }
        out_->write("\n");
    }
    void print_nearest() {
        out_->write("\nnearest to each\n");
        for (size_t i = 0; i < texts_.size(); i++) {
            size_t best = i == 0 ? 1 : 0;
            for (size_t j = 0; j < texts_.size(); j++)
                if (j != i && cosine(vectors_[i], vectors_[j]) > cosine(vectors_[i], vectors_[best])) best = j;
            out_->write(formatted("%7.3f  %s  ->  %s\n", cosine(vectors_[i], vectors_[best]), pad_right(texts_[i], longest()).c_str(), texts_[best].c_str()));
        }
    }
    size_t longest() const {
        size_t n = 0;
        for (const std::string &t : texts_) n = std::max(n, count_chars(t));
        return n;
    }
};

static std::unique_ptr<vector_sink> make_sink(const options &o, const session &s, size_t width, output *out) {
    if (o.format == FORMAT_JSONL) return std::make_unique<jsonl_sink>(s, o.type, out);
    if (o.format == FORMAT_TEXT) return std::make_unique<text_sink>(s, out);
    if (out->is_terminal()) fail_usage("--format npy writes bytes that are not for a terminal: add -o FILE");
    return std::make_unique<npy_sink>(out, o.type, width);
}

// ---- running ----

class embed_task : public text_task {
  public:
    embed_task(const options &o, const session &s, vector_sink *sink, size_t width) : s_(s), sink_(sink), width_(width) {
        sq_embed_params_init(&params_, sizeof params_);
        params_.pooling = o.pooling;
        params_.normalize = o.normalize;
        params_.dimensions = o.dimensions;
        s.set_limits(&params_);
    }

    int32_t run(const sq_texts &texts) override {
        vectors_.resize(texts.n_texts * width_);
        size_t n = 0;
        return sq_embed(s_.ctx.get(), &texts, &params_, vectors_.data(), vectors_.size(), &n);
    }
    void give(const row *r, size_t n) override {
        for (size_t i = 0; i < n; i++) sink_->take(r[i], &vectors_[i * width_], width_);
    }

  private:
    const session &s_;
    vector_sink *sink_;
    size_t width_;
    sq_embed_params params_;
    std::vector<float> vectors_; // [rows][width_]
};

// Each token and its vector, a line for each row. Rows run one by one: printing the numbers takes longer than what a batch would save.
class hidden_writer {
  public:
    hidden_writer(const session &s, output *out) : s_(s), out_(out) {
        sq_tokenize_params_init(&params_, sizeof params_);
        s.set_limits(&params_);
    }

    void write(const row_source &rows, const row &r) {
        const text_length length = s_.measure(r);
        const char *b = r.is_pair ? r.b.data() : nullptr;
        if (length.n_tokens > s_.max_len) fail_too_long(rows.place(r.number), length.n_tokens, s_.max_len);
        ids_.resize(length.n_tokens), types_.resize(length.n_tokens);
        size_t n = 0;
        int32_t status =
            sq_tokenize(s_.model.get(), r.a.data(), r.a.size(), b, r.b.size(), &params_, ids_.data(), types_.data(), nullptr, nullptr, ids_.size(), &n);
        if (status != SQ_OK) fail("%s: %s", rows.place(r.number).c_str(), sq_status_string(status));
        const uint32_t starts[] = {0, static_cast<uint32_t>(n)};
        const sq_batch batch = {sizeof batch, 1, ids_.data(), types_.data(), starts};
        vectors_.resize(n * s_.info.width);
        status = sq_forward(s_.ctx.get(), &batch, SQ_HIDDEN, vectors_.data(), vectors_.size(), &n);
        if (status != SQ_OK) s_.fail_text(rows.place(r.number), r, status);
        write_line(length.truncated);
    }

  private:
    const session &s_;
    output *out_;
    sq_tokenize_params params_;
    std::vector<int32_t> ids_, types_;
    std::vector<float> vectors_; // [tokens][width]
    std::string line_;

    void write_line(bool truncated) {
        line_ = "{\"tokens\":[";
        for (size_t i = 0; i < ids_.size(); i++) {
            if (i) line_ += ',';
            json::append_string(&line_, token_text(s_.model.get(), ids_[i]));
        }
        line_ += "],\"hidden\":[";
        for (size_t i = 0; i < ids_.size(); i++) {
            if (i) line_ += ',';
            append_numbers(&line_, &vectors_[i * s_.info.width], s_.info.width);
        }
        line_ += ']';
        append_truncated(&line_, truncated);
        line_ += "}\n";
        out_->write(line_);
    }
};

void run_embed(const options &o) {
    row_source rows(o, TEXT_OR_PAIR, rows_of_texts(o));
    const session s(o);
    output out(o.output);
    if (o.hidden) {
        hidden_writer writer(s, &out);
        run_rows(&rows, &out, "texts", [&](const row &r) { writer.write(rows, r); });
    } else {
        const uint32_t width = s.info.embed_width;
        if (o.dimensions > width) fail("--dimensions %u: the model's vectors have %u", static_cast<unsigned>(o.dimensions), static_cast<unsigned>(width));
        const size_t kept = o.dimensions ? o.dimensions : width;
        const std::unique_ptr<vector_sink> sink = make_sink(o, s, kept, &out);
        embed_task task(o, s, sink.get(), kept);
        run_texts(o, s, &rows, &out, &task);
        sink->finish();
    }
    out.commit();
}

} // namespace cli
