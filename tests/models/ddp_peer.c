/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of ddp_parity.py: trains a model under tsr_ddp on inputs from files, and writes
 * each rank's losses, first averaged gradients and final state. Under `tessera launch`.
 */
#include <getopt.h>
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

typedef struct options {
    const char *model, *dtype, *optimizer, *init, *data, *out, *join, *hook, *steps;
    long batch, accumulate, unused_from;
    double lr, momentum, weight_decay, bucket_mb;
    bool find_unused, static_graph, no_buffers;
} options;

static const struct option longs[] = {
    {"model", required_argument, NULL, 'm'},        {"dtype", required_argument, NULL, 't'},
    {"optimizer", required_argument, NULL, 'o'},    {"init", required_argument, NULL, 'i'},
    {"data", required_argument, NULL, 'd'},         {"out", required_argument, NULL, 'O'},
    {"join", required_argument, NULL, 'j'},         {"hook", required_argument, NULL, 'h'},
    {"steps", required_argument, NULL, 's'},        {"batch", required_argument, NULL, 'b'},
    {"accumulate", required_argument, NULL, 'a'},   {"unused-from", required_argument, NULL, 'u'},
    {"lr", required_argument, NULL, 'l'},           {"momentum", required_argument, NULL, 'M'},
    {"bucket-mb", required_argument, NULL, 'B'},    {"find-unused", no_argument, NULL, 'f'},
    {"static-graph", no_argument, NULL, 'S'},       {"no-buffers", no_argument, NULL, 'n'},
    {"weight-decay", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0},
};

static bool read_options(int argc, char **argv, options *o)
{
    *o = (options){.model = "mlp",
                   .dtype = "f64",
                   .optimizer = "sgd",
                   .steps = "5",
                   .batch = 8,
                   .accumulate = 1,
                   .lr = 1e-3,
                   .bucket_mb = 25,
                   .hook = "none",
                   .unused_from = -1};
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case 'm':
            o->model = optarg;
            break;
        case 't':
            o->dtype = optarg;
            break;
        case 'o':
            o->optimizer = optarg;
            break;
        case 'i':
            o->init = optarg;
            break;
        case 'd':
            o->data = optarg;
            break;
        case 'O':
            o->out = optarg;
            break;
        case 'j':
            o->join = optarg;
            break;
        case 'h':
            o->hook = optarg;
            break;
        case 's':
            o->steps = optarg;
            break;
        case 'b':
            o->batch = strtol(optarg, NULL, 10);
            break;
        case 'a':
            o->accumulate = strtol(optarg, NULL, 10);
            break;
        case 'u':
            o->unused_from = strtol(optarg, NULL, 10);
            break;
        case 'l':
            o->lr = strtod(optarg, NULL);
            break;
        case 'M':
            o->momentum = strtod(optarg, NULL);
            break;
        case 'w':
            o->weight_decay = strtod(optarg, NULL);
            break;
        case 'B':
            o->bucket_mb = strtod(optarg, NULL);
            break;
        case 'f':
            o->find_unused = true;
            break;
        case 'S':
            o->static_graph = true;
            break;
        case 'n':
            o->no_buffers = true;
            break;
        default:
            return false;
        }
    }
    return o->data && o->out;
}

/* The rank's number of steps: "3,2" gives rank 1 two. */
static long steps_of(const char *text, int rank)
{
    for (; rank > 0 && strchr(text, ','); rank--)
        text = strchr(text, ',') + 1;
    return strtol(text, NULL, 10);
}

/* Two linear layers "a" and "b", of which some ranks leave "b" out. */
static tsr_tensor *forward_half(tsr_module *m, tsr_tensor *x, void *arg)
{
    const bool *skips = arg;
    tsr_tensor *y = tsr_apply(tsr_module_child(m, "a"), tsr_flatten(x, 1));
    return *skips ? y : tsr_add(y, tsr_apply(tsr_module_child(m, "b"), tsr_flatten(x, 1)));
}

static tsr_module *make_model(tsr_world *w, const options *o, bool *skips)
{
    const tsr_placement *here = tsr_local_placement(w);
    tsr_dtype dtype = tsr_dtype_parse(o->dtype);
    if (!strcmp(o->model, "mobilenet_v2"))
        return tsr_mobilenet_v2(
            w, here, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = 10, .dropout = 0, .dtype = dtype));
    if (!strcmp(o->model, "mlp"))
        return tsr_mlp(w, here, TSR_B, TSR_MLP_OPTS(.inputs = 3072, .outputs = 10, .dtype = dtype));
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .dtype = dtype};
    tsr_module *m = tsr_module_create(w, &nn, forward_half, skips, NULL);
    tsr_module_add(m, "a", tsr_nn_linear(w, &nn, 3072, 10, true));
    tsr_module_add(m, "b", tsr_nn_linear(w, &nn, 3072, 10, true));
    return m;
}

static tsr_status write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        return tsr_set_error(TSR_ERR_IO, "can't write %s", path);
    return TSR_OK;
}

static tsr_status read_part(FILE *f, const char *path, void *to, size_t bytes)
{
    return fread(to, 1, bytes, f) == bytes ? TSR_OK
                                           : tsr_set_error(TSR_ERR_IO, "%s is too short", path);
}

typedef struct writer {
    tsr_ddp *ddp;
    FILE *f;
} writer;

