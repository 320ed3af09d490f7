/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/files.h"

#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/core/convert.h"
#include "src/nn/safetensors.h"
#include "src/nn/safetensors_text.h"

/* A file from the text of its header and so many bytes of data, counted up from 0. */
static size_t make_file(const char *name, const char *header, size_t data)
{
    size_t n = strlen(header);
    unsigned char *file = calloc(1, 8 + n + data);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < data; i++)
        file[8 + n + i] = (unsigned char)i;
    write_file(name, file, 8 + n + data);
    free(file);
    return 8 + n + data;
}

static tsr_status try_open(const char *name)
{
    tsri_st_file *f = NULL;
    tsr_status status = tsri_st_open(NULL, test_path(name), &f);
    assert_true((status == TSR_OK) == (f != NULL));
    tsri_st_close(f);
    return status;
}

static const char good[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"a\\u00e4\":\"\\\"x\\\\\"},"
    "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    " \"\\u00e9\" : { \"shape\" : [ ] , \"data_offsets\" : [ 24 , 26 ] , \"dtype\" : \"BF16\" } ,\n"
    "\"none\":{\"dtype\":\"I64\",\"shape\":[4,0],\"data_offsets\":[26,26]},"
    "\"odd\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[26,29]},"
    "\"deep\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[29,30]}}   ";

static void a_file_is_read(void **state)
{
    (void)state;
    make_file("a", good, 30);
    tsri_st_file *f;
    assert_int_equal(tsri_st_open(NULL, test_path("a"), &f), TSR_OK);
    assert_string_equal(tsri_st_path(f), test_path("a"));
    assert_int_equal(tsri_st_count(f), 5);
    assert_string_equal(tsri_st_metadata(f, "format"), "pt");
    assert_string_equal(tsri_st_metadata(f, "a\xc3\xa4"), "\"x\\");
    assert_null(tsri_st_metadata(f, "x"));
    const tsri_st_entry *e = tsri_st_find(f, "b.weight");
    assert_non_null(e);
    assert_ptr_equal(e, tsri_st_at(f, 0));
    assert_int_equal(e->dtype, TSR_F32);
    assert_true(tsr_dims_equal(e->dims, TSR_DIMS(2, 3)));
    unsigned char buf[24];
    assert_int_equal(tsri_st_read(f, e, 5, 7, buf), TSR_OK);
    for (int i = 0; i < 7; i++)
        assert_int_equal(buf[i], 5 + i);
    assert_int_equal(tsri_st_read(f, e, 20, 5, buf), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "b.weight"));
    assert_int_equal(tsri_st_read(f, e, 25, 0, buf), TSR_ERR_INVALID);
    e = tsri_st_find(f, "\xc3\xa9");
    assert_non_null(e);
    assert_int_equal(e->dims.ndim, 0);
    assert_int_equal(tsri_st_read(f, e, 0, 2, buf), TSR_OK);
    assert_int_equal(buf[0], 24);
    e = tsri_st_find(f, "none");
    assert_int_equal(tsr_dims_count(e->dims), 0);
    assert_int_equal(tsri_st_read(f, e, 0, 0, buf), TSR_OK);
    assert_int_equal(tsri_st_read(f, tsri_st_find(f, "odd"), 0, 3, buf), TSR_ERR_UNSUPPORTED);
    assert_non_null(strstr(tsr_last_error(), "'odd' has dtype F8_E4M3"));
    assert_int_equal(tsri_st_usable(f, tsri_st_find(f, "deep")), TSR_ERR_UNSUPPORTED);
    assert_non_null(strstr(tsr_last_error(), "'deep' has 9 axes"));
    assert_null(tsri_st_find(f, "b.weigh"));
    tsri_st_close(f);
    tsri_st_close(NULL);
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end \
    "]}"
#define X T("x", "U8", "4", "0", "4")

/* Headers before 4 bytes of data, and words of the error; NULL: legal. */
static const struct {
    const char *header, *word, *more;
} cases[] = {
    {"{" X "}", NULL, NULL},
    {"{" X "} \n\t\r", NULL, NULL},
    {"{\"__metadata__\":{}," X "}", NULL, NULL},
    {"{" T("x", "F4", "8", "0", "4") "}", NULL, NULL},
    {"{" T("x", "U8", "4", "0", "4") "," T("y", "U8", "0", "4", "4") "}", NULL, NULL},
    {"{" T("x", "U8", "0", "0", "0") "," T("y", "U8", "4", "0", "4") "}", NULL, NULL},
    {"{" T("\\u0041", "U8", "4", "0", "4") "}", NULL, NULL},
    {"{" T("\\\\u0000", "U8", "4", "0", "4") "}", NULL, NULL},
    {" {" X "}", "byte 8", "'{'"},
    {"[]", "byte 8", "'{'"},
    {"{", "byte 0", "header of 1 bytes"},
    {"{}", "4 bytes belong to no tensor", NULL},
    {"{ ", "byte 10", "a string is due"},
    {"{" X, "',' or '}' is due", NULL},
    {"{" X "}}", "text behind", NULL},
    {"{" X "}x", "text behind", NULL},
    {"{" X ",}", "a string is due", NULL},
    {"{" X " " T("y", "U8", "0", "4", "4") "}", "',' or '}'", NULL},
    {"{x:1}", "a string is due", NULL},
    {"{\"x\" 1}", "':' is due", NULL},
    {"{\"x\":}", "a value is due", NULL},
    {"{\"x\":1}", "tensor 'x'", "isn't a JSON object"},
    {"{\"x\":null}", "tensor 'x'", "isn't a JSON object"},
    {"{\"x\":[1]}", "tensor 'x'", "isn't a JSON object"},
    {"{\"x\":{]}", "tensor 'x'", "isn't a JSON object"},
    {"{\"x\":{\"dtype\" \"U8\"}}", "tensor 'x'", "isn't a JSON object"},
    {"{\"x\":{}}", "tensor 'x'", "dtype"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4]}}", "tensor 'x'", "data_offsets"},
    {"{\"x\":{\"dtype\":8,\"shape\":[4],\"data_offsets\":[0,4]}}", "tensor 'x'", "dtype"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[0,4]}}", "tensor 'x'", "shape"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"z\":0}}", "unknown key",
     "'z'"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"shape\":[4],\"data_offsets\":[0,4]}}", "repeated",
     "'shape'"},
    {"{\"x\":{\"DTYPE\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", "unknown key", "'DTYPE'"},
    {"{" T("x", "u8", "4", "0", "4") "}", "tensor 'x'", "unknown dtype 'u8'"},
    {"{" T("x", "U8", "-4", "0", "4") "}", "tensor 'x'", "shape"},
    {"{" T("x", "U8", "4.5", "0", "4") "}", "tensor 'x'", "shape"},
    {"{" T("x", "U8", "\"4\"", "0", "4") "}", "tensor 'x'", "shape"},
    {"{" T("x", "U8", "9007199254740992", "0", "4") "}", "tensor 'x'", "2^53"},
    {"{" T("x", "U8", "1e999", "0", "4") "}", "tensor 'x'", "2^53"},
    {"{" T("x", "U8", "4294967296,4294967296", "0", "4") "}", "tensor 'x'", "overflows"},
    {"{" T("x", "F32", "4294967296,1073741824", "0", "4") "}", "tensor 'x'", "elements of F32"},
    {"{" T("x", "U8", "5", "0", "5") "}", "tensor 'x'", "4 bytes of data"},
    {"{" T("x", "U8", "3", "0", "4") "}", "tensor 'x'", "is not its shape's 3 elements of U8"},
    {"{" T("x", "F32", "4", "0", "4") "}", "tensor 'x'", "4 elements of F32"},
    {"{" T("x", "F4", "7", "0", "4") "}", "tensor 'x'", "7 elements of F4"},
    {"{" T("x", "F4", "9", "0", "4") "}", "tensor 'x'", "9 elements of F4"},
    {"{" T("x", "U8", "4", "4", "0") "}", "tensor 'x'", "begin <= end"},
    {"{" T("x", "U8", "4", "0", "4,4") "}", "tensor 'x'", "[begin, end]"},
    {"{" T("x", "U8", "4", "-1", "3") "}", "tensor 'x'", "integers"},
    {"{" T("x", "U8", "2", "0", "2") "}", "last 2 bytes belong to no tensor", NULL},
    {"{" T("x", "U8", "2", "2", "4") "}", "tensor 'x'", "hole of 2 bytes"},
    {"{" T("x", "U8", "1", "0", "1") "," T("y", "U8", "2", "2", "4") "}", "tensor 'y'",
     "hole of 1"},
    {"{" X "," T("y", "U8", "2", "2", "4") "}", "tensor 'y' overlaps tensor 'x'", NULL},
    {"{" X "," T("y", "U8", "4", "0", "4") "}", "tensor 'y' overlaps tensor 'x'", NULL},
    {"{" T("x", "U8", "2", "0", "2") "," T("x", "U8", "2", "2", "4") "}", "tensor 'x'", "twice"},
    {"{" T("x", "U8", "2", "0", "2") "," T("\\u0078", "U8", "2", "2", "4") "}", "'x'", "twice"},
    {"{" T("a\\u0000b", "U8", "4", "0", "4") "}", "NUL", NULL},
    {"{" T("a\nb", "U8", "4", "0", "4") "}", "control character", NULL},
    {"{" T("a\\qb", "U8", "4", "0", "4") "}", "byte 9: not a JSON string", NULL},
    {"{" T("a\\ud800", "U8", "4", "0", "4") "}", "byte 9: not a JSON string", NULL},
    {"{" T("\xff", "U8", "4", "0", "4") "}", "UTF-8", NULL},
    {"{" T("\xc0\x80", "U8", "4", "0", "4") "}", "UTF-8", NULL},
    {"{" T("\xed\xa0\x80", "U8", "4", "0", "4") "}", "UTF-8", NULL},
    {"{" T("\xf4\x90\x80\x80", "U8", "4", "0", "4") "}", "UTF-8", NULL},
    {"{\"__metadata__\":1," X "}", "'{' is due", NULL},
    {"{\"__metadata__\":{\"k\":1}," X "}", "__metadata__", "'k' isn't a string"},
    {"{\"__metadata__\":{\"k\":\"a\",\"k\":\"b\"}," X "}", "__metadata__",
     "'k' stands there twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}," X "}", "__metadata__", "twice"},
    {"{\"x\":{\"dtype\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]", "nested too deeply", NULL},
    {"{\"x\":[1,2", "without end", NULL},
    {"{\"x\":\"ab", "string without end", NULL},
    {"{\"x\":\"ab\\", "string without end", NULL},
};

