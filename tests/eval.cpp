// eval.cpp - accuracy on labelled rows: real checkpoints in float, dynamic and static INT8, beside other libraries' INT8 on the same rows, and the targets.
//
//     build/eval [--models DIR] [--shared DIR] [--answers DIR] [--kept] [CHECKPOINT...]
//
// Checkpoints are folders of --models (SQ_MODELS); rows, float32 answers and calibration texts are in --shared (SQ_SHARED): data/tasks, data/calibrate.txt. A task is
// what has answers recorded there; qa_xquad_de and _zh have none, as no checkpoint answers in German or Chinese. Scores: tests/eval-scores.h. The answers are written
// to ANSWERS/sq-MODE/CHECKPOINT-ROWS.jsonl; other folders there are other contenders, and their answers are scored alike: `make eval-peers` makes them, once.
// ANSWERS is $SQ_PEERS/eval, ~/sq-peers/eval if that is not set. With --kept nothing is converted: sq's answers are those of the last run.
//
// For each task: the score, its difference to that of the recorded float32 answers with the paired 95 % interval (tests/bootstrap.h), the share of rows whose answer is
// not the recorded one (cosines: further than 0.02 from it), and for sq the difference to the best of the peers. Then the targets: sq is worse than the best peer if
// the whole interval of the difference is below 0. That the best is picked on the same rows, among all peers, counts against sq.
//
// Exit code: 0 all targets are met, 1 something failed or float differs from an answer whose margin is above 1e-3, 2 arguments, 3 a target is not met.
// Takes ten minutes on two cores, and is no part of `make test`.
#include <set>

#include "bootstrap.h"
#include "eval-model.h"
#include "eval-scores.h"

namespace {

constexpr double MARGIN = 1e-3;
constexpr double ROUNDING = 1e-9; // a difference of 4 of 500 rows is 0.8 points, and not more

std::string models_folder, shared_folder, answers_folder;
bool is_kept = false; // --kept

struct judged {
    std::string name;
    std::vector<double> worths;
    double score = 0, gain = 0, differing = 0; // gain: score less float's; differing: percent
    interval around_gain{};
    interval to_best{}; // of sq's score less the best peer's

    bool is_sq() const { return name.compare(0, 3, "sq-") == 0; }
    bool is_worse() const { return to_best.high < -ROUNDING; }
};

// A task's contenders, sq's modes first.
struct task_result {
    const task *of;
    double float_score = 0;
    std::vector<judged> contenders;

