/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files for the program: the reader of safetensors.h, with its arguments checked. */
#include <tessera/safetensors.h>

#include "src/core/live.h"
#include "src/nn/safetensors.h"

struct tsr_safetensors {
    tsri_st_file *file;
};

tsr_status tsr_safetensors_open(const char *path, tsr_safetensors **out_safetensors)
{
    if (!path || !path[0])
        return tsri_fail(TSR_ERR_INVALID, "tsr_safetensors_open: the path is %s",
                         path ? "empty" : "NULL");
    if (!out_safetensors)
        return tsri_fail(TSR_ERR_INVALID, "tsr_safetensors_open: out_safetensors is NULL");
    tsr_safetensors *f = tsri_live_alloc(NULL, sizeof *f, TSRI_LIVE_SAFETENSORS);
    TSRI_NEED(f);
    tsr_status status = tsri_st_open(NULL, path, &f->file);
    if (status == TSR_OK)
        *out_safetensors = f;
    else
        tsri_live_free(f, TSRI_LIVE_SAFETENSORS);
    return status;
}

void tsr_safetensors_close(tsr_safetensors *f)
{
    if (!tsri_is_live(f, TSRI_LIVE_SAFETENSORS, __func__))
        return;
    tsri_st_close(f->file);
    tsri_live_free(f, TSRI_LIVE_SAFETENSORS);
}

int64_t tsr_safetensors_count(const tsr_safetensors *f)
{
    return tsri_is_live(f, TSRI_LIVE_SAFETENSORS, __func__) ? tsri_st_count(f->file) : -1;
}

/* Checks a file and the number of a tensor in it. */
static tsr_status find_entry(const tsr_safetensors *f, int64_t i, const char *who,
                             const tsri_st_entry **out_entry)
{
    if (!f)
        return tsri_fail(TSR_ERR_INVALID, "%s: the file is NULL", who);
    TSRI_TRY(tsri_live_check(f, TSRI_LIVE_SAFETENSORS, who));
    int64_t count = tsri_st_count(f->file);
    if (i < 0 || i >= count)
        return tsri_fail(TSR_ERR_INVALID, "%s: %s: tensor %lld of %lld; they count from 0", who,
                         tsri_st_path(f->file), (long long)i, (long long)count);
    *out_entry = tsri_st_at(f->file, i);
    return TSR_OK;
}

tsr_status tsr_safetensors_tensor(const tsr_safetensors *f, int64_t i,
                                  tsr_safetensors_info *out_info)
{
    const tsri_st_entry *e = NULL;
    TSRI_TRY(find_entry(f, i, __func__, &e));
    if (!out_info)
        return tsri_fail(TSR_ERR_INVALID, "tsr_safetensors_tensor: out_info is NULL");
    *out_info = (tsr_safetensors_info){.name = e->name,
                                       .stored_dtype = e->stored_dtype,
                                       .dtype = e->dtype,
                                       .ndim = e->ndim,
                                       .dims = e->dims,
                                       .bytes = (size_t)(e->end - e->begin)};
    return TSR_OK;
}

int64_t tsr_safetensors_find(const tsr_safetensors *f, const char *name)
{
    if (!tsri_is_live(f, TSRI_LIVE_SAFETENSORS, __func__) || !name)
        return -1;
    const tsri_st_entry *e = tsri_st_find(f->file, name);
    return e ? e - tsri_st_at(f->file, 0) : -1;
}

const char *tsr_safetensors_metadata(const tsr_safetensors *f, const char *key)
{
    if (!tsri_is_live(f, TSRI_LIVE_SAFETENSORS, __func__) || !key)
        return NULL;
    return tsri_st_metadata(f->file, key);
}

tsr_status tsr_safetensors_read(const tsr_safetensors *f, int64_t i, size_t offset, void *data,
                                size_t bytes)
{
    const tsri_st_entry *e = NULL;
    TSRI_TRY(find_entry(f, i, __func__, &e));
    if (!data && bytes)
        return tsri_fail(TSR_ERR_INVALID, "tsr_safetensors_read: data is NULL");
    tsr_status status = tsri_st_read(f->file, e, offset, bytes, data);
    return status == TSR_OK ? status : tsri_fail_prefix(status, "tsr_safetensors_read");
}
