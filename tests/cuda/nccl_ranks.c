/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cuda/nccl_ranks.h"

#include "kernels/module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

tsr_status nr_groups(nr_rank *r, int n, const int *ranks, int lane, tsri_group **out_device,
                     tsri_group **out_host)
{
    tsri_comm *host = r->world->comm;
    TSRI_TRY(host->ops->group(host, n, ranks, lane, out_host));
    return r->comm->ops->group(r->comm, n, ranks, lane, out_device);
}

tsr_status nr_open(tsr_world *w, int lane, nr_rank *out)
{
    int ranks[16];
    *out = (nr_rank){.world = w};
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    TSRI_TRY(tsri_device_get(w, TSR_DEVICE_CUDA, &out->device));
    TSRI_TRY(tsri_comm_create_device(w, out->device, w->nranks, ranks, TSRI_DEVICE_COMM_PLANS,
                                     &out->comm));
    CHECK(!strcmp(out->comm->ops->name, "nccl"));
    return nr_groups(out, w->nranks, ranks, lane, &out->group, &out->host_group);
}

void nr_close(nr_rank *r)
{
    if (r->comm)
        r->comm->ops->destroy(r->comm);
    r->comm = NULL;
}

int nr_skip(void)
{
    const tsri_module *module;
    const char *named = getenv("TESSERA_CUDA_MODULE");
    if (!named || !strstr(named, "emulated")) {
        printf("skipped: TESSERA_CUDA_MODULE does not name the module on the emulator\n");
        return 77;
    }
    setenv("TESSERA_CUDA_COMM", "nccl", 1);
    setenv("EMULATED_DEVICES", "16", 1); /* NCCL takes one rank of a communicator on a GPU */
    return tsri_module_get(TSR_DEVICE_CUDA, &module) == TSR_OK ? 0 : 1;
}

void nr_spawn(int n, tsr_rank_fn *fn, void *arg, double timeout_s)
{
    const tsr_world_opts opts = {.size = sizeof opts,
                                 .arena_bytes = 64 << 20,
                                 .timeout_s = timeout_s > 0 ? timeout_s : 60,
                                 .threads = 1};
    tsr_status status = tsr_spawn_with(n, fn, arg, &opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

tsr_status nr_put(nr_rank *r, const void *data, size_t bytes, void **out)
{
    tsri_device *d = r->device;
    *out = NULL;
    if (!bytes)
        return TSR_OK;
    TSRI_TRY(d->ops->buffer_alloc(d, bytes, out));
    return d->ops->copy_in(d, *out, data, bytes, d->stream);
}

tsr_status nr_get(nr_rank *r, const void *device, size_t bytes, void *out)
{
    return r->device->ops->copy_out(r->device, out, device, bytes, r->device->stream);
}

tsr_status nr_call(tsri_group *g, const tsri_coll *c)
{
    const tsri_comm_ops *ops = g->comm->ops;
    tsri_ticket t;
    TSRI_TRY(ops->start(g, c, &t));
    TSRI_TRY(ops->finish(g, &t));
    return ops->release(g, &t);
}

tsr_status nr_settle(nr_rank *r, tsr_status status)
{
    return status == TSR_OK ? r->device->ops->stream_sync(r->device, r->device->stream) : status;
}
