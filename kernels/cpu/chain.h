/* SPDX-License-Identifier: Apache-2.0 */
/* Inside chains: chain.c makes them, of the members that chain_join.c leaves; chain_lines.c leads
 * images through line by line. */
#ifndef TESSERA_KERNELS_CPU_CHAIN_H
#define TESSERA_KERNELS_CPU_CHAIN_H

#include "kernels/kernels.h"

typedef struct tsri_chain {
    tsri_kernel base;
    int n, ngiven, nouter, nvalues;
    int nwalked; /* kernels that are led through by pieces, where any are; behind them updates */
    bool by_pieces;
    bool asks; /* for what the next piece reads and writes, between the kernels of a piece */
    int threads;
    int64_t units, piece; /* rows or images, in all and of a piece */
    tsri_kernel *kernel[TSRI_CHAIN_MAX];
    int nin[TSRI_CHAIN_MAX], nout[TSRI_CHAIN_MAX]; /* operands: with those of its end */
    int8_t made_by[TSRI_CHAIN_MAX];                /* of a member of the desc: the kernel */
    int8_t in[TSRI_CHAIN_MAX][TSRI_KERNEL_MAX_ARGS], out[TSRI_CHAIN_MAX][TSRI_KERNEL_MAX_ARGS];
    bool hands_on[TSRI_CHAIN_MAX];     /* a kernel's result goes to an update as it is made */
    int8_t from[TSRI_CHAIN_MAX];       /* of such an update: that kernel, from 1; 0: none */
    size_t scratch_at[TSRI_CHAIN_MAX]; /* of each kernel */
    struct {
        size_t at;                        /* in what the chain keeps */
        int in;                           /* the operand; behind it are those of its end */
    } kept[TSRI_CHAIN_MAX];               /* of each kernel */
    size_t value_at[TSRI_CHAIN_VALUES];   /* of inner values; by pieces from thread_at on, */
    bool whole[TSRI_CHAIN_VALUES];        /* unless updates alone read all of it */
    int8_t place_of[TSRI_CHAIN_VALUES];   /* in turn: the value in whose place it is; itself */
    size_t unit_bytes[TSRI_CHAIN_VALUES]; /* of a row or image; 0: the value is not walked */
    size_t thread_at, thread_bytes;
    /* Images that are too large for the cache are led through by lines; 0 steps: they are not. */
    int64_t steps;
    int64_t height[TSRI_CHAIN_VALUES]; /* lines of an image */
    int64_t room[TSRI_CHAIN_VALUES];   /* of inner values: lines that the scratch has room for */
} tsri_chain;

/* A run's operands, results and scratch. */
typedef struct tsri_chain_job {
    const tsri_chain *k;
    void *const *in, *const *out;
    char *scratch;
} tsri_chain_job;

/* Where value v begins, for all of it; NULL for an inner one. */
static inline char *tsri_chain_whole(const tsri_chain_job *j, int v)
{
    const tsri_chain *k = j->k;
    return v < k->ngiven ? j->in[v] : v < k->ngiven + k->nouter ? j->out[v - k->ngiven] : NULL;
}

static inline bool tsri_chain_is_inner(const tsri_chain *k, int v)
{
    return v >= k->ngiven + k->nouter;
}

/* Where an inner value of a thread lies. */
static inline char *tsri_chain_inner(const tsri_chain_job *j, int thread, int v)
{
    if (j->k->whole[v])
        return j->scratch + j->k->value_at[v];
    return j->scratch + j->k->thread_at + (size_t)thread * j->k->thread_bytes + j->k->value_at[v];
}

/* Returns the memory that kernel m keeps; NULL: it keeps none. */
static inline char *tsri_chain_kept(const tsri_chain_job *j, int m)
{
    const tsri_chain *k = j->k;
    return k->kernel[m]->kept_bytes ? (char *)j->in[k->ngiven] + k->kept[m].at : NULL;
}

/* Returns how many operands of members a value is. */
int tsri_chain_readers(const tsri_chain_desc *d, int v);
/* Whether two buffers have one dtype, shape and order of elements. */
bool tsri_chain_alike(const tsri_arg *a, const tsri_arg *b);

/* A chain of fewer members: those whose work others do are taken out. */
typedef struct tsri_chain_joined {
    tsri_chain_desc d;
    int8_t place[TSRI_CHAIN_MAX]; /* of each member of the whole: the one that does its work */
} tsri_chain_joined;

/* Lets sums of f32 take the operands of the products that they are of, which go: reductions of two
 * operands. Returns whether there are any. */
bool tsri_chain_join_products(tsri_chain_joined *j);
/* Lets convolutions and linear layers do what is done to their results, as far as one operation
 * reads each. Returns whether there is anything. */
bool tsri_chain_join_ends(tsri_chain_joined *j);

/* Plans to lead images through by lines, so that about `bytes` are at work at a time: sets steps
 * and room. False: a kernel can't, or the images have too few lines for it. */
bool tsri_chain_plan_lines(tsri_chain *k, const tsri_chain_desc *d, size_t bytes);
/* Leads image `image` through all kernels. */
void tsri_chain_image(const tsri_chain_job *j, int thread, int64_t image);

#endif
