/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by products and by cuDNN's fused engines, against the CPU's f64 reference: scores in
 * one block and in many, heads of any nesting, masks, shards of queries and of keys, keys with NaN
 * that are hidden; and which of the two takes a case. Skipped where there is no device; on the
 * emulator with TESSERA_CUDA_MODULE.
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

#include "src/core/convert.h"
#include "src/core/rng.h"

enum { ROW, BY_HEAD, BY_FEATURE }; /* (b,h,s,d); (b,s,h,d); (b,h,d,s) */
enum { MOST = 10 };

/* One attention. A mask of -inf in one of four scores; nan: the last key has one. */
typedef struct shape {
    const char *name;
    int64_t b, h, s, t, d, e;
    int64_t mask[4]; /* mask[0] == 0: none */
    int64_t first;   /* query that the shard begins with; < 0: the key */
    bool causal;
    int layout;
    bool nan;
    const char *bytes; /* TESSERA_CUDA_SCORES */
} shape;

static const shape shapes[] = {
    {"one block", 2, 3, 20, 24, 8, 6, {0}, 0, false, ROW, false, NULL},
    {"blocks", 2, 3, 70, 33, 5, 7, {0}, 0, false, ROW, false, "4096"},
    {"blocks by head", 3, 2, 70, 40, 8, 8, {0}, 0, false, BY_HEAD, false, "8192"},
    {"few samples by head", 2, 4, 20, 20, 4, 4, {0}, 0, true, BY_HEAD, false, "4096"},
    {"causal by head", 5, 2, 33, 33, 3, 5, {0}, 0, true, BY_HEAD, true, "6000"},
    {"causal, many keys", 1, 2, 700, 700, 4, 4, {0}, 0, true, ROW, false, NULL},
    {"causal, long rows", 1, 1, 40, 1200, 4, 4, {0}, 1160, true, ROW, true, NULL},
    {"one head's blocks", 1, 1, 70, 40, 5, 7, {0}, 0, false, ROW, false, "4096"},
    {"keys that nobody sees", 1, 2, 20, 600, 3, 3, {0}, 0, true, ROW, false, NULL},
    {"features first", 1, 2, 20, 25, 6, 4, {0}, 0, true, BY_FEATURE, false, NULL},
    {"mask", 2, 2, 18, 24, 4, 4, {2, 2, 18, 24}, 0, false, ROW, false, "3000"},
    {"mask of keys", 2, 3, 18, 25, 4, 4, {2, 1, 1, 25}, 0, true, BY_HEAD, false, NULL},
    {"mask of all", 2, 3, 16, 40, 4, 4, {1, 1, 16, 40}, 0, false, ROW, true, NULL},
    {"long mask", 1, 1, 5, 1500, 2, 3, {1, 1, 1, 1500}, 0, false, ROW, false, NULL},
    {"shard of queries", 1, 2, 20, 40, 4, 3, {0}, 10, true, ROW, false, "2048"},
    {"shard of keys", 1, 2, 40, 16, 4, 3, {0}, -12, true, ROW, false, "2048"},
    {"no key seen", 1, 1, 9, 8, 3, 3, {0}, -20, true, ROW, false, NULL},
};

