#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pieces in the JSON of plan and box are those of the definition, and the page draws them: also ones that no definition
gives. usage: pieces.py TESSERA REGIONS.js"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from harness import check, done, equal, tessera

FOLDER = tempfile.TemporaryDirectory()
NODE = shutil.which("node") or shutil.which("nodejs")


def defined(shape, sbp, hierarchy):
    """The part [(offset, length), ...] of each rank: balanced splits, by depth or left to right."""
    words = re.findall(r"S\(\d+\)(?:/\d+)?|P\(\w+\)|\w", sbp)
    splits = []
    for d, word in enumerate(words):
        m = re.fullmatch(r"S\((\d+)\)(?:/(\d+))?", word)
        if m:
            splits.append((int(m[2] or d), d, int(m[1])))
    parts, n = [], 1
    for k in hierarchy:
        n *= k
    for index in range(n):
        at, left = [0] * len(hierarchy), index
        for d in reversed(range(len(hierarchy))):
            left, at[d] = divmod(left, hierarchy[d])
        box = [(0, n) for n in shape]
        for _, d, axis in sorted(splits):
            (start, size), k, i = box[axis], hierarchy[d], at[d]
            box[axis] = (start + i * (size // k) + min(i, size % k), size // k + (i < size % k))
        parts.append(box)
    return parts


def pieced(shape, pieces, splits, nranks):
    parts = [[(0, n) for n in shape] for _ in range(nranks)]
    for piece in pieces:
        split = splits[piece["split"]]
        equal((split["at"][0], split["at"][-1], len(split["of"])), (0, shape[piece["axis"]], nranks), "the ends of a split")
        check(split["at"] == sorted(split["at"]), f"cuts in order: {split}")
        for part, i in zip(parts, split["of"]):
            part[piece["axis"]] = (split["at"][i], split["at"][i + 1] - split["at"][i])
    return parts


def check_end(shape, sbp, hierarchy, nranks, pieces, splits, what):
    got, want = pieced(shape, pieces, splits, nranks), defined(shape, sbp, hierarchy)
    # The place of an empty piece does not matter.
    equal([[p if p[1] else 0 for p in part] for part in got], [[p if p[1] else 0 for p in part] for part in want], what)


def check_plan(path):
    p = json.loads(tessera("plan", path, "--json")[0])
    for v in p["values"]:
        place = p["placements"][v["placement"]]
        check_end(v["shape"], v["sbp"], place["hierarchy"], len(place["ranks"]), v["pieces"], p["splits"], f"{path}: {v}")
    texts = [json.dumps(s) for s in p["splits"]]
    used = {piece["split"] for v in p["values"] for piece in v["pieces"]}
    equal(used, set(range(len(texts))), f"{path}: each split is of some value")
    return p


def write(name, text):
    path = os.path.join(FOLDER.name, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


# Even and uneven, empty parts, an axis that several dimensions split, sums and copies.
odd = check_plan(write("odd.yaml", """\
tessera: 1
placements: {a: {ranks: [[[[0,1],[2,3]],[[4,5],[6,7]]],[[[8,9],[10,11]],[[12,13],[14,15]]]]}, b: {ranks: [[3,1,2],[9,8,7]]}}
graph:
  x: {op: normal, placement: a, sbp: "(S(0),S(1),S(2),S(3))", shape: [3,5,1,7]}
  y: {op: to_global, in: x, placement: a, sbp: "(S(1),B,S(3),S(1))"}
  z: {op: to_global, in: y, placement: b, sbp: "(S(3),S(3))"}
fetch: [y, z]
"""))
check(any(len(v["pieces"]) > 1 for v in odd["values"]) and any(0 in (b - a for a, b in zip(s["at"], s["at"][1:]))
                                                               for s in odd["splits"]), "several axes; empty pieces")
for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "../../examples/experiments/*.yaml"))):
    check_plan(path)

for args in (("-s", "8,6,10", "-f", "cpu:[[0,1],[2,3]] (S(0),P)", "-t", "(B,S(1))"),
             ("-s", "7,5", "-f", "cpu:[0,1,2] S(1)", "-t", "cpu:[2,3] S(0)"), ("-s", "9", "-f", "cpu S(0)", "-t", "B", "-n", "16"),
             ("-s", "12,4", "-f", "cpu:[[0,1],[2,3]] (S(0),S(0))", "-t", "(S(1),S(0))"),
             ("-s", "3,0", "-f", "cpu:[0,1] S(0)", "-t", "B"), ("-s", "", "-f", "cpu:[0,1] P", "-t", "B")):
    r = json.loads(tessera("box", *args, "--json")[0])
    for end in (r["from"], r["to"]):
        got = pieced(r["shape"], end["pieces"], r["splits"], len(end["parts"]))
        equal([[n for _, n in part] for part in got], [p["shape"] for p in end["parts"]], f"{args}: parts")
        check_end(r["shape"], end["sbp"], end["hierarchy"], len(end["parts"]), end["pieces"], r["splits"], f"{args}: end")
    for s in r["steps"]:
        before = r["to"] if s["on_destination"] and not s["crosses"] else r["from"]
        after = r["to"] if s["on_destination"] or s["crosses"] else r["from"]
        for end, sbp, pieces in ((before, s["from"], s["from_pieces"]), (after, s["to"], s["to_pieces"])):
            check_end(r["shape"], sbp, end["hierarchy"], len(end["parts"]), pieces, r["splits"], f"{args}: step")

# The page's parts are the pieces that it is given.
RUN = """
const [script, plan] = process.argv.slice(1).map(f => require('fs').readFileSync(f, 'utf8'));
const {partsOf, piecesOf} = new Function(script + '; return {partsOf, piecesOf};')();
const p = JSON.parse(plan);
console.log(JSON.stringify(p.values.map(v => partsOf({...v, ...p.placements[v.placement], pieces: piecesOf(v.pieces, p.splits)})
  .map(x => [x.rank, x.offset.map((o, i) => [o, x.length[i]])]))));
"""


def check_drawn(p, what):
    path = write("plan.json", json.dumps(p))
    drawn = json.loads(subprocess.run([NODE, "-e", RUN, sys.argv[2], path], check=True, capture_output=True, text=True).stdout)
    for v, parts in zip(p["values"], drawn):
        place = p["placements"][v["placement"]]
        want = pieced(v["shape"], v["pieces"], p["splits"], len(place["ranks"]))
        equal(parts, [[rank, [list(x) for x in part]] for rank, part in zip(place["ranks"], want)], f"{what}: {v}")


if NODE:
    check_drawn(odd, "as planned")
    for split in odd["splits"]:
        split["at"] = [0] * (len(split["at"]) - 1) + split["at"][-1:]
        split["of"].reverse()
    check_drawn(odd, "of other pieces")
done()
