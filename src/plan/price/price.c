/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/price/price.h"

#include <math.h>
#include <string.h>

#include "src/plan/price/classes.h"

/* --- what depends on the size ----------------------------------------------------------------- */
static void work_out_kernel(tsri_pricer *p, int i, int64_t more)
{
    const tsri_priced_kernel *x = &TSRI_CLASSES(p->kernels, tsri_priced_kernel)[i];
    tsri_op_work work = {.flops = x->flops + x->slope * (double)more,
                         .nindices = (int)x->nindices,
                         .shape = x->work};
    for (int l = 0; l < work.nindices; l++)
        work.size[l] = x->index[l].base + x->index[l].slope * more;
    p->flops[i] = work.flops * tsri_op_share(x->placement, &work, x->split);
    p->bytes[i] = 0;
    for (int k = 0; k < x->nparts; k++)
        p->bytes[i] += p->part_bytes[x->part[k]];
}

/* Bytes of a part on a rank. */
static int64_t bytes_on(const tsri_pricer *p, const tsri_priced_part *x, int rank, int64_t more)
{
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM] = {0};
    int at = tsr_placement_find(x->placement, rank);
    if (at < 0)
        return 0;
    const tsri_mesh mesh = tsri_mesh_of(x->placement);
    tsri_layout_part(tsri_shape_at(&TSRI_CLASSES(p->shapes, tsri_shape)[x->shape], more), &mesh,
                     &x->layout, at, offset, &lshape);
    return tsr_dims_count(lshape) * x->element;
}

/* The most that a rank has of all at a time. */
static uint64_t memory_of(tsri_pricer *p, int rank, int64_t more)
{
    int64_t kept = 0, now = 0, most = 0;
    for (int i = 0; i < p->parts.n; i++)
        p->rank_bytes[i] = bytes_on(p, &TSRI_CLASSES(p->parts, tsri_priced_part)[i], rank, more);
    memset(p->change, 0, ((size_t)p->nentries + 1) * sizeof *p->change);
    for (int i = 0; i < p->nlives; i++) {
        const tsri_life *x = &p->lives[i];
        int64_t bytes = p->rank_bytes[x->part];
        kept += x->first < 0 ? bytes : 0;
        if (x->first >= 0) {
            p->change[x->first] += bytes;
            p->change[x->last + 1] -= bytes;
        }
    }
    for (int e = 0; e <= p->nentries; e++) {
        now += p->change[e];
        most = now > most ? now : most;
    }
    return (uint64_t)(kept + most);
}

static void work_out(tsri_pricer *p, int64_t more)
{
    if (p->ready && p->at == more)
        return;
    for (int i = 0; i < p->parts.n; i++) {
        const tsri_priced_part *x = &TSRI_CLASSES(p->parts, tsri_priced_part)[i];
        const tsri_mesh mesh = tsri_mesh_of(x->placement);
        p->part_bytes[i] = (double)tsri_layout_most(
            tsri_shape_at(&TSRI_CLASSES(p->shapes, tsri_shape)[x->shape], more), (size_t)x->element,
            &mesh, &x->layout);
    }
    for (int i = 0; i < p->kernels.n; i++)
        work_out_kernel(p, i, more);
    p->memory = 0;
    for (int i = 0; i < p->nranks; i++) {
        uint64_t bytes = memory_of(p, p->ranks[i], more);
        p->memory = bytes > p->memory ? bytes : p->memory;
    }
    p->ready = true;
    p->at = more;
}

/* --- conversions ------------------------------------------------------------------------------ */
static tsr_status price_box(tsri_pricer *p, const tsri_cost_model *m, int i, int64_t more,
                            tsri_price *sum)
{
    const tsri_priced_box *x = &TSRI_CLASSES(p->boxes, tsri_priced_box)[i];
    tsri_route_step step = x->step;
    tsr_dims shape = tsri_shape_at(&TSRI_CLASSES(p->shapes, tsri_shape)[x->shape], more);
    const tsri_route_query q = {.shape = shape,
                                .element = (size_t)x->element,
                                .from = {tsri_mesh_of(x->from_placement), step.from},
                                .to = {tsri_mesh_of(x->to_placement), step.to}};
    int count = p->boxes.count[i];
    if (x->crosses) {
        step.cost_s = tsri_crossing_seconds(shape, q.element, x->to_placement, step.to.sbp);
    } else if (x->joins) {
        tsri_route single;
        p->joint[i] = tsri_route_join(m, &q, &single);
        if (!p->joint[i].joins)
            return tsri_fail(TSR_ERR_UNSUPPORTED, "a bucket's member that joins no other then");
        return TSR_OK; /* its bucket has the time and the bytes */
    } else {
        TSRI_TRY(tsri_route_price_again(m, &q, &step));
    }
    *(x->talks ? &sum->comm_s : &sum->compute_s) += count * step.cost_s / (double)x->every;
    sum->bytes += x->talks ? (uint64_t)count * (uint64_t)step.bytes : 0;
    return TSR_OK;
}

static void price_bucket(tsri_pricer *p, const tsri_priced_bucket *b, tsri_price *sum)
{
    bool two_phase;
    double bytes = 0;
    for (int i = 0; i < b->n; i++)
        p->member[i] = p->joint[b->box[i]];
    const tsri_priced_box *first = &TSRI_CLASSES(p->boxes, tsri_priced_box)[b->box[0]];
    sum->comm_s += tsri_joint_price(p->member, b->n, 1, &two_phase) / (double)first->every;
    for (int i = 0; i < b->n; i++)
        bytes += p->member[i].bytes[two_phase];
    sum->bytes += (uint64_t)bytes;
}

