#!/usr/bin/env bash
# tests/test-docs.sh - what the documents say can be done: every example of the help texts and of the README's and docs/' command lines runs, commands that are shown with
# their output print that, and the manual pages are whole.
#
# usage: test-docs.sh SQ SQ-CONVERT MAN-PAGE-FOLDER
# The examples run as they stand, in a folder where the files that they name are tiny ones. Numbers are not compared.
set -euo pipefail
sq=$(realpath "$1") convert=$(realpath "$2") pages=$(realpath "$3") root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
# shellcheck source=tests/check.sh
source "$root/tests/check.sh"
golden=$root/tests/golden
mkdir bin
ln -s "$sq" bin/sq
ln -s "$convert" bin/sq-convert
PATH=$work/bin:$PATH
unset SQ_ISA

# ---- the files that examples name ----

convert_as() {
    local name
    check "convert $1" 0 sq-convert "$golden/$1" --calibrate my-texts.txt -o "$2.sq" --quiet
    for name in "${@:3}"; do ln "$2.sq" "$name.sq"; done
}
for ((i = 0; i < 32; i++)); do printf '%s\n' "the dog sleeps $i" "a cat sleeps $i" "the dog and a cat $i"; done >my-texts.txt
convert_as bert-64 minilm e5 bert-large
convert_as bert-classify nli sst2
convert_as bert-score reranker
convert_as bert-answer squad squad2
convert_as bert-tag ner
ln -s "$golden/bert-64" all-MiniLM-L6-v2
ln -s "$golden/bert-classify" my-classifier
cp my-texts.txt passages.txt
cp my-texts.txt moby.txt
cp my-texts.txt moby-dick.txt
printf '%s\n' '{"a": "the dog sleeps"}' '{"a": "a cat"}' >texts.jsonl
printf '%s\n' '{"a": "the dog sleeps", "b": "a cat"}' >pairs.jsonl
printf '%s\n' '{"a": "the dog", "query": "the dog", "documents": ["a cat", "the dog sleeps"]}' >queries.jsonl
echo '{"data": [{"paragraphs": [{"context": "the dog sleeps", "qas": [{"id": "1", "question": "who sleeps"}]}]}]}' >dev-v2.0.json

