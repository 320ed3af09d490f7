/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining and cutting. Axes that are cut can't be split; all of it is movement, so P passes, but
 * for padding with a number other than 0.
 */
#include <math.h>
#include <stdio.h>

#include "src/core/dims.h"
#include "src/graph/op.h"

enum { MOST = TSRI_RULE_MAX_ARGS }; /* operands or results of one op; more are done in groups */

static tsri_attrs whole_axes(void)
{
    tsri_attrs attrs = {0};
    for (int i = 0; i < TSR_MAX_NDIM; i++)
        attrs.slice.step[i] = 1;
    return attrs;
}

/* Whether a slice of `size` elements of axis i moves or leaves out any of the axis's n. */
static bool is_cut(const tsri_attrs *attrs, int i, int64_t n, int64_t size)
{
    return size != n || (n && attrs->slice.start[i]) || (n > 1 && attrs->slice.step[i] != 1);
}

static tsr_tensor *add_slice(tsr_tensor *x, const tsri_attrs *attrs, tsr_dims dims, tsri_loc loc)
{
    bool cut = false;
    for (int i = 0; i < dims.ndim && !x->failed; i++)
        cut |= is_cut(attrs, i, x->shape.d[i], dims.d[i]);
    if (!cut)
        return tsri_as_result(x, x, loc);
    return tsri_graph_add1(x->graph, TSRI_OP_SLICE, attrs, 1, &x, dims, x->dtype, loc);
}

/* --- concat, stack ---------------------------------------------------------------------------- */

static bool want_alike(const tsri_ctx *c, int n, tsr_tensor *const *x, int axis)
{
    if (!tsri_want_same_dtype(c, n, x))
        return false;
    for (int i = 1; i < n; i++) {
        bool alike = x[i]->shape.ndim == x[0]->shape.ndim;
        for (int a = 0; a < x[0]->shape.ndim && alike; a++)
            alike = a == axis || x[i]->shape.d[a] == x[0]->shape.d[a];
        if (alike)
            continue;
        if (axis < 0)
            tsri_op_fail(c, TSR_ERR_SHAPE, "operands 0 and %d are %s and %s; all must be alike", i,
                         tsri_op_dims(c, x[0]), tsri_op_dims(c, x[i]));
        else
            return tsri_op_refuse(c, TSR_ERR_SHAPE,
                                  "operands 0 and %d are %s and %s; all axes but %d must be alike",
                                  i, tsri_op_dims(c, x[0]), tsri_op_dims(c, x[i]), axis);
    }
    return true;
}

static tsr_tensor *add_concat(tsr_graph *g, int n, tsr_tensor *const *x, int axis, tsri_loc loc)
{
    if (n == 1)
        return x[0];
    tsr_tensor *group[MOST];
    if (n > MOST) {
        int each = (n + MOST - 1) / MOST, groups = 0;
        for (int i = 0; i < n; i += each)
            group[groups++] = add_concat(g, n - i < each ? n - i : each, x + i, axis, loc);
        return add_concat(g, groups, group, axis, loc);
    }
    tsr_dims shape = x[0]->shape;
    for (int i = 1; i < n; i++)
        shape.d[axis] += x[i]->shape.d[axis];
    tsri_attrs attrs = {0};
    attrs.cut.axis = axis;
    return tsri_graph_add1(g, TSRI_OP_CONCAT, &attrs, n, x, shape, x[0]->dtype, loc);
}

tsr_tensor *tsr_concat_at(int n, tsr_tensor *const *x, int axis, const char *file, int line)
{
    tsri_loc loc = {file, line};
    if (!tsri_want_some("concat", n, x, loc))
        return NULL;
    tsri_ctx c;
    if (!tsri_op_begin(&c, "concat", n, x, 0, loc) || !tsri_want_axis(&c, x[0], &axis) ||
        !want_alike(&c, n, x, axis))
        return c.failed;
    return tsri_as_result(add_concat(c.g, n, x, axis, loc), x[0], loc);
}

