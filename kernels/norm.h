/* SPDX-License-Identifier: Apache-2.0 */
/* The operands of batch norm's and layer norm's parts, and the virtual batches of batch norm. */
#ifndef TESSERA_KERNELS_NORM_H
#define TESSERA_KERNELS_NORM_H

#include "kernels/kernels.h"

/* Operands behind x, which is the first; 0: the op has none. bstats: the gradient's sums. */
typedef struct tsri_norm_roles {
    int stats, gamma, beta, dy, bstats;
} tsri_norm_roles;

static inline tsri_norm_roles tsri_bn_roles(tsri_op_kind op)
{
    static const tsri_norm_roles roles[TSRI_OP_COUNT_] = {
        [TSRI_OP_BN_CENTER] = {.stats = 1},
        [TSRI_OP_BN_APPLY] = {.stats = 1, .gamma = 2, .beta = 3},
        [TSRI_OP_BN_ACT] = {.stats = 1, .gamma = 2, .beta = 3},
        [TSRI_OP_BN_BWD_STATS] = {.stats = 1, .dy = 2},
        [TSRI_OP_BN_ACT_BWD_STATS] = {.stats = 1, .gamma = 2, .beta = 3, .dy = 4},
        [TSRI_OP_BN_BWD_APPLY] = {.stats = 1, .gamma = 2, .dy = 3, .bstats = 4},
        [TSRI_OP_BN_ACT_BWD_APPLY] = {.stats = 1, .gamma = 2, .beta = 3, .dy = 4, .bstats = 5},
    };
    return roles[op];
}

/* Whether batch norm is fused with an activation. */
static inline bool tsri_bn_has_act(const tsri_kernel_desc *d)
{
    return (d->op == TSRI_OP_BN_ACT || d->op == TSRI_OP_BN_ACT_BWD_STATS ||
            d->op == TSRI_OP_BN_ACT_BWD_APPLY) &&
           d->attrs->bn.act != TSRI_ACT_NONE;
}

/* The first sample of virtual batch r: the batch is cut in balanced parts, of which the earlier
 * ones take one more. */
static inline int64_t tsri_bn_begin(const tsri_attrs *at, int64_t r)
{
    const int64_t more = at->bn.batch % at->bn.parts;
    return r * (at->bn.batch / at->bn.parts) + (r < more ? r : more);
}

/* Elements per channel of virtual batch r. */
static inline double tsri_bn_count(const tsri_attrs *at, int64_t r)
{
    return (double)(tsri_bn_begin(at, r + 1) - tsri_bn_begin(at, r)) * (double)at->bn.spatial;
}

/* On GPUs, where rows are whole, lowering joins the parts of layer norm: an LN_APPLY with two
 * results is (x, gamma?, beta?) -> y, stats; an LN_BWD_APPLY without bstats makes these sums, and
 * with three results is (x, stats, gamma?, dy) -> dx, dgamma, dbeta. Kernels on CPUs, for which the
 * roles below are, meet none of these. */
static inline tsri_norm_roles tsri_ln_roles(const tsri_kernel_desc *d)
{
    const bool apply = d->op == TSRI_OP_LN_APPLY, bwd_apply = d->op == TSRI_OP_LN_BWD_APPLY;
    const bool backward = bwd_apply || d->op == TSRI_OP_LN_BWD_STATS;
    const int scaled = d->attrs->ln.has_gamma && (apply || backward);
    return (tsri_norm_roles){
        .stats = d->op != TSRI_OP_LN_STATS,
        .gamma = scaled ? 2 : 0,
        .beta = apply && d->attrs->ln.has_beta ? d->nin - 1 : 0,
        .dy = backward || d->op == TSRI_OP_LN_PARAM_GRAD ? 2 + scaled : 0,
        .bstats = bwd_apply ? 3 + scaled : 0,
    };
}

#endif
