// tests/soak.cpp - many threads, each with a context of its own, ask one model everything for a long time: every answer is compared with the first one bit by bit,
// and memory, threads and descriptors must not grow.
//
// usage: soak [MODEL.sq]      SOAK_SECONDS (600), SOAK_THREADS (64); without a model a small classifier of tests/golden is converted
//
// Threads also make their contexts anew and load the file again from time to time, so that what these leave behind would add up. Exit code 0: nothing differed and
// nothing grew.
#include <dirent.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "models.h"
#include "scratch.h"

namespace {

using clock_type = std::chrono::steady_clock;
double seconds_since(clock_type::time_point t) { return std::chrono::duration<double>(clock_type::now() - t).count(); }

long setting(const char *name, long fallback) {
    const char *text = getenv(name);
    return text && *text ? std::max(1L, atol(text)) : fallback;
}

// ---- questions ----

enum task { EMBED_MEAN, EMBED_CLS, HIDDEN, TOKENIZE, CLASSIFY, N_TASKS };
const char *const TASK_NAMES[] = {"embed, mean", "embed, first token", "hidden states", "tokenize", "classify"};

// A task on some texts end to end.
struct question {
    task what;
    std::string text;
    std::vector<size_t> starts{0};
};

const char WORDS[] = "the dog sleeps and a small cat looks at na\xC3\xAFve people, 17 of them in \xE5\xA4\xA7 houses; ";

// Texts of 0 to 400 bytes, alone and up to 20 at a time.
std::vector<question> all_questions(const model_handle &m) {
    std::vector<question> questions;
    for (int what = 0; what < N_TASKS; what++) {
        if (what == CLASSIFY && m->head.kind != SQ_HEAD_CLASSIFY) continue;
        for (const size_t n_bytes : {0, 3, 20, 60, 150, 400})
            for (const size_t n_texts : {1, 3, 20}) {
                if (n_texts > 1 && (what == HIDDEN || what == TOKENIZE)) continue;
                question q{static_cast<task>(what), "", {0}};
                for (size_t i = 0; i < n_texts; i++) {
                    for (size_t j = 0; j < n_bytes; j++) q.text += WORDS[(i * 7 + j) % (sizeof WORDS - 1)];
                    q.starts.push_back(q.text.size());
                }
                questions.push_back(std::move(q));
            }
    }
    return questions;
}

// The answer, as bytes; a failure counts as a wrong one. Buffers are kept from call to call.
struct asker {
    std::vector<float> out;
    std::vector<int32_t> ids;

    int32_t tokens_or_states(const model_handle &m, const ctx_handle &c, const question &q, size_t *n) {
        ids.resize(q.text.size() + 8);
        sq_tokenize_params p{};
        p.size = sizeof p;
        p.truncate = 1;
        size_t n_ids = 0;
        const int32_t status = sq_tokenize(m.get(), q.text.data(), q.text.size(), nullptr, 0, &p, ids.data(), nullptr, nullptr, nullptr, ids.size(), &n_ids);
        if (status != SQ_OK) return status;
        if (q.what == TOKENIZE) {
            out.assign(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n_ids));
            *n = n_ids;
            return SQ_OK;
        }
        out.resize(n_ids * m->arch.width);
        const uint32_t starts[] = {0, static_cast<uint32_t>(n_ids)};
        const sq_batch b{sizeof b, 1, ids.data(), nullptr, starts};
        return sq_forward(c.get(), &b, SQ_HIDDEN, out.data(), out.size(), n);
    }

    bool ask(const model_handle &m, const ctx_handle &c, const question &q) {
        const uint32_t n_texts = static_cast<uint32_t>(q.starts.size() - 1);
        const sq_texts t{sizeof t, n_texts, q.text.data(), q.starts.data(), nullptr, nullptr};
        size_t n = 0;
        int32_t status;
        if (q.what == HIDDEN || q.what == TOKENIZE) {
            status = tokens_or_states(m, c, q, &n);
        } else if (q.what == CLASSIFY) {
            sq_classify_params p{};
            p.size = sizeof p;
            p.truncate = 1;
            out.resize(n_texts * m->head.n_labels);
            status = sq_classify(c.get(), &t, &p, out.data(), nullptr, out.size(), &n);
        } else {
            sq_embed_params p{};
            p.size = sizeof p;
            p.truncate = 1;
            p.pooling = q.what == EMBED_CLS ? SQ_POOL_CLS : SQ_POOL_MEAN;
            out.resize(n_texts * std::max<size_t>(m->arch.width, m->dense.empty() ? 0 : m->dense.back().weights.n));
            status = sq_embed(c.get(), &t, &p, out.data(), out.size(), &n);
        }
        out.resize(status == SQ_OK ? n : 0);
        return status == SQ_OK;
    }
};

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// ---- the threads ----

struct soak {
    std::string path;
    model_handle model;
    std::vector<question> questions;
    std::vector<std::vector<float>> expected;
    std::atomic<bool> done{false};
    std::atomic<uint64_t> n_calls[N_TASKS] = {}, n_wrong{0}, n_contexts{0}, n_loads{0};

    model_handle load_again() const {
        sq_model *m = nullptr;
        CHECK_EQ(sq_model_load(path.c_str(), nullptr, &m, nullptr, 0), SQ_OK);
        return model_handle(m);
    }

    void check(asker *a, const model_handle &m, const ctx_handle &c, size_t i) {
        if (!a->ask(m, c, questions[i]) || !same_bits(a->out, expected[i])) {
            n_wrong++;
            CHECK(false);
        }
        n_calls[questions[i].what]++;
    }