static void bad_headers_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_file("case.safetensors", cases[i].header, 4);
        tsr_status status = try_open("case.safetensors");
        if (status != (cases[i].word ? TSR_ERR_FORMAT : TSR_OK))
            fail_msg("%s: %s %s", cases[i].header, tsr_status_name(status), tsr_last_error());
        if (!cases[i].word)
            continue;
        const char *more = cases[i].more ? cases[i].more : "";
        if (!strstr(tsr_last_error(), "case.safetensors") ||
            !strstr(tsr_last_error(), cases[i].word) || !strstr(tsr_last_error(), more))
            fail_msg("%s: %s", cases[i].header, tsr_last_error());
    }
}

static void bad_files_are_named(void **state)
{
    (void)state;
    assert_int_equal(try_open("none"), TSR_ERR_IO);
    assert_non_null(strstr(tsr_last_error(), "none"));
    assert_int_equal(mkdir(test_path("folder"), 0777), 0);
    assert_int_equal(try_open("folder"), TSR_ERR_IO);
    const unsigned char huge[16] = {255, 255, 255, 255, 255, 255, 255, 255, '{', '}'};
    write_file("huge", huge, sizeof huge);
    assert_int_equal(try_open("huge"), TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(), "18446744073709551615"));
    /* 100,000,001 in a (sparse) file that has them. */
    const unsigned char big[] = {1, 0xE1, 0xF5, 5, 0, 0, 0, 0, '{', '}'};
    write_file("big", big, sizeof big);
    assert_int_equal(truncate(test_path("big"), 100000009), 0);
    assert_int_equal(try_open("big"), TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(), "2 .. 100000000"));
}

