// examples/cli-instances.cpp - `sq bench --instances`: many contexts at once, each with its own thread and workers, on one model or one copy of it per NUMA node.
//
// The method is that of arXiv 2608.18182: batch 1, 256 tokens, four threads an instance, 100 calls to warm up, 200 timed. Instances are made one after the
// other, so that the memory of each shows; they warm up together and begin their timed calls together, and none stops before all have made theirs. Only what
// ends between the last start and the first finish is counted: the time in which all of them are at work.
#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <system_error>

#include "cli-measure.h"

namespace cli {

constexpr uint32_t DEFAULT_LENGTH = 256, DEFAULT_THREADS = 4, DEFAULT_WARMUP = 100, DEFAULT_RUNS = 200;
constexpr double WARM_SHARE = 0.2; // of --seconds, before them
constexpr size_t MAX_THREADS = 4096; // of all instances

namespace {

// ---- where instances run ----

struct placement {
    std::vector<int32_t> cpus; // the processor of each thread; empty: not pinned
    std::vector<int32_t> room; // processors that all its threads may use; empty: all of the process
    int32_t node = 0;          // NUMA node whose copy of the model it uses
};

uint32_t threads_of_each(const options &o, size_t n_cores) {
    if (o.threads) return o.threads;
    if (n_cores >= size_t{o.instances} * DEFAULT_THREADS) return DEFAULT_THREADS;
    const uint32_t n = std::max(1u, static_cast<uint32_t>(n_cores / o.instances));
    note("%zu core%s for %u instance%s: %u thread%s each instead of %u", n_cores, n_cores == 1 ? "" : "s", unsigned{o.instances}, o.instances == 1 ? "" : "s",
         unsigned{n}, n == 1 ? "" : "s", unsigned{DEFAULT_THREADS});
    return n;
}

// Cores side by side in one socket for each instance, the sockets filled evenly; a single instance may go beyond one socket.
std::vector<placement> pin_instances(const std::vector<core> &cores, uint32_t n_instances, uint32_t n_threads) {
    std::map<int32_t, std::vector<core>> sockets;
    for (const core &c : cores) sockets[n_instances == 1 ? 0 : c.package].push_back(c);
    std::map<int32_t, size_t> n_used; // instances of a socket
    std::vector<placement> places;
    while (places.size() < n_instances) {
        const std::vector<core> *chosen = nullptr;
        size_t least = SIZE_MAX, *n = nullptr;
        for (const auto &[id, socket] : sockets)
            if ((n_used[id] + 1) * n_threads <= socket.size() && n_used[id] < least) least = n_used[id], chosen = &socket, n = &n_used[id];
        if (!chosen)
            fail("--pin: %u instances of %u threads need as many cores, each instance within a socket; this process may use %zu cores in %zu socket%s",
                 unsigned{n_instances}, unsigned{n_threads}, cores.size(), sockets.size(), sockets.size() == 1 ? "" : "s");
        placement p;
        p.node = (*chosen)[*n * n_threads].node;
        for (uint32_t t = 0; t < n_threads; t++) p.cpus.push_back((*chosen)[*n * n_threads + t].cpu);
        ++*n;
        places.push_back(std::move(p));
    }
    return places;
}

std::vector<placement> place_instances(const options &o, const std::vector<core> &cores, uint32_t n_threads) {
    const std::vector<numa_node> nodes = numa_nodes();
    const bool by_node = o.numa && nodes.size() > 1;
    if (o.numa && !by_node) note("--numa: there is a single NUMA node, so one copy of the model serves all");
    std::vector<placement> places = o.pin ? pin_instances(cores, o.instances, n_threads) : std::vector<placement>(o.instances);
    for (size_t i = 0; i < places.size(); i++) {
        if (!by_node) places[i].node = nodes[0].id;
        if (!by_node || o.pin) continue;
        places[i].node = nodes[i % nodes.size()].id;
        places[i].room = nodes[i % nodes.size()].cpus;
    }
    return places;
}

// A copy of the model on each node that has instances, loaded by a thread of that node; without --numa one model for all.
std::map<int32_t, model_ptr> load_models(const options &o, const std::vector<placement> &places) {
    std::map<int32_t, model_ptr> models;
    options how = o;
    how.copy |= o.numa;
    const std::vector<numa_node> nodes = numa_nodes();
    for (const placement &p : places) {
        if (models.count(p.node)) continue;
        std::optional<failure> why;
        thread_team loader(2, {}); // the caller's own affinity stays
        loader.run([&](uint32_t thread) {
            if (thread == 0) return;
            for (const numa_node &n : nodes)
                if (o.numa && n.id == p.node) bind_this_thread(n.cpus);
            try {
                models[p.node] = load_model(how);
            } catch (const failure &f) {
                why = f;
            } catch (const std::bad_alloc &) {
                why = failure{EXIT_FAILED, "out of memory"};
            }
        });
        if (why) throw *why;
    }
    return models;
}

// ---- instances ----

struct instance {
    placement place;
    workload load;
    sq_model *model;
    ctx_ptr ctx;
    double start_s = 0;
    std::vector<double> ends_s; // when each timed call ended
    std::optional<failure> why; // it failed
};

class instance_team {
  public:
    instance_team(const options &o, uint32_t n_threads) : o_(o), tuning_(read_tuning(o)), n_threads_(n_threads) {}
    ~instance_team() { end(); }
    instance_team(const instance_team &) = delete;
    instance_team &operator=(const instance_team &) = delete;

