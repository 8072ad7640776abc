// test-alloc.cpp - sq_forward allocates nothing once its context exists: every way to allocate is counted, on all threads.
#include "models.h"

#include <atomic>

#if defined(__GLIBC__) && !CHECK_SANITIZED

static std::atomic<size_t> n_allocations{0};

// glibc calls these names for its own needs too, and operator new comes here through malloc.
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t n) { return n_allocations++, __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return n_allocations++, __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return n_allocations++, __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { return n_allocations++, __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
    n_allocations++;
    *p = __libc_memalign(a, n);
    return *p ? 0 : 12;
}
}

int main() {
    for (sq::quant_mode mode : ALL_MODES) {
        const model_handle m = load(converted("tests/golden/bert-64", mode));
        if (!m) continue;
        const ctx_handle c = context(m, 3);
        batch_builder b;
        for (const golden_row &r : read_golden("tests/golden/bert-64/expected.jsonl")) b.add(r);
        const sq_batch batch = b.batch();
        std::vector<float> out(b.ids.size() * m->arch.width);
        size_t n = 0, before = n_allocations;
        CHECK(before > 0);
        for (int32_t kind : {SQ_HIDDEN, SQ_POOLED})
            for (int i = 0; i < 3; i++) CHECK_EQ(sq_forward(c.get(), &batch, kind, out.data(), out.size(), &n), SQ_OK);
        CHECK_EQ(n_allocations - before, 0u);
    }
    return check_summary("test-alloc");
}

#else

int main() {
    SKIP("allocations are counted on glibc without sanitizers");
    return check_summary("test-alloc");
}

#endif
