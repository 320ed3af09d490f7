/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cost tables of the search, each kept once: a network repeats its layers, so that the same tables
 * meet again and again, and what was computed from them need not be computed twice. A table is
 * known by its number; operations remember their results by the numbers of their operands.
 */
#ifndef TESSERA_SBP_SEARCH_MEMO_H
#define TESSERA_SBP_SEARCH_MEMO_H

#include "src/core/mem.h"

/* A vector is a matrix of one row. Forbidden entries are INFINITY. */
typedef struct tsri_smatrix {
    int rows, cols;
    const double *at; /* [rows][cols]; NULL until tsri_sm_rows asks for it */
    int flip;         /* the number of its transpose */
} tsri_smatrix;

typedef struct tsri_smemo_entry tsri_smemo_entry;

typedef struct tsri_smemo {
    tsri_pool *pool;
    tsri_smatrix *mats;
    int nmats, cmats;
    tsri_smemo_entry *slots;
    int nslots, nused;
    void *scratch; /* of domination */
    size_t scratch_bytes;
    double work;  /* additions of domination that are left: it is optional, so it is bounded */
    double spent; /* additions so far */
} tsri_smemo;

/* The strategies that tsri_sm_dominate leaves of a node's strategies. */
typedef struct tsri_smkept {
    int count; /* of `of`: all were kept if they are equal */
    int of;
    const int *index; /* [count], ascending */
} tsri_smkept;

tsr_status tsri_sm_init(tsri_smemo *memo, tsri_pool *pool);

/* The entries, row-major; NULL without memory. */
const double *tsri_sm_rows(tsri_smemo *memo, int m);
static inline int tsri_sm_flip(const tsri_smemo *memo, int m)
{
    return memo->mats[m].flip;
}

/* An edge's costs as the problem has them. Equal ones at different addresses get one number. */
tsr_status tsri_sm_input(tsri_smemo *memo, const float *cost, int rows, int cols, int *out);
/* Takes entries that lie in the memo's pool. */
tsr_status tsri_sm_own(tsri_smemo *memo, const double *at, int rows, int cols, int *out);
/* A vector of the caller's doubles, copied. */
tsr_status tsri_sm_vector(tsri_smemo *memo, const double *cost, int count, int *out);
/* The rows of m that are kept. */
tsr_status tsri_sm_select(tsri_smemo *memo, int m, const tsri_smkept *kept, int *out);
tsr_status tsri_sm_add(tsri_smemo *memo, int a, int b, int *out);
/* Vector of min over s of node[s] + m[s][j]. */
tsr_status tsri_sm_message(tsri_smemo *memo, int node, int m, int *out);
/* Matrix of min over s of node[s] + a[s][i] + b[s][j]. */
tsr_status tsri_sm_join(tsri_smemo *memo, int node, int a, int b, int *out);
/* Whether m is exactly a sum of vectors row[i] + col[j]: then it couples nothing. *out_row < 0: no.
 */
tsr_status tsri_sm_split(tsri_smemo *memo, int m, int *out_row, int *out_col);
/* m with `forbid` for INFINITY. */
tsr_status tsri_sm_finite(tsri_smemo *memo, int m, double forbid, int *out);

/* Drops strategies that are forbidden, with all of a neighbour's too, or dominated: no feasible
 * assignment with s is better than the same with t, as t's largest losses over the edges are at
 * most what it gains at the node (Goldstein's criterion of dead-end elimination), nor does t use
 * more. A tie goes to the lower strategy. sides[nsides]: matrices [own][neighbour's], sorted by
 * number here. use: vector, or -1. */
tsr_status tsri_sm_dominate(tsri_smemo *memo, int node, int use, int *sides, int nsides,
                            tsri_smkept *out);

#endif
