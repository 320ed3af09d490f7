/* SPDX-License-Identifier: Apache-2.0 */
/* The indexing and selecting kernels where the table of cases does not reach: bad ids, rows of
 * other shards, threads, long sums, NaN, 16-bit types, the ends of whole numbers. */
#include "cases.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static tsri_arg arg(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsri_arg a = {.dtype = dtype, .ndim = ndim};
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; step *= shape[i--]) {
        a.shape[i] = a.gshape[i] = shape[i];
        a.stride[i] = step;
    }
    return a;
}
#define ARG(type, ...)                                                   \
    arg(type, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
        (const int64_t[]){__VA_ARGS__})

static tsr_status run(const tsri_kernels *impl, const tsri_kernel_desc *d, void *const *in,
                      void *const *out)
{
    tsri_kernel *k;
    if (!impl->slot[d->op])
        return TSR_ERR_UNSUPPORTED;
    TSRI_TRY(impl->slot[d->op](NULL, d, &k));
    void *scratch = aligned_alloc(64, (k->scratch_bytes + 127) / 64 * 64);
    assert_non_null(scratch);
    tsr_status status = k->run(k, in, out, scratch);
    free(scratch);
    k->destroy(k);
    return status;
}

/* Calls fn with each implementation that has the op, but for that of f16 and bf16 alone: at least
 * `least` of them. */
#define EACH_IMPL(impl, op, least, ...)                                       \
    do {                                                                      \
        int n_ = 0;                                                           \
        for (const tsri_kernels *const *i_ = tsri_kernels_cpu(); *i_; i_++) { \
            const tsri_kernels *impl = *i_;                                   \
            if (!impl->slot[op] || !strcmp(impl->name, "via32"))              \
                continue;                                                     \
            n_++;                                                             \
            __VA_ARGS__                                                       \
        }                                                                     \
        assert_true(n_ >= (least));                                           \
    } while (0)

/* --- ids -------------------------------------------------------------------------------------- */

static void says(tsr_status status, const char *text)
{
    assert_int_equal(status, TSR_ERR_INVALID);
    if (!strstr(tsr_last_error(), text))
        fail_msg("%s lacks %s", tsr_last_error(), text);
}

static void test_bad_ids(void **state)
{
    (void)state;
    const tsri_attrs attrs = {0};
    float x[15] = {0}, y[12] = {0};
    int64_t ids[4] = {4, 0, 5, -1};
    tsri_kernel_desc d = {.op = TSRI_OP_INDEX_SELECT, .attrs = &attrs, .nin = 2, .nout = 1};
    d.in[0] = ARG(TSR_F32, 2, 3); /* rows 3 and 4 of 5 */
    d.in[0].gshape[0] = 5;
    d.in[0].offset[0] = 3;
    d.in[1] = ARG(TSR_I64, 4); /* 10 to 13 of 20 */
    d.in[1].gshape[0] = 20;
    d.in[1].offset[0] = 10;
    d.out[0] = ARG(TSR_F32, 4, 3);
    EACH_IMPL(impl, d.op, 2, {
        says(run(impl, &d, (void *[]){x, ids}, (void *[]){y}),
             "index_select: id 5, element 12 of the ids, is not in 0 <= id < 5");
    });
    tsri_kernel_desc b = {.op = TSRI_OP_INDEX_SELECT_DX, .attrs = &attrs, .nin = 2, .nout = 1};
    b.in[0] = d.in[1];
    b.in[1] = d.out[0];
    b.out[0] = d.in[0];
    ids[2] = 1;
    EACH_IMPL(impl, b.op, 2, {
        says(run(impl, &b, (void *[]){ids, y}, (void *[]){x}),
             "index_select_dx: id -1, element 13 of the ids, is not in 0 <= id < 5");
    });
    tsri_kernel_desc o = {.op = TSRI_OP_ONE_HOT, .attrs = &attrs, .nin = 1, .nout = 1};
    o.in[0] = ARG(TSR_I64, 4);
    o.out[0] = ARG(TSR_F32, 4, 3);
    o.out[0].gshape[1] = 4;
    EACH_IMPL(impl, o.op, 1, {
        says(run(impl, &o, (void *[]){ids}, (void *[]){y}),
             "one_hot: id 4, element 0 of the ids, is not in 0 <= id < 4");
    });
}

