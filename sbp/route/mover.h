/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's reads in a step: the walk over the sources' parts that its new part meets. Inside
 * of sbp/; others see tsri_step_pieces and tsri_step_bytes. */
#ifndef TESSERA_SBP_ROUTE_MOVER_H
#define TESSERA_SBP_ROUTE_MOVER_H

#include "sbp/route/step.h"

typedef struct tsri_box_range {
    int64_t offset[TSR_MAX_NDIM], length[TSR_MAX_NDIM];
} tsri_box_range;

/* The reader of a step and where it stands. */
typedef struct tsri_mover {
    const tsri_mesh *a, *b; /* the sources' and the reader's */
    tsri_layout x, y;
    tsr_dims shape;
    bool crosses, local;
    int rank, pos_a, pos_b; /* pos_a: -1 where it is no source */
    int at_a[TSR_MAX_HIERARCHY], at_b[TSR_MAX_HIERARCHY];
    uint8_t split, addends, free; /* dimensions of a: that split; whose addends are read; of which
                                     any rank will do */
    int naddends;
    int slot, slots; /* of addends where P goes to P across: those of slot `slot` alone. slots 0:
                        all */
    bool none;       /* reads nothing: its part is the identity, or it is outside */
    tsri_box_range part;
} tsri_mover;

/* A meeting of the new part with one part of the sources. coord: of the sources, in the split
 * dimensions. */
typedef tsr_status tsri_meet_fn(void *arg, const tsri_mover *mv, const int *coord,
                                const tsri_box_range *box, const tsri_box_range *source);

void tsri_mover_init(tsri_mover *mv, const tsri_route_query *q, const tsri_route_step *step,
                     int rank);
/* Places the reader at pos_b of the step's destination mesh (-1: nowhere), which is at pos_a
 * of the sources'. */
void tsri_mover_place(tsri_mover *mv, const tsri_route_query *q, const tsri_route_step *step,
                      int pos_a, int pos_b);
/* Elements of the new part that the reader's own old part covers. */
int64_t tsri_mover_own(const tsri_mover *mv);
/* Whether the reader's old part is its new one. */
bool tsri_mover_same(const tsri_mover *mv);
/* Calls fn for every meeting that is not empty (or the part has no elements: for none). */
tsr_status tsri_mover_walk(const tsri_mover *mv, tsri_meet_fn *fn, void *arg);
/* The ranks that one meeting reads from, in the order of reduction; src may be NULL. Returns how
 * many; *out_self: whether the reader is among them. */
int tsri_mover_sources(const tsri_mover *mv, const int *coord, int *src, bool *out_self);

static inline int64_t tsri_box_volume(const tsri_mover *mv, const tsri_box_range *box)
{
    int64_t v = 1;
    for (int a = 0; a < mv->shape.ndim; a++)
        v *= box->length[a];
    return v;
}

static inline uint8_t tsri_layout_dims(const tsri_layout *l, tsr_sbp_kind kind)
{
    unsigned mask = 0;
    for (int d = 0; d < l->sbp.ndim; d++)
        mask |= (unsigned)(l->sbp.d[d].kind == (int8_t)kind) << d;
    return (uint8_t)mask;
}

#endif
