/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of f16 and bf16 and its gradient by cuDNN's fused engines, which hold no scores: with a
 * causal mask or none, where queries and keys begin at the same place, so that each query sees a
 * key. cuBLASLt's products take the other cases: operands whose features do not lie one after the
 * other or are not a multiple of 8, masks as operands, shards of queries or keys.
 *
 * Where results must repeat (TESSERA_CUDA_DETERMINISTIC, the default), the gradient's engine keeps
 * the slopes of the scores, in halves, in its workspace, and multiplies them with the keys in a
 * second pass. The work is then cut into parts of some heads, whose slopes have the bytes that the
 * scores of products have, and stay in a large GPU's cache until they are read. Elsewhere dq is
 * summed by additions in any order in a matrix of f32.
 *
 * cuDNN's logarithms of sums are f32 and the graph's f64, so they are converted. In the gradient of
 * the causal case the products are with keys without NaN: the weight of a hidden key is 0, and 0
 * NaN would be NaN. A query that sees the NaN has a lse of NaN, so its gradient is NaN all the
 * same.
 */
#include "kernels/cuda/library/attention.h"
#include "kernels/cuda/library/dnn.h"
#include "kernels/cuda/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Features, and steps, are multiples of GRAIN. */
enum { GRAIN = 8, MOST_FEATURES = 128, MOST_FEATURES_HOPPER = 256, TILE = 128 };
/* NVIDIA's own front end works around a wrong gradient of cuDNN up to 9.15.0, where the number of
 * keys is no multiple of 128. */
enum { AFTER_VERSION = 91500 };

typedef struct attention {
    tsri_cuda_kernel kernel;
    const tsri_dnn_plan *plan;
    tsri_dnn_attention shape;          /* of a part */
    int64_t samples, heads;            /* of all */
    int64_t part_samples, part_heads;  /* of a part: divisors of these */
    int64_t clean_samples;             /* whose keys are copied at a time; 0: none are */
    tsri_rows_copy lse;                /* of a part: f64 to f32, or back */
    int64_t lse_step[2];               /* of the op's: from sample to sample, from head to head */
    size_t at_keys, at_sum, at_dq_sum; /* in scratch, behind the f32 lse */
    size_t at_work;
} attention;

/* --- running ---------------------------------------------------------------------------------- */
/* The buffers of a run. `of`: by name in the graph; NULL: the graph has none. */
typedef struct buffers {
    char *of[TSRI_DNN_OPERANDS];
    char *keys;            /* the op's; those of the graph may be a copy */
    int64_t first_of_keys; /* the sample with which the graph's keys begin */
    double *lse;           /* the op's */
    void *work;
} buffers;

/* Converts a part's logarithms: the op's for the graph of the gradient, the graph's for the op. */
static void convert_lse(const attention *a, const buffers *b, int64_t sample, int64_t head)
{
    tsri_rows_copy c = a->lse;
    double *ours = b->lse + sample * a->lse_step[0] + head * a->lse_step[1];
    void *dense = b->of[TSRI_DNN_STATS];
    c.src = a->shape.back ? (void *)ours : dense;
    c.dst = a->shape.back ? dense : (void *)ours;
    tsri_scores_copy(&c, a->kernel.stream);
}

/* Copies the keys of the samples from this one on, if a copy begins with this head. */
static void clean_keys(const attention *a, buffers *b, int64_t sample, int64_t head)
{
    if (!a->clean_samples || sample % a->clean_samples || head)
        return;
    const int64_t count = tsri_cuda_count(&a->kernel.desc.in[1]) / a->samples * a->clean_samples;
    b->first_of_keys = sample;
    tsri_halves_without_nan((tsr_dtype)a->shape.dtype, count,
                            b->keys + sample * a->shape.steps[TSRI_DNN_K][0] * 2, b->of[TSRI_DNN_K],
                            a->kernel.stream);
}

