// examples/cli-bench.cpp - `sq bench`: how long forward passes of several lengths take, beside the peak of the same machine at the same moment. With --instances
// the work goes to cli-instances.cpp.
//
// Calls are timed one by one, in blocks of some 20 ms. Right before and after each block a loop of independent multiply-adds runs, on one thread and on all
// threads at once; a block's rate (at its median time) is divided by the mean of the two, so that changes of frequency drop out. The share is the median over
// the blocks.
#include <algorithm>

#include "cli-measure.h"

namespace cli {

constexpr uint32_t DEFAULT_LENGTHS[] = {8, 16, 32, 128, 256, 384};
constexpr double DEFAULT_SECONDS = 1, WARM_SHARE = 0.2; // of the seconds, before them
constexpr double BLOCK_S = 0.02;

namespace {

struct latency {
    uint32_t length = 0; // tokens of a sequence
    size_t n_calls = 0;
    double median_s = 0, p90_s = 0, least_s = 0, tokens_per_s = 0, ops_per_s = 0; // rates at the median time
    double share = 0, peak_one = 0, peak_all = 0;                                // 0: no peak
    memory_use memory;
};

std::vector<uint32_t> lengths_of(const options &o, const sq_model_info &info) {
    if (!o.lengths.empty()) return o.lengths;
    std::vector<uint32_t> lengths;
    for (uint32_t n : DEFAULT_LENGTHS)
        if (n <= info.max_positions) lengths.push_back(n);
    if (lengths.empty()) lengths.push_back(info.max_positions);
    return lengths;
}

// --pin: the first cores, one hardware thread of each. Binds the calling thread to its own. *n_threads 0 becomes all cores.
std::vector<int32_t> pin_one_instance(uint32_t *n_threads) {
    bool is_known;
    const std::vector<core> cores = physical_cores(&is_known);
    if (!is_known) note("the system does not tell which processors share a core: each counts as one");
    if (*n_threads == 0) *n_threads = static_cast<uint32_t>(cores.size());
    if (*n_threads > cores.size()) fail("--pin: %u threads need a core each, and this process may use %zu", unsigned{*n_threads}, cores.size());
    std::vector<int32_t> cpus;
    for (uint32_t t = 0; t < *n_threads; t++) cpus.push_back(cores[t].cpu);
    if (!bind_this_thread({cpus[0]})) fail("--pin: the system refuses processor %d", int{cpus[0]});
    return cpus;
}

class latency_bench {
  public:
    latency_bench(const options &o, sq_model *model, const sq_model_info &info, uint32_t n_threads, const std::vector<int32_t> &cpus,
                  const std::vector<int32_t> &home)
        : o_(o), tuning_(read_tuning(o)), model_(model), info_(info), n_threads_(n_threads), cpus_(cpus), home_(home),
          team_(at_once(n_threads, home), cpus),
          peak_(sq_isa_string(model), arithmetic_of(info), &team_) {}

    latency measure(uint32_t length) {
        workload load(info_, length, o_.batch ? o_.batch : 1);
        const ctx_ptr ctx = make_measuring_ctx(tuning_, model_, load, n_threads_, cpus_, home_);
        warm_up(&load, ctx.get());
        std::vector<double> times;
        share_meter one, all;
        double spent = 0, ops_before = matrix_ops(ctx_stats(ctx.get()));
        const double first_ops = ops_before;
        double one_before = peak_.one(), all_before = peak_.all();
        while (o_.runs ? times.size() < o_.runs : spent < seconds()) {
            const size_t n_before = times.size();
            spent += run_block(&load, ctx.get(), &times);
            const std::vector<double> block(times.begin() + static_cast<ptrdiff_t>(n_before), times.end());
            const double ops = matrix_ops(ctx_stats(ctx.get()));
            const double rate = (ops - ops_before) / static_cast<double>(block.size()) / quantile(block, 0.5);
            const double one_after = peak_.one(), all_after = peak_.all();
            one.add(rate, one_before, one_after);
            all.add(rate, all_before, all_after);
            one_before = one_after, all_before = all_after, ops_before = ops;
        }
        latency r;
        r.length = length;
        r.n_calls = times.size();
        r.median_s = quantile(times, 0.5);
        r.p90_s = quantile(times, 0.9);
        r.least_s = *std::min_element(times.begin(), times.end());
        r.tokens_per_s = static_cast<double>(load.tokens()) / r.median_s;
        r.ops_per_s = (ops_before - first_ops) / static_cast<double>(times.size()) / r.median_s;
        r.share = all.share();
        r.peak_one = one.peak();
        r.peak_all = all.peak();
        r.memory = memory_in_use();
        return r;
    }

  private:
    const options &o_;
    const std::string tuning_;
    sq_model *model_;
    const sq_model_info &info_;
    uint32_t n_threads_;
    const std::vector<int32_t> &cpus_, &home_;
    thread_team team_;
    peak_meter peak_;

