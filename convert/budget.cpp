// convert/budget.cpp - see budget.h.
#include "budget.h"

#include <stdio.h>

#include <algorithm>

namespace sq {

namespace {

// Dearer forms, from the cheapest: scales for each token; attention in f32; a linear layer in f32.
enum class dearer { dynamic, attention, linear };

// A part of a layer in a dearer form, and what that gives. Attention goes with its projection, QKV.
struct candidate {
    uint32_t layer;
    linear_role role;
    agreement after;
};

bool can_take(dearer form, const int8_layer &l, linear_role role) {
    if (l.is_f32[role]) return false;
    if (form == dearer::dynamic) return !l.linear[role].is_dynamic;
    return form == dearer::linear || (role == QKV && l.attention.is_s8);
}

void apply(dearer form, int8_layer *l, linear_role role) {
    if (form == dearer::dynamic) l->linear[role] = as_dynamic(std::move(l->linear[role]));
    else if (form == dearer::attention) l->attention.is_s8 = false;
    else l->is_f32[role] = true;
}

const char *part_of(dearer form, linear_role role) { return form == dearer::attention ? "attention" : ROLE_NAMES[role]; }

class keeper {
  public:
    keeper(const budget &wanted, const quantized_model &m) : wanted_(wanted), m_(m) {}

    // Takes steps of one kind while the budget is missed.
    int take_steps(dearer form, agreement *now, std::vector<budget_step> *steps, message *why) {
        std::vector<candidate> all;
        if (int status = measure_all(form, &all, why)) return status;
        std::stable_sort(all.begin(), all.end(), [&](const candidate &a, const candidate &b) { return is_better(a.after, b.after); });
        for (const candidate &c : all) {
            if (wanted_.is_kept(*now)) break;
            int8_layer &l = (*m_.layers)[c.layer];
            apply(form, &l, c.role);
            if (int status = put(c.layer, l, why)) return status;
            if (int status = measure(m_.net, *m_.texts, *m_.in_floats, now, why)) return status;
            report(form, c);
            steps->push_back({c.layer, part_of(form, c.role), form == dearer::dynamic ? "dynamic" : "float", *now});
        }
        return SQ_OK;
    }

  private:
    bool is_better(const agreement &a, const agreement &b) const { return wanted_.kl > 0 ? a.kl_mean < b.kl_mean : a.cos_mean > b.cos_mean; }

    // Queries, keys and values in f32 need attention in f32.
    void report(dearer form, const candidate &c) {
        layer_report &r = (*m_.reports)[4 * c.layer + c.role];
        if (form == dearer::dynamic) r.chosen.is_dynamic = true;
        if (form == dearer::linear) r.is_float = true;
        if (form == dearer::attention || (form == dearer::linear && c.role == QKV)) (*m_.attention)[c.layer].weights = "f32";
    }

    int put(uint32_t i, const int8_layer &l, message *why) { return set_layer(*m_.source, i, l, m_.net, why); }

    int measure_all(dearer form, std::vector<candidate> *out, message *why) {
        for (uint32_t i = 0; i < m_.layers->size(); i++)
            for (linear_role role : {QKV, OUT, UP, DOWN}) {
                const int8_layer &l = (*m_.layers)[i];
                if (!can_take(form, l, role)) continue;
                int8_layer changed = l;
                apply(form, &changed, role);
                candidate c{i, role, {}};
                if (int status = put(i, changed, why)) return status;
                if (int status = measure(m_.net, *m_.texts, *m_.in_floats, &c.after, why)) return status;
                if (int status = put(i, l, why)) return status;
                out->push_back(c);
            }
        return SQ_OK;
    }

    const budget &wanted_;
    const quantized_model &m_;
};

} // namespace

int keep_budget(const budget &wanted, const quantized_model &m, agreement *now, std::vector<budget_step> *steps, message *why) {
    keeper k(wanted, m);
    for (dearer form : {dearer::dynamic, dearer::attention, dearer::linear}) {
        if (wanted.is_kept(*now)) return SQ_OK;
        if (int status = k.take_steps(form, now, steps, why)) return status;
    }
    if (wanted.is_kept(*now)) return SQ_OK;
    char divergence[64] = "";
    if (wanted.kl > 0) snprintf(divergence, sizeof divergence, ", divergences %.2g nats", now->kl_mean);
    return fail(why, SQ_E_LIMIT, "the budget cannot be kept: with every layer in f32, and only the word embeddings in INT8, cosines are %.6f in the mean%s", now->cos_mean,
                divergence);
}

} // namespace sq
