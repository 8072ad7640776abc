// tests/test-config.cpp - config.json and its companions as read-config.h reads them, and roles of tensors (names.h) on the folders of make-checkpoints.py.
// Defaults and meanings are those of transformers 4.57 and sentence-transformers 5. Run from the repository's root.
#include <stdio.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "../convert/names.h"
#include "../convert/source-file.h"
#include "../sq.h"
#include "check.h"
#include "scratch.h"

using namespace sq;

static const std::string DATA = "tests/data/checkpoints";

// Members of a JSON object by key, values as JSON text; an empty text leaves the member out.
using members = std::map<std::string, std::string>;

static const members BERT = {
    {"model_type", "\"bert\""}, {"architectures", "[\"BertModel\"]"}, {"hidden_size", "48"},  {"num_hidden_layers", "3"},         {"num_attention_heads", "6"},
    {"intermediate_size", "96"}, {"vocab_size", "100"},                {"hidden_act", "\"gelu\""}, {"max_position_embeddings", "64"},
};
static const members DISTILBERT = {
    {"model_type", "\"distilbert\""}, {"architectures", "[\"DistilBertModel\"]"}, {"dim", "48"}, {"n_layers", "3"}, {"n_heads", "6"}, {"hidden_dim", "96"},
    {"vocab_size", "100"}, {"max_position_embeddings", "64"}, {"activation", "\"gelu\""},
};

static std::string object(members base, const members &changes) {
    for (const auto &[key, item] : changes) base[key] = item;
    std::string text = "{";
    for (const auto &[key, item] : base)
        if (!item.empty()) text += (text.size() > 1 ? ", \"" : "\"") + key + "\": " + item;
    return text + "}";
}

static bool reads(const scratch &s, model_config *c) {
    message why{};
    const int status = read_config(s.path, c, &why);
    if (!CHECK_EQ(status, SQ_OK)) fprintf(stderr, "  %s\n", why.text);
    return status == SQ_OK;
}

static model_config config_of(const members &base, const members &changes) {
    scratch s;
    s.put("config.json", object(base, changes));
    model_config c;
    reads(s, &c);
    return c;
}

static void refused(const scratch &s, const std::string &part) {
    model_config c;
    message why{};
    CHECK_EQ(read_config(s.path, &c, &why), SQ_E_FORMAT);
    if (!CHECK(std::string(why.text).find(part) != std::string::npos)) fprintf(stderr, "  \"%s\" lacks \"%s\"\n", why.text, part.c_str());
}

static void refused(const members &base, const members &changes, const std::string &part) {
    scratch s;
    s.put("config.json", object(base, changes));
    refused(s, "config.json: " + part);
}

