/* SPDX-License-Identifier: Apache-2.0 */
/* How launchers of several nodes meet, agree to start again, and part. */
#include "src/cli/cli.h"
#include "src/cli/launch/line.h"
#include "src/core/foreign.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    RETRY_MS = 100,
    NEWS_MS = 5000,
    OLD_RUN_MS = 10000, /* for the launcher of a run that is over, and its token, to go */
};
/* A call of the store that takes longer than this is to a node that is gone. */
static const double call_s = 5;
enum { HURRY_MS = 200 };

/* --- the thread's side ------------------------------------------------------------------------ */

/* Whether the address is one of this machine's. */
static bool is_local(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    bool local = false;
    if (getaddrinfo(host, NULL, &hints, &found))
        return false;
    for (struct addrinfo *a = found; a && !local; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        local = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(found);
    return local;
}

/* By number, node 0 serves. By arrival, who comes first on the machine that is named does. */
static tsr_status serve(launch_nodes *n)
{
    if (n->server || (n->by_arrival ? !is_local(n->addr) : n->node_rank != 0))
        return TSR_OK;
    if (tsri_store_server_start(n->addr, n->port, 0, &n->server) == TSR_OK) {
        n->node_rank = 0;
        if (!n->run_id[0])
            launch_make_run_id(n->run_id);
        return TSR_OK;
    }
    n->server = NULL;
    return n->by_arrival ? TSR_OK : launch_line_lose(n, "%s", tsr_last_error());
}

/* Serves, or reaches whoever does. Serving is tried again each time by arrival: the port may have
 * been that of a run that is over now. */
static tsr_status connect_to_node_0(launch_nodes *n)
{
    char url[320];
    const int64_t old_until_ms = launch_now_ms() + OLD_RUN_MS;
    snprintf(url, sizeof url, "tcp://%s", n->where);
    for (;;) {
        TSRI_TRY(serve(n));
        const tsr_store_opts opts = {.size = sizeof opts, .timeout_s = 1, .hosted = true};
        tsr_status status = tsri_store_connect(url, &opts, &n->store);
        if (status == TSR_OK)
            return tsr_store_set_timeout(n->store, call_s);
        n->store = NULL;
        if (status == TSR_ERR_MISMATCH && launch_now_ms() > old_until_ms)
            return launch_line_lose(n, "can't join the launchers at %s: %s", n->where,
                                    tsr_last_error());
        if (launch_line_quits(n))
            return launch_line_lose(n, "stopped");
        if (launch_now_ms() > n->joining.until_ms)
            return launch_line_lose(n, "can't reach the launcher of node 0 at %s within %g s: %s",
                                    n->where, n->joining.seconds, tsr_last_error());
        launch_line_wait_for(n, "node 0 at %s: %s", n->where, tsr_last_error());
        launch_line_rest(n, RETRY_MS);
    }
}

/* Writes our line under a number that nobody has; *taken: somebody has it, whose line is in
 * `other`. */
static tsr_status claim(launch_nodes *n, int number, char *other, size_t size, bool *taken)
{
    char key[64], own[256], host[LAUNCH_HOST_MAX] = "";
    size_t bytes = 0;
    if (gethostname(host, sizeof host - 1) || !host[0])
        snprintf(host, sizeof host, "?");
    snprintf(key, sizeof key, "launch/n/%d", number);
    snprintf(own, sizeof own, "%d %d %d %s %s %d", n->own_nranks, n->nnodes, n->max_restarts,
             n->run_id[0] ? n->run_id : "-", host, (int)getpid());
    TSRI_TRY(
        tsr_store_compare_set(n->store, key, "", 0, own, strlen(own), other, size - 1, &bytes));
    other[bytes] = 0;
    *taken = strcmp(own, other) != 0;
    tsri_make_printable(other, false);
    return TSR_OK;
}

static tsr_status take_number(launch_nodes *n)
{
    char other[512];
    bool taken = true;
    if (n->server || !n->by_arrival) {
        TSRI_TRY(claim(n, n->node_rank, other, sizeof other, &taken));
        return taken ? launch_line_lose(n, "there is a launcher of node %d already (%s)",
                                        n->node_rank, other)
                     : TSR_OK;
    }
    while (taken) {
        int64_t number;
        TSRI_TRY(tsr_store_add(n->store, "launch/next", 1, &number));
        if (number >= n->nnodes)
            return launch_line_lose(n, "there are launchers of all %d nodes already", n->nnodes);
        TSRI_TRY(claim(n, (int)number, other, sizeof other, &taken));
        n->node_rank = (int)number;
    }
    return TSR_OK;
}

/* Node 0 counts the nodes of its own run, so who comes for another says so before it is counted. */
static tsr_status check_nnodes(launch_nodes *n, bool *agree)
{
    char text[512] = "", host[LAUNCH_HOST_MAX] = "";
    int nranks, nnodes;
    *agree = true;
    if (n->server)
        return TSR_OK;
    TSRI_TRY(tsr_store_get(n->store, "launch/n/0", text, sizeof text - 1, NULL));
    const char *at = text;
    if (!tsri_take_int(&at, 1, INT_MAX, &nranks) || !tsri_take_char(&at, ' ') ||
        !tsri_take_int(&at, 1, INT_MAX, &nnodes) || nnodes == n->nnodes)
        return TSR_OK; /* of another version: node 0 will say so */
    *agree = false;
    if (gethostname(host, sizeof host - 1) || !host[0])
        snprintf(host, sizeof host, "?");
    snprintf(text, sizeof text, "node %d (%s) has --nnodes %d, node 0 has %d", n->node_rank, host,
             n->nnodes, nnodes);
    return launch_line_propose_failure(n, text);
}

/* Where we are, a run has begun already: the last one, most likely, whose node 0 waits for the
 * others to read how it has ended. (A meeting that has failed is one to join: to learn of that.) */
static tsr_status has_begun(launch_nodes *n, bool *begun)
{
    const char *name = "launch/v/0";
    char verdict[LAUNCH_TEXT_MAX] = "";
    bool there = false;
    TSRI_TRY(tsr_store_check(n->store, 1, &name, &there));
    if (there)
        TSRI_TRY(tsr_store_get(n->store, name, verdict, sizeof verdict, NULL));
    *begun = *verdict == 'O';
    return TSR_OK;
}

/* To a launcher of node 0 that waits for us, not to one whose run is over. */
static tsr_status connect_to_new_run(launch_nodes *n)
{
    int64_t until = 0;
    for (;;) {
        bool begun = false;
        TSRI_TRY(connect_to_node_0(n));
        tsr_status status = has_begun(n, &begun);
        if (status == TSR_OK && !begun) {
            launch_line_wait_for(n, "%s", "");
            return TSR_OK;
        }
        int64_t now = launch_now_ms();
        until = until ? until : now + OLD_RUN_MS;
        if (now >= until || launch_line_quits(n)) {
            TSRI_TRY(status);
            TSRI_TRY(take_number(n));
            return launch_line_lose(n, "the run at %s has begun without this launcher", n->where);
        }
        tsr_store_close(n->store);
        n->store = NULL;
        launch_line_wait_for(n, "the end of the run before at %s", n->where);
        launch_line_rest(n, RETRY_MS);
    }
}

tsr_status launch_line_join(launch_nodes *n)
{
    bool agree = false;
    tsr_status status = connect_to_new_run(n);
    if (status == TSR_OK)
        status = take_number(n);
    if (status == TSR_OK)
        status = check_nnodes(n, &agree);
    if (status == TSR_OK && agree)
        status = tsr_store_add(n->store, "launch/d/0", 1, NULL);
    if (status != TSR_OK && !n->lost[0])
        launch_line_lose(n, "can't join the launchers at %s: %s", n->where, tsr_last_error());
    return status;
}

/* --- the launcher's side ---------------------------------------------------------------------- */

/* Reads the signals that came meanwhile; the ranks' ends are nothing new. */
static void take_signals(launch *l)
{
    struct signalfd_siginfo s;
    while (read(l->signal_fd, &s, sizeof s) == (ssize_t)sizeof s)
        if (s.ssi_signo != SIGCHLD)
            l->stopped_by = (int)s.ssi_signo;
}

static void say_stopped(launch *l)
{
    launch_cause *c = calloc(1, sizeof *c);
    if (!c)
        return;
    *c = (launch_cause){
        .is_set = true, .is_final = true, .exit_code = 128 + l->stopped_by, .rank = -1};
    snprintf(c->text, sizeof c->text, "a launcher was stopped by signal %d", l->stopped_by);
    launch_nodes_fail(l->nodes, c);
    free(c);
}

/* Until the verdict on a phase in which nothing runs. */
static void wait_for_verdict(launch *l, launch_cause *out)
{
    launch_nodes *n = l->nodes;
    bool told = false;
    while (!launch_nodes_verdict(n, out)) {
        struct pollfd fds[2] = {{.fd = l->signal_fd, .events = POLLIN},
                                {.fd = n->told_fd, .events = POLLIN}};
        int ready = poll(fds, 2, NEWS_MS);
        take_signals(l);
        if (l->stopped_by && !told) {
            say_stopped(l);
            told = true;
            if (n->wanted_phase == 0) {
                n->joining.hurries = true;
                *out = (launch_cause){.is_set = true, .exit_code = 128 + l->stopped_by, .rank = -1};
                return;
            }
        }
        pthread_mutex_lock(&n->lock);
        if (ready == 0 && n->joining.for_whom[0])
            tsri_fshow(stderr, "tessera launch: waiting for %s\n", n->joining.for_whom);
        pthread_mutex_unlock(&n->lock);
    }
}

bool launch_nodes_agree(launch *l)
{
    launch_nodes_enter(l->nodes);
    if (l->stopped_by)
        say_stopped(l);
    else
        launch_nodes_done(l->nodes);
    launch_cause *c = calloc(1, sizeof *c);
    if (!c)
        return false;
    wait_for_verdict(l, c);
    bool over = !c->is_set;
    if (!over) {
        launch_console_print(&l->console[1], "tessera launch: %s\n", c->text);
        launch_console_flush(&l->console[1], RETRY_MS);
        l->cause = *c;
    }
    free(c);
    return over;
}

static void free_nodes(launch_nodes *n)
{
    if (n->wake_fd >= 0)
        close(n->wake_fd);
    if (n->told_fd >= 0)
        close(n->told_fd);
    pthread_mutex_destroy(&n->lock);
    free(n->each.nranks);
    free(n->each.beat);
    free(n->each.beat_ms);
    free(n->each.host);
    free(n);
}

void launch_nodes_close(launch_nodes *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&n->lock);
    n->quit = true;
    pthread_mutex_unlock(&n->lock);
    bool wakes = eventfd_write(n->wake_fd, 1) == 0;
    if (wakes && n->joining.hurries) {
        /* Long enough for nodes that are here to read why. The thread of a launcher that reaches
         * nobody is left as it is: the process ends. */
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 1000000 * HURRY_MS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_clockjoin_np(n->thread, NULL, CLOCK_MONOTONIC, &until))
            return;
    } else if (wakes) {
        pthread_join(n->thread, NULL);
    }
    free_nodes(n);
}

