#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser: no error in the console, nothing asked of a network, and every figure
is the JSON's, in the text that stands there. usage: page.py TESSERA"""
import json
import os
import re
import sys
import tempfile
from collections import defaultdict

from browser import CHROMIUM, open_page
from harness import check, done, equal, near, tessera

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/experiments")
FOLDER = tempfile.TemporaryDirectory()
SCALES = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
          "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


def path_of(name):
    return os.path.join(FOLDER.name, name)


def check_text(text, value, what):
    """A number with a unit, of three digits; or the word or number itself."""
    m = re.fullmatch(r"(-?[\d.]+) ([KMGTP]?B|[num]?s)", text)
    if not m:
        equal(text, str(value), what)
        return
    number = float(m[1]) * SCALES[m[2]]
    check(abs(number - value) <= 0.00501 * abs(value) + 0.5 * (m[2] == "B"), f"{what}: {text} for {value}")
    check(len(re.sub(r"\D", "", m[1])) <= 4, f"{what}: too many digits: {text}")


def axis_of(p, box):
    if not box["dims"]:
        return "between placements"
    place = p["placements"][p["values"][box["in"][0]]["placement"]]
    names = [place["axes"][d] if "axes" in place else f"dim {d}" for d in box["dims"]]
    return " + ".join(names) + " (" + " × ".join(str(place["hierarchy"][d]) for d in box["dims"]) + ")"


def expected(p, path):
    """What a figure's path names, found in the JSON by other means than the page's."""
    rows = {x["id"]: x for x in p["ops"] + p["boxing"]}
    head, _, rest = path.partition(".")
    if head == "rows":
        row, key = rest.split(".")
        return rows[int(row)][key]
    if head == "alive":
        peak = p["memory"][0]["peak"]
        return sum(v["bytes"][0] for v in p["values"] if "alive" in v and v["alive"][0] >= 0 and v["alive"][0] <= peak <= v["alive"][1])
    if head == "spent":  # a link's bytes and hand-shakes are one
        return sum(s for name, s in p["step"]["spent_s"].items() if name == rest or name.startswith(rest + " "))
    if head == "traffic":
        purpose, _, axis = rest.partition(".")
        return sum(b["bytes"] for b in p["boxing"] if b["communicates"] and b["purpose"] == purpose and
                   (not axis or axis_of(p, b) == axis))
    at = p
    words = path.split(".")
    for i, word in enumerate(words):
        if isinstance(at, list):
            at = at[int(word)]
        elif ".".join(words[i:]) in at:
            return at[".".join(words[i:])]
        else:
            at = at[word]
    return at


def spoken(p, want):
    """A use of time, with its link by what that is."""
    m = re.match(r"link (\d+)( .*)", want) if isinstance(want, str) else None
    return p["model"]["links"][int(m[1]) - 1].get("name", "link " + m[1]) + m[2] if m else want


def bound_by(p):
    """The longest bar: of a link its name, and hand-shakes where these are more than its bytes."""
    return re.sub(" bytes$", "", spoken(p, p["step"]["bound_by"]))


def check_figures(p, document, what):
    figures = document.having("data-figure")
    check(len(figures) > 20, f"{what}: {len(figures)} figures")
    for f in figures:
        path, value = f["data-figure"], f["data-value"]
        want = expected(p, path)
        found = value if isinstance(want, str) else float(value)
        equal(found, want, f"{what}: {path}")
        check_text(f.text(), bound_by(p) if path == "step.bound_by" else spoken(p, want), f"{what}: {path}")
    return {f["data-figure"] for f in figures}


