/* SPDX-License-Identifier: Apache-2.0 */
/* A tsr_grad_scaler in graphs: losses times the scale, gradients over it, whether they are finite.
 */
#include <stdio.h>

#include "src/core/live.h"
#include "src/graph/variable.h"
#include "src/optim/clip.h"
#include "src/optim/optim.h"
#include "src/optim/scaler.h"

/* --- before a run ----------------------------------------------------------------------------- */
static double inverse_of(double scale)
{
    return (double)(float)(1 / scale);
}

static tsr_status before_run(void *arg)
{
    tsr_grad_scaler *s = arg;
    TSRI_TRY(tsri_scaler_settle(s));
    const double scale = s->now.scale, inverse = inverse_of(scale);
    for (int i = 0; i < s->nplaces; i++) {
        TSRI_TRY(tsri_variable_write(s->places[i].scale, 0, &scale, sizeof scale));
        TSRI_TRY(tsri_variable_write(s->places[i].inverse, 0, &inverse, sizeof inverse));
    }
    return TSR_OK;
}

static void describe(const void *scaler, FILE *f)
{
    const tsr_grad_scaler *s = scaler;
    fprintf(f, "tsr_grad_scaler\n");
    tsri_put_number(f, "scale", s->now.scale);
    tsri_put_number(f, "growth_factor", s->now.growth_factor);
    tsri_put_number(f, "backoff_factor", s->now.backoff_factor);
    fprintf(f, "growth_interval: %lld\ngrowth_tracker: %lld\n", (long long)s->now.growth_interval,
            (long long)s->now.growth_tracker);
}

static void add_hook(tsr_graph *g, tsr_grad_scaler *s)
{
    for (int i = 0; i < g->nhooks; i++)
        if (g->hooks[i].fn == before_run && g->hooks[i].arg == s)
            return;
    tsri_graph_add_hook(g, (tsri_hook){before_run, describe, s});
}

/* --- checks ----------------------------------------------------------------------------------- */
bool tsri_want_scaler(const tsri_ctx *c, const tsr_grad_scaler *s)
{
    if (tsri_live_check(s, TSRI_LIVE_GRAD_SCALER, c->op) != TSR_OK)
        return tsri_op_refuse_last(c, TSR_ERR_INVALID);
    return !s || s->world == c->g->world ||
           tsri_op_refuse(c, TSR_ERR_INVALID, "the scaler belongs to another world");
}

bool tsri_want_scaled(const tsri_ctx *c, tsr_grad_scaler *s, int64_t accumulate)
{
    if (!tsri_scaler_works(s))
        return true;
    if (s->accumulate && s->accumulate != accumulate)
        return tsri_op_refuse(c, TSR_ERR_STATE,
                              "an optimizer of this scaler updates once in %lld runs here, and one "
                              "once in %lld elsewhere; the scale changes between updates of both",
                              (long long)accumulate, (long long)s->accumulate);
    s->accumulate = accumulate;
    return true;
}

/* --- the numbers ------------------------------------------------------------------------------ */
static tsr_status make_number(tsr_grad_scaler *s, const char *name, const tsr_placement *p,
                              double value, tsr_variable **out)
{
    const tsr_init init = {.kind = TSR_INIT_CONSTANT, .a = value};
    return tsri_variable_create(s->world, name, p, TSR_F64, TSR_SCALAR,
                                tsri_sbp_b(tsr_placement_ndim(p)), init, out);
}

/* The variables on a placement, which are made where there are none. */
static tsr_status find_place(tsr_grad_scaler *s, const tsr_placement *p, tsri_scaler_place *out)
{
    for (int i = 0; i < s->nplaces; i++)
        if (s->places[i].placement == p) {
            *out = s->places[i];
            return TSR_OK;
        }
    const size_t n = (size_t)s->nplaces + 1;
    tsri_scaler_place *places = tsri_mem_realloc(&s->world->mem, s->places, n * sizeof *places);
    TSRI_NEED(places);
    s->places = places;
    tsri_scaler_place made = {.placement = p};
    tsr_status status = make_number(s, "grad_scaler.scale", p, s->now.scale, &made.scale);
    if (status == TSR_OK)
        status = make_number(s, "grad_scaler.inverse", p, inverse_of(s->now.scale), &made.inverse);
    if (status != TSR_OK) {
        tsri_variable_destroy(made.scale);
        return status;
    }
    *out = places[s->nplaces++] = made;
    return TSR_OK;
}

