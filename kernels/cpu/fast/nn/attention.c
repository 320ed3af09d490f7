/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention without its scores, and its gradient (Dao and others, "FlashAttention: fast and
 * memory-efficient exact attention", 2022): scores of a block of queries and a block of keys at a
 * time, in a buffer that stays in cache. Forward keeps for each query its largest score so far and
 * what it has summed relative to that; backward knows the sum, and makes the weights again.
 *
 * Threads share heads. Where these are fewer, a head is cut: forward each part takes some blocks of
 * queries; backward some blocks of keys, and a sum of dq of its own, which are added up in order.
 */
#include "kernels/cpu/fast/fast.h"

#include <math.h>
#include <string.h>

enum {
    ROWS = 96,  /* queries of a block */
    KEYS = 240, /* of a block: whole panels of all vectors */
};

typedef struct attention {
    tsri_fast base;
    int64_t s, t, d, e, per_sample; /* per_sample: heads */
    int64_t cuts;                   /* parts of a head */
    float scale;
    int64_t ahead;   /* query i sees keys up to i + ahead; t: all */
    int64_t mask[4]; /* steps of its axes */
    bool has_mask;
    size_t part_bytes, sums_bytes; /* of a thread; of dq, of a part but the first of each head */
} attention;

/* The buffers of one head, and the kernel. */
typedef struct head {
    const attention *v;
    const float *q, *k, *v_, *mask, *y, *dy;
    const double *lse;
} head;

/* A block of keys: from j on, `n` of them; products with it, of one row of queries. */
typedef struct keys {
    int64_t j, n;
    tsri_fast_gemm scores, slopes; /* with keys, with values: [.., n] */
    tsri_fast_gemm sums, back;     /* with values [n, e], with keys [n, d], added up */
    float *k, *v, *w;              /* packed: keys, scaled; values; forward as what is summed */
} keys;

static size_t packed_bytes(const tsri_fast_gemm *g)
{
    return (size_t)tsri_fast_packed(g) * sizeof(float);
}

static keys keys_at(const attention *v, int64_t j)
{
    keys b = {.j = j, .n = tsri_fast_least(KEYS, v->t - j)};
    b.scores = tsri_fast_gemm_of(&v->base.isa->f32, ROWS, b.n, v->d, false, true);
    b.slopes = tsri_fast_gemm_of(&v->base.isa->f32, ROWS, b.n, v->e, false, true);
    b.sums = tsri_fast_gemm_of(&v->base.isa->f32, ROWS, v->e, b.n, false, false);
    b.back = tsri_fast_gemm_of(&v->base.isa->f32, ROWS, v->d, b.n, false, false);
    b.scores.ldc = b.slopes.ldc = b.sums.lda = b.back.lda = KEYS;
    b.sums.add = b.back.add = true;
    return b;
}

/* Packs a block of a head's keys, and of its values for one use. */
static keys pack_keys(const head *h, int64_t j, bool back, char **scratch)
{
    const attention *v = h->v;
    keys b = keys_at(v, j);
    const float *k = h->k + j * v->d, *values = h->v_ + j * v->e;
    tsri_fast_map by = {.a = v->scale};
    b.k = tsri_fast_take(scratch, packed_bytes(&b.scores));
    tsri_fast_gemm_pack(&b.scores, 0, 1, k, b.k);
    by.x = by.out = b.k;
    v->base.isa->scale(&by, 0, tsri_fast_packed(&b.scores));
    b.v = tsri_fast_take(scratch, packed_bytes(back ? &b.slopes : &b.sums));
    tsri_fast_gemm_pack(back ? &b.slopes : &b.sums, 0, 1, values, b.v);
    if (back) {
        b.w = tsri_fast_take(scratch, packed_bytes(&b.back));
        tsri_fast_gemm_pack(&b.back, 0, 1, k, b.w);
        /* A query that sees a NaN or an infinity has NaN or 0 for it in its slopes already; one
         * that does not has a slope of 0, which times a NaN would be one. */
        for (int64_t i = 0; i < tsri_fast_packed(&b.back); i++)
            b.w[i] = isfinite(b.w[i]) ? b.w[i] : 0;
    }
    return b;
}

/* Keys of a block that query i may see, as far as the order of both tells. */
static int64_t seen(const attention *v, const keys *b, int64_t i)
{
    const int64_t n = i + v->ahead + 1 - b->j;
    return n < 0 ? 0 : tsri_fast_least(n, b->n);
}

static head head_at(const attention *v, void *const *in, bool back, int64_t i)
{
    const int has = v->has_mask;
    head h = {.v = v};
    h.q = (const float *)in[0] + i * v->s * v->d;
    h.k = (const float *)in[1] + i * v->t * v->d;
    h.v_ = (const float *)in[2] + i * v->t * v->e;
    if (has)
        h.mask =
            (const float *)in[3] + i / v->per_sample * v->mask[0] + i % v->per_sample * v->mask[1];
    if (back) {
        h.y = (const float *)in[3 + has] + i * v->s * v->e;
        h.lse = (const double *)in[4 + has] + i * v->s;
        h.dy = (const float *)in[5 + has] + i * v->s * v->e;
    }
    return h;
}

static const float *mask_at(const head *h, int64_t i, int64_t j)
{
    return h->mask ? h->mask + i * h->v->mask[2] + j * h->v->mask[3] : NULL;
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Adds what a block of keys gives to queries [i, i + rows). */
static void attend(const head *h, const keys *b, int64_t i, int64_t rows, float *s, float *most,
                   double *sum, float *y)
{
    const attention *v = h->v;
    tsri_fast_gemm_rows(&b->scores, rows, h->q + i * v->d, b->k, NULL, s, NULL);
    for (int64_t r = 0; r < rows; r++)
        v->base.isa->attend(&(tsri_fast_attend){.n = seen(v, b, i + r),
                                                .width = b->n,
                                                .s = s + r * KEYS,
                                                .mask = mask_at(h, i + r, b->j),
                                                .mask_step = v->mask[3],
                                                .most = most + i + r,
                                                .sum = sum + i + r,
                                                .y = y + (i + r) * v->e,
                                                .features = v->e});
    tsri_fast_gemm_rows(&b->sums, rows, s, b->v, NULL, y + i * v->e, NULL);
}

/* Divides the sums of queries [i, i + rows); of those that see no key all stays 0. */
static void finish(const attention *v, int64_t i, int64_t rows, const float *most,
                   const double *sum, float *y, double *lse)
{
    for (int64_t r = i; r < i + rows; r++) {
        const bool none = sum[r] == 0;
        tsri_fast_map by = {.x = y, .out = y, .a = none ? 0 : (float)(1 / sum[r])};
        (none ? v->base.isa->fill : v->base.isa->scale)(&by, r * v->e, (r + 1) * v->e);
        if (lse)
            lse[r] = none ? -INFINITY : (double)most[r] + log(sum[r]);
    }
}

static void forward_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const attention *v = (const attention *)f;
    for (int64_t item = p->begin; item < p->end; item++) {
        const int64_t i = item / v->cuts, from = item % v->cuts * ROWS, step = v->cuts * ROWS;
        const head h = head_at(v, p->in, false, i);
        char *scratch = (char *)p->scratch + (size_t)p->index * v->part_bytes;
        float *s = tsri_fast_take(&scratch, sizeof(float[ROWS][KEYS]));
        float *most = tsri_fast_take(&scratch, (size_t)v->s * sizeof *most);
        double *sum = tsri_fast_take(&scratch, (size_t)v->s * sizeof *sum);
        float *y = (float *)p->out[0] + i * v->s * v->e;
        double *lse = p->out[1] ? (double *)p->out[1] + i * v->s : NULL;
        for (int64_t r = 0; r < v->s; r++) {
            most[r] = -INFINITY;
            sum[r] = 0;
        }
        for (int64_t r = from; r < v->s; r += step)
            memset(y + r * v->e, 0, (size_t)(tsri_fast_least(ROWS, v->s - r) * v->e) * sizeof *y);
        for (int64_t j = 0; j < v->t; j += KEYS) {
            char *rest = scratch;
            const keys b = pack_keys(&h, j, false, &rest);
            for (int64_t r = from; r < v->s; r += step) {
                const int64_t rows = tsri_fast_least(ROWS, v->s - r);
                if (seen(v, &b, r + rows - 1) > 0)
                    attend(&h, &b, r, rows, s, most, sum, y);
            }
        }
        for (int64_t r = from; r < v->s; r += step)
            finish(v, r, tsri_fast_least(ROWS, v->s - r), most, sum, y, lse);
    }
}

/* --- backward --------------------------------------------------------------------------------- */

/* Adds what queries [i, i + rows) give to the gradients of a block of keys, and it to theirs. */
static void attend_back(const head *h, const keys *b, int64_t i, int64_t rows, float *s,
                        float *slope, const float *mean, float *const dx[3])
{
    const attention *v = h->v;
    const float *q = h->q + i * v->d, *dy = h->dy + i * v->e;
    tsri_fast_gemm_rows(&b->scores, rows, q, b->k, NULL, s, NULL);
    tsri_fast_gemm_rows(&b->slopes, rows, dy, b->v, NULL, slope, NULL);
    for (int64_t r = 0; r < rows; r++) {
        const double lse = h->lse[i + r];
        const bool none = lse == -INFINITY;
        const float about = none ? 0 : (float)lse;
        v->base.isa->attend_back(
            &(tsri_fast_attend){.n = none ? 0 : seen(v, b, i + r),
                                .width = b->n,
                                .s = s + r * KEYS,
                                .mask = mask_at(h, i + r, b->j),
                                .mask_step = v->mask[3],
                                .slope = slope + r * KEYS,
                                .lse = about,
                                .gain = none ? 0 : (float)exp((double)about - lse),
                                .mean = mean[i + r],
                                .scale = v->scale});
    }
    tsri_fast_gemm g = tsri_fast_gemm_of(&v->base.isa->f32, b->n, v->e, rows, true, false);
    g.lda = KEYS;
    tsri_fast_gemm_ta(&g, 0, rows, 0, b->n, s, dy, dx[2] + b->j * v->e, true, NULL);
    g = tsri_fast_gemm_of(&v->base.isa->f32, b->n, v->d, rows, true, false);
    g.lda = KEYS;
    tsri_fast_gemm_ta(&g, 0, rows, 0, b->n, slope, q, dx[1] + b->j * v->d, true, NULL);
    tsri_fast_gemm_rows(&b->back, rows, slope, b->w, NULL, dx[0] + i * v->d, NULL);
}

/* The sums of dq of a part: the result itself, or its own for all but the first of a head. */
static float *dq_of(const attention *v, void *const *out, void *scratch, int64_t item)
{
    const int64_t i = item / v->cuts, part = item % v->cuts;
    if (!part)
        return (float *)out[0] + i * v->s * v->d;
    char *sums = (char *)scratch + (size_t)v->base.threads * v->part_bytes;
    return (float *)(sums + (size_t)(i * (v->cuts - 1) + part - 1) * v->sums_bytes);
}

static void backward_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const attention *v = (const attention *)f;
    for (int64_t item = p->begin; item < p->end; item++) {
        const int64_t i = item / v->cuts, from = item % v->cuts * KEYS, step = v->cuts * KEYS;
        const head h = head_at(v, p->in, true, i);
        char *scratch = (char *)p->scratch + (size_t)p->index * v->part_bytes;
        float *s = tsri_fast_take(&scratch, sizeof(float[ROWS][KEYS]));
        float *slope = tsri_fast_take(&scratch, sizeof(float[ROWS][KEYS]));
        float *mean = tsri_fast_take(&scratch, (size_t)v->s * sizeof *mean);
        float *const dx[3] = {dq_of(v, p->out, p->scratch, item),
                              (float *)p->out[1] + i * v->t * v->d,
                              (float *)p->out[2] + i * v->t * v->e};
        memset(dx[0], 0, (size_t)(v->s * v->d) * sizeof(float));
        for (int64_t r = 0; r < v->s; r++)
            mean[r] = (float)f->isa->dot(h.y + r * v->e, h.dy + r * v->e, v->e);
        for (int64_t j = from; j < v->t; j += step) {
            char *rest = scratch;
            const keys b = pack_keys(&h, j, true, &rest);
            memset(dx[1] + j * v->d, 0, (size_t)(b.n * v->d) * sizeof(float));
            memset(dx[2] + j * v->e, 0, (size_t)(b.n * v->e) * sizeof(float));
            for (int64_t r = 0; r < v->s; r += ROWS) {
                const int64_t rows = tsri_fast_least(ROWS, v->s - r);
                if (seen(v, &b, r + rows - 1) > 0)
                    attend_back(&h, &b, r, rows, s, slope, mean, dx);
            }
        }
    }
}

