#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared library exports tsr_* and nothing else; the static one defines tsr_ and tsri_ alone.
# usage: symbols.sh libtessera.so libtessera.a
shared=$(nm -D --defined-only "$1" | awk '{print $3}' | grep -vE '^(tsr_[a-z0-9_]+|TESSERA_0)(@@TESSERA_0)?$')
static=$(nm -g --defined-only "$2" 2>/dev/null | awk 'NF == 3 {print $3}' | grep -vE '^tsri?_')
n=$(nm -D --defined-only "$1" | grep -c ' tsr_')
[ -z "$shared" ] || { echo "exported by the shared library: $shared"; exit 1; }
[ -z "$static" ] || { echo "defined by the static library: $static"; exit 1; }
[ "$n" -gt 100 ] || { echo "only $n symbols are exported"; exit 1; }
echo "$n symbols"
