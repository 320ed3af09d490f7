/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's streams and events; graphs.cc has captures and graphs. A stream's work is done in its
 * order; between streams only events make an order, and in a graph only its edges. Nothing is done
 * when it is enqueued: a thread of the host does work when it waits for a stream or an event, or
 * asks after one, and begins with the work that this stream or event depends on. So work is done as
 * late as it can be, and a missing wait gives wrong values. EMULATED_SEED=N draws another order for
 * each N: some work, of any stream, is then done now and then behind a call (seed 0, the default:
 * none).
 *
 * A call that CUDA refuses is refused, with a line that begins with "emulator:": within a capture
 * calls that may wait or allocate, a wait for an event from outside of it, copies from or to
 * pageable memory; the capture's end with work that was not joined; launches and records on a
 * stream of another device. The device that EMULATED_NO_GRAPH names can't make a graph of a
 * capture; that of EMULATED_NO_CAPTURE ("device:number") can't capture the launch of this number,
 * from 1, in a stream whose capture others have joined.
 */
#include "tests/cuda/emulator/control.h"
#include "tests/cuda/emulator/streams.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>

/* They outlive the threads of a program that ends by exit. */
std::mutex &tsri_emulated_lock = *new std::mutex;
static std::mutex &lock = tsri_emulated_lock;
static std::condition_variable &changed = *new std::condition_variable;
static std::vector<CUstream_st *> &streams = *new std::vector<CUstream_st *>;
typedef std::unique_lock<std::mutex> hold;
enum { LONGEST_WAIT = 100 }; /* seconds; far more than any test's timeout */

static cudaError_t fail(cudaError_t e)
{
    return tsri_emulated_fail(e);
}

cudaError_t tsri_emulated_refuse(cudaError_t e, const char *why, const char *name)
{
    fprintf(stderr, "emulator: %s%s%s\n", why, *name ? ": " : "", name);
    return fail(e);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- chance ----------------------------------------------------------------------------------- */
static std::atomic<unsigned> &seed(void)
{
    static const char *said = getenv("EMULATED_SEED");
    static std::atomic<unsigned> n(said ? (unsigned)atoi(said) : 0);
    return n;
}

extern "C" __attribute__((visibility("default"))) void tsri_emulated_reseed(unsigned n)
{
    seed() = n;
}

std::mt19937 &tsri_emulated_dice(void)
{
    static unsigned threads;
    static thread_local std::mt19937 *d =
        new std::mt19937(seed() * 1000003u + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED));
    return *d;
}

/* How likely work is done before anybody waits for it, in percent. */
static unsigned eagerness(void)
{
    return seed() * 37 % 100;
}

/* --- doing work ------------------------------------------------------------------------------- */
static bool can_go(const CUstream_st *s)
{
    return !s->busy && !s->queue.empty() &&
           (s->queue.front().kind != WAIT || s->queue.front().at->done);
}

static void remove_dead(void)
{
    auto is_over = [](CUstream_st *s) {
        bool over = s->dead && !s->busy && s->queue.empty();
        if (over)
            delete s;
        return over;
    };
    streams.erase(std::remove_if(streams.begin(), streams.end(), is_over), streams.end());
}

/* Goes on with a stream's first item; whether it is done now. */
static bool step(hold &l, CUstream_st *s)
{
    if (!can_go(s))
        return false;
    item first = s->queue.front();
    bool done = true;
    if (first.kind == RECORD) {
        first.at->done = true;
        first.at->at = now_s();
    } else if (first.kind == WORK) {
        s->busy = true;
        l.unlock();
        done = first.poll();
        l.lock();
        s->busy = false;
    }
    if (done) {
        s->queue.pop_front();
        changed.notify_all();
        l.unlock(); /* what ends with the item may take locks of its own */
        first = item();
        l.lock();
    }
    return done;
}

/* Some stream's, by chance. device -1: of any. */
static bool step_some(hold &l, int device)
{
    std::vector<CUstream_st *> can;
    remove_dead();
    for (CUstream_st *s : streams)
        if ((device < 0 || s->device == device) && can_go(s))
            can.push_back(s);
    std::shuffle(can.begin(), can.end(), tsri_emulated_dice());
    for (CUstream_st *s : can)
        if (std::count(streams.begin(), streams.end(), s) && step(l, s))
            return true;
    return false;
}

static void wander(hold &l)
{
    while (tsri_emulated_dice()() % 100 < eagerness())
        if (!step_some(l, -1))
            return;
}

/* The stream whose turn it is before a stream's first item can be done. */
static CUstream_st *needed_by(CUstream_st *s)
{
    while (!s->queue.empty() && s->queue.front().kind == WAIT && !s->queue.front().at->done)
        s = s->queue.front().at->stream;
    return s;
}

/* One attempt at what the stream needs, and, where that waits for another rank, at anything. */
static bool step_towards(hold &l, CUstream_st *target)
{
    CUstream_st *s = needed_by(target);
    if (step(l, s)) {
        wander(l);
        return true;
    }
    return !s->busy && step_some(l, -1);
}

