/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of the fast kernels against the reference kernels in turn: convolutions between two batch
 * norms, forward and backward, with pieces of every size, by threads that share rows or images; of
 * f32, and of bf16 against the reference on f32, of the same values. */
#include "kernels/cpu/fast/half.h"
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

typedef struct shape {
    int64_t n, ci, co, h, w, groups;
    int kernel, stride, pad;
} shape;

static const shape shapes[] = {
    {8, 24, 40, 9, 11, 1, 1, 1, 0},  {30, 7, 100, 5, 5, 1, 1, 1, 0},
    {3, 96, 17, 20, 9, 1, 1, 1, 0},  {2, 16, 16, 30, 9, 16, 3, 1, 1},
    {3, 24, 24, 31, 7, 24, 3, 2, 1}, {5, 33, 33, 12, 12, 33, 3, 2, 1},
    {4, 40, 40, 17, 5, 40, 5, 1, 2}, {3, 8, 8, 23, 9, 8, 5, 2, 2},
    {4, 19, 19, 16, 8, 19, 3, 1, 0}, {9, 48, 48, 2, 2, 48, 3, 1, 1},
    {16, 17, 17, 1, 1, 17, 3, 1, 1}, {20000, 3, 5, 1, 1, 1, 1, 1, 0},
};

static const tsri_kernels *const fast[] = {&tsri_kernels_cpu_fast, &tsri_kernels_cpu_via32,
                                           &tsri_kernels_cpu_ref, NULL};
static const tsri_kernels *const reference[] = {&tsri_kernels_cpu_ref, NULL};

enum { MOST = 16 };

/* A chain under test: values by number. */
typedef struct link {
    tsri_chain_desc desc;
    tsri_attrs attrs[TSRI_CHAIN_MAX];
    fc_tensor *value[TSRI_CHAIN_VALUES];
} link;

static void add(link *l, tsri_op_kind op, const tsri_attrs *attrs, int64_t groups, int nin,
                const int *in, int out)
{
    const int m = l->desc.n++;
    l->attrs[m] = *attrs;
    tsri_kernel_desc *d = &l->desc.member[m];
    *d = (tsri_kernel_desc){
        .op = op, .attrs = &l->attrs[m], .nin = nin, .nout = 1, .groups = groups};
    for (int i = 0; i < nin; i++) {
        d->in[i] = l->value[in[i]]->arg;
        l->desc.in[m][i] = in[i];
    }
    d->out[0] = l->value[out]->arg;
    l->desc.out[m][0] = out;
}

/* Data of f32 as bf16: values, which are left as they are rounded, and the same in 16 bits. */
static fc_tensor narrow(fc_tensor *t)
{
    fc_tensor low = *t;
    low.arg.dtype = TSR_BF16;
    low.data = malloc((size_t)t->n * 2 + 1);
    assert_non_null(low.data);
    tsri_narrow_of(TSR_BF16)(t->data, low.data, t->n);
    tsri_widen_of(TSR_BF16)(low.data, t->data, t->n);
    return low;
}

/* Makes `to` the chain on bf16: all that is f32 but for vectors, which are batch norm's. */
static void make_low(const link *l, fc_tensor *low, link *to)
{
    *to = *l;
    const int n = l->desc.ngiven + l->desc.nouter + l->desc.ninner;
    for (int v = 0; v < n; v++) {
        const bool data = l->value[v]->arg.dtype == TSR_F32 && l->value[v]->arg.ndim > 1;
        low[v] = data ? narrow(l->value[v]) : (fc_tensor){0};
        if (data)
            to->value[v] = &low[v];
    }
    for (int m = 0; m < l->desc.n; m++) {
        tsri_kernel_desc *d = &to->desc.member[m];
        d->attrs = &to->attrs[m];
        for (int i = 0; i < d->nin; i++)
            d->in[i] = to->value[l->desc.in[m][i]]->arg;
        for (int i = 0; i < d->nout; i++)
            d->out[i] = to->value[l->desc.out[m][i]]->arg;
    }
}

