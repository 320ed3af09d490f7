/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of layers.py: one layer, its outputs and its gradients, in f64.
 *
 * usage: layer_peer LAYER RANKS PARAMETERS DATA DIR
 *
 * LAYER is a name of the table below; PARAMETERS and DATA are signatures ("B", "S(0)", "auto").
 * Writes the layer's initial weights to DIR/initial.safetensors, gives all parameters other values,
 * and writes these to DIR/weights.safetensors. Prints a line a tensor, its name and its elements:
 * "out0", ..., then the gradients "in0", ... of floating-point inputs, and those of the parameters
 * by name. The loss is the sum of all outputs, each element times a weight.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

enum { MOST = 8, MOST_PARAMS = 64, MOST_ELEMENTS = 4096 };

/* kind: 'f' is f64, 'i' ids below `limit`, 'b' bools; 0: an input that is left out. */
typedef struct input {
    char kind;
    tsr_dims dims;
    int limit;
} input;

typedef struct layer_case {
    const char *name;
    tsr_module *(*make)(tsr_world *w, const tsr_nn_opts *o);
    int nin;
    input in[6];
    int nout;
} layer_case;

/* --- the layers ------------------------------------------------------------------------------- */
static tsr_module *make_lstm(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_lstm(w, o, 3, 4, TSR_RNN_OPTS(.layers = 2, .bidirectional = true));
}

static tsr_module *make_lstm_plain(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_lstm(w, o, 3, 4, NULL);
}

static tsr_module *make_lstm_batch_first(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_lstm(w, o, 3, 4, TSR_RNN_OPTS(.batch_first = true, .bias = false));
}

static tsr_module *make_gru(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_gru(w, o, 3, 4, TSR_RNN_OPTS(.layers = 2, .bidirectional = true));
}

static tsr_module *make_gru_batch_first(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_gru(w, o, 3, 4, TSR_RNN_OPTS(.batch_first = true, .bias = false));
}

static tsr_module *make_rnn(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_rnn(w, o, 3, 4, TSR_RNN_OPTS(.layers = 2));
}

static tsr_module *make_rnn_relu(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_rnn(w, o, 3, 4, TSR_RNN_OPTS(.bidirectional = true, .relu = true));
}

static tsr_module *make_gru_plain(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_gru(w, o, 3, 4, NULL);
}

static tsr_module *make_gru_batch(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_gru(w, o, 3, 4,
                      TSR_RNN_OPTS(.layers = 2, .batch_first = true, .bidirectional = true));
}

static tsr_module *make_rnn_both(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_rnn(w, o, 3, 4, TSR_RNN_OPTS(.bidirectional = true));
}

static tsr_module *make_lstm_cell(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_lstm_cell(w, o, 3, 4, true);
}

static tsr_module *make_gru_cell(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_gru_cell(w, o, 3, 4, true);
}

static tsr_module *make_rnn_cell(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_rnn_cell(w, o, 3, 4, false, false);
}

/* A chain that applies a layer of three outputs as one of one output. */
static tsr_module *make_chain(tsr_world *w, const tsr_nn_opts *o)
{
    tsr_module *m = tsr_nn_sequential(w, o);
    tsr_module_add(m, "0", tsr_nn_linear(w, o, 3, 5, true));
    tsr_module_add(m, "1", tsr_nn_lstm(w, o, 5, 4, NULL));
    tsr_module_add(m, "2", tsr_nn_linear(w, o, 4, 2, false));
    return m;
}

/* Layers without weights, but for a slope. */
static tsr_module *make_plain(tsr_world *w, const tsr_nn_opts *o)
{
    tsr_module *m = tsr_nn_sequential(w, o);
    tsr_module_add(m, "0", tsr_nn_avg_pool2d(w, o, TSR_POOL2D_OPTS(.kernel = {2, 2})));
    tsr_module_add(m, "1", tsr_nn_prelu(w, o, 3));
    tsr_module_add(m, "2", tsr_nn_leaky_relu(w, o, 0.2));
    tsr_module_add(m, "3", tsr_nn_fn(w, tsr_tanh_at));
    tsr_module_add(m, "4", tsr_nn_gelu(w, o, TSR_GELU_ERF));
    tsr_module_add(m, "5", tsr_nn_adaptive_avg_pool2d(w, o, 2, 1));
    tsr_module_add(m, "6", tsr_nn_flatten(w, o, 1));
    tsr_module_add(m, "7", tsr_nn_softmax(w, o, -1));
    return m;
}

