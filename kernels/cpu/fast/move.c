/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that only move elements, of any dtype and any strides: copy, expand, permute, concat, split,
 * slice and pad. Each is one box of elements or several, and a box goes plane by plane: rows and
 * columns, columns being the destination's innermost axis.
 */
#include "kernels/cpu/fast/fast.h"
#include "kernels/cpu/ref/ref.h"
#include "kernels/part.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHARES =
        512,   /* bytes of a row, which shares lines of memory with its neighbours if it has less */
    TURN = 64, /* rows and columns of a plane that are turned together: within a first cache */
    COLUMNS = 8192, /* elements of a row that are moved together */
    NEAR = 16384,   /* elements of a source within which its rows are taken in another order, */
    OWN = 48,       /* unless they have so many: then they share few lines with others */
};

typedef struct plane {
    int64_t rows, cols;
    int64_t tr, tc, fr, fc; /* steps of destination and source, in elements */
} plane;

typedef struct box {
    tsri_ref_iter outer; /* the axes that are not the plane's */
    plane all;
    int64_t to, from;       /* where it begins */
    int64_t rows, cols;     /* of a piece of the plane: what threads share */
    int64_t pieces, across; /* all pieces; those of one piece's rows */
    bool rows_last;         /* the axes outside come before the next rows */
    bool value;             /* pad: of what is around the operand; no operand */
} box;

typedef struct mover {
    tsri_fast base;
    size_t size; /* of an element */
    int nin, nout;
    _Alignas(8) unsigned char value[8]; /* pad: of what is around the operand */
    int n;
    int64_t steps;   /* in which boxes are moved: beside each other where these are several */
    tsri_op_kind op; /* PART and WHOLE have these fields too: */
    int32_t parts;   /* number of parts */
    int64_t to_shift, from_shift; /* elements from one part to the next */
    box box[];                    /* of operand i, or of result i, where these are several */
} mover;

/* --- a plane ---------------------------------------------------------------------------------- */

#define MOVE(T)                                                     \
    do {                                                            \
        for (int64_t r = 0; r < p->rows; r++) {                     \
            const T *x = (const T *)(const void *)from + r * p->fr; \
            T *y = (T *)(void *)to + r * p->tr;                     \
            const T first = *x;                                     \
            if (p->tc == 1 && p->fc == 0)                           \
                for (int64_t c = 0; c < p->cols; c++)               \
                    y[c] = first;                                   \
            else if (p->tc == 1)                                    \
                for (int64_t c = 0; c < p->cols; c++)               \
                    y[c] = x[c * p->fc];                            \
            else                                                    \
                for (int64_t c = 0; c < p->cols; c++)               \
                    y[c * p->tc] = x[c * p->fc];                    \
        }                                                           \
    } while (0)

/* Whether rows lie side by side in the source, so that vectors are read from it. */
static bool turns(const plane *p)
{
    return p->tc == 1 && p->fr == 1 && p->rows > 1 && p->fc != 1 && (p->fc != 0 || p->cols < 16);
}

static void move_plane(const mover *k, const plane *p, char *to, const char *from)
{
    const int64_t size = (int64_t)k->size;
    if (p->tc == 1 && p->fc == 1) {
        k->base.isa->copy_rows(from, p->fr * size, to, p->tr * size, p->rows, p->cols * size);
        return;
    }
    if (size == 4 && turns(p)) {
        k->base.isa->f32.transpose(from, p->fc, to, p->tr, p->rows, p->cols);
        return;
    }
    if (size == 4 && p->tc == 1 && p->fc == -1) {
        for (int64_t r = 0; r < p->rows; r++)
            k->base.isa->reverse((const float *)(const void *)from + r * p->fr,
                                 (float *)(void *)to + r * p->tr, p->cols);
        return;
    }
    if (size == 4 && p->tc == 1 && p->fc == 0) {
        for (int64_t r = 0; r < p->rows; r++) {
            tsri_fast_map map = {.out = (float *)(void *)to + r * p->tr};
            memcpy(&map.a, from + r * p->fr * size, sizeof map.a);
            k->base.isa->fill(&map, 0, p->cols);
        }
        return;
    }
    switch (size) {
    case 1:
        MOVE(uint8_t);
        break;
    case 2:
        MOVE(uint16_t);
        break;
    case 4:
        MOVE(uint32_t);
        break;
    default:
        MOVE(uint64_t);
    }
}

