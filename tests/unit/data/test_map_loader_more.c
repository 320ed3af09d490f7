/* SPDX-License-Identifier: Apache-2.0 */
/* Data loaders: collate functions, what workers keep, memory, epochs and checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/loader.h>
#include "loader_set.h"
#include "src/core/live.h"
#include "src/core/world.h"

static void must_say(tsr_status status, tsr_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(tsr_last_error(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, tsr_last_error());
}

static tsr_loader *make_of(const tsr_map_dataset *ds, const tsr_map_loader_opts *opts)
{
    tsr_loader *l = NULL;
    tsr_status status = tsr_map_loader_create(NULL, ds, opts, &l);
    if (status != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return l;
}

static loader_set of(int64_t n)
{
    return (loader_set){.n = n, .block_at = -1};
}

/* --- samples of any length -------------------------------------------------------------------- */

/* A sample that owns memory: `length` letters. */
typedef struct word {
    int64_t length;
    char *letters;
} word;

static tsr_status get_word(void *arg, int64_t index, void *const *out_fields,
                           const tsr_worker *worker)
{
    loader_set *set = arg;
    (void)worker;
    if (set->fail_every && index == set->fail_every)
        return tsr_set_error(TSR_ERR_IO, "no such word");
    word *w = out_fields[0];
    w->length = index % 7;
    w->letters = malloc((size_t)w->length + 1);
    memset(w->letters, 'a' + (int)index, (size_t)w->length);
    atomic_fetch_add(&set->got, 1);
    return TSR_OK;
}

static void release_word(void *arg, int64_t index, void *const *fields)
{
    loader_set *set = arg;
    const word *w = fields[0];
    if (w->length == index % 7)
        atomic_fetch_add(&set->released, 1);
    free(w->letters);
}

/* Array 0: the letters, padded with '.' to the longest; array 2: the lengths. */
static tsr_status collate_words(void *arg, const tsr_samples *samples, tsr_batch_out *out,
                                const tsr_worker *worker)
{
    (void)arg;
    (void)worker;
    const word *w = samples->fields[0];
    int64_t longest = 0;
    for (int64_t i = 0; i < samples->rows; i++)
        longest = w[i].length > longest ? w[i].length : longest;
    if (samples->indices[0] == 20)
        return tsr_set_error(TSR_ERR_SHAPE, "these don't go together");
    if (samples->indices[0] == 24)
        return tsr_batch_array(out, TSR_BATCH_MAX_FIELDS, 8) ? TSR_OK : TSR_ERR_INVALID;
    if (tsr_batch_array(out, 1, SIZE_MAX) || tsr_batch_array(out, 1, SIZE_MAX - 63))
        return TSR_ERR_INTERNAL;
    char *text = tsr_batch_array(out, 0, 1000); /* and then less: the last word counts */
    text = text ? tsr_batch_array(out, 0, (size_t)(samples->rows * longest)) : NULL;
    int64_t *lengths = tsr_batch_array(out, 2, (size_t)samples->rows * sizeof *lengths);
    if (!text || !lengths)
        return TSR_ERR_NO_MEMORY;
    memset(text, '.', (size_t)(samples->rows * longest));
    for (int64_t i = 0; i < samples->rows; i++) {
        memcpy(text + i * longest, w[i].letters, (size_t)w[i].length);
        lengths[i] = w[i].length;
    }
    return TSR_OK;
}

