/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of the fast kernels, one table of them per instruction set: isa_avx512.c,
 * isa_avx2.c and isa_base.c are the same templates (*_t.h) over vectors of another width.
 * All buffers are f32 but for f64 sums, those of tsri_fast_loops in f64, and where bf16 is
 * specified; none is aligned beyond its type.
 */
#ifndef TESSERA_KERNELS_CPU_FAST_ISA_H
#define TESSERA_KERNELS_CPU_FAST_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define TSRI_FAST_X86 1
#endif

enum {
    TSRI_FAST_TAPS = 64,     /* of a depthwise window at most */
    TSRI_FAST_COLUMNS = 256, /* of a softmax over rows, at a time */
    TSRI_FAST_DOTS = 4,      /* rows of a product that is made of dot products, at most */
};

/* Where a row begins in a and in c. */
typedef struct tsri_fast_row {
    int64_t a, c;
} tsri_fast_row;

/* The end of rows of results: y * scale[column] + shift[column] (NULL: y), + add, which has
 * such rows (NULL: nothing), relu. */
typedef struct tsri_fast_end {
    const float *scale, *shift, *add;
    int relu; /* 1; 6: at most 6; 0: none */
} tsri_fast_end;

/* c[rows][cols] = (add ? c : 0) + bias[cols] + sum over k of a[row*ar + k*ak] * b[k*bk + col].
 * packed: b's rows are whole vectors. row: where rows begin, instead of ar and ldc. runs: so many
 * sums of k terms, each of which begins at a_at[run] and b_at[run] * b_unit, or where the one
 * before ended. apart: vectors of b's columns are so far from each other, and those of c c_apart;
 * `cols` is of each of them, a vector at most, and there is no bias. 0: they are neighbours. */
typedef struct tsri_fast_tile {
    const void *a, *b, *bias;
    void *c;
    int64_t ar, ak, bk, ldc, rows, cols, k;
    bool packed, add;
    tsri_ahead *ahead; /* asked for meanwhile; NULL: nothing */
    const tsri_fast_row *row;
    const tsri_fast_end *end; /* f32: what is done to c, whose rows end->add has; NULL: nothing */
    const int64_t *a_at, *b_at;
    int64_t runs; /* 0: one */
    int64_t b_unit;
    int64_t apart, c_apart;
} tsri_fast_tile;

/* c[m][ldc] of m <= TSRI_FAST_DOTS rows: the products of a's rows and b's, of k terms, + bias. */
typedef struct tsri_fast_dots {
    const void *a, *b, *bias;
    void *c;
    int64_t lda, ldb, ldc, m, k;
} tsri_fast_dots;

/* A sample's step of a recurrent layer, of n units; gates are `pitch` apart. before: cells of an
 * LSTM, states of a GRU. */
typedef struct tsri_fast_cell {
    int64_t n, pitch;
    const void *x, *sums; /* the gates' parts of the input and of the state */
    const void *before;
    void *y, *cells, *gates;
} tsri_fast_cell;

/* Gradient of one step. On entry dh and dc are the gradients of the step's results, on return those
 * of its operands; the caller adds the terms of the matrix products. */
typedef struct tsri_fast_cell_back {
    int64_t n, pitch;
    const void *gates, *before, *state, *dy, *dcells; /* dcells: NULL: nothing */
    void *dh, *dc, *dx, *ds;
} tsri_fast_cell_back;

/* The loops of matrix products and of recurrent layers of one dtype. Strides and counts are
 * elements. */
typedef struct tsri_fast_loops {
    int width, size; /* elements of a vector; bytes of an element */
    void (*tile[4])(const tsri_fast_tile *t);
    /* dst[k][width] of b[k*bk + j*bn], j < cols, the rest 0; bk or bn is 1. */
    void (*pack)(const void *b, int64_t bk, int64_t bn, int64_t k, int64_t cols, int64_t width,
                 void *dst);
    /* dst[i*ldd + j] = src[j*lds + i], i < rows, j < cols. */
    void (*transpose)(const void *src, int64_t lds, void *dst, int64_t ldd, int64_t rows,
                      int64_t cols);
    void (*dots)(const tsri_fast_dots *p, int64_t begin, int64_t end); /* columns of c */
    void (*add)(const void *x, void *c, int64_t n);                    /* c[n] += x[n] */
    void (*cell[TSRI_CELL_COUNT_])(const tsri_fast_cell *p);
    void (*cell_back[TSRI_CELL_COUNT_])(const tsri_fast_cell_back *p);
} tsri_fast_loops;

