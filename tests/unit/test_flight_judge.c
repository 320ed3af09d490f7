/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps of flight recorders, written by hand: what the reader takes, and whom the judge blames. */
#include "src/cli/flight/read.h"
#include "src/comm/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/heap.h"

enum { MOST = 100, SECOND = 1000000000 };
static const int64_t epoch = INT64_C(1700000000) * SECOND;

/* The files of a run, as texts. */
static FILE *file[MOST];
static char *text[MOST];
static size_t size[MOST];
static int nfiles;

static tsri_flight_report report[MOST];
static tsri_flight_verdict verdict;

static void head_in(int rank, int nranks, int world, const char *reason, const char *exit)
{
    file[nfiles] = open_memstream(&text[nfiles], &size[nfiles]);
    assert_non_null(file[nfiles]);
    fprintf(file[nfiles],
            "tessera flight 1\nrun r1\nrank %d of %d\nworld %d\nrestart 0\nhost h\npid %d\n"
            "time %lld 2023-11-14T22:13:20Z\nreason %s\nexit %s\ncalls 100\n",
            rank, nranks, world, 100 + rank, (long long)(epoch + 60 * (int64_t)SECOND), reason,
            exit);
    nfiles++;
}

static void head(int rank, int nranks, const char *reason, const char *exit)
{
    head_in(rank, nranks, 1, reason, exit);
}

static void group(int number, const char *comm, const char *ranks, int started, int completed)
{
    int n = 1;
    for (const char *c = ranks; *c; c++)
        n += *c == ',';
    fprintf(file[nfiles - 1],
            "group %d comm=%s lane=0 nranks=%d ranks=%s started=%d completed=%d\n", number, comm, n,
            ranks, started, completed);
}

/* what: "all_reduce", or a kind with more words: see the callers. waits "-", "N" or "~N". At
 * second `at`, and ended a second later unless it is only started. */
static void call_as(int number, const char *state, int group_number, int seq, const char *what,
                    const char *waits, int at, const char *place)
{
    bool ends = strcmp(state, "started") && strcmp(state, "scheduled");
    bool comes = strcmp(state, "scheduled");
    long long ns = epoch + at * (int64_t)SECOND;
    fprintf(
        file[nfiles - 1],
        "call %d state=%s group=%d world=1 seq=%d shown=0 %s asked=%lld started=%lld ended=%lld "
        "waits=%s at=\"%s\" what=\"x\"\n",
        number, state, group_number, seq, what, ns, comes ? ns : 0, ends ? ns + SECOND : 0, waits,
        place);
}

#define OF(kind, op, root, shape, hash)                                   \
    "kind=" kind " algo=0 op=" op " root=" root " dtype=f32 shape=" shape \
    " segments=1 bytes=16 hash=000000000000000" hash
#define ALL_REDUCE OF("all_reduce", "sum", "-", "4", "1")
#define BROADCAST OF("broadcast", "-", "0", "4", "2")
#define SEND_RECV OF("send_recv", "sum", "-", "4", "3")

static void call(int number, const char *state, int group_number, int seq, const char *waits,
                 int at)
{
    call_as(number, state, group_number, seq, ALL_REDUCE, waits, at, "t.c:31");
}

static void judge(void)
{
    for (int i = 0; i < nfiles; i++) {
        char name[16];
        fputs("end\n", file[i]);
        fclose(file[i]);
        snprintf(name, sizeof name, "file %d", i);
        if (tsri_flight_parse(name, text[i], size[i], &report[i]) != TSR_OK)
            fail_msg("%s in:\n%s", tsr_last_error(), text[i]);
    }
    assert_int_equal(tsri_flight_judge(report, nfiles, &verdict), TSR_OK);
}

static void clear(void)
{
    tsri_flight_verdict_finish(&verdict);
    for (int i = 0; i < nfiles; i++) {
        tsri_flight_report_finish(&report[i]);
        free(text[i]);
    }
    nfiles = 0;
}

