/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that goes on from a checkpoint: what differs between its experiment and the one that the
 * checkpoint holds. Both are dumps, so that equal experiments are equal texts, and comparing them
 * reads no file that they name.
 */
#include <stdlib.h>
#include <string.h>

#include "src/config/inside.h"
#include "src/core/foreign.h"

/* A key that a resumed run refuses to change. */
typedef struct refusal {
    const char *key, *was, *now;
    const tsri_yaml *said; /* in the user's file; the section's node where is_said is false */
    bool is_said;
} refusal;

typedef struct comparison {
    tsri_pool *pool;
    int n, capacity;
    tsri_resume_change *changes;
    refusal refused; /* key NULL: none */
} comparison;

/* A mapping of both dumps, and the node of the user's own file nearest to it. */
typedef struct level {
    const tsri_yaml *then, *now, *said;
    bool is_said;         /* `said` is this mapping */
    tsri_on_resume above; /* the fate of keys that say nothing */
    const char *key;      /* the mapping's path; "" for the root */
} level;

static bool equal(const tsri_yaml *a, const tsri_yaml *b)
{
    if (!a || !b || a->kind != b->kind || a->n != b->n)
        return a == b;
    if (a->kind == TSRI_YAML_SCALAR)
        return !strcmp(a->text, b->text);
    const tsri_yaml *d = b->first;
    for (const tsri_yaml *c = a->first; c; c = c->next, d = d->next)
        if (!equal(c, a->kind == TSRI_YAML_MAP ? tsri_yaml_find(b, c->key) : d))
            return false;
    return true;
}

static const char *shown(tsri_pool *pool, const tsri_yaml *node)
{
    char text[TSRI_YAML_TEXT_MAX];
    return tsri_pool_strdup(pool, tsri_yaml_shown(node, text));
}

/* Notes that a key differs. The first refused key that the user's file has is the one that is
 * reported: others may follow from it, as the classes of a model do from the data. */
static tsr_status differ(comparison *c, const level *at, const char *key, const tsri_yaml *then,
                         const tsri_yaml *now, tsri_on_resume fate)
{
    const char *was = shown(c->pool, then), *is = shown(c->pool, now);
    const char *name = strrchr(key, '.');
    const tsri_yaml *said = at->is_said ? tsri_yaml_find(at->said, name ? name + 1 : key) : NULL;
    TSRI_NEED(was && is && TSRI_PUSH(c->pool, c->changes, c->n, c->capacity));
    if (fate != TSRI_RESUME_REFUSED)
        c->changes[c->n++] = (tsri_resume_change){key, was, is, fate == TSRI_RESUME_KEPT};
    else if (!c->refused.key || (said && !c->refused.is_said))
        c->refused = (refusal){key, was, is, said ? said : at->said, said != NULL};
    return TSR_OK;
}

static tsr_status compare_sections(comparison *c, const tsri_section *s, level at);

static level level_below(const level *at, const tsri_yaml *then, const tsri_yaml *now,
                         const tsri_yaml *said, tsri_on_resume fate, const char *key)
{
    return (level){then, now, said ? said : at->said, at->is_said && said, fate, key};
}

/* Compares lists of as many sections, one by one. */
static tsr_status compare_lists(comparison *c, const tsri_section *s, const level *at)
{
    const tsri_yaml *then = at->then->first;
    const tsri_yaml *said = at->said->kind == TSRI_YAML_LIST ? at->said->first : NULL;
    for (const tsri_yaml *now = at->now->first; now; now = now->next, then = then->next) {
        const char *key = tsri_pool_printf(c->pool, "%s[%d]", at->key, now->index);
        TSRI_NEED(key);
        TSRI_TRY(compare_sections(c, s, level_below(at, then, now, said, at->above, key)));
        said = said ? said->next : NULL;
    }
    return TSR_OK;
}

/* Compares mappings from names to sections. */
static tsr_status compare_named(comparison *c, const tsri_section *s, const level *at)
{
    const tsri_yaml *sides[] = {at->now, at->then};
    for (int i = 0; i < 2; i++)
        for (const tsri_yaml *x = sides[i]->first; x; x = x->next) {
            const tsri_yaml *then = tsri_yaml_find(at->then, x->key);
            const tsri_yaml *now = tsri_yaml_find(at->now, x->key);
            const tsri_yaml *said = tsri_yaml_find(at->said, x->key);
            if (i == 1 && now)
                continue;
            char *key = tsri_pool_printf(c->pool, "%s.%s", at->key, x->key);
            TSRI_NEED(key);
            tsri_make_printable(key, false);
            TSRI_TRY(then && now
                         ? compare_sections(c, s, level_below(at, then, now, said, at->above, key))
                         : differ(c, at, key, then, now, at->above));
        }
    return TSR_OK;
}

