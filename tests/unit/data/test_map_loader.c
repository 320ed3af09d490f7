/* SPDX-License-Identifier: Apache-2.0 */
/* What a data loader gives: order, contents, workers, errors. See also test_map_loader_more.c. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "loader_set.h"

static void must_say(tsr_status status, tsr_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(tsr_last_error(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, tsr_last_error());
}

static tsr_loader *make(loader_set *set, const tsr_map_loader_opts *opts)
{
    tsr_loader *l = NULL;
    tsr_status status = tsr_map_loader_create(NULL, LOADER_SET(set), opts, &l);
    if (status != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return l;
}

#define MAKE(set, ...) make(set, TSR_MAP_LOADER_OPTS(LOADER_FIELDS, __VA_ARGS__))

static loader_set of(int64_t n)
{
    return (loader_set){.n = n, .block_at = -1};
}

/* --- signals ---------------------------------------------------------------------------------- */

/* Field 0: which of the signals that a fault of the thread's own raises, and of two that are the
 * program's, are blocked, a bit each. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
enum { FAULTS = sizeof faults / sizeof *faults };

static tsr_status get_mask(void *arg, int64_t index, void *const *out_fields,
                           const tsr_worker *worker)
{
    (void)arg, (void)index, (void)worker;
    sigset_t blocked;
    uint32_t bits = 0;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int i = 0; i < FAULTS; i++)
        bits |= (uint32_t)sigismember(&blocked, faults[i]) << i;
    bits |= (uint32_t)sigismember(&blocked, SIGINT) << FAULTS;
    bits |= (uint32_t)sigismember(&blocked, SIGTERM) << (FAULTS + 1);
    *(uint32_t *)out_fields[0] = bits;
    return TSR_OK;
}

/* The program's signals are not for workers; their own faults meet the program's handlers. */
static void signals_of_workers(void **state)
{
    (void)state;
    loader_set set = of(4);
    tsr_loader *l;
    const tsr_batch *b;
    assert_int_equal(tsr_map_loader_create(
                         NULL, TSR_MAP_DATASET(.len = loader_set_len, .get = get_mask, .arg = &set),
                         TSR_MAP_LOADER_OPTS(.nfields = 1, .field_bytes = {4}, .batch_size = 2,
                                             .num_workers = 2),
                         &l),
                     TSR_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
        for (int row = 0; row < 2; row++)
            assert_int_equal(((const uint32_t *)b->data[0])[row], 3u << FAULTS);
    }
    tsr_loader_destroy(l);
}

/* --- order and contents ----------------------------------------------------------------------- */

/* The batches are the random sampler's, cut, in every epoch, whatever the workers. */
static void any_number_of_workers(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 5; workers++)
        for (int drop = 0; drop < 2; drop++)
            for (int64_t batch = 1; batch < 50; batch = 2 * batch + 1) {
                loader_set set = of(29);
                tsr_generator *ours, *mine;
                assert_int_equal(tsr_generator_create(NULL, 4, &ours), TSR_OK);
                assert_int_equal(tsr_generator_create(NULL, 4, &mine), TSR_OK);
                tsr_loader *l =
                    MAKE(&set, .batch_size = batch, .shuffle = true, .drop_last = drop,
                         .num_workers = workers, .prefetch_factor = workers % 3 ? workers % 3 : -1,
                         .generator = mine);
                int64_t order[29], count = drop ? 29 / batch : (29 + batch - 1) / batch;
                assert_int_equal(tsr_loader_batches(l), count);
                const tsr_batch *b;
                for (int64_t epoch = 0; epoch < 3; epoch++) {
                    uint64_t base = (uint64_t)tsr_generator_random(ours);
                    assert_int_equal(tsr_generator_randperm(ours, 29, order), TSR_OK);
                    tsr_generator_randperm(ours, 29, (int64_t[29]){0}); /* see RandomSampler */
                    for (int64_t i = 0; i < count; i++) {
                        assert_int_equal(tsr_loader_position(l), i);
                        assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
                        assert_int_equal(b->number, i);
                        assert_int_equal(b->epoch, epoch);
                        int64_t left = 29 - i * batch;
                        assert_int_equal(b->rows, left < batch ? left : batch);
                        assert_memory_equal(b->indices, order + i * batch,
                                            (size_t)b->rows * sizeof *order);
                        assert_true(loader_batch_is_right(b));
                        const loader_sample *s = b->data[0];
                        assert_int_equal(s->id, workers ? i % workers : 0);
                        assert_int_equal(s->count, workers);
                        assert_true(s->seed == base + (uint64_t)s->id);
                    }
                    assert_int_equal(tsr_loader_epoch(l), epoch);
                    assert_int_equal(tsr_loader_next(l, &b), TSR_END);
                    assert_int_equal(tsr_loader_epoch(l), epoch + 1);
                }
                tsr_loader_destroy(l);
                tsr_generator_destroy(ours);
                tsr_generator_destroy(mine);
            }
}