/* guilty: a digit per rank. */
static void expect(tsri_flight_fault fault, const char *guilty, const char *said)
{
    char is[MOST + 1] = "";
    judge();
    for (int i = 0; i < verdict.nguilty && i < MOST; i++)
        is[i] = (char)('0' + verdict.guilty[i]);
    char got[2048];
    int got_fault = (int)verdict.fault;
    snprintf(got, sizeof got, "%s", verdict.text);
    clear();
    if (got_fault != (int)fault || strcmp(is, guilty) || strcmp(got, said))
        fail_msg("expected fault %d of %s: %s\n     got fault %d of %s: %s", (int)fault, guilty,
                 said, got_fault, is, got);
    assert_null(strchr(got, '\n'));
}

/* --- scenarios -------------------------------------------------------------------------------- */
static void test_finished(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        head(r, 2, "tsr_flight_dump", "-");
        group(1, "local", "0,1", 2, 2);
        call(1, "completed", 1, 1, "-", 1);
        call(2, "completed", 1, 2, "~0", 2);
    }
    expect(TSRI_FLIGHT_NOBODY, "", "no rank is behind: all finished their calls");
}

static void test_late(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++) {
        head(r, 3, r == 0 ? "TSR_ERR_TIMEOUT: x" : "TSR_ERR_REMOTE: x", "-");
        group(1, "local", "0,1,2", r == 1 ? 16 : 17, 16);
        call_as(1, "completed", 1, 16, BROADCAST, "-", 1, "t.c:29");
        if (r != 1)
            call(2, "failed", 1, 17, "1", 12);
    }
    expect(TSRI_FLIGHT_BEHIND, "1",
           "rank 1 did not come to all_reduce #17 of group [0,1,2] 'x' (t.c:31); its last call was "
           "broadcast #16 of group [0,1,2] 'x' (t.c:29), completed 11.0 s before; ranks 0 and 2 "
           "waited");
}

/* A message names a few of many ranks, and counts all. */
static void test_many(void **state)
{
    (void)state;
    enum { RANKS = 90 };
    char ranks[4 * RANKS] = "0";
    for (int r = 1, used = 1; r < RANKS; r++)
        used += snprintf(ranks + used, sizeof ranks - (size_t)used, ",%d", r);
    for (int r = 0; r < RANKS; r++) {
        head(r, RANKS, r ? "TSR_ERR_TIMEOUT: x" : "-", "-");
        group(1, "local", ranks, r ? 2 : 1, 1);
        call(1, "completed", 1, 1, "-", 1);
        if (r)
            call(2, "failed", 1, 2, "0", 2);
    }
    expect(TSRI_FLIGHT_BEHIND, "0",
           "rank 0 did not come to all_reduce #2 of group [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,"
           "... 90 ranks] 'x' (t.c:31); its last call was all_reduce #1 of group [0,1,2,3,4,5,6,7,"
           "8,9,10,11,12,13,14,15,... 90 ranks] 'x' (t.c:31), completed 1.0 s before; ranks 1, 2, "
           "3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 77 more waited");
}

static void test_two_late(void **state)
{
    (void)state;
    /* Rank 0 sleeps for the first of the two only; rank 3, which came, for the second. */
    for (int r = 0; r < 4; r++) {
        bool came = r == 0 || r == 3;
        head(r, 4, "-", "-");
        group(1, "local", "0,1,2,3", came, 0);
        if (came)
            call(1, "failed", 1, 1, r == 0 ? "1" : "2", 5);
    }
    expect(TSRI_FLIGHT_BEHIND, "12",
           "rank 1 did not come to all_reduce #1 of group [0,1,2,3] 'x' (t.c:31); it has come to "
           "no call yet; rank 0 waited; rank 2 did not come to all_reduce #1 of group [0,1,2,3] "
           "'x' (t.c:31); it has come to no call yet; rank 3 waited");
}

