/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run allocates nothing: the C library's allocator and mmap are replaced by ones that count while
 * they are told to, on any thread. Over Gloo, what Gloo itself takes is not counted.
 */
#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/world.h"
#include "tests/dist/comm/ranks.h"

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

/* Where the code of other people's libraries lies. */
enum { MOST_FOREIGN = 16 };
static struct {
    uintptr_t from, to;
} foreign[MOST_FOREIGN];
static int nforeign;

static int note_foreign(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *name = info->dlpi_name;
    (void)size;
    (void)arg;
    /* oneDNN has templates of the standard library that Gloo is bound to. */
    bool is_gloos = strstr(name, "/libgloo.so") || strstr(name, "/libstdc++.so") ||
                    (strstr(name, "/libdnnl.so") && !strcmp(test_ranks_comm(), "gloo"));
    if (!is_gloos)
        return 0;
    for (int i = 0; i < info->dlpi_phnum && nforeign < MOST_FOREIGN; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X))
            continue;
        foreign[nforeign].from = info->dlpi_addr + h->p_vaddr;
        foreign[nforeign++].to = info->dlpi_addr + h->p_vaddr + h->p_memsz;
    }
    return 0;
}

static void find_foreign(void)
{
    nforeign = 0;
    dl_iterate_phdr(note_foreign, NULL);
}

static bool is_foreign(const void *caller)
{
    for (int i = 0; i < nforeign; i++)
        if ((uintptr_t)caller >= foreign[i].from && (uintptr_t)caller < foreign[i].to)
            return true;
    return false;
}

static void count_of(const char *what, size_t bytes, const void *caller)
{
    find_real();
    if (atomic_load(&armed) && !is_foreign(caller) && atomic_fetch_add(&calls, 1) == 0) {
        atomic_store(&first_call, what);
        atomic_store(&first_bytes, bytes);
    }
}

#define count(what, bytes) count_of(what, bytes, __builtin_return_address(0))

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

/* C++'s operator new, so that its caller is known. */
void *operator_new(size_t bytes) __asm__("_Znwm");
void *operator_new(size_t bytes)
{
    count("operator new", bytes);
    return real_malloc ? real_malloc(bytes) : early_alloc(bytes);
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    count("mmap", bytes);
    return real_mmap(at, bytes, prot, flags, fd, offset);
}
#else
static void find_foreign(void)
{
}
#endif

/* --- training --------------------------------------------------------------------------------- */

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
    if (w->rank == 0)
        find_foreign();
    TSRI_TRY(tsr_world_barrier(w));
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

/* --- per-rank buffers ------------------------------------------------------------------------- */
static tsr_status reduce_some(tsr_group *g, float *small, float *large)
{
    enum { SMALL = 16, LARGE = 1 << 17 };
    TSRI_TRY(tsr_all_reduce(g, small, SMALL, TSR_F32, TSR_REDUCE_SUM));
    TSRI_TRY(tsr_all_reduce(g, large, LARGE, TSR_F32, TSR_REDUCE_AVG));
    TSRI_TRY(tsr_reduce(g, large, LARGE, TSR_F32, TSR_REDUCE_MAX, 1));
    TSRI_TRY(tsr_broadcast(g, large, LARGE, TSR_F32, 0));
    return tsr_group_barrier(g);
}

static tsr_status buffers_body(tsr_world *w, void *arg)
{
    static float buffers[4][2][1 << 17];
    float *small = buffers[w->rank][0], *large = buffers[w->rank][1];
    tsr_group *g = tsr_world_group(w);
    (void)arg;
    for (int i = 0; i < 2; i++)
        TSRI_TRY(reduce_some(g, small, large));
    if (w->rank == 0)
        find_foreign();
    TSRI_TRY(tsr_group_barrier(g));
    atomic_store(&armed, true);
    TSRI_TRY(tsr_group_barrier(g));
    for (int i = 0; i < 4; i++)
        TSRI_TRY(reduce_some(g, small, large));
    atomic_store(&armed, false);
    return tsr_group_barrier(g);
}

static void test_buffers(void **state)
{
    (void)state;
    if (!COUNTING)
        skip();
    for (int n = 2; n <= 4; n++) {
        atomic_store(&calls, 0);
        tsr_status status =
            test_ranks(n, buffers_body, NULL,
                       TSR_WORLD_OPTS(.threads = 1, .arena_bytes = 64 << 20, .timeout_s = 30));
        atomic_store(&armed, false);
        if (status != TSR_OK)
            fail_msg("%d ranks: %s", n, tsr_last_error());
        if (atomic_load(&calls))
            fail_msg("%d ranks: %d calls of the allocator in 4 rounds; the first: %s of %zu bytes",
                     n, atomic_load(&calls), atomic_load(&first_call), atomic_load(&first_bytes));
    }
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
        tsr_status status = test_ranks(
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
        cmocka_unit_test(test_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
