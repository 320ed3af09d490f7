/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a call makes sense: the checks before anything is said to peers. */
#include "src/comm/comm.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/target/dtype.h"

tsr_status tsri_coll_invalid(const tsri_coll *c, int seg, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return tsri_fail_at(c->loc, TSR_ERR_INVALID, "%s '%s', segment %d: %s",
                        tsri_coll_kind_name(c->kind), c->what ? c->what : "", seg, text);
}

/* --- what all members say --------------------------------------------------------------------- */
static bool axis_fits(const tsri_segment *s, int axis, bool split)
{
    return split ? axis >= 0 && axis < s->shape.ndim : axis == -1;
}

static tsr_status check_description(const tsri_coll *c, int i)
{
    const tsri_segment *s = &c->seg[i];
    if (s->dtype <= TSR_DTYPE_NONE || s->dtype >= TSR_DTYPE_COUNT_)
        return tsri_coll_invalid(c, i, "no such dtype");
    if (s->shape.ndim < 0 || s->shape.ndim > TSR_MAX_NDIM)
        return tsri_coll_invalid(c, i, "too many axes");
    if (c->op == TSR_REDUCE_AVG && !tsri_is_float(s->dtype))
        return tsri_coll_invalid(c, i, "an average of %s", tsr_dtype_name(s->dtype));
    if (c->kind == TSRI_COLL_SEND_RECV)
        return TSR_OK;
    bool src_split = c->kind == TSRI_COLL_ALL_GATHER || c->kind == TSRI_COLL_ALL_TO_ALL;
    bool dst_split = c->kind == TSRI_COLL_REDUCE_SCATTER || c->kind == TSRI_COLL_ALL_TO_ALL;
    if (!axis_fits(s, s->src_axis, src_split))
        return tsri_coll_invalid(c, i,
                                 src_split ? "src_axis must be an axis of the shape"
                                           : "src_axis must be -1, whole");
    if (!axis_fits(s, s->dst_axis, dst_split))
        return tsri_coll_invalid(c, i,
                                 dst_split ? "dst_axis must be an axis of the shape"
                                           : "dst_axis must be -1, whole");
    return TSR_OK;
}

tsr_status tsri_coll_check(const tsri_coll *c, int nranks)
{
    /* Averages are of host memory: on a device their addends are scaled before. */
    tsr_reduce_op last = c->stream ? TSR_REDUCE_PRODUCT : TSR_REDUCE_AVG;
    if (c->kind < 0 || c->kind >= TSRI_COLL_KIND_COUNT_ || c->nseg < 0 || c->op < TSR_REDUCE_SUM ||
        c->op > last)
        return tsri_fail_at(c->loc, TSR_ERR_INVALID, "collective of kind %d, op %d, %d segments",
                            (int)c->kind, (int)c->op, c->nseg);
    if (c->root < 0 || c->root >= nranks)
        return tsri_fail_at(c->loc, TSR_ERR_INVALID, "%s '%s': root %d in a group of %d ranks",
                            tsri_coll_kind_name(c->kind), c->what ? c->what : "", c->root, nranks);
    for (int i = 0; i < c->nseg; i++)
        TSRI_TRY(check_description(c, i));
    return TSR_OK;
}

tsr_status tsri_coll_check_turn(const tsri_coll *c, uint64_t number, uint64_t next)
{
    if (number == next)
        return TSR_OK;
    return tsri_fail_at(c->loc, TSR_ERR_STATE,
                        "%s '%s' is call %llu of its group, but call %llu must be finished next: "
                        "calls finish in the order in which they started",
                        tsri_coll_kind_name(c->kind), c->what ? c->what : "",
                        (unsigned long long)number, (unsigned long long)next);
}

/* --- pulls ------------------------------------------------------------------------------------ */
void tsri_pull_extent(const tsri_pull *p, int64_t at, const int64_t *step, int64_t *out_low,
                      int64_t *out_high)
{
    *out_low = *out_high = at;
    for (int a = 0; a < p->ndim; a++) {
        int64_t reach = (p->length[a] - 1) * step[a];
        *(reach < 0 ? out_low : out_high) += reach;
    }
}

bool tsri_pull_is_empty(const tsri_pull *p)
{
    for (int a = 0; a < p->ndim; a++)
        if (p->length[a] == 0)
            return true;
    return false;
}

bool tsri_pull_reads(const tsri_pull *p, int member)
{
    for (int k = 0; k < p->nsrc; k++)
        if (p->src[k] == member)
            return true;
    return false;
}

bool tsri_coll_only_gives(const tsri_coll *c, int first, int nseg, int index)
{
    if (c->kind != TSRI_COLL_SEND_RECV)
        return false;
    for (int i = first; i < first + nseg; i++)
        for (int k = 0; k < c->seg[i].npulls; k++) {
            const tsri_pull *p = &c->seg[i].pulls[k];
            if (!tsri_pull_is_empty(p) && (p->nsrc > 1 || p->src[0] != index))
                return false;
        }
    return true;
}

