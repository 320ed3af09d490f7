/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains MobileNetV2 (or another model) on CIFAR-10, data parallel or in any other signature, as
 * thread ranks (--ranks N) or under `tessera launch`. Public headers only: copy it and change it.
 */
#define _DEFAULT_SOURCE /* setenv, clock_gettime, also under -std=c17 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <tessera/tessera.h>

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

typedef struct options {
    const char *data, *placement, *sbp_data, *sbp_params, *init, *save, *metrics, *explain;
    const char *pixels, *curve, *gpus;
    long steps, batch_size, ranks, warmup, eval_every;
    unsigned long seed;
    double epochs, seconds, lr, momentum, weight_decay, dropout, label_smoothing;
    int model, schedule, variant, activation, bn, type; /* places in the lists of words */
    tsr_dtype dtype;                                    /* of images and parameters */
    bool nesterov, shuffle, augment, normalize, eval, quiet, infer_updates;
    int64_t sizes[8]; /* what --pixels lists */
    int nsizes;
} options;

static const char *const models[] = {"mobilenet_v2", "convnet", "mlp", NULL};
static const char *const schedules[] = {"constant", "cosine", NULL};
static const char *const variants[] = {"torchvision", "cifar", "stem1", NULL};
static const char *const activations[] = {"relu6", "relu", "identity", NULL};
static const char *const statistics[] = {"global", "local", NULL};
static const char *const types[] = {"f32", "f64", "bf16", NULL};

static const char usage[] =
    "usage: mobilenet_v2_cifar10 --data DIR [options]\n"
    "  --data DIR           CIFAR-10 in its binary format (or TESSERA_DATA)\n"
    "  --epochs X           passes over the data (default 10)\n"
    "  --steps N            stop after N steps\n"
    "  --seconds X          as many steps as fit, by a measurement, instead of --epochs\n"
    "  --batch-size N       of the global batch (default 64)\n"
    "  --lr X --momentum X --weight-decay X --nesterov   SGD (default 0.05, 0.9, 5e-4)\n"
    "  --schedule constant|cosine --warmup N   of the learning rate, steps (default constant, 0)\n"
    "  --label-smoothing X --dropout X         (default 0, 0.2)\n"
    "  --variant torchvision|stem1|cifar       strides of MobileNetV2 (default torchvision)\n"
    "  --pixels N,N,...     shrinks images to these sizes, each for an equal part of the steps\n"
    "  --activation relu6|relu|identity        of MobileNetV2 (default relu6)\n"
    "  --bn global|local    batch norm's statistics (default global)\n"
    "  --device cpu|cuda    all ranks (default cpu); --placement P: such as cpu:[0,1] instead\n"
    "  --gpu G,G            the GPUs, of which each rank gets one (CUDA_VISIBLE_DEVICES)\n"
    "  --sbp-data S --sbp-params S             of batch and parameters (default S(0), B)\n"
    "  --seed N             of initial values, order, augmentation and dropout (default 0)\n"
    "  --no-shuffle --no-augment --no-normalize --no-eval --quiet\n"
    "  --dtype f32|f64|bf16 (default f32; bf16: products only, parameters are f32)\n"
    "  --model mobilenet_v2|convnet|mlp        (default mobilenet_v2)\n"
    "  --init FILE --save FILE                 weights, as safetensors\n"
    "  --metrics FILE --curve FILE             one JSON object a step, a test\n"
    "  --eval-every N       test every N epochs too\n"
    "  --infer-updates      also layers near the end may be split over ranks, and updates "
    "gathered\n"
    "  --explain FILE       writes what the plan does\n"
    "  --ranks N            thread ranks to start (default: what the placement names)\n";

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tsr_module *make_model(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, const options *o)
{
    tsr_bn_stats bn = (tsr_bn_stats)o->bn;
    if (o->model == 1)
        return tsr_convnet(w, p, sbp,
                           TSR_CONVNET_OPTS(.num_classes = 10, .channels = 3, .height = 32,
                                            .width = 32, .bn = bn, .dtype = o->dtype,
                                            .seed = o->seed));
    if (o->model == 2)
        return tsr_mlp(
            w, p, sbp,
            TSR_MLP_OPTS(.inputs = 3 * 32 * 32, .outputs = 10, .dtype = o->dtype, .seed = o->seed));
    return tsr_mobilenet_v2(w, p, sbp,
                            TSR_MOBILENET_V2_OPTS(.num_classes = 10, .dropout = o->dropout,
                                                  .variant = (tsr_mobilenet_variant)o->variant,
                                                  .activation = (tsr_activation)o->activation,
                                                  .bn = bn, .dtype = o->dtype, .seed = o->seed));
}

