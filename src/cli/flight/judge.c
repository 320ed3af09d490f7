/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the rank that is behind. The ranks and their waits are a graph: a rank that sleeps in a
 * call says in its record for whom; where a communicator keeps no such record (NCCL), a rank in a
 * collective waits for all members that have not come to it. A rank that is waited for and waits
 * for nobody is the root of it: the end of the chain, however long. A process that has ended waits
 * for nobody.
 *
 * Send/receives are one-sided, so of those only the recorded waits count: a sender is not behind
 * because its receiver is.
 */
#include "src/comm/comm.h"
#include "src/cli/flight/judge.h"
#include "src/core/text_stream.h"

#include <stdlib.h>
#include <string.h>

bool tsri_flight_has_come(const tsri_flight_read_call *c)
{
    return c->state == TSRI_FLIGHT_STARTED || c->state == TSRI_FLIGHT_COMPLETED ||
           (c->state == TSRI_FLIGHT_FAILED && c->started_ns != 0);
}

bool tsri_flight_has_ended(const tsri_flight_report *r)
{
    return r->exit == TSRI_FLIGHT_KILLED || r->exit == TSRI_FLIGHT_EXITED;
}

bool tsri_flight_same(const tsri_flight_read_call *a, const tsri_flight_read_call *b)
{
    const tsri_flight_call *p = &a->said, *q = &b->said;
    return p->kind == q->kind && p->algo == q->algo && p->op == q->op && p->root == q->root &&
           p->dtype == q->dtype && p->ndim == q->ndim && p->nseg == q->nseg &&
           p->bytes == q->bytes && p->hash == q->hash &&
           !memcmp(p->shape, q->shape, sizeof p->shape) && !strcmp(p->what, q->what);
}

const tsri_flight_member *tsri_flight_member_of(const tsri_flight_court *c, int gang, int rank)
{
    const tsri_flight_gang *g = &c->gangs[gang];
    for (int i = 0; i < g->of->listed; i++)
        if (g->members[i].rank == rank)
            return g->members[i].report < 0 ? NULL : &g->members[i];
    return NULL;
}

static int compare_refs(const void *a, const void *b)
{
    const tsri_flight_ref *p = a, *q = b;
    if (p->gang != q->gang)
        return p->gang < q->gang ? -1 : 1;
    if (p->call->said.seq != q->call->said.seq)
        return p->call->said.seq < q->call->said.seq ? -1 : 1;
    if (p->report != q->report)
        return p->report < q->report ? -1 : 1;
    return p->call->number < q->call->number ? -1 : p->call->number > q->call->number;
}