static tsr_status backward_run(const tsri_kernel *k, void *const *in, void *const *out,
                               void *scratch)
{
    const attention *v = (const attention *)k;
    TSRI_TRY(tsri_fast_run(k, in, out, scratch));
    for (int64_t item = 0; item < v->base.items; item++) {
        float *to = (float *)out[0] + item / v->cuts * v->s * v->d;
        if (item % v->cuts) {
            const tsri_fast_map sum = {.x = to, .y = dq_of(v, out, scratch, item), .out = to};
            v->base.isa->binary[TSRI_BINARY_ADD](&sum, 0, v->s * v->d);
        }
    }
    return TSR_OK;
}

/* --- creation --------------------------------------------------------------------------------- */

static bool takes(const tsri_kernel_desc *d)
{
    bool plain = true;
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        const bool is_lse = a->ndim == 3;
        plain = plain && a->dtype == (is_lse ? TSR_F64 : TSR_F32) && tsri_arg_count(a) &&
                tsri_fast_is_row_major(a);
    }
    return plain;
}

static void set_mask(attention *v, const tsri_arg *mask)
{
    v->has_mask = true;
    for (int i = 0; i < 4; i++)
        v->mask[i] = mask->shape[i] == 1 ? 0 : mask->stride[i];
}

/* A thread's buffers of scores, rows and packed blocks. */
static size_t part_bytes(const attention *v, bool back)
{
    const keys b = keys_at(v, 0);
    const size_t block = tsri_fast_align(sizeof(float[ROWS][KEYS]));
    const size_t rows = tsri_fast_align((size_t)v->s * sizeof(float));
    const size_t k = tsri_fast_align(packed_bytes(&b.scores));
    if (!back)
        return block + rows + tsri_fast_align((size_t)v->s * sizeof(double)) + k +
               tsri_fast_align(packed_bytes(&b.sums));
    return 2 * block + rows + k + tsri_fast_align(packed_bytes(&b.slopes)) +
           tsri_fast_align(packed_bytes(&b.back));
}

