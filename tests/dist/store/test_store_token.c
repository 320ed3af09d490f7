/* SPDX-License-Identifier: Apache-2.0 */
/* The token of a run: who does not have it reads, sets, counts and joins nothing. */
#include "store_ranks.h"
#include "store_raw.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static const char right[] = "0123456789abcdef0123456789abcdef", wrong[] = "0123456789abcdef!";
static tsri_store_server *server;
static char url[64];

static void set_token(const char *text)
{
    if (text)
        setenv("TESSERA_STORE_TOKEN", text, 1);
    else
        unsetenv("TESSERA_STORE_TOKEN");
}

static void start_server(const char *token)
{
    set_token(token);
    assert_int_equal(tsri_store_server_start("127.0.0.1", 0, 0, &server), TSR_OK);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", tsri_store_server_port(server));
}

static int stop_server(void **state)
{
    (void)state;
    tsri_store_server_stop(server);
    server = NULL;
    set_token(NULL);
    return 0;
}

static tsr_status rank_talks(tsr_store *s, int rank, void *arg)
{
    (void)arg;
    char key[8], value[8];
    snprintf(key, sizeof key, "%d", rank);
    TSRI_TRY(tsr_store_set(s, key, right, 4));
    return tsr_store_get(s, rank ? "0" : "1", value, sizeof value, NULL);
}

/* Rank 0 serves, with the same token as all. */
static void test_same(void **state)
{
    (void)state;
    crew c;
    char at[64];
    set_token(right);
    snprintf(at, sizeof at, "tcp://127.0.0.1:%d", free_port());
    crew_make(&c, at, 3, rank_talks);
    crew_start_all(&c);
    crew_finish(&c);
}

static void expect_refusal(const char *token, const char *part)
{
    tsr_store *s;
    const double start = now_s();
    set_token(token);
    assert_int_equal(
        tsr_store_open(url, TSR_STORE_OPTS(.nranks = 1, .hosted = true, .timeout_s = 30), &s),
        TSR_ERR_MISMATCH);
    if (!strstr(tsr_last_error(), part) || strstr(tsr_last_error(), right))
        fail_msg("expected '%s', got '%s'", part, tsr_last_error());
    assert_true(now_s() - start < 8); /* of 30: it does not wait */
}

static void test_one_side(void **state)
{
    (void)state;
    start_server(right);
    expect_refusal(NULL, "wants a token and this process has none: set TESSERA_STORE_TOKEN");
    expect_refusal(wrong, "has another token than this process: set TESSERA_STORE_TOKEN");
    stop_server(NULL);
    start_server(NULL);
    expect_refusal(right, "this process has a token and the server at tcp://127.0.0.1");
}

/* Says it in place of a proof; the server may say no more than that it is wrong. */
static void expect_wrong(int fd, const void *instead, size_t bytes)
{
    unsigned char said[TSRI_WIRE_VERDICT + 1], none[TSRI_WIRE_VERDICT] = {TSRI_WIRE_OTHER_TOKEN};
    say(fd, instead, bytes);
    assert_int_equal(recv(fd, said, sizeof said, MSG_WAITALL), sizeof none);
    assert_memory_equal(said, none, sizeof none);
    expect_closed(fd);
}

static int say_hello(const unsigned char mine[TSRI_WIRE_GREETING],
                     unsigned char its[TSRI_WIRE_GREETING])
{
    int fd = raw_connect(tsri_store_server_port(server));
    say(fd, mine, TSRI_WIRE_GREETING);
    assert_int_equal(recv(fd, its, TSRI_WIRE_GREETING, MSG_WAITALL), TSRI_WIRE_GREETING);
    return fd;
}

/* Proofs that are no proof: of another token, of the server's side, of an earlier connection, of
 * other greetings, with one bit changed; and requests in place of one. */
