#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the defaults of options in C, which a macro gives, against those in C++, which members have
(TSR_IS), and against the list of macros in tessera.hpp. usage: defaults.py ROOT"""
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


def check(path, hpp):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for match in re.finditer(r"#define (TSR_\w+_OPTS)\(\.\.\.\)((?:.*\\\n)*.*\n)", text):
        body = re.sub(r"\\\n", " ", match[2])
        kind = re.search(r"const (tsr_\w+)\)", body)[1]
        struct = re.search(r"typedef struct " + kind + r" \{.*?\n\} " + kind + ";", text, re.S)[0]
        in_c, in_cpp = dict(fields(body[body.index("{") + 1:body.rindex("}")])), dict(defaults_of(struct))
        if in_c != in_cpp:
            yield f"{path}: {match[1]} gives {in_c}, the members of {kind} have {in_cpp}"
        if f"#define {match[1]}(...) TSR_OPTS({kind}, __VA_ARGS__)\n" not in hpp:
            yield f"{path}: tessera.hpp has no {match[1]} of {kind}"


def main():
    folder = os.path.join(sys.argv[1], "include", "tessera")
    with open(os.path.join(folder, "tessera.hpp"), encoding="utf-8") as f:
        hpp = f.read()
    found = [x for name in sorted(os.listdir(folder)) if name.endswith(".h")
             for x in check(os.path.join(folder, name), hpp)]
    print("\n".join(found) or f"{hpp.count('TSR_OPTS(tsr_')} macros")
    return len(found) > 0


sys.exit(main())
