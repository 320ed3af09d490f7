/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of cuBLASLt's algorithms makes a product: the first of its heuristics, or by timing the
 * first few where TESSERA_CUDA_AUTOTUNE=1 asks for it.
 */
#include "kernels/cuda/library/lt.h"

#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 8, RUNS = 5 };
static const size_t most_workspace = (size_t)32 << 20;

static bool wants_tuning(void)
{
    const char *text = getenv("TESSERA_CUDA_AUTOTUNE");
    return text && *text && strcmp(text, "0") != 0;
}

/* --- heuristics ------------------------------------------------------------------------------- */
static tsr_status set_preferences(const tsri_lt_call *k, cublasLtMatmulPreference_t pref)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const tsri_cuda_device *d = k->device;
    /* The library's A is our b, and its C and D are both our c. */
    const uint32_t ours[] = {k->alignment[1], k->alignment[0], k->alignment[2], k->alignment[2]};
    uint64_t workspace = d->workspace_cap < most_workspace ? d->workspace_cap : most_workspace;
    /* Without partial sums in the result itself, whose order nobody promises, or of its dtype. */
    uint32_t schemes = d->deterministic
                           ? CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                           : CUBLASLT_REDUCTION_SCHEME_MASK;
    TSRI_LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace, sizeof workspace));
    TSRI_LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &schemes, sizeof schemes));
    for (int i = 0; i < 4; i++)
        TSRI_LT(
            cublasLtMatmulPreferenceSetAttribute(pref, alignments[i], &ours[i], sizeof ours[i]));
    return TSR_OK;
}

/* Up to `most` algorithms that can be run, in the heuristics' order; none is no error. */
static tsr_status ask(const tsri_lt_call *k, int most, cublasLtMatmulHeuristicResult_t *out,
                      int *out_n)
{
    cublasLtMatmulPreference_t pref;
    TSRI_LT(cublasLtMatmulPreferenceCreate(&pref));
    tsr_status status = set_preferences(k, pref);
    int got = 0, n = 0;
    if (status == TSR_OK) {
        cublasStatus_t asked = cublasLtMatmulAlgoGetHeuristic(k->device->lt, k->op, k->a, k->b,
                                                              k->c, k->c, pref, most, out, &got);
        bool none = asked == CUBLAS_STATUS_NOT_SUPPORTED || asked == CUBLAS_STATUS_INVALID_VALUE;
        if (asked != CUBLAS_STATUS_SUCCESS)
            got = 0;
        status = none ? TSR_OK : tsri_lt_check(asked, "cublasLtMatmulAlgoGetHeuristic");
    }
    cublasLtMatmulPreferenceDestroy(pref);
    for (int i = 0; i < got; i++)
        if (out[i].state == CUBLAS_STATUS_SUCCESS && out[i].workspaceSize <= most_workspace)
            out[n++] = out[i];
    *out_n = n;
    return status;
}

/* --- tuning ----------------------------------------------------------------------------------- */
typedef struct bench {
    const tsri_lt_call *k;
    char *memory;
    void *a, *b, *c, *bias, *workspace;
    cudaEvent_t from, to;
} bench;

/* The bytes from the first to the last element of an operand. */
static size_t extent(const tsri_lt_steps *s, int64_t rows, int64_t cols, int64_t batch,
                     tsr_dtype dtype)
{
    const int64_t last = (rows - 1) * s->row + (cols - 1) * s->col + (batch - 1) * s->batch;
    return tsri_workspace_aligned((size_t)(last + 1) * tsr_dtype_size(dtype));
}

