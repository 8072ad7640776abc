// eval.cpp - task scores on real checkpoints: float, dynamic and static INT8 against labelled rows and against the answers that Hugging Face's float32 gave.
//
//     build/eval [--models DIR] [--shared DIR] [CHECKPOINT...]
//
// DIR default to SQ_MODELS and SQ_SHARED: checkpoint folders, and data/tasks with data/calibrate.txt. One table on standard output: score, and share of rows whose
// answer is not the recorded one (cosines: further than 0.02 from it). Scores are those of shared/peers/tasks.py: accuracy; for questions F1 and exact match, over
// question and context cut to 512 tokens; Spearman's rank correlation for similarity, of texts without e5's prefixes, as the reference has them. Exit code 1 if
// float differs from a recorded answer whose margin exceeds 1e-3, or an INT8 score is more than 1 point from float's. Takes minutes, and is no part of `make test`.
#include <unistd.h>

#include <map>
#include <set>

#include "models.h"
#include "scratch.h"
#include "texts.h"

namespace {

enum class kind { classify, answer, similarity };

struct task {
    const char *checkpoint, *rows;
    kind what;
};

const task TASKS[] = {
    {"bert-nli", "nli_xnli_en", kind::classify}, {"bert-nli", "nli_sick", kind::classify},      {"bert-nli", "nli_cad", kind::classify},
    {"distilbert-sst2", "sst2", kind::classify}, {"bert-squad", "qa_squad", kind::answer},      {"bert-squad", "qa_xquad_en", kind::answer},
    {"minilm", "stsb", kind::similarity},        {"e5", "stsb", kind::similarity},              {"xlmr-nli", "nli_xnli_en", kind::classify},
    {"xlmr-nli", "nli_xnli_hr", kind::classify}, {"xlmr-nli", "nli_xnli_ur", kind::classify},   {"xlmr-nli", "nli_xnli_sw", kind::classify},
    {"xlmr-nli", "nli_xnli_my", kind::classify},
};

constexpr double MARGIN = 1e-3, COSINE_DIFFERS = 0.02, POINTS = 1;
constexpr uint32_t MAX_TOKENS = 512, MAX_ANSWER = 30;

std::string models_folder, shared_folder;

// ---- rows ----

struct item {
    std::string a, b;
    bool has_b = false;
    double label = 0;               // class, or similarity
    std::vector<std::string> right; // answers that annotators gave
    std::string recorded;           // class or answer of the float32 reference
    double recorded_value = 0;      // cosine
    double margin = 0;              // classes: first logit less second, recorded
};

std::vector<std::string> lines_of(const std::string &path) {
    std::vector<std::string> lines;
    std::ifstream in(path);
    CHECK(in.good());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::vector<item> read_tsv(const std::string &path) {
    std::vector<item> items;
    const std::vector<std::string> lines = lines_of(path);
    for (size_t i = 1; i < lines.size(); i++) {
        item x;
        std::stringstream fields(lines[i]);
        std::string label;
        std::getline(fields, label, '\t');
        std::getline(fields, x.a, '\t');
        x.has_b = static_cast<bool>(std::getline(fields, x.b, '\t'));
        x.label = strtod(label.c_str(), nullptr);
        items.push_back(x);
    }
    return items;
}

std::vector<item> read_squad(const std::string &path) {
    std::vector<item> items;
    std::ifstream in(path);
    std::stringstream bytes;
    bytes << in.rdbuf();
    const std::string text = bytes.str();
    sq::json::value root;
    std::string error;
    if (!CHECK(sq::json::parse(text.data(), text.size(), &root, &error))) return items;
    for (const sq::json::value &article : root.find("data")->items)
        for (const sq::json::value &paragraph : article.find("paragraphs")->items)
            for (const sq::json::value &question : paragraph.find("qas")->items) {
                item x;
                x.a = question.find("question")->text;
                x.b = paragraph.find("context")->text;
                x.has_b = true;
                for (const sq::json::value &answer : question.find("answers")->items) x.right.push_back(answer.find("text")->text);
                items.push_back(x);
            }
    return items;
}

void add_recorded(const std::string &line, item *x) {
    sq::json::value v;
    std::string error;
    if (!CHECK(sq::json::parse(line.data(), line.size(), &v, &error))) return;
    if (const sq::json::value *logits = v.find("logits")) {
        std::vector<float> l;
        append_floats(*logits, &l);
        x->recorded = std::to_string(std::max_element(l.begin(), l.end()) - l.begin());
        std::sort(l.rbegin(), l.rend());
        x->margin = l[0] - l[1];
    }
    if (const sq::json::value *cosine_value = v.find("cosine")) x->recorded_value = cosine_value->number;
    if (const sq::json::value *answer = v.find("answer")) x->recorded = answer->text;
}

std::vector<item> read_items(const task &t) {
    const std::string folder = shared_folder + "/data/tasks/";
    std::vector<item> items = t.what == kind::answer ? read_squad(folder + t.rows + ".json") : read_tsv(folder + t.rows + ".tsv");
    const std::vector<std::string> recorded = lines_of(folder + "reference/" + t.checkpoint + "-" + t.rows + ".jsonl");
    if (!CHECK_EQ(recorded.size(), items.size())) return {};
    for (size_t i = 0; i < items.size(); i++) add_recorded(recorded[i], &items[i]);
    return items;
}

// ---- answers ----

struct result_row {
    std::string answer;
    double value = 0;  // cosine
    double margin = 0; // questions: best score less that of the best other answer
};

bool is_ok(sq_ctx *c, int32_t status) {
    if (CHECK_EQ(status, SQ_OK)) return true;
    fprintf(stderr, "  %s\n", sq_ctx_error(c));
    return false;
}

std::vector<result_row> classify(sq_ctx *c, const std::vector<item> &items, uint32_t n_labels) {
    text_list list;
    for (const item &x : items) list.add(x.a, x.b);
    const sq_texts texts = list.texts(items[0].has_b);
    sq_classify_params p{};
    p.size = sizeof p;
    p.max_len = MAX_TOKENS;
    p.truncate = 1;
    std::vector<float> scores(items.size() * n_labels);
    size_t n = 0;
    if (!is_ok(c, sq_classify(c, &texts, &p, scores.data(), nullptr, scores.size(), &n))) return {};
    std::vector<result_row> rows(items.size());
    for (size_t i = 0; i < rows.size(); i++) {
        const float *row = &scores[i * n_labels];
        rows[i].answer = std::to_string(std::max_element(row, row + n_labels) - row);
    }
    return rows;
}

std::vector<result_row> similarities(sq_ctx *c, const std::vector<item> &items, uint32_t width) {
    text_list list;
    for (const item &x : items) list.add(x.a);
    for (const item &x : items) list.add(x.b);
    const sq_texts texts = list.texts(false);
    sq_embed_params p{};
    p.size = sizeof p;
    p.truncate = 1;
    std::vector<float> vectors(2 * items.size() * width);
    size_t n = 0;
    if (!is_ok(c, sq_embed(c, &texts, &p, vectors.data(), vectors.size(), &n))) return {};
    std::vector<result_row> rows(items.size());
    for (size_t i = 0; i < rows.size(); i++) rows[i].value = cosine(&vectors[i * width], &vectors[(items.size() + i) * width], width);
    return rows;
}

// The best of all spans of at most MAX_ANSWER tokens of the context; logits [tokens][2].
result_row best_span(const std::string &context, const std::vector<float> &logits, const std::vector<uint32_t> &spans, const std::vector<int32_t> &sources) {
    std::map<std::pair<uint32_t, uint32_t>, float> scores; // by bytes
    for (size_t i = 0; i < sources.size(); i++)
        for (size_t j = i; sources[i] == 1 && j < std::min(sources.size(), i + MAX_ANSWER) && sources[j] == 1; j++) {
            const float score = logits[2 * i] + logits[2 * j + 1];
            const auto at = scores.emplace(std::make_pair(spans[2 * i], spans[2 * j + 1]), score).first;
            at->second = std::max(at->second, score);
        }
    result_row row;
    float best = -HUGE_VALF, second = -HUGE_VALF;
    for (const auto &s : scores) {
        second = std::max(second, std::min(best, s.second));
        if (s.second <= best) continue;
        best = s.second;
        row.answer = context.substr(s.first.first, s.first.second - s.first.first);
    }
    row.margin = best - second;
    return row;
}

std::vector<result_row> answers(const sq_model *m, sq_ctx *c, const std::vector<item> &items) {
    sq_tokenize_params p{};
    p.size = sizeof p;
    p.max_len = MAX_TOKENS;
    p.truncate = 1;
    std::vector<result_row> rows;
    for (const item &x : items) {
        std::vector<int32_t> ids(MAX_TOKENS), types(MAX_TOKENS), sources(MAX_TOKENS);
        std::vector<uint32_t> spans(2 * MAX_TOKENS);
        size_t n = 0;
        if (!CHECK_EQ(sq_tokenize(m, x.a.data(), x.a.size(), x.b.data(), x.b.size(), &p, ids.data(), types.data(), spans.data(), sources.data(), MAX_TOKENS, &n), SQ_OK))
            return {};
        sources.resize(n);
        const uint32_t starts[] = {0, static_cast<uint32_t>(n)};
        const sq_batch batch{sizeof batch, 1, ids.data(), types.data(), starts};
        std::vector<float> logits(2 * n);
        if (!is_ok(c, sq_forward(c, &batch, SQ_LOGITS, logits.data(), logits.size(), &n))) return {};
        rows.push_back(best_span(x.b, logits, spans, sources));
    }
    return rows;
}

// ---- scores ----

// As shared/peers/tasks.py: lower case, without ASCII punctuation and articles.
std::vector<std::string> words_of(const std::string &text) {
    std::string plain;
    for (const char ch : text)
        if (!ispunct(static_cast<unsigned char>(ch))) plain += static_cast<char>(tolower(static_cast<unsigned char>(ch)));
    std::vector<std::string> words;
    std::stringstream in(plain);
    for (std::string word; in >> word;)
        if (word != "a" && word != "an" && word != "the") words.push_back(word);
    return words;
}

double f1(const std::vector<std::string> &given, const std::vector<std::string> &right) {
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
std::vector<double> ranks(const std::vector<double> &x) {
    std::vector<size_t> order(x.size());
    for (size_t i = 0; i < x.size(); i++) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return x[i] < x[j]; });
    std::vector<double> r(x.size());
    for (size_t i = 0, past; i < x.size(); i = past) {
        for (past = i; past < x.size() && x[order[past]] == x[order[i]];) past++;
        for (size_t j = i; j < past; j++) r[order[j]] = static_cast<double>(i + past + 1) / 2;
    }
    return r;
}

double spearman(const std::vector<double> &x, const std::vector<double> &y) {
    const std::vector<double> a = ranks(x), b = ranks(y);
    const double mean = static_cast<double>(x.size() + 1) / 2;
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); i++) ab += (a[i] - mean) * (b[i] - mean), aa += (a[i] - mean) * (a[i] - mean), bb += (b[i] - mean) * (b[i] - mean);
    return ab / sqrt(aa * bb);
}

