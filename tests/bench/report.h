// tests/bench/report.h - what every benchmark says first: the machine, the kernels, the threads, the commit.
#ifndef SQ_TESTS_BENCH_REPORT_H
#define SQ_TESTS_BENCH_REPORT_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <string>

inline std::string cpu_name() {
    std::string name = "unknown CPU";
    if (FILE *f = fopen("/proc/cpuinfo", "r")) {
        char line[256];
        while (fgets(line, sizeof line, f))
            if (strncmp(line, "model name", 10) == 0) name = std::string(strchr(line, ':') + 2, strcspn(strchr(line, ':') + 2, "\n"));
        fclose(f);
    }
    return name;
}

// Short name of the commit that the sources are at, with "+" if they differ from it.
inline std::string commit() {
    std::string name;
    if (FILE *f = popen("git describe --always --dirty=+ --exclude='*' 2>/dev/null", "r")) {
        char line[64] = "";
        if (fgets(line, sizeof line, f)) name.assign(line, strcspn(line, "\n"));
        pclose(f);
    }
    return name.empty() ? "no commit" : name;
}

inline void print_machine(const char *isa, uint32_t n_threads) {
    printf("# %s, %s, %u thread%s, commit %s\n", cpu_name().c_str(), isa, n_threads, n_threads == 1 ? "" : "s", commit().c_str());
}

#endif
