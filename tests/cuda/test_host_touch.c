/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that reads or writes a GPU's memory as if it were the host's ends by a signal, as on a
 * GPU: what tsr_ddp_gradient returns, and memory of tsr_alloc_on. The calls that are for it work.
 * Each case is a process of its own. EMULATED_PROTECT=1 is for CPUs without protection keys.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/status.h"
#include "tests/cuda/gpus.h"

typedef enum touch { BY_CALLS, READ_GRADIENT, WRITE_GRADIENT, READ_MEMORY, WRITE_MEMORY } touch;

static const tsr_world_opts options = {
    .size = sizeof options, .arena_bytes = 16 << 20, .timeout_s = 20, .threads = 1};

static tsr_status train(tsr_world *w, tsr_ddp **out_ddp, tsr_module **out_net)
{
    const tsr_placement *here = tsr_local_placement_on(w, TSR_DEVICE_CUDA);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .seed = 5};
    const float x[6] = {1, 2, 3, 4, 5, 6};
    tsr_plan *plan;
    *out_net = tsr_nn_linear(w, &nn, 3, 4, true);
    TSRI_TRY(tsr_ddp_create(*out_net, NULL, out_ddp));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *in = tsr_input(g, "x", TSR_F32, TSR_DIMS(2, 3), here, TSR_B);
    tsr_ddp_backward(*out_ddp, tsr_sum(tsr_apply(*out_net, in), TSR_ALL_AXES, false));
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_feed(plan, "x", x, sizeof x));
    return tsr_ddp_run(*out_ddp, plan);
}

static tsr_status touch_memory(tsr_world *w, void *arg)
{
    const touch how = *(const touch *)arg;
    tsr_ddp *ddp;
    tsr_module *net;
    float back[12];
    void *memory;
    TSRI_TRY(train(w, &ddp, &net));
    TSRI_TRY(tsr_alloc_on(w, TSR_DEVICE_CUDA, sizeof back, &memory));
    TSRI_TRY(tsr_sync(w));
    tsr_variable *weight = tsr_module_find(net, "weight");
    volatile float *gradient = tsr_ddp_gradient(ddp, weight, NULL), *own = memory;
    if (how == READ_GRADIENT)
        back[0] = gradient[0];
    if (how == WRITE_GRADIENT)
        gradient[1] = 1;
    if (how == READ_MEMORY)
        back[0] = own[11];
    if (how == WRITE_MEMORY)
        own[0] = 1;
    TSRI_TRY(tsr_ddp_gradient_get(ddp, weight, back, NULL));
    if (back[0] != 1 + 4)
        return tsri_fail(TSR_ERR_INTERNAL, "the gradient is %g", (double)back[0]);
    TSRI_TRY(tsr_copy(w, memory, back, sizeof back));
    TSRI_TRY(tsr_copy(w, back, memory, sizeof back));
    return back[0] == 1 + 4 ? tsr_ddp_close(&ddp) : TSR_ERR_INTERNAL;
}

/* Returns the signal by which the process ended; 0: it did its work; -1: it failed. */
static int end_of(touch how)
{
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        const tsr_status status = tsr_spawn_with(1, touch_memory, &how, &options);
        if (status != TSR_OK)
            fprintf(stderr, "%s\n", tsr_last_error());
        fflush(NULL);
        _exit(status != TSR_OK);
    }
    int end = 0;
    if (child < 0 || waitpid(child, &end, 0) != child)
        return -1;
    return WIFSIGNALED(end) ? WTERMSIG(end) : WEXITSTATUS(end) ? -1 : 0;
}

static void test_calls(void **state)
{
    (void)state;
    assert_int_equal(end_of(BY_CALLS), 0);
}

static void test_touch(void **state)
{
    (void)state;
    for (touch how = READ_GRADIENT; how <= WRITE_MEMORY; how++)
        assert_int_equal(end_of(how), SIGSEGV);
}

/* Asked by a process of its own, since one that has used a GPU can't be forked. */
static int find_gpu(void)
{
    int end = 0;
    const pid_t child = fork();
    if (child == 0) {
        test_gpus gpus;
        const int rc = test_gpus_find(1, &gpus);
        fflush(NULL);
        _exit(rc);
    }
    return child > 0 && waitpid(child, &end, 0) == child && WIFEXITED(end) ? WEXITSTATUS(end) : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_touch),
    };
    const int rc = find_gpu();
    return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
