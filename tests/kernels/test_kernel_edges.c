/* SPDX-License-Identifier: Apache-2.0 */
/* The reference where the table of cases does not reach: shards and their offsets, empty shards,
 * bad labels, special values, whole numbers, and the registry. */
#include <tessera/sbp.h>
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/kernels/shards.h"

static void test_random_shards(void **state)
{
    (void)state;
    const int none[1] = {-1}, axis[2] = {1, -1};
    check_shard("random uniform", none, 1, NULL, NULL, 2, 3);
    check_shard("random uniform", none, 3, NULL, NULL, 3, 4);
    check_shard("random normal", none, 0, NULL, NULL, 1, 2);
    const int64_t begin[2] = {2, 0}, n[2] = {2, 0};
    check_shard("dropout", axis, 1, begin, n, 2, 2);
}

static void test_norm_shards(void **state)
{
    (void)state;
    /* 7 samples in 3 virtual batches: [0,3) [3,5) [5,7). Samples and statistics cut alike. */
    const int both[5] = {0, 0, -1, -1, -1};
    const int64_t begin[5] = {3, 1}, n[5] = {4, 2};
    check_shard("bn_apply 4-D parts", both, 0, begin, n, 3, 4);
    check_shard("bn_stats 4-D parts", both, 0, begin, n, 1, 2);
    /* A shard of samples with all statistics knows its virtual batches by its offset. */
    const int samples[6] = {0, -1, -1, 0, -1, -1};
    const int64_t sb[6] = {2, 0, 0, 2}, sn[6] = {3, 0, 0, 3};
    check_shard("bn_bwd_apply 4-D parts", samples, 0, sb, sn, 2, 3);
    const int alike[5] = {0, 0, -1, 0, 0};
    const int64_t lb[5] = {3, 1, 0, 3, 1}, ln[5] = {4, 2, 0, 4, 2};
    check_shard("bn_bwd_apply 4-D parts", alike, 0, lb, ln, 3, 4);
    const int apart[5] = {0, 0, -1, 0, -1}; /* the gradients' sums are known for all */
    check_shard("bn_bwd_apply 4-D parts", apart, 0, lb, ln, 3, 4);
    /* Channels. */
    const int chan[4] = {1, 2, 0, 0};
    const int64_t cb[4] = {2, 2, 2, 2}, cn[4] = {3, 3, 3, 3};
    check_shard("bn_act 4-D parts", chan, 1, cb, cn, 2, 3);
    const int rows[3] = {-1, 0, 0};
    const int64_t rb[3] = {0, 1, 1}, rn[3] = {0, 2, 2};
    check_shard("bn_running parts", rows, 0, rb, rn, 1, 2);
    const int all[3] = {0, 0, 0};
    const int64_t ab[3] = {1, 1, 1}, an[3] = {2, 2, 2};
    check_shard("bn_running parts", all, 0, ab, an, 1, 2);
}

/* Windows are the global tensor's: a shard that holds whole ones makes its part of the result. */
static void test_pool_shards(void **state)
{
    (void)state;
    const int rows[1] = {2}, columns[1] = {3};
    const int64_t two[1] = {2}, four[1] = {4}, one[1] = {1};
    check_shard("adaptive_pool even", rows, 2, two, four, 1, 2);
    check_shard("adaptive_pool even", columns, 3, two, four, 1, 2);
    check_shard("adaptive_pool_dx even", rows, 2, one, two, 2, 4);
}

static void test_norm_shard_without_its_statistics(void **state)
{
    (void)state;
    kernel_case c = find("bn_apply 4-D parts");
    cut(&c.in[1], 0, 1, 2); /* samples 3.. only */
    double *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = kc_make(&c, i, 1);
    double *y = zeros(&c.out[0]);
    assert_int_equal(kc_run(&c, reference(), TSR_F64, KC_ROW, in, &y), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "samples 0..7"));
    for (int i = 0; i < 4; i++)
        free(in[i]);
    free(y);
}

/* A case with axis `axis` of some operands and results emptied: runs on NULL buffers; what is left
 * of result 0 must be `value`. */
