/* tests/check.h - checks for test programs, in C11 and C++17: no framework, one program a file, the exit code is the verdict.
 *
 *     int main(void) {
 *         CHECK(p != NULL);
 *         CHECK_EQ(count, 3);                 integers, pointers to text; in C++ anything that streams
 *         CHECK_NEAR(y, 0.5, 1e-6);           |y - 0.5| <= 1e-6, false for a NaN
 *         if (!has_avx512) SKIP("this CPU has no AVX-512");
 *         return check_summary("test-name");
 *     }
 *
 * A failed check prints where and what, counts, and lets the program go on. CHECK returns whether it held, so that `if (!CHECK(p)) return ...` guards what
 * follows. Checks may run on any thread. After FAIL_LINES failures only the count goes on, so that a broken kernel does not print a million lines.
 * The exit code is 0 (passed), 1 (a check failed), 77 (nothing could be checked and something was skipped: CTest and run-tests.sh count it as skipped). */
#ifndef SQ_TESTS_CHECK_H
#define SQ_TESTS_CHECK_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
#include <atomic>
#include <sstream>
#include <string>
#include <type_traits>
typedef std::atomic<long> check_counter;
#else
typedef _Atomic long check_counter;
#endif

/* 1 in sanitizer builds, which are ten times slower and allocate in their own way. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define CHECK_SANITIZED 1
#endif
#endif
#ifndef CHECK_SANITIZED
#define CHECK_SANITIZED 0
#endif

enum { CHECK_FAIL_LINES = 20, CHECK_EXIT_SKIPPED = 77 };

static check_counter check_n_passed, check_n_failed, check_n_skipped;

static inline int check_result(int ok, const char *file, int line, const char *what, const char *values) {
    if (ok) {
        ++check_n_passed;
        return 1;
    }
    if (++check_n_failed <= CHECK_FAIL_LINES) fprintf(stderr, "FAILED %s:%d: %s%s%s\n", file, line, what, *values ? ": " : "", values);
    return 0;
}

static inline int check_near(double a, double b, double bound, const char *file, int line, const char *what) {
    char values[160];
    snprintf(values, sizeof values, "%.9g and %.9g differ by %.3g, allowed %.3g", a, b, fabs(a - b), bound);
    return check_result(fabs(a - b) <= bound, file, line, what, values);
}

static inline void check_skip(const char *file, int line, const char *why) {
    ++check_n_skipped;
    printf("SKIP %s:%d: %s\n", file, line, why);
}

static inline int check_summary(const char *name) {
    long passed = check_n_passed, failed = check_n_failed, skipped = check_n_skipped;
    printf("%s: %ld passed, %ld failed\n", name, passed, failed);
    if (failed) return 1;
    return passed == 0 && skipped > 0 ? CHECK_EXIT_SKIPPED : 0;
}

#ifdef __cplusplus

/* Text is compared by content, whether it comes as a string or as a pointer; integers and enumerations of any width and sign by value. */
inline std::string check_value(const char *s) { return s ? s : "(null)"; }
inline std::string check_value(char *s) { return s ? s : "(null)"; }
template <class T> auto check_value(const T &x) {
    if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) return static_cast<long long>(x);
    else return x;
}

template <class A, class B> int check_eq(const A &a, const B &b, const char *file, int line, const char *what) {
    if (check_value(a) == check_value(b)) return check_result(1, file, line, what, "");
    std::ostringstream values;
    values << check_value(a) << " is not " << check_value(b);
    return check_result(0, file, line, what, values.str().c_str());
}

#define CHECK_EQ(a, b) check_eq((a), (b), __FILE__, __LINE__, #a " == " #b)

#else

static inline int check_eq_integer(long long a, long long b, const char *file, int line, const char *what) {
    char values[80];
    snprintf(values, sizeof values, "%lld is not %lld", a, b);
    return check_result(a == b, file, line, what, values);
}

static inline int check_eq_text(const char *a, const char *b, const char *file, int line, const char *what) {
    char values[400];
    snprintf(values, sizeof values, "%.180s is not %.180s", a ? a : "(null)", b ? b : "(null)");
    return check_result(a && b ? strcmp(a, b) == 0 : a == b, file, line, what, values);
}

/* clang-format off */
#define CHECK_EQ(a, b) _Generic((a), char *: check_eq_text, const char *: check_eq_text, default: check_eq_integer)((a), (b), __FILE__, __LINE__, #a " == " #b)
/* clang-format on */

#endif

#define CHECK(condition) check_result((condition) ? 1 : 0, __FILE__, __LINE__, #condition, "")
#define CHECK_NEAR(a, b, bound) check_near((a), (b), (bound), __FILE__, __LINE__, #a " ~ " #b)
#define SKIP(why) check_skip(__FILE__, __LINE__, (why))

#endif
