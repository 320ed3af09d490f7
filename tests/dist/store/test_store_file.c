/* SPDX-License-Identifier: Apache-2.0 */
/* The store in a file: what earlier runs left, in whatever state; runs that get in each other's
 * way. */
#include "store_ranks.h"
#include "tests/unit/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD = 256 }; /* bytes before the first record */

static char path[PATH_MAX], url[PATH_MAX];

static void new_path(void)
{
    static int number;
    char name[32];
    snprintf(name, sizeof name, "file-%d", number++);
    snprintf(path, sizeof path, "%.2000s", test_path(name));
    snprintf(url, sizeof url, "file://%.2000s", path);
}

static void expect_gone(void)
{
    if (access(path, F_OK) == 0)
        fail_msg("%s is still there", path);
}

/* A run that is as it should be: sees nothing of what was there, and all of what it sets. */
static tsr_status fresh(tsr_store *s, int rank, void *arg)
{
    char text[8];
    int64_t n;
    const char *old = "old";
    bool there;
    (void)arg;
    CHECK(tsr_store_check(s, 1, &old, &there) == TSR_OK && !there);
    CHECK(tsr_store_add(s, "come", 1, &n) == TSR_OK && n <= tsr_store_size(s));
    if (rank == 0)
        CHECK(tsr_store_set(s, "x", "new", 3) == TSR_OK);
    CHECK(tsr_store_get(s, "x", text, sizeof text, NULL) == TSR_OK && memcmp(text, "new", 3) == 0);
    return TSR_OK;
}

/* The others come before rank 0. */
static void run_fresh(int nranks, bool processes)
{
    crew c;
    crew_make(&c, url, nranks, fresh);
    c.processes = processes;
    for (int r = nranks - 1; r > 0; r--)
        crew_start(&c, r);
    sleep_s(0.1);
    crew_start(&c, 0);
    crew_finish(&c);
    expect_gone();
}

static tsr_status set_old(tsr_store *s, int rank, void *arg)
{
    crew_board *b = arg;
    CHECK(tsr_store_set(s, "old", "value", 5) == TSR_OK);
    CHECK(tsr_store_add(s, "come", 5, NULL) == TSR_OK);
    atomic_fetch_add(&b->flag[0], 1);
    if (rank >= 0)
        sleep_s(100); /* until it is killed */
    return TSR_OK;
}

/* Of a run of 3 whose processes were all killed when they had set keys. */
static unsigned char *leave_complete(size_t *bytes)
{
    crew c;
    crew_make(&c, url, 3, set_old);
    c.processes = true;
    crew_start_all(&c);
    await_flag(&c.board->flag[0], 3);
    for (int r = 0; r < 3; r++)
        crew_kill(&c, r);
    crew_free(&c);
    unsigned char *data = read_file(strrchr(path, '/') + 1, bytes);
    assert_true(*bytes > HEAD + 100);
    return data;
}

static void put_file(const unsigned char *data, size_t bytes)
{
    write_file(strrchr(path, '/') + 1, data, bytes);
}

static void test_left_complete(void **state)
{
    (void)state;
    size_t bytes;
    new_path();
    free(leave_complete(&bytes));
    run_fresh(3, false);
    free(leave_complete(&bytes));
    run_fresh(2, true); /* of another size */
}

/* Killed while they met. */
static void test_left_partial(void **state)
{
    (void)state;
    new_path();
    crew c;
    crew_make(&c, url, 4, NULL);
    c.processes = true;
    for (int kills = 0; kills < 6; kills++) {
        crew_start(&c, 0);
        if (kills & 1)
            crew_start(&c, 2);
        while (access(path, F_OK) != 0)
            sleep_s(0.001);
        sleep_s(0.03 * kills);
        if (kills & 1)
            crew_kill(&c, kills & 2 ? 2 : 0), crew_kill(&c, kills & 2 ? 0 : 2);
        else
            crew_kill(&c, 0);
        assert_int_equal(access(path, F_OK), 0);
    }
    crew_free(&c);
    run_fresh(4, false);
}

