/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers and their gradients. A step's products with the state are small, and the next
 * step needs them all: the weights are packed once for all steps, and threads share samples, which
 * do not see each other, or units of the state, and then meet once a step.
 *
 * Backward a step's first part is the products that the step behind it in time has left to make, so
 * that there, too, threads meet once.
 */
#include "kernels/recurrent.h"

#include <omp.h>
#include <string.h>

#include "kernels/cpu/fast/fast.h"

enum {
    ROWS = 8,                  /* samples that a thread's products are best made of */
    WORTH_A_MEETING = 1 << 17, /* multiplications of a step */
    WORTH_A_TEAM = 1 << 17,    /* of all steps */
};

typedef struct recurrent {
    tsri_fast base;
    const tsri_fast_loops *loops;
    tsri_cell cell;
    tsri_attrs attrs;
    tsri_recurrent_sizes size;
    tsri_recurrent_roles role;
    int by_rows, by_units; /* threads: parts of the samples times parts of the units */
    int64_t gates, saved;  /* numbers of a sample's step */
    size_t packed_bytes;   /* of the weights of a part of the units */
    size_t sums_at;        /* in scratch, behind these: sums[n][gates] */
} recurrent;

/* The samples [n0, n1) and units [j0, j1) of one thread. */
typedef struct part {
    int64_t n0, n1, j0, j1;
    int units; /* which part of the units */
} part;

/* The buffers of a run. */
typedef struct job {
    const recurrent *r;
    void *const *in, *const *out;
    char *scratch;
} job;

/* Return p, moved by so many elements. */
static const void *elements_at(const recurrent *r, const void *p, int64_t elements)
{
    return (const char *)p + elements * r->loops->size;
}

static void *elements_to(const recurrent *r, void *p, int64_t elements)
{
    return (char *)p + elements * r->loops->size;
}

static part part_of(const recurrent *r, int index)
{
    const int rows = index / r->by_units, units = index % r->by_units;
    return (part){.n0 = tsri_fast_cut(r->size.n, r->by_rows, rows, 1),
                  .n1 = tsri_fast_cut(r->size.n, r->by_rows, rows + 1, 1),
                  .j0 = tsri_fast_cut(r->size.h, r->by_units, units, r->loops->width),
                  .j1 = tsri_fast_cut(r->size.h, r->by_units, units + 1, r->loops->width),
                  .units = units};
}

/* The products of a part: forward those of one gate, h w^T; backward ds w. */
static tsri_fast_gemm products_of(const recurrent *r, const part *p, bool back)
{
    const int64_t h = r->size.h;
    tsri_fast_gemm g = tsri_fast_gemm_of(r->loops, p->n1 - p->n0, p->j1 - p->j0,
                                         back ? r->gates : h, false, !back);
    g.bk = back ? h : 1;
    g.ldc = back ? h : r->gates;
    g.add = back && r->cell == TSRI_CELL_GRU;
    return g;
}

static void *packed_of(const job *q, int units)
{
    return q->scratch + (size_t)units * q->r->packed_bytes;
}

/* --- forward ---------------------------------------------------------------------------------- */

static void pack_part(void *arg, int index)
{
    const job *q = arg;
    const recurrent *r = q->r;
    const part p = part_of(r, index);
    const tsri_fast_gemm g = products_of(r, &p, false);
    const void *w = q->in[r->role.w];
    for (int i = 0; i < r->size.gates; i++)
        tsri_fast_gemm_pack(&g, index / r->by_units, r->by_rows,
                            elements_at(r, w, (i * r->size.h + p.j0) * r->size.h),
                            elements_to(r, packed_of(q, p.units), i * tsri_fast_packed(&g)));
}

/* Step `at` of a sample, from states `h` and, of an LSTM, `c` before. */
static void step_sample(const job *q, const part *p, int64_t at, int64_t n, const void *h,
                        const void *c, const void *sums)
{
    const recurrent *r = q->r;
    const int64_t row = at * r->size.n + n, unit = row * r->size.h + p->j0;
    tsri_fast_cell cell = {.n = p->j1 - p->j0,
                           .pitch = r->size.h,
                           .x = elements_at(r, q->in[r->role.x], row * r->gates + p->j0),
                           .sums = elements_at(r, sums, n * r->gates + p->j0),
                           .before = elements_at(r, c ? c : h, n * r->size.h + p->j0),
                           .y = elements_to(r, q->out[r->role.y], unit)};
    if (r->role.cells >= 0)
        cell.cells = elements_to(r, q->out[r->role.cells], unit);
    if (r->role.gates >= 0)
        cell.gates = elements_to(r, q->out[r->role.gates], row * r->saved + p->j0);
    r->loops->cell[r->cell](&cell);
}

