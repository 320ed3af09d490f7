/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times steps of a net of models.h, in f32 or by autocast to bf16, for scripts/bench, which runs it
 * beside PyTorch.
 * usage: bench_nets NET train|train_bf16|infer BATCH RANKS
 *
 * Prints {"parameters": N} when the plan is compiled. Then for each line "STEPS" of its input: runs
 * one step that is not timed and STEPS that are, and prints {"ms": [...], "loss": X}.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tessera/tessera.h>

enum { LENGTH = 256, VOCAB = 256, CLASSES = 10, IMAGE = 3 * 32 * 32 };

typedef struct job {
    const char *net;
    bool training;
    tsr_dtype autocast;
    int64_t batch;
    long steps; /* of the line at hand, as rank 0 read it; 0: the end */
} job;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static bool reads_words(const job *j)
{
    return !strcmp(j->net, "gpt") || !strcmp(j->net, "lstm_lm");
}

/* Returns the net, with parameters in B on p; NULL for a name that there is not. Each rank's batch
 * norm has statistics of its own, as under PyTorch's DDP. */
static tsr_module *make_net(tsr_world *w, const tsr_placement *p, const char *name)
{
    const tsr_bn_stats bn = tsr_placement_nranks(p) > 1 ? TSR_BN_LOCAL : TSR_BN_GLOBAL;
    if (!strcmp(name, "mobilenet_v2"))
        return tsr_mobilenet_v2(
            w, p, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = CLASSES, .dropout = 0, .bn = bn));
    if (!strcmp(name, "mobilenet_v2_cifar"))
        return tsr_mobilenet_v2(w, p, TSR_B,
                                TSR_MOBILENET_V2_OPTS(.num_classes = CLASSES, .dropout = 0,
                                                      .bn = bn, .variant = TSR_MOBILENET_CIFAR));
    if (!strcmp(name, "resnet18_cifar"))
        return tsr_resnet18(
            w, p, TSR_B,
            TSR_RESNET18_OPTS(.num_classes = CLASSES, .bn = bn, .variant = TSR_RESNET_CIFAR));
    if (!strcmp(name, "lenet"))
        return tsr_lenet(w, p, TSR_B, TSR_LENET_OPTS(.channels = 3, .height = 32, .width = 32));
    if (!strcmp(name, "mlp"))
        return tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = IMAGE, .hidden = 1024));
    if (!strcmp(name, "gpt"))
        return tsr_gpt(w, p, TSR_B,
                       TSR_GPT_OPTS(.vocab = VOCAB, .positions = LENGTH, .width = 384, .heads = 6,
                                    .layers = 6, .dropout = 0));
    if (!strcmp(name, "lstm_lm"))
        return tsr_lstm_lm(w, p, TSR_B, TSR_LSTM_LM_OPTS(.vocab = VOCAB, .dropout = 0));
    tsr_set_error(TSR_ERR_INVALID, "there is no net %s", name);
    return NULL;
}

static tsr_status compile(const job *j, tsr_world *w, const tsr_placement *p, tsr_module *net,
                          tsr_plan **out_plan)
{
    const bool words = reads_words(j);
    tsr_graph *g =
        tsr_graph_create(w, TSR_GRAPH_OPTS(.training = j->training, .autocast = j->autocast));
    tsr_tensor *x = words ? tsr_input(g, "x", TSR_I64, TSR_DIMS(j->batch, LENGTH), p, TSR_S(0))
                          : tsr_input(g, "x", TSR_F32, TSR_DIMS(j->batch, 3, 32, 32), p, TSR_S(0));
    tsr_tensor *y =
        tsr_input(g, "y", TSR_I64, TSR_DIMS(j->batch * (words ? LENGTH : 1)), p, TSR_S(0));
    tsr_tensor *logits =
        tsr_reshape(tsr_apply(net, x), TSR_DIMS(-1, words ? (int64_t)VOCAB : (int64_t)CLASSES));
    if (j->training) {
        tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
        tsr_minimize(tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4)),
                     loss);
        tsr_output(g, "loss", loss, p, TSR_B);
    } else {
        tsr_output(g, "logits", logits, p, TSR_B);
    }
    const tsr_status status = tsr_compile(g, out_plan);
    tsr_graph_destroy(g);
    return status;
}

