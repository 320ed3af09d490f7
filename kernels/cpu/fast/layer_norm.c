/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm in its parts, on row-major operands: threads share rows. The parameters' gradients are
 * summed per thread and joined in the order of threads. */
#include "kernels/cpu/fast/fast.h"
#include "kernels/norm.h"

#include <string.h>

typedef struct norm {
    tsri_fast base;
    tsri_ln_do what;
    tsri_norm_roles role;
    tsri_fast_ln like;
} norm;

static void norm_part(const tsri_fast *f, const tsri_fast_part *part)
{
    const norm *k = (const norm *)f;
    tsri_fast_ln p = k->like;
    p.x = part->in[0];
    p.stats = k->role.stats ? part->in[1] : NULL;
    p.gamma = k->role.gamma ? part->in[k->role.gamma] : NULL;
    p.beta = k->role.beta ? part->in[k->role.beta] : NULL;
    p.dy = k->role.dy ? part->in[k->role.dy] : NULL;
    p.bstats = k->role.bstats ? part->in[k->role.bstats] : NULL;
    p.y = part->out[0];
    p.sums = part->out[0];
    if (k->what == TSRI_LN_DO_PARAMS) {
        p.sums = (double *)part->scratch + (int64_t)part->index * 2 * p.pitch;
        memset(p.sums, 0, (size_t)(2 * p.pitch) * sizeof *p.sums);
    }
    f->isa->ln[k->what](&p, part->begin, part->end);
}

static tsr_status params_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                             void *scratch)
{
    const norm *k = (const norm *)kernel;
    const double *sums = scratch;
    TSRI_TRY(tsri_fast_run(kernel, in, out, scratch));
    for (int o = 0; o < 2; o++)
        for (int64_t i = 0; i < k->like.width; i++) {
            double sum = 0;
            for (int t = 0; t < k->base.threads; t++)
                sum += sums[(t * 2 + o) * k->like.pitch + i];
            ((float *)out[o])[i] = (float)sum;
        }
    return TSR_OK;
}

/* f32 but for the statistics, row-major, nothing empty. */
static bool takes(const tsri_kernel_desc *d)
{
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        bool sums = i < d->nin ? i == 1 || (d->op == TSRI_OP_LN_BWD_APPLY && i == d->nin - 1)
                               : d->op == TSRI_OP_LN_STATS || d->op == TSRI_OP_LN_BWD_STATS;
        if (a->dtype != (sums ? TSR_F64 : TSR_F32) || !tsri_arg_count(a) ||
            !tsri_fast_is_row_major(a))
            return false;
    }
    return true;
}

/* Sets how many features of x one number of a parameter is for, and the rows until its numbers
 * repeat. False: it has other axes than some of x up to one among the features. */
static bool read_run(const tsri_arg *x, const tsri_arg *a, int axes, int64_t *run, int64_t *groups)
{
    int i = 1;
    *run = *groups = 1;
    for (; i <= axes && i <= a->ndim && a->shape[a->ndim - i] == 1; i++)
        *run *= x->shape[x->ndim - i];
    for (; i <= a->ndim; i++) {
        if (a->shape[a->ndim - i] != x->shape[x->ndim - i])
            return false;
        *groups *= i > axes ? a->shape[a->ndim - i] : 1;
    }
    return i > axes;
}

static bool read_params(const tsri_kernel_desc *d, const tsri_norm_roles *role, tsri_fast_ln *out)
{
    const int operand[2] = {role->gamma, role->beta};
    int64_t run[2] = {1, 1}, groups[2] = {1, 1};
    for (int i = 0; i < 2; i++)
        if (operand[i] &&
            !read_run(&d->in[0], &d->in[operand[i]], d->attrs->ln.axes, &run[i], &groups[i]))
            return false;
    const int which = role->gamma ? 0 : 1;
    out->run = run[which] > 1 || groups[which] > 1 ? run[which] : 0;
    out->groups = groups[which];
    return !role->gamma || !role->beta || (run[0] == run[1] && groups[0] == groups[1]);
}

tsr_status tsri_fast_layer_norm(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_attrs *at = d->attrs;
    const tsri_arg *x = &d->in[0];
    const tsri_norm_roles role = tsri_ln_roles(d);
    tsri_fast_ln like = {.count = (double)at->ln.count, .eps = at->ln.eps};
    if (!takes(d) || !read_params(d, &role, &like))
        return tsri_fast_decline(d);
    int64_t count = tsri_arg_count(x), width = 1;
    for (int i = x->ndim - at->ln.axes; i < x->ndim; i++)
        width *= x->shape[i];
    norm *k = tsri_fast_make(mem, d, norm_part, sizeof *k, count, count / width);
    TSRI_NEED(k);
    const bool params = d->op == TSRI_OP_LN_PARAM_GRAD;
    k->role = role;
    k->what = d->op == TSRI_OP_LN_STATS       ? TSRI_LN_DO_STATS
              : d->op == TSRI_OP_LN_APPLY     ? TSRI_LN_DO_APPLY
              : d->op == TSRI_OP_LN_BWD_STATS ? TSRI_LN_DO_BWD_STATS
              : params                        ? TSRI_LN_DO_PARAMS
                                              : TSRI_LN_DO_BWD_APPLY;
    k->like = like;
    k->like.width = width;
    if (!params && !like.run) {
        const uint32_t sums =
            (k->role.dy ? 1u << k->role.dy : 0) | (k->role.bstats ? 1u << k->role.bstats : 0);
        tsri_fast_walks(&k->base, 1 | (k->role.stats ? 1u << k->role.stats : 0) | sums, 1, false);
        k->base.pieces.units = k->base.items;
    }
    if (k->base.threads > k->base.items)
        k->base.threads = (int)k->base.items;
    if (params) {
        const int64_t w = k->base.isa->width;
        k->like.pitch = (width + w - 1) / w * w;
        k->base.base.run = params_run;
        k->base.base.scratch_bytes = (size_t)(k->base.threads * 2 * k->like.pitch) * sizeof(double);
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}