static void every_prefix_and_change_is_survived(void **state)
{
    (void)state;
    size_t bytes = make_file("a", good, 30), n;
    assert_int_equal(try_open("a"), TSR_OK);
    unsigned char *file = read_file("a", &n);
    assert_int_equal(n, bytes);
    for (size_t i = 0; i < n; i++) {
        write_file("b", file, i);
        assert_int_equal(try_open("b"), TSR_ERR_FORMAT);
    }
    /* The header alone cut short, with N told so: only the padding may go. */
    for (size_t i = 8; i < n - 30; i++) {
        unsigned char prefix[8] = {(unsigned char)((i - 8) & 255), (unsigned char)((i - 8) >> 8)};
        unsigned char *copy = malloc(i + 30);
        memcpy(copy, file, i);
        memcpy(copy, prefix, 8);
        memcpy(copy + i, file + n - 30, 30);
        write_file("b", copy, i + 30);
        assert_int_equal(try_open("b"), i + 3 < n - 30 ? TSR_ERR_FORMAT : TSR_OK);
        free(copy);
    }
    /* One byte changed: an error or success, never a crash. */
    uint32_t x = 1;
    for (size_t i = 0; i < n - 30; i++)
        for (int k = 0; k < 4; k++) {
            unsigned char old = file[i];
            x = x * 1664525u + 1013904223u;
            file[i] = k ? (unsigned char)(x >> 24) : (unsigned char)"\"{}[],:0\\"[i % 9];
            write_file("b", file, n);
            try_open("b");
            file[i] = old;
        }
    free(file);
}

