// tests/tok.h - for tests and benchmarks of tokenizers: a checkpoint folder's tokenizer as a model file in memory, opened.
#ifndef SQ_TESTS_TOK_H
#define SQ_TESTS_TOK_H

#include <memory>
#include <string>

#include "../convert/read-tokenizer.h"
#include "../convert/writer.h"
#include "../sq-model.h"

struct tok_model {
    sq::aligned_image image;
    sq::file_view file;
    sq::tokenizer tok;
    sq::message why{};

    // vocab: rows of the embedding table. Segments stay as the templates have them.
    int read(const std::string &folder, uint32_t vocab = 1u << 20) {
        sq::writer out;
        int status = sq::read_tokenizer(folder, vocab, 0, &out, &why);
        if (status != SQ_OK) return status;
        image = out.take_image();
        status = file.open(image.data(), image.size(), &why);
        return status == SQ_OK ? tok.open(file, vocab, 0, &why) : status;
    }

    // A null b: a single text.
    int encode(const std::string &a, const std::string *b, const sq::encode_options &options, sq::encoding *out) const {
        return tok.encode(a.data(), a.size(), b ? b->data() : nullptr, b ? b->size() : 0, options, out, nullptr);
    }
};

#endif
