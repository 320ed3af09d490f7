# SPDX-License-Identifier: Apache-2.0
"""The PyTorch side of the parity tests: the same three models, with torchvision's names where it
has them, safetensors read and written from their specification, and a plain SGD loop."""
import json
import math
import struct

import numpy as np
import torch
from torch import nn

DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64}


def save_safetensors(path, state):
    header, blobs, at = {}, [], 0
    for name, t in state.items():
        a = np.ascontiguousarray(t.detach().numpy())
        kind = {"float32": "F32", "float64": "F64", "int64": "I64"}[str(a.dtype)]
        header[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [at, at + a.nbytes]}
        blobs.append(a.tobytes())
        at += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def load_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    data = raw[8 + n:]
    out = {}
    for name, e in header.items():
        if name == "__metadata__":
            continue
        b, end = e["data_offsets"]
        out[name] = torch.from_numpy(
            np.frombuffer(data[b:end], DTYPES[e["dtype"]]).reshape(e["shape"]).copy())
    return out


def number(d):
    """A difference; infinite if it is NaN, which max() and > pass over."""
    return d if d == d else math.inf


def relative(got, want):
    """max |a - b| / |b| over two lists of losses."""
    if len(got) != len(want) or not want:
        return math.inf
    return max(number(abs(a - b) / abs(b)) for a, b in zip(got, want))


class ConvBN(nn.Sequential):
    def __init__(self, cin, cout, kernel=3, stride=1, groups=1, act=nn.ReLU6):
        super().__init__(
            nn.Conv2d(cin, cout, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
            nn.BatchNorm2d(cout), act())


class Residual(nn.Module):
    def __init__(self, cin, cout, stride, expand, act):
        super().__init__()
        hidden = cin * expand
        layers = [ConvBN(cin, hidden, 1, act=act)] if expand != 1 else []
        layers += [ConvBN(hidden, hidden, 3, stride, hidden, act),
                   nn.Conv2d(hidden, cout, 1, bias=False), nn.BatchNorm2d(cout)]
        self.conv = nn.Sequential(*layers)
        self.skip = stride == 1 and cin == cout

    def forward(self, x):
        return x + self.conv(x) if self.skip else self.conv(x)


class MobileNetV2(nn.Module):
    """torchvision.models.mobilenet_v2 (BSD-3 project; written anew from the paper's table)."""

    def __init__(self, classes=10, dropout=0.0, variant="torchvision", act=nn.ReLU6):
        super().__init__()
        stem, second = {"torchvision": (2, 2), "stem1": (1, 2), "cifar": (1, 1)}[variant]
        table = [(1, 16, 1, 1), (6, 24, 2, second), (6, 32, 3, 2), (6, 64, 4, 2),
                 (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
        layers, cin = [ConvBN(3, 32, 3, stem, act=act)], 32
        for expand, cout, n, stride in table:
            for i in range(n):
                layers.append(Residual(cin, cout, stride if i == 0 else 1, expand, act))
                cin = cout
        layers.append(ConvBN(cin, 1280, 1, act=act))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean([2, 3]))


class ConvNet(nn.Module):
    def __init__(self, classes=10, channels=3, size=32):
        super().__init__()

        def layer(cin, cout):
            return nn.Sequential(nn.Conv2d(cin, cout, 5, padding=2), nn.BatchNorm2d(cout),
                                 nn.ReLU(), nn.MaxPool2d(2))
        self.layer1, self.layer2 = layer(channels, 16), layer(16, 32)
        self.fc = nn.Linear(32 * (size // 4) ** 2, classes)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).flatten(1))


class Mlp(nn.Sequential):
    def __init__(self, inputs=3072, hidden=128, classes=10):
        super().__init__(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, x):
        return super().forward(x.flatten(1))


MODELS = {"mobilenet_v2": MobileNetV2, "convnet": ConvNet, "mlp": Mlp}


def read_cifar10(directory, count):
    raw = b""
    for i in range(1, 6):
        with open(f"{directory}/data_batch_{i}.bin", "rb") as f:
            raw += f.read()
        if len(raw) >= count * 3073:
            break
    a = np.frombuffer(raw[:count * 3073], np.uint8).reshape(-1, 3073)
    images = a[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / np.float32(255)
    return torch.from_numpy(images), torch.from_numpy(a[:, 0].astype(np.int64))


def train(net, images, labels, batch, steps, lr, momentum=0.0, dtype=torch.float64):
    """Returns the losses; net is changed in place."""
    net.to(dtype).train()
    opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=momentum)
    losses = []
    for i in range(steps):
        x = images[i * batch:(i + 1) * batch].to(dtype)
        y = labels[i * batch:(i + 1) * batch]
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses
