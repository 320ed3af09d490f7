/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over axes and over parts in time, and argmax. */
#include "kernels/cpu/ref/ref.h"

#include <tessera/sbp.h>
#include <math.h>

#include "src/core/convert.h"
#include "src/target/dtype.h"

/* The operand is walked in memory order; accumulators (f64, or i64 for whole numbers) stand in the
 * scratch, one per result, and a reduced axis does not move them. */
typedef struct job {
    const void *x;
    void *acc;
    int op;
} job;

/* Sums and products of whole numbers wrap around. */
static double sum_f64(double a, double v)
{
    return a + v;
}

static int64_t sum_i64(int64_t a, int64_t v)
{
    return (int64_t)((uint64_t)a + (uint64_t)v);
}
#define KEEP_SUM(a, v) _Generic(a, double : sum_f64, int64_t : sum_i64)(a, v)
/* A NaN is taken and then stays; +0 is more than -0. */
#define KEEP_MAX(a, v) ((a) == 0 && (v) == 0 ? (a) + (v) : (v) > (a) || (v) != (v) ? (v) : (a))
#define KEEP_MIN(a, v) ((a) == 0 && (v) == 0 ? -(-(a) - (v)) : (v) < (a) || (v) != (v) ? (v) : (a))

static double times_f64(double a, double v)
{
    return a * v;
}

static int64_t times_i64(int64_t a, int64_t v)
{
    return (int64_t)((uint64_t)a * (uint64_t)v);
}
#define KEEP_PROD(a, v) _Generic(a, double : times_f64, int64_t : times_i64)(a, v)

static double fault_f64(double a, double v)
{
    return isfinite(v) ? a : (double)INFINITY;
}

static int64_t fault_i64(int64_t a, int64_t v)
{
    (void)v;
    return a;
}
#define KEEP_FAULT(a, v) _Generic(a, double : fault_f64, int64_t : fault_i64)(a, v)

#define REDUCE_BY(A, KEEP)                                     \
    do {                                                       \
        if (sa)                                                \
            for (int64_t i = 0; i < r->n; i++)                 \
                acc[i * sa] = KEEP(acc[i * sa], (A)x[i * sx]); \
        else {                                                 \
            A a = acc[0];                                      \
            for (int64_t i = 0; i < r->n; i++)                 \
                a = KEEP(a, (A)x[i * sx]);                     \
            acc[0] = a;                                        \
        }                                                      \
    } while (0)

#define REDUCE(T, A, name)                                      \
    static void reduce_##name(void *arg, const tsri_ref_row *r) \
    {                                                           \
        const job *j = arg;                                     \
        const T *x = (const T *)j->x + r->off[0];               \
        A *acc = (A *)j->acc + r->off[1];                       \
        const int64_t sx = r->step[0], sa = r->step[1];         \
        if (j->op == TSR_REDUCE_SUM)                            \
            REDUCE_BY(A, KEEP_SUM);                             \
        else if (j->op == TSR_REDUCE_MAX)                       \
            REDUCE_BY(A, KEEP_MAX);                             \
        else if (j->op == TSR_REDUCE_PRODUCT)                   \
            REDUCE_BY(A, KEEP_PROD);                            \
        else if (j->op == TSRI_REDUCE_FAULT)                    \
            REDUCE_BY(A, KEEP_FAULT);                           \
        else                                                    \
            REDUCE_BY(A, KEEP_MIN);                             \
    }
REDUCE(float, double, f32)
REDUCE(double, double, f64)
REDUCE(int64_t, int64_t, i64)
REDUCE(int32_t, int64_t, i32)
REDUCE(uint8_t, int64_t, u8)

static tsri_ref_row_fn *const reduce_by[TSR_DTYPE_COUNT_] = {
    [TSR_F32] = reduce_f32, [TSR_F64] = reduce_f64, [TSR_I64] = reduce_i64,
    [TSR_I32] = reduce_i32, [TSR_U8] = reduce_u8,   [TSR_BOOL] = reduce_u8};

