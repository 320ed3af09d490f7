# SPDX-License-Identifier: Apache-2.0
"""PyTorch's calls in Tessera's: a function for each op of PyTorch's database that docs/ops.md maps, with PyTorch's
parameters. It declares the ops of the graph section of an experiment and returns the results; Refused says
which of PyTorch's options Tessera's call does not have.

OPS[name] is the function of an op, or of name/variant. DOC[name] is what docs/ops.md calls it, where that differs from
the name without "nn.functional." and the variant.
"""
import inspect
import math

import torch

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
          torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8", torch.bool: "bool"}
OPS = {}
DOC = {"__getitem__": "x[a:b:c]", "_scaled_dot_product_attention": "scaled_dot_product_attention", "true_divide": "div",
       "constant_pad_nd": "pad", "split_with_sizes": "split", "zeros_like": "zeros", "ones_like": "ones",
       **dict.fromkeys("bfloat16 bool byte char half int short".split(), "to")}
# Results that are ids along an axis, where PyTorch leaves open which of equal elements they name: their number, and the axis.
ALONG = (1, lambda g: next((a["axis"] for _, _, a in g.entries if "axis" in a), -1))
IDS = {"topk": ALONG, "kthvalue": ALONG, "median": ALONG, "sort": ALONG, "argsort": (0, ALONG[1])}


class Refused(Exception):
    """The sample has no counterpart; the text is an option and what of it is missing."""


class Undefined(Refused):
    """PyTorch's result is random, or whatever it happens to be."""


def no(condition, why):
    if condition:
        raise Refused(why)


class Ref(str):
    """The name of a tensor of the graph."""


def spread(g, shape, x):
    """x in a shape that it broadcasts to."""
    return x if x.shape == shape else g.expand(x, shape=list(shape))


class Graph:
    """The entries so far. graph.relu(x) adds one; tensors of PyTorch become operands, numbers after a tensor scalars of its dtype."""

    def __init__(self):
        self.operands, self.entries = [], []
        self.variables, self.training = [], False  # operands that are variables; a graph of training

    def operand(self, x, like=None):
        if isinstance(x, Ref):
            return x
        if not isinstance(x, torch.Tensor):
            no(isinstance(x, float) and not like.dtype.is_floating_point or isinstance(x, int) and like.dtype == torch.bool,
               "numbers of another type than the tensor's")
            x = torch.tensor(x, dtype=like.dtype)
        for i, known in enumerate(self.operands):
            if known is x:
                return Ref(f"x{i}")
        no(x.dtype not in DTYPES, f"operands of {x.dtype}")
        self.operands.append(x)
        return Ref(f"x{len(self.operands) - 1}")

    def __getattr__(self, op):
        def add(*operands, **attributes):
            names = [self.operand(x) for x in operands]
            self.entries.append((op, names, {k: v for k, v in attributes.items() if v is not None}))
            return Ref(f"r{len(self.entries) - 1}")
        return add


def drawn(condition):
    if condition:
        raise Undefined("random numbers")


def is_number(x):
    return isinstance(x, (int, float, bool))


def op(*names):
    def add(f):
        for name in names:
            OPS[name] = f
        return f
    return add


def dtype_name(dtype):
    no(dtype not in DTYPES, f"dtype: {dtype}")
    return DTYPES[dtype]


def as_list(x, n=None):
    """A number for all axes, or a list of them, as a list."""
    x = list(x) if isinstance(x, (tuple, list, torch.Size)) else [x]
    return x * n if n and len(x) == 1 else x


# --- element by element
PLAIN = """abs neg sign square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh
           cosh asinh acosh atanh erf erfc floor ceil trunc isnan isinf isfinite logical_not sigmoid tanh"""
for name in PLAIN.split():
    OPS[name] = lambda g, x, name=name: getattr(g, name)(x)
for name in "relu relu6 hardsigmoid hardswish silu mish softsign selu logsigmoid tanhshrink".split():
    OPS["nn.functional." + name] = lambda g, x, inplace=False, name=name: getattr(g, name)(x)


@op("round")
def round_(g, x, decimals=0):
    no(decimals, "decimals")
    return g.round(x)


@op("frac")
def frac(g, x):
    return g.sub(x, g.trunc(x))


@op("logit")
def logit(g, x, eps=None):
    no(eps is not None, "eps")
    return g.logit(x)


@op("nn.functional.leaky_relu")
def leaky_relu(g, x, negative_slope=0.01, inplace=False):
    return g.leaky_relu(x, slope=negative_slope)


