/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times single ops, f32, one plan each, on one rank, for scripts/bench, which runs it beside
 * PyTorch. usage: bench_ops
 *
 * Prints {"ops": [...]}. Then for each line "OP SIZE RUNS" of its input: runs the op once and then
 * RUNS times, and prints {"ms": [X], "sum": Y}: the mean time of a run, and the sum of the result.
 * Operands are (SIZE / 1000, 1000); of matmul and linear the second is (1000, 1000).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tessera/tessera.h>

enum { COLUMNS = 1000 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* x and y are (rows, 1000), w (1000, 1000), v (1000). All elements lie in (0.1, 0.9). */
typedef struct operands {
    tsr_tensor *x, *y, *w, *v;
} operands;

typedef struct op {
    const char *name;
    tsr_tensor *(*make)(const operands *o);
} op;

#define OPS(OP)                                             \
    OP(neg, tsr_neg(o->x))                                  \
    OP(abs, tsr_abs(o->x))                                  \
    OP(square, tsr_square(o->x))                            \
    OP(sqrt, tsr_sqrt(o->x))                                \
    OP(rsqrt, tsr_rsqrt(o->x))                              \
    OP(reciprocal, tsr_reciprocal(o->x))                    \
    OP(exp, tsr_exp(o->x))                                  \
    OP(log, tsr_log(o->x))                                  \
    OP(log1p, tsr_log1p(o->x))                              \
    OP(sin, tsr_sin(o->x))                                  \
    OP(cos, tsr_cos(o->x))                                  \
    OP(tanh, tsr_tanh(o->x))                                \
    OP(erf, tsr_erf(o->x))                                  \
    OP(floor, tsr_floor(o->x))                              \
    OP(relu, tsr_relu(o->x))                                \
    OP(relu6, tsr_relu6(o->x))                              \
    OP(sigmoid, tsr_sigmoid(o->x))                          \
    OP(silu, tsr_silu(o->x))                                \
    OP(hardswish, tsr_hardswish(o->x))                      \
    OP(mish, tsr_mish(o->x))                                \
    OP(softplus, tsr_softplus(o->x))                        \
    OP(gelu, tsr_gelu(o->x, TSR_GELU_ERF))                  \
    OP(gelu_tanh, tsr_gelu(o->x, TSR_GELU_TANH))            \
    OP(clamp, tsr_clamp(o->x, 0.25, 0.75))                  \
    OP(add, tsr_add(o->x, o->y))                            \
    OP(sub, tsr_sub(o->x, o->y))                            \
    OP(mul, tsr_mul(o->x, o->y))                            \
    OP(div, tsr_div(o->x, o->y))                            \
    OP(pow, tsr_pow(o->x, o->y))                            \
    OP(maximum, tsr_maximum(o->x, o->y))                    \
    OP(add_row, tsr_add(o->x, o->v))                        \
    OP(sum, tsr_sum(o->x, TSR_ALL_AXES, false))             \
    OP(sum_rows, tsr_sum(o->x, TSR_AXES(0), false))         \
    OP(sum_columns, tsr_sum(o->x, TSR_AXES(1), false))      \
    OP(mean, tsr_mean(o->x, TSR_ALL_AXES, false))           \
    OP(max, tsr_max(o->x, TSR_AXES(1), false))              \
    OP(variance, tsr_variance(o->x, TSR_AXES(1), false, 1)) \
    OP(norm, tsr_norm(o->x, 2, TSR_ALL_AXES, false))        \
    OP(cumsum, tsr_cumsum(o->x, 1))                         \
    OP(softmax, tsr_softmax(o->x, 1))                       \
    OP(log_softmax, tsr_log_softmax(o->x, 1))               \
    OP(layer_norm, tsr_layer_norm(o->x, o->v, o->v, NULL))  \
    OP(transpose, tsr_transpose(o->x, 0, 1))                \
    OP(matmul, tsr_matmul(o->x, o->w))                      \
    OP(linear, tsr_linear(o->x, o->w, o->v))

#define DEFINE(name, result)                          \
    static tsr_tensor *make_##name(const operands *o) \
    {                                                 \
        return result;                                \
    }
OPS(DEFINE)
#define ROW(name, result) {#name, make_##name},
static const op ops[] = {OPS(ROW)};
enum { NOPS = sizeof ops / sizeof *ops };

/* Feeds an input that the plan reads; the others are not there. */
static tsr_status feed(tsr_plan *plan, int64_t count, int salt, const char *name)
{
    bool there = false;
    for (int i = 0; i < tsr_plan_nports(plan); i++)
        there = there || !strcmp(tsr_plan_port(plan, i).name, name);
    if (!there)
        return TSR_OK;
    float *data = malloc((size_t)count * sizeof *data);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)(0.1 + 0.8 * (double)((i * 7919 + salt) % 10007) / 10007);
    const tsr_status status = tsr_feed(plan, name, data, (size_t)count * sizeof *data);
    free(data);
    return status;
}

