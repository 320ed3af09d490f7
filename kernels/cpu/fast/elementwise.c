/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops whose operands have one shape and one order of elements, walked flat; broadcasts
 * in runs. */
#include "kernels/cpu/fast/fast.h"
#include "kernels/cpu/ref/ref.h"

#include <math.h>

enum { UNIT = 64 }; /* elements: threads never share a cache line */

typedef struct flat {
    tsri_fast base;
    tsri_fast_map_fn *map;
    int nin;
    float a, b;
} flat;

/* More than two operands (add_n) join the result one by one. */
static void flat_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const flat *k = (const flat *)f;
    tsri_fast_map map = {.out = p->out[0], .a = k->a, .b = k->b};
    map.x = k->nin > 0 ? p->in[0] : NULL;
    map.y = k->nin > 1 ? p->in[1] : NULL;
    k->map(&map, p->begin, p->end);
    for (int i = 2; i < k->nin; i++) {
        map.x = map.out;
        map.y = p->in[i];
        k->map(&map, p->begin, p->end);
    }
}

static bool takes(const tsri_kernel_desc *desc)
{
    if (!tsri_fast_is_f32(desc) || !tsri_arg_count(&desc->out[0]))
        return false;
    for (int i = 0; i < desc->nin; i++)
        if (!tsri_fast_alike(&desc->in[i], &desc->out[0]))
            return false;
    return true;
}

/* map NULL: declines. */
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_fast_map_fn *map,
                         double a, double b, tsri_kernel **out_kernel)
{
    if (!map || !takes(desc))
        return tsri_fast_decline(desc);
    int64_t count = tsri_arg_count(&desc->out[0]);
    flat *k = tsri_fast_make(mem, desc, flat_part, sizeof *k, count, count);
    TSRI_NEED(k);
    k->base.unit = UNIT;
    k->map = map;
    k->nin = desc->nin;
    k->a = (float)a;
    k->b = (float)b;
    if (desc->nin)
        tsri_fast_walks(&k->base, (1u << desc->nin) - 1, 1, false);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_unary(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const unsigned fn = (unsigned)desc->attrs->unary.fn;
    const tsri_fast_isa *isa = tsri_fast_isa_best();
    const bool gradient = desc->op != TSRI_OP_UNARY;
    const double a = desc->attrs->unary.a;
    double b = desc->attrs->unary.b;
    if (fn >= TSRI_UNARY_COUNT_)
        return tsri_fast_decline(desc);
    if (fn == TSRI_UNARY_POW) {
        if (!(fabs(a) < 0x1p23)) /* the nearest float may be even where a is odd */
            return tsri_fast_decline(desc);
        b = gradient ? a - 1 - (double)((float)a - 1.0f) : a - (double)(float)a;
    }
    tsri_fast_map_fn *map = (gradient ? isa->unary_grad : isa->unary)[fn];
    if (fn == TSRI_UNARY_POW && !gradient && b == 0)
        map = isa->few_power;
    return create(mem, desc, map, a, b, out_kernel);
}

tsr_status tsri_fast_scale(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    return create(mem, desc, tsri_fast_isa_best()->scale, desc->attrs->scale.a, 0, out_kernel);
}

typedef struct broadcast {
    tsri_ref ref;
    tsri_fast_map_fn *map;     /* of floats, */
    tsri_fast_pair_fn *pair;   /* or of any dtype, */
    tsri_fast_where_fn *where; /* or by a condition, operand 0 */
    int64_t size, out_size;    /* of an operand's element, and of the result's */
    bool swap;                 /* a mask that keeps where the condition does not hold */
} broadcast;

/* A run in which one operand may be a single number. */
static void broadcast_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const tsri_fast_map map = {.x = (const float *)j->in[0] + r->off[1],
                               .y = (const float *)j->in[1] + r->off[2],
                               .out = (float *)j->out[0] + r->off[0],
                               .fixed_x = r->step[1] == 0,
                               .fixed_y = r->step[2] == 0};
    ((const broadcast *)j->ref)->map(&map, 0, r->n);
}

static void pair_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const broadcast *k = (const broadcast *)j->ref;
    k->pair((const char *)j->in[0] + r->off[1] * k->size,
            (const char *)j->in[1] + r->off[2] * k->size, r->step[1] == 0, r->step[2] == 0,
            (char *)j->out[0] + r->off[0] * k->out_size, r->n);
}

