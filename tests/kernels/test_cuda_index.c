/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA module's indexing and random kernels, conversions and moves, where the table of cases
 * does not reach: ids that are out of range, the same bits as the CPU's, every pair of dtypes,
 * reductions of many sources. Skipped where there is no device; on the emulator with
 * TESSERA_CUDA_MODULE.
 */
#include "on_cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
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

static size_t bytes_of(const tsri_arg *a)
{
    size_t n = tsr_dtype_size(a->dtype);
    for (int i = 0; i < a->ndim; i++)
        n *= (size_t)a->shape[i];
    return n;
}

static void *upload(const void *host, size_t bytes)
{
    void *p = NULL;
    if (bytes)
        assert_int_equal(device->ops->buffer_alloc(device, bytes, &p), TSR_OK);
    if (bytes && host)
        assert_int_equal(device->ops->copy_in(device, p, host, bytes, device->stream), TSR_OK);
    return p;
}

/* Host buffers to results on the host. The status is that of creation, of run, or of what the work
 * met. */
static tsr_status run(const tsri_kernels *impl, tsri_kernel_desc d, const void *const *in,
                      void *const *out)
{
    void *pi[TSRI_KERNEL_MAX_ARGS] = {0}, *po[TSRI_KERNEL_MAX_ARGS] = {0};
    tsri_kernel *k;
    d.stream = device->stream;
    if (!impl->slot[d.op])
        return TSR_ERR_UNSUPPORTED;
    TSRI_TRY(impl->slot[d.op](NULL, &d, &k));
    for (int i = 0; i < d.nin; i++)
        pi[i] = upload(in[i], bytes_of(&d.in[i]));
    for (int i = 0; i < d.nout; i++)
        po[i] = upload(out[i], bytes_of(&d.out[i]));
    void *scratch = upload(NULL, k->scratch_bytes);
    tsr_status status = k->run(k, pi, po, scratch);
    if (status == TSR_OK)
        status = device->ops->stream_sync(device, device->stream);
    if (status == TSR_OK)
        status = device->ops->check(device);
    for (int i = 0; i < d.nin; i++)
        device->ops->buffer_free(device, pi[i], bytes_of(&d.in[i]));
    for (int i = 0; i < d.nout; i++) {
        if (po[i])
            assert_int_equal(
                device->ops->copy_out(device, out[i], po[i], bytes_of(&d.out[i]), device->stream),
                TSR_OK);
        device->ops->buffer_free(device, po[i], bytes_of(&d.out[i]));
    }
    device->ops->buffer_free(device, scratch, k->scratch_bytes);
    k->destroy(k);
    return status;
}

static void run_reference(tsri_kernel_desc d, const void *const *in, void *out)
{
    tsri_kernel *k;
    assert_int_equal(reference()->slot[d.op](NULL, &d, &k), TSR_OK);
    void *scratch = aligned_alloc(64, (k->scratch_bytes + 127) / 64 * 64);
    assert_non_null(scratch);
    void *operands[TSRI_KERNEL_MAX_ARGS];
    memcpy(operands, in, (size_t)d.nin * sizeof *in);
    assert_int_equal(k->run(k, operands, &out, scratch), TSR_OK);
    free(scratch);
    k->destroy(k);
}

/* Calls fn with each implementation that has the op. */
#define EACH_IMPL(impl, op, ...)                                                  \
    do {                                                                          \
        for (const tsri_kernels *const *i_ = device->ops->kernels(); *i_; i_++) { \
            const tsri_kernels *impl = *i_;                                       \
            if (impl->slot[op]) {                                                 \
                __VA_ARGS__                                                       \
            }                                                                     \
        }                                                                         \
    } while (0)

/* --- ids -------------------------------------------------------------------------------------- */
static void says(tsr_status status, const char *text)
{
    assert_int_equal(status, TSR_ERR_INVALID);
    if (!strstr(tsr_last_error(), text))
        fail_msg("%s lacks %s", tsr_last_error(), text);
    assert_int_equal(device->ops->check(device), TSR_OK); /* said once */
}

