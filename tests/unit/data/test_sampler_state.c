/* SPDX-License-Identifier: Apache-2.0 */
/* Passes, epochs, positions and states of every kind of sampler, and of batches: going anywhere and
 * on must give what a sampler that never left gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/live.h"
#include "src/data/sampler/index_sampler.h"

static struct tsr_world world = {.nranks = 1, .threads = 1};

static int tear_down(void **state)
{
    (void)state;
    tsri_world_destroy_owned(&world);
    return 0;
}

static void must_say(tsr_status status, tsr_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(tsr_last_error(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, tsr_last_error());
}

/* --- all kinds -------------------------------------------------------------------------------- */

enum { MOST = 130, PASSES = 4 };

/* A sampler of the user's: `len` numbers from 100 * epoch on. */
typedef struct counter {
    int64_t len, at, epoch, fail_at;
} counter;

static int64_t counter_count(void *arg)
{
    return ((counter *)arg)->len;
}

static tsr_status counter_begin(void *arg, int64_t epoch)
{
    counter *c = arg;
    c->at = 0;
    c->epoch = epoch;
    return TSR_OK;
}

static tsr_status counter_next(void *arg, int64_t *out_index)
{
    counter *c = arg;
    if (c->at == c->fail_at)
        return tsr_set_error(TSR_ERR_IO, "no more of it");
    if (c->at == c->len)
        return TSR_END;
    *out_index = 100 * c->epoch + c->at++;
    return TSR_OK;
}

typedef struct kind {
    const char *name;
    bool is_driven;   /* by a generator of the user's */
    bool keeps_order; /* whatever the pass */
    bool keeps_epoch;
} kind;

static const kind kinds[] = {
    {.name = "sequential", .keeps_order = true},
    {.name = "random"},
    {.name = "random, driven", .is_driven = true},
    {.name = "random, more than all"},
    {.name = "random, more than all, driven", .is_driven = true},
    {.name = "replacement"},
    {.name = "replacement, driven", .is_driven = true},
    {.name = "subset"},
    {.name = "subset, driven", .is_driven = true},
    {.name = "weighted"},
    {.name = "weighted, driven", .is_driven = true},
    {.name = "distributed", .keeps_order = true, .keeps_epoch = true},
    {.name = "distributed over random"},
    {.name = "custom"},
    {.name = "custom without a count"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static counter counters[2];

static tsr_sampler *make(int k, tsr_generator *given)
{
    tsr_sampler *s = NULL, *below;
    tsr_generator *g = kinds[k].is_driven ? given : NULL;
    static const int64_t indices[] = {5, 3, 8, 13, 21, 34, 55};
    static const double weights[] = {1, 2, 0, 4};
    const tsr_sampler_calls calls = {.size = sizeof calls,
                                     .count = k == 13 ? counter_count : NULL,
                                     .begin = counter_begin,
                                     .next = counter_next,
                                     .arg = &counters[k == 14]};
    tsr_status status = TSR_ERR_INTERNAL;
    if (k == 0)
        status = tsr_sequential_sampler(&world, 11, &s);
    else if (k <= 2)
        status =
            tsr_random_sampler(&world, 12, TSR_RANDOM_SAMPLER_OPTS(.generator = g, .seed = 3), &s);
    else if (k <= 4)
        status = tsr_random_sampler(
            &world, 12, TSR_RANDOM_SAMPLER_OPTS(.generator = g, .seed = 3, .num_samples = 30), &s);
    else if (k <= 6)
        status = tsr_random_sampler(
            &world, 12,
            TSR_RANDOM_SAMPLER_OPTS(.generator = g, .replacement = true, .num_samples = 100), &s);
    else if (k <= 8)
        status = tsr_subset_random_sampler(&world, indices, 7,
                                           TSR_SUBSET_RANDOM_SAMPLER_OPTS(.generator = g), &s);
    else if (k <= 10)
        status = tsr_weighted_random_sampler(
            &world, weights, 4, TSR_WEIGHTED_RANDOM_SAMPLER_OPTS(.generator = g, .num_samples = 40),
            &s);
    else if (k == 11)
        status = tsr_distributed_sampler(
            &world, 31, TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = 3, .rank = 1), &s);
    else if (k == 12) {
        assert_int_equal(tsr_random_sampler(&world, 20, NULL, &below), TSR_OK);
        status = tsr_distributed_sampler(
            &world, 20, TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = 3, .rank = 2, .over = below), &s);
    } else {
        counters[k == 14] = (counter){.len = 9, .fail_at = -1};
        status = tsr_custom_sampler(&world, &calls, &s);
    }
    assert_int_equal(status, TSR_OK);
    return s;
}

