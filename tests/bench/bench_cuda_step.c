/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole training steps on a GPU: MobileNetV2's CIFAR variant with dropout 0.2 and ResNet-50 by SGD
 * with momentum 0.9 and weight decay 5e-4, GPT-2 small on rows of 1,024 ids by AdamW; a batch fed
 * each step and the loss fetched every tenth, as a user would. One JSON object for each network,
 * batch size, type and way to run.
 *
 *     bench_cuda_step [-m mobilenet_v2,gpt2,resnet50] [-b batches] [-t f32,tf32,bf16] [-g 1,0]
 *                     [-n steps] [-r rounds] [-w warm-up] [-p placement] [-l] [-T]
 *
 * -b and -n: by default 128,512 and 50 of MobileNetV2, 8 and 10 of GPT-2, 64 and 10 of ResNet-50.
 * -t: tf32 is f32 with products in TF32; bf16 is a model all of bf16. -g: the step as one captured
 * graph, or kernel by kernel. -l: says {"ready":true} when warm, and runs one round for each line
 * of standard input, so that rounds can alternate with another program's (gpu_peer.py).
 * -T: tiny, to see that it works. Under `tessera launch` all ranks train, and rank 0 prints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_cuda_nets.h"

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

enum { MAX_LIST = 8, MAX_ROUNDS = 1000, BATCHES = 8, FETCH_EVERY = 10 };
typedef struct options {
    const char *model[MAX_LIST];
    int64_t batch[MAX_LIST];
    const char *type[MAX_LIST];
    int64_t graph[MAX_LIST];
    int nmodels, nbatches, ntypes, ngraphs; /* no batches: the network's own */
    int steps, rounds, warmup;
    const char *placement;
    bool turns, tiny;
} options;

/* One line of the output. */
typedef struct config {
    bench_net net;
    int64_t batch;
    const char *type;
    bool graph;
} config;

typedef struct bench {
    const options *o;
    config c;
    tsr_world *world;
    bool is_open;
    tsr_plan *plan;
    int64_t row, row_labels; /* of a sample: elements, and labels */
    float *images;           /* BATCHES batches, which take turns; of words, ids: */
    int64_t *ids, *labels;
    int64_t parameters;
    int steps;
    long step;
    double loss;
    double ms[MAX_ROUNDS];
    int rounds;
} bench;

/* The first warning of the library: that a step could not be captured, say. */
static char note[256];