static void test_sizes() {
    const model_config b = config_of(BERT, {});
    CHECK(b.family == model_family::bert && b.model_type == "bert" && b.architecture == "BertModel");
    CHECK(b.n_layers == 3 && b.width == 48 && b.n_heads == 6 && b.ffn == 96 && b.vocab == 100);
    CHECK(b.n_types == 2 && b.n_positions == 64 && b.position_offset == 0 && b.max_tokens == 64 && b.pad_id == 0);
    CHECK(b.norm_eps == 1e-12f && b.act == ACT_GELU_ERF && b.head == head_kind::none && b.pooling == SQ_POOL_NONE && !b.normalize && b.dense.empty());
    const model_config d = config_of(DISTILBERT, {{"activation", "\"relu\""}, {"layer_norm_eps", "0.5"}, {"sinusoidal_pos_embds", "true"}});
    CHECK(d.family == model_family::distilbert && d.n_layers == 3 && d.width == 48 && d.n_heads == 6 && d.ffn == 96);
    CHECK(d.n_types == 0 && d.n_positions == 64 && d.position_offset == 0 && d.norm_eps == 1e-12f && d.act == ACT_RELU);
    for (const auto &[type, prefix] : {std::pair("xlm-roberta", "XLMRoberta"), std::pair("roberta", "Roberta"), std::pair("camembert", "Camembert")}) {
        const std::string classes = std::string("[\"") + prefix + "Model\"]";
        const members changes = {{"architectures", classes}, {"layer_norm_eps", "1e-05"}, {"type_vocab_size", "1"}, {"model_type", std::string("\"") + type + "\""}};
        const model_config x = config_of(BERT, changes);
        CHECK(x.family == model_family::roberta && x.model_type == type && x.n_types == 1 && x.norm_eps == 1e-5f);
        CHECK(x.pad_id == 1 && x.position_offset == 2 && x.n_positions == 62 && x.max_tokens == 62);
    }
    const model_config pad = config_of(BERT, {{"model_type", "\"roberta\""}, {"architectures", "null"}, {"pad_token_id", "3"}});
    CHECK(pad.position_offset == 4 && pad.n_positions == 60 && pad.architecture.empty());
    CHECK(config_of(BERT, {{"hidden_act", "\"gelu_new\""}}).act == ACT_GELU_TANH);
    CHECK(config_of(BERT, {{"hidden_act", "\"gelu_pytorch_tanh\""}}).act == ACT_GELU_TANH);
    CHECK(config_of(BERT, {{"hidden_act", ""}}).act == ACT_GELU_ERF);
    CHECK_EQ(config_of(BERT, {{"hidden_size", "65536"}, {"num_attention_heads", "65536"}}).width, 65536u);
    CHECK(config_of(BERT, {{"pad_token_id", "null"}, {"is_decoder", "false"}, {"pruned_heads", "{}"}, {"layer_norm_eps", "null"}}).pad_id == 0);
}

static void test_refused_sizes() {
    for (const char *key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "max_position_embeddings"}) {
        const std::string k = key;
        refused(BERT, {{k, ""}}, k + " is missing");
        refused(BERT, {{k, "null"}}, k + " is missing");
        refused(BERT, {{k, "0"}}, k + " 0 is not an integer from 1 to ");
        refused(BERT, {{k, "-5"}}, k + " -5 is not an integer");
        refused(BERT, {{k, "5.5"}}, k + " is not an integer");
        refused(BERT, {{k, "\"5\""}}, k + " is not an integer");
        refused(BERT, {{k, "[5]"}}, k + " is not an integer");
        refused(BERT, {{k, "4294967296"}}, k + " 4294967296 is not an integer");
        refused(BERT, {{k, "1e300"}}, k + " is not an integer");
    }
    for (const char *key : {"dim", "n_layers", "n_heads", "hidden_dim"}) refused(DISTILBERT, {{key, ""}}, key + std::string(" is missing"));
    refused(BERT, {{"num_hidden_layers", "1025"}}, "num_hidden_layers 1025 is not an integer from 1 to 1024");
    refused(BERT, {{"hidden_size", "65537"}}, "hidden_size 65537 is not an integer from 1 to 65536");
    refused(BERT, {{"num_attention_heads", "7"}}, "hidden_size 48 is no multiple of the 7 attention heads");
    refused(BERT, {{"num_attention_heads", "49"}}, "hidden_size 48 is no multiple of the 49 attention heads");
    refused(BERT, {{"vocab_size", "2147483648"}}, "vocab_size 2147483648 is not");
    refused(BERT, {{"type_vocab_size", "-1"}}, "type_vocab_size -1 is not an integer from 0");
    refused(BERT, {{"pad_token_id", "100"}}, "pad_token_id 100 is outside the vocabulary");
    refused(BERT, {{"max_position_embeddings", "3"}}, "max_position_embeddings 3 leaves no room");
    refused(BERT, {{"model_type", "\"roberta\""}, {"architectures", "null"}, {"max_position_embeddings", "5"}}, "max_position_embeddings 5 leaves no room");
    refused(BERT, {{"layer_norm_eps", "0"}}, "layer_norm_eps is not a number");
    refused(BERT, {{"layer_norm_eps", "-1e-5"}}, "layer_norm_eps is not a number");
    refused(BERT, {{"layer_norm_eps", "1e-300"}}, "layer_norm_eps is not a number");
    refused(BERT, {{"layer_norm_eps", "\"1e-5\""}}, "layer_norm_eps is not a number");
}

