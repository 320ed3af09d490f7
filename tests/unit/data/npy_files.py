#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/unit/data/npy_files.h: .npy files as NumPy writes them, and their values.
usage: npy_files.py > tests/unit/data/npy_files.h"""
import io
import sys
import warnings

import numpy as np

RAMP = np.arange(24).reshape(2, 3, 4)
CASES = [
    ("f4", RAMP.astype("<f4") / 8, (1, 0)), ("f8", RAMP.astype("<f8") / 8, (1, 0)),
    ("f2", RAMP.astype("<f2") / 8, (1, 0)), ("i8", RAMP.astype("<i8") - 7, (1, 0)),
    ("i4", RAMP.astype("<i4") - 7, (1, 0)), ("u1", RAMP.astype("u1"), (1, 0)),
    ("b1", RAMP % 3 == 0, (1, 0)),
    ("big f4", RAMP.astype(">f4") / 8, (1, 0)), ("big f8", RAMP.astype(">f8") / 8, (1, 0)),
    ("big f2", RAMP.astype(">f2") / 8, (1, 0)), ("big i4", RAMP.astype(">i4") - 7, (1, 0)),
    ("fortran", np.asfortranarray(RAMP.astype("<f4") / 8), (1, 0)),
    ("big fortran", np.asfortranarray(RAMP.astype(">i8") - 7), (1, 0)),
    ("version 2", RAMP.astype("<f4") / 8, (2, 0)), ("version 3", RAMP.astype("<f4") / 8, (3, 0)),
    ("scalar", np.float32(2.5), (1, 0)), ("vector", np.arange(3, dtype="<i4"), (1, 0)),
    ("empty", np.zeros((0, 3), "<f4"), (1, 0)),
    ("8 axes", np.arange(4, dtype="<f4").reshape(1, 2, 1, 1, 2, 1, 1, 1), (1, 0)),
    ("9 axes", np.arange(4, dtype="<f4").reshape(1, 2, 1, 1, 2, 1, 1, 1, 1), (1, 0)),
    ("i1", np.arange(3, dtype="i1"), (1, 0)), ("i2", np.arange(3, dtype="<i2"), (1, 0)),
    ("c8", np.zeros(2, "<c8"), (1, 0)), ("U3", np.array(["abc"]), (1, 0)),
    ("fields", np.zeros(2, [("a", "<f4"), ("b", "<i4")]), (1, 0)),
]


def numbers(values, width):
    lines, line = [], "   "
    for v in values:
        if len(line) + len(v) + 2 > width:
            lines.append(line)
            line = "   "
        line += " " + v + ","
    return "\n".join(lines + [line])


def main():
    warnings.simplefilter("ignore")  # that a version is not the oldest possible
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by npy_files.py with NumPy %s. */" % np.__version__)
    print("#ifndef TESSERA_TESTS_NPY_FILES_H\n#define TESSERA_TESTS_NPY_FILES_H\n\n/* clang-format off */")
    for i, (name, array, version) in enumerate(CASES):
        f = io.BytesIO()
        np.lib.format.write_array(f, np.asanyarray(array), version=version)
        print("/* %s */\nstatic const unsigned char npy_file_%d[] = {" % (name, i))
        print(numbers([str(b) for b in f.getvalue()], 100) + "\n};")
    print("static const struct {\n    const char *name;\n    const unsigned char *data;\n    size_t size;\n    int ndim;\n    int64_t d[9];\n} npy_files[] = {")
    for i, (name, array, _) in enumerate(CASES):
        shape = np.asanyarray(array).shape
        print('    {"%s", npy_file_%d, sizeof npy_file_%d, %d, {%s}},' %
              (name, i, i, len(shape), ", ".join(map(str, shape)) or "0"))
    print("};\n/* clang-format on */\n\n#endif")


sys.exit(main())
