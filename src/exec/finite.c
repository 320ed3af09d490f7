/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at losses. A loss is read when the step that makes it is done: one comparison. Only if it
 * is not finite, all tensors are read that this rank still holds then, which are parameters,
 * inputs, and what the backward pass needs; updates have not begun.
 */
#include "src/exec/finite.h"

#include <stdio.h>
#include <string.h>

#include "src/exec/watch.h"
#include "src/plan/pass/pass.h"

struct tsri_finite {
    bool has_warned;
    int *loss; /* by step: the value that it completes, or -1 */
};

/* The contents of a root value's bytes when a step is done. */
typedef struct held {
    int value;             /* that was written there last; -1: nothing is held */
    int order;             /* 0: since before the run; else 1 + the entry that has made it */
    const tsri_item *item; /* that has made it; NULL: an input or a variable */
    int64_t nnan, ninf;
    bool is_unseen; /* what a chain has made it from could not be computed again */
} held;

typedef struct search {
    const tsr_plan *plan;
    held *held;  /* by root value */
    int nearest; /* entries before this one are done */
} search;

enum { TEXT = 400 };

/* --- numbers ---------------------------------------------------------------------------------- */
/* Masks of the exponent and the fraction of a floating-point dtype; 0 for other dtypes. */
typedef struct float_bits {
    uint64_t exponent, fraction;
} float_bits;

static float_bits bits_of(tsr_dtype dtype)
{
    const tsri_dtype_facts *f = tsri_dtype_of(dtype);
    const uint64_t fraction = (UINT64_C(1) << f->fraction) - 1;
    return (float_bits){((UINT64_C(1) << f->exponent) - 1) << f->fraction, fraction};
}

static void count(tsr_dtype dtype, const void *data, size_t bytes, int64_t *nnan, int64_t *ninf)
{
    const float_bits b = bits_of(dtype);
    size_t size = tsr_dtype_size(dtype);
    *nnan = *ninf = 0;
    for (size_t at = 0; b.exponent && at < bytes; at += size) {
        uint64_t word = 0; /* its low bytes stand first on the machines that Tessera runs on */
        memcpy(&word, (const char *)data + at, size);
        if ((word & b.exponent) != b.exponent)
            continue;
        *nnan += (word & b.fraction) != 0;
        *ninf += (word & b.fraction) == 0;
    }
}

/* --- what is held ----------------------------------------------------------------------------- */
static bool on_host(const tsri_value *v)
{
    return tsri_placement_can(v->placement, TSRI_CAN_HOST_MEMORY);
}

/* Follows the entries up to the step: the last item that wrote to a root's bytes. Views write
 * nothing and have no entries. */
static void follow(search *s)
{
    const tsr_plan *plan = s->plan;
    for (int v = 0; v < plan->ir.nvalues; v++) {
        const tsri_value *value = &plan->ir.values[v];
        bool is_input = value->storage == TSRI_STORAGE_PORT && value->port >= 0 &&
                        plan->ir.ports[value->port].info.is_input;
        bool is_variable = value->storage == TSRI_STORAGE_VARIABLE && value->source;
        s->held[v] = (held){.value = is_input || is_variable ? v : -1};
    }
    for (int e = 0; e < s->nearest; e++) {
        const tsri_item *it = &plan->ir.items[plan->ir.entries[e].item];
        tsri_phase phase = plan->ir.entries[e].phase;
        for (int j = 0; j < it->nout && phase != TSRI_PHASE_RELEASE; j++)
            s->held[tsri_ir_root(&plan->ir, it->out[j])] = (held){
                .value = phase == TSRI_PHASE_START ? -1 : it->out[j], .order = e + 1, .item = it};
    }
    for (int v = 0; v < plan->ir.nvalues; v++) {
        const tsri_value *value = &plan->ir.values[v];
        held *h = &s->held[v];
        if (value->storage == TSRI_STORAGE_ALIAS || !value->ptr || !on_host(value) ||
            (value->storage == TSRI_STORAGE_ARENA &&
             (s->nearest <= value->first || s->nearest - 1 > value->last)))
            h->value = -1;
        if (h->value >= 0)
            count(value->dtype, tsri_plan_value_now(plan, v), value->bytes, &h->nnan, &h->ninf);
    }
}

