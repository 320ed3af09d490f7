/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of sbp/rule/rule.h by recursive descent, one character of lookahead. */
#include "sbp/rule/types.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct parser {
    tsri_pool *pool;
    tsri_rule *rule;
    const char *at;
    const tsr_dims *in, *out;
    int nitems;
    int ellipsis; /* in the arg being parsed: the axis before which '...' stands; -1: nowhere */
    int widest;   /* the most axes that a '...' of an operand has stood for; -1: there was none */
} parser;

/* Fails with a text that begins with the place `at` of the parser's text. */
#define FAIL(p, at, ...)                                                                      \
    tsri_fail_prefix(tsri_fail(TSR_ERR_INTERNAL, __VA_ARGS__), "rule \"%.300s\": column %td", \
                     (p)->rule->text, (at) - (p)->rule->text + 1)

static char next(parser *p)
{
    while (*p->at == ' ')
        p->at++;
    return *p->at;
}

static bool accept(parser *p, char c)
{
    if (next(p) != c)
        return false;
    p->at++;
    return true;
}

static bool at_arrow(parser *p)
{
    return next(p) == '-' && p->at[1] == '>';
}

static tsr_status find_or_add(parser *p, const char *name, size_t n, int *out_index)
{
    tsri_rule *rule = p->rule;
    char key[TSRI_RULE_NAME_MAX] = {0};
    memcpy(key, name, n);
    for (int i = 0; i < rule->nindices; i++)
        if (!memcmp(rule->index[i].name, key, sizeof key)) {
            *out_index = i;
            return TSR_OK;
        }
    if (rule->nindices == TSRI_RULE_MAX_INDICES)
        return FAIL(p, p->at, "more than %d indices", TSRI_RULE_MAX_INDICES);
    memcpy(rule->index[rule->nindices].name, key, sizeof key);
    rule->index[rule->nindices].size = -1;
    *out_index = rule->nindices++;
    return TSR_OK;
}

static tsr_status hold(parser *p, tsri_rule_arg *arg, int index, int axis, const char *at)
{
    if (arg->holds >> index & 1)
        return FAIL(p, at, "index %s is twice in one operand", p->rule->index[index].name);
    arg->holds |= UINT32_C(1) << index;
    arg->axis_of[index] = (int8_t)axis;
    return TSR_OK;
}

/* name ['@'], the '@' only where it may stand. */
static tsr_status parse_name(parser *p, tsri_rule_arg *arg, bool may_at)
{
    const char *start = p->at++;
    int index = 0;
    while (isdigit((unsigned char)*p->at))
        p->at++;
    size_t n = (size_t)(p->at - start);
    if (n >= TSRI_RULE_NAME_MAX || isalpha((unsigned char)*p->at) || *p->at == '_')
        return FAIL(p, start, "an index is one letter, or a letter and at most %d digits",
                    TSRI_RULE_NAME_MAX - 2);
    TSRI_TRY(find_or_add(p, start, n, &index));
    TSRI_TRY(hold(p, arg, index, arg->naxes, start));
    p->rule->items[p->nitems++] = (int8_t)index;
    if (*p->at == '@' && may_at) {
        p->rule->index[index].at = true;
        p->at++;
    }
    return TSR_OK;
}

/* The text behind '('. */
static tsr_status parse_group(parser *p, tsri_rule_arg *arg)
{
    while (next(p) != ')') {
        if (isalpha((unsigned char)*p->at)) {
            TSRI_TRY(parse_name(p, arg, false));
        } else if (*p->at == '.' && p->at[1] != '.') {
            p->rule->items[p->nitems++] = TSRI_ITEM_DOT;
            p->at++;
        } else {
            return FAIL(p, p->at, "inside ( ) stand names and '.', then ')'");
        }
    }
    p->at++;
    return TSR_OK;
}

static tsr_status parse_dots(parser *p, const tsri_rule_arg *arg)
{
    const char *start = p->at;
    while (*p->at == '.')
        p->at++;
    if (p->at - start == 1) {
        p->rule->items[p->nitems++] = TSRI_ITEM_DOT;
        return TSR_OK;
    }
    if (p->at - start != 3)
        return FAIL(p, start, "%td dots; '.' is one axis, '...' any number", p->at - start);
    if (p->ellipsis >= 0)
        return FAIL(p, start, "a second '...' in one operand");
    p->ellipsis = arg->naxes;
    return TSR_OK;
}

