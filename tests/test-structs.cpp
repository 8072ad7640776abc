// test-structs.cpp - structs of older and newer headers: every size of every sized struct of sq.h, in every function that takes it.
//
// What must hold follows from the rules at the top of sq.h. A shorter struct that ends after a field counts as a whole one with zeros from there on; one that ends
// inside a field is SQ_E_ARG; a longer one counts as a whole one if zeros follow, else it is SQ_E_VERSION. Each is laid so that its last byte ends a page and
// nothing behind may be touched. test-abi.c pins where the fields lie.
#include <sys/mman.h>

#include <functional>

#include "models.h"

namespace {

// What a call had to say: its status, and if that was SQ_OK what it gave.
struct outcome {
    int32_t status;
    std::string bytes;
    bool operator==(const outcome &o) const { return status == o.status && bytes == o.bytes; }
};

template <class T> std::string bytes_of(const T *x, size_t n) { return std::string(reinterpret_cast<const char *>(x), n * sizeof(T)); }

outcome outcome_of(int32_t status, const std::string &bytes) { return {status, status == SQ_OK ? bytes : ""}; }

// A page behind which nothing may be read or written.
class last_page {
  public:
    last_page() : page_(static_cast<uint8_t *>(mmap(nullptr, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        if (page_ == MAP_FAILED || mprotect(page_ + BYTES, BYTES, PROT_NONE) != 0) abort();
    }
    last_page(const last_page &) = delete;
    last_page &operator=(const last_page &) = delete;
    ~last_page() { munmap(page_, 2 * BYTES); }

    // n bytes that end with the page, as far as the struct's alignment allows; all of the page is 0xA5 otherwise.
    template <class sized> sized *put(const void *bytes, size_t n) {
        memset(page_, 0xA5, BYTES);
        uint8_t *at = page_ + (BYTES - n) / alignof(sized) * alignof(sized);
        memcpy(at, bytes, n);
        return reinterpret_cast<sized *>(at);
    }

  private:
    static constexpr size_t BYTES = 65536; // a multiple of every page size
    uint8_t *page_;
};

// Where the fields of a struct end.
template <class sized, class... field> std::vector<size_t> ends_of(field sized::*...f) {
    const sized s{};
    return {static_cast<size_t>(reinterpret_cast<const uint8_t *>(&(s.*f)) - reinterpret_cast<const uint8_t *>(&s)) + sizeof(s.*f)...};
}

bool is_end(const std::vector<size_t> &ends, size_t n) { return std::find(ends.begin(), ends.end(), n) != ends.end(); }

void say(const char *name, size_t n, bool ok) {
    if (!ok) fprintf(stderr, "  %s with size %zu\n", name, n);
}

template <class sized> using call_fn = std::function<outcome(const sized *)>;

// `given` has a value in every field, so that where it is cut makes a difference.
template <class sized> void test_shorter(const char *name, const sized &given, const std::vector<size_t> &ends, const call_fn<sized> &call) {
    last_page page;
    CHECK_EQ(ends.back(), sizeof given);
    for (uint32_t n = 0; n < sizeof given; n++) {
        sized cut = given;
        cut.size = n;
        const outcome got = call(page.put<sized>(&cut, std::max<size_t>(n, sizeof cut.size)));
        sized whole{};
        memcpy(static_cast<void *>(&whole), &given, n);
        whole.size = sizeof whole;
        say(name, n, CHECK(is_end(ends, n) ? got == call(&whole) : got.status == SQ_E_ARG) != 0);
    }
}

template <class sized> void test_longer(const char *name, const sized &given, const call_fn<sized> &call) {
    struct {
        sized known;
        uint8_t tail[12];
    } longer{};
    last_page page;
    const outcome whole = call(&given);
    for (uint32_t n = sizeof given; n <= sizeof given + sizeof longer.tail; n++) {
        longer.known = given;
        longer.known.size = n;
        memset(longer.tail, 0, sizeof longer.tail);
        say(name, n, CHECK(call(page.put<sized>(&longer, n)) == whole) != 0);
        for (size_t i = 0; i < n - sizeof given; i++) {
            longer.tail[i] = 1;
            say(name, n, CHECK_EQ(call(page.put<sized>(&longer, n)).status, SQ_E_VERSION) != 0);
            longer.tail[i] = 0;
        }
    }
    sized unset = given;
    for (uint32_t n : {4097u, 0x7FFFFFFFu, 0xFFFFFFFFu}) { // no struct's size: nothing but the field itself is read
        unset.size = n;
        say(name, n, CHECK_EQ(call(page.put<sized>(&unset, sizeof unset)).status, SQ_E_ARG) != 0);
    }
}

template <class sized> void test_input(const char *name, const sized &given, const std::vector<size_t> &ends, const call_fn<sized> &call) {
    CHECK_EQ(call(&given).status, SQ_OK);
    test_shorter<sized>(name, given, ends, call);
    test_longer<sized>(name, given, call);
}

// A struct that the library fills: as far as its size reaches, with the same values as a whole one, and zeros behind the known fields.
template <class sized> void test_output(const char *name, const std::vector<size_t> &ends, const std::function<int32_t(sized *)> &call) {
    last_page page;
    sized whole{};
    whole.size = sizeof whole;
    CHECK_EQ(call(&whole), SQ_OK);
    CHECK_EQ(ends.back(), sizeof whole);
    std::vector<uint8_t> before(sizeof whole + 12, 0x5A);
    for (uint32_t n = 0; n <= before.size(); n++) {
        memcpy(before.data(), &n, sizeof n);
        sized *got = page.put<sized>(before.data(), std::max<size_t>(n, sizeof got->size));
        const bool fits = n >= sizeof whole || is_end(ends, n);
        say(name, n, CHECK_EQ(call(got), fits ? SQ_OK : SQ_E_ARG) != 0);
        std::vector<uint8_t> expected(before.begin(), before.begin() + std::max<uint32_t>(n, sizeof n));
        for (size_t i = sizeof n; fits && i < n; i++) expected[i] = i < sizeof whole ? reinterpret_cast<uint8_t *>(&whole)[i] : 0;
        say(name, n, CHECK(memcmp(got, expected.data(), expected.size()) == 0) != 0);
    }
    for (uint32_t n : {4097u, 0xFFFFFFFFu}) {
        whole.size = n;
        say(name, n, CHECK_EQ(call(page.put<sized>(&whole, sizeof whole)), SQ_E_ARG) != 0);
    }
}

template <class sized> void test_init(const char *name, void (*init)(sized *, size_t), const std::vector<size_t> &ends) {
    last_page page;
    const std::vector<uint8_t> before(sizeof(sized) + 12, 0x5A);
    for (size_t n : ends) {
        sized *got = page.put<sized>(before.data(), n);
        init(got, n);
        std::vector<uint8_t> expected(n);
        const uint32_t size = static_cast<uint32_t>(n);
        memcpy(expected.data(), &size, sizeof size);
        say(name, n, CHECK(memcmp(got, expected.data(), n) == 0) != 0);
    }
    for (size_t n : {size_t{0}, size_t{3}, size_t{4097}, SIZE_MAX}) {
        sized *got = page.put<sized>(before.data(), sizeof *got);
        init(got, n);
        say(name, n, CHECK(memcmp(got, before.data(), sizeof *got) == 0) != 0);
    }
    init(nullptr, sizeof(sized));
}

// ---- the structs ----

const std::vector<size_t> MODEL_PARAMS = ends_of(&sq_model_params::size, &sq_model_params::copy, &sq_model_params::verify, &sq_model_params::huge_pages, &sq_model_params::isa);
const std::vector<size_t> MODEL_INFO =
    ends_of(&sq_model_info::size, &sq_model_info::n_layers, &sq_model_info::width, &sq_model_info::n_heads, &sq_model_info::ffn_width, &sq_model_info::vocab_size,
            &sq_model_info::n_types, &sq_model_info::max_tokens, &sq_model_info::max_positions, &sq_model_info::pooling, &sq_model_info::normalize,
            &sq_model_info::quant, &sq_model_info::head, &sq_model_info::n_labels, &sq_model_info::multi_label, &sq_model_info::embed_width,
            &sq_model_info::file_bytes, &sq_model_info::n_params);
const std::vector<size_t> TOKENIZE_PARAMS =
    ends_of(&sq_tokenize_params::size, &sq_tokenize_params::max_len, &sq_tokenize_params::truncate, &sq_tokenize_params::specials_as_text);
const std::vector<size_t> CTX_PARAMS = ends_of(&sq_ctx_params::size, &sq_ctx_params::n_threads, &sq_ctx_params::max_tokens, &sq_ctx_params::max_seqs, &sq_ctx_params::cpus,
                                               &sq_ctx_params::spin_us, &sq_ctx_params::no_tuning, &sq_ctx_params::tuning);
const std::vector<size_t> STATS = ends_of(&sq_stats::size, &sq_stats::n_threads, &sq_stats::n_forward, &sq_stats::n_tokens, &sq_stats::scratch_bytes, &sq_stats::ns, &sq_stats::ops);
const std::vector<size_t> BATCH = ends_of(&sq_batch::size, &sq_batch::n_seqs, &sq_batch::ids, &sq_batch::types, &sq_batch::starts);
const std::vector<size_t> TEXTS = ends_of(&sq_texts::size, &sq_texts::n_texts, &sq_texts::a, &sq_texts::a_starts, &sq_texts::b, &sq_texts::b_starts);
const std::vector<size_t> EMBED_PARAMS = ends_of(&sq_embed_params::size, &sq_embed_params::pooling, &sq_embed_params::normalize, &sq_embed_params::dimensions,
                                                 &sq_embed_params::max_len, &sq_embed_params::truncate, &sq_embed_params::specials_as_text, &sq_embed_params::reserved);
const std::vector<size_t> CLASSIFY_PARAMS =
    ends_of(&sq_classify_params::size, &sq_classify_params::max_len, &sq_classify_params::truncate, &sq_classify_params::specials_as_text);
const std::vector<size_t> ANSWER_PARAMS = ends_of(&sq_answer_params::size, &sq_answer_params::window, &sq_answer_params::stride, &sq_answer_params::max_answer,
                                                  &sq_answer_params::allow_null, &sq_answer_params::specials_as_text);
const std::vector<size_t> TAG_PARAMS = ends_of(&sq_tag_params::size, &sq_tag_params::mode, &sq_tag_params::max_len, &sq_tag_params::truncate,
                                               &sq_tag_params::specials_as_text, &sq_tag_params::reserved);

const char A[] = "the sea the dog sleeps[SEP] the sun a cat sleeps";
const size_t A_STARTS[] = {0, 7, 28, 48};
const char B[] = "a cata dogthe";
const size_t B_STARTS[] = {0, 5, 10, 13};
constexpr sq_texts SINGLE{sizeof(sq_texts), 3, A, A_STARTS, nullptr, nullptr}, PAIRS{sizeof(sq_texts), 3, A, A_STARTS, B, B_STARTS};
constexpr size_t CAP = 1024;

struct checkpoint {
    model_handle model;
    ctx_handle ctx;
    explicit checkpoint(const char *name) : model(load(converted(std::string("tests/golden/") + name, sq::quant_mode::none))) {
        if (!model) exit(1);
        ctx = context(model, 1);
    }
};

void test_model_structs(const std::string &file, const checkpoint &c) {
    const sq_model_params params{sizeof params, 1, 1, 1, "plain"};
    test_input<sq_model_params>("sq_model_params", params, MODEL_PARAMS, [&](const sq_model_params *p) {
        sq_model *m = nullptr;
        const int32_t status = sq_model_load_memory(file.data(), file.size(), p, &m, nullptr, 0);
        const model_handle opened(m);
        CHECK_EQ(m != nullptr, status == SQ_OK);
        return outcome_of(status, m ? sq_isa_string(m) : "");
    });
    test_output<sq_model_info>("sq_model_info", MODEL_INFO, [&](sq_model_info *i) { return sq_model_get_info(c.model.get(), i); });
    const sq_tokenize_params tokenize{sizeof tokenize, 6, 1, 1};
    test_input<sq_tokenize_params>("sq_tokenize_params", tokenize, TOKENIZE_PARAMS, [&](const sq_tokenize_params *p) {
        int32_t ids[CAP];
        size_t n = 0;
        const int32_t status = sq_tokenize(c.model.get(), A, sizeof A - 1, nullptr, 0, p, ids, nullptr, nullptr, nullptr, CAP, &n);
        return outcome_of(status, bytes_of(ids, n));
    });
}

void test_context_structs(const checkpoint &c) {
    const int32_t cpus[] = {-1, -1, -1};
    const sq_ctx_params params{sizeof params, 3, 100, 5, cpus, 7, 1, ""};
    test_input<sq_ctx_params>("sq_ctx_params", params, CTX_PARAMS, [&](const sq_ctx_params *p) {
        sq_ctx *made = nullptr;
        sq_stats s{};
        s.size = sizeof s;
        const int32_t status = sq_ctx_create(c.model.get(), p, &made, nullptr, 0);
        const ctx_handle held(made);
        CHECK_EQ(made != nullptr, status == SQ_OK);
        if (made) CHECK_EQ(sq_ctx_stats(made, &s), SQ_OK);
        return outcome_of(status, std::to_string(s.n_threads) + " " + std::to_string(s.scratch_bytes));
    });
    test_output<sq_stats>("sq_stats", STATS, [&](sq_stats *s) { return sq_ctx_stats(c.ctx.get(), s); });
    const int32_t ids[] = {2, 5, 6, 3, 2, 7, 3}, types[] = {0, 0, 1, 1, 0, 1, 1};
    const uint32_t starts[] = {0, 4, 7};
    const sq_batch batch{sizeof batch, 2, ids, types, starts};
    test_input<sq_batch>("sq_batch", batch, BATCH, [&](const sq_batch *b) {
        float out[CAP];
        size_t n = 0;
        const int32_t status = sq_forward(c.ctx.get(), b, SQ_POOLED, out, CAP, &n);
        return outcome_of(status, bytes_of(out, n));
    });
}

outcome embed(const checkpoint &c, const sq_texts *t, const sq_embed_params *p) {
    float out[CAP];
    size_t n = 0;
    const int32_t status = sq_embed(c.ctx.get(), t, p, out, CAP, &n);
    return outcome_of(status, bytes_of(out, n));
}

outcome classify(const checkpoint &c, const sq_texts *t, const sq_classify_params *p) {
    float scores[CAP];
    size_t n = 0;
    const int32_t status = sq_classify(c.ctx.get(), t, p, scores, nullptr, CAP, &n);
    return outcome_of(status, bytes_of(scores, n));
}

outcome rerank(const checkpoint &c, const sq_texts *t, const sq_classify_params *p) {
    float scores[CAP];
    size_t n = 0;
    const int32_t status = sq_rerank(c.ctx.get(), "a[SEP] cat", 10, t, p, scores, nullptr, CAP, &n);
    return outcome_of(status, bytes_of(scores, n));
}

outcome answer(const checkpoint &c, const sq_answer_params *p) {
    sq_answer_span spans[CAP];
    size_t n = 0;
    const int32_t status = sq_answer(c.ctx.get(), "the[SEP] sea", 12, A, sizeof A - 1, p, spans, CAP, &n);
    return outcome_of(status, bytes_of(spans, n));
}

outcome tag(const checkpoint &c, const sq_texts *t, const sq_tag_params *p) {
    sq_entity entities[CAP];
    size_t n = 0;
    const int32_t status = sq_tag(c.ctx.get(), t, p, entities, CAP, &n);
    return outcome_of(status, bytes_of(entities, n));
}

void test_embed(const checkpoint &c) {
    const sq_embed_params params{sizeof params, SQ_POOL_MAX, SQ_NORMALIZE_YES, 5, 6, 1, 1, 0};
    test_input<sq_texts>("sq_texts of sq_embed", PAIRS, TEXTS, [&](const sq_texts *t) { return embed(c, t, nullptr); });
    test_input<sq_embed_params>("sq_embed_params", params, EMBED_PARAMS, [&](const sq_embed_params *p) { return embed(c, &SINGLE, p); });
}

void test_tasks() {
    const sq_classify_params classify_params{sizeof classify_params, 6, 1, 1};
    const checkpoint classifier("bert-classify"), scorer("bert-score"), reader("bert-answer"), tagger("bert-tag");
    test_input<sq_texts>("sq_texts of sq_classify", PAIRS, TEXTS, [&](const sq_texts *t) { return classify(classifier, t, nullptr); });
    test_input<sq_classify_params>("sq_classify_params", classify_params, CLASSIFY_PARAMS, [&](const sq_classify_params *p) { return classify(classifier, &PAIRS, p); });
    test_input<sq_texts>("sq_texts of sq_rerank", SINGLE, TEXTS, [&](const sq_texts *t) { return rerank(scorer, t, nullptr); });
    test_input<sq_classify_params>("sq_classify_params of sq_rerank", classify_params, CLASSIFY_PARAMS, [&](const sq_classify_params *p) { return rerank(scorer, &SINGLE, p); });
    const sq_answer_params answer_params{sizeof answer_params, 14, 3, 2, 1, 1};
    test_input<sq_answer_params>("sq_answer_params", answer_params, ANSWER_PARAMS, [&](const sq_answer_params *p) { return answer(reader, p); });
    const sq_tag_params tag_params{sizeof tag_params, SQ_TAG_WORDS, 6, 1, 1, 0};
    test_input<sq_texts>("sq_texts of sq_tag", SINGLE, TEXTS, [&](const sq_texts *t) { return tag(tagger, t, nullptr); });
    test_input<sq_tag_params>("sq_tag_params", tag_params, TAG_PARAMS, [&](const sq_tag_params *p) { return tag(tagger, &SINGLE, p); });
}

void test_inits() {
    test_init<sq_model_params>("sq_model_params_init", sq_model_params_init, MODEL_PARAMS);
    test_init<sq_tokenize_params>("sq_tokenize_params_init", sq_tokenize_params_init, TOKENIZE_PARAMS);
    test_init<sq_ctx_params>("sq_ctx_params_init", sq_ctx_params_init, CTX_PARAMS);
    test_init<sq_embed_params>("sq_embed_params_init", sq_embed_params_init, EMBED_PARAMS);
    test_init<sq_classify_params>("sq_classify_params_init", sq_classify_params_init, CLASSIFY_PARAMS);
    test_init<sq_answer_params>("sq_answer_params_init", sq_answer_params_init, ANSWER_PARAMS);
    test_init<sq_tag_params>("sq_tag_params_init", sq_tag_params_init, TAG_PARAMS);
}

} // namespace

int main() {
    const std::string file = converted("tests/golden/bert-64", sq::quant_mode::static_scales);
    const checkpoint c("bert-64");
    test_model_structs(file, c);
    test_context_structs(c);
    test_embed(c);
    test_tasks();
    test_inits();
    return check_summary("test-structs");
}
