/* SPDX-License-Identifier: Apache-2.0 */
/* Binding a rule to shapes: the sizes of its indices, and which axes are broadcast. */
#include "sbp/rule/types.h"

#include <string.h>

/* An arg with its shape. */
typedef struct bound_arg {
    tsri_rule_arg *arg;
    const tsr_dims *dims;
    bool is_output;
    int number;
} bound_arg;

typedef struct binder {
    tsri_rule *rule;
    const tsr_dims *in, *out; /* out NULL: only the operands are bound */
} binder;

/* An axis as far as its indices are known. */
typedef struct content {
    int unknown, last_unknown; /* indices without a size: how many, and the last of them */
    bool dots;
    int64_t known; /* product of the known sizes; at most INT64_MAX */
} content;

static content content_of(const tsri_rule *rule, const tsri_rule_arg *arg, int axis)
{
    content c = {.known = 1};
    for (int i = arg->axis[axis]; i < arg->axis[axis + 1]; i++) {
        int item = rule->items[i];
        if (item < 0) {
            c.dots |= item == TSRI_ITEM_DOT;
        } else if (rule->index[item].size < 0) {
            c.unknown++;
            c.last_unknown = item;
        } else if (__builtin_mul_overflow(c.known, rule->index[item].size, &c.known)) {
            c.known = INT64_MAX;
        }
    }
    return c;
}

static tsr_status fail_size(const tsri_rule *rule, bound_arg b, int axis, const char *how,
                            int64_t wanted)
{
    return tsri_fail(TSR_ERR_SHAPE,
                     "rule \"%.300s\": axis %d of %s %d has size %lld, which must be %s%lld",
                     rule->text, axis, b.is_output ? "output" : "operand", b.number,
                     (long long)b.dims->d[axis], how, (long long)wanted);
}

static tsr_status fail_axis(const tsri_rule *rule, bound_arg b, int axis, content c)
{
    const char *kind = b.is_output ? "output" : "operand";
    long long size = b.dims->d[axis];
    int item = rule->items[b.arg->axis[axis]];
    if (c.unknown)
        return tsri_fail(TSR_ERR_INTERNAL,
                         "rule \"%.300s\": the size of index %s in %s %d follows from no shape and "
                         "was not given",
                         rule->text, rule->index[c.last_unknown].name, kind, b.number);
    if (b.arg->axis[axis + 1] - b.arg->axis[axis] == 1 && item >= 0)
        return tsri_fail(TSR_ERR_SHAPE,
                         "rule \"%.300s\": axis %d of %s %d has size %lld, but index %s has size "
                         "%lld elsewhere",
                         rule->text, axis, kind, b.number, size, rule->index[item].name,
                         (long long)c.known);
    return fail_size(rule, b, axis, c.dots ? "a multiple of " : "", c.known);
}

/* Calls fn for every axis of every arg that is used. */
typedef tsr_status axis_fn(tsri_rule *rule, bound_arg b, int axis, void *ctx);

static tsr_status each_axis(const binder *b, axis_fn *fn, void *ctx)
{
    for (int r = 0; r < b->rule->nrules; r++) {
        tsri_subrule *sub = &b->rule->rules[r];
        for (int i = 0; i < b->rule->nin; i++)
            for (int a = 0; a < sub->in[i].naxes; a++)
                TSRI_TRY(fn(b->rule, (bound_arg){&sub->in[i], &b->in[i], false, i}, a, ctx));
        for (int i = 0; i < sub->nout && b->out; i++)
            for (int a = 0; a < sub->out[i].naxes; a++) {
                int number = sub->first_out + i;
                TSRI_TRY(
                    fn(b->rule, (bound_arg){&sub->out[i], &b->out[number], true, number}, a, ctx));
            }
    }
    return TSR_OK;
}

typedef struct learner {
    bool changed;
    bool ones; /* axes of size 1 of operands tell a size too: nothing larger is there */
} learner;

