// convert/report.cpp - the files of a report; report-html.cpp and report-json.cpp say what is in them.
#include "report.h"

#include "output-file.h"
#include "source-file.h"

namespace sq {

const char *mode_of(const convert_options &options) {
    return options.mode == quant_mode::none ? "float" : options.mode == quant_mode::dynamic_scales ? "dynamic" : options.mode == quant_mode::fast ? "fast" : "static";
}

const char *form_of(const layer_report &l) { return l.is_float ? "float" : l.chosen.is_dynamic ? "dynamic" : "static"; }

int check_reports(const std::vector<std::string> &paths, const convert_options &options, message *why) {
    std::vector<std::string> others = input_files(options);
    others.push_back(options.output);
    for (const std::string &path : paths) {
        if (int status = check_output_file(path, others, why)) return status;
        others.push_back(path);
    }
    return SQ_OK;
}

int write_report(const std::string &path, const convert_options &options, const convert_result &result, message *why) {
    const std::string text = ends_with(path, ".json") ? report_json(options, result) : report_html(options, result);
    output_file file;
    if (int status = file.open(path, why)) return status;
    if (int status = file.write(text.data(), text.size(), why)) return status;
    if (int status = file.finish(why)) return status;
    return file.commit(why);
}

} // namespace sq
