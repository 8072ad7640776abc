# cmake/amalgamate.awk - all of the library as one file: the given sources, with their own headers in place of the lines that include them.
#
# usage: awk -v version=X.Y.Z -f cmake/amalgamate.awk SOURCE...      run by `make amalgamation` in the folder of the sources
# A header with a guard comes once, one without (code for each instruction set) wherever it is included. sq.h stays a file of its own.
function print_file(name,    line, quoted) {
    if (name in printed) return
    print "// ======== " name " ========"
    while ((getline line < name) > 0) {
        if (line ~ /^#ifndef SQ_[A-Z_]*_H$/) printed[name]
        split(line, quoted, "\"")
        if (line !~ /^#include "/ || quoted[2] == "sq.h") print line
        else print_file(quoted[2])
    }
    close(name)
}
BEGIN {
    print "// sq-amalgamation.cpp - sq " version ", the library in one file. sq.h documents it; any C++17 compiler makes it, for instance"
    print "//\n//     g++ -std=c++17 -O2 -pthread -c sq-amalgamation.cpp\n//"
    print "// Instruction sets are chosen at run time: no -m flag is needed.\n//"
    while ((getline line < "LICENSE") > 0) print line == "" ? "//" : "// " line
    for (i = 1; i < ARGC; i++) print_file(ARGV[i])
}
