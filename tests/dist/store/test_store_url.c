/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of stores: what they mean, and what those that mean nothing are told. */
#include "src/comm/store/inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const struct {
    const char *url;
    tsri_store_kind kind;
    const char *host; /* or path */
    int port, rank, nranks;
    const char *text;
} legal[] = {
    {"tcp://127.0.0.1:29500", TSRI_STORE_TCP, "127.0.0.1", 29500, -1, 0, "tcp://127.0.0.1:29500"},
    {"tcp://node-a.x_y:1?rank=3&world_size=4", TSRI_STORE_TCP, "node-a.x_y", 1, 3, 4,
     "tcp://node-a.x_y:1"},
    {"tcp://h:65535?world_size=65536&rank=65535", TSRI_STORE_TCP, "h", 65535, 65535, 65536,
     "tcp://h:65535"},
    {"tcp://[::1]:29500?rank=0", TSRI_STORE_TCP, "::1", 29500, 0, 0, "tcp://[::1]:29500"},
    {"tcp://[fe80::1%eth0]:80?world_size=1", TSRI_STORE_TCP, "fe80::1%eth0", 80, -1, 1,
     "tcp://[fe80::1%eth0]:80"},
    {"tcp://[127.0.0.1]:80", TSRI_STORE_TCP, "127.0.0.1", 80, -1, 0, "tcp://127.0.0.1:80"},
    {"file:///tmp/x", TSRI_STORE_FILE, "/tmp/x", 0, -1, 0, "file:///tmp/x"},
    {"file:///a b/%20&=#?rank=1&world_size=2", TSRI_STORE_FILE, "/a b/%20&=#", 0, 1, 2,
     "file:///a b/%20&=#"},
};

static void test_legal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        tsri_store_place p;
        char text[PATH_MAX + 16];
        if (tsri_store_place_read(legal[i].url, &p) != TSR_OK)
            fail_msg("%s: %s", legal[i].url, tsr_last_error());
        assert_int_equal(p.kind, legal[i].kind);
        assert_string_equal(p.kind == TSRI_STORE_TCP ? p.host : p.path, legal[i].host);
        assert_int_equal(p.port, legal[i].port);
        assert_int_equal(p.rank, legal[i].rank);
        assert_int_equal(p.nranks, legal[i].nranks);
        assert_false(p.hosted);
        tsri_store_place_text(&p, text, sizeof text);
        assert_string_equal(text, legal[i].text);
    }
}

static const struct {
    const char *url, *text;
} illegal[] = {
    {NULL, "no address: legal are env://, tcp://host:port?rank=R&world_size=W and file:///path"},
    {"", "is no address: legal are"},
    {"localhost:29500", "'localhost:29500' is no address"},
    {"://h:1", "is not known: legal are env://"},
    {"http://h:1", "'http' is not known: legal are env://"},
    {"TCP://h:1", "'TCP' is not known"},
    {"tcp:/h:1", "is no address"},
    {"tcp?://h:1", "is no address"},
    {"tcp://", "no port: legal is tcp://host:port"},
    {"tcp://h", "no port: legal is tcp://host:port"},
    {"tcp://[::1]", "no port"},
    {"tcp://[::1]29500", "no port"},
    {"tcp://[::1", "'[' without ']'"},
    {"tcp://[]:1", "a host of 0 bytes"},
    {"tcp://:29500", "a host of 0 bytes: legal are 1 to 255"},
    {"tcp://::1:29500", "an IPv6 address stands in brackets, [::1]:29500"},
    {"tcp://a b:1", "' ' in the host: legal are letters"},
    {"tcp://user@h:1", "'@' in the host"},
    {"tcp://h/x:1", "'/' in the host"},
    {"tcp://h:", "port '': legal are 1 to 65535"},
    {"tcp://h:0", "port '0': legal are 1 to 65535"},
    {"tcp://h:65536", "port '65536'"},
    {"tcp://h:-1", "port '-1'"},
    {"tcp://h:1x", "port '1x'"},
    {"tcp://h:1/", "port '1/'"},
    {"tcp://h:99999999999999999999", "port '99999999999999999999'"},
    {"tcp://h:1?", "nothing behind '?': legal are rank= and world_size="},
    {"tcp://h:1?rank", "rank is '': legal are 0 to 65535"},
    {"tcp://h:1?rank=", "rank is ''"},
    {"tcp://h:1?rank=-1", "rank is '-1'"},
    {"tcp://h:1?rank=+1", "rank is '+1'"},
    {"tcp://h:1?rank=1 ", "rank is '1 '"},
    {"tcp://h:1?rank=65536", "rank is '65536'"},
    {"tcp://h:1?world_size=0", "world_size is '0': legal are 1 to 65536"},
    {"tcp://h:1?world_size=65537", "world_size is '65537'"},
    {"tcp://h:1?rank=4&world_size=4", "rank 4 of 4: legal are 0 to 3"},
    {"tcp://h:1?rank=1&rank=1", "'rank' is there twice"},
    {"tcp://h:1?world_size=1&world_size=1", "'world_size' is there twice"},
    {"tcp://h:1?timeout=3", "'timeout' is not known: legal are rank= and world_size="},
    {"tcp://h:1?Rank=0", "'Rank' is not known"},
    {"tcp://h:1?rank=0&", "'' is not known"},
    {"tcp://h:1?rank=0&&world_size=1", "'' is not known"},
    {"tcp://h:1?rank=0?world_size=1", "rank is '0?world_size=1'"},
    {"tcp://h\n:1", "byte 7 of the address is a control character"},
    {"file://", "an absolute path behind three slashes, file:///shared/path"},
    {"file://tmp/x", "an absolute path behind three slashes"},
    {"file:///", "a folder: legal is the path of a file"},
    {"file:///tmp/", "a folder"},
    {"file:///tmp/x?size=1", "'size' is not known"},
    {"env://h:1", "nothing stands behind env://"},
};

