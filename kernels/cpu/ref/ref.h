/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the reference kernels: the kernel object, a walk over operands with any strides, and
 * a matrix product whose operands are given by index maps. The reference takes everything; its
 * arithmetic on f32 data is done in f64 and rounded once, but for the optimizers' updates.
 */
#ifndef TESSERA_KERNELS_CPU_REF_H
#define TESSERA_KERNELS_CPU_REF_H

#include "kernels/kernels.h"

#include <omp.h>

enum {
    TSRI_REF_OPS = TSRI_KERNEL_MAX_ARGS + 1, /* operands of one walk */
    TSRI_REF_BLOCK = 64,                     /* channels that a kernel keeps in local arrays */
};

/* A walk over all elements of a shape, axes ordered by operand 0's strides and merged where every
 * operand allows it. An operand is anything with a stride per axis: a buffer, or the element's
 * index in the global tensor. */
typedef struct tsri_ref_iter {
    int nops, ndim;
    int64_t count;
    int64_t size[TSR_MAX_NDIM];
    int64_t stride[TSRI_REF_OPS][TSR_MAX_NDIM];
} tsri_ref_iter;

/* A run of n elements of the walk: where it begins in each operand, and each operand's step. */
typedef struct tsri_ref_row {
    int64_t n, off[TSRI_REF_OPS], step[TSRI_REF_OPS];
} tsri_ref_row;

typedef void tsri_ref_row_fn(void *arg, const tsri_ref_row *row);

/* Begins a walk of `nops` operands, by their strides. */
void tsri_ref_walk(tsri_ref_iter *it, int ndim, const int64_t *shape, int nops,
                   const int64_t *const *stride);
/* Begins a walk of out[0] and every operand (op 1 + i is in[i]), broadcasting from the right. */
void tsri_ref_walk_map(tsri_ref_iter *it, const tsri_kernel_desc *desc);
/* Calls fn on every run, in no order: on the OpenMP team if there is much to do and `parallel`. */
void tsri_ref_iter_run(const tsri_ref_iter *it, tsri_ref_row_fn *fn, void *arg, bool parallel);

/* A reference kernel. Kernels with more to keep embed it as their first member. */
typedef struct tsri_ref {
    tsri_kernel base;
    tsri_kernel_desc desc; /* its attrs are those below */
    tsri_attrs attrs;
    tsri_ref_iter iter;
    tsri_ref_row_fn *row; /* of kernels that are one walk */
} tsri_ref;

/* The operands of a run: the arg of `row`. */
typedef struct tsri_ref_job {
    const tsri_ref *ref;
    void *const *in, *const *out;
    void *scratch;
} tsri_ref_job;

typedef tsr_status tsri_ref_run_fn(const tsri_kernel *k, void *const *in, void *const *out,
                                   void *scratch);

/* A zeroed kernel of `bytes` (at least sizeof(tsri_ref)); NULL when there is no memory. */
void *tsri_ref_make(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_run_fn *run,
                    size_t bytes);
/* Makes a kernel without more, and returns a status. */
tsr_status tsri_ref_create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_run_fn *run,
                           tsri_kernel **out_kernel);
/* A zeroed kernel of `bytes` whose run calls `row` on every run of its iter, which the caller
 * begins: by the team unless it has scratch. NULL when there is no memory. */
void *tsri_ref_make_rows(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_row_fn *row,
                         size_t bytes);
/* Makes a kernel without more that walks out[0] and `nops` - 1 further operands, by their strides.
 */
tsr_status tsri_ref_create_rows(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_row_fn *row,
                                int nops, const int64_t *const *stride, tsri_kernel **out_kernel);
/* Makes a kernel without more that walks out[0] and every operand, as tsri_ref_walk_map does. */
tsr_status tsri_ref_create_map(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_row_fn *row,
                               tsri_kernel **out_kernel);
/* The refusal: TSR_ERR_UNSUPPORTED naming op and dtypes. */
tsr_status tsri_ref_decline(const tsri_kernel_desc *desc);

/* Offset of element i, row-major, of the axes [begin, end). */
int64_t tsri_ref_offset(const tsri_arg *arg, int begin, int end, int64_t i);
/* Strides of the row-major order of arg's global tensor; returns where the shard begins in it. */
int64_t tsri_ref_global_index(const tsri_arg *arg, int64_t stride[TSR_MAX_NDIM]);

static inline bool tsri_ref_is_float(tsr_dtype d)
{
    return d == TSR_F32 || d == TSR_F64;
}

/* Whether in[begin] up to in[end] (not included) have the dtype of out[0]; all operands and out[0]
 * are floats. */
bool tsri_ref_alike(const tsri_kernel_desc *desc, int begin, int end);
bool tsri_ref_all_float(const tsri_kernel_desc *desc);

/* Element i as a double; rounded or converted as tsr_dtype's cast does. Any dtype. */
double tsri_ref_load(tsr_dtype dtype, const void *p, int64_t i);
void tsri_ref_store(tsr_dtype dtype, void *p, int64_t i, double v);
/* Stores a whole number as tsr_cast does: it wraps in a whole dtype, and is rounded to a float. */
void tsri_ref_store_whole(tsr_dtype dtype, void *p, int64_t i, int64_t v);

