/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the mirror itself: its abilities, and the faults that it has to detect. */
#include "kernels/device.h"
#include "tests/mirror/mirror.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <tessera/tessera.h>

enum { N = 8 };

static tsr_world *world;
static tsri_device *device;

static int setup(void **state)
{
    (void)state;
    return tsr_world_create(NULL, &world) != TSR_OK ||
           tsri_device_get(world, MIRROR, &device) != TSR_OK;
}

static int teardown(void **state)
{
    (void)state;
    tsr_world_destroy(world);
    return 0;
}

/* The mirror is a third kind and leaves the library's kinds unchanged. */
static void test_kind(void **state)
{
    (void)state;
    assert_int_equal(MIRROR, TSR_DEVICE_CUDA + 1);
    assert_int_equal(tsri_target_of(MIRROR)->can, TSRI_CAN_QUEUE);
    assert_string_equal(tsri_target_of(TSR_DEVICE_CPU)->name, "cpu");
    assert_string_equal(tsri_target_of(TSR_DEVICE_CUDA)->name, "cuda");
    assert_null(tsri_target_of((tsr_device)(MIRROR + 1)));
    const tsr_placement *p = tsr_placement_parse(world, "mirror:[0]");
    assert_non_null(p);
    assert_int_equal(tsr_placement_device(p), MIRROR);
    assert_string_equal(tsr_placement_text(p), "mirror:[0]");
    assert_int_equal(device->kind, MIRROR);
}

/* Returns the signal that ends a process which touches the host's end of device memory. */
static int touch(volatile char *p, bool writes)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (writes)
            *p = 1;
        else
            (void)*p;
        _exit(0);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_host_touch(void **state)
{
    (void)state;
    void *buffer, *block;
    assert_int_equal(device->ops->buffer_alloc(device, N, &buffer), TSR_OK);
    assert_int_equal(device->ops->plan_block(device, N, &block), TSR_OK);
    for (int writes = 0; writes < 2; writes++) {
        assert_int_equal(touch(buffer, writes), SIGSEGV);
        assert_int_equal(touch(block, writes), SIGSEGV);
    }
    assert_int_equal(device->ops->stream_sync(device, device->stream), TSR_OK);
    assert_int_equal(touch(buffer, false), SIGSEGV);
    device->ops->buffer_free(device, buffer, N);
}

/* Copies `value` to x in one stream and x to y in another, and returns the value of y. */
static float pass_on(float value, bool waits)
{
    const tsri_device_ops *ops = device->ops;
    tsri_stream *s[2];
    tsri_event *event;
    void *x, *y;
    float got = -1;
    for (int i = 0; i < 2; i++)
        assert_int_equal(ops->stream_create(device, &s[i]), TSR_OK);
    assert_int_equal(ops->event_create(device, false, false, &event), TSR_OK);
    assert_int_equal(ops->buffer_alloc(device, sizeof value, &x), TSR_OK);
    assert_int_equal(ops->buffer_alloc(device, sizeof value, &y), TSR_OK);
    assert_int_equal(ops->stream_sync(device, device->stream), TSR_OK);
    assert_int_equal(ops->copy_in(device, x, &value, sizeof value, s[0]), TSR_OK);
    assert_int_equal(ops->event_record(device, event, s[0]), TSR_OK);
    if (waits)
        assert_int_equal(ops->event_wait(device, s[1], event), TSR_OK);
    const void *const src[] = {x};
    const tsri_move move = tsri_move_flat(TSR_F32, TSR_REDUCE_SUM, 1, 1, src, y);
    assert_int_equal(ops->move(device, &move, s[1]), TSR_OK);
    assert_int_equal(ops->copy_out(device, &got, y, sizeof got, s[1]), TSR_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->stream_sync(device, s[i]), TSR_OK);
        ops->stream_destroy(device, s[i]);
    }
    ops->event_destroy(device, event);
    ops->buffer_free(device, x, sizeof value);
    ops->buffer_free(device, y, sizeof value);
    return got;
}

static void test_missing_wait(void **state)
{
    (void)state;
    assert_true(pass_on(3, true) == 3);
    assert_true(pass_on(3, false) == 0);
}

/* A kernel's work is not done when its run returns, and the kernel can't work by rows. */
static void test_kernel(void **state)
{
    (void)state;
    const tsri_device_ops *ops = device->ops;
    const tsri_arg a = {.dtype = TSR_F32, .ndim = 1, .shape = {N}, .stride = {1}, .gshape = {N}};
    const tsri_attrs attrs = {.unary = {.fn = TSRI_UNARY_RELU}};
    tsri_kernel_desc desc = {.op = TSRI_OP_UNARY,
                             .attrs = &attrs,
                             .nin = 1,
                             .nout = 1,
                             .in = {a},
                             .out = {a},
                             .stream = device->stream};
    tsri_kernel *k;
    tsri_event *event;
    const float x[N] = {-1, 2, -3, 4};
    float y[N];
    bool done;
    void *buffer;
    assert_int_equal(tsri_kernel_create(&world->mem, ops->kernels(), &desc, &k), TSR_OK);
    assert_string_equal(k->impl, "mirror");
    assert_true(!k->pieces && !k->run_into && !k->update && !k->join);
    assert_int_equal(ops->event_create(device, false, false, &event), TSR_OK);
    assert_int_equal(ops->buffer_alloc(device, sizeof x, &buffer), TSR_OK);
    assert_int_equal(ops->copy_in(device, buffer, x, sizeof x, device->stream), TSR_OK);
    assert_int_equal(k->run(k, &buffer, &buffer, NULL), TSR_OK);
    assert_int_equal(ops->event_record(device, event, device->stream), TSR_OK);
    assert_int_equal(ops->event_done(device, event, &done), TSR_OK);
    assert_false(done);
    assert_int_equal(ops->copy_out(device, y, buffer, sizeof y, device->stream), TSR_OK);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == (x[i] > 0 ? x[i] : 0));
    assert_int_equal(ops->event_done(device, event, &done), TSR_OK);
    assert_true(done);
    k->destroy(k);
    ops->event_destroy(device, event);
    ops->buffer_free(device, buffer, sizeof x);
}

/* A device is opened for an output alone, although no op is on it. */
static void test_output(void **state)
{
    (void)state;
    const tsr_placement *cpu = tsr_placement_parse(world, "cpu:[0]"),
                        *mirror = tsr_placement_parse(world, "mirror:[0]");
    const float x[N] = {1, 2, 3};
    float y[N] = {0};
    tsr_plan *plan;
    tsr_graph *g = tsr_graph_create(world, NULL);
    tsr_tensor *t = tsr_input(g, "x", TSR_F32, TSR_DIMS(N), cpu, TSR_B);
    tsr_output(g, "y", tsr_mul(t, t), mirror, TSR_B);
    assert_int_equal(tsr_compile(g, &plan), TSR_OK);
    assert_int_equal(tsr_feed(plan, "x", x, sizeof x), TSR_OK);
    assert_int_equal(tsr_run(plan), TSR_OK);
    assert_int_equal(tsr_fetch(plan, "y", y, sizeof y), TSR_OK);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == x[i] * x[i]);
    tsr_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kind),         cmocka_unit_test(test_host_touch),
        cmocka_unit_test(test_missing_wait), cmocka_unit_test(test_kernel),
        cmocka_unit_test(test_output),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
