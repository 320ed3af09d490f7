/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement: before anything runs, ranks exchange their statuses and a hash of what they compiled.
 * If one failed, all say so with its text; if programs differ, all name the first op that does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/rng.h"
#include "src/plan/plan.h"

typedef struct summary {
    int32_t status, nops;
    uint64_t hash;
    char text[2000];
} summary;

/* Hashes of a run of ops, exchanged when programs differ. */
enum { CHUNK = 512 };

static uint64_t hash_text(uint64_t h, const char *text)
{
    return tsri_hash(h, text, strlen(text) + 1);
}

static uint64_t hash_op(const tsri_op *op)
{
    uint64_t h = TSRI_HASH_INIT;
    int32_t head[4] = {op->kind, op->nin, op->nout, op->from_local};
    h = tsri_hash(h, head, sizeof head);
    tsri_attrs attrs = op->attrs;
    if (op->kind == TSRI_OP_CONSTANT)
        attrs.constant.data = NULL; /* an address; its hash says what is there */
    h = tsri_hash(h, &attrs, sizeof attrs);
    h = tsri_hash(h, &op->sbp, sizeof op->sbp);
    h = hash_text(h, op->name);
    h = hash_text(h, tsr_placement_text(op->placement));
    for (int i = 0; i < op->nin; i++)
        h = tsri_hash(h, &op->in[i]->id, sizeof op->in[i]->id);
    for (int i = 0; i < op->nout; i++) {
        const tsr_tensor *t = op->out[i];
        int32_t type[2] = {t->dtype, t->shape.ndim};
        h = tsri_hash(h, type, sizeof type);
        h = tsri_hash(h, t->shape.d, (uint64_t)t->shape.ndim * sizeof t->shape.d[0]);
    }
    if (op->variable) {
        int32_t dtype = op->variable->dtype;
        h = tsri_hash(h, &op->variable->sbp, sizeof op->variable->sbp);
        h = tsri_hash(h, &dtype, sizeof dtype);
    }
    return h;
}

static uint64_t hash_graph(const tsr_graph *g, const tsr_compile_opts *opts)
{
    uint64_t h = TSRI_HASH_INIT;
    for (int i = 0; i < g->nops; i++) {
        uint64_t one = hash_op(g->ops[i]);
        h = tsri_hash(h, &one, sizeof one);
    }
    for (int i = 0; i < g->nports; i++) {
        h = hash_text(h, g->ports[i].name);
        h = tsri_hash(h, &g->ports[i].tensor->id, sizeof g->ports[i].tensor->id);
        h = tsri_hash(h, &g->ports[i].sbp, sizeof g->ports[i].sbp);
        h = hash_text(h, tsr_placement_text(g->ports[i].placement));
    }
    int32_t flags[2] = {g->training, opts->no_fusion};
    h = tsri_hash(h, flags, sizeof flags);
    uint64_t limits[2] = {opts->memory_limit, (uint64_t)opts->nlinks};
    h = tsri_hash(h, limits, sizeof limits);
    for (int i = 0; i < opts->nlinks && i < 3; i++) {
        double link[3] = {opts->link[i].ranks, opts->link[i].latency_s, opts->link[i].bytes_per_s};
        h = tsri_hash(h, link, sizeof link);
    }
    return tsri_hash(h, &opts->bucket_mb, sizeof opts->bucket_mb);
}

static void describe_op(tsr_graph *g, int i, char *buf, size_t size)
{
    if (i >= g->nops) {
        snprintf(buf, size, "has no more ops");
        return;
    }
    const tsri_op *op = g->ops[i];
    int n = snprintf(buf, size, "%s:%d: %s %s(", tsri_basename(op->loc.file), op->loc.line,
                     tsri_op_name(op->kind), op->name);
    for (int j = 0; j < op->nin && n > 0 && (size_t)n < size; j++)
        n += snprintf(buf + n, size - (size_t)n, j ? ", %s" : "%s",
                      tsri_dims_text(g, op->in[j]->shape));
    for (int j = 0; j < op->nout && n > 0 && (size_t)n < size; j++) {
        char sbp[TSR_SBP_TEXT_MAX] = "";
        n += snprintf(buf + n, size - (size_t)n, "%s%s %s %s %s", j ? ", " : ") -> ",
                      tsr_dtype_name(op->out[j]->dtype), tsri_dims_text(g, op->out[j]->shape),
                      tsr_placement_text(op->placement),
                      op->sbp.ndim ? tsr_sbp_format(op->sbp, sbp) : "");
    }
    if (op->kind == TSRI_OP_CONSTANT && n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, " of data %016llx",
                 (unsigned long long)op->attrs.constant.hash);
}

