/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a program's tensors, and the ones near to a name that there is not. */
#include "src/cli/plan/ask.h"
#include "src/core/near.h"
#include "src/nn/place.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static tsr_status add_name(plan_names *n, const char *name, const tsr_tensor *t, bool is_given)
{
    TSRI_NEED(name && TSRI_PUSH(&n->pool, n->all, n->n, n->capacity));
    n->all[n->n++] = (plan_name){.name = name, .tensor = t, .is_given = is_given};
    return TSR_OK;
}

static tsr_status add_gradients(plan_names *n, const tsr_graph *g)
{
    for (int i = 0; i < g->minimized.ngradients; i++) {
        char name[TSRI_NAME_MAX];
        tsri_variable_qualified_name(g->minimized.gradients[i].variable, name, sizeof name);
        TSRI_TRY(add_name(n, tsri_pool_printf(&n->pool, "grad(%s)", name),
                          g->minimized.gradients[i].gradient, true));
    }
    return TSR_OK;
}

/* Whether the tensor has this name already: an output has often the name of its entry. */
static bool has_name(const plan_names *n, const char *name, const tsr_tensor *t)
{
    for (int i = 0; i < n->n; i++)
        if (n->all[i].tensor == t && !strcmp(n->all[i].name, name))
            return true;
    return false;
}

static tsr_status add_given(plan_names *n, const tsri_program *p)
{
    const tsr_graph *g = p->graph;
    tsri_program_entry *entries;
    int nentries;
    TSRI_TRY(tsri_program_entries(p, &n->pool, &nentries, &entries));
    for (int i = 0; i < nentries; i++)
        TSRI_TRY(add_name(n, entries[i].name, entries[i].tensor, true));
    for (int i = 0; i < g->nports; i++)
        if (!has_name(n, g->ports[i].name, g->ports[i].tensor))
            TSRI_TRY(add_name(n, g->ports[i].name, g->ports[i].tensor, true));
    return add_gradients(n, g);
}

/* All results of ops: a variable's own name is given, others are those of the modules of ops. */
static tsr_status add_ops(plan_names *n, const tsr_graph *g)
{
    bool *named = tsri_pool_alloc(&n->pool, (size_t)g->ntensors);
    TSRI_NEED(named);
    for (int i = 0; i < n->n; i++)
        named[n->all[i].tensor->id] = true;
    for (int i = 0; i < g->ntensors; i++) {
        const tsr_tensor *t = g->tensors[i];
        const char *name = t->op->name ? t->op->name : "";
        if (!named[i] || (name[0] && !has_name(n, name, t)))
            TSRI_TRY(add_name(n, name, t, t->op->kind == TSRI_OP_VARIABLE));
    }
    return TSR_OK;
}

static int by_label(const void *a, const void *b)
{
    const plan_name *const *x = a, *const *y = b;
    int order = strcmp((*x)->label, (*y)->label);
    return order ? order : (*x)->tensor->id - (*y)->tensor->id;
}

/* "bn_stats features.0.1", "bn_stats features.0.1 (backward)", the second of them "... #2". */
static tsr_status make_labels(plan_names *n)
{
    plan_name **order = tsri_pool_alloc(&n->pool, (size_t)n->n * sizeof(plan_name *));
    TSRI_NEED(order);
    for (int i = 0; i < n->n; i++) {
        plan_name *x = order[i] = &n->all[i];
        const tsri_op *op = x->tensor->op;
        x->label = x->is_given
                       ? x->name
                       : tsri_pool_printf(&n->pool, "%s%s%s%s", tsri_op_word(op->kind, &op->attrs),
                                          x->name[0] ? " " : "", x->name,
                                          op->backward ? " (backward)" : "");
        TSRI_NEED(x->label);
    }
    qsort(order, (size_t)n->n, sizeof *order, by_label);
    for (int i = 0, first = 0; i < n->n; i++) {
        if (i && strcmp(order[i]->label, order[first]->label) != 0)
            first = i;
        if (i > first && !(order[i]->label = tsri_pool_printf(&n->pool, "%s #%d",
                                                              order[first]->label, i - first + 1)))
            return TSR_ERR_NO_MEMORY;
    }
    return TSR_OK;
}

static tsr_status name_tensors(plan_names *n, const tsr_graph *g)
{
    n->of = tsri_pool_alloc(&n->pool, (size_t)g->ntensors * sizeof *n->of);
    TSRI_NEED(n->of);
    for (int i = 0; i < n->n; i++) {
        const char **of = &n->of[n->all[i].tensor->id];
        *of = *of ? *of : n->all[i].label;
    }
    return TSR_OK;
}