static void nothing_to_load(void **state)
{
    (void)state;
    for (int workers = 0; workers < 3; workers++) {
        loader_set set = of(0);
        tsr_loader *l = MAKE(&set, .shuffle = workers == 1, .num_workers = workers);
        const tsr_batch *b;
        assert_int_equal(tsr_loader_batches(l), 0);
        for (int epoch = 0; epoch < 3; epoch++)
            assert_int_equal(tsr_loader_next(l, &b), TSR_END);
        tsr_loader_destroy(l);
        set.n = 3; /* fewer than a batch, dropped */
        l = MAKE(&set, .batch_size = 4, .drop_last = true, .num_workers = workers);
        assert_int_equal(tsr_loader_next(l, &b), TSR_END);
        tsr_loader_destroy(l);
    }
}

/* A batch is the caller's until the next call, while workers go on. */
static void a_batch_stays(void **state)
{
    (void)state;
    loader_set set = of(60);
    tsr_loader *l = MAKE(&set, .batch_size = 2, .num_workers = 3, .prefetch_factor = 1);
    const tsr_batch *b;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
        for (int wait = 0; wait < 30000 && atomic_load(&set.got) < 2 * (i + 1 + 3); wait++)
            loader_nap();
        assert_int_equal(atomic_load(&set.got), 2 * (i + 1 + 3)); /* as far ahead as asked */
        assert_true(loader_batch_is_right(b));
        memset(b->data[1], 0, b->bytes[1]); /* ours to change */
    }
    tsr_loader_destroy(l);
}

/* Each rank's share, by a distributed sampler; set_epoch on the loader or on the sampler. */
static void with_a_distributed_sampler(void **state)
{
    (void)state;
    for (int by_loader = 0; by_loader < 2; by_loader++) {
        loader_set set = of(10);
        tsr_sampler *s, *same;
        const tsr_distributed_sampler_opts *o =
            TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = 4, .rank = 1);
        assert_int_equal(tsr_distributed_sampler(NULL, 10, o, &s), TSR_OK);
        assert_int_equal(tsr_distributed_sampler(NULL, 10, o, &same), TSR_OK);
        tsr_loader *l = MAKE(&set, .batch_size = 3, .sampler = s, .num_workers = 2);
        const tsr_batch *b;
        for (int epoch = 0; epoch < 6; epoch++) {
            assert_int_equal(by_loader ? tsr_loader_set_epoch(l, epoch)
                                       : tsr_sampler_set_epoch(s, epoch),
                             TSR_OK);
            assert_int_equal(tsr_sampler_set_epoch(same, epoch), TSR_OK);
            assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
            for (int i = 0; i < 3; i++) {
                int64_t index;
                assert_int_equal(tsr_sampler_next(same, &index), TSR_OK);
                assert_int_equal(b->indices[i], index);
            }
            assert_int_equal(tsr_loader_next(l, &b), TSR_END);
        }
        tsr_loader_destroy(l);
        tsr_sampler_destroy(s);
        tsr_sampler_destroy(same);
    }
}

/* --- errors ----------------------------------------------------------------------------------- */

static void errors_of_samples(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 3; workers++) {
        loader_set set = of(40);
        set.fail_every = 18; /* 17 and 35 */
        tsr_loader *l = MAKE(&set, .batch_size = 5, .num_workers = workers);
        for (int epoch = 0; epoch < 2; epoch++) {
            const tsr_batch *b = NULL;
            for (int i = 0; i < 8; i++) {
                tsr_status status = tsr_loader_next(l, &b);
                if (i == 3) {
                    assert_int_equal(status, TSR_ERR_FORMAT);
                    assert_string_equal(tsr_last_error(), "sample 17: bad pixel at 17");
                } else if (i == 7) {
                    must_say(status, TSR_ERR_FORMAT, "sample 35: bad pixel at 35");
                } else {
                    assert_int_equal(status, TSR_OK);
                    assert_int_equal(b->number, i);
                    assert_true(loader_batch_is_right(b));
                }
            }
            assert_int_equal(tsr_loader_next(l, &b), TSR_END);
        }
        const tsr_batch *b;
        set.fail_silently = true;
        for (int i = 0; i < 3; i++)
            assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
        tsr_set_error(TSR_ERR_STATE, "another thing");
        must_say(tsr_loader_next(l, &b), TSR_ERR_IO, "sample 17: TSR_ERR_IO (input/output failed)");
        assert_int_equal(tsr_loader_reset(l), TSR_OK);
        assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
        assert_int_equal(b->number, 0);
        assert_int_equal(b->epoch, 3);
        tsr_loader_destroy(l);
    }
}