static void words(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 3; workers++) {
        loader_set set = of(26);
        set.fail_every = 14;
        tsr_loader *l =
            make_of(TSR_MAP_DATASET(.len = loader_set_len, .get = get_word, .arg = &set),
                    TSR_MAP_LOADER_OPTS(.sample_bytes = sizeof(word), .batch_size = 4,
                                        .collate = collate_words, .release = release_word,
                                        .collate_arg = &set, .num_workers = workers));
        const tsr_batch *b;
        for (int epoch = 0; epoch < 2; epoch++) {
            for (int i = 0; i < 7; i++) {
                tsr_status status = tsr_loader_next(l, &b);
                if (i == 3)
                    must_say(status, TSR_ERR_IO, "sample 14: no such word");
                else if (i == 5)
                    must_say(status, TSR_ERR_SHAPE, "batch 5: collate: these don't go together");
                else if (i == 6)
                    must_say(status, TSR_ERR_INVALID, "collate: tsr_batch_array: field 8");
                else
                    assert_int_equal(status, TSR_OK);
                if (i == 0) { /* of lengths 0, 1, 2, 3 */
                    assert_int_equal(b->nfields, 3);
                    assert_null(b->data[1]);
                    assert_int_equal(b->bytes[0], 12);
                    assert_memory_equal(b->data[0], "...b..cc.ddd", 12);
                    assert_int_equal(b->bytes[2], 32);
                    assert_int_equal(((int64_t *)b->data[2])[2], 2);
                }
            }
            assert_int_equal(tsr_loader_next(l, &b), TSR_END);
        }
        assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
        tsr_loader_destroy(l);
        assert_true(atomic_load(&set.got) == atomic_load(&set.released));
        assert_true(atomic_load(&set.got) >= 2 * (26 - 2));
    }
}

/* A collate function that reads its samples by itself. */
static tsr_status collate_alone(void *arg, const tsr_samples *samples, tsr_batch_out *out,
                                const tsr_worker *worker)
{
    (void)arg;
    (void)worker;
    int64_t *sum = tsr_batch_array(out, 0, sizeof *sum);
    if (!sum)
        return TSR_ERR_NO_MEMORY;
    *sum = 0;
    for (int64_t i = 0; i < samples->rows; i++)
        *sum += samples->indices[i];
    return TSR_OK;
}

static void without_get(void **state)
{
    (void)state;
    loader_set set = of(10);
    tsr_loader *l =
        make_of(TSR_MAP_DATASET(.len = loader_set_len, .arg = &set),
                TSR_MAP_LOADER_OPTS(.batch_size = 5, .collate = collate_alone, .num_workers = 1));
    const tsr_batch *b;
    assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
    assert_int_equal(*(int64_t *)b->data[0], 10);
    assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
    assert_int_equal(*(int64_t *)b->data[0], 35);
    tsr_loader_destroy(l);
}

/* --- workers ---------------------------------------------------------------------------------- */

static tsr_status init(void *arg, tsr_worker *worker)
{
    loader_set *set = arg;
    if (set->fail_every && worker->id == set->fail_every - 1)
        return tsr_set_error(TSR_ERR_IO, "no file handle");
    worker->user = malloc(8);
    atomic_fetch_add(&set->inits, 1);
    return TSR_OK;
}

static void fini(void *arg, tsr_worker *worker)
{
    loader_set *set = arg;
    free(worker->user);
    atomic_fetch_add(&set->exits, 1);
}

static tsr_status get_with_user(void *arg, int64_t index, void *const *out_fields,
                                const tsr_worker *worker)
{
    (void)arg;
    (void)index;
    memcpy(worker->user, &index, 8); /* a fault where there is none */
    memcpy(out_fields[0], worker->user, 8);
    return TSR_OK;
}

static void workers_come_and_go(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 3; workers++)
        for (int persistent = 0; persistent <= (workers > 0); persistent++) {
            loader_set set = of(20);
            tsr_loader *l =
                make_of(TSR_MAP_DATASET(.len = loader_set_len, .get = get_with_user, .arg = &set),
                        TSR_MAP_LOADER_OPTS(.sample_bytes = 8, .num_workers = workers,
                                            .persistent_workers = persistent, .worker_init = init,
                                            .worker_exit = fini, .worker_arg = &set));
            const tsr_batch *b;
            int each = workers ? workers : 1;
            for (int epoch = 0; epoch < 3; epoch++) {
                for (int i = 0; i < 20; i++) {
                    assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
                    assert_int_equal(*(int64_t *)b->data[0], i);
                }
                assert_int_equal(tsr_loader_next(l, &b), TSR_END);
                assert_int_equal(atomic_load(&set.inits), persistent ? each : each * (epoch + 1));
                assert_int_equal(atomic_load(&set.exits), persistent ? 0 : each * (epoch + 1));
            }
            tsr_loader_destroy(l);
            assert_true(atomic_load(&set.inits) == atomic_load(&set.exits));
        }
}

