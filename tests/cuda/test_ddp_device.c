/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tsr_ddp on GPUs beyond its values: the host waits for no GPU in a step; no call of a group is
 * captured; buckets start as soon as their last gradient is in the stream, and early enough; and
 * each wait between two streams is needed, since the step gives wrong values without it. On the
 * emulator, with a GPU for each rank.
 */
#include <dlfcn.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/device.h"
#include "src/exec/watch.h"
#include "src/train/ddp.h"
#include "tests/bench/bench_cuda_nets.h"
#include "tests/cuda/emulator/control.h"
#include "tests/cuda/emulator/nccl_log.h"
#include "tests/cuda/gpus.h"
#include "tests/dist/comm/rank_checks.h"

/* The table fills the first bucket, of 1 MiB. */
enum { RANKS = 2, ROWS = 3, IN = 7, HIDDEN = 12, CLASSES = 4, STEPS = 4, TABLE = 1 << 18 };

static const tsr_world_opts options = {
    .size = sizeof options, .arena_bytes = 64 << 20, .timeout_s = 30, .threads = 1};

static tsri_emulated_stall_fn *stall;
static tsri_emulated_reseed_fn *reseed;
static tsri_emulated_nccl_log_fn *nccl_log;
static tsri_emulated_nccl_clear_fn *nccl_clear;

/* --- a small training ------------------------------------------------------------------------- */

typedef struct training {
    tsr_module *net;
    tsr_ddp *ddp;
    tsr_optimizer *opt;
    tsr_plan *plan;
} training;

static tsr_tensor *loss_of(tsr_module *net, tsr_tensor *x, tsr_tensor *y)
{
    tsr_tensor *h = x;
    for (int i = 0; i < 3; i++) {
        char name[2] = {(char)('0' + i), 0};
        h = tsr_apply(tsr_module_child(net, name), h);
    }
    tsr_tensor *table = tsr_use(tsr_module_child(net, "3"), "table", x);
    return tsr_add(tsr_cross_entropy(h, y, TSR_MEAN),
                   tsr_mul_scalar(tsr_sum(tsr_square(table), TSR_ALL_AXES, false), 1e-3));
}

/* syncs: batch norm's sums are those of all ranks. */
static tsr_status begin(tsr_world *w, const tsr_ddp_opts *opts, bool syncs, training *t)
{
    const tsr_placement *here = tsr_local_placement_on(w, TSR_DEVICE_CUDA);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .seed = 5};
    t->net = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_module_add(t->net, "0", tsr_nn_linear(w, &nn, IN, HIDDEN, true));
    tsr_module_add(t->net, "1", tsr_nn_batch_norm(w, &nn, HIDDEN, NULL));
    tsr_module_add(t->net, "2", tsr_nn_linear(w, &nn, HIDDEN, CLASSES, true));
    tsr_module *last = tsr_module_add(t->net, "3", tsr_module_create(w, &nn, NULL, NULL, NULL));
    tsr_module_param(last, "table", TSR_DIMS(TABLE), TSR_B,
                     (tsr_init){.kind = TSR_INIT_NORMAL, .b = 1});
    TSRI_TRY(tsr_module_set_local(t->net));
    if (syncs)
        TSRI_TRY(tsr_convert_sync_batchnorm(t->net, tsr_world_group(w)));
    TSRI_TRY(tsr_ddp_create(t->net, opts, &t->ddp));
    t->opt = tsr_sgd(t->net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(ROWS, IN), here, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(ROWS), here, TSR_B);
    tsr_ddp_backward(t->ddp, loss_of(t->net, x, y));
    return tsr_compile(g, &t->plan);
}

static tsr_status feed(const training *t, int rank, int step)
{
    float rows[ROWS * IN];
    int64_t labels[ROWS];
    for (int i = 0; i < ROWS * IN; i++)
        rows[i] = (float)sin(0.7 * i + step + 3 * rank);
    for (int i = 0; i < ROWS; i++)
        labels[i] = (i + step + rank) % CLASSES;
    TSRI_TRY(tsr_feed(t->plan, "x", rows, sizeof rows));
    return tsr_feed(t->plan, "y", labels, sizeof labels);
}

