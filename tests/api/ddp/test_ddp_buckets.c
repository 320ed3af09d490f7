/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tsr_ddp of several buckets: what hooks are given, and that each bucket is averaged. Gradients
 * are the inputs themselves, so that the averages are known.
 */
#include "ddp_rank.h"

/* In the module's order; the first bucket is full with the last parameter's 1 MiB. */
enum { PARAMS = 3, BUCKETS = 3, MOST = 131072, RUNS = 2 };
static const int64_t sizes[PARAMS] = {7, 16, MOST};
static const char *const names[PARAMS] = {"a", "b", "c"};
/* Bytes: "b" fills a bucket by itself, "a" is left for the last one. */
static const double cap_mb = 100.0 / (1 << 20);

typedef struct model {
    tsr_module *net;
    tsr_variable *v[PARAMS];
    tsr_ddp *ddp;
    tsr_plan *plan;
} model;

/* Between 0.5 and 1.5. */
static double value_at(int rank, int run, int param, int64_t i)
{
    return 1 + 0.5 * sin(1.7 * rank + 0.9 * run + 2.3 * param + 0.11 * (double)i);
}

/* sum over the parameters p >= first of sum(p x_p). */
static tsr_status make(tsr_world *w, const tsr_ddp_opts *how, int first, model *m)
{
    const tsr_placement *here = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .dtype = TSR_F64};
    m->net = tsr_module_create(w, &nn, NULL, NULL, NULL);
    for (int p = 0; p < PARAMS; p++)
        CHECK((m->v[p] =
                   tsr_module_param(m->net, names[p], TSR_DIMS(sizes[p]), TSR_B, (tsr_init){0})));
    TRY(tsr_ddp_create(m->net, how, &m->ddp));
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_get_info(m->ddp, &info));
    CHECK(info.nbuckets == BUCKETS);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *loss = NULL;
    for (int p = first; p < PARAMS; p++) {
        tsr_tensor *x = tsr_input(g, names[p], TSR_F64, TSR_DIMS(sizes[p]), here, TSR_B);
        tsr_tensor *term = tsr_sum(tsr_mul(x, tsr_use(m->net, names[p], x)), TSR_ALL_AXES, false);
        loss = loss ? tsr_add(loss, term) : term;
    }
    tsr_ddp_backward(m->ddp, loss);
    return tsr_compile(g, &m->plan);
}

static tsr_status feed(const model *m, int first, int rank, int run)
{
    double *x = malloc(MOST * sizeof *x);
    tsr_status status = x ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int p = first; p < PARAMS && status == TSR_OK; p++) {
        for (int64_t i = 0; i < sizes[p]; i++)
            x[i] = value_at(rank, run, p, i);
        status = tsr_feed(m->plan, names[p], x, (size_t)sizes[p] * sizeof *x);
    }
    free(x);
    return status;
}

/* Every gradient is the average of `runs` runs' sums, within `limit` of each; in each bucket some
 * value is farther away than `least`. */
static tsr_status check(const model *m, int n, int runs, double least, double limit)
{
    for (int p = 0; p < PARAMS; p++) {
        bool there;
        const double *got = tsr_ddp_gradient(m->ddp, m->v[p], &there);
        double most = -1;
        CHECK(got && there);
        for (int64_t i = 0; i < sizes[p]; i++) {
            double want = 0;
            for (int r = 0; r < n; r++)
                for (int run = 0; run < runs; run++)
                    want += value_at(r, run, p, i) / n;
            most = fmax(most, fabs(got[i] - want));
        }
        if (!(most > least && most <= limit))
            fprintf(stderr, "%s is off by %g; expected over %g, up to %g\n", names[p], most, least,
                    limit);
        CHECK(most > least && most <= limit);
    }
    return TSR_OK;
}

/* --- hooks ------------------------------------------------------------------------------------ */
typedef struct hook_state {
    const model *model;
    int calls, nranks;
    int fails_at; /* in which bucket; -1: nowhere */
} hook_state;

