#!/usr/bin/env bash
# tests/test-cli-tasks.sh - `sq classify`, `rerank`, `answer` and `tag` with the tiny checkpoints of tests/golden: the form of answers, their agreement with
# each other and with the texts, streaming, messages. Whether their numbers are right is not asked here.
#
# usage: test-cli-tasks.sh SQ SQ-CONVERT
set -euo pipefail
sq=$(realpath "$1") convert=$(realpath "$2") golden=$(realpath "$(dirname "${BASH_SOURCE[0]}")/golden")
# shellcheck source=tests/check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

for m in bert-64 bert-classify distilbert-multi bert-score bert-answer bert-tag; do
    check "convert $m" 0 "$convert" "$golden/$m" --mode dynamic -o "$m.sq"
done
embeds=bert-64.sq nli=bert-classify.sq multi=distilbert-multi.sq score=bert-score.sq answer=bert-answer.sq tag=bert-tag.sq
long=$(printf 'a %.0s' {1..3000})

# list KEY FILE: the list of numbers under KEY, a line of FILE a line.
list() { sed 's/.*"'"$1"'":\[\([^]]*\)\].*/\1/' "$2"; }
# part TEXT START END: bytes START up to END.
part() { printf '%s' "$1" | tail -c +$(($2 + 1)) | head -c $(($3 - $2)); }
number='-?[0-9.e-]+'

# ---- a task that the model lacks ----

for c in classify rerank answer tag; do
    check "$c without a head" 1 "$sq" "$c" -m "$embeds" --jsonl /dev/null
    holds "$c without a head" err '^sq: the model cannot .*: it has no head'
done
check 'rerank with three labels' 1 "$sq" rerank -m "$nli" query document
holds 'rerank with three labels' err '3 labels'
check 'tag with a head for answers' 1 "$sq" tag -m "$answer" text
holds 'tag with a head for answers' err 'finds answers'

# ---- classify ----

check 'classify' 0 "$sq" classify -m "$nli" 'the dog sleeps' 'a cat'
lines 'classify' out 8
holds 'classify' out '^the dog sleeps$'
holds 'classify' out '^  0\.[0-9]{4}  (entailment|neutral|contradiction)$'
if sed -n 2,4p out | sort -s -rn -c 2>/dev/null; then pass; else complain 'classify: not the best first'; fi
check 'classify a pair' 0 "$sq" classify -m "$nli" --pair --format jsonl 'the dog sleeps' 'a cat'
lines 'classify a pair' out 1
holds 'classify a pair' out '^\{"label":"[a-z]+","labels":\["entailment","neutral","contradiction"\],"scores":\['"$number,$number,$number"'\],"logits":\['"$number,$number,$number"'\]\}$'
mv out pair
printf '%s\n' '{"a":"the dog sleeps","b":"a cat"}' '{"a":"the dog"}' '' '{"a":"","b":null}' '{"a":"a cat","b":""}' >in.jsonl
check 'classify lines' 0 "$sq" classify -m "$nli" --jsonl in.jsonl
lines 'classify lines' out 4
head -n 1 out >first
same 'classify lines' first pair
mv out labels
for o in '--batch 1' '--threads 1' '--isa plain' '-o file.jsonl'; do
    # shellcheck disable=SC2086 # $o is a list of words
    check "classify lines $o" 0 "$sq" classify -m "$nli" --jsonl in.jsonl $o
    [[ $o != -o* ]] || mv file.jsonl out
    same "classify lines $o" out labels
done
# Scores sum to 1, and the label is that of the highest.
list scores labels | awk -F, '
    { sum = 0; best = 1; for (i = 1; i <= NF; i++) { sum += $i; if ($i > $best) best = i } if (sum < 0.99999 || sum > 1.00001) exit 1; print best }' >best ||
    complain 'classify: scores do not sum to 1'
