// tests/scratch.h - a folder for a test's files, which goes away with the object.
#ifndef SQ_TESTS_SCRATCH_H
#define SQ_TESTS_SCRATCH_H

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

struct scratch {
    std::string path;

    scratch() {
        const char *base = getenv("TMPDIR");
        path = std::string(base && *base ? base : "/tmp") + "/sq-test-XXXXXX";
        if (!mkdtemp(&path[0])) abort();
    }
    scratch(const scratch &) = delete;
    scratch &operator=(const scratch &) = delete;
    ~scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }

    // Writes a file; name may lie in a subfolder, which is made.
    void put(const std::string &name, const std::string &bytes) const {
        const std::filesystem::path file = path + "/" + name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream out(file, std::ios::binary);
        out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        if (!out.flush()) abort();
    }
};

#endif
