/* SPDX-License-Identifier: Apache-2.0 */
/* The fast and oneDNN convolutions on shapes with tails and edges, of every instruction set that
 * this machine has, by every way of computing them, against plain loops in double. */
#include "tests/kernels/fast/fast_case.h"
#include "tests/sample.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

static const char *const isas[] = {"base", "avx2", "avx512"};

/* Errors, relative to the largest value. Winograd's have been up to 2.6e-6, with 512 channels. */
static const double plain_tolerance = 3e-6, winograd_tolerance = 5e-6;
static const double onednn_tolerance = 2e-5; /* it sums 137,000 products one by one */

typedef struct conv_shape {
    int64_t n, ci, co, h, w, groups;
    int kernel, stride, pad, dilation;
} conv_shape;

static const conv_shape convs[] = {
    {2, 24, 24, 5, 7, 24, 3, 1, 1, 1},   {1, 24, 24, 5, 7, 24, 3, 2, 1, 1},
    {3, 40, 40, 1, 1, 40, 3, 1, 1, 1},   {70, 17, 17, 2, 2, 17, 3, 1, 1, 1},
    {33, 32, 32, 2, 2, 32, 3, 2, 1, 1},  {1, 3, 3, 9, 8, 3, 5, 2, 2, 1},
    {2, 19, 19, 9, 8, 19, 3, 1, 2, 2},   {2, 16, 16, 7, 3, 16, 3, 1, 0, 1},
    {2, 3, 32, 9, 11, 1, 3, 2, 1, 1},    {1, 3, 6, 12, 12, 1, 5, 1, 0, 1},
    {3, 6, 16, 7, 9, 1, 5, 1, 2, 2},     {1, 1, 1, 4, 4, 1, 3, 1, 1, 1},
    {1, 24, 10, 3, 5, 1, 1, 1, 0, 1},    {7, 13, 97, 3, 7, 1, 1, 1, 0, 1},
    {5, 160, 55, 1, 1, 1, 1, 1, 0, 1},   {40, 24, 49, 5, 3, 1, 1, 1, 0, 1},
    {2, 600, 33, 1, 3, 1, 1, 1, 0, 1},   {3, 20, 24, 7, 5, 1, 3, 1, 1, 1},
    {2, 32, 48, 7, 5, 4, 3, 2, 1, 1},    {2, 32, 48, 6, 6, 1, 1, 2, 0, 1},
    {2, 19, 19, 9, 8, 19, 3, 1, 1, 2},   {2, 16, 16, 9, 9, 16, 3, 2, 1, 2},
    {1, 9, 9, 6, 7, 9, 3, 1, 1, 3},      {3, 6, 16, 30, 31, 1, 3, 1, 1, 1},
    {2, 24, 24, 8, 8, 1, 3, 1, 1, 1},    {1, 16, 17, 1, 9, 1, 3, 1, 1, 1},
    {2, 70, 50, 6, 6, 1, 3, 1, 0, 1},    {2, 33, 40, 5, 7, 1, 3, 1, 3, 1},
    {1, 18, 33, 4, 1, 1, 3, 1, 2, 1},    {1, 17, 5, 3, 3, 1, 3, 1, 0, 1},
    {5, 24, 40, 4, 4, 1, 3, 2, 1, 1},    {3, 30, 20, 9, 7, 5, 3, 1, 1, 1},
    {2, 12, 18, 8, 5, 3, 5, 3, 2, 2},    {4, 10, 12, 7, 7, 2, 1, 3, 1, 1},
    {1, 20, 9, 40, 3, 1, 7, 2, 3, 1},    {9, 9, 21, 3, 5, 1, 2, 3, 0, 1},
    {2, 5, 7, 9, 33, 1, 3, 1, 2, 2},     {2, 5, 3, 40, 21, 1, 5, 1, 4, 1},
    {1, 7, 2, 20, 300, 1, 3, 1, 0, 1},   {1, 4, 1, 3, 9, 1, 3, 1, 3, 1},
    {1, 17, 17, 20, 21, 17, 9, 1, 4, 1}, {3, 5, 2, 7, 64, 1, 1, 1, 1, 1},
    {2, 512, 200, 4, 5, 1, 3, 1, 1, 1},  {1, 3, 2, 370, 370, 1, 3, 1, 1, 1},
    {3, 6, 16, 14, 14, 1, 5, 1, 0, 1},   {2, 3, 6, 32, 32, 1, 5, 1, 0, 1},
    {2, 4, 20, 5, 33, 1, 3, 1, 0, 1},    {2, 2, 9, 9, 40, 1, 4, 1, 1, 2},
    {2, 5, 3, 4, 16, 1, 3, 1, 2, 1},     {1, 1, 20, 12, 12, 1, 5, 2, 1, 1},
    {11, 40, 24, 6, 6, 1, 5, 1, 2, 1},   {1, 20, 50, 40, 30, 1, 5, 1, 2, 1},
    {3, 64, 48, 25, 25, 1, 7, 2, 3, 1},  {2, 20, 33, 25, 13, 1, 3, 1, 2, 2},
    {3, 18, 20, 2, 3, 1, 3, 1, 5, 1},    {2, 48, 40, 19, 11, 2, 5, 2, 4, 1},
    {5, 6, 20, 9, 11, 1, 5, 1, 1, 1},    {2, 12, 300, 5, 6, 1, 5, 1, 0, 1},
    {7, 20, 8, 6, 7, 1, 4, 1, 3, 1},     {4, 2, 3, 3, 9, 1, 2, 1, 0, 1},
    {3, 3, 20, 12, 11, 1, 4, 2, 1, 1},   {2, 1, 8, 9, 14, 1, 5, 3, 2, 1},
    {1, 2, 300, 7, 65, 1, 4, 2, 1, 1},   {2, 3, 5, 8, 10, 1, 3, 3, 0, 1},
    {5, 4, 9, 2, 3, 1, 4, 4, 3, 1},      {2, 3, 6, 40, 1, 1, 3, 2, 1, 1},
};

