/* SPDX-License-Identifier: Apache-2.0 */
#include "src/exec/verify_part.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/core/convert.h"
#include "src/core/identity.h"

double tsri_verify_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* --- stored values ---------------------------------------------------------------------------- */
static void store(tsr_dtype dtype, void *p, int64_t i, double v)
{
    void *at = (char *)p + (size_t)i * tsr_dtype_size(dtype);
    switch (dtype) {
    case TSR_I64:
        *(int64_t *)at = (int64_t)v;
        break;
    case TSR_I32:
        *(int32_t *)at = (int32_t)v;
        break;
    case TSR_U8:
    case TSR_BOOL:
        *(uint8_t *)at = (uint8_t)(int64_t)v;
        break;
    default:
        (void)tsri_convert(at, dtype, &v, TSR_F64, 1);
    }
}

static double load(tsr_dtype dtype, const void *p, int64_t i)
{
    const void *at = (const char *)p + (size_t)i * tsr_dtype_size(dtype);
    double v = 0;
    switch (dtype) {
    case TSR_I64:
        return (double)*(const int64_t *)at;
    case TSR_I32:
        return *(const int32_t *)at;
    case TSR_U8:
    case TSR_BOOL:
        return *(const uint8_t *)at;
    default:
        (void)tsri_convert(&v, TSR_F64, at, dtype, 1);
        return v;
    }
}

/* --- parts ------------------------------------------------------------------------------------ */
static int parts_of(const tsri_part_mesh *m)
{
    int n = 1;
    for (int d = 0; d < m->ndim; d++)
        n *= m->dim[d];
    return n;
}

/* Where a part stands in the mesh: row-major. */
static void locate(const tsri_part_mesh *m, int part, int *at)
{
    for (int d = m->ndim - 1; d >= 0; d--) {
        at[d] = part % m->dim[d];
        part /= m->dim[d];
    }
}

/* Left to right: each dimension splits the piece that the ones before it leave. */
static tsri_arg make_arg(const tsr_tensor *t, const tsr_sbp *s, const tsri_part_mesh *m, int part)
{
    tsri_arg a = {.dtype = t->dtype, .ndim = t->shape.ndim};
    int at[TSR_MAX_HIERARCHY] = {0};
    locate(m, part, at);
    for (int i = 0; i < a.ndim; i++)
        a.shape[i] = a.gshape[i] = t->shape.d[i];
    for (int d = 0; d < m->ndim; d++) {
        int64_t offset;
        const int axis = s->d[d].arg;
        if (s->d[d].kind != TSR_SBP_SPLIT)
            continue;
        tsr_balanced_split(a.shape[axis], m->dim[d], at[d], &offset, &a.shape[axis]);
        a.offset[axis] += offset;
    }
    int64_t stride = 1;
    for (int i = a.ndim - 1; i >= 0; i--) {
        a.stride[i] = stride;
        stride *= a.shape[i] > 0 ? a.shape[i] : 1;
    }
    return a;
}

static tsri_kernel_desc describe(const tsri_op *op, const tsri_nd_signature *sig,
                                 const tsri_part_mesh *m, int part)
{
    tsri_kernel_desc d = {.op = op->kind, .attrs = &op->attrs, .nin = op->nin, .nout = op->nout};
    for (int i = 0; i < op->nin; i++)
        d.in[i] = make_arg(op->in[i], &sig->in[i], m, part);
    for (int i = 0; i < op->nout; i++)
        d.out[i] = make_arg(op->out[i], &sig->out[i], m, part);
    return d;
}

/* --- running a part --------------------------------------------------------------------------- */
enum { MARGIN = 1024 }; /* bytes before and behind each buffer that must stay as they are */

typedef struct buffer {
    unsigned char *block; /* MARGIN, the data, MARGIN; at an address that 64 divides */
    size_t bytes;
} buffer;

static void *data_of(buffer b)
{
    return b.bytes ? b.block + MARGIN : NULL;
}

