/* SPDX-License-Identifier: Apache-2.0 */
/* Layers with PyTorch's names and initial distributions (torch.nn's reset_parameters). */
#include <math.h>

#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/nn/layers/layer.h"

/* The facts that a layer keeps between its creation and its use; each uses its own part. */
typedef struct layer {
    tsr_conv2d_opts conv;
    tsr_batch_norm_opts bn;
    tsr_pool2d_opts pool;
    tsr_layer_norm_opts ln;
    double p;
} layer;

/* --- linear ----------------------------------------------------------------------------------- */
static tsr_tensor *linear_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_linear_at(x, w, tsri_layer_use(m, "bias", x), m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_linear(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out, bool bias)
{
    if (in < 1 || out < 1) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_linear: in = %lld and out = %lld must be at least 1",
                  (long long)in, (long long)out);
        return NULL;
    }
    tsr_module *m = tsri_layer_create(w, o, linear_forward, NULL, 0);
    tsr_module_param(m, "weight", TSR_DIMS(out, in), TSR_AUTO, tsri_layer_weight_init());
    if (bias)
        tsr_module_param(m, "bias", TSR_DIMS(out), TSR_AUTO, tsri_layer_bias_init((double)in));
    return tsri_layer_finish(m);
}

/* --- convolution ------------------------------------------------------------------------------ */
static tsr_tensor *conv2d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const layer *l = arg;
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_conv2d_at(x, w, tsri_layer_use(m, "bias", x), &l->conv, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_conv2d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out, int kernel,
                          bool bias, const tsr_conv2d_opts *conv)
{
    layer l = {.conv = *TSR_CONV2D_OPTS()};
    if (tsri_opts_read(&l.conv, sizeof l.conv, conv, "tsr_nn_conv2d") != TSR_OK)
        return NULL;
    int64_t groups = l.conv.groups;
    if (in < 1 || out < 1 || kernel < 1 || groups < 1 || in % groups || out % groups) {
        tsri_fail(TSR_ERR_INVALID,
                  "tsr_nn_conv2d: in = %lld and out = %lld channels must be multiples of groups = "
                  "%lld, and the kernel (%d) at least 1",
                  (long long)in, (long long)out, (long long)groups, kernel);
        return NULL;
    }
    tsr_module *m = tsri_layer_create(w, o, conv2d_forward, &l, sizeof(layer));
    if (!m)
        return NULL;
    int64_t per_group = in / groups;
    tsr_module_param(m, "weight", TSR_DIMS(out, per_group, kernel, kernel), TSR_AUTO,
                     tsri_layer_weight_init());
    if (bias)
        tsr_module_param(m, "bias", TSR_DIMS(out), TSR_AUTO,
                         tsri_layer_bias_init((double)per_group * kernel * kernel));
    return tsri_layer_finish(m);
}

/* --- batch norm ------------------------------------------------------------------------------- */
static tsr_tensor *batch_norm_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const layer *l = arg;
    const char *file = m->loc.file;
    int line = m->loc.line;
    return tsr_batch_norm_at(x, tsr_use_at(m, "weight", x, file, line),
                             tsr_use_at(m, "bias", x, file, line),
                             tsr_use_at(m, "running_mean", x, file, line),
                             tsr_use_at(m, "running_var", x, file, line), &l->bn, file, line);
}

/* S(0) on every hierarchy dimension: virtual batches lie where their part of the batch does. */
static tsr_sbp split_rows(const tsr_placement *p)
{
    tsr_sbp sbp = {.ndim = (int8_t)tsr_placement_ndim(p)};
    for (int i = 0; i < sbp.ndim; i++)
        sbp.d[i] = (tsr_sbp1){TSR_SBP_SPLIT, 0};
    return sbp;
}

tsr_module *tsr_nn_batch_norm(tsr_world *w, const tsr_nn_opts *o, int64_t c,
                              const tsr_batch_norm_opts *bn)
{
    layer l = {.bn = *TSR_BATCH_NORM_OPTS()};
    if (tsri_opts_read(&l.bn, sizeof l.bn, bn, "tsr_nn_batch_norm") != TSR_OK)
        return NULL;
    if (c < 1 || l.bn.parts < 0) {
        tsri_fail(TSR_ERR_INVALID,
                  "tsr_nn_batch_norm: %lld channels, %d parts: channels must be at "
                  "least 1, parts not negative",
                  (long long)c, l.bn.parts);
        return NULL;
    }
    bool is_local = l.bn.stats == TSR_BN_LOCAL;
    tsr_dims stats = TSR_DIMS(c);
    tsr_sbp sbp = TSR_AUTO;
    if (is_local && o && o->placement) {
        /* R is part of the program: it is fixed here, with the shape of the buffers. */
        if (!l.bn.parts)
            l.bn.parts = tsr_placement_nranks(o->placement);
        stats = TSR_DIMS(l.bn.parts, c);
        sbp = split_rows(o->placement);
    }
    tsr_module *m = tsri_layer_create(w, o, batch_norm_forward, &l, sizeof(layer));
    if (!m)
        return NULL;
    tsr_init zeros = {.kind = TSR_INIT_ZEROS}, ones = {.kind = TSR_INIT_ONES};
    tsr_module_param(m, "weight", TSR_DIMS(c), TSR_AUTO, ones);
    tsr_module_param(m, "bias", TSR_DIMS(c), TSR_AUTO, zeros);
    tsr_module_buffer(m, "running_mean", stats, sbp, zeros);
    tsr_module_buffer(m, "running_var", stats, sbp, ones);
    return tsri_layer_finish(m);
}

