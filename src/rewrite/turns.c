/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ops of a step with micro-batches run once before the parts, in each part, or once after
 * them, and how each tensor is laid out over the parts: an input with a batch axis is S(axis), a
 * result follows from its op's rule, as it would over so many ranks.
 */
#include "src/rewrite/time.h"

#include <string.h>

#include "placement/placement.h"
#include "src/graph/op.h"

static bool is_split(tsr_sbp1 s)
{
    return s.kind == TSR_SBP_SPLIT;
}

static bool same(tsr_sbp1 a, tsr_sbp1 b)
{
    return a.kind == b.kind && a.arg == b.arg;
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
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
        pieces = greatest_divisor(tsr_placement_nranks(op->placement), rows / parts);
    return pieces;
}

static tsr_status find_blocks(tsri_cutter *c)
{
    c->blocks = 1;
    for (int i = 0; i < c->g->nops; i++) {
        const tsri_op *op = c->g->ops[i];
        if (op->kind != TSRI_OP_INPUT || !op->batch_axis)
            continue;
        const int64_t pieces = pieces_of(op, c->parts);
        c->blocks *= pieces / greatest_divisor(c->blocks, pieces);
    }
    for (int i = 0; i < c->g->nops; i++) {
        const tsri_op *op = c->g->ops[i];
        const int axis = op->batch_axis - 1;
        if (op->kind == TSRI_OP_INPUT && axis >= 0 &&
            op->out[0]->shape.d[axis] % (c->blocks * c->parts) != 0)
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
/* Whether a tensor can be S(axis) over time: its rows divide. */
static bool divides(const tsri_cutter *c, const tsr_tensor *t, tsr_sbp1 s)
{
    return !is_split(s) || t->shape.d[s.arg] % (c->blocks * c->parts) == 0;
}

/* Returns how many operands that are not cut the signature splits; -1: it does not fit. */
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

static tsr_status derive(const tsri_cutter *c, const tsri_op *op, tsri_rule **out_rule, int *out_n,
                         tsri_signature **out_list)
{
    tsr_dims in[TSRI_RULE_MAX_ARGS], out[TSRI_RULE_MAX_ARGS];
    tsri_rule_text text = {0};
    tsri_pool *pool = &c->g->pool;
    for (int i = 0; i < op->nin; i++)
        in[i] = op->in[i]->shape;
    for (int j = 0; j < op->nout; j++)
        out[j] = op->out[j]->shape;
    TSRI_TRY(tsri_op_write_rule(op, &text));
    TSRI_TRY(tsri_rule_bind(pool, text.text, op->nin, in, op->nout, out, text.nsizes, text.sizes,
                            out_rule));
    return tsri_rule_derive(pool, *out_rule, c->parts, out_n, out_list);
}

tsr_status tsri_time_signature(const tsri_cutter *c, const tsri_op *op, const tsr_sbp1 *out, int j,
                               tsri_signature *out_signature, bool *out_found)
{
    tsri_signature *list;
    tsri_rule *rule;
    int n, least = -1;
    const tsri_cut cuts = tsri_op_def_of(op->kind)->cuts;
    *out_found = false;
    if (!tsri_op_has_rule(op->kind) || cuts == TSRI_CUT_NEVER)
        return TSR_OK;
    TSRI_TRY(derive(c, op, &rule, &n, &list));
    for (int i = 0; i < n; i++) {
        const int more = splits_more(c, op, &list[i]);
        /* Rows of a part are not consecutive, so only ops that count in the whole know the place of
         * one. */
        const int64_t size =
            list[i].index >= 0 ? tsri_rule_index_size(rule, list[i].index) : c->blocks * c->parts;
        const bool placed = list[i].index >= 0 && tsri_rule_needs_offset(rule, list[i].index) &&
                            op->kind != TSRI_OP_DROPOUT;
        if (more < 0 || placed || (cuts == TSRI_CUT_ROWS && !splits_all(op, &list[i])) ||
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

/* A user's signature over ranks says nothing of time. A sum gets it once, behind its total. Sets
 * *out_fits to whether the op runs in the parts. */
static void cut_to_global(const tsri_over_time *x, tsri_signature *sig, bool *out_fits)
{
    *out_fits = is_split(x->sig);
    sig->in[0] = sig->out[0] = x->sig;
}

/* Whether an op only converts a weight, and each part shall do so anew. */
static bool regathers(const tsri_cutter *c, const tsri_op *op)
{
    const bool converts = op->kind == TSRI_OP_TO_GLOBAL || op->kind == TSRI_OP_CAST;
    if (!c->g->time.regathers || !converts || has_effect(op))
        return false;
    return op->in[0]->op->kind == TSRI_OP_VARIABLE || c->of[op->in[0]->id].turn == TSRI_TURN_PARTS;
}

/* The op runs in the parts, with the whole of its operand. */
static void set_regathered(tsri_cutter *c, const tsri_op *op)
{
    const tsr_sbp1 whole = {TSR_SBP_BROADCAST, 0};
    set_all(c, op, TSRI_TURN_PARTS);
    c->sig[op->id] = (tsri_signature){.in = {whole}, .out = {whole}, .index = -1};
    c->of[op->out[0]->id].sig = whole;
}

/* Refuses an op that reads a value which only the last part completes beside one that is cut. */
static tsr_status refuse(const tsri_cutter *c, const tsri_op *op, const tsr_tensor *whole,
                         const tsr_tensor *cut)
{
    const tsri_op *a = whole->op, *b = cut->op;
    return tsri_fail_at(
        op->loc, TSR_ERR_UNSUPPORTED,
        "%s %s: %d micro-batches: its operand from %s %s (%s:%d) is known only after the last "
        "part, "
        "while its operand from %s %s (%s:%d) comes in parts along axis %d, and no value goes back "
        "into the parts. Use 1 micro-batch, or let each part have its own: batch norm with "
        "statistics of its own (stats = TSR_BN_LOCAL), a loss that is a sum over rows",
        tsri_op_word(op->kind, &op->attrs), tsri_op_called(op), c->parts,
        tsri_op_word(a->kind, &a->attrs), tsri_op_called(a), tsri_basename(a->loc.file),
        a->loc.line, tsri_op_word(b->kind, &b->attrs), tsri_op_called(b),
        tsri_basename(b->loc.file), b->loc.line, c->of[cut->id].sig.arg);
}

/* An op that needs whole values: HEAD computes it if it follows from inputs alone, else TAIL. */
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
    /* Effects may take both: no gradient flows back from them. */
    if (late && cut && !has_effect(op))
        return refuse(c, op, late, cut);
    set_all(c, op, TSRI_TURN_TAIL);
    return TSR_OK;
}

/* Leaves HEAD's form of a value out where it does not follow from inputs alone: its operands are
 * known only now. */
static void keep_early(const tsri_cutter *c, tsri_over_time *x)
{
    for (int i = x->early_begin; i < x->early_end; i++)
        for (int k = 0; k < c->g->ops[i]->nin; k++) {
            const tsri_op *maker = c->g->ops[i]->in[k]->op;
            if (maker->id < c->declared && !c->of[c->g->ops[i]->in[k]->id].is_early)
                x->early = NULL;
        }
}

static tsr_status turn_op(tsri_cutter *c, const tsri_op *op)
{
    /* An update of inputs alone is in TAIL, and so are its readers. */
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
    if (op->kind == TSRI_OP_INPUT && op->batch_axis) {
        tsri_over_time *x = &c->of[op->out[0]->id];
        x->is_cut = true;
        x->sig = (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)(op->batch_axis - 1)};
    }
    if (any_cut && !any_late && !has_effect(op)) {
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

/* An op that nothing needs stays behind what it reads. */
static void turn_dead_op(tsri_cutter *c, const tsri_op *op)
{
    for (int i = 0; i < op->nin; i++)
        if (c->of[op->in[i]->id].turn == TSRI_TURN_TAIL)
            set_all(c, op, TSRI_TURN_TAIL);
}

/* Declares the results that HEAD can have of live ops. */
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
        any |= c->g->ops[i]->kind == TSRI_OP_INPUT && c->g->ops[i]->batch_axis;
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