/* What PASSES passes give. */
typedef struct record {
    int64_t count, index[PASSES][MOST];
} record;

static record records[KINDS];

static tsr_generator *generator(void)
{
    tsr_generator *g;
    assert_int_equal(tsr_generator_create(&world, 77, &g), TSR_OK);
    return g;
}

static void record_all(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        tsr_generator *g = generator();
        tsr_sampler *s = make(k, g);
        record *r = &records[k];
        for (int pass = 0; pass < PASSES; pass++) {
            assert_int_equal(tsr_sampler_epoch(s), kinds[k].keeps_epoch ? 0 : pass);
            int64_t n = 0;
            tsr_status status;
            while (n < MOST && (status = tsr_sampler_next(s, &r->index[pass][n])) == TSR_OK)
                n++;
            assert_int_equal(status, TSR_END);
            assert_true(pass == 0 || n == r->count);
            r->count = n;
            bool same = !memcmp(r->index[pass], r->index[0], (size_t)n * sizeof *r->index[0]);
            assert_int_equal(same, pass == 0 || kinds[k].keeps_order);
        }
        assert_int_equal(tsr_sampler_count(s), k == 14 ? -1 : r->count);
        tsr_sampler_destroy(s);
    }
}

static void follows(tsr_sampler *s, int k, int pass, int64_t position)
{
    const record *r = &records[k];
    int64_t index;
    for (int64_t i = position; i < r->count; i++) {
        assert_int_equal(tsr_sampler_position(s), i);
        tsr_status status = tsr_sampler_next(s, &index);
        if (status != TSR_OK || index != r->index[pass][i])
            fail_msg("%s: pass %d, position %d: %d, not %d", kinds[k].name, pass, (int)i,
                     (int)index, (int)r->index[pass][i]);
    }
    assert_int_equal(tsr_sampler_next(s, &index), TSR_END);
}

/* From anywhere in a pass to anywhere in it, and into the next pass. */
static void positions(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        int64_t count = records[k].count, index;
        for (int64_t from = 0; from <= count; from += 1 + count / 9)
            for (int64_t to = 0; to <= count; to += 1 + count / 11) {
                tsr_sampler *s = make(k, generator());
                for (int64_t i = 0; i < from; i++)
                    assert_int_equal(tsr_sampler_next(s, &index), TSR_OK);
                assert_int_equal(tsr_sampler_set_position(s, to), TSR_OK);
                follows(s, k, 0, to);
                follows(s, k, 1, 0);
                tsr_sampler_destroy(s);
            }
        tsr_sampler *s = make(k, generator());
        must_say(tsr_sampler_set_position(s, -1), TSR_ERR_INVALID, "-1 is outside the pass");
        if (k == 14)
            must_say(tsr_sampler_set_position(s, count + 1), TSR_ERR_INVALID, "ends before 10");
        else
            must_say(tsr_sampler_set_position(s, count + 1), TSR_ERR_INVALID, "outside the pass");
    }
}

/* A state taken anywhere, given to a new sampler that has gone elsewhere. */
static void states(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        int64_t count = records[k].count, index;
        for (int pass = 0; pass < 3; pass++)
            for (int64_t at = 0; at <= count; at += 1 + count / 9) {
                tsr_sampler *s = make(k, generator());
                for (int64_t i = 0; i < pass * (count + 1) + at; i++)
                    assert_in_range(tsr_sampler_next(s, &index), TSR_OK, TSR_END);
                tsr_sampler_state kept;
                assert_int_equal(tsr_sampler_get_state(s, &kept), TSR_OK);
                tsr_sampler_destroy(s);
                s = make(k, generator());
                for (int64_t i = 0; i < count / 2; i++)
                    assert_int_equal(tsr_sampler_next(s, &index), TSR_OK);
                assert_int_equal(tsr_sampler_set_state(s, &kept), TSR_OK);
                follows(s, k, pass, at);
                follows(s, k, pass + 1, 0);
                tsr_sampler_destroy(s);
            }
    }
}

