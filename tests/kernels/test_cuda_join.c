/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates of many parameters in one launch: the bits of the updates one by one, and the values of
 * the CPU's reference; and sums of many tensors' squares. Skipped where there is no device.
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

enum { MOST = 6, ARGS = 6 };

static const int64_t sizes[MOST] = {0, 1, 3, 1000, 70001, 2048};

/* Several parameters' buffers: p, states, g, hyper of each. */
typedef struct set {
    int n, nargs, nouts;
    tsri_kernel_desc desc[MOST];
    tsri_attrs attrs[MOST];
    void *host[MOST][ARGS], *buffer[MOST][ARGS];
    tsri_kernel *kernel[MOST];
} set;

static size_t bytes_of(const tsri_arg *a)
{
    return (size_t)a->shape[0] * tsr_dtype_size(a->dtype);
}

static void *filled(const tsri_arg *a, uint64_t seed, bool positive)
{
    int64_t n = a->shape[0];
    double *v = calloc((size_t)n + 1, sizeof *v);
    void *to = calloc((size_t)n + 1, 8);
    assert_non_null(v);
    assert_non_null(to);
    for (int64_t i = 0; i < n; i++)
        v[i] = tsri_rng_uniform(seed, 0, (uint64_t)i) * (positive ? 1 : 2) - (positive ? 0 : 1);
    tsri_convert(to, a->dtype, v, TSR_F64, n);
    free(v);
    return to;
}

static tsri_arg vector(tsr_dtype dtype, int64_t n)
{
    return (tsri_arg){dtype, 1, {n}, {1}, {n}, {0}};
}

/* Whether an operand is an average of squares. */
static bool has_squares(tsri_op_kind op, int a)
{
    return op == TSRI_OP_ADAM ? a == 2 : op != TSRI_OP_SGD && op != TSRI_OP_LION && a == 1;
}

/* Every parameter has numbers of its own. */
static void set_update(set *s, int i, tsri_op_kind op, tsr_dtype dtype, tsr_dtype states)
{
    tsri_kernel_desc *d = &s->desc[i];
    *d = (tsri_kernel_desc){.op = op, .attrs = &s->attrs[i], .nin = s->nargs, .nout = s->nouts};
    for (int a = 0; a < s->nargs - 1; a++)
        d->in[a] = vector(a > 0 && a < s->nouts ? states : dtype, sizes[i]);
    d->in[s->nargs - 1] = vector(TSR_F64, TSRI_HYPER_COUNT);
    for (int o = 0; o < s->nouts; o++)
        d->out[o] = d->in[o];
    s->attrs[i].update.has = (1 << (s->nouts - 1)) - 1;
    for (int a = 0; a < s->nargs; a++)
        s->host[i][a] = filled(&d->in[a], (uint64_t)(10 * i + a), has_squares(op, a));
    double *hyper = s->host[i][s->nargs - 1];
    const double all[TSRI_HYPER_COUNT] = {
        [TSRI_HYPER_LR] = 0.01 * (1 + i),
        [TSRI_HYPER_SKIP] = i == 2,
        [TSRI_HYPER_SCALE] = i == 3 ? 0.5 : 1,
        [TSRI_HYPER_DECAY] = i % 2 ? 0.01 : 0,
        [TSRI_HYPER_SHRINK] = i == 3 ? 0.99 : 1,
        [TSRI_HYPER_KEEP1] = 0.9 - 0.1 * i,
        [TSRI_HYPER_TAKE1] = 0.1,
        [TSRI_HYPER_KEEP2] = 0.99 + 0.001 * i,
        [TSRI_HYPER_TAKE2] = 0.01,
        [TSRI_HYPER_LOOK] = i == 4 ? 0.5 : 0,
        [TSRI_HYPER_EPS] = 1e-8,
        [TSRI_HYPER_ROOT] = 1.1,
    };
    memcpy(hyper, all, sizeof all);
}

static void set_init(set *s, int n, tsri_op_kind op, int nouts, tsr_dtype dtype, tsr_dtype states)
{
    *s = (set){.n = n, .nargs = nouts + 2, .nouts = nouts};
    for (int i = 0; i < n; i++)
        set_update(s, i, op, dtype, states);
}

