/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/mirror/deferred_device.h"

#include "src/comm/local/local.h"
#include "src/core/clock.h"
#include "src/core/identity.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct deferred deferred;

/* One recording of an event. */
typedef struct point {
    tsri_stream *stream;
    bool done;
    double at_s; /* when it was done */
    int refs;
} point;

struct tsri_event {
    tsri_event *next, *original; /* original: of one that was opened */
    point *last;
    bool shared, destroyed;
};

typedef enum work_kind { COPY, MOVE, FILL, CALL, RECORD, WAIT } work_kind;

typedef struct work {
    struct work *next;
    work_kind kind;
    tsri_move move; /* MOVE; of FILL: dtype, op, dst and length[0] */
    const void *src[64];
    const tsri_kernel *kernel; /* CALL: the operand of fn */
    deferred_fn *fn;
    void *arg;
    point *point;
    size_t bytes; /* COPY: of `data` to move.dst */
    char data[];
} work;

struct tsri_stream {
    tsri_stream *next;
    deferred *device;
    work *head, *tail;
    bool destroyed;
};

struct deferred {
    tsri_device base;
    deferred *next;
    tsri_region region; /* addresses that nobody may touch */
    char *memory;       /* its bytes */
    size_t low, high;   /* memory between these was never taken */
    int fail_in;        /* moves; 0: never, -1: has failed */
    tsri_stream *compute;
    /* The first failure of a call that check() has not reported yet. */
    tsr_status failure;
    const tsri_kernel *failed;
    char text[1024];
};

/* All of it is under the lock. */
static struct machine {
    pthread_mutex_t lock;
    uint64_t random;
    int eager, opened;
    deferred *devices;
    tsri_stream *streams;
    tsri_event *events;
    deferred_report report;
} machine = {.lock = PTHREAD_MUTEX_INITIALIZER, .random = 1};

static deferred *of(tsri_device *d)
{
    return (deferred *)d;
}

static tsri_stream *stream_of(tsri_device *d, tsri_stream *s)
{
    return s ? s : of(d)->compute;
}