static tsr_status open_bench(bench *t, size_t workspace)
{
    const tsri_lt_product *p = &t->k->product;
    const tsr_dtype dtype = t->k->dtype;
    const size_t a = extent(&p->a, p->m, p->k, p->batch, dtype);
    const size_t b = extent(&p->b, p->n, p->k, p->batch, dtype);
    const size_t c = extent(&p->c, p->m, p->n, p->batch, t->k->result);
    const size_t bias = p->bias ? tsri_workspace_aligned((size_t)p->n * tsr_dtype_size(dtype)) : 0;
    const size_t all = a + b + c + bias;
    TSRI_CUDA(cudaMalloc((void **)&t->memory, all + tsri_workspace_aligned(workspace)));
    TSRI_CUDA(cudaMemsetAsync(t->memory, 0, all, t->k->stream));
    TSRI_CUDA(cudaEventCreateWithFlags(&t->from, cudaEventDefault));
    TSRI_CUDA(cudaEventCreateWithFlags(&t->to, cudaEventDefault));
    t->a = t->memory;
    t->b = t->memory + a;
    t->c = (char *)t->b + b;
    t->bias = (char *)t->c + c;
    t->workspace = t->memory + all;
    return TSR_OK;
}

static void close_bench(bench *t)
{
    if (t->from)
        cudaEventDestroy(t->from);
    if (t->to)
        cudaEventDestroy(t->to);
    cudaFree(t->memory);
}

static tsr_status time_one(const bench *t, const cublasLtMatmulHeuristicResult_t *r, float *out_ms)
{
    cudaStream_t stream = t->k->stream;
    for (int i = -1; i < RUNS; i++) { /* the first loads the code */
        if (i == 0)
            TSRI_CUDA(cudaEventRecord(t->from, stream));
        TSRI_LT(tsri_lt_launch(t->k, &r->algo, t->a, t->b, t->c, t->workspace, r->workspaceSize));
    }
    TSRI_CUDA(cudaEventRecord(t->to, stream));
    TSRI_CUDA(cudaEventSynchronize(t->to));
    TSRI_CUDA(cudaEventElapsedTime(out_ms, t->from, t->to));
    return TSR_OK;
}

/* The first that is within 5 % of the fastest: so noise seldom makes alike GPUs choose otherwise,
 * and the heuristics' own choice stays unless another is clearly better. */
static int first_of_the_fast(int n, const float *ms)
{
    float best = ms[0];
    for (int i = 1; i < n; i++)
        best = ms[i] < best ? ms[i] : best;
    for (int i = 0; i < n; i++)
        if (ms[i] <= 1.05f * best)
            return i;
    return 0;
}

static tsr_status measure(bench *t, bool bias, int n, const cublasLtMatmulHeuristicResult_t *r,
                          int *out_best)
{
    size_t workspace = 0;
    float ms[CANDIDATES];
    for (int i = 0; i < n; i++)
        workspace = r[i].workspaceSize > workspace ? r[i].workspaceSize : workspace;
    TSRI_TRY(open_bench(t, workspace));
    if (bias)
        TSRI_LT(cublasLtMatmulDescSetAttribute(t->k->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &t->bias, sizeof t->bias));
    for (int i = 0; i < n; i++)
        TSRI_TRY(time_one(t, &r[i], &ms[i]));
    *out_best = first_of_the_fast(n, ms);
    return TSR_OK;
}

/* Where there is no memory for it, the heuristics' choice stands. */
static tsr_status tune(const tsri_lt_call *k, bool bias, int n,
                       const cublasLtMatmulHeuristicResult_t *r, int *out_best)
{
    bench t = {.k = k};
    tsr_status status = measure(&t, bias, n, r, out_best);
    close_bench(&t);
    if (status == TSR_ERR_NO_MEMORY) {
        tsri_error_clear();
        return TSR_OK;
    }
    return status;
}

tsr_status tsri_lt_choose(tsri_lt_call *k, bool bias, bool *out_found)
{
    cublasLtMatmulHeuristicResult_t results[CANDIDATES] = {0};
    bool tunes = wants_tuning();
    int n, best = 0;
    *out_found = false;
    TSRI_TRY(ask(k, tunes ? CANDIDATES : 1, results, &n));
    if (!n)
        return TSR_OK;
    if (tunes && n > 1)
        TSRI_TRY(tune(k, bias, n, results, &best));
    k->algo = results[best].algo;
    k->workspace = results[best].workspaceSize;
    *out_found = true;
    return TSR_OK;
}