static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    size_t bytes = make_file("a", good, 30);
    tsri_st_file *f;
    unsigned char buf[24];
    assert_int_equal(tsri_st_open(NULL, test_path("a"), &f), TSR_OK);
    assert_int_equal(truncate(test_path("a"), (off_t)bytes - 20), 0);
    assert_int_equal(tsri_st_read(f, tsri_st_find(f, "b.weight"), 0, 24, buf), TSR_ERR_IO);
    assert_non_null(strstr(tsr_last_error(), "b.weight"));
    tsri_st_close(f);
}

/* --- writing ---------------------------------------------------------------------------------- */

static int files_in_folder;
static int count_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path, (void)st, (void)ftw;
    files_in_folder += type == FTW_F;
    return 0;
}
static int count_files(void)
{
    files_in_folder = 0;
    nftw(test_dir, count_entry, 8, FTW_PHYS);
    return files_in_folder;
}

static tsri_st_writer *declare(tsri_mem *mem, tsr_status *out_status)
{
    tsri_st_writer *w = NULL;
    tsr_status status = tsri_st_writer_create(mem, test_path("w"), &w);
    if (status == TSR_OK)
        status = tsri_st_writer_add(w, "bytes", TSR_U8, TSR_DIMS(3));
    if (status == TSR_OK)
        status = tsri_st_writer_add(w, "b", TSR_F32, TSR_DIMS(2, 2));
    if (status == TSR_OK)
        status = tsri_st_writer_add(w, "a\"\xc3\xa9\n", TSR_F32, TSR_SCALAR);
    if (status == TSR_OK)
        status = tsri_st_writer_add(w, "wide", TSR_I64, TSR_DIMS(2));
    if (status == TSR_OK)
        status = tsri_st_writer_add(w, "empty", TSR_F16, TSR_DIMS(0, 7));
    if (status == TSR_OK)
        status = tsri_st_writer_add_metadata(w, "format", "pt");
    if (status == TSR_OK)
        status = tsri_st_writer_add_metadata(w, "who", "\"me\"");
    *out_status = status;
    return w;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    const float b[] = {1, 2, 3, 4}, a = 5;
    const int64_t wide[] = {-6, 7};
    tsr_status status;
    tsri_st_writer *w = declare(NULL, &status);
    assert_int_equal(status, TSR_OK);
    assert_int_equal(tsri_st_writer_begin(w), TSR_OK);
    assert_int_equal(tsri_st_writer_write(w, "b", 8, b + 2, 8), TSR_OK);
    assert_int_equal(tsri_st_writer_write(w, "wide", 0, wide, 16), TSR_OK);
    assert_int_equal(tsri_st_writer_write(w, "bytes", 0, "xyz", 3), TSR_OK);
    assert_int_equal(tsri_st_writer_write(w, "a\"\xc3\xa9\n", 0, &a, 4), TSR_OK);
    assert_int_equal(tsri_st_writer_finish(w), TSR_ERR_STATE);
    assert_non_null(strstr(tsr_last_error(), "'b': 8 of 16"));
    assert_int_equal(tsri_st_writer_write(w, "b", 0, b, 8), TSR_OK);
    assert_int_not_equal(access(test_path("w"), F_OK), 0);
    assert_int_equal(tsri_st_writer_finish(w), TSR_OK);
    tsri_st_writer_destroy(w);
    assert_int_equal(count_files(), 1);

    /* The very bytes: aligned header, larger elements first, then names. */
    size_t n;
    unsigned char *file = read_file("w", &n);
    uint64_t header = file[0] | (uint64_t)file[1] << 8;
    assert_int_equal(header % 8, 0);
    assert_int_equal(n, 8 + header + 39);
    const char *want =
        "{\"__metadata__\":{\"format\":\"pt\",\"who\":\"\\\"me\\\"\"},"
        "\"wide\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]},"
        "\"a\\\"\xc3\xa9\\n\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[20,36]},"
        "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[36,36]},"
        "\"bytes\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[36,39]}}";
    assert_memory_equal(file + 8, want, strlen(want));
    for (size_t i = 8 + strlen(want); i < 8 + header; i++)
        assert_int_equal(file[i], ' ');
    assert_memory_equal(file + 8 + header, wide, 16);
    assert_memory_equal(file + 8 + header + 20, b, 16);
    free(file);

    tsri_st_file *f;
    assert_int_equal(tsri_st_open(NULL, test_path("w"), &f), TSR_OK);
    assert_int_equal(tsri_st_count(f), 5);
    assert_string_equal(tsri_st_metadata(f, "who"), "\"me\"");
    float got[4];
    assert_int_equal(tsri_st_read(f, tsri_st_find(f, "b"), 0, 16, got), TSR_OK);
    assert_memory_equal(got, b, 16);
    assert_int_equal(tsri_st_read(f, tsri_st_find(f, "a\"\xc3\xa9\n"), 0, 4, got), TSR_OK);
    assert_true(got[0] == 5);
    tsri_st_close(f);
}

