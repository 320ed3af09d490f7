/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm over one virtual batch, fused with an activation or not, and scale_shift: all are one
 * pass over rows of channels, or over planes, with coefficients prepared in f64. Then the small ops
 * per channel. */
#include "kernels/cpu/fast/half.h"
#include "kernels/norm.h"
#include "src/core/dims.h"

#include <math.h>
#include <string.h>

enum {
    MIN_WIDTH = 64,    /* floats of a row at least, to make loops worth their start */
    MAX_WIDTH = 16384, /* odd channel counts repeat up to a vector's lanes times */
    ROW_UNIT = 8,      /* rows of a block in bn_t.h */
    PLANE_WIDTH = 32,  /* floats of a row of a plane, or two vectors if these are less */
};

typedef struct norm {
    tsri_fast base;
    tsri_bn_do what;
    tsri_norm_roles role;
    int64_t channels, width;
    int64_t images, plane; /* of row-major images: how many, and elements of a plane */
    double eps, n;         /* n: elements per channel of the virtual batch */
    float hi;
    bool sums; /* the results are */
    bool half; /* the data is bf16 */
    tsri_widen_fn *widen;
} norm;

/* Coefficient i in the scratch; behind the last one are the threads' sums. */
static float *coef_of(const norm *k, void *scratch, int i)
{
    const size_t bytes = tsri_fast_align((size_t)k->width * sizeof(float));
    return (float *)(void *)((char *)scratch + (size_t)i * bytes);
}

/* A thread's sums[2][width]; about[width]: what x is taken less, over `n` elements so far. */
typedef struct sums {
    int64_t n;
    double *sum;
    float *about;
} sums;

static size_t sums_bytes(const norm *k)
{
    return tsri_fast_align(sizeof(sums)) + tsri_fast_align(2 * (size_t)k->width * sizeof(double)) +
           tsri_fast_align((size_t)k->width * sizeof(float));
}

static sums *sums_of(const norm *k, void *scratch, int thread)
{
    char *all = (char *)coef_of(k, scratch, TSRI_BN_COEFS);
    return (sums *)(void *)(all + (size_t)thread * sums_bytes(k));
}

static void clear_sums(const norm *k, void *scratch, int thread)
{
    sums *s = sums_of(k, scratch, thread);
    char *at = (char *)s + tsri_fast_align(sizeof *s);
    s->n = 0;
    s->sum = tsri_fast_take(&at, 2 * (size_t)k->width * sizeof(double));
    s->about = (float *)(void *)at;
    memset(s->sum, 0, 2 * (size_t)k->width * sizeof(double));
}

/* Sums are taken about the first pixel, or about 0 where that is not finite, so that an infinity
 * stays one. */
static void fill_about(const norm *k, const void *pixel, int64_t n, float *about)
{
    if (k->half)
        k->widen(pixel, about, n);
    else
        memcpy(about, pixel, (size_t)n * sizeof *about);
    for (int64_t c = 0; c < n; c++)
        about[c] = isfinite(about[c]) ? about[c] : 0;
}

static void fill_rows_about(const norm *k, const void *pixel, float *about)
{
    fill_about(k, pixel, k->channels, about);
    for (int64_t at = k->channels; at < k->width; at += k->channels)
        memcpy(about + at, about, (size_t)k->channels * sizeof *about);
}

static void norm_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const norm *k = (const norm *)f;
    tsri_fast_bn bn = {.count = p->total, .width = k->width, .x = p->in[0], .hi = k->hi};
    double *acc = NULL;
    if (p->begin == p->end)
        return;
    for (int i = 0; i < TSRI_BN_COEFS; i++)
        bn.coef[i] = coef_of(k, p->scratch, i);
    bn.dy = k->role.dy ? p->in[k->role.dy] : NULL;
    bn.y = k->sums ? NULL : p->out[0];
    if (k->sums) {
        sums *s = sums_of(k, p->scratch, p->index);
        const int64_t begin = p->begin * k->width, end = p->end * k->width;
        acc = s->sum;
        if (k->what == TSRI_BN_DO_STATS && !s->n)
            fill_rows_about(k, (const char *)bn.x + begin * (k->half ? 2 : 4), s->about);
        if (k->what == TSRI_BN_DO_STATS)
            bn.coef[TSRI_BN_MEAN] = s->about;
        s->n += (end < p->total ? end : p->total) - begin;
    }
    f->isa->bn[k->what][k->half](&bn, p->begin, p->end, acc);
}

