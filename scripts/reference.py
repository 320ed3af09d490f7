#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the reference of the public headers: manual pages and HTML.

usage: reference.py ROOT --check               says which calls have no comment, and whether pages can be made
       reference.py ROOT --man DIR             writes DIR/NAME.3 for each call, type and header
       reference.py ROOT --html DIR            writes DIR/index.html and a page for each file of docs/
       reference.py ROOT ... --depfile FILE    writes what was read, for a build
       reference.py ROOT --self-test           plants faults in copies of the headers, and expects --check to find them
"""
import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from manual import headers, html, man, rules  # noqa: E402 (the line above comes first)


def read(root):
    found, faults = headers.read(root / "include/tessera")
    calls = {i.name for h in found for i in h.items if i.kind == "call"}
    return found, faults, rules.Rules(root, calls), rules.pytorch(root / "docs/ops.md")


def write(folder, files):
    """Replaces what is in a folder."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def sources(root):
    """All files that the reference is made of."""
    globs = ["include/tessera/*.h", "docs/**/*.md", "src/graph/ops/*.c", "src/functional/*.c", "src/core/*_list.h",
             "scripts/manual/*", "tests/unit/graph/ops_rules.inc"]
    return [p for g in globs for p in sorted(root.glob(g)) if p.is_file()]


def self_test(root):
    """Each fault, planted alone, must be found."""
    comment = r"/\*(?:(?!\*/).)*\*/\n(?=TSR_API [^\n]*\b%s\()"
    planted = [("nn.h", comment % "tsr_module_count", "tsr_module_count has no comment"),
               ("graph.h", r"#define tsr_input\([^\n]*\n", "no macro calls tsr_input_at"),
               ("ops.h", comment % "tsr_relu_at", "tsr_relu has no comment"),
               ("base.h", comment % "tsr_dtype_size", "tsr_dtype_size has no comment")]
    for header, pattern, words in planted:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "tessera"
            shutil.copytree(root / "include/tessera", copy)
            text = (copy / header).read_text()
            text, count = re.subn(pattern, "", text, flags=re.S)
            assert count == 1, f"{header} has {count} times {pattern}"
            (copy / header).write_text(text)
            _, faults = headers.read(copy)
            if not any(words in f for f in faults):
                sys.exit(f"{header} without {pattern!r}: not found; found: {faults}")
    print(f"{len(planted)} planted faults were found")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("root", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--man", type=Path)
    parser.add_argument("--html", type=Path)
    parser.add_argument("--depfile", type=Path)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        self_test(args.root)
        return
    found, faults, op_rules, torch = read(args.root)
    if faults:
        sys.exit("\n".join(faults))
    version = re.search(r"version: '([^']+)'", (args.root / "meson.build").read_text()).group(1)
    pages = man.Pages(version, found, op_rules, torch).make()
    if args.check:
        calls = [i for h in found for i in h.items if i.kind == "call"]
        ops = [i for i in calls if i.header in ("ops.h", "functional.h")]
        bare = [i.name for i in ops if op_rules.of(i) == ([], [])]
        if bare:
            print("neither a rule nor what it is made of was found of " + ", ".join(bare))
        if len(bare) > len(ops) / 20:
            sys.exit("that is more than one in twenty: what scripts/manual/rules.py reads has changed")
        print(f"{len(calls)} calls with comments, {len(ops)} of them ops with rules; {len(pages)} manual pages")
    if args.man:
        write(args.man, {f"{name}.3": text for name, text in pages.items()})
    if args.html:
        write(args.html, html.Site(version, found, op_rules, torch, args.root).make())
    if args.depfile:
        made = args.man or args.html
        args.depfile.write_text(f"{made}: " + " ".join(str(p.absolute()) for p in sources(args.root)) + "\n")


if __name__ == "__main__":
    main()
