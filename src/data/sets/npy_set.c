/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of two .npy files: x, and their labels y. */
#include <inttypes.h>
#include <string.h>

#include "src/core/convert.h"
#include "src/core/dims.h"
#include "src/data/row_set.h"
#include "src/data/sets/row_file.h"

enum { READ_AT_ONCE = 4096 };

typedef struct npy_set {
    tsri_row_set base;
    tsri_row_file x, y;
    tsri_npy x_npy, y_npy;
    int64_t classes;
    double mean, std;
} npy_set;

static void close_npy(tsri_row_set *set)
{
    npy_set *s = (npy_set *)set;
    tsri_row_file_close(&s->x);
    tsri_row_file_close(&s->y);
    tsri_mem_free(s);
}

/* Elements as f64. */
static tsr_status widen(const char *data, tsr_dtype dtype, int64_t n, double *out)
{
    if (tsri_is_float(dtype))
        return tsri_convert(out, TSR_F64, data, dtype, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = dtype == TSR_BOOL ? data[i] != 0 : (double)tsri_whole_number(dtype, data, i);
    return TSR_OK;
}

static tsr_status read_x(const npy_set *s, int64_t row, char *out)
{
    _Alignas(8) char data[READ_AT_ONCE];
    double wide[READ_AT_ONCE];
    const size_t size = tsr_dtype_size(s->x_npy.dtype), width = tsr_dtype_size(s->base.dtype);
    const int64_t n = tsr_dims_count(s->base.x), most = (int64_t)(sizeof data / size);
    for (int64_t done = 0; done < n;) {
        const int64_t more = n - done < most ? n - done : most;
        const int64_t at = (int64_t)s->x_npy.offset + (row * n + done) * (int64_t)size;
        TSRI_TRY(tsri_row_file_read(&s->x, at, data, (size_t)more * size));
        TSRI_TRY(widen(data, s->x_npy.dtype, more, wide));
        for (int64_t i = 0; i < more; i++)
            wide[i] = (wide[i] - s->mean) / s->std;
        TSRI_TRY(tsri_convert(out + (size_t)done * width, s->base.dtype, wide, TSR_F64, more));
        done += more;
    }
    return TSR_OK;
}

static tsr_status get_row(const tsri_row_set *set, int64_t row, void *x, int64_t *y)
{
    const npy_set *s = (const npy_set *)set;
    _Alignas(8) char label[8];
    const size_t size = tsr_dtype_size(s->y_npy.dtype);
    TSRI_TRY(read_x(s, row, x));
    TSRI_TRY(
        tsri_row_file_read(&s->y, (int64_t)s->y_npy.offset + row * (int64_t)size, label, size));
    *y = tsri_whole_number(s->y_npy.dtype, label, 0);
    if (*y >= 0 && *y < s->classes)
        return TSR_OK;
    return tsri_fail(TSR_ERR_FORMAT,
                     "%s: label %" PRId64 " is %" PRId64 "; legal are 0 to %" PRId64, s->y.path,
                     row, *y, s->classes - 1);
}

/* --- opening ---------------------------------------------------------------------------------- */
static tsr_status check_pair(const char *x, const tsri_npy *x_npy, const char *y,
                             const tsri_npy *y_npy)
{
    if (x_npy->dims.ndim < 2)
        return tsri_fail(TSR_ERR_SHAPE, "%s: has %d ax%ss; rows of numbers have two or more", x,
                         x_npy->dims.ndim, x_npy->dims.ndim == 1 ? "i" : "e");
    if (y_npy->dims.ndim != 1)
        return tsri_fail(TSR_ERR_SHAPE, "%s: has %d axes; labels stand along one", y,
                         y_npy->dims.ndim);
    if (!tsri_is_whole(y_npy->dtype))
        return tsri_fail(TSR_ERR_DTYPE, "%s: is %s; labels are u8, i32 or i64", y,
                         tsr_dtype_name(y_npy->dtype));
    if (x_npy->dims.d[0] != y_npy->dims.d[0])
        return tsri_fail(TSR_ERR_SHAPE, "%s: %" PRId64 " rows, but %s: %" PRId64 " labels", x,
                         x_npy->dims.d[0], y, y_npy->dims.d[0]);
    return tsr_dims_count(x_npy->dims) > 0 ? TSR_OK
                                           : tsri_fail(TSR_ERR_SHAPE, "%s: has no elements", x);
}

tsr_status tsri_npy_set_check(const char *x, const char *y, tsri_npy *out_x, tsri_npy *out_y)
{
    TSRI_TRY(tsri_npy_open(x, out_x));
    TSRI_TRY(tsri_npy_open(y, out_y));
    return check_pair(x, out_x, y, out_y);
}

tsr_status tsri_npy_set_open(tsri_mem *mem, const tsri_npy_set_opts *o, tsri_row_set **out_set)
{
    npy_set *s = tsri_mem_alloc(mem, sizeof *s);
    TSRI_NEED(s);
    *s = (npy_set){.x.fd = -1, .y.fd = -1, .classes = o->classes, .mean = o->mean, .std = o->std};
    tsr_status status = tsri_row_file_open_npy(o->x, &s->x_npy, &s->x);
    if (status == TSR_OK)
        status = tsri_row_file_open_npy(o->y, &s->y_npy, &s->y);
    if (status == TSR_OK)
        status = check_pair(o->x, &s->x_npy, o->y, &s->y_npy);
    if (status != TSR_OK) {
        close_npy(&s->base);
        return status;
    }
    tsr_dims row = {.ndim = s->x_npy.dims.ndim - 1};
    memcpy(row.d, s->x_npy.dims.d + 1, (size_t)row.ndim * sizeof *row.d);
    s->base = (tsri_row_set){.dtype = o->dtype,
                             .x = row,
                             .count = s->x_npy.dims.d[0],
                             .get = get_row,
                             .close = close_npy};
    *out_set = &s->base;
    return TSR_OK;
}
