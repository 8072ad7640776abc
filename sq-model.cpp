// sq-model.cpp - opens a model file: bytes from somewhere, table of contents, validation, and pointers to every tensor that the forward pass reads.
//
// Nothing in the file is trusted: each count, length, offset, product and string is checked against the bytes that are really there before it is used.
// Header, metadata and tensor table are copied first and checked in the copy, since the bytes of a mapped file can change. Read sq.cpp next.
#include "sq-model.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "sq-cpu.h"

namespace sq {

int fail(message *why, int status, const char *format, ...) {
    if (why) {
        va_list args;
        va_start(args, format);
        vsnprintf(why->text, sizeof why->text, format, args);
        va_end(args);
    }
    return status;
}

// ---- checksum ----

// Eight tables for eight bytes a step: tables[j][b] is the CRC of byte b followed by j zero bytes.
using crc_tables = std::array<std::array<uint32_t, 256>, 8>;

static constexpr crc_tables make_crc_tables() {
    crc_tables t{};
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ (c & 1 ? 0xEDB88320u : 0);
        t[0][b] = c;
    }
    for (size_t j = 1; j < 8; j++)
        for (size_t b = 0; b < 256; b++) t[j][b] = (t[j - 1][b] >> 8) ^ t[0][t[j - 1][b] & 255];
    return t;
}

uint32_t crc32(uint32_t crc, const void *data, size_t n_bytes) {
    static constexpr crc_tables T = make_crc_tables();
    const uint8_t *p = static_cast<const uint8_t *>(data);
    crc = ~crc;
    for (; n_bytes >= 8; n_bytes -= 8, p += 8) {
        uint32_t lo = crc ^ (p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24);
        crc = T[7][lo & 255] ^ T[6][lo >> 8 & 255] ^ T[5][lo >> 16 & 255] ^ T[4][lo >> 24] ^ T[3][p[4]] ^ T[2][p[5]] ^ T[1][p[6]] ^ T[0][p[7]];
    }
    for (; n_bytes > 0; n_bytes--, p++) crc = (crc >> 8) ^ T[0][(crc ^ *p) & 255];
    return ~crc;
}

// ---- table of contents ----

uint64_t tensor_bytes(dtype type, layout order, uint32_t rows, uint32_t cols) {
    if (order == LAYOUT_PANELS) return round_up(rows, 16) * round_up(cols, type == DT_S8 ? 64 : 1) * dtype_bytes(type);
    return static_cast<uint64_t>(rows) * round_up(cols, FILE_ROW_ALIGN) * dtype_bytes(type);
}

namespace {

// Little-endian reads from a byte range; a read past the end gives 0 and sets `short_of`.
struct cursor {
    const uint8_t *p, *end;
    bool short_of = false;

