// examples/cli-machine.cpp - processors, caches and memory as Linux tells them. Speeds are measured in cli-speed.cpp.
//
// Files and their forms: Documentation/ABI/testing/sysfs-devices-system-cpu and sysfs-devices-node, proc(5), Documentation/admin-guide/cgroup-v2.rst in Linux.
#include "cli-machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <set>

namespace cli {

static const char CPU_FOLDER[] = "/sys/devices/system/cpu/cpu", NODE_FOLDER[] = "/sys/devices/system/node/";

// The beginning of a system file without the newline at its end, "" if it cannot be read.
static std::string slurp(const std::string &path) {
    std::string text;
    if (FILE *f = fopen(path.c_str(), "re")) {
        char buffer[1 << 14];
        text.assign(buffer, fread(buffer, 1, sizeof buffer, f));
        fclose(f);
    }
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

// The number that a small system file holds, or `otherwise`.
static long long number_in(const std::string &path, long long otherwise) {
    const std::string text = slurp(path);
    char *end;
    const long long x = strtoll(text.c_str(), &end, 10);
    return end == text.c_str() ? otherwise : x;
}

// The numbers of a list like "0-3,8,10-11".
static std::vector<int32_t> parse_list(const std::string &text) {
    std::vector<int32_t> list;
    for (const char *p = text.c_str(); *p;) {
        char *end;
        const long first = strtol(p, &end, 10);
        if (end == p) break;
        long last = first;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long i = std::max(first, 0L); i <= last && i < CPU_SETSIZE; i++) list.push_back(static_cast<int32_t>(i));
        p = *end == ',' ? end + 1 : end;
        if (p == end) break;
    }
    return list;
}

// ---- processors ----

std::vector<int32_t> allowed_cpus() {
    cpu_set_t set;
    std::vector<int32_t> cpus;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return {0}; // more processors than a cpu_set_t holds
    for (int32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    return cpus;
}

bool bind_this_thread(const std::vector<int32_t> &cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int32_t cpu : cpus) CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

std::vector<numa_node> numa_nodes() {
    const std::vector<int32_t> allowed = allowed_cpus();
    std::vector<numa_node> nodes;
    for (int32_t id : parse_list(slurp(std::string(NODE_FOLDER) + "online"))) {
        numa_node node = {id, {}};
        for (int32_t cpu : parse_list(slurp(NODE_FOLDER + ("node" + std::to_string(id)) + "/cpulist")))
            if (std::binary_search(allowed.begin(), allowed.end(), cpu)) node.cpus.push_back(cpu);
        if (!node.cpus.empty()) nodes.push_back(std::move(node));
    }
    if (nodes.empty()) nodes.push_back({0, allowed});
    return nodes;
}

std::vector<core> physical_cores(bool *is_known) {
    const std::vector<numa_node> nodes = numa_nodes();
    const auto node_of = [&](int32_t cpu) {
        for (const numa_node &n : nodes)
            if (std::find(n.cpus.begin(), n.cpus.end(), cpu) != n.cpus.end()) return n.id;
        return nodes[0].id;
    };
    std::set<std::string> seen;
    std::vector<core> cores;
    bool known = true;
    for (int32_t cpu : allowed_cpus()) {
        const std::string topology = CPU_FOLDER + std::to_string(cpu) + "/topology/";
        std::string siblings = slurp(topology + "core_cpus_list");
        if (siblings.empty()) siblings = slurp(topology + "thread_siblings_list"); // its name before Linux 5.3
        if (siblings.empty()) known = false, siblings = std::to_string(cpu);
        if (!seen.insert(siblings).second) continue;
        cores.push_back({cpu, static_cast<int32_t>(std::max(0LL, number_in(topology + "physical_package_id", 0))), node_of(cpu)});
    }
    std::stable_sort(cores.begin(), cores.end(), [](const core &a, const core &b) { return a.package < b.package; });
    if (is_known) *is_known = known;
    return cores;
}

std::string cpu_name() {
    std::string text = slurp("/proc/cpuinfo");
    size_t at = text.find("model name");
    if (at == std::string::npos || (at = text.find(": ", at)) == std::string::npos) return "unknown CPU";
    return text.substr(at + 2, text.find('\n', at) - at - 2);
}

// ---- memory ----

size_t cache_bytes(int level) {
    for (int i = 0; i < 16; i++) {
        const std::string folder = std::string(CPU_FOLDER) + "0/cache/index" + std::to_string(i) + "/";
        const std::string size = slurp(folder + "size");
        if (size.empty()) break;
        if (number_in(folder + "level", 0) != level || slurp(folder + "type") == "Instruction") continue;
        char *end;
        const size_t n = static_cast<size_t>(strtoull(size.c_str(), &end, 10));
        return *end == 'M' ? n << 20 : *end == 'K' ? n << 10 : n;
    }
    return 0;
}

// Bytes behind "KEY:" in a file of lines like "VmRSS:   1234 kB", 0 if it is not there.
static size_t kilobytes_of(const std::string &text, const char *key) {
    const size_t at = text.find(std::string(key) + ":");
    return at == std::string::npos ? 0 : static_cast<size_t>(strtoull(text.c_str() + at + strlen(key) + 1, nullptr, 10)) << 10;
}

size_t available_bytes() {
    size_t bytes = kilobytes_of(slurp("/proc/meminfo"), "MemAvailable");
    // Inside a container the root of the cgroup file system is the container's own; version 2, then version 1.
    static const char *const LIMITS[][2] = {{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
                                            {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
    for (const auto &[limit_file, used_file] : LIMITS) {
        const long long limit = number_in(limit_file, -1), used = number_in(used_file, 0); // "max" is no number
        if (limit >= 0) bytes = std::min(bytes, static_cast<size_t>(std::max(0LL, limit - used)));
    }
    return bytes;
}

memory_use memory_in_use() {
    const std::string status = slurp("/proc/self/status");
    return {kilobytes_of(status, "VmRSS"), kilobytes_of(status, "RssAnon")};
}

double now_s() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

} // namespace cli
