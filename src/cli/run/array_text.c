/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/run/run.h"
#include "src/core/convert.h"

#include <inttypes.h>
#include <string.h>

enum { SUMMARY = 1000, EDGE = 3, LINE = 75, CELL_MAX = 32 };

typedef struct array {
    FILE *f;
    tsr_dtype dtype;
    tsr_dims dims;
    const char *data;
    bool abridged;
    int width;
} array;

static void format(const array *a, int64_t i, char cell[CELL_MAX])
{
    const char *at = a->data + (size_t)i * tsr_dtype_size(a->dtype);
    double v = 0;
    int64_t whole = 0;
    switch (a->dtype) {
    case TSR_DTYPE_BOOL:
        snprintf(cell, CELL_MAX, "%s", *at ? "True" : "False");
        return;
    case TSR_DTYPE_U8:
        whole = *(const uint8_t *)at;
        break;
    case TSR_DTYPE_I32:
        whole = *(const int32_t *)(const void *)at;
        break;
    case TSR_DTYPE_I64:
        whole = *(const int64_t *)(const void *)at;
        break;
    default:
        /* As many digits as tell values of the dtype apart at a glance. */
        tsri_convert(&v, TSR_DTYPE_F64, at, a->dtype, 1);
        snprintf(cell, CELL_MAX, "%.*g", tsri_dtype_of(a->dtype)->digits, v);
        if (strspn(cell, "-0123456789") == strlen(cell))
            strcat(cell, ".");
        return;
    }
    snprintf(cell, CELL_MAX, "%" PRId64, whole);
}

/* The next index to show behind i on an axis of n. */
static int64_t next(const array *a, int64_t i, int64_t n)
{
    return a->abridged && n > 2 * EDGE && i == EDGE - 1 ? n - EDGE : i + 1;
}

static void measure(array *a, int axis, int64_t offset)
{
    char cell[CELL_MAX];
    if (axis == a->dims.ndim) {
        format(a, offset, cell);
        a->width = (int)strlen(cell) > a->width ? (int)strlen(cell) : a->width;
        return;
    }
    for (int64_t i = 0; i < a->dims.d[axis]; i = next(a, i, a->dims.d[axis]))
        measure(a, axis + 1, offset * a->dims.d[axis] + i);
}

/* A word of an innermost row, on the next line where this one is full. */
static void print_word(const array *a, int indent, int *column, const char *word, int width)
{
    if (*column + width > LINE - indent && *column > indent) {
        fprintf(a->f, "\n%*s", indent, "");
        *column = indent;
    } else if (*column > indent) {
        fputc(' ', a->f);
    }
    fprintf(a->f, "%*s", width, word);
    *column += width + 1;
}

static void print_row(const array *a, int64_t offset)
{
    int indent = a->dims.ndim, column = indent;
    int64_t n = a->dims.d[a->dims.ndim - 1];
    for (int64_t i = 0, before = -1; i < n; before = i, i = next(a, i, n)) {
        char cell[CELL_MAX];
        if (i != before + 1)
            print_word(a, indent, &column, "...", 3);
        format(a, offset * n + i, cell);
        print_word(a, indent, &column, cell, a->width);
    }
}

/* Between two entries of an outer axis. */
static void separate(const array *a, int axis)
{
    for (int i = axis; i < a->dims.ndim - 1; i++)
        fputc('\n', a->f);
    fprintf(a->f, "%*s", axis + 1, "");
}

static void print(const array *a, int axis, int64_t offset)
{
    int64_t n = a->dims.d[axis];
    fputc('[', a->f);
    if (axis == a->dims.ndim - 1)
        print_row(a, offset);
    for (int64_t i = 0, before = -1; i < n && axis < a->dims.ndim - 1;
         before = i, i = next(a, i, n)) {
        if (i > 0)
            separate(a, axis);
        if (i != before + 1) {
            fputs("...", a->f);
            separate(a, axis);
        }
        print(a, axis + 1, offset * n + i);
    }
    fputc(']', a->f);
}

void cli_print_array(FILE *f, tsr_dtype dtype, tsr_dims dims, const void *data)
{
    array a = {.f = f, .dtype = dtype, .dims = dims, .data = data};
    a.abridged = tsr_dims_count(dims) > SUMMARY;
    measure(&a, 0, 0);
    char cell[CELL_MAX];
    if (dims.ndim > 0) {
        print(&a, 0, 0);
    } else {
        format(&a, 0, cell);
        fputs(cell, f);
    }
    fputc('\n', f);
}