    bool take(size_t n, const uint8_t **bytes) {
        if (short_of || static_cast<size_t>(end - p) < n) {
            short_of = true;
            return false;
        }
        *bytes = p;
        p += n;
        return true;
    }
    uint32_t u32() {
        const uint8_t *b;
        if (!take(4, &b)) return 0;
        return b[0] | b[1] << 8 | b[2] << 16 | static_cast<uint32_t>(b[3]) << 24;
    }
    uint64_t u64() {
        uint64_t lo = u32();
        return lo | static_cast<uint64_t>(u32()) << 32;
    }
    std::string string() {
        uint32_t n = u32();
        const uint8_t *b;
        return take(n, &b) ? std::string(reinterpret_cast<const char *>(b), n) : std::string();
    }
};

bool is_key(const std::string &s) {
    if (s.empty() || s.size() > 255) return false;
    for (char c : s)
        if (c <= ' ' || c > '~') return false;
    return true;
}

int read_meta(cursor *in, meta_entry *e, message *why) {
    e->key = in->string();
    uint32_t type = in->u32(), n_bytes = in->u32();
    const uint8_t *bytes;
    if (!in->take(n_bytes, &bytes)) return fail(why, SQ_E_FORMAT, "metadata runs past its end");
    if (!is_key(e->key)) return fail(why, SQ_E_FORMAT, "a metadata key is empty, too long or not printable ASCII");
    e->type = static_cast<meta_type>(type);
    cursor value{bytes, bytes + n_bytes};
    switch (type) {
    case META_U32: e->u32 = value.u32(); break;
    case META_F32: {
        uint32_t bits = value.u32();
        memcpy(&e->f32, &bits, sizeof bits);
        break;
    }
    case META_STRING: e->strings.emplace_back(reinterpret_cast<const char *>(bytes), n_bytes), value.p = value.end; break;
    case META_STRINGS:
        for (uint32_t n = value.u32(); n > 0 && !value.short_of; n--) e->strings.push_back(value.string());
        break;
    default: return fail(why, SQ_E_FORMAT, "metadata '%s' has unknown type %u", e->key.c_str(), type);
    }
    if (value.short_of || value.p != value.end) return fail(why, SQ_E_FORMAT, "metadata '%s' has a wrong length", e->key.c_str());
    return SQ_OK;
}

int read_tensor(cursor *in, const file_view &file, uint64_t data_start, tensor_entry *e, message *why) {
    e->name = in->string();
    uint32_t type = in->u32(), order = in->u32();
    e->rows = in->u32();
    e->cols = in->u32();
    e->offset = in->u64();
    e->n_bytes = in->u64();
    e->crc = in->u32();
    if (in->short_of) return fail(why, SQ_E_FORMAT, "the tensor table runs past its end");
    if (!is_key(e->name)) return fail(why, SQ_E_FORMAT, "a tensor name is empty, too long or not printable ASCII");
    const char *name = e->name.c_str();
    if (type >= N_DTYPES || order >= N_LAYOUTS) return fail(why, SQ_E_FORMAT, "tensor '%s' has unknown type %u or layout %u", name, type, order);
    e->type = static_cast<dtype>(type);
    e->order = static_cast<layout>(order);
    if (e->order == LAYOUT_PANELS && e->type != DT_S8 && e->type != DT_F32) return fail(why, SQ_E_FORMAT, "tensor '%s' has no panel form", name);
    if (e->rows == 0 || e->cols == 0 || e->rows > INT32_MAX || e->cols > INT32_MAX)
        return fail(why, SQ_E_FORMAT, "tensor '%s' has impossible shape %u x %u", name, e->rows, e->cols);
    if (e->n_bytes != tensor_bytes(e->type, e->order, e->rows, e->cols)) return fail(why, SQ_E_FORMAT, "tensor '%s' has a length that is not its shape's", name);
    if (e->offset % FILE_ALIGN != 0 || e->offset < data_start || e->offset > file.n_bytes || e->n_bytes > file.n_bytes - e->offset)
        return fail(why, SQ_E_FORMAT, "tensor '%s' lies outside the file or is not aligned", name);
    e->data = file.base + e->offset;
    return SQ_OK;
}

} // namespace

