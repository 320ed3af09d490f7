/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention and its gradient by products, a block of scores at a time: q k^T goes into scratch,
 * attention.cu makes weights of it, and further products take those. The gradient makes its scores
 * again, so nothing but y and lse lasts from forward to backward.
 *
 * A block has some heads, some queries of each, and the keys that these see: under a causal mask
 * about half of all scores are computed. The scratch does not grow with the number of scores: a
 * matrix of them has 32 MiB, which stays in the L2 cache of an H100 (50 MB) until the next kernel
 * reads it, and gives each of its 132 processors four tiles of 128 x 128 scores to make.
 */
#include "kernels/cuda/library/attention.h"
#include "kernels/cuda/library/lt.h"

#include <stdlib.h>
#include <string.h>

/* The products of a block. Forward makes the first two, backward all but the second. */
enum { SCORES, VALUES, SLOPES, DV, DK, DQ, CALLS };
/* Queries of a block: no fewer, a multiple of these where there are more. Keys under a causal mask:
 * a multiple of the last number, or an eighth of all. */
enum { LEAST_ROWS = 16, TILE = 64, CAUSAL_KEYS = 256, MOST_SHAPES = 24 };
static const int64_t most_scores = (int64_t)32 << 20;

/* An operand's matrices: the loop over `outer` makes one launch each, a launch goes over some of
 * `inner`. */
typedef struct operand {
    int64_t outer, inner, row, col; /* steps, in elements */
    bool by_query;
} operand;

enum { Q, K, V, Y, DY, TO_Q, TO_K, TO_V, OPERANDS };

/* The products of blocks of one shape. */
typedef struct block_shape {
    int64_t rows, keys;
    tsri_lt_call call[CALLS];
} block_shape;

typedef struct lt_attention {
    tsri_cuda_kernel base;
    bool back, masked;
    int64_t outer, inner, heads; /* heads: of inner that a block has, a divisor of it */
    int64_t s, t, d, e, ahead, rows, step_keys;
    operand of[OPERANDS];
    /* Block i of the inner loop and o of the outer one begins at head o outer_number + i
     * inner_number, counted over all samples. */
    int64_t outer_number, inner_number;
    tsri_scores scores; /* what all blocks share */
    bool sums;          /* halves, in several blocks: dk and dv are summed in f32, in scratch */
    bool finite; /* dq is a product with keys without infinities and NaN, copied to scratch */
    size_t at_slopes, at_dk, at_dv, at_keys, at_workspace; /* offsets in scratch */
    int nshapes;
    block_shape shape[MOST_SHAPES];
} lt_attention;

