/* tests/bindings/reference.c - what the bindings of examples/ must give, from C: tokens, vectors, scores, answers and entities, floats as their bits.
 *
 * usage: reference FOLDER      FOLDER has texts.txt (a text a line) and embed.sq, classify.sq, score.sq, answer.sq, tag.sq
 *
 * It writes into FOLDER, numbers in decimal, floats as the eight hexadecimal digits of their bits, separated by spaces:
 *   tokens.txt    a line for each text: id,type,start,end of each token
 *   embed.txt     a line for each text: its vector
 *   scores.txt    a line for each text: its scores by classify.sq;  logits.txt: its logits
 *   pairs.txt     a line for each text: the logits of (this text, the next one); the last one's next is the first
 *   rerank.txt    a line for each text, best first: index and score by score.sq, the query being the first text
 *   answer.txt    a line for each answer, best first: start, end, score, probability; the question is the first text, the context all texts joined by spaces
 *   structs.txt   a line for each struct of sq.h that a binding lays out by itself: its name, its size in bytes, the offset of each field in their order
 *   tag.txt       a line for each entity: text, start, end, words, score, label;  words.txt: the same for each word
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sq.h"

#define MAX_TEXTS 256
#define MAX_RESULTS 65536 /* floats, tokens, entities of all texts together */

static const char *folder;

static struct {
    char *bytes; /* the texts end to end */
    size_t starts[MAX_TEXTS + 1];
    uint32_t n;
} texts;

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "reference: %s: %s\n", what, why);
    exit(1);
}

static FILE *file(const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, mode);
    if (!f) give_up(path, "cannot be opened");
    return f;
}

static void *room(size_t n, size_t size) {
    void *p = calloc(n, size);
    if (!p) give_up("memory", "none is left");
    return p;
}

static void read_texts(void) {
    FILE *f = file("texts.txt", "r");
    char line[4096];
    size_t used = 0;
    texts.bytes = room(MAX_TEXTS, sizeof line);
    while (texts.n < MAX_TEXTS && fgets(line, sizeof line, f)) {
        const size_t n_bytes = strcspn(line, "\n");
        memcpy(texts.bytes + used, line, n_bytes);
        used += n_bytes;
        texts.starts[++texts.n] = used;
    }
    fclose(f);
}

static sq_ctx *open_context(const char *name) {
    char path[4096], err[256] = "";
    sq_model *model = NULL;
    sq_ctx *ctx = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (sq_model_load(path, NULL, &model, err, sizeof err) != SQ_OK || sq_ctx_create(model, NULL, &ctx, err, sizeof err) != SQ_OK) give_up(path, err);
    sq_model_free(model); /* the context holds it */
    return ctx;
}

static sq_model *open_model(const char *name) {
    char path[4096], err[256] = "";
    sq_model *model = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (sq_model_load(path, NULL, &model, err, sizeof err) != SQ_OK) give_up(path, err);
    return model;
}

static void must(sq_ctx *ctx, const char *what, int32_t status) {
    if (status != SQ_OK) give_up(what, sq_ctx_error(ctx));
}

static void write_bits(FILE *f, float x, char end) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    fprintf(f, "%08x%c", (unsigned)bits, end);
}

static void write_rows(const char *name, const float *x, size_t n) {
    FILE *f = file(name, "w");
    const size_t width = n / texts.n;
    for (size_t i = 0; i < n; i++) write_bits(f, x[i], (i + 1) % width ? ' ' : '\n');
    fclose(f);
}

static void write_tokens(const char *model_name) {
    static int32_t ids[MAX_RESULTS], types[MAX_RESULTS];
    static uint32_t spans[2 * MAX_RESULTS];
    sq_model *model = open_model(model_name);
    FILE *f = file("tokens.txt", "w");
    for (uint32_t t = 0; t < texts.n; t++) {
        size_t n = 0;
        const char *text = texts.bytes + texts.starts[t];
        if (sq_tokenize(model, text, texts.starts[t + 1] - texts.starts[t], NULL, 0, NULL, ids, types, spans, NULL, MAX_RESULTS, &n) != SQ_OK)
            give_up("tokens", text);
        for (size_t i = 0; i < n; i++)
            fprintf(f, "%d,%d,%u,%u%c", (int)ids[i], (int)types[i], (unsigned)spans[2 * i], (unsigned)spans[2 * i + 1], i + 1 < n ? ' ' : '\n');
    }
    fclose(f);
    sq_model_free(model);
}

