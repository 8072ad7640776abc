// convert/source-file.h - one file of a checkpoint folder: mapped read-only, or read as JSON. Names in messages are made safe to print.
//
// A mapped file must not be truncated by others while the converter runs: touching the lost pages raises SIGBUS, as for any mapping.
#ifndef SQ_CONVERT_SOURCE_FILE_H
#define SQ_CONVERT_SOURCE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <string_view>

#include "../sq-tok.h"
#include "json.h"

namespace sq {

// text for a message: bytes outside printable ASCII become '?', and what is longer than 100 bytes is cut.
std::string printable(std::string_view text);

class source_file {
  public:
    source_file() = default;
    source_file(source_file &&other) noexcept { swap(other); }
    source_file &operator=(source_file &&other) noexcept {
        swap(other);
        return *this;
    }
    ~source_file();

    // Maps a regular file, folder/name or path. Returns SQ_OK, SQ_E_IO or SQ_E_MEM. An empty file is fine.
    int open(const std::string &folder, const std::string &name, message *why);
    int open(const std::string &path, message *why);

    const std::string &name() const { return name_; } // without the folder
    const uint8_t *data() const { return data_; }      // null when empty
    size_t size() const { return n_bytes_; }
    uint32_t crc() const; // CRC-32 of all its bytes; reads the whole file

  private:
    void swap(source_file &other) noexcept;

    std::string name_;
    const uint8_t *data_ = nullptr;
    size_t n_bytes_ = 0;
};

// Whether the folder has an entry of that name; a dangling link counts, so that opening it then tells of the trouble.
bool has_file(const std::string &folder, const std::string &name);

// Whether name is the name of a file in its folder: not empty, no slash, no backslash, no NUL, not "." and not "..".
bool is_plain_name(std::string_view name);

bool ends_with(std::string_view text, std::string_view end);

// Parses folder/name, where name may lie in a subfolder. Larger files than max_bytes are refused. Returns SQ_OK, SQ_E_IO, SQ_E_MEM or SQ_E_FORMAT.
int read_json(const std::string &folder, const std::string &name, size_t max_bytes, json::value *out, message *why);

} // namespace sq

#endif
