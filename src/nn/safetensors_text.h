/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces of a safetensors header. Headers come from strangers and may be 100 MB of anything, so
 * objects are walked member by member, and cJSON is given one small value at a time.
 */
#ifndef TESSERA_NN_SAFETENSORS_TEXT_H
#define TESSERA_NN_SAFETENSORS_TEXT_H

#include <stdio.h>

#include "src/core/mem.h"
#include "src/target/dtype.h"

/* A dtype of the format. */
typedef struct tsri_st_dtype {
    const char *name;
    int bits;        /* of one element */
    tsr_dtype dtype; /* TSR_DTYPE_NONE: Tessera hasn't got it */
} tsri_st_dtype;

/* Finds the format's dtype of a name. Returns whether there is one. */
bool tsri_st_dtype_find(const char *name, tsri_st_dtype *out_dtype);

typedef struct tsri_span {
    const char *p;
    size_t n;
} tsri_span;

/* The members of an object. Begin with {.at, .end} around its text. */
typedef struct tsri_members {
    const char *at, *end; /* at the end: behind the closing brace */
    bool inside;
    const char *fault; /* what is wrong at `at`; NULL: nothing */
} tsri_members;

/* The next member's key and value, as they are written. False at the end, and on a fault. Strings
 * are checked for control characters and NUL, and nesting for its depth; all else about the value
 * is left to who parses it. */
bool tsri_members_next(tsri_members *m, tsri_span *out_key, tsri_span *out_value);

/* Whether these bytes are UTF-8 (RFC 3629). */
bool tsri_utf8_valid(const char *p, size_t n);

/* The string that a JSON string literal stands for, in pool memory: NULL with *out_status
 * TSR_ERR_FORMAT (no text set: the caller knows where) or TSR_ERR_NO_MEMORY. */
char *tsri_json_string(tsri_pool *pool, tsri_span literal, tsr_status *out_status);
/* Writes a text as a JSON string literal; false when there is no memory. */
bool tsri_json_put_string(FILE *f, const char *text);

#endif
