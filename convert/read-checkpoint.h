// convert/read-checkpoint.h - the tensors of a Hugging Face checkpoint folder: safetensors or PyTorch files, one or many shards.
//
// Files are mapped and tensors point into them. Whatever a file claims (lengths, offsets, shapes, names) is checked against its size before use, and nothing is
// allocated by a number that a file states. What the tensors mean is the job of names.h.
// Read read-checkpoint.cpp for choice and conversion, read-safetensors.cpp, read-torch.cpp (zip and tensors) and read-pickle.cpp for the formats.
#ifndef SQ_CONVERT_READ_CHECKPOINT_H
#define SQ_CONVERT_READ_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <string>
#include <vector>

#include "../sq-tok.h"
#include "source-file.h"

namespace sq {

enum class element : uint8_t { f32, f16, bf16, f64, i64, i32, i16, i8, u64, u32, u16, u8, boolean };

size_t element_bytes(element type);
const char *element_name(element type); // as safetensors writes it: "F32", "BOOL"

struct source_tensor {
    std::string name;
    element type;
    std::vector<uint64_t> shape;   // outermost first; none: a single number
    std::vector<uint64_t> strides; // in elements, one for each dimension
    uint64_t n_elements;           // product of the shape; n_elements * element_bytes is at most the file's size
    const uint8_t *data;           // first element, no alignment; every element that shape and strides reach lies inside the file
    const source_file *file;
};

class checkpoint {
  public:
    // Takes the first of model.safetensors, model.safetensors.index.json, pytorch_model.bin, pytorch_model.bin.index.json that the folder has.
    // Returns SQ_OK, SQ_E_IO or SQ_E_FORMAT; *why names the file, and the tensor if it is one's fault.
    int open(const std::string &folder, message *why);

    const std::vector<source_tensor> &tensors() const { return tensors_; } // in file order, names unique
    const source_tensor *find(const std::string &name) const;              // null if absent
    const std::vector<source_file> &files() const { return files_; }       // the weight files

  private:
    int open_files(const std::string &folder, const std::vector<std::string> &names, message *why);
    int open_index(const std::string &folder, const std::string &name, message *why);

    std::vector<source_file> files_;
    std::vector<source_tensor> tensors_;
    std::map<std::string, size_t> by_name_; // positions in tensors_
};

// Writes the tensor's elements to out [n_elements] in row-major order. Reads F32, F16, BF16 and F64 (rounded to nearest); a value that is not a finite f32 and
// integer tensors are refused with SQ_E_FORMAT and the tensor's name.
int read_f32(const source_tensor &tensor, float *out, message *why);

// "[30522, 384]"
std::string shape_text(const std::vector<uint64_t> &shape);

// ---- for the readers of the formats ----

// Elements of a shape; false when the product wraps around.
bool shape_product(const std::vector<uint64_t> &shape, uint64_t *n_elements);

// Append file's tensors. PyTorch files are those of torch.save: a zip archive, or the older stream of pickles.
int read_safetensors(const source_file &file, std::vector<source_tensor> *tensors, message *why);
int read_torch(const source_file &file, std::vector<source_tensor> *tensors, message *why);

} // namespace sq

#endif
