/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run allocates nothing: the C library's allocator and mmap are replaced by ones that count while
 * they are told to, on any thread.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/status.h"

/* Sanitizers bring allocators of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTING 0
#else
#define COUNTING 1
#endif

static atomic_bool armed;
static atomic_int calls;
static _Atomic(const char *) first_call;
static atomic_size_t first_bytes;

#if COUNTING
static void *(*real_malloc)(size_t), *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t), *(*real_aligned_alloc)(size_t, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void (*real_free)(void *);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);

/* What is asked for before the real ones are found. Never given back. */
static _Alignas(16) char early[1 << 16];
static size_t early_used;
static bool finding;

static void *early_alloc(size_t bytes)
{
    char *p = early + early_used;
    early_used += (bytes + 15) / 16 * 16;
    if (early_used > sizeof early)
        abort();
    return p;
}

static bool is_early(const void *p)
{
    return (const char *)p >= early && (const char *)p < early + sizeof early;
}

/* POSIX's way to make a function of what dlsym gives. */
#define FIND(name) (*(void **)&real_##name = dlsym(RTLD_NEXT, #name))

static void find_real(void)
{
    if (real_free || finding)
        return;
    finding = true;
    FIND(malloc);
    FIND(calloc);
    FIND(realloc);
    FIND(aligned_alloc);
    FIND(posix_memalign);
    FIND(mmap);
    FIND(free);
    finding = false;
}

static void count(const char *what, size_t bytes)
{
    find_real();
    if (atomic_load(&armed) && atomic_fetch_add(&calls, 1) == 0) {
        atomic_store(&first_call, what);
        atomic_store(&first_bytes, bytes);
    }
}

void *malloc(size_t bytes)
{
    count("malloc", bytes);
    return real_malloc ? real_malloc(bytes) : early_alloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count("calloc", n * bytes);
    return real_calloc ? real_calloc(n, bytes) : early_alloc(n * bytes);
}

void *realloc(void *p, size_t bytes)
{
    count("realloc", bytes);
    if (!is_early(p))
        return real_realloc(p, bytes);
    void *fresh = malloc(bytes);
    if (fresh)
        memcpy(fresh, p,
               bytes < (size_t)(early + sizeof early - (char *)p)
                   ? bytes
                   : (size_t)(early + sizeof early - (char *)p));
    return fresh;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    count("aligned_alloc", bytes);
    return real_aligned_alloc(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    count("posix_memalign", bytes);
    return real_posix_memalign(out, alignment, bytes);
}

void free(void *p)
{
    if (p)
        count("free", 0);
    if (p && !is_early(p) && real_free)
        real_free(p);
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    count("mmap", bytes);
    return real_mmap(at, bytes, prot, flags, fd, offset);
}
#endif

/* --- training ------------------------------------------------------------------------------------
 */

typedef struct training {
    int ranks, threads;
    bool adam, mobilenet;
} training;

enum { BATCH = 6, SIDE = 12, MOST = BATCH * 3 * 32 * 32 };

static tsr_dims image_dims(const training *t)
{
    return t->mobilenet ? TSR_DIMS(BATCH, 3, 32, 32) : TSR_DIMS(BATCH, 1, SIDE, SIDE);
}

static tsr_plan *make_plan(const training *t, tsr_world *w, tsr_module *net, tsr_optimizer *opt,
                           bool train)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = train, .seed = 1));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, image_dims(t), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(BATCH), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, tsr_dropout(x, 0.25)), y, TSR_MEAN);
    if (train)
        tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan = NULL;
    tsr_compile(g, &plan);
    tsr_graph_destroy(g);
    return plan;
}

static tsr_status feed_and_run(const training *t, tsr_plan *plan, double *out_loss)
{
    static const float x[MOST] = {1, -1, 2, 0.5F};
    static const int64_t y[BATCH] = {1, 2, 3, 4, 5, 6};
    TSRI_TRY(tsr_feed(plan, "x", x, (size_t)tsr_dims_count(image_dims(t)) * sizeof *x));
    TSRI_TRY(tsr_feed(plan, "y", y, sizeof y));
    TSRI_TRY(tsr_run(plan));
    return tsr_fetch_scalar(plan, "loss", out_loss);
}

