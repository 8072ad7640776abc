// convert/names.cpp - see names.h. Names are those of transformers v4.57, src/transformers/models/{bert,distilbert,xlm_roberta}/modeling_*.py.
#include "names.h"

#include <set>

#include "../sq.h"

namespace sq {

namespace {

enum class form { table, linear, norm };

// One module of a checkpoint. Sizes: V words, P rows of positions, T types, D width, F FFN width, N logits.
struct place {
    form kind;
    const char *role;
    const char *bert, *distilbert; // module names; null: this family has none. RoBERTa's are BERT's.
    char rows, cols;               // norm: [rows]
};

constexpr char WORDS[] = "embeddings.word_embeddings.weight";

const place EMBEDDINGS[] = {
    {form::table, "embed.words", "embeddings.word_embeddings", "embeddings.word_embeddings", 'V', 'D'},
    {form::table, "embed.positions", "embeddings.position_embeddings", "embeddings.position_embeddings", 'P', 'D'},
    {form::table, "embed.types", "embeddings.token_type_embeddings", nullptr, 'T', 'D'},
    {form::norm, "embed.norm", "embeddings.LayerNorm", "embeddings.LayerNorm", 'D', 0},
};

const char BERT_LAYER[] = "encoder.layer.", DISTILBERT_LAYER[] = "transformer.layer.";
const place LAYER[] = {
    {form::linear, "query", "attention.self.query", "attention.q_lin", 'D', 'D'},
    {form::linear, "key", "attention.self.key", "attention.k_lin", 'D', 'D'},
    {form::linear, "value", "attention.self.value", "attention.v_lin", 'D', 'D'},
    {form::linear, "out", "attention.output.dense", "attention.out_lin", 'D', 'D'},
    {form::norm, "out_norm", "attention.output.LayerNorm", "sa_layer_norm", 'D', 0},
    {form::linear, "up", "intermediate.dense", "ffn.lin1", 'F', 'D'},
    {form::linear, "down", "output.dense", "ffn.lin2", 'D', 'F'},
    {form::norm, "down_norm", "output.LayerNorm", "output_layer_norm", 'D', 0},
};

// What a checkpoint may hold beside the encoder: buffers, BERT's pooler where the head does not use it, heads that predict words.
const char *const BUFFERS[] = {"embeddings.position_ids", "embeddings.token_type_ids", "pooler.dense.weight", "pooler.dense.bias"};
const char *const TRAINING_HEADS[] = {"cls.", "lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector."};

bool starts_with(const std::string &text, const std::string &start) { return text.compare(0, start.size(), start) == 0; }

// One run over the roles; the first failure sticks.
struct resolver {
    const checkpoint &weights;
    const model_config &config;
    message *why;
    std::map<std::string, const source_tensor *> *by_role;
    std::string encoder; // prefix of the encoder's names: "", "bert.", "roberta.", ...
    std::string outside; // prefix of the head's names: encoder without its last part
    std::set<const source_tensor *> used = {};
    int status = SQ_OK;

    uint64_t size(char symbol) const {
        switch (symbol) {
        case 'V': return config.vocab;
        case 'P': return uint64_t(config.position_offset) + config.n_positions;
        case 'T': return config.n_types;
        case 'D': return config.width;
        case 'F': return config.ffn;
        default: return config.head == head_kind::answer ? 2 : config.labels.size();
        }
    }

