#!/usr/bin/env bash
# tests/test-install.sh - sq as its users meet it: installed, by CMake's find_package, or a part of their CMake project; pkg-config; `make install` to a staging
# folder; a Debian package.
#
# usage: test-install.sh BUILD_DIR MODEL.sq      (BUILD_DIR: a finished CMake build of this tree)
set -euo pipefail
build=$(realpath "$1") model=$(realpath "$2")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
two=('the dog sleeps' 'a cat sleeps')
version=$(sed -nE 's/^#define SQ_VERSION_(MAJOR|MINOR|PATCH) //p' sq.h | paste -sd.)
soname=libsq.so.${version%%.*}

complain() {
    echo "$1" >&2
    exit 1
}

# The versioned shared library of a folder: programs find libsq.so when they are linked and the soname when they run.
check_versioned() {
    [[ $(readlink "$1/libsq.so") == "$soname" && $(readlink "$1/$soname") == "libsq.so.$version" && -f $1/libsq.so.$version ]] ||
        complain "$1: libsq.so, $soname and libsq.so.$version do not follow one another"
}

# check_consumer NAME OPTION...: tests/consumer, configured so, gives the same answer with the static and the shared library.
check_consumer() {
    local folder=$work/$1
    cmake -S tests/consumer -B "$folder" "${@:2}" >/dev/null
    cmake --build "$folder" -j"$(nproc)" >/dev/null
    "$folder/hello-sq" "$model" "${two[@]}" >"$work/answer-$1"
    "$folder/hello-shared" "$model" "${two[@]}" | cmp - "$work/answer-$1"
    [[ ! -f $work/answer ]] || cmp "$work/answer" "$work/answer-$1"
    cp "$work/answer-$1" "$work/answer"
    if ! readelf -d "$folder/hello-shared" | grep -q "NEEDED.*\[$soname\]"; then complain "$1: hello-shared does not ask for $soname"; fi
    if readelf -d "$folder/hello-sq" | grep -q 'NEEDED.*libsq'; then complain "$1: hello-sq asks for a shared libsq"; fi
}

cmake --install "$build" --prefix "$work/usr" >/dev/null
check_versioned "$(dirname "$(find "$work/usr" -name libsq.a)")"
for page in sq sq-convert; do
    [[ -s $work/usr/share/man/man1/$page.1 ]] || complain "cmake --install left out $page.1"
done
check_consumer installed -DCMAKE_PREFIX_PATH="$work/usr"
cmake -S tests/consumer -B "$work/newer" -DCMAKE_PREFIX_PATH="$work/usr" -DLEAST_VERSION=99.0 >"$work/log" 2>&1 && complain 'find_package takes an older version than asked for'
echo 'find_package: fine'
check_consumer part -DSQ_SOURCE="$PWD"
[[ -z $(find "$work/part" -name 'sq-convert' -o -name 'test-*') ]] || complain 'add_subdirectory builds programs'
echo 'add_subdirectory: fine'

make --no-print-directory install DESTDIR="$work/stage" PREFIX=/opt/sq >/dev/null
for f in bin/sq bin/sq-convert include/sq.h lib/libsq.a lib/libsq.so lib/pkgconfig/sq.pc share/man/man1/sq.1 share/man/man1/sq-convert.1; do
    [[ -e $work/stage/opt/sq/$f ]] || complain "make install left out $f"
done
check_versioned "$work/stage/opt/sq/lib"
if command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH=$work/stage/opt/sq/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/stage
    [[ $(pkg-config --modversion sq) == "$version" ]] || complain "sq.pc says version $(pkg-config --modversion sq)"
    read -r -a flags < <(pkg-config --cflags --libs sq)
    cc -std=c11 examples/hello.c "${flags[@]}" -lm -o "$work/hello"
    LD_LIBRARY_PATH=$work/stage/opt/sq/lib "$work/hello" "$model" "${two[@]}" | cmp - "$work/answer"
    read -r -a flags < <(pkg-config --static --cflags --libs sq)
    cc -std=c11 -static examples/hello.c "${flags[@]}" -o "$work/hello-static"
    "$work/hello-static" "$model" "${two[@]}" | cmp - "$work/answer"
    echo 'pkg-config: fine'
else
    echo 'SKIP pkg-config is not installed'
fi

if command -v dpkg-deb >/dev/null && command -v cpack >/dev/null; then
    cpack -G DEB --config "$build/CPackConfig.cmake" -D CPACK_PACKAGING_INSTALL_PREFIX=/usr -B "$work/package" >"$work/cpack.log" 2>&1 || complain "$(cat "$work/cpack.log")"
    package=$(echo "$work"/package/sq_*.deb)
    dpkg-deb --extract "$package" "$work/unpacked"
    dpkg-deb --control "$package" "$work/control"
    for f in bin/sq bin/sq-convert include/sq.h doc/sq/copyright share/man/man1/sq.1 share/man/man1/sq-convert.1; do
        [[ -n $(find "$work/unpacked" -path "*/$f") ]] || complain "the Debian package left out $f"
    done
    check_versioned "$(dirname "$(find "$work/unpacked" -name libsq.a)")"
    dpkg-deb --field "$package" Depends | grep -q 'libc6.*libstdc++6' || complain 'the Debian package does not depend on libc6 and libstdc++6'
    [[ $(dpkg-deb --field "$package" Version) == "$version" ]] || complain "the Debian package has version $(dpkg-deb --field "$package" Version)"
    grep -q "^libsq ${version%%.*} sq" "$work/control/shlibs" || complain 'the Debian package does not say which shared library it has'
    grep -q ldconfig "$work"/control/* || complain 'the Debian package leaves the cache of shared libraries as it was'
    "$(find "$work/unpacked" -path '*/bin/sq')" info -m "$model" >/dev/null
    echo 'Debian package: fine'
else
    echo 'SKIP dpkg-deb or cpack is not installed'
fi
