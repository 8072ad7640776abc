// tests/fuzz/fuzz-config.cpp - any bytes as one of the small files of a checkpoint folder, beside good ones: what describes the model, and the indexes of
// shards. The first byte chooses which file.
#include <unistd.h>

#include <iterator>

#include "weights-file.h"

namespace {

const char *const NAMES[] = {
    "config.json",         "modules.json",          "1_Pooling/config.json",     "2_Dense/config.json",         "README.md",
    "tokenizer_config.json", "sentence_bert_config.json", "config_sentence_transformers.json", "model.safetensors.index.json", "pytorch_model.bin.index.json",
};

const char MODULES[] = R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
 {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
 {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])";
const char POOLING[] = R"({"word_embedding_dimension": 4, "pooling_mode_mean_tokens": true})";
const char DENSE[] = R"({"in_features": 4, "out_features": 3, "bias": true, "activation_function": "torch.nn.modules.activation.Tanh"})";

// A safetensors file with one tensor of that name, of two numbers.
std::string shard(const std::string &tensor) {
    const std::string header = "{\"" + tensor + "\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    return file + header + std::string(8, '\0');
}

void put_good_files(const scratch &folder) {
    folder.put("config.json", SMALL_CONFIG);
    folder.put("modules.json", MODULES);
    folder.put("1_Pooling/config.json", POOLING);
    folder.put("2_Dense/config.json", DENSE);
    folder.put("a.safetensors", shard("a"));
    folder.put("b.safetensors", shard("b"));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const scratch folder; // one for the life of the process
    input_bytes in(data, n_bytes);
    const std::string name = NAMES[in.byte() % std::size(NAMES)];
    put_good_files(folder);
    folder.put(name, in.rest());

    sq::message why{};
    sq::model_config config;
    const int status = sq::read_config(folder.path, &config, &why);
    require_reason(status, why);
    if (status == SQ_OK) {
        REQUIRE(config.n_heads > 0 && config.width % config.n_heads == 0);
        REQUIRE(config.max_tokens > 0 && config.max_tokens <= config.n_positions);
        read_weights(folder.path, config, n_bytes + 2 * shard("a").size());
    }
    unlink((folder.path + "/" + name).c_str());
    return 0;
}
