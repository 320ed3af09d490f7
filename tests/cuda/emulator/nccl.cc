/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for NCCL between ranks that are threads of one process: data really moves, in host
 * memory, and every call is recorded. As communicators of blocking = 0 do, calls return
 * ncclInProgress, and ncclCommGetAsyncError tells when they are in the stream; there they wait for
 * the other members. Collectives of the members of a communicator must be the same, in the same
 * order, and each receive as long as its send: else the communicator is in error, from when they
 * meet. Two ranks on one GPU are refused, as are a stream of another GPU, and two streams in one
 * group. As NCCL's do, an abort or destroy waits for all that the rank's device does, and until no
 * graph has calls of the communicator any more: it ends the program, with a text, if that does not
 * come. EMULATED_NO_NETWORK: ncclGetUniqueId fails.
 */
#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/emulator/nccl_log.h"
#include "tests/cuda/emulator/nccl_memory.h"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {
struct op {
    const char *name;
    const void *src;
    void *dst;
    size_t count;
    ncclDataType_t type;
    int red, peer;
    bool p2p, done;
};
typedef std::shared_ptr<op> op_ptr;

/* What the members of a communicator share. */
struct clique {
    int number, nranks, joined = 0;
    std::map<int, int> rank_on;                                     /* by GPU */
    std::vector<std::deque<op_ptr>> queue;                          /* of collectives, per member */
    std::map<std::pair<int, int>, std::deque<op_ptr>> sends, recvs; /* (from, to) */
    ncclResult_t error = ncclSuccess;
    std::vector<int> launches;
    /* Splits under way: per member, how many it has asked for. */
    std::vector<int> splits;
    struct wish {
        int color, key;
        struct ncclComm *comm;
    };
    std::map<int, std::map<int, wish>> wishes; /* split -> member -> */
};
typedef std::shared_ptr<clique> clique_ptr;
} // namespace

/* One member's view. */
struct ncclComm {
    clique_ptr all; /* NULL while a split is under way */
    int rank = 0, device = 0;
    bool aborted = false, told = true, ends = false; /* told: that its calls are in the stream */
    int enqueued = 0;           /* launches that are not done; not captured ones */
    std::vector<op_ptr> posted; /* that have not met their peers */
    std::vector<int> splitting; /* splits that others have not come to yet */
    /* The rank's communicators: this one, and those that it was split from and into. */
    std::shared_ptr<std::vector<struct ncclComm *>> kin;
    int graphs = 0; /* launches that were captured, of graphs that are alive */
};

static std::mutex lock;
static std::condition_variable changed;
static std::map<std::string, clique_ptr> by_id;
static std::vector<tsri_emulated_nccl_call> calls;
static int cliques, ids;
static std::string last_error;

/* The group that the calling thread has open. */
struct launch {
    struct ncclComm *comm;
    cudaStream_t stream;
    op_ptr what;
};
static thread_local int depth;
static thread_local std::vector<launch> opened;
static thread_local std::vector<struct ncclComm *> aborting;

static clique_ptr make_clique(int nranks)
{
    clique_ptr c = std::make_shared<clique>();
    c->number = cliques++;
    c->nranks = nranks;
    c->queue.resize((size_t)nranks);
    c->launches.resize((size_t)nranks);
    c->splits.resize((size_t)nranks);
    return c;
}

/* --- data ------------------------------------------------------------------------------------- */
static size_t size_of(ncclDataType_t t)
{
    switch (t) {
    case ncclUint8:
    case ncclInt8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
        return 4;
    default:
        return 8;
    }
}

/* T: as stored and, if it is whole, compared; A: as added. */
template <typename T, typename A> static A combine(A x, A y, int red)
{
    if (red == ncclProd)
        return (A)(x * y);
    if (red == ncclSum)
        return (A)(x + y);
    bool more = std::is_integral<T>::value ? (int64_t)(T)y > (int64_t)(T)x : y > x;
    bool less = std::is_integral<T>::value ? (int64_t)(T)y < (int64_t)(T)x : y < x;
    return (red == ncclMax ? more : less) ? y : x;
}

