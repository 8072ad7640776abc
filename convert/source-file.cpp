// convert/source-file.cpp - see source-file.h.
#include "source-file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "../sq-model.h"

namespace sq {

std::string printable(std::string_view text) {
    constexpr size_t MAX_BYTES = 100;
    std::string out(text.substr(0, MAX_BYTES));
    for (char &c : out)
        if (c < ' ' || c > '~') c = '?';
    if (text.size() > MAX_BYTES) out += "...";
    return out;
}

source_file::~source_file() {
    if (data_) munmap(const_cast<uint8_t *>(data_), n_bytes_);
}

void source_file::swap(source_file &other) noexcept {
    std::swap(name_, other.name_);
    std::swap(data_, other.data_);
    std::swap(n_bytes_, other.n_bytes_);
}

// Maps what fd refers to. Returns 0 or an errno value, which is EINVAL for what is no regular file.
static int map(int fd, const uint8_t **data, size_t *n_bytes) {
    struct stat status;
    if (fstat(fd, &status) != 0) return errno;
    if (S_ISDIR(status.st_mode)) return EISDIR;
    if (!S_ISREG(status.st_mode)) return EINVAL;
    const size_t n = static_cast<size_t>(status.st_size);
    if (n == 0) return 0;
    void *p = mmap(nullptr, n, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return errno;
    *data = static_cast<const uint8_t *>(p);
    *n_bytes = n;
    return 0;
}

int source_file::open(const std::string &folder, const std::string &name, message *why) {
    source_file fresh;
    fresh.name_ = name;
    // O_NONBLOCK: a FIFO of that name must not make the converter wait.
    const std::string path = folder + "/" + name;
    int fd;
    do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return fail(why, SQ_E_IO, "cannot open %s: %s", printable(name).c_str(), strerror(errno));
    const int error = map(fd, &fresh.data_, &fresh.n_bytes_);
    close(fd);
    if (error == EINVAL) return fail(why, SQ_E_IO, "%s is not a regular file", printable(name).c_str());
    if (error != 0) return fail(why, error == ENOMEM ? SQ_E_MEM : SQ_E_IO, "cannot map %s: %s", printable(name).c_str(), strerror(error));
    swap(fresh);
    return SQ_OK;
}

int source_file::open(const std::string &path, message *why) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? open(".", path, why) : open(path.substr(0, slash), path.substr(slash + 1), why);
}

uint32_t source_file::crc() const { return crc32(0, data_, n_bytes_); }

bool has_file(const std::string &folder, const std::string &name) {
    struct stat status;
    return lstat((folder + "/" + name).c_str(), &status) == 0;
}

bool is_plain_name(std::string_view name) {
    return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

bool ends_with(std::string_view text, std::string_view end) { return text.size() >= end.size() && text.substr(text.size() - end.size()) == end; }

int read_json(const std::string &folder, const std::string &name, size_t max_bytes, json::value *out, message *why) {
    source_file file;
    const int status = file.open(folder, name, why);
    if (status != SQ_OK) return status;
    if (file.size() > max_bytes) return fail(why, SQ_E_FORMAT, "%s: larger than %zu bytes", printable(name).c_str(), max_bytes);
    std::string error;
    if (!json::parse(reinterpret_cast<const char *>(file.data()), file.size(), out, &error))
        return fail(why, SQ_E_FORMAT, "%s: %s", printable(name).c_str(), error.c_str());
    return SQ_OK;
}

} // namespace sq
