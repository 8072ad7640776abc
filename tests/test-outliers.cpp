// test-outliers.cpp - checkpoints with outlier channels: without smoothing INT8 loses what the other channels say, the converter's search keeps it.
//
// Two are made from each checkpoint, by changing its weights. In the first the function stays the same: rows of value projections are multiplied by a power of two
// and the columns of the output layer that read them are divided by it. In the second a LayerNorm multiplies a few of its channels and nothing makes up for it,
// so that it is another model, which is compared with its own float output.
// The tiny checkpoint of tests/golden runs everywhere; minilm needs SQ_MODELS (checkpoint folders) and SQ_SHARED (data/golden, data/calibrate.txt; default ../shared).
#include "../convert/names.h"
#include "../convert/read-config.h"
#include "models.h"
#include "scratch.h"

namespace {

constexpr sq::quant_mode INT8_MODES[] = {sq::quant_mode::dynamic_scales, sq::quant_mode::static_scales};

struct cosines {
    double lowest, mean;
};

// Least cosines of pooled vectors to those of the same checkpoint's float model.
struct bounds {
    cosines as_dynamic, as_static;
    const cosines &of(sq::quant_mode mode) const { return mode == sq::quant_mode::dynamic_scales ? as_dynamic : as_static; }
};
constexpr bounds TINY = {{0.9995, 0.9995}, {0.998, 0.998}};            // test-forward's, where their source is
constexpr bounds MINILM_VALUES = {{0.997, 0.9992}, {0.994, 0.998}};    // as test-accuracy asks of minilm itself
constexpr bounds MINILM_NORM = {{0.992, 0.9985}, {0.99, 0.9966}};      // as test-accuracy asks of minilm itself

// What one checkpoint is tested with. The LayerNorm's channels and factor are those with which the float model still makes sense.
struct subject {
    std::string name, checkpoint, calibration;
    std::vector<golden_row> rows;
    uint32_t norm_layer; // its last LayerNorm is changed
    std::vector<size_t> norm_channels;
    float norm_factor;
    bounds with_values, with_norm;
};

// ---- changing a checkpoint ----

// A checkpoint in a folder of its own, with weights that may be changed; all other files are links to the original's.
class changed_checkpoint {
  public:
    explicit changed_checkpoint(const std::string &original) {
        sq::message why{};
        const bool is_open = sq::read_config(original, &config_, &why) == SQ_OK && weights_.open(config_.folder, &why) == SQ_OK &&
                             names_.open(weights_, config_, &why) == SQ_OK;
        if (!CHECK(is_open)) fprintf(stderr, "  %s\n", why.text);
        if (!is_open || !CHECK_EQ(weights_.files().size(), 1u)) return;
        const sq::source_file &file = weights_.files()[0];
        bytes_.assign(reinterpret_cast<const char *>(file.data()), file.size());
        for (const auto &entry : std::filesystem::directory_iterator(config_.folder))
            if (entry.path().filename() != file.name()) std::filesystem::create_symlink(absolute(entry.path()), folder_.path + "/" + entry.path().filename().string());
    }

    bool is_open() const { return !bytes_.empty(); }
    const sq::model_config &config() const { return config_; }

    // Multiplies n elements of the tensor of a role (names.h), the first at `first` and each `stride` behind the one before.
    void multiply(const std::string &role, size_t first, size_t n, size_t stride, float factor) {
        const sq::source_tensor *t = names_.find(role);
        if (!CHECK(t && t->type == sq::element::f32 && first + (n - 1) * stride < t->n_elements)) return;
        for (size_t i = 0; i < n; i++) {
            char *at = &bytes_[static_cast<size_t>(t->data - t->file->data()) + (first + i * stride) * sizeof(float)];
            float x;
            memcpy(&x, at, sizeof x);
            x *= factor;
            memcpy(at, &x, sizeof x);
        }
    }

    // The folder, for the converter.
    const std::string &write() {
        folder_.put(weights_.files()[0].name(), bytes_);
        return folder_.path;
    }

