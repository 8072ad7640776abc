// tests/fuzz/fuzz-unigram.cpp - the Unigram tokenizer: any text, good and damaged tables (tok-tables.h). It runs in the repository's top folder.
#include "tok-tables.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const char *const NAMES[] = {"unigram", "unigram-words", "unigram-first", "unigram-never"};
    fuzz_tokenizers(NAMES, data, n_bytes);
    return 0;
}