static bool make_buffer(tsri_pool *pool, const tsri_arg *a, int fill, buffer *out)
{
    out->bytes = (size_t)tsri_arg_count(a) * tsr_dtype_size(a->dtype);
    char *block = tsri_pool_alloc(pool, out->bytes + 2 * MARGIN + 63);
    if (!block)
        return false;
    out->block = (unsigned char *)block + (-(uintptr_t)block & 63);
    memset(out->block, fill, out->bytes + 2 * MARGIN);
    return true;
}

/* Returns whether the bytes around a buffer are untouched, else sets *out_at to one that is not,
 * counted from the buffer's beginning. */
static bool margin_is(buffer b, int fill, long *out_at)
{
    for (size_t i = 0; i < MARGIN; i++) {
        if (b.block[i] != fill) {
            *out_at = (long)i - MARGIN;
            return false;
        }
        if (b.block[MARGIN + b.bytes + i] != fill) {
            *out_at = (long)(b.bytes + i);
            return false;
        }
    }
    return true;
}

/* Runs a kernel on values; `fill` is in all bytes around operands and results, and in results
 * before. guard: checks what it must not touch. */
static tsr_status run_part(tsri_mem *mem, tsri_pool *pool, const tsri_kernel_desc *d,
                           double *const *in, double *const *out, int fill, bool guard)
{
    buffer x[TSRI_RULE_MAX_ARGS], y[TSRI_RULE_MAX_ARGS];
    void *src[TSRI_RULE_MAX_ARGS] = {0}, *dst[TSRI_RULE_MAX_ARGS] = {0};
    tsri_kernel *k;
    long at;
    TSRI_TRY(tsri_kernel_create(mem, tsri_kernels_cpu(), d, &k));
    tsr_status status = TSR_ERR_NO_MEMORY;
    for (int i = 0; i < d->nin; i++) {
        if (!make_buffer(pool, &d->in[i], fill, &x[i]))
            goto end;
        src[i] = data_of(x[i]);
        for (int64_t e = 0; e < tsri_arg_count(&d->in[i]); e++)
            store(d->in[i].dtype, src[i], e, in[i][e]);
    }
    for (int i = 0; i < d->nout; i++) {
        if (!make_buffer(pool, &d->out[i], fill, &y[i]))
            goto end;
        dst[i] = data_of(y[i]);
    }
    status = k->run(k, src, dst, NULL);
    for (int i = 0; i < d->nin && status == TSR_OK && guard; i++) {
        if (!margin_is(x[i], fill, &at))
            status =
                tsri_fail(TSR_ERR_INVALID, "it writes at byte %ld of operand %d, which has %zu", at,
                          i, x[i].bytes);
        for (int64_t e = 0; e < tsri_arg_count(&d->in[i]) && status == TSR_OK; e++) {
            double was;
            store(d->in[i].dtype, &was, 0, in[i][e]);
            if (memcmp(&was, (char *)src[i] + (size_t)e * tsr_dtype_size(d->in[i].dtype),
                       tsr_dtype_size(d->in[i].dtype)) != 0)
                status = tsri_fail(TSR_ERR_INVALID, "it changes element %lld of operand %d",
                                   (long long)e, i);
        }
    }
    for (int i = 0; i < d->nout && status == TSR_OK; i++) {
        if (guard && !margin_is(y[i], fill, &at))
            status = tsri_fail(TSR_ERR_INVALID, "it writes at byte %ld of result %d, which has %zu",
                               at, i, y[i].bytes);
        for (int64_t e = 0; e < tsri_arg_count(&d->out[i]); e++)
            out[i][e] = load(d->out[i].dtype, dst[i], e);
    }
end:
    k->destroy(k);
    return status;
}

static const tsri_nd_signature all_whole;
static const tsri_part_mesh one_part;

