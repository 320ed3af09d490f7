/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_check_gradients: a function's gradients beside central differences, in f64. */
#include <tessera/debug.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/core/rng.h"
#include "src/exec/exec.h"

enum { MOST_INPUTS = 64 };

typedef struct checking {
    tsr_world *w;
    tsr_check_opts o;
    int n;
    const tsr_dims *dims;
    tsri_pool pool;
    tsr_graph *g;
    tsr_plan *plan;
    double **x, **dx; /* by input: its values, and its gradient */
    /* The element that is worst by what it may be off; excess above 1: too much. */
    double worst, excess;
    char text[300];
} checking;

static const char who[] = "tsr_check_gradients";

/* Numbers that are uniform in [low, high). */
static void draw(uint64_t seed, const char *name, double low, double high, int64_t n, double *out)
{
    const uint64_t key = tsri_rng_key(seed, name);
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        tsri_rng_block(key, 0, (uint64_t)i, w);
        const double u = (double)(((uint64_t)w[1] << 32 | w[0]) >> 11) / 9007199254740992.0;
        out[i] = low + u * (high - low);
    }
}

static const char *name_of(checking *c, const char *prefix, int i)
{
    return tsri_pool_printf(&c->pool, "%s%d", prefix, i);
}

static tsr_status make_inputs(checking *c)
{
    c->x = tsri_pool_alloc(&c->pool, (size_t)c->n * sizeof *c->x);
    c->dx = tsri_pool_alloc(&c->pool, (size_t)c->n * sizeof *c->dx);
    TSRI_NEED(c->x && c->dx);
    for (int i = 0; i < c->n; i++) {
        const int64_t count = tsr_dims_count(c->dims[i]);
        const char *name = name_of(c, "x", i);
        c->x[i] = tsri_pool_alloc(&c->pool, (size_t)count * sizeof **c->x);
        c->dx[i] = tsri_pool_alloc(&c->pool, (size_t)count * sizeof **c->dx);
        TSRI_NEED(name && c->x[i] && c->dx[i]);
        draw(c->o.seed, name, c->o.low, c->o.high, count, c->x[i]);
    }
    return TSR_OK;
}

/* sum(w y) and its gradients, as outputs. */
static tsr_status declare(checking *c, tsr_check_fn *fn, void *arg)
{
    const tsr_placement *p = c->o.placement;
    tsr_graph *g = c->g = tsr_graph_create(c->w, TSR_GRAPH_OPTS(.seed = c->o.seed));
    tsr_tensor **x = tsri_pool_alloc(&c->pool, (size_t)c->n * 2 * sizeof(tsr_tensor *));
    TSRI_NEED(g && x);
    for (int i = 0; i < c->n; i++)
        x[i] = tsr_input(g, name_of(c, "x", i), TSR_F64, c->dims[i], p, c->o.sbp);
    tsr_tensor *y = fn(g, c->n, x, arg);
    TSRI_TRY(tsr_graph_status(g));
    if (!y)
        return tsri_fail(TSR_ERR_INVALID, "%s: the function returned no tensor", who);
    const tsr_dims dims = tsr_tensor_dims(y);
    double *w = tsri_pool_alloc(&c->pool, (size_t)tsr_dims_count(dims) * sizeof *w);
    TSRI_NEED(w);
    draw(c->o.seed, "weights", 0.5, 1.5, tsr_dims_count(dims), w);
    const tsr_sbp whole = tsri_sbp_b(tsr_placement_ndim(tsr_tensor_placement(y)));
    tsr_tensor *weights = tsr_constant(g, TSR_F64, dims, w, tsr_tensor_placement(y), whole);
    tsr_tensor *sum = tsr_sum(tsr_mul(tsr_cast(y, TSR_F64), weights), TSR_ALL_AXES, false);
    tsr_gradients(sum, c->n, x, x + c->n);
    tsr_output(g, "sum", sum, p, TSR_AUTO);
    for (int i = 0; i < c->n; i++)
        tsr_output(g, name_of(c, "dx", i), x[c->n + i], p, TSR_AUTO);
    return tsr_compile(g, &c->plan);
}

static tsr_status feed(const checking *c, int i)
{
    char name[32];
    snprintf(name, sizeof name, "x%d", i);
    return tsr_feed(c->plan, name, c->x[i], (size_t)tsr_dims_count(c->dims[i]) * sizeof **c->x);
}

static bool is_here(const checking *c)
{
    return tsr_placement_find(c->o.placement, c->w->rank) >= 0;
}

