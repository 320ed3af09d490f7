/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast kernels: f32, channels-last images or flat buffers, vectorised and threaded; products
 * and recurrent layers take f64 too. Each declines what it does not take. Sums over threads' parts
 * are combined in a fixed order, so that results depend on shapes and the number of threads alone.
 */
#ifndef TESSERA_KERNELS_CPU_FAST_H
#define TESSERA_KERNELS_CPU_FAST_H

#include "kernels/cpu/fast/isa.h"
#include "kernels/cpu/team/team.h"
#include "kernels/kernels.h"

typedef struct tsri_fast tsri_fast;

/* One part of a kernel's work: items [begin, end) of `total` elements, and what it was given. */
typedef struct tsri_fast_part {
    int index;
    int64_t begin, end, total;
    void *const *in, *const *out;
    void *scratch;
    tsri_ahead *ahead; /* NULL: nothing */
} tsri_fast_part;
typedef void tsri_fast_part_fn(const tsri_fast *f, const tsri_fast_part *p);

/* The first member of every fast kernel. Its work is `items`, cut at multiples of `unit` into a
 * part for each of `threads`. Each of them calls `begin` before all parts and `end` behind them,
 * where these are set. */
struct tsri_fast {
    tsri_kernel base;
    const tsri_fast_isa *isa;
    int threads;
    int64_t items, unit;
    int64_t total, per_item; /* elements, or whatever an item is made of; 0, 0: the items */
    tsri_fast_part_fn *begin, *part, *end;
    tsri_kernel_pieces pieces;
    tsri_kernel_end ends;
    int ends_at;                     /* its operands follow this one */
    int64_t ends_rows, ends_columns; /* the result's, as a matrix */
};

/* Returns a zeroed kernel of `bytes` whose run does all parts, with the threads that `desc` says or
 * as many as `work` elements are worth, and a unit of 1; NULL when there is no memory. */
void *tsri_fast_make(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_fast_part_fn *part,
                     size_t bytes, int64_t work, int64_t items);
/* Lets a kernel work piece by piece too, by its begin, part and end; in, out: tsri_kernel_pieces.
 */
void tsri_fast_walks(tsri_fast *f, uint32_t in, uint32_t out, bool images);
/* Lets a kernel of f32 take the desc's end. Its result has so many columns: channels, which are the
 * last axis in memory. The kernel calls tsri_fast_end_rows for all of it. Called behind
 * tsri_fast_walks. */
void tsri_fast_takes_end(tsri_fast *f, const tsri_kernel_desc *desc, int64_t columns);
/* Whether tiles can do all of the end; and that of elements from this row and column on, for them.
 */
bool tsri_fast_tiles_end(const tsri_fast *f);
tsri_fast_end tsri_fast_end_of(const tsri_fast *f, void *const *in, int64_t row, int64_t column);
/* Ends rows [row, row + rows) and columns [c0, c1) of the result, if there is anything to be done.
 */
void tsri_fast_end_rows(const tsri_fast *f, void *const *in, float *y, int64_t row, int64_t rows,
                        int64_t c0, int64_t c1);
/* Runs all parts. A kernel that does something before or behind them sets base.run to a function
 * that calls this one. */
tsr_status tsri_fast_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch);
tsr_status tsri_fast_decline(const tsri_kernel_desc *desc);

/* Where piece `part` of `parts` of n items begins, cut at multiples of `unit`. */
int64_t tsri_fast_cut(int64_t n, int parts, int part, int64_t unit);

static inline int64_t tsri_fast_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the vectors of the next panel of packed columns (isa.h: pack, tile) when `left` are:
 * threes, and twos rather than a lone one. */
static inline int tsri_fast_panel(int64_t left)
{
    return left == 4 || left == 2 ? 2 : left == 1 ? 1 : 3;
}

bool tsri_fast_is_f32(const tsri_kernel_desc *desc);
/* Whether all operands and results are not empty, and row-major; and f32; and all f32, or all f64.
 */
bool tsri_fast_is_full(const tsri_kernel_desc *desc);
bool tsri_fast_is_plain(const tsri_kernel_desc *desc);
bool tsri_fast_is_plain_or_wide(const tsri_kernel_desc *desc);
/* Returns the loops of products of `dtype`, f32 or f64. */
const tsri_fast_loops *tsri_fast_loops_of(const tsri_fast_isa *isa, tsr_dtype dtype);
/* Row-major, axes of one element aside. */
bool tsri_fast_is_row_major(const tsri_arg *a);
/* Equal shapes and equal strides, axes of one element aside. */
bool tsri_fast_alike(const tsri_arg *a, const tsri_arg *b);
/* Whether a is x[n, c, h, w] channels last, or x[n, c] row-major: rows of c. */
bool tsri_fast_is_rows(const tsri_arg *a, int64_t *out_rows, int64_t *out_channels);