/* Rows that another shard has are exact zeros, also where this one has none at all. */
static void test_other_shards(void **state)
{
    (void)state;
    const tsri_attrs attrs = {0};
    float x[6] = {1, 2, 3, 4, 5, 6};
    int64_t ids[4] = {4, 0, 3, 1};
    for (int rows = 0; rows <= 2; rows += 2) {
        tsri_kernel_desc d = {.op = TSRI_OP_INDEX_SELECT, .attrs = &attrs, .nin = 2, .nout = 1};
        d.in[0] = ARG(TSR_F32, rows, 3);
        d.in[0].gshape[0] = 5;
        d.in[0].offset[0] = rows ? 3 : 5;
        d.in[1] = ARG(TSR_I64, 4);
        d.out[0] = ARG(TSR_F32, 4, 3);
        const float no = -0.0f; /* the addend that changes no other */
        const float want[2][12] = {{no, no, no, no, no, no, no, no, no, no, no, no},
                                   {4, 5, 6, no, no, no, 1, 2, 3, no, no, no}};
        EACH_IMPL(impl, d.op, 2, {
            float y[12];
            memset(y, 0xff, sizeof y);
            assert_int_equal(run(impl, &d, (void *[]){rows ? x : NULL, ids}, (void *[]){y}),
                             TSR_OK);
            assert_memory_equal(y, want[rows != 0], sizeof y);
        });
    }
}

enum { ROWS = 50, WIDTH = 330, IDS = 700 };

/* The same bits from any number of threads, and from both implementations. */
static void test_threads(void **state)
{
    (void)state;
    static float dy[IDS * WIDTH], want[ROWS * WIDTH], got[ROWS * WIDTH];
    static int64_t ids[IDS];
    const tsri_attrs attrs = {0};
    for (int i = 0; i < IDS; i++)
        ids[i] = i * i % ROWS;
    for (int i = 0; i < IDS * WIDTH; i++)
        dy[i] = (float)sin(i) * (float)(i % 1000);
    tsri_kernel_desc d = {.op = TSRI_OP_INDEX_SELECT_DX, .attrs = &attrs, .nin = 2, .nout = 1};
    d.in[0] = ARG(TSR_I64, IDS);
    d.in[1] = ARG(TSR_F32, IDS, WIDTH);
    d.out[0] = ARG(TSR_F32, ROWS, WIDTH);
    const int threads = omp_get_max_threads();
    bool first = true;
    EACH_IMPL(impl, d.op, 2, {
        for (int n = 1; n <= 4; n++) {
            omp_set_num_threads(n);
            float *to = first ? want : got;
            assert_int_equal(run(impl, &d, (void *[]){ids, dy}, (void *[]){to}), TSR_OK);
            assert_memory_equal(to, want, sizeof want);
            first = false;
        }
    });
    omp_set_num_threads(threads);
}

/* A word that comes up very often does not lose its gradient in its own sum. */
static void test_long_sums(void **state)
{
    (void)state;
    enum { N = 300001 };
    const tsri_attrs attrs = {0};
    int64_t *ids = calloc(N, sizeof *ids);
    float *dy = malloc(N * sizeof *dy), dx[2], sum[1];
    assert_true(ids && dy);
    for (int i = 0; i < N; i++)
        dy[i] = 0.1f;
    tsri_kernel_desc d = {.op = TSRI_OP_INDEX_SELECT_DX, .attrs = &attrs, .nin = 2, .nout = 1};
    d.in[0] = ARG(TSR_I64, N);
    d.in[1] = ARG(TSR_F32, N, 1);
    d.out[0] = ARG(TSR_F32, 2, 1);
    EACH_IMPL(impl, d.op, 2, {
        assert_int_equal(run(impl, &d, (void *[]){ids, dy}, (void *[]){dx}), TSR_OK);
        assert_float_equal(dx[0], (float)(N * (double)0.1f), 0.002);
        assert_float_equal(dx[1], 0, 0);
    });
    tsri_attrs scan = {0};
    tsri_kernel_desc c = {.op = TSRI_OP_CUMSUM, .attrs = &scan, .nin = 1, .nout = 1};
    c.in[0] = c.out[0] = ARG(TSR_F32, N);
    float *y = malloc(N * sizeof *y);
    assert_non_null(y);
    EACH_IMPL(impl, c.op, 1, {
        assert_int_equal(run(impl, &c, (void *[]){dy}, (void *[]){y}), TSR_OK);
        sum[0] = y[N - 1];
        assert_float_equal(sum[0], (float)(N * (double)0.1f), 0.002);
    });
    free(ids);
    free(dy);
    free(y);
}

