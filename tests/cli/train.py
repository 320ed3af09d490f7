#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera run that trains: evaluation against NumPy's, metrics while they come, TensorBoard's events,
checkpoints, signals, and going on from them on other ranks. usage: train.py TESSERA"""
import glob
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

from harness import CACHE, TESSERA, check, done, equal, near, needs, tessera, tessera_json

np = needs("numpy")

FOLDER = tempfile.TemporaryDirectory()
ROWS, TEST_ROWS, BATCH = 96, 53, 24
MNIST = """\
tessera: 1
placements: {all: {ranks: [0, 1]}}
model: {name: mlp, args: {hidden: 16}}
data: {dataset: mnist, dir: mnist, batch_size: 24, seed: 5}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9, schedule: {name: cosine}}
"""


def path(name):
    return os.path.join(FOLDER.name, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as f:
        f.write(text)
    return path(name)


def lines_of(name):
    with open(path(name), encoding="utf-8") as f:
        text = f.read()
    check(text.endswith("\n"), f"{name}: whole lines")
    return [json.loads(line) for line in text.splitlines()]


def entries(folder):
    return sorted(n for n in os.listdir(path(folder)) if n != ".lock")


def of_event(lines, event):
    return [line for line in lines if line["event"] == event]


# --- data and models ------------------------------------------------------------------------------
def write_idx(name, values):
    with open(path("mnist/" + name), "wb") as f:
        f.write(struct.pack(">I", 0x800 + values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
                + values.tobytes())


def make_mnist():
    """Classes that can be learnt: a label's own pixels are bright."""
    rng = np.random.default_rng(1)
    os.mkdir(path("mnist"))
    for part, n in (("train", ROWS), ("t10k", TEST_ROWS)):
        labels = rng.integers(0, 10, n).astype(np.uint8)
        images = rng.integers(0, 160, (n, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels):
            image[2 * label:2 * label + 4] += 90
        write_idx(part + "-images-idx3-ubyte", images)
        write_idx(part + "-labels-idx1-ubyte", labels)
        if part == "t10k":
            return_value = images, labels
    return return_value


def read_weights(name):
    with open(path(name), "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(n)), f.read()
    return {k: np.frombuffer(data[slice(*v["data_offsets"])], np.float32).reshape(v["shape"])
            for k, v in header.items() if k != "__metadata__"}


def evaluate(weights, x, labels):
    """Loss, accuracy and top-5 of the perceptron, in f64."""
    for i in (0, 2):
        x = x @ weights[f"{i}.weight"].astype(float).T + weights[f"{i}.bias"]
        x = np.maximum(x, 0) if i == 0 else x
    top = np.argsort(-x, axis=1)
    losses = np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1) - x[range(len(x)), labels]
    return (losses.mean(), (top[:, 0] == labels).mean(),
            (top[:, :5] == labels[:, None]).any(1).mean())


# --- TensorBoard's files --------------------------------------------------------------------------
def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xa282ead8) & 0xffffffff


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """(number, value) of a protocol buffer: numbers of 4 and 8 bytes as bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            if key & 7 == 2:
                n, at = varint(data, at)
            else:
                n = {1: 8, 5: 4}[key & 7]
            value, at = data[at:at + n], at + n
        yield key >> 3, value


def read_events(name):
    """[(step, tag, value)], and the version that the file says."""
    with open(name, "rb") as f:
        data = f.read()
    at, found, version = 0, [], None
    while at < len(data):
        n, crc = struct.unpack_from("<QI", data, at)
        equal(masked(data[at:at + 8]), crc, f"{name}: the length at {at}")
        record = data[at + 12:at + 12 + n]
        equal(masked(record), struct.unpack_from("<I", data, at + 12 + n)[0], f"{name}: at {at}")
        at += 16 + n
        event = dict(fields(record))
        check(abs(struct.unpack("<d", event[1])[0] - time.time()) < 600, f"{name}: a time of today")
        version = event.get(3, version)
        for number, value in fields(event.get(5, b"")):
            equal(number, 1, "a summary has values")
            value = dict(fields(value))
            found.append((event[2], value[1].decode(), struct.unpack("<f", value[2])[0]))
    return found, version


def check_tensorboard(folder, lines):
    """By its own reader, where it is installed: also in the folder TESSERA_TENSORBOARD, whose NumPy
    must not come before this one's."""
    sys.path.append(os.environ.get("TESSERA_TENSORBOARD", os.devnull))
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        print("tensorboard is not installed: its reader is not asked")
        return
    board = EventAccumulator(folder)
    board.Reload()
    for tag, event, key in (("train/loss", "step", "loss"), ("train/lr", "step", "lr"),
                            ("eval/accuracy", "eval", "accuracy"), ("eval/top5", "eval", "top5")):
        equal([(s.step, s.value) for s in board.Scalars(tag)],
              [(m["step"], float(np.float32(m[key]))) for m in of_event(lines, event)], tag)


