/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of f32 and f64 by the fast kernels, of every instruction set that this machine
 * has, on shapes with tails, whole and by pieces, against plain loops in long double. */
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

/* Returns row-major numbers of f32 or f64. */
static fc_tensor numbers(tsr_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c)
{
    fc_tensor t = fc_rows(dtype, ndim, a, b, c, 0);
    fc_draw(&t);
    return t;
}

/* Returns matrix `at` of t as rows[lines][k]: t has matrices [lines, k], or with `turned` [k,
 * lines].
 */
static double *lines_of(const fc_tensor *t, int64_t at, int64_t lines, int64_t k, bool turned)
{
    double *rows = malloc((size_t)(lines * k) * sizeof *rows);
    assert_non_null(rows);
    const int64_t first = t->n == lines * k ? 0 : at * lines * k;
    for (int64_t i = 0; i < lines * k; i++)
        rows[i] = fc_at(t, first + (turned ? i % k * lines + i / k : i));
    return rows;
}

/* Returns the products of `batch` matrices a[m, k] and b[k, n], or of one with all where a or b has
 * one alone. */
static double *products(const fc_tensor *a, const fc_tensor *b, int64_t batch, int64_t m, int64_t n,
                        int64_t k, bool ta, bool tb)
{
    double *want = malloc((size_t)(batch * m * n) * sizeof *want);
    assert_non_null(want);
    for (int64_t p = 0; p < batch; p++) {
        double *x = lines_of(a, p, m, k, ta), *y = lines_of(b, p, n, k, !tb);
        for (int64_t e = 0; e < m * n; e++) {
            const double *row = x + e / n * k, *column = y + e % n * k;
            long double sum = 0;
            for (int64_t q = 0; q < k; q++)
                sum += (long double)row[q] * (long double)column[q];
            want[p * m * n + e] = (double)sum;
        }
        free(x);
        free(y);
    }
    return want;
}

static double product_tolerance(tsr_dtype dtype)
{
    return dtype == TSR_F64 ? 1e-14 : 3e-6;
}

/* Runs a product by the fast kernels of each instruction set, on one thread and several. */
static void check_products(tsri_op_kind op, const tsri_attrs *at, const fc_tensor *a,
                           const fc_tensor *b, fc_tensor *c, const double *want)
{
    fc_tensor x = *a, y = *b;
    for (int i = 0; i < 6; i++) {
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        omp_set_num_threads(i < 3 ? 1 : 2 + i % 2);
        assert_true(fc_run(&tsri_kernels_cpu_fast, op, at, 0, 2, (fc_tensor *[]){&x, &y}, 1,
                           (fc_tensor *[]){c}));
        fc_close(isas[i % 3], c, want, product_tolerance(c->arg.dtype));
    }
}

/* Matrix products in every orientation, K and N with tails, K over a block. */
static void test_matmul(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1},       {7, 600, 17}, {65, 33, 49}, {8, 2100, 400},
                                        {400, 600, 410}, {300, 5, 16}, {9, 1100, 3}, {130, 64, 100},
                                        {550, 600, 480}, {3, 5000, 21}};
    for (size_t i = 0; i < 6 * sizeof shapes / sizeof shapes[0]; i++) {
        const tsr_dtype dtype = i % 2 ? TSR_F64 : TSR_F32;
        const int64_t m = shapes[i / 6][0], k = shapes[i / 6][1], n = shapes[i / 6][2];
        const bool ta = i / 2 % 3 == 1, tb = i / 2 % 3 == 2;
        if (m * n * k > 1 << 27 && !ta) /* no other form has a way for large results */
            continue;
        const tsri_attrs at = {.matmul = {.ta = ta, .tb = tb}};
        fc_tensor a = numbers(dtype, 2, ta ? k : m, ta ? m : k, 0);
        fc_tensor b = numbers(dtype, 2, tb ? n : k, tb ? k : n, 0);
        fc_tensor c = fc_rows(dtype, 2, m, n, 0, 0);
        double *want = products(&a, &b, 1, m, n, k, ta, tb);
        check_products(TSRI_OP_MATMUL, &at, &a, &b, &c, want);
        fc_free(3, (fc_tensor *[]){&a, &b, &c});
        free(want);
    }
}

/* Batches of which each thread makes some, all make one after the other, or that are one product.
 */
