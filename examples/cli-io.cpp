// examples/cli-io.cpp - rows of input, output that appears whole or not at all, progress, text for the terminal.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../convert/json.h"
#include "cli-common.h"

namespace cli {

namespace json = sq::json;

constexpr size_t READ_BYTES = 1 << 16;    // what one read asks for: a pipe's capacity on Linux
constexpr size_t PENDING_BYTES = 1 << 16; // output collected before it is written

// ---- input ----

// "-" is standard input; *name is what messages call it.
static int open_input(const std::string &path, std::string *name) {
    const bool is_stdin = path == "-";
    *name = is_stdin ? "standard input" : path;
    const int fd = is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail("%s: %s", name->c_str(), strerror(errno));
    return fd;
}

// Appends what one read gives to *buffer; false at the end.
static bool append_read(int fd, const std::string &name, std::string *buffer) {
    const size_t had = buffer->size();
    buffer->resize(had + READ_BYTES);
    ssize_t n;
    do n = read(fd, &(*buffer)[had], READ_BYTES);
    while (n < 0 && errno == EINTR);
    const int error = errno;
    buffer->resize(had + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n < 0) fail("%s: %s", name.c_str(), strerror(error));
    return n > 0;
}

std::string read_file(const std::string &path) {
    std::string name, text;
    const int fd = open_input(path, &name);
    while (append_read(fd, name, &text)) {}
    if (fd > STDIN_FILENO) close(fd);
    return text;
}

std::vector<row> rows_of_texts(const options &o) {
    std::vector<row> rows;
    const size_t step = o.pairs ? 2 : 1;
    for (size_t i = 0; i + step <= o.texts.size(); i += step) rows.push_back({o.texts[i], o.pairs ? o.texts[i + 1] : "", o.pairs, {}, rows.size() + 1});
    return rows;
}

row_source::row_source(const options &o, const row_form &form, std::vector<row> given) : form_(form), prefix_(o.prefix), given_(std::move(given)) {
    if (o.jsonl.empty()) return;
    is_file_ = true;
    fd_ = open_input(o.jsonl, &name_);
}

row_source::~row_source() {
    if (fd_ > STDIN_FILENO) close(fd_);
}

std::string row_source::place(size_t number) const { return (is_file_ ? name_ + ":" : form_.noun + std::string(" ")) + std::to_string(number); }

bool row_source::read_more() {
    buffer_.erase(0, line_start_);
    scanned_ -= line_start_;
    line_start_ = 0;
    return append_read(fd_, name_, &buffer_);
}

// The view lasts until the next call. The last line needs no newline.
bool row_source::next_line(std::string_view *line) {
    for (;;) {
        const size_t newline = buffer_.find('\n', scanned_);
        if (newline != std::string::npos || (at_end_ && line_start_ < buffer_.size())) {
            const size_t end = newline != std::string::npos ? newline : buffer_.size();
            *line = std::string_view(buffer_).substr(line_start_, end - line_start_);
            line_start_ = scanned_ = newline != std::string::npos ? newline + 1 : buffer_.size();
            return true;
        }
        scanned_ = buffer_.size();
        if (at_end_) return false;
        at_end_ = !read_more();
    }
}

bool row_source::would_wait() const {
    if (!is_file_ || at_end_ || buffer_.find('\n', line_start_) != std::string::npos) return false;
    pollfd p = {fd_, POLLIN, 0};
    return poll(&p, 1, 0) == 0;
}

static bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// A member that must be a string; null counts as absent. Returns false when absent.
static bool take_string(const json::value &object, const char *key, const std::string &place, std::string *out) {
    const json::value *v = object.find(key);
    if (!v || v->is_null()) return false;
    if (!v->is_string()) fail("%s: \"%s\" is no string", place.c_str(), key);
    *out = v->text;
    return true;
}

// The object that a line holds.
static json::value parse_line(std::string_view line, const std::string &place, const row_form &form) {
    json::value object;
    std::string why;
    if (!json::parse(line.data(), line.size(), &object, &why)) {
        // The parser sees one line, so its "line 1, " says nothing.
        const std::string prefix = "line 1, ";
        fail("%s: not JSON: %s", place.c_str(), why.compare(0, prefix.size(), prefix) == 0 ? why.c_str() + prefix.size() : why.c_str());
    }
    if (!object.is_object()) fail("%s: not a JSON object like {\"%s\": \"text\"}", place.c_str(), form.first);
    return object;
}

static void take_list(const json::value &object, const char *key, const std::string &place, std::vector<std::string> *out) {
    const json::value *v = object.find(key);
    if (!v) fail("%s: \"%s\" is missing", place.c_str(), key);
    if (!v->is_array()) fail("%s: \"%s\" is no list", place.c_str(), key);
    for (const json::value &item : v->items) {
        if (!item.is_string()) fail("%s: item %zu of \"%s\" is no string", place.c_str(), out->size() + 1, key);
        out->push_back(item.text);
    }
}

bool row_source::next(row *out) {
    if (!is_file_) {
        if (n_rows_ == given_.size()) return false;
        *out = std::move(given_[n_rows_++]);
        out->a.insert(0, prefix_);
        return true;
    }
    std::string_view line;
    do {
        if (!next_line(&line)) return false;
        n_rows_++;
    } while (is_blank(line));
    const std::string here = place(n_rows_);
    const json::value object = parse_line(line, here, form_);
    *out = row();
    out->number = n_rows_;
    if (!take_string(object, form_.first, here, &out->a)) fail("%s: \"%s\" is missing", here.c_str(), form_.first);
    out->a.insert(0, prefix_);
    if (form_.kind == second_text::LIST) {
        take_list(object, form_.second, here, &out->list);
        return true;
    }
    out->is_pair = take_string(object, form_.second, here, &out->b);
    if (out->is_pair && form_.kind == second_text::REFUSED) fail("%s: \"%s\": this command takes single texts", here.c_str(), form_.second);
    if (!out->is_pair && form_.kind == second_text::REQUIRED) fail("%s: \"%s\" is missing", here.c_str(), form_.second);
    return true;
}

// ---- output ----

// The file that a path names in the end, so that a symbolic link is followed rather than replaced.
static std::string final_path(const std::string &path) {
    std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), free);
    return real ? std::string(real.get()) : path;
}

