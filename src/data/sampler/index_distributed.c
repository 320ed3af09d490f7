/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's DistributedSampler: all replicas know the same order; each takes every replicas-th of
 * it. The order goes round as often as padding needs it to.
 */
#include "src/core/opts.h"
#include "src/data/sampler/index_sampler.h"

#include <inttypes.h>

#include "src/core/live.h"

static tsr_status begin_distributed(tsr_sampler *s)
{
    if (!s->over)
        return TSR_OK;
    TSRI_TRY(tsr_sampler_reset(s->over));
    TSRI_TRY(tsr_sampler_get_state(s->over, &s->over_start));
    tsr_status status = TSR_OK;
    int64_t got = 0, index;
    for (; (status = tsr_sampler_next(s->over, &index)) == TSR_OK; got++)
        if (got < s->n)
            s->block[got] = index;
    if (status != TSR_END)
        return status;
    return got == s->n ? TSR_OK
                       : tsri_fail(TSR_ERR_STATE,
                                   "distributed sampler: the sampler below gave %" PRId64
                                   " indices, but says that it gives %" PRId64,
                                   got, s->n);
}

/* Once a pass: nothing but the order. */
static tsr_status fill_distributed(tsr_sampler *s)
{
    s->block_first = 0;
    s->block_count = s->count;
    if (s->over || !s->block)
        return TSR_OK;
    tsri_generator_seed(&s->seeded, s->seed + (uint64_t)s->epoch);
    tsri_generator_randperm(&s->seeded, s->n, s->n >= TSRI_RANDPERM_WIDE, s->block);
    return TSR_OK;
}

static int64_t at_distributed(const tsr_sampler *s)
{
    int64_t i = (s->rank + s->position * s->replicas) % s->n;
    return s->block ? s->block[i] : i;
}

static const tsri_sampler_ops distributed = {
    .kind = 6,
    .name = "distributed",
    .keeps_epoch = true,
    .begin = begin_distributed,
    .fill = fill_distributed,
    .at = at_distributed,
};

static tsr_status resolve_replicas(tsr_world *world, tsr_distributed_sampler_opts *o)
{
    static const char who[] = "tsr_distributed_sampler";
    if (!o->replicas) {
        if (!world || o->rank)
            return tsri_fail(TSR_ERR_INVALID, "%s: replicas is 0, %s", who,
                             world ? "but a rank is given" : "and there is no world to say them");
        o->replicas = world->nranks;
        o->rank = world->rank;
    }
    if (o->replicas < 1)
        return tsri_fail(TSR_ERR_INVALID, "%s: Invalid replicas %d, there must be at least 1", who,
                         o->replicas);
    if (o->rank < 0 || o->rank >= o->replicas)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: Invalid rank %d, rank should be in the interval [0, %d]", who,
                         o->rank, o->replicas - 1);
    return TSR_OK;
}

/* The number of samples of one replica. */
static int64_t count_of(int64_t n, const tsr_distributed_sampler_opts *o)
{
    int64_t whole = n / o->replicas, rest = n % o->replicas;
    if (!rest || o->drop_last)
        return whole;
    return o->pad ? whole + 1 : whole + (o->rank < rest);
}

tsr_status tsr_distributed_sampler(tsr_world *world, int64_t n,
                                   const tsr_distributed_sampler_opts *opts,
                                   tsr_sampler **out_sampler)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    static const char who[] = "tsr_distributed_sampler";
    tsr_distributed_sampler_opts o = *TSR_DISTRIBUTED_SAMPLER_OPTS();
    TSRI_TRY(tsri_sampler_check(who, n, out_sampler));
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, who));
    TSRI_TRY(resolve_replicas(world, &o));
    int64_t below = o.over ? tsr_sampler_count(o.over) : n;
    if (below != n)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: n is %" PRId64 ", but the sampler below gives %" PRId64 " indices",
                         who, n, below);
    tsr_sampler *s;
    TSRI_TRY(tsri_sampler_create(world, &distributed, n, count_of(n, &o), &s));
    s->replicas = o.replicas;
    s->rank = o.rank;
    s->seed = (uint64_t)o.seed;
    s->over = o.over;
    bool in_order = !o.shuffle && !o.over;
    tsr_status status = in_order ? TSR_OK : tsri_sampler_room(s, n);
    return tsri_sampler_finish(world, s, status, out_sampler);
}
