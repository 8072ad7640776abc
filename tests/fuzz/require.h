// tests/fuzz/require.h - for fuzz targets: what must hold whatever the input is, and small numbers taken from the front of the input.
#ifndef SQ_TESTS_FUZZ_REQUIRE_H
#define SQ_TESTS_FUZZ_REQUIRE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>

#include "../../sq-tok.h"
#include "../../sq.h"

#define REQUIRE(condition) require((condition), #condition, __FILE__, __LINE__)

inline void require(bool condition, const char *what, const char *file, int line) {
    if (condition) return;
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    abort();
}

// What is refused must be refused with a reason.
inline void require_reason(int status, const sq::message &why) {
    REQUIRE(status <= SQ_OK);
    if (status != SQ_OK) REQUIRE(why.text[0] != '\0');
}

// The input, read from its front. Past the end numbers are 0.
class input_bytes {
  public:
    input_bytes(const uint8_t *data, size_t n_bytes) : p_(data), end_(data + n_bytes) {}

    size_t left() const { return static_cast<size_t>(end_ - p_); }
    unsigned byte() { return p_ < end_ ? *p_++ : 0; }
    unsigned word() {
        const unsigned low = byte();
        return low | byte() << 8;
    }
    std::string rest() {
        const std::string text(p_, end_);
        p_ = end_;
        return text;
    }

  private:
    const uint8_t *p_, *end_;
};

#endif
