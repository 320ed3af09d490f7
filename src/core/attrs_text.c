/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/attrs_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The shortest text that is this number and no other, of 15 digits or 17. */
static void put_double(FILE *f, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    fprintf(f, strtod(text, NULL) == x ? "%.15g" : "%.17g", x);
}

void tsri_put_number(FILE *f, const char *name, double value)
{
    fprintf(f, "%s: ", name);
    put_double(f, value);
    fputc('\n', f);
}

static void put_value(FILE *f, const char *at, tsri_attr_type type)
{
    int32_t i32;
    int64_t i64;
    double f64;
    memcpy(&i32, at, sizeof i32);
    switch (type) {
    case TSRI_ATTR_I32:
        fprintf(f, "%" PRId32, i32);
        return;
    case TSRI_ATTR_MASK:
        fprintf(f, "0x%" PRIx32, (uint32_t)i32);
        return;
    case TSRI_ATTR_UNARY:
        fputs(tsri_unary_name((tsri_unary_fn)i32), f);
        return;
    case TSRI_ATTR_BINARY:
        fputs(tsri_binary_name((tsri_binary_fn)i32), f);
        return;
    case TSRI_ATTR_F64:
        memcpy(&f64, at, sizeof f64);
        put_double(f, f64);
        return;
    case TSRI_ATTR_I64:
    case TSRI_ATTR_U64:
        memcpy(&i64, at, sizeof i64);
        fprintf(f, type == TSRI_ATTR_I64 ? "%" PRId64 : "0x%" PRIx64, i64);
        return;
    }
}

void tsri_attrs_put(FILE *f, const tsri_attr_field *fields, const tsri_attrs *attrs)
{
    for (const tsri_attr_field *a = fields; a && a->name; a++) {
        bool wide =
            a->type == TSRI_ATTR_I64 || a->type == TSRI_ATTR_U64 || a->type == TSRI_ATTR_F64;
        fprintf(f, "%s: ", a->name);
        for (int i = 0; i < a->n; i++) {
            if (i)
                fputc(',', f);
            put_value(f, (const char *)attrs + a->offset + (size_t)i * (wide ? 8 : 4), a->type);
        }
        fputc('\n', f);
    }
}
