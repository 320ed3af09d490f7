/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers of a program's own: their definition, and the update that their function declares. */
#include "src/optim/own.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/graph/variable.h"

_Static_assert((int)TSR_UPDATE_STATES == (int)TSRI_UPDATE_STATES, "states have room");
_Static_assert(TSRI_HYPER_OWN + TSR_UPDATE_NUMBERS <= TSRI_HYPER_STEP, "so have numbers");

/* --- definitions ------------------------------------------------------------------------------ */
static bool is_word(const char *name)
{
    size_t n = 0;
    for (; isalnum((unsigned char)name[n]) || name[n] == '_'; n++)
        ;
    return n > 0 && n < 48 && !name[n] && !isdigit((unsigned char)name[0]);
}

static tsr_status check_numbers(const tsr_optimizer_def *d)
{
    for (int i = 0; i < TSR_UPDATE_NUMBERS && d->numbers[i].name; i++) {
        const tsr_op_option *n = &d->numbers[i];
        if (!is_word(n->name))
            return tsri_fail(TSR_ERR_INVALID,
                             "tsr_optimizer_define: optimizer '%s': number %d: the name '%.60s' is "
                             "no word",
                             d->name, i, n->name);
        if (!(n->least <= n->value && n->value <= n->most))
            return tsri_fail(TSR_ERR_INVALID,
                             "tsr_optimizer_define: optimizer '%s': number '%s': the default %g is "
                             "not in [%g, %g]",
                             d->name, n->name, n->value, n->least, n->most);
    }
    return TSR_OK;
}

static tsr_status check_def(tsr_world *world, const tsr_optimizer_def *d)
{
    if (!d->name || !is_word(d->name))
        return tsri_fail(
            TSR_ERR_INVALID,
            "tsr_optimizer_define: the name %s%.60s%s; letters, digits and '_' make one "
            "of at most 47",
            d->name ? "is '" : "is NULL", d->name ? d->name : "", d->name ? "'" : "");
    if (tsri_own_optimizer_find(world, d->name))
        return tsri_fail(TSR_ERR_INVALID, "tsr_optimizer_define: optimizer '%s' is defined already",
                         d->name);
    if (!d->update)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_optimizer_define: optimizer '%s': it has no update function",
                         d->name);
    for (int i = 0; i < TSR_UPDATE_STATES && d->states[i]; i++)
        if (!is_word(d->states[i]) || !strcmp(d->states[i], "gradient"))
            return tsri_fail(
                TSR_ERR_INVALID,
                "tsr_optimizer_define: optimizer '%s': state %d can't be named '%.60s'", d->name, i,
                d->states[i]);
    return check_numbers(d);
}

static bool copy_texts(tsri_own_optimizer *own, const tsr_optimizer_def *d)
{
    bool ok = (own->def.name = tsri_pool_strdup(&own->pool, d->name)) != NULL;
    for (own->nstates = 0; own->nstates < TSR_UPDATE_STATES && d->states[own->nstates];
         own->nstates++)
        ok &= (own->def.states[own->nstates] =
                   tsri_pool_strdup(&own->pool, d->states[own->nstates])) != NULL;
    for (own->nnumbers = 0; own->nnumbers < TSR_UPDATE_NUMBERS && d->numbers[own->nnumbers].name;
         own->nnumbers++)
        ok &= (own->def.numbers[own->nnumbers].name =
                   tsri_pool_strdup(&own->pool, d->numbers[own->nnumbers].name)) != NULL;
    return ok;
}

static void destroy_own(void *object)
{
    tsri_own_optimizer *own = object;
    tsri_own_optimizer **at = &own->world->own_optimizers;
    while (*at && *at != own)
        at = &(*at)->next;
    if (*at)
        *at = own->next;
    tsri_world_disown(&own->owned);
    tsri_pool_finish(&own->pool);
    tsri_mem_free(own);
}

tsri_own_optimizer *tsri_own_optimizer_find(const tsr_world *world, const char *name)
{
    tsri_own_optimizer *own = world->own_optimizers;
    while (own && strcmp(own->def.name, name) != 0)
        own = own->next;
    return own;
}

tsr_status tsr_optimizer_define(tsr_world *world, const tsr_optimizer_def *def)
{
    tsr_optimizer_def d = *TSR_OPTIMIZER_DEF();
    if (!world || !def)
        return tsri_fail(TSR_ERR_INVALID, "tsr_optimizer_define: the %s is NULL%s",
                         world ? "definition" : "world", world ? "" : tsri_error_cause());
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    TSRI_TRY(tsri_opts_read(&d, sizeof d, def, __func__));
    TSRI_TRY(check_def(world, &d));
    tsri_own_optimizer *own = tsri_mem_alloc(&world->mem, sizeof *own);
    TSRI_NEED(own);
    own->world = world;
    own->def = d;
    tsri_pool_init(&own->pool, &world->mem);
    if (!copy_texts(own, &d)) {
        tsri_pool_finish(&own->pool);
        tsri_mem_free(own);
        return TSR_ERR_NO_MEMORY;
    }
    own->next = world->own_optimizers;
    world->own_optimizers = own;
    tsri_world_own_last(world, &own->owned, own, destroy_own);
    return TSR_OK;
}