static void try_killed(void)
{
    /* In the call, where it waited for rank 0: that is no excuse. */
    for (int r = 0; r < 3; r++) {
        head(r, 3, r == 2 ? "-" : "TSR_ERR_DEAD: x", r == 2 ? "signal 9" : "-");
        group(1, "local", "0,1,2", 40, 39);
        call(1, "completed", 1, 39, "-", 1);
        call(2, r == 2 ? "started" : "failed", 1, 40, r == 2 ? "0" : "2", 2);
    }
    expect(TSRI_FLIGHT_DIED, "2",
           "rank 2 was killed by signal 9 (SIGKILL): it has started all_reduce #40 of group "
           "[0,1,2] 'x' (t.c:31) and never finished it; ranks 0 and 1 waited");
    /* Not yet in the call. */
    for (int r = 0; r < 2; r++) {
        head(r, 2, r == 1 ? "-" : "TSR_ERR_DEAD: x", r == 1 ? "code 7" : "-");
        group(1, "local", "0,1", 2 - r, 1);
        call(1, "completed", 1, 1, "-", 1);
        if (r == 0)
            call(2, "failed", 1, 2, "1", 2);
    }
    expect(TSRI_FLIGHT_DIED, "1",
           "rank 1 ended with exit code 7: it did not come to all_reduce #2 of group [0,1] 'x' "
           "(t.c:31); its last call was all_reduce #1 of group [0,1] 'x' (t.c:31), completed 1.0 s "
           "before; rank 0 waited");
    /* Stopped by the launcher while it waited: the other one is late. */
    head(0, 2, "-", "stopped");
    group(1, "local", "0,1", 1, 0);
    call(1, "started", 1, 1, "1", 2);
    head(1, 2, "-", "stopped");
    expect(TSRI_FLIGHT_BEHIND, "1",
           "rank 1 did not come to all_reduce #1 of group [0,1] 'x' (t.c:31); it has come to no "
           "call yet; rank 0 waited");
    /* Nobody had to wait for it. */
    head(0, 2, "-", "stopped");
    head(1, 2, "-", "signal 11");
    expect(TSRI_FLIGHT_GAVE_UP, "1",
           "rank 1 was killed by signal 11 (SIGSEGV); it had come to no call; no rank is on record "
           "as waiting for it");
    for (int r = 0; r < 2; r++) {
        head(r, 2, "-", r ? "signal 11" : "stopped");
        group(1, "local", "0,1", 1, 1);
        call(1, "completed", 1, 1, "-", 1);
    }
    expect(TSRI_FLIGHT_GAVE_UP, "1",
           "rank 1 was killed by signal 11 (SIGSEGV); its last call was all_reduce #1 of group "
           "[0,1] 'x' (t.c:31), completed; no rank is on record as waiting for it");
}

static void test_killed(void **state)
{
    (void)state;
    KEEPS_NOTHING(try_killed());
}

static void test_disagree(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        head(r, 2, "TSR_ERR_MISMATCH: x", "-");
        group(1, "local", "0,1", 5, 4);
        call(1, "completed", 1, 4, "-", 1);
        call_as(2, "failed", 1, 5, r ? BROADCAST : ALL_REDUCE, "-", 2, r ? "a.c:12" : "a.c:10");
    }
    expect(TSRI_FLIGHT_DISAGREE, "01",
           "ranks 0 and 1 disagree on call #5 of group [0,1]: rank 0 all_reduce f32 [4] sum 'x' at "
           "a.c:10, rank 1 broadcast f32 [4] root 0 'x' at a.c:12");
    /* Three against one; a rank that waits elsewhere because of it is not to blame. */
    for (int r = 0; r < 5; r++) {
        head(r, 5, "-", "-");
        group(1, "local", "0,1,2,3", r < 4, 0);
        group(2, "local", "3,4", r == 4, 0);
        if (r < 4)
            call_as(1, "failed", 1, 1,
                    r == 2 ? OF("all_reduce", "sum", "-", "2,2", "5") : ALL_REDUCE, "-", 2, "");
        else
            call(1, "failed", 2, 1, "3", 2);
    }
    expect(TSRI_FLIGHT_DISAGREE, "0123",
           "ranks 0, 1, 2 and 3 disagree on call #1 of group [0,1,2,3]: ranks 0, 1 and 3 "
           "all_reduce f32 [4] sum 'x', rank 2 all_reduce f32 [2,2] sum 'x'");
}

