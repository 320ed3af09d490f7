/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a part in time, taken from the whole tensor or written into it. */
#include "kernels/cpu/ref/ref.h"
#include "kernels/part.h"

typedef struct part {
    tsri_ref ref; /* its walk: a box of the result and of the operand */
    tsri_part_box box;
} part;

/* The number of the part is read here: it changes from run to run. */
static tsr_status part_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const part *v = (const part *)k;
    const tsri_part_box *b = &v->box;
    const bool takes = v->ref.desc.op == TSRI_OP_PART;
    const int64_t size = (int64_t)tsr_dtype_size(v->ref.desc.out[0].dtype);
    const int64_t m = *(const int64_t *)in[1];
    TSRI_TRY(tsri_part_check(v->ref.desc.op, v->ref.attrs.part.parts, m));
    if (!v->ref.iter.count)
        return TSR_OK;
    for (int64_t i = 0; i < b->boxes; i++) {
        const int64_t row = i * b->part_step, whole = i * b->whole_step + m * b->shift;
        tsri_ref_moved moved = {(size_t)size, (char *)out[0] + (takes ? row : whole) * size,
                                (const char *)in[0] + (takes ? whole : row) * size};
        tsri_ref_iter_run(&v->ref.iter, tsri_ref_move_row, &moved, true);
    }
    return TSR_OK;
}

tsr_status tsri_ref_part(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_ref_alike(d, 0, 1) || d->in[1].dtype != TSR_I64)
        return tsri_ref_decline(d);
    part *v = tsri_ref_make(mem, d, part_run, sizeof *v);
    TSRI_NEED(v);
    const tsri_part_box b = v->box = tsri_part_box_of(d);
    const bool takes = d->op == TSRI_OP_PART;
    tsri_ref_walk(&v->ref.iter, b.ndim, b.shape, 2,
                  (const int64_t *[]){takes ? b.part : b.whole, takes ? b.whole : b.part});
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(whole, part);
