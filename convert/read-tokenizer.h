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

// vocab: rows of the embedding table; a token with an id beyond it is refused. n_types: rows of the type table. With one row, segments of a template count as 0:
// transformers writes templates with a second segment for such models and never passes segments to them. Returns SQ_OK, SQ_E_IO or SQ_E_FORMAT.
int read_tokenizer(const std::string &folder, uint32_t vocab, uint32_t n_types, writer *out, message *why);

} // namespace sq

#endif
