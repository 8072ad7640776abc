// test-signals.cpp - signals and fork: a storm of signals without SA_RESTART, system calls that are interrupted and do half of what they were asked, and children
// of a process whose threads are at work. None of it changes a result.
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "models.h"
#include "scratch.h"

// ---- interrupted system calls ----

static std::atomic<bool> interrupting{false};
static std::atomic<unsigned> n_calls{0}, n_interrupted{0};

// Every other call is interrupted before it did anything.
static bool interrupted() {
    if (!interrupting || n_calls++ % 2 != 0) return false;
    n_interrupted++;
    errno = EINTR;
    return true;
}

static size_t part_of(size_t n) { return interrupting && n > 1000 ? n / 2 : n; }

extern "C" {
ssize_t pread(int fd, void *out, size_t n, off_t at) { return interrupted() ? -1 : syscall(SYS_pread64, fd, out, part_of(n), at); }
ssize_t write(int fd, const void *data, size_t n) { return interrupted() ? -1 : syscall(SYS_write, fd, data, part_of(n)); }
int fsync(int fd) { return interrupted() ? -1 : static_cast<int>(syscall(SYS_fsync, fd)); }
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return interrupted() ? -1 : static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
// On Linux an interrupted close has closed the file.
int close(int fd) {
    const int status = static_cast<int>(syscall(SYS_close, fd));
    return status == 0 && interrupted() ? -1 : status;
}
}

namespace {

// ---- what is done again and again ----

const char CHECKPOINT[] = "tests/golden-bad/mini";

std::string bytes_of(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    return bytes.str();
}

int32_t convert_to(const std::string &path) {
    sq::convert_options o;
    o.checkpoint = CHECKPOINT;
    o.output = path;
    sq::convert_result result;
    sq::message why{};
    const int32_t status = sq::convert(o, &result, &why);
    if (status != SQ_OK) fprintf(stderr, "  %s\n", why.text);
    return status;
}

// Loads the file, mapped or copied, and embeds two texts on as many threads.
std::vector<float> answer(const std::string &path, bool copy, uint32_t n_threads) {
    sq_model_params p{};
    p.size = sizeof p;
    p.copy = copy;
    p.verify = 1;
    sq_model *raw = nullptr;
    char err[256] = "";
    if (!CHECK_EQ(sq_model_load(path.c_str(), &p, &raw, err, sizeof err), SQ_OK)) fprintf(stderr, "  %s\n", err);
    const model_handle m(raw);
    if (!m) return {};
    const ctx_handle c = context(m, n_threads);
    const size_t starts[] = {0, 5, 8};
    const sq_texts t{sizeof t, 2, "a dogb a", starts, nullptr, nullptr};
    std::vector<float> out(2 * m->arch.width);
    size_t n = 0;
    CHECK_EQ(sq_embed(c.get(), &t, nullptr, out.data(), out.size(), &n), SQ_OK);
    return out;
}

struct calm {
    const scratch folder;
    const std::string path = folder.path + "/calm.sq", again = folder.path + "/again.sq";
    std::string bytes;
    std::vector<float> expected;
    calm() {
        CHECK_EQ(convert_to(path), SQ_OK);
        bytes = bytes_of(path);
        expected = answer(path, false, 1);
        CHECK(!bytes.empty() && !expected.empty());
    }
    // The same things, which must end the same.
    void repeat() const {
        for (const bool copy : {false, true})
            for (const uint32_t n_threads : {1u, 2u}) CHECK(answer(path, copy, n_threads) == expected);
        CHECK_EQ(convert_to(again), SQ_OK);
        CHECK(bytes_of(again) == bytes);
    }
};

void test_interrupted_calls(const calm &c) {
    interrupting = true;
    c.repeat();
    interrupting = false;
    printf("%u system calls interrupted\n", n_interrupted.load());
    CHECK(n_interrupted > 10);
}

std::atomic<unsigned> n_signals{0};

void test_storm(const calm &c) {
    struct sigaction action {}, before{};
    action.sa_handler = [](int) { n_signals++; };
    CHECK(sigaction(SIGALRM, &action, &before) == 0); // without SA_RESTART
    const itimerval storm = {{0, 200}, {0, 200}}, still{};
    CHECK(setitimer(ITIMER_REAL, &storm, nullptr) == 0);
    for (int i = 0; i < 200 && (i < 3 || n_signals < 1000); i++) c.repeat();
    CHECK(setitimer(ITIMER_REAL, &still, nullptr) == 0);
    sigaction(SIGALRM, &before, nullptr);
    printf("%u signals\n", n_signals.load());
    CHECK(n_signals >= 100);
}

// ---- fork ----

// A child of a process whose other threads compute: each of their contexts refuses, freeing one does not hang, and a new context on the same model works.
bool child_works(const model_handle &m, std::vector<ctx_handle> *old, const batch_builder &b, const std::vector<float> &expected) {
    const sq_batch batch = b.batch();
    std::vector<float> out(expected.size());
    size_t n;
    for (ctx_handle &c : *old) {
        if (sq_forward(c.get(), &batch, SQ_HIDDEN, out.data(), out.size(), &n) != SQ_E_BUSY) return false;
        c.reset();
    }
    return run(context(m, 2), b, SQ_HIDDEN, m->arch.width) == expected && check_n_failed == 0;
}

void test_fork() {
    if (CHECK_SANITIZED) return SKIP("fork beside running threads: the sanitizers' own locks may be held in the child");
    const model_handle m = load(converted("tests/golden/bert-64", sq::quant_mode::static_scales));
    if (!m) return;
    batch_builder b;
    for (const golden_row &r : read_golden("tests/golden/bert-64/expected.jsonl")) b.add(r);
    const std::vector<float> expected = run(context(m), b, SQ_HIDDEN, m->arch.width);
    std::vector<ctx_handle> contexts;
    for (uint32_t t = 0; t < 4; t++) contexts.push_back(context(m, 1 + t % 2));
    std::atomic<bool> done{false};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < contexts.size(); t++)
        threads.emplace_back([&, t] {
            while (!done) CHECK(run(contexts[t], b, SQ_HIDDEN, m->arch.width) == expected);
        });
    for (int i = 0; i < 20; i++) {
        fflush(nullptr);
        const pid_t child = fork();
        if (child == 0) _exit(child_works(m, &contexts, b, expected) ? 0 : 1);
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK_EQ(status, 0);
    }
    done = true;
    for (std::thread &t : threads) t.join();
}

} // namespace

int main() {
    const calm c;
    test_interrupted_calls(c);
    test_storm(c);
    test_fork();
    return check_summary("test-signals");
}