/* Returns where a part of an operand begins. Parts use the same scratch. */
static void *part_of(const attention *a, const buffers *b, int which, int64_t sample, int64_t head)
{
    const int64_t *step = a->shape.steps[which];
    if (tsri_dnn_is_f32(which))
        return b->of[which];
    if (which == TSRI_DNN_K)
        sample -= b->first_of_keys;
    return b->of[which] + (sample * step[0] + head * step[1]) * 2;
}

static tsr_status execute_part(const attention *a, cudnnHandle_t handle, const buffers *b,
                               int64_t sample, int64_t head)
{
    float scale = (float)a->kernel.attrs.attention.scale, hidden = -INFINITY, one = 1;
    int64_t uids[TSRI_DNN_SCALARS_END];
    void *pointers[TSRI_DNN_SCALARS_END] = {[TSRI_DNN_SCALE] = &scale};
    int n = 0;
    for (int i = 0; i < TSRI_DNN_OPERANDS; i++)
        if (b->of[i])
            pointers[i] = part_of(a, b, i, sample, head);
    if (a->shape.causal)
        pointers[TSRI_DNN_HIDDEN] = &hidden;
    if (a->shape.back)
        pointers[TSRI_DNN_ONE] = &one;
    for (int i = 0; i < TSRI_DNN_SCALARS_END; i++)
        if (pointers[i]) {
            uids[n] = i;
            pointers[n++] = pointers[i];
        }
    return tsri_dnn_execute_all(handle, a->plan, n, uids, pointers, b->work);
}

/* Does the part that begins with this head of this sample. */
static tsr_status run_part(const attention *a, cudnnHandle_t handle, buffers *b, int64_t sample,
                           int64_t head)
{
    if (a->shape.back)
        convert_lse(a, b, sample, head);
    clean_keys(a, b, sample, head);
    TSRI_TRY(execute_part(a, handle, b, sample, head));
    if (!a->shape.back)
        convert_lse(a, b, sample, head);
    return TSR_OK;
}

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const attention *a = (const attention *)k;
    const bool back = a->shape.back;
    char *room = tsri_workspace_in(scratch);
    buffers b = {.of = {[TSRI_DNN_Q] = in[0], [TSRI_DNN_K] = in[1], [TSRI_DNN_V] = in[2]},
                 .keys = in[1],
                 .lse = back ? in[4] : out[1],
                 .work = room + a->at_work};
    cudnnHandle_t handle;
    b.of[TSRI_DNN_STATS] = room;
    b.of[TSRI_DNN_O] = back ? in[3] : out[0];
    if (back) {
        b.of[TSRI_DNN_DO] = in[5];
        for (int i = 0; i < 3; i++)
            b.of[TSRI_DNN_DQ + i] = out[i];
        b.of[TSRI_DNN_SUM] = room + a->at_sum;
    }
    if (a->shape.dq_sum)
        b.of[TSRI_DNN_DQ_SUM] = room + a->at_dq_sum;
    if (a->clean_samples)
        b.of[TSRI_DNN_K] = room + a->at_keys;
    TSRI_TRY(tsri_dnn_handle(k->device, k->stream, &handle));
    for (int64_t i = 0; i < a->samples; i += a->part_samples)
        for (int64_t j = 0; j < a->heads; j += a->part_heads)
            TSRI_TRY(run_part(a, handle, &b, i, j));
    return tsri_cuda_launched(k);
}

/* --- what is taken ---------------------------------------------------------------------------- */
static bool is_off(void)
{
    const char *text = getenv("TESSERA_CUDA_FUSED_ATTENTION");
    return (text && !strcmp(text, "0")) || cudnnGetVersion() <= AFTER_VERSION;
}

