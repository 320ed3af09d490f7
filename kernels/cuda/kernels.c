/* SPDX-License-Identifier: Apache-2.0 */
/* The implementations of the CUDA module, and what all its kernels share. */
#include "kernels/cuda/inside.h"
#include "kernels/cuda/nvtx.h"

/* Slots that nobody defines are NULL: an op without a fast kernel, a source. */
#define WEAK(upper, lower)                                                                       \
    extern tsri_kernel_create_fn tsri_plain_##lower __attribute__((weak, visibility("hidden"))); \
    extern tsri_kernel_create_fn tsri_fast_##lower __attribute__((weak, visibility("hidden")));
TSRI_OP_LIST(WEAK)
#undef WEAK

/* lt.c, dnn.c */
extern const tsri_kernels tsri_kernels_cublaslt, tsri_kernels_cudnn, tsri_kernels_cudnn_attention;

#define FAST(upper, lower) [TSRI_OP_##upper] = tsri_fast_##lower,
#define PLAIN(upper, lower) [TSRI_OP_##upper] = tsri_plain_##lower,
static const tsri_kernels fast = {.size = sizeof fast,
                                  .name = "cuda",
                                  .call = tsri_cuda_create_on_gpu,
                                  .slot = {TSRI_OP_LIST(FAST)}};
static const tsri_kernels plain = {.size = sizeof plain,
                                   .name = "plain",
                                   .call = tsri_cuda_create_on_gpu,
                                   .slot = {TSRI_OP_LIST(PLAIN)}};
#undef FAST
#undef PLAIN

const tsri_kernels *const *tsri_kernels_cuda(void)
{
    static const tsri_kernels *const list[] = {
        &fast, &tsri_kernels_cudnn_attention, &tsri_kernels_cublaslt, &tsri_kernels_cudnn, &plain,
        NULL};
    return list;
}

tsr_status tsri_cuda_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return TSR_OK;
    cudaGetLastError(); /* or the next call would be blamed */
    return tsri_fail(error == cudaErrorMemoryAllocation ? TSR_ERR_NO_MEMORY : TSR_ERR_BACKEND,
                     "%s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

tsr_status tsri_cuda_upload(const tsri_cuda_kernel *k, const void *table, size_t bytes,
                            const char *what, void **out_table)
{
    TSRI_ON_GPU(k->device);
    cudaError_t error = cudaMalloc(out_table, bytes);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(*out_table, table, bytes, cudaMemcpyHostToDevice, k->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(k->stream);
    return tsri_cuda_check(error, what);
}

static tsr_status run_kernel(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const tsri_cuda_kernel *kernel = (const tsri_cuda_kernel *)k;
    TSRI_ON_GPU(kernel->device);
    nvtxRangePushA(tsri_op_name(kernel->desc.op));
    tsr_status status = kernel->run(kernel, in, out, scratch);
    nvtxRangePop();
    return status;
}

static void destroy_kernel(tsri_kernel *k)
{
    tsri_cuda_kernel *kernel = (tsri_cuda_kernel *)k;
    tsri_cuda_fault *fault = kernel->device ? kernel->device->fault : NULL;
    if (fault && tsri_cuda_fault_kernel(fault) == (uintptr_t)kernel)
        tsri_cuda_fault_clear(fault); /* nobody asked for it, and nobody can any more */
    TSRI_ON_GPU(kernel->device);
    if (kernel->finish)
        kernel->finish(kernel);
    tsri_mem_free(kernel);
}

tsr_status tsri_cuda_create_on_gpu(tsri_kernel_create_fn *create, tsri_mem *mem,
                                   const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    TSRI_ON_GPU(desc->stream ? desc->stream->device : NULL);
    return create(mem, desc, out_kernel);
}

void *tsri_cuda_make(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_cuda_run_fn *run,
                     const char *impl, size_t bytes)
{
    tsri_cuda_kernel *k = tsri_mem_alloc(mem, bytes);
    if (!k)
        return NULL;
    k->base.run = run_kernel;
    k->base.destroy = destroy_kernel;
    k->base.impl = impl;
    k->desc = *desc;
    k->attrs = *desc->attrs;
    k->desc.attrs = &k->attrs;
    k->run = run;
    if (desc->stream) {
        k->device = desc->stream->device;
        k->stream = desc->stream->handle;
    }
    return k;
}

tsr_status tsri_cuda_create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_cuda_run_fn *run,
                            const char *impl, tsri_kernel **out_kernel)
{
    tsri_cuda_kernel *k = tsri_cuda_make(mem, desc, run, impl, sizeof *k);
    TSRI_NEED(k);
    *out_kernel = &k->base;
    return TSR_OK;
}

tsr_status tsri_cuda_launched(const tsri_cuda_kernel *k)
{
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? TSR_OK : tsri_cuda_check(error, tsri_op_name(k->desc.op));
}

tsr_status tsri_cuda_decline(const tsri_kernel_desc *desc)
{
    return tsri_fail(TSR_ERR_UNSUPPORTED, "%s of %s", tsri_op_name(desc->op),
                     tsr_dtype_name(desc->nin ? desc->in[0].dtype : desc->out[0].dtype));
}

/* --- shapes ----------------------------------------------------------------------------------- */
int64_t tsri_cuda_count(const tsri_arg *arg)
{
    int64_t n = 1;
    for (int i = 0; i < arg->ndim; i++)
        n *= arg->shape[i];
    return n;
}

static bool is_dense(const tsri_arg *arg, const int *order)
{
    int64_t stride = 1;
    for (int i = arg->ndim - 1; i >= 0; i--) {
        int a = order[i];
        if (arg->shape[a] > 1 && arg->stride[a] != stride)
            return false;
        stride *= arg->shape[a] > 0 ? arg->shape[a] : 1;
    }
    return true;
}

bool tsri_cuda_is_row(const tsri_arg *arg)
{
    static const int order[TSR_MAX_NDIM] = {0, 1, 2, 3, 4, 5, 6, 7};
    return is_dense(arg, order);
}

bool tsri_cuda_is_nhwc(const tsri_arg *arg)
{
    static const int order[4] = {0, 2, 3, 1};
    return arg->ndim == 4 && is_dense(arg, order);
}

int64_t tsri_cuda_global_index(const tsri_arg *arg, int64_t stride[TSR_MAX_NDIM])
{
    int64_t step = 1, at = 0;
    for (int i = arg->ndim - 1; i >= 0; i--) {
        stride[i] = step;
        at += arg->offset[i] * step;
        step *= arg->gshape[i];
    }
    return at;
}