tsr_tensor *tsri_scaler_inverse(const tsri_ctx *c, tsr_grad_scaler *s, const tsr_placement *p)
{
    tsri_scaler_place at;
    const tsr_status status = find_place(s, p, &at);
    return status == TSR_OK ? tsri_graph_read(c->g, at.inverse, c->loc)
                            : tsri_graph_fail_last(c->g, status);
}

tsr_tensor *tsri_scaler_unscaled(const tsri_ctx *c, tsr_tensor *x, tsr_tensor *inverse)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    tsr_tensor *factor = tsr_cast_at(inverse, x->dtype, file, line);
    if (!factor->failed && factor->placement != x->placement)
        factor = tsr_to_global_at(factor, x->placement, TSR_AUTO, file, line);
    return tsr_mul_at(x, factor, file, line);
}

tsr_tensor *tsri_scale_loss(const tsri_ctx *c, tsr_grad_scaler *s, tsr_tensor *x)
{
    tsri_scaler_place at;
    if (!tsri_scaler_works(s) || x->failed)
        return x;
    const tsr_status status = find_place(s, x->placement, &at);
    if (status != TSR_OK)
        return tsri_graph_fail_last(c->g, status);
    const char *file = c->loc.file;
    const int line = c->loc.line;
    if (tsr_dtype_size(x->dtype) < tsr_dtype_size(TSR_F32))
        x = tsr_cast_at(x, TSR_F32, file, line);
    tsr_tensor *scale = tsr_cast_at(tsri_graph_read(c->g, at.scale, c->loc), x->dtype, file, line);
    add_hook(c->g, s);
    return tsr_mul_at(x, scale, file, line);
}

/* --- whether gradients are finite ------------------------------------------------------------- */
/* A placement of all ranks, so that each of them learns what is found: p, where it has them all, or
 * in a local graph. */
static const tsr_placement *everyone(const tsr_graph *g, const tsr_placement *p)
{
    char text[32];
    if (g->local || tsr_placement_nranks(p) == g->world->nranks)
        return p;
    snprintf(text, sizeof text, "%s:[0..%d]", tsr_device_name(tsr_placement_device(p)),
             g->world->nranks - 1);
    return tsr_placement_parse(g->world, text);
}

/* Returns the tensor that a gradient was cast from, where that is as finite in fewer bytes; else
 * the gradient. */
static tsr_tensor *before_widening(tsr_tensor *x)
{
    const tsri_op *op = x->op;
    return op->kind == TSRI_OP_CAST && tsri_is_float(op->in[0]->dtype) &&
                   tsr_dtype_size(op->in[0]->dtype) < tsr_dtype_size(x->dtype)
               ? op->in[0]
               : x;
}

/* Infinity where any of n gradients on placement p, or an addend of it, has an element that is not
 * finite, else 0. Where they are split it is P(max), which is reduced once for all of them. */
static tsr_tensor *find_on(const tsri_ctx *c, const tsr_placement *p, bool of_addends, int n,
                           tsr_tensor *const *grads)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    int m = 0;
    tsr_tensor **part = tsri_pool_alloc(&c->g->pool, (size_t)n * sizeof *part);
    if (!part)
        return tsri_graph_fail_last(c->g, TSR_ERR_NO_MEMORY);
    for (int i = 0; i < n; i++)
        if (grads[i] && grads[i]->placement == p)
            part[m++] = tsr_cast_at(tsri_make_fault(before_widening(grads[i]), of_addends, c->loc),
                                    TSR_F32, file, line);
    tsr_tensor *all = tsr_concat_at(m, part, 0, file, line);
    return all->failed ? all : tsri_make_reduce(all, TSR_REDUCE_MAX, 1, false, 1, c->loc);
}

static bool is_first_on(int i, tsr_tensor *const *grads)
{
    for (int j = 0; j < i; j++)
        if (grads[j] && grads[j]->placement == grads[i]->placement)
            return false;
    return true;
}

