/* sq.h - INT8 inference of BERT-family encoders on CPUs: the public C API.
 *
 * One file holds a model: packed weights, tokenizer, labels. `sq-convert` writes it from a Hugging Face checkpoint; this library maps it and answers.
 *
 *     sq_model *m;  sq_ctx *c;  char err[256];
 *     sq_model_load("minilm.sq", NULL, &m, err, sizeof err);
 *     sq_ctx_create(m, NULL, &c, err, sizeof err);
 *     sq_embed(c, &texts, NULL, vectors, cap, &n);
 *
 * Rules that hold for every function
 *   Status    Functions that can fail return SQ_OK (0) or a negative SQ_E_* code. Codes and their values never change.
 *   Threads   A model is immutable: any number of threads may use it, and make contexts of it, at once. A context belongs to one caller at a time, of whatever
 *             thread; a second call meanwhile answers SQ_E_BUSY and disturbs nothing. Only sq_ctx_cancel may be called on it while a call runs.
 *             A context starts its own workers; the library starts nothing at load and keeps no global or thread-local state.
 *   Fork      A context made before fork() answers SQ_E_BUSY in the child, whatever other threads of the parent were doing, and may be freed there. Models may be
 *             used on both sides: the child makes its own contexts on them. The parent notices nothing.
 *   Signals   The library installs no handler, blocks nothing and goes on after interrupted system calls.
 *   Memory    Where memory or a thread cannot be had, the call answers SQ_E_MEM, nothing is lost, and model and context remain as they were.
 *   Text      UTF-8 as pointer and byte count, never NUL-terminated; NUL is data. Each invalid sequence (the maximal subpart, as Unicode recommends)
 *             counts as one U+FFFD. A null pointer with count 0 is the empty text, which is valid input.
 *   Outputs   Buffers belong to the caller. A function that fills one takes its capacity in elements and reports in *n how many elements the answer has;
 *             too small a buffer gives SQ_E_SPACE with *n set, so that a second call succeeds (out may be NULL where cap is 0); the count is known before
 *             anything is computed, but for sq_answer and sq_tag. n must not be NULL unless its function says so. After any other error the contents are unspecified.
 *   Structs   Each begins with its own size in bytes, set by the caller (`size = sizeof x`) or, with zeroes behind it, by x_init(&x, sizeof x). A shorter struct, from an older
 *             header, gets defaults for what it lacks; a longer one with non-zero bytes that this library does not know gives SQ_E_VERSION. A size below 4, above
 *             4096 or that ends inside a field is SQ_E_ARG. Only the elements of answers (sq_answer_span, sq_entity) have no size: they never grow.
 *             Where a parameter struct may be NULL, NULL means all defaults, and a field of 0 always means its default.
 *   Results   The same bits for any number of threads, any batch mates, any instruction set and either compiler. A NaN or an infinity is never returned: it is SQ_E_NUMERIC.
 *   Manners   The library never prints, aborts, or throws across this boundary. Floating-point control (rounding, denormals) is set on entry and put back.
 */
#ifndef SQ_H
#define SQ_H

#include <stddef.h>
#include <stdint.h>

#define SQ_VERSION_MAJOR 0
#define SQ_VERSION_MINOR 1
#define SQ_VERSION_PATCH 0

/* Grows when a function or a struct field is added; never shrinks or changes meaning. */
#define SQ_ABI_VERSION 1

#if defined(_WIN32)
#  define SQ_API
#else
#  define SQ_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ---- */

