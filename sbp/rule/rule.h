/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/*
 * Rules: one line per op from which its legal signatures follow. Notation:
 *
 *   rules    := rule (';' rule)*              one rule per output, where outputs use different
 *                                             operands
 *   rule     := [factors ':'] [addend ('+' addend)*] '->' output (',' output)*
 *   factors  := operand (',' operand)*        common to all addends
 *   addend   := operand (',' operand)*        a product: linear in each operand that has no '!'
 *   operand  := ['!'] ['^'] axes | '_'        '_': this output does not use the operand
 *   output   := ['max' | 'min'] axes          how indices that it lacks were reduced; default sum
 *   axes     := axis* | '()'                  '()': a scalar
 *   axis     := name ['@'] | '.' | '1' | '...' | '(' (name | '.')+ ')'
 *   name     := letter digit*                 at most six digits
 *
 *   m        an index; in several operands the same one, and at most once in each
 *   .        can't be split
 *   1        size 1. Also any operand axis of global size 1 where its index is larger elsewhere
 *   ...      any number of axes, aligned from the right, each its own index
 *   (g i)    one axis of g*i elements, g outermost
 *   !        the op is not linear in this operand: P(sum) never enters
 *   ^        commutes with max and min: P(max), P(min) pass; in all addends, in all at once
 *   @        the kernel needs the shard's global offset along this index
 *
 * Pure: plain data in and out.
 */
// clang-format on
#ifndef TESSERA_SBP_RULE_RULE_H
#define TESSERA_SBP_RULE_RULE_H

#include <tessera/sbp.h>
#include "src/core/mem.h"

enum { TSRI_RULE_MAX_ARGS = 12, TSRI_RULE_MAX_INDICES = 32, TSRI_RULE_NAME_MAX = 8 };

/* The size that an index has, for indices inside ( ), whose sizes no axis tells. */
typedef struct tsri_index_size {
    char name[TSRI_RULE_NAME_MAX];
    int64_t size;
} tsri_index_size;

/* A parsed rule, expanded and bound to global shapes. Lives in the pool it was made in. */
typedef struct tsri_rule tsri_rule;

/*
 * Parses `text` and binds it to the operands' and outputs' global shapes. sizes[]: for indices
 * inside ( ) that can't be derived (one unknown per axis is). Checks that index sizes agree over
 * operands and outputs. Errors: TSR_ERR_INTERNAL for a malformed rule (with the column),
 * TSR_ERR_SHAPE where shapes do not fit.
 */
tsr_status tsri_rule_bind(tsri_pool *pool, const char *text, int nin, const tsr_dims *in, int nout,
                          const tsr_dims *out, int nsizes, const tsri_index_size *sizes,
                          tsri_rule **out_rule);

/* Checks a text alone, for any shapes. Errors: TSR_ERR_INTERNAL, with the column. */
tsr_status tsri_rule_check_text(tsri_pool *pool, const char *text, int nin, int nout);

/* Sets out[] to the outputs' shapes that follow from those of the operands. Errors: as
 * tsri_rule_bind; TSR_ERR_INTERNAL where an axis follows from none. */
tsr_status tsri_rule_shapes(tsri_pool *pool, const char *text, int nin, const tsr_dims *in,
                            int nout, tsr_dims *out);

/*
 * Writes the rule of an op's gradient, from the bound rule of the op: of operands and gradients of
 * the outputs to the gradients of those operands that bits of `want` name. results: the outputs
 * stand between, as operands. The gradient is linear in those of the outputs together, and in
 * nothing else; an operand that lacks an index (or is broadcast along it) met all of it, so that
 * its gradient is the sum over it: what is split gives partial ones. buf must hold 512 bytes, sizes
 * TSRI_RULE_MAX_INDICES. Errors: TSR_ERR_UNSUPPORTED for several rules in one text, and for
 * outputs that are reduced by max or min, whose gradients follow no such rule.
 */
tsr_status tsri_rule_gradient(const tsri_rule *rule, uint32_t want, bool results, char *buf,
                              size_t buf_size, tsri_index_size *out_sizes, int *out_nsizes);

/* One legal 1-D signature of an op. */
typedef struct tsri_signature {
    tsr_sbp1 in[TSRI_RULE_MAX_ARGS];
    tsr_sbp1 out[TSRI_RULE_MAX_ARGS];
    /* The index that is split (into tsri_rule's indices; the first one where each addend splits an
     * index of its own), or -1. */
    int index;
} tsri_signature;

/*
 * All legal 1-D signatures over k parts, all-B first, in a fixed order without repetition.
 * k >= 1; for k == 1 only all-B. Stored in the pool.
 */
tsr_status tsri_rule_derive(tsri_pool *pool, const tsri_rule *rule, int k, int *out_count,
                            tsri_signature **out_signatures);

/* One legal signature over a hierarchy: dimension 0 takes a 1-D one; each of its groups then runs
 * the same op on smaller tensors, for which dimension 1 takes a 1-D one; and so on. */
typedef struct tsri_nd_signature {
    tsr_sbp in[TSRI_RULE_MAX_ARGS];
    tsr_sbp out[TSRI_RULE_MAX_ARGS];
    uint32_t split[TSR_MAX_HIERARCHY]; /* bit l: index l is split over that dimension */
} tsri_nd_signature;

/*
 * All signatures over a hierarchy of dim[ndim] parts that are legal for every coordinate (pieces of
 * an uneven split differ), all-B first, in a fixed order without repetition; dimensions of size 1
 * are B. Kinds of P are not mixed in one tensor. Stored in the pool.
 */
tsr_status tsri_rule_derive_nd(tsri_pool *pool, const tsri_rule *rule, int ndim, const int *dim,
                               int *out_count, tsri_nd_signature **out_signatures);

/* The operands, as bits, that are only ever added to others: an addend of zeros is harmless to
 * these. In a product it is not, since zero times infinity is NaN. */
uint32_t tsri_rule_added(const tsri_rule *rule);

/* Returns whether an operand is broadcast: an axis of it has size 1 where its index is larger, or
 * is missing from its '...'. */
bool tsri_rule_broadcasts(const tsri_rule *rule);

/* The indices of a bound rule and their global sizes. */
int tsri_rule_nindices(const tsri_rule *rule);
const char *tsri_rule_index_name(const tsri_rule *rule, int index);
int64_t tsri_rule_index_size(const tsri_rule *rule, int index);
/* Whether a kernel needs its shard's offset along an index: the rule has an '@' there. */
bool tsri_rule_needs_offset(const tsri_rule *rule, int index);
/* The number of an index by name; -1 if there is none. Axes of '...' are named "~0", "~1" from the
 * right. */
int tsri_rule_find_index(const tsri_rule *rule, const char *name);

/* Writes the rule of a reshape from one shape to another of the same count ("a b c -> (a b) c"),
 * and the sizes of its indices. buf must hold 256 bytes, sizes TSRI_RULE_MAX_INDICES. */
tsr_status tsri_rule_reshape(tsr_dims from, tsr_dims to, char *buf, size_t buf_size,
                             tsri_index_size *out_sizes, int *out_nsizes);

#endif
