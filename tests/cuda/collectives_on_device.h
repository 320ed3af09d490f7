/* SPDX-License-Identifier: Apache-2.0 */
/* Given to the compiler in front of tests of collectives that are written for host memory
 * (-include): each call is made on copies in the memory of the rank's GPU, and the results are
 * brought back when it is done. */
#ifndef TESSERA_TESTS_CUDA_COLLECTIVES_ON_DEVICE_H
#define TESSERA_TESTS_CUDA_COLLECTIVES_ON_DEVICE_H

#include <tessera/tessera.h>
#include "src/comm/collective/collective.h"

#include <stdlib.h>
#include <string.h>

#define ON_DEVICE 1

enum { ON_DEVICE_BUFFERS = 20 };

/* A call under way. */
typedef struct on_device_call {
    struct on_device_call *next;
    tsr_work *work;
    tsr_world *world;
    int n;
    struct {
        void *host, *device;
        size_t bytes;
        bool back; /* the call writes it */
    } b[ON_DEVICE_BUFFERS];
} on_device_call;

static _Thread_local on_device_call *on_device_calls;

/* A copy of the host's buffer; an earlier one if there is one. NULL stays NULL. */
static inline void *on_device_put(on_device_call *c, const void *host, size_t bytes, bool back)
{
    if (!host)
        return NULL;
    for (int i = 0; i < c->n; i++)
        if (c->b[i].host == host && c->b[i].bytes >= bytes) {
            c->b[i].back |= back;
            return c->b[i].device;
        }
    void *device;
    if (tsr_alloc_on(c->world, TSR_DEVICE_CUDA, bytes + 64, &device) != TSR_OK ||
        tsr_copy(c->world, device, host, bytes) != TSR_OK)
        abort();
    c->b[c->n].host = (void *)(uintptr_t)host;
    c->b[c->n].device = device;
    c->b[c->n].bytes = bytes;
    c->b[c->n++].back = back;
    return device;
}

static inline tsr_status on_device_end(on_device_call *c, tsr_status status)
{
    for (int i = 0; i < c->n; i++) {
        if (status == TSR_OK && c->b[i].back)
            status = tsr_copy(c->world, c->b[i].host, c->b[i].device, c->b[i].bytes);
        tsr_free(c->world, c->b[i].device);
    }
    free(c);
    return status;
}

static inline on_device_call *on_device_begin(tsr_group *g)
{
    on_device_call *c = calloc(1, sizeof *c);
    if (!c)
        abort();
    c->world = g->engine->world;
    return c;
}

static inline tsr_status on_device_done(on_device_call *c, tsr_status status, tsr_work **out_work)
{
    if (status != TSR_OK || !out_work)
        return on_device_end(c, status);
    c->work = *out_work;
    c->next = on_device_calls;
    on_device_calls = c;
    return TSR_OK;
}

static inline tsr_status on_device_wait(tsr_work **work, double timeout_s)
{
    tsr_work *w = work ? *work : NULL;
    tsr_status status = tsr_work_wait(work, timeout_s);
    for (on_device_call **at = &on_device_calls; w && !*work && *at; at = &(*at)->next)
        if ((*at)->work == w) {
            on_device_call *c = *at;
            *at = c->next;
            return on_device_end(c, status);
        }
    return status;
}

static inline size_t on_device_bytes(int64_t count, tsr_dtype t)
{
    return (size_t)(count > 0 ? count : 0) * tsr_dtype_size(t);
}

static inline tsr_status on_device_all_reduce(tsr_group *g, void *data, int64_t count, tsr_dtype t,
                                              tsr_reduce_op op, tsr_work **out_work,
                                              const char *file, int line)
{
    on_device_call *c = on_device_begin(g);
    void *d = on_device_put(c, data, on_device_bytes(count, t), true);
    return on_device_done(c, tsr_all_reduce_at(g, d, count, t, op, out_work, file, line), out_work);
}

static inline tsr_status on_device_broadcast(tsr_group *g, void *data, int64_t count, tsr_dtype t,
                                             int root, tsr_work **out_work, const char *file,
                                             int line)
{
    on_device_call *c = on_device_begin(g);
    void *d = on_device_put(c, data, on_device_bytes(count, t), true);
    return on_device_done(c, tsr_broadcast_at(g, d, count, t, root, out_work, file, line),
                          out_work);
}

static inline tsr_status on_device_reduce(tsr_group *g, void *data, int64_t count, tsr_dtype t,
                                          tsr_reduce_op op, int root, tsr_work **out_work,
                                          const char *file, int line)
{
    on_device_call *c = on_device_begin(g);
    void *d = on_device_put(c, data, on_device_bytes(count, t), true);
    return on_device_done(c, tsr_reduce_at(g, d, count, t, op, root, out_work, file, line),
                          out_work);
}