@op("nn.functional.elu")
def elu(g, x, alpha=1.0, inplace=False):
    return g.elu(x, alpha=alpha)


@op("nn.functional.celu")
def celu(g, x, alpha=1.0, inplace=False):
    return g.celu(x, alpha=alpha)


@op("nn.functional.softshrink", "nn.functional.hardshrink")
def shrink(g, x, lambd=0.5):
    return getattr(g, g.op)(x, edge=lambd)


@op("nn.functional.hardtanh")
def hardtanh(g, x, min_val=-1.0, max_val=1.0, inplace=False):
    return g.hardtanh(x, low=min_val, high=max_val)


@op("nn.functional.threshold")
def threshold(g, x, threshold, value, inplace=False):
    return g.threshold(x, edge=threshold, value=value)


@op("nn.functional.softplus")
def softplus(g, x, beta=1, threshold=20):
    no(beta != 1, "beta")
    no(threshold != 20, "threshold")
    return g.softplus(x)


@op("nn.functional.gelu")
def gelu(g, x, approximate="none"):
    return g.gelu(x, form="erf" if approximate == "none" else approximate)


@op("nn.functional.prelu")
def prelu(g, x, weight):
    return g.prelu(x, weight if weight.dim() else g.reshape(weight, shape=[1]))


@op("nn.functional.rrelu")
def rrelu(g, x, lower=0.125, upper=1 / 3, training=False, inplace=False):
    drawn(training)
    return g.rrelu(x, low=lower, high=upper)


@op("nn.functional.glu")
def glu(g, x, dim=-1):
    return g.glu(x, axis=dim)


@op("clamp")
def clamp(g, x, min=None, max=None):
    no(isinstance(min, torch.Tensor) or isinstance(max, torch.Tensor), "min, max: tensors")
    return g.clamp(x, low=min, high=max)


@op("clamp_min")
def clamp_min(g, x, min):
    return clamp(g, x, min)


@op("clamp_max")
def clamp_max(g, x, max):
    return clamp(g, x, None, max)


def tensor_first(g, x, other):
    no(is_number(x) and is_number(other), "two numbers")
    return x if isinstance(x, torch.Tensor) else g.operand(x, other)


@op("add", "sub")
def add(g, x, other, alpha=1):
    x = tensor_first(g, x, other)
    if is_number(other):
        return getattr(g, g.op + "_scalar")(x, a=other * alpha)
    return getattr(g, g.op)(x, other if alpha == 1 else g.mul_scalar(other, a=alpha))


@op("mul")
def mul(g, x, other):
    x = tensor_first(g, x, other)
    return g.mul_scalar(x, a=other) if is_number(other) else g.mul(x, other)


@op("div/no_rounding_mode", "div/floor_rounding", "div/trunc_rounding", "true_divide")
def div(g, x, other, rounding_mode=None):
    like = x if isinstance(x, torch.Tensor) else other
    x = tensor_first(g, x, other)
    if rounding_mode == "floor":
        return g.floor_divide(x, g.operand(other, like))
    y = g.div_scalar(x, a=other) if is_number(other) else g.div(x, other)
    return g.trunc(g.detach(y)) if rounding_mode == "trunc" else y


@op("pow")
def pow_(g, x, exponent):
    if not isinstance(x, torch.Tensor):
        return g.pow(g.operand(x, exponent), exponent)
    return g.pow_scalar(x, p=exponent) if is_number(exponent) else g.pow(x, exponent)


NAMES = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
         "max/binary": "maximum", "min/binary": "minimum"}


@op("remainder", "fmod", "floor_divide", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift",
    "bitwise_right_shift", "maximum", "minimum", "logical_and", "logical_or", "logical_xor", *NAMES)
def two(g, x, other):
    no(is_number(x) and is_number(other), "two numbers")
    like = x if isinstance(x, torch.Tensor) else other
    return getattr(g, NAMES.get(g.op, g.op))(g.operand(x, like), g.operand(other, like))


@op("where")
def where(g, x, condition, other):
    return g.where(condition, x, other)


@op("masked_fill")
def masked_fill(g, x, mask, value):
    no(isinstance(value, torch.Tensor), "value: a tensor")
    return g.masked_fill(x, mask, value=value)


@op("lerp")
def lerp(g, x, end, weight):
    step = g.sub(end, x)
    return g.add(x, g.mul_scalar(step, a=weight) if is_number(weight) else g.mul(step, weight))


