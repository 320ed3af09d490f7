#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera run on a folder with a checkpoint of a changed file: each key of the schema outside of models
and graphs (whose keys test_config_resume changes) is changed once, and is seen at work, or refused or kept
by its name. The numbers of SGD and Adam are held against their formulas. usage: resume.py TESSERA"""
import base64
import json
import math
import os
import random
import shutil
import struct
import tempfile
import zlib

from harness import TESSERA, check, done, equal, tessera

FOLDER = tempfile.TemporaryDirectory()
ROWS, FEATURES, CLASSES, BATCH, FIRST, LAST = 48, 6, 3, 12, 5, 9
BASE = f"""\
tessera: 1
placements: {{all: {{device: cpu, ranks: [0, 1]}}}}
model: {{name: mlp, args: {{layers: 1}}}}
data: {{dataset: npy, x: x.npy, y: y.npy, classes: {CLASSES}, batch_size: {BATCH}, shuffle: false}}
train: {{steps: {FIRST}, checkpoint: {{dir: run}}}}
"""
runs = 0


def path(name):
    return os.path.join(FOLDER.name, name)


# --- files ----------------------------------------------------------------------------------------
def write_npy(name, descr, shape, form, values):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path(name), "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
                + struct.pack(f"<{len(values)}{form}", *values))


def write_idx(name, shape, values):
    with open(path(name), "wb") as f:
        f.write(struct.pack(f">I{len(shape)}I", 0x800 + len(shape), *shape) + bytes(values))


def write_weights(name, tensors):
    header, data = {}, b""
    for key, (shape, values) in tensors.items():
        more = struct.pack(f"<{len(values)}d", *values)
        header[key] = {"dtype": "F64", "shape": shape, "data_offsets": [len(data), len(data) + len(more)]}
        data += more
    text = json.dumps(header).encode()
    with open(path(name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read_weights(name):
    with open(path(name), "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    form = {"F32": ("f", 4), "F64": ("d", 8)}
    found = {}
    for key, v in header.items():
        if key != "__metadata__":
            c, size = form[v["dtype"]]
            begin, end = v["data_offsets"]
            found[key] = struct.unpack(f"<{(end - begin) // size}{c}", data[begin:end])
    return found


def make_files():
    rng = random.Random(4)
    x = [rng.gauss(0, 1) for _ in range(ROWS * FEATURES)]
    y = [rng.randrange(CLASSES) for _ in range(ROWS)]
    for name in ("", "moved-"):
        write_npy(name + "x.npy", "<f8", (ROWS, FEATURES), "d", x)
        write_npy(name + "y.npy", "<i8", (ROWS,), "q", y)
        write_npy(name + "tokens.npy", "<i8", (600,), "q", [i * i % 7 for i in range(600)])
        with open(path(name + "text"), "w", encoding="utf-8") as f:
            f.write("the quick brown fox jumps over the lazy dog " * 20)
        os.mkdir(path(name + "mnist"))
        for part in ("train", "t10k"):
            write_idx(f"{name}mnist/{part}-images-idx3-ubyte", (24, 28, 28),
                      [rng.randrange(256) if not name else 0 for _ in range(24 * 784)])
            write_idx(f"{name}mnist/{part}-labels-idx1-ubyte", (24,), [i % 10 for i in range(24)])
    weights = {"0.weight": ([CLASSES, FEATURES], [rng.gauss(0, 0.5) for _ in range(CLASSES * FEATURES)]),
               "0.bias": ([CLASSES], [rng.gauss(0, 0.5) for _ in range(CLASSES)])}
    write_weights("init.safetensors", weights)
    write_weights("init2.safetensors", {k: (s, [2 * u for u in v]) for k, (s, v) in weights.items()})
    with open(path("r.yaml"), "w", encoding="utf-8") as f:
        f.write(BASE)
    return x, y, {k: v for k, (_, v) in weights.items()}


# --- runs -----------------------------------------------------------------------------------------
def run(folder, sets, code=0, ranks=0):
    """What the run prints, and the weights that it leaves."""
    global runs
    runs += 1
    words = [w for s in sets for w in ("--set", s)] + (["-n", ranks] if ranks else [])
    out, err = tessera("run", path("r.yaml"), "--set", "train.checkpoint.dir=" + path(folder), *words,
                       code=code, env={"TESSERA_DATA": path("mnist")})
    return out, err, read_weights(folder + "/weights.safetensors") if code == 0 else None


bases = {}


def base_of(sets):
    """The folder of a run of FIRST steps, and the weights of one that goes on unchanged."""
    key = tuple(sets)
    if key not in bases:
        folder = f"base{len(bases)}"
        run(folder, sets)
        shutil.copytree(path(folder), path(folder + "+"))
        steps = [] if any("epochs" in s for s in sets) else [f"train.steps={LAST}"]
        bases[key] = folder, run(folder + "+", [*sets, *steps])[2], steps
    return bases[key]


def distance(a, b):
    return max(abs(u - v) / max(1, abs(u)) for k in a for u, v in zip(a[k], b[k]))


# --- each key -------------------------------------------------------------------------------------
def sgd(more=""):
    return f"optimizer={{name: sgd, lr: 0.05, momentum: 0.5{more}}}"


def optimizer(name, key, now, more=""):
    """A number of an optimizer."""
    return (f"optimizer.{name}:{key}", [f"optimizer={{name: {name}, lr: 0.01{more}}}"], [f"optimizer.{key}={now}"])


def schedule(name, key, now, more="", also=()):
    """One of a schedule, which has some others."""
    base = f"optimizer={{name: sgd, lr: 0.05, momentum: 0.5, schedule: {{name: {name}{more}}}}}"
    return (f"optimizer.schedule.{name}:{key}", [*also, base], [f"optimizer.schedule.{key}={now}"])


EVAL = "train.eval={data: train, every: 1}"
IMAGES = "data={dataset: synthetic, shape: [1, 6, 6], classes: 3, samples: 48, batch_size: 12}"
MNIST = "data={dataset: mnist, dir: " + "%s/mnist, batch_size: 12}"
TEXT = "data={dataset: text, %s, context: 8, batch_size: 4}"
GPT = "model={name: gpt, args: {width: 8, layers: 1, heads: 2, dropout: 0}}"
F16 = "train.amp={dtype: f16, init_scale: 1024, growth_interval: %d, growth_factor: %g, backoff_factor: %g}"
PINNED = 'tensors={match: [{match: "0", sbp: S(0)}]}'
CLUSTER = "cluster={gpu: h100-sxm, nodes: 2, gpus_per_node: 1, nodes_per_rack: 2}"

PIPELINE = ["model={name: mlp, args: {layers: 2}}", "placements={all: {device: cpu, mesh: {pp: 2, dp: 1}}}"]
CHUNKS = ('stages={axis: pp, virtual: 2, rules: [{match: "0.*", stage: 0}, {match: "2.*", stage: 1}, '
          '{match: "4.*", stage: 2}, {match: "6.*", stage: 3}]}')
STAGES = 'stages={axis: pp, rules: [{match: "*", stage: 1}, {match: "0.*", stage: 0}]}'


def tables():
    """(key, sets of the run before, sets that change it), by what is to be seen."""
    d = FOLDER.name
    values = [
        ("experiment:optimizer", [], [sgd()]),
        ("data:shuffle", [], ["data.shuffle=true"]),
        ("data:seed", ["data.shuffle=true"], ["data.seed=18446744073709551615"]),
        ("data.synthetic:augment", [IMAGES], ["data.augment=true"]),
        ("data.synthetic:normalize", [IMAGES], ["data.normalize=false"]),
        ("data.mnist:augment", [MNIST % d], ["data.augment=true"]),
        ("data.mnist:normalize", [MNIST % d], ["data.normalize=false"]),
        ("data.mnist:dir", [MNIST % d], [f"data.dir={d}/moved-mnist"]),
        ("data.npy:mean", [], ["data.mean=1"]),
        ("data.npy:std", [], ["data.std=2"]),
        ("optimizer:schedule", [sgd()], ["optimizer.schedule={name: exponential, gamma: 0.5}"]),
        ("optimizer.schedule:name", [sgd()], ["optimizer.schedule={name: exponential, gamma: 0.5}"]),
        ("optimizer.schedule:warmup", [sgd(", schedule: {name: constant}")], ["optimizer.schedule.warmup=20"]),
        ("optimizer:groups", [sgd()], ['optimizer.groups=[{match: "*.bias", lr: 1}]']),
        ("optimizer.groups:match", [sgd(', groups: [{match: "*.bias", lr: 1}]')],
         ['optimizer.groups[0].match="*.weight"']),
        ("optimizer.groups:lr", [sgd(', groups: [{match: "*.bias", lr: 1}]')], ["optimizer.groups[0].lr=0.5"]),
        ("optimizer.groups:weight_decay", [sgd(', groups: [{match: "*.bias", weight_decay: 1}]')],
         ["optimizer.groups[0].weight_decay=0.5"]),
        ("optimizer.groups:frozen", [sgd(', groups: [{match: "*.bias", frozen: true}]')],
         ["optimizer.groups[0].frozen=false"]),
        ("optimizer:clip_norm", [sgd()], ["optimizer.clip_norm=0.01"]),
        ("optimizer:clip_value", [sgd()], ["optimizer.clip_value=0.01"]),
        ("train:label_smoothing", [], ["train.label_smoothing=0.5"]),
        ("train:amp", [], ["train.amp=bf16"]),
        ("train.amp:dtype", ["train.amp=bf16"], ["train.amp=f16"]),
        ("train:seed", [IMAGES, "model={name: transformer, args: {layers: 1, heads: 2, dropout: 0.5}}"],
         ["train.seed=18446744073709551615"]),
        optimizer("sgd", "lr", 0.5),
        optimizer("sgd", "momentum", 0.9),
        optimizer("sgd", "dampening", 0.5, ", momentum: 0.5"),
        optimizer("sgd", "weight_decay", 0.5),
        optimizer("sgd", "nesterov", "true", ", momentum: 0.5"),
        optimizer("rmsprop", "lr", 0.1),
        optimizer("rmsprop", "alpha", 0.5),
        optimizer("rmsprop", "eps", 1),
        optimizer("rmsprop", "momentum", 0.5),
        optimizer("rmsprop", "weight_decay", 0.5),
        optimizer("rmsprop", "centered", "true"),
        optimizer("adagrad", "lr", 0.1),
        optimizer("adagrad", "lr_decay", 0.5),
        optimizer("adagrad", "eps", 1),
        optimizer("adagrad", "weight_decay", 0.5),
        optimizer("lion", "lr", 0.1),
        optimizer("lion", "beta1", 0.1),
        optimizer("lion", "beta2", 0.1),
        optimizer("lion", "weight_decay", 0.5),
        *(schedule("step", key, v, ", step_size: 2, gamma: 0.5") for key, v in (("step_size", 3), ("gamma", 0.25))),
        schedule("cosine", "steps", 20), schedule("cosine", "min_lr", 0.04),
        *(schedule("multi_step", key, v, ", milestones: [2, 7], gamma: 0.5")
          for key, v in (("milestones", "[2, 8]"), ("gamma", 0.25))),
        schedule("exponential", "gamma", 0.5, ", gamma: 0.9"),
        *(schedule("linear", key, v, ", steps: 20")
          for key, v in (("steps", 9), ("start_factor", 0.9), ("end_factor", 0.5))),
        *(schedule("cosine_restarts", key, v, ", steps: 3")
          for key, v in (("steps", 4), ("restart_factor", 2), ("min_lr", 0.04))),
        *(schedule("one_cycle", key, v, ", steps: 20") for key, v in (
            ("steps", 30), ("max_lr", 0.5), ("pct_start", 0.9), ("linear", "true"),
            ("keep_momentum", "true"), ("base_momentum", 0.2), ("max_momentum", 0.2))),
        schedule("one_cycle", "div_factor", 2, ", steps: 40"),
        *(schedule("one_cycle", key, v, ", steps: 11") for key, v in (
            ("three_phase", "true"), ("final_div_factor", 1.5))),
        # Losses improve, but never by as much as the threshold: a fall after each evaluation.
        *(schedule("plateau", key, v, ", factor: 0.5, patience: 0, threshold: 1e9, absolute: true", [EVAL])
          for key, v in (("factor", 0.9), ("patience", 1), ("cooldown", 3), ("threshold", 1e-9), ("min_lr", 0.04))),
        # Losses of about 100 that improve by more than 0.5, and less than a half.
        ("optimizer.schedule.plateau:absolute",
         [EVAL, "data.std=0.01", "optimizer={name: sgd, lr: 0.0005, schedule: {name: plateau, factor: 0.5, "
          "patience: 0, threshold: 0.5, absolute: true}}"], ["optimizer.schedule.absolute=false"]),
    ]
    for name in ("adam", "adamw", "lamb"):
        values += [optimizer(name, "lr", 0.1), optimizer(name, "beta1", 0.1),
                   optimizer(name, "beta2", 0.1), optimizer(name, "eps", 1),
                   optimizer(name, "weight_decay", 0.5)]
    # These change no value of f32 beyond the order of its sums.
    same = [
        ("experiment:placements", [], ["placements={all: {device: cpu, ranks: [1, 0]}}"]),
        ("experiment:parameters", [], ['parameters=[{match: "*", sbp: B}]']),
        ("experiment:tensors", [], ["tensors={label: {placement: all}}"]),
        ("experiment:strategy", [], ["strategy=zero1"]),
        ("experiment:data", [], ["data.workers=2"]),
        ("experiment:train", [], ["train.on_nan=warn"]),
        ("experiment:cluster", [], [CLUSTER]),
        ("experiment:memory_limit", [], ["memory_limit=64 MiB"]),
        ("experiment:bucket_mb", [], ["bucket_mb=0"]),
        ("experiment:infer_updates", [], ["infer_updates=true"]),
        ("experiment:reshard_after_forward", [], ["reshard_after_forward=true"]),
        ("experiment:recompute", [], ['recompute=[{match: "*"}]']),
        ("recompute:match", ['recompute=[{match: "0"}]'], ['recompute[0].match="*"']),
        ("experiment:search", [], ["search={seconds: 5}"]),
        ("search:seconds", ["search={seconds: 5}"], ["search.seconds=6"]),
        ("experiment:fusion", [], ["fusion={rows: false}"]),
        ("experiment:schedule", [], ["schedule={microbatches: 3}"]),
        ("schedule:microbatches", ["schedule={microbatches: 2}"], ["schedule.microbatches=6"]),
        ("schedule:kind", ["schedule={microbatches: 2}"], ["schedule.kind=gpipe"]),
        ("experiment:stages", PIPELINE, [STAGES]),
        ("stages:virtual", [*PIPELINE, "model={name: mlp, args: {layers: 4}}", STAGES], [CHUNKS]),
        ("stages:axis", [*PIPELINE, STAGES], ["placements={all: {device: cpu, mesh: {dp: 1, q: 2}}}", "stages.axis=q"]),
        ("stages:rules", [*PIPELINE, STAGES], ['stages.rules=[{match: "*", stage: 0}, {match: "2.*", stage: 1}]']),
        ("stages.rules:match", [*PIPELINE, STAGES], ['stages.rules[1].match="0-1.*"']),
        ("stages.rules:stage", [*PIPELINE, STAGES], ["stages.rules[0].stage=0", "stages.rules[1].stage=1"]),
        ("placements:device", [], ["placements={all: {ranks: [0, 1]}}"]),
        ("placements:mesh", [], ["placements={all: {mesh: {dp: 2}}}"]),
        ("placements:ranks", [], ["placements={all: {ranks: [0]}}"]),
        ("tensors.input:placement", [], ["placements={all: {ranks: [0, 1]}, b: {ranks: [1]}}",
                                         "tensors.label.placement=b"]),
        ("tensors.input:sbp", [], ["tensors.input.sbp=B"]),
        ("parameters:match", ['parameters=[{match: "*", sbp: B}]'], ['parameters[0].match="0.*"']),
        ("parameters:placement", ['parameters=[{match: "*", sbp: B}]'], ["parameters[0].placement=all"]),
        ("parameters:sbp", ['parameters=[{match: "*", sbp: B}]'], ["parameters[0].sbp=S(0)"]),
        ("parameters:use", ['parameters=[{match: "*", sbp: S(0)}]'], ["parameters[0].use=B"]),
        ("parameters:state", ['parameters=[{match: "*", sbp: B}]', sgd()], ["parameters[0].state=S(0)"]),
        ("parameters:gradient", ['parameters=[{match: "*", sbp: B}]'], ["parameters[0].gradient=S(0)"]),
        ("tensors.match:match", [PINNED], ['tensors.match[0].match="*"']),
        ("tensors.match:sbp", [PINNED], ["tensors.match[0].sbp=B"]),
        ("tensors.match:use", [PINNED], ["tensors.match[0].use=B"]),
        ("tensors.match:gradient", [PINNED], ["tensors.match[0].gradient=S(0)"]),
        ("tensors.match:gradient_use", [PINNED], ["tensors.match[0].gradient_use=S(0)"]),
        ("data:workers", [], ["data.workers=3"]),
        ("data:prefetch", [], ["data.prefetch=4"]),
        ("data.npy:x", [], [f"data.x={d}/moved-x.npy"]),
        ("data.npy:y", [], [f"data.y={d}/moved-y.npy"]),
        ("data.npy:test_x", [], [f"data.test_x={d}/x.npy", f"data.test_y={d}/y.npy"]),
        ("data.npy:test_y", [f"data.test_x={d}/x.npy", f"data.test_y={d}/y.npy"],
         [f"data.test_y={d}/moved-y.npy"]),
        ("data.synthetic:test_samples", [IMAGES], ["data.test_samples=12"]),
        ("data.text:file", [TEXT % f"file: {d}/text", GPT], [f"data.file={d}/moved-text"]),
        ("data.text:tokens", [TEXT % f"tokens: {d}/tokens.npy", GPT], [f"data.tokens={d}/moved-tokens.npy"]),
        ("optimizer:state", [sgd()], ["optimizer.state={sbp: S(0)}"]),
        ("optimizer.state:sbp", [sgd(", state: {sbp: B}")], ["optimizer.state.sbp=S(0)"]),
        ("optimizer:loss_scale", [sgd()], ["optimizer.loss_scale=8"]),
        ("train:on_nan", [], ["train.on_nan=ignore"]),
        ("train:eval", [], [EVAL]),
        ("train:checkpoint", [], ["train.checkpoint.keep=2"]),
        ("train:metrics", [], [f"train.metrics={d}/metrics.jsonl"]),
        ("train:tensorboard", [], [f"train.tensorboard={d}/events"]),
        ("train.eval:every", [EVAL], ["train.eval.every=2"]),
        ("train.eval:data", [f"data.test_x={d}/x.npy", f"data.test_y={d}/y.npy", EVAL],
         ["train.eval.data=test"]),
        ("train.checkpoint:every", [], ["train.checkpoint.every=2"]),
        ("train.checkpoint:keep", [], ["train.checkpoint.keep=1"]),
        *((f"fusion:{k}", [], [f"fusion.{k}=false"])
          for k in ("activations", "softmax", "chains", "updates", "rows", "pools", "kept")),
        *((f"cluster:{k}", [CLUSTER], [f"cluster.{k}={v}"]) for k, v in (
            ("gpu", "a100-80-sxm"), ("nodes", 4), ("gpus_per_node", 4), ("nodes_per_rack", 1),
            ("efficiency", 0.3), ("tf32", "true"), ("memory", "64 GiB"), ("memory_gb_s", 100),
            ("tflops", 5), ("tflops_f64", 5), ("tflops_f32", 5), ("tflops_f16", 5), ("tflops_bf16", 5),
            ("kernel_us", 9), ("latency_us", 9), ("bandwidth_gb_s", 9), ("node_latency_us", 9),
            ("node_bandwidth_gb_s", 9), ("rack_latency_us", 9), ("rack_bandwidth_gb_s", 9),
            ("link_name", "a"), ("node_link_name", "a"), ("rack_link_name", "a"))),
    ]
    refused = [
        ("experiment:dtype", [], ["dtype=f64"]),
        ("experiment:model", [], ["model.args.layers=2"]),
        ("data:dataset", [IMAGES], ["data=" + MNIST[5:] % d]),
        ("data:batch_size", [], ["data.batch_size=6"]),
        ("data.synthetic:shape", [IMAGES], ["data.shape=[1, 6, 7]"]),
        ("data.synthetic:classes", [IMAGES], ["data.classes=4"]),
        ("data.synthetic:samples", [IMAGES], ["data.samples=60"]),
        ("data.text:context", [TEXT % f"file: {d}/text", GPT], ["data.context=4"]),
        ("data.text:vocab", [TEXT % f"tokens: {d}/tokens.npy", GPT], ["data.vocab=9"]),
        ("data.text:test_part", [TEXT % f"file: {d}/text", GPT], ["data.test_part=0.5"]),
        ("data.npy:classes", [], ["data.classes=4"]),
        ("data.npy:shape", [], ["data.shape=[3, 2]"]),
        ("data.npy:test_part", [], ["data.test_part=0.5"]),
        ("optimizer:name", [sgd()], ["optimizer={name: adam}"]),
        ("optimizer:accumulate", [sgd()], ["optimizer.accumulate=2"]),
        ("train.checkpoint:resume", [], ["train.checkpoint.resume=false"]),
    ]
    kept = [
        ("train:init", [], [f"train.init={d}/init.safetensors"]),
        ("train.amp.f16:init_scale", ["train.amp={dtype: f16, init_scale: 1024}"],
         ["train.amp={dtype: f16, init_scale: 64}"]),
        ("optimizer.adagrad:initial_accumulator_value", ["optimizer={name: adagrad}"],
         ["optimizer.initial_accumulator_value=1"]),
    ]
    return {"values": values, "same": same, "refused": refused, "kept": kept}


# Keys that no table has, and why.
ELSEWHERE = {
    "experiment:tessera": "1 is the only version",
    "experiment:include": "is merged before",
    "experiment:vars": "are put in before",
    "experiment:mesh": "stands for placements", "experiment:device": "of a mesh",
    "experiment:graph": "see test_graph", "experiment:loss": "see test_graph",
    "experiment:fetch": "see test_graph", "train.eval:scores": "see test_graph",
    "tensors.match:placement": "see test_graph",
    "train:steps": "see test_total", "train:epochs": "see test_total",
    "train.checkpoint:dir": "another folder is another run",
    "train.amp.f16:growth_factor": "see test_scaler", "train.amp.f16:backoff_factor": "see test_scaler",
    "train.amp.f16:growth_interval": "see test_scaler",
    "data.cifar10:dir": "mnist's", "data.cifar10:augment": "mnist's", "data.cifar10:normalize": "mnist's",
    "optimizer.own:lr": "see cli_plugins", "optimizer.own:plugin": "see cli_plugins",
    "optimizer.own:function": "see cli_plugins", "optimizer.own:numbers": "see cli_plugins",
    "cluster:link": "names a speed", "cluster:network": "names a speed",
    "cluster:network_ports": "of a network", "cluster:rack_oversubscription": "of a network",
    "cluster:ranks_per_node": "of CPUs", "stages:split": "is refused so far",
}


def test_every_key():
    all_tables = tables()
    listed = {row[0] for rows in all_tables.values() for row in rows} | set(ELSEWHERE)
    schema = json.loads(tessera("schema")[0])["$defs"]
    equal({f"{name}:{key}" for name, section in schema.items() for key in section.get("properties", {})
           if name.split(".")[0] not in ("model", "graph", "part")
           and not (name.count(".") and key in schema[name.rsplit(".", 1)[0]].get("properties", {}))
           and not (name.startswith("train.amp.") and key == "dtype")}
          - listed, set(), "keys of the schema that are not changed here")
    for effect, rows in all_tables.items():
        for key, before, change in rows:
            folder, unchanged, steps = base_of(before)
            shutil.copytree(path(folder), path("now"))
            code = 1 if effect == "refused" else 0
            out, err, weights = run("now", [*before, *steps, *change], code)
            what = f"{key} ({effect}): {change}\n{out}{err}"
            name = key.split(":")[1]
            if effect == "refused":
                check(name in err, what)
            elif effect == "kept":
                check(f".{name}: " in err and "stays" in err, what)
                equal(weights, unchanged, what)
            elif effect == "values":
                check(distance(weights, unchanged) > 1e-6, what)
            else:
                check(distance(weights, unchanged) < 1e-5, what)
            shutil.rmtree(path("now"))


# --- numbers by their formulas --------------------------------------------------------------------
def gradients(w, x, y, first):
    """Of the mean cross entropy of a batch of a linear layer."""
    g = {"0.weight": [0.0] * (CLASSES * FEATURES), "0.bias": [0.0] * CLASSES}
    for row in range(first, first + BATCH):
        at = x[row * FEATURES:(row + 1) * FEATURES]
        z = [sum(a * b for a, b in zip(w["0.weight"][c * FEATURES:], at)) + w["0.bias"][c]
             for c in range(CLASSES)]
        p = [math.exp(v - max(z)) for v in z]
        for c in range(CLASSES):
            d = (p[c] / sum(p) - (c == y[row])) / BATCH
            g["0.bias"][c] += d
            for i in range(FEATURES):
                g["0.weight"][c * FEATURES + i] += d * at[i]
    return g


def train(x, y, w, rule, before, after):
    """Parameters after FIRST steps with some numbers, and those up to LAST with others."""
    w, states = {k: list(v) for k, v in w.items()}, {k: [{} for _ in v] for k, v in w.items()}
    for step in range(LAST):
        g = gradients(w, x, y, step * BATCH % ROWS)
        numbers = before if step < FIRST else after
        for k in w:
            w[k] = [rule(u, d, s, step + 1, numbers) for u, d, s in zip(w[k], g[k], states[k])]
    return w


def sgd_rule(w, g, s, step, n):
    g += n.get("weight_decay", 0) * w
    m, first = n.get("momentum", 0), "m" not in s
    if m:
        s["m"] = g if first else m * s["m"] + (1 - n.get("dampening", 0)) * g
        g = g + m * s["m"] if n.get("nesterov") else s["m"]
    return w - n["lr"] * g


def adam_rule(w, g, s, step, n):
    g += n["weight_decay"] * w
    s["m"] = n["beta1"] * s.get("m", 0) + (1 - n["beta1"]) * g
    s["v"] = n["beta2"] * s.get("v", 0) + (1 - n["beta2"]) * g * g
    root = math.sqrt(s["v"] / (1 - n["beta2"] ** step)) + n["eps"]
    return w - n["lr"] / (1 - n["beta1"] ** step) * s["m"] / root


def test_formulas(x, y, w):
    start = ["dtype=f64", f"train.init={path('init.safetensors')}"]
    adam = {"lr": 0.05, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.01}
    rows = [("sgd", sgd_rule, {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.01}, change) for change in (
        {}, {"lr": 0.01}, {"momentum": 0.9}, {"dampening": 0.5}, {"weight_decay": 0.5}, {"nesterov": True},
        {"momentum": 0}, {"lr": 0})]
    rows += [("sgd", sgd_rule, {"lr": 0.1}, {"momentum": 0.5})]
    rows += [("adam", adam_rule, adam, {k: v}) for k, v in (
        ("lr", 0.5), ("beta1", 0.2), ("beta2", 0.5), ("eps", 0.5), ("weight_decay", 0.5))]
    for i, (name, rule, before, change) in enumerate(rows):
        after = {**before, **change}
        folder = f"formula{i}"
        for ranks, steps, numbers in ((0, FIRST, before), (2 - i % 2, LAST, after)):
            text = ", ".join(f"{k}: {str(v).lower()}" for k, v in numbers.items())
            places = f"placements={{all: {{ranks: {[0, 1][:ranks or 2]}}}}}"
            found = run(folder, [*start, places, f"optimizer={{name: {name}, {text}}}",
                                 f"train.steps={steps}"])[2]
        check(distance(found, train(x, y, w, rule, before, after)) < 1e-12, f"{name}: {before}, {change}")


# --- totals, schedules, scalers -------------------------------------------------------------------
def test_total():
    """Steps and epochs are those of the whole run; one that is done does nothing more."""
    whole = run("whole", [sgd(), f"train.steps={LAST}"])[2]
    run("parts", [sgd(), f"train.steps={FIRST}"])
    shutil.copytree(path("parts"), path("again"))
    equal(run("parts", [sgd(), f"train.steps={LAST}"])[2], whole, "the run that was not stopped")
    out = run("parts", [sgd(), f"train.steps={LAST}"])[0]
    check("step 10" not in out and f"step {LAST}:" not in out, out)
    check("optimizer" not in out, f"a change where there is none: {out}")
    epochs = run("again", [sgd(), "train={epochs: 3, checkpoint: {dir: " + path("again") + "}}"])
    check(f"step {3 * ROWS // BATCH}: " in epochs[0] and "train.epochs: '3', was nothing" in epochs[0], epochs[0])


def lines_of(name):
    with open(path(name), encoding="utf-8") as f:
        return [line for line in map(json.loads, f) if line["event"] == "step"]


def test_plateau():
    """A plateau's cuts stay where the file is unchanged; another lr, or schedule, starts anew."""
    text = "optimizer={name: sgd, lr: %s, schedule: {name: %s}}"
    falls = "plateau, factor: 0.5, patience: 0, threshold: 1e9, absolute: true"
    base = [text % (0.08, falls), EVAL, f"train.metrics={path('rates')}"]
    run("cut", base)
    # The first evaluation is the best one; each later one is a cut.
    equal([line["lr"] for line in lines_of("rates")], [0.08, 0.08, 0.04, 0.02, 0.01], "rates")
    for name, sets, expected in (("unchanged", base, [0.005, 0.0025, 0.00125, 0.000625]),
                                 ("another lr", [text % (0.16, falls), *base[1:]], [0.16, 0.16, 0.08, 0.04]),
                                 ("constant", [text % (0.08, "constant"), *base[1:]], [0.08] * 4)):
        shutil.copytree(path("cut"), path("now"))
        os.remove(path("rates"))
        run("now", [*sets, f"train.steps={LAST}"])
        equal([line["lr"] for line in lines_of("rates")], expected, name)
        shutil.rmtree(path("now"))
    _, err = tessera("plan", path("r.yaml"), "--set", base[0], code=1)
    check("'train.eval' is missing" in err, err)


