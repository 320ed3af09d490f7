/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous store as its users see it: the same calls over TCP, on a server that is there
 * already, and in a file. */
#include "store_ranks.h"
#include "tests/unit/files.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

typedef enum kind { TCP, TCP6, HOSTED, FILES, KINDS } kind;

/* A store of that kind at which nobody has been. */
typedef struct place {
    kind kind;
    tsri_store_server *server;
    char url[PATH_MAX];
} place;

static void place_make(place *p, kind k)
{
    static int number;
    char name[64];
    *p = (place){.kind = k};
    if (k == FILES) {
        snprintf(name, sizeof name, "store-%d", number++);
        snprintf(p->url, sizeof p->url, "file://%.2000s", test_path(name));
        return;
    }
    int port = 0;
    if (k != HOSTED)
        port = free_port();
    else if (tsri_store_server_start("127.0.0.1", 0, 0, &p->server) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    else
        port = tsri_store_server_port(p->server);
    snprintf(p->url, sizeof p->url, "tcp://%s:%d", k == TCP6 && has_ipv6() ? "[::1]" : "127.0.0.1",
             port);
}

/* Nothing may be left of it. */
static void place_finish(place *p)
{
    tsri_store_server_stop(p->server);
    if (p->kind == FILES && access(p->url + strlen("file://"), F_OK) == 0)
        fail_msg("%s is still there", p->url);
}

static void run_crew(kind k, int nranks, bool processes, rank_fn *fn)
{
    place p;
    crew c;
    place_make(&p, k);
    crew_make(&c, p.url, nranks, fn);
    c.processes = processes;
    c.hosted = k == HOSTED;
    crew_start_all(&c);
    crew_finish(&c);
    place_finish(&p);
}

/* One rank alone, on every kind. */
static void run_alone(rank_fn *fn)
{
    for (kind k = 0; k < KINDS; k++)
        run_crew(k, 1, false, fn);
}

/* --- one client ------------------------------------------------------------------------------- */

static tsr_status values(tsr_store *s, int rank, void *arg)
{
    static const size_t sizes[] = {0, 1, 7, 4095, 65536, 1000003, 16 << 20};
    unsigned char *in = malloc(16 << 20), *out = malloc(16 << 20);
    (void)rank, (void)arg;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i], got = 99;
        for (size_t b = 0; b < n; b++)
            in[b] = (unsigned char)((b * 2654435761u) >> 13 ^ i);
        memset(out, 0xAA, n);
        CHECK(tsr_store_set(s, "a value", in, n) == TSR_OK);
        CHECK(tsr_store_get(s, "a value", NULL, 0, &got) == TSR_OK && got == n);
        got = 99;
        CHECK(tsr_store_get(s, "a value", out, n, &got) == TSR_OK && got == n);
        CHECK(memcmp(in, out, n) == 0);
        if (n == 0)
            continue;
        memset(out, 0xAA, n);
        got = 99;
        CHECK(tsr_store_get(s, "a value", out, n - 1, &got) == TSR_ERR_INVALID && got == n);
        CHECK_TEXT("there is room for");
        CHECK(out[0] == 0xAA && out[n - 1] == 0xAA);
    }
    CHECK(tsr_store_set(s, "a value", in, (16 << 20) + 1) == TSR_ERR_INVALID);
    CHECK_TEXT("legal are up to 16777216");
    size_t got;
    CHECK(tsr_store_get(s, "a value", NULL, 0, &got) == TSR_OK && got == 16 << 20);
    free(in);
    free(out);
    return TSR_OK;
}

