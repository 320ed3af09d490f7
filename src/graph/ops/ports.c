/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs, outputs and to_global: where a user has a say on signatures. */
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"
#include "src/graph/op.h"
#include "src/graph/stage.h"
#include "placement/placement.h"

/* Whether `sbp` makes sense for a value; AUTO does. Fails the graph otherwise. */
static bool check_sbp(tsr_graph *g, tsri_loc loc, const char *what, tsr_dtype dtype, tsr_dims dims,
                      const tsr_placement *p, tsr_sbp sbp)
{
    tsr_status status = tsri_sbp_check(p, dims, sbp, true);
    for (int i = 0; i < sbp.ndim && status == TSR_OK; i++)
        if (sbp.d[i].kind == TSR_SBP_PARTIAL && dtype == TSR_BOOL && sbp.d[i].arg == TSR_REDUCE_SUM)
            status = tsri_fail(TSR_ERR_SBP, "P(sum) of bool; use P(max) for any, P(min) for all");
    if (status != TSR_OK)
        tsri_graph_fail(g, loc, status, "%s: %s", what, tsr_last_error());
    return status == TSR_OK;
}

static tsri_graph_port *add_port(tsr_graph *g, tsri_loc loc, const char *name)
{
    for (int i = 0; i < g->nports; i++)
        if (!strcmp(g->ports[i].name, name)) {
            tsri_graph_fail(g, loc, TSR_ERR_INVALID,
                            "two inputs or outputs are named '%s' (the first one at %s:%d)", name,
                            tsri_basename(g->ports[i].loc.file), g->ports[i].loc.line);
            return NULL;
        }
    char *copy = tsri_pool_strdup(&g->pool, name);
    if (!copy || !TSRI_PUSH(&g->pool, g->ports, g->nports, g->cports)) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return NULL;
    }
    tsri_graph_port *port = &g->ports[g->nports++];
    *port = (tsri_graph_port){.name = copy, .loc = loc};
    return port;
}

static tsr_tensor *add_input(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                             const tsr_placement *p, tsr_sbp sbp, const tsr_input_opts *opts,
                             bool from_local, tsri_loc loc)
{
    tsr_input_opts o = *TSR_INPUT_OPTS();
    const char *call = from_local ? "from_local" : "input";
    char what[256];
    bool named = name && name[0];
    snprintf(what, sizeof what, "%s%s%.200s%s", call, named ? " '" : "", named ? name : "",
             named ? "'" : "");
    const tsri_ctx c = {.g = g, .loc = loc, .op = what};
    if (!tsri_want_new(&c, dtype, dims, p, TSR_AUTO))
        return tsri_refused_new(&c);
    if (!named)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "a name is needed, to feed it by");
    if (!tsri_want_options(&c, &o, sizeof o, opts))
        return &g->failure.tensor;
    if (o.batch_axis < -1 || o.batch_axis >= dims.ndim)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "batch_axis is %d; the shape %s has axes 0 to %d (-1: no batch axis)",
                            o.batch_axis, tsri_dims_text(g, dims), dims.ndim - 1);
    if (!check_sbp(g, loc, name, dtype, dims, p, sbp) ||
        !tsri_graph_check_local(g, loc, call, name, p))
        return &g->failure.tensor;
    tsri_graph_port *port = add_port(g, loc, name);
    tsri_op *op =
        port ? tsri_graph_add(g, TSRI_OP_INPUT, NULL, 0, NULL, 1, &dims, &dtype, p, loc) : NULL;
    if (!op)
        return &g->failure.tensor;
    if (sbp.ndim == 0 && tsr_placement_ndim(p) == 1)
        sbp = dims.ndim ? TSR_S(0) : TSR_B;
    if (sbp.ndim == 0 && from_local)
        return tsri_op_fail(&c, TSR_ERR_SBP,
                            "what the ranks hold has to be said: a signature with %d entries for "
                            "placement %s",
                            tsr_placement_ndim(p), tsr_placement_text(p));
    op->name = port->name;
    op->sbp = sbp;
    op->from_local = from_local;
    op->batch_axis = (int8_t)(o.batch_axis + 1);
    port->tensor = op->out[0];
    port->sbp = sbp;
    port->placement = p;
    port->is_input = true;
    return op->out[0];
}

tsr_tensor *tsr_input_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                         const tsr_placement *p, tsr_sbp sbp, const char *file, int line)
{
    return add_input(g, name, dtype, dims, p, sbp, NULL, false, (tsri_loc){file, line});
}

