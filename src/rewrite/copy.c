/* SPDX-License-Identifier: Apache-2.0 */
#include "src/rewrite/rewrite.h"

#include <string.h>

/* The copy's tensor of a tensor of the graph that is copied; NULL of NULL. */
static tsr_tensor *twin(const tsr_graph *copy, const tsr_tensor *t)
{
    return t ? copy->tensors[t->id] : NULL;
}

static tsr_status copy_tensors(const tsr_graph *g, tsr_graph *copy)
{
    tsr_tensor *all = tsri_pool_alloc(&copy->pool, (size_t)g->ntensors * sizeof *all);
    copy->tensors = tsri_pool_alloc(&copy->pool, (size_t)g->ntensors * sizeof(tsr_tensor *));
    TSRI_NEED(all && copy->tensors);
    copy->ctensors = copy->ntensors;
    for (int i = 0; i < g->ntensors; i++) {
        tsr_tensor *t = copy->tensors[i] = &all[i];
        *t = *g->tensors[i];
        t->graph = copy;
        t->op = copy->ops[t->op->id];
        t->full = t->copies = t->next_copy =
            NULL; /* these and the casts serve declarations alone */
        for (int k = 0; k < TSRI_AUTOCAST_DTYPES; k++)
            t->as[k] = NULL;
    }
    return TSR_OK;
}

static tsr_status copy_ops(const tsr_graph *g, tsr_graph *copy)
{
    size_t operands = 0;
    for (int i = 0; i < g->nops; i++)
        operands += (size_t)(g->ops[i]->nin + g->ops[i]->nout);
    tsri_op *all = tsri_pool_alloc(&copy->pool, (size_t)g->nops * sizeof *all);
    copy->ops = tsri_pool_alloc(&copy->pool, (size_t)g->nops * sizeof(tsri_op *));
    tsr_tensor **list = tsri_pool_alloc(&copy->pool, operands * sizeof(tsr_tensor *));
    TSRI_NEED(all && copy->ops && list);
    copy->cops = copy->nops;
    for (int i = 0; i < g->nops; i++) {
        tsri_op *op = copy->ops[i] = &all[i];
        *op = *g->ops[i];
    }
    TSRI_TRY(copy_tensors(g, copy));
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *from = g->ops[i];
        tsri_op *op = copy->ops[i];
        op->in = list;
        op->out = list += op->nin;
        list += op->nout;
        for (int j = 0; j < op->nin; j++)
            op->in[j] = twin(copy, from->in[j]);
        for (int j = 0; j < op->nout; j++)
            op->out[j] = twin(copy, from->out[j]);
        op->latest = twin(copy, from->latest);
        if (op->variable)
            TSRI_NEED(tsri_graph_note_read(copy, op));
    }
    return TSR_OK;
}

static tsr_status copy_ports(const tsr_graph *g, tsr_graph *copy)
{
    copy->ports = tsri_pool_dup(&copy->pool, g->ports, (size_t)g->nports * sizeof *g->ports);
    TSRI_NEED(copy->ports);
    copy->cports = copy->nports;
    for (int i = 0; i < g->nports; i++)
        copy->ports[i].tensor = twin(copy, g->ports[i].tensor);
    return TSR_OK;
}

tsr_status tsri_graph_copy(const tsr_graph *g, tsr_graph **out_copy)
{
    tsri_pool pool;
    tsri_pool_init(&pool, &g->world->mem);
    tsr_graph *copy = tsri_pool_dup(&pool, g, sizeof *g);
    TSRI_NEED(copy);
    copy->owned = (tsri_owned){0};
    copy->pool = pool;
    copy->failure.tensor.graph = copy;
    copy->reads.op = NULL;
    copy->reads.n = copy->reads.size = 0;
    copy->minimized.gradients = NULL; /* these lists serve declarations alone */
    copy->minimized.scaled = NULL;
    copy->minimized.ngradients = copy->minimized.cgradients = copy->minimized.nscaled =
        copy->minimized.cscaled = 0;
    memset(copy->evals.kept, 0, sizeof copy->evals.kept);
    copy->evals.drop = NULL;
    tsr_status status = copy_ops(g, copy);
    if (status == TSR_OK)
        status = copy_ports(g, copy);
    if (status != TSR_OK) {
        tsri_graph_copy_free(copy);
        return status;
    }
    copy->pin.tensor = twin(copy, g->pin.tensor);
    *out_copy = copy;
    return TSR_OK;
}

void tsri_graph_copy_free(tsr_graph *copy)
{
    if (!copy)
        return;
    tsri_pool pool = copy->pool;
    tsri_pool_finish(&pool); /* the copy itself lives in it */
}
