// fuzz-model.cpp - a model file from anywhere: loaded, questioned, tokenized with and run on one short text. It may be refused; it must not crash or hang.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "../../sq-model.h"

namespace {

// The checksum over metadata and tensor table would stop nearly every mutation at the door.
void seal(std::vector<uint8_t> *f) {
    if (f->size() < sq::FILE_HEADER_BYTES) return;
    uint64_t n;
    memcpy(&n, f->data() + 24, sizeof n);
    if (n > f->size() - sq::FILE_HEADER_BYTES) return;
    const uint32_t crc = sq::crc32(0, f->data() + sq::FILE_HEADER_BYTES, n);
    memcpy(f->data() + 20, &crc, sizeof crc);
}

// Each task, whatever head the model has.
void run_tasks(const sq_model *m, sq_ctx *c, const std::string &text) {
    size_t n = 0;
    const size_t starts[] = {0, text.size()};
    const sq_texts texts{sizeof texts, 1, text.data(), starts, nullptr, nullptr};
    sq_embed_params e{};
    e.size = sizeof e;
    e.truncate = 1;
    std::vector<float> out(std::max<size_t>({m->arch.width, m->head.n_labels, m->dense.empty() ? 0 : m->dense.back().weights.n}));
    sq_embed(c, &texts, &e, out.data(), out.size(), &n);
    sq_classify_params p{};
    p.size = sizeof p;
    p.truncate = 1;
    sq_classify(c, &texts, &p, out.data(), nullptr, out.size(), &n);
    uint32_t order[1];
    sq_rerank(c, "b", 1, &texts, &p, out.data(), order, 1, &n);
    sq_tag_params t{};
    t.size = sizeof t;
    t.truncate = 1;
    sq_entity entities[8];
    sq_tag(c, &texts, &t, entities, 8, &n);
    sq_answer_params a{};
    a.size = sizeof a;
    a.window = 10;
    sq_answer_span spans[8];
    sq_answer(c, "b", 1, text.data(), text.size(), &a, spans, 8, &n);
}

void use(sq_model *m) {
    const std::string text = "The dog, na\xC3\xAFve \xE5\xA4\xA7 [SEP] \xFF zzzzzzzzzz";
    std::vector<int32_t> ids(64), types(64), sources(64);
    std::vector<uint32_t> spans(128);
    size_t n = 0;
    sq_tokenize(m, text.data(), text.size(), "b", 1, nullptr, ids.data(), types.data(), spans.data(), sources.data(), ids.size(), &n);
    char value[256];
    for (uint32_t i = 0; const char *key = sq_model_meta_key(m, i); i++) sq_model_meta(m, key, value, sizeof value, &n);
    for (int32_t id = -1; id < 300; id++) sq_token_text(m, id, &n);

    // Scratch grows with the width and the FFN that the file states; its weights are really there, so that much memory is no amplification.
    sq_ctx_params p{};
    p.size = sizeof p;
    p.n_threads = 1;
    p.max_tokens = 16;
    p.max_seqs = 1;
    sq_ctx *c = nullptr;
    if (sq_ctx_create(m, &p, &c, nullptr, 0) != SQ_OK) return;
    run_tasks(m, c, text);
    sq_ctx_free(c);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    for (bool sealed : {false, true}) {
        std::vector<uint8_t> file(data, data + n_bytes);
        if (sealed) seal(&file);
        sq_model_params p{};
        p.size = sizeof p;
        p.copy = 1;
        sq_model *m = nullptr;
        if (sq_model_load_memory(file.data(), file.size(), &p, &m, nullptr, 0) == SQ_OK) use(m);
        sq_model_free(m);
    }
    return 0;
}
