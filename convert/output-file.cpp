// convert/output-file.cpp - see output-file.h.
#include "output-file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

namespace sq {

namespace {

// Where the file really goes, if path is a link to it.
std::string followed(const std::string &path) {
    const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), free);
    return real ? real.get() : path;
}

bool is_device(const std::string &path) {
    struct stat st;
    return stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode);
}

// Both exist; links are followed.
bool same_inode(const std::string &a, const std::string &b) {
    struct stat of_a, of_b;
    return stat(a.c_str(), &of_a) == 0 && stat(b.c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

std::string folder_of(const std::string &path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// One file, or one that does not exist yet.
bool same_file(const std::string &a, const std::string &b) {
    if (same_inode(a, b)) return true;
    return a.substr(a.rfind('/') + 1) == b.substr(b.rfind('/') + 1) && same_inode(folder_of(a), folder_of(b)); // npos + 1 is 0
}

} // namespace

output_file::~output_file() {
    if (fd_ >= 0) close(fd_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

int output_file::open(const std::string &path, message *why) {
    path_ = path;
    target_ = followed(path);
    const bool in_place = is_device(target_);
    do {
        if (!in_place) temporary_ = target_ + ".XXXXXX"; // anew: an interrupted mkostemp may have filled it in
        fd_ = in_place ? ::open(target_.c_str(), O_WRONLY | O_CLOEXEC) : mkostemp(&temporary_[0], O_CLOEXEC);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ >= 0) return SQ_OK;
    const int cause = errno;
    temporary_.clear();
    return fail(why, SQ_E_IO, "cannot create %s: %s", path.c_str(), strerror(cause));
}

int output_file::write(const void *bytes, size_t n_bytes, message *why) {
    const char *p = static_cast<const char *>(bytes);
    while (n_bytes > 0) {
        const ssize_t done = ::write(fd_, p, n_bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return fail(why, SQ_E_IO, "cannot write %s: %s", path_.c_str(), strerror(errno));
        p += done;
        n_bytes -= static_cast<size_t>(done);
    }
    return SQ_OK;
}

int output_file::finish(message *why) {
    bool good = true;
    if (!is_in_place()) {
        const mode_t mask = umask(0); // there is no other way to read it
        umask(mask);
        good = fchmod(fd_, 0666 & ~mask) == 0;
        while (good && fsync(fd_) != 0) good = errno == EINTR;
    }
    int cause = errno;
    if (close(fd_) != 0 && errno != EINTR && good) good = false, cause = errno; // interrupted: Linux has closed it
    fd_ = -1;
    return good ? SQ_OK : fail(why, SQ_E_IO, "cannot write %s: %s", path_.c_str(), strerror(cause));
}

int output_file::commit(message *why) {
    if (is_in_place()) return SQ_OK;
    if (rename(temporary_.c_str(), target_.c_str()) != 0) return fail(why, SQ_E_IO, "cannot write %s: %s", path_.c_str(), strerror(errno));
    temporary_.clear();
    return SQ_OK;
}

std::vector<std::string> files_in(const std::string &folder) {
    std::vector<std::string> paths;
    const std::unique_ptr<DIR, int (*)(DIR *)> open(opendir(folder.c_str()), closedir);
    if (!open) return paths;
    while (const dirent *entry = readdir(open.get())) paths.push_back(folder + "/" + entry->d_name);
    return paths;
}

int check_output_file(const std::string &path, const std::vector<std::string> &others, message *why) {
    struct stat st;
    const bool exists = stat(path.c_str(), &st) == 0;
    if (exists && S_ISDIR(st.st_mode)) return fail(why, SQ_E_IO, "cannot create %s: it is a folder", path.c_str());
    const bool is_regular = !exists || S_ISREG(st.st_mode);
    for (const std::string &other : others)
        if (is_regular && same_file(path, other)) return fail(why, SQ_E_ARG, "the output %s is one of the files to read or write", path.c_str());
    if (is_regular) return output_file().open(path, why);
    return access(path.c_str(), W_OK) == 0 ? SQ_OK : fail(why, SQ_E_IO, "cannot create %s: %s", path.c_str(), strerror(errno));
}

} // namespace sq
