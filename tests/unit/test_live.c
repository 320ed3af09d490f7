/* SPDX-License-Identifier: Apache-2.0 */
/* The set of live handles: against a list, without memory, with threads, and across fork. */
#include "src/core/live.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { OBJECTS = 4096, STEPS = 200000, THREADS = 3, OWN = 640, LASTING = 64 };

static char objects[OBJECTS]; /* adjacent addresses, so that runs of slots meet and wrap */

static bool is_live(const void *object, tsri_live_kind kind)
{
    return tsri_is_live(object, kind, "test");
}

static void test_against_list(void **state)
{
    (void)state;
    static bool there[OBJECTS][2];
    static const tsri_live_kind kinds[2] = {TSRI_LIVE_PLAN, TSRI_LIVE_GRAPH};
    uint32_t x = 1;
    for (int i = 0; i < STEPS; i++) {
        x = x * 1664525 + 1013904223;
        int o = (int)(x >> 8) % OBJECTS, k = (int)(x >> 24) & 1;
        /* Grows to almost all of them, and shrinks again. */
        if ((x >> 25 & 7) < (i < STEPS / 2 ? 6 : 2)) {
            assert_int_equal(tsri_live_add(NULL, &objects[o], kinds[k]), TSR_OK);
            there[o][k] = true;
        } else {
            tsri_live_remove(&objects[o], kinds[k]);
            there[o][k] = false;
        }
        int p = (int)(x >> 12) % OBJECTS;
        assert_int_equal(is_live(&objects[p], kinds[!k]), there[p][!k]);
        assert_int_equal(is_live(&objects[o], kinds[k]), there[o][k]);
    }
    for (int o = 0; o < OBJECTS; o++)
        for (int k = 0; k < 2; k++) {
            assert_int_equal(is_live(&objects[o], kinds[k]), there[o][k]);
            tsri_live_remove(&objects[o], kinds[k]);
        }
    for (int o = 0; o < OBJECTS; o++)
        assert_false(is_live(&objects[o], TSRI_LIVE_PLAN));
}

static void test_texts(void **state)
{
    (void)state;
    assert_int_equal(tsri_live_check(NULL, TSRI_LIVE_PLAN, "tsr_run"), TSR_OK);
    assert_false(is_live(NULL, TSRI_LIVE_PLAN));
    assert_int_equal(tsri_live_add(NULL, objects, TSRI_LIVE_GRAPH), TSR_OK);
    /* Alive, but not as a plan. */
    assert_int_equal(tsri_live_check(objects, TSRI_LIVE_PLAN, "tsr_run"), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "tsr_run: the plan has been destroyed"));
    assert_int_equal(tsri_live_check(objects, TSRI_LIVE_GRAPH, "tsr_run"), TSR_OK);
    tsri_live_remove(objects, TSRI_LIVE_GRAPH);
    tsri_live_remove(objects, TSRI_LIVE_GRAPH);
    assert_int_equal(tsri_live_check(objects, TSRI_LIVE_GRAPH, "x"), TSR_ERR_INVALID);
}

/* First in main: the set has its first memory still to get. Threads then meet in a set that is
 * nearly as full as it gets. */
static void test_no_memory(void **state)
{
    (void)state;
    tsri_mem mem = {.fail_countdown = 1};
    assert_int_equal(tsri_live_add(&mem, objects, TSRI_LIVE_PLAN), TSR_ERR_NO_MEMORY);
    assert_non_null(strstr(tsr_last_error(), "no memory"));
    assert_false(is_live(objects, TSRI_LIVE_PLAN));
    /* The object's own memory is there, the set's is not. */
    mem.fail_countdown = 2;
    assert_null(tsri_live_alloc(&mem, 16, TSRI_LIVE_PLAN));
    void *p = tsri_live_alloc(&mem, 16, TSRI_LIVE_PLAN);
    assert_true(is_live(p, TSRI_LIVE_PLAN));
    /* An object is entered only if growing, where it is needed, does not fail. */
    int n = 0, failed = 0;
    while (n < 1000) {
        mem.fail_countdown = 1;
        if (tsri_live_add(&mem, &objects[n], TSRI_LIVE_PLAN) == TSR_OK) {
            n++;
            continue;
        }
        failed++;
        for (int i = 0; i <= n; i++)
            assert_int_equal(is_live(&objects[i], TSRI_LIVE_PLAN), i < n);
        assert_int_equal(tsri_live_add(NULL, &objects[n++], TSRI_LIVE_PLAN), TSR_OK);
    }
    assert_true(failed >= 2);
    for (int i = 0; i < n; i++)
        tsri_live_remove(&objects[i], TSRI_LIVE_PLAN);
    tsri_live_free(p, TSRI_LIVE_PLAN);
    assert_false(is_live(p, TSRI_LIVE_PLAN));
}

/* --- threads ---------------------------------------------------------------------------------- */
static atomic_int over, wrong, going;

/* Enters and takes out its own objects, which moves the lasting ones about. */
static void *change_set(void *first)
{
    char *mine = first;
    atomic_fetch_add(&going, 1);
    while (!atomic_load(&over)) {
        for (int i = 0; i < OWN; i++)
            if (tsri_live_add(NULL, &mine[i], TSRI_LIVE_TENSOR) != TSR_OK)
                atomic_store(&wrong, 1);
        for (int i = 0; i < OWN; i++) {
            if (!is_live(&mine[i], TSRI_LIVE_TENSOR))
                atomic_store(&wrong, 2);
            tsri_live_remove(&mine[i], TSRI_LIVE_TENSOR);
            if (is_live(&mine[i], TSRI_LIVE_TENSOR))
                atomic_store(&wrong, 3);
        }
    }
    return NULL;
}

static void start_threads(pthread_t *threads)
{
    atomic_store(&over, 0);
    atomic_store(&going, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, change_set, &objects[(i + 1) * OWN]), 0);
    while (atomic_load(&going) < THREADS)
        sched_yield();
}

static void join_threads(pthread_t *threads)
{
    atomic_store(&over, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < LASTING; i++)
        assert_int_equal(tsri_live_add(NULL, &objects[i], TSRI_LIVE_TENSOR), TSR_OK);
    start_threads(threads);
    int lost = 0, found = 0;
    for (int i = 0; i < 3000000; i++) {
        lost += !is_live(&objects[i % LASTING], TSRI_LIVE_TENSOR);
        if (i % 64 == 0)
            found += is_live(&objects[LASTING + i % LASTING], TSRI_LIVE_TENSOR);
    }
    join_threads(threads);
    assert_int_equal(lost, 0);
    assert_int_equal(found, 0);
    for (int i = 0; i < LASTING; i++)
        tsri_live_remove(&objects[i], TSRI_LIVE_TENSOR);
}

/* --- fork ------------------------------------------------------------------------------------- */
/* A child enters, asks and takes out, whatever the parent's threads were doing. */
static void test_fork(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    start_threads(threads);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            bool good = tsri_live_add(NULL, objects, TSRI_LIVE_WORLD) == TSR_OK &&
                        is_live(objects, TSRI_LIVE_WORLD);
            tsri_live_remove(objects, TSRI_LIVE_WORLD);
            _exit(good && !is_live(objects, TSRI_LIVE_WORLD) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    join_threads(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory),    cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),         cmocka_unit_test(test_texts),
        cmocka_unit_test(test_against_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
