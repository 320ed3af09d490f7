/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder's ring and its table of groups, entry by entry. */
#include "src/comm/comm.h"
#include "src/comm/flight/flight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static tsri_flight *f;

static int make_flight(void **state)
{
    (void)state;
    f = aligned_alloc(TSRI_FLIGHT_LINE, sizeof *f);
    if (!f)
        return -1;
    memset(f, 0, sizeof *f);
    tsri_flight_open(f, 1, 3, 5, "run");
    return 0;
}

static int free_flight(void **state)
{
    (void)state;
    free(f);
    return 0;
}

static int pair(void)
{
    const int ranks[] = {0, 1};
    return tsri_flight_group_of(f, "local", 0, 2, ranks);
}

static tsri_flight_entry *entry_of(uint64_t number)
{
    return &f->entry[(number - 1) % TSRI_FLIGHT_CALLS];
}

static tsri_flight_call call_of(uint64_t number)
{
    uint64_t word[TSRI_FLIGHT_WORDS];
    tsri_flight_call call;
    for (int i = 0; i < TSRI_FLIGHT_WORDS; i++)
        word[i] = entry_of(number)->word[i];
    memcpy(&call, word, sizeof call);
    return call;
}

static uint64_t begin(int group, uint64_t seq)
{
    const tsri_coll coll = {.kind = TSRI_COLL_BROADCAST, .what = "w"};
    return tsri_flight_begin(f, group, seq, TSRI_COLL_BROADCAST, &coll, 8, 9);
}

static void expect_entry(uint64_t number, int state, int64_t waits)
{
    const tsri_flight_entry *e = entry_of(number);
    assert_int_equal(tsri_flight_number_of(e->mark), number);
    assert_int_equal(tsri_flight_state_of(e->mark), state);
    assert_int_equal(e->waits, waits);
    const bool ended = state == TSRI_FLIGHT_COMPLETED || state == TSRI_FLIGHT_FAILED;
    assert_int_equal(e->ended_ns != 0, ended);
}

static void expect_group(int group, uint64_t started, uint64_t completed)
{
    assert_int_equal(f->group[group - 1].started, started);
    assert_int_equal(f->group[group - 1].completed, completed);
}

/* Ends a call in one of its ways, or says that it waits. */
static void do_one(int what, uint64_t number)
{
    switch (what) {
    case 0:
        tsri_flight_completed(f, number);
        break;
    case 1:
        tsri_flight_failed(f, number);
        break;
    case 2:
        tsri_flight_refused(f, number);
        break;
    case 3:
        tsri_flight_waits(f, number, 2);
        break;
    default:
        tsri_flight_waited(f, number);
    }
}
enum { ACTS = 5 };

static void test_states(void **state)
{
    (void)state;
    const int g = pair();
    uint64_t n = begin(g, 1);
    assert_int_equal(n, 1);
    expect_entry(n, TSRI_FLIGHT_STARTED, 0);
    expect_group(g, 1, 0);
    assert_int_equal(entry_of(n)->started_ns, call_of(n).asked_ns);
    tsri_flight_waited(f, n); /* it never slept */
    expect_entry(n, TSRI_FLIGHT_STARTED, 0);
    tsri_flight_waits(f, n, 0);
    expect_entry(n, TSRI_FLIGHT_STARTED, 1);
    tsri_flight_waited(f, n);
    expect_entry(n, TSRI_FLIGHT_STARTED, -1);
    tsri_flight_waited(f, n);
    expect_entry(n, TSRI_FLIGHT_STARTED, -1);
    tsri_flight_waits(f, n, 2);
    expect_entry(n, TSRI_FLIGHT_STARTED, 3);
    tsri_flight_completed(f, n);
    expect_entry(n, TSRI_FLIGHT_COMPLETED, 3);
    assert_true(entry_of(n)->ended_ns >= entry_of(n)->started_ns);
    expect_group(g, 1, 1);
    n = begin(g, 2);
    tsri_flight_failed(f, n);
    expect_entry(n, TSRI_FLIGHT_FAILED, 0);
    assert_true(entry_of(n)->started_ns > 0);
    expect_group(g, 2, 1);
    n = begin(g, 3);
    tsri_flight_refused(f, n); /* the next is the third */
    expect_entry(n, TSRI_FLIGHT_FAILED, 0);
    assert_int_equal(entry_of(n)->started_ns, 0);
    expect_group(g, 2, 1);
    n = begin(g, 3);
    assert_int_equal(begin(g, 4), n + 1);
    tsri_flight_refused(f, n); /* not the last one */
    expect_group(g, 4, 1);
    tsri_flight_completed(f, n + 1);
    expect_group(g, 4, 4);
    tsri_flight_open(f, 0, 2, 6, "another");
    expect_group(g, 0, 0);
    assert_int_equal(f->world, 6);
}

