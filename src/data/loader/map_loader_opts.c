/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of a data loader's options. The rules of exclusion are PyTorch's. */
#include "src/core/opts.h"
#include "src/data/loader/map_loader.h"

#include <inttypes.h>
#include <math.h>

#include "src/core/live.h"

static const char who[] = "tsr_map_loader_create";

static tsr_status resolve_fields(tsr_map_loader_opts *o)
{
    if (o->nfields < 0 || o->nfields > TSR_BATCH_MAX_FIELDS)
        return tsri_fail(TSR_ERR_INVALID, "%s: nfields %d; legal are 0 .. %d", who, o->nfields,
                         TSR_BATCH_MAX_FIELDS);
    if (o->nfields && o->sample_bytes)
        return tsri_fail(TSR_ERR_INVALID, "%s: sample_bytes and nfields exclude each other", who);
    if (!o->nfields) {
        o->nfields = 1;
        o->field_bytes[0] = o->sample_bytes;
    }
    for (int f = 0; f < o->nfields; f++)
        if (!o->field_bytes[f] && !o->collate)
            return tsri_fail(
                TSR_ERR_INVALID,
                "%s: a sample's field %d has 0 bytes, and there is no collate function "
                "(sample_bytes, field_bytes)",
                who, f);
    return TSR_OK;
}

static tsr_status resolve_sampling(tsr_map_loader_opts *o)
{
    if (o->batch_sampler && (o->batch_size != 1 || o->shuffle || o->sampler || o->drop_last))
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: the batch_sampler option is mutually exclusive with batch_size, "
                         "shuffle, sampler, and drop_last",
                         who);
    if (o->sampler && o->shuffle)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: the sampler option is mutually exclusive with shuffle", who);
    if (o->batch_size < 1)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: batch_size should be a positive integer value, but got %" PRId64, who,
                         o->batch_size);
    return TSR_OK;
}

static tsr_status resolve_workers(tsr_map_loader_opts *o)
{
    enum { MOST = 4096 };
    if (o->num_workers < 0 || o->num_workers > MOST)
        return tsri_fail(TSR_ERR_INVALID, "%s: num_workers %d; legal are 0 .. %d", who,
                         o->num_workers, MOST);
    bool prefetches = o->prefetch_factor != -1;
    if (prefetches && (o->prefetch_factor < 1 || o->prefetch_factor > MOST))
        return tsri_fail(TSR_ERR_INVALID, "%s: prefetch_factor %d; legal are 1 .. %d", who,
                         o->prefetch_factor, MOST);
    if (!(o->timeout_s >= 0) || isinf(o->timeout_s))
        return tsri_fail(TSR_ERR_INVALID, "%s: timeout_s %g; legal are seconds, and 0 for none",
                         who, o->timeout_s);
    if (!o->num_workers && (prefetches || o->timeout_s > 0 || o->persistent_workers))
        return tsri_fail(TSR_ERR_INVALID, "%s: %s needs num_workers > 0", who,
                         prefetches         ? "prefetch_factor"
                         : o->timeout_s > 0 ? "timeout_s"
                                            : "persistent_workers");
    if (!prefetches)
        o->prefetch_factor = 2;
    return TSR_OK;
}

tsr_status tsri_map_opts(const tsr_map_dataset *dataset, const tsr_map_loader_opts *opts,
                         tsri_batch_spec *out_spec)
{
    *out_spec = (tsri_batch_spec){.ds.size = sizeof out_spec->ds, .o = *TSR_MAP_LOADER_OPTS()};
    tsr_map_loader_opts *o = &out_spec->o;
    if (!dataset)
        return tsri_fail(TSR_ERR_INVALID, "%s: the data set is NULL", who);
    TSRI_TRY(tsri_opts_read(&out_spec->ds, sizeof out_spec->ds, dataset, who));
    TSRI_TRY(tsri_opts_read(o, sizeof *o, opts, who));
    TSRI_TRY(tsri_live_check(o->generator, TSRI_LIVE_GENERATOR, who));
    TSRI_TRY(tsri_live_check(o->sampler, TSRI_LIVE_SAMPLER, who));
    TSRI_TRY(tsri_live_check(o->batch_sampler, TSRI_LIVE_BATCH_SAMPLER, who));
    if (!out_spec->ds.len || (!out_spec->ds.get && !o->collate))
        return tsri_fail(TSR_ERR_INVALID, "%s: the data set has no function %s", who,
                         out_spec->ds.len ? "get" : "len");
    if (o->release && !o->collate)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: release without a collate function: the samples are the batch itself",
                         who);
    if (!o->host_alloc != !o->host_free)
        return tsri_fail(TSR_ERR_INVALID, "%s: host_alloc and host_free belong together", who);
    if (o->ranks < 1)
        return tsri_fail(TSR_ERR_INVALID, "%s: ranks %d; it must be at least 1", who, o->ranks);
    TSRI_TRY(resolve_fields(o));
    TSRI_TRY(resolve_sampling(o));
    TSRI_TRY(resolve_workers(o));
    out_spec->len = out_spec->ds.len(out_spec->ds.arg);
    if (out_spec->len < 0 || out_spec->len > TSRI_MAX_SAMPLES)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: the data set says that it has %" PRId64
                         " samples; legal are 0 .. 2^56",
                         who, out_spec->len);
    return TSR_OK;
}
