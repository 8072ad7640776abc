// convert/read-pickle.h - the objects of a Python pickle, protocols 0 to 5, as far as PyTorch's tensors need them.
//
// Nothing is executed: a global that is not on a short list is refused by its name, and the few that are mean fixed things here. Objects lie in one array and
// refer to each other by position, so that shared and cyclic objects cost nothing and are never walked recursively. Each opcode makes at most one object and
// reads at least one byte, which bounds memory and time by the pickle's size.
// Source: CPython 3.11, Lib/pickletools.py (opcodes) and Lib/pickle.py; torch 2.5, torch/_utils.py and torch/serialization.py (globals, persistent ids).
#ifndef SQ_CONVERT_READ_PICKLE_H
#define SQ_CONVERT_READ_PICKLE_H

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <string>
#include <vector>

#include "read-checkpoint.h"

namespace sq {

class pickle {
  public:
    enum class kind : uint8_t {
        none,
        boolean, // integer is 0 or 1
        integer,
        real,    // or an integer of more than 64 bits; its value is not kept
        text,    // UTF-8
        bytes,   // its value is not kept
        list,
        tuple,
        set,
        dict,    // items: key, value, key, value, ...; OrderedDict too
        global,
        storage, // items: what the persistent id's tuple has: "storage", global, key, location, number of elements, view
        tensor,  // items: the first arguments of torch._utils._rebuild_tensor_v2: storage, offset, shape, strides
    };
    enum class known : uint8_t { ordered_dict, rebuild_tensor, rebuild_parameter, storage };

    struct object {
        kind type = kind::none;
        known what = known::storage;  // global
        element values = element::u8; // global that is a storage: its elements
        int64_t integer = 0;
        std::string text;             // text; global: its full name
        std::vector<uint32_t> items;  // positions of objects
    };

    // A pickle inside n_bytes at data, from the first byte.
    pickle(const uint8_t *data, size_t n_bytes) : begin_(data), p_(data), end_(data + n_bytes), objects_(1) {}

    // Reads one pickle and stops behind it, so that a further call reads the next. False on failure; then error() says why.
    bool read(uint32_t *result);

    const std::string &error() const { return error_; }
    const uint8_t *position() const { return p_; }
    const std::vector<object> &objects() const { return objects_; } // of all pickles read so far
    const object &at(uint32_t i) const { return objects_[i]; }
    // Item i of an object; none if there is no such item.
    const object &item(const object &o, size_t i) const { return objects_[i < o.items.size() ? o.items[i] : 0]; }

  private:
    void refuse(const std::string &why);
    bool failed() const { return !error_.empty(); }

    const uint8_t *take(uint64_t n_bytes); // null on failure, and then the pickle has failed
    uint64_t little_endian(size_t width);
    std::string line();

    void push(kind type, int64_t integer = 0, std::string text = "", std::vector<uint32_t> items = {});
    uint32_t pop();
    std::vector<uint32_t> pop_to_mark();
    object &top_as(kind type, const char *expected);

    bool read_value(uint8_t op);
    bool read_text(uint8_t op);
    bool read_container(uint8_t op);
    bool read_memo(uint8_t op);
    bool read_call(uint8_t op);

    void push_decimal(std::string digits, bool is_long);
    void push_long(uint64_t n_bytes);
    void push_text(uint64_t n_bytes);
    void push_escaped(const std::string &text);
    void push_quoted(const std::string &text);
    void push_last(size_t count);
    void append(kind type, const char *expected, std::vector<uint32_t> items);
    void get(uint64_t key);
    void push_global(const std::string &module, const std::string &name);
    void push_storage(uint32_t id);
    void call(uint32_t function, uint32_t arguments);
    void call_ordered_dict(const object &arguments);

    const uint8_t *const begin_, *p_, *const end_;
    std::vector<object> objects_; // [0] is None
    std::vector<uint32_t> stack_;
    std::vector<size_t> marks_;              // heights of the stack
    std::map<uint64_t, uint32_t> memo_;
    size_t n_pairs_ = 0;                     // copied out of arguments of OrderedDict
    std::string error_;
};

} // namespace sq

#endif
