// test-out-of-memory.cpp - each allocation of an operation fails once, alone and with all that follow: loading, contexts, every task, conversion. The answer must
// be SQ_E_MEM, everything must have been given back, and what was there before must still work.
#include "alloc-hooks.h"
#include "models.h"

#if ALLOC_HOOKS

#include <dirent.h>
#include <fcntl.h>

#include <filesystem>

#include "scratch.h"

namespace {

// Runs the part of an operation whose allocations fail.
struct failing {
    long at;
    bool on;
    size_t n_failed = 0;

    template <class part> int32_t operator()(part f) {
        alloc_hooks::fail_at(at, on);
        const int32_t status = f();
        n_failed = alloc_hooks::fail_no_more();
        return status;
    }
};

long next_point(long n) { return n + 1; }

// operation(fail) calls fail(part) once and returns its status; what it makes it frees. An allocation may also fail without consequence: a system file that
// cannot be read for want of memory counts as one that is not there. The first round is for what the C library keeps.
template <class Operation> void fail_each(const char *name, Operation operation, long (*next)(long) = next_point) {
    failing none{-1, false};
    CHECK_EQ(operation(none), SQ_OK);
    for (const bool on : {false, true}) {
        size_t n_points = 0, n_refused = 0;
        for (long n = 0;; n = next(n)) {
            failing f{n, on};
            const long live = alloc_hooks::n_live;
            const int32_t status = operation(f);
            bool good = CHECK_EQ(alloc_hooks::n_live - live, 0);
            good = CHECK(status == SQ_OK || (f.n_failed > 0 && status == SQ_E_MEM)) && good;
            if (!good) fprintf(stderr, "  %s: allocation %ld%s: status %d\n", name, n, on ? " and all later ones" : "", status);
            if (f.n_failed == 0) break;
            n_points++;
            n_refused += status != SQ_OK;
        }
        printf("%s: %zu points of failure%s, %zu refused\n", name, n_points, on ? " for good" : "", n_refused);
        CHECK(n_refused > 0);
    }
}

// ---- models and contexts ----

struct source_file_of {
    scratch folder;
    std::string path;
    explicit source_file_of(const std::string &bytes) : path(folder.path + "/model.sq") { folder.put("model.sq", bytes); }
};

template <class Load> void fail_load(const char *name, Load load) {
    fail_each(name, [&](failing &fail) {
        sq_model *m = nullptr;
        char err[256] = "";
        const int32_t status = fail([&] { return load(&m, err, sizeof err); });
        CHECK((m != nullptr) == (status == SQ_OK) && (err[0] != 0) == (status != SQ_OK));
        sq_model_free(m);
        return status;
    });
}

void test_load(const std::string &bytes) {
    const source_file_of file(bytes);
    sq_model_params mapped{}, copied{};
    mapped.size = copied.size = sizeof mapped;
    mapped.verify = copied.verify = copied.copy = 1;
    fail_load("load, mapped", [&](sq_model **m, char *err, size_t cap) { return sq_model_load(file.path.c_str(), &mapped, m, err, cap); });
    fail_load("load, copied", [&](sq_model **m, char *err, size_t cap) { return sq_model_load(file.path.c_str(), &copied, m, err, cap); });
    fail_load("load from memory, copied", [&](sq_model **m, char *err, size_t cap) { return sq_model_load_memory(bytes.data(), bytes.size(), &copied, m, err, cap); });
    const int fd = open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    fail_load("load from a descriptor", [&](sq_model **m, char *err, size_t cap) { return sq_model_load_fd(fd, &mapped, m, err, cap); });
    close(fd);
}

std::string learned_plans(const model_handle &m, const batch_builder &b) {
    const ctx_handle c = context(m);
    for (int i = 0; i < 200; i++) run(c, b, SQ_POOLED, m->arch.width);
    char text[4096];
    size_t n = 0;
    CHECK_EQ(sq_ctx_tuning(c.get(), text, sizeof text, &n), SQ_OK);
    CHECK(n > 0);
    return std::string(text, n);
}

void test_ctx(const model_handle &m) {
    batch_builder b;
    b.add(read_golden("tests/golden/bert-64/expected.jsonl")[0]);
    const std::vector<float> expected = run(context(m), b, SQ_HIDDEN, m->arch.width);
    const std::string plans = learned_plans(m, b);
    for (const uint32_t n_threads : {1u, 3u, 0u}) {
        const std::string name = "context of " + (n_threads ? std::to_string(n_threads) : "the default") + " threads";
        fail_each(name.c_str(), [&](failing &fail) {
            sq_ctx_params p{};
            p.size = sizeof p;
            p.n_threads = n_threads;
            p.tuning = n_threads == 1 ? plans.c_str() : nullptr;
            sq_ctx *raw = nullptr;
            char err[256] = "";
            const int32_t status = fail([&] { return sq_ctx_create(m.get(), &p, &raw, err, sizeof err); });
            const ctx_handle c(raw);
            CHECK((raw != nullptr) == (status == SQ_OK) && (err[0] != 0) == (status != SQ_OK));
            if (raw) CHECK(run(c, b, SQ_HIDDEN, m->arch.width) == expected);
            return status;
        });
    }
    CHECK(run(context(m), b, SQ_HIDDEN, m->arch.width) == expected);
}

// ---- tasks ----

// ask(ctx, answer) fills a preallocated answer. A context whose call ran out of memory says so, and then gives the answer that a fresh one gives.
template <class Answer, class Ask> void fail_task(const char *name, const model_handle &m, const Answer &blank, Ask ask) {
    Answer expected = blank, got = blank;
    CHECK_EQ(ask(context(m).get(), &expected), SQ_OK);
    fail_each(name, [&](failing &fail) {
        const ctx_handle c = context(m, 1, 64);
        got = blank;
        const int32_t status = fail([&] { return ask(c.get(), &got); });
        CHECK((sq_ctx_error(c.get())[0] != 0) == (status != SQ_OK));
        got = blank;
        CHECK_EQ(ask(c.get(), &got), SQ_OK);
        CHECK(got == expected);
        return status;
    });
}

// Texts that fill more than one batch of 64 tokens.
struct many_texts {
    std::string bytes;
    std::vector<size_t> starts{0};
    sq_texts texts{};