@op("addcmul", "addcdiv")
def addcmul(g, x, tensor1, tensor2, value=1):
    y = (g.mul if g.op == "addcmul" else g.div)(tensor1, tensor2)
    return g.add(x, y if value == 1 else g.mul_scalar(y, a=value))


CASTS = {"bfloat16": torch.bfloat16, "bool": torch.bool, "byte": torch.uint8, "char": torch.int8, "double": torch.float64,
         "float": torch.float32, "half": torch.float16, "int": torch.int32, "long": torch.int64, "short": torch.int16}


@op(*CASTS)
def cast(g, x, memory_format=None):
    return g.cast(x, dtype=dtype_name(CASTS[g.op]))


@op("to")
def to(g, x, *arguments, non_blocking=False, copy=False, memory_format=None, dtype=None, device=None):
    found = [a.dtype if isinstance(a, torch.Tensor) else a for a in (*arguments, dtype) if isinstance(a, (torch.dtype, torch.Tensor))]
    return g.cast(x, dtype=dtype_name(found[0] if found else x.dtype))


# --- reductions
def axes_of(dim):
    return None if dim is None or dim == () or dim == [] else as_list(dim)


def casted(g, x, dtype):
    return x if dtype is None else g.cast(x, dtype=dtype_name(dtype))


@op("sum", "mean", "prod")
def total(g, x, dim=None, keepdim=False, dtype=None):
    return getattr(g, g.op)(casted(g, x, dtype), axes=axes_of(dim), keepdim=keepdim)


@op("amax", "amin", "any", "all", "logsumexp")
def reduction(g, x, dim=None, keepdim=False):
    return getattr(g, {"amax": "max", "amin": "min"}.get(g.op, g.op))(x, axes=axes_of(dim), keepdim=keepdim)


@op("count_nonzero")
def count_nonzero(g, x, dim=None):
    return g.count_nonzero(x, axes=axes_of(dim))


@op("var", "std")
def variance(g, x, dim=None, unbiased=None, correction=None, keepdim=False):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    c = correction if correction is not None else 1 if unbiased is None or unbiased else 0
    return (g.variance if g.op == "var" else g.std)(x, axes=axes_of(dim), keepdim=keepdim, correction=c)


@op("norm")
def norm(g, x, p="fro", dim=None, keepdim=False, dtype=None):
    no(p in ("nuc",) or p in (math.inf, -math.inf) or (is_number(p) and p <= 0), "p: nuc, infinite or at most 0")
    return g.norm(casted(g, x, dtype), p=2 if p == "fro" or p is None else p, axes=axes_of(dim), keepdim=keepdim)


@op("max/reduction_no_dim", "min/reduction_no_dim")
def extreme(g, x):
    return getattr(g, g.op[:3])(x)


@op("max/reduction_with_dim", "min/reduction_with_dim")
def extreme_along(g, x, dim, keepdim=False):
    """The k-th value, not max and argmax: its gradient goes to one of equals, as PyTorch's does."""
    no(x.dim() == 0, "dim: of a scalar")
    n = x.shape[dim]
    no(n == 0, "dim: without elements")
    largest = g.op == "max/reduction_with_dim"
    values = g.topk(x, k=1, axis=dim, largest=largest)
    ids = g.topk(x, k=1, axis=dim, largest=largest, ids=True)
    return [values, ids] if keepdim else [g.squeeze(values, axis=dim), g.squeeze(ids, axis=dim)]


@op("argmax", "argmin")
def argmax(g, x, dim=None, keepdim=False):
    if dim is None:
        y = getattr(g, g.op)(g.reshape(x, shape=[-1]), axis=0)
        return g.reshape(y, shape=[1] * x.dim()) if keepdim else y
    y = getattr(g, g.op)(x, axis=dim)
    return g.unsqueeze(y, axis=dim if dim >= 0 else dim + x.dim()) if keepdim else y


@op("cumsum", "cumprod")
def running(g, x, dim, dtype=None):
    return getattr(g, g.op)(casted(g, x, dtype), axis=dim)


@op("logcumsumexp")
def logcumsumexp(g, x, dim):
    return g.logcumsumexp(x, axis=dim)


@op("cummax", "cummin")
def cummax(g, x, dim):
    return [getattr(g, g.op)(x, axis=dim), getattr(g, g.op)(x, axis=dim, ids=True)]


@op("sort")
def sort(g, x, dim=-1, descending=False, stable=False):
    return [g.sort(x, axis=dim, descending=descending, ids=ids) for ids in (False, True)]


