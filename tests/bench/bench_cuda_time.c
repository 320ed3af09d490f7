/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A measurement is a graph of many launches, between two events: the host's share is not in it.
 */
#include "bench_cuda.h"

#include "src/core/rng.h"
#include "src/core/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SETS = 8, MAX_REPEATS = 32, MAX_LAUNCHES = 500, PATTERN = 1 << 18 };
/* Several times the largest second-level cache. */
static const double rotate_bytes = 400e6;

/* --- operands --------------------------------------------------------------------------------- */
static bench_operand dense(tsr_dtype dtype, int ndim, const int64_t *shape, const int *order)
{
    bench_operand o = {.arg = {.dtype = dtype, .ndim = ndim}};
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        int axis = order[i];
        o.arg.shape[axis] = o.arg.gshape[axis] = shape[axis];
        o.arg.stride[axis] = step;
        step *= shape[axis];
    }
    return o;
}

bench_operand bench_row(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    return dense(dtype, ndim, shape, (const int[]){0, 1, 2, 3, 4, 5, 6, 7});
}

bench_operand bench_nhwc(tsr_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return dense(dtype, 4, (const int64_t[]){n, c, h, w}, (const int[]){0, 2, 3, 1});
}

bench_operand bench_vector(tsr_dtype dtype, int64_t n)
{
    return bench_row(dtype, 1, &n);
}

static int64_t count_of(const tsri_arg *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->ndim; i++)
        n *= a->shape[i];
    return n;
}

static size_t bytes_of(const tsri_arg *a)
{
    return (size_t)count_of(a) * tsr_dtype_size(a->dtype);
}

static double bytes_of_job(const bench_job *j)
{
    double bytes = 0;
    for (int i = 0; i < j->nin; i++)
        bytes += (double)bytes_of(&j->in[i].arg);
    for (int i = 0; i < j->nout; i++)
        bytes += (double)bytes_of(&j->out[i].arg);
    return bytes;
}

static double value_at(const bench_operand *o, int64_t i)
{
    double u = tsri_rng_uniform(7, 0, (uint64_t)i);
    double n = (double)o->classes;
    switch (o->fill) {
    case BENCH_POSITIVE:
        return u;
    case BENCH_LABEL:
        return (double)(int64_t)(u * n);
    case BENCH_STATS: /* mean 0.1, variance about 1: sums of x, then of x^2 */
        return i < o->arg.shape[2] ? 0.1 * n : 1.01 * n;
    case BENCH_ROW_STATS:
        return i % 2 == 0 ? 0.1 * n : 1.01 * n;
    case BENCH_LSE:
        return 3.5; /* each of two */
    case BENCH_HYPER:
        return i == TSRI_HYPER_SKIP ? 0 : i == TSRI_HYPER_LR ? 1e-4 : 0.5;
    default:
        return 2 * u - 1;
    }
}

static void convert(tsr_dtype dtype, const double *from, int64_t n, void *to)
{
    if (dtype == TSR_I64)
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)to)[i] = (int64_t)from[i];
    else
        tsri_convert(to, dtype, from, TSR_F64, n);
}

static tsr_status copy_on_device(tsri_device *d, tsr_dtype dtype, const void *src, void *dst,
                                 int64_t n)
{
    tsri_move m = {.dtype = dtype, .ndim = 1, .nsrc = 1, .src = &src, .dst = dst};
    m.length[0] = n;
    m.src_step[0] = m.dst_step[0] = 1;
    return d->ops->move(d, &m, d->stream);
}

/* The first elements come from the host, the others are copies of them. */
static tsr_status fill(bench_gpu *g, const bench_operand *o, void *p)
{
    int64_t n = count_of(&o->arg), first = n < PATTERN ? n : PATTERN;
    size_t size = tsr_dtype_size(o->arg.dtype);
    double *values = malloc((size_t)(first + 1) * sizeof *values);
    void *host = malloc((size_t)(first + 1) * size);
    tsr_status status = values && host ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; status == TSR_OK && i < first; i++)
        values[i] = value_at(o, i);
    if (status == TSR_OK) {
        convert(o->arg.dtype, values, first, host);
        status =
            g->device->ops->copy_in(g->device, p, host, (size_t)first * size, g->device->stream);
    }
    for (int64_t at = first; status == TSR_OK && at < n; at += first)
        status = copy_on_device(g->device, o->arg.dtype, p, (char *)p + (size_t)at * size,
                                n - at < first ? n - at : first);
    free(values);
    free(host);
    return status;
}