template <typename T, typename A>
static void reduce_as(const std::vector<const char *> &src, void *dst, size_t count, int red)
{
    std::vector<T> out(count);
    for (size_t i = 0; i < count; i++) {
        T v;
        std::memcpy(&v, src[0] + i * sizeof v, sizeof v);
        A x = (A)v;
        for (size_t s = 1; s < src.size(); s++) {
            std::memcpy(&v, src[s] + i * sizeof v, sizeof v);
            x = combine<T, A>(x, (A)v, red);
        }
        out[i] = (T)x;
    }
    std::memcpy(dst, out.data(), count * sizeof(T));
}

static void reduce(const std::vector<const char *> &src, void *dst, size_t count, ncclDataType_t t,
                   int red)
{
    switch (t) {
    case ncclFloat32:
        return reduce_as<float, float>(src, dst, count, red);
    case ncclFloat64:
        return reduce_as<double, double>(src, dst, count, red);
    case ncclFloat16:
        return reduce_as<__half, float>(src, dst, count, red);
    case ncclBfloat16:
        return reduce_as<__nv_bfloat16, float>(src, dst, count, red);
    case ncclInt32:
        return reduce_as<int32_t, uint32_t>(src, dst, count, red);
    case ncclInt64:
        return reduce_as<int64_t, uint64_t>(src, dst, count, red);
    default:
        return reduce_as<uint8_t, uint32_t>(src, dst, count, red);
    }
}

/* All members' heads, which agree. */
static void do_collective(const std::vector<op_ptr> &heads)
{
    const op &o = *heads[0];
    size_t n = heads.size(), bytes = o.count * size_of(o.type);
    std::string name = o.name;
    if (name == "Broadcast") {
        std::vector<char> data((const char *)heads[(size_t)o.peer]->src,
                               (const char *)heads[(size_t)o.peer]->src + bytes);
        for (const op_ptr &h : heads)
            std::memcpy(h->dst, data.data(), bytes);
    } else if (name == "AllGather") {
        std::vector<char> all(bytes * n);
        for (size_t i = 0; i < n; i++)
            std::memcpy(all.data() + i * bytes, heads[i]->src, bytes);
        for (const op_ptr &h : heads)
            std::memcpy(h->dst, all.data(), all.size());
    } else {
        size_t count = name == "ReduceScatter" ? o.count * n : o.count;
        std::vector<char> result(count * size_of(o.type));
        std::vector<const char *> src;
        for (const op_ptr &h : heads)
            src.push_back((const char *)h->src);
        reduce(src, result.data(), count, o.type, o.red);
        for (size_t i = 0; i < n; i++)
            if (name == "ReduceScatter")
                std::memcpy(heads[i]->dst, result.data() + i * bytes, bytes);
            else if (name == "AllReduce" || (int)i == o.peer)
                std::memcpy(heads[i]->dst, result.data(), bytes);
    }
    for (const op_ptr &h : heads)
        h->done = true;
}

/* --- meeting ---------------------------------------------------------------------------------- */
static void disagree(clique &c, const op &a, const op &b)
{
    char text[256];
    snprintf(text, sizeof text,
             "members disagree: %s of %zu (type %d, op %d, peer %d) and %s of %zu "
             "(type %d, op %d, peer %d)",
             a.name, a.count, (int)a.type, a.red, a.peer, b.name, b.count, (int)b.type, b.red,
             b.peer);
    last_error = text;
    c.error = ncclInvalidUsage;
}

