/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/call.h"
#include "src/comm/nccl/agree.h"

#include <stdio.h>
#include <string.h>

/* A member's record of the call, and how many words follow on what it reads: whole words. */
typedef struct saying {
    tsri_call_entry call;
    int64_t words;
} saying;
_Static_assert(sizeof(saying) % sizeof(int64_t) == 0, "a saying goes as words");

/* All members' `count` words, in their order; the caller frees them. A rank that can't come to it
 * tells the others, which would wait. */
static tsr_status gather(const tsri_group *g, const void *mine, int64_t count, int64_t **out_all)
{
    tsr_world *world = g->comm->world;
    int64_t *all = tsri_mem_alloc(&world->mem, (size_t)(count * g->nranks) * sizeof *all);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (all)
        status = tsri_comm_gather_words(world, g->nranks, g->ranks, "agreeing on a call", count,
                                        mine, all);
    if (status == TSR_ERR_NO_MEMORY)
        world->comm->ops->abort(world->comm, tsr_last_error());
    if (status == TSR_OK)
        *out_all = all;
    else
        tsri_mem_free(all);
    return status;
}

static void describe(const tsri_call_entry *c, char *buf, size_t size)
{
    char name[192];
    snprintf(buf, size, "%s: %s%s, root %d, %lld segments, %lld bytes",
             tsri_call_text(c, name, sizeof name), tsri_reduce_name(c->op),
             c->algo == TSRI_ALGO_TWO_PHASE ? ", two-phase" : "", (int)c->root, (long long)c->nseg,
             (long long)c->bytes);
}

/* With the first member; all compare all, so all find the same. */
static tsr_status compare(const tsri_group *g, const saying *all)
{
    for (int i = 1; i < g->nranks; i++) {
        char first[320], other[320];
        if (tsri_call_agrees(&all[0].call, &all[i].call))
            continue;
        describe(&all[0].call, first, sizeof first);
        describe(&all[i].call, other, sizeof other);
        return tsri_fail(TSR_ERR_MISMATCH, "ranks disagree: rank %d is at %s; rank %d is at %s%s",
                         g->ranks[0], first, g->ranks[i], other,
                         strcmp(first, other) ? "" : " (dtypes, shapes or axes differ)");
    }
    return TSR_OK;
}

static tsr_status pass_words(const tsri_group *g, const tsri_coll *coll, int64_t most,
                             tsri_nccl_words *out_words)
{
    int64_t *all;
    int64_t *mine = tsri_mem_alloc(&g->comm->world->mem, (size_t)most * sizeof *mine);
    if (!mine) {
        g->comm->world->comm->ops->abort(g->comm->world->comm, tsr_last_error());
        return TSR_ERR_NO_MEMORY;
    }
    tsri_nccl_describe(coll, -1, most, mine);
    tsr_status status = gather(g, mine, most, &all);
    tsri_mem_free(mine);
    if (status == TSR_OK)
        *out_words = (tsri_nccl_words){all, most};
    return status;
}

tsr_status tsri_nccl_agree(const tsri_group *g, const tsri_coll *coll, tsri_nccl_words *out_words)
{
    bool pulls = coll->kind == TSRI_COLL_SEND_RECV;
    saying mine = {.words = pulls ? tsri_nccl_describe(coll, -1, 0, NULL) : 0};
    int64_t *words, most = 0;
    tsri_call_fill(&mine.call, coll, 0, coll->nseg);
    *out_words = (tsri_nccl_words){0};
    TSRI_TRY(gather(g, &mine, (int64_t)(sizeof mine / sizeof(int64_t)), &words));
    const saying *all = (const saying *)words;
    for (int i = 0; i < g->nranks; i++)
        most = all[i].words > most ? all[i].words : most;
    tsr_status status = compare(g, all);
    if (status == TSR_OK && pulls && most > 0)
        status = pass_words(g, coll, most, out_words);
    tsri_mem_free(words);
    return status;
}