/* --- what is timed ---------------------------------------------------------------------------- */
/* One set of buffers for all jobs, and what runs on it. */
typedef struct set {
    void *(*in)[8], *(*out)[4];
    tsri_kernel *joined; /* NULL: one by one */
} set;

typedef struct run {
    bench_gpu *g;
    const bench_job *jobs;
    int n;
    tsri_kernel **kernels;
    set sets[MAX_SETS];
    int nsets;
    void *scratch;
    size_t scratch_bytes;
} run;

static tsr_status make_kernel(const bench_gpu *g, const bench_job *j, const tsri_kernels *impl,
                              tsri_kernel **out)
{
    tsri_kernel_desc d = {.op = j->op,
                          .attrs = &j->attrs,
                          .nin = j->nin,
                          .nout = j->nout,
                          .groups = j->groups,
                          .stream = g->device->stream};
    for (int i = 0; i < j->nin; i++)
        d.in[i] = j->in[i].arg;
    for (int i = 0; i < j->nout; i++)
        d.out[i] = j->out[i].arg;
    setenv("TESSERA_CUDA_AUTOTUNE", g->tuned ? "1" : "0", 1);
    if (!impl)
        return tsri_kernel_create(NULL, g->device->ops->kernels(), &d, out);
    return impl->slot[j->op] ? impl->slot[j->op](NULL, &d, out) : TSR_ERR_UNSUPPORTED;
}

static tsr_status make_set(run *r, set *s)
{
    tsri_device *d = r->g->device;
    s->in = calloc((size_t)r->n, sizeof *s->in);
    s->out = calloc((size_t)r->n, sizeof *s->out);
    if (!s->in || !s->out)
        return TSR_ERR_NO_MEMORY;
    for (int k = 0; k < r->n; k++) {
        const bench_job *j = &r->jobs[k];
        for (int i = 0; i < j->nin; i++) {
            TSRI_TRY(d->ops->buffer_alloc(d, bytes_of(&j->in[i].arg), &s->in[k][i]));
            TSRI_TRY(fill(r->g, &j->in[i], s->in[k][i]));
        }
        for (int i = 0; i < j->nout; i++) {
            if (j->in_place)
                s->out[k][i] = s->in[k][i];
            else
                TSRI_TRY(d->ops->buffer_alloc(d, bytes_of(&j->out[i].arg), &s->out[k][i]));
        }
    }
    return TSR_OK;
}

static tsr_status join(run *r, set *s)
{
    void *const **in = calloc((size_t)r->n, sizeof *in), *const **out =
                                                             calloc((size_t)r->n, sizeof *out);
    tsr_status status = in && out ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int k = 0; k < r->n && status == TSR_OK; k++) {
        in[k] = s->in[k];
        out[k] = s->out[k];
    }
    if (status == TSR_OK)
        status = r->kernels[0]->join(NULL, r->n, r->kernels, in, out, &s->joined);
    free(in);
    free(out);
    return status == TSR_ERR_UNSUPPORTED ? TSR_OK : status;
}