static void check_empty(const char *name, const int *in_axis, int out_axis, double value)
{
    kernel_case c = find(name);
    double *in[8] = {0}, *out[4] = {0};
    for (int i = 0; i < c.nin; i++) {
        if (in_axis[i] >= 0)
            cut(&c.in[i], in_axis[i], 0, 0);
        in[i] = kc_make(&c, i, 1);
    }
    for (int i = 0; i < c.nout; i++) {
        if (out_axis >= 0)
            cut(&c.out[i], out_axis, 0, 0);
        out[i] = zeros(&c.out[i]);
    }
    for (int layout = KC_ROW; layout <= KC_MIXED; layout++) {
        run(&c, (kc_layout)layout, in, out);
        for (int64_t i = 0; i < kc_count(&c.out[0]); i++)
            assert_true(out[0][i] == value);
    }
    for (int i = 0; i < 8; i++)
        free(in[i]);
    for (int i = 0; i < 4; i++)
        free(out[i]);
}

/* The axis that is cut to nothing in each operand (-1: none) and in the result, and what is left.
 */
static const struct {
    const char *name;
    int in[6], out;
    double value;
} empties[] = {
    {"unary relu", {0}, 0, 0},
    {"unary_grad silu", {0, 0}, 0, 0},
    {"binary add", {2, 2}, 2, 0},
    {"binary broadcast add", {0, -1}, 0, 0},
    {"add_n", {0, 0, 0}, 0, 0},
    {"cast to i32", {0}, 0, 0},
    {"expand", {2}, 3, 0},
    {"reduce sum 0", {0}, -1, 0},
    {"reduce sum all", {2}, -1, 0},
    {"reduce sum 023 keep", {0}, -1, 0},
    {"reduce max 2", {2}, -1, -INFINITY},
    {"reduce min 03", {0}, -1, INFINITY},
    {"reduce fault all", {1}, -1, 0},
    {"prod dropped", {0}, -1, 1},
    {"prod dropped", {1}, 0, 1},
    {"prod_dx last", {1, -1}, 1, 0},
    {"argmax last", {0}, 0, 0},
    {"matmul", {0, -1}, 0, 0},
    {"matmul", {1, 0}, -1, 0},
    {"linear", {0, -1, -1}, 0, 0},
    {"linear no bias", {1, 1}, -1, 0},
    {"linear_dx", {0, -1}, 0, 0},
    {"linear_dw", {0, 0}, -1, 0},
    {"conv2d 3x3", {0, -1, -1}, 0, 0},
    {"conv2d no bias 3x3", {1, 1}, -1, 0},
    {"conv2d_dx 3x3", {0, -1}, 0, 0},
    {"conv2d_dx 3x3", {1, 0}, -1, 0},
    {"conv2d_dw 3x3", {0, 0}, -1, 0},
    {"conv2d depthwise", {0, -1, -1}, 0, 0},
    {"conv2d_dx depthwise", {0, -1}, 0, 0},
    {"conv2d_dw depthwise", {0, 0}, -1, 0},
    {"max_pool 2x2", {0}, 0, 0},
    {"max_pool_dx 2x2", {1, 1}, 1, 0},
    {"avg_pool 2x2", {0}, 0, 0},
    {"avg_pool_dx 2x2", {0}, 0, 0},
    {"adaptive_pool uneven", {1}, 1, 0},
    {"adaptive_pool_dx uneven", {0}, 0, 0},
    {"bn_stats 4-D", {0}, -1, 0},
    {"bn_stats 2-D", {0}, -1, 0},
    {"bn_apply 4-D parts", {0, -1, -1, -1}, 0, 0},
    {"bn_apply 4-D", {1, 2, 0, 0}, 1, 0},
    {"bn_bwd_stats 4-D", {0, -1, 0}, -1, 0},
    {"bn_act_bwd_stats 4-D", {0, -1, -1, -1, 0}, -1, 0},
    {"bn_bwd_apply 4-D", {0, -1, -1, 0, -1}, 0, 0},
    {"bn_act_bwd_apply 4-D", {0, -1, -1, -1, 0, -1}, 0, 0},
    {"bn_param_grad", {2}, 0, 0},
    {"bn_fold", {0, 0, 0, 0}, 0, 0},
    {"bn_running", {2, 0, 0}, 0, 0},
    {"scale_shift", {0, -1, -1}, 0, 0},
    {"softmax last", {0}, 0, 0},
    {"softmax_dx last", {1, 1}, 1, 0},
    {"ce plain", {0, 0}, 0, 0},
    {"ce_dx plain", {0, 0, 0, 0}, 0, 0},
    {"dropout", {0, -1}, 0, 0},
    {"dropout part of blocks", {0, -1, -1}, 0, 0},
    {"part of blocks", {0, -1}, 0, 0},
    {"whole of blocks", {1, -1, 1}, 1, 0},
    {"total begins", {2, -1, 2}, 2, 0},
    {"random normal", {0}, 2, 0},
    {"fill", {0}, 0, 0},
    {"reshape", {0}, 0, 0},
    {"permute", {3}, 3, 0},
    {"copy", {0}, 0, 0},
    {"sgd momentum", {0, 0, 0, -1}, 0, 0},
    {"softmax_max", {1}, -1, -INFINITY},
    {"softmax_sum last", {2, -1}, -1, 0},
    {"softmax_finish middle", {1, -1, -1}, 1, 0},
    {"softmax_dot log", {0, 0}, -1, 0},
    {"softmax_bwd last", {2, 2, -1}, 2, 0},
    {"ce_terms whole", {1, -1, -1}, -1, 0},
    {"ce_finish whole", {0, 0, 0}, 0, 0},
    {"ce_dx part whole", {1, -1, -1, -1}, 1, 0},
    {"causal_mask", {3}, 3, 0},
    {"ln_stats 2 axes", {2}, -1, 0},
    {"ln_apply ", {0, 0, -1, -1}, 0, 0},
    {"ln_param_grad ", {0, 0, 0}, -1, 0},
    {"adam plain", {0, 0, 0, 0, -1}, 0, 0},
    {"rmsprop centered momentum", {0, 0, 0, 0, 0, -1}, 0, 0},
    {"adagrad plain", {0, 0, 0, -1}, 0, 0},
    {"lion plain", {0, 0, 0, -1}, 0, 0},
};

