// test-mapped.cpp - a model file that changes under a process: replaced, removed, truncated, overwritten; mapped, copied, verified. sq.h says what may be relied on.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <functional>
#include <random>

#include "models.h"
#include "scratch.h"

// ---- a file that shrinks while it is read ----

static const char *shrinking = nullptr; // path of a file that a read cuts off behind what it gives

extern "C" ssize_t pread(int fd, void *out, size_t n, off_t at) {
    if (!shrinking) return syscall(SYS_pread64, fd, out, n, at);
    const ssize_t got = syscall(SYS_pread64, fd, out, std::min<size_t>(n, 1000), at);
    if (truncate(shrinking, at + got) != 0) abort();
    return got;
}

namespace {

const char TEXT[] = "the dog sleeps, na\xC3\xAFve zz";

model_handle load_file(const std::string &path, bool copy, bool verify, int32_t expected = SQ_OK, const char *reason = "") {
    sq_model_params p{};
    p.size = sizeof p;
    p.copy = copy;
    p.verify = verify;
    sq_model *m = nullptr;
    char err[256] = "";
    CHECK_EQ(sq_model_load(path.c_str(), &p, &m, err, sizeof err), expected);
    if (!CHECK(strstr(err, reason) != nullptr)) fprintf(stderr, "  %s\n", err);
    return model_handle(m);
}

int32_t embed(const model_handle &m, std::vector<float> *out) {
    const ctx_handle c = context(m);
    const size_t starts[] = {0, sizeof TEXT - 1};
    const sq_texts t{sizeof t, 1, TEXT, starts, nullptr, nullptr};
    out->assign(m->arch.width, 0);
    size_t n = 0;
    return sq_embed(c.get(), &t, nullptr, out->data(), out->size(), &n);
}

std::vector<float> embedded(const model_handle &m) {
    std::vector<float> out;
    CHECK_EQ(embed(m, &out), SQ_OK);
    return out;
}

// The wait status of a child that runs f.
int in_child(const std::function<bool()> &f) {
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL); // sanitizers have a handler
        _exit(f() ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return status;
}

struct model_file {
    const scratch folder;
    const std::string path = folder.path + "/model.sq", bytes;
    explicit model_file(const std::string &bytes_) : bytes(bytes_) { folder.put("model.sq", bytes); }
    void replace(const std::string &with) const {
        folder.put("next.sq", with);
        CHECK(rename((folder.path + "/next.sq").c_str(), path.c_str()) == 0);
    }
    void overwrite(size_t at, const std::string &with) const {
        const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
        CHECK(pwrite(fd, with.data(), with.size(), static_cast<off_t>(at)) == static_cast<ssize_t>(with.size()));
        close(fd);
    }
};

// A rename puts another file under the name: who has the old one keeps it. Nor does it matter when the name goes away.
void test_replaced(const std::string &bytes, const std::string &others) {
    const model_file f(bytes);
    const model_handle m = load_file(f.path, false, false);
    const std::vector<float> expected = embedded(m), other = embedded(load(others));
    CHECK(expected != other);
    f.replace(others);
    CHECK(embedded(m) == expected);
    CHECK(embedded(load_file(f.path, false, false)) == other);
    unlink(f.path.c_str());
    CHECK(embedded(m) == expected);
    load_file(f.path, false, false, SQ_E_IO);
}

void test_truncated_before(const std::string &bytes) {
    const model_file f(bytes);
    for (const size_t n : {bytes.size() - 1, bytes.size() / 2, size_t{64}, size_t{63}, size_t{0}}) {
        CHECK(truncate(f.path.c_str(), static_cast<off_t>(n)) == 0);
        for (const bool copy : {false, true}) load_file(f.path, copy, false, SQ_E_FORMAT);
    }
}

// Of a mapped file the kernel takes the pages away; of a copy nobody can.
void test_truncated_after(const std::string &bytes) {
    const model_file f(bytes);
    const std::vector<float> expected = embedded(load(bytes));
    const int status = in_child([&] {
        const model_handle m = load_file(f.path, false, false);
        if (truncate(f.path.c_str(), 0) != 0) return false;
        return embedded(m) == expected;
    });
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
    f.folder.put("model.sq", bytes);
    const model_handle m = load_file(f.path, true, false);
    CHECK(truncate(f.path.c_str(), 0) == 0);
    CHECK(embedded(m) == expected);
}

void test_shrinks_while_copied(const std::string &bytes) {
    const model_file f(bytes);
    shrinking = f.path.c_str();
    load_file(f.path, true, false, SQ_E_IO, "it became shorter");
    shrinking = nullptr;
}

// A byte of every tensor changed in the file: `verify` names the tensor. Without it the file is taken, or refused for what cannot be.
void test_verify(const std::string &bytes) {
    const model_file f(bytes);
    const model_handle good = load(bytes);
    const std::vector<sq::tensor_entry> tensors = good->file.tensors;
    for (const sq::tensor_entry &t : tensors) {
        const size_t at = t.offset + t.n_bytes / 2;
        f.overwrite(at, std::string(1, static_cast<char>(bytes[at] ^ 0x10)));
        for (const bool copy : {false, true}) load_file(f.path, copy, true, SQ_E_FORMAT, ("tensor '" + t.name + "' is damaged").c_str());
        f.overwrite(at, bytes.substr(at, 1));
    }
    CHECK(embedded(load_file(f.path, false, true)) == embedded(good));
}

// Other bytes in place of every tensor's: a mapping shows them, and answers mean nothing, but nothing crashes. A copy keeps its answers.
void test_overwritten(const std::string &bytes) {
    const model_file f(bytes);
    const std::vector<float> expected = embedded(load(bytes));
    const model_handle copy = load_file(f.path, true, false);
    const size_t first = copy->file.tensors[0].offset;
    for (unsigned seed = 1; seed <= 20; seed++) {
        const int status = in_child([&] {
            const model_handle m = load_file(f.path, false, false);
            std::mt19937 rng(seed);
            std::string noise(bytes.size() - first, '\0');
            for (char &c : noise) c = static_cast<char>(seed == 1 ? 0xFF : rng());
            f.overwrite(first, noise);
            std::vector<float> out;
            const int32_t answer = embed(m, &out);
            return answer == SQ_OK || answer == SQ_E_NUMERIC || answer == SQ_E_FORMAT;
        });
        CHECK_EQ(status, 0);
        CHECK(embedded(copy) == expected);
        f.overwrite(first, bytes.substr(first));
    }
}

} // namespace

int main() {
    const std::string bytes = converted("tests/golden/bert-64", sq::quant_mode::static_scales);
    const std::string others = converted("tests/golden/bert-64", sq::quant_mode::none), unigram = converted("tests/golden/xlmr-48", sq::quant_mode::dynamic_scales);
    if (bytes.empty() || others.empty() || unigram.empty()) return check_summary("test-mapped");
    test_replaced(bytes, others);
    test_truncated_before(bytes);
    test_truncated_after(bytes);
    test_shrinks_while_copied(bytes);
    test_verify(bytes);
    for (const std::string &b : {bytes, others, unigram}) test_overwritten(b);
    return check_summary("test-mapped");
}