/* Cases of cuDNN's engines, of halves alone. */
static const shape fused[] = {
    {"all keys", 2, 3, 20, 24, 8, 16, {0}, 0, false, ROW, false, NULL},
    {"causal", 2, 2, 40, 40, 16, 16, {0}, 0, true, BY_HEAD, false, NULL},
    {"odd lengths", 1, 2, 133, 131, 64, 64, {0}, 0, true, ROW, false, NULL},
    {"few keys", 2, 1, 19, 4, 8, 8, {0}, 0, true, BY_HEAD, false, NULL},
    {"many keys", 1, 2, 5, 300, 24, 8, {0}, 0, true, ROW, false, NULL},
    {"one query", 3, 2, 1, 77, 8, 40, {0}, 0, false, BY_HEAD, false, NULL},
    {"wide heads", 1, 1, 9, 12, 256, 136, {0}, 0, true, ROW, false, NULL},
    {"a hidden NaN", 3, 2, 21, 21, 8, 8, {0}, 0, true, BY_HEAD, true, NULL},
    {"a NaN for all", 1, 2, 12, 30, 8, 8, {0}, 0, false, ROW, true, NULL},
    {"shard of queries", 1, 2, 20, 40, 8, 8, {0}, 10, false, ROW, false, NULL},
    /* The gradient by two samples, by one and by one head at a time; 128 x 128 slopes each. */
    {"parts of two", 4, 2, 30, 30, 8, 8, {0}, 0, true, BY_HEAD, true, "131072"},
    {"parts of one", 3, 2, 30, 30, 8, 8, {0}, 0, true, ROW, true, "100000"},
    {"parts of a head", 2, 6, 30, 30, 8, 8, {0}, 0, true, BY_HEAD, true, "32768"},
    {"less than a head", 2, 2, 30, 30, 16, 8, {0}, 0, true, ROW, true, "1"},
};

/* --- operands --------------------------------------------------------------------------------- */
static tsri_arg arg_of(tsr_dtype dtype, int ndim, const int64_t *dims, int layout, int64_t offset)
{
    static const int orders[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}};
    tsri_arg a = {.dtype = dtype, .ndim = ndim};
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        const int axis = ndim == 4 ? orders[layout][i] : i;
        a.shape[axis] = a.gshape[axis] = dims[axis];
        a.stride[axis] = step;
        step *= dims[axis];
    }
    a.offset[2] = offset;
    a.gshape[2] += offset;
    return a;
}

/* The operands and results of forward, or of backward: returns what the op asks for. */
static tsri_kernel_desc desc_of(const shape *s, const tsri_attrs *attrs, bool back, tsr_dtype dtype,
                                int layout)
{
    const int64_t q[4] = {s->b, s->h, s->s, s->d}, k[4] = {s->b, s->h, s->t, s->d};
    const int64_t v[4] = {s->b, s->h, s->t, s->e}, y[4] = {s->b, s->h, s->s, s->e};
    const int64_t of_q = s->first > 0 ? s->first : 0, of_k = s->first < 0 ? -s->first : 0;
    tsri_kernel_desc d = {.op = back ? TSRI_OP_FLASH_ATTENTION_DX : TSRI_OP_FLASH_ATTENTION,
                          .attrs = attrs};
    d.in[d.nin++] = arg_of(dtype, 4, q, layout, of_q);
    d.in[d.nin++] = arg_of(dtype, 4, k, layout, of_k);
    d.in[d.nin++] = arg_of(dtype, 4, v, layout, of_k);
    if (s->mask[0])
        d.in[d.nin++] = arg_of(dtype, 4, s->mask, ROW, 0);
    const tsri_arg ys = arg_of(dtype, 4, y, layout, of_q), lse = arg_of(TSR_F64, 3, y, ROW, of_q);
    if (!back) {
        d.out[d.nout++] = ys;
        d.out[d.nout++] = lse;
        return d;
    }
    d.in[d.nin++] = ys;
    d.in[d.nin++] = lse;
    d.in[d.nin++] = ys;
    for (int i = 0; i < 3; i++)
        d.out[d.nout++] = d.in[i];
    return d;
}

/* Where element i, in row-major order, is. */
static int64_t place(const tsri_arg *a, int64_t i)
{
    int64_t at = 0;
    for (int axis = a->ndim - 1; axis >= 0; axis--) {
        at += i % a->shape[axis] * a->stride[axis];
        i /= a->shape[axis];
    }
    return at;
}

static double *doubles(const tsri_arg *a)
{
    double *p = calloc((size_t)tsri_arg_count(a), sizeof *p);
    assert_non_null(p);
    return p;
}

