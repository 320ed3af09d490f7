#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plants the faults of faults.txt in a copy of the tree, all at once, and measures how many random
programs each survives. TESSERA_FAULT chooses one when a program starts.

  faults.py --out DIR [--count 2000] [--only 3,7] [--seed 1] [--keep]
  faults.py --places      only looks whether each fault's place is there, once

DIR keeps the copy and its build; what was measured stands in DIR/found.tsv, and is kept."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = """
#include <stdlib.h>
static int tsri_fault_number;
__attribute__((constructor)) static void tsri_fault_choose(void)
{
    const char *text = getenv("TESSERA_FAULT");
    tsri_fault_number = text ? atoi(text) : 0;
}
static inline int tsri_fault(int n)
{
    return tsri_fault_number == n;
}
"""


def read_table(path=ROOT / "tests/programs/faults.txt"):
    faults = []
    for block in re.split(r"\n\s*\n", path.read_text()):
        fields = dict(re.findall(r"^(what|args|test|file|old|new): ((?:.|\n(?!what|args|test|file|old|new))*)", block, re.M))
        if fields:
            faults.append({key: value.rstrip("\n") for key, value in fields.items()})
    return faults


def flexible(text):
    """The text with any white space where it has some."""
    return r"\s+".join(re.escape(word) for word in text.split())


def plant(texts, faults):
    """Writes all faults into the sources' texts; returns what is not found just once."""
    wrong, changed = [], set()
    for number, fault in enumerate(faults, 1):
        text = texts[fault["file"]].decode()
        places = list(re.finditer(flexible(fault["old"]), text))
        if len(places) != 1:
            wrong.append(f"{number}: {len(places)} places in {fault['file']}: {fault['old']}")
            continue
        new = fault["new"].replace("@", f"tsri_fault({number})")
        texts[fault["file"]] = (text[: places[0].start()] + new + text[places[0].end() :]).encode()
        changed.add(fault["file"])
    for name in changed:
        texts[name] = b'#include "src/core/fault.h"\n' + texts[name]
    texts["src/core/fault.h"] = f"#ifndef TSRI_FAULT_H\n#define TSRI_FAULT_H\n{HEADER}\n#endif\n".encode()
    return wrong


def check_places():
    faults = read_table()
    names = {fault["file"] for fault in faults}
    missing = sorted(name for name in names if not (ROOT / name).is_file())
    texts = {name: (ROOT / name).read_bytes() for name in names.difference(missing)}
    wrong = plant(texts, [fault for fault in faults if fault["file"] in texts])
    print("\n".join([f"no file {name}" for name in missing] + wrong) or f"{len(faults)} faults")
    return 1 if missing or wrong else 0


def build(out, keep):
    copy, faults = out / "tree", read_table()
    if keep:
        return faults, copy / "b/tests/programs/random_programs"
    names = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True).stdout
    texts = {name: (ROOT / name).read_bytes() for name in names.decode().split("\0") if name}
    for line in plant(texts, faults):
        print("not planted:", line)
    for name, text in texts.items():
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != text:
            path.write_bytes(text)
            path.chmod((ROOT / name).stat().st_mode if (ROOT / name).exists() else 0o644)
    if not (copy / "b").exists():
        subprocess.run(["/usr/bin/meson", "setup", "b", "-Dcuda=disabled", "-Dgloo=disabled", "-Dexamples=false"],
                       cwd=copy, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", "b", "--quiet", "tests/programs/random_programs"], cwd=copy, check=True)
    return faults, copy / "b/tests/programs/random_programs"


def run(program, number, args, *options):
    """The seeds that fail with a fault, and what the first one said."""
    env = {"TESSERA_FAULT": str(number), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    if "--special" in options:
        env["TESSERA_CPU_WINOGRAD"] = "0"
    if args.check:
        env["TESSERA_CHECK"] = "1"
    command = [program, "--seed", str(args.seed), "--count", str(args.count), "--jobs", str(args.jobs), *options]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout
    said = dict(re.findall(r"^seed (\d+): (?!refused)(.*)$", out, re.M))
    seeds = sorted(int(seed) for seed in said)
    return seeds, said[str(seeds[0])][:100] if seeds else ""


def measure(program, number, skip, args, more):
    """The number of programs until one fails, and what it said; None: all passed."""
    seeds, said = run(program, number, args, "--stop", *more, *(["--skip", skip] if skip else []))
    return (seeds[0] - args.seed + 1 if seeds else None), said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--places", action="store_true")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--check", action="store_true", help="with the plans' own checks as well")
    parser.add_argument("--keep", action="store_true", help="measures the copy as it was built before")
    args = parser.parse_args()
    if args.places:
        return check_places()
    if not args.out:
        parser.error("--out is needed")
    faults, program = build(args.out, args.keep)
    only = {int(n) for n in args.only.split(",") if n}
    missed = 0
    skips = {}  # by further arguments of random_programs
    with open(args.out / "found.tsv", "a") as table:
        for number, fault in enumerate(faults, 1):
            if only and number not in only:
                continue
            more = tuple(fault.get("args", "").split())
            if more not in skips:
                skips[more] = ",".join(str(seed) for seed in run(program, 0, args, *more)[0])
                if skips[more]:
                    print(f"seeds that fail without a fault, which are left out: {skips[more]}", flush=True)
            after, said = measure(program, number, skips[more], args, more)
            missed += after is None
            line = f"{number}\t{after or 'not found'}\t{fault['file']}\t{fault['what']}\t{said}"
            print(line, flush=True)
            print(line, file=table, flush=True)
    print(f"{missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
