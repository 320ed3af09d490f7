/* SPDX-License-Identifier: Apache-2.0 */
/* The judge's words. */
#include "src/comm/comm.h"
#include "src/cli/flight/judge.h"
#include "src/core/shown.h"

#include <inttypes.h>
#include <string.h>

enum { SAID = 12, LISTED = SAID + 1 }; /* ranks of a list that are told; that are enough for that */

void tsri_flight_say_ranks(FILE *out, int n, const int *ranks)
{
    int shown = n > LISTED ? SAID : n;
    fputs(n == 1 ? "rank " : "ranks ", out);
    for (int i = 0; i < shown; i++)
        tsri_fshow(out, "%s%d", i == 0 ? "" : i == n - 1 ? " and " : ", ", ranks[i]);
    if (shown < n)
        tsri_fshow(out, " and %d more", n - shown);
}

char *tsri_flight_plain(char *text)
{
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return text;
}

char *tsri_flight_group_text(const tsri_flight_read_group *g, char *buf, size_t size)
{
    enum { MOST = 16 };
    size_t used = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < g->listed && i < MOST && used + 48 < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%d", i ? "," : "", g->ranks[i]);
    if (g->nranks > MOST)
        used += (size_t)snprintf(buf + used, size - used, ",... %d ranks", g->nranks);
    used += (size_t)snprintf(buf + used, size - used, "]");
    if (strcmp(g->comm, "local") && strcmp(g->comm, "exchange") && strcmp(g->comm, "twin"))
        snprintf(buf + used, size - used, " (%s, lane %d)", g->comm, g->lane);
    else if (g->lane > 0)
        snprintf(buf + used, size - used, " (lane %d)", g->lane);
    return buf;
}

static uint64_t number_of(const tsri_flight_read_call *c)
{
    return c->said.shown ? c->said.shown : c->said.seq;
}

char *tsri_flight_call_text(const tsri_flight_report *r, const tsri_flight_read_call *c,
                            bool with_group, char *buf, size_t size)
{
    char group[256];
    const char *kind = tsri_flight_kind_name(c->said.kind);
    size_t used = (size_t)snprintf(buf, size, "%s #%" PRIu64, kind ? kind : "?", number_of(c));
    if (with_group && c->group >= 0 && used < size)
        used += (size_t)snprintf(buf + used, size - used, " of group %s",
                                 tsri_flight_group_text(&r->groups[c->group], group, sizeof group));
    if (c->said.what[0] && used < size)
        used += (size_t)snprintf(buf + used, size - used, " '%s'", c->said.what);
    if (c->at[0] && used < size)
        snprintf(buf + used, size - used, " (%s)", c->at);
    return tsri_flight_plain(buf);
}

static void say_call(FILE *out, const tsri_flight_report *r, const tsri_flight_read_call *c)
{
    char text[512];
    tsri_fshow(out, "%s", tsri_flight_call_text(r, c, true, text, sizeof text));
}

static void say_seconds(FILE *out, int64_t ns)
{
    double s = ns > 0 ? 1e-9 * (double)ns : 0;
    tsri_fshow(out, s < 0.1 ? "%.3f s" : s < 100 ? "%.1f s" : "%.0f s", s);
}

/* --- disagreement ----------------------------------------------------------------------------- */
/* "all_reduce f32 [4,2] sum 'grad' at a.c:10" */
static void say_asked(FILE *out, const tsri_flight_read_call *c)
{
    const tsri_flight_call *s = &c->said;
    tsri_fshow(out, "%s", tsri_flight_kind_name(s->kind));
    if (s->nseg > 0) {
        tsri_fshow(out, " %s [", tsri_flight_dtype_name(s->dtype));
        for (int i = 0; i < s->ndim; i++)
            tsri_fshow(out, "%s%" PRId64, i ? "," : "", s->shape[i]);
        fputc(']', out);
    }
    if (s->nseg > 1)
        tsri_fshow(out, " and %d more segments, %" PRIu64 " bytes", s->nseg - 1, s->bytes);
    if (tsri_coll_has_op(s->kind))
        tsri_fshow(out, " %s", tsri_flight_op_name(s->op));
    if (tsri_coll_has_root(s->kind))
        tsri_fshow(out, " root %d", s->root);
    if (s->what[0])
        tsri_fshow(out, " '%s'", s->what);
    if (c->at[0])
        tsri_fshow(out, " at %s", c->at);
}

