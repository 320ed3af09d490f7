/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/fast/fast_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

enum { GUARD = 64, RUBBISH = 0xff }; /* NaN, or -1 */

/* Exactly as large as it must be, so that sanitizers see what goes beyond. */
static void *allocate(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        abort();
    return p;
}

static uint32_t drawn = 1;

/* 24 random bits. */
static uint32_t draw(void)
{
    drawn = drawn * 1664525u + 1013904223u;
    return drawn >> 8;
}

static fc_tensor finish(tsri_arg arg)
{
    fc_tensor t = {.arg = arg, .n = 1};
    for (int i = 0; i < arg.ndim; i++) {
        t.n *= arg.shape[i];
        t.arg.gshape[i] = arg.shape[i];
    }
    size_t bytes = (size_t)t.n * tsr_dtype_size(arg.dtype);
    t.data = allocate(bytes);
    memset(t.data, 0, bytes);
    if (arg.dtype == TSR_F32)
        fc_draw(&t);
    return t;
}

void fc_draw(fc_tensor *t)
{
    for (int64_t i = 0; i < t->n; i++)
        if (t->arg.dtype == TSR_F64)
            ((double *)t->data)[i] = draw() * 0x1p-23 + draw() * 0x1p-47 - 1;
        else
            ((float *)t->data)[i] = (float)draw() * 0x1p-23f - 1.0f;
}

double fc_at(const fc_tensor *t, int64_t i)
{
    return t->arg.dtype == TSR_F64 ? ((const double *)t->data)[i]
                                   : (double)((const float *)t->data)[i];
}

fc_tensor fc_images(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return finish((tsri_arg){
        .dtype = TSR_F32, .ndim = 4, .shape = {n, c, h, w}, .stride = {h * w * c, 1, w * c, c}});
}

fc_tensor fc_rows(tsr_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c, int64_t d)
{
    tsri_arg arg = {.dtype = dtype, .ndim = ndim, .shape = {a, b, c, d}};
    int64_t pitch = 1;
    for (int i = ndim - 1; i >= 0; pitch *= arg.shape[i--])
        arg.stride[i] = pitch;
    return finish(arg);
}

void fc_free(int n, fc_tensor *const *t)
{
    for (int i = 0; i < n; i++)
        free(t[i]->data);
}

static bool guard_holds(const unsigned char *p)
{
    for (int i = 0; i < GUARD; i++)
        if (p[i] != RUBBISH)
            return false;
    return true;
}

/* Returns `bytes`, whole lines of 64, and a guard behind them, all of rubbish. */
static unsigned char *rubbish(size_t bytes)
{
    unsigned char *p = aligned_alloc(64, bytes + GUARD);
    if (!p)
        abort();
    memset(p, RUBBISH, bytes + GUARD);
    return p;
}

static size_t lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t bytes_of(const fc_tensor *t)
{
    return (size_t)t->n * tsr_dtype_size(t->arg.dtype);
}

/* Runs a kernel; ip has room for what it keeps. Aborts on an error. */
static void run(const char *impl, const tsri_kernel_desc *d, const tsri_kernel *k, void **ip,
                fc_tensor *const *out)
{
    const size_t bytes = lines(k->scratch_bytes), kept_bytes = lines(k->kept_bytes);
    unsigned char *scratch = rubbish(bytes), *kept = rubbish(kept_bytes);
    void *op[TSRI_KERNEL_MAX_ARGS] = {0};
    tsr_status status = TSR_OK;
    for (int i = 0; i < d->nout; i++) {
        op[i] = out[i]->data;
        memset(out[i]->data, RUBBISH, bytes_of(out[i]));
    }
    if (k->keep) {
        memset(kept, 0, kept_bytes);
        status = k->keep(k, ip, kept, scratch);
        ip[d->nin] = kept;
    }
    if (status == TSR_OK)
        status = k->run(k, ip, op, scratch);
    const bool holds = guard_holds(scratch + bytes) && guard_holds(kept + kept_bytes);
    free(scratch);
    free(kept);
    if (status != TSR_OK || !holds) {
        fprintf(stderr, "%s, %s: %s\n", impl, tsri_op_name(d->op),
                holds ? tsr_last_error() : "wrote beyond scratch_bytes or kept_bytes");
        abort();
    }
}

/* Runs the kernel that keeps what it packs of its operands, if there is one: it gives the bits that
 * are in `out`. */
static void check_kept(const tsri_kernels *impl, tsri_kernel_desc d, void **ip,
                       fc_tensor *const *out)
{
    tsri_kernel *k;
    void *bits[TSRI_KERNEL_MAX_ARGS];
    bool same = true;
    d.fixed = ~0u;
    if (impl->slot[d.op](NULL, &d, &k) != TSR_OK)
        abort();
    for (int i = 0; k->keep && i < d.nout; i++) {
        bits[i] = malloc(bytes_of(out[i]) + 1);
        assert_non_null(bits[i]);
        memcpy(bits[i], out[i]->data, bytes_of(out[i]));
    }
    if (k->keep)
        run(impl->name, &d, k, ip, out);
    for (int i = 0; k->keep && i < d.nout; i++) {
        same = same && !memcmp(bits[i], out[i]->data, bytes_of(out[i]));
        free(bits[i]);
    }
    k->destroy(k);
    if (!same)
        fail_msg("%s, %s: what is kept gives other bits", impl->name, tsri_op_name(d.op));
}

bool fc_run(const tsri_kernels *impl, tsri_op_kind op, const tsri_attrs *attrs, int64_t groups,
            int nin, fc_tensor *const *in, int nout, fc_tensor *const *out)
{
    tsri_kernel_desc d = {.op = op, .attrs = attrs, .nin = nin, .nout = nout, .groups = groups};
    void *ip[TSRI_KERNEL_MAX_ARGS + 1] = {0};
    for (int i = 0; i < nin; i++) {
        d.in[i] = in[i]->arg;
        ip[i] = in[i]->data;
    }
    for (int i = 0; i < nout; i++)
        d.out[i] = out[i]->arg;
    tsri_kernel *k;
    tsr_status status = impl->slot[op] ? impl->slot[op](NULL, &d, &k) : TSR_ERR_UNSUPPORTED;
    if (status == TSR_ERR_UNSUPPORTED)
        return false;
    if (status != TSR_OK) {
        fprintf(stderr, "%s, %s: %s\n", impl->name, tsri_op_name(op), tsr_last_error());
        abort();
    }
    run(impl->name, &d, k, ip, out);
    k->destroy(k);
    check_kept(impl, d, ip, out);
    return true;
}

void fc_close_within(const char *what, const float *got, const double *want, int64_t n, double tol,
                     double most)
{
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tol * most))
            fail_msg("%s: element %ld is %.9g, not %.9g (largest %.3g)", what, (long)i,
                     (double)got[i], want[i], most);
}

void fc_close_to(const char *what, const float *got, const double *want, int64_t n, double tol)
{
    fc_close_within(what, got, want, n, tol, 1e-30);
}

void fc_close(const char *what, const fc_tensor *got, const double *want, double tol)
{
    double most = 1e-30;
    for (int64_t i = 0; i < got->n; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < got->n; i++)
        if (!(fabs(fc_at(got, i) - want[i]) <= tol * most))
            fail_msg("%s, %s: element %ld is %.17g, not %.17g (largest %.3g)", what,
                     tsr_dtype_name(got->arg.dtype), (long)i, fc_at(got, i), want[i], most);
}