static void test_illegal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++) {
        tsri_store_place p = {.port = 42};
        tsr_status status = tsri_store_place_read(illegal[i].url, &p);
        if (status != TSR_ERR_INVALID || !strstr(tsr_last_error(), illegal[i].text))
            fail_msg("'%s': expected '%s', got %s, '%s'", illegal[i].url ? illegal[i].url : "NULL",
                     illegal[i].text, tsr_status_name(status), tsr_last_error());
        assert_int_equal(p.port, 42);
    }
    char url[8192] = "file:///";
    tsri_store_place p;
    memset(url + 8, 'x', sizeof url - 9);
    assert_int_equal(tsri_store_place_read(url, &p), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "an address of 8191 bytes"));
    memcpy(url, "tcp://hh", 8);
    memcpy(url + 300, ":1", 3);
    assert_int_equal(tsri_store_place_read(url, &p), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "a host of 294 bytes"));
}

/* --- what options and the environment add ----------------------------------------------------- */

static void set_env(const char *rank, const char *size, const char *host, const char *port,
                    const char *hosted)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                        "TESSERA_STORE_HOSTED"};
    const char *const values[] = {rank, size, host, port, hosted};
    for (int i = 0; i < 5; i++)
        if (values[i])
            setenv(names[i], values[i], 1);
        else
            unsetenv(names[i]);
}

static void expect(const char *url, const tsr_store_opts *opts, bool ranks, const char *text)
{
    tsri_store_place p;
    tsr_status status = tsri_store_place_resolve(url, opts, ranks, &p);
    if (status != TSR_ERR_INVALID || !strstr(tsr_last_error(), text))
        fail_msg("'%s': expected '%s', got %s, '%s'", url, text, tsr_status_name(status),
                 tsr_last_error());
}

static void test_env(void **state)
{
    (void)state;
    tsri_store_place p;
    const tsr_store_opts *none = TSR_STORE_OPTS(.rank = 0);
    set_env("2", "4", "node", "29500", NULL);
    assert_int_equal(tsri_store_place_resolve("env://", none, true, &p), TSR_OK);
    assert_int_equal(p.rank, 2);
    assert_int_equal(p.nranks, 4);
    assert_string_equal(p.host, "node");
    assert_int_equal(p.port, 29500);
    assert_false(p.hosted);
    assert_int_equal(
        tsri_store_place_resolve("env://", TSR_STORE_OPTS(.rank = 7, .nranks = 8), true, &p),
        TSR_OK);
    assert_int_equal(p.rank, 7); /* the options before the environment */
    assert_int_equal(tsri_store_place_resolve("env://?rank=0&world_size=9", none, true, &p),
                     TSR_OK);
    assert_int_equal(p.nranks, 9); /* and the address */
    set_env("2", "4", "::1", "29500", "1");
    assert_int_equal(tsri_store_place_resolve("env://", none, true, &p), TSR_OK);
    assert_string_equal(p.host, "::1");
    assert_true(p.hosted);
    set_env("2", "4", "[::1]", "29500", "0");
    assert_int_equal(tsri_store_place_resolve("env://", none, true, &p), TSR_OK);
    assert_string_equal(p.host, "::1");
    assert_false(p.hosted);
    set_env("2", "4", "node", "29500", "yes");
    expect("env://", none, true, "TESSERA_STORE_HOSTED is 'yes': legal are 0 and 1");
    set_env("2", "4", NULL, "29500", NULL);
    expect("env://", none, true, "MASTER_ADDR is not set");
    set_env("2", "4", "node", "", NULL);
    expect("env://", none, true, "MASTER_PORT is not set");
    set_env("2", "4", "node", "x", NULL);
    expect("env://", none, true, "MASTER_PORT: port 'x'");
    set_env("2", "4", "no de", "1", NULL);
    expect("env://", none, true, "MASTER_ADDR: ' ' in the host");
    set_env(NULL, "4", "node", "1", NULL);
    expect("env://", none, true, "neither the environment nor the options say the rank");
    assert_int_equal(tsri_store_place_resolve("env://", none, false, &p), TSR_OK);
    set_env("1", NULL, "node", "1", NULL);
    expect("env://", none, true, "how many ranks there are");
    set_env("4", "4", "node", "1", NULL);
    expect("env://", none, true, "rank 4 of 4");
    set_env("one", "4", "node", "1", NULL);
    expect("env://", none, true, "RANK is 'one'");
    set_env("1", "-4", "node", "1", NULL);
    expect("env://", none, true, "WORLD_SIZE is '-4'");
    set_env(NULL, NULL, NULL, NULL, NULL);
}