sed 's/^{"label":"\([a-z]*\)".*/\1/' labels | sed 's/entailment/1/; s/neutral/2/; s/contradiction/3/' >named
same 'classify: label' best named
check 'classify, independent labels' 0 "$sq" classify -m "$multi" --format jsonl 'the dog'
holds 'classify, independent labels' out '"labels":\["joy","anger","[^"]+motion","none of these"\]'
check 'classify, one label' 0 "$sq" classify -m "$score" --pair --format jsonl 'the dog' 'a cat'
holds 'classify, one label' out '^\{"label":"LABEL_0","labels":\["LABEL_0"\],"scores":\[0\.[0-9]+\],"logits":\['"$number"'\]\}$'
list logits out >logit
check 'an odd pair' 2 "$sq" classify -m "$nli" --pair 'the dog'
check 'too long' 1 "$sq" classify -m "$nli" "$long"
holds 'too long' err '^sq: text 1: 3002 tokens.*64.*--truncate'
check 'cut' 0 "$sq" classify -m "$nli" --truncate --format jsonl "$long" 'the dog'
holds 'cut' out '"truncated":true\}$'
holds 'cut' out '"truncated":false\}$'
check 'cut in a table' 0 "$sq" classify -m "$nli" --truncate --max-tokens 9 "$long"
holds 'cut in a table' out 'cut to 9 tokens'

# ---- rerank ----

check 'rerank' 0 "$sq" rerank -m "$score" 'the dog' 'a cat' 'the sea' 'the dog sleeps'
lines 'rerank' out 3
if sort -rg -c out 2>/dev/null; then pass; else complain 'rerank: not the best first'; fi
awk '{ print $2 - 1 }' out | paste -sd, >by-table
echo '{"query":"the dog","documents":["a cat","the sea","the dog sleeps"]}' >queries.jsonl
check 'rerank lines' 0 "$sq" rerank -m "$score" --jsonl queries.jsonl
holds 'rerank lines' out '^\{"order":\[[0-2],[0-2],[0-2]\],"scores":\['"$number,$number,$number"'\]\}$'
list order out >by-line
same 'rerank: order' by-table by-line
list scores out | cut -d, -f1 >first
same 'rerank: the score is the logit of the pair' first logit
printf 'a cat\nthe sea\nthe dog sleeps' >documents
check 'rerank documents of a file' 0 "$sq" rerank -m "$score" --format jsonl 'the dog' --documents documents
list order out >by-file
same 'rerank documents of a file' by-file by-line
check 'rerank documents of standard input' 0 bash -c "'$sq' rerank -m '$score' --format jsonl 'the dog' --documents - <documents"
check 'no documents' 0 bash -c "echo '{\"query\":\"x\",\"documents\":[]}' | '$sq' rerank -m '$score' --jsonl -"
holds 'no documents' out '^\{"order":\[\],"scores":\[\]\}$'
check 'query alone' 2 "$sq" rerank -m "$score" 'the dog'
check 'documents twice' 2 "$sq" rerank -m "$score" 'the dog' 'a cat' --documents documents
check 'documents missing' 1 "$sq" rerank -m "$score" 'the dog' --documents missing
check 'a document too long' 1 "$sq" rerank -m "$score" 'the dog' 'a cat' "$long"
holds 'a document too long' err '^sq: query 1, document 2 .*: 300[0-9] tokens.*--truncate'
check 'a document cut' 0 "$sq" rerank -m "$score" --truncate --format jsonl 'the dog' 'a cat' "$long"
holds 'a document cut' out '"truncated":true\}$'

# ---- answer ----

context=$(printf 'the dog sleeps by the s\303\251a. %.0s' {1..20})'the cat eats.'
check 'answer' 0 "$sq" answer -m "$answer" 'who eats' "$context"
lines 'answer' out 1
check 'answer five' 0 "$sq" answer -m "$answer" --top 5 --format jsonl 'who eats' "$context"
holds 'answer five' out '^\{"text":"[^"]+","start":[0-9]+,"end":[0-9]+,"score":'"$number"',"answers":\[\{.*\}\]\}$'
grep -o '{"text":"[^"]*","start":[0-9]*,"end":[0-9]*,"score":[^},]*' out | sed 's/{"text":"\(.*\)","start":\([0-9]*\),"end":\([0-9]*\),"score":\(.*\)/\2 \3 \4 \1/' >answers
lines 'answer five' answers 6
while read -r start end _ text; do
    if [[ $(part "$context" "$start" "$end") == "$text" ]]; then pass; else complain "answer: $text is not at $start..$end"; fi
