/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement: before anything runs, ranks exchange their statuses and a hash of what they compiled.
 * If one failed, all say so with its text; if programs, settings or optimizers differ, all name
 * what differs first, and how.
 */
#include "src/plan/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/rng.h"

typedef struct summary {
    int32_t status, count[TSRI_PART_KINDS];
    uint64_t hash, bytes, scratch, compares, order;
    char text[2000];
} summary;

/* Hashes of a run of parts, exchanged when programs differ. */
enum { CHUNK = 512 };

static uint64_t hash_program(const tsri_program_view *p)
{
    uint64_t h = TSRI_HASH_INIT;
    for (int k = 0; k < TSRI_PART_KINDS; k++)
        for (int i = 0; i < tsri_part_count(p, (tsri_part_kind)k); i++) {
            uint64_t one = tsri_part_hash(p, (tsri_part_kind)k, i);
            h = tsri_hash(h, &one, sizeof one);
        }
    return h;
}

/* --- what differs ----------------------------------------------------------------------------- */
/* A part, and a rank on which it is not what it is on rank 0. */
typedef struct difference {
    tsri_part_kind kind;
    int part, rank; /* part -1: nothing was found */
} difference;

/* All ranks are here. `mine` has room for CHUNK hashes, `theirs` for those of all ranks. */
static tsr_status find_difference(const tsri_program_view *p, const summary *all, uint64_t *mine,
                                  uint64_t *theirs, difference *out)
{
    tsri_comm *comm = p->g->world->comm;
    int n = p->g->world->nranks;
    out->part = -1;
    for (int k = 0; k < TSRI_PART_KINDS && out->part < 0; k++) {
        int most = 0;
        for (int r = 0; r < n; r++)
            most = all[r].count[k] > most ? all[r].count[k] : most;
        for (int from = 0; from < most && out->part < 0; from += CHUNK) {
            for (int i = 0; i < CHUNK; i++)
                mine[i] = tsri_part_hash(p, (tsri_part_kind)k, from + i);
            TSRI_TRY(comm->ops->exchange(comm, mine, CHUNK * sizeof *mine, theirs));
            for (int i = 0; i < CHUNK && out->part < 0; i++)
                for (int r = 1; r < n && out->part < 0; r++)
                    if (theirs[r * CHUNK + i] != theirs[i])
                        *out = (difference){(tsri_part_kind)k, from + i, r};
        }
    }
    return TSR_OK;
}

/* Splits the next line off. */
static char *next_line(char **text)
{
    char *line = *text, *end = strchr(line, '\n');
    *text = end ? end + 1 : line + strlen(line);
    if (end)
        *end = 0;
    return line;
}

/* "momentum is 0.9 on rank 0 and 0.8 on rank 1" of the first lines that differ; "" if none do. */
static void compare_lines(char *a, char *b, int rank, char *buf, size_t size)
{
    buf[0] = 0;
    while (*a || *b) {
        const char *x = next_line(&a), *y = next_line(&b), *value = strstr(x, ": ");
        if (!strcmp(x, y))
            continue;
        size_t name = value ? (size_t)(value - x) : 0;
        if (value && !strncmp(x, y, name + 2))
            snprintf(buf, size, "%.*s is %.300s on rank 0 and %.300s on rank %d", (int)name, x,
                     value + 2, y + name + 2, rank);
        else
            snprintf(buf, size, "rank 0 has '%.300s', rank %d '%.300s'", x, rank, y);
        return;
    }
}

static tsr_status fail_different(const difference *d, char *text_0, char *text_r)
{
    static const char *const what[] = {
        "ranks compile with different settings", "ranks have different optimizers",
        "ranks declare different graphs", "ranks declare different inputs or outputs"};
    static const char *const part[] = {"", "optimizer", "op", "port"};
    char which[48] = "", how[1024], places[1200] = "";
    char *head_0 = next_line(&text_0), *head_r = next_line(&text_r);
    if (d->kind != TSRI_PART_SETTINGS) {
        snprintf(which, sizeof which, "%s %d is the first that differs: ", part[d->kind], d->part);
        snprintf(places, sizeof places, "rank 0: %.500s; rank %d: %.500s", head_0, d->rank, head_r);
    }
    compare_lines(text_0, text_r, d->rank, how, sizeof how);
    return tsri_fail(TSR_ERR_MISMATCH, "%s: %s%s%s%s", what[d->kind], which, how,
                     how[0] && places[0] ? "; " : "", places);
}

