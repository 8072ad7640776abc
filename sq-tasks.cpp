// sq-tasks.cpp - the C API's entries that take texts and give answers: embed, classify, rerank, answer, tag.
//
// Each makes token sequences of its texts, runs them in batches as large as the context allows (`run_batches`), and turns pooled vectors or logits into its
// answers. Texts never meet in a batch otherwise than side by side, so the grouping changes no bit of a result. The forward pass is sq.cpp's.
#include <float.h>
#include <math.h>

#include <algorithm>
#include <string>

#include "sq-ctx.h"
#include "sq-kernels.h"

// Scores are the same bits everywhere: no compiler may fuse a multiplication with an addition, whatever CPU its flags name.
#if defined(__clang__)
#  pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#  pragma GCC optimize("fp-contract=off")
#endif

using namespace sq;

namespace {

// ---- texts ----

int check_texts(sq_ctx *c, const sq_texts &t) {
    message *why = &c->error;
    if (t.n_texts == 0) return SQ_OK;
    if (!t.a_starts || (!t.a && t.a_starts[t.n_texts] > t.a_starts[0])) return fail(why, SQ_E_ARG, "the texts or their starts are null");
    if (t.b_starts && !t.b && t.b_starts[t.n_texts] > t.b_starts[0]) return fail(why, SQ_E_ARG, "the second texts are null");
    for (uint32_t i = 0; i < t.n_texts; i++)
        if (t.a_starts[i + 1] < t.a_starts[i] || (t.b_starts && t.b_starts[i + 1] < t.b_starts[i])) return fail(why, SQ_E_ARG, "the start of text %u falls", i + 1);
    return SQ_OK;
}

struct piece {
    const char *bytes; // null: there is none
    size_t n_bytes;
};

piece first_text(const sq_texts &t, uint32_t i) { return {t.a ? t.a + t.a_starts[i] : "", t.a_starts[i + 1] - t.a_starts[i]}; }

piece second_text(const sq_texts &t, uint32_t i) {
    if (!t.b_starts) return {nullptr, 0};
    return {t.b ? t.b + t.b_starts[i] : "", t.b_starts[i + 1] - t.b_starts[i]};
}

// A text without any token (an empty one, where the tokenizer adds no special tokens) is one unknown token: a sequence has at least one.
void fill_empty(const sq_model &m, encoding *e) {
    if (!e->ids.empty()) return;
    const meta_entry *unknown = m.file.find_meta("tok.unknown");
    e->ids.push_back(unknown && unknown->u32 < m.arch.vocab ? static_cast<int32_t>(unknown->u32) : 0);
    e->types.push_back(0);
    e->sources.push_back(-1);
    e->spans.assign(2, 0);
}

// Tokens of item i into c->text, within the model's and the context's limits.
int encode(sq_ctx *c, uint32_t i, piece a, piece b, encode_options o) {
    o.max_len = std::min<size_t>({o.max_len, c->model->arch.n_positions, c->max_tokens});
    const int status = c->model->tok.encode(a.bytes, a.n_bytes, b.bytes, b.n_bytes, o, &c->text, &c->error);
    if (status == SQ_E_LIMIT) fail(&c->error, status, "text %u has %zu tokens; the limit is %zu (truncate cuts it)", i, c->text.full_len, o.max_len);
    fill_empty(*c->model, &c->text);
    return status;
}

// ---- batches ----

void clear_batch(sq_ctx *c) {
    c->ids.clear();
    c->types.clear();
    c->starts.assign(1, 0);
}

void add_sequence(sq_ctx *c, const std::vector<int32_t> &ids, const std::vector<int32_t> &types) {
    c->ids.insert(c->ids.end(), ids.begin(), ids.end());
    if (c->model->arch.n_types) c->types.insert(c->types.end(), types.begin(), types.end());
    else c->types.resize(c->ids.size());
    c->starts.push_back(static_cast<uint32_t>(c->ids.size()));
}

// For items 0 .. n_items-1: make(i) leaves the item's tokens in c->text; when a batch is full, or at the end, it is run, and take(first item, items in it) reads
// the results from the scratch. Both return a status.
template <class make_fn, class take_fn> int run_batches(sq_ctx *c, size_t n_items, result what, uint32_t pooling, make_fn make, take_fn take) {
    size_t n_done = 0;
    auto flush = [&]() -> int {
        const uint32_t n_seqs = static_cast<uint32_t>(c->starts.size()) - 1;
        if (n_seqs == 0) return SQ_OK;
        const sq_batch b{sizeof b, n_seqs, c->ids.data(), c->types.data(), c->starts.data()};
        if (int status = forward(c, b, what, pooling)) return status;
        if (int status = take(n_done, n_seqs)) return status;
        n_done += n_seqs;
        clear_batch(c);
        return SQ_OK;
    };
    clear_batch(c);
    for (size_t i = 0; i < n_items; i++) {
        if (int status = make(i)) return status;
        if (c->ids.size() + c->text.ids.size() > c->max_tokens || c->starts.size() > c->max_seqs)
            if (int status = flush()) return status;
        add_sequence(c, c->text.ids, c->text.types);
    }
    return flush();
}

// SQ_E_TASK with the tasks that the model has.
int need_head(sq_ctx *c, uint32_t kind, const char *task) {
    static const char *const HAS[] = {"it has no head and gives embeddings (sq_embed)", "its head classifies (sq_classify, with one label sq_rerank)",
                                      "its head finds answers (sq_answer)", "its head tags words (sq_tag)"};
    const uint32_t has = c->model->head.kind;
    return has == kind ? SQ_OK : fail(&c->error, SQ_E_TASK, "the model cannot %s: %s", task, HAS[has]);
}

// e^x in double, from additions and multiplications alone, so that every machine and compiler gives the same bits (a C library's exp need not): x = n ln 2 + r
// with ln 2 in two parts (Cody and Waite), Taylor's series on |r| <= ln(2)/2, whose 14th term is below 4e-18.
double exp_of(double x) {
    if (!(x > -700)) return x <= -700 ? 0 : x;
    if (x > 700) return HUGE_VAL;
    const double n = nearbyint(x * 1.4426950408889634), r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
    double sum = 1;
    for (int i = 13; i > 0; i--) sum = 1 + sum * r / i;
    return ldexp(sum, static_cast<int>(n));
}

// Softmax of n logits; the highest is subtracted first. SQ_E_NUMERIC if that is infinite.
int softmax(sq_ctx *c, const float *logits, size_t n, float *out) {
    const double most = *std::max_element(logits, logits + n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp_of(logits[i] - most);
    for (size_t i = 0; i < n; i++) out[i] = static_cast<float>(exp_of(logits[i] - most) / sum);
    return check_finite(c, out, n);
}

float sigmoid(float x) { return static_cast<float>(1 / (1 + exp_of(-static_cast<double>(x)))); }

} // namespace

// ---- embed ----

void sq_embed_params_init(sq_embed_params *params, size_t size) { init(params, size); }

namespace {

// A zero vector stays zero. Squares that overflow or vanish are taken of a vector scaled by its largest entry.
void scale_to_length_1(const kernels &k, float *v, size_t n) {
    float squares = k.sum_squares(v, n);
    if (!(squares > 1e-30f && squares < 1e30f)) {
        float most = 0;
        for (size_t i = 0; i < n; i++) most = std::max(most, fabsf(v[i]));
        if (!(most > 0 && most <= FLT_MAX)) return;
        for (size_t i = 0; i < n; i++) v[i] /= most;
        squares = k.sum_squares(v, n);
    }
    k.scale(v, 1 / sqrtf(squares), n, v);
}

// Moves the vectors of a finished batch to the caller's rows, cut and normalised.
void emit_vectors(sq_ctx *c, size_t n_seqs, size_t dimensions, bool normalize, float *out) {
    const kernels &k = *c->model->kernels;
    const size_t stride = c->mem.pooled_stride;
    float *vectors = c->mem.pooled[c->model->dense.size() % 2];
    for (size_t s = 0; s < n_seqs; s++) {
        float *v = vectors + s * stride;
        std::fill(v + dimensions, v + stride, 0.0f);
        if (normalize) scale_to_length_1(k, v, stride);
        memcpy(out + s * dimensions, v, dimensions * sizeof(float));
    }
}

int embed(sq_ctx *c, const sq_texts *texts, const sq_embed_params *params, float *out, size_t cap, size_t *n) {
    message *why = &c->error;
    if (!texts || !n || (!out && cap)) return fail(why, SQ_E_ARG, "texts, n or out is null");
    sq_texts t;
    sq_embed_params p;
    if (int status = take(texts, &t, why)) return status;
    if (int status = take(params, &p, why)) return status;
    const architecture &a = c->model->arch;
    const uint32_t width = c->model->dense.empty() ? a.width : c->model->dense.back().weights.n;
    if (p.pooling > SQ_POOL_MAX || p.normalize > SQ_NORMALIZE_NO) return fail(why, SQ_E_ARG, "unknown pooling or normalize");
    if (p.dimensions > width) return fail(why, SQ_E_ARG, "%u dimensions of a vector that has %u", p.dimensions, width);
    if (p.reserved) return fail(why, SQ_E_VERSION, "sq_embed_params.reserved is not 0");
    if (int status = check_texts(c, t)) return status;
    const size_t dimensions = p.dimensions ? p.dimensions : width;
    if (int status = needs_space(c, t.n_texts * dimensions, cap, n)) return status;
    const bool normalize = p.normalize == SQ_NORMALIZE_MODEL ? a.normalize != 0 : p.normalize == SQ_NORMALIZE_YES;
    const encode_options o = options_for(a, p.max_len, p.truncate, p.specials_as_text);
    int status = run_batches(
        c, t.n_texts, result::embedded, p.pooling ? p.pooling : a.pooling,
        [&](size_t i) { return encode(c, static_cast<uint32_t>(i), first_text(t, static_cast<uint32_t>(i)), second_text(t, static_cast<uint32_t>(i)), o); },
        [&](size_t first, size_t n_seqs) {
            emit_vectors(c, n_seqs, dimensions, normalize, out + first * dimensions);
            return SQ_OK;
        });
    return status != SQ_OK ? status : check_finite(c, out, t.n_texts * dimensions);
}

} // namespace

int32_t sq_embed(sq_ctx *ctx, const sq_texts *texts, const sq_embed_params *params, float *out, size_t cap, size_t *n) {
    return call(ctx, [&]() -> int32_t { return embed(ctx, texts, params, out, cap, n); });
}

namespace {

// The default float environment while in scope: rounding to nearest, whatever the caller has set.
class default_environment {
  public:
    default_environment() {
        fegetenv(&saved_);
        fesetenv(FE_DFL_ENV);
    }
    default_environment(const default_environment &) = delete;
    default_environment &operator=(const default_environment &) = delete;
    ~default_environment() { fesetenv(&saved_); }

