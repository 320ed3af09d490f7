/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of architectures.py: models of models.h, trained in f64.
 *
 * usage: arch_peer MODEL RANKS LAYOUT BATCH DROPOUT DIR
 *        arch_peer counts
 *
 * LAYOUT is a word of the table of layouts. Writes the initial weights to DIR/first.safetensors and
 * those after 5 steps of SGD to DIR/last.safetensors; prints a loss a line.
 * counts: prints the number of parameters of models of their usual sizes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

enum { STEPS = 5, MOST = 1 << 15 };

typedef struct job {
    const char *model, *layout, *dir;
    int batch;
    double dropout;
} job;

/* A parameter's signature: along the last dimension of the placement's hierarchy, or all of it. */
typedef struct place {
    const char *pattern;
    int axis;
} place;

typedef struct model {
    const char *name;
    tsr_module *(*make)(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, double dropout);
    int classes;
    int dims[3];      /* of a row of the input: an image, or the length of a sequence and zeros */
    place tensor[8];  /* signatures of tensor parallelism */
    place tensor2[4]; /* others, which come on top of those */
} model;

static tsr_module *make_resnet(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, double dropout)
{
    (void)dropout;
    return tsr_resnet18(
        w, p, sbp, TSR_RESNET18_OPTS(.num_classes = 5, .width = 6, .dtype = TSR_F64, .seed = 1));
}

static tsr_module *make_resnet_cifar(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                                     double dropout)
{
    (void)dropout;
    return tsr_resnet18(w, p, sbp,
                        TSR_RESNET18_OPTS(.num_classes = 5, .width = 4, .variant = TSR_RESNET_CIFAR,
                                          .dtype = TSR_F64, .seed = 2));
}

static tsr_module *make_lenet(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, double dropout)
{
    (void)dropout;
    return tsr_lenet(w, p, sbp, TSR_LENET_OPTS(.dtype = TSR_F64, .seed = 3));
}

static tsr_module *make_lenet32(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, double dropout)
{
    (void)dropout;
    return tsr_lenet(w, p, sbp,
                     TSR_LENET_OPTS(.num_classes = 7, .channels = 3, .height = 32, .width = 32,
                                    .dtype = TSR_F64, .seed = 4));
}

static tsr_module *make_gpt(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, double dropout)
{
    return tsr_gpt(w, p, sbp,
                   TSR_GPT_OPTS(.vocab = 41, .positions = 9, .width = 24, .heads = 4, .layers = 2,
                                .dropout = dropout, .dtype = TSR_F64, .seed = 5));
}

static tsr_module *make_lstm_lm(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, double dropout)
{
    return tsr_lstm_lm(w, p, sbp,
                       TSR_LSTM_LM_OPTS(.vocab = 29, .width = 10, .hidden = 11, .layers = 2,
                                        .dropout = dropout, .dtype = TSR_F64, .seed = 6));
}

