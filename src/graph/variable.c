/* SPDX-License-Identifier: Apache-2.0 */
/* Variables: their shards, initial values, and global values in and out. */
#include "src/graph/variable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/comm/comm.h"
#include "src/core/dims.h"
#include "src/core/live.h"
#include "src/core/rng.h"
#include "src/comm/agree.h"
#include "src/core/convert.h"
#include "placement/placement.h"

/* --- whose they are --------------------------------------------------------------------------- */
tsr_status tsri_variable_check_local(const tsr_variable *v)
{
    int rank = v->world->rank;
    if (tsr_placement_nranks(v->placement) == 1 && tsr_placement_rank(v->placement, 0) == rank)
        return TSR_OK;
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    return tsri_fail(TSR_ERR_PLACEMENT,
                     "variable %s lives on %s; everything in a module of rank %d's own lives on "
                     "%s:[%d]",
                     name, tsr_placement_text(v->placement), rank,
                     tsr_device_name(tsr_placement_device(v->placement)), rank);
}

/* --- making ----------------------------------------------------------------------------------- */
static tsr_status check_init(tsr_dtype dtype, tsr_dims dims, tsr_init init)
{
    if (init.kind < TSR_INIT_ZEROS || init.kind > TSR_INIT_XAVIER_NORMAL)
        return tsri_fail(TSR_ERR_INVALID, "%d is no tsr_init_kind", (int)init.kind);
    if (init.kind >= TSR_INIT_KAIMING_UNIFORM && dims.ndim < 2)
        return tsri_fail(TSR_ERR_SHAPE,
                         "kaiming and xavier need at least 2 axes (out, in, ...) to tell the fans; "
                         "found %d",
                         dims.ndim);
    bool is_drawn = init.kind >= TSR_INIT_UNIFORM;
    bool fits = tsri_is_float(dtype) || (!is_drawn && init.a >= 0 && init.a <= 127);
    if (!fits)
        return tsri_fail(
            TSR_ERR_DTYPE,
            "%s variables start from zeros, ones or a constant from 0 to 127; then set "
            "them with tsr_variable_set",
            tsr_dtype_name(dtype));
    if (!isfinite(init.a) || !isfinite(init.b))
        return tsri_fail(TSR_ERR_INVALID, "initial values' a = %g, b = %g must be finite", init.a,
                         init.b);
    return TSR_OK;
}

tsr_status tsri_variable_create(tsr_world *world, const char *name, const tsr_placement *placement,
                                tsr_dtype dtype, tsr_dims dims, tsr_sbp sbp, tsr_init init,
                                tsr_variable **out_variable)
{
    if (dims.ndim < 0 || dims.ndim > TSR_MAX_NDIM)
        return tsri_fail(TSR_ERR_SHAPE, "%d axes; at most %d are possible", dims.ndim,
                         TSR_MAX_NDIM);
    for (int i = 0; i < dims.ndim; i++)
        if (dims.d[i] < 0)
            return tsri_fail(TSR_ERR_SHAPE, "axis %d is %lld; sizes are >= 0", i,
                             (long long)dims.d[i]);
    if (!tsri_dims_fit(dims))
        return tsri_fail(TSR_ERR_SHAPE, "more than 2^56 elements");
    for (int i = dims.ndim; i < TSR_MAX_NDIM; i++)
        dims.d[i] = 0;
    TSRI_TRY(tsri_placement_check(world, placement, "variable"));
    TSRI_TRY(tsri_sbp_check(placement, dims, sbp, false));
    TSRI_TRY(check_init(dtype, dims, init));
    tsr_variable *v = tsri_live_alloc(&world->mem, sizeof *v, TSRI_LIVE_VARIABLE);
    char *copy = tsri_mem_strdup(&world->mem, name);
    if (!v || !copy) {
        tsri_mem_free(copy);
        tsri_live_free(v, TSRI_LIVE_VARIABLE);
        return TSR_ERR_NO_MEMORY;
    }
    v->world = world;
    v->name = copy;
    v->dtype = dtype;
    v->shape = dims;
    v->placement = placement;
    v->sbp = sbp;
    v->init = init;
    *out_variable = v;
    return TSR_OK;
}

