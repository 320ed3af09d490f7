/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by sends and receives alone: the parts of collectives that NCCL has calls of its own for.
 */
#include "src/comm/schedule/build.h"

static bool is_same_place(tsri_nccl_place a, tsri_nccl_place b)
{
    return a.where == b.where && a.seg == b.seg && a.at == b.at;
}

/* Piece i of n, of rows of `unit` elements, of what begins at `whole`. */
static tsri_nccl_place piece_at(tsri_nccl_place whole, tsr_dtype dtype, int64_t length,
                                int64_t unit, int n, int i)
{
    int64_t size = (int64_t)tsr_dtype_size(dtype);
    return tsri_nccl_shift(whole, tsri_nccl_offset(length, n, i) * unit * size);
}

void tsri_nccl_gather_direct(tsri_nccl_build *b, tsri_nccl_phase phase, tsr_dtype dtype,
                             int64_t length, int64_t unit, tsri_nccl_place src, tsri_nccl_place to)
{
    int64_t mine = tsri_nccl_length(length, b->n, b->me) * unit;
    tsri_nccl_place own = piece_at(to, dtype, length, unit, b->n, b->me);
    if (!is_same_place(src, own))
        tsri_nccl_push_flat(b, TSRI_NCCL_PACK, dtype, mine, 1, &src, own);
    for (int k = 1; k < b->n; k++) {
        int p = (b->me + k) % b->n, q = (b->me + b->n - k) % b->n;
        tsri_nccl_push_send(b, phase, dtype, mine, src, p);
        tsri_nccl_push_recv(b, phase, dtype, tsri_nccl_length(length, b->n, q) * unit,
                            piece_at(to, dtype, length, unit, b->n, q), q);
    }
}

void tsri_nccl_reduce_direct(tsri_nccl_build *b, int i, int64_t count)
{
    const tsri_segment *s = &b->coll->seg[i];
    int root = b->coll->root;
    int64_t mine = tsri_nccl_length(count, b->n, b->me);
    tsri_nccl_place dst = tsri_nccl_dst(i), part;
    bool is_root = b->me == root;
    part = is_root ? piece_at(dst, s->dtype, count, 1, b->n, root)
                   : tsri_nccl_stage(b, mine * (int64_t)tsr_dtype_size(s->dtype));
    tsri_nccl_reduce_part(b, TSRI_NCCL_BETWEEN, s, count, 1, tsri_nccl_src(i), part);
    if (!is_root)
        tsri_nccl_push_send(b, TSRI_NCCL_TALK_AGAIN, s->dtype, mine, part, root);
    for (int p = 0; p < b->n && is_root; p++)
        if (p != root)
            tsri_nccl_push_recv(b, TSRI_NCCL_TALK_AGAIN, s->dtype, tsri_nccl_length(count, b->n, p),
                                piece_at(dst, s->dtype, count, 1, b->n, p), p);
}

/* --- broadcasts ------------------------------------------------------------------------------- */
/* Down a binomial tree: member (root + i) has its parent where the lowest bit of i is cleared. */
static void broadcast_tree(tsri_nccl_build *b, const tsri_segment *s, int64_t count,
                           tsri_nccl_place src, tsri_nccl_place dst)
{
    int n = b->n, root = b->coll->root, i = (b->me - root + n) % n, low = i ? i & -i : n;
    if (i)
        tsri_nccl_push_recv(b, TSRI_NCCL_TALK, s->dtype, count, dst, (i - low + root) % n);
    for (int bit = 1; bit < low && i + bit < n; bit *= 2)
        tsri_nccl_push_send(b, TSRI_NCCL_TALK_AGAIN, s->dtype, count, i ? dst : src,
                            (i + bit + root) % n);
}

/* The root gives each other member a part, and these pass their parts around: no member sends or
 * receives more than the whole once. */
static void broadcast_parts(tsri_nccl_build *b, const tsri_segment *s, int64_t count,
                            tsri_nccl_place src, tsri_nccl_place dst)
{
    int n = b->n, root = b->coll->root, i = (b->me - root + n) % n, parts = n - 1;
    int64_t mine = i ? tsri_nccl_length(count, parts, i - 1) : 0;
    tsri_nccl_place own = i ? piece_at(dst, s->dtype, count, 1, parts, i - 1) : dst;
    if (i)
        tsri_nccl_push_recv(b, TSRI_NCCL_TALK, s->dtype, mine, own, root);
    for (int k = 1; k <= parts; k++) {
        int j = i ? (i - 1 + k) % parts + 1 : k, to = (root + j) % n;
        int64_t theirs = tsri_nccl_length(count, parts, j - 1);
        tsri_nccl_place part = piece_at(i ? dst : src, s->dtype, count, 1, parts, j - 1);
        if (!i)
            tsri_nccl_push_send(b, TSRI_NCCL_TALK, s->dtype, theirs, part, to);
        if (!i || j == i)
            continue;
        tsri_nccl_push_send(b, TSRI_NCCL_TALK_AGAIN, s->dtype, mine, own, to);
        tsri_nccl_push_recv(b, TSRI_NCCL_TALK_AGAIN, s->dtype, theirs, part, to);
    }
}

/* A member receives the whole either way; the tree has its root, or a child, send it several times,
 * the parts cost every member a message to and from each other. All segments go one way, as
 * messages between two members meet in their order. */
static bool goes_in_parts(const tsri_nccl_build *b)
{
    const int64_t least_bytes = 65536;
    int64_t bytes = 0;
    for (int i = 0; i < b->coll->nseg; i++)
        bytes +=
            tsr_dims_count(b->coll->seg[i].shape) * (int64_t)tsr_dtype_size(b->coll->seg[i].dtype);
    return b->n > 2 && bytes / (b->n - 1) >= least_bytes;
}

void tsri_nccl_broadcast_direct(tsri_nccl_build *b, int i, int64_t count)
{
    const tsri_segment *s = &b->coll->seg[i];
    tsri_nccl_place src = tsri_nccl_src(i), dst = tsri_nccl_dst(i);
    if (goes_in_parts(b))
        broadcast_parts(b, s, count, src, dst);
    else
        broadcast_tree(b, s, count, src, dst);
    if (b->me == b->coll->root)
        tsri_nccl_push_flat(b, TSRI_NCCL_UNPACK, s->dtype, count, 1, &src, dst);
}
