/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/live.h"
#include "src/data/loader/image_loader.h"

enum {
    N = 103, /* samples */
    SIDE = 12,
    IMAGE = 3 * SIDE * SIDE,
};

static struct tsr_world world = {.nranks = 1, .threads = 1};
static tsr_dataset *ds;

/* Pseudo-random pixels (none of them 0, so that padding shows); labels tell samples apart by tens.
 */
static tsr_dataset *make_dataset(int64_t channels)
{
    tsr_dataset *d;
    assert_int_equal(tsri_dataset_create(&world, &d), TSR_OK);
    d->count = N;
    d->channels = channels;
    d->height = d->width = SIDE;
    d->classes = 10;
    size_t bytes = (size_t)(N * channels * SIDE * SIDE);
    d->images = tsri_mem_alloc(NULL, bytes);
    d->labels = tsri_mem_alloc(NULL, N);
    uint32_t x = 1;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525u + 1013904223u;
        d->images[i] = (uint8_t)(1 + (x >> 24) % 255);
    }
    for (int i = 0; i < N; i++)
        d->labels[i] = (uint8_t)(i % 10);
    tsri_dataset_own(&world, d);
    return d;
}

static tsr_status fill_rows(tsr_loader *l, const tsri_rank_rows *rows, int64_t capacity_rows,
                            void *x, int64_t *y, int64_t *out_global, int64_t *out_local)
{
    return tsri_image_fill_rows((tsri_image_loader *)l, rows, capacity_rows, x, y, out_global,
                                out_local);
}

/* Part `part` of `parts` of a flat split. */
static tsr_status fill(tsr_loader *l, int parts, int part, int64_t capacity_rows, void *x,
                       int64_t *y, int64_t *out_global, int64_t *out_local)
{
    const tsri_rank_rows rows = {.ndim = 1, .parts = {parts}, .part = {part}};
    return fill_rows(l, &rows, capacity_rows, x, y, out_global, out_local);
}