static int64_t ceil_to(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* --- blocks ----------------------------------------------------------------------------------- */
static int64_t count_blocks(const lt_attention *a)
{
    return (a->s + a->rows - 1) / a->rows;
}

static int64_t rows_of(const lt_attention *a, int64_t block)
{
    const int64_t left = a->s - block * a->rows;
    return left < a->rows ? left : a->rows;
}

/* The keys of a block: that any of its queries sees. The gradient's last block has all, as it is
 * the first to be computed and writes dk and dv of each key. */
static int64_t keys_of(const lt_attention *a, int64_t block)
{
    const int64_t last = block * a->rows + rows_of(a, block) - 1;
    int64_t n = ceil_to(last + a->ahead + 1, a->step_keys);
    if (n < a->step_keys)
        n = a->step_keys;
    return n > a->t || (a->back && block == count_blocks(a) - 1) ? a->t : n;
}

/* The shape of a block; NULL: no block so far has it. */
static const block_shape *shape_of(const lt_attention *a, int64_t block)
{
    const int64_t rows = rows_of(a, block), keys = keys_of(a, block);
    for (int i = 0; i < a->nshapes; i++)
        if (a->shape[i].rows == rows && a->shape[i].keys == keys)
            return &a->shape[i];
    return NULL;
}

/* Bytes of a score. */
static size_t score_bytes(const lt_attention *a)
{
    return a->scores.dtype == TSR_F64 ? 8 : 4;
}

tsr_status tsri_scores_cap(int64_t *out_bytes)
{
    const char *text = getenv("TESSERA_CUDA_SCORES");
    *out_bytes = most_scores;
    if (!text || !*text)
        return TSR_OK;
    char *end;
    *out_bytes = strtoll(text, &end, 10);
    return *end || *out_bytes <= 0
               ? tsri_fail(TSR_ERR_INVALID,
                           "TESSERA_CUDA_SCORES is '%s': expected a number of bytes", text)
               : TSR_OK;
}

static void cut_blocks(lt_attention *a, bool causal, int64_t cap)
{
    const int64_t row = tsri_scores_pitch(a->t) * (int64_t)score_bytes(a);
    const int64_t eighth = (a->t + 7) / 8;
    a->step_keys = causal ? ceil_to(eighth, CAUSAL_KEYS) : a->t;
    a->rows = cap / row;
    if (causal && a->rows > a->step_keys)
        a->rows = a->step_keys;
    a->rows -= a->rows % (a->rows > TILE ? TILE : LEAST_ROWS);
    if (a->rows < LEAST_ROWS)
        a->rows = LEAST_ROWS;
    if (a->rows > a->s)
        a->rows = a->s;
    for (a->heads = a->inner; a->heads > 1; a->heads--)
        if (a->inner % a->heads == 0 && a->heads * a->rows * row <= cap)
            break;
}

/* --- operands --------------------------------------------------------------------------------- */
/* Whether the heads of all samples of an operand are one after the other. */
static bool is_joined(const tsri_arg *x)
{
    return x->stride[0] == x->shape[1] * x->stride[1];
}

/* One loop over the heads of all samples where the operands allow it; else the longer of the two
 * axes is within a launch. */
static void nest(lt_attention *a, int n, const tsri_arg *const *args)
{
    const int64_t samples = args[0]->shape[0], heads = args[0]->shape[1];
    bool joined = samples > 1 && heads > 1;
    for (int i = 0; i < n; i++)
        joined = joined && is_joined(args[i]);
    const bool by_head = joined || samples == 1 || (heads > 1 && heads >= samples);
    a->inner = joined ? samples * heads : by_head ? heads : samples;
    a->outer = samples * heads / a->inner;
    a->inner_number = by_head ? 1 : heads;
    a->outer_number = by_head ? heads : 1;
    for (int i = 0; i < n; i++) {
        operand *o = &a->of[i];
        const int64_t *step = args[i]->stride;
        *o = (operand){step[by_head ? 0 : 1], step[by_head ? 1 : 0], step[2], step[3],
                       i != K && i != V && i != TO_K && i != TO_V};
    }
}

static tsri_matrices matrices(const tsri_arg *x, bool broadcasts)
{
    tsri_matrices m = {0};
    for (int i = 0; i < x->ndim; i++)
        m.step[i] = broadcasts && x->shape[i] == 1 ? 0 : x->stride[i];
    return m;
}

/* The element at which a block of an operand begins. */
static int64_t begin_of(const lt_attention *a, int which, int64_t outer, int64_t inner,
                        int64_t block)
{
    const operand *o = &a->of[which];
    return outer * o->outer + inner * o->inner + (o->by_query ? block * a->rows * o->row : 0);
}

/* The bytes to which blocks of an operand are aligned, at most what buffers are. */
static uint32_t alignment_of(const lt_attention *a, int which)
{
    const operand *o = &a->of[which];
    int64_t offsets = TSRI_LT_ALIGNMENT;
    const int64_t size = (int64_t)tsr_dtype_size(a->scores.dtype);
    if (a->outer > 1)
        offsets |= o->outer * size;
    if (a->inner > a->heads)
        offsets |= a->heads * o->inner * size;
    if (o->by_query && count_blocks(a) > 1)
        offsets |= a->rows * o->row * size;
    return (uint32_t)(offsets & -offsets);
}

/* --- products --------------------------------------------------------------------------------- */
/* One side of a product: steps and alignment. */
typedef struct side {
    tsri_lt_steps steps;
    uint32_t alignment;
} side;

static side side_of(const lt_attention *a, int which, bool transposed)
{
    const operand *o = &a->of[which];
    return (side){{transposed ? o->col : o->row, transposed ? o->row : o->col, o->inner},
                  alignment_of(a, which)};
}

/* A block in scratch, of numbers as long as scores, or of weights, which lie in their places. */
static side block_side(const lt_attention *a, const block_shape *s, bool weights, bool transposed)
{
    const int64_t size = (int64_t)tsr_dtype_size(a->scores.dtype);
    const int64_t row = tsri_scores_pitch(s->keys) * (weights ? (int64_t)score_bytes(a) / size : 1);
    return (side){{transposed ? 1 : row, transposed ? row : 1, s->rows * row}, TSRI_LT_ALIGNMENT};
}

/* Matrices (rows,cols) in scratch, one after the other. */
static side dense_side(int64_t rows, int64_t cols, bool transposed)
{
    return (side){{transposed ? 1 : cols, transposed ? cols : 1, rows * cols}, TSRI_LT_ALIGNMENT};
}

static tsr_status make_call(const lt_attention *a, tsri_lt_call *call, const int64_t *mnk, side x,
                            side y, side to, tsr_dtype result, bool *out_found)
{
    *call = (tsri_lt_call){.device = a->base.device,
                           .stream = a->base.stream,
                           .product = {.of_a = 0,
                                       .of_b = 1,
                                       .m = mnk[0],
                                       .n = mnk[1],
                                       .k = mnk[2],
                                       .batch = a->heads,
                                       .a = x.steps,
                                       .b = y.steps,
                                       .c = to.steps},
                           .dtype = a->scores.dtype,
                           .result = result,
                           .tf32 = a->base.device->tf32,
                           .alpha = 1,
                           .alignment = {x.alignment, y.alignment, to.alignment}};
    return tsri_lt_make(call, out_found);
}

static tsr_status make_calls(const lt_attention *a, block_shape *s, bool *out_found)
{
    const tsr_dtype type = a->scores.dtype, wide = type == TSR_F64 ? TSR_F64 : TSR_F32;
    const int64_t rows = s->rows, keys = s->keys;
    const side block = block_side(a, s, false, false), weights = block_side(a, s, true, false);
    const side across = block_side(a, s, true, true);
    const side dk = a->sums ? dense_side(a->t, a->d, false) : side_of(a, TO_K, false);
    const side dv = a->sums ? dense_side(a->t, a->e, false) : side_of(a, TO_V, false);
    const side k = a->finite ? dense_side(a->t, a->d, true) : side_of(a, K, true);
    const tsr_dtype sum = a->sums ? TSR_F32 : type;
    const struct {
        bool back, forward;
        int64_t mnk[3];
        side a, b, c;
        tsr_dtype result;
    } all[CALLS] = {
        [SCORES] = {true,
                    true,
                    {rows, keys, a->d},
                    side_of(a, Q, false),
                    side_of(a, K, false),
                    block,
                    wide},
        [VALUES] = {false,
                    true,
                    {rows, a->e, keys},
                    weights,
                    side_of(a, V, true),
                    side_of(a, Y, false),
                    type},
        [SLOPES] = {true,
                    false,
                    {rows, keys, a->e},
                    side_of(a, DY, false),
                    side_of(a, V, false),
                    block,
                    wide},
        [DV] = {true, false, {keys, a->e, rows}, across, side_of(a, DY, true), dv, sum},
        [DK] = {true, false, {keys, a->d, rows}, across, side_of(a, Q, true), dk, sum},
        [DQ] = {true, false, {rows, a->d, keys}, weights, k, side_of(a, TO_Q, false), type},
    };
    *out_found = true;
    for (int i = 0; i < CALLS && *out_found; i++)
        if (a->back ? all[i].back : all[i].forward)
            TSRI_TRY(make_call(a, &s->call[i], all[i].mnk, all[i].a, all[i].b, all[i].c,
                               all[i].result, out_found));
    s->call[SCORES].alpha = s->call[DK].alpha = s->call[DQ].alpha = a->base.attrs.attention.scale;
    return TSR_OK;
}

/* Makes the products of all blocks, and lays out the scratch. */
static tsr_status make_blocks(lt_attention *a, bool *out_found)
{
    size_t workspace = 0, at = 0;
    *out_found = true;
    for (int64_t b = 0; b < count_blocks(a); b++) {
        if (shape_of(a, b))
            continue;
        if (a->nshapes == MOST_SHAPES) {
            *out_found = false;
            return TSR_OK;
        }
        block_shape *s = &a->shape[a->nshapes++];
        s->rows = rows_of(a, b);
        s->keys = keys_of(a, b);
        TSRI_TRY(make_calls(a, s, out_found));
        if (!*out_found)
            return TSR_OK;
        for (int i = 0; i < CALLS; i++)
            if (s->call[i].workspace > workspace)
                workspace = s->call[i].workspace;
    }
    const int64_t pitch = tsri_scores_pitch(a->t), size = (int64_t)tsr_dtype_size(a->scores.dtype);
    const size_t block =
        tsri_workspace_aligned((size_t)(a->heads * a->rows * pitch) * score_bytes(a));
    const struct {
        size_t *at, bytes;
    } parts[] = {
        {&a->at_slopes, a->back ? block : 0},
        {&a->at_dk, a->sums ? (size_t)(a->heads * a->t * a->d) * sizeof(float) : 0},
        {&a->at_dv, a->sums ? (size_t)(a->heads * a->t * a->e) * sizeof(float) : 0},
        {&a->at_keys, a->finite ? (size_t)(a->heads * a->t * a->d * size) : 0},
        {&a->at_workspace, workspace},
    };
    at = block;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].at = at;
        at += tsri_workspace_aligned(parts[i].bytes);
    }
    a->base.base.scratch_bytes = tsri_workspace_scratch(at);
    return TSR_OK;
}

