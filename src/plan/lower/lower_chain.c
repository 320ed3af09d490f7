/* SPDX-License-Identifier: Apache-2.0 */
/* The step of a chain: one kernel made of those of its items. */
#include <string.h>

#include "src/core/clock.h"
#include "src/plan/lower/lower.h"

/* The values of a chain, by kind, in the order in which its items meet them. */
typedef struct ports {
    int n[3]; /* given, outer, inner */
    int value[3][TSRI_CHAIN_VALUES];
} ports;

enum { GIVEN = 0, OUTER, INNER };

static int find(const ports *p, int kind, int value)
{
    for (int i = 0; i < p->n[kind]; i++)
        if (p->value[kind][i] == value)
            return i;
    return -1;
}

static void note(ports *p, int kind, int value)
{
    if (find(p, kind, value) < 0)
        p->value[kind][p->n[kind]++] = value;
}

/* The number that a chain's kernel knows a value by. */
static int number_of(const ports *p, int value)
{
    for (int kind = GIVEN, first = 0; kind <= INNER; first += p->n[kind++]) {
        const int i = find(p, kind, value);
        if (i >= 0)
            return first + i;
    }
    return -1;
}

static void find_ports(const tsr_plan *plan, int begin, int end, ports *p)
{
    memset(p->n, 0, sizeof p->n);
    for (int m = begin; m < end; m++)
        for (int j = 0; j < plan->ir.items[m].nout; j++) {
            const int v = plan->ir.items[m].out[j];
            note(p, plan->ir.values[v].storage == TSRI_STORAGE_INNER ? INNER : OUTER, v);
        }
    for (int m = begin; m < end; m++)
        for (int j = 0; j < plan->ir.items[m].nin; j++)
            if (number_of(p, plan->ir.items[m].in[j]) < 0)
                note(p, GIVEN, plan->ir.items[m].in[j]);
}

static void describe(const tsr_plan *plan, int begin, int end, const ports *p, tsri_chain_desc *d)
{
    d->n = end - begin;
    d->ngiven = p->n[GIVEN];
    d->nouter = p->n[OUTER];
    d->ninner = p->n[INNER];
    d->by_units = true;
    for (int m = 0; m < d->n; m++) {
        const tsri_item *it = &plan->ir.items[begin + m];
        d->by_units &= tsri_op_def_of(it->kernel.op)->rows != TSRI_ROWS_NONE;
        d->member[m] = tsri_lower_desc(plan, it);
        d->member[m].fixed = tsri_lower_fixed(plan, it);
        for (int j = 0; j < it->nin; j++)
            d->in[m][j] = number_of(p, it->in[j]);
        for (int j = 0; j < it->nout; j++)
            d->out[m][j] = number_of(p, it->out[j]);
    }
}

static tsr_status make_kernel(tsr_plan *plan, int begin, int end, const ports *p, tsri_step *step)
{
    /* Too large for the pool, which is kept while the plan is made. */
    tsri_chain_desc *d = tsri_mem_alloc(&plan->ir.world->mem, sizeof *d);
    TSRI_NEED(d);
    describe(plan, begin, end, p, d);
    double t = tsri_now_s();
    tsr_status status =
        tsri_chain_create(&plan->ir.world->mem, step->device->ops->kernels(), d, &step->kernel);
    plan->info.library_s += tsri_now_s() - t;
    tsri_mem_free(d);
    return status == TSR_OK ? TSR_OK : tsri_item_fail(status, &plan->ir.items[begin]);
}

tsr_status tsri_lower_chain(tsr_plan *plan, int item, tsri_step *step)
{
    const int end = tsri_chain_end(&plan->ir, item);
    int *values = tsri_pool_alloc(&plan->pool, TSRI_CHAIN_VALUES * sizeof *values);
    ports p;
    TSRI_NEED(values);
    find_ports(plan, item, end, &p);
    memcpy(values, p.value[GIVEN], (size_t)p.n[GIVEN] * sizeof *values);
    memcpy(values + p.n[GIVEN], p.value[OUTER], (size_t)p.n[OUTER] * sizeof *values);
    step->kind = TSRI_STEP_KERNEL;
    step->device = plan->part[tsr_placement_device(plan->ir.items[item].placement)].device;
    step->values = values;
    step->nin = p.n[GIVEN];
    step->nout = p.n[OUTER];
    /* One operand more: the kernels' packed weights. */
    TSRI_TRY(tsri_lower_ports(plan, step, step->nin + 1, step->nout));
    TSRI_TRY(make_kernel(plan, item, end, &p, step));
    for (int m = item; m < end; m++) {
        if (plan->ir.items[m].only_if != step->only_if)
            step->only_if = NULL;
        tsri_lower_took(plan, &plan->ir.items[m], tsri_chain_impl(step->kernel, m - item),
                        step->kernel->scratch_bytes);
        /* The step goes by the name of its first product. */
        if (tsri_op_def_of(plan->ir.items[m].kernel.op)->is_product &&
            !tsri_op_def_of(step->item->kernel.op)->is_product)
            step->item = &plan->ir.items[m];
    }
    return TSR_OK;
}