/* --- updates ---------------------------------------------------------------------------------- */
int tsri_own_shared(const tsri_own_optimizer *own, int i)
{
    static const tsri_number shared[] = {TSRI_WEIGHT_DECAY, TSRI_MOMENTUM, TSRI_BETA1, TSRI_BETA2,
                                         TSRI_EPS};
    for (size_t k = 0; k < sizeof shared / sizeof *shared; k++)
        if (!strcmp(own->def.numbers[i].name, tsri_number_name(shared[k])))
            return (int)shared[k];
    return -1;
}

tsr_status tsri_own_check(const tsri_own_optimizer *own, const char *who, int i, double value)
{
    const tsr_op_option *n = &own->def.numbers[i];
    if (n->least <= value && value <= n->most)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "%s: %s of '%s' is %g; legal are %g to %g", who, n->name,
                     own->def.name, value, n->least, n->most);
}

void tsri_own_hyper(const tsr_optimizer *o, const tsri_optim_group *group, double step, double *h)
{
    for (int i = 0; i < o->own->nnumbers; i++) {
        const int shared = tsri_own_shared(o->own, i);
        h[TSRI_HYPER_OWN + i] =
            shared < 0 ? o->own_numbers[i] : tsri_optim_number(o, group, (tsri_number)shared);
    }
    h[TSRI_HYPER_STEP] = step;
}

/* Checks what the function has set for `old`. */
static bool want_new(const tsri_ctx *c, const tsr_optimizer *o, const char *what,
                     const tsr_tensor *next, const tsr_tensor *old)
{
    const char *name = o->own->def.name;
    if (c->g->failure.status != TSR_OK)
        return false;
    if (!next)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "optimizer '%s' sets no new %s", name, what);
    if (tsri_live_check(next, TSRI_LIVE_TENSOR, c->op) != TSR_OK)
        return tsri_op_refuse_last(c, TSR_ERR_INVALID);
    if (next->graph == c->g && next->dtype == old->dtype && next->placement == old->placement &&
        tsr_dims_equal(next->shape, old->shape))
        return true;
    return tsri_op_refuse(
        c, TSR_ERR_SHAPE,
        "optimizer '%s' sets a new %s that is %s %s on %s; it must be %s %s on %s", name, what,
        tsr_dtype_name(next->dtype), tsri_op_dims(c, next), tsr_placement_text(next->placement),
        tsr_dtype_name(old->dtype), tsri_op_dims(c, old), tsr_placement_text(old->placement));
}

tsri_op *tsri_own_update(const tsri_ctx *c, tsr_optimizer *o, const tsri_optim_slot *slot,
                         tsr_update *u, bool scaled, tsri_own_number_fn *number, void *arg)
{
    const tsri_own_optimizer *own = o->own;
    tsr_graph *g = c->g;
    const char *file = c->loc.file;
    const int line = c->loc.line;
    u->lr = number(arg, TSRI_HYPER_LR);
    u->step = number(arg, TSRI_HYPER_STEP);
    if (scaled)
        u->grad = tsr_mul_at(u->grad, number(arg, TSRI_HYPER_SCALE), file, line);
    for (int i = 0; i < own->nnumbers; i++)
        u->number[i] = number(arg, TSRI_HYPER_OWN + i);
    tsr_tensor *skip = number(arg, TSRI_HYPER_SKIP);
    if (g->failure.status != TSR_OK)
        return NULL;
    tsr_tensor *const old[] = {u->param, u->state[0], u->state[1], u->state[2]};
    own->def.update(u);
    tsr_tensor *skips = tsr_not_equal_at(
        skip, tsri_make_fill(g, skip->shape, skip->dtype, skip->placement, 0, c->loc), file, line);
    tsr_tensor *const next[] = {u->new_param, u->new_state[0], u->new_state[1], u->new_state[2]};
    tsri_op *first = NULL;
    for (int i = own->nstates; i >= 0; i--) {
        if (!want_new(c, o, i ? own->def.states[i - 1] : "parameter", next[i], old[i]))
            return NULL;
        tsr_tensor *kept = tsr_where_at(skips, old[i], next[i], file, line);
        first = kept->failed
                    ? NULL
                    : tsri_graph_add_all_like(TSRI_OP_ASSIGN, NULL, 1, &kept, 1, old[i], c->loc);
        if (!first)
            return NULL;
        first->backward = true;
        if (i)
            tsri_graph_write(g, first, 0, slot->state[i - 1]);
    }
    return first;
}