/* Which of the values that are held was made first, of those with NaN, or with infinities; NULL:
 * none. Among several that one item has made, or that were there before, it is the plan's first. */
static const held *first_with(const search *s, bool nan)
{
    const held *first = NULL;
    for (int v = 0; v < s->plan->ir.nvalues; v++) {
        const held *h = &s->held[v];
        if (h->value >= 0 && (nan ? h->nnan : h->ninf) && (!first || h->order < first->order))
            first = h;
    }
    return first;
}

/* Whether all operands of what made it are still held, and whether all of them are finite. */
static void look_at_operands(const search *s, const held *h, bool *are_held, bool *are_finite)
{
    *are_held = *are_finite = true;
    for (int j = 0; h->item && j < h->item->nin; j++) {
        const tsri_value *v = &s->plan->ir.values[h->item->in[j]];
        const held *from = &s->held[tsri_ir_root(&s->plan->ir, h->item->in[j])];
        bool is_held = from->value >= 0 && from->order < h->order; /* it may be in place */
        *are_held &= is_held || !v->ptr;
        *are_finite &= !is_held || (!from->nnan && !from->ninf);
    }
}

/* --- inside chains ---------------------------------------------------------------------------- */
/* A search through a chain: values inside it are stored nowhere, and are computed again, op by op.
 */
typedef struct inside {
    const search *s;
    int begin;   /* the chain's first item */
    void **data; /* by value: what was computed again; NULL: nothing */
} inside;

/* Returns the contents of an operand that was computed again or is held since before the chain;
 * NULL for others. */
static void *operand(const inside *in, int value)
{
    const tsri_value *v = &in->s->plan->ir.values[value];
    const held *h = &in->s->held[tsri_ir_root(&in->s->plan->ir, value)];
    if (in->data[value])
        return in->data[value];
    const bool is_older = !h->item || h->item < &in->s->plan->ir.items[in->begin];
    return h->value >= 0 && is_older ? v->ptr : NULL;
}

/* Runs one item; false: an operand is not at hand, or the item can't be run. */
static bool run_item(inside *in, const tsri_item *it)
{
    const tsr_plan *plan = in->s->plan;
    tsri_mem *mem = &plan->ir.world->mem;
    const tsri_kernel_desc desc = tsri_lower_desc(plan, it);
    void *from[TSRI_KERNEL_MAX_ARGS], *to[TSRI_KERNEL_MAX_ARGS];
    bool ok = !tsri_item_is_update(it);
    for (int j = 0; j < it->nin && ok; j++)
        ok = (from[j] = operand(in, it->in[j])) != NULL;
    for (int j = 0; j < it->nout && ok; j++)
        ok = (to[j] = in->data[it->out[j]] =
                  tsri_mem_alloc(mem, plan->ir.values[it->out[j]].bytes + 1)) != NULL;
    tsri_kernel *k = NULL;
    if (!ok || tsri_kernel_create(mem, plan->part[TSRI_TARGET_HOST].device->ops->kernels(), &desc,
                                  &k) != TSR_OK)
        return false;
    const size_t room = (k->scratch_bytes + 127) & ~(size_t)63; /* for its alignment */
    char *scratch = tsri_mem_alloc(mem, room);
    ok = scratch && k->run(k, from, to, scratch + (-(uintptr_t)scratch & 63)) == TSR_OK;
    tsri_mem_free(scratch);
    k->destroy(k);
    return ok;
}

/* Puts into *out, which the chain has made, the first result inside it that has a NaN, or an
 * infinity, too. */
static void look_inside(inside *in, bool nan, held *out)
{
    const tsr_plan *plan = in->s->plan;
    for (int m = in->begin; &plan->ir.items[m] < out->item; m++) {
        const tsri_item *it = &plan->ir.items[m];
        out->is_unseen = !run_item(in, it);
        if (out->is_unseen)
            return;
        for (int j = 0; j < it->nout; j++) {
            const tsri_value *v = &plan->ir.values[it->out[j]];
            int64_t nnan, ninf;
            count(v->dtype, in->data[it->out[j]], v->bytes, &nnan, &ninf);
            if (nan ? !nnan : !ninf)
                continue;
            *out = (held){it->out[j], out->order, it, nnan, ninf, false};
            return;
        }
    }
}