int file_view::open(const void *data, size_t size, message *why) {
    base = static_cast<const uint8_t *>(data);
    n_bytes = size;
    if (size < FILE_HEADER_BYTES) return fail(why, SQ_E_FORMAT, "not a sq model file: only %zu bytes", size);
    uint8_t head[FILE_HEADER_BYTES];
    memcpy(head, base, sizeof head);
    if (memcmp(head, FILE_MAGIC, sizeof FILE_MAGIC) != 0) return fail(why, SQ_E_FORMAT, "not a sq model file: wrong first bytes");
    cursor in{head + sizeof FILE_MAGIC, head + sizeof head};
    uint32_t version = in.u32(), n_meta = in.u32(), n_tensors = in.u32(), tables_crc = in.u32();
    uint64_t tables_bytes = in.u64(), file_bytes = in.u64();
    if (version > FILE_VERSION) return fail(why, SQ_E_VERSION, "the file has format version %u, this library reads up to %u", version, FILE_VERSION);
    if (version == 0) return fail(why, SQ_E_FORMAT, "the file has format version 0");
    if (file_bytes != size) return fail(why, SQ_E_FORMAT, "the file has %zu bytes and should have %llu: truncated?", size, static_cast<unsigned long long>(file_bytes));
    if (tables_bytes > size - FILE_HEADER_BYTES) return fail(why, SQ_E_FORMAT, "metadata and tensor table are longer than the file");

    std::vector<uint8_t> tables(base + FILE_HEADER_BYTES, base + FILE_HEADER_BYTES + tables_bytes);
    if (crc32(0, tables.data(), tables.size()) != tables_crc) return fail(why, SQ_E_FORMAT, "metadata or tensor table is damaged: its checksum differs");
    cursor body{tables.data(), tables.data() + tables.size()};
    for (uint32_t i = 0; i < n_meta; i++) {
        meta.emplace_back();
        if (int status = read_meta(&body, &meta.back(), why)) return status;
        if (!meta_index.emplace(meta.back().key, i).second) return fail(why, SQ_E_FORMAT, "metadata '%s' stands twice", meta.back().key.c_str());
    }
    for (uint32_t i = 0; i < n_tensors; i++) {
        tensors.emplace_back();
        if (int status = read_tensor(&body, *this, FILE_HEADER_BYTES + tables_bytes, &tensors.back(), why)) return status;
        if (!tensor_index.emplace(tensors.back().name, i).second) return fail(why, SQ_E_FORMAT, "tensor '%s' stands twice", tensors.back().name.c_str());
    }
    if (body.p != body.end) return fail(why, SQ_E_FORMAT, "bytes are left over behind the tensor table");
    return SQ_OK;
}

int file_view::verify(message *why) const {
    for (const tensor_entry &t : tensors)
        if (crc32(0, t.data, t.n_bytes) != t.crc) return fail(why, SQ_E_FORMAT, "tensor '%s' is damaged: its checksum differs", t.name.c_str());
    return SQ_OK;
}

const meta_entry *file_view::find_meta(const char *key) const {
    auto at = meta_index.find(key);
    return at == meta_index.end() ? nullptr : &meta[at->second];
}

const tensor_entry *file_view::find_tensor(const std::string &name) const {
    auto at = tensor_index.find(name);
    return at == tensor_index.end() ? nullptr : &tensors[at->second];
}

int file_view::need_u32(const char *key, uint32_t lo, uint32_t hi, uint32_t *out, message *why) const {
    if (!find_meta(key)) return fail(why, SQ_E_FORMAT, "metadata '%s' is missing", key);
    return get_u32(key, 0, lo, hi, out, why);
}

int file_view::get_u32(const char *key, uint32_t fallback, uint32_t lo, uint32_t hi, uint32_t *out, message *why) const {
    const meta_entry *e = find_meta(key);
    *out = fallback;
    if (!e) return SQ_OK;
    if (e->type != META_U32) return fail(why, SQ_E_FORMAT, "metadata '%s' is not a number", key);
    if (e->u32 < lo || e->u32 > hi) return fail(why, SQ_E_FORMAT, "metadata '%s' is %u, outside %u to %u", key, e->u32, lo, hi);
    *out = e->u32;
    return SQ_OK;
}

int file_view::need_string(const char *key, const std::string **out, message *why) const {
    const meta_entry *e = find_meta(key);
    if (!e || e->type != META_STRING) return fail(why, SQ_E_FORMAT, "metadata '%s' is missing or not a string", key);
    *out = &e->strings[0];
    return SQ_OK;
}

int file_view::need_tensor(const std::string &name, dtype type, layout order, uint32_t rows, uint32_t cols, const void **out, message *why) const {
    const tensor_entry *t = find_tensor(name);
    if (!t) return fail(why, SQ_E_FORMAT, "tensor '%s' is missing", name.c_str());
    if (t->type != type || t->order != order || t->rows != rows || t->cols != cols)
        return fail(why, SQ_E_FORMAT, "tensor '%s' is %u x %u (type %u, layout %u) and should be %u x %u (type %u, layout %u)", name.c_str(), t->rows, t->cols, t->type,
                    t->order, rows, cols, type, order);
    *out = t->data;
    return SQ_OK;
}

// ---- from table of contents to model ----