static void epochs(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        tsr_sampler *s = make(k, generator());
        int64_t index;
        assert_int_equal(tsr_sampler_next(s, &index), TSR_OK);
        if (kinds[k].is_driven) {
            must_say(tsr_sampler_set_epoch(s, 1), TSR_ERR_STATE, "a generator of yours");
            continue;
        }
        static const int order[] = {2, 0, 3, 1, 1};
        for (int i = 0; i < 5; i++) {
            if (kinds[k].keeps_epoch && order[i])
                continue; /* other orders: see test_sampler.c */
            assert_int_equal(tsr_sampler_set_epoch(s, order[i]), TSR_OK);
            assert_int_equal(tsr_sampler_epoch(s), order[i]);
            follows(s, k, order[i], 0);
        }
        must_say(tsr_sampler_set_epoch(s, -1), TSR_ERR_INVALID, "negative");
    }
    tsr_sampler *s = make(7, NULL);
    must_say(tsr_sampler_set_epoch(s, INT64_MAX), TSR_ERR_INVALID, "at most 2^32 draws");
    /* reset: another pass, as iter() */
    for (int k = 0; k < KINDS; k++) {
        s = make(k, generator());
        int64_t index;
        assert_int_equal(tsr_sampler_reset(s), TSR_OK); /* none has begun */
        assert_int_equal(tsr_sampler_next(s, &index), TSR_OK);
        assert_int_equal(tsr_sampler_reset(s), TSR_OK);
        if (!kinds[k].is_driven) /* the others drew less than a whole pass */
            follows(s, k, 1, 0);
    }
}

static void state_errors(void **state)
{
    (void)state;
    tsr_sampler *a = make(1, NULL), *b = make(0, NULL);
    tsr_sampler_state kept;
    assert_int_equal(tsr_sampler_get_state(a, &kept), TSR_OK);
    must_say(tsr_sampler_set_state(b, &kept), TSR_ERR_INVALID, "no state of a sequential sampler");
    b = make(3, NULL);
    must_say(tsr_sampler_set_state(b, &kept), TSR_ERR_INVALID,
             "position 0 of 12 indices in epoch 0, for a sampler of 30 indices");
    kept.position = 13;
    must_say(tsr_sampler_set_state(a, &kept), TSR_ERR_INVALID, "position 13 of 12");
    kept.position = 0;
    kept.generator[12] = 9;
    must_say(tsr_sampler_set_state(a, &kept), TSR_ERR_FORMAT, "mt19937");
}

static void option_errors(void **state)
{
    (void)state;
    tsr_sampler *s = NULL;
    const double bad[] = {1, -1}, none[] = {0, 0}, good[] = {1};
    must_say(tsr_sequential_sampler(&world, -3, &s), TSR_ERR_INVALID, "-3 samples");
    must_say(tsr_random_sampler(&world, 3, TSR_RANDOM_SAMPLER_OPTS(.num_samples = 0), &s),
             TSR_ERR_INVALID, "num_samples should be a positive integer value, but got 0");
    must_say(tsr_random_sampler(&world, 0, TSR_RANDOM_SAMPLER_OPTS(.num_samples = 2), &s),
             TSR_ERR_INVALID, "can't be drawn from none");
    must_say(tsr_random_sampler(&world, 0, &(tsr_random_sampler_opts){0}, &s), TSR_ERR_INVALID,
             "size is 0");
    must_say(tsr_subset_random_sampler(&world, NULL, 2, NULL, &s), TSR_ERR_INVALID, "NULL");
    must_say(tsr_weighted_random_sampler(&world, bad, 2, NULL, &s), TSR_ERR_INVALID,
             "weight 1 is -1");
    must_say(tsr_weighted_random_sampler(&world, none, 2, NULL, &s), TSR_ERR_INVALID, "sum is 0");
    must_say(tsr_weighted_random_sampler(&world, none, 0, NULL, &s), TSR_ERR_INVALID, "0 weights");
    must_say(tsr_weighted_random_sampler(
                 &world, good, 1, TSR_WEIGHTED_RANDOM_SAMPLER_OPTS(.replacement = false), &s),
             TSR_ERR_UNSUPPORTED, "without replacement");
    must_say(tsr_custom_sampler(&world, TSR_SAMPLER_CALLS(.next = NULL), &s), TSR_ERR_INVALID,
             "no function `next`");
    assert_null(s);
    assert_int_equal(tsr_random_sampler(&world, 0, NULL, &s), TSR_OK);
    int64_t index;
    assert_int_equal(tsr_sampler_next(s, &index), TSR_END);
    assert_int_equal(tsr_sampler_next(NULL, &index), TSR_ERR_INVALID);
    tsr_sampler_destroy(NULL);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Batches are the pass, cut; also after going to any batch of any pass. */
static void batches(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int64_t size = 1; size < 40; size += 1 + size / 2)
            for (int drop = 0; drop < 2; drop++) {
                const record *r = &records[k];
                int64_t count = drop ? r->count / size : (r->count + size - 1) / size;
                tsr_sampler *s = make(k, generator());
                tsr_batch_sampler *b;
                assert_int_equal(tsr_batch_sampler_create(&world, s, size, drop, &b), TSR_OK);
                assert_int_equal(tsr_batch_sampler_count(b), k == 14 ? -1 : count);
                const int64_t *indices;
                int64_t rows;
                tsr_sampler_state kept[PASSES];
                int64_t kept_at[PASSES];
                for (int pass = 0; pass < PASSES; pass++) {
                    kept_at[pass] = (pass + size) % (count + 1);
                    for (int64_t i = 0;; i++) {
                        assert_int_equal(tsr_batch_sampler_position(b), i);
                        if (i == kept_at[pass])
                            assert_int_equal(tsr_batch_sampler_get_state(b, &kept[pass]), TSR_OK);
                        if (i == count)
                            break;
                        assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_OK);
                        int64_t left = r->count - i * size;
                        assert_int_equal(rows, left < size ? left : size);
                        assert_memory_equal(indices, r->index[pass] + i * size,
                                            (size_t)rows * sizeof *indices);
                    }
                    assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_END);
                }
                for (int pass = PASSES - 1; pass >= 0; pass--) {
                    assert_int_equal(tsr_batch_sampler_set_state(b, &kept[pass]), TSR_OK);
                    for (int64_t to = kept_at[pass]; to < count; to += 3) {
                        assert_int_equal(tsr_batch_sampler_set_position(b, to), TSR_OK);
                        assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_OK);
                        assert_memory_equal(indices, r->index[pass] + to * size,
                                            (size_t)rows * sizeof *indices);
                    }
                }
                tsr_batch_sampler_destroy(b);
                tsr_sampler_destroy(s);
            }
}