struct scores {
    double score = 0, exact = 0, differing = 0; // percent; exact: questions only
};

scores score_rows(kind what, const std::vector<item> &items, const std::vector<result_row> &rows, bool is_float) {
    scores s;
    std::vector<double> labels, values;
    for (size_t i = 0; i < rows.size(); i++) {
        const item &x = items[i];
        const result_row &r = rows[i];
        const bool differs = what == kind::similarity ? fabs(r.value - x.recorded_value) > COSINE_DIFFERS : r.answer != x.recorded;
        s.differing += differs;
        labels.push_back(x.label);
        values.push_back(r.value);
        if (what == kind::classify) s.score += std::stod(r.answer) == x.label;
        double best = 0, exact = 0;
        for (const std::string &right : x.right) {
            best = std::max(best, f1(words_of(r.answer), words_of(right)));
            exact = std::max(exact, words_of(r.answer) == words_of(right) ? 1.0 : 0.0);
        }
        if (what == kind::answer) s.score += best, s.exact += exact;
        if (!is_float) continue;
        if (what == kind::similarity) CHECK_NEAR(r.value, x.recorded_value, MARGIN);
        else if ((what == kind::answer ? r.margin : x.margin) > MARGIN) CHECK_EQ(r.answer, x.recorded);
    }
    const double n = static_cast<double>(rows.size());
    s.score = what == kind::similarity ? 100 * spearman(labels, values) : 100 * s.score / n;
    s.exact *= 100 / n;
    s.differing *= 100 / n;
    return s;
}

