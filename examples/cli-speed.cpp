// examples/cli-speed.cpp - how fast the machine computes and reads: loops in assembly, on one thread or on several at once.
//
// A peak is what a loop of independent multiply-adds in registers does. Latencies and rates per cycle that the loops are laid out for: uops.info and the Intel
// optimization manual. The caller has made sure that the CPU has the instruction set: a loaded model of that name proves it.
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <system_error>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "cli-common.h"
#include "cli-machine.h"

namespace cli {

constexpr double SETTLE_S = 1e-4;  // before a peak is timed: workers of the library go to sleep after 50 us, frequency follows the load
constexpr double PEAK_S = 5e-4;    // timed part
constexpr double PASS_S = 5e-3;    // of reading; waking the threads takes some 50 us of it
constexpr double READING_S = 0.15; // all passes over one buffer
constexpr size_t PAGE = 4096;

// ---- threads ----

thread_team::thread_team(uint32_t n_threads, const std::vector<int32_t> &cpus) : n_(n_threads) {
    try {
        for (uint32_t t = 1; t < n_; t++) threads_.emplace_back([this, t, cpu = t < cpus.size() ? cpus[t] : -1] { work(t, cpu); });
    } catch (const std::system_error &) {
        stop();
        fail("cannot start %u threads to measure with", unsigned{n_});
    }
}

thread_team::~thread_team() { stop(); }

void thread_team::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        job_ = nullptr;
        job_number_++;
    }
    changed_.notify_all();
    for (std::thread &t : threads_) t.join();
    threads_.clear();
}

// Waits busily for the others, so that all begin together; they were woken a moment ago.
void thread_team::meet() {
    n_ready_.fetch_add(1);
    for (int spins = 0; n_ready_.load() < n_; spins++)
        if (spins > 1000) std::this_thread::yield();
}

void thread_team::run(const std::function<void(uint32_t)> &job) {
    if (n_ == 1) return job(0);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        job_ = &job;
        job_number_++;
        n_running_ = n_ - 1;
        n_ready_.store(0);
    }
    changed_.notify_all();
    meet();
    job(0);
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return n_running_ == 0; });
}

void thread_team::work(uint32_t thread, int32_t cpu) {
    if (cpu >= 0) bind_this_thread({cpu});
    for (uint64_t seen = 0;;) {
        const std::function<void(uint32_t)> *job;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [&] { return job_number_ != seen; });
            seen = job_number_;
            job = job_;
        }
        if (!job) return;
        meet();
        (*job)(thread);
        std::lock_guard<std::mutex> lock(mutex_);
        if (--n_running_ == 0) changed_.notify_all();
    }
}

// ---- peaks ----

#if defined(__x86_64__)

// Twelve accumulators in registers 1 to 12: at most 2 instructions a cycle with a latency of at most 5 cycles need ten. Register 0 holds the factors.
#define TWELVE(instruction) \
    instruction("1") instruction("2") instruction("3") instruction("4") instruction("5") instruction("6") instruction("7") instruction("8") instruction("9") \
        instruction("10") instruction("11") instruction("12")
#define CLEAR(i) "vxorps %%xmm" i ", %%xmm" i ", %%xmm" i "\n" // clears the whole register
#define VPDPBUSD_ZMM(i) "vpdpbusd %%zmm0, %%zmm0, %%zmm" i "\n"
#define VPDPBUSD_YMM(i) "%{vex%} vpdpbusd %%ymm0, %%ymm0, %%ymm" i "\n"
#define VPMADDWD_YMM(i) "vpmaddwd %%ymm0, %%ymm0, %%ymm" i "\n"
#define FMA_ZMM(i) "vfmadd231ps %%zmm0, %%zmm0, %%zmm" i "\n"
#define FMA_YMM(i) "vfmadd231ps %%ymm0, %%ymm0, %%ymm" i "\n"

