#!/usr/bin/env bash
# tests/test-symbols.sh - what the libraries offer to linkers: exactly the functions of sq.h, and nothing that runs at load.
#
# usage: test-symbols.sh DIR      (the folder with libsq.so and libsq.a)
set -euo pipefail
dir=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
failed=0
complain() {
    echo "$1" >&2
    failed=1
}

# The functions that sq.h declares, and those that libsq.so exports.
declared=$(grep -E '^SQ_API' sq.h | grep -oE '\bsq_[a-z0-9_]+\(' | tr -d '(' | sort)
exported=$(nm -D --defined-only "$dir/libsq.so" | awk '{ print $3 }' | sort)
difference=$(diff <(echo "$declared") <(echo "$exported") || true)
[[ -z $difference ]] || complain "declared in sq.h (<) and exported by libsq.so (>) differ:"$'\n'"$difference"

# In the static library, names that other programs could meet begin with sq. Weak ones are shared instances of the C++ library.
foreign=$(nm -C --defined-only "$dir/libsq.a" 2>/dev/null | awk '$2 ~ /^[TDBR]$/ { print $3 }' | grep -vE '^sq(::|_)' || true)
[[ -z $foreign ]] || complain "libsq.a defines names outside of sq:"$'\n'"$foreign"

# A weak function of a kernel file is compiled for its instruction set, and the linker might pick it for everybody. (DW.ref is a pointer for unwinding.)
weak=$(nm -A -C --defined-only "$dir/libsq.a" 2>/dev/null | grep -E 'sq-kernels-[a-z0-9]+' | grep -v 'sq-kernels-ref' | awk '$2 ~ /^[WV]$/' | grep -v 'DW\.ref' || true)
[[ -z $weak ]] || complain "kernel files share these functions with everybody:"$'\n'"$weak"

# One entry of .init_array is the compiler's own frame_dummy: anything more is code that runs at load.
entries=$(readelf -SW "$dir/libsq.so" | awk '{ for (i = 1; i < NF; i++) if ($i == ".init_array") print $(i + 4) }')
[[ -z $entries || $((16#$entries)) -le 8 ]] || complain "libsq.so runs code at load: .init_array has 0x$entries bytes"

soname=$(readelf -d "$dir/libsq.so" | grep SONAME | grep -o '\[.*\]')
[[ $soname == "[libsq.so.$(sed -n 's/^#define SQ_VERSION_MAJOR //p' sq.h)]" ]] || complain "the soname is $soname"

echo "test-symbols: $(wc -w <<<"$exported") functions, $([[ $failed == 0 ]] && echo fine || echo wrong)"
exit "$failed"
