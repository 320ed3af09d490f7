#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One step time, memory and pace on the first screen, --long, --why, in a comparison, a sweep, the page and the JSON.
usage: six.py TESSERA"""
import csv
import os
import re
import tempfile

from browser import CHROMIUM, open_page
from harness import check, done, equal, near, scaled, seconds, tessera, tessera_json

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/experiments")
FOLDER = tempfile.TemporaryDirectory()
CASES = (("tensor_parallel", "0.weight", ()), ("dp4", "classifier.1.weight", ()), ("attention", "head.weight", ()),
         ("text_gpt", "wte.weight", ()), ("gpt_dp_tp", "wpe.weight", ("--set", "model.args.layers=2")))


def size(b):
    return scaled(b, ["B", "KB", "MB", "GB", "TB"])


def count(n):
    return scaled(n, ["", "K", "M", "B"]).strip()


def page(file, args):
    """The first figures of the page: by their path the text and the value."""
    path = os.path.join(FOLDER.name, "page.html")
    tessera("plan", file, *args, "--html", path, "--long")
    document, _ = open_page(path)
    cards = " ".join(x.text() for x in document.of_class("card"))
    return {f["data-figure"]: (f.text(), f["data-value"]) for f in document.having("data-figure")}, cards


def check_case(name, tensor, args):
    file = os.path.join(EXAMPLES, name + ".yaml")
    plan = tessera_json("plan", file, *args)
    step, memory = plan["step"], plan["memory"][0]["total"]
    time, need = seconds(step["cost_s"]), size(memory)
    mfu = f"{100 * step['mfu']:.1f} %" if "mfu" in step else None
    pace = step.get("tokens_per_s", step["samples_per_s"])
    screen = tessera("plan", file, *args)[0]
    check(f"\nstep     {time} (estimate)   {count(pace)} " in screen and f"{need} " in screen.splitlines()[0], f"{name}: {screen}")
    check((f"MFU {mfu}\n" in screen) if mfu else "MFU" not in screen, f"{name}: {screen}")
    bound = re.search(r"\ntime     bound by (.+?) \d+ %", screen)[1]
    long = tessera("plan", file, *args, "--long")[0]
    check(f"\nstep       {time}: " in long and f"\nmemory     {need} on " in long and f"{count(pace)} " in long and
          f"; bound by {bound}" in long and (not mfu or f"MFU {mfu}" in long), f"{name}: {long}")
    full = tessera("plan", file, *args, "--full")[0]
    check(f"\n  {time}: compute " in full and f"; bound by {bound}\n" in re.sub(r"\n {6}", " ", full), f"{name}: {full[-2000:]}")
    why = re.sub(r"\n {2,}", " ", tessera("plan", file, *args, "--why", tensor)[0])
    check(f"step takes {time} (estimate), bound by {bound}, with {need} on the neediest rank" in why, f"{name}: {why}")
    check(re.search(rf"{re.escape(time)} +as it is", why), f"{name}: {why}")
    both = tessera("plan", file, file, *args)[0]
    for words in (rf"in all +{time} +{time}\n", rf"in all +{need} +{need}\n",
                  *([rf"MFU +{mfu} +{mfu}\n"] if mfu else []),
                  *([rf"tokens a second +{count(pace)} +{count(pace)}\n"] if "tokens_per_s" in step else [])):
        check(re.search(words, both), f"{name}: {words}: {both}")
    table = os.path.join(FOLDER.name, "sweep.csv")
    out, _ = tessera("plan", file, *args, "--sweep", "train.seed=1", "--csv", table)
    with open(table, newline="", encoding="utf-8") as f:
        row = next(csv.DictReader(f))
    near(float(row["step_s"]), step["cost_s"], f"{name}: sweep", rel=1e-8)
    equal(int(row["memory_bytes"]), memory, f"{name}: sweep")
    for key in ("samples_per_s", "tokens_per_s", "mfu"):
        near(float(row[key] or 0), step.get(key, 0), f"{name}: {key} of the sweep", rel=1e-8)
    check(re.search(rf" {time} .* {need} ", out.splitlines()[1] + " "), f"{name}: {out}")
    if not CHROMIUM:
        return
    figures, cards = page(file, args)
    equal(figures["step.cost_s"][0], time, f"{name}: page")
    near(float(figures["step.cost_s"][1]), step["cost_s"], f"{name}: page")
    equal(figures["memory.0.total"][0], need, f"{name}: page")
    equal(figures["step.bound_by"][0], bound, f"{name}: page")
    check(f"{count(pace)} " in cards and (not mfu or f"MFU {mfu}" in cards), f"{name}: {cards}")
    check(cards.index(time) < cards.index("if communication overlaps"), f"{name}: the step comes first: {cards}")


for case in CASES:
    check_case(*case)
done()
