// tests/eval-model.h - a checkpoint converted in one mode, and its answers to a task's rows through sq's API.
#ifndef SQ_TESTS_EVAL_MODEL_H
#define SQ_TESTS_EVAL_MODEL_H

#include <map>

#include "eval-rows.h"
#include "models.h"
#include "scratch.h"
#include "texts.h"

constexpr uint32_t MAX_TOKENS = 512, MAX_ANSWER = 30; // as the recorded answers

// The best of all spans of at most MAX_ANSWER tokens of the context; logits [tokens][2], spans [tokens][2] in bytes, sources [tokens].
inline row_answer best_span(const std::string &context, const std::vector<float> &logits, const std::vector<uint32_t> &spans, const std::vector<int32_t> &sources) {
    std::map<std::pair<uint32_t, uint32_t>, float> scores; // by bytes
    for (size_t i = 0; i < sources.size(); i++)
        for (size_t j = i; sources[i] == 1 && j < std::min(sources.size(), i + MAX_ANSWER) && sources[j] == 1; j++) {
            const float score = logits[2 * i] + logits[2 * j + 1];
            const auto at = scores.emplace(std::make_pair(spans[2 * i], spans[2 * j + 1]), score).first;
            at->second = std::max(at->second, score);
        }
    row_answer x;
    float best = -HUGE_VALF, second = -HUGE_VALF;
    for (const auto &s : scores) {
        second = std::max(second, std::min(best, s.second));
        if (s.second <= best) continue;
        best = s.second;
        x.text = context.substr(s.first.first, s.first.second - s.first.first);
    }
    x.margin = best - second;
    return x;
}

class eval_model {
    scratch folder;
    model_handle model;
    ctx_handle ctx;
    sq_model_info info{};

    bool is_ok(int32_t status) const {
        if (CHECK_EQ(status, SQ_OK)) return true;
        fprintf(stderr, "  %s\n", sq_ctx_error(ctx.get()));
        return false;
    }

    std::vector<row_answer> classify(const std::vector<task_row> &rows) const {
        text_list list;
        for (const task_row &x : rows) list.add(x.a, x.b);
        const sq_texts texts = list.texts(rows[0].has_b);
        sq_classify_params p{};
        p.size = sizeof p;
        p.max_len = MAX_TOKENS;
        p.truncate = 1;
        std::vector<float> scores(rows.size() * info.n_labels);
        size_t n = 0;
        if (!is_ok(sq_classify(ctx.get(), &texts, &p, scores.data(), nullptr, scores.size(), &n))) return {};
        std::vector<row_answer> answers;
        for (auto row = scores.begin(); row != scores.end(); row += info.n_labels) answers.push_back(best_class({row, row + info.n_labels}));
        return answers;
    }

    std::vector<row_answer> similarities(const std::vector<task_row> &rows) const {
        text_list list;
        for (const task_row &x : rows) list.add(x.a);
        for (const task_row &x : rows) list.add(x.b);
        const sq_texts texts = list.texts(false);
        const size_t width = info.embed_width;
        sq_embed_params p{};
        p.size = sizeof p;
        p.truncate = 1;
        std::vector<float> vectors(2 * rows.size() * width);
        size_t n = 0;
        if (!is_ok(sq_embed(ctx.get(), &texts, &p, vectors.data(), vectors.size(), &n))) return {};
        std::vector<row_answer> answers(rows.size());
        for (size_t i = 0; i < rows.size(); i++) answers[i].value = cosine(&vectors[i * width], &vectors[(rows.size() + i) * width], width);
        return answers;
    }

    std::vector<row_answer> spans(const std::vector<task_row> &rows) const {
        sq_tokenize_params p{};
        p.size = sizeof p;
        p.max_len = MAX_TOKENS;
        p.truncate = 1;
        std::vector<row_answer> answers;
        for (const task_row &x : rows) {
            std::vector<int32_t> ids(MAX_TOKENS), types(MAX_TOKENS), sources(MAX_TOKENS);
            std::vector<uint32_t> bytes(2 * MAX_TOKENS);
            size_t n = 0;
            const int32_t status = sq_tokenize(model.get(), x.a.data(), x.a.size(), x.b.data(), x.b.size(), &p, ids.data(), types.data(), bytes.data(), sources.data(),
                                               MAX_TOKENS, &n);
            if (!CHECK_EQ(status, SQ_OK)) return {};
            sources.resize(n);
            const uint32_t starts[] = {0, static_cast<uint32_t>(n)};
            const sq_batch batch{sizeof batch, 1, ids.data(), types.data(), starts};
            std::vector<float> logits(2 * n);
            if (!is_ok(sq_forward(ctx.get(), &batch, SQ_LOGITS, logits.data(), logits.size(), &n))) return {};
            answers.push_back(best_span(x.b, logits, bytes, sources));
        }
        return answers;
    }

public:
    // Converts the checkpoint, calibrated on the texts of a file; `answers` needs is_ready().
    eval_model(const std::string &checkpoint, sq::quant_mode mode, const std::string &calibration) {
        sq::convert_options o;
        o.checkpoint = checkpoint;
        o.output = folder.path + "/model.sq";
        o.mode = mode;
        o.calibration_file = calibration;
        sq::convert_result converted_as;
        sq::message why{};
        sq_model *loaded = nullptr;
        if (!CHECK_EQ(sq::convert(o, &converted_as, &why), SQ_OK) || !CHECK_EQ(sq_model_load(o.output.c_str(), nullptr, &loaded, why.text, sizeof why.text), SQ_OK)) {
            fprintf(stderr, "  %s: %s\n", checkpoint.c_str(), why.text);
            return;
        }
        model.reset(loaded);
        ctx = context(model, 0);
        info.size = sizeof info;
        sq_model_get_info(model.get(), &info);
    }

    bool is_ready() const { return ctx != nullptr; }

    // One for each row; none after a failed check.
    std::vector<row_answer> answers(const task &t) const {
        return t.kind == task_kind::classify ? classify(t.rows) : t.kind == task_kind::similarity ? similarities(t.rows) : spans(t.rows);
    }
};

#endif