/* A rank's means of training. */
typedef struct trainer {
    const options *o;
    tsr_world *world;
    const tsr_placement *placement;
    tsr_sbp sbp_data;
    tsr_module *net;
    tsr_optimizer *opt;
    tsr_dataset *test; /* opened when it is first asked for */
    FILE *metrics, *curve;
    bool chief, progress;
    double load_s, begin_s, start_s; /* of the program, of the first step */
    int64_t batches;                 /* of an epoch */
    int64_t pixels;                  /* of a side of the images, as the model gets them */
    long step, steps;                /* done, to do in all */
    double last_line_s;
} trainer;

/* One graph for the whole step, or for evaluation; another batch size is another plan. */
static tsr_status compile(trainer *t, bool training, int64_t rows, tsr_plan **out_plan)
{
    tsr_graph *g = tsr_graph_create(
        t->world, TSR_GRAPH_OPTS(.training = training, .seed = t->o->seed,
                                 .autocast = t->o->type == 2 ? TSR_BF16 : TSR_DTYPE_NONE));
    const tsr_placement *p = t->placement;
    tsr_tensor *x = tsr_input(g, "x", t->o->dtype, TSR_DIMS(rows, 3, 32, 32), p, t->sbp_data);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, TSR_S(0));
    if (t->pixels != 32)
        x = tsr_interpolate(x, t->pixels, t->pixels, TSR_BILINEAR);
    tsr_tensor *logits = tsr_apply(t->net, x);
    tsr_tensor *loss = tsr_cross_entropy_with(
        logits, y, TSR_CROSS_ENTROPY_OPTS(.label_smoothing = training ? t->o->label_smoothing : 0));
    tsr_output(g, "loss", loss, p, TSR_B);
    if (training) {
        tsr_minimize(t->opt, loss);
    } else {
        tsr_tensor *hit = tsr_cast(tsr_equal(tsr_argmax(logits, 1), y), TSR_F32);
        tsr_output(g, "correct", tsr_sum(hit, TSR_ALL_AXES, false), p, TSR_B);
    }
    tsr_status status =
        tsr_compile_with(g, TSR_COMPILE_OPTS(.infer_updates = t->o->infer_updates), out_plan);
    tsr_graph_destroy(g);
    return status;
}

static long epochs_of(const trainer *t)
{
    return (long)((t->steps + t->batches - 1) / t->batches);
}

static void show_progress(trainer *t, long epoch, double loss, double step_s)
{
    double now = now_s();
    bool last = t->step == t->steps;
    if (!t->progress || (now - t->last_line_s < 0.1 && !last))
        return;
    t->last_line_s = now;
    double eta = (now - t->start_s) / (double)t->step * (double)(t->steps - t->step);
    char bar[25];
    int full = (int)(24.0 * (double)t->step / (double)t->steps);
    for (int i = 0; i < 24; i++)
        bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    bar[24] = 0;
    fprintf(stderr, "\repoch %ld/%ld [%s] %ld/%ld  loss %.4f  %.0f images/s  ETA %d:%02d   %s",
            epoch + 1, epochs_of(t), bar, t->step, t->steps, loss,
            (double)t->o->batch_size / step_s, (int)eta / 60, (int)eta % 60, last ? "\n" : "");
}

