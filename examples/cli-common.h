// examples/cli-common.h - what the commands of `sq` share: failing, options, rows of input, output, model handles.
//
// A program over sq.h like any other; of sq's own sources it sees convert/json.h only. Read sq-cli.cpp next.
#ifndef SQ_EXAMPLES_CLI_COMMON_H
#define SQ_EXAMPLES_CLI_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../sq.h"

namespace cli {

// ---- failing (sq-cli.cpp) ----

// Thrown to end the command: main prints "sq: " and the text, and exits with the code.
struct failure {
    int exit_code;
    std::string text;
};

constexpr int EXIT_FAILED = 1, EXIT_USAGE = 2;

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));       // exit code 1
[[noreturn]] void fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2))); // exit code 2

// ---- options (cli-options.cpp) ----

enum command : unsigned { EMBED = 1, TOKENIZE = 2, INFO = 4 };
enum output_format { FORMAT_DEFAULT, FORMAT_TEXT, FORMAT_JSONL, FORMAT_NPY };

struct options {
    bool help = false;
    std::string model;
    std::string jsonl;              // "" for texts as arguments, "-" for standard input
    std::vector<std::string> texts; // arguments that are no options
    std::string output;             // "" for standard output
    std::string isa;                // "" for the best
    output_format format = FORMAT_DEFAULT;
    uint32_t threads = 0;           // 0: the library decides
    uint32_t batch = 0;             // 0: DEFAULT_BATCH
    uint32_t max_tokens = 0;        // 0: what the model file says
    uint32_t dimensions = 0;        // 0: all
    uint32_t pooling = SQ_POOL_NONE;
    uint32_t normalize = SQ_NORMALIZE_MODEL;
    bool truncate = false;
    bool specials_as_text = false;
    bool verify = false;
};

constexpr uint32_t DEFAULT_BATCH = 64; // texts; also sq.h's default for max_seqs

options parse_options(command which, int argc, char **argv); // argv[0] is the first argument after the command's name
void print_options(command which);                           // the option lines of the help text

// ---- input and output (cli-io.cpp) ----

// One input: a text or a pair.
struct row {
    std::string a, b;
    bool is_pair = false;
    size_t number = 0; // argument or line, from 1
};

// The rows of a command: its arguments, or the lines of a file, read as they are needed. Memory is bounded by the longest line.
class row_source {
  public:
    explicit row_source(const options &o);
    ~row_source();
    row_source(const row_source &) = delete;
    row_source &operator=(const row_source &) = delete;

    bool next(row *out);                     // false at the end; a bad line is a failure
    bool would_wait() const;                 // whether next() might wait for a writer at the other end of a pipe
    std::string place(size_t number) const;  // "text 2" or "FILE:12", for messages

  private:
    const std::vector<std::string> &texts_;
    bool is_file_ = false;
    std::string name_;
    int fd_ = -1;
    bool at_end_ = false;
    std::string buffer_;   // bytes read; lines before line_start_ are done with
    size_t line_start_ = 0;
    size_t scanned_ = 0;   // no newline between line_start_ and here
    size_t n_rows_ = 0;

    bool next_line(std::string_view *line);
    bool read_more();
};

// Standard output, or a file that appears under its name only when everything has been written.
class output {
  public:
    explicit output(const std::string &path); // "" is standard output
    ~output();                                // without commit() a file is discarded
    output(const output &) = delete;
    output &operator=(const output &) = delete;

    void write(std::string_view bytes);
    void flush();
    void commit();
    bool is_terminal() const;

  private:
    std::string path_, temporary_, pending_;
    int fd_;
};

// Counts rows on stderr while a long run goes on, if stderr is a terminal and the answers go elsewhere.
class progress {
  public:
    explicit progress(const output &out);
    ~progress();
    void show(size_t n_rows);

  private:
    bool is_on_;
    int64_t start_ms_, shown_ms_ = 0;
};

// Text made fit for a terminal: control characters and invalid bytes replaced, cut to so many characters.
std::string printable(std::string_view text, size_t max_chars);
size_t count_chars(std::string_view text);
std::string pad_right(std::string text, size_t n_chars);

// ---- the model (sq-cli.cpp) ----

struct model_deleter {
    void operator()(sq_model *m) const { sq_model_free(m); }
};
struct ctx_deleter {
    void operator()(sq_ctx *c) const { sq_ctx_free(c); }
};
using model_ptr = std::unique_ptr<sq_model, model_deleter>;
using ctx_ptr = std::unique_ptr<sq_ctx, ctx_deleter>;

model_ptr load_model(const options &o);
sq_model_info model_info(const sq_model *model);

// Fails for a text that is longer than the model takes; says how long it is and what to do.
[[noreturn]] void fail_too_long(const row_source &rows, size_t number, size_t n_tokens, size_t max_tokens);
size_t longest_allowed(const options &o, const sq_model_info &info);

// ---- the commands ----

void run_embed(const options &o);    // cli-embed.cpp
void run_tokenize(const options &o); // cli-tokenize.cpp
void run_info(const options &o);     // cli-info.cpp

} // namespace cli

#endif