static void test_options(void **state)
{
    (void)state;
    tsri_store_place p;
    assert_int_equal(
        tsri_store_place_resolve("tcp://h:1", TSR_STORE_OPTS(.rank = 1, .nranks = 2), true, &p),
        TSR_OK);
    assert_int_equal(p.rank, 1);
    assert_int_equal(tsri_store_place_resolve("tcp://h:1?rank=1&world_size=2",
                                              TSR_STORE_OPTS(.rank = 5, .hosted = true), true, &p),
                     TSR_OK);
    assert_int_equal(p.rank, 1); /* without nranks it doesn't count */
    assert_true(p.hosted);
    expect("tcp://h:1", TSR_STORE_OPTS(.rank = 1), true, "neither the address nor the options say");
    expect("tcp://h:1?rank=1", TSR_STORE_OPTS(.rank = 0), true, "how many ranks there are");
    expect("tcp://h:1?rank=1&world_size=2", TSR_STORE_OPTS(.rank = 0, .nranks = 2), true,
           "the address says otherwise than the options, rank 0 of 2");
    expect("tcp://h:1?rank=0&world_size=2", TSR_STORE_OPTS(.rank = 1, .nranks = 2), true,
           "the address says otherwise than the options, rank 1 of 2");
    expect("tcp://h:1", TSR_STORE_OPTS(.rank = 2, .nranks = 2), true, "rank 2 of 2");
    expect("tcp://h:1", TSR_STORE_OPTS(.rank = -1, .nranks = 2), true, "rank -1 of 2");
    expect("tcp://h:1", TSR_STORE_OPTS(.rank = 0, .nranks = -2), true, "rank 0 of -2");
    expect("tcp://h:1", TSR_STORE_OPTS(.rank = 0, .nranks = 65537), true, "legal are 1 to 65536");
}

static void test_texts(void **state)
{
    (void)state;
    char text[64];
    const unsigned char has[12] = {1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0};
    assert_int_equal(tsri_store_absent_text(has, 12, text, sizeof text), 8);
    assert_string_equal(text, "ranks 1, 3, 4, 6-9, 11");
    assert_int_equal(tsri_store_absent_text(has, 2, text, sizeof text), 1);
    assert_string_equal(text, "rank 1");
    unsigned char odd[4000];
    for (int i = 0; i < 4000; i++)
        odd[i] = (unsigned char)(i & 1);
    assert_int_equal(tsri_store_absent_text(odd, 4000, text, sizeof text), 2000);
    assert_non_null(strstr(text, ", ..."));
    assert_string_equal(tsri_store_key_text((tsri_bytes){"a\n\x7f", 3}, text, 8), "a??");
    assert_string_equal(tsri_store_key_text((tsri_bytes){"abcdefghij", 10}, text, 8), "abcd...");
    assert_string_equal(tsri_store_key_text((tsri_bytes){"a\0\x9b"
                                                         "b\xc2\x9b\xc3\xa4",
                                                         8},
                                            text, 16),
                        "a??b??\xc3\xa4");
    assert_string_equal(tsri_store_key_text((tsri_bytes){"abc\xc3\xa4"
                                                         "efgh",
                                                         9},
                                            text, 8),
                        "abc...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_legal),   cmocka_unit_test(test_illegal), cmocka_unit_test(test_env),
        cmocka_unit_test(test_options), cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests_name("store_url", tests, NULL, NULL);
}