    const judged &named(const std::string &name) const {
        return *std::find_if(contenders.begin(), contenders.end(), [&](const judged &j) { return j.name == name; });
    }
    // Of the highest score; null if there are no peers.
    const judged *best_peer() const {
        const judged *best = nullptr;
        for (const judged &j : contenders)
            if (!j.is_sq() && (!best || j.score > best->score)) best = &j;
        return best;
    }
    std::string title() const { return of->checkpoint + " " + of->rows_name; }
};

std::vector<uint32_t> all_rows(const task &t) {
    std::vector<uint32_t> rows(t.rows.size());
    std::iota(rows.begin(), rows.end(), 0u);
    return rows;
}

interval interval_of_difference(const task &t, const std::vector<double> &a, const std::vector<double> &b) {
    return bootstrap(static_cast<uint32_t>(t.rows.size()), [&](const std::vector<uint32_t> &rows) { return score(t, a, rows) - score(t, b, rows); });
}

judged judge(const task &t, const std::string &name, const std::vector<row_answer> &answers) {
    const std::vector<uint32_t> rows = all_rows(t);
    const std::vector<double> recorded = worths_of(t, t.recorded);
    judged j;
    j.name = name;
    j.worths = worths_of(t, answers);
    j.score = score(t, j.worths, rows);
    j.gain = j.score - score(t, recorded, rows);
    j.differing = share_differing(t, answers);
    j.around_gain = interval_of_difference(t, j.worths, recorded);
    return j;
}

// ---- contenders ----

void check_float(const task &t, const std::vector<row_answer> &answers) {
    for (size_t i = 0; i < answers.size(); i++) {
        if (t.kind == task_kind::similarity) CHECK_NEAR(answers[i].value, t.recorded[i].value, MARGIN);
        else if ((t.kind == task_kind::answer ? answers[i] : t.recorded[i]).margin > MARGIN) CHECK_EQ(answers[i].text, t.recorded[i].text);
    }
}

// Names of the folders of answers that are not sq's, in order.
std::vector<std::string> peers() {
    std::set<std::string> names;
    std::error_code none; // no folder, no peers
    for (const auto &entry : std::filesystem::directory_iterator(answers_folder, none))
        if (entry.is_directory() && entry.path().filename().string().compare(0, 3, "sq-") != 0) names.insert(entry.path().filename());
    return {names.begin(), names.end()};
}

void add_peers(task_result *r) {
    for (const std::string &name : peers()) {
        const std::string path = answers_folder + "/" + name + "/" + r->of->file_name();
        if (!std::filesystem::exists(path)) continue;
        const std::vector<row_answer> answers = read_answers(path);
        if (!CHECK_EQ(answers.size(), r->of->rows.size())) fprintf(stderr, "  %s\n", path.c_str());
        else r->contenders.push_back(judge(*r->of, name, answers));
    }
    if (const judged *best = r->best_peer())
        for (judged &j : r->contenders)
            if (j.is_sq()) j.to_best = interval_of_difference(*r->of, j.worths, best->worths);
}

// Answers of the mode's run, now or, if they are kept, the last one.
void add_sq_mode(const std::string &checkpoint, sq::quant_mode mode, std::vector<task_result> *results) {
    const std::string name = std::string("sq-") + mode_name(mode);
    std::unique_ptr<eval_model> m;
    if (!is_kept) {
        fprintf(stderr, "%s: converting, %s\n", checkpoint.c_str(), mode_name(mode));
        m = std::make_unique<eval_model>(models_folder + "/" + checkpoint, mode, shared_folder + "/data/calibrate.txt");
        if (!m->is_ready()) return;
    }
    for (task_result &r : *results) {
        const std::string path = answers_folder + "/" + name + "/" + r.of->file_name();
        const std::vector<row_answer> answers = is_kept ? read_answers(path) : m->answers(*r.of);
        if (!CHECK_EQ(answers.size(), r.of->rows.size())) continue;
        if (mode == sq::quant_mode::none) check_float(*r.of, answers);
        if (!is_kept) write_answers(path, r.of->kind, answers);
        r.contenders.push_back(judge(*r.of, name, answers));
    }
}

// ---- tables ----

void print_task(const task_result &r) {
    const task &t = *r.of;
    const char *measure = t.kind == task_kind::classify ? "accuracy" : t.kind == task_kind::answer ? "F1" : "Spearman's correlation";
    printf("\n%s: %s of %zu rows, float32 %.2f\n", r.title().c_str(), measure, t.rows.size(), r.float_score);
    printf("  %-20s %6s   %-24s  %s   less the best peer's\n", "", "score", "less float32's, 95 %", "differ");
    const judged *best = r.best_peer();
    for (const judged &j : r.contenders) {
        printf("  %-20s %6.2f   %+6.2f [%+6.2f, %+6.2f]   %5.1f %%", j.name.c_str(), j.score, j.gain, j.around_gain.low, j.around_gain.high, j.differing);
        if (j.is_sq() && best) printf("   %+6.2f [%+6.2f, %+6.2f] %s", j.score - best->score, j.to_best.low, j.to_best.high, best->name.c_str());
        printf("\n");
    }
}

struct average {
    double sum = 0;
    int n = 0;
    void add(double x) { sum += x, n++; }
    double value() const { return sum / n; }
    std::string percent() const {
        char text[32] = "-";
        if (n) snprintf(text, sizeof text, "%.2f %%", value());
        return text;
    }
};

// What a contender says of itself, set apart; empty if it does not.
std::string about(const std::string &name) {
    std::ifstream in(answers_folder + "/" + name + "/about.txt");
    std::string line;
    std::getline(in, line);
    return line.empty() ? "" : "   " + line;
}

// Means over tasks; of a contender that lacks tasks, over those that it has.
void print_means(const std::vector<task_result> &results) {
    std::vector<std::string> names{"sq-float", "sq-dynamic", "sq-static"};
    for (const std::string &name : peers()) names.push_back(name);
    printf("\n  %-20s %5s   %20s   %22s   %17s\n", "means over tasks", "tasks", "score less float32's", "differ, classification", "differ, questions");
    for (const std::string &name : names) {
        average gain, classes, questions;
        for (const task_result &r : results)
            for (const judged &j : r.contenders) {
                if (j.name != name) continue;
                gain.add(j.gain);
                if (r.of->kind == task_kind::classify) classes.add(j.differing);
                if (r.of->kind == task_kind::answer) questions.add(j.differing);
            }
        if (gain.n) printf("  %-20s %5d   %+20.2f   %22s   %17s%s\n", name.c_str(), gain.n, gain.value(), classes.percent().c_str(), questions.percent().c_str(),
                           about(name).c_str());
    }
}

// ---- targets ----

struct bounds {
    const char *mode;
    double mean_loss, loss, differing_classes, differing_answers; // points; percent
};
constexpr bounds TARGETS[] = {{"sq-dynamic", 0.2, 0.8, 1.5, 3}, {"sq-static", 0.3, 0.8, 2.5, 6}};

// The largest value over tasks, and where.
struct worst {
    double value = -HUGE_VAL;
    std::string where;
    void take(double x, const std::string &title) {
        if (x > value) value = x, where = title;
    }
};

bool print_target(const char *mode, const char *what, double bound, double measured, const std::string &where) {
    const bool is_met = measured <= bound + ROUNDING;
    printf("  %-11s %-47s <= %4.2f   %5.2f  %s%s\n", mode, what, bound, measured, is_met ? "met" : "not met", (where.empty() ? "" : ": " + where).c_str());
    return is_met;
}

// Returns whether all that could be measured are met.
bool print_targets(const bounds &b, const std::vector<task_result> &results) {
    average loss;
    worst loss_of_task, classes, questions;
    double n_worse = 0, n_compared = 0;
    std::string where_worse;
    for (const task_result &r : results) {
        const judged &j = r.named(b.mode);
        loss.add(-j.gain);
        loss_of_task.take(-j.gain, r.title());
        if (r.of->kind == task_kind::classify) classes.take(j.differing, r.title());
        if (r.of->kind == task_kind::answer) questions.take(j.differing, r.title());
        n_compared += r.best_peer() != nullptr;
        n_worse += j.is_worse();
        if (j.is_worse()) where_worse += (where_worse.empty() ? "" : ", ") + r.title();
    }
    bool all = print_target(b.mode, "points lost, mean of tasks", b.mean_loss, loss.value(), std::to_string(loss.n) + " tasks");
    all &= print_target(b.mode, "points lost, worst task", b.loss, loss_of_task.value, loss_of_task.where);
    if (!classes.where.empty()) all &= print_target(b.mode, "rows that differ, classification, worst task, %", b.differing_classes, classes.value, classes.where);
    if (!questions.where.empty()) all &= print_target(b.mode, "rows that differ, questions, worst task, %", b.differing_answers, questions.value, questions.where);
    if (n_compared == 0) printf("  %-11s tasks on which it is worse than the best peer: not measured, there are no peers' answers\n", b.mode);
    else all &= print_target(b.mode, "tasks on which it is worse than the best peer", 0, n_worse, where_worse);
    return all;
}

// ---- arguments ----

std::string variable(const char *name, const std::string &otherwise) { return getenv(name) ? getenv(name) : otherwise; }

// Sets the folders and returns what remains: names of checkpoints.
std::set<std::string> read_arguments(int argc, char **argv) {
    models_folder = variable("SQ_MODELS", "");
    shared_folder = variable("SQ_SHARED", "../shared");
    answers_folder = variable("SQ_PEERS", variable("HOME", ".") + "/sq-peers") + "/eval";
    std::set<std::string> names;
    for (int i = 1; i < argc; i++) {
        const std::string argument = argv[i];
        if (argument == "--models" && i + 1 < argc) models_folder = argv[++i];
        else if (argument == "--shared" && i + 1 < argc) shared_folder = argv[++i];
        else if (argument == "--answers" && i + 1 < argc) answers_folder = argv[++i];
        else if (argument == "--kept") is_kept = true;
        else names.insert(argument);
    }
    return names;
}

std::vector<task_result> evaluate(const std::vector<task> &tasks, const std::string &checkpoint) {
    std::vector<task_result> results;
    for (const task &t : tasks) {
        if (t.checkpoint != checkpoint) continue;
        task_result r;
        r.of = &t;
        r.float_score = score(t, worths_of(t, t.recorded), all_rows(t));
        results.push_back(r);
    }
    for (sq::quant_mode mode : {sq::quant_mode::none, sq::quant_mode::dynamic_scales, sq::quant_mode::static_scales}) add_sq_mode(checkpoint, mode, &results);
    for (task_result &r : results) {
        add_peers(&r);
        print_task(r);
    }
    fflush(stdout);
    return results;
}

} // namespace

