/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks find those of their machine: processes that may not look at each other, ranks that do
 * not come, and a store that says what nobody has written. */
#include "src/comm/world/meet.h"
#include "src/comm/store/inside.h"
#include "store_ranks.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { RANKS = 4, ARENA_BYTES = 1 << 20 };

static void loopback(char *url, size_t size)
{
    snprintf(url, size, "tcp://127.0.0.1:%d", free_port());
}

/* --- who sees whom ---------------------------------------------------------------------------- */

/* Changes what this process may do to others: CAP_SYS_PTRACE lets it look at any. */
static bool may_look(bool give_up)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    if (syscall(SYS_capget, &head, data) != 0)
        return false;
    const bool may = data[0].effective >> CAP_SYS_PTRACE & 1;
    data[0].effective &= ~(1U << CAP_SYS_PTRACE);
    return may && (!give_up || syscall(SYS_capset, &head, data) == 0);
}

/* The first rank of the machine lets nobody look at it who may not look at any; of the others,
 * those of odd numbers give that up. arg: the ranks that then share memory, by their bits. */
static tsr_status meet_hidden(tsr_store *s, int rank, void *arg)
{
    const unsigned together = *(const unsigned *)arg;
    tsri_machine m;
    if (rank & 1)
        (void)may_look(true);
    CHECK(prctl(PR_SET_DUMPABLE, rank == 0 ? 0 : 1) == 0);
    TSRI_TRY(tsri_machine_meet(s, rank, RANKS, ARENA_BYTES, &m));
    if (!(together >> rank & 1)) {
        CHECK(m.nranks == 1 && m.index == 0 && m.rank[0] == rank && m.arena.nranks == 1);
    } else {
        int n = 0;
        for (int r = 0; r < RANKS; r++) {
            if (!(together >> r & 1))
                continue;
            CHECK(m.rank[n] == r);
            if (r == rank)
                CHECK(m.index == n);
            n++;
        }
        CHECK(m.nranks == n && m.arena.nranks == n);
    }
    tsri_arena_unmap(&m.arena);
    return TSR_OK;
}

static void test_hidden(void **state)
{
    (void)state;
    crew c;
    char url[64];
    unsigned together = may_look(false) ? 1U << 0 | 1U << 2 : 1U << 0;
    loopback(url, sizeof url);
    crew_make(&c, url, RANKS, meet_hidden);
    c.processes = true;
    c.arg = &together;
    crew_start_all(&c);
    crew_finish(&c);
}

/* --- a store that lies ------------------------------------------------------------------------ */

/* A false value for rank 1 at keys with one of these ends (blanks between), where @ is the host's
 * process; and the errors of rank 1 and rank 0. */
typedef struct lie {
    const char *keys, *text;
    tsr_status status;
    const char *parts[2];
    tsr_status host_status;
    const char *host_part;
} lie;

#define NOT_ALL_LOOKED \
    TSR_ERR_TIMEOUT, "other ranks of this machine have come to the meeting, and then no more"
#define NO_COUNT(said)                                           \
    {                                                            \
        said " ranks are on one machine: at most 256 can be", "" \
    }
#define NO_PEER(said)                                                                    \
    {                                                                                    \
        "the store has '" said "' as meet/", "/1: expected a rank below 2 and a process" \
    }
#define BAD_ARENA(said)                                                                   \
    TSR_ERR_FORMAT, {"the store has '" said, "/arena: expected pid:fd:bytes of process"}, \
        TSR_ERR_FORMAT, "rank 1: the store has '" said
#define NOT_AMONG                                                                       \
    TSR_ERR_INTERNAL, {"rank 1 is not among those of its arena", ""}, TSR_ERR_INTERNAL, \
        "rank 1: rank 1 is not among those of its arena"
#define SIXTY "012345678901234567890123456789012345678901234567890123456789"