static int set_up(void **state)
{
    (void)state;
    ds = make_dataset(3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tsri_world_destroy_owned(&world);
    return 0;
}

static tsr_loader *make(const tsr_loader_opts *opts)
{
    tsr_loader *l = NULL;
    assert_int_equal(tsr_loader_create(&world, ds, opts, &l), TSR_OK);
    return l;
}

/* A whole epoch of one part. */
typedef struct epoch {
    float x[N * IMAGE];
    int64_t y[N];
    int64_t rows, batches;
} epoch;

static void read_epoch(tsr_loader *l, epoch *e)
{
    int64_t global, local;
    e->rows = e->batches = 0;
    tsr_status status;
    for (;;) {
        int64_t peek = tsr_loader_peek_rows(l);
        status =
            fill(l, 1, 0, N - e->rows, e->x + e->rows * IMAGE, e->y + e->rows, &global, &local);
        if (status != TSR_OK)
            break;
        assert_int_equal(global, local);
        assert_int_equal(global, peek);
        e->rows += local;
        e->batches++;
    }
    assert_int_equal(status, TSR_END);
    assert_int_equal(e->batches, tsr_loader_batches(l));
}

/* Which sample the pixels are, in plain f32; -1 if none. */
static int find_sample(const float *x)
{
    for (int s = 0; s < N; s++) {
        const uint8_t *image = ds->images + s * IMAGE;
        int i = 0;
        while (i < IMAGE && x[i] == (float)image[i] / 255.0F)
            i++;
        if (i == IMAGE)
            return s;
    }
    return -1;
}

static void order_of(const epoch *e, int *order)
{
    int seen[N] = {0};
    for (int64_t i = 0; i < e->rows; i++) {
        order[i] = find_sample(e->x + i * IMAGE);
        assert_true(order[i] >= 0);
        assert_int_equal(e->y[i], ds->labels[order[i]]);
        assert_int_equal(seen[order[i]]++, 0);
    }
}

static epoch a, b;

static void plain_values_in_the_stored_order(void **state)
{
    (void)state;
    tsr_loader *l = make(TSR_LOADER_OPTS(.batch_size = 10));
    int order[N];
    assert_int_equal(tsr_loader_batches(l), 11);
    read_epoch(l, &a);
    assert_int_equal(a.rows, N);
    order_of(&a, order);
    for (int i = 0; i < N; i++)
        assert_int_equal(order[i], i);
}

static void normalised_values(void **state)
{
    (void)state;
    static const double mean[] = {0.4914, 0.4822, 0.4465}, std[] = {0.2023, 0.1994, 0.2010};
    tsr_loader *l = make(TSR_LOADER_OPTS(.normalize = true));
    read_epoch(l, &a);
    for (int i = 0; i < N * IMAGE; i++) {
        int c = i / (SIDE * SIDE) % 3;
        assert_float_equal(a.x[i], (ds->images[i] / 255.0 - mean[c]) / std[c], 2e-6);
    }
    /* By hand: white, red channel. */
    memset(ds->images, 255, IMAGE);
    l = make(TSR_LOADER_OPTS(.normalize = true));
    read_epoch(l, &a);
    assert_float_equal(a.x[0], 2.5140880, 1e-6);
    tsr_dataset *grey = ds = make_dataset(1);
    memset(grey->images, 255, SIDE * SIDE);
    l = make(TSR_LOADER_OPTS(.normalize = true));
    static float x[64 * SIDE * SIDE];
    int64_t y[64], global, local;
    assert_int_equal(fill(l, 1, 0, 64, x, y, &global, &local), TSR_OK);
    assert_float_equal(x[0], 2.8214867, 1e-6);
    assert_float_equal(x[SIDE * SIDE], (grey->images[SIDE * SIDE] / 255.0 - 0.1307) / 0.3081, 2e-6);
}

static void f64_is_the_same_numbers(void **state)
{
    (void)state;
    static double x[N * IMAGE];
    for (int normalize = 0; normalize < 2; normalize++) {
        tsr_loader *l = make(TSR_LOADER_OPTS(.batch_size = N, .normalize = normalize,
                                             .augment = true, .shuffle = true));
        tsr_loader *l64 = make(TSR_LOADER_OPTS(.batch_size = N, .normalize = normalize,
                                               .augment = true, .shuffle = true, .dtype = TSR_F64));
        int64_t y[N], global, local;
        read_epoch(l, &a);
        assert_int_equal(fill(l64, 1, 0, N, x, y, &global, &local), TSR_OK);
        for (int i = 0; i < N * IMAGE; i++)
            assert_true(x[i] == (double)a.x[i]);
        assert_memory_equal(y, a.y, sizeof y);
    }
}

#define OPTS(...)                                                                         \
    TSR_LOADER_OPTS(.batch_size = 9, .shuffle = true, .augment = true, .normalize = true, \
                    .seed = 5, __VA_ARGS__)

static void threads_change_nothing(void **state)
{
    (void)state;
    const int threads[][2] = {{1, 1}, {1, 2}, {2, 2}, {3, 4}, {8, 3}, {1, 50}, {0, 0}};
    tsr_loader *plain = make(OPTS(.workers = 0));
    assert_int_equal(tsr_loader_set_epoch(plain, 3), TSR_OK);
    read_epoch(plain, &a);
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        tsr_loader *l = make(OPTS(.workers = threads[i][0], .prefetch = threads[i][1]));
        assert_int_equal(tsr_loader_set_epoch(l, 3), TSR_OK);
        read_epoch(l, &b);
        assert_int_equal(b.rows, N);
        assert_memory_equal(a.x, b.x, sizeof a.x);
        assert_memory_equal(a.y, b.y, sizeof a.y);
        tsr_loader_destroy(l);
    }
}

/* The parts of each batch, side by side, are the batch. */
static void check_parts(const tsri_rank_rows *rows, int nparts, const int64_t *want_last)
{
    tsr_loader *whole = make(OPTS()), *l[8];
    static float x[N * IMAGE];
    int64_t y[N], global, local;
    for (int p = 0; p < nparts; p++)
        l[p] = make(OPTS(.workers = 1 + p % 2));
    read_epoch(whole, &a);
    for (int64_t batch = 0, at = 0; batch < a.batches; batch++) {
        for (int p = 0; p < nparts; p++) {
            assert_int_equal(fill_rows(l[p], &rows[p], 9, x, y, &global, &local), TSR_OK);
            assert_int_equal(global, batch < 11 ? 9 : 4);
            if (batch == 11)
                assert_int_equal(local, want_last[p]);
            assert_memory_equal(x, a.x + at * IMAGE, (size_t)local * IMAGE * sizeof *x);
            assert_memory_equal(y, a.y + at, (size_t)local * sizeof *y);
            at += local;
        }
    }
    for (int p = 0; p < nparts; p++)
        assert_int_equal(fill_rows(l[p], &rows[p], 9, x, y, &global, &local), TSR_END);
}

