// convert/output-file.h - a file that appears under its name whole or not at all: written beside its place, then renamed.
#ifndef SQ_CONVERT_OUTPUT_FILE_H
#define SQ_CONVERT_OUTPUT_FILE_H

#include <stddef.h>

#include <string>
#include <vector>

#include "../sq-model.h"

namespace sq {

// open, write, finish, commit, in this order; each returns SQ_OK or SQ_E_IO. Without a commit nothing is left behind.
// A symbolic link is followed; a device or a pipe is written to as it is.
class output_file {
  public:
    output_file() = default;
    output_file(const output_file &) = delete;
    output_file &operator=(const output_file &) = delete;
    ~output_file();

    int open(const std::string &path, message *why);
    int write(const void *bytes, size_t n_bytes, message *why);
    // The bytes are on the disk, in a file that can be looked at before it gets its name.
    int finish(message *why);
    int commit(message *why);

    bool is_in_place() const { return temporary_.empty(); } // a device or a pipe: cannot be looked at
    const std::string &temporary() const { return temporary_; }

  private:
    std::string path_, target_, temporary_;
    int fd_ = -1;
};

// Before hours of work rather than after: the file can be created, and is none of `others`, neither by another name nor once it exists.
// Returns SQ_OK, SQ_E_IO or SQ_E_ARG.
int check_output_file(const std::string &path, const std::vector<std::string> &others, message *why);

// Paths of all that is in a folder; none if it cannot be read.
std::vector<std::string> files_in(const std::string &folder);

} // namespace sq

#endif
