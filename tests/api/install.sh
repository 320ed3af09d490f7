#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An installation: a user's program compiles by pkg-config alone, with strict warnings, against the
# shared and the static library, and runs; every header is C11, C17, C23, C++17 and C++20,
# and so is the program.
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
warnings="-Wall -Wextra -Wpedantic -Werror"
strict="-std=c17 $warnings"

for word in $(pkg-config --cflags tessera); do
    case $word in
    -I"$dest"*/include) ;;
    *) echo "tessera.pc exports more than its own include folder: $word"; exit 1 ;;
    esac
done

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

headers=$(cd "$(dirname "$(find "$dest" -name tessera.h)")" && ls ./*.h)
[ "$(echo "$headers" | wc -w)" -ge 15 ] || { echo "few headers were installed: $headers"; exit 1; }
for header in $headers; do
    printf '#include <tessera/%s>\nint main(void) { return 0; }\n' "${header#./}" >"$dest/h.c"
    cp "$dest/h.c" "$dest/h.cc"
    for std in c11 c17 c2x; do
        ${CC:-cc} -std=$std $warnings -fsyntax-only $(pkg-config --cflags tessera) "$dest/h.c"
    done
    if command -v "${CXX:-g++}" >/dev/null; then
        for std in c++17 c++20; do
            "${CXX:-g++}" -std=$std $warnings -fsyntax-only $(pkg-config --cflags tessera) "$dest/h.cc"
        done
    fi
done
# The same program in C++: shapes, signatures, options.
if command -v "${CXX:-g++}" >/dev/null; then
    for std in c++17 c++20; do
        "${CXX:-g++}" -x c++ -std=$std $warnings "$source" -x none -o "$dest/cxx" $(pkg-config --cflags --libs tessera)
        "$dest/cxx"
        "${CXX:-g++}" -x c++ -std=$std $warnings -fsyntax-only $(pkg-config --cflags tessera) \
            "${source%/tests/*}/examples/02_mnist.c"
    done
fi
command -v "${CXX:-g++}" >/dev/null || echo "no C++ compiler: headers were not tried in C++"

# Options that begin without a name are refused by compilers, not taken for some other option.
for options in 'TSR_SGD_OPTS(0.1)' 'TSR_GPT_OPTS(2, .heads = 4)' 'TSR_STEP_LR(30)'; do
    printf '#include <tessera/tessera.h>\nint main(void) { (void)%s; }\n' "$options" >"$dest/h.c"
    if ${CC:-cc} $strict -fsyntax-only $(pkg-config --cflags tessera) "$dest/h.c" 2>"$dest/log" ||
        ! grep -q 'tsr_options_are_given_by_name' "$dest/log"; then
        echo "$options was not refused:"
        cat "$dest/log"
        exit 1
    fi
done

# The options' macros do not warn, also at file scope; the user's own warnings of -Wextra stay on where asked for.
cat >"$dest/h.c" <<'TEXT'
#include <tessera/tessera.h>
#ifdef __cplusplus
#include <tessera/tessera.hpp>
#define OWN {.a = 1}
#else
#define OWN {.a = 1, .b = 2, .a = 3}
#endif
struct own {
    int a, b;
} own = OWN;
#ifndef __cplusplus
const tsr_sgd_opts *const at_file_scope = TSR_SGD_OPTS(.lr = 1);
#endif
void declare(tsr_module *m, tsr_tensor *x, bool given);
void declare(tsr_module *m, tsr_tensor *x, bool given)
{
    tsr_sgd(m, TSR_SGD_OPTS(.lr = 1, .schedule = TSR_STEP_LR(.step_size = 3, .gamma = 0.5)));
    tsr_sgd(m, given ? TSR_SGD_OPTS(.lr = 1) : NULL);
    tsr_conv2d(tsr_cast(x, TSR_F64), x, NULL, TSR_CONV2D_OPTS(.stride = {2, 2}));
    tsr_sum_with(x, TSR_ALL_AXES, false, TSR_SUM_OPTS(.dtype = TSR_I32));
}
TEXT
cp "$dest/h.c" "$dest/h.cc"
warnings() { # COMPILER FILE OPTIONS...: how many there are, and how many lines show the program's own initializer
    compiler=$1 file=$2
    shift 2
    $compiler -Wall -Wextra -Wpedantic -fsyntax-only $(pkg-config --cflags tessera) "$@" "$file" 2>"$dest/log"
    echo "$(grep -c 'warning:' "$dest/log") $(grep -c ' own = OWN' "$dest/log")"
}
expect_warnings() { # COMPILER FILE STANDARD
    command -v "${1%% *}" >/dev/null || return 0
    kept=$(warnings "$1" "$2" -std="$3" -DTSR_KEEP_OVERRIDE_WARNINGS)
    if [ "$(warnings "$1" "$2" -std="$3")" != '0 0' ] || [ "${kept#* }" = 0 ]; then
        echo "$1 -std=$3: without warnings it is, and with TSR_KEEP_OVERRIDE_WARNINGS of the program's own initializer, too: $kept"
        cat "$dest/log"
        exit 1
    fi
}
expect_warnings "${CC:-cc}" "$dest/h.c" c17
expect_warnings gcc "$dest/h.c" c11
expect_warnings clang "$dest/h.c" c17
expect_warnings g++ "$dest/h.cc" c++20

# CMake finds it by the package's files alone, at any place.
if command -v cmake >/dev/null; then
    mkdir "$dest/moved"
    cp -a "$(dirname "$(dirname "$(find "$dest" -path '*/bin/tessera')")")" "$dest/moved/prefix"
    mkdir "$dest/cmake"
    cp "$source" "$dest/cmake/user.c"
    cat >"$dest/cmake/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.13)
project(user C)
find_package(tessera 0.1 REQUIRED CONFIG)
find_package(tessera 0.2 QUIET CONFIG)
if(tessera_FOUND)
  message(FATAL_ERROR "version 0.2 was asked for, and ${tessera_VERSION} found")
endif()
find_package(tessera ${EXACT} EXACT REQUIRED CONFIG)
add_executable(user user.c)
set_target_properties(user PROPERTIES C_STANDARD 17)
target_link_libraries(user tessera::tessera)
TEXT
    # Its own copy is at another place than the installation was made for.
    { cmake -S "$dest/cmake" -B "$dest/cmake/build" -DCMAKE_PREFIX_PATH="$dest/moved/prefix" \
        -DCMAKE_LIBRARY_ARCHITECTURE="$(basename "$libdir")" -DEXACT="$(pkg-config --modversion tessera)" &&
        cmake --build "$dest/cmake/build"; } >"$dest/log" 2>&1 || { cat "$dest/log"; exit 1; }
    env -u LD_LIBRARY_PATH "$dest/cmake/build/user"
else
    echo "no cmake: its package was not tried"
fi

# Manual pages, the reference and completions, where the build makes them.
share=$(dirname "$(dirname "$(find "$dest" -path "$dest/moved" -prune -o -name tessera.1 -print)")")
for page in man1/tessera.1 man1/tessera-launch.1 man5/tessera-yaml.5; do
    [ -f "$share/$page" ] || { echo "no $page was installed"; exit 1; }
done
if [ -d "$build/docs/man3" ]; then
    if command -v man >/dev/null; then
        for name in tsr_matmul TSR_SGD_OPTS tsr_sgd_opts tessera_ops.h; do
            LC_ALL=C.UTF-8 man -M "$share" "$name" >"$dest/page" 2>"$dest/log" && grep -q NAME "$dest/page" ||
                { echo "man $name:"; cat "$dest/log"; exit 1; }
        done
        man -M "$share" tsr_matmul | grep -q 'tsr_tensor \*tsr_matmul(tsr_tensor \*a, tsr_tensor \*b)' ||
            { echo "tsr_matmul(3) has no prototype"; exit 1; }
    else
        echo "no man: pages were not read with it"
    fi
    for file in doc/tessera/html/index.html doc/tessera/html/ops.html bash-completion/completions/tessera \
        zsh/site-functions/_tessera fish/vendor_completions.d/tessera.fish; do
        [ -s "$(dirname "$share")/$file" ] || { echo "no $file was installed"; exit 1; }
    done
    grep -q 'id="tsr_matmul"' "$(dirname "$share")/doc/tessera/html/index.html" ||
        { echo "the reference lacks tsr_matmul"; exit 1; }
else
    echo "a build without the reference: it was not looked for"
fi
echo "installed, compiled, linked and run"
