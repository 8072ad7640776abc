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

// ---- failing (cli-fail.cpp) ----

// Thrown to end the command: main prints "sq: " and the text, and exits with the code.
struct failure {
    int exit_code;
    std::string text;
};

constexpr int EXIT_FAILED = 1, EXIT_USAGE = 2;

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));       // exit code 1
[[noreturn]] void fail_usage(const char *format, ...) __attribute__((format(printf, 1, 2))); // exit code 2

// ---- options (cli-options.cpp) ----

enum command : unsigned { EMBED = 1, TOKENIZE = 2, INFO = 4, CLASSIFY = 8, RERANK = 16, ANSWER = 32, TAG = 64, BENCH = 128, PROFILE = 256, TUNE = 512 };
enum output_format { FORMAT_DEFAULT, FORMAT_TEXT, FORMAT_JSONL, FORMAT_NPY };
enum number_type { TYPE_F32, TYPE_F16, TYPE_S8, TYPE_BITS };

struct options {
    bool help = false;
    std::string model;
    std::string jsonl;              // "" for texts as arguments, "-" for standard input
    std::vector<std::string> texts; // arguments that are no options
    std::string output;             // "" for standard output
    std::string isa;                // "" for the best
    std::string prefix;             // stands before each text
    std::string documents, context_file, squad; // files; "" for none, "-" for standard input
    output_format format = FORMAT_DEFAULT;
    number_type type = TYPE_F32;
    uint32_t threads = 0;           // 0: the library decides
    uint32_t batch = 0;             // 0: DEFAULT_BATCH
    uint32_t max_tokens = 0;        // of a text, or of a window of `answer`; 0: what the model file says
    uint32_t dimensions = 0;        // 0: all
    uint32_t pooling = SQ_POOL_NONE;
    uint32_t normalize = SQ_NORMALIZE_MODEL;
    uint32_t stride = 0, max_answer = 0; // 0: the library decides
    uint32_t top = 0;               // answers to list; 0: the best alone, without a list
    bool truncate = false;
    bool specials_as_text = false;
    bool verify = false;
    bool hidden = false;
    bool pairs = false;
    bool allow_null = false;
    bool words = false;
    std::vector<uint32_t> lengths;        // tokens of the sequences to measure; empty: the command decides
    uint32_t instances = 0;               // contexts at once; 0: one, and its latency is measured
    uint32_t runs = 0, warmup = 0;        // timed and untimed calls; 0: by time, or the command decides
    double seconds = 0;                   // to measure for; 0: the command decides
    std::string tuning;                   // file of plans; "" for none
    std::string svg;                      // file for the roofline picture; "" for none
    bool pin = false, numa = false;       // bind threads to cores; a copy of the model on each NUMA node
    bool copy = false, huge_pages = false; // as in sq_model_params
    bool json = false;
};

constexpr uint32_t DEFAULT_BATCH = 64; // texts; also sq.h's default for max_seqs
constexpr uint32_t MAX_ANSWERS = 20;   // sq_answer gives no more

options parse_options(command which, int argc, char **argv); // argv[0] is the first argument after the command's name
void print_options(command which);                           // the option lines of the help text

// ---- input and output (cli-io.cpp) ----

enum class second_text { REFUSED, OPTIONAL, REQUIRED, LIST };

// The members of an input line that a command reads.
struct row_form {
    const char *noun; // what a row given by arguments is called in messages
    const char *first, *second;
    second_text kind;
};

constexpr row_form TEXT_OR_PAIR = {"text", "a", "b", second_text::OPTIONAL}, SINGLE_TEXT = {"text", "a", "b", second_text::REFUSED},
                   QUESTION = {"question", "question", "context", second_text::REQUIRED}, QUERY = {"query", "query", "documents", second_text::LIST};

// One input: a text, a pair, a question and its context, or a query and its documents.
struct row {
    std::string a, b;
    bool is_pair = false;
    std::vector<std::string> list;
    size_t number = 0; // argument or line, from 1
};

std::vector<row> rows_of_texts(const options &o);  // the arguments, one a row or two by two
std::string read_file(const std::string &path);    // all of it; "-" is standard input

// The rows of a command: those given, or with --jsonl the lines of a file, read as they are needed. Memory is bounded by the longest line.
class row_source {
  public:
    row_source(const options &o, const row_form &form, std::vector<row> given);
    ~row_source();
    row_source(const row_source &) = delete;
    row_source &operator=(const row_source &) = delete;

