/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm over one virtual batch, fused with an activation or not, and scale_shift: all are one
 * pass over rows of channels with coefficients prepared in f64. */
#include "kernels/cpu/fast/fast.h"

#include <math.h>
#include <string.h>

enum {
    MIN_WIDTH = 64,    /* floats of a row at least, to make loops worth their start */
    MAX_WIDTH = 16384, /* odd channel counts repeat up to a vector's lanes times */
    ROW_UNIT = 8,      /* rows of a block in bn_t.h */
};

typedef struct norm {
    tsri_fast base;
    tsri_bn_do what;
    int64_t channels, width, rows, count;
    int stats, gamma, beta, dy, bstats; /* operands; -1: none */
    double eps, n;                      /* n: elements per channel of the global batch */
    float hi;
} norm;

typedef struct job {
    const norm *k;
    tsri_fast_bn bn;
    double *acc; /* [threads][2][width] */
} job;

static void norm_part(void *arg, int part)
{
    const job *j = arg;
    const norm *k = j->k;
    double *acc = NULL;
    if (j->acc) {
        acc = j->acc + (int64_t)part * 2 * k->width;
        memset(acc, 0, (size_t)(2 * k->width) * sizeof *acc);
    }
    k->base.isa->bn[k->what](&j->bn, tsri_fast_cut(k->rows, k->base.threads, part, ROW_UNIT),
                             tsri_fast_cut(k->rows, k->base.threads, part + 1, ROW_UNIT), acc);
}

typedef struct channel {
    double mean, rstd, scale;
} channel;

static channel channel_of(const norm *k, void *const *in, int64_t c)
{
    const double *stats = in[k->stats];
    double mean = stats[c] / k->n, var = stats[k->channels + c] / k->n - mean * mean;
    double rstd = 1 / sqrt((var < 0 ? 0 : var) + k->eps);
    return (channel){mean, rstd, k->gamma < 0 ? rstd : rstd * (double)((float *)in[k->gamma])[c]};
}

/* Forward and backward go through here alike, so that they see the same activation. */
static void fill_coefs(const norm *k, void *const *in, float *const *coef)
{
    for (int64_t c = 0; c < k->channels; c++) {
        if (k->stats < 0) { /* scale_shift */
            coef[TSRI_BN_SCALE][c] = ((const float *)in[1])[c];
            coef[TSRI_BN_SHIFT][c] = ((const float *)in[2])[c];
            coef[TSRI_BN_MEAN][c] = 0;
            continue;
        }
        channel h = channel_of(k, in, c);
        double beta = k->beta < 0 ? 0 : (double)((const float *)in[k->beta])[c];
        /* x - mean is taken with the rounded mean: the shift and the level make up for the rest. */
        coef[TSRI_BN_SCALE][c] = (float)h.scale;
        coef[TSRI_BN_SHIFT][c] = (float)(beta + ((double)(float)h.mean - h.mean) * h.scale);
        coef[TSRI_BN_MEAN][c] = (float)h.mean;
        if (k->bstats < 0)
            continue;
        const double *b = in[k->bstats];
        double slope = -h.scale * h.rstd * b[k->channels + c] / k->n;
        coef[TSRI_BN_GAIN][c] = (float)h.scale;
        coef[TSRI_BN_SLOPE][c] = (float)slope;
        coef[TSRI_BN_LEVEL][c] =
            (float)(-h.scale * b[c] / k->n + slope * ((double)(float)h.mean - h.mean));
    }
    for (int i = 0; i < TSRI_BN_COEFS; i++)
        for (int64_t at = k->channels; at < k->width; at += k->channels)
            memcpy(coef[i] + at, coef[i], (size_t)k->channels * sizeof(float));
}

/* Sums are taken about the first pixel, or about 0 where that is not finite, so that an infinity
 * stays one. */
static void fill_about(const norm *k, const float *x, float *about)
{
    memset(about, 0, (size_t)k->width * sizeof *about);
    for (int64_t at = 0; k->count && at < k->width; at += k->channels)
        for (int64_t c = 0; c < k->channels; c++)
            about[at + c] = isfinite(x[c]) ? x[c] : 0;
}

/* Turns the sums over n values of x - about into those of x: see ref_norm.c. */
static void shift_sums(double n, double about, double *s0, double *s1)
{
    *s1 += about * (2 * *s0 + n * about);
    *s0 += n * about;
}

/* out[2][channels]: all parts' sums, and the repeats' inside a row, in order. */
static void fold(const norm *k, const job *j, void *const *in, double *out)
{
    for (int s = 0; s < 2; s++)
        for (int64_t c = 0; c < k->channels; c++) {
            double sum = 0;
            for (int p = 0; p < k->base.threads; p++)
                for (int64_t at = c; at < k->width; at += k->channels)
                    sum += j->acc[((int64_t)p * 2 + s) * k->width + at];
            out[s * k->channels + c] = sum;
        }
    if (k->what == TSRI_BN_DO_STATS) {
        for (int64_t c = 0; c < k->channels; c++)
            shift_sums((double)(k->count / k->channels), (double)j->bn.coef[TSRI_BN_MEAN][c],
                       &out[c], &out[k->channels + c]);
        return;
    }
    /* sums of g (x - mean), with the rounded mean, become those of g xhat */
    for (int64_t c = 0; c < k->channels; c++) {
        channel h = channel_of(k, in, c);
        out[k->channels + c] += ((double)(float)h.mean - h.mean) * out[c];
        out[k->channels + c] *= h.rstd;
    }
}

