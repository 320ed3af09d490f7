/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The region of a rank: plans share the bottom, what persists grows down from the top.
 *
 *   0 ... plan_bytes ......... top ....................... size
 *   | plans |      unused      | persistent blocks, holes |
 *
 * Holes hold their own list node, are kept in address order, and are never adjacent: neighbours
 * join, and a hole at `top` goes back to the unused middle.
 */
#include "src/core/world.h"

#include <string.h>

enum { GRAIN = 64 };

/* Lies in the hole itself. Only the owner reads it. */
typedef struct hole {
    struct hole *next;
    size_t bytes;
} hole;

static size_t round_up(size_t bytes)
{
    return bytes ? (bytes + GRAIN - 1) / GRAIN * GRAIN : GRAIN;
}

static tsr_status no_room(const tsri_region *region, size_t bytes, const char *for_what)
{
    size_t middle = region->top - region->plan_bytes;
    return tsri_fail(TSR_ERR_NO_MEMORY,
                     "no room for %zu bytes of %s: the rank's arena has %zu bytes, of which plans "
                     "use %zu, persistent tensors %zu, and %zu are free; raise "
                     "tsr_world_opts.arena_bytes or the variable TESSERA_ARENA_BYTES",
                     bytes, for_what, region->size, region->plan_bytes, region->size - region->top,
                     middle);
}

static void *take_hole(tsri_region *region, size_t bytes)
{
    hole *prev = NULL;
    for (hole *h = region->free_list; h; prev = h, h = h->next) {
        if (h->bytes < bytes)
            continue;
        /* The upper end goes, so that the node of what stays need not move. */
        if (h->bytes > bytes) {
            h->bytes -= bytes;
            return (char *)h + h->bytes;
        }
        if (prev)
            prev->next = h->next;
        else
            region->free_list = h->next;
        return h;
    }
    return NULL;
}

tsr_status tsri_region_alloc(tsri_region *region, size_t bytes, void **out_ptr)
{
    if (bytes > region->size)
        return no_room(region, bytes, "persistent memory");
    size_t rounded = round_up(bytes);
    char *p = take_hole(region, rounded);
    if (!p) {
        if (rounded > region->top - region->plan_bytes)
            return no_room(region, bytes, "persistent memory");
        region->top -= rounded;
        p = region->base + region->top;
    }
    /* Also where no one has been: the middle may have been used and given back. */
    memset(p, 0, rounded);
    *out_ptr = p;
    return TSR_OK;
}

void tsri_region_free(tsri_region *region, void *ptr, size_t bytes)
{
    if (!ptr)
        return;
    hole *fresh = ptr, *prev = NULL, *next = region->free_list;
    while (next && (char *)next < (char *)ptr) {
        prev = next;
        next = next->next;
    }
    *fresh = (hole){.next = next, .bytes = round_up(bytes)};
    if (next && (char *)fresh + fresh->bytes == (char *)next) {
        fresh->bytes += next->bytes;
        fresh->next = next->next;
    }
    if (prev && (char *)prev + prev->bytes == (char *)fresh) {
        prev->bytes += fresh->bytes;
        prev->next = fresh->next;
    } else if (prev) {
        prev->next = fresh;
    } else {
        region->free_list = fresh;
    }
    hole *first = region->free_list;
    if ((char *)first == region->base + region->top) {
        region->top += first->bytes;
        region->free_list = first->next;
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
