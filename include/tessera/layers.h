/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: modules that the library makes, with PyTorch's names, parameters and initial values. Each
 * call returns a root module, which tsr_module_add gives to a parent; NULL on error
 * (tsr_last_error).
 */
#ifndef TESSERA_LAYERS_H
#define TESSERA_LAYERS_H

#include <tessera/functional.h>
#include <tessera/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- layers, with PyTorch's names and initial distributions ----------------------------------- */
/* Makes a linear layer, tsr_linear: "weight" (out, in), "bias" (out). */
TSR_API tsr_module *tsr_nn_linear(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                  bool bias);
/* Makes a convolution of planes, tsr_conv2d: "weight" (out, in/groups, kh, kw), "bias" (out). conv
 * may be NULL. */
TSR_API tsr_module *tsr_nn_conv2d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                  int kernel, bool bias, const tsr_conv2d_opts *conv);
/* Makes a convolution of rows, tsr_conv1d: "weight" (out, in/groups, k), "bias" (out). conv may be
 * NULL, here and below. */
TSR_API tsr_module *tsr_nn_conv1d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                  int kernel, bool bias, const tsr_conv1d_opts *conv);
/* Makes a convolution of volumes, tsr_conv3d: "weight" (out, in/groups, kd, kh, kw), "bias" (out).
 * */
TSR_API tsr_module *tsr_nn_conv3d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                  tsr_dhw kernel, bool bias, const tsr_conv3d_opts *conv);
/* Makes a transposed convolution, tsr_conv_transpose1d: "weight" (in, out/groups, k), "bias" (out).
 * */
TSR_API tsr_module *tsr_nn_conv_transpose1d(tsr_world *w, const tsr_nn_opts *o, int64_t in,
                                            int64_t out, int kernel, bool bias,
                                            const tsr_conv_transpose1d_opts *conv);
/* Makes a transposed convolution, tsr_conv_transpose2d: "weight" (in, out/groups, kh, kw), "bias"
 * (out). */
TSR_API tsr_module *tsr_nn_conv_transpose2d(tsr_world *w, const tsr_nn_opts *o, int64_t in,
                                            int64_t out, tsr_hw kernel, bool bias,
                                            const tsr_conv_transpose2d_opts *conv);
/* Makes a transposed convolution, tsr_conv_transpose3d: "weight" (in, out/groups, kd, kh, kw),
 * "bias" (out). */
TSR_API tsr_module *tsr_nn_conv_transpose3d(tsr_world *w, const tsr_nn_opts *o, int64_t in,
                                            int64_t out, tsr_dhw kernel, bool bias,
                                            const tsr_conv_transpose3d_opts *conv);
/* Makes a batch norm, tsr_batch_norm: "weight", "bias", buffers "running_mean", "running_var" (c);
 * (R, c) split S(0) with TSR_BN_LOCAL. bn may be NULL. */
TSR_API tsr_module *tsr_nn_batch_norm(tsr_world *w, const tsr_nn_opts *o, int64_t c,
                                      const tsr_batch_norm_opts *bn);
/* Makes a layer norm, tsr_layer_norm: "weight", "bias" of `shape`, the last axes of what is passed
 * through. ln may be NULL. */
TSR_API tsr_module *tsr_nn_layer_norm(tsr_world *w, const tsr_nn_opts *o, tsr_dims shape,
                                      const tsr_layer_norm_opts *ln);
/* Makes a group norm, tsr_group_norm: "weight", "bias" (c) where affine says so (PyTorch's eps:
 * 1e-5). */
TSR_API tsr_module *tsr_nn_group_norm(tsr_world *w, const tsr_nn_opts *o, int64_t groups, int64_t c,
                                      double eps, bool affine);
/* Makes an instance norm: "weight", "bias" (c) where affine says so, which PyTorch's default does
 * not. Each channel of each sample of x (n,c,...) is normalised by itself, in evaluation graphs
 * too. */
