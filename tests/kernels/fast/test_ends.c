/* SPDX-License-Identifier: Apache-2.0 */
/* Ends: convolutions and linear layers that scale, shift, add and activate their result where they
 * make it. They give the bits of the kernels that do so one behind the other, on each instruction
 * set, with and without packed weights that are kept, whole and by pieces. */
#include "kernels/cpu/chain.h"
#include "tests/kernels/fast/fast_case.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

static const tsri_kernels *const list[] = {&tsri_kernels_cpu_fast, &tsri_kernels_cpu_ref, NULL};
static const char *const isas[] = {"base", "avx2", "avx512"};

typedef struct layer {
    const char *name;
    int64_t n, ci, co, h, w, groups;
    int kernel, stride, pad;
    bool bias, takes; /* takes: its kernel takes an end, with any instruction set */
} layer;

static const layer layers[] = {
    {"Winograd", 2, 32, 48, 13, 10, 1, 3, 1, 1, true, true},
    {"Winograd, groups of columns", 1, 512, 520, 5, 6, 1, 3, 1, 1, false, true},
    {"direct", 2, 24, 37, 15, 11, 1, 5, 2, 2, true, true},
    {"direct, no padding", 3, 16, 20, 9, 9, 1, 3, 2, 0, false, true},
    {"groups", 2, 24, 36, 12, 9, 4, 3, 1, 1, true, true},
    {"depthwise", 2, 40, 40, 21, 33, 40, 3, 1, 1, false, true},
    {"depthwise, stride", 3, 17, 17, 16, 9, 17, 5, 2, 2, true, true},
    {"pointwise", 2, 24, 50, 9, 11, 1, 1, 1, 0, true, true},
    {"pointwise, many rows", 2, 48, 40, 40, 31, 1, 1, 1, 0, false, true},
    {"pointwise, few rows", 1, 200, 80, 5, 5, 1, 1, 1, 0, true, true},
    {"pointwise, one row", 1, 200, 80, 1, 1, 1, 1, 1, 0, true, true},
    {"three channels", 2, 3, 32, 23, 21, 1, 3, 2, 1, true, false},
    {"linear", 70, 40, 56, 0, 0, 0, 0, 0, 0, true, true},
    {"linear, few rows", 3, 300, 200, 0, 0, 0, 0, 0, 0, true, true},
};

typedef enum step { END = 0, NORM, ADD, RELU, RELU6, SILU } step;
static const step tails[][4] = {
    {NORM},       {NORM, RELU}, {NORM, RELU6}, {NORM, ADD},  {NORM, ADD, RELU},
    {ADD, RELU6}, {RELU},       {ADD},         {NORM, SILU}, {SILU}};
enum { TAILS = sizeof tails / sizeof tails[0], LAYERS = sizeof layers / sizeof layers[0] };

/* Values by number: x, w, bias, scale, shift, addend; the result; what is between. */
enum { X, W, BIAS, SCALE, SHIFT, ADDEND, GIVEN, Y = GIVEN, INNER };

typedef struct chain {
    tsri_chain_desc d;
    tsri_attrs attrs[4];
    fc_tensor value[INNER + 3];
    int nvalues;
} chain;

static fc_tensor result_of(const layer *l)
{
    const int64_t h = l->kernel ? (l->h + 2 * l->pad - l->kernel) / l->stride + 1 : 0;
    const int64_t w = l->kernel ? (l->w + 2 * l->pad - l->kernel) / l->stride + 1 : 0;
    return l->kernel ? fc_images(l->n, l->co, h, w) : fc_rows(TSR_F32, 2, l->n, l->co, 0, 0);
}

static void add_member(chain *c, tsri_op_kind op, tsri_attrs attrs, int64_t groups, int nin,
                       const int *in, int out)
{
    const int m = c->d.n++;
    c->attrs[m] = attrs;
    tsri_kernel_desc *d = &c->d.member[m];
    *d = (tsri_kernel_desc){.op = op, .attrs = &c->attrs[m], .nin = nin, .nout = 1};
    d->groups = groups;
    for (int i = 0; i < nin; i++) {
        d->in[i] = c->value[in[i]].arg;
        c->d.in[m][i] = in[i];
    }
    d->out[0] = c->value[out].arg;
    c->d.out[m][0] = out;
}

