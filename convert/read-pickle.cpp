// convert/read-pickle.cpp - see read-pickle.h. One pass over the opcodes; the first failure ends it.
#include "read-pickle.h"

#include <string.h>

#include <charconv>
#include <utility>

#include "json.h"

namespace sq {

// Opcodes, with pickletools.py's names.
enum opcode : uint8_t {
    OP_MARK = '(', OP_STOP = '.', OP_POP = '0', OP_POP_MARK = '1', OP_DUP = '2', OP_FLOAT = 'F', OP_INT = 'I', OP_BININT = 'J', OP_BININT1 = 'K', OP_LONG = 'L',
    OP_BININT2 = 'M', OP_NONE = 'N', OP_BINPERSID = 'Q', OP_REDUCE = 'R', OP_STRING = 'S', OP_BINSTRING = 'T', OP_SHORT_BINSTRING = 'U', OP_UNICODE = 'V',
    OP_BINUNICODE = 'X', OP_BINFLOAT = 'G', OP_APPEND = 'a', OP_BUILD = 'b', OP_GLOBAL = 'c', OP_DICT = 'd', OP_EMPTY_DICT = '}', OP_APPENDS = 'e', OP_GET = 'g',
    OP_BINGET = 'h', OP_LONG_BINGET = 'j', OP_LIST = 'l', OP_EMPTY_LIST = ']', OP_PUT = 'p', OP_BINPUT = 'q', OP_LONG_BINPUT = 'r', OP_SETITEM = 's', OP_TUPLE = 't',
    OP_EMPTY_TUPLE = ')', OP_SETITEMS = 'u', OP_BINBYTES = 'B', OP_SHORT_BINBYTES = 'C', OP_PROTO = 0x80, OP_NEWOBJ = 0x81, OP_TUPLE1 = 0x85, OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87, OP_NEWTRUE = 0x88, OP_NEWFALSE = 0x89, OP_LONG1 = 0x8A, OP_LONG4 = 0x8B, OP_SHORT_BINUNICODE = 0x8C, OP_BINUNICODE8 = 0x8D,
    OP_BINBYTES8 = 0x8E, OP_EMPTY_SET = 0x8F, OP_ADDITEMS = 0x90, OP_FROZENSET = 0x91, OP_STACK_GLOBAL = 0x93, OP_MEMOIZE = 0x94, OP_FRAME = 0x95, OP_BYTEARRAY8 = 0x96,
};

static constexpr uint8_t MAX_PROTOCOL = 5;

// The globals that mean something here. torch.save writes a storage's class and a tensor's function; older releases had other names for the same.
static const struct {
    const char *module, *name;
    pickle::known what;
    element values;
} GLOBALS[] = {
    {"collections", "OrderedDict", pickle::known::ordered_dict, element::u8},
    {"torch._utils", "_rebuild_tensor", pickle::known::rebuild_tensor, element::u8},
    {"torch._utils", "_rebuild_tensor_v2", pickle::known::rebuild_tensor, element::u8},
    {"torch._utils", "_rebuild_parameter", pickle::known::rebuild_parameter, element::u8},
    {"torch", "FloatStorage", pickle::known::storage, element::f32},
    {"torch", "HalfStorage", pickle::known::storage, element::f16},
    {"torch", "BFloat16Storage", pickle::known::storage, element::bf16},
    {"torch", "DoubleStorage", pickle::known::storage, element::f64},
    {"torch", "LongStorage", pickle::known::storage, element::i64},
    {"torch", "IntStorage", pickle::known::storage, element::i32},
    {"torch", "ShortStorage", pickle::known::storage, element::i16},
    {"torch", "CharStorage", pickle::known::storage, element::i8},
    {"torch", "ByteStorage", pickle::known::storage, element::u8},
    {"torch", "BoolStorage", pickle::known::storage, element::boolean},
    {"torch", "UntypedStorage", pickle::known::storage, element::u8},
    {"torch.storage", "UntypedStorage", pickle::known::storage, element::u8},
    {"torch.storage", "_UntypedStorage", pickle::known::storage, element::u8},
};

// ---- bytes ----

void pickle::refuse(const std::string &why) {
    if (!failed()) error_ = why + " (byte " + std::to_string(p_ - begin_) + ")";
}

const uint8_t *pickle::take(uint64_t n_bytes) {
    if (n_bytes > static_cast<uint64_t>(end_ - p_)) {
        refuse("the pickle ends early");
        return nullptr;
    }
    const uint8_t *start = p_;
    p_ += n_bytes;
    return start;
}

uint64_t pickle::little_endian(size_t width) {
    const uint8_t *bytes = take(width);
    uint64_t x = 0;
    for (size_t i = 0; bytes && i < width; i++) x |= static_cast<uint64_t>(bytes[i]) << (8 * i);
    return x;
}

std::string pickle::line() {
    const void *newline = p_ < end_ ? memchr(p_, '\n', static_cast<size_t>(end_ - p_)) : nullptr;
    if (!newline) {
        refuse("the pickle ends early");
        return "";
    }
    const char *start = reinterpret_cast<const char *>(p_);
    p_ = static_cast<const uint8_t *>(newline) + 1;
    std::string text(start, static_cast<const char *>(newline));
    if (!text.empty() && text.back() == '\r') text.pop_back();
    return text;
}

// ---- the stack ----

void pickle::push(kind type, int64_t integer, std::string text, std::vector<uint32_t> items) {
    stack_.push_back(static_cast<uint32_t>(objects_.size()));
    objects_.emplace_back();
    object &o = objects_.back();
    o.type = type;
    o.integer = integer;
    o.text = std::move(text);
    o.items = std::move(items);
}

// Position of the object popped; that of None on failure.
uint32_t pickle::pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) {
        refuse("the stack is empty");
        return 0;
    }
    const uint32_t i = stack_.back();
    stack_.pop_back();
    return i;
}

