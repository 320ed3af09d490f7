/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cuda/local_device.h"

#include "tests/dist/comm/send_recv_values.h"

#include <tessera/placement.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- ranks ------------------------------------------------------------------------------------ */

typedef struct spawned {
    const ld_setup *setup;
    ld_body *body;
    void *arg;
} spawned;

static tsr_status open_rank(ld_rank *r, const ld_setup *s)
{
    int ranks[TSRI_ARENA_MAX_RANKS];
    void *block;
    for (int i = 0; i < r->w->nranks; i++)
        ranks[i] = i;
    if (s->deferred)
        TSRI_TRY(deferred_open(r->w, LD_BLOCK + 4096, &r->d));
    else
        TSRI_TRY(tsri_device_get(r->w, TSR_DEVICE_CUDA, &r->d));
    TSRI_TRY(r->d->ops->buffer_alloc(r->d, LD_BLOCK, &block));
    TSRI_TRY(r->d->ops->stream_sync(r->d, r->d->stream));
    r->block = block;
    for (int i = 0; i < LD_STREAMS; i++)
        TSRI_TRY(r->d->ops->stream_create(r->d, &r->stream[i]));
    if (s->shares)
        return tsri_local_device_make(r->w, r->d, r->w->nranks, ranks, TSRI_DEVICE_COMM_PLANS, true,
                                      &r->c);
    return tsri_local_create_device(r->w, r->d, r->w->nranks, ranks, TSRI_DEVICE_COMM_PLANS, &r->c);
}

static void close_rank(ld_rank *r, const ld_setup *s)
{
    if (r->c)
        r->c->ops->destroy(r->c);
    for (int i = 0; i < LD_STREAMS; i++)
        if (r->stream[i])
            r->d->ops->stream_destroy(r->d, r->stream[i]);
    if (r->d && s->deferred)
        r->d->ops->close(r->d);
    for (int i = 0; i < r->npending; i++)
        free(r->pending[i].expected);
}

static tsr_status run_rank(tsr_world *w, void *arg)
{
    const spawned *s = arg;
    ld_rank *r = calloc(1, sizeof *r);
    if (!r)
        return tsri_fail(TSR_ERR_NO_MEMORY, "no memory");
    r->w = w;
    r->host = w->region.base;
    r->arg = s->arg;
    r->common = 1;
    r->random = (uint64_t)w->rank + 1;
    tsr_status status = open_rank(r, s->setup);
    if (status == TSR_OK)
        status = s->body(r);
    if (status == TSR_OK)
        status = ld_flush(r);
    close_rank(r, s->setup);
    free(r);
    return status;
}

void ld_spawn_ok(const ld_setup *setup, int n, ld_body *body, void *arg)
{
    spawned s = {setup, body, arg};
    tsr_world_opts o = {.size = sizeof o, .arena_bytes = LD_BLOCK, .timeout_s = 60, .threads = 1};
    if (setup->deferred)
        deferred_set((uint64_t)n, setup->eager);
    tsr_status status = tsr_spawn_with(n, run_rank, &s, &o);
    deferred_report report = setup->deferred ? deferred_finish() : (deferred_report){.works = 1};
    if (status != TSR_OK)
        fail_msg("%s, %d ranks: %s: %s", setup->name, n, tsr_status_name(status), tsr_last_error());
    if (report.faults || report.left)
        fail_msg("%s, %d ranks: %d faults (%s), %d things not given back", setup->name, n,
                 report.faults, report.first, report.left);
    assert_true(report.works > 0);
}

const ld_setup *ld_setups(void)
{
    static const ld_setup deferred[] = {
        {.name = "as late as can be", .deferred = true},
        {.name = "at random", .deferred = true, .eager = 40},
        {.name = "nearly at once", .deferred = true, .eager = 95},
        {.name = "as processes", .deferred = true, .shares = true},
        {.name = NULL},
    };
    static const ld_setup module[] = {{.name = "the module"}, {.name = NULL}};
    return getenv("TESSERA_CUDA_MODULE") ? module : deferred;
}

