/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line between the launchers of several nodes: a thread that talks to the store which node 0's
 * launcher serves. Keys, all behind "launch/":
 *
 *   n/R    node R: "ranks nnodes restarts run-id host pid", by who claims the number first
 *   next   how many have asked for a number
 *   b/R    a counter that node R moves every second
 *   d/P    how many nodes are done with phase P
 *   v/P    the verdict on phase P, by who writes it first
 *   s/P    how many nodes have read that
 *
 * A verdict is "O" (over: all are done; behind it, of phase 0, the run's name and each node's
 * number of ranks) or "F code final kill rank" and the text of the failure. Anything else there is
 * somebody else's, and a failure.
 */
#include "src/cli/launch/line.h"
#include "src/core/foreign.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    BEAT_MS = 1000,
    LOST_MS = 5000, /* without a beat */
    SEEN_MS = 3000, /* without a beat, for the others to read the last verdict */
};

/* --- verdicts --------------------------------------------------------------------------------- */

static void write_failure(const launch_cause *c, char *buf, size_t size)
{
    snprintf(buf, size, "F %d %d %d %d\n%s", c->exit_code, c->is_final, c->is_kill, c->rank,
             c->text);
}

static bool read_failure(const char *text, launch_cause *out)
{
    int final, kill;
    *out = (launch_cause){.is_set = true};
    if (!tsri_take_char(&text, 'F') || !tsri_take_char(&text, ' ') ||
        !tsri_take_int(&text, 1, 255, &out->exit_code) || !tsri_take_char(&text, ' ') ||
        !tsri_take_int(&text, 0, 1, &final) || !tsri_take_char(&text, ' ') ||
        !tsri_take_int(&text, 0, 1, &kill) || !tsri_take_char(&text, ' ') ||
        !tsri_take_int(&text, -1, INT_MAX, &out->rank) || !tsri_take_char(&text, '\n'))
        return false;
    out->is_final = final;
    out->is_kill = kill;
    snprintf(out->text, sizeof out->text, "%s", text);
    tsri_make_printable(out->text, true);
    return true;
}

/* With the lock. */
static void read_verdict(launch_nodes *n, const char *text, launch_cause *out)
{
    char said[80];
    if (read_failure(text, out))
        return;
    *out = (launch_cause){.rank = -1};
    if (n->wanted_phase ? !strcmp(text, "O") : launch_line_read_places(n, text, &n->places))
        return;
    *out = (launch_cause){.is_set = true, .is_final = true, .exit_code = 1, .rank = -1};
    snprintf(said, sizeof said, "%.60s", text);
    snprintf(out->text, sizeof out->text,
             "the store has '%s' as launch/v/%d, which no launcher writes",
             tsri_make_printable(said, false), n->wanted_phase);
}

/* Sets the verdict of this node's phase, unless there is one. With the lock. */
static void give(launch_nodes *n, const char *text)
{
    if (n->has_verdict)
        return;
    snprintf(n->verdict, sizeof n->verdict, "%s", text);
    n->has_verdict = true;
    n->joining.for_whom[0] = 0;
    if (eventfd_write(n->told_fd, 1))
        return; /* it has been told so often that it is readable anyway */
}

/* Ours alone: the store is out of reach. */
static void give_lost(launch_nodes *n)
{
    launch_cause c = {.is_set = true, .is_final = true, .exit_code = 1, .rank = -1};
    char text[LAUNCH_TEXT_MAX];
    snprintf(c.text, sizeof c.text, "%s", n->lost);
    write_failure(&c, text, sizeof text);
    pthread_mutex_lock(&n->lock);
    give(n, text);
    pthread_mutex_unlock(&n->lock);
}

tsr_status launch_line_lose(launch_nodes *n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(n->lost, sizeof n->lost, fmt, ap);
    va_end(ap);
    return TSR_ERR_DEAD;
}

/* --- what the thread does --------------------------------------------------------------------- */

static const char *key(char buf[64], const char *kind, int number)
{
    snprintf(buf, 64, "launch/%s/%d", kind, number);
    return buf;
}

