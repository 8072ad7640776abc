#!/usr/bin/env bash
# tests/test-install.sh - an installed sq as its users meet it: CMake's find_package, pkg-config, `make install` to a staging folder, a Debian package.
#
# usage: test-install.sh BUILD_DIR MODEL.sq      (BUILD_DIR: a finished CMake build of this tree)
set -euo pipefail
build=$(realpath "$1") model=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
two=('the dog sleeps' 'a cat sleeps')

cmake --install "$build" --prefix "$work/usr" >/dev/null
cmake -S tests/consumer -B "$work/consumer" -DCMAKE_PREFIX_PATH="$work/usr" >/dev/null
cmake --build "$work/consumer" >/dev/null
"$work/consumer/hello-sq" "$model" "${two[@]}" >"$work/answer"
"$work/consumer/hello-shared" "$model" "${two[@]}" | cmp - "$work/answer"
echo 'find_package: fine'

make --no-print-directory install DESTDIR="$work/stage" PREFIX=/opt/sq >/dev/null
for f in bin/sq bin/sq-convert include/sq.h lib/libsq.a lib/libsq.so lib/pkgconfig/sq.pc; do
    [[ -e $work/stage/opt/sq/$f ]] || { echo "make install left out $f" >&2; exit 1; }
done
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$work/stage/opt/sq/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/stage
    read -r -a flags < <(pkg-config --cflags --libs sq)
    cc -std=c11 examples/hello.c "${flags[@]}" -lm -o "$work/hello"
    LD_LIBRARY_PATH=$work/stage/opt/sq/lib "$work/hello" "$model" "${two[@]}" | cmp - "$work/answer"
    echo 'pkg-config: fine'
else
    echo 'SKIP pkg-config is not installed'
fi

if command -v dpkg-deb >/dev/null && command -v cpack >/dev/null; then
    cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/package" >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log" >&2; exit 1; }
    dpkg-deb --extract "$work"/package/sq_*.deb "$work/unpacked"
    for f in bin/sq bin/sq-convert include/sq.h; do
        found=$(find "$work/unpacked" -path "*/$f")
        [[ -n $found ]] || { echo "the Debian package left out $f" >&2; exit 1; }
    done
    dpkg-deb --field "$work"/package/sq_*.deb Depends | grep -q 'libc6' || { echo 'the Debian package depends on no libc6' >&2; exit 1; }
    "$(find "$work/unpacked" -path '*/bin/sq')" info -m "$model" >/dev/null
    echo 'Debian package: fine'
else
    echo 'SKIP dpkg-deb or cpack is not installed'
fi