/* An old disagreement, from which the group has gone on, is not why rank 1 lacks now. A call that
 * was refused leaves its number to the next. */
static void handled(const char *comm, const char *group_said)
{
    char said[256];
    for (int r = 0; r < 2; r++) {
        head(r, 2, "-", "-");
        group(1, comm, "0,1", r ? 3 : 4, 3);
        call_as(1, "failed", 1, 2, r ? BROADCAST : ALL_REDUCE, "-", 1, "");
        call_as(2, "failed", 1, 3, BROADCAST, "-", 2, "");
        call(3, "completed", 1, 3, "-", 3);
        if (r == 0)
            call(4, "failed", 1, 4, "1", 4);
    }
    snprintf(said, sizeof said,
             "rank 1 did not come to all_reduce #4 of group %s 'x' (t.c:31); its last call was "
             "all_reduce #3 of group %s 'x' (t.c:31), completed 1.0 s before; rank 0 waited",
             group_said, group_said);
    expect(TSRI_FLIGHT_BEHIND, "1", said);
}

static void test_handled(void **state)
{
    (void)state;
    handled("local", "[0,1]");
    handled("twin", "[0,1]");
    handled("gloo", "[0,1] (gloo, lane 0)");
    handled("gloo.1", "[0,1] (gloo.1, lane 0)");
}

/* Rank r waits in the group of r and r + 1; the last one for nobody, or for the first. All but rank
 * `standing` report that they timed out; -1: none does. */
static void chain(int n, bool closed, int standing)
{
    for (int r = 0; r < n; r++) {
        char pair[24], next[24];
        int before = (r + n - 1) % n, after = (r + 1) % n;
        head(r, n, standing < 0 || r == standing ? "-" : "TSR_ERR_TIMEOUT: it did not come", "-");
        snprintf(pair, sizeof pair, "%d,%d", before, r);
        snprintf(next, sizeof next, "%d,%d", r, after);
        /* It has not come to the one before: it is busy with the other. */
        if (closed || r > 0)
            group(1, "local", pair, 8, 8);
        if (!closed && r == n - 1) {
            call(1, "completed", 1, 8, "-", 1);
            continue;
        }
        group(2, "local", next, 9, 8);
        snprintf(pair, sizeof pair, "%d", after);
        call(2, "failed", 2, 9, pair, 3 + r);
    }
}

static void test_chain(void **state)
{
    (void)state;
    chain(5, false, -1);
    expect(TSRI_FLIGHT_BEHIND, "4",
           "rank 4 did not come to all_reduce #9 of group [3,4] 'x' (t.c:31); its last call was "
           "all_reduce #8 of group [3,4] 'x' (t.c:31), completed 5.0 s before; rank 3 waited");
    chain(3, true, -1);
    expect(TSRI_FLIGHT_CIRCLE, "012",
           "ranks 0, 1 and 2 wait for each other: rank 0 in all_reduce #9 of group [0,1] 'x' "
           "(t.c:31) for rank 1, rank 1 in all_reduce #9 of group [1,2] 'x' (t.c:31) for rank 2, "
           "rank 2 in all_reduce #9 of group [2,0] 'x' (t.c:31) for rank 0");
    chain(3, true, 1); /* stopped while it slept for rank 2 */
    expect(TSRI_FLIGHT_BEHIND, "1",
           "rank 1 did not come to all_reduce #9 of group [0,1] 'x' (t.c:31); its last call was "
           "all_reduce #9 of group [1,2] 'x' (t.c:31), which failed; rank 0 waited");
}

