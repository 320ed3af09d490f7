/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier of signatures: cuts an op's operands as a signature over a hierarchy says, runs its
 * kernel on each part, and holds the parts against the unsplit op. */
#ifndef TESSERA_TESTS_DIST_VERIFY_H
#define TESSERA_TESTS_DIST_VERIFY_H

#include "kernels/kernels.h"
#include "sbp/route/route.h"
#include "src/graph/graph.h"

/* An op with the whole values of its operands, and of its results once it has been run. Values are
 * row-major doubles whatever the dtype: whole numbers are small enough to be exact. */
typedef struct vf_op {
    tsri_op_kind kind;
    tsri_attrs attrs;
    int nin, nout;
    tsr_dims in_dims[TSRI_RULE_MAX_ARGS], out_dims[TSRI_RULE_MAX_ARGS];
    tsr_dtype in_dtype[TSRI_RULE_MAX_ARGS], out_dtype[TSRI_RULE_MAX_ARGS];
    double *in[TSRI_RULE_MAX_ARGS], *out[TSRI_RULE_MAX_ARGS];
    int64_t groups;
    int held; /* 1: behind the operands stands what result 0 holds before the run; else 0 */
} vf_op;

/* What goes wrong on purpose. */
typedef enum vf_fault {
    VF_NONE = 0,
    VF_NO_OFFSET,     /* kernels are told that every part begins at 0 */
    VF_INNER_OFFSET,  /* that it begins where it does in the piece which is split last */
    VF_GLOBAL_GROUPS, /* convolutions get the whole op's groups, not the part's */
    VF_OUTER_GROUPS,  /* those of the piece which is split first */
    VF_LOCAL_COUNT,   /* means divide by the part's count */
} vf_fault;

enum { VF_MAX_PARTS = 64 };

typedef struct vf_how {
    int ndim; /* the hierarchy; 0: one part */
    int dim[TSR_MAX_HIERARCHY];
    uint32_t split_groups; /* bit d: dimension d splits the convolution's g */
    bool nhwc;             /* 4-D data lies channels last */
    vf_fault fault;
    uint64_t seed; /* of the addends of P */
} vf_how;

static inline bool vf_sbp1_equal(tsr_sbp1 a, tsr_sbp1 b)
{
    return a.kind == b.kind && a.arg == b.arg;
}

/* Numbers in [0, 1). */
double vf_random(uint64_t *state);

/* Copies what the kernel needs of a declared op. */
vf_op vf_from(const tsri_op *op);
/* Runs the whole op: fills out[]. False, with a text, if the kernel fails. */
bool vf_run_whole(vf_op *op, char *why, size_t size);
/* Whether the signature is right. False: `why` says where it is not. */
bool vf_check(const vf_op *op, const tsri_nd_signature *sig, const vf_how *how, char *why,
              size_t size);
/* Whether a signature makes P(sum) of bools, which does not exist: inference drops those. */
bool vf_has_bool_sum(const vf_op *op, const tsri_nd_signature *sig);
/* "S(0),B -> P", or "(S(0),B),B -> (P,B)", into buf. */
char *vf_signature_text(const vf_op *op, const tsri_nd_signature *sig, char *buf, size_t size);

/* Whether the op, declared on these local operands, would have these local results: written down
 * per op, apart from its rule. */
bool vf_shapes_fit(const tsri_kernel_desc *d);

#endif
