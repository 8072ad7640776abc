// examples/cli-options.cpp - the options of `sq`, in one table that parsing and help both follow.
#include <string.h>

#include <charconv>

#include "cli-common.h"

namespace cli {

// All of text must be a decimal number from lo to hi.
static uint32_t parse_number(const char *name, const char *text, uint32_t lo, uint32_t hi) {
    uint32_t x = 0;
    const char *end = text + strlen(text);
    const std::from_chars_result r = std::from_chars(text, end, x);
    if (r.ec != std::errc() || r.ptr != end || x < lo || x > hi)
        fail_usage("%s %s: a number from %u to %u is needed", name, text, static_cast<unsigned>(lo), static_cast<unsigned>(hi));
    return x;
}

static uint32_t parse_pooling(const char *name, const char *text) {
    if (strcmp(text, "mean") == 0) return SQ_POOL_MEAN;
    if (strcmp(text, "cls") == 0) return SQ_POOL_CLS;
    if (strcmp(text, "max") == 0) return SQ_POOL_MAX;
    fail_usage("%s %s: mean, cls or max is needed", name, text);
}

static output_format parse_format(const char *name, const char *text) {
    if (strcmp(text, "text") == 0) return FORMAT_TEXT;
    if (strcmp(text, "jsonl") == 0) return FORMAT_JSONL;
    if (strcmp(text, "npy") == 0) return FORMAT_NPY;
    fail_usage("%s %s: text, jsonl or npy is needed", name, text);
}

struct option_spec {
    const char *name;
    char letter;       // 0 for none
    unsigned commands; // those that know it
    const char *value; // its placeholder; null for a switch
    const char *help;
    void (*set)(options *o, const char *name, const char *value);
};

static const unsigned TEXTS = EMBED | TOKENIZE;

static const option_spec OPTIONS[] = {
    {"--model", 'm', TEXTS | INFO, "FILE", "the model file", [](options *o, const char *, const char *v) { o->model = v; }},
    {"--jsonl", 0, TEXTS, "FILE", "read texts from the lines of FILE; - is standard input", [](options *o, const char *, const char *v) { o->jsonl = v; }},
    {"--output", 'o', TEXTS, "FILE", "write to FILE, which appears when all is done", [](options *o, const char *, const char *v) { o->output = v; }},
    {"--format", 0, TEXTS, "FORMAT", "text (for arguments), jsonl (for --jsonl), or npy: a float32 matrix (embed)",
     [](options *o, const char *n, const char *v) { o->format = parse_format(n, v); }},
    {"--max-tokens", 0, TEXTS, "N", "longest text, special tokens included (default: the model's limit)",
     [](options *o, const char *n, const char *v) { o->max_tokens = parse_number(n, v, 1, INT32_MAX); }},
    {"--truncate", 0, TEXTS, nullptr, "cut longer texts, instead of failing", [](options *o, const char *, const char *) { o->truncate = true; }},
    {"--specials-as-text", 0, TEXTS, nullptr, "\"[SEP]\" in a text is five characters, not the special token",
     [](options *o, const char *, const char *) { o->specials_as_text = true; }},
    {"--pooling", 0, EMBED, "HOW", "mean, cls or max (default: the model's)", [](options *o, const char *n, const char *v) { o->pooling = parse_pooling(n, v); }},
    {"--normalize", 0, EMBED, nullptr, "scale vectors to length 1", [](options *o, const char *, const char *) { o->normalize = SQ_NORMALIZE_YES; }},
    {"--no-normalize", 0, EMBED, nullptr, "leave vectors as they are (default: as the model says)",
     [](options *o, const char *, const char *) { o->normalize = SQ_NORMALIZE_NO; }},
    {"--dimensions", 0, EMBED, "N", "keep the first N numbers of each vector",
     [](options *o, const char *n, const char *v) { o->dimensions = parse_number(n, v, 1, INT32_MAX); }},
    {"--batch", 0, EMBED, "N", "texts that run together (default 64); changes speed, not results",
     [](options *o, const char *n, const char *v) { o->batch = parse_number(n, v, 1, 65536); }},
    {"--threads", 0, EMBED, "N", "threads that compute (default 0: the cores this process may use)",
     [](options *o, const char *n, const char *v) { o->threads = parse_number(n, v, 0, INT32_MAX); }},
    {"--isa", 0, EMBED | INFO, "NAME", "highest instruction set to use (default: the best of this CPU)",
     [](options *o, const char *, const char *v) { o->isa = v; }},
    {"--verify", 0, INFO, nullptr, "check the checksums of the whole file", [](options *o, const char *, const char *) { o->verify = true; }},
    {"--help", 'h', TEXTS | INFO, nullptr, "print this", [](options *o, const char *, const char *) { o->help = true; }},
};

// The option that an argument names; *value is set to what stands behind `=` or a letter.
static const option_spec *find_option(command which, const char *argument, const char **value) {
    *value = nullptr;
    for (const option_spec &s : OPTIONS) {
        if (!(s.commands & which)) continue;
        const size_t n = strlen(s.name);
        if (strncmp(argument, s.name, n) == 0 && (argument[n] == '\0' || argument[n] == '=')) {
            if (argument[n] == '=') *value = argument + n + 1;
            return &s;
        }
        if (s.letter && argument[0] == '-' && argument[1] == s.letter) {
            if (argument[2] != '\0') *value = argument + 2;
            return &s;
        }
    }
    fail_usage("%s: unknown option (--help lists them)", argument);
}

static void check_together(command which, options *o) {
    if (o->model.empty()) fail_usage("-m MODEL is missing");
    if (which == INFO) {
        if (!o->texts.empty()) fail_usage("%s: `sq info` takes no text", o->texts[0].c_str());
        return;
    }
    if (o->jsonl.empty() && o->texts.empty()) fail_usage("texts are missing: give some, or --jsonl FILE");
    if (!o->jsonl.empty() && !o->texts.empty()) fail_usage("%s: texts come from --jsonl or from the arguments, not from both", o->texts[0].c_str());
    if (o->format == FORMAT_DEFAULT) o->format = o->jsonl.empty() ? FORMAT_TEXT : FORMAT_JSONL;
    if (o->format == FORMAT_TEXT && !o->jsonl.empty()) fail_usage("--format text is for texts given as arguments");
    if (o->format == FORMAT_NPY && which != EMBED) fail_usage("--format npy is for `sq embed`");
}

options parse_options(command which, int argc, char **argv) {
    options o;
    bool only_texts = false;
    for (int i = 0; i < argc; i++) {
        const char *argument = argv[i];
        if (only_texts || argument[0] != '-' || argument[1] == '\0') {
            o.texts.push_back(argument);
        } else if (strcmp(argument, "--") == 0) {
            only_texts = true;
        } else {
            const char *value;
            const option_spec *s = find_option(which, argument, &value);
            if (!s->value && value) fail_usage("%s takes no value", s->name);
            if (s->value && !value && ++i < argc) value = argv[i];
            if (s->value && !value) fail_usage("%s needs a value: %s", s->name, s->value);
            if (s->value && !*value) fail_usage("%s needs a value that is not empty", s->name);
            s->set(&o, s->name, value);
        }
        if (o.help) return o;
    }
    check_together(which, &o);
    return o;
}

void print_options(command which) {
    for (const option_spec &s : OPTIONS) {
        if (!(s.commands & which)) continue;
        std::string left = s.letter ? std::string("-") + s.letter + ", " : std::string("    ");
        left += s.name;
        if (s.value) left += std::string(" ") + s.value;
        printf("  %-24s %s\n", left.c_str(), s.help);
    }
}

} // namespace cli
