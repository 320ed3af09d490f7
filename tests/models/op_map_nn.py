# SPDX-License-Identifier: Apache-2.0
"""The rest of op_map.py: torch.nn.functional's convolutions, pooling, norms, attention and losses."""
import math

import torch

from op_map import Undefined, as_list, casted, drawn, no, op, spread


# --- windows
def one_or_all(x, n):
    x = as_list(x, n)
    return x[0] if n == 1 else x


def batched(g, x, n, f):
    """f of x with the axis of a batch, which PyTorch lets callers leave out."""
    if x.dim() == n + 2:
        return f(x)
    no(x.dim() != n + 1, "input: other axes")
    y = f(g.unsqueeze(x, axis=0))
    return g.squeeze(y, axis=0)


@op(*(f"nn.functional.conv{n}d" for n in (1, 2, 3)))
def conv(g, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    n = weight.dim() - 2
    no(isinstance(padding, str), "padding: a word")
    windows = {"stride": one_or_all(stride, n), "padding": one_or_all(padding, n), "dilation": one_or_all(dilation, n)}
    return batched(g, x, n, lambda x: getattr(g, g.op)(x, weight, *([] if bias is None else [bias]), **windows, groups=groups))


@op(*(f"nn.functional.conv_transpose{n}d" for n in (1, 2, 3)))
def conv_transpose(g, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    n = weight.dim() - 2
    windows = {"stride": one_or_all(stride, n), "padding": one_or_all(padding, n),
               "output_padding": one_or_all(output_padding, n), "dilation": one_or_all(dilation, n)}
    return batched(g, x, n, lambda x: getattr(g, g.op)(x, weight, *([] if bias is None else [bias]), **windows, groups=groups))


def pool(g, x, kernel_size, stride, padding, **more):
    n = int(g.op[-2])
    return batched(g, x, n, lambda x: getattr(g, g.op)(
        x, kernel=one_or_all(kernel_size, n), stride=one_or_all(kernel_size if stride is None or stride == () or stride == [] else stride, n),
        padding=one_or_all(padding, n), **more))


@op(*(f"nn.functional.max_pool{n}d" for n in (1, 2, 3)))
def max_pool(g, x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    no(return_indices, "return_indices")
    no(any(d != 1 for d in as_list(dilation)), "dilation")
    no(ceil_mode, "ceil_mode")
    return pool(g, x, kernel_size, stride, padding)


@op(*(f"nn.functional.avg_pool{n}d" for n in (1, 2, 3)))
def avg_pool(g, x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    no(ceil_mode, "ceil_mode")
    no(divisor_override is not None, "divisor_override")
    return pool(g, x, kernel_size, stride, padding, count_include_pad=count_include_pad)


@op(*(f"nn.functional.adaptive_{how}_pool{n}d" for how in ("avg", "max") for n in (1, 2, 3)))
def adaptive_pool(g, x, output_size, return_indices=False):
    no(return_indices, "return_indices")
    n = int(g.op[-2])
    sizes = [s if s is not None else x.shape[i - n] for i, s in enumerate(as_list(output_size, n))]
    names = ["out"] if n == 1 else ["out_d", "out_h", "out_w"][3 - n:]
    return batched(g, x, n, lambda x: getattr(g, g.op)(x, **dict(zip(names, sizes))))


@op(*(f"nn.functional.max_unpool{n}d{grad}" for n in (1, 2, 3) for grad in ("", "/grad")))
def max_unpool(g, x, indices, kernel_size, stride=None, padding=0, output_size=None):
    """tsr_scatter of zeros. Indices that are there twice have one of the values in PyTorch, here their sum."""
    n = int(g.op.split("/")[0][-2])
    size = getattr(torch.nn.functional, g.op.split("/")[0])(x.detach().float(), indices, kernel_size, stride, padding, output_size).shape
    rows = list(x.shape[:-n])
    flat = indices.reshape(*rows, -1)
    if any(len(set(r.tolist())) < r.numel() for r in flat.reshape(-1, flat.shape[-1])):
        raise Undefined("indices: twice the same")
    zeros = torch.zeros(*rows, math.prod(size[-n:]), dtype=x.dtype)
    y = g.scatter(zeros, g.reshape(indices, shape=list(flat.shape)), g.reshape(x, shape=list(flat.shape)), axis=-1)
    return g.reshape(y, shape=list(size))


@op("nn.functional.unfold")
def unfold(g, x, kernel_size, dilation=1, padding=0, stride=1):
    no(any(d != 1 for d in as_list(dilation)), "dilation")
    return batched(g, x, 2, lambda x: g.unfold(x, kernel=as_list(kernel_size, 2), stride=as_list(stride, 2), padding=as_list(padding, 2)))


# --- images
@op(*(f"nn.functional.interpolate/{mode}" for mode in "nearest linear bilinear bicubic trilinear area".split()))
def interpolate(g, x, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    no(mode not in ("nearest", "bilinear"), f"mode: {mode}")
    no(x.dim() != 4, "input: not of images (n,c,h,w)")
    if size is None:
        factors = as_list(scale_factor, 2)
        no(any(f * n != int(f * n) for f, n in zip(factors, x.shape[2:])) and not recompute_scale_factor, "scale_factor: of a size that is not whole")
        size = [math.floor(n * f) for n, f in zip(x.shape[2:], factors)]
    size = as_list(size, 2)
    return g.interpolate(x, out_h=size[0], out_w=size[1], how="nearest" if mode == "nearest" else "corners" if align_corners else "bilinear")


@op("nn.functional.upsample_nearest")
def upsample_nearest(g, x, size=None, scale_factor=None):
    return interpolate(g, x, size, scale_factor)


@op("nn.functional.upsample_bilinear")
def upsample_bilinear(g, x, size=None, scale_factor=None):
    return interpolate(g, x, size, scale_factor, "bilinear", True)


@op("nn.functional.grid_sample")
def grid_sample(g, x, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    no(x.dim() != 4, "input: not of images (n,c,h,w)")
    no(mode == "bicubic", "mode: bicubic")
    no(padding_mode == "reflection", "padding_mode: reflection")
    no(mode == "nearest" and align_corners, "align_corners: with mode nearest")
    how = "nearest" if mode == "nearest" else "corners" if align_corners else "bilinear"
    return g.grid_sample(x, grid, how=how, border=padding_mode == "border")


@op("nn.functional.pixel_shuffle", "nn.functional.pixel_unshuffle")
def pixel_shuffle(g, x, upscale_factor=None, downscale_factor=None):
    factor = upscale_factor or downscale_factor
    no(x.dim() < 3, "input: less than three axes")
    if x.dim() == 4:
        return getattr(g, g.op)(x, r=factor)
    shape = list(getattr(torch.nn.functional, g.op)(x.detach().float(), factor).shape)
    y = getattr(g, g.op)(g.reshape(x, shape=[math.prod(x.shape[:-3]), *x.shape[-3:]]), r=factor)
    return g.reshape(y, shape=shape)


# --- normalisation
@op("softmax", "log_softmax", "softmax/with_dtype", "log_softmax/dtype", "nn.functional.softmin", "nn.functional.softmin/with_dtype")
def softmax(g, x, dim=None, dtype=None, _stacklevel=3):
    return getattr(g, g.op.split("/")[0])(casted(g, x, dtype), axis=dim)


@op("nn.functional.layer_norm")
def layer_norm(g, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    no(weight is None and bias is not None, "bias: without weight")
    return g.layer_norm(x, *([] if weight is None else [weight]), *([] if bias is None else [bias]), eps=eps, axes=len(normalized_shape))


def group(g, x, groups, weight, bias, eps):
    no(weight is None and bias is not None, "bias: without weight")
    return g.group_norm(x, *([] if weight is None else [weight]), *([] if bias is None else [bias]), groups=groups, eps=eps)


@op("nn.functional.group_norm")
def group_norm(g, x, num_groups, weight=None, bias=None, eps=1e-5):
    return group(g, x, num_groups, weight, bias, eps)


@op("nn.functional.instance_norm")
def instance_norm(g, x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    no(not use_input_stats, "use_input_stats: false")
    return group(g, x, x.shape[1], weight, bias, eps)


@op("nn.functional.batch_norm", "nn.functional.batch_norm/without_cudnn")
def batch_norm(g, x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    no(running_mean is None, "running_mean: none")
    no(x.dim() < 2, "input: one axis")
    g.training = training
    g.variables += [g.operand(running_mean), g.operand(running_var)]
    c = x.shape[1]
    y = x if x.dim() in (2, 4) else g.reshape(x, shape=[x.shape[0], c, math.prod(x.shape[2:]), 1])
    y = g.batch_norm(y, torch.ones(c, dtype=x.dtype) if weight is None else weight, torch.zeros(c, dtype=x.dtype) if bias is None else bias,
                     *g.variables, eps=eps, momentum=momentum)
    return y if x.dim() in (2, 4) else g.reshape(y, shape=list(x.shape))


@op("nn.functional.local_response_norm")
def local_response_norm(g, x, size, alpha=1e-4, beta=0.75, k=1.0):
    return g.local_response_norm(x, size=size, alpha=alpha, beta=beta, k=k)


@op("nn.functional.normalize")
def normalize(g, x, p=2.0, dim=1, eps=1e-12, out=None):
    no(p != 2, "p: others than 2")
    return g.normalize(x, axis=dim, eps=eps)


@op("nn.functional._scaled_dot_product_attention")
def attention(g, query, key, value, attn_mask=None, dropout_p=0.0, need_attn_weights=False, is_causal=False):
    drawn(dropout_p)
    no(need_attn_weights, "need_attn_weights")
    no(query.dim() not in (3, 4), "query: other axes")
    if query.dim() == 4:
        return g.scaled_dot_product_attention(query, key, value, *([] if attn_mask is None else [attn_mask]), causal=is_causal)
    one = [g.unsqueeze(x, axis=1) for x in (query, key, value)]
    if attn_mask is not None:
        one.append(g.unsqueeze(attn_mask, axis=1) if attn_mask.dim() == 3 else attn_mask)
    return g.squeeze(g.scaled_dot_product_attention(*one, causal=is_causal), axis=1)


@op("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout/with_train",
    "nn.functional.feature_alpha_dropout/without_train")
def dropout(g, x, p=0.5, training=True, inplace=False):
    drawn(training and p != 0)
    no(p >= 1, "p: 1")
    name = {"dropout": "dropout", "feature_alpha_dropout": "feature_alpha_dropout"}.get(g.op.split("/")[0], "dropout2d")
    return getattr(g, name)(x, p=p)


# --- losses
def options(size_average, reduce, reduction):
    no(size_average is not None or reduce is not None, "size_average, reduce")
    return reduction


@op("nn.functional.mse_loss", "nn.functional.l1_loss", "nn.functional.soft_margin_loss")
def loss(g, x, target, size_average=None, reduce=None, reduction="mean"):
    return getattr(g, g.op)(x, target, reduction=options(size_average, reduce, reduction))


@op("nn.functional.smooth_l1_loss")
def smooth_l1_loss(g, x, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    if beta == 0:
        return g.l1_loss(x, target, reduction=options(size_average, reduce, reduction))
    return g.smooth_l1_loss(x, target, beta=beta, reduction=options(size_average, reduce, reduction))


@op("nn.functional.huber_loss")
def huber_loss(g, x, target, reduction="mean", delta=1.0):
    return g.huber_loss(x, target, delta=delta, reduction=reduction)


@op("nn.functional.kl_div")
def kl_div(g, x, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    options(size_average, reduce, reduction)
    if reduction == "batchmean":
        return g.div_scalar(g.kl_div(x, target, reduction="sum", log_target=log_target), a=x.shape[0] if x.dim() else 1)
    return g.kl_div(x, target, reduction=reduction, log_target=log_target)


def reduced(g, y, reduction):
    return y if reduction == "none" else getattr(g, reduction)(y)


@op("nn.functional.binary_cross_entropy")
def binary_cross_entropy(g, x, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    options(size_average, reduce, reduction)
    if weight is None:
        return g.binary_cross_entropy(x, target, reduction=reduction)
    return reduced(g, g.mul(g.binary_cross_entropy(x, target, reduction="none"), weight), reduction)


@op("nn.functional.binary_cross_entropy_with_logits")
def bce_with_logits(g, x, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
    options(size_average, reduce, reduction)
    more = [] if pos_weight is None else [pos_weight]
    if weight is None:
        return g.binary_cross_entropy_with_logits(x, target, *more, reduction=reduction)
    return reduced(g, g.mul(g.binary_cross_entropy_with_logits(x, target, *more, reduction="none"), weight), reduction)


@op("nn.functional.hinge_embedding_loss")
def hinge_embedding_loss(g, x, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    return g.hinge_embedding_loss(x, target, margin=margin, reduction=options(size_average, reduce, reduction))


@op("nn.functional.margin_ranking_loss")
def margin_ranking_loss(g, x1, x2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    return g.margin_ranking_loss(x1, x2, target, margin=margin, reduction=options(size_average, reduce, reduction))


@op("nn.functional.poisson_nll_loss")
def poisson_nll_loss(g, x, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    no(not log_input, "log_input: false")
    no(full, "full")
    return g.poisson_nll_loss(x, target, reduction=options(size_average, reduce, reduction))


@op("nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(g, x, target, var, full=False, eps=1e-6, reduction="mean"):
    no(full, "full")
    if var.shape != x.shape and var.shape == x.shape[:-1]:
        var = g.expand(g.unsqueeze(var, axis=var.dim()), shape=list(x.shape))
    elif var.shape != x.shape:
        no(torch.broadcast_shapes(var.shape, x.shape) != x.shape, "input: that var makes larger")
        var = spread(g, x.shape, var)
    no(torch.broadcast_shapes(target.shape, x.shape) != x.shape, "input: that target makes larger")
    return g.gaussian_nll_loss(x, spread(g, x.shape, target), var, eps=eps, reduction=reduction)


@op("nn.functional.cosine_similarity")
def cosine_similarity(g, x1, x2, dim=1, eps=1e-8):
    shape = torch.broadcast_shapes(x1.shape, x2.shape)
    return g.cosine_similarity(spread(g, shape, x1), spread(g, shape, x2), axis=dim, eps=eps)


@op("nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(g, x1, x2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    options(size_average, reduce, reduction)
    if x1.dim() == 1:
        y = g.cosine_embedding_loss(g.unsqueeze(x1, axis=0), g.unsqueeze(x2, axis=0), g.reshape(target, shape=[1]), margin=margin, reduction=reduction)
        return g.squeeze(y, axis=0) if reduction == "none" else y
    return g.cosine_embedding_loss(x1, x2, target, margin=margin, reduction=reduction)


@op("nn.functional.triplet_margin_loss")
def triplet_margin_loss(g, anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"):
    no(swap, "swap")
    no(eps != 1e-6, "eps")
    return g.triplet_margin_loss(anchor, positive, negative, margin=margin, power=p, reduction=options(size_average, reduce, reduction))


@op("nn.functional.triplet_margin_with_distance_loss")
def triplet_with_distance(g, anchor, positive, negative, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    no(distance_function is not None, "distance_function")
    return triplet_margin_loss(g, anchor, positive, negative, margin, swap=swap, reduction=reduction)


@op("nn.functional.multi_margin_loss")
def multi_margin_loss(g, x, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    no(weight is not None, "weight")
    if x.dim() == 1:
        y = g.multi_margin_loss(g.unsqueeze(x, axis=0), g.reshape(target, shape=[1]), power=p, margin=margin, reduction=reduction)
        return g.squeeze(y, axis=0) if reduction == "none" else y
    return g.multi_margin_loss(x, target, power=p, margin=margin, reduction=options(size_average, reduce, reduction))


@op("nn.functional.multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(g, x, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    options(size_average, reduce, reduction)
    y = g.binary_cross_entropy_with_logits(x, target, reduction="none")
    y = g.mean(y if weight is None else g.mul(y, weight), axes=[-1])
    return reduced(g, y, reduction)


def rows_of(g, x, target):
    """Logits (n,c,...) and labels (n,...) as rows, and the shape of the losses."""
    if x.dim() == 2:
        return x, target, None
    if x.dim() == 1:
        return g.unsqueeze(x, axis=0), g.reshape(target, shape=[1]), []
    order = [0, *range(2, x.dim()), 1]
    return g.reshape(g.permute(x, order=order), shape=[math.prod(target.shape), x.shape[1]]), g.reshape(target, shape=[-1]), list(target.shape)


@op("nn.functional.nll_loss")
def nll_loss(g, x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    options(size_average, reduce, reduction)
    rows, labels, shape = rows_of(g, x, target)
    y = g.nll_loss(rows, labels, *([] if weight is None else [weight]), ignore_index=ignore_index, reduction=reduction)
    return g.reshape(y, shape=shape) if reduction == "none" and shape is not None else y


@op("nn.functional.cross_entropy")
def cross_entropy(g, x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    options(size_average, reduce, reduction)
    no(target.dtype.is_floating_point, "target: probabilities")
    no(weight is not None and label_smoothing, "weight: with label_smoothing")
    rows, labels, shape = rows_of(g, x, target)
    if weight is None:
        y = g.cross_entropy(rows, labels, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
    else:
        y = g.nll_loss(g.log_softmax(rows, axis=1), labels, weight, ignore_index=ignore_index, reduction=reduction)
    return g.reshape(y, shape=shape) if reduction == "none" and shape is not None else y


@op("nn.functional.pairwise_distance")
def pairwise_distance(g, x1, x2, p=2.0, eps=1e-6, keepdim=False):
    no(p <= 0 or math.isinf(p), "p: infinite or at most 0")
    return g.norm(g.add_scalar(g.sub(x1, x2), a=eps), p=p, axes=[-1], keepdim=keepdim)


@op("nn.functional.pdist")
def pdist(g, x, p=2.0):
    no(p <= 0 or math.isinf(p), "p: infinite or at most 0")
    return g.pdist(x, p=p)

