/* SPDX-License-Identifier: Apache-2.0 */
/* cast between buffers of one order of elements. */
#include "kernels/cpu/fast/half.h"

#include <string.h>

enum { UNIT = 64 }; /* elements: threads never share a cache line */

typedef struct flat_cast {
    tsri_fast base;
    int64_t size[2]; /* of an element of the operand and of the result */
    tsri_fast_cast_fn *cast;
    tsri_widen_fn *widen;
    tsri_narrow_fn *narrow;
} flat_cast;

static void cast_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const flat_cast *k = (const flat_cast *)f;
    if (k->widen)
        k->widen((const uint16_t *)p->in[0] + p->begin, (float *)p->out[0] + p->begin,
                 p->end - p->begin);
    else if (k->narrow)
        k->narrow((const float *)p->in[0] + p->begin, (uint16_t *)p->out[0] + p->begin,
                  p->end - p->begin);
    else
        k->cast((const char *)p->in[0] + p->begin * k->size[0],
                (char *)p->out[0] + p->begin * k->size[1], p->end - p->begin);
}

tsr_status tsri_fast_cast(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    tsr_dtype from = desc->in[0].dtype, to = desc->out[0].dtype;
    tsri_fast_cast_fn *cast = tsri_fast_isa_best()->cast[from][to];
    bool known =
        cast || (tsri_is_half(from) && to == TSR_F32) || (from == TSR_F32 && tsri_is_half(to));
    int64_t count = tsri_arg_count(&desc->out[0]);
    if (!known || !count || !tsri_fast_alike(&desc->in[0], &desc->out[0]))
        return tsri_fast_decline(desc);
    flat_cast *k = tsri_fast_make(mem, desc, cast_part, sizeof *k, count, count);
    TSRI_NEED(k);
    k->base.unit = UNIT;
    k->cast = cast;
    k->size[0] = (int64_t)tsr_dtype_size(from);
    k->size[1] = (int64_t)tsr_dtype_size(to);
    k->widen = tsri_is_half(from) ? tsri_widen_of(from) : NULL;
    k->narrow = tsri_is_half(to) ? tsri_narrow_of(to) : NULL;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