static inline size_t tsri_fast_align(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* A part of scratch, aligned. */
static inline void *tsri_fast_take(char **scratch, size_t bytes)
{
    void *p = *scratch;
    *scratch += tsri_fast_align(bytes);
    return p;
}

/*
 * Matrix products, of the dtype of `loops`. Plain: c[m, n] = a[m, k] b + bias, a's rows `lda`
 * apart, b's element (k, j) at b[k*bk + j*bn] with one of the strides 1. ta: a's element (m, k) is
 * a[k*lda + m], and bn is 1. Long sums are made of blocks. add: to what is in c, with
 * tsri_fast_gemm_rows alone.
 */
typedef struct tsri_fast_ending {
    const tsri_fast *kernel; /* of which c is the result: see tsri_fast_end_rows */
    void *const *in;
} tsri_fast_ending;

typedef struct tsri_fast_gemm {
    const tsri_fast_loops *loops;
    const tsri_fast_ending *ending; /* of a run; NULL: c has no end */
    int64_t m, n, k, lda, bk, bn, ldc;
    bool ta, add;
    bool packed; /* b is, by tsri_fast_gemm_pack */
    bool few;    /* so few rows that b is not worth packing, */
    bool dots;   /* or that b's columns, rows in memory, are multiplied one by one */
    bool outer;  /* ta: as outer.c does it */
    int threads;
    bool by_columns; /* threads share columns (ta: rows of c), else rows (ta: k) */
    size_t part_bytes, scratch_bytes;
} tsri_fast_gemm;

/* Returns the product of row-major matrices a[m, k], or a[k, m] for ta, and b[k, n], or b[n, k] for
 * tb; not planned. */
tsri_fast_gemm tsri_fast_gemm_of(const tsri_fast_loops *loops, int64_t m, int64_t n, int64_t k,
                                 bool ta, bool tb);
/* Returns the product that `op` is, a linear layer or a convolution as one, or its gradient:
 * y[rows, out] = x[rows, in] w[out, in]^T, dx = dy w, or dw = dy^T x; not planned. */
tsri_fast_gemm tsri_fast_gemm_linear(const tsri_fast_loops *loops, tsri_op_kind op, int64_t rows,
                                     int64_t out, int64_t in);
/* Returns p, moved by so many elements of the product's dtype. */
static inline const void *tsri_fast_gemm_at(const tsri_fast_gemm *g, const void *p,
                                            int64_t elements)
{
    return (const char *)p + elements * g->loops->size;
}

static inline void *tsri_fast_gemm_to(const tsri_fast_gemm *g, void *p, int64_t elements)
{
    return (char *)p + elements * g->loops->size;
}
/* Whether b, if it is the same in each run, had better be packed once. */
bool tsri_fast_gemm_keeps(const tsri_fast_gemm *g);
/* Fills in what is below `packed`: for `threads`, 0 being as many as the product is worth, or for
 * one. */
void tsri_fast_gemm_plan(tsri_fast_gemm *g, int threads);
void tsri_fast_gemm_plan_alone(tsri_fast_gemm *g);
void tsri_fast_gemm_run(const tsri_fast_gemm *g, const void *a, const void *b, const void *bias,
                        void *c, void *scratch);

/* Products ta with a large result: whether one is, bytes of scratch for each thread, and doing it.
 * sink: takes the result, in place of c, where hands_on says that it may. */
bool tsri_fast_outer_suits(const tsri_fast_gemm *g);
bool tsri_fast_outer_hands_on(const tsri_fast_gemm *g);
size_t tsri_fast_outer_bytes(const tsri_fast_gemm *g);
void tsri_fast_outer_run(const tsri_fast_gemm *g, const void *a, const void *b, void *c,
                         void *scratch, const tsri_kernel_sink *sink);

/* Elements of all of b, packed; packing it, of which each of `parts` callers does one; c[rows, n]
 * with packed b, on the calling thread. */
int64_t tsri_fast_packed(const tsri_fast_gemm *g);
void tsri_fast_gemm_pack(const tsri_fast_gemm *g, int part, int parts, const void *b, void *packed);
void tsri_fast_gemm_rows(const tsri_fast_gemm *g, int64_t rows, const void *a, const void *packed,
                         const void *bias, void *c, tsri_ahead *ahead);
/* Rows [m0, m1) of c[m, n], `ldc` apart, += from[m][n]. */
void tsri_fast_gemm_add(const tsri_fast_gemm *g, const void *from, void *c, int64_t m0, int64_t m1);
/* Terms of ta's sums, from which on they are better made of several. */
enum { TSRI_FAST_TA_LONG = 64 * 256 };
/* ta on the calling thread: c[m, n] (+)= over k0 <= k < k1, rows m0 <= m < m1. */
void tsri_fast_gemm_ta(const tsri_fast_gemm *g, int64_t k0, int64_t k1, int64_t m0, int64_t m1,
                       const void *a, const void *b, void *c, bool add, tsri_ahead *ahead);

/* A convolution's sizes, from its descriptor; false where an operand is empty, not f32, or not laid
 * out as the fast kernels want it. x is dx for CONV2D_DX; y is dy for the gradients. */
typedef struct tsri_fast_conv {
    int64_t n, ci, co, groups;
    int64_t in[2], out[2];
    int kernel[2], stride[2], pad[2], dilation[2];
    bool bias, bf16; /* bf16: as tsri_fast_takes16 has it, else all is f32 */
} tsri_fast_conv;
bool tsri_fast_conv_of(const tsri_kernel_desc *desc, tsri_fast_conv *out_conv);
/* Makes a kernel of the product that tsri_fast_gemm_linear returns; its operands are those of the
 * linear op. */
tsr_status tsri_fast_product(tsri_mem *mem, const tsri_kernel_desc *desc, int64_t rows, int64_t out,
                             int64_t in, tsri_kernel **out_kernel);
/* Makes the same where operand 0 is bf16. Without tsri_isa16_best it works by pieces alone. */
tsr_status tsri_fast_product16(tsri_mem *mem, const tsri_kernel_desc *desc, int64_t rows,
                               int64_t out, int64_t in, tsri_kernel **out_kernel);
tsr_status tsri_fast_depthwise(tsri_mem *mem, const tsri_kernel_desc *desc,
                               const tsri_fast_conv *conv, tsri_kernel **out_kernel);
/* Dense convolutions of bf16 as products with unfolded images, any window. */
tsr_status tsri_fast_unfold(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *conv,
                            tsri_kernel **out_kernel);
/* Dense and grouped ones of any window, without unfolding. */
tsr_status tsri_fast_direct(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *conv,
                            tsri_kernel **out_kernel);
/* Dense ones of stride 1 by vectors of pixels, and whether results have so few channels that these
 * are better than vectors of channels. */
bool tsri_fast_planar_suits(const tsri_kernel_desc *desc, const tsri_fast_conv *conv);
tsr_status tsri_fast_planar(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *conv,
                            tsri_kernel **out_kernel);
/* Backward-data of dense ones of stride 1 by vectors of all that a pixel of dy reaches along a
 * line, and whether that leaves less of vectors empty. */
bool tsri_fast_overlap_suits(const tsri_kernel_desc *desc, const tsri_fast_conv *conv);
tsr_status tsri_fast_overlap(tsri_mem *mem, const tsri_kernel_desc *desc,
                             const tsri_fast_conv *conv, tsri_kernel **out_kernel);
/* Dense 3x3 of stride 1 in fewer multiplications, and whether these are worth their additions. */
bool tsri_fast_winograd_suits(const tsri_kernel_desc *desc, const tsri_fast_conv *conv);
tsr_status tsri_fast_winograd(tsri_mem *mem, const tsri_kernel_desc *desc,
                              const tsri_fast_conv *conv, tsri_kernel **out_kernel);

/* Element-wise in a chain, where one of two operands broadcasts; map NULL: expand. */
tsr_status tsri_fast_spread(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_fast_map_fn *map,
                            tsri_kernel **out_kernel);

/* The slots. */
tsri_kernel_create_fn tsri_fast_conv2d, tsri_fast_matmul, tsri_fast_linear, tsri_fast_batch_norm,
    tsri_fast_bn_one, tsri_fast_unary, tsri_fast_scale, tsri_fast_binary, tsri_fast_where,
    tsri_fast_add_n, tsri_fast_fill, tsri_fast_cast, tsri_fast_copy, tsri_fast_permute,
    tsri_fast_concat, tsri_fast_slice, tsri_fast_pad, tsri_fast_dropout, tsri_fast_max_pool,
    tsri_fast_avg_pool, tsri_fast_adaptive_pool, tsri_fast_optim, tsri_fast_bn_params,
    tsri_fast_bn_fold, tsri_fast_gather, tsri_fast_layer_norm, tsri_fast_reduce, tsri_fast_softmax,
    tsri_fast_cross_entropy, tsri_fast_causal_mask, tsri_fast_flash_attention, tsri_fast_recurrent,
    tsri_fast_random, tsri_fast_lines, tsri_fast_order, tsri_fast_resize, tsri_fast_expand,
    tsri_fast_scan, tsri_fast_argmax, tsri_fast_rows, tsri_fast_total;

extern const tsri_kernels tsri_kernels_cpu_fast;

#endif
