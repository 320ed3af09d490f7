/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row per layer with parameters: LAYER(name, call, doc, attributes). In the call, W and O are
 * the world and the options that all layers are made with, L the entry's attributes, A those that
 * it shares with ops. Layers without parameters are the ops of op_table.h that take one operand.
 */
#ifndef TESSERA_CONFIG_LAYER_TABLE_H
#define TESSERA_CONFIG_LAYER_TABLE_H

/* clang-format off */
#define COUNT_OF(key, member, what) L_ATTR(key, INT, member, TSRI_NEEDED, 1, 0x1p31, what)
#define IN_OUT COUNT_OF(in, in, "features, or channels, of what comes in") \
    COUNT_OF(out, out, "those of the result")
#define BIAS L_ATTR(bias, BOOL, bias, "true", 0, 0, "adds one")
#define CHANNELS COUNT_OF(channels, channels, "axis 1")
#define L_PAIR(key, d, low, what) L_ATTR(key, PAIR, op.key, d, low, 0, what)
#define L_TRIPLE(key, d, low, what) L_ATTR(key, TRIPLE, op.key##3, d, low, 0, what)
#define L_ONE(key, d, low, what) L_ATTR(key, INT, op.key, d, low, 0x7fffffff, what)
#define GROUPS L_ATTR(groups, INT, op.groups, "1", 1, 0x1p31, "as many as in: depthwise")
#define EPS L_ATTR(eps, FLOAT, op.eps, "1e-5", 0, INFINITY, "")
#define NORM_SHAPE L_ATTR(shape, SHAPE, op.shape, TSRI_NEEDED, 1, 0, \
    "the last axes, which are a row")
#define AFFINE(d) L_ATTR(affine, BOOL, affine, d, 0, 0, "has weight and bias")
#define RECURRENT \
    COUNT_OF(in, in, "features of a step") COUNT_OF(hidden, hidden, "features of the state") \
    L_ATTR(layers, INT, count, "1", 1, 1000, "one above the other") BIAS \
    L_ATTR(bidirectional, BOOL, bidirectional, "false", 0, 0, "both directions of time") \
    L_ATTR(batch_first, BOOL, batch_first, "false", 0, 0, "(n,t,in) instead of (t,n,in)") \
    L_ATTR(dropout, FLOAT, op.p, "0", 0, 0.999999, "between the layers")
#define ATTENTION COUNT_OF(width, width, "features of a position") \
    COUNT_OF(heads, heads, "a divisor of width") \
    L_ATTR(causal, BOOL, op.causal, "false", 0, 0, "a position sees itself and those before") \
    L_ATTR(batch_first, BOOL, batch_first, "true", 0, 0, "(n,s,width) instead of (s,n,width)")
#define ENCODER ATTENTION \
    L_ATTR(inner, INT, inner, "2048", 1, 0x1p31, "features between the two linear layers") \
    L_ATTR(dropout, FLOAT, op.p, "0.1", 0, 0.999999, "of the weights, both branches and between") \
    EPS L_ATTR(gelu, BOOL, gelu, "false", 0, 0, "in the place of relu") \
    L_ATTR(norm_first, BOOL, norm_first, "false", 0, 0, "each branch's norm stands before it")

