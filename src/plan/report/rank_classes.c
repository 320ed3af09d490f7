/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/report/rank_classes.h"

#include <stdlib.h>

typedef struct keyed {
    uint64_t key;
    int rank;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

tsr_status tsri_rank_classes_find(tsri_pool *pool, int nranks, const uint64_t *key,
                                  tsri_rank_classes *out)
{
    const size_t n = (size_t)nranks;
    keyed *sorted = tsri_pool_alloc(pool, n * sizeof *sorted);
    int *number = tsri_pool_alloc(pool, n * sizeof *number); /* + 1, by run of equal keys */
    *out = (tsri_rank_classes){.of = tsri_pool_alloc(pool, n * sizeof *out->of),
                               .first = tsri_pool_alloc(pool, n * sizeof *out->first),
                               .count = tsri_pool_alloc(pool, n * sizeof *out->count)};
    TSRI_NEED(sorted && number && out->of && out->first && out->count);
    for (int i = 0; i < nranks; i++)
        sorted[i] = (keyed){key[i], i};
    qsort(sorted, n, sizeof *sorted, by_key);
    for (int i = 0, run = 0; i < nranks; i++) {
        run += i > 0 && sorted[i].key != sorted[i - 1].key;
        out->of[sorted[i].rank] = run;
    }
    for (int i = 0; i < nranks; i++) {
        int *its = &number[out->of[i]];
        if (!*its) {
            out->first[out->n] = i;
            *its = ++out->n;
        }
        out->of[i] = *its - 1;
        out->count[out->of[i]]++;
    }
    return TSR_OK;
}
