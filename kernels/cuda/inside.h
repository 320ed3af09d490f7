/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the module's frame. */
#ifndef TESSERA_KERNELS_CUDA_INSIDE_H
#define TESSERA_KERNELS_CUDA_INSIDE_H

#include "kernels/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Alignment of libraries' workspaces: cuBLASLt requires it on Hopper, cuDNN prefers it. Scratch is
 * aligned to 64 bytes, so a kernel asks for room to align its part of it. */
enum { TSRI_WORKSPACE_ALIGNMENT = 256 };

static inline size_t tsri_workspace_aligned(size_t bytes)
{
    return (bytes + TSRI_WORKSPACE_ALIGNMENT - 1) & ~(size_t)(TSRI_WORKSPACE_ALIGNMENT - 1);
}

/* The scratch in which `bytes` of workspace find room. */
static inline size_t tsri_workspace_scratch(size_t bytes)
{
    return bytes ? bytes + TSRI_WORKSPACE_ALIGNMENT - 64 : 0;
}

static inline void *tsri_workspace_in(void *scratch)
{
    return (void *)tsri_workspace_aligned((uintptr_t)scratch);
}

/* Makes the device's GPU the calling thread's current one until the end of the block, where the GPU
 * that was current before is chosen again: a host program may call cudaSetDevice between any two
 * calls of the library. */
#define TSRI_ON_GPU(d) \
    __attribute__((cleanup(tsri_gpu_leave))) const int tsri_gpu_before = tsri_gpu_enter(d)

/* gpus.c. At least one; TSR_ERR_UNSUPPORTED, saying what was found, where there is none. */
tsr_status tsri_cuda_count_gpus(int *out_n);
tsr_status tsri_cuda_gpus(int most, tsri_module_gpu *out_gpus, int *out_n);

/* device_cuda.c */
tsr_status tsri_cuda_open(tsr_world *world, tsri_device **out_device);

/* built.cu. TSR_ERR_UNSUPPORTED if this build's kernels do not run on the current device, which is
 * d's: with what it is, and what they are for. */
tsr_status tsri_cuda_check_built(const tsri_cuda_device *d);

/* Waits for the event, polling as stream_sync does. */
tsr_status tsri_cuda_await(tsri_cuda_device *d, cudaEvent_t event);

/* feed.c: the device's copy_in. */
tsr_status tsri_feed_open(tsri_cuda_device *d);
void tsri_feed_close(tsri_cuda_device *d);
tsr_status tsri_feed_copy(tsri_cuda_device *d, void *dst, const void *src, size_t bytes,
                          cudaStream_t to);

/* src/comm/nccl/nccl.c */
tsr_status tsri_nccl_id(unsigned char out_id[128]);
tsr_status tsri_nccl_create(tsri_device *device, const unsigned char id[128], int nranks,
                            const int *ranks, struct tsri_comm **out_comm);
const char *tsri_nccl_version(void);
/* Whether TESSERA_NCCL_REGISTER=1 asks for memory that NCCL can register; without such memory NCCL
 * copies through buffers of its own. TSR_ERR_UNSUPPORTED where this NCCL has none. */
tsr_status tsri_nccl_memory_wanted(bool *out_wanted);
tsr_status tsri_nccl_memory_alloc(size_t bytes, void **out_ptr);
void tsri_nccl_memory_free(void *ptr);

/* lt.c, dnn.c: what a device holds of them, and their versions. */
void tsri_lt_close(tsri_cuda_device *d);
void tsri_dnn_close(tsri_cuda_device *d);
const char *tsri_lt_version(void);
const char *tsri_dnn_version(void);

#ifdef __cplusplus
}
#endif
#endif
