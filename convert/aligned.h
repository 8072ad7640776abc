// convert/aligned.h - 64-byte aligned zeros, as kernels want them; for the offline code.
#ifndef SQ_CONVERT_ALIGNED_H
#define SQ_CONVERT_ALIGNED_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "../sq-kernels.h"

namespace sq {

template <class T> class aligned {
  public:
    aligned() = default;
    explicit aligned(size_t n) {
        void *p = nullptr;
        if (posix_memalign(&p, 64, std::max<size_t>(n, 1) * sizeof(T)) != 0) throw std::bad_alloc();
        memset(p, 0, n * sizeof(T));
        p_.reset(static_cast<T *>(p));
    }
    T *get() const { return p_.get(); }

  private:
    struct free_deleter {
        void operator()(void *p) const { free(p); }
    };
    std::unique_ptr<T, free_deleter> p_;
};

// A copy whose length is rounded up to 16
template <class T> aligned<T> padded(const std::vector<T> &v) {
    aligned<T> out(round_up(v.size(), 16));
    std::copy(v.begin(), v.end(), out.get());
    return out;
}

} // namespace sq

#endif
