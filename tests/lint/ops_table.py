#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds docs/ops.md against the headers: every call that it names is there, and every call of ops.h and
functional.h that PyTorch has too is named.
usage: ops_table.py ROOT"""
import re
import sys
from pathlib import Path

# Calls that are Tessera's own, or that the table's words say.
OTHERS = set("""add_scalar sub_scalar mul_scalar div_scalar rdiv_scalar pow_scalar rank_sum causal_mask matmul_t
                input from_local to_global""".split())


def main():
    root = Path(sys.argv[1])
    headers = {h.name: set(re.findall(r"\btsr_(\w+?)_at\(", h.read_text())) for h in (root / "include/tessera").glob("*.h")}
    calls = headers["ops.h"] | headers["functional.h"]
    said = set(re.findall(r"`tsr_(\w+)", (root / "docs/ops.md").read_text()))
    bad = [f"docs/ops.md: there is no tsr_{n}" for n in sorted(said - calls)]
    bad += [f"docs/ops.md: tsr_{n} is missing" for n in sorted(calls - said - OTHERS)]
    print("\n".join(bad) if bad else f"{len(said)} calls")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