// ---- checkpoints ----

// Scores of one checkpoint's tasks in one mode, in the order of TASKS.
bool evaluate(const std::string &checkpoint, sq::quant_mode mode, const std::map<const task *, std::vector<item>> &items, std::map<const task *, scores> *out) {
    const scratch folder;
    sq::convert_options o;
    o.checkpoint = models_folder + "/" + checkpoint;
    o.output = folder.path + "/model.sq";
    o.mode = mode;
    o.calibration_file = shared_folder + "/data/calibrate.txt";
    sq::convert_result converted_as;
    sq::message why{};
    if (!CHECK_EQ(sq::convert(o, &converted_as, &why), SQ_OK)) {
        fprintf(stderr, "  %s: %s\n", checkpoint.c_str(), why.text);
        return false;
    }
    sq_model *loaded = nullptr;
    if (!CHECK_EQ(sq_model_load(o.output.c_str(), nullptr, &loaded, why.text, sizeof why.text), SQ_OK)) return false;
    const model_handle m(loaded);
    const ctx_handle c = context(m, 0);
    sq_model_info info{};
    info.size = sizeof info;
    sq_model_get_info(m.get(), &info);
    for (const task &t : TASKS) {
        if (t.checkpoint != checkpoint) continue;
        const std::vector<item> &rows = items.at(&t);
        const std::vector<result_row> got = t.what == kind::classify     ? classify(c.get(), rows, info.n_labels)
                                            : t.what == kind::similarity ? similarities(c.get(), rows, info.embed_width)
                                                                         : answers(m.get(), c.get(), rows);
        if (got.size() != rows.size()) return false;
        (*out)[&t] = score_rows(t.what, rows, got, mode == sq::quant_mode::none);
        fprintf(stderr, "%s %s %s: %.2f\n", checkpoint.c_str(), t.rows, mode_name(mode), (*out)[&t].score);
    }
    return true;
}

