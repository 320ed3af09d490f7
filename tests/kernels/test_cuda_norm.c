/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm's small kernels joined into one launch give the bits that they give alone; and the
 * sums of batch norm and of depthwise convolution give the same bits each time. Layer norm in one
 * pass gives what its parts give. Skipped where there is no device.
 */
#include "cases.h"
#include "on_cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/rng.h"
#include "src/core/convert.h"

enum { LAYERS = 70, ARGS = 3 };

/* Of one layer. */
typedef struct layer {
    tsri_kernel_desc desc;
    tsri_attrs attrs;
    tsri_kernel *kernel;
    void *in[ARGS], *out[2], *together[2]; /* results alone, and joined */
} layer;

static size_t bytes_of(const tsri_arg *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->ndim; i++)
        n *= a->shape[i];
    return (size_t)n * tsr_dtype_size(a->dtype);
}

/* A buffer with positive numbers in it; NULL where there is none. */
static void *filled(const tsri_arg *a, uint64_t seed)
{
    size_t bytes = bytes_of(a);
    int64_t n = (int64_t)(bytes / tsr_dtype_size(a->dtype));
    if (!bytes)
        return NULL;
    void *to = NULL, *host = malloc(bytes);
    double *v = malloc((size_t)n * sizeof *v);
    assert_non_null(host);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = 0.1 + tsri_rng_uniform(seed, 0, (uint64_t)i);
    tsri_convert(host, a->dtype, v, TSR_F64, n);
    assert_int_equal(device->ops->buffer_alloc(device, bytes, &to), TSR_OK);
    assert_int_equal(device->ops->copy_in(device, to, host, bytes, device->stream), TSR_OK);
    free(v);
    free(host);
    return to;
}

static void free_buffer(void *p, const tsri_arg *a)
{
    device->ops->buffer_free(device, p, bytes_of(a));
}

static tsri_arg dense(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsri_arg a = {.dtype = dtype, .ndim = ndim};
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        a.shape[i] = a.gshape[i] = shape[i];
        a.stride[i] = step;
        step *= shape[i];
    }
    return a;
}

static void make_layer(layer *l, int i, tsri_op_kind op)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};
    const int64_t c = i == 3 ? 0 : 1 + i * 37 % 500, parts = 1 + i % 3;
    const bool many = i % 2 && op == TSRI_OP_BN_RUNNING; /* averages of each virtual batch */
    tsri_kernel_desc *d = &l->desc;
    *d = (tsri_kernel_desc){.op = op, .attrs = &l->attrs, .nin = 1, .nout = 2};
    d->stream = device->stream;
    l->attrs.bn.parts = (int32_t)parts;
    l->attrs.bn.batch = 7 + i;
    l->attrs.bn.spatial = 4;
    l->attrs.bn.momentum = 0.1 + 0.01 * i;
    d->in[0] = dense(TSR_F64, 3, (int64_t[]){parts, 2, c});
    for (int o = 0; o < 2; o++)
        d->out[o] = many ? dense(dtypes[i % 4], 2, (int64_t[]){parts, c})
                         : dense(dtypes[(i + o) % 4], 1, &c);
    if (op == TSRI_OP_BN_RUNNING) {
        d->nin = 3;
        d->in[1] = d->out[0];
        d->in[2] = d->out[1];
    }
    l->in[0] = filled(&d->in[0], (uint64_t)i);
    for (int o = 0; o < 2; o++) { /* of running averages: in place, from the same values */
        l->out[o] = filled(&d->out[o], (uint64_t)(100 + o));
        l->together[o] = filled(&d->out[o], (uint64_t)(100 + o));
    }
    assert_int_equal(tsri_kernel_create(NULL, device->ops->kernels(), d, &l->kernel), TSR_OK);
}

