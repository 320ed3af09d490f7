/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels vtable: what computes, on one rank's local buffers. A kernel knows no placement; it
 * is told local shapes, its shard's offsets, and the local sizes of the op's indices.
 *
 * A kernel is made once, when a plan is compiled, and run every step. One slot per op; several
 * implementations are asked in order and each may decline a shape, dtype or layout with
 * TSR_ERR_UNSUPPORTED. The last one, the reference (plain C), takes everything: f32 and f64 and,
 * where they make sense, integers; any strides; empty shards. For f16 and bf16 the one before it
 * makes f32's kernels work. TESSERA_VERBOSE=dispatch tells which one was taken;
 * TESSERA_KERNELS=ref (or a comma list of names) masks the others.
 */
#ifndef TESSERA_KERNELS_KERNELS_H
#define TESSERA_KERNELS_KERNELS_H

#include "src/core/op_list.h"
#include "src/core/mem.h"

enum { TSRI_KERNEL_MAX_ARGS = 12 };

/* A local buffer. Always dense: strides are those of some order of the axes ("channels last" is
 * strides[1] == 1 with h, w, n outside it), so element-wise kernels may walk it flat when all
 * operands have equal strides. */
typedef struct tsri_arg {
    tsr_dtype dtype;
    int ndim;
    int64_t shape[TSR_MAX_NDIM];  /* local; any may be 0 */
    int64_t stride[TSR_MAX_NDIM]; /* in elements */
    int64_t gshape[TSR_MAX_NDIM]; /* of the global tensor */
    int64_t offset[TSR_MAX_NDIM]; /* where this shard begins in it */
} tsri_arg;

/* Elements of the axes [begin, end), and of all. */
static inline int64_t tsri_arg_count_of(const tsri_arg *a, int begin, int end)
{
    int64_t n = 1;
    for (int i = begin; i < end; i++)
        n *= a->shape[i];
    return n;
}

static inline int64_t tsri_arg_count(const tsri_arg *a)
{
    return tsri_arg_count_of(a, 0, a->ndim);
}

/* Returns the axis along which a slice y of x goes on at the beginning; none: -1. */
static inline int tsri_slice_wraps(const tsri_attrs *attrs, const tsri_arg *x, const tsri_arg *y)
{
    for (int i = 0; i < x->ndim; i++)
        if (attrs->slice.step[i] == 1 && attrs->slice.start[i] + y->shape[i] > x->shape[i])
            return i;
    return -1;
}

/* The order of work on a device that has one; see kernels/device.h. */
typedef struct tsri_stream tsri_stream;

/*
 * The end of a kernel: what it does to its result, of f32, where it makes it, in this order: y = y
 * * scale[channel] + shift[channel], y += add, y = fn(y). Channels are axis 1 of images, and the
 * last axis of matrices. The operands follow that of the packed weights: in[nin + TSRI_END_SCALE]
 * and so on; add is laid out as the result. All give the bits of the ops that they stand for.
 */
typedef struct tsri_kernel_end {
    bool scales, adds, acts;
    tsri_unary_fn fn;
    double a, b; /* of fn */
} tsri_kernel_end;
enum { TSRI_END_SCALE = 1, TSRI_END_SHIFT, TSRI_END_ADD, TSRI_END_ARGS };

static inline bool tsri_kernel_has_end(const tsri_kernel_end *e)
{
    return e->scales || e->adds || e->acts;
}

typedef struct tsri_kernel_desc {
    tsri_op_kind op;
    const tsri_attrs *attrs;
    int nin, nout;
    tsri_arg in[TSRI_KERNEL_MAX_ARGS], out[TSRI_KERNEL_MAX_ARGS];
    uint32_t fixed;      /* operands (bits) that stay as they are until `keep` is called again */
    int64_t groups;      /* convolutions: this shard's groups */
    tsri_kernel_end end; /* for kernels that take one: takes_end */
    int threads;         /* that do its work; 0: as many as it is worth */
    tsri_stream *stream; /* on which it will run; NULL on a CPU */
} tsri_kernel_desc;

typedef struct tsri_kernel tsri_kernel;

/* Memory that is soon wanted: a kernel that computes more than it reads asks for it, line by line,
 * so that it is in the cache when its turn comes. */
enum { TSRI_AHEAD_MAX = 16, TSRI_AHEAD_LINE = 64 };
typedef struct tsri_ahead {
    int n; /* ranges that are left, the last one first */
    const char *at[TSRI_AHEAD_MAX], *end[TSRI_AHEAD_MAX];
} tsri_ahead;

/* Adds a range, which is asked for before those that are there, if it holds anything and there is
 * room for it. */