static bool progress_collectives(clique &c)
{
    std::vector<op_ptr> heads;
    for (auto &q : c.queue) {
        if (q.empty())
            return false;
        heads.push_back(q.front());
    }
    for (const op_ptr &h : heads) {
        const op &a = *heads[0], &b = *h;
        if (std::string(a.name) != b.name || a.count != b.count || a.type != b.type ||
            a.red != b.red || a.peer != b.peer) {
            disagree(c, a, b);
            return false;
        }
    }
    for (auto &q : c.queue)
        q.pop_front();
    do_collective(heads);
    return true;
}

static void progress(clique &c)
{
    tsri_emulated_work now;
    while (c.error == ncclSuccess && progress_collectives(c))
        ;
    for (auto &pair : c.sends) {
        std::deque<op_ptr> &from = pair.second, &to = c.recvs[pair.first];
        while (c.error == ncclSuccess && !from.empty() && !to.empty()) {
            op_ptr s = from.front(), r = to.front();
            if (s->count != r->count || s->type != r->type) {
                disagree(c, *s, *r);
                break;
            }
            std::memmove(r->dst, s->src, s->count * size_of(s->type));
            s->done = r->done = true;
            from.pop_front();
            to.pop_front();
        }
    }
    changed.notify_all();
}

static void post(struct ncclComm *comm, const op_ptr &o)
{
    clique &c = *comm->all;
    if (!o->p2p)
        c.queue[(size_t)comm->rank].push_back(o);
    else if (o->src)
        c.sends[{comm->rank, o->peer}].push_back(o);
    else
        c.recvs[{o->peer, comm->rank}].push_back(o);
    comm->posted.push_back(o);
}

/* Whether all memory of a member's call is registered. */
static bool is_registered(struct ncclComm *comm, const op &o)
{
    const size_t n = (size_t)comm->all->nranks, bytes = o.count * size_of(o.type);
    const bool gathers = !strcmp(o.name, "AllGather"), scatters = !strcmp(o.name, "ReduceScatter");
    return tsri_emulated_is_registered(comm, o.src, scatters ? n * bytes : bytes) &&
           tsri_emulated_is_registered(comm, o.dst, gathers ? n * bytes : bytes);
}

static void note(struct ncclComm *comm, const op_ptr &o, bool captured)
{
    const clique &c = *comm->all;
    calls.push_back({c.number, comm->rank, c.nranks, c.launches[(size_t)comm->rank], o->name,
                     o->count, (int)o->type, o->red, o->peer, captured, is_registered(comm, *o)});
}

static bool is_under_way(const struct ncclComm *comm)
{
    return !comm->aborted && (comm->enqueued > 0 || !comm->posted.empty());
}

/* How far a member's calls are. */
static ncclResult_t state_of(struct ncclComm *comm)
{
    if (comm->aborted)
        return ncclInternalError;
    if (!comm->all)
        return ncclInProgress;
    if (comm->all->error != ncclSuccess)
        return comm->all->error;
    bool joining = comm->all->joined < comm->all->nranks;
    bool waits =
        joining || !comm->splitting.empty() || !comm->told || (comm->ends && is_under_way(comm));
    return waits ? ncclInProgress : ncclSuccess;
}

/* Posts a launch, and returns whether it is done. A launch of a communicator in error never is.
 */
static bool go_on(struct ncclComm *comm, const std::vector<op_ptr> &ops, std::vector<op_ptr> &now)
{
    std::unique_lock<std::mutex> hold(lock);
    if (comm->aborted)
        return true;
    if (now.empty())
        for (const op_ptr &o : ops) {
            now.push_back(std::make_shared<op>(*o));
            post(comm, now.back());
        }
    progress(*comm->all);
    auto &p = comm->posted;
    p.erase(std::remove_if(p.begin(), p.end(), [](const op_ptr &o) { return o->done; }), p.end());
    return std::all_of(now.begin(), now.end(), [](const op_ptr &o) { return o->done; });
}

/* EMULATED_NCCL_FAILS=RANK:CALL[:later]: that launch of the member in each communicator is refused,
 * or accepted and found later by ncclCommGetAsyncError. */