static void test_refused_kinds() {
    refused(BERT, {{"model_type", "\"gpt2\""}}, "model_type 'gpt2' is not supported");
    refused(BERT, {{"model_type", ""}}, "model_type '' is not supported");
    refused(BERT, {{"model_type", "7"}}, "model_type is not a text");
    refused(BERT, {{"model_type", "\"\\u001b[2J\""}}, "model_type '?[2J' is not supported");
    refused(BERT, {{"architectures", "[\"BertForMultipleChoice\"]"}}, "architectures 'BertForMultipleChoice' is not supported for model_type 'bert'");
    refused(BERT, {{"architectures", "[\"BertLMHeadModel\"]"}}, "architectures 'BertLMHeadModel'");
    refused(BERT, {{"architectures", "[\"JinaBertForMaskedLM\"]"}}, "architectures 'JinaBertForMaskedLM'");
    refused(BERT, {{"architectures", "[\"DistilBertModel\"]"}}, "architectures 'DistilBertModel'");
    refused(BERT, {{"architectures", "\"BertModel\""}}, "architectures is not a list");
    refused(BERT, {{"architectures", "[1]"}}, "architectures is not a list");
    refused(BERT, {{"hidden_act", "\"silu\""}}, "hidden_act 'silu' is not supported");
    refused(BERT, {{"hidden_act", "{}"}}, "hidden_act is not a text");
    refused(DISTILBERT, {{"activation", "\"quick_gelu\""}}, "activation 'quick_gelu' is not supported");
    refused(BERT, {{"position_embedding_type", "\"relative_key\""}}, "position_embedding_type 'relative_key'");
    refused(BERT, {{"is_decoder", "true"}}, "is_decoder is true");
    refused(BERT, {{"is_decoder", "1"}}, "is_decoder is neither true nor false");
    refused(BERT, {{"add_cross_attention", "true"}}, "add_cross_attention is true");
    refused(BERT, {{"is_encoder_decoder", "true"}}, "is_encoder_decoder is true");
    refused(BERT, {{"pruned_heads", "{\"0\": [1]}"}}, "pruned_heads is not empty");
    refused(BERT, {{"quantization_config", "{\"bits\": 4}"}}, "quantization_config is present");
    scratch s;
    model_config c;
    message why{};
    CHECK_EQ(read_config(s.path, &c, &why), SQ_E_IO);
    CHECK_EQ(why.text, "cannot open config.json: No such file or directory");
    CHECK_EQ(read_config(s.path + "/absent", &c, &why), SQ_E_IO);
    CHECK_EQ(why.text, "cannot open " + s.path + "/absent: No such file or directory");
    s.put("a-file", "");
    CHECK_EQ(read_config(s.path + "/a-file", &c, &why), SQ_E_IO);
    CHECK_EQ(why.text, s.path + "/a-file is not a folder");
    s.put("config.json", "{\"model_type\": \"bert\",\n}");
    refused(s, "config.json: line 2, column 1: a key in quotes is missing");
    s.put("config.json", "[]");
    refused(s, "config.json is not a JSON object");
    s.put("config.json", "");
    refused(s, "config.json: line 1, column 1: the text ends");
}

