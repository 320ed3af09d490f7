/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strategy of a plan in the field's words, recognised from its signatures alone. A layer is a
 * forward op that reads a parameter of two or more axes and is not element-wise: a product, a
 * convolution, an embedding. Each dimension of a placement is named by what its layers do there:
 */
// clang-format off
/*
 *   data parallel   weights are in B, what they meet is split along axis 0
 *   ZeRO-1          so, and each rank keeps a part of the optimizer's states; gradients are whole.
 *                   Weights of a tenth of all may have whole states, as those of odd sizes
 *   ZeRO-2          so, and of most gradients each rank receives the part that it keeps states for
 *   ZeRO-3 (FSDP)   so, and weights, nine tenths of them at least, are kept in parts too, and
 *                   gathered where they are used
 *   Megatron        pairs: a layer that splits its results feeds one that splits what it sums
 *                   over, and what lies between stays split (Shoeybi et al., arXiv:1909.08053)
 *   sequence        weights are in B, what they meet is split along an axis between batch and width
 *   replicated      all ranks compute all of it
 *
 * A name is given only where all layers agree; else there is none, and `layers` says what they do.
 */
// clang-format on
#ifndef TESSERA_PLAN_STRATEGY_H
#define TESSERA_PLAN_STRATEGY_H

#include "src/plan/plan.h"

typedef enum tsri_strategy_kind {
    TSRI_STRATEGY_NONE = 0, /* no name fits */
    TSRI_STRATEGY_REPLICATED,
    TSRI_STRATEGY_DATA,
    TSRI_STRATEGY_ZERO1,
    TSRI_STRATEGY_ZERO2,
    TSRI_STRATEGY_ZERO3,
    TSRI_STRATEGY_MEGATRON,
    TSRI_STRATEGY_SEQUENCE,
} tsri_strategy_kind;

/* The way of one layer over one dimension. */
typedef enum tsri_layer_kind {
    TSRI_LAYER_OTHER = 0,
    TSRI_LAYER_REPLICATED,
    TSRI_LAYER_DATA,
    TSRI_LAYER_GATHERED, /* as DATA, by a weight that is kept in parts */
    TSRI_LAYER_SEQUENCE,
    TSRI_LAYER_SEQUENCE_GATHERED,
    TSRI_LAYER_COLUMN,     /* splits its results' features */
    TSRI_LAYER_ROW,        /* splits the features that it sums over */
    TSRI_LAYER_GROUP,      /* splits both alike: a depthwise convolution */
    TSRI_LAYER_VOCABULARY, /* an embedding whose rows are split */
    TSRI_LAYER_KINDS,
} tsri_layer_kind;

/* One dimension of more than one rank. */
typedef struct tsri_axis_strategy {
    int dim, size;
    tsri_strategy_kind kind;
    int layers[TSRI_LAYER_KINDS]; /* how many do what */
    int nlayers;
    int pairs;              /* MEGATRON: layers that end one */
    int others;             /* MEGATRON: layers that do none of what it does */
    int blocks, of_blocks;  /* MEGATRON: with pairs, of alike; of_blocks 0: no blocks have names */
    int norms, of_norms;    /* norms that are split along the sequence */
    bool embedding, output; /* an embedding is split by the vocabulary, the last layer by columns */
    bool output_words;      /* the columns of the last layer are a vocabulary's words */
    bool states;            /* parameters are whole, and optimizer states are kept in parts */
    const char *words;      /* "data parallel x2"; where no name fits what layers do */
} tsri_axis_strategy;

/* The way of one layer, by the stage's axes. */
typedef struct tsri_layer_way {
    const char *name; /* of its weight; may be "" */
    tsri_layer_kind kind[TSR_MAX_HIERARCHY];
} tsri_layer_way;

/* Layers of one placement. */
typedef struct tsri_stage_strategy {
    const tsr_placement *placement;
    int nlayers, clayers, naxes;
    tsri_layer_way *layers; /* [nlayers] in the order of the program */
    tsri_axis_strategy axis[TSR_MAX_HIERARCHY];
    const char *words, *layout;
} tsri_stage_strategy;

typedef struct tsri_strategy {
    int nstages;
    tsri_stage_strategy *stages; /* in the order of the program */
    bool pipeline;               /* stages share no rank, and each feeds the next */
    bool named;                  /* all of it has a name */
    const char *words;           /* of all; never NULL, never empty */
    /* In plain words: "parameters split, gathered layer by layer (ZeRO-3)"; of several dimensions
     * their names first, "ZeRO-1 x4, tensor parallel x2: ...". Never NULL, never empty. */
    const char *layout;
} tsri_strategy;

/* Returns the name of a dimension of a placement, or "axis 1", in buf. */
char *tsri_axis_name(const tsr_placement *p, int dim, char buf[24]);
/* Returns the length of a layer's name: of its weight's without the last part. */
int tsri_layer_name_length(const tsri_layer_way *l);
/* "by rows of the batch". */
const char *tsri_layer_words(tsri_layer_kind kind);
/* Recognises the strategy of a plan. All of it lies in `pool`. */
tsr_status tsri_strategy_find(const tsr_plan *plan, tsri_pool *pool, tsri_strategy *out_strategy);

#endif
