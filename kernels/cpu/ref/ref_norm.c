/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm in its parts. A sample belongs to the virtual batch in which its global index lies,
 * and the operand `stats` says by its own offset which virtual batches this shard knows. Sums are
 * f64, over rows (n, h) in order; a channel is summed by one thread. The sums of x and x^2 are made
 * at the end from sums of the deviations from a sample of the channel: one rounding of x^2 is all
 * that they lose, however many samples there are. Formulas: src/core/op_list.h.
 */
#include "kernels/cpu/ref/ref.h"
#include "kernels/norm.h"

#include <math.h>
#include <string.h>

/* x of the op as [n][h][w][c], whatever its axes. */
typedef struct view {
    int64_t n, c, h, w;
    int64_t sn, sc, sh, sw;
} view;

typedef struct norm {
    tsri_ref ref;
    view x, y;           /* y: result, or none */
    view dy;             /* gradient, or none */
    int64_t first, rows; /* virtual batches of stats: their global indices */
    tsri_norm_roles role;
    int act;
} norm;

static view view_of(const tsri_arg *a)
{
    view v = {.n = a->shape[0], .c = a->shape[1], .h = 1, .w = 1};
    v.sn = a->stride[0];
    v.sc = a->stride[1];
    if (a->ndim == 4) {
        v.h = a->shape[2];
        v.w = a->shape[3];
        v.sh = a->stride[2];
        v.sw = a->stride[3];
    }
    return v;
}

/* The local samples [*begin, *end) of the i-th virtual batch of stats. */
static void samples(const norm *v, int64_t i, int64_t *begin, int64_t *end)
{
    const tsri_attrs *at = &v->ref.attrs;
    int64_t r = v->first + i, offset = v->ref.desc.in[0].offset[0];
    *begin = tsri_bn_begin(at, r) - offset;
    *end = tsri_bn_begin(at, r + 1) - offset;
    *begin = *begin < 0 ? 0 : *begin;
    *end = *end > v->x.n ? v->x.n : *end;
}

/* Per channel of a virtual batch. */
typedef struct coefs {
    double *mean, *rstd, *a, *b; /* a = rstd * gamma, b = beta */
    double *k0, *k1;             /* of the gradient: d0 / N, rstd * d1 / N */
} coefs;

enum { COEFS = 6 };

static coefs coefs_in(void *scratch, int64_t channels)
{
    double *p = scratch;
    return (coefs){
        p, p + channels, p + 2 * channels, p + 3 * channels, p + 4 * channels, p + 5 * channels};
}

static double act_slope(int act, double z)
{
    return act == TSRI_ACT_NONE ? 1 : z > 0 && !(act == TSRI_ACT_RELU6 && !(z < 6)) ? 1 : 0;
}

static double act_value(int act, double z)
{
    if (act == TSRI_ACT_NONE)
        return z;
    return z <= 0 ? 0 : act == TSRI_ACT_RELU6 && z >= 6 ? 6 : z;
}

/* Fills in k, of row i of stats [R, 2, c]. For BN_CENTER, which is x - mean, an operand may be the
 * number of values. */
static void find_coefs(const norm *v, int64_t i, void *const *in, const coefs *k)
{
    const tsri_kernel_desc *d = &v->ref.desc;
    const tsri_norm_roles o = v->role;
    const tsri_arg *s = &d->in[o.stats], *b = &d->in[o.bstats];
    const bool centre = d->op == TSRI_OP_BN_CENTER;
    const int64_t r = v->first + i;
    const double *row = (const double *)in[o.stats] + i * s->stride[0], *bs = NULL;
    const double n =
        centre && d->nin == 3 ? *(const double *)in[2] : tsri_bn_count(&v->ref.attrs, r);
    if (o.bstats)
        bs = (const double *)in[o.bstats] + (r - b->offset[0]) * b->stride[0];
    for (int64_t c = 0; c < v->x.c; c++) {
        double mean = row[c * s->stride[2]] / n;
        double var = row[s->stride[1] + c * s->stride[2]] / n - mean * mean;
        double rstd = centre ? 1 : 1 / sqrt((var < 0 ? 0 : var) + v->ref.attrs.bn.eps);
        k->mean[c] = mean;
        k->rstd[c] = rstd;
        k->a[c] = rstd * (o.gamma ? tsri_ref_load(d->in[o.gamma].dtype, in[o.gamma], c) : 1);
        k->b[c] = o.beta ? tsri_ref_load(d->in[o.beta].dtype, in[o.beta], c) : 0;
        if (!bs)
            continue;
        k->k0[c] = bs[c * b->stride[2]] / n;
        k->k1[c] = rstd * bs[b->stride[1] + c * b->stride[2]] / n;
    }
}

#define T float
#define FN(name) name##_f32
#include "kernels/cpu/ref/ref_norm_t.h"
#undef T
#undef FN
#define T double
#define FN(name) name##_f64
#include "kernels/cpu/ref/ref_norm_t.h"
#undef T
#undef FN

