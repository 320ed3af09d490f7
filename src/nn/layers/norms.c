/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of single samples: layer norm, groups of channels, root mean squares. */
#include <tessera/functional.h>

#include <math.h>

#include "src/core/opts.h"
#include "src/nn/layers/layer.h"

static tsr_tensor *layer_norm_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    return tsr_layer_norm_at(x, tsr_use_at(m, "weight", x, m->loc.file, m->loc.line),
                             tsr_use_at(m, "bias", x, m->loc.file, m->loc.line), arg, m->loc.file,
                             m->loc.line);
}

tsr_module *tsr_nn_layer_norm(tsr_world *w, const tsr_nn_opts *o, tsr_dims shape,
                              const tsr_layer_norm_opts *ln)
{
    tsr_layer_norm_opts opts = *TSR_LAYER_NORM_OPTS();
    if (tsri_opts_read(&opts, sizeof opts, ln, "tsr_nn_layer_norm") != TSR_OK)
        return NULL;
    bool fits = shape.ndim >= 1 && shape.ndim <= TSR_MAX_NDIM &&
                (opts.axes == 0 || opts.axes == shape.ndim);
    for (int i = 0; i < shape.ndim && fits; i++)
        fits = shape.d[i] >= 1;
    if (!fits) {
        tsri_fail(
            TSR_ERR_INVALID,
            "tsr_nn_layer_norm: a shape of %d axes, axes = %d: sizes of at least one axis are "
            "needed, each at least 1, and axes (if given) their number",
            shape.ndim, opts.axes);
        return NULL;
    }
    opts.axes = shape.ndim;
    tsr_module *m = tsri_layer_create(w, o, layer_norm_forward, &opts, sizeof opts);
    tsr_module_param(m, "weight", shape, TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    tsr_module_param(m, "bias", shape, TSR_AUTO, (tsr_init){.kind = TSR_INIT_ZEROS});
    return tsri_layer_finish(m);
}

typedef struct norm {
    int64_t groups;
    double eps;
} norm;

static bool check_eps(const char *who, double eps)
{
    if (isfinite(eps) && eps >= 0)
        return true;
    tsri_fail(TSR_ERR_INVALID, "%s: eps = %g must be finite and not negative", who, eps);
    return false;
}

static tsr_tensor *group_norm_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const norm *l = arg;
    return tsr_group_norm(x, l->groups, tsri_layer_use(m, "weight", x),
                          tsri_layer_use(m, "bias", x), l->eps);
}

static tsr_module *make_group_norm(tsr_world *w, const tsr_nn_opts *o, int64_t groups, int64_t c,
                                   double eps, bool affine, const char *who)
{
    if (!check_eps(who, eps))
        return NULL;
    if (groups < 1 || c < 1 || c % groups) {
        tsri_fail(TSR_ERR_INVALID, "%s: %lld groups of %lld channels; the number must divide them",
                  who, (long long)groups, (long long)c);
        return NULL;
    }
    tsr_module *m = tsri_layer_create(w, o, group_norm_forward, &(norm){groups, eps}, sizeof(norm));
    if (m && affine) {
        tsr_module_param(m, "weight", TSR_DIMS(c), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
        tsr_module_param(m, "bias", TSR_DIMS(c), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ZEROS});
    }
    return tsri_layer_finish(m);
}

tsr_module *tsr_nn_group_norm(tsr_world *w, const tsr_nn_opts *o, int64_t groups, int64_t c,
                              double eps, bool affine)
{
    return make_group_norm(w, o, groups, c, eps, affine, __func__);
}

tsr_module *tsr_nn_instance_norm(tsr_world *w, const tsr_nn_opts *o, int64_t c, double eps,
                                 bool affine)
{
    return make_group_norm(w, o, c, c, eps, affine, __func__);
}

static tsr_tensor *rms_norm_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const norm *l = arg;
    return tsr_rms_norm(x, tsr_use(m, "weight", x), l->eps);
}

tsr_module *tsr_nn_rms_norm(tsr_world *w, const tsr_nn_opts *o, tsr_dims shape, double eps)
{
    if (!check_eps(__func__, eps))
        return NULL;
    bool fits = shape.ndim >= 1 && shape.ndim <= TSR_MAX_NDIM;
    for (int i = 0; fits && i < shape.ndim; i++)
        fits = shape.d[i] >= 1;
    if (!fits) {
        tsri_fail(TSR_ERR_INVALID,
                  "tsr_nn_rms_norm: a shape of %d axes; 1 to %d axes are needed, each at least 1",
                  shape.ndim, TSR_MAX_NDIM);
        return NULL;
    }
    tsr_module *m = tsri_layer_create(w, o, rms_norm_forward, &(norm){.eps = eps}, sizeof(norm));
    if (m)
        tsr_module_param(m, "weight", shape, TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    return tsri_layer_finish(m);
}
