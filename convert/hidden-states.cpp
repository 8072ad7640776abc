// convert/hidden-states.cpp - see hidden-states.h.
#include "hidden-states.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

namespace sq {

hidden_states::~hidden_states() {
    if (fd_ >= 0) close(fd_);
}

int hidden_states::create(size_t width, message *why) {
    const char *tmp = getenv("TMPDIR");
    std::string path = std::string(tmp && *tmp ? tmp : "/tmp") + "/sq-hidden-XXXXXX";
    fd_ = mkstemp(&path[0]);
    if (fd_ < 0) return fail(why, SQ_E_IO, "cannot create %s: %s", path.c_str(), strerror(errno));
    unlink(path.c_str());
    width_ = width;
    return SQ_OK;
}

int hidden_states::write(size_t first_row, const std::vector<float> &rows, message *why) {
    const char *p = reinterpret_cast<const char *>(rows.data());
    size_t left = rows.size() * sizeof(float);
    off_t at = static_cast<off_t>(first_row * width_ * sizeof(float));
    while (left > 0) {
        const ssize_t n = pwrite(fd_, p, left, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(why, SQ_E_IO, "cannot write hidden states to a temporary file: %s", n < 0 ? strerror(errno) : "nothing was written");
        p += n, left -= static_cast<size_t>(n), at += n;
    }
    return SQ_OK;
}

int hidden_states::read(size_t first_row, size_t n_rows, std::vector<float> *rows, message *why) const {
    rows->resize(n_rows * width_);
    char *p = reinterpret_cast<char *>(rows->data());
    size_t left = rows->size() * sizeof(float);
    off_t at = static_cast<off_t>(first_row * width_ * sizeof(float));
    while (left > 0) {
        const ssize_t n = pread(fd_, p, left, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail(why, SQ_E_IO, "cannot read hidden states from a temporary file: %s", n < 0 ? strerror(errno) : "it has become shorter");
        p += n, left -= static_cast<size_t>(n), at += n;
    }
    return SQ_OK;
}

} // namespace sq
