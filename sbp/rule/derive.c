/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a bound rule to its legal 1-D signatures over k parts. The argument, per rule: an output is
 * a reduction, over the indices that it lacks, of a sum of products. Each part of a split index
 * then gives a piece of an output that has it, and an addend of one that lacks it; a product is
 * linear in each of its operands, so an addend of an operand gives an addend of the product.
 */
#include "sbp/rule/types.h"

#include <string.h>

typedef tsri_rule_entry entry;

typedef struct list {
    tsri_pool *pool;
    entry *items;
    int count, capacity;
    uint32_t holds; /* indices of the rule or rules that the signatures are of */
} list;

typedef struct deriver {
    const tsri_rule *rule;
    const tsri_subrule *sub;
    int k;
    list *list;
    uint32_t addends;                   /* bit a: addend a has an operand in this rule */
    uint32_t holds[TSRI_RULE_MAX_ARGS]; /* indices of addend a and of the factors before it */
    uint32_t factors;                   /* indices of the common factors */
    uint32_t summed;                    /* splittable indices that every output lacks and sums */
    /* While the addends are made partial one by one: the indices split and operands partial. */
    uint32_t chosen, partial;
    int way_index[TSRI_RULE_MAX_ARGS]; /* of addend a, or -1 */
} deriver;

static const tsr_sbp1 sbp_b = {TSR_SBP_BROADCAST, 0};

static tsr_sbp1 sbp_s(int axis)
{
    return (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)axis};
}

static tsr_sbp1 sbp_p(int op)
{
    return (tsr_sbp1){TSR_SBP_PARTIAL, (int8_t)op};
}

static int reduction(const tsri_rule_arg *out)
{
    return out->reduce == TSRI_REDUCE_DEFAULT ? TSR_REDUCE_SUM : out->reduce;
}

static bool has(uint32_t mask, int bit)
{
    return mask >> bit & 1;
}

static tsr_status push(list *l, const tsri_rule *rule, const tsri_signature *sig, uint32_t split)
{
    for (int i = 0; i < l->count; i++)
        if (!memcmp(l->items[i].sig.in, sig->in, (size_t)rule->nin * sizeof *sig->in) &&
            !memcmp(l->items[i].sig.out, sig->out, (size_t)rule->nout * sizeof *sig->out))
            return TSR_OK;
    TSRI_NEED(TSRI_PUSH(l->pool, l->items, l->count, l->capacity));
    entry *it = &l->items[l->count++];
    *it = (entry){*sig, split};
    it->sig.index = split ? __builtin_ctz(split) : -1;
    return TSR_OK;
}

/* All operands B (unused ones free: AUTO), this rule's outputs `out`. */
static tsri_signature start(const deriver *d, tsr_sbp1 out)
{
    tsri_signature sig = {.index = -1};
    for (int i = 0; i < d->rule->nin; i++)
        if (d->sub->in[i].used)
            sig.in[i] = sbp_b;
    for (int i = 0; i < d->sub->nout; i++)
        sig.out[d->sub->first_out + i] = out;
    return sig;
}

static void split_operands(const deriver *d, uint32_t indices, tsri_signature *sig)
{
    for (int i = 0; i < d->rule->nin; i++) {
        uint32_t held = d->sub->in[i].holds & indices;
        if (held)
            sig->in[i] = sbp_s(d->sub->in[i].axis_of[__builtin_ctz(held)]);
    }
}

/* Whether an item of an axis has size 1, on every part. */
static bool is_one(const tsri_rule *rule, int item)
{
    return item == TSRI_ITEM_ONE ||
           (item >= 0 && rule->index[item].size == 1 && rule->index[item].lesser == 1);
}

static bool splits_axis(const deriver *d, const tsri_rule_arg *arg, int index)
{
    if (!has(arg->holds, index))
        return true;
    int axis = arg->axis_of[index], i = arg->axis[axis];
    for (; d->rule->items[i] != index; i++)
        if (!is_one(d->rule, d->rule->items[i]))
            return false;
    for (i++; i < arg->axis[axis + 1]; i++)
        if (!is_one(d->rule, d->rule->items[i]))
            return d->rule->index[index].size % d->k == 0 &&
                   d->rule->index[index].lesser % d->k == 0;
    return true;
}

static bool splittable(const deriver *d, int index)
{
    for (int i = 0; i < d->rule->nin; i++)
        if (!splits_axis(d, &d->sub->in[i], index))
            return false;
    for (int i = 0; i < d->sub->nout; i++)
        if (!splits_axis(d, &d->sub->out[i], index))
            return false;
    return true;
}

/* Whether every addend is a sum over the index, by an operand of its own or a common factor. */
static bool all_addends_hold(const deriver *d, int index)
{
    for (int a = 0; a < d->rule->nin; a++)
        if (has(d->addends, a) && !has(d->holds[a], index))
            return false;
    return d->addends || has(d->factors, index);
}