void tsri_variable_finish(tsr_variable *v)
{
    if (v->data)
        v->device->ops->buffer_free(v->device, v->data, v->bytes);
    v->data = NULL;
    v->held = TSR_AUTO;
    v->ready = false;
}

void tsri_variable_destroy(tsr_variable *v)
{
    if (!v)
        return;
    if (!v->world->ends) /* else graphs and plans go too */
        tsri_world_tell_gone(v->world, v);
    tsri_variable_finish(v);
    tsri_mem_free((void *)(uintptr_t)v->name);
    tsri_live_free(v, TSRI_LIVE_VARIABLE);
}

tsr_dims tsr_variable_dims(const tsr_variable *v)
{
    return tsri_is_live(v, TSRI_LIVE_VARIABLE, __func__) ? v->shape : (tsr_dims){0};
}

tsr_dims tsri_variable_saved_dims(const tsr_variable *v)
{
    return v->saved.ndim ? v->saved : v->shape;
}

tsr_status tsr_variable_save_as(tsr_variable *v, tsr_dims dims)
{
    char name[TSRI_NAME_MAX], here[TSRI_DIMS_TEXT_MAX], there[TSRI_DIMS_TEXT_MAX];
    if (!v)
        return tsri_fail(TSR_ERR_INVALID, "%s: the variable is NULL%s", __func__,
                         tsri_error_cause());
    TSRI_TRY(tsri_live_check(v, TSRI_LIVE_VARIABLE, __func__));
    bool legal = dims.ndim > 0 && dims.ndim <= TSR_MAX_NDIM;
    for (int i = 0; i < dims.ndim && legal; i++)
        legal = dims.d[i] >= 0;
    if (!legal || !tsri_dims_fit(dims) || tsr_dims_count(dims) != tsr_dims_count(v->shape)) {
        tsri_variable_qualified_name(v, name, sizeof name);
        return tsri_fail(TSR_ERR_SHAPE, "%s: %s has shape (%s); it cannot be saved as (%s)",
                         __func__, name, tsri_dims_format(v->shape, here),
                         legal ? tsri_dims_format(dims, there) : "?");
    }
    v->saved = dims;
    return TSR_OK;
}

tsr_status tsr_variable_set_role(tsr_variable *v, tsr_role role, int axis)
{
    char name[TSRI_NAME_MAX], dims[TSRI_DIMS_TEXT_MAX];
    if (!v)
        return tsri_fail(TSR_ERR_INVALID, "%s: the variable is NULL%s", __func__,
                         tsri_error_cause());
    TSRI_TRY(tsri_live_check(v, TSRI_LIVE_VARIABLE, __func__));
    if ((int)role < TSR_ROLE_NONE || role > TSR_ROLE_NORM)
        return tsri_fail(TSR_ERR_INVALID, "%s: there is no role %d", __func__, (int)role);
    if (axis < 0 || axis >= v->shape.ndim) {
        tsri_variable_qualified_name(v, name, sizeof name);
        return tsri_fail(TSR_ERR_INVALID, "%s: %s has shape (%s), and no axis %d", __func__, name,
                         tsri_dims_format(v->shape, dims), axis);
    }
    v->role.kind = role;
    v->role.axis = axis;
    return TSR_OK;
}

tsr_dtype tsr_variable_dtype(const tsr_variable *v)
{
    return tsri_is_live(v, TSRI_LIVE_VARIABLE, __func__) ? v->dtype : TSR_DTYPE_NONE;
}

tsr_sbp tsr_variable_sbp(const tsr_variable *v)
{
    return tsri_is_live(v, TSRI_LIVE_VARIABLE, __func__) ? v->sbp : TSR_AUTO;
}

bool tsr_variable_trainable(const tsr_variable *v)
{
    return tsri_is_live(v, TSRI_LIVE_VARIABLE, __func__) && v->trainable;
}