static void check_join(tsri_op_kind op)
{
    static layer layers[LAYERS];
    static tsri_kernel *kernels[LAYERS], *joined;
    static void *ins[LAYERS][ARGS], *const *in[LAYERS], *const *out[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        layer *l = &layers[i];
        *l = (layer){0};
        make_layer(l, i, op);
        l->in[1] = l->out[0];
        l->in[2] = l->out[1];
        assert_int_equal(l->kernel->scratch_bytes, 0);
        assert_int_equal(l->kernel->run(l->kernel, l->in, l->out, NULL), TSR_OK);
        kernels[i] = l->kernel;
        memcpy(ins[i], (void *[]){l->in[0], l->together[0], l->together[1]}, sizeof ins[i]);
        in[i] = ins[i];
        out[i] = l->together;
        assert_non_null(l->kernel->join);
        assert_ptr_equal(l->kernel->join, kernels[0]->join);
    }
    assert_int_equal(kernels[0]->join(NULL, LAYERS, kernels, in, out, &joined), TSR_OK);
    assert_int_equal(joined->run(joined, NULL, NULL, NULL), TSR_OK);
    for (int i = 0; i < LAYERS; i++) {
        layer *l = &layers[i];
        for (int o = 0; o < 2; o++) {
            size_t bytes = bytes_of(&l->desc.out[o]);
            char *alone = calloc(1, bytes + 1), *together = calloc(1, bytes + 1);
            assert_non_null(alone);
            assert_non_null(together);
            if (bytes) {
                device->ops->copy_out(device, alone, l->out[o], bytes, device->stream);
                device->ops->copy_out(device, together, l->together[o], bytes, device->stream);
            }
            if (memcmp(alone, together, bytes))
                fail_msg("layer %d, result %d: not the bits that it has alone", i, o);
            free(alone);
            free(together);
            free_buffer(l->out[o], &l->desc.out[o]);
            free_buffer(l->together[o], &l->desc.out[o]);
        }
        free_buffer(l->in[0], &l->desc.in[0]);
        l->kernel->destroy(l->kernel);
    }
    joined->destroy(joined);
}

static void test_join(void **state)
{
    (void)state;
    check_join(TSRI_OP_BN_PARAM_GRAD);
    check_join(TSRI_OP_BN_RUNNING);
}

/* Three runs of a case by the device's own kernels. */
static bool repeats(const kernel_case *c, tsr_dtype dtype)
{
    double *in[8] = {0}, *out[3][4] = {{0}};
    bool ran = true;
    for (int i = 0; i < c->nin; i++) {
        in[i] = kc_make(c, i, 5);
        for (int64_t j = 0; c->in[i].dtype == TSR_DTYPE_NONE && j < kc_count(&c->in[i]); j++)
            in[i][j] = kc_round(dtype, in[i][j]);
    }
    for (int r = 0; r < 3; r++) {
        for (int o = 0; o < c->nout; o++)
            out[r][o] = calloc((size_t)kc_count(&c->out[o]) + 1, sizeof(double));
        tsr_status s = kc_run_on(device, c, device->ops->kernels()[0], dtype, KC_NHWC, in, out[r]);
        ran = ran && s == TSR_OK;
        if (s != TSR_OK && s != TSR_ERR_UNSUPPORTED)
            fail_msg("%s: %s", c->name, tsr_last_error());
        for (int o = 0; o < c->nout; o++)
            if (memcmp(out[r][o], out[0][o], (size_t)kc_count(&c->out[o]) * sizeof(double)))
                fail_msg("%s, %s: result %d is another one in run %d", c->name,
                         tsr_dtype_name(dtype), o, r);
    }
    for (int i = 0; i < c->nin; i++)
        free(in[i]);
    for (int r = 0; r < 3; r++)
        for (int o = 0; o < c->nout; o++)
            free(out[r][o]);
    return ran;
}

static void test_repeats(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    int ran = 0;
    for (int i = 0; i < kernel_cases_count; i++) {
        const kernel_case *c = &kernel_cases[i];
        bool sums = c->op == TSRI_OP_BN_STATS || c->op == TSRI_OP_BN_ACT_BWD_STATS ||
                    c->op == TSRI_OP_CONV2D_DW || c->op == TSRI_OP_ADAPTIVE_POOL;
        for (int d = 0; sums && d < 3; d++)
            ran += repeats(c, dtypes[d]);
    }
    print_message("%d cases\n", ran);
    assert_true(ran > 60);
}

/* --- layer norm of whole rows, in one pass ---------------------------------------------------- */
enum { LN_MAX = 5 };

