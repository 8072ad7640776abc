// convert/calibrate.cpp - see calibrate.h. Compiled with SQ_TAPS, as is the sq.cpp that it runs.
#include "calibrate.h"

#include <string.h>

#include <utility>

namespace sq {

namespace {

// Users of taps, one batch long

struct observing {
    const observation *wanted;
    const text_batch *batch;
};

void see(void *user, const char *name, uint32_t, const float *x, size_t rows, size_t, size_t stride) {
    const observing &o = *static_cast<observing *>(user);
    const std::vector<uint32_t> &starts = o.batch->starts;
    if (o.wanted->attention && strcmp(name, "attention") == 0)
        for (size_t seq = 0; seq + 1 < starts.size(); seq++) o.wanted->attention->see(x + starts[seq] * stride, starts[seq + 1] - starts[seq], stride);
    for (uint32_t role = QKV; role <= DOWN; role++) {
        layer_input *in = o.wanted->inputs[role];
        if (!in || strcmp(name, ROLE_NAMES[role]) != 0) continue;
        in->seen.see(x, rows, stride, o.batch->keep);
        if (in->real.is_wanted()) in->real.add(x, rows, stride);
    }
}

struct summing {
    std::array<std::vector<double>, 4> sums; // [role][k]
};

void add_up(void *user, const char *name, uint32_t, const float *x, size_t rows, size_t cols, size_t stride) {
    for (uint32_t role = QKV; role <= DOWN; role++) {
        if (strcmp(name, ROLE_NAMES[role]) != 0) continue;
        std::vector<double> &sums = static_cast<summing *>(user)->sums[role];
        sums.resize(cols);
        for (size_t r = 0; r < rows; r++)
            for (size_t j = 0; j < cols; j++) sums[j] += static_cast<double>(x[r * stride + j]);
    }
}

constexpr sq_tap NO_TAP = {nullptr, nullptr};
constexpr sq_part EMBEDDINGS = {0, 0, nullptr};

} // namespace

int calibration::start(const float_model &source, network *real, const calibration_texts *texts, message *why) {
    real_ = real;
    texts_ = texts;
    const size_t width = source.config().width;
    if (int status = float_states_.create(width, why)) return status;
    if (int status = real_states_.create(width, why)) return status;
    network in_floats;
    if (int status = in_floats.open(source, false, why)) return status;
    std::vector<float> rows;
    size_t row = 0;
    for (const text_batch &b : texts->batches) {
        first_row_.push_back(row);
        if (int status = in_floats.run(b, EMBEDDINGS, SQ_HIDDEN, &rows, why)) return status;
        if (int status = float_states_.write(row, rows, why)) return status;
        if (int status = real->run(b, EMBEDDINGS, SQ_HIDDEN, &rows, why)) return status;
        if (int status = real_states_.write(row, rows, why)) return status;
        row += b.n_tokens();
    }
    return SQ_OK;
}

int calibration::advance(uint32_t layer, size_t batch, hidden_states *states, message *why) {
    const text_batch &b = texts_->batches[batch];
    std::vector<float> rows, after;
    if (int status = states->read(first_row_[batch], b.n_tokens(), &rows, why)) return status;
    if (int status = real_->run(b, {layer, layer + 1, rows.data()}, SQ_HIDDEN, &after, why)) return status;
    return states->write(first_row_[batch], after, why);
}

int calibration::advance_float(uint32_t layer, std::array<std::vector<double>, 4> *means, message *why) {
    summing s;
    for (size_t i = 0; i < texts_->batches.size(); i++) {
        if (!texts_->batches[i].is_held_back) real_->watch({add_up, &s});
        const int status = advance(layer, i, &float_states_, why);
        real_->watch(NO_TAP);
        if (status != SQ_OK) return status;
    }
    for (std::vector<double> &sums : s.sums)
        for (double &v : sums) v /= static_cast<double>(texts_->n_tokens);
    *means = std::move(s.sums);
    return SQ_OK;
}

int calibration::advance_real(uint32_t layer, message *why) {
    for (size_t i = 0; i < texts_->batches.size(); i++)
        if (int status = advance(layer, i, &real_states_, why)) return status;
    return SQ_OK;
}

int calibration::observe_batch(uint32_t layer, size_t batch, const observation &wanted, message *why) {
    const text_batch &b = texts_->batches[batch];
    observing o{&wanted, &b};
    std::vector<float> rows, ignored;
    if (int status = real_states_.read(first_row_[batch], b.n_tokens(), &rows, why)) return status;
    real_->watch({see, &o});
    const int status = real_->run(b, {layer, layer + 1, rows.data()}, SQ_HIDDEN, &ignored, why);
    real_->watch(NO_TAP);
    return status;
}

int calibration::observe(uint32_t layer, const observation &wanted, message *why) {
    for (size_t i = 0; i < texts_->batches.size(); i++) {
        if (texts_->batches[i].is_held_back) continue;
        if (int status = observe_batch(layer, i, wanted, why)) return status;
    }
    for (layer_input *in : wanted.inputs)
        if (in) in->real.finish();
    return SQ_OK;
}

int calibration::held_back(int32_t kind, std::vector<std::vector<float>> *out, message *why) {
    const uint32_t n_layers = real_->model().arch.n_layers;
    std::vector<float> rows;
    for (size_t i = 0; i < texts_->batches.size(); i++) {
        const text_batch &b = texts_->batches[i];
        if (!b.is_held_back) continue;
        if (int status = float_states_.read(first_row_[i], b.n_tokens(), &rows, why)) return status;
        out->emplace_back();
        if (int status = real_->run(b, {n_layers, n_layers, rows.data()}, kind, &out->back(), why)) return status;
    }
    return SQ_OK;
}

} // namespace sq