tsr_tensor *tsr_stack_at(int n, tsr_tensor *const *x, int axis, const char *file, int line)
{
    tsri_loc loc = {file, line};
    if (!tsri_want_some("stack", n, x, loc))
        return NULL;
    tsri_ctx c;
    if (!tsri_op_begin(&c, "stack", n, x, 0, loc))
        return c.failed;
    int ndim = x[0]->shape.ndim + 1, at = axis < 0 ? axis + ndim : axis;
    if (at < 0 || at >= ndim || ndim > TSR_MAX_NDIM)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "new axis %d for %s; legal are %d to %d, of at most %d axes", axis,
                            tsri_op_dims(&c, x[0]), -ndim, ndim - 1, TSR_MAX_NDIM);
    if (!want_alike(&c, n, x, -1))
        return c.failed;
    tsr_tensor **one = tsri_pool_alloc(&c.g->pool, (size_t)n * sizeof *one);
    if (!one)
        return tsri_graph_fail_last(c.g, TSR_ERR_NO_MEMORY);
    tsr_dims dims = {.ndim = ndim};
    for (int i = 0; i < ndim; i++)
        dims.d[i] = i < at ? x[0]->shape.d[i] : i > at ? x[0]->shape.d[i - 1] : 1;
    for (int i = 0; i < n; i++)
        one[i] = tsri_make_reshape(x[i], dims, loc);
    return one[0]->failed ? one[0] : add_concat(c.g, n, one, at, loc);
}

static tsr_status rule_concat(const tsri_op *op, tsri_rule_text *out)
{
    char axes[TSRI_AXES_TEXT], in[MOST * (2 * TSR_MAX_NDIM + 4)];
    char *p = in;
    tsri_axes_text(axes, op->out[0]->shape.ndim, 1u << op->attrs.cut.axis, '.');
    for (int i = 0; i < op->nin; i++)
        p += sprintf(p, i ? " + ^%s" : "^%s", axes);
    return tsri_write_rule(out, "%s -> %s", in, axes);
}

/* --- split ------------------------------------------------------------------------------------ */

static bool add_split(tsr_tensor *x, int n, const int64_t *sizes, int axis, tsr_tensor **out,
                      tsri_loc loc)
{
    int each = n > MOST ? (n + MOST - 1) / MOST : 1, groups = 0;
    tsr_dims shapes[MOST] = {0};
    tsr_dtype dtypes[MOST] = {0};
    if (n == 1) {
        out[0] = x;
        return true;
    }
    for (int i = 0; i < n; i += each, groups++) {
        shapes[groups] = x->shape;
        shapes[groups].d[axis] = 0;
        dtypes[groups] = x->dtype;
        for (int j = i; j < i + each && j < n; j++)
            shapes[groups].d[axis] += sizes[j];
    }
    tsri_attrs attrs = {0};
    attrs.cut.axis = axis;
    tsri_op *op =
        tsri_graph_add(x->graph, TSRI_OP_SPLIT, &attrs, 1, &x, groups, shapes, dtypes, NULL, loc);
    bool ok = op != NULL;
    for (int i = 0; i < groups && ok; i++) {
        int first = i * each, m = n - first < each ? n - first : each;
        ok = add_split(op->out[i], m, sizes + first, axis, out + first, loc);
    }
    return ok;
}

static bool want_sizes(const tsri_ctx *c, const tsr_tensor *x, int n, const int64_t *sizes,
                       int axis)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0 || __builtin_add_overflow(sum, sizes[i], &sum))
            return tsri_op_refuse(c, TSR_ERR_SHAPE,
                                  "size %d is %lld; sizes are >= 0 and add up to %lld", i,
                                  (long long)sizes[i], (long long)x->shape.d[axis]);
    }
    if (sum == x->shape.d[axis])
        return true;
    return tsri_op_refuse(c, TSR_ERR_SHAPE, "the %d sizes add up to %lld; axis %d of %s needs %lld",
                          n, (long long)sum, axis, tsri_op_dims(c, x), (long long)x->shape.d[axis]);
}

void tsr_split_at(tsr_tensor *x, int n, const int64_t *sizes, int axis, tsr_tensor **out_y,
                  const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    bool ok = tsri_op_begin(&c, "split", 1, &x, 0, loc);
    if (ok && n < 1)
        ok = tsri_op_refuse(&c, TSR_ERR_INVALID, "into %d parts; at least one is needed", n);
    else if (ok && (!sizes || !out_y))
        ok = tsri_op_refuse(&c, TSR_ERR_INVALID, "%s is NULL", sizes ? "out_y" : "sizes");
    ok = ok && tsri_want_axis(&c, x, &axis) && want_sizes(&c, x, n, sizes, axis) &&
         add_split(x, n, sizes, axis, out_y, loc);
    if (ok)
        out_y[0] = tsri_as_result(out_y[0], x, loc);
    for (int i = 0; i < n && !ok && out_y; i++)
        out_y[i] = c.failed;
}