enum { CONVS = sizeof convs / sizeof *convs };

static int64_t reach(int64_t in, const conv_shape *s)
{
    return (in + 2 * s->pad - s->dilation * (s->kernel - 1) - 1) / s->stride + 1;
}

/* Computes y and both gradients from x, w and dy by their formulas. */
static void conv_loops(const conv_shape *s, const float *x, const float *w, const float *dy,
                       double *y, double *dx, double *dw)
{
    int64_t oh = reach(s->h, s), ow = reach(s->w, s), ig = s->ci / s->groups;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t o = 0; o < s->co; o++)
            for (int64_t i = 0; i < ig; i++)
                for (int64_t p = 0; p < oh * ow; p++)
                    for (int k = 0; k < s->kernel * s->kernel; k++) {
                        int64_t h = p / ow * s->stride - s->pad + k / s->kernel * s->dilation;
                        int64_t v = p % ow * s->stride - s->pad + k % s->kernel * s->dilation;
                        if (h < 0 || h >= s->h || v < 0 || v >= s->w)
                            continue;
                        int64_t c = o / (s->co / s->groups) * ig + i;
                        int64_t xi = ((n * s->h + h) * s->w + v) * s->ci + c;
                        int64_t wi = (o * ig + i) * s->kernel * s->kernel + k;
                        int64_t yi = (n * oh * ow + p) * s->co + o;
                        y[yi] += (double)x[xi] * (double)w[wi];
                        dx[xi] += (double)dy[yi] * (double)w[wi];
                        dw[wi] += (double)dy[yi] * (double)x[xi];
                    }
}

/* A convolution's operands, what each op gives, and what it should. */
typedef struct conv_case {
    const conv_shape *shape;
    tsri_attrs attrs;
    fc_tensor x, w, bias, dy, result[3]; /* y, dx, dw */
    double *want[3];
} conv_case;

static const tsri_op_kind ops[] = {TSRI_OP_CONV2D, TSRI_OP_CONV2D_DX, TSRI_OP_CONV2D_DW};

