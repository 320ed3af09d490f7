/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement.h"

#include <stdio.h>
#include <string.h>

#include "src/core/live.h"

/* All placements of a world. They live in one pool and go together. */
typedef struct registry {
    tsri_owned owned;
    tsri_pool pool;
    tsr_placement *first;
} registry;

const char *tsr_device_name(tsr_device device)
{
    const tsri_target *target = tsri_target_of(device);
    return target ? target->name : "?";
}

static void registry_destroy(void *object)
{
    registry *reg = object;
    for (const tsr_placement *p = reg->first; p; p = p->next)
        tsri_live_remove(p, TSRI_LIVE_PLACEMENT);
    tsri_pool_finish(&reg->pool);
    tsri_mem_free(reg);
}

static tsr_status get_registry(tsr_world *world, registry **out_registry)
{
    if (!world->placements) {
        registry *reg = tsri_mem_alloc(&world->mem, sizeof *reg);
        TSRI_NEED(reg);
        tsri_pool_init(&reg->pool, &world->mem);
        /* Last, so that placements outlive whatever else the world owns: a graph may be older than
         * the placements of its tensors. */
        tsri_world_own_last(world, &reg->owned, reg, registry_destroy);
        world->placements = reg;
    }
    *out_registry = world->placements;
    return TSR_OK;
}

/* Writes "cpu:[[0,1],[2,3]]": a bracket opens or closes wherever a row of some dimension does. */
static const char *make_text(tsri_pool *pool, const tsr_placement *p)
{
    /* Per rank at most ten digits, a comma, and the brackets of every dimension. */
    size_t room = 16 + (size_t)p->nranks * (11 + 2 * TSR_MAX_HIERARCHY), at;
    char *text = tsri_mem_alloc(&p->world->mem, room);
    if (!text)
        return NULL;
    at = (size_t)snprintf(text, room, "%s:", tsr_device_name(p->device));
    for (int i = 0; i < p->nranks; i++) {
        if (i)
            text[at++] = ',';
        for (int d = p->ndim - 1, row = 1; d >= 0; d--) {
            row *= p->dim[d];
            if (i % row == 0)
                text[at++] = '[';
        }
        at += (size_t)snprintf(text + at, room - at, "%d", p->ranks[i]);
        for (int d = p->ndim - 1, row = 1; d >= 0; d--) {
            row *= p->dim[d];
            if ((i + 1) % row == 0)
                text[at++] = ']';
        }
    }
    text[at] = 0;
    const char *kept = tsri_pool_strdup(pool, text);
    tsri_mem_free(text);
    return kept;
}

tsr_status tsri_placement_intern(tsr_world *world, tsr_device device, int ndim, const int *dim,
                                 const int *ranks, const tsr_placement **out_placement)
{
    registry *reg;
    TSRI_TRY(get_registry(world, &reg));
    int nranks = 1;
    for (int d = 0; d < ndim; d++)
        nranks *= dim[d];
    for (const tsr_placement *p = reg->first; p; p = p->next)
        if (p->device == device && p->ndim == ndim && p->nranks == nranks &&
            !memcmp(p->dim, dim, (size_t)ndim * sizeof *dim) &&
            !memcmp(p->ranks, ranks, (size_t)nranks * sizeof *ranks)) {
            *out_placement = p;
            return TSR_OK;
        }
    tsr_placement *p = tsri_pool_alloc(&reg->pool, sizeof *p);
    TSRI_NEED(p);
    *p = (tsr_placement){.world = world, .device = device, .ndim = ndim, .nranks = nranks};
    memcpy(p->dim, dim, (size_t)ndim * sizeof *dim);
    p->ranks = tsri_pool_dup(&reg->pool, ranks, (size_t)nranks * sizeof *ranks);
    p->least = p->most = ranks[0];
    for (int i = 1; i < nranks; i++) {
        p->least = ranks[i] < p->least ? ranks[i] : p->least;
        p->most = ranks[i] > p->most ? ranks[i] : p->most;
    }
    p->text = p->ranks ? make_text(&reg->pool, p) : NULL;
    TSRI_NEED(p->text);
    TSRI_TRY(tsri_live_add(&world->mem, p, TSRI_LIVE_PLACEMENT));
    p->next = reg->first;
    reg->first = p;
    *out_placement = p;
    return TSR_OK;
}

tsr_status tsri_placement_name_axes(const tsr_placement *p, const char *const *axis)
{
    registry *reg = p->world->placements;
    tsr_placement *named = reg->first;
    while (named && named != p)
        named = named->next;
    for (int d = 0; named && d < named->ndim; d++) {
        if (!named->axis[d])
            named->axis[d] = tsri_pool_strdup(&reg->pool, axis[d]);
        TSRI_NEED(named->axis[d]);
    }
    return TSR_OK;
}

