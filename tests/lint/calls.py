#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: calls.py SOURCE [--write]

include/tessera/ops_calls.h has the macro of each call of ops.h that takes the caller's file and line.
Tells whether it is what the prototypes ask for; --write makes it so."""
import os
import re
import sys

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_NAME(...) for each tsr_NAME_at of ops.h, with the place of the call. An argument may be a
 * literal with commas. tests/lint/calls.py writes this file from the prototypes; ops.h includes it.
 */
#ifndef TESSERA_OPS_CALLS_H
#define TESSERA_OPS_CALLS_H

"""


def calls(prototypes):
    names = re.findall(r"\btsr_(\w+)_at\([^;]*const char \*file,\s*int line\);", prototypes)
    lines = [f"#define tsr_{name}(...) tsr_{name}_at(__VA_ARGS__, TSR_HERE)\n" for name in names]
    return HEAD + "".join(lines) + "\n#endif\n"


def main():
    folder = os.path.join(sys.argv[1], "include", "tessera")
    with open(os.path.join(folder, "ops.h")) as f:
        want = calls(f.read())
    path = os.path.join(folder, "ops_calls.h")
    if sys.argv[2:] == ["--write"]:
        with open(path, "w") as f:
            f.write(want)
        return
    with open(path) as f:
        if f.read() != want:
            sys.exit("ops_calls.h is not what ops.h asks for: tests/lint/calls.py . --write")


if __name__ == "__main__":
    main()
