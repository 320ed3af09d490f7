/* SPDX-License-Identifier: Apache-2.0 */
/* Sorting, indexing and moving by the fast kernels, of every instruction set that this machine has
 * and on 1 to 4 threads, against the reference, element by element. */
#include "tests/kernels/fast/fast_case.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { KINDS = 12 }; /* of instruction sets and numbers of threads */

static void use_kind(int i)
{
    static const char *const isas[] = {"base", "avx2", "avx512"};
    setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
    omp_set_num_threads(1 + i / 3 % 4);
}

/* Runs an op by both, and compares the bytes; f32 to `tol`, and NaN with NaN. */
static void like_reference(tsri_op_kind op, const tsri_attrs *at, int nin, fc_tensor *const *in,
                           fc_tensor *got, float tol)
{
    fc_tensor want = *got;
    want.data = calloc((size_t)want.n + 1, 8);
    assert_non_null(want.data);
    assert_true(fc_run(&tsri_kernels_cpu_fast, op, at, 0, nin, in, 1, (fc_tensor *[]){got}));
    assert_true(fc_run(&tsri_kernels_cpu_ref, op, at, 0, nin, in, 1, (fc_tensor *[]){&want}));
    if (got->arg.dtype != TSR_F32) {
        assert_memory_equal(got->data, want.data, (size_t)got->n * tsr_dtype_size(got->arg.dtype));
        free(want.data);
        return;
    }
    const float *g = got->data, *w = want.data;
    for (int64_t i = 0; i < got->n; i++)
        if (isnan(w[i]) ? !isnan(g[i]) : !(g[i] == w[i] || fabsf(g[i] - w[i]) <= tol))
            fail_msg("%s: element %ld is %.9g, not %.9g", tsri_op_name(op), (long)i, (double)g[i],
                     (double)w[i]);
    free(want.data);
}

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Numbers of many kinds: all different, few different, rising, falling, special ones. */
static void fill(float *x, int64_t n, int kind, uint32_t *state)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, -NAN, 3.0f};
    for (int64_t i = 0; i < n; i++)
        x[i] = kind == 0   ? (float)draw(state) / 4096
               : kind == 1 ? (float)(draw(state) % 7)
               : kind == 2 ? (float)i
               : kind == 3 ? (float)-i
               : kind == 4 ? special[draw(state) % 8]
                           : 0.0f;
}

/* The first places: of short and long lines, along the last axis and others. */
static void test_first_places(void **state)
{
    (void)state;
    static const int64_t cases[][4] = {/* lines, length, lines behind each other, places */
                                       {3, 1, 1, 1},      {5, 7, 1, 7},      {4, 24, 3, 20},
                                       {7, 100, 1, 10},   {2, 1000, 1, 32},  {2, 1000, 1, 33},
                                       {3, 1000, 2, 250}, {1, 40000, 1, 99}, {30, 700, 1, 1},
                                       {2, 5000, 1, 1200}};
    uint32_t seed = 1;
    for (int i = 0; i < KINDS * 6 * (int)(sizeof cases / sizeof *cases); i++) {
        const int64_t *c = cases[i / 6 / KINDS];
        use_kind(i % KINDS);
        fc_tensor x = fc_rows(TSR_F32, 3, c[0], c[1], c[2], 0);
        fc_tensor y = fc_rows(TSR_I64, 3, c[0], c[3], c[2], 0);
        fill(x.data, x.n, i / KINDS % 6, &seed);
        const tsri_attrs at = {.sort = {.axis = 1, .descending = i % 2}};
        like_reference(TSRI_OP_ARGSORT, &at, 1, (fc_tensor *[]){&x}, &y, 0);
        fc_free(2, (fc_tensor *[]){&x, &y});
    }
}

