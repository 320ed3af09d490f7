/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the op declarations: checks and the writing of rules. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/core/convert.h"
#include "src/core/opts.h"
#include "src/core/dims.h"
#include "placement/placement.h"
#include "src/core/live.h"
#include "src/graph/op.h"

const char tsri_letters[] = "abcdefgh";

bool tsri_op_begin(tsri_ctx *c, const char *op, int n, tsr_tensor *const *x, uint32_t optional,
                   tsri_loc loc)
{
    *c = (tsri_ctx){.loc = loc, .op = op};
    c->g = tsri_check_operands(op, n, x, optional, loc, &c->failed);
    return c->g;
}

bool tsri_function_begin(tsri_ctx *c, const char *op, int n, tsr_tensor *const *x,
                         uint32_t optional, tsri_loc loc)
{
    tsr_graph *open = c->open;
    const bool ok = tsri_op_begin(c, op, n, x, optional, loc);
    c->open = ok ? c->g : open;
    if (ok && !open)
        tsri_declare_begin(c->g);
    return ok;
}

void tsri_function_end(tsri_ctx *c)
{
    if (c->open)
        tsri_declare_end(c->open);
}

bool tsri_want_some(const char *name, int n, tsr_tensor *const *x, tsri_loc loc)
{
    if (n >= 1 && x)
        return true;
    if (n < 1)
        tsri_fail_at(loc, TSR_ERR_INVALID, "%s: of %d tensors; at least one is needed", name, n);
    else
        tsri_fail_at(loc, TSR_ERR_INVALID, "%s: the list of tensors is NULL", name);
    return false;
}

static tsr_tensor *fail_with(const tsri_ctx *c, tsr_status status, const char *fmt, va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof text, fmt, ap);
    return tsri_graph_fail(c->g, c->loc, status, "%s: %s", c->op, text);
}

tsr_tensor *tsri_op_fail(const tsri_ctx *c, tsr_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    tsr_tensor *failed = fail_with(c, status, fmt, ap);
    va_end(ap);
    return failed;
}

bool tsri_op_refuse(const tsri_ctx *c, tsr_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fail_with(c, status, fmt, ap);
    va_end(ap);
    return false;
}

const char *tsri_op_dims(const tsri_ctx *c, const tsr_tensor *x)
{
    return tsri_dims_text(c->g, x->shape);
}

bool tsri_want_float(const tsri_ctx *c, const tsr_tensor *x)
{
    if (tsri_is_float(x->dtype))
        return true;
    return tsri_op_refuse(c, TSR_ERR_DTYPE,
                          "operand %s is %s; floating point is needed: use tsr_cast(x, TSR_F32)",
                          tsri_op_dims(c, x), tsr_dtype_name(x->dtype));
}

bool tsri_want_loss(const tsri_ctx *c, const tsr_tensor *loss)
{
    if (loss->shape.ndim != 0)
        return tsri_op_refuse(c, TSR_ERR_SHAPE,
                              "the loss must be a scalar, but has shape %s; reduce it with "
                              "tsr_mean or tsr_sum",
                              tsri_op_dims(c, loss));
    if (!tsri_is_float(loss->dtype))
        return tsri_op_refuse(c, TSR_ERR_DTYPE, "the loss is %s; it must be floating point",
                              tsr_dtype_name(loss->dtype));
    return true;
}

bool tsri_op_refuse_last(const tsri_ctx *c, tsr_status status)
{
    tsri_graph_fail_last(c->g, status);
    return false;
}

bool tsri_autocast_joins(const tsr_graph *g, const tsr_tensor *x, const tsr_tensor *y)
{
    return tsri_autocasts(g) && tsri_is_float(x->dtype) && tsri_is_float(y->dtype) &&
           x->dtype != TSR_F64 && y->dtype != TSR_F64;
}

tsr_tensor *tsri_full(const tsri_ctx *c, tsr_tensor *x)
{
    return x && tsri_autocasts(c->g) ? tsri_autocast_to(x, TSR_F32, c->loc) : x;
}

tsr_tensor *tsri_low(const tsri_ctx *c, tsr_tensor *x)
{
    return x && tsri_autocasts(c->g) ? tsri_autocast_to(x, c->g->now.autocast, c->loc) : x;
}

tsr_tensor *tsri_as(const tsri_ctx *c, tsr_tensor *y, const tsr_tensor *x)
{
    return tsri_autocasts(c->g) ? tsri_autocast_to(y, x->dtype, c->loc) : y;
}

