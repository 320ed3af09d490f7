/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes of ops by name, for messages: an op's definition has its fields. */
#ifndef TESSERA_CORE_ATTRS_TEXT_H
#define TESSERA_CORE_ATTRS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "src/core/op_list.h"

/* Writes the shortest text that is this number and no other, of 15 digits or 17. */
void tsri_put_double(FILE *f, double x);
/* Writes a line "name: value", exactly. */
void tsri_put_number(FILE *f, const char *name, double value);
/* A member of tsri_attrs, or an array of n of them. */
typedef enum tsri_attr_type {
    TSRI_ATTR_I32 = 0,
    TSRI_ATTR_I64,
    TSRI_ATTR_U64,  /* hexadecimal: keys and hashes */
    TSRI_ATTR_MASK, /* hexadecimal, 32 bits */
    TSRI_ATTR_F64,
    TSRI_ATTR_UNARY,  /* a tsri_unary_fn */
    TSRI_ATTR_BINARY, /* a tsri_binary_fn */
} tsri_attr_type;
typedef struct tsri_attr_field {
    const char *name;
    size_t offset;
    tsri_attr_type type;
    int n;
} tsri_attr_field;
#define TSRI_ATTR_FIELDS(member, type, n, label)                 \
    {                                                            \
        label, offsetof(tsri_attrs, member), TSRI_ATTR_##type, n \
    }
#define TSRI_ATTR_FIELD(member, type, label) TSRI_ATTR_FIELDS(member, type, 1, label)
#define TSRI_ATTR_KEY(member) \
    TSRI_ATTR_FIELD(member, U64, "random key (of the graph's seed and the name)")
#define TSRI_ATTR_END                 \
    {                                 \
        NULL, 0, (tsri_attr_type)0, 0 \
    }

/* Bytes of one value. */
size_t tsri_attr_bytes(tsri_attr_type type);
/* Writes a field's values, exactly, with commas between. */
void tsri_attr_put(FILE *f, const tsri_attr_field *field, const tsri_attrs *attrs);
/* Parses values in the format of tsri_attr_put and advances *text past them. Returns false if *text
 * has another format. */
bool tsri_attr_get(const char **text, const tsri_attr_field *field, tsri_attrs *attrs);
/* Writes one line "name: value" for each field, up to TSRI_ATTR_END; fields may be NULL: none. */
void tsri_attrs_put(FILE *f, const tsri_attr_field *fields, const tsri_attrs *attrs);

#endif