static void set_finish(set *s)
{
    for (int i = 0; i < s->n; i++)
        for (int a = 0; a < s->nargs; a++)
            free(s->host[i][a]);
}

/* Buffers with what the host has, and kernels of the device's best implementation. */
static void set_open(set *s)
{
    for (int i = 0; i < s->n; i++) {
        tsri_kernel_desc *d = &s->desc[i];
        d->stream = device->stream;
        for (int a = 0; a < s->nargs; a++) {
            size_t bytes = bytes_of(&d->in[a]);
            s->buffer[i][a] = NULL;
            if (!bytes)
                continue;
            assert_int_equal(device->ops->buffer_alloc(device, bytes, &s->buffer[i][a]), TSR_OK);
            assert_int_equal(
                device->ops->copy_in(device, s->buffer[i][a], s->host[i][a], bytes, device->stream),
                TSR_OK);
        }
        assert_int_equal(tsri_kernel_create(NULL, device->ops->kernels(), d, &s->kernel[i]),
                         TSR_OK);
    }
}

/* What became of the results is copied to out[i][o]. */
static void set_close(set *s, void *out[MOST][ARGS])
{
    for (int i = 0; i < s->n; i++) {
        for (int a = 0; a < s->nargs; a++) {
            size_t bytes = bytes_of(&s->desc[i].in[a]);
            out[i][a] = calloc(bytes + 1, 1);
            assert_int_equal(
                device->ops->copy_out(device, out[i][a], s->buffer[i][a], bytes, device->stream),
                TSR_OK);
            device->ops->buffer_free(device, s->buffer[i][a], bytes);
        }
        s->kernel[i]->destroy(s->kernel[i]);
    }
}

static void run_singly(set *s, void *out[MOST][ARGS])
{
    set_open(s);
    for (int i = 0; i < s->n; i++)
        assert_int_equal(s->kernel[i]->run(s->kernel[i], s->buffer[i], s->buffer[i], NULL), TSR_OK);
    set_close(s, out);
}

/* The kernels of one `join` in one; in and out are gone by the time that it runs. */
static void run_joined(set *s, void *out[MOST][ARGS])
{
    set_open(s);
    void **tables[MOST];
    for (int i = 0; i < s->n; i++) {
        assert_non_null(s->kernel[i]->join);
        assert_ptr_equal(s->kernel[i]->join, s->kernel[0]->join);
        tables[i] = malloc(sizeof s->buffer[i]);
        memcpy(tables[i], s->buffer[i], sizeof s->buffer[i]);
    }
    tsri_kernel *k;
    assert_int_equal(s->kernel[0]->join(NULL, s->n, s->kernel, (void *const *const *)tables,
                                        (void *const *const *)tables, &k),
                     TSR_OK);
    for (int i = 0; i < s->n; i++)
        free(tables[i]);
    assert_int_equal(k->scratch_bytes, 0);
    assert_int_equal(k->run(k, NULL, NULL, NULL), TSR_OK);
    assert_int_equal(device->ops->stream_sync(device, device->stream), TSR_OK);
    k->destroy(k);
    set_close(s, out);
}

/* The CPU's update of parameter i, in f64 from the same values. */
static void run_reference(const set *s, int i, double *out[ARGS])
{
    tsri_kernel_desc d = s->desc[i];
    tsri_kernel *k;
    void *buffers[ARGS];
    d.stream = NULL;
    for (int a = 0; a < s->nargs; a++) {
        buffers[a] = out[a] = calloc((size_t)d.in[a].shape[0] + 1, sizeof(double));
        assert_non_null(out[a]);
        tsri_convert(out[a], TSR_F64, s->host[i][a], d.in[a].dtype, d.in[a].shape[0]);
        d.in[a].dtype = TSR_F64;
        d.out[a].dtype = TSR_F64;
    }
    assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
    assert_int_equal(k->run(k, buffers, buffers, NULL), TSR_OK);
    k->destroy(k);
}

