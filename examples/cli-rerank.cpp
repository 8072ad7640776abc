// examples/cli-rerank.cpp - `sq rerank`: documents by how well they fit a query. A query and its documents are in memory at once, no more.
#include <algorithm>

#include "../convert/json.h"
#include "cli-common.h"

namespace cli {

namespace json = sq::json;

namespace {

class reranker {
  public:
    reranker(const session &s, output *out, bool is_table) : s_(s), out_(out), is_table_(is_table) {
        sq_classify_params_init(&params_, sizeof params_);
        s.set_limits(&params_);
        s.check(call(row())); // a model that cannot do it is refused before anything is read
    }

    void write(const row_source &rows, const row &r) {
        const int32_t status = call(r);
        if (status != SQ_OK) fail_query(rows.place(r.number), r, status);
        out_->write(is_table_ ? table(r) : json_line(r));
    }

  private:
    const session &s_;
    output *out_;
    bool is_table_;
    sq_classify_params params_;
    std::string documents_;
    std::vector<size_t> starts_;
    std::vector<float> scores_;
    std::vector<uint32_t> order_;

    int32_t call(const row &r) {
        documents_.clear();
        starts_.assign(1, 0);
        for (const std::string &d : r.list) {
            documents_ += d;
            starts_.push_back(documents_.size());
        }
        sq_texts texts = {};
        texts.size = sizeof texts;
        texts.n_texts = static_cast<uint32_t>(r.list.size());
        texts.a = documents_.data();
        texts.a_starts = starts_.data();
        scores_.resize(r.list.size()), order_.resize(r.list.size());
        size_t n = 0;
        return sq_rerank(s_.ctx.get(), r.a.data(), r.a.size(), &texts, &params_, scores_.data(), order_.data(), scores_.size(), &n);
    }

    static row pair_of(const row &r, size_t i) { return {r.a, r.list[i], true, {}, r.number}; }

    // Names the document where one is too long.
    [[noreturn]] void fail_query(const std::string &place, const row &r, int32_t status) const {
        if (status == SQ_E_LIMIT)
            for (size_t i = 0; i < r.list.size(); i++) {
                const text_length length = s_.measure(pair_of(r, i));
                if (length.n_tokens > s_.max_len) fail_too_long(place + ", document " + std::to_string(i + 1) + " with the query", length.n_tokens, s_.max_len);
            }
        const std::string why = sq_ctx_error(s_.ctx.get());
        fail("%s: %s", place.c_str(), why.empty() ? sq_status_string(status) : why.c_str());
    }

    std::string json_line(const row &r) const {
        std::string line = "{\"order\":[";
        for (size_t i = 0; i < order_.size(); i++) line += (i ? "," : "") + std::to_string(order_[i]);
        line += "],\"scores\":";
        append_numbers(&line, scores_.data(), scores_.size());
        if (s_.truncate) {
            bool truncated = false;
            for (size_t i = 0; i < r.list.size() && !truncated; i++) truncated = s_.measure(pair_of(r, i)).truncated;
            append_truncated(&line, truncated);
        }
        return line + "}\n";
    }

    std::string table(const row &r) const {
        std::string text;
        for (uint32_t i : order_) {
            text += formatted("%9.4f  %5u  ", double{scores_[i]}, static_cast<unsigned>(i + 1));
            text += printable(r.list[i], 80) + s_.note(pair_of(r, i)) + "\n";
        }
        return text;
    }
};

// The last line needs no newline.
std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    for (size_t start = 0, end; start < text.size(); start = end + 1) {
        end = std::min(text.find('\n', start), text.size());
        lines.push_back(text.substr(start, end - start));
    }
    return lines;
}

} // namespace

void run_rerank(const options &o) {
    std::vector<row> given(o.jsonl.empty() ? 1 : 0);
    if (!given.empty()) {
        given[0].a = o.texts[0];
        given[0].number = 1;
        given[0].list = o.documents.empty() ? std::vector<std::string>(o.texts.begin() + 1, o.texts.end()) : lines_of(read_file(o.documents));
    }
    row_source rows(o, QUERY, std::move(given));
    const session s(o);
    output out(o.output);
    reranker ranker(s, &out, o.format == FORMAT_TEXT);
    run_rows(&rows, &out, "queries", [&](const row &r) { ranker.write(rows, r); });
    out.commit();
}

} // namespace cli