/* Runs a kernel of a chain that keeps what it packs, or packs nothing: see run. */
static void run_kernel(const link *l, const tsri_kernel *k, void **out)
{
    void *in[TSRI_CHAIN_VALUES + 1];
    for (int i = 0; i < l->desc.ngiven; i++)
        in[i] = l->value[i]->data;
    for (int i = 0; i < l->desc.nouter; i++) {
        const fc_tensor *t = l->value[l->desc.ngiven + i];
        memset(out[i], 0xff, (size_t)t->n * tsr_dtype_size(t->arg.dtype));
    }
    const size_t bytes = (k->scratch_bytes + 63) / 64 * 64;
    const size_t kept_bytes = (k->kept_bytes + 63) / 64 * 64;
    unsigned char *scratch = aligned_alloc(64, bytes + 64);
    unsigned char *kept = aligned_alloc(64, kept_bytes + 64);
    assert_true(scratch && kept);
    memset(scratch, 0xff, bytes + 64);
    memset(kept, 0, kept_bytes);
    memset(kept + kept_bytes, 0xff, 64);
    if (k->keep)
        assert_int_equal(k->keep(k, in, kept, scratch), TSR_OK);
    in[l->desc.ngiven] = kept;
    assert_int_equal(k->run(k, in, out, scratch), TSR_OK);
    for (size_t i = 0; i < 64; i++)
        assert_true(scratch[bytes + i] == 0xff && kept[kept_bytes + i] == 0xff);
    free(scratch);
    free(kept);
}

/* Runs the chain whose kernels keep what they pack: it gives the bits that are in `out`. */
static void check_kept(const link *l, const tsri_kernels *const *list, void **out)
{
    link fixed = *l;
    tsri_kernel *k;
    void *bits[TSRI_CHAIN_VALUES];
    for (int m = 0; m < l->desc.n; m++)
        for (int i = 0; i < l->desc.member[m].nin; i++)
            fixed.desc.member[m].fixed |= (uint32_t)(l->desc.in[m][i] < l->desc.ngiven) << i;
    assert_int_equal(tsri_chain_create(NULL, list, &fixed.desc, &k), TSR_OK);
    for (int i = 0; i < l->desc.nouter; i++) {
        const fc_tensor *t = l->value[l->desc.ngiven + i];
        bits[i] = malloc((size_t)t->n * tsr_dtype_size(t->arg.dtype) + 1);
        assert_non_null(bits[i]);
    }
    if (k->keep)
        run_kernel(&fixed, k, bits);
    for (int i = 0; i < l->desc.nouter; i++) {
        const fc_tensor *t = l->value[l->desc.ngiven + i];
        if (k->keep)
            assert_memory_equal(bits[i], out[i], (size_t)t->n * tsr_dtype_size(t->arg.dtype));
        free(bits[i]);
    }
    k->destroy(k);
}

/* Runs the chain; results of `out` are those of the values from ngiven on. */
static const char *run(const link *l, const tsri_kernels *const *list, void **out)
{
    tsri_kernel *k;
    assert_int_equal(tsri_chain_create(NULL, list, &l->desc, &k), TSR_OK);
    run_kernel(l, k, out);
    const char *impl = tsri_chain_impl(k, 0);
    k->destroy(k);
    check_kept(l, list, out);
    return impl;
}

