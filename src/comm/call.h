/* SPDX-License-Identifier: Apache-2.0 */
/* Call records: what ranks tell each other about a call before any data moves. */
#ifndef TESSERA_COMM_CALL_H
#define TESSERA_COMM_CALL_H

#include "src/comm/comm.h"

enum {
    TSRI_CALL_RING = 64,  /* calls of a group that may be under way */
    TSRI_CALL_INLINE = 8, /* segments whose offsets lie in the call record itself */
    TSRI_EXCHANGE_MAX = 64 * 1024,
};

/* Where a rank's sides of a segment are: offsets into its region. */
typedef struct tsri_seg_place {
    uint64_t src, dst;
} tsri_seg_place;

/* A rank's record of a call that it has come to. Fields that peers always read lie together. */
typedef struct tsri_call_entry {
    uint64_t seq, bytes, hash; /* hash: of all segments' dtypes, shapes and axes, and of `what` */
    uint64_t number;           /* for messages; 0: that of seq */
    int32_t kind, algo, op, root, nseg, line;
    /* The first segment, for messages. */
    int32_t dtype, ndim;
    tsri_seg_place place[TSRI_CALL_INLINE];
    int64_t shape[8];
    char what[64], file[64];
} tsri_call_entry;

/* The number of a call: from 1 in each of a rank's worlds. Above it the world's number, so that
 * what ranks left unfinished in an earlier world of an arena can't pass for calls of this one. */
enum { TSRI_SEQ_BITS = 40 };

static inline uint64_t tsri_seq_count(uint64_t seq)
{
    return seq & ((UINT64_C(1) << TSRI_SEQ_BITS) - 1);
}

/* Writes this rank's words about segments [first, first + nseg) of coll. */
void tsri_call_fill(tsri_call_entry *call, const tsri_coll *coll, int first, int nseg);
/* Whether two ranks mean the same call. */
bool tsri_call_agrees(const tsri_call_entry *a, const tsri_call_entry *b);
/* A hash of all that is compared. */
uint64_t tsri_call_print(const tsri_call_entry *call);
/* TSR_ERR_MISMATCH: where two members of the group of `ranks` are. */
tsr_status tsri_call_differ(const int *ranks, int index_a, const tsri_call_entry *a, int index_b,
                            const tsri_call_entry *b);
/* "all_reduce #17 'grad bucket 3' (model.c:31)" */
char *tsri_call_text(const tsri_call_entry *call, char *buf, size_t size);

#endif