output::output(const std::string &path) : path_(path), fd_(STDOUT_FILENO) {
    if (path.empty()) return;
    path_ = final_path(path);
    struct stat st;
    if (stat(path_.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) { // a device or a pipe: nothing to rename
        fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    } else {
        temporary_ = path_ + ".part-XXXXXX";
        fd_ = mkostemp(&temporary_[0], O_CLOEXEC);
        const mode_t mask = umask(0); // there is no other way to read it
        umask(mask);
        if (fd_ >= 0) (void)fchmod(fd_, 0666 & ~mask);
    }
    if (fd_ >= 0) return;
    const int error = errno;
    temporary_.clear();
    fail("%s: %s", path.c_str(), strerror(error));
}

output::~output() {
    if (path_.empty()) return;
    if (fd_ >= 0) close(fd_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

bool output::is_terminal() const { return isatty(fd_); }

void output::write(std::string_view bytes) {
    pending_.append(bytes);
    if (pending_.size() >= PENDING_BYTES) flush();
}

void output::flush() {
    size_t done = 0;
    while (done < pending_.size()) {
        const ssize_t n = ::write(fd_, pending_.data() + done, pending_.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("cannot write %s: %s", path_.empty() ? "standard output" : path_.c_str(), strerror(errno));
        done += static_cast<size_t>(n);
    }
    pending_.clear();
}

void output::commit() {
    flush();
    if (path_.empty()) return;
    const int status = close(fd_);
    fd_ = -1;
    if (status != 0 || (!temporary_.empty() && rename(temporary_.c_str(), path_.c_str()) != 0)) fail("cannot write %s: %s", path_.c_str(), strerror(errno));
    temporary_.clear();
}

// ---- progress ----

static int64_t now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1000000;
}

progress::progress(const output &out, const char *unit, size_t n_all)
    : is_on_(isatty(STDERR_FILENO) && !out.is_terminal()), unit_(unit), n_all_(n_all), start_ms_(now_ms()) {}

progress::~progress() {
    if (shown_ms_) fputs("\r\033[K", stderr);
}

void progress::show(size_t n_rows) {
    const int64_t now = now_ms();
    if (!is_on_ || now - start_ms_ < 500 || now - shown_ms_ < 200) return;
    shown_ms_ = now;
    const std::string all = n_all_ ? " of " + std::to_string(n_all_) : "";
    fprintf(stderr, "\r%zu%s %s, %.0f a second\033[K", n_rows, all.c_str(), unit_, 1000.0 * static_cast<double>(n_rows) / static_cast<double>(now - start_ms_));
}

// ---- text ----

std::string printable(std::string_view text, size_t max_chars) {
    std::string out;
    const char *p = text.data(), *end = p + text.size();
    for (size_t n_chars = 0; p < end; n_chars++) {
        if (n_chars == max_chars) return out + "...";
        bool valid;
        const size_t n = json::utf8_step(p, end, &valid);
        const unsigned char c = static_cast<unsigned char>(*p);
        const bool is_c1 = n == 2 && c == 0xC2 && static_cast<unsigned char>(p[1]) < 0xA0;
        if (!valid) json::append_utf8(&out, 0xFFFD);
        else if (c < 0x20 || c == 0x7F || is_c1) out.push_back(c == '\n' || c == '\t' || c == '\r' ? ' ' : '?');
        else out.append(p, n);
        p += n;
    }
    return out;
}

size_t count_chars(std::string_view text) {
    size_t n = 0;
    for (char c : text) n += (c & 0xC0) != 0x80;
    return n;
}

std::string pad_right(std::string text, size_t n_chars) {
    const size_t n = count_chars(text);
    if (n < n_chars) text.append(n_chars - n, ' ');
    return text;
}

std::string formatted(const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(nullptr, 0, format, args);
    va_end(args);
    std::string text(static_cast<size_t>(n) + 1, '\0');
    vsnprintf(&text[0], text.size(), format, again);
    va_end(again);
    text.pop_back();
    return text;
}

void append_numbers(std::string *out, const float *x, size_t n) {
    *out += '[';
    for (size_t i = 0; i < n; i++) {
        if (i) *out += ',';
        json::append_number(out, x[i]);
    }
    *out += ']';
}

void append_truncated(std::string *out, bool truncated) { *out += truncated ? ",\"truncated\":true" : ",\"truncated\":false"; }

} // namespace cli