    // Every thread goes through the questions in its own order; odd ones have a worker.
    void run(unsigned thread) {
        asker a;
        const uint32_t n_threads = 1 + thread % 2;
        ctx_handle c = context(model, n_threads);
        for (size_t k = thread * 13; !done; k += 1 + thread % 7) {
            const size_t i = k % questions.size();
            check(&a, model, c, i);
            if (k % 97 == 0) {
                c.reset();
                c = context(model, n_threads);
                n_contexts++;
            }
            if (k % 991 == 0) {
                const model_handle own = load_again();
                check(&a, own, context(own), i);
                n_loads++;
            }
        }
    }
};

// ---- what must not grow ----

struct sample {
    double rss_mib;
    long n_threads, n_descriptors;
};

sample look() {
    sample s{};
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.compare(0, 6, "VmRSS:") == 0) s.rss_mib = atof(line.c_str() + 6) / 1024;
        if (line.compare(0, 8, "Threads:") == 0) s.n_threads = atol(line.c_str() + 8);
    }
    if (DIR *d = opendir("/proc/self/fd")) {
        while (readdir(d)) s.n_descriptors++;
        closedir(d);
    }
    return s;
}

// Median and highest over a part of the samples.
struct level {
    double rss_mib = 0, highest_rss_mib = 0;
    long most_threads = 0, most_descriptors = 0;
    level(std::vector<sample>::const_iterator from, std::vector<sample>::const_iterator to) {
        std::vector<double> rss;
        for (; from != to; ++from) {
            rss.push_back(from->rss_mib);
            most_threads = std::max(most_threads, from->n_threads);
            most_descriptors = std::max(most_descriptors, from->n_descriptors);
        }
        std::sort(rss.begin(), rss.end());
        rss_mib = rss[rss.size() / 2];
        highest_rss_mib = rss.back();
    }
    void print(const char *when) const {
        printf("%-15s RSS %.1f MiB (highest %.1f), at most %ld threads, %ld descriptors\n", when, rss_mib, highest_rss_mib, most_threads, most_descriptors);
    }
};

// The second quarter of the samples against the last. In the first, the allocator's arenas fill: 64 threads hold peaks of their own. What leaks by a page in a
// thousand contexts or calls passes the bound in ten minutes; the noise of the median stays far below.
void require_no_growth(const std::vector<sample> &samples, const sample &start, const sample &end) {
    const auto at = [&](size_t quarter) { return samples.begin() + static_cast<ptrdiff_t>(samples.size() * quarter / 4); };
    const level early(at(1), at(2)), late(at(3), at(4));
    early.print("second quarter");
    late.print("last quarter");
    printf("%-15s RSS %.1f MiB, %ld threads, %ld descriptors\n", "afterwards", end.rss_mib, end.n_threads, end.n_descriptors);
    CHECK(late.rss_mib <= early.rss_mib * 1.01 + 2);
    CHECK(late.most_threads <= early.most_threads + 2 && late.most_descriptors <= early.most_descriptors + 4); // a sample may meet contexts that are being made anew
    CHECK_EQ(end.n_threads, start.n_threads);
    CHECK_EQ(end.n_descriptors, start.n_descriptors);
}

} // namespace

int main(int argc, char **argv) {
    const scratch folder;
    soak s;
    s.path = argc > 1 ? argv[1] : folder.path + "/model.sq";
    if (argc < 2) folder.put("model.sq", converted("tests/golden/bert-classify", sq::quant_mode::static_scales));
    s.model = s.load_again();
    if (!s.model) return check_summary("soak");
    s.questions = all_questions(s.model);
    asker a;
    for (const question &q : s.questions) {
        CHECK(a.ask(s.model, context(s.model), q));
        s.expected.push_back(a.out);
    }
    const double n_seconds = static_cast<double>(setting("SOAK_SECONDS", 600));
    const unsigned n_threads = static_cast<unsigned>(setting("SOAK_THREADS", 64));
    const sample start = look();
    printf("%u threads on %s, %zu questions, for %.0f s, instruction set %s\n", n_threads, argc > 1 ? argv[1] : "a small classifier", s.questions.size(), n_seconds,
           sq_isa_string(s.model.get()));
    fflush(stdout);

    std::vector<std::thread> threads;
    std::vector<sample> samples;
    const auto begin = clock_type::now();
    for (unsigned t = 0; t < n_threads; t++) threads.emplace_back([&s, t] { s.run(t); });
    while (seconds_since(begin) < n_seconds || samples.size() < 8) {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        samples.push_back(look());
    }
    s.done = true;
    for (std::thread &t : threads) t.join();

    const double took = seconds_since(begin);
    uint64_t n_all = 0;
    for (int what = 0; what < N_TASKS; what++) {
        printf("%-20s %10llu calls\n", TASK_NAMES[what], static_cast<unsigned long long>(s.n_calls[what]));
        n_all += s.n_calls[what];
    }
    printf("%llu calls in %.0f s, %.0f a second; %llu contexts and %llu loads on the way; %llu wrong answers\n", static_cast<unsigned long long>(n_all), took,
           static_cast<double>(n_all) / took, static_cast<unsigned long long>(s.n_contexts), static_cast<unsigned long long>(s.n_loads),
           static_cast<unsigned long long>(s.n_wrong));
    require_no_growth(samples, start, look());
    return check_summary("soak");
}
