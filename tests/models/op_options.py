#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts, for docs/ops.md, which options of PyTorch's calls Tessera's have: the samples of PyTorch's own database, in f64
where an op has such, that a call takes, and what those that it refuses ask for. Needs PyTorch 1.13.

usage: op_options.py PEER DOCS [--write]

PEER is op_samples_peer, DOCS docs/ops.md. Prints "ok" where the table in DOCS is the one that was counted, else "FAIL"; --write
puts it there.
"""
import collections
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

import op_map
import op_samples
from op_map import DTYPES, Refused, Undefined

BEGIN, END = "<!-- options: counted by tests/models/op_options.py -->\n", "<!-- end of options -->\n"


class Row:
    def __init__(self):
        self.taken, self.refused, self.has, self.lacks = 0, 0, [], collections.Counter()


def doc_name(key):
    name = key.replace("nn.functional.", "").split("/")[0]
    return op_map.DOC.get(name, name)


def count(peer, key, op, row):
    dtype = next((t for t in DTYPES if t in op.supported_dtypes("cpu")), torch.float64)
    for generator in (torch.manual_seed, random.seed, np.random.seed):
        generator(0)
    for sample in op_samples.samples_of(op, dtype, False):
        try:
            graph, results = op_samples.declare(key, sample)
            op_samples.undefined(key, sample)
            _, text, data = op_samples.request(random, graph, results, [None] * len(results), [], None, False)
            answer = peer.ask(1, text, data)
            if isinstance(answer, str):
                raise Refused(op_samples.refusal(answer))
        except Undefined:
            continue
        except Refused as why:
            row.refused += 1
            row.lacks[str(why)] += 1
            continue
        row.taken += 1
        row.has += [o for o in op_map.options_given(op_map.OPS[key], sample) if o not in row.has]


def table(rows):
    """Names that are alike in all but their number share a line."""
    lines = collections.OrderedDict()
    for name in sorted(rows):
        row = rows[name]
        lacks = "; ".join(f"{why} ({n})" for why, n in sorted(row.lacks.items()))
        lines.setdefault((", ".join(row.has), lacks) if not lacks else (name, lacks), []).append(name)
    text = ["| PyTorch | samples taken | options that the call has | options that it lacks, and samples |", "| --- | --- | --- | --- |"]
    for (_, lacks), names in lines.items():
        taken, refused = (sum(getattr(rows[n], what) for n in names) for what in ("taken", "refused"))
        share = f"{taken} of {taken + refused}" if refused else f"all {taken}"
        text.append(f"| {', '.join(names)} | {share} | {', '.join(rows[names[0]].has)} | {lacks.replace('|', '/')} |")
    taken, refused = (sum(getattr(r, what) for r in rows.values()) for what in ("taken", "refused"))
    head = (f"PyTorch's own database (torch.testing, 1.13) and tests/models/op_extra.py have samples of {len(rows)} of these names: "
            f"{taken + refused} in f64,\nor in the first dtype that an op has. Tessera's calls and lines take {taken} of them, {100 * taken / (taken + refused):.1f} %.\n")
    return head + "\n" + "\n".join(text) + "\n"


def main():
    peer, docs, write = op_samples.Peer(sys.argv[1]), Path(sys.argv[2]), "--write" in sys.argv
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = collections.defaultdict(Row)
    for key, ops in op_samples.by_key().items():
        for op in ops if key in op_map.OPS else []:
            count(peer, key, op, rows[doc_name(key)])
    rows = {name: row for name, row in rows.items() if row.taken + row.refused}
    text = docs.read_text()
    before, rest = text.split(BEGIN)
    made = before + BEGIN + table(rows) + END + rest.split(END)[1]
    if write:
        docs.write_text(made)
    same = made == text
    print(("ok" if same or write else "FAIL") + f" options of {len(rows)} names in {docs.name}" +
          ("" if same else ": written" if write else f": they are others; {sys.argv[0]} PEER {docs} --write puts them there"))
    sys.exit(not (same or write))


if __name__ == "__main__":
    main()
