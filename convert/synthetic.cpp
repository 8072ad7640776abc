// convert/synthetic.cpp - see synthetic.h.
#include "synthetic.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "read-tokenizer.h"
#include "source-file.h"

namespace sq {

namespace {

struct shape {
    const char *name, *model_type;
    model_family family;
    uint32_t n_layers, width, n_heads, ffn, vocab, n_types, position_offset;
    float norm_eps;
};

// As in the config.json of bert-large-uncased, bert-base-uncased, distilbert-base-uncased, xlm-roberta-base and all-MiniLM-L6-v2.
constexpr shape SHAPES[] = {
    {"bert-large", "bert", model_family::bert, 24, 1024, 16, 4096, 30522, 2, 0, 1e-12f},
    {"bert-base", "bert", model_family::bert, 12, 768, 12, 3072, 30522, 2, 0, 1e-12f},
    {"distilbert", "distilbert", model_family::distilbert, 6, 768, 12, 3072, 30522, 0, 0, 1e-12f},
    {"xlm-r-base", "xlm-roberta", model_family::roberta, 12, 768, 12, 3072, 250002, 1, 2, 1e-5f},
    {"minilm", "bert", model_family::bert, 6, 384, 12, 1536, 30522, 2, 0, 1e-12f},
};

const char WORDS[] =
    "the a of and to in is was it for on that with as at by from his her not are be this had but all were they she he one or an there which we you "
    "sun sea river bridge train book house dog cat child music green red old new long small great day night year time man woman people water "
    "run read eat sleep sing work play walk come go see know think say make take give find tell ask use";

// Nearly normal random numbers of variance 1: the sum of twelve uniform ones less six (Irwin and Hall), from Knuth's MMIX generator. No C library function is
// involved, so every machine makes the same model.
class random_numbers {
  public:
    explicit random_numbers(uint64_t seed) : state_(seed) {}
    float normal() {
        float sum = -6;
        for (int i = 0; i < 12; i++) sum += uniform();
        return sum;
    }
    float uniform() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<float>(state_ >> 40) * 0x1p-24f;
    }

  private:
    uint64_t state_;
};

std::string vocabulary() {
    std::string text = "[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n"; // [PAD] is 1, as XLM-RoBERTa's positions want it
    for (char c = '!'; c <= '~'; c++) {
        if (c >= 'A' && c <= 'Z') continue;
        text += std::string(1, c) + "\n";
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) text += std::string("##") + c + "\n";
    }
    std::string word;
    for (const char *p = WORDS;; p++) {
        if (*p && *p != ' ') {
            word += *p;
            continue;
        }
        if (word.size() > 1) text += word + "\n";
        word.clear();
        if (!*p) return text;
    }
}

int write_text(const std::string &path, const std::string &text, message *why) {
    FILE *f = fopen(path.c_str(), "wbe");
    const bool good = f && fwrite(text.data(), 1, text.size(), f) == text.size();
    if ((f && fclose(f) != 0) || !good) return fail(why, SQ_E_IO, "cannot write %s: %s", path.c_str(), strerror(errno));
    return SQ_OK;
}

} // namespace

int synthetic_model::open(const std::string &name, message *why) {
    for (const shape &s : SHAPES) {
        if (name != s.name) continue;
        folder_ = "synthetic-" + name;
        model_config &c = config_;
        c.model_type = s.model_type;
        c.family = s.family;
        c.n_layers = s.n_layers;
        c.width = s.width;
        c.n_heads = s.n_heads;
        c.ffn = s.ffn;
        c.vocab = s.vocab;
        c.n_types = s.n_types;
        c.n_positions = c.max_tokens = 512;
        c.position_offset = s.position_offset;
        c.norm_eps = s.norm_eps;
        c.act = ACT_GELU_ERF;
        c.pooling = SQ_POOL_MEAN;
        return SQ_OK;
    }
    return fail(why, SQ_E_ARG, "unknown shape '%s': bert-large, bert-base, distilbert, xlm-r-base and minilm are known", name.c_str());
}

int synthetic_model::read(const std::string &role, std::vector<float> *out, message *) const {
    const model_config &c = config_;
    const size_t D = c.width, F = c.ffn;
    size_t n = D;
    if (role == "embed.words") n = c.vocab * D;
    else if (role == "embed.positions") n = (c.position_offset + c.n_positions) * D;
    else if (role == "embed.types") n = c.n_types * D;
    else if (ends_with(role, "up.bias")) n = F;
    else if (ends_with(role, "up.weight") || ends_with(role, "down.weight")) n = D * F;
    else if (ends_with(role, ".weight")) n = D * D;
    out->resize(n);
    random_numbers random(crc32(0, role.data(), role.size()));
    const bool is_gamma = ends_with(role, ".gamma");
    const float scale = ends_with(role, "down.weight") ? 1 / sqrtf(static_cast<float>(F)) : ends_with(role, ".weight") ? 1 / sqrtf(static_cast<float>(D)) : 0.1f;
    for (float &v : *out) v = (is_gamma ? 1 : 0) + scale * random.normal();
    if (is_gamma)
        for (int i = 0; i < 4; i++) (*out)[static_cast<size_t>(random.uniform() * static_cast<float>(D))] *= 8;
    return SQ_OK;
}

int synthetic_model::write_tokenizer(writer *out, message *why) const {
    const char *tmp = getenv("TMPDIR");
    std::string folder = std::string(tmp && *tmp ? tmp : "/tmp") + "/sq-synthetic-XXXXXX";
    if (!mkdtemp(&folder[0])) return fail(why, SQ_E_IO, "cannot create %s: %s", folder.c_str(), strerror(errno));
    const std::string vocab = folder + "/vocab.txt", settings = folder + "/tokenizer_config.json";
    int status = write_text(vocab, vocabulary(), why);
    if (status == SQ_OK) status = write_text(settings, "{\"do_lower_case\": true, \"tokenizer_class\": \"BertTokenizer\"}\n", why);
    if (status == SQ_OK) status = read_tokenizer(folder, config_.vocab, config_.n_types, out, why);
    unlink(vocab.c_str());
    unlink(settings.c_str());
    rmdir(folder.c_str());
    return status;
}

} // namespace sq
