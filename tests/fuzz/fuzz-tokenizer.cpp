// tests/fuzz/fuzz-tokenizer.cpp - any bytes as one of a checkpoint's tokenizer files, beside good ones; a tokenizer that comes out of it must work.
//
// The first byte chooses which file. It runs in the repository's top folder.
#include <unistd.h>

#include <iterator>

#include "../scratch.h"
#include "../tok.h"
#include "require.h"

namespace {

struct tokenizer_file {
    const char *name;
    bool with_vocab_txt; // it is read beside vocab.txt only
};

const tokenizer_file FILES[] = {
    {"tokenizer.json", false},        {"vocab.txt", false},          {"sentencepiece.bpe.model", false},
    {"tokenizer_config.json", true}, {"special_tokens_map.json", true}, {"added_tokens.json", true},
};

constexpr char VOCAB[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##b\ndog\n";
constexpr uint32_t VOCAB_ROWS = 5000; // more than any seed has

void use(const tok_model &m) {
    const std::string a = "The dog,  na\xC3\xAFve \xE5\xA4\xA7 [SEP]<mask> \xFF zzz ab", b = "b";
    sq::encoding e;
    const int status = m.encode(a, &b, sq::encode_options(), &e);
    REQUIRE(status == SQ_OK || status == SQ_E_FORMAT);
    for (size_t i = 0; status == SQ_OK && i < e.ids.size(); i++) {
        REQUIRE(e.ids[i] >= 0 && static_cast<uint32_t>(e.ids[i]) < VOCAB_ROWS);
        REQUIRE(e.spans[2 * i] <= e.spans[2 * i + 1] && e.spans[2 * i + 1] <= a.size());
    }
    size_t n = 0;
    for (int32_t id = -1; id < static_cast<int32_t>(VOCAB_ROWS); id++) m.tok.token_text(id, &n);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const scratch folder; // one for the life of the process
    input_bytes in(data, n_bytes);
    const tokenizer_file &file = FILES[in.byte() % std::size(FILES)];
    if (file.with_vocab_txt) folder.put("vocab.txt", VOCAB);
    folder.put(file.name, in.rest());

    tok_model m;
    const int status = m.read(folder.path, VOCAB_ROWS);
    require_reason(status, m.why);
    if (status == SQ_OK) use(m);
    for (const char *made : {file.name, "vocab.txt"}) unlink((folder.path + "/" + made).c_str());
    return 0;
}