static tsr_status parse_axis(parser *p, tsri_rule_arg *arg)
{
    const char *start = p->at;
    int before = p->nitems;
    if (isalpha((unsigned char)*p->at)) {
        TSRI_TRY(parse_name(p, arg, true));
    } else if (*p->at == '.') {
        TSRI_TRY(parse_dots(p, arg));
    } else if (*p->at == '1') {
        p->at++;
        if (isalnum((unsigned char)*p->at))
            return FAIL(p, start, "of numbers only 1 can be an axis");
        p->rule->items[p->nitems++] = TSRI_ITEM_ONE;
    } else {
        p->at++;
        TSRI_TRY(parse_group(p, arg));
    }
    if (p->nitems == before)
        return TSR_OK; /* '...' or '()' */
    if (arg->naxes == TSR_MAX_NDIM)
        return FAIL(p, start, "more than %d axes", TSR_MAX_NDIM);
    arg->axis[++arg->naxes] = (int16_t)p->nitems;
    return TSR_OK;
}

/* Puts the axes that '...' stands for where it stood. They are named from the right, so that they
 * meet those of other operands aligned from the right. */
static tsr_status expand(parser *p, tsri_rule_arg *arg, int ndim)
{
    int more = ndim - arg->naxes, first = arg->axis[p->ellipsis];
    int8_t *items = p->rule->items;
    memmove(items + first + more, items + first, (size_t)(p->nitems - first));
    for (int a = arg->naxes; a >= p->ellipsis; a--)
        arg->axis[a + more] = (int16_t)(arg->axis[a] + more);
    for (int l = 0; l < p->rule->nindices; l++)
        if ((arg->holds >> l & 1) && arg->axis_of[l] >= p->ellipsis)
            arg->axis_of[l] = (int8_t)(arg->axis_of[l] + more);
    arg->naxes = (int8_t)ndim;
    p->nitems += more;
    for (int i = 0; i < more; i++) {
        char name[TSRI_RULE_NAME_MAX] = {'~', (char)('0' + more - 1 - i)};
        int index = 0, axis = p->ellipsis + i;
        TSRI_TRY(find_or_add(p, name, 2, &index));
        TSRI_TRY(hold(p, arg, index, axis, p->at));
        items[first + i] = (int8_t)index;
        arg->axis[axis] = (int16_t)(first + i);
    }
    return TSR_OK;
}

/* dims: NULL where the shape is not known: a '...' then has as many axes as that of an operand. */
static tsr_status parse_axes(parser *p, tsri_rule_arg *arg, const tsr_dims *dims, const char *what,
                             int number)
{
    const char *start = p->at;
    bool scalar = false;
    p->ellipsis = -1;
    arg->used = true;
    arg->axis[0] = (int16_t)p->nitems;
    for (char c = next(p); isalpha((unsigned char)c) || c == '.' || c == '1' || c == '(';
         c = next(p)) {
        int before = p->nitems;
        if (scalar)
            return FAIL(p, p->at, "() is a scalar: no other axis beside it");
        TSRI_TRY(parse_axis(p, arg));
        scalar = c == '(' && p->nitems == before;
        if (scalar && (arg->naxes || p->ellipsis >= 0))
            return FAIL(p, p->at, "() is a scalar: no other axis beside it");
    }
    const int ndim =
        dims ? dims->ndim : arg->naxes + (p->ellipsis >= 0 && p->widest > 0 ? p->widest : 0);
    if (ndim < 0 || ndim > TSR_MAX_NDIM)
        return tsri_fail(TSR_ERR_SHAPE, "%s %d has %d axes; 0 to %d are possible", what, number,
                         ndim, TSR_MAX_NDIM);
    if (!arg->naxes && !scalar && p->ellipsis < 0 && (ndim > 0 || !dims))
        return FAIL(p, p->at, "an axis is expected; %s %d is no scalar", what, number);
    const int dots = ndim - arg->naxes;
    if (p->ellipsis >= 0) {
        p->rule->broadcasts |= p->widest >= 0 && dots != p->widest;
        p->widest = dots > p->widest ? dots : p->widest;
    }
    if (p->ellipsis >= 0 && arg->naxes <= ndim)
        TSRI_TRY(expand(p, arg, ndim));
    if (arg->naxes != ndim)
        return tsri_fail(
            TSR_ERR_SHAPE,
            "rule \"%.300s\": column %td: %s %d has %d axes in the rule, its shape has "
            "%d",
            p->rule->text, start - p->rule->text + 1, what, number, arg->naxes, ndim);
    return TSR_OK;
}