static inline tsr_status on_device_all_gather(tsr_group *g, const void *src, void *const *dst,
                                              int64_t count, tsr_dtype t, tsr_work **out_work,
                                              const char *file, int line)
{
    on_device_call *c = on_device_begin(g);
    void *list[ON_DEVICE_BUFFERS], *s = on_device_put(c, src, on_device_bytes(count, t), false);
    for (int i = 0; i < tsr_group_size(g); i++)
        list[i] = on_device_put(c, dst[i], on_device_bytes(count, t), true);
    return on_device_done(c, tsr_all_gather_at(g, s, list, count, t, out_work, file, line),
                          out_work);
}

static inline tsr_status on_device_all_gather_into(tsr_group *g, const void *src, void *dst,
                                                   int64_t count, tsr_dtype t, tsr_work **out_work,
                                                   const char *file, int line)
{
    on_device_call *c = on_device_begin(g);
    void *d = on_device_put(c, dst, on_device_bytes(count * tsr_group_size(g), t), true);
    void *s = on_device_put(c, src, on_device_bytes(count, t), false);
    return on_device_done(c, tsr_all_gather_into_at(g, s, d, count, t, out_work, file, line),
                          out_work);
}

static inline tsr_status on_device_reduce_scatter(tsr_group *g, const void *src, void *dst,
                                                  int64_t count, tsr_dtype t, tsr_reduce_op op,
                                                  tsr_work **out_work, const char *file, int line)
{
    on_device_call *c = on_device_begin(g);
    void *s = on_device_put(c, src, on_device_bytes(count * tsr_group_size(g), t), false);
    void *d = on_device_put(c, dst, on_device_bytes(count, t), true);
    return on_device_done(c, tsr_reduce_scatter_at(g, s, d, count, t, op, out_work, file, line),
                          out_work);
}

static inline int64_t on_device_sum(tsr_group *g, const int64_t *counts)
{
    int64_t sum = 0;
    for (int i = 0; i < tsr_group_size(g); i++)
        sum += counts[i];
    return sum;
}

static inline tsr_status on_device_all_to_all(tsr_group *g, const void *src,
                                              const int64_t *src_counts, void *dst,
                                              const int64_t *dst_counts, tsr_dtype t,
                                              tsr_work **out_work, const char *file, int line)
{
    on_device_call *c = on_device_begin(g);
    void *s = on_device_put(c, src, on_device_bytes(on_device_sum(g, src_counts), t), false);
    void *d = on_device_put(c, dst, on_device_bytes(on_device_sum(g, dst_counts), t), true);
    return on_device_done(
        c, tsr_all_to_all_at(g, s, src_counts, d, dst_counts, t, out_work, file, line), out_work);
}

static inline tsr_status on_device_gather_to(tsr_group *g, const void *src, void *dst,
                                             int64_t count, tsr_dtype t, int root,
                                             tsr_work **out_work, const char *file, int line)
{
    on_device_call *c = on_device_begin(g);
    void *s = on_device_put(c, src, on_device_bytes(count, t), false);
    void *d = on_device_put(c, dst, on_device_bytes(count * tsr_group_size(g), t), true);
    return on_device_done(c, tsr_gather_to_at(g, s, d, count, t, root, out_work, file, line),
                          out_work);
}

static inline tsr_status on_device_scatter_from(tsr_group *g, const void *src, void *dst,
                                                int64_t count, tsr_dtype t, int root,
                                                tsr_work **out_work, const char *file, int line)
{
    on_device_call *c = on_device_begin(g);
    void *s = on_device_put(c, src, on_device_bytes(count * tsr_group_size(g), t), false);
    void *d = on_device_put(c, dst, on_device_bytes(count, t), true);
    return on_device_done(c, tsr_scatter_from_at(g, s, d, count, t, root, out_work, file, line),
                          out_work);
}

static inline tsr_status on_device_send(tsr_group *g, const void *data, int64_t count, tsr_dtype t,
                                        int to, int tag, tsr_work **out_work, const char *file,
                                        int line)
{
    on_device_call *c = on_device_begin(g);
    void *d = on_device_put(c, data, on_device_bytes(count, t), false);
    return on_device_done(c, tsr_send_at(g, d, count, t, to, tag, out_work, file, line), out_work);
}

static inline tsr_status on_device_recv(tsr_group *g, void *data, int64_t count, tsr_dtype t,
                                        int from, int tag, tsr_work **out_work, const char *file,
                                        int line)
{
    on_device_call *c = on_device_begin(g);
    void *d = on_device_put(c, data, on_device_bytes(count, t), true);
    return on_device_done(c, tsr_recv_at(g, d, count, t, from, tag, out_work, file, line),
                          out_work);
}

#define tsr_work_wait on_device_wait
#define tsr_all_reduce_at on_device_all_reduce
#define tsr_broadcast_at on_device_broadcast
#define tsr_reduce_at on_device_reduce
#define tsr_all_gather_at on_device_all_gather
#define tsr_all_gather_into_at on_device_all_gather_into
#define tsr_reduce_scatter_at on_device_reduce_scatter
#define tsr_all_to_all_at on_device_all_to_all
#define tsr_gather_to_at on_device_gather_to
#define tsr_scatter_from_at on_device_scatter_from
#define tsr_send_at on_device_send
#define tsr_recv_at on_device_recv

#endif
