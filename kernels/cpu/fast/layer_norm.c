/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm in its parts, on row-major operands: threads share rows. The parameters' gradients are
 * summed per thread and joined in the order of threads. */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

typedef struct norm {
    tsri_fast base;
    tsri_ln_do what;
    int64_t rows;
    int gamma, beta, dy, bstats; /* operands; -1: none */
    tsri_fast_ln like;
    bool params;
} norm;

typedef struct job {
    const norm *k;
    tsri_fast_ln p;
} job;

static void norm_part(void *arg, int part)
{
    const job *j = arg;
    const norm *k = j->k;
    tsri_fast_ln p = j->p;
    if (k->params) {
        p.sums += (int64_t)part * 2 * p.pitch;
        memset(p.sums, 0, (size_t)(2 * p.pitch) * sizeof *p.sums);
    }
    k->base.isa->ln[k->what](&p, tsri_fast_cut(k->rows, k->base.threads, part, 1),
                             tsri_fast_cut(k->rows, k->base.threads, part + 1, 1));
}

static void join(const norm *k, const double *sums, void *const *out)
{
    for (int o = 0; o < 2; o++)
        for (int64_t i = 0; i < k->like.width; i++) {
            double sum = 0;
            for (int t = 0; t < k->base.threads; t++)
                sum += sums[(t * 2 + o) * k->like.pitch + i];
            ((float *)out[o])[i] = (float)sum;
        }
}

static tsr_status norm_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    const norm *k = (const norm *)(const void *)kernel;
    job j = {.k = k, .p = k->like};
    j.p.x = in[0];
    j.p.stats = k->what == TSRI_LN_DO_STATS ? NULL : in[1];
    j.p.gamma = k->gamma < 0 ? NULL : in[k->gamma];
    j.p.beta = k->beta < 0 ? NULL : in[k->beta];
    j.p.dy = k->dy < 0 ? NULL : in[k->dy];
    j.p.bstats = k->bstats < 0 ? NULL : in[k->bstats];
    j.p.y = out[0];
    j.p.sums = k->params ? scratch : out[0];
    tsri_fast_team(k->base.threads, norm_part, &j);
    if (k->params)
        join(k, scratch, out);
    return TSR_OK;
}

/* f32 but for the statistics, row-major, nothing empty. */
static bool takes(const tsri_kernel_desc *d)
{
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        bool sums = i < d->nin ? i == 1 || (d->op == TSRI_OP_LN_BWD_APPLY && i == d->nin - 1)
                               : d->op == TSRI_OP_LN_STATS || d->op == TSRI_OP_LN_BWD_STATS;
        if (a->dtype != (sums ? TSR_F64 : TSR_F32) || !tsri_fast_count(a) ||
            !tsri_fast_is_row_major(a))
            return false;
    }
    return true;
}

tsr_status tsri_fast_layer_norm(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_attrs *at = d->attrs;
    const tsri_arg *x = &d->in[0];
    if (!takes(d))
        return tsri_fast_decline(d);
    const int64_t count = tsri_fast_count(x);
    norm *k = tsri_fast_make(mem, norm_run, sizeof *k, count);
    TSRI_NEED(k);
    const bool backward = d->op == TSRI_OP_LN_BWD_STATS || d->op == TSRI_OP_LN_BWD_APPLY;
    k->params = d->op == TSRI_OP_LN_PARAM_GRAD;
    k->what = d->op == TSRI_OP_LN_STATS       ? TSRI_LN_DO_STATS
              : d->op == TSRI_OP_LN_APPLY     ? TSRI_LN_DO_APPLY
              : d->op == TSRI_OP_LN_BWD_STATS ? TSRI_LN_DO_BWD_STATS
              : k->params                     ? TSRI_LN_DO_PARAMS
                                              : TSRI_LN_DO_BWD_APPLY;
    const bool scaled = at->ln.has_gamma && (backward || d->op == TSRI_OP_LN_APPLY);
    k->gamma = scaled ? 2 : -1;
    k->beta = d->op == TSRI_OP_LN_APPLY && at->ln.has_beta ? d->nin - 1 : -1;
    k->dy = backward ? 2 + scaled : k->params ? 2 : -1;
    k->bstats = d->op == TSRI_OP_LN_BWD_APPLY ? 3 + scaled : -1;
    k->like.width = 1;
    for (int i = x->ndim - at->ln.axes; i < x->ndim; i++)
        k->like.width *= x->shape[i];
    k->rows = count / k->like.width;
    k->like.count = (double)at->ln.count;
    k->like.eps = at->ln.eps;
    if (k->base.threads > k->rows)
        k->base.threads = (int)k->rows;
    if (k->params) {
        const int64_t w = k->base.isa->width;
        k->like.pitch = (k->like.width + w - 1) / w * w;
        k->base.base.scratch_bytes = (size_t)(k->base.threads * 2 * k->like.pitch) * sizeof(double);
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}
