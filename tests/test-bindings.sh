#!/usr/bin/env bash
# tests/test-bindings.sh - the bindings of examples/, each with its own language's tests, against the bits that tests/bindings/reference.c gets from C.
#
# usage: test-bindings.sh [--models-only] [LANGUAGE...]     of go, python, rust, java; all without one
# Environment: B and OUT as for run-tests.sh, CC. What is made lies in B/bindings: models, reference values, and `call`, which benchmarks need.
# Only Maven may ask the network, for what its local repository lacks; where it gets no answer, Java is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
B=$(realpath -m "${B:-build}") OUT=$(realpath "${OUT:-.}") CC=${CC:-cc}
folder=$B/bindings
export SQ_TEST_DIR=$folder SQ_LIBRARY=$OUT/libsq.so LD_LIBRARY_PATH=$OUT${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

make_models() {
    local pair
    mkdir -p "$folder"
    for pair in embed=bert-64 classify=bert-classify score=bert-score answer=bert-answer tag=bert-tag; do
        "$OUT/sq-convert" "tests/golden/${pair#*=}" --mode static --quiet -o "$folder/${pair%=*}.sq"
    done
}

make_reference() {
    local program
    cp tests/bindings/texts.txt "$folder/texts.txt"
    for program in reference call; do
        "$CC" -std=c11 -O2 -Wall -Wextra -Werror -I. "tests/bindings/$program.c" -L"$OUT" -lsq -Wl,-rpath,"$OUT" -lm -o "$folder/$program"
    done
    "$folder/reference" "$folder"
}

# `hello` in another language prints what hello.c prints.
same_hello() {
    local name=$1
    shift
    "$CC" -std=c11 -I. examples/hello.c -L"$OUT" -lsq -lm -o "$folder/hello"
    if ! diff <("$folder/hello" "$folder/embed.sq" 'the dog sleeps' 'a cat sleeps') <("$@" "$folder/embed.sq" 'the dog sleeps' 'a cat sleeps'); then
        echo "$name: hello differs"
        return 1
    fi
}

test_go() {
    command -v go >/dev/null || { echo 'SKIP go: not installed'; return 0; }
    (
        cd examples/go
        export CGO_ENABLED=1 CGO_LDFLAGS="-L$OUT ${CGO_LDFLAGS:-}" GOFLAGS="-mod=readonly ${GOFLAGS:-}"
        [[ -z $(gofmt -l .) ]] || { gofmt -d .; exit 1; }
        go vet ./...
        go test -race -count=1 ./...
        go build -o "$folder/hello-go" ./cmd/hello
    )
    same_hello go "$folder/hello-go"
}

test_python() {
    command -v python3 >/dev/null || { echo 'SKIP python: not installed'; return 0; }
    (
        export PYTHONDONTWRITEBYTECODE=1
        cd examples/python
        python3 -m unittest
    )
    same_hello python env PYTHONDONTWRITEBYTECODE=1 python3 examples/python/hello.py
}

test_rust() {
    command -v cargo >/dev/null || { echo 'SKIP rust: not installed'; return 0; }
    (
        export SQ_LIB_DIR=$OUT CARGO_TARGET_DIR=$folder/rust
        cd examples/rust
        if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; else echo 'SKIP rust: cargo fmt is not installed'; fi
        if cargo clippy --version >/dev/null 2>&1; then
            cargo clippy --offline --quiet --all-targets -- -D warnings
        else
            echo 'SKIP rust: cargo clippy is not installed'
        fi
        cargo test --offline --quiet
        RUSTDOCFLAGS='-D warnings' cargo doc --offline --quiet --no-deps
        cargo build --offline --quiet --example hello
    )
    same_hello rust "$folder/rust/debug/examples/hello"
}

# The home of a JDK of version 22 or later: JAVA_HOME, that of the javac in PATH, or one beside the system's others.
find_jdk() {
    local home version
    for home in "${JAVA_HOME:-}" "$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")" /usr/lib/jvm/*; do
        [[ -x $home/bin/javac ]] || continue
        version=$("$home/bin/javac" -version 2>&1 | sed 's/^javac \([0-9]*\).*/\1/')
        if ((version >= 22)); then
            echo "$home"
            return 0
        fi
    done
    return 1
}

test_java() {
    local log=$folder/maven.log JAVA_HOME
    command -v mvn >/dev/null || { echo 'SKIP java: Maven is not installed'; return 0; }
    JAVA_HOME=$(find_jdk) || { echo 'SKIP java: no JDK of version 22 or later'; return 0; }
    export JAVA_HOME
    if ! mvn -B -f examples/java/pom.xml test >"$log" 2>&1; then
        if grep -qE 'ResolutionException|Could not (resolve|transfer|find artifact)' "$log"; then
            echo 'SKIP java: Maven cannot resolve its plugins or JUnit'
            return 0
        fi
        tail -n 60 "$log"
        return 1
    fi
    grep 'Tests run' "$log" | tail -n 1
    same_hello java "$JAVA_HOME/bin/java" --enable-native-access=ALL-UNNAMED -cp examples/java/target/classes sq.examples.Hello
}

main() {
    local languages=() failed=() language code
    make_models
    make_reference
    [[ ${1:-} != --models-only ]] || return 0
    languages=("$@")
    ((${#languages[@]})) || languages=(go python rust java)
    for language in "${languages[@]}"; do
        printf '== %s\n' "$language"
        set +e # and not `||`, which would have every command of the test go on after a failure
        (set -e; "test_$language")
        code=$?
        set -e
        ((code == 0)) || failed+=("$language")
    done
    ((${#failed[@]} == 0)) || { echo "failed: ${failed[*]}"; return 1; }
    echo "test-bindings: ${languages[*]}"
}

main "$@"