static void test_batch_matmul(void **state)
{
    (void)state;
    static const int64_t shapes[][5] = {{6, 6, 17, 33, 20},  {2, 2, 130, 64, 100},
                                        {5, 1, 9, 600, 49},  {1, 3, 70, 5, 16},
                                        {3, 1, 300, 40, 33}, {24, 24, 65, 64, 65}};
    for (size_t i = 0; i < 6 * sizeof shapes / sizeof shapes[0]; i++) {
        const tsr_dtype dtype = i % 2 ? TSR_F64 : TSR_F32;
        const int64_t *s = shapes[i / 6], batch = s[0] > s[1] ? s[0] : s[1];
        const int64_t m = s[2], k = s[3], n = s[4];
        const bool ta = i / 2 % 3 == 1, tb = i / 2 % 3 == 2;
        const tsri_attrs at = {.matmul = {.ta = ta, .tb = tb}};
        fc_tensor a = numbers(dtype, 3, s[0], ta ? k : m, ta ? m : k);
        fc_tensor b = numbers(dtype, 3, s[1], tb ? n : k, tb ? k : n);
        fc_tensor c = fc_rows(dtype, 3, batch, m, n, 0);
        double *want = products(&a, &b, batch, m, n, k, ta, tb);
        check_products(TSRI_OP_BATCH_MATMUL, &at, &a, &b, &c, want);
        fc_free(3, (fc_tensor *[]){&a, &b, &c});
        free(want);
    }
}

typedef enum part_of_linear { LINEAR, LINEAR_BIAS, LINEAR_DX, LINEAR_DW } part_of_linear;

/* Wants what `part` of a layer of x[rows, in], w[out, in] and dy[rows, out] gives. */
static double *want_linear(part_of_linear part, const fc_tensor *x, const fc_tensor *w,
                           const fc_tensor *dy, const fc_tensor *bias)
{
    const int64_t rows = x->arg.shape[0], in = x->arg.shape[1], out = w->arg.shape[0];
    if (part == LINEAR_DX)
        return products(dy, w, 1, rows, in, out, false, false);
    if (part == LINEAR_DW)
        return products(dy, x, 1, out, in, rows, true, false);
    double *y = products(x, w, 1, rows, out, in, false, true);
    for (int64_t i = 0; part == LINEAR_BIAS && i < rows * out; i++)
        y[i] += fc_at(bias, i % out);
    return y;
}

static tsri_kernel_desc desc_of(part_of_linear part, fc_tensor *const *in, const fc_tensor *y)
{
    static const tsri_attrs none;
    tsri_kernel_desc d = {.op = part == LINEAR_DX   ? TSRI_OP_LINEAR_DX
                                : part == LINEAR_DW ? TSRI_OP_LINEAR_DW
                                                    : TSRI_OP_LINEAR,
                          .attrs = &none,
                          .nin = part == LINEAR_BIAS ? 3 : 2,
                          .nout = 1};
    for (int i = 0; i < d.nin; i++)
        d.in[i] = in[i]->arg;
    d.out[0] = y->arg;
    return d;
}

/* Runs a kernel by pieces of up to `most` rows, which its threads take in turn. */
static void run_pieces(const tsri_kernel *k, int threads, int64_t rows, int64_t most, int nin,
                       fc_tensor *const *in, fc_tensor *y, void *scratch)
{
    const tsri_kernel_pieces *p = k->pieces;
    void *whole[TSRI_KERNEL_MAX_ARGS] = {0}, *some[TSRI_KERNEL_MAX_ARGS], *to = y->data;
    for (int i = 0; i < nin; i++)
        whole[i] = in[i]->data;
    tsri_kernel_piece piece = {.units = rows, .in = whole, .out = &to, .scratch = scratch};
    for (piece.thread = 0; piece.thread < threads; piece.thread++)
        p->begin(k, &piece);
    for (int64_t row = 0, turn = 0; row < rows; row += piece.n, turn++) {
        void *part = y->data;
        piece.thread = (int)(turn % threads);
        piece.n = rows - row < most ? rows - row : most;
        for (int i = 0; i < nin; i++)
            some[i] = (char *)whole[i] + (p->in >> i & 1 ? (size_t)(row * in[i]->n / rows) : 0) *
                                             tsr_dtype_size(in[i]->arg.dtype);
        if (p->out & 1)
            part = (char *)part + (size_t)(row * y->n / rows) * tsr_dtype_size(y->arg.dtype);
        piece.in = some;
        piece.out = &part;
        p->piece(k, &piece);
    }
    piece.in = whole;
    piece.out = &to;
    for (piece.thread = 0; p->end && piece.thread < threads; piece.thread++)
        p->end(k, &piece);
}

