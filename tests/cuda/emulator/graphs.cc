/* SPDX-License-Identifier: Apache-2.0 */
/* Captures of streams, and the graphs that they become: see streams.cc. */
#include "tests/cuda/emulator/streams.h"

struct CUgraph_st {
    std::shared_ptr<capture> work;
};
struct CUgraphExec_st {
    std::shared_ptr<capture> work;
};

typedef std::unique_lock<std::mutex> hold;
static thread_local std::vector<std::weak_ptr<capture>> capturing; /* the calling thread's */
static std::vector<std::weak_ptr<capture>> &global_captures =
    *new std::vector<std::weak_ptr<capture>>;

static cudaError_t fail(cudaError_t e)
{
    return tsri_emulated_fail(e);
}

size_t tsri_emulated_join(capture &c, CUstream_st *s)
{
    size_t i = (size_t)(std::find(c.streams.begin(), c.streams.end(), s) - c.streams.begin());
    if (i == c.streams.size()) {
        c.streams.push_back(s);
        c.reached.emplace_back();
    }
    return i;
}

cudaError_t tsri_emulated_unsafe(const char *call)
{
    bool any = false;
    std::vector<std::weak_ptr<capture>> all = capturing;
    {
        hold l(tsri_emulated_lock);
        all.insert(all.end(), global_captures.begin(), global_captures.end());
    }
    for (auto &weak : all) {
        std::shared_ptr<capture> c = weak.lock();
        if (c && !c->streams.empty() && c->streams[0]->into == c)
            any = c->invalid = true;
    }
    return any ? tsri_emulated_refuse(cudaErrorStreamCaptureUnsupported, "a capture can't contain",
                                      call)
               : cudaSuccess;
}

/* One replay: the items of each captured stream in their order, the streams among each other by
 * their events alone. */
namespace {
struct replay {
    std::shared_ptr<capture> work;
    std::vector<std::deque<const captured_item *>> left; /* per stream */
    std::vector<tsri_emulated_poll> under_way;
    std::vector<bool> recorded;

    explicit replay(const std::shared_ptr<capture> &c)
        : work(c), left(c->streams.size()), under_way(c->streams.size()),
          recorded(c->records.size())
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
            std::shuffle(order.begin(), order.end(), tsri_emulated_dice());
            if (!std::any_of(order.begin(), order.end(), [this](size_t s) { return step(s); }))
                return false;
        }
    }
};
} // namespace

extern "C" {

/* --- captures and graphs ---------------------------------------------------------------------- */
/* A capture in the global mode refuses calls of other threads, too, that may wait or allocate. */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    if (s->into)
        return fail(cudaErrorIllegalState);
    s->into = std::make_shared<capture>();
    s->origin = true;
    tsri_emulated_join(*s->into, s);
    capturing.push_back(s->into);
    if (mode == cudaStreamCaptureModeGlobal) {
        hold l(tsri_emulated_lock);
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
        hold l(tsri_emulated_lock);
        for (CUstream_st *each : ended->streams)
            each->into = nullptr;
    }
    s->origin = false;
    *graph = nullptr;
    if (ended->invalid)
        return fail(cudaErrorStreamCaptureInvalidated);
    if (!joined)
        return tsri_emulated_refuse(cudaErrorStreamCaptureUnjoined,
                                    "a capture ends with work that was not joined");
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
