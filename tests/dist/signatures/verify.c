/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/signatures/verify.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double vf_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void *need(void *p)
{
    if (!p)
        abort();
    return p;
}

static size_t room(int64_t n)
{
    return (size_t)n * sizeof(double) + 8;
}

static double load(tsr_dtype dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case TSR_DTYPE_F32:
        return (double)((const float *)p)[i];
    case TSR_DTYPE_F64:
        return ((const double *)p)[i];
    case TSR_DTYPE_I64:
        return (double)((const int64_t *)p)[i];
    case TSR_DTYPE_I32:
        return (double)((const int32_t *)p)[i];
    default:
        return (double)((const uint8_t *)p)[i];
    }
}

static void store(tsr_dtype dtype, void *p, int64_t i, double v)
{
    switch (dtype) {
    case TSR_DTYPE_F32:
        ((float *)p)[i] = (float)v;
        break;
    case TSR_DTYPE_F64:
        ((double *)p)[i] = v;
        break;
    case TSR_DTYPE_I64:
        ((int64_t *)p)[i] = (int64_t)v;
        break;
    case TSR_DTYPE_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    default:
        ((uint8_t *)p)[i] = (uint8_t)(int64_t)v;
    }
}

static bool is_float(tsr_dtype t)
{
    return t == TSR_F32 || t == TSR_F64;
}

/* Calls for every element of a shape, in row-major order: its number and its coordinates. */
static bool next(const int64_t *shape, int ndim, int64_t *at)
{
    for (int i = ndim - 1; i >= 0; i--) {
        if (++at[i] < shape[i])
            return true;
        at[i] = 0;
    }
    return false;
}