/* Rank 2 hangs after it has begun, but not waited for, a call that rank 1 has not come to, because
 * that waits for rank 2. */
static void test_begun(void **state)
{
    (void)state;
    head(1, 3, "-", "-");
    group(1, "local", "1,2", 1, 0);
    group(2, "local", "2,1", 0, 0);
    call(1, "failed", 1, 1, "2", 3);
    head(2, 3, "-", "-");
    group(1, "local", "1,2", 0, 0);
    group(2, "local", "2,1", 1, 0);
    call(1, "started", 2, 1, "-", 2);
    head(0, 3, "-", "-");
    expect(TSRI_FLIGHT_BEHIND, "2",
           "rank 2 did not come to all_reduce #1 of group [1,2] 'x' (t.c:31); its last call was "
           "all_reduce #1 of group [2,1] 'x' (t.c:31), which it has not finished; rank 1 waited");
}

/* Who sends goes on, up to 64 calls ahead; who receives waits for the sender alone. */
static void test_one_sided(void **state)
{
    (void)state;
    /* Rank 0 has sent 64 and waits for rank 1 to take the first; rank 1 hangs in its own work. Rank
     * 2, which only receives from rank 1, has come to none. */
    head(0, 3, "-", "-");
    group(1, "local", "0,1,2", 66, 65);
    call_as(1, "completed", 1, 65, SEND_RECV, "-", 1, "");
    call_as(2, "failed", 1, 66, SEND_RECV, "1", 2, "");
    head(1, 3, "-", "-");
    group(1, "local", "0,1,2", 1, 1);
    call_as(1, "completed", 1, 1, SEND_RECV, "-", 1, "");
    head(2, 3, "-", "-");
    group(1, "local", "0,1,2", 2, 1);
    call_as(1, "failed", 1, 2, SEND_RECV, "1", 2, "");
    expect(TSRI_FLIGHT_BEHIND, "1",
           "rank 1 did not come to send_recv #2 of group [0,1,2] 'x'; its last call was send_recv "
           "#1 of group [0,1,2] 'x', completed 1.0 s before; rank 2 waited");
    /* Rank 0 has gone on to send, and waits still for what it receives. */
    head(0, 2, "-", "-");
    group(1, "local", "0,1", 2, 2);
    call_as(1, "started", 1, 1, SEND_RECV, "1", 1, "");
    call_as(2, "completed", 1, 2, SEND_RECV, "-", 2, "");
    head(1, 2, "-", "-");
    group(1, "local", "0,1", 0, 0);
    expect(TSRI_FLIGHT_BEHIND, "1",
           "rank 1 did not come to send_recv #1 of group [0,1] 'x'; it has come to no call yet; "
           "rank 0 waited");
    /* A sender whose receiver has not come, and nobody waits. */
    head(0, 2, "-", "-");
    group(1, "local", "0,1", 3, 3);
    call_as(1, "completed", 1, 3, SEND_RECV, "-", 1, "");
    head(1, 2, "-", "-");
    group(1, "local", "0,1", 2, 2);
    call_as(1, "completed", 1, 2, SEND_RECV, "~0", 1, "");
    expect(TSRI_FLIGHT_NOBODY, "", "no rank is behind: all finished their calls");
}