/* --- boxes ------------------------------------------------------------------------------------ */

/* The position of a walk over the pieces of a box. */
typedef struct walk {
    int64_t at[TSR_MAX_NDIM], off[2], r, c; /* off: of the axes outside, in `to` and `from` */
} walk;

static walk walk_of(const box *b, int64_t piece)
{
    const int64_t down = (b->all.rows + b->rows - 1) / b->rows,
                  outer = b->pieces / b->across / down;
    int64_t rest = piece / b->across;
    walk w = {.off = {b->to, b->from}, .c = piece % b->across * b->cols};
    w.r = (b->rows_last ? rest / outer : rest % down) * b->rows;
    rest = b->rows_last ? rest % outer : rest / down;
    for (int i = b->outer.ndim - 1; i >= 0; i--) {
        w.at[i] = rest % b->outer.size[i];
        rest /= b->outer.size[i];
        for (int o = 0; o < 2; o++)
            w.off[o] += w.at[i] * b->outer.stride[o][i];
    }
    return w;
}

/* Goes on by one place of the axes outside, and returns whether there was one. */
static bool walk_outside(const box *b, walk *w)
{
    for (int i = b->outer.ndim - 1; i >= 0; i--) {
        for (int o = 0; o < 2; o++)
            w->off[o] += b->outer.stride[o][i];
        if (++w->at[i] < b->outer.size[i])
            return true;
        for (int o = 0; o < 2; o++)
            w->off[o] -= w->at[i] * b->outer.stride[o][i];
        w->at[i] = 0;
    }
    return false;
}

static void walk_on(const box *b, walk *w)
{
    w->c += b->cols;
    if (w->c < b->all.cols)
        return;
    w->c = 0;
    if (b->rows_last && walk_outside(b, w))
        return;
    w->r += b->rows;
    if (b->rows_last || w->r < b->all.rows)
        return;
    w->r = 0;
    walk_outside(b, w);
}

/* Asks for the source of a piece that is turned: it lies in more streams than hardware follows. */
static void ask_for(const box *b, const walk *w, const float *from)
{
    enum { LINE = 16 };
    const int64_t rows = tsri_fast_least(b->all.rows - w->r, b->rows);
    const int64_t end = tsri_fast_least(b->all.cols, w->c + b->cols);
    for (int64_t c = w->c; c < end; c++)
        for (int64_t r = 0; r < rows; r += LINE)
            __builtin_prefetch(from + w->off[1] + c * b->all.fc + w->r + r);
}

/* Moves pieces [first, end). */
static void move_box(const mover *k, const box *b, int64_t first, int64_t end, const char *from,
                     char *to)
{
    const int64_t size = (int64_t)k->size;
    if (first >= end)
        return;
    const bool asks = size == 4 && turns(&b->all);
    walk w = walk_of(b, first), next = w;
    for (int64_t n = first; n < end; n++, w = next) {
        walk_on(b, &next);
        if (asks && n + 1 < end)
            ask_for(b, &next, (const float *)(const void *)from);
        plane p = b->all;
        p.rows = tsri_fast_least(p.rows - w.r, b->rows);
        p.cols = tsri_fast_least(p.cols - w.c, b->cols);
        move_plane(k, &p, to + (w.off[0] + w.r * p.tr + w.c * p.tc) * size,
                   from + (w.off[1] + w.r * p.fr + w.c * p.fc) * size);
    }
}