static tsr_status keys(tsr_store *s, int rank, void *arg)
{
    char key[1002];
    int64_t n;
    (void)rank, (void)arg;
    memset(key, 'k', sizeof key);
    key[1001] = 0;
    CHECK(tsr_store_set(s, key, "x", 1) == TSR_ERR_INVALID);
    CHECK_TEXT("a key of 1001 bytes: legal are 1 to 1000");
    key[1000] = 0;
    CHECK(tsr_store_set(s, key, "x", 1) == TSR_OK);
    key[999] = 0;
    CHECK(tsr_store_set(s, key, "y", 1) == TSR_OK);
    CHECK(tsr_store_set(s, "", "x", 1) == TSR_ERR_INVALID);
    CHECK(tsr_store_set(s, "\n\xff", "x", 1) == TSR_OK);
    CHECK(tsr_store_count(s, &n) == TSR_OK && n == 3);
    bool there;
    CHECK(tsr_store_check(s, 0, NULL, &there) == TSR_OK && there);
    CHECK(tsr_store_wait(s, 0, NULL, 0) == TSR_OK);
    CHECK(tsr_store_check(s, -1, NULL, &there) == TSR_ERR_INVALID);
    CHECK(tsr_store_check(s, 1, NULL, &there) == TSR_ERR_INVALID);
    return TSR_OK;
}

static tsr_status counters(tsr_store *s, int rank, void *arg)
{
    int64_t n = 77;
    char text[32];
    size_t bytes;
    (void)rank, (void)arg;
    CHECK(tsr_store_add(s, "n", 5, &n) == TSR_OK && n == 5);
    CHECK(tsr_store_add(s, "n", -12, &n) == TSR_OK && n == -7);
    CHECK(tsr_store_get(s, "n", text, sizeof text, &bytes) == TSR_OK);
    CHECK(bytes == 2 && memcmp(text, "-7", 2) == 0);
    CHECK(tsr_store_set(s, "n", "9223372036854775807", 19) == TSR_OK);
    CHECK(tsr_store_add(s, "n", 0, &n) == TSR_OK && n == INT64_MAX);
    CHECK(tsr_store_add(s, "n", 1, &n) == TSR_ERR_INVALID);
    CHECK_TEXT("leaves the range");
    CHECK(tsr_store_set(s, "n", "-9223372036854775808", 20) == TSR_OK);
    CHECK(tsr_store_add(s, "n", 0, &n) == TSR_OK && n == INT64_MIN);
    CHECK(tsr_store_add(s, "n", INT64_MIN, NULL) == TSR_ERR_INVALID);
    static const char *const none[] = {"",    "-",
                                       " 1",  "1 ",
                                       "+1",  "x",
                                       "0x1", "9223372036854775808",
                                       "1.",  "12345678901234567890123"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        n = 77;
        CHECK(tsr_store_set(s, "n", none[i], strlen(none[i])) == TSR_OK);
        CHECK(tsr_store_add(s, "n", 1, &n) == TSR_ERR_FORMAT && n == 77);
        CHECK_TEXT("is no number");
    }
    return TSR_OK;
}

/* Its own words: what is there then, and whether it was set. */
static tsr_status compare_set(tsr_store *s, int rank, void *arg)
{
    char out[8] = "";
    size_t n = 9;
    bool there;
    const char *key = "k";
    (void)rank, (void)arg;
    CHECK(tsr_store_compare_set(s, key, "a", 1, "b", 1, out, 8, &n) == TSR_OK && n == 0);
    CHECK(tsr_store_check(s, 1, &key, &there) == TSR_OK && !there);
    CHECK(tsr_store_compare_set(s, key, NULL, 0, "b", 1, out, 8, &n) == TSR_OK && n == 1);
    CHECK(out[0] == 'b');
    CHECK(tsr_store_compare_set(s, key, NULL, 0, "c", 1, out, 8, &n) == TSR_OK && n == 1);
    CHECK(out[0] == 'b');
    CHECK(tsr_store_compare_set(s, key, "b", 1, "ccc", 3, out, 2, &n) == TSR_ERR_INVALID && n == 3);
    CHECK(tsr_store_get(s, key, out, 8, &n) == TSR_OK && n == 1 && out[0] == 'b');
    CHECK(tsr_store_compare_set(s, key, "b", 1, "ccc", 3, out, 3, &n) == TSR_OK && n == 3);
    CHECK(tsr_store_compare_set(s, key, "ccc", 3, NULL, 0, out, 8, &n) == TSR_OK && n == 0);
    CHECK(tsr_store_compare_set(s, key, NULL, 0, "d", 1, NULL, 0, &n) == TSR_OK && n == 1);
    CHECK(tsr_store_get(s, key, out, 8, &n) == TSR_OK && n == 1 && out[0] == 'd');
    return TSR_OK;
}

