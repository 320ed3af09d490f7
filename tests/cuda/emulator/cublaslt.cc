/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt, as far as the module uses it, on the emulator: the same products one element at a time,
 * and the same refusals, so that what would fail on a GPU fails here. What the library says of its
 * arguments is in cublasLt.h; attributes and values that the module does not use are refused.
 */
#include "kernels/cuda/device_code.cuh"

#include <cublasLt.h>

#include <cstdlib>
#include <limits>

namespace {

struct context {
    int magic;
};
enum { MAGIC = 0x6c74 };
/* Bytes: what the library's kernels for Hopper fail without, whatever the header says. */
enum { WORKSPACE_ALIGNMENT = 256 };

struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
    int32_t order = CUBLASLT_ORDER_COL, batch = 1;
    int64_t stride = 0;
};

struct operation {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t ta = CUBLAS_OP_N, tb = CUBLAS_OP_N;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void *bias = nullptr;
};

struct preference {
    uint64_t workspace = 0;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK, alignment[4] = {256, 256, 256, 256};
};

/* What cublasLtMatmulAlgo_t holds: made for one problem, and to be run on that alone. */
struct algorithm {
    uint64_t problem, workspace;
    uint32_t alignment[4], splits;
};
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "");

struct problem {
    operation op;
    layout a, b, c, d;
    bool ta, tb;
    uint64_t m, n, k;
};

template <typename T> T *of(const void *opaque)
{
    return (T *)const_cast<void *>(opaque);
}

template <typename T> cublasStatus_t set(T *to, const void *from, size_t bytes)
{
    if (!from || bytes != sizeof *to)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

/* Combinations of types that the library has algorithms for, of those that the module asks for:
 * `result` of products of `type`. */
bool is_supported(const operation &op, cudaDataType_t type, cudaDataType_t result)
{
    const bool is_half = type == CUDA_R_16F || type == CUDA_R_16BF;
    if (type != result && !(is_half && result == CUDA_R_32F))
        return false;
    if (type == CUDA_R_64F)
        return op.compute == CUBLAS_COMPUTE_64F && op.scale == CUDA_R_64F &&
               op.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    if (op.scale != CUDA_R_32F)
        return false;
    if (type == CUDA_R_32F)
        return op.compute == CUBLAS_COMPUTE_32F || op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return is_half && op.compute == CUBLAS_COMPUTE_32F;
}

bool is_sound(const layout &l)
{
    const uint64_t most = (uint64_t)std::numeric_limits<int32_t>::max();
    return l.rows > 0 && l.cols > 0 && l.rows <= most && l.cols <= most &&
           l.ld >= (int64_t)l.rows && l.batch > 0 && l.order == CUBLASLT_ORDER_COL;
}

/* Matrices of a result must not overlap: one comes after the other, or their columns take turns. */
bool is_apart(const layout &l)
{
    return l.batch == 1 || l.stride >= l.ld * ((int64_t)l.cols - 1) + (int64_t)l.rows ||
           (l.stride >= (int64_t)l.rows && l.batch * l.stride <= l.ld);
}

cublasStatus_t describe(cublasLtHandle_t handle, const void *op, const void *a, const void *b,
                        const void *c, const void *d, problem *out)
{
    if (!handle || of<context>(handle)->magic != MAGIC)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!op || !a || !b || !c || !d)
        return CUBLAS_STATUS_INVALID_VALUE;
    problem p = {*of<operation>(op),
                 *of<layout>(a),
                 *of<layout>(b),
                 *of<layout>(c),
                 *of<layout>(d),
                 false,
                 false,
                 0,
                 0,
                 0};
    for (const layout *l : {&p.a, &p.b, &p.c, &p.d})
        if (!is_sound(*l) || l->batch != p.d.batch)
            return CUBLAS_STATUS_INVALID_VALUE;
    if (p.a.type != p.b.type || p.c.type != p.d.type)
        return CUBLAS_STATUS_INVALID_VALUE;
    p.ta = p.op.ta == CUBLAS_OP_T;
    p.tb = p.op.tb == CUBLAS_OP_T;
    p.m = p.ta ? p.a.cols : p.a.rows;
    p.k = p.ta ? p.a.rows : p.a.cols;
    p.n = p.tb ? p.b.rows : p.b.cols;
    if ((p.tb ? p.b.cols : p.b.rows) != p.k || p.c.rows != p.m || p.d.rows != p.m ||
        p.c.cols != p.n || p.d.cols != p.n || !is_apart(p.c) || !is_apart(p.d))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool adds = p.op.epilogue == CUBLASLT_EPILOGUE_BIAS;
    if ((p.op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !adds) || (adds && !p.op.bias))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_supported(p.op, p.a.type, p.d.type))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *out = p;
    return CUBLAS_STATUS_SUCCESS;
}