/* A call that failed to start gives its number to the next one, so the latest counts. */
const tsri_flight_read_call *tsri_flight_find(const tsri_flight_court *c, int gang, uint64_t seq,
                                              int report)
{
    int low = 0, high = c->nrefs;
    tsri_flight_read_call key_call = {.number = UINT64_MAX, .said.seq = seq};
    const tsri_flight_ref key = {gang, report, &key_call};
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (compare_refs(&c->refs[middle], &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    const tsri_flight_ref *r = low > 0 ? &c->refs[low - 1] : NULL;
    return r && r->gang == gang && r->report == report && r->call->said.seq == seq ? r->call : NULL;
}

/* --- the groups of all ranks ------------------------------------------------------------------ */
static bool same_group(const tsri_flight_read_group *a, const tsri_flight_read_group *b)
{
    return a->lane == b->lane && a->nranks == b->nranks && a->listed == b->listed &&
           !strcmp(a->comm, b->comm) &&
           !memcmp(a->ranks, b->ranks, (size_t)a->listed * sizeof *a->ranks);
}

static bool add_gang(tsri_flight_court *c, const tsri_flight_read_group *g)
{
    tsri_flight_gang *gang = &c->gangs[c->ngangs];
    gang->of = g;
    gang->members = calloc((size_t)g->listed, sizeof *gang->members);
    if (!gang->members)
        return false;
    for (int i = 0; i < g->listed; i++) {
        int rank = g->ranks[i];
        gang->members[i] = (tsri_flight_member){
            .rank = rank, .report = rank < c->nranks ? c->report_of[rank] : -1};
    }
    c->ngangs++;
    return true;
}

static void join_gang(tsri_flight_court *c, int report, const tsri_flight_read_group *g)
{
    tsri_flight_gang *gang = &c->gangs[g->gang];
    for (int i = 0; i < gang->of->listed; i++) {
        tsri_flight_member *m = &gang->members[i];
        /* An earlier world's numbers mean nothing in this one. */
        if (m->report != report || c->reports[report].world != c->world)
            continue;
        m->started = g->started > m->started ? g->started : m->started;
        m->completed = g->completed > m->completed ? g->completed : m->completed;
    }
}

static bool find_gangs(tsri_flight_court *c)
{
    size_t total = 0;
    for (int i = 0; i < c->n; i++)
        total += (size_t)c->reports[i].ngroups;
    c->gangs = calloc(total + 1, sizeof *c->gangs);
    if (!c->gangs)
        return false;
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < c->reports[i].ngroups; k++) {
            tsri_flight_read_group *g = &c->reports[i].groups[k];
            for (g->gang = 0; g->gang < c->ngangs; g->gang++)
                if (same_group(c->gangs[g->gang].of, g))
                    break;
            if (g->gang == c->ngangs && !add_gang(c, g))
                return false;
            join_gang(c, i, g);
        }
    }
    return true;
}

static bool find_refs(tsri_flight_court *c)
{
    size_t total = 0;
    for (int i = 0; i < c->n; i++)
        total += (size_t)c->reports[i].ncalls;
    c->refs = calloc(total + 1, sizeof *c->refs);
    if (!c->refs)
        return false;
    for (int i = 0; i < c->n; i++) {
        const tsri_flight_report *r = &c->reports[i];
        for (int k = 0; k < r->ncalls; k++) {
            const tsri_flight_read_call *call = &r->call[k];
            if (call->group >= 0 && call->said.world == c->world && call->said.seq > 0)
                c->refs[c->nrefs++] = (tsri_flight_ref){r->groups[call->group].gang, i, call};
        }
    }
    qsort(c->refs, (size_t)c->nrefs, sizeof *c->refs, compare_refs);
    return true;
}

/* Where each member is, by its own count and by its records. */
static void find_last(tsri_flight_court *c)
{
    for (int i = 0; i < c->nrefs; i++) {
        const tsri_flight_ref *ref = &c->refs[i];
        tsri_flight_gang *g = &c->gangs[ref->gang];
        for (int k = 0; k < g->of->listed; k++) {
            tsri_flight_member *m = &g->members[k];
            if (m->report != ref->report || !tsri_flight_has_come(ref->call))
                continue;
            uint64_t seq = ref->call->said.seq;
            m->last = ref->call;
            m->started = seq > m->started ? seq : m->started;
            if (ref->call->state == TSRI_FLIGHT_COMPLETED && seq > m->completed)
                m->completed = seq;
        }
    }
    for (int i = 0; i < c->ngangs; i++) {
        tsri_flight_gang *g = &c->gangs[i];
        uint64_t most = 0;
        for (int k = 0; k < g->of->listed; k++)
            most = g->members[k].started > most ? g->members[k].started : most;
        for (int k = 0; k < g->of->listed; k++)
            g->stuck |= g->members[k].report >= 0 && g->members[k].completed < most;
    }
}

/* --- disagreement ----------------------------------------------------------------------------- */
/* Whose waits are on record: the communicators over the arena, and Gloo's. */
static bool knows_waits(const tsri_flight_gang *g)
{
    return !strncmp(g->of->comm, "local", 5) || !strncmp(g->of->comm, "twin", 4) ||
           !strncmp(g->of->comm, "gloo", 4) || !strcmp(g->of->comm, "exchange");
}

