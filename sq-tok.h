// sq-tok.h - text to token ids: WordPiece (BERT, DistilBERT) and Unigram (XLM-RoBERTa), exactly as Hugging Face `tokenizers`.
//
// A `tokenizer` is a read-only view of the tokenizer part of a model file: the settings are copied, vocabulary and trie are used in place. Because mapped
// bytes can change under us, every trie step and every offset is checked where it is used.
#ifndef SQ_TOK_H
#define SQ_TOK_H

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

namespace sq {

struct file_view;

// A sentence about a failure, kept short and allocation-free.
struct message {
    char text[480];
};

// Writes printf-style text into *why (if not null) and returns status, so that `return fail(...)` reads well.
int fail(message *why, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

struct encode_options {
    size_t max_len = SIZE_MAX;     // special tokens included
    bool truncate = false;         // longest first, keeping the special tokens
    bool specials_as_text = false;
};

// Parallel arrays, one entry per token; spans are byte offsets [first, past) in the text that `source` names.
struct encoding {
    std::vector<int32_t> ids, types, sources;
    std::vector<uint32_t> spans;   // two per token
    size_t full_len = 0;           // length before truncation
};

struct tokenizer {
    struct settings;
    settings *s = nullptr;         // owned

    tokenizer() = default;
    tokenizer(const tokenizer &) = delete;
    tokenizer &operator=(const tokenizer &) = delete;
    ~tokenizer();

    // Reads and validates the "tok.*" entries of a model file, which must outlive this. vocab is the number of rows of the embedding table and n_types that of the
    // type table (0: the model has none and looks at no type): ids and types stay below.
    int open(const file_view &file, uint32_t vocab, uint32_t n_types, message *why);

    // Tokenizes a, or the pair (a, b) when b is not null. Returns SQ_OK, SQ_E_LIMIT (longer than max_len and not to be cut; out->full_len is set) or SQ_E_FORMAT
    // (the mapped vocabulary is damaged). Throws std::bad_alloc only.
    int encode(const char *a, size_t n_a, const char *b, size_t n_b, const encode_options &options, encoding *out, message *why) const;

    // Bytes of a vocabulary entry, null for ids outside the vocabulary.
    const char *token_text(int32_t id, size_t *n) const;

    // For the converter: the bits of "tok.alone", of a Unigram tokenizer that was opened without them.
    std::vector<uint8_t> find_alone() const;
};

} // namespace sq

#endif