static const model models[] = {
    {.name = "resnet",
     .make = make_resnet,
     .classes = 5,
     .dims = {3, 33, 32},
     .tensor = {{"*.conv1.weight", 0}, {"*.bn1.*", 0}, {"*.conv2.weight", 1}},
     .tensor2 = {{"conv1.weight", 0}, {"bn1.*", 0}, {"fc.*", 0}}},
    {.name = "resnet_cifar",
     .make = make_resnet_cifar,
     .classes = 5,
     .dims = {3, 12, 12},
     .tensor = {{"*.conv1.weight", 0}, {"*.bn1.*", 0}, {"*.conv2.weight", 1}},
     .tensor2 = {{"conv1.weight", 0}, {"bn1.*", 0}, {"fc.weight", 1}}},
    {.name = "lenet",
     .make = make_lenet,
     .classes = 10,
     .dims = {1, 28, 28},
     .tensor = {{"conv1.*", 0}, {"conv2.weight", 1}, {"fc1.*", 0}, {"fc2.weight", 1}},
     .tensor2 = {{"fc3.*", 0}}},
    {.name = "lenet32",
     .make = make_lenet32,
     .classes = 7,
     .dims = {3, 32, 32},
     .tensor = {{"conv1.*", 0}, {"conv2.weight", 1}, {"fc1.*", 0}, {"fc2.weight", 1}},
     .tensor2 = {{"conv2.*", 0}, {"fc3.weight", 1}}},
    {.name = "gpt",
     .make = make_gpt,
     .classes = 41,
     .dims = {7},
     .tensor = {{"*.mlp.c_fc.weight", 1},
                {"*.mlp.c_fc.bias", 0},
                {"*.c_proj.weight", 0},
                {"*.c_attn.weight", 2},
                {"*.c_attn.bias", 1}},
     .tensor2 = {{"wte.weight", 0}, {"*.c_attn.weight", 0}, {"*.c_attn.bias", 0}}},
    {.name = "lstm_lm",
     .make = make_lstm_lm,
     .classes = 29,
     .dims = {6},
     .tensor = {{"embedding.weight", 1}, {"lstm.*", 0}, {"head.*", 0}},
     .tensor2 = {{"embedding.weight", 0}, {"lstm.weight_*", 1}}},
};

/* --- layouts ---------------------------------------------------------------------------------- */
typedef struct layout {
    const char *name;
    bool grid;   /* ranks in two rows: the batch by rows, parameters by columns */
    bool splits; /* the batch is split */
    bool shards; /* parameters are, along their first axis */
    int tensor;  /* how many of a model's tables of signatures are used */
} layout;

static const layout layouts[] = {
    {.name = "data", .splits = true},
    {.name = "sharded", .splits = true, .shards = true},
    {.name = "tensor", .tensor = 1},
    {.name = "tensor2", .tensor = 2},
    {.name = "grid", .grid = true, .splits = true, .tensor = 1},
};

static tsr_status place_all(tsr_module *net, const layout *l, const place *places, int n)
{
    for (int i = 0; i < n && places[i].pattern; i++) {
        tsr_sbp sbp = TSR_S(places[i].axis);
        if (l->grid)
            sbp = TSR_ND(TSR_B, sbp);
        TSR_TRY(tsr_module_place(net, places[i].pattern, NULL, sbp));
    }
    return TSR_OK;
}

static tsr_status place_parameters(tsr_module *net, const layout *l, const model *m)
{
    if (l->tensor > 0)
        TSR_TRY(place_all(net, l, m->tensor, 8));
    if (l->tensor > 1)
        TSR_TRY(place_all(net, l, m->tensor2, 4));
    return TSR_OK;
}

/* --- running ---------------------------------------------------------------------------------- */
typedef struct bench {
    const job *j;
    const model *m;
    const layout *l;
    tsr_module *net;
    tsr_plan *plan;
    int row;    /* elements of a row of the input */
    int labels; /* a row's */
} bench;

static tsr_status compile(bench *b, tsr_world *w, const tsr_placement *p)
{
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_sbp data = b->l->splits ? TSR_S(0) : TSR_B;
    if (b->l->grid)
        data = TSR_ND(data, TSR_B);
    const int *d = b->m->dims;
    const bool words = d[1] == 0;
    b->row = words ? d[0] : d[0] * d[1] * d[2];
    b->labels = words ? d[0] : 1;
    tsr_tensor *x =
        words ? tsr_input(g, "x", TSR_I64, TSR_DIMS(b->j->batch, d[0]), p, data)
              : tsr_input(g, "x", TSR_F64, TSR_DIMS(b->j->batch, d[0], d[1], d[2]), p, data);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(b->j->batch * b->labels), p, TSR_AUTO);
    tsr_tensor *logits = tsr_reshape(tsr_apply(b->net, x), TSR_DIMS(-1, b->m->classes));
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_minimize(tsr_sgd(b->net, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9)), loss);
    tsr_output(g, "loss", loss, p, b->l->grid ? TSR_ND(TSR_B, TSR_B) : TSR_B);
    /* Figures by which it pays to split even these few elements. */
    const tsr_compile_opts *slow = TSR_COMPILE_OPTS(.nlinks = 1, .link = {{0, 1e-9, 1e12}},
                                                    .flops_per_s = 1e4, .local_bytes_per_s = 1e5);
    return tsr_compile_with(g, slow, &b->plan);
}

