#!/usr/bin/env bash
# tests/test-amalgamation.sh - what `make amalgamation` writes: alone in a folder, one bare command of each compiler makes a library of it that gives the same bits,
# has no code for newer CPUs outside of its kernels, and refuses flags that would change results.
#
# usage: test-amalgamation.sh DIR CLI_OBJECT...     (DIR: the folder with amalgamation/, sq and sq-convert; objects that make `sq` together with a library)
# Environment: CXX
set -euo pipefail
dir=$(realpath "$1")
objects=()
for object in "${@:2}"; do objects+=("$(realpath "$object")"); done
cd "$(dirname "$0")/.."
CXX=${CXX:-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$dir"/amalgamation/* "$work"
for name in bert-64 bert-classify bert-tag; do "$dir/sq-convert" "tests/golden/$name" --mode static --quiet -o "$work/$name.sq"; done
cd "$work"

complain() {
    echo "$1" >&2
    exit 1
}

# Answers of a `sq` to texts that fill several vectors, and one that is empty.
answers() {
    "$1" embed -m bert-64.sq --format jsonl 'the dog sleeps' 'a cat sleeps in the sun and the dog sees the sea' ''
    "$1" classify -m bert-classify.sq --pair 'the dog sleeps' 'a cat sleeps'
    "$1" tag -m bert-tag.sq --words 'the dog sleeps in the sun'
}

# Functions of an object with instructions of which the mnemonic matches, and that are not of the namespaces, as the linker spells them. (AVX and later: v...;
# AVX-512's masks: k...; AMX: tile..., tdp....)
functions_with() {
    objdump -d --no-show-raw-insn "$1" |
        awk -F '\t' -v mnemonic="$2" '/^[0-9a-f]+ </ { name = $1 } $2 ~ "^(" mnemonic ")" { found[name] } END { for (f in found) print f }' | grep -vE "<_Z+NK?2sq($3)" || true
}

# try NAME COMPILER FLAGS...: builds sq with it; every instruction set that this CPU runs must give what the tree's own sq gives.
try() {
    local name=$1 isa
    "${@:2}" -c sq-amalgamation.cpp -o "$name.o"
    "$2" -pthread "${objects[@]}" "$name.o" -o "sq-$name"
    for isa in plain avx2 avxvnni avx512vnni amx; do
        SQ_ISA=$isa "$dir/sq" info -m bert-64.sq >/dev/null 2>&1 || continue
        SQ_ISA=$isa answers "./sq-$name" >"answers-$name"
        cmp expected "answers-$name" || complain "$name gives other bits with $isa"
    done
    echo "$name: the same bits"
}

answers "$dir/sq" >expected
compilers=("$CXX")
for other in g++ clang++ clang++-14; do
    if [[ " ${compilers[*]} " != *"${other%-14}"* ]] && command -v "$other" >/dev/null; then compilers+=("$other"); fi
done
((${#compilers[@]} > 1)) || echo 'SKIP only one compiler is installed'
for compiler in "${compilers[@]}"; do try "${compiler%% *}" "$compiler" -std=c++17 -O2 -Wall -Wextra -Werror; done

kernels='4avx2|10avx512vnni|3amx'
if [[ $("$CXX" -dumpmachine) == x86_64* ]]; then
    for compiler in "${compilers[@]}"; do
        [[ -n $(functions_with "${compiler%% *}.o" 'v|tile|tdp' none) ]] || complain "$compiler has made no kernels for newer CPUs"
        newer=$(functions_with "${compiler%% *}.o" 'v|k[a-z]+[bwdq] |tile|tdp' "$kernels")
        [[ -z $newer ]] || complain "$compiler has made code for newer CPUs of"$'\n'"$newer"
    done
    try haswell "$CXX" -std=c++17 -O3 -march=haswell
    fused=$(functions_with haswell.o 'vf?n?m(add|sub)' "$kernels|5plain")
    [[ -z $fused ]] || complain "multiplications and additions are fused in"$'\n'"$fused"
fi

if "$CXX" -std=c++17 -ffast-math -fsyntax-only sq-amalgamation.cpp 2>refusal; then complain '-ffast-math is taken'; fi
grep -q 'without -ffast-math' refusal || complain "-ffast-math is refused for another reason: $(head -n 1 refusal)"
