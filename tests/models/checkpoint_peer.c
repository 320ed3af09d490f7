/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of checkpoints.py: a training run in f64 that saves as it goes and goes on from
 * the newest checkpoint: masks, an order that is drawn, gradients over two runs, a group, a buffer
 * of an own average. usage: checkpoint_peer KEY=VALUE...
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <tessera/tessera.h>

typedef struct job {
    const char *folder, *last, *from; /* from: a checkpoint to begin with; "": the newest */
    const char *mode;                 /* sync, async, one */
    const char *placement, *param, *state, *data;
    const char *optimizer;
    int ranks, steps, every, keep, warn, pause_us, eval;
    int ddp;  /* under tsr_ddp, with the rows divided among the ranks */
    int room; /* the most bytes of a file; 0: any */
} job;

enum { ROWS = 16, SAMPLES = 80, CLASSES = 5 };

typedef struct run {
    const job *j;
    tsr_world *w;
    tsr_module *net;
    tsr_variable *average;
    tsr_optimizer *opt;
    tsr_loader *loader;
    tsr_plan *plan, *averaging; /* of tsr_ddp: what follows an update */
    int64_t at;
    double best[2];
} run;

static tsr_sbp sbp(const char *text)
{
    tsr_sbp s = TSR_AUTO;
    if (*text && tsr_sbp_parse(text, &s) != TSR_OK)
        fprintf(stderr, "%s\n", tsr_last_error());
    return s;
}

static tsr_optimizer *make_optimizer(const run *r)
{
    const char *name = r->j->optimizer;
    const tsr_sbp state = sbp(r->j->state);
    if (!strcmp(name, "sgd"))
        return tsr_sgd(r->net, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .state = state));
    if (!strcmp(name, "lamb"))
        return tsr_lamb(r->net, TSR_ADAM_OPTS(.lr = 0.02, .state = state));
    if (!strcmp(name, "rmsprop"))
        return tsr_rmsprop(r->net, TSR_RMSPROP_OPTS(.lr = 0.003, .momentum = 0.5, .centered = true,
                                                    .state = state));
    return tsr_adamw(r->net, TSR_ADAM_OPTS(.lr = 0.01, .weight_decay = 0.1,
                                           .schedule = TSR_COSINE_LR(.warmup = 3, .steps = 40),
                                           .state = state));
}

/* An average of the head's bias behind each step. */
static void add_average(run *r, tsr_graph *g)
{
    tsr_variable *bias = tsr_module_find(r->net, "2.bias");
    tsr_tensor *old = tsr_read(g, r->average);
    tsr_tensor *now = r->j->ddp ? tsr_read(g, bias) : tsr_read_updated(g, bias);
    tsr_assign(r->average, tsr_add(tsr_mul_scalar(old, 0.75), tsr_mul_scalar(now, 0.25)));
}

