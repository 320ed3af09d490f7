/* SPDX-License-Identifier: Apache-2.0 */
/* A rule as parsed and bound: parse.c makes it for derive.c, gradient.c, nd.c and rule.c. */
#ifndef TESSERA_SBP_RULE_TYPES_H
#define TESSERA_SBP_RULE_TYPES_H

#include "sbp/rule/rule.h"

/* An item of an axis: the number of an index, or one of these. */
enum {
    TSRI_ITEM_DOT = -1, /* a '.', of any size */
    TSRI_ITEM_ONE = -2, /* a '1', a '.' of size 1 inside ( ), or an axis that is broadcast */
};

enum { TSRI_GROUP_FACTOR = -1 };   /* of an operand before ':' */
enum { TSRI_REDUCE_DEFAULT = -1 }; /* of an output without 'max' or 'min': the sum */

/* One operand or output in one rule. */
typedef struct tsri_rule_arg {
    bool used; /* not '_' */
    bool nonlinear, monotone;
    int8_t group;  /* operands: the number of the addend, or TSRI_GROUP_FACTOR */
    int8_t reduce; /* outputs: a tsr_reduce_op, or TSRI_REDUCE_DEFAULT */
    int8_t naxes;
    int16_t axis[TSR_MAX_NDIM + 1];        /* axis i is items [axis[i], axis[i + 1]) */
    uint32_t holds;                        /* bit l: index l is in one of the axes */
    int8_t axis_of[TSRI_RULE_MAX_INDICES]; /* of index l, if held */
} tsri_rule_arg;

/* The text between two ';'. */
typedef struct tsri_subrule {
    tsri_rule_arg *in;  /* [nin of the whole] */
    tsri_rule_arg *out; /* [nout] */
    int first_out, nout;
} tsri_subrule;

typedef struct tsri_rule_index {
    char name[TSRI_RULE_NAME_MAX]; /* padded with zeros */
    int64_t size;                  /* -1: not known (only while binding) */
    bool at;                       /* some operand or output has '@' after it */
    int64_t lesser; /* over a hierarchy: that of some parts, size or size - 1; else as size */
} tsri_rule_index;

struct tsri_rule {
    const char *text;
    int nin, nout, nindices, nrules;
    bool broadcasts; /* an operand lacks an axis of '...', or has size 1 where another has more */
    tsri_rule_index index[TSRI_RULE_MAX_INDICES];
    tsri_subrule *rules; /* [nrules] */
    int8_t *items;       /* of all axes */
};

/* Parses and expands '...'; index sizes stay unknown. Checks the number of operands, outputs and
 * axes; in, or out, is NULL where their shapes are not known. */
tsr_status tsri_rule_parse(tsri_pool *pool, const char *text, int nin, const tsr_dims *in, int nout,
                           const tsr_dims *out, tsri_rule **out_rule);

/* A 1-D signature and the indices that it splits. */
typedef struct tsri_rule_entry {
    tsri_signature sig;
    uint32_t split; /* bit l: index l */
} tsri_rule_entry;

/* tsri_rule_derive, with the indices that each signature splits: what is legal for parts of both
 * sizes of each index. */
tsr_status tsri_rule_entries(tsri_pool *pool, const tsri_rule *rule, int k, int *out_count,
                             tsri_rule_entry **out_entries);

#endif
