/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of misuse.py: does what its argument names, and prints what it is told. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tessera/tessera.h>

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

typedef struct rank {
    tsr_world *world;
    tsr_group *group;
    int rank;
} rank;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- collectives that do not fit -------------------------------------------------------------- */
static tsr_status sizes(rank *r)
{
    float x[8] = {0};
    return tsr_all_reduce(r->group, x, 4 + r->rank, TSR_F32, TSR_REDUCE_SUM);
}

static tsr_status kinds(rank *r)
{
    float x[4] = {0};
    return r->rank ? tsr_broadcast(r->group, x, 4, TSR_F32, 0)
                   : tsr_all_reduce(r->group, x, 4, TSR_F32, TSR_REDUCE_SUM);
}

static tsr_status dtypes(rank *r)
{
    int64_t x[4] = {0};
    return tsr_all_reduce(r->group, x, r->rank ? 4 : 8, r->rank ? TSR_I64 : TSR_I32,
                          TSR_REDUCE_SUM);
}

static tsr_status ops(rank *r)
{
    float x[4] = {0};
    return tsr_all_reduce(r->group, x, 4, TSR_F32, r->rank ? TSR_REDUCE_MAX : TSR_REDUCE_SUM);
}

static tsr_status roots(rank *r)
{
    float x[4] = {0};
    return tsr_broadcast(r->group, x, 4, TSR_F32, r->rank);
}

static tsr_status async_sizes(rank *r)
{
    float x[8] = {0};
    tsr_work *work;
    TRY(tsr_all_reduce_async(r->group, x, 4 + r->rank, TSR_F32, TSR_REDUCE_SUM, &work));
    return tsr_work_wait(&work, 0);
}

static tsr_status receives(rank *r)
{
    float x[8] = {0};
    return r->rank ? tsr_recv(r->group, x, 5, TSR_F32, 0, 3)
           : tsr_send(r->group, x, 4, TSR_F32, 1, 3) == TSR_OK ? tsr_group_barrier(r->group)
                                                               : TSR_ERR_INTERNAL;
}

/* --- ranks that do not come ------------------------------------------------------------------- */
static tsr_status late(rank *r)
{
    float x = 0;
    if (r->rank == 1)
        sleep(30);
    return tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM);
}

static tsr_status leaves(rank *r)
{
    float x = 0;
    TRY(tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM));
    return r->rank == 1 ? TSR_OK : tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM);
}

static tsr_status exits(rank *r)
{
    float x = 0;
    if (r->rank == 1) {
        fprintf(stderr, "rank 1 gives up: no such data set\n");
        exit(7);
    }
    return tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM);
}

static tsr_status killed(rank *r)
{
    float x = 0;
    for (int i = 0;; i++) {
        if (r->rank == 1 && i == 100)
            raise(SIGKILL);
        TRY(tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM));
    }
}

static tsr_status segfaults(rank *r)
{
    float x = 0;
    if (r->rank == 1)
        (void)(signal(SIGSEGV, SIG_DFL), raise(SIGSEGV)); /* a sanitizer's handler exits */
    return tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM);
}

static tsr_status aborts(rank *r)
{
    float x = 0;
    if (r->rank == 1) {
        tsr_world_abort(r->world, "the learning rate is NaN");
        return tsr_set_error(TSR_ERR_INVALID, "the learning rate is NaN");
    }
    return tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM);
}

/* Waits in a group of its own while the whole world needs it. */
static tsr_status crossed(rank *r)
{
    static const int pair[2] = {0, 1};
    tsr_group *g;
    float x = 0;
    if (r->rank == 2)
        return tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM);
    TRY(tsr_group_create(r->world, 2, pair, &g));
    if (r->rank == 1)
        TRY(tsr_all_reduce(r->group, &x, 1, TSR_F32, TSR_REDUCE_SUM));
    return tsr_all_reduce(g, &x, 1, TSR_F32, TSR_REDUCE_SUM);
}

/* --- data parallel ---------------------------------------------------------------------------- */
static tsr_tensor *first_only(tsr_module *m, tsr_tensor *x, void *arg)
{
    const int *layers = arg;
    tsr_tensor *y = tsr_apply(tsr_module_child(m, "first"), x);
    return *layers > 1 ? tsr_apply(tsr_module_child(m, "second"), y) : y;
}

