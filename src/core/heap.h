/* SPDX-License-Identifier: Apache-2.0 */
/* A heap of numbers by their keys: the least key is on top, of equal ones the lower number. */
#ifndef TESSERA_CORE_HEAP_H
#define TESSERA_CORE_HEAP_H

#include "src/core/mem.h"

typedef struct tsri_heap {
    int n;
    int *item;         /* [n]; item[0] is the top */
    int *place;        /* of each number: where it is in item[], from 1; 0: it is not in the heap */
    const double *key; /* of each number; the owner's */
} tsri_heap;

/* Makes an empty heap, in the pool, for numbers below `room`. */
static inline tsr_status tsri_heap_init(tsri_heap *h, tsri_pool *pool, int room, const double *key)
{
    *h = (tsri_heap){.key = key};
    h->item = tsri_pool_alloc(pool, 2 * (size_t)room * sizeof *h->item);
    TSRI_NEED(h->item);
    h->place = h->item + room;
    return TSR_OK;
}

static inline bool tsri_heap_less(const tsri_heap *h, int a, int b)
{
    return h->key[a] < h->key[b] || (h->key[a] == h->key[b] && a < b);
}

static inline void tsri_heap_set(tsri_heap *h, int at, int number)
{
    h->item[at] = number;
    h->place[number] = at + 1;
}

/* Puts a number in, or to where its key belongs now. */
static inline void tsri_heap_put(tsri_heap *h, int number)
{
    int at = h->place[number] ? h->place[number] - 1 : h->n++;
    for (; at > 0 && tsri_heap_less(h, number, h->item[(at - 1) / 2]); at = (at - 1) / 2)
        tsri_heap_set(h, at, h->item[(at - 1) / 2]);
    for (int child; (child = 2 * at + 1) < h->n; at = child) {
        if (child + 1 < h->n && tsri_heap_less(h, h->item[child + 1], h->item[child]))
            child++;
        if (!tsri_heap_less(h, h->item[child], number))
            break;
        tsri_heap_set(h, at, h->item[child]);
    }
    tsri_heap_set(h, at, number);
}

/* Takes a number out. */
static inline void tsri_heap_take(tsri_heap *h, int number)
{
    int last = h->item[--h->n];
    h->place[last] = h->place[number];
    h->place[number] = 0;
    if (last != number)
        tsri_heap_put(h, last);
}

#endif
