/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training step with more in it: gradients of four batches in one update, clipped by their
 * norm; a schedule; no weight decay for biases; and an average of the weights, which follows them
 * in the same step and is evaluated as a network of its own.
 *
 * usage: 08_training_control [--device cpu|cuda], also under tessera launch -n 2
 *
 *   epoch 0: 4 updates, lr 0.00271, loss 2.2179, norm 0.38; after it 2.0276, of the average 2.1588
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tessera/tessera.h>

static const char *device = "cpu"; /* of all ranks */

enum { ROWS = 64, ACCUMULATE = 4 };

typedef struct net {
    const tsr_placement *all;
    tsr_module *model, *average;
    tsr_optimizer *optimizer;
    tsr_graph *graph; /* that is being declared */
} net;

/* average = 0.9 average + 0.1 weight, of the weight behind this step's update. */
static tsr_status follow(tsr_variable *v, const char *name, void *arg)
{
    const net *n = (const net *)arg;
    tsr_variable *mean = tsr_module_find(n->average, name);
    tsr_tensor *old = tsr_mul_scalar(tsr_read(n->graph, mean), 0.9);
    tsr_assign(mean, tsr_add(old, tsr_mul_scalar(tsr_read_updated(n->graph, v), 0.1)));
    return TSR_OK;
}

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    net *n = (net *)arg;
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 1, 16, 16), n->all, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), n->all, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(n->model, x), y, TSR_MEAN);
    tsr_output(g, "loss", loss, n->all, TSR_B);
    if (training) {
        tsr_tensor *norm;
        tsr_minimize_with(
            n->optimizer, 1, &loss,
            TSR_MINIMIZE_OPTS(.accumulate = ACCUMULATE, .clip_norm = 0.5, .out_norm = &norm));
        tsr_output(g, "norm", norm, n->all, TSR_B);
        n->graph = g;
        return tsr_module_visit(n->model, follow, n);
    }
    tsr_tensor *averaged = tsr_cross_entropy(tsr_apply(n->average, x), y, TSR_MEAN);
    tsr_output(g, "averaged", averaged, n->all, TSR_B);
    return TSR_OK;
}

static tsr_status run_epoch(tsr_program *program, tsr_loader *loader, bool training,
                            const char *name, double *out_mean, double *out_other)
{
    tsr_plan *plan;
    tsr_status s;
    int n = 0, nother = 0;
    *out_mean = *out_other = 0;
    for (; (s = tsr_program_feed(program, loader, training, &plan, NULL)) == TSR_OK; n++) {
        double loss, other;
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch_scalar(plan, "loss", &loss));
        TSR_TRY(tsr_fetch_scalar(plan, name, &other));
        *out_mean = (*out_mean * n + loss) / (n + 1);
        if (isnan(other)) /* runs that do not update have no norm */
            continue;
        *out_other = (*out_other * nother + other) / (nother + 1);
        nother++;
    }
    return s == TSR_END ? TSR_OK : s;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    net n = {.all = tsr_placement_parse(w, device)};
    tsr_dataset *set;
    tsr_loader *loader;
    tsr_program *program;
    (void)arg;
    /* Equal names and seeds: the average begins with the values of the weights. */
    n.model = tsr_mlp(w, n.all, TSR_B, TSR_MLP_OPTS(.inputs = 256, .seed = 1));
    n.average = tsr_mlp(w, n.all, TSR_B, TSR_MLP_OPTS(.inputs = 256, .seed = 1));
    n.optimizer = tsr_adamw(n.model, TSR_ADAM_OPTS(.lr = 3e-3, .weight_decay = 0.05,
                                                   .schedule = TSR_COSINE_LR(.steps = 20)));
    TSR_TRY(
        tsr_optimizer_param_group(n.optimizer, "*.bias", TSR_PARAM_GROUP_OPTS(.weight_decay = 0)));
    TSR_TRY(tsr_synthetic_open(w, 1, 16, 16, 10, 16 * ROWS, 1, &set));
    TSR_TRY(tsr_loader_create(w, set, TSR_LOADER_OPTS(.shuffle = true), &loader));
    TSR_TRY(tsr_program_create(w, declare, &n, NULL, &program));
    for (int epoch = 0; epoch < 5; epoch++) {
        double train, norm, now, averaged;
        TSR_TRY(run_epoch(program, loader, true, "norm", &train, &norm));
        TSR_TRY(run_epoch(program, loader, false, "averaged", &now, &averaged));
        if (tsr_world_rank(w) == 0)
            printf("epoch %d: %d updates, lr %.5f, loss %.4f, norm %.2f; after it %.4f, of the "
                   "average %.4f\n",
                   epoch, (int)tsr_optimizer_steps(n.optimizer), tsr_optimizer_lr(n.optimizer),
                   train, norm, now, averaged);
    }
    return TSR_OK;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (argc > 2 && !strcmp(argv[argc - 2], "--device")) { /* the last two words */
        device = argv[argc - 1];
        argv[argc -= 2] = NULL;
    }
    if (tsr_start_ranks(2, rank, NULL) == TSR_OK)
        return 0;
    fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
}