  private:
    scratch folder_;
    sq::model_config config_;
    sq::checkpoint weights_;
    sq::tensor_names names_;
    std::string bytes_; // of the weights' file
};

constexpr size_t N_VALUES = 6;
constexpr float VALUE_FACTOR = 64;

// In every layer, value channels spread over the heads become VALUE_FACTOR times as large, and the output layer's weights for them as much smaller.
void enlarge_values(changed_checkpoint *c) {
    const size_t D = c->config().width;
    for (size_t layer = 0; layer < c->config().n_layers; layer++) {
        const std::string prefix = "layer." + std::to_string(layer) + ".";
        for (size_t i = 0; i < N_VALUES; i++) {
            const size_t channel = i * D / N_VALUES + layer;
            c->multiply(prefix + "value.weight", channel * D, D, 1, VALUE_FACTOR);
            c->multiply(prefix + "value.bias", channel, 1, 1, VALUE_FACTOR);
            c->multiply(prefix + "out.weight", channel, D, D, 1 / VALUE_FACTOR);
        }
    }
}

void enlarge_norm(const subject &s, changed_checkpoint *c) {
    for (size_t channel : s.norm_channels)
        for (const char *part : {"gamma", "beta"}) c->multiply("layer." + std::to_string(s.norm_layer) + ".down_norm." + part, channel, 1, 1, s.norm_factor);
}

// ---- comparing ----

using vectors = std::vector<std::vector<float>>; // one for each row

// kind: SQ_HIDDEN or SQ_POOLED
vectors outputs(const std::string &bytes, const std::vector<golden_row> &rows, int32_t kind) {
    vectors out;
    const model_handle m = load(bytes);
    if (!m) return out;
    const ctx_handle c = context(m);
    for (const golden_row &r : rows) {
        batch_builder b;
        b.add(r);
        out.push_back(run(c, b, kind, m->arch.width));
    }
    return out;
}

cosines agreement(const vectors &a, const vectors &b) {
    cosines c{1, 0};
    if (!CHECK_EQ(a.size(), b.size())) return {0, 0};
    for (size_t i = 0; i < a.size(); i++) {
        if (!CHECK_EQ(a[i].size(), b[i].size())) return {0, 0};
        const double cos = cosine(a[i].data(), b[i].data(), a[i].size());
        c.lowest = std::min(c.lowest, cos);
        c.mean += cos / static_cast<double>(a.size());
    }
    return c;
}

// Prints and checks how near an INT8 model's vectors are to as_float.
cosines check_agreement(const subject &s, const char *what, sq::quant_mode mode, const std::string &int8, const vectors &as_float, const cosines &allowed) {
    const cosines got = agreement(outputs(int8, s.rows, SQ_POOLED), as_float);
    printf("%s, %s, %s: cosine to float lowest %.5f, mean %.5f\n", s.name.c_str(), what, mode_name(mode), got.lowest, got.mean);
    CHECK(got.lowest >= allowed.lowest);
    CHECK(got.mean >= allowed.mean);
    return got;
}

// What the converter reports of one linear layer.
sq::choice report_of(const sq::convert_result &report, uint32_t layer, sq::linear_role role) {
    for (const sq::layer_report &l : report.layers)
        if (l.layer == layer && l.role == role) return l.chosen;
    CHECK(!"the report has this layer");
    return {};
}

// ---- outlier values ----

// The float model computes the same bits: multiplying by a power of two is exact, so that every product and sum in the output layer is what it was. (A result below
// 2^-126 would not be exact; no weight of these checkpoints comes near.)
void test_same_float(const subject &s, const std::string &original, const std::string &changed) {
    const vectors x = outputs(original, s.rows, SQ_HIDDEN), y = outputs(changed, s.rows, SQ_HIDDEN);
    if (!CHECK_EQ(x.size(), y.size())) return;
    for (size_t i = 0; i < x.size(); i++) CHECK(x[i].size() == y[i].size() && memcmp(x[i].data(), y[i].data(), x[i].size() * sizeof(float)) == 0);
    CHECK(original != changed);
}

// Without smoothing the step is that of the large channels, up to VALUE_FACTOR times what it was, and so are the other channels' errors, until they round to 0.
// A smoothing factor of any strength, and a balanced one, grows in proportion to its channel: the search loses what it loses on the original.
constexpr double PLAIN_ERROR = 0.1, PLAIN_EXCESS = 10; // of a layer without smoothing, at least; and beside what the search leaves
constexpr double SEARCH_EXCESS = 1.1;                  // of a layer's error with the search, beside the original's: the search has a few candidates only
constexpr double LOSS_EXCESS = 1.25;                   // of 1 - mean cosine, beside the original's: roundings fall otherwise

void check_values_report(const subject &s, sq::quant_mode mode, const sq::convert_result &before, const sq::convert_result &after) {
    for (size_t layer = 0; layer < before.attention.size(); layer++) {
        const sq::choice was = report_of(before, static_cast<uint32_t>(layer), sq::OUT), is = report_of(after, static_cast<uint32_t>(layer), sq::OUT);
        printf("%s, outlier values, %s: layer %zu out: error without smoothing %.3f (original %.3f), with the search %.4f (original %.4f)\n", s.name.c_str(),
               mode_name(mode), layer, is.plain_error, was.plain_error, is.error, was.error);
        CHECK(is.plain_error >= PLAIN_ERROR && is.plain_error >= PLAIN_EXCESS * is.error);
        CHECK(is.error <= SEARCH_EXCESS * was.error);
    }
}

void test_values(const subject &s, const std::string &original) {
    changed_checkpoint changed(s.checkpoint);
    if (!changed.is_open()) return;
    enlarge_values(&changed);
    const std::string &folder = changed.write();
    test_same_float(s, original, converted(folder, sq::quant_mode::none));
    const vectors as_float = outputs(original, s.rows, SQ_POOLED);
    for (sq::quant_mode mode : INT8_MODES) {
        sq::convert_result before, after;
        const std::string original_int8 = converted(s.checkpoint, mode, s.calibration, &before), int8 = converted(folder, mode, s.calibration, &after);
        CHECK_EQ(after.attention.size(), changed.config().n_layers);
        check_values_report(s, mode, before, after);
        const cosines was = check_agreement(s, "original", mode, original_int8, as_float, s.with_values.of(mode)),
                      is = check_agreement(s, "outlier values", mode, int8, as_float, s.with_values.of(mode));
        CHECK(1 - is.mean <= LOSS_EXCESS * (1 - was.mean));
    }
}

// ---- outlier channels of a LayerNorm ----

constexpr double STILL_SENSIBLE = 0.9; // mean cosine of the changed float model's vectors to the original's, at least
constexpr double SEARCH_GAIN = 0.8;    // error of the layer that reads the LayerNorm, with the search beside without smoothing, at most

void test_norm(const subject &s, const std::string &original) {
    changed_checkpoint changed(s.checkpoint);
    if (!changed.is_open()) return;
    enlarge_norm(s, &changed);
    const std::string &folder = changed.write();
    const vectors as_float = outputs(converted(folder, sq::quant_mode::none), s.rows, SQ_POOLED);
    const cosines kept = agreement(as_float, outputs(original, s.rows, SQ_POOLED));
    printf("%s, outlier LayerNorm, float: cosine to the original lowest %.3f, mean %.3f\n", s.name.c_str(), kept.lowest, kept.mean);
    CHECK(kept.mean >= STILL_SENSIBLE && kept.mean < 0.999);
    for (sq::quant_mode mode : INT8_MODES) {
        sq::convert_result report;
        const std::string int8 = converted(folder, mode, s.calibration, &report);
        const sq::choice reader = report_of(report, s.norm_layer + 1, sq::QKV);
        printf("%s, outlier LayerNorm, %s: layer %u qkv: error without smoothing %.3f, with the search %.4f\n", s.name.c_str(), mode_name(mode), s.norm_layer + 1,
               reader.plain_error, reader.error);
        CHECK(reader.error <= SEARCH_GAIN * reader.plain_error);
        check_agreement(s, "outlier LayerNorm", mode, int8, as_float, s.with_norm.of(mode));
    }
}

void test(const subject &s) {
    const std::string original = converted(s.checkpoint, sq::quant_mode::none);
    test_values(s, original);
    test_norm(s, original);
}

// ---- the checkpoints ----

// Calibrated on its own texts, so that what remains is rounding.
void test_tiny() {
    const scratch folder;
    std::vector<golden_row> rows;
    std::string texts;
    for (golden_row &r : read_golden("tests/golden/bert-64/expected.jsonl")) {
        if (r.has_b) continue; // calibration takes single texts
        texts += r.a + "\n";
        rows.push_back(std::move(r));
    }
    folder.put("texts.txt", texts);
    test({"bert-64", "tests/golden/bert-64", folder.path + "/texts.txt", std::move(rows), 0, {5, 40}, 20, TINY, TINY});
}

void test_minilm() {
    const char *models = getenv("SQ_MODELS"), *shared_or_null = getenv("SQ_SHARED");
    const std::string shared = shared_or_null ? shared_or_null : "../shared", checkpoint = std::string(models ? models : "") + "/minilm";
    if (!models || access((shared + "/data/golden/minilm.jsonl").c_str(), R_OK) != 0 || access((checkpoint + "/config.json").c_str(), R_OK) != 0)
        return SKIP("no reference texts (SQ_SHARED) or no real checkpoints (SQ_MODELS)");
    std::vector<golden_row> rows = read_golden(shared + "/data/golden/minilm.jsonl");
    test({"minilm", checkpoint, shared + "/data/calibrate.txt", std::move(rows), 1, {12, 150, 237}, 20, MINILM_VALUES, MINILM_NORM});
}

} // namespace

int main() {
    test_tiny();
    test_minilm();
    return check_summary("test-outliers");
}