/* Whether a call that ranks differ in is behind them: the group has gone on. NCCL does not compare,
 * so there a call that is put into the stream proves nothing. */
static bool is_over(const tsri_flight_gang *g, uint64_t seq)
{
    for (int i = 0; i < g->of->listed && knows_waits(g); i++)
        if (g->members[i].completed >= seq)
            return true;
    return false;
}

/* Refs [first, *out_end) are of one call. Whether two reports' differ. */
static bool differs(const tsri_flight_court *c, int first, int *out_end)
{
    const tsri_flight_read_call *one = NULL;
    bool differ = false;
    int i = first;
    for (; i < c->nrefs && c->refs[i].gang == c->refs[first].gang &&
           c->refs[i].call->said.seq == c->refs[first].call->said.seq;
         i++) {
        const tsri_flight_ref *r = &c->refs[i];
        bool latest = i + 1 == c->nrefs || c->refs[i + 1].report != r->report ||
                      c->refs[i + 1].gang != r->gang ||
                      c->refs[i + 1].call->said.seq != r->call->said.seq;
        if (!latest || !tsri_flight_has_come(r->call))
            continue;
        differ |= one && !tsri_flight_same(one, r->call);
        one = one ? one : r->call;
    }
    *out_end = i;
    return differ;
}

/* The first disagreement in time; -1: none. */
static int find_disagreement(const tsri_flight_court *c, int *out_end)
{
    int found = -1;
    for (int i = 0, end; i < c->nrefs; i = end) {
        uint64_t seq = c->refs[i].call->said.seq;
        if (!differs(c, i, &end) || is_over(&c->gangs[c->refs[i].gang], seq))
            continue;
        if (found < 0 || c->refs[i].call->started_ns < c->refs[found].call->started_ns) {
            found = i;
            *out_end = end;
        }
    }
    return found;
}

/* --- waits ------------------------------------------------------------------------------------ */
static bool add_wait(tsri_flight_court *c, int from, int to, const tsri_flight_read_call *call,
                     int gang)
{
    if (to == c->reports[from].rank)
        return true;
    if (c->nwaits == c->cwaits) {
        int more = c->cwaits ? 2 * c->cwaits : 64;
        tsri_flight_wait *p = realloc(c->waits, (size_t)more * sizeof *p);
        if (!p)
            return false;
        c->waits = p;
        c->cwaits = more;
    }
    c->waits[c->nwaits++] = (tsri_flight_wait){from, to, call, gang};
    return true;
}

/* Whether the awaited rank has done its part meanwhile: dumps are not of one moment. A rank that
 * came only after the other had given up is awaited still. */
static bool is_past(const tsri_flight_court *c, int gang, const tsri_flight_read_call *call, int to)
{
    const tsri_flight_member *m = tsri_flight_member_of(c, gang, to);
    if (!m || m->completed < call->said.seq)
        return false;
    const tsri_flight_read_call *theirs = tsri_flight_find(c, gang, call->said.seq, m->report);
    return !(theirs && call->state == TSRI_FLIGHT_FAILED && theirs->started_ns > call->ended_ns);
}

/* The rank's own words. */
static bool add_recorded(tsri_flight_court *c, const tsri_flight_ref *ref)
{
    const tsri_flight_read_call *call = ref->call;
    const tsri_flight_member *me =
        tsri_flight_member_of(c, ref->gang, c->reports[ref->report].rank);
    bool handled = call->state == TSRI_FLIGHT_FAILED && me && me->completed >= call->said.seq &&
                   me->last != call;
    if (call->waits < 0 || call->waited || call->state == TSRI_FLIGHT_EMPTY || handled ||
        is_past(c, ref->gang, call, call->waits))
        return true;
    return add_wait(c, ref->report, call->waits, call, ref->gang);
}

/* Where nothing is said: the members that have not come. On a communicator that keeps waits on
 * record only if no rank at all has come to sleep, as when all were stopped at once: else a call
 * that has begun needs not be waited for. */