#define SQ_OK 0
#define SQ_E_ARG (-1)       /* an argument is null, out of range or inconsistent; nothing was done */
#define SQ_E_IO (-2)        /* the operating system refused: open, map, read */
#define SQ_E_FORMAT (-3)    /* the model file is damaged or is no model file */
#define SQ_E_VERSION (-4)   /* the file or a struct is newer than this library */
#define SQ_E_CPU (-5)       /* the instruction set asked for is unknown, or this CPU or kernel lacks it */
#define SQ_E_MEM (-6)       /* out of memory, or a worker thread could not be started */
#define SQ_E_SPACE (-7)     /* the caller's buffer is too small; the needed count was written */
#define SQ_E_LIMIT (-8)     /* the input is longer than the model or the context allows */
#define SQ_E_TASK (-9)      /* the model has no head for this task */
#define SQ_E_INTERNAL (-10) /* a fault of the library */
#define SQ_E_BUSY (-11)     /* the context is in use by another call, or was made before fork() */
#define SQ_E_NUMERIC (-12)  /* a NaN or an infinity came out */
#define SQ_E_CANCEL (-13)   /* sq_ctx_cancel stopped the call */

/* ---- library ---- */

/* SQ_ABI_VERSION of the library that is running, to compare with the header's. */
SQ_API int32_t sq_abi_version(void);

/* "MAJOR.MINOR.PATCH". Static storage. */
SQ_API const char *sq_version_string(void);

/* A short English name of a status code, "unknown status" for others. Static storage. */
SQ_API const char *sq_status_string(int32_t status);

/* The best instruction set that this CPU and kernel offer, whatever SQ_ISA says: "plain", "avx2", "avxvnni", "avx512vnni" or "amx". Static storage. */
SQ_API const char *sq_isa_best(void);

/* ---- model ---- */

typedef struct sq_model sq_model;

typedef struct sq_model_params {
    uint32_t size;      /* sizeof(sq_model_params) */
    uint32_t copy;      /* 1: read the file into private memory, so that later changes to it cannot reach this process; 0: map it, shared with other processes.
                           The copy lies on the NUMA node of the calling thread: a thread pinned to each node loads one copy each. */
    uint32_t verify;    /* 1: check the CRC-32 of every tensor (reads the whole file) */
    uint32_t huge_pages; /* 1: as copy, in large pages where the kernel has them (transparent huge pages must be `always` or `madvise`); else as copy */
    const char *isa;    /* highest instruction set to use, one of the names of sq_isa_best; NULL: the best. The environment variable SQ_ISA lowers it further. */
} sq_model_params;

/* Fills *params with defaults; `size` tells which version of the struct the caller has. As all *_init, does nothing where params is NULL or size below 4 or above 4096. */
SQ_API void sq_model_params_init(sq_model_params *params, size_t size);

/* Opens a model file. On success *model is a new handle, for sq_model_free. On failure *model is NULL and err (if not NULL) holds a sentence that names the
 * cause, cut to err_cap bytes and NUL-terminated. Everything in the file is validated before use.
 * What may happen to the file afterwards: another one renamed into its place, or its removal, changes nothing for those who have it open; that is how to publish
 * a new model. Truncating a mapped file takes pages away, and touching them raises SIGBUS, as for any mapping. Overwriting a mapped file in place changes answers,
 * or makes them SQ_E_FORMAT or SQ_E_NUMERIC, but crashes nothing. Where others may do either, load with `copy`, which nobody can reach afterwards, and with `verify`,
 * which finds what was damaged before.
 * Errors: ARG, IO, FORMAT, VERSION, CPU, MEM. */
SQ_API int32_t sq_model_load(const char *path, const sq_model_params *params, sq_model **model, char *err, size_t err_cap);

/* The same, with the same errors, from an open file descriptor (which stays the caller's and may be closed afterwards). The file is read from its first byte. */
SQ_API int32_t sq_model_load_fd(int32_t fd, const sq_model_params *params, sq_model **model, char *err, size_t err_cap);

/* The same from n_bytes at data, 64-byte aligned. The bytes are borrowed and must outlive the model unmodified, unless params->copy is 1 (then any
 * alignment will do). Errors: as sq_model_load. */
SQ_API int32_t sq_model_load_memory(const void *data, size_t n_bytes, const sq_model_params *params, sq_model **model, char *err, size_t err_cap);

/* Releases the caller's hold. Contexts hold the model too, so models and contexts may be freed in either order, also while calls run on the contexts. Functions that
 * take the model itself must have returned, and not be called again. NULL is accepted. */