static double at(const fc_tensor *t, const void *data, int64_t i)
{
    if (t->arg.dtype == TSR_BF16) {
        const uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
        float wide;
        memcpy(&wide, &bits, sizeof wide);
        return (double)wide;
    }
    return t->arg.dtype == TSR_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* Compares with what is wanted, to `most_err` of the largest element and `own_err` of each one. */
static void compare(const fc_tensor *t, const void *got, const fc_tensor *of, const void *want,
                    double most_err, double own_err, const char *what)
{
    double most = 1e-30;
    for (int64_t i = 0; i < t->n; i++)
        most = fmax(most, fabs(at(of, want, i)));
    for (int64_t i = 0; i < t->n; i++)
        if (!(fabs(at(t, got, i) - at(of, want, i)) <=
              most_err * most + own_err * fabs(at(of, want, i))))
            fail_msg("%s, element %ld is %.9g, not %.9g (largest %.3g)", what, (long)i,
                     at(t, got, i), at(of, want, i), most);
}

/* With one to three threads, and pieces from the least to everything; returns how many runs were by
 * pieces. */
static int check_as(link *l, const link *of, void **want, double most_err, double own_err,
                    const char *what)
{
    void *got[MOST];
    int pieces = 0;
    for (int i = 0; i < l->desc.nouter; i++) {
        const fc_tensor *t = l->value[l->desc.ngiven + i];
        got[i] = malloc((size_t)t->n * tsr_dtype_size(t->arg.dtype));
        assert_non_null(got[i]);
    }
    for (int threads = 1; threads <= 3; threads++)
        for (size_t bytes = 1; bytes < 1 << 22; bytes *= 8) {
            omp_set_num_threads(threads);
            l->desc.piece_bytes = bytes;
            pieces += !strcmp(run(l, fast, got), "chain");
            for (int i = 0; i < l->desc.nouter; i++)
                compare(l->value[l->desc.ngiven + i], got[i], of->value[l->desc.ngiven + i],
                        want[i], most_err, own_err, what);
        }
    for (int i = 0; i < l->desc.nouter; i++)
        free(got[i]);
    return pieces;
}

static int check_f32(link *l, const char *what)
{
    void *want[MOST];
    for (int i = 0; i < l->desc.nouter; i++) {
        const fc_tensor *t = l->value[l->desc.ngiven + i];
        want[i] = malloc((size_t)t->n * tsr_dtype_size(t->arg.dtype));
        assert_non_null(want[i]);
    }
    run(l, reference, want);
    const int pieces = check_as(l, l, want, 2e-5, 0, what);
    for (int i = 0; i < l->desc.nouter; i++)
        free(want[i]);
    return pieces;
}

/* Compares the chain with its ops one by one: the reference kernels compute each of them in f32,
 * and its result is rounded to bf16. Where the chain's f32 sum lies near the middle of two bf16
 * numbers, it may be rounded to the other one, which is off by at most 2^-8 of the number. That
 * happens to few elements, so a sum over many of them is hardly changed: 2e-3 of the largest
 * element. */
static int check_bf16(link *l, const char *what)
{
    fc_tensor halves[TSRI_CHAIN_VALUES];
    void *want[MOST];
    link low;
    make_low(l, halves, &low);
    for (int m = 0; m < l->desc.n; m++) {
        const tsri_kernel_desc *d = &l->desc.member[m];
        fc_tensor *in[TSRI_KERNEL_MAX_ARGS], *out = l->value[l->desc.out[m][0]];
        for (int i = 0; i < d->nin; i++)
            in[i] = l->value[l->desc.in[m][i]];
        assert_true(
            fc_run(&tsri_kernels_cpu_ref, d->op, &l->attrs[m], d->groups, d->nin, in, 1, &out));
        if (halves[l->desc.out[m][0]].data) {
            fc_tensor rounded = narrow(out);
            free(rounded.data);
        }
    }
    for (int i = 0; i < l->desc.nouter; i++)
        want[i] = l->value[l->desc.ngiven + i]->data;
    const int pieces = check_as(&low, l, want, 2e-3, 0x1p-8, what);
    for (int i = 0; i < l->desc.ngiven + l->desc.nouter + l->desc.ninner; i++)
        free(halves[i].data);
    return pieces;
}

static int check(link *l, bool low, const char *what)
{
    return low ? check_bf16(l, what) : check_f32(l, what);
}

typedef struct net {
    fc_tensor y0, s0, g0, b0, w, y1, s1, g1, b1, dz1, t1, z0, dx, dw, dy, t0;
    tsri_attrs conv, bn0, bn1;
} net;

/* The samples are the second virtual batch of two. */
static void set_second(net *t)
{
    fc_tensor *images[] = {&t->y0, &t->z0, &t->dx, &t->y1, &t->dz1, &t->dy};
    fc_tensor *stats[] = {&t->s0, &t->t0, &t->s1, &t->t1};
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        images[i]->arg.offset[0] = images[i]->arg.shape[0];
        images[i]->arg.gshape[0] = 2 * images[i]->arg.shape[0];
    }
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++) {
        stats[i]->arg.offset[0] = 1;
        stats[i]->arg.gshape[0] = 2;
    }
}