static tsr_status train_step(trainer *t, tsr_plan *plan, int64_t rows, long epoch, double *out_loss)
{
    double begin = now_s(), lr = tsr_optimizer_lr(t->opt);
    TRY(tsr_run(plan));
    if (tsr_placement_find(t->placement, tsr_world_rank(t->world)) < 0)
        return TSR_OK;
    TRY(tsr_fetch_scalar(plan, "loss", out_loss));
    double step_s = now_s() - begin;
    if (t->metrics)
        fprintf(t->metrics,
                "{\"step\":%ld,\"epoch\":%ld,\"loss\":%.17g,\"lr\":%.17g,\"step_ms\":%.3f,"
                "\"images_per_s\":%.1f}\n",
                t->step, epoch, *out_loss, lr, step_s * 1e3, (double)rows / step_s);
    t->step++;
    show_progress(t, epoch, *out_loss, step_s);
    return TSR_OK;
}

static void drop_plans(tsr_plan *plans[2])
{
    for (int i = 0; i < 2; i++) {
        tsr_plan_destroy(plans[i]);
        plans[i] = NULL;
    }
}

/* Plans are made for the size of images that this part of the training has. */
static void choose_pixels(trainer *t, tsr_plan *plans[2])
{
    int64_t pixels = t->o->sizes[t->step * t->o->nsizes / t->steps];
    if (pixels != t->pixels)
        drop_plans(plans);
    t->pixels = pixels;
}

/* plans[0]: full batches; plans[1]: a smaller last one, made when it is first met. */
static tsr_status train_epoch(trainer *t, tsr_loader *loader, tsr_plan *plans[2], long epoch)
{
    double sum = 0, begin = now_s(), loss = 0;
    long n = 0;
    int64_t rows, images = 0;
    while (t->step < t->steps && (rows = tsr_loader_peek_rows(loader)) > 0) {
        choose_pixels(t, plans);
        tsr_plan **plan = &plans[rows != t->o->batch_size];
        if (!*plan)
            TRY(compile(t, true, rows, plan));
        double load = now_s();
        TRY(tsr_loader_feed(loader, *plan));
        t->load_s += now_s() - load;
        TRY(train_step(t, *plan, rows, epoch, &loss));
        sum += loss;
        images += rows;
        n++;
    }
    if (t->chief && !t->progress && !t->o->quiet && n)
        printf("epoch %ld/%ld  mean loss %.4f  %.0f images/s\n", epoch + 1, epochs_of(t),
               sum / (double)n, (double)images / (now_s() - begin));
    tsr_status end =
        t->step < t->steps ? tsr_loader_feed(loader, plans[plans[0] ? 0 : 1]) : TSR_END;
    return end == TSR_END ? TSR_OK : end;
}

static tsr_status evaluate(trainer *t)
{
    tsr_loader *loader;
    if (!t->test)
        TRY(tsr_cifar10_open(t->world, t->o->data, false, &t->test));
    TRY(tsr_loader_create(t->world, t->test,
                          TSR_LOADER_OPTS(.batch_size = t->o->batch_size,
                                          .normalize = t->o->normalize, .dtype = t->o->dtype),
                          &loader));
    tsr_plan *plans[2] = {0};
    double correct = 0, loss = 0;
    int64_t rows;
    while ((rows = tsr_loader_peek_rows(loader)) > 0) {
        tsr_plan **plan = &plans[rows != t->o->batch_size];
        if (!*plan)
            TRY(compile(t, false, rows, plan));
        TRY(tsr_loader_feed(loader, *plan));
        TRY(tsr_run(*plan));
        if (tsr_placement_find(t->placement, tsr_world_rank(t->world)) < 0)
            continue;
        double c, l;
        TRY(tsr_fetch_scalar(*plan, "correct", &c));
        TRY(tsr_fetch_scalar(*plan, "loss", &l));
        correct += c;
        loss += l * (double)rows;
    }
    double n = (double)tsr_dataset_count(t->test);
    if (t->chief)
        printf("test accuracy %.2f %% (%.0f of %.0f images; chance is 10 %%), loss %.4f\n",
               100 * correct / n, correct, n, loss / n);
    if (t->curve) {
        fprintf(t->curve,
                "{\"step\":%ld,\"epoch\":%.4g,\"pixels\":%lld,\"seconds\":%.1f,"
                "\"accuracy\":%.2f}\n",
                t->step, (double)t->step / (double)t->batches, (long long)t->pixels,
                now_s() - t->begin_s, 100 * correct / n);
        fflush(t->curve);
    }
    drop_plans(plans);
    tsr_loader_destroy(loader);
    return TSR_OK;
}