static bool add_supposed(tsri_flight_court *c, const tsri_flight_ref *ref)
{
    const tsri_flight_gang *g = &c->gangs[ref->gang];
    const tsri_flight_read_call *call = ref->call;
    bool open = call->state == TSRI_FLIGHT_STARTED || call->state == TSRI_FLIGHT_FAILED ||
                (call->state == TSRI_FLIGHT_COMPLETED && !knows_waits(g));
    if (!open || call->said.kind == TSRI_COLL_SEND_RECV || !tsri_flight_has_come(call))
        return true;
    for (int i = 0; i < g->of->listed; i++)
        if (g->members[i].started < call->said.seq &&
            !add_wait(c, ref->report, g->members[i].rank, call, ref->gang))
            return false;
    return true;
}

/* Marks the ranks that wait, by the waits so far. */
static void note_waiting(tsri_flight_court *c)
{
    memset(c->waiting, 0, (size_t)c->n * sizeof *c->waiting);
    for (int i = 0; i < c->nwaits; i++)
        c->waiting[c->waits[i].from] = true;
}

/* A process that has ended is the end of a chain, whatever it waited for before. */
static bool drop_waits_of_the_dead(tsri_flight_court *c)
{
    int kept = 0;
    bool *awaited = calloc((size_t)c->nranks + 1, sizeof *awaited);
    if (!awaited)
        return false;
    for (int i = 0; i < c->nwaits; i++)
        if (c->waits[i].to < c->nranks)
            awaited[c->waits[i].to] = true;
    for (int i = 0; i < c->nwaits; i++) {
        const tsri_flight_report *from = &c->reports[c->waits[i].from];
        bool ended = tsri_flight_has_ended(from);
        if (!ended || !awaited[from->rank])
            c->waits[kept++] = c->waits[i];
    }
    c->nwaits = kept;
    free(awaited);
    return true;
}

static bool find_waits(tsri_flight_court *c)
{
    for (int i = 0; i < c->nrefs; i++)
        if (!add_recorded(c, &c->refs[i]))
            return false;
    int recorded = c->nwaits;
    note_waiting(c);
    for (int i = 0; i < c->nrefs; i++)
        if (!c->waiting[c->refs[i].report] &&
            !(recorded && knows_waits(&c->gangs[c->refs[i].gang])) && !add_supposed(c, &c->refs[i]))
            return false;
    if (!drop_waits_of_the_dead(c))
        return false;
    note_waiting(c);
    return true;
}

/* --- the verdict ------------------------------------------------------------------------------ */
/* Marks who is awaited and waits for nobody. */
static tsri_flight_fault find_behind(tsri_flight_court *c)
{
    tsri_flight_fault fault = TSRI_FLIGHT_NOBODY;
    for (int i = 0; i < c->nwaits; i++) {
        int rank = c->waits[i].to, report = rank < c->nranks ? c->report_of[rank] : -1;
        if (rank >= c->nranks || (report >= 0 && c->waiting[report]))
            continue;
        c->guilty[rank] = true;
        bool ended = report >= 0 && tsri_flight_has_ended(&c->reports[report]);
        if (fault != TSRI_FLIGHT_DIED)
            fault = ended ? TSRI_FLIGHT_DIED : TSRI_FLIGHT_BEHIND;
    }
    return fault;
}

/* The first wait of a rank. */
static const tsri_flight_wait *wait_of(const tsri_flight_court *c, int rank)
{
    for (int i = 0; i < c->nwaits; i++)
        if (c->reports[c->waits[i].from].rank == rank)
            return &c->waits[i];
    return NULL;
}

/* Returns whether a rank reported an error itself. */
static bool has_failed(const tsri_flight_report *r)
{
    return r->reason && !strncmp(r->reason, "TSR_ERR_", 8);
}

