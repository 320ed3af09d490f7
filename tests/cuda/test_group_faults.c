/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong between the GPUs of a group: a rank that leaves, is late, skips a call or calls
 * something else, buffers in two memories, too little memory, a failed call of NCCL, a killed
 * process. Every rank that is concerned gets an error that names the rank, within the timeout; and
 * afterwards the same process works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <cmocka.h>

#include "src/core/clock.h"
#include "src/core/status.h"
#include "tests/dist/comm/rank_checks.h"
#include <tessera/tessera.h>

enum { COUNT = 1000 };

static void drop(void *arg, tsr_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static const tsr_world_opts options = {
    .size = sizeof options, .arena_bytes = 16 << 20, .timeout_s = 4, .threads = 1, .log = drop};

/* A group whose ranks are connected, and a buffer. */
static tsr_status begin(tsr_world *w, tsr_group **out_g, float **out_x)
{
    void *x;
    TSRI_TRY(tsr_alloc_on(w, TSR_DEVICE_CUDA, COUNT * sizeof(float), &x));
    *out_x = x;
    *out_g = tsr_world_group(w);
    CHECK(*out_g);
    TSRI_TRY(tsr_all_reduce(*out_g, x, COUNT, TSR_F32, TSR_REDUCE_SUM));
    return tsr_sync(w);
}

/* A call and all that follows of it. */
static tsr_status settle(tsr_world *w, tsr_status status)
{
    return status == TSR_OK ? tsr_sync(w) : status;
}

/* Whether all texts are in the last error. */
static bool says(const char *a, const char *b)
{
    bool found = strstr(tsr_last_error(), a) && strstr(tsr_last_error(), b);
    if (!found)
        fprintf(stderr, "expected '%s' and '%s' in: %s\n", a, b, tsr_last_error());
    return found;
}

static tsr_status good(tsr_world *w, void *arg)
{
    tsr_group *g;
    float *x, ones[COUNT], back[COUNT];
    (void)arg;
    TSRI_TRY(begin(w, &g, &x));
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    TSRI_TRY(tsr_copy(w, x, ones, sizeof ones));
    TSRI_TRY(tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM));
    TSRI_TRY(tsr_copy(w, back, x, sizeof back));
    for (int i = 0; i < COUNT; i++)
        CHECK(back[i] == (float)tsr_world_size(w));
    return TSR_OK;
}

/* Rank 1 does something else, and rank 0 must hear of it in time. */
static tsr_status late(tsr_world *w, void *arg)
{
    tsr_group *g;
    float *x;
    (void)arg;
    TSRI_TRY(begin(w, &g, &x));
    if (tsr_world_rank(w) == 1) {
        tsri_sleep_s(10);
        return TSR_OK;
    }
    double from = tsri_now_s();
    tsr_status status = settle(w, tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM));
    CHECK(status == TSR_ERR_TIMEOUT || status == TSR_ERR_REMOTE);
    CHECK(says("rank 1 did not", "all_reduce"));
    CHECK(tsri_now_s() - from < 2 * options.timeout_s);
    /* The group is over. */
    CHECK(tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM) != TSR_OK);
    return TSR_OK;
}

static tsr_status leaves(tsr_world *w, void *arg)
{
    tsr_group *g;
    float *x;
    (void)arg;
    TSRI_TRY(begin(w, &g, &x));
    if (tsr_world_rank(w) == 1)
        return tsr_set_error(TSR_ERR_IO, "can't read the data");
    CHECK(settle(w, tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM)) != TSR_OK);
    CHECK(says("rank 1", ""));
    return TSR_OK;
}

/* Rank 1 has returned without an error, and its peer hears of it long before the timeout. */
static tsr_status returns(tsr_world *w, void *arg)
{
    tsr_group *g;
    float *x;
    (void)arg;
    TSRI_TRY(begin(w, &g, &x));
    if (tsr_world_rank(w) == 1)
        return TSR_OK;
    double from = tsri_now_s();
    CHECK(settle(w, tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM)) == TSR_ERR_DEAD);
    CHECK(says("rank 1 has left", "test_group_faults.c"));
    CHECK(tsri_now_s() - from < options.timeout_s / 2);
    return TSR_OK;
}