/* runs: of this rank. layers: that its graph uses. inputs: of its module. */
static tsr_status train(rank *r, int runs, int layers, int inputs)
{
    const tsr_placement *here = tsr_local_placement(r->world);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B};
    tsr_module *m = tsr_module_create(r->world, &nn, first_only, &layers, NULL);
    tsr_module_add(m, "first", tsr_nn_linear(r->world, &nn, inputs, 4, true));
    tsr_module_add(m, "second", tsr_nn_linear(r->world, &nn, 4, 4, true));
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(m, NULL, &ddp));
    tsr_graph *g = tsr_graph_create(r->world, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2, inputs), here, TSR_B);
    tsr_ddp_backward(ddp, tsr_sum(tsr_apply(m, x), TSR_ALL_AXES, false));
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    const float ones[2 * 4] = {1, 1, 1, 1, 1, 1, 1, 1};
    TRY(tsr_feed(plan, "x", ones, (size_t)(2 * inputs) * sizeof *ones));
    for (int i = 0; i < runs; i++)
        TRY(tsr_ddp_run(ddp, plan));
    return tsr_ddp_close(&ddp);
}

static tsr_status ddp_skips(rank *r)
{
    return train(r, r->rank == 1 ? 4 : 5, 2, 3);
}

static tsr_status ddp_unused(rank *r)
{
    return train(r, 1, r->rank == 1 ? 1 : 2, 3);
}

static tsr_status ddp_shapes(rank *r)
{
    return train(r, 1, 2, r->rank == 1 ? 4 : 3);
}

/* Until something fails; then how long the call took that did. */
static tsr_status forever(rank *r)
{
    tsr_status status = TSR_OK;
    double start = 0;
    float x[256] = {0};
    for (int i = 0; status == TSR_OK; i++) {
        if (i == 100) {
            printf("rank %d has begun\n", r->rank);
            fflush(stdout);
        }
        start = now_s();
        status = tsr_all_reduce(r->group, x, 256, TSR_F32, TSR_REDUCE_SUM);
    }
    printf("rank %d: told after %.2f s\n", r->rank, now_s() - start);
    return status;
}

static tsr_status trivial(rank *r)
{
    return tsr_group_barrier(r->group);
}

/* Fails the first time alone. */
static tsr_status once(rank *r)
{
    const char *count = getenv("TESSERA_RESTART_COUNT");
    TRY(tsr_group_barrier(r->group));
    if (r->rank == 1 && (!count || !strcmp(count, "0")))
        raise(SIGKILL);
    return tsr_group_barrier(r->group);
}

static const struct {
    const char *name;
    tsr_status (*fn)(rank *r);
} scenarios[] = {
    {"sizes", sizes},
    {"kinds", kinds},
    {"dtypes", dtypes},
    {"ops", ops},
    {"roots", roots},
    {"async_sizes", async_sizes},
    {"receives", receives},
    {"late", late},
    {"leaves", leaves},
    {"exits", exits},
    {"killed", killed},
    {"segfaults", segfaults},
    {"aborts", aborts},
    {"crossed", crossed},
    {"ddp_skips", ddp_skips},
    {"ddp_shapes", ddp_shapes},
    {"ddp_unused", ddp_unused},
    {"trivial", trivial},
    {"once", once},
    {"forever", forever},
};

int main(int argc, char **argv)
{
    tsr_world *world = NULL;
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(scenarios[i].name, argv[1]) != 0)
            continue;
        tsr_status status = tsr_world_create(NULL, &world);
        rank r = {world, tsr_world_group(world), tsr_world_rank(world)};
        double start = now_s();
        if (status == TSR_OK)
            status = scenarios[i].fn(&r);
        if (status == TSR_OK)
            printf("rank %d: fine\n", r.rank);
        else
            printf("rank %d after %.2f s: %s: %s\n", r.rank, now_s() - start,
                   tsr_status_name(status), tsr_last_error());
        fflush(stdout);
        tsr_world_destroy(world);
        return status == TSR_OK ? 0 : 1;
    }
    fprintf(stderr, "usage: misuse_child SCENARIO\n");
    return 2;
}