TSR_API tsr_module *tsr_nn_instance_norm(tsr_world *w, const tsr_nn_opts *o, int64_t c, double eps,
                                         bool affine);
/* Makes an RMS norm, tsr_rms_norm: "weight" of `shape`, the last axes of what is passed through. */
TSR_API tsr_module *tsr_nn_rms_norm(tsr_world *w, const tsr_nn_opts *o, tsr_dims shape, double eps);
/* Makes a table of rows that ids choose, tsr_embedding: "weight" (n,width): ids i64 (...) ->
 * (...,width). The row of padding_idx begins with zeros. opts may be NULL. */
TSR_API tsr_module *tsr_nn_embedding(tsr_world *w, const tsr_nn_opts *o, int64_t n, int64_t width,
                                     const tsr_embedding_opts *opts);
/* An op of one operand, of the library's or of the user's own. */
typedef tsr_tensor *tsr_unary_op_fn(tsr_tensor *x, const char *file, int line);
/* Makes a layer of an op: tsr_nn_fn(w, tsr_tanh_at). */
TSR_API tsr_module *tsr_nn_fn(tsr_world *w, tsr_unary_op_fn *function);
/* Makes a layer without parameters that applies tsr_relu. */
TSR_API tsr_module *tsr_nn_relu(tsr_world *w, const tsr_nn_opts *o);
/* Makes a layer without parameters that applies tsr_relu6. */
TSR_API tsr_module *tsr_nn_relu6(tsr_world *w, const tsr_nn_opts *o);
/* Makes a layer without parameters that applies tsr_leaky_relu. */
TSR_API tsr_module *tsr_nn_leaky_relu(tsr_world *w, const tsr_nn_opts *o, double slope);
/* Makes a layer without parameters that applies tsr_gelu. */
TSR_API tsr_module *tsr_nn_gelu(tsr_world *w, const tsr_nn_opts *o, tsr_gelu_form form);
/* Makes a layer that applies tsr_prelu: "weight" (c), 0.25 at first: one slope for all channels (c
 * = 1), or one for each. */
TSR_API tsr_module *tsr_nn_prelu(tsr_world *w, const tsr_nn_opts *o, int64_t c);
/* Makes a layer without parameters that applies tsr_softmax. */
TSR_API tsr_module *tsr_nn_softmax(tsr_world *w, const tsr_nn_opts *o, int axis);
/* Makes a layer that joins the axes from from_axis on (PyTorch's default: 1). */
TSR_API tsr_module *tsr_nn_flatten(tsr_world *w, const tsr_nn_opts *o, int from_axis);
/* Makes a layer that returns what it is given. */
TSR_API tsr_module *tsr_nn_identity(tsr_world *w, const tsr_nn_opts *o);
/* Makes a layer that drops elements with probability p in training graphs (tsr_dropout). */
TSR_API tsr_module *tsr_nn_dropout(tsr_world *w, const tsr_nn_opts *o, double p);
/* Makes a layer without parameters that applies tsr_max_pool2d. */
TSR_API tsr_module *tsr_nn_max_pool2d(tsr_world *w, const tsr_nn_opts *o,
                                      const tsr_pool2d_opts *pool);
/* Makes a layer without parameters that applies tsr_max_pool1d. */
TSR_API tsr_module *tsr_nn_max_pool1d(tsr_world *w, const tsr_nn_opts *o,
                                      const tsr_pool1d_opts *pool);
/* Makes a layer without parameters that applies tsr_max_pool3d. */
TSR_API tsr_module *tsr_nn_max_pool3d(tsr_world *w, const tsr_nn_opts *o,
                                      const tsr_pool3d_opts *pool);
/* Makes a layer without parameters that applies tsr_avg_pool1d. */
TSR_API tsr_module *tsr_nn_avg_pool1d(tsr_world *w, const tsr_nn_opts *o,
                                      const tsr_pool1d_opts *pool);
