/* SPDX-License-Identifier: Apache-2.0 */
/* What test_launch and test_meet start as ranks. argv[1] says what to do. */
#include <tessera/collective.h>
#include "src/comm/comm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 1003 };
static const double soon_s = 5;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tsr_status call(tsr_world *w, tsri_group *g, const tsri_coll *c)
{
    tsri_ticket t;
    TSRI_TRY(w->comm->ops->start(g, c, &t));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    return w->comm->ops->release(g, &t);
}

/* Each rank reads the first half of the next one's numbers, backwards. */
static tsr_status ring(tsr_world *w, tsri_group *g, float *src, float *dst)
{
    const int next = (g->index + 1) % g->nranks;
    const tsri_pull p = {.ndim = 1,
                         .length = {COUNT / 2},
                         .src_at = COUNT / 2 - 1,
                         .src_step = {-1},
                         .dst_step = {1},
                         .nsrc = 1,
                         .src = &next};
    const tsri_segment s = {.src = src,
                            .dst = dst,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(COUNT),
                            .npulls = 1,
                            .pulls = &p,
                            .dst_count = COUNT};
    const tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "ring"};
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < COUNT; i++)
            src[i] = (float)(g->index * COUNT + i + round);
        TSRI_TRY(call(w, g, &c));
        for (int i = 0; i < COUNT / 2; i++)
            if (dst[i] != (float)(next * COUNT + COUNT / 2 - 1 - i + round))
                return tsri_fail(TSR_ERR_INTERNAL, "ring, round %d, element %d: %g", round, i,
                                 (double)dst[i]);
    }
    return TSR_OK;
}

static tsr_status collectives(tsr_world *w)
{
    int ranks[8], n = w->nranks;
    float *src, *dst;
    tsri_group *g;
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    TSRI_TRY(w->comm->ops->group(w->comm, n, ranks, 0, &g));
    TSRI_TRY(tsri_region_alloc(&w->region, COUNT * sizeof *src, (void **)&src));
    TSRI_TRY(tsri_region_alloc(&w->region, COUNT * sizeof *dst, (void **)&dst));
    for (int round = 0; round < 200; round++) {
        const tsri_segment s = {.src = src,
                                .dst = dst,
                                .dtype = TSR_F32,
                                .shape = TSR_DIMS(COUNT),
                                .src_axis = -1,
                                .dst_axis = -1};
        const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                             .algo = (tsri_coll_algo)(round & 1),
                             .nseg = 1,
                             .seg = &s,
                             .what = "sum"};
        for (int i = 0; i < COUNT; i++)
            src[i] = (float)((w->rank + 1) * (i % 50) + round);
        TSRI_TRY(call(w, g, &c));
        for (int i = 0; i < COUNT; i++)
            if (dst[i] != (float)(n * (n + 1) / 2 * (i % 50) + n * round))
                return tsri_fail(TSR_ERR_INTERNAL, "round %d, element %d: %g", round, i,
                                 (double)dst[i]);
    }
    TSRI_TRY(ring(w, g, src, dst));
    int all[8];
    TSRI_TRY(w->comm->ops->exchange(w->comm, &w->rank, sizeof w->rank, all));
    for (int i = 0; i < n; i++)
        if (all[i] != i)
            return tsri_fail(TSR_ERR_INTERNAL, "exchange: %d", all[i]);
    return TSR_OK;
}

/* The last rank is killed; the others must know within a second, or five of a machine that does
 * much else. */
static tsr_status killed(tsr_world *w)
{
    signal(SIGTERM, SIG_IGN); /* the launcher's, which comes as soon */
    TSRI_TRY(tsr_world_barrier(w));
    if (w->rank == w->nranks - 1) {
        usleep(200000);
        raise(SIGKILL);
    }
    double start = now_s();
    tsr_status status = tsr_world_barrier(w);
    printf("rank %d: %s after %s: %s\n", w->rank, tsr_status_name(status),
           now_s() - start < soon_s ? "a moment" : "too long", tsr_last_error());
    return status;
}

/* A chain that rank 0 feeds: the last rank is killed, who gives to it and who does not must know.
 */
static tsr_status killed_sending(tsr_world *w)
{
    int ranks[8], n = w->nranks, before = w->rank - 1;
    float *mem = (float *)(void *)w->region.base;
    tsri_group *g;
    tsr_status status = TSR_OK;
    double start = now_s();
    signal(SIGTERM, SIG_IGN);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    TSRI_TRY(w->comm->ops->group(w->comm, n, ranks, 0, &g));
    const tsri_pull p = {.nsrc = 1, .src = &before};
    const tsri_segment s = {.src = w->rank < n - 1 ? mem : NULL,
                            .dst = w->rank > 0 ? mem + 1 : NULL,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(1),
                            .npulls = w->rank > 0,
                            .pulls = &p,
                            .dst_count = w->rank > 0};
    const tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "stage"};
    for (int i = 0; status == TSR_OK; i++) {
        status = call(w, g, &c);
        if (i == 100 && w->rank == n - 1)
            raise(SIGKILL);
        if (i == 100)
            start = now_s();
    }
    printf("rank %d: %s after %s: %s\n", w->rank, tsr_status_name(status),
           now_s() - start < soon_s ? "a moment" : "too long", tsr_last_error());
    fflush(stdout);
    usleep(300000); /* who left at once would be missed by the others */
    return status;
}

