/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank has one batch less than the other. In PyTorch's DDP that hangs; here every rank is told
 * which rank is where. With --join the rank that has run out takes part in the others' averages
 * until all are done, and all end with the same parameters.
 *
 *     tessera launch -n 2 rank_skips [--join] [--device cpu|cuda] [--gpu 0,1]
 *
 * Alone, it starts two thread ranks.
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

enum { BATCHES = 5 };

typedef struct options {
    tsr_device device;
    bool join;
} options;

static tsr_status run(tsr_world *world, const options *o)
{
    int rank = tsr_world_rank(world), batches = rank == 1 ? BATCHES - 1 : BATCHES;
    const tsr_placement *here = tsr_local_placement_on(world, o->device);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B};
    tsr_module *net = tsr_nn_linear(world, &nn, 1, 1, false);
    tsr_variable *w = tsr_module_find(net, "weight");
    const float one = 1;
    TRY(tsr_variable_set(w, &one, sizeof one));
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(net, NULL, &ddp));
    tsr_optimizer *sgd = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.5));

    tsr_graph *g = tsr_graph_create(world, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(1, 1), here, TSR_B);
    tsr_ddp_backward(ddp, tsr_sum(tsr_apply(net, x), TSR_ALL_AXES, false));
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));

    if (o->join)
        TRY(tsr_ddp_join_begin(ddp, NULL));
    for (int i = 0; i < batches; i++) {
        TRY(tsr_feed(plan, "x", &one, sizeof one));
        TRY(tsr_ddp_run(ddp, plan));
        TRY(tsr_ddp_step(ddp, sgd));
    }
    if (o->join)
        TRY(tsr_ddp_join(ddp));
    TRY(tsr_ddp_close(&ddp));
    float found;
    TRY(tsr_variable_get(w, &found, sizeof found));
    printf("rank %d: %d batches, w = %g\n", rank, batches, (double)found);
    return TSR_OK;
}

/* Both ranks tell what they have met. */
static tsr_status say(tsr_world *world, void *arg)
{
    tsr_status status = run(world, arg);
    if (status != TSR_OK)
        printf("rank %d: %s: %s\n", tsr_world_rank(world), tsr_status_name(status),
               tsr_last_error());
    return status;
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
    options o = {.device = TSR_DEVICE_CPU};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--join")) {
            o.join = true;
        } else if (i + 1 == argc || !set_option(argv[i], argv[i + 1], &o.device)) {
            fprintf(stderr, "usage: rank_skips [--join] [--device cpu|cuda] [--gpu 0,1]\n");
            return 2;
        } else {
            i++;
        }
    }
    return tsr_start_ranks(2, say, &o) == TSR_OK ? 0 : 1;
}