/* A matrix that cuDNN takes: halves whose features are one after the other. */
static bool takes_matrix(const tsri_arg *x, tsr_dtype dtype, int64_t most_features)
{
    bool is = x->dtype == dtype && x->stride[3] == 1 && x->shape[3] % GRAIN == 0 &&
              x->shape[3] <= most_features && tsri_cuda_count(x) > 0;
    for (int i = 0; i < 3; i++)
        is = is && x->stride[i] % GRAIN == 0;
    return is;
}

/* On GPUs after Hopper the gradient with its slopes in the workspace does not repeat by itself. One
 * score for each head is a gradient that NVIDIA's front end refuses. */
static bool takes_gradient(const tsri_kernel_desc *d, const tsri_cuda_device *device)
{
    return !(device->deterministic && device->traits.major > 9) &&
           (d->in[0].shape[2] > 1 || d->in[1].shape[2] > 1);
}

static bool takes(const tsri_kernel_desc *d, const tsri_cuda_device *device)
{
    const tsr_dtype dtype = d->in[0].dtype;
    const int64_t most = device->traits.major == 9 ? MOST_FEATURES_HOPPER : MOST_FEATURES;
    const int lse = 4; /* among the operands, or behind them: (q, k, v, y, lse, dy) */
    bool is = (dtype == TSR_F16 || dtype == TSR_BF16) && !d->attrs->attention.has_mask &&
              (d->op == TSRI_OP_FLASH_ATTENTION || takes_gradient(d, device));
    if (is && d->attrs->attention.causal)
        is = d->in[0].offset[2] == d->in[1].offset[2];
    for (int i = 0; is && i < d->nin + d->nout; i++) {
        const tsri_arg *x = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        is = i == lse ? x->dtype == TSR_F64 : takes_matrix(x, dtype, most);
    }
    return is;
}

/* --- making ----------------------------------------------------------------------------------- */
static void set_matrix(tsri_dnn_attention *s, int which, const tsri_arg *x)
{
    for (int i = 0; i < 4; i++) {
        s->dims[which][i] = x->shape[i];
        s->steps[which][i] = x->stride[i];
    }
}

/* f32 in scratch, row-major. */
static void set_dense(tsri_dnn_attention *s, int which, int64_t cols)
{
    const int64_t *q = s->dims[TSRI_DNN_Q];
    const int64_t dims[4] = {q[0], q[1], q[2], cols};
    int64_t step = 1;
    for (int i = 3; i >= 0; i--) {
        s->dims[which][i] = dims[i];
        s->steps[which][i] = step;
        step *= dims[i];
    }
}

/* The largest divisor of n that `most` allows; 1 if none does. */
static int64_t divisor_of(int64_t n, int64_t most)
{
    int64_t d = n < most ? n : most > 1 ? most : 1;
    while (n % d)
        d--;
    return d;
}

/* Cuts the work into parts, of which each needs `cap` bytes for slopes or sums, or is of one head.
 */
static void cut(attention *a, int64_t cap)
{
    tsri_dnn_attention *s = &a->shape;
    const int64_t *q = s->dims[TSRI_DNN_Q], t = s->dims[TSRI_DNN_K][2];
    const int64_t slopes = (q[2] + TILE - 1) / TILE * TILE * ((t + TILE - 1) / TILE * TILE) * 2;
    const int64_t each = s->dq_sum ? q[2] * q[3] * (int64_t)sizeof(float) : slopes;
    a->part_samples = a->samples = q[0];
    a->part_heads = a->heads = q[1];
    if (!s->back)
        return;
    a->part_samples = divisor_of(a->samples, cap / (each * a->heads));
    if (a->part_samples == 1)
        a->part_heads = divisor_of(a->heads, cap / each);
    for (int i = TSRI_DNN_Q; i < TSRI_DNN_OPERANDS; i++)
        if (s->dims[i][0]) {
            s->dims[i][0] = a->part_samples;
            s->dims[i][1] = a->part_heads;
        }
}

