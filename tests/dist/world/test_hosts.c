/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of several machines, which are arenas of one process here: threads. What stands in for the
 * communicator between machines is a local one too, over an arena of all ranks, for which any
 * address is in the region.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <tessera/collective.h>
#include "src/comm/world/hosts.h"
#include "src/comm/world/make.h"
#include "src/core/clock.h"
#include "tests/dist/comm/recorder.h"

enum { MOST = 6, COUNT = 37 };
static const double meeting_s = 60; /* threads that start may be late */

/* machine[r]: of rank r, numbered from 0. */
typedef struct layout {
    int nranks, machine[MOST];
} layout;

static const layout layouts[] = {
    {2, {0, 1}},       {3, {0, 0, 1}},       {4, {0, 0, 1, 1}},       {4, {0, 1, 0, 1}},
    {4, {1, 0, 0, 0}}, {5, {0, 1, 2, 0, 2}}, {6, {2, 1, 0, 2, 1, 0}},
};

typedef struct cluster cluster;
typedef tsr_status body(tsr_world *world, cluster *c);

struct cluster {
    const layout *layout;
    body *fn;
    double timeout_s;
    tsri_arena all, machine[MOST];
    tsr_status status[MOST];
    char text[MOST][512];
    double seconds[MOST];
    const char *what;
    int all_values[MOST];
    /* Of each rank: what its two communicators counted. */
    tsri_comm_stats here[MOST], far[MOST];
};

typedef struct rank_thread {
    cluster *c;
    int rank;
    pthread_t thread;
} rank_thread;

/* --- the stand-in ----------------------------------------------------------------------------- */

static char *const nowhere = (char *)1;

static tsr_status open_anywhere(tsri_local_group *g)
{
    for (int m = 0; m < g->pub.nranks; m++)
        g->peer[m] = (tsri_peer){nowhere, SIZE_MAX - 1};
    return TSR_OK;
}

/* `shadow`: the same rank, with a region of its own, which nobody uses. */
static tsr_status make_remote(tsr_world *world, tsr_world *shadow, tsri_arena all,
                              tsri_region *anywhere, tsri_mover *mover, tsri_comm **out)
{
    *shadow = (tsr_world){.rank = world->rank,
                          .nranks = world->nranks,
                          .is_thread = true,
                          .threads = 1,
                          .timeout_s = world->timeout_s};
    TSRI_TRY(tsri_local_create(shadow, all, false, NULL, out));
    tsri_local *local = (tsri_local *)(*out)->priv;
    *mover = tsri_mover_host;
    mover->open = open_anywhere;
    *anywhere = (tsri_region){.base = nowhere, .size = SIZE_MAX - 1};
    local->mover = mover;
    local->region = anywhere;
    return TSR_OK;
}

/* --- running ---------------------------------------------------------------------------------- */

static int ranks_of(const layout *l, int machine, int ranks[MOST])
{
    int n = 0;
    for (int r = 0; r < l->nranks; r++)
        if (l->machine[r] == machine)
            ranks[n++] = r;
    return n;
}

static tsr_status run_rank(cluster *c, int rank)
{
    int here[MOST], local_rank = 0, machine = c->layout->machine[rank];
    int n = ranks_of(c->layout, machine, here);
    tsr_world *world, shadow;
    tsri_region anywhere;
    tsri_mover mover;
    tsri_comm *local, *remote;
    tsr_world_opts opts;
    TSRI_TRY(
        tsri_world_opts_resolve(TSR_WORLD_OPTS(.timeout_s = meeting_s, .threads = 1), n, &opts));
    while (here[local_rank] != rank)
        local_rank++;
    TSRI_TRY(tsri_world_make(&opts, c->layout->nranks, rank, local_rank, c->machine[machine], false,
                             here, &world));
    local = world->comm;
    TSRI_TRY(make_remote(world, &shadow, c->all, &anywhere, &mover, &remote));
    TSRI_TRY(tsri_hosts_create(world, local, remote, NULL, NULL, &world->comm));
    tsr_status status = tsr_world_barrier(world);
    world->timeout_s = shadow.timeout_s = c->timeout_s;
    double start = tsri_now_s();
    if (status == TSR_OK)
        status = c->fn(world, c);
    c->seconds[rank] = tsri_now_s() - start;
    c->status[rank] = status;
    snprintf(c->text[rank], sizeof c->text[rank], "%s", tsr_last_error());
    local->ops->stats(local, &c->here[rank]);
    remote->ops->stats(remote, &c->far[rank]);
    tsr_world_destroy(world);
    return status;
}