static void an_unfinished_file_leaves_nothing(void **state)
{
    (void)state;
    write_file("w", "old", 3);
    tsr_status status;
    tsri_st_writer *w = declare(NULL, &status);
    assert_int_equal(tsri_st_writer_begin(w), TSR_OK);
    assert_int_equal(tsri_st_writer_write(w, "bytes", 0, "xyz", 3), TSR_OK);
    assert_int_equal(count_files(), 2);
    tsri_st_writer_destroy(w);
    assert_int_equal(count_files(), 1);
    size_t n;
    unsigned char *file = read_file("w", &n);
    assert_int_equal(n, 3);
    free(file);
    tsri_st_writer_destroy(NULL);
}

static void misuse_of_a_writer_is_refused(void **state)
{
    (void)state;
    tsr_status status;
    tsri_st_writer *w = declare(NULL, &status);
    assert_int_equal(tsri_st_writer_add(w, "__metadata__", TSR_U8, TSR_DIMS(1)), TSR_ERR_INVALID);
    assert_int_equal(tsri_st_writer_add(w, "\xff", TSR_U8, TSR_DIMS(1)), TSR_ERR_INVALID);
    assert_int_equal(tsri_st_writer_add(w, "n", TSR_DTYPE_NONE, TSR_DIMS(1)), TSR_ERR_DTYPE);
    assert_int_equal(tsri_st_writer_add(w, "n", TSR_U8, TSR_DIMS(-1)), TSR_ERR_SHAPE);
    assert_int_equal(tsri_st_writer_add(w, "n", TSR_U8, TSR_DIMS(INT64_MAX, 4)), TSR_ERR_SHAPE);
    assert_int_equal(tsri_st_writer_add_metadata(w, "who", "you"), TSR_ERR_INVALID);
    assert_int_equal(tsri_st_writer_write(w, "bytes", 0, "xyz", 3), TSR_ERR_STATE);
    assert_int_equal(tsri_st_writer_finish(w), TSR_ERR_STATE);
    assert_int_equal(tsri_st_writer_begin(w), TSR_OK);
    assert_int_equal(tsri_st_writer_begin(w), TSR_ERR_STATE);
    assert_int_equal(tsri_st_writer_add(w, "n", TSR_U8, TSR_DIMS(1)), TSR_ERR_STATE);
    assert_int_equal(tsri_st_writer_write(w, "n", 0, "x", 1), TSR_ERR_INVALID);
    assert_int_equal(tsri_st_writer_write(w, "bytes", 1, "xyz", 3), TSR_ERR_INVALID);
    assert_int_equal(tsri_st_writer_write(w, "bytes", 0, "xyz", 3), TSR_OK);
    assert_int_equal(tsri_st_writer_write(w, "bytes", 0, "x", 1), TSR_ERR_INVALID);
    tsri_st_writer_destroy(w);
    w = declare(NULL, &status);
    assert_int_equal(tsri_st_writer_add(w, "b", TSR_U8, TSR_DIMS(1)), TSR_OK);
    assert_int_equal(tsri_st_writer_begin(w), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "'b' declared twice"));
    tsri_st_writer_destroy(w);
    assert_int_equal(tsri_st_writer_create(NULL, test_path("no/w"), &w), TSR_OK);
    assert_int_equal(tsri_st_writer_begin(w), TSR_ERR_IO);
    tsri_st_writer_destroy(w);
    assert_int_equal(count_files(), 0);
}

