// examples/cli-fail.cpp - failing: every command ends by what these throw.
#include <stdarg.h>

#include "cli-common.h"

namespace cli {

static failure make_failure(int exit_code, const char *format, va_list args) {
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    return failure{exit_code, text};
}

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    failure f = make_failure(EXIT_FAILED, format, args);
    va_end(args);
    throw f;
}

void fail_usage(const char *format, ...) {
    va_list args;
    va_start(args, format);
    failure f = make_failure(EXIT_USAGE, format, args);
    va_end(args);
    throw f;
}

} // namespace cli
