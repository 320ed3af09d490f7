/* SPDX-License-Identifier: Apache-2.0 */
/* How a tensor is laid out over its placement: per hierarchy dimension split, broadcast or
 * partial. */
#ifndef TESSERA_SBP_H
#define TESSERA_SBP_H

#include <tessera/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A value that is not finite on one rank is not finite under any placement, but an infinity may
 * become NaN where a partial value meets it in a product: an addend that is zero times infinity is
 * NaN. In the same way a zero that a linear op makes of a partial value, times a negative number,
 * may have the other sign; addends of zeros themselves are -0, which adds nothing to -0 either. The
 * compiler makes a value partial by addends of zeros only where these are added to others,
 * or where the program says P.
 */
typedef enum tsr_sbp_kind {
    TSR_SBP_AUTO = 0, /* not said: the compiler chooses */
    TSR_SBP_SPLIT,
    TSR_SBP_BROADCAST,
    TSR_SBP_PARTIAL,
} tsr_sbp_kind;

typedef enum tsr_reduce_op {
    TSR_REDUCE_SUM = 0,
    TSR_REDUCE_MAX,
    TSR_REDUCE_MIN,
    /* These serve tessera/collective.h alone; no signature has them. */
    TSR_REDUCE_PRODUCT,
    TSR_REDUCE_AVG,
} tsr_reduce_op;

/* One hierarchy dimension. arg: the axis of a split, the tsr_reduce_op of a partial, else 0. */
typedef struct tsr_sbp1 {
    int8_t kind, arg;
} tsr_sbp1;

/* A signature: one entry per hierarchy dimension; ndim 0 is "not said". Unused entries are zero,
 * so signatures can be compared bytewise. */
typedef struct tsr_sbp {
    int8_t ndim;
    tsr_sbp1 d[4];
} tsr_sbp;

#ifndef __cplusplus
/* 1-D signatures. */
#define TSR_S(axis) ((tsr_sbp){1, {{TSR_SBP_SPLIT, (axis)}}})
#define TSR_B ((tsr_sbp){1, {{TSR_SBP_BROADCAST, 0}}})
#define TSR_P ((tsr_sbp){1, {{TSR_SBP_PARTIAL, TSR_REDUCE_SUM}}})
#define TSR_P_MAX ((tsr_sbp){1, {{TSR_SBP_PARTIAL, TSR_REDUCE_MAX}}})
#define TSR_P_MIN ((tsr_sbp){1, {{TSR_SBP_PARTIAL, TSR_REDUCE_MIN}}})
#define TSR_AUTO ((tsr_sbp){0, {{0, 0}}})
/* A signature over several hierarchy dimensions, of one for each: TSR_ND(TSR_S(0), TSR_B). */
#define TSR_ND(...)                                                       \
    tsr_sbp_nd((int)(sizeof((tsr_sbp[]){__VA_ARGS__}) / sizeof(tsr_sbp)), \
               (const tsr_sbp[]){__VA_ARGS__})
#endif

/* Longest text form, with its end: "(P(sum),P(sum),P(sum),P(sum))" and some air. */
#define TSR_SBP_TEXT_MAX 48

/* Returns the signature of n 1-D ones, outermost dimension first. Where n is outside 1 .. 4, or an
 * entry is not 1-D, it returns a signature that every call refuses. */
TSR_API tsr_sbp tsr_sbp_nd(int n, const tsr_sbp *entries);
/* Returns whether two signatures are the same. */
TSR_API bool tsr_sbp_equal(tsr_sbp a, tsr_sbp b);
/*
 * Parses "S(0)", "B", "P", "P(sum)", "P(max)", "P(min)", "auto", and n-D "(S(0),B)". Blanks are
 * ignored, letters may be small. Errors: TSR_ERR_FORMAT naming the column and what is legal.
 */
TSR_API tsr_status tsr_sbp_parse(const char *text, tsr_sbp *out_sbp);
/* Writes the text form ("P" is written for P(sum)) into buf and returns buf (NULL: nothing).
 * Round-trips. */
TSR_API char *tsr_sbp_format(tsr_sbp sbp, char buf[TSR_SBP_TEXT_MAX]);

#ifdef __cplusplus
}
#endif
#endif
