# SPDX-License-Identifier: Apache-2.0
"""The nets of nets.c as the peers of scripts/bench see them: shapes and values of inputs and parameters, which
are equal on all sides, and the lines in which a peer answers."""
import json
import math
import re
import sys
import time
from collections import namedtuple

import numpy as np

# A sample's shape; below which the ids of the input lie (0: numbers); the same of a second input, whose numbers have
# no axis of samples; the type of numbers; whether the loss is the mean square of the result, not the cross entropy.
Net = namedtuple("Net", "row vocab second second_vocab dtype squares", defaults=(0, (), 0, "f32", False))
SMALL, LARGE = Net((3, 32, 32)), Net((3, 224, 224))
NETS = {
    **dict.fromkeys(("mobilenet_v2", "mobilenet_v2_cifar", "resnet18_cifar", "lenet", "convnet", "mlp"), SMALL),
    **dict.fromkeys(("mobilenet_v2_224", "resnet18_224", "resnet50", "vgg16", "efficientnet_b0", "convnext_t", "vit"), LARGE),
    **dict.fromkeys(("gpt", "lstm_lm", "transformer"), Net((256,), 256)),
    "gpt_2048": Net((2048,), 256),
    "bert": Net((128,), 30522),
    "dcgan": Net((100, 1, 1), squares=True),
    "unet": Net((3, 128, 128), squares=True),
    "dlrm": Net((13,), 0, (26,), 10000, squares=True),
    "linear_f64": Net((512,), dtype="f64", squares=True),
    "conv_f64": Net((32, 56, 56), dtype="f64", squares=True),
    "lstm_f64": Net((200, 1), dtype="f64", squares=True),
}
TYPES = {"f32": np.float32, "f64": np.float64}


def net_of(name):
    """Returns the net of a name; matmul_MxKxN is a product of two inputs, weight_MxKxN one by a parameter."""
    product = re.fullmatch(r"(matmul|weight)_(\d+)x(\d+)x(\d+)", name)
    if not product:
        return NETS[name]
    m, k, n = map(int, product.groups()[1:])
    return Net((m, k), second=(k, n) if product[1] == "matmul" else (), squares=True)


def input_values(shape, vocab, dtype):
    at = np.arange(math.prod(shape)) * 7919 % 10007
    return (at % vocab if vocab else (at / 10007).astype(TYPES[dtype])).reshape(shape)


def inputs(net, batch):
    values = [input_values((batch, *net.row), net.vocab, net.dtype)]
    if net.second:
        shape = (batch, *net.second) if net.second_vocab else net.second
        values.append(input_values(shape, net.second_vocab, net.dtype))
    return values


def labels(count, classes):
    return np.arange(count) * 3 % min(classes, 10)


def fill(name, shape, dtype="f32"):
    """Returns a parameter's values, which are those of bench_fill in nets_parts.c."""
    i = np.arange(math.prod(shape), dtype=np.uint32)
    i *= np.uint32(2654435761)
    i ^= i >> np.uint32(16)
    i *= np.uint32(2246822519)
    i ^= i >> np.uint32(13)
    base = 1 if len(shape) == 1 and name.endswith("weight") else 0
    scale = math.sqrt(6 * shape[0] / math.prod(shape)) if len(shape) > 1 else 0.1
    return (base + scale * (i / 2 ** 31 - 1)).astype(TYPES[dtype]).reshape(shape)


def say(**values):
    print(json.dumps(values), flush=True)


def refuse(reason):
    """Tells scripts/bench that this peer does not have the case, and ends."""
    say(refused=reason)
    sys.exit(0)


def timed(step, steps):
    """Runs a step that is not timed, and some that are. A step returns its loss."""
    step()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        loss = step()
        times.append(1e3 * (time.perf_counter() - start))
    if not math.isfinite(loss):
        sys.exit("the loss is not finite")
    return {"ms": times, "loss": loss}


def size(result):
    """Returns the root of the mean square of a result."""
    return float(np.sqrt(np.mean(np.square(np.asarray(result, dtype=np.float64)))))
