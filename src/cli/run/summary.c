/* SPDX-License-Identifier: Apache-2.0 */
/* The end of `tessera run`: what was planned of a step beside what was measured. */
#include "src/cli/run/run.h"
#include "src/exec/exec.h"

#include <stdlib.h>
#include <string.h>

/* --- by kind ---------------------------------------------------------------------------------- */
static run_kind *find_kind(run_kind *kinds, int *n, const char *what, bool is_comm)
{
    for (int i = 0; i < *n; i++)
        if (!strcmp(kinds[i].what, what))
            return &kinds[i];
    if (*n == RUN_KINDS)
        return NULL;
    kinds[*n] = (run_kind){.what = what, .is_comm = is_comm};
    return &kinds[(*n)++];
}

/* Adds what kernels are planned to take to the kinds of the steps that run them: a step that joins
 * several, as a chain does, is measured as one, by the name of its first. */
static void add_kernels(const tsr_plan *plan, run_kind *kinds, int *n)
{
    for (int e = 0, s = 0; e < plan->ir.nentries; e++) {
        const tsri_item *it = &plan->ir.items[plan->ir.entries[e].item];
        while (s + 1 < plan->nsteps && plan->steps[s + 1].entry <= e)
            s++;
        if (it->kind != TSRI_ITEM_KERNEL || !tsri_item_has(it, plan->ir.world->rank))
            continue;
        const bool runs = s < plan->nsteps && plan->steps[s].kind == TSRI_STEP_KERNEL;
        run_kind *k = find_kind(kinds, n,
                                runs ? tsri_step_name(&plan->steps[s])
                                     : tsri_op_title(it->kernel.op, &it->kernel.attrs),
                                false);
        if (k)
            k->planned_s += it->cost_s;
    }
}

static void add_planned(const tsr_plan *plan, run_kind *kinds, int *n)
{
    add_kernels(plan, kinds, n);
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        if (s->kind == TSRI_STEP_KERNEL || s->kind > TSRI_STEP_START)
            continue;
        run_kind *k = find_kind(kinds, n, tsri_step_name(s), s->kind == TSRI_STEP_START);
        if (k)
            k->planned_s += s->item->cost_s;
    }
}

/* The largest first, by what was measured, then by what was planned. */
static int by_seconds(const void *a, const void *b)
{
    const run_kind *x = a, *y = b;
    if (x->measured_s != y->measured_s)
        return x->measured_s < y->measured_s ? 1 : -1;
    return x->planned_s < y->planned_s ? 1 : x->planned_s > y->planned_s ? -1 : 0;
}

int run_kinds(const tsr_plan *plan, run_kind kinds[RUN_KINDS])
{
    tsr_plan_time rows[RUN_KINDS];
    const double runs = plan->info.runs > 0 ? (double)plan->info.runs : 1;
    int n = 0, nrows = tsr_plan_times(plan, RUN_KINDS, rows);
    for (int i = 0; i < nrows && i < RUN_KINDS; i++) {
        run_kind *k = find_kind(kinds, &n, rows[i].what, rows[i].is_comm);
        if (k)
            k->measured_s += rows[i].seconds / runs;
    }
    add_planned(plan, kinds, &n);
    qsort(kinds, (size_t)n, sizeof *kinds, by_seconds);
    return n;
}

/* --- memory ----------------------------------------------------------------------------------- */
double run_process_bytes(const char *key)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)))
            kib = strtod(line + strlen(key), NULL);
    if (f)
        fclose(f);
    return kib * 1024;
}

/* --- the text --------------------------------------------------------------------------------- */
static void print_times(const char *what, double planned_s, double measured_s, const char *note)
{
    char planned[CLI_NUMBER_MAX] = "-", measured[CLI_NUMBER_MAX] = "-";
    if (planned_s > 0)
        cli_seconds(planned_s, planned);
    if (measured_s > 0)
        cli_seconds(measured_s, measured);
    cli_say("  %-22.22s %10s %10s%s\n", what, planned, measured, note);
}

