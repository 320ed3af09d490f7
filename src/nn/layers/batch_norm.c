/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm: the layer, and statistics over the batches of several ranks. */
#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/nn/layers/layer.h"

static tsr_tensor *batch_norm_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const tsr_batch_norm_opts *bn = arg;
    const char *file = m->loc.file;
    int line = m->loc.line;
    return tsr_batch_norm_at(x, tsr_use_at(m, "weight", x, file, line),
                             tsr_use_at(m, "bias", x, file, line),
                             tsr_use_at(m, "running_mean", x, file, line),
                             tsr_use_at(m, "running_var", x, file, line), bn, file, line);
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
    tsr_batch_norm_opts opts = *TSR_BATCH_NORM_OPTS();
    if (tsri_opts_read(&opts, sizeof opts, bn, "tsr_nn_batch_norm") != TSR_OK)
        return NULL;
    if (c < 1 || opts.parts < 0) {
        tsri_fail(TSR_ERR_INVALID,
                  "tsr_nn_batch_norm: %lld channels, %d parts: channels must be at "
                  "least 1, parts not negative",
                  (long long)c, opts.parts);
        return NULL;
    }
    bool is_local = opts.stats == TSR_BN_LOCAL;
    tsr_dims stats = TSR_DIMS(c);
    tsr_sbp sbp = TSR_AUTO;
    if (is_local && o && o->placement) {
        /* R is part of the program: it is fixed here, with the shape of the buffers. */
        if (!opts.parts)
            opts.parts = tsr_placement_nranks(o->placement);
        stats = TSR_DIMS(opts.parts, c);
        sbp = split_rows(o->placement);
    }
    tsr_module *m = tsri_layer_create(w, o, batch_norm_forward, &opts, sizeof opts);
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
    tsr_batch_norm_opts *bn = m->forward == batch_norm_forward ? m->arg : NULL;
    char name[TSRI_NAME_MAX];
    tsri_scope_qualified_name(&m->scope, name, sizeof name);
    if (bn && bn->parts > 1)
        return tsri_fail(TSR_ERR_INVALID,
                         "batch norm '%s' has statistics of %d virtual batches; over ranks they "
                         "must be global (TSR_BN_GLOBAL)",
                         name, bn->parts);
    if (bn && apply)
        bn->sync = group;
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
