/* SPDX-License-Identifier: Apache-2.0 */
/* Variables that are held in P(sum): each rank has an addend, and the value is their sum. */
#include <string.h>

#include "placement/placement.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/core/convert.h"
#include "src/graph/variable.h"

bool tsri_variable_adds_up(const tsr_variable *v)
{
    return tsri_sbp_dims(v->placement, v->held, TSR_SBP_PARTIAL) != 0;
}

bool tsri_variable_is_first_addend(const tsr_variable *v, int rank)
{
    int at = tsr_placement_find(v->placement, rank);
    bool first = at >= 0;
    for (int d = v->held.ndim - 1; d >= 0 && first; at /= tsr_placement_dim(v->placement, d--))
        first =
            v->held.d[d].kind != TSR_SBP_PARTIAL || at % tsr_placement_dim(v->placement, d) == 0;
    return first;
}

/* Whether two places of a placement hold addends of one part of the value. */
static bool have_same_part(const tsr_variable *v, int a, int b)
{
    bool same = true;
    for (int d = v->held.ndim - 1; d >= 0; d--) {
        const int n = tsr_placement_dim(v->placement, d);
        same &= v->held.d[d].kind == TSR_SBP_PARTIAL || a % n == b % n;
        a /= n;
        b /= n;
    }
    return same;
}

tsr_status tsri_variable_keep_addend(tsr_variable *v)
{
    enum { CHUNK = 4096 };
    static const char zeros[CHUNK];
    if (!v->data || !tsri_variable_adds_up(v) || tsri_variable_is_first_addend(v, v->world->rank))
        return TSR_OK;
    for (size_t at = 0; at < v->bytes; at += CHUNK)
        TSRI_TRY(tsri_variable_write(v, at, zeros, v->bytes - at < CHUNK ? v->bytes - at : CHUNK));
    return TSR_OK;
}

tsr_status tsri_add_elements(tsr_dtype dtype, void *to, const void *from, int64_t n)
{
    enum { CHUNK = 256 };
    const size_t size = tsr_dtype_size(dtype);
    double sum[CHUNK], more[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t m = n - i < CHUNK ? n - i : CHUNK;
        char *at = (char *)to + (size_t)i * size;
        TSRI_TRY(tsri_convert(sum, TSR_F64, at, dtype, m));
        TSRI_TRY(tsri_convert(more, TSR_F64, (const char *)from + (size_t)i * size, dtype, m));
        for (int64_t j = 0; j < m; j++)
            sum[j] += more[j];
        TSRI_TRY(tsri_convert(at, dtype, sum, TSR_F64, m));
    }
    return TSR_OK;
}

/* Exchanges addends, `piece` bytes of the `largest` shard at a time, and sums them. */
static tsr_status add_pieces(tsr_variable *v, size_t largest, size_t piece, char *all, char *out)
{
    tsri_comm *comm = v->world->comm;
    char *mine = all + (size_t)v->world->nranks * piece;
    const int here = tsr_placement_find(v->placement, v->world->rank);
    for (size_t begin = 0; begin < largest; begin += piece) {
        const size_t left = begin < v->bytes ? v->bytes - begin : 0,
                     n = left < piece ? left : piece;
        bool is_first = true;
        TSRI_TRY(tsri_variable_read(v, begin, mine, n));
        TSRI_TRY(comm->ops->exchange(comm, mine, piece, all));
        for (int i = 0; n && i < tsr_placement_nranks(v->placement); i++) {
            const char *from = all + (size_t)tsr_placement_rank(v->placement, i) * piece;
            if (!have_same_part(v, i, here))
                continue;
            if (is_first)
                memcpy(out + begin, from, n);
            else
                TSRI_TRY(tsri_add_elements(v->dtype, out + begin, from,
                                           (int64_t)(n / tsr_dtype_size(v->dtype))));
            is_first = false;
        }
    }
    return TSR_OK;
}

tsr_status tsri_variable_sum(tsr_variable *v, void *out)
{
    enum { EXCHANGE_MAX = 65536 };
    tsr_world *w = v->world;
    size_t largest = 0;
    for (int i = 0; i < tsr_placement_nranks(v->placement); i++) {
        tsr_dims lshape;
        int64_t offset[TSR_MAX_NDIM];
        tsri_shard(v->shape, v->placement, v->held, tsr_placement_rank(v->placement, i), &lshape,
                   offset);
        const size_t bytes = (size_t)tsr_dims_count(lshape) * tsr_dtype_size(v->dtype);
        largest = bytes > largest ? bytes : largest;
    }
    const size_t piece = largest < EXCHANGE_MAX ? largest : EXCHANGE_MAX;
    char *all = tsri_mem_alloc(&w->mem, ((size_t)w->nranks + 1) * piece);
    tsr_status status = tsri_agree(w, all ? TSR_OK : TSR_ERR_NO_MEMORY);
    if (status == TSR_OK)
        status = add_pieces(v, largest, piece, all, out);
    tsri_mem_free(all);
    return status;
}