static conv_case make_case(const conv_shape *s)
{
    const int64_t oh = reach(s->h, s), ow = reach(s->w, s), ig = s->ci / s->groups;
    conv_case c = {.shape = s,
                   .attrs.conv = {.stride = {s->stride, s->stride},
                                  .pad = {s->pad, s->pad},
                                  .dilation = {s->dilation, s->dilation},
                                  .kernel = {s->kernel, s->kernel},
                                  .groups = s->groups},
                   .x = fc_images(s->n, s->ci, s->h, s->w),
                   .w = fc_rows(TSR_F32, 4, s->co, ig, s->kernel, s->kernel),
                   .bias = fc_rows(TSR_F32, 1, s->co, 0, 0, 0),
                   .dy = fc_images(s->n, s->co, oh, ow),
                   .result = {fc_images(s->n, s->co, oh, ow), fc_images(s->n, s->ci, s->h, s->w),
                              fc_rows(TSR_F32, 4, s->co, ig, s->kernel, s->kernel)}};
    for (int i = 0; i < 3; i++) {
        c.want[i] = calloc((size_t)c.result[i].n, sizeof *c.want[i]);
        assert_non_null(c.want[i]);
    }
    conv_loops(s, c.x.data, c.w.data, c.dy.data, c.want[0], c.want[1], c.want[2]);
    for (int64_t i = 0; i < c.dy.n; i++)
        c.want[0][i] += (double)((float *)c.bias.data)[i % s->co];
    return c;
}

static void free_case(conv_case *c)
{
    fc_free(7, (fc_tensor *[]){&c->x, &c->w, &c->bias, &c->dy, &c->result[0], &c->result[1],
                               &c->result[2]});
    for (int i = 0; i < 3; i++)
        free(c->want[i]);
}

/* Returns whether the implementation takes op i of the case. */
static bool run_op(conv_case *c, const tsri_kernels *impl, int i)
{
    fc_tensor *const in[3][3] = {{&c->x, &c->w, &c->bias}, {&c->dy, &c->w}, {&c->x, &c->dy}};
    return fc_run(impl, ops[i], &c->attrs, c->shape->groups, i ? 2 : 3, in[i], 1,
                  (fc_tensor *[]){&c->result[i]});
}

/* Returns how many of the case's ops the implementation takes, having compared them. */
static int check_case(conv_case *c, const tsri_kernels *impl, double tolerance)
{
    int ran = 0;
    for (int i = 0; i < 3; i++) {
        const conv_shape *s = c->shape;
        char what[160];
        snprintf(what, sizeof what,
                 "%s %s of %ldx%ldx%ldx%ld to %ld, kernel %d, ISA %s, Winograd %s", impl->name,
                 tsri_op_name(ops[i]), (long)s->n, (long)s->ci, (long)s->h, (long)s->w, (long)s->co,
                 s->kernel, getenv("TESSERA_CPU_ISA"), getenv("TESSERA_CPU_WINOGRAD"));
        if (!run_op(c, impl, i))
            continue;
        fc_close_to(what, c->result[i].data, c->want[i], c->result[i].n, tolerance);
        ran++;
    }
    return ran;
}

/* A shape in every instruction set, alone and in a team, with Winograd's transforms and without. */
static int check_all_ways(conv_case *c)
{
    int ran = 0;
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        setenv("TESSERA_CPU_ISA", isas[i], 1);
        for (int way = 0; way < 4; way++) {
            omp_set_num_threads(way & 1 ? 3 : 1);
            setenv("TESSERA_CPU_WINOGRAD", way & 2 ? "1" : "0", 1);
            ran += check_case(c, &tsri_kernels_cpu_fast,
                              way & 2 ? winograd_tolerance : plain_tolerance);
        }
    }
    unsetenv("TESSERA_CPU_ISA");
    unsetenv("TESSERA_CPU_WINOGRAD");
    return ran;
}

static void test_values(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    int onednn = 0;
    for (int k = 0; k < CONVS; k++) {
        conv_case c = make_case(&convs[k]);
        assert_int_equal(check_all_ways(&c), 3 * 3 * 4);
        onednn += check_case(&c, &tsri_kernels_cpu_onednn, onednn_tolerance);
        free_case(&c);
    }
    omp_set_num_threads(before);
    print_message("onednn: %d of %d convolutions\n", onednn, 3 * CONVS);
}

/* Computes op i with so many threads; the caller frees what it returns. */
static float *result_of(conv_case *c, int i, int threads, const char *winograd)
{
    const size_t bytes = (size_t)c->result[i].n * sizeof(float);
    omp_set_num_threads(threads);
    if (winograd)
        setenv("TESSERA_CPU_WINOGRAD", winograd, 1);
    assert_true(run_op(c, &tsri_kernels_cpu_fast, i));
    unsetenv("TESSERA_CPU_WINOGRAD");
    float *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, c->result[i].data, bytes);
    return copy;
}

