/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/infer/strategies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/rng.h"
#include "src/plan/infer/answer.h"

/* --- lists by class --------------------------------------------------------------------------- */
static uint64_t hash_tensor(uint64_t h, const tsr_tensor *t)
{
    h = tsri_hash(h, t->shape.d, (uint64_t)t->shape.ndim * sizeof t->shape.d[0]);
    int32_t type[2] = {t->dtype, t->shape.ndim};
    return tsri_hash(h, type, sizeof type);
}

static uint64_t hash_op(const tsri_strategy_table *t, const tsri_op *op)
{
    tsri_attrs attrs = tsri_strategies_attrs(op);
    tsr_sbp hint = tsri_strategies_hint(t, op);
    int32_t head[3] = {op->kind, op->nin, op->nout};
    uint64_t h = tsri_hash(TSRI_HASH_INIT, head, sizeof head);
    h = tsri_hash(h, &attrs, sizeof attrs);
    h = tsri_hash(h, &hint, sizeof hint);
    for (int i = 0; i < op->nin; i++)
        h = hash_tensor(h, op->in[i]);
    for (int i = 0; i < op->nout; i++)
        h = hash_tensor(h, op->out[i]);
    return h;
}

/* --- ops whose signature is the user's word --------------------------------------------------- */
/* Which entry a dimension can have when nobody says: B, S(i) of axes that are long enough, and
 * (values that are computed) P(sum). */
static int choices(const tsri_op *op, int d, tsr_sbp1 *out)
{
    const bool adds_up = op->kind == TSRI_OP_VARIABLE && op->attrs.variable.adds_up;
    const tsr_sbp *base = &op->attrs.variable.base;
    if (adds_up && d < base->ndim && base->d[d].kind != TSR_SBP_BROADCAST) {
        out[0] = base->d[d];
        return 1;
    }
    int n = 0, k = tsr_placement_dim(op->placement, d);
    const tsr_dims *shape = &op->out[0]->shape;
    out[n++] = (tsr_sbp1){TSR_SBP_BROADCAST, 0};
    for (int i = 0; i < shape->ndim && k > 1 && !(adds_up && base->ndim); i++)
        if (shape->d[i] >= k)
            out[n++] = (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)i};
    if (k > 1 && (op->nin || adds_up) && op->out[0]->dtype != TSR_BOOL)
        out[n++] = (tsr_sbp1){TSR_SBP_PARTIAL, TSR_REDUCE_SUM};
    return n;
}

static tsr_status source_strategies(tsri_strategy_table *t, const tsri_op *op, tsri_strategies *s)
{
    tsr_sbp hint = tsri_strategies_hint(t, op);
    tsr_sbp1 list[TSR_MAX_HIERARCHY][TSR_MAX_NDIM + 2];
    int n[TSR_MAX_HIERARCHY], ndim = tsr_placement_ndim(op->placement), all = 1;
    for (int d = 0; d < ndim; d++) {
        n[d] = 1;
        list[d][0] = hint.d[d];
        if (hint.ndim == 0)
            n[d] = choices(op, d, list[d]);
        all *= n[d];
    }
    s->sig = tsri_pool_alloc(t->pool, (size_t)all * sizeof *s->sig);
    TSRI_NEED(s->sig);
    s->n = all;
    s->added = hint.ndim > 0; /* the user's word */
    for (int i = 0; i < all; i++) {
        tsr_sbp sbp = {.ndim = (int8_t)ndim};
        for (int d = ndim - 1, rest = i; d >= 0; rest /= n[d--])
            sbp.d[d] = list[d][rest % n[d]];
        s->sig[i].in[0] = s->sig[i].out[0] = sbp;
    }
    return TSR_OK;
}

/* --- ops with a rule -------------------------------------------------------------------------- */
static bool allowed(const tsri_op *op, const tsri_nd_signature *sig, tsr_sbp hint)
{
    for (int i = 0; i < op->nout; i++) {
        if (hint.ndim && !tsr_sbp_equal(hint, sig->out[i]))
            return false;
        for (int d = 0; d < sig->out[i].ndim; d++)
            if (op->out[i]->dtype == TSR_BOOL && sig->out[i].d[d].kind == TSR_SBP_PARTIAL &&
                sig->out[i].d[d].arg == TSR_REDUCE_SUM)
                return false;
    }
    return true;
}