std::vector<uint32_t> pickle::pop_to_mark() {
    if (marks_.empty()) {
        refuse("no mark on the stack");
        return {};
    }
    const auto first = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<uint32_t> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
}

// The object on top, which must be of that kind; None on failure.
pickle::object &pickle::top_as(kind type, const char *expected) {
    const uint32_t i = pop();
    if (!failed()) stack_.push_back(i);
    if (!failed() && objects_[i].type != type) refuse(std::string("not ") + expected);
    return objects_[failed() ? 0 : i];
}

bool pickle::read(uint32_t *result) {
    stack_.clear();
    marks_.clear();
    memo_.clear();
    while (!failed()) {
        const uint8_t *op = take(1);
        if (!op) break;
        if (*op == OP_STOP) {
            *result = pop();
            break;
        }
        if (!read_value(*op) && !read_text(*op) && !read_container(*op) && !read_memo(*op) && !read_call(*op)) {
            char text[60];
            snprintf(text, sizeof text, "opcode 0x%02X is unknown or not allowed", *op);
            refuse(text);
        }
    }
    return !failed();
}

// ---- opcodes, by group; each function returns whether the opcode is one of its group ----

// "12", "-3", "12L"; "00" and "01" are booleans.
void pickle::push_decimal(std::string digits, bool is_long) {
    if (!is_long && (digits == "00" || digits == "01")) return push(kind::boolean, digits[1] - '0');
    if (is_long && !digits.empty() && digits.back() == 'L') digits.pop_back();
    int64_t x = 0;
    const std::from_chars_result r = std::from_chars(digits.data(), digits.data() + digits.size(), x);
    if (r.ec == std::errc::invalid_argument || r.ptr != digits.data() + digits.size()) refuse("not an integer");
    push(r.ec == std::errc() ? kind::integer : kind::real, x);
}

// Two's complement, little-endian, any length.
void pickle::push_long(uint64_t n_bytes) {
    const uint8_t *bytes = take(n_bytes);
    if (!bytes) return;
    const bool is_negative = n_bytes > 0 && bytes[n_bytes - 1] >= 0x80;
    uint64_t x = is_negative ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < n_bytes && i < 8; i++) x = (x & ~(UINT64_C(0xFF) << (8 * i))) | static_cast<uint64_t>(bytes[i]) << (8 * i);
    bool fits = n_bytes <= 8 || (x >> 63 != 0) == is_negative;
    for (uint64_t i = 8; i < n_bytes; i++) fits &= bytes[i] == (is_negative ? 0xFF : 0);
    push(fits ? kind::integer : kind::real, static_cast<int64_t>(x));
}

bool pickle::read_value(uint8_t op) {
    switch (op) {
    case OP_PROTO:
        if (little_endian(1) > MAX_PROTOCOL) refuse("a newer pickle protocol than 5");
        return true;
    case OP_FRAME: little_endian(8); return true; // only a hint for reading ahead
    case OP_NONE: push(kind::none); return true;
    case OP_NEWTRUE: push(kind::boolean, 1); return true;
    case OP_NEWFALSE: push(kind::boolean, 0); return true;
    case OP_INT: push_decimal(line(), false); return true;
    case OP_LONG: push_decimal(line(), true); return true;
    case OP_BININT: push(kind::integer, static_cast<int32_t>(static_cast<uint32_t>(little_endian(4)))); return true;
    case OP_BININT1: push(kind::integer, static_cast<int64_t>(little_endian(1))); return true;
    case OP_BININT2: push(kind::integer, static_cast<int64_t>(little_endian(2))); return true;
    case OP_LONG1: push_long(little_endian(1)); return true;
    case OP_LONG4: push_long(little_endian(4)); return true; // a negative length is a huge one here
    case OP_FLOAT: line(), push(kind::real); return true;
    case OP_BINFLOAT: take(8), push(kind::real); return true;
    default: return false;
    }
}