/* The largest parts of the steps' time, kernels and collectives apart. */
static void report_times(const tsr_plan *plan, const tsr_plan_info *i, bool comm)
{
    tsr_plan_time rows[64];
    int n = tsr_plan_times(plan, 64, rows), shown = 0;
    for (int r = 0; r < n && r < 64 && shown < 8; r++) {
        if (rows[r].is_comm != comm)
            continue;
        printf("  %-18s %4lld a step %9.3f ms %5.1f %%", rows[r].what, (long long)rows[r].steps,
               1e3 * rows[r].seconds / (double)i->runs, 100 * rows[r].seconds / i->run_s);
        if (comm)
            printf("  %10.3f MB read from peers", 1e-6 * (double)rows[r].bytes);
        printf("\n");
        shown++;
    }
}

/* Where the time and the bytes went, of the full batches' plan. */
static void report(const trainer *t, const tsr_plan *plan)
{
    tsr_plan_info i = {.size = sizeof i};
    if (!plan || tsr_plan_get_info(plan, &i) != TSR_OK || !i.runs)
        return;
    double n = (double)i.runs;
    printf("training took %.1f s; %.2f ms a step, %.0f images/s; waiting for data %.1f s\n",
           now_s() - t->start_s, 1e3 * i.run_s / n, (double)t->o->batch_size * n / i.run_s,
           t->load_s);
    printf("compiled in %.0f ms: signatures %.0f ms, initial values %.0f ms, kernel libraries "
           "%.0f ms\n",
           1e3 * i.compile_s, 1e3 * i.infer_s, 1e3 * i.init_s, 1e3 * i.library_s);
    printf("kernels of rank 0: %.1f %% of the time\n", 100 * i.compute_s / i.run_s);
    report_times(plan, &i, false);
    printf("communication of rank 0, with waiting: %.1f %%; %d collectives, %.3f MB a step\n",
           100 * i.comm_s / i.run_s, i.collectives, 1e-6 * (double)i.comm_bytes);
    report_times(plan, &i, true);
    printf("memory of rank 0: parameters and state %.1f MB, activations and scratch %.1f MB, "
           "inputs and outputs %.1f MB\n",
           1e-6 * (double)i.variable_bytes, 1e-6 * (double)i.activation_bytes,
           1e-6 * (double)i.port_bytes);
}

static tsr_status write_explanation(const trainer *t, tsr_plan *plan)
{
    if (!t->o->explain || !t->chief || !plan)
        return TSR_OK;
    FILE *f = fopen(t->o->explain, "w");
    const char *text = tsr_plan_explain(plan);
    if (!f || !text || fputs(text, f) < 0) {
        fprintf(stderr, "can't write %s\n", t->o->explain);
        if (f)
            fclose(f);
        return TSR_ERR_IO;
    }
    return fclose(f) ? TSR_ERR_IO : TSR_OK;
}