/* Names what differs where the words are equal. */
static void say_hidden(FILE *out, const tsri_flight_call *a, const tsri_flight_call *b)
{
    if (a->kind != b->kind || a->op != b->op || a->root != b->root || a->dtype != b->dtype ||
        a->ndim != b->ndim || memcmp(a->shape, b->shape, sizeof a->shape) || a->nseg != b->nseg ||
        a->bytes != b->bytes || strcmp(a->what, b->what))
        return;
    fputs(a->algo != b->algo ? " (the algorithms differ)"
                             : " (dtypes, shapes or axes of later segments, or the axis of the "
                               "first, differ)",
          out);
}

/* Whether ref i is the last word of its report on this call. */
static bool counts(const tsri_flight_court *c, int i, int end)
{
    return tsri_flight_has_come(c->refs[i].call) &&
           (i + 1 == end || c->refs[i + 1].report != c->refs[i].report);
}

static void say_list(FILE *out, const tsri_flight_court *c, int first, int end,
                     const tsri_flight_read_call *like)
{
    int ranks[LISTED], n = 0;
    for (int i = first; i < end; i++) {
        if (!counts(c, i, end) || (like && !tsri_flight_same(like, c->refs[i].call)))
            continue;
        if (n < LISTED)
            ranks[n] = c->reports[c->refs[i].report].rank;
        n++;
    }
    tsri_flight_say_ranks(out, n, ranks);
}

void tsri_flight_say_disagreement(FILE *out, const tsri_flight_court *c, int first, int end)
{
    enum { MOST = 4 };
    const tsri_flight_read_call *seen[MOST];
    int nseen = 0;
    char group[256];
    say_list(out, c, first, end, NULL);
    tsri_fshow(out, " disagree on call #%" PRIu64 " of group %s: ", number_of(c->refs[first].call),
               tsri_flight_group_text(c->gangs[c->refs[first].gang].of, group, sizeof group));
    for (int i = first; i < end; i++) {
        bool is_new = counts(c, i, end);
        for (int k = 0; k < nseen; k++)
            is_new &= !tsri_flight_same(seen[k], c->refs[i].call);
        if (!is_new)
            continue;
        if (nseen == MOST) {
            fputs(", others differ again", out);
            break;
        }
        fputs(nseen ? ", " : "", out);
        say_list(out, c, first, end, c->refs[i].call);
        fputc(' ', out);
        say_asked(out, c->refs[i].call);
        seen[nseen++] = c->refs[i].call;
    }
    if (nseen > 1)
        say_hidden(out, &seen[0]->said, &seen[1]->said);
}

/* --- behind ----------------------------------------------------------------------------------- */
/* The last call of this world that a report has come to. */
static const tsri_flight_read_call *last_of(const tsri_flight_court *c, int report)
{
    const tsri_flight_report *r = &c->reports[report];
    for (int i = r->ncalls - 1; i >= 0; i--)
        if (r->call[i].said.world == c->world && tsri_flight_has_come(&r->call[i]))
            return &r->call[i];
    return NULL;
}