/* Another size, and another operation. */
static tsr_status differs(tsr_world *w, void *arg)
{
    const bool other_size = *(const bool *)arg;
    const int rank = tsr_world_rank(w);
    tsr_group *g;
    float *x;
    TSRI_TRY(begin(w, &g, &x));
    tsr_status status =
        rank == 1 && !other_size
            ? tsr_broadcast(g, x, COUNT, TSR_F32, 0)
            : tsr_all_reduce(g, x, other_size ? COUNT - rank : COUNT, TSR_F32, TSR_REDUCE_SUM);
    status = settle(w, status);
    CHECK(status == TSR_ERR_MISMATCH || status == TSR_ERR_REMOTE);
    CHECK(says("rank 0 is at all_reduce", other_size ? "999" : "rank 1 is at broadcast"));
    return TSR_OK;
}

/* The others make a call more. */
static tsr_status skips(tsr_world *w, void *arg)
{
    tsr_group *g;
    float *x;
    (void)arg;
    TSRI_TRY(begin(w, &g, &x));
    if (tsr_world_rank(w) == 0)
        TSRI_TRY(tsr_group_set_label(g, "step 7"));
    tsr_status status = TSR_OK;
    if (tsr_world_rank(w) == 0)
        status = tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM);
    TSRI_TRY(tsr_group_set_label(g, NULL));
    if (status == TSR_OK)
        status = settle(w, tsr_all_gather_into(g, x, x, COUNT / 2, TSR_F32));
    CHECK(status == TSR_ERR_MISMATCH || status == TSR_ERR_REMOTE);
    CHECK(says("rank 0 is at all_reduce", "step 7"));
    return TSR_OK;
}

static tsr_status two_memories(tsr_world *w, void *arg)
{
    tsr_group *g;
    float *x, host[2 * COUNT];
    (void)arg;
    TSRI_TRY(begin(w, &g, &x));
    CHECK(tsr_all_gather_into(g, x, host, COUNT, TSR_F32) == TSR_ERR_INVALID);
    CHECK(says("src is in the memory of a GPU", "dst in the host's"));
    CHECK(tsr_copy(w, NULL, x, 4) == TSR_ERR_INVALID && tsr_copy(w, x, host, 0) == TSR_OK);
    CHECK(tsr_alloc_on(w, (tsr_device)99, 4, (void **)&x) == TSR_ERR_INVALID);
    /* Nobody has heard of it. */
    return tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM);
}

/* Buckets that do not fit: on one rank alone. */
static tsr_status no_memory(tsr_world *w, void *arg)
{
    const tsr_placement *here = tsr_local_placement_on(w, TSR_DEVICE_CUDA);
    tsr_ddp *ddp = NULL;
    void *most = NULL;
    (void)arg;
    tsr_module *net = tsr_mlp(w, here, TSR_B, TSR_MLP_OPTS(.inputs = 512, .hidden = 512));
    size_t bytes = (size_t)1 << 40;
    while (tsr_world_rank(w) == 1 && bytes > 65536) /* all but a little is taken */
        if (tsr_alloc_on(w, TSR_DEVICE_CUDA, bytes /= 2, &most) == TSR_OK)
            bytes *= 2;
    tsr_status status = tsr_ddp_create(net, NULL, &ddp);
    if (status == TSR_OK) /* rank 0 hears of it at its first call with the other */
        status = tsr_ddp_close(&ddp);
    CHECK(status != TSR_OK);
    CHECK(says(tsr_world_rank(w) == 1 ? "bytes" : "rank 1", ""));
    return TSR_OK;
}

/* NCCL refuses rank 1's second call, or finds later that its network is gone. */
static tsr_status nccl_fails(tsr_world *w, void *arg)
{
    const bool later = *(const bool *)arg;
    tsr_group *g;
    float *x;
    TSRI_TRY(begin(w, &g, &x));
    double from = tsri_now_s();
    tsr_status status = settle(w, tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM));
    CHECK(status != TSR_OK && says("all_reduce", later ? "a peer is gone" : "rank 1"));
    CHECK(later || tsr_world_rank(w) == 0 || says("NCCL", "the network is down"));
    CHECK(tsri_now_s() - from < 2 * options.timeout_s);
    CHECK(tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM) != TSR_OK);
    return TSR_OK;
}

/* A process that shares the GPU is killed, in the middle of what its peers wait for. */
static tsr_status killed(tsr_world *w, void *arg)
{
    tsr_group *g;
    float *x;
    (void)arg;
    TSRI_TRY(begin(w, &g, &x));
    if (tsr_world_rank(w) == 1)
        raise(SIGKILL);
    double from = tsri_now_s();
    /* By its process, or by what a peer has found. */
    tsr_status status = settle(w, tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM));
    CHECK(status == TSR_ERR_DEAD || status == TSR_ERR_REMOTE);
    CHECK(says("rank 1", ""));
    CHECK(tsri_now_s() - from < 2 * options.timeout_s);
    return TSR_OK;
}

