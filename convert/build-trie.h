// convert/build-trie.h - builds the double-array trie that sq-tok-file.h describes.
#ifndef SQ_CONVERT_BUILD_TRIE_H
#define SQ_CONVERT_BUILD_TRIE_H

#include <stdint.h>

#include <string_view>
#include <vector>

namespace sq {

struct trie_key {
    std::string_view bytes; // not empty, without NUL
    uint32_t id;            // below TRIE_MAX_VALUE
};

// The units of a trie over two sets of keys. Where a set holds a key more than once, the last one counts. Empty result: more units than TRIE_MAX_VALUE.
std::vector<uint32_t> build_trie(std::vector<trie_key> whole, std::vector<trie_key> continuing);

} // namespace sq

#endif
