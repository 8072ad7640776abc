#!/usr/bin/env bash
# tests/test-cli.sh - the `sq` command: answers, formats, streaming, messages, exit codes, and that failures leave no file behind.
#
# usage: test-cli.sh SQ MODEL.sq
set -euo pipefail
sq=$(realpath "$1") model=$(realpath "$2")
# shellcheck source=tests/check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

# ---- usage ----

check 'no command' 2 "$sq"
check 'unknown command' 2 "$sq" frobnicate
check 'help' 0 "$sq" --help
holds 'help' out '^  embed'
for c in embed classify rerank answer tag tokenize info; do
    texts=(text)
    case $c in
    rerank | answer) texts=(text text) ;;
    info) texts=(--verify) ;;
    esac
    check "$c --help" 0 "$sq" $c --help
    holds "$c --help" out '^example'
    holds "$c --help" out '--model FILE'
    check "help $c" 0 "$sq" help $c
    [[ $c == info ]] || check "$c without model" 2 "$sq" $c text
    check "$c unknown option" 2 "$sq" $c -m "$model" --frobnicate text
    holds "$c unknown option" err '--frobnicate: unknown option'
    check "$c no such model" 1 "$sq" $c -m missing.sq "${texts[@]}"
    holds "$c no such model" err 'missing.sq'
done
check 'info without model' 2 "$sq" info
check 'info, model as an argument' 0 "$sq" info "$model"
check 'version' 0 "$sq" --version
holds 'version' out '^sq [0-9]+\.[0-9]+\.[0-9]+$'
check 'no texts' 2 "$sq" embed -m "$model"
check 'both kinds of texts' 2 "$sq" embed -m "$model" --jsonl - text
check 'value missing' 2 "$sq" embed text -m
check 'value not wanted' 2 "$sq" embed -m "$model" --truncate=yes text
for n in -1 '' 1x 0x10 ' 1' 1.5 99999999999999999999; do
    check "threads '$n'" 2 "$sq" embed -m "$model" --threads="$n" text
done
check 'batch 0' 2 "$sq" embed -m "$model" --batch 0 text
check 'pooling' 2 "$sq" embed -m "$model" --pooling none text
check 'format' 2 "$sq" embed -m "$model" --format csv text
check 'type' 2 "$sq" embed -m "$model" --type f64 --format jsonl text
check 'type of texts' 2 "$sq" embed -m "$model" --type f16 text
check 'hidden npy' 2 "$sq" embed -m "$model" --hidden --format npy text
check 'hidden pooled' 2 "$sq" embed -m "$model" --hidden --pooling cls text
check 'text format of lines' 2 "$sq" embed -m "$model" --format text --jsonl -
check 'npy tokens' 2 "$sq" tokenize -m "$model" --format npy text
check 'info takes no text' 2 "$sq" info -m "$model" text
check 'unknown instruction set' 1 "$sq" embed -m "$model" --isa mmx text

# ---- plain texts ----

check 'embed one' 0 "$sq" embed -m "$model" 'the dog sleeps'
holds 'embed one' out '^  1  \[-?[0-9.]+, .*the dog sleeps$'
lines 'embed one' out 1
check 'embed three' 0 "$sq" embed -m "$model" 'the dog sleeps' 'the cat sleeps' -- '-m'
holds 'embed three' out '^cosine similarity$'
holds 'embed three' out '^  1  1.000'
holds 'embed three' out '-m$'
check 'embed the empty text' 0 "$sq" embed -m "$model" ''
check 'embed odd bytes' 0 "$sq" embed -m "$model" $'\xff\xc3(\x1b[31m'
if grep -q $'\x1b' out; then complain 'embed odd bytes: a control character reaches the terminal'; else pass; fi
check 'tokenize' 0 "$sq" tokenize -m "$model" 'The dog'
holds 'tokenize' out '^ +0 +[0-9]+ +0  \[CLS\]$'
holds 'tokenize' out ' the +0\.\.3 +The$'
holds 'tokenize' out ' dog +4\.\.7 +dog$'
check 'info' 0 "$sq" info -m "$model" --verify
holds 'info' out '^layers +[0-9]+$'
holds 'info' out '^linear layers +INT8'
holds 'info' out '^instruction set'

# ---- lines ----

printf '%s\n' '{"a":"the dog"}' '' '{"a":"the dog","b":"a cat"}' '{"a":"","b":null,"other":[1,{"x":2}]}' '{"b":"","a":"sea \u5927 \"x\""}' >in.jsonl
check 'tokenize lines' 0 "$sq" tokenize -m "$model" --jsonl in.jsonl
lines 'tokenize lines' out 4
holds 'tokenize lines' out '^\{"ids":\[[0-9,]+\],"types":\[0,0,0,0\],"spans":\[\[0,0\],\[0,3\],\[4,7\],\[0,0\]\],"tokens":\["\[CLS\]","the","dog","\[SEP\]"\]\}$'
holds 'tokenize lines' out '"types":\[0,0,0,0,1,1,1\]'
mv out from-file
check 'tokenize standard input' 0 bash -c "'$sq' tokenize -m '$model' --jsonl - <in.jsonl"
if cmp -s out from-file; then pass; else complain 'standard input gives something else'; fi
check 'specials' 0 "$sq" tokenize -m "$model" --format jsonl 'a [SEP] b'
lines 'specials' out 1
mv out specials
check 'specials as text' 0 "$sq" tokenize -m "$model" --format jsonl --specials-as-text 'a [SEP] b'
if cmp -s out specials; then complain 'specials as text: no difference'; else pass; fi