/* --- the training ----------------------------------------------------------------------------- */
static tsr_status make_net(trainer *t, tsr_module **out_net)
{
    tsr_sbp sbp;
    TRY(tsr_sbp_parse(t->o->sbp_params, &sbp));
    *out_net = make_model(t->world, t->placement, sbp, t->o);
    return *out_net ? TSR_OK : TSR_ERR_INVALID;
}

static tsr_status make_optimizer(trainer *t)
{
    const options *o = t->o;
    tsr_schedule schedule = {.warmup = o->warmup};
    if (o->schedule == 1 && t->steps > o->warmup) {
        schedule.kind = TSR_SCHEDULE_COSINE;
        schedule.steps = t->steps - o->warmup;
    }
    t->opt = tsr_sgd(t->net, TSR_SGD_OPTS(.lr = o->lr, .momentum = o->momentum,
                                          .weight_decay = o->weight_decay, .nesterov = o->nesterov,
                                          .schedule = schedule));
    return t->opt ? TSR_OK : TSR_ERR_INVALID;
}

/* Measures a step of t's net at t's size of images. */
static tsr_status measure_step(trainer *t, tsr_loader *loader, double *out_s)
{
    enum { WARM = 3, TIMED = 20 };
    tsr_plan *plan;
    double begin = 0;
    TRY(compile(t, true, t->o->batch_size, &plan));
    for (int i = 0; i < WARM + TIMED; i++) {
        if (i == WARM)
            begin = now_s();
        if (tsr_loader_peek_rows(loader) != t->o->batch_size)
            TRY(tsr_loader_reset(loader));
        TRY(tsr_loader_feed(loader, plan));
        TRY(tsr_run(plan));
    }
    *out_s = (now_s() - begin) / TIMED;
    tsr_plan_destroy(plan);
    return TSR_OK;
}

/* Sets t->steps to what takes o->seconds, by steps of a net that is then forgotten. */
static tsr_status fit_steps(trainer *t, tsr_loader *loader)
{
    const options *o = t->o;
    trainer probe = *t;
    double step_s = 0;
    TRY(make_net(&probe, &probe.net));
    TRY(make_optimizer(&probe));
    for (int i = 0; i < o->nsizes; i++) {
        double s;
        probe.pixels = o->sizes[i];
        TRY(measure_step(&probe, loader, &s));
        step_s += s / o->nsizes;
    }
    tsr_optimizer_destroy(probe.opt);
    tsr_module_destroy(probe.net);
    TRY(tsr_loader_set_epoch(loader, 0));
    /* Forward alone is about a third of a step. */
    double tests = o->eval_every ? 0.2 / 3 / (double)o->eval_every : 0;
    int64_t steps = (int64_t)((o->seconds - (now_s() - t->start_s)) / (step_s * (1 + tests)));
    TRY(tsr_broadcast(tsr_world_group(t->world), &steps, 1, TSR_I64, 0));
    t->steps = steps > 1 ? (long)steps : 1;
    if (t->chief)
        printf("%.2f ms a step: %ld steps fit into %.0f s; --epochs %.4f repeats them\n",
               1e3 * step_s, t->steps, o->seconds, (double)t->steps / (double)t->batches);
    return TSR_OK;
}

static tsr_status train_epochs(trainer *t, tsr_loader *loader)
{
    const options *o = t->o;
    tsr_plan *plans[2] = {0};
    t->start_s = now_s();
    for (long e = 0; t->step < t->steps; e++) {
        TRY(train_epoch(t, loader, plans, e));
        if (o->eval_every && (e + 1) % o->eval_every == 0 && t->step < t->steps)
            TRY(evaluate(t));
    }
    if (t->chief)
        report(t, plans[0]);
    TRY(write_explanation(t, plans[0]));
    drop_plans(plans);
    return TSR_OK;
}

