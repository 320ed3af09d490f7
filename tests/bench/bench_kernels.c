/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of one training step of MobileNetV2 (torchvision's, width 1, images of 32x32), in the
 * order of a step and on buffers like a step's: what each op costs, by layer and by kind.
 *
 *     bench_kernels [-n batch] [-i iterations] [-t f32|bf16|f16] [-v]
 *
 * -t: of images and of the products' weights, which are then cast from f32 and their gradients to
 * it; what else there is stays f32. Threads: OMP_NUM_THREADS. Kernels: TESSERA_KERNELS. -v prints
 * every op. Where other programs run, least times tell more than medians.
 */
#include "kernels/kernels.h"
#include "src/core/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_STEPS = 1024, MAX_ITERATIONS = 200, MAX_LAYERS = 64, ROTATE = 3 };

static tsr_dtype dtype = TSR_F32; /* of images and the products' weights */

typedef struct tensor {
    tsri_arg arg;
    void *data;
} tensor;

typedef struct step {
    tsri_kernel *kernel;
    tsri_op_kind op;
    const char *note;
    char shape[48];
    void *in[TSRI_KERNEL_MAX_ARGS], *out[TSRI_KERNEL_MAX_ARGS];
    double ms[MAX_ITERATIONS];
} step;

/* A convolution, its batch norm and its activation. */
typedef struct layer {
    tensor x, w, y, stats, gamma, beta, z; /* z: what follows the activation sees */
    tensor dw, bstats, dgamma, dbeta;
    tsri_attrs conv, bn;
    int64_t groups;
    bool act;
} layer;

typedef struct bench {
    step *steps;
    int nsteps;
    layer layers[MAX_LAYERS];
    int nlayers;
    tensor rotate[ROTATE];
    int turn;
    size_t scratch_bytes;
    void *scratch;
    tensor hyper;
} bench;

static void *allocate(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!p) {
        fprintf(stderr, "bench_kernels: no memory\n");
        exit(1);
    }
    return p;
}

static void fill(float *p, int64_t n, float scale, float level)
{
    static uint32_t s = 1;
    for (int64_t i = 0; i < n; i++) {
        s = s * 1664525u + 1013904223u;
        p[i] = level + scale * ((float)(s >> 8) * 0x1p-23f - 1.0f);
    }
}

static tsri_arg row_major(tsr_dtype type, int ndim, const int64_t *shape)
{
    tsri_arg a = {.dtype = type, .ndim = ndim};
    int64_t pitch = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        a.shape[i] = a.gshape[i] = shape[i];
        a.stride[i] = pitch;
        pitch *= shape[i];
    }
    return a;
}

static int64_t count(const tsri_arg *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->ndim; i++)
        n *= a->shape[i];
    return n;
}

static tensor make(tsri_arg arg)
{
    tensor t = {.arg = arg};
    t.data = allocate((size_t)count(&arg) * tsr_dtype_size(arg.dtype));
    if (arg.dtype == TSR_F32) {
        fill(t.data, count(&arg), 1.0f, 0.0f);
    } else if (arg.dtype == TSR_F16 || arg.dtype == TSR_BF16) {
        float *wide = allocate((size_t)count(&arg) * sizeof *wide);
        fill(wide, count(&arg), 1.0f, 0.0f);
        tsri_convert(t.data, arg.dtype, wide, TSR_F32, count(&arg));
        free(wide);
    } else
        memset(t.data, 0, (size_t)count(&arg) * tsr_dtype_size(arg.dtype));
    return t;
}

static tsri_arg images(int64_t n, int64_t c, int64_t h, int64_t w)
{
    tsri_arg a = row_major(dtype, 4, (int64_t[]){n, c, h, w});
    a.stride[0] = h * w * c;
    a.stride[1] = 1;
    a.stride[2] = w * c;
    a.stride[3] = c;
    return a;
}