static void test_heads() {
    const members classify = {{"architectures", "[\"BertForSequenceClassification\"]"}};
    const auto with = [](members base, const members &more) {
        for (const auto &[key, item] : more) base[key] = item;
        return base;
    };
    const model_config two = config_of(BERT, classify);
    CHECK(two.head == head_kind::classify && two.head_act == ACT_TANH && two.problem_type.empty());
    CHECK(two.labels == std::vector<std::string>({"LABEL_0", "LABEL_1"}));
    CHECK_EQ(config_of(BERT, with(classify, {{"num_labels", "5"}})).labels.size(), size_t(5));
    std::string many;
    for (int i = 11; i >= 0; i--) many += (many.empty() ? "{\"" : ", \"") + std::to_string(i) + "\": \"l" + std::to_string(i) + "\"";
    const model_config twelve = config_of(BERT, with(classify, {{"id2label", many + "}"}, {"num_labels", "3"}, {"problem_type", "\"multi_label_classification\""}}));
    if (CHECK_EQ(twelve.labels.size(), size_t(12))) CHECK(twelve.labels[2] == "l2" && twelve.labels[10] == "l10" && twelve.labels[11] == "l11");
    CHECK_EQ(twelve.problem_type, "multi_label_classification");
    CHECK_EQ(config_of(BERT, with(classify, {{"id2label", "{\"0\": 7}"}})).labels[0], "7");
    const model_config sst = config_of(DISTILBERT, {{"architectures", "[\"DistilBertForSequenceClassification\"]"}});
    CHECK(sst.head == head_kind::classify && sst.head_act == ACT_RELU);
    const model_config answer = config_of(BERT, {{"architectures", "[\"BertForQuestionAnswering\"]"}});
    CHECK(answer.head == head_kind::answer && answer.head_act == ACT_NONE && answer.labels.empty());
    const model_config tag = config_of(BERT, {{"architectures", "[\"BertForTokenClassification\"]"}, {"id2label", "{\"1\": \"B\", \"0\": \"O\"}"}});
    CHECK(tag.head == head_kind::tag && tag.head_act == ACT_NONE && tag.labels == std::vector<std::string>({"O", "B"}));
    CHECK(config_of(BERT, {{"architectures", "[\"BertForMaskedLM\"]"}, {"id2label", "7"}}).head == head_kind::none);

    refused(BERT, with(classify, {{"id2label", "{\"0\": \"a\", \"2\": \"b\"}"}}), "id2label has the key '2'; with its 2 labels, keys are 0 to 1");
    refused(BERT, with(classify, {{"id2label", "{\"00\": \"a\", \"0\": \"b\"}"}}), "id2label has the key '00'");
    refused(BERT, with(classify, {{"id2label", "{\"\": \"a\"}"}}), "id2label has the key ''");
    refused(BERT, with(classify, {{"id2label", "{\"-1\": \"a\"}"}}), "id2label has the key '-1'");
    refused(BERT, with(classify, {{"id2label", "{\"18446744073709551616\": \"a\"}"}}), "id2label has the key '18446744073709551616'");
    refused(BERT, with(classify, {{"id2label", "{}"}}), "id2label is not a map");
    refused(BERT, with(classify, {{"id2label", "[\"a\"]"}}), "id2label is not a map");
    refused(BERT, with(classify, {{"id2label", "{\"0\": [1]}"}}), "id2label has a label that is not a text");
    refused(BERT, with(classify, {{"num_labels", "0"}}), "num_labels 0 is not");
    refused(BERT, with(classify, {{"problem_type", "\"ranking\""}}), "problem_type 'ranking' is not supported");
    refused(BERT, {{"architectures", "[\"BertForQuestionAnswering\"]"}, {"num_labels", "3"}}, "id2label has 3 labels; question answering has two logits");
}

static std::string modules(const std::vector<std::pair<std::string, std::string>> &list) {
    std::string text = "[";
    for (const auto &[type, path] : list) text += (text.size() > 1 ? ", " : "") + std::string("{\"type\": \"") + type + "\", \"path\": \"" + path + "\"}";
    return text + "]";
}

static const std::string TRANSFORMER = "sentence_transformers.models.Transformer", POOLING = "sentence_transformers.models.Pooling",
                         DENSE = "sentence_transformers.models.Dense", NORMALIZE = "sentence_transformers.models.Normalize";

