/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What single kernels reach on a GPU, one JSON object each.
 *
 *     bench_cuda_kernels [-q] [-T] [-k text]
 *
 * Those that are bound by memory, on tensors of 64 MB and more: their bytes a second, each operand
 * counted once, as a share of what the card's own copy moves (asked: 0.70). Products and dense
 * convolutions, in f32, TF32 and bf16: the time of the kernel that a plan takes, over the best of
 * all implementations with TESSERA_CUDA_AUTOTUNE=1 (asked: 1.05). Both at the shapes of GPT-2 small
 * with 8 rows of 1,024 ids: layer norm and cross entropy; attention, whose products count half.
 * -q: fewer shapes, shorter. -T: tiny, to see that it works. -k: only cases whose name has the
 * text.
 */
#include "bench_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARAMETERS = 200 };
static const double asked_share = 0.70, asked_over_best = 1.05;

typedef struct bench {
    bench_gpu gpu, tuned; /* the latter for products alone */
    bool tiny, quick, tf32, failed;
    const char *only;
    double copy_bytes_per_s;
} bench;

/* --- the output ------------------------------------------------------------------------------- */
static void print_case(const char *name, const bench_job *j, const char *dtype)
{
    const tsri_arg *x = &j->in[0].arg;
    printf("{\"bench\":\"kernels\",\"case\":\"%s\",\"op\":\"%s\",\"shape\":\"", name,
           tsri_op_name(j->op));
    for (int i = 0; i < x->ndim; i++)
        printf("%s%lld", i ? "x" : "", (long long)x->shape[i]);
    printf("\",\"dtype\":\"%s\"", dtype);
}

/* What a kernel refuses is told; what breaks is, too, and fails the program. */
static bool print_refusal(bench *b, tsr_status status, const char *name, const bench_job *j,
                          const char *dtype)
{
    if (status == TSR_OK)
        return false;
    print_case(name, j, dtype);
    printf(",\"%s\":\"", status == TSR_ERR_UNSUPPORTED ? "refused" : "error");
    for (const char *p = tsr_last_error(); *p; p++)
        putchar(*p == '"' || *p == '\\' || (unsigned char)*p < ' ' ? '\'' : *p);
    printf("\"}\n");
    fflush(stdout);
    b->failed |= status != TSR_ERR_UNSUPPORTED;
    return true;
}

static bool is_wanted(const bench *b, const char *name)
{
    return !b->only || strstr(name, b->only);
}

/* --- bound by memory -------------------------------------------------------------------------- */
static void measure_copy(bench *b)
{
    bench_time t;
    bench_job j = {.op = TSRI_OP_COPY, .in = {bench_vector(TSR_U8, b->tiny ? 1 << 20 : 256 << 20)}};
    if (print_refusal(b, bench_copy(&b->gpu, &t), "copy of the card", &j, "u8"))
        return;
    b->copy_bytes_per_s = t.bytes / t.median_s;
    print_case("copy of the card", &j, "u8");
    printf(",\"impl\":\"%s\",\"us\":%.2f,\"us_min\":%.2f,\"bytes\":%.0f,\"gb_per_s\":%.1f}\n",
           t.impl, 1e6 * t.median_s, 1e6 * t.min_s, t.bytes, 1e-9 * b->copy_bytes_per_s);
    fflush(stdout);
}

static void moves_bytes_joined(bench *b, const char *name, const bench_job *jobs, int n)
{
    bench_time t;
    const char *dtype = tsr_dtype_name(jobs[0].in[0].arg.dtype);
    if (!is_wanted(b, name) ||
        print_refusal(b, bench_run(&b->gpu, jobs, n, NULL, &t), name, jobs, dtype))
        return;
    double rate = t.bytes / t.median_s, share = rate / b->copy_bytes_per_s;
    print_case(name, jobs, dtype);
    if (n > 1)
        printf(",\"tensors\":%d,\"joined\":%s", n, t.joined ? "true" : "false");
    printf(",\"impl\":\"%s\",\"us\":%.2f,\"us_min\":%.2f,\"bytes\":%.0f,\"gb_per_s\":%.1f,"
           "\"share_of_copy\":%.3f,\"asked_share\":%.2f,\"met\":%s}\n",
           t.impl, 1e6 * t.median_s, 1e6 * t.min_s, t.bytes, 1e-9 * rate, share, asked_share,
           share >= asked_share ? "true" : "false");
    fflush(stdout);
}