/* Learns the size of an axis's only unknown index. */
static tsr_status learn(tsri_rule *rule, bound_arg b, int axis, void *ctx)
{
    learner *l = ctx;
    content c = content_of(rule, b.arg, axis);
    int64_t size = b.dims->d[axis];
    if (!c.unknown)
        return TSR_OK;
    if (size == 1 && !b.is_output && !l->ones)
        return TSR_OK;
    if (size == 1 && c.known == 1) {
        for (int i = b.arg->axis[axis]; i < b.arg->axis[axis + 1]; i++)
            if (rule->items[i] >= 0)
                rule->index[rule->items[i]].size = 1;
        l->changed = true;
    } else if (c.unknown == 1 && !c.dots && c.known) {
        if (size % c.known)
            return fail_size(rule, b, axis, "a multiple of ", c.known);
        rule->index[c.last_unknown].size = size / c.known;
        l->changed = true;
    }
    return TSR_OK;
}

/* Holds an axis against the sizes: turns it into '1' where it is broadcast, and a '.' inside ( ) to
 * which nothing is left into a '1'. */
static tsr_status settle(tsri_rule *rule, bound_arg b, int axis, void *ctx)
{
    (void)ctx;
    content c = content_of(rule, b.arg, axis);
    int first = b.arg->axis[axis], end = b.arg->axis[axis + 1];
    int64_t size = b.dims->d[axis];
    if (rule->items[first] == TSRI_ITEM_ONE)
        return size == 1 ? TSR_OK : fail_axis(rule, b, axis, c);
    if (size == 1 && !b.is_output && (c.unknown || c.known != 1)) {
        rule->broadcasts |= c.known != 1;
        for (int i = first; i < end; i++) {
            if (rule->items[i] >= 0)
                b.arg->holds &= ~(UINT32_C(1) << rule->items[i]);
            rule->items[i] = TSRI_ITEM_ONE;
        }
        return TSR_OK;
    }
    bool fits = !c.dots ? size == c.known : c.known ? size % c.known == 0 : size == 0;
    if (c.unknown || !fits)
        return fail_axis(rule, b, axis, c);
    if (c.dots && end - first > 1 && size == c.known && size > 0)
        for (int i = first; i < end; i++)
            if (rule->items[i] == TSRI_ITEM_DOT)
                rule->items[i] = TSRI_ITEM_ONE;
    return TSR_OK;
}

static tsr_status check_dims(const char *what, int n, const tsr_dims *dims)
{
    for (int i = 0; i < n; i++)
        for (int a = 0; a < dims[i].ndim; a++)
            if (dims[i].d[a] < 0)
                return tsri_fail(TSR_ERR_SHAPE, "axis %d of %s %d has size %lld", a, what, i,
                                 (long long)dims[i].d[a]);
    return TSR_OK;
}

static tsr_status take_sizes(tsri_rule *rule, int nsizes, const tsri_index_size *sizes)
{
    for (int i = 0; i < nsizes; i++) {
        int index = tsri_rule_find_index(rule, sizes[i].name);
        if (sizes[i].size < 0)
            return tsri_fail(TSR_ERR_INTERNAL, "rule \"%.300s\": index %.7s was given size %lld",
                             rule->text, sizes[i].name, (long long)sizes[i].size);
        if (index >= 0)
            rule->index[index].size = sizes[i].size;
    }
    return TSR_OK;
}

static tsr_status learn_sizes(const binder *b)
{
    for (int ones = 0; ones < 2; ones++) {
        learner l = {.changed = true, .ones = ones};
        while (l.changed) {
            l.changed = false;
            TSRI_TRY(each_axis(b, learn, &l));
        }
    }
    return TSR_OK;
}