static tsr_status declare(run *r)
{
    const job *j = r->j;
    const tsr_placement *p =
        j->ddp ? tsr_local_placement(r->w) : tsr_placement_parse(r->w, j->placement);
    const int rows = j->ddp ? ROWS / tsr_world_size(r->w) : ROWS;
    const tsr_nn_opts nn = {.placement = p, .sbp = sbp(j->param), .dtype = TSR_F64, .seed = 3};
    r->net = tsr_nn_sequential(r->w, &nn);
    tsr_module_add(r->net, "0", tsr_nn_linear(r->w, &nn, 12, 10, true));
    tsr_module_add(r->net, "1", tsr_nn_dropout(r->w, &nn, 0.25));
    tsr_module_add(r->net, "2", tsr_nn_linear(r->w, &nn, 10, CLASSES, true));
    r->average = tsr_module_buffer(r->net, "average", TSR_DIMS(CLASSES), TSR_AUTO,
                                   (tsr_init){TSR_INIT_ZEROS});
    const uint64_t seed = 9 + (j->ddp ? (uint64_t)tsr_world_rank(r->w) : 0);
    const tsr_graph_opts opts =
        *TSR_GRAPH_OPTS(.training = true, .seed = seed, .local = j->ddp != 0);
    tsr_graph *g = tsr_graph_create(r->w, &opts);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, 1, 3, 4), p, sbp(j->data));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, sbp(j->data));
    tsr_tensor *h = tsr_relu(tsr_apply(tsr_module_child(r->net, "0"), tsr_flatten(x, 1)));
    h = tsr_apply(tsr_module_child(r->net, "1"), h);
    tsr_tensor *logits = tsr_apply(tsr_module_child(r->net, "2"), h);
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    r->opt = make_optimizer(r);
    TSR_TRY(tsr_optimizer_param_group(r->opt, "*.bias", TSR_PARAM_GROUP_OPTS(.lr = 0.02)));
    const tsr_minimize_opts how = *TSR_MINIMIZE_OPTS(.clip_norm = 1, .accumulate = 2);
    tsr_output(g, "loss", loss, j->ddp ? p : tsr_placement_parse(r->w, "cpu"), TSR_B);
    if (!j->ddp) {
        tsr_minimize_with(r->opt, 1, &loss, &how);
        add_average(r, g);
        return tsr_compile(g, &r->plan);
    }
    tsr_ddp *ddp;
    TSR_TRY(tsr_ddp_create(r->net, NULL, &ddp));
    tsr_ddp_minimize(ddp, r->opt, 1, &loss, &how);
    TSR_TRY(tsr_compile(g, &r->plan));
    g = tsr_graph_create(r->w, &opts);
    add_average(r, g);
    return tsr_compile(g, &r->averaging);
}

static tsr_status open_data(run *r)
{
    tsr_dataset *set;
    TSR_TRY(tsr_synthetic_open(r->w, 1, 3, 4, CLASSES, SAMPLES, 5, &set));
    return tsr_loader_create(
        r->w, set,
        TSR_LOADER_OPTS(.batch_size = ROWS, .shuffle = true, .seed = 4, .dtype = TSR_F64),
        &r->loader);
}

static tsr_status add_parts(run *r, tsr_checkpoint **c)
{
    const job *j = r->j;
    TSR_TRY(tsr_checkpoint_create(
        r->w, j->folder,
        TSR_CHECKPOINT_OPTS(.keep = j->keep, .keep_best = true, .async = !strcmp(j->mode, "async"),
                            .one_file = !strcmp(j->mode, "one"), .warn = j->warn != 0),
        c));
    TSR_TRY(tsr_checkpoint_add_module(*c, "model", r->net));
    if (j->eval)
        return TSR_OK;
    TSR_TRY(tsr_checkpoint_add_optimizer(*c, "optimizer", r->opt));
    TSR_TRY(tsr_checkpoint_add_loader(*c, "loader", r->loader));
    return tsr_checkpoint_add_bytes(*c, "best", r->best, sizeof r->best);
}

/* Feeds this rank's rows of step r->at. */
static tsr_status feed_own(run *r)
{
    double x[ROWS * 12];
    int64_t y[ROWS];
    const size_t rows = ROWS / (size_t)tsr_world_size(r->w);
    for (size_t i = 0; i < rows; i++) {
        const int64_t row = r->at * ROWS + (int64_t)(rows * (size_t)tsr_world_rank(r->w) + i);
        y[i] = row * 7 % CLASSES;
        for (int64_t k = 0; k < 12; k++)
            x[i * 12 + (size_t)k] = (double)((row * 13 + k * 5) % 17) / 8 - 1;
    }
    TSR_TRY(tsr_feed(r->plan, "x", x, rows * 12 * sizeof *x));
    return tsr_feed(r->plan, "y", y, rows * sizeof *y);
}

