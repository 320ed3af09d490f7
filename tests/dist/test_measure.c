/* SPDX-License-Identifier: Apache-2.0 */
/* The measuring of communication: not how fast it is, but that all ranks get the same figures, and
 * that it leaves nothing behind. */
#include "src/comm/comm.h"
#include "src/comm/measure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
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
        cmocka_unit_test(test_virtual),
    };
    return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