static tsr_status training_body(tsr_world *w, void *arg)
{
    const training *t = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net =
        t->mobilenet ? tsr_mobilenet_v2(w, p, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = 10))
                     : tsr_convnet(w, p, TSR_B, TSR_CONVNET_OPTS(.height = SIDE, .width = SIDE));
    const tsr_schedule warm = {.kind = TSR_SCHEDULE_COSINE, .warmup = 2, .steps = 100};
    tsr_optimizer *opt =
        t->adam ? tsr_adam(net, TSR_ADAM_OPTS(.schedule = warm))
                : tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .schedule = warm));
    tsr_plan *train = make_plan(t, w, net, opt, true), *eval = make_plan(t, w, net, opt, false);
    double loss[2];
    if (!train || !eval)
        return tsri_fail(TSR_ERR_INTERNAL, "no plan: %s", tsr_last_error());
    /* The first runs make the threads' team and the barrier's group. */
    for (int i = 0; i < 2; i++) {
        TSRI_TRY(feed_and_run(t, train, &loss[0]));
        TSRI_TRY(feed_and_run(t, eval, &loss[1]));
        TSRI_TRY(tsr_world_barrier(w));
    }
    atomic_store(&armed, true);
    TSRI_TRY(tsr_world_barrier(w));
    for (int i = 0; i < 4; i++) {
        TSRI_TRY(feed_and_run(t, train, &loss[0]));
        TSRI_TRY(feed_and_run(t, eval, &loss[1]));
    }
    TSRI_TRY(tsr_world_barrier(w));
    atomic_store(&armed, false);
    if (!(loss[0] > 0 && loss[0] < 10 && loss[1] > 0 && loss[1] < 1e4))
        return tsri_fail(TSR_ERR_INTERNAL, "losses %g and %g", loss[0], loss[1]);
    /* Nobody goes on to free while others are being counted. */
    return tsr_world_barrier(w);
}

static void test_counter(void **state)
{
    (void)state;
    if (!COUNTING)
        skip();
    atomic_store(&armed, true);
    void *volatile p = malloc(10);
    free(p);
    p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    atomic_store(&armed, false);
    munmap(p, 4096);
    assert_int_equal(atomic_exchange(&calls, 0), 3);
    assert_string_equal(atomic_load(&first_call), "malloc");
    assert_int_equal(atomic_load(&first_bytes), 10);
}

static void test_runs(void **state)
{
    (void)state;
    static const training all[] = {
        {.ranks = 1, .threads = 1},
        {.ranks = 1, .threads = 2, .adam = true},
        {.ranks = 2, .threads = 1},
        {.ranks = 2, .threads = 1, .adam = true},
        {.ranks = 3, .threads = 1},
        {.ranks = 1, .threads = 2, .mobilenet = true},
        {.ranks = 2, .threads = 1, .mobilenet = true},
    };
    if (!COUNTING)
        skip();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        training t = all[i];
        atomic_store(&calls, 0);
        tsr_status status = tsr_spawn_with(
            t.ranks, training_body, &t,
            TSR_WORLD_OPTS(.threads = t.threads, .arena_bytes = 256 << 20, .timeout_s = 30));
        atomic_store(&armed, false);
        if (status != TSR_OK)
            fail_msg("%d ranks: %s", t.ranks, tsr_last_error());
        if (atomic_load(&calls))
            fail_msg("%d ranks of %d threads: %d calls of the allocator in 8 runs; the first: %s "
                     "of %zu bytes",
                     t.ranks, t.threads, atomic_load(&calls), atomic_load(&first_call),
                     atomic_load(&first_bytes));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter),
        cmocka_unit_test(test_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
