/* SPDX-License-Identifier: Apache-2.0 */
/* Variables in a graph: reading them, with or without the graph's updates, and assigning to them.
 */
#include "src/core/live.h"
#include "src/graph/op.h"

static void assign_gradient(tsri_op *op, tsr_tensor *const *dout, const bool *want,
                            tsr_tensor **din)
{
    (void)op;
    (void)want;
    din[0] = dout[0];
}

const tsri_op_def tsri_def_assign = {
    .rule_text = "^... -> ...", .gradient = assign_gradient, .keeps_dtype = true};

/* Checks the graph and the variable that a call names. Where it returns false, *out_failed is what
 * the call gives the user. */
static bool check_call(const char *call, tsr_graph *g, const tsr_variable *v, tsri_loc loc,
                       tsr_tensor **out_failed)
{
    *out_failed = NULL;
    if (!g) {
        tsri_graph_fail(NULL, loc, TSR_ERR_INVALID, "%s: the graph is NULL%s", call,
                        tsri_error_cause());
        return false;
    }
    if (tsri_live_check(g, TSRI_LIVE_GRAPH, call) != TSR_OK)
        return false;
    *out_failed = &g->failure.tensor;
    if (!v)
        tsri_graph_fail(g, loc, TSR_ERR_INVALID, "%s: the variable is NULL%s", call,
                        tsri_error_cause());
    else if (tsri_live_check(v, TSRI_LIVE_VARIABLE, call) != TSR_OK)
        tsri_graph_fail_last(g, TSR_ERR_INVALID);
    else
        return g->failure.status == TSR_OK;
    return false;
}

tsr_tensor *tsr_read_at(tsr_graph *g, tsr_variable *v, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *failed;
    return check_call("read", g, v, loc, &failed) ? tsri_graph_read(g, v, loc) : failed;
}

tsr_tensor *tsr_read_updated_at(tsr_graph *g, tsr_variable *v, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *failed;
    return check_call("read_updated", g, v, loc, &failed) ? tsri_graph_current(g, v, loc) : failed;
}

/* Checks that a variable can take the value x. */
static bool check_value(const tsri_ctx *c, const tsr_variable *v, const tsr_tensor *x)
{
    if (tsr_dims_equal(x->shape, v->shape) && x->dtype == v->dtype)
        return true;
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    return tsri_op_refuse(c, x->dtype == v->dtype ? TSR_ERR_SHAPE : TSR_ERR_DTYPE,
                          "the value is %s %s; the variable %s is %s %s", tsr_dtype_name(x->dtype),
                          tsri_op_dims(c, x), name, tsr_dtype_name(v->dtype),
                          tsri_dims_text(c->g, v->shape));
}

void tsr_assign_at(tsr_variable *v, tsr_tensor *x, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    tsr_tensor *failed;
    if (!tsri_op_begin(&c, "assign", 1, &x, 0, loc) ||
        !check_call("assign", c.g, v, loc, &failed) || !check_value(&c, v, x))
        return;
    tsr_tensor *read = tsri_graph_read(c.g, v, loc);
    if (read->failed)
        return;
    if (x->placement != v->placement)
        x = tsr_to_global_at(x, v->placement, TSR_AUTO, file, line);
    if (x->failed)
        return;
    tsri_op *op = tsri_graph_add_all_like(TSRI_OP_ASSIGN, NULL, 1, &x, 1, read, loc);
    if (!op)
        return;
    op->name = read->op->name;
    tsri_graph_write(c.g, op, 0, v);
}