static void drive(hold &l, CUstream_st *target, const std::function<bool()> &until)
{
    double begin = now_s();
    while (!until()) {
        if (step_towards(l, target) || until())
            continue;
        changed.wait_for(l, std::chrono::microseconds(200));
        if (now_s() - begin > LONGEST_WAIT) {
            fprintf(stderr, "emulator: a wait does not end within %d s\n", LONGEST_WAIT);
            abort();
        }
    }
}

/* Goes on a little, as a device does between two questions. */
static bool ask(CUstream_st *target, const std::function<bool()> &done)
{
    hold l(lock);
    for (int i = 0; i < 3 && !done(); i++)
        if (!step_towards(l, target))
            changed.wait_for(l, std::chrono::microseconds(100));
    return done();
}

static cudaError_t settle(CUstream_st *s)
{
    hold l(lock);
    drive(l, s, [s]() { return s->queue.empty(); });
    return cudaSuccess;
}

void tsri_emulated_drain(int device)
{
    hold l(lock);
    for (;;) {
        remove_dead();
        auto at = std::find_if(streams.begin(), streams.end(), [device](const CUstream_st *s) {
            return s->device == device && !s->into && !s->queue.empty();
        });
        if (at == streams.end())
            return;
        size_t left = (*at)->queue.size();
        CUstream_st *s = *at;
        drive(l, s, [s, left]() {
            return !std::count(streams.begin(), streams.end(), s) || s->queue.size() != left;
        });
    }
}

bool tsri_emulated_progress(void)
{
    hold l(lock);
    return step_some(l, -1);
}

/* --- enqueuing -------------------------------------------------------------------------------- */
static void put(CUstream_st *s, item it)
{
    hold l(lock);
    s->queue.push_back(std::move(it));
    wander(l);
}

bool tsri_emulated_captures(cudaStream_t stream)
{
    return stream && stream->into;
}

int tsri_emulated_device_of(cudaStream_t stream)
{
    return stream ? stream->device : tsri_emulated_device();
}

void tsri_emulated_enqueue_poll(cudaStream_t stream, std::function<tsri_emulated_poll()> make)
{
    if (stream->into) {
        capture &c = *stream->into;
        size_t i = tsri_emulated_join(c, stream);
        c.reached[i][i]++;
        c.items.push_back({i, WORK, std::move(make), 0});
    } else {
        put(stream, {WORK, make(), nullptr});
    }
}

void tsri_emulated_enqueue(cudaStream_t stream, std::function<void()> work)
{
    auto once = [work = std::move(work)]() {
        tsri_emulated_work now;
        work();
        return true;
    };
    if (stream)
        tsri_emulated_enqueue_poll(stream, [once]() -> tsri_emulated_poll { return once; });
    else
        once();
}

void tsri_emulated_submit(const char *name, dim3 grid, dim3 block, cudaStream_t stream,
                          std::function<void()> body)
{
    unsigned threads = block.x * block.y * block.z;
    if (stream && stream->into && stream->origin && stream->into->streams.size() > 1 &&
        tsri_emulated_is_named("EMULATED_NO_CAPTURE", ++stream->into->launches)) {
        stream->into->invalid = true;
        fail(cudaErrorStreamCaptureUnsupported);
        return;
    }
    if (threads == 0 || threads > 1024 || block.z > 64 || !grid.x || !grid.y || !grid.z ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
        fail(cudaErrorInvalidConfiguration);
        return;
    }
    if (stream && stream->device != tsri_emulated_device()) {
        tsri_emulated_refuse(cudaErrorInvalidResourceHandle,
                             "a launch on a stream of another device", name);
        return;
    }
    tsri_emulated_enqueue(stream, [=]() { tsri_emulated_run(name, grid, block, body); });
}