    bool next(row *out);                     // false at the end; a bad line is a failure
    bool would_wait() const;                 // whether next() might wait for a writer at the other end of a pipe
    std::string place(size_t number) const;  // "text 2" or "FILE:12", for messages

  private:
    const row_form form_;
    const std::string prefix_; // put before each first text
    std::vector<row> given_;
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
    progress(const output &out, const char *unit, size_t n_all = 0); // n_all: 0 when it is not known
    ~progress();
    void show(size_t n_rows);

  private:
    bool is_on_;
    const char *unit_;
    size_t n_all_;
    int64_t start_ms_, shown_ms_ = 0;
};

// Text made fit for a terminal: control characters and invalid bytes replaced, cut to so many characters.
std::string printable(std::string_view text, size_t max_chars);
std::string formatted(const char *format, ...) __attribute__((format(printf, 1, 2))); // by printf's rules
size_t count_chars(std::string_view text);
std::string pad_right(std::string text, size_t n_chars);

// Pieces of a JSON line: a list of the n numbers at x, and the member "truncated" after others.
void append_numbers(std::string *out, const float *x, size_t n);
void append_truncated(std::string *out, bool truncated);

// ---- the model (cli-run.cpp) ----

struct model_deleter {
    void operator()(sq_model *m) const { sq_model_free(m); }
};
struct ctx_deleter {
    void operator()(sq_ctx *c) const { sq_ctx_free(c); }
};
using model_ptr = std::unique_ptr<sq_model, model_deleter>;
using ctx_ptr = std::unique_ptr<sq_ctx, ctx_deleter>;

model_ptr load_model(const options &o);
ctx_ptr create_ctx(sq_model *model, const sq_ctx_params &params); // fails with the library's message
std::string read_tuning(const options &o); // the text of --tuning, "" without
sq_model_info model_info(const sq_model *model);
std::string_view label_name(const sq_model *model, uint32_t i);
std::string_view token_text(const sq_model *model, int32_t id);

// The longest text in tokens: what --max-tokens says, or else the model. Fails when the position table is shorter.
size_t longest_allowed(const options &o, const sq_model_info &info);

// Fails for a text that is longer than the model takes; says how long it is and what to do.
[[noreturn]] void fail_too_long(const std::string &place, size_t n_tokens, size_t max_tokens);

struct text_length {
    size_t n_tokens; // after truncation
    bool truncated;
};

// A model and a context, made as the options ask.
struct session {
    const model_ptr model;
    const sq_model_info info;
    const uint32_t max_len; // tokens
    const bool truncate, specials_as_text;
    const ctx_ptr ctx;

    explicit session(const options &o);

    // Sets the members that all parameter structs for texts have.
    template <class params> void set_limits(params *p) const {
        p->max_len = max_len;
        p->truncate = truncate;
        p->specials_as_text = specials_as_text;
    }

    // A text that is too long and may not be truncated has its full length, and counts as truncated.
    text_length measure(const row &r) const;

    // " (cut to N tokens)" for a truncated text, or nothing.
    std::string note(const row &r) const;

    // Fails for the text or the pair that the library's last call refused.
    [[noreturn]] void fail_text(const std::string &place, const row &r, int32_t status) const;

    void check(int32_t status) const; // fails with the library's message unless the status is SQ_OK
};

// What a command does with texts: a call of the library that keeps its answers, and a writer of them.
class text_task {
  public:
    virtual ~text_task() = default;
    virtual int32_t run(const sq_texts &texts) = 0;
    virtual void give(const row *rows, size_t n_rows) = 0; // the answers of the last run
};

// Hands all rows to the task in chunks, which end early rather than wait for input. Stops at the first row that fails, after the answers to those before it.
void run_texts(const options &o, const session &s, row_source *rows, output *out, text_task *task);

// Calls answer(row) for each row, one after the other.
template <class answer_fn> void run_rows(row_source *rows, output *out, const char *unit, answer_fn answer) {
    progress shown(*out, unit);
    size_t n_done = 0;
    for (row r;;) {
        try {
            if (!rows->next(&r)) break;
            answer(r);
        } catch (const failure &) {
            out->flush(); // what came before the bad line is answered
            throw;
        }
        shown.show(++n_done);
        if (rows->would_wait()) out->flush();
    }
}

// ---- the commands, each in the file cli-NAME.cpp ----

void run_embed(const options &o);
void run_classify(const options &o);
void run_rerank(const options &o);
void run_answer(const options &o);
void run_tag(const options &o);
void run_tokenize(const options &o);
void run_info(const options &o);
void run_bench(const options &o);
void run_profile(const options &o);
void run_tune(const options &o);

} // namespace cli

#endif
