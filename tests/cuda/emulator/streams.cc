/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's streams, events and graphs. A stream's work is done in its order; between streams only events
 * make an order, and in a graph only its edges. Nothing is done when it is enqueued: the host's threads
 * do work when they wait for it, or ask after it, and first of all what they wait for needs. So work is
 * done as late as it can be, and a wait that is missing shows. EMULATED_SEED=N draws another order for
 * each N: some work, of any stream, is then done now and then behind a call (seed 0, the default: none).
 *
 * A call that CUDA refuses is refused, with a line that begins with "emulator:": within a capture what
 * may wait or allocate, a wait for an event from outside of it, copies from or to pageable memory; the
 * capture's end with work that was not joined; launches and records on a stream of another device.
 * The device that EMULATED_NO_GRAPH names can't make a graph of what was captured; that of
 * EMULATED_NO_CAPTURE ("device:number") can't capture the launch of this number, from 1, in a stream
 * whose capture others have joined.
 */
#include "tests/cuda/emulator/runtime.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace {
enum kind { WORK, RECORD, WAIT };
enum { LONGEST_WAIT = 100 }; /* seconds; far more than any test's timeout */

/* One record of an event. */
struct point {
    struct CUstream_st *stream;
    bool done = false;
    double at = 0;
};
struct item {
    enum kind kind;
    tsri_emulated_poll poll; /* WORK: until it returns true */
    std::shared_ptr<point> at;
};

/* A captured item: of which of the capture's streams, and which of its records. */
struct captured_item {
    size_t stream;
    enum kind kind;
    std::function<tsri_emulated_poll()> make; /* WORK: for each replay */
    size_t record;
};
/* How many items of each of a capture's streams come before. */
typedef std::map<size_t, int> clock_vector;

struct capture {
    std::vector<captured_item> items;
    std::vector<struct CUstream_st *> streams; /* the first is its origin's */
    std::vector<clock_vector> reached;         /* per stream */
    std::vector<clock_vector> records;
    bool invalid = false;
    int launches = 0; /* in the origin's stream, since others have joined */
};
} // namespace

struct CUstream_st {
    int device = 0;
    std::deque<item> queue;
    bool busy = false; /* a thread does its first item */
    bool dead = false; /* destroyed; its work goes on */
    std::shared_ptr<capture> into;
    bool origin = false;
};
struct CUevent_st {
    int device = 0;
    bool shared = false; /* between processes */
    std::shared_ptr<point> at;   /* its last record; NULL: none */
    std::weak_ptr<capture> into; /* if that was captured; a graph's end is not put off by it */
    bool captured = false;
    size_t record = 0;
};
struct CUgraph_st {
    std::shared_ptr<capture> work;
};
struct CUgraphExec_st {
    std::shared_ptr<capture> work;
};

/* They outlive the threads of a program that ends by exit. */
static std::mutex &lock = *new std::mutex;
static std::condition_variable &changed = *new std::condition_variable;
static std::vector<CUstream_st *> &streams = *new std::vector<CUstream_st *>;
static thread_local std::vector<std::weak_ptr<capture>> capturing; /* the calling thread's */
static std::vector<std::weak_ptr<capture>> &global_captures = *new std::vector<std::weak_ptr<capture>>;
typedef std::unique_lock<std::mutex> hold;

static cudaError_t fail(cudaError_t e)
{
    return tsri_emulated_fail(e);
}

static cudaError_t refuse(cudaError_t e, const char *why, const char *name = "")
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
static unsigned seed(void)
{
    static const char *said = getenv("EMULATED_SEED");
    static const unsigned n = said ? (unsigned)atoi(said) : 0;
    return n;
}

static std::mt19937 &dice(void)
{
    static unsigned threads;
    static thread_local std::mt19937 *d = new std::mt19937(seed() * 1000003u + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED));
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
    return !s->busy && !s->queue.empty() && (s->queue.front().kind != WAIT || s->queue.front().at->done);
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
    std::shuffle(can.begin(), can.end(), dice());
    for (CUstream_st *s : can)
        if (std::count(streams.begin(), streams.end(), s) && step(l, s))
            return true;
    return false;
}

static void wander(hold &l)
{
    while (dice()() % 100 < eagerness())
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
static size_t index_in(capture &c, CUstream_st *s)
{
    size_t i = (size_t)(std::find(c.streams.begin(), c.streams.end(), s) - c.streams.begin());
    if (i == c.streams.size()) {
        c.streams.push_back(s);
        c.reached.emplace_back();
    }
    return i;
}

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
        size_t i = index_in(c, stream);
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
        refuse(cudaErrorInvalidResourceHandle, "a launch on a stream of another device", name);
        return;
    }
    tsri_emulated_enqueue(stream, [=]() { tsri_emulated_run(name, grid, block, body); });
}

