// tests/models.h - for tests: the tiny checkpoints of tests/golden as model files, contexts on them, and what Hugging Face computed.
//
// Tests run in the repository's top folder.
#ifndef SQ_TESTS_MODELS_H
#define SQ_TESTS_MODELS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "../convert/convert.h"
#include "../convert/json.h"
#include "../sq-cpu.h"
#include "../sq-model.h"
#include "check.h"

struct model_deleter {
    void operator()(sq_model *m) const { sq_model_free(m); }
};
struct ctx_deleter {
    void operator()(sq_ctx *c) const { sq_ctx_free(c); }
};
using model_handle = std::unique_ptr<sq_model, model_deleter>;
using ctx_handle = std::unique_ptr<sq_ctx, ctx_deleter>;

inline const char *mode_name(sq::quant_mode mode) {
    return mode == sq::quant_mode::none ? "float" : mode == sq::quant_mode::static_scales ? "static" : mode == sq::quant_mode::fast ? "fast" : "dynamic";
}

constexpr sq::quant_mode ALL_MODES[] = {sq::quant_mode::none, sq::quant_mode::static_scales, sq::quant_mode::fast, sq::quant_mode::dynamic_scales};

// Converts a checkpoint and returns the model file's bytes; empty after a failed check. *report (if not null) gets the converter's.
inline std::string converted(const std::string &checkpoint, sq::quant_mode mode, const std::string &calibration = "", sq::convert_result *report = nullptr) {
    sq::convert_options o;
    o.checkpoint = checkpoint;
    o.mode = mode;
    o.calibration_file = calibration;
    const char *tmp = getenv("TMPDIR");
    o.output = std::string(tmp && *tmp ? tmp : "/tmp") + "/sq-test-" + std::to_string(getpid()) + ".sq";
    sq::convert_result result;
    sq::message why{};
    if (!CHECK_EQ(sq::convert(o, &result, &why), SQ_OK)) {
        fprintf(stderr, "  %s\n", why.text);
        return "";
    }
    std::ifstream in(o.output, std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    unlink(o.output.c_str());
    if (report) *report = std::move(result);
    return bytes.str();
}

inline model_handle load(const std::string &bytes, const char *isa = nullptr) {
    sq_model_params p{};
    p.size = sizeof p;
    p.copy = 1;
    p.verify = 1;
    p.isa = isa;
    sq_model *m = nullptr;
    char err[256] = "";
    if (!CHECK_EQ(sq_model_load_memory(bytes.data(), bytes.size(), &p, &m, err, sizeof err), SQ_OK)) fprintf(stderr, "  %s\n", err);
    return model_handle(m);
}

inline ctx_handle context(const model_handle &m, uint32_t n_threads = 1, uint32_t max_tokens = 0) {
    sq_ctx_params p{};
    p.size = sizeof p;
    p.n_threads = n_threads;
    p.max_tokens = max_tokens;
    sq_ctx *c = nullptr;
    char err[256] = "";
    if (!CHECK_EQ(sq_ctx_create(m.get(), &p, &c, err, sizeof err), SQ_OK)) fprintf(stderr, "  %s\n", err);
    return ctx_handle(c);
}

// One row of a file of expected values.
struct golden_row {
    std::string a, b;
    bool has_b = false;
    std::vector<int32_t> ids, types;
    std::vector<std::vector<float>> hidden; // [layers + 1][tokens * width], if the file has them
    std::vector<float> pooled, logits;
};

inline void append_floats(const sq::json::value &v, std::vector<float> *out) {
    if (v.is_number()) out->push_back(static_cast<float>(v.number));
    for (const sq::json::value &item : v.items) append_floats(item, out);
}

inline std::vector<golden_row> read_golden(const std::string &path) {
    std::vector<golden_row> rows;
    std::ifstream in(path);
    CHECK(in.good());
    std::string line, error;
    std::getline(in, line); // says where the values come from
    while (std::getline(in, line)) {
        sq::json::value v;
        if (!CHECK(sq::json::parse(line.data(), line.size(), &v, &error))) break;
        golden_row r;
        r.a = v.find("a")->text;
        const sq::json::value *b = v.find("b");
        r.has_b = b && b->is_string();
        if (r.has_b) r.b = b->text;
        for (const sq::json::value &id : v.find("ids")->items) r.ids.push_back(static_cast<int32_t>(id.integer));
        for (const sq::json::value &type : v.find("types")->items) r.types.push_back(static_cast<int32_t>(type.integer));
        if (const sq::json::value *hidden = v.find("hidden"))
            for (const sq::json::value &layer : hidden->items) {
                r.hidden.emplace_back();
                append_floats(layer, &r.hidden.back());
            }
        if (const sq::json::value *pooled = v.find("pooled")) append_floats(*pooled, &r.pooled);
        if (const sq::json::value *logits = v.find("logits")) append_floats(*logits, &r.logits);
        rows.push_back(std::move(r));
    }
    return rows;
}

// A batch of the rows in the given order; the vectors must outlive it.
struct batch_builder {
    std::vector<int32_t> ids, types;
    std::vector<uint32_t> starts{0};

    void add(const golden_row &r) {
        ids.insert(ids.end(), r.ids.begin(), r.ids.end());
        types.insert(types.end(), r.types.begin(), r.types.end());
        starts.push_back(static_cast<uint32_t>(ids.size()));
    }
    sq_batch batch() const { return {sizeof(sq_batch), static_cast<uint32_t>(starts.size()) - 1, ids.data(), types.data(), starts.data()}; }
};

// The answer of sq_forward; empty after a failed check.
inline std::vector<float> run(const ctx_handle &c, const batch_builder &b, int32_t kind, uint32_t width) {
    const sq_batch batch = b.batch();
    std::vector<float> out((kind == SQ_HIDDEN ? b.ids.size() : batch.n_seqs) * width); // logits: of a `classify` head
    size_t n = 0;
    if (!CHECK_EQ(sq_forward(c.get(), &batch, kind, out.data(), out.size(), &n), SQ_OK)) {
        fprintf(stderr, "  %s\n", sq_ctx_error(c.get()));
        return {};
    }
    CHECK_EQ(n, out.size());
    return out;
}

inline float largest(const std::vector<float> &x) {
    float most = 0;
    for (float v : x) most = std::max(most, fabsf(v));
    return most;
}

inline double cosine(const float *a, const float *b, size_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) ab += static_cast<double>(a[i]) * b[i], aa += static_cast<double>(a[i]) * a[i], bb += static_cast<double>(b[i]) * b[i];
    return ab / sqrt(aa * bb);
}

#endif
