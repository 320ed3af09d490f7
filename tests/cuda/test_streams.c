/* SPDX-License-Identifier: Apache-2.0 */
/* What a program does between two steps of a device that is still at work: it feeds the next
 * batches, fetches into pinned memory, chooses another GPU for itself, forks. What needs the
 * emulator is skipped elsewhere. */
#include "tests/cuda/emulator/control.h"
#include "tests/dist/comm/rank_checks.h"
#include "kernels/device.h"
#include <tessera/tessera.h>

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static tsri_emulated_choose_fn *choose; /* NULL: not on the emulator */
static tsri_emulated_pin_fn *pin;

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

/* --- feeding ---------------------------------------------------------------------------------- */
enum { BATCHES = 16 };

/* acc += x, without a wait between the steps. Each batch is a digit of octal numbers of its own, so
 * the sum tells a batch that was overwritten, or read too soon. */
typedef struct feeding {
    int64_t n, most; /* elements of x; another plan's, which is fed in between */
} feeding;

static tsr_plan *adder(tsr_world *w, int64_t n, tsr_variable **out_acc)
{
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0]");
    const tsr_nn_opts nn = {.placement = p, .dtype = TSR_F64};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    *out_acc = tsr_module_buffer(m, "acc", TSR_DIMS(n), TSR_B, (tsr_init){0});
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_assign(*out_acc,
               tsr_add(tsr_read(g, *out_acc), tsr_input(g, "x", TSR_F64, TSR_DIMS(n), p, TSR_B)));
    tsr_plan *plan = NULL;
    return tsr_compile(g, &plan) == TSR_OK ? plan : NULL;
}

static tsr_status feed_digit(tsr_plan *plan, double *x, int64_t n, int batch)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)((int64_t)1 << 3 * batch);
    TSRI_TRY(tsr_feed(plan, "x", x, (size_t)n * sizeof *x));
    memset(x, 0xff, (size_t)n * sizeof *x); /* it is the program's again */
    return tsr_run(plan);
}

static tsr_status check_digits(tsr_variable *acc, double *got, int64_t n)
{
    const int64_t want = (((int64_t)1 << 3 * BATCHES) - 1) / 7;
    TSRI_TRY(tsr_variable_get(acc, got, (size_t)n * sizeof *got));
    for (int64_t i = 0; i < n; i++)
        if (got[i] != (double)want)
            return tsri_fail(TSR_ERR_INTERNAL, "element %lld of %lld: %llo, expected %llo in octal",
                             (long long)i, (long long)n, (unsigned long long)got[i],
                             (unsigned long long)want);
    return TSR_OK;
}

static tsr_status feed_body(tsr_world *w, void *arg)
{
    const feeding *f = arg;
    tsr_variable *acc, *other = NULL;
    tsr_plan *plan = adder(w, f->n, &acc), *next = f->most ? adder(w, f->most, &other) : NULL;
    CHECK(plan && (next || !f->most));
    double *x = malloc((size_t)(f->n + f->most) * sizeof *x);
    CHECK(x);
    tsr_status status = TSR_OK;
    for (int s = 0; s < BATCHES && status == TSR_OK; s++) {
        status = feed_digit(plan, x, f->n, s);
        if (next && status == TSR_OK)
            status = feed_digit(next, x, f->most, s);
    }
    if (status == TSR_OK)
        status = check_digits(acc, x, f->n);
    if (next && status == TSR_OK)
        status = check_digits(other, x, f->most);
    free(x);
    return status;
}

/* Small inputs, staged ones, and such as the staging memory grows for while it is in use. */
static void test_feed(void **state)
{
    (void)state;
    static const feeding cases[] = {{1, 0},     {64, 0},       {3000, 0},
                                    {65536, 0}, {1000, 50000}, {500, 3000}};
    for (int graph = 0; graph < 2; graph++) {
        setenv("TESSERA_CUDA_GRAPH", graph ? "1" : "0", 1);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            spawn_ok(1, feed_body, &(feeding){cases[i].n, cases[i].most});
    }
    unsetenv("TESSERA_CUDA_GRAPH");
}