SQ_API void sq_model_free(sq_model *model);

#define SQ_POOL_NONE 0 /* the checkpoint does not say; sq_embed then takes the mean */
#define SQ_POOL_MEAN 1 /* mean over all tokens */
#define SQ_POOL_CLS 2  /* the first token's vector */
#define SQ_POOL_MAX 3  /* the highest value of each entry over all tokens */

#define SQ_HEAD_NONE 0     /* an encoder: hidden states and embeddings */
#define SQ_HEAD_CLASSIFY 1 /* labels for a text or a pair; with one label, a score (rerankers) */
#define SQ_HEAD_ANSWER 2   /* start and end of an answer in a context */
#define SQ_HEAD_TAG 3      /* a label for each token */

#define SQ_QUANT_FLOAT 0   /* not quantised */
#define SQ_QUANT_STATIC 1  /* INT8, activation scales from calibration */
#define SQ_QUANT_DYNAMIC 2 /* INT8, activation scales for each token */

typedef struct sq_model_info {
    uint32_t size;          /* sizeof(sq_model_info), set by the caller */
    uint32_t n_layers;
    uint32_t width;         /* D: floats in a token's or a text's vector */
    uint32_t n_heads;
    uint32_t ffn_width;
    uint32_t vocab_size;    /* ids are 0 .. vocab_size-1 */
    uint32_t n_types;       /* segment ids are 0 .. n_types-1 */
    uint32_t max_tokens;    /* longest sequence by the checkpoint's own settings, special tokens included */
    uint32_t max_positions; /* longest sequence that the position table allows */
    uint32_t pooling;       /* SQ_POOL_* */
    uint32_t normalize;     /* 1: the checkpoint's vectors are scaled to length 1 */
    uint32_t quant;         /* SQ_QUANT_*: how linear layers compute, by majority */
    uint32_t head;          /* SQ_HEAD_* */
    uint32_t n_labels;      /* logits of a text (classify) or a token (answer: 2; tag); 0 without a head */
    uint32_t multi_label;   /* 1: labels are independent, scores are sigmoids; 0: softmax */
    uint32_t embed_width;   /* floats that sq_embed gives for a text: width, or what the checkpoint's Dense modules make of it */
    size_t file_bytes;      /* size of the model file */
    size_t n_params;        /* parameters of the checkpoint's encoder */
} sq_model_info;

/* Fills *info up to info->size. Errors: ARG. */
SQ_API int32_t sq_model_get_info(const sq_model *model, sq_model_info *info);

/* The name of a label, 0 <= i < n_labels, as the checkpoint's id2label has it: UTF-8, NUL-terminated, *n bytes without the NUL (n may be NULL). Borrowed: lives
 * until the model is freed. NULL past the last. An `answer` head has no names. */
SQ_API const char *sq_model_label(const sq_model *model, uint32_t i, size_t *n);

/* The instruction set that this model's contexts use. Static storage; NULL for a null model. */
SQ_API const char *sq_isa_string(const sq_model *model);

/* Why it is not a better one, as a few English words: what this CPU lacks, that the operating system refused AMX, or that `isa` or SQ_ISA asked for less; "" for
 * "amx". Static storage; NULL for a null model. */
SQ_API const char *sq_isa_reason(const sq_model *model);

/* The key of the i-th metadata entry of the file, NULL past the last. Borrowed: lives until the model is freed. convert/format.md lists the keys. */
SQ_API const char *sq_model_meta_key(const sq_model *model, uint32_t i);

/* The value of a metadata entry as text: numbers in decimal, lists as their elements with a newline after each. Writes up to cap bytes, no NUL; *n is the
 * byte count of the whole value. Errors: ARG (null, or no such key), SPACE. */
SQ_API int32_t sq_model_meta(const sq_model *model, const char *key, char *out, size_t cap, size_t *n);

/* ---- text ---- */

