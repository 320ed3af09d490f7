/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory by rank. Ranks whose parts of everything have the same sizes form a class, and one of each
 * class is looked at, so that thousands of ranks cost little more than one.
 */
#include "src/plan/pass/pass.h"
#include "src/plan/report/report.h"

#include <stdlib.h>
#include <string.h>

#include "src/core/rng.h"
#include "src/plan/report/rank_classes.h"

enum { MAX_CLASSES = 64, BUCKETS = 1024 };

/* Values that every rank has alike parts of. */
typedef struct alike {
    struct alike *next;
    const tsri_value *value;
} alike;

typedef struct memory_maker {
    tsr_plan *plan;
    tsri_report *r;
    tsri_pool pool;
    uint8_t *kind;        /* per value: the report's */
    alike *seen[BUCKETS]; /* by shape, placement and layout */
    uint64_t *key;        /* per rank: equal for ranks of one class */
    uint32_t kinds;
} memory_maker;

bool tsri_value_takes_memory(const tsri_value *v)
{
    return (v->storage == TSRI_STORAGE_ARENA && v->first >= 0) ||
           (v->storage == TSRI_STORAGE_VARIABLE && v->source) || v->storage == TSRI_STORAGE_PORT;
}

/* --- classes of ranks ------------------------------------------------------------------------- */
static bool same_parts(const tsri_value *a, const tsri_value *b)
{
    return a->placement == b->placement && tsr_dims_equal(a->shape, b->shape) &&
           tsr_dtype_size(a->dtype) == tsr_dtype_size(b->dtype) &&
           tsri_layout_equal(&a->layout, &b->layout);
}

static bool is_even(const tsri_value *v)
{
    int64_t parts[TSR_MAX_NDIM] = {0};
    for (int d = 0; d < v->layout.sbp.ndim; d++)
        if (v->layout.sbp.d[d].kind == TSR_SBP_SPLIT) {
            int64_t *n = &parts[v->layout.sbp.d[d].arg];
            *n = (*n ? *n : 1) * tsr_placement_dim(v->placement, d);
        }
    for (int a = 0; a < v->shape.ndim; a++)
        if (parts[a] && v->shape.d[a] % parts[a])
            return false;
    return true;
}

/* Tells apart the ranks that have different parts of v. */
static void mix(memory_maker *m, const tsri_value *v)
{
    bool even = is_even(v);
    uint32_t kind = ++m->kinds; /* from 1: a hash of zeros alone would stay 0, as of no part */
    for (int i = 0; i < tsr_placement_nranks(v->placement); i++) {
        int rank = tsr_placement_rank(v->placement, i);
        uint64_t what[2] = {kind, even ? 0 : tsri_value_bytes(v, rank)};
        m->key[rank] = tsri_hash(m->key[rank], what, sizeof what);
    }
}

static tsr_status find_keys(memory_maker *m)
{
    tsr_plan *plan = m->plan;
    for (int i = 0; i < plan->ir.nvalues; i++) {
        const tsri_value *v = &plan->ir.values[i];
        if (!tsri_value_takes_memory(v))
            continue;
        uint64_t h = tsri_hash(TSRI_HASH_INIT, v->shape.d, sizeof v->shape.d);
        h = tsri_hash(h, &v->layout.sbp, sizeof v->layout.sbp);
        alike **bucket = &m->seen[h % BUCKETS], *s = *bucket;
        while (s && !same_parts(s->value, v))
            s = s->next;
        if (s)
            continue;
        s = tsri_pool_alloc(&m->pool, sizeof *s);
        TSRI_NEED(s);
        *s = (alike){*bucket, v};
        *bucket = s;
        mix(m, v);
    }
    return TSR_OK;
}

/* Classes in memory[], of one rank each; memory_of[] of the ranks by that rank's number. */
static tsr_status find_classes(memory_maker *m)
{
    tsri_report *r = m->r;
    int n = m->plan->ir.world->nranks;
    tsri_rank_classes classes;
    TSRI_TRY(tsri_rank_classes_find(&m->pool, n, m->key, &classes));
    r->memory = tsri_pool_alloc(&r->pool, (size_t)classes.n * sizeof *r->memory);
    r->memory_of = tsri_pool_alloc(&r->pool, (size_t)n * sizeof *r->memory_of);
    TSRI_NEED(r->memory && r->memory_of);
    for (; r->nmemory < classes.n; r->nmemory++)
        r->memory[r->nmemory] = (tsri_report_memory){.rank = classes.first[r->nmemory],
                                                     .nranks = classes.count[r->nmemory]};
    for (int i = 0; i < n; i++)
        r->memory_of[i] = classes.first[classes.of[i]];
    r->nclasses = r->nmemory;
    return TSR_OK;
}

