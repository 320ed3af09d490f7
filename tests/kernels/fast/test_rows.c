/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops and reductions that share rows, as one chain; batch norm and means of row-major
 * images; running sums and products: as the reference makes them, in f32. */
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

static const char *const isas[] = {"base", "avx2", "avx512"};
static const tsri_kernels *const fast[] = {&tsri_kernels_cpu_fast, &tsri_kernels_cpu_ref, NULL};
static const tsri_kernels *const reference[] = {&tsri_kernels_cpu_ref, NULL};

enum { MOST = 16, SQUARES = 3 };

/* A chain that is made op by op. Values: first those given, then the results, then inner ones. */
typedef struct link {
    tsri_chain_desc desc;
    tsri_attrs attrs[TSRI_CHAIN_MAX];
    fc_tensor value[MOST];
} link;

static void add(link *l, tsri_op_kind op, tsri_attrs at, int nin, const int *in, int out)
{
    const int m = l->desc.n++;
    tsri_kernel_desc *d = &l->desc.member[m];
    l->attrs[m] = at;
    *d = (tsri_kernel_desc){.op = op, .attrs = &l->attrs[m], .nin = nin, .nout = 1};
    for (int i = 0; i < nin; i++) {
        l->desc.in[m][i] = in[i];
        d->in[i] = l->value[in[i]].arg;
    }
    l->desc.out[m][0] = out;
    d->out[0] = l->value[out].arg;
}

/* Runs the chain into got[], and returns what did its work. */
static const char *run(const link *l, const tsri_kernels *const *list, float *const *got)
{
    tsri_kernel *k = NULL;
    void *in[MOST], *out[MOST];
    assert_int_equal(tsri_chain_create(NULL, list, &l->desc, &k), TSR_OK);
    for (int i = 0; i < l->desc.ngiven; i++)
        in[i] = l->value[i].data;
    for (int i = 0; i < l->desc.nouter; i++)
        out[i] = got[i];
    void *scratch = aligned_alloc(64, (k->scratch_bytes + 127) / 64 * 64);
    assert_non_null(scratch);
    assert_int_equal(k->run(k, in, out, scratch), TSR_OK);
    const char *impl = k->impl;
    free(scratch);
    k->destroy(k);
    return impl;
}

static tsri_attrs binary(tsri_binary_fn fn)
{
    return (tsri_attrs){.binary = {.fn = fn}};
}

static tsri_attrs fold(int op, uint32_t axes, bool keepdim)
{
    return (tsri_attrs){.reduce = {.op = op, .axes = axes, .keepdim = keepdim, .scale = 0.5}};
}

/* q = (x - y) * column * line + number; s: sums of q's rows, or extremes; e = q - s; t: the same of
 * all of e, or by columns. SQUARES: s: sums of rows of q x, e = y - s, and t: those of q^2. */
static void make_link(link *l, int64_t rows, int64_t cols, int how, bool by_columns)
{
    enum { X, Y, COLUMN, LINE, NUMBER, E, T, D, Q, Q2, Q3, S, E2, E3 };
    memset(l, 0, sizeof *l);
    for (int v = X; v <= E3; v++)
        l->value[v] = fc_rows(
            TSR_F32, 2, v == LINE || v == NUMBER || v == T ? 1 : rows,
            v == COLUMN || v == NUMBER || v == S || (v == T && !by_columns) ? 1 : cols, 0, 0);
    l->desc.ngiven = E;
    l->desc.nouter = 2;
    l->desc.ninner = S - T;
    l->desc.by_units = true;
    add(l, TSRI_OP_BINARY, binary(TSRI_BINARY_SUB), 2, (int[]){X, Y}, D);
    add(l, TSRI_OP_BINARY, binary(TSRI_BINARY_MUL), 2, (int[]){D, COLUMN}, Q);
    add(l, TSRI_OP_BINARY, binary(TSRI_BINARY_MUL), 2, (int[]){LINE, Q}, Q2);
    if (how == SQUARES) { /* a member less: there are as many as a chain takes */
        add(l, TSRI_OP_BINARY, binary(TSRI_BINARY_MUL), 2, (int[]){Q2, X}, E2);
        add(l, TSRI_OP_REDUCE, fold(TSR_REDUCE_SUM, 2, true), 1, (int[]){E2}, S);
        add(l, TSRI_OP_UNARY, (tsri_attrs){.unary = {.fn = TSRI_UNARY_SQUARE}}, 1, (int[]){Q2}, E3);
        add(l, TSRI_OP_REDUCE, fold(TSR_REDUCE_SUM, by_columns ? 1 : 3, true), 1, (int[]){E3}, T);
        l->desc.ninner += 2;
        add(l, TSRI_OP_BINARY, binary(TSRI_BINARY_SUB), 2, (int[]){Y, S}, E);
        return;
    }
    add(l, TSRI_OP_BINARY, binary(TSRI_BINARY_ADD), 2, (int[]){Q2, NUMBER}, Q3);
    add(l, TSRI_OP_REDUCE, fold(how, 2, true), 1, (int[]){Q3}, S);
    add(l, TSRI_OP_BINARY, binary(TSRI_BINARY_SUB), 2, (int[]){Q3, S}, E);
    add(l, TSRI_OP_REDUCE, fold(how, by_columns ? 1 : 3, true), 1, (int[]){E}, T);
}