/* The same for the same problem, wherever its bias is. */
uint64_t key_of(const problem &p)
{
    uint64_t key = 1469598103934665603u;
    auto mix = [&key](uint64_t v) { key = (key ^ v) * 1099511628211u; };
    for (const layout *l : {&p.a, &p.b, &p.c, &p.d}) {
        mix(l->rows);
        mix(l->cols);
        mix((uint64_t)l->ld);
        mix((uint64_t)l->batch);
        mix((uint64_t)l->stride);
        mix((uint64_t)l->type);
    }
    mix((uint64_t)p.op.compute);
    mix(p.ta);
    mix(p.tb);
    mix(p.op.epilogue);
    return key;
}

bool is_aligned(const void *p, size_t to)
{
    return (uintptr_t)p % to == 0;
}

/* An operand's element; TF32 has 13 bits less than f32. */
template <typename T> double element(const problem &p, T v)
{
    if constexpr (std::is_same<T, float>::value) {
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        bits &= p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? ~0x1fffu : ~0u;
        memcpy(&v, &bits, sizeof bits);
    }
    return tsri_to<double>(v);
}

template <typename T> double sum(const problem &p, const T *a, const T *b, uint64_t i, uint64_t j)
{
    double total = 0;
    for (uint64_t k = 0; k < p.k; k++) {
        int64_t at_a =
            p.ta ? (int64_t)(k + i * (uint64_t)p.a.ld) : (int64_t)i + (int64_t)k * p.a.ld;
        int64_t at_b =
            p.tb ? (int64_t)(j + k * (uint64_t)p.b.ld) : (int64_t)k + (int64_t)j * p.b.ld;
        total += element(p, a[at_a]) * element(p, b[at_b]);
    }
    return total;
}

template <typename In, typename T>
void multiply(const problem &p, double alpha, const In *a, const In *b, double beta, const T *c,
              T *d)
{
    const T *bias = p.op.epilogue == CUBLASLT_EPILOGUE_BIAS ? (const T *)p.op.bias : nullptr;
    for (int64_t batch = 0; batch < p.d.batch; batch++)
        for (uint64_t j = 0; j < p.n; j++)
            for (uint64_t i = 0; i < p.m; i++) {
                int64_t at = (int64_t)i + (int64_t)j * p.d.ld + batch * p.d.stride;
                int64_t from = (int64_t)i + (int64_t)j * p.c.ld + batch * p.c.stride;
                double v = alpha * sum(p, a + batch * p.a.stride, b + batch * p.b.stride, i, j);
                v += beta ? beta * tsri_to<double>(c[from]) : 0;
                v += bias ? tsri_to<double>(bias[i]) : 0;
                d[at] = tsri_to<T>(v);
            }
}

template <typename In, typename T>
void submit(const problem &p, double alpha, const void *a, const void *b, double beta,
            const void *c, void *d, void *workspace, size_t bytes, cudaStream_t stream)
{
    tsri_emulated_submit("cublasLtMatmul", dim3(1), dim3(1), stream, [=]() {
        if (bytes)
            memset(workspace, 0xa5, bytes);
        multiply<In, T>(p, alpha, (const In *)a, (const In *)b, beta, (const T *)c, (T *)d);
    });
}

} // namespace

