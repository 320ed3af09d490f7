/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which ops of a step with micro-batches run once before the parts, in each part, or once
 * after them, and the signature over time of each tensor: an input with a batch axis is S(axis); a
 * result's signature follows from its op's rule, as it does over ranks.
 */
#include "src/rewrite/time.h"

#include <string.h>

#include "placement/placement.h"
#include "src/core/dims.h"
#include "src/graph/op.h"

static bool is_split(tsr_sbp1 s)
{
    return s.kind == TSR_SBP_SPLIT;
}

static bool same(tsr_sbp1 a, tsr_sbp1 b)
{
    return a.kind == b.kind && a.arg == b.arg;
}

/* --- blocks ----------------------------------------------------------------------------------- */
/* Returns the number of pieces of an input's batch axis over its ranks; where the signature is
 * inferred, one for each rank if the rows divide. */
static int64_t pieces_of(const tsri_op *op, int parts)
{
    const int axis = op->batch_axis - 1;
    const int64_t rows = op->out[0]->shape.d[axis];
    int64_t pieces = 1;
    for (int d = 0; d < op->sbp.ndim; d++)
        if (is_split(op->sbp.d[d]) && op->sbp.d[d].arg == axis)
            pieces *= tsr_placement_dim(op->placement, d);
    if (op->sbp.ndim == 0)
        pieces = tsri_gcd(tsr_placement_nranks(op->placement), rows / parts);
    return pieces;
}

static tsr_status find_blocks(tsri_cutter *c)
{
    c->blocks = 1;
    for (int i = 0; i < c->g->nops; i++) {
        const tsri_op *op = c->g->ops[i];
        if (!op->batch_axis)
            continue;
        c->blocks = tsri_lcm(c->blocks, pieces_of(op, c->parts));
    }
    for (int i = 0; i < c->g->nops; i++) {
        const tsri_op *op = c->g->ops[i];
        const int axis = op->batch_axis - 1;
        if (axis >= 0 && op->out[0]->shape.d[axis] % (c->blocks * c->parts) != 0)
            return tsri_fail_at(
                op->loc, TSR_ERR_SHAPE,
                "input '%s': %lld rows along its batch axis %d do not divide into %d micro-batches "
                "of %lld equal pieces each; sizes that fit are multiples of %lld",
                op->name, (long long)op->out[0]->shape.d[axis], axis, c->parts,
                (long long)c->blocks, (long long)(c->blocks * c->parts));
    }
    return TSR_OK;
}

/* --- signatures ------------------------------------------------------------------------------- */
/* Whether a tensor's size allows a signature over time. */
static bool divides(const tsri_cutter *c, const tsr_tensor *t, tsr_sbp1 s)
{
    return !is_split(s) || t->shape.d[s.arg] % (c->blocks * c->parts) == 0;
}

/* Returns the number of uncut operands that the signature splits, or -1 if it does not fit. */
static int splits_more(const tsri_cutter *c, const tsri_op *op, const tsri_signature *sig)
{
    int more = 0;
    for (int i = 0; i < op->nin; i++) {
        const tsri_over_time *x = &c->of[op->in[i]->id];
        if (x->is_cut && !same(x->sig, sig->in[i]))
            return -1;
        if (x->is_cut || sig->in[i].kind == TSR_SBP_BROADCAST)
            continue;
        if (x->turn == TSRI_TURN_PARTS || !is_split(sig->in[i]) ||
            !divides(c, op->in[i], sig->in[i]))
            return -1;
        more++;
    }
    for (int j = 0; j < op->nout; j++)
        if (sig->out[j].kind == TSR_SBP_BROADCAST || !divides(c, op->out[j], sig->out[j]))
            return -1;
    return more;
}

static bool splits_all(const tsri_op *op, const tsri_signature *sig)
{
    bool all = true;
    for (int i = 0; i < op->nin; i++)
        all &= is_split(sig->in[i]);
    for (int j = 0; j < op->nout; j++)
        all &= is_split(sig->out[j]);
    return all;
}