/* sums [R, 2, c] of whatever operand 0 of the results is. */
static void store_sums(const norm *v, int64_t i, const double *s0, const double *s1, double *out)
{
    const tsri_arg *o = &v->ref.desc.out[0];
    for (int64_t c = 0; c < v->x.c; c++) {
        out[i * o->stride[0] + c * o->stride[2]] = s0[c];
        out[i * o->stride[0] + o->stride[1] + c * o->stride[2]] = s1[c];
    }
}

/* Turns the sums of n values' deviations from `about` into the values' own. */
static void shift_sums(const norm *v, double n, const coefs *k)
{
    for (int64_t c = 0; c < v->x.c; c++) {
        const double about = k->mean[c];
        k->k1[c] += about * (2 * k->k0[c] + n * about);
        k->k0[c] += n * about;
    }
}

static tsr_status norm_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const norm *v = (const norm *)k;
    const coefs co = coefs_in(scratch, v->x.c);
    const bool sums = v->ref.desc.out[0].ndim == 3;
    for (int64_t i = 0; i < v->rows; i++) {
        int64_t begin, end;
        samples(v, i, &begin, &end);
        const int64_t n = begin < end ? (end - begin) * v->x.h * v->x.w : 0;
        if (sums && v->x.c)
            memset(co.k0, 0, (size_t)v->x.c * 2 * sizeof *co.k0);
        if (n && v->role.stats)
            find_coefs(v, i, in, &co);
        if (n && v->ref.desc.in[0].dtype == TSR_F32)
            norm_f32(v, begin, end, in, out[0], &co);
        else if (n)
            norm_f64(v, begin, end, in, out[0], &co);
        if (n && !v->role.stats)
            shift_sums(v, (double)n, &co);
        if (sums)
            store_sums(v, i, co.k0, co.k1, out[0]);
    }
    return TSR_OK;
}

/* Whether every local sample lies in a virtual batch of stats. */
static tsr_status check_parts(const norm *v)
{
    const tsri_attrs *at = &v->ref.attrs;
    int64_t offset = v->ref.desc.in[0].offset[0];
    int64_t parts = at->bn.parts;
    if (parts < 1)
        return tsri_fail(TSR_ERR_INVALID, "%s: %d virtual batches", tsri_op_name(v->ref.desc.op),
                         (int)at->bn.parts);
    if (!v->x.n || !v->x.c)
        return TSR_OK;
    int64_t lo = v->first < parts ? tsri_bn_begin(at, v->first) : at->bn.batch;
    int64_t hi = v->first + v->rows <= parts ? tsri_bn_begin(at, v->first + v->rows) : at->bn.batch;
    if (offset < lo || offset + v->x.n > hi)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: the shard holds samples %lld..%lld, but statistics of samples "
                         "%lld..%lld: split both by the same virtual batches",
                         tsri_op_name(v->ref.desc.op), (long long)offset,
                         (long long)(offset + v->x.n), (long long)lo, (long long)hi);
    return TSR_OK;
}

/* The operand stats says which virtual batches there are; for BN_STATS the result does. */
tsr_status tsri_ref_bn_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsr_dtype t = d->in[0].dtype;
    const tsri_norm_roles role = tsri_bn_roles(d->op);
    const tsri_arg *s = role.stats ? &d->in[role.stats] : &d->out[0];
    const bool sums = d->out[0].ndim == 3;
    if (!tsri_ref_is_float(t) || s->dtype != TSR_F64 || (role.dy && d->in[role.dy].dtype != t) ||
        (role.bstats && d->in[role.bstats].dtype != TSR_F64) ||
        (d->op == TSRI_OP_BN_CENTER && d->nin == 3 && d->in[2].dtype != TSR_F64) ||
        d->out[0].dtype != (sums ? TSR_F64 : t))
        return tsri_ref_decline(d);
    norm *v = tsri_ref_make(mem, d, norm_run, sizeof *v);
    TSRI_NEED(v);
    v->x = view_of(&d->in[0]);
    if (role.dy)
        v->dy = view_of(&d->in[role.dy]);
    if (!sums)
        v->y = view_of(&d->out[0]);
    v->role = role;
    v->act = tsri_bn_has_act(d) ? d->attrs->bn.act : TSRI_ACT_NONE;
    v->first = s->offset[0];
    v->rows = s->shape[0];
    tsr_status status = check_parts(v);
    if (status != TSR_OK) {
        v->ref.base.destroy(&v->ref.base);
        return status;
    }
    v->ref.base.scratch_bytes = (size_t)v->x.c * COEFS * sizeof(double);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(bn_apply, bn_stats);
TSRI_REF_SAME(bn_center, bn_stats);
TSRI_REF_SAME(bn_act, bn_stats);
TSRI_REF_SAME(bn_bwd_stats, bn_stats);
TSRI_REF_SAME(bn_act_bwd_stats, bn_stats);
TSRI_REF_SAME(bn_bwd_apply, bn_stats);
TSRI_REF_SAME(bn_act_bwd_apply, bn_stats);
