/* SPDX-License-Identifier: Apache-2.0 */
/* A device's part of cuDNN: a handle and the plans made so far; see dnn.h. */
#include "kernels/cuda/library/dnn.h"
#include "kernels/cuda/inside.h"
#include "src/core/world.h"

#include <stdlib.h>
#include <string.h>

/* Plans that are timed against each other, and how often each is run for it. */
enum { CANDIDATES = 4, REPEATS = 5 };

typedef struct entry entry;
struct entry {
    entry *next;
    bool is_attention;
    union {
        tsri_dnn_conv conv;
        tsri_dnn_attention attention;
    } key;                /* of the kind that is_attention says */
    tsri_dnn_graph graph; /* the plan may refer to it */
    tsri_dnn_plan plan;   /* its plan is NULL: there is no engine */
};

typedef struct library {
    cudnnHandle_t handle; /* NULL: could not be made */
    cudaStream_t stream;  /* the handle's */
    bool autotune;
    entry *entries;
} library;

static tsr_status library_of(tsri_cuda_device *d, library **out)
{
    library *l = d->dnn;
    if (!l) {
        const char *text = getenv("TESSERA_CUDA_AUTOTUNE");
        l = d->dnn = tsri_mem_alloc(&d->base.world->mem, sizeof *l);
        TSRI_NEED(l);
        l->autotune = text && *text && strcmp(text, "0") != 0;
        if (tsri_dnn_check(cudnnCreate(&l->handle), "cudnnCreate") != TSR_OK) {
            l->handle = NULL;
            tsri_log(d->base.world, TSR_LOG_WARNING,
                     "%s; convolutions and attention go without cuDNN", tsr_last_error());
        }
    }
    if (!l->handle)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "cuDNN could not be started");
    *out = l;
    return TSR_OK;
}

void tsri_dnn_close(tsri_cuda_device *d)
{
    library *l = d->dnn;
    if (!l)
        return;
    while (l->entries) {
        entry *e = l->entries;
        l->entries = e->next;
        tsri_dnn_plan_finish(&e->plan);
        tsri_dnn_graph_finish(&e->graph);
        tsri_mem_free(e);
    }
    if (l->handle)
        cudnnDestroy(l->handle);
    tsri_mem_free(l);
    d->dnn = NULL;
}

tsr_status tsri_dnn_handle(tsri_cuda_device *device, cudaStream_t stream, cudnnHandle_t *out_handle)
{
    library *l = NULL;
    TSRI_TRY(library_of(device, &l));
    if (l->stream != stream)
        TSRI_DNN(cudnnSetStream(l->handle, stream));
    l->stream = stream;
    *out_handle = l->handle;
    return TSR_OK;
}

/* --- timing ----------------------------------------------------------------------------------- */
typedef struct trial {
    cudnnHandle_t handle;
    cudaStream_t stream;
    void *operand[3], *workspace;
    cudaEvent_t from, to;
} trial;

static size_t bytes_of(const int64_t shape[4], int64_t dtype)
{
    return (size_t)(shape[0] * shape[1] * shape[2] * shape[3]) * tsr_dtype_size((tsr_dtype)dtype);
}

static tsr_status trial_open(trial *t, const tsri_dnn_conv *c, const tsri_dnn_plan *plans, int n)
{
    const size_t bytes[3] = {bytes_of(c->x, c->dtype), bytes_of(c->w, c->dtype),
                             bytes_of(c->y, c->dtype)};
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        TSRI_CUDA(cudaMalloc(&t->operand[i], bytes[i]));
        TSRI_CUDA(cudaMemsetAsync(t->operand[i], 0, bytes[i], t->stream));
    }
    for (int i = 0; i < n; i++)
        most = plans[i].workspace > most ? plans[i].workspace : most;
    if (most)
        TSRI_CUDA(cudaMalloc(&t->workspace, most));
    TSRI_CUDA(cudaEventCreateWithFlags(&t->from, cudaEventDefault));
    TSRI_CUDA(cudaEventCreateWithFlags(&t->to, cudaEventDefault));
    return TSR_OK;
}

static void trial_close(trial *t)
{
    cudaStreamSynchronize(t->stream);
    for (int i = 0; i < 3; i++)
        cudaFree(t->operand[i]);
    cudaFree(t->workspace);
    if (t->from)
        cudaEventDestroy(t->from);
    if (t->to)
        cudaEventDestroy(t->to);
    cudaGetLastError();
}