static void failing_allocations_are_errors(void **state)
{
    (void)state;
    make_file("a", good, 30);
    tsri_mem mem = {0};
    for (int writing = 0; writing < 2; writing++) {
        tsr_status status = TSR_ERR_NO_MEMORY;
        int n = 0;
        while (status != TSR_OK) {
            assert_int_equal(status, TSR_ERR_NO_MEMORY);
            mem.fail_countdown = ++n;
            if (writing) {
                tsri_st_writer *w = declare(&mem, &status);
                if (status == TSR_OK)
                    status = tsri_st_writer_begin(w);
                tsri_st_writer_destroy(w);
            } else {
                tsri_st_file *f = NULL;
                status = tsri_st_open(&mem, test_path("a"), &f);
                tsri_st_close(f);
            }
        }
        assert_true(n > 3);
    }
    assert_int_equal(count_files(), 1);
}

static void many_tensors_are_quick(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    char name[32];
    tsri_st_writer *w;
    assert_int_equal(tsri_st_writer_create(NULL, test_path("many"), &w), TSR_OK);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "layer.%d.weight", i * 7919 % COUNT);
        assert_int_equal(tsri_st_writer_add(w, name, TSR_I32, TSR_DIMS(1)), TSR_OK);
    }
    assert_int_equal(tsri_st_writer_begin(w), TSR_OK);
    for (int32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "layer.%d.weight", i);
        assert_int_equal(tsri_st_writer_write(w, name, 0, &i, 4), TSR_OK);
    }
    assert_int_equal(tsri_st_writer_finish(w), TSR_OK);
    tsri_st_writer_destroy(w);
    tsri_st_file *f;
    assert_int_equal(tsri_st_open(NULL, test_path("many"), &f), TSR_OK);
    assert_int_equal(tsri_st_count(f), COUNT);
    for (int32_t i = 0, got; i < COUNT; i++) {
        snprintf(name, sizeof name, "layer.%d.weight", i);
        assert_int_equal(tsri_st_read(f, tsri_st_find(f, name), 0, 4, &got), TSR_OK);
        assert_int_equal(got, i);
    }
    tsri_st_close(f);
}

/* --- conversion ------------------------------------------------------------------------------- */

/* The value of a half by its definition. */
static double half_value(unsigned bits, int ebits, int mbits)
{
    int e = (int)(bits >> mbits) & ((1 << ebits) - 1), m = (int)bits & ((1 << mbits) - 1);
    int bias = (1 << (ebits - 1)) - 1;
    double v = e == (1 << ebits) - 1 ? (m ? NAN : INFINITY)
               : e                   ? ldexp((1 << mbits) + m, e - bias - mbits)
                                     : ldexp(m, 1 - bias - mbits);
    return bits >> 15 ? -v : v;
}

static void check_half(tsr_dtype dtype, int ebits, int mbits)
{
    unsigned top = ((1u << ebits) - 1) << mbits; /* infinity */
    for (unsigned i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i, back;
        double d, want = half_value(i, ebits, mbits);
        float f;
        assert_int_equal(tsri_convert(&d, TSR_F64, &h, dtype, 1), TSR_OK);
        assert_int_equal(tsri_convert(&f, TSR_F32, &h, dtype, 1), TSR_OK);
        if (isnan(want)) {
            assert_true(isnan(d) && isnan(f));
            assert_int_equal(tsri_convert(&back, dtype, &d, TSR_F64, 1), TSR_OK);
            assert_true(isnan(half_value(back, ebits, mbits)));
            continue;
        }
        assert_true(d == want && f == (float)want && !signbit(d) == !(i >> 15));
        assert_int_equal(tsri_convert(&back, dtype, &d, TSR_F64, 1), TSR_OK);
        assert_int_equal(back, i);
        assert_int_equal(tsri_convert(&back, dtype, &f, TSR_F32, 1), TSR_OK);
        assert_int_equal(back, i);
        /* Between two neighbours: below and above the middle, and at it to the even one. The number
         * above the largest counts as if the format went on. */
        if ((i & 0x7FFF) >= top || i >> 15)
            continue;
        double next = i + 1 == top ? 2 * want - half_value(i - 1, ebits, mbits)
                                   : half_value(i + 1, ebits, mbits);
        double middle = (want + next) / 2;
        const double at[] = {nextafter(middle, -INFINITY), middle, nextafter(middle, INFINITY)};
        const unsigned to[] = {i, i & 1 ? i + 1 : i, i + 1};
        for (int k = 0; k < 3; k++)
            for (int s = 0; s < 2; s++) {
                d = s ? -at[k] : at[k];
                assert_int_equal(tsri_convert(&back, dtype, &d, TSR_F64, 1), TSR_OK);
                assert_int_equal(back, to[k] | (s ? 0x8000 : 0));
            }
    }
}

