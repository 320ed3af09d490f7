/* SPDX-License-Identifier: Apache-2.0 */
/* Every op of the programs in signature_cases.h, with its values and its signatures. */
#ifndef TESSERA_TESTS_DIST_SIGNATURES_H
#define TESSERA_TESTS_DIST_SIGNATURES_H

#include "tests/dist/signatures/verify.h"

/* A declared op with its values, and its rule. */
typedef struct sg_entry {
    const char *name; /* of the program */
    tsr_dtype real;   /* of the program's data: f64, or f32, which the fast kernels take */
    const tsri_op *op;
    vf_op v;
    tsri_rule_text text;
} sg_entry;

extern sg_entry *sg_entries;
extern int sg_nentries;

/* Declares the programs and runs them unsplit; equal ops are listed once. cmocka's. */
int sg_setup(void **state);
int sg_teardown(void **state);

typedef struct sg_derived {
    tsri_pool pool;
    tsri_rule *rule;
    int n, groups_index;
    int derived; /* the first of them: by the rule. The others are what no rule expresses */
    tsri_nd_signature *sig;
} sg_derived;

/* All signatures of an op over a hierarchy by a rule's text, and what no rule expresses. False: the
 * text is no rule of this op. */
bool sg_derive(const sg_entry *e, const tsri_rule_text *text, int ndim, const int *dim,
               sg_derived *out);
void sg_derived_finish(sg_derived *d);
bool sg_same(const sg_entry *e, const tsri_nd_signature *a, const tsri_nd_signature *b);
bool sg_contains(const sg_entry *e, const sg_derived *d, const tsri_nd_signature *sig);
/* vf_check, for one of d's signatures or one made from it. */
bool sg_check(const sg_entry *e, const tsri_nd_signature *sig, const sg_derived *d, vf_how how,
              char *why, size_t size);
/* Whether its kernels also take 4-D data channels last. */
bool sg_has_planes(const sg_entry *e);
/* Whether its values can tell right from wrong: nothing, zeros and single numbers can't. */
bool sg_can_tell(const sg_entry *e);

#endif
