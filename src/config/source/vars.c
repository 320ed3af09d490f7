/* SPDX-License-Identifier: Apache-2.0 */
/* Variables: `vars: {batch: 64}`, and ${batch} in the place of a value or within a text. */
#include <stdio.h>
#include <string.h>

#include "src/config/source/source.h"
#include "src/config/tree_index.h"

enum { MOST_BYTES = 4096 };

typedef enum state { RAW = 0, OPEN, KNOWN } state;

typedef struct variables {
    const tsri_reader *reader;
    tsri_yaml *map; /* `vars`; NULL: the file has none */
    state *states;  /* by the map's index */
    bool *used;
} variables;

static tsr_status expand(variables *v, tsri_yaml *node);

/* --- names ------------------------------------------------------------------------------------ */
static const char *near_name(const variables *v, const tsri_yaml *except, const char *name,
                             char mean[TSRI_YAML_TEXT_MAX])
{
    enum { MOST = 256 };
    const char *names[MOST];
    int n = 0;
    for (const tsri_yaml *c = v->map ? v->map->first : NULL; c && n < MOST; c = c->next)
        if (c != except)
            names[n++] = c->key;
    return tsri_did_you_mean(name, n, names, sizeof *names, mean);
}

static tsr_status unknown(const variables *v, const tsri_yaml *node, const char *name)
{
    char list[TSRI_YAML_TEXT_MAX] = "", mean[TSRI_YAML_TEXT_MAX];
    size_t used = 0;
    if (!v->map || !v->map->n)
        return tsri_yaml_fail(node, "there is no variable '%.60s': 'vars' is missing", name);
    for (const tsri_yaml *c = v->map->first; c && used < 200; c = c->next)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%.40s", used ? ", " : "", c->key);
    return tsri_yaml_fail(node, "there is no variable '%.60s'; legal are %s%s", name, list,
                          near_name(v, NULL, name, mean));
}

/* Finds the variable of the n bytes at `name`, and its value. */
static tsr_status find(variables *v, const tsri_yaml *node, const char *name, size_t n,
                       const tsri_yaml **out_value)
{
    char copy[TSRI_YAML_TEXT_MAX];
    tsri_yaml *value = tsri_yaml_find_n(v->map, name, n);
    snprintf(copy, sizeof copy, "%.*s", n < sizeof copy ? (int)n : (int)sizeof copy - 1, name);
    if (!tsri_is_name(copy))
        return tsri_yaml_fail(node,
                              "'${%.60s}' has no name of a variable; a text with ${ in it is "
                              "written $${",
                              copy);
    if (!value)
        return unknown(v, node, copy);
    if (v->states[value->index] == OPEN)
        return tsri_yaml_fail(node, "'%.60s' is made of itself", copy);
    v->used[value->index] = true;
    TSRI_TRY(expand(v, value));
    *out_value = value;
    return TSR_OK;
}

/* --- texts ------------------------------------------------------------------------------------ */
/* Whether all of a text is one ${name}. */
static bool is_whole(const char *text)
{
    const char *end = strchr(text, '}');
    return !strncmp(text, "${", 2) && end && !end[1];
}

/* Builds a text whose parts ${name} are replaced, and $${ is ${. */
static tsr_status paste(variables *v, tsri_yaml *node)
{
    char text[MOST_BYTES + 1];
    size_t used = 0;
    for (const char *at = node->text; *at;) {
        const char *from = at, *end = NULL;
        size_t n = 1;
        if (!strncmp(at, "$${", 3)) {
            from = at + 1;
            n = 2;
            at += 3;
        } else if (!strncmp(at, "${", 2)) {
            const tsri_yaml *value = NULL;
            end = strchr(at, '}');
            if (!end)
                return tsri_yaml_fail(node, "'${' without '}'; a text with ${ in it is written "
                                            "$${");
            TSRI_TRY(find(v, node, at + 2, (size_t)(end - at) - 2, &value));
            from = value->text;
            n = strlen(from);
            at = end + 1;
        } else {
            at++;
        }
        if (n > MOST_BYTES - used)
            return tsri_yaml_fail(node, "more than %d bytes with its variables' values",
                                  MOST_BYTES);
        memcpy(text + used, from, n);
        used += n;
    }
    text[used] = 0;
    node->text = tsri_pool_dup(v->reader->pool, text, used + 1);
    return node->text ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status expand_text(variables *v, tsri_yaml *node)
{
    const tsri_yaml *value = NULL;
    if (!strstr(node->text, "${"))
        return TSR_OK;
    if (!is_whole(node->text))
        return paste(v, node);
    TSRI_TRY(find(v, node, node->text + 2, strlen(node->text) - 3, &value));
    node->text = value->text;
    node->quoted = value->quoted;
    node->from = value->from ? value->from : value->file;
    return TSR_OK;
}

/* --- the tree --------------------------------------------------------------------------------- */
static tsr_status expand(variables *v, tsri_yaml *node)
{
    if (node->kind == TSRI_YAML_SCALAR) {
        bool is_variable = v->map && node->parent == v->map;
        if (is_variable && v->states[node->index] == KNOWN)
            return TSR_OK;
        if (is_variable)
            v->states[node->index] = OPEN;
        TSRI_TRY(expand_text(v, node));
        if (is_variable)
            v->states[node->index] = KNOWN;
    }
    for (tsri_yaml *c = node->first; c; c = c->next)
        TSRI_TRY(expand(v, c));
    return TSR_OK;
}

static tsr_status check_map(const tsri_yaml *map)
{
    char shown[TSRI_YAML_TEXT_MAX];
    if (map->kind != TSRI_YAML_MAP)
        return tsri_yaml_fail(map, "found %s; legal is a mapping from names to values",
                              tsri_yaml_shown(map, shown));
    for (const tsri_yaml *c = map->first; c; c = c->next) {
        if (!tsri_is_name(c->key))
            return tsri_yaml_fail_key(c, "not a name; legal are up to 100 letters, digits, _ and "
                                         "-, with a letter or _ first");
        if (c->kind != TSRI_YAML_SCALAR)
            return tsri_yaml_fail(c, "found %s; legal is a number, a text, true or false",
                                  tsri_yaml_shown(c, shown));
    }
    return TSR_OK;
}

/* Fails for an override of a variable that nothing uses: its name is likely misspelt. */
static tsr_status check_used(const variables *v)
{
    char mean[TSRI_YAML_TEXT_MAX];
    for (const tsri_yaml *c = v->map->first; c; c = c->next)
        if (!v->used[c->index] && !strncmp(c->file, "--set ", 6))
            return tsri_yaml_fail_key(c, "nothing in the file uses ${%.60s}%s", c->key,
                                      near_name(v, c, c->key, mean));
    return TSR_OK;
}

tsr_status tsri_vars(const tsri_reader *r, tsri_yaml *root)
{
    variables v = {.reader = r};
    if (root->kind != TSRI_YAML_MAP)
        return TSR_OK;
    TSRI_TRY(tsri_yaml_take(r->pool, root, "vars", &v.map));
    if (v.map) {
        TSRI_TRY(check_map(v.map));
        v.states = tsri_pool_alloc(r->pool, (size_t)v.map->n * sizeof *v.states);
        v.used = tsri_pool_alloc(r->pool, (size_t)v.map->n * sizeof *v.used);
        TSRI_NEED(v.states && v.used);
        TSRI_TRY(expand(&v, v.map));
    }
    TSRI_TRY(expand(&v, root));
    return v.map ? check_used(&v) : TSR_OK;
}