/* Between row-major doubles and a buffer of the device. */
static void copy(const tsri_arg *a, double *values, void *buffer, bool in)
{
    const int64_t n = tsri_arg_count(a);
    const size_t bytes = (size_t)n * tsr_dtype_size(a->dtype);
    double *placed = doubles(a);
    void *raw = malloc(bytes);
    assert_non_null(raw);
    if (in) {
        for (int64_t i = 0; i < n; i++)
            placed[place(a, i)] = values[i];
        tsri_convert(raw, a->dtype, placed, TSR_F64, n);
        assert_int_equal(device->ops->copy_in(device, buffer, raw, bytes, device->stream), TSR_OK);
    } else {
        assert_int_equal(device->ops->copy_out(device, raw, buffer, bytes, device->stream), TSR_OK);
        tsri_convert(placed, TSR_F64, raw, a->dtype, n);
        for (int64_t i = 0; i < n; i++)
            values[i] = placed[place(a, i)];
    }
    free(placed);
    free(raw);
}

/* --- running ---------------------------------------------------------------------------------- */
static void run_reference(tsri_kernel_desc *d, double **in, double **out)
{
    tsri_kernel *k;
    assert_int_equal(reference()->slot[d->op](NULL, d, &k), TSR_OK);
    void *scratch = aligned_alloc(64, (k->scratch_bytes + 63) / 64 * 64);
    assert_int_equal(k->run(k, (void *const *)in, (void *const *)out, scratch), TSR_OK);
    free(scratch);
    k->destroy(k);
}

/* The scratch that a shape may have: two matrices of scores, or of 16 rows or a head of one tile
 * where these are longer, sums of halves and finite keys of all heads, and a workspace. */
static size_t most_scratch(const shape *s)
{
    const size_t cap = s->bytes ? (size_t)atoll(s->bytes) : (size_t)32 << 20;
    const size_t tile = 128 * 128 * 2, least = (size_t)(16 * (s->t + 8)) * 8;
    const size_t rows = least > tile ? least : tile;
    return 2 * (cap > rows ? cap : rows) + (size_t)(s->b * s->h * s->t * (2 * s->d + s->e) * 8) +
           8192;
}

static tsri_kernel_create_fn *slot_of(const char *name, tsri_op_kind op)
{
    const tsri_kernels *const *impl = device->ops->kernels();
    while (strcmp((*impl)->name, name) != 0)
        impl++;
    return (*impl)->slot[op];
}

static void run_device(const shape *s, const char *by, tsri_kernel_desc *d, double **in,
                       double **out)
{
    void *ins[MOST], *outs[MOST], *scratch = NULL;
    tsri_kernel *k;
    d->stream = device->stream;
    if (s->bytes)
        setenv("TESSERA_CUDA_SCORES", s->bytes, 1);
    tsr_status status = slot_of(by, d->op)(NULL, d, &k);
    unsetenv("TESSERA_CUDA_SCORES");
    if (status != TSR_OK)
        fail_msg("%s, %s: %s", s->name, tsr_dtype_name(d->in[0].dtype), tsr_last_error());
    assert_string_equal(k->impl, by);
    assert_true(k->scratch_bytes <= most_scratch(s));
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        void **to = i < d->nin ? &ins[i] : &outs[i - d->nin];
        const size_t bytes = (size_t)tsri_arg_count(a) * tsr_dtype_size(a->dtype);
        assert_int_equal(device->ops->buffer_alloc(device, bytes, to), TSR_OK);
        copy(a, i < d->nin ? in[i] : out[i - d->nin], *to, true);
    }
    assert_int_equal(device->ops->buffer_alloc(device, k->scratch_bytes, &scratch), TSR_OK);
    if (k->run(k, ins, outs, scratch) != TSR_OK)
        fail_msg("%s: %s", s->name, tsr_last_error());
    for (int o = 0; o < d->nout; o++)
        copy(&d->out[o], out[o], outs[o], false);
    device->ops->buffer_free(device, scratch, k->scratch_bytes);
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        device->ops->buffer_free(device, i < d->nin ? ins[i] : outs[i - d->nin],
                                 (size_t)tsri_arg_count(a) * tsr_dtype_size(a->dtype));
    }
    k->destroy(k);
}

