/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a convnet on MNIST in mixed precision: products in f16 or bf16, weights in f32, and a
 * gradient scaler, as a program with torch.cuda.amp does. One rank alone, or data parallel.
 *
 *     mnist_ddp_amp DATA_FOLDER [-e EPOCHS] [-b BATCH] [--amp f16|bf16|off] [--sync-bn]
 *         [--device cpu|cuda] [--gpu 0,1] [--global] [-n RANKS] [-o FOLDER]
 *     tessera launch -n 2 -- mnist_ddp_amp DATA_FOLDER ...
 *
 * Ranks train as under PyTorch's DDP (tsr_ddp), each its own copy, on CPUs or, with --device cuda,
 * on GPUs, which --gpu chooses. With --global they share one program over global tensors instead.
 * Without a launcher -n starts thread ranks (default 1). BATCH (default 32) counts the rows of all
 * ranks. --sync-bn: batch norm takes its statistics over all of them, not each rank's. Weights and
 * the scaler are saved in FOLDER (default mnist_ddp_amp).
 *
 *     begin training of epoch 1/3
 *     ...
 *     begin testing
 *     Accuracy is 91.55%
 *     time elapsed: 52.3 s
 */
#define _DEFAULT_SOURCE /* setenv, clock_gettime, also under -std=c17 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tessera/tessera.h>

typedef struct options {
    const char *data, *out;
    int epochs, ranks;
    int64_t batch;
    tsr_dtype amp; /* TSR_F32: off */
    bool sync_bn, global;
    tsr_device device;
} options;

typedef struct net {
    const options *o;
    const tsr_placement *place;
    tsr_sbp sbp; /* of the data */
    tsr_module *model;
    tsr_optimizer *optimizer;
    tsr_grad_scaler *scaler;
    tsr_ddp *ddp; /* NULL: one program for all ranks */
} net;

static tsr_status declare(tsr_graph *g, int64_t rows, bool training, void *arg)
{
    const net *n = arg;
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, 1, 28, 28), n->place, n->sbp);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), n->place, n->sbp);
    tsr_autocast(g, n->o->amp);
    tsr_tensor *logits = tsr_apply(n->model, x);
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_autocast_end(g);
    tsr_tensor *right = tsr_cast(tsr_equal(tsr_argmax(logits, 1), y), TSR_F32);
    tsr_output(g, "loss", loss, n->place, TSR_B);
    tsr_output(g, "right", tsr_sum(right, TSR_ALL_AXES, false), n->place, TSR_B);
    const tsr_minimize_opts *how = TSR_MINIMIZE_OPTS(.scaler = n->scaler);
    if (training && n->ddp)
        tsr_ddp_minimize(n->ddp, n->optimizer, 1, &loss, how);
    else if (training)
        tsr_minimize_with(n->optimizer, 1, &loss, how);
    return TSR_OK;
}

/* Passes all batches of a loader through the program; *out_right: the share of labels found. */
static tsr_status pass(tsr_program *program, tsr_loader *loader, bool training, double *out_right)
{
    tsr_plan *plan;
    int64_t rows, all = 0;
    tsr_status status;
    *out_right = 0;
    while ((status = tsr_program_feed(program, loader, training, &plan, &rows)) == TSR_OK) {
        double right;
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch_scalar(plan, "right", &right));
        *out_right += right;
        all += rows;
    }
    *out_right /= (double)all;
    return status == TSR_END ? TSR_OK : status;
}

static tsr_status make_net(tsr_world *w, net *n)
{
    const bool ddp = tsr_world_size(w) > 1 && !n->o->global;
    n->place = ddp ? tsr_local_placement_on(w, n->o->device)
                   : tsr_placement_parse(w, tsr_device_name(n->o->device));
    n->sbp = ddp ? TSR_B : TSR_S(0);
    n->model =
        tsr_convnet(w, n->place, TSR_B,
                    TSR_CONVNET_OPTS(.bn = ddp || n->o->sync_bn ? TSR_BN_GLOBAL : TSR_BN_LOCAL));
    n->optimizer = tsr_sgd(n->model, TSR_SGD_OPTS(.lr = 1e-4));
    n->scaler = tsr_grad_scaler_create(w, TSR_GRAD_SCALER_OPTS(.enabled = n->o->amp == TSR_F16));
    if (ddp && n->o->sync_bn)
        TSR_TRY(tsr_convert_sync_batchnorm(n->model, tsr_world_group(w)));
    return ddp ? tsr_ddp_create(n->model, NULL, &n->ddp) : TSR_OK;
}