static int64_t count(const int64_t *shape, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

/* --- what a kernel is told of a part ---------------------------------------------------------- */

static bool is_weight(tsri_op_kind kind, bool out, int i)
{
    return out ? kind == TSRI_OP_CONV2D_DW
               : (kind == TSRI_OP_CONV2D || kind == TSRI_OP_CONV2D_DX) && i == 1;
}

static int parts_of(const vf_how *how)
{
    int n = 1;
    for (int d = 0; d < how->ndim; d++)
        n *= how->dim[d];
    return n;
}

/* Where a part stands in the hierarchy: row-major. */
static void locate(const vf_how *how, int part, int *at)
{
    for (int d = TSR_MAX_HIERARCHY - 1; d >= 0; d--) {
        int k = d < how->ndim ? how->dim[d] : 1;
        at[d] = part % k;
        part /= k;
    }
}

/* Left to right: each dimension splits the piece that the ones before it leave. */
static tsri_arg make_arg(tsr_dims dims, tsr_dtype dtype, const tsr_sbp *s, const vf_how *how,
                         int part, bool nhwc)
{
    static const int last[4] = {0, 2, 3, 1};
    tsri_arg a = {.dtype = dtype, .ndim = dims.ndim};
    int at[TSR_MAX_HIERARCHY];
    locate(how, part, at);
    for (int i = 0; i < dims.ndim; i++)
        a.shape[i] = a.gshape[i] = dims.d[i];
    for (int d = 0; d < how->ndim; d++) {
        int64_t offset;
        if (s->d[d].kind != TSR_SBP_SPLIT)
            continue;
        int axis = s->d[d].arg;
        tsr_balanced_split(a.shape[axis], how->dim[d], at[d], &offset, &a.shape[axis]);
        a.offset[axis] = offset + (how->fault == VF_INNER_OFFSET ? 0 : a.offset[axis]);
    }
    int64_t stride = 1;
    for (int i = dims.ndim - 1; i >= 0; i--) {
        int axis = nhwc && dims.ndim == 4 ? last[i] : i;
        a.stride[axis] = stride;
        stride *= a.shape[axis] > 0 ? a.shape[axis] : 1;
    }
    return a;
}

/* The groups of a convolution's part: nested as its channels are. */
static int64_t groups_of(const vf_op *op, const vf_how *how, int part)
{
    int64_t groups = op->groups, offset;
    int at[TSR_MAX_HIERARCHY];
    locate(how, part, at);
    for (int d = 0; d < how->ndim; d++)
        if (how->split_groups >> d & 1) {
            tsr_balanced_split(groups, how->dim[d], at[d], &offset, &groups);
            if (how->fault == VF_OUTER_GROUPS)
                break;
        }
    return groups;
}

static void forget_offsets(tsri_kernel_desc *d)
{
    for (int i = 0; i < d->nin; i++)
        memset(d->in[i].offset, 0, sizeof d->in[i].offset);
    for (int i = 0; i < d->nout; i++)
        memset(d->out[i].offset, 0, sizeof d->out[i].offset);
}

static tsri_kernel_desc describe(const vf_op *op, const tsri_nd_signature *sig, const vf_how *how,
                                 int part, tsri_attrs *attrs)
{
    bool nhwc = how->nhwc && tsri_op_def_of(op->kind)->layout != TSRI_LAYOUT_ROW;
    tsri_kernel_desc d = {.op = op->kind, .attrs = attrs, .nin = op->nin, .nout = op->nout};
    *attrs = op->attrs;
    d.groups = how->fault == VF_GLOBAL_GROUPS ? op->groups : groups_of(op, how, part);
    for (int i = 0; i < op->nin; i++)
        d.in[i] = make_arg(op->in_dims[i], op->in_dtype[i], &sig->in[i], how, part,
                           nhwc && !is_weight(op->kind, false, i));
    for (int i = 0; i < op->nout; i++)
        d.out[i] = make_arg(op->out_dims[i], op->out_dtype[i], &sig->out[i], how, part,
                            nhwc && !is_weight(op->kind, true, i));
    if (how->fault == VF_LOCAL_COUNT && op->kind == TSRI_OP_REDUCE) {
        int64_t whole = count(d.in[0].gshape, d.in[0].ndim);
        int64_t here = count(d.in[0].shape, d.in[0].ndim);
        int64_t gout = count(d.out[0].gshape, d.out[0].ndim);
        int64_t lout = count(d.out[0].shape, d.out[0].ndim);
        if (here && gout && lout)
            attrs->reduce.scale *= (double)(whole / gout) / ((double)here / (double)lout);
    }
    return d;
}

/* --- running a part --------------------------------------------------------------------------- */

/* Ops that work in place: the operand that result i writes over, or -1. */
static int in_place(const vf_op *op, int i)
{
    return op->kind == TSRI_OP_BN_RUNNING               ? 1 + i
           : tsri_op_gradient_operand(op->kind, 2) >= 0 ? i
                                                        : -1;
}

static void *pack(const tsri_arg *a, const double *v)
{
    int64_t at[TSR_MAX_NDIM] = {0}, n = count(a->shape, a->ndim);
    if (n == 0)
        return NULL;
    void *p = need(aligned_alloc(64, (room(n) + 63) / 64 * 64));
    for (int64_t i = 0; i < n; i++, next(a->shape, a->ndim, at)) {
        int64_t to = 0;
        for (int j = 0; j < a->ndim; j++)
            to += at[j] * a->stride[j];
        if (v)
            store(a->dtype, p, to, v[i]);
    }
    if (!v)
        memset(p, 0xff, room(n)); /* NaN: what a kernel leaves out will show */
    return p;
}

static void unpack(const tsri_arg *a, const void *p, double *v)
{
    int64_t at[TSR_MAX_NDIM] = {0}, n = count(a->shape, a->ndim);
    for (int64_t i = 0; i < n; i++, next(a->shape, a->ndim, at)) {
        int64_t from = 0;
        for (int j = 0; j < a->ndim; j++)
            from += at[j] * a->stride[j];
        v[i] = load(a->dtype, p, from);
    }
}

/* in[], out[]: the part's values, row-major. */
static bool run_part(const vf_op *op, const tsri_kernel_desc *d, double *const *in,
                     double *const *out, char *why, size_t size)
{
    void *src[TSRI_RULE_MAX_ARGS], *dst[TSRI_RULE_MAX_ARGS];
    tsri_kernel *k;
    if (tsri_kernel_create(NULL, tsri_kernels_cpu(), d, &k) != TSR_OK) {
        snprintf(why, size, "%s", tsr_last_error());
        return false;
    }
    for (int i = 0; i < d->nin; i++)
        src[i] = pack(&d->in[i], in[i]);
    for (int i = 0; i < d->nout; i++)
        dst[i] = in_place(op, i) >= 0 ? src[in_place(op, i)]
                                      : pack(&d->out[i], op->held ? in[d->nin] : NULL);
    void *scratch = need(aligned_alloc(64, (k->scratch_bytes + 127) / 64 * 64));
    memset(scratch, 0xff, k->scratch_bytes);
    bool ok = k->run(k, src, dst, scratch) == TSR_OK;
    if (!ok)
        snprintf(why, size, "%s", tsr_last_error());
    for (int i = 0; i < d->nout; i++)
        if (dst[i])
            unpack(&d->out[i], dst[i], out[i]);
    k->destroy(k);
    free(scratch);
    for (int i = 0; i < d->nout; i++)
        if (in_place(op, i) < 0)
            free(dst[i]);
    for (int i = 0; i < d->nin; i++)
        free(src[i]);
    return ok;
}

vf_op vf_from(const tsri_op *op)
{
    vf_op v = {.kind = op->kind, .attrs = op->attrs, .nin = op->nin, .nout = op->nout};
    bool conv = op->kind == TSRI_OP_CONV2D || op->kind == TSRI_OP_CONV2D_DX ||
                op->kind == TSRI_OP_CONV2D_DW;
    v.groups = conv ? op->attrs.conv.groups : 0;
    for (int i = 0; i < op->nin; i++) {
        v.in_dims[i] = op->in[i]->shape;
        v.in_dtype[i] = op->in[i]->dtype;
    }
    for (int i = 0; i < op->nout; i++) {
        v.out_dims[i] = op->out[i]->shape;
        v.out_dtype[i] = op->out[i]->dtype;
    }
    v.held = op->kind == TSRI_OP_WHOLE || op->kind == TSRI_OP_TOTAL;
    if (v.held) {
        v.in_dims[v.nin] = v.out_dims[0];
        v.in_dtype[v.nin] = v.out_dtype[0];
    }
    return v;
}

bool vf_run_whole(vf_op *op, char *why, size_t size)
{
    const tsri_nd_signature b = {0};
    const vf_how how = {0};
    tsri_attrs attrs;
    tsri_kernel_desc d = describe(op, &b, &how, 0, &attrs);
    if (!vf_shapes_fit(&d)) {
        snprintf(why, size, "the declared shapes do not fit each other");
        return false;
    }
    return run_part(op, &d, op->in, op->out, why, size);
}

/* --- cutting and joining ---------------------------------------------------------------------- */

/* Copies the piece that `a` describes out of the whole. */
static void take_piece(const tsri_arg *a, const double *whole, double *piece)
{
    int64_t at[TSR_MAX_NDIM] = {0}, n = count(a->shape, a->ndim);
    for (int64_t i = 0; i < n; i++, next(a->shape, a->ndim, at)) {
        int64_t from = 0;
        for (int j = 0; j < a->ndim; j++)
            from = from * a->gshape[j] + a->offset[j] + at[j];
        piece[i] = whole[from];
    }
}

/* Returns a whole number below 2^53 modulo 2^bits of a narrow dtype. */
static double wrapped(tsr_dtype dtype, double v)
{
    return dtype == TSR_I32  ? (double)(int32_t)(uint32_t)(int64_t)v
           : dtype == TSR_U8 ? (double)(uint8_t)(int64_t)v
                             : v;
}

/* Addends of both signs that say nothing of the value, so large where the dtype is a narrow whole
 * one that their sum wraps around; smaller or larger values for max and min. */
static void make_partial(double v, tsr_dtype dtype, int op, int k, uint64_t *rng, double *out)
{
    int owner = (int)(vf_random(rng) * k);
    const double most = op != TSR_REDUCE_SUM ? 4
                        : dtype == TSR_I32   ? 0x1p30
                        : dtype == TSR_U8    ? 64
                                             : 4;
    double rest = v;
    for (int i = 0; i < k; i++) {
        double r = 4 * vf_random(rng) - 2;
        if (!is_float(dtype))
            r = floor(most * r);
        if (op == TSR_REDUCE_SUM) {
            out[i] = r;
            rest -= i == owner ? 0 : r;
        } else {
            out[i] = op == TSR_REDUCE_MAX ? v - fabs(r) : v + fabs(r);
            if (dtype == TSR_DTYPE_U8 && out[i] < 0)
                out[i] = 0;
            if (dtype == TSR_DTYPE_BOOL)
                out[i] = op == TSR_REDUCE_MAX ? (r > 0 ? v : 0) : (r > 0 ? v : 1);
        }
    }
    out[owner] = op == TSR_REDUCE_SUM ? wrapped(dtype, rest) : v;
}

/* The parts that differ by their coordinates in partial dimensions only hold addends of one value.
 * Their number, and (row-major in those coordinates) the number of one part among them. */
static int addends_of(const tsr_sbp *s, const vf_how *how)
{
    int n = 1;
    for (int d = 0; d < how->ndim; d++)
        n *= s->d[d].kind == TSR_SBP_PARTIAL ? how->dim[d] : 1;
    return n;
}

static int addend_of(const tsr_sbp *s, const vf_how *how, int part)
{
    int at[TSR_MAX_HIERARCHY], n = 0;
    locate(how, part, at);
    for (int d = 0; d < how->ndim; d++)
        if (s->d[d].kind == TSR_SBP_PARTIAL)
            n = n * how->dim[d] + at[d];
    return n;
}

/* Takes a value apart along each partial dimension, the outer one first. */
static void make_addends(double v, tsr_dtype dtype, const tsr_sbp *s, const vf_how *how,
                         uint64_t *rng, double *out)
{
    double from[VF_MAX_PARTS];
    int n = 1;
    out[0] = v;
    for (int d = 0; d < how->ndim; d++) {
        if (s->d[d].kind != TSR_SBP_PARTIAL)
            continue;
        memcpy(from, out, (size_t)n * sizeof *out);
        for (int i = 0; i < n; i++)
            make_partial(from[i], dtype, s->d[d].arg, how->dim[d], rng, out + i * how->dim[d]);
        n *= how->dim[d];
    }
}

/* Puts it together again, the inner dimension first. */
static double join_addends(const tsr_sbp *s, const vf_how *how, double *v)
{
    int n = addends_of(s, how);
    for (int d = how->ndim - 1; d >= 0; d--) {
        if (s->d[d].kind != TSR_SBP_PARTIAL)
            continue;
        int k = how->dim[d];
        n /= k;
        for (int i = 0; i < n; i++) {
            double r = v[i * k];
            for (int j = 1; j < k; j++) {
                double x = v[i * k + j];
                r = s->d[d].arg == TSR_REDUCE_SUM                ? r + x
                    : (s->d[d].arg == TSR_REDUCE_MAX) == (x > r) ? x
                                                                 : r;
            }
            v[i] = r;
        }
    }
    return v[0];
}

/* The operand's value on every part. */
static void cut(const vf_op *op, int i, const tsr_sbp *s, const vf_how *how, uint64_t *rng,
                double **parts)
{
    int64_t n = tsr_dims_count(op->in_dims[i]);
    int nwhole = addends_of(s, how);
    double *whole[VF_MAX_PARTS], one[VF_MAX_PARTS];
    for (int j = 0; j < nwhole; j++)
        whole[j] = need(malloc(room(n)));
    for (int64_t e = 0; e < n; e++) {
        make_addends(op->in[i][e], op->in_dtype[i], s, how, rng, one);
        for (int j = 0; j < nwhole; j++)
            whole[j][e] = one[j];
    }
    for (int p = 0; p < parts_of(how); p++) {
        tsri_arg a = make_arg(op->in_dims[i], op->in_dtype[i], s, how, p, false);
        parts[p] = need(calloc(1, room(n)));
        take_piece(&a, whole[addend_of(s, how, p)], parts[p]);
    }
    for (int j = 0; j < nwhole; j++)
        free(whole[j]);
}

/* By the coarsest type on the way. */
static double tolerance(const vf_op *op, int i)
{
    double most = 1;
    bool coarse = op->out_dtype[i] == TSR_F32;
    for (int j = 0; j < op->nin; j++)
        coarse |= op->in_dtype[j] == TSR_F32;
    if (!is_float(op->out_dtype[i]))
        return 0;
    for (int64_t e = 0; e < tsr_dims_count(op->out_dims[i]); e++)
        if (isfinite(op->out[i][e]) && fabs(op->out[i][e]) > most)
            most = fabs(op->out[i][e]);
    return (coarse ? 1e-5 : 1e-9) * most;
}

static bool close(double a, double b, double tol)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tol;
}