def check_page(document, console, file, what):
    equal(console, [], f"{what}: console")
    body = document.named("body")[0]
    check(body["data-ready"] is not None, f"{what}: the page was not shown: {document.text()[-300:]}")
    check(not any(e["src"] or (e["href"] or "#")[0] != "#" for e in document.all()), f"{what}: refers elsewhere")
    for e in document.named("button"):
        check(e.text().strip() or e["aria-label"], f"{what}: a button without a name")
    for e in document.named("input") + document.named("select"):
        check(e["aria-label"] or e.parent.name == "label", f"{what}: a field without a name")
    ids = [e["id"] for e in document.having("id")]
    equal(len(ids), len(set(ids)), f"{what}: ids that are there twice")
    for e in document.having("aria-labelledby"):
        check(e["aria-labelledby"] in ids, f"{what}: {e['aria-labelledby']} labels and is not there")
    check(os.path.getsize(file) < 2e6, f"{what}: {os.path.getsize(file)} bytes")
    with open(file, encoding="utf-8") as f:
        equal(set(re.findall(r"\w+://[\w./]*", f.read())), {"http://www.w3.org/2000/svg"}, f"{what}: what it names of a network")


def check_edges(p, document, what):
    """All bytes that are sent are in an edge of the program, once."""
    edges = document.of_class("edge")
    talks = [b for b in p["boxing"] if b["communicates"]]
    equal(sum(int(e["data-calls"]) for e in edges), len(talks), f"{what}: conversions in edges")
    equal(sum(int(e["data-bytes"]) for e in edges), sum(b["bytes"] for b in talks), f"{what}: bytes in edges")


