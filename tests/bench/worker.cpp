// worker.cpp - sq as a contender of tests/bench/compare: loads a model once, then runs forward passes whenever it is told to.
//
// usage: worker MODEL.sq THREADS TOKENS [ISA]         ISA: the highest instruction set to use; none or "auto": the best
//
// Commands are lines on stdin, each answered by one line on stdout:
//     ids I...      the sequence, TOKENS ids; before it is given, other ids are used        ok
//     run SECONDS   calls for that long, and at least three                                 the milliseconds of each call
//     hidden FILE   writes the hidden states, f32 [TOKENS][D], to a file                    ok
//     quit
// The first line on stdout, after loading and one call, is "ready" and what was loaded. A failure ends the process with a sentence on stderr.
// One sequence, no padding; logits where the model has a head, which is what the other contenders compute, else the pooled vector.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "../../sq.h"

namespace {

struct contender {
    sq_ctx *ctx = nullptr;
    int32_t kind = SQ_POOLED;
    std::vector<int32_t> ids;
    std::vector<float> out;
};

[[noreturn]] void fail(const char *problem) {
    fprintf(stderr, "worker: %s\n", problem);
    exit(1);
}

double now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_nsec);
}

size_t forward(contender *c, int32_t kind) {
    const uint32_t starts[] = {0, static_cast<uint32_t>(c->ids.size())};
    const sq_batch b{sizeof b, 1, c->ids.data(), nullptr, starts};
    size_t n = 0;
    if (sq_forward(c->ctx, &b, kind, c->out.data(), c->out.size(), &n) != SQ_OK) fail(sq_ctx_error(c->ctx));
    return n;
}

contender start(const char *path, uint32_t n_threads, uint32_t n_tokens, const char *isa) {
    contender c;
    char err[256] = "";
    sq_model_params mp;
    sq_model_params_init(&mp, sizeof mp);
    if (isa && strcmp(isa, "auto") != 0) mp.isa = isa;
    sq_model *m = nullptr;
    if (sq_model_load(path, &mp, &m, err, sizeof err) != SQ_OK) fail(err);
    sq_ctx_params cp;
    sq_ctx_params_init(&cp, sizeof cp);
    cp.n_threads = n_threads;
    if (sq_ctx_create(m, &cp, &c.ctx, err, sizeof err) != SQ_OK) fail(err);
    sq_model_info info{};
    info.size = sizeof info;
    sq_model_get_info(m, &info);
    if (n_tokens == 0 || n_tokens > info.max_positions) fail("the model takes no sequence of that length");
    if (info.head != SQ_HEAD_NONE) c.kind = SQ_LOGITS;
    c.out.resize(static_cast<size_t>(n_tokens) * (info.width > info.n_labels ? info.width : info.n_labels));
    for (uint32_t t = 0; t < n_tokens; t++) c.ids.push_back(static_cast<int32_t>((t * 7919u + 5) % info.vocab_size));
    forward(&c, c.kind);
    const char *quant = info.quant == SQ_QUANT_STATIC ? "static" : info.quant == SQ_QUANT_DYNAMIC ? "dynamic" : "float";
    printf("ready sq %s %s %s\n", sq_version_string(), sq_isa_string(m), quant);
    fflush(stdout);
    sq_model_free(m); // the context holds it
    return c;
}

void take_ids(contender *c, std::istringstream &words) {
    std::vector<int32_t> ids;
    for (int32_t id; words >> id;) ids.push_back(id);
    if (ids.size() != c->ids.size()) fail("ids: not as many as tokens");
    c->ids = ids;
    forward(c, c->kind); // says now if the model has no such id
    puts("ok");
}

void run(contender *c, double seconds) {
    std::vector<double> times;
    double start = now_ms();
    for (const double end = start + 1e3 * seconds; start < end || times.size() < 3;) {
        forward(c, c->kind);
        const double past = now_ms();
        times.push_back(past - start);
        start = past;
    }
    for (double t : times) printf("%.4f ", t);
    puts("");
}

void write_hidden(contender *c, const std::string &path) {
    const size_t n = forward(c, SQ_HIDDEN);
    FILE *f = fopen(path.c_str(), "wb");
    if (!f) fail("hidden: cannot write the file");
    const bool all = fwrite(c->out.data(), sizeof(float), n, f) == n;
    if (fclose(f) != 0 || !all) fail("hidden: cannot write the file");
    puts("ok");
}

} // namespace

int main(int argc, char **argv) {
    if (argc < 4) fail("usage: worker MODEL.sq THREADS TOKENS [ISA]");
    contender c = start(argv[1], static_cast<uint32_t>(atoi(argv[2])), static_cast<uint32_t>(atoi(argv[3])), argc > 4 ? argv[4] : nullptr);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command, path;
        double seconds = 0;
        words >> command;
        if (command == "quit") break;
        if (command == "ids") take_ids(&c, words);
        else if (command == "run" && words >> seconds) run(&c, seconds);
        else if (command == "hidden" && words >> path) write_hidden(&c, path);
        else fail("unknown command");
        fflush(stdout);
    }
    sq_ctx_free(c.ctx);
    return 0;
}
