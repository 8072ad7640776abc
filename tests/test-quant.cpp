// test-quant.cpp - the offline arithmetic of the converter against plain computations in double: moments, rounding together, bases of heads; and the accuracy budget.
#include <math.h>

#include <random>

#include "models.h"
#include "scratch.h"

namespace {

using matrix = std::vector<double>; // row-major

const sq::kernels &table() {
    const sq::kernels *k = nullptr;
    sq::choose_kernels(nullptr, &k, nullptr, nullptr);
    return *k;
}

// Rows of n correlated channels of different sizes and means
std::vector<float> correlated_rows(size_t rows, size_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> mix(n * 8), x(rows * n);
    for (float &m : mix) m = normal(random);
    for (size_t r = 0; r < rows; r++) {
        float common[8];
        for (float &c : common) c = normal(random);
        for (size_t j = 0; j < n; j++) {
            float v = 0.3f * normal(random) + 0.01f * static_cast<float>(j);
            for (size_t c = 0; c < 8; c++) v += common[c] * mix[j * 8 + c];
            x[r * n + j] = v * (1 + 0.05f * static_cast<float>(j % 17));
        }
    }
    return x;
}

matrix covariance(const std::vector<float> &x, size_t rows, size_t n) {
    matrix mean(n), c(n * n);
    for (size_t i = 0; i < rows * n; i++) mean[i % n] += static_cast<double>(x[i]) / static_cast<double>(rows);
    for (size_t r = 0; r < rows; r++)
        for (size_t a = 0; a < n; a++)
            for (size_t b = 0; b < n; b++)
                c[a * n + b] += (static_cast<double>(x[r * n + a]) - mean[a]) * (static_cast<double>(x[r * n + b]) - mean[b]) / static_cast<double>(rows);
    return c;
}

void test_moments() {
    const size_t rows = 700, n = 100, stride = 112; // no multiple of a block, of columns or of rows
    const std::vector<float> x = correlated_rows(rows, n, 1);
    std::vector<float> wide(rows * stride);
    for (size_t i = 0; i < x.size(); i++) wide[i / n * stride + i % n] = x[i];
    sq::moments m(table(), n);
    m.add(wide.data(), 300, stride);
    m.add(wide.data() + 300 * stride, rows - 300, stride);
    m.finish();
    const matrix expected = covariance(x, rows, n);
    CHECK_EQ(m.n_rows(), rows);
    double worst = 0, largest = 0;
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) {
            worst = std::max(worst, fabs(m.covariance(a, b) - expected[a * n + b]));
            largest = std::max(largest, fabs(expected[a * n + b]));
        }
    CHECK(worst < 1e-4 * largest); // f32 sums of 700 products: 700 * 2^-24 of the largest
}

double loss(const matrix &c, const std::vector<double> &e) {
    const size_t n = e.size();
    double sum = 0;
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) sum += e[a] * c[a * n + b] * e[b];
    return sum;
}

// Babai's nearest plane by the definition: the last column first, each weight where the loss of it and those before it, left free, is least. With U the unit upper
// triangular factor of C = U' D U reversed, that is what the derivation in sq-quant-round.cpp says; here by eliminating free columns one by one.
std::vector<double> nearest_plane(matrix c, const std::vector<size_t> &order, const std::vector<float> &v) {
    const size_t n = v.size();
    // Cholesky of C in the given order
    matrix l(n * n);
    for (size_t j = 0; j < n; j++)
        for (size_t i = j; i < n; i++) {
            double s = c[order[i] * n + order[j]];
            for (size_t t = 0; t < j; t++) s -= l[i * n + t] * l[j * n + t];
            l[i * n + j] = i == j ? sqrt(s) : s / l[j * n + j];
        }
    std::vector<double> e(n), q(n);
    for (size_t j = n; j-- > 0;) {
        double sum = 0;
        for (size_t i = j + 1; i < n; i++) sum += l[i * n + j] * e[i];
        const double x = static_cast<double>(v[order[j]]);
        q[order[j]] = std::clamp(nearbyint(x + sum / l[j * n + j]), -127.0, 127.0);
        e[j] = x - q[order[j]];
    }
    return q;
}

