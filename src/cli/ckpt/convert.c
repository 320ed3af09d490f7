/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/ckpt/ckpt.h"

#include <string.h>

#include "src/core/convert.h"
#include "src/core/dims.h"

typedef struct converting {
    ckpt_source from;
    tsri_st_writer *to;
    const char *part;
    tsr_dtype dtype;
} converting;

/* The name that a tensor gets; NULL: it is left out. Values are the program's own, and stay behind
 * where one part is asked for. */
static const char *name_of(const converting *c, const ckpt_tensor *t)
{
    const size_t n = c->part ? strlen(c->part) : 0;
    if (!c->part)
        return t->name;
    return !strncmp(t->name, c->part, n) && t->name[n] == '/' && !t->is_value ? t->name + n + 1
                                                                              : NULL;
}

static tsr_dtype dtype_of(const converting *c, const ckpt_tensor *t)
{
    const bool converts = c->dtype != TSR_DTYPE_NONE && tsri_is_float(t->dtype) && !t->is_value;
    return converts ? c->dtype : t->dtype;
}

static tsr_status declare(converting *c)
{
    int n = 0;
    for (int i = 0; i < c->from.ntensors; i++) {
        const ckpt_tensor *t = &c->from.tensors[i];
        if (!name_of(c, t))
            continue;
        n++;
        TSRI_TRY(tsri_st_writer_add(c->to, name_of(c, t), dtype_of(c, t), t->dims));
    }
    if (!n)
        return tsri_fail(TSR_ERR_INVALID, "%s: it has no tensors of a part '%s'", c->from.path,
                         c->part ? c->part : "");
    TSRI_TRY(tsri_st_writer_add_metadata(c->to, "format", "pt"));
    return tsri_st_writer_begin(c->to);
}

static tsr_status convert_one(converting *c, const ckpt_tensor *t)
{
    const tsr_dtype dtype = dtype_of(c, t);
    const int64_t n = tsr_dims_count(t->dims);
    const size_t bytes = (size_t)n * tsr_dtype_size(dtype);
    char *data = tsri_mem_alloc(NULL, ckpt_bytes(t)), *converted = data;
    tsr_status status = data ? ckpt_read(&c->from, t, data) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && dtype != t->dtype) {
        converted = tsri_mem_alloc(NULL, bytes);
        status = converted ? tsri_convert(converted, dtype, data, t->dtype, n) : TSR_ERR_NO_MEMORY;
    }
    if (status == TSR_OK)
        status = tsri_st_writer_write(c->to, name_of(c, t), 0, converted, bytes);
    if (converted != data)
        tsri_mem_free(converted);
    tsri_mem_free(data);
    return status;
}

static tsr_status convert(converting *c, const char *from, const char *to)
{
    TSRI_TRY(ckpt_open(from, true, &c->from));
    TSRI_TRY(tsri_st_writer_create(NULL, to, &c->to));
    TSRI_TRY(declare(c));
    for (int i = 0; i < c->from.ntensors; i++)
        if (name_of(c, &c->from.tensors[i]))
            TSRI_TRY(convert_one(c, &c->from.tensors[i]));
    return tsri_st_writer_finish(c->to);
}

int ckpt_convert(const char *from, const char *to, const char *part, tsr_dtype dtype)
{
    converting c = {.part = part, .dtype = dtype};
    const tsr_status status = convert(&c, from, to);
    const int code = status == TSR_OK ? CLI_OK : cli_fail("ckpt");
    tsri_st_writer_destroy(c.to);
    ckpt_close(&c.from);
    return code;
}