/* --- no wait ---------------------------------------------------------------------------------- */

static _Atomic int waits, arrived;

static void meet_others(int n)
{
    while (atomic_load(&arrived) < n)
        sched_yield();
}

static void meet(int n)
{
    atomic_fetch_add(&arrived, 1);
    meet_others(n);
}

static tsr_status no_wait(tsr_world *w, void *arg)
{
    training t;
    tsr_ddp_info info = {.size = sizeof info};
    const int rank = tsr_world_rank(w);
    const bool syncs = *(const bool *)arg;
    TSRI_TRY(begin(w, TSR_DDP_OPTS(.bucket_cap_mb = 1e-4), syncs, &t));
    for (int s = 0; s < STEPS; s++) {
        TSRI_TRY(feed(&t, rank, s));
        if (s == STEPS - 1) { /* steps before it load libraries, and are captured */
            TSRI_TRY(tsr_sync(w));
            meet(RANKS);
            if (rank == 0)
                stall(1);
            meet(2 * RANKS);
        }
        TSRI_TRY(tsr_ddp_run(t.ddp, t.plan));
        TSRI_TRY(tsr_ddp_step_with(t.ddp, t.opt, TSR_MINIMIZE_OPTS(.clip_norm = 0.5)));
    }
    meet(3 * RANKS);
    if (rank == 0)
        atomic_store(&waits, stall(0));
    meet(4 * RANKS);
    TSRI_TRY(tsr_ddp_get_info(t.ddp, &info));
    CHECK(info.nbuckets >= 3 && info.steps == STEPS && info.grad_norm > 0);
    CHECK(t.plan->replay.capture[0].nparts >= 3);
    int apart = 0;
    for (int i = 0; i < t.plan->replay.capture[0].nparts; i++)
        apart += !t.plan->replay.capture[0].part[i].captured;
    CHECK(syncs ? apart >= 2 : apart == 0); /* forward and backward */
    return tsr_ddp_close(&t.ddp);
}

static bool by_itself = false, synchronised = true;