/* More inputs in a step than there are places of staging memory. */
static tsr_status many_body(tsr_world *w, void *arg)
{
    enum { INPUTS = 70 };
    const int64_t n = *(const int64_t *)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *sum = NULL;
    char name[16];
    for (int i = 0; i < INPUTS; i++) {
        snprintf(name, sizeof name, "x%d", i);
        tsr_tensor *x = tsr_input(g, name, TSR_F64, TSR_DIMS(n), p, TSR_B);
        sum = sum ? tsr_add(sum, tsr_mul_scalar(x, i + 1)) : x;
    }
    tsr_output(g, "sum", sum, p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    double *x = malloc((size_t)n * sizeof *x);
    CHECK(x);
    tsr_status status = TSR_OK;
    for (int s = 0; s < 3 && status == TSR_OK; s++) {
        double want = 0;
        for (int i = 0; i < INPUTS && status == TSR_OK; i++) {
            for (int64_t j = 0; j < n; j++)
                x[j] = i * i + s;
            want += (i ? i + 1 : 1) * (double)(i * i + s);
            snprintf(name, sizeof name, "x%d", i);
            status = tsr_feed(plan, name, x, (size_t)n * sizeof *x);
        }
        if (status == TSR_OK)
            status = tsr_run(plan);
        if (status == TSR_OK)
            status = tsr_fetch(plan, "sum", x, (size_t)n * sizeof *x);
        if (status == TSR_OK && (x[0] != want || x[n - 1] != want))
            status = tsri_fail(TSR_ERR_INTERNAL, "step %d: %g and %g, expected %g", s, x[0],
                               x[n - 1], want);
    }
    free(x);
    return status;
}

static void test_many_inputs(void **state)
{
    (void)state;
    spawn_ok(1, many_body, &(int64_t){3});
    spawn_ok(1, many_body, &(int64_t){2000});
}

/* --- fetching --------------------------------------------------------------------------------- */
/* Into pinned memory a copy is asynchronous: the value is there nevertheless. */
static tsr_status fetch_body(tsr_world *w, void *arg)
{
    enum { N = 5000 };
    static double page[N + 1024];
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_output(g, "y", tsr_mul_scalar(tsr_input(g, "x", TSR_F64, TSR_DIMS(N), p, TSR_B), 3), p,
               TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    pin(page, sizeof page);
    tsr_status status = TSR_OK;
    for (int s = 0; s < 4 && status == TSR_OK; s++) {
        for (int i = 0; i < N; i++)
            page[i] = s + i;
        status = tsr_feed(plan, "x", page, N * sizeof *page);
        memset(page, 0xff, sizeof page);
        if (status == TSR_OK)
            status = tsr_run(plan);
        if (status == TSR_OK)
            status = tsr_fetch(plan, "y", page, N * sizeof *page);
        for (int i = 0; i < N && status == TSR_OK; i++)
            if (page[i] != 3.0 * (s + i))
                status = tsri_fail(TSR_ERR_INTERNAL, "step %d, element %d: %g", s, i, page[i]);
    }
    pin(page, 0);
    return status;
}

static void test_fetch_pinned(void **state)
{
    (void)state;
    if (!pin)
        skip();
    spawn_ok(1, fetch_body, NULL);
}

/* --- the host program's GPU ------------------------------------------------------------------- */
/* Before each call the program chooses a GPU that is not the rank's; afterwards it still has it. */
#define ELSEWHERE(call)              \
    do {                             \
        choose(2);                   \
        tsr_status status_ = (call); \
        int now_ = choose(2);        \
        TSRI_TRY(status_);           \
        CHECK(now_ == 2);            \
    } while (0)

typedef struct training {
    const char *kind;
    double loss[3];
} training;

static tsr_status elsewhere_body(tsr_world *w, void *arg)
{
    enum { ROWS = 8, IN = 6 };
    training *t = arg;
    const tsr_placement *p = tsr_placement_parse(w, t->kind);
    tsr_module *net = tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = IN, .dtype = TSR_F64));
    tsr_optimizer *opt = tsr_adamw(net, TSR_ADAM_OPTS(.lr = 0.1));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, IN), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(ROWS), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    ELSEWHERE(tsr_compile(g, &plan));
    for (int s = 0; s < 3; s++) {
        double rows[ROWS * IN];
        int64_t labels[ROWS];
        for (int i = 0; i < ROWS * IN; i++)
            rows[i] = (i * 7 + s) % 5 - 2;
        for (int i = 0; i < ROWS; i++)
            labels[i] = (i + s) % 10;
        ELSEWHERE(tsr_feed(plan, "x", rows, sizeof rows));
        ELSEWHERE(tsr_feed(plan, "y", labels, sizeof labels));
        ELSEWHERE(tsr_run(plan));
        ELSEWHERE(tsr_fetch_scalar(plan, "loss", &t->loss[s]));
    }
    choose(2);
    return TSR_OK;
}

static void test_elsewhere(void **state)
{
    (void)state;
    training cpu = {.kind = "cpu:[0,1]"}, cuda = {.kind = "cuda:[0,1]"};
    if (!choose)
        skip();
    setenv("EMULATED_DEVICES", "3", 1);
    spawn_ok(2, elsewhere_body, &cpu);
    for (int graph = 0; graph < 2; graph++) {
        setenv("TESSERA_CUDA_GRAPH", graph ? "1" : "0", 1);
        for (int local = 0; local < 2; local++) {
            setenv("TESSERA_CUDA_COMM", local ? "local" : "nccl", 1);
            spawn_ok(2, elsewhere_body, &cuda);
            for (int s = 0; s < 3; s++)
                if (!(cuda.loss[s] - cpu.loss[s] < 1e-12 && cpu.loss[s] - cuda.loss[s] < 1e-12))
                    fail_msg("step %d: %.17g on GPUs, %.17g on CPUs", s, cuda.loss[s], cpu.loss[s]);
        }
    }
    unsetenv("TESSERA_CUDA_COMM");
    unsetenv("TESSERA_CUDA_GRAPH");
    unsetenv("EMULATED_DEVICES");
}