static void make_net(net *t, const shape *s, int parts)
{
    const int64_t window = s->kernel, pad = s->pad;
    const int64_t oh = (s->h + 2 * pad - window) / s->stride + 1;
    const int64_t ow = (s->w + 2 * pad - window) / s->stride + 1;
    t->y0 = fc_images(s->n, s->ci, s->h, s->w);
    t->z0 = fc_images(s->n, s->ci, s->h, s->w);
    t->dx = fc_images(s->n, s->ci, s->h, s->w);
    t->y1 = fc_images(s->n, s->co, oh, ow);
    t->dz1 = fc_images(s->n, s->co, oh, ow);
    t->dy = fc_images(s->n, s->co, oh, ow);
    t->w = fc_rows(TSR_F32, 4, s->co, s->ci / s->groups, s->kernel, s->kernel);
    t->dw = fc_rows(TSR_F32, 4, s->co, s->ci / s->groups, s->kernel, s->kernel);
    t->g0 = fc_rows(TSR_F32, 1, s->ci, 0, 0, 0);
    t->b0 = fc_rows(TSR_F32, 1, s->ci, 0, 0, 0);
    t->g1 = fc_rows(TSR_F32, 1, s->co, 0, 0, 0);
    t->b1 = fc_rows(TSR_F32, 1, s->co, 0, 0, 0);
    t->s0 = fc_rows(TSR_F64, 3, 1, 2, s->ci, 0);
    t->t0 = fc_rows(TSR_F64, 3, 1, 2, s->ci, 0);
    t->s1 = fc_rows(TSR_F64, 3, 1, 2, s->co, 0);
    t->t1 = fc_rows(TSR_F64, 3, 1, 2, s->co, 0);
    t->conv = (tsri_attrs){0};
    t->conv.conv.groups = s->groups;
    for (int i = 0; i < 2; i++) {
        t->conv.conv.kernel[i] = s->kernel;
        t->conv.conv.stride[i] = s->stride;
        t->conv.conv.pad[i] = s->pad;
        t->conv.conv.dilation[i] = 1;
    }
    t->bn0 = t->bn1 = (tsri_attrs){0};
    t->bn0.bn.eps = t->bn1.bn.eps = 1e-5;
    t->bn0.bn.batch = t->bn1.bn.batch = parts * s->n;
    t->bn0.bn.parts = t->bn1.bn.parts = parts;
    if (parts == 2)
        set_second(t);
    t->bn0.bn.act = t->bn1.bn.act = TSRI_ACT_RELU6;
    t->bn0.bn.spatial = s->h * s->w;
    t->bn1.bn.spatial = oh * ow;
    t->bn0.bn.count = s->n * s->h * s->w;
    t->bn1.bn.count = s->n * oh * ow;
    const tsri_kernels *ref = &tsri_kernels_cpu_ref;
    assert_true(fc_run(ref, TSRI_OP_BN_STATS, &t->bn0, 1, 1, (fc_tensor *[]){&t->y0}, 1,
                       (fc_tensor *[]){&t->s0}));
    assert_true(fc_run(ref, TSRI_OP_BN_STATS, &t->bn1, 1, 1, (fc_tensor *[]){&t->y1}, 1,
                       (fc_tensor *[]){&t->s1}));
    assert_true(fc_run(ref, TSRI_OP_BN_ACT_BWD_STATS, &t->bn1, 1, 5,
                       (fc_tensor *[]){&t->y1, &t->s1, &t->g1, &t->b1, &t->dz1}, 1,
                       (fc_tensor *[]){&t->t1}));
}

static void free_net(net *t)
{
    fc_free(16, (fc_tensor *[]){&t->y0, &t->s0, &t->g0, &t->b0, &t->w, &t->y1, &t->s1, &t->g1,
                                &t->b1, &t->dz1, &t->t1, &t->z0, &t->dx, &t->dw, &t->dy, &t->t0});
}

/* y0 -> normalised, activated -> y1 -> its sums. */
static int forward(net *t, const shape *s, bool low)
{
    link l = {.desc = {.ngiven = 5, .nouter = 2, .ninner = 1}};
    fc_tensor *values[] = {&t->y0, &t->s0, &t->g0, &t->b0, &t->w, &t->y1, &t->s1, &t->z0};
    memcpy(l.value, values, sizeof values);
    add(&l, TSRI_OP_BN_ACT, &t->bn0, 1, 4, (int[]){0, 1, 2, 3}, 7);
    add(&l, TSRI_OP_CONV2D, &t->conv, s->groups, 2, (int[]){7, 4}, 5);
    add(&l, TSRI_OP_BN_STATS, &t->bn1, 1, 1, (int[]){5}, 6);
    return check(&l, low, low ? "forward in bf16" : "forward");
}