static bool sums(const tsr_sbp *s, const vf_how *how)
{
    bool any = false;
    for (int d = 0; d < how->ndim; d++)
        any |= s->d[d].kind == TSR_SBP_PARTIAL && s->d[d].arg == TSR_REDUCE_SUM;
    return any;
}

/* Whether two parts differ by their coordinates in partial dimensions at most. */
static bool same_piece(const tsr_sbp *s, const vf_how *how, int p, int q)
{
    int a[TSR_MAX_HIERARCHY], b[TSR_MAX_HIERARCHY];
    bool same = true;
    locate(how, p, a);
    locate(how, q, b);
    for (int d = 0; d < how->ndim; d++)
        same &= a[d] == b[d] || s->d[d].kind == TSR_SBP_PARTIAL;
    return same;
}

/* Whether part `first` and those that hold addends of the same piece make that piece of result
 * i. */
static bool piece_fits(const vf_op *op, int i, const tsr_sbp *s, const vf_how *how, int first,
                       double *const *parts, char *why, size_t size)
{
    double *want = need(malloc(room(tsr_dims_count(op->out_dims[i])))), tol = tolerance(op, i);
    double *const *piece[VF_MAX_PARTS];
    tsri_arg a = make_arg(op->out_dims[i], op->out_dtype[i], s, how, first, false);
    int n = addends_of(s, how);
    bool ok = true, sum = sums(s, how);
    for (int p = first; p < parts_of(how); p++)
        if (same_piece(s, how, first, p))
            piece[addend_of(s, how, p)] = &parts[p];
    take_piece(&a, op->out[i], want);
    for (int64_t e = 0; e < count(a.shape, a.ndim) && ok; e++) {
        double one[VF_MAX_PARTS], sizes = 0;
        for (int j = 0; j < n; j++) {
            one[j] = (*piece[j])[e];
            sizes += fabs(one[j]);
        }
        const double v = wrapped(op->out_dtype[i], join_addends(s, how, one));
        /* Large addends that cancel leave their own rounding. */
        double eps = op->out_dtype[i] == TSR_F32 ? FLT_EPSILON : 0;
        double rounding = sum && isfinite(sizes) ? 4 * eps * sizes : 0;
        /* P(sum) is algebra on finite numbers only. */
        ok = close(v, want[e], tol + rounding) || (sum && !isfinite(want[e]));
        if (!ok)
            snprintf(why, size, "result %d, part %d%s, element %lld: %.17g, not %.17g", i, first,
                     n > 1 ? " and what adds to it" : "", (long long)e, v, want[e]);
    }
    free(want);
    return ok;
}

