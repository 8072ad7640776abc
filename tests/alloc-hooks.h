// tests/alloc-hooks.h - for one source file of a test program: every way to get memory is counted, and can be made to fail.
//
// On glibc, malloc and its kin are replaced, so that the C library's own needs and operator new are seen too. Under AddressSanitizer, which must keep malloc,
// operator new is replaced instead. Memory maps and threads are seen in both, but for threads under the sanitizer.
#ifndef SQ_TESTS_ALLOC_HOOKS_H
#define SQ_TESTS_ALLOC_HOOKS_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <new>

#include "check.h"

#if defined(__GLIBC__) && defined(__linux__) && !defined(__SANITIZE_THREAD__)
#define ALLOC_HOOKS 1
#else
#define ALLOC_HOOKS 0
#endif

#if ALLOC_HOOKS

#include <dlfcn.h>

namespace alloc_hooks {

inline std::atomic<size_t> n_allocations{0};
inline std::atomic<long> n_live{0}; // blocks and maps that have not been given back

inline std::atomic<long> until_failure{-1}; // allocations that still succeed before one fails; -1: none fails
inline std::atomic<bool> fails_on{false};   // whether all that follow fail too
inline std::atomic<size_t> n_failed{0};
inline std::atomic<bool (*)(const void *caller)> is_exempt{nullptr}; // this caller's allocations do not fail: the next one does

// Makes the n-th allocation from now on fail, counted from 0; with `on` the later ones too.
inline void fail_at(long n, bool on) {
    n_failed = 0;
    fails_on = on;
    until_failure = n;
}

// Ends that; returns how many failed.
inline size_t fail_no_more() {
    until_failure = -1;
    return n_failed;
}

// Whether an allocation may succeed.
inline bool may(const void *caller) {
    n_allocations++;
    const long left = until_failure;
    if (left < 0) return true;
    if (left > 0) {
        until_failure = left - 1;
        return true;
    }
    const auto exempt = is_exempt.load();
    if (exempt && exempt(caller)) return true;
    if (!fails_on) until_failure = -1;
    n_failed++;
    errno = ENOMEM;
    return false;
}

inline void *counted(void *p) {
    if (p) n_live++;
    return p;
}

} // namespace alloc_hooks

// Libraries must find these instead of the C library's, whatever -fvisibility says.
#pragma GCC visibility push(default)

#define ALLOC_HOOKS_MAY alloc_hooks::may(__builtin_return_address(0))

#if CHECK_SANITIZED

void *operator new(size_t n) {
    void *p = ALLOC_HOOKS_MAY ? malloc(n ? n : 1) : nullptr;
    if (!p) throw std::bad_alloc();
    return alloc_hooks::counted(p);
}
void *operator new[](size_t n) { return operator new(n); }
void *operator new(size_t n, const std::nothrow_t &) noexcept { return ALLOC_HOOKS_MAY ? alloc_hooks::counted(malloc(n ? n : 1)) : nullptr; }
void *operator new[](size_t n, const std::nothrow_t &t) noexcept { return operator new(n, t); }
void operator delete(void *p) noexcept {
    if (p) alloc_hooks::n_live--;
    free(p);
}
void operator delete[](void *p) noexcept { operator delete(p); }
void operator delete(void *p, size_t) noexcept { operator delete(p); }
void operator delete[](void *p, size_t) noexcept { operator delete(p); }

#else

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t n) { return ALLOC_HOOKS_MAY ? alloc_hooks::counted(__libc_malloc(n)) : nullptr; }
void *calloc(size_t n, size_t m) { return ALLOC_HOOKS_MAY ? alloc_hooks::counted(__libc_calloc(n, m)) : nullptr; }
void *realloc(void *p, size_t n) {
    if (!ALLOC_HOOKS_MAY) return nullptr;
    void *fresh = __libc_realloc(p, n);
    return p ? fresh : alloc_hooks::counted(fresh);
}
void *memalign(size_t a, size_t n) { return ALLOC_HOOKS_MAY ? alloc_hooks::counted(__libc_memalign(a, n)) : nullptr; }
void *aligned_alloc(size_t a, size_t n) { return ALLOC_HOOKS_MAY ? alloc_hooks::counted(__libc_memalign(a, n)) : nullptr; }
int posix_memalign(void **p, size_t a, size_t n) {
    if (!ALLOC_HOOKS_MAY) return ENOMEM;
    *p = alloc_hooks::counted(__libc_memalign(a, n));
    return *p ? 0 : ENOMEM;
}
void free(void *p) {
    if (p) alloc_hooks::n_live--;
    __libc_free(p);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    using create_fn = int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static const create_fn real = reinterpret_cast<create_fn>(dlsym(RTLD_NEXT, "pthread_create"));
    return ALLOC_HOOKS_MAY ? real(thread, attributes, start, argument) : EAGAIN;
}
}

#endif

extern "C" {
void *mmap(void *address, size_t n, int protection, int flags, int fd, off_t offset) noexcept {
    if (!ALLOC_HOOKS_MAY) return MAP_FAILED;
    void *p = reinterpret_cast<void *>(syscall(SYS_mmap, address, n, protection, flags, fd, offset));
    if (p != MAP_FAILED) alloc_hooks::n_live++;
    return p;
}
int munmap(void *address, size_t n) noexcept {
    alloc_hooks::n_live--;
    return static_cast<int>(syscall(SYS_munmap, address, n));
}
}

#pragma GCC visibility pop

#endif

#endif
