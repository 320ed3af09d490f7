/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reason of each conversion: all that reads its result, by the names that the plan lists when
 * its passes are done. Copies and further conversions are no readers, but what reads theirs.
 */
#include <stdio.h>
#include <string.h>

#include "src/ir/flow.h"
#include "src/plan/pass/pass.h"

enum { MODULES = 6, SIGNATURES = 8 };

/* The readers of one module. */
typedef struct reader {
    const char *name; /* of the module, or of an output */
    bool is_output;
    char ops[160]; /* "linear, linear_dw" */
} reader;

/* The readers that want one signature. */
typedef struct wanted {
    char sbp[TSR_SBP_TEXT_MAX];
    int n, nreaders; /* modules, of which the first are by name; all readers */
    reader of[MODULES];
} wanted;

typedef struct giver {
    tsri_ir *ir;
    tsri_pool pool;
    tsri_flow flow;
    int *stack, *seen; /* per value: seen for which item */
    wanted list[SIGNATURES];
    int nlist;
} giver;

/* Adds a word to a list, if it is not in it and there is room. Returns whether it was added. */
static bool add_word(char *list, size_t size, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ','))
            return false;
    snprintf(list + strlen(list), size - strlen(list), "%s%s", list[0] ? ", " : "", word);
    return true;
}

/* op: NULL of an output. */
static void add_reader(giver *g, const char *op, const char *name, const tsri_value *v)
{
    char sbp[TSR_SBP_TEXT_MAX];
    int at = 0, i = 0;
    tsr_sbp_format(v->layout.sbp, sbp);
    while (at < g->nlist && strcmp(g->list[at].sbp, sbp) != 0)
        at++;
    if (at == SIGNATURES)
        return;
    wanted *w = &g->list[at];
    if (at == g->nlist) {
        g->nlist++;
        *w = (wanted){.n = 0};
        memcpy(w->sbp, sbp, sizeof sbp);
    }
    while (i < w->n && i < MODULES &&
           (w->of[i].is_output != !op || strcmp(w->of[i].name, name) != 0))
        i++;
    if (i == w->n && w->n < MODULES)
        w->of[i] = (reader){.name = name, .is_output = !op};
    w->n += i == w->n || i == MODULES;
    w->nreaders += !op || i >= MODULES || add_word(w->of[i].ops, sizeof w->of[i].ops, op);
}

static bool passes_on(const tsri_item *it)
{
    return tsri_item_converts(it) ||
           (it->kind == TSRI_ITEM_KERNEL && it->kernel.op == TSRI_OP_COPY);
}

static void find_readers(giver *g, int item)
{
    const tsri_ir *ir = g->ir;
    int n = 0;
    g->nlist = 0;
    g->stack[n++] = ir->items[item].out[0];
    while (n > 0) {
        int value = g->stack[--n];
        const tsri_value *v = &ir->values[value];
        if (v->storage == TSRI_STORAGE_PORT && v->port >= 0 && ir->ports[v->port].is_output)
            add_reader(g, NULL, ir->ports[v->port].info.name, v);
        for (int r = g->flow.first[value]; r < g->flow.first[value + 1]; r++) {
            const tsri_item *it = &ir->items[g->flow.reader[r]];
            if (!passes_on(it)) {
                add_reader(g, tsri_op_word(it->kernel.op, &it->kernel.attrs), it->name, v);
                continue;
            }
            for (int j = 0; j < it->nout; j++)
                if (tsri_operand_behind(it, it->out[j]) == value && g->seen[it->out[j]] != item) {
                    g->seen[it->out[j]] = item;
                    g->stack[n++] = it->out[j];
                }
        }
    }
}

/* "linear, linear_dw fc1 and output 'z' read S(0)". */
static const char *say_wanted(giver *g, const wanted *w)
{
    const char *text = "";
    int named = w->n < MODULES ? w->n : MODULES;
    for (int k = 0; k < named && text; k++) {
        const reader *r = &w->of[k];
        const char *mark = r->is_output ? "'" : "";
        text = tsri_pool_printf(&g->pool, "%s%s%s%s%s%s%s", text,
                                k == 0          ? ""
                                : k == w->n - 1 ? " and "
                                                : ", ",
                                r->is_output ? "output" : r->ops, r->name[0] ? " " : "", mark,
                                r->name, mark);
    }
    if (w->n > MODULES && text)
        text = tsri_pool_printf(&g->pool, "%s and %d more", text, w->n - MODULES);
    return text ? tsri_pool_printf(&g->pool, "%s read%s %s", text, w->nreaders > 1 ? "" : "s",
                                   w->sbp)
                : NULL;
}

static const char *say(giver *g)
{
    const char *text = "";
    for (int i = 0; i < g->nlist && text; i++) {
        const char *one = say_wanted(g, &g->list[i]);
        text = one ? tsri_pool_printf(&g->pool, "%s%s%s", text, i ? "; " : "", one) : NULL;
    }
    return text ? tsri_pool_strdup(&g->ir->program, text) : NULL;
}

static tsr_status give_all(giver *g)
{
    tsri_ir *ir = g->ir;
    TSRI_TRY(tsri_flow_find(ir, &g->pool, &g->flow));
    g->stack = tsri_pool_alloc(&g->pool, ((size_t)ir->nvalues + 1) * sizeof *g->stack);
    g->seen = tsri_pool_alloc(&g->pool, ((size_t)ir->nvalues + 1) * sizeof *g->seen);
    TSRI_NEED(g->stack && g->seen);
    memset(g->seen, -1, ((size_t)ir->nvalues + 1) * sizeof *g->seen);
    for (int i = 0; i < ir->nitems; i++) {
        tsri_item *it = &ir->items[i];
        if (!tsri_item_converts(it) || it->box.reason)
            continue;
        find_readers(g, i);
        it->box.reason = say(g);
        TSRI_NEED(it->box.reason);
    }
    return TSR_OK;
}

tsr_status tsri_plan_give_reasons(tsri_ir *ir)
{
    giver *g = tsri_mem_alloc(&ir->world->mem, sizeof *g);
    TSRI_NEED(g);
    g->ir = ir;
    tsri_pool_init(&g->pool, &ir->world->mem);
    tsr_status status = give_all(g);
    tsri_pool_finish(&g->pool);
    tsri_mem_free(g);
    return status;
}