# --- evaluation and files -------------------------------------------------------------------------
def check_evaluation(images, labels):
    train = write("train.yaml", MNIST + "train: {steps: 10, seed: 2, eval: {every: 2 epochs}, "
                  "metrics: m/metrics.jsonl, tensorboard: tb}\n")
    out, _ = tessera("run", train, "--out", path("out"))
    x = (images.reshape(len(images), -1) / np.float32(255) - 0.1307) / 0.3081
    loss, accuracy, top5 = evaluate(read_weights("out/weights.safetensors"), x, labels)
    with open(path("out/result.json"), encoding="utf-8") as f:
        result = json.load(f)
    equal([e["step"] for e in result["evaluations"]], [8, 10], "2 epochs, and the end")
    last = result["evaluations"][-1]
    near(last["loss"], loss, "loss", rel=1e-5)
    equal((last["accuracy"], last["top5"], last["rows"]), (accuracy, top5, TEST_ROWS), "of NumPy")
    check(0.1 < accuracy <= top5, f"it has learnt: {accuracy}, {top5}")
    check(f"evaluation after step 10: loss {loss:.4f}"[:-2] in out and
          f"accuracy {100 * accuracy:.2f} %, top-5 {100 * top5:.2f} %, of {TEST_ROWS} rows" in out, out)
    lines = lines_of("m/metrics.jsonl")
    steps, evals = of_event(lines, "step"), of_event(lines, "eval")
    equal([m["step"] for m in steps], list(range(1, 11)), "a line for each step")
    equal([m["epoch"] for m in steps], [s / 4 for s in range(1, 11)], "epochs")
    equal(list(steps[0]), ["event", "step", "epoch", "loss", "lr", "seconds", "rows_per_s", "elapsed_s"],
          "keys of a step")
    equal(list(evals[0]), ["event", "step", "epoch", "loss", "accuracy", "top5", "rows", "seconds",
                           "elapsed_s"], "keys of an evaluation")
    for m, l in zip(steps, result["losses"]):
        near(m["loss"], l, "loss of a line", rel=1e-7)
        near(m["lr"], 0.05 * (1 + np.cos(np.pi * (m["step"] - 1) / 10)) / 2, "lr", rel=1e-6)
        near(m["rows_per_s"], BATCH / m["seconds"], "rows", rel=1e-4)
    equal([(m["step"], m["accuracy"]) for m in evals],
          [(e["step"], float(f"{e['accuracy']:.9g}")) for e in result["evaluations"]], "evaluations")
    names = glob.glob(path("tb/events.out.tfevents.*"))
    equal(len(names), 1, "files of events")
    found, version = read_events(names[0])
    equal(version, b"brain.Event:2", "version")
    expected = []
    for m in lines:
        keys = {"step": ("loss", "lr", "rows_per_s"), "eval": ("loss", "accuracy", "top5")}[m["event"]]
        group = "train" if m["event"] == "step" else "eval"
        expected += [(m["step"], f"{group}/{k}", m[k]) for k in keys]
    equal([e[:2] for e in found], [e[:2] for e in expected], "tags")
    for f, e in zip(found, expected):
        near(f[2], e[2], f"{e[:2]}", rel=1e-5)
    check_tensorboard(path("tb"), lines)
    # The same on other ranks; on the training part; and of a signature that splits classes.
    for options in (["placements.all.ranks=[0]"], ["placements.all.ranks=[0,1,2]"],
                    ["parameters=[{match: 2.*, sbp: S(0)}]"]):
        r = tessera_json("run", train, "--set", options[0])
        near(r["evaluations"][-1]["loss"], loss, options[0], rel=1e-4)
        equal((r["evaluations"][-1]["accuracy"], r["evaluations"][-1]["top5"]), (accuracy, top5), options[0])
    r = tessera_json("run", train, "--set", "train.eval.data=train", "--set", "train.eval.every=10 steps")
    equal([(e["step"], e["rows"]) for e in r["evaluations"]], [(10, ROWS)], "on the training part")
    # Evaluation changes nothing of training.
    equal(tessera_json("run", train, "--set", "train={steps: 10, seed: 2}")["losses"], result["losses"],
          "losses with evaluation and without")