const char *tsri_placement_axis(const tsr_placement *p, int dim)
{
    return p && dim >= 0 && dim < p->ndim ? p->axis[dim] : NULL;
}

/* Every rank inside the world, and none twice. */
static tsr_status check_ranks(tsr_world *world, int nranks, const int *ranks)
{
    bool *seen = tsri_mem_alloc(&world->mem, (size_t)world->nranks * sizeof *seen);
    TSRI_NEED(seen);
    tsr_status status = TSR_OK;
    for (int i = 0; i < nranks && status == TSR_OK; i++) {
        if (ranks[i] < 0 || ranks[i] >= world->nranks)
            status = tsri_fail(TSR_ERR_PLACEMENT,
                               "placement: rank %d (number %d of the list) is outside the world, "
                               "whose ranks are 0 to %d",
                               ranks[i], i, world->nranks - 1);
        else if (seen[ranks[i]])
            status =
                tsri_fail(TSR_ERR_PLACEMENT,
                          "placement: rank %d is there twice (again as number %d of the list); "
                          "a rank holds one shard",
                          ranks[i], i);
        else
            seen[ranks[i]] = true;
    }
    tsri_mem_free(seen);
    return status;
}

static tsr_status create(tsr_world *world, tsr_device device, int ndim, const int *hierarchy,
                         const int *ranks, const tsr_placement **out_placement)
{
    if (!world || !hierarchy || !ranks)
        return tsri_fail(TSR_ERR_INVALID, "placement: the %s is NULL",
                         !world       ? "world"
                         : !hierarchy ? "hierarchy"
                                      : "list of ranks");
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, "placement"));
    if (!tsri_target_of(device))
        return tsri_fail(TSR_ERR_INVALID,
                         "placement: there is no device type %d; use TSR_DEVICE_CPU or "
                         "TSR_DEVICE_CUDA",
                         (int)device);
    if (ndim < 1 || ndim > TSR_MAX_HIERARCHY)
        return tsri_fail(TSR_ERR_PLACEMENT, "placement: %d dimensions; 1 to %d are possible", ndim,
                         TSR_MAX_HIERARCHY);
    int64_t nranks = 1;
    for (int d = 0; d < ndim; d++) {
        if (hierarchy[d] < 1)
            return tsri_fail(TSR_ERR_PLACEMENT,
                             "placement: dimension %d has %d ranks; it must have at least one", d,
                             hierarchy[d]);
        nranks *= hierarchy[d];
        if (nranks > world->nranks)
            return tsri_fail(
                TSR_ERR_PLACEMENT,
                "placement: the hierarchy needs at least %lld different ranks; the world "
                "has %d",
                (long long)nranks, world->nranks);
    }
    TSRI_TRY(check_ranks(world, (int)nranks, ranks));
    return tsri_placement_intern(world, device, ndim, hierarchy, ranks, out_placement);
}

const tsr_placement *tsr_placement_create(tsr_world *world, tsr_device device, int ndim,
                                          const int *hierarchy, const int *ranks)
{
    const tsr_placement *p = NULL;
    return create(world, device, ndim, hierarchy, ranks, &p) == TSR_OK ? p : NULL;
}

/* Writes the dimensions, the names and the ranks of a slice; returns the number of dimensions. */
static int cut_slice(const tsr_placement *p, int dim, int index, int *out_dim,
                     const char **out_axis, int *out_ranks)
{
    int ndim = 0, inner = 1, n = 0;
    for (int d = dim + 1; d < p->ndim; d++)
        inner *= p->dim[d];
    for (int i = 0; i < p->nranks; i++)
        if (i / inner % p->dim[dim] == index)
            out_ranks[n++] = p->ranks[i];
    for (int d = 0; d < p->ndim; d++) {
        if (d == dim)
            continue;
        out_axis[ndim] = p->axis[d];
        out_dim[ndim++] = p->dim[d];
    }
    if (ndim == 0)
        out_dim[ndim++] = 1;
    return ndim;
}

