/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers' updates, in place, computed in the parameter's dtype as torch.optim does. */
#include "kernels/cpu/ref/ref.h"

#include <math.h>

#define REAL_FN static
#define num(c) (c)
#define mad(a, b, c) ((a) * (b) + (c))
#define sign(x) ((x) > 0 ? 1 : (x) < 0 ? -1 : (x))

#define REAL float
#define SCALAR float
#define UPDATE(name) name##_f32
#define root(x) sqrtf(x)
#include "kernels/cpu/ref/ref_optim_t.h"
#undef REAL
#undef SCALAR
#undef UPDATE
#undef root
#define REAL double
#define SCALAR double
#define UPDATE(name) name##_f64
#define root(x) sqrt(x)
#include "kernels/cpu/ref/ref_optim_t.h"

tsr_status tsri_ref_sgd(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
#define ROWS(KIND, name, ...) [TSRI_OP_##KIND] = {name##_row_f32, name##_row_f64},
    static tsri_ref_row_fn *const row[][2] = {TSRI_UPDATE_LIST(ROWS)};
#undef ROWS
    const int nops = d->nin - 1;
    if (!tsri_ref_is_float(d->out[0].dtype) || d->in[nops].dtype != TSR_F64 ||
        !tsri_ref_alike(d, 0, nops))
        return tsri_ref_decline(d);
    const int64_t *stride[TSRI_REF_OPS];
    for (int i = 0; i < nops; i++)
        stride[i] = d->in[i].stride;
    return tsri_ref_create_rows(mem, d, row[d->op][d->out[0].dtype == TSR_F64], nops, stride,
                                out_kernel);
}
TSRI_REF_SAME(adam, sgd);
TSRI_REF_SAME(rmsprop, sgd);
TSRI_REF_SAME(adagrad, sgd);
TSRI_REF_SAME(lion, sgd);