static void move_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const mover *k = (const mover *)f;
    const int64_t steps = (k->steps + f->threads - 1) / f->threads;
    for (int64_t step = 0; step < steps; step++)
        for (int i = 0; i < k->n; i++) {
            const box *b = &k->box[i];
            const int64_t first = tsri_fast_cut(b->pieces, f->threads, p->index, 1);
            const int64_t n = tsri_fast_cut(b->pieces, f->threads, p->index + 1, 1) - first;
            move_box(k, b, first + n * step / steps, first + n * (step + 1) / steps,
                     b->value ? (const char *)k->value : p->in[k->nin > 1 ? i : 0],
                     p->out[k->nout > 1 ? i : 0]);
        }
}

/* Rows [begin, end) of a concat, each of all its operands, so that the result is written in order.
 */
static void join_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const mover *k = (const mover *)f;
    const int64_t size = (int64_t)k->size;
    for (int64_t r = p->begin; r < p->end; r++)
        for (int i = 0; i < k->n; i++) {
            const box *b = &k->box[i];
            const plane row = {.rows = 1, .cols = b->all.cols, .tc = 1, .fc = 1};
            move_plane(k, &row, (char *)p->out[0] + (b->to + r * b->all.tr) * size,
                       (const char *)p->in[i] + (b->from + r * b->all.fr) * size);
        }
}

static void fill_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const mover *k = (const mover *)f;
    const plane one = {.rows = 1, .cols = p->end - p->begin, .tc = 1};
    if (p->begin < p->end)
        move_plane(k, &one, (char *)p->out[0] + p->begin * (int64_t)k->size,
                   (const char *)k->value);
}

/* Lets an axis that has a smaller step in the source than short rows have go first: a few rows are
 * moved for all places of that axis before the next rows, so that the source is read in order. */
static void order_pieces(box *b)
{
    tsri_ref_iter *it = &b->outer;
    const int64_t row = llabs(b->all.fr); /* steps may go back */
    const int last = it->ndim - 1;
    int least = last;
    if (b->all.fc != 1 || b->all.cols >= OWN || b->value || last < 0)
        return;
    for (int i = last - 1; i >= 0; i--)
        if (llabs(it->stride[1][i]) < llabs(it->stride[1][least]))
            least = i;
    if (llabs(it->stride[1][least]) >= row)
        return;
    const tsri_ref_iter all = *it;
    for (int i = least; i < last; i++) {
        it->size[i] = all.size[i + 1];
        for (int o = 0; o < 2; o++)
            it->stride[o][i] = all.stride[o][i + 1];
    }
    it->size[last] = all.size[least];
    for (int o = 0; o < 2; o++)
        it->stride[o][last] = all.stride[o][least];
    b->rows_last = true;
    b->rows = tsri_fast_least(b->rows, NEAR / row + 1);
}

/* Makes the innermost axis the columns, and of the others that one the rows in which the source has
 * the least step, where its rows are not dense themselves; else the next. */
