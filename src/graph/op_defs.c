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

static const tsri_op_def source = {.rule = NULL};
static const tsri_op_def copy = {.rule = rule_copy};
static const tsri_op_def sgd = {.rule = rule_sgd, .flops = flops_update, .over = 1};
static const tsri_op_def adam = {.rule = rule_adam, .flops = flops_update, .over = 1};

/* The forms that lowering fuses (BN_ACT and its kind) are made after inference, and have none. */
static const tsri_op_def *const defs[TSRI_OP_COUNT_] = {
    [TSRI_OP_INPUT] = &source,
    [TSRI_OP_VARIABLE] = &source,
    [TSRI_OP_TO_GLOBAL] = &source,
    [TSRI_OP_UNARY] = &tsri_def_unary,
    [TSRI_OP_UNARY_GRAD] = &tsri_def_unary_grad,
    [TSRI_OP_SCALE] = &tsri_def_scale,
    [TSRI_OP_CAST] = &tsri_def_cast,
    [TSRI_OP_BINARY] = &tsri_def_binary,
    [TSRI_OP_ADD_N] = &tsri_def_add_n,
    [TSRI_OP_BROADCAST_TO] = &tsri_def_broadcast_to,
    [TSRI_OP_REDUCE] = &tsri_def_reduce,
    [TSRI_OP_ARGMAX] = &tsri_def_argmax,
    [TSRI_OP_MATMUL] = &tsri_def_matmul,
    [TSRI_OP_LINEAR] = &tsri_def_linear,
    [TSRI_OP_LINEAR_DX] = &tsri_def_linear_dx,
    [TSRI_OP_LINEAR_DW] = &tsri_def_linear_dw,
    [TSRI_OP_BATCH_MATMUL] = &tsri_def_batch_matmul,
    [TSRI_OP_CAUSAL_MASK] = &tsri_def_causal_mask,
    [TSRI_OP_LN_STATS] = &tsri_def_ln_stats,
    [TSRI_OP_LN_APPLY] = &tsri_def_ln_apply,
    [TSRI_OP_LN_BWD_STATS] = &tsri_def_ln_bwd_stats,
    [TSRI_OP_LN_BWD_APPLY] = &tsri_def_ln_bwd_apply,
    [TSRI_OP_LN_PARAM_GRAD] = &tsri_def_ln_param_grad,
    [TSRI_OP_CONV2D] = &tsri_def_conv2d,
    [TSRI_OP_CONV2D_DX] = &tsri_def_conv2d_dx,
    [TSRI_OP_CONV2D_DW] = &tsri_def_conv2d_dw,
    [TSRI_OP_MAX_POOL] = &tsri_def_max_pool,
    [TSRI_OP_MAX_POOL_DX] = &tsri_def_max_pool_dx,
    [TSRI_OP_AVG_POOL] = &tsri_def_avg_pool,
    [TSRI_OP_AVG_POOL_DX] = &tsri_def_avg_pool_dx,
    [TSRI_OP_ADAPTIVE_POOL] = &tsri_def_adaptive_pool,
    [TSRI_OP_ADAPTIVE_POOL_DX] = &tsri_def_adaptive_pool_dx,
    [TSRI_OP_BN_STATS] = &tsri_def_bn_stats,
    [TSRI_OP_BN_CENTER] = &tsri_def_bn_center,
    [TSRI_OP_BN_APPLY] = &tsri_def_bn_apply,
    [TSRI_OP_BN_BWD_STATS] = &tsri_def_bn_bwd_stats,
    [TSRI_OP_BN_BWD_APPLY] = &tsri_def_bn_bwd_apply,
    [TSRI_OP_BN_PARAM_GRAD] = &tsri_def_bn_param_grad,
    [TSRI_OP_BN_RUNNING] = &tsri_def_bn_running,
    [TSRI_OP_BN_FOLD] = &tsri_def_bn_fold,
    [TSRI_OP_SCALE_SHIFT] = &tsri_def_scale_shift,
    [TSRI_OP_SOFTMAX_MAX] = &tsri_def_softmax_max,
    [TSRI_OP_SOFTMAX_SUM] = &tsri_def_softmax_sum,
    [TSRI_OP_SOFTMAX_FINISH] = &tsri_def_softmax_finish,
    [TSRI_OP_SOFTMAX_DOT] = &tsri_def_softmax_dot,
    [TSRI_OP_SOFTMAX_BWD] = &tsri_def_softmax_bwd,
    [TSRI_OP_CE_TERMS] = &tsri_def_ce_terms,
    [TSRI_OP_CE_FINISH] = &tsri_def_ce_finish,
    [TSRI_OP_CE_DX] = &tsri_def_ce_dx,
    [TSRI_OP_DROPOUT] = &tsri_def_dropout,
    [TSRI_OP_RANDOM] = &tsri_def_random,
    [TSRI_OP_FILL] = &tsri_def_fill,
    [TSRI_OP_RESHAPE] = &tsri_def_reshape,
    [TSRI_OP_PERMUTE] = &tsri_def_permute,
    [TSRI_OP_COPY] = &copy,
    [TSRI_OP_RANK_SUM] = &tsri_def_rank_sum,
    [TSRI_OP_CONCAT] = &tsri_def_concat,
    [TSRI_OP_SPLIT] = &tsri_def_split,
    [TSRI_OP_SLICE] = &tsri_def_slice,
    [TSRI_OP_PAD] = &tsri_def_pad,
    [TSRI_OP_CUMSUM] = &tsri_def_cumsum,
    [TSRI_OP_WHERE] = &tsri_def_where,
    [TSRI_OP_TRIANGLE] = &tsri_def_triangle,
    [TSRI_OP_MASK] = &tsri_def_mask,
    [TSRI_OP_GATHER] = &tsri_def_gather,
    [TSRI_OP_GATHER_DX] = &tsri_def_gather_dx,
    [TSRI_OP_ONE_HOT] = &tsri_def_one_hot,
    [TSRI_OP_ARANGE] = &tsri_def_arange,
    [TSRI_OP_CONSTANT] = &tsri_def_constant,
    [TSRI_OP_SGD] = &sgd,
    [TSRI_OP_ADAM] = &adam,
    [TSRI_OP_ASSIGN] = &copy,
};

const tsri_op_def *tsri_op_def_of(tsri_op_kind kind)
{
    return (unsigned)kind < TSRI_OP_COUNT_ ? defs[kind] : NULL;
}

int tsri_op_over(tsri_op_kind kind, int i)
{
    const tsri_op_def *def = tsri_op_def_of(kind);
    return def && def->over ? def->over - 1 + i : -1;
}
