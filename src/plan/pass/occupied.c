/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment tree over times. A block is kept at the at most 2 log2(times) largest spans that its
 * life consists of, so that neither taking it nor looking for room walks over all blocks; and
 * blocks that lie side by side, as most do, are one extent.
 */
#include <string.h>

#include "src/plan/pass/occupied.h"

enum {
    MAX_SPANS = 2 * 31,
    MAX_LISTS = MAX_SPANS + 2 * 32 /* two ways up */
};

tsr_status tsri_occupied_init(tsri_occupied *o, tsri_pool *pool, int times)
{
    *o = (tsri_occupied){.pool = pool, .times = 1};
    while (o->times < times)
        o->times *= 2;
    o->span = tsri_pool_alloc(pool, 2 * (size_t)o->times * sizeof *o->span);
    return o->span ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* The first extent that ends at an offset or behind it. */
static int find(const tsri_extents *e, size_t offset)
{
    int low = 0, high = e->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (e->item[middle].to < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Joins [from, to) with all that it touches. */
static tsr_status add(tsri_pool *pool, tsri_extents *e, size_t from, size_t to)
{
    int first = find(e, from), end = first;
    for (; end < e->n && e->item[end].from <= to; end++) {
        from = e->item[end].from < from ? e->item[end].from : from;
        to = e->item[end].to > to ? e->item[end].to : to;
    }
    if (end == first && !TSRI_PUSH(pool, e->item, e->n, e->capacity))
        return TSR_ERR_NO_MEMORY;
    memmove(&e->item[first + 1], &e->item[end], (size_t)(e->n - end) * sizeof *e->item);
    e->item[first] = (tsri_extent){from, to};
    e->n += 1 - (end - first);
    return TSR_OK;
}

/* The fewest spans that together are these times. */
static int spans_of(const tsri_occupied *o, int first, int last, int span[MAX_SPANS])
{
    int n = 0;
    for (int low = o->times + first, high = o->times + last; low <= high;) {
        if (low % 2 == 1)
            span[n++] = low++;
        if (low <= high && high % 2 == 0)
            span[n++] = high--;
        low /= 2;
        high /= 2;
    }
    return n;
}

tsr_status tsri_occupied_take(tsri_occupied *o, int first, int last, size_t offset, size_t bytes)
{
    const size_t end = offset + bytes;
    int span[MAX_SPANS];
    const int n = spans_of(o, first, last, span);
    for (int i = 0; i < n; i++) {
        TSRI_TRY(add(o->pool, &o->span[span[i]].through, offset, end));
        TSRI_TRY(add(o->pool, &o->span[span[i]].ever, offset, end));
    }
    for (int a = o->times + first, b = o->times + last; a; a /= 2, b /= 2) {
        TSRI_TRY(add(o->pool, &o->span[a].ever, offset, end));
        if (a != b)
            TSRI_TRY(add(o->pool, &o->span[b].ever, offset, end));
    }
    return TSR_OK;
}

/* All that is taken at some of these times, in lists that may overlap. */
static int lists_of(const tsri_occupied *o, int first, int last,
                    const tsri_extents *list[MAX_LISTS])
{
    int span[MAX_SPANS];
    int n = spans_of(o, first, last, span);
    for (int i = 0; i < n; i++)
        list[i] = &o->span[span[i]].ever;
    for (int a = o->times + first, b = o->times + last; a; a /= 2, b /= 2) {
        list[n++] = &o->span[a].through;
        if (a != b)
            list[n++] = &o->span[b].through;
    }
    return n;
}

size_t tsri_occupied_lowest(const tsri_occupied *o, int first, int last, size_t bytes)
{
    const tsri_extents *list[MAX_LISTS];
    int at[MAX_LISTS] = {0};
    const int n = lists_of(o, first, last, list);
    size_t offset = 0;
    for (bool is_free = false; !is_free;) {
        is_free = true;
        for (int i = 0; i < n; i++)
            for (; at[i] < list[i]->n && list[i]->item[at[i]].from < offset + bytes; at[i]++)
                if (list[i]->item[at[i]].to > offset) {
                    offset = list[i]->item[at[i]].to;
                    is_free = false;
                }
    }
    return offset;
}