/* Lines of pixels, `pitch` floats apart: of one plane for each channel, `plane` floats apart, and
 * of pixels with their channels side by side. */
typedef struct tsri_fast_planes {
    int64_t channels, pixels, lines, plane, plane_pitch, pixel_pitch;
} tsri_fast_planes;

/* Per-channel coefficients, repeated to the width of a row: see bn_t.h. */
enum {
    TSRI_BN_SCALE = 0,
    TSRI_BN_SHIFT,
    TSRI_BN_MEAN,
    TSRI_BN_GAIN,
    TSRI_BN_SLOPE,
    TSRI_BN_LEVEL,
    TSRI_BN_COEFS,
};

typedef struct tsri_fast_bn {
    int64_t count, width;             /* elements; of a row */
    const void *x, *dy;               /* f32 or bf16, */
    void *y;                          /* or dx: as x is */
    const float *coef[TSRI_BN_COEFS]; /* [width] */
    float hi;                         /* the activation passes 0 < y < hi */
} tsri_fast_bn;

typedef enum tsri_bn_do {
    TSRI_BN_DO_STATS = 0,
    TSRI_BN_DO_APPLY,
    TSRI_BN_DO_APPLY_ACT,
    TSRI_BN_DO_BWD_STATS,
    TSRI_BN_DO_BWD_STATS_ACT,
    TSRI_BN_DO_BWD_APPLY,
    TSRI_BN_DO_BWD_APPLY_ACT,
    TSRI_BN_DO_COUNT_
} tsri_bn_do;

/* Layer norm, rows of `width` features, row-major. x, dy, y (or dx): [row][width]; gamma and beta:
 * [width] or NULL; stats, bstats and (of a row's own results) sums: [row][2]. With `run`, gamma and
 * beta are [group][width / run], a number for each run of features; row r is of group r % groups.
 */
typedef struct tsri_fast_ln {
    int64_t width, pitch; /* pitch: of the parameters' sums[2][pitch], whole vectors */
    int64_t run, groups;
    double count, eps; /* features of the global tensor */
    const float *x, *dy, *gamma, *beta;
    const double *stats, *bstats;
    float *y;
    double *sums;
} tsri_fast_ln;

typedef enum tsri_ln_do {
    TSRI_LN_DO_STATS = 0,
    TSRI_LN_DO_APPLY,
    TSRI_LN_DO_BWD_STATS,
    TSRI_LN_DO_BWD_APPLY,
    TSRI_LN_DO_PARAMS, /* sums of dy xhat and dy over rows, added to what is there */
    TSRI_LN_DO_COUNT_
} tsri_ln_do;

/* Depthwise: images x[n][in][channels] -> y[n][out][channels], spatial sizes being h, w. For
 * backward-data x is dy and y is dx; for the weights' gradient y is dy. */
typedef struct tsri_fast_dw {
    int64_t channels, pitch; /* pitch: of the weights' gradient, channels in whole vectors */
    int64_t in[2], out[2];
    int64_t lines[2]; /* the weights' gradient: those of dy from the first one up to the second */
    int kernel[2], stride[2], pad[2], dilation[2];
    bool backward;         /* backward-data */
    bool slide;            /* 3x3, stride 1, padding 1, images larger than 2 */
    bool three;            /* 3x3 */
    const void *x, *zeros; /* f32 or bf16; zeros: an image row */
    const float *w;
    void *y; /* as x is */
} tsri_fast_dw;

/* Pooling of lines [h0, h1) of an image, whose lines are `width` pixels, into a line of results;
 * kernel, stride and pad are those along the line. Means are by lines_count * counts[result]. room:
 * for one channel, zeros: a line with its padding, and three vectors behind it. */
typedef struct tsri_fast_pool {
    const float *image;
    int64_t width, channels, results;
    int kernel, stride, pad;
    float lines_count;
    const float *counts;
    float *room;
} tsri_fast_pool;

