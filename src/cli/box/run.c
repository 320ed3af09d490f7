/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera box --run`: the conversion on thread ranks, against the definition of the signatures,
 * which is written down here once more, element by element. */
#include "src/cli/box/box.h"
#include "src/comm/comm.h"
#include "src/core/convert.h"
#include "src/core/rng.h"

#include <tessera/graph.h>

#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 26 };

/* The part of a tensor that one rank holds: by the definition. */
typedef struct part {
    tsr_dims shape;
    int64_t offset[TSR_MAX_NDIM];
    int addend, copy; /* its place among those that add up, and among those that are equal */
} part;

typedef struct job {
    const box *b;
    uint64_t *read;
    double **result; /* per rank: what it fetched; NULL outside the destination */
    tsr_dims *shape; /* of it */
} job;

/* --- the definition --------------------------------------------------------------------------- */
static part part_of(const box *b, const box_end *end, int index)
{
    part p = {.shape = b->shape};
    int below = tsr_placement_nranks(end->placement);
    for (int d = 0; d < end->sbp.ndim; d++) {
        int k = tsr_placement_dim(end->placement, d);
        below /= k;
        int at = index / below % k;
        int64_t offset, length;
        switch ((tsr_sbp_kind)end->sbp.d[d].kind) {
        case TSR_SBP_SPLIT:
            tsr_balanced_split(p.shape.d[end->sbp.d[d].arg], k, at, &offset, &length);
            p.offset[end->sbp.d[d].arg] += offset;
            p.shape.d[end->sbp.d[d].arg] = length;
            break;
        case TSR_SBP_PARTIAL:
            p.addend = p.addend * k + at;
            break;
        default:
            p.copy = p.copy * k + at;
        }
    }
    return p;
}

static int reduce_op(tsr_sbp sbp, int *out_addends, const tsr_placement *place)
{
    int op = TSR_REDUCE_SUM;
    *out_addends = 1;
    for (int d = 0; d < sbp.ndim; d++)
        if (sbp.d[d].kind == TSR_SBP_PARTIAL) {
            op = sbp.d[d].arg;
            *out_addends *= tsr_placement_dim(place, d);
        }
    return op;
}

static double reduce(int op, double a, double b)
{
    if (op == TSR_REDUCE_SUM)
        return a + b;
    return op == TSR_REDUCE_MAX ? (a > b ? a : b) : (a < b ? a : b);
}

/* Small whole numbers, so that no dtype rounds, in any order. */
static double addend_value(tsr_dtype dtype, int64_t element, int addend)
{
    int v = (int)(tsri_rng_word(0, (uint64_t)addend, (uint64_t)element) >> 16);
    return dtype == TSR_DTYPE_BOOL ? v % 5 == 0 : dtype == TSR_DTYPE_U8 ? v % 2 : v % 3 - 1;
}

static double global_value(const box *b, int64_t element)
{
    int addends, op = reduce_op(b->from.sbp, &addends, b->from.placement);
    double v = addend_value(b->dtype, element, 0);
    for (int i = 1; i < addends; i++)
        v = reduce(op, v, addend_value(b->dtype, element, i));
    return v;
}

/* The global index of the i-th element of a part. */
static int64_t global_index(const box *b, const part *p, int64_t i)
{
    int64_t at[TSR_MAX_NDIM], index = 0;
    for (int a = b->shape.ndim - 1; a >= 0; a--) {
        at[a] = p->offset[a] + i % p->shape.d[a];
        i /= p->shape.d[a];
    }
    for (int a = 0; a < b->shape.ndim; a++)
        index = index * b->shape.d[a] + at[a];
    return index;
}

/* --- dtypes ----------------------------------------------------------------------------------- */
static tsr_status encode(tsr_dtype dtype, const double *from, int64_t n, void *to)
{
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case TSR_DTYPE_I64:
            ((int64_t *)to)[i] = (int64_t)from[i];
            break;
        case TSR_DTYPE_I32:
            ((int32_t *)to)[i] = (int32_t)from[i];
            break;
        case TSR_DTYPE_U8:
        case TSR_DTYPE_BOOL:
            ((uint8_t *)to)[i] = (uint8_t)from[i];
            break;
        default:
            return tsri_convert(to, dtype, from, TSR_DTYPE_F64, n);
        }
    return TSR_OK;
}

static tsr_status decode(tsr_dtype dtype, const void *from, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case TSR_DTYPE_I64:
            to[i] = (double)((const int64_t *)from)[i];
            break;
        case TSR_DTYPE_I32:
            to[i] = ((const int32_t *)from)[i];
            break;
        case TSR_DTYPE_U8:
        case TSR_DTYPE_BOOL:
            to[i] = ((const uint8_t *)from)[i];
            break;
        default:
            return tsri_convert(to, TSR_DTYPE_F64, from, dtype, n);
        }
    return TSR_OK;
}

/* --- on a rank -------------------------------------------------------------------------------- */
static tsr_status feed(const box *b, tsr_plan *plan, int index)
{
    part p = part_of(b, &b->from, index);
    int64_t n = tsr_dims_count(p.shape);
    size_t bytes = (size_t)n * b->query.element;
    double *values = malloc((size_t)n * sizeof *values + 1);
    void *data = malloc(bytes + 1);
    tsr_status status = values && data ? TSR_OK : tsr_set_error(TSR_ERR_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < n && status == TSR_OK; i++) {
        values[i] = addend_value(b->dtype, global_index(b, &p, i), p.addend);
        /* The first of equal copies counts, whatever the others say. */
        if (p.copy > 0)
            values[i] = b->dtype == TSR_DTYPE_BOOL ? values[i] == 0 : values[i] + 1;
    }
    if (status == TSR_OK)
        status = encode(b->dtype, values, n, data);
    if (status == TSR_OK)
        status = tsr_feed_shard(plan, "x", data, bytes);
    free(values);
    free(data);
    return status;
}

static tsr_status fetch(const box *b, tsr_plan *plan, double **out_values, tsr_dims *out_shape)
{
    TSRI_TRY(tsr_fetch_shard(plan, "y", NULL, 0, out_shape));
    int64_t n = tsr_dims_count(*out_shape);
    size_t bytes = (size_t)n * b->query.element;
    double *values = malloc((size_t)n * sizeof *values + 1);
    void *data = malloc(bytes + 1);
    tsr_status status = values && data ? TSR_OK : tsr_set_error(TSR_ERR_NO_MEMORY, "out of memory");
    if (status == TSR_OK)
        status = tsr_fetch_shard(plan, "y", data, bytes, NULL);
    if (status == TSR_OK)
        status = decode(b->dtype, data, n, values);
    free(data);
    if (status == TSR_OK)
        *out_values = values;
    else
        free(values);
    return status;
}

/* Bytes read from peers so far, but for what handing out first copies takes: from_local's own. */
static uint64_t bytes_read(tsr_world *world)
{
    tsri_comm_stats s;
    uint64_t sum = 0;
    world->comm->ops->stats(world->comm, &s);
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++)
        sum += k == TSRI_COLL_BROADCAST || k == TSRI_COLL_BARRIER ? 0 : s.bytes_read[k];
    return sum;
}

static tsr_status run_on_rank(tsr_world *world, void *arg)
{
    job *j = arg;
    const box *b = j->b;
    int rank = tsr_world_rank(world);
    const tsr_placement *from = tsr_placement_parse(world, tsr_placement_text(b->from.placement));
    const tsr_placement *to = tsr_placement_parse(world, tsr_placement_text(b->to.placement));
    if (!from || !to) /* to_global would take its operand's placement */
        return TSR_ERR_NO_MEMORY;
    tsr_graph *g = tsr_graph_create(world, NULL);
    tsr_tensor *x = tsr_from_local_at(g, "x", b->dtype, b->shape, from, b->from.sbp, NULL, 0);
    tsr_tensor *y = tsr_to_global_at(x, to, b->to.sbp, NULL, 0);
    tsr_to_local_at(g, "y", y, NULL, 0);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile_with(g, &b->opts, &plan));
    int index = tsr_placement_find(from, rank);
    if (index >= 0)
        TSRI_TRY(feed(b, plan, index));
    uint64_t before = bytes_read(world);
    TSRI_TRY(tsr_run(plan));
    j->read[rank] = bytes_read(world) - before;
    if (tsr_placement_find(to, rank) >= 0)
        TSRI_TRY(fetch(b, plan, &j->result[rank], &j->shape[rank]));
    return TSR_OK;
}

/* --- comparing -------------------------------------------------------------------------------- */
static void check_part(const job *j, int index, const double *expected, box_run *run)
{
    const box *b = j->b;
    int addends, op = reduce_op(b->to.sbp, &addends, b->to.placement);
    int rank = tsr_placement_rank(b->to.placement, index), nranks;
    part p = part_of(b, &b->to, index);
    nranks = tsr_placement_nranks(b->to.placement);
    if (!tsr_dims_equal(p.shape, j->shape[rank])) {
        snprintf(run->wrong, sizeof run->wrong, "rank %d has a part of another shape", rank);
        return;
    }
    if (p.addend > 0)
        return; /* together with the first addend */
    for (int64_t i = 0; i < tsr_dims_count(p.shape); i++) {
        double v = j->result[rank][i];
        for (int other = 0; other < nranks && addends > 1; other++) {
            part q = part_of(b, &b->to, other);
            if (other != index && q.copy == p.copy && tsr_dims_equal(q.shape, p.shape) &&
                !memcmp(q.offset, p.offset, sizeof q.offset))
                v = reduce(op, v, j->result[tsr_placement_rank(b->to.placement, other)][i]);
        }
        int64_t element = global_index(b, &p, i);
        run->elements++;
        if (v != expected[element]) {
            snprintf(run->wrong, sizeof run->wrong,
                     "rank %d, element %lld of the whole: %g; expected %g", rank,
                     (long long)element, v, expected[element]);
            return;
        }
    }
}

static tsr_status check(const job *j, box_run *run)
{
    const box *b = j->b;
    int64_t n = tsr_dims_count(b->shape);
    double *expected = malloc((size_t)n * sizeof *expected + 1);
    if (!expected)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < n; i++)
        expected[i] = global_value(b, i);
    for (int i = 0; i < tsr_placement_nranks(b->to.placement) && !run->wrong[0]; i++)
        check_part(j, i, expected, run);
    free(expected);
    return TSR_OK;
}

static tsr_status alloc(const box *b, job *j, box_run *run)
{
    size_t n = (size_t)b->nranks;
    run->read = calloc(n, sizeof *run->read);
    run->planned = calloc(n, sizeof *run->planned);
    j->result = calloc(n, sizeof *j->result);
    j->shape = calloc(n, sizeof *j->shape);
    j->read = run->read;
    return run->read && run->planned && j->result && j->shape
               ? TSR_OK
               : tsr_set_error(TSR_ERR_NO_MEMORY, "out of memory");
}

tsr_status box_run_on_threads(const box *b, box_run *run)
{
    job j = {.b = b};
    if (tsr_dims_count(b->shape) > MOST_ELEMENTS)
        return tsr_set_error(TSR_ERR_UNSUPPORTED,
                             "--run checks up to %d elements; the tensor has %lld", MOST_ELEMENTS,
                             (long long)tsr_dims_count(b->shape));
    tsr_status status = alloc(b, &j, run);
    for (int r = 0; r < b->nranks && status == TSR_OK; r++)
        for (int i = 0; i < b->route.n; i++)
            run->planned[r] += (uint64_t)tsri_step_bytes(&b->query, &b->route.step[i], r);
    if (status == TSR_OK)
        status = tsr_spawn(b->nranks, run_on_rank, &j);
    if (status == TSR_OK)
        status = check(&j, run);
    for (int r = 0; r < b->nranks && j.result; r++)
        free(j.result[r]);
    free(j.result);
    free(j.shape);
    return status;
}

void box_run_finish(box_run *run)
{
    free(run->read);
    free(run->planned);
}