done <answers
if tail -n +2 answers | cut -d' ' -f3 | sort -rg -c 2>/dev/null; then pass; else complain 'answer: not the best first'; fi
printf '%s' "$context" >context
check 'context of a file' 0 "$sq" answer -m "$answer" --top 5 --format jsonl 'who eats' --context-file context
holds 'context of a file' out "^$(head -n 1 answers | sed 's/\([0-9]*\) \([0-9]*\) \([^ ]*\) \(.*\)/{"text":"\4","start":\1,"end":\2/')"
check 'windows' 0 "$sq" answer -m "$answer" --window 16 --stride 4 --max-answer 1 --top 20 --format jsonl 'who eats' "$context"
if grep -o '"text":"[^"]*"' out | grep -q ' '; then complain 'windows: an answer is longer than a token'; else pass; fi
check 'no room' 1 "$sq" answer -m "$answer" --window 8 'who eats by the sea and sleeps' "$context"
holds 'no room' err '^sq: question 1: .*no room'
check 'beyond the position table' 1 "$sq" answer -m "$answer" --window 1000 'who eats' "$context"
check 'null' 0 "$sq" answer -m "$answer" --allow-null --top 20 --format jsonl 'who eats' 'cat'
holds 'null' out '\{"text":"","start":0,"end":0,"score":'"$number"'\}'
printf '%s\n' '{"question":"who eats","context":""}' '{"question":"","context":"the cat eats"}' >in.jsonl
check 'answer lines' 0 "$sq" answer -m "$answer" --jsonl in.jsonl
lines 'answer lines' out 2
holds 'empty context' out '^\{"text":"","start":0,"end":0,"score":0\}$'
check 'answer odd bytes' 0 "$sq" answer -m "$answer" --max-answer 1 --format jsonl 'who' $'\xffcat\xff'
if iconv -f UTF-8 -t UTF-8 out >/dev/null 2>&1; then pass; else complain 'answer odd bytes: invalid UTF-8 comes out'; fi
check 'answer without context' 2 "$sq" answer -m "$answer" 'who eats'
check 'two contexts' 2 "$sq" answer -m "$answer" 'who eats' 'the cat' --context-file context
check 'top 21' 2 "$sq" answer -m "$answer" --top 21 'who eats' 'the cat'

cat >squad.json <<'END'
{"version": "v2.0", "data": [
 {"title": "One", "paragraphs": [
  {"context": "the dog sleeps by the sea", "qas": [
   {"id": "a1", "question": "who sleeps", "answers": [{"text": "the dog", "answer_start": 0}], "is_impossible": false},
   {"id": "a\"2", "question": "where", "answers": [], "plausible_answers": [], "is_impossible": true}]},
  {"context": "a cat", "qas": []}]},
 {"title": "Two", "paragraphs": [{"context": "a cat eats", "qas": [{"id": "b1", "question": "who eats", "answers": []}]}]}]}
END
check 'squad' 0 "$sq" answer -m "$answer" --squad squad.json
lines 'squad' out 3
holds 'squad' out '^\{"a1": "[^"]+",$'
holds 'squad' out '^"a\\"2": "[^"]+",$'
holds 'squad' out '^"b1": "[^"]+"\}$'
sed -n 's/^"b1": \("[^"]*"\)}/\1/p' out >by-squad
"$sq" answer -m "$answer" --format jsonl 'who eats' 'a cat eats' | sed 's/{"text":\("[^"]*"\).*/\1/' >by-arguments
same 'squad' by-squad by-arguments
check 'squad with null' 0 "$sq" answer -m "$answer" --squad squad.json --allow-null -o predictions.json
lines 'squad with null' predictions.json 3
check 'squad of standard input' 0 bash -c "'$sq' answer -m '$answer' --squad - <squad.json"
check 'squad without questions' 0 bash -c "echo '{\"data\":[]}' | '$sq' answer -m '$answer' --squad -"
holds 'squad without questions' out '^\{\}$'
sed 's/"id": "b1", //' squad.json >damaged.json
check 'squad without id' 1 "$sq" answer -m "$answer" --squad damaged.json -o predictions2.json
holds 'squad without id' err '^sq: damaged.json: data\[1\]\.paragraphs\[0\]\.qas\[0\]: no string "id"'
absent 'squad without id' predictions2.json
check 'squad that is none' 1 "$sq" answer -m "$answer" --squad context
holds 'squad that is none' err '^sq: context: not JSON: '
check 'squad and more' 2 "$sq" answer -m "$answer" --squad squad.json 'who eats' 'a cat'
check 'squad with a list' 2 "$sq" answer -m "$answer" --squad squad.json --top 3

