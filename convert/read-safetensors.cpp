// convert/read-safetensors.cpp - the safetensors format: u64 header length, JSON header, then the tensors' bytes back to back.
//
// Source: github.com/huggingface/safetensors, README.md ("Format") and safetensors/src/tensor.rs. As there, the tensors must cover the bytes behind the header
// without hole or overlap, so that a file that passes here is one that others load too.
#include <string.h>

#include <algorithm>

#include "../sq.h"
#include "read-checkpoint.h"

namespace sq {

// The reference reader allows 100 MB. An entry takes some 100 bytes, and the tree of values needs many times the text's memory.
static constexpr uint64_t MAX_HEADER_BYTES = 8 << 20;

namespace {

struct header {
    const source_file &file;
    const uint8_t *data; // first byte behind the header
    uint64_t n_data;
    message *why;

    int refuse(const std::string &tensor, const char *what) const {
        return fail(why, SQ_E_FORMAT, "%s: tensor '%s': %s", printable(file.name()).c_str(), printable(tensor).c_str(), what);
    }
    int read_tensor(const json::member &entry, source_tensor *t) const;
};

} // namespace

static bool read_counts(const json::value *list, std::vector<uint64_t> *out) {
    if (!list || !list->is_array()) return false;
    for (const json::value &v : list->items) {
        if (!v.is_integer || v.integer < 0) return false;
        out->push_back(static_cast<uint64_t>(v.integer));
    }
    return true;
}

static bool find_element(const std::string &name, element *type) {
    for (size_t i = 0; i <= static_cast<size_t>(element::boolean); i++) {
        *type = static_cast<element>(i);
        if (name == element_name(*type)) return true;
    }
    return false;
}

// {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}
int header::read_tensor(const json::member &entry, source_tensor *t) const {
    const json::value *dtype = entry.item.find("dtype");
    std::vector<uint64_t> offsets;
    t->name = entry.key;
    t->file = &file;
    if (!dtype || !dtype->is_string()) return refuse(t->name, "no dtype");
    if (!find_element(dtype->text, &t->type)) return refuse(t->name, ("dtype '" + printable(dtype->text) + "' is not supported").c_str());
    if (!read_counts(entry.item.find("shape"), &t->shape)) return refuse(t->name, "its shape is not a list of counts");
    if (!read_counts(entry.item.find("data_offsets"), &offsets) || offsets.size() != 2) return refuse(t->name, "data_offsets are not two counts");
    if (offsets[0] > offsets[1] || offsets[1] > n_data) return refuse(t->name, "its bytes lie outside the file: truncated?");
    uint64_t n_bytes;
    if (!shape_product(t->shape, &t->n_elements) || __builtin_mul_overflow(t->n_elements, element_bytes(t->type), &n_bytes) || n_bytes != offsets[1] - offsets[0])
        return refuse(t->name, ("shape " + shape_text(t->shape) + " and dtype do not fit its " + std::to_string(offsets[1] - offsets[0]) + " bytes").c_str());
    t->data = data + offsets[0];
    t->strides.resize(t->shape.size());
    uint64_t stride = 1; // cannot wrap: partial products of a shape whose product fits, or n_elements is 0 and no stride is used
    for (size_t d = t->shape.size(); d-- > 0; stride *= t->shape[d]) t->strides[d] = stride;
    return SQ_OK;
}

int read_safetensors(const source_file &file, std::vector<source_tensor> *tensors, message *why) {
    const std::string shown = printable(file.name());
    if (file.size() < 8) return fail(why, SQ_E_FORMAT, "%s: too short for a safetensors file", shown.c_str());
    uint64_t n_header;
    memcpy(&n_header, file.data(), sizeof n_header);
    if (n_header > file.size() - 8) return fail(why, SQ_E_FORMAT, "%s: the header runs past the end: truncated, or no safetensors file", shown.c_str());
    if (n_header > MAX_HEADER_BYTES) return fail(why, SQ_E_FORMAT, "%s: the header is larger than 8 MiB", shown.c_str());
    json::value root;
    std::string error;
    if (!json::parse(reinterpret_cast<const char *>(file.data()) + 8, static_cast<size_t>(n_header), &root, &error))
        return fail(why, SQ_E_FORMAT, "%s: header: %s", shown.c_str(), error.c_str());
    if (!root.is_object()) return fail(why, SQ_E_FORMAT, "%s: the header is not a JSON object", shown.c_str());
    const header h{file, file.data() + 8 + n_header, file.size() - 8 - n_header, why};
    const size_t first = tensors->size();
    for (const json::member &entry : root.members) {
        if (entry.key == "__metadata__") continue;
        tensors->emplace_back();
        const int status = h.read_tensor(entry, &tensors->back());
        if (status != SQ_OK) return status;
    }
    std::vector<const source_tensor *> in_order;
    for (size_t i = first; i < tensors->size(); i++) in_order.push_back(&(*tensors)[i]);
    const auto before = [](const source_tensor *a, const source_tensor *b) { return a->data != b->data ? a->data < b->data : a->n_elements < b->n_elements; };
    std::sort(in_order.begin(), in_order.end(), before);
    const uint8_t *end = h.data;
    for (const source_tensor *t : in_order) {
        if (t->data != end) return h.refuse(t->name, t->data < end ? "its bytes overlap another tensor's" : "there is a hole before its bytes");
        end += t->n_elements * element_bytes(t->type);
    }
    if (end != h.data + h.n_data) return fail(why, SQ_E_FORMAT, "%s: bytes follow the last tensor", shown.c_str());
    return SQ_OK;
}

} // namespace sq
