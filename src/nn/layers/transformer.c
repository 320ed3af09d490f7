/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of a transformer's encoder and decoder, with PyTorch's parameters, and stacks of them. */
#include <stdio.h>

#include "src/core/opts.h"
#include "src/nn/layers/layer.h"

/* --- layers ----------------------------------------------------------------------------------- */
typedef struct layer {
    const char *name;
    bool is_decoder;
    tsr_transformer_layer_opts o;
} layer;

static tsr_tensor *apply_child(tsr_module *m, const char *name, tsr_tensor *x)
{
    return tsr_apply(tsr_module_child(m, name), x);
}

/* Returns what a branch makes of x: attention to `memory` (NULL: to x itself). */
static tsr_tensor *attend(tsr_module *m, const layer *l, const char *name, tsr_tensor *x,
                          tsr_tensor *memory, tsr_tensor *mask, tsr_tensor *key_mask)
{
    tsr_tensor *in[5] = {x, memory, NULL, mask, key_mask}, *y;
    tsr_apply_n(tsr_module_child(m, name), 5, in, 1, &y);
    return tsr_dropout(y, l->o.dropout);
}

static tsr_tensor *feed_forward(tsr_module *m, const layer *l, tsr_tensor *x)
{
    x = apply_child(m, "linear1", x);
    x = l->o.gelu ? tsr_gelu(x, TSR_GELU_ERF) : tsr_relu(x);
    return tsr_dropout(apply_child(m, "linear2", tsr_dropout(x, l->o.dropout)), l->o.dropout);
}

/* Returns what branch i takes of x: its norm where that stands before the branch. */
static tsr_tensor *enter(tsr_module *m, const layer *l, int i, tsr_tensor *x)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"};
    return l->o.norm_first ? apply_child(m, norms[i], x) : x;
}

/* Adds what branch i gave to x, and takes the norm where that stands behind the branch. */
static tsr_tensor *leave(tsr_module *m, const layer *l, int i, tsr_tensor *x, tsr_tensor *branch)
{
    static const char *const norms[] = {"norm1", "norm2", "norm3"};
    x = tsr_add(x, branch);
    return l->o.norm_first ? x : apply_child(m, norms[i], x);
}

/* The inputs of a layer: of an encoder's x, mask and key mask; of a decoder's two of each. */
static void layer_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout, tsr_tensor **out,
                          void *arg)
{
    const layer *l = arg;
    const int most = l->is_decoder ? 6 : 3;
    tsr_tensor *x = in[0];
    (void)nout;
    if (nin > most || (l->is_decoder && !in[1])) {
        tsri_graph_fail(x->graph, m->loc, TSR_ERR_INVALID,
                        "%s: %d inputs%s; there are at most %d%s", l->name, nin,
                        in[1] ? "" : " without the memory", most,
                        l->is_decoder ? ", and x and the memory are needed" : "");
        return;
    }
    int i = 0;
    x = leave(m, l, i, x,
              attend(m, l, "self_attn", enter(m, l, i, x), NULL, in[l->is_decoder ? 2 : 1],
                     in[l->is_decoder ? 4 : 2]));
    i++;
    if (l->is_decoder) {
        x = leave(m, l, i, x,
                  attend(m, l, "multihead_attn", enter(m, l, i, x), in[1], in[3], in[5]));
        i++;
    }
    out[0] = leave(m, l, i, x, feed_forward(m, l, enter(m, l, i, x)));
}

static void add_norm(tsr_module *m, const char *name, int64_t width, double eps)
{
    tsr_module_add(
        m, name,
        tsr_nn_layer_norm(m->world, &m->opts, TSR_DIMS(width), TSR_LAYER_NORM_OPTS(.eps = eps)));
}

static void add_attention(tsr_module *m, const char *name, int64_t width, int64_t heads,
                          const layer *l, bool causal)
{
    tsr_module_add(m, name,
                   tsr_nn_multihead_attention(
                       m->world, &m->opts, width, heads,
                       TSR_MULTIHEAD_ATTENTION_OPTS(.batch_first = l->o.batch_first,
                                                    .causal = causal, .dropout = l->o.dropout)));
}