static inline void tsri_ahead_add(tsri_ahead *ahead, const void *at, size_t bytes)
{
    if (!bytes || ahead->n == TSRI_AHEAD_MAX)
        return;
    ahead->at[ahead->n] = (const char *)at;
    ahead->end[ahead->n++] = (const char *)at + bytes;
}

/* Returns from where `most` lines at most can be asked for, and how many; none: 0. */
static inline const char *tsri_ahead_take(tsri_ahead *ahead, int64_t most, int64_t *out_lines)
{
    *out_lines = 0;
    if (!ahead || !ahead->n)
        return NULL;
    const int i = ahead->n - 1;
    const char *at = ahead->at[i];
    const int64_t left = (ahead->end[i] - at + TSRI_AHEAD_LINE - 1) / TSRI_AHEAD_LINE;
    *out_lines = left < most ? left : most;
    ahead->at[i] += *out_lines * TSRI_AHEAD_LINE;
    ahead->n -= left <= most;
    return at;
}

/* Some of the rows that a kernel works on, and what it is given for them: see tsri_kernel_pieces.
 */
typedef struct tsri_kernel_piece {
    int thread;
    int64_t n, units; /* of `units` rows or images in all, n */
    void *const *in, *const *out;
    void *scratch;
    tsri_ahead *ahead; /* NULL: nothing */
} tsri_kernel_piece;

/*
 * How a kernel of a CPU does its work piece by piece: some of the rows of its operands (rows of a
 * matrix, pixels of images that are channels last), or some of their images. Each thread begins,
 * does its pieces in order, and ends; all have begun before the first piece, and done all pieces
 * before one ends. Beginning and ending get the whole operands, and of a piece `thread` alone.
 */
typedef struct tsri_kernel_pieces {
    uint32_t in, out; /* operands and results (bits) of which a piece gets its rows; others whole */
    bool images;      /* pieces are of whole images: axis 0 of the operands */
    int64_t units;    /* that its operands can be cut in at most, or a divisor of it; 0: in any that
                       * divide their elements */
    void (*begin)(const tsri_kernel *k, const tsri_kernel_piece *p); /* NULL: nothing */
    void (*piece)(const tsri_kernel *k, const tsri_kernel_piece *p);
    void (*end)(const tsri_kernel *k, const tsri_kernel_piece *p); /* NULL: nothing */
    /* With `images`: does lines [first, first + n) of one image, where operands and results begin,
     * of the result, or of operand 1 where there is none by lines; these need lines [*lo, *hi) of
     * operand 0. */
    void (*lines)(const tsri_kernel *k, const tsri_kernel_piece *p, int64_t first);
    void (*needs)(const tsri_kernel *k, int64_t first, int64_t n, int64_t *lo, int64_t *hi);
} tsri_kernel_pieces;

/* A sink takes a kernel's result piece by piece, as it is made: n elements from `first` on, in
 * row-major order. Pieces may come from several threads at a time. */
typedef struct tsri_kernel_sink tsri_kernel_sink;
enum { TSRI_SINK_TOUCHES = 4 };
struct tsri_kernel_sink {
    void (*take)(const tsri_kernel_sink *s, int64_t first, int64_t n, const void *values);
    /* Buffers of the result's size and dtype, of which `take` touches those elements: a kernel may
     * ask for them ahead. */
    int ntouches;
    const void *touches[TSRI_SINK_TOUCHES];
};

struct tsri_kernel {
    /* in[], out[]: in the order of the desc; NULL where the shard has no element. No out overlaps
     * an in, but for: ops that say "in place" (optimizers, bn_running: out i is the operand of its
     * name), and element-wise kernels (unary, unary_grad, scale, scale_shift, binary without
     * broadcasting, add_n, dropout, causal_mask), whose out may be exactly in[0], if that is no
     * other operand too. scratch: scratch_bytes, 64-byte aligned. Never allocates. May use the
     * calling thread's OpenMP team. */
    tsr_status (*run)(const tsri_kernel *k, void *const *in, void *const *out, void *scratch);
    void (*destroy)(tsri_kernel *k); /* frees k itself too */
    size_t scratch_bytes;
    /* Optional: packs the fixed operands into kept_bytes of zeroed memory, 64-byte aligned, which
     * the caller owns. It reads no other operand. Every run then gets that memory as in[nin]. */
    tsr_status (*keep)(const tsri_kernel *k, void *const *in, void *kept, void *scratch);
    size_t kept_bytes;                /* 0: the kernel keeps nothing */
    bool takes_end;                   /* it does what `end` of its desc says */
    const char *impl;                 /* "ref", "fast:avx512", "onednn", "via32": static */
    const tsri_kernel_pieces *pieces; /* optional; lives as long as the kernel */
    /* Optional: runs, but hands result 0 to `sink`, each element once, in place of out[0]. */
    tsr_status (*run_into)(const tsri_kernel *k, void *const *in, void *const *out, void *scratch,
                           const tsri_kernel_sink *sink);
    /* Optional, of updates: does n elements from `first` on, in row-major order, with gradients
     * from `g` on. in, out: of the whole, but the gradient in in[] is not read. Calls with other
     * elements may go on at the same time. */
    void (*update)(const tsri_kernel *k, void *const *in, void *const *out, int64_t first,
                   int64_t n, const void *g);
    /* Optional: makes one kernel that does the work of n kernels with this same `join`, whose
     * operands are fixed (those of the i-th are in[i][] and out[i][]) and do not meet: what one
     * writes no other reads or writes. Where launching costs more than the work, as in the update
     * of many small parameters. It runs with in, out and scratch NULL. The n kernels must outlive
     * it. May decline (TSR_ERR_UNSUPPORTED). */
    tsr_status (*join)(tsri_mem *mem, int n, tsri_kernel *const *kernels, void *const *const *in,
                       void *const *const *out, tsri_kernel **out_kernel);
    bool joins_in_order; /* the joined kernel gives what the n give in their order: they may meet */
    /* The item of a plan whose work it is, for errors that come to light later; set by the kernel's
     * owner, NULL by default. */
    const struct tsri_item *item;
};