const tsr_placement *tsr_placement_slice(const tsr_placement *p, int dim, int index)
{
    const tsr_placement *slice = NULL;
    const char *axis[TSR_MAX_HIERARCHY] = {NULL};
    int dims[TSR_MAX_HIERARCHY];
    if (!p) {
        tsri_fail(TSR_ERR_PLACEMENT, "tsr_placement_slice: no placement%s", tsri_error_cause());
        return NULL;
    }
    if (!tsri_is_live(p, TSRI_LIVE_PLACEMENT, __func__))
        return NULL;
    if (dim < 0 || dim >= p->ndim || index < 0 || index >= p->dim[dim]) {
        if (dim < 0 || dim >= p->ndim)
            tsri_fail(TSR_ERR_PLACEMENT,
                      "tsr_placement_slice: dimension %d; placement %s has dimensions 0 to %d", dim,
                      p->text, p->ndim - 1);
        else
            tsri_fail(TSR_ERR_PLACEMENT,
                      "tsr_placement_slice: index %d; dimension %d of placement %s has indices 0 "
                      "to %d",
                      index, dim, p->text, p->dim[dim] - 1);
        return NULL;
    }
    int *ranks = tsri_mem_alloc(&p->world->mem, (size_t)p->nranks * sizeof *ranks);
    if (!ranks)
        return NULL;
    const int ndim = cut_slice(p, dim, index, dims, axis, ranks);
    tsr_status status = tsri_placement_intern(p->world, p->device, ndim, dims, ranks, &slice);
    if (status == TSR_OK && axis[0])
        status = tsri_placement_name_axes(slice, axis);
    tsri_mem_free(ranks);
    return status == TSR_OK ? slice : NULL;
}

int tsri_placement_sliced(const tsr_placement *p, const tsr_placement *slice)
{
    const int first = tsr_placement_find(p, slice->ranks[0]);
    if (first < 0 || slice->device != p->device || slice->ndim != (p->ndim > 1 ? p->ndim - 1 : 1))
        return -1;
    for (int d = 0, inner = p->nranks; d < p->ndim; d++) {
        inner /= p->dim[d];
        int n = 0;
        bool same = slice->nranks == p->nranks / p->dim[d];
        for (int k = 0, at = 0; k < p->ndim && p->ndim > 1; k++)
            same &= k == d || slice->dim[at++] == p->dim[k];
        for (int i = 0; i < p->nranks && same; i++)
            if (i / inner % p->dim[d] == first / inner % p->dim[d])
                same = slice->ranks[n++] == p->ranks[i];
        if (same)
            return d;
    }
    return -1;
}

tsr_status tsri_placement_check(const tsr_world *world, const tsr_placement *p, const char *call)
{
    if (p && !tsri_is_live(p, TSRI_LIVE_PLACEMENT, call))
        return TSR_ERR_PLACEMENT;
    if (!p || p->world == world)
        return TSR_OK;
    return tsri_fail(TSR_ERR_PLACEMENT,
                     "%s: placement %s belongs to another world; make it with this one's "
                     "tsr_placement_parse",
                     call, p->text);
}

tsr_device tsr_placement_device(const tsr_placement *p)
{
    return tsri_is_live(p, TSRI_LIVE_PLACEMENT, __func__) ? p->device : (tsr_device)0;
}

bool tsri_placement_can(const tsr_placement *p, tsri_ability ability)
{
    return tsri_target_can(tsr_placement_device(p), ability);
}

int tsr_placement_ndim(const tsr_placement *p)
{
    return tsri_is_live(p, TSRI_LIVE_PLACEMENT, __func__) ? p->ndim : 0;
}

int tsr_placement_dim(const tsr_placement *p, int dim)
{
    return tsri_is_live(p, TSRI_LIVE_PLACEMENT, __func__) && dim >= 0 && dim < p->ndim ? p->dim[dim]
                                                                                       : 0;
}

int tsr_placement_nranks(const tsr_placement *p)
{
    return tsri_is_live(p, TSRI_LIVE_PLACEMENT, __func__) ? p->nranks : 0;
}

int tsr_placement_rank(const tsr_placement *p, int i)
{
    return tsri_is_live(p, TSRI_LIVE_PLACEMENT, __func__) && i >= 0 && i < p->nranks ? p->ranks[i]
                                                                                     : -1;
}

int tsr_placement_find(const tsr_placement *p, int rank)
{
    /* Most placements count up from their first rank. */
    if (!tsri_is_live(p, TSRI_LIVE_PLACEMENT, __func__))
        return -1;
    int guess = rank - p->ranks[0];
    if (guess >= 0 && guess < p->nranks && p->ranks[guess] == rank)
        return guess;
    if (rank < p->least || rank > p->most)
        return -1;
    for (int i = 0; i < p->nranks; i++)
        if (p->ranks[i] == rank)
            return i;
    return -1;
}

const char *tsr_placement_text(const tsr_placement *p)
{
    return tsri_is_live(p, TSRI_LIVE_PLACEMENT, __func__) ? p->text : "(no placement)";
}
