// sq-model.h - the model file in memory: status messages, the parsed file, and the model that the forward pass reads.
//
// Not here: writing files (convert/writer.h), tokenizing (sq-tok.h). convert/format.md documents the bytes. Read sq-model.cpp next.
#ifndef SQ_MODEL_H
#define SQ_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "sq-kernels.h"
#include "sq-tok.h"
#include "sq.h"

namespace sq {

// ---- the file ----

constexpr char FILE_MAGIC[8] = {'s', 'q', 'm', 'o', 'd', 'e', 'l', '\0'};
constexpr uint32_t FILE_VERSION = 2; // 2: attention in integers
constexpr size_t FILE_HEADER_BYTES = 64;
constexpr size_t FILE_ALIGN = 64;      // of every tensor's first byte
constexpr size_t FILE_ROW_ALIGN = 16;  // elements to which rows are padded, with zeros

enum dtype : uint32_t { DT_F32 = 0, DT_S8 = 1, DT_U8 = 2, DT_I32 = 3, DT_U32 = 4 };
constexpr uint32_t N_DTYPES = 5;
enum layout : uint32_t {
    LAYOUT_ROWS = 0,   // [rows][cols rounded up to 16]
    LAYOUT_PANELS = 1, // weights, rows = N, cols = K: s8 [N/16][K/4][16][4], K rounded up to 64; f32 [N/16][K][16]; N rounded up to 16
};
constexpr uint32_t N_LAYOUTS = 2;
enum meta_type : uint32_t { META_U32 = 0, META_F32 = 1, META_STRING = 2, META_STRINGS = 3 };

constexpr size_t dtype_bytes(dtype t) { return t == DT_S8 || t == DT_U8 ? 1 : 4; }

// Bytes of a tensor's data; the caller has made sure that rows and cols are below 2^31, so that nothing wraps.
uint64_t tensor_bytes(dtype type, layout order, uint32_t rows, uint32_t cols);

// CRC-32 (IEEE 802.3, reflected, as in zip and PNG); crc is the result so far, 0 to begin.
uint32_t crc32(uint32_t crc, const void *data, size_t n_bytes);

struct meta_entry {
    std::string key;
    meta_type type;
    uint32_t u32;
    float f32;
    std::vector<std::string> strings; // one element for META_STRING
};

struct tensor_entry {
    std::string name;
    dtype type;
    layout order;
    uint32_t rows, cols;
    uint64_t offset, n_bytes;
    uint32_t crc;
    const void *data; // base + offset, n_bytes of it inside the file
};

// A validated table of contents over bytes that somebody else keeps alive. The entries are copies; only tensor data stays in the file's bytes.
struct file_view {
    const uint8_t *base = nullptr;
    size_t n_bytes = 0;
    std::vector<meta_entry> meta;      // in file order, keys unique
    std::vector<tensor_entry> tensors; // in file order, names unique
    std::unordered_map<std::string, size_t> meta_index, tensor_index;

    // Parses and checks header, metadata and tensor table. Returns SQ_OK, SQ_E_FORMAT or SQ_E_VERSION.
    int open(const void *data, size_t size, message *why);
    int verify(message *why) const; // every tensor's checksum

    const meta_entry *find_meta(const char *key) const;        // null if absent
    const tensor_entry *find_tensor(const std::string &name) const;

