/* SPDX-License-Identifier: Apache-2.0 */
/* Overrides: "path=value" put into a tree. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/config/tree_index.h"

typedef struct setter {
    tsri_pool *pool;
    const char *text, *at;
    const char *file; /* of the nodes that are added */
    tsri_yaml *node;  /* what the path so far names */
    int key_column;   /* of the last key or index */
    int depth;
} setter;

static tsr_status fail(const setter *s, const char *at, const char *what)
{
    return tsri_fail(TSR_ERR_FORMAT, "--set %.200s: column %td: %s", s->text, at - s->text + 1,
                     what);
}

static tsri_yaml *new_node(const setter *s)
{
    tsri_yaml *node = tsri_pool_alloc(s->pool, sizeof *node);
    if (node)
        *node = (tsri_yaml){.kind = TSRI_YAML_SCALAR,
                            .text = "",
                            .file = s->file,
                            .line = 1,
                            .column = (int)(s->at - s->text) + 1,
                            .key_line = 1,
                            .key_column = (int)(s->at - s->text) + 1};
    return node;
}

/* Whether there is nothing yet, so that the path may make it what it needs. */
static bool is_empty(const tsri_yaml *node)
{
    return node->kind == TSRI_YAML_SCALAR && !node->quoted && !node->text[0];
}

static tsr_status step_key(setter *s)
{
    const char *start = s->at;
    size_t n = strcspn(start, ".[=");
    if (!n)
        return fail(s, start, "a key is expected, as in train.steps=5");
    if (is_empty(s->node))
        s->node->kind = TSRI_YAML_MAP;
    if (s->node->kind != TSRI_YAML_MAP)
        return fail(s, start, "what stands before it has no keys");
    tsri_yaml *child = tsri_yaml_find_n(s->node, start, n);
    if (!child) {
        char *key = tsri_pool_alloc(s->pool, n + 1);
        child = new_node(s);
        TSRI_NEED(key && child);
        memcpy(key, start, n);
        child->key = key;
        tsri_yaml_append(s->node, child);
        TSRI_TRY(tsri_yaml_index(s->pool, s->node));
    }
    s->node = child;
    s->at += n;
    return TSR_OK;
}

static tsr_status step_index(setter *s)
{
    const char *start = ++s->at;
    int i = 0;
    char what[80];
    for (; isdigit((unsigned char)*s->at); s->at++)
        i = i < TSRI_YAML_MAX_NODES ? i * 10 + (*s->at - '0') : i;
    if (s->at == start || *s->at != ']')
        return fail(s, start, "a number and ']' are expected, as in in[1]");
    s->at++;
    if (is_empty(s->node))
        s->node->kind = TSRI_YAML_LIST;
    if (s->node->kind != TSRI_YAML_LIST)
        return fail(s, start, "what stands before it is no list");
    if (i > s->node->n) {
        snprintf(what, sizeof what, "the list has %d entr%s; [%d] would add one", s->node->n,
                 s->node->n == 1 ? "y" : "ies", s->node->n);
        return fail(s, start, what);
    }
    if (i == s->node->n) {
        tsri_yaml *child = new_node(s);
        TSRI_NEED(child);
        tsri_yaml_append(s->node, child);
    }
    tsri_yaml *c = s->node->first;
    while (i-- > 0)
        c = c->next;
    s->node = c;
    return TSR_OK;
}

static tsr_status walk(setter *s)
{
    for (bool more = true; more;) {
        if (++s->depth > TSRI_YAML_MAX_DEPTH)
            return fail(s, s->at, "the path is too deep");
        s->key_column = (int)(s->at - s->text) + 1;
        if (*s->at == '[')
            TSRI_TRY(step_index(s));
        else
            TSRI_TRY(step_key(s));
        more = *s->at != '=';
        if (*s->at == '.')
            s->at++;
        else if (more && *s->at != '[')
            return fail(s, s->at, "'=' and a value are expected, as in train.steps=5");
    }
    s->at++;
    return TSR_OK;
}

/* Columns count from the start of the whole text. */
static void shift(tsri_yaml *node, int columns)
{
    for (tsri_yaml *c = node->first; c; c = c->next)
        shift(c, columns);
    if (node->line == 1)
        node->column += columns;
    if (node->key_line == 1)
        node->key_column += columns;
}

tsr_status tsri_yaml_set(tsri_pool *pool, tsri_yaml *root, const char *text)
{
    char *name = tsri_pool_printf(pool, "--set %s", text);
    TSRI_NEED(name);
    setter s = {.pool = pool, .text = text, .at = text, .file = name, .node = root};
    TSRI_TRY(walk(&s));
    tsri_yaml *value = NULL, *to = s.node;
    if (!*s.at)
        return fail(&s, s.at, "a value is expected after '='; \"\" is an empty text");
    TSRI_TRY(tsri_yaml_parse(pool, name, s.at, strlen(s.at), &value));
    shift(value, (int)(s.at - text));
    to->kind = value->kind;
    to->quoted = value->quoted;
    to->line = to->key_line = 1;
    to->column = value->column;
    to->key_column = s.key_column;
    to->file = name;
    to->text = value->text;
    to->n = value->n;
    to->first = value->first;
    to->last = value->last;
    to->slots = value->slots;
    to->nslots = value->nslots;
    for (tsri_yaml *c = to->first; c; c = c->next)
        c->parent = to;
    return TSR_OK;
}