static tensor vector(int64_t n, float scale, float level)
{
    tensor t = make(row_major(TSR_F32, 1, &n));
    fill(t.data, n, scale, level);
    return t;
}

/* A gradient's buffer, used again a few gradients later. */
static tensor passing(bench *b, tsri_arg arg)
{
    tensor t = {arg, b->rotate[b->turn++ % ROTATE].data};
    return t;
}

static void add(bench *b, const char *note, tsri_op_kind op, const tsri_attrs *attrs,
                int64_t groups, int nin, const tensor *in, int nout, const tensor *out)
{
    tsri_kernel_desc d = {.op = op, .attrs = attrs, .nin = nin, .nout = nout, .groups = groups};
    step *s = &b->steps[b->nsteps++];
    s->op = op;
    s->note = note;
    for (int i = 0; i < nin; i++) {
        d.in[i] = in[i].arg;
        s->in[i] = in[i].data;
    }
    for (int i = 0; i < nout; i++) {
        d.out[i] = out[i].arg;
        s->out[i] = out[i].data;
    }
    const tsri_arg *x = &d.in[0];
    if (x->ndim == 4)
        snprintf(s->shape, sizeof s->shape, "%ldx%ldx%ldx%ld", (long)x->shape[0], (long)x->shape[1],
                 (long)x->shape[2], (long)x->shape[3]);
    else
        snprintf(s->shape, sizeof s->shape, "%ld", (long)count(x));
    if (tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &s->kernel) != TSR_OK) {
        fprintf(stderr, "bench_kernels: %s\n", tsr_last_error());
        exit(1);
    }
    if (s->kernel->scratch_bytes > b->scratch_bytes)
        b->scratch_bytes = s->kernel->scratch_bytes;
}

static const char *conv_note(const layer *l)
{
    return l->groups > 1 ? "depthwise" : l->conv.conv.kernel[0] == 1 ? "1x1" : "dense";
}

/* Forward of a layer; returns what follows sees. */
static tensor forward(bench *b, tensor x, int64_t co, int kernel, int stride, bool depthwise,
                      bool act)
{
    layer *l = &b->layers[b->nlayers++];
    int64_t n = x.arg.shape[0], ci = x.arg.shape[1];
    int64_t h = (x.arg.shape[2] + stride - 1) / stride, w = (x.arg.shape[3] + stride - 1) / stride;
    l->x = x;
    l->act = act;
    l->groups = depthwise ? ci : 1;
    for (int i = 0; i < 2; i++) {
        l->conv.conv.kernel[i] = kernel;
        l->conv.conv.stride[i] = stride;
        l->conv.conv.pad[i] = kernel / 2;
        l->conv.conv.dilation[i] = 1;
    }
    l->conv.conv.groups = l->groups;
    l->bn.bn.eps = 1e-5;
    l->bn.bn.count = n * h * w;
    l->bn.bn.batch = n;
    l->bn.bn.spatial = h * w;
    l->bn.bn.parts = 1;
    l->bn.bn.act = act ? TSRI_ACT_RELU6 : TSRI_ACT_NONE;
    tsri_arg wa = row_major(dtype, 4, (int64_t[]){co, ci / l->groups, kernel, kernel});
    tsri_arg sums = row_major(TSR_F64, 3, (int64_t[]){1, 2, co});
    l->w = make(wa);
    l->dw = make(wa);
    l->y = make(images(n, co, h, w));
    l->z = make(l->y.arg);
    l->stats = make(sums);
    l->bstats = make(sums);
    l->gamma = vector(co, 0.5f, 1.0f);
    l->beta = vector(co, 0.5f, 0.5f);
    l->dgamma = vector(co, 0.0f, 0.0f);
    l->dbeta = vector(co, 0.0f, 0.0f);
    add(b, conv_note(l), TSRI_OP_CONV2D, &l->conv, l->groups, 2, (tensor[]){x, l->w}, 1, &l->y);
    add(b, "bn", TSRI_OP_BN_STATS, &l->bn, 0, 1, &l->y, 1, &l->stats);
    add(b, "bn", act ? TSRI_OP_BN_ACT : TSRI_OP_BN_APPLY, &l->bn, 0, 4,
        (tensor[]){l->y, l->stats, l->gamma, l->beta}, 1, &l->z);
    return l->z;
}

