#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what Ninja has to build for the tests of some suites, from Meson's own lists. usage: targets.py BUILD [--suite NAME]...
[--no-suite NAME]..., as of `meson test`."""
import argparse
import json
import os


def listed(build, what):
    with open(os.path.join(build, "meson-info", f"intro-{what}.json"), encoding="utf-8") as f:
        return json.load(f)


def chosen(test, suites, left_out):
    names = {suite.split(":")[-1] for suite in test["suite"]}
    return (not suites or names & suites) and not names & left_out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--suite", action="append", default=[])
    parser.add_argument("--no-suite", action="append", default=[])
    args = parser.parse_args()
    targets = listed(args.build, "targets")
    files = {target["id"]: target["filename"] for target in targets}
    target_of = {path: target["id"] for target in targets for path in target["filename"]}
    needed = set()
    for test in listed(args.build, "tests"):
        if chosen(test, set(args.suite), set(args.no_suite)):
            needed |= set(test["depends"])
            needed |= {target_of[word] for word in [*test["cmd"], *test["env"].values()] if word in target_of}
    root = os.path.realpath(args.build)
    print("\n".join(sorted(os.path.relpath(path, root) for target in needed for path in files[target])))


main()