/* The place of the largest: of long rows, and of columns in whole vectors and others. */
static void test_largest(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {/* lines, length, lines behind each other */
                                       {3, 32, 1},   {7, 100, 1},    {5, 1003, 1},
                                       {2, 9001, 1}, {4, 50, 64},    {3, 20, 130},
                                       {9, 7, 3},    {1, 300, 4201}, {2, 1, 70}};
    uint32_t seed = 4;
    for (int i = 0; i < KINDS * 6 * (int)(sizeof cases / sizeof *cases); i++) {
        const int64_t *c = cases[i / 6 / KINDS];
        use_kind(i % KINDS);
        fc_tensor x = fc_rows(TSR_F32, 3, c[0], c[1], c[2], 0);
        fc_tensor y = fc_rows(TSR_I64, 2, c[0], c[2], 0, 0);
        fill(x.data, x.n, i / KINDS % 6, &seed);
        for (int64_t k = 0; k < 3 && i % 5 == 0; k++)
            ((float *)x.data)[draw(&seed) % x.n] = NAN;
        const tsri_attrs at = {.softmax = {.axis = 1}};
        like_reference(TSRI_OP_ARGMAX, &at, 1, (fc_tensor *[]){&x}, &y, 0);
        fc_free(2, (fc_tensor *[]){&x, &y});
    }
}

/* A rising line makes all of it candidates; where most places are wanted the kernel declines. */
static void test_many_places_are_left(void **state)
{
    (void)state;
    fc_tensor x = fc_rows(TSR_F32, 2, 2, 1000, 0, 0), y = fc_rows(TSR_I64, 2, 2, 251, 0, 0);
    const tsri_attrs at = {.sort = {.axis = 1}};
    assert_false(fc_run(&tsri_kernels_cpu_fast, TSRI_OP_ARGSORT, &at, 0, 1, (fc_tensor *[]){&x}, 1,
                        (fc_tensor *[]){&y}));
    fc_free(2, (fc_tensor *[]){&x, &y});
}

/* x is a shard of an axis, or has all of it: what others hold is 0, and adds nothing. */
static void test_lines(void **state)
{
    (void)state;
    static const int64_t cases[][4] = {/* lines, length, ids, where the shard begins */
                                       {1, 1, 1, 0},    {3, 5, 17, 0},    {40, 1000, 1003, 0},
                                       {9, 33, 7, 0},   {7, 20, 65, 11},  {200, 64, 64, 0},
                                       {2, 6000, 9, 0}, {5, 300, 900, 40}};
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_I64, TSR_BOOL, TSR_BF16};
    uint32_t seed = 2;
    for (int i = 0; i < KINDS * 5 * (int)(sizeof cases / sizeof *cases); i++) {
        const int64_t *c = cases[i / 5 / KINDS];
        const bool dx = i / KINDS % 5 == 4;
        const tsr_dtype dtype = dx ? TSR_F32 : dtypes[i / KINDS % 5];
        use_kind(i % KINDS);
        fc_tensor x = fc_rows(dtype, 2, c[0], c[1], 0, 0), y = fc_rows(dtype, 2, c[0], c[2], 0, 0);
        fc_tensor ids = fc_rows(TSR_I64, 2, c[0], c[2], 0, 0), *from = dx ? &y : &x;
        x.arg.gshape[0] = c[0];
        x.arg.gshape[1] = c[1] + (c[3] ? 2 * c[3] : 0);
        x.arg.offset[1] = c[3];
        for (int64_t k = 0; k < ids.n; k++)
            ((int64_t *)ids.data)[k] = draw(&seed) % x.arg.gshape[1];
        for (size_t k = 0; k < (size_t)from->n * tsr_dtype_size(dtype) && dtype != TSR_F32; k++)
            ((unsigned char *)from->data)[k] = (unsigned char)draw(&seed) & 1;
        const tsri_attrs at = {.gather = {.axis = 1}};
        if (dx)
            like_reference(TSRI_OP_GATHER_DX, &at, 2, (fc_tensor *[]){&ids, &y}, &x, 0);
        else
            like_reference(TSRI_OP_GATHER, &at, 2, (fc_tensor *[]){&x, &ids}, &y, 0);
        fc_free(3, (fc_tensor *[]){&x, &y, &ids});
    }
}