static void *run_thread(void *arg)
{
    rank_thread *t = arg;
    tsri_error_clear();
    t->c->status[t->rank] = run_rank(t->c, t->rank);
    return NULL;
}

static void run(const layout *l, body *fn, double timeout_s, const char *what, cluster *c)
{
    rank_thread t[MOST];
    *c = (cluster){.layout = l, .fn = fn, .timeout_s = timeout_s, .what = what};
    assert_int_equal(tsri_arena_make(l->nranks, 1 << 20, &c->all), TSR_OK);
    for (int m = 0; m < MOST; m++) {
        int ranks[MOST], n = ranks_of(l, m, ranks);
        if (n)
            assert_int_equal(tsri_arena_make(n, 1 << 20, &c->machine[m]), TSR_OK);
    }
    for (int r = 0; r < l->nranks; r++) {
        t[r] = (rank_thread){.c = c, .rank = r};
        assert_int_equal(pthread_create(&t[r].thread, NULL, run_thread, &t[r]), 0);
    }
    for (int r = 0; r < l->nranks; r++)
        pthread_join(t[r].thread, NULL);
    tsri_arena_unmap(&c->all);
    for (int m = 0; m < MOST; m++)
        tsri_arena_unmap(&c->machine[m]);
}

static void expect_ok(const cluster *c)
{
    for (int r = 0; r < c->layout->nranks; r++)
        if (c->status[r] != TSR_OK)
            fail_msg("rank %d: %s", r, c->text[r]);
}

/* --- values ----------------------------------------------------------------------------------- */

static float value_of(int rank, int i)
{
    return (float)((rank + 2) * (i % 11) - rank);
}

typedef struct buffers {
    float *src, *dst;
} buffers;

static tsr_status call(tsri_group *g, const tsri_coll *coll)
{
    tsri_ticket t;
    const tsri_comm_ops *ops = g->comm->ops;
    TSRI_TRY(ops->start(g, coll, &t));
    TSRI_TRY(ops->finish(g, &t));
    return ops->release(g, &t);
}

static tsr_status wrong(const tsri_group *g, const char *what, int i, float got, float wanted)
{
    return tsri_fail(TSR_ERR_INTERNAL, "%s in a group of %d: element %d is %g, expected %g", what,
                     g->nranks, i, (double)got, (double)wanted);
}

static tsr_status check_sum(tsri_group *g, const buffers *b, tsri_coll_algo algo)
{
    const tsri_segment s = {.src = b->src,
                            .dst = b->dst,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(COUNT),
                            .src_axis = -1,
                            .dst_axis = -1};
    const tsri_coll c = {
        .kind = TSRI_COLL_ALL_REDUCE, .algo = algo, .nseg = 1, .seg = &s, .what = "sum"};
    TSRI_TRY(call(g, &c));
    for (int i = 0; i < COUNT; i++) {
        float sum = 0;
        for (int m = 0; m < g->nranks; m++)
            sum += value_of(g->ranks[m], i);
        if (b->dst[i] != sum)
            return wrong(g, "all_reduce", i, b->dst[i], sum);
    }
    return TSR_OK;
}

/* Each member reads the member before it, backwards. */
static tsr_status check_ring(tsri_group *g, const buffers *b)
{
    const int before = (g->index + g->nranks - 1) % g->nranks;
    const tsri_pull p = {.ndim = 1,
                         .length = {COUNT},
                         .src_at = COUNT - 1,
                         .src_step = {-1},
                         .dst_step = {1},
                         .nsrc = 1,
                         .src = &before};
    const tsri_segment s = {.src = b->src,
                            .dst = b->dst,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(COUNT),
                            .npulls = 1,
                            .pulls = &p,
                            .dst_count = COUNT};
    const tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "ring"};
    TSRI_TRY(call(g, &c));
    for (int i = 0; i < COUNT; i++) {
        float wanted = value_of(g->ranks[before], COUNT - 1 - i);
        if (b->dst[i] != wanted)
            return wrong(g, "send_recv", i, b->dst[i], wanted);
    }
    return TSR_OK;
}