void test_rounding() {
    const size_t rows = 900, n = 150, n_weights = 70;
    const std::vector<float> x = correlated_rows(rows, n, 2), ones(n, 1.0f), no_noise(n, 0.0f);
    sq::moments m(table(), n);
    m.add(x.data(), rows, n);
    m.finish();
    matrix c = covariance(x, rows, n);
    std::vector<size_t> order(n);
    for (size_t j = 0; j < n; j++) order[j] = j;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return c[a * n + a] < c[b * n + b]; });
    double mean_variance = 0;
    for (size_t j = 0; j < n; j++) mean_variance += c[j * n + j] / static_cast<double>(n);
    matrix damped = c;
    for (size_t j = 0; j < n; j++) damped[j * n + j] += 0.01 * mean_variance;

    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 30);
    std::vector<float> w(n_weights * n);
    for (float &v : w) v = normal(random);
    std::vector<int8_t> q(w.size());
    sq::weight_metric(table(), m, ones, no_noise).round(w.data(), n_weights, q.data());
    size_t n_other = 0;
    double together = 0, one_by_one = 0, reference = 0;
    for (size_t r = 0; r < n_weights; r++) {
        const std::vector<float> row(w.begin() + static_cast<ptrdiff_t>(r * n), w.begin() + static_cast<ptrdiff_t>((r + 1) * n));
        const std::vector<double> expected = nearest_plane(damped, order, row);
        std::vector<double> e(n), plain(n), exact(n);
        for (size_t j = 0; j < n; j++) {
            const double v = static_cast<double>(row[j]);
            n_other += q[r * n + j] != static_cast<int>(expected[j]);
            e[j] = v - q[r * n + j];
            exact[j] = v - expected[j];
            plain[j] = v - std::clamp(nearbyint(v), -127.0, 127.0);
        }
        together += loss(c, e);
        one_by_one += loss(c, plain);
        reference += loss(c, exact);
    }
    printf("rounding together loses %.3f of what rounding one by one loses; in double %.3f; %zu of %zu weights differ\n", together / one_by_one, reference / one_by_one,
           n_other, q.size());
    CHECK(together < 0.5 * one_by_one);
    CHECK(fabs(together - reference) < 0.02 * reference); // a weight that f32 rounds the other way moves those after it
}

// ---- heads ----

struct attention_rows {
    size_t rows, width, n_heads;
    std::vector<float> qkv; // [rows][3 * width]
};

// [rows][width], in double
matrix attend(const attention_rows &a) {
    const size_t d = a.width / a.n_heads;
    matrix out(a.rows * a.width);
    for (size_t h = 0; h < a.n_heads; h++)
        for (size_t i = 0; i < a.rows; i++) {
            matrix p(a.rows);
            double most = -HUGE_VAL, sum = 0;
            for (size_t j = 0; j < a.rows; j++) {
                for (size_t c = 0; c < d; c++)
                    p[j] += static_cast<double>(a.qkv[i * 3 * a.width + h * d + c]) * static_cast<double>(a.qkv[j * 3 * a.width + a.width + h * d + c]);
                most = std::max(most, p[j]);
            }
            for (double &v : p) sum += v = exp(v - most);
            for (size_t j = 0; j < a.rows; j++)
                for (size_t c = 0; c < d; c++) out[i * a.width + h * d + c] += p[j] / sum * static_cast<double>(a.qkv[j * 3 * a.width + 2 * a.width + h * d + c]);
        }
    return out;
}

std::vector<float> linear(const sq::float_linear &l, const std::vector<float> &x) {
    const size_t rows = x.size() / l.k;
    std::vector<float> y(rows * l.n);
    for (size_t r = 0; r < rows; r++)
        for (size_t n = 0; n < l.n; n++) {
            double sum = static_cast<double>(l.bias[n]);
            for (size_t j = 0; j < l.k; j++) sum += static_cast<double>(l.w[n * l.k + j]) * static_cast<double>(x[r * l.k + j]);
            y[r * l.n + n] = static_cast<float>(sum);
        }
    return y;
}

sq::float_linear random_linear(uint32_t n, uint32_t k, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    sq::float_linear l;
    l.n = n;
    l.k = k;
    l.w.resize(n * k);
    l.bias.resize(n);
    for (float &v : l.w) v = normal(random) / sqrtf(static_cast<float>(k));
    for (float &v : l.bias) v = normal(random) / 4;
    return l;
}

