/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_print: what a line of it needs, as an output of the graph: five statistics, then elements. */
#include <tessera/debug.h>

#include "src/core/live.h"
#include "src/graph/op.h"

/* The first elements of x, of f64, in a row: as many as its last axis has, and n at most. */
static tsr_tensor *take_first(const tsri_ctx *c, tsr_tensor *x, int64_t n)
{
    for (int a = 0; a < x->shape.ndim; a++) {
        const int64_t most = a == x->shape.ndim - 1 ? n : 1;
        if (x->shape.d[a] > most)
            x = tsr_narrow_at(x, a, 0, most, c->loc.file, c->loc.line);
        if (x->failed)
            return x;
    }
    return tsri_make_reshape(x, TSR_DIMS(tsr_dims_count(x->shape)), c->loc);
}

static tsr_tensor *summarize(const tsri_ctx *c, tsr_tensor *x)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    tsr_tensor *parts[6];
    x = tsr_cast_at(x, TSR_F64, file, line);
    if (tsr_dims_count(x->shape) == 0)
        return tsri_make_fill(c->g, TSR_DIMS(5), TSR_F64, x->placement, 0, c->loc);
    parts[0] = tsr_min_at(x, TSR_ALL_AXES, false, file, line);
    parts[1] = tsr_max_at(x, TSR_ALL_AXES, false, file, line);
    parts[2] = tsr_mean_at(x, TSR_ALL_AXES, false, file, line);
    parts[3] = tsr_std_at(x, TSR_ALL_AXES, false, 0, file, line);
    tsr_tensor *nan = tsr_cast_at(tsr_not_equal_at(x, x, file, line), TSR_F64, file, line);
    parts[4] = tsr_sum_at(nan, TSR_ALL_AXES, false, file, line);
    for (int i = 0; i < 5; i++)
        parts[i] = tsr_reshape_at(parts[i], TSR_DIMS(1), file, line);
    parts[5] = take_first(c, x, TSRI_PRINT_ELEMENTS);
    return tsr_concat_at(6, parts, 0, file, line);
}

void tsr_print_at(tsr_tensor *x, const char *label, int64_t every, const char *file, int line)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, "print", 1, &x, 0, (tsri_loc){file, line}))
        return;
    tsr_graph *g = c.g;
    if (!label || every < 1) {
        tsri_op_refuse(&c, TSR_ERR_INVALID, "%s",
                       label ? "every must be at least 1" : "the label is NULL");
        return;
    }
    const tsri_print print = {
        .label = tsri_pool_strdup(&g->pool, label),
        .port = tsri_pool_printf(&g->pool, "(print %d)", g->nprints),
        .every = every,
        .dims = x->shape,
        .dtype = x->dtype,
    };
    if (!print.label || !print.port || !TSRI_PUSH(&g->pool, g->prints, g->nprints, g->cprints)) {
        tsri_op_refuse_last(&c, TSR_ERR_NO_MEMORY);
        return;
    }
    tsr_tensor *all = summarize(&c, x);
    if (all->failed)
        return;
    tsr_output_at(g, print.port, all, NULL, tsri_sbp_b(tsr_placement_ndim(all->placement)), file,
                  line);
    g->prints[g->nprints++] = print;
}