static tsr_status get_text(launch_nodes *n, const char *name, char *buf, size_t size)
{
    size_t bytes = 0;
    TSRI_TRY(tsr_store_get(n->store, name, buf, size - 1, &bytes));
    buf[bytes] = 0;
    return TSR_OK;
}

/* Writes this phase's verdict, if nobody has. */
static tsr_status propose(launch_nodes *n, const char *text)
{
    char k[64], now[LAUNCH_TEXT_MAX];
    return tsr_store_compare_set(n->store, key(k, "v", n->phase), "", 0, text, strlen(text), now,
                                 sizeof now, NULL);
}

tsr_status launch_line_propose_failure(launch_nodes *n, const char *text)
{
    launch_cause c = {.is_set = true, .is_final = true, .exit_code = 1, .rank = -1};
    char verdict[LAUNCH_TEXT_MAX];
    snprintf(c.text, sizeof c.text, "%s", text);
    write_failure(&c, verdict, sizeof verdict);
    return propose(n, verdict);
}

/* Node 0: whether node r goes on; if not, that is the verdict. */
static tsr_status check_beat(launch_nodes *n, int r)
{
    char k[64], text[sizeof n->each.host[0] + 128];
    int64_t beat, now = launch_now_ms();
    TSRI_TRY(tsr_store_add(n->store, key(k, "b", r), 0, &beat));
    if (beat != n->each.beat[r]) {
        n->each.beat[r] = beat;
        n->each.beat_ms[r] = now;
    } else if (now - n->each.beat_ms[r] >= LOST_MS) {
        snprintf(text, sizeof text,
                 "the launcher of node %d (%s) is gone: no sign of life for %d s", r,
                 n->each.host[r], LOST_MS / 1000);
        return launch_line_propose_failure(n, text);
    }
    return TSR_OK;
}

/* Node 0: reads who has come; what does not fit together is the verdict. */
static tsr_status check_registered(launch_nodes *n, int r)
{
    char k[64], text[512], id[LAUNCH_RUN_ID_MAX + 2] = "-", why[512] = "";
    const char *name = key(k, "n", r);
    int nranks = 0, nnodes = 0, restarts = 0;
    bool there = false;
    TSRI_TRY(tsr_store_check(n->store, 1, &name, &there));
    if (!there)
        return TSR_OK;
    TSRI_TRY(get_text(n, name, text, sizeof text));
    tsri_make_printable(text, false);
    if (sscanf(text, "%d %d %d %65s %63s", &nranks, &nnodes, &restarts, id, n->each.host[r]) != 5 ||
        nranks < 1 || nranks > TSRI_ARENA_MAX_RANKS)
        snprintf(why, sizeof why, "node %d's launcher is of another version: '%.200s'", r, text);
    else if (nnodes != n->nnodes)
        snprintf(why, sizeof why, "node %d (%s) has --nnodes %d, node 0 has %d", r, n->each.host[r],
                 nnodes, n->nnodes);
    else if (restarts != n->max_restarts)
        snprintf(why, sizeof why, "node %d (%s) has --max-restarts %d, node 0 has %d", r,
                 n->each.host[r], restarts, n->max_restarts);
    else if (strcmp(id, "-") != 0 && strcmp(id, n->run_id) != 0)
        snprintf(why, sizeof why, "node %d (%s) has --rdzv-id %s, node 0 has %s", r,
                 n->each.host[r], id, n->run_id);
    n->each.nranks[r] = nranks > 0 ? nranks : 1; /* it is here, whatever it is */
    n->each.beat_ms[r] = launch_now_ms();        /* from now on it is to beat */
    return why[0] ? launch_line_propose_failure(n, why) : TSR_OK;
}

void launch_line_wait_for(launch_nodes *n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&n->lock);
    vsnprintf(n->joining.for_whom, sizeof n->joining.for_whom, fmt, ap);
    pthread_mutex_unlock(&n->lock);
    va_end(ap);
}