static void print_kinds(const run_rank *r, double step_s)
{
    enum { SHOWN = 10 };
    run_kind kinds[RUN_KINDS], rest = {0};
    char what[40];
    double sum = 0;
    int n = run_kinds(r->plan, kinds);
    for (int i = 0; i < n; i++) {
        sum += kinds[i].measured_s;
        if (i < SHOWN || n == SHOWN + 1) {
            snprintf(what, sizeof what, "  %s", kinds[i].what);
            print_times(what, kinds[i].planned_s, kinds[i].measured_s, "");
        } else {
            rest.planned_s += kinds[i].planned_s;
            rest.measured_s += kinds[i].measured_s;
        }
    }
    if (n > SHOWN + 1) {
        snprintf(what, sizeof what, "  %d other kinds", n - SHOWN);
        print_times(what, rest.planned_s, rest.measured_s, "");
    }
    if (step_s > sum)
        print_times("  feeding, the rest", 0, step_s - sum, "");
}

static void print_bytes(const run_rank *r)
{
    char planned[CLI_NUMBER_MAX], measured[CLI_NUMBER_MAX];
    double sent = 0, plan = 0;
    for (int i = 0; i < tsr_world_size(r->world); i++)
        for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++) {
            sent += (double)r->all[i].coll[k].bytes / (double)r->steps;
            plan += (double)r->all[i].coll[k].planned_bytes;
            if (tsri_ir_every(&r->plan->ir))
                plan += (double)r->all[i].coll[k].once_bytes / (double)tsri_ir_every(&r->plan->ir);
        }
    if (!r->is_alone)
        cli_say("  %-22s %10s %10s  of all ranks\n", "read from peers", cli_bytes(plan, planned),
                cli_bytes(sent, measured));
}

static void print_memory(const run_rank *r)
{
    char planned[CLI_NUMBER_MAX], measured[CLI_NUMBER_MAX];
    double bytes = 0, scratch = 0, kept = 0, records = 0,
           grown = run_process_bytes("VmHWM:") - r->job->base_bytes;
    for (int i = 0; i < tsr_world_size(r->world); i++)
        if (!run_is_launched() || i == tsr_world_rank(r->world)) {
            bytes += (double)run_memory(&r->all[i]);
            scratch += (double)r->all[i].scratch;
            kept += (double)r->all[i].kept;
            records += (double)r->all[i].host;
        }
    if (r->is_alone)
        return;
    cli_say("  %-22s %10s %10s  this process, data and threads with it\n", "memory",
            cli_bytes(bytes, planned), cli_bytes(grown > 0 ? grown : 0, measured));
    cli_say("  %-22s %10s %10s\n", "  tensors",
            cli_bytes(bytes - scratch - kept - records, planned), "-");
    if (kept > 0)
        cli_say("  %-22s %10s %10s\n", "  packed weights", cli_bytes(kept, planned), "-");
    if (scratch > 0)
        cli_say("  %-22s %10s %10s\n", "  kernels' scratch", cli_bytes(scratch, planned), "-");
    cli_say("  %-22s %10s %10s\n", "  plans' own records", cli_bytes(records, planned), "-");
}

void run_print_summary(const run_rank *r)
{
    char note[40];
    double run_s = 0;
    for (int64_t i = 0; i < r->steps; i++)
        run_s += r->seconds[i];
    const double rows = (double)(r->steps * r->program->rows);
    if (r->first > 0 && r->first >= r->planned)
        cli_say("all %lld steps were done before\n", (long long)r->planned);
    else if (r->program->rows > 0)
        cli_say("%lld step%s of %lld rows in %.3f s: %.1f rows/s\n", (long long)r->steps,
                r->steps == 1 ? "" : "s", (long long)r->program->rows, run_s,
                run_s > 0 ? rows / run_s : 0);
    else
        cli_say("%lld step%s in %.3f s\n", (long long)r->steps, r->steps == 1 ? "" : "s", run_s);
    if (r->steps > 0) {
        cli_say("  %-22s %10s %10s\n", "", "planned", "measured");
        snprintf(note, sizeof note, "  rank %d, mean", tsr_world_rank(r->world));
        print_times("a step", r->mine.step_s, run_s / (double)r->steps, note);
        print_kinds(r, run_s / (double)r->steps);
        print_bytes(r);
        print_memory(r);
    }
    cli_flush();
}