/* --- categories ------------------------------------------------------------------------------- */
static tsri_memory_kind of_variable(const tsr_variable *v)
{
    if (!v || !v->scope)
        return TSRI_MEMORY_OPTIMIZER;
    return v->trainable ? TSRI_MEMORY_PARAMETERS : TSRI_MEMORY_BUFFERS;
}

/* Returns whether the value was of another kind. */
static bool mark(memory_maker *m, int value, tsri_memory_kind c)
{
    const int root = tsri_ir_root(&m->plan->ir, value);
    const tsri_storage storage = m->plan->ir.values[root].storage;
    if ((storage != TSRI_STORAGE_ARENA && storage != TSRI_STORAGE_INNER) || m->kind[root] == c)
        return false;
    m->kind[root] = (uint8_t)c;
    return true;
}

static bool is_marked(const memory_maker *m, int value, tsri_memory_kind c)
{
    return m->kind[tsri_ir_root(&m->plan->ir, value)] == c;
}

/* Whether result j of an item is operand j, or operand 0, element by element: converted, shown,
 * cast or scaled. */
static bool keeps_elements(const memory_maker *m, const tsri_item *it, int j)
{
    if (tsri_item_converts(it) || it->kind == TSRI_ITEM_VIEW)
        return true;
    return it->kind == TSRI_ITEM_KERNEL && j == 0 && it->nin > 0 &&
           tsri_op_def_of(it->kernel.op)->rows == TSRI_ROWS_MAP &&
           tsr_dims_equal(m->plan->ir.values[it->in[0]].shape,
                          m->plan->ir.values[it->out[0]].shape);
}

/* Values that optimizers read, those that they were made from element by element, and parts of them
 * are gradients. */
static void find_gradients(memory_maker *m)
{
    tsr_plan *plan = m->plan;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        int arg =
            it->kind == TSRI_ITEM_KERNEL ? tsri_op_gradient_operand(it->kernel.op, it->nin) : -1;
        if (arg >= 0)
            mark(m, it->in[arg], TSRI_MEMORY_GRADIENTS);
    }
    /* Backwards, as a conversion of several steps is in order; but buckets stand behind all else,
     * also behind what converts their results further. */
    for (bool again = true; again;) {
        again = false;
        for (int i = plan->ir.nitems - 1; i >= 0; i--) {
            const tsri_item *it = &plan->ir.items[i];
            for (int j = 0; j < it->nout; j++)
                if (keeps_elements(m, it, j) && is_marked(m, it->out[j], TSRI_MEMORY_GRADIENTS))
                    again |= mark(m, it->in[j], TSRI_MEMORY_GRADIENTS);
                else if (tsri_item_converts(it) && is_marked(m, it->in[j], TSRI_MEMORY_GRADIENTS) &&
                         is_marked(m, it->out[j], TSRI_MEMORY_ACTIVATIONS))
                    again |= mark(m, it->out[j], TSRI_MEMORY_GRADIENTS);
        }
    }
}

/* Whether an item moves elements and changes none. */
static bool moves(const tsri_item *it)
{
    return it->nin == 1 &&
           (it->kind == TSRI_ITEM_VIEW ||
            (it->kind == TSRI_ITEM_KERNEL && tsri_op_def_of(it->kernel.op)->is_exact));
}

/* Finds the variable that each value has elements of, unchanged; -1: none. */
static tsr_status find_variables(const memory_maker *m, tsri_pool *pool, int **out_of)
{
    const tsr_plan *plan = m->plan;
    int *of = tsri_pool_alloc(pool, (size_t)plan->ir.nvalues * sizeof *of);
    TSRI_NEED(of);
    for (int i = 0; i < plan->ir.nvalues; i++)
        of[i] = m->kind[i] == TSRI_MEMORY_PARAMETERS && plan->ir.values[i].source ? i : -1;
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < plan->ir.nitems; i++) {
            const tsri_item *it = &plan->ir.items[i];
            const bool converts = tsri_item_converts(it);
            for (int j = 0; j < it->nout && (converts || moves(it)); j++) {
                const int from = of[it->in[converts ? j : 0]];
                again |= of[it->out[j]] != from;
                of[it->out[j]] = from;
            }
        }
    }
    *out_of = of;
    return TSR_OK;
}

