#!/usr/bin/env bash
# tests/run-tests.sh - runs the tests and counts them; the last line is "N passed, N failed, N skipped". `make test` builds everything first.
#
# usage: run-tests.sh                         everything
#        run-tests.sh --programs [NAME...]    only what is compiled into B and OUT, or only those programs of it: for sanitizer builds
#        run-tests.sh --fuzz SECONDS          each libFuzzer target of B for so long
# Environment: B objects and test programs, OUT products, CXX and CC for the bare build; SQ_SHARED and SQ_MODELS (reference data and converted-from checkpoints)
# enlarge some tests. Output of each test: B/log/NAME.log.
set -euo pipefail
cd "$(dirname "$0")/.."
B=${B:-build} OUT=${OUT:-.} CXX=${CXX:-g++} CC=${CC:-gcc}
mode=${1:-}
only=("${@:2}") # test programs; all if empty
jobs=$(nproc)
rm -rf "$B/log/counts"
mkdir -p "$B/log/counts"

# Sanitizers: test-api.c forks a process that has threads, to see that sq refuses to work there.
export TSAN_OPTIONS="die_after_fork=0 halt_on_error=1 ${TSAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"
# Several tests run at once: threads of the converter's loops that wait must leave the cores to the others.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

# run NAME COMMAND...: exit code 0 passed, 77 skipped, else failed; lines that begin with SKIP are parts that were left out. As many run at once as there are
# cores; `wait` waits for all.
run() {
    while (($(jobs -rp | wc -l) >= jobs)); do wait -n || true; done
    run_one "$@" &
}

run_one() {
    local name=$1 log=$B/log/${1// /-}.log code=0 start=$EPOCHREALTIME skips verdict
    shift
    "$@" </dev/null >"$log" 2>&1 || code=$?
    local tenths=$(((${EPOCHREALTIME/./} - ${start/./}) / 100000))
    skips=$(grep -c '^SKIP' "$log" || true)
    case $code in
    0) verdict=ok ;;
    77) verdict=skipped skips=$((skips > 0 ? skips : 1)) ;;
    *) verdict=FAILED ;;
    esac
    {
        printf '%-7s %-34s %4d.%d s  %s\n' "$verdict" "$name" $((tenths / 10)) $((tenths % 10)) "$(tail -n 1 "$log" | cut -c 1-100)"
        grep '^SKIP' "$log" | sort | uniq -c || true
        if [[ $verdict == FAILED ]]; then
            echo "        exit code $code; $log ends with:"
            tail -n 40 "$log" | sed 's/^/        /'
        fi
    } >"$log.verdict"
    cat "$log.verdict"
    echo "$verdict $skips" >"$B/log/counts/${name// /-}"
}