static void test_scheduled(void **state)
{
    (void)state;
    const int g = pair();
    const tsri_segment s = {.dtype = TSR_F64, .shape = TSR_DIMS(2, 3)};
    tsri_coll coll = {.kind = TSRI_COLL_REDUCE, .nseg = 1, .seg = &s, .what = "later"};
    coll.flight = tsri_flight_schedule(f, g, &coll);
    assert_int_equal(coll.flight, 1);
    expect_entry(1, TSRI_FLIGHT_SCHEDULED, 0);
    assert_int_equal(entry_of(1)->started_ns, 0);
    const int64_t asked = call_of(1).asked_ns;
    assert_true(asked > 0 && call_of(1).seq == 0 && call_of(1).world == 5);
    expect_group(g, 0, 0);
    assert_int_equal(begin(g, 1), 2);
    assert_int_equal(tsri_flight_begin(f, g, 2, TSRI_COLL_REDUCE, &coll, 48, 7), 1);
    expect_entry(1, TSRI_FLIGHT_STARTED, 0);
    tsri_flight_call c = call_of(1);
    assert_true(c.seq == 2 && c.bytes == 48 && c.hash == 7 && c.asked_ns == asked);
    assert_true(c.group == g && c.world == 5 && entry_of(1)->started_ns >= asked);
    assert_int_equal(f->calls, 2);
    expect_group(g, 2, 0);
    /* Refused before it has a number: the group's stays. */
    coll.flight = tsri_flight_schedule(f, g, &coll);
    tsri_flight_refused(f, coll.flight);
    expect_entry(coll.flight, TSRI_FLIGHT_FAILED, 0);
    expect_group(g, 2, 0);
    /* Its entry is gone by the time that it begins: it gets another one. */
    coll.flight = tsri_flight_schedule(f, g, &coll);
    for (int i = 0; i < TSRI_FLIGHT_CALLS; i++)
        begin(g, 3);
    const uint64_t n = tsri_flight_begin(f, g, 4, TSRI_COLL_REDUCE, &coll, 1, 1);
    assert_int_equal(n, coll.flight + TSRI_FLIGHT_CALLS + 1);
    expect_entry(coll.flight + TSRI_FLIGHT_CALLS, TSRI_FLIGHT_STARTED, 0);
    assert_int_equal(call_of(n).seq, 4);
}

/* Nothing is done to an entry that another call has by now, or that is being written, nor without
 * a recorder, a number or a group. */
static void test_gone(void **state)
{
    (void)state;
    const int g = pair();
    const uint64_t first = begin(g, 1);
    for (int i = 2; i <= TSRI_FLIGHT_CALLS + 1; i++)
        assert_int_equal(begin(g, (uint64_t)i), i);
    assert_int_equal(first, 1);
    tsri_flight *before = malloc(sizeof *before);
    for (int held = 0; held < 2; held++) {
        if (held)
            f->entry[0].mark = tsri_flight_mark(TSRI_FLIGHT_CALLS + 1, TSRI_FLIGHT_HELD);
        memcpy(before, f, sizeof *f);
        for (int what = 0; what < ACTS; what++) {
            do_one(what, held ? TSRI_FLIGHT_CALLS + 1 : first);
            do_one(what, 0);
            do_one(what, TSRI_FLIGHT_CALLS + 2); /* not yet there */
            assert_memory_equal(before, f, sizeof *f);
        }
        assert_int_equal(begin(0, 1), 0);
        assert_int_equal(begin(-1, 1), 0);
        assert_int_equal(begin(TSRI_FLIGHT_GROUPS + 1, 1), 0);
        assert_memory_equal(before, f, sizeof *f);
    }
    free(before);
    tsri_flight *mine = f;
    f = NULL;
    for (int what = 0; what < ACTS; what++)
        do_one(what, 1);
    assert_int_equal(begin(g, 1), 0);
    assert_int_equal(pair(), 0);
    tsri_flight_open(f, 0, 1, 1, "");
    f = mine;
}

