#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README is read aloud in three minutes; cells of the tables of README, docs/features.md and docs/measured.md say one thing
each; what pages refer to is there. usage: pages.py ROOT [--self-test]"""
import re
import sys
import tempfile
from pathlib import Path

LINES, WORDS, CELL = 90, 560, 250
SHORT_CELLS = ("README.md", "docs/features.md", "docs/measured.md")


def prose(text):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(text):
    """Of the headings of a page, as sites make them."""
    for heading in re.findall(r"^#+ (.*)$", prose(text), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def length_faults(text):
    lines, words = text.count("\n"), len(prose(text).split())
    if lines > LINES:
        yield f"{lines} lines; {LINES} are allowed"
    if words > WORDS:
        yield f"{words} words beside its code; {WORDS} are read aloud in three minutes"
    if len(re.findall(r"!\[[^\]]+\]", text)) < 3:
        yield "it has two pictures and a chart, each with words for those who do not see them"


def cell_faults(text):
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
                if len(cell.strip()) >= CELL:
                    yield f"line {number}: a cell of {len(cell.strip())} characters; under {CELL} are allowed"


def link_faults(root, page, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(text))):
        path, _, anchor = target.partition("#")
        if re.match(r"\w+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield f"{target} is not there"
        elif anchor and anchor not in set(anchors(file.read_text(encoding="utf-8"))):
            yield f"{target}: no such heading"


def faults(root):
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")]
    for page in sorted(pages):
        name, text = str(page.relative_to(root)), page.read_text(encoding="utf-8")
        found = list(link_faults(root, page, text))
        if name == "README.md":
            found += length_faults(text)
        if name in SHORT_CELLS:
            found += cell_faults(text)
        yield from (f"{name}: {f}" for f in found)


def self_test():
    planted = {"README.md": f"# A\n\n[x](gone.md) [y](docs/features.md#no-such)\n{'word ' * (WORDS + 1)}\n" + "\n" * LINES,
               "docs/features.md": f"# B\n\n| a | b |\n| --- | --- |\n| c | {'d' * CELL} |\n"}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in planted.items():
            file = Path(folder) / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        found = list(faults(Path(folder).resolve()))
    print("\n".join(found))
    return len(found) != 6


def main():
    if sys.argv[2:] == ["--self-test"]:
        return self_test()
    found = list(faults(Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "the pages are well")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
