/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of ranks that are processes: of those that are killed, or hang until they
 * are, others leave the dumps. Argument: the command, which starts this program as ranks (then
 * --rank MODE). */
#include "tests/dist/collective/flight_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static const char *self;

static int run_ranks(const char *mode)
{
    char command[4096];
    snprintf(command, sizeof command,
             "'%s' launch -n 3 --rdzv-id %s '%s' --rank %s >/dev/null 2>&1", tessera, LONGEST_RUN,
             self, mode);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_killed(void **state)
{
    (void)state;
    tsri_flight_report r;
    assert_int_equal(run_ranks("killed"), 128 + SIGKILL);
    expect_first("rank 2 was killed by signal 9 (SIGKILL)",
                 "all_reduce #42 of group [0,1,2] 'grad' (train.c:51)");
    read_report(folder, 2, &r);
    assert_int_equal(r.exit, TSRI_FLIGHT_KILLED);
    assert_int_equal(r.exit_status, SIGKILL);
    assert_string_equal(r.run, LONGEST_RUN);
    assert_int_equal(r.groups[r.call[r.ncalls - 1].group].started,
                     41); /* a world begins with a barrier */
    tsri_flight_report_finish(&r);
}

/* The same of ranks that a program has forked. */
static tsr_status be_killed(tsr_world *w);

static tsr_status kill_one(tsr_world *w, void *arg)
{
    (void)arg;
    return be_killed(w);
}

static void test_killed_child(void **state)
{
    (void)state;
    const tsr_world_opts o = {
        .size = sizeof o, .arena_bytes = 1 << 20, .timeout_s = 60, .threads = 1};
    tsri_flight_report r;
    assert_int_equal(tsr_spawn_processes_with(3, kill_one, NULL, &o), TSR_ERR_DEAD);
    expect_first("rank 2 was killed by signal 9 (SIGKILL)",
                 "all_reduce #41 of group [0,1,2] 'grad' (train.c:51)");
    for (int rank = 0; rank < 3; rank++) {
        read_report(folder, rank, &r);
        assert_int_equal(r.exit == TSRI_FLIGHT_KILLED, rank == 2);
        tsri_flight_report_finish(&r);
    }
}

/* Killed while the others are in the call with it, waiting for its second half. */
static void test_killed_inside(void **state)
{
    (void)state;
    assert_int_equal(run_ranks("killed_inside"), 128 + SIGKILL);
    expect_first("rank 2 was killed by signal 9 (SIGKILL): it has started all_reduce #42 of group "
                 "[0,1,2] 'grad' (train.c:52) and never finished it",
                 "waited");
}

/* Hangs until the launcher kills it: it leaves nothing itself. */
static void test_hangs(void **state)
{
    (void)state;
    tsri_flight_report r;
    int code = run_ranks("hangs");
    assert_int_equal(code, 1);
    expect_first("rank 1 did not come to all_reduce #5 of group [0,1,2] 'grad' (train.c:61)",
                 "waited");
    read_report(folder, 1, &r);
    assert_int_equal(r.exit, TSRI_FLIGHT_STOPPED);
    tsri_flight_report_finish(&r);
}

/* Ended by a limit on the size of its file while it writes its dump. */
static void test_cut(void **state)
{
    (void)state;
    tsri_flight_report r;
    run_ranks("cut");
    for (int rank = 0; rank < 3; rank++) {
        read_report(folder, rank, &r);
        assert_int_equal(r.ncalls, 42);
        assert_int_equal(r.call[41].state, TSRI_FLIGHT_FAILED);
        if (rank == 2) {
            assert_int_equal(r.exit, TSRI_FLIGHT_KILLED);
            assert_int_equal(r.exit_status, SIGXFSZ);
        }
        tsri_flight_report_finish(&r);
    }
}

static tsr_status be_cut(tsr_world *w)
{
    const struct rlimit none = {0, 0}, small = {2048, 2048};
    tsri_group *g;
    TSRI_TRY(all_ranks(w, &g));
    for (int i = 0; i < 40; i++)
        TSRI_TRY(sum(w, g, 1000, 50));
    signal(SIGTERM, w->rank == 2 ? SIG_IGN : SIG_DFL);
    if (w->rank == 2 && (setrlimit(RLIMIT_CORE, &none) || setrlimit(RLIMIT_FSIZE, &small)))
        return tsri_fail(TSR_ERR_INTERNAL, "no limits");
    tsr_status status = sum(w, g, w->rank == 2 ? 10 : 1000, 51);
    /* Its end is the run's first. */
    for (int i = 0; i < 600 && w->rank != 2; i++)
        usleep(100000);
    return status;
}

static tsr_status be_killed(tsr_world *w)
{
    tsri_group *g;
    TSRI_TRY(all_ranks(w, &g));
    for (int i = 0; i < 40; i++)
        TSRI_TRY(sum(w, g, 1000, 50));
    if (w->rank == 2) {
        usleep(200000); /* the others sleep by then */
        raise(SIGKILL);
    }
    signal(SIGTERM, SIG_IGN); /* what matters is what they find out themselves */
    return sum(w, g, 1000, 51);
}

static tsr_status be_killed_inside(tsr_world *w)
{
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(all_ranks(w, &g));
    for (int i = 0; i < 40; i++)
        TSRI_TRY(sum(w, g, 1000, 50));
    const tsri_segment s = {.src = w->region.base,
                            .dst = w->region.base + 65536,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(1000),
                            .src_axis = -1,
                            .dst_axis = -1};
    const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                         .algo = TSRI_ALGO_TWO_PHASE,
                         .nseg = 1,
                         .seg = &s,
                         .what = "grad",
                         .loc = {"train.c", 52}};
    signal(SIGTERM, SIG_IGN);
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    if (w->rank == 2) {
        usleep(200000);
        raise(SIGKILL);
    }
    return w->comm->ops->finish(g, &t);
}

static tsr_status hang(tsr_world *w)
{
    tsri_group *g;
    TSRI_TRY(all_ranks(w, &g));
    for (int i = 0; i < 3; i++)
        TSRI_TRY(sum(w, g, 1000, 60));
    w->timeout_s = 1.5; /* until now there was time to start */
    while (w->rank == 1)
        usleep(100000);
    return sum(w, g, 1000, 61);
}

static int be_rank(const char *mode)
{
    tsr_world *w;
    tsr_status status = tsr_world_create(NULL, &w);
    if (status != TSR_OK)
        return 1;
    status = !strcmp(mode, "killed")          ? be_killed(w)
             : !strcmp(mode, "killed_inside") ? be_killed_inside(w)
             : !strcmp(mode, "cut")           ? be_cut(w)
                                              : hang(w);
    tsr_world_destroy(w);
    return status == TSR_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strcmp(argv[1], "--rank"))
        return be_rank(argv[2]);
    if (argc != 2) {
        fprintf(stderr, "usage: %s TESSERA\n", argv[0]);
        return 2;
    }
    static char path[4096];
    tessera = realpath(argv[1], path);
    self = realpath(argv[0], NULL);
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_killed), IN_FOLDER(test_killed_child), IN_FOLDER(test_killed_inside),
        IN_FOLDER(test_cut),    IN_FOLDER(test_hangs),
    };
    return tessera && self ? cmocka_run_group_tests_name("flight_processes", tests, NULL, NULL) : 1;
}