/* Node 0, while launchers join: who is here, and who is not. *all: nobody is absent. */
static tsr_status look_who_is_here(launch_nodes *n, bool *all)
{
    char absent[256] = "";
    size_t used = 0;
    for (int r = 0; r < n->nnodes; r++) {
        if (!n->each.nranks[r])
            TSRI_TRY(check_registered(n, r));
        if (!n->each.nranks[r] && used < sizeof absent - 32)
            used +=
                (size_t)snprintf(absent + used, sizeof absent - used, "%s%d", used ? ", " : "", r);
    }
    if (used && launch_now_ms() > n->joining.until_ms) {
        char text[384];
        snprintf(text, sizeof text, "no launcher of node %s has come within %g s", absent,
                 n->joining.seconds);
        return launch_line_propose_failure(n, text);
    }
    if (used)
        launch_line_wait_for(n, "node %s", absent);
    *all = used == 0;
    return TSR_OK;
}

/* Node 0: all are done with the phase. */
static tsr_status declare_over(launch_nodes *n)
{
    char text[LAUNCH_TEXT_MAX];
    size_t used = (size_t)snprintf(text, sizeof text, "O");
    if (n->phase == 0) {
        used += (size_t)snprintf(text + used, sizeof text - used, " %s", n->run_id);
        for (int r = 0; r < n->nnodes; r++)
            used += (size_t)snprintf(text + used, sizeof text - used, " %d", n->each.nranks[r]);
    }
    return propose(n, text);
}

static tsr_status host_turn(launch_nodes *n, bool beats)
{
    char k[64];
    int64_t done;
    bool all = true;
    if (beats && n->phase == 0)
        TSRI_TRY(look_who_is_here(n, &all));
    for (int r = 1; beats && r < n->nnodes; r++)
        if (n->each.nranks[r])
            TSRI_TRY(check_beat(n, r));
    TSRI_TRY(tsr_store_add(n->store, key(k, "d", n->phase), 0, &done));
    if (done < n->nnodes)
        return TSR_OK;
    if (n->phase == 0)
        TSRI_TRY(look_who_is_here(n, &all));
    return all ? declare_over(n) : TSR_OK;
}

/* Reads the verdict, if there is one. */
static tsr_status look_for_verdict(launch_nodes *n)
{
    char k[64], text[LAUNCH_TEXT_MAX];
    const char *name = key(k, "v", n->phase);
    bool there;
    TSRI_TRY(tsr_store_check(n->store, 1, &name, &there));
    if (!there)
        return TSR_OK;
    TSRI_TRY(get_text(n, name, text, sizeof text));
    pthread_mutex_lock(&n->lock);
    give(n, text);
    pthread_mutex_unlock(&n->lock);
    return tsr_store_add(n->store, key(k, "s", n->phase), 1, NULL);
}

/* Says what this node has to say; returns whether it wants to leave. */
static tsr_status send_news(launch_nodes *n, bool *out_decided)
{
    char *text = NULL, k[64];
    pthread_mutex_lock(&n->lock);
    if (n->has_post) {
        text = strdup(n->post);
        n->has_post = false;
    }
    bool done = n->is_done;
    n->is_done = false;
    n->phase = n->wanted_phase;
    *out_decided = n->has_verdict;
    pthread_mutex_unlock(&n->lock);
    tsr_status status = text ? propose(n, text) : TSR_OK;
    free(text);
    if (status == TSR_OK && done)
        status = tsr_store_add(n->store, key(k, "d", n->phase), 1, NULL);
    return status;
}

static tsr_status line_turn(launch_nodes *n, int64_t *next_beat_ms)
{
    char k[64];
    bool decided, beats = launch_now_ms() >= *next_beat_ms;
    if (beats) {
        *next_beat_ms = launch_now_ms() + BEAT_MS;
        TSRI_TRY(tsr_store_add(n->store, key(k, "b", n->node_rank), 1, NULL));
    }
    TSRI_TRY(send_news(n, &decided));
    if (decided)
        return TSR_OK;
    if (n->server)
        TSRI_TRY(host_turn(n, beats));
    return look_for_verdict(n);
}

bool launch_line_quits(launch_nodes *n)
{
    pthread_mutex_lock(&n->lock);
    bool quit = n->quit;
    pthread_mutex_unlock(&n->lock);
    return quit;
}

