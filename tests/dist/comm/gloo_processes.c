/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/comm/gloo_processes.h"
#include "src/comm/flight/flight.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void quiet(void *arg, tsr_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

/* A world without an arena: Gloo needs none. */
static tsr_world *make_world(const gloo_run *run, int rank)
{
    tsr_world *w = tsri_mem_alloc(NULL, sizeof *w);
    if (w) {
        w->rank = w->local_rank = rank;
        w->nranks = run->nranks;
        w->threads = 1;
        w->timeout_s = run->timeout_s;
        w->log = quiet;
        w->flight = run->flight ? &run->flight[rank] : NULL;
        tsri_flight_open(w->flight, rank, run->nranks, 1, "gloo");
    }
    return w;
}

static tsr_status run_rank(const gloo_run *run, int rank, const char *url, gloo_fn *fn, shared *s)
{
    tsr_store *store;
    tsr_world *w = make_world(run, rank);
    TSRI_TRY(tsr_store_open(url, TSR_STORE_OPTS(.rank = rank, .nranks = run->nranks), &store));
    tsr_status status = TSR_OK;
    if (rank != run->missing) {
        status = tsri_gloo_create(w, store, "127.0.0.1", &w->comm);
        if (status == TSR_OK)
            status = fn(w, s);
    }
    if (status != TSR_OK)
        snprintf(s->text[rank], sizeof s->text[rank], "%s", tsr_last_error());
    if (w->comm)
        w->comm->ops->destroy(w->comm);
    tsri_mem_free(w);
    tsr_store_close(store);
    return status;
}

static void await(const gloo_run *run, pid_t *pids)
{
    int left = run->nranks, tenths = 600, how;
    for (; left > 0; tenths--) {
        pid_t pid = waitpid(-1, &how, WNOHANG);
        if (pid > 0) {
            left--;
            for (int r = 0; r < run->nranks; r++) {
                if (pids[r] != pid)
                    continue;
                pids[r] = 0; /* from now on that may be anybody's */
                if (WIFSIGNALED(how) && r != run->killed)
                    print_error("rank %d ended by signal %d\n", r, WTERMSIG(how));
            }
            continue;
        }
        usleep(100000);
        for (int r = 0; tenths == 0 && r < run->nranks; r++)
            if (pids[r] > 0) {
                print_error("rank %d (%d) is killed if it still hangs\n", r, (int)pids[r]);
                kill(pids[r], SIGKILL);
            }
    }
}

shared *gloo_processes(const gloo_run *run, gloo_fn *fn)
{
    pid_t pids[GLOO_RANKS] = {0};
    char folder[] = "/tmp/tessera-test-XXXXXX", path[64], url[96];
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(s != MAP_FAILED && mkdtemp(folder));
    snprintf(path, sizeof path, "%s/store", folder);
    snprintf(url, sizeof url, "file://%s", path);
    for (int r = 0; r < run->nranks; r++) {
        s->status[r] = -1;
        fflush(NULL);
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            s->status[r] = (int)run_rank(run, r, url, fn, s);
            exit(0);
        }
    }
    await(run, pids);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    return s;
}

void gloo_processes_free(shared *s)
{
    munmap(s, sizeof *s);
}

void gloo_processes_ok(int nranks, gloo_fn *fn)
{
    const gloo_run run = {.nranks = nranks, .timeout_s = 60, .killed = -1, .missing = -1};
    shared *s = gloo_processes(&run, fn);
    int bad = 0;
    for (int r = 0; r < nranks; r++)
        if (s->status[r] != TSR_OK) {
            print_error("rank %d of %d: %s\n", r, nranks, s->text[r]);
            bad++;
        }
    gloo_processes_free(s);
    assert_int_equal(bad, 0);
}

tsr_status gloo_call(tsri_group *g, tsri_coll *c)
{
    const tsri_comm_ops *ops = g->comm->ops;
    tsri_ticket t;
    TSRI_TRY(ops->start(g, c, &t));
    tsr_status status = ops->finish(g, &t), released = ops->release(g, &t);
    return status != TSR_OK ? status : released;
}

tsr_status gloo_group(tsr_world *w, int lane, tsri_group **out_group)
{
    int ranks[GLOO_RANKS];
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    return w->comm->ops->group(w->comm, w->nranks, ranks, lane, out_group);
}

tsr_status gloo_await(const _Atomic int *flag, int value)
{
    for (int i = 0; i < 60000 && atomic_load(flag) < value; i++)
        usleep(1000);
    return atomic_load(flag) >= value ? TSR_OK : tsri_fail(TSR_ERR_INTERNAL, "a flag did not come");
}
