/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are there as a whole or not at all: beside other writers, links, killed processes,
 * full disks, and what is no file. */
#include "src/core/new_file.h"
#include "files.h"
#include "tests/dist/plan/entries.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[PATH_MAX], other[PATH_MAX];

static int set_up(void **state)
{
    if (make_test_dir(state))
        return -1;
    snprintf(path, sizeof path, "%s/result", test_dir);
    snprintf(other, sizeof other, "%s/other", test_dir);
    return 0;
}

static int count_files(void)
{
    return count_entries(test_dir) - 2;
}

static void expect(const char *name, const char *text)
{
    char found[64] = "";
    FILE *f = fopen(name, "re");
    assert_non_null(f);
    size_t n = fread(found, 1, sizeof found - 1, f);
    fclose(f);
    found[n] = 0;
    assert_string_equal(found, text);
}

static void write_all(const char *name, const char *text)
{
    tsri_new_file f;
    assert_int_equal(tsri_new_file_stream(&f, name), 0);
    fputs(text, f.stream);
    assert_int_equal(tsri_new_file_keep(&f, true), 0);
}

static void test_whole_or_not(void **state)
{
    (void)state;
    tsri_new_file f;
    assert_int_equal(tsri_new_file_stream(&f, path), 0);
    fputs("one", f.stream);
    fflush(f.stream);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(tsri_new_file_keep(&f, false), 0);
    tsri_new_file_drop(&f);
    expect(path, "one");
    assert_int_equal(tsri_new_file_open(&f, path), 0);
    assert_int_equal(write(f.fd, "two", 3), 3);
    expect(path, "one");
    tsri_new_file_drop(&f);
    expect(path, "one");
    write_all(path, "three");
    expect(path, "three");
    assert_int_equal(count_files(), 1);
}

static void test_mode(void **state)
{
    (void)state;
    struct stat st;
    mode_t before = umask(027);
    write_all(path, "one");
    umask(before);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
}

/* A link at the file's name is replaced; what it leads to stays as it is. */
static void test_link(void **state)
{
    (void)state;
    struct stat st;
    write_all(other, "precious");
    assert_int_equal(symlink(other, path), 0);
    write_all(path, "one");
    expect(path, "one");
    expect(other, "precious");
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
}

static void test_two_writers(void **state)
{
    (void)state;
    tsri_new_file a, b;
    assert_int_equal(tsri_new_file_stream(&a, path), 0);
    assert_int_equal(tsri_new_file_stream(&b, path), 0);
    fputs("a", a.stream);
    fputs("b", b.stream);
    assert_int_equal(count_files(), 2);
    assert_int_equal(tsri_new_file_keep(&b, false), 0);
    expect(path, "b");
    assert_int_equal(tsri_new_file_keep(&a, false), 0);
    expect(path, "a");
    assert_int_equal(count_files(), 1);
}

static void be_killed_writing(const char *name)
{
    pid_t pid = fork();
    if (pid == 0) {
        tsri_new_file f;
        if (tsri_new_file_open(&f, name) || write(f.fd, "half", 4) != 4)
            _exit(1);
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_killed(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        be_killed_writing(path);
    assert_int_equal(count_files(), 1); /* each has removed what the one before left */
    be_killed_writing(other);
    write_all(path, "one");
    assert_int_equal(count_files(), 2); /* path, and what is left of the other */
    write_all(other, "two");
    assert_int_equal(count_files(), 2);
    expect(path, "one");
    expect(other, "two");
}

static void test_no_file(void **state)
{
    (void)state;
    char name[PATH_MAX], missing[PATH_MAX];
    tsri_new_file f;
    struct stat st;
    assert_int_equal(tsri_new_file_open(&f, test_dir), -EISDIR);
    assert_int_equal(tsri_new_file_open(&f, ""), -ENOENT);
    snprintf(missing, sizeof missing, "%s/no/result", test_dir);
    assert_int_equal(tsri_new_file_stream(&f, missing), -ENOENT);
    tsri_new_file_drop(&f); /* nothing to end */
    memset(name, 'x', sizeof name);
    name[snprintf(name, sizeof name, "%s/", test_dir)] = 'x';
    name[strlen(test_dir) + 1 + 256] = 0;
    assert_int_equal(tsri_new_file_open(&f, name) ? 0 : tsri_new_file_keep(&f, false),
                     -ENAMETOOLONG);
    name[strlen(test_dir) + 1 + 255] = 0;
    write_all(name, "long");
    unlink(name);
    write_all("/dev/null", "gone");
    assert_int_equal(tsri_new_file_stream(&f, "/dev/full"), 0);
    fputs("one", f.stream);
    assert_int_equal(tsri_new_file_keep(&f, false), -ENOSPC);
    assert_true(stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode));
    assert_int_equal(count_files(), 0);
}

/* No byte can be written, as on a full disk: the file before stays. */
static void test_full(void **state)
{
    (void)state;
    struct rlimit before, none;
    tsri_new_file f;
    write_all(path, "one");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(tsri_new_file_stream(&f, path), 0);
    fputs("two", f.stream);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int rc = tsri_new_file_keep(&f, true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, -EFBIG);
    expect(path, "one");
    assert_int_equal(count_files(), 1);
}

/* The first write fails, and there is room again before the last: a part of the file is lost. */
static void test_full_for_a_while(void **state)
{
    (void)state;
    char text[10000] = "";
    struct rlimit before, none;
    tsri_new_file f;
    write_all(path, "one");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 100;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(tsri_new_file_stream(&f, path), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (int i = 0; i < 10; i++)
        fwrite(text, 1, sizeof text, f.stream);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(tsri_new_file_keep(&f, false), -EFBIG);
    expect(path, "one");
    assert_int_equal(count_files(), 1);
}

static void test_folders(void **state)
{
    (void)state;
    struct stat st;
    char folder[PATH_MAX + 8];
    snprintf(folder, sizeof folder, "%s/a//b/", test_dir);
    assert_int_equal(tsri_make_folders(folder, 0700), 0);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(tsri_make_folders(folder, 0777), 0);
    write_all(path, "a file");
    assert_int_equal(tsri_make_folders(path, 0777), -ENOTDIR);
    snprintf(folder, sizeof folder, "%s/a/b", path);
    assert_int_equal(tsri_make_folders(folder, 0777), -ENOTDIR);
    assert_int_equal(tsri_make_folders("", 0777), -ENOENT);
    snprintf(folder, sizeof folder, "%s/a/b", test_dir);
    assert_int_equal(rmdir(folder), 0);
    snprintf(folder, sizeof folder, "%s/a", test_dir);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole_or_not, set_up, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_mode, set_up, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_link, set_up, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_two_writers, set_up, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_killed, set_up, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_no_file, set_up, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_full, set_up, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_full_for_a_while, set_up, remove_test_dir),
        cmocka_unit_test_setup_teardown(test_folders, set_up, remove_test_dir),
    };
    return cmocka_run_group_tests_name("new_file", tests, NULL, NULL);
}
