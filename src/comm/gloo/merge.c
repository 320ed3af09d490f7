/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages. In calls of many small segments what goes from one member to another goes in few of
 * them: a message costs a round trip and several system calls, copying a few KiB next to nothing.
 * Both sides see the same sizes in the same order, and so merge the same pieces.
 */
#include "src/comm/gloo/inside.h"

#include <string.h>

/* Pieces above SMALL go alone; messages of several are at most MESSAGE bytes. */
enum { SMALL = 16 * 1024, MESSAGE = 256 * 1024 };

tsr_status tsri_gloo_reserve_pieces(tsri_gloo_group *g, int count)
{
    if (count <= g->room.cpieces)
        return TSR_OK;
    tsri_gloo_piece *p = tsri_mem_realloc(NULL, g->room.pieces, (size_t)count * sizeof *p);
    TSRI_NEED(p);
    g->room.pieces = p;
    g->room.cpieces = count;
    return TSR_OK;
}

tsr_status tsri_gloo_post_again(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot,
                                tsri_gloo_post *post)
{
    tsri_gloo_error err;
    tsri_gloo_result result =
        g->comm->root->api->mesh_post(g->mesh, slot, post, &g->where.at, &err);
    return result == TSRI_GLOO_OK ? TSR_OK : tsri_gloo_backend(g, job, result, &err);
}

tsr_status tsri_gloo_post_pieces(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot, int n,
                                 const tsri_gloo_piece *pieces, tsri_gloo_post **out_post)
{
    const tsri_gloo_api *api = g->comm->root->api;
    tsri_gloo_error err;
    tsri_gloo_post *post = NULL;
    tsri_gloo_result result = api->mesh_make(g->mesh, n, pieces, &post, &err);
    tsr_status status = result == TSRI_GLOO_OK ? TSR_OK : tsri_gloo_backend(g, job, result, &err);
    if (status == TSR_OK)
        status = tsri_gloo_post_again(g, job, slot, post);
    if (status != TSR_OK) {
        api->mesh_drop(g->mesh, post);
        return status;
    }
    *out_post = post;
    return TSR_OK;
}

tsr_status tsri_gloo_wait_pieces(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_post *post,
                                 int first, int end)
{
    tsri_gloo_error err;
    tsri_gloo_result result = g->comm->root->api->mesh_wait(g->mesh, post, first, end, &g->where.at,
                                                            &g->where.moved, &err);
    return result == TSRI_GLOO_OK ? TSR_OK : tsri_gloo_backend(g, job, result, &err);
}

/* --- several pieces in one -------------------------------------------------------------------- */
/* The message that a piece goes in, and where in it. */
typedef struct tsri_gloo_part {
    int message;
    size_t at;
} part;

/* open: the message that a member's next small piece may join, received and sent (-1: none). */
static void place_pieces(tsri_gloo_moves *m)
{
    m->nmessages = 0;
    for (int i = 0; i < m->npieces; i++) {
        const tsri_gloo_piece *p = &m->pieces[i];
        int *open = &m->open[2 * p->peer + p->send], at = *open;
        if (p->bytes > SMALL || at < 0 || m->messages[at].bytes + p->bytes > MESSAGE) {
            at = m->nmessages++;
            m->messages[at] = (tsri_gloo_piece){.peer = p->peer, .send = p->send};
            m->count[at] = 0;
            *open = p->bytes > SMALL ? -1 : at;
        }
        m->parts[i] = (part){at, m->messages[at].bytes};
        m->messages[at].bytes += p->bytes;
        m->count[at]++;
    }
}

/* Each message of several pieces gets room; one of one piece is that piece. */
static tsr_status find_room(tsri_gloo_moves *m)
{
    size_t bytes = 0;
    for (int i = 0; i < m->nmessages; i++)
        bytes += m->count[i] > 1 ? m->messages[i].bytes : 0;
    if (bytes > m->joint_bytes) {
        tsri_mem_free(m->joint);
        m->joint_bytes = 0;
        m->joint = tsri_mem_alloc(NULL, bytes);
        TSRI_NEED(m->joint);
        m->joint_bytes = bytes;
    }
    char *at = m->joint;
    for (int i = 0; i < m->nmessages; i++) {
        if (m->count[i] < 2)
            continue;
        m->messages[i].data = at;
        at += m->messages[i].bytes;
    }
    for (int i = 0; i < m->npieces; i++)
        if (m->count[m->parts[i].message] == 1)
            m->messages[m->parts[i].message].data = m->pieces[i].data;
    return TSR_OK;
}

