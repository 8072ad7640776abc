/* tests/test-abi.c - what may never change within an ABI version: status values, constants, struct sizes, offsets and types of fields (64-bit), functions, versions.
 *
 * A failure here means: sq.h has changed in a way that breaks compiled programs. Grow structs at their end, and give new codes new values.
 * tests/test-symbols.sh checks that everything sq.h declares is pinned here, and nothing else is exported; test-structs.cpp that sizes of older structs work. */
#include <stddef.h>

#include "../sq.h"
#include "check.h"

static void test_constants(void) {
    const int status[] = {SQ_OK,    SQ_E_ARG,   SQ_E_IO,   SQ_E_FORMAT,   SQ_E_VERSION, SQ_E_CPU,     SQ_E_MEM,
                          SQ_E_SPACE, SQ_E_LIMIT, SQ_E_TASK, SQ_E_INTERNAL, SQ_E_BUSY,    SQ_E_NUMERIC, SQ_E_CANCEL};
    for (int i = 0; i < (int)(sizeof status / sizeof *status); i++) {
        CHECK_EQ(status[i], -i);
        CHECK(strcmp(sq_status_string(status[i]), "unknown status") != 0);
    }
    CHECK_EQ(sq_status_string(1), "unknown status");
    CHECK_EQ(sq_status_string(-1000), "unknown status");

    CHECK_EQ(SQ_POOL_NONE, 0);
    CHECK_EQ(SQ_POOL_MEAN, 1);
    CHECK_EQ(SQ_POOL_CLS, 2);
    CHECK_EQ(SQ_POOL_MAX, 3);
    CHECK_EQ(SQ_HEAD_NONE, 0);
    CHECK_EQ(SQ_HEAD_CLASSIFY, 1);
    CHECK_EQ(SQ_HEAD_ANSWER, 2);
    CHECK_EQ(SQ_HEAD_TAG, 3);
    CHECK_EQ(SQ_TAG_WORDS, 1);
    CHECK_EQ(SQ_QUANT_FLOAT, 0);
    CHECK_EQ(SQ_QUANT_STATIC, 1);
    CHECK_EQ(SQ_QUANT_DYNAMIC, 2);
    CHECK_EQ(SQ_NORMALIZE_MODEL, 0);
    CHECK_EQ(SQ_NORMALIZE_YES, 1);
    CHECK_EQ(SQ_NORMALIZE_NO, 2);
    CHECK_EQ(SQ_HIDDEN, 1);
    CHECK_EQ(SQ_POOLED, 2);
    CHECK_EQ(SQ_LOGITS, 3);
    CHECK_EQ(SQ_OP_EMBED, 0);
    CHECK_EQ(SQ_OP_QKV, 1);
    CHECK_EQ(SQ_OP_ATTENTION, 2);
    CHECK_EQ(SQ_OP_OUT, 3);
    CHECK_EQ(SQ_OP_UP, 4);
    CHECK_EQ(SQ_OP_DOWN, 5);
    CHECK_EQ(SQ_OP_NORM, 6);
    CHECK_EQ(SQ_OP_QUANT, 7);
    CHECK_EQ(SQ_OP_HEAD, 8);
    CHECK_EQ(SQ_N_OPS, 9);
}

static void test_versions(void) {
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", SQ_VERSION_MAJOR, SQ_VERSION_MINOR, SQ_VERSION_PATCH);
    CHECK_EQ(sq_version_string(), version);
    CHECK_EQ(sq_abi_version(), SQ_ABI_VERSION);
    CHECK_EQ(SQ_ABI_VERSION, 1);
}

/* Where every field of sq.h lies, and its type. A field's end is the next one's start, so the structs have no holes. An array counts as a pointer to its elements. */
#define FIELD(record, field, offset, type)                                                                                                                         \
    do {                                                                                                                                                           \
        CHECK_EQ(offsetof(record, field), offset);                                                                                                                 \
        CHECK(_Generic(((record *)0)->field, type: 1, default: 0));                                                                                                \
    } while (0)

static void test_layout_of_tasks(void) {
    CHECK_EQ(sizeof(sq_classify_params), 16);
    FIELD(sq_classify_params, size, 0, uint32_t);
    FIELD(sq_classify_params, max_len, 4, uint32_t);
    FIELD(sq_classify_params, truncate, 8, uint32_t);
    FIELD(sq_classify_params, specials_as_text, 12, uint32_t);

    CHECK_EQ(sizeof(sq_answer_params), 24);
    FIELD(sq_answer_params, size, 0, uint32_t);
    FIELD(sq_answer_params, window, 4, uint32_t);
    FIELD(sq_answer_params, stride, 8, uint32_t);
    FIELD(sq_answer_params, max_answer, 12, uint32_t);
    FIELD(sq_answer_params, allow_null, 16, uint32_t);
    FIELD(sq_answer_params, specials_as_text, 20, uint32_t);

    CHECK_EQ(sizeof(sq_answer_span), 24);
    FIELD(sq_answer_span, start, 0, size_t);
    FIELD(sq_answer_span, end, 8, size_t);
    FIELD(sq_answer_span, score, 16, float);
    FIELD(sq_answer_span, probability, 20, float);

    CHECK_EQ(sizeof(sq_entity), 32);
    FIELD(sq_entity, text, 0, uint32_t);
    FIELD(sq_entity, label, 4, uint32_t);
    FIELD(sq_entity, start, 8, size_t);
    FIELD(sq_entity, end, 16, size_t);
    FIELD(sq_entity, score, 24, float);
    FIELD(sq_entity, n_words, 28, uint32_t);

    CHECK_EQ(sizeof(sq_tag_params), 24);
    FIELD(sq_tag_params, size, 0, uint32_t);
    FIELD(sq_tag_params, mode, 4, uint32_t);
    FIELD(sq_tag_params, max_len, 8, uint32_t);
    FIELD(sq_tag_params, truncate, 12, uint32_t);
    FIELD(sq_tag_params, specials_as_text, 16, uint32_t);
    FIELD(sq_tag_params, reserved, 20, uint32_t);
}