static void set_box(box *b, int ndim, const int64_t *shape, const int64_t *to_stride,
                    const int64_t *from_stride)
{
    tsri_ref_iter *it = &b->outer;
    tsri_ref_walk(it, ndim, shape, 2, (const int64_t *[]){to_stride, from_stride});
    const int last = it->ndim - 1;
    int rows = last - 1;
    b->all = (plane){1, it->size[last], 0, it->stride[0][last], 0, it->stride[1][last]};
    b->pieces = it->count;
    for (int i = rows; i >= 0 && b->all.fc != 1; i--)
        if (it->stride[1][i] == 1)
            rows = i;
    if (rows >= 0) {
        b->all.rows = it->size[rows];
        b->all.tr = it->stride[0][rows];
        b->all.fr = it->stride[1][rows];
        for (int i = rows; i < last; i++) { /* the last becomes the columns */
            it->size[i] = it->size[i + 1];
            for (int o = 0; o < 2; o++)
                it->stride[o][i] = it->stride[o][i + 1];
        }
    }
    it->ndim = rows >= 0 ? last - 1 : 0;
    b->cols = turns(&b->all) ? TURN : COLUMNS;
    b->rows = turns(&b->all) ? TURN : b->all.cols < COLUMNS ? COLUMNS / (b->all.cols + 1) + 1 : 1;
    if (!b->pieces)
        return;
    order_pieces(b);
    b->across = (b->all.cols + b->cols - 1) / b->cols;
    b->pieces = b->across * ((b->all.rows + b->rows - 1) / b->rows);
    for (int i = 0; i < it->ndim; i++)
        b->pieces *= it->size[i];
}

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, int n, mover **out_mover)
{
    const tsr_dtype dtype = d->out[0].dtype;
    int64_t count = 0;
    for (int i = 0; i < d->nin + d->nout; i++)
        if ((i < d->nin ? &d->in[i] : &d->out[i - d->nin])->dtype != dtype)
            return tsri_fast_decline(d);
    for (int i = 0; i < d->nout; i++)
        count += tsri_arg_count(&d->out[i]);
    if (!count)
        return tsri_fast_decline(d);
    mover *k =
        tsri_fast_make(mem, d, move_part, sizeof *k + (size_t)n * sizeof k->box[0], count, count);
    TSRI_NEED(k);
    k->size = tsr_dtype_size(dtype);
    k->nin = d->nin;
    k->nout = d->nout;
    k->n = n;
    k->steps = 1;
    *out_mover = k;
    return TSR_OK;
}

