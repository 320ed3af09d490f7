/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the elements that two boxes of a row-major array share: one engine for every collective. */
#include "src/comm/move/move.h"

#include <tessera/placement.h>

#include <stdlib.h>
#include <string.h>

/* Below this many bytes a second thread costs more than it brings. */
enum { PARALLEL_BYTES = 256 * 1024 };

tsri_box tsri_box_piece(tsr_dims shape, int axis, int n, int i)
{
    tsri_box box = {{0}, {0}};
    for (int a = 0; a < shape.ndim; a++)
        box.length[a] = shape.d[a];
    if (axis >= 0)
        tsr_split(shape.d[axis], n, i, &box.offset[axis], &box.length[axis]);
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

typedef struct job {
    const tsri_walk *walk;
    size_t element;
    tsri_reduce_fn *reduce; /* NULL: copy */
    int nsrc;
    const char *const *src;
    char *dst;
} job;

/* Part of a row of the walk: n elements. */
static void do_row(const job *j, int64_t src_at, int64_t src_step, int64_t dst_at, int64_t dst_step,
                   int64_t n)
{
    char *to = j->dst + dst_at * (int64_t)j->element;
    const char *from = j->src[0] + src_at * (int64_t)j->element;
    bool dense = src_step == 1 && dst_step == 1;
    if (j->reduce && dense)
        j->reduce(to, j->src, src_at, j->nsrc, n);
    else if (j->reduce)
        tsri_reduce_strided(j->reduce, j->element, j->nsrc, j->src, src_at, src_step, to, dst_step,
                            n);
    else if (dense)
        tsri_copy(to, from, (size_t)n * j->element);
    else
        tsri_copy_strided(j->element, from, src_step, to, dst_step, n);
}

/* Elements [begin, end) of the walk. Where nothing is dense, the first loop stands in for the run.
 */
static void do_range(const job *j, int64_t begin, int64_t end)
{
    const tsri_walk *w = j->walk;
    int inner = w->run == 1 && w->nloop > 0;
    int64_t run = inner ? w->length[0] : w->run, row = begin / run, skip = begin % run;
    int64_t src_step = inner ? w->src_step[0] : 1, dst_step = inner ? w->dst_step[0] : 1;
    int64_t index[TSR_MAX_NDIM] = {0}, src_at = w->src_at, dst_at = w->dst_at;
    for (int k = inner; k < w->nloop; k++) {
        index[k] = row % w->length[k];
        row /= w->length[k];
        src_at += index[k] * w->src_step[k];
        dst_at += index[k] * w->dst_step[k];
    }
    while (begin < end) {
        int64_t n = run - skip < end - begin ? run - skip : end - begin;
        do_row(j, src_at + skip * src_step, src_step, dst_at + skip * dst_step, dst_step, n);
        begin += n;
        skip = 0;
        for (int k = inner; k < w->nloop; k++) {
            src_at += w->src_step[k];
            dst_at += w->dst_step[k];
            if (++index[k] < w->length[k])
                break;
            src_at -= w->length[k] * w->src_step[k];
            dst_at -= w->length[k] * w->dst_step[k];
            index[k] = 0;
        }
    }
}

void tsri_walk_run(const tsri_walk *w, tsr_dtype dtype, tsr_reduce_op op, int nsrc,
                   const char *const *src, char *dst, int threads)
{
    int64_t total = w->rows * w->run;
    if (total == 0)
        return;
    const job j = {
        w, tsr_dtype_size(dtype), nsrc > 1 ? tsri_reduce_of(dtype, op) : NULL, nsrc, src, dst};
    if (!j.reduce && src[0] == dst && w->src_at == w->dst_at)
        return;
    if (threads <= 1 || total * (int64_t)j.element * nsrc < PARALLEL_BYTES) {
        do_range(&j, 0, total);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        do_range(&j, total / threads * t, t + 1 == threads ? total : total / threads * (t + 1));
}
