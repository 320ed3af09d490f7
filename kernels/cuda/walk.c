/* SPDX-License-Identifier: Apache-2.0 */
/* Walks: axes sorted and merged on the host, so that kernels divide as seldom as can be. */
#include "kernels/cuda/gpu.h"

#include <string.h>

void tsri_cuda_walk_init(tsri_cuda_walk *w, int ndim, const int64_t *shape)
{
    *w = (tsri_cuda_walk){.ndim = ndim, .count = 1};
    /* Reversed: the last axis of a shape is the innermost. */
    for (int i = 0; i < ndim; i++) {
        w->size[i] = shape[ndim - 1 - i];
        w->count *= w->size[i];
    }
}

void tsri_cuda_walk_push(tsri_cuda_walk *w, const int64_t *stride)
{
    for (int i = 0; i < w->ndim; i++)
        w->stride[w->nops][i] = stride[w->ndim - 1 - i];
    w->nops++;
}

void tsri_cuda_walk_push_arg(tsri_cuda_walk *w, const tsri_arg *arg)
{
    for (int i = 0; i < w->ndim; i++) {
        int a = arg->ndim - 1 - i;
        w->stride[w->nops][i] = a >= 0 && arg->shape[a] != 1 ? arg->stride[a] : 0;
    }
    w->nops++;
}

static void swap_axes(tsri_cuda_walk *w, int a, int b)
{
    int64_t t = w->size[a];
    w->size[a] = w->size[b];
    w->size[b] = t;
    for (int o = 0; o < w->nops; o++) {
        t = w->stride[o][a];
        w->stride[o][a] = w->stride[o][b];
        w->stride[o][b] = t;
    }
}

static void drop_axis(tsri_cuda_walk *w, int a)
{
    w->ndim--;
    memmove(&w->size[a], &w->size[a + 1], (size_t)(w->ndim - a) * sizeof w->size[0]);
    for (int o = 0; o < w->nops; o++)
        memmove(&w->stride[o][a], &w->stride[o][a + 1], (size_t)(w->ndim - a) * sizeof w->size[0]);
}

/* Whether axis a + 1 goes on where axis a ends, for every operand. */
static bool goes_on(const tsri_cuda_walk *w, int a)
{
    for (int o = 0; o < w->nops; o++)
        if (w->stride[o][a + 1] != w->stride[o][a] * w->size[a])
            return false;
    return true;
}

void tsri_cuda_walk_finish(tsri_cuda_walk *w)
{
    for (int a = w->ndim - 1; a >= 0 && w->ndim > 1; a--)
        if (w->size[a] == 1)
            drop_axis(w, a);
    for (int i = 1; i < w->ndim; i++)
        for (int a = i; a > 0 && w->nops && w->stride[0][a] < w->stride[0][a - 1]; a--)
            swap_axes(w, a, a - 1);
    for (int a = 0; a + 1 < w->ndim;) {
        if (!goes_on(w, a)) {
            a++;
            continue;
        }
        w->size[a] *= w->size[a + 1];
        for (int o = 0; o < w->nops; o++)
            w->stride[o][a + 1] = w->stride[o][a];
        w->size[a + 1] = w->size[a];
        drop_axis(w, a);
    }
    if (w->ndim == 0) {
        w->ndim = 1;
        w->size[0] = 1;
    }
    w->flat = w->ndim == 1;
    for (int o = 0; o < w->nops && w->flat; o++)
        w->flat = w->stride[o][0] == 1 || w->count == 1;
}

void tsri_cuda_walk_of(tsri_cuda_walk *w, const tsri_kernel_desc *desc)
{
    tsri_cuda_walk_init(w, desc->out[0].ndim, desc->out[0].shape);
    tsri_cuda_walk_push(w, desc->out[0].stride);
    for (int i = 0; i < desc->nin; i++)
        tsri_cuda_walk_push_arg(w, &desc->in[i]);
    tsri_cuda_walk_finish(w);
}
