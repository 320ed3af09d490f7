#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""stages: losses, evaluations and weights are those of one rank, whatever else the mesh has, and in
micro-batches; runs that go on in other stages; what is refused. usage: stages.py TESSERA"""
import itertools
import json
import os
import tempfile

from harness import check, done, equal, tessera, tessera_json, weights

FOLDER = tempfile.TemporaryDirectory()
MLP = """
tessera: 1
mesh: {mesh}
dtype: f64
model: {{name: mlp, args: {{hidden: 24, layers: 4}}}}
data: {{dataset: synthetic, shape: [12], classes: 6, samples: 64, test_samples: 20, batch_size: 16}}
optimizer: {{name: adam, lr: 0.01, clip_norm: 0.5}}
train: {{steps: {steps}, eval: {{every: 2}}, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
schedule: {{microbatches: {parts}}}
"""
GPT = """
tessera: 1
mesh: {mesh}
dtype: f64
model: {{name: gpt, args: {{vocab: 256, width: 16, layers: 4, heads: 4, dropout: 0.1}}}}
data: {{dataset: synthetic, shape: [12], classes: 6, samples: 64, batch_size: 16}}
optimizer: {{name: adamw, lr: 0.01}}
train: {{steps: {steps}, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
schedule: {{microbatches: {parts}}}
"""
MOBILENET = """
tessera: 1
mesh: {mesh}
dtype: f64
model: {{name: mobilenet_v2, args: {{width: 0.1, variant: cifar, bn: local, bn_parts: 16}}}}
data: {{dataset: synthetic, shape: [3, 8, 8], classes: 6, samples: 64, test_samples: 20, batch_size: 16}}
optimizer: {{name: sgd, lr: 0.01}}
train: {{steps: {steps}, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
schedule: {{microbatches: {parts}}}
"""
LAYERS = """
tessera: 1
mesh: {mesh}
dtype: f64
model: {{layers: [{{layer: linear, in: 12, out: 10}}, {{layer: relu}}, {{layer: batch_norm, channels: 10}},
  {{layer: linear, in: 10, out: 6}}]}}
data: {{dataset: synthetic, shape: [12], classes: 6, samples: 64, batch_size: 16}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
train: {{steps: {steps}, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
schedule: {{microbatches: {parts}}}
"""
MLP2 = [("[02].*", 0), ("[46].*", 1)]
CONVS = """
tessera: 1
mesh: {mesh}
model: {{layers: [{{layer: conv2d, in: 3, out: 32, kernel: 3, padding: 1}}, relu, {{layer: conv2d, in: 32, out: 32, kernel: 3,
  padding: 1}}, relu, {{layer: conv2d, in: 32, out: 32, kernel: 3, padding: 1}}, relu, {{layer: conv2d, in: 32, out: 8, kernel: 3,
  stride: 4, padding: 1}}, relu, flatten, {{layer: linear, in: 512, out: 1200}}, relu, {{layer: linear, in: 1200, out: 512}}]}}
data: {{dataset: synthetic, shape: [3, 32, 32], classes: 6, samples: 64, batch_size: 16}}
optimizer: {{name: adam, lr: 0.01}}
train: {{steps: {steps}, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
schedule: {{microbatches: {parts}}}
"""
AUTO = "split: auto"
GPT2 = [("*", 1), ("w?e.*", 0), ("h.0-1.*", 0)]
GPT4 = [("w?e.*", 0), ("h.0.*", 0), ("h.1-1.*", 1), ("h.2.*", 2), ("h.3-11.*", 3), ("ln_f.*", 3)]
MOBILENET2 = [("features.0-8.*", 0), ("features.9-18.*", 1), ("classifier.*", 1)]
counter = iter(range(1000))


def stages(rules, axis="pp"):
    """rules: pairs of a pattern and a stage, or the rest of the section as it is."""
    return f"stages: {{{{axis: {axis}, {rules}}}}}\n" if isinstance(rules, str) else f"stages: {{{{axis: {axis}, rules: [" + ", ".join(
        f"{{{{match: \"{m}\", stage: {s}}}}}" for m, s in rules) + "]}}\n"


def write(text, name=None, parts=1, steps=4, mesh="{dp: 1}"):
    name = name or f"run{next(counter)}"
    path = os.path.join(FOLDER.name, name + ".yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.format(out=os.path.join(FOLDER.name, name), parts=parts, steps=steps, mesh=mesh))
    return path


def numbers(path):
    return weights(path[:-len(".yaml")])


def metrics(path, event, key):
    with open(path[:-len(".yaml")] + ".json", encoding="utf-8") as f:
        return [row[key] for row in map(json.loads, f) if row["event"] == event]


def run(path, ranks, *sets):
    """What is sent is what is planned."""
    result = tessera_json("run", "-n", ranks, path, *(x for s in sets for x in ("--set", s)))
    for c in result.get("collectives", []):
        equal((c["bytes"], c["calls"]), (c["planned_bytes"], c["planned_calls"]), f"{path}: {c['kind']}")
    return result


def all_near(found, expected, what, rel):
    equal(len(found), len(expected), f"{what}: their number")
    most = max([abs(v) for v in expected], default=0)
    for a, b in zip(found, expected):
        check(abs(a - b) <= rel * most, f"{what}: found {a!r}, expected {b!r}")


def compare(path, whole, what):
    check(len(metrics(whole, "step", "loss")) >= 4, f"{what}: steps")
    all_near(metrics(path, "step", "loss"), metrics(whole, "step", "loss"), f"{what}: losses", 3e-9)
    all_near(metrics(path, "eval", "loss"), metrics(whole, "eval", "loss"), f"{what}: losses of evaluations", 3e-9)
    all_near(metrics(path, "eval", "accuracy"), metrics(whole, "eval", "accuracy"), f"{what}: accuracies", 1e-9)
    all_near(numbers(path), numbers(whole), f"{what}: weights", 1e-10)


def same(text, what, *layouts, parts=(1, 2)):
    """Each layout: rules, mesh, ranks, strategy."""
    whole = write(text)
    run(whole, 1)
    for rules, mesh, ranks, strategy in layouts:
        for k in parts:
            path = write(text + f"strategy: {strategy}\n" + stages(rules), parts=k, mesh=mesh)
            run(path, ranks)
            compare(path, whole, f"{what} on {mesh}, {strategy}, {k} parts")


def test_values():
    same(MLP, "mlp", (MLP2, "{pp: 2}", 2, "data"), (MLP2, "{pp: 2, dp: 2}", 4, "zero1"),
         (MLP2, "{dp: 2, pp: 2}", 4, "zero3"), (MLP2, "{pp: 2, tp: 2}", 4, "megatron"),
         (MLP2, "{tp: 2, pp: 2}", 4, "megatron"), (MLP2, "{pp: 2, dp: 2}", 4, "auto"))
    same(GPT, "gpt", (GPT4, "{pp: 4, dp: 2}", 8, "data"), (GPT2, "{pp: 2, dp: 2, tp: 2}", 8, "megatron"),
         (GPT2, "{pp: 2, dp: 2}", 4, "[data, zero2]"), (GPT2, "{dp: 2, pp: 2, tp: 2}", 8, "{{dp: zero3, tp: sequence}}"))
    same(MOBILENET, "mobilenet_v2", (MOBILENET2, "{pp: 2}", 2, "data"), (MOBILENET2, "{pp: 2, dp: 2}", 4, "data"))
    same(LAYERS, "layers", ([("0.*", 0), ("[23].*", 1)], "{pp: 2, dp: 2}", 4, "data"), parts=(1,))
    same(MLP, "mlp", (AUTO, "{pp: 2, dp: 2}", 4, "zero1"), (AUTO + ", virtual: 2", "{pp: 2}", 2, "data"))
    same(GPT, "gpt", (AUTO, "{pp: 4, dp: 2}", 8, "data"), (AUTO, "{pp: 2, tp: 2}", 4, "megatron"))
    same(MOBILENET, "mobilenet_v2", (AUTO, "{pp: 4}", 4, "data"))
    same(LAYERS, "layers", (AUTO, "{pp: 2, dp: 2}", 4, "data"), parts=(1,))


def test_rules():
    """Signatures of parameters and states are said of the whole mesh, or of a stage."""
    whole = write(GPT)
    run(whole, 1)
    for sbp, state in (("{{tp: S(0)}}", "{{dp: S(0)}}"), ('"(B,B,S(0))"', '"(B,S(0),B)"'), ('"(B,S(0))"', '"(S(0),B)"'),
                       ("{{pp: B, tp: S(0)}}", "{{pp: B, dp: S(0)}}")):
        rule = f"parameters: [{{{{match: wte.weight, sbp: {sbp}, state: {state}}}}}]\n"
        path = write(GPT + stages(GPT2) + rule, mesh="{pp: 2, dp: 2, tp: 2}")
        run(path, 8)
        compare(path, whole, f"rules {sbp}")
        equal(signature(tessera_json("plan", path), "wte.weight"), "(B,S(0))", f"{sbp}: the table of tokens")


def signature(plan, variable):
    made = [v["sbp"] for v in plan["values"] if v.get("memory") == "parameters" and v["name"] == variable]
    equal(len(made), 1, f"homes of {variable}")
    return made[0]


def test_tied():
    """The table of tokens, which the last stage reads too, is sent there once a step; its gradient comes back once."""
    for rules, mesh in ((GPT2, "{pp: 2}"), (GPT4, "{pp: 4}")):
        for parts in (1, 4):
            plan = tessera_json("plan", write(GPT + stages(rules), mesh=mesh, parts=parts))
            table = 256 * 16 * 8
            sent = [b for b in plan["boxing"] if b["communicates"] and b["bytes"] == table]
            equal([(b["collective"], b["phase"], b.get("times", 1)) for b in sent],
                  [("send_recv", "forward", 1), ("send_recv", "backward", 1)], f"{mesh}, {parts} parts: the table's moves")


def longest(path, *options):
    """The seconds of the busiest stage for a micro-batch, and the stages' parameters."""
    plan = tessera_json("plan", path, *options)
    busy = {}
    for task in plan["pipeline"]["tasks"]:
        busy[task["stage"]] = busy.get(task["stage"], 0) + task["end_s"] - task["start_s"]
    return max(busy.values()) / plan["microbatches"], plan["pipeline"]["parameters"], plan["memory"][0]["total"]


def test_split():
    """No other cut between modules has a shorter longest stage. A stage that has the memory limit's room gets more."""
    block = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]
    units = ["wte", "wpe"] + [f"h.0.{name}" for name in block] + ["ln_f"]
    for text, names, mesh in ((GPT.replace("layers: 4", "layers: 1"), units, "{pp: 2, dp: 2}"),
                              (GPT.replace("layers: 4", "layers: 1"), units, "{pp: 3}"),
                              (MLP, [str(2 * i) for i in range(4)], "{pp: 2}"),
                              (CONVS, [str(2 * i) for i in range(4)] + ["9", "11"], "{pp: 3}")):
        of_mesh = int(mesh[5])
        found, where, _ = longest(write(text + stages(AUTO), mesh=mesh, parts=4))
        best = None
        for cuts in itertools.combinations(range(1, len(names)), of_mesh - 1):
            stage = [sum(i >= cut for cut in cuts) for i in range(len(names))]
            other = longest(write(text + stages([(f"{name}.*", s) for name, s in zip(names, stage)]), name="other", mesh=mesh,
                                  parts=4))
            best = min(best or other, other, key=lambda one: one[0])
        check(found <= best[0] * 1.001, f"{mesh}: {found} s with {where}, {best[0]} s with {best[1]}")
        equal(len(where), of_mesh, f"{mesh}: stages")
    # The convolutions take long, and the linear layers need memory.
    free = write(CONVS + stages(AUTO), mesh="{pp: 2}", parts=2)
    alone = write(CONVS + stages([("[0246].*", 0), ("9.*", 0), ("11.*", 1)]), mesh="{pp: 2}", parts=2)
    (time, where, need), (time_alone, where_alone, need_alone) = longest(free), longest(alone)
    check(time < time_alone and need > need_alone * 1.2, f"{where}: {time} s, {need} bytes; {where_alone}: {time_alone}, {need_alone}")
    within = longest(free, "--memory-limit", str(int(need_alone * 1.1)))
    equal(within[1], where_alone, "the cut within a limit")
    check(within[2] <= need_alone * 1.1, "its memory")
    # Where no cut fits, the refusal is about the leanest.
    err = tessera("plan", free, "--memory-limit", str(int(need_alone * 0.5)), code=1)[1]
    check(f"the need {need_alone} bytes" in err, err)


def test_print():
    """A file that is printed is the same experiment."""
    path = write(GPT + "strategy: data\n" + stages(GPT4), mesh="{pp: 4, dp: 2}")
    once = tessera("schema", path)[0]
    check("axis: pp" in once and '{match: "h.3-11.*", stage: 3}' in once, once)
    again = write(once.replace("{", "{{").replace("}", "}}"))
    equal(tessera("schema", again)[0], once, "an experiment that was printed")
    check("pipeline of 4 stages" in tessera("plan", path)[0], "the plan's line on the layout")


def test_resume():
    """A checkpoint of four stages goes on in two, then in one, and back."""
    whole = write(GPT, steps=8)
    run(whole, 1)
    path = write(GPT + stages(GPT4), name="moves", steps=2, mesh="{pp: 4, dp: 2}")
    run(path, 8)
    for steps, text, mesh, ranks in ((4, GPT + stages(GPT2), "{pp: 2, dp: 2}", 4), (6, GPT, "{dp: 1}", 1),
                                     (8, GPT + stages(GPT4), "{pp: 4}", 4)):
        write(text, name="moves", steps=steps, mesh=mesh)
        run(path, ranks)
    all_near(metrics(path, "step", "loss")[-2:], metrics(whole, "step", "loss")[-2:], "four, two, one and four stages", 3e-9)
    all_near(numbers(path), numbers(whole), "their weights", 1e-10)


def test_refused():
    def refused(words, rules, text=GPT, mesh="{pp: 2, dp: 2}", axis="pp", more="", commands=("plan", "run")):
        path = write(text + (stages(rules, axis) if rules is not None else "") + more, mesh=mesh)
        for command in commands:
            err = tessera(command, path, code=1)[1]
            check(words in err and f"{os.path.basename(path)}:" in err, f"{command}: no '{words}' in {err}")

    refused("stages.axis: placement mesh has no axis 'pq'; legal are pp, dp; did you mean 'pp'?", GPT2, axis="pq")
    refused("stages.rules[3].stage: found 2; axis 'pp' has 2 indices: legal are 0 to 1", GPT2 + [("h.3.*", 2)])
    refused("stages.rules: no rule has stage 1; axis 'pp' has 4 indices, and each of them is a stage",
            [("*", 0), ("h.2.*", 2), ("h.3.*", 3)], mesh="{pp: 4}")
    refused("stages.rules[3].match: no variable's name fits 'h.4-9.*'; there are, for example, h.0", GPT2 + [("h.4-9.*", 1)])
    refused("stages.rules: no rule fits parameter 'wpe.weight': it is in no stage", [("wte.*", 0), ("h.*", 1), ("ln_f.*", 1)])
    refused("puts 'ln_f.bias' into stage 1, and another rule puts other variables of the same module into stage 0",
            [("*", 0), ("ln_f.bias", 1)])
    refused("stages.split: it is instead of 'rules'", "split: auto, rules: [{{match: \"*\", stage: 0}}]")
    refused("stages.split: the forward pass has 4 modules with parameters, and a module is in one stage: there can't be 6 stages",
            AUTO + ", virtual: 3", text=MLP)
    refused("stages: 'rules' is missing", None, more="stages: {{axis: pp}}\n")
    refused("found '-1'; legal is a whole number from 0", [("*", -1)])
    refused("strategy: zero1 for axis 'pp', which has the stages; legal is data there", GPT2, more="strategy: [zero1, data]\n")
    refused("axis 'pp' has the stages, and this tensor is in one of them; legal is B there", GPT2,
            more="parameters: [{{match: \"wte.weight\", sbp: {{pp: S(0)}}}}]\n")
    refused("stages: not beside 'graph'", [("*", 0)], text="""
tessera: 1
mesh: {mesh}
graph: {{x: {{op: constant, fill: 1, shape: [2, 2]}}}}
""", mesh="{pp: 1}")
    refused("placement d has no mesh, whose axis it could be", [("*", 0)],
            text=GPT.replace("mesh: {mesh}", "placements: {{d: {{ranks: [0]}}}}"))


test_values()
test_rules()
test_tied()
test_split()
test_print()
test_resume()
test_refused()
done()