def scaler_of(folder):
    """The numbers of the scaler in the only file of the newest checkpoint."""
    newest = max(n for n in os.listdir(path(folder)) if n.startswith("step-"))
    found = {}
    for name in os.listdir(path(f"{folder}/{newest}")):
        with open(path(f"{folder}/{newest}/{name}"), "rb") as f:
            data = f.read()
        at = data.find(b"grad_scaler\n")
        for line in data[at:at + 300].split(b"\n")[1:6] if at >= 0 else []:
            key, value = line.decode().split()
            found[key] = float.fromhex(value) if "interval" not in key and "tracker" not in key else int(value)
    return found


def test_scaler():
    base = [F16 % (4, 2, 0.5)]
    run("scaled", base)
    equal(scaler_of("scaled"), {"scale": 2048, "growth_factor": 2, "backoff_factor": 0.5,
                                "growth_interval": 4, "_growth_tracker": 1}, "before")
    for now, scale, tracker in ((F16 % (4, 2, 0.25), 4096, 1), (F16 % (4, 4, 0.5), 8192, 1),
                                (F16 % (100, 2, 0.5), 2048, 5)):
        shutil.copytree(path("scaled"), path("now"))
        run("now", [now, f"train.steps={LAST}"])
        found = scaler_of("now")
        interval, growth, backoff = (w.split(":")[1] for w in now.strip("}").split(", ")[2:])
        equal((found["growth_interval"], found["growth_factor"], found["backoff_factor"]),
              (int(interval), float(growth), float(backoff)), now)
        equal((found["scale"], found["_growth_tracker"]), (scale, tracker), now)
        shutil.rmtree(path("now"))


