/* SPDX-License-Identifier: Apache-2.0 */
/* One table of kernel cases, and what runs a case on an implementation: every implementation is
 * held against the f64 reference, and that one against formulas. */
#ifndef TESSERA_TESTS_KERNELS_CASES_H
#define TESSERA_TESTS_KERNELS_CASES_H

#include "kernels/device.h"

/* How an operand is filled. */
typedef enum kc_fill {
    KC_UNIFORM = 0, /* -1..1 */
    KC_POSITIVE,    /* 0.1..1.1 */
    KC_NEAR_ONE,    /* 0.9..1.1: products of many are of a size */
    KC_NEGATIVE,    /* -3..-0.1 */
    KC_INSIDE,      /* -0.9..0.9 */
    KC_ABOVE,       /* 1.1..3.1 */
    KC_SPREAD,      /* -4..10: both sides of relu6's kinks */
    KC_FEW,         /* whole numbers 0..3: many equal */
    KC_BOOL,        /* 0 or 1 */
    KC_WHOLE,       /* whole numbers -9..9, never 0 */
    KC_LABEL,       /* classes of operand 0 */
    KC_STEP,        /* 3 */
    KC_BIG,         /* 2..3 */
    KC_HYPER,       /* an optimizer's numbers, all at work */
    KC_HYPER_PLAIN, /* without scale, decay and Nesterov's momentum */
    KC_HYPER_SKIP,  /* of an update that is left out */
    KC_STATS,       /* sums of x and x^2 that have a variance */
    KC_LSE,         /* operand 0's: the largest of each row, and the logarithm of what is left */
    KC_POOL_IDX,    /* some position inside the window, of operand 1's shape */
    KC_CLASS,       /* classes, of attrs.ce.classes */
    KC_COUNT,       /* 25 */
    KC_FAULTS,      /* -6e4..6e4, and one of 50 infinite or NaN */
    KC_ROW_STATS,   /* pairs of sums of x and x^2 that have a variance: layer norm's */
    KC_PART_0,      /* the number of a part in time */
    KC_PART_1,
    KC_PART_2,
    KC_PART_3,
} kc_fill;

typedef struct kc_arg {
    tsr_dims dims;
    tsr_dtype dtype; /* NONE: the float dtype that the case is run in */
    kc_fill fill;
    int64_t gshape[4], offset[4]; /* gshape[0] == 0: the whole tensor */
} kc_arg;

typedef struct kernel_case {
    const char *name;
    tsri_op_kind op;
    tsri_attrs attrs;
    int nin, nout;
    kc_arg in[8], out[4];
    int64_t groups;
    int in_place;     /* outputs 0.. are operands in_place - 1 .. */
    double tolerance; /* relative to the largest value, for f32; 0: 2e-5 */
} kernel_case;

/* Whether the last operand of a case is the initial value of its result (WHOLE, TOTAL). Kernels get
 * it only as the result. */
static inline bool kc_holds(const kernel_case *c)
{
    return c->op == TSRI_OP_WHOLE || c->op == TSRI_OP_TOTAL;
}

extern const kernel_case kernel_cases[];
extern const int kernel_cases_count;
const kernel_case *kernel_case_find(const char *name);

typedef enum kc_layout {
    KC_ROW = 0,
    KC_NHWC,  /* 4-D operands channels last */
    KC_MIXED, /* every second 4-D operand channels last */
    KC_OTHER, /* the others */
    KC_PLAN,  /* as plans have it: channels last, but for convolution's weights */
} kc_layout;

int64_t kc_count(const kc_arg *a);
/* A double array for operand i of the case, filled; values are exact in f32. The caller frees. */
double *kc_make(const kernel_case *c, int i, uint64_t seed);

/* A case's operands, its results, and what they ought to be. */
typedef struct kc_values {
    const kernel_case *c;
    double *in[8], *out[4], *want[4];
} kc_values;
/* Fills the operands with values of a dtype, where the case leaves it open; results are 0. */
kc_values kc_values_make(const kernel_case *c, tsr_dtype dtype);
void kc_values_free(kc_values *v);

/* What the case asks of an implementation. Borrows the case's attributes. */
tsri_kernel_desc kc_desc(const kernel_case *c, tsr_dtype dtype, kc_layout layout);

/* Makes a kernel of one implementation (the case's slot) and runs it. in[], out[]: row-major
 * doubles, the case's shapes. TSR_ERR_UNSUPPORTED when the implementation declines. */
tsr_status kc_run(const kernel_case *c, const tsri_kernels *impl, tsr_dtype dtype, kc_layout layout,
                  double *const *in, double *const *out);

/* The same with the buffers on a device; NULL: the host. */
tsr_status kc_run_on(tsri_device *device, const kernel_case *c, const tsri_kernels *impl,
                     tsr_dtype dtype, kc_layout layout, double *const *in, double *const *out);
/* The nearest value of a dtype. */
double kc_round(tsr_dtype dtype, double v);

/* The result by the op's formula, written down plainly in f64. False: no formula here. */
bool kc_oracle(const kernel_case *c, double *const *in, double *const *out);
/* Those of the indexing ops. */
bool kc_oracle_index(const kernel_case *c, double *const *in, double *const *out);
/* The formulas of what transformers are made of. */
bool kc_oracle_nn(const kernel_case *c, double *const *in, double *const *out);

#endif