static ncclResult_t planted_failure(struct ncclComm *comm)
{
    const char *said = getenv("EMULATED_NCCL_FAILS");
    int rank, call, end = 0;
    if (!said || sscanf(said, "%d:%d%n", &rank, &call, &end) < 2 || rank != comm->rank ||
        call != comm->all->launches[(size_t)rank])
        return ncclSuccess;
    if (strcmp(said + end, ":later")) {
        last_error = "the network is down";
        return ncclSystemError;
    }
    last_error = "a peer is gone";
    comm->all->error = ncclRemoteError;
    return ncclSuccess;
}

/* One launch: what one member puts into one communicator at once. */
static ncclResult_t put(struct ncclComm *comm, cudaStream_t stream, const std::vector<op_ptr> &ops)
{
    std::unique_lock<std::mutex> hold(lock);
    if (comm->aborted || !comm->all)
        return ncclInvalidUsage;
    if (tsri_emulated_device_of(stream) != comm->device) {
        last_error = "a stream of another GPU than the communicator's";
        return ncclInvalidUsage;
    }
    if (comm->all->error != ncclSuccess)
        return comm->all->error;
    const bool captured = tsri_emulated_captures(stream);
    for (const op_ptr &o : ops)
        note(comm, o, captured);
    comm->all->launches[(size_t)comm->rank]++;
    ncclResult_t planted = planted_failure(comm);
    if (planted != ncclSuccess)
        return planted;
    comm->told = false;
    int &alive = captured ? comm->graphs : comm->enqueued;
    alive++;
    hold.unlock();
    /* Goes with the item, or with its graph. */
    std::shared_ptr<void> life(nullptr, [&alive](void *) {
        std::lock_guard<std::mutex> inner(lock);
        alive--;
        changed.notify_all();
    });
    tsri_emulated_enqueue_poll(stream, [comm, ops, life]() -> tsri_emulated_poll {
        auto now = std::make_shared<std::vector<op_ptr>>();
        return [comm, ops, life, now]() { return go_on(comm, ops, *now); };
    });
    return ncclInProgress;
}

/* --- ending ----------------------------------------------------------------------------------- */
/* Waits, as NCCL does before it frees a communicator, for the rank's launches and for the end of
 * graphs with the communicator's calls; the rank's device goes on meanwhile. */
static void reclaim(std::unique_lock<std::mutex> &hold, struct ncclComm *comm)
{
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    auto &kin = *comm->kin;
    while (comm->graphs || std::any_of(kin.begin(), kin.end(), is_under_way)) {
        hold.unlock();
        bool went = tsri_emulated_progress();
        hold.lock();
        if (!went)
            changed.wait_for(hold, std::chrono::microseconds(200));
        if (std::chrono::steady_clock::now() > end) {
            fprintf(stderr, "a communicator's end would wait for ever: %s\n",
                    comm->graphs ? "there are graphs with its calls"
                                 : "another of its rank hangs, and was not told to stop");
            abort();
        }
    }
    kin.erase(std::remove(kin.begin(), kin.end(), comm), kin.end());
}

