/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of NCCL. */
#include "src/comm/nccl/api.h"
#include "src/comm/nccl/inside.h"
#include "src/core/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Absent from older libraries. */
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister

/* --- NCCL's words ----------------------------------------------------------------------------- */
static ncclDataType_t type_of(tsr_dtype dtype)
{
    switch (dtype) {
    case TSR_F32:
        return ncclFloat32;
    case TSR_F64:
        return ncclFloat64;
    case TSR_F16:
        return ncclFloat16;
    case TSR_BF16:
        return ncclBfloat16;
    case TSR_I64:
        return ncclInt64;
    case TSR_I32:
        return ncclInt32;
    default:
        return ncclUint8;
    }
}

static ncclRedOp_t op_of(tsr_reduce_op op)
{
    return op == TSR_REDUCE_MAX       ? ncclMax
           : op == TSR_REDUCE_MIN     ? ncclMin
           : op == TSR_REDUCE_PRODUCT ? ncclProd
                                      : ncclSum;
}

static bool is_bad(ncclResult_t r)
{
    return r != ncclSuccess && r != ncclInProgress;
}

static tsr_status status_of(ncclResult_t r)
{
    return r == ncclRemoteError ? TSR_ERR_DEAD : TSR_ERR_BACKEND;
}

static void error_text(const tsri_nccl *n, ncclResult_t r, const char *what, char *buf, size_t size)
{
    const char *more = ncclGetLastError(NULL);
    snprintf(buf, size, "rank %d: NCCL, %s: %s%s%.300s", n->pub.world->rank, what,
             ncclGetErrorString(r), more && *more ? ": " : "", more ? more : "");
}

/* NCCL has returned an error: nothing can be relied on any more. */
static tsr_status give_up(tsri_nccl *n, ncclResult_t r, const char *what)
{
    char text[768];
    error_text(n, r, what, text, sizeof text);
    return tsri_watch_fail(n->watch, status_of(r), text);
}

/* Waits until NCCL has taken up what it was asked for on comm, which returned r. */
static tsr_status settle(tsri_nccl *n, ncclComm_t comm, ncclResult_t r, double seconds,
                         const char *what)
{
    double start = tsri_now_s();
    for (int turn = 0; r == ncclInProgress; turn++) {
        TSRI_TRY(tsri_watch_enter(n->watch));
        ncclResult_t asked = ncclCommGetAsyncError(comm, &r);
        tsri_watch_leave(n->watch);
        if (asked != ncclSuccess)
            r = asked;
        if (r != ncclInProgress)
            break;
        if (tsri_now_s() - start > seconds) {
            char text[512], ranks[96];
            snprintf(text, sizeof text, "rank %d: NCCL, %s: not all of ranks %s came within %g s",
                     n->pub.world->rank, what, tsri_ranks_text(n->n, n->ranks, ranks, sizeof ranks),
                     seconds);
            return tsri_watch_fail(n->watch, TSR_ERR_TIMEOUT, text);
        }
        if (turn > 100)
            tsri_sleep_s(20e-6);
    }
    return is_bad(r) ? give_up(n, r, what) : TSR_OK;
}

/* --- the watchdog's --------------------------------------------------------------------------- */
static tsr_status look_at(const tsri_nccl *n, ncclComm_t comm)
{
    ncclResult_t state = ncclSuccess;
    if (!comm)
        return TSR_OK;
    ncclResult_t r = ncclCommGetAsyncError(comm, &state);
    state = r == ncclSuccess ? state : r;
    if (!is_bad(state))
        return TSR_OK;
    char text[768];
    error_text(n, state, "work under way", text, sizeof text);
    return tsri_fail(status_of(state), "%s", text);
}

static tsr_status look(void *arg)
{
    const tsri_nccl *n = arg;
    for (int i = 0; i < TSRI_NCCL_LANES; i++)
        TSRI_TRY(look_at(n, n->parent[i]));
    for (const tsri_nccl_group *g = n->groups; g; g = g->next)
        if (g->own)
            TSRI_TRY(look_at(n, g->comm));
    return TSR_OK;
}

/* Each call tells its communicator to stop, and the group's end waits for all of them. One after
 * the other, the first would wait for ever for what another, not told yet, keeps the device at. */
static void stop(void *arg)
{
    tsri_nccl *n = arg;
    cudaSetDevice(n->device->ordinal);
    ncclGroupStart();
    for (tsri_nccl_group *g = n->groups; g; g = g->next) {
        if (g->own && g->comm)
            ncclCommAbort(g->comm);
        g->comm = NULL;
    }
    for (int i = 0; i < TSRI_NCCL_LANES; i++) {
        if (n->parent[i])
            ncclCommAbort(n->parent[i]);
        n->parent[i] = NULL;
    }
    ncclGroupEnd();
}