static tsr_status feed(const bench *b, int step)
{
    static _Thread_local double x[MOST];
    static _Thread_local int64_t ids[MOST];
    const int n = b->j->batch * b->row, labels = b->j->batch * b->labels;
    if (n > MOST)
        return tsr_set_error(TSR_ERR_INVALID, "%d elements", n);
    for (int i = 0; i < n; i++) {
        x[i] = (double)((i * 7919 + step * 3571) % 10007) / 4096 - 1.25; /* exact */
        ids[i] = (i * 13 + step * 5) % b->m->classes;
    }
    if (b->m->dims[1])
        TSR_TRY(tsr_feed(b->plan, "x", x, (size_t)n * sizeof *x));
    else
        TSR_TRY(tsr_feed(b->plan, "x", ids, (size_t)n * sizeof *ids));
    for (int i = 0; i < labels; i++)
        ids[i] = (i * 3 + step) % b->m->classes;
    return tsr_feed(b->plan, "y", ids, (size_t)labels * sizeof *ids);
}

static tsr_status save(const bench *b, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.safetensors", b->j->dir, name);
    return tsr_save(b->net, path);
}

static tsr_status rank(tsr_world *w, void *arg)
{
    bench b = {.j = arg};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (!strcmp(models[i].name, b.j->model))
            b.m = &models[i];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (!strcmp(layouts[i].name, b.j->layout))
            b.l = &layouts[i];
    if (!b.m || !b.l)
        return tsr_set_error(TSR_ERR_INVALID, "no such %s", b.m ? "layout" : "model");
    const tsr_placement *p = tsr_placement_parse(w, b.l->grid ? "cpu:[[0,1],[2,3]]" : "cpu");
    tsr_sbp sbp = b.l->grid ? TSR_ND(TSR_B, TSR_B) : b.l->shards ? TSR_S(0) : TSR_B;
    b.net = b.m->make(w, p, sbp, b.j->dropout);
    if (!b.net)
        return TSR_ERR_INVALID;
    TSR_TRY(place_parameters(b.net, b.l, b.m));
    TSR_TRY(compile(&b, w, p));
    TSR_TRY(save(&b, "first"));
    for (int step = 0; step < STEPS; step++) {
        double loss;
        TSR_TRY(feed(&b, step));
        TSR_TRY(tsr_run(b.plan));
        TSR_TRY(tsr_fetch_scalar(b.plan, "loss", &loss));
        if (tsr_world_rank(w) == 0)
            printf("%.17g\n", loss);
    }
    return save(&b, "last");
}

static int print_counts(void)
{
    tsr_world *w;
    if (tsr_world_create_virtual(1, 0, &w) != TSR_OK)
        return 1;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *const nets[] = {
        tsr_resnet18(w, p, TSR_B, NULL), tsr_gpt(w, p, TSR_B, TSR_GPT_OPTS(.vocab = 50257)),
        tsr_lenet(w, p, TSR_B, TSR_LENET_OPTS(.channels = 3, .height = 32, .width = 32)),
        tsr_lstm_lm(w, p, TSR_B, NULL)};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        printf("%lld\n", (long long)tsr_module_count(nets[i]));
    tsr_world_destroy(w);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "counts"))
        return print_counts();
    if (argc != 7) {
        fprintf(stderr, "usage: arch_peer MODEL RANKS LAYOUT BATCH DROPOUT DIR\n");
        return 2;
    }
    job j = {.model = argv[1],
             .layout = argv[3],
             .dir = argv[6],
             .batch = atoi(argv[4]),
             .dropout = atof(argv[5])};
    if (tsr_spawn(atoi(argv[2]), rank, &j) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