def test_graph():
    """A graph is refused by its entry; where its entries live is not."""
    text = f"""\
tessera: 1
placements: {{all: {{ranks: [0, 1]}}, one: {{ranks: [1]}}}}
data: {{dataset: npy, x: x.npy, y: y.npy, classes: {CLASSES}, batch_size: {BATCH}}}
graph:
  x: {{op: input, field: x}}
  y: {{op: input, field: y}}
  w: {{op: parameter, fill: 0.5, shape: [{CLASSES}, {FEATURES}]}}
  f: {{op: flatten, in: x, from_axis: 1}}
  z: {{op: linear, in: [f, w]}}
  h: {{op: mul_scalar, in: z, a: 1}}
  l: {{op: cross_entropy, in: [z, y]}}
loss: l
fetch: [l]
optimizer: {{name: sgd, lr: 0.05}}
train: {{steps: {FIRST}, eval: {{data: train}}, checkpoint: {{dir: graph}}}}
"""
    with open(path("g.yaml"), "w", encoding="utf-8") as f:
        f.write(text)
    tessera("run", path("g.yaml"))
    shutil.copytree(path("graph"), path("graph0"))
    for change, refused in (("graph.h.a=2", "graph.h.a: found '2'"), ("graph.w.fill=1", "graph.w.fill: "),
                            ("graph.n={op: relu, in: z}", "graph.n: found a mapping"),
                            ("graph.h.op=add_scalar", "graph.h.op: "),
                            ("graph.z.in=[f, w]", ""), ("graph.h.placement=one", ""), ("graph.w.sbp=S(0)", ""),
                            ("fetch=[z]", ""), ("train.eval.scores=h", ""),
                            ("tensors=[{match: h, sbp: B, placement: one}]", "")):
        shutil.copytree(path("graph0"), path("now"))
        sets = ["train.checkpoint.dir=" + path("now"), f"train.steps={LAST}", change]
        _, err = tessera("run", path("g.yaml"), *(w for s in sets for w in ("--set", s)), code=1 if refused else 0)
        check(refused in err, f"{change}: {err}")
        shutil.rmtree(path("now"))


