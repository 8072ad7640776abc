// test-threads.cpp - many contexts on one model, cancelling, a second caller, fork, order of freeing. ThreadSanitizer runs this too.
#include <sched.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "models.h"

namespace {

batch_builder all_rows() {
    batch_builder b;
    for (const golden_row &r : read_golden("tests/golden/bert-64/expected.jsonl")) b.add(r);
    return b;
}

// Each thread has its own context and must get what one context alone gives.
void test_many_contexts(const model_handle &m) {
    const batch_builder b = all_rows();
    const uint32_t D = m->arch.width;
    const std::vector<float> expected = run(context(m), b, SQ_HIDDEN, D);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 6; t++)
        threads.emplace_back([&, t] {
            const ctx_handle c = context(m, 1 + t % 3);
            for (int i = 0; i < 20; i++) CHECK(run(c, b, SQ_HIDDEN, D) == expected);
        });
    for (std::thread &t : threads) t.join();
}

// Cancelling from another thread ends a call with SQ_E_CANCEL or comes too late; either way the next call is right. A second caller is turned away.
void test_cancel_and_busy(const model_handle &m) {
    const batch_builder b = all_rows();
    const ctx_handle c = context(m, 2);
    const std::vector<float> expected = run(c, b, SQ_HIDDEN, m->arch.width);
    const sq_batch batch = b.batch();
    std::atomic<bool> done{false};
    std::atomic<int> n_busy{0};
    std::thread other([&] {
        std::vector<float> out(expected.size());
        size_t n;
        while (!done) {
            sq_ctx_cancel(c.get());
            const int32_t status = sq_forward(c.get(), &batch, SQ_HIDDEN, out.data(), out.size(), &n);
            if (status == SQ_E_BUSY) n_busy++;
            else CHECK(status == SQ_OK || status == SQ_E_CANCEL);
        }
    });
    std::vector<float> out(expected.size());
    size_t n;
    int n_ok = 0, n_cancelled = 0;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while ((n_busy == 0 || n_cancelled == 0) && std::chrono::steady_clock::now() < deadline) {
        const int32_t status = sq_forward(c.get(), &batch, SQ_HIDDEN, out.data(), out.size(), &n);
        CHECK(status == SQ_OK || status == SQ_E_CANCEL || status == SQ_E_BUSY);
        n_cancelled += status == SQ_E_CANCEL;
        if (status == SQ_OK) n_ok++, CHECK(out == expected);
    }
    done = true;
    other.join();
    printf("%d calls ran, %d were cancelled, %d turned away\n", n_ok, n_cancelled, n_busy.load());
    CHECK(n_busy > 0);
    CHECK(n_cancelled > 0);
    sq_ctx_cancel(c.get()); // without a running call: no effect
    CHECK(run(c, b, SQ_HIDDEN, m->arch.width) == expected);
}

// A context from before fork refuses to work in the child, and freeing it there does not hang; a new one works.
void test_fork(const model_handle &m) {
    const batch_builder b = all_rows();
    ctx_handle c = context(m, 3);
    const std::vector<float> expected = run(c, b, SQ_HIDDEN, m->arch.width);
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        const sq_batch batch = b.batch();
        std::vector<float> out(expected.size());
        size_t n;
        bool good = sq_forward(c.get(), &batch, SQ_HIDDEN, out.data(), out.size(), &n) == SQ_E_BUSY;
        c.reset();
        good = good && run(context(m, 1), b, SQ_HIDDEN, m->arch.width) == expected;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(run(c, b, SQ_HIDDEN, m->arch.width) == expected);
}

// Workers bound to a processor, and other spin times, give the same answers; impossible wishes are refused. The caller's own affinity stays.
void test_cpus_and_spin(const model_handle &m) {
    const batch_builder b = all_rows();
    const std::vector<float> expected = run(context(m), b, SQ_HIDDEN, m->arch.width);
    cpu_set_t before, after;
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    int32_t allowed = 0;
    while (!CPU_ISSET(allowed, &before)) allowed++;
    struct wish {
        uint32_t n_threads, spin_us;
        std::vector<int32_t> cpus;
        int32_t status;
    };
    const wish wishes[] = {
        {2, 0, {-7, allowed}, SQ_OK},        {2, 1, {0, -1}, SQ_OK},          {2, 1000000, {}, SQ_OK},     {2, 1000001, {}, SQ_E_LIMIT},
        {2, 0, {allowed, 5000}, SQ_E_ARG}, {2, 0, {allowed, -2}, SQ_E_ARG}, {0, 0, {allowed}, SQ_E_ARG},
    };
    for (const wish &w : wishes) {
        sq_ctx_params p;
        sq_ctx_params_init(&p, sizeof p);
        p.n_threads = w.n_threads;
        p.spin_us = w.spin_us;
        p.cpus = w.cpus.empty() ? nullptr : w.cpus.data();
        sq_ctx *raw = nullptr;
        char err[256] = "";
        CHECK_EQ(sq_ctx_create(m.get(), &p, &raw, err, sizeof err), w.status);
        const ctx_handle c(raw);
        CHECK((raw != nullptr) == (w.status == SQ_OK) && (err[0] != 0) == (w.status != SQ_OK));
        if (c) CHECK(run(c, b, SQ_HIDDEN, m->arch.width) == expected);
    }
    CHECK(sched_getaffinity(0, sizeof after, &after) == 0 && CPU_EQUAL(&before, &after));
}

// Contexts keep their model alive.
void test_free_order(const std::string &bytes) {
    model_handle m = load(bytes);
    const ctx_handle c = context(m, 2);
    const uint32_t D = m->arch.width;
    const batch_builder b = all_rows();
    const std::vector<float> expected = run(c, b, SQ_HIDDEN, D);
    m.reset();
    CHECK(run(c, b, SQ_HIDDEN, D) == expected);
}

} // namespace

int main() {
    const std::string bytes = converted("tests/golden/bert-64", sq::quant_mode::dynamic_scales);
    const model_handle m = load(bytes);
    if (m) {
        test_many_contexts(m);
        test_cancel_and_busy(m);
        test_fork(m);
        test_cpus_and_spin(m);
        test_free_order(bytes);
    }
    return check_summary("test-threads");
}