/* Returns the value in which the NaN or infinity of a held value began: one inside the chain that
 * has made it, or itself. */
static held origin_of(const search *s, const held *h, bool nan)
{
    const tsr_plan *plan = s->plan;
    held origin = *h;
    if (!h->item || h->item->kind != TSRI_ITEM_KERNEL || !h->item->kernel.chain ||
        !tsri_placement_can(h->item->placement, TSRI_CAN_ROW_KERNELS))
        return origin;
    inside in = {.s = s, .begin = tsri_chain_begin(&plan->ir, (int)(h->item - plan->ir.items))};
    in.data =
        tsri_mem_alloc(&plan->ir.world->mem, ((size_t)plan->ir.nvalues + 1) * sizeof *in.data);
    if (in.data)
        look_inside(&in, nan, &origin);
    for (int v = 0; v < plan->ir.nvalues && in.data; v++)
        tsri_mem_free(in.data[v]);
    tsri_mem_free(in.data);
    return origin;
}

/* --- text ------------------------------------------------------------------------------------- */
/* "input 'x'", "parameter 'head.weight'", "log 'act' (net.c:12)" */
static void put_name(FILE *f, const search *s, const held *h)
{
    const tsri_value *v = &s->plan->ir.values[h->value];
    const tsri_item *it = h->item;
    if (!it && v->variable) {
        fprintf(f, "variable '%s'", v->name);
    } else if (!it) {
        fprintf(f, "input '%s'", s->plan->ir.ports[v->port].info.name);
    } else {
        fputs(it->kind == TSRI_ITEM_KERNEL ? tsri_op_word(it->kernel.op, &it->kernel.attrs)
                                           : tsri_box_kind_name(it->box.step.kind),
              f);
        if (it->name && it->name[0])
            fprintf(f, " '%s'", it->name);
        if (it->loc.file)
            fprintf(f, " (%s:%d)", tsri_basename(it->loc.file), it->loc.line);
    }
}

static void put_count(FILE *f, const search *s, const held *h, bool nan)
{
    const tsri_value *v = &s->plan->ir.values[h->value];
    long long n = (long long)(v->bytes / tsr_dtype_size(v->dtype));
    fprintf(f, ", %lld of %lld elements %s", (long long)(nan ? h->nnan : h->ninf), n,
            nan ? "nan" : "infinite");
}

static void put_operands(FILE *f, const search *s, const held *h)
{
    bool are_held, are_finite;
    if (!h->item)
        return;
    look_at_operands(s, h, &are_held, &are_finite);
    are_held &= !h->is_unseen;
    fputs(!are_finite ? ""
          : are_held  ? "; what it was computed from is finite"
                      : "; of what it was computed from, a part is no longer held",
          f);
}

/* The tensor in which it began, as far as this rank can still see. */
static void put_origin(FILE *f, const search *s, bool is_nan)
{
    const held *nan = first_with(s, true), *inf = first_with(s, false);
    const held *first = is_nan && nan ? nan : inf ? inf : nan;
    const bool has_nan = first && first == nan && is_nan;
    held origin;
    if (!first) {
        fputs("; all other tensors that this rank holds are finite", f);
        return;
    }
    origin = origin_of(s, first, has_nan);
    fputs(first->item ? "; it begins in the result of " : "; it begins in ", f);
    put_name(f, s, &origin);
    put_count(f, s, &origin, has_nan);
    put_operands(f, s, &origin);
    if (first == nan && inf && inf->order < nan->order) {
        fputs(inf->item ? "; before it the result of " : "; before it ", f);
        put_name(f, s, inf);
        fputs(" has infinities", f);
    }
}

static void put_heading(FILE *f, const tsr_plan *plan, int64_t run, int64_t nnan)
{
    fprintf(f, "step %lld: the loss is %s", (long long)run, nnan ? "nan" : "infinite");
    if (plan->ir.world->nranks > 1 &&
        plan->ir.opts.on_nan == TSR_NAN_WARN) /* errors have it in front */
        fprintf(f, " on rank %d", plan->ir.world->rank);
}