# --- checkpoints without an experiment ------------------------------------------------------------
# That of step 5 of the file below, by tessera of November 2026, before checkpoints held experiments.
OLD_CHECKPOINT = {
    "index.json":
        "eNqtk8tuwyAQRff5jFmTFPDbyy76Be2mlhVhe6hR/BJgRW2Ufy/EWaRV0yhSdjPici53NBzAojGoxbZusd5Noxos5IysQDWQQyZ5"
        "mGIT1lUkkixLo5gFcSJFWrMMg0SCE1rVo5NyyuM1Y2uevtI0pzxn9N0fG4sT5JGrtBh2ZoFL1eG5tDiYUbvmsIJuFA1qV0JjPydP"
        "fUuBgGmFbwpGWcZLAuN+gNzqGQlMCmtPKgpKClqSs6Ysjw7djw12T3RTKWEuoS8Bv6AGjjh1osYefXaopzl3KK+o3MvhGf6wCX5Z"
        "7FF9tPYfExLfbUNORu7iYjVObtLqC/U50aYfPWrut9Us5c+xPTDhpe2S8g7jR6Ye5r5Cba5uB2fxjd3wioWq5+H6lt3CLBSPOf0Z"
        "M/cOEYVVhCi5bEQYBwnCcfUNM8MD1g==",
    "shard-00000-of-00001.safetensors":
        "eNrt2k9IFFEcB3A3AmWNzEMXCxmmQ0WjzszOzM6oOxVU1CmIooPJ8nbmjbu5szvMn9QWoUAoTD2oHcpDQqSVh8IOXnQMo0MU5KE6"
        "JHYI1ISkQx2MDjWju7Kba+Cl0+9zeTvv/X7f/Q3L3t6XHSVrMmQ0qmMbqchG0ShZnyFtbFnYRLUJlawnJY3lRKxySoxHYUkSeYEJ"
        "CWENiQoj4VBYI6mNeiWOlVbL0S2vTUSqGKNFhRZDjCZpfJEyr4oOhWOSRCs8ZniNxQrZWTQtQ6p2h4G9hjMC5yVZceQ/NYWbKXJt"
        "7LSmWdj2KptoiheavRQ9reJkHV0bS6CCgFMhNi8gtDmAFyhBzE9ow4mWuP2PDErYnCKIFMPRfkzasBN64io2s8PU6mkdp2xHj8Yc"
        "TcPmtobzMimGZ//OXR9xG8nFRvZyKZbl/OxkGqmF/RfEvHaGZiR2c4DXTDE0xwiF46UcPYZNa8s0lik2jJ/jpQmhtZc1ndTW0xRt"
        "9xr9ds77KTuJNRVlv583furtI+asGecY2b/c8Ot01cqbpZ5EWe/gcIU6fH38Yvvn+Y+Dz973dC0sOD9XOSEQePf2ZMOwu+/V3OTx"
        "qr1u7/2xyLX+R5Fu8saU8Tjhcsag/PJwuXt3z7g7Iu+PnC+rlK+kz8qvb5W6N+er3e9UZqr69qx8+YfpHhoIyFUjw+6DIVeeCYxO"
        "9cbb5LGlA27f2B131S6R5XNtbhX7RE5dWpmU61rliXt6ZFl6EVmaLD06Wt7V2D00HVnkH8r0tzb5a2XMfTo74H4wJ9zkia6pmcXd"
        "07MH1//PgZLCFQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAP/Pxg1KwmpRg5aNDYIPmk7K8hakKI7uJJGNCSbYYqYdI7h+zZJImgTd"
        "ztRKeZBRw+eO12+KRlWsoA6vkDaO0Lmj3O1Rv9+oYXLbKtINnEqkWnLlhv+1yCHo7MbGQnhnyEQ6wfufs5dSC7b8+6/BXdn325ld"
        "/wBv+J/c",
}
OLD = """\
tessera: 1
placements: {all: {ranks: [0]}}
model: {name: mlp, args: {layers: 1}}
data: {dataset: synthetic, shape: [1, 2, 3], classes: 3, samples: 48, batch_size: 12, seed: 4}
optimizer: {name: sgd, lr: 0.05, momentum: 0.5}
train: {steps: 9, checkpoint: {dir: old}}
"""


