#!/usr/bin/env bash
# tests/test-static.sh - programs without shared libraries, linked with this system's C library and with musl: the same bits, the same command line, and no need of
# anything beside them.
#
# usage: test-static.sh DIR MODEL.sq CLI_OBJECT...     (DIR: the folder with sq and libsq.a; objects that make `sq` together with it)
# Environment: B where objects go, CXX; SQ_ZIG the command that is zig, if it is neither `zig` nor a package of `python3`
set -euo pipefail
dir=$(realpath "$1") model=$(realpath "$2")
objects=()
for object in "${@:3}"; do objects+=("$(realpath "$object")"); done
cd "$(dirname "$0")/.."
B=$(realpath -m "${B:-build}") CXX=${CXX:-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

complain() {
    echo "$1" >&2
    exit 1
}

answers() {
    local isa
    for isa in plain avx2 avxvnni avx512vnni amx; do
        SQ_ISA=$isa "$dir/sq" info -m "$model" >/dev/null 2>&1 || continue # asks the tree's own, so that all answer with the same instruction sets
        SQ_ISA=$isa "$1" embed -m "$model" --format jsonl 'the dog sleeps' 'a cat sleeps' ''
    done
}

# In a file system that holds nothing but the program and a model.
alone() {
    local root=$work/alone
    mkdir -p "$root"
    cp "$1" "$root/sq"
    cp "$model" "$root/model.sq"
    unshare --map-root-user --root="$root" /sq embed -m /model.sq --format jsonl 'the dog sleeps' >"$work/alone.jsonl" ||
        complain "$1 does not run alone"
    "$dir/sq" embed -m "$model" --format jsonl 'the dog sleeps' | cmp - "$work/alone.jsonl"
}

# check_program NAME SQ
check_program() {
    if readelf -lW "$2" | grep -q INTERP || readelf -dW "$2" | grep -q NEEDED; then complain "$2 needs shared libraries"; fi
    answers "$dir/sq" >"$work/expected"
    answers "$2" | cmp - "$work/expected"
    bash tests/test-cli.sh "$2" "$model"
    if unshare --map-root-user true 2>/dev/null; then
        alone "$2"
    else
        echo 'SKIP no permission to make a namespace: not tried in an empty file system'
    fi
    echo "$1: the same bits"
}

# Sets `zig` to the words that run it.
find_zig() {
    read -r -a zig <<<"${SQ_ZIG:-zig}"
    [[ -n ${SQ_ZIG:-} ]] || command -v zig >/dev/null || zig=(python3 -m ziglang)
    "${zig[@]}" version >/dev/null 2>&1
}

if "$CXX" -static -pthread "${objects[@]}" "$dir/libsq.a" -o "$work/sq" 2>"$work/log"; then
    check_program 'own C library' "$work/sq"
else
    echo 'SKIP this system has no static C or C++ library'
fi

if find_zig; then
    target=$(uname -m)-linux-musl
    env -u MAKEFLAGS -u MFLAGS make --no-print-directory CXX="${zig[*]} c++ -target $target" CC="${zig[*]} cc -target $target" B="$B/musl" OUT="$B/musl" static >"$work/log" 2>&1 ||
        complain "$(tail -n 20 "$work/log")"
    check_program musl "$B/musl/static/sq"
    "$B/musl/static/sq-convert" tests/golden/bert-64 --mode static --quiet -o "$work/model.sq"
    cmp "$work/model.sq" "$model"
else
    echo 'SKIP musl: zig is not installed'
fi
