// convert/writer.cpp - lays out model files; see writer.h for use and convert/format.md for the bytes.
#include "writer.h"

#include <string.h>

#include <algorithm>
#include <new>

#include "../sq-quant.h"

namespace sq {

namespace {

using bytes = std::vector<uint8_t>;

void put_u32(bytes *out, uint32_t v) {
    for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<uint8_t>(v >> shift));
}

void put_u64(bytes *out, uint64_t v) {
    put_u32(out, static_cast<uint32_t>(v));
    put_u32(out, static_cast<uint32_t>(v >> 32));
}

void put_string(bytes *out, const std::string &s) {
    put_u32(out, static_cast<uint32_t>(s.size()));
    out->insert(out->end(), s.begin(), s.end());
}

} // namespace

void writer::add_meta(const std::string &key, meta_type type, const bytes &value) {
    put_string(&meta_, key);
    put_u32(&meta_, type);
    put_u32(&meta_, static_cast<uint32_t>(value.size()));
    meta_.insert(meta_.end(), value.begin(), value.end());
    n_meta_++;
}

void writer::meta_u32(const std::string &key, uint32_t value) {
    bytes b;
    put_u32(&b, value);
    add_meta(key, META_U32, b);
}

void writer::meta_f32(const std::string &key, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bytes b;
    put_u32(&b, bits);
    add_meta(key, META_F32, b);
}

void writer::meta_string(const std::string &key, const std::string &value) { add_meta(key, META_STRING, bytes(value.begin(), value.end())); }

void writer::meta_strings(const std::string &key, const std::vector<std::string> &values) {
    bytes b;
    put_u32(&b, static_cast<uint32_t>(values.size()));
    for (const std::string &s : values) put_string(&b, s);
    add_meta(key, META_STRINGS, b);
}

writer::tensor &writer::add(const std::string &name, dtype type, layout order, uint32_t n_rows, uint32_t n_cols) {
    tensors_.push_back({name, type, order, n_rows, n_cols, bytes(tensor_bytes(type, order, n_rows, n_cols))});
    return tensors_.back();
}

void writer::rows(const std::string &name, dtype type, const void *data, uint32_t n_rows, uint32_t n_cols) {
    tensor &t = add(name, type, LAYOUT_ROWS, n_rows, n_cols);
    const size_t from = n_cols * dtype_bytes(type), to = round_up(n_cols, FILE_ROW_ALIGN) * dtype_bytes(type);
    for (size_t r = 0; r < n_rows; r++) memcpy(&t.bytes[r * to], static_cast<const uint8_t *>(data) + r * from, from);
}

void writer::panels_s8(const std::string &name, const int8_t *w, uint32_t n, uint32_t k) {
    tensor &t = add(name, DT_S8, LAYOUT_PANELS, n, k);
    pack_s8(w, n, k, reinterpret_cast<int8_t *>(t.bytes.data()));
}

void writer::panels_f32(const std::string &name, const float *w, uint32_t n, uint32_t k) {
    tensor &t = add(name, DT_F32, LAYOUT_PANELS, n, k);
    pack_f32(w, n, k, reinterpret_cast<float *>(t.bytes.data()));
}

bytes writer::head() const {
    size_t tables = meta_.size();
    for (const tensor &t : tensors_) tables += 4 + t.name.size() + 4 * 4 + 2 * 8 + 4;
    bytes table = meta_;
    uint64_t at = round_up(FILE_HEADER_BYTES + tables, FILE_ALIGN);
    for (const tensor &t : tensors_) {
        put_string(&table, t.name);
        for (uint32_t v : {static_cast<uint32_t>(t.type), static_cast<uint32_t>(t.order), t.rows, t.cols}) put_u32(&table, v);
        put_u64(&table, at);
        put_u64(&table, t.bytes.size());
        put_u32(&table, crc32(0, t.bytes.data(), t.bytes.size()));
        at = round_up(at + t.bytes.size(), FILE_ALIGN);
    }
    bytes out(FILE_MAGIC, FILE_MAGIC + sizeof FILE_MAGIC);
    for (uint32_t v : {FILE_VERSION, n_meta_, static_cast<uint32_t>(tensors_.size()), crc32(0, table.data(), table.size())}) put_u32(&out, v);
    put_u64(&out, tables);
    put_u64(&out, at);
    out.resize(FILE_HEADER_BYTES);
    out.insert(out.end(), table.begin(), table.end());
    out.resize(round_up(out.size(), FILE_ALIGN));
    return out;
}

aligned_image::aligned_image(size_t n_bytes) : size_(n_bytes) {
    void *p = nullptr;
    if (posix_memalign(&p, FILE_ALIGN, n_bytes) != 0) throw std::bad_alloc();
    bytes_.reset(static_cast<uint8_t *>(p));
}

aligned_image writer::take_image() {
    const bytes start = head();
    size_t total = start.size();
    for (const tensor &t : tensors_) total += round_up(t.bytes.size(), FILE_ALIGN);
    aligned_image out(total);
    std::copy(start.begin(), start.end(), out.data());
    size_t at = start.size();
    for (tensor &t : tensors_) {
        const size_t padded = round_up(t.bytes.size(), FILE_ALIGN);
        std::copy(t.bytes.begin(), t.bytes.end(), out.data() + at);
        std::fill(out.data() + at + t.bytes.size(), out.data() + at + padded, static_cast<uint8_t>(0));
        at += padded;
        bytes().swap(t.bytes);
    }
    *this = writer();
    return out;
}

namespace {

int open_check(const std::string &path, message *why) {
    sq_model_params p{};
    p.size = sizeof p;
    p.verify = 1;
    sq_model *m = nullptr;
    const int status = sq_model_load(path.c_str(), &p, &m, why->text, sizeof why->text);
    sq_model_free(m);
    return status;
}

} // namespace

int writer::write_all(output_file *file, message *why) const {
    static const uint8_t zeros[FILE_ALIGN] = {};
    const bytes start = head();
    if (int status = file->write(start.data(), start.size(), why)) return status;
    for (const tensor &t : tensors_) {
        if (int status = file->write(t.bytes.data(), t.bytes.size(), why)) return status;
        if (int status = file->write(zeros, round_up(t.bytes.size(), FILE_ALIGN) - t.bytes.size(), why)) return status;
    }
    return SQ_OK;
}

int writer::save(const std::string &path, message *why) const {
    output_file file;
    if (int status = file.open(path, why)) return status;
    if (int status = write_all(&file, why)) return status;
    if (int status = file.finish(why)) return status;
    if (!file.is_in_place())
        if (int status = open_check(file.temporary(), why)) return status;
    return file.commit(why);
}

} // namespace sq
