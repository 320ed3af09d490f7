/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer over DDP, in the shape that PyTorch's tutorial gives it: a data set, a distributed
 * sampler, a loader, a model, an optimizer. 2,048 random samples of 20 features, a linear layer
 * 20 -> 1, batches of 32 a rank.
 *
 *     tessera launch -n 4 ddp_trainer [EPOCHS] [--device cpu|cuda] [--gpu 0,1]
 *
 * Alone, it starts four thread ranks. With --device cuda each rank trains on a GPU of its own;
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

enum { SAMPLES = 2048, FEATURES = 20, BATCH = 32 };

typedef struct options {
    tsr_device device;
    int epochs;
} options;

/* --- the data set: the same random numbers on every rank -------------------------------------- */
typedef struct random_set {
    float x[SAMPLES][FEATURES], y[SAMPLES];
} random_set;

static int64_t set_length(void *arg)
{
    (void)arg;
    return SAMPLES;
}

static tsr_status set_get(void *arg, int64_t index, void *const *out, const tsr_worker *worker)
{
    const random_set *set = arg;
    float *x = out[0], *y = out[1];
    (void)worker;
    for (int i = 0; i < FEATURES; i++)
        x[i] = set->x[index][i];
    *y = set->y[index];
    return TSR_OK;
}

static tsr_status make_set(random_set *set)
{
    tsr_generator *g;
    TRY(tsr_generator_create(NULL, 0, &g));
    tsr_status status = tsr_generator_rand(g, TSR_F32, (int64_t)SAMPLES * FEATURES, set->x);
    if (status == TSR_OK)
        status = tsr_generator_rand(g, TSR_F32, SAMPLES, set->y);
    tsr_generator_destroy(g);
    return status;
}

/* --- the trainer ------------------------------------------------------------------------------ */
typedef struct trainer {
    tsr_world *world;
    const options *o;
    const tsr_placement *here; /* this rank alone, on its CPU or GPU */
    tsr_loader *loader;
    tsr_ddp *ddp;
    tsr_optimizer *sgd;
    tsr_plan *plan;
} trainer;

static tsr_status make_plan(trainer *t, tsr_module *model)
{
    const tsr_placement *here = t->here;
    tsr_graph *g = tsr_graph_create(t->world, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(BATCH, FEATURES), here, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_F32, TSR_DIMS(BATCH, 1), here, TSR_B);
    tsr_tensor *loss = tsr_mse_loss(tsr_apply(model, x), y, TSR_MEAN);
    tsr_output(g, "loss", loss, here, TSR_B);
    tsr_ddp_backward(t->ddp, loss);
    return tsr_compile(g, &t->plan);
}

static tsr_status train_batch(trainer *t, const tsr_batch *b)
{
    TRY(tsr_feed(t->plan, "x", b->data[0], b->bytes[0]));
    TRY(tsr_feed(t->plan, "y", b->data[1], b->bytes[1]));
    TRY(tsr_ddp_run(t->ddp, t->plan));
    return tsr_ddp_step(t->ddp, t->sgd);
}

static tsr_status train_epoch(trainer *t, int epoch)
{
    TRY(tsr_loader_set_epoch(t->loader, epoch));
    printf("[%s: %d Epoch: %d, Batch size: %d | Steps %lld]\n",
           t->o->device == TSR_DEVICE_CUDA ? "GPU" : "CPU", tsr_world_rank(t->world), epoch, BATCH,
           (long long)tsr_loader_batches(t->loader));
    const tsr_batch *batch;
    tsr_status status;
    while ((status = tsr_loader_next(t->loader, &batch)) == TSR_OK)
        TRY(train_batch(t, batch));
    return status == TSR_END ? TSR_OK : status;
}

static tsr_status train(trainer *t, random_set *set)
{
    t->here = tsr_local_placement_on(t->world, t->o->device);
    const tsr_nn_opts nn = {.placement = t->here, .sbp = TSR_B};
    tsr_module *model = tsr_nn_linear(t->world, &nn, FEATURES, 1, true);
    tsr_sampler *sampler;
    TRY(make_set(set));
    TRY(tsr_distributed_sampler(t->world, SAMPLES, NULL, &sampler));
    TRY(tsr_map_loader_create(
        t->world, TSR_MAP_DATASET(.len = set_length, .get = set_get, .arg = set),
        TSR_MAP_LOADER_OPTS(.batch_size = BATCH, .sampler = sampler, .nfields = 2,
                            .field_bytes = {FEATURES * sizeof(float), sizeof(float)},
                            .num_workers = 2),
        &t->loader));
    TRY(tsr_ddp_create(model, NULL, &t->ddp));
    t->sgd = tsr_sgd(model, TSR_SGD_OPTS(.lr = 1e-3));
    TRY(make_plan(t, model));
    for (int epoch = 0; epoch < t->o->epochs; epoch++)
        TRY(train_epoch(t, epoch));
    double loss;
    TRY(tsr_fetch_scalar(t->plan, "loss", &loss));
    TRY(tsr_all_reduce(tsr_world_group(t->world), &loss, 1, TSR_F64, TSR_REDUCE_AVG));
    if (tsr_world_rank(t->world) == 0)
        printf("mean loss of the last batches: %.4f\n", loss);
    return tsr_ddp_close(&t->ddp);
}

static tsr_status run(tsr_world *world, void *arg)
{
    trainer t = {.world = world, .o = arg};
    random_set *set = malloc(sizeof *set);
    if (!set)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "no memory for %d samples", SAMPLES);
    tsr_status status = train(&t, set);
    tsr_loader_destroy(t.loader); /* its workers read the set */
    free(set);
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
    options o = {.device = TSR_DEVICE_CPU, .epochs = 2};
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && set_option(argv[i], argv[i + 1], &o.device)) {
            i++;
        } else if ((o.epochs = atoi(argv[i])) < 1) {
            fprintf(stderr, "usage: ddp_trainer [EPOCHS] [--device cpu|cuda] [--gpu 0,1]\n");
            return 2;
        }
    }
    if (tsr_start_ranks(4, run, &o) == TSR_OK)
        return 0;
    fprintf(stderr, "ddp_trainer: %s\n", tsr_last_error());
    return 1;
}