static void write_embeddings(const sq_texts *singles, float *x) {
    sq_ctx *ctx = open_context("embed.sq");
    size_t n = 0;
    must(ctx, "embed", sq_embed(ctx, singles, NULL, x, MAX_RESULTS, &n));
    write_rows("embed.txt", x, n);
    sq_ctx_free(ctx);
}

/* The second texts of pairs are the first ones, moved up by one. */
static sq_texts pairs_of(const sq_texts *singles) {
    static size_t starts[MAX_TEXTS + 1];
    const size_t total = texts.starts[texts.n], first = texts.starts[1];
    char *b = room(total + 1, 1);
    memcpy(b, texts.bytes + first, total - first);
    memcpy(b + total - first, texts.bytes, first);
    for (uint32_t t = 0; t < texts.n; t++) starts[t] = texts.starts[t + 1] - first;
    starts[texts.n] = total;
    sq_texts pairs = *singles;
    pairs.b = b;
    pairs.b_starts = starts;
    return pairs;
}

static void write_classes(const sq_texts *singles, float *x) {
    sq_ctx *ctx = open_context("classify.sq");
    float *logits = room(MAX_RESULTS, sizeof *logits);
    const sq_texts pairs = pairs_of(singles);
    size_t n = 0;
    must(ctx, "classify", sq_classify(ctx, singles, NULL, x, logits, MAX_RESULTS, &n));
    write_rows("scores.txt", x, n);
    write_rows("logits.txt", logits, n);
    const sq_classify_params cut = {.size = sizeof cut, .truncate = 1};
    must(ctx, "classify pairs", sq_classify(ctx, &pairs, &cut, NULL, logits, MAX_RESULTS, &n));
    write_rows("pairs.txt", logits, n);
    sq_ctx_free(ctx);
}

static void write_ranks(const sq_texts *singles, float *x) {
    sq_ctx *ctx = open_context("score.sq");
    uint32_t order[MAX_TEXTS];
    size_t n = 0;
    must(ctx, "rerank", sq_rerank(ctx, texts.bytes, texts.starts[1], singles, NULL, x, order, MAX_TEXTS, &n));
    FILE *f = file("rerank.txt", "w");
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%u ", (unsigned)order[i]);
        write_bits(f, x[order[i]], '\n');
    }
    fclose(f);
    sq_ctx_free(ctx);
}

static void write_answers(void) {
    sq_ctx *ctx = open_context("answer.sq");
    sq_answer_span spans[32];
    char *context = room(texts.starts[texts.n] + texts.n, 1);
    size_t used = 0, n = 0;
    for (uint32_t t = 0; t < texts.n; t++) {
        const size_t n_bytes = texts.starts[t + 1] - texts.starts[t];
        if (t) context[used++] = ' ';
        memcpy(context + used, texts.bytes + texts.starts[t], n_bytes);
        used += n_bytes;
    }
    must(ctx, "answer", sq_answer(ctx, texts.bytes, texts.starts[1], context, used, NULL, spans, 32, &n));
    FILE *f = file("answer.txt", "w");
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%zu %zu ", spans[i].start, spans[i].end);
        write_bits(f, spans[i].score, ' ');
        write_bits(f, spans[i].probability, '\n');
    }
    fclose(f);
    sq_ctx_free(ctx);
}