typedef struct sq_tokenize_params {
    uint32_t size;             /* sizeof(sq_tokenize_params) */
    uint32_t max_len;          /* most tokens, special tokens included; 0: the model's max_tokens; UINT32_MAX: no limit */
    uint32_t truncate;         /* 1: cut to max_len, the longer text of a pair first; 0: SQ_E_LIMIT when over */
    uint32_t specials_as_text; /* 1: "[SEP]" in a text is five characters; 0: it is the special token, as Hugging Face does */
} sq_tokenize_params;

SQ_API void sq_tokenize_params_init(sq_tokenize_params *params, size_t size);

/* Tokenizes the text a, or the pair (a, b) when b is not NULL, with the model's special tokens around them. A pair with an empty second text has a non-null b
 * and n_b = 0. Uses only the model: any thread, any time.
 *   ids      [cap]     token ids
 *   types    [cap]     segment ids as the model wants them
 *   spans    [cap][2]  first byte and one past the last byte in the text that the token came from; 0, 0 for special tokens that sq added
 *   sources  [cap]     0: from a, 1: from b, -1: a special token that sq added
 * Each output may be NULL; they share one capacity, and *n is the number of tokens (after truncation). With SQ_E_LIMIT *n is the untruncated length.
 * Errors: ARG, VERSION, MEM, SPACE, LIMIT (also texts of 2 GiB and more). */
SQ_API int32_t sq_tokenize(const sq_model *model, const char *a, size_t n_a, const char *b, size_t n_b, const sq_tokenize_params *params, int32_t *ids,
                           int32_t *types, uint32_t *spans, int32_t *sources, size_t cap, size_t *n);

/* The text of a vocabulary entry, such as "##ing". Borrowed: not NUL-terminated, *n bytes, lives until the model is freed. NULL for an id outside the vocabulary,
 * and where n is NULL. */
SQ_API const char *sq_token_text(const sq_model *model, int32_t id, size_t *n);

/* ---- context ---- */

typedef struct sq_ctx sq_ctx;

typedef struct sq_ctx_params {
    uint32_t size;       /* sizeof(sq_ctx_params) */
    uint32_t n_threads;  /* threads that compute, the caller's included; 0: the physical cores that affinity and the cgroup's quota leave */
    uint32_t max_tokens; /* most tokens of one sq_forward, all sequences together; 0: the model's max_tokens, but at least 512 and at most 8192 */
    uint32_t max_seqs;   /* most sequences of one sq_forward; 0: 64 */
    const int32_t *cpus; /* [n_threads] the processor that each worker is bound to, -1: none; NULL: none are bound. The calling thread is nobody's but the caller's:
                            cpus[0] is ignored. Copied. A processor outside the process's affinity is SQ_E_ARG. Needs n_threads above 0. */
    uint32_t spin_us;    /* how long a worker waits busily for the next call before it sleeps, microseconds, at most 1,000,000; 0: 50 */
    uint32_t no_tuning;  /* 1: products take the default plan of each shape, nothing is tried */
    const char *tuning;  /* what sq_ctx_tuning gave on such a machine, NUL-terminated, so that nothing needs to be tried again; NULL: nothing known. Copied. */
} sq_ctx_params;

SQ_API void sq_ctx_params_init(sq_ctx_params *params, size_t size);

/* Creates a context: its scratch memory, sized by max_tokens, and n_threads - 1 workers, parked while idle. sq_forward allocates nothing afterwards. Any thread may
 * make one and another use it; make one for each caller and keep it, since its first calls are slower (sq_ctx_tuning).
 * On failure *ctx is NULL and err holds the cause. Errors: ARG, FORMAT (tuning), VERSION, MEM, LIMIT. */
SQ_API int32_t sq_ctx_create(sq_model *model, const sq_ctx_params *params, sq_ctx **ctx, char *err, size_t err_cap);

/* Stops the workers and frees the context. Not while a call runs on it. NULL is accepted. */
SQ_API void sq_ctx_free(sq_ctx *ctx);