  private:
    fenv_t saved_;
};

} // namespace

float sq_to_s8(const float *v, size_t n, int8_t *out) {
    const default_environment environment;
    float most = 0;
    for (size_t i = 0; i < n; i++) most = std::max(most, fabsf(v[i]));
    if (!(most > 0)) {
        std::fill(out, out + n, static_cast<int8_t>(0));
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        const double scaled = static_cast<double>(v[i]) * 127 / most;
        out[i] = scaled == scaled ? static_cast<int8_t>(nearbyint(scaled)) : static_cast<int8_t>(0); // a NaN has no place in s8
    }
    return most / 127;
}

namespace {

// binary32 to binary16, rounded to nearest even: the exponent is rebased by 127 - 15, 13 bits of the fraction go.
uint16_t half_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000) return sign | 0x7E00;                    // NaN
    if (bits >= 0x477FF000) return sign | 0x7C00;                   // from 65520 on: infinite
    if (bits < 0x38800000) {                                        // below 2^-14: a multiple of 2^-24, which the addition's own rounding finds
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;                                          // the unit of floats in 0.5 .. 1 is 2^-24
        memcpy(&bits, &magnitude, sizeof bits);
        return static_cast<uint16_t>(sign | (bits - 0x3F000000));
    }
    bits += 0x0FFF + (bits >> 13 & 1);
    return static_cast<uint16_t>(sign | (bits - 0x38000000) >> 13);
}

} // namespace

