/* tests/bindings/call.c - how long a call of sq_embed takes from C: what the bindings' benchmarks compare themselves with, block by block.
 *
 * usage: call MODEL.sq TEXT    For each line of standard input, a count of calls, it makes so many calls on one thread and writes the nanoseconds of the
 * median and of the fastest.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sq.h"

#define MAX_CALLS 100000

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *x, const void *y) {
    const int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

static int32_t run_block(sq_ctx *ctx, const sq_texts *texts, int n_calls, float *vector, size_t cap) {
    static int64_t times[MAX_CALLS];
    for (int i = 0; i < n_calls; i++) {
        size_t n = 0;
        const int64_t start = now_ns();
        const int32_t status = sq_embed(ctx, texts, NULL, vector, cap, &n);
        times[i] = now_ns() - start;
        if (status != SQ_OK) return status;
    }
    qsort(times, (size_t)n_calls, sizeof *times, by_value);
    printf("%lld %lld\n", (long long)times[n_calls / 2], (long long)times[0]);
    fflush(stdout);
    return SQ_OK;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: call MODEL.sq TEXT\n");
        return 2;
    }
    sq_model *model = NULL;
    sq_ctx *ctx = NULL;
    char err[256] = "";
    sq_model_info info = {.size = sizeof info};
    const sq_ctx_params one_thread = {.size = sizeof one_thread, .n_threads = 1, .no_tuning = 1};
    if (sq_model_load(argv[1], NULL, &model, err, sizeof err) != SQ_OK || sq_ctx_create(model, &one_thread, &ctx, err, sizeof err) != SQ_OK ||
        sq_model_get_info(model, &info) != SQ_OK) {
        fprintf(stderr, "call: %s\n", err);
        return 1;
    }
    const size_t starts[2] = {0, strlen(argv[2])};
    const sq_texts texts = {.size = sizeof texts, .n_texts = 1, .a = argv[2], .a_starts = starts};
    float *vector = malloc(info.embed_width * sizeof *vector);
    int32_t status = vector ? SQ_OK : SQ_E_MEM;
    for (int n_calls; status == SQ_OK && scanf("%d", &n_calls) == 1 && n_calls > 0 && n_calls <= MAX_CALLS;)
        status = run_block(ctx, &texts, n_calls, vector, info.embed_width);
    if (status != SQ_OK) fprintf(stderr, "call: %s\n", sq_ctx_error(ctx));
    free(vector);
    sq_ctx_free(ctx);
    sq_model_free(model);
    return status == SQ_OK ? 0 : 1;
}
