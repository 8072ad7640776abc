// convert/read-checkpoint.cpp - which files a checkpoint has, its index of shards, and conversion of tensors to f32.
#include "read-checkpoint.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include <iterator>
#include <limits>
#include <new>

#include "../sq.h"

namespace sq {

// An entry of an index takes some 100 bytes, and encoders have hundreds of tensors.
static constexpr size_t MAX_INDEX_BYTES = 8 << 20;

// ---- elements ----

static const struct {
    const char *name;
    size_t n_bytes;
} ELEMENTS[] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8}, {"I32", 4}, {"I16", 2},
                {"I8", 1},  {"U64", 8}, {"U32", 4},  {"U16", 2}, {"U8", 1},  {"BOOL", 1}};
static_assert(std::size(ELEMENTS) == static_cast<size_t>(element::boolean) + 1, "one row for each element type");

size_t element_bytes(element type) { return ELEMENTS[static_cast<size_t>(type)].n_bytes; }
const char *element_name(element type) { return ELEMENTS[static_cast<size_t>(type)].name; }

std::string shape_text(const std::vector<uint64_t> &shape) {
    constexpr size_t MAX_SHOWN = 6;
    std::string text = "[";
    for (size_t i = 0; i < shape.size() && i < MAX_SHOWN; i++) text += (i ? ", " : "") + std::to_string(shape[i]);
    return text + (shape.size() > MAX_SHOWN ? ", ...]" : "]");
}

bool shape_product(const std::vector<uint64_t> &shape, uint64_t *n_elements) {
    uint64_t n = 1;
    bool is_empty = false;
    for (const uint64_t dim : shape) is_empty |= dim == 0;
    for (const uint64_t dim : shape)
        if (!is_empty && __builtin_mul_overflow(n, dim, &n)) return false;
    *n_elements = is_empty ? 0 : n;
    return true;
}

// ---- choosing and opening files ----

int checkpoint::open(const std::string &folder, message *why) try {
    files_.clear();
    tensors_.clear();
    by_name_.clear();
    for (const std::string name : {"model.safetensors", "pytorch_model.bin"}) {
        if (has_file(folder, name)) return open_files(folder, {name}, why);
        if (has_file(folder, name + ".index.json")) return open_index(folder, name + ".index.json", why);
    }
    return fail(why, SQ_E_IO, "%s has neither model.safetensors nor pytorch_model.bin (nor an index of shards)", printable(folder).c_str());
} catch (const std::bad_alloc &) {
    return fail(why, SQ_E_MEM, "out of memory while reading the checkpoint's tables");
}

