/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions and attention by cuDNN's graph API: from a shape to plans that can be executed. Only
 * executing them needs a GPU: cuDNN can be asked for a device that is only described, which is how
 * the choice of its engines is tested.
 *
 *   dnn_graph.c   the convolution as a graph of operations, and its execution
 *   dnn_attention_graph.c  attention and its gradient as graphs of operations
 *   dnn_choose.c  engines for a graph, those that may not be taken left out
 *   dnn_cache.c   what a device keeps: its handle, and plans by shape; timing them
 *   dnn.c         the kernels of convolutions
 *   dnn_attention.c        the kernels of attention
 *   dnn_bias.cu   the bias, which is added after
 */
#ifndef TESSERA_KERNELS_CUDA_DNN_H
#define TESSERA_KERNELS_CUDA_DNN_H

#include <cudnn.h>

#include "kernels/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every buffer is aligned to this, as the graph says. */
enum { TSRI_DNN_ALIGNMENT = 16 };

/* The key of a plan, compared as bytes. x and y lie channels last. The
 * groups are C by C/g. */
typedef struct tsri_dnn_conv {
    int64_t op;     /* tsri_op_kind: CONV2D (without its bias), CONV2D_DX, CONV2D_DW */
    int64_t dtype;  /* tsr_dtype of all three */
    int64_t w_last; /* w is [O, kh, kw, C/g] in memory, too; or row-major, [O, C/g, kh, kw] */
    int64_t x[4], w[4], y[4];
    int64_t stride[2], pad[2], dilation[2];
} tsri_dnn_conv;

/* Names of the operands of attention in a graph and at its execution. */
enum {
    TSRI_DNN_Q = 1,
    TSRI_DNN_K,
    TSRI_DNN_V,
    TSRI_DNN_O,
    TSRI_DNN_STATS, /* (b,h,s,1) f32: the logarithm of the sum of e^score */
    TSRI_DNN_DO,
    TSRI_DNN_DQ,
    TSRI_DNN_DK,
    TSRI_DNN_DV,
    TSRI_DNN_SUM,    /* (b,h,s,1) f32, scratch: of y dy */
    TSRI_DNN_DQ_SUM, /* (b,h,s,d) f32, scratch: of dq */
    TSRI_DNN_OPERANDS,
    TSRI_DNN_SCALE = TSRI_DNN_OPERANDS, /* by value */
    TSRI_DNN_HIDDEN,                    /* by value: a hidden key's score */
    TSRI_DNN_ONE,                       /* by value: 1 */
    TSRI_DNN_SCALARS_END,
};
/* Whether an operand is f32; the others are of the op's dtype. */
static inline bool tsri_dnn_is_f32(int operand)
{
    return operand == TSRI_DNN_STATS || operand == TSRI_DNN_SUM || operand == TSRI_DNN_DQ_SUM;
}

/* The key of a plan of attention; operands that the graph does not have are zeros. dq_sum: dq is
 * summed in DQ_SUM in any order, else in one piece, by the slopes in the workspace. */
typedef struct tsri_dnn_attention {
    int64_t dtype, back, causal, dq_sum;
    int64_t dims[TSRI_DNN_OPERANDS][4], steps[TSRI_DNN_OPERANDS][4];
} tsri_dnn_attention;

/* Which engines may be taken. */
typedef struct tsri_dnn_policy {
    bool deterministic, tf32;
    size_t workspace_cap; /* bytes */
} tsri_dnn_policy;

/* For what: a device that is here, or one that is described. The other is NULL. */
typedef struct tsri_dnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t description; /* CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR */
} tsri_dnn_target;

/* Names of the three operands in a graph and in what it is executed on. */
enum { TSRI_DNN_X = 1, TSRI_DNN_W, TSRI_DNN_Y };

/* Descriptors that refer to each other and are freed together; the last one made is the graph. */
enum { TSRI_DNN_PARTS = 96 };
typedef struct tsri_dnn_graph {
    cudnnBackendDescriptor_t part[TSRI_DNN_PARTS];
    int nparts;
} tsri_dnn_graph;

typedef struct tsri_dnn_plan {
    cudnnBackendDescriptor_t config, plan;
    int64_t engine;     /* cuDNN's number */
    unsigned notes;     /* bit n: has cudnnBackendNumericalNote_t n */
    unsigned behaviour; /* bit n: has cudnnBackendBehaviorNote_t n */
    size_t workspace;   /* bytes */
} tsri_dnn_plan;

/* TSR_OK, or cuDNN's error as a status: TSR_ERR_UNSUPPORTED for what it does not do. */
tsr_status tsri_dnn_check(cudnnStatus_t status, const char *what);
#define TSRI_DNN(call) TSRI_TRY(tsri_dnn_check((call), #call))

/* An attribute of a descriptor; `values` are `n` of what `type` says. */
tsr_status tsri_dnn_set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                        cudnnBackendAttributeType_t type, int64_t n, const void *values);

/* Makes the graph of one convolution. Finish it, whatever was returned. */
tsr_status tsri_dnn_graph_make(const tsri_dnn_target *target, const tsri_dnn_conv *conv,
                               tsri_dnn_graph *out_graph);
/* Makes the graph of attention, or of its gradient. Finish it, whatever was returned. */
tsr_status tsri_dnn_attention_graph(const tsri_dnn_target *target, const tsri_dnn_attention *of,
                                    tsri_dnn_graph *out_graph);
void tsri_dnn_graph_finish(tsri_dnn_graph *graph);

/* The first plans that cuDNN's heuristics propose and the policy allows, best first: at least one,
 * at most `most`. They refer to the graph. TSR_ERR_UNSUPPORTED: there is none. */
tsr_status tsri_dnn_choose(const tsri_dnn_target *target, const tsri_dnn_policy *policy,
                           const tsri_dnn_graph *graph, tsr_dtype dtype, int most,
                           tsri_dnn_plan *out_plans, int *out_n);
void tsri_dnn_plan_finish(tsri_dnn_plan *plan);

/* Puts a plan's work into the handle's stream. */
tsr_status tsri_dnn_execute(cudnnHandle_t handle, const tsri_dnn_plan *plan, void *x, void *w,
                            void *y, void *workspace);

/* Puts a plan's work into the handle's stream, on n operands and numbers by their names. */
tsr_status tsri_dnn_execute_all(cudnnHandle_t handle, const tsri_dnn_plan *plan, int n,
                                const int64_t *uids, void *const *operands, void *workspace);

/* The device's plan for a shape, made if it is the first of it; lives as long as the device does.
 * TSR_ERR_UNSUPPORTED: there is none. */
tsr_status tsri_dnn_find(tsri_cuda_device *device, const tsri_dnn_conv *conv,
                         const tsri_dnn_plan **out_plan);
/* Returns the plan of a shape of attention, as tsri_dnn_find does. */
tsr_status tsri_dnn_find_attention(tsri_cuda_device *device, const tsri_dnn_attention *of,
                                   const tsri_dnn_plan **out_plan);
/* The device's handle, its work going to `stream`. */
tsr_status tsri_dnn_handle(tsri_cuda_device *device, cudaStream_t stream,
                           cudnnHandle_t *out_handle);

/* dnn_attention.c: makes the kernels of FLASH_ATTENTION and FLASH_ATTENTION_DX. */
tsri_kernel_create_fn tsri_dnn_flash_attention;

/* y[i] += bias[i % channels], of f32, f16 or bf16. */
void tsri_dnn_add_bias(tsr_dtype dtype, int64_t count, int64_t channels, void *y, const void *bias,
                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