void sq_to_f16(const float *v, size_t n, uint16_t *out) {
    const default_environment environment;
    std::transform(v, v + n, out, half_of);
}

void sq_to_bits(const float *v, size_t n, uint8_t *out) {
    std::fill(out, out + (n + 7) / 8, static_cast<uint8_t>(0));
    for (size_t i = 0; i < n; i++)
        if (v[i] > 0) out[i / 8] = static_cast<uint8_t>(out[i / 8] | 0x80 >> i % 8);
}

// ---- classify and rerank ----

void sq_classify_params_init(sq_classify_params *params, size_t size) { init(params, size); }

namespace {

// Logits of items whose texts pair_of(i) names; take_row(item, logits) gets each and returns a status.
template <class pair_fn, class row_fn>
int run_classify(sq_ctx *c, uint32_t n_items, const sq_classify_params &p, pair_fn pair_of, row_fn take_row) {
    const encode_options o = options_for(c->model->arch, p.max_len, p.truncate, p.specials_as_text);
    return run_batches(
        c, n_items, result::logits, SQ_POOL_CLS,
        [&](size_t i) {
            const auto texts = pair_of(static_cast<uint32_t>(i));
            return encode(c, static_cast<uint32_t>(i), texts.first, texts.second, o);
        },
        [&](size_t first, size_t n_seqs) -> int {
            for (size_t s = 0; s < n_seqs; s++) {
                const float *row = c->mem.logits + s * c->mem.logit_stride;
                if (int status = check_finite(c, row, c->model->head.n_labels)) return status;
                if (int status = take_row(first + s, row)) return status;
            }
            return SQ_OK;
        });
}

int classify(sq_ctx *c, const sq_texts *texts, const sq_classify_params *params, float *scores, float *logits, size_t cap, size_t *n) {
    message *why = &c->error;
    const head &h = c->model->head;
    if (!texts || !n || (!scores && !logits && cap)) return fail(why, SQ_E_ARG, "texts or n is null, or both outputs are");
    sq_texts t;
    sq_classify_params p;
    if (int status = need_head(c, SQ_HEAD_CLASSIFY, "classify")) return status;
    if (int status = take(texts, &t, why)) return status;
    if (int status = take(params, &p, why)) return status;
    if (int status = check_texts(c, t)) return status;
    const size_t n_labels = h.n_labels;
    if (int status = needs_space(c, t.n_texts * n_labels, cap, n)) return status;
    return run_classify(
        c, t.n_texts, p, [&](uint32_t i) { return std::make_pair(first_text(t, i), second_text(t, i)); },
        [&](size_t i, const float *row) -> int {
            if (logits) std::copy(row, row + n_labels, logits + i * n_labels);
            if (!scores) return SQ_OK;
            if (!h.multi_label && n_labels > 1) return softmax(c, row, n_labels, scores + i * n_labels);
            std::transform(row, row + n_labels, scores + i * n_labels, sigmoid);
            return SQ_OK;
        });
}

int rerank(sq_ctx *c, piece query, const sq_texts *documents, const sq_classify_params *params, float *scores, uint32_t *order, size_t cap, size_t *n) {
    message *why = &c->error;
    if (!documents || !n || (!scores && cap) || (!query.bytes && query.n_bytes)) return fail(why, SQ_E_ARG, "query, documents, n or scores is null");
    sq_texts t;
    sq_classify_params p;
    if (int status = need_head(c, SQ_HEAD_CLASSIFY, "rerank")) return status;
    if (c->model->head.n_labels != 1)
        return fail(why, SQ_E_TASK, "the model cannot rerank: it has %u labels, and a reranker gives one score (sq_classify)", c->model->head.n_labels);
    if (int status = take(documents, &t, why)) return status;
    if (int status = take(params, &p, why)) return status;
    if (t.b_starts) return fail(why, SQ_E_ARG, "documents are single texts: b_starts must be null");
    if (int status = check_texts(c, t)) return status;
    if (int status = needs_space(c, t.n_texts, cap, n)) return status;
    if (!query.bytes) query.bytes = "";
    int status = run_classify(
        c, t.n_texts, p, [&](uint32_t i) { return std::make_pair(query, first_text(t, i)); },
        [&](size_t i, const float *row) {
            scores[i] = row[0];
            return SQ_OK;
        });
    if (status != SQ_OK || !order) return status;
    for (uint32_t i = 0; i < t.n_texts; i++) order[i] = i;
    std::sort(order, order + t.n_texts, [&](uint32_t i, uint32_t j) { return scores[i] != scores[j] ? scores[i] > scores[j] : i < j; });
    return SQ_OK;
}

} // namespace