const source_tensor *checkpoint::find(const std::string &name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

// The text that Git LFS leaves in place of a file that was not fetched (git-lfs docs/spec.md).
static bool is_lfs_pointer(const source_file &file) {
    static const char START[] = "version https://git-lfs";
    return file.size() >= sizeof START - 1 && memcmp(file.data(), START, sizeof START - 1) == 0;
}

int checkpoint::open_files(const std::string &folder, const std::vector<std::string> &names, message *why) {
    files_.resize(names.size()); // once: tensors point to the files
    for (size_t i = 0; i < names.size(); i++) {
        source_file &file = files_[i];
        int status = file.open(folder, names[i], why);
        if (status != SQ_OK) return status;
        const std::string shown = printable(file.name());
        if (is_lfs_pointer(file)) return fail(why, SQ_E_FORMAT, "%s is a Git LFS pointer, not the weights: fetch them with 'git lfs pull'", shown.c_str());
        status = ends_with(file.name(), ".safetensors") ? read_safetensors(file, &tensors_, why) : read_torch(file, &tensors_, why);
        if (status != SQ_OK) return status;
    }
    for (size_t i = 0; i < tensors_.size(); i++) {
        const auto added = by_name_.emplace(tensors_[i].name, i);
        if (added.second) continue;
        return fail(why, SQ_E_FORMAT, "%s: tensor '%s' is also in %s", printable(tensors_[i].file->name()).c_str(), printable(tensors_[i].name).c_str(),
                    printable(tensors_[added.first->second].file->name()).c_str());
    }
    return SQ_OK;
}

// {"metadata": ..., "weight_map": {tensor name: shard's file name}}
int checkpoint::open_index(const std::string &folder, const std::string &name, message *why) {
    json::value index;
    int status = read_json(folder, name, MAX_INDEX_BYTES, &index, why);
    if (status != SQ_OK) return status;
    const json::value *map = index.find("weight_map");
    if (!map || !map->is_object()) return fail(why, SQ_E_FORMAT, "%s: no weight_map", name.c_str());
    std::map<std::string, size_t> shards; // each once, in order of name
    for (const json::member &m : map->members) {
        if (!m.item.is_string() || !is_plain_name(m.item.text))
            return fail(why, SQ_E_FORMAT, "%s: tensor '%s': '%s' is not the name of a file in this folder", name.c_str(), printable(m.key).c_str(),
                        printable(m.item.text).c_str());
        shards.emplace(m.item.text, 0);
    }
    std::vector<std::string> names;
    for (auto &[shard, position] : shards) {
        position = names.size();
        names.push_back(shard);
        if (!has_file(folder, shard)) return fail(why, SQ_E_IO, "shard %s, which %s lists, is missing", printable(shard).c_str(), name.c_str());
    }
    status = open_files(folder, names, why);
    if (status != SQ_OK) return status;
    for (const json::member &m : map->members) {
        const source_tensor *t = find(m.key);
        if (!t || t->file != &files_[shards[m.item.text]])
            return fail(why, SQ_E_FORMAT, "%s: shard %s has no tensor '%s'", name.c_str(), printable(m.item.text).c_str(), printable(m.key).c_str());
    }
    return SQ_OK;
}

// ---- conversion ----

static float load_f32(const uint8_t *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

static float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float load_bf16(const uint8_t *p) { return float_of_bits(static_cast<uint32_t>(p[0]) << 16 | static_cast<uint32_t>(p[1]) << 24); }

// 1 sign bit, 5 of exponent (bias 15), 10 of mantissa; exponent 0 means mantissa * 2^-24, exponent 31 is infinity or NaN.
static float load_f16(const uint8_t *p) {
    const uint32_t h = static_cast<uint32_t>(p[0] | p[1] << 8);
    const uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3FF;
    if (exponent == 0) return (sign ? -0x1p-24f : 0x1p-24f) * static_cast<float>(mantissa);
    if (exponent == 31) return float_of_bits(sign | 0x7F800000 | mantissa << 13);
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static float load_f64(const uint8_t *p) {
    double x;
    memcpy(&x, p, sizeof x);
    return fabs(x) <= static_cast<double>(FLT_MAX) ? static_cast<float>(x) : std::numeric_limits<float>::infinity();
}

// Walks the tensor in row-major order. Returns how many elements were written before one that is not finite.
template <class loader> static uint64_t convert(const source_tensor &t, loader load, float *out) {
    const size_t rank = t.shape.size();
    const uint64_t row = rank ? t.shape[rank - 1] : 1, step = (rank ? t.strides[rank - 1] : 0) * element_bytes(t.type);
    std::vector<uint64_t> at(rank, 0);
    const uint8_t *p = t.data;
    for (uint64_t done = 0; done < t.n_elements; done += row) {
        bool is_finite = true;
        for (uint64_t i = 0; i < row; i++) {
            out[done + i] = load(p + i * step);
            is_finite &= fabsf(out[done + i]) <= FLT_MAX;
        }
        for (uint64_t i = 0; !is_finite; i++)
            if (!(fabsf(out[done + i]) <= FLT_MAX)) return done + i;
        for (size_t d = rank; d-- > 1;) { // the next row: count up the outer dimensions like an odometer
            const uint64_t stride = t.strides[d - 1] * element_bytes(t.type);
            if (++at[d - 1] < t.shape[d - 1]) {
                p += stride;
                break;
            }
            p -= stride * (t.shape[d - 1] - 1);
            at[d - 1] = 0;
        }
    }
    return t.n_elements;
}

int read_f32(const source_tensor &t, float *out, message *why) {
    uint64_t n = 0;
    switch (t.type) {
    case element::f32: n = convert(t, load_f32, out); break;
    case element::f16: n = convert(t, load_f16, out); break;
    case element::bf16: n = convert(t, load_bf16, out); break;
    case element::f64: n = convert(t, load_f64, out); break;
    default:
        return fail(why, SQ_E_FORMAT, "%s: tensor '%s' holds %s; F32, F16, BF16 and F64 can be read", printable(t.file->name()).c_str(), printable(t.name).c_str(),
                    element_name(t.type));
    }
    if (n == t.n_elements) return SQ_OK;
    return fail(why, SQ_E_FORMAT, "%s: tensor '%s': element %llu is not finite", printable(t.file->name()).c_str(), printable(t.name).c_str(),
                static_cast<unsigned long long>(n));
}

} // namespace sq