/* Which ways of sharing a layer's work over threads and tiles this context has found to be the fastest, for the lengths it has met: lines of text for
 * sq_ctx_params.tuning of another context, which takes what was found with the same instruction set, threads and shapes and leaves the rest aside. So texts of several
 * models and thread counts can be appended to one another. The plans are found during the first passes of each length (8, 16, 32, ... tokens); they never change
 * a result. Writes up to cap bytes, no NUL; *n is the byte count of the whole text, 0 while nothing is decided. Not while a call runs on ctx. Errors: ARG, MEM, SPACE. */
SQ_API int32_t sq_ctx_tuning(const sq_ctx *ctx, char *out, size_t cap, size_t *n);

/* A sentence on why the last call on this context failed, "" if it succeeded; a call that got SQ_E_BUSY leaves none. Not while a call runs on ctx. Borrowed: lives
 * until the next call on this context. */
SQ_API const char *sq_ctx_error(const sq_ctx *ctx);

/* Makes the call that is running on ctx return SQ_E_CANCEL at the next layer. Without one it has no effect, also none on a call that begins right afterwards: a
 * caller who cancels from another thread repeats it until the call has returned. Any thread, not a signal handler. */
SQ_API void sq_ctx_cancel(sq_ctx *ctx);

#define SQ_OP_EMBED 0     /* embedding lookup and its LayerNorm */
#define SQ_OP_QKV 1       /* query, key and value projections */
#define SQ_OP_ATTENTION 2 /* scores, softmax, weighted values */
#define SQ_OP_OUT 3       /* attention output projection, residual */
#define SQ_OP_UP 4        /* FFN-up, activation function */
#define SQ_OP_DOWN 5      /* FFN-down, residual */
#define SQ_OP_NORM 6      /* LayerNorm, and quantising its result */
#define SQ_OP_QUANT 7     /* quantising as a pass of its own */
#define SQ_OP_HEAD 8      /* pooling and heads */
#define SQ_N_OPS 9

typedef struct sq_stats {
    uint32_t size;           /* sizeof(sq_stats), set by the caller */
    uint32_t n_threads;      /* threads that compute */
    size_t n_forward;        /* forward passes since the context was created */
    size_t n_tokens;         /* tokens in them */
    size_t scratch_bytes;    /* memory that the context holds */
    size_t ns[SQ_N_OPS];     /* [SQ_OP_*] wall time of each operator in all passes, nanoseconds; waiting for other threads is part of it */
    size_t ops[SQ_N_OPS];    /* [SQ_OP_*] arithmetic operations (a multiply-add is two) of the matrix products in it */
} sq_stats;

/* Fills *stats up to stats->size. Not while a call runs on ctx. Errors: ARG. */
SQ_API int32_t sq_ctx_stats(const sq_ctx *ctx, sq_stats *stats);

/* ---- compute ---- */

typedef struct sq_batch {
    uint32_t size;          /* sizeof(sq_batch) */
    uint32_t n_seqs;        /* may be 0 */
    const int32_t *ids;     /* [starts[n_seqs]] token ids, the sequences end to end, no padding */
    const int32_t *types;   /* [starts[n_seqs]] segment ids; NULL: all 0 */
    const uint32_t *starts; /* [n_seqs + 1] first token of each sequence; starts[0] = 0, strictly rising */
} sq_batch;

#define SQ_HIDDEN 1 /* f32 [tokens][D]: the last layer's output for each token */
#define SQ_POOLED 2 /* f32 [n_seqs][D]: hidden states pooled as the model says (mean where it does not say), not normalised */
#define SQ_LOGITS 3 /* what the head makes of them: f32 [n_seqs][n_labels] (classify) or [tokens][n_labels] (answer: start, end; tag) */

/* Runs the network over a batch of token sequences: at most the context's max_seqs, together at most its max_tokens, each at most the model's max_positions tokens.
 * cap and *n count floats.
 * Errors: TASK (logits of a model without a head), ARG (an id, a type or a start out of range: the message says which), VERSION, LIMIT, SPACE, BUSY, NUMERIC, CANCEL. */
