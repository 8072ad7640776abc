// test-alloc.cpp - sq_forward allocates nothing once its context exists: every way to allocate is counted, on all threads.
#include "alloc-hooks.h"
#include "models.h"

#if ALLOC_HOOKS && !CHECK_SANITIZED

int main() {
    for (sq::quant_mode mode : ALL_MODES) {
        const model_handle m = load(converted("tests/golden/bert-64", mode));
        if (!m) continue;
        const ctx_handle c = context(m, 3);
        batch_builder b;
        for (const golden_row &r : read_golden("tests/golden/bert-64/expected.jsonl")) b.add(r);
        const sq_batch batch = b.batch();
        std::vector<float> out(b.ids.size() * m->arch.width);
        size_t n = 0, before = alloc_hooks::n_allocations;
        CHECK(before > 0);
        for (int32_t kind : {SQ_HIDDEN, SQ_POOLED})
            for (int i = 0; i < 3; i++) CHECK_EQ(sq_forward(c.get(), &batch, kind, out.data(), out.size(), &n), SQ_OK);
        CHECK_EQ(alloc_hooks::n_allocations - before, 0u);
    }
    return check_summary("test-alloc");
}

#else

int main() {
    SKIP("allocations are counted on glibc without sanitizers");
    return check_summary("test-alloc");
}

#endif
