// examples/cli-answer.cpp - `sq answer`: answers to questions, cut from their contexts; single ones, JSON lines, or a whole SQuAD file.
#include <algorithm>

#include "../convert/json.h"
#include "cli-common.h"

namespace cli {

namespace json = sq::json;

namespace {

class answerer {
  public:
    answerer(const options &o, const session &s) : s_(s), top_(o.top ? o.top : 1) {
        sq_answer_params_init(&params_, sizeof params_);
        params_.window = s.max_len;
        params_.stride = o.stride;
        params_.max_answer = o.max_answer;
        params_.allow_null = o.allow_null;
        params_.specials_as_text = o.specials_as_text;
        size_t n = 0;
        // A model that cannot do it is refused before anything is read.
        s.check(sq_answer(s.ctx.get(), nullptr, 0, nullptr, 0, &params_, nullptr, 0, &n));
    }

    // The best answers, at least one: without any, the empty text.
    const std::vector<sq_answer_span> &find(const std::string &place, const std::string &question, const std::string &context) {
        spans_.resize(MAX_ANSWERS);
        size_t n = 0;
        const int32_t status =
            sq_answer(s_.ctx.get(), question.data(), question.size(), context.data(), context.size(), &params_, spans_.data(), spans_.size(), &n);
        if (status != SQ_OK) {
            const std::string why = sq_ctx_error(s_.ctx.get());
            fail("%s: %s", place.c_str(), why.empty() ? sq_status_string(status) : why.c_str());
        }
        spans_.resize(std::min<size_t>(n, top_));
        if (n == 0) spans_.push_back({0, 0, 0, 0});
        return spans_;
    }

  private:
    const session &s_;
    size_t top_;
    sq_answer_params params_;
    std::vector<sq_answer_span> spans_;
};

std::string_view text_of(const sq_answer_span &a, const std::string &context) { return std::string_view(context).substr(a.start, a.end - a.start); }

// The members of an answer, without braces.
void append_answer(std::string *line, const sq_answer_span &a, const std::string &context) {
    *line += "\"text\":";
    json::append_string(line, text_of(a, context));
    *line += ",\"start\":" + std::to_string(a.start) + ",\"end\":" + std::to_string(a.end) + ",\"score\":";
    json::append_number(line, a.score);
}

std::string json_line(const std::vector<sq_answer_span> &answers, const std::string &context, bool with_list) {
    std::string line = "{";
    append_answer(&line, answers[0], context);
    if (with_list) {
        line += ",\"answers\":[";
        for (size_t i = 0; i < answers.size(); i++) {
            line += i ? ",{" : "{";
            append_answer(&line, answers[i], context);
            line += '}';
        }
        line += ']';
    }
    return line + "}\n";
}

// One answer a line: score, probability, bytes [first, past) and the text there.
std::string table(const std::vector<sq_answer_span> &answers, const std::string &context) {
    std::string text;
    for (const sq_answer_span &a : answers) {
        const std::string words = a.start == a.end ? "(no answer)" : printable(text_of(a, context), 200);
        text += formatted("%8.3f  %.3f  ", double{a.score}, double{a.probability}) + pad_right(formatted("%zu..%zu", a.start, a.end), 14) + words + "\n";
    }
    return text;
}

// ---- SQuAD ----

const json::value &need(const json::value &object, const char *key, json::kind kind, const std::string &place) {
    static const char *const NAMES[] = {"null", "boolean", "number", "string", "list", "object"}; // by json::kind
    const json::value *v = object.find(key);
    if (!v || v->type != kind) fail("%s: no %s \"%s\"", place.c_str(), NAMES[static_cast<size_t>(kind)], key);
    return *v;
}

// Calls each(id, question, context, place) for every question of a SQuAD file. Of both versions, 1.1 and 2, it reads
// {"data": [{"paragraphs": [{"context": TEXT, "qas": [{"id": TEXT, "question": TEXT}, ...]}, ...]}, ...]}.
template <class each_fn> void walk_squad(const json::value &file, const std::string &name, each_fn each) {
    const std::vector<json::value> &articles = need(file, "data", json::kind::array, name).items;
    for (size_t i = 0; i < articles.size(); i++) {
        const std::string article = name + ": data[" + std::to_string(i) + "]";
        const std::vector<json::value> &paragraphs = need(articles[i], "paragraphs", json::kind::array, article).items;
        for (size_t j = 0; j < paragraphs.size(); j++) {
            const std::string paragraph = article + ".paragraphs[" + std::to_string(j) + "]";
            const std::string &context = need(paragraphs[j], "context", json::kind::string, paragraph).text;
            const std::vector<json::value> &questions = need(paragraphs[j], "qas", json::kind::array, paragraph).items;
            for (size_t k = 0; k < questions.size(); k++) {
                const std::string place = paragraph + ".qas[" + std::to_string(k) + "]";
                each(need(questions[k], "id", json::kind::string, place).text, need(questions[k], "question", json::kind::string, place).text, context, place);
            }
        }
    }
}

// Writes {ID: TEXT, ...}, what the official evaluation scripts take.
void run_squad(const std::string &path, answerer *answers, output *out) {
    const std::string name = path == "-" ? "standard input" : path;
    json::value file;
    {
        const std::string text = read_file(path);
        std::string why;
        if (!json::parse(text.data(), text.size(), &file, &why)) fail("%s: not JSON: %s", name.c_str(), why.c_str());
    }
    size_t n_all = 0, n_done = 0;
    walk_squad(file, name, [&](const std::string &, const std::string &, const std::string &, const std::string &) { n_all++; });
    progress shown(*out, "questions", n_all);
    std::string line;
    walk_squad(file, name, [&](const std::string &id, const std::string &question, const std::string &context, const std::string &place) {
        line = n_done ? ",\n" : "{";
        json::append_string(&line, id);
        line += ": ";
        json::append_string(&line, text_of(answers->find(place, question, context)[0], context));
        out->write(line);
        shown.show(++n_done);
    });
    out->write(n_done ? "}\n" : "{}\n");
}

} // namespace

void run_answer(const options &o) {
    std::vector<row> given;
    if (!o.texts.empty()) given.push_back({o.texts[0], o.context_file.empty() ? o.texts[1] : read_file(o.context_file), true, {}, 1});
    row_source rows(o, QUESTION, std::move(given));
    const session s(o);
    output out(o.output);
    answerer answers(o, s);
    if (!o.squad.empty()) {
        run_squad(o.squad, &answers, &out);
    } else {
        run_rows(&rows, &out, "questions", [&](const row &r) {
            const std::vector<sq_answer_span> &found = answers.find(rows.place(r.number), r.a, r.b);
            out.write(o.format == FORMAT_TEXT ? table(found, r.b) : json_line(found, r.b, o.top != 0));
        });
    }
    out.commit();
}

} // namespace cli