#define TSRI_LAYER_TABLE(LAYER) \
    LAYER(linear, tsr_nn_linear(W, O, L.in, L.out, L.bias), \
       "x (...,in) times weight (out,in), plus bias (out).", IN_OUT BIAS) \
    LAYER(conv1d, make_conv1d(c), \
       "Convolution of (n,in,l) by weight (out,in/groups,k).", \
       IN_OUT L_ONE(kernel, TSRI_NEEDED, 1, "the window") L_ONE(stride, "1", 1, "") \
       L_ONE(padding, "0", 0, "zeros around") L_ONE(dilation, "1", 1, "") GROUPS BIAS) \
    LAYER(conv2d, make_conv2d(c), \
       "Convolution of (n,in,h,w) by weight (out,in/groups,k,k); the window is a square.", \
       IN_OUT L_ATTR(kernel, INT, op.n, TSRI_NEEDED, 1, 0x7fffffff, "the window") \
       L_PAIR(stride, "1", 1, "") L_PAIR(padding, "0", 0, "zeros around") \
       L_PAIR(dilation, "1", 1, "") GROUPS BIAS) \
    LAYER(conv3d, make_conv3d(c), \
       "Convolution of (n,in,d,h,w) by weight (out,in/groups,kd,kh,kw).", \
       IN_OUT L_TRIPLE(kernel, TSRI_NEEDED, 1, "the window") L_TRIPLE(stride, "1", 1, "") \
       L_TRIPLE(padding, "0", 0, "zeros around") L_TRIPLE(dilation, "1", 1, "") GROUPS BIAS) \
    LAYER(conv_transpose1d, make_conv_transpose1d(c), \
       "The gradient of a convolution: (n,in,l) by weight (in,out/groups,k).", \
       IN_OUT L_ONE(kernel, TSRI_NEEDED, 1, "the window") L_ONE(stride, "1", 1, "") \
       L_ONE(padding, "0", 0, "zeros around") L_ONE(output_padding, "0", 0, "") \
       L_ONE(dilation, "1", 1, "") GROUPS BIAS) \
    LAYER(conv_transpose2d, make_conv_transpose2d(c), \
       "The same of (n,in,h,w), by weight (in,out/groups,kh,kw).", \
       IN_OUT L_PAIR(kernel, TSRI_NEEDED, 1, "the window") L_PAIR(stride, "1", 1, "") \
       L_PAIR(padding, "0", 0, "zeros around") L_PAIR(output_padding, "0", 0, "") \
       L_PAIR(dilation, "1", 1, "") GROUPS BIAS) \
    LAYER(conv_transpose3d, make_conv_transpose3d(c), \
       "The same of (n,in,d,h,w), by weight (in,out/groups,kd,kh,kw).", \
       IN_OUT L_TRIPLE(kernel, TSRI_NEEDED, 1, "the window") L_TRIPLE(stride, "1", 1, "") \
       L_TRIPLE(padding, "0", 0, "zeros around") L_TRIPLE(output_padding, "0", 0, "") \
       L_TRIPLE(dilation, "1", 1, "") GROUPS BIAS) \
    LAYER(batch_norm, make_batch_norm(c), \
       "Batch norm of (n,channels,h,w) or (n,channels), with running averages.", CHANNELS EPS \
       L_ATTR(momentum, FLOAT, op.momentum, "0.1", 0, 1, "of the running averages") \
       L_WORD(stats, op.stats, "global", bn_words, "over the global batch, or `parts` of it") \
       L_ATTR(parts, INT, op.parts, TSRI_NONE, 1, 65536, \
       "virtual batches of local statistics; the ranks by default")) \
    LAYER(layer_norm, tsr_nn_layer_norm(W, O, A.shape, TSR_LAYER_NORM_OPTS(.eps = A.eps)), \
       "Layer norm of rows.", NORM_SHAPE EPS) \
    LAYER(group_norm, tsr_nn_group_norm(W, O, A.groups, L.channels, A.eps, L.affine), \
       "Norm of groups of channels.", \
       L_ATTR(groups, INT, op.groups, TSRI_NEEDED, 1, 0x1p31, "a divisor of channels") CHANNELS \
       EPS AFFINE("true")) \
    LAYER(instance_norm, tsr_nn_instance_norm(W, O, L.channels, A.eps, L.affine), \
       "Norm of each channel of each row.", CHANNELS EPS AFFINE("false")) \
    LAYER(rms_norm, tsr_nn_rms_norm(W, O, A.shape, A.eps), "Root mean square norm of rows.", \
       NORM_SHAPE EPS) \
    LAYER(embedding, tsr_nn_embedding(W, O, L.in, L.out, NULL), \
       "Rows of a table (in,out) by ids i64.", \
       COUNT_OF(in, in, "how many rows") COUNT_OF(out, out, "features of a row")) \
    LAYER(prelu, tsr_nn_prelu(W, O, L.channels), \
       "x where x > 0, else weight x: one slope, or one for each channel.", \
       L_ATTR(channels, INT, channels, "1", 1, 0x1p31, "how many slopes")) \
    LAYER(flatten, tsr_nn_flatten(W, O, (int)A.from_axis), "Joins the axes from one on.", \
       L_ATTR(from_axis, INT, op.from_axis, "1", -8, 7, "the first of them")) \
    LAYER(dropout2d, tsr_nn_dropout2d(W, O, A.p), "Drops whole channels in training.", \
       L_ATTR(p, FLOAT, op.p, "0.5", 0, 0.999999, "the probability")) \
    LAYER(lstm, make_recurrent(c, tsr_nn_lstm), \
       "LSTM over time, from zeros; the result is the state of each step.", RECURRENT) \
    LAYER(gru, make_recurrent(c, tsr_nn_gru), "The same, GRU.", RECURRENT) \
    LAYER(rnn, make_recurrent(c, tsr_nn_rnn), "The same, Elman's network with tanh.", RECURRENT) \
    LAYER(multihead_attention, make_attention(c), \
       "PyTorch's MultiheadAttention of x to itself.", ATTENTION BIAS \
       L_ATTR(dropout, FLOAT, op.p, "0", 0, 0.999999, "of the weights")) \
    LAYER(transformer_encoder_layer, make_encoder(c, false), \
       "PyTorch's TransformerEncoderLayer.", ENCODER) \
    LAYER(transformer_encoder, make_encoder(c, true), \
       "Several of them, layers.0 and so on.", ENCODER \
       L_ATTR(layers, INT, count, TSRI_NEEDED, 1, 1024, "how many") \
       L_ATTR(norm, BOOL, final_norm, "false", 0, 0, "a layer norm behind them")) \
    LAYER(identity, tsr_nn_identity(W, O), "x itself.", ) \
    LAYER(sequential, make_container(c, sequential_forward), "Layers, one behind the other.", \
       L_ITEMS(layers, TSRI_NEEDED, "Its layers; their names are within its own.")) \
    LAYER(residual, make_container(c, residual_forward), \
       "What layers make of x, plus x, or plus what the shortcut makes of x.", \
       L_ITEMS(layers, TSRI_NEEDED, "Its layers; their names are within its own.") \
       L_ITEMS(shortcut, TSRI_NONE, "Layers of the other branch, as a child \"shortcut\".")) \
    LAYER(part, make_container(c, sequential_forward), \
       "The layers of an entry of `parts`, with parameters of their own.", \
       {.name = "of", .kind = TSRI_FIELD_NAME, .offset = offsetof(tsri_config_layer, part), \
        .fallback = TSRI_NEEDED, .legal = "the name of an entry of parts", .doc = "Which one."},)
/* clang-format on */

#endif
