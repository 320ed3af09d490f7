/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a copy after each rewrite: its structure, and the effects and signatures that must stay.
 */
#include "src/rewrite/rewrite.h"

/* Whether the user gave the op a signature that a rewrite must keep. Constants may go. */
static bool has_hint(const tsri_op *op)
{
    return op->sbp.ndim > 0 && op->kind != TSRI_OP_FILL;
}

static void count_op(const tsri_op *op, tsri_graph_promises *p)
{
    p->hints += has_hint(op);
    p->gradient_hints += op->back.ndim > 0;
    for (int j = 0; j < op->nout; j++) {
        p->updates += op->out[j]->writes && !op->out[j]->superseded;
        p->losses += op->out[j]->is_loss;
    }
}

tsr_status tsri_rewrite_promises(const tsr_graph *copy, tsri_graph_promises *out)
{
    *out = (tsri_graph_promises){
        .ports = copy->nports, .hooks = copy->nhooks, .prints = copy->nprints};
    if (!tsri_checks())
        return TSR_OK;
    tsri_pool pool;
    tsri_pool_init(&pool, NULL); /* not counted as a compile's */
    bool *live = tsri_pool_alloc(&pool, (size_t)copy->nops * sizeof *live);
    if (live)
        tsri_graph_mark_live(copy, live);
    for (int i = 0; i < copy->nops && live; i++)
        if (live[i])
            count_op(copy->ops[i], out);
    tsri_pool_finish(&pool);
    return live ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Returns what a rewrite has lost, or NULL. */
static const char *lost(const tsri_graph_promises *was, const tsri_graph_promises *is)
{
    return is->ports < was->ports                     ? "an input or an output"
           : is->hooks < was->hooks                   ? "a hook"
           : is->prints < was->prints                 ? "a print"
           : is->hints < was->hints                   ? "a signature that the user gave"
           : is->gradient_hints < was->gradient_hints ? "a signature that the user gave a gradient"
           : is->updates < was->updates               ? "an update"
           : is->losses < was->losses                 ? "a loss"
                                                      : NULL;
}

static bool is_of(const tsr_graph *copy, const tsr_tensor *t)
{
    return t && t->id >= 0 && t->id < copy->ntensors && copy->tensors[t->id] == t;
}

static bool is_made(const tsr_graph *copy, const tsr_tensor *t)
{
    const tsri_op *op = t->op;
    return op && op->id >= 0 && op->id < copy->nops && copy->ops[op->id] == op &&
           t->out < op->nout && op->out[t->out] == t;
}

/* Returns the fault of op i, or NULL. */
static const char *fault_of(const tsr_graph *copy, int i)
{
    const tsri_op *op = copy->ops[i];
    if (op->id != i)
        return "has the number of another op";
    for (int j = 0; j < op->nin; j++) {
        if (!is_of(copy, op->in[j]))
            return "reads a tensor of another graph";
        if (!is_made(copy, op->in[j]) || op->in[j]->op->id >= i)
            return "reads a tensor that no op before it makes";
    }
    for (int j = 0; j < op->nout; j++)
        if (!is_of(copy, op->out[j]) || op->out[j]->op != op || op->out[j]->out != j ||
            op->out[j]->graph != copy)
            return "makes a tensor that is another op's";
    return NULL;
}

static tsr_status check_structure(const tsr_graph *copy, const char *rewrite)
{
    const char *fault;
    for (int i = 0; i < copy->nops; i++)
        if ((fault = fault_of(copy, i)))
            return tsri_fail(TSR_ERR_INTERNAL, "after the rewrite %s op %d (%s) %s", rewrite, i,
                             tsri_op_title(copy->ops[i]->kind, &copy->ops[i]->attrs), fault);
    for (int i = 0; i < copy->nports; i++)
        if (!is_of(copy, copy->ports[i].tensor) || !is_made(copy, copy->ports[i].tensor))
            return tsri_fail(TSR_ERR_INTERNAL, "after the rewrite %s no op makes the port %s",
                             rewrite, copy->ports[i].name);
    return TSR_OK;
}

tsr_status tsri_rewrite_check(const tsr_graph *copy, const char *rewrite,
                              const tsri_graph_promises *before)
{
    tsri_graph_promises now;
    if (!tsri_checks())
        return TSR_OK;
    TSRI_TRY(check_structure(copy, rewrite));
    TSRI_TRY(tsri_rewrite_promises(copy, &now));
    const char *what = lost(before, &now);
    return what ? tsri_fail(TSR_ERR_INTERNAL, "the rewrite %s has lost %s", rewrite, what) : TSR_OK;
}