typedef struct channel {
    double mean, rstd, scale;
} channel;

static channel channel_of(const norm *k, void *const *in, int64_t c)
{
    const double *stats = in[k->role.stats];
    double mean = stats[c] / k->n, var = stats[k->channels + c] / k->n - mean * mean;
    double rstd = 1 / sqrt((var < 0 ? 0 : var) + k->eps);
    double gamma = k->role.gamma ? (double)((const float *)in[k->role.gamma])[c] : 1;
    return (channel){mean, rstd, rstd * gamma};
}

/* Sets the coefficients of channel c, at its places. Forward and backward go through here alike, so
 * that they see the same activation. */
static void fill_channel(const norm *k, void *const *in, float *const *coef, int64_t c)
{
    if (!k->role.stats) { /* scale_shift */
        *coef[TSRI_BN_SCALE] = ((const float *)in[1])[c];
        *coef[TSRI_BN_SHIFT] = ((const float *)in[2])[c];
        *coef[TSRI_BN_MEAN] = 0;
        return;
    }
    channel h = channel_of(k, in, c);
    double beta = k->role.beta ? (double)((const float *)in[k->role.beta])[c] : 0;
    /* x - mean is taken with the rounded mean: the shift and the level make up for the rest. */
    *coef[TSRI_BN_SCALE] = (float)h.scale;
    *coef[TSRI_BN_SHIFT] = (float)(beta + ((double)(float)h.mean - h.mean) * h.scale);
    *coef[TSRI_BN_MEAN] = (float)h.mean;
    if (!k->role.bstats)
        return;
    const double *b = in[k->role.bstats];
    double slope = -h.scale * h.rstd * b[k->channels + c] / k->n;
    *coef[TSRI_BN_GAIN] = (float)h.scale;
    *coef[TSRI_BN_SLOPE] = (float)slope;
    *coef[TSRI_BN_LEVEL] =
        (float)(-h.scale * b[c] / k->n + slope * ((double)(float)h.mean - h.mean));
}

/* A thread's channels are [*out_c0, *out_c1). */
static void channels_of(const norm *k, int thread, int64_t *out_c0, int64_t *out_c1)
{
    *out_c0 = tsri_fast_cut(k->channels, k->base.threads, thread, 16);
    *out_c1 = tsri_fast_cut(k->channels, k->base.threads, thread + 1, 16);
}

static void norm_begin(const tsri_fast *f, const tsri_fast_part *p)
{
    const norm *k = (const norm *)f;
    float *coef[TSRI_BN_COEFS];
    int64_t c0, c1;
    if (k->sums)
        clear_sums(k, p->scratch, p->index);
    if (k->what == TSRI_BN_DO_STATS)
        return;
    channels_of(k, p->index, &c0, &c1);
    for (int64_t c = c0; c < c1; c++) {
        for (int i = 0; i < TSRI_BN_COEFS; i++)
            coef[i] = coef_of(k, p->scratch, i) + c;
        fill_channel(k, p->in, coef, c);
    }
    for (int i = 0; i < TSRI_BN_COEFS; i++) {
        float *all = coef_of(k, p->scratch, i);
        for (int64_t at = k->channels; at < k->width; at += k->channels)
            memcpy(all + at + c0, all + c0, (size_t)(c1 - c0) * sizeof(float));
    }
}

/* Turns the sums over n values of x - about into those of x: see ref_norm.c. */
static void shift_sums(double n, double about, double *s0, double *s1)
{
    *s1 += about * (2 * *s0 + n * about);
    *s0 += n * about;
}