int32_t sq_classify(sq_ctx *ctx, const sq_texts *texts, const sq_classify_params *params, float *scores, float *logits, size_t cap, size_t *n) {
    return call(ctx, [&]() -> int32_t { return classify(ctx, texts, params, scores, logits, cap, n); });
}

int32_t sq_rerank(sq_ctx *ctx, const char *query, size_t n_query, const sq_texts *documents, const sq_classify_params *params, float *scores, uint32_t *order,
                  size_t cap, size_t *n) {
    return call(ctx, [&]() -> int32_t { return rerank(ctx, {query, n_query}, documents, params, scores, order, cap, n); });
}

// ---- answer ----

void sq_answer_params_init(sq_answer_params *params, size_t size) { init(params, size); }

namespace {

constexpr size_t N_BEST = 20; // candidates kept, as the official SQuAD scripts keep them
constexpr uint32_t DEFAULT_STRIDE = 128, DEFAULT_MAX_ANSWER = 30;

struct candidate {
    float score;
    uint32_t start, end; // bytes of the context
};

// The question's and the context's tokens, and how windows are cut from them.
struct question_plan {
    std::vector<int32_t> ids, types;  // all tokens: before the context, context, after it
    std::vector<uint32_t> spans;      // two per token
    size_t context_first, context_past;
    size_t room, step;                // context tokens of a window, and from one window to the next