check 'embed lines' 0 "$sq" embed -m "$model" --jsonl in.jsonl
lines 'embed lines' out 4
holds 'embed lines' out '^\{"embedding":\[-?[0-9.e-]+(,-?[0-9.e-]+)+\],"tokens":[0-9]+,"truncated":false\}$'
mv out vectors
for o in '--batch 1' '--batch 3 --threads 2' '--threads 1' '--isa plain' '-o file.jsonl'; do
    # shellcheck disable=SC2086 # $o is a list of words
    check "embed lines $o" 0 "$sq" embed -m "$model" --jsonl in.jsonl $o
    [[ $o != -o* ]] || mv file.jsonl out
    if cmp -s out vectors; then pass; else complain "embed lines $o: another result"; fi
done
check 'dimensions' 0 "$sq" embed -m "$model" --dimensions 3 --no-normalize --pooling cls --format jsonl 'the dog'
holds 'dimensions' out '^\{"embedding":\[[^],]+,[^],]+,[^],]+\],"tokens":4,"truncated":false\}$'
check 'too many dimensions' 1 "$sq" embed -m "$model" --dimensions 100000 'the dog'

check 'pooling max' 0 "$sq" embed -m "$model" --pooling max --format jsonl 'the dog'
check 'prefix' 0 "$sq" embed -m "$model" --prefix 'the ' --format jsonl dog
mv out with-prefix
check 'prefix written out' 0 "$sq" embed -m "$model" --format jsonl 'the dog'
if cmp -s out with-prefix; then pass; else complain 'prefix: another result'; fi
check 'truncated' 0 "$sq" embed -m "$model" --truncate --max-tokens 4 --format jsonl 'the dog and a cat'
holds 'truncated' out '"tokens":4,"truncated":true\}$'
check 'f16' 0 "$sq" embed -m "$model" --type f16 --dimensions 3 --format jsonl 'the dog'
holds 'f16' out '^\{"embedding":\[[^],]+,[^],]+,[^],]+\],"tokens"'
check 's8' 0 "$sq" embed -m "$model" --type s8 --dimensions 3 --format jsonl 'the dog'
holds 's8' out '^\{"embedding":\[-?[0-9]+,-?[0-9]+,-?[0-9]+\],"scale":[0-9.e-]+,"tokens"'
holds 's8' out '[[,]-?127[],]'
check 'bits' 0 "$sq" embed -m "$model" --type bits --dimensions 9 --format jsonl 'the dog'
holds 'bits' out '^\{"embedding":\[[0-9]+,(0|128)\],"tokens"'
check 'hidden' 0 "$sq" embed -m "$model" --hidden --jsonl in.jsonl
lines 'hidden' out 4
holds 'hidden' out '^\{"tokens":\["\[CLS\]","the","dog","\[SEP\]"\],"hidden":\[\[[^]]+\],\[[^]]+\],\[[^]]+\],\[[^]]+\]\],"truncated":false\}$'
# The first token's vector is what pooling by it gives.
"$sq" embed -m "$model" --hidden 'the dog' | sed 's/.*"hidden":\[\(\[[^]]*\]\).*/\1/' >first-token
"$sq" embed -m "$model" --pooling cls --no-normalize --format jsonl 'the dog' | sed 's/.*"embedding":\(\[[^]]*\]\).*/\1/' >out
if cmp -s out first-token; then pass; else complain 'hidden: another vector'; fi
check 'hidden too long' 1 "$sq" embed -m "$model" --hidden --max-tokens 3 'the dog'
holds 'hidden too long' err '^sq: text 1: 4 tokens.*--truncate'

for isa in plain avx2 avxvnni avx512vnni amx; do
    if ! SQ_ISA=$isa "$sq" info -m "$model" >/dev/null 2>err; then
        echo "SKIP $(tail -n 1 err)"
        continue
    fi
    check "embed lines with $isa" 0 env SQ_ISA=$isa "$sq" embed -m "$model" --jsonl in.jsonl
    if cmp -s out vectors; then pass; else complain "embed lines with $isa: another result"; fi
done

# An answer comes before the next question is asked.
coproc TALK { "$sq" embed -m "$model" --jsonl -; }
talk=$TALK_PID
printf '{"a":"the dog"}\n' >&"${TALK[1]}"
if read -r -t 20 answer <&"${TALK[0]}" && [[ $answer == '{"embedding":['* ]]; then pass; else complain 'no answer before the end of the input'; fi
kill "$talk" 2>/dev/null || true
wait "$talk" 2>/dev/null || true

# ---- npy ----

