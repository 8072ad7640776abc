// examples/cli-machine.h - the machine that `sq bench` and `sq profile` measure on: its processors, caches and memory (cli-machine.cpp), and how fast it
// computes and reads (cli-speed.cpp). What the system does not tell is 0 or empty, never an error. Models are not its job. Read cli-measure.h next.
#ifndef SQ_EXAMPLES_CLI_MACHINE_H
#define SQ_EXAMPLES_CLI_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace cli {

// ---- what the system tells (cli-machine.cpp) ----

// A physical core, by the lowest of its hardware threads that this process may use.
struct core {
    int32_t cpu;     // number of the processor, as sched_setaffinity counts
    int32_t package; // socket
    int32_t node;    // NUMA node
};

// Cores that this process may use, by package, then by processor. *is_known (may be null) is false where /sys does not tell which hardware threads share a core:
// then each processor counts as one.
std::vector<core> physical_cores(bool *is_known);

struct numa_node {
    int32_t id;
    std::vector<int32_t> cpus; // those that this process may use
};

// Nodes with processors for this process; one of number 0 with all of them where /sys lists none.
std::vector<numa_node> numa_nodes();

std::vector<int32_t> allowed_cpus();                    // processors in this thread's affinity
bool bind_this_thread(const std::vector<int32_t> &cpus); // false if the system refuses

std::string cpu_name();
size_t cache_bytes(int level);  // data or unified cache of this level that processor 0 uses
size_t available_bytes();       // memory that can be had without swapping, within the cgroup's limit

struct memory_use {
    size_t resident = 0, anonymous = 0; // bytes: VmRSS and RssAnon of /proc/self/status
};
memory_use memory_in_use();

double now_s(); // seconds of the monotonic clock

// ---- how fast it is (cli-speed.cpp) ----

// Threads that do the same job at the same time and sleep in between. Thread 0 is the caller of run().
class thread_team {
  public:
    // cpus: the processor of each thread, or none to leave them unbound; the caller binds itself.
    thread_team(uint32_t n_threads, const std::vector<int32_t> &cpus);
    ~thread_team();
    thread_team(const thread_team &) = delete;
    thread_team &operator=(const thread_team &) = delete;

    uint32_t count() const { return n_; }
    void run(const std::function<void(uint32_t thread)> &job); // job must not throw

  private:
    const uint32_t n_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable changed_;
    const std::function<void(uint32_t)> *job_ = nullptr; // null ends the threads
    uint64_t job_number_ = 0;
    uint32_t n_running_ = 0;
    std::atomic<uint32_t> n_ready_{0};

    void stop();
    void work(uint32_t thread, int32_t cpu);
    void meet();
};

// Size of the team for n_threads: on fewer processors as many as there are of those, since taking turns adds nothing to a peak.
uint32_t at_once(uint32_t n_threads, const std::vector<int32_t> &cpus);

// Operations in a loop of independent multiply-adds in registers, as a kernel could do at best: int8 products of an instruction set, or float32 ones.
// A multiply-add counts as two operations.
enum class arithmetic { INT8, FLOAT32 };

class peak_meter {
  public:
    // isa: a name of sq_isa_string for a model that has been loaded, so this CPU has it. The team is borrowed.
    peak_meter(const char *isa, arithmetic what, thread_team *team);

    bool exists() const { return loop_ != nullptr; } // plain C++ has no defined peak
    double one() const;                              // operations a second of one thread, 0 without a loop; takes 0.6 ms
    double all() const;                              // of the team's threads together

  private:
    using loop_function = double (*)(size_t n); // returns the operations that it did
    loop_function loop_;
    size_t n_iterations_; // of one call, some 10 microseconds
    thread_team *team_;

    double rate() const;
};

// Bytes a second at which the team reads a buffer of n_bytes again and again, each thread its own part: the best of several passes, since other load can only
// slow a pass down. isa as above. Fails when there is no memory.
double read_bandwidth(const char *isa, thread_team *team, size_t n_bytes);

} // namespace cli

#endif