@op("argsort")
def argsort(g, x, dim=-1, descending=False, stable=False):
    return g.argsort(x, axis=dim, descending=descending)


@op("topk")
def topk(g, x, k, dim=-1, largest=True, sorted=True):
    return [g.topk(x, k=k, axis=dim, largest=largest, ids=ids) for ids in (False, True)]


@op("kthvalue")
def kthvalue(g, x, k, dim=-1, keepdim=False):
    return [g.kthvalue(x, k=k, axis=dim, keepdim=keepdim, ids=ids) for ids in (False, True)]


@op("median")
def median(g, x, dim=None, keepdim=False):
    if dim is None:
        return g.median(g.reshape(x, shape=[-1]), axis=0)
    return [g.median(x, axis=dim, keepdim=keepdim, ids=ids) for ids in (False, True)]


# --- products
@op("matmul", "mm", "bmm")
def matmul(g, x, other):
    if x.dim() == 1 and other.dim() == 1:
        return g.dot(x, other)
    if x.dim() == 1:
        return g.squeeze(g.matmul(g.unsqueeze(x, axis=0), other), axis=-2)
    if other.dim() == 1:
        return g.squeeze(g.matmul(x, g.unsqueeze(other, axis=1)), axis=-1)
    return g.matmul(x, other)


@op("mv")
def mv(g, x, vec):
    return g.tensordot(x, vec, axes=[1], y_axes=[0])


@op("dot")
def dot(g, x, tensor):
    return g.dot(x, tensor)


@op("outer")
def outer(g, x, vec2):
    return g.outer(x, vec2)


@op("addmm", "baddbmm")
def addmm(g, x, mat1, mat2, beta=1, alpha=1):
    return g.baddbmm(x, mat1, mat2, beta=beta, alpha=alpha)


@op("einsum")
def einsum(g, operands, equation):
    return g.einsum(*operands, equation=equation)


@op("tensordot")
def tensordot(g, x, other, dims=2):
    if is_number(dims):
        dims = [list(range(x.dim() - dims, x.dim())), list(range(dims))]
    no(not dims[0], "dims: 0")
    return g.tensordot(x, other, axes=dims[0], y_axes=dims[1])


@op("nn.functional.linear")
def linear(g, x, weight, bias=None):
    one = x.dim() == 1
    y = g.linear(g.unsqueeze(x, axis=0) if one else x, weight, *([] if bias is None else [bias]))
    return g.squeeze(y, axis=0) if one else y


@op("nn.functional.bilinear")
def bilinear(g, x1, x2, weight, bias=None):
    flat = [g.reshape(x, shape=[-1, x.shape[-1]]) for x in (x1, x2)]
    y = g.reshape(g.einsum(flat[0], weight, flat[1], equation="ni,oij,nj->no"), shape=[*x1.shape[:-1], weight.shape[0]])
    return y if bias is None else g.add(y, bias)


# --- shape
def sizes_of(arguments):
    return as_list(arguments[0]) if len(arguments) == 1 else list(arguments)


@op("reshape", "view")
def reshape(g, x, *shape):
    return g.reshape(x, shape=sizes_of(shape))


@op("flatten")
def flatten(g, x, start_dim=0, end_dim=-1):
    if end_dim in (-1, x.dim() - 1):
        return g.flatten(x, from_axis=start_dim)
    return g.reshape(x, shape=list(x.flatten(start_dim, end_dim).shape))


@op("unflatten")
def unflatten(g, x, dim, sizes):
    return g.reshape(x, shape=list(x.unflatten(dim, sizes).shape))


@op("squeeze")
def squeeze(g, x, dim=None):
    axes = [d for d in range(x.dim()) if x.shape[d] == 1]
    if dim is not None:
        axes = [a for a in axes if a == dim % max(x.dim(), 1)]
    for a in reversed(axes):
        x = g.squeeze(x, axis=a)
    return x if axes else g.reshape(x, shape=list(x.shape))


@op("unsqueeze")
def unsqueeze(g, x, dim):
    return g.unsqueeze(x, axis=dim if dim >= 0 else dim + x.dim() + 1)


@op("transpose")
def transpose(g, x, dim0, dim1):
    return g.transpose(x, a=dim0, b=dim1)


@op("t")
def t(g, x):
    return g.transpose(x, a=0, b=1) if x.dim() == 2 else g.reshape(x, shape=list(x.shape))


@op("permute")
def permute(g, x, dims):
    return g.permute(x, order=as_list(dims)) if dims else g.reshape(x, shape=[])


