// convert/hidden-states.h - hidden states of all calibration texts between two layers, in a temporary file: memory does not grow with the number of texts.
#ifndef SQ_CONVERT_HIDDEN_STATES_H
#define SQ_CONVERT_HIDDEN_STATES_H

#include <stddef.h>

#include <vector>

#include "../sq-model.h"

namespace sq {

class hidden_states {
  public:
    hidden_states() = default;
    hidden_states(const hidden_states &) = delete;
    hidden_states &operator=(const hidden_states &) = delete;
    ~hidden_states();

    // Creates the file, in TMPDIR or /tmp; it has no name and goes with the process. width: floats of a row. Returns SQ_OK or SQ_E_IO, as the others.
    int create(size_t width, message *why);

    int write(size_t first_row, const std::vector<float> &rows, message *why);
    int read(size_t first_row, size_t n_rows, std::vector<float> *rows, message *why) const;

  private:
    int fd_ = -1;
    size_t width_ = 0;
};

} // namespace sq

#endif