/* Ranks show each other the part that differs. */
static tsr_status show_difference(const tsri_program_view *p, const difference *d, char *texts)
{
    tsri_comm *comm = p->g->world->comm;
    char mine[TSRI_PART_TEXT] = "";
    tsri_part_text(p, d->kind, d->part, mine);
    TSRI_TRY(comm->ops->exchange(comm, mine, sizeof mine, texts));
    return fail_different(d, texts, texts + (size_t)d->rank * TSRI_PART_TEXT);
}

/* All ranks are here with differing hashes. */
static tsr_status name_difference(const tsri_program_view *p, const summary *all)
{
    tsr_world *w = p->g->world;
    size_t hashes = (size_t)(w->nranks + 1) * CHUNK * sizeof(uint64_t);
    size_t texts = (size_t)w->nranks * TSRI_PART_TEXT;
    uint64_t *mine = tsri_mem_alloc(&w->mem, hashes > texts ? hashes : texts);
    if (!mine) {
        w->comm->ops->abort(w->comm, tsr_last_error()); /* the others wait in the exchange */
        return TSR_ERR_NO_MEMORY;
    }
    difference d;
    tsr_status status = find_difference(p, all, mine, mine + CHUNK, &d);
    if (status == TSR_OK && d.part < 0)
        status = tsri_fail(TSR_ERR_INTERNAL, "programs differ as a whole, but in no part");
    else if (status == TSR_OK)
        status = show_difference(p, &d, (char *)mine);
    tsri_mem_free(mine);
    return status;
}

/* --- agreeing --------------------------------------------------------------------------------- */
/* Judges the summaries of all ranks. */
static tsr_status judge(const tsri_program_view *p, const summary *all, tsri_need *need)
{
    int n = p->g->world->nranks;
    const summary *mine = &all[p->g->world->rank];
    bool same = true;
    if (mine->status != TSR_OK)
        return tsri_fail((tsr_status)mine->status, "%s", mine->text);
    for (int r = 0; r < n; r++)
        if (all[r].status != TSR_OK)
            return tsri_fail((tsr_status)all[r].status, "rank %d could not compile: %s", r,
                             all[r].text);
    for (int r = 1; r < n; r++)
        same &= all[r].hash == all[0].hash;
    if (!same)
        return name_difference(p, all);
    bool compares = false;
    for (int r = 0; r < n; r++) {
        compares |= all[r].compares;
        if (all[r].order != all[0].order)
            return tsri_fail(TSR_ERR_INTERNAL,
                             "ranks 0 and %d made plans of the same program that communicate in "
                             "another order",
                             r);
    }
    for (int r = 0; r < n && need; r++) {
        size_t *scratch_of = need->scratch_of;
        if (scratch_of)
            scratch_of[r] = (size_t)all[r].scratch;
        if (r == 0 || all[r].bytes > need->bytes)
            *need = (tsri_need){.bytes = (size_t)all[r].bytes,
                                .scratch = (size_t)all[r].scratch,
                                .scratch_of = scratch_of,
                                .rank = r,
                                .compares = compares};
    }
    return TSR_OK;
}

tsr_status tsri_plan_agree(tsr_graph *g, const tsr_compile_opts *opts, tsr_status status,
                           tsri_need *need)
{
    tsr_world *w = g->world;
    if (!w->comm || w->nranks == 1)
        return status;
    const tsri_program_view p = {g, opts};
    summary *mine = tsri_mem_alloc(&w->mem, (size_t)(w->nranks + 1) * sizeof *mine);
    if (!mine) {
        w->comm->ops->abort(w->comm, tsr_last_error());
        return TSR_ERR_NO_MEMORY;
    }
    *mine = (summary){.status = status};
    snprintf(mine->text, sizeof mine->text, "%s", status == TSR_OK ? "" : tsr_last_error());
    for (int k = 0; k < TSRI_PART_KINDS; k++)
        mine->count[k] = tsri_part_count(&p, (tsri_part_kind)k);
    /* A graph that failed may be half made. */
    if (status == TSR_OK && opts)
        mine->hash = hash_program(&p);
    if (need) {
        mine->bytes = need->bytes;
        mine->scratch = need->scratch;
        mine->compares = need->compares;
        mine->order = need->order;
    }
    summary *all = mine + 1;
    tsr_status met = w->comm->ops->exchange(w->comm, mine, sizeof *mine, all);
    if (met == TSR_OK)
        met = judge(&p, all, need);
    tsri_mem_free(mine);
    return met;
}
