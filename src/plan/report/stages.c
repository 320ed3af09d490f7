/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the stages of a plan: the times of their tasks, and a picture of the timetable. */
#include "src/plan/report/stages.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 64, RANKS_SHOWN = 48, RANKS_COLUMN = 7 };

const char *tsri_pipeline_name(tsr_pipeline pipeline)
{
    return pipeline == TSR_PIPELINE_GPIPE ? "gpipe" : "1f1b";
}

static double busy_of(const tsri_timetable *t, int parts, int stage)
{
    double busy = 0;
    for (int s = 0; s < t->nsegments; s++)
        busy += t->segment[s].stage == stage ? t->segment[s].task_s * parts : 0;
    return busy;
}

double tsri_stages_bubble(const tsri_ir *ir)
{
    const tsri_timetable *t = &ir->timetable;
    const double all = tsri_timetable_seconds(t) * t->nstages;
    double busy = 0;
    for (int s = 0; s < t->nstages; s++)
        busy += busy_of(t, ir->parts, s);
    return t->nstages > 1 && all > 0 ? 1 - busy / all : 0;
}

/* Writes "0 to 3", or "4 of 0 to 6" if the numbers have gaps. */
static void put_ranks(const tsri_ir *ir, int stage, char text[RANKS_SHOWN])
{
    int first = -1, last = -1, n = 0;
    for (int r = 0; r < ir->world->nranks; r++)
        if (tsri_ir_stage_of(ir, r) == stage) {
            first = first < 0 ? r : first;
            last = r;
            n++;
        }
    if (n == 1)
        snprintf(text, RANKS_SHOWN, "%d", first);
    else if (last - first + 1 == n)
        snprintf(text, RANKS_SHOWN, "%d to %d", first, last);
    else
        snprintf(text, RANKS_SHOWN, "%d of %d to %d", n, first, last);
}

/* The seconds of a stage's tasks for one micro-batch: those of the segment before the last stage's
 * depth, and the others. */
static void split_tasks(const tsri_timetable *t, int stage, int turn_depth, double *forward,
                        double *back)
{
    *forward = *back = 0;
    for (int s = 0; s < t->nsegments; s++)
        if (t->segment[s].stage == stage)
            *(t->segment[s].depth < turn_depth ? forward : back) += t->segment[s].task_s;
}

int tsri_stages_parameters(const tsri_ir *ir, int stage, int max, tsri_stage_run *out_runs)
{
    int n = 0;
    bool goes_on = false;
    for (int i = 0; i < ir->nvalues; i++) {
        const tsri_value *v = &ir->values[i];
        if (v->storage != TSRI_STORAGE_VARIABLE || !v->source || !v->variable->trainable)
            continue;
        const bool is_here = tsri_ir_stage_of(ir, tsr_placement_rank(v->placement, 0)) == stage;
        if (is_here && !goes_on && n < max)
            out_runs[n].first = v->name;
        if (is_here && !goes_on)
            n++;
        if (is_here && n <= max)
            out_runs[n - 1].last = v->name;
        goes_on = is_here;
    }
    return n;
}

/* "         wte.weight to h.1.mlp.c_proj.bias, h.4.ln_1.weight to ..." */
static void put_parameters(const tsri_ir *ir, int stage, tsri_put_line *put, void *arg)
{
    enum { RUNS = 4 };
    tsri_stage_run run[RUNS];
    char line[400];
    const int all = tsri_stages_parameters(ir, stage, RUNS, run), n = all < RUNS ? all : RUNS;
    size_t used = (size_t)snprintf(line, sizeof line, "%*s", RANKS_COLUMN, "");
    for (int i = 0; i < n && used < sizeof line; i++) {
        const bool is_one = !strcmp(run[i].first, run[i].last);
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%.80s%s%.80s", i ? ", " : "",
                                 run[i].first, is_one ? "" : " to ", is_one ? "" : run[i].last);
    }
    if (all > n && used < sizeof line)
        snprintf(line + used, sizeof line - used, " and %d more", all - n);
    if (n)
        put(line, arg);
}