static tsr_status train_all(trainer *t, tsr_dataset *train)
{
    const options *o = t->o;
    tsr_loader *loader;
    TRY(tsr_loader_create(t->world, train,
                          TSR_LOADER_OPTS(.batch_size = o->batch_size, .shuffle = o->shuffle,
                                          .augment = o->augment, .normalize = o->normalize,
                                          .seed = o->seed, .dtype = o->dtype),
                          &loader));
    t->batches = tsr_loader_batches(loader);
    t->steps = lround(o->epochs * (double)t->batches);
    if (o->seconds > 0 && o->batch_size <= tsr_dataset_count(train))
        TRY(fit_steps(t, loader));
    if (o->steps > 0 && o->steps < t->steps)
        t->steps = o->steps;
    TRY(make_optimizer(t));
    TRY(train_epochs(t, loader));
    tsr_loader_destroy(loader);
    return TSR_OK;
}

static FILE *open_output(const trainer *t, const char *path)
{
    FILE *f = t->chief && path ? fopen(path, "w") : NULL;
    if (t->chief && path && !f)
        fprintf(stderr, "can't write %s\n", path);
    return f;
}

static tsr_status run_rank(tsr_world *world, void *arg)
{
    const options *o = arg;
    trainer t = {.o = o,
                 .world = world,
                 .chief = tsr_world_rank(world) == 0,
                 .begin_s = now_s(),
                 .start_s = now_s(),
                 .pixels = 32};
    tsr_dataset *train;
    TRY(tsr_cifar10_open(world, o->data, true, &train));
    t.placement = tsr_placement_parse(world, o->placement);
    if (!t.placement)
        return TSR_ERR_PLACEMENT;
    TRY(tsr_sbp_parse(o->sbp_data, &t.sbp_data));
    TRY(make_net(&t, &t.net));
    if (o->init)
        TRY(tsr_load(t.net, o->init, NULL));
    t.progress = t.chief && !o->quiet && isatty(2);
    t.metrics = open_output(&t, o->metrics);
    t.curve = open_output(&t, o->curve);
    if (t.chief && ((o->metrics && !t.metrics) || (o->curve && !t.curve)))
        return TSR_ERR_IO;
    if (t.chief && !o->quiet)
        printf("%s, %lld parameters, on %s; data %s, parameters %s; %lld images\n",
               models[o->model], (long long)tsr_module_count(t.net),
               tsr_placement_text(t.placement), o->sbp_data, o->sbp_params,
               (long long)tsr_dataset_count(train));
    tsr_status status = train_all(&t, train);
    if (t.metrics && fclose(t.metrics) && status == TSR_OK)
        status = TSR_ERR_IO;
    TRY(status);
    if (o->eval)
        TRY(evaluate(&t));
    if (t.curve && fclose(t.curve))
        return TSR_ERR_IO;
    return o->save ? tsr_save(t.net, o->save) : TSR_OK;
}

/* --- the command line ------------------------------------------------------------------------- */
enum {
    OPT_STRING,
    OPT_LONG,
    OPT_COUNT,
    OPT_SOME,
    OPT_RANKS,
    OPT_DOUBLE,
    OPT_AMOUNT,
    OPT_WORD,
    OPT_FLAG
};
/* The least and the greatest whole number of each type. */
static const long bounds[][2] = {[OPT_LONG] = {LONG_MIN, LONG_MAX},
                                 [OPT_COUNT] = {0, 1000000000},
                                 [OPT_SOME] = {1, 1000000000},
                                 [OPT_RANKS] = {1, 256}};
typedef struct option_row {
    const char *name;
    int type;
    void *target;
    bool value;               /* of a flag */
    const char *const *words; /* of a word: its list */
} option_row;

static int bad(const char *name, const char *value, const char *legal)
{
    fprintf(stderr, "mobilenet_v2_cifar10: --%s %s: %s\n", name, value, legal);
    return 2;
}