tsr_status tsri_whole_run_once(tsri_whole *w, tsri_pool *pool)
{
    const tsri_kernel_desc d = describe(w->op, &all_whole, &one_part, 0);
    return run_part(w->mem, pool, &d, w->in, w->out, 0, false);
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

tsr_status tsri_whole_run(tsri_whole *w, tsri_pool *pool)
{
    const tsri_kernel_desc d = describe(w->op, &all_whole, &one_part, 0);
    double *again[TSRI_RULE_MAX_ARGS];
    for (int i = 0; i < d.nout; i++) {
        again[i] = tsri_pool_alloc(pool, (size_t)tsri_arg_count(&d.out[i]) * sizeof(double));
        TSRI_NEED(again[i]);
    }
    TSRI_TRY(run_part(w->mem, pool, &d, w->in, w->out, 0x5a, true));
    TSRI_TRY(run_part(w->mem, pool, &d, w->in, again, 0xa5, true));
    for (int i = 0; i < d.nout; i++)
        for (int64_t e = 0; e < tsri_arg_count(&d.out[i]); e++)
            if (!same(w->out[i][e], again[i][e]))
                return tsri_fail(
                    TSR_ERR_INVALID,
                    "element %lld of result %d is %.9g, and %.9g in a second run: it is "
                    "not written, or follows from something that is no operand",
                    (long long)e, i, w->out[i][e], again[i][e]);
    return TSR_OK;
}

/* --- cutting ---------------------------------------------------------------------------------- */
/* Calls for the next element of a shape, in row-major order. */
static void next(const tsri_arg *a, int64_t *at)
{
    for (int i = a->ndim - 1; i >= 0; i--) {
        if (++at[i] < a->shape[i])
            return;
        at[i] = 0;
    }
}

static void take_piece(const tsri_arg *a, const double *whole, double *piece)
{
    int64_t at[TSR_MAX_NDIM] = {0};
    for (int64_t i = 0, n = tsri_arg_count(a); i < n; i++, next(a, at)) {
        int64_t from = 0;
        for (int j = 0; j < a->ndim; j++)
            from = from * a->gshape[j] + a->offset[j] + at[j];
        piece[i] = whole[from];
    }
}

/* Parts that differ by coordinates of partial dimensions alone hold addends of one value: how many
 * they are, and the number of one among them. */
static int addends_of(const tsr_sbp *s, const tsri_part_mesh *m)
{
    int n = 1;
    for (int d = 0; d < m->ndim; d++)
        n *= s->d[d].kind == TSR_SBP_PARTIAL ? m->dim[d] : 1;
    return n;
}

static int addend_of(const tsr_sbp *s, const tsri_part_mesh *m, int part)
{
    int at[TSR_MAX_HIERARCHY] = {0}, n = 0;
    locate(m, part, at);
    for (int d = 0; d < m->ndim; d++)
        if (s->d[d].kind == TSR_SBP_PARTIAL)
            n = n * m->dim[d] + at[d];
    return n;
}

/* Kinds of P are not mixed in one tensor. */
static int kind_of(const tsr_sbp *s, const tsri_part_mesh *m)
{
    int op = TSR_REDUCE_SUM;
    for (int d = 0; d < m->ndim; d++)
        if (s->d[d].kind == TSR_SBP_PARTIAL)
            op = s->d[d].arg;
    return op;
}

/* Returns v modulo 2^bits where the dtype is a narrow whole one. Whole numbers here are below 2^53,
 * so all of them are exact. */
static double wrapped(tsr_dtype dtype, double v)
{
    const uint64_t bits = tsri_is_float(dtype) ? 0 : (uint64_t)(int64_t)v;
    return dtype == TSR_I32  ? (double)(int32_t)(uint32_t)bits
           : dtype == TSR_U8 ? (double)(uint8_t)bits
                             : v;
}

/* Takes a value apart: numbers that say nothing of it, but for one of them. Addends of narrow whole
 * types come from the whole range, so that their sum wraps around. */
static void make_addends(double v, tsr_dtype dtype, int op, int n, uint64_t *rng, double *out)
{
    const int owner = n > 1 ? (int)(tsri_verify_random(rng) * n) : 0;
    const double large = op != TSR_REDUCE_SUM || tsri_is_float(dtype) ? 4
                         : dtype == TSR_I32                           ? 0x1p30
                                                                      : 64;
    double rest = v;
    for (int i = 0; i < n; i++) {
        double r = 4 * tsri_verify_random(rng) - 2;
        if (!tsri_is_float(dtype))
            r = wrapped(dtype, floor(large * r));
        out[i] = op == TSR_REDUCE_SUM ? r : op == TSR_REDUCE_MAX ? v - fabs(r) : v + fabs(r);
        if (dtype == TSR_U8 && op != TSR_REDUCE_SUM)
            out[i] = fmin(fmax(out[i], 0), UINT8_MAX);
        if (dtype == TSR_BOOL)
            out[i] = op == TSR_REDUCE_MAX ? (r > 0) && v > 0 : (r > 0) || v > 0;
        rest -= i == owner ? 0 : r;
    }
    out[owner] = op == TSR_REDUCE_SUM ? wrapped(dtype, rest) : v;
}

static double join_addends(tsr_dtype dtype, int op, int n, const double *v)
{
    double r = v[0];
    for (int i = 1; i < n; i++)
        r = op == TSR_REDUCE_SUM ? r + v[i] : (op == TSR_REDUCE_MAX) == (v[i] > r) ? v[i] : r;
    return op == TSR_REDUCE_SUM ? wrapped(dtype, r) : r;
}

static tsr_status cut(tsri_whole *w, tsri_pool *pool, int i, const tsr_sbp *s,
                      const tsri_part_mesh *m, double **parts)
{
    const tsr_tensor *t = w->op->in[i];
    const int64_t n = tsr_dims_count(t->shape);
    const int nwhole = addends_of(s, m);
    double *whole[TSRI_VERIFY_PARTS], one[TSRI_VERIFY_PARTS];
    for (int j = 0; j < nwhole; j++)
        TSRI_NEED(whole[j] = tsri_pool_alloc(pool, (size_t)n * sizeof(double)));
    for (int64_t e = 0; e < n && nwhole > 1; e++) {
        make_addends(w->in[i][e], t->dtype, kind_of(s, m), nwhole, &w->rng, one);
        for (int j = 0; j < nwhole; j++)
            whole[j][e] = one[j];
    }
    for (int p = 0; p < parts_of(m); p++) {
        const tsri_arg a = make_arg(t, s, m, p);
        TSRI_NEED(parts[p] = tsri_pool_alloc(pool, (size_t)tsri_arg_count(&a) * sizeof(double)));
        take_piece(&a, nwhole > 1 ? whole[addend_of(s, m, p)] : w->in[i], parts[p]);
    }
    return TSR_OK;
}

/* --- joining ---------------------------------------------------------------------------------- */
/* By the coarsest dtype on the way, and the largest result. */
static double tolerance(const tsri_whole *w, int i)
{
    const tsr_tensor *t = w->op->out[i];
    double most = 1, coarse = tsri_dtype_of(t->dtype)->tolerance;
    if (!tsri_is_float(t->dtype))
        return 0;
    for (int j = 0; j < w->op->nin; j++)
        if (tsri_is_float(w->op->in[j]->dtype))
            coarse = fmax(coarse, tsri_dtype_of(w->op->in[j]->dtype)->tolerance);
    for (int64_t e = 0; e < tsr_dims_count(t->shape); e++)
        if (isfinite(w->out[i][e]))
            most = fmax(most, fabs(w->out[i][e]));
    return coarse * most;
}

/* Whether two parts differ by their coordinates in partial dimensions at most. */
static bool same_piece(const tsr_sbp *s, const tsri_part_mesh *m, int p, int q)
{
    int a[TSR_MAX_HIERARCHY] = {0}, b[TSR_MAX_HIERARCHY] = {0};
    bool alike = true;
    locate(m, p, a);
    locate(m, q, b);
    for (int d = 0; d < m->ndim; d++)
        alike &= a[d] == b[d] || s->d[d].kind == TSR_SBP_PARTIAL;
    return alike;
}

/* Holds part `first`, with those that add to it, against its piece of result i. */
static tsr_status hold(const tsri_whole *w, tsri_pool *pool, int i, const tsr_sbp *s,
                       const tsri_part_mesh *m, int first, double *const *parts)
{
    const tsr_tensor *t = w->op->out[i];
    const tsri_arg a = make_arg(t, s, m, first);
    const int64_t n = tsri_arg_count(&a);
    const int addends = addends_of(s, m), op = kind_of(s, m);
    const double tol = tolerance(w, i);
    double *want = tsri_pool_alloc(pool, (size_t)n * sizeof *want);
    const double *piece[TSRI_VERIFY_PARTS];
    TSRI_NEED(want);
    for (int p = first; p < parts_of(m); p++)
        if (same_piece(s, m, first, p))
            piece[addend_of(s, m, p)] = parts[p];
    take_piece(&a, w->out[i], want);
    for (int64_t e = 0; e < n; e++) {
        double one[TSRI_VERIFY_PARTS] = {0}, sizes = 0;
        for (int j = 0; j < addends; j++)
            sizes += fabs(one[j] = piece[j][e]);
        const double v = join_addends(t->dtype, op, addends, one);
        const bool sum = addends > 1 && op == TSR_REDUCE_SUM;
        /* Large addends that cancel leave their own rounding; P(sum) is of finite numbers only. */
        const double rounding = sum && isfinite(sizes) && tsri_is_float(t->dtype)
                                    ? tsri_dtype_of(t->dtype)->tolerance * sizes
                                    : 0;
        if (same(v, want[e]) || fabs(v - want[e]) <= tol + rounding || (sum && !isfinite(want[e])))
            continue;
        return tsri_fail(TSR_ERR_INVALID,
                         "result %d, part %d%s, element %lld is %.9g; the whole has %.9g", i, first,
                         addends > 1 ? " and what adds to it" : "", (long long)e, v, want[e]);
    }
    return TSR_OK;
}

tsr_status tsri_whole_check(tsri_whole *w, tsri_pool *pool, const tsri_part_mesh *m,
                            const tsri_nd_signature *sig)
{
    double *in[TSRI_RULE_MAX_ARGS][TSRI_VERIFY_PARTS], *out[TSRI_RULE_MAX_ARGS][TSRI_VERIFY_PARTS];
    const tsri_op *op = w->op;
    for (int i = 0; i < op->nin; i++)
        TSRI_TRY(cut(w, pool, i, &sig->in[i], m, in[i]));
    for (int p = 0; p < parts_of(m); p++) {
        double *src[TSRI_RULE_MAX_ARGS], *dst[TSRI_RULE_MAX_ARGS];
        const tsri_kernel_desc d = describe(op, sig, m, p);
        for (int i = 0; i < op->nin; i++)
            src[i] = in[i][p];
        for (int i = 0; i < op->nout; i++) {
            const size_t bytes = (size_t)tsri_arg_count(&d.out[i]) * sizeof(double);
            TSRI_NEED(dst[i] = out[i][p] = tsri_pool_alloc(pool, bytes));
        }
        const tsr_status status = run_part(w->mem, pool, &d, src, dst, 0x5a, true);
        if (status != TSR_OK)
            return tsri_fail_prefix(status, "part %d", p);
    }
    for (int i = 0; i < op->nout; i++)
        for (int p = 0; p < parts_of(m); p++)
            if (addend_of(&sig->out[i], m, p) == 0)
                TSRI_TRY(hold(w, pool, i, &sig->out[i], m, p, out[i]));
    return TSR_OK;
}
