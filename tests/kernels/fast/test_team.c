/* SPDX-License-Identifier: Apache-2.0 */
/* A team of threads does each part once, and so does one thread that does without it; when it does
 * is decided by times, which are given here. */
#include "kernels/cpu/team/team.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

enum { PARTS = 3, STEPS = 5, CALLS = 200, WINDOW = 64, WORK_NS = 2000 };

typedef struct seen {
    atomic_int done[PARTS];     /* calls */
    atomic_int by_others;       /* of these, on another thread than 0 */
    atomic_int at[PARTS], late; /* steps; steps that began too early */
} seen;

static void work(int64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t end = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + ns;
    do
        clock_gettime(CLOCK_MONOTONIC, &t);
    while ((int64_t)t.tv_sec * 1000000000 + t.tv_nsec < end);
}

static void part(void *arg, int i)
{
    seen *s = arg;
    work(WORK_NS);
    atomic_fetch_add(&s->done[i], 1);
    atomic_fetch_add(&s->by_others, omp_get_thread_num() != 0);
}

static void step(void *arg, int i, int64_t at)
{
    seen *s = arg;
    for (int k = 0; k < PARTS; k++)
        atomic_fetch_add(&s->late, atomic_load(&s->at[k]) < at);
    atomic_store(&s->at[i], (int)at + 1);
    part(arg, i);
}

static void expect_done(seen *s, int calls)
{
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(atomic_load(&s->done[i]), calls);
    assert_int_equal(atomic_load(&s->late), 0);
}

/* The record of one call: only threads that had parts count, each with the time that it worked. */
static void expect_times(int threads)
{
    const tsri_team_record *r = tsri_team_mine();
    assert_int_equal(r->calls, 1);
    assert_true(r->needs >= (int64_t)PARTS * WORK_NS);
    assert_true(r->needs <= (threads < PARTS ? threads : PARTS) * (r->took + 1));
}

/* Threads may be fewer than parts, or more, of which some then have none. */
static void test_parts(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    for (int threads = 1; threads <= PARTS + 2; threads++) {
        omp_set_num_threads(threads);
        for (int i = 0; i < CALLS; i++) {
            seen s = {0};
            *tsri_team_mine() = (tsri_team_record){.next = 1};
            tsri_team(PARTS, part, &s);
            expect_done(&s, 1);
            expect_times(threads);
            assert_int_equal(atomic_load(&s.by_others),
                             threads < PARTS ? PARTS - (PARTS + threads - 1) / threads : PARTS - 1);
            seen steps = {0};
            tsri_team_steps(PARTS, STEPS, true, step, &steps);
            expect_done(&steps, STEPS);
        }
    }
    omp_set_num_threads(before);
}

static void test_alone(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    omp_set_num_threads(PARTS);
    *tsri_team_mine() = (tsri_team_record){.next = 1, .alone = 2 * CALLS};
    seen s = {0}, steps = {0};
    for (int i = 0; i < CALLS; i++)
        tsri_team(PARTS, part, &s);
    expect_done(&s, CALLS);
    assert_int_equal(tsri_team_mine()->alone, CALLS);
    tsri_team_steps(PARTS, STEPS, true, step, &steps);
    expect_done(&steps, STEPS);
    assert_int_equal(atomic_load(&s.by_others) + atomic_load(&steps.by_others), 0);
    tsri_team_mine()->alone = 0;
    tsri_team(PARTS, part, &s);
    assert_true(atomic_load(&s.by_others) > 0);
    omp_set_num_threads(before);
}

static void note(tsri_team_record *r, int calls, tsri_team_call c)
{
    for (int i = 0; i < calls; i++)
        tsri_team_judge(r, &c);
}

static void test_judgement(void **state)
{
    (void)state;
    const tsri_team_call even = {110, 200, 100, 2}, uneven = {310, 400, 100, 2};
    const tsri_team_call slept = {300, 200, 100, 2}, waited = {3100, 3100, 100, 2};
    tsri_team_record r = {.next = 64};
    note(&r, 10 * WINDOW, even);
    note(&r, 10 * WINDOW, uneven); /* one thread has three times as much to do */
    assert_int_equal(r.alone, 0);
    note(&r, WINDOW - 1, slept);
    assert_int_equal(r.alone, 0);
    note(&r, 1, slept);
    assert_int_equal(r.alone, 64);
    r.alone = 0;
    note(&r, WINDOW, waited); /* a thread waited for a core inside its part */
    assert_int_equal(r.alone, 128);
    for (int i = 0; i < 10; i++)
        note(&r, WINDOW, slept);
    assert_int_equal(r.alone, 4096);
    r.alone = 0;
    note(&r, 15 * WINDOW, even);
    note(&r, WINDOW, slept); /* it has not been of help for long enough to begin anew */
    assert_int_equal(r.alone, 4096);
    r.alone = 0;
    note(&r, 16 * WINDOW, even);
    note(&r, WINDOW, slept);
    assert_int_equal(r.alone, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_judgement),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
