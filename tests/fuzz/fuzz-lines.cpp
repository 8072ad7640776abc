// tests/fuzz/fuzz-lines.cpp - any bytes as a file of JSON lines for the `sq` command, read as each command reads its lines; and as text for the terminal.
//
// The first byte chooses the form of the lines.
#include <iterator>

#include "../../convert/json.h"
#include "../../examples/cli-common.h"
#include "../scratch.h"
#include "require.h"

namespace {

bool is_utf8(std::string_view text) {
    bool valid = true;
    for (const char *p = text.data(), *end = p + text.size(); valid && p < end;) p += sq::json::utf8_step(p, end, &valid);
    return valid;
}

void require_row(const cli::row &r, const cli::row_form &form, size_t last_line) {
    REQUIRE(r.number > last_line);
    REQUIRE(is_utf8(r.a) && is_utf8(r.b) && r.a.compare(0, 2, "> ") == 0);
    REQUIRE(form.kind != cli::second_text::REFUSED || !r.is_pair);
    REQUIRE(form.kind != cli::second_text::REQUIRED || r.is_pair);
    REQUIRE(form.kind == cli::second_text::LIST || r.list.empty());
    for (const std::string &text : r.list) REQUIRE(is_utf8(text));
}

void read_lines(const std::string &path, const cli::row_form &form) {
    cli::options o;
    o.jsonl = path;
    o.prefix = "> ";
    size_t last_line = 0;
    try {
        cli::row_source rows(o, form, {});
        for (cli::row r; rows.next(&r); last_line = r.number) require_row(r, form, last_line);
        REQUIRE(!rows.would_wait()); // at the end nothing is waited for
    } catch (const cli::failure &f) {
        REQUIRE(f.exit_code == cli::EXIT_FAILED && f.text.compare(0, path.size() + 1, path + ":") == 0); // "FILE:LINE: ..."
        REQUIRE(std::stoul(f.text.substr(path.size() + 1)) > last_line);
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const scratch folder; // one for the life of the process
    static const cli::row_form FORMS[] = {cli::TEXT_OR_PAIR, cli::SINGLE_TEXT, cli::QUESTION, cli::QUERY};
    input_bytes in(data, n_bytes);
    const cli::row_form &form = FORMS[in.byte() % std::size(FORMS)];
    const std::string bytes = in.rest(), path = folder.path + "/lines";
    folder.put("lines", bytes);
    read_lines(path, form);
    REQUIRE(cli::read_file(path) == bytes);
    const std::string shown = cli::printable(bytes, 20);
    REQUIRE(is_utf8(shown) && cli::count_chars(shown) <= 23); // 20 and "..."
    for (const char c : shown) REQUIRE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
    return 0;
}