static void compare(const shape *s, tsr_dtype dtype, const char *what, const tsri_arg *a,
                    const double *got, const double *want)
{
    const double of = dtype == TSR_F64   ? 1e-12
                      : dtype == TSR_F32 ? 1e-5
                      : dtype == TSR_F16 ? 4e-3
                                         : 3e-2;
    double top = 0;
    for (int64_t i = 0; i < tsri_arg_count(a); i++)
        top = isfinite(want[i]) ? fmax(top, fabs(want[i])) : top;
    for (int64_t i = 0; i < tsri_arg_count(a); i++)
        if (isfinite(want[i]) ? !(fabs(got[i] - want[i]) <= of * top)
                              : isnan(want[i]) != isnan(got[i]) || (!isnan(got[i]) && got[i] > 0))
            fail_msg("%s, %s: %s, element %lld is %.9g, not %.9g", s->name, tsr_dtype_name(dtype),
                     what, (long long)i, got[i], want[i]);
}

/* Numbers that `dtype` has, in -1..1. */
static void fill(tsri_arg *a, tsr_dtype dtype, uint64_t seed, double *to)
{
    for (int64_t i = 0; i < tsri_arg_count(a); i++)
        to[i] = kc_round(dtype, 2 * tsri_rng_uniform(seed, 0, (uint64_t)i) - 1);
}

static void check(const shape *s, const char *by, tsr_dtype dtype)
{
    static const char *const results[2][3] = {{"y", "lse"}, {"dq", "dk", "dv"}};
    const tsri_attrs attrs = {
        .attention = {.scale = 0.6, .causal = s->causal, .has_mask = s->mask[0] != 0}};
    double *in[MOST] = {0};
    tsri_kernel_desc wide = desc_of(s, &attrs, true, TSR_F64, ROW);
    const int y = wide.nin - 3;
    for (int i = 0; i < wide.nin; i++) {
        in[i] = doubles(&wide.in[i]);
        fill(&wide.in[i], dtype, (uint64_t)i + 1, in[i]);
    }
    for (int64_t i = 0; s->mask[0] && i < tsri_arg_count(&wide.in[3]); i++)
        if (i % 4 == 3)
            in[3][i] = -INFINITY;
    for (int64_t i = 0; s->nan && i < s->b * s->h; i++)
        in[1][((i + 1) * s->t - 1) * s->d] = NAN;
    for (int back = 0; back < 2; back++) {
        double *want[3] = {0}, *got[3] = {0};
        wide = desc_of(s, &attrs, back, TSR_F64, ROW);
        tsri_kernel_desc d = desc_of(s, &attrs, back, dtype, s->layout);
        for (int o = 0; o < d.nout; o++) {
            want[o] = doubles(&wide.out[o]);
            got[o] = doubles(&wide.out[o]);
            for (int64_t i = 0; i < tsri_arg_count(&wide.out[o]); i++)
                got[o][i] = 7; /* it must be written */
        }
        run_reference(&wide, in, want);
        run_device(s, by, &d, in, got);
        for (int o = 0; o < d.nout; o++) {
            compare(s, dtype, results[back][o], &wide.out[o], got[o], want[o]);
            if (!back) /* backward has what forward gave */
                memcpy(in[y + o], want[o], (size_t)tsri_arg_count(&wide.out[o]) * sizeof(double));
            free(want[o]);
            free(got[o]);
        }
    }
    for (int i = 0; i < MOST; i++)
        free(in[i]);
}

static void test_attention(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 4; d++)
            check(&shapes[i], "cublaslt", dtypes[d]);
}

/* --- cuDNN's engines -------------------------------------------------------------------------- */
static void check_fused(void)
{
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
        check(&fused[i], "cudnn-attention", TSR_F16);
        check(&fused[i], "cudnn-attention", TSR_BF16);
    }
}

static void test_fused(void **state)
{
    (void)state;
    check_fused();
}

/* Opens the device again, with a variable set, or unset where value is NULL. */
static void reopen(const char *name, const char *value)
{
    tsr_world_destroy(world);
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
    assert_int_equal(open_cuda(), 0);
}

/* dq is summed in f32, in any order. */
static void test_fused_in_any_order(void **state)
{
    (void)state;
    reopen("TESSERA_CUDA_DETERMINISTIC", "0");
    check_fused();
    reopen("TESSERA_CUDA_DETERMINISTIC", NULL);
}