/* A communicator that keeps no waits on record. */
static void test_supposed(void **state)
{
    (void)state;
    for (int r = 0; r < 3; r++) {
        head(r, 3, "-", "-");
        group(1, "nccl", "0,1,2", r == 2 ? 6 : 7, r == 2 ? 6 : 7);
        call(1, "completed", 1, 6, "-", 1);
        if (r != 2)
            call(2, "started", 1, 7, "-", 50);
    }
    expect(TSRI_FLIGHT_BEHIND, "2",
           "rank 2 did not come to all_reduce #7 of group [0,1,2] (nccl, lane 0) 'x' (t.c:31); its "
           "last call was all_reduce #6 of group [0,1,2] (nccl, lane 0) 'x' (t.c:31), completed "
           "58.0 s before; ranks 0 and 1 waited");
    /* Stopped at once, before anybody slept. */
    for (int r = 0; r < 2; r++) {
        head(r, 2, "-", r ? "code 7" : "stopped");
        group(1, "local", "0,1", 1 - r, 0);
        if (r == 0)
            call(1, "started", 1, 1, "-", 2);
    }
    expect(TSRI_FLIGHT_DIED, "1",
           "rank 1 ended with exit code 7: it did not come to all_reduce #1 of group [0,1] 'x' "
           "(t.c:31); it has come to no call yet; rank 0 waited");
}

static void test_missing(void **state)
{
    (void)state;
    head(0, 3, "TSR_ERR_TIMEOUT: x", "-");
    group(1, "local", "0,1,2", 1, 0);
    call(1, "failed", 1, 1, "2", 2);
    expect(TSRI_FLIGHT_BEHIND, "2",
           "rank 2, of which there is no file, did not come to all_reduce #1 of group [0,1,2] 'x' "
           "(t.c:31), or did not finish it; rank 0 waited");
    head(1, 4, "-", "-");
    expect(TSRI_FLIGHT_NOBODY, "",
           "no rank is behind: all finished their calls; there is no file of ranks 0, 2 and 3");
    head(0, 2, "TSR_ERR_BACKEND: the disk is gone", "-");
    head(1, 2, "TSR_ERR_REMOTE: rank 0 failed", "-");
    expect(TSRI_FLIGHT_GAVE_UP, "0",
           "rank 0 failed: TSR_ERR_BACKEND: the disk is gone; no rank is behind");
}

/* Rank 1 comes when the other has given up; and a rank that gives up says why. */
static void test_too_late(void **state)
{
    (void)state;
    head(0, 2, "TSR_ERR_TIMEOUT: x", "-");
    group(1, "local", "0,1", 1, 0);
    call(1, "failed", 1, 1, "1", 2);
    head(1, 2, "TSR_ERR_REMOTE: x", "-");
    group(1, "local", "0,1", 1, 1);
    call(1, "completed", 1, 1, "-", 9);
    expect(TSRI_FLIGHT_BEHIND, "1",
           "rank 1 came to all_reduce #1 of group [0,1] 'x' (t.c:31) only 6.0 s after the others "
           "had given up; rank 0 waited");
    head(0, 2, "TSR_ERR_REMOTE: rank 1 failed: no disk", "-");
    group(1, "local", "0,1", 1, 0);
    call(1, "failed", 1, 1, "1", 2);
    head(1, 2, "gave up: no disk", "-");
    expect(TSRI_FLIGHT_BEHIND, "1",
           "rank 1 gave up: no disk: it did not come to all_reduce #1 of group [0,1] 'x' (t.c:31); "
           "it has come to no call yet; rank 0 waited");
}

/* Calls of an earlier world count for nothing in this one. */
static void test_worlds(void **state)
{
    (void)state;
    head_in(0, 2, 2, "TSR_ERR_TIMEOUT: x", "-");
    group(1, "local", "0,1", 1, 0);
    call(1, "completed", 1, 9, "-", 1);
    fprintf(file[0],
            "call 2 state=failed group=1 world=2 seq=1 shown=0 " ALL_REDUCE
            " asked=%lld started=%lld ended=%lld waits=1 at=\"\" what=\"\"\n",
            (long long)epoch, (long long)epoch, (long long)epoch);
    head_in(1, 2, 1, "-", "-");
    group(1, "local", "0,1", 9, 9);
    call(1, "completed", 1, 9, "-", 1);
    expect(TSRI_FLIGHT_BEHIND, "1",
           "rank 1 did not come to all_reduce #1 of group [0,1]; it is still in world 1, the "
           "others in world 2; rank 0 waited");
}