/* --- shards ----------------------------------------------------------------------------------- */
/* Whether each rank of the placement holds all of a value in this signature. */
static bool is_whole(const tsr_placement *p, tsr_sbp sbp)
{
    bool is = true;
    for (int i = 0; i < sbp.ndim; i++)
        is &= sbp.d[i].kind == TSR_SBP_BROADCAST || tsr_placement_dim(p, i) == 1;
    return is;
}

bool tsri_variable_can_move(const tsr_variable *v)
{
    return !v->held.ndim || !v->given || is_whole(v->placement, v->held);
}

/* Whether this rank's shard would be what it holds. */
static bool is_same_shard(const tsr_variable *v, tsr_sbp sbp)
{
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM];
    tsri_shard(v->shape, v->placement, sbp, v->world->rank, &lshape, offset);
    return tsr_dims_equal(lshape, v->lshape) && !memcmp(offset, v->offset, sizeof offset);
}

/* Takes memory for the shard in `sbp`. */
static tsr_status take_shard(tsr_variable *v, tsr_sbp sbp)
{
    tsri_shard(v->shape, v->placement, sbp, v->world->rank, &v->lshape, v->offset);
    bool is_here = tsr_placement_find(v->placement, v->world->rank) >= 0;
    v->bytes = is_here ? (size_t)tsr_dims_count(v->lshape) * tsr_dtype_size(v->dtype) : 0;
    v->held = sbp;
    tsri_variable_wrote(v);
    if (!v->bytes || v->world->is_virtual)
        return TSR_OK;
    tsr_status status = tsri_device_get(v->world, tsr_placement_device(v->placement), &v->device);
    if (status == TSR_OK)
        status = v->device->ops->buffer_alloc(v->device, v->bytes, &v->data);
    if (status == TSR_OK)
        return TSR_OK;
    v->held = TSR_AUTO;
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    return tsri_fail_prefix(status, "variable %s", name);
}

/* Puts this rank's part of a global value into its shard. */
static tsr_status write_part(tsr_variable *v, const char *global)
{
    size_t size = tsr_dtype_size(v->dtype);
    int64_t runs = 0, length = v->data ? tsri_shard_runs(v->shape, v->lshape, &runs) : 0;
    for (int64_t i = 0; i < runs; i++) {
        int64_t at = tsri_shard_run_at(v->shape, v->lshape, v->offset, i);
        TSRI_TRY(tsri_variable_write(v, (size_t)(i * length) * size, global + (size_t)at * size,
                                     (size_t)length * size));
    }
    return TSR_OK;
}

/* Cuts the shard in `sbp` out of the whole, which this rank holds. */
static tsr_status cut_shard(tsr_variable *v, tsr_sbp sbp)
{
    tsr_variable old = *v;
    char *global = tsri_mem_alloc(&v->world->mem, old.bytes);
    tsr_status status = global ? tsri_variable_read(v, 0, global, old.bytes) : TSR_ERR_NO_MEMORY;
    v->data = NULL;
    if (status == TSR_OK)
        status = take_shard(v, sbp);
    if (status == TSR_OK)
        status = write_part(v, global);
    tsri_mem_free(global);
    if (status != TSR_OK) {
        if (v->data)
            v->device->ops->buffer_free(v->device, v->data, v->bytes);
        *v = old;
    } else if (old.data) {
        old.device->ops->buffer_free(old.device, old.data, old.bytes);
    }
    return status;
}

/* Brings what there is into `sbp`; an initial value that lies otherwise is dropped. */
static tsr_status hold_in(tsr_variable *v, tsr_sbp sbp)
{
    if (v->held.ndim && is_same_shard(v, sbp) && !tsri_variable_adds_up(v)) {
        v->held = sbp;
        return v->given ? tsri_variable_keep_addend(v) : TSR_OK;
    }
    if (tsr_sbp_equal(v->held, sbp))
        return TSR_OK;
    if (v->held.ndim && v->given) {
        if (is_whole(v->placement, v->held))
            return cut_shard(v, sbp);
        char name[TSRI_NAME_MAX], from[TSR_SBP_TEXT_MAX], to[TSR_SBP_TEXT_MAX];
        tsri_variable_qualified_name(v, name, sizeof name);
        return tsri_fail(TSR_ERR_INTERNAL, "variable %s is held in %s; it can't move to %s", name,
                         tsr_sbp_format(v->held, from), tsr_sbp_format(sbp, to));
    }
    tsri_variable_finish(v);
    return take_shard(v, sbp);
}