@op("movedim")
def movedim(g, x, source, destination):
    source, destination = ([a % x.dim() for a in as_list(axes)] for axes in (source, destination))
    order = [None] * x.dim()
    for s, d in zip(source, destination):
        order[d] = s
    rest = iter(a for a in range(x.dim()) if a not in source)
    return g.permute(x, order=[next(rest) if a is None else a for a in order])


@op("expand")
def expand(g, x, *sizes):
    sizes = sizes_of(sizes)
    old = [1] * (len(sizes) - x.dim()) + list(x.shape)
    return g.expand(x, shape=[o if s == -1 else s for s, o in zip(sizes, old)])


@op("repeat", "tile")
def repeat(g, x, *counts):
    counts = sizes_of(counts)
    if g.op == "tile":
        counts = [1] * (x.dim() - len(counts)) + counts
    return g.repeat(x, counts=counts) if counts else g.reshape(x, shape=[])


@op("repeat_interleave")
def repeat_interleave(g, x, repeats, dim=None):
    no(isinstance(repeats, torch.Tensor), "repeats: a tensor")
    if dim is None:
        return g.repeat_interleave(g.reshape(x, shape=[-1]), axis=0, n=repeats)
    return g.repeat_interleave(x, axis=dim, n=repeats)


@op("cat")
def cat(g, x, dim=0):
    x = [a for a in x if tuple(a.shape) != (0,)] or x
    return g.concat(*x, axis=dim)


@op("stack")
def stack(g, x, dim=0):
    return g.stack(*x, axis=dim)


def pieces(g, x, sizes, dim):
    y = g.split(x, sizes=sizes, axis=dim)
    return [Ref(f"{y}.{i}") for i in range(len(sizes))]


@op("split", "split_with_sizes", "split/list_args")
def split(g, x, split_size_or_sections, dim=0):
    return pieces(g, x, [a.shape[dim] for a in torch.split(x, split_size_or_sections, dim)], dim)


@op("chunk")
def chunk(g, x, chunks, dim=0):
    return pieces(g, x, [a.shape[dim] for a in torch.chunk(x, chunks, dim)], dim)


@op("unbind")
def unbind(g, x, dim=0):
    return [g.squeeze(a, axis=dim) for a in pieces(g, x, [1] * x.shape[dim], dim)]


@op("narrow")
def narrow(g, x, dim, start, length):
    return g.narrow(x, axis=dim, start=int(start), length=length)


@op("__getitem__")
def getitem(g, x, index):
    if isinstance(index, list) and index and all(type(i) is int for i in index):
        return g.index_select(x, torch.tensor(index) % x.shape[0], axis=0)
    index = list(index) if isinstance(index, tuple) else [index]
    no(not all(isinstance(i, (int, slice)) or i is Ellipsis or i is None for i in index) or any(isinstance(i, bool) for i in index),
       "index: tensors and lists (tsr_index_select)")
    given = sum(i is not None and i is not Ellipsis for i in index)
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index[at:at + 1] = [slice(None)] * (x.dim() - given)
    else:
        index += [slice(None)] * (x.dim() - given)
    starts, ends, steps, dropped, added, axis = [], [], [], [], [], 0
    for i in index:
        if i is None:
            added.append(axis + len(added) - len(dropped))
            continue
        first, last, step = i.indices(x.shape[axis]) if isinstance(i, slice) else (i % x.shape[axis], i % x.shape[axis] + 1, 1)
        starts.append(first)
        ends.append(last)
        steps.append(step)
        if not isinstance(i, slice):
            dropped.append(axis)
        axis += 1
    y = g.slice(x, starts=starts, ends=ends, steps=steps) if starts else g.reshape(x, shape=[])
    for a in reversed(dropped):
        y = g.squeeze(y, axis=a)
    for a in added:
        y = g.unsqueeze(y, axis=a)
    return y


@op("flip")
def flip(g, x, dims):
    dims = as_list(dims)
    return g.flip(x, axes=dims) if dims else g.reshape(x, shape=list(x.shape))


@op("roll")
def roll(g, x, shifts, dims=()):
    shifts, dims = as_list(shifts), as_list(dims)
    if not dims:
        return g.reshape(g.roll(g.reshape(x, shape=[-1]), axis=0, shift=shifts[0]), shape=list(x.shape))
    for s, d in zip(shifts, dims):
        x = g.roll(x, axis=d, shift=s)
    return x


@op("tril", "triu")
def tril(g, x, diagonal=0):
    return getattr(g, g.op)(x, diagonal=diagonal)