tsr_status tsri_rule_bind(tsri_pool *pool, const char *text, int nin, const tsr_dims *in, int nout,
                          const tsr_dims *out, int nsizes, const tsri_index_size *sizes,
                          tsri_rule **out_rule)
{
    tsri_rule *rule;
    TSRI_TRY(tsri_rule_parse(pool, text, nin, in, nout, out, &rule));
    TSRI_TRY(check_dims("operand", nin, in));
    TSRI_TRY(check_dims("output", nout, out));
    TSRI_TRY(take_sizes(rule, nsizes, sizes));
    binder b = {rule, in, out};
    TSRI_TRY(learn_sizes(&b));
    TSRI_TRY(each_axis(&b, settle, NULL));
    for (int i = 0; i < rule->nindices; i++) {
        /* Left are indices whose every axis is broadcast. */
        if (rule->index[i].size < 0)
            rule->index[i].size = 1;
        rule->index[i].lesser = rule->index[i].size;
    }
    *out_rule = rule;
    return TSR_OK;
}

tsr_status tsri_rule_check_text(tsri_pool *pool, const char *text, int nin, int nout)
{
    tsri_rule *rule;
    return tsri_rule_parse(pool, text, nin, NULL, nout, NULL, &rule);
}

tsr_status tsri_rule_shapes(tsri_pool *pool, const char *text, int nin, const tsr_dims *in,
                            int nout, tsr_dims *out)
{
    tsri_rule *rule;
    TSRI_TRY(tsri_rule_parse(pool, text, nin, in, nout, NULL, &rule));
    TSRI_TRY(check_dims("operand", nin, in));
    TSRI_TRY(learn_sizes(&(binder){rule, in, NULL}));
    for (int r = 0; r < rule->nrules; r++)
        for (int i = 0; i < rule->rules[r].nout; i++) {
            const tsri_rule_arg *arg = &rule->rules[r].out[i];
            tsr_dims *dims = &out[rule->rules[r].first_out + i];
            *dims = (tsr_dims){.ndim = arg->naxes};
            for (int a = 0; a < arg->naxes; a++) {
                const content c = content_of(rule, arg, a);
                if (c.unknown || c.dots)
                    return tsri_fail(TSR_ERR_INTERNAL,
                                     "rule \"%.300s\": the size of axis %d of output %d follows "
                                     "from no operand",
                                     rule->text, a, rule->rules[r].first_out + i);
                dims->d[a] = c.known;
            }
        }
    return TSR_OK;
}

/* Whether an operand is one of several addends, each of it alone, of one subrule. */
static bool is_added(const tsri_subrule *sub, int nin, int operand)
{
    bool others = false;
    for (int i = 0; i < nin; i++) {
        const tsri_rule_arg *arg = &sub->in[i];
        if (i == operand || !arg->used)
            continue;
        if (arg->group == TSRI_GROUP_FACTOR || arg->group == sub->in[operand].group)
            return false;
        others = true;
    }
    return others && sub->in[operand].group != TSRI_GROUP_FACTOR;
}

uint32_t tsri_rule_added(const tsri_rule *rule)
{
    uint32_t added = 0;
    for (int i = 0; i < rule->nin; i++) {
        bool always = true;
        for (int r = 0; r < rule->nrules; r++)
            always &= !rule->rules[r].in[i].used || is_added(&rule->rules[r], rule->nin, i);
        added |= (uint32_t)always << i;
    }
    return added;
}

bool tsri_rule_broadcasts(const tsri_rule *rule)
{
    return rule->broadcasts;
}

int tsri_rule_nindices(const tsri_rule *rule)
{
    return rule->nindices;
}

const char *tsri_rule_index_name(const tsri_rule *rule, int index)
{
    return rule->index[index].name;
}

int64_t tsri_rule_index_size(const tsri_rule *rule, int index)
{
    return rule->index[index].size;
}

bool tsri_rule_needs_offset(const tsri_rule *rule, int index)
{
    return rule->index[index].at;
}

int tsri_rule_find_index(const tsri_rule *rule, const char *name)
{
    for (int i = 0; i < rule->nindices; i++)
        if (!strncmp(rule->index[i].name, name, TSRI_RULE_NAME_MAX))
            return i;
    return -1;
}