/* Splits one index: outputs that have it are split, those that lack it partial. */
static tsr_status derive_split(deriver *d, int index)
{
    tsri_signature sig = start(d, sbp_b);
    bool reduced = false;
    split_operands(d, UINT32_C(1) << index, &sig);
    for (int i = 0; i < d->sub->nout; i++) {
        const tsri_rule_arg *out = &d->sub->out[i];
        bool held = has(out->holds, index);
        reduced |= !held;
        sig.out[d->sub->first_out + i] = held ? sbp_s(out->axis_of[index]) : sbp_p(reduction(out));
    }
    if (reduced && !all_addends_hold(d, index))
        return TSR_OK;
    return push(d->list, d->rule, &sig, UINT32_C(1) << index);
}

static tsr_status finish_partial(deriver *d)
{
    for (int a = 0; a < d->rule->nin; a++) {
        uint32_t split = has(d->addends, a) ? d->holds[a] & d->chosen : 0;
        /* An index that another addend chose splits this one as well, so it must be its way too. */
        if (split && (d->way_index[a] < 0 || split != UINT32_C(1) << d->way_index[a]))
            return TSR_OK;
    }
    tsri_signature sig = start(d, sbp_p(TSR_REDUCE_SUM));
    split_operands(d, d->chosen, &sig);
    for (int i = 0; i < d->rule->nin; i++)
        if (has(d->partial, i))
            sig.in[i] = sbp_p(TSR_REDUCE_SUM);
    return push(d->list, d->rule, &sig, d->chosen);
}

/* Makes addend a and those after it partial, each in every way that it has. */
static tsr_status derive_partial(deriver *d, int a)
{
    while (a < d->rule->nin && !has(d->addends, a))
        a++;
    if (a == d->rule->nin)
        return finish_partial(d);
    for (int i = 0; i < d->rule->nin; i++) {
        const tsri_rule_arg *arg = &d->sub->in[i];
        if (!arg->used || arg->nonlinear || arg->group != a)
            continue;
        d->way_index[a] = -1;
        d->partial |= UINT32_C(1) << i;
        TSRI_TRY(derive_partial(d, a + 1));
        d->partial &= ~(UINT32_C(1) << i);
    }
    uint32_t before = d->chosen;
    for (uint32_t left = d->holds[a] & d->summed; left; left &= left - 1) {
        d->way_index[a] = __builtin_ctz(left);
        d->chosen = before | (left & -left);
        TSRI_TRY(derive_partial(d, a + 1));
        d->chosen = before;
    }
    return TSR_OK;
}

/* P(sum) results: of all addends, or of one factor common to them. */
static tsr_status derive_sums(deriver *d)
{
    for (int i = 0; i < d->sub->nout; i++)
        if (d->sub->out[i].reduce != TSRI_REDUCE_DEFAULT)
            return TSR_OK;
    if (d->addends)
        TSRI_TRY(derive_partial(d, 0));
    for (int i = 0; i < d->rule->nin; i++) {
        const tsri_rule_arg *arg = &d->sub->in[i];
        if (!arg->used || arg->nonlinear || arg->group != TSRI_GROUP_FACTOR)
            continue;
        tsri_signature sig = start(d, sbp_p(TSR_REDUCE_SUM));
        sig.in[i] = sbp_p(TSR_REDUCE_SUM);
        TSRI_TRY(push(d->list, d->rule, &sig, 0));
    }
    return TSR_OK;
}

/* P(max) or P(min) results of all addends, where each is an operand that commutes with them. */
static tsr_status derive_extrema(const deriver *d, tsr_reduce_op op)
{
    tsri_signature sig = start(d, sbp_p(op));
    uint32_t seen = 0;
    for (int i = 0; i < d->rule->nin; i++) {
        const tsri_rule_arg *arg = &d->sub->in[i];
        if (!arg->used || arg->group == TSRI_GROUP_FACTOR)
            continue;
        if (!arg->monotone || has(seen, arg->group))
            return TSR_OK;
        seen |= UINT32_C(1) << arg->group;
        sig.in[i] = sbp_p(op);
    }
    return push(d->list, d->rule, &sig, 0);
}

/* P(max) or P(min) results of one operand that commutes with them, or of all addends where there
 * are several, where no output reduces by something else. */
static tsr_status derive_extremum(deriver *d, tsr_reduce_op op, uint32_t held)
{
    for (int i = 0; i < d->sub->nout; i++) {
        const tsri_rule_arg *out = &d->sub->out[i];
        if (out->reduce == TSRI_REDUCE_DEFAULT ? (held & ~out->holds) != 0 : out->reduce != (int)op)
            return TSR_OK;
    }
    for (int i = 0; i < d->rule->nin; i++) {
        if (!d->sub->in[i].used || !d->sub->in[i].monotone)
            continue;
        tsri_signature sig = start(d, sbp_p(op));
        sig.in[i] = sbp_p(op);
        TSRI_TRY(push(d->list, d->rule, &sig, 0));
    }
    return d->addends & (d->addends - 1) ? derive_extrema(d, op) : TSR_OK;
}

