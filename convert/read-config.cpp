// convert/read-config.cpp - see read-config.h. First modules.json, which tells where the transformer is, then its config.json, then limits and licence.
//
// Sources: transformers v4.57, src/transformers/models/{bert,distilbert,roberta,xlm_roberta,camembert}/configuration_*.py and configuration_utils.py;
// sentence-transformers v5, models/{Transformer,Pooling,Dense,Normalize}.py and their successors under modules/.
#include "read-config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include <iterator>
#include <new>

#include "../sq.h"
#include "source-file.h"

namespace sq {

static constexpr size_t MAX_JSON_BYTES = 16 << 20; // tokenizer_config.json may list some thousand added tokens; the others have a few KB
static constexpr uint32_t MAX_LAYERS = 1024;
static constexpr uint32_t MAX_WIDTH = 1 << 16;     // of D and F: keeps 255 * 127 * K below 2^31
static constexpr uint32_t MAX_ROWS = INT32_MAX;
static constexpr uint32_t MIN_TOKENS = 4;          // special tokens of a pair in XLM-RoBERTa
static constexpr size_t MAX_LABELS = MAX_WIDTH;

namespace {

// Typed access to the members of one JSON file. The first failure sticks in `status` and *why; what is read after it is of no use. A null counts as absent.
struct reader {
    std::string file;
    message *why;
    json::value root;
    int status = SQ_OK;

    reader(const std::string &folder, const std::string &name, message *m) : file(name), why(m) {
        status = read_json(folder, name, MAX_JSON_BYTES, &root, why);
        if (status == SQ_OK && !root.is_object()) status = fail(why, SQ_E_FORMAT, "%s is not a JSON object", file.c_str());
    }