/* Rows that are selected once, twice, often and not at all, in any width. */
static void test_rows(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {/* rows, width, ids */
                                       {9, 1, 30},   {5, 3, 4},     {40, 64, 90}, {7, 133, 7},
                                       {20, 67, 21}, {3, 1030, 50}, {64, 16, 1},  {11, 257, 33}};
    uint32_t seed = 3;
    for (int i = 0; i < KINDS * 2 * (int)(sizeof cases / sizeof *cases); i++) {
        const int64_t *c = cases[i / 2 / KINDS];
        const bool dx = i / KINDS % 2;
        use_kind(i % KINDS);
        fc_tensor x = fc_rows(TSR_F32, 2, c[0], c[1], 0, 0);
        fc_tensor y = fc_rows(TSR_F32, 2, c[2], c[1], 0, 0);
        fc_tensor ids = fc_rows(TSR_I64, 1, c[2], 0, 0, 0);
        x.arg.gshape[0] = c[0];
        x.arg.gshape[1] = c[1];
        for (int64_t k = 0; k < ids.n; k++)
            ((int64_t *)ids.data)[k] = draw(&seed) % c[0];
        const tsri_attrs at = {.gather = {.axis = 0}};
        if (dx)
            like_reference(TSRI_OP_INDEX_SELECT_DX, &at, 2, (fc_tensor *[]){&ids, &y}, &x, 0);
        else
            like_reference(TSRI_OP_INDEX_SELECT, &at, 2, (fc_tensor *[]){&x, &ids}, &y, 0);
        fc_free(3, (fc_tensor *[]){&x, &y, &ids});
    }
}

/* Axes in another order, turned round and rolled, joined in short rows: by every size of a row. */
static void test_moves(void **state)
{
    (void)state;
    static const int64_t widths[] = {1,  2,  3,  4,  5,  9,  15,  16, 17,
                                     31, 33, 50, 63, 64, 65, 257, 300};
    for (int i = 0; i < KINDS * (int)(sizeof widths / sizeof *widths); i++) {
        const int64_t w = widths[i / KINDS];
        use_kind(i % KINDS);
        fc_tensor x = fc_rows(TSR_F32, 3, 37, 5, w, 0), y = fc_rows(TSR_F32, 3, 5, 37, w, 0);
        fc_tensor last = fc_rows(TSR_F32, 3, 37, w, 5, 0),
                  both = fc_rows(TSR_F32, 3, 37, 5, 2 * w, 0);
        fc_tensor same = fc_rows(TSR_F32, 3, 37, 5, w, 0);
        tsri_attrs at = {.permute = {.perm = {1, 0, 2}}};
        like_reference(TSRI_OP_PERMUTE, &at, 1, (fc_tensor *[]){&x}, &y, 0);
        at = (tsri_attrs){.permute = {.perm = {0, 2, 1}}};
        like_reference(TSRI_OP_PERMUTE, &at, 1, (fc_tensor *[]){&x}, &last, 0);
        at = (tsri_attrs){.cut = {.axis = 2}};
        like_reference(TSRI_OP_CONCAT, &at, 2, (fc_tensor *[]){&x, &x}, &both, 0);
        at = (tsri_attrs){.slice = {.start = {0, 4, w - 1}, .step = {1, -1, -1}}};
        like_reference(TSRI_OP_SLICE, &at, 1, (fc_tensor *[]){&x}, &same, 0);
        at = (tsri_attrs){.slice = {.start = {0, 3, w / 2}, .step = {1, 1, 1}}};
        at.slice.start[w > 1 ? 1 : 2] = 0;
        like_reference(TSRI_OP_SLICE, &at, 1, (fc_tensor *[]){&x}, &same, 0);
        fc_free(5, (fc_tensor *[]){&x, &y, &last, &both, &same});
    }
}