void print_line(const task &t, const char *measure, size_t n, const double (&score)[3], const scores *s) {
    printf("%-12s %-9s %-16s %5zu  %7.2f %7.2f %7.2f  %7.1f %7.1f %7.1f\n", t.rows, measure, t.checkpoint, n, score[0], score[1], score[2], s[0].differing,
           s[1].differing, s[2].differing);
}

void check_points(const task &t, const double (&score)[3]) {
    for (int i = 1; i < 3; i++)
        if (!CHECK_NEAR(score[i], score[0], POINTS)) fprintf(stderr, "  %s %s: %.2f, float %.2f\n", t.checkpoint, t.rows, score[i], score[0]);
}

void evaluate_checkpoint(const std::string &checkpoint, std::map<const task *, std::vector<scores>> *all, std::map<const task *, std::vector<item>> *items) {
    for (const task &t : TASKS)
        if (t.checkpoint == checkpoint) (*items)[&t] = read_items(t);
    for (sq::quant_mode mode : {sq::quant_mode::none, sq::quant_mode::dynamic_scales, sq::quant_mode::static_scales}) {
        std::map<const task *, scores> in_mode;
        if (!evaluate(checkpoint, mode, *items, &in_mode)) return;
        for (const auto &s : in_mode) (*all)[s.first].push_back(s.second);
    }
}

// Takes the options off; what remains are names of checkpoints.
std::set<std::string> read_arguments(int argc, char **argv) {
    std::set<std::string> names;
    for (int i = 1; i < argc; i++) {
        const std::string argument = argv[i];
        if (argument == "--models" && i + 1 < argc) models_folder = argv[++i];
        else if (argument == "--shared" && i + 1 < argc) shared_folder = argv[++i];
        else names.insert(argument);
    }
    if (!names.empty()) return names;
    for (const task &t : TASKS) names.insert(t.checkpoint);
    return names;
}

} // namespace

int main(int argc, char **argv) {
    models_folder = getenv("SQ_MODELS") ? getenv("SQ_MODELS") : "";
    shared_folder = getenv("SQ_SHARED") ? getenv("SQ_SHARED") : "../shared";
    const std::set<std::string> names = read_arguments(argc, argv);
    if (models_folder.empty()) {
        fprintf(stderr, "usage: eval [--models DIR] [--shared DIR] [CHECKPOINT...]; DIR default to SQ_MODELS and SQ_SHARED\n");
        return 2;
    }
    std::map<const task *, std::vector<scores>> all;
    std::map<const task *, std::vector<item>> items;
    for (const std::string &checkpoint : names) evaluate_checkpoint(checkpoint, &all, &items);
    printf("%-12s %-9s %-16s %5s  %7s %7s %7s  rows that differ, %%: the same order\n", "task", "score", "checkpoint", "rows", "float", "dynamic", "static");
    for (const task &t : TASKS) {
        if (!names.count(t.checkpoint) || !CHECK_EQ(all[&t].size(), 3)) continue;
        const scores *s = all[&t].data();
        const double score[] = {s[0].score, s[1].score, s[2].score}, exact[] = {s[0].exact, s[1].exact, s[2].exact};
        print_line(t, t.what == kind::classify ? "accuracy" : t.what == kind::answer ? "F1" : "Spearman", items[&t].size(), score, s);
        check_points(t, score);
        if (t.what != kind::answer) continue;
        print_line(t, "exact", items[&t].size(), exact, s);
        check_points(t, exact);
    }
    return check_summary("eval");
}
