#!/usr/bin/env bash
# tests/test-symbols.sh - what the libraries offer to linkers: exactly the functions of sq.h, all of them pinned by test-abi.c, and nothing that runs at load.
#
# usage: test-symbols.sh DIR OBJECT...      (the folder with libsq.so and libsq.a, and the objects that went into them)
set -euo pipefail
dir=$(cd "$1" && pwd)
kernels=()
for object in "${@:2}"; do
    if [[ $object == *sq-kernels-* && $object != *sq-kernels-ref* ]]; then kernels+=("$(realpath "$object")"); fi
done
cd "$(dirname "$0")/.."
failed=0
complain() {
    echo "$1" >&2
    failed=1
}

# The functions that sq.h declares, and those that the libraries let others see: of the static one weak and unique symbols too.
declared=$(grep -E '^SQ_API' sq.h | grep -oE '\bsq_[a-z0-9_]+\(' | tr -d '(' | sort)
compare() {
    local difference
    difference=$(diff <(echo "$declared") <(sort <<<"$2") || true)
    [[ -z $difference ]] || complain "declared in sq.h (<) and exported by $1 (>) differ:"$'\n'"$difference"
}
compare libsq.so "$(nm -D --defined-only "$dir/libsq.so" | awk '{ print $3 }')"
compare libsq.a "$(nm --extern-only --defined-only "$dir/libsq.a" | awk 'NF == 3 { print $3 }')"

# Functions, constants and structs of sq.h that test-abi.c does not know.
pinned() { grep -qE "$2" tests/test-abi.c || complain "tests/test-abi.c does not pin $1"; }
while read -r name; do pinned "$name" "FUNCTION\([^,]*, $name,"; done <<<"$declared"
while read -r name; do pinned "$name" "\b$name\b"; done < <(sed -nE 's/^#define (SQ_[A-Z0-9_]+) .*[0-9].*/\1/p' sq.h)
while read -r name; do pinned "$name" "CHECK_EQ\(sizeof\($name\), [0-9]+\)"; done < <(sed -nE 's/^typedef struct (sq_[a-z_]+) \{$/\1/p' sq.h)

# A weak function of a kernel file is compiled for its instruction set, and the linker might pick it for all of the library. (DW.ref is a pointer for unwinding.)
((${#kernels[@]})) || complain 'no objects of kernels are given'
weak=$(nm -A -C --defined-only "${kernels[@]}" | awk '$2 ~ /^[uVW]$/' | grep -v 'DW\.ref' || true)
[[ -z $weak ]] || complain "kernel files share these functions with everybody:"$'\n'"$weak"

# One entry of .init_array is the compiler's own frame_dummy: anything more is code that runs at load.
entries=$(readelf -SW "$dir/libsq.so" | awk '{ for (i = 1; i < NF; i++) if ($i == ".init_array") print $(i + 4) }')
[[ -z $entries || $((16#$entries)) -le 8 ]] || complain "libsq.so runs code at load: .init_array has 0x$entries bytes"

soname=$(readelf -d "$dir/libsq.so" | grep SONAME | grep -o '\[.*\]')
[[ $soname == "[libsq.so.$(sed -n 's/^#define SQ_VERSION_MAJOR //p' sq.h)]" ]] || complain "the soname is $soname"

echo "test-symbols: $(wc -w <<<"$declared") functions, $([[ $failed == 0 ]] && echo fine || echo wrong)"
exit "$failed"
