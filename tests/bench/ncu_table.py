#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums what ncu measured by kernel, the slowest first, one JSON object each; of the rest one line.

usage: ncu_table.py MODEL BATCH FILE.csv      (of ncu --csv --page raw --print-units base)
"""
import collections
import csv
import json
import re
import sys

MOST = 25
TIME, REGISTERS = "gpu__time_duration.sum", "launch__registers_per_thread"
MEMORY = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
PROCESSORS = "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def number(row, key):
    try:
        return float(row.get(key, "").replace(",", ""))
    except ValueError:
        return 0.0


def read_launches(path):
    """Yields the rows of launches: those with an ID; the row of units has none."""
    with open(path, encoding="utf-8", errors="replace", newline="") as f:
        lines = [line for line in f if line.startswith('"')]
    for row in csv.DictReader(lines):
        if (row.get("ID") or "").isdigit():
            yield row


def main():
    model, batch, path = sys.argv[1:]
    kernels = collections.defaultdict(list)
    for row in read_launches(path):
        kernels[re.sub(r"\s*\(.*", "", row["Kernel Name"])[:120]].append(row)
    if not kernels:
        sys.exit(f"{path}: no launches in it")
    total = {name: sum(number(r, TIME) for r in rows) for name, rows in kernels.items()}
    everything = sum(total.values()) or 1.0
    names = sorted(total, key=total.get, reverse=True)
    rest = names[MOST:]
    for name in names[:MOST] + (["others"] if rest else []):
        rows = kernels[name] if name in kernels else [r for n in rest for r in kernels[n]]
        ns = sum(number(r, TIME) for r in rows)

        def mean(key):
            return round(sum(number(r, key) * number(r, TIME) for r in rows) / (ns or 1.0), 1)
        print(json.dumps({
            "bench": "profile", "model": model, "batch": int(batch), "kernel": name, "launches": len(rows),
            "us": round(ns / 1e3, 2), "percent": round(100 * ns / everything, 1),
            "memory_percent": mean(MEMORY), "sm_percent": mean(PROCESSORS),
            "registers": int(max(number(r, REGISTERS) for r in rows))}, separators=(",", ":")))


if __name__ == "__main__":
    main()
