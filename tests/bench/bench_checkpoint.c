/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time that a save takes away from training: MobileNetV2 (32x32, 64 rows, Adam) runs in rounds
 * of 12 steps, every other one with a save in it; medians.
 * usage: bench_checkpoint FOLDER [sync|async] [RANKS]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tessera/tessera.h>

#define TRY(call)                    \
    do {                             \
        tsr_status status_ = (call); \
        if (status_ != TSR_OK)       \
            return status_;          \
    } while (0)
enum { ROWS = 64, PIXELS = 3 * 32 * 32, STEPS = 12, ROUNDS = 60 };

typedef struct job {
    const char *folder;
    bool async;
} job;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tsr_status feed(tsr_plan *plan)
{
    static float x[ROWS * PIXELS];
    int64_t y[ROWS];
    for (int i = 0; i < ROWS * PIXELS; i++)
        x[i] = (float)(i % 97) / 97;
    for (int i = 0; i < ROWS; i++)
        y[i] = i % 10;
    TRY(tsr_feed(plan, "x", x, sizeof x));
    return tsr_feed(plan, "y", y, sizeof y);
}

/* Times rounds with and without a save; seconds[saves] gets them sorted. */
static tsr_status time_rounds(tsr_plan *plan, tsr_checkpoint *c, double seconds[2][ROUNDS])
{
    for (int round = -2; round < 2 * ROUNDS; round++) {
        const int saves = round & 1;
        const double start = now();
        if (saves)
            TRY(tsr_checkpoint_save(c, round + 2, NAN));
        for (int i = 0; i < STEPS; i++)
            TRY(tsr_run(plan));
        if (round >= 0)
            seconds[saves][round / 2] = now() - start;
    }
    for (int i = 0; i < 2; i++)
        qsort(seconds[i], ROUNDS, sizeof **seconds, compare);
    return tsr_checkpoint_wait(c);
}

static tsr_status rank(tsr_world *w, void *arg)
{
    const job *j = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *m = tsr_mobilenet_v2(w, p, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = 10));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(ROWS, 3, 32, 32), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(ROWS), p, TSR_S(0));
    tsr_optimizer *o = tsr_adam(m, NULL);
    tsr_minimize(o, tsr_cross_entropy(tsr_apply(m, x), y, TSR_MEAN));
    tsr_plan *plan;
    tsr_checkpoint *c;
    double seconds[2][ROUNDS];
    TRY(tsr_compile(g, &plan));
    TRY(feed(plan));
    TRY(tsr_checkpoint_create(w, j->folder, TSR_CHECKPOINT_OPTS(.async = j->async), &c));
    TRY(tsr_checkpoint_add_module(c, "model", m));
    TRY(tsr_checkpoint_add_optimizer(c, "optimizer", o));
    TRY(time_rounds(plan, c, seconds));
    const double step = seconds[0][ROUNDS / 2] / STEPS;
    const double save = seconds[1][ROUNDS / 2] - seconds[0][ROUNDS / 2];
    if (tsr_world_rank(w) == 0)
        printf("step %.2f ms; a save %.1f ms, %.2f %% of 100 steps\n", step * 1e3, save * 1e3,
               save / step);
    return TSR_OK;
}

int main(int argc, char **argv)
{
    const job j = {.folder = argc > 1 ? argv[1] : "checkpoints",
                   .async = argc < 3 || strcmp(argv[2], "sync") != 0};
    if (tsr_start_ranks(argc > 3 ? atoi(argv[3]) : 1, rank, (void *)(uintptr_t)&j) == TSR_OK)
        return 0;
    fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
}