/* --- running ---------------------------------------------------------------------------------- */
/* The buffers of a run; those that are not there are NULL. */
typedef struct buffers {
    void *of[OPERANDS];
    char *scratch;
} buffers;

/* Where the loops are. */
typedef struct spot {
    int64_t outer, inner, block;
} spot;

static void *block_at(const lt_attention *a, const buffers *b, int which, const spot *at)
{
    char *p = b->of[which];
    return p ? p + begin_of(a, which, at->outer, at->inner, at->block) *
                       (int64_t)tsr_dtype_size(a->scores.dtype)
             : NULL;
}

/* A block's heads, rows and keys. */
static tsri_scores scores_at(const lt_attention *a, const buffers *b, const block_shape *s,
                             const spot *at)
{
    tsri_scores v = a->scores;
    v.heads = a->heads;
    v.rows = s->rows;
    v.keys = s->keys;
    v.pitch = tsri_scores_pitch(s->keys);
    v.first = at->block * a->rows;
    v.number = at->outer * a->outer_number + at->inner * a->inner_number;
    v.scores = b->scratch;
    v.slopes = b->scratch + a->at_slopes;
    return v;
}

static tsr_status multiply(const lt_attention *a, const buffers *b, const block_shape *s, int call,
                           double beta, const void *x, const void *y, void *to)
{
    if (!to)
        return TSR_OK;
    tsri_lt_call c = s->call[call];
    c.beta = beta;
    return tsri_lt_run(&c, (const void *const[]){x, y}, to, b->scratch + a->at_workspace);
}