tsr_tensor *tsri_saved(const tsri_op *op, int i)
{
    tsr_graph *g = op->out[i]->graph;
    tsr_dims shapes[TSRI_RULE_MAX_ARGS];
    tsr_dtype dtypes[TSRI_RULE_MAX_ARGS];
    if (!tsri_is_half(op->out[i]->dtype))
        return op->out[i];
    for (int k = 0; k < op->nout; k++) {
        shapes[k] = op->out[k]->shape;
        dtypes[k] = op->out[k]->dtype;
    }
    const tsri_op *again = tsri_graph_add(g, op->kind, &op->attrs, op->nin, op->in, op->nout,
                                          shapes, dtypes, op->placement, op->loc);
    return again ? again->out[i] : &g->failure.tensor;
}

bool tsri_want_same_dtype(const tsri_ctx *c, int n, tsr_tensor *const *x)
{
    for (int i = 1; i < n; i++)
        if (x[i] && x[i]->dtype != x[0]->dtype && !tsri_autocast_joins(c->g, x[i], x[0]))
            return tsri_op_refuse(
                c, TSR_ERR_DTYPE,
                "operands 0 and %d are %s and %s; one dtype is needed: use tsr_cast", i,
                tsr_dtype_name(x[0]->dtype), tsr_dtype_name(x[i]->dtype));
    return true;
}

bool tsri_want_vector(const tsri_ctx *c, const char *what, const tsr_tensor *x, int64_t n)
{
    if (x->shape.ndim == 1 && x->shape.d[0] == n)
        return true;
    return tsri_op_refuse(c, TSR_ERR_SHAPE, "%s is %s; it must be (%lld)", what, tsri_op_dims(c, x),
                          (long long)n);
}

bool tsri_want_axis(const tsri_ctx *c, const tsr_tensor *x, int *axis)
{
    int n = x->shape.ndim, a = *axis < 0 ? *axis + n : *axis;
    if (a >= 0 && a < n) {
        *axis = a;
        return true;
    }
    if (n == 0)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "axis %d of a scalar; it has no axes", *axis);
    return tsri_op_refuse(c, TSR_ERR_SHAPE, "axis %d of %s; legal are %d to %d", *axis,
                          tsri_op_dims(c, x), -n, n - 1);
}

bool tsri_want_axes(const tsri_ctx *c, const tsr_tensor *x, tsr_axes axes, uint32_t *out_mask)
{
    uint32_t mask = 0;
    if (axes.n < 0 || axes.n > TSR_MAX_NDIM)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "%d axes; legal are 0 (all) to %d", axes.n,
                              TSR_MAX_NDIM);
    for (int i = 0; i < axes.n; i++) {
        int axis = axes.axis[i];
        if (!tsri_want_axis(c, x, &axis))
            return false;
        if (mask >> axis & 1)
            return tsri_op_refuse(c, TSR_ERR_INVALID, "axis %d of %s is named twice", axis,
                                  tsri_op_dims(c, x));
        mask |= 1u << axis;
    }
    *out_mask = axes.n ? mask : (1u << x->shape.ndim) - 1;
    return true;
}

bool tsri_want_number(const tsri_ctx *c, const char *what, double value)
{
    if (!isnan(value))
        return true;
    return tsri_op_refuse(c, TSR_ERR_INVALID, "%s is NaN; a number is needed", what);
}

/* Sets the ends of a whole dtype, as far as a double counts. */
static void range_of(tsr_dtype dtype, double *out_low, double *out_high)
{
    int64_t low, high;
    tsri_whole_range(dtype, &low, &high);
    *out_low = dtype == TSR_I64 ? -0x1p53 : (double)low;
    *out_high = dtype == TSR_I64 ? 0x1p53 : (double)high;
}

bool tsri_holds(tsr_dtype dtype, double value)
{
    double low, high;
    range_of(dtype, &low, &high);
    return tsri_is_float(dtype) || (value >= low && value <= high && floor(value) == value);
}

bool tsri_want_value(const tsri_ctx *c, tsr_dtype dtype, double value)
{
    double low, high;
    range_of(dtype, &low, &high);
    if (tsri_holds(dtype, value))
        return true;
    return tsri_op_refuse(c, TSR_ERR_INVALID,
                          "%.17g for dtype %s; a whole number from %.0f to %.0f is needed%s", value,
                          tsr_dtype_name(dtype), low, high,
                          dtype == TSR_I64 ? ": tsr_constant takes larger ones" : "");
}