    const json::value *find(const char *key) const {
        const json::value *v = root.find(key);
        return v && !v->is_null() ? v : nullptr;
    }
    void refuse(const char *key, const std::string &what) {
        if (status == SQ_OK) status = fail(why, SQ_E_FORMAT, "%s: %s %s", file.c_str(), key, what.c_str());
    }
    uint32_t count(const char *key, uint32_t lo, uint32_t hi) {
        const json::value *v = find(key);
        if (!v) return refuse(key, "is missing"), lo;
        const std::string range = " is not an integer from " + std::to_string(lo) + " to " + std::to_string(hi);
        if (!v->is_integer) return refuse(key, range.substr(1)), lo;
        if (v->integer < lo || v->integer > hi) return refuse(key, std::to_string(v->integer) + range), lo;
        return static_cast<uint32_t>(v->integer);
    }
    uint32_t count_or(const char *key, uint32_t lo, uint32_t hi, uint32_t fallback) { return find(key) ? count(key, lo, hi) : fallback; }
    bool flag_or(const char *key, bool fallback) {
        const json::value *v = find(key);
        if (v && !v->is_bool()) refuse(key, "is neither true nor false");
        return v ? v->boolean : fallback;
    }
    std::string text_or(const char *key, const char *fallback) {
        const json::value *v = find(key);
        if (v && !v->is_string()) refuse(key, "is not a text");
        return v ? v->text : fallback;
    }
    // Refuses the file if the flag is set.
    void forbid(const char *key) {
        if (flag_or(key, false)) refuse(key, "is true: only encoders are supported");
    }
};

} // namespace

static std::string quoted(const std::string &text) { return "'" + printable(text) + "'"; }

static bool starts_with(const std::string &text, const char *start) { return text.compare(0, strlen(start), start) == 0; }

// ---- config.json ----

static const struct {
    const char *name, *class_prefix;
    model_family family;
} MODEL_TYPES[] = {
    {"bert", "Bert", model_family::bert},
    {"distilbert", "DistilBert", model_family::distilbert},
    {"xlm-roberta", "XLMRoberta", model_family::roberta},
    {"roberta", "Roberta", model_family::roberta},
    {"camembert", "Camembert", model_family::roberta},
};

// Heads that predict words serve training; their encoder is used without them.
static const struct {
    const char *suffix;
    head_kind head;
} ARCHITECTURES[] = {
    {"Model", head_kind::none},
    {"ForMaskedLM", head_kind::none},
    {"ForPreTraining", head_kind::none},
    {"ForSequenceClassification", head_kind::classify},
    {"ForQuestionAnswering", head_kind::answer},
    {"ForTokenClassification", head_kind::tag},
};

// transformers, activations.py: what are one function written in several ways are one here.
static const struct {
    const char *name;
    activation act;
} ACTIVATIONS[] = {
    {"gelu", ACT_GELU_ERF},           {"gelu_python", ACT_GELU_ERF}, {"gelu_new", ACT_GELU_TANH},
    {"gelu_pytorch_tanh", ACT_GELU_TANH}, {"gelu_fast", ACT_GELU_TANH},  {"gelu_accurate", ACT_GELU_TANH},
    {"relu", ACT_RELU},
};

static void read_type(reader *r, model_config *c) {
    c->model_type = r->text_or("model_type", "");
    for (const auto &type : MODEL_TYPES) {
        if (c->model_type != type.name) continue;
        c->family = type.family;
        return;
    }
    r->refuse("model_type", quoted(c->model_type) + " is not supported; bert, distilbert, xlm-roberta, roberta and camembert are");
}

static void read_architecture(reader *r, model_config *c) {
    const json::value *list = r->find("architectures");
    if (!list) return;
    if (!list->is_array() || (!list->items.empty() && !list->items[0].is_string())) return r->refuse("architectures", "is not a list of texts");
    if (list->items.empty()) return;
    c->architecture = list->items[0].text;
    for (const auto &type : MODEL_TYPES) {
        if (type.family != c->family || !starts_with(c->architecture, type.class_prefix)) continue;
        for (const auto &a : ARCHITECTURES) {
            if (c->architecture != type.class_prefix + std::string(a.suffix)) continue;
            c->head = a.head;
            return;
        }
    }
    r->refuse("architectures", quoted(c->architecture) + " is not supported for model_type " + quoted(c->model_type));
}

static void read_sizes(reader *r, model_config *c) {
    const bool distil = c->family == model_family::distilbert;
    c->n_layers = r->count(distil ? "n_layers" : "num_hidden_layers", 1, MAX_LAYERS);
    c->width = r->count(distil ? "dim" : "hidden_size", 1, MAX_WIDTH);
    c->n_heads = r->count(distil ? "n_heads" : "num_attention_heads", 1, MAX_WIDTH);
    c->ffn = r->count(distil ? "hidden_dim" : "intermediate_size", 1, MAX_WIDTH);
    c->vocab = r->count("vocab_size", 1, MAX_ROWS);
    c->n_types = distil ? 0 : r->count_or("type_vocab_size", 0, MAX_WIDTH, 2);
    if (r->status == SQ_OK && c->width % c->n_heads != 0)
        r->refuse(distil ? "dim" : "hidden_size", std::to_string(c->width) + " is no multiple of the " + std::to_string(c->n_heads) + " attention heads");
    const bool roberta = c->family == model_family::roberta;
    c->pad_id = r->count_or("pad_token_id", 0, MAX_ROWS - 1, roberta ? 1 : 0);
    if (r->status == SQ_OK && c->pad_id >= c->vocab) r->refuse("pad_token_id", std::to_string(c->pad_id) + " is outside the vocabulary");
    c->position_offset = roberta ? c->pad_id + 1 : 0;
    const uint32_t rows = r->count("max_position_embeddings", 1, MAX_ROWS);
    if (r->status == SQ_OK && (rows < c->position_offset || rows - c->position_offset < MIN_TOKENS))
        r->refuse("max_position_embeddings", std::to_string(rows) + " leaves no room for tokens");
    c->n_positions = rows - c->position_offset;
}

// What changes the arithmetic of the encoder.
static void read_arithmetic(reader *r, model_config *c) {
    const bool distil = c->family == model_family::distilbert;
    const char *act_key = distil ? "activation" : "hidden_act";
    const std::string act = r->text_or(act_key, "gelu");
    for (const auto &a : ACTIVATIONS)
        if (act == a.name) c->act = a.act;
    if (c->act == ACT_NONE) r->refuse(act_key, quoted(act) + " is not supported; gelu, gelu_new, gelu_pytorch_tanh and relu are");
    c->norm_eps = 1e-12f; // DistilBERT has it in its code
    const json::value *eps = distil ? nullptr : r->find("layer_norm_eps");
    if (eps) c->norm_eps = static_cast<float>(eps->number);
    if (eps && !(eps->number >= 1e-30 && eps->number <= 1)) r->refuse("layer_norm_eps", "is not a number from 1e-30 to 1");
    const std::string positions = r->text_or("position_embedding_type", "absolute");
    if (positions != "absolute") r->refuse("position_embedding_type", quoted(positions) + " is not supported; absolute is");
    const json::value *pruned = r->find("pruned_heads");
    const bool is_pruned = pruned && !(pruned->is_object() && pruned->members.empty());
    if (is_pruned) r->refuse("pruned_heads", "is not empty: layers with different numbers of heads are not supported");
    if (r->find("quantization_config")) r->refuse("quantization_config", "is present: convert the checkpoint that was quantised, not the result");
    r->forbid("is_decoder");
    r->forbid("is_encoder_decoder");
    r->forbid("add_cross_attention");
}

// {"0": "NEGATIVE", "1": "POSITIVE"}: keys in any order. As in transformers, this map goes before num_labels, and without both there are two.
static void read_labels(reader *r, model_config *c) {
    const json::value *map = r->find("id2label");
    if (!map) {
        c->labels.resize(r->count_or("num_labels", 1, MAX_LABELS, 2));
        for (size_t i = 0; i < c->labels.size(); i++) c->labels[i] = "LABEL_" + std::to_string(i);
        return;
    }
    const size_t n = map->members.size();
    if (!map->is_object() || n < 1 || n > MAX_LABELS) return r->refuse("id2label", "is not a map of 1 to " + std::to_string(MAX_LABELS) + " labels");
    c->labels.resize(n);
    for (const json::member &m : map->members) { // n different keys below n are 0 .. n-1
        size_t id = 0;
        for (const char digit : m.key) id = digit >= '0' && digit <= '9' && id <= MAX_LABELS ? id * 10 + static_cast<size_t>(digit - '0') : SIZE_MAX;
        if (m.key != std::to_string(id) || id >= n) {
            const std::string range = std::to_string(n) + " labels, keys are 0 to " + std::to_string(n - 1);
            return r->refuse("id2label", "has the key " + quoted(m.key) + "; with its " + range);
        }
        if (m.item.is_integer) {
            c->labels[id] = std::to_string(m.item.integer);
        } else if (m.item.is_string()) {
            c->labels[id] = m.item.text;
        } else {
            return r->refuse("id2label", "has a label that is not a text");
        }
    }
}

static void read_head(reader *r, model_config *c) {
    if (c->head == head_kind::none) return;
    read_labels(r, c);
    if (c->head == head_kind::answer) {
        const size_t n = c->labels.size();
        if (n != 2) r->refuse("id2label", "has " + std::to_string(n) + " labels; question answering has two logits");
        c->labels.clear();
    }
    if (c->head != head_kind::classify) return;
    c->head_act = c->family == model_family::distilbert ? ACT_RELU : ACT_TANH;
    c->problem_type = r->text_or("problem_type", "");
    for (const char *known : {"", "regression", "single_label_classification", "multi_label_classification"})
        if (c->problem_type == known) return;
    r->refuse("problem_type", quoted(c->problem_type) + " is not supported");
}

static int read_config_json(model_config *c, message *why) {
    reader r(c->folder, "config.json", why);
    if (r.status == SQ_OK) read_type(&r, c);
    if (r.status == SQ_OK) read_architecture(&r, c);
    if (r.status == SQ_OK) read_sizes(&r, c);
    if (r.status == SQ_OK) read_arithmetic(&r, c);
    if (r.status == SQ_OK) read_head(&r, c);
    return r.status;
}

// ---- sentence-transformers ----

// Both spellings of Pooling's settings: one flag for each mode, and (since v5.4) their names without the prefix in pooling_mode.
static const struct {
    const char *flag, *mode;
    uint32_t pooling; // 0: not supported
} POOLING_MODES[] = {
    {"pooling_mode_cls_token", "cls", SQ_POOL_CLS},
    {"pooling_mode_mean_tokens", "mean", SQ_POOL_MEAN},
    {"pooling_mode_max_tokens", "max", SQ_POOL_MAX},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", 0},
    {"pooling_mode_weightedmean_tokens", "weightedmean", 0},
    {"pooling_mode_lasttoken", "lasttoken", 0},
};

static void add_mode(reader *r, const std::string &mode, model_config *c) {
    uint32_t pooling = 0;
    for (const auto &m : POOLING_MODES)
        if (mode == m.mode) pooling = m.pooling;
    if (pooling == 0) return r->refuse("pooling mode", quoted(mode) + " is not supported; mean, cls and max are");
    if (c->pooling != SQ_POOL_NONE) return r->refuse("several pooling modes", "at once are not supported");
    c->pooling = pooling;
}

static int read_pooling(const std::string &folder, const std::string &module, uint32_t *dimension, model_config *c, message *why) {
    reader r(folder, module + "/config.json", why);
    if (c->pooling != SQ_POOL_NONE) r.refuse("a second Pooling module", "is not supported");
    const json::value *mode = r.find("pooling_mode");
    if (mode && mode->is_string()) {
        add_mode(&r, mode->text, c);
    } else if (mode && mode->is_array()) {
        for (const json::value &item : mode->items) add_mode(&r, item.text, c);
    } else if (mode) {
        r.refuse("pooling_mode", "is not a text");
    } else {
        for (const auto &m : POOLING_MODES)
            if (r.flag_or(m.flag, false)) add_mode(&r, m.mode, c);
    }
    if (c->pooling == SQ_POOL_NONE) c->pooling = SQ_POOL_MEAN; // the library's default
    if (!r.flag_or("include_prompt", true)) r.refuse("include_prompt", "is false: pooling that leaves out a prompt is not supported");
    const char *key = r.find("word_embedding_dimension") ? "word_embedding_dimension" : "embedding_dimension";
    *dimension = r.count_or(key, 1, MAX_WIDTH, 0);
    return r.status;
}

static int read_dense(const std::string &folder, const std::string &module, model_config *c, message *why) {
    static const struct {
        const char *name;
        activation act;
    } FUNCTIONS[] = {{"torch.nn.modules.linear.Identity", ACT_NONE}, {"torch.nn.modules.activation.Tanh", ACT_TANH},
                     {"torch.nn.modules.activation.ReLU", ACT_RELU}, {"torch.nn.modules.activation.GELU", ACT_GELU_ERF}};
    reader r(folder, module + "/config.json", why);
    dense_module d;
    d.folder = folder + "/" + module;
    d.in = r.count("in_features", 1, MAX_WIDTH);
    d.out = r.count("out_features", 1, MAX_WIDTH);
    d.has_bias = r.flag_or("bias", true);
    const std::string function = r.text_or("activation_function", "torch.nn.modules.activation.Tanh");
    bool known = false;
    for (const auto &f : FUNCTIONS)
        if (function == f.name) known = true, d.act = f.act;
    if (!known) r.refuse("activation_function", quoted(function) + " is not supported");
    for (const char *key : {"module_input_name", "module_output_name"})
        if (r.text_or(key, "sentence_embedding") != "sentence_embedding") r.refuse(key, quoted(r.text_or(key, "")) + " is not supported");
    c->dense.push_back(d);
    return r.status;
}

// One entry of modules.json. *dimension is the width behind Pooling if stated.
static int read_module(const std::string &folder, const json::value &entry, bool is_first, uint32_t *dimension, model_config *c, message *why) {
    const json::value *type = entry.find("type"), *path = entry.find("path");
    if (!type || !type->is_string() || !path || !path->is_string()) return fail(why, SQ_E_FORMAT, "modules.json: a module without type and path");
    const std::string &name = type->text, &sub = path->text;
    const std::string last = starts_with(name, "sentence_transformers.") ? name.substr(name.rfind('.') + 1) : "";
    if (!sub.empty() && !is_plain_name(sub)) return fail(why, SQ_E_FORMAT, "modules.json: path '%s' is not a folder beside modules.json", printable(sub).c_str());
    if ((last == "Transformer") != is_first)
        return fail(why, SQ_E_FORMAT, "modules.json: the first module, and no other, must be a Transformer, not '%s'", printable(name).c_str());
    if (last == "Transformer") {
        if (!sub.empty()) c->folder = folder + "/" + sub;
        return SQ_OK;
    }
    if (c->normalize) return fail(why, SQ_E_FORMAT, "modules.json: '%s' behind Normalize is not supported", printable(name).c_str());
    const bool has_settings = last == "Pooling" || last == "Dense";
    if (has_settings && sub.empty()) return fail(why, SQ_E_FORMAT, "modules.json: '%s' has no folder of its own", printable(name).c_str());
    if (last == "Pooling") return read_pooling(folder, sub, dimension, c, why);
    if (last != "Dense" && last != "Normalize") return fail(why, SQ_E_FORMAT, "modules.json: module '%s' is not supported", printable(name).c_str());
    if (c->pooling == SQ_POOL_NONE) return fail(why, SQ_E_FORMAT, "modules.json: '%s' before Pooling is not supported", printable(name).c_str());
    if (last == "Dense") return read_dense(folder, sub, c, why);
    c->normalize = true;
    return SQ_OK;
}

static int read_modules(const std::string &folder, uint32_t *dimension, model_config *c, message *why) {
    json::value root;
    int status = read_json(folder, "modules.json", MAX_JSON_BYTES, &root, why);
    if (status != SQ_OK) return status;
    if (!root.is_array() || root.items.empty()) return fail(why, SQ_E_FORMAT, "modules.json is not a list of modules");
    for (const json::value &entry : root.items) {
        status = read_module(folder, entry, &entry == &root.items[0], dimension, c, why);
        if (status != SQ_OK) return status;
    }
    return SQ_OK;
}

// Widths must fit from module to module.
static int check_modules(uint32_t dimension, const model_config &c, message *why) {
    if (dimension != 0 && dimension != c.width) return fail(why, SQ_E_FORMAT, "Pooling expects %u dimensions, config.json has %u", dimension, c.width);
    uint32_t width = c.width;
    for (const dense_module &d : c.dense) {
        if (d.in != width) return fail(why, SQ_E_FORMAT, "a Dense module has in_features %u behind a width of %u", d.in, width);
        width = d.out;
    }
    return SQ_OK;
}

// ---- limits and licence ----

// Lowers max_tokens to the member's value. Values above 2^31 mean no limit: transformers writes int(1e30).
static void apply_limit(reader *r, const char *key, model_config *c) {
    const json::value *v = r->find(key);
    if (!v) return;
    if (!v->is_number() || v->number < MIN_TOKENS) return r->refuse(key, "is not a number of at least " + std::to_string(MIN_TOKENS));
    if (v->number < c->max_tokens) c->max_tokens = static_cast<uint32_t>(v->number);
}

// Names by which sentence-transformers' Transformer.load looks for its settings.
static const char *const TRANSFORMER_SETTINGS[] = {"sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json",
                                                   "sentence_camembert_config.json", "sentence_xlm-roberta_config.json"};

static int read_limits(model_config *c, message *why) {
    c->max_tokens = c->n_positions;
    for (const char *name : TRANSFORMER_SETTINGS) {
        if (!has_file(c->folder, name)) continue;
        reader r(c->folder, name, why);
        apply_limit(&r, "max_seq_length", c);
        if (r.status != SQ_OK) return r.status;
        break;
    }
    if (!has_file(c->folder, "tokenizer_config.json")) return SQ_OK;
    reader r(c->folder, "tokenizer_config.json", why);
    apply_limit(&r, r.find("model_max_length") ? "model_max_length" : "max_len", c);
    return r.status;
}

// `license: apache-2.0` between the two lines `---` at the start of a model card; other forms (lists, none) give an empty text.
static std::string read_license(const std::string &folder) {
    constexpr size_t MAX_CARD = 1 << 16, MAX_LICENSE = 100;
    source_file file;
    message ignored;
    if (file.open(folder, "README.md", &ignored) != SQ_OK || file.size() == 0) return "";
    const std::string card(reinterpret_cast<const char *>(file.data()), file.size() < MAX_CARD ? file.size() : MAX_CARD);
    size_t at = 0;
    for (size_t line_no = 0; at < card.size(); line_no++) {
        size_t eol = card.find('\n', at);
        if (eol == std::string::npos) eol = card.size();
        std::string line = card.substr(at, eol - at);
        at = eol + 1;
        while (!line.empty() && strchr(" \r\t", line.back())) line.pop_back();
        if ((line_no == 0) != (line == "---")) return ""; // no front matter, or its end
        if (!starts_with(line, "license:")) continue;
        std::string value = line.substr(strlen("license:"));
        value.erase(0, value.find_first_not_of(" \t"));
        if (value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0]) value = value.substr(1, value.size() - 2);
        const bool is_plain = value.size() <= MAX_LICENSE && value == printable(value) && value.find_first_of("[]{}#|>") == std::string::npos;
        return is_plain ? value : "";
    }
    return "";
}

int read_config(const std::string &folder, model_config *out, message *why) try {
    *out = model_config();
    out->folder = folder;
    struct stat st;
    if (stat(folder.c_str(), &st) != 0) return fail(why, SQ_E_IO, "cannot open %s: %s", printable(folder).c_str(), strerror(errno));
    if (!S_ISDIR(st.st_mode)) return fail(why, SQ_E_IO, "%s is not a folder", printable(folder).c_str());
    uint32_t dimension = 0;
    int status = has_file(folder, "modules.json") ? read_modules(folder, &dimension, out, why) : SQ_OK;
    if (status == SQ_OK) status = read_config_json(out, why);
    if (status == SQ_OK) status = check_modules(dimension, *out, why);
    if (status == SQ_OK) status = read_limits(out, why);
    if (status == SQ_OK) out->license = read_license(folder);
    return status;
} catch (const std::bad_alloc &) {
    return fail(why, SQ_E_MEM, "out of memory while reading the checkpoint's settings");
}

} // namespace sq