static tsr_status forward_block(const lt_attention *a, const buffers *b, tsri_scores shared,
                                const spot *at)
{
    const block_shape *s = shape_of(a, at->block);
    tsri_scores v = scores_at(a, b, s, at);
    v.mask.at = shared.mask.at;
    v.lse.at = shared.lse.at;
    TSRI_TRY(multiply(a, b, s, SCORES, 0, block_at(a, b, Q, at), block_at(a, b, K, at), v.scores));
    tsri_scores_forward(&v, a->base.stream);
    return multiply(a, b, s, VALUES, 0, v.scores, block_at(a, b, V, at), block_at(a, b, Y, at));
}

static tsr_status backward_block(const lt_attention *a, const buffers *b, tsri_scores shared,
                                 const spot *at)
{
    const block_shape *s = shape_of(a, at->block);
    const void *q = block_at(a, b, Q, at), *k = block_at(a, b, K, at), *dy = block_at(a, b, DY, at);
    void *dk = a->sums ? b->scratch + a->at_dk : block_at(a, b, TO_K, at);
    void *dv = a->sums ? b->scratch + a->at_dv : block_at(a, b, TO_V, at);
    const double keep = at->block < count_blocks(a) - 1;
    tsri_scores v = scores_at(a, b, s, at);
    v.mask.at = shared.mask.at;
    v.lse.at = shared.lse.at;
    v.y.at = shared.y.at;
    v.dy.at = shared.dy.at;
    TSRI_TRY(multiply(a, b, s, SCORES, 0, q, k, v.scores));
    TSRI_TRY(multiply(a, b, s, SLOPES, 0, dy, block_at(a, b, V, at), v.slopes));
    tsri_scores_backward(&v, a->base.stream);
    TSRI_TRY(multiply(a, b, s, DV, keep, v.scores, dy, dv));
    TSRI_TRY(multiply(a, b, s, DK, keep, v.slopes, q, dk));
    return multiply(a, b, s, DQ, 0, v.slopes, a->finite ? b->scratch + a->at_keys : k,
                    block_at(a, b, TO_Q, at));
}

