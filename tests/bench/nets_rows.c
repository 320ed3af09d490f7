/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nets of sequences and tables: ViT-S/16 (Dosovitskiy et al. 2021; Touvron et al. 2021), an encoder
 * of the size of BERT-base (Devlin et al. 2019), a small DLRM (Naumov et al. 2019) and an LSTM in
 * f64.
 */
#include "nets.h"

/* Adds a stack of encoder layers whose input is (n,s,width). */
static void add_encoder(bench_builder *b, tsr_module *parent, int64_t width, int64_t heads,
                        int layers, bool norm_first, double eps)
{
    if (b->failed)
        return;
    bench_add(
        b, parent,
        tsr_nn_transformer_encoder(
            b->world, &b->nn, width, heads, layers, norm_first,
            TSR_TRANSFORMER_LAYER_OPTS(.inner = 4 * width, .dropout = 0, .eps = eps, .gelu = true,
                                       .batch_first = true, .norm_first = norm_first)));
}

/* --- ViT-S/16 --------------------------------------------------------------------------------- */
enum { VIT_WIDTH = 384, VIT_PATCHES = 14 * 14 };

/* The parts are the convolution that makes the patches, the encoder and the head. */
static tsr_tensor *vit_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    const int64_t rows = tsr_tensor_dims(x).d[0];
    tsr_tensor *patches = tsr_apply(tsr_module_child_at(m, 0), x);
    patches = tsr_transpose(tsr_flatten(patches, 2), 1, 2);
    tsr_tensor *const first =
        tsr_expand(tsr_use(m, "class_token", patches), TSR_DIMS(rows, 1, VIT_WIDTH));
    tsr_tensor *const both[2] = {first, patches};
    tsr_tensor *y = tsr_add(tsr_concat(2, both, 1), tsr_use(m, "positions", patches));
    y = tsr_narrow(tsr_apply(tsr_module_child_at(m, 1), y), 1, 0, 1);
    return tsr_apply(tsr_module_child_at(m, 2), tsr_reshape(y, TSR_DIMS(rows, VIT_WIDTH)));
}

tsr_module *bench_make_vit(bench_builder *b, const bench_net *net)
{
    (void)net;
    tsr_module *const root = bench_module(b, NULL, vit_forward);
    bench_param(b, root, "class_token", TSR_DIMS(1, 1, VIT_WIDTH));
    bench_param(b, root, "positions", TSR_DIMS(1, VIT_PATCHES + 1, VIT_WIDTH));
    bench_conv(b, root, 3, VIT_WIDTH, 16, 16, 1, true);
    add_encoder(b, root, VIT_WIDTH, 6, 12, true, 1e-6);
    bench_linear(b, root, VIT_WIDTH, 1000);
    return root;
}

/* --- BERT-base -------------------------------------------------------------------------------- */
enum { BERT_WIDTH = 768, BERT_VOCAB = 30522, BERT_POSITIONS = 512 };

/* The parts are the table of words, the norm of the embeddings, the encoder, the pooler and the
 * head; all positions are of the first segment. */
static tsr_tensor *bert_forward(tsr_module *m, tsr_tensor *ids, void *arg)
{
    (void)arg;
    const tsr_dims d = tsr_tensor_dims(ids);
    tsr_tensor *x = tsr_apply(tsr_module_child_at(m, 0), ids);
    x = tsr_add(x, tsr_narrow(tsr_use(m, "positions", x), 0, 0, d.d[1]));
    x = tsr_add(x, tsr_narrow(tsr_use(m, "segments", x), 0, 0, 1));
    x = tsr_apply(tsr_module_child_at(m, 1), x);
    x = tsr_narrow(tsr_apply(tsr_module_child_at(m, 2), x), 1, 0, 1);
    x = tsr_apply(tsr_module_child_at(m, 3), tsr_reshape(x, TSR_DIMS(d.d[0], BERT_WIDTH)));
    return tsr_apply(tsr_module_child_at(m, 4), tsr_tanh(x));
}