static int below(int n)
{
    uint64_t z = machine.random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

static void fault(const char *fmt, ...) TSR_PRINTF(1, 2);
static void fault(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (machine.report.faults++ == 0)
        vsnprintf(machine.report.first, sizeof machine.report.first, fmt, args);
    va_end(args);
}

/* --- doing work ------------------------------------------------------------------------------- */

char *deferred_reach(const void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p;
    for (const deferred *d = machine.devices; d; d = d->next)
        if (tsri_region_has(&d->region, p, bytes))
            return d->memory + (at - (uintptr_t)d->region.base);
    fault("work on %lld bytes at %p, in no open device's region", (long long)bytes, p);
    return NULL;
}

/* Finds where the base of one side of the move is in memory. False unless all is there that the
 * move touches of it. */
static bool side_reach(const tsri_move *m, const void *base, int64_t at, const int64_t *step,
                       char **out_base)
{
    int64_t low = at, high = at, size = (int64_t)tsr_dtype_size(m->dtype);
    for (int a = 0; a < m->ndim; a++) {
        int64_t reach = (m->length[a] - 1) * step[a];
        *(reach < 0 ? &low : &high) += reach;
    }
    char *first =
        deferred_reach((const char *)base + low * size, (size_t)((high - low + 1) * size));
    if (first)
        *out_base = first - low * size;
    return first != NULL;
}

static void do_move(const tsri_move *m)
{
    size_t size = tsr_dtype_size(m->dtype);
    tsri_reduce_fn *reduce = m->nsrc > 1 ? tsri_reduce_of(m->dtype, m->op) : NULL;
    int64_t index[TSR_MAX_NDIM] = {0}, count = 1;
    char *dst, *src[64];
    for (int a = 0; a < m->ndim; a++)
        count *= m->length[a];
    if (count == 0 || !side_reach(m, m->dst, m->dst_at, m->dst_step, &dst))
        return;
    for (int k = 0; k < m->nsrc; k++)
        if (!side_reach(m, m->src[k], m->src_at, m->src_step, &src[k]))
            return;
    for (int64_t i = 0; i < count; i++) {
        int64_t from = m->src_at, to = m->dst_at;
        char result[8]; /* dst may be the first source */
        for (int a = 0; a < m->ndim; a++) {
            from += index[a] * m->src_step[a];
            to += index[a] * m->dst_step[a];
        }
        if (reduce)
            reduce(result, (const char *const *)src, from, m->nsrc, 1);
        else
            memcpy(result, src[0] + from * (int64_t)size, size);
        memcpy(dst + to * (int64_t)size, result, size);
        for (int a = m->ndim - 1; a >= 0 && ++index[a] == m->length[a]; a--)
            index[a] = 0;
    }
}

/* Does a call, and remembers its failure for check(). The error text of this thread, which may be
 * another rank's than the one that queued the call, stays what it was. */
static void do_call(const work *w, deferred *d)
{
    char before[1024];
    snprintf(before, sizeof before, "%s", tsr_last_error());
    tsr_status status = w->fn(w->arg);
    if (status != TSR_OK && d->failure == TSR_OK) {
        d->failure = status;
        d->failed = w->kernel;
        snprintf(d->text, sizeof d->text, "%s", tsr_last_error());
    }
    if (before[0])
        tsri_fail(TSR_OK, "%s", before);
    else
        tsri_error_clear();
}

static void point_unref(point *p)
{
    if (p && --p->refs == 0)
        free(p);
}

static bool can_go(const tsri_stream *s)
{
    return s->head && (s->head->kind != WAIT || s->head->point->done);
}

static void do_first(tsri_stream *s)
{
    work *w = s->head;
    const tsri_move *m = &w->move;
    s->head = w->next;
    if (!s->head)
        s->tail = NULL;
    machine.report.works++;
    size_t bytes = w->kind == FILL ? (size_t)m->length[0] * tsr_dtype_size(m->dtype) : w->bytes;
    char *dst = bytes ? deferred_reach(m->dst, bytes) : NULL;
    if (w->kind == COPY && dst)
        memcpy(dst, w->data, bytes);
    if (w->kind == MOVE)
        do_move(m);
    if (w->kind == FILL && dst)
        tsri_fill_identity(m->dtype, m->op, m->length[0], dst);
    if (w->kind == CALL)
        do_call(w, s->device);
    if (w->kind == RECORD) {
        w->point->done = true;
        w->point->at_s = tsri_now_s();
    }
    point_unref(w->point);
    free(w);
}

/* Does the first work of a random stream that can go on; false if there is none. */
static bool do_any(void)
{
    int n = 0, k;
    for (tsri_stream *s = machine.streams; s; s = s->next)
        n += can_go(s);
    if (n == 0)
        return false;
    k = below(n);
    tsri_stream *s = machine.streams;
    while (!can_go(s) || k-- > 0)
        s = s->next;
    do_first(s);
    return true;
}

/* With the machine's chance, some works of random streams. */
static void wander(void)
{
    while (below(100) < machine.eager)
        if (!do_any())
            return;
}

/* Does what is in the stream, and what that waits for. A wait is for what was recorded before it,
 * so following them comes to something that can go on. */
static void settle(tsri_stream *stream)
{
    while (stream->head) {
        tsri_stream *s = stream;
        while (!can_go(s))
            s = s->head->point->stream;
        do_first(s);
        wander();
    }
}

static work *put(tsri_stream *s, work_kind kind, size_t bytes)
{
    work *w = calloc(1, sizeof *w + bytes);
    if (!w)
        abort();
    w->kind = kind;
    w->bytes = bytes;
    if (s->tail)
        s->tail->next = w;
    else
        s->head = w;
    s->tail = w;
    return w;
}

static void enter(void)
{
    pthread_mutex_lock(&machine.lock);
}

static tsr_status leave(void)
{
    wander();
    pthread_mutex_unlock(&machine.lock);
    return TSR_OK;
}

/* --- buffers, copies, moves ------------------------------------------------------------------- */

/* Fills new memory with a pattern that no test expects. */
static void spoil(deferred *d)
{
    const tsri_region *r = &d->region;
    for (; d->low < r->plan_bytes && d->low < d->high; d->low++)
        d->memory[d->low] = 0x77;
    while (d->high > r->top && d->high > d->low)
        d->memory[--d->high] = 0x77;
}

static tsr_status buffer_alloc(tsri_device *d, size_t bytes, void **out_ptr)
{
    TSRI_TRY(tsri_region_alloc(&of(d)->region, bytes, out_ptr));
    enter();
    spoil(of(d));
    put(of(d)->compute, COPY, bytes)->move.dst = *out_ptr;
    return leave();
}

static void buffer_free(tsri_device *d, void *ptr, size_t bytes)
{
    tsri_region_free(&of(d)->region, ptr, bytes);
}

static tsr_status plan_block(tsri_device *d, size_t bytes, void **out_base)
{
    TSRI_TRY(tsri_region_reserve_plan(&of(d)->region, bytes));
    *out_base = of(d)->region.base;
    enter();
    spoil(of(d));
    return leave();
}

static tsr_status copy_in(tsri_device *d, void *dst, const void *host_src, size_t bytes,
                          tsri_stream *stream)
{
    enter();
    work *w = put(stream_of(d, stream), COPY, bytes);
    w->move.dst = dst;
    if (bytes)
        memcpy(w->data, host_src, bytes);
    return leave();
}

static tsr_status copy_out(tsri_device *d, void *host_dst, const void *src, size_t bytes,
                           tsri_stream *stream)
{
    enter();
    settle(stream_of(d, stream));
    const char *from = bytes ? deferred_reach(src, bytes) : NULL;
    if (from)
        memcpy(host_dst, from, bytes);
    return leave();
}

static const tsri_kernels *const *no_kernels(void)
{
    static const tsri_kernels *const none[] = {NULL};
    return none;
}

static tsr_status move(tsri_device *d, const tsri_move *m, tsri_stream *stream)
{
    if (m->nsrc < 1 || m->nsrc > 64)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "a move of %d sources", m->nsrc);
    if (of(d)->fail_in > 0 && --of(d)->fail_in == 0)
        of(d)->fail_in = -1;
    if (of(d)->fail_in < 0)
        return tsri_fail(TSR_ERR_BACKEND, "the deferred device has fallen off the bus");
    enter();
    work *w = put(stream_of(d, stream), MOVE, 0);
    w->move = *m;
    memcpy(w->src, m->src, (size_t)m->nsrc * sizeof *m->src);
    w->move.src = w->src;
    return leave();
}

