#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual page is what the tables give. usage: man.sh WRITER PAGE; to write it anew: WRITER > PAGE
"$1" | diff -u "$2" - || { echo "$2 is out of date: run $1 > $2"; exit 1; }
if command -v mandoc >/dev/null; then
    mandoc -Tlint -Wwarning "$2"
fi