namespace {

// Reads the parts of a model out of its file; the first failure wins and turns the later steps into no-ops, so that the description reads straight.
struct resolver {
    sq_model *m;
    message *why;
    int status = SQ_OK;

    bool ok() const { return status == SQ_OK; }
    void set(int s) {
        if (ok()) status = s;
    }

    uint32_t number(const char *key, uint32_t lo, uint32_t hi) {
        uint32_t v = lo;
        if (ok()) set(m->file.need_u32(key, lo, hi, &v, why));
        return ok() ? v : lo; // in range whatever happened, so that the description may go on computing
    }

    // Index of the entry's text among the choices.
    uint32_t choice(const std::string &key, std::initializer_list<const char *> choices) {
        const std::string *s = nullptr;
        if (!ok()) return 0;
        set(m->file.need_string(key.c_str(), &s, why));
        if (!ok()) return 0;
        uint32_t i = 0;
        for (const char *c : choices) {
            if (*s == c) return i;
            i++;
        }
        set(fail(why, SQ_E_FORMAT, "metadata '%s' has the unknown value '%.64s'", key.c_str(), s->c_str()));
        return 0;
    }

    const void *tensor(const std::string &name, dtype type, layout order, uint32_t rows, uint32_t cols) {
        const void *data = nullptr;
        if (ok()) set(m->file.need_tensor(name, type, order, rows, cols, &data, why));
        return data;
    }

    // A row of floats, every one finite.
    const float *vector(const std::string &name, uint32_t n) {
        const float *x = static_cast<const float *>(tensor(name, DT_F32, LAYOUT_ROWS, 1, n));
        for (uint32_t i = 0; ok() && i < n; i++)
            if (!isfinite(x[i])) set(fail(why, SQ_E_FORMAT, "tensor '%s' holds a value that is not finite", name.c_str()));
        return x;
    }

    norm layer_norm(const std::string &name) { return {vector(name + ".gamma", m->arch.width), vector(name + ".beta", m->arch.width)}; }

