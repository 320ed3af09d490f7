/* SPDX-License-Identifier: Apache-2.0 */
/* The token that `tessera launch` makes for a run, or is given. Arguments: the command, and
 * launch_child. */
#include "launch_run.h"
#include "src/comm/store/store.h"
#include "tests/dist/store/store_ranks.h"

#include <sys/stat.h>
#include <unistd.h>

static const char right[] = "0123456789abcdef0123456789abcdef";
static const char show[] = "echo token $TESSERA_STORE_TOKEN.";
static char folder[] = "/tmp/tessera-token-XXXXXX", path[64];
static run it, node[2];

static void write_file(const char *text, mode_t mode)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

/* The token of the only line, or of two that say the same. */
static void take_token(char out[65], int ranks)
{
    const char *at = strstr(it.text, "token ");
    assert_int_equal(it.code, 0);
    assert_non_null(at);
    snprintf(out, 65, "%.64s", at + 6);
    assert_int_equal(strspn(out, "0123456789abcdef"), 64);
    assert_int_equal(run_count(&it, out), ranks);
}

/* One node: another one for each run, the same for its ranks. */
static void test_random(void **state)
{
    (void)state;
    char first[65], second[65];
    RUN(&it, "-n", "2", "sh", "-c", show);
    take_token(first, 2);
    RUN(&it, "sh", "-c", show);
    take_token(second, 1);
    assert_string_not_equal(first, second);
}

static void test_given(void **state)
{
    (void)state;
    setenv("TESSERA_STORE_TOKEN", right, 1);
    RUN(&it, "sh", "-c", show);
    run_expect(&it, 0, "token 0123456789abcdef0123456789abcdef.");
    write_file("fedcba9876543210\n", 0600);
    RUN(&it, "--token-file", path, "sh", "-c", show);
    run_expect(&it, 0, "token fedcba9876543210.");
    setenv("TESSERA_STORE_TOKEN", "short", 1);
    RUN(&it, "sh", "-c", show);
    run_expect(&it, 1, "a token of 5 characters in TESSERA_STORE_TOKEN: legal are 16 to 256");
    unsetenv("TESSERA_STORE_TOKEN");
}

static void expect_file(const char *part)
{
    RUN(&it, "--token-file", path, "sh", "-c", show);
    run_expect(&it, 1, part);
    assert_int_equal(run_count(&it, "token 0"), 0);
}

static void test_files(void **state)
{
    (void)state;
    static const mode_t open_to_others[] = {0640, 0604, 0620, 0602};
    for (size_t i = 0; i < sizeof open_to_others / sizeof *open_to_others; i++) {
        write_file(right, open_to_others[i]);
        expect_file("others may read or write the file: chmod 600 it");
    }
    write_file("0123456789abcdef 0\n", 0400);
    expect_file("character 17 of the token in /tmp/tessera-token-");
    unlink(path);
    expect_file("No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_file("not a regular file");
    unlink(path);
}

static void begin_nodes(const char *endpoint, const char *script)
{
    for (int r = 0; r < 2; r++) {
        const char *const args[] = {
            "--nnodes",      "2",         "--node-rank",   r ? "1" : "0", "--token-file", path,
            "--master-addr", "127.0.0.1", "--master-port", endpoint,      "sh",           "-c",
            script,          NULL};
        run_begin(&node[r], args);
    }
}

/* Two nodes with a file, and a stranger without, while they run. */
static void test_nodes(void **state)
{
    (void)state;
    char port[16], at[64];
    tsr_store *s;
    bool there;
    snprintf(port, sizeof port, "%d", free_port());
    snprintf(at, sizeof at, "tcp://127.0.0.1:%s", port);
    write_file(right, 0600);
    begin_nodes(port, "echo begun; sleep 1; echo token $TESSERA_STORE_TOKEN.");
    run_read_until(&node[0], "begun", 1);
    assert_int_equal(tsri_store_connect(at, NULL, &s), TSR_ERR_MISMATCH);
    assert_non_null(strstr(tsr_last_error(), "wants a token"));
    setenv("TESSERA_STORE_TOKEN", "0123456789abcdef1", 1);
    assert_int_equal(tsri_store_connect(at, NULL, &s), TSR_ERR_MISMATCH);
    assert_non_null(strstr(tsr_last_error(), "has another token"));
    setenv("TESSERA_STORE_TOKEN", right, 1);
    assert_int_equal(tsri_store_connect(at, NULL, &s), TSR_OK);
    unsetenv("TESSERA_STORE_TOKEN");
    assert_int_equal(tsr_store_check(s, 1, (const char *const[]){"launch/n/1"}, &there), TSR_OK);
    assert_true(there);
    tsr_store_close(s);
    for (int r = 0; r < 2; r++) {
        run_end(&node[r]);
        run_expect(&node[r], 0, "token 0123456789abcdef0123456789abcdef.");
        assert_int_equal(run_count(&node[r], "there is no TESSERA_STORE_TOKEN"), 0);
    }
}

/* Without one, node 0 says what that means. */
static void test_warning(void **state)
{
    (void)state;
    char port[16];
    snprintf(port, sizeof port, "%d", free_port());
    for (int r = 0; r < 2; r++) {
        const char *const args[] = {"--nnodes",
                                    "2",
                                    "--node-rank",
                                    r ? "1" : "0",
                                    "--master-addr",
                                    "127.0.0.1",
                                    "--master-port",
                                    port,
                                    "sh",
                                    "-c",
                                    show,
                                    NULL};
        run_begin(&node[r], args);
    }
    for (int r = 0; r < 2; r++) {
        run_end(&node[r]);
        run_expect(&node[r], 0, "token .");
        assert_int_equal(run_count(&node[r], "there is no TESSERA_STORE_TOKEN: whoever"), !r);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s TESSERA LAUNCH_CHILD\n", argv[0]);
        return 2;
    }
    run_tessera = argv[1];
    run_child = argv[2];
    unsetenv("TESSERA_STORE_TOKEN");
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/token", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_given),   cmocka_unit_test(test_files),
        cmocka_unit_test(test_nodes),  cmocka_unit_test(test_warning),
    };
    int failed = cmocka_run_group_tests_name("launch_token", tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}