# ---- tag ----

check 'tag' 0 "$sq" tag -m "$tag" 'the dog sleeps' 'a cat'
holds 'tag' out '^the dog sleeps$'
check 'tag words' 0 "$sq" tag -m "$tag" --words --format jsonl 'the dog sleeps'
holds 'tag words' out '^\{"entities":\[\{"label":"(O|[BI]-[A-Z]+)","start":0,"end":3,"score":[0-9.]+,"text":"the"\},\{[^}]*"start":4,"end":7,[^}]*"text":"dog"\},\{[^}]*"start":8,"end":14,[^}]*"text":"sleeps"\}\]\}$'
text=$'the dog sleeps by the s\303\251a, a "cat" \\ eats in Berlin'
check 'tag entities' 0 "$sq" tag -m "$tag" --format jsonl "$text"
if grep -qE '"label":"([BI]-|O")' out; then complain 'tag entities: a label of words'; else pass; fi
grep -o '{"label":"[^"]*","start":[0-9]*,"end":[0-9]*,"score":[^,]*,"text":"[^}]*"}' out |
    sed 's/.*"start":\([0-9]*\),"end":\([0-9]*\),.*"text":"\(.*\)"}/\1 \2 \3/' >entities
while read -r start end words; do
    if [[ $(part "$text" "$start" "$end") == "$words" ]]; then pass; else complain "tag: $words is not at $start..$end"; fi
done < <(sed 's/\\\(.\)/\1/g' entities)
printf '%s\n' '{"a":"the dog sleeps"}' '{"a":""}' '{"a":"a cat"}' >in.jsonl
check 'tag lines' 0 "$sq" tag -m "$tag" --jsonl in.jsonl
lines 'tag lines' out 3
holds 'tag lines' out '^\{"entities":\[\]\}$'
mv out tags
check 'tag lines one by one' 0 "$sq" tag -m "$tag" --jsonl in.jsonl --batch 1 --threads 1
same 'tag lines one by one' out tags
check 'tag ligatures' 0 "$sq" tag -m "$tag" --words --format jsonl $'\xef\xb7\xba'
check 'tag cut' 0 "$sq" tag -m "$tag" --truncate --format jsonl "$long"
holds 'tag cut' out '"truncated":true\}$'

# ---- bad lines: what came before is answered, nothing of the bad one is, and the message names it ----

good_line() {
    case $1 in
    classify | tag) echo '{"a":"the dog"}' ;;
    rerank) echo '{"query":"the dog","documents":["a cat"]}' ;;
    answer) echo '{"question":"who eats","context":"a cat"}' ;;
    esac
}
bad_line() { # COMMAND NAME LINE PATTERN
    local model
    case $1 in classify) model=$nli ;; rerank) model=$score ;; answer) model=$answer ;; tag) model=$tag ;; esac
    { good_line "$1" && good_line "$1" && printf '%s\n' "$3" && good_line "$1"; } >bad.jsonl
    check "$1 $2" 1 "$sq" "$1" -m "$model" --jsonl bad.jsonl
    lines "$1 $2" out 2
    holds "$1 $2" err "^sq: bad.jsonl:3.*$4"
    check "$1 $2 to a file" 1 "$sq" "$1" -m "$model" --jsonl bad.jsonl -o result
    absent "$1 $2 to a file" result
}
for c in classify rerank answer tag; do
    bad_line $c 'no JSON' 'hello' 'not JSON'
    bad_line $c 'no object' '[]' 'object'
    bad_line $c 'nothing' '{}' 'is missing'
done
bad_line classify 'too long' "{\"a\":\"$long\"}" '3002 tokens.*--truncate'
bad_line tag 'too long' "{\"a\":\"$long\"}" '3002 tokens.*--truncate'
bad_line tag 'a pair' '{"a":"x","b":"y"}' 'single texts'
bad_line rerank 'too long' "{\"query\":\"x\",\"documents\":[\"y\",\"$long\"]}" 'document 2.*--truncate'
bad_line rerank 'no list' '{"query":"x","documents":"y"}' '"documents" is no list'
bad_line rerank 'a number' '{"query":"x","documents":["y",1]}' 'item 2 of "documents"'
bad_line answer 'no context' '{"question":"x"}' '"context" is missing'
bad_line answer 'question too long' "{\"question\":\"$long\",\"context\":\"x\"}" 'no room'