/* All ranks are here with differing hashes: finds the first op that differs and names it. */
static tsr_status name_difference(tsr_graph *g, const summary *all, uint64_t *mine,
                                  uint64_t *theirs)
{
    tsri_comm *comm = g->world->comm;
    int n = g->world->nranks, most = 0, op = -1, other = 0;
    for (int r = 0; r < n; r++)
        most = all[r].nops > most ? all[r].nops : most;
    for (int from = 0; from < most && op < 0; from += CHUNK) {
        memset(mine, 0, CHUNK * sizeof *mine);
        for (int i = 0; i < CHUNK && from + i < g->nops; i++)
            mine[i] = hash_op(g->ops[from + i]);
        TSRI_TRY(comm->ops->exchange(comm, mine, CHUNK * sizeof *mine, theirs));
        for (int i = 0; i < CHUNK && op < 0; i++)
            for (int r = 1; r < n && op < 0; r++)
                if (theirs[r * CHUNK + i] != theirs[i]) {
                    op = from + i;
                    other = r;
                }
    }
    if (op < 0)
        return tsri_fail(TSR_ERR_MISMATCH,
                         "ranks declare the same ops, but different inputs, outputs "
                         "or compile options");
    char text[512];
    describe_op(g, op, text, sizeof text);
    char *texts = tsri_mem_alloc(&g->world->mem, (size_t)n * sizeof text);
    if (!texts) {
        comm->ops->abort(comm, tsr_last_error()); /* the others wait in the exchange */
        return TSR_ERR_NO_MEMORY;
    }
    tsr_status status = comm->ops->exchange(comm, text, sizeof text, texts);
    if (status == TSR_OK)
        status =
            tsri_fail(TSR_ERR_MISMATCH,
                      "ranks declare different graphs: op %d is the first that differs: rank 0: "
                      "%.500s; rank %d: %.500s",
                      op, texts, other, texts + (size_t)other * sizeof text);
    tsri_mem_free(texts);
    return status;
}

tsr_status tsri_plan_agree(tsr_graph *g, const tsr_compile_opts *opts, tsr_status status)
{
    tsr_world *w = g->world;
    if (!w->comm || w->nranks == 1)
        return status;
    /* A graph that failed may be half made. */
    uint64_t hash = status == TSR_OK ? hash_graph(g, opts) : 0;
    summary mine = {.status = status, .nops = g->nops, .hash = hash};
    snprintf(mine.text, sizeof mine.text, "%s", status == TSR_OK ? "" : tsr_last_error());
    summary *all = tsri_mem_alloc(&w->mem, (size_t)w->nranks * sizeof *all);
    uint64_t *chunk = tsri_mem_alloc(&w->mem, (size_t)(w->nranks + 1) * CHUNK * sizeof *chunk);
    if (!all || !chunk) {
        w->comm->ops->abort(w->comm, tsr_last_error());
        status = TSR_ERR_NO_MEMORY;
        goto done;
    }
    tsr_status mine_status = status;
    TSRI_GOTO(w->comm->ops->exchange(w->comm, &mine, sizeof mine, all), done);
    bool same = true;
    for (int r = 0; r < w->nranks && mine_status == TSR_OK; r++)
        if (all[r].status != TSR_OK) {
            status = tsri_fail((tsr_status)all[r].status, "rank %d could not compile: %s", r,
                               all[r].text);
            goto done;
        }
    if (mine_status != TSR_OK) {
        status = tsri_fail(mine_status, "%s", mine.text);
        goto done;
    }
    for (int r = 1; r < w->nranks; r++)
        same &= all[r].hash == all[0].hash;
    if (!same)
        status = name_difference(g, all, chunk, chunk + CHUNK);
done:
    tsri_mem_free(all);
    tsri_mem_free(chunk);
    return status;
}
