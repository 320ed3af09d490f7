/* SPDX-License-Identifier: Apache-2.0 */
/* f16 and bf16 on CPUs, where the table of cases does not reach: the conversions, bit for bit as
 * tsri_convert has them, on every instruction set; pieces and their ends; special values; results
 * in place of operands; empty shards; operands of several dtypes. */
#include "kernels/cpu/team/team.h"
#include "tests/kernels/case_words.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/fast/fast_case.h"
#include "tests/sample.h"

#include "kernels/cpu/fast/gemm16.h"
#include "src/core/convert.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const isas[] = {"base", "avx2", "avx512"};
static const tsr_dtype halves[] = {TSR_F16, TSR_BF16};

enum { ALL = 1 << 16 };

static bool is_nan(tsr_dtype half, uint16_t bits)
{
    return (bits & 0x7fff) > (half == TSR_F16 ? 0x7c00 : 0x7f80);
}

static void check_widening(tsr_dtype half)
{
    static uint16_t all[ALL];
    static float got[ALL], want[ALL];
    for (int i = 0; i < ALL; i++)
        all[i] = (uint16_t)i;
    tsri_convert(want, TSR_F32, all, half, ALL);
    tsri_widen_of(half)(all, got, ALL);
    for (int i = 0; i < ALL; i++)
        if (is_nan(half, all[i]) ? !isnan(got[i]) : memcmp(&got[i], &want[i], 4) != 0)
            fail_msg("%s %#x widens to %a, not %a", tsr_dtype_name(half), i, (double)got[i],
                     (double)want[i]);
}

/* Every upper half of an f32, with the lower halves about which rounding decides. */
static void check_narrowing(tsr_dtype half)
{
    static const uint32_t lows[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000,
                                    0x3001, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
    static float x[ALL];
    static uint16_t got[ALL], want[ALL];
    for (size_t low = 0; low < sizeof lows / sizeof *lows; low++) {
        for (uint32_t i = 0; i < ALL; i++) {
            const uint32_t bits = i << 16 | lows[low];
            memcpy(&x[i], &bits, 4);
        }
        tsri_convert(want, half, x, TSR_F32, ALL);
        tsri_narrow_of(half)(x, got, ALL);
        for (int i = 0; i < ALL; i++)
            if (isnan(x[i]) ? !is_nan(half, got[i]) : got[i] != want[i])
                fail_msg("%a narrows to %s %#x, not %#x", (double)x[i], tsr_dtype_name(half),
                         got[i], want[i]);
    }
}

/* Nothing beside the n elements is written. */
static void check_ends(tsr_dtype half)
{
    for (int n = 0; n < 70; n++) {
        uint16_t h[72], back[72];
        float f[72];
        memset(back, 0xab, sizeof back);
        for (int i = 0; i < 72; i++) {
            h[i] = (uint16_t)(0x3c00 + i);
            f[i] = 7;
        }
        tsri_widen_of(half)(h, f, n);
        assert_true(f[n] == 7 && f[n + 1] == 7);
        tsri_narrow_of(half)(f, back, n);
        assert_memory_equal(back, h, (size_t)n * sizeof *h);
        assert_true(back[n] == 0xabab && back[n + 1] == 0xabab);
    }
}

static void test_conversions(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        check_widening(halves[i / 3]);
        check_narrowing(halves[i / 3]);
        check_ends(halves[i / 3]);
    }
    unsetenv("TESSERA_CPU_ISA");
}

/* --- kernels ---------------------------------------------------------------------------------- */

static void set(fc_tensor *t, int64_t i, double v)
{
    tsri_convert((char *)t->data + (size_t)i * tsr_dtype_size(t->arg.dtype), t->arg.dtype, &v,
                 TSR_F64, 1);
}

static double at(const fc_tensor *t, int64_t i)
{
    double v;
    tsri_convert(&v, TSR_F64, (const char *)t->data + (size_t)i * tsr_dtype_size(t->arg.dtype),
                 t->arg.dtype, 1);
    return v;
}

static double rounded(tsr_dtype dtype, double v)
{
    uint64_t bits;
    tsri_convert(&bits, dtype, &v, TSR_F64, 1);
    tsri_convert(&v, TSR_F64, &bits, dtype, 1);
    return v;
}