static void parts_make_up_the_whole(void **state)
{
    (void)state;
    /* Of the last batch's 4 rows, the balanced parts: */
    const int64_t want[9][8] = {{0},       {4},          {2, 2},
                                {2, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 0},
                                {0},       {0},          {1, 1, 1, 1, 0, 0, 0, 0}};
    for (int n = 1; n <= 8; n++) {
        if (n == 6 || n == 7)
            continue;
        tsri_rank_rows rows[8];
        for (int p = 0; p < n; p++)
            rows[p] = (tsri_rank_rows){.ndim = 1, .parts = {n}, .part = {p}};
        check_parts(rows, n, want[n]);
    }
    /* 2 x 3: halves of 2, then thirds of each. */
    tsri_rank_rows rows[6];
    for (int p = 0; p < 6; p++)
        rows[p] = (tsri_rank_rows){.ndim = 2, .parts = {2, 3}, .part = {p / 3, p % 3}};
    check_parts(rows, 6, (int64_t[]){1, 1, 0, 1, 1, 0});
}

static void each_epoch_has_its_own_order(void **state)
{
    (void)state;
    int order[4][N];
    tsr_loader *l = make(TSR_LOADER_OPTS(.batch_size = 16, .shuffle = true));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tsr_loader_epoch(l), i); /* TSR_END moved on */
        read_epoch(l, &a);
        assert_int_equal(a.rows, N);
        order_of(&a, order[i]);
    }
    int identity[N];
    for (int i = 0; i < N; i++)
        identity[i] = i;
    assert_memory_not_equal(order[0], identity, sizeof identity);
    assert_memory_not_equal(order[0], order[1], sizeof identity);
    assert_memory_not_equal(order[1], order[2], sizeof identity);
    /* An epoch's order depends neither on the way there nor on the batch size. */
    tsr_loader *other = make(TSR_LOADER_OPTS(.batch_size = 7, .shuffle = true));
    assert_int_equal(tsr_loader_set_epoch(other, 2), TSR_OK);
    read_epoch(other, &a);
    order_of(&a, order[3]);
    assert_memory_equal(order[3], order[2], sizeof identity);
    assert_int_equal(tsr_loader_set_epoch(other, 0), TSR_OK);
    read_epoch(other, &a);
    order_of(&a, order[3]);
    assert_memory_equal(order[3], order[0], sizeof identity);
    tsr_loader *seeded = make(TSR_LOADER_OPTS(.shuffle = true, .seed = 1));
    read_epoch(seeded, &a);
    order_of(&a, order[3]);
    assert_memory_not_equal(order[3], order[0], sizeof identity);
}

static void shuffling_is_even(void **state)
{
    (void)state;
    /* Over many epochs each sample stands in the middle on average; a biased shuffle doesn't do. */
    enum { EPOCHS = 2000 };
    tsr_loader *l = make(TSR_LOADER_OPTS(.shuffle = true));
    static double sum[N];
    int first[N] = {0}, fixed = 0;
    for (int e = 0; e < EPOCHS; e++) {
        assert_int_equal(tsr_loader_set_epoch(l, e), TSR_OK);
        first[tsri_decoder_index(&((tsri_image_loader *)l)->decoder, 0)]++;
        for (int i = 0; i < N; i++) {
            sum[tsri_decoder_index(&((tsri_image_loader *)l)->decoder, i)] += i;
            fixed += tsri_decoder_index(&((tsri_image_loader *)l)->decoder, i) == i;
        }
    }
    assert_true(abs(fixed - EPOCHS) < 224); /* one a shuffle, give or take 5 standard deviations */
    double chi2 = 0, want = (double)EPOCHS / N;
    for (int i = 0; i < N; i++) {
        /* 5 standard errors: N / sqrt(12 * EPOCHS). */
        assert_float_equal(sum[i] / EPOCHS, (N - 1) / 2.0, 5 * 0.665);
        chi2 += (first[i] - want) * (first[i] - want) / want;
    }
    assert_true(chi2 > 50 && chi2 < 180); /* 102 degrees of freedom */
}

/* Brute force: the one crop and flip of a sample that gives these pixels. */
static bool find_view(const float *x, int sample, int *out_dy, int *out_dx, int *out_flip)
{
    const uint8_t *image = ds->images + sample * IMAGE;
    int found = 0;
    for (int v = 0; v < 2 * 9 * 9; v++) {
        int flip = v & 1, dy = v / 2 / 9 - 4, dx = v / 2 % 9 - 4, same = 1;
        for (int i = 0; i < IMAGE && same; i++) {
            int c = i / (SIDE * SIDE), row = i / SIDE % SIDE + dy;
            int column = (flip ? SIDE - 1 - i % SIDE : i % SIDE) + dx;
            bool inside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
            same =
                x[i] == (inside ? (float)image[(c * SIDE + row) * SIDE + column] / 255.0F : 0.0F);
        }
        if (same) {
            *out_dy = dy, *out_dx = dx, *out_flip = flip;
            found++;
        }
    }
    return found == 1;
}