static tsr_status no_signature(const tsri_op *op, const tsri_nd_signature *sig, int n)
{
    char list[1024] = "", text[TSR_SBP_TEXT_MAX];
    size_t at = 0;
    for (int i = 0; i < n && at + 80 < sizeof list; i++) {
        at += (size_t)snprintf(list + at, sizeof list - at, i ? "; " : "");
        for (int j = 0; j < op->nout; j++)
            at += (size_t)snprintf(list + at, sizeof list - at, j ? ",%s" : "%s",
                                   tsr_sbp_format(sig[i].out[j], text));
    }
    return tsri_fail_at(op->loc, TSR_ERR_SBP,
                        "%s %s: the asked-for signature, %s, is not legal; its results can be: %s",
                        tsri_op_title(op->kind, &op->attrs), op->name,
                        tsr_sbp_format(op->sbp, text), list);
}

/* The signature that no rule expresses (see tsri_rule_text), over one dimension, B on others. */
static tsr_status add_extra(tsri_strategy_table *t, const tsri_op *op, const tsri_rule_text *text,
                            int *n, tsri_nd_signature **sig)
{
    for (int d = 0; d < tsr_placement_ndim(op->placement); d++) {
        if (text->extra_parts < 2 || tsr_placement_dim(op->placement, d) != text->extra_parts)
            continue;
        tsri_nd_signature *more = tsri_pool_alloc(t->pool, (size_t)(*n + 1) * sizeof *more);
        TSRI_NEED(more);
        memcpy(more, *sig, (size_t)*n * sizeof *more);
        more[*n] = more[0]; /* all B */
        for (int i = 0; i < op->nin; i++)
            more[*n].in[i].d[d] = text->extra_in[i];
        for (int i = 0; i < op->nout; i++)
            more[*n].out[i].d[d] = text->extra_out[i];
        more[*n].split[d] = 1;
        *sig = more;
        ++*n;
    }
    return TSR_OK;
}

/* Adds the signatures in which operand 0 is P(sum) and the result P(max) on some of the dimensions
 * where both are B. The op looks at the addends themselves then. */
static tsr_status add_addends(tsri_strategy_table *t, const tsri_op *op, int *n,
                              tsri_nd_signature **sig)
{
    const int ndim = tsr_placement_ndim(op->placement), was = *n;
    tsri_nd_signature *more = tsri_pool_alloc(t->pool, ((size_t)was << ndim) * sizeof *more);
    TSRI_NEED(more);
    memcpy(more, *sig, (size_t)was * sizeof *more);
    for (int i = 0; i < was; i++)
        for (unsigned dims = 1; dims < 1u << ndim; dims++) {
            const tsri_nd_signature *from = &(*sig)[i];
            bool fits = true;
            tsri_nd_signature to = *from;
            for (int d = 0; d < ndim; d++) {
                if (!(dims >> d & 1))
                    continue;
                fits &= from->in[0].d[d].kind == TSR_SBP_BROADCAST &&
                        from->out[0].d[d].kind == TSR_SBP_BROADCAST &&
                        tsr_placement_dim(op->placement, d) > 1;
                to.in[0].d[d] = (tsr_sbp1){TSR_SBP_PARTIAL, TSR_REDUCE_SUM};
                to.out[0].d[d] = (tsr_sbp1){TSR_SBP_PARTIAL, TSR_REDUCE_MAX};
            }
            if (fits)
                more[(*n)++] = to;
        }
    *sig = more;
    return TSR_OK;
}

/* Returns an index's number from 1, 0 where the rule has no index of that name. */
static int number_of(const tsri_rule *rule, const char *name)
{
    return name ? tsri_rule_find_index(rule, name) + 1 : 0;
}

static void work_of_rule(const tsri_op *op, const tsri_rule *rule, tsri_op_work *out)
{
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    *out = (tsri_op_work){.dtype = tsri_op_computes_in(op),
                          .attends = def->is_attention,
                          .multiplies = def->is_product && !def->is_attention,
                          .reach = def->reach ? def->reach(op) : 0,
                          .flops = tsri_op_flops(op),
                          .nindices = tsri_rule_nindices(rule)};
    for (int l = 0; l < out->nindices; l++)
        out->size[l] = tsri_rule_index_size(rule, l);
    tsri_uneven uneven = {0};
    if (def->uneven)
        def->uneven(op, &uneven);
    out->shape = (tsri_work_shape){number_of(rule, uneven.some), number_of(rule, uneven.rows),
                                   number_of(rule, uneven.columns), uneven.whole};
}

