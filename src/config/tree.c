/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes: finding children, and telling where a node stands. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/config/tree_index.h"

/* Smaller mappings are searched. */
enum { HASHED_FROM = 12 };

void tsri_yaml_append(tsri_yaml *parent, tsri_yaml *child)
{
    child->parent = parent;
    child->index = parent->n++;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
}

/* FNV-1a. */
static uint32_t hash(const char *key, size_t length)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)key[i]) * 16777619u;
    return h;
}

static bool has_key(const tsri_yaml *node, const char *key, size_t length)
{
    return !strncmp(node->key, key, length) && !node->key[length];
}

tsri_yaml *tsri_yaml_find_n(const tsri_yaml *map, const char *key, size_t length)
{
    if (!map || map->kind != TSRI_YAML_MAP)
        return NULL;
    if (!map->nslots) {
        tsri_yaml *c = map->first;
        while (c && !has_key(c, key, length))
            c = c->next;
        return c;
    }
    uint32_t mask = map->nslots - 1, at = hash(key, length) & mask;
    while (map->slots[at] && !has_key(map->slots[at], key, length))
        at = (at + 1) & mask;
    return map->slots[at];
}

tsri_yaml *tsri_yaml_find(const tsri_yaml *map, const char *key)
{
    return tsri_yaml_find_n(map, key, strlen(key));
}

static tsr_status twice(const tsri_yaml *again, const tsri_yaml *before)
{
    return tsri_yaml_fail_key(again, "this key is there twice, first in line %d", before->key_line);
}

tsr_status tsri_yaml_index(tsri_pool *pool, tsri_yaml *map)
{
    map->nslots = 0;
    if (map->n < HASHED_FROM) {
        for (tsri_yaml *c = map->first; c; c = c->next) {
            tsri_yaml *same = tsri_yaml_find(map, c->key);
            if (same != c)
                return twice(c, same);
        }
        return TSR_OK;
    }
    uint32_t nslots = 32;
    while (nslots < 2 * (uint32_t)map->n)
        nslots *= 2;
    map->slots = tsri_pool_alloc(pool, nslots * sizeof *map->slots);
    TSRI_NEED(map->slots);
    map->nslots = nslots;
    for (tsri_yaml *c = map->first; c; c = c->next) {
        uint32_t at = hash(c->key, strlen(c->key)) & (nslots - 1);
        while (map->slots[at] && strcmp(map->slots[at]->key, c->key))
            at = (at + 1) & (nslots - 1);
        if (map->slots[at])
            return twice(c, map->slots[at]);
        map->slots[at] = c;
    }
    return TSR_OK;
}

tsr_status tsri_yaml_refill(tsri_pool *pool, tsri_yaml *map, int n, tsri_yaml *const *children)
{
    map->first = map->last = NULL;
    map->n = 0;
    for (int i = 0; i < n; i++) {
        children[i]->next = NULL;
        tsri_yaml_append(map, children[i]);
    }
    return tsri_yaml_index(pool, map);
}

tsr_status tsri_yaml_take(tsri_pool *pool, tsri_yaml *map, const char *key, tsri_yaml **out_child)
{
    int n = 0;
    *out_child = tsri_yaml_find(map, key);
    if (!*out_child)
        return TSR_OK;
    tsri_yaml **others = tsri_pool_alloc(pool, (size_t)map->n * sizeof(tsri_yaml *));
    TSRI_NEED(others);
    for (tsri_yaml *c = map->first; c; c = c->next)
        if (c != *out_child)
            others[n++] = c;
    return tsri_yaml_refill(pool, map, n, others);
}

/* --- for messages ----------------------------------------------------------------------------- */
/* Appends text, at most `most` bytes of it and whole characters, control characters as '?'. */
static size_t append(char *buf, size_t used, const char *text, size_t most)
{
    size_t n = strlen(text), cut = n > most ? most : n;
    while (cut < n && cut && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut--;
    for (size_t i = 0; i < cut && used + 4 < TSRI_YAML_TEXT_MAX; i++) {
        unsigned char c = (unsigned char)text[i];
        buf[used++] = c < ' ' || c == 127 ? '?' : text[i];
    }
    for (int i = 0; cut < n && i < 3 && used + 1 < TSRI_YAML_TEXT_MAX; i++)
        buf[used++] = '.';
    buf[used] = 0;
    return used;
}

char *tsri_yaml_path(const tsri_yaml *node, char buf[TSRI_YAML_TEXT_MAX])
{
    const tsri_yaml *chain[TSRI_YAML_MAX_DEPTH + 2];
    int n = 0;
    for (; node && node->parent && n < TSRI_YAML_MAX_DEPTH + 2; node = node->parent)
        chain[n++] = node;
    size_t used = 0;
    buf[0] = 0;
    while (n-- > 0) {
        char index[16];
        snprintf(index, sizeof index, "[%d]", chain[n]->index);
        if (used && chain[n]->key)
            used = append(buf, used, ".", 1);
        used = append(buf, used, chain[n]->key ? chain[n]->key : index, 40);
    }
    return buf;
}

char *tsri_yaml_shown(const tsri_yaml *node, char buf[TSRI_YAML_TEXT_MAX])
{
    if (!node || node->kind != TSRI_YAML_SCALAR) {
        snprintf(buf, TSRI_YAML_TEXT_MAX, "%s",
                 !node                          ? "nothing"
                 : node->kind == TSRI_YAML_LIST ? "a list"
                                                : "a mapping");
    } else if (!node->text[0] && !node->quoted) {
        snprintf(buf, TSRI_YAML_TEXT_MAX, "nothing");
    } else {
        const char *mark = node->quoted ? "\"" : "'";
        append(buf, append(buf, append(buf, 0, mark, 1), node->text, 60), mark, 1);
    }
    return buf;
}

static tsr_status fail(const tsri_yaml *node, int line, int column, const char *fmt, va_list ap)
{
    char what[2048], path[TSRI_YAML_TEXT_MAX];
    vsnprintf(what, sizeof what, fmt, ap);
    tsri_yaml_path(node, path);
    return tsri_fail(TSR_ERR_FORMAT, "%.300s:%d:%d: %s%s%s", node->file, line, column, path,
                     path[0] ? ": " : "", what);
}

tsr_status tsri_yaml_fail(const tsri_yaml *node, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tsr_status status = fail(node, node->line, node->column, fmt, ap);
    va_end(ap);
    return status;
}

tsr_status tsri_yaml_fail_key(const tsri_yaml *node, const char *fmt, ...)
{
    bool has = node->key_line > 0;
    va_list ap;
    va_start(ap, fmt);
    tsr_status status = fail(node, has ? node->key_line : node->line,
                             has ? node->key_column : node->column, fmt, ap);
    va_end(ap);
    return status;
}