static void keep_note(void *arg, tsr_log_level level, const char *text)
{
    (void)arg;
    if (level <= TSR_LOG_WARNING && !note[0])
        snprintf(note, sizeof note, "%.255s", text);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A JSON string without what would need more than an escape of one character. */
static void print_text(const char *key, const char *text)
{
    printf(",\"%s\":\"", key);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

/* --- the program ------------------------------------------------------------------------------ */
static tsr_status make_images(bench *b, int64_t n)
{
    tsr_dataset *set;
    const int64_t size = b->c.net.size;
    TRY(tsr_synthetic_open(b->world, 3, size, size, 10, n, 1, &set));
    for (int64_t i = 0; i < n * b->row; i++)
        b->images[i] = (float)tsr_dataset_images(set)[i] / 255.0f;
    for (int64_t i = 0; i < n; i++)
        b->labels[i] = tsr_dataset_labels(set)[i];
    tsr_dataset_destroy(set);
    return TSR_OK;
}

/* Ids in no order, each labelled with the next. */
static void make_words(bench *b, int64_t n)
{
    uint64_t state = 1;
    for (int64_t i = 0; i < n * b->row; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (int64_t)((state >> 33) % (uint64_t)b->c.net.classes);
        if (i)
            b->labels[i - 1] = b->ids[i];
    }
    b->labels[n * b->row - 1] = b->ids[0];
}

static tsr_status make_data(bench *b)
{
    const bench_net *net = &b->c.net;
    const int64_t n = BATCHES * b->c.batch;
    b->row = net->words ? net->size : 3 * net->size * net->size;
    b->row_labels = net->words ? net->size : 1;
    b->images = net->words ? NULL : malloc((size_t)(n * b->row) * sizeof *b->images);
    b->ids = net->words ? malloc((size_t)(n * b->row) * sizeof *b->ids) : NULL;
    b->labels = malloc((size_t)(n * b->row_labels) * sizeof *b->labels);
    if ((!b->images && !b->ids) || !b->labels)
        return TSR_ERR_NO_MEMORY;
    if (!net->words)
        return make_images(b, n);
    make_words(b, n);
    return TSR_OK;
}

/* Opens the devices, so that what fails later is not that. */
static tsr_status open_devices(bench *b)
{
    const tsr_placement *p = tsr_placement_parse(b->world, b->o->placement);
    float one;
    if (!p)
        return TSR_ERR_PLACEMENT;
    tsr_graph *g = tsr_graph_create(b->world, NULL);
    tsr_status status = tsr_eval(tsr_full(g, TSR_F32, TSR_SCALAR, p, TSR_B, 1.0), &one, sizeof one);
    tsr_graph_destroy(g);
    b->is_open = status == TSR_OK;
    return status;
}

static tsr_status compile(bench *b)
{
    tsr_dtype dtype = !strcmp(b->c.type, "bf16") ? TSR_BF16 : TSR_F32;
    const tsr_placement *p = tsr_placement_parse(b->world, b->o->placement);
    if (!p)
        return TSR_ERR_PLACEMENT;
    const bench_net *n = &b->c.net;
    tsr_module *net = bench_net_make(n, b->world, p, dtype);
    tsr_optimizer *opt = net ? bench_net_optimizer(n, net) : NULL;
    if (!opt)
        return TSR_ERR_UNSUPPORTED;
    b->parameters = tsr_module_count(net);
    tsr_graph *g = tsr_graph_create(b->world, TSR_GRAPH_OPTS(.training = true, .seed = 1));
    tsr_tensor *x =
        n->words
            ? tsr_input(g, "x", TSR_I64, TSR_DIMS(b->c.batch, n->size), p, TSR_S(0))
            : tsr_input(g, "x", TSR_F32, TSR_DIMS(b->c.batch, 3, n->size, n->size), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(b->c.batch * b->row_labels), p, TSR_S(0));
    tsr_tensor *in = n->words || dtype == TSR_F32 ? x : tsr_cast(x, dtype);
    tsr_tensor *logits = tsr_reshape(tsr_apply(net, in), TSR_DIMS(-1, n->classes));
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_output(g, "loss", dtype == TSR_F32 ? loss : tsr_cast(loss, TSR_F32), p, TSR_B);
    tsr_minimize(opt, loss);
    tsr_status status = tsr_compile(g, &b->plan);
    tsr_graph_destroy(g);
    return status;
}

/* A round ends with a fetch, which waits for the device. */
static tsr_status run_steps(bench *b, int n)
{
    for (int i = 0; i < n; i++, b->step++) {
        int64_t at = b->step % BATCHES * b->c.batch;
        const size_t count = (size_t)(b->c.batch * b->row);
        if (b->ids)
            TRY(tsr_feed(b->plan, "x", b->ids + at * b->row, count * sizeof *b->ids));
        else
            TRY(tsr_feed(b->plan, "x", b->images + at * b->row, count * sizeof *b->images));
        TRY(tsr_feed(b->plan, "y", b->labels + at * b->row_labels,
                     (size_t)(b->c.batch * b->row_labels) * sizeof *b->labels));
        TRY(tsr_run(b->plan));
        if (b->step % FETCH_EVERY == FETCH_EVERY - 1 || i == n - 1)
            TRY(tsr_fetch_scalar(b->plan, "loss", &b->loss));
    }
    return TSR_OK;
}

static tsr_status run_rounds(bench *b)
{
    const options *o = b->o;
    char line[64];
    if (o->turns) {
        printf("{\"ready\":true}\n");
        fflush(stdout);
    }
    while (b->rounds < MAX_ROUNDS &&
           (o->turns ? fgets(line, sizeof line, stdin) != NULL : b->rounds < o->rounds)) {
        double begin = now_ms();
        TRY(run_steps(b, b->steps));
        double ms = b->ms[b->rounds++] = (now_ms() - begin) / b->steps;
        if (o->turns) {
            printf("{\"round\":%d,\"ms_per_step\":%.5f}\n", b->rounds, ms);
            fflush(stdout);
        }
    }
    return TSR_OK;
}

/* --- the output ------------------------------------------------------------------------------- */
static void print_config(const bench *b)
{
    bool tf32 = !strcmp(b->c.type, "tf32");
    printf("{\"bench\":\"step\",\"who\":\"tessera\",\"model\":\"%s\",\"ranks\":%d,"
           "\"batch\":%lld,\"dtype\":\"%s\",\"tf32\":%s,\"graph\":%s",
           b->c.net.name, b->world ? tsr_world_size(b->world) : 1, (long long)b->c.batch,
           tf32 ? "f32" : b->c.type, tf32 ? "true" : "false", b->c.graph ? "true" : "false");
}

static void print_result(bench *b)
{
    qsort(b->ms, (size_t)b->rounds, sizeof *b->ms, compare);
    double median = b->ms[b->rounds / 2];
    tsr_plan_info info = {.size = sizeof info};
    if (tsr_plan_get_info(b->plan, &info) != TSR_OK)
        info.compile_s = 0;
    print_config(b);
    printf(",\"steps\":%d,\"rounds\":%d,\"ms_per_step_median\":%.5f,\"ms_per_step_min\":%.5f,"
           "\"samples_per_s\":%.1f,\"compile_s\":%.3f,\"activation_bytes\":%zu,"
           "\"parameters\":%lld",
           b->steps, b->rounds, median, b->ms[0], 1e3 * (double)b->c.batch / median, info.compile_s,
           info.activation_bytes, (long long)b->parameters);
    if (b->loss - b->loss == 0)
        printf(",\"loss\":%.6f", b->loss);
    else
        print_text("loss", "not finite");
    if (note[0])
        print_text("note", note);
    printf("}\n");
    fflush(stdout);
}

static tsr_status measure(bench *b)
{
    TRY(tsr_world_create(TSR_WORLD_OPTS(.log = keep_note), &b->world));
    TRY(open_devices(b));
    TRY(make_data(b));
    TRY(compile(b));
    TRY(run_steps(b, b->o->warmup));
    return run_rounds(b);
}

/* What the library can't do is told and passed over; what went wrong ends the program. */
static bool run_config(const options *o, config c)
{
    bench b = {.o = o, .c = c, .steps = o->steps ? o->steps : c.net.steps};
    note[0] = 0;
    setenv("TESSERA_CUDA_TF32", !strcmp(c.type, "tf32") ? "1" : "0", 1);
    setenv("TESSERA_CUDA_GRAPH", c.graph ? "1" : "0", 1);
    tsr_status status = measure(&b);
    bool refused =
        b.is_open && !b.plan && (status == TSR_ERR_UNSUPPORTED || status == TSR_ERR_DTYPE);
    bool chief = !b.world || tsr_world_rank(b.world) == 0;
    if (status == TSR_OK && chief && b.rounds) {
        print_result(&b);
    } else if (status != TSR_OK && chief) {
        print_config(&b);
        print_text(refused ? "refused" : "error", tsr_last_error());
        printf("}\n");
        fflush(stdout);
    }
    if (status != TSR_OK && b.world)
        tsr_world_abort(b.world, tsr_last_error());
    tsr_plan_destroy(b.plan);
    tsr_world_destroy(b.world);
    free(b.images);
    free(b.ids);
    free(b.labels);
    return status == TSR_OK || refused;
}

/* --- the command line ------------------------------------------------------------------------- */
/* Cuts a list at its commas, in place. */
static int cut(char *text, const char **out)
{
    int n = 0;
    for (char *word = strtok(text, ","); word && n < MAX_LIST; word = strtok(NULL, ","))
        out[n++] = word;
    return n;
}

static int numbers(char *text, int64_t *out)
{
    const char *words[MAX_LIST];
    int n = cut(text, words);
    for (int i = 0; i < n; i++)
        out[i] = atoll(words[i]);
    return n;
}

static bool is_usable(const options *o)
{
    bench_net net;
    bool ok = o->nmodels && o->ntypes && o->ngraphs && o->steps >= 0 && o->rounds > 0 &&
              o->rounds <= MAX_ROUNDS && o->warmup >= 0;
    for (int i = 0; i < o->nmodels; i++)
        ok = ok && bench_net_find(o->model[i], false, &net);
    for (int i = 0; i < o->nbatches; i++)
        ok = ok && o->batch[i] > 0;
    for (int i = 0; i < o->ntypes; i++)
        ok = ok && (!strcmp(o->type[i], "f32") || !strcmp(o->type[i], "tf32") ||
                    !strcmp(o->type[i], "bf16"));
    return ok && (!o->turns || o->nmodels * o->nbatches * o->ntypes * o->ngraphs == 1);
}

static bool parse(int argc, char **argv, options *o)
{
    for (int c; (c = getopt(argc, argv, "m:b:t:g:n:r:w:p:lT")) != -1;) {
        switch (c) {
        case 'm':
            o->nmodels = cut(optarg, o->model);
            break;
        case 'b':
            o->nbatches = numbers(optarg, o->batch);
            break;
        case 't':
            o->ntypes = cut(optarg, o->type);
            break;
        case 'g':
            o->ngraphs = numbers(optarg, o->graph);
            break;
        case 'n':
            o->steps = atoi(optarg);
            break;
        case 'r':
            o->rounds = atoi(optarg);
            break;
        case 'w':
            o->warmup = atoi(optarg);
            break;
        case 'p':
            o->placement = optarg;
            break;
        case 'l':
            o->turns = true;
            break;
        case 'T':
            o->tiny = true;
            break;
        default:
            return false;
        }
    }
    if (o->tiny) {
        o->nbatches = 1;
        o->batch[0] = 2;
        o->steps = o->warmup = 2;
        o->rounds = 1;
    }
    return optind == argc && is_usable(o);
}

/* All batch sizes, types and ways to run of one network. */
static bool run_model(const options *o, const char *model)
{
    config c;
    bool ok = bench_net_find(model, o->tiny, &c.net);
    const int64_t *batches = o->nbatches ? o->batch : c.net.batch;
    for (int b = 0; b < (o->nbatches ? o->nbatches : c.net.nbatches); b++)
        for (int t = 0; t < o->ntypes; t++)
            for (int g = 0; g < o->ngraphs; g++) {
                c.batch = batches[b];
                c.type = o->type[t];
                c.graph = o->graph[g] != 0;
                ok = run_config(o, c) && ok;
            }
    return ok;
}

int main(int argc, char **argv)
{
    options o = {.model = {"mobilenet_v2", "gpt2", "resnet50"},
                 .type = {"f32", "tf32", "bf16"},
                 .graph = {1, 0},
                 .nmodels = 3,
                 .ntypes = 3,
                 .ngraphs = 2,
                 .rounds = 7,
                 .warmup = 20,
                 .placement = "cuda"};
    if (!parse(argc, argv, &o)) {
        fprintf(stderr,
                "usage: bench_cuda_step [-m mobilenet_v2,gpt2,resnet50] [-b batches]\n"
                "           [-t f32,tf32,bf16] [-g 1,0] [-n steps] [-r rounds] [-w warm-up]\n"
                "           [-p placement] [-l] [-T]\n"
                "-l: one network, batch size, type and way to run\n");
        return 2;
    }
    bool ok = true;
    for (int m = 0; m < o.nmodels; m++)
        ok = run_model(&o, o.model[m]) && ok;
    return ok ? 0 : 1;
}