static tsr_status timeouts(tsr_store *s, int rank, void *arg)
{
    static const char *const names[] = {"here", "gone", "lost"};
    char buf[8];
    (void)rank, (void)arg;
    CHECK(tsr_store_set(s, "here", "", 0) == TSR_OK);
    double start = now_s();
    CHECK(tsr_store_wait(s, 3, names, 0.3) == TSR_ERR_TIMEOUT);
    CHECK_TEXT("'gone', 'lost' have not come to");
    CHECK_TEXT("within 0.3 s");
    CHECK(!strstr(tsr_last_error(), "here"));
    CHECK(now_s() - start >= 0.3);
    CHECK(tsr_store_set_timeout(s, 0.2) == TSR_OK);
    start = now_s();
    CHECK(tsr_store_get(s, "lost", buf, 8, NULL) == TSR_ERR_TIMEOUT);
    CHECK_TEXT("'lost' has not come");
    CHECK(now_s() - start >= 0.2 && now_s() - start < 30);
    CHECK(tsr_store_wait(s, 1, names, -1) == TSR_ERR_INVALID);
    CHECK(tsr_store_set_timeout(s, 0) == TSR_ERR_INVALID);
    CHECK(tsr_store_set_timeout(s, 0.0 / 0.0) == TSR_ERR_INVALID);
    CHECK(tsr_store_wait(s, 1, names, 0) == TSR_OK);
    enum { MANY = 40 };
    char text[MANY][32];
    const char *many[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(text[i], sizeof text[i], "absent-%d", i);
        many[i] = text[i];
    }
    CHECK(tsr_store_wait(s, MANY, many, 0.1) == TSR_ERR_TIMEOUT);
    CHECK_TEXT("'absent-0', 'absent-1'");
    CHECK_TEXT(" more have not come");
    return TSR_OK;
}

static void test_alone(void **state)
{
    (void)state;
    run_alone(values);
    run_alone(keys);
    run_alone(counters);
    run_alone(compare_set);
    run_alone(timeouts);
}

/* Random calls against a model: an array of texts. */
enum { MODEL_KEYS = 6, MODEL_BYTES = 24 };
typedef struct model {
    bool there[MODEL_KEYS];
    char value[MODEL_KEYS][MODEL_BYTES];
} model;

static int draw(uint64_t *state, int below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (unsigned)below);
}