/* --- the reader ------------------------------------------------------------------------------- */
static void refused(const char *content, const char *said)
{
    tsri_flight_report r;
    assert_int_equal(tsri_flight_parse("f", content, strlen(content), &r), TSR_ERR_FORMAT);
    if (!strstr(tsr_last_error(), said))
        fail_msg("expected '%s', got '%s'", said, tsr_last_error());
}

#define HEAD                                                                            \
    "tessera flight 1\nrun r\nrank 0 of 2\nworld 1\nrestart 0\nhost h\npid 1\ntime 5\n" \
    "reason -\nexit -\ncalls 3\n"
#define GROUP "group 1 comm=local lane=0 nranks=2 ranks=0,1 started=0 completed=0\n"
#define CALL(number, waits, what)                                             \
    "call " number " state=started group=1 world=1 seq=1 shown=0 " ALL_REDUCE \
    " asked=1 started=2 ended=0 waits=" waits " at=\"a.c:1\" what=" what "\n"

static void test_refused(void **state)
{
    (void)state;
    refused("", "f:1: the file ends here");
    refused("hello\n", "f:1: this is no dump");
    refused("tessera flight 2\n", "f:1: a dump of version 2; this program reads 1");
    refused("tessera flight 1\nrun r\nrank 2 of 2\n", "f:3: expected a number from 3");
    refused(HEAD, "f:12: the file ends here, without the line 'end'");
    refused(HEAD GROUP, "f:13: the file ends here");
    refused(HEAD "end", "f:12: expected an end of the line");
    refused(HEAD "end\nmore\n", "f:13: something follows");
    refused(HEAD "what\n", "f:12: expected 'group', 'call' or 'end', found 'what'");
    refused(HEAD GROUP GROUP, "f:13: expected another number of a group");
    refused(HEAD "group 1 comm=local lane=0 nranks=2 ranks=0,0 started=0 completed=0\n",
            "f:12: expected different ranks");
    refused(HEAD "group 1 comm=local lane=0 nranks=2 ranks=0,2 started=0 completed=0\n",
            "f:12: expected a number from 0 to 1");
    refused(HEAD GROUP CALL("2", "-", "\"\"") CALL("2", "-", "\"\""),
            "f:14: expected numbers of calls that ascend");
    refused(HEAD GROUP CALL("1", "7", "\"\""), "f:13: expected a number from 0 to 1");
    refused(HEAD GROUP CALL("1", "-", "\"a"), "f:13: expected a closing quote");
    refused(HEAD GROUP CALL("1", "-", "\"\\q\""), "f:13: expected \\\", \\\\ or \\xHH");
    refused(HEAD GROUP "call 1 state=odd\n", "f:13: expected a state, found 'odd'");
}

static void test_read(void **state)
{
    (void)state;
    const char content[] = HEAD GROUP CALL("3", "~1", "\"a \\\"b\\\" \\\\ \\x0a\"") "end\n";
    tsri_flight_report r;
    assert_int_equal(tsri_flight_parse("f", content, sizeof content - 1, &r), TSR_OK);
    assert_int_equal(r.ncalls, 1);
    assert_int_equal(r.call[0].number, 3);
    assert_int_equal(r.call[0].waits, 1);
    assert_true(r.call[0].waited);
    assert_string_equal(r.call[0].said.what, "a \"b\" \\ \n");
    assert_string_equal(r.call[0].at, "a.c:1");
    assert_int_equal(r.call[0].said.ndim, 1);
    assert_int_equal(r.call[0].said.shape[0], 4);
    assert_int_equal(r.groups[0].ranks[1], 1);
    tsri_flight_report_finish(&r);
}

