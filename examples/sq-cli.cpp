// examples/sq-cli.cpp - the `sq` command: main and help.
//
// Each command is a file of its own: cli-embed.cpp and so on. Options are in cli-options.cpp, input and output in cli-io.cpp, what runs models in cli-run.cpp.
// Exit status: 0 done, 1 failed, 2 wrong usage.
#include <errno.h>
#include <signal.h>
#include <string.h>

#include <new>

#include "cli-common.h"

namespace cli {

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
     "{\"embedding\": [NUMBER, ...], \"tokens\": COUNT, \"truncated\": false} for each. Stops at the first line that is wrong.\n"
     "\n"
     "examples:\n"
     "  sq embed -m minilm.sq 'A man is eating.' 'Someone has lunch.'\n"
     "  sq embed -m minilm.sq --jsonl texts.jsonl -o vectors.jsonl\n"
     "  sq embed -m minilm.sq --jsonl - --format npy --type s8 -o vectors.npy <texts.jsonl\n"
     "  sq embed -m e5.sq --prefix 'query: ' 'Who eats?'\n"},
    {"classify", CLASSIFY, run_classify, "-m MODEL [--jsonl FILE | TEXT... | --pair A B]", "give texts or pairs their labels",
     "Prints each label with its score, best first: the softmax of the logits, or where labels are independent the sigmoid.\n"
     "With --jsonl, reads {\"a\": TEXT} or {\"a\": TEXT, \"b\": SECOND TEXT} from each line and writes\n"
     "{\"label\": BEST, \"labels\": [NAME, ...], \"scores\": [...], \"logits\": [...]} for each, labels in the model's order.\n"
     "With --truncate, \"truncated\" tells whether the text was cut.\n"
     "\n"
     "examples:\n"
     "  sq classify -m sst2.sq 'A gorgeous film.'\n"
     "  sq classify -m nli.sq --pair 'A man is eating.' 'Someone has lunch.'\n"
     "  sq classify -m nli.sq --jsonl pairs.jsonl -o labels.jsonl\n"},
    {"rerank", RERANK, run_rerank, "-m MODEL [--jsonl FILE | QUERY DOCUMENT... | QUERY --documents FILE]", "sort documents by how well they fit a query",
     "Prints score, number and text of each document, best first. The model is a cross-encoder, with one label.\n"
     "With --jsonl, reads {\"query\": TEXT, \"documents\": [TEXT, ...]} from each line and writes\n"
     "{\"order\": [INDEX, ...], \"scores\": [...]} for each: indices from 0, best first; scores in the order of the documents.\n"
     "With --truncate, \"truncated\" tells whether any document was cut.\n"
     "\n"
     "examples:\n"
     "  sq rerank -m reranker.sq 'who wrote Faust' 'Goethe wrote Faust.' 'A fist is a closed hand.'\n"
     "  sq rerank -m reranker.sq 'who wrote Faust' --documents passages.txt\n"
     "  sq rerank -m reranker.sq --jsonl queries.jsonl -o orders.jsonl\n"},
    {"answer", ANSWER, run_answer, "-m MODEL [--jsonl FILE | QUESTION CONTEXT | QUESTION --context-file FILE | --squad FILE]", "find the answers to questions in their contexts",
     "Prints score, probability, bytes and text of the best answer. A context of any length is read in windows that overlap.\n"
     "With --jsonl, reads {\"question\": TEXT, \"context\": TEXT} from each line and writes\n"
     "{\"text\": ANSWER, \"start\": FIRST, \"end\": PAST, \"score\": NUMBER} for each; start and end count bytes of the context.\n"
     "With --top, \"answers\" lists the best. No answer is the empty text at 0.\n"
     "With --squad, writes {ID: ANSWER, ...}, the predictions that the official evaluation scripts take.\n"
     "\n"
     "examples:\n"
     "  sq answer -m squad.sq 'Who wrote Faust?' 'Faust is a play by Goethe.'\n"
     "  sq answer -m squad.sq 'Who is the whale?' --context-file moby-dick.txt --top 5\n"
     "  sq answer -m squad2.sq --squad dev-v2.0.json --allow-null -o predictions.json\n"},
    {"tag", TAG, run_tag, "-m MODEL [--jsonl FILE | TEXT...]", "find entities in texts",
     "Prints score, label, bytes and text of each entity. Neighbouring tokens of one kind are an entity; B- and I- are left out\n"
     "of its label, its score is the mean of theirs. With --jsonl, reads {\"a\": TEXT} from each line and writes\n"
     "{\"entities\": [{\"label\": NAME, \"start\": FIRST, \"end\": PAST, \"score\": NUMBER, \"text\": TEXT}, ...]} for each.\n"
     "With --truncate, \"truncated\" tells whether the text was cut.\n"
     "\n"
     "examples:\n"
     "  sq tag -m ner.sq 'Angela lives in Berlin.'\n"
     "  sq tag -m ner.sq --words --jsonl texts.jsonl\n"},
    {"tokenize", TOKENIZE, run_tokenize, "-m MODEL [--jsonl FILE | TEXT...]", "show the tokens of texts",
     "Prints a table of each text's tokens. With --jsonl, reads lines as `sq embed` does and writes\n"
     "{\"ids\": [...], \"types\": [...], \"spans\": [[FIRST, PAST], ...], \"tokens\": [...]} for each; spans count bytes.\n"
     "\n"
     "examples:\n"
     "  sq tokenize -m minilm.sq 'Hello, world!'\n"
     "  sq tokenize -m minilm.sq --jsonl pairs.jsonl --truncate\n"},
    {"info", INFO, run_info, "MODEL", "describe a model file",
     "Prints sizes, settings, the instruction set in use and the metadata of the file.\n"
     "\n"
     "example:\n"
     "  sq info minilm.sq --verify\n"},
    {"bench", BENCH, run_bench, "MODEL [--tokens N,...] [--instances N]", "measure latency, or throughput of many instances",
     "Runs batches of pseudo-random tokens and prints for each length: median and 90th percentile of a call's time; tokens and matrix\n"
     "operations (a multiply-add is two) a second at the median; their share of the peak; the peak of one thread and of all threads,\n"
     "10^9 operations a second; resident memory, and of it anonymous, in 2^20 bytes. The peak is a loop of independent multiply-adds\n"
     "of the instruction set in use (TDPBUSD, VPDPBUSD, VPMADDWD; for a float model FMA), measured right before and after each block\n"
     "of calls, so that changes of frequency drop out. Plain C++ has none.\n"
     "\n"
     "With --instances, that many threads call at once, each with a context of its own, all on one model: 100 calls to warm up and\n"
     "200 timed ones, begun together. Requests are counted from the last start to the first finish, while all are at work.\n"
     "\n"
     "examples:\n"
     "  sq bench minilm.sq\n"
     "  sq bench minilm.sq --tokens 128 --batch 8 --threads 1 --seconds 3 --json\n"
     "  sq bench bert-large.sq --instances 16 --threads 4 --pin --numa\n"},
    {"profile", PROFILE, run_profile, "MODEL [--tokens N] [--svg FILE]", "break the time down by operator, beside the roofline",
     "Prints for each operator its time in a call, share, matrix operations a second, and for products:\n"
     "  op/byte    arithmetic intensity 2MNK / (E_in (MK + KN) + E_out MN), for M rows, K inputs and N outputs; E: bytes of an element,\n"
     "             1 for int8 inputs and for outputs that are quantised at once, else 4. Attention of S tokens: S / 4, since\n"
     "             4 S S D operations read or write 4 S D floats, in the LLC where the model fits it\n"
     "  bound      P = min(peak, B op/byte). B is the memory's bandwidth; where the model fits the last-level cache (LLC), for bytes\n"
     "             D_X + D_W + D_Y of inputs, weights and outputs, B = (D_X + D_W + D_Y) / ((D_X + D_Y) / B_mem + D_W / B_LLC)\n"
     "  of bound   the measured rate's share of it; above 100 % where data came from nearer caches than B tells\n"
     "For all linear layers together P = sum(F) / sum(F / P), F operations. The ceiling of the whole is the linear layers' time at their\n"
     "bounds plus the measured time of everything else. Peaks are measured between blocks of calls, bandwidths before them.\n"
     "Sources: the roofline model, Williams, Waterman and Patterson 2009 (doi:10.1145/1498765.1498785); its form here, arXiv 2608.18182.\n"
     "\n"
     "examples:\n"
     "  sq profile minilm.sq\n"
     "  sq profile bert-large.sq --tokens 256 --threads 4 --svg roofline.svg\n"},
    {"tune", TUNE, run_tune, "MODEL [--tokens N,...] [-o FILE]", "find the fastest plans once, for --tuning",
     "A context tries a few ways of sharing a layer's work over threads and tiles during its first calls of each length (up to 8, 16,\n"
     "32, ... tokens) and keeps the fastest; results never change. `sq tune` does that ahead and writes what was found, a line for each\n"
     "length. With --tuning it keeps the lines of that file, so one file can serve several models, threads and instruction sets.\n"
     "\n"
     "examples:\n"
     "  sq tune minilm.sq -o plans.txt\n"
     "  sq tune e5.sq --threads 4 --tuning plans.txt -o plans.txt\n"
     "  sq embed -m minilm.sq --tuning plans.txt 'A man is eating.'\n"},
};

static void print_help(FILE *to) {
    fputs("usage: sq COMMAND -m MODEL [OPTION...] [TEXT...]\n\nINT8 inference of BERT-family encoders. sq-convert makes the model files.\n\ncommands:\n", to);
    for (const command_spec &c : COMMANDS) fprintf(to, "  %-10s %s\n", c.name, c.summary);
    fputs("\n"
          "`sq COMMAND --help` tells more. `sq --version` prints the version.\n"
          "\n"
          "examples:\n"
          "  sq embed -m minilm.sq 'A man is eating.' 'Someone has lunch.'\n"
          "  sq classify -m nli.sq --pair 'A man is eating.' 'Someone has lunch.'\n"
          "  sq info minilm.sq\n"
          "  sq bench minilm.sq\n"
          "\n"
          "Exit status: 0 done, 1 failed, 2 wrong usage.\n",
          to);
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