/* Entries that are being written are stepped over, up to 63 of them. */
static void test_held(void **state)
{
    (void)state;
    const int g = pair();
    for (uint64_t n = 1; n <= 63; n++)
        entry_of(n)->mark = tsri_flight_mark(n, TSRI_FLIGHT_HELD);
    assert_int_equal(begin(g, 1), 64);
    for (uint64_t n = 65; n <= 128; n++)
        entry_of(n)->mark = tsri_flight_mark(n, TSRI_FLIGHT_HELD);
    assert_int_equal(begin(g, 2), 0);
    assert_int_equal(f->calls, 128);
    assert_int_equal(begin(g, 3), 129);
    expect_group(g, 3, 0);
}

/* Another thread's entries, of which the count has not heard yet, are left as they are. */
static void test_lagging_count(void **state)
{
    (void)state;
    const int g = pair();
    for (uint64_t n = 1; n <= 3; n++)
        assert_int_equal(begin(g, n), n);
    f->calls = 1;
    assert_int_equal(begin(g, 4), 4);
    assert_int_equal(f->calls, 4);
    for (uint64_t n = 1; n <= 4; n++)
        assert_int_equal(call_of(n).seq, n);
}

/* Times do not go back behind an exact one, but for a clock that was set back. */
static void test_times(void **state)
{
    (void)state;
    const int g = pair();
    uint64_t n = begin(g, 1);
    tsri_flight_failed(f, n);
    const int64_t ended = entry_of(n)->ended_ns;
    assert_int_equal(f->latest_ns, ended);
    n = begin(g, 2);
    assert_true(entry_of(n)->started_ns >= ended);
    assert_int_equal(call_of(n).asked_ns, entry_of(n)->started_ns);
    f->latest_ns = ended + INT64_C(3600000000000);
    n = begin(g, 3);
    assert_true(entry_of(n)->started_ns < f->latest_ns);
}

static void test_describe(void **state)
{
    (void)state;
    const tsri_segment s[2] = {{.dtype = TSR_F64, .shape = TSR_DIMS(2, 3, 5)},
                               {.dtype = TSR_F32, .shape = TSR_DIMS(7)}};
    tsri_coll coll = {.kind = TSRI_COLL_REDUCE,
                      .nseg = 2,
                      .seg = s,
                      .root = 3,
                      .op = TSR_REDUCE_MAX,
                      .number = 77,
                      .what = "0123456789012345678901234567890123456789012345678901234567890",
                      .loc = {.file = "a/b/model.c", .line = 12}};
    tsri_flight_call c;
    tsri_flight_describe(&c, 9, &coll, 10, 11);
    assert_true(c.shown == 77 && c.bytes == 10 && c.hash == 11 && c.line == 12 && c.nseg == 2);
    assert_true(c.root == 3 && c.kind == 9 && c.op == TSR_REDUCE_MAX && c.dtype == TSR_F64);
    assert_true(c.ndim == 3 && c.shape[0] == 2 && c.shape[1] == 3 && c.shape[2] == 5);
    assert_true(c.seq == 0 && c.group == 0 && c.world == 0 && c.asked_ns == 0);
    assert_string_equal(c.what, "01234567890123456789012345678901234567890123456");
    assert_string_equal(c.file, "model.c");
    coll = (tsri_coll){.kind = TSRI_COLL_BARRIER, .loc = {.file = "model.c"}};
    tsri_flight_describe(&c, TSRI_COLL_BARRIER, &coll, 0, 0);
    assert_true(c.ndim == 0 && c.nseg == 0 && c.what[0] == 0);
    assert_string_equal(c.file, "model.c");
    coll.loc.file = NULL;
    tsri_flight_describe(&c, TSRI_COLL_BARRIER, &coll, 0, 0);
    assert_string_equal(c.file, "");
}