def parts_of(shape, sbp, hierarchy, ranks):
    """{region: ranks that hold it} by the definition: balanced splits, left to right."""
    words = sbp.strip("()").split(",") if sbp.startswith("(") else [sbp]
    held = defaultdict(list)
    for index, rank in enumerate(ranks):
        at, left = [0] * len(hierarchy), index
        for d in reversed(range(len(hierarchy))):
            left, at[d] = divmod(left, hierarchy[d])
        box = [(0, n) for n in shape]
        for word, k, i in zip(words, hierarchy, at):
            if word.startswith("S("):
                axis = int(word[2:-1]) if word.endswith(")") else int(word[2:])
                start, n = box[axis]
                box[axis] = (start + i * (n // k) + min(i, n % k), n // k + (i < n % k))
        if all(n for _, n in box):
            held["[" + ", ".join(f"{a}:{a + n}" for a, n in box) + "]"].append(rank)
    return {k: sorted(v) for k, v in held.items()}


def check_regions(p, document, value, what, at):
    v = p["values"][value]
    place = p["placements"][v["placement"]]
    drawing = document.of_class("regions")[at]
    drawn = {e["data-region"]: sorted(map(int, e["data-ranks"].split(","))) for e in drawing.having("data-region")}
    equal(drawn, parts_of(v["shape"], v["sbp"], place["hierarchy"], place["ranks"]), f"{what}: who holds what")


def check_conversion(p, file, box, what):
    document, console = open_page(file, f"#row-{box['id']}")
    check_page(document, console, file, what)
    check_regions(p, document, box["in"][0], what, 0)
    check_regions(p, document, box["out"][0], what, 1)
    move = p["moves"][box["move"]] if "move" in box else {"ranks": [], "bytes": []}
    drawn = {(int(e["data-reader"]), int(e["data-source"])): int(e["data-bytes"]) for e in document.having("data-reader")}
    equal(drawn, {(a, b): move["bytes"][i][j] for i, a in enumerate(move["ranks"]) for j, b in enumerate(move["ranks"])},
          f"{what}: matrix")
    words = document.of_class("details")[0].text()
    for word in (box["collective"], box["reason"], f"{box['groups']} of {box['group_size']} rank"):
        check(word in words, f"{what}: {word!r} is not in {words[:400]}")


def check_op(p, file, op, what):
    document, console = open_page(file, f"#row-{op['id']}")
    check_page(document, console, file, what)
    words = document.of_class("details")[0].text()
    for a in op["alternatives"]:
        for sbp in a["in"] + a["out"]:
            check(sbp in words, f"{what}: alternative {sbp}")
    check(f"chosen of {op['legal']} legal ones" in words, f"{what}: {words[:300]}")
    check(f"{os.path.basename(op['file'])}:{op['line']}" in words, f"{what}: its place: {words[:300]}")
    check_regions(p, document, op["out"][0], what, 0)


def make(path, name):
    file = path_of(name + ".html")
    out, _ = tessera("plan", path, "--html", file, "--json")
    return file, json.loads(out)


def check_plan(path):
    name = os.path.basename(path)
    file, p = make(path, name)
    document, console = open_page(file)
    check_page(document, console, file, name)
    seen = check_figures(p, document, name)
    for path in ("step.cost_s", "timeline.end_s", "totals.bytes", "memory.0.total", "ranks", "step.bound_by", "alive"):
        check(path in seen, f"{name}: {path} is not on the page")
    check_edges(p, document, name)
    near(float(document.having("data-most")[0]["data-most"]), p["memory"][0]["total"] - p["memory"][0]["scratch"] - p["memory"][0]["other"],
         f"{name}: the top of memory over the step")
    return file, p


if not CHROMIUM:
    print("skipped: chromium is not installed")
    sys.exit(77)
for name in ("matmul", "attention", "dp2", "pipeline2", "grid2x2"):
    file, p = check_plan(os.path.join(FILES, name + ".yaml"))
    if name in ("matmul", "attention"):
        single = [b for b in p["boxing"] if b["communicates"] and len(b["in"]) == 1 and
                  all("/" not in p["values"][v]["sbp"] for v in b["in"] + b["out"]) and p["values"][b["in"][0]]["shape"]]
        check(single, f"{name}: no conversion to look at")
        for box in {b["collective"]: b for b in single}.values():
            check_conversion(p, file, box, f"{name}: {box['collective']} {box['name']}")
        op = next(o for o in p["ops"] if o["alternatives"] and o["why"] == "chosen" and "file" in o and o["out"])
        check_op(p, file, op, f"{name}: {op['op']}")

# With the keyboard alone: what keys do, written down by a script that is added to a copy.
KEYS = """
<script>
function press(node, key) {
  node.focus();
  node.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
}
function go() {
  if (!document.body.dataset.ready) return void setTimeout(go, 5);
  const note = {};
  const modules = () => document.querySelectorAll('.module').length;
  const caret = () => [...document.querySelectorAll('.module')].find(x => x.dataset.module === 'blocks.0.attn').querySelector('.caret');
  note.closed = modules();
  press(caret(), 'ArrowRight');
  note.open = modules();
  note.expanded = caret().getAttribute('aria-expanded');
  note.stays = document.activeElement === caret();
  press(caret(), 'ArrowDown');
  note.next = document.activeElement.closest('.module').dataset.module;
  document.activeElement.click();
  note.details = document.querySelector('.details h3').textContent;
  press(caret(), 'ArrowLeft');
  note.again = modules();
  const [clock, memory] = document.querySelectorAll('.chart');
  const first = () => clock.querySelector('text.cut').textContent;
  const spans = () => clock.querySelectorAll('rect').length;
  note.clock = [first()];
  press(clock, '+');
  press(clock, '+');
  note.clock.push(first());
  press(clock, '0');
  note.clock.push(first());
  note.peak = document.querySelector('#memory p').textContent;
  press(memory, 'ArrowRight');
  note.beside = document.querySelector('#memory p').textContent;
  document.querySelector('input[type=search]').value = 'mlp.fc1';
  document.querySelector('input[type=search]').dispatchEvent(new Event('input'));
  note.rows = [...document.querySelectorAll('#rows tbody th')].map(x => x.textContent);
  document.body.dataset.note = JSON.stringify(note);
}
go();
</script>
</body>"""
file, p = make(os.path.join(FILES, "attention.yaml"), "keys")
with open(file, encoding="utf-8") as f:
    text = f.read()
with open(file, "w", encoding="utf-8") as f:
    f.write(text.replace("</body>", KEYS))
document, console = open_page(file)
equal(console, [], "console")
note = json.loads(document.named("body")[0]["data-note"])
equal((note["open"] - note["closed"], note["expanded"], note["stays"], note["again"]),
      (len([m for m in p["modules"] if m["path"].startswith("blocks.0.attn.")]), "true", True, note["closed"]), f"opening: {note}")
check(note["next"].startswith("blocks.0.attn."), f"the next row: {note['next']}")
check(note["details"].startswith(note["next"]), f"details of it: {note['details']}")
check(note["clock"][0] == "0 s" == note["clock"][2] != note["clock"][1], f"zooming: {note['clock']}")
place = p["memory"][0]["peak"] + 1
check(f"At the peak, place {place} of" in note["peak"] and f"At this moment, place {place + 1} of" in note["beside"], f"moments: {note}")
rows = {x["id"]: x for x in p["ops"] + p["boxing"]}
check(note["rows"] and all("mlp.fc1" in r or any("mlp.fc1" in rows[x].get("reason", "") for x in rows if
                                                 f"{rows[x].get('collective', rows[x].get('op'))} {rows[x]['name']}".strip() == r)
                           for r in note["rows"]), f"rows with a text: {note['rows']}")

# Up to four dimensions, uneven, with empty parts; and a file whose name is markup.
evil = path_of("<img src=x onerror=\"document.body.dataset.bad=1\">&'.yaml")
with open(evil, "w", encoding="utf-8") as f:
    f.write("""\
tessera: 1
placements: {a: {ranks: [[[[0,1],[2,3]],[[4,5],[6,7]]],[[[8,9],[10,11]],[[12,13],[14,15]]]]}}
graph:
  x: {op: normal, placement: a, sbp: "(S(0),S(1),S(2),S(3))", shape: [3,5,1,7]}
  y: {op: to_global, in: x, placement: a, sbp: "(S(1),B,S(3),S(1))"}
fetch: [y]
""")
file, p = check_plan(evil)
document, console = open_page(file)
equal((document.named("body")[0]["data-bad"], document.named("img")), (None, []), "a name became markup")
check(os.path.basename(evil) in document.named("h1")[0].text(), "the name stands there as text")
check_conversion(p, file, next(b for b in p["boxing"] if b["communicates"] and
                               all("/" not in p["values"][v]["sbp"] for v in b["in"] + b["out"])), "four dimensions")

# Conversions by themselves.
for args in (("-s", "8,6,10", "-f", "cpu:[[0,1],[2,3]] (S(0),P)", "-t", "(B,S(1))", "--run"),
             ("-s", "7,5", "-f", "cpu:[0,1,2] S(1)", "-t", "cpu:[2,3] S(0)"),
             ("-s", "9000", "-f", "cpu S(0)", "-t", "B", "-n", "128"), ("-s", "9000", "-f", "cpu S(0)", "-t", "B", "-n", "4096"),
             ("-s", "3,0", "-f", "cpu:[0,1] S(0)", "-t", "B"), ("-s", "", "-f", "cpu:[0,1] P", "-t", "B")):
    file = path_of("box.html")
    r = json.loads(tessera("box", *args, "--html", file, "--json")[0])
    document, console = open_page(file)
    check_page(document, console, file, f"box {args}")
    equal({f["data-figure"] for f in document.having("data-figure")} >=
          {"cost_s", "bound_s", "peak_bytes", "bytes_busiest_rank", "steps.0.cost_s"}, True, "figures of box")
    for f in document.having("data-figure"):
        want = r
        for word in f["data-figure"].split("."):
            want = want[int(word)] if isinstance(want, list) else want[word]
        equal(float(f["data-value"]), want, f["data-figure"])
        check_text(f.text(), want, f["data-figure"])
    for drawing, end in zip(document.of_class("regions"), (r["from"], r["to"])):
        drawn = {e["data-region"]: sorted(map(int, e["data-ranks"].split(","))) for e in drawing.having("data-region")}
        held = defaultdict(list)
        for part in end["parts"]:
            if all(part["shape"]):
                held["[" + ", ".join(f"{o}:{o + n}" for o, n in zip(part["offset"], part["shape"])) + "]"].append(part["rank"])
        if len(held) <= 32:
            equal(drawn, {k: sorted(v) for k, v in held.items()}, f"box {args}")
    move = r["steps"][0].get("move", {"ranks": [], "bytes": []})
    equal([int(e["data-bytes"]) for e in document.having("data-reader")], [b for row in move["bytes"] for b in row], f"box {args}")

# Two plans beside each other.
file = path_of("two.html")
names = [os.path.join(FILES, name + ".yaml") for name in ("dp4", "zero")]
tessera("plan", names[0], "--html", file, "--compare", names[1])
document, console = open_page(file)
check_page(document, console, file, "two plans")
both = [json.loads(tessera("plan", name, "--json")[0]) for name in names]
seen = defaultdict(set)
for f in document.having("data-figure"):
    m = re.fullmatch(r"plans\.(\d)\.(.*)", f["data-figure"])
    if not m:
        continue
    want = expected(both[int(m[1])], m[2])
    equal(float(f["data-value"]), want, f["data-figure"])
    check_text(f.text(), want, f["data-figure"])
    seen[m[2]].add(m[1])
check(all(plans == {"0", "1"} for plans in seen.values()), f"of both plans: {seen}")
check(len(seen) >= 15 and "memory.0.optimizer" in seen and "timeline.end_s" in seen, f"figures: {seen}")


def signatures(p):
    count, found = defaultdict(int), {}
    for o in p["ops"]:
        if o["out"]:
            key = (o["phase"], o["op"], o["name"])
            count[key] += 1
            found[(*key, count[key])] = p["values"][o["out"][0]]["sbp"]
    return found


a, b = map(signatures, both)
equal(document.named("caption") and [c.text() for c in document.named("caption") if "other signatures" in c.text()],
      [f"tensors in other signatures: {sum(a[k] != b[k] for k in a.keys() & b.keys())}"], "tensors that differ")
equal(len(document.of_class("map")), 2, "two programs")
for other, moved in (("zero", 0), ("dp2", None)):
    p = json.loads(tessera("plan", os.path.join(FILES, other + ".yaml"), "--json")[0])
    tessera("plan", names[0], "--html", path_of("moved.html"), "--compare", os.path.join(FILES, other + ".yaml"))
    document, console = open_page(path_of("moved.html"))
    check_page(document, console, path_of("moved.html"), f"dp4 and {other}")
    c = signatures(p)
    heads = [x.text() for x in document.named("caption") if "on other ranks" in x.text()]
    equal(heads, [f"tensors on other ranks: {len(a.keys() & c.keys())}"] if moved is None else [], f"dp4 and {other}: ranks")
document, console = open_page(file)
equal(sum(int(e["data-calls"]) for e in document.of_class("edge")),
      sum(x["communicates"] for p in both for x in p["boxing"]), "edges of both")
_, err = tessera("plan", names[0], "--compare", names[1], code=2)
check("--compare needs --html" in err, err)
_, err = tessera("plan", names[0], "--html", file, "--compare", "/nonexistent.yaml", code=1)
check("/nonexistent.yaml" in err, err)

# Runs: one that trains, one that computes a graph, and one that diverges.
def check_run(file, r, what):
    document, console = open_page(file)
    check_page(document, console, file, what)
    for f in document.having("data-figure"):
        want = r
        for word in f["data-figure"].split("."):
            want = want[int(word)] if isinstance(want, list) else want[word]
        equal(float(f["data-value"]), want, f"{what}: {f['data-figure']}")
        if re.search(r"[Bs]$", f.text()) and not f.text().endswith("rows/s"):
            check_text(f.text(), want, f"{what}: {f['data-figure']}")
    return document


file = path_of("run.html")
r = json.loads(tessera("run", os.path.join(FILES, "tensor_parallel.yaml"), "--html", file, "--json")[0])
document = check_run(file, r, "run")
equal([int(e["data-points"]) for e in document.of_class("curve")], [20, 20, 20, 20], "points of loss, rows/s, time, plan")
near(sum(r["step_seconds"]), r["seconds"], "seconds of steps")
equal(len(r["step_seconds"]), 20, "steps")
# The same with what a run may have more: evaluations, and times by kind.
r["evaluations"] = [{"step": s, "loss": 2 - s / 20, "accuracy": s / 25, "top5": s / 21, "rows": 64, "seconds": 0.1} for s in (5, 10, 20)]
r["step_by_kind"] = [{"kind": "linear", "communicates": False, "planned_s": 2e-4, "measured_s": 3e-4},
                     {"kind": "all_reduce", "communicates": True, "planned_s": 1e-4, "measured_s": 9e-4}]
r["interrupted"] = {"signal": "SIGTERM", "step": 20, "planned_steps": 30}
r["losses"][3] = None
with open(file, encoding="utf-8") as f:
    text = f.read()
plain = '<script type="application/json" id="data">'
check(plain in text, "a small page has its data as they are")
head, rest = text.split(plain)
with open(file, "w", encoding="utf-8") as f:
    f.write(head + plain + json.dumps(r).replace("<", "\\u003c") + rest[rest.index("</script>"):])
document = check_run(file, r, "run with evaluations")
seen = {f["data-figure"] for f in document.having("data-figure")}
check({"evaluations.2.accuracy", "step_by_kind.1.measured_s", "collectives.0.bytes", "per_rank.1.run_s"} <= seen, f"figures: {seen}")
equal(sorted(int(e["data-points"]) for e in document.of_class("curve")), [3, 3, 3, 20, 20, 20, 20], "curves")
check("interrupted by SIGTERM after 20 of 30 steps" in document.text(), "the interruption")
r = json.loads(tessera("run", os.path.join(FILES, "matmul.yaml"), "--html", file, "--json")[0])
check_run(file, r, "run of a graph")
_, err = tessera("run", os.path.join(FILES, "matmul.yaml"), "--html", "/nonexistent/x.html", code=1)
check("tessera run: /nonexistent/x.html: No such file or directory" in err, err)

# Many blocks are one; ranks are many.
with open(path_of("gpt.yaml"), "w", encoding="utf-8") as f:
    f.write("""\
tessera: 1
placements: {all: {ranks: [%s]}}
model: {name: gpt, args: {layers: 96, heads: 8, width: 64}}
data: {dataset: synthetic, shape: [1, 4, 16], classes: 10, batch_size: 64}
tensors: {input: {placement: all, sbp: "(S(0),B)"}, label: {placement: all, sbp: "(S(0),B)"}}
parameters:
  - {match: "*", placement: all, sbp: B}
  - {match: "*.c_attn.*", sbp: "(B,S(0))"}
  - {match: "*.mlp.c_proj.weight", sbp: "(B,S(1))"}
optimizer: {name: adamw}
""" % ",".join(str(list(range(8 * i, 8 * i + 8))) for i in range(16)))
file, p = make(path_of("gpt.yaml"), "gpt")
document, console = open_page(file)
check_page(document, console, file, "gpt")
check_figures(p, document, "gpt")
check_edges(p, document, "gpt")
times = [int(e.text()[1:]) for e in document.of_class("times")]
check(max(times) >= 90, f"blocks that are folded: {times}")
whole = [e for e in document.of_class("module") if e["data-module"] == "h"][0]
rows = [o for o in p["ops"] if p["modules"][o["module"]]["path"].startswith("h.") and o["phase"] == "forward"]
near(float(whole["data-forward"]), sum(o["cost_s"] for o in rows if o["phase"] == "forward"), "time of all blocks", rel=1e-9)
_, err = tessera("plan", path_of("gpt.yaml"), "--set", "model.args.layers=1", "--html", "/nonexistent/x.html", code=1)
check("tessera plan: /nonexistent/x.html: No such file or directory" in err, err)
done()
