/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a model's layers, and walks over them. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/config/layers/layers.h"

enum { MOST_DEEP = 32, PATH_MOST = 400 };

const tsri_config_part *tsri_experiment_part(const tsri_experiment *e, const char *name)
{
    const tsri_config_part *parts = e->model.parts.items;
    for (int i = 0; i < e->model.parts.n; i++)
        if (!strcmp(parts[i].head.name, name))
            return &parts[i];
    return NULL;
}

static bool has(const tsri_config_layer *l, const char *key)
{
    return tsri_section_has(&tsri_layer_section, l, key);
}

static const char *word_of(const tsri_config_layer *l)
{
    return tsri_layer_section.variants[l->op.head.variant].name;
}

/* --- checks ----------------------------------------------------------------------------------- */
typedef struct checker {
    const tsri_experiment *e;
    int nparts; /* those that may be used */
    int64_t n;  /* layers so far */
} checker;

static bool is_layer_name(const char *text)
{
    size_t n = 0;
    for (; text[n]; n++)
        if (!isalnum((unsigned char)text[n]) && text[n] != '_' && text[n] != '-')
            return false;
    return n >= 1 && n <= 100;
}

static tsr_status check_name(const tsri_config_layer *all, int i)
{
    const tsri_config_layer *l = &all[i];
    const tsri_yaml *node = tsri_section_node(l, "name");
    if (!has(l, "name"))
        return TSR_OK;
    if (!is_layer_name(l->name))
        return tsri_yaml_fail(node, "not a name of a layer; legal are up to 100 letters, digits, _ "
                                    "and -");
    if (strspn(l->name, "0123456789") == strlen(l->name))
        return tsri_yaml_fail(node, "numbers are names of layers that have none");
    for (int j = 0; j < i; j++)
        if (has(&all[j], "name") && !strcmp(all[j].name, l->name))
            return tsri_yaml_fail(node, "'%s' is there twice, first in line %d", l->name,
                                  tsri_section_node(&all[j], "name")->line);
    return TSR_OK;
}

static tsr_status check_part(const checker *c, const tsri_ref *ref)
{
    const tsri_config_part *parts = c->e->model.parts.items;
    const tsri_config_part *part = tsri_experiment_part(c->e, ref->name);
    if (part && part - parts < c->nparts)
        return TSR_OK;
    if (part)
        return tsri_yaml_fail(ref->node, "'%.60s' is %s; parts use those above them", ref->name,
                              part - parts == c->nparts ? "this part itself" : "declared later");
    if (!c->e->model.parts.n)
        return tsri_yaml_fail(ref->node, "there is no part '%.60s': 'parts' is missing", ref->name);
    return tsri_unknown_name(ref, "part", &c->e->model.parts, sizeof *parts, c->nparts);
}

static tsr_status check_layers(checker *c, const tsri_items *layers, int depth)
{
    const tsri_config_layer *all = layers->items;
    for (int i = 0; i < layers->n; i++) {
        const tsri_config_layer *l = &all[i];
        const int64_t times = has(l, "repeat") ? l->repeat : 1, before = c->n;
        TSRI_TRY(check_name(all, i));
        if (depth == MOST_DEEP)
            return tsri_yaml_fail(l->op.head.node, "layers are nested more than %d deep",
                                  MOST_DEEP);
        if (l->part.name)
            TSRI_TRY(check_part(c, &l->part));
        const tsri_config_part *part =
            l->part.name ? tsri_experiment_part(c->e, l->part.name) : NULL;
        if (part) {
            /* A part was checked; its own layers are counted. */
            checker inner = {.e = c->e,
                             .nparts =
                                 (int)(part - (const tsri_config_part *)c->e->model.parts.items)};
            TSRI_TRY(check_layers(&inner, &part->layers, depth + 1));
            c->n += inner.n;
        }
        TSRI_TRY(check_layers(c, &l->layers, depth + 1));
        TSRI_TRY(check_layers(c, &l->shortcut, depth + 1));
        c->n = before + times * (c->n - before + 1);
        if (c->n > TSRI_CONFIG_MAX_LAYERS)
            return tsri_yaml_fail(l->op.head.node,
                                  "more than %d layers, repeated ones counted each",
                                  TSRI_CONFIG_MAX_LAYERS);
    }
    return TSR_OK;
}

tsr_status tsri_layers_check(const tsri_experiment *e)
{
    const tsri_config_part *parts = e->model.parts.items;
    checker c = {.e = e};
    for (; c.nparts < e->model.parts.n; c.nparts++) {
        c.n = 0;
        TSRI_TRY(check_layers(&c, &parts[c.nparts].layers, 0));
    }
    c.n = 0;
    return check_layers(&c, &e->model.layers, 0);
}

/* --- pairs of linear layers ------------------------------------------------------------------- */
typedef struct walker {
    const tsri_experiment *e;
    tsri_layer_pair_fn *fn;
    void *arg;
} walker;

/* Ops that keep what is split along features: element-wise ones. */
static bool is_between(const tsri_config_layer *l)
{
    static const char *const words[] = {
        "relu",       "relu6", "gelu",     "silu",      "tanh",        "sigmoid", "dropout",
        "leaky_relu", "elu",   "softplus", "hardswish", "hardsigmoid", "mish",    "square"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(word_of(l), words[i]))
            return true;
    return false;
}

static tsr_status walk(const walker *w, const tsri_items *layers, const char *path);

static tsr_status walk_one(const walker *w, const tsri_config_layer *l, const char *path)
{
    char below[PATH_MOST + 20];
    const tsri_config_part *part = l->part.name ? tsri_experiment_part(w->e, l->part.name) : NULL;
    TSRI_TRY(walk(w, part ? &part->layers : &l->layers, path));
    snprintf(below, sizeof below, "%.*s.shortcut", PATH_MOST, path);
    return walk(w, &l->shortcut, below);
}

/* Visits a list whose names begin with `path` ("" of the model's own). */
static tsr_status walk(const walker *w, const tsri_items *layers, const char *path)
{
    const tsri_config_layer *l = layers->items;
    char first[PATH_MOST] = "", name[PATH_MOST], each[PATH_MOST + 24];
    int number = 0;
    for (int i = 0; i < layers->n; i++) {
        const bool named = has(&l[i], "name"), repeats = has(&l[i], "repeat");
        const int times = repeats ? (int)l[i].repeat : 1;
        for (int k = 0; k < times; k++) {
            if (named)
                snprintf(name, sizeof name, "%.200s%s%.100s", path, path[0] ? "." : "", l[i].name);
            else
                snprintf(name, sizeof name, "%.300s%s%d", path, path[0] ? "." : "", number);
            number += !named || k == 0;
            snprintf(each, sizeof each, named && repeats ? "%s.%d" : "%s", name, k);
            TSRI_TRY(walk_one(w, &l[i], each));
            if (!strcmp(word_of(&l[i]), "linear") && first[0]) {
                TSRI_TRY(w->fn(w->arg, first, each));
                first[0] = 0;
            } else if (!strcmp(word_of(&l[i]), "linear")) {
                snprintf(first, sizeof first, "%.*s", PATH_MOST - 1, each);
            } else if (!is_between(&l[i])) {
                first[0] = 0;
            }
        }
    }
    return TSR_OK;
}

tsr_status tsri_layers_pairs(const tsri_experiment *e, tsri_layer_pair_fn *fn, void *arg)
{
    const walker w = {e, fn, arg};
    return walk(&w, &e->model.layers, "");
}
