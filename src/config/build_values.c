/* SPDX-License-Identifier: Apache-2.0 */
/* Values of constants, locals and parameters: numbers in the file, .npy files, and rows of numbers.
 */
#include <string.h>
#include <unistd.h>

#include "src/config/array.h"
#include "src/config/program.h"
#include "src/data/npy.h"
#include "src/graph/graph.h"
#include "src/core/convert.h"

/* Where its value stands in the file: for errors. */
static const tsri_yaml *value_node(const tsri_config_op *op, int local)
{
    const tsri_yaml *c = op->locals ? op->locals->first : tsri_section_node(op, "file");
    for (; op->locals && local > 0 && c->next; local--)
        c = c->next;
    return c;
}

static const char *path_of(const tsri_config_op *op, int local)
{
    return op->locals ? (op->paths && local >= 0 ? op->paths[local] : NULL) : op->file;
}

/* The numbers that stand in the file itself; NULL if they don't. */
static const tsri_yaml *array_of(const tsri_config_op *op, int local)
{
    return op->locals ? (path_of(op, local) ? NULL : value_node(op, local)) : op->value;
}

/* Floating-point files are converted to what is said; of others the dtype counts. */
static tsr_status resolve_dtype(const tsri_program *p, const tsri_config_op *op, int local,
                                tsr_dtype file, tsr_dtype *out_dtype)
{
    bool said = tsri_yaml_find(op->head.node, "dtype");
    tsr_dtype want = said ? op->dtype : p->experiment->dtype;
    *out_dtype = said || tsri_is_float(file) ? want : file;
    if (*out_dtype == file || (tsri_is_float(file) && tsri_is_float(*out_dtype)))
        return TSR_OK;
    return tsri_program_fail(value_node(op, local),
                             tsri_fail(TSR_ERR_DTYPE, "%s is %s; dtype is %s", path_of(op, local),
                                       tsr_dtype_name(file), tsr_dtype_name(want)));
}

static tsr_status file_sizes(const tsri_program *p, const tsri_config_op *op, int local,
                             tsr_dtype *out_dtype, tsr_dims *out_dims)
{
    const char *path = path_of(op, local);
    bool has_shape = tsri_section_has(&tsri_op_section, op, "shape");
    tsri_npy npy;
    if (p->inside->no_data && access(path, R_OK) != 0) {
        if (!has_shape || op->locals)
            return tsri_program_fail(
                value_node(op, local),
                tsri_fail(TSR_ERR_IO, "%s: can't be read; to plan without it say 'shape'", path));
        *out_dims = op->shape;
        return resolve_dtype(p, op, local, p->experiment->dtype, out_dtype);
    }
    tsr_status status = tsri_npy_open(path, &npy);
    if (status != TSR_OK)
        return tsri_program_fail(value_node(op, local), status);
    if (has_shape && !op->locals && !tsr_dims_equal(npy.dims, op->shape))
        return tsri_program_fail(
            tsri_section_node(op, "shape"),
            tsri_fail(TSR_ERR_SHAPE, "%s has %d axes, the first of %lld, and another shape", path,
                      npy.dims.ndim, (long long)(npy.dims.ndim ? npy.dims.d[0] : 1)));
    *out_dims = npy.dims;
    return resolve_dtype(p, op, local, npy.dtype, out_dtype);
}

tsr_status tsri_value_sizes(const tsri_program *p, const tsri_config_op *op, int local,
                            tsr_dtype *out_dtype, tsr_dims *out_dims)
{
    const tsri_yaml *array = array_of(op, local);
    *out_dtype = op->dtype;
    if (array)
        return tsri_array_check(array, op->dtype, out_dims);
    if (path_of(op, local))
        return file_sizes(p, op, local, out_dtype, out_dims);
    *out_dims = op->shape;
    return TSR_OK;
}

/* --- making ----------------------------------------------------------------------------------- */
static tsr_status make_from_file(const tsri_program *p, const tsri_config_feed *f, void **out_data)
{
    tsri_npy npy;
    void *data;
    tsri_mem *mem = &p->world->mem;
    tsr_status status = tsri_npy_read(mem, path_of(f->op, f->local), &npy, &data);
    if (status == TSR_OK && !tsr_dims_equal(npy.dims, f->dims)) {
        tsri_mem_free(data);
        status = tsri_fail(TSR_ERR_SHAPE, "%s has another shape than when the program was built",
                           path_of(f->op, f->local));
    }
    if (status != TSR_OK)
        return tsri_program_fail(value_node(f->op, f->local), status);
    *out_data = data;
    if (npy.dtype == f->dtype)
        return TSR_OK;
    int64_t n = tsr_dims_count(npy.dims);
    void *converted = tsri_mem_alloc(mem, (size_t)n * tsr_dtype_size(f->dtype));
    status = converted ? tsri_convert(converted, f->dtype, data, npy.dtype, n) : TSR_ERR_NO_MEMORY;
    tsri_mem_free(data);
    *out_data = converted;
    return status;
}

tsr_status tsri_value_make(const tsri_program *p, const tsri_config_feed *f, void **out_data,
                           size_t *out_bytes)
{
    const tsri_yaml *array = array_of(f->op, f->local);
    int64_t n = tsr_dims_count(f->dims);
    *out_bytes = (size_t)n * tsr_dtype_size(f->dtype);
    if (path_of(f->op, f->local))
        return make_from_file(p, f, out_data);
    void *data = tsri_mem_alloc(&p->world->mem, *out_bytes);
    TSRI_NEED(data);
    *out_data = data;
    bool is_fill = tsri_section_has(&tsri_op_section, f->op, "fill");
    double start = is_fill ? f->op->fill : f->op->arange[0], step = is_fill ? 0 : f->op->arange[1];
    for (int64_t i = 0; i < n && !array; i++) {
        double v = start + step * (double)i;
        int64_t whole = tsri_is_float(f->dtype) ? 0 : (int64_t)v; /* checked to be in range */
        tsri_number_store(f->dtype, v, whole, (char *)data + (size_t)i * tsr_dtype_size(f->dtype));
    }
    return array ? tsri_array_fill(array, f->dtype, data) : TSR_OK;
}
