/* SPDX-License-Identifier: Apache-2.0 */
/* Reading safetensors files tensor by tensor, from bytes that are written here by hand. */
#include <tessera/tessera.h>

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char header[] =
    "{\"__metadata__\":{\"by\":\"hand\"},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    "\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]},"
    "\"e\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[24,27]}}";
static const float b[4] = {1, 2, 3, -4};
static const int64_t a[1] = {-7};

enum { FILE_MAX = 8 + sizeof header - 1 + sizeof b + sizeof a + 3 };
static char path[] = "/tmp/tessera-safetensors-XXXXXX";

static size_t file_bytes(unsigned char out[FILE_MAX])
{
    size_t n = sizeof header - 1;
    memset(out, 0, FILE_MAX);
    out[0] = (unsigned char)n;
    out[1] = (unsigned char)(n >> 8);
    memcpy(out + 8, header, n);
    memcpy(out + 8 + n, b, sizeof b);
    memcpy(out + 8 + n + sizeof b, a, sizeof a);
    return FILE_MAX;
}

static void write_file(const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_reads_each_tensor(void **state)
{
    (void)state;
    unsigned char bytes[FILE_MAX];
    tsr_safetensors *f;
    tsr_safetensors_info t;
    float values[4], two[2];
    int64_t whole;
    write_file(bytes, file_bytes(bytes));
    assert_int_equal(tsr_safetensors_open(path, &f), TSR_OK);
    assert_int_equal(tsr_safetensors_count(f), 3);
    assert_int_equal(tsr_safetensors_find(f, "a"), 1);
    assert_int_equal(tsr_safetensors_find(f, "c"), -1);
    assert_string_equal(tsr_safetensors_metadata(f, "by"), "hand");
    assert_null(tsr_safetensors_metadata(f, "to"));
    assert_int_equal(tsr_safetensors_tensor(f, 0, &t), TSR_OK);
    assert_string_equal(t.name, "b");
    assert_string_equal(t.stored_dtype, "F32");
    assert_int_equal(t.dtype, TSR_F32);
    assert_int_equal(t.bytes, sizeof b);
    assert_true(tsr_dims_equal(t.dims, TSR_DIMS(2, 2)));
    assert_int_equal(tsr_safetensors_read(f, 0, 0, values, sizeof values), TSR_OK);
    assert_memory_equal(values, b, sizeof b);
    assert_int_equal(tsr_safetensors_read(f, 0, 8, two, sizeof two), TSR_OK);
    assert_memory_equal(two, b + 2, sizeof two);
    assert_int_equal(tsr_safetensors_read(f, 1, 0, &whole, sizeof whole), TSR_OK);
    assert_int_equal(whole, a[0]);
    tsr_safetensors_close(f);
}

static void test_refuses_what_is_not_there(void **state)
{
    (void)state;
    unsigned char bytes[FILE_MAX];
    tsr_safetensors *f;
    tsr_safetensors_info t;
    char data[64];
    write_file(bytes, file_bytes(bytes));
    assert_int_equal(tsr_safetensors_open(path, &f), TSR_OK);
    assert_int_equal(tsr_safetensors_tensor(f, 3, &t), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "tensor 3 of 3"));
    assert_int_equal(tsr_safetensors_read(f, 0, 8, data, 9), TSR_ERR_INVALID);
    assert_int_equal(tsr_safetensors_read(f, 0, SIZE_MAX, data, 1), TSR_ERR_INVALID);
    assert_int_equal(tsr_safetensors_tensor(f, 2, &t), TSR_OK);
    assert_int_equal(t.dtype, TSR_DTYPE_NONE);
    assert_int_equal(t.bytes, 3);
    assert_int_equal(tsr_safetensors_read(f, 2, 0, data, 3), TSR_ERR_UNSUPPORTED);
    assert_non_null(strstr(tsr_last_error(), "F8_E4M3"));
    assert_int_equal(truncate(path, FILE_MAX - 20), 0);
    assert_int_equal(tsr_safetensors_read(f, 1, 0, data, 8), TSR_ERR_IO);
    tsr_safetensors_close(f);
    assert_int_equal(tsr_safetensors_open(path, &f), TSR_ERR_FORMAT);
    assert_int_equal(tsr_safetensors_count(NULL), -1);
}

/* Every length that is not the whole file's is refused: the last tensor then ends behind it. */
static void test_refuses_a_file_cut_anywhere(void **state)
{
    (void)state;
    unsigned char bytes[FILE_MAX];
    tsr_safetensors *f;
    file_bytes(bytes);
    for (size_t n = 0; n < FILE_MAX; n++) {
        write_file(bytes, n);
        assert_int_equal(tsr_safetensors_open(path, &f), TSR_ERR_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_each_tensor),
        cmocka_unit_test(test_refuses_what_is_not_there),
        cmocka_unit_test(test_refuses_a_file_cut_anywhere),
    };
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
