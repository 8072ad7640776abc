// convert/agreement.cpp - see agreement.h.
#include "agreement.h"

#include <math.h>

#include <algorithm>

namespace sq {

namespace {

double cosine(const float *a, const float *b, size_t n) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) ab += static_cast<double>(a[i]) * b[i], aa += static_cast<double>(a[i]) * a[i], bb += static_cast<double>(b[i]) * b[i];
    return ab / std::max(1e-300, sqrt(aa * bb));
}

// Of n numbers, `step` apart
double log_sum_exp(const float *x, size_t n, size_t step) {
    double most = -HUGE_VAL, sum = 0;
    for (size_t i = 0; i < n; i++) most = std::max(most, static_cast<double>(x[i * step]));
    for (size_t i = 0; i < n; i++) sum += exp(static_cast<double>(x[i * step]) - most);
    return most + log(sum);
}

// Of softmax of a from that of b
double divergence(const float *a, const float *b, size_t n, size_t step) {
    const double of_a = log_sum_exp(a, n, step), of_b = log_sum_exp(b, n, step);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double log_p = static_cast<double>(a[i * step]) - of_a, log_q = static_cast<double>(b[i * step]) - of_b;
        sum += exp(log_p) * (log_p - log_q);
    }
    return std::max(0.0, sum);
}

// Of each logit by itself against none: softmax over the logit and 0
double divergence_of_each(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const float yes_or_no[2][2] = {{a[i], 0}, {b[i], 0}};
        sum += divergence(yes_or_no[0], yes_or_no[1], 2, 1) / static_cast<double>(n);
    }
    return sum;
}

// Of one text; logits [tokens][n_labels], or [n_labels] of a head that classifies
double divergence_of_text(const sq::head &h, const float *a, const float *b, size_t n_tokens) {
    const size_t n = h.n_labels;
    if (h.kind == SQ_HEAD_CLASSIFY) return h.multi_label || n == 1 ? divergence_of_each(a, b, n) : divergence(a, b, n, 1);
    double sum = 0;
    if (h.kind == SQ_HEAD_ANSWER) {
        for (size_t end : {0, 1}) sum += divergence(a + end, b + end, n_tokens, 2) / 2;
        return sum;
    }
    for (size_t t = 0; t < n_tokens; t++) sum += divergence(a + t * n, b + t * n, n, 1) / static_cast<double>(n_tokens);
    return sum;
}

} // namespace

int float_answers(calibration *texts, const sq_model &model, held_back_answers *out, message *why) {
    if (int status = texts->held_back(SQ_POOLED, &out->vectors, why)) return status;
    return model.head.kind == SQ_HEAD_NONE ? SQ_OK : texts->held_back(SQ_LOGITS, &out->logits, why);
}

int measure(network *net, const calibration_texts &texts, const held_back_answers &in_floats, agreement *out, message *why) {
    const sq_model &model = net->model();
    const size_t width = model.arch.width;
    *out = agreement();
    out->has_logits = model.head.kind != SQ_HEAD_NONE;
    out->cos_mean = 0;
    size_t held_back = 0;
    std::vector<float> rows, vectors, logits;
    for (const text_batch &b : texts.batches) {
        if (!b.is_held_back) continue;
        if (int status = net->run(b, {0, UINT32_MAX, nullptr}, SQ_HIDDEN, &rows, why)) return status;
        const sq_part behind_encoder = {model.arch.n_layers, model.arch.n_layers, rows.data()};
        if (int status = net->run(b, behind_encoder, SQ_POOLED, &vectors, why)) return status;
        if (out->has_logits)
            if (int status = net->run(b, behind_encoder, SQ_LOGITS, &logits, why)) return status;
        for (size_t seq = 0; seq + 1 < b.starts.size(); seq++, out->n_texts++) {
            const double cos = cosine(&in_floats.vectors[held_back][seq * width], &vectors[seq * width], width);
            out->cos_lowest = std::min(out->cos_lowest, cos);
            out->cos_mean += cos;
            if (!out->has_logits) continue;
            const size_t at = (model.head.kind == SQ_HEAD_CLASSIFY ? seq : b.starts[seq]) * model.head.n_labels;
            const double kl = divergence_of_text(model.head, &in_floats.logits[held_back][at], &logits[at], b.starts[seq + 1] - b.starts[seq]);
            out->kl_mean += kl;
            out->kl_highest = std::max(out->kl_highest, kl);
        }
        held_back++;
    }
    const double n = std::max(1u, out->n_texts);
    out->cos_mean = out->n_texts ? out->cos_mean / n : 1;
    out->kl_mean /= n;
    return SQ_OK;
}

} // namespace sq
