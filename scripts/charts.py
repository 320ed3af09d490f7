#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what scripts/demo --hour and scripts/bench measured, as SVG.

usage: charts.py POINTS.jsonl OUT.svg

The points are test accuracies of a training, as the example mobilenet_v2_cifar10 writes them with --curve; they are
drawn by minutes. `scripts/bench --chart` draws the speeds of nets.
"""
import json
import re
import sys
from html import escape

WIDTH = 720
STYLE = """<style>
  text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1b212b; }
  .title { font-size: 15px; font-weight: 600; } .quiet { fill: #5c6675; font-size: 12px; } .end { text-anchor: end; }
  .middle { text-anchor: middle; } .back { fill: #ffffff; stroke: #dde1e7; } .grid { stroke: #dde1e7; } .one { stroke: #5c6675; }
  .bar { fill: #2f7de1; } .line { fill: none; stroke: #2f7de1; stroke-width: 2; } .dot { fill: #2f7de1; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e9f1; } .quiet { fill: #99a4b5; } .back { fill: #1a202a; stroke: #2f3846; } .grid { stroke: #2f3846; }
    .one { stroke: #99a4b5; } .bar, .dot { fill: #4f9bf5; } .line { stroke: #4f9bf5; }
  }
</style>"""


def number(x):
    return f"{x:.1f}".rstrip("0").rstrip(".")


def text(x, y, words, style=""):
    return f'<text x="{number(x)}" y="{number(y)}"' + (f' class="{style}"' if style else "") + f">{escape(words)}</text>"


def line(x1, y1, x2, y2, style):
    return f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" class="{style}"/>'


def page(height, title, note, parts):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">\n'
            f'{STYLE}\n<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" class="back"/>')
    return "\n".join([head, text(16, 26, title, "title"), text(16, 44, note, "quiet"), *parts, "</svg>\n"])


# --- bars -----------------------------------------------------------------------------------------
NETS = {"mobilenet_v2": "MobileNetV2", "mobilenet_v2_cifar": "MobileNetV2 (cifar)", "mobilenet_v2_224": "MobileNetV2 (224)",
        "resnet18_cifar": "ResNet-18", "resnet18_224": "ResNet-18 (224)", "resnet50": "ResNet-50", "vgg16": "VGG-16",
        "efficientnet_b0": "EfficientNet-B0", "convnext_t": "ConvNeXt-T", "dcgan": "DCGAN generator", "unet": "U-Net",
        "vit": "ViT-S/16", "bert": "BERT-base", "gpt": "GPT, 6 layers of 384", "gpt_2048": "GPT, 2048 tokens",
        "transformer": "Transformer", "lstm_lm": "LSTM language model", "dlrm": "DLRM", "lenet": "LeNet", "convnet": "ConvNet",
        "mlp": "MLP", "linear_f64": "linear layer, f64", "conv_f64": "convolution, f64", "lstm_f64": "LSTM, f64"}
MODES = {"train": "training step", "train_bf16": "training step, bf16", "infer": "inference", "infer_bf16": "inference, bf16"}
PEERS = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "jax": "JAX"}


def speed_rows(results, setup="1x2"):
    """[(net, mode, batch, milliseconds, the fastest peer's over Tessera's)] of a file's nets; products come last."""
    rows = []
    for name, case in results["cases"].items():
        words = name.split("/")
        if len(words) == 4 and words[3] == setup and case["ratio"]:
            rows.append((words[0], words[1], int(words[2]), case["ms"]["tessera"], min(r[0] for r in case["ratio"].values())))
    order = list(NETS)
    return sorted(rows, key=lambda r: (order.index(r[0]) if r[0] in NETS else len(order), r[0], r[1], r[2]))


def speed_label(net, mode, batch):
    if net.startswith(("matmul_", "weight_")):
        of, _, shape = net.partition("_")
        return f"{'product' if of == 'matmul' else 'product by a weight'} {shape.replace('x', ' x ')}"
    return f"{NETS.get(net, net)}, batch {batch}: {MODES[mode]}"


def speed_note(results, setup="1x2"):
    """Says against which peers the bars are, and on which machine."""
    peers = sorted({n for name, c in results["cases"].items() if name.endswith("/" + setup) for n in c["ratio"]})
    words = [p.replace(p.split()[0], PEERS.get(p.split()[0], p.split()[0]), 1) for p in peers]
    machine = results["machine"]
    if all(re.fullmatch(r"torch \S+", p) for p in peers):
        return f"the faster of {' and '.join(words)} (eager) takes so many times as long; {machine['cores']} cores, {machine['cpu']}, f32"
    return f"the fastest of {', '.join(words)} takes so many times as long; {machine['cores']} cores"


def speed(results):
    rows = speed_rows(results)
    if not rows:
        sys.exit("charts.py: the file has no net that a peer was compared in, on one rank of 2 threads")
    left, top, pitch = 310, 62, 24
    most = max(*(r[4] for r in rows), 1)
    scale = (WIDTH - left - 50) / most
    bottom = top + pitch * len(rows)
    parts = [line(left + scale, top - 4, left + scale, bottom, "one"), text(left + scale, bottom + 14, "as fast", "quiet middle")]
    for i, (net, mode, batch, ms, ratio) in enumerate(rows):
        y = top + pitch * i
        parts += [text(left - 10, y + 14, speed_label(net, mode, batch), "end"),
                  f'<rect x="{left}" y="{y + 2}" width="{number(scale * ratio)}" height="{pitch - 7}" rx="2" class="bar"/>',
                  text(left + scale * ratio + 6, y + 14, f"{ratio:.1f}" if ratio >= 1.2 else f"{ratio:.2f}")]
    note = speed_note(results)
    title = "Speed beside PyTorch" if note.startswith("the faster of") else "Speed beside the fastest peer"
    return page(bottom + 26, title, note, parts)


# --- curves ---------------------------------------------------------------------------------------
def step_of(most, room):
    """The least of 1, 2, 5, 10, 20, ... of which at most `room` fit into `most`."""
    power = 1
    while True:
        for k in (1, 2, 5):
            if most / (k * power) <= room:
                return k * power
        power *= 10


def curve(points):
    left, right, top, bottom = 52, WIDTH - 24, 64, 300
    most = points[-1]["seconds"] / 60
    x = lambda minutes: left + (right - left) * minutes / most  # noqa: E731
    low = min(50, 10 * int(min(p["accuracy"] for p in points) // 10))
    y = lambda percent: bottom - (bottom - top) * (percent - low) / (100 - low)  # noqa: E731
    parts = []
    for percent in range(low, 101, 10):
        parts += [line(left, y(percent), right, y(percent), "grid"), text(left - 8, y(percent) + 4, f"{percent} %", "quiet end")]
    step = step_of(most, 12)
    for minutes in range(0, int(most) + 1, step):
        parts.append(text(x(minutes), bottom + 18, f"{minutes}", "quiet middle"))
    parts.append(text((left + right) / 2, bottom + 36, "minutes", "quiet middle"))
    for before, now in zip(points, points[1:]):
        if before["pixels"] != now["pixels"]:
            at = x(before["seconds"] / 60)
            parts += [line(at, top, at, bottom, "grid"), text(at + 4, top + 12, f"{now['pixels']} x {now['pixels']} pixels", "quiet")]
    places = [(x(p["seconds"] / 60), y(p["accuracy"])) for p in points]
    parts.append('<path d="M' + "L".join(f"{number(a)} {number(b)}" for a, b in places) + '" class="line"/>')
    parts += [f'<circle cx="{number(a)}" cy="{number(b)}" r="3" class="dot"/>' for a, b in places]
    last = points[-1]
    parts.append(text(places[-1][0], places[-1][1] - 10, f"{last['accuracy']:.1f} %", "end"))
    note = f"{last['epoch']:.3g} epochs in {most:.0f} minutes" + (f"; {last['machine']}" if "machine" in last else "")
    return page(bottom + 50, "Test accuracy of MobileNetV2 on CIFAR-10", note, parts)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        points = [json.loads(row) for row in f if row.strip()]
    if not points:
        sys.exit(f"charts.py: {sys.argv[1]} has no points")
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write(curve(points))


if __name__ == "__main__":
    main()
