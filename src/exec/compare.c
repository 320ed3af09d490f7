/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing what each rank gave by itself: inputs that were fed, variables, optimizers' settings.
 * Only where it was asked for (tsr_compile_opts.compare_values): ranks hash what they hold, show
 * each other the hashes before each run, and those that hold the same part must have the same.
 */
#include "src/exec/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/rng.h"

typedef enum thing_kind {
    INPUT = 0,
    VARIABLE,
    OPTIMIZER,
} thing_kind;

/* One thing that ranks may hold differently. */
typedef struct thing {
    thing_kind kind;
    const char *name;
    const tsri_ir_port *port;
    const tsr_variable *variable;
    const tsri_hook *hook;
} thing;

struct tsri_compare {
    int nthings, npeers;
    thing *things;
    int *peers;          /* ranks that have a part in the plan, this one too */
    int64_t *mine, *all; /* per thing: which part (0: none), its hash; of all peers */
    size_t bytes;
    char *buffer; /* for the largest part */
};

bool tsri_compare_in_environment(void)
{
    const char *said = getenv("TESSERA_COMPARE");
    return said && *said && strcmp(said, "0");
}

bool tsri_compare_asked(const tsr_compile_opts *opts)
{
    return opts->compare_values || tsri_compare_in_environment();
}

/* --- what there is to compare ----------------------------------------------------------------- */
/* Addends differ by right, and of local values in B the first rank's counts. */
static bool is_shared(const tsri_ir_port *p)
{
    bool is = p->info.is_input && !p->from_local;
    for (int d = 0; d < p->info.sbp.ndim; d++)
        is &= p->info.sbp.d[d].kind != TSR_SBP_PARTIAL;
    return is;
}

static void add_things(tsr_plan *plan, tsri_compare *c)
{
    for (int i = 0; i < plan->ir.nports; i++) {
        const tsri_ir_port *p = &plan->ir.ports[i];
        if (!is_shared(p))
            continue;
        c->things[c->nthings++] = (thing){.kind = INPUT, .name = p->info.name, .port = p};
        c->bytes = p->bytes > c->bytes ? p->bytes : c->bytes;
    }
    for (int i = 0; i < plan->ir.nvalues; i++) {
        const tsri_value *v = &plan->ir.values[i];
        /* Addends differ from rank to rank. */
        if (v->storage != TSRI_STORAGE_VARIABLE || !v->source || tsri_variable_adds_up(v->variable))
            continue;
        c->things[c->nthings++] =
            (thing){.kind = VARIABLE, .name = v->name, .variable = v->variable};
        c->bytes = v->variable->bytes > c->bytes ? v->variable->bytes : c->bytes;
    }
    for (int i = 0; i < plan->ir.nhooks; i++)
        c->things[c->nthings++] =
            (thing){.kind = OPTIMIZER, .name = "optimizer", .hook = &plan->ir.hooks[i]};
}

static void add_ranks(bool *has, const tsr_placement *p)
{
    for (int i = 0; i < tsr_placement_nranks(p); i++)
        has[tsr_placement_rank(p, i)] = true;
}

/* All ranks see the same. */
static tsr_status find_peers(tsr_plan *plan, tsri_compare *c)
{
    int n = plan->ir.world->nranks;
    bool *has = tsri_pool_alloc(&plan->ir.scratch, (size_t)n);
    c->peers = tsri_pool_alloc(&plan->pool, (size_t)n * sizeof *c->peers);
    TSRI_NEED(has && c->peers);
    const tsr_placement *last = NULL;
    for (int i = 0; i < plan->ir.nvalues; i++) {
        if (plan->ir.values[i].placement != last)
            add_ranks(has, plan->ir.values[i].placement);
        last = plan->ir.values[i].placement;
    }
    for (int i = 0; i < n; i++)
        if (has[i])
            c->peers[c->npeers++] = i;
    return has[plan->ir.world->rank] ? TSR_OK : TSR_END;
}

tsr_status tsri_compare_create(tsr_plan *plan)
{
    tsri_pool *pool = &plan->pool;
    tsri_compare *c = tsri_pool_alloc(pool, sizeof *c);
    size_t most = (size_t)plan->ir.nports + (size_t)plan->ir.nvalues + (size_t)plan->ir.nhooks;
    if (!c || !(c->things = tsri_pool_alloc(pool, most * sizeof *c->things)))
        return TSR_ERR_NO_MEMORY;
    tsr_status status = find_peers(plan, c);
    if (status != TSR_OK || c->npeers < 2)
        return status == TSR_END ? TSR_OK : status; /* no part in it: nothing to compare */
    add_things(plan, c);
    size_t words = 2 * (size_t)c->nthings + 2;
    c->mine = tsri_pool_alloc(pool, words * sizeof *c->mine);
    c->all = tsri_pool_alloc(pool, words * (size_t)c->npeers * sizeof *c->all);
    c->buffer = tsri_pool_alloc(pool, c->bytes);
    TSRI_NEED(c->mine && c->all && c->buffer);
    plan->compare = c;
    return TSR_OK;
}

