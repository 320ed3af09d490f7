/* SPDX-License-Identifier: Apache-2.0 */
/* The points of a sweep by several processes, as planning takes one core. */
#include "src/cli/plan/ask.h"
#include "src/cli/plan/progress.h"
#include "src/core/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WORKERS = 16 };

sweep_point *sweep_points_create(int n)
{
    void *shared = mmap(NULL, (size_t)n * sizeof(sweep_point), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

void sweep_points_destroy(sweep_point *points, int n)
{
    if (points)
        munmap(points, (size_t)n * sizeof *points);
}

/* Every n-th point from the first on. */
static void work(sweep_point *points, int npoints, int first, int n, sweep_point_fn *fn, void *arg)
{
    for (int i = first; i < npoints; i += n) {
        fn(arg, i, &points[i]);
        points[i].done = true;
    }
}

static void show(const sweep_point *points, int npoints, double started_at)
{
    char text[64];
    int done = 0;
    for (int i = 0; i < npoints; i++)
        done += points[i].done;
    snprintf(text, sizeof text, "%d of %d points planned", done, npoints);
    cli_progress_show(text, tsri_now_s() - started_at);
}

/* Waits for the workers. */
static void await_workers(const pid_t *workers, int n, const sweep_point *points, int npoints)
{
    double started_at = tsri_now_s();
    for (int i = 0; i < n; i++) {
        int code;
        pid_t ended;
        while ((ended = waitpid(workers[i], &code, WNOHANG)) == 0 ||
               (ended < 0 && errno == EINTR)) {
            show(points, npoints, started_at);
            usleep(5000);
        }
    }
    cli_progress_clear();
}

static int count_workers(int npoints)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = cores < 1 ? 1 : cores > MOST_WORKERS ? MOST_WORKERS : (int)cores;
    return n < npoints ? n : npoints;
}

void sweep_each(sweep_point *points, int npoints, sweep_point_fn *fn, void *arg)
{
    pid_t workers[MOST_WORKERS];
    int n = count_workers(npoints), started = 0;
    fflush(NULL);
    for (; started < n; started++) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            work(points, npoints, started, n, fn, arg);
            _exit(0);
        }
        workers[started] = child;
    }
    for (int i = started; i < n; i++) /* no process was to be had for these */
        work(points, npoints, i, n, fn, arg);
    await_workers(workers, started, points, npoints);
    for (int i = 0; i < npoints; i++)
        if (!points[i].done)
            snprintf(points[i].failure, sizeof points[i].failure,
                     "the process that planned it has ended before");
}