/* Parts and copies of parameters are parameters, too. One that ops read as a cast to fewer bytes is
 * a master, and the cast is the parameter. */
static tsr_status find_masters(memory_maker *m)
{
    tsr_plan *plan = m->plan;
    int *of;
    TSRI_TRY(find_variables(m, &m->pool, &of));
    for (int i = 0; i < plan->ir.nvalues; i++)
        if (of[i] >= 0 && m->kind[tsri_ir_root(&plan->ir, i)] == TSRI_MEMORY_ACTIVATIONS)
            mark(m, i, TSRI_MEMORY_PARAMETERS);
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        if (it->kind != TSRI_ITEM_KERNEL || it->kernel.op != TSRI_OP_CAST || of[it->in[0]] < 0 ||
            tsr_dtype_size(plan->ir.values[it->out[0]].dtype) >=
                tsr_dtype_size(plan->ir.values[it->in[0]].dtype))
            continue;
        m->kind[of[it->in[0]]] = TSRI_MEMORY_MASTERS;
        mark(m, it->out[0], TSRI_MEMORY_PARAMETERS);
    }
    return TSR_OK;
}

static tsr_status categorise(memory_maker *m)
{
    tsr_plan *plan = m->plan;
    for (int i = 0; i < plan->ir.nvalues; i++) {
        const tsri_value *v = &plan->ir.values[i];
        m->kind[i] = (uint8_t)(v->storage == TSRI_STORAGE_VARIABLE ? of_variable(v->variable)
                               : v->storage == TSRI_STORAGE_PORT   ? TSRI_MEMORY_PORTS
                                                                   : TSRI_MEMORY_ACTIVATIONS);
    }
    for (int i = 0; i < plan->ir.nitems; i++)
        if (plan->ir.items[i].kind == TSRI_ITEM_COLLECTIVE)
            for (int j = 0; j < plan->ir.items[i].nout; j++)
                mark(m, plan->ir.items[i].out[j], TSRI_MEMORY_COMMUNICATION);
    find_gradients(m);
    return find_masters(m);
}

/* --- one rank --------------------------------------------------------------------------------- */
typedef struct tally {
    int64_t by[TSRI_MEMORY_KINDS];
} tally;

/* The bytes of a value in the block, with those of its copies. */
static int64_t room_of(const tsri_value *v, int rank)
{
    return (int64_t)tsri_value_room(v, tsri_value_bytes(v, rank));
}

/* Tallies the values of the block that are alive when most bytes are. */
static tsr_status find_peak(memory_maker *m, int rank, tally *out, int *out_entry)
{
    const tsri_ir *ir = &m->plan->ir;
    const size_t n = (size_t)ir->nentries + 1;
    int64_t *change = tsri_mem_alloc(&ir->world->mem, n * sizeof *change), now = 0, most = 0;
    TSRI_NEED(change);
    for (int i = 0; i < ir->nvalues; i++) {
        const tsri_value *v = &ir->values[i];
        if (v->storage != TSRI_STORAGE_ARENA || v->first < 0)
            continue;
        const int64_t bytes = room_of(v, rank);
        change[v->first] += bytes;
        change[v->last + 1] -= bytes;
    }
    *out_entry = -1;
    for (size_t e = 0; e < n; e++)
        if ((now += change[e]) > most) {
            most = now;
            *out_entry = (int)e;
        }
    tsri_mem_free(change);
    for (int i = 0; i < ir->nvalues && *out_entry >= 0; i++) {
        const tsri_value *v = &ir->values[i];
        if (v->storage == TSRI_STORAGE_ARENA && v->first >= 0 && v->first <= *out_entry &&
            v->last >= *out_entry)
            out->by[m->kind[i]] += room_of(v, rank);
    }
    return TSR_OK;
}