/* Makes a layer without parameters that applies tsr_avg_pool2d. */
TSR_API tsr_module *tsr_nn_avg_pool2d(tsr_world *w, const tsr_nn_opts *o,
                                      const tsr_pool2d_opts *pool);
/* Makes a layer without parameters that applies tsr_avg_pool3d. */
TSR_API tsr_module *tsr_nn_avg_pool3d(tsr_world *w, const tsr_nn_opts *o,
                                      const tsr_pool3d_opts *pool);
/* Makes a layer without parameters that applies tsr_lp_pool2d; stride {0, 0}: the kernel. */
TSR_API tsr_module *tsr_nn_lp_pool2d(tsr_world *w, const tsr_nn_opts *o, double p, tsr_hw kernel,
                                     tsr_hw stride);
/* Makes a layer without parameters that applies tsr_adaptive_avg_pool1d. */
TSR_API tsr_module *tsr_nn_adaptive_avg_pool1d(tsr_world *w, const tsr_nn_opts *o, int64_t out);
/* Makes a layer without parameters that applies tsr_adaptive_avg_pool2d. */
TSR_API tsr_module *tsr_nn_adaptive_avg_pool2d(tsr_world *w, const tsr_nn_opts *o, int64_t out_h,
                                               int64_t out_w);
/* Makes a layer without parameters that applies tsr_adaptive_avg_pool3d. */
TSR_API tsr_module *tsr_nn_adaptive_avg_pool3d(tsr_world *w, const tsr_nn_opts *o, int64_t out_d,
                                               int64_t out_h, int64_t out_w);
/* Makes a layer without parameters that applies tsr_adaptive_max_pool1d. */
TSR_API tsr_module *tsr_nn_adaptive_max_pool1d(tsr_world *w, const tsr_nn_opts *o, int64_t out);
/* Makes a layer without parameters that applies tsr_adaptive_max_pool2d. */
TSR_API tsr_module *tsr_nn_adaptive_max_pool2d(tsr_world *w, const tsr_nn_opts *o, int64_t out_h,
                                               int64_t out_w);
/* Makes a layer without parameters that applies tsr_adaptive_max_pool3d. */
TSR_API tsr_module *tsr_nn_adaptive_max_pool3d(tsr_world *w, const tsr_nn_opts *o, int64_t out_d,
                                               int64_t out_h, int64_t out_w);
/* Makes a layer that drops whole channels of (n,c,...), 0 <= p < 1: PyTorch's Dropout1d to 3d. */
TSR_API tsr_module *tsr_nn_dropout2d(tsr_world *w, const tsr_nn_opts *o, double p);
/* Makes a layer without parameters that applies tsr_channel_shuffle. */
TSR_API tsr_module *tsr_nn_channel_shuffle(tsr_world *w, const tsr_nn_opts *o, int64_t groups);

/* --- recurrent layers, several inputs and outputs (tsr_apply_n) ------------------------------- */
typedef struct tsr_rnn_opts {
    size_t size;
    tsr_by_name by_name;
    int layers TSR_IS(1);   /* one above the other; default 1 */
    bool bias TSR_IS(true); /* default true */
    bool batch_first;       /* of x and the output: (n,t,...) instead of (t,n,...) */
    bool bidirectional;     /* beside each layer one that begins at the end of time */
    double dropout;         /* of the outputs of all layers but the last; default 0 */
    bool relu;              /* tsr_nn_rnn: relu takes the place of tanh */
} tsr_rnn_opts;
#define TSR_RNN_OPTS(...) TSR_OPTIONS(tsr_rnn_opts, (.layers = 1, .bias = true, ), __VA_ARGS__)
/*
 * Makes an LSTM: inputs x (t,n,in), and h0 and c0 (layers d,n,hidden), which may be left out
 * (zeros); outputs y (t,n,d hidden), h_n and c_n (layers d,n,hidden). d is 2 where it is
 * bidirectional, else 1. "weight_ih_l<i>" (4 hidden,in; above the first layer: 4 hidden,d hidden),
 * "weight_hh_l<i>" (4 hidden,hidden), "bias_ih_l<i>", "bias_hh_l<i>" (4 hidden), for gates in the
 * order i f g o; of the other direction with "_reverse" behind. Initial values are uniform below
 * 1/sqrt(hidden). All steps of a layer and direction are one op, of which samples may be split, but
 * not the state. rnn may be NULL.
 */
