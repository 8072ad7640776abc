#!/usr/bin/env bash
# tests/test-cli-bench.sh - `sq bench`, `sq profile` and `sq tune` with the tiny checkpoints of tests/golden: options, messages, the form of answers, and that numbers agree
# with each other. How fast the machine is, is not asked here.
#
# usage: test-cli-bench.sh SQ SQ-CONVERT
# shellcheck disable=SC2016 # the fields of awk's conditions stand in single quotes
set -euo pipefail
sq=$(realpath "$1") convert=$(realpath "$2") golden=$(realpath "$(dirname "${BASH_SOURCE[0]}")/golden")
# shellcheck source=tests/check.sh
source "$(dirname "${BASH_SOURCE[0]}")/check.sh"

for m in bert-64 bert-classify bert-tag; do
    check "convert $m" 0 "$convert" "$golden/$m" --mode static -o "$m.sq"
done
check 'convert to float' 0 "$convert" "$golden/bert-64" --mode float -o float.sq
embeds=bert-64.sq

# numbers KEY FILE: each number under KEY, one a line.
numbers() { grep -oE "\"$1\":-?[0-9.e+-]+" "$2" | cut -d : -f 2; }
# agree NAME AWK-CONDITION KEY...: the condition on the first numbers under the keys, as $1, $2, ..., which must be there.
agree() {
    local name=$1 condition=$2 values=() key
    shift 2
    for key; do values+=("$(numbers "$key" out | head -n 1)"); done
    if awk -v n=$# "{ exit !(NF == n && ($condition)) }" <<<"${values[*]}"; then pass; else complain "$name: not $condition with $* = ${values[*]}"; fi
}
# is_json NAME: `out` is one line, which sq's own reader finds to be a JSON object, though none that it could embed.
is_json() {
    lines "$1" out 1
    "$sq" tokenize -m "$embeds" --jsonl out >/dev/null 2>why || true
    holds "$1 is JSON" why ':1: "a" is missing'
}

# ---- usage ----

for c in bench profile; do
    check "$c --help" 0 "$sq" $c --help
    holds "$c --help" out '^example'
    holds "$c --help" out '--model FILE'
    check "$c without model" 2 "$sq" $c
    check "$c two models" 2 "$sq" $c $embeds $embeds
    check "$c model twice" 2 "$sq" $c -m $embeds $embeds
    check "$c no such model" 1 "$sq" $c missing.sq
    holds "$c no such model" err 'missing.sq'
    check "$c a model that is none" 1 "$sq" $c out
    check "$c unknown option" 2 "$sq" $c $embeds --frobnicate
    check "$c unknown instruction set" 1 "$sq" $c $embeds --isa mmx
    for n in 0 -1 '' 1x '1,' ',1' 1.5 99999999999; do
        check "$c tokens '$n'" 2 "$sq" $c $embeds --tokens="$n"
    done
    for n in 0 -1 1x 65537; do
        check "$c batch '$n'" 2 "$sq" $c $embeds --batch="$n"
        check "$c threads '$n'" 2 "$sq" $c $embeds --threads="$n"
    done
    for n in 0 -1 nan inf 1e9 1x '' 3601; do
        check "$c seconds '$n'" 2 "$sq" $c $embeds --seconds="$n"
    done
    check "$c beyond the position table" 1 "$sq" $c $embeds --tokens 65
    holds "$c beyond the position table" err 'ends at 64 tokens'
    check "$c too many tokens together" 1 "$sq" $c $embeds --tokens 64 --batch 65536
    check "$c to a full disk" 1 bash -c "'$sq' $c $embeds --tokens 1 --seconds 0.001 >/dev/full"
done
check 'help' 0 "$sq" --help
holds 'help' out '^  bench'
holds 'help' out '^  profile'
check 'profile takes one length' 2 "$sq" profile $embeds --tokens 1,2
check 'instances take one length' 2 "$sq" bench $embeds --instances 2 --tokens 1,2
check 'instances 0' 2 "$sq" bench $embeds --instances 0
check 'instances 1025' 2 "$sq" bench $embeds --instances 1025
check 'too many threads' 1 "$sq" bench $embeds --instances 1000 --threads 1000
check 'numa without instances' 2 "$sq" bench $embeds --numa
check 'seconds and runs' 2 "$sq" bench $embeds --seconds 1 --runs 2
check 'warmup without runs' 2 "$sq" bench $embeds --warmup 2
check 'more pinned threads than cores' 1 "$sq" bench $embeds --pin --threads 1024
holds 'more pinned threads than cores' err '^sq: --pin: 1024 threads'
check 'more pinned instances than cores' 1 "$sq" bench $embeds --pin --instances 1024 --threads 4
holds 'more pinned instances than cores' err '^sq: --pin: 1024 instances of 4 threads'

# ---- latency ----

