/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline of two stages: the first layer of a convnet on ranks 0 and 1, data parallel, all the
 * rest on rank 2. Where its variables live says where a module runs; what passes between stages,
 * forward and backward, is in the plan. Ranks print how many bytes of variables they hold.
 *
 * usage: 06_pipeline, or tessera launch -n 3 -- 06_pipeline
 *
 *   rank 2: 229040 bytes of variables
 *   rank 0: 3808 bytes of variables
 *   ... the plan's conversions, of which two send_recv are between the stages
 *   epoch 0: step 8, 0.2 s, loss 1.9728
 */
#include <stdio.h>
#include <string.h>

#include <tessera/tessera.h>

typedef struct net {
    const tsr_placement *front, *back, *all;
    tsr_module *model;
    tsr_optimizer *optimizer;
} net;

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    const net *n = (const net *)arg;
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 1, 28, 28), n->front, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), n->back, TSR_B);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(n->model, x), y, TSR_MEAN);
    tsr_output(g, "loss", loss, n->all, TSR_B);
    if (training)
        tsr_minimize(n->optimizer, loss);
    return TSR_OK;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    net n = {tsr_placement_parse(w, "cpu:[0,1]"), tsr_placement_parse(w, "cpu:[2]"),
             tsr_placement_parse(w, "cpu"), NULL, NULL};
    tsr_dataset *set;
    tsr_loader *loader;
    tsr_program *program;
    tsr_plan *plan;
    (void)arg;
    n.model = tsr_convnet(w, n.front, TSR_B, NULL);
    TSR_TRY(tsr_module_place(n.model, "layer2.*", n.back, TSR_B));
    TSR_TRY(tsr_module_place(n.model, "fc.*", n.back, TSR_B));
    n.optimizer = tsr_sgd(n.model, TSR_SGD_OPTS(.lr = 0.01, .momentum = 0.9));
    TSR_TRY(tsr_synthetic_open(w, 1, 28, 28, 10, 512, 1, &set));
    TSR_TRY(tsr_loader_create(w, set, TSR_LOADER_OPTS(.shuffle = true), &loader));
    TSR_TRY(tsr_program_create(w, declare, &n, NULL, &program));
    TSR_TRY(tsr_program_plan(program, 64, true, &plan));
    tsr_plan_info info = {.size = sizeof info};
    TSR_TRY(tsr_plan_get_info(plan, &info));
    printf("rank %d: %zu bytes of variables\n", tsr_world_rank(w), info.variable_bytes);
    const char *line = tsr_plan_explain(plan);
    while (tsr_world_rank(w) == 0 && line && *line) { /* what passes between the stages */
        const size_t length = strcspn(line, "\n");
        if (strstr(line, " box ") && strstr(line, " box ") < line + length)
            printf("%.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    return tsr_train(program, TSR_TRAIN_OPTS(.epochs = 3, .train = loader), NULL);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (tsr_start_ranks(3, rank, NULL) == TSR_OK)
        return 0;
    fprintf(stderr, "%s\n", tsr_last_error());
    return 1;
}
