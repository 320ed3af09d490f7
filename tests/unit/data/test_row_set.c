/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of rows: windows of bytes and of tokens, rows of .npy files, and drawn ones, each row
 * against what was written; loaders of them; and files that are refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include <tessera/data.h>

#include "src/core/status.h"
#include "src/data/row_set.h"
#include "tests/unit/files.h"

static const char *full_path(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", test_dir, name);
    return path;
}

/* The error is the file's path, then the text. */
static void assert_refused(tsr_status found, tsr_status status, const char *name, const char *text)
{
    char expected[3 * PATH_MAX];
    snprintf(expected, sizeof expected, "%s%s", full_path(name), text);
    assert_int_equal(found, status);
    assert_string_equal(tsr_last_error(), expected);
}

/* --- text ------------------------------------------------------------------------------------- */
static void assert_windows(const tsri_row_set *set, const int64_t *all, int64_t n, int64_t context)
{
    int64_t x[32], y[32];
    assert_int_equal(set->count, (n - 1) / context);
    assert_true(set->dtype == TSR_I64 && set->x.ndim == 1 && set->x.d[0] == context);
    assert_true(tsr_dims_equal(set->x, set->y));
    for (int64_t row = 0; row < set->count; row++) {
        assert_int_equal(set->get(set, row, x, y), TSR_OK);
        for (int64_t i = 0; i < context; i++) {
            assert_int_equal(x[i], all[row * context + i]);
            assert_int_equal(y[i], all[row * context + i + 1]);
        }
    }
}

static void test_text(void **state)
{
    (void)state;
    const struct {
        int64_t n, context;
    } rows[] = {{33, 8}, {32, 8}, {40, 8}, {2, 1}, {9, 8}, {31, 30}};
    unsigned char bytes[64];
    int64_t ids[64];
    int32_t tokens[64];
    tsri_mem mem = {0};
    for (int i = 0; i < 64; i++) {
        bytes[i] = (unsigned char)(i * 37 + 200);
        tokens[i] = (i * 7919) % 50257;
    }
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        tsri_row_set *set;
        write_file("text", bytes, (size_t)rows[r].n);
        assert_int_equal(
            tsri_text_set_open(&mem, full_path("text"), false, rows[r].context, 256, &set), TSR_OK);
        for (int i = 0; i < 64; i++)
            ids[i] = bytes[i];
        assert_windows(set, ids, rows[r].n, rows[r].context);
        tsri_row_set_close(set);
        assert_int_equal(tsri_npy_write(full_path("t.npy"), TSR_I32, TSR_DIMS(rows[r].n), tokens),
                         TSR_OK);
        assert_int_equal(
            tsri_text_set_open(&mem, full_path("t.npy"), true, rows[r].context, 50257, &set),
            TSR_OK);
        for (int i = 0; i < 64; i++)
            ids[i] = tokens[i];
        assert_windows(set, ids, rows[r].n, rows[r].context);
        tsri_row_set_close(set);
    }
}

static void test_text_refused(void **state)
{
    (void)state;
    tsri_mem mem = {0};
    tsri_row_set *set;
    const float f[4] = {1, 2, 3, 4};
    const int64_t ids[6] = {3, 1, 70, -2, 5, 9};
    int64_t x[4], y[4], largest;
    write_file("short", "12345678", 8);
    assert_refused(tsri_text_set_open(&mem, full_path("short"), false, 8, 256, &set),
                   TSR_ERR_FORMAT, "short",
                   ": 8 bytes; a window of context 8 and the one behind it take 9");
    assert_refused(tsri_text_set_open(&mem, full_path("gone"), false, 8, 256, &set), TSR_ERR_IO,
                   "gone", ": can't open: No such file or directory");
    assert_refused(tsri_text_set_open(&mem, full_path("."), false, 8, 256, &set), TSR_ERR_IO, ".",
                   ": not a regular file");
    assert_int_equal(tsri_npy_write(full_path("f.npy"), TSR_F32, TSR_DIMS(4), f), TSR_OK);
    assert_refused(tsri_text_set_open(&mem, full_path("f.npy"), true, 2, 256, &set), TSR_ERR_DTYPE,
                   "f.npy", ": is f32; tokens are u8, i32 or i64");
    assert_refused(tsri_npy_largest(full_path("f.npy"), &largest), TSR_ERR_DTYPE, "f.npy",
                   ": is f32; legal are whole numbers: u8, i32 or i64");
    assert_int_equal(tsri_npy_write(full_path("2.npy"), TSR_I64, TSR_DIMS(3, 2), ids), TSR_OK);
    assert_refused(tsri_text_set_open(&mem, full_path("2.npy"), true, 2, 256, &set), TSR_ERR_SHAPE,
                   "2.npy", ": has 2 axes; tokens stand along one");
    assert_int_equal(tsri_npy_write(full_path("n.npy"), TSR_I64, TSR_DIMS(6), ids), TSR_OK);
    assert_refused(tsri_npy_largest(full_path("n.npy"), &largest), TSR_ERR_FORMAT, "n.npy",
                   ": number 3 is -2; legal are those of at least 0");
    assert_int_equal(tsri_text_set_open(&mem, full_path("n.npy"), true, 2, 70, &set), TSR_OK);
    assert_refused(set->get(set, 0, x, y), TSR_ERR_FORMAT, "n.npy",
                   ": token 2 is 70; legal are 0 to 69 (vocab is 70)");
    assert_refused(set->get(set, 1, x, y), TSR_ERR_FORMAT, "n.npy",
                   ": token 2 is 70; legal are 0 to 69 (vocab is 70)");
    tsri_row_set_close(set);
    /* A file that shrinks is an error, not a signal. */
    write_file("text", "123456789", 9);
    assert_int_equal(tsri_text_set_open(&mem, full_path("text"), false, 4, 256, &set), TSR_OK);
    assert_int_equal(truncate(full_path("text"), 6), 0);
    assert_int_equal(set->get(set, 0, x, y), TSR_OK);
    assert_refused(set->get(set, 1, x, y), TSR_ERR_IO, "text",
                   ": ends at byte 6, but was 9 bytes long when it was opened");
    tsri_row_set_close(set);
}

