// tests/fuzz/fuzz-checkpoint.cpp - any bytes as a file of a checkpoint folder. The first byte chooses which file; then everything is read that can be.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <iterator>
#include <string>
#include <vector>

#include "../../convert/names.h"
#include "../../convert/read-checkpoint.h"
#include "../../convert/read-config.h"
#include "../../sq.h"
#include "../scratch.h"

using namespace sq;

static const char *const NAMES[] = {
    "model.safetensors",     "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json", "config.json", "modules.json",
    "1_Pooling/config.json", "README.md",         "tokenizer_config.json",        "sentence_bert_config.json",
};

// Sizes of the models in tests/data/checkpoints.
static const char CONFIG[] = R"({"model_type": "bert", "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6,
 "vocab_size": 11, "max_position_embeddings": 8, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}})";
static const char MODULES[] = R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
 {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])";

// What can be refused must say why.
static void check(int status, const message &why) {
    if (status != SQ_OK && why.text[0] == '\0') abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const scratch folder; // one for the life of the process
    if (n_bytes == 0) return 0;
    const std::string name = NAMES[data[0] % std::size(NAMES)];
    folder.put("config.json", CONFIG);
    if (name == "1_Pooling/config.json") folder.put("modules.json", MODULES);
    folder.put(name, std::string(reinterpret_cast<const char *>(data) + 1, n_bytes - 1));

    message why{};
    model_config config;
    const int config_status = read_config(folder.path, &config, &why);
    check(config_status, why);
    why = message{};
    checkpoint weights;
    const int status = weights.open(folder.path, &why);
    check(status, why);
    for (const source_tensor &t : weights.tensors()) {
        if (status != SQ_OK) break;
        if (t.n_elements * element_bytes(t.type) > n_bytes) abort();
        std::vector<float> values(t.n_elements);
        if (read_f32(t, values.data(), &why) != SQ_OK && strstr(why.text, "tensor '") == nullptr) abort();
    }
    why = message{};
    tensor_names names;
    if (status == SQ_OK && config_status == SQ_OK) check(names.open(weights, config, &why), why);
    for (const char *made : {name.c_str(), "modules.json"}) unlink((folder.path + "/" + made).c_str());
    return 0;
}