static tsr_status compile(tsr_world *w, const op *made, int64_t rows, tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    const operands o = {tsr_input(g, "x", TSR_F32, TSR_DIMS(rows, COLUMNS), p, TSR_B),
                        tsr_input(g, "y", TSR_F32, TSR_DIMS(rows, COLUMNS), p, TSR_B),
                        tsr_input(g, "w", TSR_F32, TSR_DIMS(COLUMNS, COLUMNS), p, TSR_B),
                        tsr_input(g, "v", TSR_F32, TSR_DIMS(COLUMNS), p, TSR_B)};
    tsr_output(g, "result", made->make(&o), p, TSR_B);
    const tsr_status status = tsr_compile(g, out_plan);
    tsr_graph_destroy(g);
    TSR_TRY(status);
    TSR_TRY(feed(*out_plan, rows * COLUMNS, 0, "x"));
    TSR_TRY(feed(*out_plan, rows * COLUMNS, 5003, "y"));
    TSR_TRY(feed(*out_plan, (int64_t)COLUMNS * COLUMNS, 97, "w"));
    return feed(*out_plan, COLUMNS, 31, "v");
}

static tsr_status sum_result(tsr_plan *plan, double *out_sum)
{
    tsr_dims dims;
    TSR_TRY(tsr_fetch_shard(plan, "result", NULL, 0, &dims));
    const size_t n = (size_t)tsr_dims_count(dims);
    float *data = malloc(n * sizeof *data);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr_fetch(plan, "result", data, n * sizeof *data);
    *out_sum = 0;
    for (size_t i = 0; i < n && status == TSR_OK; i++)
        *out_sum += (double)data[i];
    free(data);
    return status;
}

static tsr_status measure(tsr_world *w, const char *name, long size, long runs)
{
    for (int i = 0; i < NOPS; i++) {
        if (strcmp(ops[i].name, name) != 0)
            continue;
        tsr_plan *plan;
        double sum;
        TSR_TRY(compile(w, &ops[i], size / COLUMNS, &plan));
        TSR_TRY(tsr_run(plan));
        const double start = now_ms();
        for (long k = 0; k < runs; k++)
            TSR_TRY(tsr_run(plan));
        const double ms = (now_ms() - start) / (double)runs;
        TSR_TRY(sum_result(plan, &sum));
        tsr_plan_destroy(plan);
        printf("{\"ms\": [%.6f], \"sum\": %.9g}\n", ms, sum);
        fflush(stdout);
        return TSR_OK;
    }
    return tsr_set_error(TSR_ERR_INVALID, "there is no op %s", name);
}

static tsr_status serve(tsr_world *w, void *arg)
{
    (void)arg;
    char line[128], name[64];
    long size, runs;
    for (int i = 0; i < NOPS; i++)
        printf("%s\"%s\"", i ? ", " : "{\"ops\": [", ops[i].name);
    printf("]}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%63s %ld %ld", name, &size, &runs) != 3 || size < COLUMNS || runs < 1)
            return tsr_set_error(TSR_ERR_INVALID, "not \"OP SIZE RUNS\": %s", line);
        TSR_TRY(measure(w, name, size, runs));
    }
    return TSR_OK;
}

int main(void)
{
    if (tsr_spawn(1, serve, NULL) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