static void test_forgeries(void **state)
{
    (void)state;
    unsigned char mine[TSRI_WIRE_GREETING], its[TSRI_WIRE_GREETING], before[TSRI_WIRE_GREETING];
    unsigned char proof[TSRI_WIRE_PROOF], earlier[TSRI_WIRE_PROOF], ask[256];
    tsri_store_token token, other = {.bytes = 16, .text = "0123456789abcdef"};
    tsr_store *s;
    bool there;
    int64_t n;
    start_server(right);
    assert_int_equal(tsri_store_env_token(&token), TSR_OK);
    assert_int_equal(tsri_wire_greeting(&token, mine), TSR_OK);
    close(say_hello(mine, before));
    tsri_wire_prove(&token, false, mine, before, earlier);
    int fd = say_hello(mine, its);
    assert_memory_not_equal(before, its, sizeof its);
    expect_wrong(fd, earlier, sizeof earlier);
    fd = say_hello(mine, its);
    tsri_wire_prove(&other, false, mine, its, proof);
    expect_wrong(fd, proof, sizeof proof);
    fd = say_hello(mine, its);
    tsri_wire_prove(&token, true, mine, its, proof);
    expect_wrong(fd, proof, sizeof proof);
    fd = say_hello(mine, its);
    tsri_wire_prove(&token, false, its, mine, proof);
    expect_wrong(fd, proof, sizeof proof);
    for (int bit = 0; bit < 8 * TSRI_WIRE_PROOF; bit += 37) {
        fd = say_hello(mine, its);
        tsri_wire_prove(&token, false, mine, its, proof);
        proof[bit / 8] ^= (unsigned char)(1 << bit % 8);
        expect_wrong(fd, proof, sizeof proof);
    }
    for (int op = TSRI_STORE_SET; op < TSRI_STORE_OP_END_; op++) {
        memset(ask, 0, sizeof ask);
        size_t bytes = request(ask, 12, (uint64_t)op, 1);
        memcpy(ask + bytes, "\3\0\0\0key\1\0\0\0v", 12);
        expect_wrong(say_hello(mine, its), ask, bytes + 12);
    }
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    assert_int_equal(tsr_store_check(s, 1, (const char *const[]){"key"}, &there), TSR_OK);
    assert_false(there);
    assert_int_equal(tsr_store_count(s, &n), TSR_OK);
    assert_int_equal(n, 0);
    tsr_store_close(s);
    assert_true(tsri_store_server_drain(server, 10)); /* nobody has joined */
}

static void test_texts(void **state)
{
    (void)state;
    char longest[TSRI_STORE_MAX_TOKEN + 2];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    const struct {
        const char *token, *part;
    } bad[] = {
        {"0123456789abcde", "a token of 15 characters in TESSERA_STORE_TOKEN: legal are 16 to 256"},
        {longest, "a token of 257 characters"},
        {"0123456789abcdef 0", "character 17 of the token in TESSERA_STORE_TOKEN is a blank"},
        {"0123456789abcdef\n", "character 17"},
        {"0123456789abcde\xc3\xa4", "character 16"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tsr_store *s;
        set_token(bad[i].token);
        assert_int_equal(tsri_store_server_start("127.0.0.1", 0, 0, &server), TSR_ERR_INVALID);
        if (!strstr(tsr_last_error(), bad[i].part) || strstr(tsr_last_error(), "0123456"))
            fail_msg("expected '%s', got '%s'", bad[i].part, tsr_last_error());
        assert_int_equal(tsri_store_connect("tcp://127.0.0.1:1", NULL, &s), TSR_ERR_INVALID);
    }
    longest[sizeof longest - 2] = 0;
    set_token(longest);
    assert_int_equal(tsri_store_server_start("127.0.0.1", 0, 0, &server), TSR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_same, stop_server),
        cmocka_unit_test_teardown(test_one_side, stop_server),
        cmocka_unit_test_teardown(test_forgeries, stop_server),
        cmocka_unit_test_teardown(test_texts, stop_server),
    };
    return cmocka_run_group_tests_name("store_token", tests, NULL, NULL);
}