tsr_status plan_names_make(const tsri_program *p, plan_names *n)
{
    *n = (plan_names){.graph = p->graph};
    tsri_pool_init(&n->pool, NULL);
    TSRI_TRY(add_given(n, p));
    TSRI_TRY(add_ops(n, p->graph));
    TSRI_TRY(make_labels(n));
    return name_tensors(n, p->graph);
}

void plan_names_finish(plan_names *n)
{
    tsri_pool_finish(&n->pool);
}

/* --- finding one ------------------------------------------------------------------------------ */
enum { SHOWN = 8 };

/* Lists those of the names that are marked, the first of them. */
static void list_marked(const plan_names *n, const bool *marked, int count)
{
    int shown = 0;
    for (int i = 0; i < n->n && shown < SHOWN; i++)
        if (marked[i]) {
            tsri_fshow(stderr, "  %s\n", n->all[i].label);
            shown++;
        }
    if (count > shown)
        tsri_fshow(stderr, "  ... and %d more\n", count - shown);
}

typedef struct match {
    bool *marked;
    int tensors; /* that are marked */
    const tsr_tensor *first;
} match;

/* Whether a name fits in one of several ways, of which the first that any name fits in counts. */
static bool fits(const plan_name *x, const char *text, int how)
{
    switch (how) {
    case 0:
        return x->is_given && !strcmp(x->name, text);
    case 1:
        return !strcmp(x->label, text);
    case 2:
        return !strcmp(x->name, text);
    case 3:
        return x->is_given && tsri_glob(text, x->name);
    default:
        return tsri_glob(text, x->name) || tsri_glob(text, x->label);
    }
}

static void find_matches(const plan_names *n, const char *text, int how, match *m)
{
    m->tensors = 0;
    m->first = NULL;
    for (int i = 0; i < n->n; i++) {
        m->marked[i] = fits(&n->all[i], text, how);
        for (int j = 0; j < i && m->marked[i]; j++)
            m->marked[i] = !m->marked[j] || n->all[j].tensor != n->all[i].tensor;
        m->tensors += m->marked[i];
        m->first = m->first || !m->marked[i] ? m->first : n->all[i].tensor;
    }
}

/* Marks the names that are nearest, or else have the text in them; returns how many there are. */
static int mark_near(const plan_names *n, const char *text, bool *marked)
{
    int length = (int)strlen(text), limit = length < 5 ? 1 : length < 9 ? 2 : 4, best = limit;
    int count = 0;
    bool given = false; /* one of the nearest is: others of its name are what is made of it */
    for (int i = 0; i < n->n; i++) {
        int d = tsri_edit_distance(text, n->all[i].name, limit);
        given = d < best ? n->all[i].is_given : given || (d == best && n->all[i].is_given);
        best = d < best ? d : best;
    }
    for (int i = 0; i < n->n; i++) {
        marked[i] = n->all[i].name[0] && (n->all[i].is_given || !given) &&
                    tsri_edit_distance(text, n->all[i].name, limit) == best;
        count += marked[i];
    }
    if (count)
        return count;
    for (int i = 0; i < n->n; i++) {
        marked[i] = length > 2 && strcasestr(n->all[i].name, text) != NULL;
        count += marked[i];
    }
    return count;
}

static void say_nearest(const plan_names *n, const char *text, bool *marked)
{
    int count = mark_near(n, text, marked);
    tsri_fshow(stderr, "tessera plan: --why %s: there is no such tensor%s\n", text,
               count ? "; near to it are" : "; there are, for example,");
    for (int i = 0; i < n->n && !count; i++)
        marked[i] = n->all[i].is_given;
    list_marked(n, marked, count);
}

const tsr_tensor *plan_names_find(const plan_names *n, const char *text)
{
    match m = {.marked = calloc((size_t)n->n + 1, 1)};
    enum { WAYS = 5 };
    const tsr_tensor *found = NULL;
    if (!m.marked) {
        tsri_fshow(stderr, "tessera plan: out of memory\n");
        return NULL;
    }
    int how = 0;
    for (; how < WAYS && !m.tensors; how++)
        find_matches(n, text, how, &m);
    if (m.tensors == 1) {
        found = m.first;
    } else if (m.tensors > 1) {
        tsri_fshow(stderr, "tessera plan: --why %s: %d tensors have that name; say which\n", text,
                   m.tensors);
        list_marked(n, m.marked, m.tensors);
    } else {
        say_nearest(n, text, m.marked);
    }
    free(m.marked);
    return found;
}
