/* SPDX-License-Identifier: Apache-2.0 */
/* The timetable of chains of equal stages has the length of the closed forms; those of random
 * stages hold what tsri_plan_check asks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/exec/exec.h"
#include "src/ir/text/text.h"
#include "src/plan/pass/pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A chain of stages: an op forward, one back, and conversions between. */
typedef struct chain {
    int stages, parts, chunks; /* chunks: of each stage, 0 is 1 */
    tsr_pipeline pipeline;
    double forward_s, back_s; /* of a micro-batch */
    unsigned seed;            /* not 0: costs are random, and some stages read an earlier one's */
    const char *device;       /* NULL: "cpu" */
    int nvalues, nitems;
    char *values, *items;
    size_t values_size, items_size;
} chain;

static unsigned draw(chain *c, unsigned n)
{
    c->seed = c->seed * 1664525u + 1013904223u;
    return (c->seed >> 8) % n;
}

static int value(chain *c, FILE *f, int stage)
{
    fprintf(f, "v%d f32 (8,4) B p%d \"\" |\n", c->nvalues, stage);
    return c->nvalues++;
}

/* Appends an op of one or two operands (-1: none). Returns its result. */
static int op(chain *c, FILE *values, FILE *items, int stage, bool back, int a, int b)
{
    const int out = value(c, values, stage);
    double cost = (back ? c->back_s : c->forward_s) * c->parts;
    if (c->seed)
        cost *= 0.2 + draw(c, 100) / 50.0;
    fprintf(items, "i%d kernel ", c->nitems++);
    if (b >= 0)
        fprintf(items, "binary {function=add}%s parts \"\": v%d v%d", back ? " back" : "", a, b);
    else
        fprintf(items, "unary {function=relu}%s parts \"\": v%d", back ? " back" : "", a);
    fprintf(items, " -> v%d | on p%d in f32 cost %.17g\n", out, stage, cost);
    return out;
}

static int move(chain *c, FILE *values, FILE *items, int from, int to, int v)
{
    const int out = value(c, values, to);
    fprintf(items,
            "i%d collective send_recv crosses on_dst parts \"\": v%d -> v%d | on p%d at p%d from B "
            "to B bytes 128\n",
            c->nitems++, v, out, to, from);
    return out;
}

/* Writes the program's text; the caller frees it. */
static char *text_of(chain *c)
{
    const int p = c->stages, n = p * (c->chunks ? c->chunks : 1);
    int *gives = calloc((size_t)n, sizeof *gives);
    FILE *values = open_memstream(&c->values, &c->values_size);
    FILE *items = open_memstream(&c->items, &c->items_size);
    assert_true(gives && values && items);
    fprintf(values, "v0 f32 (8,4) B p0 port 0 \"x\" |\n");
    c->nvalues = 1;
    c->nitems = 0;
    int v = 0;
    for (int s = 0; s < n; s++) {
        int other = -1;
        if (s)
            v = move(c, values, items, (s - 1) % p, s % p, v);
        if (c->seed && s > 1 && draw(c, 3) == 0) {
            const int from = (int)draw(c, (unsigned)s - 1);
            other = from % p == s % p ? gives[from]
                                      : move(c, values, items, from % p, s % p, gives[from]);
        }
        v = gives[s] = op(c, values, items, s % p, false, v, other);
    }
    for (int s = n; s-- > 0;) {
        if (s < n - 1)
            v = move(c, values, items, (s + 1) % p, s % p, v);
        v = op(c, values, items, s % p, true, v, gives[s]);
    }
    fclose(values);
    fclose(items);
    free(gives);
    char *text;
    size_t size;
    FILE *all = open_memstream(&text, &size);
    assert_non_null(all);
    fprintf(all, "plan 1 ranks %d rank 0 parts %d\n", c->stages, c->parts);
    for (int s = 0; s < c->stages; s++)
        fprintf(all, "p%d %s:[%d]\n", s, c->device ? c->device : "cpu", s);
    fprintf(all, "%s%s", c->values, c->items);
    fclose(all);
    free(c->values);
    free(c->items);
    return text;
}

