/* SPDX-License-Identifier: Apache-2.0 */
/* Works out how to go through the elements of a box on two sides. Pure: run.c does it. */
#include "src/comm/move/move.h"

#include <tessera/placement.h>

#include <stdlib.h>

tsri_box tsri_box_piece(tsr_dims shape, int axis, int n, int i)
{
    tsri_box box = {{0}, {0}};
    for (int a = 0; a < shape.ndim; a++)
        box.length[a] = shape.d[a];
    if (axis >= 0)
        tsr_balanced_split(shape.d[axis], n, i, &box.offset[axis], &box.length[axis]);
    return box;
}

int64_t tsri_box_count(tsr_dims shape, const tsri_box *box)
{
    int64_t n = 1;
    for (int a = 0; a < shape.ndim; a++)
        n *= box->length[a];
    return n;
}

tsri_walk tsri_walk_flat(int64_t offset, int64_t length)
{
    return (tsri_walk){.src_at = offset, .dst_at = offset, .rows = 1, .run = length};
}

/* Goes around what w has with an axis whose neighbours are so far apart. */
static void add_axis(tsri_walk *w, int64_t length, int64_t src_step, int64_t dst_step)
{
    int last = w->nloop - 1;
    if (length == 1)
        return;
    if (w->nloop == 0 && src_step == w->run && dst_step == w->run) {
        w->run *= length;
        return;
    }
    w->rows *= length;
    if (w->nloop > 0 && src_step == w->src_step[last] * w->length[last] &&
        dst_step == w->dst_step[last] * w->length[last]) {
        w->length[last] *= length;
        return;
    }
    w->length[w->nloop] = length;
    w->src_step[w->nloop] = src_step;
    w->dst_step[w->nloop++] = dst_step;
}

tsri_walk tsri_walk_of(tsr_dims shape, const tsri_box *src, const tsri_box *dst)
{
    tsri_walk w = {.rows = 1, .run = 1};
    int64_t src_step = 1, dst_step = 1;
    for (int a = shape.ndim - 1; a >= 0; a--) {
        int64_t src_end = src->offset[a] + src->length[a],
                dst_end = dst->offset[a] + dst->length[a];
        int64_t from = src->offset[a] > dst->offset[a] ? src->offset[a] : dst->offset[a];
        int64_t length = (src_end < dst_end ? src_end : dst_end) - from;
        if (length <= 0)
            return (tsri_walk){0};
        w.src_at += (from - src->offset[a]) * src_step;
        w.dst_at += (from - dst->offset[a]) * dst_step;
        add_axis(&w, length, src_step, dst_step);
        src_step *= src->length[a];
        dst_step *= dst->length[a];
    }
    return w;
}

/* Whether axis a is to go inside of axis b: the smaller steps, of dst first. */
static bool is_inner(const tsri_pull *p, int a, int b)
{
    int64_t da = llabs(p->dst_step[a]), db = llabs(p->dst_step[b]);
    return da != db ? da < db : llabs(p->src_step[a]) < llabs(p->src_step[b]);
}

tsri_walk tsri_walk_pull(const tsri_pull *pull)
{
    tsri_walk w = {.src_at = pull->src_at, .dst_at = pull->dst_at, .rows = 1, .run = 1};
    int order[TSR_MAX_NDIM], n = 0;
    for (int a = pull->ndim - 1; a >= 0; a--) {
        if (pull->length[a] <= 0)
            return (tsri_walk){0};
        int at = n++;
        for (; at > 0 && is_inner(pull, a, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = a;
    }
    for (int i = 0; i < n; i++)
        add_axis(&w, pull->length[order[i]], pull->src_step[order[i]], pull->dst_step[order[i]]);
    return w;
}

int tsri_walk_axes(const tsri_walk *w, int64_t *length, int64_t *src_step, int64_t *dst_step)
{
    int n = 0;
    for (int k = w->nloop - 1; k >= 0; k--) {
        length[n] = w->length[k];
        src_step[n] = w->src_step[k];
        dst_step[n++] = w->dst_step[k];
    }
    if (w->run > 1) {
        length[n] = w->run;
        src_step[n] = dst_step[n] = 1;
        n++;
    }
    return n;
}
