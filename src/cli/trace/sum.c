/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/trace/trace.h"
#include "src/core/status.h"

#include <stdlib.h>
#include <string.h>

/* --- by op ------------------------------------------------------------------------------------ */
typedef struct op_table {
    trace_op *rows;
    int n, capacity;
} op_table;

static trace_op *row_of(trace *t, op_table *table, const char *op)
{
    for (int i = 0; i < table->n; i++)
        if (!strcmp(table->rows[i].op, op))
            return &table->rows[i];
    if (!TSRI_PUSH(&t->pool, table->rows, table->n, table->capacity))
        return NULL;
    table->rows[table->n] = (trace_op){.op = op};
    return &table->rows[table->n++];
}

static void add_to_row(trace_op *row, const trace_span *s)
{
    double lasts = s->end - s->start;
    double *const part[] = {NULL, &row->start, &row->wait, &row->release, &row->under_way};
    row->calls += s->kind == TRACE_COMPUTE || s->kind == TRACE_START;
    row->bytes += s->kind == TRACE_START ? s->bytes : 0;
    if (part[s->kind])
        *part[s->kind] += lasts;
    if (s->kind != TRACE_UNDER_WAY)
        row->us += lasts;
    if (s->kind != TRACE_UNDER_WAY &&
        (!row->longest || lasts > row->longest->end - row->longest->start))
        row->longest = s;
}

static int by_time(const void *a, const void *b)
{
    const trace_op *x = a, *y = b;
    return x->us != y->us ? (x->us < y->us ? 1 : -1) : strcmp(x->op, y->op);
}

/* --- by rank ---------------------------------------------------------------------------------- */
static int by_rank(const void *a, const void *b)
{
    const trace_span *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    return (x->start > y->start) - (x->start < y->start);
}

/* The next stretch that spans of a rank cover, from *at on; false at their end. under_way: of
 * collectives, else of computing. */
static bool next_stretch(const trace *t, int rank, bool under_way, int *at, double *start,
                         double *end)
{
    const trace_kind kind = under_way ? TRACE_UNDER_WAY : TRACE_COMPUTE;
    int i = *at;
    while (i < t->n && t->span[i].rank == rank && t->span[i].kind != kind)
        i++;
    if (i == t->n || t->span[i].rank != rank)
        return false;
    *start = t->span[i].start;
    *end = t->span[i].end;
    for (; i < t->n && t->span[i].rank == rank; i++) {
        const trace_span *s = &t->span[i];
        if (s->kind != kind)
            continue;
        if (s->start > *end)
            break;
        *end = s->end > *end ? s->end : *end;
    }
    *at = i;
    return true;
}

/* The time of a rank's collectives, and of it the time in which the rank computes. */
static void find_overlap(const trace *t, int first, trace_rank *r)
{
    int rank = t->span[first].rank, f = first, c = first;
    double from, to, start = 0, end = 0;
    bool computes = next_stretch(t, rank, false, &c, &start, &end);
    while (next_stretch(t, rank, true, &f, &from, &to)) {
        r->under_way += to - from;
        while (computes && start < to) {
            double a = start > from ? start : from, b = end < to ? end : to;
            r->overlap += b > a ? b - a : 0;
            if (end > to)
                break;
            computes = next_stretch(t, rank, false, &c, &start, &end);
        }
    }
}

static void add_to_rank(trace_rank *r, const trace_span *s)
{
    double *const part[] = {&r->compute, &r->calls, &r->wait, &r->calls, NULL};
    if (part[s->kind])
        *part[s->kind] += s->end - s->start;
    r->events++;
}

tsr_status trace_sum(trace *t, trace_sums *out)
{
    op_table ops = {0}, collectives = {0};
    *out = (trace_sums){.first = t->span[0].start, .last = t->span[0].end};
    out->rank = tsri_pool_alloc(&t->pool, (size_t)t->nranks * sizeof *out->rank);
    TSRI_NEED(out->rank);
    qsort(t->span, (size_t)t->n, sizeof *t->span, by_rank);
    for (int i = 0; i < t->n; i++) {
        const trace_span *s = &t->span[i];
        trace_op *row = row_of(t, s->kind == TRACE_COMPUTE ? &ops : &collectives, s->op);
        TSRI_NEED(row);
        add_to_row(row, s);
        add_to_rank(&out->rank[s->rank], s);
        if (i == 0 || t->span[i - 1].rank != s->rank)
            find_overlap(t, i, &out->rank[s->rank]);
        out->first = s->start < out->first ? s->start : out->first;
        out->last = s->end > out->last ? s->end : out->last;
    }
    for (int r = 0; r < t->nranks; r++) {
        const trace_rank *x = &out->rank[r];
        out->rank[r].idle = out->last - out->first - x->compute - x->calls - x->wait;
    }
    out->op = ops.rows;
    out->nops = ops.n;
    out->collective = collectives.rows;
    out->ncollectives = collectives.n;
    if (ops.n)
        qsort(ops.rows, (size_t)ops.n, sizeof *ops.rows, by_time);
    if (collectives.n)
        qsort(collectives.rows, (size_t)collectives.n, sizeof *collectives.rows, by_time);
    return TSR_OK;
}