/* sum(w y) with element k of input i at `at`; 0 where this rank is not told. */
static tsr_status sum_at(checking *c, int i, int64_t k, double at, double *out)
{
    const double was = c->x[i][k];
    c->x[i][k] = at;
    tsr_status status = feed(c, i);
    c->x[i][k] = was;
    *out = 0;
    TSRI_TRY(status);
    TSRI_TRY(tsr_run(c->plan));
    return is_here(c) ? tsr_fetch_scalar(c->plan, "sum", out) : TSR_OK;
}

static tsr_status check_element(checking *c, int i, int64_t k)
{
    double above, below;
    const double x = c->x[i][k];
    TSRI_TRY(sum_at(c, i, k, x + c->o.eps, &above));
    TSRI_TRY(sum_at(c, i, k, x - c->o.eps, &below));
    const double numeric = (above - below) / (2 * c->o.eps), analytic = c->dx[i][k];
    const double off = fabs(analytic - numeric);
    const double excess = off / (c->o.atol + c->o.rtol * fabs(numeric));
    if (!(off <= c->worst))
        c->worst = off;
    if (excess <= c->excess)
        return TSR_OK;
    c->excess = isnan(excess) ? INFINITY : excess;
    snprintf(c->text, sizeof c->text,
             "input %d, element %" PRId64 " (%.9g): its gradient is %.9g, by differences %.9g", i,
             k, x, analytic, numeric);
    return TSR_OK;
}

static tsr_status check_all(checking *c)
{
    for (int i = 0; i < c->n; i++)
        TSRI_TRY(feed(c, i));
    TSRI_TRY(tsr_run(c->plan));
    for (int i = 0; i < c->n && is_here(c); i++) {
        char name[32];
        snprintf(name, sizeof name, "dx%d", i);
        TSRI_TRY(tsr_fetch(c->plan, name, c->dx[i],
                           (size_t)tsr_dims_count(c->dims[i]) * sizeof **c->dx));
    }
    for (int i = 0; i < c->n; i++) {
        for (int64_t k = 0; k < tsr_dims_count(c->dims[i]); k++)
            TSRI_TRY(check_element(c, i, k));
        TSRI_TRY(feed(c, i));
    }
    return c->excess > 1 ? tsri_fail(TSR_ERR_MISMATCH, "%s: %s", who, c->text) : TSR_OK;
}

static tsr_status read_options(checking *c, const tsr_check_opts *opts)
{
    TSRI_TRY(tsri_opts_read(&c->o, sizeof c->o, opts, who));
    if (!(c->o.eps > 0) || !(c->o.atol >= 0) || !(c->o.rtol >= 0) || !(c->o.low <= c->o.high))
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: eps %g must be above 0, atol %g and rtol %g not negative, low %g not "
                         "above high %g",
                         who, c->o.eps, c->o.atol, c->o.rtol, c->o.low, c->o.high);
    if (!c->o.placement)
        c->o.placement = tsr_placement_parse(c->w, "cpu");
    TSRI_NEED(c->o.placement);
    return tsri_live_check(c->o.placement, TSRI_LIVE_PLACEMENT, who);
}

tsr_status tsr_check_gradients(tsr_world *world, tsr_check_fn *fn, void *arg, int n,
                               const tsr_dims *dims, const tsr_check_opts *opts, double *out_worst)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, who));
    if (!world || !fn || n < 1 || n > MOST_INPUTS || !dims)
        return tsri_fail(TSR_ERR_INVALID, "%s: %s", who,
                         !world            ? "the world is NULL"
                         : !fn             ? "the function is NULL"
                         : n < 1           ? "there are no inputs"
                         : n > MOST_INPUTS ? "there are more than 64 inputs"
                                           : "dims is NULL");
    for (int i = 0; i < n; i++)
        if (tsr_dims_count(dims[i]) < 0)
            return tsri_fail(TSR_ERR_INVALID, "%s: dims[%d] are none", who, i);
    checking c = {.w = world, .o = *TSR_CHECK_OPTS(), .n = n, .dims = dims};
    TSRI_TRY(read_options(&c, opts));
    tsri_pool_init(&c.pool, &world->mem);
    tsr_status status = make_inputs(&c);
    if (status == TSR_OK)
        status = declare(&c, fn, arg);
    if (status == TSR_OK)
        status = check_all(&c);
    if (out_worst)
        *out_worst = c.worst;
    tsr_plan_destroy(c.plan);
    tsr_graph_destroy(c.g);
    tsri_pool_finish(&c.pool);
    return status;
}
