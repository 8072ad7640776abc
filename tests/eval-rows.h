// tests/eval-rows.h - the tasks of tests/eval.cpp: labelled rows, and files of answers to them.
//
// SHARED/data/tasks holds the rows (ROWS.tsv, or SQuAD's JSON) and, in reference/CHECKPOINT-ROWS.jsonl, what a checkpoint answers in Hugging Face's float32. Those
// files name the tasks. Answer files of other contenders have the same names and lines, with a label in place of logits.
#ifndef SQ_TESTS_EVAL_ROWS_H
#define SQ_TESTS_EVAL_ROWS_H

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "../convert/json.h"
#include "check.h"

enum class task_kind { classify, answer, similarity };

struct task_row {
    std::string a, b;               // text, or question and context
    bool has_b = false;
    double label = 0;               // class, or similarity
    std::vector<std::string> right; // questions: answers that annotators gave
};

struct row_answer {
    std::string text;  // class, or answer
    double value = 0;  // cosine
    double margin = 0; // how far its logit or score is above that of the best other answer; 0 if unknown
};

struct task {
    std::string checkpoint, rows_name;
    task_kind kind;
    std::vector<task_row> rows;
    std::vector<row_answer> recorded; // by float32, for each row

    std::string file_name() const { return checkpoint + "-" + rows_name + ".jsonl"; }
};

inline std::vector<std::string> lines_of(const std::string &path) {
    std::vector<std::string> lines;
    std::ifstream in(path);
    CHECK(in.good());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

inline std::vector<task_row> read_tsv(const std::string &path) {
    std::vector<task_row> rows;
    const std::vector<std::string> lines = lines_of(path);
    for (size_t i = 1; i < lines.size(); i++) {
        task_row x;
        std::stringstream fields(lines[i]);
        std::string label;
        std::getline(fields, label, '\t');
        std::getline(fields, x.a, '\t');
        x.has_b = static_cast<bool>(std::getline(fields, x.b, '\t'));
        x.label = strtod(label.c_str(), nullptr);
        rows.push_back(x);
    }
    return rows;
}

inline std::vector<task_row> read_squad(const std::string &path) {
    std::vector<task_row> rows;
    std::ifstream in(path);
    std::stringstream bytes;
    bytes << in.rdbuf();
    const std::string text = bytes.str();
    sq::json::value root;
    std::string error;
    if (!CHECK(sq::json::parse(text.data(), text.size(), &root, &error))) return rows;
    for (const sq::json::value &article : root.find("data")->items)
        for (const sq::json::value &paragraph : article.find("paragraphs")->items)
            for (const sq::json::value &question : paragraph.find("qas")->items) {
                task_row x;
                x.a = question.find("question")->text;
                x.b = paragraph.find("context")->text;
                x.has_b = true;
                for (const sq::json::value &answer : question.find("answers")->items) x.right.push_back(answer.find("text")->text);
                rows.push_back(x);
            }
    return rows;
}

// ---- answers ----

inline row_answer best_class(std::vector<double> logits) {
    row_answer x;
    x.text = std::to_string(std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::sort(logits.rbegin(), logits.rend());
    x.margin = logits[0] - logits[1];
    return x;
}

// {"logits": [...]} or {"label": 1}, {"answer": "..."}, {"cosine": 0.9}
inline row_answer parse_answer(const std::string &line) {
    sq::json::value v;
    std::string error;
    row_answer x;
    if (!CHECK(sq::json::parse(line.data(), line.size(), &v, &error))) return x;
    if (const sq::json::value *logits = v.find("logits")) {
        std::vector<double> l;
        for (const sq::json::value &logit : logits->items) l.push_back(logit.number);
        return best_class(l);
    }
    if (const sq::json::value *label = v.find("label")) x.text = std::to_string(label->integer);
    if (const sq::json::value *answer = v.find("answer")) x.text = answer->text;
    if (const sq::json::value *cosine = v.find("cosine")) x.value = cosine->number;
    return x;
}

inline std::vector<row_answer> read_answers(const std::string &path) {
    std::vector<row_answer> answers;
    for (const std::string &line : lines_of(path)) answers.push_back(parse_answer(line));
    return answers;
}

inline void write_answers(const std::string &path, task_kind kind, const std::vector<row_answer> &answers) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::string lines;
    for (const row_answer &x : answers) {
        lines += kind == task_kind::classify ? "{\"label\": " : kind == task_kind::answer ? "{\"answer\": " : "{\"cosine\": ";
        if (kind == task_kind::classify) lines += x.text;
        else if (kind == task_kind::answer) sq::json::append_string(&lines, x.text);
        else sq::json::append_number(&lines, x.value);
        lines += "}\n";
    }
    std::ofstream out(path);
    out << lines;
    CHECK(static_cast<bool>(out.flush()));
}

// ---- tasks ----

inline task read_task(const std::string &folder, const std::string &recorded_name) {
    const std::string stem = recorded_name.substr(0, recorded_name.rfind('.'));
    task t;
    t.checkpoint = stem.substr(0, stem.rfind('-'));
    t.rows_name = stem.substr(stem.rfind('-') + 1);
    const std::string rows = folder + "/" + t.rows_name, recorded = folder + "/reference/" + recorded_name;
    const bool is_squad = std::filesystem::exists(rows + ".json");
    const std::vector<std::string> lines = lines_of(recorded);
    t.kind = is_squad ? task_kind::answer : CHECK(!lines.empty()) && lines[0].find("\"cosine\"") != std::string::npos ? task_kind::similarity : task_kind::classify;
    t.rows = is_squad ? read_squad(rows + ".json") : read_tsv(rows + ".tsv");
    t.recorded = read_answers(recorded);
    CHECK_EQ(t.rows.size(), t.recorded.size());
    return t;
}

// All tasks of SHARED/data/tasks, those of a checkpoint together.
inline std::vector<task> read_tasks(const std::string &shared) {
    const std::string folder = shared + "/data/tasks";
    std::vector<std::string> names;
    std::error_code none; // an empty list says so
    for (const auto &entry : std::filesystem::directory_iterator(folder + "/reference", none))
        if (entry.path().extension() == ".jsonl") names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    std::vector<task> tasks;
    for (const std::string &name : names) tasks.push_back(read_task(folder, name));
    return tasks;
}

#endif