static tsr_status fill(tsri_device *d, tsr_dtype dtype, tsr_reduce_op op, int64_t count, void *dst,
                       tsri_stream *stream)
{
    enter();
    put(stream_of(d, stream), FILL, 0)->move =
        (tsri_move){.dtype = dtype, .op = op, .dst = dst, .ndim = 1, .length = {count}};
    return leave();
}

/* --- streams and events ----------------------------------------------------------------------- */

static tsr_status stream_create(tsri_device *d, tsri_stream **out_stream)
{
    tsri_stream *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->device = of(d);
    enter();
    s->next = machine.streams;
    machine.streams = s;
    *out_stream = s;
    return leave();
}

/* What is in it will still be done. */
static void stream_destroy(tsri_device *d, tsri_stream *stream)
{
    (void)d;
    enter();
    if (stream)
        stream->destroyed = true;
    leave();
}

static tsr_status stream_sync(tsri_device *d, tsri_stream *stream)
{
    enter();
    settle(stream_of(d, stream));
    return leave();
}

static tsr_status check(tsri_device *base)
{
    deferred *d = of(base);
    enter();
    tsr_status status = d->failure;
    if (status != TSR_OK) {
        base->faulty = d->failed;
        tsri_fail(status, "%s", d->text);
        d->failure = TSR_OK;
    }
    leave();
    return status;
}

