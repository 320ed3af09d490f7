/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers' updates of rows of one float type: see ref_optim.c, which includes this file once for
 * each, with what kernels/update_t.h asks for. */
#include "kernels/update_t.h"

/* The walk is over the operands but hyper, in their order; results are in place. */
typedef void UPDATE(fn)(const REAL *c, REAL *p, REAL *s, int has, REAL g);
static void UPDATE(row)(const tsri_ref_job *j, const tsri_ref_row *r, UPDATE(fn) * update)
{
    const tsri_kernel_desc *d = &j->ref->desc;
    const int has = j->ref->attrs.update.has, og = d->nin - 2;
    const double *hyper = j->in[d->nin - 1];
    REAL c[TSRI_HYPER_COUNT];
    for (int i = 0; i < TSRI_HYPER_COUNT; i++)
        c[i] = (REAL)hyper[i];
    for (int64_t i = 0; i < r->n && hyper[TSRI_HYPER_SKIP] == 0; i++) {
        REAL *p = (REAL *)j->out[0] + r->off[0] + i * r->step[0];
        REAL *at[TSRI_UPDATE_STATES], s[TSRI_UPDATE_STATES] = {0};
        for (int k = 0, o = 1; k < TSRI_UPDATE_STATES; k++)
            if (has >> k & 1) {
                at[k] = (REAL *)j->out[o] + r->off[o] + i * r->step[o];
                s[k] = *at[k];
                o++;
            }
        REAL g = ((const REAL *)j->in[og])[r->off[og] + i * r->step[og]], value = *p;
        g = UPDATE(begin)(c, &value, g);
        update(c, &value, s, has, g);
        *p = value;
        for (int k = 0; k < TSRI_UPDATE_STATES; k++)
            if (has >> k & 1)
                *at[k] = s[k];
    }
}

#define ROW(KIND, name, ...)                                         \
    static void UPDATE(name##_row)(void *arg, const tsri_ref_row *r) \
    {                                                                \
        UPDATE(row)(arg, r, UPDATE(name));                           \
    }
TSRI_UPDATE_LIST(ROW)
#undef ROW