static tsr_status wild_next(void *arg, int64_t *out_index)
{
    int *at = arg;
    static const int64_t indices[] = {4, 12, 3, -1, 0};
    if (*at == 3 || *at == 7)
        return ++*at, tsr_set_error(TSR_ERR_DEAD, "the list is gone");
    if (*at > 8)
        return TSR_END;
    *out_index = indices[(*at)++ % 5];
    return TSR_OK;
}

/* Indices beyond the data set, and a sampler that fails: after what came before it. */
static void errors_of_samplers(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers++) {
        loader_set set = of(12);
        int at = 0;
        tsr_sampler *s;
        assert_int_equal(
            tsr_custom_sampler(NULL, TSR_SAMPLER_CALLS(.next = wild_next, .arg = &at), &s), TSR_OK);
        tsr_loader *l = MAKE(&set, .sampler = s, .num_workers = workers);
        assert_int_equal(tsr_loader_batches(l), -1);
        const tsr_batch *b;
        assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
        must_say(tsr_loader_next(l, &b), TSR_ERR_INVALID,
                 "sample 12: the data set has samples 0 .. 11");
        assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
        must_say(tsr_loader_next(l, &b), TSR_ERR_DEAD, "the sampler: the list is gone");
        for (int i = 0; i < 3; i++) /* 0, 4, 12 */
            assert_int_equal(tsr_loader_next(l, &b), i < 2 ? TSR_OK : TSR_ERR_INVALID);
        assert_int_equal(tsr_loader_next(l, &b), TSR_ERR_DEAD);
        must_say(tsr_loader_next(l, &b), TSR_ERR_INVALID, "sample -1: ");
        assert_int_equal(tsr_loader_next(l, &b), TSR_END);
        tsr_loader_destroy(l);
        tsr_sampler_destroy(s);
    }
}

static void a_get_that_blocks(void **state)
{
    (void)state;
    loader_set set = of(40);
    atomic_store(&set.block_at, 13);
    tsr_loader *l = MAKE(&set, .batch_size = 4, .num_workers = 2, .timeout_s = 0.05);
    const tsr_batch *b;
    for (int i = 0; i < 3;) { /* a busy machine may time out here too */
        tsr_status status = tsr_loader_next(l, &b);
        assert_true(status == TSR_OK || status == TSR_ERR_TIMEOUT);
        i += status == TSR_OK;
    }
    for (int k = 0; k < 2; k++) {
        tsr_status status;
        do {
            status = tsr_loader_next(l, &b);
            assert_int_equal(status, TSR_ERR_TIMEOUT);
        } while (!strstr(tsr_last_error(), "sample 13"));
        must_say(status, TSR_ERR_TIMEOUT,
                 "batch 3 was not made in 0.05 s (timeout_s): worker 1 of "
                 "2 is at sample 13 (row 1 of 4) for ");
    }
    atomic_store(&set.block_at, -1);
    while (tsr_loader_next(l, &b) == TSR_ERR_TIMEOUT)
        ;
    assert_int_equal(b->number, 3);
    assert_true(loader_batch_is_right(b));
    tsr_loader_destroy(l);
}

/* Asked to stop, a long get can leave early: reset and destroy wait for it, and no longer. */
static void a_get_that_is_stopped(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        loader_set set = of(40);
        atomic_store(&set.block_at, 5);
        tsr_loader *l =
            MAKE(&set, .batch_size = 4, .num_workers = 2, .persistent_workers = how == 2);
        const tsr_batch *b;
        assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
        if (how) {
            assert_int_equal(tsr_loader_reset(l), TSR_OK);
            assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
            assert_int_equal(b->epoch, 1);
            assert_true(loader_batch_is_right(b));
        }
        tsr_loader_destroy(l);
        assert_true(atomic_load(&set.got) <= 4 * 4 * 2);
    }
}