static void workers_that_fail_to_start(void **state)
{
    (void)state;
    loader_set set = of(12);
    set.fail_every = 2; /* worker 1 */
    tsr_loader *l =
        make_of(TSR_MAP_DATASET(.len = loader_set_len, .get = get_with_user, .arg = &set),
                TSR_MAP_LOADER_OPTS(.sample_bytes = 8, .num_workers = 3, .worker_init = init,
                                    .worker_exit = fini, .worker_arg = &set));
    const tsr_batch *b;
    for (int i = 0; i < 12; i++) {
        tsr_status status = tsr_loader_next(l, &b);
        if (i % 3 == 1)
            must_say(status, TSR_ERR_IO, "worker 1: worker_init: no file handle");
        else
            assert_int_equal(status, TSR_OK);
    }
    tsr_loader_destroy(l);
    assert_int_equal(atomic_load(&set.inits), 2);
    assert_int_equal(atomic_load(&set.exits), 2);
}

/* The base seed: one a run with persistent workers, else one an epoch. */
static void base_seeds(void **state)
{
    (void)state;
    for (int persistent = 0; persistent < 2; persistent++) {
        loader_set set = of(4);
        tsr_generator *g;
        assert_int_equal(tsr_generator_create(NULL, 12, &g), TSR_OK);
        uint64_t base = (uint64_t)tsr_generator_random(g);
        tsr_loader *l = make_of(LOADER_SET(&set),
                                TSR_MAP_LOADER_OPTS(LOADER_FIELDS, .num_workers = 2, .seed = 12,
                                                    .persistent_workers = persistent));
        const tsr_batch *b;
        for (int epoch = 0; epoch < 3; epoch++) {
            for (int i = 0; i < 4; i++) {
                assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
                const loader_sample *s = b->data[0];
                assert_true(s->seed == base + (uint64_t)(i % 2));
            }
            assert_int_equal(tsr_loader_next(l, &b), TSR_END);
            if (!persistent)
                base = (uint64_t)tsr_generator_random(g);
        }
        tsr_loader_destroy(l);
        tsr_generator_destroy(g);
    }
}

/* --- memory ----------------------------------------------------------------------------------- */

static atomic_llong held, budget;

static void *host_alloc(void *arg, size_t bytes)
{
    (void)arg;
    if (atomic_fetch_sub(&budget, 1) <= 0)
        return NULL;
    atomic_fetch_add(&held, (long long)bytes);
    return aligned_alloc(64, bytes);
}

static void host_free(void *arg, void *memory, size_t bytes)
{
    (void)arg;
    atomic_fetch_sub(&held, (long long)bytes);
    free(memory);
}

