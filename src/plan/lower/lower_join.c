/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining: neighbouring steps whose kernels can do their work in one launch become one step. The
 * steps must not meet: none may write what another reads or writes; unless the kernel keeps their
 * order.
 */
#include "src/plan/lower/lower.h"

/* Memory that some steps touch. */
typedef struct range {
    const char *at;
    size_t bytes;
} range;

typedef struct touched {
    range *written, *read;
    int nwritten, nread;
} touched;

static bool overlaps(const range *list, int n, range r)
{
    for (int i = 0; i < n; i++)
        if (list[i].at < r.at + r.bytes && r.at < list[i].at + list[i].bytes)
            return true;
    return false;
}

static range range_of(const tsr_plan *plan, int value)
{
    const tsri_value *v = &plan->ir.values[value];
    return (range){v->ptr, v->ptr ? v->bytes : 0};
}

static bool meets(const tsr_plan *plan, const touched *t, const tsri_item *it)
{
    for (int i = 0; i < it->nin; i++)
        if (overlaps(t->written, t->nwritten, range_of(plan, it->in[i])))
            return true;
    for (int i = 0; i < it->nout; i++) {
        range r = range_of(plan, it->out[i]);
        if (overlaps(t->written, t->nwritten, r) || overlaps(t->read, t->nread, r))
            return true;
    }
    return false;
}

/* Operands that many steps share (a learning rate) are noted once. */
static void touch(const tsr_plan *plan, touched *t, const tsri_item *it)
{
    for (int i = 0; i < it->nin; i++) {
        range r = range_of(plan, it->in[i]);
        if (r.bytes && !overlaps(t->read, t->nread, r))
            t->read[t->nread++] = r;
    }
    for (int i = 0; i < it->nout; i++)
        t->written[t->nwritten++] = range_of(plan, it->out[i]);
}

static bool joins(const tsri_step *s)
{
    return s->kind == TSRI_STEP_KERNEL && s->kernel->join && !s->has_copies;
}

/* How many steps from `first` on can be one. */
static int run_length(const tsr_plan *plan, int first, touched *t)
{
    int n = 0;
    t->nread = t->nwritten = 0;
    for (int i = first; i < plan->nsteps; i++, n++) {
        const tsri_step *s = &plan->steps[i];
        if (!joins(s) || s->kernel->join != plan->steps[first].kernel->join ||
            !tsri_item_same_time(s->item, plan->steps[first].item) ||
            s->only_if != plan->steps[first].only_if ||
            (!s->kernel->joins_in_order && meets(plan, t, s->item)))
            break;
        touch(plan, t, s->item);
    }
    return n;
}

/* The joined kernel takes the place of the first step's; the parts live as long as the plan. */
static tsr_status join_run(tsr_plan *plan, int first, int n, bool *out_joined)
{
    tsri_kernel **parts = tsri_pool_alloc(&plan->pool, (size_t)n * sizeof *parts);
    void *const **in = tsri_pool_alloc(&plan->ir.scratch, (size_t)n * sizeof *in);
    void *const **out = tsri_pool_alloc(&plan->ir.scratch, (size_t)n * sizeof *out);
    TSRI_NEED(parts && in && out);
    for (int i = 0; i < n; i++) {
        parts[i] = plan->steps[first + i].kernel;
        in[i] = plan->steps[first + i].in;
        out[i] = plan->steps[first + i].out;
    }
    tsri_kernel *joined;
    tsr_status status = parts[0]->join(&plan->ir.world->mem, n, parts, in, out, &joined);
    *out_joined = status == TSR_OK;
    if (status == TSR_ERR_UNSUPPORTED) {
        tsri_error_clear();
        return TSR_OK;
    }
    TSRI_TRY(status);
    tsri_step *s = &plan->steps[first];
    s->kernel = joined;
    s->parts = parts;
    s->nparts = n;
    s->in = s->out = NULL;
    return TSR_OK;
}

tsr_status tsri_lower_join(tsr_plan *plan)
{
    size_t most = (size_t)plan->nsteps * TSRI_KERNEL_MAX_ARGS + 1;
    touched t = {.written = tsri_pool_alloc(&plan->ir.scratch, most * sizeof *t.written),
                 .read = tsri_pool_alloc(&plan->ir.scratch, most * sizeof *t.read)};
    TSRI_NEED(t.written && t.read);
    int kept = 0;
    for (int i = 0, n; i < plan->nsteps; i += n) {
        bool joined = false;
        n = joins(&plan->steps[i]) ? run_length(plan, i, &t) : 1;
        if (n > 1)
            TSRI_TRY(join_run(plan, i, n, &joined));
        n = joined ? n : 1;
        plan->steps[kept++] = plan->steps[i];
    }
    plan->nsteps = kept;
    return TSR_OK;
}