@op("nn.functional.pad/constant", "constant_pad_nd")
def pad(g, x, pad, mode="constant", value=None):
    no(mode != "constant", "mode: others than constant")
    if is_number(mode):
        value = mode
    no(any(p < 0 for p in pad), "pad: below 0")
    before, after = [0] * x.dim(), [0] * x.dim()
    for i in range(len(pad) // 2):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    return g.pad(x, before=before, after=after, value=value or 0)


# --- indices
@op("index_select")
def index_select(g, x, dim, index):
    return g.index_select(x, index, axis=dim)


@op("take")
def take(g, x, index):
    no((index < 0).any(), "index: below 0")
    return g.index_select(g.reshape(x, shape=[-1]), index, axis=0)


@op("gather")
def gather(g, x, dim, index, sparse_grad=False):
    return g.gather(x, index, axis=dim)


@op("scatter")
def scatter(g, x, dim, index, src, reduce=None):
    no(reduce is not None, "reduce: multiply (add: tsr_scatter_add)")
    no(is_number(src), "src: a number")
    no(src.shape != index.shape, "src: larger than index")
    return g.scatter(x, index, src, axis=dim)


@op("scatter_add")
def scatter_add(g, x, dim, index, src):
    no(src.shape != index.shape, "src: larger than index")
    return g.scatter_add(x, index, src, axis=dim)


@op("index_add")
def index_add(g, x, dim, index, source, alpha=1):
    return g.index_add(x, index, source if alpha == 1 else g.mul_scalar(source, a=alpha), axis=dim)


# --- sources
@op("zeros_like", "ones_like")
def like(g, x, dtype=None, device=None):
    return g.full(shape=list(x.shape), value=int(g.op == "ones_like"), dtype=dtype_name(dtype or x.dtype))


@op("zeros", "ones")
def zeros(g, size, dtype=torch.float32, device=None):
    return g.full(shape=as_list(size), value=int(g.op == "ones"), dtype=dtype_name(dtype))


@op("arange")
def arange(g, start, end=None, step=1, dtype=None, device=None):
    start, end = (0, start) if end is None else (start, end)
    n = len(torch.arange(start, end, step, dtype=dtype))
    whole = dtype is not None and not dtype.is_floating_point
    no(dtype is None, "dtype: none")
    return g.arange(n=n, start=int(start) if whole else start * 1, step=int(step) if whole else step * 1, dtype=dtype_name(dtype))


@op("bincount")
def bincount(g, x, weights=None, minlength=0):
    no(weights is not None, "weights")
    return g.bincount(x, size=max(int(x.max()) + 1 if x.numel() else 0, minlength))


@op("nn.functional.one_hot")
def one_hot(g, x, num_classes=-1):
    return g.one_hot(x, classes=int(x.max()) + 1 if num_classes == -1 else num_classes, dtype="i64")


@op("nn.functional.embedding")
def embedding(g, weight, x, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    no(max_norm is not None, "max_norm")
    no(scale_grad_by_freq, "scale_grad_by_freq")
    return g.embedding(weight, x, padding_idx=padding_idx)


@op("nn.functional.embedding_bag")
def embedding_bag(g, weight, x, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    no(offsets is not None, "offsets")
    no(max_norm is not None, "max_norm")
    no(scale_grad_by_freq, "scale_grad_by_freq")
    no(per_sample_weights is not None, "per_sample_weights")
    no(padding_idx is not None, "padding_idx")
    return getattr(g, mode)(g.embedding(weight, x), axes=[1])


def options_given(f, sample):
    """The names of the arguments of a sample beside its first, those left out that are their defaults or say nothing of a value."""
    signature = inspect.signature(f)
    bound = signature.bind(None, sample.input, *sample.args, **sample.kwargs).arguments
    default = {k: p.default for k, p in signature.parameters.items()}
    return [k for k, v in [*bound.items()][2:] if k not in ("memory_format", "device", "other_names") and
            (isinstance(v, torch.Tensor) or not (type(v) is type(default[k]) and v == default[k]))]


def bind(f, g, sample):
    """Calls f with the sample's arguments; an option that it does not have is a refusal."""
    parameters = inspect.signature(f).parameters
    unknown = [k for k in sample.kwargs if k not in parameters and not any(p.kind == p.VAR_KEYWORD for p in parameters.values())]
    no(unknown, f"{', '.join(unknown)}")
    return f(g, sample.input, *sample.args, **sample.kwargs)
