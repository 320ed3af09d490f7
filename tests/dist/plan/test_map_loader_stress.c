/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data loaders that are left at any moment: in mid-epoch, with full queues, with samples in work,
 * with samples and workers that fail. What is given is right, what was made is released, and under
 * the sanitizers nothing leaks or races.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sched.h>

#include <tessera/loader.h>
#include "tests/unit/data/loader_set.h"

enum { ROUNDS = 1000, STEPS = 40 };

static uint32_t random_bits = 1;

static int below(int n)
{
    random_bits = random_bits * 1664525u + 1013904223u;
    return (int)((random_bits >> 8) % (uint32_t)n);
}

/* A sample of this owns memory. */
static tsr_status get(void *arg, int64_t index, void *const *out_fields, const tsr_worker *worker)
{
    loader_set *set = arg;
    void *fields[2] = {out_fields[0], out_fields[1]};
    for (int64_t i = 0; i < index % 3; i++)
        sched_yield();
    tsr_status status = loader_set_get(set, index, fields, worker);
    if (status == TSR_OK) {
        int64_t *own = malloc(sizeof *own);
        *own = index;
        memcpy(out_fields[2], &own, sizeof own);
    }
    return status;
}

static void release(void *arg, int64_t index, void *const *fields)
{
    loader_set *set = arg;
    int64_t *own;
    memcpy(&own, fields[2], sizeof own);
    if (*own == index)
        atomic_fetch_add(&set->released, 1);
    free(own);
}

/* The first two fields, as they are. */
static tsr_status collate(void *arg, const tsr_samples *samples, tsr_batch_out *out,
                          const tsr_worker *worker)
{
    (void)arg;
    (void)worker;
    const size_t bytes[] = {sizeof(loader_sample), 3};
    for (int f = 0; f < 2; f++) {
        void *array = tsr_batch_array(out, f, (size_t)samples->rows * bytes[f]);
        if (!array)
            return TSR_ERR_NO_MEMORY;
        memcpy(array, samples->fields[f], (size_t)samples->rows * bytes[f]);
    }
    return TSR_OK;
}

static tsr_status init(void *arg, tsr_worker *worker)
{
    loader_set *set = arg;
    if (worker->seed % 11 == 0)
        return tsr_set_error(TSR_ERR_IO, "not today");
    worker->user = malloc(1);
    atomic_fetch_add(&set->inits, 1);
    return TSR_OK;
}

static void fini(void *arg, tsr_worker *worker)
{
    free(worker->user);
    atomic_fetch_add(&((loader_set *)arg)->exits, 1);
}

/* One call of some kind. */
static void step(tsr_loader *l, tsr_loader_state *state, bool *has_state)
{
    const tsr_batch *b;
    tsr_status status;
    switch (below(24)) {
    case 0:
        assert_int_equal(tsr_loader_reset(l), TSR_OK);
        break;
    case 1:
        assert_int_equal(tsr_loader_set_epoch(l, below(5)), TSR_OK);
        break;
    case 2:
        assert_int_equal(tsr_loader_get_state(l, state), TSR_OK);
        *has_state = true;
        break;
    case 3:
        if (*has_state)
            assert_int_equal(tsr_loader_set_state(l, state), TSR_OK);
        break;
    default:
        status = tsr_loader_next(l, &b);
        if (status == TSR_OK && !loader_batch_is_right(b))
            fail_msg("a batch is not what its indices say");
        if (status != TSR_OK && status != TSR_END && status != TSR_ERR_FORMAT &&
            status != TSR_ERR_IO && status != TSR_ERR_TIMEOUT)
            fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
    }
}

static void left_at_any_moment(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        loader_set set = {
            .n = below(60), .block_at = -1, .fail_every = below(3) ? 0 : 1 + below(30)};
        bool owns = below(2), with_init = below(2);
        int workers = below(5);
        tsr_map_loader_opts o = {
            .ranks = 1,
            .size = sizeof o,
            .nfields = owns ? 3 : 2,
            .field_bytes = {sizeof(loader_sample), 3, owns ? sizeof(void *) : 0},
            .batch_size = 1 + below(9),
            .shuffle = below(2),
            .drop_last = below(2),
            .seed = (uint64_t)below(1000),
            .num_workers = workers,
            .prefetch_factor = workers && below(4) ? 1 + below(3) : -1,
            .persistent_workers = workers && below(2),
            .timeout_s = workers && !below(4) ? 1e-5 : 0,
            .worker_init = with_init ? init : NULL,
            .worker_exit = with_init ? fini : NULL,
            .worker_arg = &set,
            .collate = owns ? collate : NULL,
            .release = owns ? release : NULL,
            .collate_arg = &set,
        };
        tsr_loader *l;
        assert_int_equal(
            tsr_map_loader_create(NULL,
                                  TSR_MAP_DATASET(.len = loader_set_len,
                                                  .get = owns ? get : loader_set_get, .arg = &set),
                                  &o, &l),
            TSR_OK);
        static tsr_loader_state kept;
        bool has_state = false;
        for (int i = below(STEPS); i > 0; i--)
            step(l, &kept, &has_state);
        if (!below(3))
            for (int i = 0; i < 20; i++) /* the queues fill */
                sched_yield();
        tsr_loader_destroy(l);
        assert_true(!owns || atomic_load(&set.got) == atomic_load(&set.released));
        assert_true(atomic_load(&set.inits) == atomic_load(&set.exits));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(left_at_any_moment)};
    return cmocka_run_group_tests_name("map_loader_stress", tests, NULL, NULL);
}
