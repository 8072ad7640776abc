// tests/test-checkpoint.cpp - reading checkpoints: the good and hostile folders that make-checkpoints.py made, then good files truncated at every length and with
// every byte changed. Run from the repository's root.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "../convert/read-checkpoint.h"
#include "../sq-model.h"
#include "check.h"
#include "scratch.h"

using namespace sq;

static const std::string DATA = "tests/data/checkpoints";

static std::string bytes_of(const std::string &folder, const std::string &name) {
    source_file file;
    message why;
    CHECK_EQ(file.open(folder, name, &why), SQ_OK);
    return std::string(reinterpret_cast<const char *>(file.data()), file.size());
}

static std::string text_at(const json::value &v, const char *key) { return v.find(key) ? v.find(key)->text : ""; }

static void check_message(const std::string &folder, const message &why, const std::string &part) {
    if (!CHECK(std::string(why.text).find(part) != std::string::npos)) fprintf(stderr, "  %s: \"%s\" lacks \"%s\"\n", folder.c_str(), why.text, part.c_str());
}

static void check_tensor(const std::string &folder, const source_tensor &t, const json::value &expected) {
    CHECK_EQ(text_at(expected, "dtype"), element_name(t.type));
    std::vector<uint64_t> shape;
    for (const json::value &dim : expected.find("shape")->items) shape.push_back(static_cast<uint64_t>(dim.integer));
    CHECK_EQ(shape_text(t.shape), shape_text(shape));
    std::vector<float> values(t.n_elements); // of just that size, so that a sanitizer sees a write past its end
    message why{};
    const int status = read_f32(t, values.data(), &why);
    if (expected.find("error")) {
        CHECK_EQ(status, SQ_E_FORMAT);
        check_message(folder, why, text_at(expected, "error"));
        return;
    }
    CHECK_EQ(status, SQ_OK);
    CHECK_EQ(static_cast<int64_t>(crc32(0, values.data(), values.size() * sizeof(float))), expected.find("crc32")->integer);
}

static void test_case(const json::value &c) {
    const std::string folder = text_at(c, "folder");
    checkpoint loaded;
    message why{};
    const int status = loaded.open(DATA + "/" + folder, &why);
    if (!CHECK_EQ(static_cast<int64_t>(status), c.find("status")->integer)) fprintf(stderr, "  %s: %s\n", folder.c_str(), why.text);
    if (status != SQ_OK) return check_message(folder, why, text_at(c, "message"));
    const json::value *tensors = c.find("tensors");
    if (!CHECK(tensors)) return;
    CHECK_EQ(loaded.tensors().size(), tensors->members.size());
    for (const json::member &m : tensors->members) {
        const source_tensor *t = loaded.find(m.key);
        if (!CHECK(t)) continue;
        CHECK_EQ(t->name, m.key);
        check_tensor(folder, *t, m.item);
    }
    CHECK(!loaded.find("no such tensor"));
}

// Opens, and reads everything that can be read; what comes out does not matter, that it comes does.
static int use(const std::string &folder, message *why) {
    checkpoint loaded;
    const int status = loaded.open(folder, why);
    for (const source_tensor &t : loaded.tensors()) {
        std::vector<float> values(t.n_elements);
        if (status == SQ_OK) read_f32(t, values.data(), nullptr);
    }
    return status;
}

// A copy of a good file in a folder of its own, to be changed in place.
struct copy_of_file {
    scratch folder;
    std::string whole;
    int fd;

    copy_of_file(const std::string &from, const std::string &name) : whole(bytes_of(DATA + "/" + from, name)) {
        folder.put(name, whole);
        fd = open((folder.path + "/" + name).c_str(), O_WRONLY);
        CHECK(fd >= 0);
    }
    ~copy_of_file() { close(fd); }
    void put(size_t at, char byte) const { CHECK_EQ(pwrite(fd, &byte, 1, static_cast<off_t>(at)), ssize_t(1)); }
    void cut(size_t n_bytes) const { CHECK_EQ(ftruncate(fd, static_cast<off_t>(n_bytes)), 0); }
};

