/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perceptron on a mesh of 2 x 2 ranks: data parallel along its first axis, tensor parallel along
 * the second. Only weights have a signature; all others are inferred.
 *
 * usage: 03_tensor_parallel, or tessera launch -n 4 -- 03_tensor_parallel
 *
 *   epoch 0: step 32, 0.0 s, loss 0.90477
 *   epoch 1: step 64, 0.0 s, loss 0.0020446
 *   epoch 2: step 96, 0.0 s, loss 0.00017617
 */
#include <stdio.h>

#include <tessera/tessera.h>

typedef struct net {
    const tsr_placement *mesh;
    tsr_module *model;
    tsr_optimizer *optimizer;
} net;

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    const net *n = (const net *)arg;
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 1, 16, 16), n->mesh, TSR_AUTO);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), n->mesh, TSR_AUTO);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(n->model, x), y, TSR_MEAN);
    tsr_output(g, "loss", loss, n->mesh, TSR_ND(TSR_B, TSR_B));
    if (training)
        tsr_minimize(n->optimizer, loss);
    return TSR_OK;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    net n = {tsr_placement_parse(w, "cpu:[[0,1],[2,3]]"), NULL, NULL};
    tsr_dataset *set;
    tsr_loader *loader;
    tsr_program *program;
    (void)arg;
    n.model = tsr_mlp(w, n.mesh, TSR_ND(TSR_B, TSR_B), TSR_MLP_OPTS(.inputs = 256, .hidden = 512));
    TSR_TRY(tsr_module_place(n.model, "0.*", NULL, TSR_ND(TSR_B, TSR_S(0))));      /* columns */
    TSR_TRY(tsr_module_place(n.model, "2.weight", NULL, TSR_ND(TSR_B, TSR_S(1)))); /* rows */
    n.optimizer = tsr_sgd(n.model, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    TSR_TRY(tsr_synthetic_open(w, 1, 16, 16, 10, 2048, 1, &set));
    TSR_TRY(tsr_loader_create(w, set, TSR_LOADER_OPTS(.shuffle = true), &loader));
    TSR_TRY(tsr_program_create(w, declare, &n, NULL, &program));
    return tsr_train(program, TSR_TRAIN_OPTS(.epochs = 3, .train = loader), NULL);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (tsr_start_ranks(4, rank, NULL) == TSR_OK)
        return 0;
    fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
}