/* All groups of the world's ranks, each in two orders; in the same order on all ranks. */
static tsr_status try_groups(tsr_world *w, cluster *c)
{
    buffers b;
    int n = w->nranks;
    TSRI_TRY(tsri_region_alloc(&w->region, COUNT * sizeof(float), (void **)&b.src));
    TSRI_TRY(tsri_region_alloc(&w->region, COUNT * sizeof(float), (void **)&b.dst));
    for (int i = 0; i < COUNT; i++)
        b.src[i] = value_of(w->rank, i);
    for (int set = 1; set < 1 << n; set++)
        for (int order = 0; order < 2; order++) {
            int ranks[MOST], size = 0;
            tsri_group *g, *again;
            for (int k = 0; k < n; k++) {
                int r = order ? n - 1 - k : k;
                if (set >> r & 1)
                    ranks[size++] = r;
            }
            if (!(set >> w->rank & 1))
                continue;
            TSRI_TRY(w->comm->ops->group(w->comm, size, ranks, order, &g));
            TSRI_TRY(w->comm->ops->group(w->comm, size, ranks, order, &again));
            if (g != again || g->nranks != size || g->ranks[g->index] != w->rank ||
                g->comm != w->comm || g->lane != order)
                return tsri_fail(TSR_ERR_INTERNAL, "set %x: not the group that was asked for", set);
            TSRI_TRY(check_sum(g, &b, TSRI_ALGO_ONE_SHOT));
            TSRI_TRY(check_sum(g, &b, TSRI_ALGO_TWO_PHASE));
            TSRI_TRY(check_ring(g, &b));
        }
    int all[MOST], mine = 100 + w->rank;
    TSRI_TRY(w->comm->ops->exchange(w->comm, &mine, sizeof mine, all));
    for (int r = 0; r < n; r++)
        if (all[r] != 100 + r)
            return tsri_fail(TSR_ERR_INTERNAL, "exchange: %d is %d", r, all[r]);
    (void)c;
    return TSR_OK;
}

/* Groups of one machine must not have gone elsewhere, nor the others anywhere else. */
static void check_counts(const cluster *c)
{
    const layout *l = c->layout;
    for (int r = 0; r < l->nranks; r++) {
        uint64_t here = 0, far = 0;
        for (int set = 1; set < 1 << l->nranks; set++) {
            bool same = true;
            for (int k = 0; k < l->nranks; k++)
                same &= !(set >> k & 1) || l->machine[k] == l->machine[r];
            if (set >> r & 1)
                *(same ? &here : &far) += 2; /* orders */
        }
        assert_int_equal(c->here[r].calls[TSRI_COLL_ALL_REDUCE], 2 * here);
        assert_int_equal(c->far[r].calls[TSRI_COLL_ALL_REDUCE], 2 * far);
        assert_int_equal(c->here[r].calls[TSRI_COLL_SEND_RECV], here);
        assert_int_equal(c->far[r].calls[TSRI_COLL_SEND_RECV], far);
        assert_int_equal(c->here[r].calls[TSRI_COLL_BARRIER], 0);
        assert_int_equal(c->far[r].calls[TSRI_COLL_BARRIER], 1);
    }
}

static void test_groups(void **state)
{
    static cluster c;
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        run(&layouts[i], try_groups, 30, "", &c);
        expect_ok(&c);
        check_counts(&c);
    }
}

/* --- what else there is ----------------------------------------------------------------------- */

