#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ops and functions of a graph section beside PyTorch's, in f64: values within 1e-12 and gradients of
all operands within 1e-9 of the largest, on 1, 2 and 3 ranks, with the operands split along either axis
and broadcast. One YAML file has all of them. Needs python3-torch; without it the exit code is 77.

usage: functions.py TESSERA

TESSERA is the command. Prints a line "ok ..." or "FAIL ..." a signature, and one for each function that differs.
"""
import json
import math
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

warnings.simplefilter("ignore")
torch.manual_seed(5)
torch.set_default_dtype(torch.float64)
REDUCTIONS = ("mean", "sum", "none")


def randn(*dims):
    return torch.randn(dims)


def attend(causal=False, scale=0.5):
    """torch.nn.functional.scaled_dot_product_attention, which 1.13 does not have: of four features 0.5 is its scale."""
    def f(q, k, v, mask=None):
        scores = q @ k.transpose(2, 3) * scale
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[2:]).triu(1).bool(), -math.inf)
        blind = torch.isinf(scores).all(3, True)
        return torch.softmax(scores.masked_fill(blind, 0), 3).masked_fill(blind, 0) @ v
    return f


def rotary(base=1e4, first=0, interleaved=False):
    """Su et al. 2021, equation 15, by complex numbers."""
    def f(x):
        half = x.shape[-1] // 2
        angle = torch.outer(torch.arange(x.shape[-2]) + float(first), base ** (-torch.arange(half) / half))
        pairs = x.unflatten(-1, (half, 2)) if interleaved else x.unflatten(-1, (2, half)).transpose(-1, -2)
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones(()), angle))
        return (turned if interleaved else turned.transpose(-1, -2)).flatten(-2)
    return f


def signs(*dims):
    return torch.randint(0, 2, dims) * 2.0 - 1


# The operands by name: those that gradients are taken of are parameters.
OPERANDS = {
    "x": randn(6, 4), "y": randn(6, 4), "v": randn(6), "v2": randn(6), "u": randn(4), "m": randn(4, 5),
    "pos": torch.rand(6, 4) + 0.1, "p": torch.rand(6, 4) * 0.8 + 0.1, "q": torch.rand(6, 4) * 0.8 + 0.1,
    "img": randn(2, 6, 8, 5), "shuffled": randn(2, 8, 3, 2), "even": randn(2, 3, 4, 6), "c": torch.rand(6) + 0.5,
    "b3": randn(3, 6, 4), "c3": randn(3, 4, 5), "theta": randn(2, 2, 3), "grid": randn(2, 3, 4, 2), "d3": randn(3, 6, 5), "one": randn(6, 1, 4), "w": torch.rand(4) + 0.2,
    "logp": F.log_softmax(randn(6, 4), 1), "big": randn(6, 4) * 400, "slope": torch.rand(1), "zeroed": torch.where(torch.rand(6, 4) < 0.2, torch.zeros(()), randn(6, 4)), "aq": randn(2, 3, 5, 4), "ak": randn(2, 3, 6, 4), "av": randn(2, 3, 6, 3), "abias": randn(3, 1, 6), "g7": randn(6, 7), "g5": randn(5, 4), "g32": randn(3, 2), "z": randn(6, 4),
    "seq": randn(2, 4, 9), "vol": randn(2, 4, 5, 4, 6), "odd1": randn(2, 3, 7), "lone": randn(2, 4, 1), "tied1": torch.randint(0, 3, (2, 4, 9)) * 1.0, "tied2": torch.randint(0, 2, (2, 3, 7, 6)) * 1.0, "tied3": torch.randint(0, 3, (2, 3, 5, 4, 6)) * 1.0, "cols": randn(2, 12, 20), "padded": randn(2, 18, 24),
    "k1": randn(6, 4, 3), "k1g": randn(6, 2, 2), "k2t": randn(6, 2, 3, 2), "k3": randn(6, 4, 2, 3, 2), "k3g": randn(4, 1, 3, 2, 2), "k1t": randn(4, 6, 3),
    "k1tg": randn(4, 3, 2), "k2tg": randn(6, 4, 2, 3), "k3t": randn(4, 6, 3, 2, 2), "k3tg": randn(4, 3, 2, 3, 1), "b4": randn(4), "b8": randn(8), "b2": randn(2),
    "posimg": torch.rand(2, 6, 8, 5) + 0.1, "four": randn(3, 4, 2),
    "edges": torch.tensor([-1, 1, 0.25] * 16, dtype=torch.float64).reshape(2, 3, 4, 2),
}
FIXED = {
    "sign": signs(6, 4), "signs": signs(6), "mask": torch.rand(6, 4) < 0.4, "mask1": torch.rand(4) < 0.5,
    "few": torch.randint(0, 3, (6, 4)), "whole": torch.randint(-5, 5, (6, 4)), "labels": torch.randint(0, 4, (6,)),
    "wf": torch.rand(4) + 0.2, "odd": torch.tensor([[1.0, math.nan, math.inf, -math.inf, 0.0, -0.0]] * 2),
    "fx": randn(6, 4) * 5, "fy": randn(6, 4), "divisors": (torch.randint(1, 5, (6, 4)) * torch.where(torch.rand(6, 4) < 0.5, 1, -1)),
    "amask": torch.tensor([[i * j % 3 != 1 and i != 3 for j in range(6)] for i in range(5)]), "gi": torch.randint(0, 6, (6, 4)), "gj": torch.randint(0, 4, (6, 7)), "gs": torch.randint(0, 6, (3, 2)),
    "perm": torch.argsort(torch.rand(6, 4), 0), "rows": torch.randint(0, 6, (5,)), "columns": torch.randint(0, 4, (7,)),
    "edge": torch.tensor([[0.0, 1.0, 0.5, 0.25]]),
}
for name, value in list(FIXED.items()):
    if name == "labels":
        FIXED["ignored"] = torch.where(torch.arange(6) % 3 == 0, torch.tensor(-100), value)


# (op, operands, attributes, PyTorch's)
CASES = [
    *[("scaled_dot_product_attention", ["aq", "ak", "av", *mask], attributes, attend(**attributes))
      for mask in ([], ["amask"], ["abias"]) for attributes in ({}, {"causal": True}, {"scale": 0.3})],
    *[("rotary_embedding", [x], attributes, rotary(**attributes)) for x in ("x", "b3", "aq")
      for attributes in ({}, {"base": 7, "first": 5}, {"interleaved": True}, {"first": -3, "interleaved": True})],
    ("cumprod", ["x"], {"axis": 1}, lambda x: x.cumprod(1)), ("cumprod", ["zeroed"], {"axis": 0}, lambda x: x.cumprod(0)),
    ("logcumsumexp", ["big"], {"axis": 0}, lambda x: x.logcumsumexp(0)), ("logcumsumexp", ["x"], {"axis": -1}, lambda x: x.logcumsumexp(1)),
    *[("cummax", [x], {"axis": axis, **ids}, lambda x, axis=axis, ids=ids: x.cummax(axis)[bool(ids)])
      for x, axis in (("x", 0), ("few", 1), ("odd", 1)) for ids in ({}, {"ids": True})],
    *[("cummin", [x], {"axis": axis, **ids}, lambda x, axis=axis, ids=ids: x.cummin(axis)[bool(ids)])
      for x, axis in (("x", 0), ("few", 1), ("odd", 1)) for ids in ({}, {"ids": True})],
    *[("sort", [x], {"descending": down, **ids}, lambda x, down=down, ids=ids: x.sort(dim=-1, descending=down, stable=True)[bool(ids)])
      for x in ("x", "few", "odd", "mask") for down in (False, True) for ids in ({}, {"ids": True})],
    ("argsort", ["whole"], {"axis": 0}, lambda x: x.sort(dim=0, stable=True)[1]), ("sort", ["b3"], {"axis": 1}, lambda x: x.sort(1)[0]),
    ("topk", ["x"], {"k": 3, "axis": 0}, lambda x: x.topk(3, 0)[0]), ("topk", ["x"], {"k": 2, "largest": False, "ids": True}, lambda x: x.topk(2, 1, False)[1]),
    ("kthvalue", ["x"], {"k": 2, "axis": 0}, lambda x: x.kthvalue(2, 0)[0]), ("kthvalue", ["x"], {"k": 4, "keepdim": True, "ids": True}, lambda x: x.kthvalue(4, 1, True)[1]),
    ("median", ["x"], {"axis": 0}, lambda x: x.median(0)[0]), ("median", ["x"], {"keepdim": True}, lambda x: x.median(1, True)[0]),
    ("median", ["odd"], {}, lambda x: x.median(1)[0]), ("median", ["x"], {"axis": 0, "ids": True}, lambda x: x.median(0)[1]), ("median", ["whole"], {}, lambda x: x.median(1)[0]),
    ("gather", ["x", "gi"], {}, lambda x, i: x.gather(0, i)), ("gather", ["x", "gj"], {"axis": 1}, lambda x, i: x.gather(1, i)),
    ("gather", ["x", "gs"], {"axis": 0}, lambda x, i: x.gather(0, i)), ("gather", ["whole", "gj"], {"axis": -1}, lambda x, i: x.gather(1, i)),
    ("scatter_add", ["x", "gi", "y"], {}, lambda x, i, y: x.scatter_add(0, i, y)),
    ("scatter_add", ["x", "gj", "g7"], {"axis": 1}, lambda x, i, y: x.scatter_add(1, i, y)),
    ("scatter_add", ["x", "gs", "g32"], {"axis": 0}, lambda x, i, y: x.scatter_add(0, i, y)),
    ("scatter", ["x", "perm", "y"], {}, lambda x, i, y: x.scatter(0, i, y)),
    ("index_add", ["x", "rows", "g5"], {}, lambda x, i, y: x.index_add(0, i, y)),
    ("index_add", ["x", "columns", "g7"], {"axis": 1}, lambda x, i, y: x.index_add(1, i, y)),
    ("bincount", ["rows"], {"size": 8}, lambda i: torch.bincount(i, minlength=8)),
    ("atan2", ["x", "y"], {}, torch.atan2), ("atan2", ["x", "w"], {}, torch.atan2), ("atan2", ["odd", "odd"], {}, torch.atan2),
    ("fmod", ["x", "y"], {}, torch.fmod), ("fmod", ["big", "w"], {}, torch.fmod), ("remainder", ["x", "y"], {}, torch.remainder),
    ("remainder", ["big", "w"], {}, torch.remainder), ("floor_divide", ["fx", "fy"], {}, torch.floor_divide),
    *((f, ["whole", "divisors"], {}, getattr(torch, f)) for f in ("fmod", "remainder", "floor_divide")),
    ("bitwise_and", ["whole", "few"], {}, torch.bitwise_and), ("bitwise_or", ["whole", "few"], {}, torch.bitwise_or),
    ("bitwise_xor", ["whole", "few"], {}, torch.bitwise_xor),
    ("bitwise_left_shift", ["whole", "few"], {}, torch.bitwise_left_shift),
    ("bitwise_right_shift", ["whole", "few"], {}, torch.bitwise_right_shift),
    ("isnan", ["odd"], {}, torch.isnan), ("isinf", ["odd"], {}, torch.isinf), ("isfinite", ["odd"], {}, torch.isfinite),
    ("isfinite", ["whole"], {}, torch.isfinite), ("isinf", ["whole"], {}, torch.isinf),
    ("logical_not", ["few"], {}, torch.logical_not), ("logical_and", ["mask", "mask1"], {}, torch.logical_and),
    ("logical_or", ["mask", "few"], {}, torch.logical_or), ("logical_xor", ["mask", "few"], {}, torch.logical_xor),
    ("logical_and", ["few", "whole"], {}, torch.logical_and),
    ("any", ["mask"], {"axes": 1}, lambda x: x.any(1)), ("all", ["mask"], {"axes": 0, "keepdim": True}, lambda x: x.all(0, True)),
    ("any", ["mask"], {}, torch.any), ("all", ["few"], {"axes": 1}, lambda x: x.all(1)),
    ("count_nonzero", ["few"], {"axes": 0}, lambda x: torch.count_nonzero(x, 0)),
    ("masked_fill", ["x", "mask1"], {"value": -7}, lambda x, m: x.masked_fill(m, -7)),
    ("prelu", ["x", "slope"], {}, F.prelu), ("prelu", ["x", "w"], {}, F.prelu), ("prelu", ["img", "c"], {}, F.prelu),
    ("glu", ["x"], {}, F.glu), ("glu", ["x"], {"axis": 0}, lambda x: F.glu(x, 0)),
    ("tanhshrink", ["x"], {}, F.tanhshrink), ("logit", ["p"], {}, torch.logit),
    ("softmin", ["x"], {"axis": 0}, lambda x: F.softmin(x, 0)),
    ("logsumexp", ["big"], {"axes": 1}, lambda x: torch.logsumexp(x, 1)),
    ("logsumexp", ["b3"], {"axes": [0, 2], "keepdim": True}, lambda x: torch.logsumexp(x, (0, 2), True)),
    ("logsumexp", ["odd"], {"axes": 0}, lambda x: torch.logsumexp(x, 0)),
    ("argmin", ["x"], {"axis": 0}, lambda x: x.argmin(0)), ("argmin", ["whole"], {"axis": 1}, lambda x: x.argmin(1)),
    ("dot", ["v", "v2"], {}, torch.dot), ("outer", ["v", "u"], {}, torch.outer),
    ("baddbmm", ["d3", "b3", "c3"], {"beta": 0.5, "alpha": -2}, lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=-2)),
    ("tensordot", ["b3", "d3"], {"axes": [1, 0], "y_axes": [1, 0]}, lambda a, b: torch.tensordot(a, b, ([1, 0], [1, 0]))),
    ("tensordot", ["b3", "m"], {"axes": [-1], "y_axes": [0]}, lambda a, b: torch.tensordot(a, b, ([2], [0]))),
] + [("einsum", names, {"equation": e}, lambda *x, e=e: torch.einsum(e, *x)) for e, names in [
    ("bij,bjk->bik", ["b3", "c3"]), ("ij,jk", ["x", "m"]), ("ij->ji", ["x"]), ("ij->", ["x"]), ("i,j->ji", ["v", "u"]),
    ("ij,ij->i", ["x", "y"]), ("bij,bjk,bik->b", ["b3", "c3", "d3"]), ("bij,jk,i->kb", ["b3", "m", "v"]),
    ("ij,kl->il", ["x", "y"]), ("nchw,c->nhw", ["img", "c"])]] + [
    ("squeeze", ["one"], {"axis": 1}, lambda x: x.squeeze(1)), ("unsqueeze", ["x"], {"axis": 1}, lambda x: x.unsqueeze(1)),
    ("unsqueeze", ["x"], {"axis": -1}, lambda x: x.unsqueeze(-1)),
    ("roll", ["x"], {"axis": 0, "shift": 2}, lambda x: x.roll(2, 0)), ("roll", ["x"], {"axis": 1, "shift": -5}, lambda x: x.roll(-5, 1)),
    ("flip", ["x"], {"axes": 0}, lambda x: x.flip(0)), ("flip", ["x"], {}, lambda x: x.flip((0, 1))),
    ("repeat", ["x"], {"counts": [3, 1, 2]}, lambda x: x.repeat(3, 1, 2)),
    ("repeat_interleave", ["x"], {"axis": 1, "n": 3}, lambda x: x.repeat_interleave(3, 1)),
    ("pixel_shuffle", ["shuffled"], {"r": 2}, lambda x: F.pixel_shuffle(x, 2)),
    ("pixel_unshuffle", ["even"], {"r": 2}, lambda x: F.pixel_unshuffle(x, 2)),
    ("group_norm", ["img", "c", "v"], {"groups": 3}, lambda x, g, b: F.group_norm(x, 3, g, b)),
    ("group_norm", ["img"], {"groups": 6, "eps": 0.1}, lambda x: F.instance_norm(x, eps=0.1)),
    ("rms_norm", ["x", "w"], {"eps": 1e-3}, lambda x, w: x / torch.sqrt((x * x).mean(-1, True) + 1e-3) * w),
    ("rms_norm", ["b3", "x"], {}, lambda x, w: x / torch.sqrt((x * x).mean((1, 2), True) + 1e-5) * w),
    ("normalize", ["x"], {}, F.normalize), ("normalize", ["img"], {"axis": 2}, lambda x: F.normalize(x, dim=2)),
    ("local_response_norm", ["img"], {"size": 3, "alpha": 0.5, "beta": 0.6, "k": 2}, lambda x: F.local_response_norm(x, 3, 0.5, 0.6, 2)),
    ("local_response_norm", ["img"], {"size": 4}, lambda x: F.local_response_norm(x, 4)),
    ("interpolate", ["img"], {"out_h": 16, "out_w": 3}, lambda x: F.interpolate(x, (16, 3))),
    ("interpolate", ["img"], {"out_h": 13, "out_w": 3, "how": "bilinear"}, lambda x: F.interpolate(x, (13, 3), mode="bilinear", align_corners=False)),
    ("interpolate", ["img"], {"out_h": 5, "out_w": 9, "how": "corners"}, lambda x: F.interpolate(x, (5, 9), mode="bilinear", align_corners=True)),
    *[("affine_grid", ["theta"], {"out_h": h, "out_w": w, "corners": corners}, lambda t, h=h, w=w, corners=corners: F.affine_grid(t, (2, 1, h, w), corners))
      for h, w, corners in ((4, 3, False), (4, 3, True), (1, 5, True))],
    *[("grid_sample", ["img", "grid"], {"how": how, "border": border}, lambda x, g, mode=mode, corners=corners, border=border: F.grid_sample(x, g, mode, "border" if border else "zeros", corners))
      for how, mode, corners in (("nearest", "nearest", False), ("bilinear", "bilinear", False), ("corners", "bilinear", True)) for border in (False, True)],
    # Places on the edges of the image, where the slope ends.
    *[("grid_sample", ["img", "edges"], {"how": "corners", "border": border}, lambda x, g, border=border: F.grid_sample(x, g, "bilinear", "border" if border else "zeros", True))
      for border in (False, True)],
    *[("multi_margin_loss", ["x", "labels"], {"power": power, "margin": margin, "reduction": r}, lambda x, t, power=power, margin=margin, r=r: F.multi_margin_loss(x, t, power, margin, reduction=r))
      for power, margin, r in ((1, 1, "mean"), (2, 0.7, "none"), (1, 0.2, "sum"))],
    *[("pdist", ["x"], {"p": p}, lambda x, p=p: torch.pdist(x, p)) for p in (2, 1, 3)],
    ("rrelu", ["x"], {"low": 0.2, "high": 0.2}, lambda x: F.rrelu(x, 0.2, 0.2)), ("alpha_dropout", ["x"], {"p": 0}, lambda x: x * 1), ("feature_alpha_dropout", ["img"], {"p": 0}, lambda x: x * 1),
    ("unfold", ["img"], {"kernel": [3, 2]}, lambda x: F.unfold(x, (3, 2))),
    ("unfold", ["img"], {"kernel": 3, "stride": [2, 1], "padding": [1, 2]}, lambda x: F.unfold(x, 3, padding=(1, 2), stride=(2, 1))),
    ("fold", ["cols"], {"out_h": 5, "out_w": 6, "kernel": [2, 2]}, lambda x: F.fold(x, (5, 6), (2, 2))),
    ("fold", ["padded"], {"out_h": 8, "out_w": 4, "kernel": 3, "stride": [2, 1], "padding": [1, 2]}, lambda x: F.fold(x, (8, 4), 3, padding=(1, 2), stride=(2, 1))),
    ("channel_shuffle", ["img"], {"groups": 3}, lambda x: x.reshape(2, 3, 2, 8, 5).transpose(1, 2).reshape(2, 6, 8, 5)),
    ("channel_shuffle", ["four"], {"groups": 2}, lambda x: torch.stack((x[:, 0], x[:, 2], x[:, 1], x[:, 3]), 1)),
    ("dropout2d", ["img"], {"p": 0}, lambda x: x * 1),
    ("cosine_similarity", ["x", "y"], {}, F.cosine_similarity), ("cosine_similarity", ["x", "y"], {"axis": 0}, lambda a, b: F.cosine_similarity(a, b, 0)),
]


def window_cases(op, *cases):
    """Cases of a convolution or pooling: operands, then options by PyTorch's names; `kernel` is its kernel_size."""
    for operands, options in cases:
        theirs = {"kernel_size" if k == "kernel" else k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        CASES.append((op, operands, options, lambda *x, theirs=theirs: getattr(F, op)(*x, **theirs)))


window_cases("conv1d", (["seq", "k1"], {}), (["seq", "k1", "v"], {"stride": 2, "padding": 3, "dilation": 2}), (["seq", "k1g", "v"], {"groups": 2, "padding": 1}))
window_cases("conv3d", (["vol", "k3"], {}), (["vol", "k3", "v"], {"stride": [2, 1, 3], "padding": [1, 2, 0], "dilation": [3, 1, 2]}),
             (["vol", "k3g", "b4"], {"groups": 4, "padding": 1, "stride": 2}), (["vol", "k3g"], {"groups": 4, "dilation": 2, "padding": 2}))
window_cases("conv_transpose1d", (["seq", "k1t"], {}), (["seq", "k1t", "v"], {"stride": 3, "padding": 2, "output_padding": 1}),
             (["seq", "k1tg", "v"], {"groups": 2, "dilation": 3, "output_padding": 2, "padding": 4}), (["seq", "k1t"], {"stride": 2, "padding": 5, "output_padding": 1}),
             (["seq", "k1tg", "v"], {"groups": 2, "dilation": 4, "output_padding": 3}), (["seq", "k1t", "v"], {"stride": 5, "output_padding": 4}),
             (["lone", "k1t", "v"], {"stride": 4, "padding": 1, "output_padding": 3}), (["seq", "k1t", "v"], {"stride": 2, "dilation": 5, "output_padding": 4, "padding": 7}))
window_cases("conv_transpose2d", (["img", "k2t"], {}), (["img", "k2t", "b2"], {"stride": 2, "padding": 1, "output_padding": [1, 0]}),
             (["img", "k2tg", "b8"], {"groups": 2, "stride": [1, 3], "dilation": [2, 1], "padding": [0, 2]}),
             (["img", "k2tg"], {"groups": 2, "stride": 3, "dilation": 2, "output_padding": [2, 1]}), (["img", "k2t", "b2"], {"stride": [4, 1], "padding": 1}))
window_cases("conv_transpose3d", (["vol", "k3t"], {}), (["vol", "k3t", "v"], {"stride": [2, 1, 3], "padding": [1, 0, 2], "output_padding": [1, 0, 2]}),
             (["vol", "k3tg", "v"], {"groups": 2, "stride": 2, "dilation": [3, 1, 2], "padding": [2, 1, 0]}))
LINES = (["seq"], {"kernel": 2}), (["seq"], {"kernel": 3, "stride": 2, "padding": 1}), (["odd1"], {"kernel": 4, "stride": 1, "padding": 2})
VOLUMES = ((["vol"], {"kernel": 2}), (["vol"], {"kernel": [3, 2, 4], "stride": [1, 2, 3], "padding": [1, 0, 2]}),
           (["vol"], {"kernel": [1, 2, 2], "stride": 1}))
window_cases("max_pool1d", *LINES, (["tied1"], {"kernel": 3, "stride": 1}))
window_cases("avg_pool1d", *LINES)
window_cases("max_pool3d", *VOLUMES, (["tied3"], {"kernel": 3, "stride": [1, 2, 1], "padding": 1}))
window_cases("avg_pool3d", *VOLUMES)
window_cases("avg_pool1d", (["seq"], {"kernel": 3, "padding": 1, "count_include_pad": False}))
window_cases("avg_pool3d", (["vol"], {"kernel": 3, "stride": [2, 1, 2], "padding": 1, "count_include_pad": False}))
CASES += [
    ("lp_pool2d", ["img"], {"p": 2, "kernel": 2}, lambda x: F.lp_pool2d(x, 2, 2)),
    ("lp_pool2d", ["posimg"], {"p": 3, "kernel": [3, 2], "stride": [1, 2]}, lambda x: F.lp_pool2d(x, 3, (3, 2), (1, 2))),
    ("lp_pool2d", ["img"], {"p": 1, "kernel": 3, "stride": 2}, lambda x: F.lp_pool2d(x, 1, 3, 2)),
]


def adaptive_cases(op, operand, *sizes):
    for size in sizes:
        n = len(size)
        outs = dict(zip(("out",) if n == 1 else ("out_d", "out_h", "out_w")[3 - n:], size))
        CASES.append((op, [operand], outs, lambda x, size=size: getattr(F, op)(x, size)))


adaptive_cases("adaptive_avg_pool1d", "seq", (3,), (4,), (9,), (12,))
adaptive_cases("adaptive_max_pool1d", "seq", (3,), (4,), (9,), (12,))
adaptive_cases("adaptive_max_pool1d", "odd1", (1,), (5,))
adaptive_cases("adaptive_max_pool2d", "img", (2, 5), (3, 4), (9, 1))
adaptive_cases("adaptive_avg_pool3d", "vol", (1, 1, 1), (5, 2, 4), (3, 4, 9))
adaptive_cases("adaptive_max_pool3d", "vol", (1, 1, 1), (5, 2, 4), (3, 4, 9))
adaptive_cases("adaptive_max_pool1d", "tied1", (4,))
adaptive_cases("adaptive_max_pool2d", "tied2", (3, 4), (7, 2))
adaptive_cases("adaptive_max_pool3d", "tied3", (2, 3, 4), (1, 1, 1))

for r in REDUCTIONS:
    def loss(op, operands, attributes, f, r=r, **more):
        CASES.append((op, operands, {**attributes, "reduction": r}, lambda *x: f(*x, reduction=r, **more)))
    loss("l1_loss", ["x", "y"], {}, F.l1_loss)
    loss("smooth_l1_loss", ["x", "y"], {"beta": 0.7}, F.smooth_l1_loss, beta=0.7)
    loss("huber_loss", ["x", "y"], {"delta": 0.7}, F.huber_loss, delta=0.7)
    loss("kl_div", ["logp", "p"], {}, F.kl_div)
    loss("kl_div", ["logp", "x"], {"log_target": True}, F.kl_div, log_target=True)
    loss("binary_cross_entropy", ["p", "edge6"], {}, F.binary_cross_entropy)
    loss("binary_cross_entropy_with_logits", ["big", "q"], {}, F.binary_cross_entropy_with_logits)
    CASES.append(("binary_cross_entropy_with_logits", ["x", "q", "wf"], {"reduction": r},
                  lambda x, y, w, r=r: F.binary_cross_entropy_with_logits(x, y, pos_weight=w, reduction=r)))
    loss("hinge_embedding_loss", ["x", "sign"], {"margin": 0.8}, F.hinge_embedding_loss, margin=0.8)
    loss("margin_ranking_loss", ["x", "y", "sign"], {"margin": 0.3}, F.margin_ranking_loss, margin=0.3)
    loss("soft_margin_loss", ["x", "sign"], {}, F.soft_margin_loss)
    loss("poisson_nll_loss", ["x", "pos"], {}, F.poisson_nll_loss)
    loss("gaussian_nll_loss", ["x", "y", "pos"], {"eps": 0.4}, F.gaussian_nll_loss, eps=0.4)
    loss("cosine_embedding_loss", ["x", "y", "signs"], {"margin": 0.1}, F.cosine_embedding_loss, margin=0.1)
    loss("triplet_margin_loss", ["x", "y", "z"], {"margin": 0.6}, F.triplet_margin_loss, margin=0.6)
    loss("nll_loss", ["logp", "labels"], {}, F.nll_loss)
    CASES.append(("nll_loss", ["logp", "ignored", "wf"], {"ignore_index": -100, "reduction": r},
                  lambda x, t, w, r=r: F.nll_loss(x, t, w, reduction=r)))
    CASES.append(("nll_loss", ["logp", "labels", "wf"], {"reduction": r}, lambda x, t, w, r=r: F.nll_loss(x, t, w, reduction=r)))
OPERANDS["edge6"] = torch.rand(6, 4)


def program(ranks, signature, values):
    """The file's text. Its loss is the sum of all results that have a gradient, each weighted."""
    lines = ["tessera: 1", "dtype: f64", f"placements: {{p: {{ranks: {list(range(ranks))}}}}}", "graph:"]
    for name, value in {**OPERANDS, **FIXED}.items():
        op, sbp = ("parameter" if name in OPERANDS else "constant"), signature(value.dim())
        dtype = {torch.bool: "bool", torch.int64: "i64"}.get(value.dtype, "f64")
        lines.append(f"  {name}: {{op: {op}, file: {name}.npy, dtype: {dtype}, placement: p, sbp: {sbp}}}")
    terms = []
    for i, (op, operands, attributes, _) in enumerate(CASES):
        extra = "".join(f", {k}: {json.dumps(v)}" for k, v in attributes.items())
        lines.append(f"  r{i}: {{op: {op}, in: [{', '.join(operands)}]{extra}}}")
        if values[i].requires_grad:
            lines += [f"  s{i}: {{op: sum, in: r{i}}}", f"  t{i}: {{op: mul_scalar, in: s{i}, a: {weight(i)}}}"]
            terms.append(f"t{i}")
    lines += [f"  sums: {{op: stack, in: [{', '.join(terms[i:i + 30])}]}}".replace("sums", f"sums{i // 30}")
              for i in range(0, len(terms), 30)]
    lines += [f"  l{i}: {{op: sum, in: sums{i}}}" for i in range((len(terms) + 29) // 30)]
    lines.append(f"  ls: {{op: stack, in: [{', '.join(f'l{i}' for i in range((len(terms) + 29) // 30))}]}}")
    lines += ["  loss: {op: sum, in: ls}", "loss: loss"]
    fetch = [f"r{i}" for i in range(len(CASES))] + [f"grad({n})" for n in OPERANDS]
    return "\n".join(lines + [f"fetch: [{', '.join(fetch)}]", ""])


def weight(i):
    return 1 + i % 7 / 8


def expected():
    x = {n: v.clone().requires_grad_() for n, v in OPERANDS.items()}
    values, total = [], 0
    for i, (op, operands, _, f) in enumerate(CASES):
        y = f(*(x.get(o, FIXED.get(o)) for o in operands))
        values.append(y)
        if y.requires_grad:
            total = total + weight(i) * y.sum()
    total.backward()
    return values, {n: v.grad for n, v in x.items()}


def differs(got, want, limit):
    """The largest difference, relative to the largest value; None where all is well."""
    want = want.detach().numpy()
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    same = (got == want) | (np.isnan(got.astype(float)) & np.isnan(want.astype(float)))
    top = max(1.0, float(np.max(np.abs(want[np.isfinite(want)]), initial=0)))
    off = np.where(same, 0, np.abs(got.astype(float) - want.astype(float)))
    worst = float(np.max(off, initial=0)) / top
    return None if worst <= limit else f"differs by {worst:.2g}"


def main():
    values, grads = expected()
    failed = 0
    signatures = [("B", lambda n: "B"), ("S(0)", lambda n: "S(0)"), ("last", lambda n: f"S({n - 1})"), ("auto", lambda n: "auto")]
    with tempfile.TemporaryDirectory() as folder:
        for name, value in {**OPERANDS, **FIXED}.items():
            np.save(Path(folder) / f"{name}.npy", value.numpy())
        for ranks in (1, 2, 3):
            for name, signature in signatures[:1] if ranks == 1 else signatures:
                path = Path(folder) / "functions.yaml"
                path.write_text(program(ranks, signature, values))
                done = subprocess.run([sys.argv[1], "run", str(path), "-o", folder], capture_output=True, text=True)
                bad = [] if done.returncode == 0 else [done.stderr.strip()]
                for i, (op, operands, attributes, _) in enumerate(CASES if not bad else []):
                    why = differs(np.load(Path(folder) / f"r{i}.npy"), values[i], 1e-12)
                    bad += [f"{op} of {operands}, {attributes}: {why}"] if why else []
                for n in OPERANDS if done.returncode == 0 else []:
                    if grads[n] is not None:
                        why = differs(np.load(Path(folder) / f"grad({n}).npy"), grads[n], 1e-9)
                        bad += [f"the gradient of {n}: {why}"] if why else []
                failed += bool(bad)
                print("\n".join([f"{'FAIL' if bad else 'ok  '} {len(CASES)} functions, {ranks} ranks, {name}"] +
                                [f"     {b}" for b in bad]), flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
