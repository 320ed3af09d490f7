#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared library exports tsr_* and nothing else; the static one defines tsr_ and tsri_ alone. A
# module that is loaded at run time needs nothing of ours that the shared library does not export.
# usage: symbols.sh libtessera.so libtessera.a [MODULE...]
shared=$(nm -D --defined-only "$1" | awk '{print $3}' | grep -vE '^(tsr_[a-z0-9_]+|TESSERA_0)(@@TESSERA_0)?$')
static=$(nm -g --defined-only "$2" 2>/dev/null | awk 'NF == 3 {print $3}' | grep -vE '^tsri?_')
n=$(nm -D --defined-only "$1" | grep -c ' tsr_')
[ -z "$shared" ] || { echo "exported by the shared library: $shared"; exit 1; }
[ -z "$static" ] || { echo "defined by the static library: $static"; exit 1; }
[ "$n" -gt 100 ] || { echo "only $n symbols are exported"; exit 1; }
library=$1
shift 2
for module; do
    for name in $(nm -D --undefined-only "$module" | awk '{print $2}' | grep -E '^tsri?_'); do
        nm -D --defined-only "$library" | grep -qE " $name(@|\$)" ||
            { echo "$module needs $name, which no library exports"; exit 1; }
    done
done
echo "$n symbols"
