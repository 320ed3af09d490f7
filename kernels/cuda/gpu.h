/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the CUDA module: its device, its kernels, and how they are made. C and C++.
 *
 *   module.c       the entry point; kernels/open/host.c: calls back into the library
 *   gpus.c         which GPUs there are; built.cu: whether the kernels are for them
 *   device_cuda.c  streams, events, buffers, captured graphs; feed.c: copies from host memory
 *   kernels.c      the implementations and their slots: own kernels for speed ("cuda"), cuBLASLt,
 *                  cuDNN, and the reference ("plain"), which takes every op, dtype and stride
 *   walk.c         a walk over operands with any strides
 *   plain_*.cu, fast_*.cu, lt_*.c, dnn_*.c   the kernels
 *
 * All device code is compiled twice: by nvcc for the GPU, and by a C++ compiler against the
 * emulator of tests/cuda/emulator, which runs it on a CPU, thread by thread, so that it is tested
 * where there is no GPU. So it keeps to what device_code.cuh offers.
 */
#ifndef TESSERA_KERNELS_CUDA_GPU_H
#define TESSERA_KERNELS_CUDA_GPU_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/device.h"
#include "kernels/module.h"

/*
 * The first error that a kernel met while it ran (an id outside its axis), in host memory that the
 * device sees. Written by tsri_fault (device_code.cuh), read by the device's check(), which does
 * not wait for the device: so who has claimed it writes what it met, and `kernel` last; who has
 * read it clears `kernel`, and the claim last.
 */
typedef struct tsri_cuda_fault {
    unsigned long long kernel; /* the tsri_cuda_kernel; 0: none so far */
    long long at, value;       /* element of the operand, and what stood there */
    int claim;                 /* 1: a thread writes, or has written, its error */
} tsri_cuda_fault;

/* On the host: the kernel that met an error, whose `at` and `value` are there too; 0: none. */
static inline unsigned long long tsri_cuda_fault_kernel(const tsri_cuda_fault *f)
{
    return __atomic_load_n(&f->kernel, __ATOMIC_ACQUIRE);
}
/* On the host: it has been read, and the next one may come. */
static inline void tsri_cuda_fault_clear(tsri_cuda_fault *f)
{
    __atomic_store_n(&f->kernel, 0ull, __ATOMIC_RELEASE);
    __atomic_store_n(&f->claim, 0, __ATOMIC_RELEASE);
}

typedef struct tsri_cuda_device tsri_cuda_device;

struct tsri_stream {
    cudaStream_t handle;
    tsri_cuda_device *device;
};

/* The traits of a GPU that kernels care for: read from the device, or described by a test. */
typedef struct tsri_cuda_traits {
    int major, minor, processors;
    size_t shared_bytes; /* that a block may opt into */
    size_t l2_bytes;
} tsri_cuda_traits;

struct tsri_cuda_device {
    tsri_device base;
    int ordinal;
    tsri_cuda_traits traits;
    /* f32 is computed in TF32: products where TESSERA_CUDA_TF32=1, convolutions where
     * TESSERA_CUDA_TF32_CONV=1, and as products where that is not set. Off by default. */
    bool tf32, tf32_conv;
    bool deterministic;   /* only engines that repeat: the default; TESSERA_CUDA_DETERMINISTIC=0 */
    size_t workspace_cap; /* bytes that a library's engine may ask for: 256 MiB */
    tsri_region region;
    bool is_registered; /* the region is NCCL's memory, which its communicators register */
    tsri_stream compute;
    tsri_cuda_fault *fault, *fault_device; /* one memory, two addresses */
    void *lt;                              /* cublasLtHandle_t, made when the first product is */
    void *dnn;                             /* cudnnHandle_t, likewise */
    void *feed;                            /* feed.c: staging */
};

/* --- status ----------------------------------------------------------------------------------- */
/* TSR_OK, or the status for a failed call of CUDA's runtime with its name and text. */
tsr_status tsri_cuda_check(cudaError_t error, const char *what);
#define TSRI_CUDA(call) TSRI_TRY(tsri_cuda_check((call), #call))

/* gpus.c: what TSRI_ON_GPU (inside.h) does, for C++. Returns the GPU to go back to; -1: none. */
int tsri_gpu_enter(const tsri_cuda_device *d);
void tsri_gpu_leave(const int *before);

/* --- kernels ---------------------------------------------------------------------------------- */
typedef struct tsri_cuda_kernel tsri_cuda_kernel;
/* Puts the work into the stream. Called each step, and while the step is captured. */
typedef tsr_status tsri_cuda_run_fn(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                    void *scratch);

