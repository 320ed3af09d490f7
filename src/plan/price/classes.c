/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/price/classes.h"

#include <math.h>
#include <string.h>

#include "src/core/rng.h"
#include "src/plan/report/report.h"

int tsri_class_of(tsri_pool *pool, tsri_classes *t, const void *x)
{
    int *bucket = &t->first[tsri_hash(TSRI_HASH_INIT, x, t->size) % TSRI_PRICE_BUCKETS];
    char *all = t->all;
    for (int i = *bucket; i; i = t->next[i - 1])
        if (!memcmp(all + (size_t)(i - 1) * t->size, x, t->size)) {
            t->count[i - 1]++;
            return i - 1;
        }
    if (!tsri_pool_grow(pool, &t->all, t->n, &t->call, t->size) ||
        !TSRI_PUSH(pool, t->count, t->n, t->ccount) || !TSRI_PUSH(pool, t->next, t->n, t->cnext))
        return -1;
    all = t->all;
    memcpy(all + (size_t)t->n * t->size, x, t->size);
    t->count[t->n] = 1;
    t->next[t->n] = *bucket;
    *bucket = ++t->n;
    return t->n - 1;
}

tsr_dims tsri_shape_at(const tsri_shape *shape, int64_t more)
{
    tsr_dims dims = {.ndim = (int)shape->ndim};
    for (int i = 0; i < dims.ndim; i++)
        dims.d[i] = shape->d[i].base + shape->d[i].slope * more;
    return dims;
}

/* --- sizes ------------------------------------------------------------------------------------ */
typedef struct taker {
    tsri_pricer *p;
    const tsri_ir *ir;
    const tsr_graph *g;
    const tsri_price_sizes *sizes;
    const tsri_op **op[3]; /* of each size by origin; of several ops, as of one and its
                            * recomputation, the first */
} taker;

/* Learns a length from its values at the three sizes; false: it is no line through them. */
static bool learn(const tsri_price_sizes *s, const int64_t *value, tsri_length *out)
{
    *out = (tsri_length){value[0], 0};
    if (!s->graph[1])
        return true;
    int64_t run = s->size[1] - s->size[0], rise = value[1] - value[0];
    out->slope = run && rise % run == 0 ? rise / run : 0;
    return value[1] == value[0] + out->slope * run &&
           value[2] == value[0] + out->slope * (s->size[2] - s->size[0]);
}

static tsr_status differs(const tsri_op *op, const char *what)
{
    return tsri_fail(TSR_ERR_UNSUPPORTED,
                     "%s %s: %s depends on the size in another way than a "
                     "line",
                     tsri_op_word(op->kind, &op->attrs), op->name ? op->name : "", what);
}

uint64_t tsri_ops_hash(const tsr_graph *g)
{
    uint64_t h = TSRI_HASH_INIT;
    for (int i = 0; i < g->nops; i++) {
        int32_t op[3] = {g->ops[i]->kind, g->ops[i]->nin, g->ops[i]->nout};
        h = tsri_hash(h, op, sizeof op);
    }
    return h;
}

static tsr_status check_graphs(const tsri_price_sizes *s)
{
    uint64_t ops = tsri_ops_hash(s->graph[0]);
    for (int k = 1; k < 3 && s->graph[1]; k++)
        if (s->graph[k]->ntensors != s->graph[0]->ntensors || tsri_ops_hash(s->graph[k]) != ops)
            return tsri_fail(TSR_ERR_UNSUPPORTED, "the program has other ops at size %lld",
                             (long long)s->size[k]);
    return TSR_OK;
}

static tsr_status index_ops(taker *t)
{
    for (int k = 0; k < 3 && t->sizes->graph[k]; k++) {
        const tsr_graph *g = t->sizes->graph[k];
        t->op[k] = tsri_pool_alloc(&t->p->pool, (size_t)g->nops * sizeof(tsri_op *));
        TSRI_NEED(t->op[k]);
        for (int i = g->nops; i-- > 0;)
            t->op[k][g->ops[i]->origin] = g->ops[i];
    }
    return TSR_OK;
}