static launch_nodes *make_nodes(const launch_config *c)
{
    launch_nodes *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    size_t count = (size_t)c->nnodes;
    pthread_mutex_init(&n->lock, NULL);
    n->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    n->told_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    n->nnodes = c->nnodes;
    n->node_rank = c->node_rank;
    n->by_arrival = c->node_rank < 0;
    n->max_restarts = c->max_restarts;
    n->monitor_ms = c->monitor_s < 3600 ? (int)(1000 * c->monitor_s) : 3600000;
    n->monitor_ms = n->monitor_ms > 0 ? n->monitor_ms : 1;
    n->grace_ms = launch_grace_ms(c, false);
    n->own_nranks = c->nlocal;
    n->port = c->port;
    n->joining.until_ms = launch_now_ms() + (int64_t)(1000 * c->join_s);
    n->joining.seconds = c->join_s;
    snprintf(n->addr, sizeof n->addr, "%s", c->addr);
    snprintf(n->where, sizeof n->where, strchr(c->addr, ':') ? "[%s]:%d" : "%s:%d", c->addr,
             c->port);
    snprintf(n->run_id, sizeof n->run_id, "%s", c->run_id);
    n->each.nranks = calloc(count, sizeof *n->each.nranks);
    n->each.beat = calloc(count, sizeof *n->each.beat);
    n->each.beat_ms = calloc(count, sizeof *n->each.beat_ms);
    n->each.host = calloc(count, sizeof *n->each.host);
    if (n->wake_fd >= 0 && n->told_fd >= 0 && n->each.nranks && n->each.beat && n->each.beat_ms &&
        n->each.host && !pthread_create(&n->thread, NULL, launch_line_main, n))
        return n;
    free_nodes(n);
    return NULL;
}

