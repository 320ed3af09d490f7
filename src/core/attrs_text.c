/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/attrs_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void tsri_put_double(FILE *f, double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", x);
    fprintf(f, strtod(text, NULL) == x ? "%.15g" : "%.17g", x);
}

void tsri_put_number(FILE *f, const char *name, double value)
{
    fprintf(f, "%s: ", name);
    tsri_put_double(f, value);
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
        tsri_put_double(f, f64);
        return;
    case TSRI_ATTR_I64:
    case TSRI_ATTR_U64:
        memcpy(&i64, at, sizeof i64);
        fprintf(f, type == TSRI_ATTR_I64 ? "%" PRId64 : "0x%" PRIx64, i64);
        return;
    }
}

size_t tsri_attr_bytes(tsri_attr_type type)
{
    return type == TSRI_ATTR_I64 || type == TSRI_ATTR_U64 || type == TSRI_ATTR_F64 ? 8 : 4;
}

void tsri_attr_put(FILE *f, const tsri_attr_field *field, const tsri_attrs *attrs)
{
    for (int i = 0; i < field->n; i++) {
        if (i)
            fputc(',', f);
        put_value(f, (const char *)attrs + field->offset + (size_t)i * tsri_attr_bytes(field->type),
                  field->type);
    }
}

static bool get_value(const char **text, char *at, tsri_attr_type type)
{
    const size_t length = strcspn(*text, ",;}");
    char *end = NULL;
    double f64;
    int64_t i64 = 0;
    int32_t i32;
    switch (type) {
    case TSRI_ATTR_UNARY:
        i64 = tsri_unary_named(*text, length);
        break;
    case TSRI_ATTR_BINARY:
        i64 = tsri_binary_named(*text, length);
        break;
    case TSRI_ATTR_F64:
        f64 = strtod(*text, &end);
        memcpy(&i64, &f64, sizeof f64);
        break;
    case TSRI_ATTR_U64:
    case TSRI_ATTR_MASK:
        i64 = (int64_t)strtoull(*text, &end, 16);
        break;
    case TSRI_ATTR_I32:
    case TSRI_ATTR_I64:
        i64 = strtoll(*text, &end, 10);
    }
    if (end ? end == *text : i64 < 0)
        return false;
    *text = end ? end : *text + length;
    i32 = (int32_t)i64;
    if (tsri_attr_bytes(type) == 8)
        memcpy(at, &i64, sizeof i64);
    else
        memcpy(at, &i32, sizeof i32);
    return true;
}

bool tsri_attr_get(const char **text, const tsri_attr_field *field, tsri_attrs *attrs)
{
    for (int i = 0; i < field->n; i++) {
        char *at = (char *)attrs + field->offset + (size_t)i * tsri_attr_bytes(field->type);
        if (i && *(*text)++ != ',')
            return false;
        if (!get_value(text, at, field->type))
            return false;
    }
    return true;
}

void tsri_attrs_put(FILE *f, const tsri_attr_field *fields, const tsri_attrs *attrs)
{
    for (const tsri_attr_field *a = fields; a && a->name; a++) {
        fprintf(f, "%s: ", a->name);
        tsri_attr_put(f, a, attrs);
        fputc('\n', f);
    }
}