TSR_API tsr_module *tsr_nn_lstm(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                                const tsr_rnn_opts *rnn);
/* Makes a GRU: inputs x (t,n,in), and h0 (layers d,n,hidden), which may be left out; outputs y
 * (t,n,d hidden) and h_n (layers d,n,hidden). Parameters as of tsr_nn_lstm, with 3 hidden for gates
 * in the order r z n. rnn may be NULL. */
TSR_API tsr_module *tsr_nn_gru(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                               const tsr_rnn_opts *rnn);
/* Makes Elman's network, h' = tanh(W x + b + V h + c): inputs x (t,n,in), and h0 (layers
 * d,n,hidden), which may be left out; outputs y (t,n,d hidden) and h_n (layers d,n,hidden).
 * Parameters as of tsr_nn_lstm, with hidden rows. rnn may be NULL. */
TSR_API tsr_module *tsr_nn_rnn(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                               const tsr_rnn_opts *rnn);
/* Makes one step of an LSTM: inputs x (n,in), h and c (n,hidden; without them zeros), outputs h and
 * c. "weight_ih", "weight_hh", "bias_ih", "bias_hh". */
TSR_API tsr_module *tsr_nn_lstm_cell(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                                     bool bias);
/* Makes one step of a GRU: inputs x (n,in) and h (n,hidden; without it zeros), output h.
 * "weight_ih", "weight_hh", "bias_ih", "bias_hh". */
TSR_API tsr_module *tsr_nn_gru_cell(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                                    bool bias);
/* Makes one step of tsr_nn_rnn: inputs x (n,in) and h (n,hidden; without it zeros), output h.
 * "weight_ih", "weight_hh", "bias_ih", "bias_hh". relu: max(0, .) in place of tanh. */
TSR_API tsr_module *tsr_nn_rnn_cell(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t hidden,
                                    bool bias, bool relu);

/* --- attention, several inputs and outputs (tsr_apply_n) -------------------------------------- */
typedef struct tsr_multihead_attention_opts {
    size_t size;
    tsr_by_name by_name;
    bool bias TSR_IS(true); /* default true */
    bool batch_first;       /* (n,s,width) instead of (s,n,width) */
    bool causal;            /* query s sees keys 0 to s */
    double dropout;         /* of the weights, in training graphs; default 0 */
} tsr_multihead_attention_opts;
#define TSR_MULTIHEAD_ATTENTION_OPTS(...) \
    TSR_OPTIONS(tsr_multihead_attention_opts, (.bias = true, ), __VA_ARGS__)
/*
 * Makes an attention of `heads` heads, a divisor of width. Inputs: queries (s,n,width); keys
 * (t,n,width; left out: the queries); values (t,n,width; left out: the keys); a mask (s,t) or (n
 * heads,s,t); a mask of keys (n,t). As in PyTorch's MultiheadAttention, and other than in
 * tsr_scaled_dot_product_attention, a mask of bools is true where a key is NOT seen; one of the
 * queries' dtype is added to the scores. A query that sees no key gets zeros. Outputs: (s,n,width),
 * and the weights, a mean over heads (n,s,t), which cost memory where they are asked for.
 * "in_proj_weight" (3 width,width), "in_proj_bias" (3 width), "out_proj.weight" (width,width),
 * "out_proj.bias" (width). opts may be NULL.
 */
TSR_API tsr_module *tsr_nn_multihead_attention(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                               int64_t heads,
                                               const tsr_multihead_attention_opts *opts);
