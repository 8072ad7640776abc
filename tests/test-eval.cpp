// tests/test-eval.cpp - what tests/eval.cpp computes with: intervals, scores, and answer files that read back. Expected values by scipy 1.17.1, or derived here.
#include <map>

#include "bootstrap.h"
#include "eval-scores.h"
#include "scratch.h"

static double mean_difference(const std::vector<double> &a, const std::vector<double> &b, const std::vector<uint32_t> &rows) {
    double sum = 0;
    for (const uint32_t r : rows) sum += a[r] - b[r];
    return 100 * sum / static_cast<double>(rows.size());
}

// Against another generator's interval: each bound strays by 2.7 % of a standard error (bootstrap.h), two of them by 3.8 %; four times that.
static void check_interval(const interval &i, double low, double high, double standard_error) {
    CHECK_NEAR(i.low, low, 0.15 * standard_error);
    CHECK_NEAR(i.high, high, 0.15 * standard_error);
}

static void test_equal_answers() {
    const std::vector<double> a{1, 0, 0.25, 1, 0.5};
    const interval i = bootstrap(5, [&](const std::vector<uint32_t> &rows) { return mean_difference(a, a, rows); });
    CHECK_EQ(i.low, 0.0);
    CHECK_EQ(i.high, 0.0);
}

// The same worth for the same rows in every call, so that intervals of two contenders are of the same draws.
static void test_draws() {
    std::vector<std::vector<uint32_t>> draws[2];
    for (auto &d : draws)
        bootstrap(7, [&](const std::vector<uint32_t> &rows) {
            d.push_back(rows);
            return 0.0;
        });
    CHECK_EQ(draws[0].size(), RESAMPLES);
    CHECK(draws[0] == draws[1]);
    std::map<uint32_t, double> n;
    for (const auto &rows : draws[0])
        for (const uint32_t r : rows) n[r]++;
    CHECK(n.size() == 7 && n.rbegin()->first == 6);
    // Each of RESAMPLES * 7 draws is a given row with probability 1 / 7: standard deviation sqrt(70000 * 6 / 49) = 93; five of them.
    for (const auto &count : n) CHECK_NEAR(count.second, RESAMPLES, 463);
}

// 500 rows, of which only the first contender has 9 right and only the second 4. The variance of the mean difference is (b + c - (b - c)^2 / n) / n^2.
static void test_discordant_rows() {
    std::vector<double> a(500), b(500);
    for (size_t i = 0; i < 9; i++) a[i] = 1;
    for (size_t i = 9; i < 13; i++) b[i] = 1;
    for (size_t i = 13; i < 300; i++) a[i] = b[i] = 1;
    const double standard_error = 100 * sqrt(9 + 4 - 25.0 / 500) / 500;
    const interval i = bootstrap(500, [&](const std::vector<uint32_t> &rows) { return mean_difference(a, b, rows); });
    check_interval(i, -0.4, 2.4, standard_error);
    CHECK_NEAR((i.high - i.low) / (2 * 1.96 * standard_error), 1, 0.1); // whole rows: 0.2 points, so not nearer
}

// scipy.stats.bootstrap((label, a, b), ..., paired=True, method="percentile", n_resamples=10000), scipy.stats.spearmanr
static void test_scipy() {
    task t{"", "", task_kind::similarity, {}, {}};
    std::vector<double> a, b, u, v;
    for (int i = 0; i < 200; i++) {
        task_row row;
        row.label = i * 37 % 101 / 10 / 2.0; // NOLINT: whole tens, as ties are wanted
        t.rows.push_back(row);
        a.push_back(row.label + i * i * 13 % 97 / 40.0);
        b.push_back(row.label + i * i * 29 % 89 / 30.0);
        u.push_back(i * 7 % 10 / 9.0);
        v.push_back(i * i % 11 / 10.0);
    }
    std::vector<uint32_t> all(200);
    std::iota(all.begin(), all.end(), 0u);
    CHECK_NEAR(score(t, a, all), 92.58932097997615, 1e-9);
    CHECK_NEAR(score(t, b, all), 87.2413243796963, 1e-9);
    check_interval(bootstrap(200, [&](const std::vector<uint32_t> &rows) { return score(t, a, rows) - score(t, b, rows); }), 2.89613, 8.09538, 1.30666);
    check_interval(bootstrap(200, [&](const std::vector<uint32_t> &rows) { return mean_difference(u, v, rows); }), 4.33333, 16.22778, 3.05601);
}

