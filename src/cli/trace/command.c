/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera trace`: where the time of a traced step went. */
#include "src/cli/options.h"
#include "src/cli/trace/trace.h"

#include <cjson/cJSON.h>
#include <stddef.h>

enum { MOST_OPS = 16, MOST_RANKS = 16 };

typedef struct trace_args {
    bool json, all;
} trace_args;

static const cli_option options[] = {
    {"all", 'a', CLI_FLAG, offsetof(trace_args, all), NULL, "every op and rank", 0, 0, NULL},
    {"json", 'j', CLI_FLAG, offsetof(trace_args, json), NULL, "print JSON", 0, 0, NULL},
};

static const cli_spec spec = {
    .command = "trace",
    .usage = "FILE [OPTIONS]",
    .about = "Says where the time of a step went that `tessera run --trace` has written down:\n"
             "by op, by collective, and by rank: computing, waiting, and what overlapped.",
    CLI_OPTIONS(options),
    .min_operands = 1,
    .max_operands = 1,
    .missing = "no FILE to sum up",
};

/* --- text ------------------------------------------------------------------------------------- */
static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void print_ops(const trace_sums *s, int most, const cli_style *style)
{
    char sum[CLI_NUMBER_MAX], longest[CLI_NUMBER_MAX];
    double all = 0;
    for (int i = 0; i < s->nops; i++)
        all += s->op[i].us;
    if (s->nops)
        cli_say("%sby op%s, all ranks together\n  %-22s %7s %9s %6s %9s  %s\n", style->bold,
                style->plain, "op", "calls", "time", "%", "longest", "of");
    for (int i = 0; i < s->nops && i < most; i++) {
        const trace_op *o = &s->op[i];
        cli_say("  %-22.22s %7d %9s %6.1f %9s  %.36s%srank %d\n", o->op, o->calls,
                cli_seconds(o->us * 1e-6, sum), share(o->us, all),
                cli_seconds((o->longest->end - o->longest->start) * 1e-6, longest),
                o->longest->name, o->longest->name[0] ? ", " : "", o->longest->rank);
    }
    if (s->nops > most)
        cli_say("  ... and %d more ops (--all)\n", s->nops - most);
}

static void print_collectives(const trace_sums *s, const cli_style *style)
{
    static const char *const heads[] = {"read", "start", "wait", "release", "under way"};
    if (!s->ncollectives)
        return;
    cli_say("%sby collective%s, all ranks together\n  %-16s %7s", style->bold, style->plain,
            "collective", "calls");
    for (int i = 0; i < 5; i++)
        cli_say(" %9s", heads[i]);
    putchar('\n');
    for (int i = 0; i < s->ncollectives; i++) {
        const trace_op *c = &s->collective[i];
        const double times[] = {c->start, c->wait, c->release, c->under_way};
        char text[CLI_NUMBER_MAX];
        cli_say("  %-16.16s %7d %9s", c->op, c->calls, cli_bytes(c->bytes, text));
        for (int k = 0; k < 4; k++)
            cli_say(" %9s", cli_seconds(times[k] * 1e-6, text));
        double pace = c->under_way > 0 ? c->bytes / (c->under_way * 1e-6) : 0;
        cli_say("  %s/s\n", cli_bytes(pace, text));
    }
}

static void print_ranks(const trace *t, const trace_sums *s, int most, const cli_style *style)
{
    char compute[CLI_NUMBER_MAX], calls[CLI_NUMBER_MAX], wait[CLI_NUMBER_MAX], idle[CLI_NUMBER_MAX],
        way[CLI_NUMBER_MAX];
    cli_say("%sby rank%s\n  %6s %9s %9s %9s %9s %10s %9s\n", style->bold, style->plain, "rank",
            "compute", "wait", "calls", "idle", "under way", "overlap");
    for (int r = 0; r < t->nranks && r < most; r++) {
        const trace_rank *x = &s->rank[r];
        cli_say("  %6d %9s %9s %9s %9s %10s %7.1f %%\n", r, cli_seconds(x->compute * 1e-6, compute),
                cli_seconds(x->wait * 1e-6, wait), cli_seconds(x->calls * 1e-6, calls),
                cli_seconds(x->idle * 1e-6, idle), cli_seconds(x->under_way * 1e-6, way),
                share(x->overlap, x->under_way));
    }
    if (t->nranks > most)
        cli_say("  ... and %d more ranks (--all)\n", t->nranks - most);
}

/* The rank that waits least, where others wait much longer: it is what they wait for. */
static void print_slowest(const trace *t, const trace_sums *s)
{
    char least[CLI_NUMBER_MAX], others[CLI_NUMBER_MAX];
    int slow = 0;
    double sum = 0;
    for (int r = 0; r < t->nranks; r++) {
        slow = s->rank[r].wait < s->rank[slow].wait ? r : slow;
        sum += s->rank[r].wait;
    }
    double mean = t->nranks > 1 ? (sum - s->rank[slow].wait) / (t->nranks - 1) : 0;
    if (mean > 2 * s->rank[slow].wait && mean > 0.02 * (s->last - s->first))
        cli_say("rank %d waits least, %s; the others %s on average: they wait for it\n", slow,
                cli_seconds(s->rank[slow].wait * 1e-6, least), cli_seconds(mean * 1e-6, others));
}

static void print_text(const char *path, const trace *t, const trace_sums *s, bool all)
{
    const cli_style style = cli_style_of(stdout);
    char length[CLI_NUMBER_MAX];
    cli_say("%s%s%s: %d rank%s, %s\n", style.bold, path, style.plain, t->nranks,
            t->nranks > 1 ? "s" : "", cli_seconds((s->last - s->first) * 1e-6, length));
    print_ops(s, all ? s->nops : MOST_OPS, &style);
    print_collectives(s, &style);
    print_ranks(t, s, all ? t->nranks : MOST_RANKS, &style);
    print_slowest(t, s);
}

/* --- JSON ------------------------------------------------------------------------------------- */
static void add_ops(cJSON *json, const trace_sums *s)
{
    cJSON *ops = cJSON_AddArrayToObject(json, "ops");
    for (int i = 0; i < s->nops; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "op", s->op[i].op);
        cJSON_AddNumberToObject(one, "calls", s->op[i].calls);
        cJSON_AddNumberToObject(one, "time_s", s->op[i].us * 1e-6);
        cJSON_AddItemToArray(ops, one);
    }
    cJSON *collectives = cJSON_AddArrayToObject(json, "collectives");
    for (int i = 0; i < s->ncollectives; i++) {
        const trace_op *c = &s->collective[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "collective", c->op);
        cJSON_AddNumberToObject(one, "calls", c->calls);
        cJSON_AddNumberToObject(one, "bytes", c->bytes);
        cJSON_AddNumberToObject(one, "start_s", c->start * 1e-6);
        cJSON_AddNumberToObject(one, "wait_s", c->wait * 1e-6);
        cJSON_AddNumberToObject(one, "release_s", c->release * 1e-6);
        cJSON_AddNumberToObject(one, "under_way_s", c->under_way * 1e-6);
        cJSON_AddItemToArray(collectives, one);
    }
}

static cJSON *make_json(const char *path, const trace *t, const trace_sums *s)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "file", path);
    cJSON_AddNumberToObject(json, "length_s", (s->last - s->first) * 1e-6);
    add_ops(json, s);
    cJSON *ranks = cJSON_AddArrayToObject(json, "ranks");
    for (int r = 0; r < t->nranks; r++) {
        const trace_rank *x = &s->rank[r];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "rank", r);
        cJSON_AddNumberToObject(one, "compute_s", x->compute * 1e-6);
        cJSON_AddNumberToObject(one, "wait_s", x->wait * 1e-6);
        cJSON_AddNumberToObject(one, "calls_s", x->calls * 1e-6);
        cJSON_AddNumberToObject(one, "idle_s", x->idle * 1e-6);
        cJSON_AddNumberToObject(one, "under_way_s", x->under_way * 1e-6);
        cJSON_AddNumberToObject(one, "overlap_s", x->overlap * 1e-6);
        cJSON_AddItemToArray(ranks, one);
    }
    return json;
}

int cli_trace(int argc, char **argv)
{
    trace_args a = {0};
    int n, code = cli_parse(&spec, argc, argv, &a, &n);
    if (code >= 0)
        return code;
    trace t;
    trace_sums sums;
    tsr_status status = trace_read(argv[1], &t);
    if (status == TSR_OK)
        status = trace_sum(&t, &sums);
    code = CLI_OK;
    if (status != TSR_OK)
        code = cli_fail("trace");
    else if (a.json)
        code = cli_print_json(make_json(argv[1], &t, &sums));
    else
        print_text(argv[1], &t, &sums, a.all);
    trace_finish(&t);
    return code;
}
