// examples/cli-measure.h - what `sq bench` and `sq profile` share: a batch to run again and again, contexts, order statistics, JSON objects.
//
// Read cli-bench.cpp (latency), cli-instances.cpp (throughput) or cli-profile.cpp (operators) next.
#ifndef SQ_EXAMPLES_CLI_MEASURE_H
#define SQ_EXAMPLES_CLI_MEASURE_H

#include "cli-common.h"
#include "cli-machine.h"

namespace cli {

// B sequences of the same length with pseudo-random ids, and room for what comes out: logits if the model has a head, else pooled vectors.
class workload {
  public:
    workload(const sq_model_info &info, uint32_t n_tokens, uint32_t n_seqs); // n_tokens of each sequence; fails beyond the position table

    void run(sq_ctx *ctx); // one sq_forward; fails with the library's message
    size_t tokens() const { return ids_.size(); }
    uint32_t length() const { return n_tokens_; }
    uint32_t sequences() const { return static_cast<uint32_t>(starts_.size() - 1); }

  private:
    uint32_t n_tokens_;
    int32_t kind_;
    std::vector<int32_t> ids_;
    std::vector<uint32_t> starts_;
    std::vector<float> out_;
};

// A context with exactly the room that a workload needs. cpus: empty, or the processor of each thread: then the calling thread is bound to the first, after
// its affinity has been widened to `home`, which must hold them all (the library asks the process's first thread which processors are allowed, and counts cores by the affinity of the thread that creates a context).
ctx_ptr make_measuring_ctx(const std::string &tuning, sq_model *model, const workload &load, uint32_t n_threads, const std::vector<int32_t> &cpus,
                          const std::vector<int32_t> &home);

sq_stats ctx_stats(const sq_ctx *ctx);
double matrix_ops(const sq_stats &stats); // operations of all matrix products

// The value below which a share q of the list lies, 0 < q <= 1, by nearest rank; 0 for an empty list.
double quantile(std::vector<double> list, double q);

// What the median of a rate's blocks was worth beside the peaks around them: blocks whose two peaks differ by more than 5 % saw the frequency or the neighbours
// change and are left out, unless all did.
class share_meter {
  public:
    void add(double rate, double peak_before, double peak_after);
    double share() const; // 0 without a peak
    double peak() const;  // median

  private:
    std::vector<double> shares_, steady_, peaks_;
};

const char *quant_word(uint32_t quant); // "float", "static", "dynamic"
arithmetic arithmetic_of(const sq_model_info &info); // of most linear layers

// "# CPU, instruction set, threads, model" as every measurement says first
std::string title_line(const options &o, const sq_model *model, const sq_model_info &info, const std::string &how);

void note(const char *format, ...) __attribute__((format(printf, 1, 2))); // "sq: note: ..." on stderr

std::string number_or_dash(double x, int decimals); // "-" for 0 and below: not known

// A JSON object on one line, built member by member.
class json_object {
  public:
    void add(const char *key, double value); // what is not finite becomes null
    void add(const char *key, uint64_t value);
    void add(const char *key, std::string_view value);
    void add_flag(const char *key, bool value);
    void add_known(const char *key, double value); // null for 0: not known
    void add_json(const char *key, const std::string &json);
    std::string text() const { return text_ + "}"; }

  private:
    std::string text_ = "{";
    void add_key(const char *key);
};

std::string json_array(const std::vector<std::string> &items); // each item is JSON

// What the machine and the model are: first members of every object
void add_setting(json_object *object, const char *command, const options &o, const sq_model *model, const sq_model_info &info);

// ---- throughput (cli-instances.cpp) ----

void run_instances(const options &o);

} // namespace cli

#endif
