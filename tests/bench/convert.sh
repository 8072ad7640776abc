#!/usr/bin/env bash
# tests/bench/convert.sh - what a conversion takes: all-MiniLM-L6-v2 with 128 texts, and a random model of BERT-large's shape with 64 texts of 128 tokens.
#
# usage: tests/bench/convert.sh        after `make`; OUT is where sq-convert is. SQ_MODELS and SQ_SHARED as for the tests: without them, BERT-large only.
# Targets on two cores: 30 s, and 360 s with no more memory than two copies of the f32 weights and 256 MB. Exit code: 0 met, 1 not met or failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
OUT=${OUT:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
code=0

# convert NAME SECONDS MEGABYTES ARGUMENT...: its last line is "took SECONDS s and MEGABYTES MB of memory".
convert() {
    local name=$1 seconds=$2 megabytes=$3 took
    took=$("$OUT/sq-convert" "${@:4}" -o "$work/model.sq" 2>/dev/null | tail -n 1)
    awk -v name="$name" -v seconds="$seconds" -v megabytes="$megabytes" '
        { ok = $2 <= seconds && $5 <= megabytes; printf "%-36s %s (at most %d s, %d MB): %s\n", name, $0, seconds, megabytes, ok ? "met" : "NOT MET"; exit !ok }' <<<"$took" || code=1
}

# 64 lines of 126 words of the random model's vocabulary (convert/synthetic.cpp), a token each; with two special tokens 128. Pseudo-random, the same each time.
texts_of_128_tokens() {
    awk 'BEGIN {
        n = split("the of and to in is he was for with as on they at be this her from by had not but sun all were we sea you river train there use an book which", word, " ")
        for (line = 0; line < 64; line++)
            for (i = 0; i < 126; i++) {
                seed = (seed * 1103515245 + 12345) % 2147483648
                printf "%s%s", word[int(seed / 65536) % n + 1], i < 125 ? " " : "\n"
            }
    }'
}

if [[ -n ${SQ_MODELS:-} && -f $SQ_MODELS/minilm/config.json && -f ${SQ_SHARED:-../shared}/data/calibrate.txt ]]; then
    head -n 128 "${SQ_SHARED:-../shared}/data/calibrate.txt" >"$work/128.txt"
    convert 'all-MiniLM-L6-v2, 128 texts' 30 1000 "$SQ_MODELS/minilm" --calibrate "$work/128.txt"
else
    echo 'SKIP all-MiniLM-L6-v2: no SQ_MODELS, or no texts in SQ_SHARED'
fi
texts_of_128_tokens >"$work/64.txt"
# 2 x 4 bytes x 335 million parameters + 256 MB
convert 'BERT-large, 64 texts of 128 tokens' 360 2938 --synthetic bert-large --calibrate "$work/64.txt"
exit "$code"