/* A product whose every sum f32 holds exactly: of multiples of 1/64 below 4. */
static void one_product(int64_t m, int64_t n, int64_t k, int how)
{
    const bool ta = how == 1, tb = how == 2, linear = how == 3;
    const tsri_attrs attrs = {.matmul = {ta, tb}};
    const tsr_dtype to = (m + n + k) % 2 ? TSR_BF16 : TSR_F32;
    fc_tensor a = fc_rows(TSR_BF16, 2, ta ? k : m, ta ? m : k, 0, 0);
    fc_tensor b = fc_rows(TSR_BF16, 2, tb || linear ? n : k, tb || linear ? k : n, 0, 0);
    fc_tensor c = fc_rows(to, 2, m, n, 0, 0);
    fc_tensor bias = fc_rows(n % 2 ? TSR_BF16 : TSR_F32, 1, n, 0, 0, 0);
    for (int64_t i = 0; i < a.n; i++)
        set(&a, i, (double)(i * 7 % 31 - 15) / 8);
    for (int64_t i = 0; i < b.n; i++)
        set(&b, i, (double)(i * 11 % 29 - 14) / 8);
    for (int64_t i = 0; i < n; i++)
        set(&bias, i, (double)(i % 256));
    fc_tensor *const in[] = {&a, &b, &bias}, *const out[] = {&c};
    assert_true(fc_run(&tsri_kernels_cpu_fast, linear ? TSRI_OP_LINEAR : TSRI_OP_MATMUL, &attrs, 1,
                       2 + linear, in, 1, out));
    const int64_t am = ta ? 1 : k, ak = ta ? m : 1, bk = tb || linear ? 1 : n;
    const int64_t bn = tb || linear ? k : 1;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double want = linear ? (double)(j % 256) : 0;
            for (int64_t t = 0; t < k; t++)
                want += (double)((i * am + t * ak) * 7 % 31 - 15) *
                        (double)((t * bk + j * bn) * 11 % 29 - 14) / 64;
            if (at(&c, i * n + j) != rounded(to, want))
                fail_msg("%lldx%lldx%lld, %d, (%lld, %lld): %g, not %g", (long long)m, (long long)n,
                         (long long)k, how, (long long)i, (long long)j, at(&c, i * n + j), want);
        }
    fc_free(4, (fc_tensor *[]){&a, &b, &c, &bias});
}

/* Sizes about those of tiles, blocks, groups of columns and parts of sums; every order of operands;
 * a bias; results of bf16 and f32. */
static void test_products(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {16, 16, 32},  {32, 32, 64},   {33, 31, 33},
                                       {15, 17, 1},  {48, 16, 96},  {64, 40, 31},   {5, 300, 70},
                                       {70, 5, 129}, {31, 600, 33}, {540, 33, 4100}};
    int ran = 0;
    for (int isa = 0; isa < 2; isa++) {
        setenv("TESSERA_CPU_ISA", isa ? "avx512_bf16" : "amx", 1);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && tsri_isa16_best();
             i += (size_t)test_sample())
            for (int how = 0; how < 4; how++) {
                omp_set_num_threads(1 + how % 3);
                one_product(sizes[i][0], sizes[i][1], sizes[i][2], how);
                ran++;
            }
        unsetenv("TESSERA_CPU_ISA");
    }
    omp_set_num_threads(1);
    print_message("%d products\n", ran);
    if (!ran)
        skip(); /* the processor has neither AMX nor AVX512-BF16 */
}

static void run(tsri_op_kind op, const tsri_attrs *attrs, int nin, fc_tensor *const *in,
                fc_tensor *out)
{
    for (const tsri_kernels *const *impl = tsri_kernels_cpu(); *impl; impl++)
        if (fc_run(*impl, op, attrs, 1, nin, in, 1, &out))
            return;
    fail_msg("%s: %s", tsri_op_name(op), tsr_last_error());
}

/* Sizes about those of pieces, of one thread and of several: x + y is exact in f64, and rounded
 * once. */