static void test_empty_shards(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof empties / sizeof *empties; i++)
        check_empty(empties[i].name, empties[i].in, empties[i].out, empties[i].value);
}

static void test_labels(void **state)
{
    (void)state;
    for (int back = 0; back < 2; back++) {
        kernel_case c = find(back ? "ce_dx plain" : "ce plain");
        double *in[4] = {0}, *out[3] = {0};
        for (int i = 0; i < c.nin; i++)
            in[i] = kc_make(&c, i, 1);
        for (int bad = 0; bad < 2; bad++) {
            in[1][4] = bad ? 7 : -1;
            memcpy(c.in[0].gshape, (int64_t[4]){100, 7}, sizeof c.in[0].gshape);
            c.in[0].offset[0] = 20;
            assert_int_equal(kc_run(&c, reference(), TSR_F64, KC_ROW, in, out), TSR_ERR_INVALID);
            assert_non_null(
                strstr(tsr_last_error(), bad ? "label 7 of row 24" : "label -1 of row 24"));
        }
        /* The same label is nothing wrong where it is ignored. */
        c.attrs.ce.has_ignore = 1;
        c.attrs.ce.ignore_index = 7;
        assert_int_equal(kc_run(&c, reference(), TSR_F64, KC_ROW, in, out), TSR_OK);
        for (int i = 0; i < c.nin; i++)
            free(in[i]);
    }
}

/* One unary, reduce or pool case on given values. */
static void run_on(const char *name, const double *x, int64_t n, double *y)
{
    kernel_case c = find(name);
    double *in = zeros(&c.in[0]), *out = zeros(&c.out[0]), *outs[4] = {out};
    for (int64_t i = 0; i < kc_count(&c.in[0]); i++)
        in[i] = x[i % n];
    run(&c, KC_ROW, &in, outs);
    memcpy(y, out, sizeof *y * (size_t)(kc_count(&c.out[0]) < n ? kc_count(&c.out[0]) : n));
    free(in);
    free(out);
}