/* dz -> dx (none for the first layer), and the parameters' gradients. */
static tensor backward(bench *b, int index, tensor dz)
{
    layer *l = &b->layers[index];
    tensor dy = passing(b, l->y.arg);
    if (l->act) {
        add(b, "bn", TSRI_OP_BN_ACT_BWD_STATS, &l->bn, 0, 5,
            (tensor[]){l->y, l->stats, l->gamma, l->beta, dz}, 1, &l->bstats);
        add(b, "bn", TSRI_OP_BN_ACT_BWD_APPLY, &l->bn, 0, 6,
            (tensor[]){l->y, l->stats, l->gamma, l->beta, dz, l->bstats}, 1, &dy);
    } else {
        add(b, "bn", TSRI_OP_BN_BWD_STATS, &l->bn, 0, 3, (tensor[]){l->y, l->stats, dz}, 1,
            &l->bstats);
        add(b, "bn", TSRI_OP_BN_BWD_APPLY, &l->bn, 0, 5,
            (tensor[]){l->y, l->stats, l->gamma, dz, l->bstats}, 1, &dy);
    }
    add(b, "bn", TSRI_OP_BN_PARAM_GRAD, &l->bn, 0, 1, &l->bstats, 2,
        (tensor[]){l->dgamma, l->dbeta});
    add(b, conv_note(l), TSRI_OP_CONV2D_DW, &l->conv, l->groups, 2, (tensor[]){l->x, dy}, 1,
        &l->dw);
    if (!index)
        return dy;
    tensor dx = passing(b, l->x.arg);
    add(b, conv_note(l), TSRI_OP_CONV2D_DX, &l->conv, l->groups, 2, (tensor[]){dy, l->w}, 1, &dx);
    return dx;
}

static void update(bench *b, tensor p, tensor g)
{
    static const tsri_attrs sgd = {.update.has = 1};
    tsri_arg arg = p.arg;
    arg.dtype = TSR_F32;
    tensor v = make(arg), master = p, dmaster = g;
    if (p.arg.dtype != TSR_F32) {
        master = make(arg);
        dmaster = make(arg);
        add(b, "update", TSRI_OP_CAST, &sgd, 0, 1, &g, 1, &dmaster);
    }
    add(b, "update", TSRI_OP_SGD, &sgd, 0, 4, (tensor[]){master, v, dmaster, b->hyper}, 2,
        (tensor[]){master, v});
    if (p.arg.dtype != TSR_F32)
        add(b, "update", TSRI_OP_CAST, &sgd, 0, 1, &master, 1, &p);
}

/* Blocks: first and last layer, and whether a shortcut passes by. */
typedef struct block {
    int first, last;
    bool skip;
} block;