static double *zeros(const kc_arg *a)
{
    double *p = calloc((size_t)kc_count(a) + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* Operands of a case, as a dtype has them; the last one is left 0 where it is a part's result. */
static void make_operands(const kernel_case *c, tsr_dtype dtype, double **in)
{
    for (int i = 0; i < c->nin; i++) {
        in[i] = kc_make(c, i, 5);
        for (int64_t j = 0; c->in[i].dtype == TSR_DTYPE_NONE && j < kc_count(&c->in[i]); j++)
            in[i][j] = kc_round(dtype, in[i][j]);
    }
}

/* Whether a result is what it ought to be; says what is not. */
static void hold(const kernel_case *c, const char *impl, tsr_dtype dtype, int result,
                 const double *got, const double *want)
{
    const tsr_dtype own = c->out[result].dtype ? c->out[result].dtype : dtype;
    const double most = own == TSR_F64 ? 1e-9 : own == TSR_F32 ? 1e-4 : 4e-2;
    for (int64_t i = 0; i < kc_count(&c->out[result]); i++)
        if (!(fabs(got[i] - want[i]) <= most * (1 + fabs(want[i]))))
            fail_msg("%s of %lld features, %s, %s: result %d, element %lld is %g, not %g", c->name,
                     (long long)c->attrs.ln.count, impl, tsr_dtype_name(dtype), result,
                     (long long)i, got[i], want[i]);
}

/* Runs a joined op by every implementation; counts those that take it. *fast: those of rows. */
static int run_joined(const kernel_case *c, tsr_dtype dtype, kc_layout layout, double *const *in,
                      double *const *want, int *fast)
{
    double *got[4];
    int ran = 0;
    for (int o = 0; o < c->nout; o++)
        got[o] = zeros(&c->out[o]);
    for (const tsri_kernels *const *impl = device->ops->kernels(); *impl; impl++) {
        tsr_status s = kc_run_on(device, c, *impl, dtype, layout, in, got);
        if (s == TSR_ERR_UNSUPPORTED)
            continue;
        if (s != TSR_OK)
            fail_msg("%s, %s: %s", c->name, (*impl)->name, tsr_last_error());
        for (int o = 0; o < c->nout; o++)
            hold(c, (*impl)->name, dtype, o, got[o], want[o]);
        ran++;
        *fast += !strcmp((*impl)->name, "cuda");
    }
    for (int o = 0; o < c->nout; o++)
        free(got[o]);
    return ran;
}

/* An argument of x's features. */
static kc_arg features_of(const kernel_case *c)
{
    kc_arg a = {.dims = {.ndim = c->attrs.ln.axes}};
    for (int i = 0; i < a.dims.ndim; i++)
        a.dims.d[i] = c->in[0].dims.d[c->in[0].dims.ndim - a.dims.ndim + i];
    return a;
}

static void reference_run(const kernel_case *c, double *const *in, double *const *out)
{
    assert_int_equal(kc_run(c, reference(), TSR_F64, KC_ROW, in, out), TSR_OK);
}

/* An ln_apply that makes its statistics beside ln_stats and ln_apply. */
static int forward(const kernel_case *apply, tsr_dtype dtype, int *fast)
{
    kernel_case stats = *apply, joined = *apply;
    double *in[LN_MAX] = {0}, *want[2], *operands[LN_MAX];
    int ran = 0;
    stats.op = TSRI_OP_LN_STATS;
    stats.nin = 1;
    stats.out[0] = joined.out[1] = apply->in[1];
    joined.nin--;
    joined.nout = 2;
    for (int i = 1; i < joined.nin; i++)
        joined.in[i] = apply->in[i + 1];
    make_operands(apply, dtype, in);
    want[0] = zeros(&apply->out[0]);
    want[1] = in[1];
    reference_run(&stats, in, &in[1]);
    reference_run(apply, in, want);
    for (int i = 0; i < joined.nin; i++)
        operands[i] = in[i ? i + 1 : 0];
    ran += run_joined(&joined, dtype, KC_ROW, operands, want, fast);
    ran += run_joined(&joined, dtype, KC_OTHER, operands, want, fast);
    for (int i = 0; i < apply->nin; i++)
        free(in[i]);
    free(want[0]);
    return ran;
}

/* An ln_bwd_apply without sums, that gives dx or all gradients, beside the parts. */
static int backward(const kernel_case *apply, tsr_dtype dtype, int *fast)
{
    const int last = apply->nin - 1;
    kernel_case sums = *apply, grads = *apply, joined = *apply;
    double *in[LN_MAX] = {0}, *want[3];
    int ran = 0;
    sums.op = TSRI_OP_LN_BWD_STATS;
    sums.nin = joined.nin = last;
    sums.out[0] = apply->in[last];
    grads.op = TSRI_OP_LN_PARAM_GRAD;
    grads.nin = 3;
    grads.in[2] = apply->in[last - 1];
    grads.nout = 2;
    grads.out[0] = grads.out[1] = joined.out[1] = joined.out[2] = features_of(apply);
    make_operands(apply, dtype, in);
    for (int o = 0; o < 3; o++)
        want[o] = zeros(&joined.out[o]);
    reference_run(&sums, in, &in[last]);
    reference_run(apply, in, want);
    reference_run(&grads, (double *[]){in[0], in[1], in[last - 1]}, want + 1);
    for (joined.nout = 1; joined.nout <= 3; joined.nout += 2) {
        ran += run_joined(&joined, dtype, KC_ROW, in, want, fast);
        ran += run_joined(&joined, dtype, KC_OTHER, in, want, fast);
    }
    for (int i = 0; i <= last; i++)
        free(in[i]);
    for (int o = 0; o < 3; o++)
        free(want[o]);
    return ran;
}

static const tsr_dtype floats[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};

static void test_layer_norm_whole(void **state)
{
    (void)state;
    int ran = 0, fast = 0;
    for (int k = 0; k < kernel_cases_count; k++)
        for (int d = 0; d < 4; d++) {
            const kernel_case *c = &kernel_cases[k];
            ran += c->op == TSRI_OP_LN_APPLY       ? forward(c, floats[d], &fast)
                   : c->op == TSRI_OP_LN_BWD_APPLY ? backward(c, floats[d], &fast)
                                                   : 0;
        }
    print_message("%d times in one pass, %d of them by rows\n", ran, fast);
    assert_true(ran > 500 && fast > 200);
}

/* Rows of each length that has a kernel of its own: so many packs of 16 bytes for each lane of a
 * warp or thread of a block; longer ones; and parts of several rows, and of too few. */
static void test_layer_norm_lengths(void **state)
{
    (void)state;
    static const int shapes[][2] = {{1, 8},    {5, 128},  {1600, 16}, {3, 264},   {9, 392},
                                    {2, 512},  {11, 768}, {4, 1024},  {3, 1032},  {2, 2056},
                                    {5, 4096}, {2, 8192}, {1, 16400}, {2100, 520}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    int ran = 0, fast = 0;
    for (int k = 0; k < SHAPES * 4; k++) {
        const int64_t rows = shapes[k / 4][0], n = shapes[k / 4][1];
        const kc_arg x = {.dims = TSR_DIMS(rows, n)}, features = {.dims = TSR_DIMS(n)};
        const kc_arg stats = {.dims = TSR_DIMS(rows, 2), .dtype = TSR_F64, .fill = KC_ROW_STATS};
        const kernel_case apply = {
            .name = "ln_apply in one pass",
            .op = TSRI_OP_LN_APPLY,
            .nin = 4,
            .nout = 1,
            .attrs.ln = {.eps = 1e-5, .count = n, .axes = 1, .has_gamma = 1, .has_beta = 1},
            .in = {x, stats, features, features},
            .out = {x}};
        kernel_case back = apply;
        back.name = "ln_bwd_apply in one pass";
        back.op = TSRI_OP_LN_BWD_APPLY;
        back.nin = 5;
        back.in[3] = x;
        back.in[4] = stats;
        const bool large = rows * n > 1 << 20;
        if (large && floats[k % 4] != TSR_F32)
            continue;
        ran += forward(&apply, floats[k % 4], &fast);
        ran += backward(&back, floats[k % 4], &fast);
    }
    print_message("%d times in one pass, %d of them by rows\n", ran, fast);
    assert_int_equal(fast, 6 * (4 * (SHAPES - 1) + 1)); /* of two layouts */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_layer_norm_whole),
        cmocka_unit_test(test_layer_norm_lengths),
    };
    int none = open_cuda();
    return none ? none : close_cuda(cmocka_run_group_tests(tests, NULL, NULL));
}