/* --- values ----------------------------------------------------------------------------------- */

static void test_nan(void **state)
{
    (void)state;
    float x[5] = {NAN, 1, NAN, INFINITY, -0.0f}, u[5] = {1, NAN, NAN, 2, 0.0f};
    static const struct {
        tsri_binary_fn fn;
        uint8_t want[5];
    } of[] = {
        {TSRI_BINARY_EQUAL, {0, 0, 0, 0, 1}},   {TSRI_BINARY_NOT_EQUAL, {1, 1, 1, 1, 0}},
        {TSRI_BINARY_LESS, {0, 0, 0, 0, 0}},    {TSRI_BINARY_LESS_EQUAL, {0, 0, 0, 0, 1}},
        {TSRI_BINARY_GREATER, {0, 0, 0, 1, 0}}, {TSRI_BINARY_GREATER_EQUAL, {0, 0, 0, 1, 1}},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        tsri_attrs attrs = {0};
        attrs.binary.fn = of[i].fn;
        tsri_kernel_desc d = {.op = TSRI_OP_BINARY, .attrs = &attrs, .nin = 2, .nout = 1};
        d.in[0] = d.in[1] = ARG(TSR_F32, 5);
        d.out[0] = ARG(TSR_BOOL, 5);
        EACH_IMPL(impl, d.op, 1, {
            uint8_t y[5];
            if (run(impl, &d, (void *[]){x, u}, (void *[]){y}) == TSR_OK)
                assert_memory_equal(y, of[i].want, sizeof y);
        });
    }
    for (int max = 0; max < 2; max++) {
        tsri_attrs attrs = {0};
        attrs.binary.fn = max ? TSRI_BINARY_MAXIMUM : TSRI_BINARY_MINIMUM;
        tsri_kernel_desc d = {.op = TSRI_OP_BINARY, .attrs = &attrs, .nin = 2, .nout = 1};
        d.in[0] = d.in[1] = d.out[0] = ARG(TSR_F32, 5);
        EACH_IMPL(impl, d.op, 1, {
            float y[5];
            if (run(impl, &d, (void *[]){x, u}, (void *[]){y}) != TSR_OK)
                continue;
            assert_true(isnan(y[0]) && isnan(y[1]) && isnan(y[2]));
            assert_true(y[3] == (max ? INFINITY : 2) && y[4] == 0);
        });
    }
    tsri_attrs attrs = {.binary.fn = TSRI_BINARY_PRELU};
    tsri_kernel_desc d = {.op = TSRI_OP_BINARY, .attrs = &attrs, .nin = 2, .nout = 1};
    d.in[0] = d.in[1] = d.out[0] = ARG(TSR_F32, 5);
    EACH_IMPL(impl, d.op, 1, {
        float y[5];
        if (run(impl, &d, (void *[]){x, u}, (void *[]){y}) == TSR_OK)
            assert_true(isnan(y[0]) && y[1] == 1 && isnan(y[2]) && y[3] == INFINITY && y[4] == 0);
    });
}