static tsr_status rule_split(const tsri_op *op, tsri_rule_text *out)
{
    char axes[TSRI_AXES_TEXT], res[MOST * (2 * TSR_MAX_NDIM + 2)];
    char *p = res;
    tsri_axes_text(axes, op->in[0]->shape.ndim, 1u << op->attrs.cut.axis, '.');
    for (int i = 0; i < op->nout; i++)
        p += sprintf(p, i ? ", %s" : "%s", axes);
    return tsri_write_rule(out, "^%s -> %s", axes, res);
}

/* Results without a gradient count 0. */
static void grad_split(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsr_tensor *x = op->in[0], *dy[MOST] = {0};
    for (int i = 0; i < op->nout; i++)
        dy[i] = dout[i] ? dout[i]
                        : tsri_make_fill(x->graph, op->out[i]->shape, x->dtype, x->placement, 0,
                                         op->loc);
    din[0] = add_concat(x->graph, op->nout, dy, op->attrs.cut.axis, op->loc);
}

/* All gradients by one split; only some of them by a slice each. */
static void grad_concat(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    const int axis = op->attrs.cut.axis;
    int64_t sizes[MOST], at = 0;
    bool all = !dout[0]->failed;
    for (int i = 0; i < op->nin; i++) {
        sizes[i] = op->in[i]->shape.d[axis];
        all &= want[i];
    }
    if (all)
        add_split(dout[0], op->nin, sizes, axis, din, op->loc);
    for (int i = 0; i < op->nin && !all; at += sizes[i++]) {
        tsri_attrs attrs = whole_axes();
        attrs.slice.start[axis] = sizes[i] ? at : 0;
        if (want[i])
            din[i] = add_slice(dout[0], &attrs, op->in[i]->shape, op->loc);
    }
}

static const tsri_attr_field cut_attrs[] = {TSRI_ATTR_FIELD(cut.axis, I32, "axis"), TSRI_ATTR_END};

const tsri_op_def tsri_def_concat = {
    .rule = rule_concat, .gradient = grad_concat, .attrs = cut_attrs, .is_exact = true};
const tsri_op_def tsri_def_split = {
    .rule = rule_split, .gradient = grad_split, .attrs = cut_attrs, .is_exact = true};

/* --- slice, pad ------------------------------------------------------------------------------- */

/* Position p of an axis of n elements, negative from the end, moved inside. */
static int64_t clamp(int64_t p, int64_t n)
{
    p = p < 0 ? p + n : p;
    return p < 0 ? 0 : p > n ? n : p;
}

tsr_tensor *tsr_slice_at(tsr_tensor *x, tsr_dims starts, tsr_dims ends, tsr_dims steps,
                         const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "slice", 1, &x, 0, loc))
        return c.failed;
    int ndim = x->shape.ndim;
    if (starts.ndim != ndim || ends.ndim != ndim || (steps.ndim && steps.ndim != ndim))
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "%d starts, %d ends and %d steps for %s; one of each for each axis "
                            "(or no steps) is needed",
                            starts.ndim, ends.ndim, steps.ndim, tsri_op_dims(&c, x));
    tsri_attrs attrs = whole_axes();
    tsr_dims dims = {.ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        int64_t n = x->shape.d[i], step = steps.ndim ? steps.d[i] : 1;
        int64_t start = clamp(starts.d[i], n), end = clamp(ends.d[i], n);
        if (step < 1)
            return tsri_op_fail(&c, TSR_ERR_INVALID, "step %lld of axis %d; steps are >= 1",
                                (long long)step, i);
        dims.d[i] = end > start ? (end - start - 1) / step + 1 : 0;
        attrs.slice.start[i] = dims.d[i] ? start : 0;
        attrs.slice.step[i] = dims.d[i] > 1 ? step : 1;
    }
    return add_slice(x, &attrs, dims, loc);
}

tsr_tensor *tsr_narrow_at(tsr_tensor *x, int axis, int64_t start, int64_t length, const char *file,
                          int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "narrow", 1, &x, 0, loc) || !tsri_want_axis(&c, x, &axis))
        return c.failed;
    int64_t n = x->shape.d[axis], from = start < 0 ? start + n : start;
    if (from < 0 || from > n || length < 0 || length > n - from)
        return tsri_op_fail(
            &c, TSR_ERR_SHAPE, "%lld elements from %lld on of axis %d of %s; it has %lld",
            (long long)length, (long long)start, axis, tsri_op_dims(&c, x), (long long)n);
    tsri_attrs attrs = whole_axes();
    tsr_dims dims = x->shape;
    attrs.slice.start[axis] = length ? from : 0;
    dims.d[axis] = length;
    return add_slice(x, &attrs, dims, loc);
}

