/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goes on from the newest checkpoint of a folder, where there is one, up to a step, and saves.
 * Ranks may be another number each time: the losses are those of a run that was never stopped.
 *
 * usage: 07_resume FOLDER STEPS [RANKS] [--device cpu|cuda]; under `tessera launch` RANKS is the
 * launcher's
 *
 *   07_resume runs 3       step 3 on 2 ranks: loss 2.223141
 *   07_resume runs 6 3     step 4 on 3 ranks: loss 2.059857
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

static const char *device = "cpu"; /* of all ranks */

typedef struct net {
    const tsr_placement *all;
    tsr_module *model;
    tsr_optimizer *optimizer;
} net;

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    const net *n = (const net *)arg;
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, 1, 8, 8), n->all, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), n->all, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(n->model, x), y, TSR_MEAN);
    tsr_output(g, "loss", loss, n->all, TSR_B);
    if (training)
        tsr_minimize(n->optimizer, loss);
    return TSR_OK;
}

/* A whole number of 1 to `most`; 0 if the text is none. */
static int count_of(const char *text, long most)
{
    char *end;
    const long n = strtol(text, &end, 10);
    return end == text || *end || n < 1 || n > most ? 0 : (int)n;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    char **args = (char **)arg;
    net n = {tsr_placement_parse(w, device), NULL, NULL};
    tsr_dataset *set;
    tsr_loader *loader;
    tsr_program *program;
    tsr_checkpoint *c;
    n.model = tsr_mlp(w, n.all, TSR_B, TSR_MLP_OPTS(.inputs = 64, .dtype = TSR_F64));
    n.optimizer = tsr_adam(n.model, TSR_ADAM_OPTS(.lr = 0.01));
    TSR_TRY(tsr_synthetic_open(w, 1, 8, 8, 10, 200, 1, &set));
    TSR_TRY(tsr_loader_create(
        w, set, TSR_LOADER_OPTS(.batch_size = 50, .shuffle = true, .dtype = TSR_F64), &loader));
    TSR_TRY(tsr_program_create(w, declare, &n, NULL, &program));
    TSR_TRY(tsr_checkpoint_create(w, args[1], NULL, &c));
    TSR_TRY(tsr_checkpoint_add_module(c, "model", n.model));
    TSR_TRY(tsr_checkpoint_add_optimizer(c, "optimizer", n.optimizer));
    TSR_TRY(tsr_checkpoint_add_loader(c, "loader", loader));

    tsr_plan *plan;
    int64_t step;
    TSR_TRY(tsr_checkpoint_load(c, NULL, &step));
    for (step = step < 0 ? 0 : step; step < count_of(args[2], 1000000);) {
        double loss;
        const tsr_status s = tsr_program_feed(program, loader, true, &plan, NULL);
        if (s == TSR_END) /* of an epoch; the loader stands at the next one */
            continue;
        TSR_TRY(s);
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch_scalar(plan, "loss", &loss));
        if (tsr_world_rank(w) == 0)
            printf("step %d on %d ranks: loss %.6f\n", (int)++step, tsr_world_size(w), loss);
        else
            step++;
    }
    return tsr_checkpoint_save(c, step, NAN);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (argc > 2 && !strcmp(argv[argc - 2], "--device")) { /* the last two words */
        device = argv[argc - 1];
        argv[argc -= 2] = NULL;
    }
    const int ranks = argc > 3 ? count_of(argv[3], 256) : 2;
    if (argc < 3 || argc > 4 || !ranks || !count_of(argv[2], 1000000)) {
        fprintf(stderr,
                "usage: 07_resume FOLDER STEPS [RANKS] [--device cpu|cuda]     (1 to 256 ranks)\n");
        return 2;
    }
    if (tsr_start_ranks(ranks, rank, argv) == TSR_OK)
        return 0;
    fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
}