extern "C" {

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}
const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS";
}
const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_INVALID_VALUE ? "emulated: invalid value" : "emulated error";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = (cublasLtHandle_t) new context{MAGIC};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete of<context>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *out = (cublasLtMatrixLayout_t) new layout{type, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t l)
{
    delete of<layout>(l);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t opaque,
                                                cublasLtMatrixLayoutAttribute_t attr,
                                                const void *from, size_t bytes)
{
    layout *l = of<layout>(opaque);
    switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return set(&l->order, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(&l->batch, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(&l->stride, from, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    operation *op = new operation;
    op->compute = compute;
    op->scale = scale;
    *out = (cublasLtMatmulDesc_t)op;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t op)
{
    delete of<operation>(op);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t opaque,
                                              cublasLtMatmulDescAttributes_t attr, const void *from,
                                              size_t bytes)
{
    operation *op = of<operation>(opaque);
    switch (attr) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&op->ta, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&op->tb, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&op->epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&op->bias, from, bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = (cublasLtMatmulPreference_t) new preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t pref)
{
    delete of<preference>(pref);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t opaque,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *from, size_t bytes)
{
    preference *pref = of<preference>(opaque);
    switch (attr) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&pref->workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&pref->schemes, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&pref->alignment[attr - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], from,
                   bytes);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

/* One with a workspace, where that is allowed, and one without. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t opaque, int most,
                                              cublasLtMatmulHeuristicResult_t *out, int *out_n)
{
    enum { WORKSPACE = 4096 };
    const preference *pref = of<preference>(opaque);
    problem p;
    *out_n = 0;
    if (most <= 0 || !pref || !out)
        return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t status = describe(handle, op, a, b, c, d, &p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    bool splits = pref->schemes != CUBLASLT_REDUCTION_SCHEME_NONE && pref->workspace >= WORKSPACE;
    for (uint32_t i = splits ? 2 : 1; i > 0 && *out_n < most; i--, ++*out_n) {
        cublasLtMatmulHeuristicResult_t *r = &out[*out_n];
        algorithm algo = {key_of(p), i > 1 ? (uint64_t)WORKSPACE : 0, {}, i};
        memcpy(algo.alignment, pref->alignment, sizeof algo.alignment);
        *r = cublasLtMatmulHeuristicResult_t();
        memcpy(&r->algo, &algo, sizeof algo);
        r->workspaceSize = algo.workspace;
        r->state = CUBLAS_STATUS_SUCCESS;
        r->wavesCount = 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *chosen, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    problem p;
    algorithm algo;
    cublasStatus_t status = describe(handle, op, la, lb, lc, ld, &p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (!alpha || !beta || !a || !b || !c || !d || !chosen)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&algo, chosen, sizeof algo);
    if (algo.problem != key_of(p) || bytes < algo.workspace || (algo.workspace && !workspace) ||
        !is_aligned(workspace, WORKSPACE_ALIGNMENT) || !is_aligned(p.op.bias, size_of(p.d.type)))
        return CUBLAS_STATUS_INVALID_VALUE;
    const void *operands[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (!is_aligned(operands[i], algo.alignment[i]))
            return CUBLAS_STATUS_INVALID_VALUE;
    bool in_f64 = p.op.scale == CUDA_R_64F;
    double factor = in_f64 ? *(const double *)alpha : *(const float *)alpha;
    double keep = in_f64 ? *(const double *)beta : *(const float *)beta;
    size_t used = (size_t)algo.workspace;
    const bool widens = p.a.type != p.d.type;
    if (p.a.type == CUDA_R_64F)
        submit<double, double>(p, factor, a, b, keep, c, d, workspace, used, stream);
    else if (p.a.type == CUDA_R_32F)
        submit<float, float>(p, factor, a, b, keep, c, d, workspace, used, stream);
    else if (p.a.type == CUDA_R_16F)
        (widens ? submit<__half, float> : submit<__half, __half>)(p, factor, a, b, keep, c, d,
                                                                  workspace, used, stream);
    else
        (widens ? submit<__nv_bfloat16, float>
                : submit<__nv_bfloat16, __nv_bfloat16>)(p, factor, a, b, keep, c, d, workspace,
                                                        used, stream);
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
