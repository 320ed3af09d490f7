/* SPDX-License-Identifier: Apache-2.0 */
/* A layer of a transformer's encoder, with PyTorch's parameters. */
#include "src/core/opts.h"
#include "src/nn/layers/layer.h"

static tsr_tensor *apply_child(tsr_module *m, const char *name, tsr_tensor *x)
{
    return tsr_apply(tsr_module_child(m, name), x);
}

static tsr_tensor *attend(tsr_module *m, const tsr_encoder_layer_opts *o, tsr_tensor *const *in,
                          tsr_tensor *x)
{
    tsr_tensor *y;
    tsr_apply_n(tsr_module_child(m, "self_attn"), 5,
                ((tsr_tensor *[]){x, NULL, NULL, in[1], in[2]}), 1, &y);
    return tsr_dropout(y, o->dropout);
}

static tsr_tensor *feed_forward(tsr_module *m, const tsr_encoder_layer_opts *o, tsr_tensor *x)
{
    x = apply_child(m, "linear1", x);
    x = o->gelu ? tsr_gelu(x, TSR_GELU_ERF) : tsr_relu(x);
    return tsr_dropout(apply_child(m, "linear2", tsr_dropout(x, o->dropout)), o->dropout);
}

static void layer_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout, tsr_tensor **out,
                          void *arg)
{
    const tsr_encoder_layer_opts *o = arg;
    tsr_tensor *x = in[0];
    (void)nout;
    if (nin > 3) {
        tsri_graph_fail(x->graph, m->loc, TSR_ERR_INVALID,
                        "transformer_encoder_layer: %d inputs; there are at most 3", nin);
        return;
    }
    if (o->norm_first) {
        x = tsr_add(x, attend(m, o, in, apply_child(m, "norm1", x)));
        out[0] = tsr_add(x, feed_forward(m, o, apply_child(m, "norm2", x)));
    } else {
        x = apply_child(m, "norm1", tsr_add(x, attend(m, o, in, x)));
        out[0] = apply_child(m, "norm2", tsr_add(x, feed_forward(m, o, x)));
    }
}

tsr_module *tsr_nn_transformer_encoder_layer(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                             int64_t heads, const tsr_encoder_layer_opts *opts)
{
    tsr_encoder_layer_opts e = *TSR_ENCODER_LAYER_OPTS();
    if (tsri_opts_read(&e, sizeof e, opts, __func__) != TSR_OK)
        return NULL;
    /* Attention refuses the width, the heads and the dropout, the norms eps, linear layers the
     * inner features. */
    tsr_module *attn = tsr_nn_multihead_attention(
        w, o, width, heads,
        TSR_MULTIHEAD_ATTENTION_OPTS(.batch_first = e.batch_first, .causal = e.causal,
                                     .dropout = e.dropout));
    if (!attn)
        return NULL;
    tsr_module *m = tsri_layer_create_n(w, o, layer_forward, &e, sizeof e);
    if (!m) {
        tsr_module_destroy(attn);
        return NULL;
    }
    const tsr_layer_norm_opts *norm = TSR_LAYER_NORM_OPTS(.eps = e.eps);
    tsr_module_add(m, "self_attn", attn);
    tsr_module_add(m, "linear1", tsr_nn_linear(w, o, width, e.inner, true));
    tsr_module_add(m, "linear2", tsr_nn_linear(w, o, e.inner, width, true));
    tsr_module_add(m, "norm1", tsr_nn_layer_norm(w, o, TSR_DIMS(width), norm));
    tsr_module_add(m, "norm2", tsr_nn_layer_norm(w, o, TSR_DIMS(width), norm));
    return tsri_layer_finish(m);
}