static ncclResult_t submit(struct ncclComm *comm, cudaStream_t stream, op o)
{
    if (!comm)
        return ncclInvalidArgument;
    op_ptr p = std::make_shared<op>(o);
    if (depth == 0)
        return put(comm, stream, {p});
    opened.push_back({comm, stream, p});
    return ncclSuccess;
}

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t r)
{
    return r == ncclInvalidUsage ? "invalid usage" : r == ncclSuccess ? "no error" : "an error";
}
const char *ncclGetLastError(ncclComm_t)
{
    static thread_local std::string text;
    std::lock_guard<std::mutex> hold(lock);
    text = last_error;
    return text.c_str();
}
ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    std::lock_guard<std::mutex> hold(lock);
    if (getenv("EMULATED_NO_NETWORK")) {
        last_error = "no network";
        return ncclSystemError;
    }
    std::memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "emulated %d", ++ids);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    std::lock_guard<std::mutex> hold(lock);
    if (!config || config->blocking != 0 || rank < 0 || rank >= nranks)
        return ncclInvalidArgument;
    clique_ptr &c = by_id[id.internal];
    if (!c)
        c = make_clique(nranks);
    if (c->nranks != nranks)
        return ncclInvalidUsage;
    int device = tsri_emulated_device_of(nullptr);
    auto other = c->rank_on.insert({device, rank});
    if (!other.second) {
        last_error = "Duplicate GPU detected: ranks " + std::to_string(other.first->second) +
                     " and " + std::to_string(rank) + " are both on CUDA device " +
                     std::to_string(device);
        return ncclInvalidUsage;
    }
    *comm = new ncclComm;
    (*comm)->device = device;
    (*comm)->all = c;
    (*comm)->rank = rank;
    (*comm)->kin = std::make_shared<std::vector<struct ncclComm *>>(1, *comm);
    c->joined++;
    return state_of(*comm);
}

/* When all members have come to a split: who asked for a color gets a communicator. */
static void do_split(clique &parent, int split)
{
    auto &wishes = parent.wishes[split];
    std::map<int, std::vector<std::pair<std::pair<int, int>, struct ncclComm *>>> colors;
    for (auto &w : wishes)
        if (w.second.comm)
            colors[w.second.color].push_back({{w.second.key, w.first}, w.second.comm});
    for (auto &color : colors) {
        auto &members = color.second;
        std::sort(members.begin(), members.end());
        clique_ptr c = make_clique((int)members.size());
        c->joined = c->nranks;
        for (size_t i = 0; i < members.size(); i++) {
            members[i].second->all = c;
            members[i].second->rank = (int)i;
        }
    }
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *)
{
    std::lock_guard<std::mutex> hold(lock);
    clique &c = *comm->all;
    int split = c.splits[(size_t)comm->rank]++;
    *newcomm = color == NCCL_SPLIT_NOCOLOR ? nullptr : new ncclComm;
    c.wishes[split][comm->rank] = {color, key, *newcomm};
    if (*newcomm) {
        (*newcomm)->device = comm->device;
        (*newcomm)->kin = comm->kin;
        comm->kin->push_back(*newcomm);
    }
    if ((int)c.wishes[split].size() == c.nranks)
        do_split(c, split);
    comm->splitting.push_back(split);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    if (!comm)
        return ncclInvalidArgument;
    std::unique_lock<std::mutex> hold(lock);
    if (comm->ends && is_under_way(comm)) {
        hold.unlock();
        tsri_emulated_progress();
        hold.lock();
    }
    if (comm->all) {
        auto &s = comm->splitting;
        clique &c = *comm->all;
        s.erase(std::remove_if(s.begin(), s.end(),
                               [&c](int i) { return (int)c.wishes[i].size() == c.nranks; }),
                s.end());
    }
    *state = state_of(comm);
    comm->told = true;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    std::lock_guard<std::mutex> hold(lock);
    comm->ends = true;
    return state_of(comm);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    std::unique_lock<std::mutex> hold(lock);
    if (is_under_way(comm))
        return ncclInvalidUsage;
    tsri_emulated_deregister_all(comm, false);
    reclaim(hold, comm);
    delete comm;
    return ncclSuccess;
}