static void reduce_begin(tsr_dtype d, int op, void *acc, int64_t n)
{
    int64_t lo, hi; /* what max and min of nothing are */
    tsri_whole_range(d, &lo, &hi);
    const int one = op == TSR_REDUCE_PRODUCT;
    double f = op == TSR_REDUCE_MAX ? -INFINITY : op == TSR_REDUCE_MIN ? INFINITY : one;
    int64_t w = op == TSR_REDUCE_MAX ? lo : op == TSR_REDUCE_MIN ? hi : one;
    for (int64_t i = 0; i < n; i++)
        if (tsri_ref_is_float(d))
            ((double *)acc)[i] = f;
        else
            ((int64_t *)acc)[i] = w;
}

typedef struct reduce {
    tsri_ref ref;
    tsri_ref_iter store; /* out, accumulators */
    int64_t count;
} reduce;

typedef struct store_job {
    const tsri_ref *ref;
    void *y;
    const void *acc;
    double scale;
} store_job;

static void store_row(void *arg, const tsri_ref_row *r)
{
    const store_job *j = arg;
    tsr_dtype from = j->ref->desc.in[0].dtype, to = j->ref->desc.out[0].dtype;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t y = r->off[0] + i * r->step[0], a = r->off[1] + i * r->step[1];
        if (tsri_ref_is_float(from))
            tsri_ref_store(to, j->y, y, j->scale * ((const double *)j->acc)[a]);
        else
            tsri_ref_store_whole(to, j->y, y, ((const int64_t *)j->acc)[a]);
    }
}

static tsr_status reduce_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const reduce *v = (const reduce *)k;
    const tsri_ref *ref = &v->ref;
    tsr_dtype d = ref->desc.in[0].dtype;
    job j = {in[0], scratch, ref->attrs.reduce.op};
    reduce_begin(d, j.op, scratch, v->count);
    tsri_ref_iter_run(&ref->iter, reduce_by[d], &j, false);
    store_job s = {ref, out[0], scratch, j.op == TSR_REDUCE_SUM ? ref->attrs.reduce.scale : 1};
    tsri_ref_iter_run(&v->store, store_row, &s, true);
    return TSR_OK;
}

tsr_status tsri_ref_reduce(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    if (!reduce_by[x->dtype] || (!tsri_ref_is_float(x->dtype) && d->attrs->reduce.scale != 1 &&
                                 d->attrs->reduce.op == TSR_REDUCE_SUM))
        return tsri_ref_decline(d);
    reduce *v = tsri_ref_make(mem, d, reduce_run, sizeof *v);
    TSRI_NEED(v);
    /* Accumulators in the row-major order of the kept axes. */
    int64_t acc[TSR_MAX_NDIM] = {0}, kept[TSR_MAX_NDIM] = {0}, step = 1;
    int out_axis = y->ndim;
    for (int i = x->ndim - 1; i >= 0; i--) {
        bool reduced = d->attrs->reduce.axes >> i & 1;
        if (!reduced || d->attrs->reduce.keepdim)
            out_axis--;
        if (reduced)
            continue;
        acc[i] = kept[out_axis] = step;
        step *= x->shape[i];
    }
    v->count = tsri_arg_count(y);
    tsri_ref_walk(&v->ref.iter, x->ndim, x->shape, 2, (const int64_t *[]){x->stride, acc});
    tsri_ref_walk(&v->store, y->ndim, y->shape, 2, (const int64_t *[]){y->stride, kept});
    v->ref.base.scratch_bytes = (size_t)v->count * sizeof(double);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(softmax_max, reduce);

tsr_status tsri_ref_prod(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->out[0].dtype != (tsri_ref_is_float(d->in[0].dtype) ? d->in[0].dtype : TSR_I64))
        return tsri_ref_decline(d);
    return tsri_ref_reduce(mem, d, out_kernel);
}

/* --- the gradient of a product ---------------------------------------------------------------- */
/* dx = dy times the product of the other factors: of those before, kept in the scratch, and of
 * those behind. No quotient, so factors may be 0. */
