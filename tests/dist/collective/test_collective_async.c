/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous collectives over thread ranks: they proceed by themselves, in order within a group,
 * and no group waits for another; messages by tags, ahead of their receivers. As a rank that a
 * launcher has started, the storm over processes.
 */
#include "tests/dist/collective/collective_values.h"
#include "tests/dist/comm/rank_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

/* The tests run once more on GPUs: see tests/cuda/collectives_on_device.h. */
#ifndef ON_DEVICE
#define ON_DEVICE 0
#endif

static const tsr_world_opts options = {
    .size = sizeof options, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};

static void nap(double s)
{
    const struct timespec t = {.tv_sec = (time_t)s,
                               .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

static void run(int n, tsr_rank_fn *fn)
{
    _Atomic int count = 0; /* for what the function counts */
    if (tsr_spawn_with(n, fn, &count, &options) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* The first call of a group on GPUs connects them, and so is one for all to come to. */
static tsr_status connect(tsr_group *g)
{
    int32_t x = 1;
    return ON_DEVICE ? tsr_all_reduce(g, &x, 1, TSR_I32, TSR_REDUCE_SUM) : TSR_OK;
}

/* --- the storm -------------------------------------------------------------------------------- */

enum { OPS = 500, GROUPS = 4 };

/* An operation: what the k-th of a group is, all its members know. */
typedef struct op {
    tsr_work *work;
    char *data, *expected;
    size_t bytes; /* of what is compared */
    bool heap;
} op;

static tsr_status begin(tsr_world *w, tsr_group *g, int group, int k, op *o)
{
    int n = tsr_group_size(g), me = tsr_group_rank(g), ranks[8];
    uint64_t seed = (uint64_t)(group * OPS + k), h = values_hash(seed, 11, 12);
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_BF16, TSR_I64, TSR_U8};
    static const int64_t counts[] = {0, 1, 7, 900, 1500, 5000, 20000};
    tsr_dtype t = dtypes[h % 5];
    int64_t count = counts[h / 5 % 7];
    int root = (int)(h / 35 % (uint64_t)n);
    size_t bytes = (size_t)count * tsr_dtype_size(t), all = bytes * (size_t)n;
    o->heap = values_hash(seed, (uint64_t)tsr_world_rank(w), 5) % 2;
    for (int i = 0; i < n; i++)
        ranks[i] = tsr_group_world_rank(g, i);
    if (o->heap)
        CHECK((o->data = malloc(all + 1)) != NULL);
    else
        TSRI_TRY(tsr_alloc(w, all, (void **)&o->data));
    CHECK((o->expected = malloc(all + 1)) != NULL);
    values_fill(t, o->data, count, ranks[me], 0, seed);
    o->bytes = bytes;
    switch (h / 1000 % 4) {
    case 0:
        values_fill(t, o->expected, count, ranks[root], 0, seed);
        return tsr_broadcast_async(g, o->data, count, t, ranks[root], &o->work);
    case 1:
        o->bytes = all;
        for (int i = 0; i < n; i++)
            values_fill(t, o->expected + (size_t)i * bytes, count, ranks[i], 0, seed);
        return tsr_all_gather_into_async(g, o->data, o->data, count, t, &o->work);
    case 2:
        values_reduce(t, TSR_REDUCE_MAX, n, ranks, o->expected, count, 0, seed);
        return tsr_all_reduce_async(g, o->data, count, t, TSR_REDUCE_MAX, &o->work);
    default:
        values_reduce(t, TSR_REDUCE_SUM, n, ranks, o->expected, count, 0, seed);
        return tsr_all_reduce_async(g, o->data, count, t, TSR_REDUCE_SUM, &o->work);
    }
}

static tsr_status end(tsr_world *w, op *o)
{
    TSRI_TRY(tsr_work_wait(&o->work, 0));
    CHECK(!o->work);
    CHECK(o->bytes == 0 || memcmp(o->data, o->expected, o->bytes) == 0);
    if (o->heap)
        free(o->data);
    else
        tsr_free(w, o->data);
    free(o->expected);
    *o = (op){0};
    return TSR_OK;
}

/* Every rank goes through its groups in an order of its own. */
static tsr_status storm(tsr_world *w, void *arg)
{
    static const int lists[GROUPS][4] = {{0, 1, 2}, {2, 0}, {1, 2}, {1, 0, 2}};
    static const int sizes[GROUPS] = {3, 2, 2, 3};
    tsr_group *groups[GROUPS];
    int mine[GROUPS], ngroups = 0, at[GROUPS] = {0}, left = 0, me = tsr_world_rank(w), nopen = 0;
    op *open = calloc(OPS, sizeof *open);
    (void)arg;
    CHECK(open != NULL);
    for (int i = 0; i < GROUPS; i++)
        for (int j = 0; j < sizes[i]; j++)
            if (lists[i][j] == me) {
                TSRI_TRY(tsr_group_create(w, sizes[i], lists[i], &groups[i]));
                TSRI_TRY(connect(groups[i]));
                mine[ngroups++] = i;
            }
    left = ngroups * (OPS / GROUPS);
    for (uint64_t step = 0; left > 0 || nopen > 0; step++) {
        uint64_t h = values_hash((uint64_t)me, step, 77);
        if (h % 97 == 0)
            nap(0.002);
        int group = mine[h / 100 % (uint64_t)ngroups];
        if (left > 0 && h / 1000 % 3) {
            if (at[group] == OPS / GROUPS)
                continue;
            TSRI_TRY(begin(w, groups[group], group, at[group]++, &open[nopen++]));
            left--;
        } else if (nopen > 0) {
            /* While some are not begun, a wait could be for a rank that waits for this one. */
            int which = (int)(h / 7000 % (uint64_t)nopen);
            if (left > 0 && !tsr_work_test(open[which].work))
                continue;
            TSRI_TRY(end(w, &open[which]));
            open[which] = open[--nopen];
        }
    }
    free(open);
    return TSR_OK;
}

static void test_storm(void **state)
{
    (void)state;
    run(3, storm);
}

/* --- by themselves, in order ------------------------------------------------------------------ */

/* Rank 2 is late for the group of all; 0 and 1 have a group of their own. */
static tsr_status late(tsr_world *w, void *arg)
{
    static const int pair[2] = {0, 1};
    tsr_group *all = tsr_world_group(w), *two;
    tsr_work *first, *second;
    int32_t a = 1, b = 1;
    _Atomic int *gone_on = arg;
    TSRI_TRY(connect(all));
    if (tsr_world_rank(w) == 2)
        await_count(gone_on, 2);
    TSRI_TRY(tsr_all_reduce_async(all, &a, 1, TSR_I32, TSR_REDUCE_SUM, &first));
    if (tsr_world_rank(w) < 2) {
        TSRI_TRY(tsr_group_create(w, 2, pair, &two));
        TSRI_TRY(tsr_all_reduce_async(two, &b, 1, TSR_I32, TSR_REDUCE_SUM, &second));
        TSRI_TRY(tsr_work_wait(&second, 0));
        CHECK(b == 2);
        /* Blocking, too, while the other group waits. */
        TSRI_TRY(tsr_all_reduce(two, &b, 1, TSR_I32, TSR_REDUCE_SUM));
        CHECK(b == 4);
        atomic_fetch_add(gone_on, 1);
    }
    TSRI_TRY(tsr_work_wait(&first, 0));
    CHECK(a == 3);
    return TSR_OK;
}

static void test_late(void **state)
{
    (void)state;
    run(3, late);
}

/* Nobody waits, but all is done. */
static tsr_status unattended(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    tsr_work *work[20];
    int64_t x[20];
    (void)arg;
    for (int i = 0; i < 20; i++) {
        x[i] = tsr_world_rank(w) + i;
        TSRI_TRY(tsr_all_reduce_async(g, &x[i], 1, TSR_I64, TSR_REDUCE_SUM, &work[i]));
    }
    for (int i = 0; i < 4000 && !tsr_work_test(work[19]); i++)
        nap(0.005);
    CHECK(tsr_work_test(work[19]));
    for (int i = 0; i < 20; i++)
        CHECK(tsr_work_test(work[i]) && x[i] == 3 + 3 * i);
    /* In any order; those that nobody waits for go with the world. */
    for (int i = 19; i >= 0; i -= 2)
        TSRI_TRY(tsr_work_wait(&work[i], 0));
    return TSR_OK;
}

static void test_unattended(void **state)
{
    (void)state;
    if (ON_DEVICE) /* the wait brings results back to host memory */
        skip();
    run(3, unattended);
}

/* What was called before is done when a later one is; blocking calls keep their place. */
static tsr_status order(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    tsr_work *work, *last;
    int32_t x = tsr_world_rank(w) + 1, y = 5;
    int n = tsr_group_size(g);
    (void)arg;
    for (int i = 0; i < 50; i++) {
        TSRI_TRY(tsr_all_reduce_async(g, &x, 1, TSR_I32, TSR_REDUCE_MAX, &work));
        TSRI_TRY(tsr_all_reduce_async(g, &y, 1, TSR_I32, TSR_REDUCE_MIN, &last));
        /* Some block where others do not. */
        if ((i + tsr_world_rank(w)) % 2) {
            TSRI_TRY(tsr_group_barrier(g));
            CHECK(tsr_work_test(work) && tsr_work_test(last));
        } else {
            tsr_work *barrier;
            TSRI_TRY(tsr_group_barrier_async(g, &barrier));
            TSRI_TRY(tsr_work_wait(&barrier, 0));
            CHECK(tsr_work_test(work));
        }
        CHECK(x == n && y == 5);
        TSRI_TRY(tsr_work_wait(&work, 0));
        TSRI_TRY(tsr_work_wait(&last, 0));
    }
    return TSR_OK;
}

static void test_order(void **state)
{
    (void)state;
    if (ON_DEVICE) /* a barrier of hosts waits for no GPU */
        skip();
    run(1, order);
    run(2, order);
    run(4, order);
}

/* A wait that ends early leaves the handle alive. */
static tsr_status impatient(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    tsr_work *work = NULL;
    float x = 2;
    _Atomic int *gave_up = arg;
    TSRI_TRY(connect(g));
    if (tsr_world_rank(w) == 1) {
        await_count(gave_up, 1);
        return tsr_all_reduce(g, &x, 1, TSR_F32, TSR_REDUCE_PRODUCT);
    }
    TSRI_TRY(tsr_all_reduce_async(g, &x, 1, TSR_F32, TSR_REDUCE_PRODUCT, &work));
    CHECK(tsr_work_wait(&work, 0.02) == TSR_ERR_TIMEOUT && work);
    CHECK(strstr(tsr_last_error(), ON_DEVICE ? "all_reduce #2" : "all_reduce #1") &&
          strstr(tsr_last_error(), "0.02"));
    CHECK(!tsr_work_test(work));
    CHECK(tsr_work_wait(&work, -1) == TSR_ERR_INVALID && work);
    atomic_store(gave_up, 1);
    TSRI_TRY(tsr_work_wait(&work, 30));
    CHECK(!work && x == 4);
    CHECK(tsr_work_wait(&work, 0) == TSR_ERR_INVALID);
    CHECK(tsr_work_wait(NULL, 0) == TSR_ERR_INVALID);
    return TSR_OK;
}

static void test_impatient(void **state)
{
    (void)state;
    run(2, impatient);
}

/* --- messages --------------------------------------------------------------------------------- */

/* 64 messages ahead, asked for by tags in another order. */
static tsr_status ahead(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    int64_t x[3];
    (void)arg;
    if (tsr_world_rank(w) == 0) {
        for (int i = 0; i < 64; i++) {
            x[0] = i;
            TSRI_TRY(tsr_send(g, x, 1 + i % 3, TSR_I64, 1, i % 4));
        }
        return tsr_group_barrier(g);
    }
    TSRI_TRY(tsr_group_barrier(g));
    for (int tag = 3; tag >= 0; tag--)
        for (int i = tag; i < 64; i += 4) {
            TSRI_TRY(tsr_recv(g, x, 1 + i % 3, TSR_I64, 0, tag));
            CHECK(x[0] == i);
        }
    return TSR_OK;
}

/* The memory of a message that was received serves what comes next, whatever it is. */
static tsr_status large(tsr_world *w, void *arg)
{
    enum { BYTES = 40 << 20 };
    tsr_group *g = tsr_world_group(w);
    char *data = calloc(BYTES, 1);
    void *p;
    int me = tsr_world_rank(w);
    (void)arg;
    CHECK(data);
    if (me == 0)
        TSRI_TRY(tsr_send(g, data, BYTES, TSR_U8, 1, 0));
    else if (me == 1)
        TSRI_TRY(tsr_recv(g, data, BYTES, TSR_U8, 0, 0));
    TSRI_TRY(tsr_group_barrier(g));
    if (me == 0)
        TSRI_TRY(tsr_send(g, data, BYTES, TSR_U8, 2, 0));
    else if (me == 2)
        TSRI_TRY(tsr_recv(g, data, BYTES, TSR_U8, 0, 0));
    TSRI_TRY(tsr_group_barrier(g));
    TSRI_TRY(tsr_alloc(w, BYTES, &p));
    tsr_free(w, p);
    free(data);
    return TSR_OK;
}

/* Both ways at once, hundreds, asynchronous, some large, in two groups of the same two. */
static tsr_status crossing(tsr_world *w, void *arg)
{
    enum { MANY = 200, LARGE = 50000 };
    static const int turned[2] = {1, 0};
    static const int64_t counts[] = {1, 0, 300, LARGE};
    tsr_group *g[2] = {tsr_world_group(w), NULL};
    int me = tsr_world_rank(w), other = 1 - me;
    tsr_work *in[2][MANY], *out[2][MANY];
    int32_t *from[2][MANY], *to[2][MANY];
    (void)arg;
    TSRI_TRY(tsr_group_create(w, 2, turned, &g[1]));
    for (int i = 0; i < MANY; i++)
        for (int k = 0; k < 2; k++) {
            int64_t count = counts[i % 4];
            size_t bytes = ((size_t)count + 1) * sizeof(int32_t);
            CHECK((from[k][i] = malloc(bytes)) && (to[k][i] = malloc(bytes)));
            for (int64_t e = 0; e < count; e++)
                to[k][i][e] = (int32_t)(e + 1000 * i + k + 7 * me);
            TSRI_TRY(tsr_recv_async(g[k], from[k][i], count, TSR_I32, other, i % 5, &in[k][i]));
            TSRI_TRY(tsr_send_async(g[k], to[k][i], count, TSR_I32, other, i % 5, &out[k][i]));
        }
    for (int i = MANY - 1; i >= 0; i--)
        for (int k = 0; k < 2; k++) {
            TSRI_TRY(tsr_work_wait(&in[k][i], 0));
            TSRI_TRY(tsr_work_wait(&out[k][i], 0));
            for (int64_t e = 0; e < counts[i % 4]; e++)
                CHECK(from[k][i][e] == (int32_t)(e + 1000 * i + k + 7 * other));
            free(from[k][i]);
            free(to[k][i]);
        }
    return tsr_group_barrier(g[0]);
}

/* A ring, each rank first receiving: asynchronous recv before send does not stop it. */
static tsr_status ring(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    int n = tsr_group_size(g), me = tsr_world_rank(w), next = (me + 1) % n, last = (me + n - 1) % n;
    (void)arg;
    for (int round = 0; round < 100; round++) {
        double x = me + 10 * round, y = -1;
        tsr_work *work;
        TSRI_TRY(tsr_recv_async(g, &y, 1, TSR_F64, last, 0, &work));
        TSRI_TRY(tsr_send(g, &x, 1, TSR_F64, next, 0));
        TSRI_TRY(tsr_work_wait(&work, 0));
        CHECK(y == last + 10 * round);
        TSRI_TRY(tsr_all_reduce(g, &y, 1, TSR_F64, TSR_REDUCE_SUM));
        CHECK(y == n * (n - 1) / 2 + 10 * round * n);
    }
    return TSR_OK;
}

static void test_messages(void **state)
{
    (void)state;
    run(2, ahead);
    run(3, large);
    run(2, crossing);
    run(4, ring);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Nothing of the arena stays taken. */
static tsr_status memory(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    void *p, *most;
    (void)arg;
    TSRI_TRY(tsr_group_barrier(g));
    for (int i = 0; i < 300; i++) {
        TSRI_TRY(tsr_alloc(w, 3 << 20, &p));
        CHECK((uintptr_t)p % 64 == 0);
        memset(p, 1, 1 << 20);
        TSRI_TRY(tsr_send(g, p, 1 << 20, TSR_U8, 1 - tsr_world_rank(w), 3));
        TSRI_TRY(tsr_recv(g, p, 1 << 20, TSR_U8, 1 - tsr_world_rank(w), 3));
        TSRI_TRY(tsr_all_gather_into(g, p, p, 1 << 20, TSR_U8));
        tsr_free(w, p);
        TSRI_TRY(tsr_group_barrier(g));
    }
    TSRI_TRY(tsr_alloc(w, 0, &p));
    CHECK(p != NULL);
    TSRI_TRY(tsr_alloc(w, 40 << 20, &most));
    CHECK(tsr_alloc(w, 40 << 20, &p) == TSR_ERR_NO_MEMORY);
    return TSR_OK;
}

static void test_memory(void **state)
{
    (void)state;
    run(2, memory);
}

static int as_rank(void)
{
    tsr_world *w;
    tsr_status status = tsr_world_create(NULL, &w);
    if (status == TSR_OK) {
        status = tsr_world_size(w) == 3 ? storm(w, NULL) : crossing(w, NULL);
        if (status == TSR_OK)
            status = order(w, NULL);
        if (status != TSR_OK)
            tsr_world_abort(w, tsr_last_error());
        tsr_world_destroy(w);
    }
    if (status != TSR_OK)
        fprintf(stderr, "%s\n", tsr_last_error());
    return status != TSR_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storm),      cmocka_unit_test(test_late),
        cmocka_unit_test(test_unattended), cmocka_unit_test(test_order),
        cmocka_unit_test(test_impatient),  cmocka_unit_test(test_messages),
        cmocka_unit_test(test_memory),
    };
    values_init();
    if (getenv("TESSERA_ARENA"))
        return as_rank();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