static void test_pooling() {
    const auto pools = [](const std::string &settings, uint32_t expected) {
        scratch s;
        s.put("config.json", object(BERT, {}));
        s.put("modules.json", modules({{TRANSFORMER, ""}, {POOLING, "1_Pooling"}}));
        s.put("1_Pooling/config.json", settings);
        model_config c;
        if (reads(s, &c)) CHECK(c.pooling == expected && !c.normalize && c.folder == s.path);
    };
    pools("{\"word_embedding_dimension\": 48, \"pooling_mode_cls_token\": false, \"pooling_mode_mean_tokens\": true}", SQ_POOL_MEAN);
    pools("{\"word_embedding_dimension\": 48, \"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false, \"include_prompt\": true}", SQ_POOL_CLS);
    pools("{}", SQ_POOL_MEAN);
    pools("{\"embedding_dimension\": 48, \"pooling_mode\": \"cls\", \"include_prompt\": true}", SQ_POOL_CLS);
    pools("{\"pooling_mode_max_tokens\": true, \"pooling_mode_mean_tokens\": false}", SQ_POOL_MAX);
    pools("{\"pooling_mode\": [\"mean\"], \"pooling_mode_cls_token\": true}", SQ_POOL_MEAN);

    const auto refuses = [](const std::string &settings, const std::string &part) {
        scratch s;
        s.put("config.json", object(BERT, {}));
        s.put("modules.json", modules({{TRANSFORMER, ""}, {POOLING, "1_Pooling"}}));
        s.put("1_Pooling/config.json", settings);
        refused(s, part);
    };
    refuses("{\"pooling_mode_mean_sqrt_len_tokens\": true}", "1_Pooling/config.json: pooling mode 'mean_sqrt_len_tokens' is not supported");
    refuses("{\"pooling_mode_weightedmean_tokens\": true}", "pooling mode 'weightedmean'");
    refuses("{\"pooling_mode_lasttoken\": true}", "pooling mode 'lasttoken'");
    refuses("{\"pooling_mode\": \"new\"}", "pooling mode 'new'");
    refuses("{\"pooling_mode\": 7}", "pooling_mode is not a text");
    refuses("{\"pooling_mode\": [\"cls\", \"mean\"]}", "several pooling modes at once");
    refuses("{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": true}", "several pooling modes at once");
    refuses("{\"pooling_mode_cls_token\": 1}", "pooling_mode_cls_token is neither true nor false");
    refuses("{\"include_prompt\": false}", "include_prompt is false");
    refuses("{\"word_embedding_dimension\": 64}", "Pooling expects 64 dimensions, config.json has 48");
    refuses("{", "1_Pooling/config.json: line 1");
}