static void option_errors(void **state)
{
    (void)state;
    loader_set set = of(4);
    tsr_loader *l = NULL;
    tsr_sampler *s;
    tsr_batch_sampler *bs;
    assert_int_equal(tsr_sequential_sampler(NULL, 4, &s), TSR_OK);
    assert_int_equal(tsr_batch_sampler_create(NULL, s, 2, false, &bs), TSR_OK);
#define BAD(text, ...)                                                                            \
    must_say(tsr_map_loader_create(NULL, LOADER_SET(&set), TSR_MAP_LOADER_OPTS(__VA_ARGS__), &l), \
             TSR_ERR_INVALID, text)
    BAD("has 0 bytes", .batch_size = 2);
    BAD("field 1 has 0 bytes", .nfields = 2, .field_bytes = {8});
    BAD("nfields 9; legal are 0 .. 8", .nfields = 9);
    BAD("exclude each other", .nfields = 1, .field_bytes = {8}, .sample_bytes = 8);
    BAD("batch_size should be a positive integer value, but got -1", LOADER_FIELDS,
        .batch_size = -1);
    BAD("sampler option is mutually exclusive with shuffle", LOADER_FIELDS, .sampler = s,
        .shuffle = true);
    BAD("batch_sampler option is mutually exclusive with batch_size", LOADER_FIELDS,
        .batch_sampler = bs, .batch_size = 2);
    BAD("batch_sampler option is mutually exclusive", LOADER_FIELDS, .batch_sampler = bs,
        .drop_last = true);
    BAD("num_workers -1", LOADER_FIELDS, .num_workers = -1);
    BAD("prefetch_factor -2", LOADER_FIELDS, .num_workers = 1, .prefetch_factor = -2);
    BAD("prefetch_factor 0", LOADER_FIELDS, .num_workers = 1, .prefetch_factor = 0);
    BAD("prefetch_factor needs num_workers", LOADER_FIELDS, .prefetch_factor = 3);
    BAD("persistent_workers needs num_workers", LOADER_FIELDS, .persistent_workers = true);
    BAD("timeout_s needs num_workers", LOADER_FIELDS, .timeout_s = 1);
    BAD("timeout_s -1", LOADER_FIELDS, .timeout_s = -1, .num_workers = 1);
    BAD("host_alloc and host_free", LOADER_FIELDS, .host_alloc = (void *(*)(void *, size_t))1);
    BAD("release without a collate", LOADER_FIELDS,
        .release = (void (*)(void *, int64_t, void *const *))1);
    must_say(tsr_map_loader_create(NULL, TSR_MAP_DATASET(.len = loader_set_len),
                                   TSR_MAP_LOADER_OPTS(LOADER_FIELDS), &l),
             TSR_ERR_INVALID, "no function get");
    must_say(tsr_map_loader_create(NULL, NULL, NULL, &l), TSR_ERR_INVALID, "NULL");
    set.n = -5;
    BAD("has -5 samples", LOADER_FIELDS);
    assert_null(l);
    assert_int_equal(tsr_loader_next(NULL, NULL), TSR_ERR_INVALID);
    tsr_loader_destroy(NULL);
    tsr_batch_sampler_destroy(bs);
    tsr_sampler_destroy(s);
}

/* --- a plan's feed ---------------------------------------------------------------------------- */

static tsr_status get_row(void *arg, int64_t index, void *const *out_fields,
                          const tsr_worker *worker)
{
    (void)arg;
    (void)worker;
    for (int i = 0; i < 4; i++)
        ((float *)out_fields[0])[i] = (float)(10 * index + i);
    return TSR_OK;
}

static tsr_status feed(tsr_world *w, void *arg)
{
    tsr_loader *l = NULL;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(3, 4), p, TSR_B);
    tsr_output(g, "sum", tsr_sum(x, TSR_ALL_AXES, false), p, TSR_B);
    tsr_plan *plan = NULL;
    tsr_status status = tsr_compile(g, &plan);
    if (status == TSR_OK)
        status = tsr_map_loader_create(
            w, TSR_MAP_DATASET(.len = loader_set_len, .get = get_row, .arg = arg),
            TSR_MAP_LOADER_OPTS(.sample_bytes = 16, .batch_size = 3, .num_workers = 2), &l);
    const tsr_batch *b;
    double sum, want = 0;
    while (status == TSR_OK && (status = tsr_loader_next(l, &b)) == TSR_OK) {
        status = tsr_feed(plan, "x", b->data[0], b->bytes[0]);
        if (status == TSR_OK)
            status = tsr_run(plan);
        if (status == TSR_OK)
            status = tsr_fetch_scalar(plan, "sum", &sum);
        want = 120 * (double)(3 * b->number + 1) + 18;
        if (status == TSR_OK && sum != want)
            return tsr_set_error(TSR_ERR_INTERNAL, "%g, not %g", sum, want);
    }
    return status == TSR_END && want == 120 * 10 + 18 ? TSR_OK : TSR_ERR_INTERNAL;
}

/* By pointer; the loader, with threads at work, goes with its world. */
static void feeding_a_plan(void **state)
{
    (void)state;
    loader_set set = of(12);
    tsr_status status = tsr_spawn(1, feed, &set);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_workers), cmocka_unit_test(nothing_to_load),
        cmocka_unit_test(a_batch_stays),         cmocka_unit_test(with_a_distributed_sampler),
        cmocka_unit_test(errors_of_samples),     cmocka_unit_test(errors_of_samplers),
        cmocka_unit_test(a_get_that_blocks),     cmocka_unit_test(a_get_that_is_stopped),
        cmocka_unit_test(signals_of_workers),    cmocka_unit_test(option_errors),
        cmocka_unit_test(feeding_a_plan),
    };
    return cmocka_run_group_tests_name("map_loader", tests, NULL, NULL);
}