/* Whether a dump lacks a key, of its default now, because it was written before there was one. */
static bool is_default(const tsri_field *f, const tsri_yaml *then, const tsri_yaml *now)
{
    char *end;
    if (then || now->kind != TSRI_YAML_SCALAR || f->fallback == TSRI_NEEDED ||
        f->fallback == TSRI_NONE)
        return false;
    return !strcmp(f->fallback, now->text) ||
           (strtod(f->fallback, &end) == strtod(now->text, NULL) && end != f->fallback);
}

static tsr_status compare_field(comparison *c, const tsri_field *f, const level *at)
{
    const tsri_yaml *then = tsri_yaml_find(at->then, f->name);
    const tsri_yaml *now = tsri_yaml_find(at->now, f->name);
    if (equal(then, now) || is_default(f, then, now))
        return TSR_OK;
    const tsri_on_resume fate = tsri_field_on_resume(f, at->above);
    const char *key = tsri_pool_printf(c->pool, "%s%s%s", at->key, at->key[0] ? "." : "", f->name);
    TSRI_NEED(key);
    const level below = level_below(at, then, now, tsri_yaml_find(at->said, f->name), fate, key);
    const tsri_yaml_kind both =
        then && now && then->kind == now->kind ? now->kind : TSRI_YAML_SCALAR;
    if (f->kind == TSRI_FIELD_SECTION && both == TSRI_YAML_MAP)
        return compare_sections(c, f->section, below);
    if (f->kind == TSRI_FIELD_NAMED && both == TSRI_YAML_MAP)
        return compare_named(c, f->section, &below);
    if (f->kind == TSRI_FIELD_SECTIONS && both == TSRI_YAML_LIST && then->n == now->n)
        return compare_lists(c, f->section, &below);
    return differ(c, at, key, then, now, fate);
}

static const tsri_section *variant_named(const tsri_section *s, const tsri_yaml *word)
{
    for (int i = 0; word && word->kind == TSRI_YAML_SCALAR && i < s->nvariants; i++)
        if (!strcmp(s->variants[i].name, word->text))
            return &s->variants[i];
    return NULL;
}

static tsr_status compare_sections(comparison *c, const tsri_section *s, level at)
{
    const tsri_section *variant = NULL;
    if (s->selector) {
        const tsri_yaml *then = tsri_yaml_find(at.then, s->selector);
        const tsri_yaml *now = tsri_yaml_find(at.now, s->selector);
        if (equal(then, now))
            variant = variant_named(s, now);
        else {
            const char *key = tsri_pool_printf(c->pool, "%s.%s", at.key, s->selector);
            TSRI_NEED(key);
            TSRI_TRY(differ(c, &at, key, then, now, tsri_selector_on_resume(s, at.above)));
        }
    }
    for (int i = 0; variant && i < variant->nfields; i++)
        TSRI_TRY(compare_field(c, &variant->fields[i], &at));
    for (int i = 0; i < s->nfields; i++)
        TSRI_TRY(compare_field(c, &s->fields[i], &at));
    return TSR_OK;
}

tsr_status tsri_experiment_resume(const tsri_experiment *e, const char *path, const char *now,
                                  const char *then, tsri_pool *pool, int *out_n,
                                  tsri_resume_change **out_changes)
{
    comparison c = {.pool = pool};
    const char *name = tsri_pool_printf(pool, "%s: its experiment", path);
    level root = {.said = e->head.node, .is_said = true, .above = TSRI_RESUME_WINS, .key = ""};
    tsri_yaml *roots[2];
    TSRI_NEED(name);
    TSRI_TRY(tsri_yaml_parse(pool, name, then, strlen(then), &roots[0]));
    TSRI_TRY(tsri_yaml_parse(pool, name, now, strlen(now), &roots[1]));
    if (roots[0]->kind != TSRI_YAML_MAP)
        return tsri_yaml_fail(roots[0], "it is no mapping");
    root.then = roots[0];
    root.now = roots[1];
    TSRI_TRY(compare_sections(&c, &tsri_experiment_section, root));
    const refusal *r = &c.refused;
    if (r->key)
        return tsri_fail(TSR_ERR_STATE,
                         "%.300s:%d:%d: %s: found %s, but the run goes on from %s, which was made "
                         "with %s; set it back, or name another train.checkpoint.dir",
                         r->said->file, r->said->line, r->said->column, r->key, r->now, path,
                         r->was);
    *out_n = c.n;
    *out_changes = c.changes;
    return TSR_OK;
}
