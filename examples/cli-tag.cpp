// examples/cli-tag.cpp - `sq tag`: the entities, or the labelled words, of texts.
#include "../convert/json.h"
#include "cli-common.h"

namespace cli {

namespace json = sq::json;

namespace {

class tag_task : public text_task {
  public:
    tag_task(const options &o, const session &s, output *out) : s_(s), out_(out), is_table_(o.format == FORMAT_TEXT), by_words_(o.words) {
        sq_tag_params_init(&params_, sizeof params_);
        params_.mode = o.words ? SQ_TAG_WORDS : 0;
        s.set_limits(&params_);
    }

    int32_t run(const sq_texts &texts) override {
        // Room for a word at each byte. Characters that normalise to several words can need more; then the second call has it.
        size_t n = texts.n_texts ? texts.a_starts[texts.n_texts] + 1 : 0;
        int32_t status;
        do {
            found_.resize(n);
            status = sq_tag(s_.ctx.get(), &texts, &params_, found_.data(), found_.size(), &n);
        } while (status == SQ_E_SPACE && n > found_.size());
        if (status == SQ_OK) found_.resize(n);
        return status;
    }
    void give(const row *r, size_t n) override {
        size_t first = 0;
        for (size_t i = 0; i < n; i++) {
            size_t past = first;
            while (past < found_.size() && found_[past].text == i) past++;
            out_->write(is_table_ ? table(r[i], first, past) : json_line(r[i], first, past));
            first = past;
        }
    }

  private:
    const session &s_;
    output *out_;
    bool is_table_, by_words_;
    sq_tag_params params_;
    std::vector<sq_entity> found_; // by text

    std::string_view label_of(const sq_entity &e) const {
        std::string_view label = label_name(s_.model.get(), e.label);
        const std::string_view start = label.substr(0, 2);
        if (!by_words_ && (start == "B-" || start == "I-")) label.remove_prefix(2);
        return label;
    }

    static std::string_view text_of(const sq_entity &e, const row &r) { return std::string_view(r.a).substr(e.start, e.end - e.start); }

    std::string json_line(const row &r, size_t first, size_t past) const {
        std::string line = "{\"entities\":[";
        for (size_t i = first; i < past; i++) {
            const sq_entity &e = found_[i];
            line += i > first ? ",{\"label\":" : "{\"label\":";
            json::append_string(&line, label_of(e));
            line += ",\"start\":" + std::to_string(e.start) + ",\"end\":" + std::to_string(e.end) + ",\"score\":";
            json::append_number(&line, e.score);
            line += ",\"text\":";
            json::append_string(&line, text_of(e, r));
            line += '}';
        }
        line += ']';
        if (s_.truncate) append_truncated(&line, s_.measure(r).truncated);
        return line + "}\n";
    }

    // The text, then an entity a line: score, label, bytes [first, past) and the text there.
    std::string table(const row &r, size_t first, size_t past) const {
        std::string text = printable(r.a, 70) + s_.note(r) + "\n";
        for (size_t i = first; i < past; i++) {
            const sq_entity &e = found_[i];
            text += formatted("  %.3f  ", double{e.score}) + pad_right(printable(label_of(e), 30), 12) + " ";
            text += pad_right(formatted("%zu..%zu", e.start, e.end), 12) + " " + printable(text_of(e, r), 60) + "\n";
        }
        return text;
    }
};

} // namespace

void run_tag(const options &o) {
    row_source rows(o, SINGLE_TEXT, rows_of_texts(o));
    const session s(o);
    output out(o.output);
    tag_task task(o, s, &out);
    run_texts(o, s, &rows, &out, &task);
    out.commit();
}

} // namespace cli