/* Batches of 1, 2, 3, ... up to `len`, which is at most 5. */
static tsr_status growing_next(void *arg, int64_t *out_indices, int64_t *out_rows)
{
    counter *c = arg;
    if (c->at == c->len)
        return TSR_END;
    *out_rows = c->fail_at == c->at ? 6 : ++c->at;
    for (int64_t i = 0; i < *out_rows && i < 5; i++)
        out_indices[i] = 10 * c->epoch + i;
    return TSR_OK;
}

static void custom_batches(void **state)
{
    (void)state;
    counter c = {.len = 4, .fail_at = -1};
    tsr_batch_sampler *b;
    assert_int_equal(
        tsr_custom_batch_sampler(&world,
                                 TSR_BATCH_SAMPLER_CALLS(.max_rows = 5, .begin = counter_begin,
                                                         .next = growing_next, .arg = &c),
                                 &b),
        TSR_OK);
    assert_int_equal(tsr_batch_sampler_count(b), -1);
    const int64_t *indices;
    int64_t rows;
    tsr_sampler_state kept;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 4; i++) {
            if (pass && i == 2)
                assert_int_equal(tsr_batch_sampler_get_state(b, &kept), TSR_OK);
            assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_OK);
            assert_int_equal(rows, i + 1);
            assert_int_equal(indices[i], 10 * pass + i);
        }
        assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_END);
    }
    assert_int_equal(tsr_batch_sampler_set_state(b, &kept), TSR_OK);
    assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_OK);
    assert_int_equal(rows, 3);
    assert_int_equal(indices[2], 12);
    assert_int_equal(tsr_batch_sampler_set_position(b, 1), TSR_OK);
    assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_OK);
    assert_int_equal(rows, 2);
    must_say(tsr_batch_sampler_set_position(b, 9), TSR_ERR_INVALID, "ends before batch 9");
    assert_int_equal(tsr_batch_sampler_set_epoch(b, 7), TSR_OK);
    c.fail_at = 1;
    assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_OK);
    assert_int_equal(indices[0], 70);
    must_say(tsr_batch_sampler_next(b, &indices, &rows), TSR_ERR_INVALID, "wrote 6 indices");
    must_say(tsr_custom_batch_sampler(&world, TSR_BATCH_SAMPLER_CALLS(.next = growing_next), &b),
             TSR_ERR_INVALID, "max_rows should be a positive integer value, but got 0");
    tsr_sampler *s = make(13, NULL);
    must_say(tsr_batch_sampler_create(&world, s, 0, false, &b), TSR_ERR_INVALID,
             "batch_size should be a positive integer value, but got 0");
    counters[0].fail_at = 5;
    assert_int_equal(tsr_batch_sampler_create(&world, s, 4, false, &b), TSR_OK);
    assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_OK);
    must_say(tsr_batch_sampler_next(b, &indices, &rows), TSR_ERR_IO, "no more of it");
}