/* Whole numbers that no double tells apart. */
static void test_whole_ends(void **state)
{
    (void)state;
    int64_t x[3] = {INT64_MAX, INT64_MAX - 1, INT64_MIN};
    int64_t u[3] = {INT64_MAX - 1, INT64_MAX, INT64_MIN + 1}, y[3];
    uint8_t less[3];
    tsri_attrs attrs = {0};
    attrs.binary.fn = TSRI_BINARY_MAXIMUM;
    tsri_kernel_desc d = {.op = TSRI_OP_BINARY, .attrs = &attrs, .nin = 2, .nout = 1};
    d.in[0] = d.in[1] = d.out[0] = ARG(TSR_I64, 3);
    EACH_IMPL(impl, d.op, 1, {
        if (run(impl, &d, (void *[]){x, u}, (void *[]){y}) == TSR_OK)
            assert_true(y[0] == INT64_MAX && y[1] == INT64_MAX && y[2] == INT64_MIN + 1);
    });
    attrs.binary.fn = TSRI_BINARY_LESS;
    d.out[0] = ARG(TSR_BOOL, 3);
    EACH_IMPL(impl, d.op, 1, {
        if (run(impl, &d, (void *[]){x, u}, (void *[]){less}) == TSR_OK)
            assert_true(!less[0] && less[1] && less[2]);
    });
    /* Sums wrap around. */
    int64_t a[3] = {INT64_MAX, 1, 5}, s[3];
    int taken = 0;
    const int64_t want[3] = {INT64_MAX, INT64_MIN, INT64_MIN + 5};
    tsri_attrs scan = {0};
    tsri_kernel_desc c = {.op = TSRI_OP_CUMSUM, .attrs = &scan, .nin = 1, .nout = 1};
    c.in[0] = c.out[0] = ARG(TSR_I64, 3);
    EACH_IMPL(impl, c.op, 1, {
        const tsr_status status = run(impl, &c, (void *[]){a}, (void *[]){s});
        assert_true(status == TSR_OK || status == TSR_ERR_UNSUPPORTED);
        if (status == TSR_OK)
            assert_memory_equal(s, want, sizeof want);
        taken += status == TSR_OK;
    });
    assert_true(taken > 0);
}

/* Movement goes by the size of elements: 16-bit floats are moved like any other. */
static void test_half(void **state)
{
    (void)state;
    uint16_t x[6] = {1, 2, 3, 4, 5, 6}, y[8];
    int64_t ids[3] = {1, 0, 1};
    uint8_t cond[6] = {1, 0, 0, 1, 1, 0};
    tsri_attrs attrs = {0};
    tsri_kernel_desc d = {.op = TSRI_OP_INDEX_SELECT, .attrs = &attrs, .nin = 2, .nout = 1};
    d.in[0] = ARG(TSR_F16, 2, 3);
    d.in[1] = ARG(TSR_I64, 3);
    d.out[0] = ARG(TSR_F16, 3, 3);
    const uint16_t rows[9] = {4, 5, 6, 1, 2, 3, 4, 5, 6};
    EACH_IMPL(impl, d.op, 2, {
        uint16_t g[9];
        assert_int_equal(run(impl, &d, (void *[]){x, ids}, (void *[]){g}), TSR_OK);
        assert_memory_equal(g, rows, sizeof rows);
    });
    tsri_kernel_desc w = {.op = TSRI_OP_MASK, .attrs = &attrs, .nin = 2, .nout = 1};
    attrs.mask.keep = 1;
    w.in[0] = ARG(TSR_BOOL, 6);
    w.in[1] = w.out[0] = ARG(TSR_BF16, 6);
    const uint16_t kept[6] = {1, 0, 0, 4, 5, 0};
    EACH_IMPL(impl, w.op, 1, {
        assert_int_equal(run(impl, &w, (void *[]){cond, x}, (void *[]){y}), TSR_OK);
        assert_memory_equal(y, kept, sizeof kept);
    });
    tsri_kernel_desc p = {.op = TSRI_OP_PAD, .attrs = &attrs, .nin = 1, .nout = 1};
    attrs = (tsri_attrs){.slice = {{1}, {1}, 1.0}};
    p.in[0] = ARG(TSR_F16, 6);
    p.out[0] = ARG(TSR_F16, 8);
    const uint16_t padded[8] = {0x3c00, 1, 2, 3, 4, 5, 6, 0x3c00};
    EACH_IMPL(impl, p.op, 1, {
        assert_int_equal(run(impl, &p, (void *[]){x}, (void *[]){y}), TSR_OK);
        assert_memory_equal(y, padded, sizeof padded);
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_ids), cmocka_unit_test(test_other_shards),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_long_sums),
        cmocka_unit_test(test_nan),     cmocka_unit_test(test_whole_ends),
        cmocka_unit_test(test_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
