// test-tasks.cpp - heads and tasks: classify, rerank, answer, tag, embed against Hugging Face on the tiny checkpoints of tests/golden, and what the API promises
// around them: scores, limits, buffers, wrong tasks, batch mates, values that are not numbers.
//
// Expected values are those of NAME/expected.jsonl (tests/make-golden.py says what each is). The float models must reach them to 1e-4.
#include <fenv.h>
#include <float.h>

#include <filesystem>

#include "models.h"
#include "texts.h"

namespace {

constexpr double BOUND = 1e-4;
const std::string GOLDEN = "tests/golden/";

template <class params> params sized() {
    params p{};
    p.size = sizeof p;
    return p;
}

// One checkpoint in one mode, with a context.
struct opened {
    model_handle m;
    ctx_handle c;
    sq_model_info info{};

    explicit opened(const std::string &checkpoint, sq::quant_mode mode = sq::quant_mode::none, const std::string &calibration = "")
        : opened(load(converted(GOLDEN + checkpoint, mode, calibration)), 2) {}
    opened(model_handle loaded, uint32_t n_threads) : m(std::move(loaded)) {
        if (!m) exit(1);
        c = context(m, n_threads);
        info.size = sizeof info;
        sq_model_get_info(m.get(), &info);
    }
    sq_ctx *ctx() const { return c.get(); }
    bool says(const std::string &part) const {
        if (std::string(sq_ctx_error(ctx())).find(part) != std::string::npos) return true;
        fprintf(stderr, "  '%s' lacks '%s'\n", sq_ctx_error(ctx()), part.c_str());
        return false;
    }
};

std::vector<sq::json::value> read_rows(const std::string &checkpoint) {
    std::vector<sq::json::value> rows;
    std::ifstream in(GOLDEN + checkpoint + "/expected.jsonl");
    std::string line, error;
    std::getline(in, line); // says where the values come from
    while (std::getline(in, line)) {
        rows.emplace_back();
        CHECK(sq::json::parse(line.data(), line.size(), &rows.back(), &error));
    }
    CHECK(!rows.empty());
    return rows;
}

std::vector<float> floats_of(const sq::json::value &row, const char *key) {
    std::vector<float> out;
    if (const sq::json::value *v = row.find(key)) append_floats(*v, &out);
    return out;
}

bool near(const std::vector<float> &got, const std::vector<float> &expected, double bound) {
    if (!CHECK_EQ(got.size(), expected.size())) return false;
    bool ok = true;
    for (size_t i = 0; i < got.size(); i++) ok &= CHECK_NEAR(got[i], expected[i], bound) != 0;
    return ok;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) { return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0; }

// ---- the encoder and its head against the reference ----

void test_reference(const std::string &checkpoint) {
    const opened o(checkpoint);
    for (const golden_row &r : read_golden(GOLDEN + checkpoint + "/expected.jsonl")) {
        std::vector<int32_t> ids(512), types(512);
        size_t n = 0;
        const sq_tokenize_params p{sizeof p, UINT32_MAX, 0, 0};
        CHECK_EQ(sq_tokenize(o.m.get(), r.a.data(), r.a.size(), r.has_b ? r.b.data() : nullptr, r.b.size(), &p, ids.data(), types.data(), nullptr, nullptr, 512, &n), SQ_OK);
        ids.resize(n);
        types.resize(n);
        CHECK(ids == r.ids);
        if (o.info.n_types > 1) CHECK(types == r.types);
        batch_builder b;
        b.add(r);
        if (!r.hidden.empty()) near(run(o.c, b, SQ_HIDDEN, o.info.width), r.hidden.back(), 2e-5 * largest(r.hidden.back()));
        if (r.logits.empty()) continue;
        std::vector<float> logits(r.logits.size());
        const sq_batch batch = b.batch();
        CHECK_EQ(sq_forward(o.ctx(), &batch, SQ_LOGITS, logits.data(), logits.size(), &n), SQ_OK);
        CHECK_EQ(n, logits.size());
        near(logits, r.logits, BOUND);
    }
}

// ---- classify ----

struct classified {
    std::vector<float> scores, logits;
};

classified classify(const opened &o, const text_list &list, bool pairs, const sq_classify_params *p = nullptr) {
    const sq_texts t = list.texts(pairs);
    classified out;
    out.scores.resize(t.n_texts * o.info.n_labels);
    out.logits.resize(out.scores.size());
    size_t n = 0;
    if (!CHECK_EQ(sq_classify(o.ctx(), &t, p, out.scores.data(), out.logits.data(), out.scores.size(), &n), SQ_OK)) fprintf(stderr, "  %s\n", sq_ctx_error(o.ctx()));
    CHECK_EQ(n, out.scores.size());
    return out;
}

// Scores from the reference's logits, in double.
std::vector<float> expected_scores(const std::vector<float> &logits, bool sigmoids) {
    std::vector<float> out;
    double sum = 0;
    for (float x : logits) sum += exp(static_cast<double>(x));
    for (float x : logits) out.push_back(static_cast<float>(sigmoids ? 1 / (1 + exp(-static_cast<double>(x))) : exp(static_cast<double>(x)) / sum));
    return out;
}

void test_classify(const std::string &checkpoint, bool sigmoids) {
    const opened o(checkpoint);
    CHECK_EQ(o.info.head, SQ_HEAD_CLASSIFY);
    for (const golden_row &r : read_golden(GOLDEN + checkpoint + "/expected.jsonl")) {
        text_list list;
        list.add(r.a, r.b);
        const classified got = classify(o, list, r.has_b);
        near(got.logits, r.logits, BOUND);
        near(got.scores, expected_scores(r.logits, sigmoids), BOUND);
        double sum = 0;
        for (float s : got.scores) sum += s;
        if (!sigmoids) CHECK_NEAR(sum, 1, 1e-6);
    }
}

void test_labels() {
    const opened multi("distilbert-multi"), classifier("bert-classify"), answers("bert-answer");
    CHECK_EQ(multi.info.multi_label, 1);
    CHECK_EQ(classifier.info.multi_label, 0);
    size_t n = 0;
    CHECK_EQ(sq_model_label(multi.m.get(), 2, &n), "\xC3\xA9motion");
    CHECK_EQ(n, 8);
    CHECK_EQ(sq_model_label(classifier.m.get(), 2, &n), "contradiction");
    CHECK_EQ(sq_model_label(classifier.m.get(), 2, nullptr), "contradiction");
    CHECK(sq_model_label(classifier.m.get(), 3, &n) == nullptr);
    CHECK(sq_model_label(answers.m.get(), 0, &n) == nullptr);
}

// All of the file's single texts (or pairs) as a list.
text_list all_texts(const std::string &checkpoint, bool pairs) {
    text_list list;
    for (const golden_row &r : read_golden(GOLDEN + checkpoint + "/expected.jsonl"))
        if (r.has_b == pairs) list.add(r.a, r.b);
    return list;
}

text_list one(const text_list &list, size_t i) {
    text_list out;
    out.add(list.a.substr(list.a_starts[i], list.a_starts[i + 1] - list.a_starts[i]), list.b.substr(list.b_starts[i], list.b_starts[i + 1] - list.b_starts[i]));
    return out;
}

// The same bits alone and among others, in contexts that hold many texts, two, or hardly one.
void test_batch_mates(const std::string &checkpoint, sq::quant_mode mode, bool pairs) {
    const std::string bytes = converted(GOLDEN + checkpoint, mode);
    const text_list list = all_texts(checkpoint, pairs);
    const opened o(load(bytes), 1);
    std::vector<float> expected;
    for (size_t i = 0; i + 1 < list.a_starts.size(); i++) {
        const classified got = classify(o, one(list, i), pairs);
        expected.insert(expected.end(), got.logits.begin(), got.logits.end());
    }
    const sq_ctx_params kinds[] = {{sizeof(sq_ctx_params), 1, 0, 0, nullptr, 0, 0, nullptr},
                                   {sizeof(sq_ctx_params), 3, 0, 2, nullptr, 0, 0, nullptr},
                                   {sizeof(sq_ctx_params), 2, 64, 0, nullptr, 0, 0, nullptr}};
    for (const sq_ctx_params &p : kinds) {
        sq_ctx *raw = nullptr;
        CHECK_EQ(sq_ctx_create(o.m.get(), &p, &raw, nullptr, 0), SQ_OK);
        const ctx_handle c(raw);
        std::vector<float> logits(expected.size());
        size_t n = 0;
        const sq_texts t = list.texts(pairs);
        CHECK_EQ(sq_classify(raw, &t, nullptr, nullptr, logits.data(), logits.size(), &n), SQ_OK);
        CHECK(same_bits(logits, expected));
    }
}

// INT8 gives float's label wherever the reference's margin exceeds 0.2.
void test_int8(const std::string &checkpoint) {
    const std::vector<golden_row> rows = read_golden(GOLDEN + checkpoint + "/expected.jsonl");
    for (sq::quant_mode mode : {sq::quant_mode::static_scales, sq::quant_mode::dynamic_scales}) {
        const opened o(checkpoint, mode);
        double furthest = 0;
        for (const golden_row &r : rows) {
            text_list list;
            list.add(r.a, r.b);
            const std::vector<float> logits = classify(o, list, r.has_b).logits;
            std::vector<float> sorted = r.logits;
            std::sort(sorted.rbegin(), sorted.rend());
            for (size_t i = 0; i < logits.size(); i++) furthest = std::max(furthest, fabs(static_cast<double>(logits[i]) - r.logits[i]));
            const auto top = [](const std::vector<float> &x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
            if (sorted.size() > 1 && sorted[0] - sorted[1] > 0.2) CHECK_EQ(top(logits), top(r.logits));
        }
        printf("%s %s: logits at most %.3f from float's\n", checkpoint.c_str(), mode_name(mode), furthest);
    }
}

// Bytes that are no UTF-8, NUL, and one output without the other.
void test_odd_texts() {
    const opened o("bert-classify");
    text_list list;
    list.add(std::string("\xFF\xFE\0 dog\xC3", 8));
    list.add("");
    list.add("   ");
    const classified got = classify(o, list, false);
    for (float x : got.logits) CHECK(fabsf(x) <= FLT_MAX);
    const sq_texts t = list.texts(false), none{sizeof none, 0, nullptr, nullptr, nullptr, nullptr};
    std::vector<float> some(9);
    size_t n = 0;
    CHECK_EQ(sq_classify(o.ctx(), &t, nullptr, some.data(), nullptr, 9, &n), SQ_OK);
    CHECK(same_bits(some, got.scores));
    CHECK_EQ(sq_classify(o.ctx(), &t, nullptr, nullptr, some.data(), 9, &n), SQ_OK);
    CHECK(same_bits(some, got.logits));
    CHECK_EQ(sq_classify(o.ctx(), &t, nullptr, nullptr, nullptr, 9, &n), SQ_E_ARG);
    CHECK_EQ(sq_classify(o.ctx(), &none, nullptr, nullptr, nullptr, 0, &n), SQ_OK);
    CHECK_EQ(n, 0);
}

// ---- what a model has not ----

int32_t call_task(const opened &o, const std::string &task, const std::string &text = "the sea") {
    text_list list;
    list.add(text);
    const sq_texts t = list.texts(false);
    float x[512];
    sq_answer_span span;
    sq_entity entities[8];
    size_t n = 0;
    if (task == "classify") return sq_classify(o.ctx(), &t, nullptr, x, nullptr, 512, &n);
    if (task == "rerank") return sq_rerank(o.ctx(), "a", 1, &t, nullptr, x, nullptr, 512, &n);
    if (task == "answer") return sq_answer(o.ctx(), "", 0, text.data(), text.size(), nullptr, &span, 1, &n);
    if (task == "tag") return sq_tag(o.ctx(), &t, nullptr, entities, 8, &n);
    return sq_embed(o.ctx(), &t, nullptr, x, 512, &n);
}

void test_wrong_tasks() {
    static const struct {
        const char *checkpoint, *has, *right[2];
    } MODELS[] = {{"bert-64", "sq_embed", {"", ""}},
                  {"bert-classify", "sq_classify", {"classify", ""}},
                  {"bert-score", "sq_classify", {"classify", "rerank"}},
                  {"bert-answer", "sq_answer", {"answer", ""}},
                  {"bert-tag", "sq_tag", {"tag", ""}}};
    for (const auto &m : MODELS) {
        const opened o(m.checkpoint);
        for (const std::string task : {"classify", "rerank", "answer", "tag"}) {
            const bool right = task == m.right[0] || task == m.right[1];
            if (!CHECK_EQ(call_task(o, task), right ? SQ_OK : SQ_E_TASK)) fprintf(stderr, "  %s %s\n", m.checkpoint, task.c_str());
            if (!right) CHECK(o.says(m.has));
        }
        CHECK_EQ(call_task(o, "embed"), SQ_OK);
    }
    const opened o("bert-64"), three("bert-classify");
    batch_builder b;
    b.add(read_golden(GOLDEN + "bert-64/expected.jsonl")[0]);
    const sq_batch batch = b.batch();
    float x[512];
    size_t n = 0;
    CHECK_EQ(sq_forward(o.ctx(), &batch, SQ_LOGITS, x, 512, &n), SQ_E_TASK);
    CHECK_EQ(call_task(three, "rerank"), SQ_E_TASK);
    CHECK(three.says("3 labels"));
}

// ---- limits and buffers ----

std::string repeated(const std::string &word, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; i++) out += (i ? " " : "") + word;
    return out;
}

// Over the model's 64 tokens: the length is named; cut, the answer is that of the 64 tokens that the tokenizer keeps.
void test_limits() {
    const opened o("bert-classify");
    text_list list;
    list.add("the sea", "");
    list.add(repeated("dog", 50), repeated("cat", 30));
    const sq_texts t = list.texts(true);
    float scores[6];
    size_t n = 0;
    CHECK_EQ(sq_classify(o.ctx(), &t, nullptr, scores, nullptr, 6, &n), SQ_E_LIMIT);
    CHECK(o.says("text 1"));
    CHECK(o.says("83"));
    CHECK(o.says("64"));
    for (uint32_t max_len : {64u, 20u, 0u, UINT32_MAX}) {
        const sq_classify_params p{sizeof p, max_len, 1, 0};
        const sq_tokenize_params tokens{sizeof tokens, max_len == 20 ? 20u : 64u, 1, 0};
        golden_row r;
        r.ids.resize(64);
        r.types.resize(64);
        const std::string a = repeated("dog", 50), b = repeated("cat", 30);
        CHECK_EQ(sq_tokenize(o.m.get(), a.data(), a.size(), b.data(), b.size(), &tokens, r.ids.data(), r.types.data(), nullptr, nullptr, 64, &n), SQ_OK);
        r.ids.resize(n);
        r.types.resize(n);
        batch_builder batch;
        batch.add(r);
        const std::vector<float> logits = classify(o, list, true, &p).logits;
        CHECK(same_bits({logits.begin() + 3, logits.end()}, run(o.c, batch, SQ_LOGITS, 3)));
    }
    const sq_classify_params uncut{sizeof uncut, UINT32_MAX, 0, 0};
    CHECK_EQ(sq_classify(o.ctx(), &t, &uncut, scores, nullptr, 6, &n), SQ_E_LIMIT);
    const opened tagger("bert-tag"), encoder("bert-64");
    sq_entity entities[4];
    const sq_texts single = list.texts(false);
    const std::string many = repeated("sea", 70);
    const size_t starts[] = {0, many.size()};
    const sq_texts long_one{sizeof long_one, 1, many.data(), starts, nullptr, nullptr};
    CHECK_EQ(sq_tag(tagger.ctx(), &long_one, nullptr, entities, 4, &n), SQ_E_LIMIT);
    CHECK(tagger.says("72"));
    CHECK_EQ(sq_tag(tagger.ctx(), &t, nullptr, entities, 4, &n), SQ_E_ARG);
    CHECK_EQ(sq_embed(encoder.ctx(), &long_one, nullptr, nullptr, 0, &n), SQ_E_SPACE);
    CHECK_EQ(n, 64);
    std::vector<float> v(64);
    CHECK_EQ(sq_embed(encoder.ctx(), &long_one, nullptr, v.data(), 64, &n), SQ_E_LIMIT);
    CHECK(encoder.says("72"));
    CHECK_EQ(sq_embed(encoder.ctx(), &single, nullptr, v.data(), 64, &n), SQ_E_SPACE);
    CHECK_EQ(n, 128);
}

void test_space() {
    const opened o("bert-classify"), scorer("bert-score"), tagger("bert-tag");
    text_list list;
    list.add("the dog sleeps");
    list.add("she had read a great book");
    const sq_texts t = list.texts(false);
    float x[6];
    size_t n = 0;
    for (size_t cap = 0; cap < 6; cap++) {
        n = 99;
        CHECK_EQ(sq_classify(o.ctx(), &t, nullptr, cap ? x : nullptr, nullptr, cap, &n), SQ_E_SPACE);
        CHECK_EQ(n, 6);
    }
    CHECK_EQ(sq_rerank(scorer.ctx(), "sea", 3, &t, nullptr, x, nullptr, 1, &n), SQ_E_SPACE);
    CHECK_EQ(n, 2);
    sq_tag_params p = sized<sq_tag_params>();
    p.mode = SQ_TAG_WORDS;
    CHECK_EQ(sq_tag(tagger.ctx(), &t, &p, nullptr, 0, &n), SQ_E_SPACE);
    CHECK_EQ(n, 9);
    std::vector<sq_entity> words(9);
    CHECK_EQ(sq_tag(tagger.ctx(), &t, &p, words.data(), 8, &n), SQ_E_SPACE);
    CHECK_EQ(n, 9);
    CHECK_EQ(sq_tag(tagger.ctx(), &t, &p, words.data(), 9, &n), SQ_OK);
    CHECK_EQ(words[8].text, 1);
    CHECK_EQ(words[8].end, 25);
}

// ---- rerank ----

void test_rerank() {
    const opened o("bert-score");
    text_list list;
    std::vector<float> expected;
    for (const golden_row &r : read_golden(GOLDEN + "bert-score/expected.jsonl"))
        if (r.a == "the sea") list.add(r.b), expected.push_back(r.logits[0]);
    const size_t n_different = expected.size();
    for (size_t i : {size_t{2}, size_t{0}, size_t{2}}) list.add(one(list, i).a), expected.push_back(expected[i]);
    const sq_texts t = list.texts(false);
    std::vector<float> scores(expected.size());
    std::vector<uint32_t> order(expected.size());
    size_t n = 0;
    CHECK_EQ(sq_rerank(o.ctx(), "the sea", 7, &t, nullptr, scores.data(), order.data(), scores.size(), &n), SQ_OK);
    CHECK_EQ(n, scores.size());
    near(scores, expected, BOUND);
    CHECK(same_bits({scores.begin() + static_cast<ptrdiff_t>(n_different), scores.end()}, {scores[2], scores[0], scores[2]}));
    std::vector<bool> seen(n);
    for (size_t i = 0; i < n; i++) {
        seen[order[i]] = true;
        if (i == 0) continue;
        const float before = scores[order[i - 1]], now = scores[order[i]];
        CHECK(before > now || (before == now && order[i - 1] < order[i]));
    }
    CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
    const sq_texts pairs = list.texts(true), none{sizeof none, 0, nullptr, nullptr, nullptr, nullptr};
    CHECK_EQ(sq_rerank(o.ctx(), "the sea", 7, &pairs, nullptr, scores.data(), nullptr, scores.size(), &n), SQ_E_ARG);
    CHECK_EQ(sq_rerank(o.ctx(), "the sea", 7, &none, nullptr, nullptr, nullptr, 0, &n), SQ_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(sq_rerank(o.ctx(), nullptr, 0, &t, nullptr, scores.data(), nullptr, scores.size(), &n), SQ_OK);
    CHECK_EQ(sq_rerank(o.ctx(), nullptr, 1, &t, nullptr, scores.data(), nullptr, scores.size(), &n), SQ_E_ARG);
}

// ---- answer ----

struct answered {
    int32_t status;
    std::vector<sq_answer_span> spans;
};

answered ask(const opened &o, const std::string &question, const std::string &context_text, const sq_answer_params &p) {
    answered out{0, std::vector<sq_answer_span>(25)};
    size_t n = 0;
    out.status = sq_answer(o.ctx(), question.data(), question.size(), context_text.data(), context_text.size(), &p, out.spans.data(), out.spans.size(), &n);
    out.spans.resize(out.status == SQ_OK ? n : 0);
    return out;
}

uint32_t number_of(const sq::json::value &row, const char *key) { return static_cast<uint32_t>(row.find(key)->integer); }

// Spans in order; neighbours whose expected scores differ by less than twice the bound may change places.
void check_spans(const std::vector<sq_answer_span> &got, const std::vector<sq::json::value> &expected) {
    if (!CHECK_EQ(got.size(), expected.size())) return;
    const auto score = [&](size_t i) { return expected[i].items[2].number; };
    for (size_t i = 0; i < got.size(); i++) {
        CHECK_NEAR(got[i].score, score(i), BOUND);
        CHECK_NEAR(got[i].probability, expected[i].items[3].number, BOUND);
        if ((i > 0 && score(i - 1) - score(i) < 2 * BOUND) || (i + 1 < got.size() && score(i) - score(i + 1) < 2 * BOUND)) continue;
        CHECK_EQ(got[i].start, expected[i].items[0].integer);
        CHECK_EQ(got[i].end, expected[i].items[1].integer);
    }
}

// With "no answer" competing: it is there, and the others are as before but for the last, whose place it may have.
void check_null(const opened &o, const sq::json::value &row, sq_answer_params p, const std::vector<sq_answer_span> &without) {
    const sq::json::value *null = row.find("null");
    p.allow_null = 1;
    const answered got = ask(o, row.find("a")->text, row.find("b")->text, p);
    CHECK_EQ(got.status, SQ_OK);
    if (!null) {
        CHECK(got.spans.empty());
        return;
    }
    CHECK_EQ(got.spans.size(), std::min<size_t>(20, without.size() + 1));
    size_t n_null = 0, next = 0;
    for (const sq_answer_span &s : got.spans) {
        if (s.end == 0) {
            n_null++;
            CHECK_NEAR(s.score, null->items[0].number, BOUND);
            CHECK_NEAR(s.probability, null->items[1].number, BOUND);
        } else {
            CHECK_EQ(s.start, without[next].start);
            CHECK(memcmp(&s.score, &without[next].score, sizeof s.score) == 0);
            CHECK_NEAR(s.probability, without[next].probability * (1 - null->items[1].number), BOUND);
            next++;
        }
    }
    CHECK_EQ(n_null, 1);
    CHECK_EQ(got.spans[0].end == 0, null->items[0].number > without[0].score);
}

void test_answer() {
    const opened o("bert-answer");
    for (const sq::json::value &row : read_rows("bert-answer")) {
        sq_answer_params p = sized<sq_answer_params>();
        p.window = number_of(row, "window");
        p.stride = number_of(row, "stride");
        p.max_answer = number_of(row, "longest");
        sq_stats before = sized<sq_stats>(), after = sized<sq_stats>();
        sq_ctx_stats(o.ctx(), &before);
        const std::string &question = row.find("a")->text, &text = row.find("b")->text;
        const answered got = ask(o, question, text, p);
        if (!CHECK_EQ(got.status, SQ_OK)) fprintf(stderr, "  %s\n", sq_ctx_error(o.ctx()));
        sq_ctx_stats(o.ctx(), &after);
        size_t n_tokens = 0; // those of the windows that transformers makes
        for (const sq::json::value &length : row.find("lengths")->items) n_tokens += static_cast<size_t>(length.integer);
        CHECK_EQ(after.n_tokens - before.n_tokens, n_tokens);
        check_spans(got.spans, row.find("answers")->items);
        for (const sq_answer_span &s : got.spans) CHECK(s.start < s.end && s.end <= text.size() && (text[s.start] & 0xC0) != 0x80 && (text[s.end] & 0xC0) != 0x80);
        check_null(o, row, p, got.spans);
    }
}

// A long context gives the same bits in contexts that run one window at a time and many at once.
void test_answer_batches() {
    const std::string bytes = converted(GOLDEN + "bert-answer", sq::quant_mode::static_scales);
    const opened o(load(bytes), 1);
    const std::string text = repeated("caf\xC3\xA9 by the \xE5\xA4\xA7\xE5\xA5\xBD river,", 60);
    const sq_answer_params p = sized<sq_answer_params>();
    const answered expected = ask(o, "where?", text, p);
    CHECK_EQ(expected.spans.size(), 20);
    for (uint32_t max_tokens : {64u, 150u, 3000u}) {
        const ctx_handle c = context(o.m, 2, max_tokens);
        std::vector<sq_answer_span> spans(3);
        size_t n = 0;
        CHECK_EQ(sq_answer(c.get(), "where?", 6, text.data(), text.size(), &p, spans.data(), 3, &n), SQ_OK);
        CHECK_EQ(n, 20);
        for (size_t i = 0; i < 3; i++) CHECK(memcmp(&spans[i], &expected.spans[i], sizeof spans[i]) == 0);
        CHECK_EQ(sq_answer(c.get(), "where?", 6, text.data(), text.size(), nullptr, nullptr, 0, &n), SQ_OK);
        CHECK_EQ(n, 20);
    }
}

void test_answer_limits() {
    const opened o("bert-answer");
    sq_answer_params p = sized<sq_answer_params>();
    CHECK_EQ(ask(o, repeated("sea", 61), "the sea", p).status, SQ_E_LIMIT);
    CHECK(o.says("64"));
    CHECK_EQ(ask(o, repeated("sea", 60), "the sea", p).status, SQ_OK); // one token of context a window
    p.window = 10;
    CHECK_EQ(ask(o, repeated("sea", 7), "the sea", p).status, SQ_E_LIMIT);
    CHECK_EQ(ask(o, repeated("sea", 6), "the sea", p).status, SQ_OK);
    p.window = 20; // room for 15 tokens of context beside "which ?" and three special tokens
    p.stride = 15;
    CHECK_EQ(ask(o, "which?", repeated("sea", 40), p).status, SQ_E_LIMIT);
    CHECK(o.says("15"));
    p.stride = 14;
    CHECK_EQ(ask(o, "which?", repeated("sea", 40), p).status, SQ_OK);
    size_t n = 0;
    CHECK_EQ(sq_answer(o.ctx(), "a", 1, nullptr, 0, nullptr, nullptr, 0, &n), SQ_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(sq_answer(o.ctx(), "a", 1, nullptr, 1, nullptr, nullptr, 0, &n), SQ_E_ARG);
    CHECK_EQ(sq_answer(o.ctx(), nullptr, 0, "sea", 3, nullptr, nullptr, 0, &n), SQ_OK);
    CHECK_EQ(sq_answer(o.ctx(), "a", 1, "sea", 3, nullptr, nullptr, 1, &n), SQ_E_ARG);
}

// ---- tag ----

std::vector<sq_entity> tag(const opened &o, const text_list &list, uint32_t mode) {
    sq_tag_params p = sized<sq_tag_params>();
    p.mode = mode;
    p.truncate = 1;
    const sq_texts t = list.texts(false);
    std::vector<sq_entity> out(4096);
    size_t n = 0;
    if (!CHECK_EQ(sq_tag(o.ctx(), &t, &p, out.data(), out.size(), &n), SQ_OK)) fprintf(stderr, "  %s\n", sq_ctx_error(o.ctx()));
    out.resize(n);
    return out;
}

// expected: [label, start, end, score], and the number of words for entities, whose labels have lost "B-" and "I-".
void check_entity(const opened &o, const sq_entity &got, const sq::json::value &expected) {
    size_t n = 0;
    const std::string label = sq_model_label(o.m.get(), got.label, &n);
    const bool is_entity = expected.items.size() == 5;
    CHECK_EQ(is_entity && label != "O" ? label.substr(2) : label, expected.items[0].text);
    CHECK_EQ(got.start, expected.items[1].integer);
    CHECK_EQ(got.end, expected.items[2].integer);
    CHECK_NEAR(got.score, expected.items[3].number, BOUND);
    CHECK_EQ(got.n_words, is_entity ? expected.items[4].integer : 1);
}

void test_tag() {
    const opened o("bert-tag");
    const std::vector<sq::json::value> rows = read_rows("bert-tag");
    text_list list;
    for (const sq::json::value &row : rows) list.add(row.find("a")->text);
    for (const char *key : {"entities", "words"}) {
        const std::vector<sq_entity> all = tag(o, list, strcmp(key, "words") == 0 ? SQ_TAG_WORDS : 0);
        size_t next = 0;
        for (size_t i = 0; i < rows.size(); i++)
            for (const sq::json::value &expected : rows[i].find(key)->items) {
                if (!CHECK(next < all.size())) return;
                CHECK_EQ(all[next].text, i);
                check_entity(o, all[next++], expected);
            }
        CHECK_EQ(next, all.size());
    }
}

void test_tag_batches() {
    const std::string bytes = converted(GOLDEN + "bert-tag", sq::quant_mode::dynamic_scales);
    const opened o(load(bytes), 2);
    const text_list list = all_texts("bert-tag", false);
    const std::vector<sq_entity> all = tag(o, list, SQ_TAG_WORDS);
    size_t next = 0;
    for (uint32_t i = 0; i + 1 < list.a_starts.size(); i++)
        for (sq_entity alone : tag(o, one(list, i), SQ_TAG_WORDS)) {
            alone.text = i;
            if (!CHECK(next < all.size())) return;
            CHECK(memcmp(&alone, &all[next++], offsetof(sq_entity, n_words)) == 0);
        }
    CHECK_EQ(next, all.size());
    sq_tag_params p = sized<sq_tag_params>();
    p.mode = SQ_TAG_WORDS + 1;
    const sq_texts t = list.texts(false);
    sq_entity e;
    size_t n = 0;
    CHECK_EQ(sq_tag(o.ctx(), &t, &p, &e, 1, &n), SQ_E_ARG);
}

// ---- embed ----

std::vector<float> embed(const opened &o, const text_list &list, bool pairs, const sq_embed_params *p, size_t width) {
    const sq_texts t = list.texts(pairs);
    std::vector<float> out(t.n_texts * width);
    size_t n = 0;
    if (!CHECK_EQ(sq_embed(o.ctx(), &t, p, out.data(), out.size(), &n), SQ_OK)) fprintf(stderr, "  %s\n", sq_ctx_error(o.ctx()));
    CHECK_EQ(n, out.size());
    return out;
}

std::vector<float> unit(std::vector<float> x) {
    double squares = 0;
    for (float v : x) squares += static_cast<double>(v) * v;
    for (float &v : x) v = static_cast<float>(v / sqrt(squares));
    return x;
}

void test_embed(const std::string &checkpoint, uint32_t pooling, uint32_t normalize, uint32_t width) {
    const opened o(checkpoint);
    CHECK_EQ(o.info.pooling, pooling);
    CHECK_EQ(o.info.normalize, normalize);
    CHECK_EQ(o.info.embed_width, width);
    for (const sq::json::value &row : read_rows(checkpoint)) {
        const sq::json::value *b = row.find("b");
        text_list list;
        list.add(row.find("a")->text, b->text);
        const std::vector<float> expected = floats_of(row, "vector");
        const double bound = BOUND * std::max(0.1f, largest(expected));
        near(embed(o, list, b->is_string(), nullptr, width), expected, bound);
        sq_embed_params p = sized<sq_embed_params>();
        p.normalize = SQ_NORMALIZE_YES;
        near(embed(o, list, b->is_string(), &p, width), unit(expected), BOUND);
        p.dimensions = 10;
        near(embed(o, list, b->is_string(), &p, 10), unit({expected.begin(), expected.begin() + 10}), BOUND);
        p.normalize = SQ_NORMALIZE_NO;
        p.pooling = pooling;
        if (!normalize) near(embed(o, list, b->is_string(), &p, 10), {expected.begin(), expected.begin() + 10}, bound);
    }
    sq_embed_params p = sized<sq_embed_params>();
    const text_list list = all_texts("bert-64", false);
    const sq_texts t = list.texts(false);
    float x[512];
    size_t n = 0;
    p.dimensions = width + 1;
    CHECK_EQ(sq_embed(o.ctx(), &t, &p, x, 512, &n), SQ_E_ARG);
    p.dimensions = 0;
    p.pooling = SQ_POOL_MAX + 1;
    CHECK_EQ(sq_embed(o.ctx(), &t, &p, x, 512, &n), SQ_E_ARG);
}

// Pooling as asked, against the reference's hidden states of an encoder that does not say.
void test_pooling() {
    const opened o("distilbert-64");
    CHECK_EQ(o.info.pooling, SQ_POOL_NONE);
    for (const golden_row &r : read_golden(GOLDEN + "distilbert-64/expected.jsonl")) {
        text_list list;
        list.add(r.a, r.b);
        const size_t D = o.info.width, n = r.ids.size();
        std::vector<float> max(r.hidden[0].begin(), r.hidden[0].begin() + static_cast<ptrdiff_t>(D)), cls = max, mean(D);
        for (size_t j = 0; j < D; j++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++) sum += r.hidden[0][i * D + j], max[j] = std::max(max[j], r.hidden[0][i * D + j]);
            mean[j] = static_cast<float>(sum / static_cast<double>(n));
        }
        const std::vector<float> *expected[] = {&mean, &mean, &cls, &max};
        for (uint32_t pooling = 0; pooling <= SQ_POOL_MAX; pooling++) {
            sq_embed_params p = sized<sq_embed_params>();
            p.pooling = pooling;
            near(embed(o, list, r.has_b, &p, D), *expected[pooling], 2e-5 * largest(r.hidden[0]));
        }
    }
}

// ---- numbers as vector stores take them: expected values by numpy 2 ----

// astype(float16) of the float32 of these bits.
const struct {
    uint32_t f32;
    uint16_t f16;
} HALVES[] = {
    {0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3f800000, 0x3c00}, {0xbf800000, 0xbc00}, {0x40490fdb, 0x4248}, {0x3eaaaaab, 0x3555}, {0x3f801000, 0x3c00},
    {0x3f803000, 0x3c02}, {0x3f801001, 0x3c01}, {0x3f800fff, 0x3c00}, {0xbf801000, 0xbc00}, {0xbf803000, 0xbc02}, {0x477fe000, 0x7bff}, {0x477fefff, 0x7bff},
    {0x477ff000, 0x7c00}, {0x477fffff, 0x7c00}, {0x47800000, 0x7c00}, {0x7f7fffff, 0x7c00}, {0xff7fffff, 0xfc00}, {0xc77ff000, 0xfc00}, {0xc77fefff, 0xfbff},
    {0x7f800000, 0x7c00}, {0xff800000, 0xfc00}, {0x38800000, 0x0400}, {0x387fffff, 0x0400}, {0x387fe000, 0x0400}, {0x387fc000, 0x03ff}, {0x387fa000, 0x03fe},
    {0x387f9fff, 0x03fe}, {0x387fa001, 0x03ff}, {0x38000000, 0x0200}, {0xb8000000, 0x8200}, {0x33800000, 0x0001}, {0x33000000, 0x0000}, {0x33000001, 0x0001},
    {0x32ffffff, 0x0000}, {0x33c00000, 0x0002}, {0x33bfffff, 0x0001}, {0x34200000, 0x0002}, {0x34600000, 0x0004}, {0xb3000001, 0x8001}, {0xb3000000, 0x8000},
    {0x38802000, 0x0401}, {0x38801000, 0x0400}, {0x38803000, 0x0402}, {0x00000001, 0x0000}, {0x80000001, 0x8000}, {0x007fffff, 0x0000}, {0x00800000, 0x0000},
    {0x3ffff000, 0x4000}, {0x3fffefff, 0x3fff}, {0x3fffffff, 0x4000}, {0x33400000, 0x0001}, {0x3dcccccd, 0x2e66}, {0xc2f6e979, 0xd7b7},
};

void check_halves() {
    for (const auto &h : HALVES) {
        float x;
        memcpy(&x, &h.f32, sizeof x);
        uint16_t got = 0;
        sq_to_f16(&x, 1, &got);
        if (!CHECK_EQ(got, h.f16)) fprintf(stderr, "  %08x\n", h.f32);
    }
    for (uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xffffffffu}) { // NaN stays NaN
        float x;
        memcpy(&x, &bits, sizeof x);
        uint16_t got = 0;
        sq_to_f16(&x, 1, &got);
        CHECK((got & 0x7C00) == 0x7C00 && (got & 0x03FF) != 0);
    }
}

// rint(v.astype(float64) * 127 / max(abs(v))), max(abs(v)) / float32(127), packbits(v > 0).
void check_bytes() {
    const float v[] = {0.5f, -1.0f, 0.25f, 0.75f, 1e-3f, -0.0039370079f, 0.0039370079f, 0.011811024f, -0.33333334f, 0.999f, -0.9999f, 0.0f, -0.0f, 0.1f, 1e-30f};
    const int8_t expected[] = {64, -127, 32, 95, 0, 0, 0, 1, -42, 127, -127, 0, 0, 13, 0};
    const float ties[] = {254, 1, 3, 5, -1, -3, -5, 7, 253, -254, 127};
    const int8_t expected_ties[] = {127, 0, 2, 2, 0, -2, -2, 4, 126, -127, 64};
    int8_t s8[15];
    CHECK_EQ(sq_to_s8(v, 15, s8), 0.007874016f);
    CHECK(memcmp(s8, expected, 15) == 0);
    CHECK_EQ(sq_to_s8(ties, 11, s8), 2.0f);
    CHECK(memcmp(s8, expected_ties, 11) == 0);
    const float zeros[] = {0.0f, -0.0f, 0.0f};
    CHECK_EQ(sq_to_s8(zeros, 3, s8), 0.0f);
    CHECK(s8[0] == 0 && s8[1] == 0 && s8[2] == 0);
    uint8_t bits[3] = {0xFF, 0xFF, 0xFF};
    sq_to_bits(v, 15, bits);
    CHECK(bits[0] == 0xBB && bits[1] == 0x46 && bits[2] == 0xFF);
    sq_to_bits(v, 8, bits);
    CHECK_EQ(bits[0], 0xBB);
}

// Whatever rounding the calling thread has.
void test_numbers() {
    for (int rounding : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        fesetround(rounding);
        check_halves();
        check_bytes();
        CHECK_EQ(fegetround(), rounding);
    }
    fesetround(FE_TONEAREST);
}

// ---- parameter structs ----

// test-structs.cpp tries their sizes.
void test_reserved() {
    const opened tagger("bert-tag");
    text_list list;
    list.add("the sea");
    const sq_texts t = list.texts(false);
    float x[64];
    sq_entity entities[8];
    size_t n = 0;
    sq_tag_params tag_params = sized<sq_tag_params>();
    tag_params.reserved = 1;
    CHECK_EQ(sq_tag(tagger.ctx(), &t, &tag_params, entities, 8, &n), SQ_E_VERSION);
    CHECK(*sq_ctx_error(tagger.ctx()) != 0);
    sq_embed_params embed_params = sized<sq_embed_params>();
    embed_params.reserved = 1;
    CHECK_EQ(sq_embed(tagger.ctx(), &t, &embed_params, x, 64, &n), SQ_E_VERSION);
}

// ---- values that are not numbers ----

// A checkpoint's model in whose file change(floats, count) has been at work on a tensor.
template <class change_fn> opened changed(const std::string &checkpoint, sq::quant_mode mode, const std::string &tensor, change_fn change) {
    std::string bytes = converted(GOLDEN + checkpoint, mode);
    sq::file_view view;
    sq::message why{};
    CHECK_EQ(view.open(bytes.data(), bytes.size(), &why), SQ_OK);
    const sq::tensor_entry *t = view.find_tensor(tensor);
    if (CHECK(t)) {
        std::vector<float> x(t->n_bytes / sizeof(float));
        memcpy(x.data(), &bytes[t->offset], t->n_bytes);
        change(x.data(), x.size());
        memcpy(&bytes[t->offset], x.data(), t->n_bytes);
    }
    sq_model_params p = sized<sq_model_params>(); // not `verify`: the checksum is no longer right
    p.copy = 1;
    sq_model *m = nullptr;
    CHECK_EQ(sq_model_load_memory(bytes.data(), bytes.size(), &p, &m, why.text, sizeof why.text), SQ_OK);
    return opened(model_handle(m), 2);
}

golden_row tokens_of(const opened &o, const std::string &text) {
    golden_row r;
    r.ids.resize(64);
    r.types.resize(64);
    size_t n = 0;
    CHECK_EQ(sq_tokenize(o.m.get(), text.data(), text.size(), nullptr, 0, nullptr, r.ids.data(), r.types.data(), nullptr, nullptr, 64, &n), SQ_OK);
    r.ids.resize(n);
    r.types.resize(n);
    return r;
}

int32_t forward(const opened &o, const std::string &text, int32_t kind) {
    batch_builder b;
    b.add(tokens_of(o, text));
    const sq_batch batch = b.batch();
    std::vector<float> out(64 * 64);
    size_t n = 0;
    return sq_forward(o.ctx(), &batch, kind, out.data(), out.size(), &n);
}

const char *const TASK_OF[] = {"embed", "classify", "answer", "tag"};

// All that the model can do with a text of one or two words, of which the answer would hold NaN if it were given.
void check_refused(const opened &o, const std::string &text) {
    for (int32_t kind : {SQ_HIDDEN, SQ_POOLED, SQ_LOGITS})
        if (kind != SQ_LOGITS || o.info.head != SQ_HEAD_NONE) CHECK_EQ(forward(o, text, kind), SQ_E_NUMERIC);
    CHECK_EQ(call_task(o, "embed", text), SQ_E_NUMERIC);
    CHECK(o.says("not finite"));
    CHECK_EQ(call_task(o, TASK_OF[o.info.head], text), SQ_E_NUMERIC);
    CHECK(o.says("not finite"));
    if (o.info.head == SQ_HEAD_CLASSIFY && o.info.n_labels == 1) CHECK_EQ(call_task(o, "rerank", text), SQ_E_NUMERIC);
}

// One NaN in the row of the word "sea", or in the row of a position: texts that read it are refused, others answered.
void test_nan(const std::string &checkpoint) {
    const int32_t sea = tokens_of(opened(checkpoint), "sea").ids[1];
    const opened o = changed(checkpoint, sq::quant_mode::none, "embed.words", [&](float *x, size_t n) {
        x[static_cast<size_t>(sea) * (n / opened(checkpoint).info.vocab_size) + 5] = NAN;
    });
    check_refused(o, "the sea");
    CHECK_EQ(call_task(o, "embed", "the sun"), SQ_OK);
    CHECK_EQ(call_task(o, TASK_OF[o.info.head], "the sun"), SQ_OK);
    for (sq::quant_mode mode : {sq::quant_mode::static_scales, sq::quant_mode::dynamic_scales}) {
        const bool roberta = checkpoint.compare(0, 4, "xlmr") == 0;
        const opened q = changed(checkpoint, mode, "embed.positions", [&](float *x, size_t n) {
            const size_t n_rows = opened(checkpoint).info.max_positions + (roberta ? 2 : 0);
            x[(roberta ? 4 : 2) * (n / n_rows)] = NAN; // read by the third token
        });
        check_refused(q, "the sea");
    }
}

// Finite weights whose logits are infinite, so that a softmax of them would hold NaN.
void test_infinite() {
    const auto huge = [](float *x, size_t n) { std::fill(x, x + n, 3e38f); };
    for (const char *checkpoint : {"bert-classify", "bert-tag", "bert-answer"}) {
        const opened o = changed(checkpoint, sq::quant_mode::none, "head.out.weight", huge);
        CHECK_EQ(call_task(o, TASK_OF[o.info.head], "the sea"), SQ_E_NUMERIC);
    }
}

// A tokenizer without special tokens makes nothing of an empty text, which then counts as one unknown token: the same alone and beside others.
void test_no_special_tokens() {
    const std::string folder = "/tmp/sq-test-plain-" + std::to_string(getpid());
    std::filesystem::copy("tests/golden/bert-64", folder);
    std::stringstream json;
    json << std::ifstream(folder + "/tokenizer.json").rdbuf();
    std::string text = json.str();
    const size_t at = text.find("\"post_processor\"");
    if (!CHECK(at != std::string::npos)) return;
    std::ofstream(folder + "/tokenizer.json") << text.replace(at, 16, "\"no_processor\"");
    for (sq::quant_mode mode : ALL_MODES) {
        const model_handle m = load(converted(folder, mode));
        if (!m) continue;
        const ctx_handle c = context(m, 2);
        const uint32_t D = m->arch.width;
        const int32_t unknown = 1; // [UNK] in the vocabulary of make-golden.py
        const uint32_t one[] = {0, 1};
        const sq_batch b{sizeof b, 1, &unknown, nullptr, one};
        const size_t starts[] = {0, 0, 7, 7};
        const sq_texts texts{sizeof texts, 3, "the dog", starts, nullptr, nullptr};
        for (uint32_t pooling : {SQ_POOL_MEAN, SQ_POOL_CLS, SQ_POOL_MAX}) {
            sq_embed_params p{};
            p.size = sizeof p;
            p.pooling = pooling;
            p.normalize = SQ_NORMALIZE_NO;
            std::vector<float> out(3 * D), expected(D);
            size_t n = 0;
            CHECK_EQ(sq_embed(c.get(), &texts, &p, out.data(), out.size(), &n), SQ_OK);
            CHECK_EQ(sq_forward(c.get(), &b, SQ_HIDDEN, expected.data(), expected.size(), &n), SQ_OK);
            CHECK(memcmp(out.data(), expected.data(), D * sizeof(float)) == 0);
            CHECK(memcmp(out.data() + 2 * D, expected.data(), D * sizeof(float)) == 0);
        }
    }
    std::filesystem::remove_all(folder);
}

} // namespace