/* copy, expand, assign: the operand broadcasts from the right. */
tsr_status tsri_fast_copy(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    mover *k = NULL;
    TSRI_TRY(make(mem, d, 1, &k));
    int64_t stride[TSR_MAX_NDIM] = {0};
    for (int i = x->ndim - 1, at = y->ndim - 1; i >= 0 && at >= 0; i--, at--)
        stride[at] = x->shape[i] == 1 && y->shape[at] != 1 ? 0 : x->stride[i];
    set_box(&k->box[0], y->ndim, y->shape, y->stride, stride);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_permute(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *y = &d->out[0];
    mover *k = NULL;
    TSRI_TRY(make(mem, d, 1, &k));
    int64_t stride[TSR_MAX_NDIM] = {0};
    for (int i = 0; i < y->ndim; i++)
        stride[i] = d->in[0].stride[d->attrs->permute.perm[i]];
    set_box(&k->box[0], y->ndim, y->shape, y->stride, stride);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

/* The parts of a concat or a split lie behind each other along the axis of the whole. */
tsr_status tsri_fast_concat(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool split = d->op == TSRI_OP_SPLIT;
    const int axis = d->attrs->cut.axis, n = split ? d->nout : d->nin;
    const tsri_arg *whole = split ? &d->in[0] : &d->out[0], *part = split ? d->out : d->in;
    mover *k = NULL;
    TSRI_TRY(make(mem, d, n, &k));
    bool shares = false, joins = !split;
    int64_t most = 1;
    for (int64_t i = 0, at = 0; i < n; at += part[i++].shape[axis]) {
        box *b = &k->box[i];
        *(split ? &b->from : &b->to) = at * whole->stride[axis];
        set_box(b, part[i].ndim, part[i].shape, split ? part[i].stride : whole->stride,
                split ? whole->stride : part[i].stride);
        shares = shares || (b->all.rows > 1 && b->all.cols * (int64_t)k->size < SHARES);
        joins = joins && b->pieces && b->all.tc == 1 && b->all.fc == 1 && b->outer.ndim == 0 &&
                b->all.rows == k->box[0].all.rows;
        most = b->pieces > most ? b->pieces : most;
    }
    k->steps = shares ? most : 1;
    if (joins && !shares && k->box[0].all.rows > 1) {
        k->base.part = join_part;
        k->base.items = k->box[0].all.rows;
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_slice(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const int wraps = tsri_slice_wraps(d->attrs, &d->in[0], &d->out[0]);
    tsri_arg y = d->out[0];
    mover *k = NULL;
    TSRI_TRY(make(mem, d, wraps < 0 ? 1 : 2, &k));
    int64_t stride[TSR_MAX_NDIM];
    k->box[0].from = tsri_ref_view(d->attrs, &d->in[0], stride);
    if (wraps >= 0) {
        const int64_t start = d->attrs->slice.start[wraps], rest = y.shape[wraps] - start;
        k->box[1].from = k->box[0].from - start * stride[wraps];
        k->box[1].to = rest * y.stride[wraps];
        y.shape[wraps] = start;
        set_box(&k->box[1], y.ndim, y.shape, y.stride, stride);
        y.shape[wraps] = rest;
    }
    set_box(&k->box[0], y.ndim, y.shape, y.stride, stride);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

/* The frame around the operand is two boxes an axis: before and behind it along this axis, inside
 * it along those before, and all of those that follow. */
static void set_borders(mover *k, const tsri_kernel_desc *d)
{
    static const int64_t still[TSR_MAX_NDIM];
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    int64_t shape[TSR_MAX_NDIM], inside = 0;
    memcpy(shape, y->shape, sizeof shape);
    for (int i = 0; i < y->ndim; i++) {
        const int64_t start = d->attrs->slice.start[i], end = start + x->shape[i];
        for (int behind = 0; behind < 2; behind++) {
            box *b = &k->box[k->n++];
            shape[i] = behind ? y->shape[i] - end : start;
            b->value = true;
            b->to = inside + (behind ? end * y->stride[i] : 0);
            set_box(b, y->ndim, shape, y->stride, still);
        }
        shape[i] = x->shape[i];
        inside += start * y->stride[i];
    }
}

tsr_status tsri_fast_pad(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    mover *k = NULL;
    TSRI_TRY(make(mem, d, 1 + 2 * y->ndim, &k));
    int64_t stride[TSR_MAX_NDIM];
    bool steps = false;
    for (int i = 0; i < y->ndim; i++)
        steps = steps || d->attrs->slice.step[i] != 1;
    k->n = 1;
    k->box[0].to = tsri_ref_view(d->attrs, y, stride);
    set_box(&k->box[0], x->ndim, x->shape, stride, x->stride);
    tsri_ref_store(y->dtype, k->value, 0, d->attrs->slice.value);
    if (steps || !k->box[0].pieces)
        k->base.begin = fill_part; /* all of it, before the operand */
    else
        set_borders(k, d);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

/* Moves the rows of the part whose number is operand 1: part 0's rows, shifted. */
static void rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const mover *k = (const mover *)f;
    const int64_t m = *(const int64_t *)p->in[1] * (int64_t)k->size;
    move_box(k, &k->box[0], p->begin, p->end, (const char *)p->in[0] + m * k->from_shift,
             (char *)p->out[0] + m * k->to_shift);
}

static tsr_status rows_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    const mover *k = (const mover *)kernel;
    TSRI_TRY(tsri_part_check(k->op, k->parts, *(const int64_t *)in[1]));
    return tsri_fast_run(kernel, in, out, scratch);
}

tsr_status tsri_fast_rows(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool takes = d->op == TSRI_OP_PART;
    const tsri_part_box b = tsri_part_box_of(d);
    tsri_kernel_desc moved = *d;
    moved.nin = 1; /* of one dtype */
    if (b.boxes != 1 || d->in[1].dtype != TSR_I64)
        return tsri_fast_decline(d);
    mover *k = NULL;
    TSRI_TRY(make(mem, &moved, 1, &k));
    k->base.part = rows_part;
    k->base.base.run = rows_run;
    k->op = d->op;
    k->parts = d->attrs->part.parts;
    set_box(&k->box[0], b.ndim, b.shape, takes ? b.part : b.whole, takes ? b.whole : b.part);
    k->base.items = k->box[0].pieces;
    k->to_shift = takes ? 0 : b.shift;
    k->from_shift = takes ? b.shift : 0;
    *out_kernel = &k->base.base;
    return TSR_OK;
}