/* Replaces *kernel, which the new one owns, by one that computes by the definition, where nothing
 * is around an image, those channels of a convolution that have an infinite or NaN factor: their
 * kernel multiplies zeros around the image, or between the pixels of dy, with the weights (of dw:
 * with dy). Leaves a convolution without such zeros as it is. On failure *kernel is destroyed. end:
 * ends such a channel c of y as *kernel ends the others; NULL if *kernel takes no end. */
typedef void tsri_ref_end_fn(const tsri_kernel *kernel, void *const *in, void *y, int64_t c);
tsr_status tsri_ref_conv_edges(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_ref_end_fn *end,
                               tsri_kernel **kernel);

/* Moves n elements of `size` bytes; sy, sx in elements. */
void tsri_ref_move(size_t size, char *to, int64_t sy, const char *from, int64_t sx, int64_t n);
/* The view of `large` that a slice is, or that a padded operand lies in, by attrs.slice: sets its
 * strides, and returns where it begins. */
int64_t tsri_ref_view(const tsri_attrs *at, const tsri_arg *large, int64_t stride[TSR_MAX_NDIM]);
/* Moves a row of a walk over `to` and `from`; its arg is a tsri_ref_moved. */
typedef struct tsri_ref_moved {
    size_t size; /* of an element */
    char *to;
    const char *from;
} tsri_ref_moved;
tsri_ref_row_fn tsri_ref_move_row;

/* One index of a matrix product: its axes, outermost first. An axis moves the element by `stride`
 * and, in a matrix with a window, the window's position by h and w a step. */
typedef struct tsri_ref_index {
    int ndim;
    int64_t count, h0, w0;
    int64_t size[TSR_MAX_NDIM], stride[TSR_MAX_NDIM], h[TSR_MAX_NDIM], w[TSR_MAX_NDIM];
} tsri_ref_index;

/* Element (r, c) is at row's offset + col's offset, and those of the product's number by `batch`.
 * With a window, its h and w are added up from row and col; it is 0 unless both are multiples of
 * div and the quotients lie inside size, where they move the element by `stride` each. */
typedef struct tsri_ref_matrix {
    tsr_dtype dtype;
    int operand; /* of a and b */
    tsri_ref_index batch, row, col;
    bool window;
    int64_t size[2], stride[2], div[2]; /* h, w */
} tsri_ref_matrix;

void tsri_ref_index_add(tsri_ref_index *index, int64_t size, int64_t stride, int64_t h, int64_t w);
/* Forgets a window that nothing can leave: positions become offsets. */
void tsri_ref_matrix_unwindow(tsri_ref_matrix *matrix);

/* A kernel of products c[m, n] = sum over k of a[m, k] b[n, k], in f64, in an order that depends on
 * shapes alone: as many as c's batch has, one if it has no axis. Operand 2, if any, is the bias
 * [n], a product's behind that of the one before. */
typedef struct tsri_ref_gemm {
    tsri_ref ref;
    tsri_ref_matrix a, b, c;
    int threads;
} tsri_ref_gemm;

/* Makes one of operands a and b, whose indices the caller sets; then finish makes it a kernel. */
tsr_status tsri_ref_gemm_make(tsri_mem *mem, const tsri_kernel_desc *desc, int a, int b,
                              tsri_ref_gemm **out_gemm);
tsr_status tsri_ref_gemm_finish(tsri_ref_gemm *gemm, tsri_kernel **out_kernel);

/* The depthwise case of the convolutions: one input and one output channel a group. */
bool tsri_ref_is_depthwise(const tsri_kernel_desc *desc);
tsr_status tsri_ref_depthwise(tsri_mem *mem, const tsri_kernel_desc *desc,
                              tsri_kernel **out_kernel);

/* One slot per op, tsri_ref_matmul; TSRI_REF_SAME makes one that is another's. */
#define TSRI_REF_SLOT(upper, lower) tsri_kernel_create_fn tsri_ref_##lower;
TSRI_OP_KERNEL_LIST(TSRI_REF_SLOT)
#undef TSRI_REF_SLOT
#define TSRI_REF_SAME(op, other) \
    tsri_kernel_create_fn tsri_ref_##op __attribute__((alias("tsri_ref_" #other)))

extern const tsri_kernels tsri_kernels_cpu_ref;

/* A loop over [from, to), by the OpenMP team if `wide`. A team of one is never started: libgomp
 * allocates for it, and for each change of a team's size. */
#define TSRI_REF_EACH(i, from, to, wide, ...)                                                    \
    do {                                                                                         \
        if ((wide) && omp_get_max_threads() > 1) {                                               \
            _Pragma("omp parallel for schedule(static)") for (int64_t i = (from); i < (to); i++) \
                __VA_ARGS__                                                                      \
        } else {                                                                                 \
            for (int64_t i = (from); i < (to); i++)                                              \
                __VA_ARGS__                                                                      \
        }                                                                                        \
    } while (0)

#endif