/* 1 where any gradient, or an addend of it, is not finite, else 0, on `all`. */
static tsr_tensor *find_in(const tsri_ctx *c, const tsr_placement *all, bool of_addends, int n,
                           tsr_tensor *const *grads)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    const tsr_sbp b = tsri_sbp_b(tsr_placement_ndim(all));
    tsr_tensor *top = NULL;
    for (int i = 0; i < n; i++) {
        if (!grads[i] || !is_first_on(i, grads))
            continue;
        tsr_tensor *here = find_on(c, grads[i]->placement, of_addends, n, grads);
        here = tsr_to_global_at(here, all, b, file, line);
        top = top ? tsr_maximum_at(top, here, file, line) : here;
    }
    tsr_tensor *zero = tsri_make_fill(c->g, TSR_SCALAR, TSR_F32, all, 0, c->loc);
    return tsr_cast_at(tsr_greater_at(top, zero, file, line), TSR_F32, file, line);
}

static tsr_status make_flag(tsr_grad_scaler *s, const char *name, const tsr_placement *p,
                            tsr_variable **out)
{
    return tsri_variable_create(s->world, name, p, TSR_F32, TSR_SCALAR,
                                tsri_sbp_b(tsr_placement_ndim(p)), (tsr_init){0}, out);
}

static tsr_status find_flag(tsr_grad_scaler *s, tsr_optimizer *o, const tsr_placement *p,
                            tsri_scaler_flag **out_flag)
{
    for (*out_flag = s->flags; *out_flag; *out_flag = (*out_flag)->next)
        if ((*out_flag)->optimizer == o && (*out_flag)->placement == p)
            return TSR_OK;
    tsri_scaler_flag *f = tsri_mem_alloc(&s->world->mem, sizeof *f);
    TSRI_NEED(f);
    *f = (tsri_scaler_flag){.next = s->flags, .scaler = s, .optimizer = o, .placement = p};
    const tsr_status status = make_flag(s, "grad_scaler.found_inf", p, &f->found);
    if (status != TSR_OK) {
        tsri_mem_free(f);
        return status;
    }
    *out_flag = s->flags = f;
    return TSR_OK;
}

const tsri_graph_scaled *tsri_scaler_found(const tsr_graph *g, const tsr_optimizer *o)
{
    for (int i = 0; i < g->minimized.nscaled; i++)
        if (g->minimized.scaled[i].optimizer == o)
            return &g->minimized.scaled[i];
    return NULL;
}

/* Checks that gradients can be divided by a scale, and that there is one. */
static bool want_gradients(const tsri_ctx *c, const tsr_optimizer *o, int n,
                           tsr_tensor *const *grads, const tsr_placement **out_placement)
{
    *out_placement = NULL;
    if (tsri_scaler_found(c->g, o))
        return tsri_op_refuse(c, TSR_ERR_STATE,
                              "the gradients of this optimizer are unscaled already in this graph");
    for (int i = 0; i < n; i++) {
        if (!grads[i])
            continue;
        if (grads[i]->failed)
            return false;
        if (grads[i]->dtype == TSR_F16)
            return tsri_op_refuse(c, TSR_ERR_DTYPE,
                                  "gradient %d is f16, and would lose its digits where it is "
                                  "divided by the scale; parameters are f32 (tsr_autocast casts "
                                  "them where they are used)",
                                  i);
        *out_placement = *out_placement ? *out_placement : grads[i]->placement;
    }
    return *out_placement || tsri_op_refuse(c, TSR_ERR_INVALID, "there is no gradient to unscale");
}

/* Finds the flag of an optimizer whose gradients are on p, and the placement of all ranks. */
static tsr_status find_everyones_flag(const tsri_ctx *c, tsr_grad_scaler *s, tsr_optimizer *o,
                                      const tsr_placement *p, tsri_scaler_flag **out_flag)
{
    const tsr_placement *all = everyone(c->g, p);
    return all ? find_flag(s, o, all, out_flag) : TSR_ERR_PLACEMENT;
}