static tsr_module *make_group_norm(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_group_norm(w, o, 2, 4, 1e-5, true);
}

static tsr_module *make_instance_norm(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_instance_norm(w, o, 4, 1e-3, true);
}

static tsr_module *make_instance_norm_bare(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_instance_norm(w, o, 4, 1e-5, false);
}

static tsr_module *make_rms_norm(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_rms_norm(w, o, TSR_DIMS(4, 3), 1e-3);
}

static tsr_module *make_embedding(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_embedding(w, o, 7, 4, NULL);
}

static tsr_module *make_embedding_padded(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_embedding(w, o, 7, 4,
                            TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = -3));
}

static tsr_module *make_attention(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_multihead_attention(w, o, 8, 2, NULL);
}

static tsr_module *make_attention_batch_first(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_multihead_attention(w, o, 8, 2,
                                      TSR_MULTIHEAD_ATTENTION_OPTS(.batch_first = true));
}

static tsr_module *make_attention_causal(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_multihead_attention(w, o, 8, 2,
                                      TSR_MULTIHEAD_ATTENTION_OPTS(.bias = false, .causal = true));
}

static tsr_module *make_encoder(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_transformer_encoder_layer(w, o, 8, 2,
                                            TSR_TRANSFORMER_LAYER_OPTS(.inner = 6, .dropout = 0));
}

static tsr_module *make_encoder_first(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_transformer_encoder_layer(
        w, o, 8, 2,
        TSR_TRANSFORMER_LAYER_OPTS(.inner = 6, .dropout = 0, .eps = 1e-3, .gelu = true,
                                   .batch_first = true, .norm_first = true, .causal = true));
}

static tsr_module *make_decoder(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_transformer_decoder_layer(
        w, o, 8, 2, TSR_TRANSFORMER_LAYER_OPTS(.inner = 6, .dropout = 0, .causal = true));
}

static tsr_module *make_encoder_stack(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_transformer_encoder(
        w, o, 8, 2, 2, true, TSR_TRANSFORMER_LAYER_OPTS(.inner = 6, .dropout = 0, .gelu = true));
}

static tsr_module *make_decoder_stack(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_transformer_decoder(
        w, o, 8, 2, 2, false,
        TSR_TRANSFORMER_LAYER_OPTS(.inner = 6, .dropout = 0, .norm_first = true));
}

/* Nothing of the first layer's output reaches the second, but for one element of a billion. */
static tsr_module *make_lstm_dropout(tsr_world *w, const tsr_nn_opts *o)
{
    return tsr_nn_lstm(w, o, 3, 4, TSR_RNN_OPTS(.layers = 2, .dropout = 1 - 1e-9));
}