static tsr_status open_loader(tsr_world *w, const net *n, bool train, tsr_loader **out)
{
    const int64_t ranks = tsr_world_size(w);
    tsr_dataset *images;
    TSR_TRY(tsr_mnist_open(w, n->o->data, train, &images));
    return tsr_loader_create(
        w, images,
        TSR_LOADER_OPTS(.batch_size = train ? n->o->batch : 1000 / ranks * ranks, .shuffle = train,
                        .local = n->ddp != NULL),
        out);
}

static tsr_status save(tsr_world *w, const net *n, int epochs)
{
    tsr_checkpoint *c;
    TSR_TRY(tsr_checkpoint_create(w, n->o->out, NULL, &c));
    TSR_TRY(tsr_checkpoint_add_module(c, "model", n->model));
    TSR_TRY(tsr_checkpoint_add_grad_scaler(c, "scaler", n->scaler));
    return tsr_checkpoint_save(c, epochs, NAN);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    net n = {.o = arg};
    const bool speaks = tsr_world_rank(w) == 0;
    const double start = now();
    tsr_loader *train, *test;
    tsr_program *program;
    double right;
    TSR_TRY(make_net(w, &n));
    TSR_TRY(open_loader(w, &n, true, &train));
    TSR_TRY(open_loader(w, &n, false, &test));
    TSR_TRY(tsr_program_create(w, declare, &n, TSR_PROGRAM_OPTS(.local = n.ddp != NULL), &program));
    for (int epoch = 0; epoch < n.o->epochs; epoch++) {
        if (speaks)
            printf("begin training of epoch %d/%d\n", epoch + 1, n.o->epochs);
        TSR_TRY(pass(program, train, true, &right));
    }
    if (speaks)
        printf("begin testing\n");
    TSR_TRY(pass(program, test, false, &right));
    if (n.ddp) /* each rank has counted its own */
        TSR_TRY(tsr_all_reduce(tsr_world_group(w), &right, 1, TSR_F64, TSR_REDUCE_SUM));
    if (speaks)
        printf("Accuracy is %.2f%%\ntime elapsed: %.1f s\n", 100 * right, now() - start);
    TSR_TRY(save(w, &n, n.o->epochs));
    return n.ddp ? tsr_ddp_close(&n.ddp) : TSR_OK;
}

static int usage(void)
{
    fprintf(stderr, "usage: mnist_ddp_amp DATA_FOLDER [-e EPOCHS] [-b BATCH] [--amp f16|bf16|off] "
                    "[--sync-bn] [--device cpu|cuda] [--gpu 0,1] [--global] [-n RANKS] "
                    "[-o FOLDER]\n");
    return 2;
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
    options o = {.out = "mnist_ddp_amp",
                 .epochs = 3,
                 .ranks = 1,
                 .batch = 32,
                 .amp = TSR_F16,
                 .device = TSR_DEVICE_CPU};
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (!strcmp(argv[i], "--sync-bn"))
            o.sync_bn = true;
        else if (!strcmp(argv[i], "--global"))
            o.global = true;
        else if (has_value && set_option(argv[i], argv[i + 1], &o.device))
            i++;
        else if (!strcmp(argv[i], "-o") && has_value)
            o.out = argv[++i];
        else if (!strcmp(argv[i], "-e") && has_value)
            o.epochs = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-n") && has_value)
            o.ranks = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-b") && has_value)
            o.batch = atoll(argv[++i]);
        else if (!strcmp(argv[i], "--amp") && has_value) {
            const char *word = argv[++i];
            o.amp = !strcmp(word, "f16") ? TSR_F16 : !strcmp(word, "bf16") ? TSR_BF16 : TSR_F32;
            if (o.amp == TSR_F32 && strcmp(word, "off") != 0)
                return usage();
        } else if (argv[i][0] != '-' && !o.data)
            o.data = argv[i];
        else
            return usage();
    }
    if (!o.data || o.epochs < 1 || o.ranks < 1 || o.batch < 1)
        return usage();
    if (tsr_start_ranks(o.ranks, rank, &o) == TSR_OK)
        return 0;
    fprintf(stderr, "mnist_ddp_amp: %s\n", tsr_last_error());
    return 1;
}