    size_t n_context() const { return context_past - context_first; }
    size_t n_windows() const { return n_context() == 0 ? 0 : n_context() <= room ? 1 : 1 + (n_context() - room + step - 1) / step; }
    // Context tokens of window w, as positions in ids.
    size_t first(size_t w) const { return context_first + w * step; }
    size_t past(size_t w) const { return std::min(context_past, first(w) + room); }
};

int plan_windows(sq_ctx *c, piece question, piece context, const sq_answer_params &p, question_plan *plan) {
    const architecture &a = c->model->arch;
    encode_options o;
    o.specials_as_text = p.specials_as_text != 0;
    if (int status = c->model->tok.encode(question.bytes, question.n_bytes, context.bytes, context.n_bytes, o, &c->text, &c->error)) return status;
    plan->ids = c->text.ids;
    plan->types = c->text.types;
    plan->spans = c->text.spans;
    const std::vector<int32_t> &sources = c->text.sources;
    plan->context_first = static_cast<size_t>(std::find(sources.begin(), sources.end(), 1) - sources.begin());
    plan->context_past = static_cast<size_t>(std::find_if(sources.begin() + static_cast<ptrdiff_t>(plan->context_first), sources.end(), [](int32_t s) { return s != 1; }) -
                                             sources.begin());
    const size_t window = std::min<size_t>({p.window ? p.window : a.max_tokens, a.n_positions, c->max_tokens}), others = plan->ids.size() - plan->n_context();
    if (plan->n_context() > 0 && others >= window)
        return fail(&c->error, SQ_E_LIMIT, "the question takes %zu of a window's %zu tokens and leaves no room for context", others, window);
    plan->room = plan->n_context() == 0 ? 1 : window - others;
    const size_t shared = p.stride ? p.stride : std::min<size_t>(DEFAULT_STRIDE, plan->room / 2);
    if (plan->n_context() > plan->room && shared >= plan->room)
        return fail(&c->error, SQ_E_LIMIT, "the question leaves a window room for %zu tokens of context, which a stride of %zu does not move", plan->room, shared);
    plan->step = plan->room - std::min(shared, plan->room - 1);
    return SQ_OK;
}

// Window w as a sequence in c->text: what stands before the context, a part of it, what stands after.
void make_window(sq_ctx *c, const question_plan &plan, size_t w) {
    auto cut = [&](const std::vector<int32_t> &from, std::vector<int32_t> *to) {
        const auto at = [&](size_t i) { return from.begin() + static_cast<ptrdiff_t>(i); };
        to->assign(from.begin(), at(plan.context_first));
        to->insert(to->end(), at(plan.first(w)), at(plan.past(w)));
        to->insert(to->end(), at(plan.context_past), from.end());
    };
    cut(plan.ids, &c->text.ids);
    cut(plan.types, &c->text.types);
}

// Puts a candidate among the best: no two of the same bytes, equal scores in order of arrival.
void offer(std::vector<candidate> *best, const candidate &x) {
    if (best->size() == N_BEST && x.score <= best->back().score) return;
    for (candidate &b : *best)
        if (b.start == x.start && b.end == x.end) {
            if (x.score <= b.score) return;
            best->erase(best->begin() + (&b - best->data()));
            break;
        }
    best->insert(std::upper_bound(best->begin(), best->end(), x, [](const candidate &p, const candidate &q) { return p.score > q.score; }), x);
    if (best->size() > N_BEST) best->pop_back();
}

// All spans of up to max_answer tokens in window w, whose logits are [tokens][2] from `row` on. SQ_E_NUMERIC if opposite infinities meet.
int search_window(sq_ctx *c, const question_plan &plan, size_t w, const float *row, size_t stride, size_t max_answer, std::vector<candidate> *best) {
    const size_t first = plan.first(w), n = plan.past(w) - first;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < std::min(n, i + max_answer); j++) {
            const float score = row[(plan.context_first + i) * stride] + row[(plan.context_first + j) * stride + 1];
            if (int nan = check_finite(c, &score, 1)) return nan;
            offer(best, {score, plan.spans[2 * (first + i)], plan.spans[2 * (first + j) + 1]});
        }
    return SQ_OK;
}

