/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_load and tsr_save: files written here byte by byte, several ranks, errors that change
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tessera/models.h>

#include "src/nn/module.h"

static char dir[64];

static void assert_error(const char *part)
{
    if (!strstr(tsr_last_error(), part))
        fail_msg("'%s' is not in: %s", part, tsr_last_error());
}

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_weights_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

static const char *in_dir(const char *name, char buf[128])
{
    snprintf(buf, 128, "%s/%s", dir, name);
    return buf;
}

/* A safetensors file: u64 length of the header, the header, the data. */
static void write_file(const char *path, const char *header, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t n = strlen(header);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(n >> (8 * i));
    assert_int_equal(fwrite(length, 1, 8, f), 8);
    assert_int_equal(fwrite(header, 1, n, f), n);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static tsr_module *make_net(tsr_world *w, const char *placement, tsr_sbp sbp, tsr_dtype dtype)
{
    tsr_nn_opts o = {
        .placement = tsr_placement_parse(w, placement), .sbp = sbp, .dtype = dtype, .seed = 5};
    tsr_module *net = tsr_nn_sequential(w, &o);
    tsr_module_add(net, "fc", tsr_nn_linear(w, &o, 3, 4, true));
    tsr_module_add(net, "bn", tsr_nn_batch_norm(w, &o, 2, NULL));
    return net;
}

static tsr_status get(tsr_module *m, const char *name, float *x, int n)
{
    return tsr_variable_get(tsr_module_find(m, name), x, (size_t)n * sizeof *x);
}

/* fc.weight 1..12, fc.bias 21..24; bn as 31, 32, ... */
static const char full_header[] =
    "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]},"
    "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[48,64]},"
    "\"bn.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[64,72]},"
    "\"bn.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[72,80]},"
    "\"bn.running_mean\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[80,88]},"
    "\"bn.running_var\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[88,96]},"
    "\"bn.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[96,104]}}";
static float full_data[26];

static const char *write_full(char path[128])
{
    for (int i = 0; i < 26; i++)
        full_data[i] = (float)(i < 12 ? 1 + i : i < 16 ? 9 + i : 15 + i);
    write_file(in_dir("full.safetensors", path), full_header, full_data, sizeof full_data);
    return path;
}

static tsr_status check_loaded(tsr_module *m)
{
    static const char *const names[] = {"fc.weight", "fc.bias",         "bn.weight",
                                        "bn.bias",   "bn.running_mean", "bn.running_var"};
    static const int counts[] = {12, 4, 2, 2, 2, 2};
    const float *expected = full_data;
    for (int i = 0; i < 6; i++) {
        float x[12];
        TSRI_TRY(get(m, names[i], x, counts[i]));
        if (memcmp(x, expected, (size_t)counts[i] * sizeof *x))
            return tsri_fail(TSR_ERR_INTERNAL, "%s differs", names[i]);
        expected += counts[i];
    }
    return TSR_OK;
}

/* --- any signature reads the same file, and writes it back ------------------------------------ */
static tsr_status load_and_save(tsr_world *w, void *arg)
{
    const char *path = arg;
    char again[192];
    static const struct {
        const char *placement;
        tsr_sbp sbp;
    } cases[] = {{"cpu", {1, {{TSR_SBP_BROADCAST, 0}}}},
                 {"cpu", {1, {{TSR_SBP_SPLIT, 0}}}},
                 {"cpu", {1, {{TSR_SBP_SPLIT, 1}}}},
                 {"cpu:[1]", {1, {{TSR_SBP_SPLIT, 0}}}}};
    for (int i = 0; i < 4; i++) {
        tsr_module *m = make_net(w, cases[i].placement, cases[i].sbp, TSR_F32);
        TSRI_TRY(tsr_load(m, path, NULL));
        TSRI_TRY(check_loaded(m));
        snprintf(again, sizeof again, "%s.%d", path, i);
        TSRI_TRY(tsr_save(m, again));
        tsr_module *copy = make_net(w, "cpu", TSR_B, TSR_F32);
        TSRI_TRY(tsr_load(copy, again, NULL));
        TSRI_TRY(check_loaded(copy));
        TSRI_TRY(tsr_world_barrier(w));
        if (w->rank == 0)
            unlink(again);
        tsr_module_destroy(copy);
        tsr_module_destroy(m);
    }
    return TSR_OK;
}

static void test_load_and_save(void **state)
{
    (void)state;
    char path[128];
    write_full(path);
    for (int n = 2; n <= 3; n++)
        if (tsr_spawn(n, load_and_save, path) != TSR_OK)
            fail_msg("%s", tsr_last_error());
    unlink(path);
}

/* --- conversions ------------------------------------------------------------------------------ */
static void test_dtypes(void **state)
{
    (void)state;
    char path[128];
    tsr_world *w;
    assert_int_equal(tsr_world_create(NULL, &w), TSR_OK);
    tsr_module *m = make_net(w, "cpu", TSR_B, TSR_F32);
    /* -2 and 0.5 in each: F16, BF16, F64. */
    const unsigned char data[] = {0x00, 0xc0, 0x00, 0x38, 0x00, 0xc0, 0x00, 0x3f, 0, 0, 0,    0,
                                  0,    0,    0x00, 0xc0, 0,    0,    0,    0,    0, 0, 0xe0, 0x3f};
    write_file(in_dir("d.safetensors", path),
               "{\"bn.weight\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
               "\"bn.bias\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]},"
               "\"bn.running_mean\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[8,24]}}",
               data, sizeof data);
    tsr_load_counts counts;
    if (tsr_load(m, path, TSR_LOAD_OPTS(.partial = true, .out_counts = &counts)) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_true(counts.loaded == 3 && counts.missing == 3 && counts.extra == 0);
    const char *names[] = {"bn.weight", "bn.bias", "bn.running_mean"};
    float x[2];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(get(m, names[i], x, 2), TSR_OK);
        assert_true(x[0] == -2 && x[1] == 0.5f);
    }
    /* What the file has not, stays. */
    assert_int_equal(get(m, "bn.running_var", x, 2), TSR_OK);
    assert_true(x[0] == 1 && x[1] == 1);
    /* And back, narrower. */
    tsr_module *half = make_net(w, "cpu", TSR_B, TSR_F16);
    assert_int_equal(tsr_load(half, path, TSR_LOAD_OPTS(.partial = true)), TSR_OK);
    unsigned char h[4];
    assert_int_equal(tsr_variable_get(tsr_module_find(half, "bn.running_mean"), h, 4), TSR_OK);
    assert_memory_equal(h, data, 4);
    unlink(path);
    tsr_world_destroy(w);
}

/* --- errors ----------------------------------------------------------------------------------- */
static void expect_load(tsr_module *m, const char *path, bool strict, tsr_status status,
                        const char *text)
{
    float before[12], after[12];
    assert_int_equal(get(m, "fc.weight", before, 12), TSR_OK);
    assert_int_equal(tsr_load(m, path, TSR_LOAD_OPTS(.partial = !strict)), status);
    assert_error(text);
    assert_int_equal(get(m, "fc.weight", after, 12), TSR_OK);
    assert_memory_equal(before, after, sizeof before);
}

static void test_errors(void **state)
{
    (void)state;
    char path[128];
    tsr_world *w;
    assert_int_equal(tsr_world_create(NULL, &w), TSR_OK);
    tsr_module *m = make_net(w, "cpu", TSR_B, TSR_F32);
    in_dir("e.safetensors", path);
    expect_load(m, path, false, TSR_ERR_IO, "e.safetensors");
    float zeros[12] = {0};
    write_file(path, "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[3,4],\"data_offsets\":[0,48]}}",
               zeros, 48);
    expect_load(m, path, false, TSR_ERR_SHAPE,
                "'fc.weight' has shape (3,4) in the file, (4,3) in the module");
    write_file(path, "{\"fc.weight\":{\"dtype\":\"I32\",\"shape\":[4,3],\"data_offsets\":[0,48]}}",
               zeros, 48);
    expect_load(m, path, false, TSR_ERR_DTYPE, "'fc.weight' is i32 in the file, f32 in the module");
    write_file(
        path,
        "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]},"
        "\"other\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[48,48]},"
        "\"x.num_batches_tracked\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[48,48]}}",
        zeros, 48);
    expect_load(m, path, true, TSR_ERR_INVALID,
                "e.safetensors is not of this module: 5 missing in the file: fc.bias, bn.weight, "
                "bn.bias, bn.running_mean, bn.running_var; 1 extra in the file: other; 1 of its "
                "names fit");
    /* A file of another model altogether: by default an error too. */
    write_file(path, "{\"other\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", zeros,
               4);
    expect_load(m, path, true, TSR_ERR_INVALID, "6 missing in the file: fc.weight");
    assert_int_equal(tsr_load(m, path, NULL), TSR_ERR_INVALID);
    tsr_load_counts counts = {-1, -1, -1};
    assert_int_equal(tsr_load(m, path, TSR_LOAD_OPTS(.out_counts = &counts)), TSR_ERR_INVALID);
    assert_int_equal(counts.loaded, -1);
    assert_int_equal(tsr_load(m, path, TSR_LOAD_OPTS(.partial = true, .out_counts = &counts)),
                     TSR_OK);
    assert_true(counts.loaded == 0 && counts.missing == 6 && counts.extra == 1);
    write_file(path, "{\"fc.weight\":", zeros, 48);
    expect_load(m, path, false, TSR_ERR_FORMAT, "e.safetensors");
    unlink(path);
    in_dir("nowhere/e.safetensors", path);
    assert_int_equal(tsr_save(m, path), TSR_ERR_IO);
    assert_error("nowhere");
    tsr_world_destroy(w);
}

/* One rank has no file: nobody's variables change, and everybody knows why. */
static tsr_status load_apart(tsr_world *w, void *arg)
{
    char *path = arg, other[160];
    tsr_module *m = make_net(w, "cpu", TSR_S(0), TSR_F32);
    snprintf(other, sizeof other, "%s%s", path, w->rank == 1 ? ".not" : "");
    float before[12], after[12];
    TSRI_TRY(get(m, "fc.weight", before, 12));
    if (tsr_load(m, other, NULL) != TSR_ERR_IO)
        return tsri_fail(TSR_ERR_INTERNAL, "loaded what is not there");
    if (!strstr(tsr_last_error(), ".not") ||
        (w->rank != 1 && !strstr(tsr_last_error(), "rank 1: ")))
        return tsri_fail(TSR_ERR_INTERNAL, "text: %s", tsr_last_error());
    TSRI_TRY(get(m, "fc.weight", after, 12));
    return memcmp(before, after, sizeof before) ? tsri_fail(TSR_ERR_INTERNAL, "changed") : TSR_OK;
}

static void test_ranks_agree(void **state)
{
    (void)state;
    char path[128];
    write_full(path);
    if (tsr_spawn(3, load_apart, path) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    unlink(path);
}

/* --- statistics of virtual batches ------------------------------------------------------------ */
static tsr_status load_rows(tsr_world *w, void *arg)
{
    const char *path = arg;
    char again[192];
    tsr_nn_opts o = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B};
    tsr_module *net = tsr_nn_sequential(w, &o);
    tsr_module_add(
        net, "bn",
        tsr_nn_batch_norm(w, &o, 2, TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL, .parts = 3)));
    TSRI_TRY(tsr_load(net, path, TSR_LOAD_OPTS(.partial = true))); /* of a larger net */
    float x[6];
    TSRI_TRY(get(net, "bn.running_var", x, 6));
    for (int i = 0; i < 6; i++)
        if (x[i] != full_data[22 + i % 2])
            return tsri_fail(TSR_ERR_INTERNAL, "row %d: %g", i / 2, (double)x[i]);
    float rows[6] = {7, 8, 9, 10, 11, 12};
    TSRI_TRY(tsr_variable_set(tsr_module_find(net, "bn.running_var"), rows, sizeof rows));
    snprintf(again, sizeof again, "%s.rows", path);
    TSRI_TRY(tsr_save(net, again));
    tsr_module *plain = make_net(w, "cpu", TSR_B, TSR_F32);
    TSRI_TRY(tsr_load(plain, again, TSR_LOAD_OPTS(.partial = true)));
    TSRI_TRY(get(plain, "bn.running_var", x, 2));
    TSRI_TRY(tsr_world_barrier(w));
    if (w->rank == 0)
        unlink(again);
    return x[0] == 7 && x[1] == 8 ? TSR_OK : tsri_fail(TSR_ERR_INTERNAL, "saved another row");
}