/* Sets the place of a word in its list. */
static int set_word(const option_row *r, const char *value)
{
    char legal[128] = "legal are";
    for (int i = 0; r->words[i]; i++) {
        if (!strcmp(value, r->words[i])) {
            *(int *)r->target = i;
            return 0;
        }
        snprintf(legal + strlen(legal), sizeof legal - strlen(legal), " %s", r->words[i]);
    }
    return bad(r->name, value, legal);
}

static int set_option(const option_row *r, const char *value)
{
    char *end = NULL, legal[96];
    double x;
    long n;
    switch (r->type) {
    case OPT_STRING:
        *(const char **)r->target = value;
        return 0;
    case OPT_LONG:
    case OPT_COUNT:
    case OPT_SOME:
    case OPT_RANKS:
        errno = 0;
        *(long *)r->target = n = strtol(value, &end, 10);
        if (*value && !*end && !errno && n >= bounds[r->type][0] && n <= bounds[r->type][1])
            return 0;
        snprintf(legal, sizeof legal, "a whole number of %ld to %ld is needed", bounds[r->type][0],
                 bounds[r->type][1]);
        return bad(r->name, value, legal);
    case OPT_DOUBLE:
    case OPT_AMOUNT:
        *(double *)r->target = x = strtod(value, &end);
        if (*value && !*end && (r->type == OPT_DOUBLE || (x >= 0 && x <= 1e6)))
            return 0;
        return bad(r->name, value,
                   r->type == OPT_DOUBLE ? "a number is needed" : "a number of 0 to 1e6 is needed");
    case OPT_WORD:
        return set_word(r, value);
    default:
        *(bool *)r->target = r->value;
        return 0;
    }
}

static int set_pixels(options *o)
{
    const char *p = o->pixels;
    for (char *end; *p && o->nsizes < (int)(sizeof o->sizes / sizeof *o->sizes); p = end) {
        long n = strtol(p, &end, 10);
        if (end == p || n < 8 || n > 32 || (*end && *end != ','))
            break;
        o->sizes[o->nsizes++] = n;
        end += *end == ',';
    }
    return *p || !o->nsizes ? bad("pixels", o->pixels, "sizes from 8 to 32, at most 8 of them") : 0;
}