/* Attention refuses the width, the heads and the dropout, the norms eps, linear layers the inner
 * features. */
static tsr_module *make_layer(tsr_world *w, const tsr_nn_opts *o, int64_t width, int64_t heads,
                              const tsr_transformer_layer_opts *opts, bool is_decoder,
                              const char *name)
{
    layer l = {name, is_decoder, *TSR_TRANSFORMER_LAYER_OPTS()};
    if (tsri_opts_read(&l.o, sizeof l.o, opts, name) != TSR_OK)
        return NULL;
    tsr_module *m = tsri_layer_create_n(w, o, layer_forward, &l, sizeof l);
    if (!m)
        return NULL;
    add_attention(m, "self_attn", width, heads, &l, l.o.causal);
    if (is_decoder && m->status == TSR_OK)
        add_attention(m, "multihead_attn", width, heads, &l, false);
    if (m->status != TSR_OK)
        return tsri_layer_finish(m);
    tsr_module_add(m, "linear1", tsr_nn_linear(w, o, width, l.o.inner, true));
    tsr_module_add(m, "linear2", tsr_nn_linear(w, o, l.o.inner, width, true));
    add_norm(m, "norm1", width, l.o.eps);
    add_norm(m, "norm2", width, l.o.eps);
    if (is_decoder)
        add_norm(m, "norm3", width, l.o.eps);
    return tsri_layer_finish(m);
}

tsr_module *tsr_nn_transformer_encoder_layer(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                             int64_t heads, const tsr_transformer_layer_opts *opts)
{
    return make_layer(w, o, width, heads, opts, false, __func__);
}

tsr_module *tsr_nn_transformer_decoder_layer(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                             int64_t heads, const tsr_transformer_layer_opts *opts)
{
    return make_layer(w, o, width, heads, opts, true, __func__);
}

/* --- stacks ----------------------------------------------------------------------------------- */
static void stack_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout, tsr_tensor **out,
                          void *arg)
{
    (void)nout, (void)arg;
    tsr_tensor *x[TSR_APPLY_MAX];
    memcpy(x, in, sizeof x);
    for (tsr_module *c = tsr_module_child(m, "layers")->first_child; c; c = c->sibling)
        tsr_apply_n(c, nin, x, 1, &x[0]);
    out[0] = tsri_module_child(m, "norm") ? apply_child(m, "norm", x[0]) : x[0];
}

static tsr_module *make_stack(tsr_world *w, const tsr_nn_opts *o, int64_t width, int64_t heads,
                              int layers, bool norm, const tsr_transformer_layer_opts *opts,
                              bool is_decoder, const char *who)
{
    if (layers < 1 || layers > 10000) {
        tsri_fail(TSR_ERR_INVALID, "%s: %d layers; 1 to 10000 are possible", who, layers);
        return NULL;
    }
    tsr_transformer_layer_opts given = *TSR_TRANSFORMER_LAYER_OPTS();
    if (tsri_opts_read(&given, sizeof given, opts, who) != TSR_OK)
        return NULL;
    tsr_module *m = tsri_layer_create_n(w, o, stack_forward, NULL, 0);
    tsr_module *all = m ? tsr_module_add(m, "layers", tsr_nn_sequential(w, o)) : NULL;
    for (int i = 0; all && all->status == TSR_OK && i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        tsr_module_add(all, name, make_layer(w, o, width, heads, &given, is_decoder, who));
    }
    if (all && all->status == TSR_OK && norm)
        add_norm(m, "norm", width, given.eps);
    return tsri_layer_finish(m);
}

tsr_module *tsr_nn_transformer_encoder(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                       int64_t heads, int layers, bool norm,
                                       const tsr_transformer_layer_opts *opts)
{
    return make_stack(w, o, width, heads, layers, norm, opts, false, __func__);
}

tsr_module *tsr_nn_transformer_decoder(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                       int64_t heads, int layers, bool norm,
                                       const tsr_transformer_layer_opts *opts)
{
    return make_stack(w, o, width, heads, layers, norm, opts, true, __func__);
}