// A loop of n rounds of twelve instructions that do `lanes` multiply-adds each, on the register file `reg` (zmm or ymm), with a factor that is `word` in all lanes.
#define PEAK_LOOP(name, instruction, reg, lanes, word) \
    static double name(size_t n) { \
        const double ops = 12.0 * 2 * (lanes) * static_cast<double>(n); \
        const uint32_t factor = (word); \
        __asm__ volatile("vbroadcastss %1, %%" reg "0\n" TWELVE(CLEAR) "1:\n" TWELVE(instruction) "dec %0\n jnz 1b\n vzeroupper\n" \
                         : "+r"(n) \
                         : "m"(factor) \
                         : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12"); \
        return ops; \
    }

constexpr uint32_t SMALL_BYTES = 0x01020304, SMALL_FLOAT = 0x3f800000; // 1.0f: no sum overflows or is denormal, which would slow an instruction down
PEAK_LOOP(vnni_zmm_loop, VPDPBUSD_ZMM, "zmm", 64, SMALL_BYTES)
PEAK_LOOP(vnni_ymm_loop, VPDPBUSD_YMM, "ymm", 32, SMALL_BYTES)
PEAK_LOOP(madd_ymm_loop, VPMADDWD_YMM, "ymm", 16, SMALL_BYTES)
PEAK_LOOP(fma_zmm_loop, FMA_ZMM, "zmm", 16, SMALL_FLOAT)
PEAK_LOOP(fma_ymm_loop, FMA_YMM, "ymm", 8, SMALL_FLOAT)

// TDPBUSD does 16 x 16 x 64 multiply-adds in 16 cycles with a latency of 52: six accumulators, where four are enough. Tiles 6 and 7 are the factors.
static double amx_loop(size_t n) {
    const double ops = 6.0 * 2 * 16 * 16 * 64 * static_cast<double>(n);
    alignas(64) uint8_t config[64] = {1}; // Intel SDM volume 1, table 18-4: palette 1, then u16 bytes per row at 16, u8 rows at 48
    for (int i = 0; i < 8; i++) config[16 + 2 * i] = 64, config[48 + i] = 16;
    alignas(64) uint8_t factors[1024];
    memset(factors, 3, sizeof factors);
    __asm__ volatile("ldtilecfg %1\n"
                     "tilezero %%tmm0\n tilezero %%tmm1\n tilezero %%tmm2\n tilezero %%tmm3\n tilezero %%tmm4\n tilezero %%tmm5\n"
                     "tileloadd (%2,%3,1), %%tmm6\n tileloadd (%2,%3,1), %%tmm7\n"
                     "1:\n"
                     "tdpbusd %%tmm7, %%tmm6, %%tmm0\n tdpbusd %%tmm7, %%tmm6, %%tmm1\n tdpbusd %%tmm7, %%tmm6, %%tmm2\n"
                     "tdpbusd %%tmm7, %%tmm6, %%tmm3\n tdpbusd %%tmm7, %%tmm6, %%tmm4\n tdpbusd %%tmm7, %%tmm6, %%tmm5\n"
                     "dec %0\n jnz 1b\n tilerelease\n"
                     : "+r"(n)
                     : "m"(config), "r"(factors), "r"(size_t{64})
                     : "cc", "memory");
    return ops;
}

// Linux gives tile data only to processes that ask (Documentation/x86/xstate.rst): ARCH_REQ_XCOMP_PERM, bit 18 of XCR0.
static bool may_use_tiles() { return syscall(SYS_arch_prctl, 0x1023L, 18L) == 0; }

#endif

peak_meter::peak_meter(const char *isa, arithmetic what, thread_team *team) : loop_(nullptr), n_iterations_(5000), team_(team) {
#if defined(__x86_64__)
    const bool is_amx = strcmp(isa, "amx") == 0, is_512 = is_amx || strcmp(isa, "avx512vnni") == 0;
    const bool is_256 = strcmp(isa, "avxvnni") == 0 || strcmp(isa, "avx2") == 0;
    if (what == arithmetic::FLOAT32) {
        if (is_512) loop_ = fma_zmm_loop;
        else if (is_256) loop_ = fma_ymm_loop;
    } else if (is_amx) {
        n_iterations_ = 300;
        if (may_use_tiles()) loop_ = amx_loop;
    } else if (is_512) {
        loop_ = vnni_zmm_loop;
    } else if (is_256) {
        loop_ = strcmp(isa, "avxvnni") == 0 ? vnni_ymm_loop : madd_ymm_loop;
    }
#else
    (void)isa, (void)what;
#endif
}

uint32_t at_once(uint32_t n_threads, const std::vector<int32_t> &cpus) { return std::min(n_threads, static_cast<uint32_t>(cpus.size())); }

double peak_meter::rate() const {
    for (const double end = now_s() + SETTLE_S; now_s() < end;) loop_(n_iterations_);
    const double start = now_s();
    double ops = 0, elapsed;
    do {
        ops += loop_(n_iterations_);
        elapsed = now_s() - start;
    } while (elapsed < PEAK_S);
    return ops / elapsed;
}

double peak_meter::one() const { return loop_ ? rate() : 0; }

double peak_meter::all() const {
    if (!loop_) return 0;
    std::vector<double> rates(team_->count());
    team_->run([&](uint32_t thread) { rates[thread] = rate(); });
    double sum = 0;
    for (double r : rates) sum += r;
    return sum;
}

// ---- reading ----

#if defined(__x86_64__)

// n is a multiple of 512. Eight loads a round keep more reads in flight than a core can have (some 16 to 48 missing cache lines).
static void read_zmm(const uint8_t *p, size_t n) {
    __asm__ volatile("1:\n"
                     "vmovups (%0), %%zmm0\n vmovups 64(%0), %%zmm1\n vmovups 128(%0), %%zmm2\n vmovups 192(%0), %%zmm3\n"
                     "vmovups 256(%0), %%zmm4\n vmovups 320(%0), %%zmm5\n vmovups 384(%0), %%zmm6\n vmovups 448(%0), %%zmm7\n"
                     "add $512, %0\n sub $512, %1\n jnz 1b\n vzeroupper\n"
                     : "+r"(p), "+r"(n)
                     :
                     : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
}

// Two registers for each 64 bytes
static void read_ymm(const uint8_t *p, size_t n) {
    __asm__ volatile("1:\n"
                     "vmovups (%0), %%ymm0\n vmovups 32(%0), %%ymm1\n vmovups 64(%0), %%ymm2\n vmovups 96(%0), %%ymm3\n"
                     "vmovups 128(%0), %%ymm4\n vmovups 160(%0), %%ymm5\n vmovups 192(%0), %%ymm6\n vmovups 224(%0), %%ymm7\n"
                     "add $256, %0\n sub $256, %1\n jnz 1b\n vzeroupper\n"
                     : "+r"(p), "+r"(n)
                     :
                     : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
}

#endif

static void read_words(const uint8_t *p, size_t n) {
    for (const uint8_t *end = p + n; p < end; p += 8) (void)*reinterpret_cast<const volatile uint64_t *>(p);
}

using read_function = void (*)(const uint8_t *p, size_t n);

static read_function reader_of(const char *isa) {
#if defined(__x86_64__)
    if (strcmp(isa, "amx") == 0 || strcmp(isa, "avx512vnni") == 0) return read_zmm;
    if (strcmp(isa, "avxvnni") == 0 || strcmp(isa, "avx2") == 0) return read_ymm;
#else
    (void)isa;
#endif
    return read_words;
}

double read_bandwidth(const char *isa, thread_team *team, size_t n_bytes) {
    const read_function read = reader_of(isa);
    const size_t part = std::max(PAGE, n_bytes / team->count() / PAGE * PAGE), size = part * team->count();
    void *mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) fail("out of memory: %zu bytes to measure the bandwidth with", size);
    madvise(mapped, size, MADV_HUGEPAGE); // a wish: with small pages, address translation may cost as much as reading
    uint8_t *buffer = static_cast<uint8_t *>(mapped);
    team->run([&](uint32_t t) { memset(buffer + t * part, 1, part); }); // on the node of the thread that reads it
    std::vector<double> rates(team->count());
    double best = 0;
    const double end = now_s() + READING_S;
    for (int pass = 0; pass < 3 || now_s() < end; pass++) {
        team->run([&](uint32_t t) {
            const double start = now_s();
            double elapsed, n_read = 0;
            do {
                read(buffer + t * part, part);
                n_read += static_cast<double>(part);
                elapsed = now_s() - start;
            } while (elapsed < PASS_S);
            rates[t] = n_read / elapsed;
        });
        double sum = 0;
        for (double r : rates) sum += r;
        best = std::max(best, sum);
    }
    munmap(mapped, size);
    return best;
}

} // namespace cli