static tsr_status check_pull(const tsri_coll *c, int i, int k, int n, int index)
{
    const tsri_segment *s = &c->seg[i];
    const tsri_pull *p = &s->pulls[k];
    if (p->nsrc < 1 || p->nsrc > n || !p->src)
        return tsri_coll_invalid(c, i, "pull %d has %d sources in a group of %d ranks", k, p->nsrc,
                                 n);
    for (int m = 0; m < p->nsrc; m++)
        if (p->src[m] < 0 || p->src[m] >= n)
            return tsri_coll_invalid(c, i, "pull %d reads member %d of a group of %d ranks", k,
                                     p->src[m], n);
    if (p->ndim < 0 || p->ndim > TSR_MAX_NDIM)
        return tsri_coll_invalid(c, i, "pull %d has %d axes; at most %d", k, p->ndim, TSR_MAX_NDIM);
    for (int a = 0; a < p->ndim; a++)
        if (p->length[a] < 0 || (p->length[a] > 1 && p->dst_step[a] == 0))
            return tsri_coll_invalid(c, i, "axis %d of pull %d has length %lld and dst_step %lld",
                                     a, k, (long long)p->length[a], (long long)p->dst_step[a]);
    if (tsri_pull_is_empty(p))
        return TSR_OK;
    int64_t low, high, src_low, src_high;
    tsri_pull_extent(p, p->dst_at, p->dst_step, &low, &high);
    tsri_pull_extent(p, p->src_at, p->src_step, &src_low, &src_high);
    if (low < 0 || high >= s->dst_count)
        return tsri_coll_invalid(c, i,
                                 "pull %d writes elements %lld to %lld of dst, which has %lld", k,
                                 (long long)low, (long long)high, (long long)s->dst_count);
    if (src_low < 0)
        return tsri_coll_invalid(c, i, "pull %d reads element %lld", k, (long long)src_low);
    if (!tsri_pull_reads(p, index))
        return TSR_OK;
    if (!s->src)
        return tsri_coll_invalid(c, i, "pull %d reads this rank's src, which is NULL", k);
    uintptr_t from = (uintptr_t)s->src, to = (uintptr_t)s->dst, size = tsr_dtype_size(s->dtype);
    if (from < to + (uintptr_t)s->dst_count * size && to < from + (uintptr_t)(src_high + 1) * size)
        return tsri_coll_invalid(c, i, "src and dst overlap");
    return TSR_OK;
}

static tsr_status check_pulls(const tsri_coll *c, int i, int n, int index)
{
    const tsri_segment *s = &c->seg[i];
    if (s->npulls < 0 || (s->npulls > 0 && !s->pulls) || s->dst_count < 0)
        return tsri_coll_invalid(c, i, "%d pulls at %p, dst of %lld elements", s->npulls,
                                 (const void *)s->pulls, (long long)s->dst_count);
    if (s->dst_count && (s->npulls || s->fill) && !s->dst)
        return tsri_coll_invalid(c, i, "dst is NULL");
    for (int k = 0; k < s->npulls; k++)
        TSRI_TRY(check_pull(c, i, k, n, index));
    return TSR_OK;
}

/* --- pieces ----------------------------------------------------------------------------------- */
/* Whether src and dst may be one buffer. */
static bool may_be_same(const tsri_coll *c, const tsri_segment *s, int n, bool by_message)
{
    bool reduces = c->kind == TSRI_COLL_ALL_REDUCE || c->kind == TSRI_COLL_REDUCE ||
                   c->kind == TSRI_COLL_REDUCE_SCATTER;
    return n == 1 || c->kind == TSRI_COLL_BROADCAST || (by_message && reduces && s->dst_axis <= 0);
}

void tsri_segment_sides(const tsri_coll *c, const tsri_segment *s, int n, int index,
                        size_t *out_src_bytes, size_t *out_dst_bytes)
{
    int64_t nsrc = tsri_segment_count(s, s->src_axis, n, index);
    int64_t ndst = tsri_segment_count(s, s->dst_axis, n, index);
    if (c->kind == TSRI_COLL_BROADCAST && index != c->root)
        nsrc = 0;
    if (c->kind == TSRI_COLL_REDUCE && index != c->root)
        ndst = 0;
    *out_src_bytes = (size_t)nsrc * tsr_dtype_size(s->dtype);
    *out_dst_bytes = (size_t)ndst * tsr_dtype_size(s->dtype);
}

tsr_status tsri_segment_check(const tsri_coll *c, int i, int n, int index, bool by_message)
{
    const tsri_segment *s = &c->seg[i];
    size_t nsrc, ndst;
    if (c->kind == TSRI_COLL_SEND_RECV)
        return check_pulls(c, i, n, index);
    tsri_segment_sides(c, s, n, index, &nsrc, &ndst);
    if ((nsrc && !s->src) || (ndst && !s->dst))
        return tsri_coll_invalid(c, i, nsrc && !s->src ? "src is NULL" : "dst is NULL");
    uintptr_t src = (uintptr_t)s->src, dst = (uintptr_t)s->dst;
    bool same = src == dst && may_be_same(c, s, n, by_message);
    if (nsrc && ndst && src < dst + ndst && dst < src + nsrc && !same)
        return tsri_coll_invalid(c, i, "src and dst overlap");
    return TSR_OK;
}

tsr_status tsri_coll_check_here(const tsri_coll *c, int n, int index, bool by_message)
{
    TSRI_TRY(tsri_coll_check(c, n));
    for (int i = 0; i < c->nseg; i++)
        TSRI_TRY(tsri_segment_check(c, i, n, index, by_message));
    return TSR_OK;
}
