/* SPDX-License-Identifier: Apache-2.0 */
/* More buckets than calls of a group may be under way, in a subgroup, where ranks have batches of
 * different numbers: parameters end as by one bucket, bit for bit. */
#include "ddp_rank.h"

#include <string.h>

enum { RANKS = 4, LAYERS = 60, WIDTH = 6, BATCHES = 4, HEAD = 1 << 19 };

typedef struct job {
    tsr_dtype dtype;
    bool captured; /* steps as tsr_ddp_minimize declares them */
} job;

/* Fills a batch that only this rank has. */
static void fill(tsr_dtype dtype, int rank, int batch, unsigned char *out)
{
    for (int i = 0; i < WIDTH; i++) {
        /* In sixteenths, exact in f16: 0x3c00 is 1, a step of the mantissa 1/1024. */
        int n = (rank * 7 + batch * 5 + i * 3) % 16;
        double d = 1 + n / 16.0;
        float f = (float)d;
        uint16_t h = (uint16_t)(0x3c00 + n * 64);
        const void *from = dtype == TSR_F64   ? (const void *)&d
                           : dtype == TSR_F32 ? (const void *)&f
                                              : (const void *)&h;
        memcpy(out + (size_t)i * tsr_dtype_size(dtype), from, tsr_dtype_size(dtype));
    }
}

static tsr_tensor *walk(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        x = tsr_add(tsr_mul(x, tsr_use(m, name, x)), x);
        x = tsr_mul_scalar(x, 0.5);
    }
    /* The first bucket takes up to 1 MiB, whatever the cap: a parameter of its own. */
    tsr_tensor *head = tsr_mul_scalar(tsr_use(m, "head", x), 0x1p-10);
    return tsr_add(x, tsr_sum(head, TSR_ALL_AXES, false));
}

/* Trains by buckets of cap_mb; rank 3 of the group {1, 3} has one batch less. Writes the weights.
 */
static tsr_status train(tsr_world *w, tsr_group *group, const job *j, double cap_mb,
                        int want_buckets, unsigned char *out)
{
    const tsr_placement *here = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .dtype = j->dtype};
    const tsr_init ones = {TSR_INIT_ONES, 0, 0, 0};
    const int rank = tsr_world_rank(w), batches = rank == 3 ? BATCHES - 1 : BATCHES;
    const size_t bytes = WIDTH * tsr_dtype_size(j->dtype);
    tsr_module *net = tsr_module_create(w, &nn, walk, NULL, NULL);
    tsr_variable *v[LAYERS];
    unsigned char first[WIDTH * 8];
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        CHECK((v[i] = tsr_module_param(net, name, TSR_DIMS(WIDTH), TSR_B, ones)));
    }
    CHECK(tsr_module_param(net, "head", TSR_DIMS(HEAD), TSR_B, ones));
    tsr_ddp *ddp;
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_create(net, TSR_DDP_OPTS(.group = group, .bucket_cap_mb = cap_mb), &ddp));
    TRY(tsr_ddp_get_info(ddp, &info));
    CHECK(info.nbuckets == want_buckets);
    tsr_optimizer *sgd = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.125));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", j->dtype, TSR_DIMS(WIDTH), here, TSR_B);
    tsr_tensor *loss = tsr_sum(tsr_apply(net, x), TSR_ALL_AXES, false);
    if (j->captured)
        tsr_ddp_minimize(ddp, sgd, 1, &loss, NULL);
    else
        tsr_ddp_backward(ddp, loss);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_variable_get(v[0], out, bytes));
    memcpy(first, out, bytes);
    TRY(tsr_ddp_join_begin(ddp, TSR_DDP_JOIN_OPTS(.divide_by_active = true)));
    for (int b = 0; b < batches; b++) {
        unsigned char batch[WIDTH * 8];
        fill(j->dtype, rank, b, batch);
        TRY(tsr_feed(plan, "x", batch, bytes));
        if (j->captured) {
            TRY(tsr_run(plan));
        } else {
            TRY(tsr_ddp_run(ddp, plan));
            TRY(tsr_ddp_step(ddp, sgd));
        }
    }
    TRY(tsr_ddp_join(ddp));
    for (int i = 0; i < LAYERS; i++)
        TRY(tsr_variable_get(v[i], out + (size_t)i * bytes, bytes));
    CHECK(memcmp(out, first, bytes) != 0); /* it has learned something */
    return tsr_ddp_close(&ddp);
}

static tsr_status both(tsr_world *w, void *arg)
{
    static const int members[] = {1, 3};
    const job *j = arg;
    const size_t bytes = LAYERS * WIDTH * tsr_dtype_size(j->dtype);
    unsigned char one[LAYERS * WIDTH * 8], many[LAYERS * WIDTH * 8];
    tsr_group *group;
    if (tsr_world_rank(w) % 2 == 0)
        return TSR_OK;
    TRY(tsr_group_create(w, 2, members, &group));
    TRY(train(w, group, j, 25, 2, one));
    TRY(train(w, group, j, 0, 1 + LAYERS, many));
    CHECK(!memcmp(one, many, bytes));
    /* Both ranks have the same: rank 3's copy becomes that of rank 1, and nothing has changed. */
    TRY(tsr_broadcast(group, many, (int64_t)bytes, TSR_U8, 1));
    CHECK(!memcmp(one, many, bytes));
    return TSR_OK;
}

static void test_many(void **state)
{
    (void)state;
    const tsr_dtype dtypes[] = {TSR_F64, TSR_F32, TSR_F16};
    for (int i = 0; i < 6; i++) {
        job j = {dtypes[i / 2], i % 2};
        expect_ok(RANKS, both, &j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
