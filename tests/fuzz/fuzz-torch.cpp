// tests/fuzz/fuzz-torch.cpp - any bytes as pytorch_model.bin: zip archives, streams, and the pickles in both.
#include "weights-file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    read_weight_file("pytorch_model.bin", data, n_bytes);
    return 0;
}