static void test_pieces(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 17, 2047, 2048, 2049, 4096, 40000, 98305};
    const tsri_attrs add = {.binary.fn = TSRI_BINARY_ADD};
    for (int i = 0; i<2 * 8; i += test_sample()> 1 ? 3 : 1)
        for (int threads = 1; threads < 4; threads++) {
            const tsr_dtype half = halves[i % 2];
            fc_tensor x = fc_rows(half, 1, sizes[i / 2], 0, 0, 0), y = x, z = x;
            y = fc_rows(half, 1, sizes[i / 2], 0, 0, 0);
            z = fc_rows(half, 1, sizes[i / 2], 0, 0, 0);
            for (int64_t k = 0; k < x.n; k++) {
                set(&x, k, (double)(k % 251) * 0.37 - 40);
                set(&y, k, (double)(k % 127) * 1.7);
            }
            omp_set_num_threads(threads);
            run(TSRI_OP_BINARY, &add, 2, (fc_tensor *[]){&x, &y}, &z);
            for (int64_t k = 0; k < x.n; k++)
                if (at(&z, k) != rounded(half, at(&x, k) + at(&y, k)))
                    fail_msg("%s, %lld of %lld: %g + %g gives %g", tsr_dtype_name(half),
                             (long long)k, (long long)x.n, at(&x, k), at(&y, k), at(&z, k));
            fc_free(3, (fc_tensor *[]){&x, &y, &z});
        }
    omp_set_num_threads(1);
}

static void test_special_values(void **state)
{
    (void)state;
    const double big = 60000, values[] = {NAN, INFINITY, -INFINITY, 0, -0.0, big, -big, 0x1p-24};
    const tsri_attrs twice = {.scale.a = 2};
    for (int i = 0; i < 2; i++) {
        fc_tensor x = fc_rows(halves[i], 1, 8, 0, 0, 0), y = fc_rows(halves[i], 1, 8, 0, 0, 0);
        for (int k = 0; k < 8; k++)
            set(&x, k, values[k]);
        run(TSRI_OP_SCALE, &twice, 1, (fc_tensor *[]){&x}, &y);
        assert_true(isnan(at(&y, 0)));
        for (int k = 1; k < 8; k++)
            assert_true(at(&y, k) == rounded(halves[i], 2 * at(&x, k)));
        assert_true(signbit(at(&y, 4)));
        /* Values beyond f16's range become infinite; bf16 has the range of f32. */
        assert_int_equal(isinf(at(&y, 5)) != 0, halves[i] == TSR_F16);
        fc_free(2, (fc_tensor *[]){&x, &y});
    }
}

/* A result may be exactly where its first operand is. */
static void test_in_place(void **state)
{
    (void)state;
    enum { N = 5000 };
    const tsri_attrs square = {.unary.fn = TSRI_UNARY_SQUARE};
    for (int i = 0; i < 2; i++) {
        tsri_kernel_desc d = {.op = TSRI_OP_UNARY, .attrs = &square, .nin = 1, .nout = 1};
        tsri_kernel *k;
        fc_tensor x = fc_rows(halves[i], 1, N, 0, 0, 0);
        d.in[0] = d.out[0] = x.arg;
        for (int j = 0; j < N; j++)
            set(&x, j, (double)(j % 100) * 0.25);
        assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
        void *scratch = aligned_alloc(64, k->scratch_bytes / 64 * 64 + 64);
        assert_int_equal(k->run(k, (void *[]){x.data}, (void *[]){x.data}, scratch), TSR_OK);
        for (int j = 0; j < N; j++)
            assert_true(at(&x, j) == rounded(halves[i], (double)(j % 100 * (j % 100)) / 16));
        k->destroy(k);
        free(scratch);
        fc_free(1, (fc_tensor *[]){&x});
    }
}

