/* SPDX-License-Identifier: Apache-2.0 */
/* A team of threads does each part once; where its threads wait for each other longer than they
 * work, this thread does all parts for a while, and tries the team again. */
#include "kernels/cpu/team/team.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

enum { PARTS = 2, STEPS = 5 };

typedef struct seen {
    int64_t slow_ns;            /* of part 1, beside 20 us of each */
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
    work(20000);
    if (i == 1 && s->slow_ns && omp_get_thread_num() != 0) /* as if it had waited for a core */
        nanosleep(&(struct timespec){.tv_nsec = (long)s->slow_ns}, NULL);
    atomic_fetch_add(&s->done[i], 1);
    atomic_fetch_add(&s->by_others, omp_get_thread_num() != 0);
}

static void step(void *arg, int i, int64_t at)
{
    seen *s = arg;
    for (int k = 0; k < PARTS; k++)
        atomic_fetch_add(&s->late, atomic_load(&s->at[k]) < at);
    atomic_store(&s->at[i], (int)at + 1);
    atomic_fetch_add(&s->done[i], 1);
}

static void test_parts(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    omp_set_num_threads(PARTS);
    seen s = {.slow_ns = 500000};
    int calls = 0;
    for (; calls < 1000 && atomic_load(&s.by_others) == calls; calls++)
        tsri_team(PARTS, part, &s);
    assert_in_range(calls, 65, 999); /* it was judged, and left */
    s.slow_ns = 0;
    const int others = atomic_load(&s.by_others);
    for (int i = 0; i < 32; i++, calls++)
        tsri_team(PARTS, part, &s);
    assert_int_equal(atomic_load(&s.by_others), others);
    for (int i = 0; i < 10000 && atomic_load(&s.by_others) == others; i++, calls++)
        tsri_team(PARTS, part, &s);
    assert_true(atomic_load(&s.by_others) > others); /* it was tried again */
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(atomic_load(&s.done[i]), calls);
    omp_set_num_threads(before);
}

static void wait_ms(void *arg, int i)
{
    seen *s = arg;
    nanosleep(&(struct timespec){.tv_nsec = i ? 2000000 : 4000000}, NULL);
    atomic_fetch_add(&s->by_others, omp_get_thread_num() != 0);
}

/* A team stays where it helps: some of its threads have nothing to do, one has less than others. */
static void test_uneven(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    enum { CALLS = 150 };
    omp_set_num_threads(2 * PARTS);
    tsri_team_rest(0);
    seen s = {0};
    for (int i = 0; i < CALLS; i++)
        tsri_team(PARTS, wait_ms, &s);
    assert_int_equal(atomic_load(&s.by_others), CALLS);
    omp_set_num_threads(before);
}

static void test_steps(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    omp_set_num_threads(PARTS);
    for (int i = 0; i < 200; i++) {
        seen s = {0};
        tsri_team_steps(PARTS, STEPS, true, step, &s);
        assert_int_equal(atomic_load(&s.late), 0);
        for (int k = 0; k < PARTS; k++)
            assert_int_equal(atomic_load(&s.done[k]), STEPS);
    }
    omp_set_num_threads(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_uneven), cmocka_unit_test(test_parts),
                                       cmocka_unit_test(test_steps)};
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