static tsr_status prepare(run *r, const tsri_kernels *impl, bench_time *out)
{
    tsri_device *d = r->g->device;
    r->kernels = calloc((size_t)r->n, sizeof *r->kernels);
    if (!r->kernels)
        return TSR_ERR_NO_MEMORY;
    out->bytes = 0;
    for (int k = 0; k < r->n; k++) {
        TSRI_TRY(make_kernel(r->g, &r->jobs[k], impl, &r->kernels[k]));
        size_t scratch = r->kernels[k]->scratch_bytes;
        r->scratch_bytes = scratch > r->scratch_bytes ? scratch : r->scratch_bytes;
        out->bytes += bytes_of_job(&r->jobs[k]);
    }
    out->impl = r->kernels[0]->impl;
    if (r->scratch_bytes)
        TSRI_TRY(d->ops->buffer_alloc(d, r->scratch_bytes, &r->scratch));
    double sets = rotate_bytes / (out->bytes + 1) + 1;
    r->nsets = r->g->tiny ? 1 : sets < MAX_SETS ? (int)sets : MAX_SETS;
    for (int i = 0; i < r->nsets; i++) {
        TSRI_TRY(make_set(r, &r->sets[i]));
        if (r->n > 1 && r->kernels[0]->join)
            TSRI_TRY(join(r, &r->sets[i]));
    }
    out->joined = r->sets[0].joined != NULL;
    return TSR_OK;
}

static void finish(run *r)
{
    tsri_device *d = r->g->device;
    d->ops->stream_sync(d, d->stream);
    for (int i = 0; i < r->nsets; i++) {
        set *s = &r->sets[i];
        for (int k = 0; s->in && s->out && k < r->n; k++) {
            const bench_job *j = &r->jobs[k];
            for (int a = 0; a < j->nin; a++)
                d->ops->buffer_free(d, s->in[k][a], bytes_of(&j->in[a].arg));
            for (int a = 0; a < j->nout && !j->in_place; a++)
                d->ops->buffer_free(d, s->out[k][a], bytes_of(&j->out[a].arg));
        }
        if (s->joined)
            s->joined->destroy(s->joined);
        free(s->in);
        free(s->out);
    }
    for (int k = 0; r->kernels && k < r->n; k++)
        if (r->kernels[k])
            r->kernels[k]->destroy(r->kernels[k]);
    free(r->kernels);
    d->ops->buffer_free(d, r->scratch, r->scratch_bytes);
}

/* --- timing ----------------------------------------------------------------------------------- */
typedef tsr_status launch_fn(void *arg, int i);

static tsr_status launch_run(void *arg, int i)
{
    run *r = arg;
    set *s = &r->sets[i % r->nsets];
    if (s->joined)
        return s->joined->run(s->joined, NULL, NULL, NULL);
    for (int k = 0; k < r->n; k++)
        TSRI_TRY(r->kernels[k]->run(r->kernels[k], s->in[k], s->out[k], r->scratch));
    return TSR_OK;
}

/* n launches, as a graph or, where captured is NULL, one by one; the seconds of all of them. */
static tsr_status time_once(tsri_device *d, tsri_event *events[2], tsri_captured *captured,
                            launch_fn *launch, void *arg, int n, double *out_s)
{
    TSRI_TRY(d->ops->event_record(d, events[0], d->stream));
    if (captured)
        TSRI_TRY(d->ops->captured_run(d, captured, d->stream));
    for (int i = 0; !captured && i < n; i++)
        TSRI_TRY(launch(arg, i));
    TSRI_TRY(d->ops->event_record(d, events[1], d->stream));
    TSRI_TRY(d->ops->stream_sync(d, d->stream));
    return d->ops->event_seconds(d, events[0], events[1], out_s);
}