static tsr_status parse_operand(parser *p, tsri_subrule *r, int number, int group)
{
    if (number >= p->rule->nin)
        return FAIL(p, p->at, "an operand too many: the op has %d", p->rule->nin);
    tsri_rule_arg *arg = &r->in[number];
    arg->group = (int8_t)group;
    arg->reduce = TSRI_REDUCE_DEFAULT;
    if (accept(p, '_'))
        return TSR_OK;
    arg->nonlinear = accept(p, '!');
    arg->monotone = accept(p, '^');
    return parse_axes(p, arg, p->in ? &p->in[number] : NULL, "operand", number);
}

static tsr_status parse_operands(parser *p, tsri_subrule *r)
{
    int n = 0, group = 0;
    bool factors = false, more = !at_arrow(p);
    while (more) {
        TSRI_TRY(parse_operand(p, r, n++, group));
        if (accept(p, '+')) {
            group++;
        } else if (next(p) == ':') {
            if (factors || group)
                return FAIL(p, p->at, "':' follows the common factors, before the first '+'");
            p->at++;
            factors = true;
            for (int i = 0; i < n; i++)
                r->in[i].group = TSRI_GROUP_FACTOR;
            more = !at_arrow(p);
        } else {
            more = accept(p, ',');
        }
    }
    if (!at_arrow(p))
        return FAIL(p, p->at, "',', '+', ':' or '->' is expected");
    if (n != p->rule->nin)
        return FAIL(p, p->at, "%d operand%s; the op has %d", n, n == 1 ? "" : "s", p->rule->nin);
    p->at += 2;
    return TSR_OK;
}

static bool accept_word(parser *p, const char *word)
{
    next(p);
    if (strncmp(p->at, word, 3) != 0 || isalnum((unsigned char)p->at[3]))
        return false;
    p->at += 3;
    return true;
}

static tsr_status parse_output(parser *p, tsri_subrule *r, int number)
{
    if (number >= p->rule->nout)
        return FAIL(p, p->at, "an output too many: the op has %d", p->rule->nout);
    tsri_rule_arg *arg = &r->out[r->nout++];
    arg->reduce = (int8_t)(accept_word(p, "max")   ? TSR_REDUCE_MAX
                           : accept_word(p, "min") ? TSR_REDUCE_MIN
                                                   : TSRI_REDUCE_DEFAULT);
    return parse_axes(p, arg, p->out ? &p->out[number] : NULL, "output", number);
}

static tsr_status parse_rules(parser *p)
{
    tsri_rule *rule = p->rule;
    int nout = 0;
    do {
        tsri_subrule *r = &rule->rules[rule->nrules++];
        r->in = tsri_pool_alloc(p->pool, (size_t)rule->nin * sizeof *r->in);
        r->out = tsri_pool_alloc(p->pool, (size_t)(rule->nout - nout) * sizeof *r->out);
        TSRI_NEED(r->in && r->out);
        r->first_out = nout;
        TSRI_TRY(parse_operands(p, r));
        do {
            TSRI_TRY(parse_output(p, r, nout++));
        } while (accept(p, ','));
    } while (accept(p, ';'));
    if (next(p))
        return FAIL(p, p->at, "',', ';' or the end is expected after an output");
    if (nout != rule->nout)
        return FAIL(p, p->at, "%d output%s; the op has %d", nout, nout == 1 ? "" : "s", rule->nout);
    return TSR_OK;
}

tsr_status tsri_rule_parse(tsri_pool *pool, const char *text, int nin, const tsr_dims *in, int nout,
                           const tsr_dims *out, tsri_rule **out_rule)
{
    size_t length = strlen(text), nrules = 1, room = length;
    for (const char *c = text; *c; c++) {
        nrules += *c == ';';
        room += *c == '.' ? TSR_MAX_NDIM : 0; /* more than any '...' expands to */
    }
    /* Offsets of items are 16 bits wide. */
    if (nin > TSRI_RULE_MAX_ARGS || nout > TSRI_RULE_MAX_ARGS || room > INT16_MAX)
        return tsri_fail(
            TSR_ERR_INTERNAL,
            "a rule of %zu characters for %d operands and %d outputs; at most %d of each "
            "are possible",
            length, nin, nout, TSRI_RULE_MAX_ARGS);
    tsri_rule *rule = tsri_pool_alloc(pool, sizeof *rule);
    TSRI_NEED(rule);
    rule->nin = nin;
    rule->nout = nout;
    rule->text = tsri_pool_strdup(pool, text);
    rule->rules = tsri_pool_alloc(pool, nrules * sizeof *rule->rules);
    rule->items = tsri_pool_alloc(pool, room + 1);
    TSRI_NEED(rule->text && rule->rules && rule->items);
    parser p = {.pool = pool, .rule = rule, .at = rule->text, .in = in, .out = out, .widest = -1};
    TSRI_TRY(parse_rules(&p));
    *out_rule = rule;
    return TSR_OK;
}