/* The gradient of y1's batch norm, both of the convolution, and the sums of the one before. */
static int backward(net *t, const shape *s, bool low)
{
    link l = {.desc = {.ngiven = 11, .nouter = 3, .ninner = 2}};
    fc_tensor *values[] = {&t->y1, &t->s1, &t->g1, &t->b1, &t->dz1, &t->t1, &t->y0, &t->s0,
                           &t->g0, &t->b0, &t->w,  &t->dx, &t->dw,  &t->t0, &t->dy, &t->z0};
    memcpy(l.value, values, sizeof values);
    add(&l, TSRI_OP_BN_ACT_BWD_APPLY, &t->bn1, 1, 6, (int[]){0, 1, 2, 3, 4, 5}, 14);
    add(&l, TSRI_OP_BN_ACT, &t->bn0, 1, 4, (int[]){6, 7, 8, 9}, 15);
    add(&l, TSRI_OP_CONV2D_DX, &t->conv, s->groups, 2, (int[]){14, 10}, 11);
    add(&l, TSRI_OP_CONV2D_DW, &t->conv, s->groups, 2, (int[]){15, 14}, 12);
    add(&l, TSRI_OP_BN_ACT_BWD_STATS, &t->bn0, 1, 5, (int[]){6, 7, 8, 9, 11}, 13);
    return check(&l, low, low ? "backward in bf16" : "backward");
}

static void check_all(bool low, int parts)
{
    int pieces = 0, runs = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        net t;
        make_net(&t, &shapes[i], parts);
        pieces += forward(&t, &shapes[i], low) + backward(&t, &shapes[i], low);
        runs += 2 * 3 * 8;
        free_net(&t);
    }
    /* Most are large enough to be worth pieces; the rest runs in turn. */
    assert_in_range(pieces, runs / 2, runs);
}

static void test_convolutions(void **state)
{
    (void)state;
    check_all(false, 1);
}

/* Chains go by pieces over a virtual batch, too. */
static void test_virtual_batch(void **state)
{
    (void)state;
    check_all(false, 2);
}

static void test_bf16(void **state)
{
    (void)state;
    check_all(true, 1);
}

/* --- updates ---------------------------------------------------------------------------------- */
/* A linear layer's gradients and its weights' update by SGD with momentum: values of the chain. */
enum { DY = 0, X, P, STATE, HYPER, DX, NEW_P, NEW_STATE, DW, LAYER_VALUES };

typedef struct layer {
    fc_tensor value[LAYER_VALUES];
    tsri_attrs none, sgd;
    tsri_chain_desc desc;
} layer;

static void add_member(layer *l, tsri_op_kind op, const tsri_attrs *attrs, int nin, const int *in,
                       int nout, const int *out)
{
    const int m = l->desc.n++;
    tsri_kernel_desc *d = &l->desc.member[m];
    *d = (tsri_kernel_desc){.op = op, .attrs = attrs, .nin = nin, .nout = nout, .groups = 1};
    for (int i = 0; i < nin; i++) {
        d->in[i] = l->value[in[i]].arg;
        l->desc.in[m][i] = in[i];
    }
    for (int i = 0; i < nout; i++) {
        d->out[i] = l->value[out[i]].arg;
        l->desc.out[m][i] = out[i];
    }
}

/* dw comes before dx, which must not see the new weights. */
static void make_layer(layer *l, int64_t rows, int64_t out, int64_t in, bool skips)
{
    *l = (layer){.sgd.update.has = 1, .desc = {.ngiven = 5, .nouter = 3, .ninner = 1}};
    l->value[DY] = fc_rows(TSR_F32, 2, rows, out, 0, 0);
    l->value[X] = fc_rows(TSR_F32, 2, rows, in, 0, 0);
    l->value[DX] = fc_rows(TSR_F32, 2, rows, in, 0, 0);
    l->value[HYPER] = fc_rows(TSR_F64, 1, TSRI_HYPER_COUNT, 0, 0, 0);
    for (int v = P; v <= DW; v += v == STATE ? NEW_P - STATE : 1)
        l->value[v] = fc_rows(TSR_F32, 2, out, in, 0, 0);
    double *hyper = l->value[HYPER].data;
    hyper[TSRI_HYPER_LR] = 0.1;
    hyper[TSRI_HYPER_SKIP] = skips;
    hyper[TSRI_HYPER_SCALE] = hyper[TSRI_HYPER_SHRINK] = hyper[TSRI_HYPER_TAKE1] = 1;
    hyper[TSRI_HYPER_DECAY] = 0.01;
    hyper[TSRI_HYPER_KEEP1] = 0.9;
    add_member(l, TSRI_OP_LINEAR_DW, &l->none, 2, (int[]){X, DY}, 1, (int[]){DW});
    add_member(l, TSRI_OP_LINEAR_DX, &l->none, 2, (int[]){DY, P}, 1, (int[]){DX});
    add_member(l, TSRI_OP_SGD, &l->sgd, 4, (int[]){P, STATE, DW, HYPER}, 2,
               (int[]){NEW_P, NEW_STATE});
}

