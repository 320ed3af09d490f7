/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: which kernel takes one, and 1x1 as matrix products. */
#include "kernels/cpu/fast/gemm16.h"
#include "kernels/cpu/ref/ref.h"

static bool images(const tsri_arg *a, int64_t *n, int64_t *channels, int64_t size[2])
{
    int64_t rows;
    if (a->ndim != 4 || !tsri_fast_is_rows(a, &rows, channels))
        return false;
    *n = a->shape[0];
    size[0] = a->shape[2];
    size[1] = a->shape[3];
    return true;
}

bool tsri_fast_conv_of(const tsri_kernel_desc *desc, tsri_fast_conv *out_conv)
{
    const tsri_arg *x = &desc->in[0], *w = &desc->in[1], *y = &desc->out[0];
    if (desc->op == TSRI_OP_CONV2D_DX) {
        y = &desc->in[0];
        x = &desc->out[0];
    } else if (desc->op == TSRI_OP_CONV2D_DW) {
        y = &desc->in[1];
        w = &desc->out[0];
    }
    tsri_fast_conv c = {
        .groups = desc->groups, .bias = desc->nin > 2, .bf16 = tsri_fast_takes16(desc)};
    if (!(tsri_fast_is_f32(desc) || c.bf16) || !images(x, &c.n, &c.ci, c.in) ||
        !images(y, &c.n, &c.co, c.out) || w->ndim != 4 || !tsri_fast_is_row_major(w) ||
        !tsri_arg_count(w))
        return false;
    for (int i = 0; i < 2; i++) {
        c.kernel[i] = desc->attrs->conv.kernel[i];
        c.stride[i] = desc->attrs->conv.stride[i];
        c.pad[i] = desc->attrs->conv.pad[i];
        c.dilation[i] = desc->attrs->conv.dilation[i];
    }
    *out_conv = c;
    return true;
}

/* Dense or grouped windows, that may reach into zeros around the images. */
static tsr_status choose(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                         tsri_kernel **out_kernel)
{
    if (c->bf16)
        return c->groups == 1 && tsri_isa16_best() ? tsri_fast_unfold(mem, desc, c, out_kernel)
                                                   : tsri_fast_decline(desc);
    if (tsri_fast_overlap_suits(desc, c))
        return tsri_fast_overlap(mem, desc, c, out_kernel);
    if (tsri_fast_planar_suits(desc, c))
        return tsri_fast_planar(mem, desc, c, out_kernel);
    return tsri_fast_direct(mem, desc, c, out_kernel);
}

static void end_channel(const tsri_kernel *kernel, void *const *in, void *y, int64_t c)
{
    const tsri_fast *f = (const tsri_fast *)kernel;
    tsri_fast_end_rows(f, in, y, 0, f->ends_rows, c, c + 1);
}

tsr_status tsri_fast_conv2d(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    tsri_fast_conv c;
    if (!tsri_fast_conv_of(desc, &c))
        return tsri_fast_decline(desc);
    if (c.groups == c.ci && c.groups == c.co && c.groups > 1 &&
        c.kernel[0] * c.kernel[1] <= TSRI_FAST_TAPS)
        return tsri_fast_depthwise(mem, desc, &c, out_kernel);
    if (c.groups == 1 && c.kernel[0] == 1 && c.kernel[1] == 1 && c.stride[0] == 1 &&
        c.stride[1] == 1 && !c.pad[0] && !c.pad[1])
        return tsri_fast_product(mem, desc, c.n * c.in[0] * c.in[1], c.co, c.ci, out_kernel);
    if (tsri_fast_winograd_suits(desc, &c))
        return tsri_fast_winograd(mem, desc, &c, out_kernel);
    TSRI_TRY(choose(mem, desc, &c, out_kernel));
    return tsri_ref_conv_edges(mem, desc, (*out_kernel)->takes_end ? end_channel : NULL,
                               out_kernel);
}
