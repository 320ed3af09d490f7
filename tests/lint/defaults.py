#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the defaults of options in C, which a macro gives, against those in C++, which members have
(TSR_IS). usage: defaults.py ROOT"""
import os
import re
import sys


def fields(text):
    """The fields of a literal, split at commas outside of brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text + ","):
        depth += (c in "({") - (c in ")}")
        if c == "," and depth == 0:
            match = re.fullmatch(r"\s*\.(\w+)\s*=\s*(.*?)\s*", text[start:i], re.S)
            if match and match[1] != "size":
                yield match[1], match[2]
            start = i + 1


def defaults_of(member_text):
    """What TSR_IS says in a struct's text."""
    for match in re.finditer(r"(\w+)(?:\[\w+\])?\s+TSR_IS\(", member_text):
        depth, end = 1, match.end()
        while depth:
            depth += (member_text[end] == "(") - (member_text[end] == ")")
            end += 1
        yield match[1], member_text[match.end():end - 1].strip()


def check(path):
    """What differs in a header, a line each, and how many macros it has."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    found, n = [], 0
    for match in re.finditer(r"#define (TSR_\w+)\(\.\.\.\)((?:.*\\\n)*.*\n)", text):
        body = re.sub(r"\\\n", " ", match[2])
        options = re.fullmatch(r"\s*TSR_OPTIONS\(\s*(tsr_\w+),\s*\((.*)\),\s*__VA_ARGS__\)\s*", body)
        if not options:
            if re.search(r"\.size = sizeof", body):
                found.append(f"{path}: {match[1]} is not made by TSR_OPTIONS")
            continue
        n += 1
        kind = options[1]
        struct = re.search(r"typedef struct " + kind + r" \{.*?\n\} " + kind + ";", text, re.S)[0]
        in_c, in_cpp = dict(fields(options[2])), dict(defaults_of(struct))
        if in_c != in_cpp:
            found.append(f"{path}: {match[1]} gives {in_c}, the members of {kind} have {in_cpp}")
    return found, n


def main():
    folder = os.path.join(sys.argv[1], "include", "tessera")
    each = [check(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".h")]
    found, n = sum((e[0] for e in each), []), sum(e[1] for e in each)
    print("\n".join(found) or f"{n} macros")
    return len(found) > 0 or n < 50


sys.exit(main())