static tsr_status look_around(tsr_world *w, cluster *c)
{
    tsri_comm *local = tsri_comm_on_machine(w->comm), *recorder;
    tsri_comm_stats sum, here;
    tsri_group *g;
    int all[MOST], here_index = 0;
    if (!local || local == w->comm || strcmp(local->ops->name, "local") != 0 ||
        strcmp(w->comm->ops->name, "hosts") != 0 || !w->comm->in_region)
        return tsri_fail(TSR_ERR_INTERNAL, "not the communicator of this machine");
    TSRI_TRY(recorder_create(w->comm, &recorder));
    bool same = tsri_comm_on_machine(recorder) == local && recorder->in_region;
    recorder->ops->destroy(recorder);
    if (!same)
        return tsri_fail(TSR_ERR_INTERNAL, "a recorder hides it");
    for (int r = 0; r < w->rank; r++)
        here_index += c->layout->machine[r] == c->layout->machine[w->rank];
    if (tsr_world_local_rank(w) != here_index)
        return tsri_fail(TSR_ERR_INTERNAL, "local rank %d", tsr_world_local_rank(w));
    for (int r = 0; r < w->nranks; r++)
        all[r] = r;
    if (local->ops->group(local, w->nranks, all, 0, &g) != TSR_ERR_INVALID ||
        !strstr(tsr_last_error(), "on another machine"))
        return tsri_fail(TSR_ERR_INTERNAL, "a group over machines in shared memory");
    if (w->comm->ops->group(w->comm, w->nranks + 1, all, 0, &g) != TSR_ERR_INVALID)
        return tsri_fail(TSR_ERR_INTERNAL, "a group that can't be");
    w->comm->ops->stats(w->comm, &sum);
    local->ops->stats(local, &here);
    if (sum.calls[TSRI_COLL_BARRIER] != 1 || here.calls[TSRI_COLL_BARRIER] != 0)
        return tsri_fail(TSR_ERR_INTERNAL, "counts");
    TSRI_TRY(w->comm->ops->check(w->comm));
    return tsr_world_barrier(w);
}

/* The same groups of a twin, by another thread, while this one is in those of the world's own. */
typedef struct twin_thread {
    tsr_world *world;
    tsri_comm *comm;
    tsr_status status;
    char text[512];
} twin_thread;

static tsr_status many_barriers(tsri_comm *c)
{
    const tsri_coll coll = {.kind = TSRI_COLL_BARRIER, .what = "many"};
    int ranks[MOST], n = c->world->nranks, here = 0, mine[MOST];
    tsri_group *all, *some;
    for (int r = 0; r < n; r++) {
        ranks[r] = r;
        if (layouts[3].machine[r] == layouts[3].machine[c->world->rank])
            mine[here++] = r;
    }
    TSRI_TRY(c->ops->group(c, n, ranks, 0, &all));
    TSRI_TRY(c->ops->group(c, here, mine, 0, &some));
    for (int i = 0; i < 200; i++) {
        TSRI_TRY(call(all, &coll));
        TSRI_TRY(call(some, &coll));
    }
    return TSR_OK;
}

static void *run_twin(void *arg)
{
    twin_thread *t = arg;
    tsri_error_clear();
    t->status = many_barriers(t->comm);
    snprintf(t->text, sizeof t->text, "%s", tsr_last_error());
    return NULL;
}

static tsr_status use_twin(tsr_world *w, cluster *c)
{
    twin_thread t = {.world = w};
    pthread_t thread;
    tsri_comm_stats twin_stats;
    (void)c;
    TSRI_TRY(w->comm->ops->twin(w->comm, &t.comm));
    if (pthread_create(&thread, NULL, run_twin, &t))
        return TSR_ERR_NO_MEMORY;
    tsr_status status = many_barriers(w->comm);
    pthread_join(thread, NULL);
    t.comm->ops->stats(t.comm, &twin_stats);
    if (status == TSR_OK && t.status != TSR_OK)
        status = tsri_fail(t.status, "%s", t.text);
    if (status == TSR_OK && twin_stats.calls[TSRI_COLL_BARRIER] != 400)
        status = tsri_fail(TSR_ERR_INTERNAL, "the twin's counts");
    if (status == TSR_OK)
        status = tsr_world_barrier(w);
    /* Its abort is everybody's. */
    if (status == TSR_OK && w->rank == 2)
        t.comm->ops->abort(t.comm, "enough");
    for (int i = 0; i < 2000 && status == TSR_OK; i++) {
        usleep(10000);
        status = w->comm->ops->check(w->comm);
    }
    t.comm->ops->destroy(t.comm);
    return status;
}

/* Per-rank buffers: on one machine, those in the arena are read where they are, for which there is
 * no room twice. */