const tsri_watch_ops tsri_nccl_watch_ops = {look, stop};

/* --- registered memory ------------------------------------------------------------------------ */
tsr_status tsri_nccl_memory_wanted(bool *out_wanted)
{
    const char *asked = getenv("TESSERA_NCCL_REGISTER"), *comm = getenv("TESSERA_CUDA_COMM");
    *out_wanted = false;
    if (!asked || strcmp(asked, "1") != 0 || (comm && !strcmp(comm, "local")))
        return TSR_OK;
    if (!ncclMemAlloc || !ncclMemFree || !ncclCommRegister || !ncclCommDeregister)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "TESSERA_NCCL_REGISTER=1: NCCL %s can't register memory",
                         tsri_nccl_version());
    *out_wanted = true;
    return TSR_OK;
}

tsr_status tsri_nccl_memory_alloc(size_t bytes, void **out_ptr)
{
    ncclResult_t r = ncclMemAlloc(out_ptr, bytes);
    if (r == ncclSuccess)
        return TSR_OK;
    cudaGetLastError(); /* or the next call would be blamed */
    return tsri_fail(TSR_ERR_NO_MEMORY, "NCCL, ncclMemAlloc: %s: %.300s", ncclGetErrorString(r),
                     ncclGetLastError(NULL));
}

void tsri_nccl_memory_free(void *ptr)
{
    ncclMemFree(ptr);
}

/* Registers the arena, in which all buffers of calls lie, with a communicator that is settled. */
static tsr_status register_arena(tsri_nccl *n, ncclComm_t comm)
{
    if (!n->device->is_registered)
        return TSR_OK;
    tsri_nccl_registration *made = tsri_mem_alloc(&n->pub.world->mem, sizeof *made);
    if (!made)
        return tsri_watch_fail(n->watch, TSR_ERR_NO_MEMORY, tsr_last_error());
    TSRI_TRY(tsri_watch_enter(n->watch));
    ncclResult_t r =
        ncclCommRegister(comm, n->device->region.base, n->device->region.size, &made->handle);
    tsri_watch_leave(n->watch);
    if (r != ncclSuccess) {
        tsri_mem_free(made);
        return give_up(n, r, "registering the arena");
    }
    made->comm = comm;
    made->next = n->registrations;
    n->registrations = made;
    return TSR_OK;
}

static void deregister_arena(tsri_nccl *n, ncclComm_t comm)
{
    tsri_nccl_registration **at = &n->registrations;
    while (*at && (*at)->comm != comm)
        at = &(*at)->next;
    tsri_nccl_registration *made = *at;
    if (!made)
        return;
    ncclCommDeregister(comm, made->handle);
    *at = made->next;
    tsri_mem_free(made);
}

/* --- making and ending ------------------------------------------------------------------------ */
/* Reductions in the switches of NVLink differ from call to call. */
static void keep_order(void)
{
    setenv("NCCL_NVLS_ENABLE", "0", 0);
}

tsr_status tsri_nccl_join(tsri_nccl *n, const unsigned char id[128])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    config.blocking = 0;
    memcpy(&unique, id, sizeof unique);
    if (n->device->deterministic)
        pthread_once(&once, keep_order);
    TSRI_TRY(tsri_watch_enter(n->watch));
    ncclResult_t r = ncclCommInitRankConfig(&n->parent[0], n->n, unique, n->index, &config);
    tsri_watch_leave(n->watch);
    TSRI_TRY(settle(n, n->parent[0], r, n->pub.world->timeout_s, "joining"));
    TSRI_TRY(register_arena(n, n->parent[0]));
    return tsri_nccl_open_lane(n, 1);
}

tsr_status tsri_nccl_open_lane(tsri_nccl *n, int lane)
{
    TSRI_TRY(tsri_nccl_split(n, 0, 0, n->index));
    TSRI_TRY(tsri_watch_enter(n->watch));
    n->parent[lane] = n->coming;
    tsri_watch_leave(n->watch);
    return TSR_OK;
}

tsr_status tsri_nccl_id(unsigned char out_id[128])
{
    ncclUniqueId unique;
    _Static_assert(sizeof unique == 128, "an id has 128 bytes");
    ncclResult_t r = ncclGetUniqueId(&unique);
    if (r != ncclSuccess)
        return tsri_fail(TSR_ERR_BACKEND, "NCCL, ncclGetUniqueId: %s: %.300s",
                         ncclGetErrorString(r), ncclGetLastError(NULL));
    memcpy(out_id, &unique, sizeof unique);
    return TSR_OK;
}

