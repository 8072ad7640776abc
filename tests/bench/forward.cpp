// forward.cpp - whole forward passes: time, tokens per second and operations per second, for sequences of several lengths.
//
// usage: forward [MODEL.sq [THREADS [TOKENS...]]]     without a model: a random one of MiniLM's shape, static; THREADS 0 or none: the library's default
//
// Batch 1, no padding. Gop/s counts the linear layers' operations over the whole time. Each length runs for about a second after a warm-up; the median is what
// to quote, the best what the machine can do undisturbed. Then how long the file takes to load, and what a ragged batch costs: 32 sequences of 5 to 200 tokens beside
// one of as many tokens in sequences of nearly one length, in turn; the linear layers should not notice.
#include <algorithm>

#include "../../sq-ctx.h"
#include "../models.h"
#include "measure.h"
#include "report.h"

namespace {

std::string random_minilm() {
    sq::convert_options o;
    o.checkpoint = "minilm";
    o.synthetic = true;
    o.output = "/tmp/sq-bench-" + std::to_string(getpid()) + ".sq";
    sq::convert_result result;
    sq::message why{};
    if (sq::convert(o, &result, &why) == SQ_OK) return o.output;
    fprintf(stderr, "forward: %s\n", why.text);
    exit(1);
}

model_handle load_file(const std::string &path) {
    sq_model *m = nullptr;
    char err[256];
    if (sq_model_load(path.c_str(), nullptr, &m, err, sizeof err) == SQ_OK) return model_handle(m);
    fprintf(stderr, "forward: %s\n", err);
    exit(1);
}

double linear_ops(const sq_ctx *c) {
    sq_stats s{};
    s.size = sizeof s;
    sq_ctx_stats(c, &s);
    return static_cast<double>(s.ops[SQ_OP_QKV] + s.ops[SQ_OP_OUT] + s.ops[SQ_OP_UP] + s.ops[SQ_OP_DOWN]);
}

double linear_ns(const sq_ctx *c) {
    sq_stats s{};
    s.size = sizeof s;
    sq_ctx_stats(c, &s);
    return static_cast<double>(s.ns[SQ_OP_QKV] + s.ns[SQ_OP_OUT] + s.ns[SQ_OP_UP] + s.ns[SQ_OP_DOWN]);
}

void measure_loading(const std::string &path) {
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        const double start = now();
        load_file(path);
        best = std::min(best, now() - start);
    }
    printf("loads in %.2f ms (best of 5)\n", 1e3 * best);
}

constexpr uint32_t RAGGED_SEQS = 32, RAGGED_LEAST = 5, RAGGED_MOST = 200;

// Time in linear layers of one pass over sequences with these starts
double linear_of(const ctx_handle &c, const std::vector<uint32_t> &starts, uint32_t vocab, uint32_t width) {
    std::vector<int32_t> ids(starts.back());
    for (uint32_t t = 0; t < ids.size(); t++) ids[t] = static_cast<int32_t>((t * 7919u + 5) % vocab);
    const sq_batch b{sizeof b, RAGGED_SEQS, ids.data(), nullptr, starts.data()};
    std::vector<float> out(RAGGED_SEQS * width);
    size_t n = 0;
    const double before = linear_ns(c.get());
    if (sq_forward(c.get(), &b, SQ_POOLED, out.data(), out.size(), &n) != SQ_OK) {
        fprintf(stderr, "forward: %s\n", sq_ctx_error(c.get()));
        exit(1);
    }
    return linear_ns(c.get()) - before;
}

void measure_ragged(const model_handle &m, uint32_t n_threads) {
    std::vector<uint32_t> ragged(1), even(1);
    for (uint32_t s = 0; s < RAGGED_SEQS; s++) ragged.push_back(ragged.back() + RAGGED_LEAST + (RAGGED_MOST - RAGGED_LEAST) * (s * 13 % RAGGED_SEQS) / (RAGGED_SEQS - 1));
    for (uint32_t s = 0; s < RAGGED_SEQS; s++) even.push_back(ragged.back() * (s + 1) / RAGGED_SEQS);
    const ctx_handle c = context(m, n_threads, ragged.back());
    std::vector<double> ratios;
    constexpr int WARM = 6, RUNS = 15;
    for (int i = 0; c && i < WARM + RUNS; i++) {
        const double r = linear_of(c, ragged, m->arch.vocab, m->arch.width), e = linear_of(c, even, m->arch.vocab, m->arch.width);
        if (i >= WARM) ratios.push_back(r / e);
    }
    if (ratios.empty()) return;
    std::sort(ratios.begin(), ratios.end());
    printf("ragged batch of %u tokens: linear layers take %.3f of an even one's time (median of %d, quartiles %.3f and %.3f)\n", ragged.back(), ratios[RUNS / 2], RUNS,
           ratios[RUNS / 4], ratios[3 * RUNS / 4]);
}

void measure(const ctx_handle &c, uint32_t vocab, uint32_t width, uint32_t tokens) {
    std::vector<int32_t> ids(tokens);
    for (uint32_t t = 0; t < tokens; t++) ids[t] = static_cast<int32_t>((t * 7919u + 5) % vocab);
    const uint32_t starts[] = {0, tokens};
    const sq_batch b{sizeof b, 1, ids.data(), nullptr, starts};
    std::vector<float> out(width);
    std::vector<double> times;
    size_t n = 0;
    double ops = 0;
    for (double end = now() + 1.2, start = now(); start < end;) {
        const double before = linear_ops(c.get());
        if (sq_forward(c.get(), &b, SQ_POOLED, out.data(), out.size(), &n) != SQ_OK) {
            fprintf(stderr, "forward: %s\n", sq_ctx_error(c.get()));
            exit(1);
        }
        const double past = now();
        ops = linear_ops(c.get()) - before;
        if (past > end - 1) times.push_back(past - start); // the first fifth of a second warms up
        start = past;
    }
    if (times.empty()) return;
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2], best = times[0];
    printf("%6u %10.3f %10.3f %12.0f %10.1f\n", tokens, 1e3 * median, 1e3 * best, tokens / median, ops / median / 1e9);
}

} // namespace

int main(int argc, char **argv) {
    const bool given = argc > 1;
    const std::string path = given ? argv[1] : random_minilm();
    const model_handle m = load_file(path);
    const ctx_handle c = context(m, argc > 2 ? static_cast<uint32_t>(atoi(argv[2])) : 0);
    if (!c) return 1;
    print_machine(sq_isa_string(m.get()), c->threads->count());
    printf("%6s %10s %10s %12s %10s\n", "tokens", "median ms", "best ms", "tokens/s", "Gop/s");
    std::vector<uint32_t> lengths = {8, 16, 32, 128, 384};
    if (argc > 3) lengths.clear();
    for (int i = 3; i < argc; i++) lengths.push_back(static_cast<uint32_t>(atoi(argv[i])));
    for (uint32_t tokens : lengths)
        if (tokens > 0 && tokens <= m->arch.n_positions) measure(c, m->arch.vocab, m->arch.width, tokens);
    measure_loading(path);
    if (m->arch.n_positions >= RAGGED_MOST) measure_ragged(m, c->threads->count());
    if (!given) unlink(path.c_str());
    return 0;
}
