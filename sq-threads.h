// sq-threads.h - the workers of one context, and how many threads a context should have.
//
// The calling thread is thread 0 of every job, whatever thread it is, so callers under Go's and Java's runtimes leave nothing behind. Workers spin for a short
// while after a job, then park. A job is forked once per forward pass; inside it the threads meet at barriers.
#ifndef SQ_THREADS_H
#define SQ_THREADS_H

#include <stdint.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace sq {

class workers {
  public:
    // cpus: [n_threads] the processor to bind each worker to, -1: none; or empty. spin_us: how long a worker waits for a job before it parks.
    workers(uint32_t n_threads, std::vector<int32_t> cpus, uint32_t spin_us);
    workers(const workers &) = delete;
    workers &operator=(const workers &) = delete;
    ~workers();

    // Starts n_threads - 1 threads; false if the system refuses one (those already started stop with the destructor).
    bool start();

    uint32_t count() const { return n_; }

    // Runs job(arg, t) once for each t in 0 .. count()-1, t = 0 on the calling thread, and returns when all are done. The job must not throw.
    void run(void (*job)(void *arg, uint32_t thread), void *arg);

    // Inside a job: waits until all threads of the job have come here. What they wrote before is visible after.
    void barrier();

  private:
    void worker(uint32_t thread);
    void bind(uint32_t thread) const;
    uint32_t await_job(uint32_t seen); // the next job's number after `seen`

    const uint32_t n_;
    const std::vector<int32_t> cpus_;
    const uint64_t spin_ns_;
    const int spins_before_yield_;
    std::vector<std::thread> threads_;
    void (*job_)(void *, uint32_t) = nullptr; // null: stop
    void *arg_ = nullptr;

    alignas(64) std::atomic<uint32_t> job_number_{0};
    std::atomic<uint32_t> n_parked_{0};
    std::mutex mutex_;
    std::condition_variable wake_;

    alignas(64) std::atomic<uint32_t> arrived_{0};
    alignas(64) std::atomic<uint32_t> phase_{0};
};

// The monotonic clock, nanoseconds.
uint64_t now_ns();

// True if the affinity of the process, that of its first thread, allows this processor.
bool may_run_on(int32_t cpu);

// The physical cores among the processors that this thread's affinity allows, no more than the cgroup's CPU quota rounded down, and at least 1.
uint32_t default_threads();

} // namespace sq

#endif
