/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of which updates are declared: their numbers, states and ops (update.h). */
#include <stdio.h>

#include "src/graph/variable.h"
#include "src/optim/update.h"

/* --- numbers ---------------------------------------------------------------------------------- */
/* The variable with the numbers of a class of parameters on a placement. */
static tsr_status find_hyper(tsr_optimizer *o, int class, const tsr_placement *p,
                             tsri_hyper_part part, tsri_hyper **out_hyper)
{
    const tsr_dims dims = part == TSRI_HYPER_NORM ? TSR_SCALAR : TSR_DIMS(TSRI_HYPER_COUNT);
    for (int i = 0; i < o->nhypers; i++) {
        *out_hyper = &o->hypers[i];
        if ((*out_hyper)->placement == p && (*out_hyper)->class == class &&
            (*out_hyper)->part == part)
            return TSR_OK;
    }
    const size_t n = (size_t)o->nhypers + 1;
    tsri_hyper *hypers = tsri_mem_realloc(&o->world->mem, o->hypers, n * sizeof *hypers);
    TSRI_NEED(hypers);
    o->hypers = hypers;
    *out_hyper = &hypers[o->nhypers];
    **out_hyper = (tsri_hyper){.placement = p, .class = class, .part = part};
    char name[64];
    snprintf(name, sizeof name, "%s.hyper%d", o->name, o->nhypers);
    TSRI_TRY(tsri_variable_create(o->world, name, p, TSR_F64, dims,
                                  tsri_sbp_b(tsr_placement_ndim(p)), (tsr_init){0},
                                  &(*out_hyper)->variable));
    if (part != TSRI_HYPER_NORM)
        (*out_hyper)->variable->leaves_out = TSRI_HYPER_SKIP + 1;
    o->nhypers++;
    return TSR_OK;
}

/* A scalar as one of the numbers: f64 (1), on their placement. */
static tsr_tensor *as_number(const tsri_applying *a, tsr_tensor *x, const tsr_tensor *numbers)
{
    const char *file = a->c.loc.file;
    const int line = a->c.loc.line;
    if (!x->failed && x->placement != numbers->placement)
        x = tsr_to_global_at(x, numbers->placement, TSR_AUTO, file, line);
    return tsr_reshape_at(tsr_cast_at(x, TSR_F64, file, line), TSR_DIMS(1), file, line);
}

tsri_update_rest tsri_update_parts(const tsri_applying *a, tsr_tensor *numbers)
{
    enum { SKIP = TSRI_HYPER_SKIP, SCALE = TSRI_HYPER_SCALE, REST = TSRI_HYPER_SCALE + 1 };
    _Static_assert((int)SCALE == (int)SKIP + 1, "they are neighbours");
    const char *file = a->c.loc.file;
    const int line = a->c.loc.line;
    tsri_update_rest rest = {tsr_narrow_at(numbers, 0, 0, SKIP, file, line),
                             tsr_narrow_at(numbers, 0, SKIP, 1, file, line),
                             tsr_narrow_at(numbers, 0, REST, TSRI_HYPER_COUNT - REST, file, line),
                             numbers};
    if (a->found)
        rest.skip = tsr_maximum_at(rest.skip, as_number(a, a->found, numbers), file, line);
    return rest;
}

tsr_tensor *tsri_update_join(const tsri_applying *a, const tsri_update_rest *rest,
                             tsr_tensor *scale)
{
    const char *file = a->c.loc.file;
    const int line = a->c.loc.line;
    tsr_tensor *parts[] = {rest->first, rest->skip,
                           scale ? as_number(a, scale, rest->whole)
                                 : tsr_narrow_at(rest->whole, 0, TSRI_HYPER_SCALE, 1, file, line),
                           rest->last};
    return tsr_concat_at(4, parts, 0, file, line);
}

