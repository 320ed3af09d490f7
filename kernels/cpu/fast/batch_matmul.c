/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of a batch, on row-major operands: threads share the batch's products, or each
 * product in turn where those are fewer than threads. */
#include "kernels/cpu/fast/fast.h"

#include <omp.h>

enum { WORTH_A_TEAM = 1 << 17 }; /* multiplications */

typedef struct batch {
    tsri_fast base; /* threads: that share products */
    tsri_fast_gemm gemm;
    int ndim; /* of the batch */
    int64_t count, size[TSR_MAX_NDIM];
    int64_t step[3][TSR_MAX_NDIM]; /* elements of a, b, c from one to the next along an axis */
} batch;

typedef struct job {
    const batch *k;
    const float *a, *b;
    float *c;
    char *scratch;
} job;

static void batch_part(void *arg, int part)
{
    const job *q = arg;
    const batch *k = q->k;
    const int parts = k->base.threads;
    char *scratch = q->scratch + (size_t)part * tsri_fast_align(k->gemm.scratch_bytes);
    int64_t end = tsri_fast_cut(k->count, parts, part + 1, 1);
    for (int64_t i = tsri_fast_cut(k->count, parts, part, 1); i < end; i++) {
        int64_t off[3] = {0}, rest = i;
        for (int j = k->ndim - 1; j >= 0; j--) {
            for (int o = 0; o < 3; o++)
                off[o] += rest % k->size[j] * k->step[o][j];
            rest /= k->size[j];
        }
        tsri_fast_gemm_run(&k->gemm, q->a + off[0], q->b + off[1], NULL, q->c + off[2], scratch);
    }
}

static tsr_status batch_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                            void *scratch)
{
    const batch *k = (const batch *)(const void *)kernel;
    job q = {.k = k, .a = in[0], .b = in[1], .c = out[0], .scratch = scratch};
    tsri_fast_team(k->base.threads, batch_part, &q);
    return TSR_OK;
}

/* Elements from one matrix to the next along each of the batch's axes; 0 where x broadcasts. */
static void set_steps(const tsri_arg *c, const tsri_arg *x, int64_t step[TSR_MAX_NDIM])
{
    int64_t pitch = x->shape[x->ndim - 1] * x->shape[x->ndim - 2];
    for (int i = c->ndim - 3, j = x->ndim - 3; i >= 0; i--, j--) {
        step[i] = j < 0 || x->shape[j] == 1 ? 0 : pitch;
        if (j >= 0)
            pitch *= x->shape[j];
    }
}

/* One matrix b for the whole batch, and rows of a behind each other: one product of all rows. */
static bool is_one(const batch *k)
{
    int64_t count = 1;
    if (k->gemm.ta)
        return false;
    for (int i = k->ndim - 1; i >= 0; i--) {
        if (k->size[i] != 1 &&
            (k->step[1][i] != 0 || k->step[0][i] != count * k->gemm.m * k->gemm.k))
            return false;
        count *= k->size[i];
    }
    return true;
}

static void plan(batch *k)
{
    const tsri_fast_gemm *g = &k->gemm;
    int team = omp_get_max_threads();
    if (is_one(k)) {
        k->gemm.m *= k->count;
        k->count = 1;
        k->ndim = 0;
    }
    k->base.threads = k->count >= team && g->m * g->n * g->k * k->count >= WORTH_A_TEAM ? team : 1;
    if (k->base.threads == 1)
        tsri_fast_gemm_plan(&k->gemm);
    else
        tsri_fast_gemm_plan_alone(&k->gemm);
    k->base.base.scratch_bytes = (size_t)k->base.threads * tsri_fast_align(g->scratch_bytes);
}

tsr_status tsri_fast_batch_matmul(tsri_mem *mem, const tsri_kernel_desc *desc,
                                  tsri_kernel **out_kernel)
{
    const bool ta = desc->attrs->matmul.ta, tb = desc->attrs->matmul.tb;
    const tsri_arg *a = &desc->in[0], *b = &desc->in[1], *c = &desc->out[0];
    if (!tsri_fast_is_f32(desc) || (ta && tb) || !tsri_fast_count(a) || !tsri_fast_count(b) ||
        !tsri_fast_count(c) || !tsri_fast_is_row_major(a) || !tsri_fast_is_row_major(b) ||
        !tsri_fast_is_row_major(c))
        return tsri_fast_decline(desc);
    batch *k = tsri_fast_make(mem, batch_run, sizeof *k, 0);
    TSRI_NEED(k);
    k->ndim = c->ndim - 2;
    k->count = 1;
    for (int i = 0; i < k->ndim; i++)
        k->count *= k->size[i] = c->shape[i];
    set_steps(c, a, k->step[0]);
    set_steps(c, b, k->step[1]);
    set_steps(c, c, k->step[2]);
    const int64_t rows = a->shape[a->ndim - 2], cols = a->shape[a->ndim - 1];
    k->gemm = (tsri_fast_gemm){.isa = k->base.isa,
                               .m = ta ? cols : rows,
                               .k = ta ? rows : cols,
                               .n = c->shape[c->ndim - 1],
                               .ta = ta,
                               .lda = cols,
                               .ldc = c->shape[c->ndim - 1]};
    k->gemm.bk = tb ? 1 : k->gemm.n;
    k->gemm.bn = tb ? k->gemm.k : 1;
    plan(k);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