static void memory_of_the_users(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers++)
        for (long long allowed = 0; allowed < 12; allowed++) {
            loader_set set = of(30);
            atomic_store(&budget, allowed);
            tsr_loader *l =
                make_of(LOADER_SET(&set),
                        TSR_MAP_LOADER_OPTS(LOADER_FIELDS, .batch_size = 4, .pin_memory = true,
                                            .num_workers = workers, .host_alloc = host_alloc,
                                            .host_free = host_free));
            const tsr_batch *b;
            int bad = 0;
            for (int i = 0; i < 8; i++) {
                tsr_status status = tsr_loader_next(l, &b);
                if (status == TSR_OK)
                    assert_true(loader_batch_is_right(b));
                else
                    must_say(status, TSR_ERR_NO_MEMORY, "host_alloc has no ");
                bad += status != TSR_OK;
            }
            assert_int_equal(tsr_loader_next(l, &b), TSR_END);
            int slots = workers ? 2 * workers + 1 : 1;
            assert_int_equal(bad == 0, allowed >= 2 * slots);
            tsr_loader_destroy(l);
            assert_int_equal(atomic_load(&held), 0);
        }
    /* Without host_alloc: whole pages. */
    loader_set set = of(3);
    tsr_loader *l = make_of(
        LOADER_SET(&set), TSR_MAP_LOADER_OPTS(LOADER_FIELDS, .batch_size = 3, .pin_memory = true));
    const tsr_batch *b;
    assert_int_equal(tsr_loader_next(l, &b), TSR_OK);
    assert_int_equal((uintptr_t)b->data[0] % 4096, 0);
    assert_int_equal((uintptr_t)b->data[1] % 4096, 0);
    tsr_loader_destroy(l);
}

/* Every allocation on the caller's thread fails once. */
static void no_memory(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers++) {
        bool enough = false;
        for (int64_t n = 1; !enough; n++) {
            assert_true(n < 60);
            struct tsr_world w = {.nranks = 1, .threads = 1, .mem.fail_countdown = n};
            assert_int_equal(tsri_live_add(NULL, &w, TSRI_LIVE_WORLD), TSR_OK);
            loader_set set = of(17);
            tsr_loader *l = NULL;
            tsr_status status =
                tsr_map_loader_create(&w, LOADER_SET(&set),
                                      TSR_MAP_LOADER_OPTS(LOADER_FIELDS, .batch_size = 3,
                                                          .shuffle = true, .num_workers = workers),
                                      &l);
            const tsr_batch *b;
            int good = 0, bad = 0;
            while (l && status != TSR_END) {
                status = tsr_loader_next(l, &b);
                good += status == TSR_OK && loader_batch_is_right(b);
                bad += status == TSR_ERR_NO_MEMORY;
            }
            if (l) {
                assert_int_equal(good + bad, 6);
                assert_true(bad <= 1);
            } else {
                assert_int_equal(status, TSR_ERR_NO_MEMORY);
            }
            enough = good == 6;
            tsri_world_destroy_owned(&w);
        }
    }
}

/* --- epochs and checkpoints ------------------------------------------------------------------- */

enum { N = 23, EPOCHS = 4, MOST = 24 };

typedef struct source {
    const char *name;
    tsr_generator *generator;
    tsr_sampler *sampler;
    tsr_batch_sampler *batches;
    tsr_loader *l;
    loader_set set;
} source;

enum { IN_ORDER, SHUFFLED, DRIVEN, DISTRIBUTED, WEIGHTED, BATCHED, SOURCES };

static source *open_source(int kind, int workers, bool persistent)
{
    source *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->set = of(N);
    double weights[N];
    for (int i = 0; i < N; i++)
        weights[i] = 1 + i % 3;
    assert_int_equal(tsr_generator_create(NULL, 5, &s->generator), TSR_OK);
    if (kind == DISTRIBUTED)
        assert_int_equal(tsr_distributed_sampler(
                             NULL, N, TSR_DISTRIBUTED_SAMPLER_OPTS(.replicas = 2), &s->sampler),
                         TSR_OK);
    if (kind == WEIGHTED || kind == BATCHED)
        assert_int_equal(
            tsr_weighted_random_sampler(
                NULL, weights, N,
                TSR_WEIGHTED_RANDOM_SAMPLER_OPTS(.generator =
                                                     kind == BATCHED ? s->generator : NULL),
                &s->sampler),
            TSR_OK);
    if (kind == BATCHED)
        assert_int_equal(tsr_batch_sampler_create(NULL, s->sampler, 4, true, &s->batches), TSR_OK);
    const tsr_map_loader_opts *o = TSR_MAP_LOADER_OPTS(
        LOADER_FIELDS, .batch_size = kind == BATCHED ? 1 : 3,
        .shuffle = kind == SHUFFLED || kind == DRIVEN,
        .sampler = kind == BATCHED ? NULL : s->sampler, .batch_sampler = s->batches,
        .generator = kind == DRIVEN || kind == BATCHED ? s->generator : NULL, .seed = 8,
        .num_workers = workers, .persistent_workers = persistent);
    s->l = make_of(LOADER_SET(&s->set), o);
    return s;
}

