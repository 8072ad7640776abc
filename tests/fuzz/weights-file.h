// tests/fuzz/weights-file.h - for fuzz targets: a folder whose weight file is the input, read to the last number.
#ifndef SQ_TESTS_FUZZ_WEIGHTS_FILE_H
#define SQ_TESTS_FUZZ_WEIGHTS_FILE_H

#include <string.h>

#include <vector>

#include "../../convert/names.h"
#include "../../convert/read-checkpoint.h"
#include "../../convert/read-config.h"
#include "../scratch.h"
#include "require.h"

// Sizes of the models in tests/data/checkpoints.
constexpr char SMALL_CONFIG[] = R"({"model_type": "bert", "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6,
 "vocab_size": 11, "max_position_embeddings": 8, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}})";

// Opens the folder's weights, whose files have n_bytes together, reads every tensor and looks for a model among them.
inline void read_weights(const std::string &folder, const sq::model_config &config, size_t n_bytes) {
    sq::message why{};
    sq::checkpoint weights;
    const int status = weights.open(folder, &why);
    require_reason(status, why);
    if (status != SQ_OK) return;
    std::vector<float> values;
    for (const sq::source_tensor &t : weights.tensors()) {
        REQUIRE(t.n_elements * sq::element_bytes(t.type) <= n_bytes);
        values.resize(t.n_elements);
        why = sq::message{};
        if (sq::read_f32(t, values.data(), &why) != SQ_OK) REQUIRE(strstr(why.text, "tensor '") != nullptr);
    }
    why = sq::message{};
    sq::tensor_names names;
    require_reason(names.open(weights, config, &why), why);
}

// The whole input as the weight file of that name.
inline void read_weight_file(const char *name, const uint8_t *data, size_t n_bytes) {
    static const scratch folder; // one for the life of the process
    static const sq::model_config config = [] {
        folder.put("config.json", SMALL_CONFIG);
        sq::model_config c;
        REQUIRE(sq::read_config(folder.path, &c, nullptr) == SQ_OK);
        return c;
    }();
    folder.put(name, std::string(reinterpret_cast<const char *>(data), n_bytes));
    read_weights(folder.path, config, n_bytes);
}

#endif