/* Adds to out[2] a thread's sums of channel c, of all repeats inside a row. */
static void add_sums(const norm *k, const sums *s, int64_t c, double out[2])
{
    double own[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        for (int64_t at = c; at < k->width; at += k->channels)
            own[i] += s->sum[i * k->width + at];
    if (k->what == TSRI_BN_DO_STATS && s->n)
        shift_sums((double)(s->n / k->channels), (double)s->about[c], &own[0], &own[1]);
    out[0] += own[0];
    out[1] += own[1];
}

/* Writes a channel's results out[2][channels]. */
static void store_sums(const norm *k, const tsri_fast_part *p, int64_t c, double sum[2])
{
    double *out = p->out[0];
    if (k->what != TSRI_BN_DO_STATS) {
        /* sums of g (x - mean), with the rounded mean, become those of g xhat */
        channel h = channel_of(k, p->in, c);
        sum[1] += ((double)(float)h.mean - h.mean) * sum[0];
        sum[1] *= h.rstd;
    }
    out[c] = sum[0];
    out[k->channels + c] = sum[1];
}

/* Writes the results of a thread's channels: all threads' sums, in order. */
static void norm_end(const tsri_fast *f, const tsri_fast_part *p)
{
    const norm *k = (const norm *)f;
    int64_t c0, c1;
    channels_of(k, p->index, &c0, &c1);
    for (int64_t c = c0; c < c1; c++) {
        double sum[2] = {0, 0};
        for (int t = 0; t < k->base.threads; t++)
            add_sums(k, sums_of(k, p->scratch, t), c, sum);
        store_sums(k, p, c, sum);
    }
}

/* --- planes ----------------------------------------------------------------------------------- */
/* Sets the coefficients of all lanes of a row to channel c's. */
static void fill_plane(const norm *k, const tsri_fast_part *p, int64_t c,
                       float coef[TSRI_BN_COEFS][PLANE_WIDTH])
{
    float *first[TSRI_BN_COEFS];
    for (int i = 0; i < TSRI_BN_COEFS; i++)
        first[i] = coef[i];
    if (k->what == TSRI_BN_DO_STATS)
        fill_about(k, (const char *)p->in[0] + c * k->plane * (k->half ? 2 : 4), 1,
                   coef[TSRI_BN_MEAN]);
    else
        fill_channel(k, p->in, first, c);
    for (int i = 0; i < TSRI_BN_COEFS; i++)
        for (int64_t w = 1; w < k->width; w++)
            coef[i][w] = coef[i][0];
}

/* Channels of row-major images: a plane is rows of one channel. */
static void planes_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const norm *k = (const norm *)f;
    const int64_t rows = (k->plane + k->width - 1) / k->width, size = k->half ? 2 : 4;
    for (int64_t c = p->begin; c < p->end; c++) {
        float coef[TSRI_BN_COEFS][PLANE_WIDTH] = {{0}};
        double acc[2 * PLANE_WIDTH] = {0}, sum[2] = {0, 0};
        tsri_fast_bn bn = {.count = k->plane, .width = k->width, .hi = k->hi};
        fill_plane(k, p, c, coef);
        for (int i = 0; i < TSRI_BN_COEFS; i++)
            bn.coef[i] = coef[i];
        for (int64_t n = 0; n < k->images; n++) {
            const int64_t at = (n * k->channels + c) * k->plane * size;
            bn.x = (const char *)p->in[0] + at;
            bn.dy = k->role.dy ? (const char *)p->in[k->role.dy] + at : NULL;
            bn.y = k->sums ? NULL : (char *)p->out[0] + at;
            f->isa->bn[k->what][k->half](&bn, 0, rows, acc);
        }
        for (int64_t w = 0; w < k->width; w++) {
            sum[0] += acc[w];
            sum[1] += acc[k->width + w];
        }
        if (k->what == TSRI_BN_DO_STATS)
            shift_sums((double)(k->images * k->plane), (double)coef[TSRI_BN_MEAN][0], &sum[0],
                       &sum[1]);
        if (k->sums)
            store_sums(k, p, c, sum);
    }
}

/* --- making ----------------------------------------------------------------------------------- */

/* Everything like x, which is f32 or bf16, but statistics f64 [1, 2, c] and vectors f32 [c]. All
 * samples are of virtual batch `part`. */