/* Copies between an operand and dense matrices in scratch. */
static void copy(const lt_attention *a, const buffers *b, int which, const spot *at, size_t scratch,
                 int64_t cols, bool out)
{
    const operand *o = &a->of[which];
    void *there = block_at(a, b, which, at), *here = b->scratch + scratch;
    if (!there)
        return;
    const int64_t steps[2][4] = {{0, o->inner, o->row, o->col}, {0, a->t * cols, cols, 1}};
    tsri_rows_copy c = {.from = out ? TSR_F32 : a->scores.dtype,
                        .to = a->scores.dtype,
                        .heads = a->heads,
                        .rows = a->t,
                        .cols = cols,
                        .src = out ? here : there,
                        .dst = out ? there : here,
                        .only_finite = !out};
    memcpy(c.src_step, steps[out], sizeof c.src_step);
    memcpy(c.dst_step, steps[!out], sizeof c.dst_step);
    tsri_scores_copy(&c, a->base.stream);
}

static tsr_status run(const lt_attention *a, const buffers *b, const tsri_scores *shared)
{
    spot at;
    for (at.outer = 0; at.outer < a->outer; at.outer++)
        for (at.inner = 0; at.inner < a->inner; at.inner += a->heads) {
            if (a->finite)
                copy(a, b, K, &at, a->at_keys, a->d, false);
            for (at.block = count_blocks(a) - 1; at.block >= 0; at.block--)
                TSRI_TRY((a->back ? backward_block : forward_block)(a, b, *shared, &at));
            if (a->sums) {
                copy(a, b, TO_K, &at, a->at_dk, a->d, true);
                copy(a, b, TO_V, &at, a->at_dv, a->e, true);
            }
        }
    return tsri_cuda_launched(&a->base);
}