static void add_layer(chain *c, const layer *l, int out)
{
    const tsri_attrs at = {.conv = {.stride = {l->stride, l->stride},
                                    .pad = {l->pad, l->pad},
                                    .dilation = {1, 1},
                                    .kernel = {l->kernel, l->kernel},
                                    .groups = l->groups}};
    add_member(c, l->kernel ? TSRI_OP_CONV2D : TSRI_OP_LINEAR, l->kernel ? at : (tsri_attrs){0},
               l->groups, l->bias ? 3 : 2, (int[]){X, W, BIAS}, out);
}

static void add_step(chain *c, step s, int in, int out)
{
    const tsri_attrs fn = {.unary.fn = s == RELU    ? TSRI_UNARY_RELU
                                       : s == RELU6 ? TSRI_UNARY_RELU6
                                                    : TSRI_UNARY_SILU};
    if (s == NORM)
        add_member(c, TSRI_OP_SCALE_SHIFT, (tsri_attrs){0}, 0, 3, (int[]){in, SCALE, SHIFT}, out);
    else if (s == ADD)
        add_member(c, TSRI_OP_BINARY, (tsri_attrs){.binary.fn = TSRI_BINARY_ADD}, 0, 2,
                   (int[]){ADDEND, in}, out);
    else
        add_member(c, TSRI_OP_UNARY, fn, 0, 1, (int[]){in}, out);
}

static void make(chain *c, const layer *l, const step *tail)
{
    memset(c, 0, sizeof *c);
    const int k = l->kernel ? l->kernel : 0;
    c->value[X] = k ? fc_images(l->n, l->ci, l->h, l->w) : fc_rows(TSR_F32, 2, l->n, l->ci, 0, 0);
    c->value[W] = k ? fc_rows(TSR_F32, 4, l->co, l->ci / l->groups, k, k)
                    : fc_rows(TSR_F32, 2, l->co, l->ci, 0, 0);
    for (int v = BIAS; v <= SHIFT; v++)
        c->value[v] = fc_rows(TSR_F32, 1, l->co, 0, 0, 0);
    c->value[ADDEND] = result_of(l);
    int steps = 0;
    while (steps < 4 && tail[steps])
        steps++;
    for (int i = 0; i <= steps; i++)
        c->value[GIVEN + i] = result_of(l);
    c->nvalues = GIVEN + 1 + steps;
    c->d.ngiven = GIVEN;
    c->d.nouter = 1;
    c->d.ninner = steps;
    add_layer(c, l, INNER);
    for (int i = 0; i < steps; i++)
        add_step(c, tail[i], INNER + i, i + 1 < steps ? INNER + i + 1 : Y);
}

static void *aligned(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, (bytes + 127) / 64 * 64);
    return p;
}

/* Runs the members' own kernels, one behind the other. */
static void run_in_turn(const chain *c)
{
    for (int m = 0; m < c->d.n; m++) {
        void *in[3] = {NULL}, *out = c->value[c->d.out[m][0]].data;
        tsri_kernel *k;
        for (int i = 0; i < c->d.member[m].nin; i++)
            in[i] = c->value[c->d.in[m][i]].data;
        assert_int_equal(tsri_kernel_create(NULL, list, &c->d.member[m], &k), TSR_OK);
        void *scratch = aligned(k->scratch_bytes);
        assert_int_equal(k->run(k, in, &out, scratch), TSR_OK);
        free(scratch);
        k->destroy(k);
    }
}