void tsri_scaler_look(const tsri_ctx *c, tsr_grad_scaler *s, tsr_optimizer *o, int n,
                      tsr_tensor *const *grads)
{
    tsr_graph *g = c->g;
    const char *file = c->loc.file;
    const int line = c->loc.line;
    const tsr_placement *p;
    tsri_scaler_flag *flag;
    if (!want_gradients(c, o, n, grads, &p))
        return;
    tsr_status status = find_everyones_flag(c, s, o, p, &flag);
    if (status == TSR_OK && !flag->found_so_far)
        status = make_flag(s, "grad_scaler.found_inf_so_far", flag->placement, &flag->found_so_far);
    if (status != TSR_OK) {
        tsri_graph_fail_last(g, status);
        return;
    }
    tsr_tensor *found = find_in(c, flag->placement, true, n, grads);
    tsr_tensor *before = tsri_graph_current(g, flag->found_so_far, c->loc);
    if (!found->failed && !before->failed)
        tsr_assign_at(flag->found_so_far, tsr_maximum_at(before, found, file, line), file, line);
}

/* Returns the flag's value for users: in runs without an update it covers the gradients since the
 * last one. */
static tsr_tensor *seen_so_far(const tsri_ctx *c, const tsri_scaler_flag *flag, tsr_tensor *found)
{
    tsr_graph *g = c->g;
    const tsri_condition *only_if = g->now.only_if;
    tsr_assign_at(flag->found, found, c->loc.file, c->loc.line);
    g->now.only_if = NULL;
    tsr_tensor *seen =
        tsr_maximum_at(tsri_graph_current(g, flag->found_so_far, c->loc),
                       tsri_graph_current(g, flag->found, c->loc), c->loc.file, c->loc.line);
    g->now.only_if = only_if;
    return seen;
}

tsr_tensor *tsri_scaler_find(const tsri_ctx *c, tsr_grad_scaler *s, tsr_optimizer *o, int n,
                             tsr_tensor *const *grads)
{
    tsr_graph *g = c->g;
    const tsr_placement *p;
    tsri_scaler_flag *flag;
    if (!want_gradients(c, o, n, grads, &p))
        return NULL;
    const tsr_status status = find_everyones_flag(c, s, o, p, &flag);
    if (status != TSR_OK) {
        tsri_graph_fail_last(g, status);
        return NULL;
    }
    tsr_tensor *found = find_in(c, flag->placement, false, n, grads);
    tsr_tensor *seen = g->now.only_if && !found->failed ? seen_so_far(c, flag, found) : found;
    if (seen->failed)
        return NULL;
    if (!TSRI_PUSH(&g->pool, g->minimized.scaled, g->minimized.nscaled, g->minimized.cscaled)) {
        tsri_graph_fail_last(g, TSR_ERR_NO_MEMORY);
        return NULL;
    }
    g->minimized.scaled[g->minimized.nscaled++] = (tsri_graph_scaled){o, found, seen, flag};
    return found;
}

/* --- the user's calls ------------------------------------------------------------------------- */
tsr_tensor *tsr_scale_loss_at(tsr_grad_scaler *s, tsr_tensor *x, const char *file, int line)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, "scale_loss", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_scaler(&c, s))
        return c.failed;
    if (!s)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "the scaler is NULL%s", tsri_error_cause());
    return tsri_as_result(tsri_scale_loss(&c, s, x), x, c.loc);
}

void tsr_unscale_at(tsr_grad_scaler *s, tsr_optimizer *o, int n, tsr_tensor **grads,
                    const char *file, int line)
{
    tsri_ctx c = {.loc = {file, line}, .op = "unscale"};
    if (!tsri_begin_tensors(&c, n, grads) || !tsri_want_scaler(&c, s))
        return;
    if (!s || !o) {
        tsri_op_refuse(&c, TSR_ERR_INVALID, "the %s is NULL%s", s ? "optimizer" : "scaler",
                       tsri_error_cause());
        return;
    }
    if (tsri_live_check(o, TSRI_LIVE_OPTIMIZER, c.op) != TSR_OK) {
        tsri_op_refuse_last(&c, TSR_ERR_INVALID);
        return;
    }
    if (!s->enabled || !tsri_want_scaled(&c, s, 1) || !tsri_scaler_find(&c, s, o, n, grads))
        return;
    for (int i = 0; i < n; i++)
        if (grads[i])
            grads[i] =
                tsri_scaler_unscaled(&c, grads[i], tsri_scaler_inverse(&c, s, grads[i]->placement));
}