int main(int argc, char **argv) {
    std::set<std::string> names = read_arguments(argc, argv), known;
    const std::vector<task> tasks = read_tasks(shared_folder);
    for (const task &t : tasks) known.insert(t.checkpoint);
    if (names.empty()) names = known;
    if (models_folder.empty() || names.empty() || !std::includes(known.begin(), known.end(), names.begin(), names.end())) {
        fprintf(stderr, "usage: eval [--models DIR] [--shared DIR] [--answers DIR] [--kept] [CHECKPOINT...]\n");
        for (const task &t : tasks) fprintf(stderr, "  %s %s\n", t.checkpoint.c_str(), t.rows_name.c_str());
        if (models_folder.empty() || tasks.empty()) fprintf(stderr, "SQ_MODELS must name a folder of checkpoints, SQ_SHARED one with data/tasks\n");
        return 2;
    }
    std::vector<task_result> results;
    for (const std::string &checkpoint : names)
        for (const task_result &r : evaluate(tasks, checkpoint)) results.push_back(r);
    print_means(results);
    printf("\n");
    if (check_summary("eval") != 0) return 1;
    printf("\n  %-11s %-47s %7s   %5s\n", "targets", "", "bound", "is");
    bool all = true;
    for (const bounds &b : TARGETS) all &= print_targets(b, results);
    return all ? 0 : 3;
}