bool launch_line_read_places(const launch_nodes *n, const char *text, launch_places *out)
{
    if (!tsri_take_char(&text, 'O') || !tsri_take_char(&text, ' '))
        return false;
    size_t length = strcspn(text, " ");
    snprintf(out->run_id, sizeof out->run_id, "%.*s", (int)length, text);
    if (length > LAUNCH_RUN_ID_MAX || !launch_is_run_id(out->run_id))
        return false;
    text += length;
    out->world = 0;
    for (int r = 0, count; r < n->nnodes; r++, out->world += count) {
        if (!tsri_take_char(&text, ' ') || !tsri_take_int(&text, 1, TSRI_ARENA_MAX_RANKS, &count) ||
            (r == n->node_rank && count != n->own_nranks))
            return false;
        if (r == n->node_rank)
            out->base = out->world;
    }
    return !*text;
}

int launch_nodes_open(launch *l)
{
    l->nodes = make_nodes(&l->config);
    launch_cause *c = calloc(1, sizeof *c);
    if (!l->nodes || !c) {
        tsri_fshow(stderr, "tessera launch: can't start a thread: %s\n", strerror(errno));
        free(c);
        return CLI_FAILED;
    }
    wait_for_verdict(l, c);
    int code = c->is_set ? c->exit_code : CLI_OK;
    if (c->is_set && c->text[0])
        tsri_fshow(stderr, "tessera launch: %s\n", c->text);
    free(c);
    l->node_rank = l->nodes->node_rank;
    if (code)
        return code;
    const launch_places *places = &l->nodes->places; /* written by this thread alone */
    snprintf(l->config.run_id, sizeof l->config.run_id, "%s", places->run_id);
    l->base = places->base;
    l->world = places->world;
    return CLI_OK;
}
