/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels keep packed weights from run to run. Every write gives a variable a new version: a set, a
 * load, a checkpoint, a broadcast, a run of any plan. Before a run, a plan packs its weights again
 * if one of them has a version that is newer than the packed bytes. Each rank decides this by
 * itself, since packing does not communicate.
 */
#include <string.h>

#include "src/exec/exec.h"
#include "src/plan/pass/pass.h"

enum { ALIGNMENT = 64 };

/* The bytes that a step's kernel keeps, in whole units of the alignment. */
static size_t kept_of(const tsri_step *s)
{
    const size_t bytes = s->kind == TSRI_STEP_KERNEL && s->kernel->keep ? s->kernel->kept_bytes : 0;
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Takes zeroed memory; the caller frees *out_block. */
static tsr_status take(const tsr_plan *plan, size_t bytes, void **out_block, char **out_aligned)
{
    *out_block = tsri_mem_alloc(&plan->ir.world->mem, bytes + ALIGNMENT);
    TSRI_NEED(*out_block);
    *out_aligned = (char *)*out_block + (-(uintptr_t)*out_block & (ALIGNMENT - 1));
    return TSR_OK;
}

/* Lists the variables of which a kernel packs something. */
static tsr_status list_packed(tsr_plan *plan, const tsri_item *it)
{
    tsri_kept *k = &plan->kept;
    for (int i = 0; i < it->nin; i++) {
        const tsri_value *v = &plan->ir.values[tsri_ir_root(&plan->ir, it->in[i])];
        if (!v->variable || !v->fixed)
            continue;
        TSRI_NEED(TSRI_PUSH(&plan->pool, k->of, k->nof, k->cof));
        k->of[k->nof++] = v->variable;
    }
    return TSR_OK;
}

/* Lists the variables of modules that an item writes. No kernel packs any other variable. */
static tsr_status list_written(tsr_plan *plan, const tsri_item *it)
{
    tsri_kept *k = &plan->kept;
    for (int j = 0; j < it->nout && it->kind != TSRI_ITEM_DEAD && !tsri_item_shows(it); j++) {
        const tsri_value *v = &plan->ir.values[tsri_ir_root(&plan->ir, it->out[j])];
        if (v->storage != TSRI_STORAGE_VARIABLE || !v->variable->scope)
            continue;
        TSRI_NEED(TSRI_PUSH(&plan->pool, k->written, k->nwritten, k->cwritten));
        k->written[k->nwritten++] = v->variable;
    }
    return TSR_OK;
}

tsr_status tsri_kept_create(tsr_plan *plan)
{
    tsri_kept *k = &plan->kept;
    char *at;
    for (int i = 0; i < plan->ir.nitems; i++)
        TSRI_TRY(list_written(plan, &plan->ir.items[i]));
    for (int i = 0; i < plan->nsteps; i++)
        if (kept_of(&plan->steps[i])) {
            const int item = (int)(plan->steps[i].item - plan->ir.items);
            k->bytes += kept_of(&plan->steps[i]);
            for (int m = tsri_chain_begin(&plan->ir, item); m < tsri_chain_end(&plan->ir, item);
                 m++)
                TSRI_TRY(list_packed(plan, &plan->ir.items[m]));
        }
    if (!k->bytes)
        return TSR_OK;
    TSRI_TRY(take(plan, k->bytes, &k->block, &at));
    for (int i = 0; i < plan->nsteps; i++) {
        tsri_step *s = &plan->steps[i];
        if (kept_of(s)) {
            s->kept = s->in[s->values ? s->nin : s->item->nin] = at;
            at += kept_of(s);
        }
    }
    return TSR_OK;
}

void tsri_kept_free(tsr_plan *plan)
{
    tsri_mem_free(plan->kept.block);
}

static tsr_status pack(const tsr_plan *plan)
{
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        if (s->kept)
            TSRI_TRY(s->kernel->keep(s->kernel, s->in, s->kept, s->scratch));
    }
    return TSR_OK;
}

/* Packs the weights into other memory, and compares the bytes with those that the run will use. */
static tsr_status check(const tsr_plan *plan)
{
    void *block;
    char *again;
    TSRI_TRY(take(plan, plan->kept.bytes, &block, &again));
    tsr_status status = TSR_OK;
    for (int i = 0; i < plan->nsteps && status == TSR_OK; i++) {
        const tsri_step *s = &plan->steps[i];
        if (!s->kept)
            continue;
        status = s->kernel->keep(s->kernel, s->in, again, s->scratch);
        if (status == TSR_OK && memcmp(again, s->kept, kept_of(s)) != 0)
            status = tsri_item_fail(tsri_fail(TSR_ERR_INTERNAL,
                                              "its packed weights differ from its weights: a write "
                                              "did not give them a new version"),
                                    s->item);
        again += kept_of(s);
    }
    tsri_mem_free(block);
    return status;
}

tsr_status tsri_kept_update(tsr_plan *plan)
{
    tsri_kept *k = &plan->kept;
    /* Before the steps, since a run that fails has written, too. */
    for (int i = 0; i < k->nwritten; i++)
        tsri_variable_wrote(k->written[i]);
    uint64_t newest = k->version;
    for (int i = 0; i < k->nof && k->writes != plan->ir.world->writes; i++)
        newest = k->of[i]->version > newest ? k->of[i]->version : newest;
    const bool is_stale = newest > k->version;
    k->writes = plan->ir.world->writes;
    k->version = newest;
    if (!k->bytes)
        return TSR_OK;
    return is_stale ? pack(plan) : tsri_checks() ? check(plan) : TSR_OK;
}