static void moves_bytes(bench *b, const char *name, bench_job j)
{
    moves_bytes_joined(b, name, &j, 1);
}

static bench_operand filled(bench_operand o, bench_fill fill, int64_t classes)
{
    o.fill = fill;
    o.classes = classes;
    return o;
}

static tsri_attrs conv_attrs(int kernel, int stride, int64_t groups)
{
    tsri_attrs a = {0};
    for (int i = 0; i < 2; i++) {
        a.conv.kernel[i] = kernel;
        a.conv.stride[i] = stride;
        a.conv.pad[i] = kernel / 2;
        a.conv.dilation[i] = 1;
    }
    a.conv.groups = groups;
    return a;
}

/* Forward, dx and dw of a convolution; groups is ci or 1. */
static void conv_jobs(tsr_dtype t, int64_t n, int64_t ci, int64_t co, int64_t size, int kernel,
                      int stride, int64_t groups, bench_job jobs[3])
{
    int64_t out = (size + stride - 1) / stride;
    bench_operand x = bench_nhwc(t, n, ci, size, size), y = bench_nhwc(t, n, co, out, out);
    bench_operand w = bench_row(t, 4, (const int64_t[]){co, ci / groups, kernel, kernel});
    bench_job j = {
        .attrs = conv_attrs(kernel, stride, groups), .groups = groups, .nin = 2, .nout = 1};
    j.flops = 2.0 * (double)(n * out * out * co * (ci / groups) * kernel * kernel);
    for (int i = 0; i < 3; i++)
        jobs[i] = j;
    jobs[0].op = TSRI_OP_CONV2D;
    jobs[0].in[0] = x, jobs[0].in[1] = w, jobs[0].out[0] = y;
    jobs[1].op = TSRI_OP_CONV2D_DX;
    jobs[1].in[0] = y, jobs[1].in[1] = w, jobs[1].out[0] = x;
    jobs[2].op = TSRI_OP_CONV2D_DW;
    jobs[2].in[0] = x, jobs[2].in[1] = y, jobs[2].out[0] = w;
}

static void depthwise(bench *b, tsr_dtype t)
{
    static const struct {
        int64_t n, c, size;
        int stride;
        const char *name[3];
    } shapes[] = {
        {512, 96, 32, 1, {"depthwise 3x3", "depthwise 3x3 dx", "depthwise 3x3 dw"}},
        {512, 144, 32, 2, {"depthwise 3x3/2", "depthwise 3x3/2 dx", "depthwise 3x3/2 dw"}},
        {2048, 384, 8, 1, {"depthwise 3x3 8x8", "depthwise 3x3 8x8 dx", "depthwise 3x3 8x8 dw"}},
        {4096, 960, 4, 1, {"depthwise 3x3 4x4", "depthwise 3x3 4x4 dx", "depthwise 3x3 4x4 dw"}},
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        bench_job jobs[3];
        int64_t c = shapes[s].c;
        conv_jobs(t, b->tiny ? 1 : shapes[s].n, c, c, b->tiny ? 4 : shapes[s].size, 3,
                  shapes[s].stride, c, jobs);
        for (int i = 0; i < 3; i++)
            moves_bytes(b, shapes[s].name[i], jobs[i]);
    }
}

