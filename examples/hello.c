/* examples/hello.c - how alike are two texts? sq from C in one page.
 *
 *     cc -std=c11 -I. examples/hello.c -L. -lsq -lm -o hello
 *     LD_LIBRARY_PATH=. ./hello minilm.sq "A man is eating." "Someone has lunch."
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sq.h"

static float cosine(const float *x, const float *y, size_t n) {
    float xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        xy += x[i] * y[i];
        xx += x[i] * x[i];
        yy += y[i] * y[i];
    }
    return xx > 0 && yy > 0 ? xy / sqrtf(xx * yy) : 0;
}

/* Embeds both texts in one call: they lie end to end, starts[i] is where text i begins. vectors has room for cap floats; *width is one text's count. */
static int32_t embed_two(sq_ctx *ctx, const char *first, const char *second, float *vectors, size_t cap, size_t *width) {
    const size_t n_first = strlen(first), n_second = strlen(second);
    const size_t starts[3] = {0, n_first, n_first + n_second};
    char *text = malloc(n_first + n_second + 1);
    if (!text) return SQ_E_MEM;
    memcpy(text, first, n_first);
    memcpy(text + n_first, second, n_second);

    sq_texts texts = {.size = sizeof texts, .n_texts = 2, .a = text, .a_starts = starts};
    size_t n = 0;
    const int32_t status = sq_embed(ctx, &texts, NULL, vectors, cap, &n);
    *width = n / 2;
    free(text);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: hello MODEL.sq TEXT TEXT\n");
        return 2;
    }
    sq_model *model = NULL;
    sq_ctx *ctx = NULL;
    float *vectors = NULL;
    size_t width = 0;
    char err[256] = "";
    sq_model_info info = {.size = sizeof info};

    int32_t status = sq_model_load(argv[1], NULL, &model, err, sizeof err);
    if (status == SQ_OK) status = sq_model_get_info(model, &info);
    if (status == SQ_OK) status = sq_ctx_create(model, NULL, &ctx, err, sizeof err);
    if (status == SQ_OK) {
        const size_t cap = 2 * (size_t)info.width;
        vectors = malloc(cap * sizeof *vectors);
        status = vectors ? embed_two(ctx, argv[2], argv[3], vectors, cap, &width) : SQ_E_MEM;
        if (status != SQ_OK) snprintf(err, sizeof err, "%s", sq_ctx_error(ctx));
    }

    if (status == SQ_OK) printf("cosine similarity %.4f\n", cosine(vectors, vectors + width, width));
    else fprintf(stderr, "hello: %s\n", *err ? err : sq_status_string(status));
    free(vectors);
    sq_ctx_free(ctx);
    sq_model_free(model);
    return status == SQ_OK ? 0 : 1;
}