static void forward_step(void *arg, int index, int64_t step)
{
    const job *q = arg;
    const recurrent *r = q->r;
    const part p = part_of(r, index);
    const tsri_fast_gemm g = products_of(r, &p, false);
    const int64_t h = r->size.h, state = r->size.n * h;
    const int64_t at = tsri_recurrent_at(&r->attrs, r->size.t, step);
    const int64_t last = tsri_recurrent_at(&r->attrs, r->size.t, step - 1);
    const void *before = q->in[r->role.h0], *cells = r->role.c0 < 0 ? NULL : q->in[r->role.c0];
    if (step) {
        before = elements_at(r, q->out[r->role.y], last * state);
        cells = cells ? elements_at(r, q->out[r->role.cells], last * state) : NULL;
    }
    void *sums = q->scratch + r->sums_at;
    for (int i = 0; i < r->size.gates; i++)
        tsri_fast_gemm_rows(&g, p.n1 - p.n0, elements_at(r, before, p.n0 * h),
                            elements_at(r, packed_of(q, p.units), i * tsri_fast_packed(&g)),
                            r->role.b < 0 ? NULL : elements_at(r, q->in[r->role.b], i * h + p.j0),
                            elements_to(r, sums, p.n0 * r->gates + i * h + p.j0), NULL);
    for (int64_t n = p.n0; n < p.n1; n++)
        step_sample(q, &p, at, n, before, cells, sums);
}

static tsr_status forward_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    const recurrent *r = (const recurrent *)k;
    job q = {.r = r, .in = in, .out = out, .scratch = scratch};
    tsri_team(r->base.threads, pack_part, &q);
    tsri_team_steps(r->base.threads, r->size.t, r->by_units > 1, forward_step, &q);
    return TSR_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

static void *ds_of(const job *q)
{
    return q->out[q->r->role.ds < 0 ? q->r->role.dx : q->r->role.ds];
}

/* Packs a part's weights, and clears its gradients of the states. */
static void pack_back_part(void *arg, int index)
{
    const job *q = arg;
    const recurrent *r = q->r;
    const part p = part_of(r, index);
    const tsri_fast_gemm g = products_of(r, &p, true);
    tsri_fast_gemm_pack(&g, index / r->by_units, r->by_rows, elements_at(r, q->in[r->role.w], p.j0),
                        packed_of(q, p.units));
    for (int i = r->role.dh0; i <= (r->role.dc0 < 0 ? r->role.dh0 : r->role.dc0); i++)
        for (int64_t n = p.n0; n < p.n1; n++)
            memset(elements_to(r, q->out[i], n * r->size.h + p.j0), 0,
                   (size_t)(p.j1 - p.j0) * (size_t)r->loops->size);
}

/* Takes the gradients of a sample through step `at`. `before` has the states of all samples before
 * that step; NULL: the cell's gradient needs none. */
static void step_sample_back(const job *q, const part *p, int64_t at, int64_t n, const void *before)
{
    const recurrent *r = q->r;
    const int64_t row = at * r->size.n + n, unit = row * r->size.h + p->j0;
    const int64_t own = n * r->size.h + p->j0;
    tsri_fast_cell_back cell = {.n = p->j1 - p->j0,
                                .pitch = r->size.h,
                                .state = elements_at(r, q->in[r->role.states], unit),
                                .dy = elements_at(r, q->in[r->role.dy], unit),
                                .dh = elements_to(r, q->out[r->role.dh0], own),
                                .dx = elements_to(r, q->out[r->role.dx], row * r->gates + p->j0)};
    if (before)
        cell.before = elements_at(r, before, own);
    if (r->role.gates >= 0)
        cell.gates = elements_at(r, q->in[r->role.gates], row * r->saved + p->j0);
    if (r->role.dc >= 0)
        cell.dcells = elements_at(r, q->in[r->role.dc], unit);
    if (r->role.dc0 >= 0)
        cell.dc = elements_to(r, q->out[r->role.dc0], own);
    if (r->role.ds >= 0)
        cell.ds = elements_to(r, q->out[r->role.ds], row * r->gates + p->j0);
    r->loops->cell_back[r->cell](&cell);
}

