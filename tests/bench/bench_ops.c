/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times element-wise functions, broadcasts, reductions and what is made of them on one rank, f32,
 * and prints of each the least microseconds of its runs. ops.py runs it beside PyTorch.
 * usage: bench_ops ROWS COLUMNS SECONDS, each case taking SECONDS or 8 runs
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tessera/tessera.h>

enum { LEAST_RUNS = 8 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* X(name, expression of the operands); ops.py has the same names. */
// clang-format off
#define CASES(X) \
    X(add, tsr_add(v.x, v.x)) \
    X(add_row, tsr_add(v.x, v.row)) \
    X(add_column, tsr_add(v.x, v.column)) \
    X(mul_channels, tsr_mul(v.image, v.channels)) \
    X(exp, tsr_exp(v.x)) \
    X(expm1, tsr_expm1(v.x)) \
    X(log, tsr_log(v.x)) \
    X(log1p, tsr_log1p(v.x)) \
    X(log2, tsr_log2(v.x)) \
    X(tanh, tsr_tanh(v.x)) \
    X(sigmoid, tsr_sigmoid(v.x)) \
    X(silu, tsr_silu(v.x)) \
    X(gelu, tsr_gelu(v.x, TSR_GELU_ERF)) \
    X(gelu_tanh, tsr_gelu(v.x, TSR_GELU_TANH)) \
    X(softplus, tsr_softplus(v.x)) \
    X(erf, tsr_erf(v.x)) \
    X(sin, tsr_sin(v.x)) \
    X(cos, tsr_cos(v.x)) \
    X(rsqrt, tsr_rsqrt(v.x)) \
    X(pow_2, tsr_pow_scalar(v.x, 2)) \
    X(pow_3, tsr_pow_scalar(v.x, 3)) \
    X(pow_half, tsr_pow_scalar(v.x, 0.5)) \
    X(pow_2_7, tsr_pow_scalar(v.x, 2.7)) \
    X(pow, tsr_pow(v.x, v.x)) \
    X(less, tsr_less(v.x, v.row)) \
    X(sum_0, tsr_sum(v.x, TSR_AXES(0), false)) \
    X(sum_1, tsr_sum(v.x, TSR_AXES(1), false)) \
    X(sum_all, tsr_sum(v.x, TSR_ALL_AXES, false)) \
    X(max_0, tsr_max(v.x, TSR_AXES(0), false)) \
    X(max_1, tsr_max(v.x, TSR_AXES(1), false)) \
    X(sum_channels, tsr_sum(v.image, TSR_AXES(0, 2, 3), false)) \
    X(sum_short, tsr_sum(v.narrow, TSR_AXES(1), false)) \
    X(softmax_0, tsr_softmax(v.x, 0)) \
    X(softmax_1, tsr_softmax(v.x, 1)) \
    X(log_softmax_1, tsr_log_softmax(v.x, 1)) \
    X(cross_entropy, tsr_cross_entropy(v.x, v.labels, TSR_MEAN)) \
    X(cross_entropy_dx, gradient_of(tsr_cross_entropy(v.x, v.labels, TSR_MEAN), v.x)) \
    X(upsample, tsr_interpolate(v.image, 2 * v.height, 2 * v.width, TSR_NEAREST)) \
    X(upsample_linear, tsr_interpolate(v.image, 2 * v.height, 2 * v.width, TSR_BILINEAR))
// clang-format on

/* x[rows][columns], narrow[rows columns / 10][10], image[1][8][height][width] of as many elements,
 * and what is broadcast beside them. */
typedef struct operands {
    int64_t height, width;
    tsr_tensor *x, *row, *column, *narrow, *image, *channels, *labels;
} operands;

typedef struct options {
    int64_t rows, columns;
    double seconds;
} options;

static tsr_tensor *gradient_of(tsr_tensor *y, tsr_tensor *x)
{
    tsr_tensor *dx = NULL;
    tsr_gradients(y, 1, &x, &dx);
    return dx;
}

static const struct {
    const char *name;
    tsr_dtype dtype;
} inputs[] = {{"x", TSR_F32},     {"row", TSR_F32},      {"column", TSR_F32}, {"narrow", TSR_F32},
              {"image", TSR_F32}, {"channels", TSR_F32}, {"labels", TSR_I64}};
enum { INPUTS = sizeof inputs / sizeof inputs[0] };

#define NAME(n, expression) #n,
static const char *const names[] = {CASES(NAME)};
#undef NAME

static tsr_tensor *result_of(int i, operands v)
{
    int at = 0;
#define MAKE(n, expression) \
    if (at++ == i)          \
        return expression;
    CASES(MAKE)
#undef MAKE
    return NULL;
}

/* Numbers of 0.1 up to 2.1, and labels of 0 up to 9. */
static tsr_status feed(tsr_plan *plan, int input, size_t count)
{
    const size_t size = tsr_dtype_size(inputs[input].dtype);
    char *data = malloc(count * size);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    for (size_t k = 0; k < count; k++)
        if (inputs[input].dtype == TSR_F32)
            ((float *)(void *)data)[k] = (float)(k * 2654435761U % 2001) / 1000 + 0.1f;
        else
            ((int64_t *)(void *)data)[k] = (int64_t)(k % 10);
    const tsr_status status = tsr_feed(plan, inputs[input].name, data, count * size);
    free(data);
    return status;
}

static tsr_status measure_case(tsr_world *w, const options *o, int i)
{
    const int64_t count = o->rows * o->columns;
    operands v = {.height = o->rows / 4, .width = o->columns / 2};
    const tsr_dims dims[INPUTS] = {TSR_DIMS(o->rows, o->columns),
                                   TSR_DIMS(o->columns),
                                   TSR_DIMS(o->rows, 1),
                                   TSR_DIMS(count / 10, 10),
                                   TSR_DIMS(1, 8, v.height, v.width),
                                   TSR_DIMS(8, 1, 1),
                                   TSR_DIMS(o->rows)};
    tsr_tensor **const at[INPUTS] = {&v.x,     &v.row,      &v.column, &v.narrow,
                                     &v.image, &v.channels, &v.labels};
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    for (int k = 0; k < INPUTS; k++)
        *at[k] = tsr_input(g, inputs[k].name, inputs[k].dtype, dims[k], p, TSR_B);
    tsr_output(g, "y", result_of(i, v), p, TSR_B);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan));
    for (int k = 0; k < INPUTS; k++)
        TSR_TRY(feed(plan, k, (size_t)tsr_dims_count(dims[k])));
    double least = 1e18;
    double start = now_us(), last = start;
    for (int run = 0; run < LEAST_RUNS || last - start < 1e6 * o->seconds; run++) {
        const double begin = last;
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_wait(plan));
        last = now_us();
        least = last - begin < least ? last - begin : least;
    }
    printf("%s %.2f\n", names[i], least);
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    return TSR_OK;
}

static tsr_status measure(tsr_world *w, void *arg)
{
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        TSR_TRY(measure_case(w, arg, i));
    return TSR_OK;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s ROWS COLUMNS SECONDS\n", argv[0]);
        return 2;
    }
    options o = {atoll(argv[1]), atoll(argv[2]), atof(argv[3])};
    if (tsr_spawn(1, measure, &o) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
