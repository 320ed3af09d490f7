/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reducing a bucket: by an asynchronous average in place, by one of its values in 16 bits, or by
 * the user's hook.
 */
#include "src/core/convert.h"
#include "src/train/ddp.h"

tsr_status tsri_ddp_make_small(tsr_ddp *d)
{
    for (int i = 0; i < d->nbuckets; i++)
        if (tsri_ddp_is_compressed(d, &d->buckets[i]))
            TSRI_TRY(tsr_alloc(d->world, (size_t)d->buckets[i].pub.count * 2 + 64,
                               &d->buckets[i].small));
    return TSR_OK;
}

/* --- arithmetic ------------------------------------------------------------------------------- */
enum { CHUNK = 512 };

/* x[i] times 1/divisor, the factor rounded to the dtype first, as PyTorch has it. */
static void scale(tsr_dtype dtype, int64_t n, void *x, double divisor)
{
    const double exact = tsri_ddp_factor(divisor, dtype);
    const float factor = (float)exact;
    if (dtype == TSR_F64) {
        double *a = x;
        for (int64_t i = 0; i < n; i++)
            a[i] *= exact;
    } else if (dtype == TSR_F32) {
        float *a = x;
        for (int64_t i = 0; i < n; i++)
            a[i] *= factor;
    } else {
        float a[CHUNK];
        for (int64_t at = 0; at < n; at += CHUNK) {
            int64_t m = n - at < CHUNK ? n - at : CHUNK;
            uint16_t *to = (uint16_t *)x + at;
            tsri_convert(a, TSR_F32, to, dtype, m);
            for (int64_t i = 0; i < m; i++)
                a[i] *= factor;
            tsri_convert(to, dtype, a, TSR_F32, m);
        }
    }
}

/* fp16_compress_hook: cast, then divided in the small dtype. */
static void divide_small(tsr_dtype dtype, int64_t n, uint16_t *x, double divisor)
{
    float a[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t m = n - at < CHUNK ? n - at : CHUNK;
        tsri_convert(a, TSR_F32, x + at, dtype, m);
        for (int64_t i = 0; i < m; i++)
            a[i] /= (float)divisor;
        tsri_convert(x + at, dtype, a, TSR_F32, m);
    }
}

/* --- a bucket --------------------------------------------------------------------------------- */
tsr_status tsri_ddp_start_bucket(tsr_ddp *d, int bucket)
{
    tsri_ddp_bucket *b = &d->buckets[bucket];
    TSRI_TRY(tsri_ddp_label(d, "ddp run %lld, bucket %d", (long long)d->info.syncs + 1, bucket));
    b->pub.divisor = d->run.divisor;
    if (d->side)
        return tsri_ddp_start_on_device(d, bucket);
    if (d->opts.hook_fn)
        return d->opts.hook_fn(d->opts.hook_state, &b->pub);
    if (tsri_ddp_is_compressed(d, b)) {
        tsr_dtype small = tsri_ddp_small_dtype(d);
        TSRI_TRY(tsri_convert(b->small, small, b->pub.data, b->pub.dtype, b->pub.count));
        divide_small(small, b->pub.count, b->small, d->run.divisor);
        return tsr_all_reduce_at(d->group, b->small, b->pub.count, small, TSR_REDUCE_SUM, &b->work,
                                 d->loc.file, d->loc.line);
    }
    const bool is_average = d->run.divisor == (double)d->nranks;
    if (!is_average)
        scale(b->pub.dtype, b->pub.count, b->pub.data, d->run.divisor);
    return tsr_all_reduce_at(d->group, b->pub.data, b->pub.count, b->pub.dtype,
                             is_average ? TSR_REDUCE_AVG : TSR_REDUCE_SUM, &b->work, d->loc.file,
                             d->loc.line);
}

tsr_status tsri_ddp_finish_bucket(tsr_ddp *d, int bucket)
{
    tsri_ddp_bucket *b = &d->buckets[bucket];
    if (d->side)
        return tsri_ddp_finish_on_device(d, bucket);
    if (!b->work)
        return TSR_OK;
    TSRI_TRY(tsr_work_wait(&b->work, 0));
    if (tsri_ddp_is_compressed(d, b))
        return tsri_convert(b->pub.data, b->pub.dtype, b->small, tsri_ddp_small_dtype(d),
                            b->pub.count);
    return TSR_OK;
}