tsr_status tsri_time_signature(const tsri_cutter *c, const tsri_op *op, const tsr_sbp1 *out, int j,
                               tsri_signature *out_signature, bool *out_found)
{
    tsri_rule_text text = {0};
    tsri_signature *list;
    tsri_rule *rule;
    int n, least = -1;
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    *out_found = false;
    if (!tsri_op_has_rule(op->kind) || def->cuts == TSRI_CUT_NEVER)
        return TSR_OK;
    TSRI_TRY(tsri_op_bind_rule(&c->g->pool, op, &text, &rule));
    TSRI_TRY(tsri_rule_derive(&c->g->pool, rule, c->parts, &n, &list));
    for (int i = 0; i < n; i++) {
        const int more = splits_more(c, op, &list[i]);
        /* A part's rows are not consecutive, so kernels that need the offset of their shard would
         * compute wrong positions, except those that count in the whole. */
        const int64_t size =
            list[i].index >= 0 ? tsri_rule_index_size(rule, list[i].index) : c->blocks * c->parts;
        const bool placed =
            list[i].index >= 0 && tsri_rule_needs_offset(rule, list[i].index) && !def->counts_whole;
        if (more < 0 || placed || (def->cuts == TSRI_CUT_ROWS && !splits_all(op, &list[i])) ||
            size % (c->blocks * c->parts) != 0 || (out && !same(list[i].out[j], *out)) ||
            (least >= 0 && more >= least))
            continue;
        least = more;
        *out_signature = list[i];
        *out_found = true;
    }
    return TSR_OK;
}

/* --- turns ------------------------------------------------------------------------------------ */
static bool has_effect(const tsri_op *op)
{
    for (int j = 0; j < op->nout; j++)
        if (op->out[j]->writes)
            return true;
    return false;
}

static void set_all(tsri_cutter *c, const tsri_op *op, tsri_turn turn)
{
    c->turn[op->id] = turn;
    for (int j = 0; j < op->nout; j++)
        c->of[op->out[j]->id].turn = turn;
}

static void set_parts(tsri_cutter *c, const tsri_op *op, const tsri_signature *sig)
{
    set_all(c, op, TSRI_TURN_PARTS);
    c->sig[op->id] = *sig;
    for (int j = 0; j < op->nout; j++) {
        c->of[op->out[j]->id].is_cut = true;
        c->of[op->out[j]->id].sig = sig->out[j];
    }
}

/* A user's signature over ranks leaves the signature over time as it is, but a sum over time takes
 * it once a step, after its total. Sets *out_fits to whether the op runs in the parts. */
static void cut_to_global(const tsri_over_time *x, tsri_signature *sig, bool *out_fits)
{
    *out_fits = is_split(x->sig);
    sig->in[0] = sig->out[0] = x->sig;
}

/* Whether an op converts a weight, and the options ask that each part converts it anew. A number,
 * such as the scale of a loss, is converted once. */
static bool regathers(const tsri_cutter *c, const tsri_op *op)
{
    const bool converts = op->kind == TSRI_OP_TO_GLOBAL || op->kind == TSRI_OP_CAST;
    if (!c->g->step.regathers || !converts || has_effect(op) ||
        tsr_dims_count(op->in[0]->shape) == 1)
        return false;
    return op->in[0]->op->kind == TSRI_OP_VARIABLE || c->of[op->in[0]->id].turn == TSRI_TURN_PARTS;
}

/* Puts an op with a whole operand into the parts. */
static void set_regathered(tsri_cutter *c, const tsri_op *op)
{
    const tsr_sbp1 whole = {TSR_SBP_BROADCAST, 0};
    set_all(c, op, TSRI_TURN_PARTS);
    c->sig[op->id] = (tsri_signature){.in = {whole}, .out = {whole}, .index = -1};
    c->of[op->out[0]->id].sig = whole;
}