# Those that are wrong in some way
awk 'BEGIN { printf "{\"a\": \""; for (i = 0; i < 600; i++) printf "dog "; print "\"}" }' >long.jsonl
printf '%s\n' '{"a": "the dog"}' 'not JSON' >bad.jsonl
echo '{"text": "the dog"}' >other-key.jsonl
head -c 10000 minilm.sq >cut.sq
# spoil FILE AT BYTES: a copy of minilm.sq with other bytes there.
spoil() {
    cp minilm.sq "$1"
    printf '%b' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
spoil newer.sq 8 '\x09'
spoil damaged.sq $(($(wc -c <minilm.sq) / 2)) 'damaged'
# bad_checkpoint NAME: a copy of a good one, to be spoilt.
bad_checkpoint() { cp -r "$golden/bert-64" "$1" && chmod -R u+w "$1"; }
bad_checkpoint no-config && rm no-config/config.json
bad_checkpoint gpt2 && echo '{"model_type": "gpt2"}' >gpt2/config.json
bad_checkpoint relative && sed -i 's/^{/{"position_embedding_type": "relative_key",/' relative/config.json
bad_checkpoint lfs-pointer && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' >lfs-pointer/model.safetensors
bad_checkpoint no-weights && rm no-weights/model.safetensors
bad_checkpoint no-tokenizer && rm no-tokenizer/tokenizer.json no-tokenizer/vocab.txt

# ---- examples ----

mapfile -t commands < <(sq --help | awk '/^commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }')

# What is indented below "example:" or "examples:".
below_examples() { awk '/^examples?:$/ { on = 1; next } !/^  / { on = 0 } on'; }
help_examples() {
    local c
    for c in --help "${commands[@]/#/help=}"; do
        # shellcheck disable=SC2086 # two words
        sq ${c/=/ }
    done | below_examples
    sq-convert --help | below_examples
}
# Command lines of the documents; not those with a choice in brackets, which are no examples.
document_examples() { grep -hE '^    (sq|sq-convert) [^[]*$' "$root/README.md" "$root"/docs/*.md; }

# Smaller where the machine, the tiny models or the test's time ask for it: threads and instances that are to have a core each, lengths, the random model.
fitted() { sed -E -e 's/--instances 16 --threads 4 --pin/--instances 1 --threads 1 --pin/' -e 's/--tokens (128|256)/--tokens 64/' -e 's/--synthetic bert-large/--synthetic minilm/' <<<"$1"; }

help_examples >examples
for c in "${commands[@]}"; do holds "sq $c --help has an example" examples "^  sq $c "; done
holds 'sq-convert --help has an example' examples '^  sq-convert '
document_examples >>examples
while read -r line; do check "$line" 0 bash -c "$(fitted "$line")"; done < <(sed 's/^ *//; s/  *# .*//' examples | awk '!seen[$0]++')

# ---- commands with their output ----

# The pattern of a line of output: numbers are any number, "..." is anything.
pattern_of() { sed -E -e 's/[][\\^$*+?(){}|]/\\&/g' -e 's/\.\.\./\x01/g' -e 's/[0-9]+(\.[0-9]+)?/[0-9.]+/g' -e 's/\x01/.*/g' <<<"$1"; }

n_shown=0 command='' printed=''
while IFS= read -r line; do
    if [[ $line == '    $ '* ]]; then
        command=${line#'    $ '} n_shown=$((n_shown + 1))
        printed=$(bash -c "$command" 2>&1 </dev/null || true)
    elif [[ -n $command && $line == '    '* ]]; then
        pattern=$(pattern_of "${line#    }")
        if grep -qxE -- "$pattern" <<<"$printed"; then pass; else complain "\$ $command: prints no line like '${line#    }' but: ${printed:0:300}"; fi
    else
        command=''
    fi
done < <(cat "$root"/docs/*.md)
if ((n_shown >= 15)); then pass; else complain "only $n_shown commands are shown with their output"; fi

# The reasons for an instruction set, which depend on the machine: as the library has them.
while IFS='|' read -r _ reason _; do
    reason=${reason# } reason=${reason% }
    if grep -qF "\"$reason\"" "$root/sq-cpu.cpp"; then pass; else complain "sq gives no such reason: $reason"; fi
done < <(awk '/^\| reason/ { on = 1; getline; next } !/^\|/ { on = 0 } on' "$root/docs/troubleshooting.md")

# ---- manual pages ----

for name in sq sq-convert; do
    page=$pages/$name.1
    check "$name(1) is there" 0 test -s "$page"
    # Every option that the program knows, in bold at the head of its paragraph.
    if [[ $name == sq ]]; then for c in "${commands[@]}"; do sq "$c" --help; done; else sq-convert --help; fi |
        sed -nE 's/^  +(-.*)/\1/p' | sed 's/  .*//' | grep -oE -- '--[a-z-]+' | sort -u >options
    grep '^\.B ' "$page" | sed 's/\\-/-/g' | grep -oE -- '--[a-z-]+' | sort -u >described
    same "$name(1) has the options of the help texts" options described
    if command -v mandoc >/dev/null; then
        # No date: pages are the same whenever they are made.
        mandoc -T lint -W warning "$page" 2>&1 | grep -v 'missing date' >err || true
        if [[ -s err ]]; then complain "$name(1): mandoc finds faults"; else pass; fi
    elif command -v groff >/dev/null; then
        groff -man -ww -z "$page" 2>err || true
        if [[ -s err ]]; then complain "$name(1): groff finds faults"; else pass; fi
    else
        echo 'SKIP mandoc and groff are not installed: the form of the manual pages'
    fi
done

finish test-docs