static void write_tags(const char *name, const sq_texts *singles, uint32_t mode) {
    sq_ctx *ctx = open_context("tag.sq");
    sq_model *model = open_model("tag.sq");
    sq_entity *entities = room(MAX_RESULTS, sizeof *entities);
    const sq_tag_params params = {.size = sizeof params, .mode = mode};
    size_t n = 0, n_label = 0;
    must(ctx, "tag", sq_tag(ctx, singles, &params, entities, MAX_RESULTS, &n));
    FILE *f = file(name, "w");
    for (size_t i = 0; i < n; i++) {
        const sq_entity *e = &entities[i];
        fprintf(f, "%u %zu %zu %u ", (unsigned)e->text, e->start, e->end, (unsigned)e->n_words);
        write_bits(f, e->score, ' ');
        fprintf(f, "%s\n", sq_model_label(model, e->label, &n_label));
    }
    fclose(f);
    sq_model_free(model);
    sq_ctx_free(ctx);
}

#define FIELD(type, field) fprintf(f, " %zu", offsetof(type, field))

static void write_structs(void) {
    FILE *f = file("structs.txt", "w");
    fprintf(f, "sq_model_params %zu", sizeof(sq_model_params));
    FIELD(sq_model_params, size), FIELD(sq_model_params, copy), FIELD(sq_model_params, verify), FIELD(sq_model_params, huge_pages);
    FIELD(sq_model_params, isa);
    fprintf(f, "\nsq_model_info %zu", sizeof(sq_model_info));
    FIELD(sq_model_info, size), FIELD(sq_model_info, n_layers), FIELD(sq_model_info, width), FIELD(sq_model_info, n_heads);
    FIELD(sq_model_info, ffn_width), FIELD(sq_model_info, vocab_size), FIELD(sq_model_info, n_types), FIELD(sq_model_info, max_tokens);
    FIELD(sq_model_info, max_positions), FIELD(sq_model_info, pooling), FIELD(sq_model_info, normalize), FIELD(sq_model_info, quant);
    FIELD(sq_model_info, head), FIELD(sq_model_info, n_labels), FIELD(sq_model_info, multi_label), FIELD(sq_model_info, embed_width);
    FIELD(sq_model_info, file_bytes), FIELD(sq_model_info, n_params);
    fprintf(f, "\nsq_ctx_params %zu", sizeof(sq_ctx_params));
    FIELD(sq_ctx_params, size), FIELD(sq_ctx_params, n_threads), FIELD(sq_ctx_params, max_tokens), FIELD(sq_ctx_params, max_seqs);
    FIELD(sq_ctx_params, cpus), FIELD(sq_ctx_params, spin_us), FIELD(sq_ctx_params, no_tuning), FIELD(sq_ctx_params, tuning);
    fprintf(f, "\nsq_texts %zu", sizeof(sq_texts));
    FIELD(sq_texts, size), FIELD(sq_texts, n_texts), FIELD(sq_texts, a), FIELD(sq_texts, a_starts), FIELD(sq_texts, b), FIELD(sq_texts, b_starts);
    fprintf(f, "\nsq_answer_span %zu", sizeof(sq_answer_span));
    FIELD(sq_answer_span, start), FIELD(sq_answer_span, end), FIELD(sq_answer_span, score), FIELD(sq_answer_span, probability);
    fprintf(f, "\nsq_entity %zu", sizeof(sq_entity));
    FIELD(sq_entity, text), FIELD(sq_entity, label), FIELD(sq_entity, start), FIELD(sq_entity, end), FIELD(sq_entity, score), FIELD(sq_entity, n_words);
    fprintf(f, "\n");
    fclose(f);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: reference FOLDER\n");
        return 2;
    }
    folder = argv[1];
    read_texts();
    const sq_texts singles = {.size = sizeof singles, .n_texts = texts.n, .a = texts.bytes, .a_starts = texts.starts};
    float *x = room(MAX_RESULTS, sizeof *x);
    write_structs();
    write_tokens("embed.sq");
    write_embeddings(&singles, x);
    write_classes(&singles, x);
    write_ranks(&singles, x);
    write_answers();
    write_tags("tag.txt", &singles, 0);
    write_tags("words.txt", &singles, SQ_TAG_WORDS);
    return 0;
}