static void compare_values(const set *s, int i, void *const *got)
{
    double *want[ARGS];
    run_reference(s, i, want);
    for (int o = 0; o < s->nouts; o++) {
        const tsri_arg *a = &s->desc[i].out[o];
        double v, relative = a->dtype == TSR_F64   ? 1e-12
                             : a->dtype == TSR_F32 ? 1e-5
                             : a->dtype == TSR_F16 ? 4e-3
                                                   : 2e-2;
        for (int64_t j = 0; j < sizes[i]; j++) {
            tsri_convert(&v, TSR_F64, (const char *)got[o] + (size_t)j * tsr_dtype_size(a->dtype),
                         a->dtype, 1);
            if (!(fabs(v - want[o][j]) <= relative * fmax(1, fabs(want[o][j]))))
                fail_msg("%s of %s, %lld elements: result %d, element %lld is %.17g, not %.17g",
                         tsri_op_name(s->desc[i].op), tsr_dtype_name(a->dtype), (long long)sizes[i],
                         o, (long long)j, v, want[o][j]);
        }
    }
    for (int a = 0; a < s->nargs; a++)
        free(want[a]);
}

static void check(int n, tsri_op_kind op, int nouts, tsr_dtype dtype, tsr_dtype states)
{
    set s;
    void *one[MOST][ARGS], *all[MOST][ARGS];
    set_init(&s, n, op, nouts, dtype, states);
    run_singly(&s, one);
    run_joined(&s, all);
    for (int i = 0; i < n; i++) {
        for (int a = 0; a < s.nargs; a++)
            if (memcmp(one[i][a], all[i][a], bytes_of(&s.desc[i].in[a])))
                fail_msg("%s of %s, %lld elements: operand %d differs if joined", tsri_op_name(op),
                         tsr_dtype_name(dtype), (long long)sizes[i], a);
        compare_values(&s, i, all[i]);
        for (int a = 0; a < s.nargs; a++) {
            free(one[i][a]);
            free(all[i][a]);
        }
    }
    set_finish(&s);
}

static void test_joined_updates(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        check(MOST, TSRI_OP_SGD, 1, dtypes[d], dtypes[d]);
        check(MOST, TSRI_OP_SGD, 2, dtypes[d], dtypes[d]);
        check(MOST, TSRI_OP_ADAM, 3, dtypes[d], dtypes[d]);
        check(MOST, TSRI_OP_RMSPROP, 3, dtypes[d], dtypes[d]);
        check(MOST, TSRI_OP_ADAGRAD, 2, dtypes[d], dtypes[d]);
        check(MOST, TSRI_OP_LION, 2, dtypes[d], dtypes[d]);
    }
}

static void test_states_of_f32(void **state)
{
    (void)state;
    check(MOST, TSRI_OP_SGD, 2, TSR_F16, TSR_F32);
    check(MOST, TSRI_OP_ADAM, 3, TSR_F16, TSR_F32);
    check(MOST, TSRI_OP_ADAM, 3, TSR_BF16, TSR_F32);
}

/* One of them, and one that has no element. */
static void test_few(void **state)
{
    (void)state;
    check(1, TSRI_OP_SGD, 2, TSR_F32, TSR_F32);
    check(2, TSRI_OP_ADAM, 3, TSR_F32, TSR_F32);
}

/* --- sums of squares -------------------------------------------------------------------------- */
/* Each is added to the one before, but that of OTHER to a number of its own; the first to none. */
enum { OTHER = 3 };

typedef struct squares {
    tsri_kernel_desc desc[MOST];
    tsri_attrs attrs;
    tsri_kernel *kernel[MOST];
    void *x[MOST], *own, *in[MOST][2], *out[MOST];
    double want[MOST];
} squares;

static void *on_device(const void *host, size_t bytes)
{
    void *p = NULL;
    if (!bytes)
        return NULL;
    assert_int_equal(device->ops->buffer_alloc(device, bytes, &p), TSR_OK);
    if (host)
        assert_int_equal(device->ops->copy_in(device, p, host, bytes, device->stream), TSR_OK);
    return p;
}

