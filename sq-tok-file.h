// sq-tok-file.h - what the converter writes and the tokenizer reads: the vocabulary's double-array trie, the flags of added tokens.
//
// Unit at + XOR of byte: child = base ^ byte, taken if its label is that byte. A unit is
//     bits 0-7 label, bits 8-9 kind, bits 10-31 value
// with value = base for inner units and vocabulary id for leaves. An inner unit of kind TERMINAL has a leaf at base ^ 0 for the entry that ends there (no entry
// contains a NUL byte). A leaf with another label stands for the one entry below it: what follows in the text must be the rest of that entry, which is compared
// with the vocabulary itself. Unused units are 0. Unit 0 is the root; its children are labelled with a set, not with a byte: SET_WHOLE for all entries,
// SET_CONTINUING for WordPiece's continuing entries without their prefix.
#ifndef SQ_TOK_FILE_H
#define SQ_TOK_FILE_H

#include <stddef.h>
#include <stdint.h>

namespace sq {

inline constexpr uint32_t TRIE_FREE = 0, TRIE_INNER = 1, TRIE_TERMINAL = 2, TRIE_LEAF = 3;
inline constexpr uint32_t TRIE_MAX_VALUE = (1u << 22) - 1;
inline constexpr uint8_t SET_WHOLE = 1, SET_CONTINUING = 2;

constexpr uint32_t trie_unit(uint8_t label, uint32_t kind, uint32_t value) { return label | kind << 8 | value << 10; }
constexpr uint32_t trie_kind(uint32_t unit) { return unit >> 8 & 3; }
constexpr uint32_t trie_value(uint32_t unit) { return unit >> 10; }

// Flags of HF's AddedToken, second words of tok.added.
inline constexpr uint32_t ADDED_SPECIAL = 1, ADDED_NORMALIZED = 2, ADDED_SINGLE_WORD = 4, ADDED_LSTRIP = 8, ADDED_RSTRIP = 16;
inline constexpr uint32_t ADDED_MAX_BYTES = 256; // of its text: a search looks that far ahead at each byte

} // namespace sq

#endif
