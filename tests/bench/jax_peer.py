#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX's side of scripts/bench: inference and training steps, compiled by jax.jit, of those nets of nets.c that are
short to write in it: NETS below, and products. On one rank and in the nets' own types.

usage: jax_peer.py nets NET train|infer BATCH 1 THREADS

Threads are those of XLA's own pool, whose size NPROC sets.
"""
import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["NPROC"] = sys.argv[6]
    if sys.argv[6] == "1":
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bench_data  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


# --- layers: p(name, *shape) returns a parameter --------------------------------------------------
def linear(p, name, x, out):
    return x @ p(name + ".weight", out, x.shape[-1]).T + p(name + ".bias", out)


def columns(p, name, x, out):
    """A linear layer whose weight is (in,out)."""
    return x @ p(name + ".weight", x.shape[-1], out) + p(name + ".bias", out)


def layer_norm(p, name, x, eps=1e-5):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    width = x.shape[-1]
    return (x - mean) * jax.lax.rsqrt(variance + eps) * p(name + ".weight", width) + p(name + ".bias", width)


def conv(p, name, x, out, kernel, stride=1, padding=0, bias=True):
    """A convolution of x (n,h,w,c), the layout that XLA prefers on CPUs."""
    weight = p(name + ".weight", out, x.shape[3], kernel, kernel).transpose(2, 3, 1, 0)
    y = jax.lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2,
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + p(name + ".bias", out) if bias else y


def max_pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def attend(q, k, v, heads, causal=False):
    """Returns the attention of q, k and v (b,s,width)."""
    q, k, v = (t.reshape(*t.shape[:2], heads, -1) for t in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal).reshape(*q.shape[:2], -1)


def encoder_layer(p, name, x, heads, norm_first, eps):
    width = x.shape[-1]

    def attention(x):
        return linear(p, name + ".out", attend(*jnp.split(linear(p, name + ".qkv", x, 3 * width), 3, -1), heads), width)

    def inner(x):
        return linear(p, name + ".down", jax.nn.gelu(linear(p, name + ".up", x, 4 * width), approximate=False), width)

    def norm(i, x):
        return layer_norm(p, f"{name}.norm{i}", x, eps)
    if norm_first:
        x = x + attention(norm(1, x))
        return x + inner(norm(2, x))
    x = norm(1, x + attention(x))
    return norm(2, x + inner(x))


# --- nets -----------------------------------------------------------------------------------------
def mlp(p, x):
    return linear(p, "2", jax.nn.relu(linear(p, "0", x.reshape(len(x), -1), 1024)), 10)


def lenet(p, x):
    x = x.transpose(0, 2, 3, 1)
    for i, out in enumerate((6, 16)):
        x = max_pool(jax.nn.relu(conv(p, f"conv{i}", x, out, 5)))
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return linear(p, "fc3", jax.nn.relu(linear(p, "fc2", jax.nn.relu(linear(p, "fc1", x, 120)), 84)), 10)


def gpt(p, ids, width=384, heads=6, layers=6):
    words = p("wte.weight", 256, width)
    x = words[ids] + p("wpe.weight", ids.shape[1], width)
    for i in range(layers):
        y = columns(p, f"{i}.c_attn", layer_norm(p, f"{i}.ln_1", x), 3 * width)
        x = x + columns(p, f"{i}.proj", attend(*jnp.split(y, 3, -1), heads, True), width)
        y = jax.nn.gelu(columns(p, f"{i}.fc", layer_norm(p, f"{i}.ln_2", x), 4 * width), approximate=True)
        x = x + columns(p, f"{i}.down", y, width)
    return layer_norm(p, "ln_f", x) @ words.T


def transformer(p, ids, width=256, heads=4, layers=4):
    x = p("tok_emb.weight", 256, width)[ids] + p("pos_emb.weight", ids.shape[1], width)
    for i in range(layers):
        y = layer_norm(p, f"{i}.norm1", x)
        y = attend(*(linear(p, f"{i}.{n}", y, width) for n in "qkv"), heads, True)
        x = x + linear(p, f"{i}.proj", y, width)
        y = jax.nn.gelu(linear(p, f"{i}.fc1", layer_norm(p, f"{i}.norm2", x), 4 * width), approximate=False)
        x = x + linear(p, f"{i}.fc2", y, width)
    return layer_norm(p, "norm", x) @ p("head.weight", 256, width).T


def vit(p, x, width=384):
    x = conv(p, "patch", x.transpose(0, 2, 3, 1), width, 16, 16).reshape(len(x), -1, width)
    first = jnp.broadcast_to(p("class_token", 1, 1, width), (len(x), 1, width))
    x = jnp.concatenate((first, x), 1)
    x = x + p("positions", 1, x.shape[1], width)
    for i in range(12):
        x = encoder_layer(p, f"{i}", x, 6, True, 1e-6)
    return linear(p, "head", layer_norm(p, "norm", x)[:, 0], 1000)


def bert(p, ids, width=768):
    x = p("words.weight", 30522, width)[ids] + p("positions.weight", 512, width)[:ids.shape[1]]
    x = layer_norm(p, "norm", x + p("segments.weight", 2, width)[0], 1e-12)
    for i in range(12):
        x = encoder_layer(p, f"{i}", x, 12, False, 1e-12)
    return linear(p, "head", jnp.tanh(linear(p, "pooler", x[:, 0], width)), 2)


def dlrm(p, x, ids, width=64):
    for i, out in enumerate((512, 256, width)):
        x = jax.nn.relu(linear(p, f"lower{i}", x, out))
    rows = jnp.stack([x, *(p(f"table{i}.weight", 10000, width)[ids[:, i]] for i in range(26))], 1)
    pairs = jnp.einsum("nik,njk->nij", rows, rows)[:, *jnp.tril_indices(27, -1)]
    x = jnp.concatenate((x, pairs), 1)
    for i, out in enumerate((512, 256)):
        x = jax.nn.relu(linear(p, f"upper{i}", x, out))
    return jax.nn.sigmoid(linear(p, "upper2", x, 1))


NETS = {"mlp": mlp, "lenet": lenet, "gpt": gpt, "gpt_2048": gpt, "transformer": transformer, "vit": vit, "bert": bert,
        "dlrm": dlrm, "linear_f64": lambda p, x: linear(p, "0", x, 512),
        "conv_f64": lambda p, x: conv(p, "0", x.transpose(0, 2, 3, 1), 64, 3, 1, 1).transpose(0, 3, 1, 2)}


def function_of(name):
    if name.startswith("matmul_"):
        return lambda p, x, y: x.reshape(-1, x.shape[-1]) @ y
    if name.startswith("weight_"):
        k, n = map(int, name.split("x")[1:])
        return lambda p, x: x.reshape(-1, k) @ p("weight", k, n)
    return NETS.get(name)


# --- steps ----------------------------------------------------------------------------------------
def parameters_of(function, net, inputs):
    """Returns the net's parameters with the values of bench_data."""
    shapes = {}

    def note(name, *shape):
        shapes[name] = shape
        return jnp.zeros(shape, net.dtype.replace("f", "float"))
    jax.eval_shape(lambda *x: function(note, *x), *inputs)
    return {name: jnp.asarray(bench_data.fill(name, shape, net.dtype)) for name, shape in shapes.items()}


