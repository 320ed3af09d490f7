/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of ranks over Gloo: whom the records of a failed run name. */
#include "src/cli/flight/read.h"
#include "tests/dist/comm/gloo_processes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 2 };

/* One number of each rank, in lane 0 of all ranks. */
static tsr_status sum(tsri_comm *comm, const char *what)
{
    int64_t src = 1, dst;
    const tsri_segment seg = {.src = &src,
                              .dst = &dst,
                              .dtype = TSR_I64,
                              .shape = TSR_DIMS(1),
                              .src_axis = -1,
                              .dst_axis = -1};
    tsri_coll c = {
        .kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &seg, .what = what, .loc = {"train.c", 7}};
    tsri_group *g;
    TSRI_TRY(comm->ops->group(comm, RANKS, (const int[RANKS]){0, 1}, 0, &g));
    return gloo_call(g, &c);
}

/* From now on rank 0 loses patience soon, in a call of `comm` that rank 1 does not come to. */
static tsr_status hang(tsr_world *w, shared *s, tsri_comm *comm)
{
    if (w->rank == 1)
        return gloo_await(&s->flag[0], 1);
    w->timeout_s = 1;
    CHECK(sum(comm, "lost") == TSR_ERR_TIMEOUT);
    atomic_store(&s->flag[0], 1);
    return TSR_OK;
}

/* The files that the ranks leave, and what is read from them. */
static void judge(gloo_fn *fn, const char *expected)
{
    char folder[] = "/tmp/tessera-flight-XXXXXX", path[64];
    static char text[4 << 20];
    tsri_flight_report reports[RANKS];
    tsri_flight_verdict v;
    tsri_flight *flight = mmap(NULL, RANKS * sizeof *flight, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(flight != MAP_FAILED && mkdtemp(folder));
    const gloo_run run = {
        .nranks = RANKS, .timeout_s = 60, .killed = -1, .missing = -1, .flight = flight};
    shared *s = gloo_processes(&run, fn);
    for (int r = 0; r < RANKS; r++) {
        if (s->status[r] != TSR_OK)
            fail_msg("rank %d: %s", r, s->text[r]);
        assert_int_equal(tsri_flight_write(&flight[r], &(tsri_flight_about){0}, folder), 0);
        snprintf(path, sizeof path, "%s/flight.rank%d.txt", folder, r);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        size_t n = fread(text, 1, sizeof text, f);
        fclose(f);
        unlink(path);
        assert_int_equal(tsri_flight_parse(path, text, n, &reports[r]), TSR_OK);
    }
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(tsri_flight_judge(reports, RANKS, &v), TSR_OK);
    if (strncmp(v.text, expected, strlen(expected)))
        fail_msg("expected '%s...', got: %s", expected, v.text);
    tsri_flight_verdict_finish(&v);
    for (int r = 0; r < RANKS; r++)
        tsri_flight_report_finish(&reports[r]);
    gloo_processes_free(s);
    munmap(flight, RANKS * sizeof *flight);
}

/* A communicator's calls are not its twin's. */
static tsr_status twin_body(tsr_world *w, shared *s)
{
    tsri_comm *twin;
    TSRI_TRY(w->comm->ops->twin(w->comm, &twin));
    TSRI_TRY(sum(twin, "gradients"));
    TSRI_TRY(sum(twin, "gradients"));
    tsr_status status = hang(w, s, w->comm);
    twin->ops->destroy(twin);
    return status;
}

static void test_twin(void **state)
{
    (void)state;
    judge(twin_body, "rank 1 did not come to all_reduce #1 of group [0,1] (gloo, lane 0) 'lost' "
                     "(train.c:7); its last call was all_reduce #2 of group [0,1] (gloo.1, lane "
                     "0) 'gradients' (train.c:7), completed ");
}

/* Ranks that have disagreed, been told so, and gone on. */
static tsr_status handled_body(tsr_world *w, shared *s)
{
    CHECK(sum(w->comm, w->rank ? "theirs" : "mine") == TSR_ERR_MISMATCH);
    TSRI_TRY(sum(w->comm, "ours"));
    return hang(w, s, w->comm);
}

static void test_handled(void **state)
{
    (void)state;
    judge(handled_body, "rank 1 did not come to all_reduce #3 of group [0,1] (gloo, lane 0) 'lost' "
                        "(train.c:7); its last call was all_reduce #2 of group [0,1] (gloo, lane "
                        "0) 'ours' (train.c:7), completed ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twin),
        cmocka_unit_test(test_handled),
    };
    return cmocka_run_group_tests_name("gloo_flight", tests, NULL, NULL);
}
