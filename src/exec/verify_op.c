/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_op_verify: holds the definition of a program's own op against what its functions do. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/core/own_op.h"
#include "src/exec/verify_part.h"
#include "src/graph/op.h"

typedef struct verifying {
    tsr_op *op;
    tsr_op_verify_opts o;
    tsr_dtype dtype; /* of operand 0, where the options do not say */
    tsri_pool pool;  /* of the values */
    tsr_graph *g;
    tsr_tensor *x[TSR_OP_MAX_INPUTS], *y[TSR_OP_MAX_OUTPUTS];
    tsri_whole forward, backward; /* backward.op NULL: there is none */
    uint64_t rng;
} verifying;

/* Returns the first dtype of a set. */
static tsr_dtype first_of(unsigned set)
{
    for (int t = 0; t < TSR_DTYPE_COUNT_; t++)
        if (set >> t & 1 && tsr_dtype_size((tsr_dtype)t))
            return (tsr_dtype)t;
    return TSR_F64;
}

static tsr_dtype dtype_of(const verifying *v, int i)
{
    const unsigned others = v->op->def.in_dtypes[i];
    if (v->o.dtypes)
        return v->o.dtypes[i];
    return !others || others >> v->dtype & 1 ? v->dtype : first_of(others);
}

/* Declares the op, and its gradient, in a graph of this rank's own. */
static tsr_status declare(verifying *v, const tsr_dims *dims)
{
    tsr_world *w = v->op->world;
    char where[32];
    snprintf(where, sizeof where, "cpu:[%d]", tsr_world_rank(w));
    const tsr_placement *p = tsr_placement_parse(w, where);
    v->g = tsr_graph_create(w, TSR_GRAPH_OPTS(.local = true));
    if (!p || !v->g)
        return TSR_ERR_NO_MEMORY;
    tsr_tensor *of[TSR_OP_MAX_INPUTS], *dx[TSR_OP_MAX_INPUTS];
    int n = 0;
    for (int i = 0; i < v->op->def.inputs; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        v->x[i] = tsr_input(v->g, name, dtype_of(v, i), dims[i], p, TSR_B);
        if (tsri_is_float(dtype_of(v, i)))
            of[n++] = v->x[i];
    }
    tsr_op_apply_all(v->op, v->op->def.inputs, v->x, v->o.options, v->y);
    TSRI_TRY(tsr_graph_status(v->g));
    v->forward.op = v->y[0]->op;
    if (!v->op->def.backward || !n)
        return TSR_OK;
    tsr_tensor *loss = NULL;
    for (int i = 0; i < v->op->def.outputs; i++)
        if (tsri_is_float(v->y[i]->dtype)) {
            tsr_tensor *sum = tsr_cast(tsr_sum(v->y[i], TSR_ALL_AXES, false), TSR_F64);
            loss = loss ? tsr_add(loss, sum) : sum;
        }
    if (!loss)
        return TSR_OK;
    tsr_gradients(loss, n, of, dx);
    TSRI_TRY(tsr_graph_status(v->g));
    for (int i = 0; i < v->g->nops; i++)
        if (v->g->ops[i]->kind == TSRI_OP_OWN_BACKWARD)
            v->backward.op = v->g->ops[i];
    return TSR_OK;
}

static tsr_status make_room(verifying *v, tsri_whole *w)
{
    w->mem = &v->op->world->mem;
    w->rng = v->o.seed;
    for (int i = 0; i < w->op->nin; i++) {
        const size_t n = (size_t)tsr_dims_count(w->op->in[i]->shape);
        TSRI_NEED(w->in[i] = tsri_pool_alloc(&v->pool, n * sizeof(double)));
    }
    for (int i = 0; i < w->op->nout; i++) {
        const size_t n = (size_t)tsr_dims_count(w->op->out[i]->shape);
        TSRI_NEED(w->out[i] = tsri_pool_alloc(&v->pool, n * sizeof(double)));
    }
    return TSR_OK;
}

static void draw(verifying *v, const tsr_tensor *t, double *out)
{
    for (int64_t i = 0; i < tsr_dims_count(t->shape); i++) {
        const double u = tsri_verify_random(&v->rng), x = v->o.low + u * (v->o.high - v->o.low);
        out[i] = tsri_is_float(t->dtype)       ? (t->dtype == TSR_F64 ? x : (double)(float)x)
                 : t->dtype == TSR_BOOL        ? u < 0.5
                 : t->dtype == TSR_U8 && x < 0 ? 0
                                               : floor(x);
    }
}

/* --- signatures ------------------------------------------------------------------------------- */
static void signature_text(const tsri_op *op, const tsri_nd_signature *sig, char *buf, size_t size)
{
    char one[TSR_SBP_TEXT_MAX];
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < op->nin + op->nout && at + TSR_SBP_TEXT_MAX < size; i++) {
        const tsr_sbp s = i < op->nin ? sig->in[i] : sig->out[i - op->nin];
        at += (size_t)snprintf(buf + at, size - at, "%s%s",
                               i == op->nin ? " -> "
                               : i          ? ", "
                                            : "",
                               tsr_sbp_format(s, one));
    }
}