/* What takes a case, forward or backward. */
static const char *taken_by(const shape *s, tsr_dtype dtype, bool back)
{
    const tsri_attrs attrs = {
        .attention = {.scale = 0.125, .causal = s->causal, .has_mask = s->mask[0] != 0}};
    tsri_kernel_desc d = desc_of(s, &attrs, back, dtype, s->layout);
    tsri_kernel *k;
    d.stream = device->stream;
    if (tsri_kernel_create(NULL, device->ops->kernels(), &d, &k) != TSR_OK)
        fail_msg("%s: %s", s->name, tsr_last_error());
    const char *impl = k->impl;
    k->destroy(k);
    return impl;
}

static void assert_taken(const char *by, const shape *s, tsr_dtype dtype)
{
    for (int back = 0; back < 2; back++)
        if (strcmp(taken_by(s, dtype, back), by) != 0)
            fail_msg("%s, %s, %s is taken by %s, not by %s", s->name, tsr_dtype_name(dtype),
                     back ? "backward" : "forward", taken_by(s, dtype, back), by);
}

static void test_who_takes(void **state)
{
    (void)state;
    static const shape gpt = {"GPT-2's", 2, 12, 64, 64, 64, 64, {0}, 0, true, BY_HEAD, 0, 0};
    static const shape others[] = {
        {"a mask", 2, 2, 16, 24, 8, 8, {2, 1, 1, 24}, 0, false, ROW, false, NULL},
        {"a causal shard of queries", 1, 2, 20, 40, 8, 8, {0}, 10, true, ROW, false, NULL},
        {"a causal shard of keys", 1, 2, 20, 40, 8, 8, {0}, -10, true, ROW, false, NULL},
        {"12 features", 1, 2, 16, 16, 12, 8, {0}, 0, true, ROW, false, NULL},
        {"12 features of values", 1, 2, 16, 16, 8, 12, {0}, 0, true, ROW, false, NULL},
        {"264 features", 1, 1, 16, 16, 264, 8, {0}, 0, true, ROW, false, NULL},
        {"features first", 1, 2, 16, 16, 8, 8, {0}, 0, true, BY_FEATURE, false, NULL},
    };
    assert_taken("cudnn-attention", &gpt, TSR_BF16);
    assert_taken("cudnn-attention", &gpt, TSR_F16);
    assert_taken("cublaslt", &gpt, TSR_F32);
    assert_taken("cublaslt", &gpt, TSR_F64);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_taken("cublaslt", &others[i], TSR_BF16);
    setenv("TESSERA_CUDA_FUSED_ATTENTION", "0", 1);
    assert_taken("cublaslt", &gpt, TSR_BF16);
    unsetenv("TESSERA_CUDA_FUSED_ATTENTION");
    /* One score: NVIDIA's front end refuses its gradient. */
    static const shape one = {"one score", 1, 2, 1, 1, 8, 8, {0}, 0, false, ROW, false, NULL};
    assert_string_equal(taken_by(&one, TSR_BF16, false), "cudnn-attention");
    assert_string_equal(taken_by(&one, TSR_BF16, true), "cublaslt");
}

/* After Hopper the gradient's engines do not repeat, and heads of 256 features are too wide. */
static void test_after_hopper(void **state)
{
    (void)state;
    static const shape gpt = {"GPT-2's", 2, 12, 64, 64, 64, 64, {0}, 0, true, BY_HEAD, 0, 0};
    static const shape wide = {"wide", 1, 1, 16, 16, 136, 8, {0}, 0, true, ROW, false, NULL};
    const char *named = getenv("TESSERA_CUDA_MODULE");
    if (!named || !strstr(named, "emulated")) {
        print_message("skipped: the GPU is what it is\n");
        skip();
    }
    reopen("EMULATED_CAPABILITY", "10.0");
    assert_string_equal(taken_by(&gpt, TSR_BF16, false), "cudnn-attention");
    assert_string_equal(taken_by(&gpt, TSR_BF16, true), "cublaslt");
    assert_taken("cublaslt", &wide, TSR_BF16);
    reopen("TESSERA_CUDA_DETERMINISTIC", "0");
    assert_taken("cudnn-attention", &gpt, TSR_BF16);
    reopen("TESSERA_CUDA_DETERMINISTIC", NULL);
    reopen("EMULATED_CAPABILITY", NULL);
}