/* "killed by signal 9 (SIGKILL)" and the like, or nothing. */
static void say_end(FILE *out, const tsri_flight_report *r)
{
    const char *name = r->exit == TSRI_FLIGHT_KILLED ? sigabbrev_np(r->exit_status) : NULL;
    if (r->exit == TSRI_FLIGHT_KILLED)
        tsri_fshow(out, " was killed by signal %d (SIG%s)", r->exit_status, name ? name : "?");
    else if (r->exit == TSRI_FLIGHT_EXITED)
        tsri_fshow(out, " ended with exit code %d", r->exit_status);
    else if (r->reason && !strncmp(r->reason, "gave up", 7))
        tsri_fshow(out, " %s", r->reason);
}

/* "its last call was ..., completed 12.3 s before" */
static void say_last(FILE *out, const tsri_flight_court *c, int report, int64_t before_ns)
{
    const tsri_flight_report *r = &c->reports[report];
    const tsri_flight_read_call *last = last_of(c, report);
    if (r->world < c->world) {
        tsri_fshow(out,
                   r->world ? "it is still in world %d, the others in world %d"
                            : "it has not made its world yet",
                   r->world, c->world);
        return;
    }
    if (!last) {
        fputs(r->ncalls ? "of its last calls none is of this world" : "it has come to no call yet",
              out);
        return;
    }
    fputs("its last call was ", out);
    say_call(out, r, last);
    if (last->state != TSRI_FLIGHT_COMPLETED) {
        fputs(last->state == TSRI_FLIGHT_FAILED ? ", which failed" : ", which it has not finished",
              out);
        return;
    }
    fputs(", completed ", out);
    say_seconds(out, before_ns - last->ended_ns);
    fputs(" before", out);
}