/* A file of ours that ends anywhere, or in which a byte differs. */
static void test_left_in_any_state(void **state)
{
    (void)state;
    size_t bytes;
    new_path();
    unsigned char *data = leave_complete(&bytes);
    for (size_t cut = 0; cut < bytes; cut += cut < HEAD + 20 ? 13 : 61) {
        put_file(data, cut);
        run_fresh(2, false);
    }
    for (size_t at = 16; at < bytes; at += at < HEAD ? 29 : 83) {
        data[at] ^= 0x55;
        put_file(data, bytes);
        data[at] ^= 0x55;
        run_fresh(2, false);
    }
    /* Zeros behind, as a machine leaves them that went down. */
    unsigned char *longer = calloc(1, bytes + 5000);
    memcpy(longer, data, bytes);
    put_file(longer, bytes + 5000);
    run_fresh(2, false);
    put_file(longer, HEAD);
    run_fresh(2, false);
    free(longer);
    free(data);
}

/* A member who dies while it writes: the others go on behind what is whole. */
static tsr_status torn(tsr_store *s, int rank, void *arg)
{
    crew_board *b = arg;
    char text[16];
    size_t n;
    const char *last = "end";
    if (rank == 0) {
        CHECK(tsr_store_set(s, "a", "1", 1) == TSR_OK);
        await_flag(&b->flag[0], 1);
        int fd = open(path, O_WRONLY | O_APPEND);
        char rest[5000] = "";
        CHECK(fd >= 0);
        CHECK(write(fd, "\x12\x34\x56\x78\x12\x34\x56\x78\1\0\0\0\3\0\0\0\0\1\0\0\0\0\0\0key-",
                    28) == 28);
        CHECK(write(fd, rest, sizeof rest) == sizeof rest);
        close(fd);
        atomic_store(&b->flag[0], 2);
        CHECK(tsr_store_get(s, "b", text, sizeof text, &n) == TSR_OK && n == 1);
        CHECK(tsr_store_set(s, "c", "3", 1) == TSR_OK);
        struct stat st;
        CHECK(stat(path, &st) == 0 && st.st_size < 5000); /* nothing of it is left */
    } else {
        CHECK(tsr_store_get(s, "a", text, sizeof text, &n) == TSR_OK && n == 1);
        atomic_store(&b->flag[0], 1);
        await_flag(&b->flag[0], 2);
        CHECK(tsr_store_set(s, "b", "2", 1) == TSR_OK);
        CHECK(tsr_store_get(s, "c", text, sizeof text, &n) == TSR_OK && n == 1 && text[0] == '3');
        CHECK(tsr_store_set(s, last, "", 0) == TSR_OK);
    }
    return tsr_store_wait(s, 1, &last, 0);
}

static void test_torn_record(void **state)
{
    (void)state;
    crew c;
    new_path();
    crew_make(&c, url, 2, torn);
    crew_start_all(&c);
    crew_finish(&c);
    expect_gone();
}

/* Not ours: told, by all ranks, and left as it is. */
static void test_foreign(void **state)
{
    (void)state;
    static const char *const texts[] = {"x", "TESSERA-STORE-2\nand so on", "TESSERA-STORE-1\t",
                                        "a,b\n1,2\n"};
    tsr_store *s;
    new_path();
    const char *name = strrchr(path, '/') + 1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t n = strlen(texts[i]), bytes;
        put_file((const unsigned char *)texts[i], n);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(
                tsr_store_open(url, TSR_STORE_OPTS(.rank = r, .nranks = 2, .timeout_s = 30), &s),
                TSR_ERR_FORMAT);
            assert_non_null(strstr(tsr_last_error(), "is no store of ours: it stays as it is"));
        }
        unsigned char *data = read_file(name, &bytes);
        assert_int_equal(bytes, n);
        assert_memory_equal(data, texts[i], n);
        free(data);
    }
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.nranks = 1), &s), TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(), "is no regular file"));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.nranks = 1), &s), TSR_ERR_FORMAT);
    unlink(path);
    strcat(url, "-no/such");
    for (int r = 0; r < 2; r++) {
        assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.rank = r, .nranks = 2), &s),
                         TSR_ERR_IO);
        assert_non_null(strstr(tsr_last_error(), "there is no folder"));
    }
}

/* Runs after each other at one path, of threads and of processes; a rank of the next may be there
 * before the last of the one before has left. */
static void test_fifty_runs(void **state)
{
    (void)state;
    crew a[2];
    new_path();
    for (int i = 0; i < 50; i++) {
        crew *c = &a[i & 1];
        crew_make(c, url, 3, fresh);
        c->processes = i % 5 == 0;
        crew_start_all(c);
        crew_finish(c);
    }
    expect_gone();
}

