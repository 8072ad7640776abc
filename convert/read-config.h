// convert/read-config.h - what a checkpoint folder says about its model: config.json, the files of sentence-transformers, limits of the tokenizer, licence.
//
// Everything that would change the result and that sq does not do is refused by name here, so that no model is converted into a different one.
// Not here: the tokenizer itself, the tensors (names.h).
#ifndef SQ_CONVERT_READ_CONFIG_H
#define SQ_CONVERT_READ_CONFIG_H

#include <stdint.h>

#include <string>
#include <vector>

#include "../sq-kernels.h"
#include "../sq-tok.h"

namespace sq {

// What decides names of tensors, position offsets and the form of heads. roberta: also XLM-RoBERTa and CamemBERT.
enum class model_family { bert, distilbert, roberta };

enum class head_kind {
    none,
    classify, // logits for a text: linear layer, activation, linear layer on the first token
    answer,   // two logits for each token: start and end of the answer
    tag,      // logits for each token
};

// A linear layer of sentence-transformers behind the pooling. folder/model.safetensors or .bin holds linear.weight [out][in] and linear.bias [out].
struct dense_module {
    std::string folder;
    uint32_t in = 0, out = 0;
    bool has_bias = true;
    activation act = ACT_NONE;
};

struct model_config {
    std::string folder;       // where config.json, weights and tokenizer lie: the given folder, or its Transformer module's
    std::string model_type;   // "bert"
    std::string architecture; // "BertForSequenceClassification", empty when not stated
    model_family family = model_family::bert;
    uint32_t n_layers = 0, width = 0, n_heads = 0, ffn = 0, vocab = 0;
    uint32_t n_types = 0;         // rows of the type table; 0: no such table
    uint32_t n_positions = 0;     // longest sequence that the position table allows
    uint32_t position_offset = 0; // row of the first token; the table has position_offset + n_positions rows
    uint32_t pad_id = 0;
    uint32_t max_tokens = 0;      // smallest of n_positions, sentence_bert_config.json's and tokenizer_config.json's
    float norm_eps = 0;
    activation act = ACT_NONE;

    head_kind head = head_kind::none;
    activation head_act = ACT_NONE;  // classify: between the two linear layers
    std::vector<std::string> labels; // classify, tag: name of each logit
    std::string problem_type;        // "" or "regression", "single_label_classification", "multi_label_classification"

    uint32_t pooling = 0; // SQ_POOL_*
    bool normalize = false;
    std::vector<dense_module> dense; // in order, between pooling and normalize

    std::string license; // as README.md's front matter states it, else empty
};

// Returns SQ_OK, SQ_E_IO or SQ_E_FORMAT; *why names file and key.
int read_config(const std::string &folder, model_config *out, message *why);

} // namespace sq

#endif
