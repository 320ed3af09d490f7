/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a tensor that ranks hold, by its split axes: a rank's part is the product of its
 * piece of each. */
#ifndef TESSERA_CLI_PAGE_PIECES_H
#define TESSERA_CLI_PAGE_PIECES_H

#include "sbp/rule/layout.h"
#include "src/core/mem.h"

/* The list of distinct splits of axes, each of which the JSON contains once. */
typedef struct page_splits {
    tsri_pool *pool;
    struct cJSON *json; /* [{"at": [...], "of": [...]}, ...]: the caller's */
    uint64_t *hash;
    int n, capacity;
    bool failed; /* no memory */
} page_splits;

/* Returns [{"axis": A, "split": I}, ...], an entry for each axis that a layout splits: I is the
 * place in splits->json of the axis' cuts (`at`) and of the piece that each rank of the mesh has
 * (`of`). A failure is noted in `splits`. */
struct cJSON *page_pieces(page_splits *splits, tsr_dims shape, const tsri_mesh *mesh,
                          const tsri_layout *layout);

#endif