static int body(bench *b, int64_t n, block *blocks, tensor *out)
{
    static const int table[][4] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                   {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    static const tsri_attrs plus = {.binary = {.fn = TSRI_BINARY_ADD}};
    int nblocks = 0;
    tensor x = forward(b, make(images(n, 3, 32, 32)), 32, 3, 2, false, true);
    for (size_t t = 0; t < sizeof table / sizeof table[0]; t++)
        for (int i = 0; i < table[t][2]; i++) {
            int stride = i ? 1 : table[t][3];
            int64_t ci = x.arg.shape[1], mid = ci * table[t][0];
            block *k = &blocks[nblocks++];
            k->first = b->nlayers;
            k->skip = stride == 1 && ci == table[t][1];
            tensor h = x;
            if (table[t][0] > 1)
                h = forward(b, h, mid, 1, 1, false, true);
            h = forward(b, h, mid, 3, stride, true, true);
            h = forward(b, h, table[t][1], 1, 1, false, false);
            k->last = b->nlayers - 1;
            if (k->skip) {
                tensor sum = make(h.arg);
                add(b, "add", TSRI_OP_BINARY, &plus, 0, 2, (tensor[]){x, h}, 1, &sum);
                h = sum;
            }
            x = h;
        }
    *out = forward(b, x, 1280, 1, 1, false, true);
    return nblocks;
}

/* Pooling and the classifier, both ways; returns the gradient of x. */
static tensor head(bench *b, tensor x)
{
    static const tsri_attrs none = {0};
    int64_t n = x.arg.shape[0], c = x.arg.shape[1];
    tensor pooled = make(images(n, c, 1, 1)), dpooled = make(pooled.arg), flat = pooled;
    flat.arg = row_major(dtype, 2, (int64_t[]){n, c});
    tensor w = make(row_major(dtype, 2, (int64_t[]){10, c})), dw = make(w.arg);
    tensor bias = vector(10, 1, 0), y = make(row_major(dtype, 2, (int64_t[]){n, 10}));
    tensor dflat = {flat.arg, dpooled.data}, dx = make(x.arg);
    add(b, "head", TSRI_OP_ADAPTIVE_POOL, &none, 0, 1, &x, 1, &pooled);
    add(b, "head", TSRI_OP_LINEAR, &none, 0, 3, (tensor[]){flat, w, bias}, 1, &y);
    add(b, "head", TSRI_OP_LINEAR_DW, &none, 0, 2, (tensor[]){flat, y}, 1, &dw);
    add(b, "head", TSRI_OP_LINEAR_DX, &none, 0, 2, (tensor[]){y, w}, 1, &dflat);
    add(b, "head", TSRI_OP_ADAPTIVE_POOL_DX, &none, 0, 1, &dpooled, 1, &dx);
    update(b, w, dw);
    return dx;
}

static void build(bench *b, int64_t n)
{
    static const tsri_attrs none = {0};
    block blocks[32];
    tensor x;
    for (int i = 0; i < ROTATE; i++)
        b->rotate[i] = make(images(n, 96, 16, 16));
    b->hyper = make(row_major(TSR_F64, 1, (int64_t[]){TSRI_HYPER_COUNT}));
    ((double *)b->hyper.data)[TSRI_HYPER_LR] = 1e-4;
    ((double *)b->hyper.data)[TSRI_HYPER_SCALE] = 1;
    ((double *)b->hyper.data)[TSRI_HYPER_SHRINK] = 1;
    ((double *)b->hyper.data)[TSRI_HYPER_DECAY] = 1e-5;
    ((double *)b->hyper.data)[TSRI_HYPER_KEEP1] = 0.9;
    ((double *)b->hyper.data)[TSRI_HYPER_TAKE1] = 1;
    int nblocks = body(b, n, blocks, &x);
    tensor g = head(b, x);
    g = backward(b, b->nlayers - 1, g);
    for (int k = nblocks - 1; k >= 0; k--) {
        tensor kept = g, passed;
        if (blocks[k].skip) { /* the shortcut's gradient outlives the branch's */
            kept = make(g.arg);
            b->steps[b->nsteps - 1].out[0] = kept.data;
            g = kept;
        }
        for (int i = blocks[k].last; i >= blocks[k].first; i--)
            g = backward(b, i, g);
        if (blocks[k].skip) {
            passed = passing(b, g.arg);
            add(b, "add", TSRI_OP_ADD_N, &none, 0, 2, (tensor[]){kept, g}, 1, &passed);
            g = passed;
        }
    }
    backward(b, 0, g);
    for (int i = 0; i < b->nlayers; i++) {
        update(b, b->layers[i].w, b->layers[i].dw);
        update(b, b->layers[i].gamma, b->layers[i].dgamma);
        update(b, b->layers[i].beta, b->layers[i].dbeta);
    }
    b->scratch = allocate(b->scratch_bytes);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    return v[n / 2];
}

static void measure(bench *b, int iterations, double *total)
{
    for (int it = -2; it < iterations; it++) {
        double begin = now(), last = begin;
        for (int i = 0; i < b->nsteps; i++) {
            step *s = &b->steps[i];
            if (s->kernel->run(s->kernel, s->in, s->out, b->scratch) != TSR_OK) {
                fprintf(stderr, "bench_kernels: %s\n", tsr_last_error());
                exit(1);
            }
            double t = now();
            if (it >= 0)
                s->ms[it] = t - last;
            last = t;
        }
        if (it >= 0)
            total[it] = last - begin;
    }
}

static void report(bench *b, int iterations, double *total, bool verbose)
{
    typedef struct kind {
        const char *note;
        tsri_op_kind op;
        int calls;
        double ms, least;
    } kind;
    kind kinds[64];
    int nkinds = 0;
    for (int i = 0; i < b->nsteps; i++) {
        step *s = &b->steps[i];
        double ms = median(s->ms, iterations), least = s->ms[0]; /* sorted now */
        int k = 0;
        while (k < nkinds && (kinds[k].op != s->op || strcmp(kinds[k].note, s->note) != 0))
            k++;
        if (k == nkinds)
            kinds[nkinds++] = (kind){.note = s->note, .op = s->op};
        kinds[k].calls++;
        kinds[k].ms += ms;
        kinds[k].least += least;
        if (verbose)
            printf("%-18s %-10s %-16s %-12s %8.4f %8.4f\n", tsri_op_name(s->op), s->note, s->shape,
                   s->kernel->impl, ms, least);
    }
    double sum = 0, least = 0;
    for (int k = 0; k < nkinds; k++) {
        printf("%-18s %-10s %4d calls %8.3f ms, least %8.3f ms\n", tsri_op_name(kinds[k].op),
               kinds[k].note, kinds[k].calls, kinds[k].ms, kinds[k].least);
        sum += kinds[k].ms;
        least += kinds[k].least;
    }
    double middle = median(total, iterations);
    printf("sum of medians %.2f ms, of least times %.2f ms; steps: median %.2f ms, least %.2f ms, "
           "most %.2f ms\n",
           sum, least, middle, total[0], total[iterations - 1]);
}

int main(int argc, char **argv)
{
    int64_t n = 64;
    int iterations = 20, c;
    bool verbose = false;
    while ((c = getopt(argc, argv, "n:i:t:v")) != -1) {
        if (c == 'n') {
            n = atol(optarg);
        } else if (c == 'i') {
            iterations = atoi(optarg);
        } else if (c == 't') {
            dtype = tsr_dtype_parse(optarg);
        } else if (c == 'v') {
            verbose = true;
        } else {
            fprintf(stderr,
                    "usage: bench_kernels [-n batch] [-i iterations] [-t f32|bf16|f16] [-v]\n");
            return 2;
        }
    }
    if (n < 1 || iterations < 1 || iterations > MAX_ITERATIONS ||
        (dtype != TSR_F32 && dtype != TSR_F16 && dtype != TSR_BF16)) {
        fprintf(stderr, "bench_kernels: batch from 1, iterations 1 to %d, f32, f16 or bf16\n",
                MAX_ITERATIONS);
        return 2;
    }
    static double total[MAX_ITERATIONS];
    static bench b;
    b.steps = calloc(MAX_STEPS, sizeof *b.steps);
    if (!b.steps)
        return 1;
    build(&b, n);
    measure(&b, iterations, total);
    report(&b, iterations, total, verbose);
    for (int i = 0; i < b.nsteps; i++)
        b.steps[i].kernel->destroy(b.steps[i].kernel);
    free(b.steps);
    return 0;
}