static const layer_case cases[] = {
    {"lstm",
     make_lstm,
     3,
     {{'f', {3, {5, 6, 3}}, 0}, {'f', {3, {4, 6, 4}}, 0}, {'f', {3, {4, 6, 4}}, 0}},
     3},
    {"lstm_plain", make_lstm_plain, 1, {{'f', {3, {5, 6, 3}}, 0}}, 3},
    {"lstm_batch_first",
     make_lstm_batch_first,
     3,
     {{'f', {3, {6, 5, 3}}, 0}, {'f', {3, {1, 6, 4}}, 0}, {'f', {3, {1, 6, 4}}, 0}},
     3},
    {"gru", make_gru, 2, {{'f', {3, {5, 6, 3}}, 0}, {'f', {3, {4, 6, 4}}, 0}}, 2},
    {"gru_batch_first", make_gru_batch_first, 1, {{'f', {3, {6, 5, 3}}, 0}}, 2},
    {"rnn", make_rnn, 2, {{'f', {3, {5, 6, 3}}, 0}, {'f', {3, {2, 6, 4}}, 0}}, 2},
    {"rnn_relu", make_rnn_relu, 1, {{'f', {3, {5, 6, 3}}, 0}}, 1},
    {"lstm_one",
     make_lstm_plain,
     3,
     {{'f', {3, {1, 1, 3}}, 0}, {'f', {3, {1, 1, 4}}, 0}, {'f', {3, {1, 1, 4}}, 0}},
     3},
    {"gru_one", make_gru_plain, 1, {{'f', {3, {5, 1, 3}}, 0}}, 2},
    {"rnn_one", make_rnn_both, 2, {{'f', {3, {1, 2, 3}}, 0}, {'f', {3, {2, 2, 4}}, 0}}, 2},
    {"gru_batch", make_gru_batch, 1, {{'f', {3, {7, 3, 3}}, 0}}, 2},
    {"lstm_cell",
     make_lstm_cell,
     3,
     {{'f', {2, {6, 3}}, 0}, {'f', {2, {6, 4}}, 0}, {'f', {2, {6, 4}}, 0}},
     2},
    {"gru_cell", make_gru_cell, 2, {{'f', {2, {6, 3}}, 0}, {'f', {2, {6, 4}}, 0}}, 1},
    {"rnn_cell", make_rnn_cell, 1, {{'f', {2, {6, 3}}, 0}}, 1},
    {"lstm_dropout", make_lstm_dropout, 1, {{'f', {3, {5, 6, 3}}, 0}}, 3},
    {"decoder",
     make_decoder,
     6,
     {{'f', {3, {5, 6, 8}}, 0},
      {'f', {3, {4, 6, 8}}, 0},
      {0},
      {'f', {2, {5, 4}}, 0},
      {0},
      {'b', {2, {6, 4}}, 0}},
     1},
    {"encoder_stack",
     make_encoder_stack,
     3,
     {{'f', {3, {5, 6, 8}}, 0}, {0}, {'b', {2, {6, 5}}, 0}},
     1},
    {"decoder_stack",
     make_decoder_stack,
     3,
     {{'f', {3, {5, 6, 8}}, 0}, {'f', {3, {4, 6, 8}}, 0}, {'f', {2, {5, 5}}, 0}},
     1},
    {"chain", make_chain, 1, {{'f', {3, {5, 6, 3}}, 0}}, 1},
    {"plain", make_plain, 1, {{'f', {4, {6, 3, 8, 4}}, 0}}, 1},
    {"group_norm", make_group_norm, 1, {{'f', {4, {6, 4, 3, 2}}, 0}}, 1},
    {"instance_norm", make_instance_norm, 1, {{'f', {4, {6, 4, 3, 2}}, 0}}, 1},
    {"instance_norm_bare", make_instance_norm_bare, 1, {{'f', {4, {6, 4, 3, 2}}, 0}}, 1},
    {"rms_norm", make_rms_norm, 1, {{'f', {3, {6, 4, 3}}, 0}}, 1},
    {"embedding", make_embedding, 1, {{'i', {2, {6, 5}}, 7}}, 1},
    {"embedding_padded", make_embedding_padded, 1, {{'i', {2, {6, 5}}, 7}}, 1},
    {"attention", make_attention, 1, {{'f', {3, {5, 6, 8}}, 0}}, 1},
    {"attention_weights", make_attention, 1, {{'f', {3, {5, 6, 8}}, 0}}, 2},
    {"attention_cross",
     make_attention,
     5,
     {{'f', {3, {5, 6, 8}}, 0},
      {'f', {3, {4, 6, 8}}, 0},
      {'f', {3, {4, 6, 8}}, 0},
      {'f', {2, {5, 4}}, 0},
      {'b', {2, {6, 4}}, 0}},
     2},
    {"attention_bools",
     make_attention_batch_first,
     5,
     {{'f', {3, {6, 5, 8}}, 0},
      {'f', {3, {6, 7, 8}}, 0},
      {0},
      {'b', {2, {5, 7}}, 0},
      {'b', {2, {6, 7}}, 0}},
     1},
    {"attention_bools_weights",
     make_attention_batch_first,
     5,
     {{'f', {3, {6, 5, 8}}, 0},
      {'f', {3, {6, 7, 8}}, 0},
      {0},
      {'b', {2, {5, 7}}, 0},
      {'b', {2, {6, 7}}, 0}},
     2},
    {"attention_blind",
     make_attention_batch_first,
     4,
     {{'f', {3, {6, 5, 8}}, 0}, {'f', {3, {6, 1, 8}}, 0}, {0}, {'b', {2, {5, 1}}, 0}},
     1},
    {"attention_blind_weights",
     make_attention_batch_first,
     4,
     {{'f', {3, {6, 5, 8}}, 0}, {'f', {3, {6, 1, 8}}, 0}, {0}, {'b', {2, {5, 1}}, 0}},
     2},
    {"attention_heads_mask",
     make_attention,
     4,
     {{'f', {3, {5, 6, 8}}, 0}, {0}, {0}, {'f', {3, {12, 5, 5}}, 0}},
     1},
    {"attention_causal", make_attention_causal, 1, {{'f', {3, {5, 6, 8}}, 0}}, 1},
    {"attention_causal_weights", make_attention_causal, 1, {{'f', {3, {5, 6, 8}}, 0}}, 2},
    {"encoder",
     make_encoder,
     3,
     {{'f', {3, {5, 6, 8}}, 0}, {'f', {2, {5, 5}}, 0}, {'b', {2, {6, 5}}, 0}},
     1},
    {"encoder_first", make_encoder_first, 1, {{'f', {3, {6, 5, 8}}, 0}}, 1},
};