/* --- .npy files ------------------------------------------------------------------------------- */
enum { ROWS = 7, WIDTH = 5 };

static void write_pair(tsr_dtype y_dtype, const void *y)
{
    uint8_t x[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (uint8_t)(i * 11);
    assert_int_equal(tsri_npy_write(full_path("x.npy"), TSR_U8, TSR_DIMS(ROWS, WIDTH), x), TSR_OK);
    assert_int_equal(tsri_npy_write(full_path("y.npy"), y_dtype, TSR_DIMS(ROWS), y), TSR_OK);
}

static void test_npy(void **state)
{
    (void)state;
    const int32_t labels[ROWS] = {2, 0, 1, 2, 2, 0, 1};
    char x_path[PATH_MAX], y_path[PATH_MAX];
    tsri_mem mem = {0};
    int64_t largest;
    write_pair(TSR_I32, labels);
    snprintf(x_path, sizeof x_path, "%s", full_path("x.npy"));
    snprintf(y_path, sizeof y_path, "%s", full_path("y.npy"));
    assert_int_equal(tsri_npy_largest(y_path, &largest), TSR_OK);
    assert_int_equal(largest, 2);
    for (int wide = 0; wide < 2; wide++) {
        tsri_row_set *set;
        const tsri_npy_set_opts opts = {x_path,    y_path,  3, wide ? TSR_F64 : TSR_F32,
                                        .mean = 3, .std = 7};
        assert_int_equal(tsri_npy_set_open(&mem, &opts, &set), TSR_OK);
        assert_true(set->count == ROWS && set->x.ndim == 1 && set->x.d[0] == WIDTH);
        assert_int_equal(set->y.ndim, 0);
        for (int r = 0; r < ROWS; r++) {
            double f64[WIDTH];
            float f32[WIDTH];
            int64_t y = -1;
            assert_int_equal(set->get(set, r, wide ? (void *)f64 : (void *)f32, &y), TSR_OK);
            assert_int_equal(y, labels[r]);
            for (int i = 0; i < WIDTH; i++) {
                const double v = ((double)(uint8_t)((r * WIDTH + i) * 11) - 3) / 7;
                assert_true(wide ? f64[i] == v : f32[i] == (float)v);
            }
        }
        tsri_row_set_close(set);
    }
}

static void test_npy_refused(void **state)
{
    (void)state;
    int64_t labels[ROWS] = {2, 0, 1, 2, 2, 0, 1}, y;
    const float f[ROWS] = {0};
    float x[WIDTH];
    char x_path[PATH_MAX], y_path[PATH_MAX];
    tsri_mem mem = {0};
    tsri_row_set *set;
    tsri_npy one, two;
    snprintf(x_path, sizeof x_path, "%s", full_path("x.npy"));
    snprintf(y_path, sizeof y_path, "%s", full_path("y.npy"));
    const tsri_npy_set_opts opts = {x_path, y_path, 2, TSR_F32, .std = 1};
    write_pair(TSR_I64, labels);
    assert_int_equal(tsri_npy_set_open(&mem, &opts, &set), TSR_OK);
    assert_refused(set->get(set, 0, x, &y), TSR_ERR_FORMAT, "y.npy",
                   ": label 0 is 2; legal are 0 to 1");
    assert_int_equal(set->get(set, 1, x, &y), TSR_OK);
    tsri_row_set_close(set);
    write_pair(TSR_F32, f);
    assert_refused(tsri_npy_set_open(&mem, &opts, &set), TSR_ERR_DTYPE, "y.npy",
                   ": is f32; labels are u8, i32 or i64");
    assert_int_equal(tsri_npy_write(y_path, TSR_I64, TSR_DIMS(ROWS, 1), labels), TSR_OK);
    assert_refused(tsri_npy_set_check(x_path, y_path, &one, &two), TSR_ERR_SHAPE, "y.npy",
                   ": has 2 axes; labels stand along one");
    assert_int_equal(tsri_npy_write(y_path, TSR_I64, TSR_DIMS(ROWS - 1), labels), TSR_OK);
    char text[PATH_MAX + 40];
    snprintf(text, sizeof text, ": 7 rows, but %s: 6 labels", y_path);
    assert_refused(tsri_npy_set_check(x_path, y_path, &one, &two), TSR_ERR_SHAPE, "x.npy", text);
    assert_int_equal(tsri_npy_write(x_path, TSR_F32, TSR_DIMS(ROWS), f), TSR_OK);
    assert_refused(tsri_npy_set_check(x_path, y_path, &one, &two), TSR_ERR_SHAPE, "x.npy",
                   ": has 1 axis; rows of numbers have two or more");
    write_file("x.npy", "no array", 8);
    assert_int_equal(tsri_npy_set_check(x_path, y_path, &one, &two), TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(), x_path));
}