static void close_source(source *s)
{
    tsr_loader_destroy(s->l);
    tsr_batch_sampler_destroy(s->batches);
    tsr_sampler_destroy(s->sampler);
    tsr_generator_destroy(s->generator);
    free(s);
}

/* What a batch was: rows, the first two indices, and the worker's seed. */
typedef struct seen {
    int64_t rows, first, second;
    uint64_t seed;
} seen;

static seen look(const tsr_batch *b)
{
    const loader_sample *s = b->data[0];
    return (seen){b->rows, b->indices[0], b->indices[b->rows - 1], s->seed};
}

/* The epoch from batch `at` on is as recorded. */
static void goes_on(source *s, seen (*record)[MOST], int64_t epoch, int64_t at, int64_t count)
{
    const tsr_batch *b;
    for (; at < count; at++) {
        assert_int_equal(tsr_loader_next(s->l, &b), TSR_OK);
        seen now = look(b);
        assert_int_equal(b->number, at);
        assert_int_equal(b->epoch, epoch);
        assert_true(loader_batch_is_right(b));
        assert_memory_equal(&now, &record[epoch][at], sizeof now);
    }
    assert_int_equal(tsr_loader_next(s->l, &b), TSR_END);
}

static void check_source(int kind, int workers, bool persistent)
{
    static seen record[EPOCHS][MOST];
    static tsr_loader_state kept[EPOCHS][MOST];
    source *s = open_source(kind, workers, persistent);
    const tsr_batch *b;
    int64_t count = tsr_loader_batches(s->l);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(tsr_loader_get_state(s->l, &kept[epoch][i]), TSR_OK);
            assert_int_equal(tsr_loader_next(s->l, &b), TSR_OK);
            record[epoch][i] = look(b);
        }
        assert_int_equal(tsr_loader_get_state(s->l, &kept[epoch][count]), TSR_OK);
        assert_int_equal(tsr_loader_next(s->l, &b), TSR_END);
    }
    close_source(s);
    for (int epoch = 0; epoch + 1 < EPOCHS; epoch++)
        for (int64_t i = 0; i <= count; i += 1 + (i > 1 && i + 2 < count)) {
            s = open_source(kind, workers, persistent);
            for (int64_t k = 0; k < (i * 5) % 7; k++) /* from elsewhere */
                assert_in_range(tsr_loader_next(s->l, &b), TSR_OK, TSR_END);
            assert_int_equal(tsr_loader_set_state(s->l, &kept[epoch][i]), TSR_OK);
            assert_int_equal(tsr_loader_position(s->l), i);
            goes_on(s, record, epoch, i, count);
            goes_on(s, record, epoch + 1, 0, count);
            close_source(s);
        }
    s = open_source(kind, workers, persistent);
    static const int order[] = {2, 0, 3, 1};
    for (int i = 0; i < 4; i++) {
        if (kind == DRIVEN || kind == BATCHED) {
            must_say(tsr_loader_set_epoch(s->l, order[i]), TSR_ERR_STATE, "generator of yours");
            continue;
        }
        assert_int_equal(tsr_loader_set_epoch(s->l, order[i]), TSR_OK);
        assert_int_equal(tsr_loader_epoch(s->l), order[i]);
        if (kind != DISTRIBUTED) /* whose record is of one order: see test_map_loader.c */
            goes_on(s, record, order[i], 0, count);
    }
    close_source(s);
}