/* A shard without elements has no buffers; a sum of none is 0. */
static void test_empty(void **state)
{
    (void)state;
    const tsri_attrs plain = {0};
    for (int i = 0; i < 2; i++) {
        fc_tensor a = fc_rows(halves[i], 2, 3, 0, 0, 0), b = fc_rows(halves[i], 2, 0, 5, 0, 0);
        fc_tensor c = fc_rows(halves[i], 2, 3, 5, 0, 0), d = fc_rows(halves[i], 2, 0, 7, 0, 0);
        tsri_kernel_desc desc = {.op = TSRI_OP_MATMUL, .attrs = &plain, .nin = 2, .nout = 1};
        tsri_kernel *k;
        desc.in[0] = a.arg;
        desc.in[1] = b.arg;
        desc.out[0] = c.arg;
        memset(c.data, 0xff, 30);
        for (int shape = 0; shape < 2; shape++) {
            assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &desc, &k), TSR_OK);
            void *scratch = aligned_alloc(64, k->scratch_bytes / 64 * 64 + 64);
            assert_int_equal(
                k->run(k, (void *[2]){NULL, NULL}, (void *[]){shape ? NULL : c.data}, scratch),
                TSR_OK);
            free(scratch);
            k->destroy(k);
            desc.op = TSRI_OP_BINARY;
            desc.in[0] = desc.in[1] = desc.out[0] = d.arg;
        }
        for (int j = 0; j < 15; j++)
            assert_true(at(&c, j) == 0);
        fc_free(4, (fc_tensor *[]){&a, &b, &c, &d});
    }
}

/* A mask leaves what makes f32's kernels work. */
static void test_mask(void **state)
{
    (void)state;
    const tsri_attrs plain = {0};
    fc_tensor x = fc_rows(TSR_BF16, 2, 4, 4, 0, 0);
    tsri_kernel_desc d = {.op = TSRI_OP_MATMUL, .attrs = &plain, .nin = 2, .nout = 1};
    tsri_kernel *k;
    d.in[0] = d.in[1] = d.out[0] = x.arg;
    setenv("TESSERA_KERNELS", "ref", 1);
    assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
    unsetenv("TESSERA_KERNELS");
    assert_string_equal(k->impl, "via32");
    k->destroy(k);
    fc_free(1, (fc_tensor *[]){&x});
}

/* Weights and their gradients in f32 beside halves: each operand and result as it is declared. */
static void test_mixed(void **state)
{
    (void)state;
    const tsri_attrs plain = {0};
    for (int i = 0; i < 2; i++) {
        fc_tensor x = fc_rows(halves[i], 2, 4, 3, 0, 0), dy = fc_rows(halves[i], 2, 4, 2, 0, 0);
        fc_tensor dw = fc_rows(TSR_F32, 2, 2, 3, 0, 0);
        for (int k = 0; k < 12; k++)
            set(&x, k, 1 + k * 0x1p-7);
        for (int k = 0; k < 8; k++)
            set(&dy, k, 1 - k * 0x1p-7);
        run(TSRI_OP_LINEAR_DW, &plain, 2, (fc_tensor *[]){&x, &dy}, &dw);
        for (int n = 0; n < 2; n++)
            for (int c = 0; c < 3; c++) {
                double want = 0;
                for (int r = 0; r < 4; r++)
                    want += at(&dy, r * 2 + n) * at(&x, r * 3 + c);
                assert_true(at(&dw, n * 3 + c) == want); /* which f32 holds, and no half */
            }
        fc_free(3, (fc_tensor *[]){&x, &dy, &dw});
    }
}

