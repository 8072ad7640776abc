// convert/read-zip.cpp - see read-zip.h. Section numbers are APPNOTE.TXT's.
#include "read-zip.h"

#include <string.h>

#include "../sq.h"

namespace sq {

namespace {

constexpr uint64_t END_BYTES = 22, END64_BYTES = 56, LOCATOR_BYTES = 20, CENTRAL_BYTES = 46, LOCAL_BYTES = 30; // fixed parts of the records
constexpr uint64_t MAX_COMMENT = 0xFFFF;

// Little-endian fields of a file, all reads checked by the caller.
struct bytes {
    const uint8_t *p;
    uint64_t n;

    bool has(uint64_t at, uint64_t count) const { return at <= n && count <= n - at; }
    uint64_t get(uint64_t at, size_t width) const {
        uint64_t x = 0;
        for (size_t i = 0; i < width; i++) x |= static_cast<uint64_t>(p[at + i]) << (8 * i);
        return x;
    }
    bool starts(uint64_t at, uint64_t count, const char *magic) const { return has(at, count) && memcmp(p + at, magic, 4) == 0; }
};

// Where the central directory is.
struct directory {
    uint64_t n_entries, n_bytes, at;
};

} // namespace

// 4.3.16: the end record lies before a comment of up to 64 KiB; 4.3.15: right before it may be a locator of the record with 64-bit fields (4.3.14).
static bool find_directory(const bytes &b, directory *d) {
    if (b.n < END_BYTES) return false;
    const uint64_t last = b.n - END_BYTES, first = last > MAX_COMMENT ? last - MAX_COMMENT : 0;
    uint64_t end = last;
    while (!(b.starts(end, END_BYTES, "PK\5\6") && b.get(end + 20, 2) == last - end)) {
        if (end == first) return false;
        end--;
    }
    *d = {b.get(end + 10, 2), b.get(end + 12, 4), b.get(end + 16, 4)};
    if (end >= LOCATOR_BYTES && b.starts(end - LOCATOR_BYTES, LOCATOR_BYTES, "PK\6\7")) {
        const uint64_t end64 = b.get(end - LOCATOR_BYTES + 8, 8);
        if (!b.starts(end64, END64_BYTES, "PK\6\6")) return false;
        *d = {b.get(end64 + 32, 8), b.get(end64 + 40, 8), b.get(end64 + 48, 8)};
    }
    return b.has(d->at, d->n_bytes);
}

// 4.5.3: the extra field 1 has, in this order, those of size, compressed size and offset whose 32-bit field is all ones.
static bool apply_zip64(const bytes &extra, uint64_t *size, uint64_t *compressed, uint64_t *offset) {
    constexpr uint64_t ALL_ONES = 0xFFFFFFFF;
    if (*size != ALL_ONES && *compressed != ALL_ONES && *offset != ALL_ONES) return true;
    for (uint64_t at = 0; extra.has(at, 4); at += 4 + extra.get(at + 2, 2)) {
        if (extra.get(at, 2) != 1) continue;
        uint64_t field = at + 4;
        const uint64_t end = field + extra.get(at + 2, 2);
        for (uint64_t *value : {size, compressed, offset}) {
            if (*value != ALL_ONES) continue;
            if (!extra.has(field, 8) || field + 8 > end) return false;
            *value = extra.get(field, 8);
            field += 8;
        }
        return true;
    }
    return false;
}

bool zip_archive::is_zip(const source_file &file) { return file.size() >= 4 && memcmp(file.data(), "PK\3\4", 4) == 0; }

int zip_archive::open(const source_file &file, message *why) {
    const bytes b{file.data(), file.size()};
    const std::string shown = printable(file.name());
    directory d;
    if (!find_directory(b, &d)) return fail(why, SQ_E_FORMAT, "%s: the zip archive has no directory at its end: truncated?", shown.c_str());
    uint64_t at = d.at;
    for (uint64_t i = 0; i < d.n_entries; i++) {
        if (!b.starts(at, CENTRAL_BYTES, "PK\1\2"))
            return fail(why, SQ_E_FORMAT, "%s: the zip directory is damaged at entry %llu", shown.c_str(), static_cast<unsigned long long>(i));
        const uint64_t n_name = b.get(at + 28, 2), n_extra = b.get(at + 30, 2), n_comment = b.get(at + 32, 2);
        if (!b.has(at + CENTRAL_BYTES, n_name + n_extra + n_comment)) return fail(why, SQ_E_FORMAT, "%s: the zip directory runs past the end", shown.c_str());
        const std::string name(reinterpret_cast<const char *>(b.p + at + CENTRAL_BYTES), n_name);
        uint64_t size = b.get(at + 24, 4), compressed = b.get(at + 20, 4), local = b.get(at + 42, 4);
        const bool is_stored = b.get(at + 10, 2) == 0 && (b.get(at + 8, 2) & 1) == 0;
        const bool has_sizes = apply_zip64({b.p + at + CENTRAL_BYTES + n_name, n_extra}, &size, &compressed, &local);
        if (!has_sizes || !b.starts(local, LOCAL_BYTES, "PK\3\4"))
            return fail(why, SQ_E_FORMAT, "%s: zip entry '%s' has no header", shown.c_str(), printable(name).c_str());
        const uint64_t start = local + LOCAL_BYTES + b.get(local + 26, 2) + b.get(local + 28, 2);
        if (!b.has(start, compressed) || (is_stored && size != compressed))
            return fail(why, SQ_E_FORMAT, "%s: zip entry '%s' lies outside the file", shown.c_str(), printable(name).c_str());
        if (!entries_.emplace(name, zip_entry{is_stored ? b.p + start : nullptr, size}).second)
            return fail(why, SQ_E_FORMAT, "%s: zip entry '%s' is there twice", shown.c_str(), printable(name).c_str());
        at += CENTRAL_BYTES + n_name + n_extra + n_comment;
    }
    return SQ_OK;
}

} // namespace sq