static void check_linear(part_of_linear part, fc_tensor *const *in, fc_tensor *y,
                         const double *want, int threads, bool by_pieces)
{
    tsri_kernel_desc d = desc_of(part, in, y);
    d.threads = by_pieces ? threads : 0;
    omp_set_num_threads(threads);
    tsri_kernel *k;
    assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
    assert_memory_equal(k->impl, "fast:", 5);
    const size_t bytes = (k->scratch_bytes + 63) / 64 * 64;
    unsigned char *scratch = aligned_alloc(64, bytes + 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes + 64);
    memset(y->data, 0xff, (size_t)y->n * tsr_dtype_size(y->arg.dtype));
    void *ip[3] = {in[0]->data, in[1]->data, in[2]->data}, *to = y->data;
    if (by_pieces)
        run_pieces(k, threads, in[0]->arg.shape[0], 37, d.nin, in, y, scratch);
    else
        assert_int_equal(k->run(k, ip, &to, scratch), TSR_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(scratch[bytes + (size_t)i], 0xff);
    fc_close(k->impl, y, want, product_tolerance(y->arg.dtype));
    free(scratch);
    k->destroy(k);
}

/* Linear layers and their gradients, of few rows and many, whole and by pieces: in f32 and f64
 * kernels of this machine's vectors are the ones that the registry chooses. */
static void test_linear(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {1, 129, 257},  {3, 517, 301},   {9, 70, 290},    {33, 100, 65},
        {300, 70, 290}, {520, 400, 340}, {17000, 11, 13}, {700, 7, 9},
    };
    const int before = omp_get_max_threads();
    for (size_t i = 0; i < 8 * sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i / 8];
        const tsr_dtype dtype = i % 2 ? TSR_F64 : TSR_F32;
        const part_of_linear part = (part_of_linear)(i / 2 % 4);
        fc_tensor x = numbers(dtype, 2, s[0], s[2], 0), w = numbers(dtype, 2, s[1], s[2], 0);
        fc_tensor dy = numbers(dtype, 2, s[0], s[1], 0), bias = numbers(dtype, 1, s[1], 0, 0);
        fc_tensor y = part == LINEAR_DX   ? fc_rows(dtype, 2, s[0], s[2], 0, 0)
                      : part == LINEAR_DW ? fc_rows(dtype, 2, s[1], s[2], 0, 0)
                                          : fc_rows(dtype, 2, s[0], s[1], 0, 0);
        fc_tensor *in[] = {part == LINEAR_DX ? &dy : &x, part == LINEAR_DW ? &dy : &w, &bias};
        double *want = want_linear(part, &x, &w, &dy, &bias);
        for (int k = 0; k < 12; k++) {
            setenv("TESSERA_CPU_ISA", isas[k % 3], 1);
            check_linear(part, in, &y, want, k / 3 % 2 ? 3 : 1, k >= 6);
        }
        fc_free(5, (fc_tensor *[]){&x, &w, &dy, &bias, &y});
        free(want);
    }
    omp_set_num_threads(before);
    unsetenv("TESSERA_CPU_ISA");
}

/* One operand that is no number, or infinite, makes all results no number of which it has terms,
 * and no others: what fills tiles up must not be multiplied with it into a result. */
static void test_special_products(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{2, 300, 37}, {21, 300, 37}, {70, 65, 53}, {300, 20, 19}};
    for (size_t i = 0; i < 3 * 2 * 3 * 2 * sizeof shapes / sizeof *shapes; i++) {
        const int64_t m = shapes[i / 36][0], k = shapes[i / 36][1], n = shapes[i / 36][2];
        const tsr_dtype dtype = i / 18 % 2 ? TSR_F64 : TSR_F32;
        const bool ta = i / 6 % 3 == 1, tb = i / 6 % 3 == 2, of_b = i / 3 % 2;
        const double special = i % 4 ? NAN : INFINITY;
        const tsri_attrs at = {.matmul = {.ta = ta, .tb = tb}};
        fc_tensor a = numbers(dtype, 2, ta ? k : m, ta ? m : k, 0);
        fc_tensor b = numbers(dtype, 2, tb ? n : k, tb ? k : n, 0);
        fc_tensor c = fc_rows(dtype, 2, m, n, 0, 0);
        fc_tensor *t = of_b ? &b : &a;
        if (dtype == TSR_F64)
            ((double *)t->data)[t->n - 1] = special;
        else
            ((float *)t->data)[t->n - 1] = (float)special;
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        omp_set_num_threads(1 + (int)(i & 1));
        assert_true(fc_run(&tsri_kernels_cpu_fast, TSRI_OP_MATMUL, &at, 0, 2,
                           (fc_tensor *[]){&a, &b}, 1, (fc_tensor *[]){&c}));
        for (int64_t e = 0; e < c.n; e++) {
            const bool has = of_b ? e % n == n - 1 : e / n == m - 1;
            assert_int_equal(isfinite(fc_at(&c, e)) != 0, !has);
            assert_true(!has || isnan(special) == (isnan(fc_at(&c, e)) != 0));
        }
        fc_free(3, (fc_tensor *[]){&a, &b, &c});
    }
    unsetenv("TESSERA_CPU_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_batch_matmul),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_special_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
