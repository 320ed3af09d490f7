/* SPDX-License-Identifier: Apache-2.0 */
/* The measuring of communication: not how fast it is, but that all ranks get the same figures, that
 * they are what the slowest rank's shortest times make of them, and that nothing is left behind. */
#include "src/comm/comm.h"
#include "src/comm/world/measure.h"
#include "src/core/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond))                                                                            \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %s", __FILE__, __LINE__, \
                             #cond, tsr_last_error());                                          \
    } while (0)

static tsr_status measure_body(tsr_world *w, void *arg)
{
    (void)arg;
    double f[3], all[8][3];
    size_t top = w->region.top;
    TSRI_TRY(tsri_comm_measure(w, &f[0], &f[1], &f[2]));
    CHECK(w->region.top == top && w->region.nholes == 0);
    CHECK(f[0] > 0 && f[0] < 1);
    CHECK(f[1] > 1e6 && isfinite(f[1]));
    CHECK(f[2] > 1e6 && isfinite(f[2]));
    TSRI_TRY(w->comm->ops->exchange(w->comm, f, sizeof f, all));
    for (int r = 0; r < w->nranks; r++)
        CHECK(!memcmp(all[r], f, sizeof f));
    return TSR_OK;
}

/* --- a communicator that is slow by a known time, and whose ranks report known seconds -------- */
enum { WARM_UP, FIGURES = 3 };
static const double slow_s = 0.02;
static const double seconds[FIGURES] = {0.5, 0.25, 0.125}; /* of the slowest rank */

typedef struct spy {
    const tsri_comm_ops *real;
    int reduces, pulls;
    int fast_pull;  /* this one isn't slowed down; nor is the first, which is to warm up */
    int64_t bytes;  /* that a pull moves */
    double start_s; /* of the first pull that counts */
    double given[FIGURES], pulls_s;
} spy;
static _Thread_local spy spied;

static tsr_status spy_start(tsri_group *g, const tsri_coll *c, tsri_ticket *out_ticket)
{
    if (c->kind == TSRI_COLL_SEND_RECV) {
        if (spied.pulls == WARM_UP + 1)
            spied.start_s = tsri_now_s();
        spied.bytes = c->seg->dst_count;
        if (spied.pulls != WARM_UP && spied.pulls != spied.fast_pull)
            nanosleep(&(struct timespec){.tv_nsec = (long)(slow_s * 1e9)}, NULL);
        spied.pulls++;
    } else if (c->kind == TSRI_COLL_ALL_REDUCE) {
        spied.reduces++;
    }
    return spied.real->start(g, c, out_ticket);
}

/* Ranks report what they measured; each is told that the others were different ones. */
static tsr_status spy_exchange(tsri_comm *c, const void *mine, size_t bytes, void *all)
{
    TSRI_TRY(spied.real->exchange(c, mine, bytes, all));
    if (bytes != sizeof spied.given)
        return TSR_OK;
    spied.pulls_s = tsri_now_s() - spied.start_s;
    memcpy(spied.given, mine, bytes);
    double *s = all;
    for (int r = 0; r < c->world->nranks; r++)
        for (int k = 0; k < FIGURES; k++)
            *s++ = seconds[k] / (r == k % c->world->nranks ? 1 : 2);
    return TSR_OK;
}

static tsr_status figures_body(tsr_world *w, void *arg)
{
    double f[FIGURES];
    spied = (spy){.real = w->comm->ops, .fast_pull = *(int *)arg};
    tsri_comm_ops ops = *w->comm->ops;
    ops.start = spy_start;
    ops.exchange = spy_exchange;
    w->comm->ops = &ops;
    tsr_status status = tsri_comm_measure(w, &f[0], &f[1], &f[2]);
    w->comm->ops = spied.real;
    TSRI_TRY(status);
    /* The figures of the slowest rank, by the calls that were made. */
    CHECK(spied.pulls > 2 && spied.reduces > 0 && spied.reduces % spied.pulls == 0);
    CHECK(fabs(f[0] * (spied.reduces / spied.pulls) / seconds[0] - 1) < 1e-12);
    CHECK(fabs(f[1] * seconds[1] / (double)spied.bytes - 1) < 1e-12);
    CHECK(fabs(f[2] * seconds[2] / (2 * (double)spied.bytes) - 1) < 1e-12);
    /* This rank's own shortest time: not the first one's, and no other's than the shortest. */
    double tries = spied.pulls - 1, given = spied.given[1];
    CHECK(spied.fast_pull >= 0 || given >= slow_s);
    CHECK(given > 0 && given * tries <= spied.pulls_s);
    CHECK(spied.given[0] > 0 && spied.given[2] > 0);
    return TSR_OK;
}

/* One rank has no room: all are told, before any call that the others would wait for. */
static tsr_status no_room_body(tsr_world *w, void *arg)
{
    (void)arg;
    double f[3];
    void *p;
    size_t most = w->region.size - (100 << 10);
    if (w->rank == 1)
        TSRI_TRY(tsri_region_alloc(&w->region, most, &p));
    CHECK(tsri_comm_measure(w, &f[0], &f[1], &f[2]) == TSR_ERR_NO_MEMORY);
    CHECK(strstr(tsr_last_error(), "of each rank's arena"));
    if (w->rank == 1)
        tsri_region_free(&w->region, p, most);
    return tsri_comm_measure(w, &f[0], &f[1], &f[2]);
}

static void spawn_ok(int n, tsr_rank_fn *fn)
{
    const tsr_world_opts o = {.size = sizeof o, .arena_bytes = 1 << 20, .threads = 1};
    tsr_status status = tsr_spawn_with(n, fn, NULL, &o);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static void test_measure(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        spawn_ok(n, measure_body);
    spawn_ok(3, no_room_body);
}

static tsr_status spawn_figures(int n, int fast_pull)
{
    const tsr_world_opts o = {.size = sizeof o, .arena_bytes = 1 << 20, .threads = 1};
    return tsr_spawn_with(n, figures_body, &fast_pull, &o);
}

static void test_figures(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int fast = -1; fast < 5; fast += 5)
            if (spawn_figures(n, fast) != TSR_OK)
                fail_msg("%d ranks: %s", n, tsr_last_error());
}

static void test_virtual(void **state)
{
    (void)state;
    tsr_world *w;
    double f[3];
    assert_int_equal(tsr_world_create_virtual(4, 0, &w), TSR_OK);
    assert_int_equal(tsri_comm_measure(w, &f[0], &f[1], &f[2]), TSR_ERR_STATE);
    tsr_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measure),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_virtual),
    };
    return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
