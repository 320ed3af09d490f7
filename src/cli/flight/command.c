/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera flight`: what the flight recorders of a failed run say. */
#include "src/comm/comm.h"
#include "src/cli/flight/command.h"
#include "src/cli/cli.h"
#include "src/cli/options.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#define AT(field) offsetof(flight_args, field)
static const cli_option options[] = {
    {"rank", 'r', CLI_INT, AT(rank), "R", "show the calls of rank R; default: of those concerned",
     0, (1 << 16) - 1, "a rank"},
    {"last", 'l', CLI_INT, AT(last), "N", "show the last N calls of a rank (default 10)", 0,
     1 << 20, "a number of calls"},
    {"json", 'j', CLI_FLAG, AT(json), NULL, "print JSON", 0, 0, NULL},
};
#undef AT

static const cli_spec spec = {
    .command = "flight",
    .usage = "[--rank R] [--last N] [--json] DIR",
    .about = "Reads the flight.rank<R>.txt that the ranks of a failed run have left in DIR,\n"
             "and says first which rank the others waited for, or who disagree.",
    CLI_OPTIONS(options),
    .min_operands = 1,
    .max_operands = 1,
    .missing = "no folder to read",
};

enum { MOST_RANKS = 4, MOST_MEMBERS = 16, MOST_GANGS = 32 };
/* How exactly the end of a call in which the rank did not sleep is known. */
enum { CLOCK_MS = 4 };

/* --- text ------------------------------------------------------------------------------------- */
static void print_time(int64_t ns)
{
    char text[32];
    time_t s = (time_t)(ns / 1000000000);
    struct tm tm;
    if (gmtime_r(&s, &tm) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm))
        cli_say("%s.%03d", text, (int)(ns / 1000000 % 1000));
}

static void print_member(const flight_folder *f, const tsri_flight_member *m)
{
    const cli_style style = cli_style_of(stdout);
    char text[512], started[24] = "-", completed[24] = "-";
    if (m->report < 0) {
        cli_say("  %4d  %s(no file)%s\n", m->rank, style.dim, style.plain);
        return;
    }
    if (m->started)
        snprintf(started, sizeof started, "#%" PRIu64, m->started);
    if (m->completed)
        snprintf(completed, sizeof completed, "#%" PRIu64, m->completed);
    cli_say("  %s%4d  %-9s %-*s%s", flight_is_guilty(f, m->rank) ? style.red : "", m->rank, started,
            m->last ? 9 : 0, completed, style.plain);
    if (m->last) {
        cli_say(" %s, %s",
                tsri_flight_call_text(&f->reports[m->report], m->last, false, text, sizeof text),
                tsri_flight_state_name((int)m->last->state));
        if (m->last->waits >= 0 && !m->last->waited)
            cli_say(", waits for rank %d", m->last->waits);
    }
    putchar('\n');
}

static void print_gang(const flight_folder *f, const tsri_flight_gang *g)
{
    const cli_style style = cli_style_of(stdout);
    char text[256];
    uint64_t most = 0;
    int shown = 0, n = g->of->listed;
    for (int i = 0; i < n; i++)
        most = g->members[i].started > most ? g->members[i].started : most;
    cli_say("\n%sgroup %s%s%s\n  rank  started   completed\n", style.bold,
            tsri_flight_group_text(g->of, text, sizeof text),
            !strcmp(g->of->comm, "exchange") ? ", exchanges"
            : !strcmp(g->of->comm, "twin")   ? ", collectives"
                                             : "",
            style.plain);
    /* Where members are many, shows those that are behind. */
    for (int i = 0; i < n && shown < MOST_MEMBERS; i++) {
        const tsri_flight_member *m = &g->members[i];
        if (n > MOST_MEMBERS && m->started == most && !flight_is_guilty(f, m->rank))
            continue;
        print_member(f, m);
        shown++;
    }
    if (shown < n)
        cli_say("  ... and %d more of %d\n", n - shown, g->of->nranks);
}

static void print_gangs(const flight_folder *f)
{
    int stuck = 0, shown = 0;
    for (int i = 0; i < f->verdict.ngangs; i++)
        stuck += f->verdict.gangs[i].stuck;
    for (int i = 0; i < f->verdict.ngangs; i++) {
        if ((stuck && !f->verdict.gangs[i].stuck) || shown == MOST_GANGS)
            continue;
        print_gang(f, &f->verdict.gangs[i]);
        shown++;
    }
    if (shown < stuck)
        cli_say("\n... and %d more groups with unfinished calls\n", stuck - shown);
    if (stuck && stuck < f->verdict.ngangs)
        cli_say("\n%d other group%s: all members whose files are there have finished all calls\n",
                f->verdict.ngangs - stuck, f->verdict.ngangs - stuck == 1 ? "" : "s");
}

static void print_calls(const tsri_flight_report *r, int64_t last)
{
    const cli_style style = cli_style_of(stdout);
    char text[512];
    int first = r->ncalls > last ? (int)(r->ncalls - last) : 0;
    cli_say("\n%srank %d%s, process %d on %s: %" PRIu64 " calls", style.bold, r->rank, style.plain,
            r->pid, r->host, r->calls);
    if (r->reason)
        cli_say("; %.300s", r->reason);
    putchar('\n');
    for (int i = first; i < r->ncalls; i++) {
        const tsri_flight_read_call *c = &r->call[i];
        fputs("  ", stdout);
        print_time(c->started_ns ? c->started_ns : c->said.asked_ns);
        cli_say("  %-9s %s", tsri_flight_state_name((int)c->state),
                tsri_flight_call_text(r, c, true, text, sizeof text));
        if (c->said.world != r->world)
            cli_say(", in world %d", c->said.world);
        double ms = 1e-6 * (double)(c->ended_ns - c->said.asked_ns);
        if (c->ended_ns)
            cli_say(ms < CLOCK_MS ? ", < %.0f ms" : ", %.0f ms", ms < CLOCK_MS ? CLOCK_MS : ms);
        if (c->waits >= 0)
            cli_say(", %s rank %d", c->waited ? "last waited for" : "waits for", c->waits);
        putchar('\n');
    }
}

static void print_text(const flight_folder *f, const flight_args *a)
{
    int shown[MOST_RANKS], n = flight_folder_concerned(f, a->rank, MOST_RANKS, shown);
    const tsri_flight_report *first = &f->reports[0];
    cli_say("%s\n\nrun %s of %d rank%s, restart %d: %d file%s, the first of ", f->verdict.text,
            first->run, first->nranks, first->nranks == 1 ? "" : "s", first->restart, f->n,
            f->n == 1 ? "" : "s");
    int64_t time = first->time_ns;
    for (int i = 1; i < f->n; i++)
        time = f->reports[i].time_ns < time ? f->reports[i].time_ns : time;
    print_time(time);
    puts(" UTC");
    if (f->verdict.nmissing) {
        fputs("no file of rank", stdout);
        for (int i = 0; i < f->verdict.nmissing && i < 32; i++)
            cli_say("%s%d", i ? ", " : " ", f->verdict.missing[i]);
        puts(f->verdict.nmissing > 32 ? ", ..." : "");
    }
    print_gangs(f);
    for (int i = 0; i < n && a->last > 0; i++)
        print_calls(&f->reports[shown[i]], a->last);
}

/* --- JSON ------------------------------------------------------------------------------------- */
static const char *fault_name(tsri_flight_fault fault)
{
    static const char *const names[] = {"nobody", "disagree", "died",
                                        "behind", "circle",   "gave up"};
    return names[fault];
}

static cJSON *json_call(const tsri_flight_report *r, const tsri_flight_read_call *c)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "number", (double)c->number);
    cJSON_AddStringToObject(json, "state", tsri_flight_state_name((int)c->state));
    cJSON_AddStringToObject(json, "kind", tsri_flight_kind_name(c->said.kind));
    cJSON_AddNumberToObject(json, "seq", (double)c->said.seq);
    if (c->said.shown)
        cJSON_AddNumberToObject(json, "shown", (double)c->said.shown);
    cJSON_AddNumberToObject(json, "world", c->said.world);
    if (c->group >= 0) {
        const tsri_flight_read_group *g = &r->groups[c->group];
        cJSON_AddItemToObject(json, "ranks", cJSON_CreateIntArray(g->ranks, g->listed));
        cJSON_AddNumberToObject(json, "lane", g->lane);
        cJSON_AddStringToObject(json, "comm", g->comm);
    }
    if (c->said.nseg > 0) {
        cJSON *shape = cJSON_AddArrayToObject(json, "shape");
        for (int i = 0; i < c->said.ndim; i++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)c->said.shape[i]));
        cJSON_AddStringToObject(json, "dtype", tsri_flight_dtype_name(c->said.dtype));
    }
    if (tsri_coll_has_op(c->said.kind))
        cJSON_AddStringToObject(json, "op", tsri_flight_op_name(c->said.op));
    if (tsri_coll_has_root(c->said.kind))
        cJSON_AddNumberToObject(json, "root", c->said.root);
    cJSON_AddNumberToObject(json, "bytes", (double)c->said.bytes);
    cJSON_AddNumberToObject(json, "asked_s", 1e-9 * (double)c->said.asked_ns);
    cJSON_AddNumberToObject(json, "started_s", 1e-9 * (double)c->started_ns);
    cJSON_AddNumberToObject(json, "ended_s", 1e-9 * (double)c->ended_ns);
    if (c->waits >= 0)
        cJSON_AddNumberToObject(json, c->waited ? "waited_for" : "waits_for", c->waits);
    cJSON_AddStringToObject(json, "at", c->at);
    cJSON_AddStringToObject(json, "what", c->said.what);
    return json;
}

static cJSON *json_gang(const flight_folder *f, const tsri_flight_gang *g)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToObject(json, "ranks", cJSON_CreateIntArray(g->of->ranks, g->of->listed));
    cJSON_AddNumberToObject(json, "nranks", g->of->nranks);
    cJSON_AddStringToObject(json, "comm", g->of->comm);
    cJSON_AddNumberToObject(json, "lane", g->of->lane);
    cJSON_AddBoolToObject(json, "unfinished", g->stuck);
    cJSON *members = cJSON_AddArrayToObject(json, "members");
    for (int i = 0; i < g->of->listed; i++) {
        const tsri_flight_member *m = &g->members[i];
        cJSON *member = cJSON_CreateObject();
        cJSON_AddNumberToObject(member, "rank", m->rank);
        cJSON_AddBoolToObject(member, "has_file", m->report >= 0);
        cJSON_AddNumberToObject(member, "started", (double)m->started);
        cJSON_AddNumberToObject(member, "completed", (double)m->completed);
        if (m->last)
            cJSON_AddItemToObject(member, "last", json_call(&f->reports[m->report], m->last));
        cJSON_AddItemToArray(members, member);
    }
    return json;
}

static cJSON *json_rank(const tsri_flight_report *r, int64_t last)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "rank", r->rank);
    cJSON_AddStringToObject(json, "host", r->host);
    cJSON_AddNumberToObject(json, "pid", r->pid);
    cJSON_AddStringToObject(json, "reason", r->reason ? r->reason : "");
    cJSON_AddNumberToObject(json, "calls", (double)r->calls);
    cJSON *calls = cJSON_AddArrayToObject(json, "last");
    for (int i = r->ncalls > last ? (int)(r->ncalls - last) : 0; i < r->ncalls; i++)
        cJSON_AddItemToArray(calls, json_call(r, &r->call[i]));
    return json;
}

static int print_as_json(const flight_folder *f, const flight_args *a)
{
    const tsri_flight_verdict *v = &f->verdict;
    int shown[MOST_RANKS], n = flight_folder_concerned(f, a->rank, MOST_RANKS, shown);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "verdict", v->text);
    cJSON_AddStringToObject(json, "fault", fault_name(v->fault));
    cJSON_AddItemToObject(json, "guilty", cJSON_CreateIntArray(v->guilty, v->nguilty));
    cJSON_AddItemToObject(json, "missing", cJSON_CreateIntArray(v->missing, v->nmissing));
    cJSON_AddStringToObject(json, "run", f->reports[0].run);
    cJSON_AddNumberToObject(json, "restart", f->reports[0].restart);
    cJSON_AddNumberToObject(json, "nranks", f->reports[0].nranks);
    cJSON *aside = cJSON_AddArrayToObject(json, "not_used");
    for (int i = 0; i < f->naside; i++) {
        cJSON *file = cJSON_CreateObject();
        cJSON_AddStringToObject(file, "file", f->aside[i].name);
        cJSON_AddStringToObject(file, "why", f->aside[i].why);
        cJSON_AddItemToArray(aside, file);
    }
    cJSON *gangs = cJSON_AddArrayToObject(json, "groups");
    for (int i = 0; i < v->ngangs; i++)
        cJSON_AddItemToArray(gangs, json_gang(f, &v->gangs[i]));
    cJSON *ranks = cJSON_AddArrayToObject(json, "ranks");
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(ranks, json_rank(&f->reports[shown[i]], a->last));
    return cli_print_json(json);
}

int cli_flight(int argc, char **argv)
{
    flight_args a = {.rank = -1, .last = 10};
    flight_folder f;
    int n, shown, code = cli_parse(&spec, argc, argv, &a, &n);
    if (code >= 0)
        return code;
    if (flight_folder_read(argv[1], &f) != TSR_OK)
        return cli_fail("flight");
    code = CLI_OK;
    if (a.rank >= 0 && !flight_folder_concerned(&f, a.rank, 1, &shown)) {
        tsri_fshow(stderr, "tessera flight: there is no file of rank %d\n", (int)a.rank);
        code = CLI_FAILED;
    } else if (a.json) {
        code = print_as_json(&f, &a);
    } else {
        print_text(&f, &a);
    }
    cli_flush();
    for (int i = 0; i < f.naside; i++) {
        if (f.aside[i].broken)
            code = CLI_FAILED;
        tsri_fshow(stderr, "tessera flight: not used: %s%s%s\n",
                   strncmp(f.aside[i].why, "flight.rank", 11) ? f.aside[i].name : "",
                   strncmp(f.aside[i].why, "flight.rank", 11) ? ": " : "", f.aside[i].why);
    }
    flight_folder_finish(&f);
    return code;
}