/* One run's ranks that open and close again and again, with nothing in between to wait for. */
static tsr_status again(tsr_store *s, int rank, void *arg)
{
    tsr_store *mine;
    (void)arg, (void)s;
    for (int i = 0; i < 50; i++) {
        CHECK(tsr_store_open(url, TSR_STORE_OPTS(.rank = rank, .nranks = 3), &mine) == TSR_OK);
        tsr_status status = fresh(mine, rank, NULL);
        tsr_store_close(mine);
        TSRI_TRY(status);
    }
    return TSR_OK;
}

static void test_again_and_again(void **state)
{
    (void)state;
    for (int processes = 0; processes < 2; processes++) {
        crew c;
        char outer[PATH_MAX];
        new_path();
        strcpy(outer, url);
        new_path();
        crew_make(&c, outer, 3, again);
        c.processes = processes;
        crew_start_all(&c);
        crew_finish(&c);
        expect_gone();
    }
}

static tsr_status hold(tsr_store *s, int rank, void *arg)
{
    crew_board *b = arg;
    (void)s, (void)rank;
    atomic_fetch_add(&b->flag[0], 1);
    await_flag(&b->flag[1], 1);
    return tsr_store_add(s, "x", 1, NULL);
}

/* Another run's rank 0, and its others, while a run is under way. */
static void test_in_use(void **state)
{
    (void)state;
    crew c;
    tsr_store *s;
    char pid[32];
    new_path();
    crew_make(&c, url, 3, hold);
    c.processes = true;
    crew_start_all(&c);
    await_flag(&c.board->flag[0], 3);
    double start = now_s();
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.rank = 0, .nranks = 3), &s),
                     TSR_ERR_STATE);
    snprintf(pid, sizeof pid, "process %d on ", (int)c.pid[0]);
    assert_non_null(strstr(tsr_last_error(), pid));
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.rank = 2, .nranks = 3), &s),
                     TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "rank 2 has joined "));
    assert_true(now_s() - start < 30);
    /* A larger run's: it may be the next. */
    assert_int_equal(
        tsr_store_open(url, TSR_STORE_OPTS(.rank = 4, .nranks = 5, .timeout_s = 0.2), &s),
        TSR_ERR_TIMEOUT);
    assert_non_null(strstr(tsr_last_error(), "another run, whose rank 0 is process"));
    /* One that knows no rank sees all. */
    assert_int_equal(tsri_store_connect(url, TSR_STORE_OPTS(.timeout_s = 20), &s), TSR_OK);
    assert_int_equal(tsr_store_set(s, "y", "", 0), TSR_OK);
    tsr_store_close(s);
    atomic_store(&c.board->flag[1], 1);
    crew_finish(&c);
    expect_gone();
}

/* Rank 0 has left, another has not: the next run waits for it, and not for ever. */
static void test_not_all_have_left(void **state)
{
    (void)state;
    crew c;
    tsr_store *old[2], *s;
    new_path();
    crew_make(&c, url, 2, NULL);
    for (int r = 0; r < 2; r++) /* opened one by one: nobody waits */
        crew_start(&c, r);
    crew_finish(&c);
    crew_make(&c, url, 2, hold);
    c.processes = true;
    crew_start(&c, 1);
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.rank = 0, .nranks = 2), &old[0]), TSR_OK);
    tsr_store_close(old[0]);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(
        tsr_store_open(url, TSR_STORE_OPTS(.rank = 0, .nranks = 1, .timeout_s = 0.3), &s),
        TSR_ERR_STATE);
    assert_non_null(strstr(tsr_last_error(), "of which rank 1 (process "));
    atomic_store(&c.board->flag[1], 1);
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.rank = 0, .nranks = 1), &s), TSR_OK);
    tsr_store_close(s);
    crew_join(&c, 1);
    crew_expect(&c, 1, TSR_OK, "");
    crew_free(&c);
    expect_gone();
}

static tsr_status wait_in_vain(tsr_store *s, int rank, void *arg)
{
    crew_board *b = arg;
    atomic_fetch_add(&b->flag[0], 1);
    if (rank == 0)
        sleep_s(100);
    char text[8];
    TSRI_TRY(tsr_store_get(s, "never", text, sizeof text, NULL));
    return TSR_OK;
}

/* Rank 0 is killed: who waits is told; the next run takes over, whoever is still there. */
static void test_rank_0_dies(void **state)
{
    (void)state;
    crew c;
    new_path();
    crew_make(&c, url, 3, wait_in_vain);
    c.processes = true;
    crew_start_all(&c);
    await_flag(&c.board->flag[0], 3);
    crew_kill(&c, 0);
    for (int r = 1; r < 3; r++) {
        crew_join(&c, r);
        crew_expect(&c, r, TSR_ERR_DEAD, "is gone, at tsr_store_get of 'never'");
        crew_expect(&c, r, TSR_ERR_DEAD, "rank 0 of file://");
    }
    crew_free(&c);
    expect_gone(); /* the last one alive removed it */
}