/* The signature that preparing the variable brings it into. */
static tsr_sbp prepared_sbp(const tsr_variable *v)
{
    return v->sbp.ndim    ? v->sbp
           : v->held.ndim ? v->held
                          : tsri_sbp_b(tsr_placement_ndim(v->placement));
}

tsr_status tsri_variable_place(tsr_variable *v)
{
    bool stays = v->held.ndim && v->given;
    return hold_in(v, v->sbp.ndim ? v->sbp
                      : stays     ? v->held
                                  : tsri_sbp_b(tsr_placement_ndim(v->placement)));
}

/* --- initial values --------------------------------------------------------------------------- */
/* A distribution: low + width*u of a uniform u in [0, 1), or low + width*z of a standard normal z.
 */
typedef struct init_law {
    bool is_random, is_normal;
    double low, width;
} init_law;

/* torch.nn.init's kaiming_* (with the gain of leaky_relu of slope a: sqrt(2 / (1 + a^2))), after He
 * et al. 2015, and xavier_*, after Glorot and Bengio 2010. */
static init_law law_by_fans(tsr_dims shape, tsr_init init)
{
    double rest = 1;
    for (int i = 2; i < shape.ndim; i++)
        rest *= (double)shape.d[i];
    double fan_in = (double)shape.d[1] * rest, fan_out = (double)shape.d[0] * rest;
    bool kaiming = init.kind == TSR_INIT_KAIMING_UNIFORM || init.kind == TSR_INIT_KAIMING_NORMAL;
    double std = 0;
    if (kaiming) {
        double fan = init.fan_out ? fan_out : fan_in;
        std = fan > 0 ? sqrt(2 / (1 + init.a * init.a)) / sqrt(fan) : 0;
    } else if (fan_in + fan_out > 0) {
        std = (init.a != 0 ? init.a : 1) * sqrt(2 / (fan_in + fan_out));
    }
    if (init.kind == TSR_INIT_KAIMING_NORMAL || init.kind == TSR_INIT_XAVIER_NORMAL)
        return (init_law){true, true, 0, std};
    double bound = sqrt(3) * std;
    return (init_law){true, false, -bound, 2 * bound};
}

static init_law law_of(tsr_dims shape, tsr_init init)
{
    switch (init.kind) {
    case TSR_INIT_ZEROS:
        return (init_law){0};
    case TSR_INIT_ONES:
        return (init_law){.low = 1};
    case TSR_INIT_CONSTANT:
        return (init_law){.low = init.a};
    case TSR_INIT_UNIFORM:
        return (init_law){true, false, init.a, init.b - init.a};
    case TSR_INIT_NORMAL:
        return (init_law){true, true, init.a, init.b};
    default:
        return law_by_fans(shape, init);
    }
}

static tsr_status store(void *dst, tsr_dtype dtype, const double *values, int64_t n)
{
    switch (dtype) {
    case TSR_I64:
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)dst)[i] = (int64_t)values[i];
        return TSR_OK;
    case TSR_I32:
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)dst)[i] = (int32_t)values[i];
        return TSR_OK;
    case TSR_U8:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)dst)[i] = (uint8_t)values[i];
        return TSR_OK;
    case TSR_BOOL:
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)dst)[i] = values[i] != 0;
        return TSR_OK;
    default:
        return tsri_convert(dst, dtype, values, TSR_F64, n);
    }
}

/* Zeroes what the n values from element `at` of the global value on have of the variable's row of
 * zeros. */
static void clear_row(const tsr_variable *v, int64_t at, int64_t n, double *values)
{
    const int64_t length = tsr_dims_count(v->shape) / v->shape.d[0];
    for (int64_t j = 0; j < n; j++)
        if ((at + j) / length == v->zero_row - 1)
            values[j] = 0;
}