/* --- running ---------------------------------------------------------------------------------- */
typedef struct job {
    const layer_case *of;
    const char *dir;
    tsr_sbp param, data;
} job;

typedef struct params {
    tsr_variable *v[MOST_PARAMS];
    char name[MOST_PARAMS][96];
    int n;
} params;

static tsr_status find_params(tsr_variable *v, const char *name, void *arg)
{
    params *all = arg;
    if (tsr_variable_trainable(v)) {
        snprintf(all->name[all->n], sizeof all->name[0], "%s", name);
        all->v[all->n++] = v;
    }
    return TSR_OK;
}

static tsr_status set_params(const params *all)
{
    double values[MOST_ELEMENTS];
    for (int i = 0; i < all->n; i++) {
        const int64_t n = tsr_dims_count(tsr_variable_dims(all->v[i]));
        for (int64_t k = 0; k < n; k++)
            values[k] = (double)((k * 7 + i * 3) % 13) / 16 - 0.4;
        TSR_TRY(tsr_variable_set(all->v[i], values, (size_t)n * sizeof *values));
    }
    return TSR_OK;
}

static tsr_status feed(tsr_plan *plan, const char *name, const input *in, int number)
{
    double f[MOST_ELEMENTS];
    int64_t ids[MOST_ELEMENTS];
    bool b[MOST_ELEMENTS];
    const int64_t n = tsr_dims_count(in->dims);
    for (int64_t k = 0; k < n; k++) {
        f[k] = (double)((k * 7 + number * 5) % 11) / 8 - 0.5; /* exact */
        ids[k] = in->kind == 'i' ? (k * 3 + 1) % in->limit : 0;
        b[k] = (k * 5 + number) % 3 == 0;
    }
    if (in->kind == 'b')
        return tsr_feed(plan, name, b, (size_t)n * sizeof *b);
    return tsr_feed(plan, name, in->kind == 'i' ? (const void *)ids : f, (size_t)n * sizeof *f);
}

static tsr_status print(tsr_world *w, tsr_plan *plan, const char *name)
{
    double y[MOST_ELEMENTS];
    tsr_dims dims;
    TSR_TRY(tsr_fetch_shard(plan, name, NULL, 0, &dims));
    TSR_TRY(tsr_fetch(plan, name, y, (size_t)tsr_dims_count(dims) * sizeof *y));
    if (tsr_world_rank(w) != 0)
        return TSR_OK;
    printf("%s", name);
    for (int64_t k = 0; k < tsr_dims_count(dims); k++)
        printf(" %.17g", y[k]);
    printf("\n");
    return TSR_OK;
}