static int parse(int argc, char **argv, options *o)
{
    long seed = 0;
    const option_row rows[] = {
        {"data", OPT_STRING, &o->data, 0, NULL},
        {"epochs", OPT_AMOUNT, &o->epochs, 0, NULL},
        {"seconds", OPT_AMOUNT, &o->seconds, 0, NULL},
        {"steps", OPT_COUNT, &o->steps, 0, NULL},
        {"batch-size", OPT_SOME, &o->batch_size, 0, NULL},
        {"lr", OPT_DOUBLE, &o->lr, 0, NULL},
        {"momentum", OPT_DOUBLE, &o->momentum, 0, NULL},
        {"weight-decay", OPT_DOUBLE, &o->weight_decay, 0, NULL},
        {"nesterov", OPT_FLAG, &o->nesterov, true, NULL},
        {"schedule", OPT_WORD, &o->schedule, 0, schedules},
        {"warmup", OPT_COUNT, &o->warmup, 0, NULL},
        {"label-smoothing", OPT_DOUBLE, &o->label_smoothing, 0, NULL},
        {"dropout", OPT_DOUBLE, &o->dropout, 0, NULL},
        {"variant", OPT_WORD, &o->variant, 0, variants},
        {"pixels", OPT_STRING, &o->pixels, 0, NULL},
        {"activation", OPT_WORD, &o->activation, 0, activations},
        {"bn", OPT_WORD, &o->bn, 0, statistics},
        {"device", OPT_STRING, &o->placement, 0, NULL}, /* a placement without ranks: all */
        {"gpu", OPT_STRING, &o->gpus, 0, NULL},
        {"placement", OPT_STRING, &o->placement, 0, NULL},
        {"sbp-data", OPT_STRING, &o->sbp_data, 0, NULL},
        {"sbp-params", OPT_STRING, &o->sbp_params, 0, NULL},
        {"seed", OPT_LONG, &seed, 0, NULL},
        {"no-shuffle", OPT_FLAG, &o->shuffle, false, NULL},
        {"no-augment", OPT_FLAG, &o->augment, false, NULL},
        {"no-normalize", OPT_FLAG, &o->normalize, false, NULL},
        {"no-eval", OPT_FLAG, &o->eval, false, NULL},
        {"quiet", OPT_FLAG, &o->quiet, true, NULL},
        {"infer-updates", OPT_FLAG, &o->infer_updates, true, NULL},
        {"dtype", OPT_WORD, &o->type, 0, types},
        {"model", OPT_WORD, &o->model, 0, models},
        {"init", OPT_STRING, &o->init, 0, NULL},
        {"save", OPT_STRING, &o->save, 0, NULL},
        {"metrics", OPT_STRING, &o->metrics, 0, NULL},
        {"eval-every", OPT_COUNT, &o->eval_every, 0, NULL},
        {"curve", OPT_STRING, &o->curve, 0, NULL},
        {"explain", OPT_STRING, &o->explain, 0, NULL},
        {"ranks", OPT_RANKS, &o->ranks, 0, NULL},
    };
    enum { N = sizeof rows / sizeof *rows };
    struct option longs[N + 2] = {{0}};
    for (int i = 0; i < N; i++)
        longs[i] = (struct option){rows[i].name,
                                   rows[i].type == OPT_FLAG ? no_argument : required_argument, NULL,
                                   1000 + i};
    longs[N] = (struct option){"help", no_argument, NULL, 'h'};
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(usage, stdout);
            exit(0);
        }
        if (c < 1000) {
            fputs(usage, stderr);
            return 2;
        }
        int bad_value = set_option(&rows[c - 1000], optarg);
        if (bad_value)
            return bad_value;
    }
    if (optind < argc) {
        fprintf(stderr, "mobilenet_v2_cifar10: unexpected argument '%s'\n%s", argv[optind], usage);
        return 2;
    }
    o->seed = (unsigned long)seed;
    o->dtype = o->type == 1 ? TSR_F64 : TSR_F32;
    if (!o->data) {
        fprintf(stderr,
                "mobilenet_v2_cifar10: --data DIR (or TESSERA_DATA) is needed: a folder with "
                "CIFAR-10 in its binary format; scripts/fetch-cifar10 gets it\n");
        return 2;
    }
    return set_pixels(o);
}

/* The ranks that a placement text names: its largest number, plus one. */
static int ranks_of(const char *placement)
{
    int most = 0;
    for (const char *p = strchr(placement, ':'); p && *p; p++)
        if (*p >= '0' && *p <= '9') {
            char *end;
            long r = strtol(p, &end, 10);
            most = r > most && r < 1024 ? (int)r : most;
            p = end - 1;
        }
    return most + 1;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    options o = {.data = getenv("TESSERA_DATA"),
                 .placement = "cpu",
                 .sbp_data = "S(0)",
                 .sbp_params = "B",
                 .pixels = "32",
                 .epochs = 10,
                 .batch_size = 64,
                 .lr = 0.05,
                 .momentum = 0.9,
                 .weight_decay = 5e-4,
                 .dropout = 0.2,
                 .shuffle = true,
                 .augment = true,
                 .normalize = true,
                 .eval = true};
    int usage_error = parse(argc, argv, &o);
    if (usage_error)
        return usage_error;
    if (o.gpus)
        setenv("CUDA_VISIBLE_DEVICES", o.gpus, 1); /* before CUDA starts */
    int threads = o.ranks ? (int)o.ranks : ranks_of(o.placement);
    if (tsr_start_ranks(threads, run_rank, &o) == TSR_OK)
        return 0;
    fprintf(stderr, "mobilenet_v2_cifar10: %s\n", tsr_last_error());
    return 1;
}
