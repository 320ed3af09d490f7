/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU as a device. Its memory for tensors is one allocation per rank, laid out like a CPU's
 * arena: plans share the bottom, what persists is taken from the top.
 */
#include "kernels/cuda/inside.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- buffers ---------------------------------------------------------------------------------- */
static tsri_cuda_device *of(tsri_device *d)
{
    return (tsri_cuda_device *)d;
}

static cudaStream_t stream_of(tsri_device *d, tsri_stream *s)
{
    return s ? s->handle : of(d)->compute.handle;
}

static tsr_status buffer_alloc(tsri_device *d, size_t bytes, void **out_ptr)
{
    TSRI_ON_GPU(of(d));
    void *p;
    TSRI_TRY(tsri_region_alloc(&of(d)->region, bytes, &p));
    tsr_status status =
        tsri_cuda_check(cudaMemsetAsync(p, 0, bytes, of(d)->compute.handle), "cudaMemsetAsync");
    if (status != TSR_OK) {
        tsri_region_free(&of(d)->region, p, bytes);
        return status;
    }
    *out_ptr = p;
    return TSR_OK;
}

/* Work in the compute stream may still use the buffer; its next owner writes to it in that stream.
 */
static void buffer_free(tsri_device *d, void *ptr, size_t bytes)
{
    tsri_region_free(&of(d)->region, ptr, bytes);
}

static tsr_status plan_block(tsri_device *d, size_t bytes, void **out_base)
{
    TSRI_TRY(tsri_region_reserve_plan(&of(d)->region, bytes));
    *out_base = of(d)->region.base;
    return TSR_OK;
}

/* --- errors of the run ------------------------------------------------------------------------ */
/* The operand that holds ids, and the size of the axis that they point into. */
static const tsri_arg *ids_of(const tsri_kernel_desc *d, int64_t *out_size)
{
    const tsri_attrs *a = d->attrs;
    switch (d->op) {
    case TSRI_OP_INDEX_SELECT:
        *out_size = d->in[0].gshape[a->gather.axis];
        return &d->in[1];
    case TSRI_OP_INDEX_SELECT_DX:
        *out_size = d->out[0].gshape[a->gather.axis];
        return &d->in[0];
    default: /* one_hot */
        *out_size = d->out[0].gshape[d->out[0].ndim - 1];
        return &d->in[0];
    }
}

/* In the words of the CPU's kernels. */
static tsr_status describe_fault(const tsri_kernel_desc *d, const tsri_cuda_fault *f)
{
    if (d->op == TSRI_OP_CE || d->op == TSRI_OP_CE_TERMS || d->op == TSRI_OP_CE_DX)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: label %lld of row %lld is not a class: 0 <= label < %lld",
                         tsri_op_name(d->op), f->value, (long long)d->in[0].offset[0] + f->at,
                         (long long)d->in[0].gshape[1]);
    int64_t size;
    const tsri_arg *ids = ids_of(d, &size);
    return tsri_check_id(d, ids, f->at, f->value, size);
}

static tsr_status check(tsri_device *d)
{
    tsri_cuda_fault *f = of(d)->fault;
    const tsri_cuda_kernel *k = (const tsri_cuda_kernel *)(uintptr_t)tsri_cuda_fault_kernel(f);
    if (!k)
        return TSR_OK;
    d->faulty = &k->base;
    tsr_status status = describe_fault(&k->desc, f);
    tsri_cuda_fault_clear(f);
    return status != TSR_OK ? status : tsri_fail(TSR_ERR_INTERNAL, "a fault without an error");
}

/* --- waits and copies ------------------------------------------------------------------------- */
/* For the event, or, if that is NULL, for all that is in the stream. A collective whose peer is
 * lost would keep a plain wait from ending. */
static tsr_status wait_and_poll(tsri_device *d, cudaStream_t stream, cudaEvent_t event)
{
    for (int i = 0;; i = (i + 1) % 64) {
        cudaError_t error = event ? cudaEventQuery(event) : cudaStreamQuery(stream);
        if (error != cudaErrorNotReady)
            return tsri_cuda_check(error, event ? "cudaEventQuery" : "cudaStreamQuery");
        cudaGetLastError(); /* or the next launch would be blamed */
        if (i == 63) {
            TSRI_TRY(tsri_device_poll(d));
            sched_yield();
        }
    }
}

