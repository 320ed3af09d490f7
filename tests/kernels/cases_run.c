/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include "src/core/rng.h"
#include "src/core/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t kc_count(const kc_arg *a)
{
    return tsr_dims_count(a->dims);
}

static double u01(uint64_t seed, int64_t i)
{
    return tsri_rng_uniform(seed, 0, (uint64_t)i);
}

/* Elements per channel of virtual batch r. */
static double part_count(const tsri_attrs *at, int64_t r)
{
    int64_t n = at->bn.batch, k = at->bn.parts;
    return (double)((n / k + (r < n % k)) * at->bn.spatial);
}

/* An optimizer's numbers: all are at work, or only those that every update needs. */
static double hyper_value(kc_fill fill, int64_t i)
{
    static const double all[TSRI_HYPER_COUNT] = {
        [TSRI_HYPER_LR] = 0.1,      [TSRI_HYPER_SCALE] = 0.5,  [TSRI_HYPER_DECAY] = 0.01,
        [TSRI_HYPER_SHRINK] = 0.99, [TSRI_HYPER_KEEP1] = 0.9,  [TSRI_HYPER_TAKE1] = 0.2,
        [TSRI_HYPER_KEEP2] = 0.95,  [TSRI_HYPER_TAKE2] = 0.05, [TSRI_HYPER_LOOK] = 0.8,
        [TSRI_HYPER_EPS] = 1e-3,    [TSRI_HYPER_ROOT] = 1.25};
    switch (i) {
    case TSRI_HYPER_SKIP:
        return fill == KC_HYPER_SKIP;
    case TSRI_HYPER_SCALE:
    case TSRI_HYPER_SHRINK:
        return fill == KC_HYPER_PLAIN ? 1 : all[i];
    case TSRI_HYPER_DECAY:
    case TSRI_HYPER_LOOK:
        return fill == KC_HYPER_PLAIN ? 0 : all[i];
    default:
        return all[i];
    }
}

static double stats_value(const kernel_case *c, const kc_arg *a, uint64_t seed, int64_t i)
{
    int64_t channels = a->dims.d[2], r = i / (2 * channels), row = i / channels % 2;
    int64_t mean_at = r * channels + i % channels;
    double n = part_count(&c->attrs, r), mean = 2 * u01(seed, mean_at) - 1;
    return row ? n * (mean * mean + 0.5 + u01(seed + 1, mean_at)) : n * mean;
}

static double row_stats_value(const kernel_case *c, uint64_t seed, int64_t i)
{
    double n = (double)c->attrs.ln.count, mean = 2 * u01(seed, i / 2) - 1;
    return i % 2 ? n * (mean * mean + 0.5 + u01(seed + 1, i / 2)) : n * mean;
}

static double lse_value(const kernel_case *c, const double *x, int64_t i)
{
    const double *row = x + i / 2 * c->in[0].dims.d[1];
    double sum = 0, most = row[0];
    for (int64_t j = 0; j < c->in[0].dims.d[1]; j++) {
        sum += exp(row[j]);
        most = row[j] > most ? row[j] : most;
    }
    return i % 2 ? log(sum) - most : most;
}

static double pool_idx(const kernel_case *c, const kc_arg *a, uint64_t seed, int64_t i)
{
    const int64_t *in = c->out[0].dims.d, *out = a->dims.d;
    int64_t o[2] = {i / out[3] % out[2], i % out[3]}, at[2];
    for (int k = 0; k < 2; k++) {
        int64_t b = o[k] * c->attrs.pool.stride[k] - c->attrs.pool.pad[k];
        int64_t e = b + c->attrs.pool.kernel[k];
        b = b < 0 ? 0 : b;
        e = e > in[2 + k] ? in[2 + k] : e;
        at[k] = b + (int64_t)(u01(seed, 2 * i + k) * (double)(e - b));
    }
    return (double)(at[0] * in[3] + at[1]);
}