/* All signatures of one rule; the operands that it does not use stay AUTO. */
static tsr_status derive_rule(const tsri_rule *rule, const tsri_subrule *sub, int k, list *l)
{
    deriver d = {.rule = rule, .sub = sub, .k = k, .list = l};
    uint32_t in = 0, any = 0, common = UINT32_MAX;
    for (int i = 0; i < rule->nin; i++) {
        const tsri_rule_arg *arg = &sub->in[i];
        in |= arg->holds;
        if (arg->used && arg->group == TSRI_GROUP_FACTOR)
            d.factors |= arg->holds;
        if (arg->used && arg->group >= 0) {
            d.addends |= UINT32_C(1) << arg->group;
            d.holds[arg->group] |= arg->holds;
        }
    }
    for (int a = 0; a < rule->nin; a++)
        d.holds[a] |= d.factors;
    for (int i = 0; i < sub->nout; i++) {
        any |= sub->out[i].holds;
        common &= sub->out[i].holds;
    }
    tsri_signature all_b = start(&d, sbp_b);
    TSRI_TRY(push(l, rule, &all_b, 0));
    l->holds = in | any;
    if (k == 1)
        return TSR_OK;
    for (int index = 0; index < rule->nindices; index++) {
        if (!has(in | any, index) || !splittable(&d, index))
            continue;
        if (!has(any, index))
            d.summed |= UINT32_C(1) << index;
        TSRI_TRY(derive_split(&d, index));
    }
    TSRI_TRY(derive_sums(&d));
    TSRI_TRY(derive_extremum(&d, TSR_REDUCE_MAX, in));
    return derive_extremum(&d, TSR_REDUCE_MIN, in);
}

/* Writes the signature that two rules' signatures make together. False if they do not agree on an
 * operand that both use (a free one agrees with all), or on whether an index that both have is
 * split: an index has one local size. */
static bool join_pair(const tsri_rule *rule, const list *a, const entry *x, const list *b,
                      const entry *y, tsri_signature *out)
{
    if ((x->split & b->holds) != (y->split & a->holds))
        return false;
    *out = x->sig;
    for (int i = 0; i < rule->nin; i++) {
        if (out->in[i].kind == TSR_SBP_AUTO)
            out->in[i] = y->sig.in[i];
        else if (y->sig.in[i].kind != TSR_SBP_AUTO &&
                 memcmp(&out->in[i], &y->sig.in[i], sizeof out->in[i]) != 0)
            return false;
    }
    for (int i = 0; i < rule->nout; i++)
        if (out->out[i].kind == TSR_SBP_AUTO)
            out->out[i] = y->sig.out[i];
    return true;
}

static tsr_status join(const tsri_rule *rule, const list *a, const list *b, list *out)
{
    out->holds = a->holds | b->holds;
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++) {
            tsri_signature sig;
            if (join_pair(rule, a, &a->items[i], b, &b->items[j], &sig))
                TSRI_TRY(push(out, rule, &sig, a->items[i].split | b->items[j].split));
        }
    return TSR_OK;
}

tsr_status tsri_rule_entries(tsri_pool *pool, const tsri_rule *rule, int k, int *out_count,
                             tsri_rule_entry **out_entries)
{
    if (k < 1)
        return tsri_fail(TSR_ERR_INTERNAL, "rule \"%.300s\": signatures over %d parts", rule->text,
                         k);
    list all = {.pool = pool};
    for (int r = 0; r < rule->nrules; r++) {
        list own = {.pool = pool}, joined = {.pool = pool};
        TSRI_TRY(derive_rule(rule, &rule->rules[r], k, &own));
        if (r)
            TSRI_TRY(join(rule, &all, &own, &joined));
        all = r ? joined : own;
    }
    for (int i = 0; i < all.count; i++)
        for (int o = 0; o < rule->nin; o++)
            if (all.items[i].sig.in[o].kind == TSR_SBP_AUTO)
                all.items[i].sig.in[o] = sbp_b; /* no rule uses it */
    *out_count = all.count;
    *out_entries = all.items;
    return TSR_OK;
}

tsr_status tsri_rule_derive(tsri_pool *pool, const tsri_rule *rule, int k, int *out_count,
                            tsri_signature **out_signatures)
{
    int n;
    tsri_rule_entry *entries;
    TSRI_TRY(tsri_rule_entries(pool, rule, k, &n, &entries));
    tsri_signature *sigs = tsri_pool_alloc(pool, (size_t)n * sizeof *sigs);
    TSRI_NEED(sigs);
    for (int i = 0; i < n; i++)
        sigs[i] = entries[i].sig;
    *out_count = n;
    *out_signatures = sigs;
    return TSR_OK;
}