/* Names the others that wait for the rank in that call. */
static void say_waiters(FILE *out, const tsri_flight_court *c, const tsri_flight_wait *w)
{
    int ranks[LISTED + 1], n = 0; /* the lowest, and room for one more */
    for (int i = 0; i < c->nwaits; i++) {
        const tsri_flight_wait *o = &c->waits[i];
        int rank = c->reports[o->from].rank, at = n < LISTED ? n : LISTED;
        if (o->to != w->to || o->gang != w->gang || o->call->said.seq != w->call->said.seq)
            continue;
        for (; at > 0 && ranks[at - 1] > rank; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = rank;
        n++;
    }
    fputs("; ", out);
    tsri_flight_say_ranks(out, n, ranks);
    fputs(" waited", out);
}

static int64_t end_of(const tsri_flight_court *c, const tsri_flight_wait *w)
{
    return w->call->state == TSRI_FLIGHT_FAILED ? w->call->ended_ns : c->reports[w->from].time_ns;
}

/* One guilty rank, by the first wait for it. */
static void say_guilty(FILE *out, const tsri_flight_court *c, const tsri_flight_wait *w)
{
    int report = c->report_of[w->to];
    const tsri_flight_report *waiting = &c->reports[w->from];
    tsri_fshow(out, "rank %d", w->to);
    if (report < 0) {
        fputs(", of which there is no file, did not come to ", out);
        say_call(out, waiting, w->call);
        fputs(", or did not finish it", out);
        say_waiters(out, c, w);
        return;
    }
    const tsri_flight_report *r = &c->reports[report];
    const tsri_flight_member *m = tsri_flight_member_of(c, w->gang, w->to);
    const tsri_flight_read_call *theirs = tsri_flight_find(c, w->gang, w->call->said.seq, report);
    bool ended = tsri_flight_has_ended(r) || (r->reason && !strncmp(r->reason, "gave up", 7));
    say_end(out, r);
    if (m && m->started >= w->call->said.seq) {
        int64_t late = theirs ? theirs->started_ns - end_of(c, w) : 0;
        if (late > 0) {
            fputs(ended ? ": it came to " : " came to ", out);
            say_call(out, waiting, w->call);
            fputs(" only ", out);
            say_seconds(out, late);
            fputs(" after the others had given up", out);
        } else {
            fputs(ended ? ": it has started " : " has started ", out);
            say_call(out, waiting, w->call);
            fputs(" and never finished it", out);
        }
    } else {
        fputs(ended ? ": it did not come to " : " did not come to ", out);
        say_call(out, waiting, w->call);
        fputs("; ", out);
        say_last(out, c, report, end_of(c, w));
    }
    say_waiters(out, c, w);
}

/* Returns, of all waits for a rank, the one in the call that came first. */
static const tsri_flight_wait *first_wait_for(const tsri_flight_court *c, int rank)
{
    const tsri_flight_wait *first = NULL;
    for (int i = 0; i < c->nwaits; i++)
        if (c->waits[i].to == rank &&
            (!first || c->waits[i].call->started_ns < first->call->started_ns))
            first = &c->waits[i];
    return first;
}

static bool has_ended(const tsri_flight_court *c, int rank)
{
    int report = c->report_of[rank];
    return report >= 0 && tsri_flight_has_ended(&c->reports[report]);
}

void tsri_flight_say_behind(FILE *out, const tsri_flight_court *c)
{
    enum { MOST = 4 };
    int said = 0, more = 0;
    for (int dead = 1; dead >= 0; dead--) {
        for (int r = 0; r < c->nranks; r++) {
            if (!c->guilty[r] || has_ended(c, r) != dead)
                continue;
            if (said == MOST) {
                more++;
                continue;
            }
            fputs(said++ ? "; " : "", out);
            say_guilty(out, c, first_wait_for(c, r));
        }
    }
    if (more)
        tsri_fshow(out, "; and %d more ranks", more);
}

/* --- others ----------------------------------------------------------------------------------- */
void tsri_flight_say_circle(FILE *out, const tsri_flight_court *c, int n,
                            const tsri_flight_wait *const *waits)
{
    enum { MOST = 6 };
    int ranks[MOST] = {0}, shown = n < MOST ? n : MOST;
    for (int i = 0; i < shown; i++)
        ranks[i] = c->reports[waits[i]->from].rank;
    tsri_flight_say_ranks(out, shown, ranks);
    fputs(" wait for each other: ", out);
    for (int i = 0; i < shown; i++) {
        tsri_fshow(out, "%srank %d in ", i ? ", " : "", ranks[i]);
        say_call(out, &c->reports[waits[i]->from], waits[i]->call);
        tsri_fshow(out, " for rank %d", waits[i]->to);
    }
    if (shown < n)
        tsri_fshow(out, ", and so on, through %d ranks", n);
}

void tsri_flight_say_failure(FILE *out, const tsri_flight_court *c, int report)
{
    const tsri_flight_report *r = &c->reports[report];
    const tsri_flight_read_call *last = last_of(c, report);
    bool ended = tsri_flight_has_ended(r);
    tsri_fshow(out, "rank %d", r->rank);
    if (ended || !strncmp(r->reason, "gave up", 7)) {
        say_end(out, r);
        fputs("; ", out);
        if (last) {
            fputs("its last call was ", out);
            say_call(out, r, last);
            tsri_fshow(out, ", %s", tsri_flight_state_name((int)last->state));
        } else {
            fputs("it had come to no call", out);
        }
        fputs("; no rank is on record as waiting for it", out);
        return;
    }
    tsri_fshow(out, " failed: %s; no rank is behind", r->reason);
}

void tsri_flight_say_nobody(FILE *out, const tsri_flight_court *c)
{
    for (int i = c->nrefs - 1; i >= 0; i--) {
        const tsri_flight_ref *r = &c->refs[i];
        if (r->call->state != TSRI_FLIGHT_STARTED && r->call->state != TSRI_FLIGHT_FAILED)
            continue;
        tsri_fshow(out, "no rank is behind: rank %d has not finished ", c->reports[r->report].rank);
        say_call(out, &c->reports[r->report], r->call);
        fputs(", but nobody whom it could wait for lacks", out);
        return;
    }
    fputs("no rank is behind: all finished their calls", out);
}
