/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of many small segments: what goes from one member to another goes in few messages. A
 * message costs a round trip and several system calls, copying a few KiB next to nothing. Both
 * sides see the same sizes in the same order, and so merge the same pieces.
 */
#include "src/comm/gloo/inside.h"

#include <string.h>

/* Pieces above SMALL go alone; messages of several are at most MESSAGE bytes. */
enum { SMALL = 16 * 1024, MESSAGE = 256 * 1024 };

/* The message that a piece goes in, and where in it. */
typedef struct part {
    int message;
    size_t at;
} part;

typedef struct merged {
    part *parts; /* of each piece */
    tsri_gloo_piece *messages;
    int *count, *open; /* pieces of each message; the message that a member's next small
                        * piece may join, received and sent (-1: none) */
    int n;
} merged;

static void place_pieces(merged *m, const tsri_gloo_piece *pieces, int n)
{
    for (int i = 0; i < n; i++) {
        const tsri_gloo_piece *p = &pieces[i];
        int *open = &m->open[2 * p->peer + p->send], at = *open;
        if (p->bytes > SMALL || at < 0 || m->messages[at].bytes + p->bytes > MESSAGE) {
            at = m->n++;
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
static tsr_status find_room(tsri_gloo_group *g, merged *m, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < m->n; i++)
        bytes += m->count[i] > 1 ? m->messages[i].bytes : 0;
    if (bytes > g->joint_bytes) {
        tsri_mem_free(g->joint);
        g->joint_bytes = 0;
        g->joint = tsri_mem_alloc(NULL, bytes);
        if (!g->joint)
            return TSR_ERR_NO_MEMORY;
        g->joint_bytes = bytes;
    }
    char *at = g->joint;
    for (int i = 0; i < m->n; i++) {
        if (m->count[i] < 2)
            continue;
        m->messages[i].data = at;
        at += m->messages[i].bytes;
    }
    for (int i = 0; i < n; i++)
        if (m->count[m->parts[i].message] == 1)
            m->messages[m->parts[i].message].data = g->pieces[i].data;
    return TSR_OK;
}

static void copy_joint(const tsri_gloo_group *g, const merged *m, int n, bool sent)
{
    for (int i = 0; i < n; i++) {
        const tsri_gloo_piece *p = &g->pieces[i];
        if (p->send != sent || m->count[m->parts[i].message] < 2)
            continue;
        char *joint = (char *)m->messages[m->parts[i].message].data + m->parts[i].at;
        memcpy(sent ? joint : p->data, sent ? p->data : joint, p->bytes);
    }
}

tsr_status tsri_gloo_move(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot, int n)
{
    size_t count = (size_t)n, members = (size_t)g->pub.nranks;
    tsri_gloo_post *post;
    if (n == 0)
        return TSR_OK;
    char *block =
        tsri_mem_alloc(NULL, count * (sizeof(part) + sizeof(tsri_gloo_piece) + sizeof(int)) +
                                 2 * members * sizeof(int));
    if (!block)
        return TSR_ERR_NO_MEMORY;
    merged m = {.messages = (tsri_gloo_piece *)(void *)block};
    m.parts = (part *)(void *)(m.messages + n);
    m.count = (int *)(void *)(m.parts + n);
    m.open = m.count + n;
    memset(m.open, -1, 2 * members * sizeof(int));
    place_pieces(&m, g->pieces, n);
    tsr_status status = find_room(g, &m, n);
    if (status == TSR_OK) {
        copy_joint(g, &m, n, true);
        status = tsri_gloo_post_pieces(g, job, slot, m.n, m.messages, &post);
    }
    if (status == TSR_OK) {
        status = tsri_gloo_wait_pieces(g, job, post, 0, m.n);
        g->comm->root->api->mesh_drop(g->mesh, post);
    }
    if (status == TSR_OK)
        copy_joint(g, &m, n, false);
    tsri_mem_free(block);
    return status;
}