check 'bench' 0 "$sq" bench $embeds --seconds 0.01
holds 'bench' out '^# .*, bert-64.sq \(static\), sq [0-9]'
lines 'bench' out 5
holds 'bench' out '^ +32 +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+ '
check 'bench lines' 0 "$sq" bench -m $embeds --tokens 3,64 --batch 2 --threads 2 --runs 20 --warmup 2 --json
is_json 'bench lines'
for m in bert-classify bert-tag float; do
    check "bench $m" 0 "$sq" bench $m.sq --tokens 7 --seconds 0.01 --json
    is_json "bench $m"
    agree "bench $m" '$1 == 7 && $2 > 0 && $3 >= $2 && $4 > 0' tokens median_ms p90_ms gop_s
done
check 'bench one run' 0 "$sq" bench $embeds --tokens 8 --batch 2 --threads 1 --runs 1 --json
agree 'bench one run' '$1 == 1 && $2 == $3 && $2 == $4' calls median_ms p90_ms least_ms
agree 'bench one run' '$2 > 0 && ($1 * $2 / 16000 - 1) ^ 2 < 0.0001' tokens_per_s median_ms
agree 'bench memory' '$1 > 0 && $2 > 0 && $1 > $2' resident_bytes anonymous_bytes
check 'bench pinned copy' 0 "$sq" bench $embeds --tokens 8 --pin --threads 1 --copy --huge-pages --runs 3 --json
holds 'bench pinned copy' out '"pinned":true'
check 'bench plain' 0 env SQ_ISA=plain "$sq" bench $embeds --tokens 8 --seconds 0.01
holds 'bench plain' out '^ +8 .* - +- +- '
check 'bench plain lines' 0 env SQ_ISA=plain "$sq" bench $embeds --tokens 8 --seconds 0.01 --json
is_json 'bench plain lines'
holds 'bench plain lines' out '"share_of_peak":null'
for isa in avx2 avxvnni avx512vnni amx; do
    if ! SQ_ISA=$isa "$sq" info -m $embeds >/dev/null 2>err; then
        echo "SKIP $(tail -n 1 err)"
        continue
    fi
    for m in $embeds float.sq; do
        check "bench with $isa" 0 "$sq" bench "$m" --isa $isa --tokens 8 --threads 2 --seconds 0.01 --json
        agree "bench with $isa" '$1 > 0 && $2 > 0 && $3 > 0 && $1 < 1.5' share_of_peak peak_1_gop_s peak_gop_s
    done
done

# ---- instances ----

check 'instances' 0 "$sq" bench $embeds --instances 2 --tokens 16 --seconds 0.5
holds 'instances' out '^requests/s +[0-9.]+ \('
holds 'instances' out '^  each further +-?[0-9.]+$'
check 'instances lines' 0 "$sq" bench bert-classify.sq --instances 3 --threads 1 --tokens 16 --seconds 0.5 --json
is_json 'instances lines'
agree 'instances lines' '$1 == 3 && $2 > 0 && $3 > 0 && $4 >= $3 && $5 >= $4' instances requests p50_ms p90_ms p99_ms
agree 'instances: rate' '($1 / $2 / $3 - 1) ^ 2 < 0.0001' requests window_s requests_per_s
agree 'instances: tokens' '($1 / $2 / 16 - 1) ^ 2 < 0.0001' tokens_per_s requests_per_s
# Three callers that wait for their answers: as many requests a second as 3 / (mean time of one). The median stands in for the mean, so the bounds are wide.
agree 'instances: by time' '$1 * $2 / 1000 < 6 && $1 * $2 / 1000 > 0.01' requests_per_s p50_ms
check 'instances by runs' 0 "$sq" bench $embeds --instances 1 --threads 1 --tokens 16 --runs 7 --warmup 1 --json
agree 'instances by runs' '$1 == 7' requests
# More instances than cores, a call each: most would be done before the last begins, if they did not wait for one another.
for _ in 1 2 3; do
    check 'instances of one call' 0 "$sq" bench $embeds --instances 8 --threads 1 --tokens 8 --runs 1 --warmup 1 --json
    agree 'instances of one call' '$1 >= 1 && $2 > 0' requests window_s
done
check 'instance pinned' 0 "$sq" bench $embeds --instances 1 --threads 1 --pin --numa --tokens 16 --runs 5 --json
holds 'instance pinned' out '"cpus":\[\[[0-9]+\]\]'
check 'instances beyond the position table' 1 "$sq" bench $embeds --instances 2 --tokens 65
check 'instances on fewer positions' 0 "$sq" bench $embeds --instances 1 --threads 1 --runs 5
holds 'instances on fewer positions' err 'ends at 64 tokens'

# ---- profile ----

# is_svg NAME FILE: tags are balanced and closed, and nothing is left to escape.
is_svg() {
    local opened closed
    opened=$(grep -o '<[a-z]' "$2" | wc -l) closed=$(grep -oE '/>|</[a-z]+>' "$2" | wc -l)
    if ((opened > 20 && opened == closed)); then pass; else complain "$1: $opened tags opened, $closed closed"; fi
    if [[ $(head -c 5 "$2") == '<svg ' && $(tail -n 1 "$2") == '</svg>' ]]; then pass; else complain "$1: not one svg element"; fi
    if grep -qE '&([^aglq]|a[^m])|[0-9.]"[a-z]|nan|inf' "$2"; then complain "$1: not well-formed"; else pass; fi
}
odd='<a & "b">.sq'
cp $embeds "$odd"
check 'profile' 0 "$sq" profile "$odd" --tokens 16 --seconds 0.05 --svg roofline.svg
for name in qkv out up down attention LayerNorm embedding quantise head outside linear call; do
    holds 'profile' out "^$name +.*[0-9.]+ "