/* Kernels with more to keep embed it as their first member. */
struct tsri_cuda_kernel {
    tsri_kernel base;
    tsri_kernel_desc desc; /* its attrs are those below */
    tsri_attrs attrs;
    tsri_cuda_device *device;
    cudaStream_t stream;
    tsri_cuda_run_fn *run;
    void (*finish)(tsri_cuda_kernel *k); /* NULL: nothing but its own memory to free */
};

/* A zeroed kernel of `bytes` (at least sizeof(tsri_cuda_kernel)); NULL when there is no memory.
 * `impl`: static, for messages: "plain", "cuda", "cublaslt", "cudnn". */
void *tsri_cuda_make(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_cuda_run_fn *run,
                     const char *impl, size_t bytes);
/* Makes a kernel that keeps nothing besides, and returns a status. */
tsr_status tsri_cuda_create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_cuda_run_fn *run,
                            const char *impl, tsri_kernel **out_kernel);
/* Returns the error of the launches since the last call, naming the kernel. The last line of every
 * run. */
tsr_status tsri_cuda_launched(const tsri_cuda_kernel *k);
/* Copies a kernel's table into device memory of its own, *out_table, which the kernel's `finish`
 * frees by cudaFree. Waits for the copy. what: the table, in messages. */
tsr_status tsri_cuda_upload(const tsri_cuda_kernel *k, const void *table, size_t bytes,
                            const char *what, void **out_table);
/* The refusal: TSR_ERR_UNSUPPORTED naming op and dtypes. */
tsr_status tsri_cuda_decline(const tsri_kernel_desc *desc);

int64_t tsri_cuda_count(const tsri_arg *arg);
/* Strides are those of the row-major order; of channels last (4-D). Axes of one are ignored. */
bool tsri_cuda_is_row(const tsri_arg *arg);
bool tsri_cuda_is_nhwc(const tsri_arg *arg);
static inline bool tsri_cuda_is_float(tsr_dtype d)
{
    return d == TSR_F32 || d == TSR_F64 || d == TSR_F16 || d == TSR_BF16;
}
/* Strides of the row-major order of arg's global tensor; returns where the shard begins in it. */
int64_t tsri_cuda_global_index(const tsri_arg *arg, int64_t stride[TSR_MAX_NDIM]);

/* A table's `call`: creates a kernel on its device's GPU. */
tsr_status tsri_cuda_create_on_gpu(tsri_kernel_create_fn *create, tsri_mem *mem,
                                   const tsri_kernel_desc *desc, tsri_kernel **out_kernel);

/* The implementations, best first. */
const tsri_kernels *const *tsri_kernels_cuda(void);

/* --- walks ------------------------------------------------------------------------------------ */
enum { TSRI_WALK_OPS = 6 };

/*
 * A walk over all elements of a shape, for kernels with a thread per element: passed to them by
 * value. Axes are ordered by operand 0's strides, innermost FIRST, and merged where every operand
 * allows it. An operand is anything with a stride per axis: a buffer (stride 0 where it
 * broadcasts), or the element's index in the global tensor.
 */
typedef struct tsri_cuda_walk {
    int nops, ndim; /* ndim is at least 1 */
    int64_t count;
    int64_t size[TSR_MAX_NDIM];
    int64_t stride[TSRI_WALK_OPS][TSR_MAX_NDIM];
    bool flat; /* one axis, of which every operand has stride 1 (or 0: see flat's callers) */
} tsri_cuda_walk;

/* init, then push every operand, then finish. */
void tsri_cuda_walk_init(tsri_cuda_walk *w, int ndim, const int64_t *shape);
void tsri_cuda_walk_push(tsri_cuda_walk *w, const int64_t *stride);
/* An operand that broadcasts from the right into the shape of the walk. */
void tsri_cuda_walk_push_arg(tsri_cuda_walk *w, const tsri_arg *arg);
void tsri_cuda_walk_finish(tsri_cuda_walk *w);
/* Walks out[0] and every operand (op 1 + i is in[i]); at most TSRI_WALK_OPS - 1 operands. */
void tsri_cuda_walk_of(tsri_cuda_walk *w, const tsri_kernel_desc *desc);

/* --- moving, for the device and for collectives ----------------------------------------------- */
tsr_status tsri_cuda_move(const tsri_move *move, cudaStream_t stream);
tsr_status tsri_cuda_fill(tsr_dtype dtype, tsr_reduce_op op, int64_t count, void *dst,
                          cudaStream_t stream);

/* --- the slots: one function per op and implementation ---------------------------------------- */
#define TSRI_CUDA_SLOT(upper, lower) tsri_kernel_create_fn tsri_plain_##lower, tsri_fast_##lower;
TSRI_OP_LIST(TSRI_CUDA_SLOT)
#undef TSRI_CUDA_SLOT

#ifdef __cplusplus
}
#endif
#endif
