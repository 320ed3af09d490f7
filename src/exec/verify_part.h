/* SPDX-License-Identifier: Apache-2.0 */
/* One op, whole and in parts: its operands cut as a signature says, its kernel run on each part,
 * and the parts' results held against the whole. For tsr_op_verify. */
#ifndef TESSERA_EXEC_VERIFY_PART_H
#define TESSERA_EXEC_VERIFY_PART_H

#include "kernels/kernels.h"
#include "src/graph/graph.h"

/* A declared op with the whole values of operands and results: row-major doubles of any dtype. */
typedef struct tsri_whole {
    tsri_mem *mem;
    const tsri_op *op;
    double *in[TSRI_RULE_MAX_ARGS], *out[TSRI_RULE_MAX_ARGS];
    uint64_t rng;
} tsri_whole;

/* A mesh of parts: dim[0] x dim[1] x ... */
typedef struct tsri_part_mesh {
    int ndim, dim[TSR_MAX_HIERARCHY];
} tsri_part_mesh;

enum { TSRI_VERIFY_PARTS = 8 };

/* The next number in [0, 1) of a sequence. */
double tsri_verify_random(uint64_t *state);

/* Runs the whole op twice and sets out[]. Errors: TSR_ERR_INVALID where the runs differ, an element
 * stays unwritten, or something else is written; what the kernel says. */
tsr_status tsri_whole_run(tsri_whole *w, tsri_pool *pool);
/* Runs it once on the values of in[], without such checks. */
tsr_status tsri_whole_run_once(tsri_whole *w, tsri_pool *pool);
/* Runs the parts of a signature, and holds them against out[]. Errors: as tsri_whole_run; and
 * TSR_ERR_INVALID with the first element that differs. */
tsr_status tsri_whole_check(tsri_whole *w, tsri_pool *pool, const tsri_part_mesh *mesh,
                            const tsri_nd_signature *sig);

#endif
