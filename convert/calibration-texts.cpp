// convert/calibration-texts.cpp - see calibration-texts.h.
#include "calibration-texts.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <iterator>

#include "source-file.h"

namespace sq {

namespace {

const char *const BUILT_IN_TEXTS[] = {
#include "calibration-texts.inc"
};

// For heads that answer; any of them may be asked of any text.
const char *const QUESTIONS[] = {
    "What is this text about?",
    "Who is mentioned first?",
    "When did it happen?",
    "Where does this take place?",
    "How many of them were there?",
    "What happened in the end?",
    "Why was it done that way?",
    "Which of the two came later, and what was it called?",
};

// Short input is rare in files of texts and common in use, and the special tokens' activations are largest beside few words: these belong to every calibration.
const char *const SHORTEST_TEXTS[] = {"", "?", "no", "a", "query: ", "7", "hello"};

constexpr size_t HELD_BACK = 8;      // one of so many
constexpr size_t BATCH_TOKENS = 512; // which the context's default always has room for
constexpr size_t BATCH_TEXTS = 64;   // likewise

// Non-empty lines of the file.
int read_lines(const std::string &path, std::vector<std::string> *texts, std::string *source, message *why) {
    source_file file;
    if (int status = file.open(path, why)) return status;
    char crc[16];
    snprintf(crc, sizeof crc, "%08x", file.crc());
    *source = crc;
    const char *p = reinterpret_cast<const char *>(file.data()), *end = p + file.size();
    while (p < end) {
        const char *eol = static_cast<const char *>(memchr(p, '\n', static_cast<size_t>(end - p)));
        const char *past = eol ? eol : end;
        if (past > p && past[-1] == '\r') past--;
        if (past > p) texts->emplace_back(p, past);
        p = eol ? eol + 1 : end;
    }
    return texts->empty() ? fail(why, SQ_E_FORMAT, "%s has no text to calibrate on", path.c_str()) : SQ_OK;
}

struct text_pair {
    std::string a, b;
    bool has_b;
};

std::vector<text_pair> as_the_head_reads(const std::vector<std::string> &texts, uint32_t head) {
    std::vector<text_pair> out;
    for (size_t i = 0; i < texts.size(); i++) {
        if (head == SQ_HEAD_ANSWER) {
            std::string passage = texts[i];
            if (++i < texts.size()) passage += " " + texts[i];
            out.push_back({QUESTIONS[out.size() % std::size(QUESTIONS)], passage, true});
        } else {
            const bool is_pair = head == SQ_HEAD_CLASSIFY && i % 2 == 1;
            out.push_back({texts[is_pair ? i - 1 : i], is_pair ? texts[i] : "", is_pair});
        }
    }
    return out;
}

// Appends sequences to batches, each of one kind.
class batcher {
  public:
    explicit batcher(calibration_texts *out) : out_(out) {}

    void add(const encoding &e, bool keep, bool is_held_back) {
        if (e.ids.empty()) return; // a tokenizer without special tokens makes nothing of an empty text
        text_batch &to = batch_for(e.ids.size(), keep, is_held_back);
        to.ids.insert(to.ids.end(), e.ids.begin(), e.ids.end());
        to.types.insert(to.types.end(), e.types.begin(), e.types.end());
        to.starts.push_back(static_cast<uint32_t>(to.ids.size()));
        if (is_held_back) {
            out_->n_held_back++;
        } else {
            out_->n_texts++;
            out_->n_tokens += static_cast<uint32_t>(e.ids.size());
        }
    }

  private:
    text_batch &batch_for(size_t n_tokens, bool keep, bool is_held_back) {
        size_t &open = open_[is_held_back];
        if (open < out_->batches.size()) {
            text_batch &b = out_->batches[open];
            if (b.keep == keep && b.n_tokens() + n_tokens <= BATCH_TOKENS && b.starts.size() <= BATCH_TEXTS) return b;
        }
        open = out_->batches.size();
        out_->batches.emplace_back();
        out_->batches.back().keep = keep;
        out_->batches.back().is_held_back = is_held_back;
        return out_->batches.back();
    }

    calibration_texts *out_;
    size_t open_[2] = {SIZE_MAX, SIZE_MAX}; // the batch that still grows, by is_held_back
};

} // namespace

int read_calibration_texts(const std::string &path, const sq_model &model, calibration_texts *out, message *why) {
    std::vector<std::string> texts;
    out->source = "built-in";
    if (path.empty()) texts.assign(std::begin(BUILT_IN_TEXTS), std::end(BUILT_IN_TEXTS));
    else if (int status = read_lines(path, &texts, &out->source, why)) return status;
    encode_options options;
    options.max_len = model.arch.max_tokens;
    options.truncate = true;
    batcher batches(out);
    encoding e;
    const auto add = [&](const text_pair &p, bool keep, bool is_held_back) {
        if (int status = model.tok.encode(p.a.data(), p.a.size(), p.has_b ? p.b.data() : nullptr, p.b.size(), options, &e, why)) return status;
        if (model.arch.n_types == 0) e.types.assign(e.ids.size(), 0);
        batches.add(e, keep, is_held_back);
        return static_cast<int>(SQ_OK);
    };
    for (const char *text : SHORTEST_TEXTS)
        if (int status = add({text, "", false}, true, false)) return status;
    const std::vector<text_pair> pairs = as_the_head_reads(texts, model.head.kind);
    for (size_t i = 0; i < pairs.size(); i++)
        if (int status = add(pairs[i], false, i % HELD_BACK == HELD_BACK - 1)) return status;
    return SQ_OK;
}

} // namespace sq
