/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA module's device: its arena, what its memory is aligned to, and what ends its waits. What
 * needs the emulator is skipped elsewhere. */
#include "src/comm/world/hosts.h"
#include "src/comm/local/local.h"
#include "tests/cuda/emulator/control.h"
#include <tessera/tessera.h>

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond))                                                                            \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %s", __FILE__, __LINE__, \
                             #cond, tsr_last_error());                                          \
    } while (0)

static tsri_emulated_stall_fn *stall; /* NULL: not on the emulator */

/* A world of one rank; goes by tsr_world_destroy, with its device. */
static tsri_device *open_one(tsr_world **out_world)
{
    tsri_device *d;
    assert_int_equal(tsr_world_create(NULL, out_world), TSR_OK);
    if (tsri_device_get(*out_world, TSR_DEVICE_CUDA, &d) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return d;
}

/* --- the arena -------------------------------------------------------------------------------- */

/* Whatever the variable says, buffers are aligned. */
static void test_arena_aligned(void **state)
{
    (void)state;
    static const char *const said[] = {"200000001", "199999999", "100000032", "65536"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        tsr_world *w;
        void *p[4], *plan;
        assert_int_equal(setenv("TESSERA_CUDA_ARENA_BYTES", said[i], 1), 0);
        tsri_device *d = open_one(&w);
        assert_true(d->region->size <= strtoull(said[i], NULL, 10));
        assert_true(d->region->size + 65536 > strtoull(said[i], NULL, 10));
        for (int k = 0; k < 4; k++) {
            assert_int_equal(d->ops->buffer_alloc(d, 1000 + (size_t)k, &p[k]), TSR_OK);
            assert_int_equal((uintptr_t)p[k] % 64, 0);
        }
        assert_int_equal(d->ops->plan_block(d, 1000, &plan), TSR_OK);
        assert_int_equal((uintptr_t)plan % 64, 0);
        for (int k = 0; k < 4; k++)
            d->ops->buffer_free(d, p[k], 1000 + (size_t)k);
        tsr_world_destroy(w);
    }
    unsetenv("TESSERA_CUDA_ARENA_BYTES");
}

/* Of the GPU's 4/5 a rank takes its part among those that share it, on this machine. */
static void test_arena_share(void **state)
{
    (void)state;
    static const struct {
        int nranks, nalike;
        size_t share;
    } runs[] = {{1, 1, 1}, {64, 8, 1}, {64, 9, 2}, {64, 16, 2}, {8, 1, 1}};
    if (!stall)
        skip();
    assert_int_equal(setenv("EMULATED_DEVICES", "8", 1), 0);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        tsr_world *w;
        tsri_device *d;
        assert_int_equal(tsr_world_create(NULL, &w), TSR_OK);
        assert_int_equal(w->nalike, 1);
        w->nranks = runs[i].nranks;
        w->nalike = runs[i].nalike;
        assert_int_equal(tsri_device_get(w, TSR_DEVICE_CUDA, &d), TSR_OK);
        assert_int_equal(d->region->size,
                         ((size_t)1 << 30) / 5 * 4 / runs[i].share / 65536 * 65536);
        w->nranks = 1;
        tsr_world_destroy(w);
    }
    unsetenv("EMULATED_DEVICES");
}

/* --- waits ------------------------------------------------------------------------------------ */

enum { LARGE = 100000, REFUSED_AT = 3 };

static tsr_status refuse(void *arg)
{
    int *polls = arg;
    return ++*polls < REFUSED_AT ? TSR_OK : tsri_fail(TSR_ERR_REMOTE, "rank 1 failed: it is gone");
}

/* The call waits for what will never be done: the poll ends that, and no call of the driver's. */
static void expect_refused(tsr_status status, int *polls)
{
    assert_int_equal(status, TSR_ERR_REMOTE);
    assert_non_null(strstr(tsr_last_error(), "it is gone"));
    assert_int_equal(*polls, REFUSED_AT);
    assert_int_equal(stall(1), 0);
    *polls = 0;
}