static void test_bad_ids(void **state)
{
    (void)state;
    const tsri_attrs attrs = {0};
    const float x[6] = {1, 2, 3, 4, 5, 6}, dy[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    float y[12], dx[6];
    int64_t ids[4] = {4, 0, 5, 3};
    tsri_kernel_desc d = {.op = TSRI_OP_INDEX_SELECT, .attrs = &attrs, .nin = 2, .nout = 1};
    d.in[0] = ARG(TSR_F32, 2, 3); /* rows 3 and 4 of 5 */
    d.in[0].gshape[0] = 5;
    d.in[0].offset[0] = 3;
    d.in[1] = ARG(TSR_I64, 4); /* 10 to 13 of 20 */
    d.in[1].gshape[0] = 20;
    d.in[1].offset[0] = 10;
    d.out[0] = ARG(TSR_F32, 4, 3);
    const float no = -0.0f; /* the addend that changes no other */
    const float want[12] = {4, 5, 6, no, no, no, no, no, no, 1, 2, 3};
    EACH_IMPL(impl, d.op, {
        memset(y, 0xff, sizeof y);
        says(run(impl, d, (const void *[]){x, ids}, (void *[]){y}),
             "index_select: id 5, element 12 of the ids, is not in 0 <= id < 5");
        assert_memory_equal(y, want, sizeof y);
    });
    tsri_kernel_desc b = {.op = TSRI_OP_INDEX_SELECT_DX, .attrs = &attrs, .nin = 2, .nout = 1};
    b.in[0] = d.in[1];
    b.in[1] = d.out[0];
    b.out[0] = d.in[0];
    ids[2] = -1;
    const float sums[6] = {1, 1, 1, 1, 1, 1};
    EACH_IMPL(impl, b.op, {
        says(run(impl, b, (const void *[]){ids, dy}, (void *[]){dx}),
             "index_select_dx: id -1, element 12 of the ids, is not in 0 <= id < 5");
        assert_memory_equal(dx, sums, sizeof dx);
    });
    tsri_kernel_desc o = {.op = TSRI_OP_ONE_HOT, .attrs = &attrs, .nin = 1, .nout = 1};
    o.in[0] = ARG(TSR_I64, 4);
    o.out[0] = ARG(TSR_F32, 4, 3);
    o.out[0].gshape[1] = 5;
    EACH_IMPL(impl, o.op, {
        says(run(impl, o, (const void *[]){ids}, (void *[]){y}),
             "one_hot: id -1, element 2 of the ids, is not in 0 <= id < 5");
    });
    /* Also where this shard has nothing to compute. */
    d.in[0].shape[0] = 0;
    d.in[0].shape[1] = d.out[0].shape[1] = 0;
    EACH_IMPL(impl, d.op, {
        says(run(impl, d, (const void *[]){NULL, ids}, (void *[]){NULL}), "index_select: id -1");
    });
    b.out[0].shape[0] = 0;
    EACH_IMPL(impl, b.op, {
        says(run(impl, b, (const void *[]){ids, dy}, (void *[]){NULL}), "index_select_dx: id -1");
    });
    o.out[0].shape[1] = 0;
    EACH_IMPL(impl, o.op,
              { says(run(impl, o, (const void *[]){ids}, (void *[]){NULL}), "one_hot: id -1"); });
}

/* Against the CPU's sums, which are in f64 too: many ids, few and many rows, long and short. */
static void sum_rows(int64_t nids, int64_t rows, int64_t width, int64_t spread)
{
    tsri_attrs attrs = {0};
    attrs.gather.has_pad = 1;
    attrs.gather.pad = rows / 2;
    int64_t *ids = malloc((size_t)nids * sizeof *ids);
    float *dy = malloc((size_t)(nids * width) * sizeof *dy);
    float *want = malloc((size_t)(rows * width) * sizeof *want);
    float *got = malloc((size_t)(rows * width) * sizeof *got);
    assert_true(ids && dy && want && got);
    for (int64_t i = 0; i < nids; i++)
        ids[i] = i % 3 ? i * i % spread : i % 2;
    for (int64_t i = 0; i < nids * width; i++)
        dy[i] = (float)sin((double)i) * (float)(i % 1000);
    tsri_kernel_desc d = {.op = TSRI_OP_INDEX_SELECT_DX, .attrs = &attrs, .nin = 2, .nout = 1};
    d.in[0] = ARG(TSR_I64, nids);
    d.in[1] = ARG(TSR_F32, nids, width);
    d.out[0] = ARG(TSR_F32, rows, width);
    run_reference(d, (const void *[]){ids, dy}, want);
    EACH_IMPL(impl, d.op, {
        memset(got, 0xff, (size_t)(rows * width) * sizeof *got);
        assert_int_equal(run(impl, d, (const void *[]){ids, dy}, (void *[]){got}), TSR_OK);
        for (int64_t i = 0; i < rows * width; i++)
            if (!(fabsf(got[i] - want[i]) <= 1e-6f * fabsf(want[i])))
                fail_msg("%s: %lld ids, %lld rows: element %lld is %.9g, not %.9g", impl->name,
                         (long long)nids, (long long)rows, (long long)i, (double)got[i],
                         (double)want[i]);
    });
    free(ids);
    free(dy);
    free(want);
    free(got);
}

static void test_gather_dx(void **state)
{
    (void)state;
    sum_rows(700, 50, 33, 50);
    sum_rows(5000, 3, 8, 3);
    sum_rows(2100, 70000, 4, 69999); /* three passes of the sort */
    sum_rows(2048, 300, 1, 300);
    sum_rows(1, 255, 5, 255);
}

/* --- random numbers --------------------------------------------------------------------------- */
static void test_random(void **state)
{
    (void)state;
    for (int dist = 0; dist < 2; dist++)
        for (int f64 = 0; f64 < 2; f64++) {
            tsri_attrs attrs = {0};
            attrs.random.key = 0x123456789abcdef;
            attrs.random.dist = dist;
            attrs.random.a = -0.3;
            attrs.random.b = 1.7;
            double want[3 * 37], got[3 * 37];
            tsri_kernel_desc d = {.op = TSRI_OP_RANDOM, .attrs = &attrs, .nout = 1};
            d.out[0] = ARG(f64 ? TSR_F64 : TSR_F32, 3, 37);
            d.out[0].gshape[0] = 9;
            d.out[0].offset[0] = 5;
            d.out[0].gshape[1] = 50;
            d.out[0].offset[1] = 2;
            run_reference(d, (const void *[]){NULL}, want);
            EACH_IMPL(impl, d.op, {
                assert_int_equal(run(impl, d, NULL, (void *[]){got}), TSR_OK);
                if (dist == TSRI_RANDOM_UNIFORM)
                    assert_memory_equal(got, want, bytes_of(&d.out[0]));
                for (int i = 0; i < 3 * 37 && dist; i++) {
                    double g = f64 ? got[i] : (double)((float *)got)[i];
                    double w = f64 ? want[i] : (double)((float *)want)[i];
                    assert_true(fabs(g - w) <= (f64 ? 1e-14 : 3e-7));
                }
            });
        }
    /* Never the end of the interval, also where rounding is coarse. */
    tsri_attrs attrs = {0};
    attrs.random.key = 7;
    attrs.random.a = 1;
    attrs.random.b = 1.0078125; /* the next bf16 */
    uint16_t y[64];
    tsri_kernel_desc d = {.op = TSRI_OP_RANDOM, .attrs = &attrs, .nout = 1};
    d.out[0] = ARG(TSR_BF16, 64);
    EACH_IMPL(impl, d.op, {
        assert_int_equal(run(impl, d, NULL, (void *[]){y}), TSR_OK);
        for (int i = 0; i < 64; i++)
            assert_int_equal(y[i], 0x3f80);
    });
}

/* The same elements are dropped; the others are scaled, to rounding. x is part m of 3 of `blocks`
 * blocks along `axis`; blocks 0: it is no part. */
static void part_drops(tsri_arg x, double p, int axis, int64_t blocks, int64_t m)
{
    enum { MOST = 5000 };
    static float in[MOST], want[MOST], got[MOST];
    const int64_t step = 12345678901;
    const int n = (int)(bytes_of(&x) / sizeof *in);
    tsri_attrs attrs = {0};
    attrs.dropout.key = 99;
    attrs.dropout.p = p;
    attrs.dropout.axis = axis;
    attrs.dropout.parts = 3;
    attrs.dropout.blocks = blocks;
    assert_true(n <= MOST);
    for (int i = 0; i < n; i++)
        in[i] = (float)(i % 100 + 1);
    tsri_kernel_desc d = {.op = TSRI_OP_DROPOUT, .attrs = &attrs, .nin = blocks ? 3 : 2, .nout = 1};
    d.in[0] = d.out[0] = x;
    d.in[1] = ARG(TSR_I64, 1);
    d.in[1].ndim = 0;
    d.in[2] = d.in[1];
    run_reference(d, (const void *[]){in, &step, &m}, want);
    EACH_IMPL(impl, d.op, {
        tsr_status status = run(impl, d, (const void *[]){in, &step, &m}, (void *[]){got});
        if (status == TSR_ERR_UNSUPPORTED)
            continue;
        assert_int_equal(status, TSR_OK);
        for (int i = 0; i < n; i++)
            assert_true((got[i] == 0) == (want[i] == 0) &&
                        fabsf(got[i] - want[i]) <= 2e-7f * want[i]);
    });
}

static void drops(tsri_arg x, double p)
{
    part_drops(x, p, 0, 0, 0);
}

static void test_dropout_of_parts(void **state)
{
    (void)state;
    for (int64_t m = 0; m < 3; m++) {
        part_drops(ARG(TSR_F32, 4999), 0.4, 0, 1, m);
        part_drops(ARG(TSR_F32, 30, 40), 0.4, 0, 1, m);
        part_drops(ARG(TSR_F32, 30, 40), 0.4, 0, 5, m); /* of several blocks */
        part_drops(ARG(TSR_F32, 30, 40), 0.4, 1, 1, m); /* columns */
        part_drops(ARG(TSR_F32, 30, 37), 0.4, 0, 1, m); /* by a shift of no multiple of 4 */
        tsri_arg rows = ARG(TSR_F32, 30, 40);
        rows.gshape[0] = 90;
        rows.offset[0] = 60;
        part_drops(rows, 0.4, 0, 3, m); /* the last of 3 blocks */
        rows.offset[0] = 35;
        part_drops(rows, 0.4, 0, 3, m);
        tsri_arg last = ARG(TSR_F32, 2, 5, 6, 7); /* channels last */
        const int64_t strides[4] = {210, 1, 35, 5};
        memcpy(last.stride, strides, sizeof strides);
        part_drops(last, 0.4, 0, 1, m);
        part_drops(last, 0.4, 2, 3, m);
    }
}

static void test_dropout(void **state)
{
    (void)state;
    const double p[] = {0, 0.1, 0.5, 0.9, 1};
    for (int i = 0; i < 5; i++) {
        drops(ARG(TSR_F32, 4999), p[i]);
        tsri_arg rows = ARG(TSR_F32, 30, 37); /* begins at no multiple of 4 */
        rows.gshape[0] = 90;
        rows.offset[0] = 15;
        drops(rows, p[i]);
        tsri_arg part = ARG(TSR_F32, 30, 40); /* columns of a wider one */
        part.gshape[1] = 120;
        part.offset[1] = 40;
        drops(part, p[i]);
        part.gshape[1] = 121;
        part.offset[1] = 41;
        drops(part, p[i]);
        tsri_arg last = ARG(TSR_F32, 2, 5, 6, 7); /* channels last */
        const int64_t strides[4] = {210, 1, 35, 5};
        memcpy(last.stride, strides, sizeof strides);
        drops(last, p[i]);
    }
}

/* --- conversions ------------------------------------------------------------------------------ */
static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16,
                                   TSR_I64, TSR_I32, TSR_U8,  TSR_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static bool is_nan(tsr_dtype d, const void *p, int i)
{
    switch (d) {
    case TSR_F32:
        return isnan(((const float *)p)[i]);
    case TSR_F64:
        return isnan(((const double *)p)[i]);
    case TSR_F16:
        return (((const uint16_t *)p)[i] & 0x7fff) > 0x7c00;
    case TSR_BF16:
        return (((const uint16_t *)p)[i] & 0x7fff) > 0x7f80;
    default:
        return false;
    }
}

/* All bits as the CPU's, but for those of a NaN. */
static void test_casts(void **state)
{
    (void)state;
    const double values[] = {0,
                             -0.0,
                             1,
                             -1,
                             0.5,
                             -0.5,
                             1.5,
                             255,
                             256,
                             300.7,
                             -3.9,
                             65504,
                             65520,
                             1e-8,
                             6e-8,
                             2.1e9,
                             2147483647.0,
                             2147483648.0,
                             -2147483648.0,
                             -3e9,
                             9007199254740993.0,
                             9.2e18,
                             9223372036854775808.0,
                             -1e19,
                             1e38,
                             4e38,
                             1e300,
                             -1e300,
                             NAN,
                             INFINITY,
                             -INFINITY,
                             1.00390625,
                             1.01171875,
                             1.00390625000001,
                             1.00048828125,
                             1.00048828126,
                             3,
                             7};
    enum { N = sizeof values / sizeof *values };
    double from[N], want[N], got[N];
    const tsri_attrs attrs = {0};
    for (int a = 0; a < DTYPES; a++) {
        tsri_kernel_desc d = {.op = TSRI_OP_CAST, .attrs = &attrs, .nin = 1, .nout = 1};
        d.in[0] = ARG(TSR_F64, N);
        d.out[0] = ARG(dtypes[a], N);
        run_reference(d, (const void *[]){values}, from);
        for (int b = 0; b < DTYPES; b++) {
            d.in[0] = ARG(dtypes[a], N);
            d.out[0] = ARG(dtypes[b], N);
            const size_t size = tsr_dtype_size(dtypes[b]);
            run_reference(d, (const void *[]){from}, want);
            EACH_IMPL(impl, d.op, {
                tsr_status status = run(impl, d, (const void *[]){from}, (void *[]){got});
                if (status == TSR_ERR_UNSUPPORTED)
                    continue;
                assert_int_equal(status, TSR_OK);
                for (int i = 0; i < N; i++)
                    if (memcmp((char *)got + (size_t)i * size, (char *)want + (size_t)i * size,
                               size) &&
                        !(is_nan(dtypes[b], got, i) && is_nan(dtypes[b], want, i)))
                        fail_msg("%s: %s of %.17g in %s", impl->name, tsr_dtype_name(dtypes[b]),
                                 values[i], tsr_dtype_name(dtypes[a]));
            });
        }
    }
}

/* --- moves ------------------------------------------------------------------------------------ */
/* Element i of source s: small whole numbers, exact in every dtype. */
static int value_of(tsr_dtype d, int s, int64_t i)
{
    int v = (int)((i * 7 + s * 13) % 5) - (d == TSR_U8 || d == TSR_BOOL ? 0 : 2);
    return d == TSR_BOOL ? v == 0 : v;
}

static void put(tsr_dtype d, void *p, int64_t i, double v)
{
    const tsri_attrs attrs = {0};
    tsri_kernel_desc c = {.op = TSRI_OP_CAST, .attrs = &attrs, .nin = 1, .nout = 1};
    c.in[0] = ARG(TSR_F64, 1);
    c.out[0] = ARG(d, 1);
    run_reference(c, (const void *[]){&v}, (char *)p + (size_t)i * tsr_dtype_size(d));
}

/* nsrc sources of `count` elements, from element `at` on, to the same. */
static void reduce(tsr_dtype d, tsr_reduce_op op, int nsrc, int64_t count, int64_t at)
{
    const size_t size = tsr_dtype_size(d), bytes = (size_t)(count + at) * size;
    char *host = calloc(1, bytes), *want = calloc(1, bytes);
    void *src[64];
    assert_true(host && want);
    for (int s = 0; s < nsrc; s++) {
        for (int64_t i = 0; i < count + at; i++)
            put(d, host, i, value_of(d, s, i));
        src[s] = upload(host, bytes);
    }
    for (int64_t i = 0; i < count; i++) {
        int x = value_of(d, 0, i + at);
        for (int s = 1; s < nsrc; s++) {
            int y = value_of(d, s, i + at);
            x = op == TSR_REDUCE_SUM   ? x + y
                : op == TSR_REDUCE_MAX ? (x > y ? x : y)
                                       : (x < y ? x : y);
        }
        put(d, want, i, d == TSR_BOOL ? x != 0 : x);
    }
    char *dst = upload(NULL, bytes);
    tsri_move m = {.dtype = d,
                   .op = op,
                   .ndim = 1,
                   .length = {count},
                   .src_step = {1},
                   .dst_step = {1},
                   .src_at = at,
                   .nsrc = nsrc,
                   .src = (const void *const *)src,
                   .dst = dst};
    assert_int_equal(device->ops->move(device, &m, device->stream), TSR_OK);
    assert_int_equal(device->ops->copy_out(device, host, dst, bytes, device->stream), TSR_OK);
    if (memcmp(host, want, (size_t)count * size))
        fail_msg("%d sources of %lld %s from %lld on, op %d", nsrc, (long long)count,
                 tsr_dtype_name(d), (long long)at, (int)op);
    for (int s = 0; s < nsrc; s++)
        device->ops->buffer_free(device, src[s], bytes);
    device->ops->buffer_free(device, dst, bytes);
    free(host);
    free(want);
}

static void test_reductions(void **state)
{
    (void)state;
    for (int d = 0; d < DTYPES; d++)
        for (int op = TSR_REDUCE_SUM; op <= TSR_REDUCE_MIN; op++) {
            reduce(dtypes[d], (tsr_reduce_op)op, 2, 37, 0);
            reduce(dtypes[d], (tsr_reduce_op)op, 5, 53, 16);
            reduce(dtypes[d], (tsr_reduce_op)op, 7, 21, 3); /* not aligned */
        }
    reduce(TSR_F32, TSR_REDUCE_SUM, 64, 1031, 0);
    reduce(TSR_BF16, TSR_REDUCE_SUM, 64, 1031, 0);
}

/* Boxes with gaps: tiles, wide elements, and elements one by one; sizes of 1 to 8 bytes. */
static void test_boxes(void **state)
{
    (void)state;
    static const tsr_dtype sizes[] = {TSR_U8, TSR_F16, TSR_F32, TSR_F64};
    static const struct {
        int64_t length[3], src_step[3], dst_step[3], src_at, dst_at;
    } boxes[] = {
        {{3, 70, 65}, {5000, 1, 75}, {70 * 66, 66, 1}, 2, 1}, /* two axes change places */
        {{70, 3, 40}, {1, 3600, 80}, {120, 40, 1}, 0, 0},
        {{3, 70, 66}, {5000, 1, 76}, {70 * 66, 66, 1}, 2, 4}, /* by pairs of 2 bytes */
        {{3, 70, 66}, {5000, 1, 76}, {70 * 66, 66, 1}, 1, 4}, /* none: an odd beginning, strides */
        {{3, 70, 66}, {5000, 1, 75}, {70 * 66, 66, 1}, 0, 0},
        {{3, 70, 66}, {5001, 1, 76}, {70 * 66, 66, 1}, 0, 0},
        {{3, 71, 66}, {5000, 1, 76}, {71 * 66, 66, 1}, 0, 0},
        {{3, 70, 65}, {5000, 1, 76}, {70 * 66, 66, 1}, 0, 0},
        {{5, 9, 8}, {100, 1, 10}, {80, 8, 1}, 7, 0},
        {{6, 4, 32}, {200, 32, 1}, {256, 64, 1}, 16, 32}, /* rows of many elements */
        {{6, 4, 31}, {200, 32, 1}, {256, 64, 1}, 1, 3},
        {{3, 4, 5}, {1, 30, 3}, {40, 8, 1}, 1, 0}, /* neither */
    };
    enum { MOST = 20000 };
    static uint64_t from[MOST], want[MOST], got[MOST];
    for (size_t b = 0; b < sizeof boxes / sizeof *boxes; b++)
        for (int k = 0; k < 4; k++) {
            const size_t size = tsr_dtype_size(sizes[k]), bytes = MOST * size;
            for (size_t i = 0; i < bytes; i++)
                ((unsigned char *)from)[i] = (unsigned char)(i * 31 + i / 251);
            memset(want, 0xee, bytes);
            void *src = upload(from, bytes);
            void *dst = upload(want, bytes);
            tsri_move m = {.dtype = sizes[k],
                           .ndim = 3,
                           .nsrc = 1,
                           .src = (const void *const *)&src,
                           .dst = dst,
                           .src_at = boxes[b].src_at,
                           .dst_at = boxes[b].dst_at};
            for (int a = 0; a < 3; a++) {
                m.length[a] = boxes[b].length[a];
                m.src_step[a] = boxes[b].src_step[a];
                m.dst_step[a] = boxes[b].dst_step[a];
            }
            for (int64_t i = 0; i < m.length[0] * m.length[1] * m.length[2]; i++) {
                int64_t c[3] = {i / m.length[2] / m.length[1], i / m.length[2] % m.length[1],
                                i % m.length[2]};
                int64_t x = m.src_at, y = m.dst_at;
                for (int a = 0; a < 3; a++) {
                    x += c[a] * m.src_step[a];
                    y += c[a] * m.dst_step[a];
                }
                assert_true(x < MOST && y < MOST);
                memcpy((char *)want + (size_t)y * size, (char *)from + (size_t)x * size, size);
            }
            assert_int_equal(device->ops->move(device, &m, device->stream), TSR_OK);
            assert_int_equal(device->ops->copy_out(device, got, dst, bytes, device->stream),
                             TSR_OK);
            if (memcmp(got, want, bytes))
                fail_msg("box %zu of elements of %zu bytes", b, size);
            device->ops->buffer_free(device, src, bytes);
            device->ops->buffer_free(device, dst, bytes);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_ids),          cmocka_unit_test(test_gather_dx),
        cmocka_unit_test(test_random),           cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dropout_of_parts), cmocka_unit_test(test_casts),
        cmocka_unit_test(test_reductions),       cmocka_unit_test(test_boxes),
    };
    int none = open_cuda();
    return none ? none : close_cuda(cmocka_run_group_tests(tests, NULL, NULL));
}