static void copy_weights(const layer *l, void *p, void *state)
{
    memcpy(p, l->value[P].data, (size_t)l->value[P].n * sizeof(float));
    memcpy(state, l->value[STATE].data, (size_t)l->value[STATE].n * sizeof(float));
}

/* Runs the kernels one by one: results go to DX, NEW_P and NEW_STATE. */
static void run_apart(layer *l, const tsri_kernels *const *list)
{
    copy_weights(l, l->value[NEW_P].data, l->value[NEW_STATE].data);
    for (int m = 0; m < l->desc.n; m++) {
        tsri_kernel *k;
        void *in[TSRI_KERNEL_MAX_ARGS], *out[TSRI_KERNEL_MAX_ARGS];
        assert_int_equal(tsri_kernel_create(NULL, list, &l->desc.member[m], &k), TSR_OK);
        for (int i = 0; i < l->desc.member[m].nin; i++)
            in[i] = l->value[l->desc.in[m][i]].data;
        for (int i = 0; i < l->desc.member[m].nout; i++)
            out[i] = l->value[l->desc.out[m][i]].data;
        for (int i = 0; m == 2 && i < 2; i++)
            in[i] = out[i];
        void *scratch = aligned_alloc(64, (k->scratch_bytes + 127) / 64 * 64);
        assert_non_null(scratch);
        assert_int_equal(k->run(k, in, out, scratch), TSR_OK);
        free(scratch);
        k->destroy(k);
    }
}

/* Compares the chain with its kernels one by one, bit by bit, and with the reference ones. */
static void check_layer(layer *l, int threads)
{
    const int results[] = {DX, NEW_P, NEW_STATE};
    void *own[3], *scratch;
    tsri_kernel *k;
    omp_set_num_threads(threads);
    for (int i = 0; i < 3; i++) {
        own[i] = malloc((size_t)l->value[results[i]].n * sizeof(float));
        assert_non_null(own[i]);
    }
    copy_weights(l, own[1], own[2]);
    void *in[] = {l->value[DY].data, l->value[X].data, own[1], own[2], l->value[HYPER].data};
    assert_int_equal(tsri_chain_create(NULL, fast, &l->desc, &k), TSR_OK);
    const size_t bytes = (k->scratch_bytes + 63) / 64 * 64;
    scratch = aligned_alloc(64, bytes + 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes + 64);
    assert_int_equal(k->run(k, in, own, scratch), TSR_OK);
    for (int i = 0; i < 64; i++)
        assert_int_equal(((unsigned char *)scratch)[bytes + (size_t)i], 0xff);
    const bool by_pieces = !strcmp(tsri_chain_impl(k, 0), "chain");
    k->destroy(k);
    free(scratch);
    run_apart(l, fast);
    for (int i = 0; i < 3 && !by_pieces; i++)
        assert_memory_equal(own[i], l->value[results[i]].data,
                            (size_t)l->value[results[i]].n * sizeof(float));
    run_apart(l, reference);
    for (int i = 0; i < 3; i++) {
        const fc_tensor *t = &l->value[results[i]];
        compare(t, own[i], t, t->data, 2e-5, 0, "a layer's update");
        free(own[i]);
    }
}

static void test_updates(void **state)
{
    static const int64_t sizes[][3] = {{1, 517, 301},   {19, 517, 301}, {64, 300, 1000},
                                       {300, 363, 363}, {70, 33, 5000}, {520, 400, 340},
                                       {600, 400, 340}, {16, 9, 31}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int threads = 1; threads <= 4; threads++) {
            layer l;
            make_layer(&l, sizes[i][0], sizes[i][1], sizes[i][2], i == 1 && threads == 2);
            check_layer(&l, threads);
            for (int v = 0; v < LAYER_VALUES; v++)
                free(l.value[v].data);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_virtual_batch),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