static void try(int n, tsr_rank_fn *fn, void *arg, bool fails)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &options);
    if ((status != TSR_OK) != fails || (fails && !strstr(tsr_last_error(), "can't read the data")))
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
    if (tsr_spawn_with(n, good, NULL, &options) != TSR_OK)
        fail_msg("afterwards: %s", tsr_last_error());
}

/* A label that is no class, in a run that is captured. The next call on the device reports it,
 * which is that of another plan: the update's. It names the line of the op that met it. */
static tsr_status bad_label(tsr_world *w, void *arg)
{
    enum { STEPS = 4 };
    const tsr_placement *here = tsr_local_placement_on(w, TSR_DEVICE_CUDA);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .seed = 5};
    const float x[6] = {1, 2, 3, 4, 5, 6};
    tsr_module *net = tsr_nn_linear(w, &nn, 3, 4, true);
    tsr_ddp *ddp;
    tsr_plan *plan;
    char place[64];
    (void)arg;
    TSRI_TRY(tsr_ddp_create(net, NULL, &ddp));
    tsr_optimizer *sgd = tsr_sgd(net, NULL);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *in = tsr_input(g, "x", TSR_F32, TSR_DIMS(2, 3), here, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(2), here, TSR_B);
    const int line = __LINE__ + 1;
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, in), y, TSR_MEAN);
    tsr_ddp_backward(ddp, loss);
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_feed(plan, "x", x, sizeof x));
    tsr_status status = TSR_OK;
    for (int s = 0; s < STEPS; s++) {
        const int64_t labels[2] = {1, s == STEPS - 1 ? 9 : 3};
        TSRI_TRY(tsr_feed(plan, "y", labels, sizeof labels));
        TSRI_TRY(tsr_ddp_run(ddp, plan));
        if (s == STEPS - 1) /* the GPU is done with the run, and the plan has not been asked */
            TSRI_TRY(
                tsr_ddp_gradient_get(ddp, tsr_module_find(net, "weight"), (float[12]){0}, NULL));
        status = tsr_ddp_step(ddp, sgd);
    }
    snprintf(place, sizeof place, "test_group_faults.c:%d: ce", line);
    CHECK(status == TSR_ERR_INVALID && says(place, "label 9 of row 1 is not a class"));
    CHECK(!strstr(tsr_last_error(), "ce: ce"));
    return TSR_OK;
}

static void test_bad_label(void **state)
{
    (void)state;
    if (tsr_spawn_with(1, bad_label, NULL, &options) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

static void test_late(void **state)
{
    (void)state;
    try(2, late, NULL, false);
}

static void test_leaves(void **state)
{
    (void)state;
    try(2, leaves, NULL, true);
    try(2, returns, NULL, false);
}

static void test_differs(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool other_size = i;
        try(2, differs, &other_size, false);
    }
    try(2, skips, NULL, false);
}

static void test_memory(void **state)
{
    (void)state;
    try(2, two_memories, NULL, false);
    try(2, no_memory, NULL, false);
}

static bool by_nccl(void)
{
    const char *comm = getenv("TESSERA_CUDA_COMM");
    return comm && !strcmp(comm, "nccl");
}

/* Before the others: a process that has opened a GPU can't fork ranks that do. */
static void test_killed(void **state)
{
    (void)state;
    if (by_nccl()) /* whose stand-in joins threads alone */
        skip();
    assert_int_not_equal(tsr_spawn_processes_with(3, killed, NULL, &options), TSR_OK);
    if (!strstr(tsr_last_error(), "rank 1 was killed by signal 9"))
        fail_msg("%s", tsr_last_error());
    assert_int_equal(tsr_spawn_processes_with(3, good, NULL, &options), TSR_OK);
}

static void test_nccl_fails(void **state)
{
    (void)state;
    if (!by_nccl())
        skip();
    for (int later = 0; later < 2; later++) {
        bool arg = later;
        setenv("EMULATED_NCCL_FAILS", later ? "1:2:later" : "1:2", 1);
        tsr_status status = tsr_spawn_with(2, nccl_fails, &arg, &options);
        unsetenv("EMULATED_NCCL_FAILS");
        if (status != TSR_OK)
            fail_msg("%s: %s", later ? "later" : "at once", tsr_last_error());
        assert_int_equal(tsr_spawn_with(2, good, NULL, &options), TSR_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),    cmocka_unit_test(test_nccl_fails),
        cmocka_unit_test(test_late),      cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_differs),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_bad_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