/* Told apart by communicator, lane, number of ranks, and the first ranks of the list. */
static void test_groups(void **state)
{
    (void)state;
    enum { MANY = TSRI_FLIGHT_GROUP_RANKS + 2 };
    int ranks[MANY], other[MANY];
    for (int i = 0; i < MANY; i++)
        ranks[i] = other[i] = i;
    assert_int_equal(tsri_flight_group_of(f, "local", 0, 1, ranks), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(tsri_flight_group_of(f, "local", 0, 2, ranks), 1);
        assert_int_equal(tsri_flight_group_of(f, "gloo", 0, 2, ranks), 2);
        assert_int_equal(tsri_flight_group_of(f, "local", 1, 2, ranks), 3);
        assert_int_equal(tsri_flight_group_of(f, "local", 0, 3, ranks), 4);
        assert_int_equal(tsri_flight_group_of(f, "local", 0, 2, ranks + 1), 5);
        assert_int_equal(tsri_flight_group_of(f, "a name of 18 bytes", 0, 2, ranks), 6);
        assert_int_equal(tsri_flight_group_of(f, "local", 0, MANY, ranks), 7);
        other[MANY - 3] = 0; /* of the list the last, and behind it */
        assert_int_equal(tsri_flight_group_of(f, "local", 0, MANY, other), 8);
        other[MANY - 3] = MANY - 3;
        other[MANY - 2] = 0;
        assert_int_equal(tsri_flight_group_of(f, "local", 0, MANY, other), 7);
        assert_int_equal(f->ngroups, 8);
    }
    assert_string_equal(f->group[5].comm, "a name of 18 by");
    assert_true(f->group[2].lane == 1 && f->group[3].nranks == 3 && f->group[4].ranks[1] == 2);
    for (int lane = 100; lane < 100 + TSRI_FLIGHT_GROUPS - 8; lane++)
        assert_int_equal(tsri_flight_group_of(f, "local", lane, 2, ranks), lane - 100 + 9);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tsri_flight_group_of(f, "local", 9999 + i, 2, ranks), 0);
        assert_int_equal(f->ngroups, TSRI_FLIGHT_GROUPS);
        assert_int_equal(tsri_flight_group_of(f, "local", 100, 2, ranks), 9);
    }
    const int last = tsri_flight_group_of(f, "local", 99 + TSRI_FLIGHT_GROUPS - 8, 2, ranks);
    assert_int_equal(last, TSRI_FLIGHT_GROUPS);
    assert_int_equal(begin(last, 5), 1);
    tsri_flight_completed(f, 1);
    expect_group(last, 5, 5);
    tsri_flight_open(f, 0, 2, 6, "another");
    expect_group(last, 0, 0);
}

static void test_open(void **state)
{
    (void)state;
    char name[2 * TSRI_FLIGHT_RUN];
    assert_true(f->rank == 1 && f->nranks == 3 && f->world == 5 && f->pid == getpid());
    assert_string_equal(f->run, "run");
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    tsri_flight_open(f, 2, 4, 6, name);
    assert_int_equal(strlen(f->run), TSRI_FLIGHT_RUN - 1);
    assert_int_equal(f->ngroups, 0);
    assert_int_equal(f->calls, 0);
}

#define WITH_FLIGHT(fn) cmocka_unit_test_setup_teardown(fn, make_flight, free_flight)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_FLIGHT(test_open),   WITH_FLIGHT(test_groups),        WITH_FLIGHT(test_describe),
        WITH_FLIGHT(test_states), WITH_FLIGHT(test_scheduled),     WITH_FLIGHT(test_gone),
        WITH_FLIGHT(test_held),   WITH_FLIGHT(test_lagging_count), WITH_FLIGHT(test_times),
    };
    return cmocka_run_group_tests_name("flight_record", tests, NULL, NULL);
}