/* "name bytes\n", then the gradient. */
static tsr_status write_gradient(tsr_variable *v, const char *name, void *arg)
{
    writer *w = arg;
    bool there;
    const void *data = tsr_ddp_gradient(w->ddp, v, &there);
    if (!data || !there)
        return TSR_OK;
    size_t bytes =
        (size_t)tsr_dims_count(tsr_variable_dims(v)) * tsr_dtype_size(tsr_variable_dtype(v));
    fprintf(w->f, "%s %zu\n", name, bytes);
    return fwrite(data, 1, bytes, w->f) == bytes ? TSR_OK
                                                 : tsr_set_error(TSR_ERR_IO, "can't write");
}

static tsr_status train(tsr_world *world, const options *o)
{
    int rank = tsr_world_rank(world);
    bool skips = o->unused_from >= 0 && rank >= o->unused_from;
    const tsr_placement *here = tsr_local_placement(world);
    tsr_dtype dtype = tsr_dtype_parse(o->dtype);
    tsr_module *net = make_model(world, o, &skips);
    TRY(tsr_module_set_local(net));
    /* The others take over rank 0's. */
    if (o->init && rank == 0)
        TRY(tsr_load(net, o->init, NULL));
    tsr_ddp *ddp;
    tsr_ddp_hook hook = !strcmp(o->hook, "fp16")   ? TSR_DDP_FP16_COMPRESS
                        : !strcmp(o->hook, "bf16") ? TSR_DDP_BF16_COMPRESS
                                                   : TSR_DDP_ALL_REDUCE;
    TRY(tsr_ddp_create(net,
                       TSR_DDP_OPTS(.bucket_cap_mb = o->bucket_mb, .hook = hook,
                                    .find_unused_parameters = o->find_unused,
                                    .static_graph = o->static_graph,
                                    .broadcast_buffers = !o->no_buffers),
                       &ddp));
    tsr_optimizer *opt =
        !strcmp(o->optimizer, "adam")
            ? tsr_adam(net, TSR_ADAM_OPTS(.lr = o->lr, .weight_decay = o->weight_decay))
            : tsr_sgd(net, TSR_SGD_OPTS(.lr = o->lr, .momentum = o->momentum,
                                        .weight_decay = o->weight_decay));

    tsr_graph *g = tsr_graph_create(world, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", dtype, TSR_DIMS(o->batch, 3, 32, 32), here, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(o->batch), here, TSR_B);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_output(g, "loss", loss, here, TSR_B);
    tsr_ddp_backward(ddp, loss);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));

    char path[1024], losses[8192] = "";
    size_t used = 0, x_bytes = (size_t)o->batch * 3072 * tsr_dtype_size(dtype);
    size_t y_bytes = (size_t)o->batch * sizeof(int64_t);
    char *buf = malloc(x_bytes + y_bytes);
    snprintf(path, sizeof path, "%s.%d.bin", o->data, rank);
    FILE *in = fopen(path, "rb");
    if (!in || !buf)
        return tsr_set_error(TSR_ERR_IO, "can't read %s", path);
    if (o->join)
        TRY(tsr_ddp_join_begin(
            ddp, TSR_DDP_JOIN_OPTS(.divide_by_active = !strcmp(o->join, "active"),
                                   .throw_on_early_termination = !strcmp(o->join, "throw"))));
    long steps = steps_of(o->steps, rank);
    bool dumped = false;
    for (long i = 0; i < steps; i++) {
        bool syncs = (i + 1) % o->accumulate == 0;
        TRY(read_part(in, path, buf, x_bytes + y_bytes));
        TRY(tsr_feed(plan, "x", buf, x_bytes));
        TRY(tsr_feed(plan, "y", buf + x_bytes, y_bytes));
        tsr_ddp_no_sync(ddp, !syncs);
        TRY(tsr_ddp_run(ddp, plan));
        double value;
        TRY(tsr_fetch_scalar(plan, "loss", &value));
        used += (size_t)snprintf(losses + used, sizeof losses - used, "%.17g\n", value);
        if (!syncs)
            continue;
        if (!dumped) {
            snprintf(path, sizeof path, "%s.%d.grad", o->out, rank);
            writer w = {ddp, fopen(path, "wb")};
            TRY(w.f ? tsr_module_visit(net, write_gradient, &w) : TSR_ERR_IO);
            fclose(w.f);
            dumped = true;
        }
        TRY(tsr_ddp_step(ddp, opt));
    }
    fclose(in);
    free(buf);
    if (o->join)
        TRY(tsr_ddp_join(ddp));
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_get_info(ddp, &info));
    TRY(tsr_ddp_close(&ddp));
    snprintf(path, sizeof path, "%s.%d.losses", o->out, rank);
    TRY(write_text(path, losses));
    snprintf(path, sizeof path, "%s.%d.safetensors", o->out, rank);
    printf("rank %d: %d buckets, %zu bytes of gradients, %lld unused\n", rank, info.nbuckets,
           info.gradient_bytes, (long long)info.unused);
    return tsr_save(net, path);
}

int main(int argc, char **argv)
{
    options o;
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr,
                "usage: ddp_peer --data PREFIX --out PREFIX [options]: see ddp_parity.py\n");
        return 2;
    }
    tsr_world *world = NULL;
    tsr_status status = tsr_world_create(NULL, &world);
    if (status == TSR_OK)
        status = train(world, &o);
    if (status != TSR_OK)
        fprintf(stderr, "ddp_peer: %s: %s\n", tsr_status_name(status), tsr_last_error());
    tsr_world_destroy(world);
    return status == TSR_OK ? 0 : 1;
}