// A file cut anywhere is refused.
static void test_truncation(const std::string &from, const std::string &name) {
    const copy_of_file copy(from, name);
    CHECK_EQ(use(copy.folder.path, nullptr), SQ_OK);
    for (size_t n = copy.whole.size(); n-- > 0;) {
        copy.cut(n);
        message why{};
        if (!CHECK_EQ(use(copy.folder.path, &why), SQ_E_FORMAT)) fprintf(stderr, "  %s/%s cut to %zu bytes\n", from.c_str(), name.c_str(), n);
        CHECK(why.text[0] != '\0');
    }
}

// A changed byte gives other values or a refusal, and never a crash.
static void test_changed_bytes(const std::string &from, const std::string &name) {
    const copy_of_file copy(from, name);
    for (size_t i = 0; i < copy.whole.size(); i++) {
        for (const int mask : {0x01, 0x10, 0x80, 0xFF}) {
            copy.put(i, static_cast<char>(copy.whole[i] ^ mask));
            message why{};
            const int status = use(copy.folder.path, &why);
            CHECK(status == SQ_OK || (status == SQ_E_FORMAT && why.text[0] != '\0'));
        }
        copy.put(i, copy.whole[i]);
    }
}

static void test_unusual_files() {
    message why{};
    {
        scratch s; // a link to nothing is reported, not taken for absence
        CHECK_EQ(symlink("nowhere", (s.path + "/model.safetensors").c_str()), 0);
        s.put("pytorch_model.bin", "");
        checkpoint c;
        CHECK_EQ(c.open(s.path, &why), SQ_E_IO);
        check_message("dangling link", why, "cannot open model.safetensors: No such file");
    }
    {
        scratch s;
        CHECK_EQ(mkfifo((s.path + "/model.safetensors").c_str(), 0600), 0);
        checkpoint c;
        CHECK_EQ(c.open(s.path, &why), SQ_E_IO);
        check_message("fifo", why, "model.safetensors is not a regular file");
    }
    {
        scratch s; // 8 MiB of header and one byte, none of it written
        s.put("model.safetensors", std::string("\x01\x00\x80\x00\x00\x00\x00\x00{", 9));
        CHECK_EQ(truncate((s.path + "/model.safetensors").c_str(), 20 << 20), 0);
        checkpoint c;
        CHECK_EQ(c.open(s.path, &why), SQ_E_FORMAT);
        check_message("large header", why, "the header is larger than 8 MiB");
    }
    checkpoint c;
    CHECK_EQ(c.open("no/such/folder", &why), SQ_E_IO);
    check_message("no folder", why, "no/such/folder has neither");
}

static void test_files() {
    checkpoint c;
    message why{};
    if (!CHECK_EQ(c.open(DATA + "/shards", &why), SQ_OK) || !CHECK_EQ(c.files().size(), size_t(2))) return;
    CHECK_EQ(c.files()[0].name(), "model-00001-of-00002.safetensors");
    const std::string bytes = bytes_of(DATA + "/shards", c.files()[1].name());
    CHECK_EQ(c.files()[1].crc(), crc32(0, bytes.data(), bytes.size()));
    CHECK(c.find("y")->file == &c.files()[1]);
    const checkpoint moved = std::move(c); // tensors keep pointing to the files
    CHECK(moved.find("y")->file == &moved.files()[1]);
    CHECK_EQ(moved.find("y")->file->name(), "model-00002-of-00002.safetensors");
}

int main() {
    json::value cases;
    message why{};
    if (CHECK_EQ(read_json(DATA, "cases.json", 1 << 20, &cases, &why), SQ_OK))
        for (const json::value &c : cases.items) test_case(c);
    CHECK(cases.items.size() > 200);
    test_truncation("st-types", "model.safetensors");
    test_changed_bytes("st-types", "model.safetensors");
    for (const char *folder : {"bin-types", "bin-zip64", "bin-stream"}) {
        test_truncation(folder, "pytorch_model.bin");
        test_changed_bytes(folder, "pytorch_model.bin");
    }
    test_unusual_files();
    test_files();
    return check_summary("test-checkpoint");
}