/* A graph of n launches; *out is NULL where they can't be captured. */
static void capture(tsri_device *d, launch_fn *launch, void *arg, int n, tsri_captured **out)
{
    tsr_status status = d->ops->capture_begin(d, d->stream);
    *out = NULL;
    if (status != TSR_OK)
        return;
    for (int i = 0; i < n && status == TSR_OK; i++)
        status = launch(arg, i);
    if (d->ops->capture_end(d, d->stream, out) != TSR_OK)
        *out = NULL;
    if (status != TSR_OK && *out) {
        d->ops->captured_destroy(d, *out);
        *out = NULL;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tsr_status time_events(bench_gpu *g, tsri_event *events[2], launch_fn *launch, void *arg,
                              int nsets, bench_time *out)
{
    tsri_device *d = g->device;
    double s[MAX_REPEATS];
    int warm = g->tiny ? 1 : nsets < 3 ? 3 : nsets;
    tsri_captured *captured;
    /* The first launches load what they need; the next tell how many make a measurement. */
    for (int i = 0; i < 2; i++)
        TSRI_TRY(time_once(d, events, NULL, launch, arg, warm, &s[0]));
    double launches = s[0] > 0 ? g->seconds * warm / s[0] : MAX_LAUNCHES;
    int n = launches > MAX_LAUNCHES ? MAX_LAUNCHES : launches < nsets ? nsets : (int)launches;
    n = g->tiny ? 1 : n / nsets * nsets;
    capture(d, launch, arg, n, &captured);
    tsr_status status = TSR_OK;
    for (int i = 0; i < g->repeats && status == TSR_OK; i++)
        status = time_once(d, events, captured, launch, arg, n, &s[i]);
    if (captured)
        d->ops->captured_destroy(d, captured);
    TSRI_TRY(status);
    qsort(s, (size_t)g->repeats, sizeof *s, compare);
    out->median_s = s[g->repeats / 2] / n;
    out->min_s = s[0] / n;
    return TSR_OK;
}

static tsr_status time_launches(bench_gpu *g, launch_fn *launch, void *arg, int nsets,
                                bench_time *out)
{
    tsri_device *d = g->device;
    tsri_event *events[2] = {0};
    tsr_status status = d->ops->event_create(d, true, false, &events[0]);
    if (status == TSR_OK)
        status = d->ops->event_create(d, true, false, &events[1]);
    if (status == TSR_OK)
        status = time_events(g, events, launch, arg, nsets, out);
    d->ops->event_destroy(d, events[0]);
    d->ops->event_destroy(d, events[1]);
    return status;
}

tsr_status bench_run(bench_gpu *g, const bench_job *jobs, int n, const tsri_kernels *impl,
                     bench_time *out_time)
{
    run r = {.g = g, .jobs = jobs, .n = n};
    tsr_status status = prepare(&r, impl, out_time);
    if (status == TSR_OK)
        status = time_launches(g, launch_run, &r, r.nsets, out_time);
    finish(&r);
    return status;
}

/* --- the card's own copy ---------------------------------------------------------------------- */
typedef struct copy {
    bench_gpu *g;
    void *src, *dst;
    int64_t bytes;
} copy;

static tsr_status launch_copy(void *arg, int i)
{
    copy *c = arg;
    (void)i;
    return copy_on_device(c->g->device, TSR_U8, c->src, c->dst, c->bytes);
}

tsr_status bench_copy(bench_gpu *g, bench_time *out_time)
{
    tsri_device *d = g->device;
    copy c = {.g = g, .bytes = g->tiny ? 1 << 20 : 256 << 20};
    bench_operand data = bench_vector(TSR_F32, c.bytes / 4);
    tsr_status status = d->ops->buffer_alloc(d, (size_t)c.bytes, &c.src);
    if (status == TSR_OK)
        status = d->ops->buffer_alloc(d, (size_t)c.bytes, &c.dst);
    if (status == TSR_OK)
        status = fill(g, &data, c.src);
    if (status == TSR_OK)
        status = time_launches(g, launch_copy, &c, 1, out_time);
    out_time->impl = "cudaMemcpyAsync";
    out_time->joined = false;
    out_time->bytes = 2 * (double)c.bytes;
    d->ops->buffer_free(d, c.src, (size_t)c.bytes);
    d->ops->buffer_free(d, c.dst, (size_t)c.bytes);
    return status;
}

/* --- devices ---------------------------------------------------------------------------------- */
static void stay_silent(void *arg, tsr_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

tsr_status bench_open(bench_gpu *g, bool tf32, bool tuned)
{
    setenv("TESSERA_CUDA_TF32", tf32 ? "1" : "0", 1);
    setenv("TESSERA_CUDA_ARENA_BYTES", g->tiny ? "268435456" : "6442450944", 0);
    g->tuned = tuned;
    TSRI_TRY(tsr_world_create(TSR_WORLD_OPTS(.log = stay_silent), &g->world));
    return tsri_device_get(g->world, TSR_DEVICE_CUDA, &g->device);
}

void bench_close(bench_gpu *g)
{
    tsr_world_destroy(g->world);
    g->world = NULL;
    g->device = NULL;
}