static void checkpoints(void **state)
{
    (void)state;
    for (int kind = 0; kind < SOURCES; kind++)
        for (int workers = 0; workers <= 2; workers++)
            for (int persistent = 0; persistent <= (workers > 0); persistent++)
                check_source(kind, workers, persistent);
}

/* The next batch of both, which is the same one, or the end of both. */
static void both_give(source *a, source *same, tsr_status status)
{
    const tsr_batch *batch, *want;
    assert_int_equal(tsr_loader_next(a->l, &batch), status);
    assert_int_equal(tsr_loader_next(same->l, &want), status);
    if (status != TSR_OK)
        return;
    assert_int_equal(batch->rows, want->rows);
    assert_memory_equal(batch->indices, want->indices, (size_t)want->rows * 8);
}

/* One that does not fit changes nothing. */
static void foreign_states(void **state)
{
    (void)state;
    source *a = open_source(SHUFFLED, 1, false), *b = open_source(WEIGHTED, 0, false);
    source *same = open_source(SHUFFLED, 0, false);
    tsr_loader_state kept;
    const tsr_batch *batch;
    for (int i = 0; i < 3; i++) {
        both_give(a, same, TSR_OK);
        assert_int_equal(tsr_loader_next(b->l, &batch), TSR_OK);
    }
    assert_int_equal(tsr_loader_get_state(b->l, &kept), TSR_OK);
    must_say(tsr_loader_set_state(a->l, &kept), TSR_ERR_INVALID, "no state of a random sampler");
    assert_int_equal(tsr_loader_get_state(same->l, &kept), TSR_OK);
    kept.position = 9;
    must_say(tsr_loader_set_state(a->l, &kept), TSR_ERR_INVALID,
             "9 is outside the pass; legal are 0 .. 8");
    kept.size = 4;
    must_say(tsr_loader_set_state(a->l, &kept), TSR_ERR_INVALID, "no loader's state");
    must_say(tsr_loader_set_epoch(a->l, -1), TSR_ERR_INVALID, "negative");
    must_say(tsr_loader_set_epoch(a->l, INT64_MAX), TSR_ERR_INVALID, "too many draws");
    for (int epoch = 0; epoch < 2; epoch++)
        for (int i = epoch ? 0 : 3; i <= 8; i++)
            both_give(a, same, i < 8 ? TSR_OK : TSR_END);
    close_source(a);
    close_source(b);
    close_source(same);
}

/* Of a loader that has given `after` batches, the last one perhaps, but not TSR_END. */
static void refused_after(int kind, int workers, int after)
{
    source *a = open_source(kind, workers, false), *same = open_source(kind, workers, false);
    source *other = open_source(WEIGHTED, 0, false);
    tsr_loader_state foreign;
    assert_int_equal(tsr_loader_get_state(other->l, &foreign), TSR_OK);
    for (int epoch = 0; epoch < 3; epoch++)
        for (int i = 0; i <= 8; i++) {
            if (i == after)
                must_say(tsr_loader_set_state(a->l, &foreign), TSR_ERR_INVALID, "no state of");
            both_give(a, same, i < 8 ? TSR_OK : TSR_END);
        }
    close_source(a);
    close_source(same);
    close_source(other);
}

static void foreign_states_at_any_batch(void **state)
{
    (void)state;
    for (int kind = IN_ORDER; kind <= DRIVEN; kind++)
        for (int workers = 0; workers <= 2; workers++)
            for (int after = 0; after <= 8; after++)
                refused_after(kind, workers, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(without_get),
        cmocka_unit_test(workers_come_and_go),
        cmocka_unit_test(workers_that_fail_to_start),
        cmocka_unit_test(base_seeds),
        cmocka_unit_test(memory_of_the_users),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(checkpoints),
        cmocka_unit_test(foreign_states),
        cmocka_unit_test(foreign_states_at_any_batch),
    };
    return cmocka_run_group_tests_name("map_loader_more", tests, NULL, NULL);
}
