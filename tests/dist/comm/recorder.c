/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/comm/recorder.h"

#include <stdio.h>

typedef struct wrapped_group {
    tsri_group pub; /* pub.priv: the inner group */
    struct wrapped_group *next;
} wrapped_group;

typedef struct recorder {
    tsri_comm pub;
    tsri_comm *inner;
    wrapped_group *groups;
    recorded_call *records;
    int count, capacity;
} recorder;

static recorder *of(tsri_comm *c)
{
    return (recorder *)c->priv;
}

static tsr_status rec_group(tsri_comm *c, int nranks, const int *ranks, int lane,
                            tsri_group **out_group)
{
    recorder *r = of(c);
    tsri_group *inner;
    TSRI_TRY(r->inner->ops->group(r->inner, nranks, ranks, lane, &inner));
    for (wrapped_group *w = r->groups; w; w = w->next) {
        if (w->pub.priv == inner) {
            *out_group = &w->pub;
            return TSR_OK;
        }
    }
    wrapped_group *w = tsri_mem_alloc(&c->world->mem, sizeof *w);
    if (!w)
        return TSR_ERR_NO_MEMORY;
    w->pub = *inner;
    w->pub.comm = c;
    w->pub.priv = inner;
    w->next = r->groups;
    r->groups = w;
    *out_group = &w->pub;
    return TSR_OK;
}

static tsr_status note(recorder *r, const tsri_group *g, const tsri_coll *coll)
{
    if (r->count == r->capacity) {
        int more = r->capacity ? 2 * r->capacity : 256;
        void *p =
            tsri_mem_realloc(&r->pub.world->mem, r->records, (size_t)more * sizeof *r->records);
        if (!p)
            return TSR_ERR_NO_MEMORY;
        r->records = p;
        r->capacity = more;
    }
    recorded_call *rec = &r->records[r->count];
    *rec =
        (recorded_call){.kind = coll->kind, .op = coll->op, .nranks = g->nranks, .lane = g->lane};
    for (int i = 0; i < coll->nseg; i++)
        rec->bytes +=
            tsri_coll_bytes(coll->kind, coll->algo, g->nranks, g->index, coll->root, &coll->seg[i]);
    snprintf(rec->what, sizeof rec->what, "%s", coll->what ? coll->what : "");
    return TSR_OK;
}

static tsr_status rec_start(tsri_group *g, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    recorder *r = of(g->comm);
    TSRI_TRY(note(r, g, coll));
    TSRI_TRY(r->inner->ops->start(g->priv, coll, out_ticket));
    r->count++;
    return TSR_OK;
}

static tsr_status rec_finish(tsri_group *g, tsri_ticket *ticket)
{
    return of(g->comm)->inner->ops->finish(g->priv, ticket);
}

static tsr_status rec_release(tsri_group *g, tsri_ticket *ticket)
{
    return of(g->comm)->inner->ops->release(g->priv, ticket);
}

static tsr_status rec_prepare(tsri_group *g, tsri_coll *coll)
{
    const tsri_comm_ops *inner = of(g->comm)->inner->ops;
    return inner->prepare ? inner->prepare(g->priv, coll) : TSR_OK;
}

static void rec_unprepare(tsri_group *g, tsri_coll *coll)
{
    of(g->comm)->inner->ops->unprepare(g->priv, coll);
}

static tsr_status rec_partition(tsri_comm *c, const int *color, const int *key, int lane)
{
    tsri_comm *inner = of(c)->inner;
    return inner->ops->partition ? inner->ops->partition(inner, color, key, lane) : TSR_OK;
}

static tsr_status rec_check(tsri_comm *c)
{
    tsri_comm *inner = of(c)->inner;
    return inner->ops->check ? inner->ops->check(inner) : TSR_OK;
}

static tsr_status rec_exchange(tsri_comm *c, const void *mine, size_t bytes, void *all)
{
    return of(c)->inner->ops->exchange(of(c)->inner, mine, bytes, all);
}

static void rec_abort(tsri_comm *c, const char *text)
{
    of(c)->inner->ops->abort(of(c)->inner, text);
}

static void rec_stats(tsri_comm *c, tsri_comm_stats *out_stats)
{
    of(c)->inner->ops->stats(of(c)->inner, out_stats);
}

static void rec_capture_begin(tsri_comm *c)
{
    tsri_comm *inner = of(c)->inner;
    if (inner->ops->capture_begin)
        inner->ops->capture_begin(inner);
}

static void rec_capture_end(tsri_comm *c)
{
    tsri_comm *inner = of(c)->inner;
    if (inner->ops->capture_end)
        inner->ops->capture_end(inner);
}

static tsr_status rec_twin(tsri_comm *c, tsri_comm **out_comm)
{
    return of(c)->inner->ops->twin(of(c)->inner, out_comm);
}

static tsri_comm *rec_on_machine(tsri_comm *c)
{
    return tsri_comm_on_machine(of(c)->inner);
}

static void rec_destroy(tsri_comm *c)
{
    if (!c)
        return;
    recorder *r = of(c);
    while (r->groups) {
        wrapped_group *next = r->groups->next;
        tsri_mem_free(r->groups);
        r->groups = next;
    }
    tsri_mem_free(r->records);
    tsri_mem_free(r);
}

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "record",
    .group = rec_group,
    .start = rec_start,
    .finish = rec_finish,
    .release = rec_release,
    .prepare = rec_prepare,
    .unprepare = rec_unprepare,
    .partition = rec_partition,
    .exchange = rec_exchange,
    .abort = rec_abort,
    .stats = rec_stats,
    .destroy = rec_destroy,
    .check = rec_check,
    .twin = rec_twin,
    .on_machine = rec_on_machine,
    .capture_begin = rec_capture_begin,
    .capture_end = rec_capture_end,
};

tsr_status recorder_create(tsri_comm *inner, tsri_comm **out_comm)
{
    recorder *r = tsri_mem_alloc(&inner->world->mem, sizeof *r);
    if (!r)
        return TSR_ERR_NO_MEMORY;
    r->pub = (tsri_comm){.ops = &ops,
                         .world = inner->world,
                         .priv = r,
                         .capturable = inner->capturable,
                         .in_region = inner->in_region,
                         .early = inner->early};
    r->inner = inner;
    *out_comm = &r->pub;
    return TSR_OK;
}

const recorded_call *recorder_calls(const tsri_comm *c, int *out_count)
{
    const recorder *r = c->priv;
    *out_count = r->count;
    return r->records;
}

void recorder_clear(tsri_comm *c)
{
    of(c)->count = 0;
}