static tsr_status one_random_call(tsr_store *s, model *m, uint64_t *seed)
{
    static const char *const texts[] = {"", "a", "12", "-3", "bcd"};
    static const char *const names[MODEL_KEYS] = {"a", "b", "aa", "ab", "a/b", "0"};
    const int k = draw(seed, MODEL_KEYS), other = draw(seed, MODEL_KEYS);
    const char *key = names[k], *text = texts[draw(seed, 5)], *expected = texts[draw(seed, 5)];
    const char *const two[] = {key, names[other]};
    char *value = m->value[k], buf[MODEL_BYTES] = "";
    size_t n = 0;
    int64_t number = 0;
    bool flag = false;
    switch (draw(seed, 7)) {
    case 0:
        CHECK(tsr_store_set(s, key, text, strlen(text)) == TSR_OK);
        strcpy(value, text);
        m->there[k] = true;
        return TSR_OK;
    case 1:
        if (!m->there[k])
            return TSR_OK;
        CHECK(tsr_store_get(s, key, buf, sizeof buf, &n) == TSR_OK);
        CHECK(n == strlen(value) && memcmp(buf, value, n) == 0);
        return TSR_OK;
    case 2: {
        char *end;
        long was = m->there[k] ? strtol(value, &end, 10) : 0;
        bool is_number = !m->there[k] || (*value && *end == 0);
        CHECK(tsr_store_add(s, key, 3, &number) == (is_number ? TSR_OK : TSR_ERR_FORMAT));
        CHECK(!is_number || number == was + 3);
        if (is_number)
            snprintf(value, MODEL_BYTES, "%ld", was + 3);
        m->there[k] = m->there[k] || is_number;
        return TSR_OK;
    }
    case 3: {
        bool set = strcmp(m->there[k] ? value : "", expected) == 0;
        CHECK(tsr_store_compare_set(s, key, expected, strlen(expected), text, strlen(text), buf,
                                    sizeof buf, &n) == TSR_OK);
        if (set)
            strcpy(value, text);
        m->there[k] = m->there[k] || set;
        CHECK(n == (m->there[k] ? strlen(value) : 0) && memcmp(buf, value, n) == 0);
        return TSR_OK;
    }
    case 4:
        CHECK(tsr_store_delete(s, key, &flag) == TSR_OK && flag == m->there[k]);
        m->there[k] = false;
        value[0] = 0;
        return TSR_OK;
    case 5:
        CHECK(tsr_store_check(s, 2, two, &flag) == TSR_OK);
        CHECK(flag == (m->there[k] && m->there[other]));
        return TSR_OK;
    default:
        for (int i = 0; i < MODEL_KEYS; i++)
            n += m->there[i];
        CHECK(tsr_store_count(s, &number) == TSR_OK && number == (int64_t)n);
        return TSR_OK;
    }
}

static tsr_status random_calls(tsr_store *s, int rank, void *arg)
{
    model m = {0};
    uint64_t seed = 12345;
    (void)rank, (void)arg;
    for (int i = 0; i < 3000; i++)
        TSRI_TRY(one_random_call(s, &m, &seed));
    return TSR_OK;
}

static void test_against_a_model(void **state)
{
    (void)state;
    run_crew(HOSTED, 1, false, random_calls);
    run_crew(FILES, 1, false, random_calls);
}

/* --- many clients ----------------------------------------------------------------------------- */

enum { ADDS = 100, LOCKED = 10 };

/* Every value of the counter goes to one rank. */
static tsr_status add_up(tsr_store *s, int rank, void *arg)
{
    crew_board *b = arg;
    int64_t n;
    (void)rank;
    for (int i = 0; i < ADDS; i++) {
        CHECK(tsr_store_add(s, "counter", 1, &n) == TSR_OK);
        CHECK(n >= 1 && n < FLAGS);
        CHECK(atomic_fetch_add(&b->flag[n], 1) == 0);
    }
    CHECK(tsr_store_add(s, "done", 1, NULL) == TSR_OK);
    while (tsr_store_add(s, "done", 0, &n) == TSR_OK && n < tsr_store_size(s))
        sleep_s(0.005);
    CHECK(tsr_store_add(s, "counter", 0, &n) == TSR_OK && n == ADDS * tsr_store_size(s));
    return TSR_OK;
}

/* compare_set as a lock, around a read and a write that would lose updates without it. */
static tsr_status lock_and_add(tsr_store *s, int rank, void *arg)
{
    char mine[8], out[8], text[32];
    size_t n;
    (void)arg;
    const size_t bytes = (size_t)snprintf(mine, sizeof mine, "r%d", rank);
    CHECK(tsr_store_compare_set(s, "lock", NULL, 0, "free", 4, out, 8, &n) == TSR_OK);
    for (int i = 0; i < LOCKED; i++) {
        for (n = 0; n != bytes || memcmp(out, mine, n) != 0;)
            CHECK(tsr_store_compare_set(s, "lock", "free", 4, mine, bytes, out, 8, &n) == TSR_OK);
        long was = 0;
        bool there;
        const char *sum = "sum";
        CHECK(tsr_store_check(s, 1, &sum, &there) == TSR_OK);
        if (there) {
            CHECK(tsr_store_get(s, sum, text, sizeof text - 1, &n) == TSR_OK);
            text[n] = 0;
            was = atol(text);
        }
        n = (size_t)snprintf(text, sizeof text, "%ld", was + 1);
        CHECK(tsr_store_set(s, sum, text, n) == TSR_OK);
        CHECK(tsr_store_compare_set(s, "lock", mine, bytes, "free", 4, out, 8, &n) == TSR_OK);
        CHECK(n == 4);
    }
    int64_t done, sum;
    CHECK(tsr_store_add(s, "done", 1, &done) == TSR_OK);
    while (done < tsr_store_size(s) && tsr_store_add(s, "done", 0, &done) == TSR_OK)
        sleep_s(0.005);
    CHECK(tsr_store_add(s, "sum", 0, &sum) == TSR_OK && sum == LOCKED * tsr_store_size(s));
    return TSR_OK;
}