cudaError_t tsri_emulated_unsafe(const char *call)
{
    bool any = false;
    std::vector<std::weak_ptr<capture>> all = capturing;
    {
        hold l(lock);
        all.insert(all.end(), global_captures.begin(), global_captures.end());
    }
    for (auto &weak : all) {
        std::shared_ptr<capture> c = weak.lock();
        if (c && !c->streams.empty() && c->streams[0]->into == c)
            any = c->invalid = true;
    }
    return any ? refuse(cudaErrorStreamCaptureUnsupported, "a capture can't contain", call) : cudaSuccess;
}

/* One replay: the items of each captured stream in their order, the streams among each other by their
 * events alone. */
namespace {
struct replay {
    std::shared_ptr<capture> work;
    std::vector<std::deque<const captured_item *>> left; /* per stream */
    std::vector<tsri_emulated_poll> under_way;
    std::vector<bool> recorded;

    explicit replay(const std::shared_ptr<capture> &c)
        : work(c), left(c->streams.size()), under_way(c->streams.size()), recorded(c->records.size())
    {
        for (const captured_item &i : c->items)
            left[i.stream].push_back(&i);
    }

    bool step(size_t s)
    {
        const captured_item &first = *left[s].front();
        if (first.kind == WAIT && !recorded[first.record])
            return false;
        if (first.kind == RECORD)
            recorded[first.record] = true;
        if (first.kind == WORK) {
            if (!under_way[s])
                under_way[s] = first.make();
            if (!under_way[s]())
                return false;
            under_way[s] = nullptr;
        }
        left[s].pop_front();
        return true;
    }

    bool go()
    {
        for (;;) {
            std::vector<size_t> order;
            for (size_t s = 0; s < left.size(); s++)
                if (!left[s].empty())
                    order.push_back(s);
            if (order.empty())
                return true;
            std::shuffle(order.begin(), order.end(), dice());
            if (!std::any_of(order.begin(), order.end(), [this](size_t s) { return step(s); }))
                return false;
        }
    }
};
} // namespace

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
        return refuse(cudaErrorStreamCaptureUnsupported, "a capture can't contain a copy of pageable memory");
    }
    if (pageable && in) {
        auto data = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + bytes);
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
        return refuse(cudaErrorInvalidResourceHandle, "an event is recorded in a stream of another device");
    e->captured = s->into != nullptr;
    if (s->into) {
        capture &c = *s->into;
        size_t i = index_in(c, s);
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
        return refuse(cudaErrorCapturedEvent, "a wait for an event of a capture that has ended");
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
            return refuse(cudaErrorStreamCaptureIsolation, "a captured stream waits for an event from outside");
        }
        put(s, {WAIT, nullptr, at});
        return cudaSuccess;
    }
    if (s->into && s->into != into)
        return fail(cudaErrorStreamCaptureMerge);
    s->into = into;
    size_t i = index_in(*into, s);
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

/* --- captures and graphs ---------------------------------------------------------------------- */
/* A capture in the global mode forbids other threads what it forbids its own. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    if (s->into)
        return fail(cudaErrorIllegalState);
    s->into = std::make_shared<capture>();
    s->origin = true;
    index_in(*s->into, s);
    capturing.push_back(s->into);
    if (mode == cudaStreamCaptureModeGlobal) {
        hold l(lock);
        global_captures.push_back(s->into);
    }
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    *status = s && s->into ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    if (!s->into || !s->origin)
        return fail(cudaErrorIllegalState);
    std::shared_ptr<capture> ended = s->into;
    capturing.erase(std::remove_if(capturing.begin(), capturing.end(),
                                   [&](const std::weak_ptr<capture> &c) {
                                       return c.expired() || c.lock() == ended;
                                   }),
                    capturing.end());
    bool joined = true;
    for (size_t i = 1; i < ended->streams.size(); i++)
        joined = joined && ended->reached[0][i] >= ended->reached[i][i];
    {
        hold l(lock);
        for (CUstream_st *each : ended->streams)
            each->into = nullptr;
    }
    s->origin = false;
    *graph = nullptr;
    if (ended->invalid)
        return fail(cudaErrorStreamCaptureInvalidated);
    if (!joined)
        return refuse(cudaErrorStreamCaptureUnjoined, "a capture ends with work that was not joined");
    *graph = new CUgraph_st{ended};
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    if (tsri_emulated_is_named("EMULATED_NO_GRAPH"))
        return fail(cudaErrorNotSupported);
    *exec = new CUgraphExec_st{graph->work};
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    auto work = exec->work;
    tsri_emulated_enqueue_poll(stream, [work]() -> tsri_emulated_poll {
        auto r = std::make_shared<replay>(work);
        return [r]() { return r->go(); };
    });
    return cudaSuccess;
}

} // extern "C"