/* Returns the rank of the one report in a circle of waits that has no error, while all others have;
 * -1 if there is no such rank. Ranks that wait for each other all report the abort, which the first
 * of them that times out causes: a rank that does not stands still, although it was waiting. */
static int find_standing(const tsri_flight_court *c, int n, const tsri_flight_wait *const *circle)
{
    int standing = -1;
    for (int i = 0; i < n; i++) {
        const tsri_flight_report *r = &c->reports[circle[i]->from];
        if (!has_failed(r) && standing >= 0)
            return -1;
        standing = has_failed(r) ? standing : r->rank;
    }
    return n > 1 ? standing : -1;
}

/* From anywhere, as everybody who waits leads to one: as nobody is the end of a chain. */
static bool say_circle(FILE *out, tsri_flight_court *c, tsri_flight_fault *out_fault)
{
    const tsri_flight_wait **way = calloc(2 * ((size_t)c->n + 1), sizeof *way);
    int n = 0, start = 0;
    if (!way)
        return false;
    const tsri_flight_wait **circle = way + c->n + 1;
    for (const tsri_flight_wait *w = &c->waits[0]; n <= c->n; w = wait_of(c, w->to)) {
        way[n++] = w;
        for (start = 0; start < n && c->reports[way[start]->from].rank != w->to; start++)
            ;
        if (start < n)
            break;
    }
    const int standing = find_standing(c, n - start, way + start);
    *out_fault = standing < 0 ? TSRI_FLIGHT_CIRCLE : TSRI_FLIGHT_BEHIND;
    for (int i = start; i < n; i++) {
        const int rank = c->reports[way[i]->from].rank;
        c->guilty[rank] = standing < 0 || rank == standing;
    }
    if (standing >= 0) {
        tsri_flight_say_behind(out, c);
        free(way);
        return true;
    }
    /* The lowest rank is told first. */
    int length = n - start, lowest = start;
    for (int i = start; i < n; i++)
        if (c->reports[way[i]->from].rank < c->reports[way[lowest]->from].rank)
            lowest = i;
    memcpy(circle, way + lowest, (size_t)(n - lowest) * sizeof *way);
    memcpy(circle + (n - lowest), way + start, (size_t)(lowest - start) * sizeof *way);
    tsri_flight_say_circle(out, c, length, circle);
    free(way);
    return true;
}

static int gravity(const tsri_flight_report *r)
{
    if (r->exit == TSRI_FLIGHT_KILLED)
        return 5;
    if (r->exit == TSRI_FLIGHT_EXITED && r->exit_status != 0)
        return 4;
    if (r->reason && !strncmp(r->reason, "gave up", 7))
        return 3;
    /* Not the second to fail, if that can be told. */
    if (has_failed(r))
        return strncmp(r->reason, "TSR_ERR_REMOTE", 14) ? 2 : 1;
    return 0;
}

/* The report of the rank that failed most; -1: none did. */
static int find_failure(const tsri_flight_court *c)
{
    int worst = -1;
    for (int i = 0; i < c->n; i++)
        if (gravity(&c->reports[i]) > (worst < 0 ? 0 : gravity(&c->reports[worst])))
            worst = i;
    return worst;
}

static bool decide(FILE *out, tsri_flight_court *c, tsri_flight_fault *out_fault)
{
    int end, first = find_disagreement(c, &end), failed;
    if (first >= 0) {
        *out_fault = TSRI_FLIGHT_DISAGREE;
        for (int i = first; i < end; i++)
            if (tsri_flight_has_come(c->refs[i].call))
                c->guilty[c->reports[c->refs[i].report].rank] = true;
        tsri_flight_say_disagreement(out, c, first, end);
        return true;
    }
    *out_fault = find_behind(c);
    if (*out_fault != TSRI_FLIGHT_NOBODY) {
        tsri_flight_say_behind(out, c);
    } else if (c->nwaits > 0) {
        return say_circle(out, c, out_fault);
    } else if ((failed = find_failure(c)) >= 0) {
        *out_fault = TSRI_FLIGHT_GAVE_UP;
        c->guilty[c->reports[failed].rank] = true;
        tsri_flight_say_failure(out, c, failed);
    } else {
        tsri_flight_say_nobody(out, c);
    }
    return true;
}