/* Every rank waits for the others' keys, of which each comes late; all read all. */
static tsr_status exchange(tsr_store *s, int rank, void *arg)
{
    char name[MAX_CREW][32], out[32];
    const char *all[MAX_CREW];
    const int n = tsr_store_size(s);
    size_t bytes;
    (void)arg;
    for (int r = 0; r < n; r++) {
        snprintf(name[r], sizeof name[r], "address-%d", n - 1 - r);
        all[r] = name[r];
    }
    sleep_s(0.01 * (rank % 4));
    CHECK(tsr_store_set(s, name[n - 1 - rank], name[rank], strlen(name[rank])) == TSR_OK);
    CHECK(tsr_store_wait(s, n, all, 0) == TSR_OK);
    for (int r = 0; r < n; r++) {
        CHECK(tsr_store_get(s, name[n - 1 - r], out, sizeof out, &bytes) == TSR_OK);
        CHECK(bytes == strlen(name[r]) && memcmp(out, name[r], bytes) == 0);
    }
    return TSR_OK;
}

static void test_threads(void **state)
{
    (void)state;
    for (kind k = 0; k < KINDS; k++) {
        run_crew(k, 16, false, add_up);
        run_crew(k, 16, false, exchange);
    }
    run_crew(TCP, 8, false, lock_and_add);
    run_crew(FILES, 4, false, lock_and_add);
}

static void test_processes(void **state)
{
    (void)state;
    for (kind k = 0; k < KINDS; k++) {
        if (k == HOSTED)
            continue; /* the server's thread would be lost in the children */
        run_crew(k, 8, true, add_up);
        run_crew(k, 8, true, exchange);
        run_crew(k, 4, true, lock_and_add);
    }
}

/* Rank 1 waits before rank 0 sets, deletes and sets. */
static tsr_status wake(tsr_store *s, int rank, void *arg)
{
    static const char *const three[] = {"x", "y", "z"};
    crew_board *b = arg;
    char out[8];
    size_t n;
    bool was;
    if (rank == 0) {
        await_flag(&b->flag[0], 1);
        sleep_s(0.2);
        CHECK(tsr_store_set(s, "late", "now", 3) == TSR_OK);
        await_flag(&b->flag[0], 2);
        sleep_s(0.1);
        CHECK(tsr_store_set(s, "z", "", 0) == TSR_OK);
        CHECK(tsr_store_set(s, "x", "", 0) == TSR_OK);
        sleep_s(0.1);
        CHECK(tsr_store_delete(s, "x", &was) == TSR_OK && was);
        CHECK(tsr_store_set(s, "y", "", 0) == TSR_OK);
        sleep_s(0.3);
        CHECK(atomic_load(&b->flag[0]) == 2); /* x isn't there */
        CHECK(tsr_store_set(s, "x", "", 0) == TSR_OK);
        return TSR_OK;
    }
    const double start = now_s();
    atomic_store(&b->flag[0], 1);
    CHECK(tsr_store_get(s, "late", out, 8, &n) == TSR_OK && n == 3 && memcmp(out, "now", 3) == 0);
    CHECK(now_s() - start >= 0.15 && now_s() - start < 30);
    atomic_store(&b->flag[0], 2);
    CHECK(tsr_store_wait(s, 3, three, 0) == TSR_OK);
    atomic_store(&b->flag[0], 3);
    return TSR_OK;
}

