// examples/sq-cli.cpp - the `sq` command: main, help, and the few steps that all its commands take.
//
// Each command is a file of its own: cli-embed.cpp, cli-tokenize.cpp, cli-info.cpp. Options are in cli-options.cpp, input and output in cli-io.cpp.
// Exit status: 0 done, 1 failed, 2 wrong usage.
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include <new>

#include "cli-common.h"

namespace cli {

static failure make_failure(int exit_code, const char *format, va_list args) {
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    return failure{exit_code, text};
}

void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    failure f = make_failure(EXIT_FAILED, format, args);
    va_end(args);
    throw f;
}

void fail_usage(const char *format, ...) {
    va_list args;
    va_start(args, format);
    failure f = make_failure(EXIT_USAGE, format, args);
    va_end(args);
    throw f;
}

model_ptr load_model(const options &o) {
    sq_model_params params;
    sq_model_params_init(&params, sizeof params);
    params.verify = o.verify;
    params.isa = o.isa.empty() ? nullptr : o.isa.c_str();
    sq_model *model = nullptr;
    char err[512] = "";
    const int32_t status = sq_model_load(o.model.c_str(), &params, &model, err, sizeof err);
    if (status != SQ_OK) {
        if (strstr(err, o.model.c_str())) fail("%s", err);
        fail("%s: %s", o.model.c_str(), *err ? err : sq_status_string(status));
    }
    return model_ptr(model);
}

sq_model_info model_info(const sq_model *model) {
    sq_model_info info = {};
    info.size = sizeof info;
    const int32_t status = sq_model_get_info(model, &info);
    if (status != SQ_OK) fail("%s", sq_status_string(status));
    return info;
}

size_t longest_allowed(const options &o, const sq_model_info &info) {
    if (o.max_tokens > info.max_positions)
        fail("--max-tokens %u: the model's position table ends at %u tokens", static_cast<unsigned>(o.max_tokens), static_cast<unsigned>(info.max_positions));
    return o.max_tokens ? o.max_tokens : info.max_tokens;
}

void fail_too_long(const row_source &rows, size_t number, size_t n_tokens, size_t max_tokens) {
    fail("%s: %zu tokens, but at most %zu are allowed; --truncate cuts longer texts", rows.place(number).c_str(), n_tokens, max_tokens);
}

struct command_spec {
    const char *name;
    command which;
    void (*run)(const options &);
    const char *arguments, *summary, *details;
};

static const command_spec COMMANDS[] = {
    {"embed", EMBED, run_embed, "-m MODEL [--jsonl FILE | TEXT...]", "turn texts into vectors",
     "Prints the first numbers of each text's vector, and for several texts their cosine similarities.\n"
     "With --jsonl, reads a JSON object {\"a\": TEXT} or {\"a\": TEXT, \"b\": SECOND TEXT} from each line and writes\n"
     "{\"embedding\": [NUMBER, ...]} for each. Stops at the first line that is wrong.\n"
     "\n"
     "examples:\n"
     "  sq embed -m minilm.sq 'A man is eating.' 'Someone has lunch.'\n"
     "  sq embed -m minilm.sq --jsonl texts.jsonl -o vectors.jsonl\n"
     "  sq embed -m minilm.sq --jsonl - --format npy -o vectors.npy <texts.jsonl\n"},
    {"tokenize", TOKENIZE, run_tokenize, "-m MODEL [--jsonl FILE | TEXT...]", "show the tokens of texts",
     "Prints a table of each text's tokens. With --jsonl, reads lines as `sq embed` does and writes\n"
     "{\"ids\": [...], \"types\": [...], \"spans\": [[FIRST, PAST], ...], \"tokens\": [...]} for each; spans count bytes.\n"
     "\n"
     "examples:\n"
     "  sq tokenize -m minilm.sq 'Hello, world!'\n"
     "  sq tokenize -m minilm.sq --jsonl pairs.jsonl --truncate\n"},
    {"info", INFO, run_info, "-m MODEL", "describe a model file",
     "Prints sizes, settings, the instruction set in use and the metadata of the file.\n"
     "\n"
     "example:\n"
     "  sq info -m minilm.sq --verify\n"},
};

static void print_help(FILE *to) {
    fputs("usage: sq COMMAND -m MODEL [OPTION...] [TEXT...]\n\nINT8 inference of BERT-family encoders. sq-convert makes the model files.\n\ncommands:\n", to);
    for (const command_spec &c : COMMANDS) fprintf(to, "  %-10s %s\n", c.name, c.summary);
    fputs("\n`sq COMMAND --help` tells more. `sq --version` prints the version.\n", to);
}

static const command_spec *find_command(const char *name) {
    for (const command_spec &c : COMMANDS)
        if (strcmp(c.name, name) == 0) return &c;
    return nullptr;
}

static void print_command_help(const command_spec &c) {
    printf("usage: sq %s %s\n\n%s\noptions:\n", c.name, c.arguments, c.details);
    print_options(c.which);
}

// Help and version are answers like any other: failing to write them is a failure.
static void finish_stdout() {
    if (fflush(stdout) != 0 || ferror(stdout)) fail("cannot write standard output: %s", strerror(errno));
}

static void run(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        throw failure{EXIT_USAGE, "a command is missing"};
    }
    const std::string first = argv[1];
    if (first == "--version") {
        printf("sq %s\n", sq_version_string());
    } else if (first == "--help" || first == "-h" || (first == "help" && argc == 2)) {
        print_help(stdout);
    } else {
        const bool wants_help = first == "help";
        const command_spec *c = find_command(wants_help ? argv[2] : argv[1]);
        if (!c) fail_usage("%s: no such command (`sq --help` lists them)", wants_help ? argv[2] : argv[1]);
        const options o = wants_help ? options() : parse_options(c->which, argc - 2, argv + 2);
        if (!wants_help && !o.help) return c->run(o);
        print_command_help(*c);
    }
    finish_stdout();
}

} // namespace cli

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // a closed pipe is a failed write, with a message
    try {
        cli::run(argc, argv);
        return 0;
    } catch (const cli::failure &f) {
        fprintf(stderr, "sq: %s\n", f.text.c_str());
        return f.exit_code;
    } catch (const std::bad_alloc &) {
        fputs("sq: out of memory\n", stderr);
        return cli::EXIT_FAILED;
    }
}