tsr_status tsri_nccl_split(tsri_nccl *n, int lane, int color, int key)
{
    double seconds = n->pub.world->timeout_s;
    n->coming = NULL;
    TSRI_TRY(tsri_watch_enter(n->watch));
    ncclResult_t r = ncclCommSplit(n->parent[lane], color < 0 ? NCCL_SPLIT_NOCOLOR : color, key,
                                   &n->coming, NULL);
    tsri_watch_leave(n->watch);
    TSRI_TRY(settle(n, n->parent[lane], r, seconds, "making groups"));
    if (color < 0)
        return TSR_OK;
    TSRI_TRY(settle(n, n->coming, ncclInProgress, seconds, "making a group"));
    return register_arena(n, n->coming);
}

void tsri_nccl_end(tsri_nccl *n, ncclComm_t comm, double seconds)
{
    double start = tsri_now_s();
    if (!comm)
        return;
    deregister_arena(n, comm);
    ncclResult_t r = ncclCommFinalize(comm);
    while (r == ncclInProgress && tsri_now_s() - start < seconds) {
        if (ncclCommGetAsyncError(comm, &r) != ncclSuccess)
            break;
        if (r == ncclInProgress)
            tsri_sleep_s(1e-3);
    }
    if (r == ncclSuccess)
        ncclCommDestroy(comm);
    else
        ncclCommAbort(comm);
}

void tsri_nccl_drop(ncclComm_t comm)
{
    ncclCommAbort(comm);
}

/* --- asking ----------------------------------------------------------------------------------- */
static ncclResult_t ask(const tsri_nccl_group *g, const tsri_coll *coll, const tsri_nccl_call *c,
                        const tsri_nccl_step *s, cudaStream_t stream)
{
    const void *src = tsri_nccl_find(coll, c, s->src);
    void *dst = tsri_nccl_find(coll, c, s->dst);
    size_t count = (size_t)s->count;
    ncclDataType_t type = type_of(s->dtype);
    ncclRedOp_t op = op_of(s->op);
    switch (s->kind) {
    case TSRI_NCCL_ALL_REDUCE:
        return ncclAllReduce(src, dst, count, type, op, g->comm, stream);
    case TSRI_NCCL_ALL_GATHER:
        return ncclAllGather(src, dst, count, type, g->comm, stream);
    case TSRI_NCCL_REDUCE_SCATTER:
        return ncclReduceScatter(src, dst, count, type, op, g->comm, stream);
    case TSRI_NCCL_BROADCAST:
        return ncclBroadcast(src ? src : dst, dst, count, type, s->peer, g->comm, stream);
    case TSRI_NCCL_REDUCE:
        return ncclReduce(src, dst, count, type, op, s->peer, g->comm, stream);
    case TSRI_NCCL_SEND:
        return ncclSend(src, count, type, s->peer, g->comm, stream);
    case TSRI_NCCL_RECV:
        return ncclRecv(dst, count, type, s->peer, g->comm, stream);
    default:
        return ncclInternalError;
    }
}

/* Steps [first, end) as one launch. Its own deadline is the watchdog's and more, as that one knows
 * more; but it sees nothing as long as NCCL has not put its work into the stream. */
tsr_status tsri_nccl_talk(tsri_nccl *n, const tsri_nccl_group *g, const tsri_coll *coll,
                          const tsri_nccl_call *c, int first, int end)
{
    cudaStream_t stream = n->stream[tsri_nccl_lane(g->pub.lane)];
    bool grouped = c->plan.steps[first].kind == TSRI_NCCL_GROUP_START;
    TSRI_TRY(tsri_watch_enter(n->watch));
    ncclComm_t comm = g->comm;
    ncclResult_t r = grouped ? ncclGroupStart() : ncclSuccess;
    for (int i = first + grouped; i < end - grouped && !is_bad(r); i++)
        r = ask(g, coll, c, &c->plan.steps[i], stream);
    if (grouped) {
        ncclResult_t ended = ncclGroupEnd();
        r = is_bad(r) ? r : ended;
    }
    tsri_watch_leave(n->watch);
    return settle(n, comm, r, 1.25 * n->pub.world->timeout_s + 1,
                  coll->what && *coll->what ? coll->what : tsri_coll_kind_name(coll->kind));
}

const char *tsri_nccl_version(void)
{
    static char text[32];
    int v = 0;
    ncclGetVersion(&v);
    snprintf(text, sizeof text, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    return text;
}