static void test_special_values(void **state)
{
    (void)state;
    const double x[5] = {NAN, INFINITY, -INFINITY, 6, -0.0};
    double y[9];
    run_on("unary relu", x, 5, y);
    assert_true(isnan(y[0]) && y[1] == INFINITY && y[2] == 0 && y[3] == 6 && y[4] == 0);
    run_on("unary relu6", x, 5, y);
    assert_true(isnan(y[0]) && y[1] == 6 && y[2] == 0 && y[3] == 6 && y[4] == 0);
    run_on("unary sigmoid", x, 5, y);
    assert_true(isnan(y[0]) && y[1] == 1 && y[2] == 0);
    run_on("reduce max 2", x, 5, y);
    assert_true(isnan(y[0]));
    run_on("max_pool 2x2", x, 1, y);
    assert_true(isnan(y[0]));
    run_on("max_pool 2x2", x + 2, 1, y); /* the least value is still one */
    assert_true(y[0] == -INFINITY);
    const double nan_last[9] = {1, 2, 3, 4, 5, 6, 7, 8, NAN};
    run_on("argmax last", nan_last, 9, y);
    assert_true(y[0] == 8);
    const double mask[5] = {1, -INFINITY, 2, -INFINITY, 0};
    run_on("softmax last", mask, 5, y);
    assert_true(y[1] == 0 && y[3] == 0 && fabs(y[0] + y[2] + y[4] - 1) < 1e-15);
    const double big[5] = {1000, 1000, 1000, 1000, 1000};
    run_on("softmax last", big, 5, y);
    assert_true(fabs(y[0] - 0.2) < 1e-15);
}

/* A kernel on raw vectors: in[i] has n elements of dtype from, out of dtype to. */
static void run_raw(tsri_op_kind op, const tsri_attrs *at, tsr_dtype from, tsr_dtype to, int nin,
                    int64_t n, const void *const *in, void *out)
{
    tsri_kernel_desc d = {.op = op, .attrs = at, .nin = nin, .nout = 1};
    void *buffers[2] = {0};
    for (int i = 0; i <= nin; i++) {
        tsri_arg *a = i < nin ? &d.in[i] : &d.out[0];
        *a = (tsri_arg){i < nin ? from : to, 1, {n}, {1}, {n}, {0}};
        if (i < nin) {
            buffers[i] = malloc((size_t)n * 8);
            assert_non_null(buffers[i]);
            memcpy(buffers[i], in[i], (size_t)n * tsr_dtype_size(from));
        }
    }
    tsri_kernel *k;
    assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
    assert_int_equal(k->run(k, buffers, &out, NULL), TSR_OK);
    k->destroy(k);
    free(buffers[0]);
    free(buffers[1]);
}

static void cast(tsr_dtype from, tsr_dtype to, int64_t n, const void *x, void *y)
{
    const tsri_attrs at = {0};
    run_raw(TSRI_OP_CAST, &at, from, to, 1, n, &x, y);
}