static void halves_round_once_to_even(void **state)
{
    (void)state;
    check_half(TSR_F16, 5, 10);
    check_half(TSR_BF16, 8, 7);
}

static void other_conversions(void **state)
{
    (void)state;
    const double d[] = {1.0 + 0x1p-24, 1e300, -0.0, 1e-310};
    float f[4];
    uint16_t h[4];
    assert_int_equal(tsri_convert(f, TSR_F32, d, TSR_F64, 4), TSR_OK);
    assert_true(f[0] == 1.0F && isinf(f[1]) && signbit(f[2]) && f[3] == 0);
    assert_int_equal(tsri_convert(h, TSR_F16, d, TSR_F64, 4), TSR_OK);
    assert_true(h[0] == 0x3C00 && h[1] == 0x7C00 && h[2] == 0x8000 && h[3] == 0);
    const uint16_t bf[] = {0x3F80, 0x7F7F};
    assert_int_equal(tsri_convert(h, TSR_F16, bf, TSR_BF16, 2), TSR_OK);
    assert_true(h[0] == 0x3C00 && h[1] == 0x7C00);
    const int64_t i[] = {INT64_MIN, 3};
    int64_t j[2];
    assert_int_equal(tsri_convert(j, TSR_I64, i, TSR_I64, 2), TSR_OK);
    assert_memory_equal(i, j, sizeof i);
    assert_int_equal(tsri_convert(f, TSR_F32, i, TSR_I64, 2), TSR_ERR_DTYPE);
    assert_non_null(strstr(tsr_last_error(), "i64 to f32"));
    assert_int_equal(tsri_convert(j, TSR_DTYPE_NONE, i, TSR_DTYPE_NONE, 2), TSR_ERR_DTYPE);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_test_dir, remove_test_dir)

/* An object whose text is cut anywhere has no end, whatever stands behind it in memory. */
static void members_end_with_their_text(void **state)
{
    (void)state;
    static const char text[] = " { \"a\" : 1 , \"b\\\"\":{\"c\":[1, \"}\"]},\"d\":true } ";
    static const char behind[] = "} \",:{]1\\";
    const size_t whole = sizeof text - 2; /* but for the last blank */
    for (size_t n = 0; n <= whole; n++)
        for (const char *c = behind; *c; c++) {
            char buffer[sizeof text + 8];
            memset(buffer, *c, sizeof buffer);
            memcpy(buffer, text, n);
            tsri_members m = {.at = buffer, .end = buffer + n};
            tsri_span key, value;
            int members = 0;
            while (tsri_members_next(&m, &key, &value))
                members++;
            assert_true(m.at <= m.end);
            if (n < whole && !m.fault)
                fail_msg("'%.*s' before '%c' has an end", (int)n, text, *c);
            assert_true(n < whole || (!m.fault && members == 3));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_read),
        TEST(bad_headers_are_named),
        TEST(bad_files_are_named),
        TEST(every_prefix_and_change_is_survived),
        TEST(a_file_that_shrinks_is_an_error),
        TEST(what_is_written_is_read),
        TEST(an_unfinished_file_leaves_nothing),
        TEST(misuse_of_a_writer_is_refused),
        TEST(failing_allocations_are_errors),
        TEST(many_tensors_are_quick),
        cmocka_unit_test(members_end_with_their_text),
        cmocka_unit_test(halves_round_once_to_even),
        cmocka_unit_test(other_conversions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
