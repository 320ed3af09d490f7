/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mesh and a layout: where the parts of a tensor are, as plain data. A layout is a signature with
 * the order in which hierarchy dimensions split an axis. A user's tensor splits left to right; on
 * the way of a conversion other orders help: (S(0),S(0)) split by dimension 1 first needs one
 * all-gather to become (S(0),B), not two.
 */
#ifndef TESSERA_SBP_RULE_LAYOUT_H
#define TESSERA_SBP_RULE_LAYOUT_H

#include <tessera/placement.h>
#include <tessera/sbp.h>

/* A placement without its world. Two meshes are the same if all fields and ranks are. */
typedef struct tsri_mesh {
    int ndim;
    int dim[TSR_MAX_HIERARCHY]; /* unused ones 1 */
    int nranks;
    const int *rank; /* [nranks], row-major; borrowed. NULL: 0, 1, 2, ... */
} tsri_mesh;

/* Canonical: entries of dimensions of size 1 are B, unused ones zero; so layouts of one mesh are
 * the same parts iff they are bytewise equal. */
typedef struct tsri_layout {
    tsr_sbp sbp;
    int8_t depth[TSR_MAX_HIERARCHY]; /* of a split dimension: how many split the same axis before
                                        it; of others 0 */
} tsri_layout;

tsri_mesh tsri_mesh_of(const tsr_placement *p);
bool tsri_mesh_equal(const tsri_mesh *a, const tsri_mesh *b);
static inline int tsri_mesh_rank(const tsri_mesh *m, int i)
{
    return m->rank ? m->rank[i] : i;
}
/* Where `rank` stands in row-major order; -1. */
int tsri_mesh_find(const tsri_mesh *m, int rank);

/* Places of a mesh, as coordinates at[TSR_MAX_HIERARCHY] and as row-major numbers among the places
 * that differ in the dimensions of `dims` alone (TSRI_ALL_DIMS: among all ranks of the mesh).
 * tsri_mesh_coord leaves coordinates of other dimensions as they are. */
enum { TSRI_ALL_DIMS = (1 << TSR_MAX_HIERARCHY) - 1 };
int tsri_mesh_count(const tsri_mesh *m, unsigned dims);
int tsri_mesh_index(const tsri_mesh *m, unsigned dims, const int *at);
void tsri_mesh_coord(const tsri_mesh *m, unsigned dims, int index, int *at);

/* The layout of a signature on a mesh: split left to right; B on dimensions of size 1. */
tsri_layout tsri_layout_of(const tsri_mesh *m, tsr_sbp sbp);
bool tsri_layout_equal(const tsri_layout *a, const tsri_layout *b);
/* Whether it is the layout of its signature: dimensions split left to right. */
bool tsri_layout_in_order(const tsri_layout *l);
/* "(S(0),B)"; splits that are not left to right show their depth: "(S(0)/1,S(0)/0)". */
enum { TSRI_LAYOUT_TEXT_MAX = TSR_SBP_TEXT_MAX + 16 };
char *tsri_layout_format(const tsri_layout *l, char buf[TSRI_LAYOUT_TEXT_MAX]);
/* Reads the text of a layout on a mesh. Errors: as of tsr_sbp_parse, and TSR_ERR_INVALID if the
 * mesh has another number of dimensions or the depths are not those of a layout. */
tsr_status tsri_layout_parse(const tsri_mesh *m, const char *text, tsri_layout *out_layout);

/* The part of the `index`-th rank of the mesh: offset[] and lengths, per axis. */
void tsri_layout_part(tsr_dims shape, const tsri_mesh *m, const tsri_layout *l, int index,
                      int64_t *offset, tsr_dims *out_shape);
/* Elements of the largest part of a tensor in a signature. */
double tsri_largest_part(tsr_dims shape, const tsr_placement *p, tsr_sbp sbp);
/* Bytes of the largest part over all ranks. */
int64_t tsri_layout_most(tsr_dims shape, size_t element, const tsri_mesh *m, const tsri_layout *l);

#endif