tsr_status tsri_cuda_await(tsri_cuda_device *d, cudaEvent_t event)
{
    if (d->base.polls)
        return wait_and_poll(&d->base, NULL, event);
    TSRI_CUDA(cudaEventSynchronize(event));
    return TSR_OK;
}

static tsr_status stream_sync(tsri_device *d, tsri_stream *stream)
{
    if (!d->polls) {
        TSRI_CUDA(cudaStreamSynchronize(stream_of(d, stream)));
        return TSR_OK;
    }
    TSRI_TRY(wait_and_poll(d, stream_of(d, stream), NULL));
    return tsri_device_poll(d); /* aborted collectives end too */
}

static tsr_status copy_in(tsri_device *d, void *dst, const void *host_src, size_t bytes,
                          tsri_stream *stream)
{
    TSRI_ON_GPU(of(d));
    return tsri_feed_copy(of(d), dst, host_src, bytes, stream_of(d, stream));
}

/* To memory that is not pinned the driver copies before it returns, so it would wait there for what
 * comes before. */
static tsr_status copy_out(tsri_device *d, void *host_dst, const void *src, size_t bytes,
                           tsri_stream *stream)
{
    TSRI_ON_GPU(of(d));
    TSRI_TRY(stream_sync(d, stream));
    if (!bytes)
        return TSR_OK;
    TSRI_CUDA(cudaMemcpyAsync(host_dst, src, bytes, cudaMemcpyDeviceToHost, stream_of(d, stream)));
    TSRI_CUDA(cudaStreamSynchronize(stream_of(d, stream)));
    return TSR_OK;
}

static tsr_status move(tsri_device *d, const tsri_move *m, tsri_stream *stream)
{
    TSRI_ON_GPU(of(d));
    return tsri_cuda_move(m, stream_of(d, stream));
}

static tsr_status fill(tsri_device *d, tsr_dtype dtype, tsr_reduce_op op, int64_t count, void *dst,
                       tsri_stream *stream)
{
    TSRI_ON_GPU(of(d));
    return tsri_cuda_fill(dtype, op, count, dst, stream_of(d, stream));
}

/* --- streams and events ----------------------------------------------------------------------- */
static tsr_status stream_create(tsri_device *d, tsri_stream **out_stream)
{
    TSRI_ON_GPU(of(d));
    tsri_stream *s = tsri_mem_alloc(&d->world->mem, sizeof *s);
    TSRI_NEED(s);
    s->device = of(d);
    tsr_status status = tsri_cuda_check(
        cudaStreamCreateWithFlags(&s->handle, cudaStreamNonBlocking), "cudaStreamCreate");
    if (status != TSR_OK) {
        tsri_mem_free(s);
        return status;
    }
    *out_stream = s;
    return TSR_OK;
}

static void stream_destroy(tsri_device *d, tsri_stream *stream)
{
    (void)d;
    if (stream)
        cudaStreamDestroy(stream->handle);
    tsri_mem_free(stream);
}

static tsr_status event_create(tsri_device *d, bool timed, bool shared, tsri_event **out_event)
{
    TSRI_ON_GPU(of(d));
    cudaEvent_t e;
    unsigned flags = timed && !shared ? cudaEventDefault : cudaEventDisableTiming;
    TSRI_CUDA(cudaEventCreateWithFlags(&e, shared ? flags | cudaEventInterprocess : flags));
    *out_event = (tsri_event *)e;
    return TSR_OK;
}

static void event_destroy(tsri_device *d, tsri_event *event)
{
    (void)d;
    if (event)
        cudaEventDestroy((cudaEvent_t)event);
}

static tsr_status event_record(tsri_device *d, tsri_event *event, tsri_stream *stream)
{
    TSRI_CUDA(cudaEventRecord((cudaEvent_t)event, stream_of(d, stream)));
    return TSR_OK;
}

static tsr_status event_wait(tsri_device *d, tsri_stream *stream, tsri_event *event)
{
    TSRI_CUDA(cudaStreamWaitEvent(stream_of(d, stream), (cudaEvent_t)event, 0));
    return TSR_OK;
}