/* Checks, or converts, what is in and below m. */
static tsr_status convert_sync(tsr_module *m, const tsr_group *group, bool apply)
{
    layer *l = m->forward == batch_norm_forward ? m->arg : NULL;
    char name[TSRI_NAME_MAX];
    tsri_scope_qualified_name(&m->scope, name, sizeof name);
    if (l && l->bn.parts > 1)
        return tsri_fail(TSR_ERR_INVALID,
                         "batch norm '%s' has statistics of %d virtual batches; over ranks they "
                         "must be global (TSR_BN_GLOBAL)",
                         name, l->bn.parts);
    if (l && apply)
        l->bn.sync = group;
    for (tsr_module *c = m->first_child; c; c = c->sibling)
        TSRI_TRY(convert_sync(c, group, apply));
    return TSR_OK;
}

tsr_status tsr_convert_sync_batchnorm(tsr_module *m, const tsr_group *group)
{
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, __func__));
    TSRI_TRY(tsri_live_check(group, TSRI_LIVE_GROUP, __func__));
    tsr_status status = m && group
                            ? convert_sync(m, group, false)
                            : tsri_fail(TSR_ERR_INVALID, "the %s is NULL", m ? "group" : "module");
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "tsr_convert_sync_batchnorm");
    return convert_sync(m, group, true);
}

/* --- layer norm ------------------------------------------------------------------------------- */
static tsr_tensor *layer_norm_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const layer *l = arg;
    return tsr_layer_norm_at(x, tsr_use_at(m, "weight", x, m->loc.file, m->loc.line),
                             tsr_use_at(m, "bias", x, m->loc.file, m->loc.line), &l->ln,
                             m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_layer_norm(tsr_world *w, const tsr_nn_opts *o, tsr_dims shape,
                              const tsr_layer_norm_opts *ln)
{
    layer l = {.ln = *TSR_LAYER_NORM_OPTS()};
    if (tsri_opts_read(&l.ln, sizeof l.ln, ln, "tsr_nn_layer_norm") != TSR_OK)
        return NULL;
    bool fits = shape.ndim >= 1 && shape.ndim <= TSR_MAX_NDIM &&
                (l.ln.axes == 0 || l.ln.axes == shape.ndim);
    for (int i = 0; i < shape.ndim && fits; i++)
        fits = shape.d[i] >= 1;
    if (!fits) {
        tsri_fail(
            TSR_ERR_INVALID,
            "tsr_nn_layer_norm: a shape of %d axes, axes = %d: sizes of at least one axis are "
            "needed, each at least 1, and axes (if given) their number",
            shape.ndim, l.ln.axes);
        return NULL;
    }
    l.ln.axes = shape.ndim;
    tsr_module *m = tsri_layer_create(w, o, layer_norm_forward, &l, sizeof(layer));
    tsr_module_param(m, "weight", shape, TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    tsr_module_param(m, "bias", shape, TSR_AUTO, (tsr_init){.kind = TSR_INIT_ZEROS});
    return tsri_layer_finish(m);
}

/* --- layers without variables ----------------------------------------------------------------- */
static tsr_tensor *relu_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_relu_at(x, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_relu(tsr_world *w, const tsr_nn_opts *o)
{
    return tsri_layer_create(w, o, relu_forward, NULL, 0);
}

static tsr_tensor *relu6_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_relu6_at(x, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_relu6(tsr_world *w, const tsr_nn_opts *o)
{
    return tsri_layer_create(w, o, relu6_forward, NULL, 0);
}

tsr_module *tsr_nn_identity(tsr_world *w, const tsr_nn_opts *o)
{
    /* A container without children passes x on as it is. */
    return tsri_layer_create(w, o, NULL, NULL, 0);
}

static tsr_tensor *dropout_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const layer *l = arg;
    return tsr_dropout_at(x, l->p, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_dropout(tsr_world *w, const tsr_nn_opts *o, double p)
{
    if (!(p >= 0 && p < 1)) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_dropout: p is %g; it must be in [0, 1)", p);
        return NULL;
    }
    return tsri_layer_create(w, o, dropout_forward, &(layer){.p = p}, sizeof(layer));
}

static tsr_tensor *max_pool2d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const layer *l = arg;
    return tsr_max_pool2d_at(x, &l->pool, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_max_pool2d(tsr_world *w, const tsr_nn_opts *o, const tsr_pool2d_opts *pool)
{
    layer l = {.pool = *TSR_POOL2D_OPTS()};
    if (tsri_opts_read(&l.pool, sizeof l.pool, pool, "tsr_nn_max_pool2d") != TSR_OK)
        return NULL;
    if (l.pool.kernel.h < 1 || l.pool.kernel.w < 1) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_max_pool2d: kernel is (%d,%d); each must be at least 1",
                  l.pool.kernel.h, l.pool.kernel.w);
        return NULL;
    }
    return tsri_layer_create(w, o, max_pool2d_forward, &l, sizeof(layer));
}

tsr_module *tsr_nn_sequential(tsr_world *w, const tsr_nn_opts *o)
{
    return tsri_layer_create(w, o, NULL, NULL, 0);
}