/* Returns the seconds from the first task to the last. */
static double length(chain c)
{
    char *text = text_of(&c);
    tsr_world *w;
    tsri_ir ir;
    assert_int_equal(tsr_world_create_virtual(c.stages, 0, &w), TSR_OK);
    tsri_ir_init(&ir, w);
    ir.opts = *TSR_COMPILE_OPTS(.pipeline = c.pipeline);
    if (tsri_text_read(&ir, text, NULL) != TSR_OK || tsri_plan_stages(&ir) != TSR_OK ||
        tsri_plan_check(&ir, TSRI_PASS_STAGES) != TSR_OK || tsri_plan_schedule(&ir) != TSR_OK ||
        tsri_plan_check(&ir, TSRI_PASS_SCHEDULE) != TSR_OK)
        fail_msg("%d stages, %d parts: %s\n%s", c.stages, c.parts, tsr_last_error(), text);
    const tsri_timetable *t = &ir.timetable;
    assert_int_equal(t->nstages, c.stages);
    double end = 0;
    for (int i = 0; i < t->ntasks; i++)
        end = fmax(end, t->task[i].end_s);
    for (int s = 0; s < c.stages && !c.seed && !c.chunks; s++) {
        /* By GPipe the last stage gives gradients that wait until all have gone forward. */
        const bool gpipe = c.pipeline == TSR_PIPELINE_GPIPE, is_last = s == c.stages - 1;
        const int most = gpipe ? c.parts : c.stages - s < c.parts ? c.stages - s : c.parts;
        if (t->slots[s] > (most < 2 ? 2 : most) || t->slots[s] < (is_last ? 2 : most))
            fail_msg("%d stages, %d parts, schedule %d: stage %d has %d copies, not %d", c.stages,
                     c.parts, (int)c.pipeline, s, t->slots[s], most);
    }
    tsri_ir_finish(&ir);
    tsr_world_destroy(w);
    free(text);
    return end;
}

/* (k + p - 1)(F + B): Huang et al., 2019; Narayanan et al., 2021. */
static void test_closed_forms(void **state)
{
    (void)state;
    for (int p = 2; p <= 16; p *= 2)
        for (int k = p; k <= 4 * p; k += p)
            for (int kind = TSR_PIPELINE_1F1B; kind <= TSR_PIPELINE_GPIPE; kind++)
                for (double back = 1; back <= 3; back++) {
                    const double got = length((chain){.stages = p,
                                                      .parts = k,
                                                      .pipeline = (tsr_pipeline)kind,
                                                      .forward_s = 1e-3,
                                                      .back_s = back * 1e-3});
                    const double want = (k + p - 1) * (1 + back) * 1e-3;
                    if (fabs(got / want - 1) > 1e-3)
                        fail_msg("%d stages, %d parts, schedule %d, back %g: %g s, not %g", p, k,
                                 kind, back, got, want);
                }
}

/* k v (F + B) + (p - 1)(F + B), of chunks' F and B: Narayanan et al., "Efficient large-scale
 * language model training on GPU clusters", 2021. */
static void test_interleaved(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p *= 2)
        for (int v = 2; v <= 4; v++)
            for (int k = p; k <= 4 * p; k += p) {
                const double got = length((chain){
                    .stages = p, .parts = k, .chunks = v, .forward_s = 1e-3, .back_s = 2e-3});
                const double want = (k * v + p - 1) * 3e-3;
                if (fabs(got / want - 1) > 1e-3)
                    fail_msg("%d stages of %d chunks, %d parts: %g s, not %g", p, v, k, got, want);
            }
}

static void test_random_stages(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 400; seed++) {
        const int p = 2 + (int)(seed % 7), k = 2 + (int)(seed % 9);
        length((chain){.stages = p,
                       .parts = k,
                       .pipeline = seed % 2 ? TSR_PIPELINE_1F1B : TSR_PIPELINE_GPIPE,
                       .forward_s = 1e-3,
                       .back_s = 2e-3,
                       .chunks = 1 + (int)(seed / 7 % 3),
                       .seed = seed * 7919,
                       .device = seed / 2 % 2 ? "cuda" : NULL});
    }
}

int main(void)
{
    setenv("TESSERA_CHECK", "1", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_closed_forms),
                                       cmocka_unit_test(test_interleaved),
                                       cmocka_unit_test(test_random_stages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