tsr_tensor *tsri_update_numbers(tsri_applying *a, const tsri_optim_slot *slot, tsri_hyper_part part)
{
    tsr_graph *g = a->c.g;
    tsri_hyper *hyper;
    tsr_status status = find_hyper(a->o, slot->class, slot->param->placement, part, &hyper);
    if (status != TSR_OK)
        return tsri_graph_fail_last(g, status);
    tsr_tensor *numbers = tsri_graph_read(g, hyper->variable, a->c.loc);
    if ((!a->scale && !a->found) || part != TSRI_HYPER_UPDATE || numbers->failed)
        return numbers;
    if (!hyper->scaled) {
        const tsri_update_rest rest = tsri_update_parts(a, numbers);
        hyper->scaled = tsri_update_join(a, &rest, a->scale);
    }
    return hyper->scaled;
}

tsr_tensor *tsri_update_norm(const tsri_ctx *c, tsr_optimizer *o, tsr_tensor *norm)
{
    tsri_hyper *hyper;
    if (norm->failed)
        return norm;
    const tsr_status status = find_hyper(o, 0, norm->placement, TSRI_HYPER_NORM, &hyper);
    if (status != TSR_OK)
        return tsri_graph_fail_last(c->g, status);
    const char *file = c->loc.file;
    const int line = c->loc.line;
    const tsri_condition *only_if = c->g->now.only_if;
    tsr_assign_at(hyper->variable, norm, file, line);
    c->g->now.only_if = NULL;
    tsr_tensor *kept = tsri_graph_current(c->g, hyper->variable, c->loc);
    tsr_tensor *zero = tsri_make_fill(c->g, TSR_SCALAR, TSR_F64, norm->placement, 0, c->loc);
    norm = tsr_where_at(tsr_greater_at(zero, kept, file, line), tsr_sqrt_at(kept, file, line), kept,
                        file, line);
    c->g->now.only_if = only_if;
    return norm;
}

/* --- ops -------------------------------------------------------------------------------------- */
tsr_tensor *tsri_update_state(tsri_applying *a, const tsri_optim_slot *slot, int i)
{
    tsr_variable *s = slot->state[i];
    /* The parameter's signature may have been fixed since the state was declared. */
    if (s && !s->ready)
        s->sbp = tsri_optim_state_sbp(a->o, slot);
    return s ? tsri_graph_current(a->c.g, s, a->c.loc) : NULL;
}

tsri_op *tsri_update_add(tsri_applying *a, tsri_op_kind kind, const tsri_optim_slot *slot,
                         tsr_tensor *value, tsr_tensor *grad, tsr_tensor *numbers)
{
    tsr_optimizer *o = a->o;
    tsr_graph *g = a->c.g;
    const tsri_attrs attrs = {.update.has = o->has};
    tsr_tensor *in[TSRI_UPDATE_STATES + 3] = {value};
    tsr_variable *writes[TSRI_UPDATE_STATES + 1];
    int n = 1;
    for (int j = 0; j < TSRI_UPDATE_STATES; j++) {
        tsr_variable *s = slot->state[j];
        if (!s)
            continue;
        in[n] = tsri_update_state(a, slot, j);
        writes[n++] = s;
    }
    const int nout = n;
    in[n++] = grad;
    in[n++] = numbers;
    tsri_op *op = tsri_graph_add_all_like(kind, &attrs, n, in, nout, value, a->c.loc);
    if (!op)
        return NULL;
    op->backward = true;
    for (int i = 1; i < nout; i++)
        tsri_graph_write(g, op, i, writes[i]);
    return op;
}

tsr_tensor *tsri_update_number(const tsri_applying *a, tsr_tensor *numbers, int which,
                               tsr_dtype dtype)
{
    const char *file = a->c.loc.file;
    const int line = a->c.loc.line;
    tsr_tensor *one =
        tsr_reshape_at(tsr_narrow_at(numbers, 0, which, 1, file, line), TSR_SCALAR, file, line);
    return tsr_cast_at(one, dtype, file, line);
}
