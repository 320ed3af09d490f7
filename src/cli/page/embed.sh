#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the page's style and scripts as arrays of C. usage: embed.sh OUTPUT page.css SCRIPT...
set -e
output=$1 style=$2
shift 2
array() { # name, file...
    name=$1
    shift
    printf 'const unsigned char page_%s[] = {\n' "$name"
    cat "$@" | od -An -v -tu1 | sed 's/[0-9][0-9]*/&,/g'
    printf '};\nconst size_t page_%s_size = sizeof page_%s;\n' "$name" "$name"
}
{
    echo '#include "src/cli/page/page.h"'
    array style "$style"
    array script "$@"
} > "$output"
