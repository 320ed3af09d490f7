#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes mobilenet_v2_names.h: names and shapes of a MobileNetV2 made of torch.nn modules, nested as
torchvision nests them. Run with a Python that has torch:

    python3 tests/unit/data/mobilenet_v2_names.py > tests/unit/data/mobilenet_v2_names.h
"""
from torch import nn


def divisible(v):
    n = max(8, int(v + 4) // 8 * 8)
    return n + 8 if n < 0.9 * v else n


def unit(i, o, k=3, s=1, g=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, (k - 1) // 2, groups=g, bias=False),
                         nn.BatchNorm2d(o), nn.ReLU6())


class Block(nn.Module):
    def __init__(self, i, o, s, t):
        super().__init__()
        h = i * t
        self.conv = nn.Sequential(*([unit(i, h, 1)] if t != 1 else []), unit(h, h, 3, s, h),
                                  nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))


class Net(nn.Module):
    def __init__(self, classes, width=1.0):
        super().__init__()
        i = divisible(32 * width)
        last = divisible(1280 * max(1.0, width))
        parts = [unit(3, i, 3, 2)]
        for t, c, n, s in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                           (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
            o = divisible(c * width)
            for k in range(n):
                parts.append(Block(i, o, s if k == 0 else 1, t))
                i = o
        self.features = nn.Sequential(*parts, unit(i, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))


def count(net):
    return sum(p.numel() for p in net.parameters())


print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Made by mobilenet_v2_names.py. */")
print("static const struct {\n    const char *name;\n    long long shape[4];\n} torch_entries[] = {")
for name, value in Net(10).state_dict().items():
    if not name.endswith("num_batches_tracked"):
        print('    {"%s", {%s}},' % (name, ", ".join(str(d) for d in value.shape)))
print("};")
print("static const struct {\n    int classes;\n    double width;\n    long long count;\n"
      "} torch_counts[] = {")
for classes, width in [(10, 1.0), (1000, 1.0), (10, 0.35), (100, 0.75), (1000, 1.4)]:
    print("    {%d, %g, %d}," % (classes, width, count(Net(classes, width))))
print("};")