double *kc_make(const kernel_case *c, int index, uint64_t seed)
{
    const kc_arg *a = &c->in[index];
    int64_t n = kc_count(a);
    double *p = calloc((size_t)n + 1, sizeof *p);
    double *x = a->fill == KC_LSE ? kc_make(c, 0, seed) : NULL;
    if (!p || (a->fill == KC_LSE && !x))
        abort();
    uint64_t key = seed * 100 + (uint64_t)index;
    for (int64_t i = 0; i < n; i++) {
        double u = u01(key, i);
        switch (a->fill) {
        case KC_UNIFORM:
            p[i] = 2 * u - 1;
            break;
        case KC_BIG:
            p[i] = 2 + u;
            break;
        case KC_POSITIVE:
            p[i] = 0.1 + u;
            break;
        case KC_NEAR_ONE:
            p[i] = 0.9 + 0.2 * u;
            break;
        case KC_NEGATIVE:
            p[i] = -0.1 - 2.9 * u;
            break;
        case KC_INSIDE:
            p[i] = 1.8 * u - 0.9;
            break;
        case KC_ABOVE:
            p[i] = 1.1 + 2 * u;
            break;
        case KC_SPREAD:
            p[i] = 14 * u - 4;
            break;
        case KC_FEW:
            p[i] = floor(4 * u);
            break;
        case KC_WHOLE:
            p[i] = floor(18 * u) - 9;
            p[i] += p[i] >= 0;
            break;
        case KC_BOOL:
            p[i] = u < 0.5;
            break;
        case KC_LABEL:
            p[i] = floor(u * (double)c->in[0].dims.d[1]);
            break;
        case KC_STEP:
            p[i] = 3;
            break;
        case KC_HYPER:
        case KC_HYPER_PLAIN:
        case KC_HYPER_SKIP:
            p[i] = hyper_value(a->fill, i);
            break;
        case KC_STATS:
            p[i] = stats_value(c, a, key, i);
            break;
        case KC_CLASS:
            p[i] = floor(u * (double)c->attrs.ce.classes);
            break;
        case KC_COUNT:
            p[i] = 25;
            break;
        case KC_ROW_STATS:
            p[i] = row_stats_value(c, key, i);
            break;
        case KC_FAULTS:
            p[i] = u < 0.006 ? NAN : u < 0.013 ? INFINITY : u < 0.02 ? -INFINITY : 1.2e5 * u - 6e4;
            break;
        case KC_PART_0:
        case KC_PART_1:
        case KC_PART_2:
        case KC_PART_3:
            p[i] = a->fill - KC_PART_0;
            break;
        case KC_LSE:
            p[i] = lse_value(c, x, i);
            break;
        case KC_POOL_IDX:
            p[i] = pool_idx(c, a, key, i);
            break;
        }
        if (a->dtype == TSR_DTYPE_NONE)
            p[i] = (double)(float)p[i];
    }
    free(x);
    return p;
}

static tsri_arg make_arg(const kc_arg *a, tsr_dtype dtype, bool nhwc)
{
    static const int rows[4] = {0, 1, 2, 3}, last[4] = {0, 2, 3, 1};
    tsri_arg g = {.dtype = a->dtype ? a->dtype : dtype, .ndim = a->dims.ndim};
    const int *order = nhwc && g.ndim == 4 ? last : rows;
    int64_t step = 1;
    for (int i = g.ndim - 1; i >= 0; i--) {
        int axis = order[i];
        g.shape[axis] = a->dims.d[axis];
        g.gshape[axis] = a->gshape[0] ? a->gshape[axis] : a->dims.d[axis];
        g.offset[axis] = a->offset[axis];
        g.stride[axis] = step;
        step *= a->dims.d[axis];
    }
    return g;
}

static int64_t count_of(const tsri_arg *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->ndim; i++)
        n *= a->shape[i];
    return n;
}

/* Offset of the i-th element in row-major order. */
static int64_t place(const tsri_arg *a, int64_t i)
{
    int64_t off = 0;
    for (int k = a->ndim - 1; k >= 0; k--) {
        off += i % a->shape[k] * a->stride[k];
        i /= a->shape[k];
    }
    return off;
}

static void put(const tsri_arg *a, void *p, int64_t i, double v)
{
    switch (a->dtype) {
    case TSR_F32:
        ((float *)p)[i] = (float)v;
        break;
    case TSR_F64:
        ((double *)p)[i] = v;
        break;
    case TSR_F16:
    case TSR_BF16:
        tsri_convert((uint16_t *)p + i, a->dtype, &v, TSR_F64, 1);
        break;
    case TSR_I64:
        ((int64_t *)p)[i] = (int64_t)v;
        break;
    case TSR_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    default:
        ((uint8_t *)p)[i] = (uint8_t)v;
    }
}