/* Parked requests give way when their time is over, whatever order they were made in. */
static tsr_status park(tsr_store *s, int rank, void *arg)
{
    char out[8];
    (void)arg;
    CHECK(tsr_store_set_timeout(s, 0.2 + 0.05 * (rank * 7 % 8)) == TSR_OK);
    const double start = now_s();
    if (rank == 3) {
        sleep_s(0.1);
        CHECK(tsr_store_set_timeout(s, 60) == TSR_OK);
        return tsr_store_set(s, "other", "", 0);
    }
    CHECK(tsr_store_get(s, "never", out, 8, NULL) == TSR_ERR_TIMEOUT);
    CHECK(now_s() - start >= 0.2);
    CHECK(tsr_store_set_timeout(s, 60) == TSR_OK); /* of closing too */
    return tsr_store_get(s, "other", out, 8, NULL);
}

static void test_waits(void **state)
{
    (void)state;
    for (kind k = 0; k < KINDS; k++) {
        run_crew(k, 2, false, wake);
        run_crew(k, 8, false, park);
    }
}

/* --- leaving ---------------------------------------------------------------------------------- */

/* Rank 0 leaves at once; the others go on. */
static tsr_status go_on(tsr_store *s, int rank, void *arg)
{
    char out[8];
    (void)arg;
    if (rank == 0)
        return tsr_store_set(s, "x", "1", 1);
    sleep_s(0.5);
    CHECK(tsr_store_add(s, "x", 0, NULL) == TSR_OK);
    if (rank == 1)
        return tsr_store_set(s, "from-1", "", 0);
    CHECK(tsr_store_get(s, "from-1", out, 8, NULL) == TSR_OK);
    return TSR_OK;
}

static void test_rank_0_leaves_last(void **state)
{
    (void)state;
    for (kind k = 0; k < KINDS; k++)
        run_crew(k, 3, false, go_on);
    run_crew(TCP, 3, true, go_on);
    run_crew(FILES, 3, true, go_on);
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    run_crew(TCP, 2, false, NULL);
    const int fds = count_fds(), threads = count_threads();
    for (kind k = 0; k < KINDS; k++) {
        for (int i = 0; i < 5; i++)
            run_crew(k, 4, false, exchange);
        crew c;
        place p;
        place_make(&p, k);
        crew_make(&c, p.url, 3, NULL);
        c.timeout_s = 3;
        c.hosted = k == HOSTED;
        crew_start(&c, 0); /* in vain */
        crew_start(&c, 2);
        crew_join(&c, 0);
        crew_join(&c, 2);
        crew_expect(&c, 0, TSR_ERR_TIMEOUT, "rank 1 of 3 has not come to ");
        crew_expect(&c, 2, TSR_ERR_TIMEOUT, "rank 1 of 3 has not come to ");
        crew_free(&c);
        place_finish(&p);
    }
    assert_int_equal(count_fds(), fds);
    expect_threads(threads);
}

