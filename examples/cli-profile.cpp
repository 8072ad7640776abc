// examples/cli-profile.cpp - `sq profile`: where a forward pass spends its time, operator by operator, and how near each product comes to the roofline.
//
// Times are the library's own (sq_stats), medians over blocks of calls; between the blocks the peaks are measured, before them the bandwidths. The formulas are
// in cli-roofline.h. The ceiling is Amdahl's law, 1 / sum(f / s) over shares f of the time and speedups s, with s = measured / bound for the linear layers and
// 1 for everything else, as time instead of as speedup.
#include <string.h>

#include <algorithm>

#include "cli-measure.h"
#include "cli-roofline.h"

namespace cli {

constexpr uint32_t DEFAULT_LENGTH = 128;
constexpr double DEFAULT_SECONDS = 2, WARM_SHARE = 0.2; // of the seconds, before them
constexpr double BLOCK_S = 0.05;
constexpr size_t MAX_MEMORY_BUFFER = size_t{1} << 30; // bytes; some virtual machines report a cache of several hundred megabytes, shared with their neighbours

namespace {

constexpr size_t N_LINEAR = 4;
constexpr uint32_t LINEAR_OPS[N_LINEAR] = {SQ_OP_QKV, SQ_OP_OUT, SQ_OP_UP, SQ_OP_DOWN};
const char *const LINEAR_NAMES[N_LINEAR] = {"qkv", "out", "up", "down"};

struct operator_time {
    double seconds = 0, ops = 0; // of a call
};

struct measured {
    operator_time ops[SQ_N_OPS];
    double call_s = 0;    // a whole call
    double outside_s = 0; // of it before, between and after the operators: checks, waking the threads, copying the result
    size_t n_calls = 0;
    double int8_peak = 0, float_peak = 0;
};

// ---- measuring ----

// Buffers, and what reading them gave.
struct bandwidths {
    size_t llc_buffer = 0, memory_buffer = 0; // bytes
    double llc = 0, memory = 0;               // bytes a second
};

bandwidths measure_bandwidths(const char *isa, thread_team *team) {
    const size_t l2 = cache_bytes(2) * team->count(), l3 = cache_bytes(3);
    bandwidths b;
    // Four times the second-level caches leave little of the buffer in them; a quarter of the last level leaves room for others there.
    b.llc_buffer = std::min(4 * l2, l3 / 4);
    if (b.llc_buffer <= l2) {
        b.llc_buffer = 0;
        note("a last-level cache beside the second-level ones is not to be seen (%zu and %zu bytes): its roof is left out", l3, l2);
    } else {
        b.llc = read_bandwidth(isa, team, b.llc_buffer);
    }
    const size_t wanted = l3 ? std::max<size_t>(4 * l3, 64 << 20) : MAX_MEMORY_BUFFER, least = 1 << 20;
    b.memory_buffer = std::max(least, std::min({wanted, MAX_MEMORY_BUFFER, available_bytes() / 4}));
    b.memory = read_bandwidth(isa, team, b.memory_buffer);
    if (b.memory_buffer < wanted)
        note("memory was read from a buffer of %zu MB, %.1f times the last-level cache instead of 4", b.memory_buffer >> 20,
             static_cast<double>(b.memory_buffer) / static_cast<double>(std::max<size_t>(l3, 1)));
    return b;
}

// Medians over blocks, for each operator on its own.
class block_list {
  public:
    void add(const sq_stats &before, const sq_stats &after, double elapsed) {
        const double n = static_cast<double>(after.n_forward - before.n_forward);
        double sum = 0;
        for (size_t op = 0; op < SQ_N_OPS; op++) {
            const double seconds = 1e-9 * static_cast<double>(after.ns[op] - before.ns[op]) / n;
            seconds_[op].push_back(seconds);
            ops_[op] = static_cast<double>(after.ops[op] - before.ops[op]) / n; // the same in every call
            sum += seconds;
        }
        outside_.push_back(std::max(0.0, elapsed / n - sum));
    }
    void sum_up(measured *m) const {
        m->outside_s = m->call_s = quantile(outside_, 0.5);
        for (size_t op = 0; op < SQ_N_OPS; op++) {
            m->ops[op] = {quantile(seconds_[op], 0.5), ops_[op]};
            m->call_s += m->ops[op].seconds;
        }
    }

