/* SPDX-License-Identifier: Apache-2.0 */
#include "difference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Where slopes are taken: x of the program, `shift` times `nudge` away from its own value. */
typedef struct point {
    int y, x;
    double nudge[400], shift;
} point;

typedef enum verdict {
    AGREES,
    DIFFERS,
    SKIPPED,
} verdict;

/* The sum of y's elements with nudge times `by` added to x. */
static double value_at(const program *p, const pgraph *g, tape *t, walk *w, const point *at,
                       double by)
{
    double step[400], sum = 0;
    const int x = at->x, y = at->y;
    tape_clear(t);
    walk_start(w, p, g, t);
    for (int i = 0; i < p->nvars; i++)
        w->var_v[i] = p->var[i].data;
    for (int64_t i = 0; i < count_of(g->node[x].shape); i++)
        step[i] = at->nudge[i] * (at->shift + by);
    w->nudged = x;
    w->nudge = step;
    for (int i = 0; i <= y; i++)
        if (!g->node[i].opaque)
            walk_node(w, i);
    for (int64_t i = 0; i < tape_at(t, w->value[y])->n; i++)
        sum += tape_at(t, w->value[y])->v[i];
    return sum;
}

/* Compares the slope of the tape along the nudge with that of differences; both are set. */
static verdict compare_at(const program *p, const pgraph *g, tape *t, const point *at,
                          double *out_slope, double *out_narrow)
{
    double gradient[400], slope = 0, size = 0;
    int64_t n = count_of(g->node[at->x].shape);
    walk w;
    double magnitude = fabs(value_at(p, g, t, &w, at, 0));
    tape_backward(t, w.value[at->y]);
    memcpy(gradient, tape_at(t, w.value[at->x])->g, (size_t)n * sizeof *gradient);
    for (int64_t i = 0; i < n; i++) {
        slope += at->nudge[i] * gradient[i];
        size += fabs(at->nudge[i] * gradient[i]);
    }
    const double h = 1e-5;
    double up = value_at(p, g, t, &w, at, h), down = value_at(p, g, t, &w, at, -h);
    double up2 = value_at(p, g, t, &w, at, h / 2), down2 = value_at(p, g, t, &w, at, -h / 2);
    double mid = value_at(p, g, t, &w, at, 0);
    double wide = (up - down) / (2 * h), narrow = (up2 - down2) / h, forth = (up - mid) / h;
    double slack = 1e-4 * (1 + size) + 1e-9 * magnitude;
    /* How far slopes ahead are from those around: half as far for half the step where curvature
     * makes it, as far at a kink. */
    double bend = fabs(forth - wide), half_bend = fabs((up2 - mid) / (h / 2) - narrow);
    bool kink = bend > slack / 4 && half_bend > 0.7 * bend;
    /* Curvature that the step does not resolve is skipped like a kink. */
    *out_slope = slope;
    *out_narrow = narrow;
    if (!isfinite(slope) || !(fabs(wide - narrow) < slack / 4) || !(bend < 100 * slack) || kink)
        return SKIPPED;
    return fabs(narrow - slope) <= slack ? AGREES : DIFFERS;
}

/* Where several ties meet, as of a minimum of a maximum, their kinks may cancel out, and the tape's
 * share of each is no slope. So a slope that differs is taken again beside the point, where nothing
 * ties: a gradient that is wrong is wrong there, too. */
static void compare_slope(const program *p, const pgraph *g, tape *t, int y, int x, difference *out)
{
    point at = {.y = y, .x = x};
    double slope, narrow, beside, beside_narrow;
    for (int64_t i = 0; i < count_of(g->node[x].shape); i++)
        at.nudge[i] = 2 * rnd_number(p->seed + (uint64_t)y, i) - 1;
    verdict found = compare_at(p, g, t, &at, &slope, &narrow);
    at.shift = 1e-3;
    if (found == DIFFERS && compare_at(p, g, t, &at, &beside, &beside_narrow) == AGREES)
        found = SKIPPED;
    out->skipped += found == SKIPPED;
    out->compared += found != SKIPPED;
    if (found == DIFFERS && !out->failed++)
        snprintf(out->text, sizeof out->text, "d t%d / d t%d: the tape says %.9g, differences %.9g",
                 y, x, slope, narrow);
}

void check_differences(const program *p, difference *out)
{
    tape *t = tape_new();
    int op_gradients = op_find("gradients"), op_use = op_find("use");
    for (int k = 0; k < p->ngraphs; k++) {
        const pgraph *g = &p->graph[k];
        /* A row without gradient is the caller's word, not a slope; no slope is known of running
         * averages that are read behind their update. */
        bool padded = false, averages = false, updated = false;
        for (int i = 0; i < g->nnodes; i++) {
            padded |= g->node[i].op == op_find("embedding") && g->node[i].i[0];
            averages |= g->node[i].op == op_find("batch_norm");
            updated |= g->node[i].op == op_find("updated");
        }
        if (padded || (averages && updated))
            continue;
        for (int i = 0; i < g->nnodes; i++)
            for (int j = 1; g->node[i].op == op_gradients && j < g->node[i].nin; j++)
                /* Reads of a variable are one value, of which a nudge of the first is a nudge of
                 * all. */
                if (g->node[g->node[i].in[j]].op != op_use)
                    compare_slope(p, g, t, g->node[i].in[0], g->node[i].in[j], out);
        for (int s = 0; s < g->nsinks; s++)
            for (int i = 0; g->sink[s].kind == SINK_MINIMIZE && i < g->sink[s].node; i++) {
                bool first = g->node[i].op == op_use;
                for (int j = 0; j < i && first; j++)
                    first = g->node[j].op != op_use || g->node[j].var != g->node[i].var;
                if (first)
                    compare_slope(p, g, t, g->sink[s].node, i, out);
            }
    }
    tape_free(t);
}
