// convert/sq-convert.cpp - the command line of the converter; convert.h does the work.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "convert.h"
#include "report.h"

namespace {

const char USAGE[] =
    "usage: sq-convert CHECKPOINT_DIR -o MODEL.sq [--mode static|fast|dynamic|float] [--calibrate TEXTS] [--budget cos=0.999|kl=0.01] [--report FILE]\n"
    "       sq-convert --synthetic SHAPE -o MODEL.sq [--mode static|fast|dynamic|float] [--report FILE]\n"
    "\n"
    "Converts a Hugging Face checkpoint folder (config.json, tokenizer, model.safetensors or pytorch_model.bin) into one model file for sq.\n"
    "\n"
    "  -o, --output FILE   the model file; written beside it and renamed when complete\n"
    "  --mode MODE         static: INT8, activation scales fixed by calibration where tokens are alike, found for each token where they are not (default)\n"
    "                      fast: INT8, activation scales fixed nearly everywhere: some percent faster, less accurate\n"
    "                      dynamic: INT8, activation scales found for each token: most accurate\n"
    "                      float: no quantisation, for comparison\n"
    "  --calibrate FILE    texts like those the model will see, one a line; 100 to 500 are enough. Without it a small built-in set is used\n"
    "  --budget WHAT=N     cos=N: the mean cosine of vectors to the float model's is to be at least N, on the eighth of the texts that calibration does not see;\n"
    "                      kl=N: the mean divergence of the probabilities that a head gives is to be at most N nats. While it is missed, the layers that cost\n"
    "                      most get scales for each token, then attention is done in float, then linear layers are. Can be given once of each kind\n"
    "  --synthetic SHAPE   a random model for measuring speed: bert-large, bert-base, distilbert, xlm-r-base or minilm\n"
    "  --report FILE       what was chosen and what it costs: errors by layer, outlier channels, agreement with the float model; one page of HTML, or JSON if\n"
    "                      FILE ends in .json; may be given more than once\n"
    "  --quiet             nothing on the terminal\n"
    "  --help, --version\n"
    "\n"
    "The table that it prints: how far each layer's output is off on rows of the calibration texts, in INT8 as it is (plain) and with what was chosen (smoothed).\n"
    "Form: activation scales that are fixed (static) or found for each token (dynamic), or float; of attention, softmax weights of 8 or 16 bits, or f32.\n"
    "Smoothing: none, SmoothQuant's with its strength, or balance: factors that balance the rounding errors of activations and weights, above 1 for the weights.\n"
    "Clip: how much of their range queries and keys keep.\n"
    "\n"
    "examples:\n"
    "  sq-convert ./all-MiniLM-L6-v2 -o minilm.sq --calibrate my-texts.txt --report minilm.html\n"
    "  sq-convert ./my-classifier -o classifier.sq --calibrate my-texts.txt --budget kl=0.001\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage.\n";

struct arguments {
    sq::convert_options options;
    std::vector<std::string> reports; // files
    bool quiet = false;
};

int usage(const char *problem, const char *detail) {
    fprintf(stderr, "sq-convert: %s%s\n%s", problem, detail, USAGE);
    return 2;
}

// "cos=0.999" or "kl=0.01"
bool parse_budget(const char *text, sq::budget *budget) {
    const bool is_cos = strncmp(text, "cos=", 4) == 0, is_kl = strncmp(text, "kl=", 3) == 0;
    if (!is_cos && !is_kl) return false;
    const char *number = text + (is_cos ? 4 : 3);
    char *end;
    const double value = strtod(number, &end);
    if (end == number || *end || !(value > 0) || value > (is_cos ? 1 : 1e6)) return false;
    (is_cos ? budget->cos : budget->kl) = value;
    return true;
}

bool parse_mode(const char *text, sq::quant_mode *mode) {
    if (strcmp(text, "static") == 0) *mode = sq::quant_mode::static_scales;
    else if (strcmp(text, "fast") == 0) *mode = sq::quant_mode::fast;
    else if (strcmp(text, "dynamic") == 0) *mode = sq::quant_mode::dynamic_scales;
    else if (strcmp(text, "float") == 0) *mode = sq::quant_mode::none;
    else return false;
    return true;
}

// Returns -1 to go on, else the exit status.
int parse(int argc, char **argv, arguments *a) {
    for (int i = 1; i < argc; i++) {
        const std::string arg = argv[i];
        if (arg == "--help" || arg == "-h") return fputs(USAGE, stdout) < 0 || fflush(stdout) != 0;
        if (arg == "--version") return printf("sq-convert %s\n", sq_version_string()) < 0 || fflush(stdout) != 0;
        if (arg == "--quiet") {
            a->quiet = true;
            continue;
        }
        if (arg.empty() || arg[0] != '-') {
            if (!a->options.checkpoint.empty()) return usage("more than one model to convert: ", argv[i]);
            a->options.checkpoint = arg;
            continue;
        }
        constexpr const char *WITH_VALUE[] = {"-o", "--output", "--mode", "--calibrate", "--budget", "--synthetic", "--report"};
        if (std::find(std::begin(WITH_VALUE), std::end(WITH_VALUE), arg) == std::end(WITH_VALUE)) return usage("unknown option: ", argv[i]);
        if (++i == argc || !*argv[i]) return usage("a value is missing after ", arg.c_str());
        if (arg == "--synthetic" && !a->options.checkpoint.empty()) return usage("more than one model to convert: ", argv[i]);
        if (arg == "--synthetic") a->options.synthetic = true, a->options.checkpoint = argv[i];
        else if (arg == "--calibrate") a->options.calibration_file = argv[i];
        else if (arg == "--report") a->reports.push_back(argv[i]);
        else if (arg == "--budget" && !parse_budget(argv[i], &a->options.budget)) return usage("no budget like cos=0.999 or kl=0.01: ", argv[i]);
        else if (arg == "--budget") continue;
        else if (arg != "--mode") a->options.output = argv[i];
        else if (!parse_mode(argv[i], &a->options.mode)) return usage("unknown mode: ", argv[i]);
    }
    if (a->options.checkpoint.empty()) return usage("no checkpoint folder given", "");
    if (a->options.output.empty()) return usage("no output file given (-o)", "");
    if (a->options.budget.is_wanted() && a->options.mode == sq::quant_mode::none) return usage("a budget is for INT8: ", "--mode float loses nothing");
    return -1;
}

double seconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

const double started = seconds();

// A bar, and once there is something to tell from, the time left
void show_progress(const char *what, double share) {
    constexpr int WIDTH = 30;
    const double left = (seconds() - started) * (1 - share) / share;
    fprintf(stderr, "\r%s [%-*.*s] %3.0f %%, %.0f s left ", what, WIDTH, static_cast<int>(share * WIDTH), "##############################", 100 * share, left);
    if (share >= 1) fprintf(stderr, "\n");
    fflush(stderr);
}

void print_agreement(const sq::convert_result &r) {
    for (const sq::budget_step &s : r.steps) {
        printf("budget: layer %u %s is %s: mean cosine %.5f", s.layer, s.part, s.form, s.after.cos_mean);
        printf(s.after.has_logits ? ", divergence %.2g nats\n" : "\n", s.after.kl_mean);
    }
    const sq::agreement &g = r.result;
    if (g.n_texts == 0) return;
    printf("\nagreement with the float model on %u texts held back: cosine lowest %.5f, mean %.5f", g.n_texts, g.cos_lowest, g.cos_mean);
    if (g.has_logits) printf("; divergence of probabilities highest %.2g, mean %.2g nats", g.kl_highest, g.kl_mean);
    printf("\n");
}

// What it took: seconds, and the most memory that was resident, of which mapped pages of the checkpoint are a part
void print_cost() {
    rusage u;
    if (getrusage(RUSAGE_SELF, &u) == 0) printf("took %.1f s and %.0f MB of memory\n", seconds() - started, static_cast<double>(u.ru_maxrss) / 1e3);
}

void print_report(const sq::convert_result &r, const arguments &a) {
    printf("%s\n", r.description.c_str());
    if (!r.layers.empty()) {
        const bool built_in = a.options.calibration_file.empty();
        printf("calibrated on %u texts (%u tokens)%s\n\n", r.n_texts, r.n_tokens,
               built_in ? " of the built-in set: texts of your own, by --calibrate, give better scales" : "");
        printf("relative error of each layer's output on calibration rows\n%6s %-5s %8s %9s  %-8s %s\n", "layer", "", "plain", "smoothed", "form", "smoothing");
        for (size_t i = 0; i < r.attention.size(); i++)
            printf("%6zu %-9s %14.3f%%  %-8s clip %.2f\n", i, "attention", 100 * r.attention[i].error, r.attention[i].weights,
                   static_cast<double>(r.attention[i].clip));
        for (const sq::layer_report &l : r.layers)
            printf("%6u %-5s %7.3f%% %8.3f%%  %-8s %s\n", l.layer, sq::ROLE_NAMES[l.role], 100 * l.chosen.plain_error, 100 * l.chosen.error,
                   sq::form_of(l), l.chosen.smoothing.c_str());
    }
    print_agreement(r);
    struct stat st;
    if (stat(a.options.output.c_str(), &st) == 0) printf("\n%s: %.1f MB\n", a.options.output.c_str(), static_cast<double>(st.st_size) / 1e6);
    print_cost();
}

int convert_and_report(const arguments &a, sq::convert_result *result, sq::message *why) {
    if (int status = sq::check_reports(a.reports, a.options, why)) return status;
    if (int status = sq::convert(a.options, result, why)) return status;
    for (const std::string &path : a.reports)
        if (int status = sq::write_report(path, a.options, *result, why)) return status;
    return SQ_OK;
}

int run(int argc, char **argv) {
    arguments a;
    if (int status = parse(argc, argv, &a); status >= 0) return status;
    if (!a.quiet && isatty(STDERR_FILENO)) a.options.report = show_progress;
    sq::convert_result result;
    sq::message why{};
    if (convert_and_report(a, &result, &why) != SQ_OK) {
        fprintf(stderr, "sq-convert: %s\n", why.text);
        return 1;
    }
    if (!a.quiet) print_report(result, a);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "sq-convert: cannot write the report: %s\n", strerror(errno));
        return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::bad_alloc &) {
        fprintf(stderr, "sq-convert: out of memory\n");
        return 1;
    }
}