tsr_status ld_groups(ld_rank *r, int lane, tsri_group **out_host, tsri_group **out_device)
{
    int ranks[TSRI_ARENA_MAX_RANKS];
    for (int i = 0; i < r->w->nranks; i++)
        ranks[i] = i;
    TSRI_TRY(r->w->comm->ops->group(r->w->comm, r->w->nranks, ranks, lane, out_host));
    return r->c->ops->group(r->c, r->w->nranks, ranks, lane, out_device);
}

/* --- calls on both memories ------------------------------------------------------------------- */

/* Any numbers whose order of summing shows in the last bits. */
static void put_random(uint64_t *state, tsr_dtype t, char *to, size_t bytes)
{
    size_t size = tsr_dtype_size(t);
    for (size_t i = 0; i < bytes; i += size) {
        uint64_t z = sr_random(state);
        double d = ((double)(z >> 12) / (double)((uint64_t)1 << 52) - 0.5) * (double)(1 << (z & 7));
        float f = (float)d;
        uint16_t half = t == TSR_F16 ? (uint16_t)((z & 0x83ff) | (10 + (z >> 20) % 8) << 10)
                                     : (uint16_t)((z & 0x807f) | (120 + (z >> 20) % 10) << 7);
        uint8_t truth = z >> 8 & 1;
        const void *from = t == TSR_F32                    ? (const void *)&f
                           : t == TSR_F64                  ? (const void *)&d
                           : t == TSR_F16 || t == TSR_BF16 ? (const void *)&half
                           : t == TSR_BOOL                 ? (const void *)&truth
                                                           : &z;
        memcpy(to + i, from, size);
    }
}

static int64_t piece(const tsri_segment *s, int axis, const tsri_group *g)
{
    int64_t offset, length, count = 1;
    for (int a = 0; a < s->shape.ndim; a++) {
        length = s->shape.d[a];
        if (a == axis)
            tsr_balanced_split(s->shape.d[a], g->nranks, g->index, &offset, &length);
        count *= length;
    }
    return count;
}

static void sides(const tsri_coll *c, const tsri_segment *s, const tsri_group *g, bool gives,
                  size_t *out_src, size_t *out_dst)
{
    size_t size = tsr_dtype_size(s->dtype);
    bool sends = c->kind == TSRI_COLL_SEND_RECV, is_root = g->index == c->root;
    *out_src = (size_t)(sends ? WHOLE : piece(s, s->src_axis, g)) * size;
    *out_dst = (size_t)(sends ? s->dst_count : piece(s, s->dst_axis, g)) * size;
    if ((sends && !gives) || (c->kind == TSRI_COLL_BROADCAST && !is_root))
        *out_src = 0;
    if (c->kind == TSRI_COLL_REDUCE && !is_root)
        *out_dst = 0;
}

static tsr_status call(tsri_group *g, const tsri_coll *c)
{
    tsri_ticket t;
    TSRI_TRY(g->comm->ops->start(g, c, &t));
    TSRI_TRY(g->comm->ops->finish(g, &t));
    return g->comm->ops->release(g, &t);
}

static tsr_status expect(ld_rank *r, const tsri_coll *c, int i, const char *host, size_t bytes)
{
    if (bytes == 0)
        return TSR_OK;
    ld_pending *p = &r->pending[r->npending++];
    *p = (ld_pending){
        .dst = c->seg[i].dst, .expected = malloc(bytes), .bytes = bytes, .stream = c->stream};
    CHECK(p->expected);
    memcpy(p->expected, host, bytes);
    snprintf(p->what, sizeof p->what, "%s '%s' algo %d op %d, segment %d %s",
             tsri_coll_kind_name(c->kind), c->what, c->algo, c->op, i,
             tsr_dtype_name(c->seg[i].dtype));
    return TSR_OK;
}