static tsr_status attention_run(const tsri_cuda_kernel *base, void *const *in, void *const *out,
                                void *scratch)
{
    const lt_attention *a = (const lt_attention *)base;
    void *const *more = in + 3 + a->masked;
    buffers b = {.of = {in[0], in[1], in[2]}, .scratch = tsri_workspace_in(scratch)};
    tsri_scores shared = {.mask.at = a->masked ? in[3] : NULL};
    b.of[Y] = a->back ? more[0] : out[0];
    shared.lse.at = a->back ? more[1] : out[1];
    if (a->back) {
        b.of[DY] = more[2];
        for (int i = 0; i < 3; i++)
            b.of[TO_Q + i] = out[i];
    }
    shared.y.at = b.of[Y];
    shared.dy.at = b.of[DY];
    return run(a, &b, &shared);
}

/* --- kernels ---------------------------------------------------------------------------------- */
static void attention_finish(tsri_cuda_kernel *base)
{
    lt_attention *a = (lt_attention *)base;
    for (int i = 0; i < a->nshapes; i++)
        for (int c = 0; c < CALLS; c++)
            tsri_lt_finish(&a->shape[i].call[c]);
}

/* Floats of one dtype, but lse in f64, and elements in all of them. */
static bool takes(const tsri_kernel_desc *d, bool back)
{
    const int lse = back ? d->nin - 2 : d->nin + 1;
    bool is = d->stream && tsri_cuda_is_float(d->in[0].dtype);
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *x = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        is = is && tsri_cuda_count(x) > 0 && x->dtype == (i == lse ? TSR_F64 : d->in[0].dtype);
    }
    return is;
}

static void describe(lt_attention *a, const tsri_kernel_desc *d, int64_t cap)
{
    const tsri_arg *more = &d->in[3 + a->masked], *lse = a->back ? &more[1] : &d->out[1];
    const tsri_arg *args[OPERANDS] = {&d->in[0], &d->in[1], &d->in[2], a->back ? more : &d->out[0]};
    const bool causal = d->attrs->attention.causal;
    int n = DY;
    if (a->back) {
        args[n++] = &more[2];
        for (int i = 0; i < 3; i++)
            args[n++] = &d->out[i];
    }
    a->s = d->in[0].shape[2];
    a->d = d->in[0].shape[3];
    a->t = d->in[1].shape[2];
    a->e = d->in[2].shape[3];
    a->ahead = causal ? d->in[0].offset[2] - d->in[1].offset[2] : a->t;
    nest(a, n, args);
    a->scores = (tsri_scores){.dtype = d->in[0].dtype,
                              .number_step = a->inner_number,
                              .of_sample = d->in[0].shape[1],
                              .ahead = a->ahead,
                              .lse = matrices(lse, false),
                              .y = matrices(args[Y], false),
                              .features = a->e};
    if (a->masked)
        a->scores.mask = matrices(&d->in[3], true);
    if (a->back)
        a->scores.dy = matrices(args[DY], false);
    cut_blocks(a, causal, cap);
    const bool half = a->scores.dtype == TSR_F16 || a->scores.dtype == TSR_BF16;
    a->sums = a->back && half && count_blocks(a) > 1;
    a->finite = a->back && (causal || a->masked);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool back = d->op == TSRI_OP_FLASH_ATTENTION_DX;
    int64_t cap;
    if (!takes(d, back))
        return tsri_cuda_decline(d);
    TSRI_TRY(tsri_scores_cap(&cap));
    lt_attention *a = tsri_cuda_make(mem, d, attention_run, "cublaslt", sizeof *a);
    TSRI_NEED(a);
    bool found = false;
    a->base.finish = attention_finish;
    a->back = back;
    a->masked = d->attrs->attention.has_mask;
    describe(a, d, cap);
    tsr_status status = make_blocks(a, &found);
    if (status == TSR_OK && !found)
        status = tsri_cuda_decline(d);
    if (status == TSR_OK)
        *out_kernel = &a->base.base;
    else
        a->base.base.destroy(&a->base.base);
    return status;
}

tsr_status tsri_lt_flash_attention(tsri_mem *mem, const tsri_kernel_desc *d,
                                   tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}

tsr_status tsri_lt_flash_attention_dx(tsri_mem *mem, const tsri_kernel_desc *d,
                                      tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}
