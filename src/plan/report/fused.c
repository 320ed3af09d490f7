/* SPDX-License-Identifier: Apache-2.0 */
/* The list of what a plan fuses, and why the rest of what could be fused stands alone. */
#include <string.h>

#include "src/plan/pass/pass.h"
#include "src/plan/report/report.h"

typedef struct listing {
    const tsr_plan *plan;
    const tsri_item **maker; /* per value: the kernel that makes it; NULL */
    bool (*add)(void *arg, const tsri_report_fused *line);
    void *arg;
    bool ok;
} listing;

static void add(listing *l, const char *how, const tsri_item *it, const char *text)
{
    const tsri_report_fused line = {how, it->name, text};
    l->ok = l->ok && l->add(l->arg, &line);
}

static bool is_op(const tsri_item *it, tsri_op_kind op)
{
    return it && it->kind == TSRI_ITEM_KERNEL && it->kernel.op == op;
}

static bool is_relu(const tsri_item *it)
{
    return is_op(it, TSRI_OP_UNARY) && it->kernel.attrs.unary.fn == TSRI_UNARY_RELU &&
           tsri_placement_can(it->placement, TSRI_CAN_ROW_KERNELS);
}

static bool is_product(const tsr_plan *plan, const tsri_item *it)
{
    const tsri_chain_role role = tsri_chain_role_of(&plan->ir, it);
    return role == TSRI_CHAIN_PRODUCT || role == TSRI_CHAIN_OUTER;
}

/* --- chains ----------------------------------------------------------------------------------- */
/* Lists the ops of items [begin, end), under the name of their first product, if there is one. */
static void add_chain(listing *l, int begin, int end)
{
    char text[TSRI_CHAIN_MAX * 40];
    size_t used = 0;
    const tsri_item *named = NULL;
    for (int i = begin; i < end; i++) {
        const tsri_item *it = &l->plan->ir.items[i];
        if (!named && is_product(l->plan, it))
            named = it;
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%s%.28s%s", i > begin ? ", " : "",
            tsri_op_word(it->kernel.op, &it->kernel.attrs), it->kernel.again ? " (again)" : "");
    }
    add(l, named ? "chain" : "rows", named ? named : &l->plan->ir.items[begin], text);
}

/* Tells why a product is in no chain; NULL: it could be in none, or is no product. */
static const char *alone(const tsr_plan *plan, const tsri_item *it)
{
    const tsri_op_def *def = tsri_op_def_of(it->kernel.op);
    if ((def->chain != TSRI_CHAIN_PRODUCT && def->chain != TSRI_CHAIN_OUTER) ||
        !tsri_placement_can(it->placement, TSRI_CAN_ROW_KERNELS))
        return NULL;
    if (!tsri_plan_fuses(&plan->ir, TSR_FUSE_CHAINS))
        return "chains are switched off";
    if (def->may_chain && !def->may_chain(&it->kernel.attrs))
        return "a row of its result is of several rows of its operand";
    if (!is_product(plan, it))
        return "its operands are not rows of f32, f64 or bf16, or images not channels last";
    return "nothing beside it can go by its rows";
}

/* --- others ----------------------------------------------------------------------------------- */
static const char *joined(const tsri_item *it)
{
    switch (it->kernel.op) {
    case TSRI_OP_BN_ACT:
        return "bn_apply with its activation";
    case TSRI_OP_BN_ACT_BWD_STATS:
        return "the activation's gradient with bn_bwd_stats";
    case TSRI_OP_BN_ACT_BWD_APPLY:
        return "the activation's gradient with bn_bwd_apply";
    case TSRI_OP_SOFTMAX:
        return "softmax_max, softmax_sum and softmax_finish";
    case TSRI_OP_SOFTMAX_DX:
        return "softmax_dot and softmax_bwd";
    case TSRI_OP_CE:
        return "softmax_max, ce_terms and ce_finish";
    case TSRI_OP_LN_APPLY:
        return it->nout > 1 ? "ln_stats and ln_apply" : NULL;
    case TSRI_OP_LN_BWD_APPLY: /* x, statistics, gamma where there is one, dy: no sums */
        return it->nout > 1 ? "ln_bwd_stats, ln_bwd_apply and ln_param_grad"
               : it->nin == 3 + it->kernel.attrs.ln.has_gamma ? "ln_bwd_stats and ln_bwd_apply"
                                                              : NULL;
    case TSRI_OP_UNARY:
        return it->kernel.is_moved ? "relu goes behind max_pool" : NULL;
    case TSRI_OP_UNARY_GRAD:
        return it->kernel.is_moved ? "the gradient of relu goes before max_pool_dx" : NULL;
    default:
        return NULL;
    }
}

static const char *apart(const listing *l, const tsri_item *it)
{
    const tsri_op_kind op = it->kernel.op;
    const bool parts =
        op == TSRI_OP_SOFTMAX_FINISH || op == TSRI_OP_SOFTMAX_BWD || op == TSRI_OP_CE_FINISH;
    if (parts)
        return tsri_plan_fuses(&l->plan->ir, TSR_FUSE_SOFTMAX)
                   ? "a conversion stands between its parts, or others read one of them"
                   : "fusion of softmax is switched off";
    if (op == TSRI_OP_MAX_POOL && is_relu(l->maker[it->in[0]]))
        return tsri_plan_fuses(&l->plan->ir, TSR_FUSE_POOLS)
                   ? "others read what relu gives it, or its gradient"
                   : "fusion of pools is switched off";
    if (op != TSRI_OP_UNARY || !is_op(l->maker[it->in[0]], TSRI_OP_BN_APPLY))
        return NULL;
    if (it->kernel.attrs.unary.fn != TSRI_UNARY_RELU &&
        it->kernel.attrs.unary.fn != TSRI_UNARY_RELU6)
        return "batch norm is fused with relu and relu6 alone";
    return tsri_plan_fuses(&l->plan->ir, TSR_FUSE_ACTIVATIONS)
               ? "others read what batch norm gives it"
               : "fusion of activations is switched off";
}

tsr_status tsri_report_fusions(const tsr_plan *plan,
                               bool (*each)(void *arg, const tsri_report_fused *line), void *arg)
{
    listing l = {.plan = plan, .add = each, .arg = arg, .ok = true};
    l.maker =
        tsri_mem_alloc(&plan->ir.world->mem, ((size_t)plan->ir.nvalues + 1) * sizeof *l.maker);
    TSRI_NEED(l.maker);
    for (int i = 0, end; i < plan->ir.nitems; i = end) {
        const tsri_item *it = &plan->ir.items[i];
        end = tsri_chain_end(&plan->ir, i);
        for (int m = i; m < end; m++)
            for (int j = 0; j < plan->ir.items[m].nout && it->kind == TSRI_ITEM_KERNEL; j++)
                l.maker[plan->ir.items[m].out[j]] = &plan->ir.items[m];
        if (end > i + 1)
            add_chain(&l, i, end);
        for (int m = i; m < end; m++) {
            const tsri_item *one = &plan->ir.items[m];
            if (one->kind != TSRI_ITEM_KERNEL || one->kernel.again)
                continue;
            const char *ops = joined(one), *why = apart(&l, one);
            if (ops)
                add(&l, "fused", one, ops);
            if (!why && end == i + 1)
                why = alone(plan, one);
            if (why)
                add(&l, "alone", one, why);
        }
    }
    tsri_mem_free(l.maker);
    return l.ok ? TSR_OK : TSR_ERR_NO_MEMORY;
}