static tsr_status use_buffers(tsr_world *w, cluster *c)
{
    enum { LARGE = 150000 };
    const int *machine = c->layout->machine;
    int mine[MOST], n = ranks_of(c->layout, machine[w->rank], mine);
    float *large, sum = 0, all = 0, small = (float)w->rank;
    void *p;
    tsr_group *here;
    for (int r = 0; r < w->nranks; r++) {
        sum += machine[r] == machine[w->rank] ? (float)r : 0;
        all += (float)r;
    }
    TSRI_TRY(tsr_group_create(w, n, mine, &here));
    TSRI_TRY(tsr_alloc(w, LARGE * sizeof *large, &p));
    large = p;
    for (int i = 0; i < LARGE; i++)
        large[i] = (float)w->rank;
    TSRI_TRY(tsr_all_reduce(here, large, LARGE, TSR_F32, TSR_REDUCE_SUM));
    TSRI_TRY(tsr_all_reduce(tsr_world_group(w), &small, 1, TSR_F32, TSR_REDUCE_SUM));
    for (int i = 0; i < LARGE; i++)
        if (large[i] != sum)
            return tsri_fail(TSR_ERR_INTERNAL, "%g at %d", (double)large[i], i);
    if (small != all)
        return tsri_fail(TSR_ERR_INTERNAL, "%g of all", (double)small);
    return tsr_world_barrier(w);
}

static void test_buffers(void **state)
{
    static cluster c;
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        run(&layouts[i], use_buffers, 60, "", &c);
        expect_ok(&c);
    }
}

static void test_twin(void **state)
{
    static cluster c;
    (void)state;
    run(&layouts[3], use_twin, 30, "", &c);
    for (int r = 0; r < 4; r++) {
        if (c.status[r] != TSR_ERR_REMOTE || strcmp(c.text[r], "rank 2 failed: enough"))
            fail_msg("rank %d: %s", r, c.text[r]);
    }
}

static void test_around(void **state)
{
    static cluster c;
    (void)state;
    run(&layouts[3], look_around, 30, "", &c);
    expect_ok(&c);
}

/* --- failures. Ranks 0, 2 and 4 are one machine, 1, 3 and 5 the other ------------------------- */

static const layout two = {6, {0, 1, 0, 1, 0, 1}};

static tsr_status meet(tsr_world *w, int a, int b, const char *what)
{
    const int ranks[2] = {a, b};
    const tsri_coll c = {.kind = TSRI_COLL_BARRIER, .what = what};
    tsri_group *g;
    TSRI_TRY(w->comm->ops->group(w->comm, 2, ranks, 0, &g));
    return call(g, &c);
}

/* Rank 3 fails. Ranks 0 and 2 wait for each other's machine-mates in vain, rank 1 waits for rank 5
 * on the machine of rank 3, rank 4 for rank 3 from the other; 2 and 5 for nobody, for a while. */
static tsr_status one_fails(tsr_world *w, cluster *c)
{
    tsr_status status = TSR_OK;
    switch (w->rank) {
    case 0:
        return meet(w, 0, 2, "never");
    case 1:
        return meet(w, 1, 5, "never");
    case 4:
        return meet(w, 3, 4, "never");
    case 3:
        usleep(150000);
        if (!strcmp(c->what, "abort"))
            tsr_world_abort(w, "the disk is full");
        if (!strcmp(c->what, "device")) /* as a device that fails: known on this machine alone */
            tsri_arena_abort(&c->machine[1], 3, "the disk is full");
        if (!strcmp(c->what, "leave"))
            return TSR_OK;
        return meet(w, 3, 1, "after it");
    default:
        for (int i = 0; i < 200 && status == TSR_OK; i++) {
            usleep(100000);
            status = w->comm->ops->check(w->comm);
        }
        return status;
    }
}

static void test_abort(void **state)
{
    static cluster c;
    (void)state;
    run(&two, one_fails, 60, "abort", &c);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(c.status[r], TSR_ERR_REMOTE);
        assert_string_equal(c.text[r], "rank 3 failed: the disk is full");
        assert_true(c.seconds[r] < 20);
    }
    run(&two, one_fails, 60, "device", &c);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(c.status[r], TSR_ERR_REMOTE);
        assert_non_null(strstr(c.text[r], "rank 3 failed: the disk is full"));
        assert_true(c.seconds[r] < 20);
    }
}