static tsr_status step(run *r, double *loss)
{
    tsr_status status = r->j->ddp ? feed_own(r) : tsr_loader_feed(r->loader, r->plan);
    if (status == TSR_END)
        status = tsr_loader_feed(r->loader, r->plan);
    TSR_TRY(status);
    TSR_TRY(tsr_run(r->plan));
    TSR_TRY(r->j->ddp ? tsr_run(r->averaging) : TSR_OK);
    TSR_TRY(tsr_fetch_scalar(r->plan, "loss", loss));
    if (r->best[1] == 0 || *loss < r->best[0]) {
        r->best[0] = *loss;
        r->best[1] += 1;
    }
    return TSR_OK;
}

static void rest(int us)
{
    const struct timespec t = {us / 1000000, us % 1000000 * 1000L};
    nanosleep(&t, NULL);
}

/* From now on files have room for so many bytes. */
static void limit_files(int bytes)
{
    const struct rlimit limit = {(rlim_t)bytes, (rlim_t)bytes};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
}

static tsr_status rank(tsr_world *w, void *arg)
{
    const job *j = (const job *)arg;
    run r = {.j = j, .w = w};
    tsr_checkpoint *c;
    int64_t at;
    TSR_TRY(open_data(&r));
    TSR_TRY(declare(&r));
    TSR_TRY(add_parts(&r, &c));
    if (j->room)
        limit_files(j->room);
    TSR_TRY(
        tsr_checkpoint_load(c, TSR_CHECKPOINT_LOAD_OPTS(.path = *j->from ? j->from : NULL), &at));
    if (tsr_world_rank(w) == 0)
        fprintf(stderr, "loaded %lld\n", (long long)at);
    for (int64_t i = at < 0 ? 0 : at; i < j->steps && !j->eval;) {
        double loss;
        r.at = i;
        TSR_TRY(step(&r, &loss));
        i++;
        if (i % j->every == 0)
            TSR_TRY(tsr_checkpoint_save(c, i, loss));
        if (j->pause_us)
            rest(j->pause_us);
    }
    TSR_TRY(tsr_checkpoint_wait(c));
    tsr_checkpoint_destroy(c);
    if (tsr_world_rank(w) == 0)
        printf("%.17g %.17g\n", r.best[0], r.best[1]);
    return *j->last && !(j->ddp && tsr_world_rank(w)) ? tsr_save(r.net, j->last) : TSR_OK;
}

int main(int argc, char **argv)
{
    job j = {.folder = "checkpoints",
             .last = "",
             .from = "",
             .mode = "sync",
             .placement = "cpu",
             .param = "B",
             .state = "",
             .data = "S(0)",
             .optimizer = "adamw",
             .ranks = 1,
             .steps = 20,
             .every = 3,
             .keep = 3};
    const struct {
        const char *key;
        const char **text;
        int *number;
    } keys[] = {
        {"folder", &j.folder, NULL},       {"last", &j.last, NULL},
        {"from", &j.from, NULL},           {"mode", &j.mode, NULL},
        {"placement", &j.placement, NULL}, {"param", &j.param, NULL},
        {"state", &j.state, NULL},         {"data", &j.data, NULL},
        {"optimizer", &j.optimizer, NULL}, {"ranks", NULL, &j.ranks},
        {"steps", NULL, &j.steps},         {"every", NULL, &j.every},
        {"keep", NULL, &j.keep},           {"warn", NULL, &j.warn},
        {"pause_us", NULL, &j.pause_us},   {"eval", NULL, &j.eval},
        {"room", NULL, &j.room},           {"ddp", NULL, &j.ddp},
    };
    for (int i = 1; i < argc; i++) {
        const char *is = strchr(argv[i], '=');
        bool known = false;
        for (size_t k = 0; is && k < sizeof keys / sizeof *keys; k++) {
            const size_t n = strlen(keys[k].key);
            if (n != (size_t)(is - argv[i]) || strncmp(argv[i], keys[k].key, n) != 0)
                continue;
            known = true;
            if (keys[k].text)
                *keys[k].text = is + 1;
            else
                *keys[k].number = atoi(is + 1);
        }
        if (!known) {
            fprintf(stderr, "checkpoint_peer: '%s'\n", argv[i]);
            return 2;
        }
    }
    if (tsr_start_ranks(j.ranks, rank, &j) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