/* Makes a kernel for `desc` (copied as far as needed), or declines. */
typedef tsr_status tsri_kernel_create_fn(tsri_mem *mem, const tsri_kernel_desc *desc,
                                         tsri_kernel **out_kernel);

/* An implementation: its name and a slot per op (NULL: does not do it). */
typedef struct tsri_kernels {
    size_t size; /* of this struct */
    const char *name;
    tsri_kernel_create_fn *slot[TSRI_OP_COUNT_];
    /* Optional: calls a slot's function, where it needs something around it. */
    tsr_status (*call)(tsri_kernel_create_fn *create, tsri_mem *mem, const tsri_kernel_desc *desc,
                       tsri_kernel **out_kernel);
    bool is_needed; /* no mask leaves it out: it takes what the last implementation does not */
} tsri_kernels;

/* The implementations for a CPU, best first, ending with the reference. NULL-terminated. */
const tsri_kernels *const *tsri_kernels_cpu(void);

/* Asks the implementations in order. `verbose_log` may be NULL. Errors: TSR_ERR_UNSUPPORTED if even
 * the reference declines (naming op, dtypes and shapes); what a kernel's creation met. */
tsr_status tsri_kernel_create(tsri_mem *mem, const tsri_kernels *const *list,
                              const tsri_kernel_desc *desc, tsri_kernel **out_kernel);

/*
 * A chain: kernels of one CPU that run as one. A value that one of them makes for others alone
 * ("inner") lies in the chain's scratch, so that it need not leave the cache where all kernels work
 * piece by piece; where one does not, they run in turn. The values are numbered: `ngiven` that the
 * kernel gets as its operands, `nouter` that are its results, `ninner`.
 */
enum { TSRI_CHAIN_MAX = 8, TSRI_CHAIN_VALUES = 40 };
typedef struct tsri_chain_desc {
    int n, ngiven, nouter, ninner;
    tsri_kernel_desc member[TSRI_CHAIN_MAX]; /* each behind those whose results it reads */
    int in[TSRI_CHAIN_MAX][TSRI_KERNEL_MAX_ARGS], out[TSRI_CHAIN_MAX][TSRI_KERNEL_MAX_ARGS];
    size_t piece_bytes; /* that are at work at a time; 0: as many as suit a core's cache */
    bool by_units;      /* no member is a product: pieces are cut as finely as all operands allow */
} tsri_chain_desc;

tsr_status tsri_chain_create(tsri_mem *mem, const tsri_kernels *const *list,
                             const tsri_chain_desc *desc, tsri_kernel **out_kernel);
/* Returns what does the work of member i of a chain: "chain" where all work piece by piece, else
 * the name of its implementation. */
const char *tsri_chain_impl(const tsri_kernel *chain, int i);

/* The check of ids in every implementation: TSR_ERR_INVALID unless id i (row-major) of the operand
 * `ids` is in 0 <= id < size, of the global axis. */
tsr_status tsri_check_id(const tsri_kernel_desc *desc, const tsri_arg *ids, int64_t i, int64_t id,
                         int64_t size);
/* The check of cross entropy's labels, of an op whose operand 0 is x(n, c): TSR_ERR_INVALID unless
 * that of row i is a class of the global tensor or ignored. desc->attrs must live. */
tsr_status tsri_check_label(const tsri_kernel_desc *desc, int64_t i, int64_t label);
bool tsri_label_is_ignored(const tsri_kernel_desc *desc, int64_t label);

#endif