static tsr_status feed(const job *j, tsr_plan *plan)
{
    const bool words = reads_words(j);
    const size_t n = (size_t)j->batch * (words ? LENGTH : IMAGE);
    const size_t labels = (size_t)j->batch * (words ? LENGTH : 1);
    float *const x = malloc(n * sizeof *x);
    int64_t *const ids = malloc(n * sizeof *ids);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (x && ids) {
        for (size_t i = 0; i < n; i++) {
            x[i] = (float)(i * 7919 % 10007) / 10007;
            ids[i] = (int64_t)(i * 7919 % 10007 % VOCAB);
        }
        status = words ? tsr_feed(plan, "x", ids, n * sizeof *ids)
                       : tsr_feed(plan, "x", x, n * sizeof *x);
        for (size_t i = 0; i < labels; i++)
            ids[i] = (int64_t)(i * 3 % CLASSES);
        if (status == TSR_OK && j->training)
            status = tsr_feed(plan, "y", ids, labels * sizeof *ids);
    }
    free(x);
    free(ids);
    return status;
}

/* Runs a step and reads its loss, or of inference the first row's first logits. */
static tsr_status run_step(const job *j, tsr_plan *plan, float *logits, size_t bytes,
                           double *out_loss)
{
    TSR_TRY(tsr_run(plan));
    if (j->training)
        return tsr_fetch_scalar(plan, "loss", out_loss);
    TSR_TRY(tsr_fetch(plan, "logits", logits, bytes));
    *out_loss = (double)logits[0];
    return TSR_OK;
}

static tsr_status serve(tsr_world *w, job *j, tsr_plan *plan)
{
    static _Thread_local float logits[1 << 20];
    const bool chief = tsr_world_rank(w) == 0;
    const size_t bytes = (size_t)j->batch * (reads_words(j) ? LENGTH * VOCAB : CLASSES) * 4;
    if (bytes > sizeof logits)
        return tsr_set_error(TSR_ERR_INVALID, "a batch of %lld is too large", (long long)j->batch);
    char line[64];
    for (;;) {
        double loss = 0;
        if (chief)
            j->steps = fgets(line, sizeof line, stdin) ? atol(line) : 0;
        TSR_TRY(tsr_world_barrier(w));
        const long steps = j->steps;
        if (steps <= 0)
            return TSR_OK;
        TSR_TRY(run_step(j, plan, logits, bytes, &loss));
        for (long i = 0; i < steps; i++) {
            const double start = now_ms();
            TSR_TRY(run_step(j, plan, logits, bytes, &loss));
            if (chief)
                printf("%s%.4f", i ? ", " : "{\"ms\": [", now_ms() - start);
        }
        if (!isfinite(loss))
            return tsr_set_error(TSR_ERR_NAN, "the loss is not finite");
        if (chief) {
            printf("], \"loss\": %.9g}\n", loss);
            fflush(stdout);
        }
    }
}

static tsr_status rank(tsr_world *w, void *arg)
{
    job *j = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = p ? make_net(w, p, j->net) : NULL;
    if (!net)
        return TSR_ERR_INVALID;
    tsr_plan *plan;
    TSR_TRY(compile(j, w, p, net, &plan));
    TSR_TRY(feed(j, plan));
    if (tsr_world_rank(w) == 0) {
        printf("{\"parameters\": %lld}\n", (long long)tsr_module_count(net));
        fflush(stdout);
    }
    const tsr_status status = serve(w, j, plan);
    tsr_plan_destroy(plan);
    return status;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 5 ? argv[2] : "";
    const bool low = !strcmp(mode, "train_bf16"), infer = !strcmp(mode, "infer");
    if (!low && !infer && strcmp(mode, "train") != 0) {
        fprintf(stderr, "usage: %s NET train|train_bf16|infer BATCH RANKS\n", argv[0]);
        return 2;
    }
    job j = {.net = argv[1],
             .training = !infer,
             .autocast = low ? TSR_BF16 : TSR_DTYPE_NONE,
             .batch = atoll(argv[3])};
    if (tsr_spawn_with(atoi(argv[4]), rank, &j, TSR_WORLD_OPTS(.timeout_s = 3600)) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
