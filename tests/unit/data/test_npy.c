/* SPDX-License-Identifier: Apache-2.0 */
/* .npy files: what NumPy wrote is read, what is written is what NumPy writes, what is no such file
 * is told from what is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/data/npy.h"
#include "src/core/convert.h"
#include "tests/unit/files.h"
#include "tests/unit/data/npy_files.h"

#define NFILES ((int)(sizeof npy_files / sizeof *npy_files))
enum { NREADABLE = 19 }; /* of them; the others can't be read */

/* Element i of the file's array, as the script makes it. */
static double want(const char *name, tsr_dtype dtype, int64_t i)
{
    if (!strcmp(name, "scalar"))
        return 2.5;
    if (!strcmp(name, "vector") || !strcmp(name, "8 axes") || dtype == TSR_U8)
        return (double)i;
    if (dtype == TSR_BOOL)
        return i % 3 == 0;
    return dtype == TSR_I32 || dtype == TSR_I64 ? (double)(i - 7) : (double)i / 8;
}

static double element(const void *data, tsr_dtype dtype, int64_t i)
{
    double v = 0;
    const char *at = (const char *)data + (size_t)i * tsr_dtype_size(dtype);
    int64_t i64;
    int32_t i32;
    switch (dtype) {
    case TSR_I64:
        memcpy(&i64, at, sizeof i64);
        return (double)i64;
    case TSR_I32:
        memcpy(&i32, at, sizeof i32);
        return i32;
    case TSR_U8:
    case TSR_BOOL:
        return *(const uint8_t *)at;
    default:
        assert_int_equal(tsri_convert(&v, TSR_F64, at, dtype, 1), TSR_OK);
        return v;
    }
}

static void test_numpy_files(void **state)
{
    (void)state;
    for (int f = 0; f < NREADABLE; f++) {
        tsri_npy npy;
        const char *name = npy_files[f].name;
        if (tsri_npy_parse(name, npy_files[f].data, npy_files[f].size, &npy) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        assert_int_equal(npy.dims.ndim, npy_files[f].ndim);
        for (int i = 0; i < npy.dims.ndim; i++)
            assert_int_equal(npy.dims.d[i], npy_files[f].d[i]);
        char *values = malloc(npy.bytes + 1);
        assert_non_null(values);
        tsri_npy_values(&npy, npy_files[f].data, values);
        assert_int_equal(npy.bytes, (size_t)tsr_dims_count(npy.dims) * tsr_dtype_size(npy.dtype));
        for (int64_t i = 0; i < tsr_dims_count(npy.dims); i++)
            if (element(values, npy.dtype, i) != want(name, npy.dtype, i))
                fail_msg("%s: element %d is %g", name, (int)i, element(values, npy.dtype, i));
        free(values);
    }
}

static void test_foreign_dtypes(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "f: byte 85: more than 8 axes",
        "f: elements of dtype '|i1'; legal are f2, f4, f8, i4, i8, u1 and b1",
        "f: elements of dtype '<i2'; legal are f2, f4, f8, i4, i8, u1 and b1",
        "f: elements of dtype '<c8'; legal are f2, f4, f8, i4, i8, u1 and b1",
        "f: elements of dtype '<U3'; legal are f2, f4, f8, i4, i8, u1 and b1",
        "f: elements of several fields; legal are f2, f4, f8, i4, i8, u1 and b1",
    };
    for (int f = NREADABLE; f < NFILES; f++) {
        tsri_npy npy;
        assert_int_not_equal(tsri_npy_parse("f", npy_files[f].data, npy_files[f].size, &npy),
                             TSR_OK);
        assert_string_equal(tsr_last_error(), texts[f - NREADABLE]);
    }
}

/* --- headers ---------------------------------------------------------------------------------- */
/* A version 1 file of a header and some bytes of values. */
static tsr_status parse_header(const char *header, size_t value_bytes, tsri_npy *out)
{
    static unsigned char file[4096];
    size_t n = strlen(header);
    memset(file, 0, sizeof file);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (unsigned char)(n & 0xff);
    file[9] = (unsigned char)(n >> 8);
    memcpy(file + 10, header, n);
    return tsri_npy_parse("f", file, 10 + n + value_bytes, out);
}

