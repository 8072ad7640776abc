// examples/cli-classify.cpp - `sq classify`: the labels of texts and pairs with their scores.
#include <algorithm>

#include "../convert/json.h"
#include "cli-common.h"

namespace cli {

namespace json = sq::json;

namespace {

class classify_task : public text_task {
  public:
    classify_task(const options &o, const session &s, output *out) : s_(s), out_(out), is_table_(o.format == FORMAT_TEXT), n_labels_(s.info.n_labels) {
        sq_classify_params_init(&params_, sizeof params_);
        s.set_limits(&params_);
    }

    int32_t run(const sq_texts &texts) override {
        const size_t n = texts.n_texts * n_labels_;
        scores_.resize(n), logits_.resize(n);
        size_t n_out = 0;
        return sq_classify(s_.ctx.get(), &texts, &params_, scores_.data(), logits_.data(), n, &n_out);
    }
    void give(const row *r, size_t n) override {
        for (size_t i = 0; i < n; i++) {
            const float *scores = &scores_[i * n_labels_], *logits = &logits_[i * n_labels_];
            out_->write(is_table_ ? table(r[i], scores) : json_line(r[i], scores, logits));
        }
    }

  private:
    const session &s_;
    output *out_;
    bool is_table_;
    size_t n_labels_;
    sq_classify_params params_;
    std::vector<float> scores_, logits_; // [rows][n_labels_]

    std::string json_line(const row &r, const float *scores, const float *logits) const {
        // By logits: scores of different logits can round to the same number.
        const size_t best = static_cast<size_t>(std::max_element(logits, logits + n_labels_) - logits);
        std::string line = "{\"label\":";
        json::append_string(&line, label_name(s_.model.get(), static_cast<uint32_t>(best)));
        line += ",\"labels\":[";
        for (uint32_t i = 0; i < n_labels_; i++) {
            if (i) line += ',';
            json::append_string(&line, label_name(s_.model.get(), i));
        }
        line += "],\"scores\":";
        append_numbers(&line, scores, n_labels_);
        line += ",\"logits\":";
        append_numbers(&line, logits, n_labels_);
        if (s_.truncate) append_truncated(&line, s_.measure(r).truncated);
        return line + "}\n";
    }

    // The texts, then each label, best first.
    std::string table(const row &r, const float *scores) const {
        std::string text = printable(r.a, 70) + s_.note(r) + "\n";
        if (r.is_pair) text += printable(r.b, 70) + "\n";
        std::vector<uint32_t> order(n_labels_);
        for (uint32_t i = 0; i < n_labels_; i++) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](uint32_t i, uint32_t j) { return scores[i] > scores[j]; });
        for (uint32_t i : order) text += formatted("  %.4f  ", double{scores[i]}) + printable(label_name(s_.model.get(), i), 60) + "\n";
        return text;
    }
};

} // namespace

void run_classify(const options &o) {
    row_source rows(o, TEXT_OR_PAIR, rows_of_texts(o));
    const session s(o);
    output out(o.output);
    classify_task task(o, s, &out);
    run_texts(o, s, &rows, &out, &task);
    out.commit();
}

} // namespace cli
