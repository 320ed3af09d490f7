/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, worked out and done. */
#include "src/comm/nccl/inside.h"

/* --- calls worked out ------------------------------------------------------------------------- */
/* The lane uses new memory behind what clears it in the stream of compute. */
static tsr_status await_clearing(const tsri_nccl *n, int lane)
{
    cudaEvent_t cleared;
    TSRI_CUDA(cudaEventCreateWithFlags(&cleared, cudaEventDisableTiming));
    cudaError_t error = cudaEventRecord(cleared, n->device->compute.handle);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(n->stream[lane], cleared, 0);
    cudaEventDestroy(cleared);
    return tsri_cuda_check(error, "waiting for staging memory");
}

static tsr_status take_stage(tsri_nccl *n, int lane, size_t bytes,
                             tsri_nccl_stage_block **out_stage)
{
    tsri_device *d = &n->device->base;
    tsri_nccl_stage_block *s;
    for (s = n->stages; s; s = s->next)
        if (s->lane == lane && s->bytes >= bytes)
            break;
    if (!s) {
        s = tsri_mem_alloc(&n->pub.world->mem, sizeof *s);
        TSRI_NEED(s);
        tsr_status status = d->ops->buffer_alloc(d, bytes, &s->ptr);
        if (status == TSR_OK)
            status = await_clearing(n, lane);
        if (status != TSR_OK) {
            if (s->ptr)
                d->ops->buffer_free(d, s->ptr, bytes);
            tsri_mem_free(s);
            return tsri_fail_prefix(status, "staging memory for collectives");
        }
        s->lane = lane;
        s->bytes = bytes;
        s->next = n->stages;
        n->stages = s;
    }
    s->users++;
    *out_stage = s;
    return TSR_OK;
}

static void give_stage(tsri_nccl *n, tsri_nccl_stage_block *s)
{
    if (!s || --s->users)
        return;
    tsri_nccl_stage_block **at = &n->stages;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    n->device->base.ops->buffer_free(&n->device->base, s->ptr, s->bytes);
    tsri_mem_free(s);
}

void tsri_nccl_call_free(tsri_nccl *n, tsri_nccl_call *c)
{
    if (!c)
        return;
    give_stage(n, c->stage);
    if (c->ready)
        cudaEventDestroy(c->ready);
    if (c->done)
        cudaEventDestroy(c->done);
    if (c->name >= 0)
        tsri_watch_unname(n->watch, c->name);
    if (!c->is_like)
        tsri_nccl_plan_finish(&c->plan);
    tsri_mem_free(c);
}

/* Gives a planned call its staging memory, its events and its name for the watch. */
static tsr_status equip(tsri_nccl *n, const tsri_group *g, const tsri_coll *coll, tsri_nccl_call *c)
{
    const int lane = tsri_nccl_lane(g->lane);
    c->sends = lane == TSRI_NCCL_SENDS && tsri_coll_only_gives(coll, 0, coll->nseg, g->index);
    if (c->plan.stage_bytes)
        TSRI_TRY(take_stage(n, lane, c->plan.stage_bytes, &c->stage));
    if (!c->plan.talks)
        return TSR_OK;
    TSRI_CUDA(cudaEventCreateWithFlags(&c->ready, cudaEventDisableTiming));
    TSRI_CUDA(cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming));
    return tsri_watch_name(n->watch, g, coll, &c->name);
}

static tsr_status fill_call(tsri_nccl *n, const tsri_group *g, const tsri_coll *coll,
                            tsri_nccl_call *c)
{
    tsri_nccl_words words = {0};
    if (g->nranks > 1 && (!coll->is_agreed || coll->kind == TSRI_COLL_SEND_RECV))
        TSRI_TRY(tsri_nccl_agree(g, coll, &words));
    tsr_status status = tsri_nccl_plan_make(&n->pub.world->mem, coll, g->nranks, g->index, g->ranks,
                                            &words, false, &c->plan);
    tsri_mem_free((void *)(uintptr_t)words.words);
    TSRI_TRY(status);
    return equip(n, g, coll, c);
}

/* A reduction that is NCCL's own may be in place; one in the order of members has staged sources.
 */
static bool may_be_in_place(const tsri_coll *coll)
{
    return coll->kind == TSRI_COLL_ALL_REDUCE && coll->op == TSR_REDUCE_SUM;
}