static tsr_status trial_time(const trial *t, const tsri_dnn_plan *plan, float *out_ms)
{
    /* The first run loads the kernel. */
    for (int i = -1; i < REPEATS; i++) {
        if (i == 0)
            TSRI_CUDA(cudaEventRecord(t->from, t->stream));
        TSRI_TRY(tsri_dnn_execute(t->handle, plan, t->operand[0], t->operand[1], t->operand[2],
                                  t->workspace));
    }
    TSRI_CUDA(cudaEventRecord(t->to, t->stream));
    TSRI_CUDA(cudaEventSynchronize(t->to));
    TSRI_CUDA(cudaEventElapsedTime(out_ms, t->from, t->to));
    return TSR_OK;
}

/* The fastest of the plans; the first where there is no memory to try them. */
static int fastest(tsri_cuda_device *d, const tsri_dnn_conv *c, const tsri_dnn_plan *plans, int n)
{
    trial t = {.stream = d->compute.handle};
    int best = 0;
    float least = 0, ms;
    if (tsri_dnn_handle(d, t.stream, &t.handle) == TSR_OK &&
        trial_open(&t, c, plans, n) == TSR_OK) {
        for (int i = 0, timed = 0; i < n; i++) {
            if (trial_time(&t, &plans[i], &ms) != TSR_OK || (timed && ms >= least))
                continue;
            least = ms;
            best = i;
            timed = 1;
        }
    }
    trial_close(&t);
    return best;
}

/* --- plans ------------------------------------------------------------------------------------ */
static tsr_status fill(tsri_cuda_device *d, library *l, entry *e)
{
    const tsri_dnn_target target = {.handle = l->handle};
    const tsri_dnn_policy policy = {d->deterministic, d->tf32_conv, d->workspace_cap};
    tsri_dnn_plan plans[CANDIDATES];
    int n = 0;
    if (e->is_attention)
        TSRI_TRY(tsri_dnn_attention_graph(&target, &e->key.attention, &e->graph));
    else
        TSRI_TRY(tsri_dnn_graph_make(&target, &e->key.conv, &e->graph));
    const tsr_dtype dtype =
        (tsr_dtype)(e->is_attention ? e->key.attention.dtype : e->key.conv.dtype);
    TSRI_TRY(tsri_dnn_choose(&target, &policy, &e->graph, dtype,
                             l->autotune && !e->is_attention ? CANDIDATES : 1, plans, &n));
    int best = n > 1 ? fastest(d, &e->key.conv, plans, n) : 0;
    for (int i = 0; i < n; i++)
        if (i != best)
            tsri_dnn_plan_finish(&plans[i]);
    e->plan = plans[best];
    return TSR_OK;
}

static tsr_status find_plan(tsri_cuda_device *device, bool is_attention, const void *key,
                            size_t bytes, const tsri_dnn_plan **out_plan)
{
    library *l = NULL;
    entry *e;
    TSRI_TRY(library_of(device, &l));
    for (e = l->entries; e; e = e->next)
        if (e->is_attention == is_attention && !memcmp(&e->key, key, bytes))
            break;
    if (!e) {
        e = tsri_mem_alloc(&device->base.world->mem, sizeof *e);
        TSRI_NEED(e);
        e->is_attention = is_attention;
        memcpy(&e->key, key, bytes);
        e->next = l->entries;
        l->entries = e;
        tsr_status status = fill(device, l, e);
        /* Whatever cuDNN has against it, other kernels do the work. */
        if (status != TSR_OK)
            return tsri_fail_prefix(TSR_ERR_UNSUPPORTED, "cuDNN");
    }
    if (!e->plan.plan)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "cuDNN has no engine for this shape");
    *out_plan = &e->plan;
    return TSR_OK;
}

tsr_status tsri_dnn_find(tsri_cuda_device *device, const tsri_dnn_conv *conv,
                         const tsri_dnn_plan **out_plan)
{
    return find_plan(device, false, conv, sizeof *conv, out_plan);
}

tsr_status tsri_dnn_find_attention(tsri_cuda_device *device, const tsri_dnn_attention *of,
                                   const tsri_dnn_plan **out_plan)
{
    return find_plan(device, true, of, sizeof *of, out_plan);
}
