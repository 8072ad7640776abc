// convert/build-trie.cpp - places the nodes of a trie in one array, depth first, each where its children fit between those of others.
#include "build-trie.h"

#include <algorithm>

#include "../sq-tok-file.h"

namespace sq {

namespace {

constexpr uint32_t BLOCK = 256;      // the children of a node lie in one aligned block, since a label is a byte
constexpr uint32_t OPEN_BLOCKS = 32; // free units of older blocks are given up: few are left there, and the search stays short
constexpr uint32_t NONE = UINT32_MAX;

// The array while it grows; its free units form a ring of indices, oldest first.
class placer {
  public:
    // A base at which every label's unit is free, taken for this node; NONE: the array is full.
    uint32_t take(const std::vector<uint8_t> &labels) {
        for (uint32_t f = head_; f != NONE; f = next_[f]) {
            const uint32_t base = f ^ labels[0];
            if (!is_base_[base] && fits(base, labels)) return occupy(base, labels);
        }
        const uint32_t block = uint32_t(units_.size());
        if (!grow()) return NONE;
        return occupy(block, labels);
    }
    void set(uint32_t at, uint32_t unit) { units_[at] = unit; }
    void reserve_root() {
        grow();
        unlink(0);
    }
    std::vector<uint32_t> &units() { return units_; }

  private:
    bool fits(uint32_t base, const std::vector<uint8_t> &labels) const {
        return std::all_of(labels.begin(), labels.end(), [&](uint8_t label) { return is_free_[base ^ label]; });
    }

    uint32_t occupy(uint32_t base, const std::vector<uint8_t> &labels) {
        is_base_[base] = true;
        for (const uint8_t label : labels) unlink(base ^ label);
        return base;
    }

    bool grow() {
        const uint32_t first = uint32_t(units_.size());
        if (first + BLOCK > TRIE_MAX_VALUE) return false;
        for (std::vector<bool> *v : {&is_free_, &is_base_}) v->resize(first + BLOCK);
        units_.resize(first + BLOCK);
        next_.resize(first + BLOCK);
        before_.resize(first + BLOCK);
        if (first >= OPEN_BLOCKS * BLOCK)
            for (uint32_t i = first - OPEN_BLOCKS * BLOCK; i < first - (OPEN_BLOCKS - 1) * BLOCK; i++)
                if (is_free_[i]) unlink(i);
        for (uint32_t i = first; i < first + BLOCK; i++) {
            is_free_[i] = true;
            before_[i] = tail_;
            next_[i] = NONE;
            (tail_ == NONE ? head_ : next_[tail_]) = i;
            tail_ = i;
        }
        return true;
    }

    void unlink(uint32_t i) {
        is_free_[i] = false;
        (before_[i] == NONE ? head_ : next_[before_[i]]) = next_[i];
        (next_[i] == NONE ? tail_ : before_[next_[i]]) = before_[i];
    }

    std::vector<uint32_t> units_, next_, before_;
    std::vector<bool> is_free_, is_base_;
    uint32_t head_ = NONE, tail_ = NONE;
};

// Sorted, without repetitions.
void tidy(std::vector<trie_key> *keys) {
    std::stable_sort(keys->begin(), keys->end(), [](const trie_key &a, const trie_key &b) { return a.bytes < b.bytes; });
    size_t n = 0;
    for (size_t i = 0; i < keys->size(); i++)
        if (i + 1 == keys->size() || (*keys)[i].bytes != (*keys)[i + 1].bytes) (*keys)[n++] = (*keys)[i];
    keys->resize(n);
}

// Keys first .. past-1 share `depth` bytes and hang below the unit at `at`.
struct job {
    const std::vector<trie_key> *keys;
    size_t first, past, depth;
    uint32_t at;
    uint8_t label;
};

bool place(const job &j, placer *array, std::vector<job> *jobs) {
    const std::vector<trie_key> &keys = *j.keys;
    if (j.past - j.first == 1) {
        array->set(j.at, trie_unit(j.label, TRIE_LEAF, keys[j.first].id));
        return true;
    }
    const bool terminal = keys[j.first].bytes.size() == j.depth;
    std::vector<uint8_t> labels;
    std::vector<size_t> begins; // of the keys behind each label
    for (size_t i = j.first; i < j.past; i++) {
        const uint8_t label = keys[i].bytes.size() == j.depth ? 0 : uint8_t(keys[i].bytes[j.depth]);
        if (labels.empty() || labels.back() != label) {
            labels.push_back(label);
            begins.push_back(i);
        }
    }
    begins.push_back(j.past);
    const uint32_t base = array->take(labels);
    if (base == NONE) return false;
    array->set(j.at, trie_unit(j.label, terminal ? TRIE_TERMINAL : TRIE_INNER, base));
    for (size_t i = labels.size(); i-- > 0;) jobs->push_back({j.keys, begins[i], begins[i + 1], j.depth + 1, base ^ labels[i], labels[i]});
    return true;
}

} // namespace

std::vector<uint32_t> build_trie(std::vector<trie_key> whole, std::vector<trie_key> continuing) {
    tidy(&whole);
    tidy(&continuing);
    placer array;
    array.reserve_root();
    const uint32_t base = array.take({SET_WHOLE, SET_CONTINUING});
    array.set(0, trie_unit(0, TRIE_INNER, base));
    std::vector<job> jobs;
    if (!continuing.empty()) jobs.push_back({&continuing, 0, continuing.size(), 0, base ^ SET_CONTINUING, SET_CONTINUING});
    if (!whole.empty()) jobs.push_back({&whole, 0, whole.size(), 0, base ^ SET_WHOLE, SET_WHOLE});
    while (!jobs.empty()) {
        const job j = jobs.back();
        jobs.pop_back();
        if (!place(j, &array, &jobs)) return {};
    }
    return array.units();
}

} // namespace sq
