/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/page/moves.h"

#include <cjson/cJSON.h>

tsr_status page_move_init(tsri_pool *pool, const tsri_route_query *q, const tsri_route_step *step,
                          page_move *out_move)
{
    const tsri_mesh *mesh = step->on_dst ? &q->to.mesh : &q->from.mesh;
    int most = q->from.mesh.nranks + q->to.mesh.nranks;
    *out_move = (page_move){.rank = tsri_pool_alloc(pool, (size_t)most * sizeof(int))};
    TSRI_NEED(out_move->rank);
    int n = tsri_step_group(q, step, tsri_mesh_rank(mesh, 0), out_move->rank);
    if (n > PAGE_MOVE_RANKS)
        return TSR_OK;
    out_move->bytes = tsri_pool_alloc(pool, ((size_t)n * (size_t)n + 1) * sizeof(int64_t));
    TSRI_NEED(out_move->bytes);
    out_move->n = n;
    return TSR_OK;
}

static int place_of(const page_move *m, int rank)
{
    int i = 0;
    while (i < m->n && m->rank[i] != rank)
        i++;
    return i;
}

/* Each rank reads its n-th of the part from all others, reduces it, and then reads theirs. */
static void add_two_phases(const tsri_route_query *q, const tsri_route_step *step, int reader,
                           page_move *m)
{
    const tsri_mesh *mesh = step->on_dst ? &q->to.mesh : &q->from.mesh;
    int64_t at[TSR_MAX_NDIM], offset, mine, theirs;
    tsr_dims part;
    tsri_layout_part(q->shape, mesh, &step->from, tsri_mesh_find(mesh, m->rank[reader]), at, &part);
    int64_t all = tsr_dims_count(part);
    tsr_balanced_split(all, m->n, reader, &offset, &mine);
    for (int j = 0; j < m->n; j++) {
        tsr_balanced_split(all, m->n, j, &offset, &theirs);
        if (j != reader)
            m->bytes[reader * m->n + j] += (mine + theirs) * (int64_t)q->element;
    }
}

static void add_piece(const tsri_route_query *q, const tsri_piece *piece, int reader, page_move *m)
{
    int64_t bytes = (int64_t)q->element;
    for (int a = 0; a < q->shape.ndim; a++)
        bytes *= piece->length[a];
    for (int i = 0; i < piece->nsrc; i++) {
        int j = place_of(m, piece->src[i]);
        if (j != reader && j < m->n)
            m->bytes[reader * m->n + j] += bytes;
    }
}

tsr_status page_move_add(tsri_pool *pool, const tsri_route_query *q, const tsri_route_step *step,
                         page_move *move)
{
    for (int i = 0; i < move->n; i++) {
        tsri_piece *pieces;
        int n;
        bool fill;
        if (step->two_phase) {
            add_two_phases(q, step, i, move);
            continue;
        }
        TSRI_TRY(tsri_step_pieces(pool, q, step, move->rank[i], &n, &pieces, &fill));
        for (int p = 0; p < n; p++)
            add_piece(q, &pieces[p], i, move);
    }
    return TSR_OK;
}

cJSON *page_move_json(const page_move *m)
{
    if (m->n == 0)
        return NULL;
    cJSON *json = cJSON_CreateObject(), *rows = cJSON_CreateArray();
    cJSON_AddItemToObject(json, "ranks", cJSON_CreateIntArray(m->rank, m->n));
    for (int i = 0; i < m->n; i++) {
        double row[PAGE_MOVE_RANKS];
        for (int j = 0; j < m->n; j++)
            row[j] = (double)m->bytes[i * m->n + j];
        cJSON_AddItemToArray(rows, cJSON_CreateDoubleArray(row, m->n));
    }
    cJSON_AddItemToObject(json, "bytes", rows);
    return json;
}