def inference(function, values, inputs):
    apply = jax.jit(lambda values, *x: function(lambda name, *_: values[name], *x))
    result = [None]

    def step():
        result[0] = apply(values, *inputs)
        return float(result[0].block_until_ready().ravel()[0])
    return step, lambda: {"size": bench_data.size(result[0])}


def training(function, net, values, inputs):
    """Returns a step of SGD with momentum and weight decay, which keeps its state in the memory that it gets."""
    def loss_of(values, *x):
        result = function(lambda name, *_: values[name], *x)
        if net.squares:
            return jnp.square(result).mean()
        logits = jax.nn.log_softmax(result.reshape(-1, result.shape[-1]))
        labels = jnp.asarray(bench_data.labels(*logits.shape))
        return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    def update(values, momenta, *x):
        loss, gradients = jax.value_and_grad(loss_of)(values, *x)
        momenta = jax.tree.map(lambda v, m, g: 0.9 * m + g + 5e-4 * v, values, momenta, gradients)
        return jax.tree.map(lambda v, m: v - 0.01 * m, values, momenta), momenta, loss
    update = jax.jit(update, donate_argnums=(0, 1))
    state = [values, jax.tree.map(jnp.zeros_like, values)]

    def step():
        *state[:], loss = update(*state, *inputs)
        return float(loss)
    return step, dict


def nets(name, mode, batch, ranks, threads):
    del threads  # set above, before JAX was imported
    function, net = function_of(name), bench_data.net_of(name)
    if not function or mode not in ("infer", "train") or ranks != "1":
        bench_data.refuse("it has no such case")
    jax.config.update("jax_enable_x64", net.dtype == "f64")
    inputs = [jnp.asarray(x) for x in bench_data.inputs(net, int(batch))]
    values = parameters_of(function, net, inputs)
    step, more = inference(function, values, inputs) if mode == "infer" else training(function, net, values, inputs)
    bench_data.say(parameters=sum(v.size for v in values.values()), jax=jax.__version__)
    for line in sys.stdin:
        bench_data.say(**bench_data.timed(step, int(line)), **more())


if __name__ == "__main__":
    nets(*sys.argv[2:])
