// sq-threads.cpp - a context's workers, and the default number of threads.
#include "sq-threads.h"

#include <fenv.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sq {

namespace {

inline void pause_cpu() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

// A pause lasts 40 to 140 cycles on recent cores. At a barrier the others are computing, so nobody parks; where other processes keep one of the threads from
// running, yielding soon lets it run, and at once where there are more threads than cores.
constexpr int SPINS_BEFORE_YIELD = 500, SPINS_WHEN_CROWDED = 10;
constexpr int SPINS_BETWEEN_LOOKS = 32; // at the clock, while waiting for a job

} // namespace

uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

workers::workers(uint32_t n_threads, std::vector<int32_t> cpus, uint32_t spin_us)
    : n_(n_threads), cpus_(std::move(cpus)), spin_ns_(uint64_t{1000} * spin_us),
      spins_before_yield_(n_threads > default_threads() ? SPINS_WHEN_CROWDED : SPINS_BEFORE_YIELD) {}

workers::~workers() {
    if (threads_.empty()) return;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        job_ = nullptr;
        job_number_.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread &t : threads_) t.join();
}

bool workers::start() {
    threads_.reserve(n_ - 1);
    try {
        for (uint32_t t = 1; t < n_; t++) threads_.emplace_back([this, t] { worker(t); });
    } catch (const std::system_error &) {
        return false;
    }
    return true;
}

void workers::run(void (*job)(void *, uint32_t), void *arg) {
    if (n_ > 1) {
        job_ = job;
        arg_ = arg;
        job_number_.fetch_add(1); // sequentially consistent, as is n_parked_: either we see a parked worker or it sees the job
        if (n_parked_.load() > 0) {
            { std::lock_guard<std::mutex> lock(mutex_); } // a worker between its last look and its wait holds the mutex
            wake_.notify_all();
        }
    }
    job(arg, 0);
    barrier();
}

void workers::barrier() {
    if (n_ == 1) return;
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
        arrived_.store(0, std::memory_order_relaxed);
        phase_.store(phase + 1, std::memory_order_release);
        return;
    }
    for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; spins++) {
        if (spins < spins_before_yield_) pause_cpu();
        else sched_yield();
    }
}

uint32_t workers::await_job(uint32_t seen) {
    for (const uint64_t end = now_ns() + spin_ns_; now_ns() < end;)
        for (int spins = 0; spins < SPINS_BETWEEN_LOOKS; spins++) {
            uint32_t number = job_number_.load(std::memory_order_acquire);
            if (number != seen) return number;
            pause_cpu();
        }
    std::unique_lock<std::mutex> lock(mutex_);
    n_parked_.fetch_add(1);
    wake_.wait(lock, [&] { return job_number_.load() != seen; });
    n_parked_.fetch_sub(1);
    return job_number_.load();
}

// A processor that is gone by now leaves the worker unbound.
void workers::bind(uint32_t thread) const {
#if defined(__linux__)
    if (cpus_.empty() || cpus_[thread] < 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus_[thread], &one);
    sched_setaffinity(0, sizeof one, &one);
#else
    (void)thread;
#endif
}

void workers::worker(uint32_t thread) {
    bind(thread);
    fesetenv(FE_DFL_ENV); // the creating thread may have had another rounding mode or flushed denormals
    for (uint32_t seen = 0;;) {
        seen = await_job(seen);
        if (!job_) return;
        job_(arg_, thread);
        barrier();
    }
}

// ---- how many threads ----

namespace {

// Contents of a small system file, "" if it cannot be read.
std::string slurp(const std::string &path) {
    const std::unique_ptr<FILE, int (*)(FILE *)> file(fopen(path.c_str(), "re"), fclose);
    char buffer[4096];
    return file ? std::string(buffer, fread(buffer, 1, sizeof buffer, file.get())) : std::string();
}

uint32_t physical_cores() {
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return std::max(1u, std::thread::hardware_concurrency());
    std::set<std::pair<std::string, std::string>> cores; // (package, core)
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        const std::string name = std::to_string(cpu), topology = "/sys/devices/system/cpu/cpu" + name + "/topology/";
        const std::string core = slurp(topology + "core_id");
        cores.insert({slurp(topology + "physical_package_id"), core.empty() ? "cpu" + name : core});
    }
    return std::max<uint32_t>(1, static_cast<uint32_t>(cores.size()));
#else
    return std::max(1u, std::thread::hardware_concurrency());
#endif
}

// CPUs' worth of time that the quota of one cgroup folder allows, rounded down, at least 1; UINT32_MAX without a quota.
// Version 2 has "QUOTA PERIOD" in cpu.max, version 1 two files (Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst in Linux).
uint32_t quota_of(const std::string &folder) {
    std::string text = slurp(folder + "/cpu.max");
    if (text.empty()) text = slurp(folder + "/cpu.cfs_quota_us") + " " + slurp(folder + "/cpu.cfs_period_us");
    long long quota = 0, period = 0;
    if (sscanf(text.c_str(), "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return UINT32_MAX;
    return static_cast<uint32_t>(std::clamp<long long>(quota / period, 1, UINT32_MAX));
}

// The tightest quota on the way from this process's cgroup to the root; inside a container the root itself is the container's.
uint32_t cgroup_quota() {
    uint32_t least = std::min(quota_of("/sys/fs/cgroup"), quota_of("/sys/fs/cgroup/cpu"));
    const std::string lines = slurp("/proc/self/cgroup");
    for (size_t at = 0; at < lines.size();) {
        size_t end = std::min(lines.find('\n', at), lines.size());
        std::string line = lines.substr(at, end - at);
        at = end + 1;
        // ID:CONTROLLERS:PATH; version 2 names no controllers
        const size_t list_at = line.find(':') + 1, path_at = line.find(':', list_at) + 1;
        if (list_at == 0 || path_at == 0) continue;
        const std::string list = "," + line.substr(list_at, path_at - 1 - list_at) + ",";
        const bool unified = list == ",,";
        if (!unified && list.find(",cpu,") == std::string::npos) continue;
        const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
        for (std::string path = line.substr(path_at); path.size() > 1 && path[0] == '/'; path.resize(path.rfind('/'))) least = std::min(least, quota_of(root + path));
    }
    return least;
}

} // namespace

bool may_run_on(int32_t cpu) {
#if defined(__linux__)
    cpu_set_t allowed;
    return cpu >= 0 && cpu < CPU_SETSIZE && sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0 && CPU_ISSET(cpu, &allowed);
#else
    return cpu >= 0;
#endif
}

uint32_t default_threads() { return std::min(physical_cores(), cgroup_quota()); }

} // namespace sq