    double seconds() const { return o_.seconds > 0 ? o_.seconds : DEFAULT_SECONDS; }

    void warm_up(workload *load, sq_ctx *ctx) const {
        const double end = now_s() + (o_.runs ? 0 : WARM_SHARE * seconds());
        for (uint32_t i = 0; i < std::max(o_.warmup, 1u) || now_s() < end; i++) load->run(ctx);
    }

    // Returns the seconds that the calls took together.
    double run_block(workload *load, sq_ctx *ctx, std::vector<double> *times) const {
        const double start = now_s();
        double last = start;
        do {
            load->run(ctx);
            const double now = now_s();
            times->push_back(now - last);
            last = now;
        } while (last - start < BLOCK_S && (o_.runs == 0 || times->size() < o_.runs));
        return last - start;
    }
};

double megabytes(size_t n_bytes) { return static_cast<double>(n_bytes) / (1 << 20); }

std::string table_head(uint32_t n_threads) {
    return formatted("%6s %10s %10s %10s %10s %8s %10s %10s %9s %9s\n", "tokens", "median ms", "p90 ms", "tokens/s", "Gop/s", "of peak", "peak 1",
                     formatted("peak %u", unsigned{n_threads}).c_str(), "MB", "anon. MB");
}

std::string table_line(const latency &r) {
    return formatted("%6u %10.3f %10.3f %10.0f %10.1f %8s %10s %10s %9s %9s\n", unsigned{r.length}, 1e3 * r.median_s, 1e3 * r.p90_s, r.tokens_per_s,
                     1e-9 * r.ops_per_s, r.share > 0 ? formatted("%.1f %%", 100 * r.share).c_str() : "-", number_or_dash(1e-9 * r.peak_one, 0).c_str(),
                     number_or_dash(1e-9 * r.peak_all, 0).c_str(), number_or_dash(megabytes(r.memory.resident), 1).c_str(),
                     number_or_dash(megabytes(r.memory.anonymous), 1).c_str());
}

std::string json_of(const latency &r) {
    json_object j;
    j.add("tokens", uint64_t{r.length});
    j.add("calls", uint64_t{r.n_calls});
    j.add("median_ms", 1e3 * r.median_s);
    j.add("p90_ms", 1e3 * r.p90_s);
    j.add("least_ms", 1e3 * r.least_s);
    j.add("tokens_per_s", r.tokens_per_s);
    j.add("gop_s", 1e-9 * r.ops_per_s);
    j.add_known("share_of_peak", r.share);
    j.add_known("peak_1_gop_s", 1e-9 * r.peak_one);
    j.add_known("peak_gop_s", 1e-9 * r.peak_all);
    j.add_known("resident_bytes", static_cast<double>(r.memory.resident));
    j.add_known("anonymous_bytes", static_cast<double>(r.memory.anonymous));
    return j.text();
}

void run_latency(const options &o) {
    uint32_t n_threads = o.threads;
    const std::vector<int32_t> home = allowed_cpus();
    std::vector<int32_t> cpus;
    if (o.pin) cpus = pin_one_instance(&n_threads); // before loading: a private copy of the weights then lies near
    const model_ptr model = load_model(o);
    const sq_model_info info = model_info(model.get());
    const std::vector<uint32_t> lengths = lengths_of(o, info);
    const uint32_t batch = o.batch ? o.batch : 1;
    for (uint32_t length : lengths) workload(info, length, batch); // what cannot be run is refused before anything is measured
    if (n_threads == 0) n_threads = ctx_stats(make_measuring_ctx("", model.get(), workload(info, 1, 1), 0, {}, {}).get()).n_threads;

    latency_bench bench(o, model.get(), info, n_threads, cpus, home);
    output out("");
    if (!o.json) {
        const std::string how = formatted("%u thread%s%s, batch %u", unsigned{n_threads}, n_threads == 1 ? "" : "s", o.pin ? ", pinned" : "", unsigned{batch});
        out.write(title_line(o, model.get(), info, how) + "\n" + table_head(n_threads));
    }
    std::vector<std::string> items;
    for (uint32_t length : lengths) {
        const latency r = bench.measure(length);
        if (o.json) items.push_back(json_of(r));
        else out.write(table_line(r));
        if (!o.json) out.flush();
    }
    if (o.json) {
        json_object j;
        add_setting(&j, "bench", o, model.get(), info);
        j.add("threads", uint64_t{n_threads});
        j.add("batch", uint64_t{batch});
        j.add_flag("pinned", o.pin);
        j.add_json("lengths", json_array(items));
        out.write(j.text() + "\n");
    }
    out.commit();
}

} // namespace

void run_bench(const options &o) { o.instances ? run_instances(o) : run_latency(o); }

} // namespace cli