tsr_status tsri_fast_flash_attention(tsri_mem *mem, const tsri_kernel_desc *d,
                                     tsri_kernel **out_kernel)
{
    const bool back = d->op == TSRI_OP_FLASH_ATTENTION_DX, causal = d->attrs->attention.causal;
    if (!takes(d))
        return tsri_fast_decline(d);
    const int64_t *q = d->in[0].shape, *k = d->in[1].shape, heads = q[0] * q[1];
    attention *v = tsri_fast_make(mem, d, back ? backward_part : forward_part, sizeof *v,
                                  heads * q[2] * k[2], heads);
    TSRI_NEED(v);
    v->per_sample = q[1];
    v->s = q[2];
    v->d = q[3];
    v->t = k[2];
    v->e = d->in[2].shape[3];
    v->scale = (float)d->attrs->attention.scale;
    v->ahead = causal ? d->in[0].offset[2] - d->in[1].offset[2] : v->t;
    if (d->attrs->attention.has_mask)
        set_mask(v, &d->in[3]);
    const int64_t threads = v->base.threads;
    const int64_t blocks = back ? (v->t + KEYS - 1) / KEYS : (v->s + ROWS - 1) / ROWS;
    v->cuts = heads % threads == 0 || heads >= 4 * threads ? 1 : tsri_fast_least(threads, blocks);
    v->base.items = heads * v->cuts;
    v->part_bytes = part_bytes(v, back);
    v->base.base.scratch_bytes = (size_t)threads * v->part_bytes;
    if (back) {
        v->sums_bytes = tsri_fast_align((size_t)(v->s * v->d) * sizeof(float));
        v->base.base.scratch_bytes += (size_t)(heads * (v->cuts - 1)) * v->sums_bytes;
        v->base.base.run = backward_run;
    }
    *out_kernel = &v->base.base;
    return TSR_OK;
}
