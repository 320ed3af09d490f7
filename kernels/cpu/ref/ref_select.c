/* SPDX-License-Identifier: Apache-2.0 */
/* Selection by a condition: elements are moved by their size. */
#include "kernels/cpu/ref/ref.h"

typedef struct job {
    const tsri_ref *ref;
    void *const *in;
    void *out;
} job;

#define WHERE(T)                                                                                 \
    do {                                                                                         \
        const T *x = (const T *)j->in[1] + r->off[2], *u = (const T *)j->in[2] + r->off[3];      \
        T *y = (T *)j->out + r->off[0];                                                          \
        if (sc == 1 && sx == 1 && su == 1 && sy == 1) {                                          \
            _Pragma("omp simd") for (int64_t i = 0; i < r->n; i++) y[i] = cond[i] ? x[i] : u[i]; \
        } else {                                                                                 \
            for (int64_t i = 0; i < r->n; i++)                                                   \
                y[i * sy] = cond[i * sc] ? x[i * sx] : u[i * su];                                \
        }                                                                                        \
    } while (0)

#define MASK(T)                                                           \
    do {                                                                  \
        const T *x = (const T *)j->in[1] + r->off[2];                     \
        T *y = (T *)j->out + r->off[0];                                   \
        if (sc == 1 && sx == 1 && sy == 1) {                              \
            _Pragma("omp simd") for (int64_t i = 0; i < r->n; i++) y[i] = \
                (cond[i] != 0) == keep ? x[i] : 0;                        \
        } else {                                                          \
            for (int64_t i = 0; i < r->n; i++)                            \
                y[i * sy] = (cond[i * sc] != 0) == keep ? x[i * sx] : 0;  \
        }                                                                 \
    } while (0)

#define BY_SIZE(MOVE)                                    \
    switch (tsr_dtype_size(j->ref->desc.out[0].dtype)) { \
    case 1:                                              \
        MOVE(uint8_t);                                   \
        break;                                           \
    case 2:                                              \
        MOVE(uint16_t);                                  \
        break;                                           \
    case 4:                                              \
        MOVE(uint32_t);                                  \
        break;                                           \
    default:                                             \
        MOVE(uint64_t);                                  \
    }

static void where_row(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    const uint8_t *cond = (const uint8_t *)j->in[0] + r->off[1];
    const int64_t sc = r->step[1], sx = r->step[2], su = r->step[3], sy = r->step[0];
    BY_SIZE(WHERE)
}

static void mask_row(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    const bool keep = j->ref->attrs.mask.keep != 0;
    const uint8_t *cond = (const uint8_t *)j->in[0] + r->off[1];
    const int64_t sc = r->step[1], sx = r->step[2], sy = r->step[0];
    BY_SIZE(MASK)
}

static tsr_status select_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    job j = {ref, in, out[0]};
    tsri_ref_iter_run(&ref->iter, ref->desc.op == TSRI_OP_MASK ? mask_row : where_row, &j, true);
    return TSR_OK;
}

tsr_status tsri_ref_where(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    bool alike = d->in[0].dtype == TSR_BOOL;
    for (int i = 1; i < d->nin; i++)
        alike &= d->in[i].dtype == d->out[0].dtype;
    if (!alike)
        return tsri_ref_decline(d);
    return tsri_ref_create_map(mem, d, select_run, out_kernel);
}

tsr_status tsri_ref_mask(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_ref_where(mem, d, out_kernel);
}
