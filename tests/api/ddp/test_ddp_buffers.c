/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_ddp and buffers: those of the first rank become everyone's, in few collectives. */
#include "ddp_rank.h"

/* One after the other: up to 1 MiB goes together, but what has more than 256 KiB alone. */
static const struct {
    tsr_dtype dtype;
    int64_t count;
} buffers[] = {
    /* clang-format off */
    {TSR_F32, 3}, {TSR_F64, 5}, {TSR_F16, 7}, {TSR_F32, 0},
    {TSR_F32, 70000}, /* alone */
    {TSR_F64, 1}, {TSR_F32, 60000}, {TSR_F32, 60000}, {TSR_F64, 30000}, {TSR_F32, 60000},
    {TSR_F32, 60000}, {TSR_F16, 2}, /* with those before, it would be more than 1 MiB */
    {TSR_F64, 40000}, /* alone */
    {TSR_F32, 0}, /* nothing */
    /* clang-format on */
};
enum { BUFFERS = (int)(sizeof buffers / sizeof *buffers), BROADCASTS = 5, RUNS = 3 };

static tsr_tensor *times(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_mul(x, tsr_use(m, "w", x));
}

static tsr_module *make(tsr_world *w)
{
    tsr_nn_opts nn = {.placement = tsr_local_placement(w), .sbp = TSR_B};
    tsr_module *net = tsr_module_create(w, &nn, times, NULL, NULL);
    tsr_module_param(net, "w", TSR_DIMS(3), TSR_B, (tsr_init){0});
    for (int k = 0; k < BUFFERS; k++) {
        char name[16];
        snprintf(name, sizeof name, "%d", k);
        nn.dtype = buffers[k].dtype;
        tsr_module *child = tsr_module_create(w, &nn, NULL, NULL, NULL);
        tsr_module_buffer(child, "b", TSR_DIMS(buffers[k].count), TSR_B, (tsr_init){0});
        tsr_module_add(net, name, child);
    }
    return net;
}

/* Writes bytes that tell rank, run and buffer, or counts those that are others. */
static tsr_status each_buffer(tsr_module *net, int rank, int run, bool write)
{
    for (int k = 0; k < BUFFERS; k++) {
        char name[16];
        snprintf(name, sizeof name, "%d.b", k);
        tsr_variable *v = tsr_module_find(net, name);
        size_t bytes = (size_t)buffers[k].count * tsr_dtype_size(buffers[k].dtype), wrong = 0;
        unsigned char *value = malloc(bytes + 1);
        CHECK(v && value);
        if (!write)
            TRY(tsr_variable_get(v, value, bytes));
        for (size_t i = 0; i < bytes; i++) {
            unsigned char want = (unsigned char)(97 * rank + 31 * run + 7 * k + (int)(i % 251));
            wrong += !write && value[i] != want;
            value[i] = want;
        }
        if (write)
            TRY(tsr_variable_set(v, value, bytes));
        free(value);
        if (wrong) {
            fprintf(stderr, "run %d: %zu of %zu bytes of %s are not rank %d's\n", run, wrong, bytes,
                    name, rank);
            return TSR_ERR_INTERNAL;
        }
    }
    return TSR_OK;
}

typedef struct seen {
    bool broadcast;
    int calls; /* of the group, as its last call's number tells */
} seen;

static tsr_status sends(tsr_world *w, void *arg)
{
    seen *s = arg;
    int rank = tsr_world_rank(w);
    tsr_module *net = make(w);
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(net, TSR_DDP_OPTS(.broadcast_buffers = s->broadcast), &ddp));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(3), tsr_local_placement(w), TSR_B);
    tsr_ddp_backward(ddp, tsr_sum(tsr_apply(net, x), TSR_ALL_AXES, false));
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", (const float[3]){0}, 3 * sizeof(float)));
    for (int run = 0; run < RUNS; run++) {
        TRY(each_buffer(net, rank, run, true));
        TRY(tsr_ddp_run(ddp, plan));
        TRY(each_buffer(net, s->broadcast ? 0 : rank, run, false));
    }
    tsr_ddp_destroy(ddp);
    /* Ranks that disagree are told their calls' numbers. */
    float value = 0;
    tsr_group *all = tsr_world_group(w);
    tsr_status status =
        rank ? tsr_group_barrier(all) : tsr_all_reduce(all, &value, 1, TSR_F32, TSR_REDUCE_SUM);
    const char *number = strstr(tsr_last_error(), "rank 0 is at all_reduce #");
    CHECK(status == TSR_ERR_MISMATCH && number);
    if (rank == 0)
        s->calls = (int)strtol(strchr(number, '#') + 1, NULL, 10);
    return TSR_OK;
}

static void test_few_broadcasts(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        seen with = {true, 0}, without = {false, 0};
        if (tsr_spawn_with(n, sends, &with, &ddp_opts) ||
            tsr_spawn_with(n, sends, &without, &ddp_opts))
            fail_msg("%d ranks: %s", n, tsr_last_error());
        /* Calls between devices have numbers of their own. */
        assert_int_equal(with.calls - without.calls, ON_DEVICE ? 0 : RUNS * BROADCASTS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_few_broadcasts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
