/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the elements of a walk: one engine for every collective. */
#include "src/comm/move/move.h"

/* Below this many bytes a second thread costs more than it brings. */
enum { PARALLEL_BYTES = 256 * 1024 };

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
