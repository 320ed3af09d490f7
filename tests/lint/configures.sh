#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The project configures with each option the other way. usage: configures.sh MESON SOURCES
set -u
build=$(mktemp -d) || exit 1
trap 'rm -rf "$build"' EXIT
failed=0
for options in '-Dexamples=false' '-Dexamples=false -Dtests=disabled' '-Donednn=disabled -Ddocs=disabled'; do
    # shellcheck disable=SC2086 # several options
    "$1" setup -Dcuda=disabled -Dgloo=disabled $options "$build/b" "$2" >"$build/log" 2>&1 ||
        { echo "$options"; tail -3 "$build/log"; failed=1; }
    rm -rf "$build/b"
done
exit $failed