static void test_null(void **state)
{
    (void)state;
    tsr_store *s = NULL;
    const char *key = "k";
    int64_t n;
    bool b;
    tsr_store_close(NULL);
    assert_int_equal(tsr_store_rank(NULL), -1);
    assert_int_equal(tsr_store_size(NULL), 0);
    assert_int_equal(tsr_store_open(NULL, NULL, &s), TSR_ERR_INVALID);
    assert_int_equal(tsr_store_open("tcp://127.0.0.1:1?rank=0&world_size=1", NULL, NULL),
                     TSR_ERR_INVALID);
    assert_int_equal(tsr_store_open("tcp://127.0.0.1:1", &(tsr_store_opts){0}, &s),
                     TSR_ERR_INVALID);
    assert_int_equal(tsr_store_open("tcp://127.0.0.1:1?rank=0&world_size=1",
                                    TSR_STORE_OPTS(.timeout_s = -1), &s),
                     TSR_ERR_INVALID);
    assert_int_equal(tsr_store_set_timeout(NULL, 1), TSR_ERR_INVALID);
    assert_int_equal(tsr_store_set(NULL, "k", "", 0), TSR_ERR_INVALID);
    assert_int_equal(tsr_store_get(NULL, "k", NULL, 0, NULL), TSR_ERR_INVALID);
    assert_int_equal(tsr_store_add(NULL, "k", 1, &n), TSR_ERR_INVALID);
    assert_int_equal(tsr_store_compare_set(NULL, "k", "", 0, "", 0, NULL, 0, NULL),
                     TSR_ERR_INVALID);
    assert_int_equal(tsr_store_wait(NULL, 1, &key, 1), TSR_ERR_INVALID);
    assert_int_equal(tsr_store_check(NULL, 1, &key, &b), TSR_ERR_INVALID);
    assert_int_equal(tsr_store_delete(NULL, "k", NULL), TSR_ERR_INVALID);
    assert_int_equal(tsr_store_count(NULL, &n), TSR_ERR_INVALID);
    assert_int_equal(tsri_store_prefix(NULL, "p"), TSR_ERR_INVALID);
    char address[8] = "x";
    tsri_store_address(NULL, address, sizeof address);
    assert_string_equal(address, "");
    tsri_store_server_stop(NULL);
    assert_int_equal(tsri_store_server_port(NULL), 0);
    assert_null(s);
}

static tsr_status null_arguments(tsr_store *s, int rank, void *arg)
{
    const char *one = NULL;
    bool b;
    (void)rank, (void)arg;
    CHECK(tsr_store_set(s, NULL, "", 0) == TSR_ERR_INVALID);
    CHECK(tsr_store_set(s, "k", NULL, 1) == TSR_ERR_INVALID);
    CHECK(tsr_store_set(s, "k", NULL, 0) == TSR_OK);
    CHECK(tsr_store_get(s, "k", NULL, 1, NULL) == TSR_ERR_INVALID);
    CHECK(tsr_store_get(s, "k", NULL, 0, NULL) == TSR_OK);
    CHECK(tsr_store_compare_set(s, "k", NULL, 1, "", 0, NULL, 0, NULL) == TSR_ERR_INVALID);
    CHECK(tsr_store_check(s, 1, &one, &b) == TSR_ERR_INVALID);
    CHECK(tsr_store_check(s, 1, NULL, NULL) == TSR_ERR_INVALID);
    CHECK(tsr_store_count(s, NULL) == TSR_ERR_INVALID);
    CHECK(tsr_store_delete(s, "k", NULL) == TSR_OK);
    CHECK(tsr_store_rank(s) == 0 && tsr_store_size(s) == 1);
    return TSR_OK;
}

/* By which address a machine reaches the server: a file has none. */
static void test_address(void **state)
{
    (void)state;
    static const char *const expected[KINDS] = {"127.0.0.1", "::1", "127.0.0.1", ""};
    for (kind k = 0; k < KINDS; k++) {
        place p;
        tsr_store *s;
        char text[64] = "nothing was written", one[2] = "xy";
        place_make(&p, k);
        assert_int_equal(
            tsr_store_open(p.url, TSR_STORE_OPTS(.nranks = 1, .hosted = k == HOSTED), &s), TSR_OK);
        tsri_store_address(s, one, 0);
        assert_memory_equal(one, "xy", 2);
        tsri_store_address(s, text, sizeof text);
        assert_string_equal(text, k == TCP6 && !has_ipv6() ? expected[TCP] : expected[k]);
        tsr_store_close(s);
        place_finish(&p);
    }
}

static void test_null_arguments(void **state)
{
    (void)state;
    run_alone(null_arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_null_arguments),
        cmocka_unit_test(test_address),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_against_a_model),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_rank_0_leaves_last),
        cmocka_unit_test(test_nothing_is_left),
    };
    return cmocka_run_group_tests_name("store", tests, make_test_dir, remove_test_dir);
}