/* The file is taken away, overwritten, replaced, or taken over under a run. */
static void test_replaced(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        crew c;
        new_path();
        crew_make(&c, url, 2, wait_in_vain);
        c.fn = hold;
        crew_start_all(&c);
        await_flag(&c.board->flag[0], 2);
        if (how == 0) {
            unlink(path);
        } else if (how == 1) {
            put_file((const unsigned char *)"something else", 14);
        } else if (how == 2) {
            unlink(path);
            tsr_store *s;
            assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.nranks = 1), &s), TSR_OK);
            atomic_store(&c.board->flag[1], 1);
            crew_join(&c, 0);
            crew_join(&c, 1);
            assert_int_equal(tsr_store_set(s, "x", "", 0), TSR_OK);
            tsr_store_close(s);
        } else {
            put_file((const unsigned char *)"", 0);
        }
        static const char *const texts[] = {
            "was removed", "was overwritten by something else",
            "was taken over by another run, whose rank 0 is process", "was overwritten"};
        atomic_store(&c.board->flag[1], 1);
        for (int r = 0; r < 2; r++) {
            crew_join(&c, r);
            crew_expect(&c, r, TSR_ERR_DEAD, texts[how]);
        }
        crew_free(&c);
        unlink(path);
    }
}

/* A rank that is killed while the ranks meet may come again; so may rank 0. */
static void test_come_again(void **state)
{
    (void)state;
    for (int who = 0; who < 2; who++) {
        crew c;
        new_path();
        crew_make(&c, url, 3, fresh);
        c.processes = true;
        crew_start(&c, 0);
        crew_start(&c, 1);
        sleep_s(0.3);
        crew_kill(&c, who);
        sleep_s(0.1);
        crew_start(&c, who);
        sleep_s(0.2);
        crew_start(&c, 2);
        crew_finish(&c);
        expect_gone();
    }
}

static void test_meeting_errors(void **state)
{
    (void)state;
    crew c;
    tsr_store *s;
    new_path();
    assert_int_equal(
        tsr_store_open(url, TSR_STORE_OPTS(.rank = 1, .nranks = 4, .timeout_s = 0.2), &s),
        TSR_ERR_TIMEOUT);
    assert_non_null(strstr(tsr_last_error(), "rank 0 of 4 has not come to file://"));
    assert_non_null(strstr(tsr_last_error(), "there is no such file yet"));
    crew_make(&c, url, 5, NULL);
    c.timeout_s = 5;
    crew_start(&c, 0);
    crew_start(&c, 2);
    sleep_s(0.5);
    const double start = now_s();
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.rank = 2, .nranks = 5), &s),
                     TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "rank 2 has joined file://"));
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.rank = 0, .nranks = 5), &s),
                     TSR_ERR_INVALID);
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.rank = 1, .nranks = 4), &s),
                     TSR_ERR_MISMATCH);
    assert_non_null(strstr(tsr_last_error(), "says that there are 5 ranks"));
    assert_true(now_s() - start < 30);
    crew_join(&c, 0);
    crew_join(&c, 2);
    crew_expect(&c, 0, TSR_ERR_TIMEOUT, "ranks 1, 3, 4 of 5 have not come to file://");
    crew_expect(&c, 2, TSR_ERR_TIMEOUT, "ranks 1, 3, 4 of 5 have not come to file://");
    crew_free(&c);
    expect_gone();
    assert_int_equal(tsri_store_connect(url, TSR_STORE_OPTS(.timeout_s = 0.1), &s),
                     TSR_ERR_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_complete),     cmocka_unit_test(test_left_partial),
        cmocka_unit_test(test_left_in_any_state), cmocka_unit_test(test_torn_record),
        cmocka_unit_test(test_foreign),           cmocka_unit_test(test_fifty_runs),
        cmocka_unit_test(test_again_and_again),   cmocka_unit_test(test_in_use),
        cmocka_unit_test(test_not_all_have_left), cmocka_unit_test(test_rank_0_dies),
        cmocka_unit_test(test_replaced),          cmocka_unit_test(test_come_again),
        cmocka_unit_test(test_meeting_errors),
    };
    return cmocka_run_group_tests_name("store_file", tests, make_test_dir, remove_test_dir);
}
