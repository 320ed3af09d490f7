/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that ranks do not divide: such plans run, but ranks with smaller parts wait. */
#include "src/cli/plan/plan.h"

/* A note tells of an axis whose largest part exceeds the mean by more than this part of it. */
static const double worth_a_note = 0.02;

/* Returns into how many parts an axis is split. */
static int64_t parts_of(const tsri_value *v, int axis)
{
    int64_t parts = 1;
    for (int d = 0; d < v->layout.sbp.ndim; d++)
        if (v->layout.sbp.d[d].kind == TSR_SBP_SPLIT && v->layout.sbp.d[d].arg == axis)
            parts *= tsr_placement_dim(v->placement, d);
    return parts;
}

static bool is_uneven(const tsri_value *v, int axis)
{
    const int64_t parts = parts_of(v, axis), n = v->shape.ndim > axis ? v->shape.d[axis] : 0;
    const int64_t most = (n + parts - 1) / parts;
    return n > 0 && (double)most * (double)parts > (double)n * (1 + worth_a_note);
}

/* "6 heads over 4 ranks: 2 on some, 1 on others, which wait". */
static void put_uneven(plan_text *t, const tsri_value *v, int axis, const char *what)
{
    const long long n = v->shape.d[axis], parts = parts_of(v, axis);
    plan_put(t, "%s%lld %s over %lld ranks: %lld on some, %lld on others, which wait",
             t->used ? "; " : "", n, what, parts, (n + parts - 1) / parts, n / parts);
}

/* The first input whose rows are split unevenly. */
static const tsri_value *find_batch(const tsr_plan *plan)
{
    for (int i = 0; i < plan->ir.nvalues; i++) {
        const tsri_value *v = &plan->ir.values[i];
        const bool is_input =
            v->storage == TSRI_STORAGE_PORT && v->port >= 0 &&
            !plan->ir.ports[v->port].is_output; /* the training step has no port */
        if (is_input && is_uneven(v, 0))
            return v;
    }
    return NULL;
}

/* Returns the first axis behind the rows that is split unevenly; 0: there is none. */
static int uneven_axis(const tsri_value *v)
{
    for (int axis = 1; axis < v->shape.ndim; axis++)
        if (is_uneven(v, axis))
            return axis;
    return 0;
}

/* Appends the first axis behind the rows that a product of the forward pass has split unevenly, in
 * its result or its first operand. */
static void put_product(plan_text *t, const tsr_plan *plan)
{
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        const tsri_op_def *def =
            it->kind == TSRI_ITEM_KERNEL ? tsri_op_def_of(it->kernel.op) : NULL;
        for (int k = 0; k < 2 && def && def->is_product && !it->backward; k++) {
            const tsri_value *v = &plan->ir.values[k ? it->in[0] : it->out[0]];
            const int axis = uneven_axis(v), ndim = v->shape.ndim;
            if (!axis)
                continue;
            put_uneven(t, v, axis,
                       ndim == 4 && axis == 1 ? (def->has_groups ? "channels" : "heads")
                       : axis == ndim - 1     ? "features"
                                              : "positions");
            return;
        }
    }
}

bool plan_put_uneven(plan_text *t, const tsr_plan *plan)
{
    const tsri_value *batch = find_batch(plan);
    if (batch)
        put_uneven(t, batch, 0, "rows of the batch");
    put_product(t, plan);
    return t->used > 0;
}