/* Refuses an op with one operand that only the last part completes and one that is cut. */
static tsr_status refuse(const tsri_cutter *c, const tsri_op *op, const tsr_tensor *whole,
                         const tsr_tensor *cut)
{
    const tsri_op *a = whole->op, *b = cut->op;
    return tsri_fail_at(
        op->loc, TSR_ERR_UNSUPPORTED,
        "%s %s: %d micro-batches: its operand from %s %s (%s:%d) is complete only after the last "
        "micro-batch, but its operand from %s %s (%s:%d) is computed in each of them, split along "
        "axis %d. Use 1 micro-batch, or ops that need only the rows of one: batch norm with local "
        "statistics (TSR_BN_LOCAL) of a multiple of %lld parts, a loss that is a sum over rows",
        tsri_op_word(op->kind, &op->attrs), tsri_op_called(op), c->parts,
        tsri_op_word(a->kind, &a->attrs), tsri_op_called(a), tsri_basename(a->loc.file),
        a->loc.line, tsri_op_word(b->kind, &b->attrs), tsri_op_called(b),
        tsri_basename(b->loc.file), b->loc.line, c->of[cut->id].sig.arg,
        (long long)(c->blocks * c->parts));
}

/* Puts an op that needs whole operands into HEAD if they depend on inputs alone, else into TAIL. */
static tsr_status set_whole(tsri_cutter *c, const tsri_op *op, bool is_early)
{
    const tsr_tensor *late = NULL, *cut = NULL;
    if (is_early && !has_effect(op)) {
        set_all(c, op, TSRI_TURN_HEAD);
        return TSR_OK;
    }
    for (int i = 0; i < op->nin; i++) {
        const tsri_over_time *x = &c->of[op->in[i]->id];
        if (x->turn == TSRI_TURN_TAIL || (x->is_cut && !is_split(x->sig)))
            late = op->in[i];
        else if (x->turn == TSRI_TURN_PARTS && x->is_cut)
            cut = op->in[i];
    }
    /* An effect may have both: it has no consumer in the parts. */
    if (late && cut && !has_effect(op))
        return refuse(c, op, late, cut);
    set_all(c, op, TSRI_TURN_TAIL);
    return TSR_OK;
}

/* Drops the early form of a value if a producer of its operands depends on more than inputs, which
 * is known once these producers have their turns. */
static void keep_early(const tsri_cutter *c, tsri_over_time *x)
{
    for (int i = x->early_begin; i < x->early_end; i++)
        for (int k = 0; k < c->g->ops[i]->nin; k++) {
            const tsri_op *maker = c->g->ops[i]->in[k]->op;
            if (maker->id < c->declared && !c->of[c->g->ops[i]->in[k]->id].is_early)
                x->early = NULL;
        }
}

/* Whether an op brings a value that depends on inputs alone to another placement, as stages do. It
 * does so before the parts: the ranks that have the value may be those of all stages, which would
 * make one stage of them. */
static bool moves_input(const tsri_cutter *c, const tsri_op *op)
{
    if (op->kind != TSRI_OP_TO_GLOBAL || op->placement == op->in[0]->placement)
        return false;
    const tsri_over_time *x = &c->of[op->in[0]->id];
    return x->is_cut && is_split(x->sig) && x->is_early;
}

/* Whether an op scales a gradient that is summed over the parts: it does so once, after the total.
 * The parts then need no scaled copy, and all consumers of the gradient share its total. */
static bool scales_sum(const tsri_cutter *c, const tsri_op *op)
{
    int sums = 0, numbers = 0;
    if (!op->backward || (op->kind != TSRI_OP_BINARY && op->kind != TSRI_OP_SCALE))
        return false;
    for (int i = 0; i < op->nin; i++) {
        const tsri_over_time *x = &c->of[op->in[i]->id];
        sums += x->turn == TSRI_TURN_PARTS && x->is_cut && x->sig.kind == TSR_SBP_PARTIAL;
        numbers += x->turn != TSRI_TURN_PARTS && tsr_dims_count(op->in[i]->shape) == 1;
    }
    return sums == 1 && sums + numbers == op->nin;
}