    void find_prefix();
    void take(const std::string &role, const std::string &name, const std::string &other_name, const std::vector<uint64_t> &shape);
    void take(const place &p, const std::string &role, const std::string &name);
    void take_encoder();
    void take_head();
    void check_rest(std::vector<std::string> *ignored);
};

} // namespace

// The encoder is where the word table is, whatever stands before it.
void resolver::find_prefix() {
    const source_tensor *found = nullptr;
    for (const source_tensor &t : weights.tensors()) {
        const size_t n = sizeof WORDS - 1, at = t.name.size() - n;
        if (t.name.size() < n || t.name.compare(at, n, WORDS) != 0 || (at > 0 && t.name[at - 1] != '.')) continue;
        if (found) {
            status = fail(why, SQ_E_FORMAT, "two encoders: tensors '%s' and '%s'", printable(found->name).c_str(), printable(t.name).c_str());
            return;
        }
        found = &t;
        encoder = t.name.substr(0, at);
    }
    if (!found) status = fail(why, SQ_E_FORMAT, "no tensor's name ends in '%s': not a checkpoint of the BERT family", WORDS);
    const size_t dot = encoder.size() < 2 ? std::string::npos : encoder.rfind('.', encoder.size() - 2);
    outside = dot == std::string::npos ? "" : encoder.substr(0, dot + 1);
}

void resolver::take(const std::string &role, const std::string &name, const std::string &other_name, const std::vector<uint64_t> &shape) {
    if (status != SQ_OK) return;
    const source_tensor *t = weights.find(name);
    if (!t && !other_name.empty()) t = weights.find(other_name);
    if (!t) {
        status = fail(why, SQ_E_FORMAT, "tensor '%s' of shape %s is missing", printable(name).c_str(), shape_text(shape).c_str());
    } else if (t->shape != shape) {
        status = fail(why, SQ_E_FORMAT, "%s: tensor '%s' has shape %s; by config.json it is %s", printable(t->file->name()).c_str(), printable(t->name).c_str(),
                      shape_text(t->shape).c_str(), shape_text(shape).c_str());
    } else {
        (*by_role)[role] = t;
        used.insert(t);
    }
}

// name without ".weight" and ".bias". Older LayerNorms have gamma and beta, as in TensorFlow.
void resolver::take(const place &p, const std::string &role, const std::string &name) {
    switch (p.kind) {
    case form::table: take(role, name + ".weight", "", {size(p.rows), size(p.cols)}); break;
    case form::linear:
        take(role + ".weight", name + ".weight", "", {size(p.rows), size(p.cols)});
        take(role + ".bias", name + ".bias", "", {size(p.rows)});
        break;
    case form::norm:
        take(role + ".gamma", name + ".weight", name + ".gamma", {size(p.rows)});
        take(role + ".beta", name + ".bias", name + ".beta", {size(p.rows)});
        break;
    }
}

void resolver::take_encoder() {
    const bool distilbert = config.family == model_family::distilbert;
    for (const place &p : EMBEDDINGS) {
        const char *module = distilbert ? p.distilbert : p.bert;
        if (module && size(p.rows) > 0) take(p, p.role, encoder + module);
    }
    for (uint32_t i = 0; i < config.n_layers && status == SQ_OK; i++) {
        const std::string layer = encoder + (distilbert ? DISTILBERT_LAYER : BERT_LAYER) + std::to_string(i) + ".";
        for (const place &p : LAYER) take(p, "layer." + std::to_string(i) + "." + p.role, layer + (distilbert ? p.distilbert : p.bert));
    }
}

void resolver::take_head() {
    const place dense = {form::linear, "head.dense", nullptr, nullptr, 'D', 'D'}, out = {form::linear, "head.out", nullptr, nullptr, 'N', 'D'};
    switch (config.head) {
    case head_kind::none: break;
    case head_kind::answer: take(out, out.role, outside + "qa_outputs"); break;
    case head_kind::tag: take(out, out.role, outside + "classifier"); break;
    case head_kind::classify:
        switch (config.family) {
        case model_family::bert: take(dense, dense.role, encoder + "pooler.dense"); break;
        case model_family::distilbert: take(dense, dense.role, outside + "pre_classifier"); break;
        case model_family::roberta: take(dense, dense.role, outside + "classifier.dense"); break;
        }
        take(out, out.role, outside + (config.family == model_family::roberta ? "classifier.out_proj" : "classifier"));
        break;
    }
}

void resolver::check_rest(std::vector<std::string> *ignored) {
    for (const source_tensor &t : weights.tensors()) {
        if (status != SQ_OK) return;
        if (used.count(&t)) continue;
        bool known = false;
        for (const char *name : BUFFERS) known |= t.name == encoder + name;
        for (const char *start : TRAINING_HEADS) known |= starts_with(t.name, outside + start);
        if (known) {
            ignored->push_back(t.name);
        } else {
            const std::string model = config.model_type + " model" + (config.architecture.empty() ? "" : " of architecture " + config.architecture);
            status = fail(why, SQ_E_FORMAT, "%s: tensor '%s' of shape %s has no known meaning in a %s", printable(t.file->name()).c_str(), printable(t.name).c_str(),
                          shape_text(t.shape).c_str(), model.c_str());
        }
    }
}

int tensor_names::open(const checkpoint &weights, const model_config &config, message *why) {
    by_role_.clear();
    ignored_.clear();
    resolver r{weights, config, why, &by_role_, "", ""};
    r.find_prefix();
    r.take_encoder();
    r.take_head();
    r.check_rest(&ignored_);
    return r.status;
}

const source_tensor *tensor_names::find(const std::string &role) const {
    const auto it = by_role_.find(role);
    return it == by_role_.end() ? nullptr : it->second;
}

} // namespace sq