/* P(sum) of bool does not exist; inference leaves such signatures out. */
static bool sums_bool(const tsri_op *op, const tsri_nd_signature *sig)
{
    for (int i = 0; i < op->nout; i++)
        for (int d = 0; d < sig->out[i].ndim; d++)
            if (op->out[i]->dtype == TSR_BOOL && sig->out[i].d[d].kind == TSR_SBP_PARTIAL &&
                sig->out[i].d[d].arg == TSR_REDUCE_SUM)
                return true;
    return false;
}

static tsr_status check_mesh(verifying *v, tsri_whole *w, const char *name, const tsri_rule *rule,
                             const tsri_part_mesh *mesh, int *out_n)
{
    tsri_pool pool;
    tsri_nd_signature *sigs;
    int n;
    tsri_pool_init(&pool, w->mem);
    tsr_status status = tsri_rule_derive_nd(&pool, rule, mesh->ndim, mesh->dim, &n, &sigs);
    for (int i = 0; i < n && status == TSR_OK; i++) {
        char text[512];
        tsri_pool work;
        if (sums_bool(w->op, &sigs[i]))
            continue;
        signature_text(w->op, &sigs[i], text, sizeof text);
        tsri_pool_init(&work, w->mem);
        status = tsri_whole_check(w, &work, mesh, &sigs[i]);
        tsri_pool_finish(&work);
        if (status != TSR_OK)
            tsri_fail_prefix(status, "%s, %s over %d%s%.0d ranks", name, text, mesh->dim[0],
                             mesh->ndim > 1 ? "x" : "", mesh->ndim > 1 ? mesh->dim[1] : 0);
        else if (v->o.report)
            fprintf(v->o.report, "%s: %s: %s over %d%s%.0d ranks\n", v->op->def.name, name, text,
                    mesh->dim[0], mesh->ndim > 1 ? "x" : "", mesh->ndim > 1 ? mesh->dim[1] : 0);
        ++*out_n;
    }
    tsri_pool_finish(&pool);
    return status;
}

/* Runs the whole, then all signatures over 2, 3, ... ranks and over 2x2. */
static tsr_status check_function(verifying *v, tsri_whole *w, const char *name)
{
    tsri_rule_text text;
    tsri_rule *rule;
    int n = 0;
    tsr_status status = tsri_whole_run(w, &v->pool);
    if (status == TSR_OK)
        status = tsri_op_bind_rule(&v->pool, w->op, &text, &rule);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "%s", name);
    for (int k = 2; k <= v->o.most_parts; k++)
        TSRI_TRY(check_mesh(v, w, name, rule, &(tsri_part_mesh){1, {k}}, &n));
    if (v->o.most_parts >= 4)
        TSRI_TRY(check_mesh(v, w, name, rule, &(tsri_part_mesh){2, {2, 2}}, &n));
    return TSR_OK;
}

/* --- gradients -------------------------------------------------------------------------------- */
/* sum(dout y), at the operands that forward.in holds. */
static tsr_status loss_at(verifying *v, tsri_pool *pool, double *out)
{
    const tsri_op *op = v->forward.op, *back = v->backward.op;
    TSRI_TRY(tsri_whole_run_once(&v->forward, pool));
    *out = 0;
    for (int i = 0; i < op->nout; i++) {
        const double *dout = v->backward.in[back->nin - op->nout + i];
        for (int64_t e = 0; e < tsr_dims_count(op->out[i]->shape); e++)
            *out += dout[e] * v->forward.out[i][e];
    }
    return TSR_OK;
}

enum { MOST_ELEMENTS = 64 }; /* of an operand whose gradient is held against differences */

static tsr_status check_operand(verifying *v, int i, const double *gradient)
{
    const tsr_tensor *t = v->forward.op->in[i];
    const int64_t n = tsr_dims_count(t->shape), step = n > MOST_ELEMENTS ? n / MOST_ELEMENTS : 1;
    const bool fine = t->dtype == TSR_F64;
    for (int64_t e = 0; e < n; e += step) {
        double *x = &v->forward.in[i][e], up = 0, down = 0;
        const double was = *x, h = (fine ? 1e-5 : 1e-2) * fmax(1, fabs(was));
        tsri_pool pool;
        tsri_pool_init(&pool, v->forward.mem);
        *x = was + h;
        tsr_status status = loss_at(v, &pool, &up);
        *x = was - h;
        if (status == TSR_OK)
            status = loss_at(v, &pool, &down);
        *x = was;
        tsri_pool_finish(&pool);
        TSRI_TRY(status);
        const double want = (up - down) / (2 * h), rounding = fabs(up) + fabs(down);
        const double tol = fine ? 1e-5 * fmax(1, fabs(want)) + 1e-10 * rounding / h
                                : 3e-2 * fmax(1, fabs(want)) + 1e-6 * rounding / h;
        if (isfinite(want) && !(fabs(want - gradient[e]) <= tol))
            return tsri_fail(TSR_ERR_INVALID,
                             "backward: the gradient of operand %d, element %lld is %.9g; "
                             "differences give %.9g",
                             i, (long long)e, gradient[e], want);
    }
    return TSR_OK;
}