def test_old():
    """Its numbers go on whatever the file says, with one warning; what is saved then holds one."""
    os.makedirs(path("old/step-00000005"))
    for name, text in OLD_CHECKPOINT.items():
        with open(path("old/step-00000005/" + name), "wb") as f:
            f.write(zlib.decompress(base64.b64decode(text)))
    with open(path("old.yaml"), "w", encoding="utf-8") as f:
        f.write(OLD)
    found = []
    for change in ("optimizer.lr=0.05", "optimizer.lr=1"):
        shutil.copytree(path("old"), path("now"))
        words = ["run", path("old.yaml"), "--set", "train.checkpoint.dir=" + path("now"), "--set", change]
        out, err = tessera(*words)
        check(err.count("\n") == 1 and "step-00000005: it holds no experiment" in err, err)
        check("goes on after step 5" in out and "step 9" in out, out)
        found.append(read_weights("now/weights.safetensors"))
        out, err = tessera(*words, "--set", "train.steps=12", "--set", "optimizer.momentum=0.75")
        check(not err and "optimizer.momentum: '0.75', was '0.5'" in out, out + err)
        shutil.rmtree(path("now"))
    equal(found[0], found[1], "the checkpoint's lr")


if __name__ == "__main__":
    data = make_files()
    test_total()
    test_formulas(*data)
    test_plateau()
    test_scaler()
    test_graph()
    test_old()
    test_every_key()
    print(f"{runs} runs of {os.path.basename(TESSERA)}")
    done()