    // Starts an instance and waits until it has made one call.
    void add(sq_model *model, const placement &place, const workload &load) {
        instances_.push_back(std::unique_ptr<instance>(new instance{place, load, model, nullptr, 0, {}, std::nullopt}));
        try {
            threads_.emplace_back([this, i = instances_.back().get()] { live(i); });
        } catch (const std::system_error &) {
            fail("cannot start a thread for instance %zu", instances_.size());
        }
        await_reports(instances_.size());
    }

    // All warm up, then all run their timed calls.
    void measure() {
        enter(WARM);
        n_short_ = instances_.size();
        enter(MEASURE);
    }

    const std::vector<std::unique_ptr<instance>> &instances() const { return instances_; }

  private:
    enum stage { PREPARE, WARM, MEASURE, END };

    const options &o_;
    const std::string tuning_;
    const uint32_t n_threads_;
    std::vector<std::unique_ptr<instance>> instances_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable changed_;
    stage stage_ = PREPARE;
    size_t n_reports_ = 0; // instances that are done with the stage
    std::atomic<size_t> n_short_{0}; // instances that have not made their timed calls yet

    void enter(stage next) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stage_ = next;
            n_reports_ = 0;
        }
        changed_.notify_all();
        await_reports(instances_.size());
    }

    void await_reports(size_t n) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return n_reports_ == n; });
        for (const auto &i : instances_)
            if (i->why) throw *i->why;
    }

    void end() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stage_ = END;
        }
        changed_.notify_all();
        for (std::thread &t : threads_) t.join();
    }

    // What an instance's thread does: its part of each stage, then a report.
    void live(instance *i) {
        if (!do_stage(i, [&] { prepare(i); })) return;
        if (!await(WARM) || !do_stage(i, [&] { warm_up(i); })) return;
        if (!await(MEASURE)) return;
        do_stage(i, [&] { run_timed(i); });
    }

    template <class body> bool do_stage(instance *i, body work) {
        std::optional<failure> why;
        try {
            work();
        } catch (const failure &f) {
            why = f;
        } catch (const std::bad_alloc &) {
            why = failure{EXIT_FAILED, "out of memory"};
        }
        std::lock_guard<std::mutex> lock(mutex_);
        i->why = why;
        n_reports_++;
        changed_.notify_all();
        return !why;
    }

    bool await(stage wanted) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return stage_ >= wanted; });
        return stage_ == wanted;
    }

    // Workers are bound by the library, or inherit the affinity of this thread.
    void prepare(instance *i) const {
        const std::vector<int32_t> &room = i->place.room;
        if (!room.empty() && !bind_this_thread(room)) fail("the system refuses to bind a thread to a node's %zu processors", room.size());
        i->ctx = make_measuring_ctx(tuning_, i->model, i->load, n_threads_, i->place.cpus, i->place.cpus);
        i->load.run(i->ctx.get());
    }

    void warm_up(instance *i) const {
        const uint32_t n = o_.warmup ? o_.warmup : DEFAULT_WARMUP;
        const double end = now_s() + WARM_SHARE * o_.seconds;
        for (uint32_t r = 0; o_.seconds > 0 ? now_s() < end : r < n; r++) i->load.run(i->ctx.get());
    }

    // Makes the calls asked for and goes on until every instance has made its own, so that all are at work together however late one begins. A call's end is
    // read after n_short_: the last end is later than every instance's start.
    void run_timed(instance *i) {
        bool is_short = true, all_done = false;
        try {
            i->ends_s.reserve(n_timed());
            i->start_s = now_s();
            while (!all_done) {
                i->load.run(i->ctx.get());
                if (is_short && has_made_its_calls(*i)) {
                    is_short = false;
                    n_short_--;
                }
                all_done = n_short_ == 0;
                i->ends_s.push_back(now_s());
            }
        } catch (...) {
            if (is_short) n_short_--;
            throw;
        }
    }

    uint32_t n_timed() const { return o_.runs ? o_.runs : DEFAULT_RUNS; }

    // Asked between a call and its entry in ends_s.
    bool has_made_its_calls(const instance &i) const { return o_.seconds > 0 ? now_s() >= i.start_s + o_.seconds : i.ends_s.size() + 1 >= n_timed(); }
};