static void test_chain_of_rows(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{700, 33}, {3, 5}, {1000, 1}, {129, 300}, {2000, 16}};
    int pieces = 0;
    for (int i = 0; i < 5 * 4 * 3 * 2 * 2; i++) {
        link l;
        const int64_t *s = shapes[i % 5];
        const int how = i / 5 % 4;
        make_link(&l, s[0], s[1], how, i / 60 % 2);
        if (i / 120) /* one NaN makes those of its row, and of all */
            ((float *)l.value[0].data)[l.value[0].n / 2] = NAN;
        float *want[2], *got[2];
        for (int o = 0; o < 2; o++) {
            want[o] = malloc((size_t)l.value[l.desc.ngiven + o].n * sizeof(float));
            got[o] = malloc((size_t)l.value[l.desc.ngiven + o].n * sizeof(float));
            assert_true(want[o] && got[o]);
        }
        run(&l, reference, want);
        setenv("TESSERA_CPU_ISA", isas[i / 20 % 3], 1);
        for (int threads = 1; threads <= 4; threads++)
            for (size_t bytes = 1; bytes < 1 << 20; bytes *= 32) {
                omp_set_num_threads(threads);
                l.desc.piece_bytes = bytes;
                pieces += !strcmp(run(&l, fast, got), "chain");
                for (int o = 0; o < 2; o++) {
                    const int64_t n = l.value[l.desc.ngiven + o].n;
                    double most = 0;
                    for (int64_t e = 0; e < n; e++)
                        most = fmax(most, fabs((double)want[o][e]));
                    for (int64_t e = 0; e < n; e++)
                        assert_true(isnan(want[o][e])
                                        ? isnan(got[o][e])
                                        : fabs((double)(got[o][e] - want[o][e])) <= 1e-6 * most);
                }
            }
        for (int o = 0; o < 2; o++) {
            free(want[o]);
            free(got[o]);
        }
        for (int v = 0; v < MOST; v++)
            free(l.value[v].data);
    }
    unsetenv("TESSERA_CPU_ISA");
    assert_true(pieces > 1000);
}

/* Fails unless the fast kernel takes it and makes what the reference makes. */
static void as_reference(tsri_op_kind op, const tsri_attrs *at, int nin, fc_tensor *const *in,
                         const fc_tensor *like, double tol)
{
    fc_tensor got = *like, want = *like;
    const size_t size = tsr_dtype_size(like->arg.dtype);
    got.data = malloc((size_t)got.n * size);
    want.data = malloc((size_t)want.n * size);
    assert_true(got.data && want.data);
    assert_true(fc_run(&tsri_kernels_cpu_fast, op, at, 0, nin, in, 1, (fc_tensor *[]){&got}));
    assert_true(fc_run(&tsri_kernels_cpu_ref, op, at, 0, nin, in, 1, (fc_tensor *[]){&want}));
    const bool wide = size == 8;
    double most = 1e-30;
    for (int64_t i = 0; i < want.n; i++)
        most = fmax(most, fabs(wide ? ((double *)want.data)[i] : (double)((float *)want.data)[i]));
    for (int64_t i = 0; i < want.n; i++) {
        const double w = wide ? ((double *)want.data)[i] : (double)((float *)want.data)[i];
        const double g = wide ? ((double *)got.data)[i] : (double)((float *)got.data)[i];
        if (!(fabs(g - w) <= tol * most))
            fail_msg("%s: element %d is %g, not %g", tsri_op_name(op), (int)i, g, w);
    }
    fc_free(2, (fc_tensor *[]){&got, &want});
}