/* Runs backward at random gradients of the results, and checks it as forward, and its gradients. */
static tsr_status check_backward(verifying *v)
{
    const tsri_op *op = v->forward.op, *back = v->backward.op;
    const bool keeps = v->op->def.flags & TSR_OP_KEEPS_RESULTS;
    TSRI_TRY(make_room(v, &v->backward));
    for (int i = 0; i < op->nin; i++)
        v->backward.in[i] = v->forward.in[i];
    for (int i = 0; i < op->nout && keeps; i++)
        memcpy(v->backward.in[op->nin + i], v->forward.out[i],
               (size_t)tsr_dims_count(op->out[i]->shape) * sizeof(double));
    for (int i = 0; i < op->nout; i++) {
        const int at = back->nin - op->nout + i;
        if (tsri_is_float(back->in[at]->dtype))
            draw(v, back->in[at], v->backward.in[at]);
    }
    TSRI_TRY(check_function(v, &v->backward, "backward"));
    for (int i = 0, j = 0; i < op->nin; i++)
        if (back->attrs.own.want >> i & 1)
            TSRI_TRY(check_operand(v, i, v->backward.out[j++]));
    return TSR_OK;
}

static tsr_status verify(verifying *v, const tsr_dims *dims)
{
    TSRI_TRY(declare(v, dims));
    TSRI_TRY(make_room(v, &v->forward));
    for (int i = 0; i < v->forward.op->nin; i++)
        draw(v, v->forward.op->in[i], v->forward.in[i]);
    TSRI_TRY(check_function(v, &v->forward, "forward"));
    return v->backward.op ? check_backward(v) : TSR_OK;
}

/* Runs all checks for operands of one choice of dtypes. */
static tsr_status verify_once(verifying *v, const tsr_dims *dims)
{
    v->rng = v->o.seed;
    v->g = NULL;
    v->forward = v->backward = (tsri_whole){0};
    tsri_pool_init(&v->pool, &v->op->world->mem);
    const tsr_status status = verify(v, dims);
    if (status != TSR_OK)
        tsri_fail_prefix(status, "tsr_op_verify: op '%s'", v->op->def.name);
    tsri_pool_finish(&v->pool);
    if (v->g) {
        char text[1024];
        snprintf(text, sizeof text, "%s", tsr_last_error());
        tsr_graph_destroy(v->g);
        if (status != TSR_OK)
            return tsri_fail(status, "%s", text);
    }
    return status;
}

tsr_status tsr_op_verify(tsr_op *op, const tsr_dims *dims, const tsr_op_verify_opts *opts)
{
    verifying v = {.op = op, .o = *TSR_OP_VERIFY_OPTS()};
    if (!op || !dims)
        return tsri_fail(TSR_ERR_INVALID, "tsr_op_verify: %s NULL%s", op ? "dims is" : "the op is",
                         op ? "" : tsri_error_cause());
    TSRI_TRY(tsri_live_check(op, TSRI_LIVE_OP, __func__));
    TSRI_TRY(tsri_opts_read(&v.o, sizeof v.o, opts, __func__));
    if (v.o.most_parts == 0)
        v.o.most_parts = 4;
    if (v.o.most_parts < 2 || v.o.most_parts > TSRI_VERIFY_PARTS)
        return tsri_fail(TSR_ERR_INVALID, "tsr_op_verify: most_parts is %d; legal are 2 to %d",
                         v.o.most_parts, TSRI_VERIFY_PARTS);
    if (v.o.low == 0 && v.o.high == 0) {
        v.o.low = -2;
        v.o.high = 2;
    }
    if (!(v.o.low <= v.o.high) || !isfinite(v.o.high - v.o.low))
        return tsri_fail(TSR_ERR_INVALID, "tsr_op_verify: no numbers are in [%g, %g]", v.o.low,
                         v.o.high);
    if (!op->def.forward)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "tsr_op_verify: op '%s' has no forward function for "
                         "a CPU",
                         op->def.name);
    const unsigned legal = op->def.dtypes;
    v.dtype = !legal || legal >> TSR_F64 & 1 ? TSR_F64 : first_of(legal);
    TSRI_TRY(verify_once(&v, dims));
    v.dtype = TSR_F32;
    if (v.o.dtypes || (legal && (legal & TSR_OP_FLOATS) != TSR_OP_FLOATS))
        return TSR_OK;
    return verify_once(&v, dims);
}