/* --- captures --------------------------------------------------------------------------------- */
static atomic_int capturers; /* worlds that still make plans */

/* Long plans, which are captured as they run. */
static tsr_status capture_body(tsr_world *w, void *arg)
{
    enum { PLANS = 6, STEPS = 4, OPS = 400 };
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0]");
    (void)arg;
    for (int i = 0; i < PLANS; i++) {
        double x[4] = {1, 2, 3, 4}, got[4];
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_tensor *y = tsr_input(g, "x", TSR_F64, TSR_DIMS(2, 2), p, TSR_B);
        for (int k = 0; k < OPS; k++)
            y = tsr_softmax(y, 1);
        tsr_output(g, "y", y, p, TSR_B);
        tsr_plan *plan;
        TSRI_TRY(tsr_compile(g, &plan));
        for (int s = 0; s < STEPS; s++) {
            TSRI_TRY(tsr_feed(plan, "x", x, sizeof x));
            TSRI_TRY(tsr_run(plan));
            TSRI_TRY(tsr_fetch(plan, "y", got, sizeof got));
            CHECK(got[0] > 0.49 && got[0] < 0.51);
        }
        tsr_plan_destroy(plan);
    }
    return TSR_OK;
}

/* Steps and waits beside them. */
static tsr_status beside_body(tsr_world *w, void *arg)
{
    enum { N = 600 };
    double x[N];
    tsr_variable *acc;
    tsr_plan *plan = adder(w, N, &acc);
    (void)arg;
    CHECK(plan);
    while (capturers > 0) {
        TSRI_TRY(feed_digit(plan, x, N, 0));
        TSRI_TRY(tsr_variable_get(acc, x, sizeof x));
    }
    return TSR_OK;
}

typedef struct own_world {
    pthread_t thread;
    tsr_rank_fn *fn;
    tsr_status status;
    char text[1024];
} own_world;

static void *run_own_world(void *arg)
{
    own_world *o = arg;
    o->status = tsr_spawn_with(1, o->fn, NULL, &opts);
    snprintf(o->text, sizeof o->text, "%.1023s", tsr_last_error());
    capturers -= o->fn == capture_body;
    return NULL;
}

/* One thread's capture does not concern what another does meanwhile. */
static void test_captures(void **state)
{
    (void)state;
    own_world o[3] = {{.fn = capture_body}, {.fn = capture_body}, {.fn = beside_body}};
    capturers = 2;
    setenv("TESSERA_CUDA_ARENA_BYTES", "100000000", 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&o[i].thread, NULL, run_own_world, &o[i]), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(o[i].thread, NULL);
    unsetenv("TESSERA_CUDA_ARENA_BYTES");
    for (int i = 0; i < 3; i++)
        if (o[i].status != TSR_OK)
            fail_msg("%s: %s", tsr_status_name(o[i].status), o[i].text);
}

/* --- forking ---------------------------------------------------------------------------------- */
static tsr_status forked_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_placement *p = tsr_placement_parse(w, "cuda:[0]");
    tsr_output(g, "y", tsr_input(g, "x", TSR_F32, TSR_DIMS(3), p, TSR_B), p, TSR_B);
    tsr_plan *plan;
    CHECK(tsr_compile(g, &plan) == TSR_ERR_STATE);
    CHECK_TEXT("was forked from process");
    CHECK_TEXT("before the first use of a GPU");
    return TSR_OK;
}

/* This process has used its GPU in the tests above. */
static void test_forked(void **state)
{
    (void)state;
    tsr_status status = tsr_spawn_processes(2, forked_body, NULL);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
}

int main(void)
{
    const char *file = getenv("TESSERA_CUDA_MODULE");
    void *module = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (module) {
        *(void **)&choose = dlsym(module, "tsri_emulated_choose");
        *(void **)&pin = dlsym(module, "tsri_emulated_pin");
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_feed),         cmocka_unit_test(test_many_inputs),
        cmocka_unit_test(test_fetch_pinned), cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_captures),     cmocka_unit_test(test_forked),
    };
    tsr_world *w;
    tsri_device *d;
    if (getenv("TESSERA_TEST_ONLY"))
        cmocka_set_test_filter(getenv("TESSERA_TEST_ONLY"));
    if (getenv("TESSERA_TEST_SKIP"))
        cmocka_set_skip_filter(getenv("TESSERA_TEST_SKIP"));
    if (tsr_world_create(NULL, &w) != TSR_OK)
        return 1;
    tsr_status status = tsri_device_get(w, TSR_DEVICE_CUDA, &d);
    if (status != TSR_OK)
        printf("skipped: %s\n", tsr_last_error());
    tsr_world_destroy(w);
    return status != TSR_OK ? 77 : cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
