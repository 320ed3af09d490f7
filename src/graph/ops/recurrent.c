/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a recurrent layer, over all steps, and its gradient. The gradient of the state's
 * weight is a product of its own, over steps and batch: of the gradient of the state's part with
 * the states before the steps.
 */
#include <string.h>

#include "kernels/recurrent.h"
#include "src/graph/op.h"

static tsr_dims with_last(tsr_dims dims, int64_t last)
{
    dims.d[dims.ndim - 1] = last;
    return dims;
}

tsr_tensor *tsri_make_recurrent(const tsri_recurrent *r, tsr_tensor **out_cells, tsri_loc loc)
{
    tsr_tensor *in[5] = {r->x, r->w};
    int nin = 2, nout = 1;
    const bool lstm = r->cell == TSRI_CELL_LSTM;
    tsr_tensor *const more[3] = {r->b, r->h0, r->c0};
    for (int i = 0; i < 3; i++)
        if (more[i])
            in[nin++] = more[i];
    for (int i = 0; i < nin; i++)
        if (!tsr_tensor_ok(in[i]))
            return in[i];
    tsri_attrs attrs = {0};
    attrs.recurrent.cell = r->cell;
    attrs.recurrent.reverse = r->reverse;
    attrs.recurrent.has_bias = r->b != NULL;
    const int64_t h = r->h0->shape.d[1];
    tsr_dims shapes[3];
    const tsr_dtype dtypes[3] = {r->x->dtype, r->x->dtype, r->x->dtype};
    shapes[0] = with_last(r->x->shape, h);
    if (lstm)
        shapes[nout++] = shapes[0];
    if (tsri_cell_saves(r->cell))
        shapes[nout++] = with_last(r->x->shape, TSRI_CELL_GATES * h);
    tsri_op *op = tsri_graph_add(r->x->graph, TSRI_OP_RECURRENT, &attrs, nin, in, nout, shapes,
                                 dtypes, NULL, loc);
    if (!op)
        return &r->x->graph->failure.tensor;
    if (lstm)
        *out_cells = op->out[1];
    return op->out[0];
}

/* Appends to a rule's text. */
static void put(char *text, size_t size, const char *what)
{
    const size_t at = strlen(text);
    strncat(text, what, size - at - 1);
}

/* Samples do not see each other; a step sees all of the state, of which a part is of no use. */
static tsr_status rule_recurrent(const tsri_op *op, tsri_rule_text *out)
{
    char in[64] = "!. n ., !. .", y[32] = ". n .";
    const tsri_cell cell = (tsri_cell)op->attrs.recurrent.cell;
    put(in, sizeof in, op->attrs.recurrent.has_bias ? ", !., !n ." : ", !n .");
    if (cell == TSRI_CELL_LSTM) {
        put(in, sizeof in, ", !n .");
        put(y, sizeof y, ", . n .");
    }
    if (tsri_cell_saves(cell))
        put(y, sizeof y, ", . n .");
    return tsri_write_rule(out, "%s -> %s", in, y);
}

/* Linear in the gradients of y and of the cells, which are partial together. */
static tsr_status rule_recurrent_dx(const tsri_op *op, tsri_rule_text *out)
{
    const tsri_cell cell = (tsri_cell)op->attrs.recurrent.cell;
    const char *saved = tsri_cell_saves(cell) ? "!. ., !n ., !. n ., !. n ." : "!. ., !. n .";
    const char *dx = cell == TSRI_CELL_LSTM  ? ". n ., n ., n ."
                     : cell == TSRI_CELL_GRU ? ". n ., n ., . n ."
                                             : ". n ., n .";
    return tsri_write_rule(out, "%s : . n .%s -> %s", saved,
                           op->attrs.recurrent.has_dc ? " + . n ." : "", dx);
}

/* Returns the states before all steps (t,n,h), at the places of the steps. */
static tsr_tensor *states_before(const tsri_op *op, tsr_tensor *h0)
{
    const char *file = op->loc.file;
    const int line = op->loc.line;
    tsr_tensor *y = op->out[0];
    tsr_dims one = y->shape;
    const int64_t t = one.d[0];
    const bool reverse = op->attrs.recurrent.reverse;
    one.d[0] = 1;
    tsr_tensor *first = tsri_make_reshape(h0, one, op->loc);
    if (t == 1)
        return first;
    tsr_tensor *rest = tsr_narrow_at(y, 0, reverse, t - 1, file, line);
    return tsr_concat_at(2, (tsr_tensor *[]){reverse ? rest : first, reverse ? first : rest}, 0,
                         file, line);
}