/* Returns whether two results are the same bits; frees them. */
static bool same_bits(const conv_case *c, int i, float *a, float *b)
{
    const bool same = !memcmp(a, b, (size_t)c->result[i].n * sizeof(float));
    free(a);
    free(b);
    return same;
}

static int64_t draw(uint64_t *state, int64_t low, int64_t high)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return low + (int64_t)((*state >> 33) % (uint64_t)(high - low + 1));
}

/* Windows that reach beyond images on any side, by up to more than their own size. */
static void test_drawn_shapes(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    uint64_t s = 16;
    for (int k = 0; k < 60 / test_sample();) {
        conv_shape shape = {.n = draw(&s, 1, 7), .groups = draw(&s, 1, 4) == 1 ? 2 : 1};
        shape.ci = shape.groups * draw(&s, 1, 24);
        shape.co = shape.groups * draw(&s, 1, 40);
        shape.h = draw(&s, 1, 20);
        shape.w = draw(&s, 1, 20);
        shape.kernel = (int)draw(&s, 2, 6);
        shape.stride = (int)draw(&s, 1, 3);
        shape.dilation = (int)draw(&s, 1, 2);
        shape.pad = (int)draw(&s, 0, shape.kernel * shape.dilation);
        if (reach(shape.h, &shape) < 1 || reach(shape.w, &shape) < 1)
            continue;
        conv_case c = make_case(&shape);
        assert_int_equal(check_all_ways(&c), 3 * 3 * 4);
        for (int i = 0; i < 2; i++)
            assert_true(same_bits(&c, i, result_of(&c, i, 3, "0"), result_of(&c, i, 1, "0")));
        free_case(&c);
        k++;
    }
    omp_set_num_threads(before);
}

/* Winograd's transforms are used where they save enough, as TESSERA_CPU_WINOGRAD says otherwise;
 * their sums differ in the last bits, which tells them apart. */
static void test_choice(void **state)
{
    (void)state;
    static const struct {
        conv_shape shape;
        bool possible, chosen;
    } cases[] = {
        {{8, 64, 64, 16, 16, 1, 3, 1, 1, 1}, true, true},
        {{2, 16, 16, 32, 32, 1, 3, 1, 1, 1}, true, true},
        {{1, 256, 256, 2, 2, 1, 3, 1, 1, 1},
         true,
         false}, /* of one tile, more weights than pixels */
        {{2, 3, 16, 16, 16, 1, 3, 1, 1, 1}, true, false}, /* few channels */
        {{2, 64, 64, 16, 16, 1, 3, 2, 1, 1}, false, false},
        {{2, 64, 64, 16, 16, 1, 3, 1, 2, 2}, false, false},
        {{2, 64, 64, 8, 8, 1, 5, 1, 2, 1}, false, false},
    };
    const int before = omp_get_max_threads();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        conv_case c = make_case(&cases[k].shape);
        for (int i = 0; i < 3; i++) {
            const bool possible =
                !same_bits(&c, i, result_of(&c, i, 1, "0"), result_of(&c, i, 1, "1"));
            const bool chosen =
                !same_bits(&c, i, result_of(&c, i, 1, "0"), result_of(&c, i, 1, NULL));
            if (possible != cases[k].possible || chosen != cases[k].chosen)
                fail_msg("case %zu, %s: Winograd is %spossible and %schosen", k,
                         tsri_op_name(ops[i]), possible ? "" : "not ", chosen ? "" : "not ");
        }
        free_case(&c);
    }
    omp_set_num_threads(before);
}

/* A kernel gives the same bits in each run. With one thread and with two, y and dx have the same
 * bits as well; dw may differ, since each thread sums its own images. */
static void test_bits(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    for (int k = 0; k < CONVS; k++) {
        conv_case c = make_case(&convs[k]);
        for (int i = 0; i < 6; i++) {
            const char *winograd = i < 3 ? "0" : "1";
            const int op = i % 3;
            assert_true(
                same_bits(&c, op, result_of(&c, op, 2, winograd), result_of(&c, op, 2, winograd)));
            assert_true(op == 2 || same_bits(&c, op, result_of(&c, op, 2, winograd),
                                             result_of(&c, op, 1, winograd)));
        }
        free_case(&c);
    }
    omp_set_num_threads(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_drawn_shapes),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
