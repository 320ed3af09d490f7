/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling, and other layers of images without variables. A layer keeps its options between its
 * creation and its use. */
#include <math.h>

#include <tessera/functional.h>

#include "src/core/opts.h"
#include "src/nn/layers/layer.h"

/* Checks one size of a kernel, at a layer's creation. */
static bool want_kernel(const char *who, int kernel)
{
    if (kernel >= 1)
        return true;
    tsri_fail(TSR_ERR_INVALID, "%s: kernel has the size %d; each must be at least 1", who, kernel);
    return false;
}

/* A layer that pools along one axis, and the function that does it. */
typedef tsr_tensor *pool1d_fn(tsr_tensor *x, const tsr_pool1d_opts *opts, const char *file,
                              int line);
typedef struct pool1d_layer {
    tsr_pool1d_opts opts;
    pool1d_fn *fn;
} pool1d_layer;

static tsr_tensor *pool1d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const pool1d_layer *l = arg;
    return l->fn(x, &l->opts, m->loc.file, m->loc.line);
}

static tsr_module *create_pool1d(tsr_world *w, const tsr_nn_opts *o, const char *who,
                                 const tsr_pool1d_opts *pool, pool1d_fn *fn)
{
    pool1d_layer l = {.opts = *TSR_POOL1D_OPTS(), .fn = fn};
    if (tsri_opts_read(&l.opts, sizeof l.opts, pool, who) != TSR_OK ||
        !want_kernel(who, l.opts.kernel))
        return NULL;
    return tsri_layer_create(w, o, pool1d_forward, &l, sizeof l);
}

tsr_module *tsr_nn_max_pool1d(tsr_world *w, const tsr_nn_opts *o, const tsr_pool1d_opts *pool)
{
    return create_pool1d(w, o, __func__, pool, tsr_max_pool1d_at);
}

tsr_module *tsr_nn_avg_pool1d(tsr_world *w, const tsr_nn_opts *o, const tsr_pool1d_opts *pool)
{
    return create_pool1d(w, o, __func__, pool, tsr_avg_pool1d_at);
}

/* A layer that pools along two axes, and the function that does it. */
typedef tsr_tensor *pool2d_fn(tsr_tensor *x, const tsr_pool2d_opts *opts, const char *file,
                              int line);
typedef struct pool2d_layer {
    tsr_pool2d_opts opts;
    pool2d_fn *fn;
} pool2d_layer;

static tsr_tensor *pool2d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const pool2d_layer *l = arg;
    return l->fn(x, &l->opts, m->loc.file, m->loc.line);
}

static tsr_module *create_pool2d(tsr_world *w, const tsr_nn_opts *o, const char *who,
                                 const tsr_pool2d_opts *pool, pool2d_fn *fn)
{
    pool2d_layer l = {.opts = *TSR_POOL2D_OPTS(), .fn = fn};
    if (tsri_opts_read(&l.opts, sizeof l.opts, pool, who) != TSR_OK ||
        !want_kernel(who, l.opts.kernel.h) || !want_kernel(who, l.opts.kernel.w))
        return NULL;
    return tsri_layer_create(w, o, pool2d_forward, &l, sizeof l);
}

tsr_module *tsr_nn_max_pool2d(tsr_world *w, const tsr_nn_opts *o, const tsr_pool2d_opts *pool)
{
    return create_pool2d(w, o, __func__, pool, tsr_max_pool2d_at);
}

tsr_module *tsr_nn_avg_pool2d(tsr_world *w, const tsr_nn_opts *o, const tsr_pool2d_opts *pool)
{
    return create_pool2d(w, o, __func__, pool, tsr_avg_pool2d_at);
}

/* A layer that pools along three axes, and the function that does it. */
typedef tsr_tensor *pool3d_fn(tsr_tensor *x, const tsr_pool3d_opts *opts, const char *file,
                              int line);
typedef struct pool3d_layer {
    tsr_pool3d_opts opts;
    pool3d_fn *fn;
} pool3d_layer;

static tsr_tensor *pool3d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const pool3d_layer *l = arg;
    return l->fn(x, &l->opts, m->loc.file, m->loc.line);
}

static tsr_module *create_pool3d(tsr_world *w, const tsr_nn_opts *o, const char *who,
                                 const tsr_pool3d_opts *pool, pool3d_fn *fn)
{
    pool3d_layer l = {.opts = *TSR_POOL3D_OPTS(), .fn = fn};
    if (tsri_opts_read(&l.opts, sizeof l.opts, pool, who) != TSR_OK ||
        !want_kernel(who, l.opts.kernel.d) || !want_kernel(who, l.opts.kernel.h) ||
        !want_kernel(who, l.opts.kernel.w))
        return NULL;
    return tsri_layer_create(w, o, pool3d_forward, &l, sizeof l);
}

tsr_module *tsr_nn_max_pool3d(tsr_world *w, const tsr_nn_opts *o, const tsr_pool3d_opts *pool)
{
    return create_pool3d(w, o, __func__, pool, tsr_max_pool3d_at);
}