// ---- results ----

struct throughput {
    uint32_t n_threads = 0, length = 0, batch = 0;
    size_t n_requests = 0; // in the window
    double window_s = 0, requests_per_s = 0, p50_s = 0, p90_s = 0, p99_s = 0, ops_per_s = 0, share = 0, peak = 0;
    memory_use memory;         // of the process, at the end
    double growth_bytes = 0;   // resident memory for each instance after the first
    std::vector<placement> places;
    size_t n_models = 1;
};

// Counts the calls of the window in which all instances are at work, and takes their times.
void count_requests(const std::vector<std::unique_ptr<instance>> &instances, throughput *r) {
    double start = 0, end = instances[0]->ends_s.back();
    for (const auto &i : instances) {
        start = std::max(start, i->start_s);
        end = std::min(end, i->ends_s.back());
    }
    std::vector<double> times;
    for (const auto &i : instances) {
        double last = i->start_s;
        for (double t : i->ends_s) {
            if (t > start && t <= end) times.push_back(t - last);
            last = t;
        }
    }
    r->n_requests = times.size();
    r->window_s = end - start;
    r->requests_per_s = static_cast<double>(times.size()) / r->window_s;
    r->p50_s = quantile(times, 0.5);
    r->p90_s = quantile(times, 0.9);
    r->p99_s = quantile(times, 0.99);
}

throughput measure(const options &o, const std::map<int32_t, model_ptr> &models, const sq_model_info &info, throughput r) {
    const workload load(info, r.length, r.batch);
    std::vector<int32_t> all_cpus;
    for (const placement &p : r.places) all_cpus.insert(all_cpus.end(), p.cpus.begin(), p.cpus.end());
    thread_team peak_team(at_once(o.instances * r.n_threads, allowed_cpus()), all_cpus);
    const peak_meter peak(sq_isa_string(models.begin()->second.get()), arithmetic_of(info), &peak_team);

    instance_team team(o, r.n_threads);
    double first_bytes = 0;
    for (const placement &p : r.places) {
        team.add(models.at(p.node).get(), p, load);
        if (first_bytes == 0) first_bytes = static_cast<double>(memory_in_use().resident);
    }
    if (o.instances > 1) r.growth_bytes = (static_cast<double>(memory_in_use().resident) - first_bytes) / (o.instances - 1);
    if (!all_cpus.empty()) bind_this_thread({all_cpus[0]}); // as the first of the peak's threads; it sleeps while the instances run
    const double peak_before = peak.all();
    team.measure();
    share_meter share;
    count_requests(team.instances(), &r);
    const sq_stats stats = ctx_stats(team.instances()[0]->ctx.get());
    r.ops_per_s = matrix_ops(stats) / static_cast<double>(stats.n_forward) * r.requests_per_s;
    share.add(r.ops_per_s, peak_before, peak.all());
    r.share = share.share();
    r.peak = share.peak();
    r.memory = memory_in_use();
    return r;
}

std::string list_text(const std::vector<int32_t> &list) {
    std::string text;
    for (int32_t x : list) text += (text.empty() ? "" : ",") + std::to_string(x);
    return text;
}

double tokens_per_s(const throughput &r) { return r.requests_per_s * r.length * r.batch; }

void print_line(output *out, const char *key, const std::string &value) { out->write(pad_right(key, 19) + value + "\n"); }