static tsr_status event_done(tsri_device *d, tsri_event *event, bool *out_done)
{
    (void)d;
    cudaError_t error = cudaEventQuery((cudaEvent_t)event);
    if (error == cudaErrorNotReady)
        cudaGetLastError(); /* or the next launch would be blamed */
    else
        TSRI_CUDA(error);
    *out_done = error == cudaSuccess;
    return TSR_OK;
}

static void *stream_native(tsri_device *d, tsri_stream *stream)
{
    return stream_of(d, stream);
}

static tsr_status event_seconds(tsri_device *d, tsri_event *from, tsri_event *to, double *out_s)
{
    (void)d;
    float ms;
    TSRI_CUDA(cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to));
    *out_s = 1e-3 * (double)ms;
    return TSR_OK;
}

/* --- captured work ---------------------------------------------------------------------------- */
static tsr_status capture_begin(tsri_device *d, tsri_stream *stream)
{
    TSRI_ON_GPU(of(d));
    /* Thread-local: what other ranks and watchdogs of the process do is theirs. */
    TSRI_CUDA(cudaStreamBeginCapture(stream_of(d, stream), cudaStreamCaptureModeThreadLocal));
    return TSR_OK;
}

static tsr_status capture_end(tsri_device *d, tsri_stream *stream, tsri_captured **out_captured)
{
    TSRI_ON_GPU(of(d));
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    *out_captured = NULL;
    TSRI_CUDA(cudaStreamEndCapture(stream_of(d, stream), &graph));
    tsr_status status =
        tsri_cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(graph);
    TSRI_TRY(status);
    *out_captured = (tsri_captured *)exec;
    return TSR_OK;
}

static tsr_status captured_run(tsri_device *d, tsri_captured *captured, tsri_stream *stream)
{
    TSRI_ON_GPU(of(d));
    TSRI_CUDA(cudaGraphLaunch((cudaGraphExec_t)captured, stream_of(d, stream)));
    return TSR_OK;
}

static void captured_destroy(tsri_device *d, tsri_captured *captured)
{
    (void)d;
    if (captured)
        cudaGraphExecDestroy((cudaGraphExec_t)captured);
}

/* --- sharing between processes ---------------------------------------------------------------- */
_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(tsri_share), "a share holds an IPC handle");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(tsri_share), "a share holds an IPC handle");

static tsr_status region_share(tsri_device *d, tsri_share *out_share)
{
    TSRI_ON_GPU(of(d));
    TSRI_CUDA(cudaIpcGetMemHandle((cudaIpcMemHandle_t *)out_share, of(d)->region.base));
    return TSR_OK;
}

static tsr_status region_open(tsri_device *d, const tsri_share *share, void **out_base)
{
    TSRI_ON_GPU(of(d));
    cudaIpcMemHandle_t handle;
    memcpy(&handle, share, sizeof handle);
    TSRI_CUDA(cudaIpcOpenMemHandle(out_base, handle, cudaIpcMemLazyEnablePeerAccess));
    return TSR_OK;
}

static void region_close(tsri_device *d, void *base)
{
    TSRI_ON_GPU(of(d));
    if (base)
        cudaIpcCloseMemHandle(base);
}

/* A thread's, whose plain pointers are this process's too. */
static tsr_status region_reach(tsri_device *d, const void *base)
{
    TSRI_ON_GPU(of(d));
    struct cudaPointerAttributes a;
    int can = 0;
    TSRI_CUDA(cudaPointerGetAttributes(&a, base));
    if (a.device == of(d)->ordinal)
        return TSR_OK;
    TSRI_CUDA(cudaDeviceCanAccessPeer(&can, of(d)->ordinal, a.device));
    if (!can)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "GPU %d can't read the memory of GPU %d, as the local communicator would: "
                         "`nvidia-smi topo -p2p r` shows which can; NCCL needs a GPU for each rank "
                         "(TESSERA_CUDA_COMM=nccl)",
                         of(d)->ordinal, a.device);
    return TSR_OK;
}

static tsr_status event_share(tsri_device *d, tsri_event *event, tsri_share *out_share)
{
    (void)d;
    TSRI_CUDA(cudaIpcGetEventHandle((cudaIpcEventHandle_t *)out_share, (cudaEvent_t)event));
    return TSR_OK;
}