static tsr_status norm_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    const norm *k = (const norm *)(const void *)kernel;
    char *at = scratch;
    float *coef[TSRI_BN_COEFS];
    job j = {.k = k, .bn = {.count = k->count, .width = k->width, .x = in[0], .hi = k->hi}};
    bool sums = k->what == TSRI_BN_DO_STATS || k->what == TSRI_BN_DO_BWD_STATS ||
                k->what == TSRI_BN_DO_BWD_STATS_ACT;
    for (int i = 0; i < TSRI_BN_COEFS; i++)
        j.bn.coef[i] = coef[i] = tsri_fast_take(&at, (size_t)k->width * sizeof(float));
    if (k->what != TSRI_BN_DO_STATS)
        fill_coefs(k, in, coef);
    else
        fill_about(k, in[0], coef[TSRI_BN_MEAN]);
    j.bn.dy = k->dy < 0 ? NULL : in[k->dy];
    j.bn.y = sums ? NULL : out[0];
    j.acc = sums ? (double *)(void *)at : NULL;
    tsri_fast_team(k->base.threads, norm_part, &j);
    if (sums)
        fold(k, &j, in, out[0]);
    return TSR_OK;
}

/* Which loop, and where the op's operands are. */
static void roles(norm *k, const tsri_kernel_desc *desc)
{
    const bool act = desc->attrs->bn.act != TSRI_ACT_NONE;
    k->stats = 1;
    k->gamma = k->beta = k->dy = k->bstats = -1;
    switch (desc->op) {
    case TSRI_OP_BN_STATS:
        k->what = TSRI_BN_DO_STATS;
        k->stats = -1;
        return;
    case TSRI_OP_SCALE_SHIFT:
        k->what = TSRI_BN_DO_APPLY;
        k->stats = -1;
        return;
    case TSRI_OP_BN_APPLY:
    case TSRI_OP_BN_ACT:
        k->what = desc->op == TSRI_OP_BN_ACT && act ? TSRI_BN_DO_APPLY_ACT : TSRI_BN_DO_APPLY;
        k->gamma = 2;
        k->beta = 3;
        return;
    case TSRI_OP_BN_BWD_STATS:
        k->what = TSRI_BN_DO_BWD_STATS;
        k->dy = 2;
        return;
    case TSRI_OP_BN_BWD_APPLY:
        k->what = TSRI_BN_DO_BWD_APPLY;
        k->gamma = 2;
        k->dy = 3;
        k->bstats = 4;
        return;
    case TSRI_OP_BN_ACT_BWD_STATS:
        k->what = act ? TSRI_BN_DO_BWD_STATS_ACT : TSRI_BN_DO_BWD_STATS;
        k->gamma = 2;
        k->beta = 3;
        k->dy = 4;
        return;
    default:
        k->what = act ? TSRI_BN_DO_BWD_APPLY_ACT : TSRI_BN_DO_BWD_APPLY;
        k->gamma = 2;
        k->beta = 3;
        k->dy = 4;
        k->bstats = 5;
    }
}

/* Everything like x, but statistics f64 [1, 2, c] and vectors f32 [c]. */
static bool takes(const tsri_kernel_desc *desc, int64_t channels)
{
    const tsri_arg *x = &desc->in[0];
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        const tsri_arg *a = i < desc->nin ? &desc->in[i] : &desc->out[i - desc->nin];
        if (a->dtype == TSR_F64 && a->ndim == 3) {
            if (a->shape[0] != 1 || a->shape[1] != 2 || a->shape[2] != channels ||
                a->offset[0] != 0 || !tsri_fast_is_row_major(a))
                return false;
        } else if (a->dtype != TSR_F32) {
            return false;
        } else if (a->ndim == 1 ? a->shape[0] != channels || !tsri_fast_is_row_major(a)
                                : !tsri_fast_alike(a, x)) {
            return false;
        }
    }
    return desc->op == TSRI_OP_SCALE_SHIFT || desc->attrs->bn.parts <= 1;
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

tsr_status tsri_fast_batch_norm(tsri_mem *mem, const tsri_kernel_desc *desc,
                                tsri_kernel **out_kernel)
{
    int64_t rows, channels;
    if (!tsri_fast_is_rows(&desc->in[0], &rows, &channels) || !takes(desc, channels))
        return tsri_fast_decline(desc);
    int64_t w = tsri_fast_isa_best()->width, width = channels / gcd(channels, w) * w;
    if (width > MAX_WIDTH)
        return tsri_fast_decline(desc);
    norm *k = tsri_fast_make(mem, norm_run, sizeof *k, rows * channels);
    TSRI_NEED(k);
    roles(k, desc);
    k->channels = channels;
    k->count = rows * channels;
    k->width = width * ((MIN_WIDTH + width - 1) / width);
    k->rows = (k->count + k->width - 1) / k->width;
    k->hi = INFINITY;
    if (desc->op != TSRI_OP_SCALE_SHIFT) {
        k->eps = desc->attrs->bn.eps;
        k->n = (double)desc->attrs->bn.batch * (double)desc->attrs->bn.spatial;
        k->hi = desc->attrs->bn.act == TSRI_ACT_RELU6 ? 6.0f : INFINITY;
    }
    k->base.base.scratch_bytes = TSRI_BN_COEFS * tsri_fast_align((size_t)k->width * sizeof(float)) +
                                 (size_t)k->base.threads * 2 * (size_t)k->width * sizeof(double);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