bool tsri_want_new(const tsri_ctx *c, tsr_dtype dtype, tsr_dims dims, const tsr_placement *p,
                   tsr_sbp sbp)
{
    if (!c->g) {
        tsri_fail_at(c->loc, TSR_ERR_INVALID, "%s: no graph%s", c->op, tsri_error_cause());
        return false;
    }
    if (tsri_live_check(c->g, TSRI_LIVE_GRAPH, c->op) != TSR_OK || c->g->failure.status != TSR_OK)
        return false;
    if (!p)
        return tsri_op_refuse(c, TSR_ERR_PLACEMENT, "no placement%s", tsri_error_cause());
    if (tsri_placement_check(c->g->world, p, c->op) != TSR_OK)
        return tsri_op_refuse_last(c, TSR_ERR_PLACEMENT);
    if (!tsr_dtype_size(dtype))
        return tsri_op_refuse(c, TSR_ERR_DTYPE, "no such dtype: %d", (int)dtype);
    if (dims.ndim < 0 || dims.ndim > TSR_MAX_NDIM)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "%d axes; legal are 0 to %d", dims.ndim,
                              TSR_MAX_NDIM);
    for (int i = 0; i < dims.ndim; i++)
        if (dims.d[i] < 0)
            return tsri_op_refuse(c, TSR_ERR_SHAPE, "axis %d of %s is negative; sizes are >= 0", i,
                                  tsri_dims_text(c->g, dims));
    if (!tsri_dims_fit(dims))
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "shape %s; at most 2^56 elements are possible",
                              tsri_dims_text(c->g, dims));
    tsr_status status = tsri_sbp_check(p, dims, sbp, false);
    return status == TSR_OK || tsri_op_refuse(c, status, "%s", tsr_last_error());
}

tsr_tensor *tsri_refused_new(const tsri_ctx *c)
{
    return tsri_is_live(c->g, TSRI_LIVE_GRAPH, c->op) ? &c->g->failure.tensor : NULL;
}

bool tsri_want_options(const tsri_ctx *c, void *dst, size_t bytes, const void *opts)
{
    tsr_status status = tsri_opts_read(dst, bytes, opts, c->op);
    if (status != TSR_OK)
        tsri_op_fail(c, status, "the options' size is 0; make them with their macro");
    return status == TSR_OK;
}

bool tsri_want_eps(const tsri_ctx *c, double eps)
{
    if (eps >= 0 && isfinite(eps))
        return true;
    return tsri_op_refuse(c, TSR_ERR_INVALID, "eps is %g; it must be finite and not negative", eps);
}

bool tsri_want_pair(const tsri_ctx *c, const char *what, tsr_hw in, int least, int32_t out[2])
{
    out[0] = in.h;
    out[1] = in.w;
    if (in.h >= least && in.w >= least)
        return true;
    return tsri_op_refuse(c, TSR_ERR_INVALID, "%s is (%d,%d); each must be at least %d", what, in.h,
                          in.w, least);
}

tsr_status tsri_write_rule(tsri_rule_text *out, const char *fmt, ...)
{
    memset(out, 0, sizeof *out);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out->text, sizeof out->text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof out->text)
        return tsri_fail(TSR_ERR_INTERNAL, "rule text of %d characters; room is for %zu", n,
                         sizeof out->text - 1);
    return TSR_OK;
}

void tsri_add_size(tsri_rule_text *out, const char *name, int64_t size)
{
    tsri_index_size *s = &out->sizes[out->nsizes++];
    snprintf(s->name, sizeof s->name, "%s", name);
    s->size = size;
}

const char *tsri_axes_text(char buf[TSRI_AXES_TEXT], int ndim, uint32_t mask, char mark)
{
    char *p = buf;
    for (int i = 0; i < ndim; i++) {
        bool marked = mask >> i & 1;
        if (marked && !mark)
            continue;
        if (p > buf)
            *p++ = ' ';
        *p++ = marked ? mark : tsri_letters[i];
    }
    *p = 0;
    return p > buf ? buf : strcpy(buf, "()");
}

void tsri_offset_axes(char buf[TSRI_AXES_TEXT], int ndim, int offsets)
{
    char *p = stpcpy(buf, ndim ? "" : "()");
    for (int i = 0; i < ndim; i++)
        p += sprintf(p, "%s%c%s", i ? " " : "", tsri_letters[i], i < ndim - offsets ? "" : "@");
}

void tsri_name_matrices(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    tsri_offset_axes(names->a, op->in[0]->shape.ndim, 2);
}
