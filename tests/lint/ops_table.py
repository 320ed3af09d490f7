#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds docs/ops.md against the headers: every call that it names is there, and every call of ops.h and
functional.h that PyTorch has too is named, and the counts of PyTorch's names that it begins with.
usage: ops_table.py ROOT"""
import re
import sys
from pathlib import Path

# Calls that are Tessera's own, or that the table's words say.
OTHERS = set("""add_scalar sub_scalar mul_scalar div_scalar rdiv_scalar pow_scalar rank_sum causal_mask matmul_t
                input from_local to_global""".split())


def counts(text):
    """What the table says of its own rows: names with a call, with a line in its place, with neither."""
    have = {"call": 0, "line": 0, "-": 0}
    for names, call, line in re.findall(r"^\| ([^|]+) \| ([^|]*)\| ([^|]*)\|$", text, re.M):
        if names != "PyTorch" and not names.startswith("---"):
            have["-" if call.strip() == "-" else "call" if call.strip() else "line"] += len(names.split(","))
    total = sum(have.values())
    share = 100 * (total - have["-"]) / total
    return f"Of {total} names, {have['call']} are a call, {have['line']} are a line, {have['-']} are missing: {share:.1f} % are there."


def main():
    root = Path(sys.argv[1])
    headers = {h.name: set(re.findall(r"\btsr_(\w+?)_at\(", h.read_text())) for h in (root / "include/tessera").glob("*.h")}
    calls = headers["ops.h"] | headers["functional.h"]
    text = (root / "docs/ops.md").read_text()
    said = set(re.findall(r"`tsr_(\w+)", text))
    bad = [] if counts(text) in text else [f"docs/ops.md: it must say: {counts(text)}"]
    bad += [f"docs/ops.md: there is no tsr_{n}" for n in sorted(said - calls)]
    bad += [f"docs/ops.md: tsr_{n} is missing" for n in sorted(calls - said - OTHERS)]
    print("\n".join(bad) if bad else f"{len(said)} calls")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