static void test_planes(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{3, 5, 7, 9}, {1, 2, 3, 5}, {4, 40, 5, 5}, {2, 3, 41, 33}};
    for (int i = 0; i < 4 * 3 * 3; i++) {
        const int64_t *s = shapes[i % 4];
        setenv("TESSERA_CPU_ISA", isas[i / 4 % 3], 1);
        omp_set_num_threads(1 + i / 12);
        fc_tensor x = fc_rows(TSR_F32, 4, s[0], s[1], s[2], s[3]);
        fc_tensor dy = fc_rows(TSR_F32, 4, s[0], s[1], s[2], s[3]);
        fc_tensor gamma = fc_rows(TSR_F32, 1, s[1], 0, 0, 0);
        fc_tensor beta = fc_rows(TSR_F32, 1, s[1], 0, 0, 0);
        fc_tensor stats = fc_rows(TSR_F64, 3, 1, 2, s[1], 0);
        fc_tensor sums = fc_rows(TSR_F64, 3, 1, 2, s[1], 0);
        fc_tensor mean = fc_rows(TSR_F32, 4, s[0], s[1], 1, 1);
        tsri_attrs at = {0};
        at.bn.eps = 1e-5;
        at.bn.batch = s[0];
        at.bn.spatial = s[2] * s[3];
        at.bn.count = at.bn.batch * at.bn.spatial;
        at.bn.parts = 1;
        at.bn.act = TSRI_ACT_RELU6;
        for (int64_t k = 0; k < x.n; k++) /* far from 0 */
            ((float *)x.data)[k] += 30;
        as_reference(TSRI_OP_BN_STATS, &at, 1, (fc_tensor *[]){&x}, &stats, 1e-12);
        assert_true(fc_run(&tsri_kernels_cpu_ref, TSRI_OP_BN_STATS, &at, 0, 1, (fc_tensor *[]){&x},
                           1, (fc_tensor *[]){&stats}));
        fc_tensor *forward[] = {&x, &stats, &gamma, &beta};
        as_reference(TSRI_OP_BN_APPLY, &at, 4, forward, &x, 2e-6);
        as_reference(TSRI_OP_BN_ACT, &at, 4, forward, &x, 2e-6);
        fc_tensor *back[] = {&x, &stats, &gamma, &beta, &dy, &sums};
        as_reference(TSRI_OP_BN_ACT_BWD_STATS, &at, 5, back, &stats, 1e-6);
        assert_true(fc_run(&tsri_kernels_cpu_ref, TSRI_OP_BN_ACT_BWD_STATS, &at, 0, 5, back, 1,
                           (fc_tensor *[]){&sums}));
        as_reference(TSRI_OP_BN_ACT_BWD_APPLY, &at, 6, back, &x, 1e-5);
        as_reference(TSRI_OP_BN_BWD_STATS, &at, 3, (fc_tensor *[]){&x, &stats, &dy}, &stats, 1e-6);
        as_reference(TSRI_OP_ADAPTIVE_POOL, &at, 1, (fc_tensor *[]){&x}, &mean, 1e-7);
        fc_free(7, (fc_tensor *[]){&x, &dy, &gamma, &beta, &stats, &sums, &mean});
    }
    unsetenv("TESSERA_CPU_ISA");
}

static void test_scans(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{3, 5, 7}, {17, 10, 1}, {1, 1000, 1}, {9, 3, 130}};
    for (int i = 0; i < 4 * 3 * 3 * 3; i++) {
        const int64_t *s = shapes[i % 4];
        const int axis = i / 4 % 3, threads = 1 + i / 12 % 3;
        setenv("TESSERA_CPU_ISA", isas[i / 36], 1);
        omp_set_num_threads(threads);
        fc_tensor x = fc_rows(TSR_F32, 3, s[0], s[1], s[2], 0);
        tsri_attrs at = {.cumsum = {.axis = axis}};
        as_reference(TSRI_OP_CUMSUM, &at, 1, (fc_tensor *[]){&x}, &x, 1e-7);
        at.cumsum.reverse = true;
        as_reference(TSRI_OP_CUMSUM, &at, 1, (fc_tensor *[]){&x}, &x, 1e-7);
        at = (tsri_attrs){.scan = {.axis = axis, .fn = TSRI_SCAN_PRODUCT}};
        for (int64_t k = 0; k < x.n; k++)
            ((float *)x.data)[k] = (k % 3 ? 1 : -1) + 0.01f * ((float *)x.data)[k];
        as_reference(TSRI_OP_SCAN, &at, 1, (fc_tensor *[]){&x}, &x, 1e-7);
        fc_free(1, (fc_tensor *[]){&x});
    }
    unsetenv("TESSERA_CPU_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_of_rows),
        cmocka_unit_test(test_planes),
        cmocka_unit_test(test_scans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
