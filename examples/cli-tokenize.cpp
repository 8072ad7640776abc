// examples/cli-tokenize.cpp - `sq tokenize`: the tokens of each row, as a table or as a JSON line.
#include "../convert/json.h"
#include "cli-common.h"

namespace cli {

namespace json = sq::json;

struct tokens {
    std::vector<int32_t> ids, types, sources;
    std::vector<uint32_t> spans; // two per token

    void resize(size_t n) {
        ids.resize(n), types.resize(n), sources.resize(n);
        spans.resize(2 * n);
    }
};

static void tokenize(const sq_model *model, const row_source &rows, const row &r, const sq_tokenize_params &params, tokens *t) {
    const char *b = r.is_pair ? r.b.data() : nullptr;
    size_t n = 0, cap = 512;
    for (;;) {
        t->resize(cap);
        const int32_t status =
            sq_tokenize(model, r.a.data(), r.a.size(), b, r.b.size(), &params, t->ids.data(), t->types.data(), t->spans.data(), t->sources.data(), cap, &n);
        if (status == SQ_OK) return t->resize(n);
        if (status == SQ_E_LIMIT && n > params.max_len) fail_too_long(rows.place(r.number), n, params.max_len);
        if (status != SQ_E_SPACE || n <= cap) fail("%s: %s", rows.place(r.number).c_str(), sq_status_string(status));
        cap = n;
    }
}

static void append_list(std::string *out, const char *key, const std::vector<int32_t> &list) {
    *out += key;
    for (size_t i = 0; i < list.size(); i++) {
        if (i) *out += ',';
        json::append_number(out, list[i]);
    }
}

static std::string json_line(const sq_model *model, const tokens &t) {
    std::string line;
    append_list(&line, "{\"ids\":[", t.ids);
    append_list(&line, "],\"types\":[", t.types);
    line += "],\"spans\":[";
    for (size_t i = 0; i < t.ids.size(); i++) {
        line += i ? ",[" : "[";
        json::append_number(&line, t.spans[2 * i]);
        line += ',';
        json::append_number(&line, t.spans[2 * i + 1]);
        line += ']';
    }
    line += "],\"tokens\":[";
    for (size_t i = 0; i < t.ids.size(); i++) {
        if (i) line += ',';
        json::append_string(&line, token_text(model, t.ids[i]));
    }
    return line + "]}\n";
}

// One token a line: place, id, type, token, bytes [first, past) and the text there.
static std::string table(const sq_model *model, const row &r, const tokens &t) {
    std::string out = printable(r.a, 70) + "\n";
    for (size_t i = 0; i < t.ids.size(); i++) {
        const uint32_t first = t.spans[2 * i], past = t.spans[2 * i + 1];
        char numbers[64], span[32];
        snprintf(numbers, sizeof numbers, "%5zu %7d %2d  ", i, static_cast<int>(t.ids[i]), static_cast<int>(t.types[i]));
        snprintf(span, sizeof span, "%u..%u", static_cast<unsigned>(first), static_cast<unsigned>(past));
        out += numbers + pad_right(printable(token_text(model, t.ids[i]), 20), 24);
        if (t.sources[i] >= 0 && past <= r.a.size()) out += pad_right(span, 12) + printable(std::string_view(r.a).substr(first, past - first), 40);
        while (out.back() == ' ') out.pop_back();
        out += '\n';
    }
    return out;
}

void run_tokenize(const options &o) {
    row_source rows(o, TEXT_OR_PAIR, rows_of_texts(o));
    const model_ptr model = load_model(o);
    output out(o.output);
    sq_tokenize_params params;
    sq_tokenize_params_init(&params, sizeof params);
    params.max_len = static_cast<uint32_t>(longest_allowed(o, model_info(model.get())));
    params.truncate = o.truncate;
    params.specials_as_text = o.specials_as_text;
    tokens t;
    run_rows(&rows, &out, "texts", [&](const row &r) {
        tokenize(model.get(), rows, r, params, &t);
        out.write(o.format == FORMAT_JSONL ? json_line(model.get(), t) : table(model.get(), r, t));
    });
    out.commit();
}

} // namespace cli