done
holds 'profile' out '^ceiling: [0-9.]+ ms'
is_svg 'profile' roofline.svg
for name in qkv out up down attention; do holds 'profile picture' roofline.svg ">$name [0-9.]+( [kMGT])?</text>"; done
holds 'profile picture' roofline.svg '&lt;a &amp; &quot;b&quot;&gt;.sq'
check 'profile lines' 0 "$sq" profile bert-classify.sq --batch 2 --threads 1 --seconds 0.05 --json
is_json 'profile lines'
agree 'profile lines' '$1 == 64 && $2 > 0 && $3 > 0' tokens call_ms memory_gb_s
if numbers share out | awk '{ sum += $1 } NR == 10 { exit !(sum > 0.99 && sum < 1.01) }'; then pass; else complain 'profile: shares do not sum to 1'; fi
agree 'profile ceiling' '$1 > 0 && ($1 / $2 / $3 - 1) ^ 2 < 0.0001' ceiling_ms call_ms of_ceiling
echo old >kept.svg
check 'profile plain' 0 env SQ_ISA=plain "$sq" profile float.sq --tokens 4 --seconds 0.01 --svg kept.svg
holds 'profile plain' out '^ceiling: not known'
is_svg 'profile plain' kept.svg
check 'picture to nowhere' 1 "$sq" profile $embeds --svg no/such/folder/file.svg
check 'picture to a full disk' 1 "$sq" profile $embeds --tokens 4 --seconds 0.01 --svg /dev/full
absent 'temporary files' '*.part-'

# ---- tune ----

check 'tune' 0 "$sq" tune $embeds --threads 2 -o plans.txt
lines 'tune' plans.txt 4 # up to 8, 16, 32 and 64 tokens
holds 'tune' plans.txt '^sq-1 [a-z0-9]+ t2 d64 [^	]*	64 (rows|panels) [0-9]+ [0-9]+$'
check 'tune more' 0 "$sq" tune $embeds --threads 1 --tokens 20,8 --tuning plans.txt -o plans.txt
lines 'tune more' plans.txt 6
check 'tune on plain' 0 env SQ_ISA=plain "$sq" tune bert-tag.sq --tokens 8 --batch 2
holds 'tune on plain' out '^sq-1 plain '
check 'vectors without plans' 0 "$sq" embed -m $embeds --threads 1 --format jsonl 'one two three'
mv out without
check 'vectors with plans' 0 "$sq" embed -m $embeds --threads 1 --format jsonl --tuning plans.txt 'one two three'
same 'vectors with plans' out without
check 'bench with plans' 0 "$sq" bench $embeds --tokens 8 --runs 3 --tuning plans.txt
check 'instances with plans' 0 "$sq" bench $embeds --instances 1 --threads 1 --tokens 8 --runs 3 --tuning plans.txt
check 'profile with plans' 0 "$sq" profile $embeds --tokens 8 --seconds 0.01 --tuning plans.txt
echo nonsense >bad.txt
for c in bench profile; do
    check "$c with bad plans" 1 "$sq" $c $embeds --tuning bad.txt
    holds "$c with bad plans" err 'tuning.*nonsense'
done
check 'vectors with bad plans' 1 "$sq" embed -m $embeds --tuning bad.txt text
holds 'vectors with bad plans' err 'tuning.*nonsense'
check 'missing plans' 1 "$sq" embed -m $embeds --tuning no-such-file text
check 'plans to nowhere' 1 "$sq" tune $embeds --tokens 8 -o no/such/folder/plans.txt

# ---- threads by default ----

# Makes a cgroup whose quota is one CPU, of version 1 or 2, and sets `group`. Needs root.
make_group() {
    local root
    for root in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
        group=$root/sq-test-$$
        mkdir "$group" 2>/dev/null || continue
        if [[ -f $group/cgroup.procs ]] && { echo 100000 >"$group/cpu.cfs_quota_us" || echo '100000 100000' >"$group/cpu.max"; } 2>/dev/null; then return; fi
        rmdir "$group"
    done
    return 1
}
if make_group; then
    check 'a quota of one CPU' 0 bash -c 'echo $$ >"$1/cgroup.procs" && "$2" bench "$3" --tokens 8 --seconds 0.01 --json' - "$group" "$sq" $embeds
    agree 'a quota of one CPU' '$1 == 1' threads
    rmdir "$group"
else
    echo 'SKIP a CPU quota: no cgroup can be made here (root may, where the cpu controller is on)'
fi
check 'one processor' 0 taskset -c "$(taskset -cp $$ | grep -oE '[0-9]+' | sed -n 2p)" "$sq" bench $embeds --tokens 8 --seconds 0.01 --json
agree 'one processor' '$1 == 1' threads

finish test-cli-bench
