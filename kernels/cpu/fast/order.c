/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first few places of sorted lines of f32: of each line those candidates are kept that come
 * before the last one wanted so far. A candidate is a key and a place in one number, so that equals
 * are in the order of their places. Few are kept in order; more are collected until there is no
 * room, and then the first of them are selected by Hoare's method (1961).
 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

enum {
    FEW = 32,   /* that are kept in order */
    SHORT = 24, /* that are sorted by insertion */
    SHARE = 4,  /* of a line: where more is wanted than this part, all of it is sorted */
};

typedef struct order {
    tsri_fast base;
    int64_t n, count, inner; /* of a line, wanted; lines that lie behind each other's axis */
    int64_t room;            /* for candidates */
    bool descending;
} order;

/* A thread's scratch. */
typedef struct room {
    uint64_t *best;
    uint32_t *key;
    float *line;
} room;

static uint64_t candidate_of(uint32_t key, int64_t place)
{
    return (uint64_t)key << 32 | (uint64_t)place;
}

/* Puts v into its place among n in order. */
static void insert(uint64_t *x, int64_t n, uint64_t v)
{
    for (; n > 0 && x[n - 1] > v; n--)
        x[n] = x[n - 1];
    x[n] = v;
}

static void sort_short(uint64_t *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        insert(x, i, x[i]);
}

static void swap(uint64_t *x, int64_t i, int64_t j)
{
    const uint64_t v = x[i];
    x[i] = x[j];
    x[j] = v;
}

/* Parts n numbers, all different, into those up to one of them and those from there on, and returns
 * how many are the first: at least one of both kinds. */
static int64_t part(uint64_t *x, int64_t n)
{
    const int64_t middle = n / 2;
    if (x[middle] < x[0])
        swap(x, 0, middle);
    if (x[n - 1] < x[0])
        swap(x, 0, n - 1);
    if (x[n - 1] < x[middle])
        swap(x, middle, n - 1);
    const uint64_t pivot = x[middle];
    int64_t i = 0, j = n - 1;
    for (;;) {
        while (x[i] < pivot)
            i++;
        while (x[j] > pivot)
            j--;
        if (i >= j)
            return i;
        swap(x, i++, j--);
    }
}

static void sift(uint64_t *x, int64_t i, int64_t n)
{
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && x[child + 1] > x[child];
        if (x[i] >= x[child])
            return;
        swap(x, i, child);
    }
}

static void sort_heap(uint64_t *x, int64_t n)
{
    for (int64_t i = n / 2; i-- > 0;)
        sift(x, i, n);
    while (n-- > 1) {
        swap(x, 0, n);
        sift(x, 0, n);
    }
}

/* Moves the least k of n to the front, in order if `sorted`. A part that does not get small in a
 * number of steps that is enough for all but made-up numbers is sorted by a heap. */
static void select(uint64_t *x, int64_t n, int64_t k, bool sorted, int steps)
{
    while (n > SHORT) {
        if (steps-- == 0) {
            sort_heap(x, n);
            return;
        }
        const int64_t low = part(x, n);
        if (low <= k && sorted && low < n)
            select(x, low, low, true, steps);
        if (low < k) {
            x += low;
            n -= low;
            k -= low;
        } else if (low == k) {
            return;
        } else {
            n = low;
        }
    }
    sort_short(x, n);
}

static int steps_for(int64_t n)
{
    int steps = 8;
    for (; n > 1; n /= 2)
        steps += 2;
    return steps;
}

/* Writes the first `count` candidates of a line, in order, to best. */
static void find_few(const order *k, const uint32_t *key, uint64_t *best)
{
    const int64_t count = k->count;
    for (int64_t i = 0; i < count; i++)
        insert(best, i, candidate_of(key[i], i));
    for (int64_t i = count; i < k->n; i++) {
        const uint32_t limit = (uint32_t)(best[count - 1] >> 32);
        i = k->base.isa->below(key, i, k->n, limit);
        if (i < k->n)
            insert(best, count - 1, candidate_of(key[i], i));
    }
}

static void find_many(const order *k, const uint32_t *key, uint64_t *best)
{
    const int64_t count = k->count;
    int64_t n = 0;
    uint32_t limit = UINT32_MAX; /* no candidate is before the largest key, nor wanted after it */
    bool limited = false;
    for (int64_t i = 0; i < k->n; i++) {
        if (limited)
            i = k->base.isa->below(key, i, k->n, limit);
        if (i == k->n)
            break;
        best[n++] = candidate_of(key[i], i);
        if (n < k->room)
            continue;
        select(best, n, count, false, steps_for(n));
        uint64_t last = 0;
        for (int64_t j = 0; j < count; j++)
            last = best[j] > last ? best[j] : last;
        n = count;
        limit = (uint32_t)(last >> 32);
        limited = true;
    }
    select(best, n, count, true, steps_for(n));
}

static void order_line(const order *k, int64_t line, const float *x, int64_t *y, const room *own)
{
    const int64_t outer = line / k->inner, inner = line % k->inner;
    x += outer * k->n * k->inner + inner;
    y += outer * k->count * k->inner + inner;
    for (int64_t i = 0; i < k->n && k->inner > 1; i++)
        own->line[i] = x[i * k->inner];
    k->base.isa->keys(k->inner > 1 ? own->line : x, k->n, k->descending, own->key);
    if (k->count <= FEW)
        find_few(k, own->key, own->best);
    else
        find_many(k, own->key, own->best);
    for (int64_t i = 0; i < k->count; i++)
        y[i * k->inner] = (int64_t)(own->best[i] & UINT32_MAX);
}

static size_t room_bytes(const order *k)
{
    return tsri_fast_align((size_t)k->room * sizeof(uint64_t)) +
           tsri_fast_align((size_t)k->n * sizeof(uint32_t)) +
           tsri_fast_align((size_t)(k->inner > 1 ? k->n : 0) * sizeof(float));
}

static void order_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const order *k = (const order *)f;
    char *at = (char *)p->scratch + (size_t)p->index * room_bytes(k);
    room own = {.best = tsri_fast_take(&at, (size_t)k->room * sizeof(uint64_t)),
                .key = tsri_fast_take(&at, (size_t)k->n * sizeof(uint32_t))};
    own.line = (float *)(void *)at;
    for (int64_t line = p->begin; line < p->end; line++)
        order_line(k, line, p->in[0], p->out[0], &own);
}

tsr_status tsri_fast_order(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &desc->in[0], *y = &desc->out[0];
    const int axis = desc->attrs->sort.axis;
    const int64_t n = x->shape[axis], count = y->shape[axis];
    if (x->dtype != TSR_F32 || y->dtype != TSR_I64 || !tsri_fast_is_full(desc) || n > UINT32_MAX ||
        (count > n / SHARE && n > SHORT))
        return tsri_fast_decline(desc);
    const int64_t lines = tsri_arg_count(x) / n;
    order *k = tsri_fast_make(mem, desc, order_part, sizeof *k, tsri_arg_count(x), lines);
    TSRI_NEED(k);
    k->n = n;
    k->count = count;
    k->inner = tsri_arg_count_of(x, axis + 1, x->ndim);
    k->descending = desc->attrs->sort.descending;
    k->room = tsri_fast_least(n, count <= FEW ? count : 2 * count + FEW);
    k->base.base.scratch_bytes = (size_t)k->base.threads * room_bytes(k);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
