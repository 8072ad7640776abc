// tests/fuzz/replay.cpp - runs a fuzz target over files and folders named as arguments, without libFuzzer: corpora become ordinary tests.
#include <stdint.h>
#include <stdio.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

namespace fs = std::filesystem;

static void collect(const fs::path &path, std::vector<fs::path> *files) {
    if (!fs::is_directory(path)) {
        files->push_back(path);
        return;
    }
    for (const fs::directory_entry &entry : fs::recursive_directory_iterator(path))
        if (entry.is_regular_file()) files->push_back(entry.path());
}

int main(int argc, char **argv) {
    std::vector<fs::path> files;
    for (int i = 1; i < argc; i++) collect(argv[i], &files);
    std::sort(files.begin(), files.end());
    LLVMFuzzerTestOneInput(nullptr, 0);
    for (const fs::path &path : files) {
        std::ifstream in(path, std::ios::binary);
        if (!in) {
            fprintf(stderr, "replay: cannot open %s\n", path.c_str());
            return 1;
        }
        const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        fprintf(stderr, "%s\n", path.c_str()); // so that a crash names its file
        // A copy of exactly the right size, so that AddressSanitizer sees a read past the end.
        const std::vector<uint8_t> data(bytes.begin(), bytes.end());
        LLVMFuzzerTestOneInput(data.data(), data.size());
    }
    printf("%zu inputs\n", files.size());
    return 0;
}
