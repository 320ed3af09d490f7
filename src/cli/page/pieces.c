/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/page/pieces.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

#include "src/core/rng.h"

/* Elements [at, at + length) of an axis. */
typedef struct piece {
    int64_t at, length;
} piece;

/* Orders pieces along the axis; an empty one comes before the one that begins at its place. */
static int by_place(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
                          : (x->length > y->length) - (x->length < y->length);
}

/* Hashes everything that determines an axis' pieces: the mesh's dimensions, the axis' size, and the
 * dimensions that split it, in order. */
static uint64_t split_hash(int64_t size, int axis, const tsri_mesh *mesh, const tsri_layout *layout)
{
    int64_t key[2 + 2 * TSR_MAX_HIERARCHY] = {size, mesh->ndim};
    for (int d = 0; d < mesh->ndim; d++) {
        const tsr_sbp1 *word = &layout->sbp.d[d];
        key[2 + 2 * d] = mesh->dim[d];
        key[3 + 2 * d] =
            word->kind == TSR_SBP_SPLIT && word->arg == axis ? 1 + layout->depth[d] : 0;
    }
    return tsri_hash(TSRI_HASH_INIT, key, sizeof key);
}

static void add_number(cJSON *array, double number)
{
    cJSON_AddItemToArray(array, cJSON_CreateNumber(number));
}

/* Appends the split of an axis; returns false without memory. */
static bool add_split(page_splits *s, tsr_dims shape, int axis, const tsri_mesh *mesh,
                      const tsri_layout *layout)
{
    const size_t n = (size_t)mesh->nranks;
    piece *of = tsri_pool_alloc(s->pool, n * sizeof *of);
    piece *sorted = tsri_pool_alloc(s->pool, n * sizeof *sorted);
    if (!of || !sorted)
        return false;
    for (int i = 0; i < mesh->nranks; i++) {
        int64_t offset[TSR_MAX_NDIM];
        tsr_dims part;
        tsri_layout_part(shape, mesh, layout, i, offset, &part);
        of[i] = sorted[i] = (piece){offset[axis], part.d[axis]};
    }
    qsort(sorted, n, sizeof *sorted, by_place);
    size_t npieces = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || by_place(&sorted[npieces - 1], &sorted[i]) != 0)
            sorted[npieces++] = sorted[i];
    cJSON *json = cJSON_CreateObject();
    cJSON *cuts = cJSON_AddArrayToObject(json, "at"), *ranks = cJSON_AddArrayToObject(json, "of");
    for (size_t i = 0; i < npieces; i++)
        add_number(cuts, (double)sorted[i].at);
    add_number(cuts, (double)shape.d[axis]);
    for (size_t i = 0; i < n; i++) {
        const piece *at = bsearch(&of[i], sorted, npieces, sizeof *sorted, by_place);
        add_number(ranks, (double)(at - sorted));
    }
    cJSON_AddItemToArray(s->json, json);
    return true;
}

/* Returns the place of an axis' split in the list, where it is put if it is new; -1 without memory.
 */
static int find_split(page_splits *s, tsr_dims shape, int axis, const tsri_mesh *mesh,
                      const tsri_layout *layout)
{
    const uint64_t hash = split_hash(shape.d[axis], axis, mesh, layout);
    for (int i = 0; i < s->n; i++)
        if (s->hash[i] == hash)
            return i;
    if (!TSRI_PUSH(s->pool, s->hash, s->n, s->capacity) || !add_split(s, shape, axis, mesh, layout))
        return -1;
    s->hash[s->n] = hash;
    return s->n++;
}

cJSON *page_pieces(page_splits *s, tsr_dims shape, const tsri_mesh *mesh, const tsri_layout *layout)
{
    cJSON *json = cJSON_CreateArray();
    for (int axis = 0; axis < shape.ndim; axis++) {
        bool is_split = false;
        for (int d = 0; d < mesh->ndim; d++)
            is_split |= layout->sbp.d[d].kind == TSR_SBP_SPLIT && layout->sbp.d[d].arg == axis;
        const int at = is_split ? find_split(s, shape, axis, mesh, layout) : -1;
        s->failed |= is_split && at < 0;
        if (at < 0)
            continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "axis", axis);
        cJSON_AddNumberToObject(one, "split", at);
        cJSON_AddItemToArray(json, one);
    }
    return json;
}