static void test_modules() {
    {
        scratch s; // as sentence-transformers 5.4 names them
        s.put("config.json", object(BERT, {}));
        s.put("modules.json", modules({{"sentence_transformers.base.modules.transformer.Transformer", ""},
                                       {"sentence_transformers.sentence_transformer.modules.pooling.Pooling", "1_Pooling"},
                                       {"sentence_transformers.base.modules.dense.Dense", "2_Dense"},
                                       {"sentence_transformers.sentence_transformer.modules.normalize.Normalize", "3_Normalize"}}));
        s.put("1_Pooling/config.json", "{\"pooling_mode\": \"mean\"}");
        s.put("2_Dense/config.json", "{\"in_features\": 48, \"out_features\": 8, \"bias\": false, \"activation_function\": \"torch.nn.modules.activation.Tanh\"}");
        model_config c;
        if (reads(s, &c) && CHECK_EQ(c.dense.size(), size_t(1))) {
            CHECK(c.pooling == SQ_POOL_MEAN && c.normalize);
            CHECK(c.dense[0].folder == s.path + "/2_Dense" && c.dense[0].in == 48 && c.dense[0].out == 8 && !c.dense[0].has_bias && c.dense[0].act == ACT_TANH);
        }
        s.put("2_Dense/config.json", "{\"in_features\": 47, \"out_features\": 8}");
        refused(s, "a Dense module has in_features 47 behind a width of 48");
        s.put("2_Dense/config.json", "{\"in_features\": 48}");
        refused(s, "2_Dense/config.json: out_features is missing");
        s.put("2_Dense/config.json", "{\"in_features\": 48, \"out_features\": 8, \"activation_function\": \"os.system\"}");
        refused(s, "activation_function 'os.system' is not supported");
        s.put("2_Dense/config.json", "{\"in_features\": 48, \"out_features\": 8, \"module_input_name\": \"token_embeddings\"}");
        refused(s, "module_input_name 'token_embeddings' is not supported");
    }
    {
        scratch s; // as sentence-transformers 0.x laid folders out: the root's config.json is not the model's
        s.put("config.json", "{\"__version__\": \"0.3.8\"}");
        s.put("README.md", "---\nlicense: mit\n---\n");
        s.put("modules.json", modules({{TRANSFORMER, "0_Transformer"}, {POOLING, "1_Pooling"}}));
        s.put("0_Transformer/config.json", object(BERT, {}));
        s.put("0_Transformer/sentence_bert_config.json", "{\"max_seq_length\": 32}");
        s.put("1_Pooling/config.json", "{\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}");
        model_config c;
        if (reads(s, &c)) CHECK(c.folder == s.path + "/0_Transformer" && c.width == 48 && c.max_tokens == 32 && c.pooling == SQ_POOL_CLS && c.license == "mit");
    }
    const auto refuses = [](const std::string &list, const std::string &part) {
        scratch s;
        s.put("config.json", object(BERT, {}));
        s.put("1_Pooling/config.json", "{}");
        s.put("modules.json", list);
        refused(s, part);
    };
    refuses("{}", "modules.json is not a list of modules");
    refuses("[]", "modules.json is not a list of modules");
    refuses("[7]", "modules.json: a module without type and path");
    refuses("[{\"type\": 1, \"path\": \"\"}]", "modules.json: a module without type and path");
    refuses(modules({{POOLING, "1_Pooling"}}), "the first module, and no other, must be a Transformer, not 'sentence_transformers.models.Pooling'");
    refuses(modules({{TRANSFORMER, ""}, {TRANSFORMER, ""}}), "the first module, and no other");
    refuses(modules({{"custom.Transformer", ""}}), "not 'custom.Transformer'");
    refuses(modules({{TRANSFORMER, ""}, {"sentence_transformers.models.WordWeights", "1"}}), "module 'sentence_transformers.models.WordWeights' is not supported");
    refuses(modules({{TRANSFORMER, ""}, {"Pooling", "1_Pooling"}}), "module 'Pooling' is not supported");
    refuses(modules({{TRANSFORMER, ""}, {POOLING, ""}}), "has no folder of its own");
    refuses(modules({{TRANSFORMER, ""}, {POOLING, "1_Pooling"}, {POOLING, "1_Pooling"}}), "a second Pooling module");
    refuses(modules({{TRANSFORMER, ""}, {NORMALIZE, ""}}), "'sentence_transformers.models.Normalize' before Pooling");
    refuses(modules({{TRANSFORMER, ""}, {DENSE, "1_Pooling"}}), "before Pooling");
    refuses(modules({{TRANSFORMER, ""}, {POOLING, "1_Pooling"}, {NORMALIZE, ""}, {DENSE, "1_Pooling"}}), "behind Normalize");
    for (const char *path : {"..", "../x", "/etc", "a/b", "."})
        refuses(modules({{TRANSFORMER, ""}, {POOLING, path}}), std::string("path '") + path + "' is not a folder beside modules.json");
    refuses(modules({{TRANSFORMER, ".."}}), "path '..'");
}

static void test_limits() {
    const auto limit = [](const std::string &file, const std::string &text) {
        scratch s;
        s.put("config.json", object(BERT, {}));
        s.put(file, text);
        model_config c;
        return reads(s, &c) ? c.max_tokens : 0;
    };
    CHECK_EQ(limit("sentence_bert_config.json", "{\"max_seq_length\": 32, \"do_lower_case\": false}"), 32u);
    CHECK_EQ(limit("sentence_bert_config.json", "{\"max_seq_length\": null}"), 64u);
    CHECK_EQ(limit("sentence_bert_config.json", "{\"max_seq_length\": 514}"), 64u);
    CHECK_EQ(limit("sentence_xlm-roberta_config.json", "{\"max_seq_length\": 16}"), 16u);
    CHECK_EQ(limit("tokenizer_config.json", "{\"model_max_length\": 48}"), 48u);
    CHECK_EQ(limit("tokenizer_config.json", "{\"model_max_length\": 1000000000000000019884624838656}"), 64u);
    CHECK_EQ(limit("tokenizer_config.json", "{\"model_max_length\": 1e30}"), 64u);
    CHECK_EQ(limit("tokenizer_config.json", "{\"max_len\": 20}"), 20u);
    CHECK_EQ(limit("tokenizer_config.json", "{}"), 64u);
    scratch s;
    s.put("config.json", object(BERT, {}));
    s.put("tokenizer_config.json", "{\"model_max_length\": 0}");
    refused(s, "tokenizer_config.json: model_max_length is not a number of at least 4");
    s.put("tokenizer_config.json", "{\"model_max_length\": \"512\"}");
    refused(s, "tokenizer_config.json: model_max_length is not a number");
    s.put("sentence_bert_config.json", "{\"max_seq_length\": -1}");
    refused(s, "sentence_bert_config.json: max_seq_length is not a number");
}