static bool takes(const tsri_kernel_desc *desc, int64_t channels, int64_t part)
{
    const tsri_arg *x = &desc->in[0];
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        const tsri_arg *a = i < desc->nin ? &desc->in[i] : &desc->out[i - desc->nin];
        if (a->dtype == TSR_F64 && a->ndim == 3) {
            if (a->shape[0] != 1 || a->shape[1] != 2 || a->shape[2] != channels ||
                a->offset[0] != part || !tsri_fast_is_row_major(a))
                return false;
        } else if (a->ndim == 1 ? a->dtype != TSR_F32 || a->shape[0] != channels ||
                                      !tsri_fast_is_row_major(a)
                                : a->dtype != x->dtype || !tsri_fast_alike(a, x)) {
            return false;
        }
    }
    if (x->dtype != TSR_F32 && x->dtype != TSR_BF16)
        return false;
    if (desc->op == TSRI_OP_SCALE_SHIFT)
        return true;
    const tsri_attrs *at = desc->attrs;
    return part < at->bn.parts && tsri_bn_count(at, part) > 0 &&
           x->offset[0] >= tsri_bn_begin(at, part) &&
           x->offset[0] + x->shape[0] <= tsri_bn_begin(at, part + 1);
}

tsr_status tsri_fast_bn_one(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_norm_roles role = tsri_bn_roles(desc->op);
    const tsri_arg *stats = role.stats ? &desc->in[role.stats] : &desc->out[0];
    const bool has_stats = desc->op != TSRI_OP_SCALE_SHIFT;
    const int64_t part = has_stats ? stats->offset[0] : 0;
    const tsri_arg *x = &desc->in[0];
    int64_t rows, channels;
    const bool planes = !tsri_fast_is_rows(x, &rows, &channels);
    if (planes && (x->ndim != 4 || !tsri_arg_count(x) || !tsri_fast_is_row_major(x)))
        return tsri_fast_decline(desc);
    if (planes) {
        channels = x->shape[1];
        rows = tsri_arg_count(x) / channels;
    }
    if (!takes(desc, channels, part))
        return tsri_fast_decline(desc);
    int64_t w = tsri_fast_isa_best()->width, width = channels / tsri_gcd(channels, w) * w;
    if (width > MAX_WIDTH)
        return tsri_fast_decline(desc);
    const int64_t count = rows * channels;
    width *= (MIN_WIDTH + width - 1) / width;
    norm *k = tsri_fast_make(mem, desc, norm_part, sizeof *k, count, (count + width - 1) / width);
    TSRI_NEED(k);
    k->base.unit = ROW_UNIT;
    k->role = role;
    k->channels = channels;
    k->base.total = count;
    k->base.per_item = width;
    k->base.begin = norm_begin;
    k->width = width;
    k->sums = desc->out[0].dtype == TSR_F64;
    k->half = desc->in[0].dtype == TSR_BF16;
    k->widen = tsri_widen_of(TSR_BF16);
    if (k->role.dy)
        k->what = k->sums ? TSRI_BN_DO_BWD_STATS : TSRI_BN_DO_BWD_APPLY;
    else
        k->what = k->sums ? TSRI_BN_DO_STATS : TSRI_BN_DO_APPLY;
    k->hi = INFINITY;
    if (has_stats) {
        k->what += tsri_bn_has_act(desc); /* the loop with an activation is the one behind */
        k->eps = desc->attrs->bn.eps;
        k->n = tsri_bn_count(desc->attrs, part);
        k->hi = desc->attrs->bn.act == TSRI_ACT_RELU6 ? 6.0f : INFINITY;
    }
    if (planes) {
        k->base.part = planes_part;
        k->base.begin = NULL;
        k->base.items = channels;
        k->base.unit = 1;
        k->base.total = k->base.per_item = 0;
        k->images = x->shape[0];
        k->plane = x->shape[2] * x->shape[3];
        k->width = 2 * k->base.isa->width;
        *out_kernel = &k->base.base;
        return TSR_OK;
    }
    k->base.end = k->sums ? norm_end : NULL;
    tsri_fast_walks(&k->base, 1u | (k->role.dy ? 1u << k->role.dy : 0), !k->sums, false);
    k->base.base.scratch_bytes = TSRI_BN_COEFS * tsri_fast_align((size_t)k->width * sizeof(float)) +
                                 (k->sums ? (size_t)k->base.threads * sums_bytes(k) : 0);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

/* --- the small ops per channel ---------------------------------------------------------------- */
/* Loops that the compiler vectorises; each result is rounded from f64 as the reference rounds it.
 */
typedef struct params {
    tsri_fast base;
    int64_t channels;
    double n, momentum, eps;
} params;

static tsr_status param_grad_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                                 void *scratch)
{
    (void)scratch;
    const int64_t channels = ((const params *)kernel)->channels;
    const double *restrict totals = in[0];
    float *restrict dgamma = out[0], *restrict dbeta = out[1];
    for (int64_t c = 0; c < channels; c++) {
        dbeta[c] = (float)totals[c];
        dgamma[c] = (float)totals[channels + c];
    }
    return TSR_OK;
}

