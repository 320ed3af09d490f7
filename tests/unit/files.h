/* SPDX-License-Identifier: Apache-2.0 */
/* Files for tests: a temporary folder, made and removed around each test. */
#ifndef TESSERA_TESTS_FILES_H
#define TESSERA_TESTS_FILES_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char test_dir[PATH_MAX / 2];
static char test_path_buf[PATH_MAX];

static inline int make_test_dir(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(test_dir, sizeof test_dir, "%s/tessera-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(test_dir) ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline int remove_test_dir(void **state)
{
    (void)state;
    return nftw(test_dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* A path in the folder; valid until the next call. */
static inline const char *test_path(const char *name)
{
    snprintf(test_path_buf, sizeof test_path_buf, "%s/%s", test_dir, name);
    return test_path_buf;
}

static inline void write_file(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(test_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

/* The caller frees it. */
static inline unsigned char *read_file(const char *name, size_t *out_bytes)
{
    FILE *f = fopen(test_path(name), "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *out_bytes = (size_t)ftell(f);
    rewind(f);
    unsigned char *data = malloc(*out_bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *out_bytes, f), *out_bytes);
    fclose(f);
    return data;
}

#endif