static tsr_status own_hook(void *arg, const tsr_ddp_bucket *b)
{
    hook_state *s = arg;
    int index = s->calls++ % BUCKETS, p = PARAMS - 1 - index;
    CHECK(b->index == index && b->is_last == (index == BUCKETS - 1));
    CHECK(b->dtype == TSR_F64 && b->count >= sizes[p] && b->divisor == s->nranks);
    CHECK(b->nparams == 1 && b->params[0] == s->model->v[p]);
    CHECK((size_t)b->count * sizeof(double) == tsr_ddp_bucket_bytes(s->model->ddp, index));
    if (s->fails_at == index)
        return tsr_set_error(TSR_ERR_IO, "the hook fails at bucket %d", index);
    tsr_reduce_op op = ON_DEVICE ? TSR_REDUCE_AVG : TSR_REDUCE_SUM;
    CHECK(!strcmp(tsr_device_name(b->device), DEVICE_NAME) && !b->stream == !ON_DEVICE);
    tsr_status status = tsr_all_reduce(b->group, b->data, b->count, b->dtype, op);
    if (status != TSR_OK || ON_DEVICE)
        return status;
    double *x = b->data;
    for (int64_t i = 0; i < b->count; i++)
        x[i] /= b->divisor;
    return TSR_OK;
}

typedef struct kind {
    tsr_ddp_hook hook;
    bool own;
    double least, limit; /* of what is off */
} kind;

/* Compressed values have 11 and 8 bits: a value, its share and their sum are rounded. */
static const kind kinds[] = {
    {TSR_DDP_ALL_REDUCE, false, -1, 1e-14},
    {TSR_DDP_ALL_REDUCE, true, -1, 1e-14},
    {TSR_DDP_FP16_COMPRESS, false, 1e-6, 3 * 1.5 * RUNS / 2048},
    {TSR_DDP_BF16_COMPRESS, false, 1e-4, 3 * 1.5 * RUNS / 256},
};

/* A run under no_sync, whose gradients a synchronised one adds to; then one by itself. */
static tsr_status hooks(tsr_world *w, void *arg)
{
    const kind *k = arg;
    int n = tsr_world_size(w), rank = tsr_world_rank(w);
    model m;
    hook_state state = {&m, 0, n, -1};
    TRY(make(w,
             TSR_DDP_OPTS(.bucket_cap_mb = cap_mb, .hook = k->hook,
                          .hook_fn = k->own ? own_hook : NULL, .hook_state = &state),
             0, &m));
    for (int runs = RUNS; runs > 0; runs--) {
        for (int run = 0; run < runs; run++) {
            tsr_ddp_no_sync(m.ddp, run < runs - 1);
            TRY(feed(&m, 0, rank, run));
            TRY(tsr_ddp_run(m.ddp, m.plan));
        }
        TRY(check(&m, n, runs, k->least, k->limit));
        CHECK(state.calls == (k->own ? BUCKETS * (RUNS - runs + 1) : 0));
        tsr_ddp_zero_grad(m.ddp);
    }
    return tsr_ddp_close(&m.ddp);
}

static void test_hooks(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            expect_ok(n, hooks, (void *)(uintptr_t)&kinds[i]);
}

/* The others hear of a hook that fails, wherever: at the last bucket, too, to which no gradient of
 * this graph goes. */
static tsr_status hook_fails(tsr_world *w, void *arg)
{
    int rank = tsr_world_rank(w), at = *(const int *)arg;
    model m;
    hook_state state = {&m, 0, tsr_world_size(w), rank == 1 ? at : -1};
    TRY(make(w,
             TSR_DDP_OPTS(.bucket_cap_mb = cap_mb, .find_unused_parameters = true,
                          .hook_fn = own_hook, .hook_state = &state),
             1, &m));
    TRY(feed(&m, 1, rank, 0));
    char text[64];
    snprintf(text, sizeof text, "the hook fails at bucket %d", at);
    FAILS(tsr_ddp_run(m.ddp, m.plan), rank == 1 ? TSR_ERR_IO : TSR_ERR_REMOTE, text);
    CHECK(state.calls == at + 1);
    tsr_ddp_destroy(m.ddp);
    return TSR_OK;
}

static void test_hook_fails(void **state)
{
    const char *comm = getenv("TESSERA_CUDA_COMM");
    (void)state;
    if (ON_DEVICE && comm && !strcmp(comm, "nccl")) /* the others may hear of it in any call */
        skip();
    for (int at = 0; at < BUCKETS; at++)
        expect_ok(2, hook_fails, &at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_hook_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
