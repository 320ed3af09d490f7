/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a graph section: how each is written, and the call that declares it. */
#ifndef TESSERA_CONFIG_OPS_H
#define TESSERA_CONFIG_OPS_H

#include "src/config/inside.h"

enum { TSRI_CONFIG_MAX_IN = 64 };

/* The arguments that an op is declared from. */
typedef struct tsri_op_call {
    tsr_graph *graph;
    const tsri_config_op *op;
    const char *name;
    tsr_tensor *in[TSRI_CONFIG_MAX_IN]; /* absent optional ones are NULL */
    int nin;
    const tsr_placement *placement; /* NULL: not said */
    tsr_sbp sbp;
    const char *file;
    int line;
} tsri_op_call;

/* Takes operands from `in`; or makes a tensor from nothing; or is the program's own part. */
typedef enum tsri_op_role {
    TSRI_ROLE_COMPUTE,
    TSRI_ROLE_SOURCE,    /* placed and signed by its own call */
    TSRI_ROLE_TO_GLOBAL, /* likewise, of its operand */
    TSRI_ROLE_SPLIT,     /* several results, one for each of `sizes` */
    TSRI_ROLE_CONSTANT,
    TSRI_ROLE_FROM_LOCAL,
    TSRI_ROLE_PARAMETER,
    TSRI_ROLE_INPUT, /* a field of the data's batch */
} tsri_op_role;

typedef struct tsri_op_row {
    tsri_op_role role;
    tsr_tensor *(*declare)(const tsri_op_call *c); /* NULL: the program does it */
} tsri_op_row;

/* Rows and sections by the same number: tsri_config_op.head.variant. */
extern const tsri_op_row tsri_op_rows[];
extern const tsri_section tsri_op_sections[];
extern const int tsri_nops;
/* The fields that every op has. */
extern const tsri_section tsri_op_section;

/* Whether an entry has a value for a key. */
bool tsri_op_has(const tsri_config_op *op, const char *key);
/* How many operands an op takes. */
void tsri_op_operands(const tsri_section *op, int *out_least, int *out_most);

#endif