static void put_stage(const tsri_ir *ir, int stage, int turn_depth, tsri_put_line *put, void *arg)
{
    const tsri_timetable *t = &ir->timetable;
    char ranks[RANKS_SHOWN], there[32] = "with back", line[200];
    double forward, back;
    const double length = tsri_timetable_seconds(t), busy = busy_of(t, ir->parts, stage);
    put_ranks(ir, stage, ranks);
    split_tasks(t, stage, turn_depth, &forward, &back);
    if (forward > 0)
        snprintf(there, sizeof there, "%.3f ms", forward * 1e3);
    snprintf(line, sizeof line, "%5d  %-16s %12s %9.3f ms %6.1f %% %10d", stage, ranks, there,
             back * 1e3, length > 0 ? 100 * busy / length : 0, forward > 0 ? t->slots[stage] : 1);
    put(line, arg);
}

/* One row of the picture: digits go forward, letters back; of micro-batches from 10 on the last
 * digit counts. */
static void draw(const tsri_ir *ir, int stage, int turn_depth, tsri_put_line *put, void *arg)
{
    const tsri_timetable *t = &ir->timetable;
    const double length = tsri_timetable_seconds(t);
    char row[COLUMNS + 1], line[COLUMNS + 32];
    memset(row, '.', COLUMNS);
    row[COLUMNS] = 0;
    for (int i = 0; i < t->ntasks; i++) {
        const tsri_task_of *k = &t->task[i];
        const int from = (int)(k->start_s / length * COLUMNS + 0.5),
                  to = (int)(k->end_s / length * COLUMNS + 0.5);
        const char base = t->segment[k->segment].depth < turn_depth ? '0' : 'a';
        for (int c = from; c < to && t->segment[k->segment].stage == stage; c++)
            row[c] = (char)(base + k->part % 10);
    }
    snprintf(line, sizeof line, "%2d |%s|", stage, row);
    put(line, arg);
}

bool tsri_stages_run(const tsri_ir *ir)
{
    const tsr_placement *first = NULL;
    bool is_one_kind = true;
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->turn != TSRI_TURN_PARTS || it->kind == TSRI_ITEM_DEAD)
            continue;
        first = first ? first : it->placement;
        is_one_kind &= tsr_placement_device(first) == tsr_placement_device(it->placement);
    }
    return is_one_kind;
}

void tsri_report_stages(const tsr_plan *plan, tsri_stages_shown shown, tsri_put_line *put,
                        void *arg)
{
    const tsri_ir *ir = &plan->ir;
    const tsri_timetable *t = &ir->timetable;
    const int turn_depth = t->turn_depth < 0 ? INT_MAX : t->turn_depth,
              n = t->nstages < shown.most ? t->nstages : shown.most;
    char line[200];
    if (t->nstages < 2 || tsri_timetable_seconds(t) <= 0)
        return;
    snprintf(line, sizeof line,
             "%d stages by %s, %d micro-batches: %.3f ms, stages idle for %.1f %%", t->nstages,
             tsri_pipeline_name(ir->opts.pipeline), ir->parts, tsri_timetable_seconds(t) * 1e3,
             100 * tsri_stages_bubble(ir));
    put(line, arg);
    if (shown.times)
        put("stage  ranks                 forward         back     busy  in memory", arg);
    for (int s = 0; s < n && shown.times; s++) {
        put_stage(ir, s, turn_depth, put, arg);
        if (shown.parameters)
            put_parameters(ir, s, put, arg);
    }
    if (!tsri_stages_run(ir))
        put("runs on several kinds of device do not follow this timetable: one stage runs after "
            "another",
            arg);
    put("by time, digits forward, letters back (a is micro-batch 0), dots idle:", arg);
    for (int s = 0; s < n; s++)
        draw(ir, s, turn_depth, put, arg);
    if (n < t->nstages) {
        snprintf(line, sizeof line, "... and %d more stages", t->nstages - n);
        put(line, arg);
    }
}
