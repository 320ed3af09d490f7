# SPDX-License-Identifier: Apache-2.0
"""More of op_map.py: products, shapes, indices and sources."""
import torch

from op_map import Ref, as_list, dtype_name, is_number, no, op


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