static void squares_open(squares *s, tsr_dtype dtype)
{
    const double own = 5;
    *s = (squares){.attrs.reduce = {.op = TSRI_REDUCE_SQUARES, .axes = 1, .scale = 1}};
    s->own = on_device(&own, sizeof own);
    for (int i = 0; i < MOST; i++) {
        const tsri_arg x = vector(dtype, sizes[i]), one = {TSR_F64, 0, {0}, {0}, {0}, {0}};
        void *host = filled(&x, (uint64_t)i + 1, false);
        s->desc[i] = (tsri_kernel_desc){.op = TSRI_OP_REDUCE,
                                        .attrs = &s->attrs,
                                        .nin = i ? 2 : 1,
                                        .nout = 1,
                                        .in = {x, one},
                                        .out = {one},
                                        .stream = device->stream};
        s->want[i] = i == OTHER ? own : i ? s->want[i - 1] : 0;
        for (int64_t j = 0; j < sizes[i]; j++) {
            double v;
            tsri_convert(&v, TSR_F64, (char *)host + (size_t)j * tsr_dtype_size(dtype), dtype, 1);
            s->want[i] += v * v;
        }
        s->in[i][0] = on_device(host, bytes_of(&x));
        s->out[i] = on_device(NULL, sizeof(double));
        s->in[i][1] = i == OTHER ? s->own : i ? s->out[i - 1] : NULL;
        free(host);
        assert_int_equal(
            tsri_kernel_create(NULL, device->ops->kernels(), &s->desc[i], &s->kernel[i]), TSR_OK);
    }
}

static void squares_close(squares *s, double *got)
{
    for (int i = 0; i < MOST; i++) {
        assert_int_equal(
            device->ops->copy_out(device, &got[i], s->out[i], sizeof *got, device->stream), TSR_OK);
        device->ops->buffer_free(device, s->in[i][0], bytes_of(&s->desc[i].in[0]));
        device->ops->buffer_free(device, s->out[i], sizeof(double));
        s->kernel[i]->destroy(s->kernel[i]);
    }
    device->ops->buffer_free(device, s->own, sizeof(double));
}

static void squares_singly(squares *s)
{
    for (int i = 0; i < MOST; i++) {
        const size_t bytes = s->kernel[i]->scratch_bytes;
        void *scratch = on_device(NULL, bytes);
        assert_int_equal(s->kernel[i]->run(s->kernel[i], s->in[i], &s->out[i], scratch), TSR_OK);
        assert_int_equal(device->ops->stream_sync(device, device->stream), TSR_OK);
        device->ops->buffer_free(device, scratch, bytes);
    }
}

static void squares_joined(squares *s)
{
    void *const *in[MOST], *const *out[MOST];
    tsri_kernel *k;
    for (int i = 0; i < MOST; i++) {
        assert_ptr_equal(s->kernel[i]->join, s->kernel[0]->join);
        assert_true(s->kernel[i]->joins_in_order);
        in[i] = s->in[i];
        out[i] = &s->out[i];
    }
    assert_int_equal(s->kernel[0]->join(NULL, MOST, s->kernel, in, out, &k), TSR_OK);
    assert_int_equal(k->scratch_bytes, 0);
    assert_int_equal(k->run(k, NULL, NULL, NULL), TSR_OK);
    assert_int_equal(device->ops->stream_sync(device, device->stream), TSR_OK);
    k->destroy(k);
}

static void test_joined_squares(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        squares s;
        double one[MOST], all[MOST];
        squares_open(&s, dtypes[d]);
        squares_singly(&s);
        squares_close(&s, one);
        squares_open(&s, dtypes[d]);
        squares_joined(&s);
        squares_close(&s, all);
        for (int i = 0; i < MOST; i++)
            if (one[i] != all[i] ||
                !(fabs(one[i] - s.want[i]) <= (dtypes[d] == TSR_F64 ? 1e-12 : 1e-6) * s.want[i]))
                fail_msg("squares of %s, %lld elements: %.17g alone, %.17g joined, not %.17g",
                         tsr_dtype_name(dtypes[d]), (long long)sizes[i], one[i], all[i], s.want[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_joined_updates),
        cmocka_unit_test(test_states_of_f32),
        cmocka_unit_test(test_joined_squares),
        cmocka_unit_test(test_few),
    };
    int none = open_cuda();
    return none ? none : close_cuda(cmocka_run_group_tests(tests, NULL, NULL));
}
