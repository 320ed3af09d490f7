/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of hostile.py: reduces and passes on values that it checks, until the file STOP is there.
 * Now and then it does so in another group, which connects anew. Its last line is the proof that
 * all values were right. usage: hostile_child STOP
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <tessera/tessera.h>

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

enum { COUNT = 1000, CALLS_OF_GROUP = 5, MOST_RANKS = 64 };

/* Whole numbers, so that all sums are exact. */
static float addend(int rank, int64_t call, int i)
{
    return (float)((i * 7 + call * 3) % 1021 + 31 * rank);
}

static tsr_status check(int64_t call, const char *what, int i, float got, float wanted)
{
    if (got == wanted)
        return TSR_OK;
    return tsr_set_error(TSR_ERR_INTERNAL, "call %" PRId64 ": %s [%d] is %g, not %g", call, what, i,
                         (double)got, (double)wanted);
}

static tsr_status reduce(tsr_world *w, tsr_group *g, int64_t call)
{
    static float x[COUNT];
    const int rank = tsr_world_rank(w), nranks = tsr_world_size(w);
    for (int i = 0; i < COUNT; i++)
        x[i] = addend(rank, call, i);
    TRY(tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM));
    for (int i = 0; i < COUNT; i++) {
        float sum = 0;
        for (int r = 0; r < nranks; r++)
            sum += addend(r, call, i);
        TRY(check(call, "sum", i, x[i], sum));
    }
    return TSR_OK;
}

/* Round the ring; the group's first begins. */
static tsr_status pass_on(tsr_group *g, int64_t call)
{
    static float x[COUNT];
    const int rank = tsr_group_rank(g), nranks = tsr_group_size(g);
    for (int i = 0; i < COUNT; i++)
        x[i] = addend(0, call, i);
    const int next = tsr_group_world_rank(g, (rank + 1) % nranks);
    const int before = tsr_group_world_rank(g, (rank + nranks - 1) % nranks);
    if (rank > 0)
        TRY(tsr_recv(g, x, COUNT, TSR_F32, before, 0));
    for (int i = 0; i < COUNT; i++)
        x[i] += 1;
    TRY(tsr_send(g, x, COUNT, TSR_F32, next, 0));
    if (rank > 0)
        return TSR_OK;
    TRY(tsr_recv(g, x, COUNT, TSR_F32, before, 0));
    for (int i = 0; i < COUNT; i++)
        TRY(check(call, "value", i, x[i], addend(0, call, i) + (float)nranks));
    return TSR_OK;
}

/* All ranks in the number-th order: another group, which connects when it is first used. */
static tsr_status next_group(tsr_world *w, int64_t number, tsr_group **out)
{
    int ranks[MOST_RANKS], n = tsr_world_size(w);
    if (n > MOST_RANKS)
        return tsr_set_error(TSR_ERR_INVALID, "%d ranks: at most %d", n, MOST_RANKS);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    for (int i = n; i > 1; number /= i, i--) {
        const int other = (int)(number % i), last = ranks[i - 1];
        ranks[i - 1] = ranks[other];
        ranks[other] = last;
    }
    return tsr_group_create(w, n, ranks, out);
}

static tsr_status run(tsr_world *w, const char *stop)
{
    const int rank = tsr_world_rank(w);
    tsr_group *g = tsr_world_group(w);
    for (int64_t call = 0;; call++) {
        float ends = rank == 0 && access(stop, F_OK) == 0;
        if (call % CALLS_OF_GROUP == 1)
            TRY(next_group(w, call / CALLS_OF_GROUP, &g));
        TRY(reduce(w, g, call));
        TRY(pass_on(g, call));
        TRY(tsr_all_reduce(tsr_world_group(w), &ends, 1, TSR_F32, TSR_REDUCE_SUM));
        if (call == 0)
            printf("rank %d has begun\n", rank);
        if (ends != 0) {
            printf("rank %d: all values of %" PRId64 " calls are right\n", rank, call + 1);
            return TSR_OK;
        }
        usleep(2000);
    }
}

int main(int argc, char **argv)
{
    tsr_world *w = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: hostile_child STOP\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    tsr_status status = tsr_world_create(NULL, &w);
    if (status == TSR_OK)
        status = run(w, argv[1]);
    if (status != TSR_OK)
        fprintf(stderr, "hostile_child: %s\n", tsr_last_error());
    tsr_world_destroy(w);
    return status != TSR_OK;
}
