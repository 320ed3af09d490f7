/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the kernels of batch norm: virtual batches, and the factors that a channel's sums and
 * parameters come to. A sample belongs to the virtual batch in which its global index lies, and the
 * operand `stats` says by its own offset which virtual batches a shard knows.
 */
#ifndef TESSERA_KERNELS_CUDA_BN_H
#define TESSERA_KERNELS_CUDA_BN_H

#include "kernels/cuda/code/channels.cuh"

/* A batch norm as its kernels are told of it; passed to them by value. */
typedef struct tsri_bn {
    int64_t batch, parts, spatial; /* attrs.bn */
    int64_t first, rows;           /* virtual batches of stats: the first one's number; how many */
    int64_t offset, n, c;      /* this shard's samples, where they begin in the batch; channels */
    double eps, share;         /* 1 / (batch spatial): of a single virtual batch */
    int act;                   /* tsri_act; NONE for unfused ops */
    bool centers, counted;     /* BN_CENTER: a and b are 1 and 0; operand 2 is the count */
    int gamma_type, beta_type; /* tsr_dtype; NONE where there is no such operand */
    int stats_in, gamma_in, dy_in, bstats_in; /* operands; 0: none. beta is behind gamma */
    int64_t stats[3], bstats[3];              /* strides: virtual batch, which sum, channel */
    int64_t bstats_first;                     /* virtual batch of row 0 of bstats */
} tsri_bn;

/* Where an op's sums and parameters lie; made when it runs. */
typedef struct tsri_bn_data {
    const double *stats, *bstats;
    const void *gamma, *beta;
    const double *count; /* of BN_CENTER: NULL, or the number of values */
} tsri_bn_data;

/* Fills in *out. TSR_ERR_UNSUPPORTED for dtypes that batch norm does not take; TSR_ERR_INVALID if
 * stats lacks a virtual batch of this shard's samples. plain/bn.cu. */
tsr_status tsri_cuda_bn(const tsri_kernel_desc *desc, tsri_bn *out);
tsri_bn_data tsri_cuda_bn_data(const tsri_bn *v, void *const *in);

/* Processors of the kernel's device. */
static inline int tsri_cuda_processors(const tsri_kernel_desc *d)
{
    return d->stream ? d->stream->device->traits.processors : 1;
}

/* Element i of a float buffer whose dtype is known only at run time: for operands with an element
 * per channel. */
static __device__ __forceinline__ double tsri_get_float(int dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case TSR_DTYPE_F32:
        return ((const float *)p)[i];
    case TSR_DTYPE_F64:
        return ((const double *)p)[i];
    case TSR_DTYPE_F16:
        return tsri_to<double>(((const __half *)p)[i]);
    default:
        return tsri_to<double>(((const __nv_bfloat16 *)p)[i]);
    }
}
static __device__ __forceinline__ void tsri_put_float(int dtype, void *p, int64_t i, double v)
{
    switch (dtype) {
    case TSR_DTYPE_F32:
        ((float *)p)[i] = (float)v;
        break;
    case TSR_DTYPE_F64:
        ((double *)p)[i] = v;
        break;
    case TSR_DTYPE_F16:
        ((__half *)p)[i] = tsri_to<__half>(v);
        break;
    default:
        ((__nv_bfloat16 *)p)[i] = tsri_to<__nv_bfloat16>(v);
    }
}

/* Balanced split of n over parts: where part r begins. */
static __host__ __device__ __forceinline__ int64_t tsri_bn_begin(int64_t n, int64_t parts,
                                                                 int64_t r)
{
    int64_t more = n % parts;
    return r * (n / parts) + (r < more ? r : more);
}

/* The local samples of a virtual batch, and one over its elements per channel anywhere. */
typedef struct tsri_bn_part {
    int64_t begin, end;
    double share;
} tsri_bn_part;

