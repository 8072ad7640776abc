// tests/fuzz/fuzz-safetensors.cpp - any bytes as model.safetensors.
#include "weights-file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    read_weight_file("model.safetensors", data, n_bytes);
    return 0;
}
