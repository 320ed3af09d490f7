/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather along the last axis of row-major buffers: x is [lines][len] of which ids
 * first <= id < first + len are here, y and ids are [lines][n]. And the sums into these places.
 */
#include "kernels/cpu/fast/fast.h"
#include "src/core/identity.h"

#include <string.h>

enum { LINE = 64 }; /* bytes: one thread's flag */

typedef struct lines {
    tsri_fast base;
    tsri_kernel_desc desc; /* for what is said of a bad id */
    int64_t n, first, len, size;
} lines;

/* Returns the flag that part i sets when it meets an id of another shard, or of none. */
static unsigned char *missed(void *scratch, int part)
{
    return (unsigned char *)scratch + (size_t)part * LINE;
}

#define GATHER(T)                                                                  \
    do {                                                                           \
        for (int64_t i = 0; i < k->n; i++) {                                       \
            const uint64_t id = (uint64_t)(ids[i] - k->first);                     \
            const bool here = id < (uint64_t)k->len;                               \
            ((T *)y)[i] = here ? ((const T *)x)[here ? id : 0] : *(const T *)none; \
        }                                                                          \
    } while (0)

/* none: what an id of another shard gives, an addend to its element. */
static void gather_line(const lines *k, size_t size, bool good, const void *x, const int64_t *ids,
                        const void *none, void *y)
{
    if (size == 4 && good)
        k->base.isa->pick(x, ids, y, k->n);
    else if (size == 1)
        GATHER(uint8_t);
    else if (size == 2)
        GATHER(uint16_t);
    else if (size == 4)
        GATHER(uint32_t);
    else
        GATHER(uint64_t);
}

static void gather_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const lines *k = (const lines *)f;
    const size_t size = tsr_dtype_size(k->desc.out[0].dtype);
    const bool whole = k->first == 0 && k->len == k->size;
    bool all_good = true;
    uint64_t none;
    tsri_fill_identity(k->desc.out[0].dtype, TSR_REDUCE_SUM, 1, &none);
    for (int64_t line = p->begin; line < p->end; line++) {
        const int64_t *ids = (const int64_t *)p->in[1] + line * k->n;
        const bool good = whole && f->isa->most_id(ids, k->n) < (uint64_t)k->len;
        all_good = all_good && good;
        gather_line(k, size, good, (const char *)p->in[0] + line * k->len * (int64_t)size, ids,
                    &none, (char *)p->out[0] + line * k->n * (int64_t)size);
    }
    *missed(p->scratch, p->index) = !all_good;
}

static void sum_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const lines *k = (const lines *)f;
    char *room = (char *)p->scratch + (size_t)f->threads * LINE;
    double *sums = (double *)(void *)room + p->index * (k->len + LINE / (int64_t)sizeof(double));
    bool all_good = true;
    for (int64_t line = p->begin; line < p->end; line++) {
        const int64_t *ids = (const int64_t *)p->in[0] + line * k->n;
        const uint64_t most =
            f->isa->sum_places((const float *)p->in[1] + line * k->n, ids, k->n, k->first, k->len,
                               sums, (float *)p->out[0] + line * k->len);
        all_good = all_good && most < (uint64_t)k->size;
    }
    *missed(p->scratch, p->index) = !all_good;
}

/* Looks for the bad id, if there is one, only where a part has met one that it did not know. */
static tsr_status lines_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                            void *scratch)
{
    const lines *k = (const lines *)kernel;
    const int operand = k->desc.op == TSRI_OP_GATHER;
    const tsri_arg *a = &k->desc.in[operand];
    const int64_t *ids = in[operand], count = tsri_arg_count(a);
    bool all_good = true;
    TSRI_TRY(tsri_fast_run(kernel, in, out, scratch));
    for (int i = 0; i < k->base.threads; i++)
        all_good = all_good && !*missed(scratch, i);
    for (int64_t i = 0; i < count && !all_good; i++)
        TSRI_TRY(tsri_check_id(&k->desc, a, i, ids[i], k->size));
    return TSR_OK;
}

tsr_status tsri_fast_lines(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_GATHER_DX;
    const tsri_arg *x = dx ? &desc->out[0] : &desc->in[0], *ids = &desc->in[!dx];
    const tsri_arg *y = dx ? &desc->in[1] : &desc->out[0];
    const int axis = desc->attrs->gather.axis;
    if (ids->dtype != TSR_I64 || x->dtype != y->dtype || (dx && x->dtype != TSR_F32) ||
        !tsri_fast_is_full(desc) || tsri_arg_count_of(x, axis + 1, x->ndim) != 1)
        return tsri_fast_decline(desc);
    const int64_t count = tsri_arg_count_of(x, 0, axis);
    lines *k = tsri_fast_make(mem, desc, dx ? sum_part : gather_part, sizeof *k,
                              tsri_arg_count(x) + tsri_arg_count(y), count);
    TSRI_NEED(k);
    k->base.base.run = lines_run;
    k->desc = *desc;
    k->desc.attrs = NULL; /* the caller's */
    k->n = y->shape[axis];
    k->first = x->offset[axis];
    k->len = x->shape[axis];
    k->size = x->gshape[axis];
    const size_t sums = dx ? (size_t)k->len * sizeof(double) + LINE : 0;
    k->base.base.scratch_bytes = (size_t)k->base.threads * (LINE + sums);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