# ---- streaming: an answer comes before the next question is asked ----

coproc TALK { "$sq" answer -m "$answer" --jsonl -; }
talk=$TALK_PID
good_line answer >&"${TALK[1]}"
if read -r -t 20 line <&"${TALK[0]}" && [[ $line == '{"text":'* ]]; then pass; else complain 'no answer before the end of the input'; fi
kill "$talk" 2>/dev/null || true
wait "$talk" 2>/dev/null || true
for c in classify rerank answer tag; do
    case $c in classify) m=$nli ;; rerank) m=$score ;; answer) m=$answer ;; tag) m=$tag ;; esac
    check "$c to a full disk" 1 bash -c "'$sq' $c -m '$m' --jsonl <(echo '$(good_line $c)') >/dev/full"
done

# ---- where sq-convert writes ----

# refused [--usage] WHAT MESSAGE COMMAND...: exit status 1, or 2 for wrong usage, and sq-convert's message holds MESSAGE.
refused() {
    local expected=1 code=0
    if [[ $1 == --usage ]]; then
        expected=2
        shift
    fi
    local what=$1 message=$2
    shift 2
    "$@" >out 2>err </dev/null || code=$?
    if ((code == expected)) && grep -q "^sq-convert: .*$message" err; then pass; else complain "$what: status $code"; fi
}

check 'convert to a device' 0 "$convert" "$golden/bert-64" --mode float -o /dev/null --quiet
if [[ -c /dev/null ]]; then pass; else complain '/dev/null was replaced'; fi
echo old >real.sq
ln -s real.sq link.sq
check 'convert through a link' 0 "$convert" "$golden/bert-64" --mode float -o link.sq --quiet
if [[ -L link.sq ]] && "$sq" info -m real.sq >/dev/null; then pass; else complain 'the link was replaced'; fi
refused 'convert to no folder' 'cannot create' "$convert" "$golden/bert-64" -o no/such/folder/m.sq
refused 'convert to a folder' 'cannot create' "$convert" "$golden/bert-64" -o .
cp -r "$golden/bert-64" checkpoint
refused 'convert onto its input' 'one of the files' "$convert" checkpoint -o checkpoint/model.safetensors
if cmp -s checkpoint/model.safetensors "$golden/bert-64/model.safetensors"; then pass; else complain 'the input was overwritten'; fi
absent 'temporary models' 'm.sq'
mkfifo pipe
check 'a pipe as model' 1 "$sq" embed -m pipe 'the dog'

# ---- the budget ----

check 'convert with a budget' 0 "$convert" "$golden/bert-64" --budget cos=0.999995 -o kept.sq
holds 'convert with a budget' out '^budget: layer [0-9]+ [a-z]+ is (dynamic|float)'
holds 'convert with a budget' out '^agreement with the float model on [0-9]+ texts'
check 'info of a mix' 0 "$sq" info -m kept.sq
holds 'info of a mix' out '^linear layers +INT8.*[0-9]+ f32'
holds 'info of a mix' out '^layers in f32 .* MB more than in INT8; linear layers take about [0-9.]+ times as long'
for wrong in cos=2 cos=-1 cos kl=x size=3 kl=; do
    refused --usage "budget $wrong" 'no budget like' "$convert" "$golden/bert-64" --budget "$wrong" -o m.sq
done
refused --usage 'budget without INT8' 'a budget is for INT8' "$convert" "$golden/bert-64" --mode float --budget cos=0.9 -o m.sq
printf 'one text\nand another\n' >two.txt
refused 'budget without texts' 'at least 64 calibration texts' "$convert" "$golden/bert-64" --calibrate two.txt --budget cos=0.9 -o m.sq
refused 'budget that cannot be kept' 'cannot be kept' "$convert" "$golden/bert-64" --budget cos=1 -o m.sq
absent 'budget that cannot be kept' 'm.sq'

refused 'unknown shape' 'unknown shape' "$convert" --synthetic huge -o m.sq

finish test-cli-tasks
