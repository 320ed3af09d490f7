/* SPDX-License-Identifier: Apache-2.0 */
/* A table of rows that ids choose. */
#include "src/core/opts.h"
#include "src/nn/layers/layer.h"

static tsr_tensor *embedding_forward(tsr_module *m, tsr_tensor *ids, void *arg)
{
    return tsr_embedding(tsr_use(m, "weight", ids), ids, arg);
}

tsr_module *tsr_nn_embedding(tsr_world *w, const tsr_nn_opts *o, int64_t n, int64_t width,
                             const tsr_embedding_opts *opts)
{
    tsr_embedding_opts e = *TSR_EMBEDDING_OPTS();
    if (tsri_opts_read(&e, sizeof e, opts, __func__) != TSR_OK)
        return NULL;
    if (n < 1 || width < 1 || (e.has_padding_idx && (e.padding_idx < -n || e.padding_idx >= n))) {
        tsri_fail(TSR_ERR_INVALID,
                  "tsr_nn_embedding: %lld rows of %lld, padding_idx %lld: both must be at least 1, "
                  "and the index one of the rows",
                  (long long)n, (long long)width, (long long)e.padding_idx);
        return NULL;
    }
    tsr_module *m = tsri_layer_create(w, o, embedding_forward, &e, sizeof e);
    if (!m)
        return NULL;
    tsr_variable *v = tsr_module_param(m, "weight", TSR_DIMS(n, width), TSR_AUTO,
                                       (tsr_init){.kind = TSR_INIT_NORMAL, .a = 0, .b = 1});
    if (v && e.has_padding_idx) {
        v->zero_row = 1 + (e.padding_idx < 0 ? e.padding_idx + n : e.padding_idx);
    }
    return tsri_layer_finish(m);
}