static void check_no_wait(bool *syncs)
{
    atomic_store(&arrived, 0);
    if (tsr_spawn_with(RANKS, no_wait, syncs, &options) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(atomic_load(&waits), 0);
}

static void test_no_wait(void **state)
{
    (void)state;
    check_no_wait(&by_itself);
    check_no_wait(&synchronised);
}

/* --- not captured ----------------------------------------------------------------------------- */

/* The runs of this test are captured, and yet no call is. */
static void check_not_captured(bool *syncs)
{
    enum { MOST = 4096 };
    static tsri_emulated_nccl_call calls[MOST];
    nccl_clear();
    atomic_store(&arrived, 0);
    if (tsr_spawn_with(RANKS, no_wait, syncs, &options) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    int n = nccl_log(MOST, calls);
    assert_in_range(n, RANKS * STEPS * (*syncs ? 5 : 3), MOST);
    for (int i = 0; i < n; i++)
        assert_int_equal(calls[i].captured, 0);
}

static void test_not_captured(void **state)
{
    (void)state;
    check_not_captured(&by_itself);
    check_not_captured(&synchronised);
}

/* --- registered memory ------------------------------------------------------------------------ */

/* The stand-in ends the program where memory is not deregistered. */
static void test_registered(void **state)
{
    enum { MOST = 4096 };
    static tsri_emulated_nccl_call calls[MOST];
    (void)state;
    for (int asks = 0; asks < 2; asks++) {
        nccl_clear();
        atomic_store(&arrived, 0);
        if (asks)
            setenv("TESSERA_NCCL_REGISTER", "1", 1);
        tsr_status status = tsr_spawn_with(RANKS, no_wait, &synchronised, &options);
        unsetenv("TESSERA_NCCL_REGISTER");
        if (status != TSR_OK)
            fail_msg("%s", tsr_last_error());
        int n = nccl_log(MOST, calls);
        assert_in_range(n, RANKS * STEPS * 5, MOST);
        for (int i = 0; i < n; i++)
            assert_int_equal(calls[i].registered, asks);
    }
}

/* --- early ------------------------------------------------------------------------------------ */

typedef struct seen {
    tsr_ddp *ddp;
    int *completed; /* by parameter: the step that writes its gradient */
    int step;
} seen;

static tsr_status note(void *arg, int i)
{
    seen *s = arg;
    s->completed[i] = s->step;
    return TSR_OK;
}

static double cost_of(const tsri_step *s)
{
    return s->item ? s->item->cost_s : 0;
}

/* The step behind which each bucket starts: behind its own gradients and those of all buckets
 * before it. At half of the planned time of the backward pass 40 % of the bytes have started. */
static tsr_status check_early(const char *name, const tsr_plan *plan, const seen *s)
{
    const tsr_ddp *d = s->ddp;
    double all = 0, backward = 0, at = 0;
    size_t bytes = 0, started = 0;
    int start = -1;
    for (int i = 0; i < plan->nsteps; i++)
        backward +=
            plan->steps[i].item && plan->steps[i].item->backward ? cost_of(&plan->steps[i]) : 0;
    for (int b = 0; b < d->nbuckets; b++) {
        const tsri_ddp_bucket *bucket = &d->buckets[b];
        int last = -1;
        for (int i = bucket->first; i < bucket->first + bucket->pub.nparams; i++)
            last = s->completed[i] > last ? s->completed[i] : last;
        start = last > start ? last : start;
        if (start - last >= 3)
            return tsri_fail(TSR_ERR_INTERNAL,
                             "%s: bucket %d starts %d kernels behind its last "
                             "gradient",
                             name, b, start - last);
        at = 0;
        for (int i = 0; i <= start; i++)
            at +=
                plan->steps[i].item && plan->steps[i].item->backward ? cost_of(&plan->steps[i]) : 0;
        bytes += bucket->bytes;
        if (at <= backward / 2)
            started += bucket->bytes;
    }
    all = (double)bytes;
    if ((double)started < 0.4 * all)
        return tsri_fail(TSR_ERR_INTERNAL,
                         "%s: %.1f %% of the gradients' bytes have started at "
                         "half of the backward pass",
                         name, 100 * (double)started / all);
    return TSR_OK;
}

static tsr_status early(tsr_world *w, void *arg)
{
    const char *name = arg;
    const tsr_placement *here = tsr_local_placement_on(w, TSR_DEVICE_CUDA);
    bench_net model;
    seen s = {0};
    CHECK(bench_net_find(name, false, &model));
    const int64_t rows = model.batch[0];
    tsr_module *net = bench_net_make(&model, w, here, TSR_F32);
    TSRI_TRY(tsr_ddp_create(net, TSR_DDP_OPTS(.bucket_cap_mb = strcmp(name, "resnet50") ? 1 : 25),
                            &s.ddp));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x =
        tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 3, model.size, model.size), here, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), here, TSR_B);
    tsr_ddp_backward(s.ddp, tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN));
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    const int n = s.ddp->nparams;
    tsr_variable **grads = calloc((size_t)n, sizeof *grads);
    int *set = calloc((size_t)n, sizeof *set), found = 0;
    s.completed = calloc((size_t)n, sizeof *s.completed);
    CHECK(grads && set && s.completed);
    for (int i = 0; i < n; i++) {
        grads[i] = s.ddp->params[i].grad;
        set[i] = s.ddp->params[i].bucket;
    }
    TSRI_TRY(tsri_plan_watch(plan, n, grads, set, note, &s, &found));
    CHECK(found == n && s.ddp->nbuckets >= 2);
    for (s.step = 0; s.step < plan->nsteps; s.step++)
        TSRI_TRY(tsri_plan_watched(plan, s.step));
    tsr_status status = check_early(name, plan, &s);
    free(grads);
    free(set);
    free(s.completed);
    return status;
}