tsr_module *bench_make_bert(bench_builder *b, const bench_net *net)
{
    (void)net;
    tsr_module *const root = bench_module(b, NULL, bert_forward);
    bench_param(b, root, "positions", TSR_DIMS(BERT_POSITIONS, BERT_WIDTH));
    bench_param(b, root, "segments", TSR_DIMS(2, BERT_WIDTH));
    bench_table(b, root, BERT_VOCAB, BERT_WIDTH);
    bench_layer_norm(b, root, BERT_WIDTH, 1e-12);
    add_encoder(b, root, BERT_WIDTH, 12, 12, false, 1e-12);
    bench_linear(b, root, BERT_WIDTH, BERT_WIDTH);
    bench_linear(b, root, BERT_WIDTH, 2);
    return root;
}

/* --- DLRM ------------------------------------------------------------------------------------- */
enum { DLRM_TABLES = 26, DLRM_WIDTH = 64, DLRM_PAIRS = (DLRM_TABLES + 1) * DLRM_TABLES / 2 };

/* Returns the products of each two different rows of x (n,tables + 1,width): (n,pairs). */
static tsr_tensor *pair_products(tsr_tensor *x)
{
    enum { ROWS = DLRM_TABLES + 1 };
    int64_t ids[DLRM_PAIRS];
    int n = 0;
    for (int i = 1; i < ROWS; i++)
        for (int j = 0; j < i; j++)
            ids[n++] = (int64_t)i * ROWS + j;
    tsr_tensor *const pairs = tsr_constant(tsr_tensor_graph(x), TSR_I64, TSR_DIMS(DLRM_PAIRS), ids,
                                           tsr_tensor_placement(x), TSR_B);
    return tsr_index_select(tsr_flatten(tsr_matmul_t(x, x, false, true), 1), 1, pairs);
}

/* The parts are the lower perceptron, a table for each id, and the upper perceptron. */
static void dlrm_forward(tsr_module *m, int nin, tsr_tensor *const *in, int nout, tsr_tensor **out,
                         void *arg)
{
    (void)nin, (void)nout, (void)arg;
    tsr_tensor *features[DLRM_TABLES + 1];
    features[0] = tsr_apply(tsr_module_child_at(m, 0), in[0]);
    for (int i = 0; i < DLRM_TABLES; i++)
        features[i + 1] =
            tsr_apply(tsr_module_child_at(m, i + 1), tsr_squeeze(tsr_narrow(in[1], 1, i, 1), 1));
    tsr_tensor *const both[2] = {features[0],
                                 pair_products(tsr_stack(DLRM_TABLES + 1, features, 1))};
    out[0] = tsr_apply(tsr_module_child_at(m, DLRM_TABLES + 1), tsr_concat(2, both, 1));
}

tsr_module *bench_make_dlrm(bench_builder *b, const bench_net *net)
{
    tsr_module *const root =
        bench_add(b, NULL, tsr_module_create_n(b->world, &b->nn, dlrm_forward, NULL, NULL));
    const int64_t lower[] = {net->row.d[0], 512, 256, DLRM_WIDTH};
    const int64_t upper[] = {DLRM_WIDTH + DLRM_PAIRS, 512, 256, 1};
    tsr_module *layers = bench_module(b, root, NULL);
    for (int i = 0; i < 3; i++) {
        bench_linear(b, layers, lower[i], lower[i + 1]);
        bench_op(b, layers, tsr_relu_at);
    }
    for (int i = 0; i < DLRM_TABLES; i++)
        bench_table(b, root, net->second_vocab, DLRM_WIDTH);
    layers = bench_module(b, root, NULL);
    for (int i = 0; i < 3; i++) {
        bench_linear(b, layers, upper[i], upper[i + 1]);
        bench_op(b, layers, i < 2 ? tsr_relu_at : tsr_sigmoid_at);
    }
    return root;
}

/* --- LSTM in f64 ------------------------------------------------------------------------------ */
tsr_module *bench_make_lstm_f64(bench_builder *b, const bench_net *net)
{
    enum { HIDDEN = 51 };
    tsr_module *const root = bench_module(b, NULL, NULL);
    if (!b->failed)
        bench_add(b, root,
                  tsr_nn_lstm(b->world, &b->nn, net->row.d[1], HIDDEN,
                              TSR_RNN_OPTS(.batch_first = true)));
    bench_linear(b, root, HIDDEN, 1);
    return root;
}