static void batch_norm(bench *b, tsr_dtype t)
{
    int64_t n = b->tiny ? 2 : 512, c = 96, size = b->tiny ? 4 : 32, each = n * size * size;
    tsri_attrs a = {.bn = {.eps = 1e-5, .momentum = 0.1, .count = each, .batch = n, .parts = 1}};
    a.bn.spatial = size * size;
    bench_operand x = bench_nhwc(t, n, c, size, size), v = bench_vector(t, c);
    bench_operand stats = bench_row(TSR_F64, 3, (const int64_t[]){1, 2, c}), sums = stats;
    stats = filled(stats, BENCH_STATS, each);
#define BN(upper, k, ...)                  \
    ((bench_job){.op = TSRI_OP_BN_##upper, \
                 .attrs = a,               \
                 .nin = k,                 \
                 .nout = 1,                \
                 .in = {__VA_ARGS__},      \
                 .out = {x}})
    bench_job j = BN(STATS, 1, x);
    j.out[0] = sums;
    moves_bytes(b, "batch norm statistics", j);
    moves_bytes(b, "batch norm", BN(APPLY, 4, x, stats, v, v));
    j = BN(BWD_STATS, 3, x, stats, x);
    j.out[0] = sums;
    moves_bytes(b, "batch norm backward statistics", j);
    moves_bytes(b, "batch norm backward", BN(BWD_APPLY, 5, x, stats, v, x, sums));
    a.bn.act = TSRI_ACT_RELU6;
    moves_bytes(b, "batch norm, relu6", BN(ACT, 4, x, stats, v, v));
    j = BN(ACT_BWD_STATS, 5, x, stats, v, v, x);
    j.out[0] = sums;
    moves_bytes(b, "batch norm, relu6 backward statistics", j);
    moves_bytes(b, "batch norm, relu6 backward", BN(ACT_BWD_APPLY, 6, x, stats, v, v, x, sums));
#undef BN
}

/* The sizes of MobileNetV2's parameters. */
static int parameter_sizes(int64_t *out)
{
    static const int table[][3] = {{1, 16, 1}, {6, 24, 2},  {6, 32, 3}, {6, 64, 4},
                                   {6, 96, 3}, {6, 160, 3}, {6, 320, 1}};
    int n = 0;
    int64_t in = 32;
#define LAYER(weights, channels) out[n++] = (weights), out[n++] = (channels), out[n++] = (channels)
    LAYER(3 * 32 * 9, 32);
    for (size_t t = 0; t < sizeof table / sizeof *table; t++)
        for (int i = 0; i < table[t][2]; i++) {
            int64_t hidden = in * table[t][0], co = table[t][1];
            if (table[t][0] > 1)
                LAYER(in * hidden, hidden);
            LAYER(hidden * 9, hidden);
            LAYER(hidden * co, co);
            in = co;
        }
    LAYER(in * 1280, 1280);
#undef LAYER
    out[n++] = 1280 * 10;
    out[n++] = 10;
    return n;
}

static bench_job update_job(tsr_dtype t, bool adam, int64_t n)
{
    bench_operand p = bench_vector(t, n), hyper = bench_vector(TSR_F64, TSRI_HYPER_COUNT);
    bench_job j = {.op = adam ? TSRI_OP_ADAM : TSRI_OP_SGD, .in_place = true};
    j.nin = adam ? 5 : 4;
    j.nout = adam ? 3 : 2;
    for (int i = 0; i < j.nin; i++)
        j.in[i] = p;
    for (int i = 0; i < j.nout; i++)
        j.out[i] = p;
    j.in[j.nin - 1] = filled(hyper, BENCH_HYPER, 0);
    j.attrs.update.has = adam ? 3 : 1;
    if (adam)
        j.in[2].fill = BENCH_POSITIVE;
    return j;
}