void launch_line_rest(launch_nodes *n, int ms)
{
    struct pollfd p = {.fd = n->wake_fd, .events = POLLIN};
    eventfd_t count;
    if (poll(&p, 1, ms) == 1 && eventfd_read(n->wake_fd, &count))
        return;
}

/* All nodes' together. */
static tsr_status count_beats(launch_nodes *n, int64_t *sum)
{
    char k[64];
    int64_t beat;
    *sum = 0;
    for (int r = 1; r < n->nnodes; r++) {
        TSRI_TRY(tsr_store_add(n->store, key(k, "b", r), 0, &beat));
        *sum += beat;
    }
    return TSR_OK;
}

/* Node 0: until the others have read the last verdict. A node that is still stopping its ranks
 * reads it after that. */
static void see_them_off(launch_nodes *n)
{
    char k[64];
    int64_t seen = 0, beats = 0, before = -1, begin = launch_now_ms(), until = begin, looked = 0;
    while (n->server && launch_now_ms() < begin + n->grace_ms + SEEN_MS) {
        int64_t now = launch_now_ms();
        if (tsr_store_add(n->store, key(k, "s", n->phase), 0, &seen) != TSR_OK || seen >= n->nnodes)
            return;
        if (now - looked >= BEAT_MS / 4) {
            looked = now;
            if (count_beats(n, &beats) != TSR_OK)
                return;
            until = beats != before ? now + SEEN_MS : until;
            before = beats;
        }
        if (now >= until)
            return;
        usleep(5000);
    }
}

void *launch_line_main(void *arg)
{
    launch_nodes *n = arg;
    int64_t next_beat_ms = 0;
    tsr_status status = launch_line_join(n);
    while (!launch_line_quits(n)) {
        if (status == TSR_OK) {
            status = line_turn(n, &next_beat_ms);
            if (status != TSR_OK && !n->server)
                launch_line_lose(n, "the launcher of node 0 (%s) is gone", n->where);
            else if (status != TSR_OK)
                launch_line_lose(n, "this launcher's store fails: %s", tsr_last_error());
        }
        if (status != TSR_OK)
            give_lost(n);
        int64_t to_beat = next_beat_ms - launch_now_ms();
        launch_line_rest(n, to_beat < n->monitor_ms ? (int)(to_beat > 0 ? to_beat : 0)
                                                    : n->monitor_ms);
    }
    if (status == TSR_OK && line_turn(n, &next_beat_ms) == TSR_OK) /* the last word */
        see_them_off(n);
    tsr_store_close(n->store);
    tsri_store_server_stop(n->server);
    return NULL;
}

/* --- the launcher's side ---------------------------------------------------------------------- */

int launch_nodes_fd(const launch_nodes *n)
{
    return n->told_fd;
}

static void wake(launch_nodes *n)
{
    if (eventfd_write(n->wake_fd, 1))
        return; /* awake anyway */
}

void launch_nodes_enter(launch_nodes *n)
{
    eventfd_t count;
    pthread_mutex_lock(&n->lock);
    n->wanted_phase++;
    n->has_verdict = n->has_post = n->is_done = false;
    if (eventfd_read(n->told_fd, &count))
        errno = 0; /* nothing was told */
    pthread_mutex_unlock(&n->lock);
    wake(n);
}

void launch_nodes_done(launch_nodes *n)
{
    pthread_mutex_lock(&n->lock);
    n->is_done = true;
    pthread_mutex_unlock(&n->lock);
    wake(n);
}

void launch_nodes_fail(launch_nodes *n, const launch_cause *cause)
{
    pthread_mutex_lock(&n->lock);
    write_failure(cause, n->post, sizeof n->post);
    n->has_post = true;
    pthread_mutex_unlock(&n->lock);
    wake(n);
}

bool launch_nodes_verdict(launch_nodes *n, launch_cause *out)
{
    eventfd_t count;
    pthread_mutex_lock(&n->lock);
    bool there = n->has_verdict;
    if (there)
        read_verdict(n, n->verdict, out);
    if (there && eventfd_read(n->told_fd, &count))
        errno = 0; /* it has been read before */
    pthread_mutex_unlock(&n->lock);
    return there;
}