static void test_early(void **state)
{
    static char mobilenet[] = "mobilenet_v2", resnet[] = "resnet50";
    const char *before = getenv("TESSERA_CUDA_ARENA_BYTES");
    char had[32];
    (void)state;
    snprintf(had, sizeof had, "%s", before ? before : "");
    setenv("TESSERA_CUDA_ARENA_BYTES", "7800000000", 1); /* of which little is touched */
    tsr_status status = tsr_spawn_with(1, early, mobilenet, &options);
    if (status == TSR_OK)
        status = tsr_spawn_with(1, early, resnet, &options);
    setenv("TESSERA_CUDA_ARENA_BYTES", had, 1);
    if (status != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* --- each wait is needed ---------------------------------------------------------------------- */

/* A rank's device whose drop-th wait from now on is left out; 0: none is. A stream that was to wait
 * does its work at the next wait, before any other does. */
typedef struct thief {
    tsri_device_ops ops;
    const tsri_device_ops *own;
    tsri_stream *early;
    int seen, drop;
} thief;

static _Thread_local thief *stealing;

static tsr_status wait_or_not(tsri_device *d, tsri_stream *stream, tsri_event *event)
{
    thief *t = stealing;
    if (t->early) {
        TSRI_TRY(t->own->stream_sync(d, t->early));
        t->early = NULL;
    }
    if (++t->seen != t->drop)
        return t->own->event_wait(d, stream, event);
    t->early = stream == d->stream ? NULL : stream;
    return TSR_OK;
}

typedef struct attempt {
    int drop, thief;   /* which wait, and whose */
    int waits;         /* of the thief in its last step */
    double sum[RANKS]; /* of all parameters */
} attempt;

static tsr_status add_up(tsr_variable *v, const char *name, void *arg)
{
    size_t n = (size_t)tsr_dims_count(tsr_variable_dims(v));
    double *sum = arg;
    (void)name;
    if (tsr_variable_dtype(v) != TSR_F32)
        return TSR_OK;
    float *x = malloc(n * sizeof *x);
    CHECK(x);
    tsr_status status = tsr_variable_get(v, x, n * sizeof *x);
    for (size_t i = 0; i < n && status == TSR_OK; i++)
        *sum += x[i] * (double)(1 + i % 7);
    free(x);
    return status;
}

typedef struct own_call {
    tsr_work *work;
    void *data, *next; /* next: the values that data gets at last */
} own_call;

/* A step with compressed buckets, buffers that are on their way to the GPU when it begins,
 * gradients that are added up, and a call of the program's own. syncs: the stream of compute is
 * done in between, with what it waits for and no more. */
static tsr_status make_step(training *t, tsri_device *d, own_call *c, int s, bool syncs)
{
    tsr_world *w = d->world;
    float out[64], mean[HIDDEN];
    const int rank = tsr_world_rank(w);
    for (int i = 0; i < 64; i++)
        out[i] = (float)(i + rank + s);
    for (int i = 0; i < HIDDEN; i++)
        mean[i] = (float)(s + i + 5 * rank);
    TSRI_TRY(feed(t, rank, 10 + s));
    TSRI_TRY(tsr_variable_set(tsr_module_find(t->net, "1.running_mean"), mean, sizeof mean));
    tsr_ddp_no_sync(t->ddp, true);
    TSRI_TRY(tsr_ddp_run(t->ddp, t->plan));
    tsr_ddp_no_sync(t->ddp, false);
    if (syncs)
        TSRI_TRY(d->ops->stream_sync(d, d->stream));
    TSRI_TRY(feed(t, rank, s));
    TSRI_TRY(tsr_ddp_run(t->ddp, t->plan));
    TSRI_TRY(tsr_ddp_step(t->ddp, t->opt));
    if (syncs)
        TSRI_TRY(d->ops->stream_sync(d, d->stream));
    TSRI_TRY(tsr_copy(w, c->next, out, sizeof out));
    for (int i = 0; i < 200; i++) /* before it, much other work */
        TSRI_TRY(tsr_copy(w, (char *)c->data + 64, c->data, 64));
    TSRI_TRY(tsr_copy(w, c->data, c->next, sizeof out));
    TSRI_TRY(
        tsr_all_reduce_async(tsr_world_group(w), c->data, 64, TSR_F32, TSR_REDUCE_SUM, &c->work));
    if (!syncs) /* the emulator begins with the work */
        tsr_work_test(c->work);
    return tsr_work_wait(&c->work, 0);
}

/* The thief makes its last step when the other rank has made its own, whose work waits for it. */
static tsr_status steal(tsr_world *w, void *arg)
{
    attempt *a = arg;
    thief mine = {0};
    training t;
    tsri_device *d;
    own_call c;
    float back[64];
    const int rank = tsr_world_rank(w);
    const bool steals = rank == a->thief;
    TSRI_TRY(
        begin(w, TSR_DDP_OPTS(.bucket_cap_mb = 1e-4, .hook = TSR_DDP_BF16_COMPRESS), false, &t));
    TSRI_TRY(tsri_device_get(w, TSR_DEVICE_CUDA, &d));
    TSRI_TRY(tsr_alloc_on(w, TSR_DEVICE_CUDA, sizeof back, &c.data));
    TSRI_TRY(tsr_alloc_on(w, TSR_DEVICE_CUDA, sizeof back, &c.next));
    TSRI_TRY(make_step(&t, d, &c, 0, false));
    TSRI_TRY(tsr_sync(w));
    meet(RANKS);
    mine.own = d->ops;
    mine.ops = *d->ops;
    mine.ops.event_wait = wait_or_not;
    mine.drop = steals ? a->drop : 0;
    stealing = &mine;
    if (steals)
        meet_others(RANKS + 1);
    d->ops = &mine.ops;
    tsr_status status = make_step(&t, d, &c, 1, steals);
    d->ops = mine.own;
    meet(2 * RANKS);
    TSRI_TRY(status);
    a->waits = steals ? mine.seen : a->waits;
    TSRI_TRY(tsr_copy(w, back, c.data, sizeof back));
    for (int i = 0; i < 64; i++)
        a->sum[rank] += i * back[i];
    TSRI_TRY(tsr_module_visit(t.net, add_up, &a->sum[rank]));
    tsr_ddp_destroy(t.ddp);
    return TSR_OK;
}

static tsr_status try_attempt(attempt *a)
{
    atomic_store(&arrived, 0);
    reseed(0); /* work is done as late as it can be */
    return tsr_spawn_with(RANKS, steal, a, &options);
}

/* Whether the values are wrong without the wait. A rank whose collective waits for the other has
 * the emulator do some other work, which may happen to be that which was to come first: so several
 * attempts. */
static bool is_needed(const attempt *whole, int drop)
{
    enum { ATTEMPTS = 60 };
    for (int i = 0; i < ATTEMPTS; i++) {
        attempt a = {.drop = drop, .thief = i % RANKS};
        if (try_attempt(&a) != TSR_OK || a.sum[0] != whole->sum[0] || a.sum[1] != whole->sum[1])
            return true;
    }
    return false;
}

static void test_each_wait(void **state)
{
    attempt whole = {0};
    int unneeded = 0;
    (void)state;
    if (try_attempt(&whole) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_in_range(whole.waits, 8, 64);
    for (int k = 1; k <= whole.waits; k++) {
        bool needed = is_needed(&whole, k);
        if (!needed)
            print_message("nothing is wrong without wait %d of %d\n", k, whole.waits);
        unneeded += !needed;
    }
    assert_int_equal(unneeded, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_wait),    cmocka_unit_test(test_not_captured),
        cmocka_unit_test(test_registered), cmocka_unit_test(test_early),
        cmocka_unit_test(test_each_wait),
    };
    test_gpus gpus;
    int rc = test_gpus_find(RANKS, &gpus);
    if (rc)
        return rc;
    void *module = gpus.emulated ? dlopen(getenv("TESSERA_CUDA_MODULE"), RTLD_NOW) : NULL;
    if (!module) {
        printf("skipped: on the emulator alone\n");
        return 77;
    }
    *(void **)&stall = dlsym(module, "tsri_emulated_stall");
    *(void **)&reseed = dlsym(module, "tsri_emulated_reseed");
    *(void **)&nccl_log = dlsym(module, "tsri_emulated_nccl_log");
    *(void **)&nccl_clear = dlsym(module, "tsri_emulated_nccl_clear");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