static void test_scores() {
    CHECK_EQ(words_of("The  Cat's hat, a b.").size(), 3); // cats hat b
    CHECK_NEAR(f1(words_of("the cat sat"), words_of("Cat sat down")), 0.8, 1e-12); // precision 1, recall 2 / 3
    CHECK_EQ(f1(words_of("cat cat"), words_of("dog")), 0.0);
    CHECK_NEAR(f1(words_of("cat cat"), words_of("cat")), 2.0 / 3, 1e-12); // a word counts as often as both have it

    task t{"", "", task_kind::answer, std::vector<task_row>(2), std::vector<row_answer>(2)};
    t.rows[0].right = {"nothing", "cat sat down"};
    t.rows[1].right = {"dog"};
    t.recorded[0].text = "the cat sat";
    t.recorded[1].text = "a dog";
    std::vector<row_answer> answers = t.recorded;
    answers[1].text = "dog";
    CHECK_NEAR(score(t, worths_of(t, answers), {0, 1}), 90, 1e-9);
    CHECK_NEAR(score(t, worths_of(t, answers), {1, 1}), 100, 1e-9);
    CHECK_EQ(share_differing(t, answers), 50.0); // equal in worth, but not in text

    t.kind = task_kind::similarity;
    t.recorded[0].value = 0.5;
    answers[0].value = 0.5 + 2 * COSINE_DIFFERS;
    answers[1].value = COSINE_DIFFERS / 2;
    CHECK_EQ(share_differing(t, answers), 50.0);
}

static void test_files() {
    const scratch folder;
    std::vector<row_answer> answers(2);
    answers[0].text = "a \"quote\",\n\xc3\xa9";
    write_answers(folder.path + "/new/answers.jsonl", task_kind::answer, answers);
    std::vector<row_answer> again = read_answers(folder.path + "/new/answers.jsonl");
    if (CHECK_EQ(again.size(), 2)) CHECK_EQ(again[0].text, answers[0].text);

    answers[0].text = "2", answers[1].text = "0";
    write_answers(folder.path + "/labels.jsonl", task_kind::classify, answers);
    again = read_answers(folder.path + "/labels.jsonl");
    if (CHECK_EQ(again.size(), 2)) CHECK(again[0].text == "2" && again[1].text == "0");

    answers[0].value = 0.987654321, answers[1].value = -1;
    write_answers(folder.path + "/cosines.jsonl", task_kind::similarity, answers);
    again = read_answers(folder.path + "/cosines.jsonl");
    if (CHECK_EQ(again.size(), 2)) CHECK(again[0].value == 0.987654321 && again[1].value == -1);

    const row_answer recorded = parse_answer("{\"logits\": [0.5, 2.25, -1]}");
    CHECK_EQ(recorded.text, "1");
    CHECK_NEAR(recorded.margin, 1.75, 1e-12);
}

static void test_tasks() {
    const scratch folder;
    folder.put("data/tasks/nli_x.tsv", "label\ttext1\ttext2\n2\tone\ttwo\n0\tthree\tfour\n");
    folder.put("data/tasks/sts.tsv", "label\ttext1\ttext2\n4.5\tone\ttwo\n");
    folder.put("data/tasks/qa.json", R"({"data": [{"paragraphs": [{"context": "c", "qas": [{"question": "q", "answers": [{"text": "c"}, {"text": "d"}]}]}]}]})");
    folder.put("data/tasks/reference/some-nli-nli_x.jsonl", "{\"logits\": [1, 0, 0]}\n{\"logits\": [0, 0, 1]}\n");
    folder.put("data/tasks/reference/one-sts.jsonl", "{\"cosine\": 0.5}\n");
    folder.put("data/tasks/reference/two-qa.jsonl", "{\"answer\": \"c\"}\n");
    folder.put("data/tasks/reference/README.md", "");
    const std::vector<task> tasks = read_tasks(folder.path);
    if (!CHECK_EQ(tasks.size(), 3)) return;
    CHECK(tasks[0].checkpoint == "one" && tasks[0].kind == task_kind::similarity && tasks[0].rows[0].label == 4.5);
    CHECK(tasks[1].checkpoint == "some-nli" && tasks[1].rows_name == "nli_x" && tasks[1].kind == task_kind::classify);
    CHECK(tasks[1].rows[0].label == 2 && tasks[1].rows[0].b == "two" && tasks[1].rows[1].b == "four" && tasks[1].recorded[1].text == "2");
    CHECK(tasks[2].kind == task_kind::answer && tasks[2].rows[0].a == "q" && tasks[2].rows[0].right.size() == 2);
    CHECK(read_tasks(folder.path + "/none").empty());
}

int main() {
    test_equal_answers();
    test_draws();
    test_discordant_rows();
    test_scipy();
    test_scores();
    test_files();
    test_tasks();
    return check_summary("test-eval");
}
