/* SPDX-License-Identifier: Apache-2.0 */
/* Values that the program itself holds: ranges and constants. Each rank makes its part. */
#include <math.h>

#include "src/core/rng.h"
#include "src/graph/op.h"

tsr_tensor *tsr_arange_at(tsr_graph *g, tsr_dtype dtype, int64_t n, double start, double step,
                          const tsr_placement *p, tsr_sbp sbp, const char *file, int line)
{
    tsri_ctx c = {.g = g, .loc = {file, line}, .op = "arange"};
    const tsr_dims dims = {.ndim = 1, .d = {n}};
    if (!tsri_want_new(&c, dtype, dims, p, sbp))
        return tsri_refused_new(&c);
    if (!isfinite(start) || !isfinite(step))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "from %g in steps of %g; both must be finite",
                            start, step);
    const bool is_float = tsri_is_float(dtype);
    if (dtype == TSR_BOOL || (!is_float && (floor(start) != start || floor(step) != step)) ||
        (n && (!tsri_holds(dtype, start) || !tsri_holds(dtype, start + (double)(n - 1) * step))))
        return tsri_op_fail(&c, TSR_ERR_INVALID,
                            "%lld numbers from %g in steps of %g are not all %s", (long long)n,
                            start, step, tsr_dtype_name(dtype));
    tsri_attrs attrs = {0};
    attrs.arange.start = start;
    attrs.arange.step = step;
    return tsri_add_source(g, TSRI_OP_ARANGE, &attrs, dims, dtype, p, sbp, c.loc);
}

tsr_tensor *tsr_constant_at(tsr_graph *g, tsr_dtype dtype, tsr_dims dims, const void *data,
                            const tsr_placement *p, tsr_sbp sbp, const char *file, int line)
{
    tsri_ctx c = {.g = g, .loc = {file, line}, .op = "constant"};
    if (!tsri_want_new(&c, dtype, dims, p, sbp))
        return tsri_refused_new(&c);
    int64_t n = tsr_dims_count(dims);
    size_t bytes = (size_t)n * tsr_dtype_size(dtype);
    if (n && !data)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "no data for %s", tsri_dims_text(g, dims));
    tsri_attrs attrs = {0};
    if (n) {
        unsigned char *copy = tsri_pool_dup(&g->pool, data, bytes);
        if (!copy)
            return tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        for (int64_t i = 0; i < n && dtype == TSR_BOOL; i++)
            copy[i] = copy[i] != 0;
        attrs.constant.hash = tsri_hash(TSRI_HASH_INIT, copy, bytes);
        attrs.constant.data = copy;
    }
    return tsri_add_source(g, TSRI_OP_CONSTANT, &attrs, dims, dtype, p, sbp, c.loc);
}

static const tsri_attr_field arange_attrs[] = {TSRI_ATTR_FIELD(arange.start, F64, "start"),
                                               TSRI_ATTR_FIELD(arange.step, F64, "step"),
                                               TSRI_ATTR_END};

const tsri_op_def tsri_def_arange = {.rule_text = "-> B", .attrs = arange_attrs};
static const tsri_attr_field constant_attrs[] = {
    TSRI_ATTR_FIELD(constant.hash, U64, "hash of the data"), TSRI_ATTR_END};

const tsri_op_def tsri_def_constant = {
    .rule_text = "-> B", .attrs = constant_attrs, .keeps_dtype = true};
