#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: calls.py SOURCE [--write]

include/tessera/ops_calls.h has the macro of each call of ops.h that takes the caller's file and line, and
functional_calls.h those of functional.h. Tells whether they are what the prototypes ask for; --write makes them so. Tells
too whether each function of src/functional declares its ctx as TSRI_FUNCTION, so that halves are rounded at its end."""
import glob
import os
import re
import sys

HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_NAME(...) for each tsr_NAME_at of NAME.h, with the place of the call. An argument
 * may be a literal with commas. tests/lint/calls.py writes this file from the prototypes of
 * NAME.h, which includes it. */
#ifndef TESSERA_GUARD_CALLS_H
#define TESSERA_GUARD_CALLS_H

"""


def calls(name, prototypes):
    names = re.findall(r"\btsr_(\w+)_at\([^;]*const char \*file,\s*int line\);", prototypes)
    lines = [f"#define tsr_{n}(...) tsr_{n}_at(__VA_ARGS__, TSR_HERE)\n" for n in names]
    lines = [line if len(line) <= 101 else line.replace(") ", ") \\\n    ", 1) for line in lines]
    head = HEAD.replace("of NAME.h", f"of {name}.h").replace(" NAME.h, which", f" {name}.h, which")
    return head.replace("GUARD", name.upper()) + "".join(lines) + "\n#endif\n"


def main():
    folder = os.path.join(sys.argv[1], "include", "tessera")
    for name in ("ops", "functional"):
        with open(os.path.join(folder, f"{name}.h")) as f:
            want = calls(name, f.read())
        path = os.path.join(folder, f"{name}_calls.h")
        if sys.argv[2:] == ["--write"]:
            with open(path, "w") as f:
                f.write(want)
            continue
        with open(path) as f:
            if f.read() != want:
                sys.exit(f"{name}_calls.h is not what {name}.h asks for: tests/lint/calls.py . --write")
    for path in glob.glob(os.path.join(sys.argv[1], "src", "functional", "*.c")):
        with open(path) as f:
            plain = re.search(r"^ *tsri_ctx \w+;|\btsri_op_begin\(", f.read(), re.M)
        if plain:
            sys.exit(f"{path}: '{plain.group().strip()}' rounds halves between ops: TSRI_FUNCTION and tsri_function_begin are needed")


if __name__ == "__main__":
    main()