static void test_license() {
    const auto license = [](const std::string &card) {
        scratch s;
        s.put("config.json", object(BERT, {}));
        s.put("README.md", card);
        model_config c;
        reads(s, &c);
        return c.license;
    };
    CHECK_EQ(license("---\nlanguage: en\nlicense: apache-2.0\ntags:\n- x\n---\ntext"), "apache-2.0");
    CHECK_EQ(license("---\r\nlicense: \"mit\" \r\n---\r\n"), "mit");
    CHECK_EQ(license("---\nlicense: 'cc-by-4.0'\n---\n"), "cc-by-4.0");
    CHECK_EQ(license("---\nlanguage: en\n---\nlicense: mit\n"), "");
    CHECK_EQ(license("license: mit\n"), "");
    CHECK_EQ(license("---\nlicense:\n- mit\n---\n"), "");
    CHECK_EQ(license("---\nlicense: [mit, gpl]\n---\n"), "");
    CHECK_EQ(license("---\nlicense_name: own\n---\n"), "");
    CHECK_EQ(license("---\nlicense: \xE2\x98\xBA\n---\n"), "");
    CHECK_EQ(license(""), "");
    CHECK_EQ(license("---"), "");
}

// Every role has the tensor that make-checkpoints.py put there.
static void test_names(const json::value &c) {
    const json::value *roles = c.find("roles"), *refusal = c.find("refused");
    if (!roles && !refusal) return;
    const std::string folder = DATA + "/" + c.find("folder")->text;
    model_config config;
    checkpoint weights;
    tensor_names names;
    message why{};
    const bool opened = read_config(folder, &config, &why) == SQ_OK && weights.open(folder, &why) == SQ_OK;
    if (!CHECK(opened)) fprintf(stderr, "  %s: %s\n", folder.c_str(), why.text);
    if (!opened) return;
    const int status = names.open(weights, config, &why);
    if (refusal) {
        CHECK_EQ(status, SQ_E_FORMAT);
        if (!CHECK(std::string(why.text).find(refusal->text) != std::string::npos))
            fprintf(stderr, "  %s: \"%s\" lacks \"%s\"\n", folder.c_str(), why.text, refusal->text.c_str());
        return;
    }
    if (!CHECK_EQ(status, SQ_OK)) fprintf(stderr, "  %s: %s\n", folder.c_str(), why.text);
    for (const json::member &m : roles->members) {
        const source_tensor *t = names.find(m.key);
        if (CHECK(t)) CHECK_EQ(t->name, m.item.text);
    }
    std::vector<std::string> ignored = names.ignored(), expected;
    for (const json::value &name : c.find("ignored")->items) expected.push_back(name.text);
    std::sort(ignored.begin(), ignored.end());
    CHECK(ignored == expected);
    CHECK_EQ(weights.tensors().size(), roles->members.size() + ignored.size());
}

int main() {
    test_sizes();
    test_refused_sizes();
    test_refused_kinds();
    test_heads();
    test_pooling();
    test_modules();
    test_limits();
    test_license();
    json::value cases;
    message why{};
    if (CHECK_EQ(read_json(DATA, "cases.json", 1 << 20, &cases, &why), SQ_OK))
        for (const json::value &c : cases.items) test_names(c);
    return check_summary("test-config");
}