/* Resized rows and lines; a NaN or an infinity stays in the elements that it is part of. */
static void test_resize(void **state)
{
    (void)state;
    static const int64_t cases[][4] = {/* outer, before, behind, inner */
                                       {3, 5, 10, 1},   {2, 50, 100, 67}, {4, 9, 4, 16},
                                       {1, 1, 7, 3},    {5, 33, 65, 1},   {2, 6, 1, 5},
                                       {60, 31, 62, 30}};
    for (int i = 0; i < KINDS * 6 * (int)(sizeof cases / sizeof *cases); i++) {
        const int64_t *c = cases[i / 6 / KINDS];
        const bool dx = i / KINDS % 2;
        use_kind(i % KINDS);
        fc_tensor x = fc_rows(TSR_F32, 3, c[0], c[1], c[3], 0);
        fc_tensor y = fc_rows(TSR_F32, 3, c[0], c[2], c[3], 0);
        const tsri_attrs at = {.resize = {.axis = 1, .how = i / KINDS / 2 % 3}};
        ((float *)(dx ? &y : &x)->data)[c[3] - 1] = i / KINDS / 3 % 2 ? NAN : INFINITY;
        like_reference(dx ? TSRI_OP_RESIZE_DX : TSRI_OP_RESIZE, &at, 1,
                       (fc_tensor *[]){dx ? &y : &x}, dx ? &x : &y, 1e-6f);
        fc_free(2, (fc_tensor *[]){&x, &y});
    }
}

static unsigned pick(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 10) % below;
}

static fc_tensor dense(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    fc_tensor t = fc_rows(dtype, 1, n, 0, 0, 0);
    t.arg.ndim = ndim;
    for (int i = ndim - 1, step = 1; i >= 0; step *= (int)shape[i--]) {
        t.arg.shape[i] = t.arg.gshape[i] = shape[i];
        t.arg.stride[i] = step;
    }
    return t;
}

/* Turns any axes of up to eight round, or puts them in another order. */
static void test_turned_axes(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_BOOL, TSR_BF16, TSR_F32, TSR_F64};
    unsigned seed = 1;
    for (int i = 0; i < 3000; i++) {
        const int ndim = 1 + (int)pick(&seed, 8);
        const tsr_dtype dtype = dtypes[pick(&seed, 4)];
        tsri_attrs at = {0};
        int64_t shape[8] = {0}, turned[8] = {0};
        for (int k = 0; k < ndim; k++)
            shape[k] = 1 + (int64_t)pick(&seed, ndim > 5 ? 3 : 6);
        for (int k = 0; k < ndim; k++) {
            turned[k] = shape[k];
            const bool back = pick(&seed, 2);
            at.slice.start[k] = back ? shape[k] - 1 : 0;
            at.slice.step[k] = back ? -1 : 1;
        }
        const bool permutes = i % 2;
        if (permutes) {
            at = (tsri_attrs){0};
            for (int k = 0; k < ndim; k++)
                at.permute.perm[k] = k;
            for (int k = ndim - 1; k > 0; k--) {
                const int j = (int)pick(&seed, (unsigned)k + 1), was = at.permute.perm[k];
                at.permute.perm[k] = at.permute.perm[j];
                at.permute.perm[j] = was;
            }
            for (int k = 0; k < ndim; k++)
                turned[k] = shape[at.permute.perm[k]];
        }
        const tsri_op_kind op = permutes ? TSRI_OP_PERMUTE : TSRI_OP_SLICE;
        fc_tensor x = dense(dtype, ndim, shape), got = dense(dtype, ndim, turned),
                  want = dense(dtype, ndim, turned);
        fc_tensor *in[] = {&x};
        const size_t size = tsr_dtype_size(dtype);
        for (size_t k = 0; k < (size_t)x.n * size; k++)
            ((uint8_t *)x.data)[k] = (uint8_t)(dtype == TSR_BOOL ? k % 2 : k * 37 + k / 251);
        assert_true(fc_run(&tsri_kernels_cpu_ref, op, &at, 0, 1, in, 1, (fc_tensor *[]){&want}));
        assert_true(fc_run(&tsri_kernels_cpu_fast, op, &at, 0, 1, in, 1, (fc_tensor *[]){&got}));
        assert_memory_equal(got.data, want.data, (size_t)want.n * size);
        fc_free(3, (fc_tensor *[]){&x, &got, &want});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_places), cmocka_unit_test(test_many_places_are_left),
        cmocka_unit_test(test_largest),      cmocka_unit_test(test_lines),
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_moves),
        cmocka_unit_test(test_resize),       cmocka_unit_test(test_turned_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