static void updates(bench *b, tsr_dtype t)
{
    static bench_job jobs[MAX_PARAMETERS];
    int64_t sizes[MAX_PARAMETERS];
    int n = parameter_sizes(sizes);
    for (int adam = 0; adam < 2; adam++) {
        for (int i = 0; i < n; i++)
            jobs[i] = update_job(t, adam, sizes[i]);
        moves_bytes_joined(b, adam ? "adam of mobilenet_v2" : "sgd of mobilenet_v2", jobs,
                           b->tiny ? 9 : n);
        int64_t one = b->tiny ? 4096 : (64 << 20) / (int64_t)tsr_dtype_size(t);
        moves_bytes(b, adam ? "adam of 64 MiB" : "sgd of 64 MiB", update_job(t, adam, one));
    }
}

static void cross_entropy(bench *b, tsr_dtype t, const char *name, const char *name_dx, int64_t n,
                          int64_t c)
{
    bench_operand x = bench_row(t, 2, (const int64_t[]){n, c}), row = bench_vector(t, n);
    bench_operand label = filled(bench_vector(TSR_I64, n), BENCH_LABEL, c);
    bench_operand lse = filled(bench_row(t, 2, (const int64_t[]){n, 2}), BENCH_LSE, 0);
    bench_job j = {.op = TSRI_OP_CE, .nin = 2, .nout = 3, .in = {x, label}, .out = {row, row, lse}};
    j.attrs.ce.classes = c;
    moves_bytes(b, name, j);
    bench_job dx = {
        .op = TSRI_OP_CE_DX, .nin = 4, .nout = 1, .in = {x, label, lse, row}, .out = {x}};
    dx.attrs.ce.classes = c;
    moves_bytes(b, name_dx, dx);
}

static void losses(bench *b, tsr_dtype t)
{
    int64_t n = b->tiny ? 16 : 36864, c = b->tiny ? 40 : 1000;
    bench_operand x = bench_row(t, 2, (const int64_t[]){n, c});
    cross_entropy(b, t, "softmax cross entropy", "softmax cross entropy dx", n, c);
    cross_entropy(b, t, "cross entropy of gpt2", "cross entropy of gpt2 dx", b->tiny ? 16 : 8192,
                  b->tiny ? 57 : 50257);
    bench_job s = {.op = TSRI_OP_SOFTMAX, .nin = 1, .nout = 1, .in = {x}, .out = {x}};
    s.attrs.softmax.axis = 1;
    moves_bytes(b, "softmax", s);
}

static void moves(bench *b, tsr_dtype t)
{
    int64_t n = b->tiny ? 16 : 36864, c = b->tiny ? 40 : 1024;
    bench_operand x = bench_row(t, 2, (const int64_t[]){n, c});
    bench_job j = {.op = TSRI_OP_REDUCE, .nin = 1, .nout = 1, .in = {x}};
    j.attrs.reduce.op = TSR_REDUCE_SUM;
    j.attrs.reduce.scale = 1;
    j.attrs.reduce.axes = 3;
    j.out[0] = bench_row(t, 0, NULL);
    moves_bytes(b, "sum of all", j);
    j.attrs.reduce.axes = 2;
    j.out[0] = bench_vector(t, n);
    moves_bytes(b, "sum of rows", j);
    j.attrs.reduce.axes = 1;
    j.out[0] = bench_vector(t, c);
    moves_bytes(b, "sum of columns", j);
    bench_job p = {.op = TSRI_OP_PERMUTE, .nin = 1, .nout = 1, .in = {x}};
    p.attrs.permute.perm[0] = 1;
    p.out[0] = bench_row(t, 2, (const int64_t[]){c, n});
    moves_bytes(b, "transposition", p);
    int64_t images = b->tiny ? 2 : 512, size = b->tiny ? 4 : 32;
    bench_job l = {.op = TSRI_OP_COPY, .nin = 1, .nout = 1};
    l.in[0] = bench_row(t, 4, (const int64_t[]){images, 96, size, size});
    l.out[0] = bench_nhwc(t, images, 96, size, size);
    moves_bytes(b, "to channels last", l);
    bench_job add = {.op = TSRI_OP_BINARY, .nin = 2, .nout = 1, .in = {x, x}, .out = {x}};
    add.attrs.binary.fn = TSRI_BINARY_ADD;
    moves_bytes(b, "addition", add);
}

