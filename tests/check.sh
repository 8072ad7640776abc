# tests/check.sh - what the tests of the command line share; sourced. Works in a new folder, which goes at the end.
# shellcheck shell=bash
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit
n_passed=0 n_failed=0

pass() { n_passed=$((n_passed + 1)); }
complain() {
    n_failed=$((n_failed + 1))
    echo "FAILED $1"
    cut -c 1-300 out err | sed 's/^/    /'
}

# check NAME CODE COMMAND...: the exit code must be that; output stays in the files out and err. Failures must say "sq: " and nothing else first.
check() {
    local name=$1 expected=$2 code=0
    shift 2
    "$@" >out 2>err || code=$?
    if ((code != expected)); then
        complain "$name: exit code $code, not $expected"
    elif ((code != 0)) && ! grep -q '^sq: ' err; then
        complain "$name: no message"
    else
        pass
    fi
}

# holds NAME FILE PATTERN: FILE has a line like that.
holds() { if grep -qE -- "$3" "$2"; then pass; else complain "$1: $2 lacks $3"; fi; }
lines() { if (($(wc -l <"$2") == $3)); then pass; else complain "$1: $2 has not $3 lines"; fi; }
absent() { if compgen -G "$2*" >/dev/null; then complain "$1: $2 was left behind"; else pass; fi; }
same() { if cmp -s "$2" "$3"; then pass; else complain "$1: $2 and $3 differ"; fi; }

finish() {
    echo "$1: $n_passed passed, $n_failed failed"
    ((n_failed == 0))
}
