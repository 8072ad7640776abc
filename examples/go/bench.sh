#!/usr/bin/env bash
# examples/go/bench.sh - what sq-serve sustains, beside `sq bench` of the same machine in the same minutes.
#
# usage: bench.sh MODEL.sq [ROUNDS]
#
# A closed loop of 8 clients on the loopback, one text a request, in alternation with as many instances of `sq bench` as the server has contexts; the medians
# over the rounds. Once with a core left for HTTP and the clients, as a server has whose clients are elsewhere; once with a context on every core, all of which
# then also serve and ask. Then four times as many clients as the queue has room for: answers must be 200 or 429.
set -euo pipefail
model=$(realpath "$1") rounds=${2:-10} address=127.0.0.1:18080
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
go build -o "$work" ./cmd/sq-serve ./cmd/sq-load

start() {
    "$work/sq-serve" -embed "$model" -address $address "$@" 2>"$work/log" &
    server=$!
    until (: <"/dev/tcp/${address/://}") 2>/dev/null; do sleep 0.1; done
}

stop() {
    kill -TERM "$server"
    wait "$server"
}

ask() { "$work/sq-load" -url "http://$address/embed" "$@"; }

# Lines of: what sq bench runs a second, what is served a second, the median and the 99th percentile in milliseconds.
medians() {
    awk '
        { x[1, NR] = $1; x[2, NR] = $2; x[3, NR] = $3; x[4, NR] = $4; x[5, NR] = $2 / $1; x[6, NR] = $4 / $3 }
        END {
            for (i = 1; i <= 6; i++) {
                for (j = 1; j <= NR; j++) for (k = j + 1; k <= NR; k++) if (x[i, k] < x[i, j]) { t = x[i, j]; x[i, j] = x[i, k]; x[i, k] = t }
                m[i] = x[i, int((NR + 1) / 2)]
            }
            printf "sq bench %.0f/s, sq-serve %.0f/s, median %.2f ms, p99 %.2f ms; served/bench %.2f, p99/median %.2f\n", m[1], m[2], m[3], m[4], m[5], m[6]
        }'
}

beside_bench() {
    local contexts=$1 tokens=$2 encoding=$3 round bench served
    start -contexts "$contexts"
    for ((round = 0; round < rounds; round++)); do
        bench=$(../../sq bench "$model" --instances "$contexts" --threads 1 --tokens "$tokens" --seconds 2 | awk '$1 == "requests/s" { print $2 }')
        served=$(ask -clients 8 -seconds 2 -words $((tokens - 2)) -encoding "$encoding" | awk '$2 == "requests/s," { print $1, $4, $10 }')
        echo "$bench $served"
    done | medians | sed "s/^/$tokens tokens, $contexts contexts of $(nproc), $encoding: /"
    stop
}

for contexts in $(seq $(($(nproc) > 1 ? $(nproc) - 1 : 1)) "$(nproc)"); do
    beside_bench "$contexts" 16 float
    beside_bench "$contexts" 16 base64
    beside_bench "$contexts" 128 float
done

start -queue 16
echo "overload: $(ask -clients 64 -seconds 5 -words 126 | paste -sd' ')"
stop