/* Rank 4 alone waits for who has left, and is told so; that reaches the others. */
static void test_death(void **state)
{
    static cluster c;
    (void)state;
    run(&two, one_fails, 60, "leave", &c);
    assert_int_equal(c.status[3], TSR_OK);
    assert_int_equal(c.status[4], TSR_ERR_DEAD);
    assert_non_null(strstr(c.text[4], "rank 3 has left"));
    for (int r = 0; r < 6; r++) {
        assert_true(c.seconds[r] < 20);
        if (r == 3 || r == 4)
            continue;
        assert_int_equal(c.status[r], TSR_ERR_REMOTE);
        assert_non_null(strstr(c.text[r], "rank 3 has left"));
    }
}

/* Places in the arena are 0, 1, 2; messages name ranks 1, 3, 5. */
static tsr_status say_who(tsr_world *w, cluster *c)
{
    if (!strcmp(c->what, "timeout")) {
        if (w->rank == 1)
            return meet(w, 1, 5, "late");
        usleep(1200000);
        return TSR_OK;
    }
    if (!strcmp(c->what, "mismatch"))
        return w->rank & 1 && w->rank > 1 ? meet(w, 3, 5, w->rank == 3 ? "apples" : "pears")
                                          : TSR_OK;
    if (w->rank == 5)
        return TSR_OK;
    return w->rank == 3 ? meet(w, 3, 5, "gone") : TSR_OK;
}

static void test_messages(void **state)
{
    static cluster c;
    (void)state;
    run(&two, say_who, 0.4, "timeout", &c);
    assert_int_equal(c.status[1], TSR_ERR_TIMEOUT);
    assert_non_null(strstr(c.text[1], "rank 5 did not come to barrier #1 'late'"));
    run(&two, say_who, 30, "mismatch", &c);
    for (int r = 3; r <= 5; r += 2) {
        assert_int_equal(c.status[r], TSR_ERR_MISMATCH);
        assert_non_null(strstr(c.text[r], "rank 3 is at barrier #1 'apples'"));
        assert_non_null(strstr(c.text[r], "rank 5 is at barrier #1 'pears'"));
    }
    run(&two, say_who, 30, "leave", &c);
    assert_int_equal(c.status[3], TSR_ERR_DEAD);
    assert_non_null(strstr(c.text[3], "rank 5 has left"));
    assert_non_null(strstr(c.text[3], "while rank 3 waited for it in barrier #1 'gone'"));
}

/* Each half of the communicator sees by itself the status that a rank of its side leaves at its
 * end, before the other half has heard of it. */
static tsr_status check_halves(tsr_world *w, cluster *c)
{
    const bool is_mine = !c->what || c->layout->machine[w->rank] == 0;
    const tsri_comm_ops *ops = w->comm->ops;
    if (ops->check(w->comm) != TSR_OK)
        return tsri_fail(TSR_ERR_INTERNAL, "before: %s", tsr_last_error());
    TSRI_TRY(tsr_world_barrier(w));
    if (w->rank == 0)
        tsri_arena_abort(c->what ? &c->machine[0] : &c->all, 0, "on purpose");
    for (int tries = 0; tries < 400; tries++) {
        if (ops->check(w->comm) != TSR_OK)
            return strstr(tsr_last_error(), "rank 0 failed: on purpose") && is_mine
                       ? TSR_OK
                       : tsri_fail(TSR_ERR_INTERNAL, "after: %s", tsr_last_error());
        if (!is_mine && tries > 20)
            return TSR_OK;
        usleep(5000);
    }
    return tsri_fail(TSR_ERR_INTERNAL, "check has seen nothing");
}

static void test_check(void **state)
{
    (void)state;
    cluster c;
    run(&layouts[2], check_halves, 30, "here", &c);
    expect_ok(&c);
    run(&layouts[2], check_halves, 30, NULL, &c);
    expect_ok(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),   cmocka_unit_test(test_around),
        cmocka_unit_test(test_twin),     cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_abort),    cmocka_unit_test(test_death),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests_name("hosts", tests, NULL, NULL);
}
