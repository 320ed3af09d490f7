/* SPDX-License-Identifier: Apache-2.0 */
/* The causal mask: row i of the last two axes keeps its columns up to i + diagonal, by their places
 * in the global tensor. */
#include "kernels/cpu/ref/ref.h"

/* Ops 2 and 3 of the walk count rows and columns. */
static void mask_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const tsri_arg *x = &j->ref->desc.in[0], *y = &j->ref->desc.out[0];
    const double value = j->ref->attrs.mask_above.value;
    /* Columns beyond rows by more than this are masked. */
    const int64_t most =
        j->ref->attrs.mask_above.diagonal + x->offset[x->ndim - 2] - x->offset[x->ndim - 1];
    for (int64_t i = 0; i < r->n; i++) {
        int64_t row = r->off[2] + i * r->step[2], col = r->off[3] + i * r->step[3];
        double v = tsri_ref_load(x->dtype, j->in[0], r->off[1] + i * r->step[1]);
        tsri_ref_store(y->dtype, j->out[0], r->off[0] + i * r->step[0],
                       col - row <= most ? v : value);
    }
}

tsr_status tsri_ref_causal_mask(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    if (!tsri_ref_is_float(x->dtype) || y->dtype != x->dtype)
        return tsri_ref_decline(d);
    int64_t row[TSR_MAX_NDIM] = {0}, col[TSR_MAX_NDIM] = {0};
    row[x->ndim - 2] = 1;
    col[x->ndim - 1] = 1;
    return tsri_ref_create_rows(mem, d, mask_row, 4,
                                (const int64_t *[]){y->stride, x->stride, row, col}, out_kernel);
}