static tsr_status fill_run(tsr_variable *v, const init_law *law, uint64_t key, int64_t at,
                           int64_t n, char *dst)
{
    enum { CHUNK = 256 };
    double values[CHUNK] = {0};
    size_t size = tsr_dtype_size(v->dtype);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        if (law->is_random && law->is_normal)
            tsri_rng_normals(key, 0, (uint64_t)(at + i), m, values);
        else if (law->is_random)
            tsri_rng_uniforms(key, 0, (uint64_t)(at + i), m, values);
        for (int64_t j = 0; j < m; j++)
            values[j] = law->low + law->width * (law->is_random ? values[j] : 0);
        if (v->zero_row)
            clear_row(v, at + i, m, values);
        TSRI_TRY(store(dst + (size_t)i * size, v->dtype, values, m));
    }
    return TSR_OK;
}

tsr_status tsri_variable_prepare(tsr_variable *v)
{
    TSRI_TRY(hold_in(v, prepared_sbp(v)));
    if (v->ready)
        return TSR_OK;
    if (v->data && v->init.kind != TSR_INIT_ZEROS) {
        char name[TSRI_NAME_MAX];
        tsri_variable_qualified_name(v, name, sizeof name);
        /* The counter is the element's index in the global value, so that every placement and
         * signature gives the same values. */
        uint64_t key = tsri_rng_key(v->seed, name);
        init_law law = law_of(v->shape, v->init);
        int64_t runs, length = tsri_shard_runs(v->shape, v->lshape, &runs);
        size_t run_bytes = (size_t)length * tsr_dtype_size(v->dtype);
        /* Memory that the host does not see is filled by way of the host's. */
        bool is_seen = !v->device->stream;
        tsri_variable_wrote(v);
        char *to = is_seen ? v->data : tsri_mem_alloc(&v->world->mem, v->bytes);
        tsr_status status = to ? TSR_OK : TSR_ERR_NO_MEMORY;
        for (int64_t i = 0; i < runs && status == TSR_OK; i++)
            status = fill_run(v, &law, key, tsri_shard_run_at(v->shape, v->lshape, v->offset, i),
                              length, to + (size_t)i * run_bytes);
        if (status == TSR_OK && !is_seen)
            status = tsri_variable_write(v, 0, to, v->bytes);
        if (!is_seen)
            tsri_mem_free(to);
        TSRI_TRY(status);
    }
    v->ready = true;
    return TSR_OK;
}

/* --- global values ---------------------------------------------------------------------------- */
static tsr_status check_access(const tsr_variable *v, const void *data, size_t bytes,
                               const char *who)
{
    if (!v || !data)
        return tsri_fail(TSR_ERR_INVALID, "%s: the %s is NULL", who, v ? "data" : "variable");
    TSRI_TRY(tsri_live_check(v, TSRI_LIVE_VARIABLE, who));
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    if (v->world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "%s '%s': a virtual world has no data", who, name);
    size_t expected = (size_t)tsr_dims_count(v->shape) * tsr_dtype_size(v->dtype);
    if (bytes != expected)
        return tsri_fail(TSR_ERR_SHAPE, "%s '%s': %zu bytes given; its %lld elements of %s are %zu",
                         who, name, bytes, (long long)tsr_dims_count(v->shape),
                         tsr_dtype_name(v->dtype), expected);
    return TSR_OK;
}

tsr_status tsr_variable_set(tsr_variable *v, const void *data, size_t bytes)
{
    TSRI_TRY(check_access(v, data, bytes, "tsr_variable_set"));
    TSRI_TRY(tsri_variable_place(v));
    TSRI_TRY(write_part(v, data));
    TSRI_TRY(tsri_variable_keep_addend(v));
    v->ready = v->given = true;
    return TSR_OK;
}

/* Puts bytes [begin, begin + n) of rank's shard where they belong in the global value, or adds them
 * to what is there. */