  private:
    std::vector<double> seconds_[SQ_N_OPS], outside_;
    double ops_[SQ_N_OPS] = {};
};

measured measure(const options &o, const char *isa, workload *load, sq_ctx *ctx, thread_team *team) {
    const peak_meter int8(isa, arithmetic::INT8, team), float32(isa, arithmetic::FLOAT32, team);
    const double seconds = o.seconds > 0 ? o.seconds : DEFAULT_SECONDS;
    const double warm_end = now_s() + WARM_SHARE * seconds;
    do load->run(ctx);
    while (now_s() < warm_end);
    measured m;
    block_list blocks;
    std::vector<double> int8_peaks, float_peaks;
    for (double spent = 0; spent < seconds;) {
        int8_peaks.push_back(int8.all());
        float_peaks.push_back(float32.all());
        const sq_stats before = ctx_stats(ctx);
        const double start = now_s();
        double elapsed;
        do {
            load->run(ctx);
            m.n_calls++;
            elapsed = now_s() - start;
        } while (elapsed < BLOCK_S);
        blocks.add(before, ctx_stats(ctx), elapsed);
        spent += elapsed;
    }
    blocks.sum_up(&m);
    m.int8_peak = quantile(int8_peaks, 0.5);
    m.float_peak = quantile(float_peaks, 0.5);
    return m;
}

// ---- the model's products ----

struct linear_shape {
    uint32_t n, k;
};

linear_shape shape_of(size_t linear, const sq_model_info &i) {
    const linear_shape shapes[N_LINEAR] = {{3 * i.width, i.width}, {i.width, i.width}, {i.ffn_width, i.width}, {i.width, i.ffn_width}};
    return shapes[linear];
}

// "f32", "static" or "dynamic": how a linear layer computes (convert/format.md, layer.I.LINEAR.form).
std::string form_of(const sq_model *model, uint32_t layer, const char *name) {
    char form[16];
    size_t n = 0;
    const std::string key = "layer." + std::to_string(layer) + "." + name + ".form";
    const int32_t status = sq_model_meta(model, key.c_str(), form, sizeof form, &n);
    if (status != SQ_OK) fail("metadata %s: %s", key.c_str(), sq_status_string(status));
    return std::string(form, n);
}

// The linear layers of one kind over all layers of the model. The output of `up` is bytes where the `down` that reads it is static (HACKING.md).
product_sum sum_of_linear(const sq_model *model, const sq_model_info &info, const workload &load, const roofs &r, size_t linear) {
    const linear_shape s = shape_of(linear, info);
    product_sum sum;
    for (uint32_t l = 0; l < info.n_layers; l++) {
        const bool is_int8 = form_of(model, l, LINEAR_NAMES[linear]) != "f32";
        const bool has_u8_output = LINEAR_OPS[linear] == SQ_OP_UP && form_of(model, l, "down") == "static";
        sum.add(linear_product(static_cast<double>(load.tokens()), s.n, s.k, is_int8, has_u8_output), r);
    }
    return sum;
}

product_sum sum_of_attention(const sq_model_info &info, const workload &load, const roofs &r) {
    product_sum sum;
    for (uint32_t l = 0; l < info.n_layers; l++) sum.add(attention_product(static_cast<double>(load.tokens()), load.length(), info.width), r);
    return sum;
}

// ---- the report ----

struct profile_row {
    std::string name, shape; // shape: "N x K" of a linear layer
    operator_time time;
    product_sum model; // n = 0: no roofline
};

double rate_of(const operator_time &t) { return t.seconds > 0 ? t.ops / t.seconds : 0; }

struct profile {
    uint32_t n_threads = 0;
    measured m;
    bandwidths b;
    roofs r;
    std::vector<profile_row> rows;
    product_sum linear; // all linear layers
    double linear_s = 0, ceiling_s = 0; // ceiling: a call with the linear layers at their bounds; 0: not known
};

void add_rows(const sq_model *model, const sq_model_info &info, const workload &load, profile *p) {
    for (size_t i = 0; i < N_LINEAR; i++) {
        const linear_shape s = shape_of(i, info);
        profile_row row = {LINEAR_NAMES[i], formatted("%u x %u", unsigned{s.n}, unsigned{s.k}), p->m.ops[LINEAR_OPS[i]],
                           sum_of_linear(model, info, load, p->r, i)};
        p->linear.add(row.model);
        p->linear_s += row.time.seconds;
        p->rows.push_back(std::move(row));
    }
    p->rows.push_back({"attention", "", p->m.ops[SQ_OP_ATTENTION], sum_of_attention(info, load, p->r)});
    p->rows.push_back({"LayerNorm", "", p->m.ops[SQ_OP_NORM], {}});
    p->rows.push_back({"embedding", "", p->m.ops[SQ_OP_EMBED], {}});
    p->rows.push_back({"quantise", "", p->m.ops[SQ_OP_QUANT], {}});
    p->rows.push_back({"head", "", p->m.ops[SQ_OP_HEAD], {}});
    p->rows.push_back({"outside", "", {p->m.outside_s, 0}, {}});
    if (p->linear.bound() > 0) p->ceiling_s = p->linear.seconds + p->m.call_s - p->linear_s;
}

std::string percent_or_dash(double share) { return share > 0 ? formatted("%.1f %%", 100 * share) : "-"; }

std::string table_line(const char *name, const char *shape, const operator_time &t, double call_s, const product_sum &s) {
    const double rate = rate_of(t), bound = s.bound();
    return formatted("%-10s %-12s %10.4f %8.1f %% %10s %9s %11s %9s\n", name, shape, 1e3 * t.seconds, 100 * t.seconds / call_s,
                     number_or_dash(1e-9 * rate, 1).c_str(), number_or_dash(s.intensity(), 1).c_str(), number_or_dash(1e-9 * bound, 1).c_str(),
                     percent_or_dash(bound > 0 ? rate / bound : 0).c_str());
}

std::string roof_line(const profile &p) {
    std::string text = "roofs: ";
    text += "INT8 " + number_or_dash(1e-9 * p.r.int8_ops, 0) + " Gop/s, float32 " + number_or_dash(1e-9 * p.r.float_ops, 0) + " Gop/s, memory " +
            number_or_dash(1e-9 * p.b.memory, 1) + formatted(" GB/s (%zu MB read), last-level cache ", p.b.memory_buffer >> 20) +
            number_or_dash(1e-9 * p.b.llc, 1) + " GB/s";
    if (p.b.llc_buffer) text += formatted(" (%zu MB read)", p.b.llc_buffer >> 20);
    if (p.b.llc <= 0) return text + "\n";
    return text + (p.r.weights_fit ? "; the model fits that cache\n" : "; the model does not fit that cache\n");
}

void print_text(const std::string &title, const profile &p, output *out) {
    out->write(title + "\n" + roof_line(p));
    out->write(formatted("%-10s %-12s %10s %10s %10s %9s %11s %9s\n", "operator", "N x K", "ms a call", "share", "Gop/s", "op/byte", "bound Gop/s", "of bound"));
    for (const profile_row &row : p.rows) out->write(table_line(row.name.c_str(), row.shape.c_str(), row.time, p.m.call_s, row.model));
    const operator_time linear = {p.linear_s, p.linear.ops};
    out->write(table_line("linear", "(all four)", linear, p.m.call_s, p.linear));
    out->write(formatted("%-10s %-12s %10.4f   (medians of %zu calls)\n", "call", "", 1e3 * p.m.call_s, p.m.n_calls));
    if (p.ceiling_s > 0)
        out->write(formatted("ceiling: %.4f ms, with the linear layers at their bounds; achieved %.1f %% of the ceiling\n", 1e3 * p.ceiling_s,
                             100 * p.ceiling_s / p.m.call_s));
    else out->write("ceiling: not known without a peak\n");
}

std::string json_of_row(const profile_row &row, double call_s) {
    json_object j;
    j.add("name", row.name);
    if (!row.shape.empty()) j.add("n_x_k", row.shape);
    j.add("ms", 1e3 * row.time.seconds);
    j.add("share", row.time.seconds / call_s);
    j.add_known("gop_s", 1e-9 * rate_of(row.time));
    if (row.model.n == 0) return j.text();
    j.add("op_per_byte", row.model.intensity());
    j.add_known("bound_gop_s", 1e-9 * row.model.bound());
    j.add_known("of_bound", row.model.bound() > 0 ? rate_of(row.time) / row.model.bound() : 0);
    return j.text();
}

std::string json_of(const options &o, const sq_model *model, const sq_model_info &info, const workload &load, const profile &p) {
    json_object j;
    add_setting(&j, "profile", o, model, info);
    j.add("threads", uint64_t{p.n_threads});
    j.add("tokens", uint64_t{load.length()});
    j.add("batch", uint64_t{load.sequences()});
    j.add("calls", uint64_t{p.m.n_calls});
    j.add("call_ms", 1e3 * p.m.call_s);
    j.add_known("int8_peak_gop_s", 1e-9 * p.r.int8_ops);
    j.add_known("float_peak_gop_s", 1e-9 * p.r.float_ops);
    j.add_known("memory_gb_s", 1e-9 * p.b.memory);
    j.add("memory_buffer_bytes", uint64_t{p.b.memory_buffer});
    j.add_known("llc_gb_s", 1e-9 * p.b.llc);
    j.add("llc_buffer_bytes", uint64_t{p.b.llc_buffer});
    j.add_flag("fits_llc", p.r.weights_fit);
    std::vector<std::string> rows;
    for (const profile_row &row : p.rows) rows.push_back(json_of_row(row, p.m.call_s));
    j.add_json("operators", json_array(rows));
    j.add_json("linear", json_of_row({"linear", "", {p.linear_s, p.linear.ops}, p.linear}, p.m.call_s));
    j.add_known("ceiling_ms", 1e3 * p.ceiling_s);
    j.add_known("of_ceiling", p.ceiling_s / p.m.call_s);
    return j.text();
}

void write_svg(const options &o, const sq_model *model, const workload &load, const profile &p) {
    std::vector<roofline_dot> dots;
    for (const profile_row &row : p.rows)
        if (row.model.n > 0) dots.push_back({row.name, row.model.intensity(), rate_of(row.time)});
    const std::string title = "Roofline of " + printable(o.model.substr(o.model.rfind('/') + 1), 60) + ", " + sq_isa_string(model);
    const std::string subtitle = cpu_name() + formatted(", %u thread%s, %u tokens, batch %u", unsigned{p.n_threads}, p.n_threads == 1 ? "" : "s",
                                                        unsigned{load.length()}, unsigned{load.sequences()});
    output file(o.svg);
    file.write(draw_roofline(title, subtitle, p.r, dots));
    file.commit();
}

} // namespace

void run_profile(const options &o) {
    const model_ptr model = load_model(o);
    const sq_model_info info = model_info(model.get());
    workload load(info, o.lengths.empty() ? std::min(DEFAULT_LENGTH, info.max_positions) : o.lengths[0], o.batch ? o.batch : 1);
    const ctx_ptr ctx = make_measuring_ctx(read_tuning(o), model.get(), load, o.threads, {}, {});
    if (!o.svg.empty()) output(o.svg); // a place that cannot be written is refused before anything is measured

    profile p;
    p.n_threads = ctx_stats(ctx.get()).n_threads;
    thread_team team(at_once(p.n_threads, allowed_cpus()), {});
    const char *isa = sq_isa_string(model.get());
    p.b = measure_bandwidths(isa, &team);
    p.m = measure(o, isa, &load, ctx.get(), &team);
    p.r = {p.m.int8_peak, p.m.float_peak, p.b.memory, p.b.llc, info.file_bytes <= cache_bytes(3)};
    add_rows(model.get(), info, load, &p);

    if (!o.svg.empty()) write_svg(o, model.get(), load, p);
    output out("");
    const std::string how = formatted("%u thread%s, %u tokens, batch %u", unsigned{p.n_threads}, p.n_threads == 1 ? "" : "s", unsigned{load.length()},
                                      unsigned{load.sequences()});
    if (o.json) out.write(json_of(o, model.get(), info, load, p) + "\n");
    else print_text(title_line(o, model.get(), info, how), p, &out);
    out.commit();
}

} // namespace cli