/* Lays the sides out, and gives src its values on both memories. */
static tsr_status lay_out(ld_rank *r, const tsri_coll *c, const tsri_group *g, int i, bool gives,
                          tsri_segment *host, tsri_segment *device)
{
    size_t src, dst;
    sides(c, host, g, gives, &src, &dst);
    size_t from = r->used, to = from + (src + 63) / 64 * 64;
    r->used = to + (dst + 63) / 64 * 64;
    CHECK(r->used <= LD_BLOCK && i < LD_PENDING);
    put_random(&r->random, host->dtype, r->host + from, src);
    memset(r->host + to, 0x5a, dst);
    TSRI_TRY(r->d->ops->copy_in(r->d, r->block + from, r->host + from, src, c->stream));
    TSRI_TRY(r->d->ops->copy_in(r->d, r->block + to, r->host + to, dst, c->stream));
    host->src = src ? r->host + from : NULL;
    host->dst = dst ? r->host + to : NULL;
    device->src = src ? r->block + from : NULL;
    device->dst = dst ? r->block + to : NULL;
    return TSR_OK;
}

tsr_status ld_both(ld_rank *r, tsri_group *host, tsri_group *device, tsri_coll c,
                   const tsri_segment *seg, const bool *gives)
{
    static char garbage[LD_BLOCK]; /* not const: it would lie in the file */
    tsri_segment on_host[LD_PENDING], on_device[LD_PENDING];
    tsri_comm_stats before, after;
    uint64_t bytes = 0;
    CHECK(c.nseg <= LD_PENDING);
    if (r->npending + c.nseg > LD_PENDING || r->used > LD_BLOCK / 2)
        TSRI_TRY(ld_flush(r));
    c.stream = r->stream[sr_below(&r->random, LD_STREAMS)];
    for (int i = 0; i < c.nseg; i++) {
        on_host[i] = on_device[i] = seg[i];
        TSRI_TRY(lay_out(r, &c, device, i, !gives || gives[i], &on_host[i], &on_device[i]));
        bytes += tsri_coll_bytes(c.kind, c.algo, device->nranks, device->index, c.root, &seg[i]);
    }
    c.seg = on_host;
    TSRI_TRY(call(host, &c));
    c.seg = on_device;
    r->c->ops->stats(r->c, &before);
    TSRI_TRY(call(device, &c));
    r->c->ops->stats(r->c, &after);
    CHECK(after.calls[c.kind] == before.calls[c.kind] + 1);
    CHECK(after.bytes_read[c.kind] - before.bytes_read[c.kind] == bytes);
    for (int i = 0; i < c.nseg; i++) {
        size_t src, dst;
        sides(&c, &seg[i], device, !gives || gives[i], &src, &dst);
        TSRI_TRY(expect(r, &c, i, on_host[i].dst, dst));
        if (src)
            TSRI_TRY(r->d->ops->copy_in(r->d,
                                        r->block + ((const char *)on_device[i].src - r->block),
                                        garbage, src, c.stream));
    }
    return TSR_OK;
}

tsr_status ld_flush(ld_rank *r)
{
    tsr_status status = TSR_OK;
    while (r->npending > 0) {
        int i = sr_below(&r->random, r->npending);
        ld_pending p = r->pending[i];
        r->pending[i] = r->pending[--r->npending];
        char *got = malloc(p.bytes);
        if (status == TSR_OK && got)
            status = r->d->ops->copy_out(r->d, got, p.dst, p.bytes, p.stream);
        if (status == TSR_OK && memcmp(got, p.expected, p.bytes))
            status = tsri_fail(TSR_ERR_INTERNAL, "rank %d of %d: %s: not the host's result",
                               r->w->rank, r->w->nranks, p.what);
        free(got);
        free(p.expected);
    }
    for (int i = 0; i < LD_STREAMS && status == TSR_OK; i++)
        status = r->d->ops->stream_sync(r->d, r->stream[i]);
    r->used = 0;
    return status;
}