static void test_layout(void) {
    CHECK_EQ(sizeof(sq_model_params), 24);
    FIELD(sq_model_params, size, 0, uint32_t);
    FIELD(sq_model_params, copy, 4, uint32_t);
    FIELD(sq_model_params, verify, 8, uint32_t);
    FIELD(sq_model_params, huge_pages, 12, uint32_t);
    FIELD(sq_model_params, isa, 16, const char *);

    CHECK_EQ(sizeof(sq_model_info), 80);
    FIELD(sq_model_info, size, 0, uint32_t);
    FIELD(sq_model_info, n_layers, 4, uint32_t);
    FIELD(sq_model_info, width, 8, uint32_t);
    FIELD(sq_model_info, n_heads, 12, uint32_t);
    FIELD(sq_model_info, ffn_width, 16, uint32_t);
    FIELD(sq_model_info, vocab_size, 20, uint32_t);
    FIELD(sq_model_info, n_types, 24, uint32_t);
    FIELD(sq_model_info, max_tokens, 28, uint32_t);
    FIELD(sq_model_info, max_positions, 32, uint32_t);
    FIELD(sq_model_info, pooling, 36, uint32_t);
    FIELD(sq_model_info, normalize, 40, uint32_t);
    FIELD(sq_model_info, quant, 44, uint32_t);
    FIELD(sq_model_info, head, 48, uint32_t);
    FIELD(sq_model_info, n_labels, 52, uint32_t);
    FIELD(sq_model_info, multi_label, 56, uint32_t);
    FIELD(sq_model_info, embed_width, 60, uint32_t);
    FIELD(sq_model_info, file_bytes, 64, size_t);
    FIELD(sq_model_info, n_params, 72, size_t);

    CHECK_EQ(sizeof(sq_tokenize_params), 16);
    FIELD(sq_tokenize_params, size, 0, uint32_t);
    FIELD(sq_tokenize_params, max_len, 4, uint32_t);
    FIELD(sq_tokenize_params, truncate, 8, uint32_t);
    FIELD(sq_tokenize_params, specials_as_text, 12, uint32_t);

    CHECK_EQ(sizeof(sq_ctx_params), 40);
    FIELD(sq_ctx_params, size, 0, uint32_t);
    FIELD(sq_ctx_params, n_threads, 4, uint32_t);
    FIELD(sq_ctx_params, max_tokens, 8, uint32_t);
    FIELD(sq_ctx_params, max_seqs, 12, uint32_t);
    FIELD(sq_ctx_params, cpus, 16, const int32_t *);
    FIELD(sq_ctx_params, spin_us, 24, uint32_t);
    FIELD(sq_ctx_params, no_tuning, 28, uint32_t);
    FIELD(sq_ctx_params, tuning, 32, const char *);

    CHECK_EQ(sizeof(sq_stats), 176);
    FIELD(sq_stats, size, 0, uint32_t);
    FIELD(sq_stats, n_threads, 4, uint32_t);
    FIELD(sq_stats, n_forward, 8, size_t);
    FIELD(sq_stats, n_tokens, 16, size_t);
    FIELD(sq_stats, scratch_bytes, 24, size_t);
    FIELD(sq_stats, ns, 32, size_t *);
    FIELD(sq_stats, ops, 104, size_t *);

    CHECK_EQ(sizeof(sq_batch), 32);
    FIELD(sq_batch, size, 0, uint32_t);
    FIELD(sq_batch, n_seqs, 4, uint32_t);
    FIELD(sq_batch, ids, 8, const int32_t *);
    FIELD(sq_batch, types, 16, const int32_t *);
    FIELD(sq_batch, starts, 24, const uint32_t *);

    CHECK_EQ(sizeof(sq_texts), 40);
    FIELD(sq_texts, size, 0, uint32_t);
    FIELD(sq_texts, n_texts, 4, uint32_t);
    FIELD(sq_texts, a, 8, const char *);
    FIELD(sq_texts, a_starts, 16, const size_t *);
    FIELD(sq_texts, b, 24, const char *);
    FIELD(sq_texts, b_starts, 32, const size_t *);

    CHECK_EQ(sizeof(sq_embed_params), 32);
    FIELD(sq_embed_params, size, 0, uint32_t);
    FIELD(sq_embed_params, pooling, 4, uint32_t);
    FIELD(sq_embed_params, normalize, 8, uint32_t);
    FIELD(sq_embed_params, dimensions, 12, uint32_t);
    FIELD(sq_embed_params, max_len, 16, uint32_t);
    FIELD(sq_embed_params, truncate, 20, uint32_t);
    FIELD(sq_embed_params, specials_as_text, 24, uint32_t);
    FIELD(sq_embed_params, reserved, 28, uint32_t);
}