tsr_status tsri_pricer_price(tsri_pricer *p, const tsri_cost_model *m, int64_t size,
                             tsri_price *out_price)
{
    tsri_price sum = {0};
    int64_t more = size ? size - p->size : 0;
    work_out(p, more);
    for (int i = 0; i < p->kernels.n; i++) {
        const tsri_priced_kernel *x = &TSRI_CLASSES(p->kernels, tsri_priced_kernel)[i];
        const tsri_op_work work = {.dtype = (tsr_dtype)x->dtype,
                                   .attends = x->attends,
                                   .multiplies = x->multiplies,
                                   .reach = x->reach};
        sum.compute_s += p->kernels.count[i] *
                         (double)tsri_op_seconds(m, &work, p->flops[i], p->bytes[i]) /
                         (double)x->every;
    }
    for (int i = 0; i < p->boxes.n; i++)
        TSRI_TRY(price_box(p, m, i, more, &sum));
    for (int i = 0; i < p->nbuckets; i++)
        price_bucket(p, &p->buckets[i], &sum);
    sum.memory = p->memory + p->scratch;
    sum.step_s = sum.compute_s + sum.comm_s;
    *out_price = sum;
    return TSR_OK;
}

tsr_status tsri_pricer_check(const tsri_pricer *p, const tsr_graph *g, int64_t size)
{
    bool same = g->ntensors == p->ntensors && tsri_ops_hash(g) == p->ops;
    for (int i = 0; i < p->ntensors && same; i++)
        same = tsr_dims_equal(
            g->tensors[i]->shape,
            tsri_shape_at(&TSRI_CLASSES(p->shapes, tsri_shape)[p->shape_of[i]], size - p->size));
    if (same)
        return TSR_OK;
    return tsri_fail(TSR_ERR_UNSUPPORTED, "the program has other ops at size %lld",
                     (long long)size);
}

/* --- life ------------------------------------------------------------------------------------- */
static tsr_status make_room(tsri_pricer *p)
{
    int most = 1;
    for (int i = 0; i < p->nbuckets; i++)
        most = p->buckets[i].n > most ? p->buckets[i].n : most;
    size_t parts = (size_t)p->parts.n, kernels = (size_t)p->kernels.n;
    p->part_bytes = tsri_pool_alloc(&p->pool, parts * sizeof *p->part_bytes);
    p->rank_bytes = tsri_pool_alloc(&p->pool, parts * sizeof *p->rank_bytes);
    p->flops = tsri_pool_alloc(&p->pool, kernels * sizeof *p->flops);
    p->bytes = tsri_pool_alloc(&p->pool, kernels * sizeof *p->bytes);
    p->joint = tsri_pool_alloc(&p->pool, (size_t)p->boxes.n * sizeof *p->joint);
    p->member = tsri_pool_alloc(&p->pool, (size_t)most * sizeof *p->member);
    p->change = tsri_pool_alloc(&p->pool, ((size_t)p->nentries + 2) * sizeof *p->change);
    return p->part_bytes && p->rank_bytes && p->flops && p->bytes && p->joint && p->member &&
                   p->change
               ? TSR_OK
               : TSR_ERR_NO_MEMORY;
}

/* Compares the pricer's price at the plan's own size and links with the plan's. */
static tsr_status check_price(tsri_pricer *p, const tsri_ir *ir)
{
    tsri_price price;
    double seconds = 0;
    for (int i = 0; i < ir->nitems; i++)
        if (!tsri_item_shows(&ir->items[i]) && ir->items[i].kind != TSRI_ITEM_DEAD)
            seconds += ir->items[i].cost_s;
    TSRI_TRY(tsri_pricer_price(p, &ir->model, 0, &price));
    if (fabs(price.step_s - seconds) > 1e-9 * seconds)
        return tsri_fail(TSR_ERR_INTERNAL,
                         "a step is priced at %.9g s, and planned at %.9g s: please report this",
                         price.step_s, seconds);
    return TSR_OK;
}

tsr_status tsri_pricer_create(const tsr_plan *plan, const tsri_price_sizes *sizes, int nranks,
                              const int *ranks, tsri_pricer **out_pricer)
{
    tsri_pool pool;
    tsri_pool_init(&pool, &plan->ir.world->mem);
    tsri_pricer *p = tsri_pool_alloc(&pool, sizeof *p);
    TSRI_NEED(p);
    p->pool = pool;
    p->size = sizes->size[0];
    p->scratch = tsri_plan_scratch(plan);
    p->nranks = nranks;
    p->ranks = tsri_pool_dup(&p->pool, ranks, (size_t)nranks * sizeof *ranks);
    tsr_status status = p->ranks ? tsri_price_classes(p, &plan->ir, sizes) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = make_room(p);
    if (status == TSR_OK)
        status = check_price(p, &plan->ir);
    if (status != TSR_OK) {
        tsri_pricer_destroy(p);
        return status;
    }
    *out_pricer = p;
    return TSR_OK;
}

void tsri_pricer_destroy(tsri_pricer *p)
{
    if (!p)
        return;
    tsri_pool pool = p->pool; /* the pricer itself lives in it */
    tsri_pool_finish(&pool);
}