/* All places of the staging memory have been used once when the device stands still. */
static void test_waits_poll(void **state)
{
    (void)state;
    tsr_world *w;
    void *p;
    int polls = 0;
    tsri_poll poll = {.fn = refuse, .arg = &polls};
    float small[4] = {1, 2, 3, 4}, got[4];
    if (!stall)
        skip();
    tsri_device *d = open_one(&w);
    char *large = calloc(1, 2 * LARGE);
    assert_int_equal(d->ops->buffer_alloc(d, 2 * LARGE, &p), TSR_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(d->ops->copy_in(d, p, small, sizeof small, NULL), TSR_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(d->ops->copy_in(d, p, large, LARGE, NULL), TSR_OK);
    tsri_device_poll_add(d, &poll);
    stall(1);
    expect_refused(d->ops->stream_sync(d, NULL), &polls);
    expect_refused(d->ops->copy_out(d, got, p, sizeof got, NULL), &polls);
    expect_refused(d->ops->copy_in(d, p, small, sizeof small, NULL), &polls);
    expect_refused(d->ops->copy_in(d, p, large, LARGE, NULL), &polls);
    expect_refused(d->ops->copy_in(d, p, large, 2 * LARGE, NULL), &polls);
    /* That it was not ready is nobody's error. */
    assert_int_equal(d->ops->fill(d, TSR_F32, TSR_REDUCE_MAX, 4, p, NULL), TSR_OK);
    stall(0);
    tsri_device_poll_remove(d, &poll);
    assert_int_equal(d->ops->copy_in(d, p, small, sizeof small, NULL), TSR_OK);
    assert_int_equal(d->ops->copy_out(d, got, p, sizeof got, NULL), TSR_OK);
    assert_memory_equal(got, small, sizeof small);
    d->ops->buffer_free(d, p, 2 * LARGE);
    free(large);
    tsr_world_destroy(w);
}

/* --- peers ------------------------------------------------------------------------------------ */

/* A sum over two ranks, by the local communicator. */
static tsr_status make_sum(tsr_world *w, tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0,1]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(6), p, TSR_S(0));
    tsr_output(g, "sum", tsr_sum(x, TSR_AXES(0), false), p, TSR_B);
    return tsr_compile(g, out_plan);
}

static tsr_status run_sum(tsr_plan *plan, double *out_sum)
{
    const float x[6] = {1, 2, 3, 4, 5, 6};
    TSRI_TRY(tsr_feed(plan, "x", x, sizeof x));
    TSRI_TRY(tsr_run(plan));
    return tsr_fetch_scalar(plan, "sum", out_sum);
}

/* Rank 1's process has ended, as the launcher says; rank 0 waits for its device, which never gets
 * what rank 1 would have sent: in a fetch, and when it leaves. */
static tsr_status dead_body(tsr_world *w, void *arg)
{
    (void)arg;
    const tsri_local *local = (const tsri_local *)tsri_comm_on_machine(w->comm)->priv;
    tsri_rank_slot *other = tsri_local_slot(local, 1 - w->rank);
    tsr_plan *plan;
    double sum = 0;
    TSRI_TRY(make_sum(w, &plan));
    TSRI_TRY(run_sum(plan, &sum));
    CHECK(sum == 21);
    TSRI_TRY(tsr_world_barrier(w));
    if (w->rank == 1) {
        while (tsri_rank_state_of(atomic_load(&other->holder)) != TSRI_RANK_LEFT)
            usleep(1000);
        stall(0);
        return TSR_OK;
    }
    stall(1);
    atomic_store(&other->holder, tsri_rank_holder(TSRI_RANK_EXITED, 0));
    CHECK(tsr_fetch_scalar(plan, "sum", &sum) == TSR_ERR_DEAD);
    CHECK(strstr(tsr_last_error(), "rank 1 died"));
    CHECK(strstr(tsr_last_error(), "while rank 0 waited for its device"));
    return TSR_OK;
}

static tsr_status unreachable_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_plan *plan;
    double sum = 0;
    TSRI_TRY(make_sum(w, &plan));
    tsr_status status = run_sum(plan, &sum);
    CHECK(status == TSR_ERR_UNSUPPORTED || status == TSR_ERR_REMOTE);
    CHECK(strstr(tsr_last_error(), "can't read the memory of GPU"));
    return TSR_OK;
}

static void spawn_two(tsr_rank_fn *body)
{
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 16 << 20, .timeout_s = 60, .threads = 1};
    if (!stall)
        skip();
    tsr_status status = tsr_spawn_with(2, body, NULL, &opts);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
}

static void test_dead_peer(void **state)
{
    (void)state;
    spawn_two(dead_body);
}

/* GPUs that can't read each other are refused before one tries. */
static void test_unreachable_peer(void **state)
{
    (void)state;
    setenv("EMULATED_DEVICES", "2", 1);
    setenv("TESSERA_CUDA_COMM", "local", 1);
    setenv("EMULATED_PEERS", "0", 1);
    spawn_two(unreachable_body);
    unsetenv("EMULATED_PEERS");
    unsetenv("TESSERA_CUDA_COMM");
    unsetenv("EMULATED_DEVICES");
}

static void find_stall(void)
{
    const char *file = getenv("TESSERA_CUDA_MODULE");
    void *module = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (module)
        *(void **)&stall = dlsym(module, "tsri_emulated_stall");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_aligned),    cmocka_unit_test(test_arena_share),
        cmocka_unit_test(test_waits_poll),       cmocka_unit_test(test_dead_peer),
        cmocka_unit_test(test_unreachable_peer),
    };
    tsr_world *w;
    tsri_device *d;
    if (tsr_world_create(NULL, &w) != TSR_OK)
        return 1;
    tsr_status status = tsri_device_get(w, TSR_DEVICE_CUDA, &d);
    if (status != TSR_OK)
        printf("skipped: %s\n", tsr_last_error());
    tsr_world_destroy(w);
    find_stall();
    return status != TSR_OK ? 77 : cmocka_run_group_tests_name("cuda_device", tests, NULL, NULL);
}