def check_metrics_live():
    """Lines are there while it runs."""
    train = write("live.yaml", MNIST + "train: {steps: 100000000, metrics: live.jsonl}\n")
    p = subprocess.Popen([TESSERA, "run", train], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env={**os.environ, "XDG_CACHE_HOME": CACHE.name, "OMP_NUM_THREADS": "2"})
    until, seen = time.monotonic() + 30, 0
    while seen < 3 and time.monotonic() < until:
        time.sleep(0.02)
        if os.path.exists(path("live.jsonl")):
            with open(path("live.jsonl"), encoding="utf-8") as f:
                seen = f.read().count("\n")
    check(p.poll() is None and seen >= 3, "lines come while it runs")
    with open(f"/proc/{p.pid}/environ", "rb") as f:
        check(b"\0GOMP_SPINCOUNT=5000\0" in b"\0" + f.read(), "its OpenMP team yields soon")
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=30)
    equal(p.returncode, 130, "SIGINT")
    steps = [m["step"] for m in lines_of("live.jsonl")]
    equal(steps, list(range(1, len(steps) + 1)), "lines to the end")


def check_terminal():
    """On a terminal a line says how far it is, and is gone at the end."""
    train = write("far.yaml", MNIST + "train: {steps: 30, eval: {every: 30}}\n")
    main, side = pty.openpty()
    p = subprocess.Popen([TESSERA, "run", train], stdout=side, stderr=side,
                         env={**os.environ, "XDG_CACHE_HOME": CACHE.name, "OMP_NUM_THREADS": "1"})
    os.close(side)
    text = b""
    try:
        while chunk := os.read(main, 65536):
            text += chunk
    except OSError:  # the end of a terminal
        pass
    equal(p.wait(timeout=30), 0, text.decode())
    lines = [line.split("\r")[-1].rstrip() for line in text.decode().split("\r\n")]
    check(lines[0].startswith("mlp: ") and lines[1].startswith("planned: "), f"header: {lines[:2]}")
    shown = re.findall(r"\rstep (\d+) of 30, epoch (\d+), loss [\d.]+, [\d.]+ s *", text.decode())
    equal([(int(s), int(e)) for s, e in shown], [(s, (s - 1) // 4 + 1) for s in range(1, 31)], "progress")
    steps = [int(m.group(1)) for line in lines if (m := re.match(r"step (\d+): loss ", line))]
    equal((steps[:3], steps[-3:], len(steps)), ([1, 2, 3], [28, 29, 30], len(set(steps))), "lines of losses")
    check(not [line for line in lines if " of 30, epoch" in line], f"what stays of it: {lines}")


# --- data of the user's own -----------------------------------------------------------------------
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/experiments")


def softmax_loss(logits, labels):
    logits = logits - logits.max(1, keepdims=True)
    return (np.log(np.exp(logits).sum(1)) - logits[range(len(labels)), labels]).mean()


def check_npy():
    """From two files and under 20 lines of YAML to a data parallel run that learns them."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 300)
    x = (rng.normal(size=(3, 4))[y] * 2 + 0.3 * rng.normal(size=(300, 4))).astype(np.float32)
    np.save(path("x.npy"), x)
    np.save(path("y.npy"), y)
    with open(os.path.join(EXAMPLES, "own_data.yaml"), encoding="utf-8") as f:
        text = f.read()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    check(len(lines) < 20, f"{len(lines)} lines")
    # Without shape and classes: they are in the files.
    own = write("own_data.yaml", "\n".join(lines).replace(", shape: [4], classes: 3", ""))
    r = tessera_json("run", own, "--out", path("own"))
    equal((r["ranks"], r["steps"], r["evaluations"][-1]["rows"]), (2, 100, 60), "a fifth is for tests")
    loss, accuracy, _ = evaluate(read_weights("own/weights.safetensors"), x[240:].astype(float), y[240:])
    near(r["evaluations"][-1]["loss"], loss, "loss", rel=1e-4)
    equal(r["evaluations"][-1]["accuracy"], accuracy, "accuracy")
    check(accuracy > 0.9, f"it learns: {accuracy}")
    one = tessera_json("run", own, "--set", "placements.all.ranks=[0]")
    for a, b in zip(r["losses"], one["losses"]):
        near(a, b, "losses on one rank", rel=1e-3)
    # The first batch in order, by the weights that the run began with.
    tessera("run", own, "--steps", "1", "--set", "optimizer.lr=0", "--out", path("begin"))
    for options, rows in ((["data.shuffle=false"], x[:24]),
                          (["data.shuffle=false", "data.mean=1.5", "data.std=0.5"], (x[:24] - 1.5) / 0.5),
                          (["data.shuffle=false", "data.workers=0"], x[:24])):
        sets = [v for o in options for v in ("--set", o)]
        first = tessera_json("run", own, "--steps", "1", *sets)["losses"][0]
        near(first, evaluate(read_weights("begin/weights.safetensors"), rows.astype(float), y[:24])[0],
             f"the first batch, {options}", rel=1e-5)
    np.save(path("tx.npy"), x[:31])
    np.save(path("ty.npy"), y[:31].astype(np.uint8))
    said = own, "--set", f"data.test_x={path('tx.npy')}", "--set", f"data.test_y={path('ty.npy')}"
    _, err = tessera("run", *said, code=1)
    check("data.test_part: not beside 'test_x'" in err, err)
    write("apart.yaml", "\n".join(lines).replace("test_part: 0.2", "test_x: tx.npy, test_y: ty.npy"))
    r = tessera_json("run", path("apart.yaml"))
    equal((r["steps"], r["evaluations"][-1]["rows"]), (120, 31), "files for tests")
    # Bad files are refused by name.
    bad = y.copy()
    bad[7] = -1
    for name, value, option, error in (
            ("one.npy", x[:, 0], "x", "one.npy: has 1 axis; rows of numbers have two or more"),
            ("few.npy", x[:9], "x", f"few.npy: 9 rows, but {path('y.npy')}: 300 labels"),
            ("f.npy", x[:, 0], "y", "f.npy: is f32; labels are u8, i32 or i64"),
            ("neg.npy", bad, "y", "neg.npy: number 7 is -1; legal are those of at least 0"),
            ("fortran.npy", np.asfortranarray(x), "x", "fortran.npy: is in Fortran order, where rows are "
             "not together; save numpy.ascontiguousarray(x)"),
            ("big.npy", x.astype(">f4"), "x", "big.npy: its numbers are in the other byte order; save "
             "x.astype(x.dtype.newbyteorder('='))"),
            ("wide.npy", x[:, :3].copy(), "x", "wide.npy")):
        np.save(path(name), value)
        if name == "wide.npy":
            tessera("run", own, "--set", f"data.x={path(name)}", "--steps", "1")
            continue
        _, err = tessera("run", own, "--set", f"data.{option}={path(name)}", code=1)
        # At its key where the file is read to know its sizes, else at the section.
        check(re.search(rf": data(\.{option})?: {re.escape(FOLDER.name + '/' + error)}\n", err), f"{error} in {err}")
    _, err = tessera("run", own, "--set", "data.shape=[5]", code=1)
    check("own_data.yaml" in err and "its rows are of shape (4); the shape is (5)" in err, err)
    _, err = tessera("run", own, "--set", "data.classes=2", code=1)
    check("y.npy: label " in err and " is 2; legal are 0 to 1" in err, err)
    _, err = tessera("run", os.path.join(EXAMPLES, "own_data.yaml"), code=1)
    check("experiments/x.npy" in err and "No such file" in err, err)
    tessera("plan", os.path.join(EXAMPLES, "own_data.yaml"))
    # Rows of any shape, and classes in any number.
    r = tessera_json("run", write("any.yaml", MNIST.replace(
        "dataset: mnist, dir: mnist", "dataset: synthetic, shape: [2,3,2,2,3], classes: 3000, samples: 48")
        + "train: {steps: 4, eval: {every: 4}}\n"))
    near(r["losses"][0], np.log(3000), "of 3000 classes", rel=0.05)
    equal(r["evaluations"][0]["rows"], 256, "rows for tests")


def gpt_without_blocks(weights, ids):
    """Logits of GPT-2 with no layers: a norm of the embeddings, by the embedding again."""
    x = weights["wte.weight"][ids].astype(float) + weights["wpe.weight"][:ids.shape[1]]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x * weights["ln_f.weight"] + weights["ln_f.bias"]) @ weights["wte.weight"].astype(float).T


def check_text():
    """Bytes and tokens: evaluation against NumPy's, on windows that NumPy cuts."""
    rng = np.random.default_rng(4)
    words = ["tessera", "mosaic", "tile", "split", "broadcast", "partial"]
    text = " ".join(rng.choice(words, 900)).encode()
    with open(path("text.txt"), "wb") as f:
        f.write(text)
    np.save(path("tokens.npy"), rng.integers(0, 400, 4000).astype(np.int32))
    yaml = """\
tessera: 1
placements: {all: {ranks: [0, 1]}}
model: {name: gpt, args: {width: 16, heads: 2, layers: 0, dropout: 0}}
data: {dataset: text, %s, context: 32, batch_size: 8, test_part: 0.1}
optimizer: {name: adam, lr: 0.01}
train: {steps: 60, eval: {every: 60}}
"""
    for name, key, ids in (("bytes", "file: text.txt", np.frombuffer(text, np.uint8).astype(int)),
                           ("tokens", "tokens: tokens.npy", np.load(path("tokens.npy")))):
        file = write(name + ".yaml", yaml % key)
        r = tessera_json("run", file, "--out", path(name))
        count = (len(ids) - 1) // 32
        tests = int(count * 0.1)
        first = (count - tests) * 32
        x = ids[first:count * 32].reshape(tests, 32)
        y = ids[first + 1:count * 32 + 1]
        logits = gpt_without_blocks(read_weights(name + "/weights.safetensors"), x)
        logits = logits.reshape(tests * 32, -1)
        equal(logits.shape[1], 256 if name == "bytes" else int(ids.max()) + 1, "vocabulary")
        e = r["evaluations"][0]
        equal(e["rows"], tests, "windows")
        near(e["loss"], softmax_loss(logits, y), f"loss of {name}", rel=1e-4)
        near(e["accuracy"], (logits.argmax(1) == y).mean(), f"accuracy of {name}", rel=1e-9)
        check(r["losses"][-1] < r["losses"][0] - (1 if name == "bytes" else 0), f"it learns {name}: {r['losses']}")
        for a, b in zip(r["losses"], tessera_json("run", file, "--set", "placements.all.ranks=[0,1,2]")["losses"]):
            near(a, b, "losses on three ranks", rel=1e-3)
    # Positions can be split, and a checkpoint goes on in the order of the text's windows.
    near(tessera_json("run", file, "--set", "tensors.input.sbp=S(1)", "--steps", "3")["losses"][-1],
         r["losses"][2], "S(1)", rel=1e-5)
    say = ["--set", f"train.checkpoint.dir={path('textck')}"]
    tessera("run", file, *say, "--steps", "25")
    rest = tessera_json("run", file, *say, "--set", "placements.all.ranks=[0]")
    equal((rest["after_step"], len(rest["losses"])), (25, 35), "the rest")
    for a, b in zip(rest["losses"], r["losses"][25:]):
        near(a, b, "goes on in the epoch", rel=1e-3)
    r = tessera_json("run", file, "--set", "model={name: lstm_lm, args: {width: 8, hidden: 8, dropout: 0}}",
                     "--steps", "2")
    near(r["losses"][0], np.log(400), "an LSTM on tokens", rel=0.02)
    _, err = tessera("run", file, "--set", "data.vocab=300", code=1)
    check("tokens.npy: token " in err and "legal are 0 to 299 (vocab is 300)" in err, err)
    _, err = tessera("run", file, "--set", "data.context=5000", code=1)
    check("tokens.npy: 4000 tokens; a window of context 5000 and the one behind it take 5001" in err, err)
    r = tessera_json("run", os.path.join(EXAMPLES, "text_gpt.yaml"))
    equal((r["ranks"], r["steps"]), (2, 40), "the example")
    check(r["evaluations"][-1]["loss"] < r["losses"][0] - 1.5, f"it learns: {r['losses']}")


def check_graphs():
    """A graph of the file's own that trains on text and on .npy files: with metrics, and going on."""
    yaml = """\
tessera: 1
placements: {a: {ranks: [0, 1]}}
data: {dataset: text, file: text.txt, context: 8, batch_size: 10}
graph:
  x: {op: input, field: x}
  y: {op: input, field: y}
  w: {op: parameter, fill: 0, shape: [256, 256]}
  e: {op: embedding, in: [w, x]}
  z: {op: reshape, in: [e], shape: [80, 256]}
  t: {op: flatten, in: [y], from_axis: 0}
  l: {op: cross_entropy, in: [z, t]}
loss: l
optimizer: {name: adam, lr: 0.1}
train: {steps: 12, metrics: bigrams.jsonl, checkpoint: {dir: bigrams}}
"""
    file = write("bigrams.yaml", yaml)
    whole = tessera_json("run", file, "--set", f"train.checkpoint.dir={path('whole2')}")
    near(whole["losses"][0], np.log(256), "all bytes are as likely", rel=1e-6)
    check(whole["losses"][-1] < 4, f"a graph learns bigrams: {whole['losses']}")
    out, _ = tessera("run", file, "--steps", "5")
    check(out.startswith("graph: 65,536 parameters on 2 ranks (cpu, threads); 5 steps of 10 rows, "), out)
    rest = tessera_json("run", file, "--set", "placements.a.ranks=[0]")
    equal((rest["after_step"], len(rest["losses"])), (5, 7), "a graph goes on")
    for a, b in zip(rest["losses"], whole["losses"][5:]):
        near(a, b, "losses of a graph", rel=1e-4)
    equal([m["step"] for m in of_event(lines_of("bigrams.jsonl"), "step")], list(range(1, 13)), "metrics")
    # Without steps: one epoch, of which there is no evaluation.
    text = yaml.replace("dataset: text, file: text.txt, context: 8", "dataset: npy, x: x.npy, y: y.npy") \
        .replace("shape: [256, 256]", "shape: [4, 3]").replace("  e: {op: embedding, in: [w, x]}\n", "") \
        .replace("op: reshape, in: [e], shape: [80, 256]", "op: matmul, in: [f, w]") \
        .replace("  t: {op: flatten, in: [y], from_axis: 0}\n", "") \
        .replace("in: [z, t]", "in: [z, y]").replace("train: {steps: 12, metrics: bigrams.jsonl, "
                                                     "checkpoint: {dir: bigrams}}\n", "") \
        .replace("  z:", "  f: {op: flatten, in: [x], from_axis: 1}\n  z:")
    r = tessera_json("run", write("linear.yaml", text))
    equal((r["steps"], r["rows"]), (30, 10), "an epoch of 300 rows")
    near(r["losses"][0], np.log(3), "three classes", rel=1e-6)
    check(r["losses"][-1] < 0.5, f"a graph learns rows: {r['losses']}")
    _, err = tessera("run", path("linear.yaml"), "--set", "train.eval.every=3", code=1)
    check("train.eval: the data has no test part: say data.test_part" in err, err)


# --- checkpoints ----------------------------------------------------------------------------------
def check_resume():
    say = "train: {steps: 40, seed: 2, eval: {every: 7}, checkpoint: {dir: %s, every: 9, keep: 0}, " \
          "metrics: %s.jsonl}\n"
    whole = tessera_json("run", write("whole.yaml", MNIST + say % ("whole", "whole")))
    equal(entries("whole"),
          [f"step-{s:08}" for s in (9, 18, 27, 36, 40)] + ["weights.safetensors"], "checkpoints")
    tessera("ckpt", "verify", path("whole"))
    # A run that ends at step 18, or is told to end there, goes on on 3 and on 1 ranks.
    half = write("half.yaml", MNIST + say % ("half", "half"))
    first = tessera_json("run", half, "--steps", "18", "--set", "optimizer.schedule.steps=40")
    equal(first["losses"], whole["losses"][:18], "the first part")
    for ranks, launch in (("[0,1,2]", 0), ("[0,1]", 2)):
        folder = f"half{launch}"
        subprocess.run(["cp", "-r", path("half"), path(folder)], check=True)
        subprocess.run(["cp", path("half.jsonl"), path(folder + ".jsonl")], check=True)
        text = write(folder + ".yaml", MNIST + say % (folder, folder))
        out, _ = tessera("run", text, "--set", f"placements.all.ranks={ranks}", "--out", path("on"),
                         launch=launch)
        check(f"goes on after step 18, from {path(folder)}\n" in out, out)
        with open(path("on/result.json"), encoding="utf-8") as f:
            rest = json.load(f)
        equal((rest["after_step"], rest["steps"], len(rest["losses"])), (18, 22, 22), "the rest")
        for a, b in zip(rest["losses"], whole["losses"][18:]):
            near(a, b, f"losses on {ranks}", rel=1e-4)
        steps = [m["step"] for m in of_event(lines_of(folder + ".jsonl"), "step")]
        equal(steps, list(range(1, 41)), "lines of both parts")
        equal([m["step"] for m in of_event(lines_of(folder + ".jsonl"), "eval")],
              [7, 14, 18, 21, 28, 35, 40], "evaluations of both parts")
    out, _ = tessera("run", text, launch=2)
    check("all 40 steps were done before\n" in out, out)
    _, err = tessera("run", half, "--set", "train.checkpoint.resume=false", code=1)
    check(f"half.yaml:6:59: train.checkpoint: {path('half')}: has checkpoints of another run, and "
          "resume is false: name another folder, or remove them\n" in err, err)
    _, err = tessera("run", half, "--set", "model.args.hidden=17", code=1)
    refused = "found '%s', but the run goes on from " + path("half") + "/step-00000018, which was made with '%s'"
    check("model.args.hidden=17:1:19: model.args.hidden: " + refused % (17, 16) in err, err)
    _, err = tessera("run", half, "--set", "data.batch_size=12", code=1)
    check("data.batch_size=12:1:17: data.batch_size: " + refused % (12, 24) in err, err)
    _, err = tessera("run", half, "--set", "train.checkpoint.dir=/dev/null/x", code=1)
    check("train.checkpoint: /dev/null/x: Not a directory\n" in err, err)


def check_signal(launch):
    """SIGTERM leaves a checkpoint and weights; what follows is what would have been."""
    name = f"term{launch}"
    text = write(name + ".yaml", MNIST + "train: {steps: 100000000, seed: 2, "
                 "checkpoint: {dir: %s}, metrics: %s.jsonl}\n" % (name, name))
    command = [TESSERA] + (["launch", "-n", str(launch), "--", TESSERA] if launch else []) + ["run", text]
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "XDG_CACHE_HOME": CACHE.name, "OMP_NUM_THREADS": "1"})
    until = time.monotonic() + 30
    while time.monotonic() < until and not (os.path.exists(path(name + ".jsonl")) and
                                            os.path.getsize(path(name + ".jsonl")) > 2000):
        time.sleep(0.02)
    p.send_signal(signal.SIGTERM)
    _, err = p.communicate(timeout=60)
    equal(p.returncode, 143, f"SIGTERM: {err}")
    lines = lines_of(name + ".jsonl")
    last = of_event(lines, "step")[-1]["step"]
    equal([m["step"] for m in of_event(lines, "checkpoint")], [last], "the checkpoint of the last step")
    equal(entries(name), [f"step-{last:08}", "weights.safetensors"], "what it leaves")
    check(f"stopped by SIGTERM after step {last} of 100000000" in err, err)
    steps = ["--steps", str(last + 5), "--set", "optimizer.schedule.steps=100000000"]
    r = tessera_json("run", text, *steps)
    whole = tessera_json("run", text, *steps, "--set", "train={seed: 2}")
    equal(r["losses"], whole["losses"][last:], "what would have been, bit for bit")


check_evaluation(*make_mnist())
check_metrics_live()
check_terminal()
check_npy()
check_text()
check_graphs()
check_resume()
for n in (0, 2):
    check_signal(n)
_, error = tessera("run", path("train.yaml"), "--set", "train.metrics=/dev/null/x", code=1)
check("/dev/null/x: Not a directory" in error, error)
_, error = tessera("run", path("train.yaml"), "--set", "train.tensorboard=/dev/null/x", code=1)
check("/dev/null/x: Not a directory" in error, error)

# Own layers take rows as the file says them; an image's sizes of 1 in front make no difference.
ROWS = """\
tessera: 1
mesh: {dp: 2}
model: {layers: [FIRST{layer: linear, name: a, in: 6, out: 16}, relu, {layer: linear, name: b, in: 16, out: 3}]}
data: {dataset: synthetic, shape: SHAPE, classes: 3, samples: 64, batch_size: 16}
train: {steps: 3}
"""
said = []
for shape, first in (("[6]", ""), ("[1, 1, 6]", "flatten, ")):
    with open(path("rows.yaml"), "w", encoding="utf-8") as f:
        f.write(ROWS.replace("SHAPE", shape).replace("FIRST", first))
    said.append(re.findall(r"loss ([0-9.]+)", tessera("run", path("rows.yaml"))[0]))
equal(said[0], said[1], "rows of one axis")
equal(len(said[0]), 3, "their steps")

# More buckets of gradients than a group of a communicator holds calls.
with open(path("buckets.yaml"), "w", encoding="utf-8") as f:
    f.write("""\
tessera: 1
mesh: {dp: 2}
strategy: zero2
model: {name: mobilenet_v2, args: {width: 0.1, bn: local, variant: cifar}}
data: {dataset: synthetic, shape: [3, 8, 8], classes: 4, samples: 32, batch_size: 16}
optimizer: {name: lamb, lr: 0.01}
train: {steps: 1}
""")
check("step 1: loss" in tessera("run", path("buckets.yaml"))[0], "many buckets")
done()