void deferred_call(tsri_stream *stream, const tsri_kernel *kernel, deferred_fn *fn, void *arg)
{
    enter();
    work *w = put(stream, CALL, 0);
    w->kernel = kernel;
    w->fn = fn;
    w->arg = arg;
    leave();
}

void deferred_forget(tsri_stream *stream, const tsri_kernel *kernel)
{
    enter();
    settle(stream);
    if (stream->device->failed == kernel)
        stream->device->failure = TSR_OK; /* nobody asked for it, and nobody can any more */
    leave();
}

static tsri_event *add_event(bool shared, tsri_event *original)
{
    tsri_event *e = calloc(1, sizeof *e);
    if (!e)
        abort();
    e->shared = shared;
    e->original = original;
    e->next = machine.events;
    machine.events = e;
    return e;
}

static tsr_status event_create(tsri_device *d, bool timed, bool shared, tsri_event **out_event)
{
    (void)d;
    (void)timed;
    enter();
    *out_event = add_event(shared, NULL);
    return leave();
}

static void event_destroy(tsri_device *d, tsri_event *event)
{
    (void)d;
    enter();
    if (event && event->destroyed)
        fault("an event is destroyed twice");
    if (event)
        event->destroyed = true;
    leave();
}

static tsri_event *live_event(tsri_event *event)
{
    tsri_event *e = event->original ? event->original : event;
    if (event->destroyed || e->destroyed)
        fault("use of an event that was destroyed");
    return e;
}

static tsr_status event_record(tsri_device *d, tsri_event *event, tsri_stream *stream)
{
    enter();
    tsri_event *e = live_event(event);
    point *p = malloc(sizeof *p);
    if (!p)
        abort();
    *p = (point){.stream = stream_of(d, stream), .refs = 2};
    put(p->stream, RECORD, 0)->point = p;
    point_unref(e->last);
    e->last = p;
    return leave();
}

static tsr_status event_wait(tsri_device *d, tsri_stream *stream, tsri_event *event)
{
    enter();
    point *p = live_event(event)->last;
    if (stream_of(d, stream)->destroyed)
        fault("use of a stream that was destroyed");
    if (p && !p->done) {
        p->refs++;
        put(stream_of(d, stream), WAIT, 0)->point = p;
    }
    return leave();
}

static tsr_status event_seconds(tsri_device *d, tsri_event *from, tsri_event *to, double *out_s)
{
    (void)d;
    enter();
    const point *a = live_event(from)->last, *b = live_event(to)->last;
    bool done = a && b && a->done && b->done;
    if (done)
        *out_s = b->at_s - a->at_s;
    leave();
    return done ? TSR_OK : tsri_fail(TSR_ERR_STATE, "an event is not done yet");
}

/* The machine gets on with each question, so that waiting in a loop comes to an end. */
static tsr_status event_done(tsri_device *d, tsri_event *event, bool *out_done)
{
    (void)d;
    enter();
    const point *p = live_event(event)->last;
    if (p && !p->done)
        do_any();
    *out_done = !p || p->done;
    return leave();
}

static void *stream_native(tsri_device *d, tsri_stream *stream)
{
    (void)d;
    return stream;
}

/* --- sharing ---------------------------------------------------------------------------------- */

static tsr_status region_share(tsri_device *d, tsri_share *out_share)
{
    *out_share = (tsri_share){{0}};
    memcpy(out_share, &of(d)->region.base, sizeof of(d)->region.base);
    return TSR_OK;
}

static tsr_status region_open(tsri_device *d, const tsri_share *share, void **out_base)
{
    (void)d;
    memcpy(out_base, share, sizeof *out_base);
    enter();
    machine.opened++;
    return leave();
}