/* Writes what is known of a loss that step `step` has made. */
static void explain(tsr_plan *plan, int step, int64_t nnan, char text[TEXT])
{
    search s = {plan,
                tsri_mem_alloc(&plan->ir.world->mem, ((size_t)plan->ir.nvalues + 1) * sizeof(held)),
                step + 1 < plan->nsteps ? plan->steps[step + 1].entry : plan->ir.nentries};
    FILE *f = fmemopen(text, TEXT, "w");
    if (f) {
        put_heading(f, plan, plan->info.runs + 1, nnan);
        if (s.held) {
            follow(&s);
            put_origin(f, &s, nnan > 0);
        }
        fclose(f);
    }
    tsri_mem_free(s.held);
}

/* --- losses ----------------------------------------------------------------------------------- */
/* The entry that makes a value, or the one that it is a view of; -1: none on this rank. */
static int entry_that_makes(const tsr_plan *plan, int value)
{
    for (;; value = plan->ir.values[value].alias) {
        for (int e = 0; e < plan->ir.nentries; e++) {
            const tsri_item *it = &plan->ir.items[plan->ir.entries[e].item];
            for (int j = 0; j < it->nout && plan->ir.entries[e].phase == TSRI_PHASE_DO; j++)
                if (it->out[j] == value)
                    return e;
        }
        if (plan->ir.values[value].storage != TSRI_STORAGE_ALIAS)
            return -1;
    }
}

static bool has_losses(const tsr_plan *plan)
{
    for (int v = 0; v < plan->ir.nvalues; v++)
        if (plan->ir.values[v].is_loss)
            return true;
    return false;
}

tsr_status tsri_finite_create(tsr_plan *plan)
{
    if (plan->ir.opts.on_nan == TSR_NAN_IGNORE || plan->ir.world->is_virtual || !has_losses(plan))
        return TSR_OK;
    size_t bytes = ((size_t)plan->nsteps + 1) * sizeof(int);
    tsri_finite *f = tsri_pool_alloc(&plan->pool, sizeof *f);
    if (!f || !(f->loss = tsri_pool_alloc(&plan->pool, bytes)))
        return TSR_ERR_NO_MEMORY;
    memset(f->loss, -1, bytes);
    for (int v = 0; v < plan->ir.nvalues; v++) {
        const tsri_value *value = &plan->ir.values[v];
        int e = value->is_loss && value->ptr && on_host(value) ? entry_that_makes(plan, v) : -1;
        if (e >= 0)
            f->loss[tsri_step_at(plan, e)] = v;
    }
    plan->finite = f;
    return TSR_OK;
}

/* Warns once, or fails. */
static tsr_status tell(tsr_plan *plan, const char *text)
{
    if (plan->ir.opts.on_nan == TSR_NAN_STOP)
        return tsri_fail(TSR_ERR_NAN, "%s", text);
    plan->finite->has_warned = true;
    tsri_log(plan->ir.world, TSR_LOG_WARNING, "%s", text);
    return TSR_OK;
}

tsr_status tsri_finite_look(tsr_plan *plan, int step)
{
    const tsri_finite *f = plan->finite;
    int v = f->loss[step];
    int64_t nnan, ninf;
    char text[TEXT];
    if (v < 0 || f->has_warned)
        return TSR_OK;
    count(plan->ir.values[v].dtype, tsri_plan_value_now(plan, v), plan->ir.values[v].bytes, &nnan,
          &ninf);
    if (!nnan && !ninf)
        return TSR_OK;
    explain(plan, step, nnan, text);
    return tell(plan, text);
}

tsr_status tsri_finite_fetched(tsr_plan *plan, const tsri_ir_port *port, const void *data)
{
    int64_t nnan, ninf;
    char text[TEXT];
    const tsri_device *d = plan->part[tsr_placement_device(port->info.placement)].device;
    if (!plan->finite || plan->finite->has_warned || !d->ops->stream_sync)
        return TSR_OK;
    count(port->info.dtype, data, port->bytes, &nnan, &ninf);
    if (!nnan && !ninf)
        return TSR_OK;
    FILE *f = fmemopen(text, sizeof text, "w");
    if (f) {
        put_heading(f, plan, plan->info.runs, nnan);
        fputs(" (found at its fetch; the tensors before it are gone)", f);
        fclose(f);
    }
    tsr_status status = tell(plan, text);
    return status == TSR_OK ? status : tsri_plan_fail(plan, status);
}