/* Rows of Winograd's points that one pass makes: all six, or the two of 0 and infinity, a and -a, b
 * and -b. */
typedef enum tsri_wino_rows {
    TSRI_WINO_ENDS = 0,
    TSRI_WINO_NEAR,
    TSRI_WINO_FAR,
    TSRI_WINO_ALL,
} tsri_wino_rows;

/* A row of attention's scores of n keys, in a buffer of `width`: what is behind them gets 0. */
typedef struct tsri_fast_attend {
    int64_t n, width;
    float *s;          /* scores, then weights */
    const float *mask; /* added to them: by mask_step 0 or 1; NULL: nothing */
    int64_t mask_step;
    /* Forward: the largest score so far, the sum of weights, y[features] before its division. */
    float *most, *y;
    double *sum;
    int64_t features;
    /* Backward: weight = e^(s - lse) gain; slope: dy v^T, then scale weight (slope - mean). */
    float *slope;
    float lse, gain, mean, scale;
} tsri_fast_attend;

/* y: of a unary function's gradient the result's gradient. a, b: the function's numbers; of a power
 * a is its exponent's nearest float, and b what is left of it. fixed: of a binary function, of
 * which one operand is a single number. */
typedef struct tsri_fast_map {
    const float *x, *y;
    float *out;
    float a, b;
    bool fixed_x, fixed_y;
} tsri_fast_map;
typedef void tsri_fast_map_fn(const tsri_fast_map *p, int64_t begin, int64_t end);

/* y[i] of x[i] and u[i], i < n; a fixed one is a single number. Or chosen, x[i] where c[i], else
 * u[i]. And y[i] = x[i] in another dtype, as tsr_cast says. */
typedef void tsri_fast_pair_fn(const void *x, const void *u, bool fixed_x, bool fixed_u, void *y,
                               int64_t n);
typedef void tsri_fast_where_fn(const uint8_t *c, const void *x, const void *u, bool fixed_x,
                                bool fixed_u, void *y, int64_t n);
typedef void tsri_fast_cast_fn(const void *x, void *y, int64_t n);

/* Reduces x[rows][cols], rows `pitch` apart, into what acc holds: by rows (acc[rows]) or by columns
 * (acc[cols], in whole vectors). acc is f64 for sums and products, f32 for maxima and minima; and
 * i64 for i64, of which there are none else. */
typedef void tsri_fast_reduce_fn(const float *x, int64_t rows, int64_t pitch, int64_t cols,
                                 void *acc);
typedef void tsri_fast_reduce_i64_fn(const void *x, int64_t rows, int64_t pitch, int64_t cols,
                                     void *acc);

enum { TSRI_FAST_SCANNED = 64 };

/* The buffers of one update, and its numbers. s[i] is NULL where bit i of `has` is not set. */
typedef struct tsri_fast_update {
    float *p, *s[TSRI_UPDATE_STATES];
    const float *g;
    int has;
    float c[TSRI_HYPER_COUNT];
} tsri_fast_update;
typedef void tsri_fast_update_fn(const tsri_fast_update *u, int64_t begin, int64_t end);

/* Results y[i], i < n, of the random words of a tensor's elements from `index` on. */
typedef struct tsri_fast_draws {
    uint64_t key, step, index;
    int64_t n;
    float *y;
} tsri_fast_draws;

/* x[i] * scale, and 0 where the draw of 24 bits is below `least`. */
typedef struct tsri_fast_dropout_args {
    tsri_fast_draws draws;
    const float *x;
    uint32_t least;
    float scale;
} tsri_fast_dropout_args;

/* Numbers low + width * draw, rounded to f32 from f64: with draws in [0, 1), at most `most`; or
 * with standard normal ones. */
typedef struct tsri_fast_numbers_args {
    tsri_fast_draws draws;
    double low, width;
    float most;
} tsri_fast_numbers_args;

