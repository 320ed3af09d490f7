/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/team/team.h"

#include <omp.h>
#include <stdatomic.h>
#include <time.h>

enum {
    WINDOW = 64,  /* calls by which the team is judged */
    ALONE = 64,   /* calls by this thread alone, the first time that the team was no help, */
    MOST = 4096,  /* and at most, as each time is twice the one before, */
    TRUSTED = 16, /* unless the team has been of help in so many windows since */
};

/* How the team of this thread has done. In all calls of a window: how long they took, and how long
 * this thread would have needed for all parts, had each taken as long as that which ended first. */
typedef struct record {
    int alone; /* calls that are still done without the team */
    int next;  /* so many the next time */
    int calls, helped;
    int64_t took, needs;
} record;

static _Thread_local record mine = {.next = ALONE};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool goes_alone(int parts)
{
    if (parts == 1 || mine.alone == 0)
        return parts == 1;
    mine.alone--;
    return true;
}

void tsri_team_rest(int calls)
{
    mine.alone = calls;
}

/* Notes when a call began, when the first thread had done its parts, and when all had. */
static void note(int parts, int64_t begin, int64_t first, int64_t end)
{
    mine.took += end - begin;
    mine.needs += parts * (first - begin);
    if (++mine.calls < WINDOW)
        return;
    if (mine.took <= mine.needs) {
        mine.helped += mine.helped < TRUSTED;
        mine.next = mine.helped < TRUSTED ? mine.next : ALONE;
    } else {
        mine.helped = 0;
        mine.alone = mine.next;
        mine.next = mine.next < MOST ? 2 * mine.next : MOST;
    }
    mine.calls = 0;
    mine.took = mine.needs = 0;
}

/* The thread's parts are done: notes the time if it is the first one. */
static void end_parts(_Atomic int64_t *first)
{
    int64_t none = 0;
    atomic_compare_exchange_strong(first, &none, now_ns());
}

void tsri_whole_team(int parts, void (*fn)(void *arg, int part), void *arg)
{
    if (parts == 1) {
        fn(arg, 0);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int i = 0; i < parts; i++)
        fn(arg, i);
}

void tsri_team(int parts, void (*fn)(void *arg, int part), void *arg)
{
    if (goes_alone(parts)) {
        for (int i = 0; i < parts; i++)
            fn(arg, i);
        return;
    }
    _Atomic int64_t first = 0;
    const int64_t begin = now_ns();
    /* Always the whole team, though some may idle: libgomp allocates when the size changes. */
#pragma omp parallel
    {
#pragma omp for schedule(static) nowait
        for (int i = 0; i < parts; i++)
            fn(arg, i);
        end_parts(&first);
    }
    note(parts, begin, first, now_ns());
}

void tsri_team_steps(int parts, int64_t steps, bool meet,
                     void (*fn)(void *arg, int part, int64_t step), void *arg)
{
    if (goes_alone(parts)) {
        for (int64_t step = 0; step < steps; step++)
            for (int i = 0; i < parts; i++)
                fn(arg, i, step);
        return;
    }
    _Atomic int64_t first = 0;
    const int64_t begin = now_ns();
#pragma omp parallel
    {
        for (int64_t step = 0; step < steps; step++) {
            for (int i = omp_get_thread_num(); i < parts; i += omp_get_num_threads())
                fn(arg, i, step);
            if (meet) {
#pragma omp barrier
            }
        }
        end_parts(&first);
    }
    note(parts, begin, first, now_ns());
}