/* Declares RECURRENT_DX, whose results go to dx[]; false where the graph has failed. */
static bool add_dx(tsri_op *op, const tsri_recurrent_roles *r, tsr_tensor *dy, tsr_tensor *dc,
                   tsr_tensor *dx[3])
{
    const bool lstm = r->cells >= 0, gru = !lstm && r->gates >= 0;
    tsr_tensor *in[TSRI_RECURRENT_DX_INPUTS] = {op->in[r->w]};
    int nin = 1, nout = 2;
    if (lstm || gru)
        in[nin++] = op->in[lstm ? r->c0 : r->h0];
    in[nin++] = op->out[lstm ? r->cells : r->y];
    if (lstm || gru)
        in[nin++] = op->out[r->gates];
    in[nin++] = dy;
    if (dc)
        in[nin++] = dc;
    tsri_attrs attrs = op->attrs;
    attrs.recurrent.has_bias = 0;
    attrs.recurrent.has_dc = dc != NULL;
    const tsr_dims x = op->in[r->x]->shape, h = op->in[r->h0]->shape;
    const tsr_dims shapes[3] = {x, h, lstm ? h : x};
    const tsr_dtype dtypes[3] = {dy->dtype, dy->dtype, dy->dtype};
    nout += lstm || gru;
    tsri_op *add = tsri_graph_add(dy->graph, TSRI_OP_RECURRENT_DX, &attrs, nin, in, nout, shapes,
                                  dtypes, NULL, op->loc);
    for (int i = 0; i < nout && add; i++)
        dx[i] = add->out[i];
    return add != NULL;
}

static void grad_recurrent(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    const tsri_recurrent_roles r = tsri_recurrent_roles_of(TSRI_OP_RECURRENT, &op->attrs);
    tsr_tensor *dy = dout[0], *dc = r.cells >= 0 ? dout[r.cells] : NULL, *dx[3] = {NULL};
    if (!dy && !dc)
        return;
    if (!dy)
        dy = tsri_make_fill(dc->graph, dc->shape, dc->dtype, dc->placement, 0, op->loc);
    if (dy->failed || (dc && dc->failed) || !add_dx(op, &r, dy, dc, dx))
        return;
    din[r.x] = dx[0];
    din[r.h0] = dx[1];
    if (r.c0 >= 0)
        din[r.c0] = dx[2];
    tsr_tensor *ds = r.cells < 0 && r.gates >= 0 ? dx[2] : dx[0];
    if (want[r.w]) {
        tsr_tensor *in[2] = {states_before(op, op->in[r.h0]), ds};
        din[r.w] = in[0]->failed
                       ? in[0]
                       : tsri_graph_add_like(TSRI_OP_LINEAR_DW, NULL, 2, in, op->in[r.w], op->loc);
    }
    if (r.b >= 0 && want[r.b])
        din[r.b] = tsri_make_sum_to(ds, op->in[r.b]->shape, op->loc);
}

/* The products; of the gradient, too. */
static double flops_recurrent(const tsri_op *op)
{
    const tsr_dims *x = op->kind == TSRI_OP_RECURRENT ? &op->in[0]->shape : &op->out[0]->shape;
    const tsr_tensor *w = op->in[op->kind == TSRI_OP_RECURRENT];
    return 2 * (double)tsr_dims_count(*x) * (double)w->shape.d[1];
}

static const tsri_attr_field recurrent_attrs[] = {
    TSRI_ATTR_FIELD(recurrent.cell, I32, "cell"),
    TSRI_ATTR_FIELD(recurrent.reverse, I32, "reverse"), TSRI_ATTR_END};

const tsri_op_def tsri_def_recurrent = {.rule = rule_recurrent,
                                        .gradient = grad_recurrent,
                                        .flops = flops_recurrent,
                                        .autocast = TSRI_AUTOCAST_LOW,
                                        .is_product = true,
                                        .attrs = recurrent_attrs};
const tsri_op_def tsri_def_recurrent_dx = {.rule = rule_recurrent_dx,
                                           .flops = flops_recurrent,
                                           .is_product = true,
                                           .attrs = recurrent_attrs};