/* Every function with its type: what compiles here is what a program in C may call. */
#define FUNCTION(result, name, ...)                                                                                                                                \
    do {                                                                                                                                                           \
        result (*volatile pinned)(__VA_ARGS__) = name;                                                                                                             \
        CHECK(pinned != NULL);                                                                                                                                     \
    } while (0)

static void test_functions(void) {
    FUNCTION(int32_t, sq_abi_version, void);
    FUNCTION(const char *, sq_version_string, void);
    FUNCTION(const char *, sq_status_string, int32_t);
    FUNCTION(const char *, sq_isa_best, void);
    FUNCTION(void, sq_model_params_init, sq_model_params *, size_t);
    FUNCTION(int32_t, sq_model_load, const char *, const sq_model_params *, sq_model **, char *, size_t);
    FUNCTION(int32_t, sq_model_load_fd, int32_t, const sq_model_params *, sq_model **, char *, size_t);
    FUNCTION(int32_t, sq_model_load_memory, const void *, size_t, const sq_model_params *, sq_model **, char *, size_t);
    FUNCTION(void, sq_model_free, sq_model *);
    FUNCTION(int32_t, sq_model_get_info, const sq_model *, sq_model_info *);
    FUNCTION(const char *, sq_model_label, const sq_model *, uint32_t, size_t *);
    FUNCTION(const char *, sq_isa_string, const sq_model *);
    FUNCTION(const char *, sq_isa_reason, const sq_model *);
    FUNCTION(const char *, sq_model_meta_key, const sq_model *, uint32_t);
    FUNCTION(int32_t, sq_model_meta, const sq_model *, const char *, char *, size_t, size_t *);
    FUNCTION(void, sq_tokenize_params_init, sq_tokenize_params *, size_t);
    FUNCTION(int32_t, sq_tokenize, const sq_model *, const char *, size_t, const char *, size_t, const sq_tokenize_params *, int32_t *, int32_t *, uint32_t *,
             int32_t *, size_t, size_t *);
    FUNCTION(const char *, sq_token_text, const sq_model *, int32_t, size_t *);
    FUNCTION(void, sq_ctx_params_init, sq_ctx_params *, size_t);
    FUNCTION(int32_t, sq_ctx_create, sq_model *, const sq_ctx_params *, sq_ctx **, char *, size_t);
    FUNCTION(void, sq_ctx_free, sq_ctx *);
    FUNCTION(int32_t, sq_ctx_tuning, const sq_ctx *, char *, size_t, size_t *);
    FUNCTION(const char *, sq_ctx_error, const sq_ctx *);
    FUNCTION(void, sq_ctx_cancel, sq_ctx *);
    FUNCTION(int32_t, sq_ctx_stats, const sq_ctx *, sq_stats *);
    FUNCTION(int32_t, sq_forward, sq_ctx *, const sq_batch *, int32_t, float *, size_t, size_t *);
    FUNCTION(void, sq_embed_params_init, sq_embed_params *, size_t);
    FUNCTION(int32_t, sq_embed, sq_ctx *, const sq_texts *, const sq_embed_params *, float *, size_t, size_t *);
    FUNCTION(float, sq_to_s8, const float *, size_t, int8_t *);
    FUNCTION(void, sq_to_f16, const float *, size_t, uint16_t *);
    FUNCTION(void, sq_to_bits, const float *, size_t, uint8_t *);
    FUNCTION(void, sq_classify_params_init, sq_classify_params *, size_t);
    FUNCTION(int32_t, sq_classify, sq_ctx *, const sq_texts *, const sq_classify_params *, float *, float *, size_t, size_t *);
    FUNCTION(int32_t, sq_rerank, sq_ctx *, const char *, size_t, const sq_texts *, const sq_classify_params *, float *, uint32_t *, size_t, size_t *);
    FUNCTION(void, sq_answer_params_init, sq_answer_params *, size_t);
    FUNCTION(int32_t, sq_answer, sq_ctx *, const char *, size_t, const char *, size_t, const sq_answer_params *, sq_answer_span *, size_t, size_t *);
    FUNCTION(void, sq_tag_params_init, sq_tag_params *, size_t);
    FUNCTION(int32_t, sq_tag, sq_ctx *, const sq_texts *, const sq_tag_params *, sq_entity *, size_t, size_t *);
}

int main(void) {
    test_constants();
    test_functions();
    test_versions();
    if (sizeof(void *) == 8) {
        test_layout();
        test_layout_of_tasks();
    } else {
        SKIP("offsets are pinned for 64-bit machines");
    }
    return check_summary("test-abi");
}
