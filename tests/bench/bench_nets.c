/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times steps of a net of nets.h for scripts/bench, which runs it beside other libraries: in its
 * own type, trained by autocast to bf16, or in inference with parameters and inputs of bf16. usage:
 * bench_nets NET train|train_bf16|infer|infer_bf16 BATCH RANKS
 *
 * Prints {"parameters": N} when the plan is compiled. Then for each line "STEPS" of its input: runs
 * one step that is not timed and STEPS that are, and prints {"ms": [...], "loss": X}, in inference
 * with the result's first element as "loss" and the root of its mean square as "size".
 */
#include "nets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct job {
    bench_net net;
    bool training;
    tsr_dtype autocast;
    int64_t batch;
    tsr_dims result; /* of inference */
    tsr_dtype result_dtype;
    long *steps; /* of the current line of input, which rank 0 reads for all; 0: the end */
} job;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Returns the shape of `batch` samples of shape `row`. */
static tsr_dims batch_of(int64_t batch, tsr_dims row)
{
    tsr_dims dims = {.ndim = row.ndim + 1, .d = {batch}};
    memcpy(dims.d + 1, row.d, (size_t)row.ndim * sizeof *row.d);
    return dims;
}

static tsr_dims second_dims(const job *j)
{
    return j->net.second_vocab ? batch_of(j->batch, j->net.second) : j->net.second;
}

/* Declares the inputs and returns the net's result. */
static tsr_tensor *declare_result(const job *j, tsr_graph *g, const tsr_placement *p,
                                  tsr_module *net)
{
    const bench_net *n = &j->net;
    tsr_tensor *in[2] = {
        tsr_input(g, "x", n->vocab ? TSR_I64 : n->dtype, batch_of(j->batch, n->row), p, TSR_S(0))};
    if (!n->second.ndim)
        return tsr_apply(net, in[0]);
    tsr_tensor *result;
    in[1] = tsr_input(g, "second", n->second_vocab ? TSR_I64 : n->dtype, second_dims(j), p,
                      n->second_vocab ? TSR_S(0) : TSR_B);
    tsr_apply_n(net, 2, in, 1, &result);
    return result;
}

static tsr_status compile(job *j, tsr_world *w, const tsr_placement *p, tsr_module *net,
                          tsr_plan **out_plan)
{
    tsr_graph *g =
        tsr_graph_create(w, TSR_GRAPH_OPTS(.training = j->training, .autocast = j->autocast));
    tsr_tensor *const result = declare_result(j, g, p, net);
    j->result = tsr_tensor_dims(result);
    j->result_dtype = tsr_tensor_dtype(result);
    if (j->training) {
        tsr_tensor *loss;
        if (j->net.loss == BENCH_SQUARES) {
            loss = tsr_mean(tsr_square(result), TSR_ALL_AXES, false);
        } else {
            const int64_t classes = j->result.ndim ? j->result.d[j->result.ndim - 1] : 1;
            tsr_tensor *logits = tsr_reshape(result, TSR_DIMS(-1, classes));
            tsr_tensor *y =
                tsr_input(g, "y", TSR_I64, TSR_DIMS(tsr_tensor_dims(logits).d[0]), p, TSR_S(0));
            loss = tsr_cross_entropy(logits, y, TSR_MEAN);
        }
        tsr_minimize(tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4)),
                     loss);
        tsr_output(g, "loss", loss, p, TSR_B);
    } else {
        tsr_output(g, "result", result, p, TSR_B);
    }
    const tsr_status status = tsr_compile(g, out_plan);
    tsr_graph_destroy(g);
    return status;
}

/* Feeds numbers from 0 to 1, or ids below vocab, that follow from their indices. */
static tsr_status feed_input(tsr_plan *plan, const char *name, tsr_dims dims, tsr_dtype dtype,
                             int64_t vocab)
{
    const size_t n = (size_t)tsr_dims_count(dims);
    const size_t bytes = n * (vocab ? sizeof(int64_t) : tsr_dtype_size(dtype));
    void *const data = malloc(bytes);
    if (!data)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "no memory for the input %s", name);
    for (size_t i = 0; i < n; i++) {
        const int64_t id = (int64_t)(i * 7919 % 10007);
        if (vocab)
            ((int64_t *)data)[i] = id % vocab;
        else
            bench_put(data, dtype, i, (double)id / 10007);
    }
    const tsr_status status = tsr_feed(plan, name, data, bytes);
    free(data);
    return status;
}

static tsr_status feed_labels(const job *j, tsr_plan *plan)
{
    const int64_t classes = j->result.d[j->result.ndim - 1];
    const size_t n = (size_t)(tsr_dims_count(j->result) / classes);
    int64_t *const labels = malloc(n * sizeof *labels);
    if (!labels)
        return tsr_set_error(TSR_ERR_NO_MEMORY, "no memory for the labels");
    for (size_t i = 0; i < n; i++)
        labels[i] = (int64_t)(i * 3) % (classes < 10 ? classes : 10);
    const tsr_status status = tsr_feed(plan, "y", labels, n * sizeof *labels);
    free(labels);
    return status;
}