static void region_close(tsri_device *d, void *base)
{
    (void)d;
    enter();
    deferred_reach(base, 1);
    machine.opened--;
    leave();
}

static tsr_status event_share(tsri_device *d, tsri_event *event, tsri_share *out_share)
{
    (void)d;
    if (!event->shared)
        return tsri_fail(TSR_ERR_INVALID, "the event was not made for sharing");
    *out_share = (tsri_share){{0}};
    memcpy(out_share, &event, sizeof event);
    return TSR_OK;
}

static tsr_status event_open(tsri_device *d, const tsri_share *share, tsri_event **out_event)
{
    (void)d;
    tsri_event *original;
    memcpy(&original, share, sizeof original);
    enter();
    *out_event = add_event(false, original);
    return leave();
}

/* --- opening and closing ---------------------------------------------------------------------- */

/* Waits for its compute alone, as a GPU's does: who else has work on this memory is late. */
static void close_device(tsri_device *base)
{
    deferred *d = of(base);
    stream_sync(base, NULL);
    stream_destroy(base, d->compute);
    enter();
    for (deferred **at = &machine.devices; *at; at = &(*at)->next) {
        if (*at == d) {
            *at = d->next;
            break;
        }
    }
    leave();
    munmap(d->region.base, d->region.size);
    munmap(d->memory, d->region.size);
    tsri_region_finish(&d->region);
    free(d);
}

const tsri_device_ops deferred_ops = {
    .size = sizeof deferred_ops,
    .name = "deferred",
    .close = close_device,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .plan_block = plan_block,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .kernels = no_kernels,
    .move = move,
    .fill = fill,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .check = check,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_seconds = event_seconds,
    .region_share = region_share,
    .region_open = region_open,
    .region_close = region_close,
    .event_share = event_share,
    .event_open = event_open,
    .event_done = event_done,
    .stream_native = stream_native,
};

void deferred_set(uint64_t seed, int eager)
{
    machine.random = seed;
    machine.eager = eager;
}

tsr_status deferred_open(tsr_world *world, size_t bytes, tsri_device **out_device)
{
    deferred *d = calloc(1, sizeof *d);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *base = mmap(NULL, bytes, PROT_NONE, flags, -1, 0);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (!d || base == MAP_FAILED || memory == MAP_FAILED)
        abort();
    d->memory = memory;
    d->high = bytes;
    d->region = (tsri_region){.base = base, .size = bytes, .top = bytes};
    d->base.ops = &deferred_ops;
    d->base.world = world;
    d->base.kind = TSR_DEVICE_CUDA;
    d->base.region = &d->region;
    snprintf(d->base.id, sizeof d->base.id, "deferred");
    TSRI_TRY(stream_create(&d->base, &d->compute));
    d->base.stream = d->compute;
    enter();
    d->next = machine.devices;
    machine.devices = d;
    leave();
    *out_device = &d->base;
    return TSR_OK;
}

void deferred_fail(tsri_device *device, int n)
{
    of(device)->fail_in = n;
}

deferred_report deferred_finish(void)
{
    enter();
    machine.report.left = machine.opened;
    for (tsri_stream *s = machine.streams; s; s = s->next) {
        settle(s); /* on memory that is gone, perhaps: which is a fault */
        machine.report.left += !s->destroyed;
    }
    while (machine.streams) {
        tsri_stream *next = machine.streams->next;
        free(machine.streams);
        machine.streams = next;
    }
    while (machine.events) {
        tsri_event *next = machine.events->next;
        machine.report.left += !machine.events->destroyed;
        point_unref(machine.events->last);
        free(machine.events);
        machine.events = next;
    }
    deferred_report report = machine.report;
    machine.report = (deferred_report){0};
    machine.opened = 0;
    pthread_mutex_unlock(&machine.lock);
    return report;
}
