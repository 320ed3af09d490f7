/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT and SIGTERM in `tessera run`. */
#include "src/cli/run/run.h"
#include "src/core/clock.h"
#include "src/core/thread.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* One signal may come twice in a row: `timeout` sends it to the process and to its group. */
static const double SAME_S = 0.1, GRACE_S = 0.3;
enum { TURN_NS = 50000000 };

static struct {
    atomic_int signal; /* the first that came; 0: none */
    atomic_bool waits; /* the ranks are asked to stop, rather than ended */
    _Atomic double came_s;
} stop;

/* Calls nothing that is not async-signal-safe; tsri_now_s reads a clock. */
static void take_signal(int sig)
{
    int none = 0;
    if (!atomic_load(&stop.waits))
        _exit(128 + sig);
    if (atomic_compare_exchange_strong(&stop.signal, &none, sig))
        atomic_store(&stop.came_s, tsri_now_s());
    else if (atomic_load(&stop.came_s) > 0 && tsri_now_s() - atomic_load(&stop.came_s) > SAME_S)
        _exit(128 + none);
}

void run_stop_open(void)
{
    static const int signals[] = {SIGINT, SIGTERM};
    struct sigaction now, take = {.sa_handler = take_signal, .sa_flags = SA_RESTART};
    for (int i = 0; i < 2; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaction(signals[i], &take, NULL);
}

int run_stop_signal(void)
{
    return atomic_load(&stop.signal);
}

/* --- the watch -------------------------------------------------------------------------------- */
struct run_watch {
    tsr_world *world;
    sem_t quit;
    _Atomic double longest_s;
    atomic_bool held; /* what goes on is no step */
    pthread_t thread;
};

static void *watch(void *arg)
{
    run_watch *w = arg;
    bool left = false;
    struct timespec until;
    do {
        double usual = 1.5 * atomic_load(&w->longest_s), grace = usual > GRACE_S ? usual : GRACE_S;
        double came = run_stop_signal() ? atomic_load(&stop.came_s) : 0;
        if (!left && !atomic_load(&w->held) && came > 0 && tsri_now_s() - came > grace) {
            tsr_world_abort(w->world, RUN_STEP_LEFT);
            left = true;
        }
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TURN_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
    } while (sem_clockwait(&w->quit, CLOCK_MONOTONIC, &until) != 0);
    return NULL;
}

run_watch *run_watch_start(tsr_world *world)
{
    run_watch *w = calloc(1, sizeof *w);
    atomic_store(&stop.waits, true);
    if (!w)
        return NULL;
    w->world = world;
    sem_init(&w->quit, 0, 0);
    if (!tsri_thread_start(&w->thread, "tsr-stop", watch, w))
        return w;
    free(w);
    return NULL;
}

void run_watch_step(run_watch *w, double seconds)
{
    if (w && seconds > atomic_load(&w->longest_s))
        atomic_store(&w->longest_s, seconds);
}

void run_watch_hold(run_watch *w, bool held)
{
    if (w)
        atomic_store(&w->held, held);
}

void run_watch_end(run_watch *w)
{
    if (!w)
        return;
    sem_post(&w->quit);
    pthread_join(w->thread, NULL);
    sem_destroy(&w->quit);
    free(w);
}