tsr_tensor *tsri_make_flip(tsr_tensor *x, uint32_t axes, tsri_loc loc)
{
    tsri_attrs attrs = whole_axes();
    for (int i = 0; i < x->shape.ndim; i++)
        if (axes >> i & 1 && x->shape.d[i] > 1) {
            attrs.slice.start[i] = x->shape.d[i] - 1;
            attrs.slice.step[i] = -1;
        }
    return add_slice(x, &attrs, x->shape, loc);
}

tsr_tensor *tsri_make_roll(tsr_tensor *x, int axis, int64_t start, tsri_loc loc)
{
    tsri_attrs attrs = whole_axes();
    attrs.slice.start[axis] = start;
    return add_slice(x, &attrs, x->shape, loc);
}

tsr_tensor *tsr_pad_at(tsr_tensor *x, tsr_dims before, tsr_dims after, double value,
                       const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "pad", 1, &x, 0, loc))
        return c.failed;
    int ndim = x->shape.ndim;
    if (before.ndim != ndim || after.ndim != ndim)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "%d sizes before and %d after for %s; one for each axis is needed",
                            before.ndim, after.ndim, tsri_op_dims(&c, x));
    if (!tsri_want_value(&c, x->dtype, value))
        return c.failed;
    tsri_attrs attrs = whole_axes();
    tsr_dims dims = x->shape;
    for (int i = 0; i < ndim; i++) {
        if (before.d[i] < 0 || after.d[i] < 0)
            return tsri_op_fail(&c, TSR_ERR_SHAPE,
                                "%lld before and %lld after axis %d; sizes are >= 0: tsr_slice "
                                "takes away",
                                (long long)before.d[i], (long long)after.d[i], i);
        if (before.d[i] > TSRI_MAX_COUNT || after.d[i] > TSRI_MAX_COUNT)
            return tsri_op_fail(&c, TSR_ERR_SHAPE,
                                "%lld before and %lld after axis %d; an axis has at most 2^56",
                                (long long)before.d[i], (long long)after.d[i], i);
        attrs.slice.start[i] = before.d[i];
        dims.d[i] += before.d[i] + after.d[i];
    }
    attrs.slice.value = value;
    if (tsr_dims_equal(x->shape, dims))
        return tsri_as_result(x, x, loc);
    return tsri_graph_add1(c.g, TSRI_OP_PAD, &attrs, 1, &x, dims, x->dtype, loc);
}

/* A: '.' for the axes that are cut, grow, or have their elements moved. */
static void name_cut(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    const tsr_dims from = op->in[0]->shape, to = op->out[0]->shape;
    uint32_t mask = 0;
    for (int i = 0; i < from.ndim; i++)
        mask |= (uint32_t)is_cut(&op->attrs, i, from.d[i], to.d[i]) << i;
    tsri_axes_text(names->a, from.ndim, mask, '.');
}

static const char *rule_pad(const tsri_op *op)
{
    return op->attrs.slice.value != 0 ? "!^A -> A" : "^A -> A";
}

/* The gradient of what leaves out no element moves each back to where it was. */
static void grad_slice(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsr_tensor *x = op->in[0], *dy = dout[0];
    if (tsr_dims_equal(x->shape, dy->shape)) {
        tsri_attrs attrs = op->attrs;
        for (int i = 0; i < x->shape.ndim; i++)
            if (attrs.slice.start[i] && attrs.slice.step[i] == 1)
                attrs.slice.start[i] = x->shape.d[i] - attrs.slice.start[i];
        din[0] = add_slice(dy, &attrs, x->shape, op->loc);
        return;
    }
    din[0] = tsri_graph_add_like(TSRI_OP_PAD, &op->attrs, 1, &dy, x, op->loc);
}

static void grad_pad(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsri_attrs attrs = op->attrs;
    attrs.slice.value = 0;
    din[0] = add_slice(dout[0], &attrs, op->in[0]->shape, op->loc);
}

static const tsri_attr_field slice_attrs[] = {
    TSRI_ATTR_FIELDS(slice.start, I64, TSR_MAX_NDIM, "start"),
    TSRI_ATTR_FIELDS(slice.step, I64, TSR_MAX_NDIM, "step"),
    TSRI_ATTR_FIELD(slice.value, F64, "value"), TSRI_ATTR_END};

const tsri_op_def tsri_def_slice = {.rule_text = "^A -> A",
                                    .names = name_cut,
                                    .gradient = grad_slice,
                                    .attrs = slice_attrs,
                                    .is_exact = true};
const tsri_op_def tsri_def_pad = {.rule_of = rule_pad,
                                  .names = name_cut,
                                  .gradient = grad_pad,
                                  .attrs = slice_attrs,
                                  .is_exact = true};