    linear linear_layer(const std::string &name, uint32_t n, uint32_t k);
    attention attention_of(const std::string &name);
    void compensation(const std::string &name, linear *l);
    table embedding_table(const std::string &name, uint32_t rows);
    void architecture_numbers();
    void task_head();
    void dense_modules();
    void all();
};

// The order of these names is that of the values of `activation`.
constexpr std::initializer_list<const char *> ACTIVATIONS = {"none", "gelu", "gelu_tanh", "relu", "tanh"};

linear resolver::linear_layer(const std::string &name, uint32_t n, uint32_t k) {
    linear l;
    l.n = n;
    l.k = k;
    uint32_t form = choice(name + ".form", {"f32", "static", "dynamic"});
    l.is_s8 = form != 0;
    l.is_dynamic = form == 2;
    l.bias = vector(name + ".bias", n);
    l.w = tensor(name + ".weight", l.is_s8 ? DT_S8 : DT_F32, LAYOUT_PANELS, n, k);
    if (!l.is_s8) return l;
    l.scale = vector(name + ".scale", n);
    l.mul = vector(name + ".mul", k);
    if (l.is_dynamic) compensation(name, &l);
    else l.zero = static_cast<int32_t>(number((name + ".zero").c_str(), 0, 255));
    return l;
}

// |comp| <= 128 * k keeps zero * comp, and the sums it starts, within s32.
void resolver::compensation(const std::string &name, linear *l) {
    l->comp = static_cast<const int32_t *>(tensor(name + ".comp", DT_I32, LAYOUT_ROWS, 1, l->n));
    const int64_t bound = 128 * static_cast<int64_t>(l->k);
    for (uint32_t i = 0; ok() && i < l->n; i++)
        if (l->comp[i] > bound || l->comp[i] < -bound) set(fail(why, SQ_E_FORMAT, "tensor '%s.comp' holds an impossible sum", name.c_str()));
}

attention resolver::attention_of(const std::string &name) {
    attention a;
    if (!ok() || !m->file.find_meta((name + ".form").c_str())) return a; // as in version 1
    const uint32_t form = choice(name + ".form", {"f32", "s8", "s8-fine"});
    a.is_s8 = form != 0;
    a.is_fine = form == 2;
    if (!a.is_s8) return a;
    if (ok() && !attention_s8_fits(m->arch.head_width, m->arch.n_positions))
        set(fail(why, SQ_E_FORMAT, "'%s.form' is s8, which heads of width %u and %u positions do not allow", name.c_str(), m->arch.head_width, m->arch.n_positions));
    a.scale = vector(name + ".scale", m->arch.n_heads);
    a.mul = vector(name + ".mul", m->arch.width);
    for (uint32_t h = 0; ok() && h < m->arch.n_heads; h++)
        if (!(a.scale[h] >= 0 && a.scale[h] <= 1)) set(fail(why, SQ_E_FORMAT, "tensor '%s.scale' holds a step outside 0 to 1", name.c_str()));
    return a;
}

table resolver::embedding_table(const std::string &name, uint32_t rows) {
    table t;
    t.rows = rows;
    const tensor_entry *e = ok() ? m->file.find_tensor(name) : nullptr;
    if (e && e->type == DT_F32) {
        t.f32 = static_cast<const float *>(tensor(name, DT_F32, LAYOUT_ROWS, rows, m->arch.width));
    } else {
        t.s8 = static_cast<const int8_t *>(tensor(name, DT_S8, LAYOUT_ROWS, rows, m->arch.width));
        t.scale = vector(name + ".scale", rows);
    }
    return t;
}

void resolver::architecture_numbers() {
    architecture &a = m->arch;
    a.n_layers = number("model.layers", 1, 1024);
    a.width = number("model.width", 1, 1 << 15);
    a.n_heads = number("model.heads", 1, 1 << 16);
    a.ffn = number("model.ffn", 1, 1 << 15); // K <= 32,768 keeps a sum that starts at zero * comp, 2 * 255 * 128 * K, below 2^31
    a.vocab = number("model.vocab", 1, INT32_MAX);
    a.position_offset = number("model.position_offset", 0, 1 << 20);
    a.n_positions = number("model.positions", 1, 1 << 20);
    a.n_types = number("model.types", 0, 1 << 16);
    a.max_tokens = number("model.max_tokens", 1, a.n_positions);
    a.normalize = number("model.normalize", 0, 1);
    a.pooling = choice("model.pooling", {"none", "mean", "cls", "max"});
    a.quant = choice("model.quant", {"float", "static", "dynamic"});
    a.act = static_cast<activation>(choice("model.activation", ACTIVATIONS));
    if (ok() && a.width % a.n_heads != 0) set(fail(why, SQ_E_FORMAT, "model.width %u is no multiple of model.heads %u", a.width, a.n_heads));
    a.head_width = a.width / a.n_heads;
    const meta_entry *eps = ok() ? m->file.find_meta("model.norm_eps") : nullptr;
    if (ok() && (!eps || eps->type != META_F32 || !(eps->f32 > 0 && eps->f32 < 1)))
        set(fail(why, SQ_E_FORMAT, "metadata 'model.norm_eps' is missing or not between 0 and 1"));
    a.norm_eps = eps ? eps->f32 : 0;
}

size_t count_params(const sq_model &m) {
    const architecture &a = m.arch;
    size_t rows = static_cast<size_t>(a.vocab) + a.position_offset + a.n_positions + a.n_types + 2, n = rows * a.width;
    for (const layer &l : m.layers) {
        for (const linear *p : {&l.qkv, &l.out, &l.up, &l.down}) n += static_cast<size_t>(p->n) * (p->k + 1);
        n += 4 * static_cast<size_t>(a.width);
    }
    return n;
}

void resolver::task_head() {
    head &h = m->head;
    if (!ok() || !m->file.find_meta("head.kind")) return;
    h.kind = SQ_HEAD_CLASSIFY + choice("head.kind", {"classify", "answer", "tag"});
    h.n_labels = number("head.n_labels", 1, 1 << 16);
    h.multi_label = number("head.multi_label", 0, 1) != 0;
    h.has_dense = number("head.has_dense", 0, 1) != 0;
    if (h.has_dense) {
        h.act = static_cast<activation>(choice("head.activation", ACTIVATIONS));
        h.dense = linear_layer("head.dense", m->arch.width, m->arch.width);
    }
    h.out = linear_layer("head.out", h.n_labels, m->arch.width);
    if (ok() && (h.dense.is_s8 || h.out.is_s8)) set(fail(why, SQ_E_FORMAT, "the head is quantised: it must be f32"));
    if (ok() && h.kind == SQ_HEAD_ANSWER && h.n_labels != 2) set(fail(why, SQ_E_FORMAT, "an answer head has %u outputs; it must have 2", h.n_labels));
    const meta_entry *labels = m->file.find_meta("head.labels");
    if (!ok() || h.kind == SQ_HEAD_ANSWER) return;
    if (!labels || labels->type != META_STRINGS || labels->strings.size() != h.n_labels)
        return set(fail(why, SQ_E_FORMAT, "metadata 'head.labels' is missing or does not name %u labels", h.n_labels));
    h.labels = labels->strings;
}

void resolver::dense_modules() {
    uint32_t n = 0, width = m->arch.width;
    if (ok()) set(m->file.get_u32("dense.count", 0, 0, 16, &n, why));
    for (uint32_t i = 0; ok() && i < n; i++) {
        const std::string p = "dense." + std::to_string(i);
        dense_layer d;
        d.act = static_cast<activation>(choice(p + ".activation", ACTIVATIONS));
        const uint32_t out = number((p + ".width").c_str(), 1, 1 << 16);
        d.weights = linear_layer(p, out, width);
        if (ok() && d.weights.is_s8) set(fail(why, SQ_E_FORMAT, "'%s' is quantised: it must be f32", p.c_str()));
        width = out;
        m->dense.push_back(d);
    }
}

void resolver::all() {
    architecture_numbers();
    const architecture &a = m->arch;
    if (!ok()) return;
    m->words = embedding_table("embed.words", a.vocab);
    m->positions = static_cast<const float *>(tensor("embed.positions", DT_F32, LAYOUT_ROWS, a.position_offset + a.n_positions, a.width));
    if (a.n_types) m->types = static_cast<const float *>(tensor("embed.types", DT_F32, LAYOUT_ROWS, a.n_types, a.width));
    m->embed_norm = layer_norm("embed.norm");
    for (uint32_t i = 0; ok() && i < a.n_layers; i++) {
        const std::string p = "layer." + std::to_string(i) + ".";
        layer l;
        l.qkv = linear_layer(p + "qkv", 3 * a.width, a.width);
        l.attention = attention_of(p + "attention");
        l.out = linear_layer(p + "out", a.width, a.width);
        l.out_norm = layer_norm(p + "out_norm");
        l.up = linear_layer(p + "up", a.ffn, a.width);
        l.down = linear_layer(p + "down", a.width, a.ffn);
        l.down_norm = layer_norm(p + "down_norm");
        m->layers.push_back(l);
    }
    task_head();
    dense_modules();
    if (ok()) set(m->tok.open(m->file, a.vocab, a.n_types, why));
    m->n_params = count_params(*m);
}

// ---- bytes ----

constexpr size_t HUGE_PAGE = 2 << 20; // of x86-64; elsewhere only an alignment

int private_copy(sq_model *m, size_t n_bytes, bool huge_pages, message *why) {
    void *p = nullptr;
    const size_t size = std::max<size_t>(n_bytes, 1);
    if (posix_memalign(&p, huge_pages ? HUGE_PAGE : FILE_ALIGN, huge_pages ? round_up(size, HUGE_PAGE) : size) != 0) return fail(why, SQ_E_MEM, "out of memory: %zu bytes for a copy of the model", n_bytes);
    if (huge_pages) madvise(p, round_up(size, HUGE_PAGE), MADV_HUGEPAGE); // a wish: without large pages the copy does as well
    m->mapping = p;
    m->mapping_bytes = n_bytes;
    return SQ_OK;
}

int read_whole(int fd, void *out, size_t n_bytes, const char *what, message *why) {
    uint8_t *p = static_cast<uint8_t *>(out);
    for (size_t done = 0; done < n_bytes;) {
        ssize_t got = pread(fd, p + done, n_bytes - done, static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail(why, SQ_E_IO, "cannot read %s: %s", what, strerror(errno));
        if (got == 0) return fail(why, SQ_E_IO, "cannot read %s: it became shorter", what);
        done += static_cast<size_t>(got);
    }
    return SQ_OK;
}

int bytes_from_fd(sq_model *m, int fd, bool copy, bool huge_pages, const char *what, message *why) {
    struct stat st;
    if (fstat(fd, &st) != 0) return fail(why, SQ_E_IO, "cannot open %s: %s", what, strerror(errno));
    if (!S_ISREG(st.st_mode)) return fail(why, SQ_E_IO, "%s is not a regular file", what);
    const size_t n = static_cast<size_t>(st.st_size);
    if (n < FILE_HEADER_BYTES) return fail(why, SQ_E_FORMAT, "%s is not a sq model file: only %zu bytes", what, n);
    if (copy) {
        if (int status = private_copy(m, n, huge_pages, why)) return status;
        return read_whole(fd, m->mapping, n, what, why);
    }
    void *p = mmap(nullptr, n, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return fail(why, errno == ENOMEM ? SQ_E_MEM : SQ_E_IO, "cannot map %s: %s", what, strerror(errno));
    m->mapping = p;
    m->mapping_bytes = n;
    m->is_mapped = true;
    return SQ_OK;
}

// O_NONBLOCK: opening a FIFO must not wait for a writer, to find then that it is no regular file. A signal can interrupt opening a file of a network.
int open_to_read(const char *path) {
    int fd;
    do fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    return fd;
}

// Puts the file's bytes at *data, 64-byte aligned, owned by m or borrowed.
int acquire(sq_model *m, const model_source &source, bool copy, bool huge_pages, const void **data, size_t *n_bytes, message *why) {
    int status = SQ_OK;
    if (source.data && !copy) {
        if (reinterpret_cast<uintptr_t>(source.data) % FILE_ALIGN != 0) return fail(why, SQ_E_ARG, "borrowed model bytes must be 64-byte aligned (or set copy)");
        *data = source.data;
        *n_bytes = source.n_bytes;
        return SQ_OK;
    }
    if (source.data) {
        status = private_copy(m, source.n_bytes, huge_pages, why);
        if (status == SQ_OK) memcpy(m->mapping, source.data, source.n_bytes);
    } else if (source.path) {
        const int fd = open_to_read(source.path);
        if (fd < 0) return fail(why, SQ_E_IO, "cannot open %s: %s", source.path, strerror(errno));
        status = bytes_from_fd(m, fd, copy, huge_pages, source.path, why);
        close(fd);
    } else {
        status = bytes_from_fd(m, source.fd, copy, huge_pages, "the file descriptor", why);
    }
    *data = m->mapping;
    *n_bytes = m->mapping_bytes;
    return status;
}

struct model_deleter {
    void operator()(sq_model *m) const { model_release(m); }
};

} // namespace

int model_open(const model_source &source, const sq_model_params &params, sq_model **model, message *why) {
    std::unique_ptr<sq_model, model_deleter> m(new sq_model);
    if (int status = choose_kernels(params.isa, &m->kernels, &m->isa_reason, why)) return status;
    const void *data = nullptr;
    size_t n_bytes = 0;
    if (int status = acquire(m.get(), source, params.copy || params.huge_pages, params.huge_pages, &data, &n_bytes, why)) return status;
    if (int status = m->file.open(data, n_bytes, why)) return status;
    if (params.verify)
        if (int status = m->file.verify(why)) return status;
    resolver r{m.get(), why};
    r.all();
    if (r.ok()) *model = m.release();
    return r.status;
}

void model_hold(sq_model *model) { model->n_holds.fetch_add(1, std::memory_order_relaxed); }

void model_release(sq_model *model) {
    if (model->n_holds.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (model->is_mapped) munmap(model->mapping, model->mapping_bytes);
    else free(model->mapping);
    delete model;
}

} // namespace sq
