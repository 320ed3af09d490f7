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
    no(is_number(x) and is_number(other), "two numbers")
    like = x if isinstance(x, torch.Tensor) else other
    return g.where(condition, g.operand(x, like), g.operand(other, like))


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
    if g.op == "mean":
        return g.mean(casted(g, x, dtype), axes=axes_of(dim), keepdim=keepdim)
    return getattr(g, g.op)(x, axes=axes_of(dim), keepdim=keepdim, dtype=dtype and dtype_name(dtype))


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
    if g.op == "cumprod":
        return g.cumprod(casted(g, x, dtype), axis=dim)
    return g.cumsum(x, axis=dim, dtype=dtype and dtype_name(dtype))


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


# --- arguments
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