check 'npy' 0 "$sq" embed -m "$model" --format npy --dimensions 5 --jsonl in.jsonl -o m.npy
if (($(stat -c %s m.npy) == 128 + 4 * 5 * 4)); then pass; else complain 'npy: size'; fi
if [[ $(head -c 6 m.npy | tail -c 5) == NUMPY ]]; then pass; else complain 'npy: magic'; fi
holds 'npy' m.npy "'descr': '<f4', 'fortran_order': False, 'shape': \(4, 5\)"
for t in 'f16 <f2 16 5' 's8 |i1 8 5' 'bits |u1 8 1'; do
    read -r type name bits width <<<"$t"
    check "npy $type" 0 "$sq" embed -m "$model" --format npy --type "$type" --dimensions 5 --jsonl in.jsonl -o m.npy
    if (($(stat -c %s m.npy) == 128 + 4 * width * bits / 8)); then pass; else complain "npy $type: size"; fi
    holds "npy $type" m.npy "'descr': '${name/|/\\|}', 'fortran_order': False, 'shape': \(4, $width\)"
done
check 'npy of nothing' 0 bash -c "'$sq' embed -m '$model' --format npy --jsonl - </dev/null"
holds 'npy of nothing' out "'shape': \(0, [0-9]+\)"

# ---- bad lines: what came before is answered, nothing of the bad one is, and the message names it ----

bad_line() { # NAME LINE PATTERN
    printf '%s\n' '{"a":"the dog"}' '{"a":"the cat"}' "$2" '{"a":"the sea"}' >bad.jsonl
    local c
    for c in embed tokenize; do
        check "$c $1" 1 "$sq" $c -m "$model" --jsonl bad.jsonl
        lines "$c $1" out 2
        holds "$c $1" err "^sq: bad.jsonl:3: .*$3"
        check "$c $1 to a file" 1 "$sq" $c -m "$model" --jsonl bad.jsonl -o result
        absent "$c $1 to a file" result
    done
}
bad_line 'no JSON' 'hello' 'not JSON'
bad_line 'no object' '["a"]' 'object'
bad_line 'half an object' '{"a":"x"' 'not JSON'
bad_line 'two objects' '{"a":"x"}{"a":"y"}' 'not JSON'
bad_line 'no a' '{"b":"x"}' '"a" is missing'
bad_line 'a is a number' '{"a":1}' '"a" is no string'
bad_line 'b is a list' '{"a":"x","b":[]}' '"b" is no string'
bad_line 'invalid UTF-8' $'{"a":"\xff"}' 'UTF-8'
deep=$(printf '[%.0s' {1..5000})
bad_line 'deep nesting' "$deep" 'nested'
long=$(printf 'a %.0s' {1..3000})
bad_line 'too long' "{\"a\":\"$long\"}" '3002 tokens.*--truncate'
check 'truncate' 0 "$sq" tokenize -m "$model" --truncate --max-tokens 8 --format jsonl "$long"
holds 'truncate' out '"types":\[0,0,0,0,0,0,0,0\]'
check 'embed truncated' 0 "$sq" embed -m "$model" --truncate "$long"
check 'beyond the position table' 1 "$sq" embed -m "$model" --max-tokens 1000000 'the dog'
head -c 20000000 /dev/zero | tr '\0' x >zeros
limit='ulimit -v 2000000'
if grep -q __asan_init "$sq"; then limit=:; fi # AddressSanitizer reserves more than that
check 'a long line without end' 1 bash -c "$limit; '$sq' tokenize -m '$model' --jsonl zeros"
check 'no such file' 1 "$sq" embed -m "$model" --jsonl missing.jsonl
check 'a folder as input' 1 "$sq" embed -m "$model" --jsonl .
check 'a model that is none' 1 "$sq" info -m in.jsonl
head -c 1000 "$model" >cut.sq
check 'half a model' 1 "$sq" embed -m cut.sq 'the dog'
check 'an empty model' 1 "$sq" embed -m /dev/null 'the dog'

# ---- writing ----

for c in embed tokenize; do
    check "$c to a full disk" 1 bash -c "'$sq' $c -m '$model' --jsonl in.jsonl >/dev/full"
    check "$c to a full device" 1 "$sq" $c -m "$model" --jsonl in.jsonl -o /dev/full
    check "$c to closed output" 1 bash -c "'$sq' $c -m '$model' --jsonl in.jsonl >&-"
    check "$c to nowhere" 1 "$sq" $c -m "$model" 'the dog' -o no/such/folder/file
    check "$c to a device" 0 "$sq" $c -m "$model" 'the dog' -o /dev/null
done
check 'help to a full disk' 1 bash -c "'$sq' --help >/dev/full"
awk 'BEGIN { for (i = 0; i < 20000; i++) print "{\"a\":\"the dog\"}" }' >many.jsonl
check 'a reader that leaves' 1 bash -c "set -o pipefail; '$sq' tokenize -m '$model' --jsonl many.jsonl | head -n 1"
echo old >target
ln -s target link
check 'through a link' 0 "$sq" embed -m "$model" --format jsonl 'the dog' -o link
if [[ -L link ]] && grep -q embedding target; then pass; else complain 'the link was replaced'; fi
absent 'temporary files' '*.part-'

finish test-cli
