// convert/read-tokenizer.h - the tokenizer of a checkpoint folder, as the "tok.*" entries of a model file (format.md lists them).
//
// tokenizer.json is read where it exists; else sentencepiece.bpe.model (XLM-RoBERTa); else vocab.txt with tokenizer_config.json and special_tokens_map.json.
// Any setting that sq cannot follow exactly is refused by name. Padding and truncation are left out: they are the caller's.
#ifndef SQ_CONVERT_READ_TOKENIZER_H
#define SQ_CONVERT_READ_TOKENIZER_H

#include <stdint.h>

#include <string>

#include "../sq-tok.h"
#include "writer.h"

namespace sq {

// vocab: rows of the embedding table; a token with an id beyond it is refused. Returns SQ_OK, SQ_E_IO or SQ_E_FORMAT.
int read_tokenizer(const std::string &folder, uint32_t vocab, writer *out, message *why);

} // namespace sq

#endif