static const lie lies[] = {
    {"/n", "0", TSR_ERR_INVALID, NO_COUNT("0"), NOT_ALL_LOOKED},
    {"/n", "-1", TSR_ERR_INVALID, NO_COUNT("-1"), NOT_ALL_LOOKED},
    {"/n", "257", TSR_ERR_INVALID, NO_COUNT("257"), NOT_ALL_LOOKED},
    {"/n", "2 \033[2J", TSR_ERR_INVALID, NO_COUNT("2 ?[2J"), NOT_ALL_LOOKED},
    {"/1", "", TSR_ERR_FORMAT, NO_PEER(""), NOT_ALL_LOOKED},
    {"/1", "7", TSR_ERR_FORMAT, NO_PEER("7"), NOT_ALL_LOOKED},
    {"/1", "x 7", TSR_ERR_FORMAT, NO_PEER("x 7"), NOT_ALL_LOOKED},
    {"/1", "1 x", TSR_ERR_FORMAT, NO_PEER("1 x"), NOT_ALL_LOOKED},
    {"/1", "2 7", TSR_ERR_FORMAT, NO_PEER("2 7"), NOT_ALL_LOOKED},
    {"/1", "-1 7", TSR_ERR_FORMAT, NO_PEER("-1 7"), NOT_ALL_LOOKED},
    {"/1", "4294967296 7", TSR_ERR_FORMAT, NO_PEER("4294967296 7"), NOT_ALL_LOOKED},
    {"/1", "1 0", TSR_ERR_FORMAT, NO_PEER("1 0"), NOT_ALL_LOOKED},
    {"/1", "1 7 7", TSR_ERR_FORMAT, NO_PEER("1 7 7"), NOT_ALL_LOOKED},
    {"/1 /2", "0 7", TSR_ERR_FORMAT, {"the store has rank 0 twice at meet/", ""}, NOT_ALL_LOOKED},
    {"/1 /2", "1 7", TSR_ERR_FORMAT, {"the store has rank 1 twice at meet/", ""}, NOT_ALL_LOOKED},
    {"/arena", "junk", BAD_ARENA("junk")},
    {"/arena", "@:2", BAD_ARENA("")},
    {"/arena", SIXTY "more", BAD_ARENA(SIXTY "'")},
    {"/arena", "1:2:4096 0 1", BAD_ARENA("1:2:4096 0 1")},
    {"/arena", "@:-1:4096 0 1", BAD_ARENA("")},
    {"/arena", "@:2:0 0 1", BAD_ARENA("")},
    {"/arena", "@:2:4096 0 1 2", BAD_ARENA("")},
    {"/arena", "@:2:4096 -1 1", BAD_ARENA("")},
    {"/arena", "@:2:4096 1 0", BAD_ARENA("")},
    {"/arena", "@:2:4096 1 1", BAD_ARENA("")},
    {"/arena", "@:2:4096 0 1x", BAD_ARENA("")},
    {"/arena", "! 0 all is well", BAD_ARENA("! 0 all is well")},
    {"/arena", "! 1 all is well", BAD_ARENA("! 1 all is well")},
    {"/arena", "! -17 all is well", BAD_ARENA("! -17 all is well")},
    {"/arena", "@:2:4096", NOT_AMONG},
    {"/arena", "@:2:4096 0", NOT_AMONG},
    {"/arena",
     "! -6 \033[31mfull",
     (tsr_status)-6,
     {"rank 0: ?[31mfull", ""},
     TSR_ERR_TIMEOUT,
     "not all other ranks of this machine have opened its memory"},
};
enum { LIES = sizeof lies / sizeof *lies };

typedef struct liar {
    tsri_store_ops ops; /* the store's own, but for `call` */
    const tsri_store_ops *true_ops;
    const lie *lie;
} liar;

static _Thread_local liar *own_liar;

static bool ends_in_one(const char *key, const char *ends)
{
    for (size_t n; *ends; ends += n + (ends[n] == ' ')) {
        n = strcspn(ends, " ");
        if (strlen(key) >= n && !strncmp(key + strlen(key) - n, ends, n))
            return true;
    }
    return false;
}

