// convert/calibrate.cpp - see calibrate.h. Compiled with SQ_TAPS, as is the sq.cpp that it runs.
#include "calibrate.h"

#include <string.h>

#include <algorithm>
#include <memory>

namespace sq {

namespace {

// Rows of each layer's input that the search sees. 256 rows of BERT-large (24 layers, 3 x 1024 + 4096 columns) take 176 MB.
constexpr size_t SAMPLE_ROWS = 256;
// Rows of whole sequences that integer attention is judged on; of BERT-large (24 layers, 3 x 1024 columns) they take 151 MB.
constexpr size_t ATTENTION_ROWS = 512;

struct ctx_deleter {
    void operator()(sq_ctx *c) const { sq_ctx_free(c); }
};

struct observation {
    calibration *out;
    bool keep;                           // the batch that is running holds texts whose rows stay in the samples
    const std::vector<uint32_t> *starts; // of its sequences
};

void observe(void *user, const char *name, uint32_t l, const float *x, size_t rows, size_t, size_t stride) {
    const observation *o = static_cast<observation *>(user);
    const std::vector<uint32_t> &starts = *o->starts;
    for (size_t seq = 0; strcmp(name, "attention") == 0 && seq + 1 < starts.size(); seq++)
        o->out->attention[l].see(x + starts[seq] * stride, starts[seq + 1] - starts[seq], stride);
    for (uint32_t role = QKV; role <= DOWN; role++)
        if (strcmp(name, ROLE_NAMES[role]) == 0) o->out->layers[l][role].see(x, rows, stride, o->keep);
}

int run_batch(sq_ctx *ctx, const std::vector<int32_t> &ids, const std::vector<int32_t> &types, const std::vector<uint32_t> &starts, std::vector<float> *out,
              size_t width, message *why) {
    sq_batch b{sizeof b, static_cast<uint32_t>(starts.size()) - 1, ids.data(), types.data(), starts.data()};
    size_t n = 0;
    out->resize(b.n_seqs * width);
    int status = sq_forward(ctx, &b, SQ_POOLED, out->data(), out->size(), &n);
    return status == SQ_OK ? status : fail(why, status, "calibration: %s", sq_ctx_error(ctx));
}

} // namespace

int calibrate(sq_model *model, const std::vector<std::string> &texts, size_t n_kept, progress report, calibration *out, message *why) {
    const architecture &a = model->arch;
    sq_ctx *raw = nullptr;
    if (int status = sq_ctx_create(model, nullptr, &raw, why->text, sizeof why->text)) return status;
    const std::unique_ptr<sq_ctx, ctx_deleter> ctx(raw);
    const size_t budget = std::max(512u, a.max_tokens); // the context's default for max_tokens
    out->layers.assign(a.n_layers, {observer(a.width, SAMPLE_ROWS), observer(a.width, SAMPLE_ROWS), observer(a.width, SAMPLE_ROWS), observer(a.ffn, SAMPLE_ROWS)});
    out->attention.assign(a.n_layers, attention_observer(a.width, ATTENTION_ROWS));
    std::vector<uint32_t> starts(1, 0);
    observation seeing{out, n_kept > 0, &starts};
    sq_ctx_set_tap(ctx.get(), {observe, &seeing});

    // Heads that judge pairs see second segments and separators in the middle, and so must calibration.
    const bool takes_pairs = model->head.kind == SQ_HEAD_CLASSIFY || model->head.kind == SQ_HEAD_ANSWER;
    encode_options options;
    options.max_len = a.max_tokens;
    options.truncate = true;
    std::vector<int32_t> ids, types;
    std::vector<float> vectors;
    encoding e;
    for (size_t i = 0; i <= texts.size(); i++) {
        const bool last = i == texts.size();
        const bool is_pair = takes_pairs && !last && i > n_kept && (i - n_kept) % 2 == 1; // every other text follows the one before it
        const std::string *first = last ? nullptr : &texts[is_pair ? i - 1 : i];
        if (first)
            if (int status = model->tok.encode(first->data(), first->size(), is_pair ? texts[i].data() : nullptr, is_pair ? texts[i].size() : 0, options, &e, why))
                return status;
        const bool full = i == n_kept || ids.size() + e.ids.size() > budget || starts.size() > 64;
        if ((last || full) && starts.size() > 1) {
            if (int status = run_batch(ctx.get(), ids, types, starts, &vectors, a.width, why)) return status;
            report("calibrating", static_cast<double>(i) / static_cast<double>(texts.size()));
            ids.clear();
            types.clear();
            starts.assign(1, 0);
        }
        seeing.keep = i < n_kept;
        if (last) break;
        if (e.ids.empty()) continue; // a tokenizer without special tokens makes nothing of an empty text
        ids.insert(ids.end(), e.ids.begin(), e.ids.end());
        if (a.n_types) types.insert(types.end(), e.types.begin(), e.types.end());
        else types.resize(ids.size());
        starts.push_back(static_cast<uint32_t>(ids.size()));
        out->n_texts++;
        out->n_tokens += static_cast<uint32_t>(e.ids.size());
    }
    return SQ_OK;
}

} // namespace sq