static tsr_status look_at(memory_maker *m, tsri_report_memory *to)
{
    tsr_plan *plan = m->plan;
    tally t = {0};
    TSRI_TRY(find_peak(m, to->rank, &t, &to->peak));
    for (int c = 0; c < TSRI_MEMORY_KINDS; c++)
        to->alive += (uint64_t)t.by[c];
    for (int i = 0; i < plan->ir.nvalues; i++)
        if (tsri_value_takes_memory(&plan->ir.values[i]) &&
            plan->ir.values[i].storage != TSRI_STORAGE_ARENA)
            t.by[m->kind[i]] += (int64_t)tsri_value_bytes(&plan->ir.values[i], to->rank);
    to->parameters = (uint64_t)t.by[TSRI_MEMORY_PARAMETERS];
    to->masters = (uint64_t)t.by[TSRI_MEMORY_MASTERS];
    to->buffers = (uint64_t)t.by[TSRI_MEMORY_BUFFERS];
    to->optimizer = (uint64_t)t.by[TSRI_MEMORY_OPTIMIZER];
    to->ports = (uint64_t)t.by[TSRI_MEMORY_PORTS];
    to->gradients = (uint64_t)t.by[TSRI_MEMORY_GRADIENTS];
    to->activations = (uint64_t)t.by[TSRI_MEMORY_ACTIVATIONS];
    to->communication = (uint64_t)t.by[TSRI_MEMORY_COMMUNICATION];
    to->scratch = tsri_plan_scratch(plan);
    for (int c = 0; c < TSRI_MEMORY_KINDS; c++)
        to->total += (uint64_t)t.by[c];
    to->total += to->scratch;
    return TSR_OK;
}

static int by_total(const void *a, const void *b)
{
    const tsri_report_memory *x = a, *y = b;
    return x->total != y->total ? (x->total < y->total) - (x->total > y->total) : x->rank - y->rank;
}

/* Placing takes the square of the values' number: of many classes only the neediest get it. */
static tsr_status add_gaps(memory_maker *m, tsri_report_memory *to)
{
    size_t block, variables, ports;
    TSRI_TRY(tsri_plan_rank_bytes(&m->plan->ir, to->rank, &variables, &ports, &block));
    to->other = block - to->alive;
    to->total += to->other;
    to->exact = true;
    return TSR_OK;
}

static tsr_status look_at_classes(memory_maker *m)
{
    tsri_report *r = m->r;
    /* Where classes are very many, the first ranks' are kept, which hold the largest parts. */
    int most = (int)(4e6 / (m->plan->ir.nvalues + 1));
    most = most > MAX_CLASSES ? most : MAX_CLASSES;
    r->nmemory = r->nmemory < most ? r->nmemory : most;
    for (int i = 0; i < r->nmemory; i++)
        TSRI_TRY(look_at(m, &r->memory[i]));
    qsort(r->memory, (size_t)r->nmemory, sizeof *r->memory, by_total);
    r->nmemory = r->nmemory < MAX_CLASSES ? r->nmemory : MAX_CLASSES;
    double work = (double)m->plan->ir.nvalues * m->plan->ir.nvalues;
    for (int i = 0; i < r->nmemory && (i == 0 || i * work < 5e8); i++)
        TSRI_TRY(add_gaps(m, &r->memory[i]));
    qsort(r->memory, (size_t)r->nmemory, sizeof *r->memory, by_total);
    /* From the number of the class's rank to the class's. */
    int *class_of = tsri_pool_alloc(&m->pool, (size_t)m->plan->ir.world->nranks * sizeof *class_of);
    TSRI_NEED(class_of);
    for (int i = 0; i < m->plan->ir.world->nranks; i++)
        class_of[i] = -1;
    for (int i = 0; i < r->nmemory; i++)
        class_of[r->memory[i].rank] = i;
    for (int i = 0; i < m->plan->ir.world->nranks; i++)
        r->memory_of[i] = class_of[r->memory_of[i]];
    return TSR_OK;
}

tsr_status tsri_report_memory_make(tsr_plan *plan, tsri_report *r)
{
    memory_maker m = {.plan = plan, .r = r};
    tsri_pool_init(&m.pool, &plan->ir.world->mem);
    r->kind_of = m.kind = tsri_pool_alloc(&r->pool, (size_t)plan->ir.nvalues);
    m.key = tsri_pool_alloc(&m.pool, (size_t)plan->ir.world->nranks * sizeof *m.key);
    tsr_status status = m.kind && m.key ? find_keys(&m) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = find_classes(&m);
    if (status == TSR_OK) {
        status = categorise(&m);
        status = status == TSR_OK ? look_at_classes(&m) : status;
    }
    tsri_pool_finish(&m.pool);
    return status;
}