static tsr_status event_open(tsri_device *d, const tsri_share *share, tsri_event **out_event)
{
    TSRI_ON_GPU(of(d));
    cudaIpcEventHandle_t handle;
    cudaEvent_t e;
    memcpy(&handle, share, sizeof handle);
    TSRI_CUDA(cudaIpcOpenEventHandle(&e, handle));
    *out_event = (tsri_event *)e;
    return TSR_OK;
}

/* --- opening and closing ---------------------------------------------------------------------- */
static void close_cuda(tsri_device *base)
{
    tsri_cuda_device *d = of(base);
    TSRI_ON_GPU(d);
    if (d->compute.handle)
        cudaStreamSynchronize(d->compute.handle);
    tsri_lt_close(d);
    tsri_dnn_close(d);
    tsri_feed_close(d);
    if (d->compute.handle)
        cudaStreamDestroy(d->compute.handle);
    if (d->fault)
        cudaFreeHost(d->fault);
    if (d->region.base && d->is_registered)
        tsri_nccl_memory_free(d->region.base);
    else if (d->region.base)
        cudaFree(d->region.base);
    tsri_region_finish(&d->region);
    cudaGetLastError();
    tsri_mem_free(d);
}

static const tsri_device_ops ops = {
    .size = sizeof ops,
    .name = "cuda",
    .close = close_cuda,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .plan_block = plan_block,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .kernels = tsri_kernels_cuda,
    .move = move,
    .fill = fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .check = check,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_seconds = event_seconds,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .captured_run = captured_run,
    .captured_destroy = captured_destroy,
    .region_share = region_share,
    .region_open = region_open,
    .region_close = region_close,
    .event_share = event_share,
    .event_open = event_open,
    .region_reach = region_reach,
    .event_done = event_done,
    .stream_native = stream_native,
};

enum { PIECE = 0x10000 }; /* arenas are whole ones: persistent buffers grow down from their end */

/* The rank's part of its GPU's memory: what TESSERA_CUDA_ARENA_BYTES says, else 4/5 of it by the
 * number of ranks that share it, or 9/10 of what is free if that is less. */
static tsr_status arena_bytes(const tsri_cuda_device *d, int ngpus, size_t *out_bytes)
{
    const char *said = getenv("TESSERA_CUDA_ARENA_BYTES");
    size_t free_bytes, all;
    TSRI_CUDA(cudaMemGetInfo(&free_bytes, &all));
    if (said && *said) {
        char *end;
        unsigned long long bytes = strtoull(said, &end, 10);
        if (*end || !bytes)
            return tsri_fail(TSR_ERR_INVALID,
                             "TESSERA_CUDA_ARENA_BYTES is '%s': expected a number of bytes", said);
        if (bytes > free_bytes)
            return tsri_fail(
                TSR_ERR_NO_MEMORY,
                "TESSERA_CUDA_ARENA_BYTES asks for %llu bytes; %zu of the %zu of GPU %d "
                "are free: `nvidia-smi` shows who has the others",
                bytes, free_bytes, all, d->ordinal);
        *out_bytes = (size_t)bytes / PIECE * PIECE;
        if (!*out_bytes)
            return tsri_fail(TSR_ERR_INVALID,
                             "TESSERA_CUDA_ARENA_BYTES is %llu: expected at least %d bytes, of "
                             "which whole multiples are taken",
                             bytes, PIECE);
        return TSR_OK;
    }
    size_t share = (size_t)((d->base.world->nalike + ngpus - 1) / ngpus);
    size_t want = all / 5 * 4 / share, most = free_bytes / 10 * 9;
    *out_bytes = (want < most ? want : most) / PIECE * PIECE;
    if (!*out_bytes)
        return tsri_fail(TSR_ERR_NO_MEMORY,
                         "%zu of the %zu bytes of GPU %d are free, and %zu ranks share it: "
                         "`nvidia-smi` shows who has the others",
                         free_bytes, all, d->ordinal, share);
    return TSR_OK;
}

static bool flag(const char *name, bool otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strcmp(text, "0") != 0 : otherwise;
}

/* Ranks that are threads read each other's memory by plain pointers, also on several GPUs, where
 * these can: see region_reach. */
