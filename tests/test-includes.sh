#!/usr/bin/env bash
# tests/test-includes.sh - who may include whom: the edges that HACKING.md describes, checked on every #include "..." of the tree.
set -euo pipefail
cd "$(dirname "$0")/.."

own_of_convert=$(find convert -name '*.h' -printf '%f|' -o -name '*.inc' -printf '%f|')
own_of_convert=${own_of_convert%|}

# Sets `allowed` to the project headers that a file may include: a regular expression on the header's base name; ".*" allows everything.
look_up() {
    case "$1" in
    sq.h) allowed='(none)' ;;
    examples/hello.c) allowed='sq\.h' ;;
    examples/*) allowed='sq\.h|json\.h|cli-.*\.h' ;;
    convert/json.h) allowed='(none)' ;;
    convert/*) allowed="sq(-model|-quant|-kernels|-tok|-tok-[a-z]+|-cpu)?\.h|$own_of_convert" ;;
    sq.cpp | sq-tasks.cpp | sq-ctx.h | sq-model.h | sq-model.cpp) allowed='sq(-ctx|-model|-tok|-kernels|-cpu|-threads|-tune)?\.h' ;;
    sq-tok*) allowed='sq(-model|-tok|-tok-.*)?\.h|sq-unicode\.inc' ;;
    sq-cpu*) allowed='sq-(cpu|kernels|tok)\.h|sq\.h' ;;
    sq-tune*) allowed='sq-(tune|model|kernels)\.h' ;;
    sq-threads*) allowed='sq-(threads|cpu)\.h' ;;
    sq-quant*) allowed='sq(-quant|-model|-kernels)?\.h' ;;
    sq-kernels*) allowed='sq-kernels.*\.h' ;;
    tests/*) allowed='.*' ;;
    *) allowed='(none)' ;;
    esac
}

failed=0
complain() {
    echo "$1" >&2
    failed=1
}

n_edges=0
while IFS=: read -r file line; do
    header=${line#*\"} header=${header%%\"*}
    n_edges=$((n_edges + 1))
    look_up "$file"
    [[ ${header##*/} =~ ^($allowed)$ ]] || complain "$file may not include $header"
done < <(grep -E '^ *# *include *"' -- *.h *.cpp *.inc convert/* examples/*.c examples/*.h examples/*.cpp tests/*.* tests/*/*.* 2>/dev/null)

# Kernels see nothing of the system but integer types, intrinsics and std::index_sequence, which has no code: an inline function of the C++ library that is
# compiled in a target region could replace everybody's copy at link time (test-symbols.sh looks for that as well).
while IFS=: read -r file line; do
    case "$line" in
    *'<stddef.h>'* | *'<stdint.h>'* | *'<string.h>'* | *'<math.h>'* | *'<immintrin.h>'* | *'<utility>'*) ;;
    *) complain "$file: kernels may not use: $line" ;;
    esac
done < <(grep -E '^ *# *include *<' -- sq-kernels*)

# The library neither prints nor ends the process. (snprintf writes to memory; sq-convert and the tests are programs.)
if grep -nwE 'printf|puts|fputs|fprintf|cout|cerr|abort|exit|_exit|assert' -- sq.cpp sq-tasks.cpp sq-ctx.h sq-model.cpp sq-tok*.cpp sq-cpu.cpp sq-threads.cpp sq-tune.cpp sq-kernels* 2>/dev/null |
    grep -vE '^[^:]+:[0-9]+: *//|format\(printf|//.*(printf|abort|exit|assert)'; then
    complain "the lines above print or end the process"
fi

((n_edges > 0)) || complain "no #include found: is this the root of the tree?"
echo "test-includes: $n_edges edges, $([[ $failed == 0 ]] && echo fine || echo wrong)"
exit "$failed"