    explicit many_texts(size_t n) {
        for (size_t i = 0; i < n; i++) {
            bytes += "the dog sleeps and a cat na\xC3\xAFve \xE5\xA4\xA7 " + std::to_string(i);
            starts.push_back(bytes.size());
        }
        texts = {sizeof texts, static_cast<uint32_t>(n), bytes.data(), starts.data(), nullptr, nullptr};
    }
};

using floats = std::vector<float>;

constexpr size_t N_TEXTS = 12;

void test_texts(const char *checkpoint) {
    const model_handle m = load(converted(checkpoint, sq::quant_mode::static_scales));
    if (!m) return;
    const many_texts t(N_TEXTS);
    const std::string name = std::string(checkpoint + strlen("tests/golden/"));
    fail_task((name + ": embed").c_str(), m, floats(N_TEXTS * m->arch.width), [&](sq_ctx *c, floats *out) {
        size_t n = 0;
        return sq_embed(c, &t.texts, nullptr, out->data(), out->size(), &n);
    });
    fail_each((name + ": tokenize").c_str(), [&](failing &fail) {
        int32_t ids[64];
        size_t n = 0;
        return fail([&] { return sq_tokenize(m.get(), t.bytes.data(), t.starts[1], "b", 1, nullptr, ids, nullptr, nullptr, nullptr, 64, &n); });
    });
}

void test_classify() {
    const model_handle m = load(converted("tests/golden/bert-classify", sq::quant_mode::static_scales));
    if (!m) return;
    const many_texts t(N_TEXTS);
    fail_task("classify", m, floats(N_TEXTS * m->head.n_labels), [&](sq_ctx *c, floats *scores) {
        size_t n = 0;
        return sq_classify(c, &t.texts, nullptr, scores->data(), nullptr, scores->size(), &n);
    });
}

void test_rerank() {
    const model_handle m = load(converted("tests/golden/bert-score", sq::quant_mode::static_scales));
    if (!m) return;
    const many_texts t(N_TEXTS);
    uint32_t order[N_TEXTS];
    fail_task("rerank", m, floats(N_TEXTS), [&](sq_ctx *c, floats *scores) {
        size_t n = 0;
        return sq_rerank(c, "a dog", 5, &t.texts, nullptr, scores->data(), order, scores->size(), &n);
    });
}

void test_answer() {
    const model_handle m = load(converted("tests/golden/bert-answer", sq::quant_mode::static_scales));
    if (!m) return;
    const many_texts t(N_TEXTS);
    fail_task("answer", m, floats(20), [&](sq_ctx *c, floats *scores) {
        sq_answer_span spans[20]{};
        size_t n = 0;
        sq_answer_params p{};
        p.size = sizeof p;
        p.window = 50; // several for this context
        const int32_t status = sq_answer(c, "a dog", 5, t.bytes.data(), t.bytes.size(), &p, spans, 20, &n);
        for (size_t i = 0; i < 20; i++) (*scores)[i] = spans[i].score;
        return status;
    });
}

void test_tag() {
    const model_handle m = load(converted("tests/golden/bert-tag", sq::quant_mode::static_scales));
    if (!m) return;
    const many_texts t(N_TEXTS);
    std::vector<sq_entity> entities(2000);
    fail_task("tag", m, floats(2000), [&](sq_ctx *c, floats *scores) {
        size_t n = 0;
        const int32_t status = sq_tag(c, &t.texts, nullptr, entities.data(), entities.size(), &n);
        for (size_t i = 0; status == SQ_OK && i < n; i++) (*scores)[i] = entities[i].score;
        return status;
    });
}

// What a model tells as text.
void test_meta(const model_handle &m) {
    fail_each("metadata", [&](failing &fail) {
        char text[4096];
        size_t n = 0;
        return fail([&] {
            int32_t status = SQ_OK;
            for (uint32_t i = 0; const char *key = sq_model_meta_key(m.get(), i); i++)
                if (status == SQ_OK) status = sq_model_meta(m.get(), key, text, sizeof text, &n);
            return status;
        });
    });
}

// ---- conversion ----

size_t n_descriptors() {
    size_t n = 0;
    if (DIR *d = opendir("/proc/self/fd")) {
        while (readdir(d)) n++;
        closedir(d);
    }
    return n;
}

// The OpenMP runtime ends the process when its own memory fails: that is how sq-convert ends then, and no status can be had. Null in a build without OpenMP.
extern "C" void omp_set_num_threads(int) __attribute__((weak));
bool is_openmp(const void *caller) {
    Dl_info where{};
    return omp_set_num_threads && dladdr(caller, &where) && where.dli_fname && strstr(where.dli_fname, "omp");
}

// Since a point costs a conversion up to there: every one of the first 3, then one in each third more; or every one of the first 100, then one in each percent more.
long next_of_many(long n) { return n + 1 + n / 3; }
long next_of_most(long n) { return n + 1 + n / 100; }

void test_convert(const char *checkpoint, sq::quant_mode mode, long (*next)(long)) {
    const scratch folder;
    sq::convert_options o;
    o.checkpoint = checkpoint;
    o.mode = mode;
    o.output = folder.path + "/model.sq";
    const scratch texts;
    texts.put("texts", "the dog sleeps\na cat\nb\n");
    o.calibration_file = texts.path + "/texts";
    alloc_hooks::is_exempt = is_openmp;
    const std::string name = std::string("convert ") + checkpoint + ", " + mode_name(mode);
    fail_each(name.c_str(), [&](failing &fail) {
        const size_t n_before = n_descriptors();
        sq::message why{};
        const int32_t status = fail([&]() -> int32_t {
            try {
                sq::convert_result result;
                return sq::convert(o, &result, &why);
            } catch (const std::bad_alloc &) { // as sq-convert's main does
                return SQ_E_MEM;
            }
        });
        CHECK_EQ(n_descriptors(), n_before);
        size_t n_files = 0;
        for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator(folder.path)) n_files++;
        CHECK_EQ(n_files, status == SQ_OK ? 1u : 0u); // no half-written file stays
        unlink(o.output.c_str());
        return status;
    }, next);
    alloc_hooks::is_exempt = nullptr;
}

} // namespace

int main() {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (omp_set_num_threads) omp_set_num_threads(1); // so that the n-th allocation is always the same one
    const std::string bytes = converted("tests/golden/bert-64", sq::quant_mode::static_scales);
    const model_handle m = load(bytes);
    if (m) {
        test_load(bytes);
        test_ctx(m);
        test_meta(m);
    }
    test_texts("tests/golden/bert-64");
    test_texts("tests/golden/xlmr-48");
    test_classify();
    test_rerank();
    test_answer();
    test_tag();
    test_convert("tests/golden-bad/mini", sq::quant_mode::none, CHECK_SANITIZED ? next_of_many : next_point);
    test_convert("tests/golden-bad/mini", sq::quant_mode::static_scales, CHECK_SANITIZED ? next_of_many : next_of_most);
    test_convert("tests/golden/bert-64", sq::quant_mode::dynamic_scales, next_of_many);
    test_convert("tests/golden/xlmr-48", sq::quant_mode::none, next_of_many);
    return check_summary("test-out-of-memory");
}

#else

int main() {
    SKIP("allocations are made to fail on glibc, not under ThreadSanitizer");
    return check_summary("test-out-of-memory");
}

#endif
