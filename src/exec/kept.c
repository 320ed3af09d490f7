/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of weights that do not change from run to run keep a form of them that is cheaper to use.
 * Each write to a variable gives it a new version, whatever writes: a set, a load, a checkpoint, a
 * broadcast, another plan's run. Before a run the versions are compared, and kept bytes are made
 * again if one is new. That is this rank's affair: other ranks may or may not have to.
 */
#include <string.h>

#include "src/exec/exec.h"

enum { ALIGNMENT = 64 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static size_t kept_of(const tsri_step *s)
{
    return s->kind == TSRI_STEP_KERNEL && s->kernel->keep ? aligned(s->kernel->kept_bytes) : 0;
}

static tsr_status add(tsr_plan *plan, tsr_variable *v, tsr_variable ***list, int *n, int *capacity)
{
    for (int i = 0; i < *n; i++)
        if ((*list)[i] == v)
            return TSR_OK;
    TSRI_NEED(TSRI_PUSH(&plan->pool, *list, *n, *capacity));
    (*list)[(*n)++] = v;
    return TSR_OK;
}

static tsr_status list_kept(tsr_plan *plan, const tsri_item *it)
{
    tsri_kept *k = &plan->kept;
    for (int i = 0; i < it->nin; i++) {
        const tsri_value *v = &plan->ir.values[tsri_ir_root(&plan->ir, it->in[i])];
        if (v->variable && v->fixed)
            TSRI_TRY(add(plan, v->variable, &k->of, &k->nof, &k->cof));
    }
    return TSR_OK;
}

static tsr_status list_written(tsr_plan *plan, const tsri_item *it)
{
    tsri_kept *k = &plan->kept;
    for (int j = 0; j < it->nout && it->kind != TSRI_ITEM_DEAD && !tsri_item_shows(it); j++) {
        const tsri_value *v = &plan->ir.values[tsri_ir_root(&plan->ir, it->out[j])];
        if (v->storage == TSRI_STORAGE_VARIABLE)
            TSRI_TRY(add(plan, v->variable, &k->written, &k->nwritten, &k->cwritten));
    }
    return TSR_OK;
}

tsr_status tsri_kept_create(tsr_plan *plan)
{
    tsri_kept *k = &plan->kept;
    for (int i = 0; i < plan->ir.nitems; i++)
        TSRI_TRY(list_written(plan, &plan->ir.items[i]));
    for (int i = 0; i < plan->nsteps; i++) {
        const size_t bytes = kept_of(&plan->steps[i]);
        k->bytes += bytes;
        k->most = bytes > k->most ? bytes : k->most;
        if (bytes)
            TSRI_TRY(list_kept(plan, plan->steps[i].item));
    }
    if (!k->bytes)
        return TSR_OK;
    k->block = tsri_mem_alloc(&plan->ir.world->mem, k->bytes + ALIGNMENT);
    TSRI_NEED(k->block);
    char *at = (char *)k->block + (-(uintptr_t)k->block & (ALIGNMENT - 1));
    for (int i = 0; i < plan->nsteps; i++) {
        tsri_step *s = &plan->steps[i];
        if (!kept_of(s))
            continue;
        s->kept = at;
        s->in[s->item->nin] = at;
        at += kept_of(s);
    }
    return TSR_OK;
}

void tsri_kept_free(tsr_plan *plan)
{
    tsri_mem_free(plan->kept.block);
}

static tsr_status make(tsr_plan *plan)
{
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        if (s->kept)
            TSRI_TRY(s->kernel->keep(s->kernel, s->in, s->kept, s->scratch));
    }
    return TSR_OK;
}

/* Makes kept bytes again, elsewhere, and compares them with those that a run would use. */
static tsr_status check(const tsr_plan *plan)
{
    void *block = tsri_mem_alloc(&plan->ir.world->mem, plan->kept.most + ALIGNMENT);
    TSRI_NEED(block);
    char *again = (char *)block + (-(uintptr_t)block & (ALIGNMENT - 1));
    tsr_status status = TSR_OK;
    for (int i = 0; i < plan->nsteps && status == TSR_OK; i++) {
        const tsri_step *s = &plan->steps[i];
        if (!s->kept)
            continue;
        memset(again, 0, kept_of(s));
        status = s->kernel->keep(s->kernel, s->in, again, s->scratch);
        if (status == TSR_OK && memcmp(again, s->kept, kept_of(s)) != 0)
            status = tsri_item_fail(tsri_fail(TSR_ERR_INTERNAL,
                                              "what its kernel keeps is not of its weights as they "
                                              "are: a write gave them no new version"),
                                    s->item);
    }
    tsri_mem_free(block);
    return status;
}

tsr_status tsri_kept_update(tsr_plan *plan)
{
    tsri_kept *k = &plan->kept;
    /* A run that fails has written, too. */
    for (int i = 0; i < k->nwritten; i++)
        tsri_variable_wrote(k->written[i]);
    if (!k->bytes)
        return TSR_OK;
    uint64_t newest = k->version;
    for (int i = 0; i < k->nof && k->writes != plan->ir.world->writes; i++)
        newest = k->of[i]->version > newest ? k->of[i]->version : newest;
    const bool is_new = !k->is_made || newest > k->version;
    k->writes = plan->ir.world->writes;
    k->version = newest;
    k->is_made = true;
    return is_new ? make(plan) : tsri_checks() ? check(plan) : TSR_OK;
}