/* Where nobody knows how long a pass is, any position may be asked for. */
static void far_positions(void **state)
{
    (void)state;
    tsr_sampler *s = make(14, NULL);
    tsr_batch_sampler *b;
    const int64_t *indices;
    int64_t rows;
    assert_int_equal(tsr_batch_sampler_create(&world, s, 4, false, &b), TSR_OK);
    assert_int_equal(tsr_batch_sampler_count(b), -1);
    must_say(tsr_batch_sampler_set_position(b, -1), TSR_ERR_INVALID,
             "-1 is outside the pass; legal are 0 .. 2305843009213693951");
    must_say(tsr_batch_sampler_set_position(b, INT64_MAX / 4 + 1), TSR_ERR_INVALID,
             "2305843009213693952 is outside the pass");
    must_say(tsr_batch_sampler_set_position(b, INT64_MAX), TSR_ERR_INVALID, "outside the pass");
    must_say(tsr_batch_sampler_set_position(b, INT64_MAX / 4), TSR_ERR_INVALID, "ends before");
    assert_int_equal(tsr_batch_sampler_set_position(b, 2), TSR_OK);
    assert_int_equal(tsr_batch_sampler_next(b, &indices, &rows), TSR_OK);
    assert_int_equal(rows, 1);
}

static int64_t says_five(void *arg)
{
    (void)arg;
    return 5;
}

/* The sampler below a distributed one gives what it says, or it is an error. */
static void over_other_counts(void **state)
{
    (void)state;
    for (int len = 3; len <= 7; len++) {
        counter c = {.len = len, .fail_at = -1};
        tsr_sampler *below, *s;
        int64_t index;
        char text[100];
        assert_int_equal(
            tsr_custom_sampler(&world,
                               TSR_SAMPLER_CALLS(.count = says_five, .begin = counter_begin,
                                                 .next = counter_next, .arg = &c),
                               &below),
            TSR_OK);
        assert_int_equal(
            tsr_distributed_sampler(&world, 5,
                                    TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = 2, .over = below), &s),
            TSR_OK);
        tsr_status status = tsr_sampler_next(s, &index);
        snprintf(text, sizeof text, "gave %d indices, but says that it gives 5", len);
        if (len == 5)
            assert_int_equal(status, TSR_OK);
        else
            must_say(status, TSR_ERR_STATE, text);
    }
}

/* Every allocation of every maker fails once; nothing leaks, nothing is half-made. */
static void no_memory(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        bool enough = false;
        for (int64_t n = 1; !enough; n++) {
            assert_true(n < 10);
            struct tsr_world w = {.nranks = 1, .threads = 1, .mem.fail_countdown = n};
            assert_int_equal(tsri_live_add(NULL, &w, TSRI_LIVE_WORLD), TSR_OK);
            tsr_sampler *s = NULL;
            const double weights[] = {1, 2};
            const int64_t indices[] = {1, 2};
            tsr_status status = k % 5 == 0   ? tsr_random_sampler(&w, 5, NULL, &s)
                                : k % 5 == 1 ? tsr_subset_random_sampler(&w, indices, 2, NULL, &s)
                                : k % 5 == 2 ? tsr_weighted_random_sampler(&w, weights, 2, NULL, &s)
                                : k % 5 == 3
                                    ? tsr_distributed_sampler(
                                          &w, 5, TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = 2), &s)
                                    : tsr_sequential_sampler(&w, 5, &s);
            tsr_batch_sampler *b = NULL;
            if (status == TSR_OK)
                status = tsr_batch_sampler_create(&w, s, 2, false, &b);
            enough = status == TSR_OK;
            if (!enough)
                assert_int_equal(status, TSR_ERR_NO_MEMORY);
            tsri_world_destroy_owned(&w);
        }
    }
}

int main(void)
{
    if (tsri_live_add(NULL, &world, TSRI_LIVE_WORLD) != TSR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(record_all),    cmocka_unit_test(positions),
        cmocka_unit_test(states),        cmocka_unit_test(epochs),
        cmocka_unit_test(state_errors),  cmocka_unit_test(option_errors),
        cmocka_unit_test(batches),       cmocka_unit_test(custom_batches),
        cmocka_unit_test(far_positions), cmocka_unit_test(over_other_counts),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests_name("sampler_state", tests, NULL, tear_down);
}
