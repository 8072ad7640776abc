// tests/fuzz/fuzz-checkpoint.cpp - any bytes as a file of a checkpoint folder. The first byte chooses which file; all tensors are then read.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <iterator>
#include <string>
#include <vector>

#include "../../convert/read-checkpoint.h"
#include "../../sq.h"

using namespace sq;

static const char *const NAMES[] = {"model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json"};

namespace {

// One folder for the life of the process.
struct scratch {
    std::string path;
    scratch() {
        const char *base = getenv("TMPDIR");
        path = std::string(base ? base : "/tmp") + "/sq-fuzz-XXXXXX";
        if (!mkdtemp(&path[0])) abort();
    }
    ~scratch() { rmdir(path.c_str()); }
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const scratch folder;
    if (n_bytes == 0) return 0;
    const std::string path = folder.path + "/" + NAMES[data[0] % std::size(NAMES)];
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data + 1, n_bytes - 1) != static_cast<ssize_t>(n_bytes - 1)) abort();
    close(fd);
    checkpoint c;
    message why{};
    const int status = c.open(folder.path, &why);
    if (status != SQ_OK && why.text[0] == '\0') abort();
    for (const source_tensor &t : c.tensors()) {
        if (status != SQ_OK) break;
        if (t.n_elements * element_bytes(t.type) > n_bytes) abort();
        std::vector<float> values(t.n_elements);
        if (read_f32(t, values.data(), &why) != SQ_OK && strstr(why.text, "tensor '") == nullptr) abort();
    }
    unlink(path.c_str());
    return 0;
}