/* --- drawn ------------------------------------------------------------------------------------ */
/* The same images as the set in memory has, of any shape; and labels up to 2^31. */
static void test_drawn(void **state)
{
    (void)state;
    tsr_world *w;
    tsr_dataset *images;
    tsri_row_set *set;
    float x[2 * 7 * 5];
    int64_t y, most = 0;
    assert_int_equal(tsr_world_create_virtual(1, 0, &w), TSR_OK);
    assert_int_equal(tsr_synthetic_open(w, 2, 7, 5, 9, 40, 3, &images), TSR_OK);
    tsri_mem mem = {0};
    assert_int_equal(tsri_drawn_set_open(&mem, TSR_F32, TSR_DIMS(2, 7, 5), 9, 40, 3, false, &set),
                     TSR_OK);
    for (int r = 0; r < 40; r++) {
        assert_int_equal(set->get(set, r, x, &y), TSR_OK);
        assert_int_equal(y, tsr_dataset_labels(images)[r]);
        for (int i = 0; i < 70; i++)
            assert_true(x[i] == (float)(tsr_dataset_images(images)[r * 70 + i] / 255.0));
    }
    tsri_row_set_close(set);
    tsr_world_destroy(w);
    assert_int_equal(
        tsri_drawn_set_open(&mem, TSR_F32, TSR_DIMS(70), INT64_C(1) << 31, 400, 3, true, &set),
        TSR_OK);
    double sum = 0, squares = 0;
    for (int r = 0; r < 400; r++) {
        assert_int_equal(set->get(set, r, x, &y), TSR_OK);
        assert_in_range(y, 0, INT32_MAX);
        most = y > most ? y : most;
        for (int i = 0; i < 70; i++) {
            sum += (double)x[i];
            squares += (double)(x[i] * x[i]);
        }
    }
    assert_true(most > INT64_C(1) << 30);
    /* 28,000 numbers of deviation 1: their mean is within 5 / sqrt(28000). */
    assert_true(sum / 28000 > -0.03 && sum / 28000 < 0.03);
    assert_true(squares / 28000 > 0.97 && squares / 28000 < 1.03);
    tsri_row_set_close(set);
}

/* --- loaders ---------------------------------------------------------------------------------- */
/* Batches of a part: in order and whole, or in an order of the seed, once each. */
static void test_loader(void **state)
{
    (void)state;
    unsigned char bytes[101];
    tsri_mem mem = {0};
    tsri_row_set *set;
    for (int i = 0; i < 101; i++)
        bytes[i] = (unsigned char)i;
    write_file("text", bytes, sizeof bytes);
    assert_int_equal(tsri_text_set_open(&mem, full_path("text"), false, 10, 256, &set), TSR_OK);
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        tsri_row_part part = {set, 2, 7};
        tsr_loader *l;
        const tsr_batch *b;
        int seen[10] = {0}, rows = 0;
        assert_int_equal(
            tsri_row_loader_create(NULL, &part,
                                   TSR_MAP_LOADER_OPTS(.batch_size = 3, .seed = 1,
                                                       .shuffle = shuffled, .num_workers = 2),
                                   &l),
            TSR_OK);
        while (tsr_loader_next(l, &b) == TSR_OK)
            for (int64_t r = 0; r < b->rows; r++, rows++) {
                const int64_t *x = (const int64_t *)b->data[0] + r * 10, *y = b->data[1];
                assert_int_equal(x[0] % 10, 0);
                seen[x[0] / 10]++;
                assert_true(shuffled || x[0] == (rows + 2) * 10);
                for (int i = 0; i < 10; i++)
                    assert_true(x[i] == x[0] + i && y[r * 10 + i] == x[0] + i + 1);
            }
        for (int i = 0; i < 10; i++)
            assert_int_equal(seen[i], i >= 2 && i < 9);
        tsr_loader_destroy(l);
    }
    tsri_row_set_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text, make_test_dir, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_text_refused, make_test_dir, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_npy, make_test_dir, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_npy_refused, make_test_dir, remove_test_dir),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test_setup_teardown(test_loader, make_test_dir, remove_test_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