static tsr_status running_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const params *k = (const params *)kernel;
    const double *restrict totals = in[0];
    float *restrict means = out[0], *restrict vars = out[1];
    const double n = k->n, momentum = k->momentum, rest = 1 - momentum;
    const double unbiased = n > 1 ? n / (n - 1) : 1;
    for (int64_t c = 0; c < k->channels; c++) {
        double mean = totals[c] / n, var = totals[k->channels + c] / n - mean * mean;
        var = (var < 0 ? 0 : var) * unbiased;
        means[c] = (float)(rest * (double)means[c] + momentum * mean);
        vars[c] = (float)(rest * (double)vars[c] + momentum * var);
    }
    return TSR_OK;
}

/* Sums f64 [1, 2, c], all else f32 [c], or [1, c] where the rows are virtual batches. */
static bool takes_params(const tsri_kernel_desc *desc)
{
    const tsri_arg *totals = &desc->in[0];
    bool all = totals->dtype == TSR_F64 && totals->ndim == 3 && totals->shape[0] == 1 &&
               tsri_fast_is_row_major(totals) && totals->shape[2] > 0;
    for (int i = 1; i < desc->nin + desc->nout; i++) {
        const tsri_arg *a = i < desc->nin ? &desc->in[i] : &desc->out[i - desc->nin];
        const bool is_vector =
            a->ndim == 1 || (a->ndim == 2 && a->shape[0] == 1 && a->offset[0] == totals->offset[0]);
        all = all && is_vector && a->dtype == TSR_F32 &&
              a->shape[a->ndim - 1] == totals->shape[2] && tsri_fast_is_row_major(a);
    }
    return all;
}

/* bn_running without the operands for a count that only a run knows, and for centred data. */
tsr_status tsri_fast_bn_params(tsri_mem *mem, const tsri_kernel_desc *desc,
                               tsri_kernel **out_kernel)
{
    const bool running = desc->op == TSRI_OP_BN_RUNNING;
    const int64_t part = desc->in[0].offset[0];
    if (!takes_params(desc) ||
        (running && (desc->nin != 3 || (desc->in[1].ndim == 1 && part != 0) ||
                     part >= desc->attrs->bn.parts || tsri_bn_count(desc->attrs, part) == 0)))
        return tsri_fast_decline(desc);
    params *k = tsri_fast_make(mem, desc, NULL, sizeof *k, 0, 0);
    TSRI_NEED(k);
    k->base.base.run = running ? running_run : param_grad_run;
    k->channels = desc->in[0].shape[2];
    k->n = running ? tsri_bn_count(desc->attrs, part) : 0;
    k->momentum = desc->attrs->bn.momentum;
    *out_kernel = &k->base.base;
    return TSR_OK;
}

static tsr_status fold_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const params *k = (const params *)kernel;
    const float *restrict gamma = in[0], *restrict beta = in[1], *restrict mean = in[2],
                          *restrict var = in[3];
    float *restrict scales = out[0], *restrict shifts = out[1];
    for (int64_t c = 0; c < k->channels; c++) {
        const double scale = (double)gamma[c] / sqrt((double)var[c] + k->eps);
        scales[c] = (float)scale;
        shifts[c] = (float)((double)beta[c] - (double)mean[c] * scale);
    }
    return TSR_OK;
}

tsr_status tsri_fast_bn_fold(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    bool takes = tsri_arg_count(&desc->out[0]) > 0;
    for (int i = 0; i < 6; i++) {
        const tsri_arg *a = i < 4 ? &desc->in[i] : &desc->out[i - 4];
        takes &= a->dtype == TSR_F32 && a->shape[a->ndim - 1] == desc->out[0].shape[0] &&
                 (a->stride[a->ndim - 1] == 1 || a->shape[a->ndim - 1] == 1);
    }
    if (!takes)
        return tsri_fast_decline(desc);
    params *k = tsri_fast_make(mem, desc, NULL, sizeof *k, 0, 0);
    TSRI_NEED(k);
    k->base.base.run = fold_run;
    k->channels = desc->out[0].shape[0];
    k->eps = desc->attrs->bn.eps;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
