#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts sentences of comments that open without a named subject (Who, What, Those, Of, The same), as
CONVENTIONS has it. There may be no more of them than LEFT, which falls when some are rewritten.
usage: language.py ROOT [FILE...]: with files, lists theirs"""
import os
import re
import sys

LEFT = 238
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
    root, files = sys.argv[1], sys.argv[2:]
    found = {path: list(openings(root, path)) for path in sorted(sources(root))}
    for path in files:
        for line, words in found[path]:
            print(f"{path}:{line}: {words}")
    count = sum(map(len, found.values()))
    print(f"{count} openings without a named subject; at most {LEFT}")
    if count < LEFT:
        print("LEFT can fall")
    return 1 if count != LEFT else 0


if __name__ == "__main__":
    sys.exit(main())