int main() {
    for (const char *checkpoint : {"distilbert-64", "distilbert-multi", "xlmr-48", "bert-classify", "bert-score", "bert-answer", "bert-tag", "sentence-max", "sentence-cls"})
        test_reference(checkpoint);
    for (const char *checkpoint : {"bert-classify", "xlmr-48"}) test_classify(checkpoint, false);
    for (const char *checkpoint : {"bert-score", "distilbert-multi"}) test_classify(checkpoint, true);
    test_labels();
    for (const char *checkpoint : {"bert-classify", "xlmr-48", "distilbert-multi", "bert-score"}) {
        for (sq::quant_mode mode : ALL_MODES) test_batch_mates(checkpoint, mode, false);
        test_batch_mates(checkpoint, sq::quant_mode::static_scales, true);
        test_int8(checkpoint);
    }
    test_odd_texts();
    test_wrong_tasks();
    test_limits();
    test_space();
    test_rerank();
    test_answer();
    test_answer_batches();
    test_answer_limits();
    test_tag();
    test_tag_batches();
    test_embed("sentence-max", SQ_POOL_MAX, 1, 24);
    test_embed("sentence-cls", SQ_POOL_CLS, 0, 32);
    test_pooling();
    test_numbers();
    test_reserved();
    for (const char *checkpoint : {"bert-64", "distilbert-multi", "xlmr-48", "bert-classify", "bert-score", "bert-answer", "bert-tag", "sentence-max"}) test_nan(checkpoint);
    test_infinite();
    test_no_special_tokens();
    return check_summary("test-tasks");
}