void pickle::push_text(uint64_t n_bytes) {
    const char *text = reinterpret_cast<const char *>(take(n_bytes));
    if (!text) return;
    for (const char *p = text; p < text + n_bytes;) {
        bool valid;
        p += json::utf8_step(p, text + n_bytes, &valid);
        if (!valid) return refuse("a text is not valid UTF-8");
    }
    push(kind::text, 0, std::string(text, n_bytes));
}

// Protocol 0 writes text in raw-unicode-escape: Latin-1 bytes, \uXXXX and \UXXXXXXXX. Names of tensors are ASCII there, so that only plain ASCII is taken.
void pickle::push_escaped(const std::string &text) {
    for (const char c : text)
        if (c < ' ' || c > '~' || c == '\\') return refuse("a text of protocol 0 that is not plain ASCII");
    push(kind::text, 0, text);
}

// The repr of a string, in quotes of either kind.
void pickle::push_quoted(const std::string &text) {
    const size_t n = text.size();
    if (n < 2 || text[0] != text[n - 1] || (text[0] != '"' && text[0] != '\'')) return refuse("a string without quotes");
    push_escaped(text.substr(1, n - 2));
}

bool pickle::read_text(uint8_t op) {
    switch (op) {
    case OP_STRING: push_quoted(line()); return true;
    case OP_UNICODE: push_escaped(line()); return true;
    case OP_SHORT_BINSTRING:
    case OP_SHORT_BINUNICODE: push_text(little_endian(1)); return true;
    case OP_BINSTRING:
    case OP_BINUNICODE: push_text(little_endian(4)); return true;
    case OP_BINUNICODE8: push_text(little_endian(8)); return true;
    case OP_SHORT_BINBYTES: take(little_endian(1)), push(kind::bytes); return true;
    case OP_BINBYTES: take(little_endian(4)), push(kind::bytes); return true;
    case OP_BINBYTES8:
    case OP_BYTEARRAY8: take(little_endian(8)), push(kind::bytes); return true;
    default: return false;
    }
}

// A tuple of the topmost objects.
void pickle::push_last(size_t count) {
    std::vector<uint32_t> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push(kind::tuple, 0, "", std::move(items));
}

void pickle::append(kind type, const char *expected, std::vector<uint32_t> items) {
    object &o = top_as(type, expected);
    if (type == kind::dict && items.size() % 2 != 0) refuse("a key without a value");
    if (!failed()) o.items.insert(o.items.end(), items.begin(), items.end());
}

bool pickle::read_container(uint8_t op) {
    const uint32_t none = 0;
    uint32_t last = none;
    switch (op) {
    case OP_MARK: marks_.push_back(stack_.size()); return true;
    case OP_EMPTY_LIST: push(kind::list); return true;
    case OP_EMPTY_TUPLE: push(kind::tuple); return true;
    case OP_EMPTY_DICT: push(kind::dict); return true;
    case OP_EMPTY_SET: push(kind::set); return true;
    case OP_LIST: push(kind::list, 0, "", pop_to_mark()); return true;
    case OP_TUPLE: push(kind::tuple, 0, "", pop_to_mark()); return true;
    case OP_FROZENSET: push(kind::set, 0, "", pop_to_mark()); return true;
    case OP_DICT: {
        std::vector<uint32_t> items = pop_to_mark();
        push(kind::dict);
        append(kind::dict, "a dict", std::move(items));
        return true;
    }
    case OP_TUPLE1: push_last(1); return true;
    case OP_TUPLE2: push_last(2); return true;
    case OP_TUPLE3: push_last(3); return true;
    case OP_APPEND: last = pop(), append(kind::list, "a list", {last}); return true;
    case OP_SETITEM: {
        last = pop();
        const uint32_t key = pop();
        append(kind::dict, "a dict", {key, last});
        return true;
    }
    case OP_APPENDS: append(kind::list, "a list", pop_to_mark()); return true;
    case OP_SETITEMS: append(kind::dict, "a dict", pop_to_mark()); return true;
    case OP_ADDITEMS: append(kind::set, "a set", pop_to_mark()); return true;
    default: return false;
    }
}

void pickle::get(uint64_t key) {
    const auto it = memo_.find(key);
    if (it == memo_.end()) return refuse("memo " + std::to_string(key) + " is not set");
    stack_.push_back(it->second);
}