static tsr_status take_shapes(taker *t)
{
    tsri_pricer *p = t->p;
    p->shape_of = tsri_pool_alloc(&p->pool, (size_t)t->g->ntensors * sizeof *p->shape_of);
    TSRI_NEED(p->shape_of);
    p->ntensors = t->g->ntensors;
    p->ops = tsri_ops_hash(t->g);
    for (int i = 0; i < t->g->ntensors; i++) {
        const tsr_tensor *x = t->g->tensors[i];
        tsri_shape shape;
        memset(&shape, 0, sizeof shape);
        shape.ndim = x->shape.ndim;
        for (int a = 0; a < x->shape.ndim; a++) {
            int64_t value[3] = {x->shape.d[a]};
            for (int k = 1; k < 3 && t->sizes->graph[1]; k++)
                value[k] = t->sizes->graph[k]->tensors[i]->shape.d[a];
            if (!learn(t->sizes, value, &shape.d[a]))
                return differs(x->op, "a result's shape");
        }
        if ((p->shape_of[i] = tsri_class_of(&p->pool, &p->shapes, &shape)) < 0)
            return TSR_ERR_NO_MEMORY;
    }
    return TSR_OK;
}

/* --- kernels ---------------------------------------------------------------------------------- */
static int part_of(tsri_pricer *p, int tensor, tsr_dtype dtype, const tsr_placement *placement,
                   const tsri_layout *layout)
{
    tsri_priced_part x;
    memset(&x, 0, sizeof x);
    x.shape = p->shape_of[tensor];
    x.element = (int)tsr_dtype_size(dtype);
    x.placement = placement;
    x.layout = *layout;
    return tsri_class_of(&p->pool, &p->parts, &x);
}

static tsr_status learn_work(const taker *t, int op, tsri_priced_kernel *x)
{
    tsri_op_work work[3];
    tsri_pool pool;
    tsr_status status = TSR_OK;
    const tsri_op *first = t->op[0][op];
    int n = t->sizes->graph[1] ? 3 : 1;
    tsri_pool_init(&pool, &t->ir->world->mem);
    for (int k = 0; k < n && status == TSR_OK; k++)
        status = tsri_op_work_of(&pool, t->op[k][op], &work[k]);
    tsri_pool_finish(&pool);
    TSRI_TRY(status);
    x->nindices = work[0].nindices;
    x->dtype = work[0].dtype;
    x->attends = work[0].attends;
    x->multiplies = work[0].multiplies;
    x->reach = work[0].reach;
    x->work.some = work[0].shape.some;
    x->work.rows = work[0].shape.rows;
    x->work.columns = work[0].shape.columns;
    x->work.whole = work[0].shape.whole;
    x->flops = work[0].flops;
    for (int l = 0; l < work[0].nindices; l++) {
        int64_t value[3];
        for (int k = 0; k < n; k++)
            value[k] = work[k].size[l];
        if (!learn(t->sizes, value, &x->index[l]))
            return differs(first, "its work");
    }
    if (n == 1)
        return TSR_OK;
    const int64_t *size = t->sizes->size;
    x->slope = (work[1].flops - work[0].flops) / (double)(size[1] - size[0]);
    double third = work[0].flops + x->slope * (double)(size[2] - size[0]);
    return fabs(third - work[2].flops) <= 1e-12 * fabs(third) ? TSR_OK : differs(first, "its work");
}

static tsr_status take_kernel(taker *t, const tsri_item *it)
{
    tsri_pricer *p = t->p;
    if (it->kernel.id >= t->g->nops)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "an op of it is not in the graph");
    const tsri_op *op = t->op[0][it->kernel.id];
    const tsri_nd_signature *sig = t->ir->chosen[it->kernel.id];
    const tsri_mesh mesh = tsri_mesh_of(op->placement);
    tsri_priced_kernel x;
    memset(&x, 0, sizeof x);
    x.every = tsri_item_every(it);
    x.placement = op->placement;
    memcpy(x.split, sig->split, sizeof x.split);
    TSRI_TRY(learn_work(t, op->origin, &x));
    for (int i = 0; i < op->nin + op->nout; i++) {
        const tsr_tensor *arg = i < op->nin ? op->in[i] : op->out[i - op->nin];
        tsri_layout layout =
            tsri_layout_of(&mesh, i < op->nin ? sig->in[i] : sig->out[i - op->nin]);
        int part = part_of(p, arg->id, arg->dtype, op->placement, &layout);
        if (part < 0)
            return TSR_ERR_NO_MEMORY;
        x.part[x.nparts++] = part;
    }
    return tsri_class_of(&p->pool, &p->kernels, &x) < 0 ? TSR_ERR_NO_MEMORY : TSR_OK;
}

/* Whether a value has the shape of its tensor. */
static tsr_status check_value(const taker *t, const tsri_value *v)
{
    if (v->tensor >= 0 && tsr_dims_equal(v->shape, t->g->tensors[v->tensor]->shape))
        return TSR_OK;
    return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: it has another shape than its tensor",
                     v->name ? v->name : "");
}