tsr_module *tsr_nn_avg_pool3d(tsr_world *w, const tsr_nn_opts *o, const tsr_pool3d_opts *pool)
{
    return create_pool3d(w, o, __func__, pool, tsr_avg_pool3d_at);
}

/* The power and the windows of tsr_lp_pool2d. */
typedef struct lp_layer {
    double p;
    tsr_hw kernel, stride;
} lp_layer;

static tsr_tensor *lp_pool2d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const lp_layer *l = arg;
    return tsr_lp_pool2d_at(x, l->p, l->kernel, l->stride, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_lp_pool2d(tsr_world *w, const tsr_nn_opts *o, double p, tsr_hw kernel,
                             tsr_hw stride)
{
    if (!isfinite(p) || p == 0) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_lp_pool2d: p is %g; it must be finite and not 0", p);
        return NULL;
    }
    if (!want_kernel(__func__, kernel.h) || !want_kernel(__func__, kernel.w))
        return NULL;
    return tsri_layer_create(w, o, lp_pool2d_forward, &(lp_layer){p, kernel, stride},
                             sizeof(lp_layer));
}

/* --- windows of a number ---------------------------------------------------------------------- */

/* How many windows there are along each of n axes, and whether a mean or a maximum is taken. */
typedef struct adaptive_layer {
    int n;
    bool is_mean;
    int64_t out[3];
} adaptive_layer;

static tsr_tensor *adaptive_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const adaptive_layer *l = arg;
    const int64_t *out = l->out;
    const char *file = m->loc.file;
    const int line = m->loc.line;
    if (l->n == 1)
        return (l->is_mean ? tsr_adaptive_avg_pool1d_at : tsr_adaptive_max_pool1d_at)(x, out[0],
                                                                                      file, line);
    if (l->n == 2)
        return (l->is_mean ? tsr_adaptive_avg_pool2d_at
                           : tsr_adaptive_max_pool2d_at)(x, out[0], out[1], file, line);
    return (l->is_mean ? tsr_adaptive_avg_pool3d_at
                       : tsr_adaptive_max_pool3d_at)(x, out[0], out[1], out[2], file, line);
}

static tsr_module *create_adaptive(tsr_world *w, const tsr_nn_opts *o, const char *who,
                                   adaptive_layer l)
{
    for (int i = 0; i < l.n; i++)
        if (l.out[i] < 1) {
            tsri_fail(TSR_ERR_INVALID, "%s: %lld windows along an axis; at least 1 is needed", who,
                      (long long)l.out[i]);
            return NULL;
        }
    return tsri_layer_create(w, o, adaptive_forward, &l, sizeof l);
}

tsr_module *tsr_nn_adaptive_avg_pool1d(tsr_world *w, const tsr_nn_opts *o, int64_t out)
{
    return create_adaptive(w, o, __func__, (adaptive_layer){1, true, {out}});
}

tsr_module *tsr_nn_adaptive_max_pool1d(tsr_world *w, const tsr_nn_opts *o, int64_t out)
{
    return create_adaptive(w, o, __func__, (adaptive_layer){1, false, {out}});
}

tsr_module *tsr_nn_adaptive_avg_pool2d(tsr_world *w, const tsr_nn_opts *o, int64_t out_h,
                                       int64_t out_w)
{
    return create_adaptive(w, o, __func__, (adaptive_layer){2, true, {out_h, out_w}});
}

tsr_module *tsr_nn_adaptive_max_pool2d(tsr_world *w, const tsr_nn_opts *o, int64_t out_h,
                                       int64_t out_w)
{
    return create_adaptive(w, o, __func__, (adaptive_layer){2, false, {out_h, out_w}});
}

tsr_module *tsr_nn_adaptive_avg_pool3d(tsr_world *w, const tsr_nn_opts *o, int64_t out_d,
                                       int64_t out_h, int64_t out_w)
{
    return create_adaptive(w, o, __func__, (adaptive_layer){3, true, {out_d, out_h, out_w}});
}

tsr_module *tsr_nn_adaptive_max_pool3d(tsr_world *w, const tsr_nn_opts *o, int64_t out_d,
                                       int64_t out_h, int64_t out_w)
{
    return create_adaptive(w, o, __func__, (adaptive_layer){3, false, {out_d, out_h, out_w}});
}

/* --- channels --------------------------------------------------------------------------------- */

static tsr_tensor *dropout2d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const double *p = arg;
    return tsr_dropout2d_at(x, *p, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_dropout2d(tsr_world *w, const tsr_nn_opts *o, double p)
{
    if (!(p >= 0 && p < 1)) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_dropout2d: p is %g; it must be in [0, 1)", p);
        return NULL;
    }
    return tsri_layer_create(w, o, dropout2d_forward, &p, sizeof p);
}

static tsr_tensor *channel_shuffle_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const int64_t *groups = arg;
    return tsr_channel_shuffle_at(x, *groups, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_channel_shuffle(tsr_world *w, const tsr_nn_opts *o, int64_t groups)
{
    if (groups < 1) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_channel_shuffle: groups is %lld; it must be at least 1",
                  (long long)groups);
        return NULL;
    }
    return tsri_layer_create(w, o, channel_shuffle_forward, &groups, sizeof groups);
}