typedef struct prod_dx {
    tsri_ref ref; /* its walk, over the axes that stay: dx, x, dy */
    int naxes;
    int64_t n, size[TSR_MAX_NDIM], step_x[TSR_MAX_NDIM], step_dx[TSR_MAX_NDIM];
} prod_dx;

/* Where factor c of a product is. */
static void prod_place(const prod_dx *v, int64_t c, int64_t *out_x, int64_t *out_dx)
{
    *out_x = *out_dx = 0;
    for (int i = v->naxes - 1; i >= 0; c /= v->size[i--]) {
        *out_x += c % v->size[i] * v->step_x[i];
        *out_dx += c % v->size[i] * v->step_dx[i];
    }
}

static void prod_dx_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const prod_dx *v = (const prod_dx *)j->ref;
    double *before = j->scratch; /* [n] */
    const tsr_dtype d = v->ref.desc.out[0].dtype;
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t dx = r->off[0] + i * r->step[0], x = r->off[1] + i * r->step[1];
        const double dy = tsri_ref_load(d, j->in[1], r->off[2] + i * r->step[2]);
        double all = 1;
        int64_t at_x, at_dx;
        for (int64_t c = 0; c < v->n; c++) {
            prod_place(v, c, &at_x, &at_dx);
            before[c] = all;
            all *= tsri_ref_load(d, j->in[0], x + at_x);
        }
        all = 1;
        for (int64_t c = v->n; c-- > 0;) {
            prod_place(v, c, &at_x, &at_dx);
            tsri_ref_store(d, j->out[0], dx + at_dx, dy * (before[c] * all));
            all *= tsri_ref_load(d, j->in[0], x + at_x);
        }
    }
}

tsr_status tsri_ref_prod_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *dy = &d->in[1], *dx = &d->out[0];
    if (!tsri_ref_is_float(dx->dtype) || !tsri_ref_alike(d, 0, 2))
        return tsri_ref_decline(d);
    prod_dx *v = tsri_ref_make_rows(mem, d, prod_dx_row, sizeof *v);
    TSRI_NEED(v);
    v->n = 1;
    for (int i = 0; i < x->ndim; i++) {
        if (!(d->attrs->reduce.axes >> i & 1))
            continue;
        v->size[v->naxes] = x->shape[i];
        v->step_x[v->naxes] = x->stride[i];
        v->step_dx[v->naxes++] = dx->stride[i];
        v->n *= x->shape[i];
    }
    tsri_ref_walk(&v->ref.iter, dy->ndim, dy->shape, 3,
                  (const int64_t *[]){dx->stride, x->stride, dy->stride});
    v->ref.base.scratch_bytes = (size_t)v->n * sizeof(double);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}

/* --- over parts in time ----------------------------------------------------------------------- */
static double load_float(const tsri_ref_job *j, int64_t i)
{
    return tsri_ref_load(j->ref->desc.in[0].dtype, j->in[0], i);
}

static int64_t load_whole(const tsri_ref_job *j, int64_t i)
{
    switch (j->ref->desc.in[0].dtype) {
    case TSR_DTYPE_I64:
        return ((const int64_t *)j->in[0])[i];
    case TSR_DTYPE_I32:
        return ((const int32_t *)j->in[0])[i];
    default:
        return ((const uint8_t *)j->in[0])[i];
    }
}

/* Begins the total y with a run of x in the first part, and adds x to it in the others. */
#define TOTAL(T, A, load, name)                                      \
    static void total_##name(void *arg, const tsri_ref_row *r)       \
    {                                                                \
        const tsri_ref_job *j = arg;                                 \
        const int op = j->ref->attrs.total.op;                       \
        const bool first = *(const int64_t *)j->in[1] == 0;          \
        T *y = (T *)j->out[0] + r->off[0];                           \
        for (int64_t i = 0; i < r->n; i++, y += r->step[0]) {        \
            const A v = load(j, r->off[1] + i * r->step[1]), a = *y; \
            *y = (T)(first                  ? v                      \
                     : op == TSR_REDUCE_SUM ? KEEP_SUM(a, v)         \
                     : op == TSR_REDUCE_MAX ? KEEP_MAX(a, v)         \
                                            : KEEP_MIN(a, v));       \
        }                                                            \
    }