/* --- products --------------------------------------------------------------------------------- */
/* The best of *best and the implementations, each as its library chooses by timing. */
static tsr_status find_best(bench *b, const bench_job *j, bench_time *best)
{
    for (const tsri_kernels *const *impl = b->tuned.device->ops->kernels(); impl[1]; impl++) {
        bench_time t;
        tsr_status status = bench_run(&b->tuned, j, 1, *impl, &t);
        if (status == TSR_ERR_UNSUPPORTED)
            continue;
        TSRI_TRY(status);
        if (t.min_s < best->min_s)
            *best = t;
    }
    return TSR_OK;
}

static void multiplies(bench *b, const char *name, bench_job j)
{
    bench_time t;
    const char *dtype = b->tf32 ? "tf32" : tsr_dtype_name(j.in[0].arg.dtype);
    if (!is_wanted(b, name) ||
        print_refusal(b, bench_run(&b->gpu, &j, 1, NULL, &t), name, &j, dtype))
        return;
    bench_time best = t;
    if (print_refusal(b, find_best(b, &j, &best), name, &j, dtype))
        return;
    double over = t.min_s / best.min_s;
    print_case(name, &j, dtype);
    printf(",\"impl\":\"%s\",\"us\":%.2f,\"us_min\":%.2f,\"tflops\":%.2f,\"gb_per_s\":%.1f,"
           "\"best_impl\":\"%s\",\"best_us_min\":%.2f,\"over_best\":%.3f,\"asked_over_best\":%.2f,"
           "\"met\":%s}\n",
           t.impl, 1e6 * t.median_s, 1e6 * t.min_s, 1e-12 * j.flops / t.median_s,
           1e-9 * t.bytes / t.median_s, best.impl, 1e6 * best.min_s, over, asked_over_best,
           over <= asked_over_best ? "true" : "false");
    fflush(stdout);
}

static void linears(bench *b, tsr_dtype t)
{
    static const int64_t shapes[][3] = {{8192, 1024, 4096},
                                        {8192, 4096, 1024},
                                        {8192, 1024, 1024},
                                        {512, 1024, 4096},
                                        {512, 1280, 10}};
    int n = b->tiny ? 1 : b->quick ? 3 : 5;
    for (int s = 0; s < n; s++) {
        int64_t m = b->tiny ? 16 : shapes[s][0], k = b->tiny ? 32 : shapes[s][1];
        int64_t o = b->tiny ? 24 : shapes[s][2];
        bench_operand x = bench_row(t, 2, (const int64_t[]){m, k}),
                      y = bench_row(t, 2, (const int64_t[]){m, o});
        bench_operand w = bench_row(t, 2, (const int64_t[]){o, k}), bias = bench_vector(t, o);
        double flops = 2.0 * (double)m * (double)k * (double)o;
        char name[64];
        snprintf(name, sizeof name, "linear to %lld", (long long)o);
        multiplies(b, name,
                   (bench_job){.op = TSRI_OP_LINEAR,
                               .nin = 3,
                               .nout = 1,
                               .flops = flops,
                               .in = {x, w, bias},
                               .out = {y}});
        snprintf(name, sizeof name, "linear dx from %lld to %lld", (long long)o, (long long)k);
        multiplies(b, name,
                   (bench_job){.op = TSRI_OP_LINEAR_DX,
                               .nin = 2,
                               .nout = 1,
                               .flops = flops,
                               .in = {y, w},
                               .out = {x}});
        snprintf(name, sizeof name, "linear dw of %lldx%lld", (long long)o, (long long)k);
        multiplies(b, name,
                   (bench_job){.op = TSRI_OP_LINEAR_DW,
                               .nin = 2,
                               .nout = 1,
                               .flops = flops,
                               .in = {x, y},
                               .out = {w}});
    }
    int64_t heads = b->tiny ? 2 : 256, len = b->tiny ? 8 : 512, d = b->tiny ? 8 : 64;
    bench_job j = {.op = TSRI_OP_BATCH_MATMUL, .nin = 2, .nout = 1};
    j.in[0] = bench_row(t, 3, (const int64_t[]){heads, len, d});
    j.in[1] = bench_row(t, 3, (const int64_t[]){heads, d, len});
    j.out[0] = bench_row(t, 3, (const int64_t[]){heads, len, len});
    j.flops = 2.0 * (double)(heads * len * len) * (double)d;
    multiplies(b, "attention's scores", j);
}