static void augmented_images_are_shifted_and_flipped_copies(void **state)
{
    (void)state;
    tsr_loader *l = make(TSR_LOADER_OPTS(.augment = true, .seed = 2));
    int count[9][9][2] = {{{0}}}, moved = 0, turned = 0, view[N][3], before[N][3] = {{0}};
    for (int e = 0; e < 20; e++) {
        read_epoch(l, &a);
        for (int i = 0; i < N; i++) {
            assert_true(find_view(a.x + i * IMAGE, i, &view[i][0], &view[i][1], &view[i][2]));
            count[view[i][0] + 4][view[i][1] + 4][view[i][2]]++;
            moved += e && memcmp(view[i], before[i], sizeof view[i]);
            turned += e && view[i][2] != before[i][2];
        }
        memcpy(before, view, sizeof view);
    }
    assert_true(moved > 19 * N * 9 / 10);
    assert_true(abs(turned - 19 * N / 2) < 111); /* 5 standard deviations */
    int flips = 0;
    for (int dy = 0; dy < 9; dy++)
        for (int dx = 0; dx < 9; dx++) {
            assert_true(count[dy][dx][0] + count[dy][dx][1] > 5); /* 25 on average */
            flips += count[dy][dx][1];
        }
    assert_true(abs(flips - 10 * N) < 120); /* 5 standard deviations: 113 */
    /* A sample's view does not depend on where the shuffle puts it. */
    tsr_loader *shuffled = make(TSR_LOADER_OPTS(.augment = true, .seed = 2, .shuffle = true));
    assert_int_equal(tsr_loader_set_epoch(shuffled, 19), TSR_OK);
    read_epoch(shuffled, &b);
    int found = 0;
    for (int i = 0; i < N; i++)
        for (int s = 0; s < N; s++)
            found += !memcmp(a.x + s * IMAGE, b.x + i * IMAGE, IMAGE * sizeof(float));
    assert_int_equal(found, N);
}

static void normalised_padding_is_black(void **state)
{
    (void)state;
    tsr_loader *l = make(TSR_LOADER_OPTS(.augment = true, .normalize = true));
    tsr_loader *raw = make(TSR_LOADER_OPTS(.augment = true));
    read_epoch(l, &a);
    read_epoch(raw, &b);
    int padded = 0;
    for (int i = 0; i < N * SIDE * SIDE * 3; i++)
        if (i / (SIDE * SIDE) % 3 == 0 && b.x[i] == 0.0F) {
            assert_float_equal(a.x[i], -0.4914 / 0.2023, 1e-6);
            padded++;
        }
    assert_true(padded > 1000);
}

static void the_last_batch(void **state)
{
    (void)state;
    tsr_loader *l = make(TSR_LOADER_OPTS(.batch_size = 50));
    read_epoch(l, &a);
    assert_int_equal(a.batches, 3);
    assert_int_equal(a.rows, N);
    l = make(TSR_LOADER_OPTS(.batch_size = 50, .drop_last = true));
    read_epoch(l, &a);
    assert_int_equal(a.batches, 2);
    assert_int_equal(a.rows, 100);
    l = make(TSR_LOADER_OPTS(.batch_size = N, .drop_last = true));
    assert_int_equal(tsr_loader_batches(l), 1);
    l = make(TSR_LOADER_OPTS(.batch_size = INT64_MAX));
    read_epoch(l, &a);
    assert_int_equal(a.batches, 1);
    assert_int_equal(a.rows, N);
    l = make(TSR_LOADER_OPTS(.batch_size = 104, .drop_last = true));
    assert_int_equal(tsr_loader_peek_rows(l), 0);
    read_epoch(l, &a);
    assert_int_equal(a.batches, 0);
    l = make(NULL);
    assert_int_equal(tsr_loader_peek_rows(l), 64);
    assert_int_equal(tsr_loader_batches(l), 2);
}