// Best answers first, and "no answer" where it may compete: probabilities are among them all. Of more than N_BEST the lowest goes, but never "no answer", whose
// score a caller may want to compare.
int rank(sq_ctx *c, std::vector<candidate> best, bool allow_null, float null_score, std::vector<sq_answer_span> *out) {
    const auto lower = [](const candidate &p, const candidate &q) { return p.score > q.score; };
    const candidate null{null_score, 0, 0};
    if (allow_null) best.insert(std::upper_bound(best.begin(), best.end(), null, lower), null);
    if (best.empty()) return SQ_OK;
    std::vector<float> scores, probabilities(best.size());
    for (const candidate &b : best) scores.push_back(b.score);
    if (int status = softmax(c, scores.data(), scores.size(), probabilities.data())) return status;
    for (size_t i = 0; i < best.size(); i++) out->push_back({best[i].start, best[i].end, best[i].score, probabilities[i]});
    if (out->size() > N_BEST) out->erase(out->end() - (best.back().end == 0 ? 2 : 1));
    return SQ_OK;
}

int answer(sq_ctx *c, piece question, piece context, const sq_answer_params *params, sq_answer_span *spans, size_t cap, size_t *n) {
    message *why = &c->error;
    if (!n || (!spans && cap) || (!question.bytes && question.n_bytes) || (!context.bytes && context.n_bytes))
        return fail(why, SQ_E_ARG, "question, context, spans or n is null");
    sq_answer_params p;
    question_plan plan;
    if (int status = need_head(c, SQ_HEAD_ANSWER, "answer questions")) return status;
    if (int status = take(params, &p, why)) return status;
    if (int status = plan_windows(c, {question.bytes ? question.bytes : "", question.n_bytes}, {context.bytes ? context.bytes : "", context.n_bytes}, p, &plan)) return status;
    std::vector<candidate> best;
    float null_score = HUGE_VALF;
    const size_t stride = c->mem.logit_stride, max_answer = p.max_answer ? p.max_answer : DEFAULT_MAX_ANSWER;
    int status = run_batches(
        c, plan.n_windows(), result::logits, SQ_POOL_CLS,
        [&](size_t w) {
            make_window(c, plan, w);
            return SQ_OK;
        },
        [&](size_t first, size_t n_seqs) -> int {
            for (size_t s = 0; s < n_seqs; s++) {
                const float *row = c->mem.logits + c->starts[s] * stride;
                if (int nan = check_finite(c, row, (c->starts[s + 1] - c->starts[s]) * stride)) return nan;
                if (int nan = search_window(c, plan, first + s, row, stride, max_answer, &best)) return nan;
                null_score = std::min(null_score, row[0] + row[1]);
            }
            return SQ_OK;
        });
    if (status != SQ_OK) return status;
    std::vector<sq_answer_span> ranked;
    status = rank(c, std::move(best), p.allow_null != 0 && plan.n_windows() > 0, null_score, &ranked);
    if (status != SQ_OK) return status;
    *n = ranked.size();
    std::copy(ranked.begin(), ranked.begin() + static_cast<ptrdiff_t>(std::min(cap, ranked.size())), spans);
    return SQ_OK;
}

} // namespace

