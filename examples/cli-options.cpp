// examples/cli-options.cpp - the options of `sq`, in one table that parsing and help both follow.
#include <string.h>

#include <algorithm>
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

// A list like "8,16,32" of numbers from 1 to hi.
static std::vector<uint32_t> parse_numbers(const char *name, const char *text, uint32_t hi) {
    std::vector<uint32_t> list;
    const std::string all = text;
    for (size_t at = 0, end; at <= all.size(); at = end + 1) {
        end = std::min(all.find(',', at), all.size());
        list.push_back(parse_number(name, all.substr(at, end - at).c_str(), 1, hi));
    }
    return list;
}

static double parse_seconds(const char *name, const char *text) {
    double x = 0;
    const char *end = text + strlen(text);
    const std::from_chars_result r = std::from_chars(text, end, x, std::chars_format::fixed);
    if (r.ec != std::errc() || r.ptr != end || !(x >= 0.001 && x <= 3600)) fail_usage("%s %s: seconds from 0.001 to 3600 are needed", name, text);
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

static number_type parse_type(const char *name, const char *text) {
    if (strcmp(text, "f32") == 0) return TYPE_F32;
    if (strcmp(text, "f16") == 0) return TYPE_F16;
    if (strcmp(text, "s8") == 0) return TYPE_S8;
    if (strcmp(text, "bits") == 0) return TYPE_BITS;
    fail_usage("%s %s: f32, f16, s8 or bits is needed", name, text);
}

struct option_spec {
    const char *name;
    char letter;       // 0 for none
    unsigned commands; // those that know it
    const char *value; // its placeholder; null for a switch
    const char *help;
    void (*set)(options *o, const char *name, const char *value);
};

constexpr uint32_t MAX_MEASURED = 1024; // threads or instances: as many threads as the library allows in a context

static const unsigned RUNS = EMBED | CLASSIFY | RERANK | ANSWER | TAG, WORKS = RUNS | TOKENIZE, CUTS = WORKS & ~ANSWER, MEASURES = BENCH | PROFILE | TUNE;

static const option_spec OPTIONS[] = {
    {"--model", 'm', WORKS | INFO | MEASURES, "FILE", "the model file", [](options *o, const char *, const char *v) { o->model = v; }},
    {"--jsonl", 0, WORKS, "FILE", "read the lines of FILE; - is standard input", [](options *o, const char *, const char *v) { o->jsonl = v; }},
    {"--output", 'o', WORKS | TUNE, "FILE", "write to FILE, which appears when all is done", [](options *o, const char *, const char *v) { o->output = v; }},
    {"--format", 0, EMBED, "FORMAT", "text (for arguments), jsonl (for --jsonl), or npy: a matrix for NumPy",
     [](options *o, const char *n, const char *v) { o->format = parse_format(n, v); }},
    {"--format", 0, WORKS & ~EMBED, "FORMAT", "text (for arguments) or jsonl (for --jsonl)",
     [](options *o, const char *n, const char *v) { o->format = parse_format(n, v); }},
    {"--pair", 0, CLASSIFY, nullptr, "take the arguments two by two, as pairs", [](options *o, const char *, const char *) { o->pairs = true; }},
    {"--documents", 0, RERANK, "FILE", "the documents are the lines of FILE; - is standard input",
     [](options *o, const char *, const char *v) { o->documents = v; }},
    {"--context-file", 0, ANSWER, "FILE", "the context is the text of FILE; - is standard input",
     [](options *o, const char *, const char *v) { o->context_file = v; }},
    {"--squad", 0, ANSWER, "FILE", "answer the questions of a SQuAD file, version 1.1 or 2",
     [](options *o, const char *, const char *v) { o->squad = v; }},
    {"--window", 0, ANSWER, "N", "tokens of a window, question included (default: the model's limit)",
     [](options *o, const char *n, const char *v) { o->max_tokens = parse_number(n, v, 1, INT32_MAX); }},
    {"--stride", 0, ANSWER, "N", "tokens of context that two windows share (default 128)",
     [](options *o, const char *n, const char *v) { o->stride = parse_number(n, v, 1, INT32_MAX); }},
    {"--max-answer", 0, ANSWER, "N", "longest answer in tokens (default 30)",
     [](options *o, const char *n, const char *v) { o->max_answer = parse_number(n, v, 1, INT32_MAX); }},
    {"--allow-null", 0, ANSWER, nullptr, "\"no answer\" is possible, as in SQuAD 2: an empty text",
     [](options *o, const char *, const char *) { o->allow_null = true; }},
    {"--top", 0, ANSWER, "N", "list the N best answers, at most 20",
     [](options *o, const char *n, const char *v) { o->top = parse_number(n, v, 1, MAX_ANSWERS); }},
    {"--words", 0, TAG, nullptr, "one entry for each word, with the label as the model has it",
     [](options *o, const char *, const char *) { o->words = true; }},
    {"--max-tokens", 0, CUTS, "N", "longest text, special tokens included (default: the model's limit)",
     [](options *o, const char *n, const char *v) { o->max_tokens = parse_number(n, v, 1, INT32_MAX); }},
    {"--truncate", 0, CUTS, nullptr, "cut longer texts, instead of failing", [](options *o, const char *, const char *) { o->truncate = true; }},
    {"--specials-as-text", 0, WORKS, nullptr, "\"[SEP]\" in a text is five characters, not the special token",
     [](options *o, const char *, const char *) { o->specials_as_text = true; }},
    {"--prefix", 0, EMBED, "TEXT", "put TEXT before each text (\"query: \" and \"passage: \" for E5 models)",
     [](options *o, const char *, const char *v) { o->prefix = v; }},
    {"--pooling", 0, EMBED, "HOW", "mean, cls or max (default: the model's)",
     [](options *o, const char *n, const char *v) { o->pooling = parse_pooling(n, v); }},
    {"--normalize", 0, EMBED, nullptr, "scale vectors to length 1", [](options *o, const char *, const char *) { o->normalize = SQ_NORMALIZE_YES; }},
    {"--no-normalize", 0, EMBED, nullptr, "leave vectors as they are (default: as the model says)",
     [](options *o, const char *, const char *) { o->normalize = SQ_NORMALIZE_NO; }},
    {"--dimensions", 0, EMBED, "N", "keep the first N numbers of each vector",
     [](options *o, const char *n, const char *v) { o->dimensions = parse_number(n, v, 1, INT32_MAX); }},
    {"--type", 0, EMBED, "TYPE", "f32, f16, s8 (with \"scale\" in lines) or bits (bytes, first bit highest) for jsonl and npy",
     [](options *o, const char *n, const char *v) { o->type = parse_type(n, v); }},
    {"--hidden", 0, EMBED, nullptr, "every token's vector: {\"tokens\": [...], \"hidden\": [[...], ...]}",
     [](options *o, const char *, const char *) { o->hidden = true; }},
    {"--batch", 0, RUNS, "N", "texts that run together (default 64); changes speed, not results",
     [](options *o, const char *n, const char *v) { o->batch = parse_number(n, v, 1, 65536); }},
    {"--threads", 0, RUNS, "N", "threads that compute (default 0: the cores this process may use)",
     [](options *o, const char *n, const char *v) { o->threads = parse_number(n, v, 0, INT32_MAX); }},
    {"--tokens", 0, BENCH, "N[,N...]", "tokens of a sequence (default 8,16,32,128,256,384; with --instances 256)",
     [](options *o, const char *n, const char *v) { o->lengths = parse_numbers(n, v, INT32_MAX); }},
    {"--tokens", 0, PROFILE, "N", "tokens of a sequence (default 128)",
     [](options *o, const char *n, const char *v) { o->lengths = {parse_number(n, v, 1, INT32_MAX)}; }},
    {"--batch", 0, MEASURES, "N", "sequences of a call (default 1)", [](options *o, const char *n, const char *v) { o->batch = parse_number(n, v, 1, 65536); }},
    {"--threads", 0, BENCH, "N", "threads that compute (default: the cores this process may use; with --instances 4 each)",
     [](options *o, const char *n, const char *v) { o->threads = parse_number(n, v, 1, MAX_MEASURED); }},
    {"--tokens", 0, TUNE, "N[,N...]", "tokens of a sequence (default 8, 16, 32, ... 512)",
     [](options *o, const char *n, const char *v) { o->lengths = parse_numbers(n, v, INT32_MAX); }},
    {"--tuning", 0, RUNS | MEASURES, "FILE", "plans that `sq tune` found, so that nothing needs to be tried",
     [](options *o, const char *, const char *v) { o->tuning = v; }},
    {"--threads", 0, PROFILE | TUNE, "N", "threads that compute (default: the cores this process may use)",
     [](options *o, const char *n, const char *v) { o->threads = parse_number(n, v, 1, MAX_MEASURED); }},
    {"--instances", 0, BENCH, "N", "that many contexts at once on one model, each with its threads: requests a second",
     [](options *o, const char *n, const char *v) { o->instances = parse_number(n, v, 1, MAX_MEASURED); }},
    {"--pin", 0, BENCH, nullptr, "bind each thread to a physical core, the cores of an instance side by side in one socket",
     [](options *o, const char *, const char *) { o->pin = true; }},
    {"--numa", 0, BENCH, nullptr, "with --instances: a copy of the model on each NUMA node, for the instances there",
     [](options *o, const char *, const char *) { o->numa = true; }},
    {"--seconds", 0, BENCH | PROFILE, "S", "how long to measure (default: bench 1 for each length, profile 2)",
     [](options *o, const char *n, const char *v) { o->seconds = parse_seconds(n, v); }},
    {"--runs", 0, BENCH, "N", "timed calls, instead of --seconds (with --instances: of each, at least; default there 200)",
     [](options *o, const char *n, const char *v) { o->runs = parse_number(n, v, 1, 10000000); }},
    {"--warmup", 0, BENCH, "N", "calls before them (default with --instances: 100)",
     [](options *o, const char *n, const char *v) { o->warmup = parse_number(n, v, 1, 10000000); }},
    {"--copy", 0, BENCH, nullptr, "read the model into private memory, instead of mapping the file", [](options *o, const char *, const char *) { o->copy = true; }},
    {"--huge-pages", 0, BENCH, nullptr, "the same in large pages, where the kernel has them",
     [](options *o, const char *, const char *) { o->huge_pages = true; }},
    {"--svg", 0, PROFILE, "FILE", "draw the roofline into FILE", [](options *o, const char *, const char *v) { o->svg = v; }},
    {"--json", 0, BENCH | PROFILE, nullptr, "print one JSON object instead", [](options *o, const char *, const char *) { o->json = true; }},
    {"--isa", 0, RUNS | INFO | MEASURES, "NAME", "highest instruction set to use (default: the best of this CPU)",
     [](options *o, const char *, const char *v) { o->isa = v; }},
    {"--verify", 0, INFO, nullptr, "check the checksums of the whole file", [](options *o, const char *, const char *) { o->verify = true; }},
    {"--help", 'h', WORKS | INFO | MEASURES, nullptr, "print this", [](options *o, const char *, const char *) { o->help = true; }},
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

// Where the input comes from: --jsonl, or the arguments, or another file.
static void check_input(command which, const options &o) {
    const size_t n = o.texts.size();
    if (!o.jsonl.empty() || !o.squad.empty()) {
        const char *file = o.jsonl.empty() ? "--squad" : "--jsonl";
        if (n > 0) fail_usage("%s: texts come from %s or from the arguments, not from both", o.texts[0].c_str(), file);
        if (!o.documents.empty() || !o.context_file.empty() || o.pairs || (!o.jsonl.empty() && !o.squad.empty()))
            fail_usage("--pair, --documents, --context-file, --squad and --jsonl exclude each other");
        if (!o.squad.empty() && (o.top || o.format != FORMAT_DEFAULT)) fail_usage("--squad writes predictions: no --top, no --format");
        return;
    }
    if (which == RERANK) {
        if (n == 0) fail_usage("the query is missing: give QUERY DOCUMENT..., or --jsonl FILE");
        if (o.documents.empty() ? n == 1 : n > 1) fail_usage("documents are needed as arguments or by --documents FILE, not by both");
    } else if (which == ANSWER) {
        if (n != (o.context_file.empty() ? 2 : 1)) fail_usage("QUESTION CONTEXT, or QUESTION --context-file FILE, or --jsonl FILE, or --squad FILE is needed");
    } else if (n == 0) {
        fail_usage("texts are missing: give some, or --jsonl FILE");
    }
    if (o.pairs && n % 2 != 0) fail_usage("--pair takes texts two by two, and there are %zu", n);
}

// Commands that take no texts: the model may be an argument, and nothing else is one.
static void take_model(options *o) {
    if (o->model.empty() && !o->texts.empty()) {
        o->model = o->texts[0];
        o->texts.erase(o->texts.begin());
    }
    if (!o->texts.empty()) fail_usage("%s: nothing but the model is needed", o->texts[0].c_str());
    if (o->model.empty()) fail_usage("MODEL is missing");
}

static void check_measure(options *o) {
    take_model(o);
    if (o->seconds > 0 && (o->runs || o->warmup)) fail_usage("--seconds and --runs, --warmup exclude each other");
    if (o->warmup && !o->runs && !o->instances) fail_usage("--warmup needs --runs");
    if (o->numa && !o->instances) fail_usage("--numa needs --instances");
    if (o->instances && o->lengths.size() > 1) fail_usage("--instances takes one length");
}

static void check_together(command which, options *o) {
    if (which & MEASURES) return check_measure(o);
    if (which == INFO) return take_model(o);
    if (o->model.empty()) fail_usage("-m MODEL is missing");
    check_input(which, *o);
    if (o->format == FORMAT_DEFAULT) o->format = o->jsonl.empty() && !o->hidden ? FORMAT_TEXT : FORMAT_JSONL;
    if (o->format == FORMAT_TEXT && !o->jsonl.empty()) fail_usage("--format text is for texts given as arguments");
    if (o->format == FORMAT_NPY && which != EMBED) fail_usage("--format npy is for `sq embed`");
    if (o->type != TYPE_F32 && o->format == FORMAT_TEXT) fail_usage("--type needs --format jsonl or --format npy");
    if (!o->hidden) return;
    if (o->format != FORMAT_JSONL) fail_usage("--hidden writes JSON lines only");
    if (o->pooling || o->normalize || o->dimensions || o->type != TYPE_F32)
        fail_usage("--hidden gives vectors as they are: no --pooling, --normalize, --dimensions, --type");
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