/* --- conversions ------------------------------------------------------------------------------ */
static void set_layout(tsri_layout *to, const tsri_layout *from)
{
    memcpy(to, from, sizeof *to);
}

/* The class of one conversion of an item; -1: no memory. */
static int box_of(taker *t, const tsri_item *it, int pair)
{
    const tsri_value *from = &t->ir->values[it->in[pair]], *to = &t->ir->values[it->out[pair]];
    tsri_priced_box x;
    memset(&x, 0, sizeof x);
    x.every = tsri_item_every(it);
    x.from_placement = from->placement;
    x.to_placement = to->placement;
    x.step.kind = it->box.step.kind;
    x.step.dims = it->box.step.dims;
    x.step.op = it->box.step.op;
    x.step.crosses = it->box.step.crosses;
    x.step.on_dst = it->box.step.on_dst;
    set_layout(&x.step.from, &from->layout);
    set_layout(&x.step.to, &to->layout);
    x.shape = t->p->shape_of[from->tensor];
    x.element = (int)tsr_dtype_size(from->dtype);
    x.joins = it->box.is_bucket;
    x.talks = it->kind == TSRI_ITEM_COLLECTIVE;
    x.crosses = tsri_item_crosses(it);
    return tsri_class_of(&t->p->pool, &t->p->boxes, &x);
}

static tsr_status take_boxes(taker *t, const tsri_item *it)
{
    tsri_pricer *p = t->p;
    if (it->box.broadcast || it->box.ranks)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: %s", it->name ? it->name : "", it->box.reason);
    int *box = tsri_pool_alloc(&p->pool, (size_t)it->nin * sizeof *box);
    TSRI_NEED(box);
    for (int j = 0; j < it->nin; j++) {
        TSRI_TRY(check_value(t, &t->ir->values[it->in[j]]));
        if ((box[j] = box_of(t, it, j)) < 0)
            return TSR_ERR_NO_MEMORY;
    }
    if (!it->box.is_bucket)
        return TSR_OK;
    TSRI_NEED(TSRI_PUSH(&p->pool, p->buckets, p->nbuckets, p->cbuckets));
    p->buckets[p->nbuckets++] = (tsri_priced_bucket){it->nin, box};
    return TSR_OK;
}

static tsr_status take_item(taker *t, const tsri_item *it)
{
    /* A copy that a pass has added costs nothing in the plan. */
    bool is_copy = it->kind == TSRI_ITEM_KERNEL && it->cost_s == 0;
    if (it->kind == TSRI_ITEM_KERNEL && !is_copy)
        return take_kernel(t, it);
    return tsri_item_converts(it) && !tsri_item_shows(it) ? take_boxes(t, it) : TSR_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */
static tsr_status take_lives(taker *t)
{
    tsri_pricer *p = t->p;
    p->nentries = t->ir->nentries;
    for (int i = 0; i < t->ir->nvalues; i++) {
        const tsri_value *v = &t->ir->values[i];
        if (!tsri_value_takes_memory(v))
            continue;
        TSRI_TRY(check_value(t, v));
        int part = part_of(p, v->tensor, v->dtype, v->placement, &v->layout);
        bool in_block = v->storage == TSRI_STORAGE_ARENA;
        if (part < 0 || !TSRI_PUSH(&p->pool, p->lives, p->nlives, p->clives))
            return TSR_ERR_NO_MEMORY;
        p->lives[p->nlives++] = (tsri_life){part, in_block ? v->first : -1, v->last};
    }
    return TSR_OK;
}

tsr_status tsri_price_classes(tsri_pricer *p, const tsri_ir *ir, const tsri_price_sizes *sizes)
{
    taker t = {.p = p, .ir = ir, .g = sizes->graph[0], .sizes = sizes};
    p->shapes.size = sizeof(tsri_shape);
    p->parts.size = sizeof(tsri_priced_part);
    p->kernels.size = sizeof(tsri_priced_kernel);
    p->boxes.size = sizeof(tsri_priced_box);
    if (!ir->chosen)
        return tsri_fail(TSR_ERR_STATE, "the plan was compiled without .alternatives");
    /* Prices count each item once. */
    if (ir->parts > 1)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "its step is cut into %d micro-batches", ir->parts);
    TSRI_TRY(check_graphs(sizes));
    TSRI_TRY(index_ops(&t));
    TSRI_TRY(take_shapes(&t));
    for (int i = 0; i < ir->nitems; i++)
        TSRI_TRY(take_item(&t, &ir->items[i]));
    return take_lives(&t);
}