SQ_API int32_t sq_forward(sq_ctx *ctx, const sq_batch *batch, int32_t kind, float *out, size_t cap, size_t *n);

typedef struct sq_texts {
    uint32_t size;          /* sizeof(sq_texts) */
    uint32_t n_texts;       /* may be 0 */
    const char *a;          /* the texts end to end */
    const size_t *a_starts; /* [n_texts + 1] byte offsets into a, never falling; text i is a[a_starts[i]] .. a[a_starts[i+1]] */
    const char *b;          /* second texts of pairs */
    const size_t *b_starts; /* [n_texts + 1]; NULL: single texts */
} sq_texts;

#define SQ_NORMALIZE_MODEL 0
#define SQ_NORMALIZE_YES 1
#define SQ_NORMALIZE_NO 2

typedef struct sq_embed_params {
    uint32_t size;             /* sizeof(sq_embed_params) */
    uint32_t pooling;          /* SQ_POOL_MEAN, _CLS or _MAX; 0: the model's, mean where it has none */
    uint32_t normalize;        /* SQ_NORMALIZE_* : scale each vector to Euclidean length 1 (a zero vector stays zero) */
    uint32_t dimensions;       /* keep the first so many entries, before normalising (matryoshka); 0: all */
    uint32_t max_len;          /* as in sq_tokenize_params */
    uint32_t truncate;         /* as in sq_tokenize_params */
    uint32_t specials_as_text; /* as in sq_tokenize_params */
    uint32_t reserved;         /* 0 */
} sq_embed_params;

SQ_API void sq_embed_params_init(sq_embed_params *params, size_t size);

/* A text without any token, an empty one where the tokenizer adds no special tokens, counts as one unknown token in all that follows. */

/* Embeds texts: out is f32 [n_texts][dimensions], cap and *n count floats. Any number of texts: they are run in batches that fit the context.
 * Errors: ARG, VERSION, MEM, LIMIT (a text is longer than max_len or the context's max_tokens: the message names it and its length), SPACE, BUSY, NUMERIC, CANCEL.
 * The same for all that take texts. */
SQ_API int32_t sq_embed(sq_ctx *ctx, const sq_texts *texts, const sq_embed_params *params, float *out, size_t cap, size_t *n);

/* Vectors as vector stores take them, each function from n floats at v into n entries at out (bits: (n + 7) / 8 bytes), which may not overlap. Any thread.
 *   s8    v * 127 / largest |v|, rounded to nearest even; returns largest |v| / 127, so that value = scale * s8 (0 for a zero vector)
 *   f16   IEEE 754 binary16, rounded to nearest even; what overflows becomes infinite
 *   bits  bit 7 - i % 8 of byte i / 8 is 1 where v[i] > 0; unused bits 0 */
SQ_API float sq_to_s8(const float *v, size_t n, int8_t *out);
SQ_API void sq_to_f16(const float *v, size_t n, uint16_t *out);
SQ_API void sq_to_bits(const float *v, size_t n, uint8_t *out);

/* ---- tasks: text in, answers out ---- */

typedef struct sq_classify_params {
    uint32_t size;             /* sizeof(sq_classify_params) */
    uint32_t max_len;          /* as in sq_tokenize_params */
    uint32_t truncate;         /* as in sq_tokenize_params */
    uint32_t specials_as_text; /* as in sq_tokenize_params */
} sq_classify_params;

SQ_API void sq_classify_params_init(sq_classify_params *params, size_t size);

/* Classifies texts or pairs. scores and logits are f32 [n_texts][n_labels], labels in the order of sq_model_label; each may be NULL; cap counts the floats
 * of each and *n what is needed.
 * Scores are the softmax of a text's logits; for multi-label models, and for one label, the sigmoid of each.
 * Errors: TASK (the model has no `classify` head; the message says what it has), and those of sq_embed. */
SQ_API int32_t sq_classify(sq_ctx *ctx, const sq_texts *texts, const sq_classify_params *params, float *scores, float *logits, size_t cap, size_t *n);