// What two linear layers and attention between them give, in bases as they are and in changed ones
void test_heads(uint32_t width, uint32_t n_heads) {
    const size_t rows = 60;
    sq::float_linear qkv = random_linear(3 * width, width, 4), out = random_linear(width, width, 5);
    for (size_t j = 0; j < width; j++) qkv.w[3 * width + j] *= 8; // a query channel with outliers
    std::vector<float> x = correlated_rows(rows, width, 6);
    for (float &v : x) v *= 0.2f;
    auto answer = [&](const sq::float_linear &in, const sq::float_linear &o, attention_rows *a) {
        *a = {rows, width, n_heads, linear(in, x)};
        const matrix context = attend(*a);
        return linear(o, std::vector<float>(context.begin(), context.end()));
    };
    attention_rows before, after;
    const std::vector<float> expected = answer(qkv, out, &before);
    sq::attention_observer seen(width, rows);
    seen.see(before.qkv.data(), rows, 3 * width);
    const sq::head_bases bases = sq::choose_head_bases(seen, out, n_heads);
    sq::change_bases(bases, &qkv, &out);
    const std::vector<float> got = answer(qkv, out, &after);
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++) worst = std::max(worst, static_cast<double>(fabsf(got[i] - expected[i])));
    CHECK(worst < 1e-4 * static_cast<double>(largest(expected)));

    // The expected noise of scores, |q|^2 + |k|^2, has fallen, and no channel of a head stands out.
    const size_t d = width / n_heads;
    auto squares = [&](const attention_rows &a, size_t column) {
        double sum = 0;
        for (size_t r = 0; r < rows; r++) sum += pow(static_cast<double>(a.qkv[r * 3 * width + column]), 2);
        return sum;
    };
    double noise_before = 0, noise_after = 0, most = 0, all = 0;
    for (size_t c = 0; c < 2 * width; c++) noise_before += squares(before, c), noise_after += squares(after, c);
    for (size_t c = 0; c < d; c++) most = std::max(most, squares(after, c)), all += squares(after, c);
    printf("heads of %zu: %.2f of the squares of queries and keys; the largest query channel has %.2f of the mean\n", d, noise_after / noise_before,
           most / all * static_cast<double>(d));
    CHECK(noise_after < noise_before);
    CHECK(most < (d & (d - 1) ? 2.0 : 1.05) * all / static_cast<double>(d)); // a cosine transform mixes less evenly than Hadamard's matrix
}

// ---- forms ----

void test_as_dynamic() {
    sq::int8_linear l;
    l.n = 2, l.k = 3;
    l.w = {1, -2, 3, 4, 5, -6};
    l.comp = {2, 3};
    l.step = 0.5f;
    l.scale = {0.5f * 0.25f, 0.5f * 0.125f};
    l.zero = 10;
    l.bias = {1 - 0.125f * 10 * 2, 2 - 0.0625f * 10 * 3};
    l.mul = {2, 4, 8}; // 1 / (s * 0.5)
    const sq::int8_linear d = sq::as_dynamic(l);
    CHECK(d.is_dynamic && d.zero == 0);
    CHECK(d.scale == std::vector<float>({0.25f, 0.125f}) && d.bias == std::vector<float>({1, 2}) && d.mul == std::vector<float>({1, 2, 4}));
}

// ---- the budget ----

struct conversion {
    int status;
    sq::convert_result result;
    sq::message why{};
    bool has_file;
};

