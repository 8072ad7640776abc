// tok.cpp - speed of the tokenizers on one thread, spans included, as CSV: MB of text a second.
//
//     tok FOLDER [TEXTS...]
//
// FOLDER has a tokenizer as checkpoints have it. Each file of TEXTS has a text per line; "squad:FILE" takes the contexts of a SQuAD file. Without TEXTS:
// paragraphs in English, German and Chinese and many languages' sentences from SQ_SHARED. Compare with tests/bench/tok-hf.py, which takes the same arguments.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "../../convert/json.h"
#include "../tok.h"

using namespace sq;

static double now() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); // CPU time: a neighbour on the machine should not count
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

static std::vector<std::string> read_texts(const std::string &name) {
    const bool is_squad = name.rfind("squad:", 0) == 0;
    std::ifstream in(is_squad ? name.substr(6) : name, std::ios::binary);
    std::vector<std::string> texts;
    if (!is_squad) {
        for (std::string line; std::getline(in, line);) texts.push_back(line);
        return texts;
    }
    std::stringstream bytes;
    bytes << in.rdbuf();
    json::value root;
    if (!json::parse(bytes.str().data(), bytes.str().size(), &root, nullptr) || !root.find("data")) return texts;
    for (const json::value &article : root.find("data")->items)
        if (const json::value *paragraphs = article.find("paragraphs"))
            for (const json::value &p : paragraphs->items) texts.push_back(p.find("context")->text);
    return texts;
}

static void measure(const tok_model &m, const std::string &name) {
    const std::vector<std::string> texts = read_texts(name);
    size_t n_bytes = 0, n_tokens = 0;
    for (const std::string &t : texts) n_bytes += t.size();
    std::vector<double> seconds;
    encoding e;
    for (double spent = 0; n_bytes > 0 && (seconds.size() < 9 || spent < 1); spent += seconds.back()) {
        n_tokens = 0;
        const double start = now();
        for (const std::string &t : texts) {
            if (m.encode(t, nullptr, {}, &e) != SQ_OK) exit(1);
            n_tokens += e.ids.size();
        }
        seconds.push_back(now() - start);
    }
    if (seconds.empty()) return;
    std::sort(seconds.begin(), seconds.end());
    const double megabytes = double(n_bytes) / 1e6;
    printf("%s,%zu,%zu,%zu,%.1f,%.1f\n", name.c_str(), texts.size(), n_bytes, n_tokens, megabytes / seconds[seconds.size() / 2], megabytes / seconds[0]);
    fflush(stdout);
}

int main(int argc, char **argv) {
    const std::string folder = argc > 1 ? argv[1] : "tests/data/tok/bert-uncased";
    tok_model m;
    if (m.read(folder) != SQ_OK) {
        fprintf(stderr, "%s: %s\n", folder.c_str(), m.why.text);
        return 1;
    }
    printf("# %s, model file %.2f MB, 1 thread\ntexts,n,bytes,tokens,median_MB_s,best_MB_s\n", folder.c_str(), double(m.image.size()) / 1e6);
    for (int i = 2; i < argc; i++) measure(m, argv[i]);
    if (argc > 2) return 0;
    const std::string data = std::string(getenv("SQ_SHARED") ? getenv("SQ_SHARED") : "../shared") + "/data/";
    for (const char *name : {"qa_squad", "qa_xquad_de", "qa_xquad_zh"}) measure(m, "squad:" + data + "tasks/" + name + ".json");
    measure(m, data + "calibrate.txt");
}