    // Typed access. `need_*` explain in *why and return SQ_E_FORMAT when the entry is absent or of another type; `get_*` give a default when absent
    // (a wrong type is SQ_E_FORMAT for both).
    int need_u32(const char *key, uint32_t lo, uint32_t hi, uint32_t *out, message *why) const; // and lo <= value <= hi
    int get_u32(const char *key, uint32_t fallback, uint32_t lo, uint32_t hi, uint32_t *out, message *why) const;
    int need_string(const char *key, const std::string **out, message *why) const;
    // The tensor must have exactly this type, layout and shape.
    int need_tensor(const std::string &name, dtype type, layout order, uint32_t rows, uint32_t cols, const void **out, message *why) const;
};

// ---- the model ----

// Y = X W' + b with W [n][k]. Either f32, or s8 with u8 activations x' = as * (q - z).
struct linear {
    uint32_t n = 0, k = 0;
    bool is_s8 = false;
    bool is_dynamic = false;        // as and z per row at run time
    const void *w = nullptr;        // panels
    const float *bias = nullptr;    // [n]; static: b - scale * zero * comp
    const float *scale = nullptr;   // [n] s8: static: as * ws[n]; dynamic: ws[n]
    const int32_t *comp = nullptr;  // [n] dynamic: sum over k of w
    const float *mul = nullptr;     // [k] s8: quantise multiplier per input channel, static: 1 / (s * as); dynamic: 1 / s
    int32_t zero = 0;               // static: z
};

struct norm {
    const float *gamma = nullptr, *beta = nullptr; // [width]
};

// Attention in f32, or in integers: the scale and bias of `qkv` then hold the steps of its output, which is rounded to s8.
struct attention {
    bool is_s8 = false;
    bool is_fine = false;         // softmax weights of 16 bits instead of 8
    const float *scale = nullptr; // [n_heads] step of q times step of k
    const float *mul = nullptr;   // [width] step of v; with a static `out` layer over the step of its input, which attention then writes
};

struct layer {
    linear qkv;       // [3 * width][width]: query (times 1 / sqrt(head width)), key, value
    sq::attention attention;
    linear out;       // [width][width]
    norm out_norm;
    linear up;        // [ffn][width]
    linear down;      // [width][ffn]
    norm down_norm;
};

// An embedding table, f32 or s8 with one scale per row.
struct table {
    uint32_t rows = 0;
    const float *f32 = nullptr;    // [rows][width padded to 16], or null
    const int8_t *s8 = nullptr;    // the same shape, with
    const float *scale = nullptr;  // [rows]
};

// What stands behind the encoder: labels for a text (activation(dense(first token)), then out) or for each token (out).
struct head {
    uint32_t kind = SQ_HEAD_NONE;
    uint32_t n_labels = 0;
    bool multi_label = false;
    bool has_dense = false;
    activation act = ACT_NONE;
    linear dense;                     // [width][width], f32
    linear out;                       // [n_labels][width], f32
    std::vector<std::string> labels;  // empty for answer
};

// A sentence-transformers Dense module: what pooled vectors go through.
struct dense_layer {
    linear weights; // [out][in], f32
    activation act = ACT_NONE;
};

struct architecture {
    uint32_t n_layers, width, n_heads, head_width, ffn, vocab;
    uint32_t n_positions; // longest sequence: rows of the position table less position_offset
    uint32_t position_offset; // 0, or pad id + 1 as in RoBERTa: the first token reads this row, pad tokens read row pad id and are not counted
    uint32_t n_types;     // 0: the model has no type table
    uint32_t max_tokens;  // <= n_positions
    float norm_eps;
    activation act;
    uint32_t pooling;     // SQ_POOL_*
    uint32_t normalize;
    uint32_t quant;       // SQ_QUANT_*
};

} // namespace sq

struct sq_model {
    std::atomic<uint32_t> n_holds{1}; // the caller's and one per context
    const sq::kernels *kernels = nullptr;
    const char *isa_reason = ""; // why not a better table, see choose_kernels
    sq::file_view file;
    sq::architecture arch{};
    sq::table words;
    const float *positions = nullptr; // f32 [position_offset + n_positions][width]
    const float *types = nullptr;     // f32 [n_types][width], or null
    sq::norm embed_norm;
    std::vector<sq::layer> layers;
    sq::head head;
    std::vector<sq::dense_layer> dense;
    sq::tokenizer tok;
    size_t n_params = 0;

    void *mapping = nullptr;  // what to release: a mapping or an aligned allocation of mapping_bytes, or null for borrowed bytes
    size_t mapping_bytes = 0;
    bool is_mapped = false;
};

namespace sq {

// Where the bytes of a model come from; exactly one of path, fd >= 0, data.
struct model_source {
    const char *path = nullptr;
    int fd = -1;
    const void *data = nullptr;
    size_t n_bytes = 0;
};

// Opens, validates and resolves. On failure *model stays null and *why explains.
int model_open(const model_source &source, const sq_model_params &params, sq_model **model, message *why);
void model_release(sq_model *model); // drops one hold
void model_hold(sq_model *model);

} // namespace sq

#ifdef SQ_TAPS
// Calibration and layer tests watch the one forward pass: in builds with SQ_TAPS a context reports named f32 tensors as they are made.
//   name    "embed"; "qkv", "out", "up", "down": the input of that linear layer, before any quantising; "attention": queries, keys and values side by side;
//           "hidden": a layer's output. What integer attention reads, and what it or FFN-up writes for a static layer, is not reported.
//   layer   0-based; 0 for "embed"
//   x       f32 [rows][cols], rows `stride` floats apart
struct sq_tap {
    void (*see)(void *user, const char *name, uint32_t layer, const float *x, size_t rows, size_t cols, size_t stride);
    void *user;
};
void sq_ctx_set_tap(sq_ctx *ctx, sq_tap tap);

// What calls of the context run of the encoder, until it is set anew: layers first .. past-1, where a large `past` means all, on the hidden states x, f32 [T][width], instead
// of embeddings unless x is null. What follows the encoder is as ever.
struct sq_part {
    uint32_t first, past;
    const float *x;
};
void sq_ctx_set_part(sq_ctx *ctx, sq_part part);
#endif

#endif