static void test_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;
        const char *error; /* NULL: it is fine */
    } rows[] = {
        {"{'descr':'<f4','fortran_order':False,'shape':(2,)}", 8, NULL},
        {"{\"shape\": (2L, 1L), \"fortran_order\": True, \"descr\": \"<f4\"}\n", 8, NULL},
        {"{'descr':'=f4','fortran_order':False,'shape':(2)}", 8, NULL},
        {"{'descr':'<f4','fortran_order':False,'shape':()}", 4, NULL},
        {"{'descr':'<f4','fortran_order':False,'shape':(0,99999999999999999)}", 0,
         "f: byte 75: a size of more than 2^56"},
        {"{'descr':'<f8','fortran_order':False,'shape':(0,1099511627776,65536)}", 0, NULL},
        {"", 0, "f: byte 10: '{' is expected"},
        {"{", 0, "f: byte 11: a quoted text is expected"},
        {"{'descr", 0, "f: byte 17: the text has no end"},
        {"{'descr\\'':", 0, "f: byte 17: the text has no end"},
        {"{'descr' '<f4'}", 0, "f: byte 19: ':' is expected"},
        {"{'descr':'<f4' 'shape':()}", 0, "f: byte 25: ',' or '}' is expected"},
        {"{'descr':'<f4','descr':'<f4'}", 0, "f: byte 33: a key is there twice"},
        {"{'dtype':'<f4'}", 0,
         "f: byte 19: an unknown key; legal are descr, fortran_order and shape"},
        {"{'descr':'<f4','shape':()}", 0, "f: byte 36: descr, fortran_order and shape are needed"},
        {"{'descr':'<f4','fortran_order':Maybe,'shape':()}", 0,
         "f: byte 41: True or False is expected"},
        {"{'descr':'<f4','fortran_order':False,'shape':[2]}", 8,
         "f: byte 55: '(' and sizes are expected"},
        {"{'descr':'<f4','fortran_order':False,'shape':(-2,)}", 8,
         "f: byte 56: a size is expected"},
        {"{'descr':'<f4','fortran_order':False,'shape':(2 3)}", 8,
         "f: byte 58: ',' or ')' is expected"},
        {"{'descr':'<f4','fortran_order':False,'shape':(1,1,1,1,1,1,1,1,1)}", 4,
         "f: byte 72: more than 8 axes"},
        {"{'descr':'<f4','fortran_order':False,'shape':()} x", 4,
         "f: byte 59: nothing may follow the '}'"},
        {"{'descr':'<f4','fortran_order':False,'shape':(4294967296,4294967296)}", 0,
         "f: a shape of more than 2^56 elements"},
        /* Counted without the empty axis, as NumPy does: steps are products of the others. */
        {"{'descr':'<f4','fortran_order':True,'shape':(4294967296,4294967296,0)}", 0,
         "f: a shape of more than 2^56 elements"},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,)}", 4,
         "f: 4 bytes of values; its shape and dtype need 8"},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,)}", 9,
         "f: 9 bytes of values; its shape and dtype need 8"},
        {"{'descr':'?f4','fortran_order':False,'shape':(2,)}", 8,
         "f: elements of dtype '?f4'; legal are f2, f4, f8, i4, i8, u1 and b1"},
        {"{'descr':'','fortran_order':False,'shape':(2,)}", 8,
         "f: elements of dtype ''; legal are f2, f4, f8, i4, i8, u1 and b1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsri_npy npy;
        tsr_status status = parse_header(rows[i].header, rows[i].bytes, &npy);
        if (!rows[i].error && status != TSR_OK)
            fail_msg("%s: %s", rows[i].header, tsr_last_error());
        if (rows[i].error && (status == TSR_OK || strcmp(tsr_last_error(), rows[i].error)))
            fail_msg("%s: %s", rows[i].header, tsr_last_error());
    }
}

