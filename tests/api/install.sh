#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What an installation gives: a user's program compiles by pkg-config alone, with strict warnings,
# against the shared and the static library, and runs; and every header is C++ too.
# usage: install.sh MESON BUILD SHARED_LIBRARY USER_C
set -eu
meson=$1 build=$2 library=$3 source=$4

if nm -D "$library" | grep -q '__[at]san_init'; then
    echo "skipped: a build with sanitizers is not one to install"
    exit 77
fi
command -v pkg-config >/dev/null || { echo "skipped: no pkg-config"; exit 77; }
dest=$(mktemp -d)
trap 'rm -rf "$dest"' EXIT
"$meson" install -C "$build" --no-rebuild --destdir "$dest" >"$dest/log" 2>&1 ||
    { cat "$dest/log"; exit 1; }

pc=$(find "$dest" -name tessera.pc)
[ -n "$pc" ] || { echo "no tessera.pc was installed"; exit 1; }
# The system's own folders stay in: what Tessera needs in turn is found there.
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$dest"
libdir=$(dirname "$(find "$dest" -name 'libtessera.so')")
export LD_LIBRARY_PATH="$libdir"
strict="-std=c17 -Wall -Wextra -Wpedantic -Werror"

${CC:-cc} $strict "$source" -o "$dest/shared" $(pkg-config --cflags --libs tessera)
"$dest/shared"
readelf -d "$dest/shared" | grep -q 'NEEDED.*libtessera\.so\.0' ||
    { echo "not linked with libtessera.so.0"; exit 1; }

# -l takes the shared library where there are both.
static=$(pkg-config --static --cflags --libs tessera | sed 's/-ltessera\b/-l:libtessera.a/')
${CC:-cc} $strict "$source" -o "$dest/static" $static
env -u LD_LIBRARY_PATH "$dest/static"
if readelf -d "$dest/static" | grep -q 'NEEDED.*libtessera'; then
    echo "the static program needs libtessera.so"
    exit 1
fi

[ "$(pkg-config --modversion tessera)" = "$("$dest/shared" version)" ] ||
    { echo "tessera.pc and the headers are of different versions"; exit 1; }
"$(find "$dest" -path '*/bin/tessera')" --version >/dev/null

if command -v "${CXX:-g++}" >/dev/null; then
    for header in $(cd "$(dirname "$(find "$dest" -name tessera.h)")" && ls ./*.h); do
        printf '#include <tessera/%s>\nint main() { return 0; }\n' "${header#./}" >"$dest/h.cc"
        "${CXX:-g++}" -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags tessera) "$dest/h.cc"
    done
else
    echo "no C++ compiler: headers were not tried in C++"
fi
echo "installed, compiled, linked and run"
