#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the names of the tests whose sources name an optional Python module or program (tests/optional/hide), from Meson's own
list of tests. usage: suites.py BUILD"""
import json
import os
import re
import sys

HIDE = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "hide"), encoding="utf-8").read()
MODULES, PROGRAMS = ("|".join(re.search(rf"^{kind}=\((.*)\)$", HIDE, re.M)[1].split()) for kind in ("modules", "programs"))
USES = re.compile(rf"""\b(import|from)\s+({MODULES})\b|\bneeds\(["']({MODULES})|[\[(]["']({PROGRAMS})["']|command\ -v\ ({PROGRAMS})\b""")
LOCAL = re.compile(r"^\s*(?:import|from)\s+(\w+)", re.M)


def uses_optional(path, seen):
    """Whether a source, or a Python module beside it that it imports, names something optional."""
    if path in seen or not os.path.isfile(path):
        return False
    seen.add(path)
    with open(path, encoding="utf-8", errors="replace") as f:
        text = f.read()
    if USES.search(text):
        return True
    return path.endswith(".py") and any(uses_optional(os.path.join(os.path.dirname(path), name + ".py"), seen)
                                        for name in LOCAL.findall(text))


def listed(build, what):
    with open(os.path.join(build, "meson-info", f"intro-{what}.json"), encoding="utf-8") as f:
        return json.load(f)


def main(build):
    sources = {path: [s for group in target["target_sources"] for s in group.get("sources", [])]
               for target in listed(build, "targets") for path in target["filename"]}
    for test in listed(build, "tests"):
        words = [w for w in test["cmd"] if w.endswith((".py", ".sh"))] + sources.get(test["cmd"][0], [])
        if any(uses_optional(w, set()) for w in words):
            print(test["name"])


main(sys.argv[1])