/* Whether the parts make result i, for every coordinate. parts[p]: row-major, of the part's shape.
 */
static bool join_fits(const vf_op *op, int i, const tsr_sbp *s, const vf_how *how,
                      double *const *parts, char *why, size_t size)
{
    bool ok = true;
    for (int p = 0; p < parts_of(how) && ok; p++)
        if (addend_of(s, how, p) == 0)
            ok = piece_fits(op, i, s, how, p, parts, why, size);
    return ok;
}

/* Whether the parts' shapes are ones that the op can have. */
static bool shapes_fit(const vf_op *op, const tsri_nd_signature *sig, const vf_how *how, char *why,
                       size_t size)
{
    for (int p = 0; p < parts_of(how); p++) {
        tsri_attrs attrs;
        tsri_kernel_desc d = describe(op, sig, how, p, &attrs);
        if (!vf_shapes_fit(&d)) {
            snprintf(why, size, "part %d: its shapes do not fit each other", p);
            return false;
        }
    }
    return true;
}

bool vf_check(const vf_op *op, const tsri_nd_signature *sig, const vf_how *how, char *why,
              size_t size)
{
    double *in[TSRI_RULE_MAX_ARGS][VF_MAX_PARTS], *out[TSRI_RULE_MAX_ARGS][VF_MAX_PARTS];
    uint64_t rng = how->seed;
    int nparts = parts_of(how);
    bool ok = true;
    vf_how right = *how; /* cutting and joining make no mistake */
    right.fault = VF_NONE;
    if (nparts > VF_MAX_PARTS)
        abort();
    if (!shapes_fit(op, sig, how, why, size))
        return false;
    for (int i = 0; i < op->nin + op->held; i++)
        cut(op, i, i < op->nin ? &sig->in[i] : &sig->out[0], &right, &rng, in[i]);
    for (int i = 0; i < op->nout; i++)
        for (int p = 0; p < nparts; p++)
            out[i][p] = need(calloc(1, room(tsr_dims_count(op->out_dims[i]))));
    for (int p = 0; p < nparts && ok; p++) {
        double *src[TSRI_RULE_MAX_ARGS], *dst[TSRI_RULE_MAX_ARGS];
        tsri_attrs attrs;
        tsri_kernel_desc d = describe(op, sig, how, p, &attrs);
        for (int i = 0; i < op->nin + op->held; i++)
            src[i] = in[i][p];
        for (int i = 0; i < op->nout; i++)
            dst[i] = out[i][p];
        if (how->fault == VF_NO_OFFSET)
            forget_offsets(&d);
        ok = run_part(op, &d, src, dst, why, size);
    }
    for (int i = 0; i < op->nout && ok; i++)
        ok = join_fits(op, i, &sig->out[i], &right, out[i], why, size);
    for (int p = 0; p < nparts; p++) {
        for (int i = 0; i < op->nin + op->held; i++)
            free(in[i][p]);
        for (int i = 0; i < op->nout; i++)
            free(out[i][p]);
    }
    return ok;
}

bool vf_has_bool_sum(const vf_op *op, const tsri_nd_signature *sig)
{
    const tsr_sbp1 p = {TSR_SBP_PARTIAL, TSR_REDUCE_SUM};
    bool found = false;
    for (int i = 0; i < op->nout; i++)
        for (int d = 0; d < sig->out[i].ndim; d++)
            found |= op->out_dtype[i] == TSR_BOOL && vf_sbp1_equal(sig->out[i].d[d], p);
    return found;
}

char *vf_signature_text(const vf_op *op, const tsri_nd_signature *sig, char *buf, size_t size)
{
    char one[TSR_SBP_TEXT_MAX];
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < op->nin + op->nout && at + TSR_SBP_TEXT_MAX < size; i++) {
        tsr_sbp s = i < op->nin ? sig->in[i] : sig->out[i - op->nin];
        at += (size_t)snprintf(buf + at, size - at, "%s%s",
                               i == op->nin ? " -> "
                               : i          ? ","
                                            : "",
                               tsr_sbp_format(s, one));
    }
    return buf;
}