static tsr_status turn_op(tsri_cutter *c, const tsri_op *op)
{
    /* An update is in TAIL even if it depends on inputs alone, and so are its consumers. */
    bool early = op->kind != TSRI_OP_VARIABLE && !has_effect(op);
    bool any_cut = false, any_late = false, fits = false;
    tsri_signature sig = {.index = -1};
    for (int i = 0; i < op->nin; i++) {
        const tsri_over_time *x = &c->of[op->in[i]->id];
        any_cut |= x->is_cut;
        any_late |= x->turn == TSRI_TURN_TAIL;
        early &= x->is_early;
    }
    for (int j = 0; j < op->nout; j++) {
        tsri_over_time *x = &c->of[op->out[j]->id];
        keep_early(c, x);
        x->is_early = early || x->early;
    }
    if (op->batch_axis || moves_input(c, op)) {
        tsri_over_time *x = &c->of[op->out[0]->id];
        x->is_cut = true;
        x->sig = op->batch_axis ? (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)(op->batch_axis - 1)}
                                : c->of[op->in[0]->id].sig;
        set_all(c, op, TSRI_TURN_HEAD);
        return TSR_OK;
    }
    if (any_cut && !any_late && !has_effect(op) && !scales_sum(c, op)) {
        if (op->kind == TSRI_OP_TO_GLOBAL)
            cut_to_global(&c->of[op->in[0]->id], &sig, &fits);
        else
            TSRI_TRY(tsri_time_signature(c, op, NULL, 0, &sig, &fits));
    }
    if (fits)
        set_parts(c, op, &sig);
    else if (any_cut || any_late || has_effect(op))
        return set_whole(c, op, early);
    else if (regathers(c, op))
        set_regathered(c, op);
    else
        set_all(c, op, TSRI_TURN_HEAD);
    return TSR_OK;
}

/* A dead op comes after the producers of its operands. */
static void turn_dead_op(tsri_cutter *c, const tsri_op *op)
{
    for (int i = 0; i < op->nin; i++)
        if (c->of[op->in[i]->id].turn == TSRI_TURN_TAIL)
            set_all(c, op, TSRI_TURN_TAIL);
}

/* Declares the early forms of live ops' results. */
static tsr_status declare_early(tsri_cutter *c)
{
    for (int i = 0; i < c->declared; i++) {
        const tsri_op *op = c->g->ops[i];
        const tsri_op_def *def = tsri_op_def_of(op->kind);
        for (int j = 0; j < op->nout && def->early && c->live[i]; j++) {
            tsri_over_time *x = &c->of[op->out[j]->id];
            x->early_begin = c->g->nops;
            x->early = def->early(op, j);
            x->early_end = c->g->nops;
        }
    }
    return tsri_graph_status(c->g);
}

tsr_status tsri_time_turns(tsri_cutter *c)
{
    bool any = false;
    for (int i = 0; i < c->g->nops; i++)
        any |= c->g->ops[i]->batch_axis != 0;
    if (!any)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_compile: %d micro-batches, but no input has a batch axis along which "
                         "to cut it; declare one with tsr_input_with(..., "
                         "TSR_INPUT_OPTS(.batch_axis = 0))",
                         c->parts);
    TSRI_TRY(find_blocks(c));
    TSRI_TRY(declare_early(c));
    for (int i = 0; i < c->declared; i++)
        if (c->live[i])
            TSRI_TRY(turn_op(c, c->g->ops[i]));
        else
            turn_dead_op(c, c->g->ops[i]);
    return TSR_OK;
}