finish() {
    wait
    cat "$B"/log/counts/* </dev/null | awk '
        { skipped += $2 } $1 == "ok" { passed++ } $1 == "FAILED" { failed++ }
        END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed > 0 }'
}

# The corpus of a target tests/fuzz/fuzz-NAME.cpp: tests/fuzz/corpus/NAME; damaged models are also in tests/golden-bad, where test-model knows them too.
corpus_of() {
    local folder=tests/fuzz/corpus/${1#fuzz-}
    if [[ -d $folder ]]; then echo "$folder"; fi
    if [[ $1 == fuzz-model ]]; then echo tests/golden-bad; fi
}

fuzz_all() {
    local program name corpus
    for program in "$B"/fuzz/*; do
        [[ -x $program ]] || continue
        name=$(basename "$program")
        mkdir -p "$B/corpus/$name" "$B/artifacts/$name"
        mapfile -t corpus < <(corpus_of "$name")
        run "fuzz $name" "$program" -max_total_time="$1" -timeout=20 -rss_limit_mb=2048 -artifact_prefix="$B/artifacts/$name/" "$B/corpus/$name" "${corpus[@]}"
    done
}

# ---- models for the tests, from the tiny checkpoints of tests/golden ----

MODEL=$B/bert-64-static.sq

# shellcheck disable=SC2317 # called through run
convert_again() {
    SQ_ISA=plain OMP_NUM_THREADS=1 "$OUT/sq-convert" tests/golden/bert-64 --mode static -o "$MODEL.again" && cmp "$MODEL" "$MODEL.again"
}

convert_tiny() {
    local m
    for m in static dynamic float; do
        run "convert bert-64 $m" "$OUT/sq-convert" tests/golden/bert-64 --mode "$m" -o "$B/bert-64-$m.sq"
    done
    wait
}

# Instruction sets that this machine can run.
isas() {
    local isa
    for isa in plain avx2 avxvnni avx512vnni amx; do
        if SQ_ISA=$isa "$OUT/sq" info -m "$MODEL" >/dev/null 2>&1; then echo "$isa"; fi
    done
}

# ---- the compiled programs ----

program_tests() {
    local name source isa arguments
    for source in tests/test-*.cpp tests/test-*.c; do
        [[ -e $source ]] || continue
        name=$(basename "${source%.*}") arguments=()
        [[ ${#only[@]} == 0 || " ${only[*]} " == *" $name "* ]] || continue
        if [[ $name == test-api ]]; then arguments=("$MODEL"); fi
        run "$name" "$B/$name" ${arguments[@]+"${arguments[@]}"}
    done
    ((${#only[@]} == 0)) || return 0
    run 'test-kernels amx emulated' "$B/test-kernels" --emulate-amx
    # test-forward and test-kernels go through the instruction sets by themselves.
    for isa in $(isas); do
        SQ_ISA=$isa run "test-api $isa" "$B/test-api" "$MODEL"
    done
    run hello "$B/hello" "$MODEL" 'the dog sleeps' 'a cat sleeps'
}

replay_tests() {
    local program name corpus
    for program in "$B"/replay/*; do
        [[ -x $program ]] || continue
        name=$(basename "$program")
        mapfile -t corpus < <(corpus_of "$name")
        run "replay $name" "$program" "${corpus[@]}"
    done
}

# ---- the sources as a whole ----

read -r -a sources < <(make --no-print-directory -s lib-sources)
objects=("${sources[@]/#/$B/}") objects=("${objects[@]/%/.o}")

# One compiler command without any flag of ours: what an embedder's own build may do. It must give the same bits.
# shellcheck disable=SC2317 # called through run
bare_build() {
    local dir=$B/bare two=('the dog sleeps' 'a cat sleeps')
    mkdir -p "$dir" &&
        "$CXX" -std=c++17 -O1 -shared -fPIC "${sources[@]}" -o "$dir/libsq.so" &&
        "$CC" -std=c11 -Wall -Wextra -pedantic -Werror -I. examples/hello.c -L"$dir" -lsq -lm -o "$dir/hello" &&
        LD_LIBRARY_PATH=$dir "$dir/hello" "$MODEL" "${two[@]}" >"$dir/answer" &&
        "$B/hello" "$MODEL" "${two[@]}" | cmp - "$dir/answer" &&
        echo 'the bare build gives what the other gives'
}

# shellcheck disable=SC2317 # called through run
readme_example() {
    awk '/^```$/ { p = 0 } p && /^#include/ { print; print "int main(void) {"; next } p { print } /^```c$/ { p = 1 } END { print "return n != 768; }" }' README.md >"$B/readme.c" &&
        "$CC" -std=c11 -Wall -Wextra -pedantic -Werror -I. -c "$B/readme.c" -o "$B/readme.o" &&
        echo 'the example compiles'
}

main() {
    case $mode in
    --fuzz)
        fuzz_all "$2"
        finish
        return
        ;;
    '' | --programs) ;;
    *)
        echo "run-tests.sh: unknown mode $mode" >&2
        return 2
        ;;
    esac
    convert_tiny
    if [[ $mode != --programs ]]; then
        run 'bare build' bare_build
        run test-includes bash tests/test-includes.sh
        run test-symbols bash tests/test-symbols.sh "$OUT" "${objects[@]}"
        run test-clash bash tests/test-clash.sh "$OUT" "$MODEL" "${objects[@]}"
        run test-static bash tests/test-static.sh "$OUT" "$MODEL" "$B"/examples/*.cpp.o
        run test-amalgamation bash tests/test-amalgamation.sh "$OUT" "$B"/examples/*.cpp.o
        run 'README example' readme_example
        run test-bindings bash tests/test-bindings.sh
    fi
    program_tests
    if ((${#only[@]} == 0)); then
        run 'convert plainly on one core' convert_again
        replay_tests
        run 'test-report files' bash tests/test-report.sh "$OUT/sq-convert" tests/golden/bert-64
        run test-cli bash tests/test-cli.sh "$OUT/sq" "$MODEL"
        run test-cli-tasks bash tests/test-cli-tasks.sh "$OUT/sq" "$OUT/sq-convert"
        run test-docs bash tests/test-docs.sh "$OUT/sq" "$OUT/sq-convert" "$B/man"
        run test-cli-bench bash tests/test-cli-bench.sh "$OUT/sq" "$OUT/sq-convert"
    fi
    finish
}

main "$@"
exit
