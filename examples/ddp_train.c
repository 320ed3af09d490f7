/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data parallel training as PyTorch's DistributedDataParallel has it: two ranks, each with two rows
 * of its own, fit y = x w by least squares; the average of their gradients leads both to
 * w = [[2], [3]].
 *
 *     tessera launch -n 2 ddp_train [--device cpu|cuda] [--gpu 0,1]
 *
 * Alone, it starts two thread ranks. With --device cuda each rank trains on a GPU of its own;
 * with TESSERA_CUDA_COMM=local ranks share GPUs.
 */
#define _DEFAULT_SOURCE /* setenv, also under -std=c17 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

static const float inputs[2][4] = {{1, 2, 2, 3}, {4, 6, 3, 1}}, targets[2][2] = {{8, 13}, {26, 9}};

static tsr_tensor *forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_matmul(x, tsr_use(m, "w", x));
}

static tsr_status train(tsr_world *world, void *arg)
{
    int rank = tsr_world_rank(world);
    if (tsr_world_size(world) != 2)
        return tsr_set_error(TSR_ERR_INVALID, "ddp_train has data for 2 ranks, found %d",
                             tsr_world_size(world));
    const tsr_placement *here = tsr_local_placement_on(world, *(const tsr_device *)arg);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B};
    tsr_module *net = tsr_module_create(world, &nn, forward, NULL, NULL);
    tsr_variable *w = tsr_module_param(net, "w", TSR_DIMS(2, 1), TSR_B, (tsr_init){0});
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(net, NULL, &ddp));
    tsr_optimizer *sgd = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.01));

    tsr_graph *g = tsr_graph_create(world, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2, 2), here, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_F32, TSR_DIMS(2, 1), here, TSR_B);
    tsr_tensor *loss = tsr_mse_loss(tsr_apply(net, x), y, TSR_SUM);
    tsr_output(g, "loss", loss, here, TSR_B);
    tsr_ddp_backward(ddp, loss);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));

    TRY(tsr_feed(plan, "x", inputs[rank], sizeof inputs[rank]));
    TRY(tsr_feed(plan, "y", targets[rank], sizeof targets[rank]));
    for (int i = 1; i <= 500; i++) {
        TRY(tsr_ddp_run(ddp, plan));
        TRY(tsr_ddp_step(ddp, sgd));
        double value;
        TRY(tsr_fetch_scalar(plan, "loss", &value));
        if (i % 50 == 0)
            printf("rank %d: %d/500 loss: %.6f\n", rank, i, value);
    }
    float found[2];
    TRY(tsr_variable_get(w, found, sizeof found));
    printf("rank %d: w = [[%.4f], [%.4f]]\n", rank, (double)found[0], (double)found[1]);
    return tsr_ddp_close(&ddp);
}

/* Takes --device cpu|cuda, where ranks compute, and --gpu 0,1, the GPUs, of which each rank gets
 * one. CUDA reads the variable when the first rank comes to use it. Returns false for other
 * options. */
static bool set_option(const char *name, const char *value, tsr_device *device)
{
    if (!strcmp(name, "--gpu"))
        return setenv("CUDA_VISIBLE_DEVICES", value, 1) == 0;
    if (strcmp(name, "--device") != 0 || (strcmp(value, "cpu") != 0 && strcmp(value, "cuda") != 0))
        return false;
    *device = !strcmp(value, "cuda") ? TSR_DEVICE_CUDA : TSR_DEVICE_CPU;
    return true;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    tsr_device device = TSR_DEVICE_CPU;
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !set_option(argv[i], argv[i + 1], &device)) {
            fprintf(stderr, "usage: ddp_train [--device cpu|cuda] [--gpu 0,1]\n");
            return 2;
        }
    if (tsr_start_ranks(2, train, &device) == TSR_OK)
        return 0;
    fprintf(stderr, "ddp_train: %s\n", tsr_last_error());
    return 1;
}