static tsr_status scatter_part(const tsr_variable *v, int rank, size_t begin, size_t n,
                               const char *part, char *global)
{
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM], runs;
    tsri_shard(v->shape, v->placement, prepared_sbp(v), rank, &lshape, offset);
    size_t size = tsr_dtype_size(v->dtype);
    size_t run_bytes = (size_t)tsri_shard_runs(v->shape, lshape, &runs) * size;
    for (size_t done = 0; done < n;) {
        size_t within = (begin + done) % run_bytes;
        size_t m = run_bytes - within < n - done ? run_bytes - within : n - done;
        int64_t at =
            tsri_shard_run_at(v->shape, lshape, offset, (int64_t)((begin + done) / run_bytes));
        char *to = global + (size_t)at * size + within;
        if (tsri_variable_is_first_addend(v, rank))
            memcpy(to, part + done, m);
        else
            TSRI_TRY(tsri_add_elements(v->dtype, to, part + done, (int64_t)(m / size)));
        done += m;
    }
    return TSR_OK;
}

static size_t shard_bytes(const tsr_variable *v, int rank)
{
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM];
    if (tsr_placement_find(v->placement, rank) < 0)
        return 0;
    tsri_shard(v->shape, v->placement, prepared_sbp(v), rank, &lshape, offset);
    return (size_t)tsr_dims_count(lshape) * tsr_dtype_size(v->dtype);
}

/* Whether every rank of the world that wants it has the whole value, so that nobody needs to ask.
 */
static bool is_everywhere(const tsr_variable *v)
{
    bool all = tsr_placement_nranks(v->placement) == v->world->nranks;
    return (all || tsri_scope_is_local(v->scope)) && is_whole(v->placement, prepared_sbp(v));
}

/* Ranks show each other their shards, in pieces as large as an exchange takes. */
static tsr_status exchange_shards(tsr_variable *v, size_t largest, size_t piece, char *all,
                                  char *data)
{
    tsri_comm *comm = v->world->comm;
    char *mine = all + (size_t)v->world->nranks * piece;
    for (size_t begin = 0; begin < largest; begin += piece) {
        if (begin < v->bytes)
            TSRI_TRY(tsri_variable_read(v, begin, mine,
                                        v->bytes - begin < piece ? v->bytes - begin : piece));
        TSRI_TRY(comm->ops->exchange(comm, mine, piece, all));
        for (int i = 0; data && i < tsr_placement_nranks(v->placement); i++) {
            const int r = tsr_placement_rank(v->placement, i);
            const size_t bytes = shard_bytes(v, r);
            if (begin < bytes)
                TSRI_TRY(scatter_part(v, r, begin, bytes - begin < piece ? bytes - begin : piece,
                                      all + (size_t)r * piece, data));
        }
    }
    return TSR_OK;
}

tsr_status tsri_variable_gather(tsr_variable *v, void *data)
{
    enum { EXCHANGE_MAX = 65536 };
    if (tsri_scope_is_local(v->scope))
        TSRI_TRY(tsri_variable_check_local(v));
    tsr_status status = tsri_variable_prepare(v);
    if (is_everywhere(v)) {
        return status == TSR_OK && data ? tsri_variable_read(v, 0, data, v->bytes) : status;
    }
    size_t largest = 0;
    for (int r = 0; r < v->world->nranks; r++) {
        size_t bytes = shard_bytes(v, r);
        largest = bytes > largest ? bytes : largest;
    }
    size_t piece = largest < EXCHANGE_MAX ? largest : EXCHANGE_MAX;
    char *all = NULL;
    if (status == TSR_OK &&
        !(all = tsri_mem_alloc(&v->world->mem, ((size_t)v->world->nranks + 1) * piece)))
        status = TSR_ERR_NO_MEMORY;
    status = tsri_agree(v->world, status);
    if (status == TSR_OK)
        status = exchange_shards(v, largest, piece, all, data);
    tsri_mem_free(all);
    return status;
}

tsr_status tsr_variable_get(tsr_variable *v, void *data, size_t bytes)
{
    TSRI_TRY(check_access(v, data, bytes, "tsr_variable_get"));
    return tsri_variable_gather(v, data);
}