TOTAL(float, double, load_float, f32)
TOTAL(double, double, load_float, f64)
TOTAL(int64_t, int64_t, load_whole, i64)
TOTAL(int32_t, int64_t, load_whole, i32)
TOTAL(uint8_t, int64_t, load_whole, u8)

tsr_status tsri_ref_total(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    static tsri_ref_row_fn *const total_by[TSR_DTYPE_COUNT_] = {
        [TSR_F32] = total_f32, [TSR_F64] = total_f64, [TSR_I64] = total_i64,
        [TSR_I32] = total_i32, [TSR_U8] = total_u8,   [TSR_BOOL] = total_u8};
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int op = d->attrs->total.op;
    if (y->dtype != (tsri_is_half(x->dtype) ? TSR_F32 : x->dtype) || !total_by[y->dtype] ||
        d->in[1].dtype != TSR_I64 || (y->dtype == TSR_BOOL && op == TSR_REDUCE_SUM))
        return tsri_ref_decline(d);
    return tsri_ref_create_rows(mem, d, total_by[y->dtype], 2,
                                (const int64_t *[]){y->stride, x->stride}, out_kernel);
}

/* --- argmax ----------------------------------------------------------------------------------- */
typedef struct argmax {
    tsri_ref ref; /* its walk: out, x without the axis */
    int64_t size, stride;
} argmax;

#define ARGMAX(T, name)                                                                \
    static int64_t argmax_##name(const void *p, int64_t at, int64_t n, int64_t stride) \
    {                                                                                  \
        const T *x = (const T *)p + at;                                                \
        int64_t best = 0;                                                              \
        for (int64_t i = 1; i < n; i++) {                                              \
            const T v = x[i * stride], b = x[best * stride];                           \
            if (v > b || (v != v && b == b)) /* a NaN is the greatest, as in NumPy */  \
                best = i;                                                              \
        }                                                                              \
        return best;                                                                   \
    }
ARGMAX(float, f32)
ARGMAX(double, f64)
ARGMAX(int64_t, i64)
ARGMAX(int32_t, i32)
ARGMAX(uint8_t, u8)

typedef int64_t argmax_fn(const void *p, int64_t at, int64_t n, int64_t stride);

static argmax_fn *const argmax_by[TSR_DTYPE_COUNT_] = {
    [TSR_F32] = argmax_f32, [TSR_F64] = argmax_f64, [TSR_I64] = argmax_i64,
    [TSR_I32] = argmax_i32, [TSR_U8] = argmax_u8,   [TSR_BOOL] = argmax_u8};

static void argmax_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const argmax *v = (const argmax *)j->ref;
    argmax_fn *fn = argmax_by[v->ref.desc.in[0].dtype];
    int64_t *y = (int64_t *)j->out[0] + r->off[0];
    for (int64_t i = 0; i < r->n; i++)
        y[i * r->step[0]] = fn(j->in[0], r->off[1] + i * r->step[1], v->size, v->stride);
}

tsr_status tsri_ref_argmax(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    int axis = d->attrs->softmax.axis;
    if (!argmax_by[x->dtype] || y->dtype != TSR_I64)
        return tsri_ref_decline(d);
    if (!x->shape[axis] && tsri_arg_count(y))
        return tsri_fail(TSR_ERR_INVALID, "argmax: axis %d has no elements", axis);
    argmax *v = tsri_ref_make_rows(mem, d, argmax_row, sizeof *v);
    TSRI_NEED(v);
    v->size = x->shape[axis];
    v->stride = x->stride[axis];
    int64_t kept[TSR_MAX_NDIM] = {0};
    for (int i = 0, o = 0; i < x->ndim; i++)
        if (i != axis)
            kept[o++] = x->stride[i];
        else if (y->ndim == x->ndim)
            kept[o++] = 0;
    tsri_ref_walk(&v->ref.iter, y->ndim, y->shape, 2, (const int64_t *[]){y->stride, kept});
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
