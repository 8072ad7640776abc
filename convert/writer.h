// convert/writer.h - writes model files: metadata and tensors are collected, then laid out as convert/format.md says.
//
// The same entries in the same order give the same bytes.
#ifndef SQ_CONVERT_WRITER_H
#define SQ_CONVERT_WRITER_H

#include <stdint.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "../sq-model.h"
#include "output-file.h"

namespace sq {

// 64-byte aligned bytes, as sq_model_load_memory wants them.
class aligned_image {
  public:
    aligned_image() = default;
    explicit aligned_image(size_t n_bytes); // uninitialised; throws std::bad_alloc
    const uint8_t *data() const { return bytes_.get(); }
    uint8_t *data() { return bytes_.get(); }
    size_t size() const { return size_; }

  private:
    struct free_deleter {
        void operator()(void *p) const { free(p); }
    };
    std::unique_ptr<uint8_t, free_deleter> bytes_;
    size_t size_ = 0;
};

class writer {
  public:
    void meta_u32(const std::string &key, uint32_t value);
    void meta_f32(const std::string &key, float value);
    void meta_string(const std::string &key, const std::string &value);
    void meta_strings(const std::string &key, const std::vector<std::string> &values);

    // Row-major data [rows][cols], unpadded; rows are padded to 16 elements in the file. The bytes are copied.
    void rows(const std::string &name, dtype type, const void *data, uint32_t n_rows, uint32_t n_cols);
    // Weights [n][k], row-major and unpadded, stored in panels. The bytes are copied.
    void panels_s8(const std::string &name, const int8_t *w, uint32_t n, uint32_t k);
    void panels_f32(const std::string &name, const float *w, uint32_t n, uint32_t k);

    // The whole file in memory. The writer is empty afterwards: each tensor is freed as soon as it is copied, so that memory holds the data about once.
    aligned_image take_image();

    // Lets the library open the file, every checksum included, before it gets its name (output-file.h). Returns SQ_OK or an error.
    int save(const std::string &path, message *why) const;

  private:
    int write_all(output_file *file, message *why) const;

    struct tensor {
        std::string name;
        dtype type;
        layout order;
        uint32_t rows, cols;
        std::vector<uint8_t> bytes;
    };
    std::vector<uint8_t> head() const; // header, metadata, tensor table
    void add_meta(const std::string &key, meta_type type, const std::vector<uint8_t> &value);
    tensor &add(const std::string &name, dtype type, layout order, uint32_t n_rows, uint32_t n_cols);

    std::vector<uint8_t> meta_;
    uint32_t n_meta_ = 0;
    std::vector<tensor> tensors_;
};

} // namespace sq

#endif