int32_t sq_answer(sq_ctx *ctx, const char *question, size_t n_question, const char *context, size_t n_context, const sq_answer_params *params,
                  sq_answer_span *spans, size_t cap, size_t *n) {
    return call(ctx, [&]() -> int32_t { return answer(ctx, {question, n_question}, {context, n_context}, params, spans, cap, n); });
}

// ---- tag ----

void sq_tag_params_init(sq_tag_params *params, size_t size) { init(params, size); }

namespace {

// A label's type and whether it opens an entity: "B-PER" is a beginning of PER, "I-PER" and "PER" go on with it.
struct label_parts {
    bool begins;
    const char *type;
};

label_parts parts_of(const std::string &label) {
    const bool prefixed = label.size() >= 2 && label[1] == '-' && (label[0] == 'B' || label[0] == 'I');
    return {prefixed && label[0] == 'B', label.c_str() + (prefixed ? 2 : 0)};
}

// Whether a token goes on with the word of the token before it: WordPiece marks continuations, Unigram marks beginnings (with U+2581).
class word_marks {
  public:
    explicit word_marks(const sq_model &m) : model_(m) {
        const meta_entry *prefix = m.file.find_meta("tok.prefix");
        if (prefix && prefix->type == META_STRING) prefix_ = prefix->strings[0];
        else is_unigram_ = true;
    }
    bool continues(int32_t id) const {
        static const char BEGIN[] = "\xE2\x96\x81";
        size_t n = 0;
        const char *text = model_.tok.token_text(id, &n);
        if (!text) return false;
        if (is_unigram_) return !(n >= 3 && memcmp(text, BEGIN, 3) == 0);
        return n > prefix_.size() && memcmp(text, prefix_.data(), prefix_.size()) == 0;
    }

  private:
    const sq_model &model_;
    std::string prefix_;
    bool is_unigram_ = false;
};

struct scored_label {
    uint32_t label;
    float score; // softmax probability of the label
};

int best_label(sq_ctx *c, const float *row, size_t n_labels, std::vector<float> *probabilities, scored_label *out) {
    probabilities->resize(n_labels);
    const size_t best = static_cast<size_t>(std::max_element(row, row + n_labels) - row);
    const int status = softmax(c, row, n_labels, probabilities->data());
    *out = {static_cast<uint32_t>(best), (*probabilities)[best]};
    return status;
}

// Collects a text's entities. As `simple` aggregation in Hugging Face's pipeline does: each token has its own best label; neighbours of one type are joined unless
// the later one begins an entity; "O" is dropped; the score is the mean. By words: a word is its first token's label and all its tokens' bytes.
class entity_builder {
  public:
    entity_builder(const sq_model &m, bool by_words, uint32_t text, std::vector<sq_entity> *out)
        : labels_(m.head.labels), marks_(m), by_words_(by_words), text_(text), out_(out) {}

    void add(const scored_label &t, int32_t id, uint32_t start, uint32_t end, bool after_special) {
        const bool same_word = !after_special && marks_.continues(id) && open_;
        if (by_words_ ? same_word : open_ && joins(t.label)) {
            sq_entity &e = out_->back();
            e.end = end;
            if (by_words_) return;
            e.score += t.score;
            n_tokens_++;
            e.n_words += !same_word;
            return;
        }
        close();
        out_->push_back({text_, t.label, start, end, t.score, 1});
        open_ = true;
        n_tokens_ = 1;
    }