/* --- opening and closing ---------------------------------------------------------------------- */
static bool open_court(tsri_flight_court *c)
{
    for (int i = 0; i < c->n; i++) {
        c->nranks = c->reports[i].nranks > c->nranks ? c->reports[i].nranks : c->nranks;
        c->world = c->reports[i].world > c->world ? c->reports[i].world : c->world;
    }
    size_t ranks = (size_t)c->nranks + 1;
    c->report_of = calloc(ranks, sizeof *c->report_of);
    c->waiting = calloc((size_t)c->n + 1, sizeof *c->waiting);
    c->guilty = calloc(ranks, sizeof *c->guilty);
    if (!c->report_of || !c->waiting || !c->guilty)
        return false;
    for (int r = 0; r < c->nranks; r++)
        c->report_of[r] = -1;
    for (int i = 0; i < c->n; i++)
        c->report_of[c->reports[i].rank] = i;
    return true;
}

static void close_court(tsri_flight_court *c)
{
    for (int i = 0; i < c->ngangs; i++)
        free(c->gangs[i].members);
    free(c->gangs);
    free(c->report_of);
    free(c->refs);
    free(c->waits);
    free(c->waiting);
    free(c->guilty);
}

/* The ranks of which `is` says so. */
static bool list_ranks(const tsri_flight_court *c, bool missing, int *out_n, int **out)
{
    int *list = calloc((size_t)c->nranks + 1, sizeof *list), n = 0;
    for (int r = 0; list && r < c->nranks; r++)
        if (missing ? c->report_of[r] < 0 : c->guilty[r])
            list[n++] = r;
    *out = list;
    *out_n = n;
    return list != NULL;
}

static bool judge(tsri_flight_court *c, tsri_flight_verdict *v)
{
    if (!open_court(c) || !find_gangs(c) || !find_refs(c))
        return false;
    find_last(c);
    if (!find_waits(c))
        return false;
    tsri_text_stream t;
    if (!tsri_text_open(&t, NULL))
        return false;
    FILE *out = t.stream;
    bool fine = decide(out, c, &v->fault) && list_ranks(c, false, &v->nguilty, &v->guilty) &&
                list_ranks(c, true, &v->nmissing, &v->missing);
    bool said = v->nmissing == 0;
    for (int i = 0; fine && i < v->nmissing; i++)
        said |= c->guilty[v->missing[i]];
    if (fine && !said) {
        fputs("; there is no file of ", out);
        tsri_flight_say_ranks(out, v->nmissing, v->missing);
    }
    v->text = tsri_text_close(&t, NULL);
    fine &= v->text != NULL;
    if (fine)
        tsri_flight_plain(v->text);
    return fine;
}

tsr_status tsri_flight_judge(tsri_flight_report *reports, int n, tsri_flight_verdict *out_verdict)
{
    tsri_flight_verdict v = {0};
    tsri_flight_court court = {.reports = reports, .n = n};
    bool fine = judge(&court, &v);
    if (fine) {
        v.gangs = court.gangs;
        v.ngangs = court.ngangs;
        court.gangs = NULL;
        court.ngangs = 0;
    }
    close_court(&court);
    if (!fine) {
        tsri_flight_verdict_finish(&v);
        return tsri_fail(TSR_ERR_NO_MEMORY, "no memory to compare %d dumps", n);
    }
    *out_verdict = v;
    return TSR_OK;
}

void tsri_flight_verdict_finish(tsri_flight_verdict *v)
{
    for (int i = 0; i < v->ngangs; i++)
        free(v->gangs[i].members);
    free(v->gangs);
    free(v->text);
    free(v->guilty);
    free(v->missing);
    *v = (tsri_flight_verdict){0};
}