/* Room for n pieces, in one block. */
static tsr_status reserve(tsri_gloo_moves *m, int n, int members)
{
    size_t count = (size_t)n;
    if (n <= m->capacity)
        return TSR_OK;
    tsri_mem_free(m->pieces);
    m->capacity = 0;
    m->pieces =
        tsri_mem_alloc(NULL, count * (2 * sizeof *m->pieces + sizeof *m->parts + sizeof *m->count) +
                                 2 * (size_t)members * sizeof *m->open);
    TSRI_NEED(m->pieces);
    m->messages = m->pieces + n;
    m->parts = (part *)(void *)(m->messages + n);
    m->count = (int *)(void *)(m->parts + n);
    m->open = m->count + n;
    m->capacity = n;
    return TSR_OK;
}

static bool is_same(const tsri_gloo_moves *m, const tsri_gloo_piece *pieces, int n)
{
    if (!m->post || m->npieces != n)
        return false;
    for (int i = 0; i < n; i++) {
        const tsri_gloo_piece *a = &m->pieces[i], *b = &pieces[i];
        if (a->data != b->data || a->bytes != b->bytes || a->peer != b->peer || a->send != b->send)
            return false;
    }
    return true;
}

tsr_status tsri_gloo_moves_make(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_moves *m,
                                int n)
{
    tsri_gloo_error err;
    if (is_same(m, g->room.pieces, n))
        return TSR_OK;
    m->npieces = 0;
    if (n == 0)
        return TSR_OK;
    TSRI_TRY(reserve(m, n, g->pub.nranks));
    memcpy(m->pieces, g->room.pieces, (size_t)n * sizeof *m->pieces);
    memset(m->open, -1, 2 * (size_t)g->pub.nranks * sizeof *m->open);
    m->npieces = n;
    place_pieces(m);
    tsr_status status = find_room(m);
    if (status == TSR_OK) {
        tsri_gloo_result result =
            g->comm->root->api->mesh_make(g->mesh, m->nmessages, m->messages, &m->post, &err);
        status = result == TSRI_GLOO_OK ? TSR_OK : tsri_gloo_backend(g, job, result, &err);
    }
    if (status != TSR_OK)
        m->npieces = 0;
    return status;
}

static void copy_joint(const tsri_gloo_moves *m, bool sent)
{
    for (int i = 0; i < m->npieces; i++) {
        const tsri_gloo_piece *p = &m->pieces[i];
        if (p->send != sent || m->count[m->parts[i].message] < 2)
            continue;
        char *joint = (char *)m->messages[m->parts[i].message].data + m->parts[i].at;
        memcpy(sent ? joint : p->data, sent ? p->data : joint, p->bytes);
    }
}

tsr_status tsri_gloo_moves_run(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot,
                               tsri_gloo_moves *m)
{
    if (m->npieces == 0)
        return TSR_OK;
    copy_joint(m, true);
    tsr_status status = tsri_gloo_post_again(g, job, slot, m->post);
    if (status == TSR_OK)
        status = tsri_gloo_wait_pieces(g, job, m->post, 0, m->nmessages);
    if (status != TSR_OK) {
        /* Nothing may arrive in its memory any more. */
        g->comm->root->api->mesh_drop(g->mesh, m->post);
        m->post = NULL;
        return status;
    }
    copy_joint(m, false);
    return TSR_OK;
}

tsr_status tsri_gloo_move(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot, int n)
{
    TSRI_TRY(tsri_gloo_moves_make(g, job, &g->moves, n));
    return tsri_gloo_moves_run(g, job, slot, &g->moves);
}

void tsri_gloo_moves_finish(tsri_gloo_group *g, tsri_gloo_moves *m)
{
    if (g->mesh)
        g->comm->root->api->mesh_drop(g->mesh, m->post);
    tsri_mem_free(m->pieces);
    tsri_mem_free(m->joint);
    *m = (tsri_gloo_moves){0};
}
