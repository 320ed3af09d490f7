#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README is read aloud in three minutes; cells of the tables of README, docs/features.md and docs/measured.md say one thing
each; headings, files and functions that pages refer to are there. usage: pages.py ROOT [--self-test]"""
import re
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from layers import Known  # noqa: E402 (the line above comes first)

LINES, WORDS, CELL = 90, 560, 250
USERS = {"fit.py", "fit.c"}  # a user's program, before and after
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


FILE = r"(?<![\w./*-])[\w./-]*\w\.(?:c|h|cu|cuh|cc|inc|py)\b"


def name_faults(root, page, text, known):
    """Of what stands in `backticks`: files; where the page is about the inside, functions, and that `x` in `FILE` is in it."""
    inside = page == "docs/architecture.md" or page.startswith("docs/extending/")
    for name, file in re.findall(rf"`(\w+)`(?: in | of | \()`({FILE})`", prose(text)) if inside else []:
        if known.find(file) and not any(re.search(rf"\b{name}\b", (root / path).read_text(encoding="utf-8"))
                                        for path in known.find(file)):
            yield f"`{name}` is not in `{file}`"
    for code in re.findall(r"`([^`\n]+)`", prose(text)):
        for name in re.findall(FILE, code):
            if not re.search(r"\b[A-Z]{3,}\b", name) and name not in USERS and not known.has_file(name):
                yield f"`{name}` is not there"
        for name in re.findall(r"\btsri?_\w*[a-z0-9](?![\w.]*\.)\b", code) if inside else []:
            if not known.has_function(name):
                yield f"`{name}` is not there"


def faults(root):
    known = Known(root)
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("examples/**/*.md")]
    for page in sorted(pages):
        name, text = str(page.relative_to(root)), page.read_text(encoding="utf-8")
        found = list(link_faults(root, page, text))
        if name != "CHANGELOG.md":
            found += name_faults(root, name, text, known)
        if name == "README.md":
            found += length_faults(text)
        if name in SHORT_CELLS:
            found += cell_faults(text)
        yield from (f"{name}: {f}" for f in found)


def self_test():
    planted = {"README.md": f"# A\n\n[x](gone.md) [y](docs/features.md#no-such)\n{'word ' * (WORDS + 1)}\n" + "\n" * LINES,
               "docs/features.md": f"# B\n\n| a | b |\n| --- | --- |\n| c | {'d' * CELL} |\n\n`src/gone.c` and `there.c`\n",
               "docs/extending/op.md": "# C\n\n`tsri_there(x)`, `tsri_gone`, `there/there.c`, `src/core/there.c`, `tsr_NAME`; `tsri_there` in `there.c`, "
                                        "`passes` in `there.c`\n",
               "src/core/there.c": "int tsri_there; /* tsri_gone */\n"}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in planted.items():
            file = Path(folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        found = list(faults(Path(folder).resolve()))
    print("\n".join(found))
    named = [f for f in found if "`" in f]
    return len(found) != 10 or named != ["docs/extending/op.md: `passes` is not in `there.c`",
                                         "docs/extending/op.md: `tsri_gone` is not there",
                                         "docs/extending/op.md: `there/there.c` is not there",
                                        "docs/features.md: `src/gone.c` is not there"]


def main():
    if sys.argv[2:] == ["--self-test"]:
        return self_test()
    found = list(faults(Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "the pages are well")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