tsr_tensor *tsr_input_with_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                              const tsr_placement *p, tsr_sbp sbp, const tsr_input_opts *opts,
                              const char *file, int line)
{
    return add_input(g, name, dtype, dims, p, sbp, opts, false, (tsri_loc){file, line});
}

tsr_tensor *tsr_from_local_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                              const tsr_placement *p, tsr_sbp sbp, const char *file, int line)
{
    return add_input(g, name, dtype, dims, p, sbp, NULL, true, (tsri_loc){file, line});
}

tsr_tensor *tsr_from_local_with_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                                   const tsr_placement *p, tsr_sbp sbp, const tsr_input_opts *opts,
                                   const char *file, int line)
{
    return add_input(g, name, dtype, dims, p, sbp, opts, true, (tsri_loc){file, line});
}

tsr_tensor *tsr_to_global_at(tsr_tensor *x, const tsr_placement *p, tsr_sbp sbp, const char *file,
                             int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *failed;
    tsr_graph *g = tsri_check_operands("to_global", 1, &x, 0, loc, &failed);
    if (!g)
        return failed;
    if (!p)
        p = x->placement;
    if (tsri_placement_check(g->world, p, "to_global") != TSR_OK)
        return tsri_graph_fail_last(g, TSR_ERR_PLACEMENT);
    if (!check_sbp(g, loc, "to_global", x->dtype, x->shape, p, sbp))
        return failed;
    tsri_op *op =
        tsri_graph_add(g, TSRI_OP_TO_GLOBAL, NULL, 1, &x, 1, &x->shape, &x->dtype, p, loc);
    if (!op)
        return &g->failure.tensor;
    op->sbp = sbp;
    op->stage = p == x->placement ? x->op->stage : tsri_stage_at(g, p, x->op->stage);
    return op->out[0];
}

static void add_output(tsr_graph *g, const char *name, tsr_tensor *x, const tsr_placement *p,
                       tsr_sbp sbp, bool is_local, tsri_loc loc)
{
    const char *call = is_local ? "to_local" : "output";
    tsr_tensor *failed;
    if (!g) {
        tsri_fail_at(loc, TSR_ERR_INVALID, "output: no graph%s", tsri_error_cause());
        return;
    }
    if (!tsri_is_live(g, TSRI_LIVE_GRAPH, call) || g->failure.status != TSR_OK)
        return;
    if (!name || !name[0]) {
        tsri_graph_fail(g, loc, TSR_ERR_INVALID, "output: a name is needed, to fetch it by");
        return;
    }
    if (!x) {
        tsri_graph_fail(g, loc, TSR_ERR_INVALID, "output '%s': no tensor%s", name,
                        tsri_error_cause());
        return;
    }
    if (!tsri_is_live(x, TSRI_LIVE_TENSOR, call)) {
        tsri_graph_fail_last(g, TSR_ERR_INVALID);
        return;
    }
    if (!tsri_check_operands("output", 1, &x, 0, loc, &failed))
        return;
    if (x->graph != g) {
        tsri_graph_fail(g, loc, TSR_ERR_INVALID, "output '%s' belongs to another graph", name);
        return;
    }
    if (!p)
        p = x->placement;
    if (tsri_placement_check(g->world, p, "output") != TSR_OK) {
        tsri_graph_fail_last(g, TSR_ERR_PLACEMENT);
        return;
    }
    if (!is_local && sbp.ndim == 0)
        sbp = tsri_sbp_b(tsr_placement_ndim(p));
    if (!check_sbp(g, loc, name, x->dtype, x->shape, p, sbp) ||
        !tsri_graph_check_local(g, loc, "output", name, p))
        return;
    tsri_graph_port *port = add_port(g, loc, name);
    if (!port)
        return;
    port->tensor = x;
    port->sbp = sbp;
    port->placement = p;
    port->is_local = is_local;
}

void tsr_output_at(tsr_graph *g, const char *name, tsr_tensor *x, const tsr_placement *p,
                   tsr_sbp sbp, const char *file, int line)
{
    add_output(g, name, x, p, sbp, false, (tsri_loc){file, line});
}

void tsr_to_local_at(tsr_graph *g, const char *name, tsr_tensor *x, const char *file, int line)
{
    add_output(g, name, x, NULL, TSR_AUTO, true, (tsri_loc){file, line});
}