tsr_status tsri_op_work_of(tsri_pool *pool, const tsri_op *op, tsri_op_work *out_work)
{
    tsri_rule_text text = {0};
    tsri_rule *rule;
    TSRI_TRY(tsri_op_bind_rule(pool, op, &text, &rule));
    work_of_rule(op, rule, out_work);
    return TSR_OK;
}

static tsr_status derived_strategies(tsri_strategy_table *t, const tsri_op *op, tsri_strategies *s,
                                     tsri_rule **out_rule)
{
    tsri_rule_text text = {0};
    tsri_nd_signature *sig;
    int n, ndim = tsr_placement_ndim(op->placement), dim[TSR_MAX_HIERARCHY];
    for (int d = 0; d < ndim; d++)
        dim[d] = tsr_placement_dim(op->placement, d);
    tsr_status status = tsri_op_bind_rule(t->pool, op, &text, out_rule);
    if (status == TSR_OK)
        status = tsri_rule_derive_nd(t->pool, *out_rule, ndim, dim, &n, &sig);
    if (status == TSR_OK)
        status = add_extra(t, op, &text, &n, &sig);
    if (status == TSR_OK && op->kind == TSRI_OP_REDUCE && op->attrs.reduce.addends)
        status = add_addends(t, op, &n, &sig);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "%s:%d: %s %s", tsri_basename(op->loc.file), op->loc.line,
                                tsri_op_title(op->kind, &op->attrs), op->name);
    s->groups_index = tsri_rule_find_index(*out_rule, "g");
    s->added = tsri_rule_added(*out_rule);
    s->sig = tsri_pool_alloc(t->pool, (size_t)n * sizeof *s->sig);
    TSRI_NEED(s->sig);
    tsr_sbp hint = tsri_strategies_hint(t, op);
    for (int i = 0; i < n; i++)
        if (allowed(op, &sig[i], hint))
            s->sig[s->n++] = sig[i];
    return s->n ? TSR_OK : no_signature(op, sig, n);
}

static tsr_status make(tsri_strategy_table *t, const tsri_op *op, tsri_strategies *s)
{
    tsri_rule *rule = NULL;
    s->op = op;
    s->id = t->count++;
    s->groups_index = -1;
    const bool has_rule = tsri_op_has_rule(op->kind);
    TSRI_TRY(has_rule ? derived_strategies(t, op, s, &rule) : source_strategies(t, op, s));
    tsri_op_work work = {0};
    if (rule) {
        work_of_rule(op, rule, &work);
        TSRI_TRY(tsri_strategies_prune(t, op, &work, rule, s));
    }
    s->cost = tsri_pool_alloc(t->pool, (size_t)s->n * sizeof *s->cost);
    s->usage = tsri_pool_alloc(t->pool, (size_t)s->n * sizeof *s->usage);
    TSRI_NEED(s->cost && s->usage);
    for (int i = 0; i < s->n; i++) {
        if (has_rule && !tsri_op_def_of(op->kind)->is_view) /* views take no time */
            s->cost[i] = tsri_op_times(op) * tsri_strategy_seconds(t, op, &work, &s->sig[i]) /
                         (float)tsri_op_every(op);
        for (int j = 0; j < op->nout; j++)
            s->usage[i] += tsri_part_bytes(op->out[j], op->placement, s->sig[i].out[j]);
    }
    return TSR_OK;
}

tsr_status tsri_strategies_of(tsri_strategy_table *t, const tsri_op *op,
                              tsri_strategies **out_strategies)
{
    tsri_strategies **bucket = &t->bucket[hash_op(t, op) % 1024];
    for (tsri_strategies *s = *bucket; s; s = s->next)
        if (tsri_strategies_same(t, s->op, op)) {
            *out_strategies = s;
            return TSR_OK;
        }
    tsri_strategies *s = tsri_pool_alloc(t->pool, sizeof *s);
    TSRI_NEED(s);
    TSRI_TRY(make(t, op, s));
    s->next = *bucket;
    *bucket = s;
    *out_strategies = s;
    return TSR_OK;
}
