/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm in its parts. A sample belongs to the virtual batch in which its global index lies,
 * and the operand `stats` says by its own offset which virtual batches this shard knows. Sums are
 * f64, over rows (n, h) in order; a channel is summed by one thread. The sums of x and x^2 are made
 * at the end from sums of the deviations from a sample of the channel: one rounding of x^2 is all
 * that they lose, however many samples there are. Formulas: src/core/op_list.h.
 */
#include "kernels/cpu/ref/ref.h"

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
    int stats;           /* its operand; -1: result 0 */
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

/* Balanced split of n over parts: where part r begins. */
static int64_t part_begin(int64_t n, int64_t parts, int64_t r)
{
    int64_t more = n % parts;
    return r * (n / parts) + (r < more ? r : more);
}

/* Elements per channel of virtual batch r. */
static double part_count(const tsri_attrs *at, int64_t r)
{
    int64_t n =
        part_begin(at->bn.batch, at->bn.parts, r + 1) - part_begin(at->bn.batch, at->bn.parts, r);
    return (double)n * (double)at->bn.spatial;
}

/* The local samples [*begin, *end) of the i-th virtual batch of stats. */
static void samples(const norm *v, int64_t i, int64_t *begin, int64_t *end)
{
    const tsri_attrs *at = &v->ref.attrs;
    int64_t r = v->first + i, offset = v->ref.desc.in[0].offset[0];
    *begin = part_begin(at->bn.batch, at->bn.parts, r) - offset;
    *end = part_begin(at->bn.batch, at->bn.parts, r + 1) - offset;
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

/* s: stats [R, 2, c] at row i. gamma, beta: operands or NULL. */
static void find_coefs(const norm *v, int64_t i, const double *stats, const tsri_arg *gamma,
                       const void *g, const tsri_arg *beta, const void *b, const coefs *k)
{
    const tsri_arg *s = &v->ref.desc.in[v->stats];
    double n = part_count(&v->ref.attrs, v->first + i);
    const double *row = stats + i * s->stride[0];
    for (int64_t c = 0; c < v->x.c; c++) {
        double mean = row[c * s->stride[2]] / n;
        double var = row[s->stride[1] + c * s->stride[2]] / n - mean * mean;
        k->mean[c] = mean;
        k->rstd[c] = 1 / sqrt((var < 0 ? 0 : var) + v->ref.attrs.bn.eps);
        k->a[c] = k->rstd[c] * (gamma ? tsri_ref_load(gamma->dtype, g, c) : 1);
        k->b[c] = beta ? tsri_ref_load(beta->dtype, b, c) : 0;
    }
}

/* For x - mean. count: NULL, or the number of values. */
static void find_centre(const norm *v, int64_t i, const double *stats, const double *count,
                        const coefs *k)
{
    const tsri_arg *s = &v->ref.desc.in[v->stats];
    const double n = count ? *count : part_count(&v->ref.attrs, v->first + i);
    for (int64_t c = 0; c < v->x.c; c++) {
        k->mean[c] = stats[i * s->stride[0] + c * s->stride[2]] / n;
        k->a[c] = 1;
        k->b[c] = 0;
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

static tsr_status stats_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const norm *v = (const norm *)k;
    double *s0 = scratch, *s1 = s0 + v->x.c, *about = s1 + v->x.c;
    for (int64_t i = 0; i < v->rows; i++) {
        int64_t begin, end;
        samples(v, i, &begin, &end);
        memset(s0, 0, (size_t)v->x.c * 2 * sizeof *s0);
        const double n = begin < end ? (double)((end - begin) * v->x.h * v->x.w) : 0;
        if (n > 0 && v->ref.desc.in[0].dtype == TSR_F32)
            stats_f32(v, begin, end, in[0], about, s0, s1);
        else if (n > 0)
            stats_f64(v, begin, end, in[0], about, s0, s1);
        for (int64_t c = 0; n > 0 && c < v->x.c; c++) {
            s1[c] += about[c] * (2 * s0[c] + n * about[c]);
            s0[c] += n * about[c];
        }
        store_sums(v, i, s0, s1, out[0]);
    }
    return TSR_OK;
}

static tsr_status apply_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const norm *v = (const norm *)k;
    const tsri_kernel_desc *d = &v->ref.desc;
    coefs co = coefs_in(scratch, v->x.c);
    for (int64_t i = 0; i < v->rows; i++) {
        int64_t begin, end;
        samples(v, i, &begin, &end);
        if (begin >= end)
            continue;
        if (d->op == TSRI_OP_BN_CENTER)
            find_centre(v, i, in[1], d->nin == 3 ? in[2] : NULL, &co);
        else
            find_coefs(v, i, in[1], &d->in[2], in[2], &d->in[3], in[3], &co);
        if (d->in[0].dtype == TSR_F32)
            apply_f32(v, begin, end, in[0], &co, out[0]);
        else
            apply_f64(v, begin, end, in[0], &co, out[0]);
    }
    return TSR_OK;
}

/* Operands of the fused and unfused gradients: (x, stats, [gamma, beta,] dy). */
static tsr_status bwd_stats_run(const tsri_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const norm *v = (const norm *)k;
    const tsri_kernel_desc *d = &v->ref.desc;
    bool fused = d->op == TSRI_OP_BN_ACT_BWD_STATS;
    coefs co = coefs_in(scratch, v->x.c);
    for (int64_t i = 0; i < v->rows; i++) {
        int64_t begin, end;
        samples(v, i, &begin, &end);
        memset(co.k0, 0, (size_t)v->x.c * 2 * sizeof *co.k0);
        if (begin < end) {
            find_coefs(v, i, in[1], fused ? &d->in[2] : NULL, fused ? in[2] : NULL,
                       fused ? &d->in[3] : NULL, fused ? in[3] : NULL, &co);
            if (d->in[0].dtype == TSR_F32)
                bwd_stats_f32(v, begin, end, in[0], in[fused ? 4 : 2], &co);
            else
                bwd_stats_f64(v, begin, end, in[0], in[fused ? 4 : 2], &co);
        }
        store_sums(v, i, co.k0, co.k1, out[0]);
    }
    return TSR_OK;
}

/* (x, stats, gamma, [beta,] dy, bstats) */
static tsr_status bwd_apply_run(const tsri_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const norm *v = (const norm *)k;
    const tsri_kernel_desc *d = &v->ref.desc;
    bool fused = d->op == TSRI_OP_BN_ACT_BWD_APPLY;
    int dy = fused ? 4 : 3;
    const tsri_arg *b = &d->in[dy + 1];
    coefs co = coefs_in(scratch, v->x.c);
    for (int64_t i = 0; i < v->rows; i++) {
        int64_t begin, end;
        samples(v, i, &begin, &end);
        if (begin >= end)
            continue;
        find_coefs(v, i, in[1], &d->in[2], in[2], fused ? &d->in[3] : NULL, fused ? in[3] : NULL,
                   &co);
        int64_t r = v->first + i;
        const double *bs = (const double *)in[dy + 1] + (r - b->offset[0]) * b->stride[0];
        double n = part_count(&v->ref.attrs, r);
        for (int64_t c = 0; c < v->x.c; c++) {
            co.k0[c] = bs[c * b->stride[2]] / n;
            co.k1[c] = co.rstd[c] * bs[b->stride[1] + c * b->stride[2]] / n;
        }
        if (d->in[0].dtype == TSR_F32)
            bwd_apply_f32(v, begin, end, in[0], in[dy], &co, out[0]);
        else
            bwd_apply_f64(v, begin, end, in[0], in[dy], &co, out[0]);
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
    int64_t lo = v->first < parts ? part_begin(at->bn.batch, parts, v->first) : at->bn.batch;
    int64_t hi = v->first + v->rows <= parts ? part_begin(at->bn.batch, parts, v->first + v->rows)
                                             : at->bn.batch;
    if (offset < lo || offset + v->x.n > hi)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: the shard holds samples %lld..%lld, but statistics of samples "
                         "%lld..%lld: split both by the same virtual batches",
                         tsri_op_name(v->ref.desc.op), (long long)offset,
                         (long long)(offset + v->x.n), (long long)lo, (long long)hi);
    return TSR_OK;
}

/* stats: the operand that says which virtual batches there are (-1: the result); dy: or -1. */
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_ref_run_fn *run, int stats,
                         int dy, tsri_kernel **out_kernel)
{
    tsr_dtype t = d->in[0].dtype;
    const tsri_arg *s = stats < 0 ? &d->out[0] : &d->in[stats];
    bool sums = d->out[0].ndim == 3;
    if (!tsri_ref_is_float(t) || s->dtype != TSR_F64 || (dy >= 0 && d->in[dy].dtype != t) ||
        d->out[0].dtype != (sums ? TSR_F64 : t))
        return tsri_ref_decline(d);
    norm *v = tsri_ref_make(mem, d, run, sizeof *v);
    TSRI_NEED(v);
    v->x = view_of(&d->in[0]);
    if (dy >= 0)
        v->dy = view_of(&d->in[dy]);
    if (!sums)
        v->y = view_of(&d->out[0]);
    v->stats = stats;
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

tsr_status tsri_ref_bn_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, stats_run, -1, -1, out_kernel);
}

tsr_status tsri_ref_bn_apply(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->op == TSRI_OP_BN_CENTER && d->nin == 3 && d->in[2].dtype != TSR_F64)
        return tsri_ref_decline(d);
    return create(mem, d, apply_run, 1, -1, out_kernel);
}
TSRI_REF_SAME(bn_center, bn_apply);
TSRI_REF_SAME(bn_act, bn_apply);

tsr_status tsri_ref_bn_bwd_stats(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, bwd_stats_run, 1, d->op == TSRI_OP_BN_ACT_BWD_STATS ? 4 : 2, out_kernel);
}
TSRI_REF_SAME(bn_act_bwd_stats, bn_bwd_stats);

tsr_status tsri_ref_bn_bwd_apply(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    int dy = d->op == TSRI_OP_BN_ACT_BWD_APPLY ? 4 : 3;
    if (d->in[dy + 1].dtype != TSR_F64)
        return tsri_ref_decline(d);
    return create(mem, d, bwd_apply_run, 1, dy, out_kernel);
}
TSRI_REF_SAME(bn_act_bwd_apply, bn_bwd_apply);
