#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes that a refused memory limit advises: micro-batches, recomputation, both, and stages. Each fits, and its bytes and
its step are those of the plan that the override makes. usage: advice.py TESSERA"""
import os
import re
import shlex
import tempfile

from harness import IS_INSTRUMENTED, check, done, equal, scaled, seconds, tessera, tessera_json

FOLDER = tempfile.TemporaryDirectory()
UNITS = ["B", "KB", "MB", "GB", "TB"]
FITS = re.compile(r"^  what fits:((?: --set (?:'[^']*'|[^ ',]+))+)"
                  r"(?:, where a step takes (.+) and a rank (.+)|, where the file has \d+)?$", re.M)
AGAIN, STAGES = "recompute=", "stages={axis: pp, split: auto}"
counter = iter(range(1000))


def write(text):
    path = os.path.join(FOLDER.name, f"{next(counter)}.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("tessera: 1\n" + text)
    return path


def figures(path, *args):
    p = tessera_json("plan", path, *args, timeout=110)
    return p["step"]["cost_s"], max(row["total"] for row in p["memory"])


def overrides(sets):
    return [x for s in sets for x in ("--set", s)]


def advised(path, limit, *sets):
    """Refuses the limit, and plans with each change that is named. Returns [sets], quickest first, and whether all
    changes were tried to the end."""
    out, err = tessera("plan", path, "-m", str(limit), *overrides(sets), code=1, timeout=240, env={"COLUMNS": "80"})
    screen = out.splitlines()
    check(len(screen) <= 24 and not [x for x in screen if len(x) > 80], f"a screen of 80 columns and 24 lines: {out}")
    check("DOES NOT FIT" in out, out)
    found, steps = [], []
    for text, step, memory in FITS.findall(err):
        change = [x for x in shlex.split(text) if x != "--set"]
        step_s, need = figures(path, "-m", str(limit), *overrides(sets), *overrides(change))
        check(need <= limit, f"{change} needs {need} bytes of {limit}")
        if step:
            equal((step, memory), (seconds(step_s), scaled(need, UNITS)), f"figures of {change}")
            steps.append(step_s)
        found.append(change)
    equal(steps, sorted(steps), f"the cheapest step first: {err}")
    equal(len(found), len(re.findall("what fits: --set", err)), err)
    all_tried = "not tried to the end" not in err
    check(all_tried or IS_INSTRUMENTED, err)
    return found, all_tried


def parts_of(change):
    found = [int(x.split("=")[1]) for x in change if x.startswith("schedule.microbatches=")]
    return found[0] if found else 1


def is_parts(change):
    return parts_of(change) > 1 and len(change) == 1


def needs(path, *sets):
    return figures(path, *overrides(sets))[1]


def check_fewest(path, limit, changes, *sets):
    """Exactly one change is micro-batches alone, and the next smaller divisor of 16 rows is too few."""
    named = [c for c in changes if is_parts(c)]
    equal(len(named), 1, f"micro-batches among {changes}")
    fewer = parts_of(named[0]) // 2
    if fewer > 1:
        tessera("plan", path, "-m", str(limit), *overrides([*sets, f"schedule.microbatches={fewer}"]), code=1, timeout=110)


TRANSFORMER = """\
mesh: {dp: 2}
strategy: data
model: {name: transformer, args: {layers: 3, heads: 2, dropout: 0}}
data: {dataset: synthetic, shape: [1, 16, 32], classes: 8, samples: 256, batch_size: 32}
optimizer: {name: adamw}
"""
GPT = """\
mesh: {dp: 4}
strategy: {dp: zero1}
model: {name: gpt, args: {vocab: 256, layers: 4, heads: 2, width: 64, dropout: 0}}
data: {dataset: synthetic, shape: [17], classes: 256, samples: 256, batch_size: 64}
optimizer: {name: adamw}
"""
MLP = """\
placements: {all: {device: cpu, ranks: [0, 1, 2, 3]}}
model: {name: mlp, args: {inputs: 64, hidden: 256, layers: 6}}
parameters: [{match: "*", sbp: B}]
data: {dataset: synthetic, shape: [64], classes: 8, samples: 8192, batch_size: 256}
optimizer: {name: sgd, lr: 0.1}
"""
MOBILENET = """\
mesh: {dp: 2}
model: {name: mobilenet_v2, args: {width: 0.25, bn: %s}}
data: {dataset: synthetic, shape: [3, 32, 32], classes: 10, samples: 256, batch_size: 128}
strategy: data
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
"""


def test_alone():
    """Micro-batches and recomputation where each is enough, the fewest micro-batches that are."""
    path = write(TRANSFORMER)
    again = 'recompute=[{match: "blocks.*"}]'
    limit = max(needs(path, again), needs(path, "schedule.microbatches=4")) + 64
    changes, all_tried = advised(path, limit)
    if all_tried:
        check([again] in changes, f"recomputation among {changes}")
        check_fewest(path, limit, changes)


def test_both():
    """Neither recomputation nor any number of micro-batches is enough alone."""
    path = write(TRANSFORMER.replace("[1, 16, 32]", "[1, 64, 32]").replace("batch_size: 32", "batch_size: 8"))
    again = 'recompute=[{match: "blocks.*"}]'
    alone = min(needs(path, again), needs(path, "schedule.microbatches=4"))
    both = needs(path, again, "schedule.microbatches=4")
    check(both < alone, f"{both} bytes with both, {alone} with one")
    changes, all_tried = advised(path, (3 * both + alone) // 4)
    if all_tried:
        check(any(c[0] == again and parts_of(c) > 1 and len(c) == 2 for c in changes), f"both among {changes}")
        check(not any(is_parts(c) or c == [again] for c in changes), f"one alone does not fit: {changes}")


def test_stages():
    """Stages of a GPT and of an MLP, whose states no rank has whole."""
    for text, name in ((GPT, "gpt"), (MLP, "mlp")):
        path = write(text)
        mesh = "mesh={pp: 2, dp: 2}" if name == "gpt" else "placements.all={device: cpu, mesh: {pp: 2, dp: 2}}"
        staged = [mesh, STAGES, "schedule.microbatches=8"]
        need = needs(path, *staged)
        check(need < needs(path), f"{name}: stages need {need} bytes")
        changes, all_tried = advised(path, need + 64)
        named = [c for c in changes if STAGES in c]
        check(len(named) == 1 or not all_tried, f"stages of {name} among {changes}")
        check(all(c[0] == mesh and parts_of(c) in (4, 8) for c in named), f"{name}: {named}")


def test_norms():
    """Statistics of the whole batch refuse micro-batches; local ones allow as many as they have parts."""
    path = write(MOBILENET % "global")
    limit = needs(path) * 3 // 4
    changes, _ = advised(path, limit)
    check(not any(parts_of(c) > 1 for c in changes), f"micro-batches beside statistics of the batch: {changes}")
    path = write(MOBILENET % "local, bn_parts: 8")
    limit = needs(path, "schedule.microbatches=4") + 64
    check(limit < needs(path), "micro-batches are leaner")
    changes, all_tried = advised(path, limit)
    check(not all_tried or any(is_parts(c) and parts_of(c) <= 4 for c in changes), f"micro-batches among {changes}")


test_alone()
test_both()
test_stages()
test_norms()
done()