/* Each field of a call comes from its own key. */
static void test_fields(void **state)
{
    (void)state;
    const char content[] =
        HEAD "group 5 comm=local lane=0 nranks=2 ranks=0,1 started=6 completed=4\n"
             "call 8 state=failed group=5 world=10 seq=11 shown=12 kind=broadcast algo=13 op=sum "
             "root=14 dtype=f64 shape=3,2 segments=15 bytes=16 hash=00000000000000a1 asked=18 "
             "started=19 ended=20 waits=1 at=\"b.c:2\" what=\"y\"\nend\n";
    tsri_flight_report r;
    if (tsri_flight_parse("f", content, sizeof content - 1, &r) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_true(r.ngroups == 1 && r.groups[0].number == 5 && r.groups[0].nranks == 2);
    assert_true(r.groups[0].started == 6 && r.groups[0].completed == 4);
    const tsri_flight_read_call *c = &r.call[0];
    assert_string_equal(tsri_flight_state_name(c->state), "failed");
    assert_true(c->group == 0 && c->said.world == 10 && c->said.seq == 11 && c->said.shown == 12);
    assert_string_equal(tsri_flight_kind_name(c->said.kind), "broadcast");
    assert_true(c->said.algo == 13 && c->said.root == 14 && c->said.nseg == 15);
    assert_string_equal(tsri_flight_op_name(c->said.op), "sum");
    assert_string_equal(tsri_flight_dtype_name(c->said.dtype), "f64");
    assert_true(c->said.ndim == 2 && c->said.shape[0] == 3 && c->said.shape[1] == 2);
    assert_true(c->said.bytes == 16 && c->said.hash == 0xa1 && c->said.asked_ns == 18);
    assert_true(c->started_ns == 19 && c->ended_ns == 20 && c->waits == 1 && !c->waited);
    tsri_flight_report_finish(&r);
}

/* A key that is misspelt is named, whichever it is. */
static void test_keys(void **state)
{
    (void)state;
    char content[] = HEAD GROUP CALL("3", "~1", "\"x\"") "end\n";
    int line = 1, keys = 0;
    for (char *p = content; *p; p++) {
        line += *p == '\n';
        size_t n = strspn(p + 1, "abcdefghijklmnopqrstuvwxyz");
        if (*p != ' ' || p[1 + n] != '=')
            continue;
        char was = p[1], said[64];
        snprintf(said, sizeof said, "f:%d: expected '%.*s='", line, (int)n + 1, p);
        p[1] = 'X';
        refused(content, said);
        p[1] = was;
        keys++;
    }
    assert_int_equal(keys, 26);
}

/* The words of the dump are those of the library. */
static void test_words(void **state)
{
    (void)state;
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++)
        assert_string_equal(tsri_flight_kind_name(k), tsri_coll_kind_name((tsri_coll_kind)k));
    for (int d = TSR_DTYPE_NONE + 1; d < TSR_DTYPE_COUNT_; d++)
        assert_string_equal(tsri_flight_dtype_name(d), tsr_dtype_name((tsr_dtype)d));
    assert_null(tsri_flight_dtype_name(TSR_DTYPE_COUNT_));
    assert_null(tsri_flight_kind_name(-1));
    assert_string_equal(tsri_flight_op_name(TSR_REDUCE_AVG), "avg");
    assert_string_equal(tsri_flight_op_name(TSR_REDUCE_MIN), "min");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finished), cmocka_unit_test(test_many),
        cmocka_unit_test(test_late),     cmocka_unit_test(test_two_late),
        cmocka_unit_test(test_killed),   cmocka_unit_test(test_disagree),
        cmocka_unit_test(test_handled),  cmocka_unit_test(test_chain),
        cmocka_unit_test(test_begun),    cmocka_unit_test(test_one_sided),
        cmocka_unit_test(test_supposed), cmocka_unit_test(test_missing),
        cmocka_unit_test(test_too_late), cmocka_unit_test(test_worlds),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_read),
        cmocka_unit_test(test_fields),   cmocka_unit_test(test_keys),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
