/* tests/test-api.c - the C API from C11, through the shared library: every function, its argument errors, sizes of buffers and structs, lifetimes.
 *
 * usage: test-api MODEL.sq      (any small model with a tokenizer; what the numbers are is other tests' matter) */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../sq.h"
#include "check.h"

enum { MAX_FLOATS = 1 << 20, N_LONG = 4096 };

static const char *model_path;
static float out[MAX_FLOATS], again[MAX_FLOATS];

static int32_t load(const sq_model_params *params, sq_model **m, char *err, size_t cap) { return sq_model_load(model_path, params, m, err, cap); }

static void *read_file(size_t *n) {
    FILE *f = fopen(model_path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *data = aligned_alloc(64, (*n + 127) / 64 * 64);
    if (data && fread(data, 1, *n, f) != *n) *n = 0;
    fclose(f);
    return data;
}

/* ---- model ---- */

static void test_load_errors(void) {
    sq_model *m = (sq_model *)&m;
    char err[256] = "x";
    CHECK_EQ(sq_model_load("/nonexistent/model.sq", NULL, &m, err, sizeof err), SQ_E_IO);
    CHECK(m == NULL);
    CHECK(strlen(err) > 10);
    char small[8] = "xxxxxxx";
    CHECK_EQ(sq_model_load("/nonexistent/model.sq", NULL, &m, small, sizeof small), SQ_E_IO);
    CHECK_EQ(strlen(small), 7);
    CHECK_EQ(sq_model_load("/nonexistent/model.sq", NULL, &m, NULL, 0), SQ_E_IO);
    CHECK_EQ(sq_model_load("/nonexistent/model.sq", NULL, &m, err, 0), SQ_E_IO);
    CHECK(sq_model_load(NULL, NULL, &m, err, sizeof err) < 0);
    CHECK(sq_model_load("/", NULL, &m, err, sizeof err) < 0);
    CHECK_EQ(load(NULL, NULL, err, sizeof err), SQ_E_ARG);
    CHECK(sq_model_load_fd(-1, NULL, &m, err, sizeof err) < 0);

    static const char junk[128] = "not a model at all";
    sq_model_params p;
    sq_model_params_init(&p, sizeof p);
    p.copy = 1;
    CHECK_EQ(sq_model_load_memory(junk, sizeof junk, &p, &m, err, sizeof err), SQ_E_FORMAT);
    CHECK_EQ(sq_model_load_memory(junk, 0, &p, &m, err, sizeof err), SQ_E_FORMAT);
    CHECK(sq_model_load_memory(NULL, 0, &p, &m, err, sizeof err) < 0);
    CHECK(m == NULL);
}

static void test_load_params(void) {
    struct {
        sq_model_params known;
        uint32_t future[4];
    } p;
    sq_model *m;
    char err[256];
    sq_model_params_init(&p.known, sizeof p);
    CHECK_EQ(p.known.size, sizeof p);
    CHECK_EQ(load(&p.known, &m, err, sizeof err), SQ_OK); /* a longer struct whose unknown tail is zero */
    sq_model_free(m);
    p.future[3] = 1;
    CHECK_EQ(load(&p.known, &m, err, sizeof err), SQ_E_VERSION);
    CHECK(m == NULL);

    sq_model_params q;
    sq_model_params_init(&q, sizeof q);
    q.isa = "no such instruction set";
    CHECK_EQ(load(&q, &m, err, sizeof err), SQ_E_CPU);
    q.size = offsetof(sq_model_params, isa); /* an older, shorter struct: the pointer above is not seen */
    CHECK_EQ(load(&q, &m, err, sizeof err), SQ_OK);
    sq_model_free(m);
    q.size = 0;
    CHECK_EQ(load(&q, &m, err, sizeof err), SQ_E_ARG);

    sq_model_params_init(&q, sizeof q);
    q.isa = "plain";
    q.verify = 1;
    CHECK_EQ(load(&q, &m, err, sizeof err), SQ_OK);
    CHECK_EQ(sq_isa_string(m), "plain");
    CHECK_EQ(sq_isa_reason(m), "sq_model_params.isa asks for it");
    sq_model_free(m);
    CHECK(sq_isa_string(NULL) == NULL);
    CHECK(sq_isa_reason(NULL) == NULL);
    CHECK(strlen(sq_isa_best()) > 2);
    sq_model_params_init(NULL, sizeof q);
}

static void test_load_memory(void) {
    size_t n = 0;
    sq_model *m;
    char err[256] = "";
    char *data = read_file(&n);
    if (!CHECK(data && n > 0)) return;
    CHECK_EQ(sq_model_load_memory(data, n, NULL, &m, err, sizeof err), SQ_OK);
    sq_model_free(m);
    CHECK_EQ(sq_model_load_memory(data, n - 1, NULL, &m, err, sizeof err), SQ_E_FORMAT);
    memmove(data + 4, data, n); /* read_file left room */
    CHECK_EQ(sq_model_load_memory(data + 4, n, NULL, &m, err, sizeof err), SQ_E_ARG);
    sq_model_params p;
    sq_model_params_init(&p, sizeof p);
    p.copy = 1;
    CHECK_EQ(sq_model_load_memory(data + 4, n, &p, &m, err, sizeof err), SQ_OK);
    free(data); /* with copy, the model does not need the bytes any more */
    sq_model_info info = {.size = sizeof info};
    CHECK_EQ(sq_model_get_info(m, &info), SQ_OK);
    sq_model_free(m);

    const int fd = open(model_path, O_RDONLY);
    CHECK_EQ(sq_model_load_fd(fd, NULL, &m, err, sizeof err), SQ_OK);
    close(fd);
    CHECK_EQ(sq_model_get_info(m, &info), SQ_OK);
    CHECK_EQ(info.file_bytes, n);
    sq_model_free(m);
    sq_model_free(NULL);
}

static void test_info(sq_model *m) {
    struct {
        sq_model_info known;
        uint64_t future;
    } i;
    memset(&i, 0xFF, sizeof i);
    i.known.size = sizeof i;
    CHECK_EQ(sq_model_get_info(m, &i.known), SQ_OK);
    CHECK_EQ(i.future, 0);
    CHECK(i.known.n_layers > 0 && i.known.width > 0 && i.known.vocab_size > 0 && i.known.max_tokens > 0);
    CHECK(i.known.max_tokens <= i.known.max_positions);
    sq_model_info shorter;
    memset(&shorter, 0xFF, sizeof shorter);
    shorter.size = offsetof(sq_model_info, n_heads);
    CHECK_EQ(sq_model_get_info(m, &shorter), SQ_OK);
    CHECK_EQ(shorter.width, i.known.width);
    CHECK_EQ(shorter.n_heads, UINT32_MAX); /* past the caller's size nothing is written */
    shorter.size = 0;
    CHECK_EQ(sq_model_get_info(m, &shorter), SQ_E_ARG);
    CHECK_EQ(sq_model_get_info(NULL, &i.known), SQ_E_ARG);
    CHECK_EQ(sq_model_get_info(m, NULL), SQ_E_ARG);
}

static void test_meta(sq_model *m) {
    uint32_t n_keys = 0;
    char value[64];
    size_t n = 0, n_again = 0;
    for (const char *key; (key = sq_model_meta_key(m, n_keys)) != NULL; n_keys++) {
        const int32_t status = sq_model_meta(m, key, value, sizeof value, &n);
        CHECK(status == SQ_OK ? n <= sizeof value : status == SQ_E_SPACE && n > sizeof value);
        CHECK_EQ(sq_model_meta(m, key, NULL, 0, &n_again), n ? SQ_E_SPACE : SQ_OK);
        CHECK_EQ(n, n_again);
    }
    CHECK(n_keys > 0);
    CHECK(sq_model_meta_key(m, UINT32_MAX) == NULL);
    CHECK(sq_model_meta_key(NULL, 0) == NULL);
    const char *key = sq_model_meta_key(m, 0);
    CHECK_EQ(sq_model_meta(m, "no such key", value, sizeof value, &n), SQ_E_ARG);
    CHECK_EQ(sq_model_meta(NULL, key, value, sizeof value, &n), SQ_E_ARG);
    CHECK_EQ(sq_model_meta(m, NULL, value, sizeof value, &n), SQ_E_ARG);
    CHECK_EQ(sq_model_meta(m, key, value, sizeof value, NULL), SQ_E_ARG);
    CHECK_EQ(sq_model_meta(m, key, NULL, 1, &n), SQ_E_ARG);
}

/* ---- text ---- */

static void test_tokenize(sq_model *m) {
    int32_t ids[64], types[64], sources[64];
    uint32_t spans[128];
    size_t n = 0, need = 0;
    const char *text = "hello there";
    const size_t n_text = strlen(text);
    CHECK_EQ(sq_tokenize(m, text, n_text, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, &need), SQ_E_SPACE);
    CHECK(need > 2);
    CHECK_EQ(sq_tokenize(m, text, n_text, NULL, 0, NULL, ids, types, spans, sources, 64, &n), SQ_OK);
    CHECK_EQ(n, need);
    CHECK_EQ(sources[0], -1);
    CHECK_EQ(sources[1], 0);
    CHECK_EQ(spans[2], 0);
    CHECK(spans[3] > 0 && spans[3] <= n_text);
    CHECK_EQ(sq_tokenize(m, text, n_text, NULL, 0, NULL, ids, NULL, NULL, NULL, n, &n), SQ_OK);
    CHECK_EQ(sq_tokenize(m, text, n_text, NULL, 0, NULL, ids, types, spans, sources, n - 1, &n), SQ_E_SPACE);
    CHECK_EQ(n, need);
    CHECK_EQ(sq_tokenize(m, text, n_text, "", 0, NULL, NULL, NULL, NULL, sources, 64, &n), SQ_OK); /* a pair whose second text is empty */
    CHECK(n > need);
    CHECK_EQ(sq_tokenize(m, NULL, 0, NULL, 0, NULL, ids, NULL, NULL, NULL, 64, &n), SQ_OK);
    CHECK(n >= 1);
    CHECK_EQ(sq_tokenize(m, "a\0b\xff", 4, NULL, 0, NULL, ids, NULL, NULL, NULL, 64, &n), SQ_OK); /* NUL and invalid bytes are data */

    CHECK_EQ(sq_tokenize(NULL, text, n_text, NULL, 0, NULL, ids, NULL, NULL, NULL, 64, &n), SQ_E_ARG);
    CHECK_EQ(sq_tokenize(m, NULL, 1, NULL, 0, NULL, ids, NULL, NULL, NULL, 64, &n), SQ_E_ARG);
    CHECK_EQ(sq_tokenize(m, text, n_text, NULL, 1, NULL, ids, NULL, NULL, NULL, 64, &n), SQ_E_ARG);
    CHECK_EQ(sq_tokenize(m, text, n_text, NULL, 0, NULL, ids, NULL, NULL, NULL, 64, NULL), SQ_E_ARG);
}

static void test_tokenize_params(sq_model *m) {
    struct {
        sq_tokenize_params known;
        uint32_t future;
    } p;
    int32_t ids[64];
    size_t n = 0, full = 0;
    const char *text = "hello there you and me";
    CHECK_EQ(sq_tokenize(m, text, strlen(text), NULL, 0, NULL, ids, NULL, NULL, NULL, 64, &full), SQ_OK);
    sq_tokenize_params_init(&p.known, sizeof p);
    p.known.max_len = (uint32_t)full - 1;
    CHECK_EQ(sq_tokenize(m, text, strlen(text), NULL, 0, &p.known, ids, NULL, NULL, NULL, 64, &n), SQ_E_LIMIT);
    CHECK_EQ(n, full);
    p.known.truncate = 1;
    CHECK_EQ(sq_tokenize(m, text, strlen(text), NULL, 0, &p.known, ids, NULL, NULL, NULL, 64, &n), SQ_OK);
    CHECK_EQ(n, full - 1);
    p.future = 7;
    CHECK_EQ(sq_tokenize(m, text, strlen(text), NULL, 0, &p.known, ids, NULL, NULL, NULL, 64, &n), SQ_E_VERSION);
    p.known.size = 8; /* max_len only: no truncation */
    CHECK_EQ(sq_tokenize(m, text, strlen(text), NULL, 0, &p.known, ids, NULL, NULL, NULL, 64, &n), SQ_E_LIMIT);
    p.known.size = 3;
    CHECK_EQ(sq_tokenize(m, text, strlen(text), NULL, 0, &p.known, ids, NULL, NULL, NULL, 64, &n), SQ_E_ARG);

    size_t n_bytes = 0;
    CHECK(sq_token_text(m, ids[0], &n_bytes) != NULL);
    CHECK(n_bytes > 0);
    CHECK(sq_token_text(m, -1, &n_bytes) == NULL);
    CHECK(sq_token_text(m, INT32_MAX, &n_bytes) == NULL);
    CHECK(sq_token_text(NULL, 0, &n_bytes) == NULL);
    CHECK(sq_token_text(m, ids[0], NULL) == NULL);
}

/* ---- context ---- */

static sq_ctx *make_ctx(sq_model *m, uint32_t n_threads) {
    sq_ctx_params p;
    sq_ctx *c = NULL;
    char err[256] = "";
    sq_ctx_params_init(&p, sizeof p);
    p.n_threads = n_threads;
    CHECK_EQ(sq_ctx_create(m, &p, &c, err, sizeof err), SQ_OK);
    CHECK_EQ(err, "");
    return c;
}

static void test_ctx(sq_model *m) {
    struct {
        sq_ctx_params known;
        uint32_t future;
    } p;
    sq_ctx *c = (sq_ctx *)&c;
    char err[256] = "";
    CHECK_EQ(sq_ctx_create(NULL, NULL, &c, err, sizeof err), SQ_E_ARG);
    CHECK(c == NULL);
    CHECK(*err);
    CHECK_EQ(sq_ctx_create(m, NULL, NULL, err, sizeof err), SQ_E_ARG);
    sq_ctx_params_init(&p.known, sizeof p);
    p.future = 1;
    CHECK_EQ(sq_ctx_create(m, &p.known, &c, NULL, 0), SQ_E_VERSION);
    p.future = 0;
    p.known.n_threads = UINT32_MAX;
    CHECK_EQ(sq_ctx_create(m, &p.known, &c, err, sizeof err), SQ_E_LIMIT);
    p.known.n_threads = 1;
    p.known.max_tokens = UINT32_MAX;
    CHECK_EQ(sq_ctx_create(m, &p.known, &c, err, sizeof err), SQ_E_LIMIT);
    CHECK(c == NULL);
    sq_ctx_free(NULL);
    sq_ctx_cancel(NULL);
    CHECK_EQ(sq_ctx_error(NULL), "");

    c = make_ctx(m, 3);
    struct {
        sq_stats known;
        size_t future;
    } s;
    memset(&s, 0xFF, sizeof s);
    s.known.size = sizeof s;
    CHECK_EQ(sq_ctx_stats(c, &s.known), SQ_OK);
    CHECK_EQ(s.known.n_threads, 3);
    CHECK_EQ(s.known.n_forward, 0);
    CHECK(s.known.scratch_bytes > 0);
    CHECK_EQ(s.future, 0);
    CHECK_EQ(sq_ctx_stats(NULL, &s.known), SQ_E_ARG);
    CHECK_EQ(sq_ctx_stats(c, NULL), SQ_E_ARG);
    sq_ctx_free(c);
}

/* ---- compute ---- */

static int32_t forward(sq_ctx *c, uint32_t n_seqs, const int32_t *ids, const int32_t *types, const uint32_t *starts, int32_t kind, size_t cap, size_t *n) {
    const sq_batch b = {.size = sizeof b, .n_seqs = n_seqs, .ids = ids, .types = types, .starts = starts};
    return sq_forward(c, &b, kind, out, cap, n);
}

static void test_forward(sq_model *m) {
    sq_model_info info = {.size = sizeof info};
    sq_model_get_info(m, &info);
    sq_ctx *c = make_ctx(m, 2);
    const size_t D = info.width;
    const int32_t ids[5] = {0, 1, 2, 3, 4}, types[5] = {0, 0, 0, 0, 0};
    const uint32_t starts[3] = {0, 2, 5};
    size_t n = 0;
    CHECK_EQ(forward(c, 2, ids, types, starts, SQ_HIDDEN, MAX_FLOATS, &n), SQ_OK);
    CHECK_EQ(n, 5 * D);
    memcpy(again, out, n * sizeof *out);
    CHECK_EQ(forward(c, 2, ids, NULL, starts, SQ_HIDDEN, n, &n), SQ_OK);
    CHECK(memcmp(again, out, n * sizeof *out) == 0);
    CHECK_EQ(forward(c, 2, ids, types, starts, SQ_POOLED, MAX_FLOATS, &n), SQ_OK);
    CHECK_EQ(n, 2 * D);
    CHECK_EQ(forward(c, 2, ids, types, starts, SQ_POOLED, n - 1, &n), SQ_E_SPACE);
    CHECK_EQ(n, 2 * D);
    CHECK(*sq_ctx_error(c));
    CHECK_EQ(forward(c, 0, NULL, NULL, NULL, SQ_POOLED, 0, &n), SQ_OK);
    CHECK_EQ(n, 0);
    CHECK_EQ(sq_ctx_error(c), "");
    CHECK_EQ(forward(c, 2, ids, types, starts, SQ_LOGITS, MAX_FLOATS, &n), SQ_E_TASK);
    CHECK_EQ(forward(c, 2, ids, types, starts, 0, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(forward(c, 2, ids, types, starts, 99, MAX_FLOATS, &n), SQ_E_ARG);
    sq_stats s = {.size = sizeof s};
    CHECK_EQ(sq_ctx_stats(c, &s), SQ_OK);
    CHECK_EQ(s.n_forward, 3);
    CHECK_EQ(s.n_tokens, 15);
    CHECK(s.ops[SQ_OP_QKV] > 0);
    sq_ctx_free(c);
}

static void test_forward_errors(sq_model *m) {
    sq_model_info info = {.size = sizeof info};
    sq_model_get_info(m, &info);
    sq_ctx *c = make_ctx(m, 1);
    const int32_t ids[3] = {0, 1, 2}, over[3] = {0, 1, (int32_t)info.vocab_size}, under[3] = {0, -1, 2}, types[3] = {0, 0, 1000};
    const uint32_t starts[3] = {0, 2, 3}, late[3] = {1, 2, 3}, flat[3] = {0, 2, 2}, fall[3] = {0, 3, 2};
    static int32_t zeros[N_LONG];
    const uint32_t whole[2] = {0, info.max_positions + 1};
    size_t n = 0;
    CHECK_EQ(forward(c, 2, over, NULL, starts, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK(strstr(sq_ctx_error(c), "2") != NULL); /* names the place */
    CHECK_EQ(forward(c, 2, under, NULL, starts, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(forward(c, 2, ids, types, starts, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(forward(c, 2, ids, NULL, late, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(forward(c, 2, ids, NULL, flat, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(forward(c, 2, ids, NULL, fall, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(forward(c, 2, NULL, NULL, starts, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(forward(c, 2, ids, NULL, NULL, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    if (info.max_positions < N_LONG) CHECK_EQ(forward(c, 1, zeros, NULL, whole, SQ_POOLED, MAX_FLOATS, &n), SQ_E_LIMIT);
    CHECK_EQ(forward(c, 2, ids, NULL, starts, SQ_POOLED, MAX_FLOATS, NULL), SQ_E_ARG);
    CHECK_EQ(forward(NULL, 2, ids, NULL, starts, SQ_POOLED, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(sq_forward(c, NULL, SQ_POOLED, out, MAX_FLOATS, &n), SQ_E_ARG);
    const sq_batch b = {.size = sizeof b, .n_seqs = 2, .ids = ids, .starts = starts};
    CHECK_EQ(sq_forward(c, &b, SQ_POOLED, NULL, 1, &n), SQ_E_ARG);
    CHECK_EQ(sq_forward(c, &b, SQ_POOLED, NULL, 0, &n), SQ_E_SPACE);
    CHECK_EQ(sq_forward(c, &b, SQ_POOLED, out, MAX_FLOATS, &n), SQ_OK); /* errors leave the context usable */
    sq_ctx_free(c);
}

/* More texts than one forward pass takes, one of them empty; each must equal itself alone. */
static void test_embed(sq_model *m) {
    enum { N = 150 };
    sq_model_info info = {.size = sizeof info};
    sq_model_get_info(m, &info);
    const size_t D = info.width;
    sq_ctx *c = make_ctx(m, 2);
    static char text[N * 16];
    size_t starts[N + 1] = {0}, n = 0;
    for (size_t i = 0; i < N; i++) {
        const int len = i == 7 ? 0 : snprintf(text + starts[i], 16, "text %zu", i % 50);
        starts[i + 1] = starts[i] + (size_t)len;
    }
    sq_texts t = {.size = sizeof t, .n_texts = N, .a = text, .a_starts = starts};
    if (!CHECK(N * D <= MAX_FLOATS)) return;
    CHECK_EQ(sq_embed(c, &t, NULL, NULL, 0, &n), SQ_E_SPACE);
    CHECK_EQ(n, N * D);
    CHECK_EQ(sq_embed(c, &t, NULL, out, n, &n), SQ_OK);
    t.n_texts = 1;
    for (size_t i = 0; i < N; i += 7) {
        t.a_starts = starts + i;
        CHECK_EQ(sq_embed(c, &t, NULL, again, D, &n), SQ_OK);
        CHECK(memcmp(again, out + i * D, D * sizeof *out) == 0);
    }
    const size_t none[2] = {0, 0};
    const sq_texts empty = {.size = sizeof empty, .n_texts = 1, .a = NULL, .a_starts = none};
    CHECK_EQ(sq_embed(c, &empty, NULL, again, D, &n), SQ_OK);
    CHECK(memcmp(again, out + 7 * D, D * sizeof *out) == 0);
    t.n_texts = 0;
    CHECK_EQ(sq_embed(c, &t, NULL, NULL, 0, &n), SQ_OK);
    CHECK_EQ(n, 0);
    sq_ctx_free(c);
}

static int32_t embed_one(sq_ctx *c, const char *a, const char *b, const sq_embed_params *p, size_t cap, size_t *n) {
    const size_t a_starts[2] = {0, strlen(a)}, b_starts[2] = {0, b ? strlen(b) : 0};
    const sq_texts t = {.size = sizeof t, .n_texts = 1, .a = a, .a_starts = a_starts, .b = b, .b_starts = b ? b_starts : NULL};
    return sq_embed(c, &t, p, out, cap, n);
}

static double norm(size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)out[i] * out[i];
    return sqrt(sum);
}

static void test_embed_params(sq_model *m) {
    sq_model_info info = {.size = sizeof info};
    sq_model_get_info(m, &info);
    sq_ctx *c = make_ctx(m, 1);
    static char words[2 * N_LONG + 1];
    for (int i = 0; i < N_LONG; i++) memcpy(words + 2 * i, "a ", 2);
    struct {
        sq_embed_params known;
        uint32_t future;
    } p;
    size_t n = 0;
    sq_embed_params_init(&p.known, sizeof p);
    p.known.normalize = SQ_NORMALIZE_YES;
    p.known.dimensions = 5;
    CHECK_EQ(embed_one(c, "hello there", NULL, &p.known, MAX_FLOATS, &n), SQ_OK);
    CHECK_EQ(n, 5);
    CHECK_NEAR(norm(5), 1, 1e-5);
    p.known.normalize = SQ_NORMALIZE_NO;
    p.known.pooling = SQ_POOL_CLS;
    p.known.dimensions = 0;
    CHECK_EQ(embed_one(c, "hello there", "a pair", &p.known, MAX_FLOATS, &n), SQ_OK);
    CHECK_EQ(n, info.width);
    CHECK_EQ(embed_one(c, words, NULL, &p.known, MAX_FLOATS, &n), SQ_E_LIMIT);
    CHECK(strstr(sq_ctx_error(c), "4098") != NULL); /* its length in tokens */
    p.known.truncate = 1;
    CHECK_EQ(embed_one(c, words, NULL, &p.known, MAX_FLOATS, &n), SQ_OK);
    p.known.dimensions = info.width + 1;
    CHECK_EQ(embed_one(c, "x", NULL, &p.known, MAX_FLOATS, &n), SQ_E_ARG);
    p.known.dimensions = 0;
    p.known.pooling = 4;
    CHECK_EQ(embed_one(c, "x", NULL, &p.known, MAX_FLOATS, &n), SQ_E_ARG);
    p.known.pooling = 0;
    p.known.normalize = 3;
    CHECK_EQ(embed_one(c, "x", NULL, &p.known, MAX_FLOATS, &n), SQ_E_ARG);
    p.known.normalize = 0;
    p.future = 1;
    CHECK_EQ(embed_one(c, "x", NULL, &p.known, MAX_FLOATS, &n), SQ_E_VERSION);

    const size_t fall[3] = {0, 2, 1};
    const sq_texts t = {.size = sizeof t, .n_texts = 2, .a = "ab", .a_starts = fall};
    CHECK_EQ(sq_embed(c, &t, NULL, out, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(sq_embed(c, NULL, NULL, out, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(sq_embed(NULL, &t, NULL, out, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(embed_one(c, "x", NULL, NULL, MAX_FLOATS, NULL), SQ_E_ARG);
    sq_ctx_free(c);
}

/* ---- tasks: what they refuse; their answers are other tests' matter ---- */

static void test_tasks_without_head(sq_model *m) {
    sq_model_info info = {.size = sizeof info};
    sq_model_get_info(m, &info);
    if (!CHECK_EQ(info.head, SQ_HEAD_NONE)) return;
    sq_ctx *c = make_ctx(m, 1);
    const size_t starts[2] = {0, 5};
    const sq_texts t = {.size = sizeof t, .n_texts = 1, .a = "hello", .a_starts = starts};
    sq_answer_span span;
    sq_entity entity;
    uint32_t order[1];
    size_t n = 0;
    CHECK_EQ(sq_classify(c, &t, NULL, out, NULL, MAX_FLOATS, &n), SQ_E_TASK);
    CHECK(*sq_ctx_error(c));
    CHECK_EQ(sq_rerank(c, "who", 3, &t, NULL, out, order, 1, &n), SQ_E_TASK);
    CHECK_EQ(sq_answer(c, "who", 3, "me", 2, NULL, &span, 1, &n), SQ_E_TASK);
    CHECK_EQ(sq_tag(c, &t, NULL, &entity, 1, &n), SQ_E_TASK);
    CHECK_EQ(sq_classify(NULL, &t, NULL, out, NULL, MAX_FLOATS, &n), SQ_E_ARG);
    CHECK_EQ(sq_rerank(NULL, "who", 3, &t, NULL, out, order, 1, &n), SQ_E_ARG);
    CHECK_EQ(sq_answer(NULL, "who", 3, "me", 2, NULL, &span, 1, &n), SQ_E_ARG);
    CHECK_EQ(sq_tag(NULL, &t, NULL, &entity, 1, &n), SQ_E_ARG);
    CHECK(sq_model_label(m, 0, &n) == NULL);
    CHECK(sq_model_label(NULL, 0, &n) == NULL);
    sq_ctx_free(c);

    sq_classify_params classify;
    sq_answer_params answer;
    sq_tag_params tag;
    sq_classify_params_init(&classify, sizeof classify);
    sq_answer_params_init(&answer, sizeof answer);
    sq_tag_params_init(&tag, sizeof tag);
    CHECK_EQ(classify.size, sizeof classify);
    CHECK_EQ(answer.size, sizeof answer);
    CHECK_EQ(tag.size, sizeof tag);
}

static void test_smaller_vectors(void) {
    const float v[9] = {1, -2, 0, 0.5f, 2, -0.0f, 65504, 1e-3f, 3};
    int8_t s8[9];
    uint16_t f16[9];
    uint8_t bits[2] = {0xFF, 0xFF};
    CHECK_NEAR(sq_to_s8(v, 5, s8), 2.0 / 127, 1e-9);
    CHECK_EQ(s8[0], 64); /* 63.5 to even */
    CHECK_EQ(s8[1], -127);
    CHECK_EQ(s8[2], 0);
    CHECK_EQ(s8[4], 127);
    CHECK(sq_to_s8(v + 2, 1, s8) == 0);
    sq_to_f16(v, 9, f16);
    CHECK_EQ(f16[0], 0x3C00);
    CHECK_EQ(f16[1], 0xC000);
    CHECK_EQ(f16[5], 0x8000);
    CHECK_EQ(f16[6], 0x7BFF);
    sq_to_bits(v, 9, bits);
    CHECK_EQ(bits[0], 0x9B); /* + - 0 + + 0 + + */
    CHECK_EQ(bits[1], 0x80);
}

/* ---- lifetimes ---- */

static void test_free_order(void) {
    sq_model *m;
    char err[256];
    size_t n = 0;
    CHECK_EQ(load(NULL, &m, err, sizeof err), SQ_OK);
    sq_ctx *first = make_ctx(m, 2), *second = make_ctx(m, 1);
    sq_model_free(m); /* the contexts hold it */
    sq_ctx_cancel(first); /* nothing runs: no effect */
    CHECK_EQ(embed_one(first, "hello", NULL, NULL, MAX_FLOATS, &n), SQ_OK);
    memcpy(again, out, n * sizeof *out);
    sq_ctx_free(first);
    CHECK_EQ(embed_one(second, "hello", NULL, NULL, MAX_FLOATS, &n), SQ_OK);
    CHECK(memcmp(again, out, n * sizeof *out) == 0);
    sq_ctx_free(second);
}

static void test_fork(sq_model *m) {
    sq_ctx *c = make_ctx(m, 2);
    size_t n = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const int32_t status = embed_one(c, "hello", NULL, NULL, MAX_FLOATS, &n);
        sq_ctx_free(c);
        /* The model itself may be used on both sides. One thread: ThreadSanitizer cannot follow threads that start in a forked child. */
        const sq_ctx_params p = {.size = sizeof p, .n_threads = 1};
        sq_ctx *own = NULL;
        int ok = status == SQ_E_BUSY && sq_ctx_create(m, &p, &own, NULL, 0) == SQ_OK;
        ok = ok && embed_one(own, "hello", NULL, NULL, MAX_FLOATS, &n) == SQ_OK;
        sq_ctx_free(own);
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
    CHECK_EQ(embed_one(c, "hello", NULL, NULL, MAX_FLOATS, &n), SQ_OK);
    sq_ctx_free(c);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        SKIP("no model file: usage: test-api MODEL.sq");
        return check_summary("test-api");
    }
    model_path = argv[1];
    sq_model *m = NULL;
    char err[256] = "";
    CHECK_EQ(load(NULL, &m, err, sizeof err), SQ_OK);
    CHECK_EQ(err, "");
    if (!m) return check_summary("test-api");
    test_load_errors();
    test_load_params();
    test_load_memory();
    test_info(m);
    test_meta(m);
    test_tokenize(m);
    test_tokenize_params(m);
    test_ctx(m);
    test_forward(m);
    test_forward_errors(m);
    test_embed(m);
    test_embed_params(m);
    test_tasks_without_head(m);
    test_smaller_vectors();
    test_free_order();
    test_fork(m);
    sq_model_free(m);
    return check_summary("test-api");
}