extern "C" {

/* --- copies ----------------------------------------------------------------------------------- */
/* A copy to pageable memory returns when it is there; one from it, when the memory may change. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    bool out = kind == cudaMemcpyDeviceToHost, in = kind == cudaMemcpyHostToDevice;
    bool pageable = (out && !tsri_emulated_is_pinned(dst)) || (in && !tsri_emulated_is_pinned(src));
    if (pageable && stream && stream->into) {
        stream->into->invalid = true;
        return tsri_emulated_refuse(cudaErrorStreamCaptureUnsupported,
                                    "a capture can't contain a copy of pageable memory");
    }
    if (pageable && in) {
        auto data =
            std::make_shared<std::vector<char>>((const char *)src, (const char *)src + bytes);
        tsri_emulated_enqueue(stream, [=]() { memmove(dst, data->data(), bytes); });
        return cudaSuccess;
    }
    cudaError_t e = pageable ? tsri_emulated_waits() : cudaSuccess;
    if (e != cudaSuccess)
        return e;
    tsri_emulated_enqueue(stream, [=]() { memmove(dst, src, bytes); });
    return pageable && stream ? settle(stream) : cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    tsri_emulated_enqueue(stream, [=]() { memset(dst, value, bytes); });
    return cudaSuccess;
}

/* --- streams ---------------------------------------------------------------------------------- */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    cudaError_t e = tsri_emulated_enter();
    if (e != cudaSuccess)
        return e;
    *s = new CUstream_st;
    (*s)->device = tsri_emulated_device();
    hold l(lock);
    streams.push_back(*s);
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    hold l(lock);
    s->dead = true;
    remove_dead();
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    cudaError_t e = tsri_emulated_unsafe("cudaStreamSynchronize");
    if (e == cudaSuccess && s && s->into)
        e = fail(cudaErrorStreamCaptureUnsupported);
    if (e == cudaSuccess)
        e = tsri_emulated_waits();
    return e == cudaSuccess && s ? settle(s) : e;
}
cudaError_t cudaStreamQuery(cudaStream_t s)
{
    cudaError_t e = tsri_emulated_unsafe("cudaStreamQuery");
    if (e != cudaSuccess)
        return e;
    if (s && s->into)
        return fail(cudaErrorStreamCaptureUnsupported);
    if (tsri_emulated_is_stalled())
        return fail(cudaErrorNotReady);
    bool done = !s || ask(s, [s]() { return s->queue.empty(); });
    return done ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t e = tsri_emulated_unsafe("cudaDeviceSynchronize");
    if (e == cudaSuccess)
        tsri_emulated_drain(tsri_emulated_device());
    return e;
}

/* --- events ----------------------------------------------------------------------------------- */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    *e = new CUevent_st;
    (*e)->device = tsri_emulated_device();
    (*e)->shared = flags & cudaEventInterprocess;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}
/* An event between processes stands for work that is done already: see cudaIpcOpenEventHandle. */
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (e->device != s->device)
        return tsri_emulated_refuse(cudaErrorInvalidResourceHandle,
                                    "an event is recorded in a stream of another device");
    e->captured = s->into != nullptr;
    if (s->into) {
        capture &c = *s->into;
        size_t i = tsri_emulated_join(c, s);
        e->into = s->into;
        e->record = c.records.size();
        c.records.push_back(c.reached[i]);
        c.items.push_back({i, RECORD, nullptr, e->record});
        return cudaSuccess;
    }
    auto at = std::make_shared<point>();
    at->stream = s;
    {
        hold l(lock);
        e->at = at;
    }
    put(s, {RECORD, nullptr, at});
    return e->shared ? settle(s) : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    std::shared_ptr<capture> into = e->captured ? e->into.lock() : nullptr;
    bool is_open = into && !into->streams.empty() && into->streams[0]->into == into;
    if (e->captured && !is_open)
        return tsri_emulated_refuse(cudaErrorCapturedEvent,
                                    "a wait for an event of a capture that has ended");
    if (!e->captured) {
        std::shared_ptr<point> at;
        {
            hold l(lock);
            at = e->at;
        }
        if (!at)
            return cudaSuccess;
        if (s->into) {
            s->into->invalid = true;
            return tsri_emulated_refuse(cudaErrorStreamCaptureIsolation,
                                        "a captured stream waits for an event from outside");
        }
        put(s, {WAIT, nullptr, at});
        return cudaSuccess;
    }
    if (s->into && s->into != into)
        return fail(cudaErrorStreamCaptureMerge);
    s->into = into;
    size_t i = tsri_emulated_join(*into, s);
    for (auto &before : into->records[e->record]) {
        int &mine = into->reached[i][before.first];
        mine = std::max(mine, before.second);
    }
    into->items.push_back({i, WAIT, nullptr, e->record});
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    cudaError_t error = tsri_emulated_unsafe("cudaEventSynchronize");
    if (error != cudaSuccess || e->captured)
        return error != cudaSuccess ? error : fail(cudaErrorCapturedEvent);
    if (!e->at)
        return cudaSuccess;
    error = tsri_emulated_waits();
    if (error != cudaSuccess)
        return error;
    hold l(lock);
    std::shared_ptr<point> at = e->at;
    drive(l, at->stream, [at]() { return at->done; });
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    cudaError_t error = tsri_emulated_unsafe("cudaEventQuery");
    if (error != cudaSuccess || e->captured)
        return error != cudaSuccess ? error : fail(cudaErrorCapturedEvent);
    std::shared_ptr<point> at = e->at;
    if (!at)
        return cudaSuccess;
    if (tsri_emulated_is_stalled())
        return fail(cudaErrorNotReady);
    return ask(at->stream, [at]() { return at->done; }) ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    if (!from->at || !to->at)
        return fail(cudaErrorInvalidResourceHandle);
    if (!from->at->done || !to->at->done)
        return fail(cudaErrorNotReady);
    *ms = (float)((to->at->at - from->at->at) * 1e3);
    return cudaSuccess;
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t)
{
    memset(handle, 0, sizeof *handle);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *e, cudaIpcEventHandle_t)
{
    return cudaEventCreateWithFlags(e, cudaEventDisableTiming);
}

} // extern "C"