static void errors_leave_the_loader_in_place(void **state)
{
    (void)state;
    tsr_loader *l = make(OPTS());
    static float x[9 * IMAGE];
    int64_t y[9], global = -1, local = -1;
    assert_int_equal(fill(l, 2, 0, 4, x, y, &global, &local), TSR_ERR_SHAPE);
    assert_non_null(strstr(tsr_last_error(), "5 rows of a batch of 9"));
    assert_int_equal(fill(l, 2, 2, 9, x, y, &global, &local), TSR_ERR_INVALID);
    assert_int_equal(fill(l, 0, 0, 9, x, y, &global, &local), TSR_ERR_INVALID);
    assert_int_equal(global, -1);
    tsr_loader *other = make(OPTS());
    read_epoch(other, &a);
    /* Parts may change under way; the batches go on. */
    assert_int_equal(fill(l, 2, 0, 9, x, y, &global, &local), TSR_OK);
    assert_memory_equal(y, a.y, 5 * sizeof *y);
    assert_int_equal(fill(l, 2, 1, 9, x, y, &global, &local), TSR_OK);
    assert_memory_equal(y, a.y + 9 + 5, 4 * sizeof *y);
    assert_int_equal(fill(l, 1, 0, 9, x, y, &global, &local), TSR_OK);
    assert_memory_equal(x, a.x + 18 * IMAGE, sizeof x);
    /* Back to the start. */
    assert_int_equal(tsr_loader_set_epoch(l, -1), TSR_ERR_INVALID);
    assert_int_equal(tsr_loader_set_epoch(l, 0), TSR_OK);
    assert_int_equal(fill(l, 1, 0, 9, x, y, &global, &local), TSR_OK);
    assert_memory_equal(x, a.x, sizeof x);
}

static void illegal_options_are_refused(void **state)
{
    (void)state;
    tsr_loader *l = NULL;
    assert_int_equal(tsr_loader_create(&world, ds, TSR_LOADER_OPTS(.batch_size = -1), &l),
                     TSR_ERR_INVALID);
    assert_int_equal(tsr_loader_create(&world, ds, TSR_LOADER_OPTS(.workers = -2), &l),
                     TSR_ERR_INVALID);
    assert_int_equal(tsr_loader_create(&world, ds, TSR_LOADER_OPTS(.dtype = TSR_F16), &l),
                     TSR_ERR_DTYPE);
    assert_int_equal(tsr_loader_create(&world, ds, &(tsr_loader_opts){.size = 0}, &l),
                     TSR_ERR_INVALID);
    assert_int_equal(tsr_loader_create(&world, NULL, NULL, &l), TSR_ERR_INVALID);
    assert_null(l);
    tsr_loader_destroy(NULL);
}

static void loaders_end_at_any_moment(void **state)
{
    (void)state;
    static float x[9 * IMAGE];
    int64_t y[9], global, local;
    for (int i = 0; i < 60; i++) {
        tsr_loader *l = make(OPTS(.workers = 1 + i % 3, .prefetch = 1 + i % 5));
        for (int k = 0; k < i % 14; k++) {
            tsr_status status = fill(l, 1, 0, 9, x, y, &global, &local);
            assert_true(status == TSR_OK || status == TSR_END);
            if (k % 4 == 3)
                assert_int_equal(tsr_loader_set_epoch(l, k), TSR_OK);
        }
        tsr_loader_destroy(l);
    }
}

static void a_loader_keeps_its_data_set(void **state)
{
    (void)state;
    tsr_loader *l = make(OPTS()), *early = make(OPTS());
    tsr_dataset_destroy(ds);
    read_epoch(l, &a);
    assert_int_equal(a.rows, N);
    tsr_loader_destroy(early);
    read_epoch(l, &b);
    assert_int_equal(b.rows, N);
    /* The world ends both it and the data (a leak checker sees if not). */
}

static void failing_allocations_are_errors(void **state)
{
    (void)state;
    static float x[9 * IMAGE];
    int64_t y[9], global, local;
    tsr_status status = TSR_ERR_NO_MEMORY;
    int n = 0;
    while (status != TSR_OK) {
        assert_int_equal(status, TSR_ERR_NO_MEMORY);
        tsr_loader *l = NULL;
        world.mem.fail_countdown = ++n;
        status = tsr_loader_create(&world, ds, OPTS(), &l);
        if (status == TSR_OK)
            status = fill(l, 1, 0, 9, x, y, &global, &local);
        world.mem.fail_countdown = 0;
        tsr_loader_destroy(l);
    }
    assert_true(n > 5);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    if (tsri_live_add(NULL, &world, TSRI_LIVE_WORLD) != TSR_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        TEST(plain_values_in_the_stored_order),
        TEST(normalised_values),
        TEST(f64_is_the_same_numbers),
        TEST(threads_change_nothing),
        TEST(parts_make_up_the_whole),
        TEST(each_epoch_has_its_own_order),
        TEST(shuffling_is_even),
        TEST(augmented_images_are_shifted_and_flipped_copies),
        TEST(normalised_padding_is_black),
        TEST(the_last_batch),
        TEST(errors_leave_the_loader_in_place),
        TEST(illegal_options_are_refused),
        TEST(loaders_end_at_any_moment),
        TEST(a_loader_keeps_its_data_set),
        TEST(failing_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
