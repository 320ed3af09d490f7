/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of a reshape. Two cursors walk over the axes of both shapes. A factor that both cursors'
 * axes have in common at their outer ends is an index; where they have no factor in common, the
 * rest can't be split, up to the next place where an axis ends in both shapes.
 */
#include "sbp/rule/rule.h"
#include "src/core/dims.h"

#include <string.h>

typedef struct side {
    const tsr_dims *dims;
    int axis;     /* the cursor */
    int64_t left; /* of that axis: the size behind what has been written */
    /* The indices of each axis: indices from first to end - 1, then a '.' or not. */
    int first[TSR_MAX_NDIM], end[TSR_MAX_NDIM];
    bool dot[TSR_MAX_NDIM];
} side;

/* Moves the cursor to the next axis with something left; false at the end. */
static bool seek(side *s, int index)
{
    while (s->left == 1) {
        if (++s->axis >= s->dims->ndim)
            return false;
        s->left = s->dims->d[s->axis];
        s->first[s->axis] = s->end[s->axis] = index;
    }
    return true;
}

/* Marks the rests of both axes, and whole axes behind them, as '.' until both have come as far. */
static void skip_to_boundary(side *a, side *b, int index)
{
    int64_t pa = a->left, pb = b->left;
    a->dot[a->axis] = b->dot[b->axis] = true;
    while (pa != pb) {
        side *s = pa < pb ? a : b;
        s->left = 1;
        if (!seek(s, index))
            break;
        s->dot[s->axis] = true;
        *(pa < pb ? &pa : &pb) *= s->left;
    }
    a->left = b->left = 1;
}

static int match(side *a, side *b, tsri_index_size *sizes)
{
    int n = 0;
    while (seek(a, n) && seek(b, n)) {
        int64_t g = tsri_gcd(a->left, b->left);
        if (g == 1) {
            skip_to_boundary(a, b, n);
            continue;
        }
        a->left /= g;
        b->left /= g;
        sizes[n] = (tsri_index_size){.name = {(char)('a' + n)}, .size = g};
        n++;
        a->end[a->axis] = b->end[b->axis] = n;
    }
    return n;
}

static size_t put(const side *s, char *buf)
{
    size_t at = 0;
    if (!s->dims->ndim) {
        memcpy(buf, "()", 2);
        return 2;
    }
    for (int i = 0; i < s->dims->ndim; i++) {
        int n = s->end[i] - s->first[i] + s->dot[i];
        if (i)
            buf[at++] = ' ';
        if (!n)
            buf[at++] = '1';
        if (n > 1)
            buf[at++] = '(';
        for (int l = s->first[i]; l < s->end[i]; l++) {
            if (l > s->first[i])
                buf[at++] = ' ';
            buf[at++] = (char)('a' + l);
        }
        if (s->dot[i] && n > 1)
            buf[at++] = ' ';
        if (s->dot[i])
            buf[at++] = '.';
        if (n > 1)
            buf[at++] = ')';
    }
    return at;
}

static tsr_status count_of(tsr_dims dims, int64_t *out_count)
{
    bool empty = false, too_many = dims.ndim < 0 || dims.ndim > TSR_MAX_NDIM;
    int64_t n = 1;
    for (int i = 0; i < dims.ndim && !too_many; i++) {
        empty |= dims.d[i] == 0;
        too_many = dims.d[i] < 0 || (dims.d[i] && __builtin_mul_overflow(n, dims.d[i], &n));
    }
    if (too_many)
        return tsri_fail(TSR_ERR_SHAPE, "reshape: a shape of %d axes, negative or too large",
                         dims.ndim);
    *out_count = empty ? 0 : n;
    return TSR_OK;
}

tsr_status tsri_rule_reshape(tsr_dims from, tsr_dims to, char *buf, size_t buf_size,
                             tsri_index_size *out_sizes, int *out_nsizes)
{
    int64_t nfrom = 0, nto = 0;
    char text[256]; /* two sides of at most 8 axes and 15 indices */
    side a = {.dims = &from, .axis = -1, .left = 1}, b = {.dims = &to, .axis = -1, .left = 1};
    TSRI_TRY(count_of(from, &nfrom));
    TSRI_TRY(count_of(to, &nto));
    if (nfrom != nto)
        return tsri_fail(TSR_ERR_SHAPE, "reshape: from %lld elements to %lld", (long long)nfrom,
                         (long long)nto);
    *out_nsizes = 0;
    if (nfrom)
        *out_nsizes = match(&a, &b, out_sizes);
    else
        for (int i = 0; i < TSR_MAX_NDIM; i++)
            a.dot[i] = b.dot[i] = true; /* nothing to gain from splitting nothing */
    size_t at = 0;
    text[at++] = '^';
    at += put(&a, text + at);
    memcpy(text + at, " -> ", 4);
    at += 4;
    at += put(&b, text + at);
    text[at] = 0;
    if (at >= buf_size)
        return tsri_fail(TSR_ERR_INTERNAL, "reshape: no room for the rule");
    memcpy(buf, text, at + 1);
    return TSR_OK;
}
