/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/choose/need.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/figures.h"
#include "src/plan/report/report.h"

enum { TEXT = 1900 /* all of it travels with an agreement's status */, TERMS_SHOWN = 5 };

/* --- ranks ------------------------------------------------------------------------------------ */
typedef struct rank_need {
    uint64_t bytes;
    int rank;
    bool known; /* the report has the rank's class */
} rank_need;

static int by_need(const void *a, const void *b)
{
    const rank_need *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : x->rank - y->rank;
}

/* Lists the needs of ranks, the neediest first; NULL when there is no memory. */
static rank_need *list_needs(tsri_report *r, const size_t *scratch_of)
{
    int n = r->plan->ir.world->nranks;
    rank_need *needs = tsri_pool_alloc(&r->pool, (size_t)n * sizeof *needs);
    for (int i = 0; needs && i < n; i++) {
        const tsri_report_memory *m = r->memory_of[i] < 0 ? NULL : &r->memory[r->memory_of[i]];
        uint64_t bytes = m ? m->total - tsri_plan_scratch(r->plan) + scratch_of[i] : 0;
        needs[i] = (rank_need){bytes, i, m != NULL};
    }
    if (needs)
        qsort(needs, (size_t)n, sizeof *needs, by_need);
    return needs;
}

/* How many ranks from needs[first] on need the same. */
static int count_alike(const rank_need *needs, int first, int n)
{
    int i = first + 1;
    while (i < n && needs[i].bytes == needs[first].bytes && needs[i].known == needs[first].known)
        i++;
    return i - first;
}

/* "rank 3", "ranks 0-7", "ranks 0-2, 5, 9 and 17 more" */
static void put_ranks(FILE *f, const rank_need *needs, int n)
{
    enum { RUNS = 3 };
    fputs(n > 1 ? "ranks " : "rank ", f);
    int i = 0;
    for (int run = 0; run < RUNS && i < n; run++) {
        int last = i;
        while (last + 1 < n && needs[last + 1].rank == needs[last].rank + 1)
            last++;
        fprintf(f, "%s%d", run ? ", " : "", needs[i].rank);
        if (last > i)
            fprintf(f, "-%d", needs[last].rank);
        i = last + 1;
    }
    if (i < n)
        fprintf(f, " and %d more", n - i);
}

/* The ranks that need less than the neediest, a line for each need. */
static void put_others(FILE *f, const rank_need *needs, int first, int n)
{
    enum { SHOWN = 3 };
    char bytes[32];
    for (int i = 0; i < SHOWN && first < n && needs[first].bytes; i++) {
        int alike = count_alike(needs, first, n);
        fputs("\n  ", f);
        put_ranks(f, needs + first, alike);
        fprintf(f, ": %s", tsri_bytes_text((double)needs[first].bytes, bytes));
        first += alike;
    }
    if (first < n)
        fprintf(f, "\n  other ranks: %d, which need less", n - first);
}

/* --- terms ------------------------------------------------------------------------------------ */
typedef struct term {
    const char *name;
    uint64_t bytes;
    int kind; /* a tsri_memory_kind; -1: no values */
} term;

