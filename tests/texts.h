// tests/texts.h - for tests: texts end to end, as the API takes them.
#ifndef SQ_TESTS_TEXTS_H
#define SQ_TESTS_TEXTS_H

#include <string>
#include <vector>

#include "../sq.h"

struct text_list {
    std::string a, b;
    std::vector<size_t> a_starts{0}, b_starts{0};

    // The list must outlive the result.
    sq_texts texts(bool pairs) const {
        return {sizeof(sq_texts), static_cast<uint32_t>(a_starts.size()) - 1, a.data(), a_starts.data(), pairs ? b.data() : nullptr, pairs ? b_starts.data() : nullptr};
    }
    void add(const std::string &first, const std::string &second = "") {
        a += first;
        b += second;
        a_starts.push_back(a.size());
        b_starts.push_back(b.size());
    }
};

#endif