static void backward_step(void *arg, int index, int64_t step)
{
    const job *q = arg;
    const recurrent *r = q->r;
    const part p = part_of(r, index);
    const int64_t h = r->size.h, t = r->size.t, i = t - 1 - step;
    if (step) {
        const tsri_fast_gemm g = products_of(r, &p, true);
        const int64_t behind = tsri_recurrent_at(&r->attrs, t, i + 1) * r->size.n + p.n0;
        tsri_fast_gemm_rows(&g, p.n1 - p.n0, elements_at(r, ds_of(q), behind * r->gates),
                            packed_of(q, p.units), NULL,
                            elements_to(r, q->out[r->role.dh0], p.n0 * h + p.j0), NULL);
    }
    if (i < 0)
        return;
    const void *before = r->role.first < 0 ? NULL : q->in[r->role.first];
    if (before && i)
        before = elements_at(r, q->in[r->role.states],
                             tsri_recurrent_at(&r->attrs, t, i - 1) * r->size.n * h);
    for (int64_t n = p.n0; n < p.n1; n++)
        step_sample_back(q, &p, tsri_recurrent_at(&r->attrs, t, i), n, before);
}

static tsr_status backward_run(const tsri_kernel *k, void *const *in, void *const *out,
                               void *scratch)
{
    const recurrent *r = (const recurrent *)k;
    job q = {.r = r, .in = in, .out = out, .scratch = scratch};
    tsri_team(r->base.threads, pack_back_part, &q);
    tsri_team_steps(r->base.threads, r->size.t + 1, r->by_units > 1, backward_step, &q);
    return TSR_OK;
}

/* --- creation --------------------------------------------------------------------------------- */

/* Gives each thread whole tiles of samples if there are as many, and cuts the units else. */
static void share(recurrent *r)
{
    const int64_t step = r->size.n * r->gates * r->size.h;
    int threads = r->base.threads;
    r->by_rows = threads;
    while (threads % r->by_rows || (r->by_rows > 1 && r->size.n < ROWS * r->by_rows))
        r->by_rows--;
    const int64_t vectors = (r->size.h + r->loops->width - 1) / r->loops->width;
    r->by_units = threads / r->by_rows;
    if (step < WORTH_A_MEETING || vectors < r->by_units)
        r->by_units = 1;
    r->base.threads = r->by_rows * r->by_units;
}

tsr_status tsri_fast_recurrent(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool back = d->op == TSRI_OP_RECURRENT_DX;
    if (!tsri_fast_is_plain_or_wide(d))
        return tsri_fast_decline(d);
    recurrent *r = tsri_fast_make(mem, d, NULL, sizeof *r, 0, 0);
    TSRI_NEED(r);
    r->loops = tsri_fast_loops_of(r->base.isa, d->in[0].dtype);
    r->cell = (tsri_cell)d->attrs->recurrent.cell;
    r->attrs = *d->attrs;
    r->size = tsri_recurrent_sizes_of(d);
    r->role = tsri_recurrent_roles_of(d->op, d->attrs);
    r->gates = r->size.gates * r->size.h;
    r->saved = r->size.saved * r->size.h;
    if (!d->threads)
        r->base.threads =
            r->size.t * r->size.n * r->gates * r->size.h < WORTH_A_TEAM ? 1 : omp_get_max_threads();
    share(r);
    const part largest = part_of(r, r->base.threads - 1);
    const tsri_fast_gemm g = products_of(r, &largest, back);
    r->packed_bytes = tsri_fast_align((size_t)(tsri_fast_packed(&g) * (back ? 1 : r->size.gates)) *
                                      (size_t)r->loops->size);
    r->sums_at = (size_t)r->by_units * r->packed_bytes;
    r->base.base.scratch_bytes =
        r->sums_at + (back ? 0 : (size_t)(r->size.n * r->gates) * (size_t)r->loops->size);
    r->base.base.run = back ? backward_run : forward_run;
    *out_kernel = &r->base.base;
    return TSR_OK;
}