/* Scores documents for a query with a cross-encoder, a `classify` model of one label: scores f32 [n_texts] are the logits for the pairs (query, document i);
 * order [n_texts] (may be NULL) lists the documents by falling score, equal scores by rising index. documents->b_starts must be NULL.
 * params may be NULL. cap and *n count documents. Errors: TASK, and those of sq_embed. */
SQ_API int32_t sq_rerank(sq_ctx *ctx, const char *query, size_t n_query, const sq_texts *documents, const sq_classify_params *params, float *scores,
                         uint32_t *order, size_t cap, size_t *n);

typedef struct sq_answer_params {
    uint32_t size;             /* sizeof(sq_answer_params) */
    uint32_t window;           /* most tokens of a window, question and special tokens included; 0: the model's max_tokens */
    uint32_t stride;           /* tokens of context that two windows share, below the tokens that a window has room for (else SQ_E_LIMIT); 0: 128, or half the room
                                  where that is less */
    uint32_t max_answer;       /* most tokens of an answer; 0: 30 */
    uint32_t allow_null;       /* 1: "no answer" competes (SQuAD 2): it is among the answers whatever its score, as start = end = 0 */
    uint32_t specials_as_text; /* as in sq_tokenize_params */
} sq_answer_params;

SQ_API void sq_answer_params_init(sq_answer_params *params, size_t size);

typedef struct sq_answer_span {
    size_t start, end; /* bytes of the context, [start, end) */
    float score;       /* start logit + end logit of the window it was found in; for "no answer" the lowest sum on the first token over all windows */
    float probability; /* softmax of the score among the candidates returned to the caller or not: the 20 best, and "no answer" if allowed */
} sq_answer_span;

/* Finds the best answers to a question in a context of any length: the context is cut into overlapping windows, each run with the question before it, and spans
 * are ranked by score over all windows. spans [cap] receives up to cap answers, best first, no two with the same bytes; *n is how many there are (at most 20, and "no answer").
 * An empty context has none. Errors: TASK, LIMIT (the question leaves no room for context), and those of sq_embed but SPACE. */
SQ_API int32_t sq_answer(sq_ctx *ctx, const char *question, size_t n_question, const char *context, size_t n_context, const sq_answer_params *params,
                         sq_answer_span *spans, size_t cap, size_t *n);

typedef struct sq_entity {
    uint32_t text;     /* index of the text */
    uint32_t label;    /* of sq_model_label: its first token's, where labels were joined (B-X, I-X) */
    size_t start, end; /* bytes of the text, [start, end) */
    float score;       /* mean of its tokens' probabilities; for SQ_TAG_WORDS the first token's */
    uint32_t n_words;  /* words that it covers, wholly or in part; 1 for SQ_TAG_WORDS */
} sq_entity;

#define SQ_TAG_WORDS 1 /* one entry a word, label "O" included; a word's label is its first token's */

typedef struct sq_tag_params {
    uint32_t size;             /* sizeof(sq_tag_params) */
    uint32_t mode;             /* 0: entities: neighbouring tokens of one type X (labels X, B-X, I-X) joined, up to the next B-X; "O" left out, also inside of a word;
                                  SQ_TAG_WORDS */
    uint32_t max_len;          /* as in sq_tokenize_params */
    uint32_t truncate;         /* as in sq_tokenize_params */
    uint32_t specials_as_text; /* as in sq_tokenize_params */
    uint32_t reserved;         /* 0 */
} sq_tag_params;

SQ_API void sq_tag_params_init(sq_tag_params *params, size_t size);

/* Labels the tokens of texts (named entities and the like) and makes entities or words of them, in the order of the texts. texts->b_starts must be NULL. entities [cap]; *n is
 * how many there are. Errors: TASK, and those of sq_embed. */
SQ_API int32_t sq_tag(sq_ctx *ctx, const sq_texts *texts, const sq_tag_params *params, sq_entity *entities, size_t cap, size_t *n);

#ifdef __cplusplus
}
#endif

#endif
