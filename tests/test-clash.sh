#!/usr/bin/env bash
# tests/test-clash.sh - libsq.a inside of a program that uses the names of sq's inside itself: one that has the same objects again, under another API.
#
# usage: test-clash.sh DIR MODEL.sq OBJECT...     (DIR: the folder with libsq.a; the objects that went into it)
# Environment: CC CXX
set -euo pipefail
library=$(realpath "$1")/libsq.a model=$(realpath "$2")
objects=()
for object in "${@:3}"; do objects+=("$(realpath "$object")"); done
cd "$(dirname "$0")/.."
CC=${CC:-gcc} CXX=${CXX:-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
two=('the dog sleeps' 'a cat sleeps')

# The program's own library: other_embed and so on, and sq::tokenizer, sq::forward and all the rest as global names.
nm --extern-only --defined-only "${objects[@]}" | awk '$3 ~ /^sq_/ { print $3, "other" substr($3, 3) }' | sort -u >"$work/names"
ld -r "${objects[@]}" -o "$work/other.o"
"$CC" -std=c11 -I. -Dmain=first -c examples/hello.c -o "$work/first.o"
"$CC" -std=c11 -I. -Dmain=second -c examples/hello.c -o "$work/second.o"
for object in other second; do objcopy --redefine-syms="$work/names" "$work/$object.o"; done
n_same=$(nm --extern-only --defined-only "$work/other.o" | grep -c ' _ZN\?K\?2sq')
((n_same > 30)) || { echo "the program has only $n_same names of sq's inside: nothing is tested" >&2; exit 1; }

cat >"$work/main.c" <<'END'
int first(int argc, char **argv);
int second(int argc, char **argv);
int main(int argc, char **argv) { return first(argc, argv) || second(argc, argv); }
END
"$CC" -std=c11 -c "$work/main.c" -o "$work/main.o"
"$CXX" -pthread "$work"/{main,first,second,other}.o "$library" -lm -o "$work/both"
"$CXX" -pthread "$work"/{main,first,second}.o -Wl,--whole-archive "$library" -Wl,--no-whole-archive "$work/other.o" -lm -o "$work/both-reversed"
"$CC" -std=c11 -I. -c examples/hello.c -o "$work/hello.o"
"$CXX" -pthread "$work/hello.o" "$library" -lm -o "$work/hello"

for _ in 1 2; do "$work/hello" "$model" "${two[@]}"; done >"$work/expected"
for program in both both-reversed; do "$work/$program" "$model" "${two[@]}" | cmp - "$work/expected"; done
echo "test-clash: beside $n_same global names of its inside"