/* --- memory ----------------------------------------------------------------------------------- */
static size_t gpt_scratch(const char *by, int64_t batch, bool back)
{
    const shape s = {"", batch, 12, 1024, 1024, 64, 64, {0}, 0, true, BY_HEAD, 0, 0};
    const tsri_attrs attrs = {.attention = {.scale = 0.125, .causal = true}};
    tsri_kernel_desc d = desc_of(&s, &attrs, back, TSR_BF16, s.layout);
    tsri_kernel *k;
    d.stream = device->stream;
    assert_int_equal(tsri_kernel_create(NULL, device->ops->kernels(), &d, &k), TSR_OK);
    assert_string_equal(k->impl, by);
    const size_t bytes = k->scratch_bytes;
    k->destroy(k);
    return bytes;
}

/* GPT-2 small's scratch does not grow with its batch. */
static void check_scratch(const char *by)
{
    for (int back = 0; back < 2; back++) {
        const size_t few = gpt_scratch(by, 8, back), many = gpt_scratch(by, 64, back);
        assert_true(many <= (size_t)96 << 20);
        assert_true(many >= few);
    }
}

/* The gradient that repeats keeps the slopes of a head, at least, beside a sample's keys. */
static void test_scratch(void **state)
{
    (void)state;
    const size_t keys_and_slopes = (size_t)(12 * 1024 * 64 + 1024 * 1024) * 2;
    check_scratch("cudnn-attention");
    setenv("TESSERA_CUDA_SCORES", "1", 1);
    assert_true(gpt_scratch("cudnn-attention", 8, true) > keys_and_slopes);
    reopen("TESSERA_CUDA_DETERMINISTIC", "0");
    assert_true(gpt_scratch("cudnn-attention", 8, true) < keys_and_slopes);
    unsetenv("TESSERA_CUDA_SCORES");
    check_scratch("cudnn-attention");
    reopen("TESSERA_CUDA_DETERMINISTIC", NULL);
    setenv("TESSERA_CUDA_FUSED_ATTENTION", "0", 1);
    check_scratch("cublaslt");
    unsetenv("TESSERA_CUDA_FUSED_ATTENTION");
}

static void test_wrong_cap(void **state)
{
    (void)state;
    static const char *const wrong[] = {"32M", "-1", "0", "much"};
    const shape s = {"", 2, 2, 8, 8, 8, 8, {0}, 0, false, BY_HEAD, 0, 0};
    const tsri_attrs attrs = {.attention = {.scale = 1}};
    tsri_kernel_desc d = desc_of(&s, &attrs, false, TSR_F32, s.layout);
    tsri_kernel *k;
    d.stream = device->stream;
    for (size_t i = 0; i < 2 * sizeof wrong / sizeof *wrong; i++) {
        tsri_kernel_desc half = desc_of(&s, &attrs, false, TSR_F16, s.layout);
        half.stream = device->stream;
        setenv("TESSERA_CUDA_SCORES", wrong[i / 2], 1);
        tsr_status status =
            tsri_kernel_create(NULL, device->ops->kernels(), i % 2 ? &half : &d, &k);
        unsetenv("TESSERA_CUDA_SCORES");
        assert_int_equal(status, TSR_ERR_INVALID);
        assert_non_null(strstr(tsr_last_error(), "expected a number of bytes"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),          cmocka_unit_test(test_fused),
        cmocka_unit_test(test_fused_in_any_order), cmocka_unit_test(test_who_takes),
        cmocka_unit_test(test_after_hopper),       cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_wrong_cap),
    };
    int none = open_cuda();
    return none ? none : close_cuda(cmocka_run_group_tests(tests, NULL, NULL));
}