    void close() {
        if (!open_) return;
        out_->back().score /= static_cast<float>(n_tokens_);
        open_ = false;
        if (!by_words_ && labels_[out_->back().label] == "O") out_->pop_back();
    }

  private:
    bool joins(uint32_t label) const {
        const label_parts now = parts_of(labels_[label]), before = parts_of(labels_[out_->back().label]);
        return !now.begins && strcmp(now.type, before.type) == 0;
    }

    const std::vector<std::string> &labels_;
    const word_marks marks_;
    const bool by_words_;
    const uint32_t text_;
    std::vector<sq_entity> *out_;
    bool open_ = false;
    size_t n_tokens_ = 0;
};

int tag(sq_ctx *c, const sq_texts *texts, const sq_tag_params *params, sq_entity *entities, size_t cap, size_t *n) {
    message *why = &c->error;
    if (!texts || !n || (!entities && cap)) return fail(why, SQ_E_ARG, "texts, n or entities is null");
    sq_texts t;
    sq_tag_params p;
    if (int status = need_head(c, SQ_HEAD_TAG, "tag words")) return status;
    if (int status = take(texts, &t, why)) return status;
    if (int status = take(params, &p, why)) return status;
    if (p.mode > SQ_TAG_WORDS) return fail(why, SQ_E_ARG, "unknown mode %u", p.mode);
    if (p.reserved) return fail(why, SQ_E_VERSION, "sq_tag_params.reserved is not 0");
    if (t.b_starts) return fail(why, SQ_E_ARG, "tagging takes single texts: b_starts must be null");
    if (int status = check_texts(c, t)) return status;

    std::vector<encoding> waiting; // of the batch that is being filled: spans and sources are needed after it has run
    std::vector<sq_entity> found;
    std::vector<float> probabilities;
    const encode_options o = options_for(c->model->arch, p.max_len, p.truncate, p.specials_as_text);
    const size_t stride = c->mem.logit_stride, n_labels = c->model->head.n_labels;
    int status = run_batches(
        c, t.n_texts, result::logits, SQ_POOL_CLS,
        [&](size_t i) {
            int s = encode(c, static_cast<uint32_t>(i), first_text(t, static_cast<uint32_t>(i)), {nullptr, 0}, o);
            if (s == SQ_OK) waiting.push_back(c->text);
            return s;
        },
        [&](size_t first, size_t n_seqs) -> int {
            for (size_t s = 0; s < n_seqs; s++) {
                const encoding &e = waiting[s];
                const float *row = c->mem.logits + c->starts[s] * stride;
                if (int nan = check_finite(c, row, e.ids.size() * stride)) return nan;
                entity_builder build(*c->model, p.mode == SQ_TAG_WORDS, static_cast<uint32_t>(first + s), &found);
                bool after_special = true;
                for (size_t k = 0; k < e.ids.size(); k++) {
                    scored_label label;
                    if (int nan = best_label(c, row + k * stride, n_labels, &probabilities, &label)) return nan;
                    if (e.sources[k] == 0) build.add(label, e.ids[k], e.spans[2 * k], e.spans[2 * k + 1], after_special);
                    after_special = e.sources[k] != 0;
                }
                build.close();
            }
            waiting.erase(waiting.begin(), waiting.begin() + static_cast<ptrdiff_t>(n_seqs));
            return SQ_OK;
        });
    if (status != SQ_OK) return status;
    *n = found.size();
    if (found.size() > cap) return fail(why, SQ_E_SPACE, "the buffer holds %zu entities and %zu are needed", cap, found.size());
    std::copy(found.begin(), found.end(), entities);
    return SQ_OK;
}

} // namespace

int32_t sq_tag(sq_ctx *ctx, const sq_texts *texts, const sq_tag_params *params, sq_entity *entities, size_t cap, size_t *n) {
    return call(ctx, [&]() -> int32_t { return tag(ctx, texts, params, entities, cap, n); });
}