typedef struct tsr_transformer_layer_opts {
    size_t size;
    tsr_by_name by_name;
    int64_t inner TSR_IS(2048); /* features between the two linear layers; default 2048 */
    double dropout TSR_IS(0.1); /* of attention's weights, both branches and between; default 0.1 */
    double eps TSR_IS(1e-5);    /* of both norms; default 1e-5 */
    bool gelu;                  /* takes the place of relu */
    bool batch_first;           /* (n,s,width) instead of (s,n,width) */
    bool norm_first;            /* each branch's norm stands before it */
    bool causal;                /* position s sees 0 to s */
} tsr_transformer_layer_opts;
#define TSR_TRANSFORMER_LAYER_OPTS(...)                                                     \
    TSR_OPTIONS(tsr_transformer_layer_opts, (.inner = 2048, .dropout = 0.1, .eps = 1e-5, ), \
                __VA_ARGS__)
/* Makes a layer of PyTorch's TransformerEncoder: "self_attn", "linear1", "linear2", "norm1",
 * "norm2". Inputs: x (s,n,width), and the two masks of tsr_nn_multihead_attention. opts may be
 * NULL. */
TSR_API tsr_module *tsr_nn_transformer_encoder_layer(tsr_world *w, const tsr_nn_opts *o,
                                                     int64_t width, int64_t heads,
                                                     const tsr_transformer_layer_opts *opts);
/* Makes a layer of PyTorch's TransformerDecoder: "self_attn", "multihead_attn", "linear1",
 * "linear2", "norm1", "norm2", "norm3". Inputs: x (s,n,width), the memory (t,n,width), a mask of
 * each attention, and a mask of keys of each. opts may be NULL; .causal is for the first attention.
 */
TSR_API tsr_module *tsr_nn_transformer_decoder_layer(tsr_world *w, const tsr_nn_opts *o,
                                                     int64_t width, int64_t heads,
                                                     const tsr_transformer_layer_opts *opts);
/* Makes several layers of tsr_nn_transformer_encoder_layer, "layers.<i>", each with its own initial
 * values, and behind them a layer norm "norm" where `norm` says so. Inputs: those of the layer,
 * each of which gets all but the first. */
TSR_API tsr_module *tsr_nn_transformer_encoder(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                               int64_t heads, int layers, bool norm,
                                               const tsr_transformer_layer_opts *opts);
/* As tsr_nn_transformer_encoder, of layers of tsr_nn_transformer_decoder_layer. */
TSR_API tsr_module *tsr_nn_transformer_decoder(tsr_world *w, const tsr_nn_opts *o, int64_t width,
                                               int64_t heads, int layers, bool norm,
                                               const tsr_transformer_layer_opts *opts);

/* --- containers and conversions --------------------------------------------------------------- */
/*
 * Gives the batch norms in and below m (those of tsr_nn_batch_norm) statistics over the batches of
 * all ranks of a group, in local training graphs: PyTorch's SyncBatchNorm. Each rank converts its
 * own module, all alike, and applies it in the same order; batches may be uneven, and empty. The
 * running averages are then equal on all ranks; the gradients of weight and bias are of each rank's
 * own batch. In other graphs nothing changes. TSR_ERR_INVALID names a batch norm with statistics of
 * several virtual batches (TSR_BN_LOCAL); nothing is changed then. The group must outlive the
 * module's use. Not collective.
 */
TSR_API tsr_status tsr_convert_sync_batchnorm(tsr_module *m, const tsr_group *group);
/* Makes an empty container; children are applied in the order in which they were added. */
TSR_API tsr_module *tsr_nn_sequential(tsr_world *w, const tsr_nn_opts *o);

/*
 * The type of a function of a plug-in library (tsr_plugin_load) that makes a model, which an
 * experiment names: `model: {plugin: LIBRARY, function: NAME}`. It returns a root module with the
 * placement, dtype and seed of the options; NULL on error. tsr_plugin_begin is called before it.
 */
typedef tsr_module *tsr_plugin_model_fn(tsr_world *world, const tsr_nn_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
