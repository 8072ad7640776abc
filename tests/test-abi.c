/* tests/test-abi.c - what may never change within an ABI version: status values, constants, struct sizes and offsets (64-bit), versions.
 *
 * A failure here means: sq.h has changed in a way that breaks compiled programs. Grow structs at their end, and give new codes new values.
 * tests/test-symbols.sh checks the exported names. */
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

/* Where every field of sq.h lies. A field's end is the next one's start, so the structs have no holes. */
#define FIELD(type, field, offset) CHECK_EQ(offsetof(type, field), offset)

static void test_layout_of_tasks(void) {
    CHECK_EQ(sizeof(sq_classify_params), 16);
    FIELD(sq_classify_params, max_len, 4);
    FIELD(sq_classify_params, truncate, 8);
    FIELD(sq_classify_params, specials_as_text, 12);

    CHECK_EQ(sizeof(sq_answer_params), 24);
    FIELD(sq_answer_params, window, 4);
    FIELD(sq_answer_params, stride, 8);
    FIELD(sq_answer_params, max_answer, 12);
    FIELD(sq_answer_params, allow_null, 16);
    FIELD(sq_answer_params, specials_as_text, 20);

    CHECK_EQ(sizeof(sq_answer_span), 24);
    FIELD(sq_answer_span, end, 8);
    FIELD(sq_answer_span, score, 16);
    FIELD(sq_answer_span, probability, 20);

    CHECK_EQ(sizeof(sq_entity), 32);
    FIELD(sq_entity, label, 4);
    FIELD(sq_entity, start, 8);
    FIELD(sq_entity, end, 16);
    FIELD(sq_entity, score, 24);
    FIELD(sq_entity, n_words, 28);

    CHECK_EQ(sizeof(sq_tag_params), 24);
    FIELD(sq_tag_params, mode, 4);
    FIELD(sq_tag_params, max_len, 8);
    FIELD(sq_tag_params, truncate, 12);
    FIELD(sq_tag_params, specials_as_text, 16);
    FIELD(sq_tag_params, reserved, 20);
}

static void test_layout(void) {
    CHECK_EQ(sizeof(sq_model_params), 24);
    FIELD(sq_model_params, copy, 4);
    FIELD(sq_model_params, verify, 8);
    FIELD(sq_model_params, huge_pages, 12);
    FIELD(sq_model_params, isa, 16);

    CHECK_EQ(sizeof(sq_model_info), 80);
    FIELD(sq_model_info, n_layers, 4);
    FIELD(sq_model_info, width, 8);
    FIELD(sq_model_info, n_heads, 12);
    FIELD(sq_model_info, ffn_width, 16);
    FIELD(sq_model_info, vocab_size, 20);
    FIELD(sq_model_info, n_types, 24);
    FIELD(sq_model_info, max_tokens, 28);
    FIELD(sq_model_info, max_positions, 32);
    FIELD(sq_model_info, pooling, 36);
    FIELD(sq_model_info, normalize, 40);
    FIELD(sq_model_info, quant, 44);
    FIELD(sq_model_info, head, 48);
    FIELD(sq_model_info, n_labels, 52);
    FIELD(sq_model_info, multi_label, 56);
    FIELD(sq_model_info, embed_width, 60);
    FIELD(sq_model_info, file_bytes, 64);
    FIELD(sq_model_info, n_params, 72);

    CHECK_EQ(sizeof(sq_tokenize_params), 16);
    FIELD(sq_tokenize_params, max_len, 4);
    FIELD(sq_tokenize_params, truncate, 8);
    FIELD(sq_tokenize_params, specials_as_text, 12);

    CHECK_EQ(sizeof(sq_ctx_params), 40);
    FIELD(sq_ctx_params, n_threads, 4);
    FIELD(sq_ctx_params, max_tokens, 8);
    FIELD(sq_ctx_params, max_seqs, 12);
    FIELD(sq_ctx_params, cpus, 16);
    FIELD(sq_ctx_params, spin_us, 24);
    FIELD(sq_ctx_params, no_tuning, 28);
    FIELD(sq_ctx_params, tuning, 32);

    CHECK_EQ(sizeof(sq_stats), 176);
    FIELD(sq_stats, n_threads, 4);
    FIELD(sq_stats, n_forward, 8);
    FIELD(sq_stats, n_tokens, 16);
    FIELD(sq_stats, scratch_bytes, 24);
    FIELD(sq_stats, ns, 32);
    FIELD(sq_stats, ops, 104);

    CHECK_EQ(sizeof(sq_batch), 32);
    FIELD(sq_batch, n_seqs, 4);
    FIELD(sq_batch, ids, 8);
    FIELD(sq_batch, types, 16);
    FIELD(sq_batch, starts, 24);

    CHECK_EQ(sizeof(sq_texts), 40);
    FIELD(sq_texts, n_texts, 4);
    FIELD(sq_texts, a, 8);
    FIELD(sq_texts, a_starts, 16);
    FIELD(sq_texts, b, 24);
    FIELD(sq_texts, b_starts, 32);

    CHECK_EQ(sizeof(sq_embed_params), 32);
    FIELD(sq_embed_params, pooling, 4);
    FIELD(sq_embed_params, normalize, 8);
    FIELD(sq_embed_params, dimensions, 12);
    FIELD(sq_embed_params, max_len, 16);
    FIELD(sq_embed_params, truncate, 20);
    FIELD(sq_embed_params, specials_as_text, 24);
    FIELD(sq_embed_params, reserved, 28);
}

int main(void) {
    test_constants();
    test_versions();
    if (sizeof(void *) == 8) {
        test_layout();
        test_layout_of_tasks();
    } else {
        SKIP("offsets are pinned for 64-bit machines");
    }
    return check_summary("test-abi");
}
