/* SPDX-License-Identifier: Apache-2.0 */
/* Making a plan: what build.c offers to plan.c (collectives), direct.c (collectives made of sends
 * and receives) and pulls.c (SEND_RECV). */
#ifndef TESSERA_COMM_SCHEDULE_BUILD_H
#define TESSERA_COMM_SCHEDULE_BUILD_H

#include <tessera/placement.h>
#include "src/comm/schedule/plan.h"

/* A call's steps are in this order, whatever segment they are of. */
typedef enum tsri_nccl_phase {
    TSRI_NCCL_PACK = 0,
    TSRI_NCCL_TALK, /* a group */
    TSRI_NCCL_BETWEEN,
    TSRI_NCCL_TALK_AGAIN, /* a group */
    TSRI_NCCL_UNPACK,
    TSRI_NCCL_PHASES
} tsri_nccl_phase;

typedef struct tsri_nccl_list {
    tsri_nccl_step *steps;
    int count, capacity;
} tsri_nccl_list;

typedef struct tsri_nccl_build {
    tsri_mem *mem;
    const tsri_coll *coll;
    int n, me;
    const int *ranks;
    const tsri_nccl_words *words;
    tsri_nccl_list phase[TSRI_NCCL_PHASES];
    tsri_nccl_place *sources;
    int nsources, csources;
    int64_t stage; /* bytes so far */
    bool no_memory;
    bool direct; /* see tsri_nccl_plan_make */
} tsri_nccl_build;

static const tsri_nccl_place tsri_nccl_nowhere = {TSRI_NCCL_NOWHERE, 0, 0};

static inline tsri_nccl_place tsri_nccl_at(tsri_nccl_where where, int seg, int64_t at)
{
    return (tsri_nccl_place){where, seg, at};
}

/* Where the src and the dst of segment i begin. */
static inline tsri_nccl_place tsri_nccl_src(int i)
{
    return tsri_nccl_at(TSRI_NCCL_SRC, i, 0);
}

static inline tsri_nccl_place tsri_nccl_dst(int i)
{
    return tsri_nccl_at(TSRI_NCCL_DST, i, 0);
}

static inline tsri_nccl_place tsri_nccl_shift(tsri_nccl_place p, int64_t bytes)
{
    p.at += bytes;
    return p;
}

/* Makes room for one item more; a failure is noted in b->no_memory. */
bool tsri_nccl_grow(tsri_nccl_build *b, void **items, int count, int *capacity, size_t bytes);
/* Adds a step; what fails is noted likewise. */
void tsri_nccl_push(tsri_nccl_build *b, tsri_nccl_phase phase, const tsri_nccl_step *step);
/* A move of the sources, whose number it takes as move.nsrc; dtype and op too. */
void tsri_nccl_push_move(tsri_nccl_build *b, tsri_nccl_phase phase, tsri_move move,
                         const tsri_nccl_place *sources, tsri_nccl_place dst);
/* `count` elements between two members, if there are any. */
void tsri_nccl_push_send(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype, int64_t count,
                         tsri_nccl_place src, int peer);
void tsri_nccl_push_recv(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype, int64_t count,
                         tsri_nccl_place dst, int peer);
/* A step between members; nothing for a count of 0. */
void tsri_nccl_push_coll(tsri_nccl_build *b, tsri_nccl_phase phase, tsri_nccl_step_kind kind,
                         tsr_dtype dtype, int64_t count, tsri_nccl_place src, tsri_nccl_place dst,
                         int peer);
/* A move of `count` elements, one after the other on all sides. */
void tsri_nccl_push_flat(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype, int64_t count,
                         int nsrc, const tsri_nccl_place *sources, tsri_nccl_place dst);
/* Each member gets its part of all members' `from`, which is cut into n parts of rows of `unit`
 * elements, and reduces it in `phase`. */
void tsri_nccl_reduce_part(tsri_nccl_build *b, tsri_nccl_phase phase, const tsri_segment *s,
                           int64_t length, int64_t unit, tsri_nccl_place from, tsri_nccl_place dst);
/* Room for so many bytes. */
tsri_nccl_place tsri_nccl_stage(tsri_nccl_build *b, int64_t bytes);

/* The length and the offset of balanced piece i of n. */
static inline int64_t tsri_nccl_length(int64_t length, int n, int i)
{
    int64_t offset, count;
    tsr_balanced_split(length, n, i, &offset, &count);
    return count;
}

static inline int64_t tsri_nccl_offset(int64_t length, int n, int i)
{
    int64_t offset, count;
    tsr_balanced_split(length, n, i, &offset, &count);
    return offset;
}

/* direct.c: by sends and receives alone. */
/* Each member gets all pieces, of rows of `unit` elements, one after the other; src is its own. */
void tsri_nccl_gather_direct(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype,
                             int64_t length, int64_t unit, tsri_nccl_place src, tsri_nccl_place to);
/* Segment i, of `count` elements, in two phases. */
void tsri_nccl_reduce_direct(tsri_nccl_build *b, int i, int64_t count);
void tsri_nccl_broadcast_direct(tsri_nccl_build *b, int i, int64_t count);

/* pulls.c: all of a SEND_RECV. */
tsr_status tsri_nccl_build_pulls(tsri_nccl_build *b);

#endif
