/* SPDX-License-Identifier: Apache-2.0 */
/* Work on the memory of buckets, wherever it is: at once in host memory, in the stream of compute
 * on a device. */
#include <string.h>

#include "kernels/device.h"
#include "src/core/convert.h"
#include "src/train/ddp.h"

tsr_dtype tsri_ddp_small_dtype(const tsr_ddp *d)
{
    return d->opts.hook == TSR_DDP_FP16_COMPRESS   ? TSR_F16
           : d->opts.hook == TSR_DDP_BF16_COMPRESS ? TSR_BF16
                                                   : TSR_DTYPE_NONE;
}

bool tsri_ddp_is_compressed(const tsr_ddp *d, const tsri_ddp_bucket *b)
{
    return !d->opts.hook_fn && tsri_ddp_small_dtype(d) && tsr_dtype_size(b->pub.dtype) > 2;
}

double tsri_ddp_factor(double divisor, tsr_dtype dtype)
{
    float factor = (float)(1 / divisor);
    uint16_t rounded;
    if (dtype == TSR_F64)
        return 1 / divisor;
    if (dtype == TSR_F32)
        return (double)factor;
    tsri_convert(&rounded, dtype, &factor, TSR_F32, 1);
    tsri_convert(&factor, TSR_F32, &rounded, dtype, 1);
    return (double)factor;
}

enum { CHUNK = 512 };

void tsri_ddp_add(tsr_dtype dtype, int64_t n, void *into, const void *from)
{
    if (dtype == TSR_F32) {
        float *a = into;
        const float *b = from;
        for (int64_t i = 0; i < n; i++)
            a[i] += b[i];
    } else if (dtype == TSR_F64) {
        double *a = into;
        const double *b = from;
        for (int64_t i = 0; i < n; i++)
            a[i] += b[i];
    } else {
        float a[CHUNK], b[CHUNK];
        for (int64_t at = 0; at < n; at += CHUNK) {
            int64_t m = n - at < CHUNK ? n - at : CHUNK;
            uint16_t *to = (uint16_t *)into + at;
            tsri_convert(a, TSR_F32, to, dtype, m);
            tsri_convert(b, TSR_F32, (const uint16_t *)from + at, dtype, m);
            for (int64_t i = 0; i < m; i++)
                a[i] += b[i];
            tsri_convert(to, dtype, a, TSR_F32, m);
        }
    }
}

bool tsri_ddp_on_device(const tsr_ddp *d)
{
    return d->device && d->device->ops->move;
}

/* The zeros that a gradient is taken for: +0, which is no identity of a sum. */
tsr_status tsri_ddp_clear(tsr_ddp *d, void *data, size_t bytes)
{
    if (!tsri_ddp_on_device(d)) {
        memset(data, 0, bytes);
        return TSR_OK;
    }
    return d->device->ops->fill(d->device, TSR_U8, TSR_REDUCE_SUM, (int64_t)bytes, data,
                                d->device->stream);
}

static tsr_status move(tsr_ddp *d, tsr_dtype dtype, int64_t n, void *dst, int nsrc,
                       const void *const *src)
{
    const tsri_move m = tsri_move_flat(dtype, TSR_REDUCE_SUM, n, nsrc, src, dst);
    return n ? d->device->ops->move(d->device, &m, d->device->stream) : TSR_OK;
}

tsr_status tsri_ddp_copy(tsr_ddp *d, void *dst, const void *src, size_t bytes)
{
    if (tsri_ddp_on_device(d))
        return move(d, TSR_U8, (int64_t)bytes, dst, 1, &src);
    memcpy(dst, src, bytes);
    return TSR_OK;
}

tsr_status tsri_ddp_add_to(tsr_ddp *d, tsr_dtype dtype, int64_t n, void *into, const void *from)
{
    const void *src[2] = {into, from};
    if (tsri_ddp_on_device(d))
        return move(d, dtype, n, into, 2, src);
    tsri_ddp_add(dtype, n, into, from);
    return TSR_OK;
}