void print_text(const options &o, const sq_model *model, const sq_model_info &info, const throughput &r, output *out) {
    const std::string how = formatted("%u instance%s of %u thread%s%s, %u tokens, batch %u", unsigned{o.instances}, o.instances == 1 ? "" : "s",
                                      unsigned{r.n_threads}, r.n_threads == 1 ? "" : "s", o.pin ? ", pinned" : "", unsigned{r.length}, unsigned{r.batch});
    out->write(title_line(o, model, info, how) + "\n");
    print_line(out, "requests/s", formatted("%.2f (%zu in %.3f s)", r.requests_per_s, r.n_requests, r.window_s));
    print_line(out, "tokens/s", formatted("%.0f", tokens_per_s(r)));
    print_line(out, "latency ms", formatted("%.3f p50, %.3f p90, %.3f p99", 1e3 * r.p50_s, 1e3 * r.p90_s, 1e3 * r.p99_s));
    print_line(out, "Gop/s", formatted("%.1f", 1e-9 * r.ops_per_s) +
                                 (r.peak > 0 ? formatted(", %.1f %% of the peak of these threads (%.0f)", 100 * r.share, 1e-9 * r.peak) : ""));
    print_line(out, "resident MB", formatted("%.1f, of it anonymous %.1f", static_cast<double>(r.memory.resident) / (1 << 20),
                                             static_cast<double>(r.memory.anonymous) / (1 << 20)));
    if (o.instances > 1) print_line(out, "  each further", formatted("%.2f", r.growth_bytes / (1 << 20)));
    print_line(out, "models in memory", std::to_string(r.n_models));
    for (size_t i = 0; o.pin && i < r.places.size(); i++)
        print_line(out, i ? "" : "processors", list_text(r.places[i].cpus) + formatted(" (node %d)", int{r.places[i].node}));
}

std::string json_of(const options &o, const sq_model *model, const sq_model_info &info, const throughput &r) {
    json_object j;
    add_setting(&j, "bench", o, model, info);
    j.add("instances", uint64_t{o.instances});
    j.add("threads", uint64_t{r.n_threads});
    j.add("tokens", uint64_t{r.length});
    j.add("batch", uint64_t{r.batch});
    j.add_flag("pinned", o.pin);
    j.add("models", uint64_t{r.n_models});
    j.add("requests", uint64_t{r.n_requests});
    j.add("window_s", r.window_s);
    j.add("requests_per_s", r.requests_per_s);
    j.add("tokens_per_s", tokens_per_s(r));
    j.add("p50_ms", 1e3 * r.p50_s);
    j.add("p90_ms", 1e3 * r.p90_s);
    j.add("p99_ms", 1e3 * r.p99_s);
    j.add("gop_s", 1e-9 * r.ops_per_s);
    j.add_known("share_of_peak", r.share);
    j.add_known("peak_gop_s", 1e-9 * r.peak);
    j.add_known("resident_bytes", static_cast<double>(r.memory.resident));
    j.add_known("anonymous_bytes", static_cast<double>(r.memory.anonymous));
    if (o.instances > 1) j.add("growth_bytes", r.growth_bytes);
    std::vector<std::string> cpus;
    for (const placement &p : r.places)
        if (o.pin) cpus.push_back("[" + list_text(p.cpus) + "]");
    j.add_json("cpus", json_array(cpus));
    return j.text();
}

} // namespace

void run_instances(const options &o) {
    bool is_known;
    const std::vector<core> cores = physical_cores(&is_known);
    if (o.pin && !is_known) note("the system does not tell which processors share a core: each counts as one");
    throughput r;
    r.n_threads = threads_of_each(o, cores.size());
    if (size_t{o.instances} * r.n_threads > MAX_THREADS)
        fail("%u instances of %u threads: at most %zu threads are possible", unsigned{o.instances}, unsigned{r.n_threads}, MAX_THREADS);
    r.places = place_instances(o, cores, r.n_threads);
    const std::map<int32_t, model_ptr> models = load_models(o, r.places);
    const sq_model *model = models.begin()->second.get();
    const sq_model_info info = model_info(model);
    r.n_models = models.size();
    r.batch = o.batch ? o.batch : 1;
    r.length = o.lengths.empty() ? std::min(DEFAULT_LENGTH, info.max_positions) : o.lengths[0];
    if (o.lengths.empty() && r.length < DEFAULT_LENGTH) note("the model's position table ends at %u tokens: %u are run", unsigned{r.length}, unsigned{r.length});
    r = measure(o, models, info, std::move(r));
    output out("");
    if (o.json) out.write(json_of(o, model, info, r) + "\n");
    else print_text(o, model, info, r, &out);
    out.commit();
}

} // namespace cli