conversion convert_with(const char *checkpoint, const sq::budget &budget, sq::quant_mode mode) {
    scratch folder;
    sq::convert_options o;
    o.checkpoint = std::string("tests/golden/") + checkpoint;
    o.output = folder.path + "/model.sq";
    o.mode = mode;
    o.budget = budget;
    conversion c;
    c.status = sq::convert(o, &c.result, &c.why);
    c.has_file = access(o.output.c_str(), F_OK) == 0;
    if (!c.has_file) return c;
    // What the file says of each layer is what the report says.
    sq_model *raw = nullptr;
    if (!CHECK_EQ(sq_model_load(o.output.c_str(), nullptr, &raw, nullptr, 0), SQ_OK)) return c;
    const model_handle m(raw);
    for (const sq::layer_report &r : c.result.layers) {
        const sq::layer &l = m->layers[r.layer];
        const sq::linear &x = r.role == sq::QKV ? l.qkv : r.role == sq::OUT ? l.out : r.role == sq::UP ? l.up : l.down;
        CHECK(x.is_s8 == !r.is_float && (r.is_float || x.is_dynamic == r.chosen.is_dynamic));
    }
    for (uint32_t i = 0; i < c.result.attention.size(); i++) CHECK(m->layers[i].attention.is_s8 == (strcmp(c.result.attention[i].weights, "f32") != 0));
    return c;
}

void test_budget() {
    const conversion plain = convert_with("bert-64", {}, sq::quant_mode::static_scales);
    CHECK(plain.status == SQ_OK && plain.result.steps.empty() && plain.result.result.n_texts >= 8);
    const double reached = plain.result.result.cos_mean;

    sq::budget half_way; // half of what is lost
    half_way.cos = 1 - (1 - reached) / 2;
    const conversion kept = convert_with("bert-64", half_way, sq::quant_mode::static_scales);
    CHECK(kept.status == SQ_OK && kept.result.result.cos_mean >= half_way.cos && !kept.result.steps.empty());
    CHECK(kept.result.before_budget.cos_mean == reached);
    for (size_t i = 0; i + 1 < kept.result.steps.size(); i++) CHECK(kept.result.steps[i].after.cos_mean < half_way.cos); // it stops where the budget is kept
    printf("budget: %.6f, then %.6f by %zu steps\n", reached, kept.result.result.cos_mean, kept.result.steps.size());

    // Where all layers are dynamic already, attention in f32 comes next, before any linear layer.
    const conversion dynamic = convert_with("bert-64", {}, sq::quant_mode::dynamic_scales);
    sq::budget closer;
    closer.cos = 1 - (1 - dynamic.result.result.cos_mean) * 0.9;
    const conversion by_attention = convert_with("bert-64", closer, sq::quant_mode::dynamic_scales);
    if (CHECK(by_attention.status == SQ_OK && !by_attention.result.steps.empty())) {
        CHECK(strcmp(by_attention.result.steps[0].part, "attention") == 0 && strcmp(by_attention.result.steps[0].form, "float") == 0);
        CHECK(by_attention.result.steps[0].after.cos_mean > dynamic.result.result.cos_mean);
    }

    sq::budget impossible;
    impossible.cos = 1;
    const conversion missed = convert_with("bert-64", impossible, sq::quant_mode::dynamic_scales);
    CHECK(missed.status == SQ_E_LIMIT && !missed.has_file && strstr(missed.why.text, "budget"));
    const std::vector<sq::budget_step> &all = missed.result.steps;
    const auto is_attention = [](const sq::budget_step &s) { return strcmp(s.part, "attention") == 0; };
    CHECK(std::count_if(all.begin(), all.end(), is_attention) > 0 && std::is_partitioned(all.begin(), all.end(), is_attention));

    sq::budget kl;
    kl.kl = 0.001;
    const conversion headless = convert_with("bert-64", kl, sq::quant_mode::static_scales);
    CHECK(headless.status == SQ_E_ARG && !headless.has_file);
}

void test_no_room() {
    scratch folder;
    const char *old = getenv("TMPDIR");
    const std::string before = old ? old : "";
    setenv("TMPDIR", (folder.path + "/absent").c_str(), 1);
    sq::convert_options o;
    o.checkpoint = "tests/golden/bert-64";
    o.output = folder.path + "/model.sq";
    sq::convert_result result;
    sq::message why{};
    CHECK_EQ(sq::convert(o, &result, &why), SQ_E_IO);
    CHECK(strstr(why.text, "absent") && access(o.output.c_str(), F_OK) != 0);
    if (old) setenv("TMPDIR", before.c_str(), 1);
    else unsetenv("TMPDIR");
}

} // namespace

int main() {
    test_moments();
    test_rounding();
    test_heads(64, 2);
    test_heads(96, 2);
    test_as_dynamic();
    test_budget();
    test_no_room();
    return check_summary("test-quant");
}