/* Kernels in turn need no room of their own for what only element-wise ones read. */
static void check_scratch(const chain *c, const tsri_chain *k)
{
    size_t most = 0;
    for (int m = 0; m < k->n; m++) {
        most = k->kernel[m]->scratch_bytes > most ? k->kernel[m]->scratch_bytes : most;
        if (c->d.member[m].op == TSRI_OP_BINARY) /* reads its second operand */
            return;
    }
    assert_true(k->base.scratch_bytes <= (most + 63) / 64 * 64);
}

/* Runs the chain into y; returns its number of kernels. */
static int run_chain(const chain *c, bool fixed, size_t piece_bytes, float *y)
{
    tsri_chain_desc d = c->d;
    tsri_kernel *k;
    void *in[GIVEN + 1], *out = y;
    for (int i = 0; i < GIVEN; i++)
        in[i] = c->value[i].data;
    d.member[0].fixed = fixed ? 1u << 1 : 0;
    d.piece_bytes = piece_bytes;
    assert_int_equal(tsri_chain_create(NULL, list, &d, &k), TSR_OK);
    void *scratch = aligned(k->scratch_bytes), *kept = aligned(k->kept_bytes);
    memset(kept, 0, k->kept_bytes);
    memset(y, 0xff, (size_t)c->value[Y].n * sizeof *y);
    assert_int_equal(k->keep ? k->keep(k, in, kept, scratch) : TSR_OK, TSR_OK);
    in[GIVEN] = kept;
    assert_int_equal(k->run(k, in, &out, scratch), TSR_OK);
    for (int i = 0; i < c->d.n; i++)
        assert_non_null(tsri_chain_impl(k, i));
    const int n = ((const tsri_chain *)k)->n;
    check_scratch(c, (const tsri_chain *)k);
    k->destroy(k);
    free(scratch);
    free(kept);
    return n;
}

static void check(const layer *l, int tail, int at)
{
    chain c;
    setenv("TESSERA_CPU_ISA", isas[at % 3], 1);
    setenv("TESSERA_CPU_WINOGRAD", strncmp(l->name, "Winograd", 8) ? "0" : "1", 1);
    omp_set_num_threads(1 + at / 3 % 3);
    make(&c, l, tails[tail]);
    if (at % 2) { /* zeros of both signs, and what spreads from where it should not be */
        float *x = c.value[X].data, *w = c.value[W].data;
        for (int64_t i = 0; i < c.value[X].n; i += 3)
            x[i] = i % 2 ? 0.0f : -0.0f;
        w[c.value[W].n / 2] = INFINITY;
    }
    run_in_turn(&c);
    float *y = malloc((size_t)c.value[Y].n * sizeof *y);
    assert_non_null(y);
    for (int fixed = 0; fixed < 2; fixed++) {
        const int n = run_chain(&c, fixed, at / 2 % 2 ? 4096 : 0, y);
        /* Direct convolutions do ReLUs alone. */
        const bool any_fn = l->kernel < 2 || l->groups == l->ci || !strncmp(l->name, "W", 1);
        if (l->takes && n != 1 && (any_fn || (tails[tail][0] != SILU && tails[tail][1] != SILU)))
            fail_msg("%s, tail %d: %d kernels", l->name, tail, n);
        for (int64_t i = 0; i < c.value[Y].n; i++)
            if (memcmp(&y[i], (float *)c.value[Y].data + i, sizeof *y) != 0 &&
                !(isnan(y[i]) && isnan(fc_at(&c.value[Y], i))))
                fail_msg("%s, tail %d, %s, fixed %d: element %ld is %a, not %a", l->name, tail,
                         isas[at % 3], fixed, (long)i, (double)y[i], fc_at(&c.value[Y], i));
    }
    free(y);
    for (int v = 0; v < c.nvalues; v++)
        free(c.value[v].data);
}

static void test_ends(void **state)
{
    (void)state;
    for (int l = 0; l < LAYERS; l++)
        for (int tail = 0; tail < TAILS; tail++)
            for (int i = 0; i < 6; i++)
                check(&layers[l], tail, (3 * l + 5 * tail + 7 * i) % 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