// Memo and stack. Python counts a mark as an object that POP can remove.
bool pickle::read_memo(uint8_t op) {
    const auto decimal = [&] {
        push_decimal(line(), false);
        return static_cast<uint64_t>(objects_[pop()].integer);
    };
    const auto put = [&](uint64_t key) {
        const uint32_t i = pop();
        if (!failed()) stack_.push_back(i), memo_[key] = i;
    };
    switch (op) {
    case OP_GET: get(decimal()); return true;
    case OP_BINGET: get(little_endian(1)); return true;
    case OP_LONG_BINGET: get(little_endian(4)); return true;
    case OP_PUT: put(decimal()); return true;
    case OP_BINPUT: put(little_endian(1)); return true;
    case OP_LONG_BINPUT: put(little_endian(4)); return true;
    case OP_MEMOIZE: put(memo_.size()); return true;
    case OP_POP_MARK: pop_to_mark(); return true;
    case OP_POP:
        if (!marks_.empty() && marks_.back() == stack_.size()) {
            marks_.pop_back();
        } else {
            pop();
        }
        return true;
    case OP_DUP: {
        const uint32_t i = pop();
        if (!failed()) stack_.push_back(i), stack_.push_back(i);
        return true;
    }
    default: return false;
    }
}

void pickle::push_global(const std::string &module, const std::string &name) {
    const std::string full = module + "." + name;
    for (const auto &g : GLOBALS) {
        if (module != g.module || name != g.name) continue;
        push(kind::global, 0, full);
        objects_.back().what = g.what;
        objects_.back().values = g.values;
        return;
    }
    refuse("it asks for " + printable(full) + ", which is no part of a plain state_dict of tensors; nothing was executed");
}

// A copy of at most n items: all that matter, however many there are.
static std::vector<uint32_t> first_items(const pickle::object &o, size_t n) {
    return std::vector<uint32_t>(o.items.begin(), o.items.begin() + static_cast<ptrdiff_t>(o.items.size() < n ? o.items.size() : n));
}

void pickle::push_storage(uint32_t id) {
    const object &o = objects_[id];
    const object &type = item(o, 1);
    const bool has_type = type.type == kind::global && type.what == known::storage;
    if (o.type != kind::tuple || item(o, 0).text != "storage" || !has_type || item(o, 2).type != kind::text || item(o, 4).type != kind::integer)
        return refuse("a persistent id that is no storage");
    push(kind::storage, 0, "", first_items(o, 6));
}

// OrderedDict(), or as Python 2 wrote it, OrderedDict([[key, value], ...]). Such a list has a byte for each pair, but it could serve many calls.
void pickle::call_ordered_dict(const object &arguments) {
    std::vector<uint32_t> items;
    for (const uint32_t pair : item(arguments, 0).items) {
        if (objects_[pair].items.size() != 2) return refuse("OrderedDict of something else than pairs");
        if (++n_pairs_ > static_cast<size_t>(end_ - begin_)) return refuse("more pairs than bytes");
        items.insert(items.end(), objects_[pair].items.begin(), objects_[pair].items.end());
    }
    push(kind::dict, 0, "", std::move(items));
}

void pickle::call(uint32_t function, uint32_t arguments) {
    const object &f = objects_[function], &args = objects_[arguments];
    if (failed()) return;
    if (f.type != kind::global || args.type != kind::tuple) return refuse("a call of something that is no function");
    switch (f.what) {
    case known::ordered_dict: return call_ordered_dict(args);
    case known::rebuild_tensor:
        if (item(args, 0).type != kind::storage) return refuse("a tensor without a storage");
        return push(kind::tensor, 0, "", first_items(args, 4));
    case known::rebuild_parameter:
        if (item(args, 0).type != kind::tensor) return refuse("a parameter without a tensor");
        return stack_.push_back(args.items[0]);
    case known::storage: return refuse("a call of " + f.text);
    }
}

bool pickle::read_call(uint8_t op) {
    switch (op) {
    case OP_GLOBAL: {
        const std::string module = line(), name = line();
        if (!failed()) push_global(module, name);
        return true;
    }
    case OP_STACK_GLOBAL: {
        const object &name = objects_[pop()], &module = objects_[pop()];
        if (name.type != kind::text || module.type != kind::text) refuse("a global whose name is no text");
        if (!failed()) push_global(std::string(module.text), std::string(name.text));
        return true;
    }
    case OP_BINPERSID: push_storage(pop()); return true;
    case OP_REDUCE:
    case OP_NEWOBJ: {
        const uint32_t arguments = pop(), function = pop();
        call(function, arguments);
        return true;
    }
    case OP_BUILD: // attributes of an OrderedDict, such as the version numbers that state_dict() adds: of no use here
        pop();
        top_as(kind::dict, "a dict");
        return true;
    default: return false;
    }
}

} // namespace sq