static void test_half(void **state)
{
    (void)state;
    static uint16_t all[65536], back[65536];
    static float f[65536];
    for (int i = 0; i < 65536; i++)
        all[i] = (uint16_t)i;
    cast(TSR_BF16, TSR_F32, 65536, all, f);
    for (uint32_t i = 0; i < 65536; i++) { /* bf16 is the upper half of an f32 */
        uint32_t bits = i << 16;
        float want;
        memcpy(&want, &bits, 4);
        assert_true(isnan(want) ? isnan(f[i]) : !memcmp(&f[i], &want, 4));
    }
    cast(TSR_F32, TSR_BF16, 65536, f, back);
    for (int i = 0; i < 65536; i++)
        assert_true(isnan(f[i]) ? (back[i] & 0x7fff) > 0x7f80 : back[i] == all[i]);
    cast(TSR_F16, TSR_F32, 65536, all, f);
    cast(TSR_F32, TSR_F16, 65536, f, back);
    for (int i = 0; i < 65536; i++)
        assert_true(isnan(f[i]) ? (back[i] & 0x7fff) > 0x7c00 : back[i] == all[i]);
    /* Roundings of IEEE 754 binary16, ties to even. */
    const double x[12] = {1,       -2,         65504,        65519.99,    65520,
                          0x1p-24, 0x1p-25,    0x1.0001p-25, 1 + 0x1p-11, 1 + 3 * 0x1p-11,
                          0x1p-14, 0x1.ff8p-15};
    const uint16_t want[12] = {0x3c00, 0xc000, 0x7bff, 0x7bff, 0x7c00, 0x0001,
                               0,      1,      0x3c00, 0x3c02, 0x0400, 0x03ff};
    cast(TSR_F64, TSR_F16, 12, x, back);
    for (int i = 0; i < 12; i++)
        assert_int_equal(back[i], want[i]);
    /* bf16 by the usual trick on bits. */
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t bits = 0x3f800000u + i * 7919u;
        memcpy(&f[0], &bits, 4);
        cast(TSR_F32, TSR_BF16, 1, f, back);
        assert_int_equal(back[0], (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static void test_casts(void **state)
{
    (void)state;
    const double x[6] = {NAN, 1e300, -1e300, -2.9, 2.9, 0.5};
    int64_t i64[6];
    int32_t i32[6];
    uint8_t b[6];
    cast(TSR_F64, TSR_I64, 6, x, i64);
    assert_true(i64[0] == 0 && i64[1] == INT64_MAX && i64[2] == INT64_MIN && i64[3] == -2);
    cast(TSR_F64, TSR_I32, 6, x, i32);
    assert_true(i32[1] == INT32_MAX && i32[2] == INT32_MIN && i32[3] == -2 && i32[4] == 2);
    cast(TSR_F64, TSR_BOOL, 6, x, b);
    assert_true(b[0] == 1 && b[5] == 1);
    const int64_t big[2] = {INT64_MAX - 1, (1 << 24) + 1};
    int64_t kept[2];
    cast(TSR_I64, TSR_I64, 2, big, kept);
    assert_true(kept[0] == big[0]);
    const int64_t whole[3] = {0, 256, -1};
    cast(TSR_I64, TSR_BOOL, 3, whole, b);
    assert_true(b[0] == 0 && b[1] == 1 && b[2] == 1);
    cast(TSR_I64, TSR_U8, 3, whole, b);
    assert_true(b[0] == 0 && b[1] == 0 && b[2] == 255);
}

static void test_whole_numbers(void **state)
{
    (void)state;
    const int64_t a[5] = {7, -7, INT64_MIN, 5, INT64_MAX}, b[5] = {2, 2, -1, 0, 1};
    const void *ab[2] = {a, b};
    int64_t y[5];
    tsri_attrs at = {.binary = {TSRI_BINARY_DIV, 0}};
    run_raw(TSRI_OP_BINARY, &at, TSR_I64, TSR_I64, 2, 5, ab, y);
    assert_true(y[0] == 3 && y[1] == -3 && y[2] == INT64_MIN && y[3] == 0);
    at.binary.fn = TSRI_BINARY_ADD;
    run_raw(TSRI_OP_BINARY, &at, TSR_I64, TSR_I64, 2, 5, ab, y);
    assert_true(y[0] == 9 && y[4] == INT64_MIN);
    at.binary.fn = TSRI_BINARY_POW;
    run_raw(TSRI_OP_BINARY, &at, TSR_I64, TSR_I64, 2, 5, ab, y);
    assert_true(y[0] == 49 && y[1] == 49 && y[2] == 0 && y[3] == 1 && y[4] == INT64_MAX);
    const int64_t near[2] = {INT64_MAX - 1, INT64_MAX}, last[2] = {INT64_MAX, INT64_MAX};
    const void *pair[2] = {near, last};
    uint8_t equal[2];
    at.binary.fn = TSRI_BINARY_EQUAL;
    run_raw(TSRI_OP_BINARY, &at, TSR_I64, TSR_BOOL, 2, 2, pair, equal);
    assert_true(!equal[0] && equal[1]);
}

static void test_whole_reduce(void **state)
{
    (void)state;
    const int64_t x[3] = {INT64_MAX - 2, 1, 1};
    const tsr_dtype types[4] = {TSR_I64, TSR_I32, TSR_U8, TSR_BOOL};
    const int64_t least[4] = {INT64_MIN, INT32_MIN, 0, 0};
    for (int t = 0; t < 4; t++) {
        tsri_attrs at = {.reduce = {TSR_REDUCE_MAX, 1, 0, 0, 1}};
        tsri_kernel_desc d = {.op = TSRI_OP_REDUCE, .attrs = &at, .nin = 1, .nout = 1};
        d.in[0] = (tsri_arg){types[t], 1, {0}, {1}, {3}, {0}};
        d.out[0] = (tsri_arg){.dtype = types[t]};
        int64_t y = 0, scratch;
        void *in = NULL, *out = &y;
        tsri_kernel *k;
        assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
        assert_int_equal(k->run(k, &in, &out, &scratch), TSR_OK);
        k->destroy(k);
        assert_true((types[t] == TSR_I64 ? y : *(int32_t *)out) == least[t]);
    }
    tsri_attrs at = {.reduce = {TSR_REDUCE_SUM, 1, 0, 0, 1}};
    tsri_kernel_desc d = {.op = TSRI_OP_REDUCE, .attrs = &at, .nin = 1, .nout = 1};
    d.in[0] = (tsri_arg){TSR_I64, 1, {3}, {1}, {3}, {0}};
    d.out[0] = (tsri_arg){.dtype = TSR_I64};
    int64_t values[3], y = 0, scratch;
    memcpy(values, x, sizeof values);
    void *in = values, *out = &y;
    tsri_kernel *k;
    assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
    assert_int_equal(k->run(k, &in, &out, &scratch), TSR_OK);
    k->destroy(k);
    assert_true(y == INT64_MAX);
}

/* Bits do not depend on the team: blocks are summed whole. */
static void test_threads(void **state)
{
    (void)state;
    kernel_case cases[3] = {find("matmul blocks"), find("bn_stats 4-D wide"),
                            find("conv2d_dw depthwise 2x2 plane")};
    cases[1].in[0].dims = TSR_DIMS(16, 70, 8, 8);
    cases[1].attrs.bn.batch = 16;
    int before = omp_get_max_threads();
    for (int c = 0; c < 3; c++) {
        double *in[2] = {0}, *one = zeros(&cases[c].out[0]), *many = zeros(&cases[c].out[0]);
        for (int i = 0; i < cases[c].nin; i++)
            in[i] = kc_make(&cases[c], i, 9);
        for (int layout = KC_ROW; layout <= KC_NHWC; layout++) {
            omp_set_num_threads(1);
            run(&cases[c], (kc_layout)layout, in, &one);
            omp_set_num_threads(3);
            run(&cases[c], (kc_layout)layout, in, &many);
            assert_memory_equal(one, many, (size_t)kc_count(&cases[c].out[0]) * sizeof *one);
        }
        free(in[0]);
        free(in[1]);
        free(one);
        free(many);
    }
    omp_set_num_threads(before);
}

static tsr_status create_nothing(tsri_mem *mem, const tsri_kernel_desc *desc,
                                 tsri_kernel **out_kernel)
{
    (void)mem;
    (void)desc;
    (void)out_kernel;
    return tsri_fail(TSR_ERR_UNSUPPORTED, "not this one");
}

static tsr_status create_broken(tsri_mem *mem, const tsri_kernel_desc *desc,
                                tsri_kernel **out_kernel)
{
    (void)mem;
    (void)desc;
    (void)out_kernel;
    return tsri_fail(TSR_ERR_BACKEND, "broken");
}

static void test_registry(void **state)
{
    (void)state;
    tsri_kernels no = {.size = sizeof no, .name = "no"}, bad = {.size = sizeof bad, .name = "bad"};
    no.slot[TSRI_OP_FILL] = create_nothing;
    bad.slot[TSRI_OP_FILL] = create_broken;
    const tsri_attrs at = {0};
    tsri_kernel_desc d = {.op = TSRI_OP_FILL, .attrs = &at, .nout = 1};
    d.out[0] = (tsri_arg){TSR_F32, 1, {4}, {1}, {4}, {0}};
    tsri_kernel *k = NULL;
    const tsri_kernels *const declines[] = {&no, reference(), NULL};
    const tsri_kernels *const breaks[] = {&bad, reference(), NULL};
    const tsri_kernels *const nobody[] = {&no, NULL};
    unsetenv("TESSERA_KERNELS");
    assert_int_equal(tsri_kernel_create(NULL, declines, &d, &k), TSR_OK);
    assert_string_equal(k->impl, "ref");
    k->destroy(k);
    assert_int_equal(tsri_kernel_create(NULL, breaks, &d, &k), TSR_ERR_BACKEND);
    setenv("TESSERA_KERNELS", "fast,ref", 1);
    assert_int_equal(tsri_kernel_create(NULL, breaks, &d, &k), TSR_OK);
    k->destroy(k);
    setenv("TESSERA_KERNELS", "fast,bad", 1);
    assert_int_equal(tsri_kernel_create(NULL, breaks, &d, &k), TSR_ERR_BACKEND);
    unsetenv("TESSERA_KERNELS");
    assert_int_equal(tsri_kernel_create(NULL, nobody, &d, &k), TSR_ERR_UNSUPPORTED);
    assert_non_null(strstr(tsr_last_error(), "fill: no kernel of this device takes -> f32(4)"));
    tsri_mem mem = {.fail_countdown = 1};
    assert_int_equal(tsri_kernel_create(&mem, tsri_kernels_cpu(), &d, &k), TSR_ERR_NO_MEMORY);
}

/* A tensor's axes, stored in the k-th of their orders. */
static tsri_arg stored(int ndim, const int64_t *shape, int k)
{
    tsri_arg a = {.dtype = TSR_F64, .ndim = ndim};
    int left[4] = {0, 1, 2, 3}, n = ndim;
    int64_t stride = 1;
    for (int i = 0; i < ndim; i++)
        a.shape[i] = a.gshape[i] = shape[i];
    for (; n > 0; k /= n--) {
        int axis = left[k % n];
        left[k % n] = left[n - 1];
        a.stride[axis] = stride;
        stride *= shape[axis];
    }
    return a;
}

/* The offset of element i, counted in row-major order. */
static int64_t place_of(const tsri_arg *a, int64_t i)
{
    int64_t at = 0;
    for (int axis = a->ndim - 1; axis >= 0; i /= a->shape[axis--])
        at += i % a->shape[axis] * a->stride[axis];
    return at;
}

/* From and to each order of the axes in memory: those that lie in order are moved as one. */
static void test_reshape_orders(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{2, 3, 4, 5}, {4, 3, 2, 5}, {3, 3, 3, 3}, {5, 2, 12, 1}};
    static const int64_t flat[][3] = {{6, 20}, {6, 4, 5}, {9, 9}, {2, 5, 12}};
    enum { MOST = 120, ORDERS = 24 };
    double x[MOST], y[MOST + 1];
    const tsri_attrs at = {0};
    for (int i = 0; i < MOST; i++)
        x[i] = i;
    for (int s = 0; s < 4 * ORDERS * 6; s++) {
        const int which = s % 4, ndim = flat[which][2] ? 3 : 2;
        tsri_kernel_desc d = {.op = TSRI_OP_RESHAPE, .attrs = &at, .nin = 1, .nout = 1};
        d.in[0] = stored(4, shapes[which], s / 4 % ORDERS);
        d.out[0] = stored(ndim, flat[which], s / 4 / ORDERS);
        const int64_t n = shapes[which][0] * shapes[which][1] * shapes[which][2] * shapes[which][3];
        tsri_kernel *k;
        assert_int_equal(reference()->slot[TSRI_OP_RESHAPE](NULL, &d, &k), TSR_OK);
        for (int i = 0; i <= MOST; i++)
            y[i] = -1;
        assert_int_equal(k->run(k, (void *[]){x}, (void *[]){y}, NULL), TSR_OK);
        k->destroy(k);
        for (int64_t i = 0; i < n; i++)
            if (y[place_of(&d.out[0], i)] != x[place_of(&d.in[0], i)])
                fail_msg("shape %d, order %d to %d: element %lld", which, s / 4 % ORDERS,
                         s / 4 / ORDERS, (long long)i);
        assert_true(y[n] == -1);
    }
}

static void test_every_op_has_a_reference(void **state)
{
    (void)state;
    for (int op = 0; op < TSRI_OP_COUNT_; op++) {
        bool source = op == TSRI_OP_INPUT || op == TSRI_OP_VARIABLE || op == TSRI_OP_TO_GLOBAL ||
                      op == TSRI_OP_RANK_SUM;
        if (source != !reference()->slot[op])
            fail_msg("%s", tsri_op_name((tsri_op_kind)op));
        /* Cases have no definition to run: test_own_op.c has. */
        bool tested = source || op == TSRI_OP_OWN || op == TSRI_OP_OWN_BACKWARD;
        for (int i = 0; i < kernel_cases_count; i++)
            tested |= (int)kernel_cases[i].op == op;
        if (!tested)
            fail_msg("no case for %s", tsri_op_name((tsri_op_kind)op));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_shards),
        cmocka_unit_test(test_norm_shards),
        cmocka_unit_test(test_pool_shards),
        cmocka_unit_test(test_norm_shard_without_its_statistics),
        cmocka_unit_test(test_empty_shards),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_half),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_whole_reduce),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_reshape_orders),
        cmocka_unit_test(test_every_op_has_a_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
