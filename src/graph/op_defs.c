/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about each op kind, in one table; and the kinds that no user declares. */
#include "src/graph/op.h"

static tsr_status rule_copy(const tsri_op *op, tsri_rule_text *out)
{
    (void)op;
    return tsri_write_rule(out, "^... -> ...");
}

/* Updates are linear, so P would be legal; it is never useful, and a half-updated parameter none to
 * leave about. hyper is read whole by every rank. */
static tsr_status rule_sgd(const tsri_op *op, tsri_rule_text *out)
{
    return tsri_write_rule(out, op->nin == 4 ? "!..., !..., !..., !. -> ..., ..."
                                             : "!..., !..., !. -> ...");
}

static tsr_status rule_adam(const tsri_op *op, tsri_rule_text *out)
{
    (void)op;
    return tsri_write_rule(out, "!..., !..., !..., !..., !. -> ..., ..., ...");
}

static double flops_update(const tsri_op *op)
{
    return (op->kind == TSRI_OP_ADAM ? 20 : 4) * (double)tsr_dims_count(op->in[0]->shape);
}

static const tsri_attr_field sgd_attrs[] = {TSRI_ATTR_FIELD(sgd.momentum, F64, "momentum"),
                                            TSRI_ATTR_FIELD(sgd.dampening, F64, "dampening"),
                                            TSRI_ATTR_FIELD(sgd.weight_decay, F64, "weight_decay"),
                                            TSRI_ATTR_FIELD(sgd.nesterov, I32, "nesterov"),
                                            TSRI_ATTR_END};

static const tsri_attr_field adam_attrs[] = {
    TSRI_ATTR_FIELD(adam.beta1, F64, "beta1"),
    TSRI_ATTR_FIELD(adam.beta2, F64, "beta2"),
    TSRI_ATTR_FIELD(adam.eps, F64, "eps"),
    TSRI_ATTR_FIELD(adam.weight_decay, F64, "weight_decay"),
    TSRI_ATTR_FIELD(adam.decoupled, I32, "decoupled"),
    TSRI_ATTR_END};

const tsri_op_def tsri_def_input = {.rule = NULL};
const tsri_op_def tsri_def_variable = {.rule = NULL};
const tsri_op_def tsri_def_to_global = {.rule = NULL, .is_view = true};
const tsri_op_def tsri_def_copy = {.rule = rule_copy};
const tsri_op_def tsri_def_assign = {.rule = rule_copy};
const tsri_op_def tsri_def_sgd = {
    .rule = rule_sgd, .flops = flops_update, .over = 1, .attrs = sgd_attrs, .is_update = true};
const tsri_op_def tsri_def_adam = {
    .rule = rule_adam, .flops = flops_update, .over = 1, .attrs = adam_attrs, .is_update = true};

/* Lowering makes these of others, after inference: they have no rule. */
const tsri_op_def tsri_def_bn_act = {.layout = TSRI_LAYOUT_NHWC};
const tsri_op_def tsri_def_bn_act_bwd_stats = {.layout = TSRI_LAYOUT_NHWC};
const tsri_op_def tsri_def_bn_act_bwd_apply = {.layout = TSRI_LAYOUT_NHWC};
const tsri_op_def tsri_def_softmax = {.rule = NULL};
const tsri_op_def tsri_def_softmax_dx = {.rule = NULL};
const tsri_op_def tsri_def_ce = {.rule = NULL};

const tsri_op_def *tsri_op_def_of(tsri_op_kind kind)
{
    static const tsri_op_def *const defs[TSRI_OP_COUNT_] = {
#define DEF(upper, lower) &tsri_def_##lower,
        TSRI_OP_LIST(DEF)
#undef DEF
    };
    return (unsigned)kind < TSRI_OP_COUNT_ ? defs[kind] : NULL;
}

int tsri_op_over(tsri_op_kind kind, int i)
{
    const tsri_op_def *def = tsri_op_def_of(kind);
    return def->over ? def->over - 1 + i : -1;
}

int tsri_op_gradient_operand(tsri_op_kind kind, int nin)
{
    return tsri_op_def_of(kind)->is_update ? nin - 2 : -1;
}