/* The member's calls will never meet their peers'. The object stays: a replay may wait with it. In
 * a group the communicator is told to stop at once, and freed at the group's end. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    static std::vector<std::unique_ptr<struct ncclComm>> *graves =
        new std::vector<std::unique_ptr<struct ncclComm>>;
    std::unique_lock<std::mutex> hold(lock);
    comm->aborted = true;
    tsri_emulated_deregister_all(comm, true);
    if (comm->all) {
        for (auto &q : comm->all->queue)
            q.erase(std::remove_if(q.begin(), q.end(),
                                   [comm](const op_ptr &o) {
                                       return std::count(comm->posted.begin(), comm->posted.end(),
                                                         o);
                                   }),
                    q.end());
        for (auto *map : {&comm->all->sends, &comm->all->recvs})
            for (auto &pair : *map)
                pair.second.erase(std::remove_if(pair.second.begin(), pair.second.end(),
                                                 [comm](const op_ptr &o) {
                                                     return std::count(comm->posted.begin(),
                                                                       comm->posted.end(), o);
                                                 }),
                                  pair.second.end());
    }
    comm->posted.clear();
    graves->emplace_back(comm);
    changed.notify_all();
    if (depth)
        aborting.push_back(comm);
    else
        reclaim(hold, comm);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t r = ncclSuccess;
    if (depth == 0 || --depth > 0)
        return depth ? ncclSuccess : ncclInvalidUsage;
    std::vector<launch> all;
    all.swap(opened);
    while (!all.empty()) {
        struct ncclComm *comm = all[0].comm;
        cudaStream_t stream = all[0].stream;
        std::vector<op_ptr> ops;
        std::vector<launch> rest;
        bool one_stream = true;
        for (launch &l : all) {
            if (l.comm != comm) {
                rest.push_back(l);
                continue;
            }
            ops.push_back(l.what);
            one_stream = one_stream && l.stream == stream;
        }
        ncclResult_t one = one_stream ? put(comm, stream, ops) : ncclInvalidUsage;
        r = one == ncclSuccess ? r : one;
        all.swap(rest);
    }
    std::vector<struct ncclComm *> ending;
    ending.swap(aborting);
    std::unique_lock<std::mutex> hold(lock);
    for (struct ncclComm *comm : ending)
        reclaim(hold, comm);
    return r;
}

ncclResult_t ncclAllReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclRedOp_t red, ncclComm_t comm, cudaStream_t stream)
{
    return submit(comm, stream, {"AllReduce", src, dst, count, type, (int)red, -1, false, false});
}
ncclResult_t ncclAllGather(const void *src, void *dst, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return submit(comm, stream, {"AllGather", src, dst, count, type, -1, -1, false, false});
}
ncclResult_t ncclReduceScatter(const void *src, void *dst, size_t count, ncclDataType_t type,
                               ncclRedOp_t red, ncclComm_t comm, cudaStream_t stream)
{
    return submit(comm, stream,
                  {"ReduceScatter", src, dst, count, type, (int)red, -1, false, false});
}
ncclResult_t ncclBroadcast(const void *src, void *dst, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return submit(comm, stream, {"Broadcast", src, dst, count, type, -1, root, false, false});
}
ncclResult_t ncclReduce(const void *src, void *dst, size_t count, ncclDataType_t type,
                        ncclRedOp_t red, int root, ncclComm_t comm, cudaStream_t stream)
{
    return submit(comm, stream, {"Reduce", src, dst, count, type, (int)red, root, false, false});
}
ncclResult_t ncclSend(const void *src, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return submit(comm, stream, {"Send", src, nullptr, count, type, -1, peer, true, false});
}
ncclResult_t ncclRecv(void *dst, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return submit(comm, stream, {"Recv", nullptr, dst, count, type, -1, peer, true, false});
}

__attribute__((visibility("default"))) int tsri_emulated_nccl_log(int most,
                                                                  tsri_emulated_nccl_call *out)
{
    std::lock_guard<std::mutex> hold(lock);
    for (int i = 0; i < most && i < (int)calls.size(); i++)
        out[i] = calls[(size_t)i];
    return (int)calls.size();
}
__attribute__((visibility("default"))) void tsri_emulated_nccl_clear(void)
{
    std::lock_guard<std::mutex> hold(lock);
    calls.clear();
}

} // extern "C"