static tsr_status open_peers(const tsri_cuda_device *d, int ngpus)
{
    for (int i = 0; i < ngpus && d->base.world->is_thread; i++) {
        int can = 0;
        if (i == d->ordinal)
            continue;
        TSRI_CUDA(cudaDeviceCanAccessPeer(&can, d->ordinal, i));
        cudaError_t error = can ? cudaDeviceEnablePeerAccess(i, 0) : cudaSuccess;
        if (error == cudaErrorPeerAccessAlreadyEnabled)
            cudaGetLastError(); /* by another rank on this GPU */
        else
            TSRI_TRY(tsri_cuda_check(error, "cudaDeviceEnablePeerAccess"));
    }
    return TSR_OK;
}

static tsr_status open_arena(tsri_cuda_device *d, int ngpus)
{
    /* The unit of memory that CUDA maps by addresses, which is what NCCL registers. */
    enum { MAPPED_PIECE = 2 << 20 };
    size_t bytes = 0;
    void *base;
    TSRI_TRY(arena_bytes(d, ngpus, &bytes));
    TSRI_TRY(tsri_nccl_memory_wanted(&d->is_registered));
    if (d->is_registered && bytes > MAPPED_PIECE)
        bytes = bytes / MAPPED_PIECE * MAPPED_PIECE;
    tsr_status status = d->is_registered ? tsri_nccl_memory_alloc(bytes, &base)
                                         : tsri_cuda_check(cudaMalloc(&base, bytes), "cudaMalloc");
    if (status != TSR_OK)
        return tsri_fail_prefix(
            status,
            "%zu bytes of GPU %d for this rank's arena (TESSERA_CUDA_ARENA_BYTES "
            "says how many to take)",
            bytes, d->ordinal);
    d->region = (tsri_region){.base = base,
                              .size = bytes,
                              .top = bytes,
                              .raise = "the variable TESSERA_CUDA_ARENA_BYTES"};
    d->base.region = &d->region;
    return TSR_OK;
}

static tsr_status open_device(tsri_cuda_device *d, int ngpus)
{
    struct cudaDeviceProp p;
    TSRI_ON_GPU(d);
    TSRI_CUDA(cudaSetDevice(d->ordinal)); /* its error */
    TSRI_CUDA(cudaGetDeviceProperties(&p, d->ordinal));
    TSRI_CUDA(cudaDeviceGetPCIBusId(d->base.id, (int)sizeof d->base.id, d->ordinal));
    d->traits = (tsri_cuda_traits){.major = p.major,
                                   .minor = p.minor,
                                   .processors = p.multiProcessorCount,
                                   .shared_bytes = p.sharedMemPerBlockOptin,
                                   .l2_bytes = (size_t)p.l2CacheSize};
    TSRI_TRY(tsri_cuda_check_built(d));
    d->tf32 = flag("TESSERA_CUDA_TF32", false);
    d->tf32_conv = flag("TESSERA_CUDA_TF32_CONV", d->tf32);
    d->deterministic = flag("TESSERA_CUDA_DETERMINISTIC", true);
    d->workspace_cap = (size_t)256 << 20;
    TSRI_CUDA(cudaStreamCreateWithFlags(&d->compute.handle, cudaStreamNonBlocking));
    d->compute.device = d;
    d->base.stream = &d->compute;
    TSRI_CUDA(cudaHostAlloc((void **)&d->fault, sizeof *d->fault, cudaHostAllocMapped));
    *d->fault = (tsri_cuda_fault){0};
    TSRI_CUDA(cudaHostGetDevicePointer((void **)&d->fault_device, d->fault, 0));
    TSRI_TRY(open_arena(d, ngpus));
    TSRI_TRY(open_peers(d, ngpus));
    return tsri_feed_open(d);
}

tsr_status tsri_cuda_open(tsr_world *world, tsri_device **out_device)
{
    int ngpus;
    TSRI_TRY(tsri_cuda_count_gpus(&ngpus));
    tsri_cuda_device *d = tsri_mem_alloc(&world->mem, sizeof *d);
    TSRI_NEED(d);
    d->base.ops = &ops;
    d->base.world = world;
    d->ordinal = world->local_rank % ngpus;
    tsr_status status = open_device(d, ngpus);
    if (status != TSR_OK) {
        close_cuda(&d->base);
        return status;
    }
    *out_device = &d->base;
    return TSR_OK;
}