tsr_status tsri_nccl_call_make(tsri_nccl *n, const tsri_group *g, const tsri_coll *coll,
                               tsri_nccl_call **out_call)
{
    TSRI_TRY(tsri_watch_check(n->watch));
    TSRI_TRY(tsri_coll_check_here(coll, g->nranks, g->index, may_be_in_place(coll)));
    tsri_nccl_call *c = tsri_mem_alloc(&n->pub.world->mem, sizeof *c);
    if (!c) {
        /* The others wait for what this rank has to say. */
        n->pub.world->comm->ops->abort(n->pub.world->comm, tsr_last_error());
        return TSR_ERR_NO_MEMORY;
    }
    c->name = -1;
    tsr_status status = fill_call(n, g, coll, c);
    if (status != TSR_OK) {
        tsri_nccl_call_free(n, c);
        return status;
    }
    *out_call = c;
    return TSR_OK;
}

tsr_status tsri_nccl_call_make_like(tsri_nccl *n, const tsri_group *g, const tsri_coll *coll,
                                    const tsri_nccl_call *like, tsri_nccl_call **out_call)
{
    TSRI_TRY(tsri_watch_check(n->watch));
    tsri_nccl_call *c = tsri_mem_alloc(&n->pub.world->mem, sizeof *c);
    TSRI_NEED(c);
    *c = (tsri_nccl_call){.plan = like->plan, .is_like = true, .name = -1};
    const tsr_status status = equip(n, g, coll, c);
    if (status != TSR_OK) {
        tsri_nccl_call_free(n, c);
        return status;
    }
    *out_call = c;
    return TSR_OK;
}

/* --- doing steps ------------------------------------------------------------------------------ */
char *tsri_nccl_find(const tsri_coll *coll, const tsri_nccl_call *c, tsri_nccl_place p)
{
    return tsri_nccl_locate(coll, c->stage ? c->stage->ptr : NULL, p);
}

static tsr_status do_here(const tsri_coll *coll, const tsri_nccl_call *c, const tsri_nccl_step *s,
                          cudaStream_t stream)
{
    const void *sources[TSRI_NCCL_MAX_PARTS];
    if (s->kind == TSRI_NCCL_FILL)
        return tsri_cuda_fill(s->dtype, s->op, s->count, tsri_nccl_find(coll, c, s->dst), stream);
    tsri_move move = s->move;
    for (int i = 0; i < move.nsrc; i++)
        sources[i] = tsri_nccl_find(coll, c, c->plan.sources[s->first + i]);
    move.src = sources;
    move.dst = tsri_nccl_find(coll, c, s->dst);
    return tsri_cuda_move(&move, stream);
}

static tsr_status do_steps(tsri_nccl *n, const tsri_nccl_group *g, const tsri_coll *coll,
                           const tsri_nccl_call *c, cudaStream_t stream)
{
    const tsri_nccl_plan *p = &c->plan;
    for (int i = 0, end; i < p->nsteps; i = end) {
        end = tsri_nccl_talk_end(p, i);
        if (tsri_nccl_is_here(&p->steps[i]))
            TSRI_TRY(do_here(coll, c, &p->steps[i], stream));
        else
            TSRI_TRY(tsri_nccl_talk(n, g, coll, c, i, end));
    }
    return TSR_OK;
}

/* In the lane's stream, behind what is in the caller's. */
tsr_status tsri_nccl_call_do(tsri_nccl *n, const tsri_nccl_group *g, const tsri_coll *coll,
                             const tsri_nccl_call *c, cudaStream_t user)
{
    int lane = tsri_nccl_lane(g->pub.lane);
    cudaStream_t stream = n->stream[lane];
    if (!c->plan.talks)
        return do_steps(n, g, coll, c, user);
    TSRI_CUDA(cudaEventRecord(c->ready, user));
    TSRI_CUDA(cudaStreamWaitEvent(stream, c->ready, 0));
    unsigned long long name = (unsigned long long)c->name;
    TSRI_TRY(tsri_cuda_mark(&n->marks_device[lane], &n->counts[lane], name, true, stream));
    TSRI_TRY(do_steps(n, g, coll, c, stream));
    TSRI_TRY(tsri_cuda_mark(&n->marks_device[lane], &n->counts[lane], name, false, stream));
    TSRI_CUDA(cudaEventRecord(c->done, stream));
    return TSR_OK;
}