static int by_bytes(const void *a, const void *b)
{
    const term *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static const tsri_item *maker_of(const tsr_plan *plan, int value)
{
    for (int i = 0; i < plan->ir.nitems; i++)
        for (int j = 0; j < plan->ir.items[i].nout; j++)
            if (tsri_ir_root(&plan->ir, plan->ir.items[i].out[j]) == value &&
                !tsri_item_shows(&plan->ir.items[i]) && plan->ir.items[i].kind != TSRI_ITEM_DEAD)
                return &plan->ir.items[i];
    return NULL;
}

/* "relu block1.act f32[64,512,28,28] S(0)  4.2 MB" */
static void put_value(FILE *f, const tsr_plan *plan, int value, uint64_t bytes)
{
    enum { COLUMNS = 86 };
    const tsri_value *v = &plan->ir.values[value];
    const tsri_item *maker = v->storage == TSRI_STORAGE_ARENA ? maker_of(plan, value) : NULL;
    const char *what = !maker ? ""
                       : maker->kind == TSRI_ITEM_KERNEL
                           ? tsri_op_title(maker->kernel.op, &maker->kernel.attrs)
                       : maker->box.broadcast ? "broadcast"
                                              : tsri_box_kind_name(maker->box.step.kind);
    const char *name = maker ? maker->name : v->name;
    char sbp[TSRI_LAYOUT_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX], text[32], line[COLUMNS + 1] = "";
    /* A line that is too long is cut. */
    snprintf(line, sizeof line, "%s%s%.40s%s%s[%s] %s", what, *what ? " " : "", name ? name : "",
             name && *name ? " " : "", tsr_dtype_name(v->dtype), tsri_dims_format(v->shape, dims),
             tsri_layout_format(&v->layout, sbp));
    fprintf(f, "\n      %s  %s", line, tsri_bytes_text((double)bytes, text));
}

/* The largest tensors of a kind that are alive at the peak. */
static void put_largest(FILE *f, const tsri_report *r, const tsri_report_memory *m, int rank,
                        int kind)
{
    enum { ACTIVATIONS_SHOWN = 3 };
    int last = -1, shown = kind == TSRI_MEMORY_ACTIVATIONS ? ACTIVATIONS_SHOWN : 1;
    uint64_t last_bytes = UINT64_MAX;
    for (int k = 0; k < shown; k++) {
        int largest = -1;
        uint64_t most = 0;
        for (int i = 0; i < r->plan->ir.nvalues; i++) {
            const tsri_value *v = &r->plan->ir.values[i];
            bool lives =
                v->storage != TSRI_STORAGE_ARENA || (v->first <= m->peak && m->peak <= v->last);
            if (!tsri_value_takes_memory(v) || r->kind_of[i] != kind || !lives)
                continue;
            uint64_t bytes = tsri_value_room(v, tsri_value_bytes(v, rank));
            bool is_next = bytes < last_bytes || (bytes == last_bytes && i > last);
            if (is_next && bytes > most) {
                most = bytes;
                largest = i;
            }
        }
        if (largest < 0)
            return;
        put_value(f, r->plan, largest, most);
        last = largest;
        last_bytes = most;
    }
}

/* Writes the terms of a rank's bytes: five of them, and all else as one. */
static void put_terms(FILE *f, const tsri_report *r, const rank_need *need, size_t scratch)
{
    const tsri_report_memory *m = &r->memory[r->memory_of[need->rank]];
    term terms[] = {{"parameters", m->parameters, TSRI_MEMORY_PARAMETERS},
                    {"master weights", m->masters, TSRI_MEMORY_MASTERS},
                    {"buffers", m->buffers, TSRI_MEMORY_BUFFERS},
                    {"optimizer states", m->optimizer, TSRI_MEMORY_OPTIMIZER},
                    {"inputs and outputs", m->ports, TSRI_MEMORY_PORTS},
                    {"gradients", m->gradients, TSRI_MEMORY_GRADIENTS},
                    {"activations", m->activations, TSRI_MEMORY_ACTIVATIONS},
                    {"collectives' results", m->communication, TSRI_MEMORY_COMMUNICATION},
                    {"kernels' scratch", scratch, -1},
                    {"gaps between tensors", m->other, -1}};
    enum { TERMS = sizeof terms / sizeof *terms };
    uint64_t rest = 0;
    char text[32];
    qsort(terms, TERMS, sizeof *terms, by_bytes);
    fprintf(f, "\n  rank %d, at the time when most is in use:", need->rank);
    for (int i = 0; i < TERMS; i++) {
        if (i >= TERMS_SHOWN) {
            rest += terms[i].bytes;
            continue;
        }
        if (!terms[i].bytes)
            break;
        fprintf(f, "\n    %-20s %8s  %llu bytes", terms[i].name,
                tsri_bytes_text((double)terms[i].bytes, text), (unsigned long long)terms[i].bytes);
        if (terms[i].kind >= 0)
            put_largest(f, r, m, need->rank, terms[i].kind);
    }
    if (rest)
        fprintf(f, "\n    %-20s %8s  %llu bytes", "the rest", tsri_bytes_text((double)rest, text),
                (unsigned long long)rest);
}

/* --- the refusal ------------------------------------------------------------------------------ */
static void put_refusal(FILE *f, const tsri_report *r, const tsri_shortage *s,
                        const rank_need *needs)
{
    char limit[32], most[32];
    int n = r->plan->ir.world->nranks, alike = count_alike(needs, 0, n);
    tsri_bytes_text((double)s->limit, limit);
    tsri_bytes_text((double)needs[0].bytes, most);
    if (!strcmp(limit, most)) { /* to a byte, where three digits are too few */
        snprintf(limit, sizeof limit, "%zu bytes", s->limit);
        snprintf(most, sizeof most, "%llu bytes", (unsigned long long)needs[0].bytes);
    }
    fprintf(f, "no plan fits memory_limit, %s a rank; the leanest found needs %s", limit, most);
    fprintf(f, "\n  the limit is %zu bytes, the need %llu bytes on ", s->limit,
            (unsigned long long)needs[0].bytes);
    put_ranks(f, needs, alike);
    put_others(f, needs, alike, n);
    put_terms(f, r, &needs[0], s->scratch_of[needs[0].rank]);
    fprintf(f, "\n  what fits: a memory_limit of %llu bytes, which this plan keeps",
            (unsigned long long)needs[0].bytes);
    if (s->with_updates && s->with_updates < needs[0].bytes)
        fprintf(f, "\n  what fits: with infer_updates, a memory_limit of %zu bytes (%s)",
                s->with_updates, tsri_bytes_text((double)s->with_updates, most));
}

tsr_status tsri_plan_refuse(tsr_plan *plan, const tsri_shortage *shortage)
{
    char text[TEXT] = "";
    tsri_report r = {.plan = plan};
    tsri_pool_init(&r.pool, &plan->ir.world->mem);
    tsr_status status = tsri_report_memory_make(plan, &r);
    const rank_need *needs =
        status == TSR_OK && shortage->scratch_of ? list_needs(&r, shortage->scratch_of) : NULL;
    FILE *f = needs ? fmemopen(text, sizeof text, "w") : NULL;
    if (f) {
        put_refusal(f, &r, shortage, needs);
        fclose(f);
        status = tsri_fail(TSR_ERR_NO_MEMORY, "%s", text);
    } else if (status == TSR_OK) {
        status = tsri_fail(TSR_ERR_NO_MEMORY, "no plan fits memory_limit, %zu bytes a rank",
                           shortage->limit);
    }
    tsri_pool_finish(&r.pool);
    return status;
}
