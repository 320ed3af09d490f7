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
    UNEVEN = 4,   /* times that one thread's parts may take as long as another one's */
};

/* How long those threads of a call worked that had parts. */
typedef struct work {
    _Atomic int64_t sum, least; /* least 0: none is known yet */
} work;

static _Thread_local tsri_team_record mine = {.next = ALONE};

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

tsri_team_record *tsri_team_mine(void)
{
    return &mine;
}

/* The calling thread has worked since `begin`. */
static void add_work(work *w, int64_t begin)
{
    const int64_t ns = now_ns() - begin + 1;
    int64_t least = atomic_load(&w->least);
    while ((least == 0 || ns < least) && !atomic_compare_exchange_weak(&w->least, &least, ns))
        ;
    atomic_fetch_add(&w->sum, ns);
}

/* A thread that took many times as long as another one has waited for a core inside its part,
 * rather than had more to do. */
void tsri_team_judge(tsri_team_record *r, const tsri_team_call *c)
{
    const int64_t most = (int64_t)UNEVEN * c->threads * c->least;
    r->took += c->took;
    r->needs += c->sum < most ? c->sum : most;
    if (++r->calls < WINDOW)
        return;
    if (r->took <= r->needs) {
        r->helped += r->helped < TRUSTED;
        r->next = r->helped < TRUSTED ? r->next : ALONE;
    } else {
        r->helped = 0;
        r->alone = r->next;
        r->next = r->next < MOST ? 2 * r->next : MOST;
    }
    r->calls = 0;
    r->took = r->needs = 0;
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

void tsri_team_steps(int parts, int64_t steps, bool meet,
                     void (*fn)(void *arg, int part, int64_t step), void *arg)
{
    if (goes_alone(parts)) {
        for (int64_t step = 0; step < steps; step++)
            for (int i = 0; i < parts; i++)
                fn(arg, i, step);
        return;
    }
    work w = {0};
    int threads = 0;
    const int64_t before = now_ns();
    /* Always the whole team, though some may idle: libgomp allocates when the size changes. */
#pragma omp parallel
    {
        const int64_t begin = now_ns();
        const int all = omp_get_num_threads(), me = omp_get_thread_num();
        for (int64_t step = 0; step < steps; step++) {
            for (int i = me; i < parts; i += all)
                fn(arg, i, step);
            if (meet) {
#pragma omp barrier
            }
        }
        if (me < parts)
            add_work(&w, begin);
        if (me == 0)
            threads = all < parts ? all : parts;
    }
    tsri_team_judge(&mine, &(tsri_team_call){now_ns() - before, w.sum, w.least, threads});
}

typedef struct body {
    void (*fn)(void *arg, int part);
    void *arg;
} body;

static void only_step(void *arg, int part, int64_t step)
{
    (void)step;
    const body *b = arg;
    b->fn(b->arg, part);
}

void tsri_team(int parts, void (*fn)(void *arg, int part), void *arg)
{
    body b = {fn, arg};
    tsri_team_steps(parts, 1, false, only_step, &b);
}
