/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of a call before anything is said to peers. */
#include "src/comm/schedule/plan.h"

#include <tessera/placement.h>

/* --- pulls ------------------------------------------------------------------------------------ */
/* The least and the greatest element of one side. */
static void extent_of(const tsri_pull *p, int64_t at, const int64_t *step, int64_t *out_low,
                      int64_t *out_high)
{
    *out_low = *out_high = at;
    for (int a = 0; a < p->ndim; a++) {
        int64_t reach = (p->length[a] - 1) * step[a];
        *(reach < 0 ? out_low : out_high) += reach;
    }
}

static tsr_status check_pull(const tsri_coll *c, int i, int k, int n, int index)
{
    const tsri_segment *s = &c->seg[i];
    const tsri_pull *p = &s->pulls[k];
    bool reads_own = false, is_empty = false;
    if (p->nsrc < 1 || p->nsrc > n || !p->src)
        return tsri_coll_invalid(c, i, "pull %d has %d sources in a group of %d ranks", k, p->nsrc,
                                 n);
    for (int m = 0; m < p->nsrc; m++) {
        if (p->src[m] < 0 || p->src[m] >= n)
            return tsri_coll_invalid(c, i, "pull %d reads member %d of a group of %d ranks", k,
                                     p->src[m], n);
        reads_own |= p->src[m] == index;
    }
    if (p->ndim < 0 || p->ndim > TSR_MAX_NDIM)
        return tsri_coll_invalid(c, i, "pull %d has %d axes; at most %d", k, p->ndim, TSR_MAX_NDIM);
    for (int a = 0; a < p->ndim; a++) {
        if (p->length[a] < 0 || (p->length[a] > 1 && p->dst_step[a] == 0))
            return tsri_coll_invalid(c, i, "axis %d of pull %d has length %lld and dst_step %lld",
                                     a, k, (long long)p->length[a], (long long)p->dst_step[a]);
        is_empty |= p->length[a] == 0;
    }
    if (is_empty)
        return TSR_OK;
    int64_t low, high, src_low, src_high;
    extent_of(p, p->dst_at, p->dst_step, &low, &high);
    extent_of(p, p->src_at, p->src_step, &src_low, &src_high);
    if (low < 0 || high >= s->dst_count)
        return tsri_coll_invalid(c, i,
                                 "pull %d writes elements %lld to %lld of dst, which has %lld", k,
                                 (long long)low, (long long)high, (long long)s->dst_count);
    if (src_low < 0)
        return tsri_coll_invalid(c, i, "pull %d reads element %lld", k, (long long)src_low);
    if (!reads_own)
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
static int64_t side_count(const tsri_segment *s, int axis, int n, int index)
{
    int64_t offset, length, count = 1;
    for (int a = 0; a < s->shape.ndim; a++) {
        tsr_split(s->shape.d[a], n, index, &offset, &length);
        count *= a == axis ? length : s->shape.d[a];
    }
    return count;
}

/* Whether src and dst may be one buffer. */
static bool may_be_same(const tsri_coll *c, int n, bool by_message)
{
    bool reduces = c->kind == TSRI_COLL_ALL_REDUCE || c->kind == TSRI_COLL_REDUCE ||
                   c->kind == TSRI_COLL_REDUCE_SCATTER;
    return n == 1 || c->kind == TSRI_COLL_BROADCAST || (by_message && reduces);
}

static tsr_status check_segment(const tsri_coll *c, int i, int n, int index, bool by_message)
{
    const tsri_segment *s = &c->seg[i];
    if (c->kind == TSRI_COLL_SEND_RECV)
        return check_pulls(c, i, n, index);
    int64_t nsrc = side_count(s, s->src_axis, n, index);
    int64_t ndst = side_count(s, s->dst_axis, n, index);
    if (c->kind == TSRI_COLL_BROADCAST && index != c->root)
        nsrc = 0;
    if (c->kind == TSRI_COLL_REDUCE && index != c->root)
        ndst = 0;
    if ((nsrc && !s->src) || (ndst && !s->dst))
        return tsri_coll_invalid(c, i, nsrc && !s->src ? "src is NULL" : "dst is NULL");
    uintptr_t src = (uintptr_t)s->src, dst = (uintptr_t)s->dst, size = tsr_dtype_size(s->dtype);
    bool same = src == dst && s->dst_axis <= 0 && may_be_same(c, n, by_message);
    if (nsrc && ndst && src < dst + (uintptr_t)ndst * size && dst < src + (uintptr_t)nsrc * size &&
        !same)
        return tsri_coll_invalid(c, i, "src and dst overlap");
    return TSR_OK;
}

tsr_status tsri_nccl_check(const tsri_coll *c, int n, int index, bool by_message)
{
    TSRI_TRY(tsri_coll_check(c, n));
    for (int i = 0; i < c->nseg; i++)
        TSRI_TRY(check_segment(c, i, n, index, by_message));
    return TSR_OK;
}
