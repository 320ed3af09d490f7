/* SPDX-License-Identifier: Apache-2.0 */
/* Order, memory and arithmetic of a side's stream. */
#include "src/comm/collective/side.h"

/* --- order ------------------------------------------------------------------------------------ */

tsr_status tsri_side_follow(tsri_side *s)
{
    const tsri_device_ops *ops = s->device->ops;
    TSRI_TRY(ops->event_record(s->device, s->compute, s->device->stream));
    return ops->event_wait(s->device, s->stream, s->compute);
}

tsr_status tsri_side_lead(tsri_side *s)
{
    const tsri_device_ops *ops = s->device->ops;
    TSRI_TRY(ops->event_record(s->device, s->side, s->stream));
    return ops->event_wait(s->device, s->device->stream, s->side);
}

/* --- memory ----------------------------------------------------------------------------------- */

typedef struct tsri_side_block {
    struct tsri_side_block *next;
    void *p;
    size_t bytes;
    bool in_use;
} tsri_side_block;

/* Blocks have as many bytes as a power of two, so that few sizes serve all calls. They stay the
 * side's: the device's other users would have to wait for the side's stream, and so for peers. */
static size_t round_up(size_t bytes)
{
    size_t all = 4096;
    while (all < bytes)
        all *= 2;
    return all;
}

tsr_status tsri_side_take(tsri_side *s, size_t bytes, tsri_scratch *out)
{
    tsri_device *d = s->device;
    size_t all = round_up(bytes);
    tsri_side_block *b = s->blocks;
    while (b && (b->in_use || b->bytes != all))
        b = b->next;
    if (!b) {
        b = tsri_mem_alloc(&d->world->mem, sizeof *b);
        TSRI_NEED(b);
        tsr_status status = d->ops->buffer_alloc(d, all, &b->p);
        if (status != TSR_OK) {
            tsri_mem_free(b);
            return tsri_fail_prefix(status, "memory of a collective");
        }
        b->bytes = all;
        b->next = s->blocks;
        s->blocks = b;
    }
    b->in_use = true;
    *out = (tsri_scratch){b->p, bytes, s};
    return TSR_OK;
}

void tsri_side_give(tsri_scratch *scratch)
{
    for (tsri_side_block *b = scratch->side->blocks; b; b = b->next)
        if (b->p == scratch->p)
            b->in_use = false;
    *scratch = (tsri_scratch){0};
}

void tsri_side_free_blocks(tsri_side *s)
{
    while (s->blocks) {
        tsri_side_block *next = s->blocks->next;
        s->device->ops->buffer_free(s->device, s->blocks->p, s->blocks->bytes);
        tsri_mem_free(s->blocks);
        s->blocks = next;
    }
}

tsr_status tsri_side_move(tsri_device *d, void *dst, const void *src, size_t bytes,
                          tsri_stream *stream)
{
    const tsri_move m = tsri_move_flat(TSR_U8, TSR_REDUCE_SUM, (int64_t)bytes, 1, &src, dst);
    return bytes ? d->ops->move(d, &m, stream) : TSR_OK;
}

tsr_status tsri_side_copy(tsri_side *s, void *dst, const void *src, size_t bytes)
{
    return tsri_side_move(s->device, dst, src, bytes, s->stream);
}

/* --- arithmetic ------------------------------------------------------------------------------- */

static tsr_status make_kernel(tsri_side *s, tsri_op_kind op, const tsri_attrs *attrs, int64_t count,
                              tsr_dtype from, tsr_dtype to, tsri_kernel **out_kernel)
{
    const tsri_arg in = {
        .dtype = from, .ndim = 1, .shape = {count}, .stride = {1}, .gshape = {count}};
    tsri_arg out = in;
    out.dtype = to;
    const tsri_kernel_desc desc = {.op = op,
                                   .attrs = attrs,
                                   .nin = 1,
                                   .nout = 1,
                                   .in = {in},
                                   .out = {out},
                                   .stream = s->stream};
    return tsri_kernel_create(&s->device->world->mem, s->device->ops->kernels(), &desc, out_kernel);
}

tsr_status tsri_side_make_scale(tsri_side *s, tsr_dtype dtype, int64_t count, double factor,
                                tsri_kernel **out_kernel)
{
    const tsri_attrs attrs = {.scale = {.a = factor}};
    return make_kernel(s, TSRI_OP_SCALE, &attrs, count, dtype, dtype, out_kernel);
}

tsr_status tsri_side_make_cast(tsri_side *s, tsr_dtype from, tsr_dtype to, int64_t count,
                               tsri_kernel **out_kernel)
{
    const tsri_attrs none = {0};
    return make_kernel(s, TSRI_OP_CAST, &none, count, from, to, out_kernel);
}

tsr_status tsri_side_run(tsri_side *s, const tsri_kernel *k, void *in, void *out)
{
    tsri_scratch scratch = {0};
    if (k->scratch_bytes) {
        TSRI_TRY(tsri_side_take(s, k->scratch_bytes, &scratch));
        TSRI_TRY(tsri_side_follow(s)); /* a new block is cleared in the stream of compute */
    }
    tsr_status status = k->run(k, (void *[]){in}, (void *[]){out}, scratch.p);
    if (scratch.p)
        tsri_side_give(&scratch);
    return status;
}

/* As tsri_scale_by_ranks has it, where f16 and bf16 are multiplied in f32. */
tsr_status tsri_side_scale(tsri_side *s, tsr_dtype dtype, int64_t count, int nranks, void *dst,
                           const void *src, tsri_kernel **out_kernel)
{
    const double factor = dtype == TSR_F64 ? 1.0 / nranks : (double)(1 / (float)nranks);
    TSRI_TRY(tsri_side_make_scale(s, dtype, count, factor, out_kernel));
    return tsri_side_run(s, *out_kernel, (void *)(uintptr_t)src, dst);
}
