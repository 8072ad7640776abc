// examples/cli-measure.cpp - see cli-measure.h.
#include "cli-measure.h"

#include <math.h>
#include <stdarg.h>

#include <algorithm>

#include "../convert/json.h"

namespace cli {

namespace json = sq::json;

constexpr size_t MAX_TOKENS = 1 << 20; // the library's limit for a context

// ---- running ----

workload::workload(const sq_model_info &info, uint32_t n_tokens, uint32_t n_seqs)
    : n_tokens_(n_tokens), kind_(info.head == SQ_HEAD_NONE ? SQ_POOLED : SQ_LOGITS) {
    if (n_tokens > info.max_positions)
        fail("%u tokens are asked for, but the model's position table ends at %u tokens", unsigned{n_tokens}, unsigned{info.max_positions});
    const size_t T = size_t{n_tokens} * n_seqs;
    if (T > MAX_TOKENS) fail("%u sequences of %u tokens: at most %zu tokens run together", unsigned{n_seqs}, unsigned{n_tokens}, MAX_TOKENS);
    uint64_t state = 1;
    for (size_t t = 0; t < T; t++) {
        state = state * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator: the same ids on every machine
        ids_.push_back(static_cast<int32_t>((state >> 33) % info.vocab_size));
    }
    for (uint32_t s = 0; s <= n_seqs; s++) starts_.push_back(s * n_tokens);
    const size_t rows = info.head == SQ_HEAD_ANSWER || info.head == SQ_HEAD_TAG ? T : n_seqs;
    out_.resize(rows * (kind_ == SQ_LOGITS ? info.n_labels : info.width));
}

void workload::run(sq_ctx *ctx) {
    const sq_batch batch = {sizeof batch, sequences(), ids_.data(), nullptr, starts_.data()};
    size_t n = 0;
    const int32_t status = sq_forward(ctx, &batch, kind_, out_.data(), out_.size(), &n);
    if (status == SQ_OK) return;
    const char *why = sq_ctx_error(ctx);
    fail("%s", *why ? why : sq_status_string(status));
}

ctx_ptr make_measuring_ctx(const std::string &tuning, sq_model *model, const workload &load, uint32_t n_threads, const std::vector<int32_t> &cpus,
                          const std::vector<int32_t> &home) {
    if (!cpus.empty() && !bind_this_thread(home)) fail("the system refuses to bind a thread to %zu processors", home.size());
    sq_ctx_params params;
    sq_ctx_params_init(&params, sizeof params);
    params.n_threads = n_threads;
    params.tuning = tuning.c_str();
    params.max_tokens = static_cast<uint32_t>(load.tokens());
    params.max_seqs = load.sequences();
    params.cpus = cpus.empty() ? nullptr : cpus.data();
    ctx_ptr ctx = create_ctx(model, params);
    if (!cpus.empty() && !bind_this_thread({cpus[0]})) fail("the system refuses to bind a thread to processor %d", int{cpus[0]});
    return ctx;
}

sq_stats ctx_stats(const sq_ctx *ctx) {
    sq_stats stats = {};
    stats.size = sizeof stats;
    const int32_t status = sq_ctx_stats(ctx, &stats);
    if (status != SQ_OK) fail("%s", sq_status_string(status));
    return stats;
}

double matrix_ops(const sq_stats &stats) {
    double sum = 0;
    for (size_t ops : stats.ops) sum += static_cast<double>(ops);
    return sum;
}

// ---- statistics ----

double quantile(std::vector<double> list, double q) {
    if (list.empty()) return 0;
    std::sort(list.begin(), list.end());
    const double rank = ceil(q * static_cast<double>(list.size()));
    return list[std::min(list.size(), static_cast<size_t>(std::max(1.0, rank))) - 1];
}

void share_meter::add(double rate, double peak_before, double peak_after) {
    const double peak = (peak_before + peak_after) / 2;
    peaks_.push_back(peak);
    if (peak <= 0) return;
    shares_.push_back(rate / peak);
    if (std::max(peak_before, peak_after) <= 1.05 * std::min(peak_before, peak_after)) steady_.push_back(rate / peak);
}

double share_meter::share() const { return quantile(steady_.empty() ? shares_ : steady_, 0.5); }
double share_meter::peak() const { return quantile(peaks_, 0.5); }

// ---- telling ----

const char *quant_word(uint32_t quant) { return quant == SQ_QUANT_FLOAT ? "float" : quant == SQ_QUANT_STATIC ? "static" : "dynamic"; }

arithmetic arithmetic_of(const sq_model_info &info) { return info.quant == SQ_QUANT_FLOAT ? arithmetic::FLOAT32 : arithmetic::INT8; }

std::string title_line(const options &o, const sq_model *model, const sq_model_info &info, const std::string &how) {
    const std::string file = o.model.substr(o.model.rfind('/') + 1); // npos + 1 is 0
    return "# " + cpu_name() + ", " + sq_isa_string(model) + ", " + how + ", " + printable(file, 60) + " (" + quant_word(info.quant) + "), sq " +
           sq_version_string();
}

void note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("sq: note: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

std::string number_or_dash(double x, int decimals) { return x > 0 ? formatted("%.*f", decimals, x) : "-"; }

void json_object::add_key(const char *key) {
    if (text_.size() > 1) text_ += ',';
    json::append_string(&text_, key);
    text_ += ':';
}

void json_object::add(const char *key, double value) {
    add_key(key);
    json::append_number(&text_, value);
}

void json_object::add(const char *key, uint64_t value) {
    add_key(key);
    json::append_number(&text_, value);
}

void json_object::add(const char *key, std::string_view value) {
    add_key(key);
    json::append_string(&text_, value);
}

void json_object::add_flag(const char *key, bool value) { add_json(key, value ? "true" : "false"); }

void json_object::add_known(const char *key, double value) {
    if (value > 0) add(key, value);
    else add_json(key, "null");
}

void json_object::add_json(const char *key, const std::string &value) {
    add_key(key);
    text_ += value;
}

std::string json_array(const std::vector<std::string> &items) {
    std::string text = "[";
    for (const std::string &item : items) text += (text.size() > 1 ? "," : "") + item;
    return text + "]";
}

void add_setting(json_object *object, const char *command, const options &o, const sq_model *model, const sq_model_info &info) {
    object->add("command", std::string_view(command));
    object->add("version", std::string_view(sq_version_string()));
    object->add("cpu", cpu_name());
    object->add("isa", std::string_view(sq_isa_string(model)));
    object->add("model", o.model);
    object->add("quant", std::string_view(quant_word(info.quant)));
    object->add("file_bytes", uint64_t{info.file_bytes});
}

} // namespace cli
