#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No sentence of a comment opens without a named subject (Who, What, Those, Of, The same), as CONVENTIONS
has it. usage: language.py ROOT"""
import os
import re
import sys

OPENINGS = re.compile(r"(?:/\*+\s*|[.:]\s+)((?:Who|Whoever|What|Those|Of|The same)\b[^.]{0,70})")


def sources(root):
    for top in ("include", "placement", "sbp", "kernels", "src", "models", "examples"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".cu", ".cuh", ".cc")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def openings(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        text = f.read()
    for comment in re.finditer(r"/\*.*?\*/", text, re.S):
        line = text.count("\n", 0, comment.start()) + 1
        words = re.sub(r"\s*\n\s*\*?\s*", " ", comment.group(0))
        for m in OPENINGS.finditer(words):
            yield line, m.group(1)


def main():
    root = sys.argv[1]
    found = [(path, *at) for path in sorted(sources(root)) for at in openings(root, path)]
    for path, line, words in found:
        print(f"{path}:{line}: no named subject: {words}")
    print(f"{len(found)} openings without a named subject")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
