# SPDX-License-Identifier: Apache-2.0
"""Samples of ops that docs/ops.md names and PyTorch's database does not have, or has only with options that Tessera lacks."""
import types

import torch
import torch.nn.functional as F
from torch.testing import make_tensor

from op_map import OPS, as_list, dtype_name, no, op

FLOATS = (torch.float64, torch.float32, torch.bfloat16)


class Extra:
    """An op as PyTorch's database has them: what op_samples.py asks of one."""
    variant_test_name = ""

    def __init__(self, name, call, samples, dtypes=FLOATS, supports_autograd=True):
        self.name, self.op, self.samples, self.dtypes, self.supports_autograd = name, call, samples, dtypes, supports_autograd

    def supported_dtypes(self, device):
        return self.dtypes

    supported_backward_dtypes = supported_dtypes

    def sample_inputs(self, device, dtype, requires_grad=False):
        def make(*shape, low=-3, high=3):
            return make_tensor(shape, dtype=dtype, device=device, low=low, high=high, requires_grad=requires_grad)
        for (x, *args), kwargs in self.samples(make):
            yield types.SimpleNamespace(input=x, args=tuple(args), kwargs=kwargs)

    reference_inputs = sample_inputs


def calls(*samples):
    """Samples whose tensors are given by their shapes, as a tuple; {...} at the end are options."""
    def made(make):
        for s in samples:
            options = s[-1] if isinstance(s[-1], dict) else {}
            yield [make(*a) if isinstance(a, tuple) else a for a in s if a is not options], options
    return made


EXTRAS = [
    Extra("nn.functional.conv3d", F.conv3d, calls(
        ((2, 4, 5, 4, 6), (6, 4, 2, 3, 2), {}), ((2, 4, 5, 4, 6), (6, 4, 2, 3, 2), (6,), {"stride": (2, 1, 3), "padding": (1, 2, 0), "dilation": (3, 1, 2)}),
        ((1, 4, 5, 4, 6), (4, 1, 3, 2, 2), (4,), {"groups": 4, "padding": 1, "stride": 2}), ((4, 5, 4, 6), (6, 4, 2, 3, 2), {}))),
    Extra("clamp", torch.clamp, calls(((5, 6), {"min": -1.0, "max": 0.5}), ((5, 6), {"min": 0}), ((5,), None, 1.5), ((), -1.0, 1.0), ((3, 0), 0.0, 1.0))),
    Extra("nn.functional.softplus", F.softplus, calls(((5, 6),), ((),), ((2, 0),))),
    Extra("nn.functional.affine_grid", F.affine_grid, calls(((2, 2, 3), [2, 1, 4, 3], False), ((2, 2, 3), [2, 3, 4, 3], True), ((1, 2, 3), [1, 1, 1, 5], True))),
    Extra("native_channel_shuffle", torch.native_channel_shuffle, calls(((2, 6, 3, 4), 3), ((1, 4, 5, 2), 2)), FLOATS[:2], False),
    Extra("nn.functional.fold", F.fold, calls(((2, 12, 20), [5, 6], [2, 2]), ((2, 18, 24), [8, 4], 3, {"stride": (2, 1), "padding": (1, 2)}))),
    Extra("nn.functional.lp_pool2d", F.lp_pool2d, calls(((2, 3, 6, 5), 2.0, 2), ((2, 3, 6, 5), 1.0, 3, 2), ((2, 3, 6, 4), 2.0, [3, 2], [1, 2]))),
    Extra("nn.functional.lp_pool1d", F.lp_pool1d, calls(((2, 3, 8), 2.0, 2), ((2, 3, 9), 1.0, 3, 2))),
    Extra("nn.functional.upsample", F.upsample, calls(((2, 3, 4, 5), {"size": (7, 3)}), ((2, 3, 4, 5), {"scale_factor": 2, "mode": "bilinear", "align_corners": True}))),
    Extra("conv_tbc", torch.conv_tbc, calls(((7, 2, 3), (3, 3, 4), (4,), 1), ((7, 2, 3), (2, 3, 4), (4,), 0))),
    Extra("detach", torch.Tensor.detach, calls(((3, 4),)), (*FLOATS, torch.int64, torch.bool)),
    Extra("nn.functional.alpha_dropout", F.alpha_dropout, calls(((3, 4), 0.5, False), ((2, 3, 4), {"p": 0.2}))),
    Extra("full", lambda size, value, dtype: torch.full(size, value, dtype=dtype), lambda make: [
        ([[2, 3], 7, make(1).dtype], {}), ([[], 2, make(1).dtype], {})], (*FLOATS, torch.int64, torch.int32, torch.uint8)),
]


@op("nn.functional.affine_grid")
def affine_grid(g, theta, size, align_corners=None):
    no(len(size) != 4, "size: of volumes")
    return g.affine_grid(theta, out_h=size[2], out_w=size[3], corners=bool(align_corners))


@op("native_channel_shuffle")
def channel_shuffle(g, x, groups):
    return g.channel_shuffle(x, groups=groups)


@op("nn.functional.fold")
def fold(g, x, output_size, kernel_size, dilation=1, padding=0, stride=1):
    no(any(d != 1 for d in as_list(dilation)), "dilation")
    size = as_list(output_size, 2)
    return g.fold(x, out_h=size[0], out_w=size[1], kernel=as_list(kernel_size, 2), stride=as_list(stride, 2), padding=as_list(padding, 2))


@op("nn.functional.lp_pool2d")
def lp_pool2d(g, x, norm_type, kernel_size, stride=None, ceil_mode=False):
    no(ceil_mode, "ceil_mode")
    return g.lp_pool2d(x, p=norm_type, kernel=as_list(kernel_size, 2), stride=as_list(stride or kernel_size, 2))


@op("nn.functional.lp_pool1d")
def lp_pool1d(g, x, norm_type, kernel_size, stride=None, ceil_mode=False):
    y = g.lp_pool2d(g.unsqueeze(x, axis=2), p=norm_type, kernel=[1, kernel_size], stride=[1, stride or kernel_size])
    return g.squeeze(y, axis=2)


@op("nn.functional.upsample")
def upsample(g, x, size=None, scale_factor=None, mode="nearest", align_corners=None):
    return OPS["nn.functional.interpolate/nearest"](g, x, size, scale_factor, mode, align_corners)


@op("conv_tbc")
def conv_tbc(g, x, weight, bias, pad=0):
    y = g.conv1d(g.permute(x, order=[1, 2, 0]), g.permute(weight, order=[2, 1, 0]), bias, padding=pad)
    return g.permute(y, order=[2, 0, 1])


@op("detach")
def detach(g, x):
    return g.detach(x)


@op("nn.functional.alpha_dropout")
def alpha_dropout(g, x, p=0.5, training=False, inplace=False):
    return g.alpha_dropout(x, p=p)


@op("full")
def full(g, size, value, dtype):
    return g.full(shape=size, value=value, dtype=dtype_name(dtype))