static void describe_lse(attention *a, const tsri_arg *lse)
{
    const bool back = a->shape.back;
    a->lse = (tsri_rows_copy){.from = back ? TSR_F64 : TSR_F32,
                              .to = back ? TSR_F32 : TSR_F64,
                              .heads = a->part_samples,
                              .rows = a->part_heads,
                              .cols = lse->shape[2]};
    memcpy(a->lse_step, lse->stride, sizeof a->lse_step);
    for (int i = 0; i < 3; i++) {
        const int64_t ours = lse->stride[i], dense = a->shape.steps[TSRI_DNN_STATS][i];
        a->lse.src_step[i + 1] = back ? ours : dense;
        a->lse.dst_step[i + 1] = back ? dense : ours;
    }
}

static void describe(attention *a, const tsri_kernel_desc *d, int64_t cap)
{
    tsri_dnn_attention *s = &a->shape;
    s->dtype = d->in[0].dtype;
    s->back = d->op == TSRI_OP_FLASH_ATTENTION_DX;
    s->causal = d->attrs->attention.causal != 0;
    s->dq_sum = s->back && !a->kernel.device->deterministic;
    for (int i = 0; i < 3; i++) {
        set_matrix(s, TSRI_DNN_Q + i, &d->in[i]);
        if (s->back)
            set_matrix(s, TSRI_DNN_DQ + i, &d->out[i]);
    }
    set_matrix(s, TSRI_DNN_O, s->back ? &d->in[3] : &d->out[0]);
    if (s->back)
        set_matrix(s, TSRI_DNN_DO, &d->in[5]);
    cut(a, cap);
    /* Samples that are one after the other are copied part by part. */
    if (s->back && s->causal)
        a->clean_samples = s->steps[TSRI_DNN_K][0] * a->samples == tsri_cuda_count(&d->in[1])
                               ? a->part_samples
                               : a->samples;
    set_dense(s, TSRI_DNN_STATS, 1);
    if (s->back)
        set_dense(s, TSRI_DNN_SUM, 1);
    if (s->dq_sum)
        set_dense(s, TSRI_DNN_DQ_SUM, s->dims[TSRI_DNN_Q][3]);
    describe_lse(a, s->back ? &d->in[4] : &d->out[1]);
}

/* Lays out the scratch. */
static void place(attention *a, const tsri_kernel_desc *d)
{
    const int64_t *q = a->shape.dims[TSRI_DNN_Q], rows = q[0] * q[1] * q[2];
    const struct {
        size_t *at;
        int64_t bytes;
    } parts[] = {
        {&a->at_keys, rows * (int64_t)sizeof(float)},
        {&a->at_sum, tsri_cuda_count(&d->in[1]) / a->samples * a->clean_samples * 2},
        {&a->at_dq_sum, a->shape.back ? rows * (int64_t)sizeof(float) : 0},
        {&a->at_work, a->shape.dq_sum ? rows * q[3] * (int64_t)sizeof(float) : 0},
    };
    size_t at = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at += tsri_workspace_aligned((size_t)parts[i].bytes);
        *parts[i].at = at;
    }
    a->kernel.base.scratch_bytes = tsri_workspace_scratch(a->at_work + a->plan->workspace);
}

tsr_status tsri_dnn_flash_attention(tsri_mem *mem, const tsri_kernel_desc *d,
                                    tsri_kernel **out_kernel)
{
    int64_t cap;
    if (!d->stream || is_off() || !takes(d, d->stream->device))
        return tsri_cuda_decline(d);
    TSRI_TRY(tsri_scores_cap(&cap));
    attention *a = tsri_cuda_make(mem, d, run, "cudnn-attention", sizeof *a);
    TSRI_NEED(a);
    describe(a, d, cap);
    tsr_status status = tsri_dnn_find_attention(a->kernel.device, &a->shape, &a->plan);
    if (status != TSR_OK) {
        tsri_mem_free(a);
        return status;
    }
    place(a, d);
    *out_kernel = &a->kernel.base;
    return TSR_OK;
}
