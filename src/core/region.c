/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The region of a rank: plans share the bottom, what persists grows down from the top.
 *
 *   0 ... plan_bytes ......... top ....................... size
 *   | plans |      unused      | persistent blocks, holes |
 *
 * Holes are kept in address order and are never adjacent: neighbours join, and a hole at `top` goes
 * back to the unused middle. The list of them lies outside the region, whose memory may be a GPU's.
 */
#include "src/core/world.h"

#include <string.h>

enum { GRAIN = 64 };

struct tsri_hole {
    size_t at, bytes;
};

static size_t round_up(size_t bytes)
{
    return bytes ? (bytes + GRAIN - 1) / GRAIN * GRAIN : GRAIN;
}

static tsr_status no_room(const tsri_region *region, size_t bytes, const char *for_what)
{
    size_t middle = region->top - region->plan_bytes;
    return tsri_fail(
        TSR_ERR_NO_MEMORY,
        "no room for %zu bytes of %s: the rank's arena has %zu bytes, of which plans "
        "use %zu, persistent tensors %zu, and %zu are free; raise %s",
        bytes, for_what, region->size, region->plan_bytes, region->size - region->top, middle,
        region->raise ? region->raise
                      : "tsr_world_opts.arena_bytes or the variable TESSERA_ARENA_BYTES");
}

static void remove_hole(tsri_region *region, int i)
{
    region->nholes--;
    memmove(&region->holes[i], &region->holes[i + 1],
            (size_t)(region->nholes - i) * sizeof *region->holes);
}

/* Takes the upper end of the first hole that is large enough; SIZE_MAX if none is. */
static size_t take_hole(tsri_region *region, size_t bytes)
{
    for (int i = 0; i < region->nholes; i++) {
        struct tsri_hole *h = &region->holes[i];
        if (h->bytes < bytes)
            continue;
        h->bytes -= bytes;
        size_t at = h->at + h->bytes;
        if (h->bytes == 0)
            remove_hole(region, i);
        return at;
    }
    return SIZE_MAX;
}

/* Freeing never fails. Each hole has a block of its own below it, so there are at most as many
 * holes as blocks, and fewer when there are as many blocks as ever: the array has room for one
 * more. */
static tsr_status make_room_for_holes(tsri_region *region)
{
    if (region->nblocks < region->choles)
        return TSR_OK;
    int more = region->choles ? 2 * region->choles : 64;
    struct tsri_hole *holes =
        tsri_mem_realloc(NULL, region->holes, (size_t)more * sizeof *region->holes);
    TSRI_NEED(holes);
    region->holes = holes;
    region->choles = more;
    return TSR_OK;
}

tsr_status tsri_region_alloc(tsri_region *region, size_t bytes, void **out_ptr)
{
    if (region->size % GRAIN || (uintptr_t)region->base % GRAIN)
        return tsri_fail(TSR_ERR_INTERNAL, "an arena of %zu bytes at %p: not a multiple of %d",
                         region->size, (void *)region->base, GRAIN);
    if (bytes > region->size)
        return no_room(region, bytes, "persistent memory");
    TSRI_TRY(make_room_for_holes(region));
    size_t rounded = round_up(bytes), at = take_hole(region, rounded);
    if (at == SIZE_MAX) {
        if (rounded > region->top - region->plan_bytes)
            return no_room(region, bytes, "persistent memory");
        region->top -= rounded;
        at = region->top;
    }
    region->nblocks++;
    *out_ptr = region->base + at;
    return TSR_OK;
}

void tsri_region_free(tsri_region *region, void *ptr, size_t bytes)
{
    if (!ptr)
        return;
    size_t at = (size_t)((char *)ptr - region->base), size = round_up(bytes);
    int i = 0;
    while (i < region->nholes && region->holes[i].at < at)
        i++;
    memmove(&region->holes[i + 1], &region->holes[i],
            (size_t)(region->nholes - i) * sizeof *region->holes);
    region->holes[i] = (struct tsri_hole){at, size};
    region->nholes++;
    region->nblocks--;
    if (i + 1 < region->nholes && at + size == region->holes[i + 1].at) {
        region->holes[i].bytes += region->holes[i + 1].bytes;
        remove_hole(region, i + 1);
    }
    if (i > 0 && region->holes[i - 1].at + region->holes[i - 1].bytes == at) {
        region->holes[i - 1].bytes += region->holes[i].bytes;
        remove_hole(region, i);
    }
    if (region->holes[0].at == region->top) {
        region->top += region->holes[0].bytes;
        remove_hole(region, 0);
    }
}

tsr_status tsri_region_reserve_plan(tsri_region *region, size_t bytes)
{
    if (bytes <= region->plan_bytes)
        return TSR_OK;
    if (bytes > region->top)
        return no_room(region, bytes, "a plan");
    region->plan_bytes = bytes;
    return TSR_OK;
}

void tsri_region_finish(tsri_region *region)
{
    tsri_mem_free(region->holes);
    *region = (tsri_region){0};
}
