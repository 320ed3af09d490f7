/* SPDX-License-Identifier: Apache-2.0 */
/* The class of an op, which decides its list of signatures, and the costs of its work. */
#include <string.h>

#include "src/plan/infer/strategies.h"
#include "src/plan/infer/answer.h"

/* --- classes of equal ops --------------------------------------------------------------------- */
/* Attributes that a rule or a cost may depend on: all but the keys of random numbers. */
tsri_attrs tsri_strategies_attrs(const tsri_op *op)
{
    tsri_attrs a = op->attrs;
    if (tsri_op_def_of(op->kind)->has_key)
        a.key = 0;
    return a;
}

tsr_sbp tsri_kept_signature(const tsri_op *op)
{
    const tsr_variable *first = NULL;
    for (int i = 0; i < op->nout; i++) {
        const tsr_variable *v = op->out[i]->writes;
        if (!v)
            continue;
        first = first ? first : v;
        if (v->inferred || v->placement != op->placement || !tsr_sbp_equal(v->sbp, first->sbp))
            return TSR_AUTO;
    }
    return first ? first->sbp : TSR_AUTO;
}

tsr_sbp tsri_strategies_hint(const tsri_strategy_table *t, const tsri_op *op)
{
    bool keeps = tsri_op_gradient_operand(op->kind, op->nin) >= 0 && !t->infer_updates;
    return tsri_sbp_canonical(op->placement, op->kind == TSRI_OP_VARIABLE ? op->variable->sbp
                                             : keeps                      ? tsri_kept_signature(op)
                                                                          : op->sbp);
}

static bool same_tensor(const tsr_tensor *a, const tsr_tensor *b)
{
    return a->dtype == b->dtype && tsr_dims_equal(a->shape, b->shape);
}

/* Whether a step repeats the op in each micro-batch, so that its cost is multiplied. */
static bool is_in_parts(const tsri_op *op)
{
    return op->turn == TSRI_TURN_PARTS;
}

bool tsri_strategies_same(const tsri_strategy_table *t, const tsri_op *a, const tsri_op *b)
{
    tsri_attrs x = tsri_strategies_attrs(a), y = tsri_strategies_attrs(b);
    bool same = a->kind == b->kind && is_in_parts(a) == is_in_parts(b) && a->nin == b->nin &&
                a->nout == b->nout && a->placement == b->placement &&
                tsri_op_every(a) == tsri_op_every(b) && !memcmp(&x, &y, sizeof x) &&
                tsr_sbp_equal(tsri_strategies_hint(t, a), tsri_strategies_hint(t, b));
    for (int i = 0; i < a->nin && same; i++)
        same = same_tensor(a->in[i], b->in[i]);
    for (int i = 0; i < a->nout && same; i++)
        same = same_tensor(a->out[i], b->out[i]);
    return same;
}

/* --- costs ------------------------------------------------------------------------------------ */
/* Turns the parts of indices that the busiest rank has into parts of the work. The busiest rank has
 * the last rows and the first columns of a causal mask. */
static void share_unevenly(const tsri_work_shape *shape, double *share)
{
    if (shape->some)
        share[shape->some - 1] = shape->whole + (1 - shape->whole) * share[shape->some - 1];
    if (!shape->rows)
        return;
    double *rows = &share[shape->rows - 1], all = 1;
    double *columns = shape->columns ? &share[shape->columns - 1] : &all;
    const double hidden = *rows + *columns > 1 ? *rows + *columns - 1 : 0;
    const double both = 2 * *rows * *columns - hidden * hidden;
    double *split = *rows < 1 ? rows : columns, *other = split == rows ? columns : rows;
    *split = both;
    *other = 1;
}

double tsri_op_share(const tsr_placement *p, const tsri_op_work *work, const uint32_t *split)
{
    double most = 0;
    uint32_t any = 0;
    for (int d = 0; d < tsr_placement_ndim(p); d++)
        any |= split[d];
    if (!any)
        return 1;
    /* Where addends split an index each, the largest left over counts. */
    double share[TSRI_RULE_MAX_INDICES], together = 1;
    for (int l = 0; l < work->nindices; l++) {
        int64_t whole = work->size[l], n = whole;
        for (int d = 0; d < tsr_placement_ndim(p); d++) {
            int k = tsr_placement_dim(p, d);
            if (split[d] >> l & 1)
                n = (n + k - 1) / k;
        }
        share[l] = whole > 0 ? (double)n / (double)whole : 1;
    }
    share_unevenly(&work->shape, share);
    for (int d = 0; d < tsr_placement_ndim(p); d++) {
        most = 0;
        for (uint32_t left = split[d]; left; left &= left - 1)
            most = share[__builtin_ctz(left)] > most ? share[__builtin_ctz(left)] : most;
        bool counted = false; /* an index that several dimensions split counts once */
        for (int e = 0; e < d; e++)
            counted |= (split[e] & split[d]) != 0;
        if (split[d] && !counted)
            together *= most;
    }
    return together;
}

float tsri_op_seconds(const tsri_cost_model *m, const tsri_op_work *work, double flops,
                      double bytes)
{
    double compute = flops / tsri_flops_of(m, work->dtype), memory = bytes / m->local_bytes_per_s;
    if (work->attends && m->attention_share > 0)
        compute /= m->attention_share * (work->reach > 0 ? work->reach : 1);
    if (work->multiplies && m->product_share[TSRI_PRODUCT_SIZES - 1] > 0) {
        compute = compute / tsri_product_share(m, compute) - m->kernel_s;
        compute = compute > 0 ? compute : 0;
    }
    return (float)(m->kernel_s + (compute > memory ? compute : memory));
}

int64_t tsri_part_bytes(const tsr_tensor *t, const tsr_placement *placement, tsr_sbp sbp)
{
    return (int64_t)tsri_largest_part(t->shape, placement, sbp) * (int64_t)tsr_dtype_size(t->dtype);
}

float tsri_strategy_seconds(const tsri_strategy_table *t, const tsri_op *op,
                            const tsri_op_work *work, const tsri_nd_signature *sig)
{
    double bytes = 0;
    for (int i = 0; i < op->nin; i++)
        bytes += (double)tsri_part_bytes(op->in[i], op->placement, sig->in[i]);
    for (int i = 0; i < op->nout; i++)
        bytes += (double)tsri_part_bytes(op->out[i], op->placement, sig->out[i]);
    return tsri_op_seconds(t->model, work,
                           work->flops * tsri_op_share(op->placement, work, sig->split), bytes);
}