typedef struct tsri_fast_isa {
    const char *impl;
    int width; /* floats of a vector */
    tsri_fast_loops f32, f64;
    /* Rows of `bytes`, which are so far apart in x and in y. */
    void (*copy_rows)(const char *x, int64_t xr, char *y, int64_t yr, int64_t rows, int64_t bytes);
    void (*reverse)(const float *x, float *y, int64_t n); /* y[i] = x[-i], i < n */
    /* The largest id, a negative one being larger than all others; y[i] = x[ids[i]]. */
    uint64_t (*most_id)(const int64_t *ids, int64_t n);
    void (*pick)(const float *x, const int64_t *ids, float *y, int64_t n);
    /* y[len] = for each place first + j the sum, in f64, of those of x[n] whose id it is; returns
     * the largest id. sums: room for len. */
    uint64_t (*sum_places)(const float *x, const int64_t *ids, int64_t n, int64_t first,
                           int64_t len, double *sums, float *y);
    /* y[cols] = the sum, in f64, of n rows: row at[i] begins at x[at[i] * cols], and is multiplied
     * by by[i]; by NULL: by 1. */
    void (*add_rows)(const float *x, const int64_t *at, const double *by, int64_t n, int64_t cols,
                     float *y);
    /* y[n] = a + (b - a) part; part NULL: `all`. y may be a. */
    void (*mix)(const float *a, const float *b, const float *part, float all, float *y, int64_t n);
    /* key[n]: whole numbers in the order of x (kernels/sort_key.h), or against it; and the first
     * place from i on whose key is below limit, or n. */
    void (*keys)(const float *x, int64_t n, bool descending, uint32_t *key);
    int64_t (*below)(const uint32_t *key, int64_t i, int64_t n, uint32_t limit);
    /* Planes become pixels, and pixels planes. */
    void (*join_planes)(const tsri_fast_planes *p, const float *planes, float *pixels);
    void (*split_planes)(const tsri_fast_planes *p, const float *pixels, float *planes);
    /* Rows [r0, r1), of f32 or of bf16; acc[2][width] is for the statistics. */
    void (*bn[TSRI_BN_DO_COUNT_][2])(const tsri_fast_bn *p, int64_t r0, int64_t r1, double *acc);
    void (*ln[TSRI_LN_DO_COUNT_])(const tsri_fast_ln *p, int64_t r0, int64_t r1);
    /* By attrs.reduce.op: sum, max, min, product, TSRI_REDUCE_FAULT; by rows, by columns. NULL: not
     * by vectors. */
    tsri_fast_reduce_fn *reduce[TSRI_REDUCE_FAULT + 1][2];
    tsri_fast_reduce_i64_fn *reduce_i64[TSRI_REDUCE_FAULT + 1][2];
    /* The first place where x is v, or NaN where v is; it is there. And for each column the first
     * place of the largest, or of NaN. */
    int64_t (*find)(const float *x, int64_t n, float v);
    void (*argmax_columns)(const float *x, int64_t n, int64_t pitch, int64_t cols, int64_t *y);
    double (*sum_products)(const float *x, const float *y, int64_t n);
    /* Running sums, or products: along rows of n, forward or (step -1) backward; and down columns
     * of n elements `step` apart, of which there are up to TSRI_FAST_SCANNED. */
    void (*scan_rows[2])(const float *x, float *y, int64_t rows, int64_t n, int64_t step);
    void (*scan_columns[2])(const float *x, float *y, int64_t n, int64_t step, int64_t cols);
    /* A row of n: y, or with y its gradient. */
    void (*softmax)(const float *x, float *y, int64_t n, bool is_log);
    void (*softmax_dx)(const float *y, const float *dy, float *dx, int64_t n, bool is_log);
    /* Softmax and its gradient over n rows, `pitch` apart, of up to TSRI_FAST_COLUMNS columns. */
    void (*softmax_columns)(const float *x, float *y, int64_t n, int64_t pitch, int64_t cols,
                            bool is_log);
    void (*softmax_dx_columns)(const float *y, const float *dy, float *dx, int64_t n, int64_t pitch,
                               int64_t cols, bool is_log);
    /* Rows of n classes: the sum of e^(x - most); by (e^(x - lse[0] - lse[1]) - even). */
    double (*ce_sum)(const float *x, int64_t n, float most);
    void (*ce_dx)(const float *x, float *dx, int64_t n, const float *lse, float by, float even);
    void (*attend)(const tsri_fast_attend *p);
    void (*attend_back)(const tsri_fast_attend *p);
    double (*dot)(const float *x, const float *y, int64_t n);
    /* Rows [r0, r1), images [n0, n1): of f32, or of bf16. */
    void (*dw_rows[2])(const tsri_fast_dw *p, int64_t r0, int64_t r1);
    /* acc[kh*kw][pitch] += */
    void (*dw_weights[2])(const tsri_fast_dw *p, int64_t n0, int64_t n1, double *acc);
    /* Winograd's transforms: see wino_t.h. 6 x 6 pixels of an image, or 4 x 4 of a gradient, become
     * dst[points][pitch], in whole vectors of channels. */
    void (*wino_image)(const float *const *src, int64_t channels, float *dst, int64_t pitch,
                       tsri_wino_rows rows);
    void (*wino_slopes)(const float *const *src, int64_t channels, float *dst, int64_t pitch,
                        tsri_wino_rows rows);
    void (*wino_pixels)(const float *sums, int64_t pitch, int64_t channels, const float *bias,
                        float *const *dst);
    void (*wino_weights)(const float *taps, int64_t step, int64_t n, float *dst, int64_t pitch);
    void (*wino_fold)(const float *sums, int parts, int64_t part_pitch, int64_t pitch, int64_t n,
                      tsri_wino_rows rows, bool add, float *taps, int64_t step);
    /* y[rows][columns], `pitch` apart. */
    void (*end)(const tsri_fast_end *e, float *y, int64_t pitch, int64_t rows, int64_t columns);
    tsri_fast_map_fn *fill, *scale; /* with a; by a */
    tsri_fast_map_fn *few_power;    /* unary[TSRI_UNARY_POW], of an exponent that is p->a */
    /* NULL: not by vectors. */
    tsri_fast_map_fn *unary[TSRI_UNARY_COUNT_], *unary_grad[TSRI_UNARY_COUNT_];
    tsri_fast_map_fn *binary[TSRI_BINARY_COUNT_];
    /* By operands' dtype: comparisons, whose results are bytes, and arithmetic of whole numbers. */
    tsri_fast_pair_fn *compare[TSRI_BINARY_COUNT_][TSR_DTYPE_COUNT_];
    tsri_fast_pair_fn *whole[TSRI_BINARY_COUNT_][TSR_DTYPE_COUNT_];
    tsri_fast_where_fn *where[4];                                /* of 1 << i bytes */
    tsri_fast_cast_fn *cast[TSR_DTYPE_COUNT_][TSR_DTYPE_COUNT_]; /* from, to */
    tsri_fast_update_fn *update[TSRI_OP_COUNT_];                 /* by op */
    /* begin: a multiple of 4 */
    void (*dropout)(const tsri_fast_dropout_args *p);
    void (*uniform)(const tsri_fast_numbers_args *p);
    void (*normal)(const tsri_fast_numbers_args *p);
    /* y[i] = x[i] * by[i], and 0 where that is 0, whatever x[i] is; i < n. */
    void (*keep)(const float *by, const float *x, float *y, int64_t n);
    /* y[results][channels], and where they are in the image; idx NULL: nobody asks. */
    void (*max_line)(const tsri_fast_pool *p, int64_t h0, int64_t h1, float *y, int32_t *idx);
    /* Its gradient, where windows share no pixel and leave none of lines [h0, h1) out. */
    void (*max_line_dx)(const tsri_fast_pool *p, int64_t h0, int64_t h1, const int32_t *idx,
                        const float *dy, float *image);
    void (*mean_line)(const tsri_fast_pool *p, int64_t h0, int64_t h1, float *y);
} tsri_fast_isa;

extern const tsri_fast_isa tsri_fast_isa_base;
#ifdef TSRI_FAST_X86
extern const tsri_fast_isa tsri_fast_isa_avx2, tsri_fast_isa_avx512;
#endif

/* The best of this machine, or of TESSERA_CPU_ISA (avx512, avx2, base) if that is less; products of
 * bf16 have more: tsri_isa16_best. */
const tsri_fast_isa *tsri_fast_isa_best(void);

#endif