/* Calls that nobody else comes to: what they leave behind must not disturb the next world. */
static tsr_status leave_unfinished(tsr_world *w, int round)
{
    const int ranks[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const tsri_segment s = {.src = w->region.base, .dtype = TSR_F32};
    const tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "unheard"};
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(w->comm->ops->group(w->comm, w->nranks, ranks, 0, &g));
    for (int i = 0; i <= round && w->rank == 0; i++)
        TSRI_TRY(w->comm->ops->start(g, &c, &t));
    return TSR_OK;
}

/* A second world after the first, in the same processes. */
static tsr_status again(tsr_world **w)
{
    TSRI_TRY(collectives(*w));
    tsr_world *second;
    if (tsr_world_create(NULL, &second) != TSR_ERR_STATE)
        return tsri_fail(TSR_ERR_INTERNAL, "two worlds at once");
    for (int i = 0; i < 3; i++) {
        TSRI_TRY(leave_unfinished(*w, i));
        tsr_world_destroy(*w);
        *w = NULL;
        TSRI_TRY(tsr_world_create(NULL, w));
        TSRI_TRY(collectives(*w));
    }
    return TSR_OK;
}

/* Sums without end; 20 of them where the ranks have been started again. Every rank that fails has
 * started somebody who must go with it. */
static tsr_status loop(tsr_world *w)
{
    const char *restart = getenv("TESSERA_RESTART_COUNT");
    int ranks[8], rounds = restart && atoi(restart) > 0 ? 20 : 1 << 30;
    float *src, *dst;
    tsri_group *g;
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    TSRI_TRY(w->comm->ops->group(w->comm, w->nranks, ranks, 0, &g));
    TSRI_TRY(tsri_region_alloc(&w->region, COUNT * sizeof *src, (void **)&src));
    TSRI_TRY(tsri_region_alloc(&w->region, COUNT * sizeof *dst, (void **)&dst));
    const tsri_segment s = {.src = src,
                            .dst = dst,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(COUNT),
                            .src_axis = -1,
                            .dst_axis = -1};
    const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &s, .what = "loop"};
    for (int round = 0; round < rounds; round++)
        TSRI_TRY(call(w, g, &c));
    return TSR_OK;
}

static pid_t start_somebody(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("sleep", "sleep", "60", (char *)NULL);
        _exit(99);
    }
    printf("rank %s pid %d. pid %d.\n", getenv("RANK"), (int)getpid(), (int)pid);
    fflush(stdout);
    return pid;
}

/* Its failure is everybody's, and the others end before it does. */
static tsr_status give_up(tsr_world *w)
{
    TSRI_TRY(tsr_world_barrier(w));
    if (w->rank == 2) {
        signal(SIGTERM, SIG_IGN);
        tsr_world_abort(w, "the disk is full");
        usleep(50000);
        syscall(SYS_exit_group, 5); /* now: ThreadSanitizer's exit takes a second */
    }
    return tsr_world_barrier(w);
}

/* Rank 0 of node 0 sends to rank 2 of node 1, and leaves long before that one receives. Ranks 1 and
 * 3 send each other what neither receives. */
static tsr_status parts(tsr_world *w)
{
    enum { INTS = 1 << 20, MESSAGES = 3 };
    tsr_group *g = tsr_world_group(w);
    int32_t *data = calloc(INTS, sizeof *data);
    tsr_status status = data && g ? tsr_group_barrier(g) : TSR_ERR_NO_MEMORY;
    if (w->rank % 2 && status == TSR_OK)
        status = tsr_send(g, data, 5, TSR_I32, 4 - w->rank, 0);
    if (w->rank == 2)
        usleep(1500000);
    for (int m = 0; m < MESSAGES && w->rank % 2 == 0 && status == TSR_OK; m++) {
        for (int i = 0; i < INTS && w->rank == 0; i++)
            data[i] = 7 * i + m;
        status = w->rank == 0 ? tsr_send(g, data, INTS, TSR_I32, 2, m)
                              : tsr_recv(g, data, INTS, TSR_I32, 0, m);
        for (int i = 0; i < INTS && status == TSR_OK; i++)
            if (data[i] != 7 * i + m)
                status = tsri_fail(TSR_ERR_INTERNAL, "message %d: [%d] is %d", m, i, data[i]);
    }
    free(data);
    return status;
}

