// convert/read-zip.h - the entries of a zip archive that are stored without compression, in place.
//
// Source: PKWARE APPNOTE.TXT 6.3.10. The central directory decides; local headers are read only for where the bytes begin.
#ifndef SQ_CONVERT_READ_ZIP_H
#define SQ_CONVERT_READ_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include <map>
#include <string>

#include "source-file.h"

namespace sq {

struct zip_entry {
    const uint8_t *data; // null when the entry is compressed or encrypted
    uint64_t n_bytes;
};

class zip_archive {
  public:
    // Whether the file starts as a zip archive does.
    static bool is_zip(const source_file &file);

    // Reads the central directory; each entry's bytes lie inside the file. Returns SQ_OK or SQ_E_FORMAT.
    int open(const source_file &file, message *why);

    const std::map<std::string, zip_entry> &entries() const { return entries_; }

  private:
    std::map<std::string, zip_entry> entries_;
};

} // namespace sq

#endif