static void test_row_statistics(void **state)
{
    (void)state;
    char path[128];
    write_full(path);
    if (tsr_spawn(2, load_rows, path) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    unlink(path);
}

/* Where one rank has no memory for the others' parts, none waits for them; later all get the value.
 */
static tsr_status read_variable(tsr_world *w, void *arg)
{
    enum { ROWS_OF_W = 5, COLUMNS = 2 };
    float set[ROWS_OF_W * COLUMNS], got[ROWS_OF_W * COLUMNS] = {0};
    const tsr_nn_opts opts = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B};
    tsr_module *m = tsr_nn_sequential(w, &opts);
    tsr_variable *v =
        tsr_module_param(m, "w", TSR_DIMS(ROWS_OF_W, COLUMNS), TSR_S(0), (tsr_init){0});
    (void)arg;
    for (int i = 0; i < ROWS_OF_W * COLUMNS; i++)
        set[i] = (float)(i + 1);
    TSRI_TRY(tsr_variable_set(v, set, sizeof set));
    w->mem.fail_countdown = w->rank == 1;
    tsr_status status = tsr_variable_get(v, got, sizeof got);
    if (w->mem.fail_countdown || status != TSR_ERR_NO_MEMORY ||
        !strstr(tsr_last_error(), "no memory"))
        return tsri_fail(TSR_ERR_INTERNAL, "rank %d: %s: %s", w->rank, tsr_status_name(status),
                         tsr_last_error());
    TSRI_TRY(tsr_variable_get(v, got, sizeof got));
    return memcmp(set, got, sizeof set) ? tsri_fail(TSR_ERR_INTERNAL, "another value") : TSR_OK;
}

static void test_variable(void **state)
{
    (void)state;
    tsr_status status = tsr_spawn(2, read_variable, NULL);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load_and_save),  cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_errors),         cmocka_unit_test(test_ranks_agree),
        cmocka_unit_test(test_row_statistics), cmocka_unit_test(test_variable),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
