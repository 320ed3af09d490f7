/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that only move elements, of any dtype and any strides: copy, expand, permute, concat, split,
 * slice and pad. Each is one box of elements or several, and a box goes plane by plane: rows and
 * columns, columns being the destination's innermost axis.
 */
#include "kernels/cpu/fast/fast.h"
#include "kernels/cpu/ref/ref.h"

#include <string.h>

enum {
    TURN = 64,     /* rows and columns of a plane that are turned together: within a first cache */
    COLUMNS = 8192 /* elements of a row that are moved together */
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
    bool value;             /* pad: of what is around the operand; no operand */
} box;

typedef struct mover {
    tsri_fast base;
    size_t size; /* of an element */
    bool split;
    _Alignas(8) unsigned char value[8]; /* pad: of what is around the operand */
    int n;
    box box[]; /* of operand i, or of result i of a split */
} mover;

/* --- a plane ---------------------------------------------------------------------------------- */

/* At most 64 bytes, as pieces that may overlap. */
#define COPY_SHORT(BYTES)                                      \
    for (int64_t r = 0; r < rows; r++, to += tr, from += fr) { \
        char head[BYTES], tail[BYTES];                         \
        memcpy(head, from, BYTES);                             \
        memcpy(tail, from + bytes - (BYTES), BYTES);           \
        memcpy(to, head, BYTES);                               \
        memcpy(to + bytes - (BYTES), tail, BYTES);             \
    }

/* Rows of `bytes`; steps in bytes. */
static void copy_rows(char *to, int64_t tr, const char *from, int64_t fr, int64_t rows,
                      int64_t bytes)
{
    if (bytes > 64)
        for (int64_t r = 0; r < rows; r++)
            memmove(to + r * tr, from + r * fr, (size_t)bytes);
    else if (bytes >= 32)
        COPY_SHORT(32)
    else if (bytes >= 16)
        COPY_SHORT(16)
    else if (bytes >= 8)
        COPY_SHORT(8)
    else if (bytes >= 4)
        COPY_SHORT(4)
    else if (bytes >= 2)
        COPY_SHORT(2)
    else
        COPY_SHORT(1)
}

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
        copy_rows(to, p->tr * size, from, p->fr * size, p->rows, p->cols * size);
        return;
    }
    if (size == 4 && turns(p)) {
        k->base.isa->transpose((const float *)(const void *)from, p->fc, (float *)(void *)to, p->tr,
                               p->rows, p->cols);
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

static void move_box(const mover *k, const box *b, int part, const char *from, char *to)
{
    const int64_t first = tsri_fast_cut(b->pieces, k->base.threads, part, 1);
    const int64_t end = tsri_fast_cut(b->pieces, k->base.threads, part + 1, 1);
    const int64_t down = (b->all.rows + b->rows - 1) / b->rows, size = (int64_t)k->size;
    int64_t at[TSR_MAX_NDIM], off[2] = {b->to, b->from}, rest = first / b->across / down;
    for (int i = b->outer.ndim - 1; i >= 0; i--) {
        at[i] = rest % b->outer.size[i];
        rest /= b->outer.size[i];
        for (int o = 0; o < 2; o++)
            off[o] += at[i] * b->outer.stride[o][i];
    }
    int64_t r = first / b->across % down * b->rows, c = first % b->across * b->cols;
    for (int64_t n = first; n < end; n++) {
        plane p = b->all;
        p.rows = p.rows - r < b->rows ? p.rows - r : b->rows;
        p.cols = p.cols - c < b->cols ? p.cols - c : b->cols;
        move_plane(k, &p, to + (off[0] + r * p.tr + c * p.tc) * size,
                   from + (off[1] + r * p.fr + c * p.fc) * size);
        c += b->cols;
        if (c < b->all.cols)
            continue;
        c = 0;
        r += b->rows;
        if (r < b->all.rows)
            continue;
        r = 0;
        for (int i = b->outer.ndim - 1; i >= 0; i--) {
            for (int o = 0; o < 2; o++)
                off[o] += b->outer.stride[o][i];
            if (++at[i] < b->outer.size[i])
                break;
            for (int o = 0; o < 2; o++)
                off[o] -= at[i] * b->outer.stride[o][i];
            at[i] = 0;
        }
    }
}

static void move_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const mover *k = (const mover *)f;
    for (int i = 0; i < k->n; i++)
        if (k->box[i].pieces)
            move_box(k, &k->box[i], p->index,
                     k->box[i].value ? (const char *)k->value : p->in[k->split ? 0 : i],
                     p->out[k->split ? i : 0]);
}

static void fill_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const mover *k = (const mover *)f;
    const plane one = {.rows = 1, .cols = p->end - p->begin, .tc = 1};
    if (p->begin < p->end)
        move_plane(k, &one, (char *)p->out[0] + p->begin * (int64_t)k->size,
                   (const char *)k->value);
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
    k->n = n;
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
    k->split = split;
    for (int64_t i = 0, at = 0; i < n; at += part[i++].shape[axis]) {
        box *b = &k->box[i];
        *(split ? &b->from : &b->to) = at * whole->stride[axis];
        set_box(b, part[i].ndim, part[i].shape, split ? part[i].stride : whole->stride,
                split ? whole->stride : part[i].stride);
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_fast_slice(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *y = &d->out[0];
    mover *k = NULL;
    TSRI_TRY(make(mem, d, 1, &k));
    int64_t stride[TSR_MAX_NDIM];
    k->box[0].from = tsri_ref_view(d->attrs, &d->in[0], stride);
    set_box(&k->box[0], y->ndim, y->shape, y->stride, stride);
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