/* The part that row i of stats describes. */
static __device__ __forceinline__ tsri_bn_part tsri_bn_part_of(const tsri_bn &v, int64_t i)
{
    if (v.parts == 1)
        return {0, v.n, v.share};
    int64_t begin = tsri_bn_begin(v.batch, v.parts, v.first + i);
    int64_t end = tsri_bn_begin(v.batch, v.parts, v.first + i + 1);
    double share = 1 / ((double)(end - begin) * (double)v.spatial);
    begin -= v.offset;
    end -= v.offset;
    return {begin < 0 ? 0 : begin, end > v.n ? v.n : end, share};
}

/* The row of stats that local sample n belongs to. */
static __device__ __forceinline__ int64_t tsri_bn_row_of(const tsri_bn &v, int64_t n)
{
    if (v.parts == 1)
        return 0;
    int64_t at = v.offset + n, each = v.batch / v.parts, more = v.batch % v.parts;
    int64_t larger = more * (each + 1);
    return (at < larger ? at / (each + 1) : more + (at - larger) / each) - v.first;
}

/* The factors of a channel in a virtual batch: xhat = (x - mean) rstd, z = (x - mean) a + b. */
typedef struct tsri_bn_coefs {
    double mean, rstd, a, b;
} tsri_bn_coefs;

static __device__ __forceinline__ tsri_bn_coefs tsri_bn_coefs_of(const tsri_bn &v,
                                                                 const tsri_bn_data &p, int64_t row,
                                                                 double share, int64_t c)
{
    const double *s = p.stats + row * v.stats[0] + c * v.stats[2];
    double mean = s[0] * share, var = s[v.stats[1]] * share - mean * mean;
    double rstd = rsqrt((var < 0 ? 0 : var) + v.eps);
    if (v.centers)
        return {p.count ? s[0] / *p.count : mean, rstd, 1, 0};
    double gamma = v.gamma_type ? tsri_get_float(v.gamma_type, p.gamma, c) : 1;
    return {mean, rstd, rstd * gamma, v.beta_type ? tsri_get_float(v.beta_type, p.beta, c) : 0};
}

/* The factors of the gradient: dx = a (t - k0 - (x - mean) k1), t what comes through the
 * activation. */
typedef struct tsri_bn_slopes {
    double k0, k1;
} tsri_bn_slopes;

static __device__ __forceinline__ tsri_bn_slopes tsri_bn_slopes_of(const tsri_bn &v,
                                                                   const tsri_bn_data &p,
                                                                   int64_t row, double share,
                                                                   double rstd, int64_t c)
{
    const double *s = p.bstats + (row + v.first - v.bstats_first) * v.bstats[0] + c * v.bstats[2];
    return {s[0] * share, rstd * s[v.bstats[1]] * share};
}

static __device__ __forceinline__ float tsri_fma(float x, float y, float z)
{
    return fmaf(x, y, z);
}
static __device__ __forceinline__ double tsri_fma(double x, double y, double z)
{
    return fma(x, y, z);
}

/* act(z), z a value of the data's dtype. A NaN stays one. */
template <typename A> static __device__ __forceinline__ A tsri_bn_act(int act, A z)
{
    if (act != TSRI_ACT_NONE && z <= 0)
        return 0;
    return act == TSRI_ACT_RELU6 && z >= 6 ? (A)6 : z;
}
/* Whether a gradient comes through. */
template <typename A> static __device__ __forceinline__ bool tsri_bn_through(int act, A z)
{
    return act == TSRI_ACT_NONE || (z > 0 && !(act == TSRI_ACT_RELU6 && !(z < 6)));
}

/* --- channels last: fast/bn.cu, fast/bn_stats.cu ---------------------------------------------- */
typedef struct tsri_fast_bn {
    tsri_cuda_kernel base;
    tsri_bn bn;
    int64_t plane; /* local pixels of a sample */
    tsri_tiles tiles;
} tsri_fast_bn;

/* Declines what is not channels last, or not all of one dtype; else a kernel without tiles, and
 * the elements of the largest pack that its channels are made of. fast/bn.cu. */
tsr_status tsri_cuda_fast_bn(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run,
                             tsri_fast_bn **out_kernel, int *out_pack);

#endif
