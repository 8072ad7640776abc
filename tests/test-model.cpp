// test-model.cpp - the model file's reader: what it must refuse, with the exact status, and that no damage of any kind crashes it.
//
// usage: test-model [--write DIR]     writes the damaged files of tests/golden-bad and their list, for the fuzzer and for other readers; from make-mini.py's checkpoint
#include "models.h"

namespace {

// ---- editing a model file ----

void put_u32(std::string *f, size_t at, uint32_t v) {
    for (int i = 0; i < 4; i++) (*f)[at + static_cast<size_t>(i)] = static_cast<char>(v >> 8 * i);
}
void put_u64(std::string *f, size_t at, uint64_t v) {
    put_u32(f, at, static_cast<uint32_t>(v));
    put_u32(f, at + 4, static_cast<uint32_t>(v >> 32));
}
uint32_t get_u32(const std::string &f, size_t at) {
    uint32_t v = 0;
    for (size_t i = 0; i < 4; i++) v |= static_cast<uint32_t>(static_cast<uint8_t>(f[at + i])) << 8 * i;
    return v;
}

// Makes the checksum of metadata and tensor table right again, so that what they say is reached.
void seal(std::string *f) {
    const size_t n = std::min<size_t>(get_u32(*f, 24), f->size() - 64);
    put_u32(f, 20, sq::crc32(0, f->data() + 64, n));
}

// First byte of the value of a metadata entry, behind key, type and byte count.
size_t meta_value(const std::string &f, const std::string &key) { return f.find(key) + key.size() + 8; }
// First byte behind a tensor's name: type, layout, rows, columns (u32), offset, bytes (u64), CRC (u32).
size_t tensor_fields(const std::string &f, const std::string &name) {
    std::string with_length(4, '\0');
    put_u32(&with_length, 0, static_cast<uint32_t>(name.size()));
    return f.find(with_length + name) + 4 + name.size();
}
void put_float(std::string *f, const std::string &tensor, size_t i, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_u32(f, get_u32(*f, tensor_fields(*f, tensor) + 16) + 4 * i, bits);
}

struct damage {
    const char *name;
    int status;
    void (*apply)(std::string *);
};

const damage DAMAGES[] = {
    {"empty", SQ_E_FORMAT, [](std::string *f) { f->clear(); }},
    {"header-cut", SQ_E_FORMAT, [](std::string *f) { f->resize(63); }},
    {"tables-cut", SQ_E_FORMAT, [](std::string *f) { f->resize(200); }},
    {"data-cut", SQ_E_FORMAT, [](std::string *f) { f->resize(f->size() - 1); }},
    {"longer", SQ_E_FORMAT, [](std::string *f) { f->push_back('\0'); }},
    {"magic", SQ_E_FORMAT, [](std::string *f) { (*f)[0] = 'G'; }},
    {"version-0", SQ_E_FORMAT, [](std::string *f) { put_u32(f, 8, 0); }},
    {"version-next", SQ_E_VERSION, [](std::string *f) { put_u32(f, 8, sq::FILE_VERSION + 1); }},
    {"version-huge", SQ_E_VERSION, [](std::string *f) { put_u32(f, 8, UINT32_MAX); }},
    {"meta-count-huge", SQ_E_FORMAT, [](std::string *f) { put_u32(f, 12, UINT32_MAX); }},
    {"tensor-count-huge", SQ_E_FORMAT, [](std::string *f) { put_u32(f, 16, UINT32_MAX); }},
    {"tensor-count-less", SQ_E_FORMAT, [](std::string *f) { put_u32(f, 16, get_u32(*f, 16) - 1); }},
    {"tables-length-huge", SQ_E_FORMAT, [](std::string *f) { put_u64(f, 24, UINT64_MAX); }},
    {"tables-length-wraps", SQ_E_FORMAT, [](std::string *f) { put_u64(f, 24, UINT64_MAX - 63); }},
    {"tables-crc", SQ_E_FORMAT, [](std::string *f) { (*f)[20] ^= 1; }},
    {"key-length-huge", SQ_E_FORMAT, [](std::string *f) { put_u32(f, 64, 0xFFFFFFF0u); }},
    {"key-empty", SQ_E_FORMAT, [](std::string *f) { put_u32(f, 64, 0); }},
    {"key-twice", SQ_E_FORMAT, [](std::string *f) { f->replace(f->find("model.heads"), 11, "model.width"); }},
    {"meta-type", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.width") - 8, 77); }},
    {"meta-length", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.width") - 4, 3); }},
    {"key-missing", SQ_E_FORMAT, [](std::string *f) { f->replace(f->find("model.heads"), 11, "model.hands"); }},
    {"heads-0", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.heads"), 0); }},
    {"heads-7", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.heads"), 7); }},
    {"layers-0", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.layers"), 0); }},
    {"layers-more", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.layers"), 3); }},
    {"layers-huge", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.layers"), UINT32_MAX); }},
    {"width-0", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.width"), 0); }},
    {"width-other", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.width"), 80); }},
    {"vocab-other", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.vocab"), 1 << 30); }},
    {"positions-huge", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.positions"), UINT32_MAX); }},
    {"max-tokens-over", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.max_tokens"), 57); }},
    {"eps-nan", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.norm_eps"), 0x7FC00000); }},
    {"eps-0", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.norm_eps"), 0); }},
    {"activation-unknown", SQ_E_FORMAT, [](std::string *f) { (*f)[meta_value(*f, "model.activation")] = 'j'; }},
    {"form-unknown", SQ_E_FORMAT, [](std::string *f) { (*f)[meta_value(*f, "layer.1.up.form")] = 'j'; }},
    {"zero-256", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "layer.1.up.zero"), 256); }},
    {"tensor-missing", SQ_E_FORMAT, [](std::string *f) { f->replace(f->find("layer.1.up.bias"), 15, "layer.1.up.bios"); }},
    {"tensor-twice", SQ_E_FORMAT, [](std::string *f) { f->replace(f->find("layer.1.up.bias"), 15, "layer.0.up.bias"); }},
    {"tensor-type", SQ_E_FORMAT, [](std::string *f) { put_u32(f, tensor_fields(*f, "layer.1.up.bias"), 5); }},
    {"tensor-type-other", SQ_E_FORMAT, [](std::string *f) { put_u32(f, tensor_fields(*f, "layer.1.up.bias"), sq::DT_I32); }},
    {"tensor-layout", SQ_E_FORMAT, [](std::string *f) { put_u32(f, tensor_fields(*f, "layer.1.up.bias") + 4, 2); }},
    {"panels-of-u8", SQ_E_FORMAT, [](std::string *f) { put_u32(f, tensor_fields(*f, "layer.1.up.weight"), sq::DT_U8); }},
    {"rows-0", SQ_E_FORMAT, [](std::string *f) { put_u32(f, tensor_fields(*f, "layer.1.up.bias") + 8, 0); }},
    {"shape-wraps", SQ_E_FORMAT,
     [](std::string *f) {
         put_u32(f, tensor_fields(*f, "embed.words") + 8, INT32_MAX);
         put_u32(f, tensor_fields(*f, "embed.words") + 12, INT32_MAX);
     }},
    {"columns-more", SQ_E_FORMAT, [](std::string *f) { put_u32(f, tensor_fields(*f, "layer.1.up.bias") + 12, 1000); }},
    {"offset-unaligned", SQ_E_FORMAT, [](std::string *f) { put_u32(f, tensor_fields(*f, "layer.1.up.bias") + 16, 4096 + 4); }},
    {"offset-in-tables", SQ_E_FORMAT, [](std::string *f) { put_u64(f, tensor_fields(*f, "layer.1.up.bias") + 16, 64); }},
    {"offset-behind", SQ_E_FORMAT, [](std::string *f) { put_u64(f, tensor_fields(*f, "layer.1.up.bias") + 16, f->size()); }},
    {"offset-wraps", SQ_E_FORMAT, [](std::string *f) { put_u64(f, tensor_fields(*f, "layer.1.up.bias") + 16, UINT64_MAX - 63); }},
    {"bytes-huge", SQ_E_FORMAT, [](std::string *f) { put_u64(f, tensor_fields(*f, "layer.1.up.bias") + 24, UINT64_MAX); }},
    {"bias-nan", SQ_E_FORMAT, [](std::string *f) { put_float(f, "layer.1.up.bias", 3, NAN); }},
    {"scale-infinite", SQ_E_FORMAT, [](std::string *f) { put_float(f, "layer.0.qkv.scale", 0, INFINITY); }},
    {"gamma-nan", SQ_E_FORMAT, [](std::string *f) { put_float(f, "embed.norm.gamma", 7, NAN); }},
    {"template-type", SQ_E_FORMAT, [](std::string *f) { put_u32(f, get_u32(*f, tensor_fields(*f, "tok.pair") + 16) + 8, 2); }},
    {"words-scale-nan", SQ_E_FORMAT, [](std::string *f) { put_float(f, "embed.words.scale", 0, NAN); }},
};

// Of a file whose attention is in integers, in heads of width 16
const damage ATTENTION_DAMAGES[] = {
    {"form-unknown", SQ_E_FORMAT, [](std::string *f) { (*f)[meta_value(*f, "layer.1.attention.form")] = 'j'; }},
    {"heads-of-32", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.heads"), 2); }}, // other shapes of the scales
    {"heads-of-8", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.heads"), 8); }},
    {"scale-above-1", SQ_E_FORMAT, [](std::string *f) { put_float(f, "layer.1.attention.scale", 3, 1.5f); }},
    {"scale-negative", SQ_E_FORMAT, [](std::string *f) { put_float(f, "layer.1.attention.scale", 0, -1e-3f); }},
    {"scale-nan", SQ_E_FORMAT, [](std::string *f) { put_float(f, "layer.0.attention.scale", 0, NAN); }},
    {"mul-infinite", SQ_E_FORMAT, [](std::string *f) { put_float(f, "layer.0.attention.mul", 63, INFINITY); }},
    {"scale-missing", SQ_E_FORMAT, [](std::string *f) { f->replace(f->rfind("layer.1.attention.scale"), 23, "layer.1.attention.scald"); }},
    {"positions-huge", SQ_E_FORMAT, [](std::string *f) { put_u32(f, meta_value(*f, "model.positions"), 40000); }},
};

int status_of(const std::string &bytes, bool verify) {
    sq_model_params p{};
    p.size = sizeof p;
    p.copy = 1;
    p.verify = verify;
    sq_model *m = nullptr;
    char err[256] = "";
    const int status = sq_model_load_memory(bytes.data(), bytes.size(), &p, &m, err, sizeof err);
    CHECK(status == SQ_OK ? m != nullptr : m == nullptr && strlen(err) > 10);
    sq_model_free(m);
    return status;
}

template <size_t N> void test_damages(const std::string &good, const damage (&damages)[N]) {
    for (const damage &d : damages) {
        std::string bad = good;
        d.apply(&bad);
        CHECK(bad != good);
        if (bad.size() > 64 && strcmp(d.name, "tables-crc") != 0) seal(&bad);
        if (!CHECK_EQ(status_of(bad, false), d.status)) fprintf(stderr, "  %s\n", d.name);
    }
}

// The committed files: "STATUS NAME" a line in expected.txt.
void test_golden_bad() {
    std::ifstream list("tests/golden-bad/expected.txt");
    CHECK(list.good());
    int status, n = 0;
    std::string name;
    for (; list >> status >> name; n++) {
        std::ifstream in("tests/golden-bad/" + name, std::ios::binary);
        CHECK(in.good());
        std::stringstream bytes;
        bytes << in.rdbuf();
        if (!CHECK_EQ(status_of(bytes.str(), true), status)) fprintf(stderr, "  %s\n", name.c_str());
    }
    CHECK(n > 10);
}

// A file cut anywhere is refused: its length is in its header.
void test_truncation(const std::string &good) {
    for (size_t n = 0; n < good.size(); n += n < 8192 ? 1 : 509) CHECK_EQ(status_of(good.substr(0, n), false), SQ_E_FORMAT);
}

// Every byte of header and tables replaced in turn: any status, but no crash, and with the checksum not mended a refusal.
void test_flips(const std::string &good) {
    const size_t end = 64 + get_u32(good, 24);
    for (size_t at = 0; at < end; at++)
        for (uint8_t mask : {0x01, 0x80, 0xFF}) {
            std::string bad = good;
            bad[at] = static_cast<char>(bad[at] ^ mask);
            if (at >= 8 && (at < 40 || at >= 64)) CHECK(status_of(bad, false) != SQ_OK);
            seal(&bad);
            status_of(bad, false);
        }
}

// A byte of tensor data changed: found when asked for.
void test_verify(const std::string &good) {
    CHECK_EQ(status_of(good, true), SQ_OK);
    const size_t at = get_u32(good, tensor_fields(good, "layer.1.down.weight") + 16);
    std::string bad = good;
    bad[at + 5] = static_cast<char>(bad[at + 5] ^ 4);
    CHECK_EQ(status_of(bad, true), SQ_E_FORMAT);
    CHECK_EQ(status_of(bad, false), SQ_OK);
}

// Published values of this CRC: the check value of "123456789" (Koopman's and Cook's catalogues), and the empty text's 0.
void test_crc() {
    CHECK_EQ(sq::crc32(0, "123456789", 9), 0xCBF43926u);
    CHECK_EQ(sq::crc32(0, "", 0), 0u);
    CHECK_EQ(sq::crc32(sq::crc32(0, "1234", 4), "56789", 5), 0xCBF43926u);
}

// The smallest offenders go to the folder: those whose fault shows in header and tables need no tensor data.
int write_corpus(const std::string &good, const std::string &folder) {
    std::ofstream list(folder + "/expected.txt");
    for (const damage &d : DAMAGES) {
        std::string bad = good;
        d.apply(&bad);
        if (bad.size() > 64 && strcmp(d.name, "tables-crc") != 0) seal(&bad);
        std::ofstream(folder + "/" + d.name + ".sq", std::ios::binary) << bad;
        list << d.status << " " << d.name << ".sq\n";
    }
    return list.good() ? 0 : 1;
}

} // namespace

int main(int argc, char **argv) {
    const std::string good = converted("tests/golden-bad/mini", sq::quant_mode::static_scales);
    if (argc == 3 && strcmp(argv[1], "--write") == 0) return write_corpus(good, argv[2]);
    if (!good.empty()) {
        test_damages(good, DAMAGES);
        test_truncation(good);
        test_flips(good);
        test_verify(good);
    }
    const std::string with_integers = converted("tests/golden/bert-64", sq::quant_mode::static_scales);
    if (CHECK(with_integers.compare(meta_value(with_integers, "layer.1.attention.form"), 2, "s8") == 0)) test_damages(with_integers, ATTENTION_DAMAGES);
    test_golden_bad();
    test_crc();
    return check_summary("test-model");
}