static double get(const tsri_arg *a, const void *p, int64_t i)
{
    double v;
    switch (a->dtype) {
    case TSR_F16:
    case TSR_BF16:
        tsri_convert(&v, TSR_F64, (const uint16_t *)p + i, a->dtype, 1);
        return v;
    case TSR_F32:
        return ((const float *)p)[i];
    case TSR_F64:
        return ((const double *)p)[i];
    case TSR_I64:
        return (double)((const int64_t *)p)[i];
    case TSR_I32:
        return (double)((const int32_t *)p)[i];
    default:
        return ((const uint8_t *)p)[i];
    }
}

static void *buffer(size_t bytes)
{
    void *p = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (bytes && !p)
        abort();
    if (p)
        memset(p, 0xff, bytes); /* results must not count on zeroes */
    return p;
}

static void *load(const tsri_arg *a, int64_t n, const double *from)
{
    void *p = buffer((size_t)n * tsr_dtype_size(a->dtype));
    for (int64_t i = 0; from && i < n; i++)
        put(a, p, place(a, i), from[i]);
    return p;
}

double kc_round(tsr_dtype dtype, double v)
{
    uint64_t word;
    const tsri_arg a = {.dtype = dtype};
    put(&a, &word, 0, v);
    return get(&a, &word, 0);
}

kc_values kc_values_make(const kernel_case *c, tsr_dtype dtype)
{
    kc_values v = {.c = c};
    for (int i = 0; i < c->nin; i++) {
        v.in[i] = kc_make(c, i, 11);
        for (int64_t j = 0; c->in[i].dtype == TSR_DTYPE_NONE && j < kc_count(&c->in[i]); j++)
            v.in[i][j] = kc_round(dtype, v.in[i][j]);
    }
    for (int i = 0; i < c->nout; i++) {
        v.out[i] = calloc((size_t)kc_count(&c->out[i]) + 1, sizeof(double));
        v.want[i] = calloc((size_t)kc_count(&c->out[i]) + 1, sizeof(double));
        if (!v.out[i] || !v.want[i])
            abort();
    }
    return v;
}

void kc_values_free(kc_values *v)
{
    for (int i = 0; i < 8; i++)
        free(v->in[i]);
    for (int i = 0; i < 4; i++) {
        free(v->out[i]);
        free(v->want[i]);
    }
}

/* Around each buffer on a device: bytes that are a NaN in every float dtype, which nobody may write
 * and which show in results if somebody reads them. */
enum { MARGIN = 256 };

static size_t with_margins(size_t bytes)
{
    return (bytes + 63) / 64 * 64 + 2 * MARGIN;
}

/* A buffer for the kernel with the host's bytes in it; NULL for none. */
static char *to_device(tsri_device *d, const void *host, size_t bytes)
{
    void *p = NULL;
    size_t all = with_margins(bytes);
    if (!bytes)
        return NULL;
    char *image = malloc(all);
    if (!image)
        abort();
    memset(image, 0xff, all);
    memcpy(image + MARGIN, host, bytes);
    if (d->ops->buffer_alloc(d, all, &p) != TSR_OK ||
        d->ops->copy_in(d, p, image, all, d->stream) != TSR_OK)
        abort();
    free(image);
    return (char *)p + MARGIN;
}

/* Back to the host (NULL: not wanted), and freed. False if the margins were written. */
static bool from_device(tsri_device *d, char *p, size_t bytes, void *host)
{
    size_t all = with_margins(bytes);
    if (!p)
        return true;
    char *image = malloc(all);
    if (!image || d->ops->copy_out(d, image, p - MARGIN, all, d->stream) != TSR_OK)
        abort();
    d->ops->buffer_free(d, p - MARGIN, all);
    bool intact = true;
    for (size_t i = 0; i < all; i++)
        if (i < MARGIN || i >= MARGIN + bytes)
            intact &= image[i] == (char)0xff;
    if (host)
        memcpy(host, image + MARGIN, bytes);
    free(image);
    return intact;
}