static tsr_status call_and_lie(tsr_store *s, tsri_store_call *call)
{
    const lie *l = own_liar->lie;
    char text[128];
    TSRI_TRY(own_liar->true_ops->call(s, call));
    if (call->op != TSRI_STORE_GET || !ends_in_one(call->keys[0], l->keys))
        return TSR_OK;
    const char *rest = l->text + (*l->text == '@');
    int n = rest > l->text ? snprintf(text, sizeof text, "%d%s", (int)getpid(), rest)
                           : snprintf(text, sizeof text, "%s", rest);
    call->out_bytes = (size_t)n;
    CHECK(call->out_bytes <= call->ask.room);
    memcpy(call->dst, text, call->out_bytes);
    return TSR_OK;
}

static tsr_status meet_liar(tsr_store *s, int rank, void *arg)
{
    liar mine = {.ops = *s->ops, .true_ops = s->ops, .lie = arg};
    tsri_machine m;
    mine.ops.call = call_and_lie;
    own_liar = &mine;
    TSRI_TRY(tsr_store_set_timeout(s, rank ? 10 : 1));
    if (rank)
        s->ops = &mine.ops;
    tsr_status status = tsri_machine_meet(s, rank, 2, ARENA_BYTES, &m);
    s->ops = mine.true_ops;
    tsr_store_set_timeout(s, 60);
    CHECK(status != TSR_OK);
    return status;
}

static void test_lies(void **state)
{
    (void)state;
    static crew c[LIES];
    char url[64];
    for (int i = 0; i < LIES; i++) {
        loopback(url, sizeof url);
        crew_make(&c[i], url, 2, meet_liar);
        c[i].arg = (void *)(uintptr_t)&lies[i];
        crew_start_all(&c[i]);
    }
    for (int i = 0; i < LIES; i++) {
        crew_join(&c[i], 0);
        crew_join(&c[i], 1);
    }
    for (int i = 0; i < LIES; i++) {
        crew_expect(&c[i], 1, lies[i].status, lies[i].parts[0]);
        crew_expect(&c[i], 1, lies[i].status, lies[i].parts[1]);
        crew_expect(&c[i], 0, lies[i].host_status, lies[i].host_part);
        crew_free(&c[i]);
    }
}

/* --- who does not come ------------------------------------------------------------------------ */

/* Rank `rank` of n comes alone to the meeting. */
static void come_alone(int rank, int n)
{
    tsri_store_server *server;
    tsr_store *s;
    char url[64];
    tsri_machine m;
    assert_int_equal(tsri_store_server_start("127.0.0.1", 0, 0, &server), TSR_OK);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", tsri_store_server_port(server));
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    s->timeout_s = 0.1; /* a busy machine may take longer to connect */
    assert_int_equal(tsri_machine_meet(s, rank, n, ARENA_BYTES, &m), TSR_ERR_TIMEOUT);
    tsr_store_close(s);
    tsri_store_server_stop(server);
}

static void expect_text(const char *part)
{
    if (!strstr(tsr_last_error(), part))
        fail_msg("expected '%s' in: %s", part, tsr_last_error());
}

static void test_absent(void **state)
{
    (void)state;
    char list[2048];
    come_alone(0, 2);
    expect_text("rank 1 did not come to the meeting of 2 ranks");
    come_alone(1, 3);
    expect_text("ranks 0, 2 did not come to the meeting of 3 ranks");
    /* The first ones, each whole. */
    come_alone(0, 200);
    expect_text(", ... did not come to the meeting of 200 ranks");
    const char *from = strstr(tsr_last_error(), "ranks 1, 2, 3, ");
    assert_non_null(from);
    size_t used = (size_t)snprintf(list, sizeof list, "ranks 1");
    int n = 1;
    while (strncmp(from, list, used) == 0 && n < 200)
        used += (size_t)snprintf(list + used, sizeof list - used, ", %d", ++n);
    assert_true(n > 50 && n < 100);
    snprintf(list, sizeof list, ", %d, ... did not come", n - 1);
    expect_text(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_absent),
    };
    return cmocka_run_group_tests_name("machine_meet", tests, NULL, NULL);
}