static void where_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const broadcast *k = (const broadcast *)j->ref;
    k->where((const uint8_t *)j->in[0] + r->off[1], (const char *)j->in[1] + r->off[2] * k->size,
             (const char *)j->in[2] + r->off[3] * k->size, r->step[2] == 0, r->step[3] == 0,
             (char *)j->out[0] + r->off[0] * k->size, r->n);
}

/* A mask's second choice is zero. */
static void mask_row(void *arg, const tsri_ref_row *r)
{
    static const uint64_t zero = 0;
    const tsri_ref_job *j = arg;
    const broadcast *k = (const broadcast *)j->ref;
    const uint8_t *c = (const uint8_t *)j->in[0] + r->off[1];
    const void *x = (const char *)j->in[1] + r->off[2] * k->size;
    k->where(c, k->swap ? &zero : x, k->swap ? x : &zero, k->swap || r->step[2] == 0,
             !k->swap || r->step[2] == 0, (char *)j->out[0] + r->off[0] * k->size, r->n);
}

/* Makes a kernel of `like`, whose runs are dense, or one number in operands from `first` on. */
static tsr_status create_broadcast(tsri_mem *mem, const tsri_kernel_desc *desc, int first,
                                   const broadcast *like, tsri_ref_row_fn *row,
                                   tsri_kernel **out_kernel)
{
    tsri_ref_iter it;
    tsri_ref_walk_map(&it, desc);
    for (int o = 0; o < it.nops; o++) {
        const int64_t step = it.stride[o][it.ndim - 1];
        if (!it.count || (step != 1 && (o <= first || step != 0)))
            return tsri_fast_decline(desc);
    }
    broadcast *k = tsri_ref_make_rows(mem, desc, row, sizeof *k);
    TSRI_NEED(k);
    k->ref.iter = it;
    k->ref.base.impl = tsri_fast_isa_best()->impl;
    k->map = like->map;
    k->pair = like->pair;
    k->where = like->where;
    k->swap = like->swap;
    k->size = (int64_t)tsr_dtype_size(desc->in[desc->nin - 1].dtype);
    k->out_size = (int64_t)tsr_dtype_size(desc->out[0].dtype);
    *out_kernel = &k->ref.base;
    return TSR_OK;
}

tsr_status tsri_fast_binary(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_fast_isa *isa = tsri_fast_isa_best();
    const unsigned fn = (unsigned)desc->attrs->binary.fn;
    const tsr_dtype x = desc->in[0].dtype, y = desc->out[0].dtype;
    if (fn >= TSRI_BINARY_COUNT_)
        return tsri_fast_decline(desc);
    broadcast like = {.map = isa->binary[fn]};
    if (x == desc->in[1].dtype)
        like.pair = y == TSR_BOOL ? isa->compare[fn][x] : y == x ? isa->whole[fn][x] : NULL;
    if (like.pair)
        return create_broadcast(mem, desc, 0, &like, pair_row, out_kernel);
    if (like.map && desc->threads && tsri_fast_is_f32(desc) && !takes(desc))
        return tsri_fast_spread(mem, desc, like.map, out_kernel);
    if (like.map && tsri_fast_is_f32(desc) && !takes(desc))
        return create_broadcast(mem, desc, 0, &like, broadcast_row, out_kernel);
    return create(mem, desc, like.map, 0, 0, out_kernel);
}

/* Moves elements by their size: of two operands by a condition, or of one where it keeps it. */
tsr_status tsri_fast_where(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const bool mask = desc->op == TSRI_OP_MASK;
    const size_t size = tsr_dtype_size(desc->out[0].dtype);
    bool takes = desc->in[0].dtype == TSR_BOOL && size <= 8;
    for (int i = 1; i < desc->nin; i++)
        takes = takes && desc->in[i].dtype == desc->out[0].dtype;
    if (!takes)
        return tsri_fast_decline(desc);
    const broadcast like = {.where = tsri_fast_isa_best()->where[size == 8   ? 3
                                                                 : size == 4 ? 2
                                                                             : size - 1],
                            .swap = mask && !desc->attrs->mask.keep};
    return create_broadcast(mem, desc, 1, &like, mask ? mask_row : where_row, out_kernel);
}

tsr_status tsri_fast_add_n(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    if (desc->nin < 2)
        return tsri_fast_decline(desc);
    return create(mem, desc, tsri_fast_isa_best()->binary[TSRI_BINARY_ADD], 0, 0, out_kernel);
}

tsr_status tsri_fast_fill(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    return create(mem, desc, tsri_fast_isa_best()->fill, desc->attrs->fill.value, 0, out_kernel);
}