static void test_starts(void **state)
{
    (void)state;
    static const struct {
        const char *start;
        size_t size;
        const char *error;
    } rows[] = {
        {"", 0, "f: no .npy file: it doesn't start with \\x93NUMPY"},
        {"PK\x03\x04......", 10, "f: no .npy file: it doesn't start with \\x93NUMPY"},
        {"\x93NUMPY\x04\x00\x00\x00", 10, "f: version 4.0 of the format; legal are 1.0 to 3.0"},
        {"\x93NUMPY\x01\x01\x00\x00", 10, "f: version 1.1 of the format; legal are 1.0 to 3.0"},
        {"\x93NUMPY\x02\x00\x00\x00", 10, "f: the header is incomplete"},
        {"\x93NUMPY\x01\x00\x10\x00", 10, "f: the header is incomplete"},
        {"\x93NUMPY\x02\x00\xff\xff\xff\xff", 12,
         "f: a header of 4294967295 bytes; at most 65536 are read"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsri_npy npy;
        assert_int_equal(tsri_npy_parse("f", rows[i].start, rows[i].size, &npy), TSR_ERR_FORMAT);
        assert_string_equal(tsr_last_error(), rows[i].error);
    }
}

/* Any part of a file, and a file with any byte of its header changed, is told or read: under
 * AddressSanitizer nothing else. */
static void test_damaged(void **state)
{
    (void)state;
    unsigned char values[24 * 8];
    int told = 0;
    for (int f = 0; f < NREADABLE; f++) {
        size_t size = npy_files[f].size;
        unsigned char *copy = malloc(size);
        assert_non_null(copy);
        for (size_t n = 0; n < size; n++) {
            tsri_npy npy;
            unsigned char *part = malloc(n + 1);
            assert_non_null(part);
            memcpy(part, npy_files[f].data, n);
            assert_int_not_equal(tsri_npy_parse("f", part, n, &npy), TSR_OK);
            free(part);
        }
        for (size_t at = 0; at < 128 && at < size; at++)
            for (int c = 0; c < 256; c += f == 0 ? 1 : 37) {
                tsri_npy npy;
                memcpy(copy, npy_files[f].data, size);
                copy[at] = (unsigned char)c;
                if (tsri_npy_parse("f", copy, size, &npy) == TSR_OK)
                    tsri_npy_values(&npy, copy, values);
                else
                    told++;
            }
        free(copy);
    }
    assert_true(told > 10000);
}

/* --- files ------------------------------------------------------------------------------------ */
static void test_write(void **state)
{
    (void)state;
    for (int f = 0; f < NREADABLE; f++) {
        tsri_npy npy, back;
        void *again;
        size_t n;
        assert_int_equal(tsri_npy_parse("f", npy_files[f].data, npy_files[f].size, &npy), TSR_OK);
        char *values = malloc(npy.bytes + 1);
        assert_non_null(values);
        tsri_npy_values(&npy, npy_files[f].data, values);
        if (tsri_npy_write(test_path("x.npy"), npy.dtype, npy.dims, values) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        unsigned char *file = read_file("x.npy", &n);
        /* Files of version 1, in this machine's order and in C's: byte for byte NumPy's. */
        if (!npy.swapped && !npy.fortran && npy_files[f].data[6] == 1) {
            assert_int_equal(n, npy_files[f].size);
            assert_memory_equal(file, npy_files[f].data, n);
        }
        assert_int_equal(tsri_npy_open(test_path("x.npy"), &back), TSR_OK);
        assert_true(tsr_dims_equal(back.dims, npy.dims) && back.dtype == npy.dtype);
        assert_int_equal(tsri_npy_read(NULL, test_path("x.npy"), &back, &again), TSR_OK);
        assert_memory_equal(again, values, npy.bytes);
        tsri_mem_free(again);
        free(file);
        free(values);
    }
}

static void test_write_bf16(void **state)
{
    (void)state;
    const uint16_t values[2] = {0x3fc0, 0xc000}; /* 1.5, -2 */
    tsri_npy npy;
    void *data;
    assert_int_equal(tsri_npy_write(test_path("b.npy"), TSR_BF16, TSR_DIMS(2), values), TSR_OK);
    assert_int_equal(tsri_npy_read(NULL, test_path("b.npy"), &npy, &data), TSR_OK);
    assert_int_equal(npy.dtype, TSR_F32);
    assert_true(((float *)data)[0] == 1.5F && ((float *)data)[1] == -2);
    tsri_mem_free(data);
}

static void test_file_errors(void **state)
{
    (void)state;
    tsri_npy npy;
    void *data;
    char text[PATH_MAX + 64];
    const float one = 1;
    snprintf(text, sizeof text, "%s: can't be opened: No such file or directory", test_path("no"));
    assert_int_equal(tsri_npy_open(test_path("no"), &npy), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), text);
    snprintf(text, sizeof text, "%s: not a regular file", test_dir);
    assert_int_equal(tsri_npy_read(NULL, test_dir, &npy, &data), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), text);
    assert_int_equal(mkfifo(test_path("fifo"), 0600), 0);
    snprintf(text, sizeof text, "%s: not a regular file", test_path("fifo"));
    assert_int_equal(tsri_npy_open(test_path("fifo"), &npy), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), text);
    snprintf(text, sizeof text, "%s: can't be written: No such file or directory",
             test_path("no/x.npy"));
    assert_int_equal(tsri_npy_write(test_path("no/x.npy"), TSR_F32, TSR_DIMS(1), &one), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), text);
    assert_int_equal(tsri_npy_write(test_path("x"), TSR_F32, TSR_DIMS(1), NULL), TSR_ERR_INVALID);
    assert_int_equal(tsri_npy_open(NULL, &npy), TSR_ERR_INVALID);
}

static void test_no_memory(void **state)
{
    (void)state;
    write_file("x.npy", npy_files[0].data, npy_files[0].size);
    int64_t n = 1;
    for (;; n++) {
        tsri_mem mem = {.fail_countdown = n};
        tsri_npy npy;
        void *data;
        if (tsri_npy_read(&mem, test_path("x.npy"), &npy, &data) == TSR_OK) {
            tsri_mem_free(data);
            break;
        }
        assert_non_null(strstr(tsr_last_error(), "no memory"));
    }
    assert_int_equal(n, 3);
}

int main(void)
{
#define FOLDER(fn) cmocka_unit_test_setup_teardown(fn, make_test_dir, remove_test_dir)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numpy_files),
        cmocka_unit_test(test_foreign_dtypes),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_damaged),
        FOLDER(test_write),
        FOLDER(test_write_bf16),
        FOLDER(test_file_errors),
        FOLDER(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
