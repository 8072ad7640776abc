// tests/eval-scores.h - what answers are worth: accuracy, SQuAD's F1, Spearman's rank correlation, in points of 100; and whether they are float's.
#ifndef SQ_TESTS_EVAL_SCORES_H
#define SQ_TESTS_EVAL_SCORES_H

#include <ctype.h>
#include <math.h>

#include <numeric>
#include <set>

#include "eval-rows.h"

constexpr double COSINE_DIFFERS = 0.02;

// As SQuAD's evaluation script, for ASCII: lower case, without punctuation and articles.
inline std::vector<std::string> words_of(const std::string &text) {
    std::string plain;
    for (const char ch : text)
        if (!ispunct(static_cast<unsigned char>(ch))) plain += static_cast<char>(tolower(static_cast<unsigned char>(ch)));
    std::vector<std::string> words;
    std::stringstream in(plain);
    for (std::string word; in >> word;)
        if (word != "a" && word != "an" && word != "the") words.push_back(word);
    return words;
}

inline double f1(const std::vector<std::string> &given, const std::vector<std::string> &right) {
    std::multiset<std::string> rest(right.begin(), right.end());
    double common = 0;
    for (const std::string &word : given) {
        const auto at = rest.find(word);
        if (at == rest.end()) continue;
        rest.erase(at);
        common++;
    }
    return common == 0 ? 0 : 2 * common / static_cast<double>(given.size() + right.size());
}

// Ranks from 1, equal values sharing their mean.
inline std::vector<double> ranks(const std::vector<double> &x) {
    std::vector<size_t> order(x.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return x[i] < x[j]; });
    std::vector<double> r(x.size());
    for (size_t i = 0, past; i < x.size(); i = past) {
        for (past = i; past < x.size() && x[order[past]] == x[order[i]];) past++;
        for (size_t j = i; j < past; j++) r[order[j]] = static_cast<double>(i + past + 1) / 2;
    }
    return r;
}

inline double spearman(const std::vector<double> &x, const std::vector<double> &y) {
    const std::vector<double> a = ranks(x), b = ranks(y);
    const double mean = static_cast<double>(x.size() + 1) / 2;
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); i++) ab += (a[i] - mean) * (b[i] - mean), aa += (a[i] - mean) * (a[i] - mean), bb += (b[i] - mean) * (b[i] - mean);
    return ab / sqrt(aa * bb);
}

// Of each answer: 1 or 0, F1 with the nearest of the right answers, or the cosine, of which only the rank counts.
inline std::vector<double> worths_of(const task &t, const std::vector<row_answer> &answers) {
    std::vector<double> worths;
    for (size_t i = 0; i < answers.size(); i++) {
        double worth = t.kind == task_kind::similarity ? answers[i].value : 0;
        if (t.kind == task_kind::classify) worth = strtod(answers[i].text.c_str(), nullptr) == t.rows[i].label;
        for (const std::string &right : t.rows[i].right) worth = std::max(worth, f1(words_of(answers[i].text), words_of(right)));
        worths.push_back(worth);
    }
    return worths;
}

// Of the rows listed, each as often as it is listed.
inline double score(const task &t, const std::vector<double> &worths, const std::vector<uint32_t> &rows) {
    if (t.kind == task_kind::similarity) {
        std::vector<double> labels, values;
        for (const uint32_t r : rows) labels.push_back(t.rows[r].label), values.push_back(worths[r]);
        return 100 * spearman(labels, values);
    }
    double sum = 0;
    for (const uint32_t r : rows) sum += worths[r];
    return 100 * sum / static_cast<double>(rows.size());
}

// Percent of rows whose answer is not the recorded one; cosines: further than COSINE_DIFFERS from it.
inline double share_differing(const task &t, const std::vector<row_answer> &answers) {
    double n = 0;
    for (size_t i = 0; i < answers.size(); i++)
        n += t.kind == task_kind::similarity ? fabs(answers[i].value - t.recorded[i].value) > COSINE_DIFFERS : answers[i].text != t.recorded[i].text;
    return 100 * n / static_cast<double>(answers.size());
}

#endif