static tsr_status feed(const job *j, tsr_plan *plan)
{
    const bench_net *n = &j->net;
    TSR_TRY(feed_input(plan, "x", batch_of(j->batch, n->row), n->dtype, n->vocab));
    if (n->second.ndim)
        TSR_TRY(feed_input(plan, "second", second_dims(j), n->dtype, n->second_vocab));
    return j->training && n->loss == BENCH_CROSS_ENTROPY ? feed_labels(j, plan) : TSR_OK;
}

static size_t result_bytes(const job *j)
{
    return (size_t)tsr_dims_count(j->result) * tsr_dtype_size(j->result_dtype);
}

/* Runs a step and reads its loss, or in inference its whole result. */
static tsr_status run_step(const job *j, tsr_plan *plan, void *result, double *out_loss)
{
    TSR_TRY(tsr_run(plan));
    if (j->training)
        return tsr_fetch_scalar(plan, "loss", out_loss);
    TSR_TRY(tsr_fetch(plan, "result", result, result_bytes(j)));
    *out_loss = bench_get(result, j->result_dtype, 0);
    return TSR_OK;
}

/* Prints the end of an answer, whose times are printed. */
static tsr_status print_values(const job *j, const void *result, double loss)
{
    double squares = 0;
    const size_t n = j->training ? 0 : (size_t)tsr_dims_count(j->result);
    for (size_t i = 0; i < n; i++) {
        const double value = bench_get(result, j->result_dtype, i);
        squares += value * value;
    }
    if (!isfinite(loss) || !isfinite(squares))
        return tsr_set_error(TSR_ERR_NAN, "the %s is not finite", n ? "result" : "loss");
    printf("], \"loss\": %.9g", loss);
    if (n)
        printf(", \"size\": %.9g", sqrt(squares / (double)n));
    printf("}\n");
    fflush(stdout);
    return TSR_OK;
}

static tsr_status serve(tsr_world *w, const job *j, tsr_plan *plan, void *result)
{
    const bool chief = tsr_world_rank(w) == 0;
    char line[64];
    for (;;) {
        double loss = 0;
        if (chief)
            *j->steps = fgets(line, sizeof line, stdin) ? atol(line) : 0;
        TSR_TRY(tsr_world_barrier(w));
        const long steps = *j->steps;
        if (steps <= 0)
            return TSR_OK;
        TSR_TRY(run_step(j, plan, result, &loss));
        for (long i = 0; i < steps; i++) {
            const double start = now_ms();
            TSR_TRY(run_step(j, plan, result, &loss));
            if (chief)
                printf("%s%.4f", i ? ", " : "{\"ms\": [", now_ms() - start);
        }
        if (chief)
            TSR_TRY(print_values(j, result, loss));
    }
}

/* Compiles and feeds the net, and answers lines until the input ends. */
static tsr_status run_plan(tsr_world *w, job *j, const tsr_placement *p, tsr_module *net)
{
    tsr_plan *plan;
    TSR_TRY(compile(j, w, p, net, &plan));
    void *const result = malloc(j->training ? 1 : result_bytes(j));
    tsr_status status = result ? bench_fill(net) : tsr_set_error(TSR_ERR_NO_MEMORY, "no memory");
    if (status == TSR_OK)
        status = feed(j, plan);
    if (status == TSR_OK && tsr_world_rank(w) == 0) {
        printf("{\"parameters\": %lld}\n", (long long)tsr_module_count(net));
        fflush(stdout);
    }
    if (status == TSR_OK)
        status = serve(w, j, plan, result);
    free(result);
    tsr_plan_destroy(plan);
    return status;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    job j = *(const job *)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = p ? bench_net_make(w, p, &j.net) : NULL;
    return net ? run_plan(w, &j, p, net) : TSR_ERR_INVALID;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 5 ? argv[2] : "";
    const bool training = !strncmp(mode, "train", 5), infer = !strncmp(mode, "infer", 5);
    const char *type = training || infer ? mode + 5 : "?";
    if (*type && strcmp(type, "_bf16") != 0) {
        fprintf(stderr, "usage: %s NET train|train_bf16|infer|infer_bf16 BATCH RANKS\n", argv[0]);
        return 2;
    }
    long steps = 0;
    job j = {.training = training,
             .steps = &steps,
             .autocast = *type && training ? TSR_BF16 : TSR_DTYPE_NONE,
             .batch = atoll(argv[3])};
    tsr_status status = bench_net_find(argv[1], &j.net);
    if (*type && infer)
        j.net.dtype = TSR_BF16;
    if (status == TSR_OK)
        status = tsr_spawn_with(atoi(argv[4]), rank, &j, TSR_WORLD_OPTS(.timeout_s = 3600));
    if (status != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