typedef struct conv_shape {
    int64_t ci, co, size;
    int kernel;
} conv_shape;

static void convs(bench *b, tsr_dtype t, int64_t batch, const conv_shape *shapes, int n)
{
    static const char *const pass[3] = {"", " dx", " dw"};
    for (int s = 0; s < (b->tiny ? 1 : n); s++) {
        const conv_shape *c = &shapes[s];
        bench_job jobs[3];
        conv_jobs(t, b->tiny ? 1 : batch, c->ci, c->co, b->tiny ? 4 : c->size, c->kernel, 1, 1,
                  jobs);
        for (int i = 0; i < 3; i++) {
            char name[64];
            snprintf(name, sizeof name, "conv %dx%d %lld to %lld, batch %lld%s", c->kernel,
                     c->kernel, (long long)c->ci, (long long)c->co, (long long)batch, pass[i]);
            if (i != 1 || c->ci > 3) /* nobody needs the gradient of the images */
                multiplies(b, name, jobs[i]);
        }
    }
}

static void products(bench *b, tsr_dtype t)
{
    static const conv_shape pointwise[] = {{144, 24, 32, 1}, {24, 144, 32, 1},  {384, 64, 8, 1},
                                           {960, 160, 4, 1}, {320, 1280, 4, 1}, {16, 96, 32, 1},
                                           {64, 384, 8, 1},  {96, 576, 8, 1}};
    static const conv_shape dense[] = {
        {3, 32, 32, 3}, {64, 64, 32, 3}, {128, 128, 16, 3}, {256, 256, 8, 3}};
    linears(b, t);
    for (int64_t batch = 128; batch <= (b->quick || b->tiny ? 128 : 512); batch *= 4) {
        convs(b, t, batch, pointwise, b->quick ? 4 : 8);
        convs(b, t, batch, dense, b->quick ? 2 : 4);
    }
}

/* --- GPT-2 small ------------------------------------------------------------------------------ */
static void layer_norm(bench *b, tsr_dtype t, int64_t rows, int64_t width)
{
    tsri_attrs a = {.ln = {.eps = 1e-5, .count = width, .axes = 1, .has_gamma = 1}};
    bench_operand x = bench_row(t, 2, (const int64_t[]){rows, width}), v = bench_vector(t, width);
    bench_operand sums = bench_row(TSR_F64, 2, (const int64_t[]){rows, 2});
    bench_operand stats = filled(sums, BENCH_ROW_STATS, width);
#define LN(upper, k, ...)                  \
    ((bench_job){.op = TSRI_OP_LN_##upper, \
                 .attrs = a,               \
                 .nin = k,                 \
                 .nout = 1,                \
                 .in = {__VA_ARGS__},      \
                 .out = {x}})
    bench_job j = LN(STATS, 1, x);
    j.out[0] = sums;
    moves_bytes(b, "layer norm of gpt2, statistics", j);
    j = LN(BWD_STATS, 4, x, stats, v, x);
    j.out[0] = sums;
    moves_bytes(b, "layer norm of gpt2, backward statistics", j);
    moves_bytes(b, "layer norm of gpt2, backward", LN(BWD_APPLY, 5, x, stats, v, x, sums));
    a.ln.has_beta = 1;
    moves_bytes(b, "layer norm of gpt2", LN(APPLY, 4, x, stats, v, v));
    j = LN(PARAM_GRAD, 3, x, stats, x);
    j.nout = 2;
    j.out[0] = j.out[1] = v;
    moves_bytes(b, "layer norm of gpt2, parameters' gradients", j);
#undef LN
}