/* Runs on host buffers, by way of the device's own if there is one. */
static tsr_status run(tsri_device *d, const tsri_kernel *k, const tsri_kernel_desc *desc,
                      int in_place, void **in, void **out, void *scratch)
{
    if (!d)
        return k->run(k, in, out, scratch);
    void *di[8] = {0}, *dout[4] = {0};
    size_t ib[8], ob[4];
    bool intact = true;
    const int nin = in_place > desc->nin ? in_place : desc->nin;
    char *ds = to_device(d, scratch, k->scratch_bytes);
    for (int i = 0; i < nin; i++) {
        ib[i] = (size_t)count_of(&desc->in[i]) * tsr_dtype_size(desc->in[i].dtype);
        di[i] = to_device(d, in[i], ib[i]);
    }
    for (int i = 0; i < desc->nout; i++) {
        ob[i] = (size_t)count_of(&desc->out[i]) * tsr_dtype_size(desc->out[i].dtype);
        dout[i] = in_place ? di[in_place - 1 + i] : to_device(d, out[i], ob[i]);
    }
    tsr_status status = k->run(k, di, dout, ds);
    if (status == TSR_OK)
        status = d->ops->stream_sync(d, d->stream);
    if (status == TSR_OK)
        status = d->ops->check(d);
    for (int i = 0; i < nin; i++)
        intact &= from_device(d, di[i], ib[i], in[i]);
    for (int i = 0; i < desc->nout && !in_place; i++)
        intact &= from_device(d, dout[i], ob[i], out[i]);
    intact &= from_device(d, ds, k->scratch_bytes, NULL);
    return status == TSR_OK && !intact
               ? tsri_fail(TSR_ERR_INTERNAL, "%s writes beside its buffers", tsri_op_name(desc->op))
               : status;
}

/* Whether a 4-D operand lies channels last; `at` counts operands, results after inputs. */
static bool is_last(const kernel_case *c, kc_layout layout, int at)
{
    bool dw = c->op == TSRI_OP_CONV2D_DW;
    bool weights = (dw && at == c->nin) ||
                   ((c->op == TSRI_OP_CONV2D || c->op == TSRI_OP_CONV2D_DX) && at == 1);
    return layout == KC_NHWC || (layout == KC_MIXED && at % 2) ||
           (layout == KC_OTHER && at % 2 == 0) || (layout == KC_PLAN && !weights);
}

tsri_kernel_desc kc_desc(const kernel_case *c, tsr_dtype dtype, kc_layout layout)
{
    tsri_kernel_desc d = {
        .op = c->op, .attrs = &c->attrs, .nin = c->nin, .nout = c->nout, .groups = c->groups};
    for (int i = 0; i < c->nin; i++)
        d.in[i] = make_arg(&c->in[i], dtype, is_last(c, layout, i));
    for (int i = 0; i < c->nout; i++)
        d.out[i] = make_arg(&c->out[i], dtype, is_last(c, layout, c->nin + i));
    if (kc_holds(c))
        d.out[0] = d.in[--d.nin];
    return d;
}

tsr_status kc_run(const kernel_case *c, const tsri_kernels *impl, tsr_dtype dtype, kc_layout layout,
                  double *const *in, double *const *out)
{
    return kc_run_on(NULL, c, impl, dtype, layout, in, out);
}

tsr_status kc_run_on(tsri_device *device, const kernel_case *c, const tsri_kernels *impl,
                     tsr_dtype dtype, kc_layout layout, double *const *in, double *const *out)
{
    if (!impl->slot[c->op])
        return TSR_ERR_UNSUPPORTED;
    tsri_kernel_desc d = kc_desc(c, dtype, layout);
    d.stream = device ? device->stream : NULL;
    tsri_kernel *k;
    TSRI_TRY(impl->slot[c->op](NULL, &d, &k));
    void *ip[8] = {0}, *op[4] = {0}, *scratch = buffer(k->scratch_bytes);
    for (int i = 0; i < c->nin; i++)
        ip[i] = load(&d.in[i], kc_count(&c->in[i]), in[i]);
    for (int i = 0; i < c->nout; i++)
        op[i] = c->in_place ? ip[c->in_place - 1 + i] : load(&d.out[i], kc_count(&c->out[i]), NULL);
    tsr_status status = run(device, k, &d, c->in_place, ip, op, scratch);
    for (int i = 0; i < c->nout; i++) {
        const tsri_arg *a = c->in_place ? &d.in[c->in_place - 1 + i] : &d.out[i];
        for (int64_t j = 0; out[i] && j < kc_count(&c->out[i]); j++)
            out[i][j] = get(a, op[i], place(a, j));
        if (!c->in_place)
            free(op[i]);
    }
    for (int i = 0; i < c->nin; i++)
        free(ip[i]);
    free(scratch);
    k->destroy(k);
    return status;
}