/* Returns the sum of x, each element times a weight. */
static tsr_tensor *weighed(tsr_tensor *x, int number, const tsr_placement *p)
{
    double weights[MOST_ELEMENTS];
    const tsr_dims dims = tsr_tensor_dims(x);
    for (int64_t k = 0; k < tsr_dims_count(dims) && k < MOST_ELEMENTS; k++)
        weights[k] = (double)((k * 5 + number * 3) % 7) / 4 - 0.6;
    tsr_tensor *c = tsr_constant(tsr_tensor_graph(x), TSR_F64, dims, weights, p, TSR_B);
    return tsr_sum(tsr_mul(x, c), TSR_ALL_AXES, false);
}

static tsr_status save(const job *j, tsr_module *m, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.safetensors", j->dir, name);
    return tsr_save(m, path);
}

static tsr_status rank(tsr_world *w, void *arg)
{
    const job *j = arg;
    const layer_case *of = j->of;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *m = of->make(w, &(const tsr_nn_opts){p, j->param, TSR_F64, 3});
    params all = {.n = 0};
    TSR_TRY(tsr_module_visit(m, find_params, &all));

    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *in[MOST] = {NULL}, *out[MOST], *loss = NULL;
    tsr_tensor *of_grads[MOST + MOST_PARAMS], *grads[MOST + MOST_PARAMS];
    char names[2 * MOST + MOST_PARAMS][96];
    int ngrads = 0, nnames = 0;
    for (int i = 0; i < of->nin; i++) {
        const input *x = &of->in[i];
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        if (!x->kind)
            continue;
        in[i] = tsr_input(g, name,
                          x->kind == 'f'   ? TSR_F64
                          : x->kind == 'i' ? TSR_I64
                                           : TSR_BOOL,
                          x->dims, p, j->data);
        if (x->kind == 'f') {
            snprintf(names[MOST + ngrads], sizeof names[0], "in%d", i);
            of_grads[ngrads++] = in[i];
        }
    }
    tsr_apply_n(m, of->nin, in, of->nout, out);
    for (int i = 0; i < of->nout; i++) {
        TSR_TRY(tsr_graph_status(g));
        snprintf(names[nnames], sizeof names[0], "out%d", i);
        tsr_output(g, names[nnames++], out[i], p, TSR_B);
        tsr_tensor *part = weighed(out[i], i, p);
        loss = loss ? tsr_add(loss, part) : part;
    }
    for (int i = 0; i < all.n; i++) {
        snprintf(names[MOST + ngrads], sizeof names[0], "%s", all.name[i]);
        of_grads[ngrads++] = tsr_read(g, all.v[i]);
    }
    tsr_gradients(loss, ngrads, of_grads, grads);
    for (int i = 0; i < ngrads; i++)
        tsr_output(g, names[MOST + i], grads[i], p, TSR_B);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan));
    TSR_TRY(save(j, m, "initial"));
    TSR_TRY(set_params(&all));
    TSR_TRY(save(j, m, "weights"));
    for (int i = 0; i < of->nin; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        if (of->in[i].kind)
            TSR_TRY(feed(plan, name, &of->in[i], i));
    }
    TSR_TRY(tsr_run(plan));
    for (int i = 0; i < nnames; i++)
        TSR_TRY(print(w, plan, names[i]));
    for (int i = 0; i < ngrads; i++)
        TSR_TRY(print(w, plan, names[MOST + i]));
    return TSR_OK;
}

static bool read_sbp(const char *text, tsr_sbp *out)
{
    *out = TSR_AUTO;
    return !strcmp(text, "auto") || tsr_sbp_parse(text, out) == TSR_OK;
}

int main(int argc, char **argv)
{
    job j = {.of = NULL};
    for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, argv[1]))
            j.of = &cases[i];
    if (argc != 6 || !j.of || !read_sbp(argv[3], &j.param) || !read_sbp(argv[4], &j.data)) {
        fprintf(stderr, "usage: layer_peer LAYER RANKS PARAMETERS DATA DIR\n");
        return 2;
    }
    j.dir = argv[5];
    if (tsr_spawn(atoi(argv[2]), rank, &j) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