/* Collectives without end, of messages that no socket holds: the ranks are always inside one. */
static tsr_status stream(tsr_world *w)
{
    enum { INTS = 1 << 20 };
    tsr_group *g = tsr_world_group(w);
    int32_t *data = calloc(INTS, sizeof *data);
    tsr_status status = data && g ? tsr_group_barrier(g) : TSR_ERR_NO_MEMORY;
    printf("streams.\n");
    fflush(stdout);
    for (int i = 0; status == TSR_OK; i++) {
        status = tsr_broadcast(g, data, INTS, TSR_I32, i % w->nranks);
        if (status == TSR_OK)
            status = tsr_all_reduce(g, data, INTS / 8, TSR_I32, TSR_REDUCE_MAX);
    }
    free(data);
    return status;
}

/* Descriptors that are sockets or files; those by which peers are watched are neither. */
static int count_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++) {
        struct stat st;
        n += fstat(fd, &st) == 0 && (S_ISSOCK(st.st_mode) || S_ISREG(st.st_mode));
    }
    return n;
}

/* What has become of the meeting: nothing may be left of it but the world. */
static tsr_status meet_again(tsr_world **w, int fds)
{
    for (int i = 0; i < 3; i++) {
        TSRI_TRY(collectives(*w));
        tsr_world_destroy(*w);
        *w = NULL;
        TSRI_TRY(tsr_world_create(NULL, w));
        if (count_fds() != fds)
            return tsri_fail(TSR_ERR_INTERNAL, "%d sockets and files more than before",
                             count_fds() - fds);
    }
    printf("rank %d of %d, local %d, comm %s\n", (*w)->rank, (*w)->nranks, tsr_world_local_rank(*w),
           (*w)->comm->ops->name);
    return TSR_OK;
}

/* Worlds one after the other; who is quick must not find what is left of the last one. */
static tsr_status many_worlds(tsr_world **w)
{
    for (int i = 0; i < 5; i++) {
        if ((*w)->rank == i % (*w)->nranks)
            usleep(50000);
        tsr_world_destroy(*w);
        *w = NULL;
        TSRI_TRY(tsr_world_create(NULL, w));
    }
    printf("rank %d of %d, local %d, comm %s\n", (*w)->rank, (*w)->nranks, tsr_world_local_rank(*w),
           (*w)->comm->ops->name);
    return TSR_OK;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    tsr_world *w = NULL;
    const char *env_rank = getenv("RANK");
    int rank = env_rank ? atoi(env_rank) : 0;
    if (!strcmp(mode, "never") && rank == 1) {
        usleep(300000);
        return 0; /* without ever making its world */
    }
    pid_t somebody = strncmp(mode, "loop", 4) != 0 ? 0 : start_somebody();
    int fds = count_fds();
    tsr_status status = tsr_world_create(NULL, &w);
    if (status == TSR_OK && !strcmp(mode, "collectives"))
        status = collectives(w);
    else if (status == TSR_OK && !strcmp(mode, "killed"))
        status = killed(w);
    else if (status == TSR_OK && !strcmp(mode, "killed_sending"))
        status = killed_sending(w);
    else if (status == TSR_OK && !strncmp(mode, "loop", 4))
        status = loop(w);
    else if (status == TSR_OK && !strcmp(mode, "give_up"))
        status = give_up(w);
    else if (status == TSR_OK && !strcmp(mode, "parts"))
        status = parts(w);
    else if (status == TSR_OK && !strcmp(mode, "stream"))
        status = stream(w);
    else if (status == TSR_OK && !strcmp(mode, "again"))
        status = again(&w);
    else if (status == TSR_OK && !strcmp(mode, "meet"))
        status = meet_again(&w, fds);
    else if (status == TSR_OK && !strcmp(mode, "worlds"))
        status = many_worlds(&w);
    else if (status == TSR_OK && !strcmp(mode, "gpus"))
        printf("rank %d has its GPUs with %d\n", w->rank, w->nalike);
    else if (status == TSR_OK && !strcmp(mode, "exit") && rank == 1)
        exit(7);
    else if (status == TSR_OK)
        status = tsr_world_barrier(w);
    if (status != TSR_OK && !strcmp(mode, "loop_abort"))
        tsr_world_abort(w, tsr_last_error());
    if (status != TSR_OK)
        fprintf(stderr, "rank %d: %s\n", w ? w->rank : rank, tsr_last_error());
    else
        printf("rank %d of %d ok\n", tsr_world_rank(w), tsr_world_size(w));
    tsr_world_destroy(w);
    if (status == TSR_OK && somebody > 0)
        kill(somebody, SIGKILL);
    return status == TSR_OK ? 0 : 1;
}
