/* SPDX-License-Identifier: Apache-2.0 */
#include "store_ranks.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sleep_s(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

void await_flag(_Atomic int *flag, int value)
{
    const double until_s = now_s() + 60;
    while (atomic_load(flag) < value) {
        if (now_s() > until_s)
            fail_msg("a flag is %d after 60 s, and not %d", atomic_load(flag), value);
        sleep_s(0.001);
    }
}

int free_port(void)
{
    static int next;
    if (next == 0)
        next = 20000 + getpid() * 37 % 10000;
    for (int tries = 0; tries < 12000; tries++) {
        const int port = 20000 + (next++ - 20000) % 12000, on = 1;
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        const bool is_free = bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 1) == 0;
        close(fd);
        if (is_free)
            return port;
    }
    fail_msg("no free port");
    return 0;
}

bool has_ipv6(void)
{
    const struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

void crew_make(crew *c, const char *url, int nranks, rank_fn *fn)
{
    *c = (crew){.nranks = nranks, .timeout_s = 60, .fn = fn};
    assert_true(nranks <= MAX_CREW);
    snprintf(c->url, sizeof c->url, "%s", url);
    c->board =
        mmap(NULL, sizeof *c->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c->board != MAP_FAILED);
    c->arg = c->board;
}

void crew_free(crew *c)
{
    munmap(c->board, sizeof *c->board);
}

static void run_rank(crew *c, int rank)
{
    rank_result *r = &c->board->result[rank];
    tsr_store *store = NULL;
    const double start_s = now_s();
    r->status = tsr_store_open(c->url,
                               TSR_STORE_OPTS(.rank = rank, .nranks = c->nranks,
                                              .timeout_s = c->timeout_s, .hosted = c->hosted),
                               &store);
    r->seconds = now_s() - start_s;
    r->opened = r->status == TSR_OK;
    if (r->opened && c->fn)
        r->status = c->fn(store, rank, c->arg);
    if (r->status != TSR_OK)
        snprintf(r->text, sizeof r->text, "%s", tsr_last_error());
    tsr_store_close(store);
}

typedef struct start {
    crew *crew;
    int rank;
} start;

static void *rank_thread(void *arg)
{
    start s = *(start *)arg;
    free(arg);
    run_rank(s.crew, s.rank);
    return NULL;
}

void crew_start(crew *c, int rank)
{
    memset(&c->board->result[rank], 0, sizeof c->board->result[rank]);
    c->running[rank] = true;
    if (c->processes) {
        c->pid[rank] = fork();
        assert_true(c->pid[rank] >= 0);
        if (c->pid[rank] == 0) {
            run_rank(c, rank);
            _exit(0);
        }
        return;
    }
    start *s = malloc(sizeof *s);
    *s = (start){c, rank};
    assert_int_equal(pthread_create(&c->thread[rank], NULL, rank_thread, s), 0);
}

void crew_start_all(crew *c)
{
    for (int r = 0; r < c->nranks; r++)
        crew_start(c, r);
}

int crew_join(crew *c, int rank)
{
    int status = 0;
    if (!c->running[rank])
        return 0;
    c->running[rank] = false;
    if (!c->processes) {
        pthread_join(c->thread[rank], NULL);
        return 0;
    }
    assert_int_equal(waitpid(c->pid[rank], &status, 0), c->pid[rank]);
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

void crew_kill(crew *c, int rank)
{
    kill(c->pid[rank], SIGKILL);
    assert_int_equal(crew_join(c, rank), SIGKILL);
}

void crew_finish(crew *c)
{
    for (int r = 0; r < c->nranks; r++)
        crew_join(c, r);
    for (int r = 0; r < c->nranks; r++)
        crew_expect(c, r, TSR_OK, "");
    crew_free(c);
}

void crew_expect(const crew *c, int rank, tsr_status status, const char *part)
{
    const rank_result *r = &c->board->result[rank];
    if (r->status != status || !strstr(r->text, part))
        fail_msg("%s: rank %d: expected %s and '%s', got %s and '%s'", c->url, rank,
                 tsr_status_name(status), part, tsr_status_name(r->status), r->text);
}

void expect_threads(int wanted)
{
    for (const double until_s = now_s() + 30; count_threads() > wanted && now_s() < until_s;)
        sleep_s(0.01);
    assert_int_equal(count_threads(), wanted);
}
