/* SPDX-License-Identifier: Apache-2.0 */
#include "src/config/array.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "src/config/schema.h"
#include "src/core/convert.h"
#include "src/core/dims.h"

double tsri_dtype_max(tsr_dtype dtype)
{
    return tsri_is_float(dtype) ? tsri_dtype_of(dtype)->max : DBL_MAX;
}

void tsri_number_store(tsr_dtype dtype, double v, int64_t i, void *at)
{
    int32_t i32 = (int32_t)i;
    uint8_t u8 = dtype == TSR_BOOL ? i != 0 : (uint8_t)i;
    const void *from = dtype == TSR_I64 ? (const void *)&i : dtype == TSR_I32 ? &i32 : (void *)&u8;
    if (tsri_is_float(dtype))
        tsri_convert(at, dtype, &v, TSR_F64, 1);
    else
        memcpy(at, from, tsr_dtype_size(dtype));
}

static tsr_status check_bool(const tsri_yaml *node, uint8_t *out_value)
{
    char shown[TSRI_YAML_TEXT_MAX];
    bool plain = node->kind == TSRI_YAML_SCALAR && !node->quoted;
    bool yes = plain && (!strcasecmp(node->text, "true") || !strcmp(node->text, "1"));
    bool no = plain && (!strcasecmp(node->text, "false") || !strcmp(node->text, "0"));
    *out_value = yes;
    return yes || no ? TSR_OK
                     : tsri_yaml_fail(node, "found %s; legal is true or false",
                                      tsri_yaml_shown(node, shown));
}

static tsr_status check_integer(const tsri_yaml *node, tsr_dtype dtype, int64_t *out_value)
{
    int64_t low = dtype == TSR_I64 ? INT64_MIN : dtype == TSR_I32 ? INT32_MIN : 0;
    int64_t high = dtype == TSR_I64 ? INT64_MAX : dtype == TSR_I32 ? INT32_MAX : UINT8_MAX;
    TSRI_TRY(tsri_value_int(node, out_value));
    if (*out_value < low || *out_value > high)
        return tsri_yaml_fail(node, "%lld is no %s; these go from %lld to %lld",
                              (long long)*out_value, tsr_dtype_name(dtype), (long long)low,
                              (long long)high);
    return TSR_OK;
}

static tsr_status check_float(const tsri_yaml *node, tsr_dtype dtype, double *out_value)
{
    TSRI_TRY(tsri_value_float(node, out_value));
    if (fabs(*out_value) > tsri_dtype_max(dtype))
        return tsri_yaml_fail(node, "%g is too large for %s, whose largest is %g", *out_value,
                              tsr_dtype_name(dtype), tsri_dtype_max(dtype));
    return TSR_OK;
}

/* Reads one number, into `at` unless that is NULL. */
static tsr_status read_number(const tsri_yaml *node, tsr_dtype dtype, void *at)
{
    uint8_t truth = 0;
    int64_t i = 0;
    double v = 0;
    if (dtype == TSR_BOOL)
        TSRI_TRY(check_bool(node, &truth));
    else if (tsri_is_float(dtype))
        TSRI_TRY(check_float(node, dtype, &v));
    else
        TSRI_TRY(check_integer(node, dtype, &i));
    if (at)
        tsri_number_store(dtype, v, dtype == TSR_BOOL ? truth : i, at);
    return TSR_OK;
}

static tsr_status check_level(const tsri_yaml *node, tsr_dtype dtype, const tsr_dims *dims,
                              int level)
{
    if (level == dims->ndim) {
        if (node->kind == TSRI_YAML_LIST)
            return tsri_yaml_fail(node, "a list stands where a number is expected: the lists are "
                                        "nested unevenly");
        return read_number(node, dtype, NULL);
    }
    if (node->kind != TSRI_YAML_LIST)
        return tsri_yaml_fail(node, "a number stands where a list is expected: the lists are "
                                    "nested unevenly");
    if (node->n != dims->d[level])
        return tsri_yaml_fail(node, "this list is %d long, the first one %lld", node->n,
                              (long long)dims->d[level]);
    for (const tsri_yaml *c = node->first; c; c = c->next)
        TSRI_TRY(check_level(c, dtype, dims, level + 1));
    return TSR_OK;
}

tsr_status tsri_array_check(const tsri_yaml *node, tsr_dtype dtype, tsr_dims *out_dims)
{
    tsr_dims dims = {0};
    for (const tsri_yaml *c = node; c && c->kind == TSRI_YAML_LIST; c = c->first) {
        if (dims.ndim == TSR_MAX_NDIM)
            return tsri_yaml_fail(c,
                                  "lists are nested more than %d deep; a tensor has at most as "
                                  "many axes",
                                  TSR_MAX_NDIM);
        dims.d[dims.ndim++] = c->n;
    }
    TSRI_TRY(check_level(node, dtype, &dims, 0));
    *out_dims = dims;
    return TSR_OK;
}

static tsr_status fill(const tsri_yaml *node, tsr_dtype dtype, char **at)
{
    if (node->kind == TSRI_YAML_LIST) {
        for (const tsri_yaml *c = node->first; c; c = c->next)
            TSRI_TRY(fill(c, dtype, at));
        return TSR_OK;
    }
    TSRI_TRY(read_number(node, dtype, *at));
    *at += tsr_dtype_size(dtype);
    return TSR_OK;
}

tsr_status tsri_array_fill(const tsri_yaml *node, tsr_dtype dtype, void *data)
{
    char *at = data;
    return fill(node, dtype, &at);
}