/* clang-format off */
/* More than one piece: rows that share parameters, sums over rows, rows that are large. */
static const kernel_case row_cases[] = {
    NORMS("pieces", 37, 24, 1, TSRI_ACT_RELU6, 256, 37, 24, 16, 16),
    NORMS("large rows", 3, 5, 1, TSRI_ACT_RELU, 14400, 3, 5, 120, 120),
    NORMS("virtual batches", 37, 24, 2, TSRI_ACT_RELU6, 256, 37, 24, 16, 16),
    LAYERS("pieces", 1, 700, (3, 91), (700)),
    LAYERS("two axes", 2, 600, (271), (20, 30)),
    SOFTMAX_ROWS("pieces", 271, 701),
    FLASH("pieces", 5, 4, 40, 50, 96, 96, 0, 0.125),
    FLASH_MASKED("one mask", 5, 4, 40, 50, 96, 96, 1, 0.125, R(1, 1, 40, 50)),
    FLASH_MASKED("masks", 5, 4, 40, 50, 96, 96, 0, 0.125, R(5, 1, 1, 50)),
    CONVS("pieces", 9, 16, 30, 30, 8, 3, 3, 30, 30, 1, CONV(3, 3, 1, 1, 1, 1, 1, 1, 1)),
    CONVS("chunks of a stem", 3, 3, 61, 60, 33, 3, 3, 31, 30, 1, CONV(3, 3, 2, 2, 1, 1, 1, 1, 1)),
    CONVS("deep", 2, 70, 9, 9, 40, 3, 3, 9, 9, 1, CONV(3, 3, 1, 1, 2, 2, 2, 2, 1)),
    CONVS("grouped pieces", 9, 16, 30, 30, 8, 3, 3, 30, 30, 4, CONV(3, 3, 1, 1, 1, 1, 1, 1, 4)),
    CONVS("depthwise pieces", 9, 16, 30, 30, 16, 3, 3, 30, 30, 16,
          CONV(3, 3, 1, 1, 1, 1, 1, 1, 16)),
    {.name = "max_pool pieces", .op = TSRI_OP_MAX_POOL, POOL(2, 2, 2, 2, 0, 0, 0), .nin = 1,
     .nout = 2, .in = {FILLED(KC_FEW, 9, 16, 30, 30)},
     .out = {F(9, 16, 15, 15), OF(TSR_I32, 0, 9, 16, 15, 15)}},
    {.name = "max_pool_dx pieces", .op = TSRI_OP_MAX_POOL_DX, POOL(2, 2, 2, 2, 0, 0, 0), .nin = 2,
     .nout = 1, .in = {OF(TSR_I32, KC_POOL_IDX, 9, 16, 15, 15), F(9, 16, 15, 15)},
     .out = {F(9, 16, 30, 30)}},
    {.name = "linear pieces", .op = TSRI_OP_LINEAR, .nin = 3, .nout = 1,
     .in = {F(300, 290), F(70, 290), F(70)}, .out = {F(300, 70)}},
};
/* clang-format on */

static const tsri_kernels *named(const char *name)
{
    const tsri_kernels *const *impl = tsri_kernels_cpu();
    while (strcmp((*impl)->name, name) != 0)
        impl++;
    return *impl;
}

static void check_rows(const kc_values *v, const char *impl, tsr_dtype half, kc_layout layout)
{
    const kernel_case *c = v->c;
    const tsr_status status = kc_run(c, named(impl), half, layout, v->in, v->out);
    if (status == TSR_ERR_UNSUPPORTED && !strcmp(impl, "fast"))
        return;
    if (status != TSR_OK)
        fail_msg("%s: %s", c->name, tsr_last_error());
    for (int o = 0; o < c->nout; o++) {
        const tsr_dtype to = c->out[o].dtype ? c->out[o].dtype : half;
        double top = 0;
        for (int64_t i = 0; i < kc_count(&c->out[o]); i++)
            top = fmax(top, fabs(v->want[o][i]));
        for (int64_t i = 0; i < kc_count(&c->out[o]); i++) {
            const double limit = to == TSR_I32 ? 0 : 2e-5 * top, want = v->want[o][i];
            if (!(v->out[o][i] >= kc_round(to, want - limit) &&
                  v->out[o][i] <= kc_round(to, want + limit)))
                fail_msg("%s, %s: result %d, element %lld is %g, not %g", c->name,
                         tsr_dtype_name(half), o, (long long)i, v->out[o][i], want);
        }
    }
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i<2 * sizeof row_cases / sizeof *row_cases; i += test_sample()> 1 ? 3 : 1) {
        const tsr_dtype half = halves[i % 2];
        kc_values v = kc_values_make(&row_cases[i / 2], half);
        assert_int_equal(kc_run(v.c, named("ref"), TSR_F64, KC_ROW, v.in, v.want), TSR_OK);
        for (int threads = 1; threads <= 3; threads++) {
            omp_set_num_threads(threads);
            check_rows(&v, "via32", half, threads == 3 ? KC_ROW : KC_PLAN);
            check_rows(&v, "fast", half, KC_PLAN);
        }
        omp_set_num_threads(1);
        kc_values_free(&v);
    }
}

/* Likewise where one thread does all parts, in which kernels begin no teams of their own. */
static void test_rows_alone(void **state)
{
    tsri_team_mine()->alone = 1 << 30;
    test_rows(state);
    tsri_team_mine()->alone = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversions), cmocka_unit_test(test_products),
        cmocka_unit_test(test_pieces),      cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_in_place),    cmocka_unit_test(test_empty),
        cmocka_unit_test(test_mask),        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_rows),        cmocka_unit_test(test_rows_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