/* --- what this rank holds --------------------------------------------------------------------- */
/* Which part of the whole it is; ranks with the same number hold the same. Never 0. */
static int64_t part_number(tsr_dims lshape, const int64_t *offset)
{
    uint64_t h = tsri_hash(TSRI_HASH_INIT, lshape.d, sizeof lshape.d);
    h = tsri_hash(h, offset, TSR_MAX_NDIM * sizeof *offset);
    return (int64_t)(h | 1);
}

static tsr_status hash_port(const tsr_plan *plan, tsri_compare *c, const tsri_ir_port *p,
                            int64_t *to)
{
    tsri_device *d = plan->part[tsr_placement_device(p->info.placement)].device;
    tsr_dims shard;
    int64_t offset[TSR_MAX_NDIM];
    if (!p->bytes || !d)
        return TSR_OK;
    tsri_shard(p->info.dims, p->info.placement, p->info.sbp, plan->ir.world->rank, &shard, offset);
    TSRI_TRY(d->ops->copy_out(d, c->buffer, p->ptr, p->bytes, d->stream));
    to[0] = part_number(shard, offset);
    to[1] = (int64_t)tsri_hash(TSRI_HASH_INIT, c->buffer, p->bytes);
    return TSR_OK;
}

static tsr_status hash_variable(tsri_compare *c, const tsr_variable *v, int64_t *to)
{
    if (!v->data)
        return TSR_OK;
    TSRI_TRY(tsri_variable_read(v, 0, c->buffer, v->bytes));
    to[0] = part_number(v->lshape, v->offset);
    to[1] = (int64_t)tsri_hash(TSRI_HASH_INIT, c->buffer, v->bytes);
    return TSR_OK;
}

tsr_status tsri_compare_hash_settings(void (*describe)(const void *arg, FILE *f), const void *arg,
                                      int64_t *out)
{
    char text[2048] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    if (!f)
        return tsri_fail(TSR_ERR_NO_MEMORY, "no host memory to compare settings");
    describe(arg, f);
    fclose(f);
    *out = (int64_t)tsri_hash(TSRI_HASH_INIT, text, strnlen(text, sizeof text));
    return TSR_OK;
}

static tsr_status hash_settings(const tsri_hook *hook, int64_t *to)
{
    to[0] = 1;
    return tsri_compare_hash_settings(hook->describe, hook->arg, &to[1]);
}

static tsr_status hash_all(const tsr_plan *plan, tsri_compare *c)
{
    memset(c->mine, 0, (2 * (size_t)c->nthings + 2) * sizeof *c->mine);
    for (int i = 0; i < c->nthings; i++) {
        const thing *t = &c->things[i];
        int64_t *to = &c->mine[2 * i];
        TSRI_TRY(t->kind == INPUT      ? hash_port(plan, c, t->port, to)
                 : t->kind == VARIABLE ? hash_variable(c, t->variable, to)
                                       : hash_settings(t->hook, to));
    }
    return TSR_OK;
}

/* --- before a run ----------------------------------------------------------------------------- */
static tsr_status fail_thing(const tsri_compare *c, int i, int a, int b)
{
    static const char *const what[] = {"were fed different values of input",
                                       "hold different values of variable",
                                       "have different settings (see tsr_optimizer_set_lr) of the"};
    const thing *t = &c->things[i];
    return tsri_fail(TSR_ERR_MISMATCH, "tsr_run: ranks %d and %d %s %s", c->peers[a], c->peers[b],
                     what[t->kind], t->name);
}

/* All peers find the same. */
static tsr_status judge(const tsri_compare *c)
{
    size_t words = 2 * (size_t)c->nthings + 2;
    for (int i = 0; i < c->nthings; i++)
        for (int b = 1; b < c->npeers; b++)
            for (int a = 0; a < b; a++) {
                const int64_t *x = &c->all[(size_t)a * words + 2 * (size_t)i];
                const int64_t *y = &c->all[(size_t)b * words + 2 * (size_t)i];
                if (x[0] && x[0] == y[0] && x[1] != y[1])
                    return fail_thing(c, i, a, b);
            }
    return TSR_OK;
}

tsr_status tsri_compare_run(tsr_plan *plan)
{
    tsri_compare *c = plan->compare;
    tsr_status status = hash_all(plan, c);
    if (status == TSR_OK)
        status = tsri_plan_gather(plan, c->npeers, c->peers, "comparing values",
                                  2 * (int64_t)c->nthings + 2, c->mine, c->all);
    if (status != TSR_OK)
        return tsri_plan_fail(plan, status);
    return judge(c);
}