/* Causal: half of the two products of the forward pass, and of the five of the backward one. */
static void gpt_attention(bench *b, tsr_dtype t)
{
    const bool tiny = b->tiny;
    const int64_t rows = tiny ? 1 : 8, heads = tiny ? 2 : 12, length = tiny ? 8 : 1024;
    const int64_t d = tiny ? 8 : 64;
    bench_operand q = bench_row(t, 4, (const int64_t[]){rows, heads, length, d});
    bench_operand lse = bench_row(TSR_F64, 3, (const int64_t[]){rows, heads, length});
    lse = filled(lse, BENCH_LSE, 0);
    double product = (double)(rows * heads * length * length) * (double)d;
    tsri_attrs a = {.attention = {.scale = 1 / sqrt((double)d), .causal = 1}};
    bench_job j = {.op = TSRI_OP_FLASH_ATTENTION, .attrs = a, .nin = 3, .nout = 2};
    j.in[0] = j.in[1] = j.in[2] = j.out[0] = q;
    j.out[1] = lse;
    j.flops = 2 * product;
    multiplies(b, "attention of gpt2", j);
    bench_job dx = {.op = TSRI_OP_FLASH_ATTENTION_DX, .attrs = a, .nin = 6, .nout = 3};
    for (int i = 0; i < 6; i++)
        dx.in[i] = i == 4 ? lse : q;
    dx.out[0] = dx.out[1] = dx.out[2] = q;
    dx.flops = 5 * product;
    multiplies(b, "attention of gpt2 dx", dx);
}

/* --- all of it -------------------------------------------------------------------------------- */
static tsr_status run_with(bench *b, bool tf32)
{
    b->tf32 = tf32;
    TSRI_TRY(bench_open(&b->gpu, tf32, false));
    TSRI_TRY(bench_open(&b->tuned, tf32, true));
    if (!tf32) {
        measure_copy(b);
        for (int i = 0; i < 2; i++) {
            tsr_dtype t = i ? TSR_BF16 : TSR_F32;
            depthwise(b, t);
            batch_norm(b, t);
            updates(b, t);
            losses(b, t);
            layer_norm(b, t, b->tiny ? 16 : 8192, b->tiny ? 48 : 768);
            moves(b, t);
        }
        products(b, TSR_BF16);
        gpt_attention(b, TSR_BF16);
    }
    products(b, TSR_F32);
    gpt_attention(b, TSR_F32);
    bench_close(&b->tuned);
    bench_close(&b->gpu);
    return TSR_OK;
}

int main(int argc, char **argv)
{
    static bench b;
    for (int c; (c = getopt(argc, argv, "qTk:")) != -1;) {
        if (c == 'q') {
            b.quick = true;
        } else if (c == 'T') {
            b.tiny = true;
        } else if (c == 'k') {
            b.only = optarg;
        } else {
            fprintf(stderr, "usage: bench_cuda_kernels [-q] [-T] [-k text]\n");
            return 2;
        }
    }
    b.gpu.tiny = b.tiny;
    b.gpu.seconds = b.quick ? 4e-3 : 20e-3;
    b.gpu.repeats = b.tiny ? 1 : b.quick ? 5 : 9;
    b.tuned = b.gpu;
    for (int tf32 = 0; tf32 < 2; tf32++)
        if (run_with(&b, tf32) != TSR_OK) {
            fprintf(stderr, "bench_cuda_kernels: %s\n", tsr_last_error());
            return 1;
        }
    return b.failed;
}
