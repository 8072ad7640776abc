// convert/read-torch.cpp - tensors of PyTorch files: where the pickle and the storages are, and what a tensor says about its storage.
//
// Source: torch 2.5, torch/serialization.py (_save, _load, _legacy_save, _legacy_load) and torch/_utils.py (_rebuild_tensor_v2).
// Two forms. Since torch 1.6 a zip archive of stored entries: NAME/data.pkl, NAME/byteorder (since 2.1), and NAME/data/KEY for each storage. Before, a stream:
// pickles of a magic number, of the protocol version 1001, of the writer's type sizes, of the object, of the list of storage keys; then for each key a u64
// number of elements and the bytes.
#include <string.h>

#include <set>

#include "../sq.h"
#include "read-checkpoint.h"
#include "read-pickle.h"
#include "read-zip.h"

namespace sq {

// A tensor takes about 150 bytes of pickle. An object in memory takes less than 100 bytes for each byte of pickle.
static constexpr size_t MAX_PICKLE_BYTES = 4 << 20;
static constexpr size_t MAX_RANK = 8; // shape and strides are copied for each tensor, and a pickle can share them
// Pickled in the first 15 bytes of a stream: protocol 2, LONG1, 10 bytes, 0x1950A86A20F9469CFC6C, STOP.
static constexpr char STREAM_MAGIC[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
static constexpr size_t STREAM_MAGIC_BYTES = sizeof STREAM_MAGIC - 1;
static constexpr int64_t STREAM_PROTOCOL = 1001;

namespace {

using kind = pickle::kind;
using object = pickle::object;

struct span {
    const uint8_t *data;
    uint64_t n_bytes;
};

struct torch_reader {
    const source_file &file;
    std::vector<source_tensor> *tensors;
    message *why;
    std::map<std::string, span> storages = {}; // bytes of each storage by its key

    int refuse(const std::string &what) const { return fail(why, SQ_E_FORMAT, "%s: %s", printable(file.name()).c_str(), what.c_str()); }
    int refuse(const std::string &tensor, const std::string &what) const { return refuse("tensor '" + printable(tensor) + "': " + what); }

    int read_zip();
    int read_stream();
    int read_objects(pickle *p, uint32_t *result);
    int find_storages(const pickle &p, uint32_t keys, const uint8_t *at);
    int add_state(const pickle &p, const object &root);
    int add_tensor(const pickle &p, const std::string &name, const object &tensor);
    int check_bounds(source_tensor *t, uint64_t offset, const span &storage) const;
};

} // namespace

// The numbers of a tuple, which must be a tuple (or list) of counts.
static bool read_counts(const pickle &p, const object &list, std::vector<uint64_t> *out) {
    if ((list.type != kind::tuple && list.type != kind::list) || list.items.size() > MAX_RANK) return false;
    for (const uint32_t i : list.items) {
        if (p.at(i).type != kind::integer || p.at(i).integer < 0) return false;
        out->push_back(static_cast<uint64_t>(p.at(i).integer));
    }
    return true;
}

// Bytes of a storage by its number of elements; false when that wraps around.
static bool storage_bytes(const pickle &p, const object &storage, uint64_t *n_bytes) {
    const int64_t n = p.item(storage, 4).integer;
    return n >= 0 && !__builtin_mul_overflow(static_cast<uint64_t>(n), element_bytes(p.item(storage, 1).values), n_bytes);
}

// Checks that every element lies in the storage, and counts them.
int torch_reader::check_bounds(source_tensor *t, uint64_t offset, const span &storage) const {
    const uint64_t n_storage = storage.n_bytes / element_bytes(t->type);
    // As many elements as the storage has, or fewer: a view that repeats elements (stride 0) could claim any size.
    bool ok = shape_product(t->shape, &t->n_elements) && t->n_elements <= n_storage && offset <= n_storage;
    uint64_t last = offset, step;
    for (size_t d = 0; ok && t->n_elements > 0 && d < t->shape.size(); d++)
        ok = !__builtin_mul_overflow(t->shape[d] - 1, t->strides[d], &step) && !__builtin_add_overflow(last, step, &last);
    if (ok && (t->n_elements == 0 || last < n_storage)) return SQ_OK;
    const std::string view = "shape " + shape_text(t->shape) + ", strides " + shape_text(t->strides) + " and offset " + std::to_string(offset);
    return refuse(t->name, view + " do not fit its storage of " + std::to_string(n_storage) + " elements");
}

int torch_reader::add_tensor(const pickle &p, const std::string &name, const object &tensor) {
    const object &storage = p.item(tensor, 0), &offset = p.item(tensor, 1);
    const std::string &key = p.item(storage, 2).text;
    source_tensor t;
    t.name = name;
    t.file = &file;
    t.type = p.item(storage, 1).values;
    if (p.item(storage, 5).type != kind::none) return refuse(name, "its storage is a view of another one: save the checkpoint anew with safetensors");
    const auto found = storages.find(key);
    if (found == storages.end()) return refuse(name, "its storage '" + printable(key) + "' is missing");
    uint64_t n_bytes;
    if (!storage_bytes(p, storage, &n_bytes) || n_bytes != found->second.n_bytes)
        return refuse(name, "its storage '" + printable(key) + "' has " + std::to_string(found->second.n_bytes) + " bytes, not those of " +
                                std::to_string(p.item(storage, 4).integer) + " elements");
    if (!read_counts(p, p.item(tensor, 2), &t.shape) || !read_counts(p, p.item(tensor, 3), &t.strides) || t.shape.size() != t.strides.size())
        return refuse(name, "shape and strides are not two lists of up to " + std::to_string(MAX_RANK) + " counts");
    if (offset.type != kind::integer || offset.integer < 0) return refuse(name, "its offset is not a count");
    const uint64_t first = static_cast<uint64_t>(offset.integer);
    const int status = check_bounds(&t, first, found->second);
    if (status != SQ_OK) return status;
    t.data = found->second.data + (t.n_elements > 0 ? first * element_bytes(t.type) : 0);
    tensors->push_back(std::move(t));
    return SQ_OK;
}

// The value of a text key, null if there is none.
static const object *find(const pickle &p, const object &dict, const char *key) {
    for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
        if (p.item(dict, i).type == kind::text && p.item(dict, i).text == key) return &p.item(dict, i + 1);
    return nullptr;
}

// A state_dict, or a dict that has one under one of the names that training scripts use. Values that are no tensors do not matter.
int torch_reader::add_state(const pickle &p, const object &root) {
    if (root.type != kind::dict) return refuse("what was saved is no dict of tensors (a state_dict)");
    const object *state = &root;
    for (const char *name : {"state_dict", "model_state_dict", "model"}) {
        const object *inner = find(p, root, name);
        if (inner && inner->type == kind::dict) state = inner;
        if (state != &root) break;
    }
    const size_t before = tensors->size();
    std::set<std::string> names; // checked here already: a pickle can use one long name for any number of tensors
    for (size_t i = 0; i + 1 < state->items.size(); i += 2) {
        const object &name = p.item(*state, i), &value = p.item(*state, i + 1);
        if (value.type != kind::tensor) continue;
        if (name.type != kind::text) return refuse("a tensor whose name is no text");
        if (!names.insert(name.text).second) return refuse(name.text, "is there twice");
        const int status = add_tensor(p, name.text, value);
        if (status != SQ_OK) return status;
    }
    return tensors->size() > before ? SQ_OK : refuse("there are no tensors in the dict that was saved");
}

int torch_reader::read_objects(pickle *p, uint32_t *result) { return p->read(result) ? SQ_OK : refuse("pickle: " + p->error()); }

int torch_reader::read_zip() {
    static const std::string PICKLE = "/data.pkl", DATA = "data/";
    zip_archive zip;
    int status = zip.open(file, why);
    if (status != SQ_OK) return status;
    std::string top; // the archive's one folder, with its slash
    const zip_entry *objects = nullptr;
    for (const auto &[name, entry] : zip.entries()) {
        const size_t slash = name.find('/');
        if (slash == std::string::npos || name.compare(slash, std::string::npos, PICKLE) != 0) continue;
        if (objects) return refuse("several data.pkl");
        objects = &entry;
        top = name.substr(0, slash + 1);
    }
    if (!objects) return refuse("a zip archive without data.pkl: not a file of torch.save");
    if (!objects->data) return refuse("data.pkl is compressed; torch.save stores it as it is");
    if (objects->n_bytes > MAX_PICKLE_BYTES) return refuse("data.pkl is larger than 4 MiB");
    const auto order = zip.entries().find(top + "byteorder");
    if (order != zip.entries().end()) {
        const zip_entry &e = order->second;
        if (!e.data || e.n_bytes != 6 || memcmp(e.data, "little", 6) != 0) return refuse("its byte order is not little-endian");
    }
    for (const auto &[name, entry] : zip.entries()) {
        if (name.compare(0, top.size() + DATA.size(), top + DATA) != 0) continue;
        if (!entry.data) return refuse("entry '" + printable(name) + "' is compressed; torch.save stores it as it is");
        storages[name.substr(top.size() + DATA.size())] = {entry.data, entry.n_bytes};
    }
    pickle p(objects->data, objects->n_bytes);
    uint32_t root = 0;
    status = read_objects(&p, &root);
    return status == SQ_OK ? add_state(p, p.at(root)) : status;
}

// The storages behind the pickles, in the order of keys.
int torch_reader::find_storages(const pickle &p, uint32_t keys, const uint8_t *at) {
    std::map<std::string, const object *> by_key;
    for (const object &o : p.objects())
        if (o.type == kind::storage) by_key.emplace(p.item(o, 2).text, &o);
    const uint8_t *end = file.data() + file.size();
    for (const uint32_t i : p.at(keys).items) {
        const std::string &key = p.at(i).text;
        const auto found = by_key.find(key);
        uint64_t n_bytes, n_elements;
        if (found == by_key.end() || !storage_bytes(p, *found->second, &n_bytes)) return refuse("nobody uses storage '" + printable(key) + "'");
        if (end - at < 8) return refuse("storage '" + printable(key) + "' lies outside the file: truncated?");
        memcpy(&n_elements, at, sizeof n_elements);
        at += 8;
        if (n_elements != static_cast<uint64_t>(p.item(*found->second, 4).integer))
            return refuse("storage '" + printable(key) + "' has another size than its tensors expect");
        if (n_bytes > static_cast<uint64_t>(end - at)) return refuse("storage '" + printable(key) + "' lies outside the file: truncated?");
        storages[key] = {at, n_bytes};
        at += n_bytes;
    }
    return SQ_OK;
}

int torch_reader::read_stream() {
    const size_t rest = file.size() - STREAM_MAGIC_BYTES;
    pickle p(file.data() + STREAM_MAGIC_BYTES, rest < MAX_PICKLE_BYTES ? rest : MAX_PICKLE_BYTES);
    uint32_t protocol = 0, machine = 0, root = 0, keys = 0;
    for (uint32_t *result : {&protocol, &machine, &root, &keys}) {
        const int status = read_objects(&p, result);
        if (status != SQ_OK) return status;
    }
    const object *little = find(p, p.at(machine), "little_endian");
    if (p.at(protocol).integer != STREAM_PROTOCOL || !little) return refuse("an unknown version of torch.save's stream");
    if (little->integer != 1) return refuse("its byte order is not little-endian");
    const int status = find_storages(p, keys, p.position());
    return status == SQ_OK ? add_state(p, p.at(root)) : status;
}

int read_torch(const source_file &file, std::vector<source_tensor> *tensors, message *why) {
    torch_reader r{file, tensors, why};
    if (zip_archive::is_zip(file)) return r.read_zip();
    if (file.size() >= STREAM_MAGIC_BYTES && memcmp(file.data(), STREAM_MAGIC, STREAM_MAGIC_BYTES) == 0) return r.read_stream();
    if (file.size() > 262 && memcmp(file.data() + 257, "ustar", 5) == 0)
        return r.refuse("the tar form of PyTorch before 0.2 is not read: load it in PyTorch and save the checkpoint anew with safetensors");
    return r.refuse("neither a zip archive nor a stream of torch.save");
}

} // namespace sq
